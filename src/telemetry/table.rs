//! Every metric: name, type, labels, how stable it is and what it means. The table registers them, and it is the page of
//! the reference.

use std::fmt::{self, Write as _};

use prometheus_client::registry::{self, Registry, Unit};

/// Where the page of the table is.
pub const PAGE: &str = "docs/reference/metrics.md";

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Rises.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Observations in buckets.
    Histogram,
}

/// How much of a metric may change. The words are those of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// Name and labels stay.
    Stable,
    /// Name and labels stay for a minor version; labels may be added.
    Beta,
    /// Anything may change.
    Alpha,
}

/// Who has values for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Every replica, of itself.
    Each,
    /// The lease holder alone: a sum over replicas counts nothing twice.
    Leader,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its whole name, as it is scraped.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// Labels.
    pub labels: &'static [&'static str],
    /// How stable it is.
    pub stability: Stability,
    /// Who has values for it.
    pub by: By,
    /// What it means: a sentence without its full stop.
    pub help: &'static str,
    /// More for the page, such as the values of a label and when to alert.
    pub more: &'static str,
}

/// Units a name may end with.
const UNITS: [&str; 5] = ["seconds", "bytes", "usd_per_hour", "usd", "ratio"];

impl Metric {
    /// Its unit: the end of its name; a counter's is before `_total`.
    #[must_use]
    pub fn unit(&self) -> Option<&'static str> {
        let base = self.base();
        UNITS.into_iter().find(|unit| base.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_')))
    }

    /// The name without the end that a counter's has.
    fn base(&self) -> &'static str {
        match self.kind {
            Kind::Counter => self.name.strip_suffix("_total").unwrap_or(self.name),
            Kind::Gauge | Kind::Histogram => self.name,
        }
    }

    /// Registers what counts it. A counter's end is added by the registry.
    pub fn register(&self, registry: &mut Registry, metric: impl registry::Metric) {
        match self.unit() {
            None => registry.register(self.base(), self.help, metric),
            Some(unit) => {
                let stem = self.base().strip_suffix(unit).and_then(|stem| stem.strip_suffix('_'));
                registry.register_with_unit(
                    stem.unwrap_or(self.base()),
                    self.help,
                    Unit::Other(unit.to_owned()),
                    metric,
                );
            }
        }
    }
}

macro_rules! table {
    ($($constant:ident: $kind:ident $name:literal [$($label:literal),*] $stability:ident $by:ident $help:literal $more:literal)*) => {
        $(
            #[doc = $help]
            pub(crate) const $constant: Metric = Metric {
                name: $name,
                kind: Kind::$kind,
                labels: &[$($label),*],
                stability: Stability::$stability,
                by: By::$by,
                help: $help,
                more: $more,
            };
        )*

        /// All of them, in the order of the page.
        pub const TABLE: &[Metric] = &[$($constant),*];
    };
}

table! {
    LEADER: Gauge "muster_leader" [] Beta Each
        "Whether this replica holds the lease" "Alert if the sum over replicas is not 1."
    BUILD_INFO: Gauge "muster_build_info" ["version", "platform"] Stable Each
        "Always 1; the labels say what runs" ""
    REQUEST_DURATION: Histogram "muster_extender_request_duration_seconds" ["verb"] Beta Each
        "Time to answer an extender call" "`bind` includes the time at the barrier."
    REQUESTS: Counter "muster_extender_requests_total" ["verb", "result"] Beta Each
        "Extender calls by result"
        "`ok`; `refused`: a `bind` that is not to happen, such as one of a plan that was replaced, which is part of normal life; `shed`: beyond what is answered at once; `error`. Alert on `error` and `shed`."
    SHED: Counter "muster_extender_shed_total" ["verb"] Beta Each
        "Extender calls beyond what is answered at once" "The same as `result=\"shed\"`."
    PAUSED: Counter "muster_extender_paused_total" [] Beta Each
        "Answers to members that wait, held back for a moment"
        "By 10 ms, to members without a gate, since kube-scheduler asks about them more than 50 times a second."
    PLAN_DURATION: Histogram "muster_plan_duration_seconds" [] Beta Each
        "Time of a pass of the gang loop that planned" ""
    COMMIT_DURATION: Histogram "muster_commit_duration_seconds" [] Beta Each
        "Time from the minimum at the barrier to the last Binding" ""
    BARRIER_WAITING: Gauge "muster_barrier_waiting" [] Beta Each
        "Bind calls that stand at a barrier" ""
    BARRIER_TIMEOUTS: Counter "muster_barrier_timeouts_total" [] Beta Each
        "Barriers given up after bind.hold" ""
    REFUSED_PLANS: Counter "muster_refused_plans_total" [] Stable Each
        "Plans the checker refused" "**Alert on any**: it is a bug, please report it with the log line."
    LOST_BINDINGS: Counter "muster_lost_bindings_total" [] Stable Each
        "Pods answered as bound that the API server shows unbound"
        "**Alert on any**: kube-scheduler holds their capacity until it is restarted."
    WATCH_AGE: Gauge "muster_watch_age_seconds" [] Stable Each
        "Time since the watch that was silent longest was heard from" "Above `state.maxAge` nothing is answered."
    STEPS: Counter "muster_steps_total" ["step", "outcome"] Beta Each
        "Calls that change something, by step and outcome"
        "`ok`, `error`, `late` (not answered in time, so its outcome is open: ten seconds for the API server), `not-held` (not sent, since the lease had run out). Alert on many `late`."
    UNLISTED_KINDS: Gauge "muster_unlisted_kinds" ["group", "kind"] Beta Each
        "1 for a kind of owners or groups that the cluster serves and that could not be listed so far, or whose watch has failed for half a minute"
        "Its pods stay unknown. **Alert on any**."
    TLS_RELOADS: Counter "muster_tls_reloads_total" [] Beta Each
        "Certificates of the extender read again" ""
    CERTIFICATE_EXPIRY: Gauge "muster_certificate_expiry_timestamp_seconds" [] Beta Each
        "When the certificate that the extender serves with ends, in seconds since 1970"
        "0 without TLS. Alert some days before."
    TLS_RELOAD_ERRORS: Counter "muster_tls_reload_errors_total" [] Beta Each
        "Certificates of the extender that could not be used" "Alert on any."
    SNAPSHOT_VERSION: Gauge "muster_snapshot_version" [] Beta Leader
        "Version of the newest state the gang loop looked at" "Alert if it stands still while pods change."
    GANGS: Gauge "muster_gangs" ["phase"] Stable Leader
        "Gangs by phase" ""
    GANGS_WAITING: Gauge "muster_gangs_waiting" ["reason"] Beta Leader
        "Gangs that wait, by reason" "The reasons are the codes of [troubleshooting](troubleshooting.md)."
    OLDEST_WAITING: Gauge "muster_gang_oldest_waiting_seconds" [] Beta Leader
        "How long the gang that has waited longest has been in its phase" "0 while none waits."
    STUCK_MEMBERS: Gauge "muster_stuck_members" ["reason"] Beta Leader
        "Released members that are not bound yet"
        "kube-scheduler refuses the planned node (`refused`), for reasons that Muster's own view denies (`refused-though-it-fits`), did not offer it to `filter` (`not-offered`, and `nomination-lost` where the nomination is gone), or a call that it made for the member failed and it backs off (`call-failed`). Each is nominated and requeued again after 1 s, then after pauses that double up to `release.renominate`. `not-tried`: kube-scheduler has reported nothing about any member of the gang for 3 s: its queue is long, or it does not run. Alert where one stays above 0."
    GANG_START: Histogram "muster_gang_start_duration_seconds" ["source"] Beta Each
        "Time from when the last needed member was seen until all were bound"
        "By where the nodes came from: `existing`, `reserved`, `on-demand`, `spot`. Of a gang that another replica saw complete before it lost the lease: since the Gang was created."
    GANG_PHASE: Histogram "muster_gang_phase_duration_seconds" ["phase"] Alpha Each
        "Time a gang stayed in a phase that it left" ""
    GANGS_STARTED: Counter "muster_gangs_started_total" [] Beta Each
        "Gangs whose members were all bound" ""
    GANG_STOPS: Counter "muster_gang_stops_total" ["cause"] Beta Each
        "Gangs that lost a member or a node after they had started" "The cause is the reason they wait for then."
    NODEBATCHES: Gauge "muster_nodebatches" ["phase"] Beta Leader
        "NodeBatches by phase" ""
    ATTEMPTS: Counter "muster_nodebatch_attempts_total" ["outcome", "capacity_type"] Beta Each
        "Launches of NodeBatches that ended, by outcome"
        "`won`; `lost`: the next candidate is tried; `retry`: the same one; `violated`, `misplaced`: rolled back to zero; `probe_joined`."
    BATCH_READY: Histogram "muster_nodebatch_ready_duration_seconds" [] Beta Each
        "Time from the launch that was won until all nodes were ready" ""
    NODES: Gauge "muster_nodes" ["nodepool", "capacity_type", "zone"] Beta Leader
        "Instances that NodeBatches have" ""
    NODE_COST: Gauge "muster_node_cost_usd_per_hour" ["nodepool", "capacity_type", "state"] Beta Leader
        "Dollars per hour of what is billed" "By state: `in_use`, or serving nobody as `joining`, `idle` or `draining`. The sum is what Muster costs now."
    SPENT: Counter "muster_spent_usd_total" ["namespace", "nodepool", "capacity_type"] Beta Leader
        "Dollars spent on nodes, since their NodePool was created"
        "By the namespace of the gang or ProvisioningRequest; `-`: nodes for pods of no gang, `other`: namespaces after the first 50 rows of a NodePool. It goes on from `status.spent` of the NodePools after a restart or a takeover; bills that still run are counted up to a minute ago. From the launch until the shutdown as EC2 shows them, a minute at least, at the price the launch was decided at."
    STRANDED: Counter "muster_stranded_usd_total" ["namespace", "nodepool", "capacity_type", "cause"] Beta Leader
        "Dollars spent on nodes while no gang ran on them"
        "`join`, `rollback`, `replacement`, `warm`, `interrupted`. A part of `muster_spent_usd_total`."
    NODEPOOL_LIMIT: Gauge "muster_nodepool_limit" ["nodepool", "resource"] Beta Leader
        "What a NodePool may have, of each resource that it limits" "Cores of `cpu`, bytes of memory, pieces of all else."
    NODEPOOL_USAGE: Gauge "muster_nodepool_usage" ["nodepool", "resource"] Beta Leader
        "What NodeBatches of a NodePool take of its limits"
        "With what they have reserved and not launched yet."
    STATUS_CONDITION: Gauge "muster_status_condition" ["kind", "type", "status"] Beta Leader
        "Objects by condition" "Kinds are `Gang`, `NodeBatch`, `NodePool` and `EC2NodeClass`; a status is `True`, `False` or `Unknown`."
    PLACEMENT_DOMAINS: Gauge "muster_placement_domains" ["level", "kind"] Beta Leader
        "Domains of a level of the topology that bound gangs lie in, summed over gangs"
        "`used`, and `optimum`: the fewest that could hold each when it was planned."
    JOIN_BLOCKED: Gauge "muster_nodepool_join_blocked" ["nodepool"] Beta Leader
        "Whether launches of a NodePool are held back because its nodes did not join"
        "1 until a single node that is tried joins, or the pool or its class changes. Alert where it is 1."
    LARGEST_GANG: Gauge "muster_largest_gang_nodes" ["level", "accelerator"] Beta Leader
        "Nodes of the largest gang that fits now into one domain of a level, on nodes that exist"
        "Each member takes all accelerators of its node. The level is `cluster` where none is a zone. Counted at the scrape, once for each state."
    PRICE_AGE: Gauge "muster_price_age_seconds" ["capacity_type"] Beta Leader
        "Age of the prices that purchases are compared by"
        "On demand since they were read from AWS or else the date of the lists that Muster brings, spot since they were read from EC2. Alert where spot prices are older than some hours."
    HELD_COST: Gauge "muster_held_orphans_usd_per_hour" [] Beta Leader
        "Dollars per hour of instances without a NodeBatch that wait for a person" "0 while nothing is held."
    HELD_AGE: Gauge "muster_held_orphans_age_seconds" [] Beta Leader
        "Age of the oldest instance without a NodeBatch that waits for a person" "0 while nothing is held, at least 1 while something is."
    PODS_PENDING: Gauge "muster_pods_pending" ["reason"] Beta Leader
        "Pods of no gang that wait, as the last round found them"
        "`launching` (a NodeBatch was made), `joining` (nodes are on their way), `fits` (a node that exists holds it: kube-scheduler's turn), `no_offer`."
    ORPHANS: Counter "muster_orphans_total" ["resource"] Beta Each
        "Things without their other half that were collected"
        "`instance`, `node`, `placement-group`, `launch-template` that no NodeBatch knows; `entry`: a NodeBatch's instance that is gone."
    INTERRUPTIONS: Counter "muster_interruptions_total" ["kind", "outcome"] Beta Each
        "Notices about instances, from the queue" "`acted`, `ignored` (not ours, or known already), `unreadable`."
    QUEUE_UP: Gauge "muster_interruption_queue_up" ["queue"] Beta Leader
        "Whether the interruption queue answered the last time it was asked"
        "0 while it is not found, or does not answer: the status of instances is polled meanwhile, and notices come late. No series where no queue is configured."
    REACTION: Histogram "muster_interruption_reaction_duration_seconds" [] Beta Each
        "Time from the receipt of a notice until its reaction is written down" ""
    EC2_CALLS: Counter "muster_ec2_calls_total" ["operation", "outcome"] Beta Each
        "Calls to EC2 by operation and outcome" "`ok` or the class of the error."
    EC2_ERRORS: Counter "muster_ec2_errors_total" ["code"] Beta Each
        "Errors of EC2 by code" "The codes that Muster knows; every other is `other`, and `none` is a call without an answer."
    EC2_CALL_DURATION: Histogram "muster_ec2_call_duration_seconds" ["operation"] Beta Each
        "Time of a call to EC2, with what the SDK tried again" "Without the time that it waited for its turn."
    LIMITER_WAIT: Histogram "muster_ec2_rate_limiter_wait_duration_seconds" ["bucket"] Beta Each
        "Time a call to EC2 waited for its turn"
        "In EC2's time. Launches and clean-up have buckets of their own, so that insufficient capacity never delays a rollback, and batches that wait are called in turn by NodePool, so that insufficient capacity of one pool never holds up another."
    LIMITER_BURST: Gauge "muster_ec2_rate_limiter_burst" ["bucket"] Beta Each
        "Calls of a bucket at once, as configured" ""
    LIMITER_REFILL: Gauge "muster_ec2_rate_limiter_refill" ["bucket"] Beta Each
        "Calls of a bucket per second, as configured" ""
    PROCESS_CPU: Counter "process_cpu_seconds_total" [] Stable Each
        "Time of processors used by the process" ""
    PROCESS_MEMORY: Gauge "process_resident_memory_bytes" [] Stable Each
        "Resident memory of the process" ""
    PROCESS_FDS: Gauge "process_open_fds" [] Stable Each
        "Open files of the process" ""
    PROCESS_MAX_FDS: Gauge "process_max_fds" [] Stable Each
        "Files the process may have open" ""
    PROCESS_START: Gauge "process_start_time_seconds" [] Stable Each
        "When the process started, in seconds since 1970" ""
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        })
    }
}

impl fmt::Display for Stability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stable => "stable",
            Self::Beta => "beta",
            Self::Alpha => "alpha",
        })
    }
}

/// The page of the table, as it is shipped.
#[must_use]
pub fn page() -> String {
    let mut page = "<!-- Generated from src/telemetry/table.rs by MUSTER_BLESS=1 cargo test --workspace --test it metrics; do not edit. -->\n\
                    # Metrics\n\n\
                    `/metrics` on `http.listen` answers with OpenMetrics where the scraper accepts it, else with the plain text of Prometheus. \
                    A unit is the end of the name. Histograms have the usual `_bucket`, `_sum` and `_count`. What has *leader* under \"by\" has values \
                    on the replica that holds the lease and on no other, so that a sum over replicas counts nothing twice.\n\n\
                    | metric | type | unit | labels | by | stability | meaning |\n\
                    | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for metric in TABLE {
        let labels = metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let by = match metric.by {
            By::Each => "each",
            By::Leader => "leader",
        };
        let more = if metric.more.is_empty() { String::new() } else { format!(" {}", metric.more) };
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {labels} | {by} | {} | {}.{more} |",
            metric.name,
            metric.kind,
            metric.unit().unwrap_or("none"),
            metric.stability,
            metric.help,
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_keep_to_the_conventions() {
        let mut names = BTreeSet::new();
        for metric in TABLE {
            assert!(names.insert(metric.name), "{} twice", metric.name);
            assert_eq!(metric.kind == Kind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
            assert!(metric.kind != Kind::Histogram || metric.unit().is_some(), "{} has no unit", metric.name);
            assert!(!metric.help.ends_with('.'), "{}", metric.name);
            let lower = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
            assert!(lower(metric.name) && metric.labels.iter().all(|label| lower(label)), "{}", metric.name);
        }
    }

    #[test]
    fn the_unit_is_the_end_of_the_name() {
        assert_eq!(NODE_COST.unit(), Some("usd_per_hour"));
        assert_eq!(STRANDED.unit(), Some("usd"));
        assert_eq!(PROCESS_CPU.unit(), Some("seconds"));
        assert_eq!(STEPS.unit(), None);
    }
}
