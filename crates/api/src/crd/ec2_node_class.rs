//! Kind `EC2NodeClass`: how nodes are provisioned. Field names follow Karpenter where the meaning is the same.

#![expect(unreachable_pub, reason = "the schema derive repeats each struct inside a function body")]

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How nodes are provisioned: image, subnets, security groups, role, disks, EFA, user data.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "muster.dev",
    version = "v1alpha1",
    kind = "EC2NodeClass",
    plural = "ec2nodeclasses",
    singular = "ec2nodeclass",
    status = "EC2NodeClassStatus",
    derive = "PartialEq",
    shortname = "mnc",
    category = "muster",
    doc = "How nodes are provisioned: image, subnets, security groups, role, disks, EFA, user data.",
    validation = Rule::new("has(self.spec.role) != has(self.spec.instanceProfile)").message("exactly one of role and instanceProfile is needed"),
    validation = Rule::new("!has(self.spec.networkInterfaces) || !has(self.spec.associatePublicIPAddress) || !self.spec.associatePublicIPAddress || size(self.spec.networkInterfaces) <= 1").message("several network interfaces and a public address exclude each other"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
)]
#[serde(rename_all = "camelCase")]
pub struct EC2NodeClassSpec {
    /// Image, by alias (`al2023@latest`, `bottlerocket@v1.45.0`), id, SSM parameter, or name, owner and tags. The first
    /// term that gives an image for the architecture counts.
    #[schemars(length(min = 1, max = 30))]
    pub ami_selector_terms: Vec<AmiSelectorTerm>,
    /// Form of the user data; follows from an alias, else AL2023.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ami_family: Option<AmiFamily>,
    /// Subnets, by id or tags, ORed.
    #[schemars(length(min = 1, max = 30))]
    pub subnet_selector_terms: Vec<SubnetSelectorTerm>,
    /// Security groups, by id, name or tags, ORed.
    #[schemars(length(min = 1, max = 30))]
    pub security_group_selector_terms: Vec<SecurityGroupSelectorTerm>,
    /// Refused: Muster creates no instance profiles. Name one in `instanceProfile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Name of an instance profile that exists and has the nodes' role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// Merged with Muster's own part: a shell script or NodeConfig for AL2023, TOML for Bottlerocket. `Custom` images get
    /// it as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub user_data: Option<String>,
    /// Elastic Fabric Adapter interfaces; the layout comes from DescribeInstanceTypes.
    #[serde(default)]
    pub efa: EfaPolicy,
    /// Explicit interfaces instead of `efa`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 150))]
    pub network_interfaces: Vec<NetworkInterfaceSpec>,
    /// Capacity reservations and Capacity Blocks, by id, or tags, owner and match criteria; ORed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 30))]
    pub capacity_reservation_selector_terms: Vec<CapacityReservationSelectorTerm>,
    /// Settings of the kubelet: `maxPods`, `podsPerCore`, `kubeReserved`, `systemReserved`, `evictionHard`,
    /// `evictionSoft`, `evictionSoftGracePeriod`, `evictionMaxPodGracePeriod`, `imageGCHighThresholdPercent`,
    /// `imageGCLowThresholdPercent`, `cpuCFSQuota`, `clusterDNS`; under `extra` anything else, for AL2023. A key nobody
    /// knows makes the class not ready. Without `maxPods` a node takes the pods that the VPC network has addresses for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "open_object")]
    pub kubelet: Option<serde_json::Map<String, serde_json::Value>>,
    /// Local NVMe disks: `RAID0` makes them the ephemeral storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_store_policy: Option<InstanceStorePolicy>,
    /// Instance metadata; tokens are required and hop limit is 1 unless set.
    #[serde(default)]
    pub metadata_options: MetadataOptionsSpec,
    /// Whether the primary interface gets a public address; the subnet decides if absent.
    #[serde(default, rename = "associatePublicIPAddress", skip_serializing_if = "Option::is_none")]
    pub associate_public_ip_address: Option<bool>,
    /// CloudWatch at one-minute resolution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detailed_monitoring: Option<bool>,
    /// Disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub block_device_mappings: Vec<BlockDeviceMapping>,
    /// Tags for instances, volumes and interfaces. Keys `muster.dev/*`, `kubernetes.io/cluster/*` and
    /// `eks:eks-cluster-name` are refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[x_kube(validation = Rule::new("self.all(k, !k.startsWith('muster.dev/') && !k.startsWith('kubernetes.io/cluster/') && k != 'eks:eks-cluster-name')").message("keys muster.dev/*, kubernetes.io/cluster/* and eks:eks-cluster-name are set by Muster or EKS alone"))]
    #[schemars(length(max = 40))]
    pub tags: BTreeMap<String, String>,
}

/// An object whose keys are checked by Muster, with a condition, instead of being pruned by the API server.
fn open_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// One way to name an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("[has(self.alias), has(self.id), has(self.ssmParameter), has(self.name) || has(self.owner) || (has(self.tags) && size(self.tags) > 0)].filter(x, x).size() == 1").message("exactly one of alias, id, ssmParameter, and name, owner or tags is needed"),
    validation = Rule::new("!has(self.owner) || has(self.name) || (has(self.tags) && size(self.tags) > 0)").message("owner needs name or tags beside it"),
)]
#[serde(rename_all = "camelCase")]
pub struct AmiSelectorTerm {
    /// `al2023@latest`, `al2023@v20260101`, `bottlerocket@latest`, `bottlerocket@v1.45.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// `ami-…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Path of an SSM parameter that holds an AMI id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssm_parameter: Option<String>,
    /// Name; `*` and `?` are wildcards. The newest image counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Account id, `self` or `amazon`; `self` and `amazon` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// All of these tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// Operating system of the image: the form of the user data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AmiFamily {
    /// Amazon Linux 2023.
    #[default]
    #[serde(rename = "AL2023")]
    Al2023,
    /// Bottlerocket.
    Bottlerocket,
    /// Another: it registers labels and taints itself.
    Custom,
}

/// What becomes of local NVMe disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InstanceStorePolicy {
    /// One RAID0 for containers and ephemeral volumes.
    #[default]
    #[serde(rename = "RAID0")]
    Raid0,
}

/// One explicit network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterfaceSpec {
    /// Network card.
    #[schemars(range(min = 0, max = 63))]
    pub network_card_index: u32,
    /// Device on the card.
    #[schemars(range(min = 0, max = 63))]
    pub device_index: u32,
    /// Kind. Card 0, device 0 is an `interface`.
    pub interface_type: InterfaceTypeSpec,
}

/// Kind of an explicit network interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InterfaceTypeSpec {
    /// With an address.
    #[default]
    Interface,
    /// EFA without an address.
    EfaOnly,
}

/// One way to name capacity reservations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("has(self.id) != (has(self.ownerID) || has(self.instanceMatchCriteria) || (has(self.tags) && size(self.tags) > 0))").message("either id, or tags, ownerID or instanceMatchCriteria is needed"))]
#[serde(rename_all = "camelCase")]
pub struct CapacityReservationSelectorTerm {
    /// `cr-…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// All of these tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Account that owns it.
    #[serde(default, rename = "ownerID", skip_serializing_if = "Option::is_none")]
    pub owner_id: Option<String>,
    /// `open` or `targeted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_match_criteria: Option<MatchCriteria>,
}

/// Who may use a reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MatchCriteria {
    /// Any launch that matches.
    #[default]
    Open,
    /// Launches that name it.
    Targeted,
}

/// Instance metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MetadataOptionsSpec {
    /// `enabled` or `disabled`.
    pub http_endpoint: Switch,
    /// `required` or `optional`.
    pub http_tokens: HttpTokens,
    /// Network hops a token may take.
    #[schemars(range(min = 1, max = 64))]
    pub http_put_response_hop_limit: u8,
    /// `enabled` or `disabled`.
    #[serde(rename = "httpProtocolIPv6")]
    pub http_protocol_ipv6: Switch,
}

impl Default for MetadataOptionsSpec {
    fn default() -> Self {
        Self {
            http_endpoint: Switch::Enabled,
            http_tokens: HttpTokens::Required,
            http_put_response_hop_limit: 1,
            http_protocol_ipv6: Switch::Disabled,
        }
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Switch {
    /// On.
    Enabled,
    /// Off.
    #[default]
    Disabled,
}

/// Whether instance metadata wants a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum HttpTokens {
    /// IMDSv2 only.
    #[default]
    Required,
    /// IMDSv1 too.
    Optional,
}

/// One way to name subnets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("has(self.id) != (has(self.tags) && size(self.tags) > 0)").message("either id or tags is needed"))]
#[serde(rename_all = "camelCase")]
pub struct SubnetSelectorTerm {
    /// `subnet-…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// All of these tags; `*` as value matches any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// One way to name security groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("[has(self.id), has(self.name), has(self.tags) && size(self.tags) > 0].filter(x, x).size() == 1").message("exactly one of id, name and tags is needed"))]
#[serde(rename_all = "camelCase")]
pub struct SecurityGroupSelectorTerm {
    /// `sg-…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Group name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// All of these tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// Whether nodes get EFA interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EfaPolicy {
    /// Gang batches do, where the type has them.
    #[default]
    Auto,
    /// Every node does.
    Always,
    /// No node does.
    Never,
}

/// One disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockDeviceMapping {
    /// `/dev/xvda`.
    pub device_name: String,
    /// Whether it is the root volume: its size is what pods may take as ephemeral storage. At most one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub root_volume: bool,
    /// The volume.
    pub ebs: Ebs,
}

/// An EBS volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("has(self.volumeSize) || has(self.snapshotID)").message("volumeSize or snapshotID is needed"))]
#[serde(rename_all = "camelCase")]
pub struct Ebs {
    /// Size in GiB, unless the snapshot says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65536))]
    pub volume_size: Option<u32>,
    /// `gp3` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
    /// Provisioned operations per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 256000))]
    pub iops: Option<u32>,
    /// MiB per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 125, max = 2000))]
    pub throughput: Option<u32>,
    /// Encrypted unless `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// Key, if not the account's own.
    #[serde(default, rename = "kmsKeyID", skip_serializing_if = "Option::is_none")]
    pub kms_key_id: Option<String>,
    /// Snapshot the volume is made from.
    #[serde(default, rename = "snapshotID", skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// MiB per second at which the snapshot's blocks are fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 300))]
    pub volume_initialization_rate: Option<u32>,
    /// Whether it goes with the instance; `true` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_on_termination: Option<bool>,
}

/// What the class resolves to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EC2NodeClassStatus {
    /// Images, one per architecture and accelerator that the pools of the class allow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amis: Vec<AmiStatus>,
    /// Subnets found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<SubnetStatus>,
    /// Security groups found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<String>,
    /// Whether one of them allows all traffic from and to itself, as EFA needs it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub self_reference: bool,
    /// Capacity reservations found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacity_reservations: Vec<ReservationStatus>,
    /// Whether the cluster is IPv6: nodes get an IPv6 address, and subnets without an IPv6 CIDR are not launched into.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ipv6: bool,
    /// Whether the VPC network gives nodes prefixes of addresses (`ENABLE_PREFIX_DELEGATION` of the DaemonSet aws-node): more pods
    /// per node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prefix_delegation: bool,
    /// Memory that types turned out to have, with images of the class: later nodes are planned with it in place of an estimate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<MemoryStatus>,
    /// Generation of the spec this status was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions: SubnetsReady, SecurityGroupsReady, AMIsReady, InstanceProfileReady, CapacityReservationsReady,
    /// ValidationSucceeded, Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AmiStatus {
    /// `ami-…`.
    pub id: String,
    /// `x86_64` or `arm64`.
    pub architecture: String,
    /// `standard`, `nvidia` or `neuron`.
    pub variant: String,
    /// Parameter of SSM that held the id, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter: Option<String>,
    /// When it was read. It is read again after half an hour; as long as that fails, this image goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Timestamp>,
}

/// Memory of the nodes of a type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryStatus {
    /// Instance type.
    pub instance_type: String,
    /// Image, `ami-…`.
    pub image: String,
    /// The least memory of a Node's `status.capacity`, without huge pages, in bytes.
    pub memory_bytes: i64,
}

/// One capacity reservation found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReservationStatus {
    /// `cr-…`.
    pub id: String,
    /// Instance type.
    pub instance_type: String,
    /// Availability Zone.
    pub zone: String,
    /// Whether it is a Capacity Block.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub block: bool,
    /// Whether only launches that name it use it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub targeted: bool,
    /// The placement group it was made in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement_group: Option<String>,
    /// `active`, `scheduled`, `ended` or `unknown`.
    pub state: String,
    /// When it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<jiff::Timestamp>,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<jiff::Timestamp>,
    /// Hosts.
    #[serde(default)]
    pub hosts: u32,
    /// Free hosts when last seen.
    #[serde(default)]
    pub free_hosts: u32,
    /// When it was last seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<jiff::Timestamp>,
}

/// One subnet found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubnetStatus {
    /// `subnet-…`.
    pub id: String,
    /// Availability Zone.
    pub zone: String,
    /// Zone id.
    #[serde(default)]
    pub zone_id: String,
    /// Free addresses when last seen.
    #[serde(default)]
    pub available_addresses: u32,
    /// Whether it has an IPv6 CIDR.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ipv6: bool,
}
