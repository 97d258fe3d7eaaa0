//! What the lease holder counts in the objects there are: conditions, limits, and how well gangs lie.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use muster_core::ec2::CapacityType;
use muster_core::model::gang::{Gang, Phase};
use muster_core::model::names::ResourceName;
use muster_core::model::resources::CPU;
use muster_core::offering::{Ledger, prices_as_of};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::registrar::Registrar;
use super::table;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct ConditionLabel {
    kind: &'static str,
    r#type: String,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabel {
    nodepool: String,
    resource: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabel {
    nodepool: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct DomainLabel {
    level: String,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FitLabel {
    level: String,
    accelerator: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CapacityTypeLabel {
    capacity_type: &'static str,
}

type Number = Gauge<f64, AtomicU64>;

/// Conditions of objects, and how well gangs lie.
#[derive(Clone, Debug)]
pub struct ObjectMetrics {
    conditions: Family<ConditionLabel, Gauge>,
    domains: Family<DomainLabel, Gauge>,
    largest: Family<FitLabel, Gauge>,
}

impl ObjectMetrics {
    /// Registers all of them.
    pub fn new(registrar: &mut Registrar<'_>) -> Self {
        let metrics = Self { conditions: Family::default(), domains: Family::default(), largest: Family::default() };
        registrar.register(table::STATUS_CONDITION, metrics.conditions.clone());
        registrar.register(table::PLACEMENT_DOMAINS, metrics.domains.clone());
        registrar.register(table::LARGEST_GANG, metrics.largest.clone());
        metrics
    }

    /// What the lease holder counts.
    pub(crate) fn forget(&self) {
        self.conditions.clear();
        self.domains.clear();
        self.largest.clear();
    }

    /// Nodes of the largest gang that would fit now, by level and accelerator.
    pub fn fits(&self, largest: BTreeMap<(String, String), u32>) {
        self.largest.clear();
        for ((level, accelerator), nodes) in largest {
            self.largest.get_or_create(&FitLabel { level, accelerator }).set(i64::from(nodes));
        }
    }

    /// Counts what there is now: conditions with the kind of their object, and gangs.
    pub fn measure<'a>(
        &self,
        all: impl Iterator<Item = (&'static str, &'a Vec<Condition>)>,
        gangs: impl Iterator<Item = &'a Gang>,
    ) {
        let mut counts: BTreeMap<(&'static str, &str, &'static str), i64> = BTreeMap::new();
        for (kind, conditions) in all {
            for condition in conditions {
                *counts.entry((kind, &*condition.type_, status(&condition.status))).or_default() += 1;
            }
        }
        self.conditions.clear();
        for ((kind, r#type, status), count) in counts {
            self.conditions.get_or_create(&ConditionLabel { kind, r#type: r#type.to_owned(), status }).set(count);
        }
        self.domains.clear();
        for (label, count) in domains(gangs) {
            self.domains.get_or_create(&label).set(count);
        }
    }
}

/// Limits of pools, and the age of prices.
#[derive(Clone, Debug)]
pub struct PoolMetrics {
    limits: Family<LimitLabel, Number>,
    usage: Family<LimitLabel, Number>,
    join_blocked: Family<PoolLabel, Gauge>,
    price_age: Family<CapacityTypeLabel, Gauge>,
    /// When spot prices were read, in seconds since 1970; 0: never.
    spot_read: Arc<AtomicI64>,
    /// As those, of list prices.
    list_read: Arc<AtomicI64>,
}

impl PoolMetrics {
    /// Registers all of them.
    pub fn new(registrar: &mut Registrar<'_>) -> Self {
        let metrics = Self {
            limits: Family::default(),
            usage: Family::default(),
            join_blocked: Family::default(),
            price_age: Family::default(),
            spot_read: Arc::default(),
            list_read: Arc::default(),
        };
        registrar.register(table::NODEPOOL_LIMIT, metrics.limits.clone());
        registrar.register(table::NODEPOOL_USAGE, metrics.usage.clone());
        registrar.register(table::JOIN_BLOCKED, metrics.join_blocked.clone());
        registrar.register(table::PRICE_AGE, metrics.price_age.clone());
        metrics
    }

    /// What the lease holder counts.
    pub(crate) fn forget(&self) {
        self.limits.clear();
        self.usage.clear();
        self.join_blocked.clear();
        self.price_age.clear();
    }

    /// What pools may have, what NodeBatches take of it, and whether launches are held back because nodes did not join.
    pub fn measure<'a>(&self, pools: impl Iterator<Item = (&'a str, bool)>, ledger: &Ledger) {
        self.limits.clear();
        self.usage.clear();
        self.join_blocked.clear();
        for (pool, blocked) in pools {
            self.join_blocked.get_or_create(&PoolLabel { nodepool: pool.to_owned() }).set(i64::from(blocked));
            let left = ledger.left(pool);
            for (resource, limit) in ledger.limits(pool) {
                let used = limit - left.get(&resource).copied().unwrap_or(limit);
                let label = LimitLabel { nodepool: pool.to_owned(), resource: resource.to_string() };
                self.limits.get_or_create(&label).set(amount(&resource, limit));
                self.usage.get_or_create(&label).set(amount(&resource, used));
            }
        }
    }

    /// How old prices are now, in EC2's time.
    pub fn age(&self, now: Timestamp) {
        self.price_age.clear();
        let read = |at: &AtomicI64| {
            let read = Timestamp::from_second(at.load(Ordering::Relaxed)).ok();
            read.filter(|read| *read > Timestamp::UNIX_EPOCH)
        };
        let (list, spot) = (read(&self.list_read).or_else(prices_as_of), read(&self.spot_read));
        for (capacity_type, as_of) in [(CapacityType::OnDemand, list), (CapacityType::Spot, spot)] {
            let Some(as_of) = as_of else { continue };
            let label = CapacityTypeLabel { capacity_type: capacity_type.as_str() };
            self.price_age.get_or_create(&label).set(now.duration_since(as_of).as_secs());
        }
    }

    /// List prices were read from AWS.
    pub fn list_prices_read(&self, now: Timestamp) {
        self.list_read.store(now.as_second(), Ordering::Relaxed);
    }

    /// Spot prices were read from EC2.
    pub fn spot_prices_read(&self, now: Timestamp) {
        self.spot_read.store(now.as_second(), Ordering::Relaxed);
    }

    /// No pool may launch on spot: its prices are compared with nothing, and have no age.
    pub fn spot_prices_unused(&self) {
        self.spot_read.store(0, Ordering::Relaxed);
    }
}

/// The words there are, as `'static` labels.
fn status(word: &str) -> &'static str {
    match word {
        "True" => "True",
        "False" => "False",
        _ => "Unknown",
    }
}

/// In the resource's own unit: cores of CPU, bytes, pieces.
#[allow(clippy::cast_precision_loss, reason = "beyond 2^53 bytes nobody counts single ones")]
fn amount(resource: &ResourceName, amount: i64) -> f64 {
    if resource.as_str() == CPU { amount as f64 / 1000.0 } else { amount as f64 }
}

/// Domains of each level that bound gangs take, and the fewest that would have held each of them.
fn domains<'a>(gangs: impl Iterator<Item = &'a Gang>) -> BTreeMap<DomainLabel, i64> {
    let mut sums = BTreeMap::new();
    for level in gangs.filter(|gang| gang.phase == Some(Phase::Bound)).flat_map(|gang| &gang.levels) {
        for (kind, number) in [("used", level.used), ("optimum", level.optimum)] {
            *sums.entry(DomainLabel { level: level.key.to_string(), kind }).or_default() += i64::from(number);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_counted_in_cores_and_all_else_as_it_is() {
        assert!((amount(&CPU.into(), 1_500) - 1.5).abs() < f64::EPSILON);
        assert!((amount(&"nvidia.com/gpu".into(), 64) - 64.0).abs() < f64::EPSILON);
    }

    #[test]
    fn a_status_nobody_knows_is_unknown() {
        assert_eq!(["True", "False", "Unknown", "Maybe"].map(status), ["True", "False", "Unknown", "Unknown"]);
    }
}
