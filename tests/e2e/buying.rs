//! Gangs on nodes that do not exist: bought in one call, or not at all.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use muster::testbed::workloads::TestJob;
use muster::testbed::{Stack, eventually, pools};
use muster_api::crd::NodeBatch;
use muster_ec2_sim::Scenario;
use serde_json::{Value, json};

use crate::support::{DEADLINE, all_run, node_of, options, phase, stack, submit};

/// EC2's minutes pass in seconds.
const FACTOR: u32 = 20;

async fn buying_stack(scenario: &Scenario) -> Option<Stack> {
    let mut options = options().await?;
    options.scenario = Some(serde_json::to_value(scenario).unwrap());
    options.factor = FACTOR;
    let stack = stack(options, "ml").await;
    let (class, pool) = pools::p5("60s").unwrap();
    pools::create(&stack.admin().unwrap(), &class, &pool).await.unwrap();
    Some(stack)
}

fn train(members: u16) -> Job {
    TestJob::new("train", members).gpus(8).pod_annotation("muster.dev/gang", "train").build()
}

/// Fleets in the journal that launched something.
fn launched_fleets(journal: &[Value]) -> Vec<&Value> {
    journal
        .iter()
        .filter(|entry| entry["operation"] == "CreateFleet" && entry["replayed"] == false)
        .filter(|entry| {
            let made = entry["resources"].as_array().into_iter().flatten();
            made.filter_map(Value::as_str).any(|id| id.starts_with("i-"))
        })
        .collect()
}

async fn everything_is_given_back(stack: &Stack) {
    let client = stack.admin().unwrap();
    let (nodes, batches) = (Api::<Node>::all(client.clone()), Api::<NodeBatch>::all(client.clone()));
    let (nodes, batches) = (&nodes, &batches);
    eventually(DEADLINE, "no node and no batch to be left", || async move {
        let left = nodes.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items.len();
        let held = batches.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        if left == 0 && held.is_empty() {
            return Ok(Some(()));
        }
        Err(format!("{left} nodes, batches {:?}", held.iter().map(|batch| &batch.status).collect::<Vec<_>>()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

async fn invariants_hold(stack: &Stack) {
    let invariants: Vec<Value> = stack.sim("/_sim/invariants").await.unwrap();
    let broken: Vec<&Value> = invariants.iter().filter(|invariant| invariant["holds"] != true).collect();
    assert!(broken.is_empty(), "broken: {broken:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_on_an_empty_cluster_is_bought_in_one_call_and_given_back_whole() {
    let Some(stack) = buying_stack(&Scenario::demo()).await else { return };
    let client = stack.admin().unwrap();
    submit(&client, "ml", train(8)).await;

    let pods = all_run(&stack, "ml", "train", 8).await;

    let nodes: BTreeSet<String> = pods.iter().filter_map(node_of).collect();
    assert_eq!(nodes.len(), 8);
    let journal: Vec<Value> = stack.sim("/_sim/journal").await.unwrap();
    assert_eq!(launched_fleets(&journal).len(), 1, "one call");
    phase(&stack, "ml", "train", "Bound").await;

    let jobs: Api<Job> = Api::namespaced(client, "ml");
    jobs.delete("train", &DeleteParams::background()).await.unwrap();
    everything_is_given_back(&stack).await;
    invariants_hold(&stack).await;
    let state: Value = stack.sim("/_sim/state").await.unwrap();
    assert_eq!(state["placementGroups"], json!([]), "the group is deleted");
}
