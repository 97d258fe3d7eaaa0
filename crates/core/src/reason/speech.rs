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
    /// What it takes, in order: patience, which is free, and commands; another gang; dollars; capacity from wherever.
    #[must_use]
    pub fn effort(&self) -> u8 {
        match self {
            // What ends by itself is first: nothing has to be done for it.
            Self::Wait(Wait::Passed(_) | Wait::Joined(_)) => 0,
            Self::Change(Change::Free { .. } | Change::Nodes { .. }) => 1,
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
        | PoolChange::OnDemand
        | PoolChange::Labels { .. }
        | PoolChange::Reservation { .. }
        | PoolChange::Subnet { .. } => true,
        PoolChange::Price | PoolChange::OtherType { .. } | PoolChange::OtherCapacityType => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::Misfit;
    use crate::reason::Joining;

    #[test]
    fn what_ends_by_itself_comes_before_commands_and_both_before_dollars() {
        let uncordon = Help::Change(Change::Nodes { reason: Misfit::Unschedulable, nodes: 1 });
        let widen = Help::Change(Change::Widen { to: Some(1), level: Some("layer-2".into()) });
        let joined = Joining { nodes: vec!["n-0".into()], batches: Vec::new(), until: None };
        let pool = Help::NewPool { offer: None };
        let order = [Help::Wait(Wait::Joined(joined)), uncordon, widen, pool, Help::Wait(Wait::Provisioned)];
        assert!(order.iter().map(Help::effort).is_sorted_by(|one, next| one < next));
    }
}
