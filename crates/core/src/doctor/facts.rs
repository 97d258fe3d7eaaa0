//! What is known of account and cluster. An error is a fact too.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;

pub use crate::devices::{Daemon, Role};
use crate::ec2::{CallError, EksCluster, Family, SecurityGroup, Subnet, VcpuQuota};
use crate::model::node;
use crate::skew::Minor;

/// What somebody answered, or why there is no answer.
pub type Answer<T> = Result<T, String>;

/// The actions that only read, each asked for by a dry run.
pub const READS: [&str; 13] = [
    "ec2:DescribeCapacityReservations",
    "ec2:DescribeFleets",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceStatus",
    "ec2:DescribeInstanceTopology",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeInstances",
    "ec2:DescribeLaunchTemplates",
    "ec2:DescribePlacementGroups",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSpotPriceHistory",
    "ec2:DescribeSubnets",
];

/// Everything that is judged.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The configuration.
    pub configuration: Configuration,
    /// The cluster.
    pub cluster: Cluster,
    /// The account; `None` where no Region is configured, or EC2 is disabled.
    pub account: Option<Account>,
    /// EC2NodeClasses in order of name.
    pub classes: Vec<Class>,
    /// NodePools in order of name.
    pub pools: Vec<Pool>,
}

/// What the configuration says.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    /// `ec2.disabled`.
    pub disabled: bool,
    /// The Region, if there is one.
    pub region: Option<String>,
    /// What is wrong with the way to the cluster.
    pub wrong_access: Vec<String>,
    /// Whether `provisioner.maxUsdPerHour` is set.
    pub ceiling: bool,
    /// Whether `provisioner.dryRun` is set.
    pub dry_run: bool,
}

/// What the API server says.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// How far its clock is ahead of this machine's; `None` where it does not tell the time.
    pub ahead: Option<SignedDuration>,
    /// Its version.
    pub api_server: Option<Minor>,
    /// Versions of the kube-schedulers in Muster's namespace; `None` of one whose image names none.
    pub schedulers: Vec<Option<Minor>>,
    /// Permissions that the one who asks lacks, `verb resource.group`.
    pub missing: Option<Answer<Vec<String>>>,
    /// Which kinds of ours are served, by name.
    pub kinds: BTreeMap<String, bool>,
    /// Fields of ours that their definitions drop, one per kind; `None` where nobody asked.
    pub unknown: Option<Answer<Vec<String>>>,
    /// DaemonSets in order of namespace and name.
    pub daemons: Option<Answer<Vec<Daemon>>>,
    /// Whether NVIDIA's GPU operator has a ClusterPolicy: its DaemonSets come with the first GPU node. `None` where nobody asked.
    pub gpu_operator: Option<Answer<bool>>,
    /// Nodes in order of name.
    pub nodes: Option<Answer<Vec<Node>>>,
    /// How each of Muster's Pods gets an identity of AWS, in order of name.
    pub identities: Vec<(String, PodIdentity)>,
}

/// How a Pod gets an identity of AWS, by what was put into it when it was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodIdentity {
    /// EKS Pod Identity: it asks the agent on its node.
    Agent,
    /// IRSA: it has a token of the cluster.
    Token,
    /// Nothing was put into it.
    Nothing,
}

/// A node as far as it is judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Whether it is of a NodePool of ours.
    pub ours: bool,
    /// Its labels.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
}

/// What AWS says of the identity.
#[derive(Clone, Debug)]
pub struct Account {
    /// The first call: whether AWS knows who asks.
    pub first: Result<(), CallError>,
    /// Dry runs by action, in order; empty if nobody is known.
    pub actions: Vec<(String, Trial)>,
    /// The queue, if one is configured.
    pub queue: Option<Queue>,
    /// The cluster as EKS describes it; `None` where it has no name.
    pub cluster: Option<Result<EksCluster, CallError>>,
    /// Virtual CPUs that may be in use at once, by the code of the quota; none where nobody was asked.
    pub quotas: BTreeMap<&'static str, Result<u32, CallError>>,
    /// The type of the access entry of each role that nodes get, by the role's name; none where EKS was not asked.
    pub entries: Vec<(String, Result<Option<String>, CallError>)>,
}

/// A dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trial {
    /// It would be carried out.
    Passed,
    /// It would be refused.
    Refused(CallError),
    /// Nothing to try it on: the text says what is lacking.
    NothingToTry(&'static str),
}

impl From<Result<(), CallError>> for Trial {
    fn from(answer: Result<(), CallError>) -> Self {
        answer.map_or_else(Self::Refused, |()| Self::Passed)
    }
}

/// The queue of interruption notices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Why it was not found: SQS's code, and what happened.
    pub error: Option<(Option<String>, String)>,
}

/// What Muster wrote into an object's condition `Ready`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ready {
    /// `True`.
    Yes,
    /// `False`: reason and message.
    No(String, String),
    /// `muster serve` has not looked at it.
    #[default]
    Unseen,
}

/// An EC2NodeClass.
#[derive(Clone, Debug)]
pub struct Class {
    /// Name.
    pub name: String,
    /// Condition `Ready`.
    pub ready: Ready,
    /// Family of its images.
    pub family: Family,
    /// Its instance profile, if it names one.
    pub profile: Option<String>,
    /// Whether a type of one of its pools carries EFA devices.
    pub efa: bool,
    /// What its terms choose; `None` where AWS was not asked.
    pub subnets: Option<Result<Vec<Subnet>, CallError>>,
    /// What its terms choose; `None` where AWS was not asked.
    pub groups: Option<Result<Vec<SecurityGroup>, CallError>>,
    /// Its images; `None` where AWS was not asked.
    pub images: Option<Images>,
    /// A launch with it.
    pub launch: Option<Trial>,
}

/// The images of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Images {
    /// Ids that exist.
    Found(Vec<String>),
    /// None, and why.
    None(String),
}

/// A quota that launches of a pool count towards, and what they need of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The quota.
    pub quota: VcpuQuota,
    /// The type with the fewest virtual CPUs among those of the pool that count towards it.
    pub smallest: String,
    /// Its virtual CPUs.
    pub vcpu: u32,
}

/// A NodePool.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Name.
    pub name: String,
    /// Condition `Ready`.
    pub ready: Ready,
    /// Name of its EC2NodeClass.
    pub class: String,
    /// Family of the images of its class.
    pub family: Family,
    /// Whether it allows spot.
    pub spot: bool,
    /// Whether it allows reservations, and its class chooses some: their capacity counts towards no quota at a launch.
    pub reserved: bool,
    /// Quotas that its launches count towards, in order of capacity type and code; none where the Region's types are not known.
    pub quotas: Vec<Counted>,
    /// Types that it allows; `None` where the Region's types are not known.
    pub types: Option<Vec<String>>,
    /// Of these, the ones that are offered in a zone with a subnet of its class; `None` where that is not known.
    pub offered: Option<Vec<String>>,
    /// A node of one of its types for each device that its nodes carry.
    pub nodes: Vec<node::Node>,
}
