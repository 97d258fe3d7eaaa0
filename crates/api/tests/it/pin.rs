//! The pin of a release: how it is written, and that who reads a pinned member sees what it asked for before.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use k8s_openapi::api::core::v1::{NodeSelectorTerm, Pod};
use muster_api::conventions::{Kind, Object, Objects, recognise};
use muster_api::{convert, pod_state};
use muster_core::model::gang::{Membership, Pod as State, RankClaim};
use muster_core::model::names::ObjectKey;
use serde_json::{Value, json};

/// A released member with these terms of required node affinity, `null` for none.
fn member(terms: &Value, planned: &str, gates: &Value) -> Pod {
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    serde_json::from_value(json!({
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "u",
            "annotations": {"muster.dev/plan-epoch": "3", "muster.dev/planned-node": planned, "muster.dev/pinned-node": planned},
        },
        "spec": {
            "containers": [{"name": "c"}],
            "schedulingGates": gates,
            "affinity": if terms.is_null() { Value::Null } else { affinity },
        },
    }))
    .unwrap()
}

/// The same with the pin of a release.
fn pinned(pod: &Pod, node: &str) -> Pod {
    let terms = convert::pin(convert::required_terms(pod).to_vec(), node);
    let mut pod = pod.clone();
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    pod.spec.as_mut().unwrap().affinity = serde_json::from_value(json!({"nodeAffinity": required})).unwrap();
    pod
}

fn of_gang(pod: &Pod) -> State {
    let membership =
        Membership::Member { gang: ObjectKey::new("ns", "train"), role: "".into(), rank: RankClaim::Missing };
    pod_state::read(pod, membership, &[])
}

fn field(operator: &str, node: &str) -> Value {
    json!({"key": "metadata.name", "operator": operator, "values": [node]})
}

fn label(key: &str) -> Value {
    json!({"key": key, "operator": "In", "values": ["a", "b"]})
}

/// Terms as people write them, and as they might.
fn terms() -> Vec<Value> {
    let expressions =
        [json!([label("zone")]), json!([label("zone"), label("arch")]), json!([label("arch"), label("zone")])];
    let fields =
        [json!([field("In", "n1")]), json!([field("NotIn", "n2")]), json!([field("NotIn", "n2"), field("In", "n1")])];
    let mut terms = Vec::new();
    for expression in &expressions {
        terms.push(json!({"matchExpressions": expression}));
        for field in &fields {
            terms.push(json!({"matchExpressions": expression, "matchFields": field}));
        }
    }
    terms.extend(fields.iter().map(|field| json!({"matchFields": field})));
    terms
}

#[test]
fn a_pinned_member_asks_for_what_it_asked_for_before() {
    let terms = terms();
    let mut cases = vec![Value::Null];
    for first in &terms {
        cases.push(json!([first]));
        cases.extend(terms.iter().map(|second| json!([first, second])));
    }
    assert!(cases.len() > 200);
    for case in cases {
        let before = member(&case, "n1", &Value::Null);
        let shape = convert::shape_of_pod(&before).unwrap();
        let after = of_gang(&pinned(&before, "n1"));
        assert_eq!(after.pinned.as_ref().map(|node| node.as_str()), Some("n1"), "{case}");
        assert_eq!(*after.shape.unwrap(), shape, "{case}");
    }
}

#[test]
fn the_pin_stands_in_every_term_behind_what_is_there_as_the_api_server_asks() {
    for case in terms().iter().map(|first| json!([first, {"matchExpressions": [label("rack")]}])) {
        let before: Vec<NodeSelectorTerm> = serde_json::from_value(case).unwrap();
        let after = convert::pin(before.clone(), "n7");
        assert_eq!(after.len(), before.len(), "no term comes or goes");
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(after.match_expressions, before.match_expressions);
            let (old, new) = (before.match_fields.clone().unwrap_or_default(), after.match_fields.clone().unwrap());
            assert_eq!(new[..old.len()], old[..], "requirements are added behind those that are there");
            assert_eq!(json!(new[old.len()..]), json!([field("In", "n7")]));
        }
    }
    assert_eq!(json!(convert::pin(Vec::new(), "n7")), json!([{"matchFields": [field("In", "n7")]}]));
}

#[test]
fn what_the_author_of_a_pod_wrote_is_no_pin_of_ours() {
    let own = json!([{"matchFields": [field("In", "n1")]}]);
    let one_of_two = json!([{"matchFields": [field("In", "n1")]}, {"matchExpressions": [label("zone")]}]);
    let gate = json!([{"name": "muster.dev/gang"}]);
    for (why, pod) in [
        ("planned elsewhere", member(&own, "n2", &Value::Null)),
        ("not released yet", member(&own, "n1", &gate)),
        ("another term leads elsewhere", member(&one_of_two, "n1", &Value::Null)),
    ] {
        let read = of_gang(&pod);
        assert_eq!(read.pinned, None, "{why}");
        assert_eq!(*read.shape.unwrap(), convert::shape_of_pod(&pod).unwrap(), "{why}");
    }
    let mut unnamed = member(&own, "n1", &Value::Null);
    unnamed.metadata.annotations = None;
    assert_eq!(of_gang(&unnamed).pinned, None);
    let single = pod_state::read(&member(&own, "n1", &Value::Null), Membership::Single, &[]);
    assert_eq!(
        (single.pinned, single.shape.unwrap().node_affinity.is_some()),
        (None, true),
        "only members are released"
    );
}

/// The one owner that is known.
struct Owner(Object);

impl Objects for Owner {
    fn by_uid(&self, uid: &str) -> Option<&Object> {
        Some(&self.0).filter(|owner| owner.metadata.uid.as_deref() == Some(uid))
    }

    fn by_name(&self, _kind: Kind, _namespace: &str, _name: &str) -> Option<&Object> {
        None
    }
}

/// Whether a member with this owner is made again when it is deleted.
fn remade(api_version: &str, kind: &str, spec: &Value, labels: &Value) -> bool {
    let owner = json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": "o", "namespace": "ns", "uid": "o"}, "spec": spec,
    });
    let reference = json!({"apiVersion": api_version, "kind": kind, "name": "o", "uid": "o", "controller": true});
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "u", "ownerReferences": [reference], "labels": labels,
            "annotations": {"muster.dev/gang": "train", "muster.dev/gang-size": "2"},
        },
        "spec": {"containers": [{"name": "c"}]},
    }))
    .unwrap();
    let found = recognise(&pod, &Owner(Object::read(&owner).unwrap()));
    assert!(found.membership.gang().is_some(), "{kind}");
    found.remade
}

#[test]
fn owners_that_make_deleted_pods_again_and_count_no_failure_are_a_closed_list() {
    let rule =
        |action: &str, kind: &str| json!({"action": action, "onPodConditions": [{"type": kind, "status": "True"}]});
    let job = |rules: Value| json!({"parallelism": 2, "completions": 2, "podFailurePolicy": {"rules": rules}});
    let none = json!({});
    assert!(remade("batch/v1", "Job", &job(json!([rule("Ignore", "DisruptionTarget")])), &none));
    assert!(
        !remade("batch/v1", "Job", &job(json!([rule("Count", "DisruptionTarget")])), &none),
        "each deletion counts"
    );
    assert!(
        !remade("batch/v1", "Job", &json!({"parallelism": 2, "backoffLimit": 1000}), &none),
        "each deletion counts"
    );
    assert!(remade("apps/v1", "StatefulSet", &json!({"replicas": 2, "podManagementPolicy": "Parallel"}), &none));
    let kubeflow = json!({"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "restartPolicy": "OnFailure"}}});
    assert!(!remade("kubeflow.org/v1", "PyTorchJob", &kubeflow, &none), "of no other controller is it certain");
}

#[test]
fn a_pod_without_an_owner_is_made_again_by_nobody() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "u",
            "annotations": {"muster.dev/gang": "train", "muster.dev/gang-size": "2"},
        },
        "spec": {"containers": [{"name": "c"}]},
    }))
    .unwrap();
    let unrelated = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "o", "uid": "o"}, "spec": {}});
    assert!(!recognise(&pod, &Owner(Object::read(&unrelated).unwrap())).remade);
}
