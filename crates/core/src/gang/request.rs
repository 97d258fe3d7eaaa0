//! From recognised members to the planner's request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::asked::{Pending, RequestError, count};
use super::claims;
use super::roles::{self, Group, RoleSize};
use crate::model::gang::{
    Gang, GangPlace, Invalid, Phase, Pod, RawSlice, RawTopologyRequest, RawTopologyRequests, Recognised,
};
use crate::model::names::PodUid;
use crate::model::ranks;
use crate::planner::plan::{GangRequest, LevelIndex, Role, RolePlace, SliceTopologyRequest, TopologyRequests};
use crate::reason::Code;
use crate::topology::Levels;

/// What the planner is asked for a gang, and how its answer is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Roles with the places that are still to be held: a member that succeeded needs no capacity any more. Members of one
    /// role that ask for different things are several roles of this request, with one name.
    pub request: GangRequest,
    /// The rank of each place. Shapes: as the roles of the request and their places.
    pub ranks: Vec<Vec<u32>>,
    /// Places of members that succeeded. They stay in the plan, where they count towards the minimum.
    pub done: Vec<GangPlace>,
    /// Members needed, those that succeeded included.
    pub needed: u32,
    /// Members needed per role, those that succeeded included; empty for a gang of one role.
    pub minimums: BTreeMap<Arc<str>, u32>,
    /// Live members beyond the places.
    pub surplus: Vec<PodUid>,
}

impl Wanted {
    /// The rank of a place of the request, of which members that succeeded are no part.
    #[must_use]
    pub fn rank(&self, role: usize, place: u32) -> u32 {
        let ranks = self.ranks.get(role);
        ranks.and_then(|ranks| ranks.get(usize::try_from(place).ok()?)).copied().unwrap_or(place)
    }
}

/// Builds the planner's request.
///
/// A member counts once our gate is its only gate and kube-scheduler would not wait for its volumes. The shapes are those of the members, plus the toleration of the taint
/// on nodes provisioned for this gang, which the release patch adds. `members` are the live ones, `done` those that
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
    if recognised.roles.len() > roles::MAX_ROLES {
        return Err(RequestError::Invalid(too_many("roles", recognised.roles.len(), roles::MAX_ROLES)));
    }
    let topology_requests = resolve_topology_requests(recognised, levels).map_err(RequestError::Invalid)?;
    let ready: Vec<&Arc<Pod>> =
        members.iter().filter(|pod| pod.foreign_gate.is_none() && claims::awaited(pod).is_none()).collect();
    let there: Vec<&Arc<Pod>> = ready.iter().copied().chain(done).collect();
    let seen = count(there.len());
    let Some(sizes) = roles::sizes(recognised, &there) else { return Err(RequestError::SizeUnknown { seen }) };
    let size = usize::try_from(sizes.size).unwrap_or(usize::MAX);
    if size > ranks::MAX_PLACES {
        return Err(RequestError::Invalid(too_many("members", size, ranks::MAX_PLACES)));
    }
    let of_there = sizes.by_role(&there);
    let started = matches!(gang.phase, Some(Phase::Committing | Phase::Bound | Phase::Degraded));
    let short = |role: &RoleSize| role.min.saturating_sub(count(of_there.get(&role.name).map_or(0, Vec::len)));
    let missing = sizes.roles.iter().map(short).fold(0, u32::saturating_add);
    let needed = sizes.needed.max(seen.saturating_add(missing).min(sizes.size));
    if (seen < sizes.needed || sizes.roles.iter().any(|role| short(role) > 0)) && !started {
        if let Some((pod, gate)) = members.iter().find_map(|pod| Some((pod, pod.foreign_gate.as_ref()?))) {
            return Err(RequestError::ForeignGate { pod: Arc::clone(&pod.key.name), gate: Arc::clone(gate) });
        }
        if let Some((pod, awaits)) = members.iter().find_map(|pod| Some((pod, claims::awaited(pod)?))) {
            return Err(RequestError::Volumes { pod: Arc::clone(&pod.key.name), awaits: Arc::clone(awaits) });
        }
        return Err(RequestError::Collecting { seen, needed, size: sizes.size });
    }
    let pods: BTreeMap<&PodUid, &Arc<Pod>> = ready.iter().map(|pod| (&pod.uid, *pod)).collect();
    let ended: BTreeMap<&PodUid, &Arc<Pod>> = done.iter().map(|pod| (&pod.uid, pod)).collect();
    let mut wanted = Wanted {
        request: GangRequest { key: gang.key.clone(), roles: Vec::new(), topology_requests },
        ranks: Vec::new(),
        done: Vec::new(),
        needed: sizes.needed,
        minimums: sizes.minimums(),
        surplus: Vec::new(),
    };
    let places = gang.places_by_uid();
    let alike = claims::must_be_alike(&wanted.request.topology_requests, &ready);
    let (mut live, mut over) = (sizes.by_role(&ready), sizes.by_role(&done.iter().collect::<Vec<_>>()));
    for role in &sizes.roles {
        let [live, over] = [&mut live, &mut over].map(|pods| pods.remove(&role.name).unwrap_or_default());
        let (mut holders, surplus) = roles::holders(role, gang, &live, &over);
        wanted.surplus.extend(surplus);
        let mut held = BTreeSet::new();
        for (rank, holder) in (0..).zip(&mut holders) {
            if let Some(pod) = holder.as_ref().and_then(|uid| ended.get(uid))
                && let Some(node) = &pod.node
            {
                let (name, pod_name) = (Arc::clone(&role.name), Some(Arc::clone(&pod.key.name)));
                held.insert(rank);
                let (uid, node) = (holder.take(), node.clone());
                wanted.done.push(GangPlace { role: name, rank, uid, pod: pod_name, node, done: true });
            }
        }
        let bound_of = |uid: &PodUid| match pods.get(uid).and_then(|pod| pod.node.clone()) {
            None if fixed.contains(uid) => places.get(uid).map(|place| place.node.clone()),
            node => node,
        };
        let stands = |uid: &PodUid| bound_of(uid).is_some();
        let groups = roles::groups(&holders, &pods, (stands, alike), pending)?;
        let required = required(role, &holders, &held, |uid| bound_of(uid).is_some());
        for Group { shape, ranks } in groups {
            let mut ranks: Vec<u32> = ranks.into_iter().filter(|rank| !held.contains(rank)).collect();
            let holder = |rank: u32| usize::try_from(rank).ok().and_then(|rank| holders.get(rank)?.clone());
            if wanted.request.topology_requests.slices.is_empty() && role.min < role.count {
                // Of elastic places those that wait for a pod are filled last: nobody would come for them.
                ranks.sort_by_key(|rank| (holder(*rank).is_none(), *rank));
            }
            let places = ranks.iter().map(|rank| {
                let uid = holder(*rank);
                RolePlace { bound: uid.as_ref().and_then(bound_of), uid }
            });
            let places = places.collect();
            let min = count(ranks.iter().filter(|rank| required.contains(rank)).count());
            wanted.request.roles.push(Role { name: Arc::clone(&role.name), shape, min, places });
            wanted.ranks.push(ranks);
        }
    }
    claims::keep(&mut wanted.request, &ready, levels)?;
    let asked = &wanted.request.topology_requests;
    let together = wanted.request.roles.iter().any(|role| !role.shape.together.is_empty());
    if recognised.topology_requests.required.is_none()
        && !together
        && asked.apart.is_some_and(|apart| Some(apart) <= levels.zone())
    {
        // Who keeps apart by zone says that it spans zones.
        wanted.request.topology_requests.required = None;
    }
    Ok(wanted)
}

/// The ranks that must be placed: as many as the role needs, members that succeeded first, then bound ones, then those
/// whose pod exists, then the lowest.
fn required(
    role: &RoleSize,
    holders: &[Option<PodUid>],
    held: &BTreeSet<u32>,
    bound: impl Fn(&PodUid) -> bool,
) -> BTreeSet<u32> {
    let mut order: Vec<(u8, u32)> = (0..)
        .zip(holders)
        .map(|(rank, holder)| match holder {
            _ if held.contains(&rank) => (0, rank),
            Some(uid) if bound(uid) => (1, rank),
            Some(_) => (2, rank),
            None => (3, rank),
        })
        .collect();
    order.sort_unstable();
    order.truncate(usize::try_from(role.min).unwrap_or(usize::MAX));
    order.into_iter().map(|(_, rank)| rank).collect()
}

fn too_many(what: &str, number: usize, most: usize) -> Invalid {
    Invalid { reason: Code::TooManyMembers, message: format!("the gang has {number} {what}, the limit is {most}") }
}

fn resolve_topology_requests(recognised: &Recognised, levels: &Levels) -> Result<TopologyRequests, Invalid> {
    let resolve = |topology_request: &Option<RawTopologyRequest>| -> Result<Option<LevelIndex>, Invalid> {
        let Some(topology_request) = topology_request else { return Ok(None) };
        levels.resolve(&topology_request.value).map(Some).ok_or_else(|| {
            let known: Vec<&str> = levels.as_slice().iter().map(|level| &*level.name).collect();
            Invalid {
                reason: Code::UnknownLevel,
                message: format!(
                    "{}: \"{}\" is no topology level; use one of {} or its node label key",
                    topology_request.key,
                    topology_request.value,
                    known.join(", ")
                ),
            }
        })
    };
    let RawTopologyRequests { required, preferred, slices, exclusive, balance, placement_group: _ } =
        &recognised.topology_requests;
    let slice = |slice: &RawSlice| {
        let level = resolve(&Some(slice.level.clone()))?;
        Ok(level.map(|level| SliceTopologyRequest { size: slice.size, level }))
    };
    let slices: Result<Vec<Option<SliceTopologyRequest>>, Invalid> = slices.iter().map(slice).collect();
    Ok(TopologyRequests {
        // The default cap: a gang spans zones only if it says so.
        required: resolve(required)?.or_else(|| levels.zone()),
        preferred: resolve(preferred)?,
        slices: slices?.into_iter().flatten().collect(),
        exclusive: resolve(exclusive)?,
        balance: resolve(balance)?,
        apart: None,
    })
}
