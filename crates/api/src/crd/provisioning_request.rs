//! Kind `ProvisioningRequest` of `autoscaling.x-k8s.io/v1`: the standard inbound door, read as upstream defines it.
//!
//! Source: <https://github.com/kubernetes/autoscaler>, `cluster-autoscaler/apis/provisioningrequest`.

#![expect(unreachable_pub, reason = "the schema derive repeats each struct inside a function body")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A request for capacity for a set of pods, all or nothing.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "autoscaling.x-k8s.io",
    version = "v1",
    kind = "ProvisioningRequest",
    namespaced,
    status = "ProvisioningRequestStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestSpec {
    /// Sets of pods to find capacity for.
    pub pod_sets: Vec<ProvisioningPodSet>,
    /// Class; Muster serves `atomic.muster.dev`.
    pub provisioning_class_name: String,
    /// Parameters of the class: `ValidUntilSeconds` and topology requests under their `muster.dev/…` keys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

/// Pods of one template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningPodSet {
    /// A PodTemplate in the same namespace.
    pub pod_template_ref: ProvisioningReference,
    /// Number of pods.
    pub count: i32,
}

/// Reference by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningReference {
    /// Name.
    #[serde(default)]
    pub name: String,
}

/// Where the request stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestStatus {
    /// Accepted, Provisioned, Failed, BookingExpired, CapacityRevoked.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// Details of the class.
    #[serde(default)]
    pub provisioning_class_details: BTreeMap<String, String>,
}
