//! Two Pods, each a kube-scheduler and `muster serve`: either of either may go at any moment.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, WatchEvent};
use muster::step::Step;
use muster::testbed::request::request;
use muster::testbed::{Component, Stack, eventually};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{DEADLINE, bare, create, delete, gangs, leaves, node_of, options, phase, runs_on, stack};

/// A kube-scheduler that died is followed by the other once its lease has run out.
const FAILOVER: Duration = Duration::from_secs(120);

/// Two replicas and one leaf of four nodes.
async fn two() -> Option<Stack> {
    let mut options = options().await?;
    options.replicas = 2;
    options.config = json!({"lease": {"duration": "3s", "grace": "1s"}});
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 4)).await.unwrap();
    Some(stack)
}

async fn holder(stack: &Stack) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(stack.admin().unwrap(), "muster-system");
    leases.get_opt("muster").await.unwrap()?.spec?.holder_identity
}

/// The replica that holds Muster's lease.
pub(crate) async fn leads(stack: &Stack) -> u8 {
    eventually(DEADLINE, "a replica to hold the lease", || async move {
        Ok::<_, String>(match holder(stack).await.as_deref() {
            Some("muster-0") => Some(0),
            Some("muster-1") => Some(1),
            _ => None,
        })
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(40)))
}

/// The kube-scheduler that leads, by its log.
async fn schedules(stack: &Stack) -> u8 {
    let acquired = |number: u8| {
        let log = std::fs::read_to_string(stack.cluster.log(Component::Scheduler(number))).unwrap_or_default();
        stack.cluster.pid(Component::Scheduler(number)).is_some()
            && (log.contains("successfully acquired lease") || log.contains("Successfully acquired lease"))
    };
    let acquired = &acquired;
    eventually(FAILOVER, "a kube-scheduler to lead", || async move {
        Ok::<_, String>((0..2).find(|number| acquired(*number)))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(40)))
}

async fn waiting_at(stack: &Stack, number: u8, count: u32) {
    let http = stack.http_of(number);
    let line = format!("muster_barrier_waiting {count}");
    let line = &line;
    eventually(FAILOVER, format!("{count} members at the barrier of replica {number}"), || async move {
        let metrics = request(http, "GET", "/metrics", "").await.map_err(|error| error.to_string())?;
        let seen: Vec<&str> = metrics.lines().filter(|line| line.starts_with("muster_barrier_waiting ")).collect();
        if seen.contains(&line.as_str()) { Ok(Some(())) } else { Err(format!("{seen:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

async fn unbound(stack: &Stack, names: &[&str]) {
    let pods: Api<Pod> = Api::namespaced(stack.admin().unwrap(), "ml");
    for name in names {
        assert_eq!(node_of(&pods.get(name).await.unwrap()), None, "{name} is bound before the minimum stands");
    }
}

async fn all_on_nodes_of_their_own(stack: &Stack) {
    let mut nodes = BTreeSet::new();
    for number in 0..4 {
        nodes.insert(runs_on(stack, "ml", &format!("train-{number}"), FAILOVER).await);
    }
    assert_eq!(nodes.len(), 4, "{nodes:?}");
    phase(stack, "ml", "train", "Bound").await;
}

/// Three of four stand at the barrier of the replica beside the leading kube-scheduler, whose number is the answer.
async fn three_of_four(stack: &Stack) -> u8 {
    let scheduler = schedules(stack).await;
    stack.cluster.signal(Component::Scheduler(scheduler), Signal::SIGSTOP).unwrap();
    for number in 0..4 {
        create(stack, "ml", bare("train", number, 4)).await;
    }
    phase(stack, "ml", "train", "Released").await;
    delete(stack, "ml", "train-3").await;
    stack.cluster.signal(Component::Scheduler(scheduler), Signal::SIGCONT).unwrap();
    waiting_at(stack, scheduler, 3).await;
    scheduler
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_evicted_gives_its_lease_up_and_the_other_takes_it() {
    let Some(mut options) = options().await else { return };
    options.replicas = 2;
    // Nobody could wait for the end of this lease, nor for its renewal.
    options.config = json!({"lease": {"duration": "3600s", "grace": "5s"}});
    let stack = stack(options, "ml").await;
    let first = leads(&stack).await;
    stack.cluster.signal(Component::Muster(first), Signal::SIGTERM).unwrap();
    let cluster = &stack.cluster;
    let ended = eventually(DEADLINE, "muster serve to end", || async move {
        Ok::<_, String>(cluster.exit_status(Component::Muster(first)))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(40)));
    assert_eq!(ended, "exit status: 0");
    let other = format!("muster-{}", 1 - first);
    let (stack, other) = (&stack, &other);
    eventually(DEADLINE, "the other replica to hold the lease", || async move {
        let holder = holder(stack).await;
        if holder.as_ref() == Some(other) { Ok(Some(())) } else { Err(format!("{holder:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(40)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_holder_is_killed_and_the_gang_goes_on() {
    let Some(stack) = two().await else { return };
    let scheduler = schedules(&stack).await;
    let first = leads(&stack).await;
    stack.cluster.kill(Component::Muster(first)).unwrap();
    for number in 0..4 {
        create(&stack, "ml", bare("train", number, 4)).await;
    }
    // The kubelet starts it again; beside the leading kube-scheduler it is needed.
    if first == scheduler {
        phase(&stack, "ml", "train", "Released").await;
        stack.start_replica(first, &[]).await.unwrap();
    }
    all_on_nodes_of_their_own(&stack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kube_scheduler_is_killed_while_members_stand_at_the_barrier_and_the_other_carries_on() {
    let Some(stack) = two().await else { return };
    let scheduler = three_of_four(&stack).await;

    stack.cluster.kill(Component::Scheduler(scheduler)).unwrap();
    waiting_at(&stack, scheduler, 0).await;
    unbound(&stack, &["train-0", "train-1", "train-2"]).await;
    // Its connections are closed; the members come again, beside the other replica.
    waiting_at(&stack, 1 - scheduler, 3).await;
    unbound(&stack, &["train-0", "train-1", "train-2"]).await;

    create(&stack, "ml", bare("train", 3, 4)).await;
    all_on_nodes_of_their_own(&stack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_restarts_while_members_stand_at_the_barrier() {
    let Some(stack) = two().await else { return };
    three_of_four(&stack).await;

    stack.cluster.restart(Component::ApiServer).await.unwrap();
    unbound(&stack, &["train-0", "train-1", "train-2"]).await;
    create(&stack, "ml", bare("train", 3, 4)).await;
    all_on_nodes_of_their_own(&stack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_replica_that_committed_dies_before_the_first_binding() {
    let Some(stack) = two().await else { return };
    let scheduler = schedules(&stack).await;
    stack.cluster.kill(Component::Muster(scheduler)).unwrap();
    let armed = format!("{}:after", Step::CommitGang.as_str());
    stack.start_replica(scheduler, &[("MUSTER_CRASH", &armed)]).await.unwrap();
    for number in 0..4 {
        create(&stack, "ml", bare("train", number, 4)).await;
    }
    let cluster = &stack.cluster;
    eventually(
        DEADLINE,
        "it to die",
        || async move { Ok::<_, String>(cluster.exit_status(Component::Muster(scheduler))) },
    )
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(40)));
    unbound(&stack, &["train-0", "train-1", "train-2", "train-3"]).await;
    phase(&stack, "ml", "train", "Committing").await;

    stack.start_replica(scheduler, &[]).await.unwrap();
    all_on_nodes_of_their_own(&stack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happened_in_a_gap_of_the_watches_is_seen() {
    let Some(stack) = two().await else { return };
    create(&stack, "ml", bare("gone", 0, 2)).await;
    phase(&stack, "ml", "gone", "Collecting").await;
    for number in 0..2 {
        stack.cluster.signal(Component::Muster(number), Signal::SIGSTOP).unwrap();
    }
    for number in 0..4 {
        create(&stack, "ml", bare("train", number, 4)).await;
    }
    // No event of it reaches anybody: only the next list shows that it is missing.
    delete(&stack, "ml", "gone-0").await;
    // The watch cache begins again: the versions that the watches know are too old for it.
    stack.cluster.restart(Component::ApiServer).await.unwrap();
    for number in 0..2 {
        stack.cluster.signal(Component::Muster(number), Signal::SIGCONT).unwrap();
    }
    all_on_nodes_of_their_own(&stack).await;
    let client = &stack.admin().unwrap();
    eventually(DEADLINE, "the Gang whose pod went in the gap to be gone", || async move {
        let left = gangs(client, "ml").await.len();
        if left == 1 { Ok(Some(())) } else { Err(format!("{left} Gangs")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(40)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_whose_version_is_compacted_away_begins_again() {
    let Some(mut options) = options().await else { return };
    // Without its cache the API server answers from etcd, which forgets what is older than a second or two.
    options.api_server_args = vec!["--watch-cache=false".to_owned(), "--etcd-compaction-interval=1s".to_owned()];
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 4)).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(stack.admin().unwrap(), "ml");
    stack.cluster.signal(Component::Muster(0), Signal::SIGSTOP).unwrap();
    // None of its watches stands at a newer one: once this is compacted away, all of theirs are.
    let old = pods.list(&ListParams::default().limit(1)).await.unwrap().metadata.resource_version.unwrap();
    for number in 0..4 {
        create(&stack, "ml", bare("train", number, 4)).await;
    }
    create(&stack, "ml", bare("gone", 0, 2)).await;
    delete(&stack, "ml", "gone-0").await;
    // Its watches break and will go on from where they were.
    stack.cluster.restart(Component::ApiServer).await.unwrap();
    let (pods, old) = (&pods, &old);
    eventually(DEADLINE, "the old version to be refused with 410", || async move {
        // Something has to change for anything to be compacted.
        let patch = serde_json::json!({"metadata": {"annotations": {"example.com/at": crate::support::unique()}}});
        let params = kube::api::PatchParams::default();
        pods.patch("train-0", &params, &kube::api::Patch::Merge(&patch)).await.map_err(|error| error.to_string())?;
        let mut events = Box::pin(
            pods.watch(&kube::api::WatchParams::default().timeout(5), old).await.map_err(|error| error.to_string())?,
        );
        match events.next().await {
            Some(Ok(WatchEvent::Error(status))) if status.code == 410 => Ok(Some(())),
            Some(Err(kube::Error::Api(status))) if status.code == 410 => Ok(Some(())),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(20)));
    stack.cluster.signal(Component::Muster(0), Signal::SIGCONT).unwrap();
    all_on_nodes_of_their_own(&stack).await;
    phase(&stack, "ml", "train", "Bound").await;
    let log = std::fs::read_to_string(stack.cluster.log(Component::Muster(0))).unwrap();
    let refused: Vec<&str> = log.lines().filter(|line| line.contains("watch failed and is started again")).collect();
    let compacted = |line: &&str| line.contains("compacted") || line.contains("too old") || line.contains("410");
    assert!(refused.iter().any(compacted), "no watch of Muster's was refused: {refused:#?}");
}
