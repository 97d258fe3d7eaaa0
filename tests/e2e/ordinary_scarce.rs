//! Pods of no gang where a subnet has no addresses, and at a quota.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use muster::testbed::{Stack, eventually};
use muster_ec2_sim::choices::Shortfall;
use muster_ec2_sim::{MarketType, Scenario};
use serde_json::{Value, json};

use crate::cloud::{everything_is_terminated, instances, journal, live};
use crate::ordinary::{all_serve, deploy, event, general, nodes_of, pods, provisioning, scale};
use crate::support::{DEADLINE, choices, no_errors, runs};

const M5: &str = "m5.2xlarge";

/// More than enough of one type in two zones.
fn plenty() -> Scenario {
    let zones = ["us-east-1a", "us-east-1b"];
    zones.into_iter().fold(Scenario::default(), |all, zone| all.with_pool(M5, zone, MarketType::OnDemand, 1, 1, 20))
}

/// How many of these nodes are in each zone.
async fn by_zone(stack: &Stack, names: impl IntoIterator<Item = String>) -> BTreeMap<String, usize> {
    let all = Api::<Node>::all(stack.admin().unwrap()).list(&ListParams::default()).await.unwrap();
    let zones: BTreeMap<String, String> = all
        .iter()
        .map(|node| (node.name_any(), node.labels().get("topology.kubernetes.io/zone").cloned().unwrap_or_default()))
        .collect();
    let mut counts = BTreeMap::new();
    for name in names {
        *counts.entry(zones[&name].clone()).or_default() += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_subnet_has_no_addresses_left_nodes_for_pods_come_in_the_next_zone() {
    let mut scenario = plenty();
    scenario.zones[0].subnets[0].free_addresses = Some(1);
    let pool = general(&["us-east-1a", "us-east-1b"], &json!({"nodes": 20}), "1s");
    let Some(stack) = provisioning(&scenario, &pool).await else { return };
    // Five to a node.
    deploy(&stack, "shop", 15, "1500m", "3Gi").await;

    let served = all_serve(&stack, "shop", 15).await;

    let zones = by_zone(&stack, nodes_of(&served)).await;
    assert_eq!(zones.values().sum::<usize>(), 3, "{zones:?}");
    assert!(zones.get("us-east-1a").copied().unwrap_or(0) <= 1, "{zones:?}");
    assert_eq!(live(&stack).await.len(), 3, "none in vain");
    scale(&stack, "shop", 0).await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_a_quota_pods_wait_and_the_quota_is_named_and_they_run_once_others_have_ended() {
    let mut scenario = plenty();
    // One m5.2xlarge.
    scenario.quotas.insert("standard".to_owned(), 8);
    let pool = general(&["us-east-1a", "us-east-1b"], &json!({"nodes": 20}), "1s");
    let Some(stack) = provisioning(&scenario, &pool).await else { return };
    deploy(&stack, "shop", 5, "1500m", "3Gi").await;
    all_serve(&stack, "shop", 5).await;
    deploy(&stack, "more", 5, "1500m", "3Gi").await;

    if choices().shortfall != Shortfall::Empty {
        event(&stack, "NodeBatch", "QuotaExceeded", "VcpuLimitExceeded").await;
    }
    eventually(DEADLINE, "a launch that is refused", || async {
        let fleet = |entry: &&Value| entry["operation"] == "CreateFleet" && entry["parameters"]["DryRun"] != "true";
        let calls = journal(&stack, 0).await.iter().filter(fleet).filter(|entry| instances(entry).is_empty()).count();
        Ok::<_, String>((calls > 0).then_some(()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    assert_eq!(live(&stack).await.len(), 1);
    let waiting = pods(&stack, "more").await;
    assert!(waiting.len() == 5 && !waiting.iter().any(runs), "{waiting:?}");
    // What ends makes way.
    scale(&stack, "shop", 0).await;
    all_serve(&stack, "more", 5).await;
    scale(&stack, "more", 0).await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}
