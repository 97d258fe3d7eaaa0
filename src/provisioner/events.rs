//! What people see with `kubectl describe nodebatch`: events, read off two statuses that follow each other.

use muster_api::crd::{BatchAttempt, NodeBatchStatus};
use muster_core::ec2::CapacityType;
use muster_core::gang::GangEvent;
use muster_core::offering::Rung;

use super::canary;
use super::launch::of_quota;

/// The events between two statuses of a batch, in order.
pub(super) fn between(before: &NodeBatchStatus, after: &NodeBatchStatus) -> Vec<GangEvent> {
    let mut events = Vec::new();
    for attempt in &after.attempts {
        let known = before.attempts.iter().find(|known| known.number == attempt.number);
        if known.is_none() {
            events.extend(stepped_down(after, attempt));
        }
        if known.is_none_or(|known| known.outcome != attempt.outcome) {
            events.extend(decided(attempt));
        }
    }
    if before.phase != after.phase {
        events.extend(entered(before, after));
    }
    if let (None, Some(hold)) = (&before.held, &after.held)
        && hold.reason != canary::BLOCKED
    {
        let message = format!(
            "{}: {} launches missed the level the gang requires; nothing more is bought until the wish, the pool or the \
             class changes",
            hold.reason, after.misses
        );
        events.push(GangEvent { reason: "RequiredLevelNotMet", message, warning: true });
    }
    events
}

/// An attempt on another step of the ladder than the one before it in the same round.
fn stepped_down(status: &NodeBatchStatus, attempt: &BatchAttempt) -> Option<GangEvent> {
    let earlier = status.attempts.iter().rev().find(|earlier| earlier.number < attempt.number)?;
    let same_round = earlier.number > status.round_from && earlier.replaces.is_empty() && attempt.replaces.is_empty();
    let rung = |attempt: &BatchAttempt| {
        let capacity_type = CapacityType::parse(&attempt.capacity_type)?;
        Some(Rung { capacity_type, placement_group: attempt.group })
    };
    let (from, to) = (rung(earlier)?, rung(attempt)?);
    if !same_round || from == to {
        return None;
    }
    let why = earlier.code.as_deref().or(earlier.message.as_deref()).unwrap_or("no reason was given");
    Some(normal("SteppedDown", format!("from {from} to {to}: {why}")))
}

/// The end of a batch.
pub(super) fn gone() -> GangEvent {
    normal("Gone", "given back whole: no instance, placement group or launch template is left".to_owned())
}

fn decided(attempt: &BatchAttempt) -> Option<GangEvent> {
    let what = format!(
        "attempt {}: {} × {} {} in {}",
        attempt.number, attempt.count, attempt.instance_type, attempt.capacity_type, attempt.zone
    );
    let code = attempt.code.as_deref();
    let message = attempt.message.as_deref().unwrap_or("no reason was given");
    let said = code.map_or_else(|| message.to_owned(), |code| format!("{code} ({message})"));
    match attempt.outcome.as_str() {
        "Won" if attempt.group => Some(normal("Launched", format!("{what}, in one call and one placement group"))),
        "Won" => Some(normal("Launched", format!("{what}, in one call"))),
        "Lost" if of_quota(code) => Some(GangEvent {
            reason: "QuotaExceeded",
            message: format!("{what}: nothing launched, {said}; no other zone is tried for this quota"),
            warning: true,
        }),
        "Lost" | "Retry" => Some(GangEvent {
            reason: "AttemptLost",
            message: format!("{what}: nothing launched, {said}"),
            warning: true,
        }),
        "Misplaced" => {
            Some(GangEvent { reason: "RequiredLevelMissed", message: format!("{what}: {message}"), warning: true })
        }
        canary::OUTCOME => Some(normal("CanaryJoined", format!("{what}: {message}"))),
        "Violated" => Some(GangEvent { reason: "Violated", message: format!("{what}: {message}"), warning: true }),
        // Under way, or of a newer version.
        _ => None,
    }
}

fn entered(before: &NodeBatchStatus, after: &NodeBatchStatus) -> Option<GangEvent> {
    let nodes = after.instances.len();
    match after.phase.as_str() {
        // A rollback ends where the next attempt begins.
        "Pending" if !before.instances.is_empty() && nodes == 0 => Some(normal(
            "RolledBack",
            format!("all {} instances of attempt {} are terminated", before.instances.len(), after.attempt),
        )),
        "Pending" if after.next_attempt_after.is_some() && after.failed_rounds > before.failed_rounds => {
            let message = after.message.clone().unwrap_or_default();
            Some(GangEvent { reason: "NoCapacity", message, warning: true })
        }
        "Ready" => Some(normal("Ready", format!("all {nodes} nodes are ready for the gang"))),
        "InUse" => Some(normal("InUse", format!("the gang is bound on {nodes} nodes"))),
        "Idle" => Some(normal("Idle", format!("its gang ended; {nodes} nodes are idle"))),
        "Terminating" if nodes > 0 => Some(normal("Terminating", format!("{nodes} instances, in one call"))),
        _ => None,
    }
}

fn normal(reason: &'static str, message: String) -> GangEvent {
    GangEvent { reason, message, warning: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(phase: &str, outcomes: &[&str]) -> NodeBatchStatus {
        let attempts = outcomes.iter().zip(1..).map(|(outcome, number)| BatchAttempt {
            number,
            instance_type: "p5.48xlarge".to_owned(),
            zone: "us-east-1a".to_owned(),
            capacity_type: "on-demand".to_owned(),
            count: 8,
            outcome: (*outcome).to_owned(),
            code: (*outcome == "Lost").then(|| "InsufficientInstanceCapacity".to_owned()),
            message: Some("why".to_owned()),
            ..BatchAttempt::default()
        });
        NodeBatchStatus { phase: phase.to_owned(), attempts: attempts.collect(), ..NodeBatchStatus::default() }
    }

    fn reasons(before: &NodeBatchStatus, after: &NodeBatchStatus) -> Vec<&'static str> {
        between(before, after).iter().map(|event| event.reason).collect()
    }

    #[test]
    fn each_attempt_is_told_once_when_it_is_decided() {
        let launching = status("Launching", &["Launching"]);
        let lost = status("Pending", &["Lost"]);
        assert_eq!(reasons(&status("Pending", &[]), &launching), [""; 0]);
        assert_eq!(reasons(&launching, &lost), ["AttemptLost"]);
        assert_eq!(reasons(&lost, &status("Launching", &["Lost", "Launching"])), [""; 0]);
        let message = &between(&launching, &lost)[0].message;
        assert_eq!(
            message,
            "attempt 1: 8 × p5.48xlarge on-demand in us-east-1a: nothing launched, InsufficientInstanceCapacity (why)"
        );
    }

    #[test]
    fn a_step_down_the_ladder_is_told_with_what_made_it_necessary() {
        let before = status("Pending", &["Lost"]);
        let mut after = status("Launching", &["Lost", "Launching"]);
        after.attempts[0].group = true;
        let events = between(&before, &after);
        assert_eq!(events[0].reason, "SteppedDown");
        assert_eq!(
            events[0].message,
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
    fn quotas_and_missed_levels_have_words_of_their_own() {
        let launching = status("Launching", &["Launching"]);
        let mut quota = status("Pending", &["Lost"]);
        quota.attempts[0].code = Some("VcpuLimitExceeded".to_owned());
        assert_eq!(reasons(&launching, &quota), ["QuotaExceeded"]);
        let mut missed = status("Launching", &["Misplaced"]);
        missed.held =
            Some(muster_api::crd::BatchHold { reason: "RequiredLevelNotMet".to_owned(), seen: String::new() });
        assert_eq!(reasons(&launching, &missed), ["RequiredLevelMissed", "RequiredLevelNotMet"]);
    }

    #[test]
    fn a_rollback_is_told_when_it_begins_and_when_nothing_is_left() {
        let mut violated = status("Launching", &["Violated"]);
        violated.instances = vec![muster_api::crd::BatchInstance::default(); 7];
        assert_eq!(reasons(&status("Launching", &["Launching"]), &violated), ["Violated"]);
        assert_eq!(reasons(&violated, &status("Pending", &["Violated"])), ["RolledBack"]);
    }
}
