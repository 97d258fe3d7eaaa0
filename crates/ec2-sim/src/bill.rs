//! What the instances have cost, in virtual time.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::state::World;
use crate::state::instances::Instance;

/// The bill so far; amounts in micro-dollars.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bill {
    /// Everything but the instances of others.
    pub total: Amount,
    /// By the value of the tag `muster.dev/batch`; empty for instances without it.
    pub by_batch: BTreeMap<String, Amount>,
    /// Each instance, by id.
    pub instances: Vec<InstanceBill>,
}

/// Two readings of the cost of the same instances.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Amount {
    /// As EC2 charges: from `running` to `shutting-down`, by the second, a minute at least.
    pub micro_usd: u64,
    /// From the launch until the host was free again: an upper bound, and what others were kept
    /// from using.
    pub held_micro_usd: u64,
}

/// The bill of one instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceBill {
    /// The instance.
    pub instance_id: String,
    /// Its type.
    #[serde(rename = "type")]
    pub instance_type: String,
    /// The price in micro-dollars per hour at which it was launched.
    pub price: u64,
    /// Seconds from the launch until the host was free, or until now.
    pub held_seconds: u64,
    /// What it cost.
    pub amount: Amount,
}

/// The smallest charge, in seconds.
const MINIMUM_SECONDS: u64 = 60;

pub(crate) fn of(world: &World, now: Timestamp) -> Bill {
    let mut bill = Bill::default();
    for instance in world.instances.values().filter(|i| !i.foreign) {
        let one = charge(instance, now);
        let batch = instance.batch().unwrap_or("").to_owned();
        bill.total.add(one.amount);
        bill.by_batch.entry(batch).or_default().add(one.amount);
        bill.instances.push(one);
    }
    bill
}

impl Amount {
    fn add(&mut self, other: Self) {
        self.micro_usd = self.micro_usd.saturating_add(other.micro_usd);
        self.held_micro_usd = self.held_micro_usd.saturating_add(other.held_micro_usd);
    }
}

fn charge(i: &Instance, now: Timestamp) -> InstanceBill {
    let until = |end: Option<Timestamp>| end.map_or(now, |end| end.min(now));
    let held = seconds(i.launched_at, until(i.terminated_at));
    // One that was shut down before it ran is not charged.
    let ran = i.running_at.map_or(0, |start| seconds(start, until(i.shutdown_at)));
    let charged = if ran == 0 { 0 } else { ran.max(MINIMUM_SECONDS) };
    let cost = |time: u64| time.saturating_mul(i.price) / 3600;
    InstanceBill {
        instance_id: i.id.clone(),
        instance_type: i.instance_type.clone(),
        price: i.price,
        held_seconds: held,
        amount: Amount { micro_usd: cost(charged), held_micro_usd: cost(held) },
    }
}

/// Whole seconds between two times that are themselves kept in whole seconds, as EC2 shows them.
fn seconds(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.as_second().saturating_sub(from.as_second())).unwrap_or(0)
}
