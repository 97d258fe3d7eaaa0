//! What claims, volumes, classes and limits come to for a pod and a node.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use muster_api::pod_state;
use muster_api::volumes::{Needs, Touched, Used, Volumes};
use muster_core::model::gang::Membership;
use muster_core::model::names::ObjectKey;
use serde_json::{Value, json};

fn merged(mut object: Value, spec: &Value) -> Value {
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    object
}

fn claim(name: &str, spec: &Value) -> PersistentVolumeClaim {
    let object = json!({
        "metadata": {"name": name, "namespace": "ml", "uid": format!("uid-{name}")},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}},
    });
    serde_json::from_value(merged(object, spec)).unwrap()
}

/// The same, bound to the volume `pv`.
fn bound(name: &str, spec: &Value) -> PersistentVolumeClaim {
    let mut claim = claim(name, &merged(json!({"spec": {"volumeName": "pv"}}), spec)["spec"]);
    claim.metadata.annotations = Some([("pv.kubernetes.io/bind-completed".to_owned(), "yes".to_owned())].into());
    claim
}

fn volume(name: &str, spec: &Value) -> PersistentVolume {
    let object = json!({
        "metadata": {"name": name}, "status": {"phase": "Available"},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}},
    });
    serde_json::from_value(merged(object, spec)).unwrap()
}

fn class(name: &str, provisioner: &str, mode: &str, topologies: &Value) -> StorageClass {
    serde_json::from_value(json!({
        "metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode,
        "allowedTopologies": topologies,
    }))
    .unwrap()
}

fn on(key: &str, values: &[&str]) -> Value {
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]}})
}

/// A pod of UID `p` that uses the claim `data`.
fn used() -> Used {
    pod_with(&json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]))
}

fn pod_with(volumes: &Value) -> Used {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p-0", "namespace": "ml", "uid": "p"},
        "spec": {"containers": [], "volumes": volumes},
    }))
    .unwrap();
    Used::read(&pod).unwrap()
}

/// Terms as `key in values`, ORed by `|`, one entry per claim.
fn reach(needs: &Needs) -> Vec<String> {
    let requirement =
        |one: &muster_core::model::pod::Requirement| format!("{} {:?} {}", one.key, one.operator, one.values.join(","));
    let term = |one: &muster_core::model::pod::SelectorTerm| {
        one.expressions.iter().chain(&one.fields).map(requirement).collect::<Vec<_>>().join(" & ")
    };
    needs.reach.iter().map(|terms| terms.iter().map(term).collect::<Vec<_>>().join(" | ")).collect()
}

fn awaits(volumes: &Volumes) -> String {
    volumes.needs(&used()).claims.awaits.map_or_else(String::new, |text| text.to_string())
}

#[test]
fn a_bound_claim_is_reached_where_its_volume_is() {
    let zone = "topology.kubernetes.io/zone";
    for (spec, expected) in [
        (json!({"nfs": {"server": "s", "path": "/"}}), vec![]),
        (json!({"nodeAffinity": on(zone, &["a", "b"])}), vec![format!("{zone} In a,b")]),
    ] {
        let mut volumes = Volumes::default();
        volumes.apply_claim(&bound("data", &json!({})));
        assert_eq!(
            awaits(&volumes),
            "PersistentVolumeClaim data is bound to PersistentVolume pv, which does not exist"
        );
        volumes.apply_volume(&volume("pv", &spec));
        let needs = volumes.needs(&used());
        assert_eq!((reach(&needs), &needs.claims.awaits), (expected, &None), "{spec}");
    }
}

#[test]
fn a_claim_that_names_a_volume_and_is_not_bound_to_it_is_waited_for_whatever_its_class() {
    let mut volumes = Volumes::default();
    volumes.apply_class(&class("gp3", "ebs.csi.aws.com", "WaitForFirstConsumer", &json!([])));
    let old = json!({"claimRef": {"namespace": "ml", "name": "data", "uid": "uid-of-the-claim-before"}});
    volumes.apply_volume(&volume("pv", &old));
    for class in ["", "gp3"] {
        volumes.apply_claim(&claim("data", &json!({"volumeName": "pv", "storageClassName": class})));
        let stated = "PersistentVolumeClaim data is not bound yet to PersistentVolume pv, which it names";
        assert_eq!(awaits(&volumes), stated, "{class}");
    }
    volumes.apply_claim(&bound("data", &json!({})));
    assert_eq!(awaits(&volumes), "");
}

#[test]
fn a_volume_that_names_a_claim_is_taken_for_its_own_where_kube_scheduler_would_bind_it() {
    let zone = "topology.kubernetes.io/zone";
    let named = |spec: Value| {
        let named = json!({
            "storageClassName": "gp3", "nodeAffinity": on(zone, &["a"]), "claimRef": {"namespace": "ml", "name": "data"},
        });
        volume("pv", &merged(json!({"spec": named}), &spec)["spec"])
    };
    let mut volumes = Volumes::default();
    volumes.apply_claim(&claim("data", &json!({"storageClassName": "gp3"})));
    volumes.apply_class(&class("gp3", "ebs.csi.aws.com", "WaitForFirstConsumer", &json!([])));
    for (spec, taken) in [
        (json!({}), true),
        (json!({"capacity": {"storage": "1Gi"}}), false),
        (json!({"volumeMode": "Block"}), false),
        (json!({"storageClassName": "gp2"}), false),
        (json!({"claimRef": {"namespace": "ml", "name": "data", "uid": "uid-of-the-claim-before"}}), false),
        (json!({"claimRef": {"namespace": "ml", "name": "data", "uid": "uid-data"}}), true),
    ] {
        volumes.apply_volume(&named(spec.clone()));
        let expected = if taken { vec![format!("{zone} In a")] } else { Vec::new() };
        assert_eq!((reach(&volumes.needs(&used())), awaits(&volumes).as_str()), (expected, ""), "{spec}");
    }
    // What does not wait for a node is bound by a controller, and waited for until then.
    volumes.apply_class(&class("gp3", "ebs.csi.aws.com", "Immediate", &json!([])));
    volumes.apply_volume(&named(json!({})));
    assert_eq!(awaits(&volumes), "PersistentVolumeClaim data is not bound yet");
}

#[test]
fn a_volume_that_several_pods_of_a_node_use_is_attached_there_once() {
    let resource = "attachable-volumes-csi-d";
    let mut volumes = Volumes::default();
    volumes.apply_volume(&volume("pv", &json!({"csi": {"driver": "d", "volumeHandle": "h"}})));
    let read = |volumes: &Volumes, name: &str, namespace: &str, claim: &str| {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": namespace, "uid": name},
            "spec": {"containers": [], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]},
        }))
        .unwrap();
        let mut core = pod_state::read(&pod, Membership::Single, &[]);
        volumes.complete(&mut core, &Used::read(&pod).unwrap());
        core
    };
    for (name, mode) in [("data", "ReadWriteOnce"), ("other", "ReadWriteOnce"), ("many", "ReadWriteMany")] {
        volumes.apply_claim(&bound(name, &json!({"accessModes": [mode]})));
    }
    let mut elsewhere = bound("data", &json!({}));
    elsewhere.metadata.namespace = Some("serving".to_owned());
    volumes.apply_claim(&elsewhere);
    for (used, attached) in [
        (vec![("ml", "data"), ("ml", "data"), ("ml", "data")], 1),
        (vec![("ml", "data"), ("ml", "other"), ("ml", "data")], 2),
        (vec![("ml", "data"), ("serving", "data")], 2),
        (vec![("ml", "many"), ("ml", "many")], 1),
        (vec![("ml", "many"), ("ml", "data"), ("ml", "many")], 2),
    ] {
        let pods: Vec<_> = used
            .iter()
            .enumerate()
            .map(|(number, (namespace, claim))| read(&volumes, &format!("p-{number}"), namespace, claim))
            .collect();
        assert_eq!(pod_state::usage(pods.iter()).requested.get(resource), attached, "{used:?}");
    }
}

#[test]
fn a_label_of_the_zone_binds_only_nodes_that_have_such_labels() {
    let mut volumes = Volumes::default();
    let mut labelled = volume("pv", &json!({}));
    labelled.metadata.labels = Some([("topology.kubernetes.io/zone".to_owned(), "a__b".to_owned())].into());
    volumes.apply_volume(&labelled);
    volumes.apply_claim(&bound("data", &json!({})));
    let [terms] = &reach(&volumes.needs(&used()))[..] else { panic!("one entry") };
    let (inside, unlabelled) = terms.split_once(" | ").unwrap();
    assert_eq!(inside, "topology.kubernetes.io/zone In a,b");
    assert_eq!(unlabelled.matches("DoesNotExist").count(), 4, "{unlabelled}");
}

#[test]
fn what_kube_scheduler_waits_for_is_named() {
    let mut volumes = Volumes::default();
    assert_eq!(awaits(&volumes), "PersistentVolumeClaim data does not exist");
    volumes.apply_claim(&claim("data", &json!({})));
    assert_eq!(awaits(&volumes), "PersistentVolumeClaim data is not bound yet");
    volumes.apply_claim(&claim("data", &json!({"storageClassName": "gp3"})));
    assert_eq!(
        awaits(&volumes),
        "PersistentVolumeClaim data is not bound yet, and its StorageClass gp3 does not exist"
    );
    volumes.apply_class(&class("gp3", "ebs.csi.aws.com", "Immediate", &json!([])));
    assert_eq!(awaits(&volumes), "PersistentVolumeClaim data is not bound yet");
    volumes.apply_class(&class("gp3", "kubernetes.io/no-provisioner", "WaitForFirstConsumer", &json!([])));
    assert!(
        awaits(&volumes).starts_with("no PersistentVolume of StorageClass gp3 that would do"),
        "{}",
        awaits(&volumes)
    );
    // Too small, of another mode, claimed by somebody else, not available.
    volumes.apply_volume(&volume("small", &json!({"storageClassName": "gp3", "capacity": {"storage": "1Gi"}})));
    volumes.apply_volume(&volume("many", &json!({"storageClassName": "gp3", "accessModes": ["ReadWriteMany"]})));
    volumes.apply_volume(&volume("block", &json!({"storageClassName": "gp3", "volumeMode": "Block"})));
    let theirs = json!({"storageClassName": "gp3", "claimRef": {"namespace": "ml", "name": "other"}});
    volumes.apply_volume(&volume("theirs", &theirs));
    assert!(awaits(&volumes).starts_with("no PersistentVolume"), "{}", awaits(&volumes));
    volumes.apply_volume(&volume("good", &json!({"storageClassName": "gp3"})));
    assert_eq!(awaits(&volumes), "");
    let mut going = claim("data", &json!({"storageClassName": "gp3"}));
    going.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    volumes.apply_claim(&going);
    assert_eq!(awaits(&volumes), "PersistentVolumeClaim data is being deleted");
}

#[test]
fn a_claim_that_waits_for_a_node_is_reached_where_its_volume_may_be_made() {
    let topologies = json!([{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}]);
    let mut volumes = Volumes::default();
    volumes.apply_claim(&claim("data", &json!({"storageClassName": "gp3"})));
    volumes.apply_class(&class("gp3", "ebs.csi.aws.com", "WaitForFirstConsumer", &json!([])));
    let anywhere = volumes.needs(&used());
    assert_eq!(reach(&anywhere), Vec::<String>::new());
    assert_eq!(anywhere.requests.get("attachable-volumes-csi-ebs.csi.aws.com"), 1);
    volumes.apply_class(&class("gp3", "ebs.csi.aws.com", "WaitForFirstConsumer", &topologies));
    assert_eq!(reach(&volumes.needs(&used())), ["zone In a,b"]);
    // A volume that is there already does too.
    volumes.apply_volume(&volume("pv", &json!({"storageClassName": "gp3", "nodeAffinity": on("zone", &["c"])})));
    assert_eq!(reach(&volumes.needs(&used())), ["zone In a,b | zone In c"]);
    // kube-scheduler has chosen: the volume is being made for that node.
    let mut chosen = claim("data", &json!({"storageClassName": "gp3"}));
    chosen.metadata.annotations = Some([("volume.kubernetes.io/selected-node".to_owned(), "n-1".to_owned())].into());
    volumes.apply_claim(&chosen);
    assert_eq!(reach(&volumes.needs(&used())), ["metadata.name In n-1"]);
}

#[test]
fn local_volumes_are_a_resource_of_their_node_until_somebody_claims_them() {
    let local =
        |node: &str| json!({"storageClassName": "local", "nodeAffinity": on("kubernetes.io/hostname", &[node])});
    let resource = "local-persistentvolumes-local";
    let mut volumes = Volumes::default();
    volumes.apply_class(&class("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer", &json!([])));
    volumes.apply_claim(&claim("data", &json!({"storageClassName": "local"})));
    for (name, node) in [("a-1", "a"), ("a-2", "a"), ("b-1", "b")] {
        volumes.apply_volume(&volume(name, &local(node)));
    }
    let needs = volumes.needs(&used());
    assert_eq!((reach(&needs), needs.requests.get(resource), needs.attached.get(resource)), (vec![], 1, 0));
    assert_eq!(needs.claims.taken[0].volumes, 3);
    assert_eq!(volumes.on_node("node", Some("a")).get(resource), 2);
    volumes.take_touched();
    // kube-scheduler writes the volume; the claim follows, and is as good as bound by then.
    let mut taken = local("a");
    taken["claimRef"] = json!({"namespace": "ml", "name": "data", "uid": "uid-data"});
    volumes.apply_volume(&volume("a-1", &taken));
    let needs = volumes.needs(&used());
    assert_eq!((reach(&needs), needs.requests.get(resource)), (vec!["kubernetes.io/hostname In a".to_owned()], 0));
    assert_eq!(volumes.on_node("node", Some("a")).get(resource), 1);
    let Touched { claims, hostnames, .. } = volumes.take_touched();
    assert!(claims.contains(&ObjectKey::new("ml", "data")) && hostnames.contains("a"), "{claims:?} {hostnames:?}");
    volumes.delete_volume("a-2");
    assert_eq!(volumes.on_node("node", Some("a")).get(resource), 0);
}

#[test]
fn volumes_that_are_there_already_are_listed_where_no_node_counts_them() {
    let mut volumes = Volumes::default();
    volumes.apply_class(&class("there", "kubernetes.io/no-provisioner", "WaitForFirstConsumer", &json!([])));
    volumes.apply_claim(&claim("data", &json!({"storageClassName": "there"})));
    let there = |size: &str| json!({"storageClassName": "there", "nodeAffinity": on("zone", &["a"]), "capacity": {"storage": size}});
    for (name, size) in [("large", "20Gi"), ("b-small", "10Gi"), ("a-small", "10Gi"), ("tiny", "1Ki")] {
        volumes.apply_volume(&volume(name, &there(size)));
    }
    let needs = volumes.needs(&used());
    let among: Vec<&str> = needs.claims.taken[0].among.iter().map(|one| &*one.volume).collect();
    assert_eq!((among, needs.claims.taken[0].volumes), (vec!["a-small", "b-small", "large"], 3), "the smallest first");
    // Those of one node each are counted there.
    for name in ["large", "b-small", "a-small", "tiny"] {
        volumes.delete_volume(name);
        let local = json!({"storageClassName": "there", "nodeAffinity": on("kubernetes.io/hostname", &["n"])});
        volumes.apply_volume(&volume(name, &local));
    }
    assert_eq!(volumes.needs(&used()).claims.taken[0].among, []);
}

#[test]
fn the_limits_of_a_node_are_resources_by_driver() {
    let mut volumes = Volumes::default();
    let node: CSINode = serde_json::from_value(json!({
        "metadata": {"name": "n"},
        "spec": {"drivers": [
            {"name": "ebs.csi.aws.com", "nodeID": "i", "allocatable": {"count": 27}},
            {"name": "efs.csi.aws.com", "nodeID": "i"},
        ]},
    }))
    .unwrap();
    volumes.apply_limits(&node);
    let limits = volumes.on_node("n", None);
    let named: Vec<(&str, i64)> = limits.iter().map(|(name, amount)| (name.as_str(), amount)).collect();
    assert_eq!(named, [("attachable-volumes-csi-ebs.csi.aws.com", 27)]);
    assert_eq!(volumes.take_touched().nodes.len(), 1);
    volumes.apply_limits(&node);
    assert_eq!(volumes.take_touched(), Touched::default(), "the same again is no change");
}

#[test]
fn the_claim_of_an_ephemeral_volume_is_made_for_its_pod() {
    let used = pod_with(&json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]));
    let mut volumes = Volumes::default();
    volumes.apply_volume(&volume("pv", &json!({})));
    let mut own = bound("p-0-scratch", &json!({}));
    let awaits =
        |volumes: &Volumes| volumes.needs(&used).claims.awaits.map_or_else(String::new, |text| text.to_string());
    assert_eq!(awaits(&volumes), "PersistentVolumeClaim p-0-scratch of its ephemeral volume is still to be made");
    volumes.apply_claim(&own);
    assert_eq!(awaits(&volumes), "PersistentVolumeClaim p-0-scratch of its ephemeral volume belongs to somebody else");
    own.metadata.owner_references =
        serde_json::from_value(json!([{"apiVersion": "v1", "kind": "Pod", "name": "p-0", "uid": "p"}])).unwrap();
    volumes.apply_claim(&own);
    assert_eq!(awaits(&volumes), "");
}

#[test]
fn access_modes_say_who_may_share_a_claim() {
    for (modes, one_node, one_pod) in [
        (json!(["ReadWriteOnce"]), 1, 0),
        (json!(["ReadWriteOncePod"]), 0, 1),
        (json!(["ReadWriteMany"]), 0, 0),
        (json!(["ReadWriteOnce", "ReadOnlyMany"]), 0, 0),
    ] {
        let mut volumes = Volumes::default();
        volumes.apply_volume(&volume("pv", &json!({"csi": {"driver": "d", "volumeHandle": "h"}})));
        volumes.apply_claim(&bound("data", &json!({"accessModes": modes})));
        let needs = volumes.needs(&used());
        assert_eq!((needs.claims.one_node.len(), needs.claims.one_pod.len()), (one_node, one_pod), "{modes}");
        // One that several nodes attach is among the requests of no pod: most pods of a node share it.
        let alone = i64::from(one_node + one_pod > 0);
        assert_eq!(needs.attached.get("attachable-volumes-csi-d"), alone, "{modes}");
        let shared: Vec<_> = needs.claims.shared.iter().map(|(claim, name)| (&**claim, name.as_str())).collect();
        assert_eq!(shared, vec![("data", "attachable-volumes-csi-d"); usize::from(one_node + one_pod == 0)], "{modes}");
    }
}
