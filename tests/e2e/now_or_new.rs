//! What a gang gets: running nodes, nodes that are joining, new ones, or new ones beside running ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use muster::testbed::nodes::{KWOK_NODE, KWOK_NODE_FAKE};
use serde_json::json;

use crate::cloud::{
    batches, delete_job, gang_job, instances, invariants_hold, journal, launched_fleets, provisioning_stack, zone_of,
    zones,
};
use crate::support::{all_run, leaves, no_errors, node_of, phase, says, submit};

/// EC2's minutes pass in seconds.
const FACTOR: u32 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_that_running_nodes_half_hold_provisions_the_rest_in_their_zone() {
    let Some(stack) = provisioning_stack(&zones([8, 8, 8]), FACTOR, "1s").await else { return };
    stack.create_nodes(leaves(&["a"], 4)).await.unwrap();
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;

    let pods = all_run(&stack, "ml", "train", 8).await;

    let nodes: BTreeSet<String> = pods.iter().filter_map(node_of).collect();
    let running = nodes.iter().filter(|node| node.starts_with("a-")).count();
    assert_eq!((nodes.len(), running), (8, 4), "{nodes:?}");
    let journal = journal(&stack, 0).await;
    let fleets = launched_fleets(&journal);
    let provisioned: Vec<(usize, Option<char>)> =
        fleets.iter().map(|fleet| (instances(fleet).len(), zone_of(fleet))).collect();
    assert_eq!(provisioned, [(4, Some('a'))], "four nodes, beside the running ones");
    phase(&stack, "ml", "train", "Bound").await;
    delete_job(&stack, "train").await;
    invariants_hold(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_waits_for_nodes_that_are_joining_and_provisions_nothing() {
    let Some(stack) = provisioning_stack(&zones([8, 8, 8]), FACTOR, "1s").await else { return };
    let api: Api<Node> = Api::all(stack.admin().unwrap());
    let names = ["a-0", "a-1"];
    for mut node in leaves(&["a"], 2) {
        // Nobody says that it is Ready.
        node.annotations_mut().remove(KWOK_NODE);
        api.create(&PostParams::default(), &node).await.unwrap();
    }
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 2)).await;

    says(&stack, "ml", "train", "waiting for nodes a-0, a-1 to become Ready; nodes are provisioned after").await;
    assert!(batches(&stack).await.is_empty(), "nothing is provisioned meanwhile");
    for name in names {
        let fake = json!({"metadata": {"annotations": {KWOK_NODE: KWOK_NODE_FAKE}}});
        api.patch(name, &PatchParams::default(), &Patch::Merge(&fake)).await.unwrap();
    }

    let pods = all_run(&stack, "ml", "train", 2).await;
    assert_eq!(pods.iter().filter_map(node_of).collect::<BTreeSet<_>>(), names.map(str::to_owned).into());
    assert!(launched_fleets(&journal(&stack, 0).await).is_empty());
    no_errors(&stack);
}
