//! Kubernetes' own groups: the cluster begins to serve them while Muster runs, and their gangs take the same path.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::{Api, Client};
use muster::testbed::request::request;
use muster::testbed::workloads::TestPod;
use muster::testbed::{Component, Stack, eventually};
use serde_json::{Value, json};

use crate::support::{DEADLINE, leaves, options, phase, runs_on, stack};

const GATES: &str = "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true";
const APIS: &str = "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true";

/// kube-apiserver and kube-scheduler with the groups that are off by default. Whether this version has them.
async fn serves_groups(stack: &Stack) -> bool {
    if std::env::var("MUSTER_KUBERNETES").is_ok_and(|version| *version < *"v1.37") {
        return false;
    }
    stack.cluster.restart_with(Component::ApiServer, &[GATES, APIS]).await.unwrap();
    stack.cluster.restart_with(Component::Scheduler(0), &[GATES]).await.unwrap();
    true
}

async fn group(client: &Client, name: &str, members: u32) {
    let kind = GroupVersionKind::gvk("scheduling.k8s.io", "v1beta1", "PodGroup");
    let resource = ApiResource::from_gvk_with_plural(&kind, "podgroups");
    let groups: Api<DynamicObject> = Api::namespaced_with(client.clone(), "ml", &resource);
    let object = json!({
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": name},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": members}},
            "schedulingConstraints": {"topology": [{"key": "topology.k8s.aws/network-node-layer-3"}]},
        },
    });
    groups.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// The types of older Kubernetes have no field for the group.
async fn member(client: &Client, group: &str, number: u32) {
    let mut pod: Value = serde_json::to_value(TestPod::new(format!("{group}-{number}")).gpus(8).build()).unwrap();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["spec"]["schedulingGroup"] = json!({"podGroupName": group});
    let resource = ApiResource::erase::<Pod>(&());
    let pods: Api<DynamicObject> = Api::namespaced_with(client.clone(), "ml", &resource);
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

async fn binds(stack: &Stack) -> u64 {
    let text = request(stack.http(), "GET", "/metrics", "").await.unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("muster_extender_request_duration_seconds_count") && line.contains("\"bind\""));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_that_the_cluster_serves_later_are_gangs_and_meet_the_barrier_together() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a", "b"], 4)).await.unwrap();
    if !serves_groups(&stack).await {
        return;
    }
    let client = stack.admin().unwrap();
    group(&client, "train", 4).await;
    for number in 0..4 {
        member(&client, "train", number).await;
    }
    // Muster looks every quarter of a minute for what is served.
    let mut nodes = BTreeSet::new();
    for number in 0..4 {
        nodes.insert(runs_on(&stack, "ml", &format!("train-{number}"), DEADLINE * 2).await);
    }
    phase(&stack, "ml", "train", "Bound").await;
    let leaves: BTreeSet<&str> = nodes.iter().filter_map(|node| node.split_once('-')).map(|(leaf, _)| leaf).collect();
    assert_eq!((nodes.len(), leaves.len()), (4, 1), "{nodes:?}");
    let asked = &stack;
    eventually(DEADLINE, "four binds to be counted", || async move {
        let binds = binds(asked).await;
        if binds >= 4 { Ok(Some(())) } else { Err(format!("{binds}")) }
    })
    .await
    .unwrap();
    assert_eq!(binds(&stack).await, 4, "nobody was sent back from the barrier");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_whose_members_are_rejected_is_requeued_by_the_release() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 2)).await.unwrap();
    if !serves_groups(&stack).await {
        return;
    }
    let client = stack.admin().unwrap();
    // The plan comes before kube-scheduler is informed: the group waits for a member that Muster counts and it does not.
    group(&client, "train", 2).await;
    member(&client, "train", 0).await;
    phase(&stack, "ml", "train", "Collecting").await;
    member(&client, "train", 1).await;
    for number in 0..2 {
        runs_on(&stack, "ml", &format!("train-{number}"), DEADLINE * 2).await;
    }
    let log = stack.cluster.log(Component::Muster(0));
    let log = &log;
    eventually(DEADLINE, "the release to be written", || async move {
        let text = std::fs::read_to_string(log).map_err(|error| error.to_string())?;
        Ok::<_, String>(text.contains("the minimum stands").then_some(()))
    })
    .await
    .unwrap();
}
