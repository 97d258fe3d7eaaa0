//! What happens to nodes after their launch: they do not come, they are taken back, they are left over.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use muster::testbed::{Stack, eventually};
use muster_api::crd::{NodeBatch, NodePool};
use muster_api::keys;
use muster_ec2_sim::choices::Quota;
use muster_ec2_sim::{Fault, FaultKind, Scenario};
use serde_json::{Value, json};

use crate::cloud::{
    batch_that, delete_job, delete_job_whose_nodes_are_in_use, everything_is_terminated, gang_job, goes_wrong,
    impatient, instances, invariants_hold, journal, lasting_job, launched_fleets, live, no_instance_is_left, phase_of,
    provisioning_stack, zones,
};
use crate::support::{DEADLINE, all_run, choices, leaves, no_errors, node_of, options, phase, stack, submit};

/// EC2's minutes pass in a second or two.
const FACTOR: u32 = 60;

/// How many instances each launch made, in order.
async fn launches(stack: &Stack) -> Vec<usize> {
    launched_fleets(&journal(stack, 0).await).iter().map(|fleet| instances(fleet).len()).collect()
}

/// Reasons of the events on all objects.
async fn reasons(stack: &Stack) -> BTreeSet<String> {
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::all(stack.admin().unwrap());
    let events = events.list(&ListParams::default()).await.unwrap();
    events.into_iter().filter_map(|event| event.reason).collect()
}

/// Waits until there are events of these reasons: they are written after what they are about.
async fn reported(stack: &Stack, wanted: &[&str]) {
    eventually(DEADLINE, &format!("events {wanted:?}"), || async move {
        let found = reasons(stack).await;
        if wanted.iter().all(|reason| found.contains(*reason)) { Ok(Some(())) } else { Err(format!("{found:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

/// As if somebody took finalizer and object away by force.
async fn forget_batch(stack: &Stack, name: &str) {
    let batches: Api<NodeBatch> = Api::all(stack.admin().unwrap());
    let patch = json!({"metadata": {"finalizers": []}});
    batches.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    batches.delete(name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_group_and_template_of_a_batch_that_is_gone_are_collected_and_nothing_else_is() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), FACTOR, "Never").await else { return };
    let client = stack.admin().unwrap();
    submit(&client, "ml", gang_job("kept", 4)).await;
    all_run(&stack, "ml", "kept", 4).await;
    let kept = live(&stack).await;
    submit(&client, "ml", gang_job("lost", 4)).await;
    all_run(&stack, "ml", "lost", 4).await;
    delete_job_whose_nodes_are_in_use(&stack, "lost").await;
    let idle = batch_that(&stack, "the second batch to be idle", |batch| phase_of(batch) == "Idle").await;

    forget_batch(&stack, &idle.name_any()).await;

    let (stack, kept) = (&stack, &kept);
    eventually(DEADLINE, "only the kept instances, group and template to be left", || async move {
        let live = live(stack).await;
        let state: Value = stack.sim("/_sim/state").await.map_err(|error| error.to_string())?;
        let groups = state["placementGroups"].as_array().map_or(0, Vec::len);
        let templates = state["launchTemplates"].as_array().map_or(0, Vec::len);
        if live == *kept && (groups, templates) == (1, 1) {
            return Ok(Some(()));
        }
        Err(format!("{live:?}, {groups} groups, {templates} templates"))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    all_run(stack, "ml", "kept", 4).await;
    let idle = batch_that(stack, "the kept batch", |batch| phase_of(batch) == "InUse").await;
    delete_job(stack, "kept").await;
    Api::<NodeBatch>::all(client).delete(&idle.name_any(), &DeleteParams::default()).await.unwrap();
    everything_is_terminated(stack).await;
    no_errors(stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_orphans_than_is_credible_wait_for_a_person() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), FACTOR, "Never").await else { return };
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;
    all_run(&stack, "ml", "train", 8).await;
    delete_job_whose_nodes_are_in_use(&stack, "train").await;
    let idle = batch_that(&stack, "the batch to be idle", |batch| phase_of(batch) == "Idle").await;

    forget_batch(&stack, &idle.name_any()).await;

    let pools: Api<NodePool> = Api::all(stack.admin().unwrap());
    let held = &pools;
    let message = eventually(DEADLINE, "the pool to say that the sweep is held", || async move {
        let pool = held.get("h100").await.map_err(|error| error.to_string())?;
        let conditions = pool.status.unwrap_or_default().conditions;
        let held = conditions.into_iter().find(|c| c.type_ == "OrphanSweepHeld" && c.status == "True");
        Ok::<_, String>(held.map(|condition| condition.message))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    assert!(message.contains("8 of 8 instances"), "{message}");
    assert_eq!(live(&stack).await.len(), 8, "nothing is deleted");

    let digest = message.rsplit_once("(set ").unwrap().1.trim_end_matches(')');
    let patch = json!({"metadata": {"annotations": {keys::CONFIRM_ORPHANS: digest}}});
    pools.patch("h100", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();

    // The group is empty, and so collected, a round later.
    eventually(DEADLINE, "the group to be collected", || async {
        let state: Value = stack.sim("/_sim/state").await.map_err(|error| error.to_string())?;
        Ok::<_, String>((state["placementGroups"] == json!([])).then_some(()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_of_eight_that_never_comes_is_replaced_in_its_group_and_the_gang_runs() {
    for kind in [
        FaultKind::Dies { instances: 1, after_seconds: 5.0, reason: "Server.InternalError".to_owned() },
        FaultKind::StuckPending { instances: Some(1) },
        FaultKind::SlowRegistration { instances: Some(1), seconds: None },
    ] {
        let Some(stack) = provisioning_stack(&Scenario::demo(), FACTOR, "1s").await else { return };
        impatient(&stack).await;
        goes_wrong(&stack, &Fault::of(kind.clone()).on("CreateFleet").times(1)).await;
        submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;

        let pods = all_run(&stack, "ml", "train", 8).await;

        assert_eq!(pods.iter().filter_map(node_of).collect::<BTreeSet<_>>().len(), 8, "{kind:?}");
        assert_eq!(launches(&stack).await, [8, 1], "{kind:?}: one replacement, and no second batch");
        let live: Vec<Value> = stack.sim("/_sim/instances").await.unwrap();
        let groups: BTreeSet<&str> = live.iter().filter_map(|instance| instance["placementGroup"].as_str()).collect();
        assert_eq!(groups.len(), 1, "{kind:?}: in the same group");
        reported(&stack, &["NodeReplaced"]).await;
        invariants_hold(&stack).await;
        delete_job(&stack, "train").await;
        everything_is_terminated(&stack).await;
        no_errors(&stack);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replacement_that_got_nothing_is_looked_for_by_its_fleet_before_the_next_zone_is_asked() {
    // No ninth host in the zone: the one that is terminated is not free at once.
    let Some(stack) = provisioning_stack(&zones([8, 8, 8]), FACTOR, "1s").await else { return };
    impatient(&stack).await;
    let absent = FaultKind::SlowRegistration { instances: Some(1), seconds: None };
    goes_wrong(&stack, &Fault::of(absent).on("CreateFleet").times(1)).await;
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;

    all_run(&stack, "ml", "train", 8).await;

    let journal = journal(&stack, 0).await;
    let is_of = |entry: &&Value, operation: &str| entry["operation"] == operation;
    let fleets: Vec<&Value> = journal.iter().filter(|entry| is_of(entry, "CreateFleet")).collect();
    let empty = fleets.iter().find(|fleet| instances(fleet).is_empty()).expect("the replacement found no host");
    let id = empty["resources"][0].as_str().unwrap();
    let later = journal.iter().filter(|entry| entry["number"].as_u64() > empty["number"].as_u64());
    let next = later.map(|entry| (entry["operation"].as_str().unwrap(), entry["parameters"].to_string()));
    let asked: Vec<(&str, String)> = next.take_while(|(operation, _)| *operation != "CreateFleet").collect();
    assert!(asked.iter().any(|(operation, what)| *operation == "DescribeFleets" && what.contains(id)), "{asked:?}");
    invariants_hold(&stack).await;
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_dead_nodes_of_eight_are_too_many_and_the_next_zone_serves() {
    let Some(stack) = provisioning_stack(&zones([8, 8, 8]), FACTOR, "1s").await else { return };
    impatient(&stack).await;
    let dies = FaultKind::Dies { instances: 2, after_seconds: 5.0, reason: "Server.InternalError".to_owned() };
    goes_wrong(&stack, &Fault::of(dies).on("CreateFleet").times(1)).await;
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;

    all_run(&stack, "ml", "train", 8).await;

    assert_eq!(launches(&stack).await, [8, 8], "rolled back whole, no piecemeal replacement");
    let batch = batch_that(&stack, "the batch to be in use", |batch| phase_of(batch) == "InUse").await;
    let stranded = batch.status.unwrap().billing.unwrap().stranded_micro_usd;
    assert!(stranded["join"] > 0, "{stranded:?}");
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

/// A pool whose nodes have nine minutes to register, and do not, `times` launches long; a gang of eight that wants them.
/// Nine are nine seconds here: the nodes that may register do it well within that beside three other clusters.
async fn nodes_that_do_not_register(times: Option<u32>) -> Option<Stack> {
    let stack = provisioning_stack(&Scenario::demo(), FACTOR, "1s").await?;
    impatient(&stack).await;
    let pools: Api<NodePool> = Api::all(stack.admin().unwrap());
    let soon = json!({"spec": {"join": {"registerWithin": "9m"}}});
    pools.patch("h100", &PatchParams::default(), &Patch::Merge(&soon)).await.unwrap();
    let mut fault = Fault::of(FaultKind::SlowRegistration { instances: None, seconds: None });
    fault.count = times;
    goes_wrong(&stack, &fault).await;
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;
    Some(stack)
}

/// Waits until a pool says that most nodes of a batch did not join.
async fn pool_is_blocked(stack: &Stack) {
    let pools = &Api::<NodePool>::all(stack.admin().unwrap());
    eventually(DEADLINE, "the pool to be blocked", || async move {
        let status = pools.get("h100").await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        let ready = status.conditions.iter().find(|c| c.type_ == "Ready").map(|c| c.reason.clone());
        let blocked = status.join_blocked.is_some() && ready.as_deref() == Some("JoinBlocked");
        if blocked { Ok(Some(())) } else { Err(format!("{ready:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_batch_that_did_not_join_one_node_is_tried_alone_before_a_whole_batch_is_provisioned_again() {
    let Some(stack) = nodes_that_do_not_register(Some(2)).await else { return };
    pool_is_blocked(&stack).await;

    all_run(&stack, "ml", "train", 8).await;

    // The first node that is tried alone does not join either; the second does, and is terminated.
    assert_eq!(launches(&stack).await, [8, 1, 1, 8]);
    reported(&stack, &["JoinBlocked", "ProbeJoined", "JoinUnblocked"]).await;
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_blocked_by_a_gang_that_is_gone_opens_again_for_the_next_one() {
    let Some(stack) = nodes_that_do_not_register(Some(2)).await else { return };
    pool_is_blocked(&stack).await;
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    pool_is_blocked(&stack).await;

    submit(&stack.admin().unwrap(), "ml", gang_job("next", 8)).await;

    all_run(&stack, "ml", "next", 8).await;
    assert_eq!(launches(&stack).await, [8, 1, 1, 8], "one node is tried alone first, and again");
    delete_job(&stack, "next").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_that_waits_for_a_blocked_pool_takes_what_becomes_free_meanwhile() {
    let Some(stack) = nodes_that_do_not_register(None).await else { return };
    pool_is_blocked(&stack).await;

    stack.create_nodes(leaves(&["a", "b"], 4)).await.unwrap();

    let pods = all_run(&stack, "ml", "train", 8).await;
    assert!(
        pods.iter().filter_map(node_of).all(|node| node.starts_with("a-") || node.starts_with("b-")),
        "on those nodes"
    );
    no_instance_is_left(&stack).await;
    invariants_hold(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_whose_nodes_never_register_provisions_no_batch_until_it_is_changed() {
    let Some(stack) = nodes_that_do_not_register(None).await else { return };
    pool_is_blocked(&stack).await;
    let stack_ = &stack;
    eventually(DEADLINE, "a node to be tried alone", || async move {
        let sizes = launches(stack_).await;
        if sizes.len() >= 2 { Ok(Some(())) } else { Err(format!("{sizes:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));

    stack.sim_calm().await.unwrap();
    let pools: Api<NodePool> = Api::all(stack.admin().unwrap());
    let mended = json!({"spec": {"join": {"registerWithin": "10m"}}});
    pools.patch("h100", &PatchParams::default(), &Patch::Merge(&mended)).await.unwrap();

    all_run(&stack, "ml", "train", 8).await;
    let sizes = launches(&stack).await;
    let (first, rest) = sizes.split_first().unwrap();
    let (last, alone) = rest.split_last().unwrap();
    assert_eq!((*first, *last), (8, 8));
    assert!(alone.iter().all(|size| *size == 1), "no other batch is burnt for a fault of ours: {sizes:?}");
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_as_many_nodes_tried_alone_as_the_pool_allows_nothing_is_launched_before_a_person_changes_it() {
    let Some(stack) = nodes_that_do_not_register(None).await else { return };
    let pools: Api<NodePool> = Api::all(stack.admin().unwrap());
    let few = json!({"spec": {"join": {"maxProbes": 1}}});
    pools.patch("h100", &PatchParams::default(), &Patch::Merge(&few)).await.unwrap();
    pool_is_blocked(&stack).await;
    let stated = batch_that(&stack, "no further node to be tried alone", |batch| {
        let message = batch.status.as_ref().and_then(|status| status.message.as_deref());
        message.is_some_and(|message| message.contains("no more are"))
    })
    .await;
    let message = stated.status.unwrap().message.unwrap();
    assert!(message.starts_with("1 node of NodePool h100 tried alone, for at most $"), "{message}");
    assert_eq!(launches(&stack).await, [8, 1]);
    let tried = pools.get("h100").await.unwrap().status.unwrap().join_blocked.unwrap().probes.unwrap();
    assert_eq!(tried.count, 1);
    // An event follows the status that it is about.
    reported(&stack, &["ProbesExhausted"]).await;

    stack.sim_calm().await.unwrap();
    let mended = json!({"spec": {"join": {"registerWithin": "10m"}}});
    pools.patch("h100", &PatchParams::default(), &Patch::Merge(&mended)).await.unwrap();
    all_run(&stack, "ml", "train", 8).await;
    assert_eq!(launches(&stack).await, [8, 1, 8]);
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_that_loses_a_node_is_evicted_repaired_in_place_and_runs_again() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), 20, "1s").await else { return };
    submit(&stack.admin().unwrap(), "ml", lasting_job("train", 8)).await;
    let before = all_run(&stack, "ml", "train", 8).await;
    let epoch = phase(&stack, "ml", "train", "Bound").await.status.unwrap().epoch;
    let victim = live(&stack).await.into_iter().next().unwrap();
    let survivors: BTreeSet<String> = live(&stack).await.into_iter().filter(|id| *id != victim).collect();

    let kill = json!({"instanceIds": [victim], "reason": "Server.InternalError"});
    stack.sim_post("/_sim/terminate", &kill).await.unwrap();

    phase(&stack, "ml", "train", "Degraded").await;
    runs_again(&stack, &before).await;
    let after = phase(&stack, "ml", "train", "Bound").await.status.unwrap();
    assert!(after.epoch > epoch, "a new epoch");
    assert_eq!(launches(&stack).await, [8, 1]);
    let now = live(&stack).await;
    assert!(now.is_superset(&survivors) && now.len() == 8, "the others stayed: {now:?}");
    reported(&stack, &["MemberLost", "GangStopped"]).await;
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

/// Waits until eight other pods than `before` run, on eight nodes.
async fn runs_again(stack: &Stack, before: &[k8s_openapi::api::core::v1::Pod]) {
    let old: BTreeSet<Option<String>> = before.iter().map(ResourceExt::uid).collect();
    let old = &old;
    eventually(DEADLINE, "eight new pods to run", || async move {
        let pods = all_run(stack, "ml", "train", 8).await;
        let fresh = pods.iter().filter(|pod| !old.contains(&pod.uid())).count();
        let nodes: BTreeSet<String> = pods.iter().filter_map(node_of).collect();
        if fresh == 8 && nodes.len() == 8 { Ok(Some(())) } else { Err(format!("{fresh} new, {} nodes", nodes.len())) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interruption_notice_evicts_the_gang_and_provisions_the_replacement_before_ec2_acts() {
    let Some(mut options) = options().await else { return };
    options.scenario = Some(serde_json::to_value(Scenario::demo()).unwrap());
    options.factor = 5;
    options.config = json!({"ec2": {"interruptionQueue": "muster-interruptions"}});
    let stack = stack(options, "ml").await;
    let client = stack.admin().unwrap();
    let (class, pool) = muster::testbed::pools::p5("1s").unwrap();
    muster::testbed::pools::create(&client, &class, &pool).await.unwrap();
    submit(&client, "ml", lasting_job("train", 8)).await;
    let before = all_run(&stack, "ml", "train", 8).await;
    let victim = live(&stack).await.into_iter().next().unwrap();

    // The message comes twice, and in any order with others.
    let notice = json!({"kind": "spot", "instanceIds": [victim], "noticeSeconds": 120.0});
    stack.sim_post("/_sim/interrupt", &notice).await.unwrap();
    stack.sim_post("/_sim/interrupt", &notice).await.unwrap();

    let marked = batch_that(&stack, "the batch to be interrupted", |batch| {
        let status = batch.status.as_ref();
        status.is_some_and(|status| status.conditions.iter().any(|c| c.type_ == "Interrupted" && c.status == "True"))
    })
    .await;
    assert!(live(&stack).await.contains(&victim), "within the notice");
    drop(marked);
    runs_again(&stack, &before).await;
    assert_eq!(launches(&stack).await, [8, 1], "one replacement, however often the notice came");
    reported(&stack, &["SpotInterrupted"]).await;
    let stack_ = &stack;
    eventually(DEADLINE, "the queue to be empty", || async move {
        let queue: Value = stack_.sim("/_sim/queue").await.map_err(|error| error.to_string())?;
        let left = queue["messages"].as_array().or(queue.as_array()).map_or(0, Vec::len);
        if left == 0 { Ok(Some(())) } else { Err(queue.to_string()) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_quota_a_replacement_waits_for_the_end_of_what_it_replaces_and_nobody_else_goes() {
    let mut scenario = Scenario::demo();
    // Eight p5.48xlarge: the ninth is refused for as long as the lost one counts.
    scenario.quotas = [("p".to_owned(), 8 * 192)].into();
    scenario.delays.terminate_seconds = 400.0;
    let Some(stack) = provisioning_stack(&scenario, 20, "1s").await else { return };
    submit(&stack.admin().unwrap(), "ml", lasting_job("train", 8)).await;
    let before = all_run(&stack, "ml", "train", 8).await;
    let victim = live(&stack).await.into_iter().next().unwrap();
    let survivors: BTreeSet<String> = live(&stack).await.into_iter().filter(|id| *id != victim).collect();

    let kill = json!({"instanceIds": [victim], "reason": "Server.InternalError"});
    stack.sim_post("/_sim/terminate", &kill).await.unwrap();

    runs_again(&stack, &before).await;
    assert_eq!(launches(&stack).await, [8, 1]);
    assert!(live(&stack).await.into_iter().collect::<BTreeSet<_>>().is_superset(&survivors), "the others stayed");
    let batch = batch_that(&stack, "the batch to be in use", |batch| phase_of(batch) == "InUse").await;
    let attempts = batch.status.unwrap().attempts;
    let refused = attempts.iter().find(|attempt| attempt.outcome == "Retry");
    let why = refused.and_then(|attempt| attempt.message.as_deref());
    let counts = choices().quota == Quota::ShuttingDownCounts;
    assert_eq!(why.is_some_and(|why| why.contains("VcpuLimitExceeded")), counts, "{attempts:?}");
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_that_forbids_the_eviction_is_reported_and_keeps_no_lost_gang_from_its_restart() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), 20, "1s").await else { return };
    let client = stack.admin().unwrap();
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "train"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"batch.kubernetes.io/job-name": "train"}}},
    }))
    .unwrap();
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), "ml");
    budgets.create(&PostParams::default(), &budget).await.unwrap();
    submit(&client, "ml", lasting_job("train", 8)).await;
    let before = all_run(&stack, "ml", "train", 8).await;
    phase(&stack, "ml", "train", "Bound").await;
    let victim = live(&stack).await.into_iter().next().unwrap();

    let kill = json!({"instanceIds": [victim], "reason": "Server.InternalError"});
    stack.sim_post("/_sim/terminate", &kill).await.unwrap();

    runs_again(&stack, &before).await;
    assert_eq!(launches(&stack).await, [8, 1]);
    reported(&stack, &["EvictionForbidden"]).await;
    let cost = phase(&stack, "ml", "train", "Bound").await.status.unwrap().cost.unwrap();
    assert_eq!(cost.per_hour, "440.32", "eight times p5.48xlarge");
    assert!(cost.stranded != "0.00" && cost.batches.len() == 1, "joining and the repair were paid for: {cost:?}");
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    crate::cloud::no_batch_is_partial(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_ours_without_a_machine_is_deleted_and_one_of_others_stays() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), FACTOR, "1s").await else { return };
    let node = |name: &str, ours: bool| {
        let node = muster::testbed::nodes::TestNode::new(name).provider_id(format!("aws:///us-east-1a/i-0{name}"));
        if ours { node.label(keys::BATCH, "00000000-0000-0000-0000-000000000000") } else { node }.build()
    };
    stack.create_nodes([node("ours", true), node("theirs", false)]).await.unwrap();
    let nodes = &Api::<Node>::all(stack.admin().unwrap());
    eventually(DEADLINE, "our node to be deleted", || async move {
        let left = nodes.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let left: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
        if left == ["theirs"] { Ok(Some(())) } else { Err(format!("{left:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    no_errors(&stack);
}
