//! Launches that brought no node.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_core::model::batch::{
    Attempt, AttemptOutcome, Batch, BatchMember, BatchPhase, Loss, LossCause, MemberState,
};
use muster_core::model::names::InstanceId;
use muster_core::ordinary::Fruitless;

use super::{POOL, Setup, pods};
use crate::batch::pods::won;
use crate::world::at;

/// A batch whose nodes EC2 launched at this second, with the attempt that launched them.
fn launched_at(second: i64) -> Batch {
    let mut setup = Setup::of(pods("web", 1, 3_000));
    let launches = setup.plan().launches;
    setup.launch(&launches, BatchPhase::InUse);
    let mut batch = setup.batches.remove(0);
    batch.status.attempts = vec![Attempt { started: Some(at(second - 2)), ended: Some(at(second)), ..won(1) }];
    batch.status.instances = vec![BatchMember::new(InstanceId::from("i-1"), 1, MemberState::Ready)];
    batch
}

#[test]
fn a_pause_that_a_new_lease_holder_takes_over_ends_with_what_ec2_launches_and_not_with_what_serves_already() {
    let pools = BTreeSet::from([Arc::from(POOL)]);
    let after = |batch: Batch| {
        let mut fruitless = Fruitless::taken_over([Arc::from(POOL)], at(0));
        fruitless.look([&batch], &pools, at(5));
        fruitless.says(POOL).is_some()
    };
    assert!(after(launched_at(-3_600)), "it has served for an hour");
    assert!(!after(launched_at(1)), "EC2 has capacity again, also if it was asked before");
}

/// What became of a launch.
#[derive(Clone, Copy)]
enum Then {
    /// EC2 had no capacity.
    Nothing,
    /// Its instance boots.
    Boots,
    /// Its Node is there.
    Registers,
    /// Its instance is gone for this reason, and there was no Node.
    Ends(LossCause),
    /// And nothing is left of it.
    IsOver,
}

/// The launch of this number, each begun ten seconds after the one before.
fn launch(number: u32, then: Then) -> Batch {
    let begun = begun(number);
    let mut batch = launched_at(begun + 2);
    batch.uid = format!("launch-{number}");
    let mut member = BatchMember::new(InstanceId::from("i-1"), 1, MemberState::Running);
    let loss = |cause| Loss { cause, message: String::new(), noticed: at(begun), act_at: at(begun), deadline: None };
    let status = &mut batch.status;
    (status.phase, status.instances) = (BatchPhase::Terminating, Vec::new());
    match then {
        Then::Nothing => status.attempts[0].outcome = AttemptOutcome::Lost,
        Then::IsOver => {}
        Then::Ends(cause) => {
            (member.state, member.loss) = (MemberState::Lost, Some(loss(cause)));
            status.replaced = vec![member];
        }
        Then::Boots | Then::Registers => {
            status.phase = BatchPhase::Launched;
            member.registered = matches!(then, Then::Registers).then(|| at(begun + 5));
            status.instances = vec![member];
        }
    }
    batch
}

fn begun(number: u32) -> i64 {
    100 + 10 * i64::from(number)
}

/// What is known after each launch became one after the other what each step shows.
fn after(all: &[&[Then]]) -> Fruitless {
    let mut fruitless = Fruitless::default();
    for (number, became) in (0..).zip(all) {
        for (second, then) in (3..).zip(*became) {
            fruitless.look([&launch(number, *then)], &BTreeSet::from([Arc::from(POOL)]), at(begun(number) + second));
        }
    }
    fruitless
}

/// The class of their pods.
fn class() -> String {
    launched_at(0).spec.fillings[0].pods[0].0.clone()
}

const TAKEN: Then = Then::Ends(LossCause::Missing);

#[test]
fn launches_whose_instances_end_before_any_is_a_node_pause_as_those_without_capacity_do() {
    for ends in
        [[Then::Boots, TAKEN].as_slice(), &[TAKEN], &[Then::Boots, Then::IsOver], &[Then::Boots, TAKEN, Then::IsOver]]
    {
        let two = after(&[ends, ends]);
        assert_eq!((two.in_a_row(POOL), two.pauses_until(POOL, &class(), at(130))), (2, None));
        let three = after(&[ends, ends, ends]);
        assert!(three.pauses_until(POOL, &class(), at(130)) > Some(at(150)));
        assert_eq!(three.pauses_until(POOL, "another", at(130)), None, "pods of no launch that was in vain");
        let says = three.says(POOL).unwrap();
        assert!(
            says.starts_with(
                "3 launches in a row brought no node, since instances of the last ended before they registered; "
            ),
            "{says}"
        );
    }
    let short = after(&[&[Then::Nothing], &[Then::Nothing], &[Then::Nothing]]);
    assert!(short.says(POOL).unwrap().starts_with("EC2 had no capacity for 3 launches in a row; "));
}

#[test]
fn what_ec2_launches_ends_a_want_of_capacity_and_a_node_alone_ends_that_instances_do_not_last() {
    let (nothing, ends) = ([Then::Nothing].as_slice(), [Then::Boots, TAKEN].as_slice());
    assert!(after(&[nothing, nothing, &[Then::Boots]]).is_empty());
    assert_eq!(after(&[ends, ends, &[Then::Boots]]).in_a_row(POOL), 2);
    assert!(after(&[ends, ends, &[Then::Boots, Then::Registers]]).is_empty());
    assert_eq!(after(&[ends, nothing, &[Then::Boots]]).in_a_row(POOL), 2, "whichever was the last");
    assert_eq!(after(&[nothing, ends, nothing]).in_a_row(POOL), 2, "what was launched forgot the first");
    let mixed = after(&[ends, nothing, nothing]);
    let says = mixed.says(POOL).unwrap();
    assert!(
        says.starts_with("3 launches in a row brought no node, since EC2 had no capacity for the last; "),
        "{says}"
    );
    let pools = BTreeSet::from([Arc::from(POOL)]);
    let mut vanish = Fruitless::default();
    for number in 0..3 {
        vanish.look([&launch(number, Then::Boots)], &pools, at(begun(number) + 3));
        vanish.look([], &pools, at(begun(number) + 5));
    }
    let says = vanish.says(POOL).unwrap();
    assert!(says.starts_with("3 launches in a row brought no node, since instances of the last ended"), "{says}");
}

#[test]
fn a_node_that_goes_later_and_what_others_judge_are_no_launches_in_vain() {
    for cause in [LossCause::Missing, LossCause::Join] {
        let mut served = launch(0, Then::Ends(cause));
        served.status.replaced[0].registered = Some(at(105));
        let mut fruitless = Fruitless::default();
        fruitless.look([&served], &BTreeSet::from([Arc::from(POOL)]), at(110));
        assert!(fruitless.is_empty(), "it was a node");
    }
    assert!(after(&[&[Then::Boots, Then::Ends(LossCause::Join)]]).is_empty(), "it never joined: `Purchases` counts it");
    let deleted = Batch { deleting: true, ..launch(0, TAKEN) };
    let mut fruitless = Fruitless::default();
    fruitless.look([&launch(0, Then::Boots)], &BTreeSet::from([Arc::from(POOL)]), at(105));
    fruitless.look([&deleted], &BTreeSet::from([Arc::from(POOL)]), at(110));
    fruitless.look([], &BTreeSet::from([Arc::from(POOL)]), at(115));
    assert!(fruitless.is_empty(), "somebody deleted it");
    assert!(after(&[&[Then::IsOver]]).is_empty(), "a new lease holder does not know what it brought");
}

#[test]
fn after_instances_that_ended_one_launch_at_a_time_is_under_way_until_one_is_a_node() {
    let keeps_off = |fruitless: &Fruitless, then| {
        fruitless.keeps_off(POOL, &class(), [&launch(1, then)].into_iter(), at(begun(1) + 5))
    };
    let ended = after(&[&[Then::Boots, TAKEN]]);
    assert!(keeps_off(&ended, Then::Boots));
    assert!(!keeps_off(&ended, Then::Registers) && !keeps_off(&ended, TAKEN));
    let short = after(&[&[Then::Nothing]]);
    assert!(!keeps_off(&short, Then::Boots), "EC2 has capacity again");
    let mut asks = launch(1, Then::Nothing);
    asks.status.phase = BatchPhase::Launching;
    for fruitless in [ended, short] {
        assert!(fruitless.keeps_off(POOL, &class(), [&asks].into_iter(), at(begun(1) + 5)));
    }
}

#[test]
fn of_a_launch_of_several_it_counts_what_became_of_each() {
    let pools = BTreeSet::from([Arc::from(POOL)]);
    let both = |first: LossCause, second: LossCause| {
        let mut fruitless = Fruitless::default();
        let ends = [launch(0, Then::Ends(first)), launch(0, Then::Ends(second))];
        let mut batch = ends[0].clone();
        // One is gone while the other boots, and forgotten by the time that is gone as well.
        batch.status.instances = launch(0, Then::Boots).status.instances;
        fruitless.look([&batch], &pools, at(105));
        fruitless.look([&ends[1]], &pools, at(110));
        fruitless.in_a_row(POOL)
    };
    let (taken, late) = (LossCause::Missing, LossCause::Join);
    assert_eq!((both(taken, taken), both(taken, late), both(late, taken), both(late, late)), (1, 1, 1, 0));
}
