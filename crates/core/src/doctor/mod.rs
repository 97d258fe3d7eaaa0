//! What stands between an account with a cluster and its first gang: facts in, findings out, each with what mends it.
//!
//! Nothing here asks anybody: who gathers the facts reads, and changes nothing.

mod account;
mod cluster;
mod devices;
mod facts;
mod joining;
mod quotas;

use std::fmt;

use serde::Serialize;

pub use crate::devices::role;
pub use facts::{
    Account, Answer, Class, Cluster, Configuration, Counted, Daemon, Facts, Images, Node, PodIdentity, Pool, Queue,
    READS, Ready, Role, Trial,
};
pub use quotas::counted;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As it must be.
    Ok,
    /// It works, or may work, and not as it should.
    Warn,
    /// It does not work.
    Fail,
    /// Not looked at: the message says why.
    Skipped,
}

impl Outcome {
    /// Spelling in the table and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
            Self::Skipped => "skipped",
        }
    }
}

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// Region, ceiling and the way to the cluster, in the configuration.
    Configuration,
    /// This machine's clock.
    Clock,
    /// Versions of API server and kube-scheduler.
    Versions,
    /// Kubernetes permissions.
    Rbac,
    /// Muster's own kinds.
    Kinds,
    /// Whether AWS knows who asks.
    Credentials,
    /// How Muster's Pods get their AWS identity.
    PodIdentity,
    /// AWS permissions.
    Permissions,
    /// The queue of interruption notices.
    Queue,
    /// Whether the cluster lets nodes of ours join.
    Authentication,
    /// The role that an account needs for spot.
    SpotRole,
    /// EC2NodeClasses as Muster sees them.
    NodeClass,
    /// Subnets of an EC2NodeClass.
    Subnets,
    /// Security groups of an EC2NodeClass.
    SecurityGroups,
    /// Images of an EC2NodeClass.
    Images,
    /// A launch with an EC2NodeClass, asked for and not carried out.
    Launch,
    /// NodePools as Muster sees them.
    NodePool,
    /// Instance types of a NodePool.
    InstanceTypes,
    /// What the account may run of a NodePool's types.
    Quotas,
    /// DaemonSets that bring devices.
    Devices,
    /// The DaemonSet of the pod network.
    Network,
    /// The DaemonSet that makes Services work.
    KubeProxy,
    /// Labels that place a node in the network.
    TopologyLabels,
}

impl Check {
    /// Spelling in the table and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Clock => "clock",
            Self::Versions => "versions",
            Self::Rbac => "rbac",
            Self::Kinds => "kinds",
            Self::Credentials => "credentials",
            Self::PodIdentity => "pod-identity",
            Self::Permissions => "permissions",
            Self::Queue => "queue",
            Self::Authentication => "authentication",
            Self::SpotRole => "spot-role",
            Self::NodeClass => "node-class",
            Self::Subnets => "subnets",
            Self::SecurityGroups => "security-groups",
            Self::Images => "images",
            Self::Launch => "launch",
            Self::NodePool => "node-pool",
            Self::InstanceTypes => "instance-types",
            Self::Quotas => "quotas",
            Self::Devices => "devices",
            Self::Network => "network",
            Self::KubeProxy => "kube-proxy",
            Self::TopologyLabels => "topology-labels",
        }
    }
}

/// The result of one check of one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What was checked.
    pub check: Check,
    /// Of what: an object, an action; empty where there is but one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// How it ended.
    pub result: Outcome,
    /// What was found.
    pub message: String,
    /// The command that mends it, or the field that has to change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: Check, subject: &str, message: impl Into<String>) -> Self {
        Self::of(check, subject, Outcome::Ok, message, None)
    }

    pub(super) fn skipped(check: Check, subject: &str, message: impl Into<String>) -> Self {
        Self::of(check, subject, Outcome::Skipped, message, None)
    }

    pub(super) fn warn(check: Check, subject: &str, message: impl Into<String>, mend: impl Into<String>) -> Self {
        Self::of(check, subject, Outcome::Warn, message, Some(mend.into()))
    }

    pub(super) fn fail(check: Check, subject: &str, message: impl Into<String>, mend: impl Into<String>) -> Self {
        Self::of(check, subject, Outcome::Fail, message, Some(mend.into()))
    }

    fn of(check: Check, subject: &str, result: Outcome, message: impl Into<String>, mend: Option<String>) -> Self {
        Self { check, subject: subject.to_owned(), result, message: message.into(), mend }
    }
}

/// All findings, in the order in which they are best mended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The findings.
    pub checks: Vec<Finding>,
}

impl Report {
    /// How many checks ended so.
    #[must_use]
    pub fn count(&self, result: Outcome) -> usize {
        self.checks.iter().filter(|finding| finding.result == result).count()
    }

    /// Whether something does not work.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.count(Outcome::Fail) > 0
    }
}

/// A table: one line for each finding, and below those that are not as they must be, what mends them.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |of: fn(&Finding) -> usize, least: usize| self.checks.iter().map(of).max().unwrap_or(0).max(least);
        let check = width(|finding| finding.check.as_str().len(), "CHECK".len());
        let subject = width(|finding| finding.subject.chars().count(), "SUBJECT".len());
        writeln!(f, "{:check$}  {:subject$}  {:7}  MESSAGE", "CHECK", "SUBJECT", "RESULT")?;
        for finding in &self.checks {
            let Finding { check: of, subject: what, result, message, mend } = finding;
            writeln!(f, "{:check$}  {what:subject$}  {:7}  {message}", of.as_str(), result.as_str())?;
            if let Some(mend) = mend {
                writeln!(f, "{:check$}  {:subject$}  {:7}  fix: {mend}", "", "", "")?;
            }
        }
        let of = |result: Outcome| format!("{} {}", self.count(result), result.as_str());
        let all = [Outcome::Ok, Outcome::Warn, Outcome::Fail, Outcome::Skipped].map(of);
        write!(f, "{}", all.join(", "))
    }
}

/// Judges everything that was gathered.
#[must_use]
pub fn judge(facts: &Facts) -> Report {
    let mut checks = Vec::new();
    cluster::configuration(facts, &mut checks);
    cluster::around(&facts.cluster, &mut checks);
    account::identity(facts, &mut checks);
    joining::judge(facts, &mut checks);
    account::classes(facts, &mut checks);
    cluster::pools(facts, &mut checks);
    quotas::judge(facts, &mut checks);
    devices::judge(facts, &mut checks);
    cluster::labels(&facts.cluster, &mut checks);
    Report { checks }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
