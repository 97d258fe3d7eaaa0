//! From recognised members to the planner's request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::gang::{Gang, GangPlace, Invalid, Membership, Phase, Pod, RankClaim, RawWish, Recognised};
use crate::names::PodUid;
use crate::plan::{GangRequest, LevelIndex, Role, RolePlace, Wishes};
use crate::pod::{Shape, Toleration};
use crate::ranks::{self, Claimant};
use crate::topology::Levels;

/// Why there is nothing to plan yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// A wish cannot be read.
    Invalid(Invalid),
    /// Too few members.
    Collecting {
        /// Members there.
        seen: u32,
        /// Members needed.
        needed: u32,
        /// Members expected.
        size: u32,
    },
    /// Neither the size nor the minimum is known.
    SizeUnknown {
        /// Members there.
        seen: u32,
    },
    /// A member is still held by a gate that is not ours.
    ForeignGate {
        /// The pod.
        pod: Arc<str>,
    },
}

/// The taint on nodes bought for a gang until it uses them, and its values that are this gang's.
#[derive(Clone, Copy, Debug)]
pub struct Pending<'a> {
    /// Key.
    pub taint: &'a str,
    /// Values.
    pub values: &'a [Arc<str>],
}

/// What the planner is asked for a gang, and how its answer is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// One role with the places that are still to be held: a member that succeeded needs no room any more.
    pub request: GangRequest,
    /// The rank of each place of the request.
    pub ranks: Vec<u32>,
    /// Places of members that succeeded. They stay in the plan, where they count towards the minimum.
    pub done: Vec<GangPlace>,
    /// Members needed, those that succeeded included.
    pub needed: u32,
}

/// Builds the planner's request.
///
/// A member counts once our gate is its only gate. The shape is that of the members, plus the toleration of the taint
/// on nodes bought for this gang, which the release patch adds. `members` are the live ones, `done` those that
/// succeeded in this run, `fixed` those without a node that must not be moved: their bindings are under way.
///
/// Errors: what is missing or cannot be read, with the remedy.
pub fn build_request(
    recognised: &Recognised,
    gang: &Gang,
    (members, done): (&[Arc<Pod>], &[Arc<Pod>]),
    fixed: &BTreeSet<PodUid>,
    levels: &Levels,
    pending: &Pending<'_>,
) -> Result<Wanted, RequestError> {
    if let Some(invalid) = &recognised.invalid {
        return Err(RequestError::Invalid(invalid.clone()));
    }
    let wishes = resolve_wishes(recognised, levels).map_err(RequestError::Invalid)?;
    let ready: Vec<&Arc<Pod>> = members.iter().filter(|member| !member.foreign_gates).collect();
    let seen = count(ready.len() + done.len());
    let Some((size, needed)) = sizes(recognised, seen) else { return Err(RequestError::SizeUnknown { seen }) };
    let started = matches!(gang.phase, Some(Phase::Committing | Phase::Bound | Phase::Degraded));
    if seen < needed && !started {
        if let Some(pod) = members.iter().find(|member| member.foreign_gates) {
            return Err(RequestError::ForeignGate { pod: Arc::clone(&pod.key.name) });
        }
        return Err(RequestError::Collecting { seen, needed, size });
    }
    let shape = common_shape(&ready, pending)?;
    let pods: BTreeMap<&PodUid, &Arc<Pod>> = ready.iter().map(|pod| (&pod.uid, *pod)).collect();
    let ended: BTreeMap<&PodUid, &Arc<Pod>> = done.iter().map(|pod| (&pod.uid, pod)).collect();
    let mut wanted = Wanted {
        request: GangRequest { key: gang.key.clone(), roles: Vec::new(), wishes },
        ranks: Vec::new(),
        done: Vec::new(),
        needed,
    };
    let mut places = Vec::new();
    for (rank, holder) in (0..).zip(holders(size, gang, members, done)) {
        if let Some(pod) = holder.as_ref().and_then(|uid| ended.get(uid))
            && let Some(node) = &pod.node
        {
            let (role, pod_name) = (Arc::from(""), Some(Arc::clone(&pod.key.name)));
            wanted.done.push(GangPlace { role, rank, uid: holder, pod: pod_name, node: node.clone() });
            continue;
        }
        let bound = holder.as_ref().and_then(|uid| pods.get(uid)).and_then(|pod| match &pod.node {
            Some(node) => Some(node.clone()),
            None if fixed.contains(&pod.uid) => gang.place_of(&pod.uid).map(|place| place.node.clone()),
            None => None,
        });
        wanted.ranks.push(rank);
        places.push(RolePlace { uid: holder, bound });
    }
    let min = needed.saturating_sub(count(wanted.done.len()));
    wanted.request.roles.push(Role { name: Arc::from(""), shape, min, places });
    Ok(wanted)
}

/// Members expected and members needed; `None` while neither size nor minimum is known.
///
/// Where only a minimum is known, members beyond it are elastic (`gangs.md` 5).
pub(super) fn sizes(recognised: &Recognised, seen: u32) -> Option<(u32, u32)> {
    let size = recognised.size.or_else(|| recognised.min.map(|min| min.max(seen)))?;
    Some((size, recognised.min.unwrap_or(size).min(size).max(1)))
}

/// Which pod holds which rank, indexed by rank; `None` = none yet.
///
/// A bound member keeps the rank it was bound with, whoever comes. Then every valid, unique rank keeps its place, and a
/// member without one keeps the place the plan gave it. Members that succeeded keep their rank until a live member
/// needs it: Jobs that work off a queue make pods beyond their ranks.
pub(super) fn holders(size: u32, gang: &Gang, members: &[Arc<Pod>], done: &[Arc<Pod>]) -> Vec<Option<PodUid>> {
    let ready: Vec<&Arc<Pod>> = members.iter().filter(|member| !member.foreign_gates).collect();
    let planned = |pod: &Pod| gang.place_of(&pod.uid).map(|place| place.rank).filter(|rank| *rank < size);
    let claimed = |pod: &Pod| match &pod.membership {
        Membership::Member { rank: RankClaim::Rank(rank), .. } if *rank < size => Some(*rank),
        Membership::Member { .. } | Membership::Unknown | Membership::Single => None,
    };
    let mut taken: BTreeSet<u32> =
        ready.iter().filter(|pod| pod.node.is_some()).filter_map(|pod| planned(pod)).collect();
    let free_claims: BTreeSet<u32> = ready
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
        ready.iter().map(|pod| Claimant { uid: pod.uid.clone(), created: pod.created, claim: claim(pod) }).collect();
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
    assigned.holders
}

/// Saturates: no cluster has more pods than `u32` can count.
pub(super) fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn common_shape(members: &[&Arc<Pod>], pending: &Pending<'_>) -> Result<Shape, RequestError> {
    let mut common: Option<Shape> = None;
    for pod in members {
        let shape = pod.shape.as_ref().map_err(|message| {
            RequestError::Invalid(Invalid { reason: "BadPod", message: format!("pod {}: {message}", pod.key.name) })
        })?;
        let mut shape = Shape::clone(shape);
        // The toleration of our own taint comes with the release; members released earlier carry it already.
        shape.tolerations.retain(|toleration| *toleration.key != *pending.taint);
        match &common {
            None => common = Some(shape),
            Some(first) if *first == shape => {}
            Some(_) => {
                return Err(RequestError::Invalid(Invalid {
                    reason: "MixedShapes",
                    message: format!(
                        "pod {} asks for other resources, selectors, affinity, tolerations or ports than the members \
                         before it: give all members of the gang one template",
                        pod.key.name
                    ),
                }));
            }
        }
    }
    let mut shape = common.unwrap_or_default();
    shape.tolerations.extend(pending.values.iter().map(|value| Toleration {
        key: Arc::from(pending.taint),
        exists: false,
        value: Arc::clone(value),
        effect: None,
    }));
    Ok(shape)
}

fn resolve_wishes(recognised: &Recognised, levels: &Levels) -> Result<Wishes, Invalid> {
    let resolve = |wish: &Option<RawWish>| -> Result<Option<LevelIndex>, Invalid> {
        let Some(wish) = wish else { return Ok(None) };
        levels.resolve(&wish.value).map(Some).ok_or_else(|| {
            let known: Vec<&str> = levels.as_slice().iter().map(|level| &*level.name).collect();
            Invalid {
                reason: "UnknownLevel",
                message: format!(
                    "{}: \"{}\" is no topology level; use one of {} or its node label key",
                    wish.key,
                    wish.value,
                    known.join(", ")
                ),
            }
        })
    };
    let required = resolve(&recognised.wishes.required)?;
    Ok(Wishes {
        // The default cap: a gang spans zones only if it says so.
        required: required.or_else(|| levels.zone()),
        preferred: resolve(&recognised.wishes.preferred)?,
        ..Wishes::default()
    })
}
