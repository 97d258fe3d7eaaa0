//! Logs and metrics. Metrics are structs passed in; there is no global registry.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use muster_api::conventions::{Kind, Served};
use muster_core::ec2::{CallError, ErrorClass};
use muster_core::gang::Stuck;
use muster_core::model::gang::Phase;
use muster_core::model::snapshot::Snapshot;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

use crate::provisioner::ProvisionerMetrics;

/// Form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Logging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// `tracing` filter.
    pub filter: String,
    /// Form.
    pub format: LogFormat,
}

/// Starts logging to standard error. A second call keeps the first subscriber: tests share a process.
pub fn init(config: &LogConfig) {
    let filter = EnvFilter::try_new(&config.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let _ = match config.format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

/// An error and its causes in one line, each reported once: many libraries repeat the cause in their own text.
#[must_use]
pub fn chain(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.contains(&cause) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&cause);
    }
    line
}

/// A verb of the extender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Verb {
    /// `filter`
    Filter,
    /// `prioritize`
    Prioritize,
    /// `preempt`
    Preempt,
    /// `bind`
    Bind,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerbLabel {
    verb: Verb,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabel {
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    group: &'static str,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BucketLabel {
    bucket: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabel {
    operation: &'static str,
    outcome: &'static str,
}

/// All metrics of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// The extender's.
    pub extender: ExtenderMetrics,
    /// The gang loop's.
    pub gangs: GangMetrics,
    /// EC2's.
    pub cloud: CloudMetrics,
    /// The provisioner's.
    pub provisioner: ProvisionerMetrics,
}

/// Latency and failures by verb.
#[derive(Clone, Debug)]
pub struct ExtenderMetrics {
    seconds: Family<VerbLabel, Histogram, fn() -> Histogram>,
    errors: Family<VerbLabel, Counter>,
    /// Answers to members that wait, held back for a moment.
    pub paused: Counter,
    /// Certificates read again and taken.
    pub tls_reloads: Counter,
    /// Certificates that could not be used.
    pub tls_reload_errors: Counter,
}

/// Plans, commits, and gangs by phase.
#[derive(Clone, Debug)]
pub struct GangMetrics {
    /// Time of one pass that planned.
    pub plan_seconds: Histogram,
    /// From the minimum at the barrier to the last binding.
    pub commit_seconds: Histogram,
    /// Bind calls that stand at a barrier.
    pub barrier_waiting: Gauge,
    /// Barriers that timed out.
    pub barrier_timeouts: Counter,
    /// Plans the checker refused: bugs.
    pub refused_plans: Counter,
    /// Members answered as bound whose Binding never appeared: bugs.
    pub lost_bindings: Counter,
    /// Seconds since the watch that was silent longest was heard from.
    pub watch_age: Gauge<f64, AtomicU64>,
    phases: Family<PhaseLabel, Gauge>,
    unlisted: Family<KindLabel, Gauge>,
    stuck: Family<ReasonLabel, Gauge>,
    snapshot: Gauge<u64, AtomicU64>,
}

/// Calls to EC2 by operation and outcome, and the buckets they wait at.
#[derive(Clone, Debug)]
pub struct CloudMetrics {
    calls: Family<CallLabel, Counter>,
    waits: Family<BucketLabel, Histogram, fn() -> Histogram>,
    burst: Family<BucketLabel, Gauge>,
    refill: Family<BucketLabel, Gauge>,
}

fn latency() -> Histogram {
    // 10 µs to about 80 s: filter answers in microseconds, bind may wait a minute.
    Histogram::new(exponential_buckets(0.000_01, 3.0, 15))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("muster");
        let extender = ExtenderMetrics {
            seconds: Family::new_with_constructor(latency as fn() -> Histogram),
            errors: Family::default(),
            paused: Counter::default(),
            tls_reloads: Counter::default(),
            tls_reload_errors: Counter::default(),
        };
        registry.register("tls_reloads", "Certificates of the extender read again", extender.tls_reloads.clone());
        registry.register(
            "tls_reload_errors",
            "Certificates of the extender that could not be used",
            extender.tls_reload_errors.clone(),
        );
        registry.register("extender_request_seconds", "Time to answer an extender call", extender.seconds.clone());
        registry.register("extender_errors", "Extender calls answered with an error", extender.errors.clone());
        registry.register(
            "extender_paused",
            "Answers to members that wait, held back for a moment",
            extender.paused.clone(),
        );
        let gangs = GangMetrics {
            plan_seconds: latency(),
            commit_seconds: latency(),
            barrier_waiting: Gauge::default(),
            barrier_timeouts: Counter::default(),
            refused_plans: Counter::default(),
            lost_bindings: Counter::default(),
            watch_age: Gauge::default(),
            phases: Family::default(),
            unlisted: Family::default(),
            stuck: Family::default(),
            snapshot: Gauge::default(),
        };
        registry.register("plan_seconds", "Time of a pass of the gang loop that planned", gangs.plan_seconds.clone());
        registry.register(
            "commit_seconds",
            "Time from the minimum at the barrier to the last binding",
            gangs.commit_seconds.clone(),
        );
        registry.register(
            "stuck_members",
            "Released members that kube-scheduler refuses, by reason",
            gangs.stuck.clone(),
        );
        registry.register("barrier_waiting", "Bind calls that stand at a barrier", gangs.barrier_waiting.clone());
        registry.register("barrier_timeouts", "Barriers that timed out", gangs.barrier_timeouts.clone());
        registry.register("refused_plans", "Plans the checker refused", gangs.refused_plans.clone());
        registry.register(
            "lost_bindings",
            "Pods answered as bound that the API server shows unbound",
            gangs.lost_bindings.clone(),
        );
        registry.register(
            "watch_age_seconds",
            "Time since the watch that was silent longest was heard from",
            gangs.watch_age.clone(),
        );
        registry.register("gangs", "Gangs by phase", gangs.phases.clone());
        registry.register("unlisted_kinds", "Kinds of owners and groups that cannot be listed", gangs.unlisted.clone());
        registry.register("snapshot_version", "Version of the newest published snapshot", gangs.snapshot.clone());
        registry.register("steps", "Calls that change something, by step and outcome", crate::step::counts());
        let cloud = CloudMetrics {
            calls: Family::default(),
            waits: Family::new_with_constructor(latency as fn() -> Histogram),
            burst: Family::default(),
            refill: Family::default(),
        };
        registry.register("ec2_calls", "Calls to EC2 by operation and outcome", cloud.calls.clone());
        registry.register("ec2_bucket_wait_seconds", "Time a call to EC2 waited for its turn", cloud.waits.clone());
        registry.register("ec2_bucket_burst", "Calls of a bucket at once", cloud.burst.clone());
        registry.register("ec2_bucket_refill", "Calls of a bucket per second", cloud.refill.clone());
        let provisioner = ProvisionerMetrics::new(&mut registry);
        Self { registry, extender, gangs, cloud, provisioner }
    }
}

impl Metrics {
    /// The OpenMetrics text.
    ///
    /// Errors: those of formatting, which do not occur with a string.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Behind an `Arc`, as the servers share it.
    #[must_use]
    pub fn shared() -> Arc<Self> {
        Arc::new(Self::default())
    }
}

impl ExtenderMetrics {
    /// One call.
    pub fn observe(&self, verb: Verb, took: Duration, failed: bool) {
        self.seconds.get_or_create(&VerbLabel { verb }).observe(took.as_secs_f64());
        if failed {
            self.errors.get_or_create(&VerbLabel { verb }).inc();
        }
    }
}

impl GangMetrics {
    /// Gauges of what a snapshot shows.
    pub fn count_phases(&self, snapshot: &Snapshot) {
        for phase in Phase::ALL {
            let count = snapshot.gangs.values().filter(|gang| gang.phase == Some(phase)).count();
            self.phases
                .get_or_create(&PhaseLabel { phase: phase.as_str() })
                .set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.snapshot.set(snapshot.version);
    }

    /// Released members that are not bound yet, by what they wait for.
    pub fn count_stuck(&self, stuck: &BTreeMap<Stuck, u32>) {
        for reason in Stuck::ALL {
            let gauge = self.stuck.get_or_create(&ReasonLabel { reason: reason.as_str() });
            gauge.set(i64::from(stuck.get(&reason).copied().unwrap_or(0)));
        }
    }

    /// Kinds of owners and groups that cannot be listed.
    pub fn unlisted(&self, kinds: impl Iterator<Item = Kind>) {
        self.unlisted.clear();
        for kind in kinds {
            let Served { group, kind, .. } = kind.served();
            self.unlisted.get_or_create(&KindLabel { group, kind }).set(1);
        }
    }
}

impl CloudMetrics {
    /// The size of a bucket.
    pub fn limit(&self, bucket: &'static str, burst: u32, per_second: u32) {
        self.burst.get_or_create(&BucketLabel { bucket }).set(i64::from(burst));
        self.refill.get_or_create(&BucketLabel { bucket }).set(i64::from(per_second));
    }

    /// How long one call waited for its turn, in EC2's time.
    pub fn waited(&self, bucket: &'static str, time: Duration) {
        self.waits.get_or_create(&BucketLabel { bucket }).observe(time.as_secs_f64());
    }

    /// Counts one answer and hands it on.
    pub fn count<T>(&self, operation: &'static str, result: Result<T, CallError>) -> Result<T, CallError> {
        let outcome = match &result {
            Ok(_) => "ok",
            Err(error) if error.kind == ErrorClass::Capacity => "capacity",
            Err(error) if error.kind == ErrorClass::Throttle => "throttle",
            Err(_) => "error",
        };
        self.calls.get_or_create(&CallLabel { operation, outcome }).inc();
        result
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::chain;

    #[test]
    fn a_cause_that_the_error_repeats_is_stated_once() {
        let cause = std::io::Error::other("no such file");
        let error =
            Err::<(), _>(anyhow::Error::new(cause).context("read /x: no such file")).context("start").unwrap_err();
        assert_eq!(chain(&error), "start: read /x: no such file");
        assert_eq!(chain(&anyhow::anyhow!("alone")), "alone");
    }
}
