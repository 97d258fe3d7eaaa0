//! Logs and metrics. Metrics are structs passed in; there is no global registry.

pub mod exposition;
pub mod objects;
mod process;
pub mod provisioner;
pub mod registrar;
pub mod table;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use muster_api::conventions::{Kind, Served};
use muster_core::ec2::{CallError, ErrorClass, known_code};
use muster_core::gang::Stuck;
use muster_core::model::gang::{Gang, Phase};
use muster_core::model::names::ObjectKey;
use muster_core::model::snapshot::Snapshot;
use muster_core::reason::Code;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

use self::provisioner::ProvisionerMetrics;
pub use objects::ObjectMetrics;
pub use registrar::Registrar;
use registrar::{Leads, minutes};

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
    // It would be reported on standard error, which is what cannot be written, and end the task.
    let builder = builder.log_internal_errors(false);
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Verb {
    fn as_str(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Prioritize => "prioritize",
            Self::Preempt => "preempt",
            Self::Bind => "bind",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerbLabel {
    verb: &'static str,
}

/// How an extender call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// With an answer.
    Done,
    /// A Binding is not to be posted now, which is part of normal life.
    Refused,
    /// It was beyond what is answered at once.
    Shed,
    /// It could not be answered.
    Failed,
}

impl Answered {
    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "ok",
            Self::Refused => "refused",
            Self::Shed => "shed",
            Self::Failed => "error",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    verb: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabel {
    source: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StopLabel {
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabel {
    version: &'static str,
    platform: &'static str,
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
struct OperationLabel {
    operation: &'static str,
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
    registered: Vec<&'static str>,
    leads: Leads,
    leader: Gauge,
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
    results: Family<ResultLabel, Counter>,
    shed: Family<VerbLabel, Counter>,
    /// Answers to members that wait, held back for a moment.
    pub paused: Counter,
    /// Certificates read again and taken.
    pub tls_reloads: Counter,
    /// Certificates that could not be used.
    pub tls_reload_errors: Counter,
    /// When the certificate that is served ends.
    pub certificate_expiry: Gauge,
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
    waiting: Family<ReasonLabel, Gauge>,
    oldest: Gauge,
    starts: Family<SourceLabel, Histogram, fn() -> Histogram>,
    stays: Family<PhaseLabel, Histogram, fn() -> Histogram>,
    started: Counter,
    stops: Family<StopLabel, Counter>,
    /// Since when gangs that are not bound yet have had all members they need.
    complete: Arc<Mutex<BTreeMap<ObjectKey, Timestamp>>>,
    unlisted: Family<KindLabel, Gauge>,
    stuck: Family<ReasonLabel, Gauge>,
    /// Of all objects.
    pub objects: ObjectMetrics,
    snapshot: Gauge<u64, AtomicU64>,
}

/// Calls to EC2 by operation and outcome, and the buckets they wait at.
#[derive(Clone, Debug)]
pub struct CloudMetrics {
    calls: Family<CallLabel, Counter>,
    errors: Family<CodeLabel, Counter>,
    seconds: Family<OperationLabel, Histogram, fn() -> Histogram>,
    waits: Family<BucketLabel, Histogram, fn() -> Histogram>,
    burst: Family<BucketLabel, Gauge>,
    refill: Family<BucketLabel, Gauge>,
}

/// 10 µs to two minutes: `filter` answers in microseconds, and `bind` may stand at the barrier for `bind.hold`, which is kept
/// apart from kube-scheduler's own limit by bounds on both sides of it.
fn latency() -> Histogram {
    Histogram::new(
        exponential_buckets(0.000_01, 3.0, 12).chain([5.0, 10.0, 20.0, 30.0, 45.0, 52.0, 58.0, 65.0, 90.0, 120.0]),
    )
}

/// 10 ms to three minutes: EC2 answers within a second, and CreateFleet may take a minute.
fn calls() -> Histogram {
    Histogram::new([0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 90.0, 180.0])
}

impl Default for Metrics {
    fn default() -> Self {
        let leads = Leads::default();
        let mut registry = Registry::default();
        let mut registrar = Registrar::new(&mut registry, leads.clone());
        let leader = Gauge::default();
        registrar.register(table::LEADER, leader.clone());
        let build: Family<BuildLabel, Gauge> = Family::default();
        let label = BuildLabel { version: env!("CARGO_PKG_VERSION"), platform: std::env::consts::ARCH };
        build.get_or_create(&label).set(1);
        registrar.register(table::BUILD_INFO, build);
        let extender = ExtenderMetrics::new(&mut registrar);
        let gangs = GangMetrics::new(&mut registrar);
        registrar.register(table::STEPS, crate::step::counts());
        let cloud = CloudMetrics::new(&mut registrar);
        let provisioner = ProvisionerMetrics::new(&mut registrar);
        let mut registered = registrar.into_registered();
        registered.extend(process::METRICS.iter().map(|metric| metric.name));
        registry.register_collector(Box::new(process::Process));
        Self { registry, registered, leads, leader, extender, gangs, cloud, provisioner }
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

    /// The plain text of Prometheus, for scrapers that do not take OpenMetrics.
    ///
    /// Errors: those of formatting, which do not occur with a string.
    pub fn encode_plain(&self) -> Result<String, std::fmt::Error> {
        self.encode().map(|text| exposition::plain(&text))
    }

    /// Whether this replica holds the lease: what the holder alone knows is shown from now on, or forgotten.
    pub fn lead(&self, holds: bool) {
        self.leader.set(i64::from(holds));
        if !holds {
            self.gangs.forget();
            self.provisioner.forget();
        }
        self.leads.set(holds);
    }

    /// Names of everything that is registered.
    #[must_use]
    pub fn registered(&self) -> &[&'static str] {
        &self.registered
    }

    /// Behind an `Arc`, as the servers share it.
    #[must_use]
    pub fn shared() -> Arc<Self> {
        Arc::new(Self::default())
    }
}

impl ExtenderMetrics {
    fn new(registrar: &mut Registrar<'_>) -> Self {
        let metrics = Self {
            seconds: Family::new_with_constructor(latency as fn() -> Histogram),
            results: Family::default(),
            shed: Family::default(),
            paused: Counter::default(),
            tls_reloads: Counter::default(),
            certificate_expiry: Gauge::default(),
            tls_reload_errors: Counter::default(),
        };
        registrar.register(table::TLS_RELOADS, metrics.tls_reloads.clone());
        registrar.register(table::CERTIFICATE_EXPIRY, metrics.certificate_expiry.clone());
        registrar.register(table::TLS_RELOAD_ERRORS, metrics.tls_reload_errors.clone());
        registrar.register(table::REQUEST_DURATION, metrics.seconds.clone());
        registrar.register(table::REQUESTS, metrics.results.clone());
        registrar.register(table::SHED, metrics.shed.clone());
        registrar.register(table::PAUSED, metrics.paused.clone());
        metrics
    }

    /// One call.
    pub fn observe(&self, verb: Verb, took: Duration, answered: Answered) {
        let verb = verb.as_str();
        self.seconds.get_or_create(&VerbLabel { verb }).observe(took.as_secs_f64());
        self.results.get_or_create(&ResultLabel { verb, result: answered.as_str() }).inc();
        if answered == Answered::Shed {
            self.shed.get_or_create(&VerbLabel { verb }).inc();
        }
    }
}

impl GangMetrics {
    fn new(registrar: &mut Registrar<'_>) -> Self {
        let metrics = Self {
            plan_seconds: latency(),
            commit_seconds: latency(),
            barrier_waiting: Gauge::default(),
            barrier_timeouts: Counter::default(),
            refused_plans: Counter::default(),
            lost_bindings: Counter::default(),
            watch_age: Gauge::default(),
            phases: Family::default(),
            waiting: Family::default(),
            oldest: Gauge::default(),
            starts: Family::new_with_constructor(minutes as fn() -> Histogram),
            stays: Family::new_with_constructor(minutes as fn() -> Histogram),
            started: Counter::default(),
            stops: Family::default(),
            complete: Arc::default(),
            unlisted: Family::default(),
            stuck: Family::default(),
            objects: ObjectMetrics::new(registrar),
            snapshot: Gauge::default(),
        };
        registrar.register(table::PLAN_DURATION, metrics.plan_seconds.clone());
        registrar.register(table::COMMIT_DURATION, metrics.commit_seconds.clone());
        registrar.register(table::STUCK_MEMBERS, metrics.stuck.clone());
        registrar.register(table::BARRIER_WAITING, metrics.barrier_waiting.clone());
        registrar.register(table::BARRIER_TIMEOUTS, metrics.barrier_timeouts.clone());
        registrar.register(table::REFUSED_PLANS, metrics.refused_plans.clone());
        registrar.register(table::LOST_BINDINGS, metrics.lost_bindings.clone());
        registrar.register(table::WATCH_AGE, metrics.watch_age.clone());
        registrar.register(table::GANGS, metrics.phases.clone());
        registrar.register(table::GANGS_WAITING, metrics.waiting.clone());
        registrar.register(table::OLDEST_WAITING, metrics.oldest.clone());
        registrar.register(table::GANG_START, metrics.starts.clone());
        registrar.register(table::GANG_PHASE, metrics.stays.clone());
        registrar.register(table::GANGS_STARTED, metrics.started.clone());
        registrar.register(table::GANG_STOPS, metrics.stops.clone());
        registrar.register(table::UNLISTED_KINDS, metrics.unlisted.clone());
        registrar.register(table::SNAPSHOT_VERSION, metrics.snapshot.clone());
        metrics
    }

    /// What the lease holder counts.
    fn forget(&self) {
        self.phases.clear();
        self.waiting.clear();
        self.stuck.clear();
        self.objects.forget();
        self.oldest.set(0);
        self.snapshot.set(0);
    }

    /// Gauges of who waits and for how long.
    pub fn count_waiting(&self, snapshot: &Snapshot, now: Timestamp) {
        let waits = |gang: &Gang| match gang.phase {
            Some(
                Phase::Collecting
                | Phase::Waiting
                | Phase::Provisioning
                | Phase::Degraded
                | Phase::Invalid
                | Phase::Unsatisfiable,
            ) => gang.waiting.clone(),
            Some(Phase::Planned | Phase::Released | Phase::Committing | Phase::Bound | Phase::Finished) | None => None,
        };
        let mut oldest = 0;
        let mut counts = [0_i64; Code::ALL.len()];
        for gang in snapshot.gangs.values() {
            let Some(waiting) = waits(gang) else { continue };
            if let Some(index) = Code::ALL.into_iter().position(|code| code.as_str() == &*waiting.reason) {
                counts[index] += 1;
            }
            let since = gang.since.or(gang.created).unwrap_or(now);
            oldest = now.duration_since(since).as_secs().max(oldest);
        }
        for (code, count) in Code::ALL.into_iter().zip(counts) {
            self.waiting.get_or_create(&ReasonLabel { reason: code.as_str() }).set(count);
        }
        self.oldest.set(oldest);
    }

    /// A status of a gang was written: how long it was in the phase that it left, whether it started, whether it stopped.
    /// `source`: where its nodes came from.
    pub fn moved(&self, before: &Gang, next: &Gang, source: &'static str, now: Timestamp) {
        if before.phase == next.phase {
            return;
        }
        if let (Some(phase), Some(since)) = (before.phase, before.since) {
            let stayed = now.duration_since(since).as_secs_f64();
            self.stays.get_or_create(&PhaseLabel { phase: phase.as_str() }).observe(stayed);
        }
        let mut complete = self.complete.lock().unwrap_or_else(PoisonError::into_inner);
        match next.phase {
            Some(Phase::Collecting | Phase::Finished | Phase::Invalid) | None => {
                complete.remove(&next.key);
            }
            Some(Phase::Degraded) => {
                complete.remove(&next.key);
                let reason = next.waiting.as_ref().and_then(|waiting| Code::parse(&waiting.reason));
                let cause = reason.unwrap_or(Code::MemberLost).as_str();
                self.stops.get_or_create(&StopLabel { cause }).inc();
            }
            Some(Phase::Bound) if before.phase == Some(Phase::Committing) => {
                self.started.inc();
                // Who took the lease over meanwhile knows only since when there is a Gang.
                if let Some(since) = complete.remove(&next.key).or(next.created) {
                    let took = now.duration_since(since).as_secs_f64();
                    self.starts.get_or_create(&SourceLabel { source }).observe(took);
                }
            }
            Some(
                Phase::Bound
                | Phase::Waiting
                | Phase::Provisioning
                | Phase::Planned
                | Phase::Released
                | Phase::Committing
                | Phase::Unsatisfiable,
            ) => {
                complete.entry(next.key.clone()).or_insert(now);
            }
        }
    }

    /// Gauges of what a snapshot shows.
    pub fn count_phases(&self, snapshot: &Snapshot) {
        let mut counts = Phase::ALL.map(|phase| (phase, 0_i64));
        for phase in snapshot.gangs.values().filter_map(|gang| gang.phase) {
            counts.iter_mut().filter(|(of, _)| *of == phase).for_each(|(_, count)| *count += 1);
        }
        for (phase, count) in counts {
            self.phases.get_or_create(&PhaseLabel { phase: phase.as_str() }).set(count);
        }
        self.snapshot.set(snapshot.version);
        let mut complete = self.complete.lock().unwrap_or_else(PoisonError::into_inner);
        complete.retain(|gang, _| snapshot.gangs.contains_key(gang));
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

/// Codes of calls that credentials do not allow.
const DENIALS: [&str; 4] = ["UnauthorizedOperation", "AuthFailure", "OptInRequired", "ExpiredToken"];

impl CloudMetrics {
    fn new(registrar: &mut Registrar<'_>) -> Self {
        let metrics = Self {
            calls: Family::default(),
            errors: Family::default(),
            seconds: Family::new_with_constructor(calls as fn() -> Histogram),
            waits: Family::new_with_constructor(latency as fn() -> Histogram),
            burst: Family::default(),
            refill: Family::default(),
        };
        registrar.register(table::EC2_CALLS, metrics.calls.clone());
        registrar.register(table::EC2_ERRORS, metrics.errors.clone());
        registrar.register(table::EC2_CALL_DURATION, metrics.seconds.clone());
        registrar.register(table::LIMITER_WAIT, metrics.waits.clone());
        registrar.register(table::LIMITER_BURST, metrics.burst.clone());
        registrar.register(table::LIMITER_REFILL, metrics.refill.clone());
        // Alerts compare them over time: a counter that begins with 1 has not increased.
        for code in DENIALS.into_iter().filter_map(known_code) {
            drop(metrics.errors.get_or_create(&CodeLabel { code }));
        }
        metrics
    }

    /// The size of a bucket.
    pub fn limit(&self, bucket: &'static str, burst: u32, per_second: u32) {
        self.burst.get_or_create(&BucketLabel { bucket }).set(i64::from(burst));
        self.refill.get_or_create(&BucketLabel { bucket }).set(i64::from(per_second));
    }

    /// How long one call waited for its turn, in EC2's time.
    pub fn waited(&self, bucket: &'static str, time: Duration) {
        self.waits.get_or_create(&BucketLabel { bucket }).observe(time.as_secs_f64());
    }

    /// How long an operation took with everything that the SDK tried.
    pub fn took(&self, operation: &'static str, time: Duration) {
        self.seconds.get_or_create(&OperationLabel { operation }).observe(time.as_secs_f64());
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
        if let Err(error) = &result {
            let code = error.code.as_deref().map_or("none", |code| known_code(code).unwrap_or("other"));
            self.errors.get_or_create(&CodeLabel { code }).inc();
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use muster_core::model::gang::{Gang, Phase};
    use muster_core::model::names::ObjectKey;

    use super::{Metrics, chain, table};

    #[test]
    fn everything_in_the_table_is_registered_once_and_nothing_else_is() {
        let metrics = Metrics::default();
        let registered: BTreeSet<&str> = metrics.registered().iter().copied().collect();
        assert_eq!(registered.len(), metrics.registered().len(), "{:?}", metrics.registered());
        let known: BTreeSet<&str> = table::TABLE.iter().map(|metric| metric.name).collect();
        assert_eq!(registered, known);
    }

    #[test]
    fn what_is_scraped_has_the_name_and_type_of_the_table() {
        let metrics = Metrics::default();
        metrics.lead(true);
        let text = metrics.encode_plain().unwrap();
        let mut seen = 0;
        for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').unwrap();
            let metric = table::TABLE.iter().find(|metric| metric.name == name);
            let metric = metric.unwrap_or_else(|| panic!("{name} is not in the table"));
            assert_eq!(metric.kind.to_string(), kind, "{name}");
            seen += 1;
        }
        assert!(seen > 10, "{text}");
    }

    #[test]
    fn a_start_is_timed_from_the_last_member_needed_until_all_are_bound() {
        let metrics = Metrics::default();
        let at = |second: i64| jiff::Timestamp::from_second(1_800_000_000 + second).unwrap();
        let gang = |phase, since: i64| Gang {
            key: ObjectKey::new("ml", "train"),
            uid: Arc::from("u"),
            resource_version: Arc::from("1"),
            phase: Some(phase),
            epoch: 1,
            round: 0,
            since: Some(at(since)),
            minimum: 1,
            minimums: std::collections::BTreeMap::new(),
            running: None,
            shape: None,
            places: Vec::new(),
            levels: Vec::new(),
            held: None,
            batch: None,
            waiting: None,
            notes: std::collections::BTreeMap::new(),
            members: Arc::from(""),
            created: Some(at(0)),
            deleting: false,
        };
        let life = [
            (Phase::Collecting, Phase::Waiting, 10, 40),
            (Phase::Waiting, Phase::Planned, 40, 100),
            (Phase::Planned, Phase::Released, 100, 101),
            (Phase::Released, Phase::Committing, 101, 102),
            (Phase::Committing, Phase::Bound, 102, 103),
        ];
        for (before, next, since, now) in life {
            metrics.gangs.moved(&gang(before, since), &gang(next, now), "existing", at(now));
        }
        let lines = [
            "muster_gang_start_duration_seconds_sum{source=\"existing\"} 63.0",
            "muster_gang_start_duration_seconds_count{source=\"existing\"} 1",
            "muster_gang_phase_duration_seconds_sum{phase=\"Waiting\"} 60.0",
            "muster_gangs_started_total 1",
        ];
        shows(&metrics, &lines);
        metrics.gangs.moved(&gang(Phase::Bound, 103), &gang(Phase::Degraded, 200), "existing", at(200));
        assert!(metrics.encode().unwrap().contains("muster_gang_stops_total{cause=\"MemberLost\"} 1"));
    }

    #[test]
    fn what_the_lease_holder_counts_is_gone_with_the_lease() {
        let metrics = Metrics::default();
        metrics.gangs.count_stuck(&BTreeMap::new());
        let shows = || metrics.encode().unwrap().contains("muster_stuck_members{");
        assert!(!shows(), "before it leads");
        metrics.lead(true);
        assert!(shows());
        assert!(metrics.encode().unwrap().contains("muster_leader 1"));
        metrics.lead(false);
        assert!(!shows());
        // What was counted by a holder that is none any more does not come back with the next lease.
        metrics.lead(true);
        assert!(!shows());
        assert!(metrics.encode().unwrap().contains("muster_held_orphans_usd_per_hour 0"));
    }

    /// The metrics as a scraper reads them have all of these lines.
    #[track_caller]
    fn shows(metrics: &Metrics, lines: &[&str]) {
        let text = metrics.encode().unwrap();
        let missing: Vec<&&str> = lines.iter().filter(|line| !text.contains(**line)).collect();
        assert!(missing.is_empty(), "{missing:?} are not in:\n{text}");
    }

    #[test]
    fn counters_that_alerts_compare_over_time_begin_at_zero() {
        let lines = [
            "muster_interruptions_total{kind=\"unknown\",outcome=\"unreadable\"} 0",
            "muster_nodebatch_attempts_total{outcome=\"won\",capacity_type=\"spot\"} 0",
            "muster_nodebatch_attempts_total{outcome=\"lost\",capacity_type=\"reserved\"} 0",
            "muster_ec2_errors_total{code=\"UnauthorizedOperation\"} 0",
        ];
        shows(&Metrics::default(), &lines);
    }

    #[test]
    fn prices_that_nobody_compares_have_no_age() {
        let metrics = Metrics::default();
        metrics.lead(true);
        let pools = &metrics.provisioner.pools;
        let at = |hours: i64| jiff::Timestamp::from_second(1_800_000_000 + hours * 3600).unwrap();
        let shows = || metrics.encode().unwrap().contains("muster_price_age_seconds{capacity_type=\"spot\"}");
        pools.spot_prices_read(at(0));
        pools.age(at(7));
        assert!(shows());
        pools.spot_prices_unused();
        pools.age(at(7));
        assert!(!shows());
    }

    #[test]
    fn a_cause_that_the_error_repeats_is_stated_once() {
        let cause = std::io::Error::other("no such file");
        let error =
            Err::<(), _>(anyhow::Error::new(cause).context("read /x: no such file")).context("start").unwrap_err();
        assert_eq!(chain(&error), "start: read /x: no such file");
        assert_eq!(chain(&anyhow::anyhow!("alone")), "alone");
    }
}
