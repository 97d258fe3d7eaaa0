//! What the provisioner counts: dollars, interruptions, orphans.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use muster_api::crd::NodeBatchStatus;
use muster_core::batch::{HeldCost, StrandedCause, strands};
use muster_core::ec2::{CapacityType, NoticeKind};
use muster_core::model::batch::{BatchPhase, BatchStatus};
use muster_core::ordinary::Outcome;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Pools named in metrics; the rest are summed up as `other`.
const POOLS: usize = 50;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabel {
    resource: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NoticeLabel {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct PoolLabel {
    nodepool: String,
    capacity_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct IdleLabel {
    nodepool: String,
    capacity_type: &'static str,
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

type Dollars = Gauge<f64, AtomicU64>;

/// Metrics of the provisioner.
#[derive(Clone, Debug)]
pub struct ProvisionerMetrics {
    orphans: Family<ResourceLabel, Counter>,
    interruptions: Family<NoticeLabel, Counter>,
    reaction_seconds: Histogram,
    usd_per_hour: Family<PoolLabel, Dollars>,
    idle_usd_per_hour: Family<IdleLabel, Dollars>,
    stranded_usd: Family<CauseLabel, Counter<f64, AtomicU64>>,
    held_orphans_usd_per_hour: Dollars,
    held_orphans_age_seconds: Gauge,
    pods_pending: Family<ReasonLabel, Gauge>,
}

impl ProvisionerMetrics {
    /// Registers all of them.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            orphans: Family::default(),
            interruptions: Family::default(),
            // 1 ms to about a minute.
            reaction_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 16)),
            usd_per_hour: Family::default(),
            idle_usd_per_hour: Family::default(),
            stranded_usd: Family::default(),
            held_orphans_usd_per_hour: Gauge::default(),
            held_orphans_age_seconds: Gauge::default(),
            pods_pending: Family::default(),
        };
        registry.register(
            "pods_pending",
            "Pods of no gang that wait, as the last round found them",
            metrics.pods_pending.clone(),
        );
        registry.register(
            "held_orphans_usd_per_hour",
            "Dollars per hour of instances without a NodeBatch that wait for a person",
            metrics.held_orphans_usd_per_hour.clone(),
        );
        registry.register(
            "held_orphans_age_seconds",
            "Age of the oldest instance without a NodeBatch that waits for a person",
            metrics.held_orphans_age_seconds.clone(),
        );
        registry.register("orphans", "Things without their other half that were collected", metrics.orphans.clone());
        registry.register("interruptions", "Notices about instances", metrics.interruptions.clone());
        registry.register(
            "interruption_reaction_seconds",
            "From the receipt of a notice until its reaction is written down",
            metrics.reaction_seconds.clone(),
        );
        registry.register("usd_per_hour", "Dollars per hour of what runs", metrics.usd_per_hour.clone());
        registry.register(
            "idle_usd_per_hour",
            "Dollars per hour of what is billed and serves no gang",
            metrics.idle_usd_per_hour.clone(),
        );
        registry.register(
            "stranded_usd",
            "Dollars spent on nodes while no gang ran on them",
            metrics.stranded_usd.clone(),
        );
        for cause in StrandedCause::ALL {
            let _ = metrics.stranded_usd.get_or_create(&CauseLabel { cause: cause.as_str() });
        }
        metrics
    }

    /// What a round of pods of no gang came to.
    pub(super) fn pods(&self, outcome: &Outcome) {
        let launched = outcome.launches.iter().map(|launch| launch.pods.len()).sum();
        for (reason, count) in [
            ("launching", launched),
            ("joining", outcome.joining),
            ("fits", outcome.placed),
            ("no_offer", outcome.refused.len()),
        ] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.pods_pending.get_or_create(&ReasonLabel { reason }).set(count);
        }
    }

    /// Something was collected.
    pub(super) fn orphans(&self, resource: &'static str, count: usize) {
        self.orphans.get_or_create(&ResourceLabel { resource }).inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// What the orphan sweep holds.
    pub(super) fn held_orphans(&self, cost: HeldCost) {
        self.held_orphans_usd_per_hour.set(dollars(cost.micro_usd_per_hour));
        self.held_orphans_age_seconds.set(cost.oldest.as_secs());
    }

    /// A notice was handled.
    pub(super) fn interruption(&self, kind: NoticeKind, outcome: &'static str, took: Duration) {
        self.interruptions.get_or_create(&NoticeLabel { kind: kind.as_str(), outcome }).inc();
        self.reaction_seconds.observe(took.as_secs_f64());
    }

    /// A message could not be read.
    pub(super) fn unreadable(&self) {
        self.interruptions.get_or_create(&NoticeLabel { kind: "unknown", outcome: "unreadable" }).inc();
    }

    /// Micro-dollars that were spent on nothing since the last write of a batch.
    pub(super) fn stranded(&self, before: &NodeBatchStatus, after: &NodeBatchStatus) {
        for cause in StrandedCause::ALL {
            let of = |status: &NodeBatchStatus| {
                status.billing.as_ref().and_then(|billing| billing.stranded_micro_usd.get(cause.as_str()).copied())
            };
            let more = of(after).unwrap_or(0).saturating_sub(of(before).unwrap_or(0));
            if more > 0 {
                self.stranded_usd.get_or_create(&CauseLabel { cause: cause.as_str() }).inc_by(dollars(more));
            }
        }
    }

    /// What runs and what idles, from the statuses of all batches.
    pub(super) fn measure<'a>(&self, statuses: impl Iterator<Item = &'a BatchStatus>) {
        let mut runs: BTreeMap<PoolLabel, u64> = BTreeMap::new();
        let mut idles: BTreeMap<IdleLabel, u64> = BTreeMap::new();
        let mut pools: Vec<String> = Vec::new();
        for status in statuses {
            let Some(pool) = status.node_pool.clone() else { continue };
            if !pools.contains(&pool) {
                pools.push(pool.clone());
            }
            let position = pools.iter().position(|known| *known == pool).unwrap_or(POOLS);
            let nodepool = if position < POOLS { pool } else { "other".to_owned() };
            let capacity_type = status.capacity_type.map_or("unknown", CapacityType::as_str);
            let price = status.price_now();
            *runs.entry(PoolLabel { nodepool: nodepool.clone(), capacity_type }).or_default() += price;
            if let Some(cause) = idle_cause(status) {
                *idles.entry(IdleLabel { nodepool, capacity_type, cause }).or_default() += price;
            }
        }
        self.usd_per_hour.clear();
        for (label, micro) in runs {
            self.usd_per_hour.get_or_create(&label).set(dollars(micro));
        }
        self.idle_usd_per_hour.clear();
        for (label, micro) in idles {
            self.idle_usd_per_hour.get_or_create(&label).set(dollars(micro));
        }
    }
}

fn idle_cause(status: &BatchStatus) -> Option<&'static str> {
    strands(status).map(|_| match status.phase {
        BatchPhase::Idle | BatchPhase::InUse => "idle",
        BatchPhase::Draining | BatchPhase::Terminating => "draining",
        BatchPhase::Pending
        | BatchPhase::Launching
        | BatchPhase::Launched
        | BatchPhase::Joining
        | BatchPhase::Replacing
        | BatchPhase::Ready => "joining",
    })
}

/// Dollars as the exposition format wants them; the sums behind them are whole micro-dollars.
#[expect(clippy::cast_precision_loss, reason = "at the edge, for people: sums are kept exactly elsewhere")]
fn dollars(micro: u64) -> f64 {
    micro as f64 / 1e6
}
