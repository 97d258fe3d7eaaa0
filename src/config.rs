//! Configuration of `muster serve`: one YAML file, every key known, every value checked before anything starts.

mod page;
mod provisioner;
mod tls;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::Path;

use jiff::SignedDuration;
use muster_core::ec2::{CapacityType, ClusterAccess};
use muster_core::gang::Pin;
use muster_core::offering::{Ceiling, Change, Override, PriceBook, micro_dollars};
use muster_core::topology::{Level, Levels};
use serde::Deserialize;
use thiserror::Error;

use crate::cloud::{CallClass, Changes, Limit, LimitSettings};
use crate::server::TlsFiles;
use crate::telemetry::{LogConfig, LogFormat};
use page::RawPage;
use provisioner::{RawProvisioner, profiles, window};
use tls::RawTls;

pub use page::PageAt;

/// What can be wrong with a configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("read {path}")]
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
    #[error("{}{key}: {message}", .path.as_ref().map(|path| format!("{path}: ")).unwrap_or_default())]
    Value {
        /// Path, where the value is from a file.
        path: Option<String>,
        /// Key.
        key: String,
        /// What is wrong and how to fix it.
        message: String,
    },
}

fn value(key: impl Into<String>, message: impl Into<String>) -> ConfigError {
    ConfigError::Value { path: None, key: key.into(), message: message.into() }
}

impl ConfigError {
    /// The same error, of a value in this file.
    fn within(self, name: &str) -> Self {
        match self {
            Self::Value { key, message, .. } => Self::Value { path: Some(name.to_owned()), key, message },
            other => other,
        }
    }
}

/// The file, as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Raw {
    scheduler_names: Vec<String>,
    accelerators: Vec<String>,
    extender: RawExtender,
    http: RawListen,
    page: RawPage,
    bind: RawBind,
    release: RawRelease,
    state: RawState,
    watch: RawWatch,
    lease: RawLease,
    topology: RawTopology,
    cluster: RawCluster,
    ec2: RawEc2,
    provisioner: RawProvisioner,
    prices: BTreeMap<String, RawPrice>,
    price_overrides: Vec<RawPriceOverride>,
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
            extender: RawExtender::default(),
            state: RawState::default(),
            watch: RawWatch::default(),
            http: RawListen { listen: "127.0.0.1:8080".to_owned() },
            page: RawPage::default(),
            bind: RawBind::default(),
            release: RawRelease::default(),
            lease: RawLease::default(),
            topology: RawTopology::default(),
            cluster: RawCluster::default(),
            ec2: RawEc2::default(),
            provisioner: RawProvisioner::default(),
            prices: BTreeMap::new(),
            price_overrides: Vec::new(),
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
struct RawExtender {
    listen: String,
    tls: Option<RawTls>,
}

impl Default for RawExtender {
    fn default() -> Self {
        Self { listen: "127.0.0.1:8888".to_owned(), tls: None }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawState {
    max_age: String,
}

impl Default for RawState {
    fn default() -> Self {
        Self { max_age: "150s".to_owned() }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawWatch {
    released: String,
    committing: String,
    exclude_ttl: String,
}

impl Default for RawWatch {
    fn default() -> Self {
        Self { released: "30s".to_owned(), committing: "30s".to_owned(), exclude_ttl: "10m".to_owned() }
    }
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
    pin: String,
    #[serde(alias = "rehint")]
    renominate: String,
    parallel: u32,
    expiry: String,
}

impl Default for RawRelease {
    fn default() -> Self {
        Self {
            settle: "200ms".to_owned(),
            pin: "never".to_owned(),
            renominate: "10s".to_owned(),
            parallel: 32,
            expiry: "5m".to_owned(),
        }
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
            service_cidr: String::new(),
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawEc2 {
    region: Option<String>,
    endpoint_url: Option<String>,
    launch_timeout: Option<String>,
    rate_limits: BTreeMap<String, RawLimit>,
    interruption_queue: Option<String>,
    isolated: bool,
    disabled: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawLimit {
    burst: NonZeroU32,
    per_second: NonZeroU32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawPriceOverride {
    instance_type: Option<String>,
    zone: Option<String>,
    capacity_type: Option<String>,
    usd_per_hour: Option<String>,
    percent: Option<String>,
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
    /// Mutual TLS there; plain HTTP without.
    pub tls: Option<TlsFiles>,
    /// Health and metrics.
    pub http: SocketAddr,
    /// Where the page of the cluster is; `None`: there is none.
    pub page: Option<PageAt>,
    /// `httpTimeout` of kube-scheduler's binding stanza.
    pub http_timeout: SignedDuration,
    /// How long the barrier holds.
    pub hold: SignedDuration,
    /// Bindings posted at once.
    pub bind_parallel: usize,
    /// Between a plan persisted and its release.
    pub settle: SignedDuration,
    /// How members are sent to their planned nodes.
    pub pin: Pin,
    /// A patch that was not observed is repeated after this.
    pub renominate: SignedDuration,
    /// Members released at once.
    pub release_parallel: usize,
    /// A released, unbound plan is withdrawn after this.
    pub expiry: SignedDuration,
    /// A watch that was not heard from for longer is not trusted.
    pub max_age: SignedDuration,
    /// A released member that does not arrive is looked into after this.
    pub watch_released: SignedDuration,
    /// A committed member that is not bound is looked into after this.
    pub watch_committing: SignedDuration,
    /// A node that kube-scheduler refused for a shape is excluded for this long.
    pub exclude_ttl: SignedDuration,
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
    /// Pods of no gang are planned once none has come for this long.
    pub batch_idle: SignedDuration,
    /// They are planned this long after the first at the latest.
    pub batch_max: SignedDuration,
    /// `schedulerName`s of profiles that are not ours and whose pods of no gang are provisioned for too.
    pub provisioner_scheduler_names: Vec<String>,
    /// Most dollars per hour of everything that is provisioned; nothing is provisioned without.
    pub ceiling: Option<Ceiling>,
    /// Whether calls that change something in EC2 are sent.
    pub changes: Changes,
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
    /// Rate limits of our own calls.
    pub limits: LimitSettings,
    /// URL or name of the queue that EventBridge fills with notices about instances.
    pub interruption_queue: Option<String>,
    /// There is no way to services without an endpoint in the VPC: IAM and the Price List API are never called.
    pub isolated: bool,
    /// Nothing is ever provisioned.
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
        Self::validate(raw).map_err(|error| error.within(name))
    }

    fn validate(raw: Raw) -> Result<Self, ConfigError> {
        if raw.scheduler_names.is_empty() {
            return Err(value("schedulerNames", "is empty; name at least one profile, such as muster"));
        }
        let provisioned = profiles("provisioner.schedulerNames", raw.provisioner.scheduler_names)?;
        let (batch_idle, batch_max) = window(&raw.provisioner.batch_idle, &raw.provisioner.batch_max)?;
        let http_timeout = duration("bind.httpTimeout", &raw.bind.http_timeout)?;
        let hold = duration("bind.hold", &raw.bind.hold)?;
        if hold >= http_timeout {
            return Err(value(
                "bind.hold",
                format!(
                    "{} is not below bind.httpTimeout {}: kube-scheduler gives up before a gang is answered; choose some seconds less",
                    raw.bind.hold, raw.bind.http_timeout
                ),
            ));
        }
        let lease = Lease {
            name: raw.lease.name,
            namespace: raw.lease.namespace,
            duration_seconds: seconds("lease.duration", &raw.lease.duration)?,
            grace_seconds: seconds("lease.grace", &raw.lease.grace)?,
        };
        if lease.grace_seconds >= lease.duration_seconds {
            return Err(value(
                "lease.grace",
                format!(
                    "{} is not below lease.duration {}: whoever leads renews the lease so long before it runs out; choose a third of \
                     the duration",
                    raw.lease.grace, raw.lease.duration
                ),
            ));
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
            prices.change(Override {
                instance_type: Some(instance_type),
                zone: None,
                capacity_type: Some(CapacityType::OnDemand),
                change: Change::Absolute(micros),
            });
        }
        for (index, raw) in raw.price_overrides.into_iter().enumerate() {
            prices.change(price_override(index, raw)?);
        }
        Ok(Self {
            scheduler_names: raw.scheduler_names,
            accelerators: raw.accelerators,
            extender: address("extender.listen", &raw.extender.listen)?,
            tls: raw.extender.tls.map(mutual).transpose()?,
            max_age: duration("state.maxAge", &raw.state.max_age)?,
            watch_released: duration("watch.released", &raw.watch.released)?,
            watch_committing: duration("watch.committing", &raw.watch.committing)?,
            exclude_ttl: duration("watch.excludeTtl", &raw.watch.exclude_ttl)?,
            http: address("http.listen", &raw.http.listen)?,
            page: page::page(raw.page)?,
            http_timeout,
            hold,
            bind_parallel: count("bind.parallel", raw.bind.parallel)?,
            settle: duration("release.settle", &raw.release.settle)?,
            pin: match raw.release.pin.as_str() {
                "never" => Pin::Never,
                "auto" => Pin::Auto,
                other => return Err(value("release.pin", format!("\"{other}\" is neither never nor auto"))),
            },
            renominate: duration("release.renominate", &raw.release.renominate)?,
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
                limits: limits(&raw.ec2.rate_limits)?,
                launch_timeout: raw.ec2.launch_timeout.map(|text| duration("ec2.launchTimeout", &text)).transpose()?,
                interruption_queue: raw.ec2.interruption_queue.filter(|queue| !queue.is_empty()),
                isolated: raw.ec2.isolated,
                disabled: raw.ec2.disabled,
            },
            back_off: duration("provisioner.backOff", &raw.provisioner.back_off)?,
            batch_idle,
            batch_max,
            provisioner_scheduler_names: provisioned,
            changes: if raw.provisioner.dry_run { Changes::Withheld } else { Changes::Sent },
            ceiling: raw.provisioner.max_usd_per_hour.as_deref().map(ceiling).transpose()?,
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

/// kube-scheduler is known by its certificate.
fn mutual(tls: RawTls) -> Result<TlsFiles, ConfigError> {
    let files = tls.files("extender.tls")?;
    let unknown =
        || value("extender.tls.clientCaFile", "is missing: kube-scheduler is known by a certificate of it alone");
    if files.client_authority.is_some() { Ok(files) } else { Err(unknown()) }
}

fn duration(key: impl Into<String>, text: &str) -> Result<SignedDuration, ConfigError> {
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

fn limits(raw: &BTreeMap<String, RawLimit>) -> Result<LimitSettings, ConfigError> {
    let mut limits = LimitSettings::default();
    for (name, limit) in raw {
        let class = CallClass::ALL.into_iter().find(|class| class.as_str() == name).ok_or_else(|| {
            let known: Vec<&str> = CallClass::ALL.into_iter().map(CallClass::as_str).collect();
            value(format!("ec2.rateLimits.{name}"), format!("is no class of calls; use one of {}", known.join(", ")))
        })?;
        limits.set(class, Limit { burst: limit.burst, per_second: limit.per_second });
    }
    Ok(limits)
}

/// Dollars per hour, or `unlimited`.
fn ceiling(text: &str) -> Result<Ceiling, ConfigError> {
    if text == "unlimited" {
        return Ok(Ceiling::Unlimited);
    }
    micro_dollars(text).map(Ceiling::At).ok_or_else(|| {
        let message = format!("\"{text}\" is neither an amount of dollars per hour such as \"440.32\" nor unlimited");
        value("provisioner.maxUsdPerHour", message)
    })
}

fn price_override(index: usize, raw: RawPriceOverride) -> Result<Override, ConfigError> {
    let key = |field: &str| format!("priceOverrides[{index}]{field}");
    let RawPriceOverride { instance_type, zone, capacity_type, usd_per_hour, percent } = raw;
    let capacity_type = capacity_type
        .map(|text| {
            CapacityType::parse(&text)
                .ok_or_else(|| value(key(".capacityType"), format!("\"{text}\" is not reserved, on-demand or spot")))
        })
        .transpose()?;
    let change = match (usd_per_hour, percent) {
        (Some(text), None) => Change::Absolute(
            micro_dollars(&text)
                .ok_or_else(|| value(key(".usdPerHour"), format!("\"{text}\" is not an amount such as \"55.04\"")))?,
        ),
        // Hundredths of a percent: the places behind the second are cut.
        (None, Some(text)) => Change::Share(
            micro_dollars(&text)
                .and_then(|micros| u32::try_from(micros / 10_000).ok())
                .ok_or_else(|| value(key(".percent"), format!("\"{text}\" is not a share such as \"72.5\"")))?,
        ),
        (Some(_), Some(_)) | (None, None) => {
            return Err(value(key(""), "needs either usdPerHour or percent"));
        }
    };
    Ok(Override { instance_type, zone, capacity_type, change })
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
        assert_eq!(config.pin, Pin::Never);
        assert_eq!(Config::parse("release: {pin: auto}", "muster.yaml").unwrap().pin, Pin::Auto);
    }

    #[test]
    fn an_unknown_key_is_refused_by_name() {
        refused("bind: {holdd: 5s}", &["muster.yaml", "holdd"]);
        refused("bindd: {}", &["bindd"]);
    }

    #[test]
    fn a_bad_value_names_key_value_and_remedy() {
        refused("bind: {hold: soon}", &["bind.hold", "soon", "55s"]);
        refused("bind: {hold: 70s}", &["muster.yaml: bind.hold: ", "70s", "httpTimeout"]);
        refused("lease: {duration: 15s, grace: 20s}", &["lease.grace", "20s", "lease.duration 15s"]);
        refused("extender: {listen: nowhere}", &["extender.listen", "nowhere", "127.0.0.1"]);
        refused("extender: {tls: {certFile: a, keyFile: b}}", &["clientCaFile"]);
        refused(
            "extender: {tls: {certFile: a, keyFile: b, clientCaFile: c, reload: never}}",
            &["extender.tls.reload", "never"],
        );
        refused("page: {listen: '0.0.0.0:7070'}", &["page.listen", "0.0.0.0:7070", "127.0.0.1:7070", "port-forward"]);
        refused("page: {tls: {certFile: a, keyFile: b}}", &["page.tls", "page.listen"]);
        refused("page: {listen: '0.0.0.0:7070', tls: {certFile: a}}", &["page", "keyFile"]);
        refused("page: {listen: '0.0.0.0:7070', tls: {certFile: a, keyFile: b, reload: x}}", &["page.tls.reload", "x"]);
        for (authority, clients) in [("", None), (", clientCaFile: c", Some("c".into()))] {
            let text = format!("page: {{listen: '0.0.0.0:7070', tls: {{certFile: a, keyFile: b{authority}}}}}");
            let page = Config::parse(&text, "muster.yaml").unwrap().page.unwrap();
            assert_eq!(page.tls.unwrap().client_authority, clients);
        }
        refused("state: {maxAge: 0s}", &["state.maxAge", "0s"]);
        refused("watch: {excludeTtl: x}", &["watch.excludeTtl"]);
        refused("release: {pin: always}", &["release.pin", "always", "never", "auto"]);
        refused("lease: {grace: 20s}", &["lease.grace"]);
        refused("prices: {p5.48xlarge: {usdPerHour: much}}", &["prices.p5.48xlarge", "much"]);
        refused(
            "topology: {levels: [{name: host, key: kubernetes.io/hostname}, {name: zone, key: z}]}",
            &["topology.levels"],
        );
    }

    #[test]
    fn prices_are_overridden_by_amount_or_share_for_type_zone_and_capacity_type() {
        let text = "prices: {p5.48xlarge: {usdPerHour: '41.50'}}\n\
                    priceOverrides:\n\
                    - {percent: '72.5', capacityType: on-demand}\n\
                    - {instanceType: p5e.48xlarge, zone: us-east-1a, usdPerHour: '40'}\n";
        let prices = Config::parse(text, "muster.yaml").unwrap().prices;
        let on_demand = |name, zone| prices.price(name, zone, CapacityType::OnDemand);
        assert_eq!(on_demand("p5.48xlarge", "us-east-1a"), Some(41_500_000));
        assert_eq!(on_demand("p5.4xlarge", "us-east-1a"), Some(4_988_000));
        assert_eq!(on_demand("p5e.48xlarge", "us-east-1a"), Some(40_000_000));
        assert_eq!(on_demand("p5e.48xlarge", "us-east-1b"), None);
        refused("priceOverrides: [{instanceType: x}]", &["priceOverrides[0]", "usdPerHour", "percent"]);
        refused("priceOverrides: [{percent: x}]", &["priceOverrides[0].percent", "72.5"]);
        refused("priceOverrides: [{percent: '5', capacityType: cheap}]", &["capacityType", "cheap", "spot"]);
    }

    #[test]
    fn the_ceiling_on_dollars_is_an_amount_or_unlimited_and_there_is_none_by_default() {
        let ceiling = |text: &str| Config::parse(text, "muster.yaml").unwrap().ceiling;
        assert_eq!(ceiling(""), None);
        assert_eq!(ceiling("provisioner: {maxUsdPerHour: unlimited}"), Some(Ceiling::Unlimited));
        assert_eq!(ceiling("provisioner: {maxUsdPerHour: '440.32'}"), Some(Ceiling::At(440_320_000)));
        assert_eq!(ceiling("provisioner: {maxUsdPerHour: 500}"), Some(Ceiling::At(500_000_000)));
        refused("provisioner: {maxUsdPerHour: much}", &["provisioner.maxUsdPerHour", "much", "unlimited"]);
    }

    #[test]
    fn a_dry_run_must_be_asked_for() {
        assert_eq!(Config::parse("", "muster.yaml").unwrap().changes, Changes::Sent);
        let dry = Config::parse("provisioner: {dryRun: true}", "muster.yaml").unwrap();
        assert_eq!(dry.changes, Changes::Withheld);
    }

    #[test]
    fn rate_limits_are_those_of_ec2_unless_the_file_says_otherwise() {
        let limits = Config::parse("ec2: {rateLimits: {launch: {burst: 3, perSecond: 1}}}", "muster.yaml").unwrap();
        let limits = limits.ec2.limits;
        assert_eq!(limits.get(CallClass::Launch).burst.get(), 3);
        assert_eq!(limits.get(CallClass::Topology), CallClass::Topology.default_limit());
        refused("ec2: {rateLimits: {lunch: {burst: 3, perSecond: 1}}}", &["ec2.rateLimits.lunch", "cleanUp"]);
        refused("ec2: {rateLimits: {launch: {burst: 0, perSecond: 1}}}", &["muster.yaml"]);
    }
}
