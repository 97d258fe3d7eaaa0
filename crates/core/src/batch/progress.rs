//! How often a status is written that says nothing but how far nodes are on their way. A hundred nodes come within seconds, and
//! every status has all of them: written for each, they take more of the API server than all else that the nodes cause.

use jiff::{SignedDuration, Timestamp};

use crate::model::batch::{BatchMember, BatchStatus, MemberState};

/// Between two such statuses. Nobody waits for them: whose Node one is its provider id says.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// When the status may be written, if it is to wait: nothing in it but the progress of nodes is new, and progress was last written
/// at `last`.
pub(super) fn waits_until(
    before: &BatchStatus,
    next: &BatchStatus,
    last: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    let until = last?.checked_add(PAUSE).ok().filter(|until| *until > now)?;
    is_all(before, next).then_some(until)
}

/// Whether there is progress, and nothing else.
pub(super) fn is_all(before: &BatchStatus, next: &BatchStatus) -> bool {
    if before.instances.len() != next.instances.len() || before == next {
        return false;
    }
    // What EC2 says of an instance is looked at rarely, and written when it is known.
    let joins = |state: MemberState| matches!(state, MemberState::Registered | MemberState::Ready);
    let same = |one: &BatchMember, other: &BatchMember| {
        let BatchMember { state, node, registered, .. } = one.clone();
        let state = if joins(other.state) { state } else { other.state };
        BatchMember { state, node, registered, ..other.clone() } == *one
    };
    let without =
        |status: &BatchStatus| BatchStatus { instances: Vec::new(), ready_count: 0, message: None, ..status.clone() };
    let mut members = before.instances.iter().zip(&next.instances);
    members.all(|(one, other)| same(one, other)) && without(before) == without(next)
}
