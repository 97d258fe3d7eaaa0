//! Which devices a node must offer before it counts as Ready: of those that its type has, what the pods ask for that it was launched
//! for.
//!
//! A device plugin that nobody needs may not run at all: waiting for it would end a launch that serves. A node lacks a device that is
//! asked for until it offers as many as its type has, since one with fewer is broken.

use std::collections::BTreeSet;

use super::case::Case;
use crate::model::batch::{BatchStatus, Owner};
use crate::model::names::{NodeName, ResourceName};
use crate::model::resources::Resources;

/// Devices that every node of the batch must offer. Those of the type, where nobody knows who asks: no member is there, or the batch
/// is a booking, whose pods may not exist yet.
pub(super) fn of_batch(case: &Case<'_>, status: &BatchStatus) -> Vec<(ResourceName, i64)> {
    let of_type = case.world.supply.devices(status);
    match asked_by_members(case) {
        Some(asked) => of_type.into_iter().filter(|(name, _)| asked.contains(name.as_str())).collect(),
        None => of_type,
    }
}

/// Of the devices of the type those that one node must offer that was launched for pods of no gang: what the pods ask for that it
/// awaits, and those that came, which they may before a status says that the node is Ready. All of them, where it is not known what
/// these ask for.
pub(super) fn of_node(case: &Case<'_>, of_type: &[(ResourceName, i64)], node: &NodeName) -> Vec<(ResourceName, i64)> {
    let Some(requests) = requests_on(case, node) else { return of_type.to_vec() };
    let asked = |name: &ResourceName| requests.iter().any(|requests| requests.get(name.as_str()) > 0);
    of_type.iter().filter(|(name, _)| asked(name)).cloned().collect()
}

/// What the pods of a node ask for. `None`: there are none, or it is not known of all of them.
fn requests_on<'a>(case: &Case<'a>, node: &NodeName) -> Option<Vec<&'a Resources>> {
    let mut requests = Vec::new();
    if let Some(awaiting) = case.world.snapshot.awaiting.get(node) {
        for places in awaiting.places.values() {
            requests.push(places.requests.as_ref()?);
        }
    }
    for pod in case.standing.on(node.as_str()) {
        requests.push(&pod.shape.as_ref().ok()?.requests);
    }
    (!requests.is_empty()).then_some(requests)
}

fn asked_by_members<'a>(case: &Case<'a>) -> Option<BTreeSet<&'a str>> {
    let Owner::Gang(gang) = &case.batch.spec.owner else { return None };
    let snapshot = case.world.snapshot;
    let members = snapshot.members.get(&gang.key)?;
    let mut live = members.values().filter_map(|uid| snapshot.pods.get(uid)).filter(|pod| pod.is_live()).peekable();
    live.peek()?;
    let mut asked = BTreeSet::new();
    for pod in live {
        let shape = pod.shape.as_ref().ok()?;
        asked.extend(shape.requests.iter().filter(|(_, amount)| *amount > 0).map(|(name, _)| name.as_str()));
    }
    Some(asked)
}
