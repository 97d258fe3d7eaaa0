//! What people see with `kubectl describe nodebatch`: events, read off two statuses that follow each other.

use super::counted::counted;
use super::decision::BatchEvent;
use crate::ec2::error::{ErrorClass, classify};
use crate::model::batch::{Attempt, AttemptOutcome, BatchPhase, BatchStatus, HoldReason};
use crate::model::event::GangEvent;
use crate::offering::rank::Rung;

/// The events between two statuses of a batch, in order.
pub(super) fn between(before: &BatchStatus, after: &BatchStatus) -> Vec<BatchEvent> {
    let mut events = Vec::new();
    for attempt in &after.attempts {
        let known = before.attempts.iter().find(|known| known.number == attempt.number);
        if known.is_none() {
            events.extend(stepped_down(after, attempt));
        }
        if known.is_none_or(|known| known.outcome != attempt.outcome) {
            let came = after.instances.iter().any(|instance| instance.attempt == attempt.number);
            events.extend(decided(attempt, came));
        }
    }
    if before.phase != after.phase {
        events.extend(entered(before, after));
    }
    if let (None, Some(hold)) = (&before.held, &after.held)
        && hold.reason == HoldReason::RequiredLevelNotMet
    {
        let message = format!(
            "{}: {} launches missed the level the gang requires; nothing more is provisioned until the topology request, the pool or the \
             class changes",
            hold.reason, after.misses
        );
        events.push(warning("RequiredLevelNotMet", message));
    }
    events.into_iter().map(|event| BatchEvent { pool: None, event }).collect()
}

/// The end of a batch.
#[must_use]
pub fn gone() -> GangEvent {
    normal("Gone", "terminated whole: no instance, placement group or launch template is left".to_owned())
}

/// An attempt on another step of the ladder than the one before it in the same round.
fn stepped_down(status: &BatchStatus, attempt: &Attempt) -> Option<GangEvent> {
    let earlier = status.attempts.iter().rev().find(|earlier| earlier.number < attempt.number)?;
    let same_round = earlier.number > status.round_from && earlier.replaces.is_empty() && attempt.replaces.is_empty();
    let rung = |attempt: &Attempt| Rung { capacity_type: attempt.capacity_type, placement_group: attempt.group };
    let (from, to) = (rung(earlier), rung(attempt));
    if !same_round || from == to {
        return None;
    }
    let why = earlier.code.as_deref().or(earlier.message.as_deref()).unwrap_or("no reason was given");
    Some(normal("SteppedDown", format!("from {from} to {to}: {why}")))
}

/// What was decided about an attempt. `came`: whether instances of it are there.
fn decided(attempt: &Attempt, came: bool) -> Option<GangEvent> {
    let what = format!(
        "attempt {}: {} × {} {} in {}",
        attempt.number, attempt.count, attempt.instance_type, attempt.capacity_type, attempt.zone
    );
    let code = attempt.code.as_deref();
    let message = attempt.message.as_deref().unwrap_or("no reason was given");
    let stated = code.map_or_else(|| message.to_owned(), |code| format!("{code} ({message})"));
    match attempt.outcome {
        AttemptOutcome::Launching => None,
        AttemptOutcome::Won if attempt.group => Some(normal("Launched", format!("{what}, in one placement group"))),
        AttemptOutcome::Won => Some(normal("Launched", what)),
        // What came too many or too few is of no use, and goes: the message says what it was.
        AttemptOutcome::Lost if came => Some(warning("AttemptLost", format!("{what}: {stated}"))),
        AttemptOutcome::Lost if of_quota(code) => Some(warning(
            "QuotaExceeded",
            format!("{what}: nothing launched, {stated}; no other zone is tried for this quota"),
        )),
        AttemptOutcome::Lost | AttemptOutcome::Retry => {
            Some(warning("AttemptLost", format!("{what}: nothing launched, {stated}")))
        }
        AttemptOutcome::Misplaced => Some(warning("RequiredLevelMissed", format!("{what}: {message}"))),
        AttemptOutcome::ProbeJoined => Some(normal("ProbeJoined", format!("{what}: {message}"))),
        AttemptOutcome::Violated => Some(warning("Violated", format!("{what}: {message}"))),
    }
}

/// Whether an attempt was lost for a quota.
fn of_quota(code: Option<&str>) -> bool {
    matches!(classify(code, None), ErrorClass::Quota | ErrorClass::SpotQuota)
}

fn entered(before: &BatchStatus, after: &BatchStatus) -> Option<GangEvent> {
    let nodes = after.instances.len();
    match after.phase {
        // A rollback ends where the next attempt begins.
        BatchPhase::Pending if !before.instances.is_empty() && nodes == 0 => Some(normal(
            "RolledBack",
            format!("all {} instances of attempt {} are terminated", before.instances.len(), after.attempt),
        )),
        BatchPhase::Pending if after.next_attempt_after.is_some() && after.failed_rounds > before.failed_rounds => {
            Some(warning("NoCapacity", after.message.clone().unwrap_or_default()))
        }
        BatchPhase::Ready => Some(normal("Ready", format!("all {nodes} nodes are ready for the gang"))),
        BatchPhase::InUse => Some(normal("InUse", format!("the gang is bound on {}", counted(nodes, "node")))),
        BatchPhase::Idle => Some(normal("Idle", format!("its gang ended; idle: {}", counted(nodes, "node")))),
        BatchPhase::Terminating if nodes > 0 => {
            Some(normal("Terminating", format!("terminating {}", counted(nodes, "instance"))))
        }
        BatchPhase::Pending
        | BatchPhase::Launching
        | BatchPhase::Launched
        | BatchPhase::Joining
        | BatchPhase::Replacing
        | BatchPhase::Draining
        | BatchPhase::Terminating => None,
    }
}

fn normal(reason: &'static str, message: String) -> GangEvent {
    GangEvent { reason, message, warning: false }
}

fn warning(reason: &'static str, message: String) -> GangEvent {
    GangEvent { reason, message, warning: true }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{attempt, members};
    use super::*;
    use crate::model::batch::Hold;

    fn status(phase: BatchPhase, outcomes: &[AttemptOutcome]) -> BatchStatus {
        let attempts = outcomes.iter().zip(1..).map(|(outcome, number)| Attempt {
            number,
            outcome: *outcome,
            group: false,
            code: (*outcome == AttemptOutcome::Lost).then(|| "InsufficientInstanceCapacity".to_owned()),
            message: Some("why".to_owned()),
            ..attempt()
        });
        BatchStatus { phase, attempts: attempts.collect(), ..BatchStatus::default() }
    }

    fn reasons(before: &BatchStatus, after: &BatchStatus) -> Vec<&'static str> {
        between(before, after).iter().map(|event| event.event.reason).collect()
    }

    use AttemptOutcome::{Launching, Lost, Misplaced, Violated};

    #[test]
    fn each_attempt_is_reported_once_when_it_is_decided() {
        let launching = status(BatchPhase::Launching, &[Launching]);
        let lost = status(BatchPhase::Pending, &[Lost]);
        assert_eq!(reasons(&status(BatchPhase::Pending, &[]), &launching), [""; 0]);
        assert_eq!(reasons(&launching, &lost), ["AttemptLost"]);
        assert_eq!(reasons(&lost, &status(BatchPhase::Launching, &[Lost, Launching])), [""; 0]);
        let message = &between(&launching, &lost)[0].event.message;
        assert_eq!(
            message,
            "attempt 1: 8 × p5.48xlarge on-demand in us-east-1a: nothing launched, InsufficientInstanceCapacity (why)"
        );
    }

    #[test]
    fn a_lost_attempt_of_which_instances_came_does_not_say_that_nothing_was_launched() {
        let launching = status(BatchPhase::Replacing, &[Launching]);
        let mut lost = status(BatchPhase::Replacing, &[Lost]);
        lost.attempts[0].code = None;
        lost.instances = members(2);
        lost.instances.iter_mut().for_each(|instance| instance.attempt = 1);
        let message = |lost: &BatchStatus| between(&launching, lost)[0].event.message.clone();
        assert_eq!(message(&lost), "attempt 1: 8 × p5.48xlarge on-demand in us-east-1a: why");
        // Those of an earlier attempt say nothing of this one.
        lost.instances.iter_mut().for_each(|instance| instance.attempt = 0);
        assert_eq!(message(&lost), "attempt 1: 8 × p5.48xlarge on-demand in us-east-1a: nothing launched, why");
    }

    #[test]
    fn a_step_down_the_ladder_is_reported_with_what_made_it_necessary() {
        let before = status(BatchPhase::Pending, &[Lost]);
        let mut after = status(BatchPhase::Launching, &[Lost, Launching]);
        after.attempts[0].group = true;
        let events = between(&before, &after);
        assert_eq!(events[0].event.reason, "SteppedDown");
        assert_eq!(
            events[0].event.message,
            "from on-demand in a placement group to on-demand without a placement group: InsufficientInstanceCapacity"
        );
        // Another zone is no step, and a new round begins at the top.
        after.attempts[0].group = false;
        assert_eq!(reasons(&before, &after), [""; 0]);
        after.attempts[0].group = true;
        after.round_from = 1;
        assert_eq!(reasons(&before, &after), [""; 0]);
    }

    #[test]
    fn a_launch_says_whether_it_is_in_one_placement_group() {
        let launching = status(BatchPhase::Launching, &[Launching]);
        let mut won = status(BatchPhase::Launched, &[AttemptOutcome::Won]);
        let stated = |won: &BatchStatus| between(&launching, won)[0].event.message.clone();
        assert_eq!(stated(&won), "attempt 1: 8 × p5.48xlarge on-demand in us-east-1a");
        won.attempts[0].group = true;
        assert_eq!(stated(&won), "attempt 1: 8 × p5.48xlarge on-demand in us-east-1a, in one placement group");
    }

    #[test]
    fn the_end_of_a_batch_without_instances_terminates_nothing() {
        let draining = status(BatchPhase::Draining, &[]);
        let mut terminating = status(BatchPhase::Terminating, &[]);
        assert_eq!(reasons(&draining, &terminating), [""; 0]);
        terminating.instances = members(2);
        assert_eq!(reasons(&draining, &terminating), ["Terminating"]);
    }

    #[test]
    fn quotas_and_missed_levels_have_words_of_their_own() {
        let launching = status(BatchPhase::Launching, &[Launching]);
        let mut quota = status(BatchPhase::Pending, &[Lost]);
        quota.attempts[0].code = Some("VcpuLimitExceeded".to_owned());
        assert_eq!(reasons(&launching, &quota), ["QuotaExceeded"]);
        let mut missed = status(BatchPhase::Launching, &[Misplaced]);
        missed.held = Some(Hold { reason: HoldReason::RequiredLevelNotMet, seen: String::new() });
        assert_eq!(reasons(&launching, &missed), ["RequiredLevelMissed", "RequiredLevelNotMet"]);
    }

    #[test]
    fn a_rollback_is_reported_when_it_begins_and_when_nothing_is_left() {
        let mut violated = status(BatchPhase::Launching, &[Violated]);
        violated.instances = members(7);
        assert_eq!(reasons(&status(BatchPhase::Launching, &[Launching]), &violated), ["Violated"]);
        assert_eq!(reasons(&violated, &status(BatchPhase::Pending, &[Violated])), ["RolledBack"]);
    }
}
