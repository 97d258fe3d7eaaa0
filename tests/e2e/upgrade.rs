//! `muster serve` replaced by the next version while gangs are on their way: nothing stays behind its gate, nothing is
//! bound twice, nothing is left; and nodes on their way come and go once, whichever version goes on, the next or the one
//! before. `make test-upgrade` builds an older commit and names it in `MUSTER_BEFORE`.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking, its helpers too")]

use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use muster::step::Step;
use muster::testbed::workloads::TestJob;
use muster::testbed::{Component, Identity, Stack, audit, eventually, pools, settings};
use muster_api::crd::Gang;
use muster_api::keys;
use muster_ec2_sim::Scenario;
use muster_ec2_sim::choices::FleetVolumeTags;
use muster_ec2_sim::policy::Policy;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::cloud::{
    broken_invariants, delete_job, gang_job, journal, launched_fleets, nothing_is_left, provisioning_stack,
};
use crate::crash::{Point, after, before as ahead, dies, no_gang_is_left, restart};
use crate::support::{
    DEADLINE, all_run, bare, create, gangs, leaves, no_errors, options, phase, runs_on, stack, submit,
};

/// The binary of the commit before this one.
fn before() -> PathBuf {
    let before = std::env::var_os("MUSTER_BEFORE").map(PathBuf::from);
    before.expect("MUSTER_BEFORE names an older binary: `make test-upgrade` builds one, and `make test` excludes these")
}

fn now() -> PathBuf {
    env!("CARGO_BIN_EXE_muster").into()
}

/// A stack of the version before with capacity for every gang of a test.
async fn older(replicas: u8) -> Option<Stack> {
    let before = before();
    let mut options = options().await?;
    options.replicas = replicas;
    options.config = json!({"lease": {"duration": "3s", "grace": "1s"}});
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a", "b", "c", "d"], 4)).await.unwrap();
    // Nothing has happened yet: the version before begins, with a configuration that it understands.
    for number in 0..replicas {
        replace(&stack, number, &before).await;
    }
    Some(stack)
}

/// One replica is of another version from now on, with its configuration.
async fn replace(stack: &Stack, number: u8, binary: &Path) {
    stack.cluster.kill(Component::Muster(number)).unwrap();
    // The replica's own configuration of this version stands beside it while the version before runs.
    let (file, kept) = (stack.config_of(number), stack.config_of(number).with_extension("kept"));
    if !kept.exists() {
        std::fs::copy(&file, &kept).unwrap();
    }
    let newer = configuration(&kept);
    let configured = if binary == now() { newer } else { configuration_before(&newer) };
    becomes(stack, number, &(binary.to_owned(), configured));
    stack.start_replica(number, &[]).await.unwrap();
}

/// Every member runs without a gate, and the audit log shows one Binding each, behind its gang's commit.
async fn whole(stack: &Stack, names: &[&str]) {
    for name in names {
        for number in 0..2 {
            runs_on(stack, "ml", &format!("{name}-{number}"), DEADLINE).await;
        }
        phase(stack, "ml", name, "Bound").await;
    }
    let gang_of = |_: &str, pod: &str| {
        let (gang, _) = pod.rsplit_once('-')?;
        names.contains(&gang).then(|| gang.to_owned())
    };
    let entries = audit::read(&stack.cluster.audit_log()).unwrap();
    assert_eq!(audit::torn_bindings(&entries, gang_of), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gangs_in_every_phase_are_taken_over_by_the_next_version() {
    let Some(stack) = older(1).await else { return };
    let client = stack.admin().unwrap();
    // Bound, with a Job.
    submit(&client, "ml", TestJob::new("runs", 2).gpus(8).pod_annotation("muster.dev/gang", "runs").build()).await;
    all_run(&stack, "ml", "runs", 2).await;
    // Waiting: more members in one leaf than it has nodes; collecting: one member is missing.
    for number in 0..5 {
        let mut pod = bare("large", number, 5);
        pod.annotations_mut().insert("muster.dev/topology-required".to_owned(), "layer-3".to_owned());
        create(&stack, "ml", pod).await;
    }
    create(&stack, "ml", bare("half", 0, 2)).await;
    phase(&stack, "ml", "half", "Collecting").await;
    // Committing: the version before dies behind its commit point.
    stack.kill_muster().unwrap();
    let armed = format!("{}:after", Step::CommitGang.as_str());
    stack.spawn_muster(&[("MUSTER_CRASH", &armed)]).unwrap();
    for number in 0..2 {
        create(&stack, "ml", bare("commits", number, 2)).await;
    }
    let cluster = &stack.cluster;
    let died = || async move { Ok::<_, String>(cluster.exit_status(Component::Muster(0))) };
    eventually(DEADLINE, "the version before to die", died).await.unwrap();
    phase(&stack, "ml", "commits", "Committing").await;
    // Released: kube-scheduler sleeps, and the version before is started once more.
    stack.cluster.signal(Component::Scheduler(0), Signal::SIGSTOP).unwrap();
    stack.start_muster(&[]).await.unwrap();
    for number in 0..2 {
        create(&stack, "ml", bare("sent", number, 2)).await;
    }
    phase(&stack, "ml", "sent", "Released").await;

    replace(&stack, 0, &now()).await;
    stack.cluster.signal(Component::Scheduler(0), Signal::SIGCONT).unwrap();
    create(&stack, "ml", bare("half", 1, 2)).await;
    whole(&stack, &["commits", "sent", "half"]).await;
    all_run(&stack, "ml", "runs", 2).await;
    // What could not run before runs as soon as it can: nothing of it was forgotten.
    let wide = ["e"];
    stack.create_nodes(leaves(&wide, 5)).await.unwrap();
    for number in 0..5 {
        assert!(runs_on(&stack, "ml", &format!("large-{number}"), DEADLINE).await.starts_with("e-"));
    }
    everything_goes(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_versions_side_by_side_bind_no_gang_in_part() {
    let Some(stack) = older(2).await else { return };
    // One of two Pods is new, as in the middle of a rollout; either may lead, and either kube-scheduler.
    for (number, name) in [(0, "one"), (1, "two")] {
        replace(&stack, number, &now()).await;
        for member in 0..2 {
            create(&stack, "ml", bare(name, member, 2)).await;
        }
        whole(&stack, &[name]).await;
    }
    // Back again: a status that the newer version wrote is understood by the older one, or left alone.
    replace(&stack, 0, &before()).await;
    for member in 0..2 {
        create(&stack, "ml", bare("three", member, 2)).await;
    }
    whole(&stack, &["one", "two", "three"]).await;
    everything_goes(&stack).await;
}

/// Where one version dies while nodes are on their way, and the other while they are terminated.
const ON_THE_WAY: [(Point, Point); 5] = [
    (after(Step::CreateBatch, 1), ahead(Step::TerminateInstances, 1)),
    (after(Step::CreatePlacementGroup, 1), after(Step::TerminateInstances, 1)),
    (ahead(Step::CreateFleet, 1), ahead(Step::DeletePlacementGroup, 1)),
    (after(Step::CreateFleet, 1), ahead(Step::DeleteLaunchTemplate, 1)),
    (after(Step::EditNode, 2), after(Step::DeletePlacementGroup, 1)),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_on_their_way_come_and_go_once_whether_the_next_version_goes_on_or_the_one_before() {
    let older = before();
    let knows_the_hold = Command::new("grep").args(["-qF", keys::HOLD]).arg(&older).status().unwrap().success();
    // Older versions tag network interfaces by the fleet.
    let mut scenario = Scenario::demo();
    scenario.choices.fleet_volume_tags = FleetVolumeTags::AndInterfaces;
    let Some(stack) = provisioning_stack(&scenario, 40, "1s").await else { return };
    let client = stack.admin().unwrap();
    let newer = configuration(&stack.config());
    let policy: Value = stack.sim("/_sim/policy").await.unwrap();
    let policy_then = policy_before(&stack).await;
    let versions = [(older, configuration_before(&newer)), (now(), newer)];
    let policies = [policy_then, policy];
    let change_to = async |version: usize| {
        becomes(&stack, 0, &versions[version]);
        stack.sim_post("/_sim/policy", &policies[version]).await.unwrap();
    };
    for (start, end) in [(0, 1), (1, 0)] {
        for (number, (provisioning, leaving)) in ON_THE_WAY.into_iter().enumerate() {
            let way = if start == 0 { "upgrade" } else { "rollback" };
            let name = format!("{way}{number}");
            eprintln!("{name}: {provisioning:?}, {leaving:?}");
            let from = journal(&stack, 0).await.len();
            change_to(start).await;
            restart(&stack, Some(provisioning)).await;
            submit(&client, "ml", gang_job(&name, 8)).await;
            dies(&stack, provisioning).await;

            change_to(end).await;
            restart(&stack, None).await;

            all_run(&stack, "ml", &name, 8).await;
            phase(&stack, "ml", &name, "Bound").await;
            let entries = journal(&stack, from).await;
            let launched = launched_fleets(&entries).len();
            let ended = entries.iter().filter(|entry| entry["operation"] == "TerminateInstances").count();
            let replaced = start == 1 && provisioning.step == Step::EditNode && !knows_the_hold;
            // To a version that does not know whose the cordon is such a node never joins: it is replaced, once, and the gang runs.
            let as_it_should_be = launched == 1 && ended == 0 || replaced && launched == 2 && ended == 1;
            assert!(as_it_should_be, "{name}: {launched} launches, {ended} terminated\n{}", stack.cluster.report(60));

            restart(&stack, Some(leaving)).await;
            delete_job(&stack, &name).await;
            dies(&stack, leaving).await;
            change_to(start).await;
            restart(&stack, None).await;
            nothing_is_left(&stack).await;
            let (broken, stated) = broken_invariants(&stack).await;
            // A version before this one may ask for the same launch in its own words: EC2 refuses that, and it looks for what
            // was launched.
            let excused = |number: &u64| start == 1 && *number == ONE_TOKEN_ONE_LAUNCH;
            assert!(broken.iter().all(excused), "{name}: {stated:#?}");
            no_gang_is_left(&stack).await;
        }
    }
}

/// The invariant that no token is sent with two sets of parameters.
const ONE_TOKEN_ONE_LAUNCH: u64 = 7;

/// The next start is that of another version, with its configuration.
fn becomes(stack: &Stack, number: u8, (binary, configuration): &(PathBuf, Value)) {
    stack.runs(number, binary.clone());
    std::fs::write(stack.config_of(number), configuration.to_string()).unwrap();
}

/// The policy that shipped with the version before, for this cluster: a version may ask EC2 for what the next one does without.
async fn policy_before(stack: &Stack) -> Value {
    let file = std::env::var_os("MUSTER_BEFORE_POLICY").map(PathBuf::from).expect("set together with MUSTER_BEFORE");
    let namespaces: Api<Namespace> = Api::all(stack.admin().unwrap());
    let uid = namespaces.get("kube-system").await.unwrap().metadata.uid.unwrap();
    let words = [
        ("CLUSTER", "muster".to_owned()),
        ("NODE-ROLE", pools::INSTANCE_PROFILE.to_owned()),
        ("QUEUE", Scenario::default().queue.name),
        ("UID", uid),
    ];
    let shipped: Policy = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let filled = shipped.filled(&words.into_iter().map(|(word, value)| (word.to_owned(), value)).collect());
    serde_json::to_value(filled).unwrap()
}

fn configuration(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// The configuration that shipped with the version before, with the addresses of this stack: whoever goes back to a version
/// goes back to its manifests.
fn configuration_before(newer: &Value) -> Value {
    let file = std::env::var_os("MUSTER_BEFORE_CONFIG").map(PathBuf::from).expect("set together with MUSTER_BEFORE");
    let mut configuration = settings::read_yaml(&file).unwrap().remove(0);
    for key in ["extender", "http", "ec2", "clock", "lease"] {
        if !newer[key].is_null() {
            configuration[key] = newer[key].clone();
        }
    }
    configuration
}

/// Pods and Jobs go, then Muster: no plan, no gate and no policy is left. A Gang of pods that nobody owns waits a while for
/// them to come again, and holds nothing.
async fn everything_goes(stack: &Stack) {
    let client = stack.admin().unwrap();
    let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(client.clone(), "ml");
    jobs.delete_collection(&DeleteParams::background(), &ListParams::default()).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "ml");
    pods.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    let (client, pods) = (&client, &pods);
    eventually(DEADLINE, "no plan and no pod to be left", || async move {
        let planned = |gang: &Gang| gang.status.as_ref().is_some_and(|status| status.plan.is_some());
        let left: Vec<String> =
            gangs(client, "ml").await.iter().filter(|gang| planned(gang)).map(Gang::name_any).collect();
        let pods = pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items.len();
        if left.is_empty() && pods == 0 { Ok(Some(())) } else { Err(format!("{left:?}, {pods} pods")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    let output = std::process::Command::new(now())
        .args(["uninstall", "--confirm"])
        .env("KUBECONFIG", stack.cluster.kubeconfig(Identity::Admin))
        .output()
        .unwrap();
    let stated = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stated}");
}
