//! What members ask of the gang as a whole: their volumes to wait, to share a node, or not to be shared at all; their pod
//! affinity to stand together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::asked::{RequestError, count};
use crate::model::gang::{Pod, Taken};
use crate::model::pod::{Shape, Together};
use crate::planner::plan::GangRequest;
use crate::topology::Levels;

/// What a member's volumes wait for; nothing once it has a node.
pub(super) fn awaited(pod: &Pod) -> Option<&Arc<str>> {
    pod.claims.awaits.as_ref().filter(|_| pod.node.is_none())
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
    for role in &mut request.roles {
        role.shape.unsupported.extend(unsupported.iter().cloned());
    }
    stand_together(request, levels);
    stand_apart(request, levels);
    enough(members)
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
    let topology_requests = &request.topology_requests;
    if !topology_requests.slices.is_empty()
        || topology_requests.exclusive.is_some()
        || topology_requests.balance.is_some()
    {
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

fn enough(members: &[&Arc<Pod>]) -> Result<(), RequestError> {
    let unbound = members.iter().filter(|pod| pod.node.is_none());
    let taken: Vec<(&Taken, &Arc<str>)> =
        unbound.flat_map(|pod| pod.claims.taken.iter().map(|taken| (taken, &pod.key.name))).collect();
    let classes: BTreeSet<&Arc<str>> = taken.iter().map(|(taken, _)| &taken.class).collect();
    for class in classes {
        let of_class = || taken.iter().filter(|(taken, _)| taken.class == *class);
        let claims: BTreeMap<&Arc<str>, &Arc<str>> = of_class().map(|(taken, pod)| (&taken.claim, *pod)).collect();
        let volumes = of_class().map(|(taken, _)| taken.volumes).max().unwrap_or(0);
        if let Some(pod) = claims.values().nth(usize::try_from(volumes).unwrap_or(usize::MAX)) {
            let needed = count(claims.len());
            let awaits = Arc::from(format!(
                "{needed} claims of StorageClass {class} need a PersistentVolume each, and {volumes} that would do \
                 are available; nobody makes new ones"
            ));
            return Err(RequestError::Volumes { pod: Arc::clone(pod), awaits });
        }
    }
    Ok(())
}
