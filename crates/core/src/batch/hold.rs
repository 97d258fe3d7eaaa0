//! Nodes that wait for their gang are held for it: cordoned by us.
//!
//! A node registers with the taint of its gang, which keeps everybody away also while Muster is not there to look. Pods of
//! DaemonSets tolerate a cordon and not that taint, so at the match one takes the place of the other: device plugins run as they
//! are shipped. Once the gang runs, the cordon goes.

use super::case::Case;
use super::decision::Converge;
use super::occupants::pods_on;
use crate::model::batch::{BatchStatus, Owner};
use crate::model::gang::{Membership, Pod};
use crate::model::node::Node;

/// The UID a node waits for.
fn waits_for(case: &Case<'_>, node: &Node) -> Option<String> {
    let key = case.world.settings.keys.gang_pending;
    node.taints.iter().find(|taint| *taint.key == *key).map(|taint| taint.value.to_string())
}

/// Nodes that wait for their gang and are not cordoned for it: new ones, and those that somebody uncordoned. Who came in
/// meanwhile leaves.
pub(super) fn hold(case: &Case<'_>, status: &BatchStatus) -> Vec<Converge> {
    let open = |name: &str| {
        let node = case.node(name).filter(|node| !node.held)?;
        waits_for(case, node).map(|owner| Converge::Hold { node: name.to_owned(), owner })
    };
    let mut edits: Vec<Converge> = status.node_names().filter_map(open).collect();
    // The pods that consume a booking need not be known as members of a gang.
    if matches!(case.batch.spec.owner, Owner::Gang(_)) {
        edits.extend(pods_on(case, status).into_iter().filter(|pod| crept_in(case, pod)).map(|pod| Converge::Evict {
            pod: pod.key.clone(),
            uid: pod.uid.clone(),
            force: false,
        }));
    }
    edits
}

/// Whether a pod stands on a node that waits for a gang, and neither belongs to one nor may be there.
fn crept_in(case: &Case<'_>, pod: &Pod) -> bool {
    let waits = || {
        pod.node.as_ref().and_then(|name| case.node(name.as_str())).is_some_and(|node| waits_for(case, node).is_some())
    };
    let key = case.world.settings.keys.gang_pending;
    let may = pod.shape.as_ref().is_ok_and(|shape| {
        shape.tolerations.iter().any(|toleration| toleration.key.is_empty() || *toleration.key == *key)
    });
    pod.membership == Membership::Single && !pod.deleting && !may && waits()
}

/// Nodes of the batch that are held still, or carry the taint.
pub(super) fn lift(case: &Case<'_>, status: &BatchStatus) -> Vec<Converge> {
    let waits = |name: &&str| case.node(name).is_some_and(|node| waits_for(case, node).is_some());
    status.node_names().filter(waits).map(|node| Converge::Unhold { node: node.to_owned() }).collect()
}
