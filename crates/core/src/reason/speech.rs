//! What a person does first: what is in the headline already, and the order of what would help. Sentences are made in
//! [`super::step`] and [`super::text`].

use std::sync::Arc;

use super::{Help, PoolChange, Step, Wait, Why};
use crate::planner::plan::Change;

impl Why {
    /// What to do where [`Why::helps`] has only the sentence itself; `None` if there is nothing to add to the headline.
    #[must_use]
    pub fn step(&self) -> Option<Step> {
        match self {
            Self::SizeUnknown { .. } => Some(Step::StateSize),
            Self::Suspended { kind, name } => Some(Step::Resume { owner: Arc::clone(kind), name: Arc::clone(name) }),
            Self::Collecting { .. }
            | Self::ForeignGate { .. }
            | Self::Volumes { .. }
            | Self::Invalid(_)
            | Self::Refused { .. }
            | Self::PlanRejected
            | Self::Excluded { .. }
            | Self::Provisioning { .. }
            | Self::ProvisionedDoNotHold { .. }
            | Self::NoCapacity { .. }
            | Self::Joining(_)
            | Self::Booking { .. }
            | Self::NothingOnSale { .. }
            | Self::MemberLost { .. }
            | Self::NoCapacityForNew { .. }
            | Self::Evicting { .. }
            | Self::Restarting
            | Self::PlanExpired
            | Self::SchedulerRefused { .. }
            | Self::SchedulerError { .. } => None,
        }
    }
}

impl Help {
    /// What it takes, in order: nothing but a command; another gang; dollars; patience.
    #[must_use]
    pub fn effort(&self) -> u8 {
        match self {
            Self::Change(Change::Free { .. } | Change::Nodes { .. }) => 0,
            Self::Describe(_) => 1,
            Self::Change(Change::Capacity { .. }) => 4,
            Self::Change(_) => 2,
            Self::Wait(Wait::Gate { .. } | Wait::Members(_)) => 1,
            // Another type is a decision of its own, not a number to raise.
            Self::Pool { changes, .. } if !keeps_the_type(changes) => 4,
            Self::Pool { .. } | Self::NewPool { .. } => 3,
            Self::Wait(_) => 5,
            Self::Nothing => 6,
        }
    }
}

/// Whether nodes of the type named would be provisioned after the changes.
#[must_use]
pub fn keeps_the_type(changes: &[PoolChange]) -> bool {
    changes.iter().all(|change| match change {
        PoolChange::Limit { .. }
        | PoolChange::Ceiling { .. }
        | PoolChange::MaxNodes { .. }
        | PoolChange::Group
        | PoolChange::OtherZone
        | PoolChange::Reservation { .. }
        | PoolChange::Subnet { .. } => true,
        PoolChange::Price | PoolChange::OtherType { .. } | PoolChange::OtherCapacityType => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::Misfit;

    #[test]
    fn what_costs_nothing_comes_before_dollars_and_dollars_before_patience() {
        let uncordon = Help::Change(Change::Nodes { reason: Misfit::Unschedulable, nodes: 1 });
        let widen = Help::Change(Change::Widen { to: Some(1), level: Some("layer-2".into()) });
        let order = [uncordon, widen, Help::NewPool { offer: None }, Help::Wait(Wait::Provisioned)];
        assert!(order.iter().map(Help::effort).is_sorted_by(|one, next| one < next));
    }
}
