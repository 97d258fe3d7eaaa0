//! What a person reads while a gang waits: one word, one sentence.

use std::sync::Arc;

use jiff::Timestamp;

use super::asked::RequestError;
use super::{BatchView, GangEvent, withdraw};
use crate::model::gang::{Gang, Invalid, Phase, Recognised};
use crate::planner::plan::Refusal;
use crate::reason::{Joining, Why};

/// `seen/expected`.
pub(super) fn members(recognised: &Recognised, seen: usize) -> Arc<str> {
    match recognised.size.or(recognised.min) {
        Some(size) => Arc::from(format!("{seen}/{size}")),
        None => Arc::from(format!("{seen}/?")),
    }
}

pub(super) fn invalid(gang: &Gang, next: &mut Gang, invalid: &Invalid) -> Option<GangEvent> {
    withdraw(gang, next);
    next.phase = Some(Phase::Invalid);
    next.waiting = Some(Why::Invalid(invalid.clone()).waiting(None));
    (gang.waiting != next.waiting).then(|| GangEvent {
        reason: invalid.reason.as_str(),
        message: invalid.message.clone(),
        warning: true,
    })
}

/// Members that are missing or held, while there is no plan.
pub(super) fn collecting(gang: &Gang, next: &mut Gang, why: &Why) -> Option<GangEvent> {
    withdraw(gang, next);
    next.phase = Some(Phase::Collecting);
    next.waiting = Some(why.waiting(None));
    None
}

/// What a person reads while members are missing or held; `kept`: a plan waits for them. `None` if a topology request cannot be read.
pub(super) fn missing(error: &RequestError, kept: bool) -> Option<Why> {
    match error {
        RequestError::Invalid(_) => None,
        RequestError::Collecting { seen, needed, size } => {
            Some(Why::Collecting { seen: *seen, needed: *needed, size: *size, kept })
        }
        RequestError::SizeUnknown { seen } => Some(Why::SizeUnknown { seen: *seen, kept }),
        RequestError::ForeignGate { pod, gate } => {
            Some(Why::ForeignGate { pod: Arc::clone(pod), gate: Arc::clone(gate), kept })
        }
        RequestError::Volumes { pod, awaits } => {
            Some(Why::Volumes { pod: Arc::clone(pod), awaits: Arc::clone(awaits), kept })
        }
    }
}

pub(super) fn provisioning(next: &mut Gang, batch: Option<&BatchView>) -> Option<GangEvent> {
    next.phase = Some(Phase::Provisioning);
    let why =
        Why::Provisioning { batch: batch.map(|batch| (Arc::clone(&batch.name), batch.message.clone())), count: None };
    next.waiting = Some(why.waiting(batch.and_then(|batch| batch.next_try)));
    None
}

/// Nodes are joining with which it fits: nothing is provisioned for a while.
pub(super) fn joining(next: &mut Gang, joining: Joining) -> Option<GangEvent> {
    next.phase = Some(Phase::Waiting);
    let until = joining.until;
    next.waiting = Some(Why::Joining(joining).waiting(until));
    None
}

pub(super) fn provisioned_but_not_fitting(next: &mut Gang, refusal: &Refusal) -> Option<GangEvent> {
    next.phase = Some(Phase::Provisioning);
    next.waiting = Some(Why::ProvisionedDoNotHold { refusal: refusal.clone() }.waiting(None));
    None
}

pub(super) fn backing_off(next: &mut Gang, batch: &BatchView, refusal: &Refusal) -> Option<GangEvent> {
    next.phase = Some(Phase::Provisioning);
    let why = Why::NoCapacity { stated: batch.message.clone(), refusal: refusal.clone() };
    next.waiting = Some(why.waiting(batch.next_try));
    None
}

pub(super) fn does_not_fit(gang: &Gang, next: &mut Gang, why: &Why) -> Option<GangEvent> {
    next.phase = Some(Phase::Waiting);
    next.waiting = Some(why.waiting(None));
    let message = why.to_string();
    (gang.waiting != next.waiting).then_some(GangEvent { reason: "DoesNotFit", message, warning: false })
}

/// What the planner says, or that it reported nothing: then the checker refused the plan.
pub(super) fn refused(refusal: Option<&Refusal>) -> Why {
    refusal.map_or(Why::PlanRejected, Why::refused)
}

pub(super) fn excluded(gang: &Gang, next: &mut Gang, refusal: &Refusal, until: Timestamp) -> Option<GangEvent> {
    next.phase = Some(Phase::Waiting);
    let why = Why::Excluded { refusal: refusal.clone() };
    next.waiting = Some(why.waiting(Some(until)));
    let message = why.to_string();
    (gang.phase != next.phase).then_some(GangEvent { reason: "NodesExcluded", message, warning: true })
}

pub(super) fn unsatisfiable(gang: &Gang, next: &mut Gang, refusal: &Refusal) -> Option<GangEvent> {
    next.phase = Some(Phase::Unsatisfiable);
    let why = Why::refused(refusal);
    next.waiting = Some(why.waiting(None));
    let message = why.to_string();
    (gang.waiting != next.waiting).then_some(GangEvent { reason: "Unsatisfiable", message, warning: true })
}

pub(super) fn booking(next: &mut Gang, recognised: &Recognised) -> Option<GangEvent> {
    let request = recognised.booking.clone().unwrap_or_default();
    next.phase = Some(Phase::Waiting);
    next.waiting = Some(Why::Booking { request }.waiting(None));
    None
}

/// Running nodes do not hold it and nothing on sale does: it waits if they will one day, or if there is nobody to ask.
pub(super) fn nothing_to_provision(
    gang: &Gang,
    next: &mut Gang,
    why: &Why,
    waits: bool,
    until: Option<Timestamp>,
) -> Option<GangEvent> {
    let phase = if waits { Phase::Waiting } else { Phase::Unsatisfiable };
    next.phase = Some(phase);
    next.waiting = Some(why.waiting(until));
    let event_reason = if waits { "DoesNotFit" } else { "Unsatisfiable" };
    (gang.phase != next.phase).then_some(GangEvent { reason: event_reason, message: why.to_string(), warning: !waits })
}
