//! Gangs with volumes: the real kube-scheduler binds them before a member comes to the barrier, the real controller binds
//! the rest. Nobody mounts anything.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use muster::testbed::nodes::TestNode;
use muster::testbed::workloads::TestJob;
use muster::testbed::{Stack, StackOptions, eventually};
use serde_json::{Value, json};

use crate::support::{DEADLINE, all_run, members, node_of, options, phase, runs, says, stack, submit};

/// A control plane that binds claims, or `None` where there is none.
async fn volume_options() -> Option<StackOptions> {
    let mut options = options().await?;
    options.controllers = &["persistentvolume-binder-controller", "ephemeral-volume-controller"];
    Some(options)
}

/// A volume of a file server, unless `spec` says otherwise.
async fn volume(stack: &Stack, name: &str, spec: Value) {
    let mut object = json!({
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
            "nfs": {"server": "files.example.com", "path": "/"},
        },
    });
    if spec.get("csi").or(spec.get("local")).is_some() {
        object["spec"].as_object_mut().unwrap().remove("nfs");
    }
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let object: PersistentVolume = serde_json::from_value(object).unwrap();
    Api::all(stack.admin().unwrap()).create(&PostParams::default(), &object).await.unwrap();
}

/// A claim in `ml`.
pub(crate) async fn claim(stack: &Stack, name: &str, spec: Value) {
    let mut object = json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "",
        },
    });
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let object: PersistentVolumeClaim = serde_json::from_value(object).unwrap();
    Api::namespaced(stack.admin().unwrap(), "ml").create(&PostParams::default(), &object).await.unwrap();
}

/// A class whose volumes nobody makes.
async fn local_class(stack: &Stack) {
    let class: StorageClass = serde_json::from_value(json!({
        "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
    }))
    .unwrap();
    Api::all(stack.admin().unwrap()).create(&PostParams::default(), &class).await.unwrap();
}

/// A disk of the class `local` on one node.
async fn local_volume(stack: &Stack, node: &str) {
    let spec = json!({
        "storageClassName": "local", "local": {"path": "/data"}, "nodeAffinity": on("kubernetes.io/hostname", node),
    });
    volume(stack, &format!("disk-of-{node}"), spec).await;
}

fn on(label: &str, value: &str) -> Value {
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": label, "operator": "In", "values": [value]},
    ]}]}})
}

/// A gang of as many pods, each with a whole node if it has GPUs, that use a claim.
fn job(name: &str, pods: u16, gpus: u32, claim: &str) -> Job {
    let mut job = TestJob::new(name, pods).gpus(gpus).pod_annotation("muster.dev/gang", name).build();
    let spec = job.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
    spec.volumes =
        serde_json::from_value(json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}])).unwrap();
    job
}

/// Nodes in two zones, three in each.
fn two_zones() -> Vec<Node> {
    let node = |zone: &str, number: u32| TestNode::new(format!("{zone}-{number}")).zone(&format!("us-east-1{zone}"));
    ["a", "b"].iter().flat_map(|zone| (0..3).map(move |number| node(zone, number).build())).collect()
}

fn nodes_of(pods: &[Pod]) -> Vec<String> {
    let mut nodes: Vec<String> = pods.iter().filter_map(node_of).collect();
    nodes.sort();
    nodes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_waits_for_its_shared_file_system_by_name_and_is_bound_once_that_is() {
    let Some(options) = volume_options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(two_zones()).await.unwrap();
    let client = stack.admin().unwrap();
    submit(&client, "ml", job("train", 3, 8, "shared")).await;
    says(&stack, "ml", "train", "PersistentVolumeClaim shared does not exist").await;
    claim(&stack, "shared", json!({"accessModes": ["ReadWriteMany"]})).await;
    says(&stack, "ml", "train", "PersistentVolumeClaim shared is not bound yet").await;
    let waiting = members(&client, "ml", "train").await;
    assert_eq!(waiting.len(), 3, "all members are there");
    assert!(waiting.iter().all(|pod| node_of(pod).is_none()), "nothing is bound");
    volume(&stack, "files", json!({"accessModes": ["ReadWriteMany"]})).await;

    all_run(&stack, "ml", "train", 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_stands_in_the_zone_of_its_volume_and_says_so_where_that_has_no_capacity() {
    let Some(options) = volume_options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(two_zones()).await.unwrap();
    let client = stack.admin().unwrap();
    let zonal = json!({
        "accessModes": ["ReadWriteMany"], "nodeAffinity": on("topology.kubernetes.io/zone", "us-east-1b"),
    });
    volume(&stack, "zonal", zonal).await;
    claim(&stack, "zonal", json!({"accessModes": ["ReadWriteMany"]})).await;
    submit(&client, "ml", job("train", 2, 8, "zonal")).await;

    let pods = all_run(&stack, "ml", "train", 2).await;
    assert!(nodes_of(&pods).iter().all(|node| node.starts_with("b-")), "{:?}", nodes_of(&pods));
    // Zone a has capacity for two more, the volume's has not.
    submit(&client, "ml", job("more", 2, 8, "zonal")).await;
    says(&stack, "ml", "more", "a volume of the pod cannot be reached from there").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_share_a_claim_of_one_node_stand_on_one_node() {
    let Some(options) = volume_options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(two_zones()).await.unwrap();
    let client = stack.admin().unwrap();
    volume(&stack, "disk", json!({})).await;
    claim(&stack, "disk", json!({})).await;
    submit(&client, "ml", job("small", 2, 4, "disk")).await;
    let pods = all_run(&stack, "ml", "small", 2).await;
    assert_eq!(nodes_of(&pods).windows(2).filter(|pair| pair[0] != pair[1]).count(), 0, "{:?}", nodes_of(&pods));
    // Two whole nodes are free, one node is not enough.
    volume(&stack, "other", json!({})).await;
    claim(&stack, "other", json!({})).await;
    submit(&client, "ml", job("large", 2, 8, "other")).await;
    says(&stack, "ml", "large", "needs capacity for 2 members").await;
    // A claim of one pod is refused for what it is.
    volume(&stack, "alone", json!({"accessModes": ["ReadWriteOncePod"], "csi": {"driver": "d", "volumeHandle": "h"}}))
        .await;
    claim(&stack, "alone", json!({"accessModes": ["ReadWriteOncePod"]})).await;
    submit(&client, "ml", job("lonely", 2, 1, "alone")).await;
    phase(&stack, "ml", "lonely", "Unsatisfiable").await;
    says(&stack, "ml", "lonely", "ReadWriteOncePod claim alone used by several members").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stateful_set_with_local_disks_goes_where_the_disks_are_and_comes_back_to_them() {
    let Some(options) = volume_options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(two_zones()).await.unwrap();
    local_class(&stack).await;
    // Zone a has capacity and too few disks.
    for node in ["a-0", "b-1", "b-2"] {
        local_volume(&stack, node).await;
    }
    let set: StatefulSet = serde_json::from_value(json!({
        "metadata": {"name": "store"},
        "spec": {
            "replicas": 2, "podManagementPolicy": "Parallel", "serviceName": "store",
            "selector": {"matchLabels": {"app": "store"}},
            "template": {
                "metadata": {"labels": {"app": "store"}, "annotations": {"muster.dev/gang": "store"}},
                "spec": {
                    "schedulerName": "muster", "terminationGracePeriodSeconds": 1,
                    "containers": [{
                        "name": "main", "image": "store",
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                        "resources": {"limits": {"nvidia.com/gpu": "8"}},
                    }],
                },
            },
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }],
        },
    }))
    .unwrap();
    Api::<StatefulSet>::namespaced(stack.admin().unwrap(), "ml").create(&PostParams::default(), &set).await.unwrap();

    let first = running(&stack, 2).await;
    let mut nodes: Vec<&String> = first.values().collect();
    nodes.sort();
    assert_eq!(nodes, ["b-1", "b-2"], "{first:?}");
    phase(&stack, "ml", "store", "Bound").await;
    // Its disk is bound now: the same pod can run nowhere else.
    crate::support::delete(&stack, "ml", "store-0").await;
    assert_eq!(running(&stack, 2).await, first);
}

/// Nodes of the running pods of `ml`, once there are `count`.
async fn running(stack: &Stack, count: usize) -> BTreeMap<String, String> {
    let pods: Api<Pod> = Api::namespaced(stack.admin().unwrap(), "ml");
    let pods = &pods;
    eventually(DEADLINE, &format!("{count} pods to run"), || async move {
        let all = pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let found: BTreeMap<String, String> =
            all.iter().filter(|pod| runs(pod)).filter_map(|pod| Some((pod.name_any(), node_of(pod)?))).collect();
        if found.len() == count { Ok(Some(found)) } else { Err(format!("{} of {} run", found.len(), all.len())) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_gets_no_more_members_than_its_driver_attaches_volumes() {
    let Some(options) = volume_options().await else { return };
    let stack = stack(options, "ml").await;
    let nodes = (0..2).map(|number| TestNode::new(format!("n-{number}")).build());
    stack.create_nodes(nodes).await.unwrap();
    for number in 0..2 {
        let name = format!("n-{number}");
        let node = Api::<Node>::all(stack.admin().unwrap()).get(&name).await.unwrap();
        let limits: CSINode = serde_json::from_value(json!({
            "metadata": {"name": name, "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.uid().unwrap()},
            ]},
            "spec": {"drivers": [{"name": "disks.example.com", "nodeID": name, "topologyKeys": [], "allocatable": {"count": 2}}]},
        }))
        .unwrap();
        Api::all(stack.admin().unwrap()).create(&PostParams::default(), &limits).await.unwrap();
    }
    // Eight would fit on one node by GPUs; each has a disk of its own, and a node takes two.
    let disk = |gang: &str, number: u32| format!("{gang}-{number}");
    for (gang, size) in [("small", 4_u32), ("large", 5)] {
        for number in 0..size {
            let name = disk(gang, number);
            let csi = json!({"csi": {"driver": "disks.example.com", "volumeHandle": name},
                "claimRef": {"namespace": "ml", "name": name}});
            volume(&stack, &name, csi).await;
            claim(&stack, &name, json!({"volumeName": name})).await;
        }
    }
    let member = |gang: &str, number: u32, size: u32| {
        let mut pod = crate::support::bare(gang, number, size);
        let spec = pod.spec.as_mut().unwrap();
        spec.containers[0].resources = serde_json::from_value(json!({"limits": {"nvidia.com/gpu": "1"}})).unwrap();
        let claim = disk(gang, number);
        spec.volumes =
            serde_json::from_value(json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}])).unwrap();
        pod
    };
    for number in 0..5 {
        crate::support::create(&stack, "ml", member("large", number, 5)).await;
    }
    says(&stack, "ml", "large", "needs capacity for 5 members in one zone; the best, us-east-1a, has capacity for 4")
        .await;
    for number in 0..4 {
        crate::support::create(&stack, "ml", member("small", number, 4)).await;
    }
    let nodes = running(&stack, 4).await;
    let on_first = nodes.values().filter(|node| *node == "n-0").count();
    assert_eq!(on_first, 2, "{nodes:?}");
}
