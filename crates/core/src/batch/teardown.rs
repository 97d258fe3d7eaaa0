//! The end of a batch: idle, drained, terminated in one call, group and templates deleted, object gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::bill;
use super::case::{Case, Step, Turn, done, later};
use super::counted::counted;
use super::decision::{Change, Converge, Note, Requeue};
use super::occupants::occupants;
use super::owner;
use super::parting::{self, SETTLE_SECONDS};
use super::rollback::{GroupEnd, delete_group, terminate_all};
use crate::model::batch::{BatchPhase, BatchStatus, MemberState, Owner};
use crate::model::gang::{Membership, Pod};
use crate::model::names::NodeName;
use crate::model::snapshot::{AssignedCapacity, Snapshot};
use crate::model::tags::TAG_BATCH;

/// The gang runs. When it is gone or has ended, the batch is idle.
pub(super) fn in_use(case: &Case<'_>) -> Turn {
    let mut status = case.status();
    let now = case.now();
    let ended = has_ended(case, &status);
    if !ended && !case.batch.deleting && is_left(case, &status) {
        return left(case, status);
    }
    if !ended {
        status.idle_since = None;
        status.message = case.batch.deleting.then(|| "deleted: terminated when its gang ends".to_owned());
        return Turn { next: Some(status), requeue: Some(Requeue::At(later(now, 30))), ..Turn::default() };
    }
    let there = occupants(case, &status);
    if members(&there) > 0 {
        status.message = Some(format!("its gang ended; waiting for {} to leave", counted(there.len(), "pod")));
        return Turn { next: Some(status), requeue: Some(Requeue::At(later(now, 30))), ..Turn::default() };
    }
    // The last member has ended: from here on the nodes cost idle dollars, whoever else is on them.
    let since = *status.idle_since.get_or_insert(now);
    if !there.is_empty() {
        status.message = Some(format!("its gang ended; waiting for {} to leave", counted(there.len(), "pod")));
        let (edits, requeue) = end_foreign(case, &status, &there, since);
        return Turn { next: Some(status), converge: edits, requeue: Some(requeue), ..Turn::default() };
    }
    status.phase = BatchPhase::Idle;
    status.idle_since = Some(now);
    status.message = Some("its gang ended; nodes idle".to_owned());
    Turn::write(status)
}

/// Whether nobody uses the nodes any more, nor comes again.
fn has_ended(case: &Case<'_>, status: &BatchStatus) -> bool {
    match &case.batch.spec.owner {
        // A gang that was evicted may have found its nodes elsewhere.
        Owner::Gang(_) => owner::is_gone(case) || owner::is_elsewhere(case),
        // A booking is used by whichever gang consumes it; what it was provisioned for may be gone without anybody minding.
        Owner::Request(_) | Owner::Pods => !owner::is_used(case, status) && !owner::comes_again(case),
    }
}

/// Whether the gang lives and has neither a member on the nodes nor is past its commit point there: it was evicted and has not
/// come again.
fn is_left(case: &Case<'_>, status: &BatchStatus) -> bool {
    !owner::is_used(case, status) && members(&occupants(case, status)) == 0
}

/// Nodes that the evicted members of a gang have left: idle once it has not come again for long, since it may never do.
fn left(case: &Case<'_>, mut status: BatchStatus) -> Turn {
    let now = case.now();
    let since = *status.idle_since.get_or_insert(now);
    let due = since.saturating_add(owner::COMES_AGAIN).unwrap_or(Timestamp::MAX);
    if due > now || assigned(case.world.snapshot, &status) {
        status.message = Some(owner::NOT_COME_AGAIN.to_owned());
        let next = if due > now { due.min(later(now, 30)) } else { later(now, 30) };
        return Turn::write(status).requeue(Requeue::At(next));
    }
    status.phase = BatchPhase::Idle;
    status.idle_since = Some(now);
    status.message = Some("its gang did not come again; nodes idle".to_owned());
    Turn::write(status)
}

/// Terminated whole after `consolidateAfter` without pods and assignments. A gang that comes again after all uses them as before: what
/// it loses is replaced.
pub(super) fn idle(case: &Case<'_>) -> Turn {
    let mut status = case.status();
    let now = case.now();
    if owner::is_used(case, &status) && !has_ended(case, &status) {
        status.phase = BatchPhase::InUse;
        status.idle_since = None;
        status.message = None;
        return Turn::write(status);
    }
    let there = occupants(case, &status);
    if members(&there) > 0 || assigned(case.world.snapshot, &status) {
        // Quiet begins when they have left.
        status.idle_since = None;
        status.message = Some("used by pods that came after its gang".to_owned());
        return Turn { next: Some(status), requeue: Some(Requeue::At(later(now, 30))), ..Turn::default() };
    }
    let since = *status.idle_since.get_or_insert(now);
    if !there.is_empty() {
        status.message = Some(format!("idle; waiting for {} of no gang to leave", counted(there.len(), "pod")));
        let (edits, requeue) = end_foreign(case, &status, &there, since);
        return Turn { next: Some(status), converge: edits, requeue: Some(requeue), ..Turn::default() };
    }
    let after = case.world.supply.consolidate_after(status.node_pool.as_deref());
    let due = after.map(|after| since.saturating_add(after).unwrap_or(Timestamp::MAX));
    if !case.batch.deleting && due.is_none_or(|due| due > now) {
        let requeue = Requeue::At(due.unwrap_or_else(|| later(now, 300)));
        return Turn { next: Some(status), requeue: Some(requeue), ..Turn::default() };
    }
    status.phase = BatchPhase::Draining;
    status.message = Some("idle: being terminated whole".to_owned());
    Turn::write(status)
}

/// Whether members of gangs run on nodes that carry the batch's label while its status lists no instance. A status that was
/// restored from a backup is older than its launch: what EC2 still has under the batch's tag may be what a gang runs on.
pub(super) fn runs_members_unknown(case: &Case<'_>) -> bool {
    let snapshot = case.world.snapshot;
    if !case.batch.status.instances.is_empty() {
        return false;
    }
    let of_batch = |label: &Arc<str>| **label == *case.batch.uid;
    let nodes: BTreeSet<&str> = snapshot
        .nodes
        .values()
        .filter(|entry| entry.node.labels.get(TAG_BATCH).is_some_and(of_batch))
        .map(|entry| entry.node.name.as_str())
        .collect();
    let pods: Vec<&Pod> = nodes.into_iter().flat_map(|node| case.standing.on(node)).collect();
    members(&pods) > 0
}

/// Members of gangs, whichever: nobody ends them for the sake of a node.
pub(super) fn members(pods: &[&Pod]) -> usize {
    pods.iter().filter(|pod| pod.membership != Membership::Single).count()
}

/// Pods of no gang keep nodes that were launched for one: after `foreignPodsAfter` they are evicted, after twice that
/// deleted, so that the batch ends by then.
fn end_foreign(case: &Case<'_>, status: &BatchStatus, pods: &[&Pod], since: Timestamp) -> (Vec<Converge>, Requeue) {
    let now = case.now();
    let after = case.world.supply.foreign_pods_after(status.node_pool.as_deref());
    let due = |times: i32| {
        let after = after.unwrap_or(SignedDuration::MAX);
        since.saturating_add(after.saturating_mul(times)).unwrap_or(Timestamp::MAX)
    };
    if now < due(1) {
        return (Vec::new(), Requeue::At(due(1).min(later(now, 30))));
    }
    let force = now >= due(2);
    let edits = pods.iter().filter(|pod| !pod.deleting);
    let edits = edits.map(|pod| Converge::Evict { pod: pod.key.clone(), uid: pod.uid.clone(), force }).collect();
    (edits, Requeue::At(later(now, 10)))
}

/// Ends pods of no gang once the last member has left; until then nobody is ended.
pub(super) fn end_others(case: &Case<'_>, status: &mut BatchStatus, pods: &[&Pod]) -> (Vec<Converge>, Option<Requeue>) {
    if members(pods) > 0 {
        return (Vec::new(), None);
    }
    let since = *status.idle_since.get_or_insert(case.now());
    let (edits, requeue) = end_foreign(case, status, pods, since);
    (edits, Some(requeue))
}

/// Whether members are planned on nodes of the batch.
pub(super) fn assigned(snapshot: &Snapshot, status: &BatchStatus) -> bool {
    status
        .node_names()
        .flat_map(|node| snapshot.assignments.get(&NodeName::from(node)).into_iter().flatten())
        // Whole nodes are assigned to the owner of the batch, which no longer wants them.
        .any(|assignment| matches!(assignment.capacity, AssignedCapacity::Member(_)))
}

/// Keeps new pods away, waits for those there, looks once more without the cache, terminates.
pub(super) fn draining(case: &Case<'_>) -> Step<Turn> {
    let mut status = case.status();
    let now = case.now();
    let taints = parting::keep_away(case, status.members_mut());
    if !taints.is_empty() {
        return Ok(Turn::write(status).requeue(Requeue::At(later(now, SETTLE_SECONDS))).converge(taints));
    }
    if assigned(case.world.snapshot, &status) {
        status.message = Some("draining: waiting for a gang planned here to be planned elsewhere".to_owned());
        return Ok(Turn::write(status).requeue(Requeue::At(later(now, 10))));
    }
    let there = occupants(case, &status);
    if !there.is_empty() {
        status.message = Some(format!("draining: waiting for {} to leave", counted(there.len(), "pod")));
        let (edits, requeue) = end_others(case, &mut status, &there);
        let requeue = requeue.unwrap_or_else(|| Requeue::At(later(now, 10)));
        return Ok(Turn::write(status).requeue(requeue).converge(edits));
    }
    // What was planned or bound here before the taint was seen must be seen as well. A change of the cluster cuts a pause short, so that
    // it is written down since when.
    let settles = status.members().filter(|one| !parting::has_settled(case, one)).filter_map(|one| one.leaving_since);
    if let Some(last) = settles.max() {
        return Ok(Turn::write(status).requeue(Requeue::At(later(last, SETTLE_SECONDS))));
    }
    let held = parting::held(case, &status)?;
    if !held.is_empty() {
        let nodes = counted(held.len(), "node");
        status.message = Some(format!("draining: the API server has pods on {nodes} that are not seen here yet"));
        return Ok(Turn::write(status).requeue(Requeue::Pause(later(now, SETTLE_SECONDS))));
    }
    status.phase = BatchPhase::Terminating;
    status.ready_count = 0;
    for instance in &mut status.instances {
        instance.state = MemberState::Terminating;
    }
    status.message = Some(format!("terminating {}", counted(status.instances.len(), "instance")));
    Ok(Turn::write(status))
}

/// Waits for the end of the instances, then deletes group, templates and object, in this order.
pub(super) fn terminating(case: &Case<'_>) -> Step<Turn> {
    let mut status = case.status();
    let now = case.now();
    let templates = Change::DeleteTemplates(case.tags(status.attempt));
    let deleted = status.placement_group.as_ref().and_then(|group| case.outcome(&Change::DeleteGroup(group.clone())));
    if deleted.is_none() && case.outcome(&templates).is_none() {
        // By tags as well: what an attempt that counted as lost made after all goes with the batch.
        let left = terminate_all(case, &status, case.tags_of_all())?;
        if left > 0 {
            status.message = Some(format!("{} still terminating", counted(left, "instance")));
            return Ok(Turn::write(status).requeue(Requeue::Pause(later(now, 5))));
        }
        if bill::close(&mut status) {
            return Ok(Turn::write(status));
        }
    }
    if let Some(group) = status.placement_group.clone() {
        match delete_group(case, &group)? {
            GroupEnd::Gone => {}
            GroupEnd::InUse => return Ok(Turn::wait(Requeue::Pause(later(now, 5)))),
        }
        status.placement_group = None;
        return Ok(Turn::write(status));
    }
    done(case.change(templates, None)?)?;
    // Nodes of ours without an instance: elsewhere the cloud controller removes them too.
    let mut edits: Vec<Converge> = status.members().filter_map(|one| case.delete_node(one)).collect();
    let shares = bill::shares(&status, None).into_iter().filter(|share| share.spent > 0);
    let pools: BTreeSet<String> = shares.map(|share| share.node_pool).collect();
    edits.extend(pools.into_iter().map(Converge::Book));
    edits.push(Converge::Remove);
    let fleets = status.attempts.iter().filter_map(|attempt| attempt.fleet.clone()).collect();
    let turn = Turn::wait(Requeue::Pause(later(now, 5))).converge(edits).note(Note::FleetsEnded(fleets));
    Ok(turn)
}
