//! The roles of a gang: how many members each has and needs, which pod holds which rank, and what each place asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::asked::{Pending, RequestError, count};
use super::claims;
use crate::model::gang::{Gang, Invalid, Membership, Pod, RankClaim, Recognised, RoleStated};
use crate::model::names::PodUid;
use crate::model::pod::{Shape, Toleration};
use crate::model::ranks::{self, Claimant, RankFault};
use crate::reason::Code;

/// Most roles of a gang. Every pod names its own, so that without a bound a few thousand of them could keep the loop busy.
pub const MAX_ROLES: usize = 64;

/// How many members a gang and each of its roles has and needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Members expected.
    pub(super) size: u32,
    /// Members needed to start.
    pub(super) needed: u32,
    /// Roles in rank order; at least one.
    pub(super) roles: Vec<RoleSize>,
}

/// One role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RoleSize {
    pub(super) name: Arc<str>,
    pub(super) count: u32,
    pub(super) min: u32,
}

impl Sizes {
    /// Members needed per role; empty for one role, whose minimum is the gang's.
    pub(super) fn minimums(&self) -> BTreeMap<Arc<str>, u32> {
        if self.roles.len() < 2 {
            return BTreeMap::new();
        }
        self.roles.iter().map(|role| (Arc::clone(&role.name), role.min)).collect()
    }

    /// Pods by the role they play, each list in the order given. A role of which nobody is there has no entry.
    pub(super) fn by_role<'p>(&self, pods: &[&'p Arc<Pod>]) -> BTreeMap<Arc<str>, Vec<&'p Arc<Pod>>> {
        let mut all: BTreeMap<Arc<str>, Vec<&'p Arc<Pod>>> = BTreeMap::new();
        for pod in pods {
            all.entry(role_of(pod, self.roles.iter().map(|role| &role.name))).or_default().push(pod);
        }
        all
    }
}

/// The role a pod plays in its gang.
pub(super) fn role_in(pod: &Pod, recognised: &Recognised) -> Arc<str> {
    role_of(pod, recognised.roles.iter().map(|role| &role.name))
}

/// The role a pod names, if the gang has it; else the first.
fn role_of<'a>(pod: &Pod, mut roles: impl Iterator<Item = &'a Arc<str>> + Clone) -> Arc<str> {
    let named = match &pod.membership {
        Membership::Member { role, .. } => roles.clone().find(|name| *name == role),
        Membership::Unknown | Membership::Single => None,
    };
    named.or_else(|| roles.next()).map_or_else(|| Arc::from(""), Arc::clone)
}

/// Sizes of a gang of which these pods are there; `None` while neither size nor minimum is known, and with more roles than a gang
/// may have.
///
/// Where only a minimum is known, members beyond it are elastic. What a role does not say is what the others leave of the
/// size. A minimum of the gang below the sum of its roles' is taken from the last role, then the one before it; one above
/// is added in the same order: leaders come first and are needed.
pub(super) fn sizes(recognised: &Recognised, pods: &[&Arc<Pod>]) -> Option<Sizes> {
    let Recognised { size, min, roles, .. } = recognised;
    let seen = count(pods.len());
    if roles.len() > MAX_ROLES {
        return None;
    }
    if roles.is_empty() {
        let size = size.or_else(|| min.map(|min| min.max(seen)))?;
        let needed = min.unwrap_or(size).min(size).max(1);
        return Some(Sizes { size, needed, roles: vec![RoleSize { name: Arc::from(""), count: size, min: needed }] });
    }
    let mut seen_of: BTreeMap<Arc<str>, u32> = BTreeMap::new();
    for pod in pods {
        *seen_of.entry(role_of(pod, roles.iter().map(|role| &role.name))).or_default() += 1;
    }
    let there = |role: &RoleStated| seen_of.get(&role.name).copied().unwrap_or(0).max(role.min.unwrap_or(0));
    if size.is_none() && min.is_none() && roles.iter().any(|role| role.count.is_none() && role.min.is_none()) {
        return None;
    }
    let open = roles.iter().rposition(|role| role.count.is_none());
    let mut counts: Vec<u32> = roles.iter().map(|role| role.count.unwrap_or_else(|| there(role))).collect();
    if let (Some(open), Some(size)) = (open, size) {
        let others = counts.iter().enumerate().filter(|(index, _)| *index != open);
        let others = others.map(|(_, count)| *count).fold(0, u32::saturating_add);
        counts[open] = size.saturating_sub(others);
    }
    let of = |(role, count): (&RoleStated, u32)| {
        // Of a role of which only a minimum is known the rest is elastic.
        RoleSize { name: Arc::clone(&role.name), count, min: role.min.unwrap_or(count).min(count) }
    };
    let mut sized: Vec<RoleSize> = roles.iter().zip(counts).map(of).collect();
    let all = sized.iter().map(|role| role.count).fold(0, u32::saturating_add);
    // Roles that nobody has been seen of yet are not among these: a minimum may be above what is known.
    let size = size.map_or_else(|| all.max(min.unwrap_or(0)), |size| size.max(all));
    let least = sized.iter().map(|role| role.min).fold(0, u32::saturating_add);
    // Without a size the minimum is all that is known of the whole.
    let needed = min.unwrap_or(if recognised.size.is_some() && least == all { size } else { least }).min(size).max(1);
    let (mut less, mut more) = (least.saturating_sub(needed), needed.saturating_sub(least));
    for role in sized.iter_mut().rev() {
        let taken = less.min(role.min);
        let added = more.min(role.count - role.min);
        role.min = role.min - taken + added;
        (less, more) = (less - taken, more - added);
    }
    Some(Sizes { size, needed, roles: sized })
}

/// Which pod holds which rank of a role, indexed by rank; `None` = none yet.
///
/// A bound member keeps the rank it was bound with, whoever comes. Then every valid, unique rank keeps its place, and a
/// member without one keeps the place the plan gave it. Members that succeeded keep their rank until a live member
/// needs it: Jobs that work off a queue make pods beyond their ranks.
pub(super) fn holders(
    role: &RoleSize,
    gang: &Gang,
    members: &[&Arc<Pod>],
    done: &[&Arc<Pod>],
) -> (Vec<Option<PodUid>>, Vec<PodUid>) {
    let size = role.count;
    let places = gang.places_by_uid();
    let planned = |pod: &Pod| {
        let place = places.get(&pod.uid).filter(|place| place.role == role.name);
        place.map(|place| place.rank).filter(|rank| *rank < size)
    };
    let claimed = |pod: &Pod| match &pod.membership {
        Membership::Member { rank: RankClaim::Rank(rank), .. } if *rank < size => Some(*rank),
        Membership::Member { .. } | Membership::Unknown | Membership::Single => None,
    };
    let mut taken: BTreeSet<u32> =
        members.iter().filter(|pod| pod.node.is_some()).filter_map(|pod| planned(pod)).collect();
    let free_claims: BTreeSet<u32> = members
        .iter()
        .filter(|pod| pod.node.is_none() || planned(pod).is_none())
        .filter_map(|pod| claimed(pod))
        .filter(|rank| !taken.contains(rank))
        .collect();
    let claim = |pod: &Arc<Pod>| {
        let kept = planned(pod).filter(|_| pod.node.is_some());
        let own = || claimed(pod).filter(|rank| !taken.contains(rank));
        let given = || planned(pod).filter(|rank| !taken.contains(rank) && !free_claims.contains(rank));
        kept.or_else(own).or_else(given).map_or(RankClaim::Missing, RankClaim::Rank)
    };
    let mut claimants: Vec<Claimant> =
        members.iter().map(|pod| Claimant { uid: pod.uid.clone(), created: pod.created, claim: claim(pod) }).collect();
    for claimant in &claimants {
        if let RankClaim::Rank(rank) = claimant.claim {
            taken.insert(rank);
        }
    }
    for pod in done {
        if let Some(rank) = planned(pod).or_else(|| claimed(pod)).filter(|rank| taken.insert(*rank)) {
            claimants.push(Claimant { uid: pod.uid.clone(), created: pod.created, claim: RankClaim::Rank(rank) });
        }
    }
    let mut assigned = ranks::assign(size, &claimants);
    let mut surplus = assigned.surplus.into_iter();
    for holder in &mut assigned.holders {
        if holder.as_ref().is_some_and(|uid| done.iter().any(|pod| pod.uid == *uid)) {
            let Some(live) = surplus.next() else { break };
            *holder = Some(live);
        }
    }
    (assigned.holders, surplus.collect())
}

/// What is wrong with the ranks that the live members of a role claim, one pod per kind.
pub(super) fn faults(role: &RoleSize, members: &[&Arc<Pod>]) -> BTreeMap<RankFault, PodUid> {
    let claimants = members.iter().filter_map(|pod| match &pod.membership {
        Membership::Member { rank, .. } => {
            Some(Claimant { uid: pod.uid.clone(), created: pod.created, claim: rank.clone() })
        }
        Membership::Unknown | Membership::Single => None,
    });
    ranks::assign(role.count, &claimants.collect::<Vec<_>>()).faults
}

/// Ranks of a role whose places ask for the same, in rank order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) shape: Shape,
    pub(super) ranks: Vec<u32>,
}

/// Cuts the places of a role by what they ask for. A place whose pod does not exist yet asks for what most pods of the
/// role ask for; while there is none, nothing is known and the place is passed over.
///
/// Volumes are bound one by one while members stand before the barrier, so that members of one template differ by them for a
/// while. Of a member that `stands` on its node already, or will for certain, nobody asks where its volumes are. Of the others
/// those that must be `alike` for the sake of the gang's topology requests go together where all reach their volumes.
///
/// Errors: a pod that cannot be read.
pub(super) fn groups(
    holders: &[Option<PodUid>],
    pods: &BTreeMap<&PodUid, &Arc<Pod>>,
    (stands, alike): (impl Fn(&PodUid) -> bool, bool),
    pending: &Pending<'_>,
) -> Result<Vec<Group>, RequestError> {
    let mut groups: Vec<Group> = Vec::new();
    let (mut open, mut standing) = (Vec::new(), Vec::new());
    // Pods of one template come one after the other: the last group is tried first.
    let mut last = 0;
    let mut join = |rank: u32, shape: &Shape, volumes: Volumes| {
        let same = |group: &Group| equal_but_pending(&group.shape, shape, volumes, pending);
        let found = groups.get(last).is_some_and(same).then_some(last).or_else(|| groups.iter().position(same));
        last = found.unwrap_or(groups.len());
        match groups.get_mut(last) {
            Some(group) => {
                group.ranks.push(rank);
                if volumes == Volumes::Joined {
                    claims::reach_both(&mut group.shape, shape);
                }
            }
            None => groups.push(Group { shape: Shape::clone(shape), ranks: vec![rank] }),
        }
    };
    for (rank, holder) in (0..).zip(holders) {
        let Some(pod) = holder.as_ref().and_then(|uid| pods.get(uid)) else {
            open.push(rank);
            continue;
        };
        let shape = pod.shape.as_ref().map_err(|message| {
            RequestError::Invalid(Invalid { reason: Code::BadPod, message: format!("pod {}: {message}", pod.key.name) })
        })?;
        if stands(&pod.uid) {
            standing.push((rank, shape));
        } else {
            join(rank, shape, if alike { Volumes::Joined } else { Volumes::Counted });
        }
    }
    for (rank, shape) in standing {
        join(rank, shape, Volumes::Ignored);
    }
    for group in &mut groups {
        group.ranks.sort_unstable();
    }
    let most = groups.iter().enumerate().rev().max_by_key(|(_, group)| group.ranks.len()).map(|(index, _)| index);
    if let Some(group) = most.and_then(|most| groups.get_mut(most)) {
        group.ranks.extend(open);
        group.ranks.sort_unstable();
    }
    for group in &mut groups {
        // The toleration of our own taint comes with the release; members released earlier carry it already.
        group.shape.tolerations.retain(|toleration| *toleration.key != *pending.taint);
        group.shape.tolerations.extend(pending.values.iter().map(|value| Toleration {
            key: Arc::from(pending.taint),
            exists: false,
            value: Arc::clone(value),
            effect: None,
        }));
    }
    groups.sort_by_key(|group| group.ranks.first().copied());
    Ok(groups)
}

/// What the volumes of two members matter to whether they ask for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Volumes {
    /// They are part of it.
    Counted,
    /// They are not, and both are to be reached.
    Joined,
    /// They are not.
    Ignored,
}

/// Whether two shapes differ by nothing but tolerations of our own taint and, unless they count, volumes.
fn equal_but_pending(one: &Shape, other: &Shape, counted: Volumes, pending: &Pending<'_>) -> bool {
    fn own<'a>(shape: &'a Shape, taint: &'a str) -> impl Iterator<Item = &'a Toleration> {
        shape.tolerations.iter().filter(move |toleration| *toleration.key != *taint)
    }
    let Shape {
        requests,
        node_selector,
        node_affinity,
        tolerations: _,
        ports,
        volumes,
        one_per_node,
        together,
        apart,
        unsupported,
    } = one;
    let same_requests = match counted {
        Volumes::Counted => *requests == other.requests && *volumes == other.volumes,
        Volumes::Joined | Volumes::Ignored => {
            claims::beside_volumes(requests).eq(claims::beside_volumes(&other.requests))
        }
    };
    same_requests
        && *node_selector == other.node_selector
        && *node_affinity == other.node_affinity
        && *ports == other.ports
        && *one_per_node == other.one_per_node
        && *together == other.together
        && *apart == other.apart
        && *unsupported == other.unsupported
        && own(one, pending.taint).eq(own(other, pending.taint))
}
