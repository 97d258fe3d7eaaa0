//! Nobody's pod is ended with its node: what is seen before a node is terminated, whatever it goes for. A lost node of a gang alone goes
//! as soon as the cache shows nobody there: its gang waits for the replacement.

use std::collections::BTreeSet;

use super::case::{Case, Step, Stop, later};
use super::decision::Converge;
use super::occupants::is_dead;
use crate::model::batch::{Batch, BatchMember, BatchStatus, Owner};
use crate::model::names::InstanceId;

/// Between the taint on a node and the last look at it: what was bound before the taint was seen is seen by then.
pub(super) const SETTLE_SECONDS: i64 = 10;

/// Whether the batch is for pods of no gang.
pub(super) fn is_for_pods(batch: &Batch) -> bool {
    batch.spec.partial && batch.spec.owner == Owner::Pods
}

/// Whether an instance is kept although it looks empty, or its Node is missing: that is so of more than can be trusted, and it is not
/// among those of which it was seen to come about.
pub(super) fn is_kept(case: &Case<'_>, seen: &BTreeSet<InstanceId>, id: &InstanceId) -> bool {
    case.memory.keeps_unwitnessed && !case.batch.deleting && !seen.contains(id)
}

/// Keeps pods away from the Ready nodes of lost instances, and takes note of since when.
pub(super) fn settle(case: &Case<'_>, status: &mut BatchStatus) -> Vec<Converge> {
    if !is_for_pods(case.batch) {
        return Vec::new();
    }
    keep_away(case, status.replaced.iter_mut().filter(|one| takes_pods(case, one)))
}

/// Keeps pods away from the nodes of instances, and takes note of since when.
pub(super) fn keep_away<'m>(case: &Case<'_>, instances: impl Iterator<Item = &'m mut BatchMember>) -> Vec<Converge> {
    let mut taints = Vec::new();
    for instance in instances.filter(|one| case.node_of(one).is_some()) {
        match case.taint(instance) {
            Some(taint) => {
                instance.leaving_since = None;
                taints.push(taint);
            }
            None => drop(instance.leaving_since.get_or_insert(case.now())),
        }
    }
    taints
}

/// Those of lost instances that nobody stands on, which the API server confirms: the cache may lag behind, or be wrong. Those whose
/// time is over go in any case.
pub(super) fn passed(case: &Case<'_>, due: Vec<InstanceId>) -> Step<Vec<InstanceId>> {
    if !is_for_pods(case.batch) {
        return Ok(due);
    }
    let known = |id: &InstanceId| case.batch.status.replaced.iter().find(|one| one.id == *id);
    let settled = due.iter().filter_map(known).filter(|one| is_over(case, one) || has_settled(case, one));
    let (looked, others): (Vec<&BatchMember>, Vec<&BatchMember>) = settled.partition(|one| needs_look(case, one));
    let names: Vec<String> = looked.iter().filter_map(|one| one.node.clone()).collect();
    let free = match if names.is_empty() { Ok(Vec::new()) } else { case.occupied(names) } {
        Ok(held) => {
            looked.into_iter().filter(|one| !one.node.as_ref().is_some_and(|node| held.contains(node))).collect()
        }
        // Whose nodes nobody has to look at are held up by none.
        Err(Stop::Failed { .. }) if !others.is_empty() => Vec::new(),
        Err(stop) => return Err(stop),
    };
    Ok(others.into_iter().chain(free).map(|one| one.id.clone()).collect())
}

/// Whether kube-scheduler may bind pods to its node.
fn takes_pods(case: &Case<'_>, one: &BatchMember) -> bool {
    case.node_of(one).is_some_and(|node| node.ready)
}

/// Whether its deadline has come.
fn is_over(case: &Case<'_>, one: &BatchMember) -> bool {
    one.loss.as_ref().is_some_and(|loss| loss.deadline.is_some_and(|deadline| deadline <= case.now()))
}

/// Those of the nodes of a batch that goes as a whole which hold a pod in the API server, whatever the cache shows: it is asked once pods
/// have been kept away for long enough. It is asked again until it answers; of those whose time is over it is not asked.
pub(super) fn held(case: &Case<'_>, status: &BatchStatus) -> Step<Vec<String>> {
    let looked: Vec<String> =
        status.members().filter(|one| may_hold(case, one)).filter_map(|one| one.node.clone()).collect();
    if looked.is_empty() { Ok(Vec::new()) } else { case.occupied(looked) }
}

/// Whether pods have been kept away from its node for long enough.
pub(super) fn has_settled(case: &Case<'_>, one: &BatchMember) -> bool {
    if !takes_pods(case, one) {
        return true;
    }
    let since = one.leaving_since.filter(|_| case.taint(one).is_none());
    since.is_some_and(|since| later(since, SETTLE_SECONDS) <= case.now())
}

/// Whether it is looked at once more. What went for being empty was, while it was tainted.
fn needs_look(case: &Case<'_>, one: &BatchMember) -> bool {
    one.loss.is_some() && may_hold(case, one)
}

/// Whether the API server is asked who stands on its node. Of a node that is not Ready no kubelet ends the pods any more: those that the
/// cache shows there are known to be deleted, else it would not be due. Pods on a Node of its name that is another's are not on it.
fn may_hold(case: &Case<'_>, one: &BatchMember) -> bool {
    let Some(name) = one.node.as_deref() else { return false };
    let is_others = case.node(name).is_some_and(|node| !node.is_of(&one.id));
    !is_others && !is_over(case, one) && !is_dead(case, one)
}
