//! Pods of the cluster's default scheduler, which never asks Muster: nodes are launched for them too.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use k8s_openapi::api::core::v1::{Event, Node};
use kube::Api;
use kube::api::ListParams;
use muster::testbed::workloads::TestPod;
use muster::testbed::{SchedulerOptions, Stack, eventually};
use serde_json::json;

use crate::cloud::{
    everything_is_terminated, instances, invariants_hold, journal, launched_fleets, no_instance_is_left,
};
use crate::ordinary::{all_serve, deploy, deploy_with, general, hosts, nodes_of, provisioning_with, scale};
use crate::support::{DEADLINE, create, no_errors};

const DEFAULT: &str = "default-scheduler";

/// Nodes that were launched so far.
async fn launched(stack: &Stack) -> usize {
    launched_fleets(&journal(stack, 0).await).iter().map(|fleet| instances(fleet).len()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_of_the_default_scheduler_on_nothing_runs_on_nodes_launched_once_which_go_when_it_is_gone() {
    let provisioner = json!({"schedulerNames": [DEFAULT]});
    let pool = general(&["us-east-1a"], &json!({"nodes": 20}), "30s");
    let Some(stack) = provisioning_with(&hosts(20, 20), &pool, &provisioner).await else { return };
    let stock = SchedulerOptions { number: 1, file: "default-scheduler.yaml", ..SchedulerOptions::new(None) };
    stack.cluster.start_scheduler(&stock).await.unwrap();
    let foreign = json!({"schedulerName": DEFAULT});

    // Nobody would hold its gang together: it is left alone, by name.
    let member = TestPod::new("lone").scheduler(DEFAULT).request("cpu", "1").annotation("muster.dev/gang", "lone");
    create(&stack, "web", member.build()).await;
    eventually(DEADLINE, "the member of a gang to be refused", || async {
        let events: Api<Event> = Api::namespaced(stack.admin().unwrap(), "web");
        let events = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let of_it = |event: &&Event| event.involved_object.name.as_deref() == Some("lone");
        let stated: Vec<_> = events.iter().filter(of_it).filter_map(|event| event.message.clone()).collect();
        let refused = stated.iter().any(|message| message.contains("nobody holds the gang together"));
        if refused { Ok(Some(())) } else { Err(format!("{stated:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    assert_eq!(launched(&stack).await, 0);

    deploy_with(&stack, "shop", 9, "1500m", "3Gi", &foreign).await;
    let pods = all_serve(&stack, "shop", 9).await;
    // Five to a node of 8 CPU; the member that nothing is launched for finds a place beside them.
    assert_eq!((nodes_of(&pods).len(), launched(&stack).await), (2, 2), "nobody provisions twice");

    // Beside pods of our own profile. Whichever of these loses its place to a foreign pod takes that pod's.
    deploy_with(&stack, "api", 5, "1500m", "3Gi", &foreign).await;
    deploy(&stack, "own", 5, "1400m", "3Gi").await;
    all_serve(&stack, "api", 5).await;
    all_serve(&stack, "own", 5).await;
    assert_eq!(launched(&stack).await, 4, "nobody provisions twice");

    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(stack.admin().unwrap(), "web");
    pods.delete("lone", &kube::api::DeleteParams::default()).await.unwrap();
    for name in ["shop", "api", "own"] {
        scale(&stack, name, 0).await;
    }
    // Nothing led them to the nodes launched for them: a node whose pods stand on another awaits them for a minute after Ready.
    let nodes: &Api<Node> = &Api::all(stack.admin().unwrap());
    eventually(2 * DEADLINE, "no node to be left", || async move {
        let left = nodes.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items.len();
        if left == 0 { Ok(Some(())) } else { Err(format!("{left} nodes")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    everything_is_terminated(&stack).await;
    no_instance_is_left(&stack).await;
    assert_eq!(launched(&stack).await, 4);
    invariants_hold(&stack).await;
    no_errors(&stack);
}
