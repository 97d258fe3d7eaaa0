//! Pods on the nodes of a batch, and which of them keep the nodes. Those that are being deleted where the kubelet is gone are ended by
//! nobody.

use std::collections::BTreeSet;

use jiff::SignedDuration;

use super::case::Case;
use crate::model::batch::{BatchMember, BatchPhase, BatchStatus};
use crate::model::gang::Pod;
use crate::model::names::NodeName;

/// Pods on the nodes of the batch that are neither of a DaemonSet nor ended, in order of name.
pub(super) fn pods_on<'a>(case: &Case<'a>, status: &BatchStatus) -> Vec<&'a Pod> {
    let ours = |one: &BatchMember| {
        let entry = case.world.snapshot.nodes.get(&NodeName::from(one.node.as_deref()?))?;
        entry.node.is_of(&one.id).then(|| entry.node.name.as_str())
    };
    let nodes: BTreeSet<&str> = status.members().filter_map(ours).collect();
    let mut pods: Vec<&Pod> = nodes.into_iter().flat_map(|node| case.standing.on(node)).collect();
    pods.sort_by(|one, other| one.key.cmp(&other.key));
    pods
}

/// So long a node that is not Ready keeps pods that are being deleted: as long as Kubernetes leaves pods there by default. No kubelet
/// ends them, but it may come back.
pub(super) const KUBELET_RETURNS: SignedDuration = SignedDuration::from_mins(5);

/// Whether no kubelet ends a pod that is being deleted.
pub(super) fn is_stuck(case: &Case<'_>, pod: &Pod) -> bool {
    pod.deleting && pod.node.as_ref().is_some_and(|node| !case.is_ready(node))
}

/// Whether pods are stuck on the node of an instance.
pub(super) fn is_dead(case: &Case<'_>, one: &BatchMember) -> bool {
    case.node_of(one).is_some_and(|node| case.standing.on(node.name.as_str()).any(|pod| is_stuck(case, pod)))
}

/// Takes note of since when pods are stuck on nodes of a gang. It is written down: a process that starts does not wait again.
pub(super) fn note(case: &Case<'_>) -> Option<BatchStatus> {
    let status = &case.batch.status;
    let phase = status.phase.expects_instances() || status.phase == BatchPhase::Draining;
    let differs = |one: &BatchMember| is_dead(case, one) != one.empty_since.is_some();
    // What a change came to is used first: a decision that does not use it drops it.
    if !phase || case.memory.done.is_some() || !status.members().any(differs) {
        return None;
    }
    let mut next = case.status();
    for one in next.members_mut().filter(|one| differs(one)) {
        one.empty_since = if one.empty_since.is_none() { Some(case.now()) } else { None };
    }
    Some(next)
}

/// Pods that keep the nodes of a gang: those on them, but what has been stuck there for so long that no kubelet comes back for it.
/// Else a single dead machine would keep all of them for ever.
pub(super) fn occupants<'a>(case: &Case<'a>, status: &BatchStatus) -> Vec<&'a Pod> {
    let is_over =
        |one: &&BatchMember| one.empty_since.is_some_and(|since| case.now().duration_since(since) >= KUBELET_RETURNS);
    let dead: BTreeSet<&str> =
        status.members().filter(is_over).filter_map(|one| Some(case.node_of(one)?.name.as_str())).collect();
    let is_given_up =
        |pod: &Pod| is_stuck(case, pod) && pod.node.as_ref().is_some_and(|node| dead.contains(node.as_str()));
    pods_on(case, status).into_iter().filter(|pod| !is_given_up(pod)).collect()
}
