//! Several batches: who is decided about first, and what others count meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::batch::{World, assume, pass};
use muster_core::model::batch::{AttemptOutcome, Batch, BatchPhase, BatchStatus, MemberState};

use super::super::worker::settings;
use super::says::Says;
use super::scene::{NOW, after, batch, having};
use crate::world::{self, at};

#[test]
fn batches_that_have_begun_are_decided_about_first_and_then_the_older_ones() {
    let aged = |name: &str, phase: BatchPhase, created: i64| Batch {
        created: Some(at(created)),
        ..batch(name, BatchStatus { phase, ..after(phase, AttemptOutcome::Won) })
    };
    let batches: BTreeMap<String, Arc<Batch>> = [
        aged("a-1", BatchPhase::Pending, 9),
        aged("b-1", BatchPhase::Pending, 3),
        aged("c-1", BatchPhase::Idle, 7),
        aged("d-1", BatchPhase::Pending, 3),
        aged("e-1", BatchPhase::Idle, 5),
        aged("f-1", BatchPhase::Idle, 1),
    ]
    .into_iter()
    .map(|batch| (batch.name.clone(), Arc::new(batch)))
    .collect();
    let snapshot = world::snapshot(&[], &[], &[], &[]);
    let world = World {
        batches: &batches,
        memory: &BTreeMap::new(),
        busy: &BTreeSet::from(["f-1".to_owned()]),
        snapshot: &snapshot,
        stale: false,
        regained: None,
        supply: &Says::default(),
        settings: &settings(),
        now: at(NOW),
        now_real: at(NOW),
    };
    let order: Vec<String> = pass(&world).into_iter().map(|decision| decision.batch).collect();
    assert_eq!(order, ["e-1", "c-1", "b-1", "d-1", "a-1"]);
}

#[test]
fn what_a_batch_takes_counts_from_the_decision_and_what_it_gives_up_once_that_is_written() {
    let counts = |before: &BatchStatus, next: &BatchStatus| {
        let before = Arc::new(batch("a-1", before.clone()));
        assume(&before, next).status == *next
    };
    let has = |count: usize| having(BatchPhase::InUse, MemberState::Ready, &["i-1", "i-2", "i-3"][..count]);
    let changed = |change: fn(&mut BatchStatus)| {
        let mut next = has(2);
        change(&mut next);
        next
    };
    assert!(counts(&BatchStatus::default(), &after(BatchPhase::Launching, AttemptOutcome::Launching)), "it begins");
    assert!(counts(&has(2), &has(3)), "it takes more");
    assert!(counts(&has(2), &changed(|next| next.message = Some("words".to_owned()))), "it takes the same");
    assert!(!counts(&has(3), &has(2)), "it takes less");
    assert!(!counts(&has(2), &changed(|next| next.phase = BatchPhase::Pending)), "it takes nothing any more");
    assert!(!counts(&has(2), &changed(|next| next.count = 1)), "it takes fewer nodes");
    assert!(!counts(&has(2), &changed(|next| drop(next.instances.pop()))), "it has fewer instances");
    assert!(!counts(&has(2), &changed(|next| next.node_pool = Some("p1".to_owned()))), "it takes of another pool");
    assert!(!counts(&has(2), &changed(|next| next.instance_type = None)), "it takes another type");
    assert!(!counts(&has(2), &changed(|next| next.zone = Some("b".to_owned()))), "it takes in another zone");
    let pending = BatchStatus { count: 3, ..BatchStatus::default() };
    assert!(counts(&pending, &BatchStatus { count: 1, ..pending.clone() }), "what has not begun gives nothing up");
}
