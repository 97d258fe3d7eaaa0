//! What every release must get through on the side of EC2, one by one: calls that come through late, answers that hide
//! what they mean, limits, and messages out of order. After each of them all invariants hold.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;

use jiff::SignedDuration;
use kube::{Api, ResourceExt};
use muster::testbed::{Stack, eventually, pools};
use muster_api::crd::{NodeBatch, NodePool};
use muster_ec2_sim::choices::Choices;
use muster_ec2_sim::scenario::{GroupSpec, Strategy};
use muster_ec2_sim::{Fault, FaultKind, Scenario};
use serde_json::{Value, json};

use crate::cloud::{
    batch_that, batches, clock, delete_job, everything_is_terminated, gang_job, goes_wrong, impatient, instances,
    invariants_hold, journal, lasting_job, launched_fleets, live, no_batch_is_partial, no_instance_is_left, phase_of,
    provisioning_stack, zone_of, zones,
};
use crate::support::{DEADLINE, all_run, choices, no_errors, options, runs, says, stack, submit};
use crate::ways::{capacity_types, reservation, stack_with};

/// EC2's minutes pass in a second.
const FACTOR: u32 = 60;

/// A call for the first zone that EC2 cannot serve any more, from the `skip`-th on.
fn no_capacity_in_a(skip: u32) -> Fault {
    Fault { zone: Some("us-east-1a".to_owned()), skip, ..Fault::of(FaultKind::InsufficientCapacity).on("CreateFleet") }
}

fn of<'a>(journal: &'a [Value], operation: &str) -> Vec<&'a Value> {
    journal.iter().filter(|entry| entry["operation"] == operation).collect()
}

/// The pool may provision: what resolving its class needs is over.
async fn pool_is_ready(stack: &Stack) {
    let pools = &Api::<NodePool>::all(stack.admin().unwrap());
    eventually(DEADLINE, "the pool to be ready", || async move {
        let status = pools.get("h100").await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        let ready = status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
        if ready { Ok(Some(())) } else { Err(format!("{:?}", status.conditions)) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

/// The end of every scenario: the gang's Job goes, and with it all that was provisioned.
async fn ends_well(stack: &Stack, job: &str) {
    no_batch_is_partial(stack).await;
    delete_job(stack, job).await;
    everything_is_terminated(stack).await;
    no_errors(stack);
}

/// The first call hangs somewhere for `seconds`, or until a newer launch of the batch. Asked again under its token the zone
/// has nothing, so another zone serves. The answer is the entry of the journal with which the call came through at last.
async fn a_call_hangs(stack: &Stack, seconds: Option<f64>) -> Value {
    goes_wrong(stack, &Fault::of(FaultKind::HeldBack { seconds }).on("CreateFleet").times(1)).await;
    let refused = FaultKind::Error {
        status: 500,
        code: "InsufficientInstanceCapacity".to_owned(),
        message: "We currently do not have sufficient p5.48xlarge capacity".to_owned(),
    };
    goes_wrong(stack, &Fault { kind: refused, ..no_capacity_in_a(1) }).await;
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;

    all_run(stack, "ml", "train", 8).await;
    eventually(DEADLINE, "the call that hung to come through, and nothing of it to be left", || async move {
        let journal = journal(stack, 0).await;
        let late = journal.into_iter().find(|entry| entry["held"].is_number());
        let live = live(stack).await;
        let of_nobody = late.iter().flat_map(instances).filter(|id| live.contains(*id)).count();
        if live.len() == 8 && (of_nobody == 0 || of_nobody == 8) && late.is_some() {
            return Ok(late);
        }
        Err(format!("{} live, {late:?}", live.len()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_launch_that_comes_through_after_a_newer_one_finds_its_template_gone() {
    let Some(stack) = provisioning_stack(&zones([8, 8, 8]), FACTOR, "1s").await else { return };

    let late = a_call_hangs(&stack, None).await;

    assert_eq!(late["code"], "InvalidLaunchTemplateId.NotFound", "{late}");
    let journal = journal(&stack, 0).await;
    assert_eq!(launched_fleets(&journal).iter().map(|fleet| zone_of(fleet)).collect::<Vec<_>>(), [Some('b')]);
    ends_well(&stack, "train").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_batch_cannot_get_past_is_stated_on_it() {
    let Some(stack) = provisioning_stack(&zones([7, 8, 8]), FACTOR, "1s").await else { return };
    pool_is_ready(&stack).await;
    let failing = FaultKind::Error { status: 500, code: "InternalError".to_owned(), message: String::new() };
    goes_wrong(&stack, &Fault::of(failing).on("DeleteLaunchTemplate")).await;

    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;

    batch_that(&stack, "the batch to say what fails", |batch| {
        let stated = batch.status.as_ref().and_then(|status| status.message.as_deref());
        stated.is_some_and(|stated| {
            stated.contains("keeps failing") && stated.contains("DeleteLaunchTemplate: InternalError")
        })
    })
    .await;
    stack.sim_calm().await.unwrap();
    all_run(&stack, "ml", "train", 8).await;
    ends_well(&stack, "train").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_launch_that_comes_through_when_it_was_given_up_leaves_no_instance_behind() {
    let Some(stack) = provisioning_stack(&zones([8, 8, 8]), FACTOR, "1s").await else { return };
    pool_is_ready(&stack).await;
    // So long that it is mostly given up by then, while the template that protects from it is still there.
    let failing = FaultKind::Error { status: 500, code: "InternalError".to_owned(), message: String::new() };
    goes_wrong(&stack, &Fault::of(failing).on("DeleteLaunchTemplate").times(4)).await;

    a_call_hangs(&stack, Some(110.0)).await;

    ends_well(&stack, "train").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_throttle_inside_a_good_answer_is_no_lack_of_capacity() {
    let Some(stack) = provisioning_stack(&zones([8, 8, 8]), FACTOR, "1s").await else { return };
    let item =
        FaultKind::ErrorItem { code: "RequestLimitExceeded".to_owned(), message: "Request limit exceeded.".to_owned() };
    goes_wrong(&stack, &Fault::of(item).on("CreateFleet").times(2)).await;
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;

    all_run(&stack, "ml", "train", 8).await;

    let journal = journal(&stack, 0).await;
    let asked: Vec<(Option<char>, usize)> =
        of(&journal, "CreateFleet").into_iter().map(|fleet| (zone_of(fleet), instances(fleet).len())).collect();
    if choices() == Choices::default() {
        assert_eq!(asked, [(Some('a'), 0), (Some('a'), 0), (Some('a'), 8)], "the same zone, and no other");
    } else {
        // Where a token answers for good what it answered once, that zone is lost after all.
        assert_eq!(asked[..2], [(Some('a'), 0), (Some('a'), 0)], "the same zone once more");
        assert_eq!(launched_fleets(&journal).len(), 1);
    }
    ends_well(&stack, "train").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_template_and_a_group_that_ec2_does_not_show_yet_are_waited_for() {
    // EC2 has five minutes to show what it made: fifteen seconds here.
    let Some(stack) = provisioning_stack(&zones([8, 8, 8]), 20, "1s").await else { return };
    for operation in ["CreateLaunchTemplate", "CreatePlacementGroup"] {
        goes_wrong(&stack, &Fault::of(FaultKind::Invisible { seconds: 60.0 }).on(operation)).await;
    }
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;

    all_run(&stack, "ml", "train", 8).await;

    let journal = journal(&stack, 0).await;
    let fleets = launched_fleets(&journal);
    assert_eq!(
        fleets.iter().map(|fleet| zone_of(fleet)).collect::<Vec<_>>(),
        [Some('a')],
        "one launch, where it was meant"
    );
    let groups: BTreeSet<String> =
        of(&journal, "CreatePlacementGroup").iter().map(|call| call["parameters"]["GroupName"].to_string()).collect();
    assert_eq!(groups.len(), 1, "and no second group for it: {groups:?}");
    stack.sim_calm().await.unwrap();
    ends_well(&stack, "train").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_dies_at_once_and_cannot_be_replaced_takes_the_whole_launch_to_the_next_zone() {
    let Some(stack) = provisioning_stack(&zones([8, 8, 8]), FACTOR, "1s").await else { return };
    impatient(&stack).await;
    let dies = FaultKind::Dies { instances: 1, after_seconds: 0.0, reason: "Server.InternalError".to_owned() };
    goes_wrong(&stack, &Fault::of(dies).on("CreateFleet").times(1)).await;
    goes_wrong(&stack, &no_capacity_in_a(1)).await;
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;

    all_run(&stack, "ml", "train", 8).await;

    let journal = journal(&stack, 0).await;
    let fleets: Vec<(Option<char>, usize)> =
        launched_fleets(&journal).into_iter().map(|fleet| (zone_of(fleet), instances(fleet).len())).collect();
    assert_eq!(fleets, [(Some('a'), 8), (Some('b'), 8)], "whole, never in part");
    let alone = of(&journal, "CreateFleet").into_iter().filter(|fleet| {
        zone_of(fleet) == Some('a') && fleet["parameters"]["TargetCapacitySpecification.TotalTargetCapacity"] == "1"
    });
    assert!(alone.count() > 0, "a replacement was asked for first");
    ends_well(&stack, "train").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_full_reservation_the_lost_node_makes_capacity_for_its_replacement() {
    let mut scenario = Scenario::demo();
    scenario.reservations = vec![reservation("cr-00000000000000001", None, 4)];
    let class = json!({"capacityReservationSelectorTerms": [{"tags": {"team": "ml"}}]});
    let pool = json!({"template": capacity_types(&["reserved"]), "placement": {"placementGroup": "none"}});
    let Some(stack) = stack_with(&scenario, &class, &pool).await else { return };
    // It runs, so EC2 bills it and its host is taken, and it never becomes a node.
    let absent = FaultKind::SlowRegistration { instances: Some(1), seconds: None };
    goes_wrong(&stack, &Fault::of(absent).on("RunInstances").times(1)).await;
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 4)).await;

    all_run(&stack, "ml", "train", 4).await;

    let journal = journal(&stack, 0).await;
    let made = |call: &&Value| call["replayed"] == false && !instances(call).is_empty();
    let runs: Vec<&Value> = of(&journal, "RunInstances").into_iter().filter(made).collect();
    assert_eq!(runs.iter().map(|call| instances(call).len()).collect::<Vec<_>>(), [4, 1]);
    let target = "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId";
    assert!(runs.iter().all(|call| call["parameters"][target] == "cr-00000000000000001"), "never in open capacity");
    let ended = of(&journal, "TerminateInstances");
    assert!(ended[0]["number"].as_u64() < runs[1]["number"].as_u64(), "there was no fifth host");
    assert_eq!(instances(ended[0]).len(), 1);
    invariants_hold(&stack).await;
    ends_well(&stack, "train").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_batches_in_one_group_the_first_to_go_leaves_the_other_its_group() {
    let mut scenario = Scenario::demo();
    scenario.placement_groups.push(GroupSpec {
        name: "theirs".to_owned(),
        strategy: Strategy::Cluster,
        owner: None,
        tags: [].into(),
    });
    scenario.reservations = vec![reservation("cr-00000000000000002", Some("theirs"), 8)];
    let class = json!({"capacityReservationSelectorTerms": [{"tags": {"team": "ml"}}]});
    let pool = json!({"template": capacity_types(&["reserved"]), "placement": {"placementGroup": "preferred"}});
    let Some(stack) = stack_with(&scenario, &class, &pool).await else { return };
    let client = stack.admin().unwrap();
    for name in ["first", "second"] {
        submit(&client, "ml", gang_job(name, 4)).await;
        all_run(&stack, "ml", name, 4).await;
    }
    let groups: Vec<Value> = stack.sim("/_sim/instances").await.unwrap();
    assert!(groups.iter().all(|instance| instance["placementGroup"] == "theirs") && groups.len() == 8, "{groups:?}");

    delete_job(&stack, "first").await;

    let seen = &stack;
    eventually(DEADLINE, "the first batch to be gone", || async move {
        let left: Vec<String> =
            batches(seen).await.values().filter_map(|batch| Some(batch.spec.gang_ref.as_ref()?.name.clone())).collect();
        if left.len() == 1 && left[0].starts_with("second") { Ok(Some(())) } else { Err(format!("{left:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    assert_eq!(live(&stack).await.len(), 4);
    all_run(&stack, "ml", "second", 4).await;
    let deleted = of(&journal(&stack, 0).await, "DeletePlacementGroup").len();
    assert_eq!(deleted, 0, "it is not ours to delete");
    invariants_hold(&stack).await;
    delete_job(&stack, "second").await;
    no_instance_is_left(&stack).await;
    let state: Value = stack.sim("/_sim/state").await.unwrap();
    assert_eq!(state["placementGroups"].as_array().map(Vec::len), Some(1), "the group of others stays");
    invariants_hold(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subnet_without_addresses_for_the_whole_gang_is_excluded() {
    let mut scenario = zones([8, 8, 8]);
    scenario.zones[0].subnets[0].free_addresses = Some(5);
    let Some(stack) = provisioning_stack(&scenario, FACTOR, "1s").await else { return };
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;

    all_run(&stack, "ml", "train", 8).await;

    let journal = journal(&stack, 0).await;
    let fleets = launched_fleets(&journal);
    assert_eq!(
        fleets.iter().map(|fleet| (zone_of(fleet), instances(fleet).len())).collect::<Vec<_>>(),
        [(Some('b'), 8)]
    );
    let batch = batch_that(&stack, "the batch in use", |batch| phase_of(batch) == "InUse").await;
    let left: Vec<(String, String)> =
        batch.status.unwrap().excluded.into_iter().map(|left| (left.what, left.why)).collect();
    let reported = ("h100 p5.48xlarge on-demand us-east-1a".to_owned(), "8 addresses needed, 5 free".to_owned());
    assert!(left.contains(&reported), "{left:?}");
    ends_well(&stack, "train").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_limit_of_groups_a_gang_that_needs_one_waits_and_says_so() {
    let Some(stack) = provisioning_stack(&zones([8, 8, 8]), FACTOR, "1s").await else { return };
    let limit =
        FaultKind::Error { status: 400, code: "PlacementGroupLimitExceeded".to_owned(), message: String::new() };
    goes_wrong(&stack, &Fault::of(limit).on("CreatePlacementGroup")).await;
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;
    says(&stack, "ml", "train", "placement group").await;
    assert!(
        of(&journal(&stack, 0).await, "CreateFleet").is_empty(),
        "nothing is provisioned without the group it needs"
    );

    stack.sim_calm().await.unwrap();

    all_run(&stack, "ml", "train", 8).await;
    assert_eq!(launched_fleets(&journal(&stack, 0).await).len(), 1);
    ends_well(&stack, "train").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_limit_of_groups_a_gang_that_would_like_one_starts_without() {
    let pool = json!({"placement": {"placementGroup": "preferred"}});
    let Some(stack) = stack_with(&zones([8, 8, 8]), &json!({}), &pool).await else { return };
    let limit =
        FaultKind::Error { status: 400, code: "PlacementGroupLimitExceeded".to_owned(), message: String::new() };
    goes_wrong(&stack, &Fault::of(limit).on("CreatePlacementGroup")).await;
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;

    all_run(&stack, "ml", "train", 8).await;

    let live: Vec<Value> = stack.sim("/_sim/instances").await.unwrap();
    assert!(live.len() == 8 && live.iter().all(|instance| instance["placementGroup"].is_null()), "{live:?}");
    ends_well(&stack, "train").await;
}

fn interrupted(batch: &NodeBatch) -> bool {
    let conditions = batch.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| condition.type_ == "Interrupted" && condition.status == "True")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_come_twice_and_in_the_wrong_order_replace_a_node_once() {
    let Some(mut options) = options().await else { return };
    options.scenario = Some(serde_json::to_value(Scenario::demo()).unwrap());
    options.factor = 20;
    options.config = json!({"ec2": {"interruptionQueue": "muster-interruptions"}});
    let stack = stack(options, "ml").await;
    let client = stack.admin().unwrap();
    let (class, pool) = pools::p5("1s").unwrap();
    pools::create(&client, &class, &pool).await.unwrap();
    submit(&client, "ml", lasting_job("train", 8)).await;
    let before: BTreeSet<Option<String>> =
        all_run(&stack, "ml", "train", 8).await.iter().map(ResourceExt::uid).collect();
    // Everything is reported three times; the warning comes when all is over.
    goes_wrong(&stack, &Fault::of(FaultKind::EventRepeated { copies: 3 }).on("StateChange")).await;
    goes_wrong(&stack, &Fault::of(FaultKind::EventLate { seconds: 240.0 }).on("SpotInterruption")).await;
    goes_wrong(&stack, &Fault::of(FaultKind::EventRepeated { copies: 3 }).on("SpotInterruption")).await;
    let victim = live(&stack).await.into_iter().next().unwrap();
    let notice = json!({"kind": "spot", "instanceIds": [victim], "noticeSeconds": 60.0});

    stack.sim_post("/_sim/interrupt", &notice).await.unwrap();

    let (seen, old, victim) = (&stack, &before, &victim);
    eventually(DEADLINE, "eight new pods to run and every message to be read", || async move {
        let pods = all_run(seen, "ml", "train", 8).await;
        let fresh = pods.iter().filter(|pod| runs(pod) && !old.contains(&pod.uid())).count();
        let queue: Value = seen.sim("/_sim/queue").await.map_err(|error| error.to_string())?;
        let left = queue["messages"].as_array().or(queue.as_array()).map_or(0, Vec::len);
        let gone = !live(seen).await.contains(victim);
        if fresh == 8 && left == 0 && gone { Ok(Some(())) } else { Err(format!("{fresh} new, {queue}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    let settled = running(&stack).await;
    let start = clock(&stack).await;
    eventually(DEADLINE, "the late warning to have come and gone", || async move {
        let over = clock(seen).await.duration_since(start) > SignedDuration::from_secs(300);
        let queue: Value = seen.sim("/_sim/queue").await.map_err(|error| error.to_string())?;
        let left = queue["messages"].as_array().or(queue.as_array()).map_or(0, Vec::len);
        Ok::<_, String>((over && left == 0).then_some(()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    let sizes: Vec<usize> =
        launched_fleets(&journal(&stack, 0).await).iter().map(|fleet| instances(fleet).len()).collect();
    assert_eq!(sizes, [8, 1], "one replacement, whatever came how often and when");
    assert_eq!(running(&stack).await, settled, "nobody was evicted for a warning about what is gone");
    batch_that(&stack, "the batch not to be interrupted", |batch| !interrupted(batch)).await;
    ends_well(&stack, "train").await;
}

/// The eight pods that run; those that were evicted may still be there.
async fn running(stack: &Stack) -> BTreeSet<Option<String>> {
    all_run(stack, "ml", "train", 8).await.iter().filter(|pod| runs(pod)).map(ResourceExt::uid).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_that_end_slowly_keep_their_batch_and_group_until_they_are_gone() {
    let Some(stack) = provisioning_stack(&zones([8, 8, 8]), FACTOR, "1s").await else { return };
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;
    all_run(&stack, "ml", "train", 8).await;
    goes_wrong(&stack, &Fault::of(FaultKind::SlowTerminate { seconds: 900.0 })).await;

    delete_job(&stack, "train").await;

    batch_that(&stack, "the batch to be terminating", |batch| phase_of(batch) == "Terminating").await;
    let state: Value = stack.sim("/_sim/state").await.unwrap();
    assert_eq!(state["placementGroups"].as_array().map(Vec::len), Some(1), "its instances are still in it");
    everything_is_terminated(&stack).await;
    let journal = journal(&stack, 0).await;
    let deleted = |call: &&&Value| call["status"] == 200;
    assert_eq!(of(&journal, "DeletePlacementGroup").iter().filter(deleted).count(), 1);
    assert_eq!(launched_fleets(&journal).len(), 1);
    no_errors(&stack);
}
