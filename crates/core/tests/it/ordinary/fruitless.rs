//! Launches that EC2 had no capacity for.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_core::model::batch::{Attempt, Batch, BatchMember, BatchPhase, MemberState};
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
