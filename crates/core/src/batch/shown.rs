//! What a NodeBatch shows of how far it is, as conditions that `kubectl wait` can wait for.

use jiff::Timestamp;

use super::counted::counted;
use crate::model::batch::{BatchMember, BatchPhase, BatchStatus, ConditionKind, MemberState};

/// Sets the conditions `Launched`, `Registered` and `Ready`, all of them each time: `kubectl wait` needs one that is false as
/// much as one that is true. They follow from the phase and the instances, and nothing is decided by them.
pub(super) fn show(status: &mut BatchStatus, now_real: Timestamp) {
    let wanted = usize::try_from(status.count).unwrap_or(usize::MAX);
    let has = |that: fn(&BatchMember) -> bool| status.instances.iter().filter(|one| that(one)).count();
    let (launched, registered, ready) = match status.phase {
        BatchPhase::Pending | BatchPhase::Launching => (0, 0, 0),
        BatchPhase::Draining | BatchPhase::Terminating => (has(is_there), has(is_registered), 0),
        BatchPhase::Launched
        | BatchPhase::Joining
        | BatchPhase::Replacing
        | BatchPhase::Ready
        | BatchPhase::InUse
        | BatchPhase::Idle => (has(is_there), has(is_registered), has(is_ready)),
    };
    for (kind, number, holds, lacks) in [
        (ConditionKind::Launched, launched, "Launched", "NotLaunched"),
        (ConditionKind::Registered, registered, "Registered", "NotRegistered"),
        (ConditionKind::Ready, ready, "Ready", "NotReady"),
    ] {
        if wanted > 0 && number >= wanted {
            status.set(kind, true, holds, "", now_real);
        } else {
            let message = format!("{number} of {}", counted(wanted, "instance"));
            status.set(kind, false, lacks, &message, now_real);
        }
    }
}

fn is_there(one: &BatchMember) -> bool {
    !matches!(one.state, MemberState::Terminating | MemberState::Gone)
}

fn is_registered(one: &BatchMember) -> bool {
    is_there(one) && one.registered.is_some()
}

fn is_ready(one: &BatchMember) -> bool {
    one.state == MemberState::Ready
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::names::InstanceId;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    /// A phase, the instances, and what is shown.
    type Row = (BatchPhase, &'static [(MemberState, bool)], &'static str);

    /// Two nodes are wanted; of each instance its state and whether it has registered. What is shown, as one letter each.
    fn shown(phase: BatchPhase, instances: &[(MemberState, bool)]) -> String {
        let member = |(number, (state, registered)): (usize, &(MemberState, bool))| {
            let mut one = BatchMember::new(InstanceId::from(format!("i-{number}").as_str()), 1, *state);
            one.registered = registered.then_some(NOW);
            one
        };
        let instances = instances.iter().enumerate().map(member).collect();
        let mut status = BatchStatus { phase, count: 2, instances, ..BatchStatus::default() };
        show(&mut status, NOW);
        let letter = |(kind, letter)| if status.is(&kind) { letter } else { '-' };
        [(ConditionKind::Launched, 'L'), (ConditionKind::Registered, 'R'), (ConditionKind::Ready, 'Y')]
            .into_iter()
            .map(letter)
            .collect()
    }

    #[test]
    fn conditions_say_how_far_the_nodes_of_a_batch_are() {
        use BatchPhase::{Draining, Idle, InUse, Joining, Launched, Launching, Pending, Ready, Replacing, Terminating};
        use MemberState::{Gone, Lost, Registered, Running};
        const UP: (MemberState, bool) = (Running, false);
        const JOINED: (MemberState, bool) = (Registered, true);
        const READY: (MemberState, bool) = (MemberState::Ready, true);
        let rows: [Row; 17] = [
            (Pending, &[], "---"),
            (Launching, &[], "---"),
            (Launching, &[UP, UP], "---"),
            (Launched, &[UP, UP], "L--"),
            (Joining, &[UP, JOINED], "L--"),
            (Joining, &[JOINED, JOINED], "LR-"),
            (Joining, &[READY, JOINED], "LR-"),
            (Ready, &[READY, READY], "LRY"),
            (InUse, &[READY, READY], "LRY"),
            (InUse, &[READY, (Lost, true)], "LR-"),
            (Replacing, &[READY, (Gone, true)], "---"),
            (Replacing, &[READY, READY, (Gone, true)], "LRY"),
            (Idle, &[READY, READY], "LRY"),
            (Draining, &[READY, READY], "LR-"),
            (Terminating, &[READY, (MemberState::Terminating, true)], "---"),
            (Terminating, &[READY, READY], "LR-"),
            (Terminating, &[], "---"),
        ];
        for (phase, instances, expected) in rows {
            assert_eq!(shown(phase, instances), expected, "{phase:?}, {instances:?}");
        }
    }

    #[test]
    fn of_no_nodes_none_are_there() {
        let mut status = BatchStatus { phase: BatchPhase::Launched, ..BatchStatus::default() };
        show(&mut status, NOW);
        assert!(status.conditions.iter().all(|condition| !status.is(&condition.kind)), "{:?}", status.conditions);
    }

    #[test]
    fn a_condition_that_fails_says_how_many_and_its_time_changes_with_its_status_alone() {
        let mut status = BatchStatus { count: 2, ..BatchStatus::default() };
        show(&mut status, NOW);
        status.phase = BatchPhase::Launched;
        status.instances.push(BatchMember::new(InstanceId::from("i-0"), 1, MemberState::Ready));
        let later = Timestamp::constant(1_800_000_060, 0);
        show(&mut status, later);
        let launched = &status.conditions[0];
        assert_eq!((&*launched.reason, &*launched.message), ("NotLaunched", "1 of 2 instances"));
        assert_eq!(launched.since, NOW, "it did not hold before");
        status.instances.push(BatchMember::new(InstanceId::from("i-1"), 1, MemberState::Ready));
        show(&mut status, later);
        assert_eq!((&*status.conditions[0].reason, status.conditions[0].since), ("Launched", later));
        assert_eq!(status.conditions.len(), 3);
    }
}
