//! Configuration of `muster serve`: one YAML file, every key known, every value checked before anything starts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use jiff::SignedDuration;
use muster_core::cloud::{CapacityType, ClusterAccess, PriceBook};
use muster_core::topology::{Level, Levels};
use serde::Deserialize;
use thiserror::Error;

/// What can be wrong with a configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("read {path}: {source}")]
    Read {
        /// Path.
        path: String,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// Not YAML, an unknown key, or a value of the wrong type.
    #[error("{path}: {message}")]
    Parse {
        /// Path.
        path: String,
        /// What is wrong and where.
        message: String,
    },
    /// A value that makes no sense.
    #[error("{key}: {message}")]
    Value {
        /// Key.
        key: String,
        /// What is wrong and how to fix it.
        message: String,
    },
}

fn value(key: impl Into<String>, message: impl Into<String>) -> ConfigError {
    ConfigError::Value { key: key.into(), message: message.into() }
}

/// The file, as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Raw {
    scheduler_names: Vec<String>,
    accelerators: Vec<String>,
    extender: RawListen,
    http: RawListen,
    bind: RawBind,
    release: RawRelease,
    lease: RawLease,
    topology: RawTopology,
    cluster: RawCluster,
    ec2: RawEc2,
    provisioner: RawProvisioner,
    prices: BTreeMap<String, RawPrice>,
    clock: RawClock,
    log: RawLog,
    debug: RawDebug,
}

impl Default for Raw {
    fn default() -> Self {
        Self {
            scheduler_names: vec![muster_api::keys::SCHEDULER_NAME.to_owned()],
            accelerators: vec![
                muster_api::keys::NVIDIA_GPU.to_owned(),
                "aws.amazon.com/neuron".to_owned(),
                "aws.amazon.com/neuroncore".to_owned(),
                "habana.ai/gaudi".to_owned(),
                "amd.com/gpu".to_owned(),
            ],
            extender: RawListen { listen: "127.0.0.1:8888".to_owned() },
            http: RawListen { listen: "127.0.0.1:8080".to_owned() },
            bind: RawBind::default(),
            release: RawRelease::default(),
            lease: RawLease::default(),
            topology: RawTopology::default(),
            cluster: RawCluster::default(),
            ec2: RawEc2::default(),
            provisioner: RawProvisioner::default(),
            prices: BTreeMap::new(),
            clock: RawClock::default(),
            log: RawLog::default(),
            debug: RawDebug::default(),
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawListen {
    listen: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawBind {
    http_timeout: String,
    hold: String,
    parallel: u32,
}

impl Default for RawBind {
    fn default() -> Self {
        Self { http_timeout: "60s".to_owned(), hold: "55s".to_owned(), parallel: 64 }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawRelease {
    settle: String,
    rehint: String,
    parallel: u32,
    expiry: String,
}

impl Default for RawRelease {
    fn default() -> Self {
        Self { settle: "200ms".to_owned(), rehint: "10s".to_owned(), parallel: 32, expiry: "5m".to_owned() }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawLease {
    name: String,
    namespace: String,
    duration: String,
    grace: String,
}

impl Default for RawLease {
    fn default() -> Self {
        Self {
            name: "muster".to_owned(),
            namespace: muster_api::keys::NAMESPACE.to_owned(),
            duration: "15s".to_owned(),
            grace: "5s".to_owned(),
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawTopology {
    levels: Vec<RawLevel>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawLevel {
    name: String,
    key: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawCluster {
    name: String,
    endpoint: String,
    certificate_authority: String,
    service_cidr: String,
}

impl Default for RawCluster {
    fn default() -> Self {
        Self {
            name: "muster".to_owned(),
            endpoint: String::new(),
            certificate_authority: String::new(),
            service_cidr: "10.100.0.0/16".to_owned(),
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawEc2 {
    region: Option<String>,
    endpoint_url: Option<String>,
    launch_timeout: Option<String>,
    interruption_queue: Option<String>,
    disabled: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawProvisioner {
    back_off: String,
}

impl Default for RawProvisioner {
    fn default() -> Self {
        Self { back_off: "30s".to_owned() }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawPrice {
    usd_per_hour: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawClock {
    origin: Option<jiff::Timestamp>,
    factor: Option<u32>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawLog {
    filter: String,
    format: LogFormat,
}

impl Default for RawLog {
    fn default() -> Self {
        Self { filter: "info,kube=warn".to_owned(), format: LogFormat::Text }
    }
}

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

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawDebug {
    enabled: bool,
    decisions: u32,
}

impl Default for RawDebug {
    fn default() -> Self {
        Self { enabled: false, decisions: 64 }
    }
}

/// A validated configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// `schedulerName`s of our profiles.
    pub scheduler_names: Vec<String>,
    /// Extended resources that count as accelerators.
    pub accelerators: Vec<String>,
    /// Where kube-scheduler calls.
    pub extender: SocketAddr,
    /// Health and metrics.
    pub http: SocketAddr,
    /// `httpTimeout` of kube-scheduler's binding stanza.
    pub http_timeout: SignedDuration,
    /// How long the barrier holds.
    pub hold: SignedDuration,
    /// Bindings posted at once.
    pub bind_parallel: usize,
    /// Between a plan persisted and its release.
    pub settle: SignedDuration,
    /// A patch that was not observed is repeated after this.
    pub rehint: SignedDuration,
    /// Members released at once.
    pub release_parallel: usize,
    /// A released, unbound plan is withdrawn after this.
    pub expiry: SignedDuration,
    /// Lease.
    pub lease: Lease,
    /// Topology levels.
    pub levels: Levels,
    /// How nodes reach the cluster.
    pub access: ClusterAccess,
    /// EC2.
    pub ec2: Ec2,
    /// First back-off of a batch.
    pub back_off: SignedDuration,
    /// Prices.
    pub prices: PriceBook,
    /// Clock of everything EC2's time rules.
    pub clock: crate::clock::Clock,
    /// Logging.
    pub log: LogConfig,
    /// Decisions kept for `/debug/record`; `None`: the endpoint does not exist.
    pub decisions: Option<usize>,
}

/// Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// Validity in whole seconds.
    pub duration_seconds: u64,
    /// Renewed this many seconds before it ends.
    pub grace_seconds: u64,
}

/// EC2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ec2 {
    /// Region.
    pub region: Option<String>,
    /// Endpoint other than AWS's own.
    pub endpoint_url: Option<String>,
    /// Longest wait for a launch's answer.
    pub launch_timeout: Option<SignedDuration>,
    /// URL or name of the queue that EventBridge fills with notices about instances.
    pub interruption_queue: Option<String>,
    /// Nothing is ever bought.
    pub disabled: bool,
}

impl Config {
    /// Reads and checks a file; without one, the defaults.
    ///
    /// Errors: file, key and value, with the remedy.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(path) = path else { return Self::validate(Raw::default()) };
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.display().to_string(), source })?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Reads and checks a text; `name` stands in messages.
    pub fn parse(text: &str, name: &str) -> Result<Self, ConfigError> {
        let raw: Raw = if text.trim().is_empty() {
            Raw::default()
        } else {
            serde_saphyr::from_str(text)
                .map_err(|error| ConfigError::Parse { path: name.to_owned(), message: error.to_string() })?
        };
        Self::validate(raw)
    }

    fn validate(raw: Raw) -> Result<Self, ConfigError> {
        if raw.scheduler_names.is_empty() {
            return Err(value("schedulerNames", "is empty; name at least one profile, such as muster"));
        }
        let http_timeout = duration("bind.httpTimeout", &raw.bind.http_timeout)?;
        let hold = duration("bind.hold", &raw.bind.hold)?;
        if hold >= http_timeout {
            return Err(value(
                "bind.hold",
                format!("{} is not below bind.httpTimeout {}", raw.bind.hold, raw.bind.http_timeout),
            ));
        }
        let lease = Lease {
            name: raw.lease.name,
            namespace: raw.lease.namespace,
            duration_seconds: seconds("lease.duration", &raw.lease.duration)?,
            grace_seconds: seconds("lease.grace", &raw.lease.grace)?,
        };
        if lease.grace_seconds >= lease.duration_seconds {
            return Err(value("lease.grace", "is not below lease.duration"));
        }
        let levels = if raw.topology.levels.is_empty() {
            Levels::default()
        } else {
            let levels = raw
                .topology
                .levels
                .into_iter()
                .map(|level| Level { name: level.name.into(), key: level.key.into() })
                .collect();
            Levels::new(levels).map_err(|error| value("topology.levels", error.to_string()))?
        };
        let mut prices = PriceBook::default();
        for (instance_type, price) in raw.prices {
            let key = format!("prices.{instance_type}.usdPerHour");
            let micros = micro_dollars(&price.usd_per_hour)
                .ok_or_else(|| value(key, format!("\"{}\" is not an amount such as \"55.04\"", price.usd_per_hour)))?;
            prices.set(&instance_type, None, CapacityType::OnDemand, micros);
        }
        Ok(Self {
            scheduler_names: raw.scheduler_names,
            accelerators: raw.accelerators,
            extender: address("extender.listen", &raw.extender.listen)?,
            http: address("http.listen", &raw.http.listen)?,
            http_timeout,
            hold,
            bind_parallel: count("bind.parallel", raw.bind.parallel)?,
            settle: duration("release.settle", &raw.release.settle)?,
            rehint: duration("release.rehint", &raw.release.rehint)?,
            release_parallel: count("release.parallel", raw.release.parallel)?,
            expiry: duration("release.expiry", &raw.release.expiry)?,
            lease,
            levels,
            access: ClusterAccess {
                name: raw.cluster.name,
                endpoint: raw.cluster.endpoint,
                certificate_authority: raw.cluster.certificate_authority,
                service_cidr: raw.cluster.service_cidr,
            },
            ec2: Ec2 {
                region: raw.ec2.region,
                endpoint_url: raw.ec2.endpoint_url,
                launch_timeout: raw.ec2.launch_timeout.map(|text| duration("ec2.launchTimeout", &text)).transpose()?,
                interruption_queue: raw.ec2.interruption_queue.filter(|queue| !queue.is_empty()),
                disabled: raw.ec2.disabled,
            },
            back_off: duration("provisioner.backOff", &raw.provisioner.back_off)?,
            prices,
            clock: match (raw.clock.origin, raw.clock.factor) {
                (None, None | Some(1)) => crate::clock::Clock::real(),
                (origin, Some(0)) => {
                    return Err(value("clock.factor", format!("0 makes time stand still ({origin:?})")));
                }
                (origin, factor) => {
                    crate::clock::Clock::scaled(origin.unwrap_or_else(crate::clock::now_real), factor.unwrap_or(1))
                }
            },
            log: LogConfig { filter: raw.log.filter, format: raw.log.format },
            decisions: raw.debug.enabled.then(|| count("debug.decisions", raw.debug.decisions)).transpose()?,
        })
    }
}

fn duration(key: &str, text: &str) -> Result<SignedDuration, ConfigError> {
    let parsed: Result<SignedDuration, _> = text.parse();
    parsed
        .ok()
        .filter(|duration| *duration > SignedDuration::ZERO)
        .ok_or_else(|| value(key, format!("\"{text}\" is not a duration such as 200ms, 55s or 5m")))
}

fn seconds(key: &str, text: &str) -> Result<u64, ConfigError> {
    let duration = duration(key, text)?;
    u64::try_from(duration.as_secs())
        .ok()
        .filter(|seconds| *seconds > 0 && duration.subsec_nanos() == 0)
        .ok_or_else(|| value(key, format!("\"{text}\" is not a whole number of seconds")))
}

fn address(key: &str, text: &str) -> Result<SocketAddr, ConfigError> {
    text.parse().map_err(|_| value(key, format!("\"{text}\" is not an address such as 127.0.0.1:8888")))
}

fn count(key: &str, number: u32) -> Result<usize, ConfigError> {
    usize::try_from(number)
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| value(key, "0 would stop everything; use 1 or more"))
}

fn micro_dollars(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 6 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let fraction: u64 = if fraction.is_empty() { 0 } else { format!("{fraction:0<6}").parse().ok()? };
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str, wanted: &[&str]) {
        let error = Config::parse(text, "muster.yaml").unwrap_err().to_string();
        for part in wanted {
            assert!(error.contains(part), "{error:?} does not name {part:?}");
        }
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        let config = Config::parse("", "muster.yaml").unwrap();
        assert_eq!(config.scheduler_names, ["muster"]);
        assert_eq!(config.hold, SignedDuration::from_secs(55));
    }

    #[test]
    fn an_unknown_key_is_refused_by_name() {
        refused("bind: {holdd: 5s}", &["muster.yaml", "holdd"]);
        refused("bindd: {}", &["bindd"]);
    }

    #[test]
    fn a_bad_value_names_key_value_and_remedy() {
        refused("bind: {hold: soon}", &["bind.hold", "soon", "55s"]);
        refused("bind: {hold: 70s}", &["bind.hold", "70s", "httpTimeout"]);
        refused("extender: {listen: nowhere}", &["extender.listen", "nowhere", "127.0.0.1"]);
        refused("lease: {grace: 20s}", &["lease.grace"]);
        refused("prices: {p5.48xlarge: {usdPerHour: much}}", &["prices.p5.48xlarge", "much"]);
        refused(
            "topology: {levels: [{name: host, key: kubernetes.io/hostname}, {name: zone, key: z}]}",
            &["topology.levels"],
        );
    }

    #[test]
    fn amounts_are_exact() {
        assert_eq!(micro_dollars("55.04"), Some(55_040_000));
        assert_eq!(micro_dollars("55"), Some(55_000_000));
        assert_eq!(micro_dollars("0.0000001"), None);
        assert_eq!(micro_dollars("-1"), None);
    }
}
