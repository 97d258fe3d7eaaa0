//! Gangs of several shapes: what is proven about their plans is in the document.

use serde_json::{Value, json};

use crate::support::document;

/// Nodes with eight accelerators, and a gang of one member per entry: name, number, accelerators, cores.
fn dump(nodes: usize, members: &[(&str, usize, i64, i64)]) -> String {
    let size: usize = members.iter().map(|(_, count, ..)| count).sum();
    let node = |index: usize| {
        let name = format!("n{index}");
        let cores = 8 + index * 7 % 9;
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {
                "kubernetes.io/hostname": name,
                "topology.kubernetes.io/zone": "us-east-1a",
                "topology.k8s.aws/network-node-layer-1": format!("nn-{}", index / 4),
            }},
            "status": {
                "allocatable": {"cpu": cores.to_string(), "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        })
    };
    let mut objects: Vec<Value> = (0..nodes).map(node).collect();
    let mut rank = 0;
    for (kind, count, gpus, cores) in members {
        for index in 0..*count {
            objects.push(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": format!("{kind}-{index}"), "namespace": "ns", "uid": format!("{kind}-{index}"),
                    "annotations": {
                        "muster.dev/gang": "rl", "muster.dev/gang-size": size.to_string(),
                        "muster.dev/rank": rank.to_string(),
                    },
                },
                "spec": {
                    "schedulerName": "muster",
                    "schedulingGates": [{"name": "muster.dev/gang"}],
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": {
                        "nvidia.com/gpu": gpus.to_string(), "cpu": cores.to_string(),
                    }, "limits": {"nvidia.com/gpu": gpus.to_string()}}}],
                },
                "status": {"phase": "Pending"},
            }));
            rank += 1;
        }
    }
    json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
}

#[test]
fn a_small_mix_is_placed_with_no_gap() {
    let document = document(&dump(4, &[("learner", 2, 8, 2), ("rollout", 3, 1, 2), ("env", 4, 0, 1)]));
    let gang = &document["gangs"][0];
    assert_eq!((&gang["outcome"], &gang["gap"]), (&json!("placed"), &json!(0)), "{gang:#}");
    assert_eq!(gang["members"].as_array().unwrap().len(), 9);
}

#[test]
fn a_large_mix_says_which_field_is_not_proven() {
    let members =
        [("learner", 6, 8, 3), ("rollout", 45, 1, 2), ("env", 60, 0, 1), ("odd", 30, 0, 3), ("head", 1, 1, 7)];
    let document = document(&dump(60, &members));
    let gang = &document["gangs"][0];
    assert_eq!(gang["outcome"], "placed", "{gang:#}");
    let gap = &gang["gap"];
    let proven = *gap == json!(0);
    let open = gap["field"].is_string() && gap["achieved"].as_u64() > gap["bound"].as_u64() && gap["bound"].is_u64();
    assert!(proven || open, "{gap}");
}

#[test]
fn a_mix_without_capacity_is_refused_for_good_reason() {
    let document = document(&dump(2, &[("learner", 3, 8, 2), ("rollout", 3, 1, 2), ("env", 4, 0, 1)]));
    let gang = &document["gangs"][0];
    assert_eq!(gang["outcome"], "refused", "{gang:#}");
    assert_eq!(gang["reasons"][0]["code"], "DoesNotFit", "{gang:#}");
}
