//! A large cluster as a dump, for the benchmark of the overview and the gate of what it takes.

use serde_json::{Value, json};

/// Members of a gang.
const GANG: usize = 8;

fn node(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("n{number}"), "labels": {
            "kubernetes.io/hostname": format!("n{number}"),
            "topology.kubernetes.io/zone": "us-east-1a",
            "node.kubernetes.io/instance-type": "p5.48xlarge",
            "topology.k8s.aws/network-node-layer-1": "core",
            "topology.k8s.aws/network-node-layer-2": format!("spine-{}", number / 64),
            "topology.k8s.aws/network-node-layer-3": format!("leaf-{}", number / 8),
        }},
        "status": {
            "allocatable": {"cpu": "190", "memory": "1900Gi", "pods": "100", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// Every second gang is bound, on a leaf of its own; the others want more than any leaf has free.
fn pod(gang: usize, rank: usize) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("g{gang}-{rank}"), "namespace": "ml", "uid": format!("g{gang}-{rank}"),
            "creationTimestamp": "2026-11-01T00:00:00Z",
            "annotations": {
                "muster.dev/gang": format!("g{gang}"), "muster.dev/gang-size": GANG.to_string(),
                "muster.dev/rank": rank.to_string(),
                "muster.dev/topology-required": "topology.k8s.aws/network-node-layer-3",
            },
        },
        "spec": {
            "schedulerName": "muster",
            "containers": [{"name": "main", "image": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        },
        "status": {"phase": "Pending"},
    });
    if gang.is_multiple_of(2) {
        // A node of every other leaf is in use: the rest waits, and has to be explained.
        pod["spec"]["nodeName"] = json!(format!("n{}", gang * GANG + rank));
        pod["status"]["phase"] = json!("Running");
    }
    pod
}

/// A pod that keeps a node of a leaf from gangs.
fn in_use(leaf: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("u{leaf}"), "namespace": "other", "uid": format!("u{leaf}")},
        "spec": {
            "nodeName": format!("n{}", leaf * 8 + 7),
            "containers": [{"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        },
        "status": {"phase": "Running"},
    })
}

/// Nodes of eight GPUs in three layers, and gangs of eight pods: every second one is bound, the rest waits.
pub(crate) fn dump(nodes: usize, gangs: usize) -> String {
    let mut items: Vec<Value> = (0..nodes).map(node).collect();
    items.extend((0..gangs).flat_map(|gang| (0..GANG).map(move |rank| pod(gang, rank))));
    let of_a_gang = |leaf: usize| leaf < gangs && leaf.is_multiple_of(2);
    items.extend((0..nodes / 8).filter(|leaf| !of_a_gang(*leaf)).map(in_use));
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}
