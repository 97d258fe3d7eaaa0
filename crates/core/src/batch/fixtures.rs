//! Attempts and instances as tests need them.

use crate::model::batch::{Attempt, AttemptOutcome, BatchMember, MemberState};
use crate::model::launch::{CapacityType, LaunchWay};
use crate::model::names::InstanceId;

/// A first attempt at eight nodes.
pub(crate) fn attempt() -> Attempt {
    Attempt {
        number: 1,
        node_pool: "h100".to_owned(),
        instance_type: "p5.48xlarge".to_owned(),
        zone: "us-east-1a".to_owned(),
        subnet: "subnet-a".to_owned(),
        capacity_type: CapacityType::OnDemand,
        overrides: Vec::new(),
        count: 8,
        group: true,
        reservation_group: None,
        reservation: None,
        way: LaunchWay::Fleet,
        image: None,
        taints: Vec::new(),
        template: None,
        parameters: None,
        token: None,
        replayed: false,
        sweeps: 0,
        request_id: None,
        fleet: None,
        replaces: Vec::new(),
        probe: false,
        outcome: AttemptOutcome::Launching,
        code: None,
        message: None,
        started: None,
        ended: None,
    }
}

/// Instances `i-0`, `i-1`, …, all ready.
pub(crate) fn members(count: usize) -> Vec<BatchMember> {
    (0..count).map(|number| BatchMember::new(InstanceId::from(format!("i-{number}")), 1, MemberState::Ready)).collect()
}
