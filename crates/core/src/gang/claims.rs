//! What members ask of the gang as a whole: their volumes to wait, to share a node, or not to be shared at all; their pod
//! affinity to stand together.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::asked::{RequestError, count};
use crate::model::gang::{Pod, Taken};
use crate::model::names::ResourceName;
use crate::model::pod::{Shape, Together};
use crate::model::resources::{ATTACHABLE_VOLUMES, LOCAL_VOLUMES, Resources};
use crate::planner::plan::{GangRequest, Role, TopologyRequests};
use crate::topology::Levels;

/// What a member's volumes wait for; nothing once it has a node.
pub(super) fn awaited(pod: &Pod) -> Option<&Arc<str>> {
    pod.claims.awaits.as_ref().filter(|_| pod.node.is_none())
}

/// Requests but for those that stand for volumes.
pub(super) fn beside_volumes(requests: &Resources) -> impl Iterator<Item = (&ResourceName, i64)> {
    requests.iter().filter(|(name, _)| !is_of_volumes(name))
}

fn is_of_volumes(name: &ResourceName) -> bool {
    name.as_str().starts_with(ATTACHABLE_VOLUMES) || name.as_str().starts_with(LOCAL_VOLUMES)
}

/// The shape goes where the volumes of another can be reached too, and takes as many of a node as either.
pub(super) fn reach_both(shape: &mut Shape, other: &Shape) {
    if shape.volumes != other.volumes {
        shape.volumes.extend(other.volumes.iter().cloned());
        shape.volumes.sort();
        shape.volumes.dedup();
    }
    for (name, amount) in other.requests.iter().filter(|(name, _)| is_of_volumes(name)) {
        if amount > shape.requests.get(name.as_str()) {
            shape.requests.set(name.clone(), amount);
        }
    }
}

/// What a member asks for where it is the pod's own volumes that count, and not those of members that must be alike.
pub(super) fn with_own_volumes<'a>(shape: &'a Shape, pod: Option<&Pod>) -> Cow<'a, Shape> {
    let Some(own) = pod.and_then(|pod| pod.shape.as_ref().ok()) else { return Cow::Borrowed(shape) };
    if own.volumes == shape.volumes {
        return Cow::Borrowed(shape);
    }
    let mut shape = Shape { volumes: own.volumes.clone(), ..shape.clone() };
    let local = |name: &ResourceName| name.as_str().starts_with(LOCAL_VOLUMES);
    let names: Vec<ResourceName> = shape.requests.iter().map(|(name, _)| name.clone()).filter(local).collect();
    names.into_iter().for_each(|name| {
        let amount = own.requests.get(name.as_str());
        shape.requests.set(name, amount);
    });
    Cow::Owned(shape)
}

/// Whether the planner has to be asked for members of one shape.
pub(super) fn must_be_alike(topology_requests: &TopologyRequests, members: &[&Arc<Pod>]) -> bool {
    let apart = |pod: &&Arc<Pod>| pod.shape.as_ref().is_ok_and(|shape| !shape.apart.is_empty());
    cuts(topology_requests) || members.iter().any(apart)
}

fn cuts(topology_requests: &TopologyRequests) -> bool {
    !topology_requests.slices.is_empty() || topology_requests.exclusive.is_some() || topology_requests.balance.is_some()
}

/// Keeps members together that share a claim or say so, and takes care that there are volumes for all.
///
/// A claim that one node may use at a time keeps all members on one node if all use it. One that only some of them share,
/// and one that a single pod may use, make the gang unsupported.
///
/// Errors: fewer volumes of a class than claims that must be met by one of them.
pub(super) fn keep(request: &mut GangRequest, members: &[&Arc<Pod>], levels: &Levels) -> Result<(), RequestError> {
    let mut unsupported: Vec<Arc<str>> = Vec::new();
    for claim in shared(members, |pod| &pod.claims.one_pod).into_keys() {
        unsupported.push(Arc::from(format!("ReadWriteOncePod claim {claim} used by several members")));
    }
    for (claim, users) in shared(members, |pod| &pod.claims.one_node) {
        if users == members.len() {
            // The last level is that of the single node.
            request.topology_requests.required = levels.len().checked_sub(1);
        } else {
            unsupported.push(Arc::from(format!("ReadWriteOnce claim {claim} shared by a part of the members")));
        }
    }
    let once = members.first().map(|pod| attached_once(pod, || members.iter().copied())).unwrap_or_default();
    for role in &mut request.roles {
        role.shape.unsupported.extend(unsupported.iter().cloned());
        role.shape.requests.subtract(&once);
    }
    if must_be_alike(&request.topology_requests, members) {
        reach_all(request);
    }
    stand_together(request, levels);
    stand_apart(request, levels);
    enough(members, &CountedOn::new())
}

/// Of the volumes that a member takes of its node those that all members of its gang take together: attached once, however many
/// stand there. None of them asks for it, so that whether the node has one left is found out by kube-scheduler.
pub(super) fn attached_once<'a, I>(pod: &Pod, members: impl Fn() -> I) -> Resources
where
    I: Iterator<Item = &'a Arc<Pod>>,
{
    let others = || members().filter(|other| other.uid != pod.uid);
    let mut once = Resources::default();
    for (claim, resource) in &pod.claims.attached {
        if others().next().is_some() && others().all(|other| other.claims.attached.contains_key(claim)) {
            once.set(resource.clone(), once.get(resource.as_str()).saturating_add(1));
        }
    }
    once
}

/// Roles that differ by volumes alone go where all of them are reached.
fn reach_all(request: &mut GangRequest) {
    let bare = |shape: &Shape| Shape {
        volumes: Vec::new(),
        requests: beside_volumes(&shape.requests).map(|(name, amount)| (name.clone(), amount)).collect(),
        ..shape.clone()
    };
    let mut roles = request.roles.iter().filter(|role| !role.places.is_empty());
    let Some(first) = roles.next().map(|role| bare(&role.shape)) else { return };
    if !roles.all(|role| bare(&role.shape) == first) {
        return;
    }
    let mut all = first;
    let placed = |role: &&Role| role.places.iter().any(|place| place.bound.is_none());
    for role in request.roles.iter().filter(placed) {
        reach_both(&mut all, &role.shape);
    }
    for role in request.roles.iter_mut().filter(|role| !role.places.is_empty()) {
        role.shape.clone_from(&all);
    }
}

/// Pod affinity of all members to each other is a required level, if its key is that of one.
fn stand_together(request: &mut GangRequest, levels: &Levels) {
    let mut asked = request.roles.iter().filter(|role| !role.places.is_empty()).map(|role| &role.shape.together);
    let Some(together) = asked.next().filter(|together| !together.is_empty()).cloned() else { return };
    if asked.any(|other| *other != together) {
        return;
    }
    let level = |term: &Together| levels.as_slice().iter().position(|level| level.key == term.key);
    let Some(deepest) = together.iter().map(level).collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().max())
    else {
        return;
    };
    request.topology_requests.required = request.topology_requests.required.max(Some(deepest));
    for role in &mut request.roles {
        role.shape.unsupported.retain(|constraint| **constraint != *Shape::POD_AFFINITY);
    }
}

/// Anti-affinity of all members to each other keeps each in a domain of its own, if its key is that of a level and the members
/// are alike.
fn stand_apart(request: &mut GangRequest, levels: &Levels) {
    let asked = || request.roles.iter().filter(|role| !role.places.is_empty()).map(|role| &role.shape);
    let Some(shape) = asked().next().filter(|shape| !shape.apart.is_empty() && asked().all(|other| other == *shape))
    else {
        return;
    };
    if cuts(&request.topology_requests) {
        return;
    }
    let level = |term: &Together| levels.as_slice().iter().position(|level| level.key == term.key);
    let found: Option<Vec<usize>> = shape.apart.iter().map(level).collect();
    let Some(found) = found.filter(|found| {
        // A rack is in one zone, so that members in different zones are in different racks; but racks of two zones may have one
        // name, and then the rack alone says more.
        found.iter().all(|level| found.first() == Some(level))
    }) else {
        return;
    };
    request.topology_requests.apart = found.first().copied();
    for role in &mut request.roles {
        role.shape.unsupported.retain(|constraint| **constraint != *Shape::POD_ANTI_AFFINITY);
    }
}

/// Claims of one namespace that several members use, with how many do.
fn shared<'a>(members: &[&'a Arc<Pod>], claims: fn(&Pod) -> &[Arc<str>]) -> BTreeMap<&'a Arc<str>, usize> {
    let mut users: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
    for pod in members {
        for claim in claims(pod) {
            *users.entry(claim).or_default() += 1;
        }
    }
    users.retain(|_, users| *users > 1);
    users
}

/// How many volumes gangs with a plan still need, by class.
pub(super) type CountedOn = BTreeMap<Arc<str>, usize>;

/// Adds the volumes that members of one gang still need of those that are there already.
pub(super) fn count_on<'a>(members: impl Iterator<Item = &'a Arc<Pod>>, sum: &mut CountedOn) {
    let unbound = members.filter(|pod| pod.node.is_none());
    let claims: BTreeSet<(&Arc<str>, &Arc<str>)> =
        unbound.flat_map(|pod| &pod.claims.taken).map(|taken| (&taken.class, &taken.claim)).collect();
    for (class, _) in claims {
        *sum.entry(Arc::clone(class)).or_default() += 1;
    }
}

/// Whether there are volumes for the claims of all members that must be met by one of them, beside those that others count on.
///
/// Errors: there are fewer.
pub(super) fn enough(members: &[&Arc<Pod>], counted_on: &CountedOn) -> Result<(), RequestError> {
    let unbound = members.iter().filter(|pod| pod.node.is_none());
    let taken: Vec<(&Taken, &Arc<str>)> =
        unbound.flat_map(|pod| pod.claims.taken.iter().map(|taken| (taken, &pod.key.name))).collect();
    let classes: BTreeSet<&Arc<str>> = taken.iter().map(|(taken, _)| &taken.class).collect();
    for class in classes {
        let of_class = || taken.iter().filter(|(taken, _)| taken.class == *class);
        let claims: BTreeMap<&Arc<str>, &Arc<str>> = of_class().map(|(taken, pod)| (&taken.claim, *pod)).collect();
        let volumes = of_class().map(|(taken, _)| taken.volumes).max().unwrap_or(0);
        let others = counted_on.get(class).copied().unwrap_or(0);
        let left = usize::try_from(volumes).unwrap_or(usize::MAX).saturating_sub(others);
        if let Some(pod) = claims.values().nth(left) {
            let needed = count(claims.len());
            let others = match others {
                0 => String::new(),
                others => format!(", {others} of which gangs that are placed already need"),
            };
            let awaits = Arc::from(format!(
                "{needed} claims of StorageClass {class} need a PersistentVolume each, and {volumes} that would do \
                 are available{others}; nobody makes new ones"
            ));
            return Err(RequestError::Volumes { pod: Arc::clone(pod), awaits });
        }
    }
    Ok(())
}
