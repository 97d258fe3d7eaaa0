//! How often a status is written that says nothing but how far nodes are on their way. A hundred nodes come within seconds, and
//! every status has all of them: written for each, they take more of the API server than all else that the nodes cause.

use jiff::{SignedDuration, Timestamp};

use crate::model::batch::{BatchMember, BatchStatus, MemberState};

/// Between two statuses of which the later one names Nodes that have registered: their pods wait for it.
const NAMED: SignedDuration = SignedDuration::from_millis(200);
/// Between two statuses of which the later one has more nodes that are ready: nobody waits for it.
const READY: SignedDuration = SignedDuration::from_secs(1);

/// When the status may be written, if it is to wait: nothing in it but the progress of nodes is new, and progress was last written
/// at `last`.
pub(super) fn waits_until(
    before: &BatchStatus,
    next: &BatchStatus,
    last: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    let pause = pause(before, next)?;
    last?.checked_add(pause).ok().filter(|until| *until > now)
}

/// Whether there is progress, and nothing else.
pub(super) fn is_all(before: &BatchStatus, next: &BatchStatus) -> bool {
    pause(before, next).is_some()
}

fn pause(before: &BatchStatus, next: &BatchStatus) -> Option<SignedDuration> {
    if before.instances.len() != next.instances.len() || before == next {
        return None;
    }
    // What EC2 says of an instance is looked at rarely, and written when it is known.
    let joins = |state: MemberState| matches!(state, MemberState::Registered | MemberState::Ready);
    let same = |one: &BatchMember, other: &BatchMember| {
        let BatchMember { state, node, registered, .. } = one.clone();
        let state = if joins(other.state) { state } else { other.state };
        BatchMember { state, node, registered, ..other.clone() } == *one
    };
    let members = || before.instances.iter().zip(&next.instances);
    let without =
        |status: &BatchStatus| BatchStatus { instances: Vec::new(), ready_count: 0, message: None, ..status.clone() };
    if !members().all(|(one, other)| same(one, other)) || without(before) != without(next) {
        return None;
    }
    Some(if members().any(|(one, other)| one.node != other.node) { NAMED } else { READY })
}
