//! Kind `NodePool`: what may be provisioned. Field names follow Karpenter where the meaning is the same.

#![expect(unreachable_pub, reason = "the schema derive repeats each struct inside a function body")]
#![expect(clippy::duplicated_attributes, reason = "each printer column is an attribute of its own")]

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What may be provisioned: requirements, taints, limits, placement policy.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "muster.dev",
    version = "v1alpha1",
    kind = "NodePool",
    status = "NodePoolStatus",
    derive = "PartialEq",
    shortname = "mnp",
    category = "muster",
    doc = "What may be provisioned for gangs: requirements, taints, limits, placement policy.",
    printcolumn(name = "NodeClass", type_ = "string", json_path = ".spec.template.spec.nodeClassRef.name"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Batches", type_ = "integer", json_path = ".status.batches"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes"),
    printcolumn(name = "$/h", type_ = "string", json_path = ".status.pricePerHour"),
    printcolumn(name = "Weight", type_ = "integer", json_path = ".spec.weight", priority = "1"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolSpec {
    /// What every node of the pool is like.
    pub template: NodePoolTemplate,
    /// Ceilings over all nodes of the pool: `nodes`, `cpu`, `memory`, `ephemeral-storage` or an extended resource that one
    /// of its types has. Never passed, not even by part of a gang. A key that limits nothing is refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, IntOrQuantity>,
    /// Ceiling on dollars per hour over all nodes of the pool, at the prices their launches were decided at: `440.32`.
    /// Never passed, not even by part of a gang. Absent = none but that of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_usd_per_hour: Option<IntOrQuantity>,
    /// The pool with the higher weight is tried first. Absent = 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub weight: Option<u32>,
    /// How gangs are placed on nodes provisioned from this pool.
    #[serde(default)]
    pub placement: NodePoolPlacement,
    /// How long a batch may take to join.
    #[serde(default)]
    pub join: NodePoolJoin,
    /// When idle nodes are terminated.
    #[serde(default)]
    pub disruption: NodePoolDisruption,
}

/// An integer or a Kubernetes quantity, as its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct IntOrQuantity(pub String);

impl JsonSchema for IntOrQuantity {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "IntOrQuantity".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "x-kubernetes-int-or-string": true,
            "description": "An integer or a quantity such as 64Gi.",
        })
    }
}

impl<'de> Deserialize<'de> for IntOrQuantity {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = IntOrQuantity;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an integer or a quantity such as \"64Gi\"")
            }

            fn visit_i64<E>(self, value: i64) -> Result<IntOrQuantity, E> {
                Ok(IntOrQuantity(value.to_string()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<IntOrQuantity, E> {
                Ok(IntOrQuantity(value.to_string()))
            }

            fn visit_str<E>(self, value: &str) -> Result<IntOrQuantity, E> {
                Ok(IntOrQuantity(value.to_owned()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// What every node of the pool is like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolTemplate {
    /// Labels and annotations for every node.
    #[serde(default)]
    pub metadata: NodePoolMetadata,
    /// Node specification.
    pub spec: NodePoolNodeSpec,
}

/// Labels and annotations for every node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolMetadata {
    /// Labels. Keys under `muster.dev/` and `kubernetes.io/hostname` are refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Node specification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("!has(self.expireAfter) || self.expireAfter == 'Never'").message("expireAfter does not act yet: nodes do not expire; remove it, or write Never"),
    validation = Rule::new("!has(self.terminationGracePeriod)").message("terminationGracePeriod does not act yet: nobody who runs is moved; remove it"),
)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolNodeSpec {
    /// How the nodes are provisioned.
    pub node_class_ref: NodeClassRef,
    /// What may be provisioned. Keys: `muster.dev/instance-family`, `node.kubernetes.io/instance-type`,
    /// `topology.kubernetes.io/zone`, `muster.dev/capacity-type`, … A key that is silent allows everything, except
    /// capacity type (`reserved`, `on-demand`) and architecture (`amd64`).
    #[serde(default)]
    #[schemars(length(max = 100))]
    pub requirements: Vec<NodeRequirement>,
    /// Permanent taints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Taints that nodes register with and that somebody else removes, such as a CNI's: pods need not tolerate them to be
    /// planned, and a node is not ready before they are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub startup_taints: Vec<Taint>,
    /// Age at which a node must go. It does not act yet: anything but `Never` is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_after: Option<String>,
    /// Bound of a drain. It does not act yet and is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<String>,
}

/// Reference to the class that says how nodes are provisioned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("self.group == oldSelf.group && self.kind == oldSelf.kind").message("group and kind are immutable"))]
#[serde(rename_all = "camelCase")]
pub struct NodeClassRef {
    /// `muster.dev`.
    pub group: String,
    /// `EC2NodeClass`.
    pub kind: String,
    /// Name.
    pub name: String,
}

/// One requirement on what may be provisioned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("self.operator in ['In', 'NotIn'] ? size(self.values) > 0 : true").message("operator In and NotIn need values"),
    validation = Rule::new("self.operator in ['Exists', 'DoesNotExist'] ? size(self.values) == 0 : true").message("operator Exists and DoesNotExist take no values"),
    validation = Rule::new("!has(self.minValues) || self.operator != 'In' || self.minValues <= size(self.values)").message("minValues is more than there are values"),
    validation = Rule::new("self.operator in ['Gt', 'Lt', 'Gte', 'Lte'] ? size(self.values) == 1 && self.values[0].matches('^[0-9]+$') : true").message("operator Gt, Lt, Gte and Lte need exactly one integer that is not negative"),
)]
#[serde(rename_all = "camelCase")]
pub struct NodeRequirement {
    /// Label key.
    #[schemars(length(min = 1, max = 316))]
    pub key: String,
    /// Operator.
    pub operator: NodeRequirementOperator,
    /// Values.
    #[serde(default)]
    #[schemars(length(max = 100), inner(length(max = 63)))]
    pub values: Vec<String>,
    /// How many different values of the label a launch has to leave open among the types that EC2 may choose. Where fewer are left
    /// nothing is provisioned from the pool; for a gang they have to be among its candidates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 50))]
    pub min_values: Option<u32>,
}

/// Operator of a requirement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NodeRequirementOperator {
    /// One of the values.
    #[default]
    In,
    /// None of the values.
    NotIn,
    /// Present.
    Exists,
    /// Absent.
    DoesNotExist,
    /// Greater than the one value.
    Gt,
    /// Less than the one value.
    Lt,
    /// Greater than or equal to the one value.
    Gte,
    /// Less than or equal to the one value.
    Lte,
}

/// How gangs are placed on nodes provisioned from this pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePoolPlacement {
    /// Cluster placement group for gang batches. Muster creates, sizes and deletes the group.
    pub placement_group: PlacementGroupPolicy,
    /// Order in which gangs try the capacity types the requirements allow; those not listed come last. An interruption evicts a
    /// whole gang, so spot is last unless set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3))]
    pub capacity_type_order: Vec<CapacityTypeName>,
    /// Largest batch; 1000 is the largest minimum CreateFleet takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_nodes_per_batch: Option<u32>,
}

/// A capacity type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityTypeName {
    /// Capacity reservations and Capacity Blocks.
    Reserved,
    /// On demand.
    #[default]
    OnDemand,
    /// Spot.
    Spot,
}

/// Whether nodes are provisioned in a cluster placement group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PlacementGroupPolicy {
    /// Only in a group.
    Required,
    /// In a group if possible.
    #[default]
    Preferred,
    /// Never in a group.
    None,
}

/// How long a batch may take to join. Go durations: `15m`, `1h30m`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePoolJoin {
    /// Launch → Node object.
    pub register_within: String,
    /// Last registration → devices and labels present.
    pub ready_within: String,
    /// From the registration of the median node: a node that is still missing is replaced in place.
    pub replace_after: String,
    /// Nodes of one batch that are replaced before all of it is rolled back: a number, or a share in percent, rounded
    /// up.
    pub max_replacements: IntOrQuantity,
    /// Nodes that are tried alone while most nodes of a batch failed to join. After these a person has to change the
    /// NodePool or its EC2NodeClass.
    pub max_probes: u32,
    /// Dollars that these nodes may cost together, each counted for as long as it may take to join.
    pub max_probe_usd: IntOrQuantity,
}

impl Default for NodePoolJoin {
    fn default() -> Self {
        Self {
            register_within: "15m".to_owned(),
            ready_within: "10m".to_owned(),
            replace_after: "5m".to_owned(),
            max_replacements: IntOrQuantity("10%".to_owned()),
            max_probes: 10,
            max_probe_usd: IntOrQuantity("250".to_owned()),
        }
    }
}

/// When idle nodes are terminated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.budgets) || size(self.budgets) == 0",
    "message": "budgets do not act yet: nobody who runs is moved; remove them",
}]))]
pub struct NodePoolDisruption {
    /// Which nodes are terminated: empty ones, or none.
    pub consolidation_policy: ConsolidationPolicy,
    /// Quiet time after the gang finished before its batch is terminated whole: a Go duration or `Never`.
    pub consolidate_after: String,
    /// How long pods of no gang may stay on nodes whose gang has ended: then they are evicted, after twice that deleted, and
    /// the batch is terminated whole. A Go duration or `Never`.
    pub foreign_pods_after: String,
    /// Ceilings on nodes that leave at once. They do not act yet and are refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub budgets: Vec<NodePoolBudget>,
}

impl Default for NodePoolDisruption {
    fn default() -> Self {
        Self {
            consolidation_policy: ConsolidationPolicy::WhenEmpty,
            consolidate_after: "30s".to_owned(),
            foreign_pods_after: "15m".to_owned(),
            budgets: Vec::new(),
        }
    }
}

/// Which nodes of the pool are terminated without being asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConsolidationPolicy {
    /// Those that are empty.
    #[default]
    WhenEmpty,
    /// None: a node stays until its NodeBatch is deleted.
    Never,
}

/// A ceiling on nodes that leave at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePoolBudget {
    /// A number of nodes, or a share of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<IntOrQuantity>,
}

/// What the pool has, and whether it can be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// Nodes recorded in live batches.
    #[serde(default)]
    pub nodes: u32,
    /// Live batches.
    #[serde(default)]
    pub batches: u32,
    /// Dollars per hour of live batches, two to six places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<String>,
    /// Ceiling on dollars per hour over all NodePools, as `provisioner.maxUsdPerHour` of the server has it: an amount, or `unlimited`;
    /// `0.00` where it is not set, and nothing is provisioned. Whoever explains a gang without the server's configuration knows it from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_max_usd_per_hour: Option<String>,
    /// Set while the pool provisions nothing, because most nodes of a batch failed to join for one cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join_blocked: Option<JoinBlocked>,
    /// Purchases for pods of no gang that kube-scheduler put none of them on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_refused: Option<SchedulerRefused>,
    /// What batches cost that are gone: at most 50 rows, and for namespaces that came later one of the namespace `other` for
    /// each capacity type. Counters of dollars go on from here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spent: Vec<PoolSpent>,
    /// UIDs of batches that are in `spent` and may still exist: none is counted twice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub booked: Vec<String>,
    /// Conditions: ValidationSucceeded, NodeClassReady, Ready, OrphanSweepHeld, SchedulerRefused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What was spent for one namespace on one capacity type. One dollar is 1,000,000.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolSpent {
    /// Namespace of the gangs or ProvisioningRequests; `-` for nodes of pods of no gang, which several namespaces share;
    /// `other` for the rest.
    pub namespace: String,
    /// `reserved`, `on-demand`, `spot` or `unknown`.
    pub capacity_type: String,
    /// Micro-dollars spent.
    #[serde(default)]
    pub spent_micro_usd: u64,
    /// Of these, micro-dollars while no gang ran on the nodes, by cause: `join`, `rollback`, `replacement`, `warm`,
    /// `interrupted`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stranded_micro_usd: BTreeMap<String, u64>,
}

/// Why the pool provisions no batch until it or its class changes, or a node that is provisioned alone joins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinBlocked {
    /// What most nodes of the batch failed for.
    pub cause: String,
    /// The NodeBatch.
    pub batch: String,
    /// Generation of the NodePool that failed; a later one is tried.
    pub pool_generation: i64,
    /// Generation of the EC2NodeClass that failed; a later one is tried.
    pub class_generation: i64,
    /// Nodes that were tried alone since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<JoinProbes>,
}

/// Nodes of a blocked pool that were tried alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinProbes {
    /// How many.
    pub count: u32,
    /// Dollars they cost at most.
    pub usd: String,
    /// The NodeBatch that tried last.
    pub batch: String,
    /// Number of its attempt.
    pub attempt: u32,
    /// Dollars the last one costs at most.
    pub last_usd: String,
}

/// Purchases that no pod came to. Kept with the pool, so that no restart begins to count again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulerRefused {
    /// Generation of the NodePool they were made from; of a later one nothing is held against it.
    pub pool_generation: i64,
    /// Generation of its EC2NodeClass, likewise.
    pub class_generation: i64,
    /// By kind of pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<RefusedPods>,
}

/// Purchases in vain for pods of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedPods {
    /// Digest of their namespace and of what they ask for, as in the fillings of NodeBatches.
    pub class: String,
    /// Purchases in a row, since one of them last came to a node of the pool. From the second on the pool waits.
    pub in_a_row: u32,
    /// By instance type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instance_types: Vec<RefusedType>,
}

/// Purchases in vain of one instance type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedType {
    /// Name.
    pub instance_type: String,
    /// How many.
    pub purchases: u32,
    /// When the last was seen to be in vain.
    pub last: Timestamp,
}
