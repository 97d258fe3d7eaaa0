//! What quotas leave.

use jiff::Timestamp;

use crate::choices::Quota;
use crate::kinds::MarketType;
use crate::quota;
use crate::state::World;
use crate::state::instances::{Instance, LifeState};

impl World {
    /// How many more instances of a type its quota allows; none if it has no limit.
    pub(crate) fn quota_left(
        &self,
        instance_type: &str,
        vcpus: u32,
        capacity_type: MarketType,
        now: Timestamp,
    ) -> Option<u32> {
        match capacity_type {
            MarketType::OnDemand | MarketType::Spot => {}
            MarketType::CapacityBlock | MarketType::InterruptibleReservation => return None,
        }
        let name = quota::of(instance_type, capacity_type);
        let limit = *self.scenario.quotas.get(&name)?;
        let counts = |i: &Instance| match i.state(now) {
            LifeState::Pending | LifeState::Running => true,
            LifeState::ShuttingDown => self.scenario.choices.quota == Quota::ShuttingDownCounts,
            LifeState::Terminated => false,
        };
        let used: u32 = self
            .instances
            .values()
            .filter(|i| !i.foreign && counts(i) && quota::of(&i.instance_type, i.capacity_type) == name)
            .map(|i| i.vcpus)
            .sum();
        Some(limit.saturating_sub(used) / vcpus.max(1))
    }
}
