//! Kind `Gang`: what Muster knows of one gang; its status is the durable plan.

#![expect(unreachable_pub, reason = "the schema derive repeats each struct inside a function body")]

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A gang: pods that start together or not at all. Written by Muster only; users ask by annotations on their pods.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "muster.dev",
    version = "v1alpha1",
    kind = "Gang",
    namespaced,
    status = "GangStatus",
    derive = "PartialEq",
    category = "muster",
    doc = "A gang: pods that start together or not at all. Written by Muster; users ask by annotations on their pods.",
    validation = Rule::new("self.spec.min <= self.spec.size").message("min must not be above size"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Members", type_ = "string", json_path = ".status.members", description = "members seen / members expected"),
    printcolumn(name = "Epoch", type_ = "integer", json_path = ".status.epoch", priority = "1"),
    printcolumn(name = "Topology", type_ = "string", json_path = ".status.placement.summary", description = "domains used per level"),
    printcolumn(name = "Batch", type_ = "string", json_path = ".status.batch", description = "the NodeBatch provisioned for it"),
    printcolumn(name = "$/h", type_ = "string", json_path = ".status.cost.perHour", description = "dollars per hour of the nodes provisioned for it"),
    printcolumn(name = "Stranded", type_ = "string", json_path = ".status.cost.stranded", priority = "1", description = "dollars spent while it did not run"),
    printcolumn(name = "Waiting", type_ = "string", json_path = ".status.waiting.reason", description = "why it does not run yet"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
)]
#[serde(rename_all = "camelCase")]
pub struct GangSpec {
    /// Where the gang was recognised.
    pub source: GangSource,
    /// Members expected. 0 while it is not known.
    pub size: u32,
    /// Members needed to start; the rest are elastic.
    pub min: u32,
    /// Roles in rank order, as their owner declares them.
    #[serde(default)]
    pub roles: Vec<GangRole>,
    /// Topology requests, each with the key it came from.
    #[serde(default)]
    #[serde(rename = "wishes")]
    pub topology_requests: GangTopologyRequests,
}

/// Where the gang was recognised.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GangSource {
    /// Convention that gave the identity, such as `annotations`, `jobset` or `job`.
    pub convention: String,
    /// The gang's name in that convention, as it was written.
    pub identity: String,
    /// API version of the outermost known owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the outermost known owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the outermost known owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// UID of the outermost known owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// Members with one template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GangRole {
    /// Name; empty for the only role.
    pub name: String,
    /// Members of the role.
    pub count: u32,
    /// Members of the role needed to start.
    pub min: u32,
}

/// Topology requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GangTopologyRequests {
    /// All members inside one domain of this level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<GangTopologyRequest>,
    /// Try this level first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred: Option<GangTopologyRequest>,
    /// Slices, coarse to fine: consecutive ranks that share a domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<GangSlice>,
    /// Level whose domains the gang, or each slice, uses alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<GangTopologyRequest>,
    /// Level over whose domains the members are spread evenly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balance: Option<GangTopologyRequest>,
    /// Placement group for nodes provisioned for the gang: `required`, `preferred` or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement_group: Option<GangTopologyRequest>,
}

/// Consecutive ranks that share a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GangSlice {
    /// Members of one slice.
    pub size: u32,
    /// The level.
    pub level: GangTopologyRequest,
}

/// One topology request and the key it came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GangTopologyRequest {
    /// The value.
    pub value: String,
    /// The annotation it came from.
    pub from: String,
}

/// Where a gang stands, and its plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GangStatus {
    /// Version of this structure. Muster leaves alone what it does not know.
    #[serde(default)]
    pub version: u32,
    /// `Collecting`, `Waiting`, `Provisioning`, `Planned`, `Released`, `Committing`, `Bound`, `Finished`, `Degraded`,
    /// `Invalid` or `Unsatisfiable`.
    #[serde(default)]
    pub phase: String,
    /// Counter, one higher with every plan persisted or withdrawn.
    #[serde(default)]
    pub epoch: u64,
    /// Counter of purchases.
    #[serde(default)]
    pub round: u32,
    /// Members seen / members expected.
    #[serde(default)]
    pub members: String,
    /// The plan of this epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<GangPlan>,
    /// How good the placement is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<GangPlacement>,
    /// Capacity kept for a gang that was evicted, until its pods are back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<GangHeld>,
    /// Name of the NodeBatch provisioned for the gang.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    /// What the nodes provisioned for it cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<GangCost>,
    /// Why the gang does not run yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<GangWaiting>,
    /// When the phase was entered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Capacity kept for a gang that was evicted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GangHeld {
    /// Until then; absent while its pods are being evicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// What its members ask for, and on which nodes.
    #[serde(rename = "rooms")]
    pub capacities: Vec<GangCapacity>,
}

/// Capacity for members that ask for the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GangCapacity {
    /// What each of them asks for, in units: bytes, millicores, whole devices.
    pub requests: BTreeMap<String, i64>,
    /// The node of each.
    pub nodes: Vec<String>,
}

/// What the nodes provisioned for a gang cost, in dollars with two to six places. Written with the rest of the status: sums
/// are up to the last change of a batch's phase before that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GangCost {
    /// Dollars per hour of the nodes it has now.
    pub per_hour: String,
    /// Dollars spent.
    pub spent: String,
    /// Of these, dollars while the gang did not run on the nodes.
    pub stranded: String,
    /// By NodeBatch, those that are gone included.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub batches: BTreeMap<String, GangBatchCost>,
}

/// What one batch cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GangBatchCost {
    /// Micro-dollars spent.
    pub spent_micro_usd: u64,
    /// Of these, micro-dollars while the gang did not run on the nodes.
    pub stranded_micro_usd: u64,
}

/// Where every member goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GangPlan {
    /// Members that must stand at the barrier.
    pub minimum: u32,
    /// Members of each role that must stand there, if there are several roles.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub minimums: BTreeMap<String, u32>,
    /// What those of its members that run need among themselves, while more are placed beside them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<GangMinimum>,
    /// Digest of what the members need: if they need something else, the plan is made again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// Nodes of the plan, each once, in topology order.
    pub nodes: Vec<String>,
    /// One entry per place, in role order, then rank.
    pub places: Vec<GangPlace>,
}

/// Members that are needed at least.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GangMinimum {
    /// In all.
    pub minimum: u32,
    /// Of each role, if there are several.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub minimums: BTreeMap<String, u32>,
}

/// One member's place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GangPlace {
    /// Role name; empty for the only role.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// Rank within the role.
    pub rank: u32,
    /// Pod UID; absent while the pod does not exist yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Pod name, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Index into `nodes`.
    pub node: u32,
    /// The pod succeeded: the place is filled for good, whether or not the pod is still there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub done: bool,
}

/// How good a placement is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GangPlacement {
    /// For people: domains used per level, `1 zone, 2 layer-3, 8 host`.
    pub summary: String,
    /// Domains used and the proven optimum, per level from the top.
    pub levels: Vec<GangLevel>,
}

/// Domains used at one level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GangLevel {
    /// Label key.
    pub key: String,
    /// Domains used.
    pub used: u32,
    /// Fewest possible on the snapshot the plan was made from.
    pub optimum: u32,
}

/// Why a gang does not run yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GangWaiting {
    /// One word.
    pub reason: String,
    /// A sentence a person can act on.
    pub message: String,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// When it is tried again at the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
}
