//! One node, launched alone, finds out whether nodes of a blocked pool join again before a whole batch is risked.
//!
//! Most nodes of a batch failed to join for one cause: configuration, not capacity. What is wrong may lie outside of the
//! pool and its class, in a network or a DaemonSet, where no change tells. So the batch that waits first in line launches
//! a single node after each pause of its back-off, and gives it back. If it joined, the pool is open again.

use super::candidates::{Size, back_off, begin, show};
use super::case::{Case, Turn, later};
use super::decision::{Converge, Requeue};
use crate::model::batch::{AttemptOutcome, Batch, BatchPhase, BatchStatus, Hold, HoldReason, MemberState};

/// Whether the batch waits for a blocked pool.
pub(super) fn held(status: &BatchStatus) -> bool {
    status.held.as_ref().is_some_and(|hold| hold.reason == HoldReason::JoinBlocked)
}

/// None of the batch's pools can be used. Where one is only blocked, a node is tried alone when it is time.
pub(super) fn wait(case: &Case<'_>, mut status: BatchStatus, why: &str) -> Turn {
    let (now, supply) = (case.now(), case.world.supply);
    let Some(pool) = supply.blocked_pool(case.batch) else {
        status.message = Some(format!("no NodePool of this batch is ready: {why}"));
        return Turn::write(status).requeue(Requeue::At(later(now, 15)));
    };
    if !held(&status) {
        status.held = Some(Hold { reason: HoldReason::JoinBlocked, seen: String::new() });
        status.next_attempt_after = None;
        status.failed_rounds = 0;
    }
    if !first_in_line(case, &pool) {
        status.message = Some(format!("waits until one node of NodePool {pool} has joined: {why}"));
        return Turn::write(status).requeue(Requeue::At(later(now, 15)));
    }
    match status.next_attempt_after {
        None => {
            back_off(case, &mut status, &format!("{why}; one node is tried alone next"));
            Turn::write(status).requeue(Requeue::At(later(now, 5)))
        }
        Some(at) if at > now => Turn::write(status).requeue(Requeue::At(at.min(later(now, 15)))),
        Some(_) => {
            let ranking = supply.rank_one(case.batch, &pool, case.others, now);
            show(&mut status, &ranking);
            let Some(ranked) = ranking.candidates.first() else {
                back_off(case, &mut status, "not even one node can be provisioned");
                return Turn::write(status).requeue(Requeue::At(later(now, 15)));
            };
            begin(case, status, ranked, Size::Probe)
        }
    }
}

/// One batch at a time tries: the first by name of those that wait for the pool.
fn first_in_line(case: &Case<'_>, pool: &str) -> bool {
    let waits = |batch: &&Batch| {
        !batch.deleting && batch.spec.node_pools.iter().any(|of_batch| of_batch == pool) && held(&batch.status)
    };
    let mut waiting = case.others.values().map(AsRef::as_ref).filter(waits);
    waiting.all(|batch| batch.name >= case.batch.name)
}

/// The pool is open again, or was changed: whole batches are launched.
pub(super) fn over(status: &mut BatchStatus) {
    status.held = None;
    status.failed_rounds = 0;
    status.next_attempt_after = None;
    status.round_from = status.attempt;
    status.message = Some("the pool is open again: the whole batch is tried".to_owned());
}

/// Whether one node was launched alone, to see whether it joins.
pub(super) fn is_alone(status: &BatchStatus) -> bool {
    status.last().is_some_and(|attempt| attempt.probe)
}

/// How a probe that joined goes on.
pub(super) enum Joined {
    /// It is terminated, or the pool is opened first.
    Turn(Box<Turn>),
    /// It is all that the batch wants.
    Kept(Box<BatchStatus>),
}

/// The node joined: the pool is open, and the node goes unless it is all that the batch wants.
pub(super) fn joined(case: &Case<'_>, mut status: BatchStatus) -> Joined {
    let pool = status.node_pool.clone().unwrap_or_default();
    if case.world.supply.is_blocked(&pool) {
        let open = Turn::wait(Requeue::At(later(case.now(), 5))).converge([Converge::UnblockPool(pool.clone())]);
        let message = format!(
            "a node that NodeBatch {} provisioned alone has joined: whole batches are provisioned again",
            case.batch.name
        );
        return Joined::Turn(Box::new(open.pool_event(&pool, "JoinUnblocked", message, false)));
    }
    over(&mut status);
    let of_type =
        |offer: &&crate::model::batch::BatchOffer| Some(&offer.instance_type) == status.instance_type.as_ref();
    if case.batch.spec.offers.iter().filter(of_type).map(|offer| offer.count).max() == Some(1) {
        return Joined::Kept(Box::new(status));
    }
    for instance in &mut status.instances {
        instance.state = MemberState::Terminating;
    }
    status.ready_count = 0;
    status.phase = BatchPhase::Launching;
    let stated = "it joined and is terminated; the whole batch is provisioned next".to_owned();
    status.message = Some(stated.clone());
    status.close(AttemptOutcome::ProbeJoined, None, Some(stated), case.now());
    Joined::Turn(Box::new(Turn::write(status)))
}
