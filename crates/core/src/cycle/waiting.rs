//! What a person reads while a gang waits: one word, one sentence.

use std::sync::Arc;

use jiff::Timestamp;

use super::request::RequestError;
use super::{BatchView, GangEvent, PoolView, withdraw};
use crate::gang::{Gang, Invalid, Phase, Recognised, Waiting};
use crate::plan::Refusal;

pub(super) fn waiting(reason: &str, message: impl Into<Arc<str>>, next_try: Option<Timestamp>) -> Waiting {
    Waiting { reason: Arc::from(reason), message: message.into(), next_try }
}

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
    next.waiting = Some(waiting(invalid.reason, invalid.message.as_str(), None));
    (gang.waiting != next.waiting).then(|| GangEvent {
        reason: invalid.reason,
        message: invalid.message.clone(),
        warning: true,
    })
}

pub(super) fn collecting(gang: &Gang, next: &mut Gang, seen: u32, needed: u32, size: u32) -> Option<GangEvent> {
    withdraw(gang, next);
    next.phase = Some(Phase::Collecting);
    next.waiting =
        Some(waiting("Collecting", format!("{seen} of {size} members are there, {needed} needed to start"), None));
    None
}

pub(super) fn size_unknown(gang: &Gang, next: &mut Gang, seen: u32) -> Option<GangEvent> {
    withdraw(gang, next);
    next.phase = Some(Phase::Collecting);
    next.waiting = Some(waiting(
        "SizeUnknown",
        format!(
            "{seen} members are there and nothing says how many there will be: annotate the pods with gang-size, or \
             with gang-min for an elastic gang"
        ),
        None,
    ));
    None
}

/// What a person reads while a plan waits for members that are not there.
pub(super) fn kept(error: &RequestError) -> Option<Waiting> {
    match error {
        RequestError::Invalid(_) => None,
        RequestError::Collecting { seen, needed, size } => Some(waiting(
            "Collecting",
            format!("{seen} of {size} members are there, {needed} needed; the plan is kept for the missing ones"),
            None,
        )),
        RequestError::SizeUnknown { seen } => Some(waiting(
            "SizeUnknown",
            format!("{seen} members are there and nothing says any more how many there will be"),
            None,
        )),
        RequestError::ForeignGate { pod } => Some(waiting(
            "ForeignGate",
            format!("pod {pod} is held by a scheduling gate of somebody else; the plan is kept for it"),
            None,
        )),
    }
}

pub(super) fn foreign_gate(gang: &Gang, next: &mut Gang, pod: &str) -> Option<GangEvent> {
    withdraw(gang, next);
    next.phase = Some(Phase::Collecting);
    next.waiting = Some(waiting(
        "ForeignGate",
        format!("pod {pod} is held by a scheduling gate of somebody else; it counts once only our gate is left"),
        None,
    ));
    None
}

pub(super) fn buying(next: &mut Gang, batch: Option<&BatchView>) -> Option<GangEvent> {
    next.phase = Some(Phase::Provisioning);
    let message = batch
        .and_then(|batch| batch.message.clone().map(|message| format!("NodeBatch {}: {message}", batch.name)))
        .unwrap_or_else(|| "nodes are being bought".to_owned());
    next.waiting = Some(waiting("Provisioning", message, batch.and_then(|batch| batch.next_try)));
    None
}

pub(super) fn bought_but_not_fitting(next: &mut Gang, refusal: &Refusal) -> Option<GangEvent> {
    next.phase = Some(Phase::Provisioning);
    next.waiting = Some(waiting("DoesNotFit", format!("the nodes bought for it do not hold it yet: {refusal}"), None));
    None
}

pub(super) fn backing_off(next: &mut Gang, batch: &BatchView, refusal: &Refusal) -> Option<GangEvent> {
    next.phase = Some(Phase::Provisioning);
    let message = batch.message.as_deref().unwrap_or("no candidate has capacity");
    let message = format!("{message}; on running nodes: {refusal}");
    next.waiting = Some(waiting("InsufficientCapacity", message, batch.next_try));
    None
}

pub(super) fn does_not_fit(gang: &Gang, next: &mut Gang, refusal: Option<&Refusal>) -> Option<GangEvent> {
    next.phase = Some(Phase::Waiting);
    let message = refusal.map_or_else(|| "no plan was accepted".to_owned(), ToString::to_string);
    next.waiting = Some(waiting("DoesNotFit", message.as_str(), None));
    (gang.waiting != next.waiting).then_some(GangEvent { reason: "DoesNotFit", message, warning: false })
}

pub(super) fn excluded(gang: &Gang, next: &mut Gang, refusal: &Refusal, until: Timestamp) -> Option<GangEvent> {
    next.phase = Some(Phase::Waiting);
    let message = format!("nodes that kube-scheduler refused lately are left out; on the others: {refusal}");
    next.waiting = Some(waiting("NodesExcluded", message.as_str(), Some(until)));
    (gang.phase != next.phase).then_some(GangEvent { reason: "NodesExcluded", message, warning: true })
}

pub(super) fn unsatisfiable(gang: &Gang, next: &mut Gang, refusal: &Refusal) -> Option<GangEvent> {
    next.phase = Some(Phase::Unsatisfiable);
    let message = refusal.to_string();
    next.waiting = Some(waiting("Unsupported", message.as_str(), None));
    (gang.waiting != next.waiting).then_some(GangEvent { reason: "Unsatisfiable", message, warning: true })
}

pub(super) fn booking(next: &mut Gang, recognised: &Recognised) -> Option<GangEvent> {
    let name = recognised.booking.as_deref().unwrap_or_default();
    next.phase = Some(Phase::Waiting);
    next.waiting = Some(waiting(
        "Booking",
        format!("waits for the nodes booked by ProvisioningRequest {name}; nothing else is bought for it"),
        None,
    ));
    None
}

pub(super) fn nothing_to_buy(
    gang: &Gang,
    next: &mut Gang,
    refusal: &Refusal,
    pools: &[PoolView],
    left_out: &[String],
    fits_when_empty: bool,
) -> Option<GangEvent> {
    let there = if pools.is_empty() {
        "no NodePool is ready to buy nodes".to_owned()
    } else if left_out.is_empty() {
        "no NodePool can hold it".to_owned()
    } else {
        format!("no NodePool can hold it: {}", left_out.join("; "))
    };
    let message = format!("{refusal}; {there}");
    let (phase, reason) = if fits_when_empty || pools.is_empty() {
        (Phase::Waiting, if pools.is_empty() { "NoPool" } else { "DoesNotFit" })
    } else {
        (Phase::Unsatisfiable, "NoPool")
    };
    next.phase = Some(phase);
    next.waiting = Some(waiting(reason, message.as_str(), None));
    let event_reason = if phase == Phase::Unsatisfiable { "Unsatisfiable" } else { "DoesNotFit" };
    (gang.phase != next.phase).then_some(GangEvent {
        reason: event_reason,
        message,
        warning: phase == Phase::Unsatisfiable,
    })
}
