//! Builders of nodes whose kubelet is played by kwok.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use crate::clock::now_real;

/// Node annotation that gives a node to kwok, as `kwok.x-k8s.io/node: fake`.
pub const KWOK_NODE: &str = "kwok.x-k8s.io/node";
/// Value of [`KWOK_NODE`].
pub const KWOK_NODE_FAKE: &str = "fake";
/// Node annotation, any value: kwok takes the node to NotReady, and back when it is removed.
pub const DEMO_NOT_READY: &str = "muster.dev/demo-not-ready";

/// Extended resource of NVIDIA's GPUs.
pub const GPU: &str = "nvidia.com/gpu";
/// Extended resource of EFA interfaces.
pub const EFA: &str = "vpc.amazonaws.com/efa";

/// A node to be: by default a p5.48xlarge (192 vCPU, 2 TiB, 8 GPUs, 32 EFA interfaces, 110 pods)
/// in us-east-1a, without network layers and taints.
#[derive(Clone, Debug)]
pub struct TestNode {
    name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    resources: BTreeMap<String, Quantity>,
    allocatable: BTreeMap<String, Quantity>,
    taints: Vec<Taint>,
    provider_id: Option<String>,
}

impl TestNode {
    /// A node named `name`.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            labels: BTreeMap::from([
                ("kubernetes.io/hostname".to_owned(), name.clone()),
                ("kubernetes.io/arch".to_owned(), "amd64".to_owned()),
                ("kubernetes.io/os".to_owned(), "linux".to_owned()),
            ]),
            annotations: BTreeMap::from([(KWOK_NODE.to_owned(), KWOK_NODE_FAKE.to_owned())]),
            resources: BTreeMap::new(),
            allocatable: BTreeMap::new(),
            taints: Vec::new(),
            provider_id: None,
            name,
        }
        .zone("us-east-1a")
        .instance_type("p5.48xlarge")
        .resource("cpu", "192")
        .resource("memory", "2Ti")
        .resource("ephemeral-storage", "500Gi")
        .resource("pods", "110")
        .gpus(8)
        .efa(32)
    }

    /// In this availability zone; the region is the zone without its letter.
    #[must_use]
    pub fn zone(self, zone: &str) -> Self {
        let region = zone.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        self.label("topology.kubernetes.io/region", region).label("topology.kubernetes.io/zone", zone)
    }

    /// With these network nodes as EC2 reports them, the widest layer first.
    #[must_use]
    pub fn layers(self, layers: [&str; 3]) -> Self {
        let [first, second, third] = layers;
        self.label("topology.k8s.aws/network-node-layer-1", first)
            .label("topology.k8s.aws/network-node-layer-2", second)
            .label("topology.k8s.aws/network-node-layer-3", third)
    }

    /// Of this instance type. Its resources are not looked up: set them beside it.
    #[must_use]
    pub fn instance_type(self, instance_type: &str) -> Self {
        self.label("node.kubernetes.io/instance-type", instance_type)
    }

    /// With this many GPUs; 0 leaves the resource out.
    #[must_use]
    pub fn gpus(self, count: u32) -> Self {
        self.device(GPU, count)
    }

    /// With this many EFA interfaces; 0 leaves the resource out.
    #[must_use]
    pub fn efa(self, count: u32) -> Self {
        self.device(EFA, count)
    }

    /// With this much of a resource, e.g. `("cpu", "64")`, `("memory", "256Gi")`, `("pods", "58")`;
    /// allocatable equals capacity.
    #[must_use]
    pub fn resource(mut self, name: &str, quantity: &str) -> Self {
        self.resources.insert(name.to_owned(), Quantity(quantity.to_owned()));
        self
    }

    /// With so much of a resource for pods, whatever its capacity is.
    #[must_use]
    pub fn allocatable(mut self, name: &str, quantity: &str) -> Self {
        self.allocatable.insert(name.to_owned(), Quantity(quantity.to_owned()));
        self
    }

    /// With this taint; `effect` is `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    #[must_use]
    pub fn taint(mut self, key: &str, value: Option<&str>, effect: &str) -> Self {
        self.taints.push(Taint {
            key: key.to_owned(),
            value: value.map(str::to_owned),
            effect: effect.to_owned(),
            time_added: None,
        });
        self
    }

    /// With this label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// With this annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// With `spec.providerID`, e.g. `aws:///us-east-1a/i-0123456789abcdef0`.
    #[must_use]
    pub fn provider_id(mut self, id: impl Into<String>) -> Self {
        self.provider_id = Some(id.into());
        self
    }

    /// The object, to be created: the API server takes a node's status at creation.
    pub fn build(mut self) -> Node {
        // A kubelet registers with these too; of a node without them kube-controller-manager patches them in.
        for (name, deprecated) in
            [("kubernetes.io/arch", "beta.kubernetes.io/arch"), ("kubernetes.io/os", "beta.kubernetes.io/os")]
        {
            if let Some(value) = self.labels.get(name).cloned() {
                self.labels.insert(deprecated.to_owned(), value);
            }
        }
        Node {
            metadata: ObjectMeta {
                name: Some(self.name),
                labels: Some(self.labels),
                annotations: Some(self.annotations),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                provider_id: self.provider_id,
                taints: if self.taints.is_empty() { None } else { Some(self.taints) },
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus {
                capacity: Some(self.resources.clone()),
                allocatable: Some(self.resources.into_iter().chain(self.allocatable).collect()),
                ..NodeStatus::default()
            }),
        }
    }

    fn device(mut self, name: &str, count: u32) -> Self {
        if count == 0 {
            self.resources.remove(name);
            self
        } else {
            self.resource(name, &count.to_string())
        }
    }
}

/// Whether the kubelet of a Node says that it can run pods.
#[must_use]
pub fn is_ready(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The condition with which a kubelet registers before its network plugin runs.
#[must_use]
pub fn not_ready() -> NodeCondition {
    let now = Time(now_real());
    NodeCondition {
        type_: "Ready".to_owned(),
        status: "False".to_owned(),
        reason: Some("KubeletNotReady".to_owned()),
        message: Some("container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized".to_owned()),
        last_heartbeat_time: Some(now.clone()),
        last_transition_time: Some(now),
    }
}

/// The status with which the kubelet of a Node reports that it can run pods, at this address.
#[must_use]
pub fn ready_status(node: &Node, address: &str) -> Value {
    let now = Time(now_real());
    let condition = |name: &str, status: &str, reason: &str| json!({"type": name, "status": status, "reason": reason, "lastHeartbeatTime": now, "lastTransitionTime": now});
    json!({
        "conditions": [
            condition("Ready", "True", "KubeletReady"),
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
        ],
        "addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": node.metadata.name},
        ],
        "nodeInfo": {
            "architecture": node.metadata.labels.as_ref().and_then(|labels| labels.get("kubernetes.io/arch")),
            "operatingSystem": "linux", "kubeletVersion": "v1.37.0",
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_belongs_to_kwok_and_carries_its_place_and_devices() {
        let node = TestNode::new("n1")
            .zone("eu-central-1b")
            .layers(["nn-1", "nn-2", "nn-3"])
            .gpus(4)
            .efa(0)
            .taint(GPU, None, "NoSchedule")
            .build();
        let labels = node.metadata.labels.unwrap();
        assert_eq!(labels["topology.kubernetes.io/region"], "eu-central-1");
        assert_eq!(labels["topology.k8s.aws/network-node-layer-3"], "nn-3");
        assert_eq!(node.metadata.annotations.unwrap()[KWOK_NODE], KWOK_NODE_FAKE);
        let allocatable = node.status.unwrap().allocatable.unwrap();
        assert_eq!(allocatable[GPU].0, "4");
        assert!(!allocatable.contains_key(EFA));
        assert_eq!(node.spec.unwrap().taints.unwrap().len(), 1);
    }
}
