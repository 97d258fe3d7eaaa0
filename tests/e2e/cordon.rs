//! Races for nodes that wait for their gang: foreign pods that come in the moment of a registration, of a hold, of an
//! uncordon by a person, and while Muster is away. None of them is bound there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use muster::fake_kubelet::DEVICES_BY_PLUGIN;
use muster::testbed::workloads::TestPod;
use muster::testbed::{SchedulerOptions, Stack, eventually};
use muster_api::crd::NodePool;
use muster_api::keys;
use muster_ec2_sim::{Fault, FaultKind};
use serde_json::json;

use crate::cloud::{delete_job, everything_is_terminated, gang_job, goes_wrong, provisioning_stack, zones};
use crate::support::{DEADLINE, all_run, no_errors, submit};

/// Nodes of the gang; each is raced for by the three kinds of pods in three moments.
const NODES: usize = 24;
const HIGH: &str = "high";
const DEFAULT: &str = "default-scheduler";

/// A pod without a gang that a p5.48xlarge has capacity for. Nothing is to be launched for it.
fn foreign(moment: &str, node: usize, kind: &str, scheduler: &str) -> Pod {
    let name = format!("{moment}-{kind}-{node}");
    let pod = TestPod::new(name).scheduler(scheduler).request("cpu", "1").annotation(keys::DO_NOT_PROVISION, "true");
    match kind {
        // What ExtendedResourceToleration adds where that admission plugin runs.
        "gpu" => pod.gpus(1).tolerates("nvidia.com/gpu"),
        "high" => pod.priority_class(HIGH),
        _ => pod,
    }
    .label("race", moment)
    .build()
}

/// One pod of each kind, in this moment of the `node`-th node.
async fn race(client: &Client, moment: &str, node: usize, schedulers: &[&str]) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "ml");
    for (number, kind) in ["plain", "gpu", "high"].into_iter().enumerate() {
        let scheduler = schedulers[(node + number) % schedulers.len()];
        pods.create(&PostParams::default(), &foreign(moment, node, kind, scheduler)).await.unwrap();
    }
}

/// Waits until a kube-scheduler has looked for a node for each of the pods of a moment; none has one.
async fn lost(stack: &Stack, moment: &str, count: usize) {
    let pods: &Api<Pod> = &Api::namespaced(stack.admin().unwrap(), "ml");
    let of_moment = &ListParams::default().labels(&format!("race={moment}"));
    eventually(DEADLINE, &format!("all pods of {moment} to be looked at"), || async move {
        let all = pods.list(of_moment).await.map_err(|error| error.to_string())?.items;
        let bound: Vec<_> = all.iter().filter(|pod| pod.spec.as_ref().unwrap().node_name.is_some()).collect();
        assert!(bound.is_empty(), "bound to a node that waits for its gang: {:?}", bound[0]);
        assert_eq!(all.len(), count, "none was evicted");
        let refused = |pod: &&Pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.clone().any(|one| one.type_ == "PodScheduled" && one.status == "False")
        };
        let open = all.iter().filter(|pod| !refused(pod)).count();
        if open == 0 { Ok(Some(())) } else { Err(format!("{open} are open")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

fn is_held(node: &Node) -> bool {
    let spec = node.spec.as_ref().unwrap();
    spec.unschedulable == Some(true) && node.annotations().contains_key(keys::HOLD)
}

fn is_unregistered(node: &Node) -> bool {
    let spec = node.spec.as_ref().unwrap();
    spec.unschedulable != Some(true) && spec.taints.iter().flatten().any(|taint| taint.key == keys::GANG_PENDING)
}

/// Races in the moment in which each node becomes `is`, until all did; `first` is called after the first one did.
async fn race_for_each(
    stack: &Stack,
    moment: &str,
    schedulers: &[&str],
    is: impl Fn(&Node) -> bool,
    first: impl Fn(),
) -> Vec<Node> {
    let client = stack.admin().unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    let mut raced: BTreeSet<String> = BTreeSet::new();
    let begun = std::time::Instant::now();
    loop {
        let all = nodes.list(&ListParams::default()).await.unwrap().items;
        for node in all.iter().filter(|node| is(node)) {
            if raced.insert(node.name_any()) {
                if raced.len() == 1 {
                    first();
                }
                race(&client, moment, raced.len() - 1, schedulers).await;
            }
        }
        if raced.len() == NODES {
            return all;
        }
        let of = format!("{} of {NODES} nodes were {moment}\n{}", raced.len(), stack.cluster.report(60));
        assert!(begun.elapsed() < 2 * DEADLINE, "{of}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_foreign_pods_that_race_for_nodes_waiting_for_their_gang_are_bound_to_none() {
    let hosts = u32::try_from(NODES).unwrap();
    let Some(stack) = provisioning_stack(&zones([hosts, 0, 0]), 5, "1s").await else { return };
    let client = stack.admin().unwrap();
    let pools: Api<NodePool> = Api::all(client.clone());
    // The last node waits for its GPUs until all races are over, however slow the machine is: nothing is given up meanwhile.
    let patient = json!({"registerWithin": "24h", "readyWithin": "24h", "replaceAfter": "24h"});
    let spec = json!({"template": {"metadata": {"labels": {DEVICES_BY_PLUGIN: "true"}}}, "join": patient});
    pools.patch("h100", &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await.unwrap();
    let class: PriorityClass = serde_json::from_value(json!({"metadata": {"name": HIGH}, "value": 1_000_000})).unwrap();
    Api::<PriorityClass>::all(client.clone()).create(&PostParams::default(), &class).await.unwrap();
    let stock = SchedulerOptions { number: 1, file: "default-scheduler.yaml", ..SchedulerOptions::new(None) };
    stack.cluster.start_scheduler(&stock).await.unwrap();

    // Killed between registration and cordon, for as long as nodes register: two of three do so when it is away for certain.
    let late = u32::try_from(NODES * 2 / 3).unwrap();
    let fault = FaultKind::SlowRegistration { instances: Some(late), seconds: Some(60.0) };
    goes_wrong(&stack, &Fault::of(fault).times(1)).await;
    submit(&client, "ml", gang_job("train", u16::try_from(NODES).unwrap())).await;
    let kill = || stack.kill_muster().unwrap();
    let all = race_for_each(&stack, "registered", &["muster", DEFAULT], |_| true, kill).await;
    let unheld = all.iter().filter(|node| is_unregistered(node)).count();
    assert!(unheld * 2 > NODES, "Muster was away before most of the nodes were held: {unheld} are not");
    // GPUs are there, so that a pod that asks for one is refused for the hold alone; the last node waits for its own.
    let nodes: Api<Node> = Api::all(client.clone());
    let devices = Patch::Merge(json!({"status": {"capacity": {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"},
                                                 "allocatable": {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"}}}));
    for node in &all[1..] {
        nodes.patch_status(&node.name_any(), &PatchParams::default(), &devices).await.unwrap();
    }
    lost(&stack, "registered", 3 * NODES).await;

    stack.start_muster(&[]).await.unwrap();
    let all = race_for_each(&stack, "held", &["muster", DEFAULT], is_held, || {}).await;
    lost(&stack, "held", 3 * NODES).await;
    lost(&stack, "registered", 3 * NODES).await;

    // A scheduler that never asks Muster may be quicker than the new cordon: what it bound is evicted, which
    // `hold::a_hold_that_somebody_lifts_comes_back_and_who_crept_in_leaves` shows.
    let pods: Api<Pod> = Api::namespaced(client.clone(), "ml");
    let races = ListParams::default().labels("race");
    pods.delete_collection(&DeleteParams::background().grace_period(0), &races).await.unwrap();
    let uncordon = Patch::Merge(json!({"spec": {"unschedulable": null}}));
    for (number, node) in all.iter().enumerate() {
        nodes.patch(&node.name_any(), &PatchParams::default(), &uncordon).await.unwrap();
        race(&client, "uncordoned", number, &["muster"]).await;
    }
    lost(&stack, "uncordoned", 3 * NODES).await;
    race_for_each(&stack, "held-again", &["muster", DEFAULT], is_held, || {}).await;
    lost(&stack, "held-again", 3 * NODES).await;
    lost(&stack, "uncordoned", 3 * NODES).await;

    // The gang, which all of this was for, gets the nodes.
    pods.delete_collection(&DeleteParams::background().grace_period(0), &races).await.unwrap();
    nodes.patch_status(&all[0].name_any(), &PatchParams::default(), &devices).await.unwrap();
    all_run(&stack, "ml", "train", NODES).await;
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}
