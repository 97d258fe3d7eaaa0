//! One node, launched alone, finds out whether nodes of a blocked pool join again before a whole batch is risked.
//!
//! Most nodes of a batch failed to join for one cause: configuration, not capacity. What is wrong may lie outside of the
//! pool and its class, in a network or a DaemonSet, where no change tells. So the batch that waits first in line launches
//! a single node after each pause of its back-off, and gives it back. If it joined, the pool is open again. What does not
//! join is not tried for ever: `join.maxProbes` and `join.maxProbeUsd` of the pool bound how many nodes that takes, and
//! what they cost.

use super::candidates::{Size, back_off, begin, show};
use super::case::{Case, Turn, later};
use super::counted::counted;
use super::decision::{Converge, JoinClocks, Probe, Probes, Requeue};
use crate::model::batch::{AttemptOutcome, Batch, BatchPhase, BatchStatus, Hold, HoldReason, MemberState};
use crate::model::money::{cost, usd};
use crate::offering::rank::Ranked;

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
            let stood_aside = stands_aside(&status);
            show(&mut status, &ranking);
            let Some(ranked) = ranking.candidates.first() else {
                back_off(case, &mut status, "not even one node can be provisioned");
                return Turn::write(status).requeue(Requeue::At(later(now, 15)));
            };
            if stood_aside {
                // Another batch may just be about to try a node: it sees first that this one is in line again.
                status.next_attempt_after = Some(later(now, 15));
                status.message = Some(format!("{why}; one node can be provisioned again, and is tried alone next"));
                return Turn::write(status).requeue(Requeue::At(later(now, 15)));
            }
            if case.world.settings.dry_run {
                return begin(case, status, ranked, Size::Probe);
            }
            let clocks = supply.join(Some(&pool));
            let probe = next(case, ranked, &clocks);
            let known = supply.probes(&pool);
            if known.last.as_ref().is_some_and(|last| last.covers(&probe)) {
                return begin(case, status, ranked, Size::Probe);
            }
            match known.without_unlaunched(&case.batch.name, &status).and(probe, &clocks) {
                // It counts before it is launched, and is launched once that is seen.
                Some(probes) => {
                    let count = Converge::CountProbe { pool, probes };
                    Turn::wait(Requeue::At(later(now, 2))).converge([count])
                }
                None => exhausted(status, &pool, &known, &clocks, why).requeue(Requeue::At(later(now, 60))),
            }
        }
    }
}

/// The next node that is tried alone: it lives as long as it may take to join.
fn next(case: &Case<'_>, ranked: &Ranked, clocks: &JoinClocks) -> Probe {
    let lives = clocks.register_within.saturating_add(clocks.ready_within);
    Probe {
        batch: case.batch.name.clone(),
        attempt: case.batch.status.attempt.saturating_add(1),
        micro_usd: cost(ranked.total_micro_usd_per_hour, lives),
    }
}

impl Probe {
    /// Whether this is that one, and counted with no less than it costs now.
    fn covers(&self, other: &Self) -> bool {
        (&self.batch, self.attempt) == (&other.batch, other.attempt) && self.micro_usd >= other.micro_usd
    }
}

impl Probes {
    /// Without the last one, where it was counted for this batch and launched nothing: not begun yet, or refused by EC2.
    fn without_unlaunched(&self, batch: &str, status: &BatchStatus) -> Self {
        let Some(last) = self.last.as_ref().filter(|last| last.batch == batch) else { return self.clone() };
        let attempt = status.attempts.iter().find(|attempt| attempt.number == last.attempt);
        let refused = attempt.is_some_and(|attempt| match attempt.outcome {
            // Without a code nobody knows whether EC2 launched it.
            AttemptOutcome::Lost | AttemptOutcome::Retry => attempt.code.is_some(),
            AttemptOutcome::Launching
            | AttemptOutcome::Won
            | AttemptOutcome::Violated
            | AttemptOutcome::Misplaced
            | AttemptOutcome::ProbeJoined => false,
        });
        if !refused && last.attempt <= status.attempt {
            return self.clone();
        }
        Self {
            count: self.count.saturating_sub(1),
            micro_usd: self.micro_usd.saturating_sub(last.micro_usd),
            last: None,
        }
    }

    /// Whether no further node may be tried alone for this batch, if it costs what the last one did. One that is counted for the batch
    /// and not begun yet is that node.
    #[must_use]
    pub fn are_used_up(&self, batch: &Batch, clocks: &JoinClocks) -> bool {
        let micro_usd = self.last.as_ref().map_or(0, |last| last.micro_usd);
        let next = Probe { batch: batch.name.clone(), attempt: batch.status.attempt.saturating_add(1), micro_usd };
        self.without_unlaunched(&batch.name, &batch.status).and(next, clocks).is_none()
    }

    /// With one more; `None` if that passes what the pool allows.
    fn and(&self, probe: Probe, clocks: &JoinClocks) -> Option<Self> {
        let all = Self {
            count: self.count.saturating_add(1),
            micro_usd: self.micro_usd.saturating_add(probe.micro_usd),
            last: Some(probe),
        };
        (all.count <= clocks.max_probes && all.micro_usd <= clocks.max_probe_micro_usd).then_some(all)
    }
}

/// No further node is tried alone: a person has to change something.
fn exhausted(mut status: BatchStatus, pool: &str, probes: &Probes, clocks: &JoinClocks, why: &str) -> Turn {
    let message = format!(
        "{} of NodePool {pool} tried alone, for at most {}; no more are (join.maxProbes {}, \
         join.maxProbeUsd {}): change the NodePool or its EC2NodeClass; {why}",
        counted(probes.count, "node"),
        usd(probes.micro_usd),
        clocks.max_probes,
        usd(clocks.max_probe_micro_usd)
    );
    if status.message.as_ref() == Some(&message) {
        return Turn::default();
    }
    status.message = Some(message.clone());
    Turn::write(status).pool_event(pool, "ProbesExhausted", message, true)
}

/// The pool of which a batch tries a node alone, or would: one that is open to several pools tries them one after the other.
fn tried_pool(case: &Case<'_>, batch: &Batch) -> Option<String> {
    let status = &batch.status;
    let tries = status.phase != BatchPhase::Pending && is_alone(status);
    if tries { status.node_pool.clone() } else { case.world.supply.blocked_pool(batch) }
}

/// Whether the batch found last that not even one node can be provisioned for it. The round after its first pause is the second.
fn stands_aside(status: &BatchStatus) -> bool {
    status.phase == BatchPhase::Pending && status.candidates.is_empty() && status.failed_rounds > 1
}

/// One batch at a time tries: the first by name of those that wait for the pool. Who cannot try keeps nobody from it.
fn first_in_line(case: &Case<'_>, pool: &str) -> bool {
    let waits = |batch: &&Batch| {
        let status = &batch.status;
        let in_line = !batch.deleting && held(status) && !stands_aside(status);
        in_line && tried_pool(case, batch).as_deref() == Some(pool)
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

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use crate::model::batch::Attempt;

    fn clocks(max_probes: u32, max_probe_micro_usd: u64) -> JoinClocks {
        JoinClocks { max_probes, max_probe_micro_usd, ..JoinClocks::default() }
    }

    fn probe(batch: &str, attempt: u32, micro_usd: u64) -> Probe {
        Probe { batch: batch.to_owned(), attempt, micro_usd }
    }

    fn status(outcome: AttemptOutcome, code: Option<&str>) -> BatchStatus {
        let attempt = Attempt { number: 3, probe: true, outcome, code: code.map(str::to_owned), ..fixtures::attempt() };
        BatchStatus { attempt: 3, attempts: vec![attempt], ..BatchStatus::default() }
    }

    #[test]
    fn no_more_nodes_are_tried_alone_than_the_pool_allows_in_number_and_in_dollars() {
        let (number, money) = (clocks(3, 1000), clocks(10, 25));
        for (clocks, most) in [(number, 3), (money, 2)] {
            let mut probes = Probes::default();
            for attempt in 1..=most {
                probes = probes.and(probe("b", attempt, 10), &clocks).unwrap();
                assert_eq!((probes.count, probes.micro_usd), (attempt, 10 * u64::from(attempt)));
            }
            assert_eq!(probes.and(probe("b", 9, 10), &clocks), None, "after {most}");
        }
        let exact = Probes::default().and(probe("b", 1, 25), &clocks(1, 25));
        assert!(exact.is_some(), "what uses the limits up is within them");
    }

    #[test]
    fn nodes_are_used_up_where_another_like_the_last_would_pass_what_the_pool_allows() {
        let batch = |attempt: u32| Batch {
            name: "b".to_owned(),
            uid: "u".to_owned(),
            created: None,
            deleting: false,
            spec: std::sync::Arc::default(),
            status: BatchStatus { attempt, ..BatchStatus::default() },
            newer: None,
        };
        let tried = Probes { count: 2, micro_usd: 30, last: Some(probe("b", 3, 20)) };
        let used_up = |clocks: &JoinClocks, attempt: u32| tried.are_used_up(&batch(attempt), clocks);
        assert!(!used_up(&clocks(3, 50), 4) && used_up(&clocks(3, 49), 4) && used_up(&clocks(2, 50), 4));
        assert!(!used_up(&clocks(2, 30), 2), "the last of them is its next");
        assert!(!Probes::default().are_used_up(&batch(0), &clocks(1, 0)), "nothing is known of the price");
    }

    #[test]
    fn a_node_that_ec2_refused_or_that_was_never_begun_does_not_count() {
        let all = Probes { count: 2, micro_usd: 30, last: Some(probe("b", 3, 20)) };
        let rest = Probes { count: 1, micro_usd: 10, last: None };
        for outcome in [AttemptOutcome::Lost, AttemptOutcome::Retry] {
            let code = Some("InsufficientInstanceCapacity");
            assert_eq!(all.without_unlaunched("b", &status(outcome, code)), rest, "{outcome:?}");
            assert_eq!(
                all.without_unlaunched("b", &status(outcome, None)),
                all,
                "{outcome:?}: it may have been launched"
            );
            assert_eq!(all.without_unlaunched("a", &status(outcome, code)), all, "it is another batch's");
        }
        for outcome in [AttemptOutcome::Violated, AttemptOutcome::Won, AttemptOutcome::Launching] {
            assert_eq!(all.without_unlaunched("b", &status(outcome, Some("code"))), all, "{outcome:?}");
        }
        let before = BatchStatus { attempt: 2, ..BatchStatus::default() };
        assert_eq!(all.without_unlaunched("b", &before), rest, "counted, and not begun yet");
        let later = BatchStatus { attempt: 4, ..BatchStatus::default() };
        assert_eq!(all.without_unlaunched("b", &later), all, "its attempt is forgotten");
    }

    #[test]
    fn what_was_counted_covers_the_same_attempt_at_no_higher_price() {
        let counted = probe("b", 3, 20);
        assert!(counted.covers(&probe("b", 3, 20)) && counted.covers(&probe("b", 3, 19)));
        for other in [probe("b", 3, 21), probe("b", 4, 20), probe("a", 3, 20)] {
            assert!(!counted.covers(&other), "{other:?}");
        }
    }
}
