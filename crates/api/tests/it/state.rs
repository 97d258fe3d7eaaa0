//! Pods and Gangs as core's states and back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use k8s_openapi::api::core::v1::Pod;
use muster_api::crd::Gang;
use muster_api::{gang_state, pod_state};
use muster_core::model::gang::{Membership, Phase};
use serde_json::{Value, json};

fn gang(status: &Value) -> Gang {
    serde_json::from_value(json!({
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "Gang",
        "metadata": {"name": "train-1234", "namespace": "ns", "uid": "gang-uid", "resourceVersion": "7"},
        "spec": {"source": {"convention": "job", "identity": "train"}, "size": 2, "min": 2},
        "status": status,
    }))
    .unwrap()
}

fn full() -> Value {
    json!({
        "version": 1,
        "phase": "Released",
        "epoch": 3,
        "round": 1,
        "members": "2/2",
        "plan": {
            "minimum": 2,
            "running": {"minimum": 1},
            "nodes": ["n2", "n1"],
            "places": [
                {"rank": 0, "uid": "uid-0", "pod": "train-0", "node": 0},
                {"rank": 1, "node": 1},
                {"rank": 2, "uid": "uid-2", "pod": "train-2", "node": 0, "done": true},
            ],
        },
        "placement": {
            "summary": "1 zone, 2 host",
            "levels": [
                {"key": "topology.kubernetes.io/zone", "used": 1, "optimum": 1},
                {"key": "kubernetes.io/hostname", "used": 2, "optimum": 2},
            ],
        },
        "batch": "ganguid-1",
        "waiting": {
            "reason": "Collecting",
            "message": "one is missing",
            "since": "2026-01-01T00:00:00Z",
            "nextTry": "2026-01-01T00:01:00Z",
        },
        "since": "2026-01-01T00:00:00Z",
        "conditions": [{
            "type": "Bound", "status": "False", "reason": "Waiting", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    })
}

#[test]
fn a_status_that_is_read_and_written_is_the_same() {
    let object = gang(&full());
    let state = gang_state::read(&object);
    assert_eq!((state.phase, state.epoch, state.minimum, state.places.len()), (Some(Phase::Released), 3, 2, 3));
    assert_eq!((state.places[2].node.as_str(), &state.places[1].uid), ("n2", &None));
    let written = gang_state::write(&state, object.status.as_ref());
    assert_eq!(serde_json::to_value(&written).unwrap(), full());
    let mut again = object;
    again.status = Some(written);
    assert_eq!(gang_state::read(&again), state);
}

#[test]
fn a_gang_without_a_status_is_collecting() {
    let state = gang_state::read(&Gang { status: None, ..gang(&json!({})) });
    assert_eq!((state.phase, state.epoch, state.places.len()), (Some(Phase::Collecting), 0, 0));
}

#[test]
fn every_phase_survives_and_an_unknown_one_is_none() {
    for phase in Phase::ALL {
        assert_eq!(gang_state::read(&gang(&json!({"version": 1, "phase": phase.as_str()}))).phase, Some(phase));
    }
    assert_eq!(gang_state::read(&gang(&json!({"version": 1, "phase": "Dancing"}))).phase, None);
    assert_eq!(gang_state::read(&gang(&json!({"version": 1, "phase": "bound"}))).phase, None);
}

#[test]
fn a_status_of_a_newer_version_has_no_phase_here() {
    assert_eq!(gang_state::read(&gang(&json!({"version": 2, "phase": "Bound"}))).phase, None);
}

#[test]
fn the_time_of_waiting_is_kept_and_that_of_the_phase_stands_in_for_one_that_is_missing() {
    let object = gang(&full());
    let mut state = gang_state::read(&object);
    state.since = Some("2026-01-02T00:00:00Z".parse().unwrap());
    let waiting = |state: &_| gang_state::write(state, object.status.as_ref()).waiting.unwrap();
    assert_eq!(waiting(&state).since, Some("2026-01-01T00:00:00Z".parse().unwrap()));
    state.waiting.as_mut().unwrap().since = None;
    assert_eq!(waiting(&state).since, state.since);
}

fn pod(value: &Value) -> muster_core::model::gang::Pod {
    let pod: Pod = serde_json::from_value(value.clone()).unwrap();
    pod_state::read(&pod, Membership::Single, &["muster".to_owned()])
}

#[test]
fn a_pod_is_read_with_everything_the_gang_loop_asks() {
    let pod = pod(&json!({
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "5",
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"muster.dev/plan-epoch": "3", "muster.dev/planned-node": "n1"},
            },
        "spec": {
            "schedulerName": "muster",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}],
            "schedulingGates": [{"name": "muster.dev/gang"}, {"name": "kueue.x-k8s.io/topology"}],
        },
        "status": {
            "nominatedNodeName": "n2",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "m"}],
        },
    }));
    assert!(pod.deleting && pod.gated && pod.foreign_gate.is_some() && !pod.daemon && pod.ours);
    assert_eq!((pod.plan_epoch, pod.planned_node.as_ref().map(|node| node.as_str())), (Some(3), Some("n1")));
    assert_eq!((pod.node, pod.nominated.as_ref().map(|node| node.as_str())), (None, Some("n2")));
    assert_eq!(pod.unscheduled.unwrap().0.as_ref(), "SchedulingGated");
    assert_eq!(pod.held.requested.get("cpu"), 2_000);
}

#[test]
fn an_owner_that_somebody_wrote_on_a_pod_makes_no_daemon_of_it() {
    let owned = |owner: Value, node: Value| -> Pod {
        let metadata = json!({"name": "p", "namespace": "ns", "uid": "u", "ownerReferences": [owner]});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"containers": [], "nodeName": node}})).unwrap()
    };
    let daemon = |pod: &Pod| pod_state::read(pod, Membership::Single, &[]).daemon;
    let set = |api_version: &str, controller: bool| json!({"apiVersion": api_version, "kind": "DaemonSet", "name": "d", "uid": "d", "controller": controller});
    let claims = owned(set("apps/v1", true), Value::Null);
    assert!(!daemon(&claims), "whether there is such a DaemonSet is not known here");
    assert_eq!(pod_state::daemon_set(&claims).unwrap().uid, "d");
    for other in [set("apps/v1", false), set("example.com/v1", true)] {
        assert_eq!(pod_state::daemon_set(&owned(other, Value::Null)), None);
    }
    let mirror = |api_version: &str| json!({"apiVersion": api_version, "kind": "Node", "name": "n1", "uid": "x"});
    assert!(daemon(&owned(mirror("v1"), json!("n1"))));
    assert!(!daemon(&owned(mirror("v1"), json!("n2"))), "it is on another node");
    assert!(!daemon(&owned(mirror("v1"), Value::Null)), "it is on no node");
    assert!(!daemon(&owned(mirror("example.com/v1"), json!("n1"))));
}

#[test]
fn only_a_pod_that_succeeded_on_a_node_is_done() {
    for (phase, ended, succeeded) in
        [("Pending", false, false), ("Running", false, false), ("Succeeded", true, true), ("Failed", true, false)]
    {
        let pod =
            pod(&json!({"metadata": {}, "spec": {"containers": [], "nodeName": "n"}, "status": {"phase": phase}}));
        assert_eq!((pod.ended, pod.succeeded, pod.is_done()), (ended, succeeded, succeeded), "{phase}");
        assert!(!pod.ours && !pod.gated);
    }
    assert!(!pod(&json!({"metadata": {}, "spec": {"containers": []}, "status": {"phase": "Succeeded"}})).is_done());
}

#[test]
fn a_pod_whose_quantities_cannot_be_read_says_where() {
    let pod = pod(&json!({
        "metadata": {"annotations": {"muster.dev/plan-epoch": "three"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "many"}}}]},
    }));
    assert!(pod.shape.unwrap_err().contains("spec.containers[0]"));
    assert_eq!(pod.plan_epoch, None);
}

#[test]
fn capacity_kept_for_a_stopped_gang_is_read_as_it_was_written() {
    let mut object: Gang = serde_json::from_value(serde_json::json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "Gang", "metadata": {"name": "g", "namespace": "ns"},
        "spec": {"size": 3, "min": 3, "roles": [], "wishes": {}, "source": {"convention": "annotations", "identity": "g"}},
        "status": {"version": 1, "phase": "Collecting", "held": {"until": "2026-01-01T00:00:00Z", "rooms": [
            {"requests": {"cpu": 1000, "nvidia.com/gpu": 8}, "nodes": ["n1", "n2"]},
            {"requests": {"cpu": 500}, "nodes": ["n1"]},
        ]}},
    }))
    .unwrap();
    let state = gang_state::read(&object);
    let held = state.held.clone().unwrap();
    assert_eq!(held.capacities.len(), 3);
    assert_eq!((held.capacities[1].0.as_str(), held.capacities[1].1.get("nvidia.com/gpu")), ("n2", 8));
    let before = object.status.clone();
    object.status = Some(gang_state::write(&state, None));
    assert_eq!(object.status.unwrap().held, before.unwrap().held);
}
