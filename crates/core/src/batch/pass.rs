//! The pass over all NodeBatches: each from `Pending` to gone, one decision at a time.
//!
//! Order: batches whose purchase has begun come first, then the older ones, so that what is left under a limit goes to
//! whoever holds a part of it already. What one takes counts at once for those after it; what it gives up counts once
//! that is written, since a write may be refused.

use std::sync::Arc;

use jiff::Timestamp;

use super::case::{Case, Step, Stop, Turn, failing, later, nothing, recovered};
use super::decision::{Change, Decision, Memory, Requeue, Working, World};
use super::standing::Standing;
use super::{
    attempts, bill, events, joining, launch, losses, occupants, owner, partial, parting, pending, repair, rollback,
    shown, teardown,
};
use crate::model::batch::{Attempt, Batch, BatchPhase, BatchStatus};

/// Decides about every batch that is not busy.
#[must_use]
pub fn pass(world: &World<'_>) -> Vec<Decision> {
    let mut working: Working = world.batches.clone();
    let mut order: Vec<&Arc<Batch>> = world.batches.values().collect();
    order.sort_by(|one, other| rank(one).cmp(&rank(other)));
    let nothing = Memory::default();
    let standing = Standing::of(world.snapshot);
    let mut decisions = Vec::new();
    for batch in order {
        if world.busy.contains(&batch.name) {
            continue;
        }
        let memory = world.memory.get(&batch.name).unwrap_or(&nothing);
        let case = Case { batch, memory, world, others: &working, standing: &standing };
        let decision = decide(&case);
        if let Some(next) = &decision.next {
            working.insert(batch.name.clone(), assume(batch, next));
        }
        decisions.push(decision);
    }
    decisions
}

/// A batch as others count it from the decision to write `next` until that is acknowledged: with what it takes, and with
/// what it is about to give up.
#[must_use]
pub fn assume(batch: &Arc<Batch>, next: &BatchStatus) -> Arc<Batch> {
    let status = &batch.status;
    let of = |status: &BatchStatus| (status.node_pool.clone(), status.instance_type.clone(), status.zone.clone());
    let takes_less = next.phase == BatchPhase::Pending
        || next.count < status.count
        || next.instances.len() < status.instances.len()
        || of(next) != of(status);
    if status.phase != BatchPhase::Pending && takes_less {
        return Arc::clone(batch);
    }
    Arc::new(Batch { status: next.clone(), ..Batch::clone(batch) })
}

fn rank(batch: &Batch) -> (bool, Option<Timestamp>, &str) {
    (batch.status.phase == BatchPhase::Pending, batch.created, &batch.name)
}

fn decide(case: &Case<'_>) -> Decision {
    if let Some(failure) = &case.memory.failed {
        return failing(case, failure, false);
    }
    if case.world.stale && !is_answered(case) {
        return unseen(case);
    }
    match advance(case) {
        Ok(turn) => complete(case, turn),
        Err(Stop::Change(turn)) => complete(case, Turn { requeue: Some(Requeue::Outcome), ..*turn }),
        Err(Stop::Look(look)) => {
            Decision { looks: vec![look], reports: looked_at(case), ..nothing(case, Requeue::Outcome) }
        }
        Err(Stop::Failed { failure, done }) => failing(case, &failure, done),
    }
}

/// Whether the answer to a launch is to be judged, for which nothing need be known of the cluster: what was launched costs money,
/// and is written down whatever else cannot be read.
fn is_answered(case: &Case<'_>) -> bool {
    let launched = case.memory.done.as_ref().is_some_and(|done| matches!(done.change, Change::Launch { .. }));
    launched && case.batch.status.last().is_some_and(Attempt::is_open)
}

/// Between two looks at whether the cluster can be seen again, in seconds; a change of it is one at once.
const UNSEEN: i64 = 10;

/// The decision while nobody knows what runs on the nodes: losses are written down, and all else is left as it is.
fn unseen(case: &Case<'_>) -> Decision {
    let reported = if case.batch.newer.is_none() { losses::reported(case) } else { None };
    match reported {
        Some(turn) => complete(case, turn),
        None => {
            let rest = nothing(case, Requeue::At(later(case.now(), UNSEEN)));
            Decision { reports: looked_at(case), ..rest }
        }
    }
}

/// Reports that this decision settles. Of a batch that a newer version wrote nothing is written down: whoever reported a loss brings it
/// again, until somebody leads who understands the batch.
fn looked_at(case: &Case<'_>) -> usize {
    if case.batch.newer.is_some() { 0 } else { case.memory.reports.len() }
}

/// Makes a decision of a turn: what is written gets its time, its sums and its events.
fn complete(case: &Case<'_>, mut turn: Turn) -> Decision {
    // What is still to be carried out proves nothing yet.
    let succeeded = turn.change.is_none() && (turn.converge.is_empty() || case.memory.failures == 0);
    if succeeded {
        recovered(case, &mut turn);
    }
    if owner::is_first_use(case, turn.next.as_ref()) {
        turn.next.get_or_insert_with(|| case.status()).used = true;
    }
    let before = &case.batch.status;
    let times = bill::Times::of(case.memory);
    let next = turn.next.and_then(|next| finish(before, next, &times, case.world.now, case.world.now_real));
    let mut reported = next.as_ref().map(|next| events::between(before, next)).unwrap_or_default();
    if let Some(next) = next.as_ref().filter(|_| parting::is_for_pods(case.batch)) {
        reported = partial::reworded(reported, before, next);
    }
    Decision {
        batch: case.batch.name.clone(),
        change: turn.change,
        converge: turn.converge,
        looks: Vec::new(),
        notes: turn.notes,
        events: reported.into_iter().chain(turn.events).collect(),
        requeue: turn.requeue.unwrap_or(Requeue::Now),
        scratch: turn.scratch.unwrap_or(case.memory.scratch),
        used: true,
        succeeded,
        reports: looked_at(case),
        next,
    }
}

/// The status as it is written; `None` if nothing would change.
fn finish(
    before: &BatchStatus,
    mut next: BatchStatus,
    times: &bill::Times<'_>,
    now: Timestamp,
    now_real: Timestamp,
) -> Option<BatchStatus> {
    let mut kept = attempts::kept(&next.attempts, next.round_from).into_iter();
    next.attempts.retain(|_| kept.next().unwrap_or(true));
    if next.phase == BatchPhase::Pending {
        // Until the next attempt it takes what it was created with.
        next.reserved.clear();
    }
    if *before == next {
        return None;
    }
    if before.phase != next.phase || next.since.is_none() {
        next.since = Some(now_real);
    }
    bill::bill(before, &mut next, times, now);
    shown::show(&mut next, now_real);
    Some(next)
}

/// Why a batch without instances waits although it is `Pending`.
const UNKNOWN_NODES: &str = "members run on nodes of this batch that its status does not know, as after a restored backup: nothing is launched or \
                             terminated until they have ended";

fn advance(case: &Case<'_>) -> Step<Turn> {
    let now = case.now();
    if case.batch.newer.is_some() {
        return Ok(Turn::wait(Requeue::At(later(now, 60))));
    }
    if let Some(turn) = losses::reported(case) {
        return Ok(turn);
    }
    if parting::is_for_pods(case.batch) {
        return partial::advance(case);
    }
    let status = &case.batch.status;
    // A launch whose outcome is open must be settled first: what it made has to be found.
    let open = status.last().is_some_and(Attempt::is_open);
    if status.phase == BatchPhase::Pending && !open && teardown::runs_members_unknown(case) {
        let mut next = case.status();
        next.message = Some(UNKNOWN_NODES.to_owned());
        return Ok(Turn::write(next).requeue(Requeue::At(later(now, 60))));
    }
    if !status.phase.is_settled() && status.phase != BatchPhase::Replacing && !open && owner::unwanted(case)? {
        if status.phase == BatchPhase::Ready && !case.batch.deleting {
            return Ok(joining::unneeded(case));
        }
        let mut next = case.status();
        next.phase = BatchPhase::Draining;
        next.message = Some("no longer needed: being terminated".to_owned());
        return Ok(Turn::write(next));
    }
    if let Some(turn) = repair::terminate(case)? {
        return Ok(turn);
    }
    if let Some(next) = repair::notice_absent(case) {
        return Ok(Turn::write(next));
    }
    if let Some(next) = occupants::note(case) {
        return Ok(Turn::write(next));
    }
    let lost = status.instances.iter().any(|instance| instance.is_lost(now));
    let turn = match status.phase {
        BatchPhase::Pending => pending::pending(case)?,
        BatchPhase::Launching if status.last().is_some_and(|last| last.outcome.rolls_back()) => rollback::go(case)?,
        BatchPhase::Launching => launch::launching(case)?,
        BatchPhase::Launched => joining::launched(case)?,
        BatchPhase::Joining => joining::joining(case)?,
        BatchPhase::Replacing => repair::replacing(case)?,
        // The last member of a booking has ended, and others keep its nodes: what is lost of them serves nobody.
        BatchPhase::InUse if status.idle_since.is_some() && owner::is_over(case) => teardown::in_use(case),
        BatchPhase::Ready | BatchPhase::InUse if lost && !owner::is_gone(case) => repair::lost_in_use(case)?,
        BatchPhase::Ready => joining::ready(case)?,
        BatchPhase::InUse => teardown::in_use(case),
        BatchPhase::Idle => teardown::idle(case),
        BatchPhase::Draining => teardown::draining(case)?,
        BatchPhase::Terminating => teardown::terminating(case)?,
    };
    Ok(turn.converge(repair::taints_of_lost(case)))
}
