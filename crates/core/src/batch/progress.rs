//! How often a status is written that says nothing but how far nodes are on their way. A hundred nodes come within seconds, and
//! every status has all of them: written for each, they take more of the API server than all else that the nodes cause.

use jiff::{SignedDuration, Timestamp};

use crate::model::batch::{BatchMember, BatchStatus, MemberState};

/// Between two such statuses, for each `NODES` that they have. Nobody waits for them: whose Node one is its provider id says.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);
const NODES: usize = 20;

/// When the status may be written, if it is to wait: nothing in it but the progress of nodes is new, and progress was last written
/// at `last`.
pub(super) fn waits_until(
    before: &BatchStatus,
    next: &BatchStatus,
    last: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    let parts = i32::try_from(next.instances.len().div_ceil(NODES)).unwrap_or(i32::MAX).max(1);
    let until = last?.checked_add(PAUSE.checked_mul(parts)?).ok().filter(|until| *until > now)?;
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
        if one == other {
            return true;
        }
        let BatchMember { state, node, registered, .. } = one.clone();
        let state = if joins(other.state) { state } else { other.state };
        BatchMember { state, node, registered, ..other.clone() } == *one
    };
    let without =
        |status: &BatchStatus| BatchStatus { instances: Vec::new(), ready_count: 0, message: None, ..status.clone() };
    let mut members = before.instances.iter().zip(&next.instances);
    members.all(|(one, other)| same(one, other)) && without(before) == without(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::names::InstanceId;

    fn of(nodes: usize, ready: usize) -> BatchStatus {
        let state = |number| if number < ready { MemberState::Ready } else { MemberState::Registered };
        let member = |number| BatchMember::new(InstanceId::from(format!("i-{number}")), 1, state(number));
        BatchStatus { instances: (0..nodes).map(member).collect(), ..BatchStatus::default() }
    }

    #[test]
    fn a_status_of_many_nodes_waits_a_second_for_each_twenty_of_them() {
        let last = Timestamp::constant(1_800_000_000, 0);
        for (nodes, seconds) in [(1, 1), (20, 1), (21, 2), (100, 5)] {
            let until = |millis: i64| {
                let now = last + SignedDuration::from_millis(millis);
                waits_until(&of(nodes, 0), &of(nodes, 1), Some(last), now)
            };
            let due = Some(last + SignedDuration::from_secs(seconds));
            assert_eq!((until(0), until(seconds * 1_000 - 1), until(seconds * 1_000)), (due, due, None), "{nodes}");
        }
    }
}
