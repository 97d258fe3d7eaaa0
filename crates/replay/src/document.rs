//! The published plan: a versioned document that an outside program can judge.
//!
//! All keys are always present, and what is absent is null. The order of every list is part of the contract. The
//! server's internal plan is another structure and may change without this one.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::ec2::CapacityType;
pub use muster_core::reason::Code;
use muster_core::reason::Help;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// The version this code writes.
pub const VERSION: u32 = 2;

/// What the planner would do with a dump.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Document {
    /// Version of this structure.
    #[schemars(extend("const" = 2))]
    pub version: u32,
    /// Name of the catalogue of instance types and prices; null if the dump has no NodePool.
    pub catalogue: Option<String>,
    /// The moment the plan is made for.
    pub now: Timestamp,
    /// Gangs in planning order: priority, creation, namespace and name.
    pub gangs: Vec<GangEntry>,
    /// Pending pods of the profile that belong to no gang, in planning order.
    pub pods: Vec<PodEntry>,
    /// Nodes to launch for those pods, in the order of their first pod.
    pub nodes: Vec<NodeEntry>,
    /// How they are launched: equal nodes in one call.
    pub launches: Vec<LaunchEntry>,
    /// What they cost.
    pub cost: Cost,
    /// What limits of NodePools have left, in order of pool and resource.
    pub limits: Vec<LimitEntry>,
    /// Objects of the dump that play no part, in order of kind and name.
    pub ignored: Vec<Ignored>,
}

/// One gang.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct GangEntry {
    /// Namespace.
    pub namespace: String,
    /// Its name as pods or owner write it.
    pub name: String,
    /// The convention that names it: `annotations`, `job`, `provisioning-request`.
    pub source: String,
    /// What becomes of it.
    pub outcome: Outcome,
    /// Roles in rank order.
    pub roles: Vec<RoleEntry>,
    /// Members with a place, in role order, then by rank. Empty unless placed or provisioned for.
    pub members: Vec<MemberEntry>,
    /// Every level, top to bottom; the last is the host.
    pub levels: Vec<LevelEntry>,
    /// How far the plan may be from the best.
    pub gap: Gap,
    /// How good the placement is.
    pub score: Score,
    /// Why it is not placed on the nodes of the dump; empty if it is.
    pub reasons: Vec<Reason>,
    /// What is provisioned; empty unless the outcome is `provision`.
    #[serde(rename = "buy")]
    pub provision: Vec<ProvisionEntry>,
}

/// What becomes of a gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Every member that can be placed runs or has a node.
    Placed,
    /// It is placed on nodes to be provisioned.
    #[serde(rename = "buy")]
    Provision,
    /// It is not complete, or somebody else holds it.
    Waiting,
    /// It fits nowhere, and nothing that may be provisioned holds it.
    Refused,
    /// A topology request cannot be read.
    Invalid,
}

/// Members with one template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RoleEntry {
    /// Name; empty for the only role.
    pub name: String,
    /// Members expected.
    pub count: u32,
    /// Members needed to start.
    pub min: u32,
}

/// One member with a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct MemberEntry {
    /// Pod name; null while its controller has not created it.
    pub pod: Option<String>,
    /// Pod UID; null while there is none.
    pub uid: Option<String>,
    /// Role.
    pub role: String,
    /// Rank within the role.
    pub rank: u32,
    /// Node name, or `new/<provision>/<k>`: node k, from 0, of entry `provision`, from 0, in the gang's `provision`.
    pub node: String,
    /// Whether it stands there already.
    pub state: MemberState,
}

/// Whether a member stands on its node already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    /// Bound to the node in the dump.
    Running,
    /// Placed there by this plan.
    Planned,
}

/// Domains used at one level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct LevelEntry {
    /// Label key.
    pub key: String,
    /// Distinct paths that hold a member, running ones included; 0 without members.
    pub used: u32,
    /// The fewest possible on this snapshot, given the levels above; null without members.
    pub optimum: Option<u32>,
}

/// How far the plan may be from the best: 0 if it is proven to be the best.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gap {
    /// Proven.
    None,
    /// The search ended before the proof did.
    Open {
        /// Field of the objective.
        field: String,
        /// Its value in this plan.
        achieved: u64,
        /// No plan is below this.
        bound: u64,
    },
}

impl Serialize for Gap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_u32(0),
            Self::Open { field, achieved, bound } => {
                let mut map = serializer.serialize_map(Some(3))?;
                map.serialize_entry("field", field)?;
                map.serialize_entry("achieved", achieved)?;
                map.serialize_entry("bound", bound)?;
                map.end()
            }
        }
    }
}

impl JsonSchema for Gap {
    fn schema_name() -> Cow<'static, str> {
        "Gap".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "description": "How far the plan may be from the best: 0 if it is proven to be the best.",
            "oneOf": [
                {"type": "integer", "const": 0},
                {
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["field", "achieved", "bound"],
                    "properties": {
                        "field": {"type": "string"},
                        "achieved": {"type": "integer", "minimum": 0},
                        "bound": {"type": "integer", "minimum": 0},
                    },
                },
            ],
        })
    }
}

/// Optimum over achieved, one number per level from 0 to 1; 1 = none better, null without members.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Score {
    /// Against the optimum on this snapshot.
    pub now: Vec<Option<f64>>,
    /// Against the optimum on the same nodes without any pod.
    pub empty: Vec<Option<f64>>,
}

/// Why a gang is not placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Reason {
    /// What is in the way.
    #[schemars(schema_with = "codes")]
    pub code: Code,
    /// Label key of the level it is about.
    pub level: Option<String>,
    /// How much is missing, in members or in units of the limit.
    pub short: Option<u64>,
    /// The smallest change of its kind that is proven to help, or what to wait for where no change can help; null if none
    /// of its kind alone would.
    pub change: Option<String>,
    /// The same as data, for whoever words it in another way.
    #[serde(skip)]
    #[schemars(skip)]
    pub help: Box<Help>,
    /// What would be provisioned after the change, where that is known and the change itself does not say it.
    #[serde(skip)]
    #[schemars(skip)]
    pub provision: Option<Box<ProvisionEntry>>,
}

impl Reason {
    /// The same, after whose change this would be provisioned.
    pub(crate) fn provisioning(self, entry: Option<ProvisionEntry>) -> Self {
        Self { provision: entry.map(Box::new), ..self }
    }
}

/// The closed list of codes.
fn codes(_: &mut SchemaGenerator) -> Schema {
    let words: Vec<&str> = Code::ALL.into_iter().map(Code::as_str).collect();
    schemars::json_schema!({"description": "What is in the way of a gang: a closed list.", "enum": words})
}

impl From<muster_core::reason::Reason> for Reason {
    fn from(reason: muster_core::reason::Reason) -> Self {
        let muster_core::reason::Reason { code, level, short, help } = reason;
        let change = (help != Help::Nothing).then(|| help.to_string());
        Self { code, level: level.map(|level| level.to_string()), short, change, help: Box::new(help), provision: None }
    }
}

/// Nodes to provision in one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ProvisionEntry {
    /// NodePool.
    pub pool: String,
    /// Instance type.
    #[serde(rename = "type")]
    pub instance_type: String,
    /// Zone; null if neither pool, class nor nodes name one.
    pub zone: Option<String>,
    /// MarketType.
    #[serde(rename = "market")]
    pub capacity_type: MarketType,
    /// Nodes.
    #[schemars(range(min = 1))]
    pub count: u32,
    /// Micro-dollars per hour of one node.
    #[serde(rename = "usdMicroPerHour")]
    pub usd_micro_per_hour: u64,
}

/// How capacity is provisioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MarketType {
    /// From a capacity reservation.
    Reserved,
    /// On demand.
    OnDemand,
    /// Spot.
    Spot,
}

impl From<CapacityType> for MarketType {
    fn from(capacity_type: CapacityType) -> Self {
        match capacity_type {
            CapacityType::Reserved => Self::Reserved,
            CapacityType::OnDemand => Self::OnDemand,
            CapacityType::Spot => Self::Spot,
        }
    }
}

/// A pending pod of no gang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PodEntry {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID; null if the dump has none.
    pub uid: Option<String>,
    /// What becomes of it.
    pub outcome: PodOutcome,
    /// The node it would get: one of the dump, or `new/<k>` of `nodes`.
    pub node: Option<String>,
    /// Preferences that were dropped to find its place.
    pub relaxed: Vec<Relaxed>,
    /// Why it has no node; empty if it has one.
    pub reasons: Vec<PodReason>,
}

/// What becomes of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PodOutcome {
    /// It fits a node that is Ready.
    Placed,
    /// It fits a node that is joining.
    Joining,
    /// A node is launched for it.
    #[serde(rename = "buy")]
    Provision,
    /// Somebody else holds it, or what it belongs to is not known yet.
    Waiting,
    /// It fits nowhere.
    Refused,
}

/// A preference that was dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Relaxed {
    /// What kind of preference.
    pub what: RelaxedWhat,
    /// Its place in the pod's list of that kind, from 0.
    pub index: u32,
    /// Its weight; null where there is none.
    pub weight: Option<i32>,
}

/// What kind of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RelaxedWhat {
    /// Preferred node affinity.
    NodeAffinity,
    /// `minValues` of a pool.
    MinValues,
    /// Preferred pod affinity.
    PodAffinity,
    /// Preferred pod anti-affinity.
    PodAntiAffinity,
    /// A spread constraint with `ScheduleAnyway`.
    TopologySpread,
    /// A taint with the effect `PreferNoSchedule`.
    Taint,
}

impl RelaxedWhat {
    /// The word in the document.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NodeAffinity => "nodeAffinity",
            Self::MinValues => "minValues",
            Self::PodAffinity => "podAffinity",
            Self::PodAntiAffinity => "podAntiAffinity",
            Self::TopologySpread => "topologySpread",
            Self::Taint => "taint",
        }
    }
}

/// Why a pod has no node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PodReason {
    /// What is in the way.
    pub code: PodCode,
    /// NodePool it is about.
    pub pool: Option<String>,
    /// Instance type of the pool that comes furthest.
    #[serde(rename = "type")]
    pub instance_type: Option<String>,
    /// How much is missing, in units of the resource or limit.
    pub short: Option<u64>,
    /// The smallest change that would help, or what exactly is in the way.
    pub change: Option<String>,
}

/// What is in the way of a pod: a closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum PodCode {
    /// No offer fits.
    NoOfferFits,
    /// Too little of a resource.
    Insufficient,
    /// A taint that is not tolerated.
    Taint,
    /// Node selector or affinity.
    Selector,
    /// A label that no node of the pool would carry.
    UndefinedLabel,
    /// Topology spread.
    Spread,
    /// Pod affinity.
    Affinity,
    /// Pod anti-affinity.
    AntiAffinity,
    /// A host port.
    Port,
    /// A claim that does not exist.
    VolumeNotFound,
    /// A volume that is not reached from there.
    VolumeZone,
    /// More volumes than a node takes, or more pods than a claim takes.
    VolumeLimit,
    /// `minValues` of a pool.
    MinValues,
    /// A limit of a pool.
    LimitReached,
    /// No price is known.
    PriceUnknown,
    /// The pool is not Ready.
    PoolNotReady,
    /// There is no pool.
    NoPool,
    /// Resource claims are not planned for ordinary pods.
    DRANotSupported,
    /// Held by a scheduling gate of somebody else.
    ForeignGate,
    /// Annotated so that nothing is launched for it.
    DoNotProvision,
    /// DaemonSets leave too little of a node.
    Overhead,
}

/// A node to launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct NodeEntry {
    /// `new/<k>`, from 0.
    pub id: String,
    /// NodePool.
    pub pool: String,
    /// Instance type.
    #[serde(rename = "type")]
    pub instance_type: String,
    /// Zone; null if neither pool, class, nodes nor catalogue name one.
    pub zone: Option<String>,
    /// Capacity type.
    #[serde(rename = "market")]
    pub capacity_type: MarketType,
    /// Capacity reservation.
    pub reservation: Option<String>,
    /// Micro-dollars per hour; of a reservation what it counts, 0.
    #[serde(rename = "usdMicroPerHour")]
    pub usd_micro_per_hour: u64,
    /// Labels it will carry.
    pub labels: BTreeMap<String, String>,
    /// Taints it will carry.
    pub taints: Vec<TaintEntry>,
    /// Taints that are ignored when it is planned and awaited before it is Ready.
    #[serde(rename = "startupTaints")]
    pub startup_taints: Vec<TaintEntry>,
    /// What pods may use of it.
    pub allocatable: BTreeMap<String, String>,
    /// What DaemonSets take of that.
    pub overhead: BTreeMap<String, String>,
    /// Offers that would do as well, cheapest first, at most 60.
    pub alternatives: Vec<AlternativeEntry>,
}

/// A taint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct TaintEntry {
    /// Key.
    pub key: String,
    /// Value.
    pub value: String,
    /// Effect.
    pub effect: String,
}

/// An offer in the place of a node's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct AlternativeEntry {
    /// Instance type.
    #[serde(rename = "type")]
    pub instance_type: String,
    /// Zone.
    pub zone: Option<String>,
    /// Capacity type.
    #[serde(rename = "market")]
    pub capacity_type: MarketType,
    /// Micro-dollars per hour.
    #[serde(rename = "usdMicroPerHour")]
    pub usd_micro_per_hour: u64,
}

/// Equal nodes that one call launches, at most 100.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct LaunchEntry {
    /// NodePool.
    pub pool: String,
    /// Capacity type.
    #[serde(rename = "market")]
    pub capacity_type: MarketType,
    /// Nodes, `new/<k>`.
    pub nodes: Vec<String>,
    /// What EC2 may choose from, cheapest first.
    pub overrides: Vec<OverrideEntry>,
}

/// One type and zone of a launch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct OverrideEntry {
    /// Instance type.
    #[serde(rename = "type")]
    pub instance_type: String,
    /// Zone.
    pub zone: Option<String>,
    /// Micro-dollars per hour.
    #[serde(rename = "usdMicroPerHour")]
    pub usd_micro_per_hour: u64,
}

/// Dollars of the new nodes, and the least they could be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Cost {
    /// Micro-dollars per hour of `nodes`.
    #[serde(rename = "usdMicroPerHour")]
    pub usd_micro_per_hour: u64,
    /// No plan that launches nodes for the same pods costs less; null if no pod needs one.
    pub bound: Option<u64>,
    /// 0 only if the plan is proven to be the cheapest.
    pub gap: Option<Gap>,
    /// How the bound is proven.
    pub basis: Option<Basis>,
}

/// How a bound is proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Every plan was looked at.
    Enumeration,
    /// Duals of packing patterns.
    Patterns,
    /// Prices of resources.
    Resources,
}

/// One limit of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct LimitEntry {
    /// NodePool.
    pub pool: String,
    /// Resource; `nodes` counts nodes.
    pub resource: String,
    /// The limit.
    pub limit: String,
    /// What nodes of the dump count.
    pub used: String,
    /// What this plan adds, every node counted as the largest it may become.
    pub planned: String,
}

impl PodEntry {
    /// Why the pod has no node, in one line; `None` if it has one.
    #[must_use]
    pub fn sentence(&self) -> Option<String> {
        let of = |reason: &PodReason| {
            let mut text = format!("{:?}", reason.code);
            if let Some(pool) = &reason.pool {
                text = format!("{text} in {pool}");
            }
            if let Some(change) = &reason.change {
                text = format!("{text}: {change}");
            }
            text
        };
        (self.node.is_none()).then(|| self.reasons.iter().map(of).collect::<Vec<_>>().join("; "))
    }
}

/// An object of the dump that plays no part, or some of whose fields play none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Ignored {
    /// Kind; empty if it has none.
    pub kind: String,
    /// Name, or its place in the dump if it has none.
    pub name: String,
    /// Why: for an object that cannot be read, and for fields that it does not have, field and value.
    pub why: String,
}

impl Document {
    /// Whether every gang and every pod is placed or provisioned for.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let gangs = self.gangs.iter().all(|gang| match gang.outcome {
            Outcome::Placed | Outcome::Provision => true,
            Outcome::Waiting | Outcome::Refused | Outcome::Invalid => false,
        });
        gangs && self.pods.iter().all(|pod| pod.node.is_some())
    }

    /// The document as JSON, two spaces deep, with a newline at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a document has only strings as keys");
        text.push('\n');
        text
    }
}

/// The JSON Schema (draft 2020-12) of [`Document`].
#[must_use]
pub fn schema() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<Document>()
}
