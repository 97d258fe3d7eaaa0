//! `muster serve` killed before and after its external calls: whatever was done and not written down is found again,
//! and nothing is done twice.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use muster::step::Step;
use muster::testbed::workloads::{TestJob, TestPod};
use muster::testbed::{Component, Stack, eventually};
use muster_ec2_sim::{Fault, FaultKind, Scenario};
use serde_json::json;

use crate::cloud::{
    delete_job, everything_is_terminated, gang_job, goes_wrong, instances, journal, launched_fleets, provisioning_stack,
};
use crate::support::{
    DEADLINE, all_run, gangs, leaves, members, no_errors, node_of, options, phase, runs, stack, submit,
};
use crate::ways;

/// A place to die: the n-th time a step is reached, before or after its call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) step: Step,
    when: &'static str,
    count: u32,
}

pub(crate) const fn before(step: Step, count: u32) -> Point {
    Point { step, when: "before", count }
}

pub(crate) const fn after(step: Step, count: u32) -> Point {
    Point { step, when: "after", count }
}

/// On the way of a gang of eight to existing nodes.
const PLACING: [Point; 13] = [
    before(Step::CreateGang, 1),
    after(Step::CreateGang, 1),
    // The first status: the plan.
    before(Step::WriteGang, 1),
    after(Step::WriteGang, 1),
    // The second: the release.
    after(Step::WriteGang, 2),
    after(Step::NominatePod, 4),
    after(Step::ReleasePod, 4),
    // All stand at the barrier.
    before(Step::CommitGang, 1),
    after(Step::CommitGang, 1),
    before(Step::BindPod, 1),
    after(Step::BindPod, 4),
    after(Step::BindPod, 8),
    // The last: `Bound`.
    before(Step::WriteGang, 3),
];

/// While nodes are provisioned for a gang, and while they are terminated: one of each in one life of a batch.
const PROVISIONING: [(Point, Point); 8] = [
    (after(Step::CreateBatch, 1), before(Step::TerminateInstances, 1)),
    (after(Step::WriteBatch, 1), after(Step::TerminateInstances, 1)),
    (after(Step::CreatePlacementGroup, 1), before(Step::DeletePlacementGroup, 1)),
    (after(Step::CreateLaunchTemplate, 1), after(Step::DeletePlacementGroup, 1)),
    (before(Step::CreateFleet, 1), before(Step::DeleteLaunchTemplate, 1)),
    (after(Step::CreateFleet, 1), after(Step::DeleteLaunchTemplate, 1)),
    // The status that would name the instances is the fourth: candidate, template, parameters, outcome.
    (before(Step::WriteBatch, 4), after(Step::EditBatch, 1)),
    (after(Step::EditNode, 2), before(Step::EditBatch, 2)),
];

/// While a gang that lost a node is evicted and its node replaced.
const REPAIRING: [Point; 7] = [
    before(Step::MarkPod, 1),
    after(Step::MarkPod, 1),
    before(Step::EvictPod, 1),
    after(Step::EvictPod, 2),
    before(Step::CreateFleet, 1),
    after(Step::CreateFleet, 1),
    after(Step::WriteGang, 1),
];

/// Crash points of their own tests.
const OTHERS: [Step; 7] = [
    Step::UngatePod,
    Step::DeleteGang,
    Step::WriteStatus,
    Step::TryOut,
    Step::DeleteMessage,
    Step::RunInstances,
    Step::BookBatch,
];
/// `report-pod` writes what is true and is written again; `delete-policy` belongs to a command that is run again;
/// `delete-fleets` deletes what nobody needs, and without it there is another way to launch.
const REPEATED: [Step; 3] = [Step::ReportPod, Step::DeletePolicy, Step::DeleteFleets];

pub(crate) async fn restart(stack: &Stack, point: Option<Point>) {
    stack.kill_muster().unwrap();
    match point {
        // It may die before it is ready.
        Some(point) => {
            let armed = format!("{}:{}:{}", point.step.as_str(), point.when, point.count);
            stack.spawn_muster(&[("MUSTER_CRASH", armed.as_str())]).unwrap();
        }
        None => stack.start_muster(&[]).await.unwrap(),
    }
}

pub(crate) async fn dies(stack: &Stack, point: Point) {
    eventually(DEADLINE, format!("muster serve to die at {point:?}"), || async move {
        Ok::<_, String>(stack.cluster.exit_status(Component::Muster(0)))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

/// Waits until no gang of the namespace is left, and so no assignment.
pub(crate) async fn no_gang_is_left(stack: &Stack) {
    let client = &stack.admin().unwrap();
    eventually(DEADLINE, "no gang to be left", || async move {
        let left: Vec<String> = gangs(client, "ml").await.iter().map(ResourceExt::name_any).collect();
        if left.is_empty() { Ok(Some(())) } else { Err(format!("{left:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

#[test]
fn every_step_has_a_crash_point() {
    let covered: BTreeSet<Step> = PLACING
        .iter()
        .chain(&REPAIRING)
        .chain(PROVISIONING.iter().flat_map(|(provisioning, leaving)| [provisioning, leaving]))
        .map(|point| point.step)
        .chain(OTHERS)
        .chain(REPEATED)
        .collect();
    let missing: Vec<&str> = Step::ALL.into_iter().filter(|step| !covered.contains(step)).map(Step::as_str).collect();
    assert!(missing.is_empty(), "steps without a crash point: {missing:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_runs_whole_wherever_the_process_was_killed_on_its_way_to_the_nodes() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a", "b", "c", "d"], 2)).await.unwrap();
    let client = stack.admin().unwrap();
    for (number, point) in PLACING.into_iter().enumerate() {
        let name = format!("train{number:02}");
        restart(&stack, Some(point)).await;
        submit(&client, "ml", gang_job(&name, 8)).await;
        dies(&stack, point).await;
        let bound = members(&client, "ml", &name).await.iter().filter(|pod| node_of(pod).is_some()).count();
        let committed = matches!(point.step, Step::BindPod)
            || (point.step, point.when, point.count) == (Step::WriteGang, "before", 3);
        assert!(committed || bound == 0, "{point:?}: {bound} members bound before the commit point");

        restart(&stack, None).await;

        let pods = all_run(&stack, "ml", &name, 8).await;
        let nodes: BTreeSet<String> = pods.iter().filter_map(node_of).collect();
        assert_eq!(nodes.len(), 8, "{point:?}: a node each");
        phase(&stack, "ml", &name, "Bound").await;
        delete_job(&stack, &name).await;
        no_gang_is_left(&stack).await;
    }
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_launched_once_and_terminated_whole_wherever_the_process_was_killed() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), 40, "1s").await else { return };
    let client = stack.admin().unwrap();
    for (number, (provisioning, leaving)) in PROVISIONING.into_iter().enumerate() {
        let name = format!("train{number:02}");
        let from = journal(&stack, 0).await.len();
        restart(&stack, Some(provisioning)).await;
        submit(&client, "ml", gang_job(&name, 8)).await;
        dies(&stack, provisioning).await;

        restart(&stack, None).await;

        all_run(&stack, "ml", &name, 8).await;
        phase(&stack, "ml", &name, "Bound").await;
        let entries = journal(&stack, from).await;
        assert_eq!(launched_fleets(&entries).len(), 1, "{provisioning:?}: one launch\n{}", stack.cluster.report(60));
        let ended = entries.iter().filter(|entry| entry["operation"] == "TerminateInstances").count();
        assert_eq!(ended, 0, "{provisioning:?}: nothing was thrown away");

        restart(&stack, Some(leaving)).await;
        delete_job(&stack, &name).await;
        dies(&stack, leaving).await;
        restart(&stack, None).await;
        everything_is_terminated(&stack).await;
        no_gang_is_left(&stack).await;
    }
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_in_answer_to_a_launch_that_may_have_been_sent_before_proves_nothing() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), 40, "1s").await else { return };
    let client = stack.admin().unwrap();
    // What the first call launches is found by nobody for a while, and its answer dies with the process.
    goes_wrong(&stack, &Fault::of(FaultKind::Invisible { seconds: 60.0 }).on("CreateFleet").times(1)).await;
    let sent = after(Step::CreateFleet, 1);
    restart(&stack, Some(sent)).await;
    submit(&client, "ml", gang_job("train", 8)).await;
    dies(&stack, sent).await;
    let code = "InsufficientInstanceCapacity".to_owned();
    let refused = FaultKind::Error { code, status: 400, message: "no capacity".to_owned() };
    goes_wrong(&stack, &Fault::of(refused).on("CreateFleet").times(1)).await;

    restart(&stack, None).await;

    all_run(&stack, "ml", "train", 8).await;
    let entries = journal(&stack, 0).await;
    assert_eq!(launched_fleets(&entries).len(), 1, "the refusal was taken for the answer to the first call");
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_deleted_while_the_process_is_down_in_mid_launch_leaves_nothing() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), 40, "1s").await else { return };
    let client = stack.admin().unwrap();
    let points =
        [after(Step::CreatePlacementGroup, 1), after(Step::CreateLaunchTemplate, 1), after(Step::CreateFleet, 1)];
    for (number, point) in points.into_iter().enumerate() {
        let name = format!("train{number:02}");
        restart(&stack, Some(point)).await;
        submit(&client, "ml", gang_job(&name, 8)).await;
        dies(&stack, point).await;
        delete_job(&stack, &name).await;
        no_gang_is_left(&stack).await;

        restart(&stack, None).await;

        everything_is_terminated(&stack).await;
    }
    let journal = journal(&stack, 0).await;
    assert_eq!(launched_fleets(&journal).len(), 1, "only the fleet that was under way");
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_no_gang_and_gangs_of_no_owner_survive_a_crash() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 2)).await.unwrap();
    let client = stack.admin().unwrap();
    let pods = &Api::<Pod>::namespaced(client.clone(), "ml");
    let run = |names: BTreeSet<&'static str>| async move {
        eventually(DEADLINE, format!("{names:?} to run"), || async {
            let mut running = BTreeMap::new();
            for name in &names {
                let pod = pods.get(name).await.map_err(|error| error.to_string())?;
                running.insert(*name, runs(&pod));
            }
            if running.values().all(|runs| *runs) { Ok(Some(())) } else { Err(format!("{running:?}")) }
        })
        .await
    };

    for point in [before(Step::UngatePod, 1), after(Step::UngatePod, 1)] {
        restart(&stack, Some(point)).await;
        let gated = TestPod::new("single").gate("muster.dev/gang").build();
        pods.create(&PostParams::default(), &gated).await.unwrap();
        dies(&stack, point).await;
        restart(&stack, None).await;
        run(BTreeSet::from(["single"])).await.unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
        pods.delete("single", &DeleteParams::default().grace_period(0)).await.unwrap();
    }

    for point in [before(Step::DeleteGang, 1), after(Step::DeleteGang, 1)] {
        let names = ["pair-0", "pair-1"];
        for name in names {
            let pod = TestPod::new(name)
                .gpus(8)
                .annotation("muster.dev/gang", "pair")
                .annotation("muster.dev/gang-size", "2")
                .build();
            pods.create(&PostParams::default(), &pod).await.unwrap();
        }
        run(BTreeSet::from(names)).await.unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
        phase(&stack, "ml", "pair", "Bound").await;
        restart(&stack, Some(point)).await;
        for name in names {
            pods.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
        }
        dies(&stack, point).await;
        restart(&stack, None).await;
        no_gang_is_left(&stack).await;
    }
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_or_a_trial_that_was_under_way_is_looked_at_again_after_the_crash() {
    for point in [before(Step::WriteStatus, 1), after(Step::TryOut, 1)] {
        let Some(stack) = provisioning_stack(&Scenario::demo(), 40, "1s").await else { return };
        restart(&stack, Some(point)).await;
        submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;
        dies(&stack, point).await;
        restart(&stack, None).await;
        all_run(&stack, "ml", "train", 8).await;
        delete_job(&stack, "train").await;
        everything_is_terminated(&stack).await;
        no_errors(&stack);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_node_is_replaced_once_wherever_the_process_was_killed_meanwhile() {
    // Slow enough for the gang to be evicted before a replacement of the same name has joined.
    let Some(stack) = provisioning_stack(&Scenario::demo(), 10, "1s").await else { return };
    let client = stack.admin().unwrap();
    for (number, point) in REPAIRING.into_iter().enumerate() {
        let name = format!("train{number:02}");
        let from = journal(&stack, 0).await.len();
        restart(&stack, None).await;
        let job = TestJob::new(&name, 4).gpus(8).ignores_disruptions().pod_annotation("muster.dev/gang", &name).build();
        submit(&client, "ml", job).await;
        let before: BTreeSet<Option<String>> =
            all_run(&stack, "ml", &name, 4).await.iter().map(ResourceExt::uid).collect();
        phase(&stack, "ml", &name, "Bound").await;
        restart(&stack, Some(point)).await;
        let live: Vec<serde_json::Value> = stack.sim("/_sim/instances").await.unwrap();
        let kill = json!({"instanceIds": [live[0]["instanceId"]], "reason": "Server.InternalError"});
        stack.sim_post("/_sim/terminate", &kill).await.unwrap();
        dies(&stack, point).await;

        restart(&stack, None).await;

        let (stack_, name_, before) = (&stack, &name, &before);
        eventually(DEADLINE, format!("{point:?}: four new pods to run"), || async move {
            let pods = all_run(stack_, "ml", name_, 4).await;
            let fresh = pods.iter().filter(|pod| !before.contains(&pod.uid())).count();
            if fresh == 4 { Ok(Some(())) } else { Err(format!("{fresh} new")) }
        })
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
        let sizes: Vec<usize> =
            launched_fleets(&journal(&stack, from).await).iter().map(|fleet| instances(fleet).len()).collect();
        assert_eq!(sizes, [4, 1], "{point:?}: one replacement");
        delete_job(&stack, &name).await;
        everything_is_terminated(&stack).await;
        no_gang_is_left(&stack).await;
    }
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notice_whose_message_was_not_deleted_comes_again_and_changes_nothing() {
    for point in [before(Step::DeleteMessage, 1), after(Step::DeleteMessage, 1)] {
        let Some(mut options) = options().await else { return };
        options.scenario = Some(serde_json::to_value(Scenario::demo()).unwrap());
        options.factor = 10;
        options.config = json!({"ec2": {"interruptionQueue": "muster-interruptions"}});
        let stack = stack(options, "ml").await;
        let client = stack.admin().unwrap();
        let (class, pool) = muster::testbed::pools::p5("1s").unwrap();
        muster::testbed::pools::create(&client, &class, &pool).await.unwrap();
        let job =
            TestJob::new("train", 4).gpus(8).ignores_disruptions().pod_annotation("muster.dev/gang", "train").build();
        submit(&client, "ml", job).await;
        all_run(&stack, "ml", "train", 4).await;
        phase(&stack, "ml", "train", "Bound").await;
        restart(&stack, Some(point)).await;
        let live: Vec<serde_json::Value> = stack.sim("/_sim/instances").await.unwrap();
        let notice = json!({"kind": "spot", "instanceIds": [live[0]["instanceId"]], "noticeSeconds": 120.0});
        stack.sim_post("/_sim/interrupt", &notice).await.unwrap();
        dies(&stack, point).await;
        restart(&stack, None).await;
        let stack_ = &stack;
        eventually(DEADLINE, "one replacement to be launched", || async move {
            let entries = journal(stack_, 0).await;
            let sizes: Vec<usize> = launched_fleets(&entries).iter().map(|fleet| instances(fleet).len()).collect();
            if sizes == [4, 1] { Ok(Some(())) } else { Err(format!("{sizes:?}")) }
        })
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
        delete_job(&stack, "train").await;
        everything_is_terminated(&stack).await;
        no_errors(&stack);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_launch_into_a_reservation_is_made_once_wherever_the_process_was_killed() {
    let mut scenario = Scenario::demo();
    scenario.reservations = vec![ways::reservation("cr-00000000000000001", None, 4)];
    let class = json!({"capacityReservationSelectorTerms": [{"tags": {"team": "ml"}}]});
    let pool = json!({"template": ways::capacity_types(&["reserved"]), "placement": {"placementGroup": "none"}});
    let Some(stack) = ways::stack_with(&scenario, &class, &pool).await else { return };
    for (number, point) in [before(Step::RunInstances, 1), after(Step::RunInstances, 1)].into_iter().enumerate() {
        let name = format!("train{number:02}");
        restart(&stack, Some(point)).await;
        submit(&stack.admin().unwrap(), "ml", gang_job(&name, 4)).await;
        dies(&stack, point).await;
        restart(&stack, None).await;
        all_run(&stack, "ml", &name, 4).await;
        let live: Vec<serde_json::Value> = stack.sim("/_sim/instances").await.unwrap();
        assert_eq!(live.len(), 4, "{point:?}: one launch");
        delete_job(&stack, &name).await;
        everything_is_terminated(&stack).await;
    }
    no_errors(&stack);
}
