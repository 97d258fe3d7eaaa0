//! Nodes that have registered and cannot be used: those that are on their way, and those that are not any more.

use serde_json::{Value, json};

use crate::scene::{catalogue, class, job, node, of_ec2, places, planned_at, pod, pool, price};

const NOW: &str = "2026-07-20T10:00:05Z";

/// A node of pool `p` that is not Ready, with taints by their keys, made at a moment.
fn coming(created: &str, taints: &[&str]) -> Value {
    node("n", |node| {
        node["metadata"]["creationTimestamp"] = json!(created);
        for (key, value) in [("muster.dev/nodepool", "p"), ("node.kubernetes.io/instance-type", "m5.xlarge")] {
            node["metadata"]["labels"][key] = json!(value);
        }
        node["status"]["conditions"][0]["status"] = json!("Unknown");
        let taint = |key: &&str| json!({"key": key, "effect": "NoSchedule"});
        node["spec"] = json!({"providerID": "aws:///z-1/i-1", "taints": taints.iter().map(taint).collect::<Vec<_>>()});
    })
}

/// The place of a pod that asks for 1.5 CPUs.
fn place(objects: &[Value]) -> (String, Option<String>) {
    let catalogue = catalogue(
        &[of_ec2("m5.large", 2), of_ec2("m5.xlarge", 4)],
        &[price("m5.large", "z-1", 96_000), price("m5.xlarge", "z-1", 192_000)],
    );
    let all = [&[pool(|_| {}), class(|_| {}), pod("a", "1500m", |_| {})], objects].concat();
    let document = planned_at(Some(NOW), &all, &catalogue);
    let (outcome, node) = places(&document)[0];
    (outcome.to_owned(), node.map(str::to_owned))
}

#[track_caller]
fn joins(objects: &[Value]) {
    assert_eq!(place(objects), ("joining".to_owned(), Some("n".to_owned())));
}

#[track_caller]
fn is_left_alone(objects: &[Value]) {
    assert_eq!(place(objects), ("buy".to_owned(), Some("new/0".to_owned())));
}

const YOUNG: &str = "2026-07-20T09:58:00Z";
const OLD: &str = "2026-07-20T08:00:00Z";
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// A pod that stands on the node, and what it is.
fn standing(change: impl FnOnce(&mut Value)) -> Value {
    pod("r", "100m", |pod| {
        pod["spec"]["nodeName"] = json!("n");
        pod["status"]["phase"] = json!("Running");
        change(pod);
    })
}

fn owned_by(kind: &str) -> Value {
    let version = if kind == "Node" { "v1" } else { "apps/v1" };
    json!([{"apiVersion": version, "kind": kind, "name": "n", "uid": "o", "controller": true}])
}

#[test]
fn a_node_is_waited_for_as_long_as_the_server_waits_for_one() {
    joins(&[coming(YOUNG, &[NOT_READY])]);
    joins(&[coming(YOUNG, &["muster.dev/unregistered"])]);
    is_left_alone(&[coming(OLD, &[NOT_READY])]);
    is_left_alone(&[coming(OLD, &["node.kubernetes.io/unreachable"])]);
}

#[test]
fn only_taints_that_go_by_themselves_once_it_is_ready_are_overlooked() {
    for key in ["node.kubernetes.io/network-unavailable", "node.cloudprovider.kubernetes.io/uninitialized"] {
        joins(&[coming(YOUNG, &[NOT_READY, key])]);
    }
    for key in ["node.kubernetes.io/unreachable", "node.kubernetes.io/disk-pressure", "team"] {
        is_left_alone(&[coming(YOUNG, &[NOT_READY, key])]);
    }
    // A node that is Ready and has no network yet.
    let mut ready = coming(YOUNG, &["node.kubernetes.io/network-unavailable"]);
    ready["status"]["conditions"][0]["status"] = json!("True");
    joins(&[ready]);
}

#[test]
fn a_node_on_which_a_pod_stands_that_waited_for_it_was_usable_before() {
    let young = || coming(YOUNG, &[NOT_READY]);
    is_left_alone(&[young(), standing(|_| {})]);
    joins(&[young(), standing(|pod| pod["metadata"]["ownerReferences"] = owned_by("DaemonSet"))]);
    joins(&[young(), standing(|pod| pod["metadata"]["ownerReferences"] = owned_by("Node"))]);
    joins(&[young(), standing(|pod| pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]))]);
    joins(&[young(), standing(|pod| pod["status"]["phase"] = json!("Succeeded"))]);
}

/// The NodeBatch that lists the node, for pods of no gang or for a gang.
fn batch(state: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut batch = json!({"apiVersion": "muster.dev/v1alpha1", "kind": "NodeBatch", "metadata": {"name": "b", "uid": "b"},
        "spec": {"nodePools": ["p"], "count": 1, "fill": "Partial", "zones": ["z-1"], "capacityType": "on-demand",
                 "offers": [{"nodePool": "p", "instanceType": "m5.xlarge", "count": 1}]},
        "status": {"version": 1, "phase": "Joining", "count": 1, "nodePool": "p", "instanceType": "m5.xlarge", "zone": "z-1",
                   "instances": [{"id": "i-1", "attempt": 1, "state": state, "node": "n"}]}});
    change(&mut batch);
    batch
}

#[test]
fn of_a_node_that_a_batch_lists_the_batch_says_whether_it_is_joining() {
    joins(&[coming(OLD, &[NOT_READY]), batch("Registered", |_| {})]);
    is_left_alone(&[coming(YOUNG, &[NOT_READY]), batch("Ready", |_| {})]);
    is_left_alone(&[
        coming(YOUNG, &[NOT_READY]),
        batch("Registered", |batch| batch["status"]["phase"] = json!("Draining")),
    ]);
    let of_gang = batch("Registered", |batch| {
        batch["spec"]["fill"] = json!("Atomic");
        batch["spec"]["gangRef"] = json!({"namespace": "ns", "name": "other", "uid": "g"});
    });
    is_left_alone(&[coming(YOUNG, &[NOT_READY]), of_gang]);
}

#[test]
fn a_gang_waits_no_longer_for_a_node_than_the_server_does() {
    let catalogue = catalogue(&[of_ec2("m5.xlarge", 4)], &[price("m5.xlarge", "z-1", 192_000)]);
    for (created, outcome) in [(YOUNG, "waiting"), (OLD, "buy")] {
        let mut node = coming(created, &[NOT_READY]);
        node["metadata"]["labels"]["muster.dev/batch"] = json!("b");
        let all = [pool(|_| {}), class(|_| {}), node, job(1, "1500m", |_| {})];
        let document = planned_at(Some(NOW), &all, &catalogue);
        assert_eq!(document["gangs"][0]["outcome"], outcome, "{document:#}");
    }
}
