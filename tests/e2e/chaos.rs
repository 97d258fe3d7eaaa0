//! Seeded runs in which many things go wrong at once: nothing leaks, nothing stays partial, and everybody runs in the
//! end. `make soak` runs many seeds and prints them; `MUSTER_CHAOS_SEED` runs one again, `MUSTER_SOAK_STEPS` the crashes at
//! steps that it names, with commas between them.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use muster::step::Step;
use muster::testbed::pools;
use muster::testbed::workloads::{TestJob, TestPod};
use muster::testbed::{Component, Stack, eventually};
use muster_api::crd::Gang;
use muster_ec2_sim::{Fault, FaultKind, MarketType, Scenario};
use nix::sys::signal::Signal;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::cloud::{
    clock, delete_job, everything_is_terminated, goes_wrong, impatient, journal, launched_fleets, no_batch_is_partial,
    provisioning_stack, provisioning_stack_with, time_of,
};
use crate::recording::decided_the_same_from_recordings;
use crate::support::{gangs, members, no_errors, options, runs, stack, submit};

/// EC2's minutes pass in a second.
const FACTOR: u32 = 60;
/// EC2's minutes pass in three seconds where a test holds Muster to them: a machine that is busy for a second adds little.
const SLOWER: u32 = 20;
/// Batches at a time.
const WAVE: u16 = 20;
/// Longest wait for a wave: many gangs on a small machine.
const LONG: Duration = Duration::from_secs(240);

pub(crate) fn soaking() -> bool {
    std::env::var_os("MUSTER_SOAK").is_some()
}

/// Capacity for every gang of a wave, and for as many that are rolled back.
fn roomy() -> Scenario {
    ["us-east-1a", "us-east-1b", "us-east-1c"].into_iter().fold(Scenario::default(), |scenario, zone| {
        scenario.with_pool("p5.48xlarge", zone, MarketType::OnDemand, 2, 4, 8)
    })
}

fn random_fault(rng: &mut ChaCha8Rng) -> Fault {
    let reads = ["DescribeInstances", "DescribePlacementGroups", "DescribeLaunchTemplates"];
    let writes = [
        "CreateFleet",
        "CreateLaunchTemplate",
        "CreatePlacementGroup",
        "TerminateInstances",
        "DeletePlacementGroup",
        "DeleteLaunchTemplate",
    ];
    let any = |rng: &mut ChaCha8Rng| {
        let all: Vec<&str> = reads.into_iter().chain(writes).collect();
        all[rng.random_range(0..all.len())]
    };
    let launch = |kind| Fault::of(kind).on("CreateFleet").times(1);
    match rng.random_range(0..13) {
        0 => Fault::of(FaultKind::LostResponse).on(any(rng)).times(1),
        1 => Fault::of(FaultKind::LostAsServerError).on(any(rng)).times(1),
        2 => Fault::of(FaultKind::Throttle).on(any(rng)).times(rng.random_range(1..4)),
        3 => Fault::of(FaultKind::Delay { real_millis: rng.random_range(100..1_000) }).on(any(rng)).times(1),
        4 => launch(FaultKind::Dies {
            instances: 1,
            after_seconds: f64::from(rng.random_range(0..60_u8)),
            reason: "Server.InternalError".to_owned(),
        }),
        5 => launch(FaultKind::StuckPending { instances: Some(1) }),
        6 => launch(FaultKind::SlowRegistration { instances: Some(1), seconds: None }),
        7 => launch(FaultKind::Violating { launch: 1 }),
        8 => launch(FaultKind::InsufficientCapacity),
        9 => launch(FaultKind::Invisible { seconds: f64::from(rng.random_range(1..30_u8)) }),
        10 => launch(FaultKind::SlowBoot { instances: Some(1), seconds: f64::from(rng.random_range(10..200_u8)) }),
        11 => Fault::of(FaultKind::SlowTerminate { seconds: 60.0 }).times(1),
        _ => launch(FaultKind::LostResponse),
    }
}

/// One wave: gangs of two to three nodes, faults, deletions, kills and restarts, all from the seed.
async fn wave(stack: &Stack, seed: u64) -> Result<(), String> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let client = stack.admin().map_err(|error| error.to_string())?;
    for _ in 0..WAVE / 2 {
        goes_wrong(stack, &random_fault(&mut rng)).await;
    }
    let mut names = Vec::new();
    for number in 0..WAVE {
        let name = format!("s{seed}-{number}");
        let job = TestJob::new(&name, rng.random_range(2..4))
            .gpus(8)
            .ignores_disruptions()
            .pod_annotation("muster.dev/gang", &name)
            .build();
        submit(&client, "ml", job).await;
        names.push(name);
    }
    if rng.random_range(0..2) == 0 {
        stack.kill_muster().map_err(|error| error.to_string())?;
        stack.start_muster(&[]).await.map_err(|error| error.to_string())?;
    }
    let mut left = Vec::new();
    for name in names {
        if rng.random_range(0..5) == 0 {
            delete_job(stack, &name).await;
        } else {
            left.push(name);
        }
    }
    all_whole(stack, &left).await?;
    let live: Vec<Value> = stack.sim("/_sim/instances").await.map_err(|error| error.to_string())?;
    if let Some(victim) = live.get(rng.random_range(0..live.len().max(1))) {
        let kill = json!({"instanceIds": [victim["instanceId"]], "reason": "Server.InternalError"});
        stack.sim_post("/_sim/terminate", &kill).await.map_err(|error| error.to_string())?;
    }
    all_whole(stack, &left).await?;
    if soaking() {
        no_batch_is_partial(stack).await;
    }
    let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(client, "ml");
    for name in &left {
        jobs.delete(name, &DeleteParams::background()).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// A gang is named like its Job, with a digest behind it.
fn is_of(gang: &Gang, job: &str) -> bool {
    gang.name_any().rsplit_once('-').is_some_and(|(head, _)| head == job)
}

/// Waits until every gang is bound and all its pods run.
async fn all_whole(stack: &Stack, names: &[String]) -> Result<(), String> {
    let client = &stack.admin().map_err(|error| error.to_string())?;
    eventually(LONG, "every gang of the wave to run whole", || async move {
        let gangs = gangs(client, "ml").await;
        let mut waiting = Vec::new();
        for name in names {
            let status = gangs.iter().find(|gang| is_of(gang, name)).and_then(|gang| gang.status.clone());
            let status = status.unwrap_or_default();
            let pods = members(client, "ml", name).await;
            let running = pods.iter().filter(|pod| runs(pod) && pod.metadata.deletion_timestamp.is_none()).count();
            let whole = status.plan.as_ref().is_some_and(|plan| plan.places.len() == running);
            if status.phase != "Bound" || !whole {
                let why = status.waiting.map(|waiting| waiting.message);
                waiting.push(format!("{name}: {} with {running} running, {why:?}", status.phase));
            }
        }
        if waiting.is_empty() { Ok(Some(())) } else { Err(waiting.join("; ")) }
    })
    .await
    .map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seeded_faults_leave_no_gang_partial_and_nothing_behind() {
    let given = std::env::var("MUSTER_CHAOS_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let seeds: Vec<u64> = match given {
        Some(seed) => vec![seed],
        // A thousand gangs, or what fits into an ordinary run.
        None if soaking() => (0..50).collect(),
        None => (0..3).collect(),
    };
    let recorded = json!({"debug": {"enabled": true, "decisions": 200}});
    let Some(stack) = provisioning_stack_with(&roomy(), FACTOR, "1s", recorded).await else { return };
    impatient(&stack).await;
    let mut recordings = BTreeSet::new();
    for seed in seeds {
        let began = Instant::now();
        let done = wave(&stack, seed).await;
        assert!(
            done.is_ok(),
            "MUSTER_CHAOS_SEED={seed} runs this again: {}\n{}",
            done.unwrap_err(),
            stack.cluster.report(60)
        );
        stack.sim_calm().await.unwrap();
        eprintln!("seed {seed}: {WAVE} gangs in {:.1} s", began.elapsed().as_secs_f64());
        everything_is_terminated(&stack).await;
        recordings.extend(decided_the_same_from_recordings(&stack).await);
    }
    eprintln!("{} recordings decide the same again, byte for byte", recordings.len());
    assert!(recordings.len() >= if soaking() { 500 } else { 20 }, "only {} recordings", recordings.len());
    no_errors(&stack);
}

/// What no life of a batch comes to: `delete-policy` belongs to a command, and finished fleets are deleted later, for nobody.
const OF_NO_LIFE: [Step; 2] = [Step::DeletePolicy, Step::DeleteFleets];
/// The process died at the point, and all went well afterwards.
const HEALED: &str = "healed";

/// How EC2 answers while the process dies.
#[derive(Clone, Copy, Debug)]
enum Weather {
    Clean,
    LostResponse,
    SlowResponse,
}

/// One life of a batch with everything that happens in it: provisioned, used, a node lost and replaced, terminated.
async fn life(stack: &Stack, name: &str, step: Step, when: &str, weather: Weather) -> &'static str {
    let client = stack.admin().unwrap();
    // Where the fleet is refused the other call launches: an answer of the first that was lost would have launched already.
    let launch = if step == Step::RunInstances { "RunInstances" } else { "CreateFleet" };
    for operation in [launch, "TerminateInstances", "CreatePlacementGroup", "DeletePlacementGroup"] {
        let fault = match weather {
            Weather::Clean => continue,
            Weather::LostResponse => Fault::of(FaultKind::LostResponse),
            Weather::SlowResponse => Fault::of(FaultKind::Delay { real_millis: 500 }),
        };
        goes_wrong(stack, &fault.on(operation).times(1)).await;
    }
    if step == Step::RunInstances {
        let full = FaultKind::Error { code: "MaxFleetCountExceeded".to_owned(), status: 400, message: String::new() };
        goes_wrong(stack, &Fault::of(full).on("CreateFleet").times(1)).await;
    }
    // Members are informed how far their gang is only where kube-scheduler takes its time.
    let slow = step == Step::ReportPod;
    if slow {
        stack.cluster.signal(Component::Scheduler(0), Signal::SIGSTOP).unwrap();
    }
    stack.kill_muster().unwrap();
    stack.spawn_muster(&[("MUSTER_CRASH", &format!("{}:{when}", step.as_str()))]).unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "ml");
    let other = TestPod::new(format!("other{name}"));
    let other = match step {
        // A pod with the gate that is in no gang, and half a gang that nobody owns.
        Step::UngatePod => Some(other.gate("muster.dev/gang").build()),
        Step::DeleteGang => {
            Some(other.gpus(8).annotation("muster.dev/gang", "half").annotation("muster.dev/gang-size", "2").build())
        }
        _ => None,
    };
    if let Some(other) = &other {
        pods.create(&PostParams::default(), other).await.unwrap();
    }
    let job = TestJob::new(name, 2).gpus(8).ignores_disruptions().pod_annotation("muster.dev/gang", name).build();
    submit(&client, "ml", job).await;
    let names = [name.to_owned()];
    let mut died = false;
    if slow {
        let began = Instant::now();
        while !died && began.elapsed() < LONG {
            died = crashed(stack).await;
        }
        stack.cluster.signal(Component::Scheduler(0), Signal::SIGCONT).unwrap();
    }
    died |= revive(stack, &names, 0).await;
    let planned = epoch(stack, &names[0]).await;
    let live: Vec<Value> = stack.sim("/_sim/instances").await.unwrap();
    let ids = json!([live[0]["instanceId"]]);
    // A notice has members marked and evicted; without one they go with their machine.
    let (kind, what) = if matches!(step, Step::DeleteMessage | Step::MarkPod | Step::EvictPod) {
        ("interrupt", json!({"instanceIds": ids, "kind": "spot", "noticeSeconds": 120.0}))
    } else {
        ("terminate", json!({"instanceIds": ids, "reason": "Server.InternalError"}))
    };
    stack.sim_post(&format!("/_sim/{kind}"), &what).await.unwrap();
    replaced(stack, live[0]["instanceId"].as_str().unwrap(), &mut died).await;
    // What it lost may be replaced before Muster has seen that it is lost.
    died |= revive(stack, &names, planned).await;
    if let Some(other) = &other {
        // It may have gone with its node.
        let _ = pods.delete(&other.name_any(), &DeleteParams::default().grace_period(0)).await;
    }
    delete_job(stack, name).await;
    let terminated = everything_is_terminated(stack);
    tokio::pin!(terminated);
    // The crash may come at the last step of all.
    tokio::select! {
        () = &mut terminated => {}
        () = async { while !crashed(stack).await {} }, if !died => {
            died = true;
            terminated.await;
        }
    }
    stack.sim_calm().await.unwrap();
    if died { HEALED } else { "not reached" }
}

/// Waits until an instance is gone and as many live as before, reviving the process if it dies meanwhile.
async fn replaced(stack: &Stack, lost: &str, died: &mut bool) {
    let began = Instant::now();
    loop {
        *died |= crashed(stack).await;
        let live: Vec<Value> = stack.sim("/_sim/instances").await.unwrap();
        if live.len() >= 2 && live.iter().all(|instance| instance["instanceId"] != lost) {
            return;
        }
        assert!(began.elapsed() < LONG, "{lost} is not replaced: {live:?}\n{}", stack.cluster.report(60));
    }
}

/// Starts the process again if it died. Whether it did.
async fn crashed(stack: &Stack) -> bool {
    if stack.cluster.exit_status(Component::Muster(0)).is_none() {
        tokio::time::sleep(Duration::from_millis(50)).await;
        return false;
    }
    stack.start_muster(&[]).await.unwrap();
    true
}

/// The plan that a gang has by now.
async fn epoch(stack: &Stack, name: &str) -> u64 {
    let gangs = gangs(&stack.admin().unwrap(), "ml").await;
    let of = gangs.iter().find(|gang| is_of(gang, name));
    of.and_then(|gang| gang.status.as_ref()).map_or(0, |status| status.epoch)
}

/// Waits until the gang runs whole by a later plan than `planned`, reviving the process if it dies meanwhile. Whether it did; a gang that
/// does neither is a failure.
async fn revive(stack: &Stack, names: &[String], planned: u64) -> bool {
    let began = Instant::now();
    loop {
        if crashed(stack).await {
            all_whole(stack, names).await.unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
            return true;
        }
        let client = stack.admin().unwrap();
        let bound = gangs(&client, "ml")
            .await
            .iter()
            .filter(|gang| is_of(gang, &names[0]))
            .filter_map(|gang| gang.status.as_ref())
            .any(|status| status.phase == "Bound" && status.epoch > planned);
        if bound {
            return false;
        }
        assert!(began.elapsed() < LONG, "{} is not bound\n{}", names[0], stack.cluster.report(60));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_survives_a_crash_at_every_step_in_every_weather() {
    let named = std::env::var("MUSTER_SOAK_STEPS").unwrap_or_default();
    let steps: Vec<Step> = if !named.is_empty() {
        let is_named = |step: &Step| named.split(',').any(|name| name == step.as_str());
        Step::ALL.into_iter().filter(is_named).collect()
    } else if soaking() {
        Step::ALL.into_iter().filter(|step| !OF_NO_LIFE.contains(step)).collect()
    } else {
        vec![Step::CreateFleet, Step::EvictPod, Step::TerminateInstances]
    };
    let weathers: &[Weather] = if soaking() {
        &[Weather::Clean, Weather::LostResponse, Weather::SlowResponse]
    } else {
        &[Weather::LostResponse]
    };
    // A cluster for each weather: most of a life is waiting for EC2.
    let lives = weathers.iter().map(|weather| lives(&steps, *weather));
    let columns = futures::future::join_all(lives).await;
    let mut table = String::from("| step | when |");
    for weather in weathers {
        let _ = write!(table, " {weather:?} |");
    }
    table.push_str("\n| --- | --- |");
    table.push_str(&" --- |".repeat(weathers.len()));
    for (number, (step, when)) in points(&steps).enumerate() {
        let _ = write!(table, "\n| {} | {when} |", step.as_str());
        for outcome in columns.iter().filter_map(|column| column.get(number)) {
            let _ = write!(table, " {outcome} |");
        }
    }
    eprintln!("\n{table}");
    let points: Vec<(Step, &str)> = points(&steps).collect();
    let missed = |column: &Vec<&'static str>| -> Vec<(Step, &'static str)> {
        let outcomes = points.iter().zip(column).filter(|(_, outcome)| **outcome != HEALED);
        outcomes.map(|(point, _)| *point).collect()
    };
    let missed: Vec<_> = columns.iter().map(missed).collect();
    assert!(missed.iter().all(Vec::is_empty), "a crash that never happened shows nothing: {missed:?}");
}

/// Before and after each step.
fn points(steps: &[Step]) -> impl Iterator<Item = (Step, &'static str)> {
    steps.iter().flat_map(|step| ["before", "after"].map(|when| (*step, when)))
}

/// What became of a batch that met each of the points in one weather. Nothing where there is no control plane.
async fn lives(steps: &[Step], weather: Weather) -> Vec<&'static str> {
    let Some(mut options) = options().await else { return Vec::new() };
    options.scenario = Some(serde_json::to_value(roomy()).unwrap());
    options.factor = FACTOR;
    options.config = json!({"ec2": {"interruptionQueue": "muster-interruptions"}});
    let stack = stack(options, "ml").await;
    let (class, pool) = pools::p5("1s").unwrap();
    pools::create(&stack.admin().unwrap(), &class, &pool).await.unwrap();
    let mut outcomes = Vec::new();
    for (number, (step, when)) in points(steps).enumerate() {
        let began = Instant::now();
        let outcome = life(&stack, &format!("life{number}"), step, when, weather).await;
        eprintln!("{} {when}, {weather:?}: {outcome} in {:.1} s", step.as_str(), began.elapsed().as_secs_f64());
        outcomes.push(outcome);
    }
    no_errors(&stack);
    outcomes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_insufficient_capacity_costs_few_calls_and_the_first_gang_runs_within_one_back_off_after_it() {
    let Some(stack) = provisioning_stack(
        &Scenario::default().with_pool("p5.48xlarge", "us-east-1a", MarketType::OnDemand, 1, 1, 1),
        SLOWER,
        "1s",
    )
    .await
    else {
        return;
    };
    let client = stack.admin().unwrap();
    let count = if soaking() { 50 } else { 15 };
    let minutes: u32 = if soaking() { 30 } else { 10 };
    let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(client.clone(), "ml");
    let start = clock(&stack).await;
    for number in 0..count {
        let name = format!("dry{number}");
        let job = TestJob::new(&name, 2).gpus(8).pod_annotation("muster.dev/gang", &name).build();
        jobs.create(&PostParams::default(), &job).await.unwrap();
    }
    eventually(LONG, "the insufficient capacity to pass", || async {
        let passed = clock(&stack).await.duration_since(start).as_mins();
        Ok::<_, String>((passed >= i64::from(minutes)).then_some(()))
    })
    .await
    .unwrap();
    let entries = journal(&stack, 0).await;
    assert!(launched_fleets(&entries).is_empty());
    // From the first Job on: how long the stack took to start is up to the machine.
    let end = start + SignedDuration::from_mins(i64::from(minutes));
    let calls: Vec<&Value> = entries.iter().filter(|entry| (start..end).contains(&time_of(entry))).collect();
    let per_minute = u32::try_from(calls.len()).unwrap() / minutes;
    let fleets = calls.iter().filter(|entry| entry["operation"] == "CreateFleet").count();
    eprintln!(
        "insufficient capacity of {minutes} min, {count} gangs: {per_minute} calls a minute, {fleets} launches tried"
    );
    // EC2 refills 300 mutating calls a minute for the whole account.
    assert!(per_minute < 150, "{per_minute} calls a minute");

    let rain = clock(&stack).await;
    let more = json!({"type": "p5.48xlarge", "zone": "us-east-1a", "add": 64});
    stack.sim_post("/_sim/pools", &more).await.unwrap();
    let first = eventually(LONG, "a gang to get its nodes", || async {
        let entries = journal(&stack, 0).await;
        Ok::<_, String>(launched_fleets(&entries).first().map(|fleet| time_of(fleet)))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    let waited = first.duration_since(rain).as_secs();
    eprintln!("first launch {waited} s after capacity returned");
    assert!(waited <= 12 * 60, "one back-off step at the longest, ten minutes and a fifth: {waited} s");
    for number in 0..count {
        delete_job(&stack, &format!("dry{number}")).await;
    }
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}
