//! Gangs on nodes that exist.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;

use muster::testbed::workloads::TestJob;

use crate::support::{all_run, leaves, node_of, options, phase, stack, submit};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_takes_the_fewest_leaves_with_contiguous_ranks() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a", "b", "c", "d"], 3)).await.unwrap();
    let client = stack.admin().unwrap();
    submit(&client, "ml", TestJob::new("train", 8).gpus(8).pod_annotation("muster.dev/gang", "train").build()).await;

    let pods = all_run(&stack, "ml", "train", 8).await;

    let nodes: Vec<String> = pods.iter().filter_map(node_of).collect();
    assert_eq!(nodes.iter().collect::<BTreeSet<_>>().len(), 8, "eight whole nodes: {nodes:?}");
    // Eight nodes of leaves of three: three leaves at least.
    let leaf_of = |node: &String| node.split('-').next().unwrap().to_owned();
    let mut order: Vec<String> = nodes.iter().map(leaf_of).collect();
    order.dedup();
    assert_eq!(order.len(), 3, "three leaves, each one run of ranks: {nodes:?}");
    let gang = phase(&stack, "ml", "train", "Bound").await;
    let status = gang.status.unwrap();
    assert_eq!(status.members, "8/8");
}
