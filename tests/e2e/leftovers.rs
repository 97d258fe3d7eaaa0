//! What nobody needs any more ends by itself, or waits for a person and says what it costs: pods of no gang, and instances that
//! a restored API server does not know.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster::testbed::request::request;
use muster::testbed::workloads::TestPod;
use muster::testbed::{Identity, Stack, eventually};
use muster_api::crd::{NodeBatch, NodePool};
use muster_api::keys;
use muster_ec2_sim::{Fault, FaultKind, Scenario};
use serde_json::{Value, json};

use crate::cloud::{
    batch_that, clock, delete_job, delete_job_whose_nodes_are_in_use, everything_is_terminated, gang_job, goes_wrong,
    instances, invariants_hold_but, journal, lasting_job, launched_fleets, live, no_batch_is_partial, nothing_is_left,
    phase_of, provisioning_stack, time_of, zones,
};
use crate::support::{DEADLINE, all_run, create, no_errors, runs_on, submit};

/// The sum of a metric over its labels.
/// The sum over all series of a metric that are counted.
pub(crate) async fn metric(stack: &Stack, name: &str, counts: fn(&str) -> bool) -> f64 {
    let text = request(stack.http(), "GET", "/metrics", "").await.unwrap();
    let of = |line: &str| -> Option<f64> {
        let (series, value) = line.rsplit_once(' ')?;
        (series.split('{').next() == Some(name) && counts(series)).then(|| value.parse().unwrap())
    };
    text.lines().filter_map(of).sum()
}

/// Dollars per hour of nodes that serve nobody.
async fn idle_dollars(stack: &Stack) -> f64 {
    metric(stack, "muster_node_cost_usd_per_hour", |series| !series.contains("\"in_use\"")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordinary_pod_keeps_no_nodes_whose_gang_has_ended_and_they_count_as_idle_meanwhile() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), 60, "1s").await else { return };
    let pools: Api<NodePool> = Api::all(stack.admin().unwrap());
    let soon = json!({"spec": {"disruption": {"foreignPodsAfter": "15m"}}});
    pools.patch("h100", &PatchParams::default(), &Patch::Merge(&soon)).await.unwrap();
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 2)).await;
    all_run(&stack, "ml", "train", 2).await;
    batch_that(&stack, "the batch to be in use", |batch| phase_of(batch) == "InUse").await;
    let pod = TestPod::new("single").on(keys::NODEPOOL, "h100").build();
    create(&stack, "ml", pod).await;
    runs_on(&stack, "ml", "single", DEADLINE).await;
    let idle = &stack;
    eventually(DEADLINE, "all dollars to be in use", || async move {
        let all = metric(idle, "muster_node_cost_usd_per_hour", |_| true).await;
        let dollars = idle_dollars(idle).await;
        if all > 0.01 && dollars < 0.01 { Ok(Some(())) } else { Err(format!("${dollars} of {all} per hour")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));

    delete_job(&stack, "train").await;

    // Two times p5.48xlarge.
    eventually(DEADLINE, "idle dollars", || async move {
        let dollars = idle_dollars(idle).await;
        if (dollars - 110.08).abs() < 0.01 { Ok(Some(())) } else { Err(format!("${dollars} per hour")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    assert_eq!(live(&stack).await.len(), 2, "the pod keeps its time");
    everything_is_terminated(&stack).await;
    let pods: Api<Pod> = Api::namespaced(stack.admin().unwrap(), "ml");
    assert_eq!(pods.get_opt("single").await.unwrap().map(|pod| pod.name_any()), None, "it was evicted");
    eventually(DEADLINE, "no idle dollars", || async move {
        let dollars = idle_dollars(idle).await;
        if dollars < 0.01 { Ok(Some(())) } else { Err(format!("${dollars} per hour")) }
    })
    .await
    .unwrap();
    no_errors(&stack);
}

/// Readings of the whole account: what a round of the collection begins with.
fn is_sweep(entry: &Value) -> bool {
    let filters = entry["parameters"].to_string();
    entry["operation"] == "DescribeInstances" && filters.contains(keys::CLUSTER_UID) && !filters.contains(keys::BATCH)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_instances_of_an_attempt_that_was_given_up_are_gone_two_sweeps_after_they_turn_up() {
    let Some(stack) = provisioning_stack(&zones([8, 8, 8]), 60, "1s").await else { return };
    // The launch is carried out, but neither its answer nor anything it made is seen for an hour; asked again under its
    // token, the zone has nothing.
    goes_wrong(&stack, &Fault::of(FaultKind::LostResponse).on("CreateFleet").times(1)).await;
    goes_wrong(&stack, &Fault::of(FaultKind::Invisible { seconds: 3600.0 }).on("CreateFleet").times(1)).await;
    let refused = FaultKind::Error {
        status: 500,
        code: "InsufficientInstanceCapacity".to_owned(),
        message: "We currently do not have sufficient p5.48xlarge capacity".to_owned(),
    };
    let asked_again = Fault { zone: Some("us-east-1a".to_owned()), skip: 1, ..Fault::of(refused).on("CreateFleet") };
    goes_wrong(&stack, &asked_again).await;
    submit(&stack.admin().unwrap(), "ml", lasting_job("train", 6)).await;
    all_run(&stack, "ml", "train", 6).await;
    let launched = journal(&stack, 0).await;
    let late: BTreeSet<String> = instances(launched_fleets(&launched)[0]).into_iter().map(str::to_owned).collect();
    assert_eq!(late.len(), 6, "the first launch was carried out");
    assert_eq!(live(&stack).await.intersection(&late).count(), 6, "nobody saw them");

    let (held, gone) = (&stack, &late);
    eventually(DEADLINE * 2, "the late instances to be gone", || async move {
        let left = live(held).await.intersection(gone).count();
        if left == 0 { Ok(Some(())) } else { Err(format!("{left} of the late instances live")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));

    let journal = journal(&stack, 0).await;
    let visible = time_of(launched_fleets(&journal)[0]).checked_add(SignedDuration::from_hours(1)).unwrap();
    let ends = |entry: &&Value| {
        entry["operation"] == "TerminateInstances" && late.iter().all(|id| entry["parameters"].to_string().contains(id))
    };
    let end = time_of(journal.iter().find(ends).expect("they were terminated in one call"));
    let sweeps = journal.iter().filter(|entry| is_sweep(entry) && (visible..=end).contains(&time_of(entry))).count();
    assert!((1..=2).contains(&sweeps), "{sweeps} sweeps saw them");
    // The gang has not noticed.
    all_run(&stack, "ml", "train", 6).await;
    assert_eq!(live(&stack).await.len(), 6);
    no_batch_is_partial(&stack).await;
    eventually(DEADLINE, "the group of the late instances to be collected", || async move {
        let state: Value = held.sim("/_sim/state").await.map_err(|error| error.to_string())?;
        let groups = state["placementGroups"].as_array().map_or(0, Vec::len);
        if groups == 1 { Ok(Some(())) } else { Err(format!("{groups} groups")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    delete_job(&stack, "train").await;
    nothing_is_left(&stack).await;
    // Twelve lived for a while, of which nobody could see six.
    invariants_hold_but(&stack, &[2]).await;
    no_errors(&stack);
}

/// Takes away what the API server learned of a batch since its backup: the object and its Nodes.
async fn restore_without(stack: &Stack, batch: &str) {
    let client = stack.admin().unwrap();
    let batches: Api<NodeBatch> = Api::all(client.clone());
    let bare = json!({"metadata": {"finalizers": []}});
    batches.patch(batch, &PatchParams::default(), &Patch::Merge(&bare)).await.unwrap();
    batches.delete(batch, &DeleteParams::default()).await.unwrap();
    let nodes: Api<Node> = Api::all(client);
    nodes.delete_collection(&DeleteParams::default(), &ListParams::default().labels(keys::BATCH)).await.unwrap();
}

/// Runs `muster gc`: exit code, and what was printed.
fn gc(stack: &Stack, args: &[&str]) -> (Option<i32>, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_muster"))
        .arg("gc")
        .args(args)
        .env("KUBECONFIG", stack.cluster.kubeconfig(Identity::Admin))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), printed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_restored_api_server_does_not_know_waits_with_its_price_until_gc_is_confirmed() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), 60, "Never").await else { return };
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;
    all_run(&stack, "ml", "train", 8).await;
    delete_job_whose_nodes_are_in_use(&stack, "train").await;
    let idle = batch_that(&stack, "the batch to be idle", |batch| phase_of(batch) == "Idle").await;
    assert_eq!(gc(&stack, &[]).0, Some(0), "nothing is held");
    let as_json = |args: &[&str]| -> (Option<i32>, Value) {
        let (code, printed) = gc(&stack, args);
        (code, serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}")))
    };
    assert_eq!(as_json(&["-o", "json"]), (Some(0), json!({"released": false})));
    stack.kill_muster().unwrap();

    restore_without(&stack, &idle.name_any()).await;
    stack.start_muster(&[]).await.unwrap();

    let held = &stack;
    eventually(DEADLINE, "the instances to be held", || async move {
        let (code, printed) = gc(held, &[]);
        if code == Some(3) { Ok(Some(())) } else { Err(printed) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    eventually(DEADLINE, "the price and the age of what is held", || async move {
        let dollars = metric(held, "muster_held_orphans_usd_per_hour", |_| true).await;
        let age = metric(held, "muster_held_orphans_age_seconds", |_| true).await;
        let shown = (dollars - 440.32).abs() < 0.01 && age > 0.0;
        if shown { Ok(Some(())) } else { Err(format!("${dollars} per hour for {age} s")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    // Two rounds later.
    let start = clock(&stack).await;
    eventually(DEADLINE, "two rounds to pass", || async move {
        Ok::<_, String>((clock(held).await.duration_since(start).as_secs() > 300).then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(live(&stack).await.len(), 8, "nothing is terminated before a person says so");

    let (code, listed) = as_json(&["-o", "json"]);
    assert!(code == Some(3) && listed["message"].as_str().unwrap().contains("8 of 8 instances"), "{listed}");
    let (code, released) = as_json(&["--confirm", "-o", "json"]);

    assert_eq!((code, &released["released"], &released["set"]), (Some(0), &json!(true), &listed["set"]));
    // The group is empty, and so collected, a round later.
    eventually(DEADLINE, "instances and group to be collected", || async move {
        let state: Value = held.sim("/_sim/state").await.map_err(|error| error.to_string())?;
        let left = live(held).await.len();
        let groups = &state["placementGroups"];
        if left == 0 && *groups == json!([]) { Ok(Some(())) } else { Err(format!("{left} live, groups {groups}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    everything_is_terminated(&stack).await;
    assert!(metric(&stack, "muster_held_orphans_usd_per_hour", |_| true).await < 0.01);
    assert_eq!(gc(&stack, &[]).0, Some(0), "nothing is held any more");
    no_errors(&stack);
}
