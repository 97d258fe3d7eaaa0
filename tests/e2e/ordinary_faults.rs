//! Nodes for pods of no gang where `muster serve` dies at each of its steps, and where the API server is away. `MUSTER_SOAK` has it die
//! at all of them, and the API server away for a minute.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;
use std::time::Duration;

use kube::ResourceExt;
use muster::step::Step;
use muster::testbed::{Component, Stack, eventually};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::chaos::soaking;
use crate::cloud::{everything_is_terminated, instances, invariants_hold, journal, launched_fleets, live};
use crate::crash::{Point, after, before, dies, restart};
use crate::ordinary::{all_serve, deploy, general, hosts, nodes_of, provisioning, provisioning_of, scale};
use crate::support::{DEADLINE, no_errors};

/// While nodes are launched for pods, and while they go: one of each in one life of a batch. The first launches are those of every run.
const LIVES: [(Point, Point); 8] = [
    (after(Step::CreateBatch, 1), before(Step::TerminateInstances, 1)),
    (before(Step::CreateFleet, 1), after(Step::TerminateInstances, 1)),
    (after(Step::CreateFleet, 1), after(Step::BookBatch, 1)),
    (after(Step::WriteBatch, 1), before(Step::EditNode, 1)),
    (after(Step::CreateLaunchTemplate, 1), after(Step::EditNode, 1)),
    (before(Step::WriteBatch, 3), before(Step::BookBatch, 1)),
    (after(Step::EditNode, 1), after(Step::DeleteLaunchTemplate, 1)),
    (after(Step::BindPod, 3), after(Step::EditBatch, 1)),
];
/// So many launches.
const FEW: usize = 3;

async fn launched(stack: &Stack, from: usize) -> usize {
    launched_fleets(&journal(stack, from).await).iter().map(|fleet| instances(fleet).len()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_for_pods_are_launched_once_and_terminated_whole_wherever_the_process_was_killed() {
    let Some(stack) = provisioning(&hosts(20, 20), &general(&["us-east-1a"], &json!({"nodes": 20}), "1s")).await else {
        return;
    };
    for (number, (launching, leaving)) in LIVES.into_iter().enumerate().take(if soaking() { LIVES.len() } else { FEW })
    {
        let name = format!("shop{number}");
        let from = journal(&stack, 0).await.len();
        restart(&stack, Some(launching)).await;
        deploy(&stack, &name, 10, "1500m", "3Gi").await;
        dies(&stack, launching).await;
        restart(&stack, None).await;

        all_serve(&stack, &name, 10).await;

        assert_eq!(launched(&stack, from).await, 2, "{launching:?}");
        let ended =
            journal(&stack, from).await.iter().filter(|entry| entry["operation"] == "TerminateInstances").count();
        assert_eq!(ended, 0, "{launching:?}: nothing was thrown away");

        // A process that starts keeps nodes for a minute for whom they were launched for: once in every run.
        if soaking() || number == 0 {
            restart(&stack, Some(leaving)).await;
            scale(&stack, &name, 0).await;
            dies(&stack, leaving).await;
            restart(&stack, None).await;
        } else {
            scale(&stack, &name, 0).await;
        }

        everything_is_terminated(&stack).await;
        assert_eq!(launched(&stack, from).await, 2, "{leaving:?}: nothing is launched for nobody");
    }
    invariants_hold(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_api_server_is_away_nobody_loses_a_node_and_afterwards_nothing_was_launched_twice() {
    let pool = general(&["us-east-1a"], &json!({"nodes": 20}), "1s");
    // Its minute is twenty of EC2's, and machines that come have a quarter of an hour to register: that it was away does not count.
    // The lease runs out meanwhile.
    let config = json!({"state": {"maxAge": "10s"}, "lease": {"duration": "2s", "grace": "1s"}});
    let Some(stack) = provisioning_of(20, &hosts(20, 20), &pool, config).await else { return };
    deploy(&stack, "stays", 10, "1500m", "3Gi").await;
    let before = all_serve(&stack, "stays", 10).await;
    let kept: BTreeSet<String> = live(&stack).await;
    deploy(&stack, "leaves", 10, "1500m", "3Gi").await;
    let leaves = all_serve(&stack, "leaves", 10).await;
    let from = journal(&stack, 0).await.len();
    // One empties its nodes, and for one they are on their way.
    scale(&stack, "leaves", 0).await;
    deploy(&stack, "comes", 10, "7", "3Gi").await;
    eventually(DEADLINE, "a launch for those who come", || async {
        Ok::<_, String>((launched(&stack, from).await > 0).then_some(()))
    })
    .await
    .unwrap();

    stack.cluster.signal(Component::ApiServer, Signal::SIGSTOP).unwrap();
    // For so long nobody is answered.
    tokio::time::sleep(Duration::from_secs(if soaking() { 60 } else { 5 })).await;
    let meanwhile = live(&stack).await;
    stack.cluster.signal(Component::ApiServer, Signal::SIGCONT).unwrap();

    assert!(kept.is_subset(&meanwhile), "{kept:?} of {meanwhile:?}");
    let comes = all_serve(&stack, "comes", 10).await;
    let after = all_serve(&stack, "stays", 10).await;
    let of = |pods: &[_]| -> BTreeSet<(String, String)> {
        pods.iter().map(|pod: &k8s_openapi::api::core::v1::Pod| (pod.name_any(), pod.uid().unwrap())).collect()
    };
    assert_eq!(of(&after), of(&before), "whoever ran runs");
    assert_eq!(nodes_of(&after), nodes_of(&before));
    // Some may find a node that is not gone yet.
    let found: BTreeSet<String> = nodes_of(&before).union(&nodes_of(&leaves)).cloned().collect();
    let new = nodes_of(&comes).difference(&found).count();
    assert_eq!(launched(&stack, from).await, new, "each node that was launched is used");
    for name in ["stays", "comes"] {
        scale(&stack, name, 0).await;
    }
    everything_is_terminated(&stack).await;
}
