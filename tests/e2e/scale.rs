//! Large launches and many gangs: counted in calls and in their order, never in seconds.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking, its helpers too")]

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::PostParams;
use muster::testbed::workloads::TestJob;
use muster::testbed::{Component, Stack, eventually, pools};
use muster_api::crd::{EC2NodeClass, NodePool};
use muster_ec2_sim::scenario::Delays;
use muster_ec2_sim::{MarketType, Scenario};
use serde_json::{Value, json};

use crate::cloud::{
    batch_that, batches, delete_job, everything_is_terminated, gang_job, instances, invariants_hold, journal,
    launched_fleets, no_batch_is_partial, phase_of,
};
use crate::support::{DEADLINE, all_run, gangs, no_errors, node_of, options, phase, stack, submit};

/// Longest wait for a hundred batches, whose calls EC2's buckets let through one by one.
const LONG: std::time::Duration = std::time::Duration::from_secs(180);

/// Of the cloud controller, which draws on the same bucket, or ours.
fn ours(entry: &&Value) -> bool {
    !entry["userAgent"].as_str().unwrap_or_default().contains("cloud-controller")
}

fn calls<'a>(entries: &'a [Value], operation: &'a str) -> impl Iterator<Item = &'a Value> {
    entries.iter().filter(ours).filter(move |entry| entry["operation"] == operation)
}

/// When `muster serve` first logged a line with all of these words after `from`.
fn logged(stack: &Stack, words: &[&str], from: Timestamp) -> Option<Timestamp> {
    let log = std::fs::read_to_string(stack.cluster.log(Component::Muster(0))).unwrap_or_default();
    let of = |line: &str| line.split_whitespace().next()?.parse::<Timestamp>().ok();
    log.lines().filter(|line| words.iter().all(|word| line.contains(word))).filter_map(of).find(|at| *at >= from)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_of_64_is_provisioned_in_one_call_on_one_spine_and_its_topology_is_read_at_most_twice() {
    let Some(mut options) = options().await else { return };
    // Two spines with capacity for all; in real time, so that what Muster takes shows beside the boot.
    let mut scenario = Scenario::default().with_pool("p5.48xlarge", "us-east-1a", MarketType::OnDemand, 2, 8, 8);
    scenario.throttling = false;
    scenario.delays = Delays {
        boot_seconds: 5.0,
        boot_jitter_seconds: 2.0,
        registration_seconds: 1.0,
        ready_seconds: 1.0,
        terminate_seconds: 1.0,
        ..Delays::default()
    };
    options.scenario = Some(serde_json::to_value(&scenario).unwrap());
    options.factor = 1;
    let stack = stack(options, "ml").await;
    let (class, pool) = pools::p5("1s").unwrap();
    pools::create(&stack.admin().unwrap(), &class, &pool).await.unwrap();
    eventually(DEADLINE, "the pool to be ready", || async {
        let pool = Api::<NodePool>::all(stack.admin().unwrap()).get("h100").await.map_err(|error| error.to_string())?;
        let conditions = pool.status.unwrap_or_default().conditions;
        Ok::<_, String>(muster_api::crd::is_true(&conditions, "Ready").then_some(()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    let submitted = Timestamp::now();
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 64)).await;

    let pods = all_run(&stack, "ml", "train", 64).await;

    assert_eq!(pods.iter().filter_map(node_of).collect::<BTreeSet<_>>().len(), 64);
    let entries = journal(&stack, 0).await;
    let fleets = launched_fleets(&entries);
    assert_eq!(fleets.iter().map(|fleet| instances(fleet).len()).collect::<Vec<_>>(), [64], "one call");
    assert_eq!(calls(&entries, "CreateFleet").count(), 1, "and none in vain");
    assert_eq!(calls(&entries, "TerminateInstances").count(), 0);
    let topology = calls(&entries, "DescribeInstanceTopology").count();
    assert!((1..=2).contains(&topology), "{topology} readings of the topology");
    let live: Vec<Value> = stack.sim("/_sim/instances").await.unwrap();
    let spines: BTreeSet<String> = live.iter().map(|instance| instance["networkNodes"][1].to_string()).collect();
    assert_eq!(spines.len(), 1, "one spine: {spines:?}");

    phase(&stack, "ml", "train", "Bound").await;
    let batch = batch_that(&stack, "the batch to be in use", |batch| phase_of(batch) == "InUse").await;
    breakdown(&stack, submitted, fleets[0], &live, &batch.status.unwrap());
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in entries.iter().filter(ours) {
        *counts.entry(entry["operation"].as_str().unwrap_or_default()).or_default() += 1;
    }
    eprintln!("calls to AWS until all ran: {counts:?}");
    no_batch_is_partial(&stack).await;
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

/// Prints how long each step took, and what of it is not the machines' boot.
fn breakdown(
    stack: &Stack,
    submitted: Timestamp,
    fleet: &Value,
    live: &[Value],
    status: &muster_api::crd::NodeBatchStatus,
) {
    let time = |value: &Value| value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let sent = time(&fleet["at"]);
    let running = live.iter().filter_map(|instance| time(&instance["runningTime"])).max();
    let steps = [
        ("recognised", logged(stack, &["recognised", "gang=ml/train"], submitted)),
        ("batch written", logged(stack, &["batch created"], submitted)),
        ("CreateFleet answered", sent),
        ("64 instances written down", logged(stack, &["phase=\"Launched\""], submitted)),
        ("last instance runs (EC2)", running),
        ("seen to run, topology read", logged(stack, &["phase=\"Joining\""], submitted)),
        ("last node registered", status.instances.iter().filter_map(|instance| instance.registered).max()),
        ("all ready", logged(stack, &["phase=\"Ready\""], submitted)),
        ("released", logged(stack, &["gang=ml/train", "phase=\"Released\""], submitted)),
        ("bound", logged(stack, &["gang=ml/train", "phase=\"Bound\""], submitted)),
    ];
    let mut before = submitted;
    for (name, at) in steps {
        let Some(at) = at else {
            eprintln!("{name:<28} not seen");
            continue;
        };
        eprintln!(
            "{name:<28} {:>7} ms after the Job, {:>6} ms after the step before",
            at.duration_since(submitted).as_millis(),
            at.duration_since(before).as_millis()
        );
        before = at;
    }
    if let (Some(sent), Some(running), (_, Some(bound))) = (sent, running, steps[9]) {
        let boot = running.duration_since(sent).saturating_add(SignedDuration::from_secs(2));
        let whole = bound.duration_since(submitted);
        eprintln!(
            "from the Job to bound {} ms, of which the machines' boot and registration {} ms and the rest {} ms",
            whole.as_millis(),
            boot.as_millis(),
            whole.saturating_sub(boot).as_millis()
        );
    }
}

/// A gang of whole nodes of one type.
fn job_of(name: &str, members: u16, instance_type: &str) -> k8s_openapi::api::batch::v1::Job {
    TestJob::new(name, members)
        .gpus(8)
        .pod_annotation("muster.dev/gang", name)
        .on("node.kubernetes.io/instance-type", instance_type)
        .build()
}

/// How many turns of a rate limiter others were given while each call for a NodePool waited, as the log has it.
fn ahead(stack: &Stack, pool: &str) -> Vec<u64> {
    let log = std::fs::read_to_string(stack.cluster.log(Component::Muster(0))).unwrap_or_default();
    let of_pool = format!("lane=\"{pool}\"");
    let turns = log.lines().filter(|line| line.contains("its turn has come") && line.contains("bucket=\"launch\""));
    turns
        .filter(|line| line.contains(&of_pool))
        .filter_map(|line| line.split("ahead=").nth(1)?.trim().parse().ok())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_gangs_that_wait_for_one_pool_hold_up_no_gang_of_another() {
    const WAITING: usize = 100;
    let Some(mut options) = options().await else { return };
    // p5en is offered and there is none; p5 there is.
    let mut scenario = Scenario::default()
        .with_pool("p5en.48xlarge", "us-east-1a", MarketType::OnDemand, 1, 1, 1)
        .with_pool("p5.48xlarge", "us-east-1b", MarketType::OnDemand, 1, 1, 8);
    // Groups take so long that every gang has begun before the first answer that there is no capacity.
    scenario.delays.placement_group_seconds = 45.0;
    options.scenario = Some(serde_json::to_value(&scenario).unwrap());
    options.factor = 3;
    // So few that they queue on any machine: a call a second.
    options.config = json!({
        "ec2": {"rateLimits": {"launch": {"burst": 1, "perSecond": 1}}},
        "log": {"filter": "info,kube=warn,muster::cloud::limits=trace"},
    });
    let stack = stack(options, "ml").await;
    let client = stack.admin().unwrap();
    let (class, pool) = pools::p5("1s").unwrap();
    pools::create(&client, &class, &pool).await.unwrap();
    let (mut other_class, mut other_pool) = (json!(class), json!(pool));
    other_class["metadata"]["name"] = json!("dry");
    other_pool["metadata"]["name"] = json!("dry");
    other_pool["spec"]["limits"] = json!({"nodes": 1000});
    other_pool["spec"]["template"]["spec"]["nodeClassRef"]["name"] = json!("dry");
    other_pool["spec"]["template"]["spec"]["requirements"][0]["values"] = json!(["p5en"]);
    let other_class: EC2NodeClass = serde_json::from_value(other_class).unwrap();
    let other_pool: NodePool = serde_json::from_value(other_pool).unwrap();
    let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(client.clone(), "ml");
    for number in 0..WAITING {
        let name = format!("dry{number}");
        jobs.create(&PostParams::default(), &job_of(&name, 2, "p5en.48xlarge")).await.unwrap();
    }
    eventually(LONG, "every one of these gangs to be planned", || async {
        let planned = gangs(&client, "ml").await.into_iter().filter_map(|gang| gang.status);
        let refused = planned.filter(|status| status.waiting.is_some()).count();
        if refused == WAITING { Ok(Some(())) } else { Err(format!("{refused} have a reason to wait")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    // The pool comes last, so that one pass begins with all of them: after the first answer of EC2 a gang that comes
    // later knows that there is no capacity, and asks for nothing.
    pools::create(&client, &other_class, &other_pool).await.unwrap();
    eventually(LONG, "a queue of these gangs' calls", || async {
        let attempts = batches(&stack).await.into_values().filter_map(|batch| batch.status);
        let begun = attempts.filter(|status| status.attempt > 0).count();
        if begun > WAITING / 2 { Ok(Some(())) } else { Err(format!("{begun} have begun")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));

    submit(&client, "ml", job_of("train", 4, "p5.48xlarge")).await;
    all_run(&stack, "ml", "train", 4).await;

    let (own, others) = (ahead(&stack, "h100"), ahead(&stack, "dry"));
    eprintln!(
        "turns given to others while a call of the one pool waited: {own:?}; of the other, at most {:?}",
        others.iter().max()
    );
    assert!(own.len() >= 3 && others.iter().max() > Some(&20), "a group, a template and a launch, beside a long queue");
    // Two other lanes, one of them of calls for no pool: in turn, each goes first once. Without that it is the whole queue.
    assert!(own.iter().all(|ahead| *ahead <= 2), "{own:?} turns went before calls of the gang that had capacity");
    let all = journal(&stack, 0).await;
    let worst = busiest_minute(&all);
    eprintln!("most calls that change something in one minute of EC2's time, {WAITING} gangs waiting: {worst}");
    // One launching call a second, and clean-up beside it.
    assert!(worst <= 1 + 60 + 25 + 2 * 60, "{worst} calls in a minute");
    // The one topology reading a second is shared with the cloud controller, and may be refused.
    let throttled = |entry: &&Value| entry["code"] == "RequestLimitExceeded" && changes(entry);
    assert_eq!(all.iter().find(throttled), None, "EC2 never had to throttle a launch");
    invariants_hold(&stack).await;
    no_errors(&stack);
}

fn changes(entry: &Value) -> bool {
    let operation = entry["operation"].as_str().unwrap_or_default();
    ["Create", "Delete", "Run", "Terminate"].iter().any(|start| operation.starts_with(start))
}

/// The most calls that change something within one minute of EC2's time.
fn busiest_minute(entries: &[Value]) -> usize {
    let times: Vec<Timestamp> =
        entries.iter().filter(|entry| changes(entry)).filter_map(|entry| entry["at"].as_str()?.parse().ok()).collect();
    let minute = SignedDuration::from_mins(1);
    let within =
        |start: &Timestamp| times.iter().filter(|at| *at >= start && at.duration_since(*start) < minute).count();
    times.iter().map(within).max().unwrap_or(0)
}
