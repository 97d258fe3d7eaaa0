//! Claims of ordinary pods: who may use one, which volume meets it, and how many volumes a node attaches.

use serde_json::{Value, json};

use crate::ordinary::planned;

const DRIVER: &str = "ebs.csi.aws.com";

/// A type of two CPUs that attaches one volume, and one of four that attaches two, in these zones.
fn catalogue(zones: &[&str]) -> String {
    let kind = |name: &str, cpu: u32, price: u64, volumes: u32| {
        let offering = |zone: &&str| {
            json!({"zone": zone, "market": "on-demand", "usdMicroPerHour": price, "available": true, "reservation": null,
                   "free": null})
        };
        json!({"name": name, "labels": {"kubernetes.io/arch": "amd64"}, "overhead": {},
               "capacity": {"cpu": cpu.to_string(), "memory": format!("{}Gi", 2 * cpu), "pods": "20"},
               "volumeLimits": {DRIVER: volumes}, "offerings": zones.iter().map(offering).collect::<Vec<_>>()})
    };
    let types = [kind("small", 2, 100_000, 1), kind("medium", 4, 190_000, 2)];
    json!({"version": 2, "name": "fake", "types": types, "prices": []}).to_string()
}

fn pool() -> Value {
    json!({"apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "p"}, "spec": {"template": {"spec": {
        "nodeClassRef": {"group": "muster.dev", "kind": "EC2NodeClass", "name": "any"}, "requirements": []}}}})
}

fn class(name: &str, provisioner: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
           "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"})
}

/// A claim and the volume that it is bound to.
fn bound(name: &str, mode: &str) -> [Value; 2] {
    let volume = format!("v-{name}");
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"accessModes": [mode], "storageClassName": "gp3", "volumeName": volume,
                 "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound"}});
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": [mode], "storageClassName": "gp3",
                 "csi": {"driver": DRIVER, "volumeHandle": name},
                 "claimRef": {"namespace": "ns", "name": name, "uid": name}},
        "status": {"phase": "Bound"}});
    [claim, volume]
}

/// A claim that waits for one of the volumes of a class that nobody makes.
fn waiting(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "ns", "uid": name},
           "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "there",
                    "resources": {"requests": {"storage": "1Gi"}}},
           "status": {"phase": "Pending"}})
}

/// A volume that nobody has claimed, in a zone.
fn free(name: &str, zone: &str) -> Value {
    let terms =
        json!([{"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]}]);
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
           "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "there",
                    "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}},
           "status": {"phase": "Available"}})
}

/// A node that attaches so many volumes.
fn node(name: &str, cpu: u32, volumes: u32) -> [Value; 2] {
    let amounts = json!({"cpu": cpu.to_string(), "memory": "16Gi", "pods": "20"});
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": "z-1"}},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}});
    let drivers = json!([{"name": DRIVER, "nodeID": name, "topologyKeys": [], "allocatable": {"count": volumes}}]);
    let limits = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
                        "spec": {"drivers": drivers}});
    [node, limits]
}

fn pod(name: &str, cpu: &str, claims: &[&str]) -> Value {
    let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": "2026-07-20T10:00:00Z"},
        "spec": {"schedulerName": "muster",
                 "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}],
                 "volumes": claims.iter().map(volume).collect::<Vec<_>>()},
        "status": {"phase": "Pending"}})
}

fn on(node: &str, mut pod: Value) -> Value {
    pod["spec"]["nodeName"] = json!(node);
    pod["status"]["phase"] = json!("Running");
    pod
}

fn plan_in(zones: &[&str], objects: &[Value]) -> Value {
    let text: String = objects.iter().map(|object| format!("---\n{object}\n")).collect();
    let (document, _) = planned(&text, &catalogue(zones));
    assert_eq!(document["ignored"], json!([]));
    document
}

fn plan(objects: &[Value]) -> Value {
    plan_in(&["z-1"], objects)
}

/// Name, outcome and node of each pod.
fn places(document: &Value) -> Vec<(&str, &str, &str)> {
    let pods = document["pods"].as_array().unwrap().iter();
    pods.map(|pod| {
        let text = |key: &str| pod[key].as_str().unwrap_or_default();
        (text("name"), text("outcome"), text("node"))
    })
    .collect()
}

/// Code and text of the first reason of a pod, but for that there is no pool.
fn why(document: &Value, pod: usize) -> (&str, &str) {
    let mut reasons = document["pods"][pod]["reasons"].as_array().unwrap().iter();
    let reason = reasons.find(|reason| reason["code"] != "NoPool").unwrap();
    (reason["code"].as_str().unwrap(), reason["change"].as_str().unwrap_or_default())
}

#[test]
fn a_claim_for_one_pod_at_a_time_is_refused_to_a_second_wherever_the_first_stands() {
    let mut objects = vec![class("gp3", DRIVER), on("n", pod("runs", "1", &["c"])), pod("a", "1", &["c"])];
    objects.extend(bound("c", "ReadWriteOncePod"));
    objects.extend(node("n", 4, 4));
    let document = plan(&objects);
    assert_eq!(places(&document), [("a", "refused", "")]);
    let text = "PersistentVolumeClaim c is for one pod at a time (ReadWriteOncePod), and pod runs uses it";
    assert_eq!(why(&document, 0), ("VolumeLimit", text));
    // A pod that has ended uses nothing.
    objects[1]["status"]["phase"] = json!("Succeeded");
    assert_eq!(places(&plan(&objects)), [("a", "placed", "n")]);
}

#[test]
fn of_several_pods_that_wait_the_first_has_the_claim_for_one_pod_unless_it_finds_no_place() {
    let mut objects = vec![pool(), class("gp3", DRIVER)];
    objects.extend(bound("c", "ReadWriteOncePod"));
    let mut first = objects.clone();
    first.extend([pod("a", "1", &["c"]), pod("b", "1", &["c"])]);
    let document = plan(&first);
    assert_eq!(places(&document), [("a", "buy", "new/0"), ("b", "refused", "")]);
    assert!(why(&document, 1).1.ends_with("and pod a uses it"), "{:?}", why(&document, 1));
    objects.extend([pod("a", "64", &["c"]), pod("b", "1", &["c"])]);
    let document = plan(&objects);
    assert_eq!(places(&document), [("a", "refused", ""), ("b", "buy", "new/0")]);
    assert_eq!(why(&document, 0).0, "Insufficient");
}

#[test]
fn pods_that_share_a_claim_attach_its_volume_to_a_node_once() {
    let mut objects = vec![pool(), class("gp3", DRIVER), pod("a", "500m", &["c"]), pod("b", "500m", &["c"])];
    objects.extend(bound("c", "ReadWriteOnce"));
    let document = plan(&objects);
    assert_eq!(places(&document), [("a", "buy", "new/0"), ("b", "buy", "new/0")]);
    assert_eq!((&document["nodes"][0]["type"], &document["cost"]["gap"]), (&json!("small"), &json!(0)));
    // With a volume of its own beside it the second takes a node that attaches two.
    objects[3] = pod("b", "500m", &["c", "d"]);
    objects.extend(bound("d", "ReadWriteOnce"));
    let document = plan(&objects);
    assert_eq!(places(&document), [("a", "buy", "new/0"), ("b", "buy", "new/0")]);
    assert_eq!(document["nodes"][0]["type"], "medium");
    // Three are more than any node attaches.
    objects[3] = pod("b", "500m", &["c", "d", "e"]);
    objects.extend(bound("e", "ReadWriteOnce"));
    let document = plan(&objects);
    assert_eq!(places(&document), [("a", "buy", "new/0"), ("b", "refused", "")]);
    assert_eq!(why(&document, 1).0, "VolumeLimit");
}

#[test]
fn a_volume_that_is_attached_to_a_node_costs_nothing_there() {
    let mut objects = vec![class("gp3", DRIVER), on("n", pod("runs", "1", &["c"])), pod("a", "500m", &["c"])];
    objects.extend(bound("c", "ReadWriteOnce"));
    objects.extend(node("n", 8, 1));
    assert_eq!(places(&plan(&objects)), [("a", "placed", "n")]);
    objects.push(pod("b", "500m", &["d"]));
    objects.extend(bound("d", "ReadWriteOnce"));
    let document = plan(&objects);
    assert_eq!(places(&document), [("a", "placed", "n"), ("b", "refused", "")]);
    assert_eq!(why(&document, 1).0, "VolumeLimit");
    // Two pods that stand there with one volume leave the other place free.
    objects.push(on("n", pod("runs-too", "1", &["c"])));
    let count = objects.iter().position(|object| object["kind"] == "CSINode").unwrap();
    objects[count]["spec"]["drivers"][0]["allocatable"]["count"] = json!(2);
    assert_eq!(places(&plan(&objects)), [("a", "placed", "n"), ("b", "placed", "n")]);
}

#[test]
fn volumes_that_pods_of_several_nodes_use_count_as_others_do() {
    for mode in ["ReadWriteMany", "ReadOnlyMany"] {
        let mut objects = vec![class("gp3", DRIVER), pod("a", "500m", &["c", "d"])];
        objects.extend(bound("c", mode).into_iter().chain(bound("d", mode)));
        objects.extend(node("n", 8, 1));
        let document = plan(&objects);
        assert_eq!(places(&document), [("a", "refused", "")], "{mode}");
        assert_eq!(why(&document, 0).0, "VolumeLimit", "{mode}");
        // Each alone is one, and those that share it need no second.
        objects[1] = pod("a", "500m", &["c"]);
        objects.extend([pod("b", "500m", &["c"]), pod("d", "500m", &["d"])]);
        let document = plan(&objects);
        assert_eq!(places(&document), [("a", "placed", "n"), ("b", "placed", "n"), ("d", "refused", "")], "{mode}");
    }
}

#[test]
fn a_volume_that_is_there_already_meets_one_claim() {
    let mut objects = vec![pool(), class("there", "kubernetes.io/no-provisioner"), waiting("c"), waiting("d")];
    objects.extend([free("v1", "z-1"), pod("a", "500m", &["c"]), pod("b", "500m", &["d"])]);
    let document = plan(&objects);
    assert_eq!(places(&document), [("a", "buy", "new/0"), ("b", "refused", "")]);
    let text = "PersistentVolumeClaim d needs a PersistentVolume of StorageClass there: the one that would do for it goes \
                to a pod that comes first, and nobody makes more";
    assert_eq!(why(&document, 1), ("VolumeNotFound", text));
    // Pods that share the claim need but one.
    objects[6] = pod("b", "500m", &["c"]);
    assert_eq!(places(&plan(&objects)), [("a", "buy", "new/0"), ("b", "buy", "new/0")]);
    // Who finds no place leaves it to the next.
    objects[5] = pod("a", "64", &["c"]);
    objects[6] = pod("b", "500m", &["d"]);
    let document = plan(&objects);
    assert_eq!(places(&document), [("a", "refused", ""), ("b", "buy", "new/0")]);
    assert_eq!(why(&document, 0).0, "Insufficient");
}

#[test]
fn a_pod_that_stands_has_a_volume_before_its_claim_says_so() {
    let mut objects = vec![pool(), class("there", "kubernetes.io/no-provisioner"), waiting("c"), waiting("d")];
    objects.extend([free("v1", "z-1"), free("v2", "z-2"), on("n", pod("a", "500m", &["c"])), pod("b", "500m", &["d"])]);
    objects.extend(node("n", 1, 1));
    let document = plan_in(&["z-1", "z-2"], &objects);
    assert_eq!(places(&document), [("b", "buy", "new/0")]);
    assert_eq!(document["nodes"][0]["zone"], "z-2", "the other one is where the first stands");
}

#[test]
fn each_pod_is_planned_where_the_volume_is_that_it_gets() {
    let mut objects = vec![pool(), class("there", "kubernetes.io/no-provisioner"), waiting("c"), waiting("d")];
    objects.extend([free("v1", "z-1"), free("v2", "z-2"), pod("a", "500m", &["c"]), pod("b", "500m", &["d"])]);
    let document = plan_in(&["z-1", "z-2"], &objects);
    assert_eq!(places(&document), [("a", "buy", "new/0"), ("b", "buy", "new/1")]);
    let zone = |index: usize| document["nodes"][index]["zone"].as_str().unwrap();
    assert_ne!(zone(0), zone(1), "{:#}", document["nodes"]);
    assert!(document["cost"]["bound"].as_u64() <= document["cost"]["usdMicroPerHour"].as_u64());
    // Whoever can use one of them only gets that, although it comes later.
    objects[7]["spec"]["nodeSelector"] = json!({"topology.kubernetes.io/zone": "z-1"});
    let document = plan_in(&["z-1", "z-2"], &objects);
    assert_eq!(places(&document), [("a", "buy", "new/0"), ("b", "buy", "new/1")]);
    assert_eq!((&document["nodes"][0]["zone"], &document["nodes"][1]["zone"]), (&json!("z-2"), &json!("z-1")));
    // Both in one zone leave one without.
    objects[6]["spec"]["nodeSelector"] = json!({"topology.kubernetes.io/zone": "z-1"});
    let document = plan_in(&["z-1", "z-2"], &objects);
    assert_eq!(places(&document), [("a", "buy", "new/0"), ("b", "refused", "")]);
}
