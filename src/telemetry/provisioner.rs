//! What the provisioner counts: dollars, interruptions, orphans.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use muster_api::batch_state::phase_word;
use muster_core::batch::{HeldCost, Payer, Spent, StrandedCause, strands};
use muster_core::ec2::{CapacityType, NoticeKind};
use muster_core::model::batch::{AttemptOutcome, BatchPhase, BatchStatus, MemberState};
use muster_core::ordinary::Outcome;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use crate::telemetry::objects::PoolMetrics;
use crate::telemetry::registrar::{Registrar, minutes};
use crate::telemetry::table;

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
struct QueueLabel {
    queue: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SpentLabel {
    namespace: String,
    nodepool: String,
    capacity_type: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StrandedLabel {
    namespace: String,
    nodepool: String,
    capacity_type: String,
    cause: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct CostLabel {
    nodepool: String,
    capacity_type: &'static str,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct NodeLabel {
    nodepool: String,
    capacity_type: &'static str,
    zone: String,
}

/// A message that nobody can read.
const UNREADABLE: NoticeLabel = NoticeLabel { kind: "unknown", outcome: "unreadable" };

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabel {
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabel {
    outcome: &'static str,
    capacity_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

type Dollars = Gauge<f64, AtomicU64>;
type Sum = Counter<f64, AtomicU64>;

/// Metrics of the provisioner.
#[derive(Clone, Debug)]
pub struct ProvisionerMetrics {
    orphans: Family<ResourceLabel, Counter>,
    interruptions: Family<NoticeLabel, Counter>,
    queue_up: Family<QueueLabel, Gauge>,
    reaction_seconds: Histogram,
    cost: Family<CostLabel, Dollars>,
    nodes: Family<NodeLabel, Gauge>,
    phases: Family<PhaseLabel, Gauge>,
    attempts: Family<AttemptLabel, Counter>,
    ready_seconds: Histogram,
    spent_usd: Family<SpentLabel, Sum>,
    stranded_usd: Family<StrandedLabel, Sum>,
    held_orphans_usd_per_hour: Dollars,
    held_orphans_age_seconds: Gauge,
    pods_pending: Family<ReasonLabel, Gauge>,
    /// Of limits and prices.
    pub(crate) pools: PoolMetrics,
}

impl ProvisionerMetrics {
    /// Registers all of them.
    pub fn new(registrar: &mut Registrar<'_>) -> Self {
        let metrics = Self {
            orphans: Family::default(),
            interruptions: Family::default(),
            queue_up: Family::default(),
            // 1 ms to about a minute.
            reaction_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 16)),
            cost: Family::default(),
            nodes: Family::default(),
            phases: Family::default(),
            attempts: Family::default(),
            ready_seconds: minutes(),
            spent_usd: Family::default(),
            stranded_usd: Family::default(),
            held_orphans_usd_per_hour: Gauge::default(),
            held_orphans_age_seconds: Gauge::default(),
            pods_pending: Family::default(),
            pools: PoolMetrics::new(registrar),
        };
        registrar.register(table::PODS_PENDING, metrics.pods_pending.clone());
        registrar.register(table::HELD_COST, metrics.held_orphans_usd_per_hour.clone());
        registrar.register(table::HELD_AGE, metrics.held_orphans_age_seconds.clone());
        registrar.register(table::ORPHANS, metrics.orphans.clone());
        registrar.register(table::INTERRUPTIONS, metrics.interruptions.clone());
        registrar.register(table::QUEUE_UP, metrics.queue_up.clone());
        registrar.register(table::REACTION, metrics.reaction_seconds.clone());
        registrar.register(table::NODE_COST, metrics.cost.clone());
        registrar.register(table::NODES, metrics.nodes.clone());
        registrar.register(table::NODEBATCHES, metrics.phases.clone());
        registrar.register(table::ATTEMPTS, metrics.attempts.clone());
        registrar.register(table::BATCH_READY, metrics.ready_seconds.clone());
        registrar.register(table::SPENT, metrics.spent_usd.clone());
        registrar.register(table::STRANDED, metrics.stranded_usd.clone());
        metrics.begin_at_zero();
        metrics
    }

    /// Counters that alerts compare over time: one that begins with 1 has not increased.
    fn begin_at_zero(&self) {
        drop(self.interruptions.get_or_create(&UNREADABLE));
        for outcome in AttemptOutcome::ALL.into_iter().filter(|outcome| *outcome != AttemptOutcome::Launching) {
            for capacity_type in CapacityType::ALL {
                let label = AttemptLabel { outcome: self::outcome(outcome), capacity_type: capacity_type.as_str() };
                drop(self.attempts.get_or_create(&label));
            }
        }
    }

    /// What the lease holder counts.
    pub(crate) fn forget(&self) {
        self.cost.clear();
        self.nodes.clear();
        self.phases.clear();
        self.pods_pending.clear();
        self.spent_usd.clear();
        self.stranded_usd.clear();
        self.queue_up.clear();
        self.pools.forget();
        self.held_orphans_usd_per_hour.set(0.0);
        self.held_orphans_age_seconds.set(0);
    }

    /// What a status of a batch brought that was written: attempts that ended, and the moment its nodes were ready.
    pub(crate) fn moved(&self, before: &BatchStatus, next: &BatchStatus, now: Timestamp) {
        for attempt in &next.attempts {
            let known = before.attempts.iter().find(|known| known.number == attempt.number);
            let is_news = known.is_none_or(|known| known.outcome != attempt.outcome);
            if is_news && attempt.outcome != AttemptOutcome::Launching {
                let label =
                    AttemptLabel { outcome: outcome(attempt.outcome), capacity_type: attempt.capacity_type.as_str() };
                self.attempts.get_or_create(&label).inc();
            }
        }
        if next.phase == BatchPhase::Ready && before.phase == BatchPhase::Joining {
            let won = next.attempts.iter().rev().find(|attempt| attempt.outcome == AttemptOutcome::Won);
            if let Some(ended) = won.and_then(|attempt| attempt.ended) {
                self.ready_seconds.observe(now.duration_since(ended).as_secs_f64());
            }
        }
    }

    /// What a round of pods of no gang came to.
    pub(crate) fn pods(&self, outcome: &Outcome) {
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
    pub(crate) fn orphans(&self, resource: &'static str, count: usize) {
        self.orphans.get_or_create(&ResourceLabel { resource }).inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// What the orphan sweep holds, if anything.
    pub(crate) fn held_orphans(&self, held: Option<HeldCost>) {
        let cost = held.unwrap_or_default();
        self.held_orphans_usd_per_hour.set(dollars(cost.micro_usd_per_hour));
        // What EC2 does not show has no age, and is held too.
        self.held_orphans_age_seconds.set(held.map_or(0, |held| held.oldest.as_secs().max(1)));
    }

    /// A notice was handled.
    pub(crate) fn interruption(&self, kind: NoticeKind, outcome: &'static str, took: Duration) {
        self.interruptions.get_or_create(&NoticeLabel { kind: kind.as_str(), outcome }).inc();
        self.reaction_seconds.observe(took.as_secs_f64());
    }

    /// Whether the queue of interruptions answers.
    pub(crate) fn queue_up(&self, queue: &str, up: bool) {
        self.queue_up.get_or_create(&QueueLabel { queue: queue.to_owned() }).set(i64::from(up));
    }

    /// A message could not be read.
    pub(crate) fn unreadable(&self) {
        self.interruptions.get_or_create(&UNREADABLE).inc();
    }

    /// Everything that was ever spent, by pool and payer. What was shown once is never less: books and batches are watched apart,
    /// and a bill may be in neither for a moment.
    pub(crate) fn spent(&self, sums: &BTreeMap<(String, Payer), Spent>) {
        for ((nodepool, Payer { namespace, capacity_type }), spent) in sums {
            let (namespace, nodepool, capacity_type) = (namespace.clone(), nodepool.clone(), capacity_type.clone());
            for cause in StrandedCause::ALL {
                let label = StrandedLabel {
                    namespace: namespace.clone(),
                    nodepool: nodepool.clone(),
                    capacity_type: capacity_type.clone(),
                    cause: cause.as_str().to_owned(),
                };
                let sum = spent.stranded.get(cause.as_str()).copied().unwrap_or(0);
                rise(&self.stranded_usd.get_or_create(&label), sum);
            }
            rise(&self.spent_usd.get_or_create(&SpentLabel { namespace, nodepool, capacity_type }), spent.all);
        }
    }

    /// What runs, where, for whom and what it costs, from the statuses of all batches.
    pub(crate) fn measure<'a>(&self, statuses: impl Iterator<Item = &'a BatchStatus>) {
        let mut costs: BTreeMap<CostLabel, u64> = BTreeMap::new();
        let mut nodes: BTreeMap<NodeLabel, i64> = BTreeMap::new();
        let mut phases: BTreeMap<&'static str, i64> =
            BatchPhase::ALL.iter().map(|phase| (phase_word(*phase), 0)).collect();
        let mut pools: Vec<String> = Vec::new();
        for status in statuses {
            *phases.entry(phase_word(status.phase)).or_default() += 1;
            let Some(pool) = status.node_pool.clone() else { continue };
            if !pools.contains(&pool) {
                pools.push(pool.clone());
            }
            let position = pools.iter().position(|known| *known == pool).unwrap_or(POOLS);
            let nodepool = if position < POOLS { pool } else { "other".to_owned() };
            let capacity_type = status.capacity_type.map_or("unknown", CapacityType::as_str);
            let label =
                CostLabel { nodepool: nodepool.clone(), capacity_type, state: idle_cause(status).unwrap_or("in_use") };
            *costs.entry(label).or_default() += status.price_now();
            let live = status.instances.iter().filter(|instance| instance.state != MemberState::Gone).count();
            let zone = status.zone.clone().unwrap_or_else(|| "unknown".to_owned());
            *nodes.entry(NodeLabel { nodepool, capacity_type, zone }).or_default() += i64::try_from(live).unwrap_or(0);
        }
        self.cost.clear();
        for (label, micro) in costs {
            self.cost.get_or_create(&label).set(dollars(micro));
        }
        self.nodes.clear();
        for (label, count) in nodes {
            self.nodes.get_or_create(&label).set(count);
        }
        for (phase, count) in phases {
            self.phases.get_or_create(&PhaseLabel { phase }).set(count);
        }
    }
}

fn outcome(outcome: AttemptOutcome) -> &'static str {
    match outcome {
        AttemptOutcome::Launching => "launching",
        AttemptOutcome::Won => "won",
        AttemptOutcome::Lost => "lost",
        AttemptOutcome::Retry => "retry",
        AttemptOutcome::Violated => "violated",
        AttemptOutcome::Misplaced => "misplaced",
        AttemptOutcome::ProbeJoined => "probe_joined",
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

/// Lets a counter rise to a sum of micro-dollars; it never falls. Bits of numbers that are not negative are in their order.
fn rise(counter: &Sum, micro: u64) {
    counter.inner().fetch_max(dollars(micro).to_bits(), Ordering::Relaxed);
}

/// Dollars as the exposition format wants them; the sums behind them are whole micro-dollars.
#[expect(clippy::cast_precision_loss, reason = "at the edge, for people: sums are kept exactly elsewhere")]
fn dollars(micro: u64) -> f64 {
    micro as f64 / 1e6
}
