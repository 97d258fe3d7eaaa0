//! Kind `EC2NodeClass`: how nodes are bought. Field names follow Karpenter where the meaning is the same.

#![expect(unreachable_pub, reason = "the schema derive repeats each struct inside a function body")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How nodes are bought: image, subnets, security groups, role, disks, EFA, user data.
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
    doc = "How nodes are bought: image, subnets, security groups, role, disks, EFA, user data.",
    validation = Rule::new("has(self.spec.role) != has(self.spec.instanceProfile)").message("exactly one of role and instanceProfile is needed"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
)]
#[serde(rename_all = "camelCase")]
pub struct EC2NodeClassSpec {
    /// Image, by alias (`al2023@latest`), id or SSM parameter.
    #[schemars(length(min = 1, max = 30))]
    pub ami_selector_terms: Vec<AmiSelectorTerm>,
    /// Subnets, by id or tags, ORed.
    #[schemars(length(min = 1, max = 30))]
    pub subnet_selector_terms: Vec<SubnetSelectorTerm>,
    /// Security groups, by id, name or tags, ORed.
    #[schemars(length(min = 1, max = 30))]
    pub security_group_selector_terms: Vec<SecurityGroupSelectorTerm>,
    /// IAM role: means the instance profile of that name. Muster creates no IAM objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Instance profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// Added to Muster's own part of the user data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub user_data: Option<String>,
    /// Elastic Fabric Adapter interfaces; the layout comes from DescribeInstanceTypes.
    #[serde(default)]
    pub efa: EfaPolicy,
    /// Disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub block_device_mappings: Vec<BlockDeviceMapping>,
    /// Tags for instances and volumes. Keys `muster.dev/*` and `kubernetes.io/cluster/*` are refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// One way to name an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("[has(self.alias), has(self.id), has(self.ssmParameter)].filter(x, x).size() == 1").message("exactly one of alias, id and ssmParameter is needed"))]
#[serde(rename_all = "camelCase")]
pub struct AmiSelectorTerm {
    /// `al2023@latest`, `al2023@v20260101`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// `ami-…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Path of an SSM parameter that holds an AMI id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssm_parameter: Option<String>,
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
    /// The volume.
    pub ebs: Ebs,
}

/// An EBS volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ebs {
    /// Size in GiB.
    #[schemars(range(min = 1, max = 65536))]
    pub volume_size: u32,
    /// `gp3` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
    /// Encrypted; the account's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
}

/// What the class resolves to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EC2NodeClassStatus {
    /// Image the alias resolves to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ami: Option<String>,
    /// Subnets found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<SubnetStatus>,
    /// Security groups found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<String>,
    /// Generation of the spec this status was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions: SubnetsReady, SecurityGroupsReady, AMIsReady, Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
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
}
