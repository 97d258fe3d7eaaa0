//! Pods on nodes that go are planned as if they waited.

use serde_json::{Value, json};

use crate::ordinary::planned;

fn catalogue() -> Value {
    json!({"version": 2, "name": "one", "types": [{
        "name": "m", "labels": {"kubernetes.io/arch": "amd64"},
        "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"}, "overhead": {"cpu": "100m"},
        "offerings": [{"zone": "z-1", "market": "on-demand", "usdMicroPerHour": 100_000, "available": true, "reservation": null, "free": null}],
    }], "prices": []})
}

fn node(name: &str, goes: &str) -> Value {
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "z-1", "muster.dev/nodepool": "p"}},
        "status": {
            "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    match goes {
        "taint" => {
            node["spec"] = json!({"taints": [{"key": "muster.dev/disrupted", "effect": "NoSchedule"}]});
        }
        "deletion" => node["metadata"]["deletionTimestamp"] = json!("2026-07-20T09:00:00Z"),
        _ => {}
    }
    node
}

/// A Ready pod of a ReplicaSet on `n0`.
fn pod(with: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u-web", "labels": {"app": "web"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-rs", "controller": true}],
        },
        "spec": {"schedulerName": "muster", "nodeName": "n0", "containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    merge(&mut pod, with);
    pod
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn owned_by(kind: &str) -> Value {
    json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "u-1", "controller": true}]}})
}

fn budget(name: &str, spec: &Value, status: &Value) -> Value {
    let mut budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}}, "status": status,
    });
    merge(&mut budget["spec"], spec);
    budget
}

/// Outcome and node of each pod of the document.
fn pods(objects: &[Value]) -> Vec<(String, String)> {
    let mut all = vec![
        json!({"apiVersion": "muster.dev/v1alpha1", "kind": "EC2NodeClass", "metadata": {"name": "c"}, "spec": {
            "amiSelectorTerms": [{"alias": "al2023@latest"}], "instanceProfile": "p",
            "subnetSelectorTerms": [{"id": "subnet-1"}], "securityGroupSelectorTerms": [{"id": "sg-1"}],
        }}),
        json!({"apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "p"}, "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "muster.dev", "kind": "EC2NodeClass", "name": "c"},
            "requirements": [{"key": "muster.dev/capacity-type", "operator": "In", "values": ["on-demand"]}],
        }}}}),
    ];
    all.extend_from_slice(objects);
    if objects.iter().any(|object| object["metadata"]["ownerReferences"][0]["kind"] == "StatefulSet") {
        all.push(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web", "namespace": "shop", "uid": "u-1"},
            "spec": {"serviceName": "web", "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {}, "spec": {"containers": []}}},
        }));
    }
    let text = json!({"apiVersion": "v1", "kind": "List", "items": all}).to_string();
    let (document, _) = planned(&text, &catalogue().to_string());
    assert_eq!(document["ignored"], json!([]), "every object is read");
    let text = |pod: &Value, key: &str| pod[key].as_str().unwrap_or_default().to_owned();
    document["pods"].as_array().unwrap().iter().map(|pod| (text(pod, "outcome"), text(pod, "node"))).collect()
}

#[test]
fn pods_on_nodes_that_go_are_planned_unless_they_tolerate_it_have_ended_or_belong_to_the_node() {
    let terminating = json!({"metadata": {"deletionTimestamp": "2026-07-20T09:00:00Z"}});
    let both = |one: &Value, other: &Value| {
        let mut both = one.clone();
        merge(&mut both, other);
        both
    };
    let tolerates = json!({"spec": {"tolerations": [{"key": "muster.dev/disrupted", "operator": "Exists"}]}});
    let apart = json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "web"}}},
    ]}}}});
    let rows: [(&str, Value, bool); 12] = [
        ("of a ReplicaSet", json!({}), true),
        ("that keeps apart from its like: it is gone when the next one comes", apart, true),
        ("that tolerates it", tolerates, false),
        ("that has ended", json!({"status": {"phase": "Succeeded"}}), false),
        ("of a DaemonSet", owned_by("DaemonSet"), false),
        (
            "of its node",
            json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n0", "uid": "u-n0"}]}}),
            false,
        ),
        ("of another scheduler", json!({"spec": {"schedulerName": "other"}}), false),
        ("that terminates", terminating.clone(), false),
        ("that another place was made for before it was bound", json!({"status": {"nominatedNodeName": "n0"}}), true),
        (
            "that a StatefulSet does not control, and that terminates",
            both(
                &json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u-1"}]}}),
                &terminating,
            ),
            false,
        ),
        ("of a StatefulSet", owned_by("StatefulSet"), true),
        ("of a StatefulSet that terminates", both(&owned_by("StatefulSet"), &terminating), true),
    ];
    for (what, with, moves) in &rows {
        for (goes, leaves) in [("taint", *moves), ("deletion", *moves), ("", false)] {
            let found = pods(&[node("n0", goes), pod(with)]);
            let wanted: Vec<_> = leaves.then(|| ("buy".to_owned(), "new/0".to_owned())).into_iter().collect();
            assert_eq!(found, wanted, "a pod {what}, on a node with {goes:?}");
        }
    }
    let found = pods(&[node("n0", "taint"), node("n1", ""), pod(&json!({}))]);
    assert_eq!(found, [("placed".to_owned(), "n1".to_owned())], "a running node has capacity for it");
}

#[test]
fn pods_whose_eviction_a_budget_forbids_stay_on_the_node_that_goes() {
    let none = Value::Null;
    let allows = |number: i64| json!({"disruptionsAllowed": number, "observedGeneration": 1});
    let unready = json!({"status": {"conditions": []}});
    let as_it_is = json!({});
    let other = json!({"selector": {"matchLabels": {"app": "other"}}});
    let any = json!({"unhealthyPodEvictionPolicy": "AlwaysAllow"});
    let elsewhere = json!({"metadata": {"namespace": "other"}});
    let in_another_namespace = || {
        let mut one = budget("a", &json!({}), &allows(0));
        merge(&mut one, &elsewhere);
        one
    };
    let pending = json!({"status": {"phase": "Pending", "conditions": []}});
    let rows: [(&str, Vec<Value>, &Value, bool); 18] = [
        ("a status that allows none", vec![budget("a", &json!({}), &allows(0))], &as_it_is, false),
        ("a status that allows one", vec![budget("a", &json!({}), &allows(1))], &as_it_is, true),
        (
            "two budgets",
            vec![budget("a", &json!({}), &allows(1)), budget("b", &json!({}), &allows(1))],
            &as_it_is,
            false,
        ),
        ("a budget of another namespace", vec![in_another_namespace()], &as_it_is, true),
        ("a status that wants nothing and allows none", vec![budget("a", &json!({}), &allows(0))], &unready, false),
        (
            "two budgets, of a pod that has not begun",
            vec![budget("a", &json!({}), &allows(0)), budget("b", &json!({}), &allows(0))],
            &pending,
            true,
        ),
        ("a budget of others", vec![budget("a", &other, &allows(0))], &as_it_is, true),
        ("all have to stay", vec![budget("a", &json!({"minAvailable": "100%"}), &none)], &as_it_is, false),
        (
            "all have to stay, and nobody has looked yet",
            vec![budget("a", &json!({"minAvailable": "100%"}), &json!({}))],
            &as_it_is,
            false,
        ),
        (
            "one may go, and nobody has looked yet",
            vec![budget("a", &json!({"maxUnavailable": 1}), &json!({}))],
            &as_it_is,
            true,
        ),
        ("one of two has to stay", vec![budget("a", &json!({"minAvailable": 1}), &none)], &as_it_is, true),
        ("half of two has to stay", vec![budget("a", &json!({"minAvailable": "50%"}), &none)], &as_it_is, true),
        ("51 % of two have to stay", vec![budget("a", &json!({"minAvailable": "51%"}), &none)], &as_it_is, false),
        ("one may go", vec![budget("a", &json!({"maxUnavailable": 1}), &none)], &as_it_is, true),
        (
            "one may go, and it is not Ready: the other is enough",
            vec![budget("a", &json!({"maxUnavailable": 1}), &none)],
            &unready,
            true,
        ),
        ("all have to be Ready, and it is not", vec![budget("a", &json!({"minAvailable": 2}), &none)], &unready, false),
        ("none may go", vec![budget("a", &json!({"maxUnavailable": "0%"}), &none)], &as_it_is, false),
        ("what is not Ready may go", vec![budget("a", &any, &allows(0))], &unready, true),
    ];
    for (what, budgets, with, moves) in rows {
        // Another pod of the budget, on a node that stays.
        let mut second = pod(&json!({"metadata": {"name": "web-2", "uid": "u-2"}}));
        second["spec"]["nodeName"] = json!("n1");
        let mut full = node("n1", "");
        full["status"]["allocatable"]["cpu"] = json!("1");
        let mut objects = vec![node("n0", "taint"), full, pod(with), second];
        objects.extend(budgets);
        assert_eq!(pods(&objects).len(), usize::from(moves), "{what}");
    }
}

#[test]
fn pods_on_an_instance_that_ec2_takes_are_planned_whatever_a_budget_says() {
    let batch = |deadline: Value| {
        json!({
            "apiVersion": "muster.dev/v1alpha1", "kind": "NodeBatch", "metadata": {"name": "b", "uid": "u-b"},
            "spec": {"count": 1, "fill": "Partial", "nodePools": ["p"], "offers": [{"instanceType": "m", "nodePool": "p", "count": 1}]},
            "status": {"version": 1, "phase": "Draining", "count": 1, "nodePool": "p", "instanceType": "m", "zone": "z-1", "replaced": [{
                "id": "i-0", "state": "Lost", "attempt": 1, "node": "n0",
                "loss": {"cause": "spot", "message": "back", "noticed": "2026-07-20T09:00:00Z", "actAt": "2026-07-20T09:00:00Z", "deadline": deadline},
            }]},
        })
    };
    for (deadline, moves) in [(json!("2026-07-20T09:02:00Z"), 1), (Value::Null, 0)] {
        let none = budget("a", &json!({}), &json!({"disruptionsAllowed": 0, "expectedPods": 1}));
        let found = pods(&[node("n0", "taint"), pod(&json!({})), none, batch(deadline)]);
        assert_eq!(found.len(), moves);
    }
}

#[test]
fn a_budget_that_is_neither_a_number_nor_a_percentage_is_named_and_keeps_nobody() {
    for (field, text) in
        [("minAvailable", "half"), ("maxUnavailable", "-1%"), ("minAvailable", "%"), ("minAvailable", "5")]
    {
        let objects = [node("n0", "taint"), pod(&json!({})), budget("a", &json!({field: text}), &Value::Null)];
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
        let (document, _) = planned(&list, &catalogue().to_string());
        let ignored = document["ignored"].as_array().unwrap();
        assert_eq!((ignored.len(), &ignored[0]["name"]), (1, &json!("a")));
        let why = ignored[0]["why"].as_str().unwrap();
        assert!(why.contains(&format!("spec.{field}: `{text}`")), "{why}");
        assert_eq!(document["pods"].as_array().unwrap().len(), 1);
    }
}
