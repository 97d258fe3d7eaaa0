//! What people see with `kubectl describe nodebatch`: events, read off two statuses that follow each other.

use muster_api::crd::{BatchAttempt, NodeBatchStatus};
use muster_core::cycle::GangEvent;

/// The events between two statuses of a batch, in order.
pub(super) fn between(before: &NodeBatchStatus, after: &NodeBatchStatus) -> Vec<GangEvent> {
    let mut events = Vec::new();
    for attempt in &after.attempts {
        let known = before.attempts.iter().find(|known| known.number == attempt.number);
        if known.is_none_or(|known| known.outcome != attempt.outcome) {
            events.extend(decided(attempt));
        }
    }
    if before.phase != after.phase {
        events.extend(entered(before, after));
    }
    events
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
        "Lost" | "Retry" => Some(GangEvent {
            reason: "AttemptLost",
            message: format!("{what}: nothing launched, {said}"),
            warning: true,
        }),
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
    fn a_rollback_is_told_when_it_begins_and_when_nothing_is_left() {
        let mut violated = status("Launching", &["Violated"]);
        violated.instances = vec![muster_api::crd::BatchInstance::default(); 7];
        assert_eq!(reasons(&status("Launching", &["Launching"]), &violated), ["Violated"]);
        assert_eq!(reasons(&violated, &status("Pending", &["Violated"])), ["RolledBack"]);
    }
}
