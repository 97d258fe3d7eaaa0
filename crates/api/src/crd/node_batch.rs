//! Kind `NodeBatch`: the unit of purchase, N nodes or none.

#![expect(unreachable_pub, reason = "the schema derive repeats each struct inside a function body")]

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::IntOrQuantity;

/// N nodes of one offering, all or none. Written by Muster only.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "muster.dev",
    version = "v1alpha1",
    kind = "NodeBatch",
    plural = "nodebatches",
    status = "NodeBatchStatus",
    derive = "PartialEq",
    shortname = "nb",
    category = "muster",
    doc = "The unit of purchase: N nodes of one offering, all or none. Written by Muster.",
    validation = Rule::new("self.spec == oldSelf.spec").message("spec is immutable"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Nodes", type_ = "string", json_path = ".status.nodes", description = "nodes ready / nodes provisioned"),
    printcolumn(name = "Type", type_ = "string", json_path = ".status.instanceType"),
    printcolumn(name = "Zone", type_ = "string", json_path = ".status.zone"),
    printcolumn(name = "Capacity", type_ = "string", json_path = ".status.capacityType"),
    printcolumn(name = "Group", type_ = "string", json_path = ".status.placementGroup", priority = "1"),
    printcolumn(name = "$/h", type_ = "string", json_path = ".status.pricePerHour"),
    printcolumn(name = "Attempt", type_ = "integer", json_path = ".status.attempt"),
    printcolumn(name = "Gang", type_ = "string", json_path = ".spec.gangRef.name"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
)]
#[serde(rename_all = "camelCase")]
pub struct NodeBatchSpec {
    /// Pools that may serve the batch, best first.
    pub node_pools: Vec<String>,
    /// Nodes.
    #[schemars(range(min = 1, max = 1000))]
    pub count: u32,
    /// All or none.
    #[serde(default)]
    pub fill: Fill,
    /// The gang the nodes are provisioned for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang_ref: Option<GangRef>,
    /// The ProvisioningRequest the nodes are provisioned for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning_request_ref: Option<GangRef>,
    /// Instance types that hold `membersPerNode` members, with what each costs; resolved when the batch was made.
    pub offers: Vec<BatchOffer>,
    /// The gang's topology request: `required`, `preferred` or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement_group: Option<String>,
    /// Zones it may be provisioned in: those of the running nodes it is to stand beside. Empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// The capacity type it is provisioned as. Absent: any that its pools allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_type: Option<String>,
    /// For pods of no gang: what its nodes are planned to hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fillings: Vec<BatchFilling>,
    /// What the batch takes at most of each pool. It counts against the limits from the creation until an attempt begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserves: Vec<BatchReserve>,
}

/// What some equal nodes are planned to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchFilling {
    /// How many nodes.
    pub nodes: u32,
    /// Pods on each of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<FillingPods>,
}

/// Equal pods on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FillingPods {
    /// Digest of what the pods ask for.
    pub class: String,
    /// How many.
    pub count: u32,
}

/// What a batch takes of the limits of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchReserve {
    /// NodePool.
    pub node_pool: String,
    /// Nodes and resources, under the keys of the limits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, IntOrQuantity>,
}

/// What may be provisioned for the batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchOffer {
    /// NodePool.
    pub node_pool: String,
    /// Instance type.
    pub instance_type: String,
    /// Nodes of this type that hold the whole gang.
    pub count: u32,
}

/// Whether a batch may be filled in part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Fill {
    /// N nodes or none.
    #[default]
    Atomic,
    /// As many as there are.
    Partial,
}

/// Reference to the object a batch was provisioned for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GangRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// Where the purchase stands. Written before every call that changes something in EC2.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeBatchStatus {
    /// Version of this structure. Muster leaves alone what it does not know.
    #[serde(default)]
    pub version: u32,
    /// `Pending`, `Launching`, `Launched`, `Joining`, `Replacing`, `Ready`, `InUse`, `Idle`, `Draining`, `Terminating`.
    #[serde(default)]
    pub phase: String,
    /// For people: nodes ready / nodes provisioned.
    #[serde(default)]
    pub nodes: String,
    /// When the phase was entered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// N as recorded.
    #[serde(default)]
    pub count: u32,
    /// Nodes ready.
    #[serde(default)]
    pub ready_count: u32,
    /// Number of the current attempt.
    #[serde(default)]
    pub attempt: u32,
    /// Rises when the batch starts over with a new placement group.
    #[serde(default)]
    pub generation: u32,
    /// NodePool of the current candidate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_pool: Option<String>,
    /// Instance type of the current candidate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// Zone of the current candidate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// MarketType of the current candidate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_type: Option<String>,
    /// Placement group of ours, from the moment it is intended until it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement_group: Option<String>,
    /// Id of the placement group the instances are in, ours or that of their reservation, once EC2 has shown it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement_group_id: Option<String>,
    /// Launch templates of ours, from the moment they are intended until they are deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launch_templates: Vec<String>,
    /// Dollars per hour of the whole batch, two to six places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<String>,
    /// One sentence: what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Nothing is tried before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_after: Option<Timestamp>,
    /// The current round over the candidates began after this attempt.
    #[serde(default)]
    pub round_from: u32,
    /// Failed rounds over all candidates in a row; the back-off grows with it.
    #[serde(default)]
    pub failed_rounds: u32,
    /// The current phase must have ended by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Quiet since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Timestamp>,
    /// Of a batch that was booked: a gang that consumes the booking has run on the nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub used: bool,
    /// This round's candidates, first is tried first, at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<BatchCandidate>,
    /// What is no candidate this round, with the reason, at most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "leftOut")]
    pub excluded: Vec<BatchExcluded>,
    /// Network nodes the instances hang on, per layer from the top; known once all of them ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub located: Vec<u32>,
    /// What the attempt that has begun takes of its pool: what `spec.reserves` comes to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserved: Vec<BatchReserve>,
    /// Launches that missed the level the gang requires.
    #[serde(default)]
    pub misses: u32,
    /// Why nothing more is tried until pool, class or topology request change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<BatchHold>,
    /// Attempts, oldest first: the last 20, and before them the last launch of the whole batch and what the current
    /// round over the candidates tried, at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<BatchAttempt>,
    /// Instances of the batch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<BatchInstance>,
    /// Instances that were lost and belong to the batch no more, until EC2 has ended them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<BatchInstance>,
    /// What the batch cost so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub billing: Option<BatchBilling>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One way to provision the batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchCandidate {
    /// NodePool.
    pub node_pool: String,
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Subnet.
    pub subnet: String,
    /// MarketType.
    pub capacity_type: String,
    /// Nodes.
    pub count: u32,
    /// In a placement group.
    #[serde(default)]
    pub group: bool,
    /// Reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    /// Dollars per hour of the whole batch; absent if no price is known, which only reserved capacity may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<String>,
    /// Why it stands here.
    #[serde(default)]
    pub why: String,
}

/// What is no candidate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchExcluded {
    /// What: pool, type, capacity type and zone, as far as the reason holds for all below.
    pub what: String,
    /// Why.
    pub why: String,
    /// The smallest change that would make it a candidate, or when it ends by itself; absent if neither is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

/// A batch that waits for a change by a person.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchHold {
    /// One word.
    pub reason: String,
    /// Generations of the pools and classes it was decided on; with others it is tried again.
    pub seen: String,
}

/// One attempt: one fixed set of parameters, one token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchAttempt {
    /// Number, from 1.
    pub number: u32,
    /// NodePool.
    pub node_pool: String,
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Subnet.
    #[serde(default)]
    pub subnet: String,
    /// MarketType.
    pub capacity_type: String,
    /// What EC2 may choose among, first what the fields above say, at most 60; empty: that alone. Type, zone and subnet above are
    /// those that EC2 chose, once it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<BatchOverride>,
    /// Nodes asked for.
    pub count: u32,
    /// Whether the launch was asked for in a placement group.
    #[serde(default)]
    pub group: bool,
    /// The group of somebody else that the reservation was made in; else the group is the batch's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation_group: Option<String>,
    /// Reservation the launch goes into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    /// Whether the reservation is a Capacity Block.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub block: bool,
    /// The call: `fleet` or `run`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub way: String,
    /// Image all nodes boot, later replacements too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Taints that the NodePool gave nodes for good then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Launch template id; known once it is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Everything needed to send the same launch call again, as JSON; written before it is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<String>,
    /// Client token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Whether an answer to the launch call was lost: the next answer is that of a replay.
    #[serde(default)]
    pub replayed: bool,
    /// How often an unknown outcome was looked for without a find.
    #[serde(default)]
    pub sweeps: u32,
    /// Fleet id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<String>,
    /// EC2's id of the last request of this attempt that was answered: what AWS support asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Instances this attempt is to replace in place; empty for a launch of the whole batch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<String>,
    /// Whether one node was provisioned alone, to see whether nodes of a blocked pool join again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "canary")]
    pub probe: bool,
    /// `Launching`, `Won`, `Lost`, `Retry` (the same candidate again), `Violated` (rolled back to zero), `Misplaced`
    /// (rolled back: the gang's required level was missed) or `Canary` (provisioned alone, joined and terminated).
    pub outcome: String,
    /// EC2 error code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What EC2 reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When the attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// When it was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
}

/// One type in one zone that a launch may be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchOverride {
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Subnet.
    pub subnet: String,
    /// Dollars per hour of one node; absent if no price is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<String>,
}

/// One instance of the batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchInstance {
    /// `i-…`.
    pub id: String,
    /// Attempt that launched it.
    pub attempt: u32,
    /// `Launched`, `Running`, `Registered`, `Ready`, `Lost`, `Terminating`, `Gone`.
    pub state: String,
    /// Of a node for pods of no gang: its number among the nodes that `spec.fillings` plans, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<u32>,
    /// Node name, once registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// When its Node was first seen, in the provisioner's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered: Option<Timestamp>,
    /// Why it is lost, or will be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<BatchLoss>,
    /// Network nodes from the top, once known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network_nodes: Vec<String>,
    /// Since when only pods of the node, or that no kubelet ends, stand on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty_since: Option<Timestamp>,
    /// When the taint of a node that is to go was seen on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving_since: Option<Timestamp>,
    /// When EC2 launched it, once EC2 has shown it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launched: Option<Timestamp>,
    /// What it cost before this is in the bill; if nothing is yet, all since its launch is still to come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub billed: Option<Timestamp>,
}

/// Why an instance is lost, or will be. Written before the message that reported it is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchLoss {
    /// `spot`, `reclaimed`, `block-end`, `maintenance`, `terminated`, `impaired`, `missing` or `join`.
    pub cause: String,
    /// One sentence.
    pub message: String,
    /// When it was noticed, in the provisioner's time.
    pub noticed: Timestamp,
    /// From then on the node counts as lost, although it may still run.
    pub act_at: Timestamp,
    /// When EC2 ends it, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
}

/// What a batch cost so far, in the provisioner's time. One dollar is 1,000,000.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchBilling {
    /// Everything before this is summed up below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Micro-dollars spent.
    #[serde(default)]
    pub spent_micro_usd: u64,
    /// Of these, micro-dollars while no gang ran on the nodes, by cause: `join`, `rollback`, `replacement`, `warm`,
    /// `interrupted`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stranded_micro_usd: BTreeMap<String, u64>,
    /// Of both, what candidates of other pools or capacity types cost than the current one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<BatchShare>,
    /// Whether each instance is billed by EC2's times. Not so of instances that an earlier version billed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_instance: bool,
    /// All instances have ended: the sums stay as they are, and the NodePool may book them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
}

/// What candidates of one pool and capacity type cost. One dollar is 1,000,000.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchShare {
    /// NodePool.
    pub node_pool: String,
    /// Capacity type; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_type: Option<String>,
    /// Micro-dollars spent.
    #[serde(default)]
    pub spent_micro_usd: u64,
    /// Of these, micro-dollars while no gang ran on the nodes, by cause.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stranded_micro_usd: BTreeMap<String, u64>,
}
