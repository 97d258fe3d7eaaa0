//! How fast pods get their nodes: stock kube-scheduler pod by pod, and Muster with whole gangs, on the same machine.
//!
//! Measured from the first create request to the last pod's `nodeName` seen by one watch: gates, planning and release
//! are inside. Same creator, same pods, nodes that exist; CPU seconds of every process beside it, since on a small
//! machine all of them share the cores. `NODES` and `PODS` in the environment change the size (1,000 each).

#![allow(clippy::print_stdout, reason = "prints its table")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use muster::testbed::nodes::TestNode;
use muster::testbed::workloads::TestPod;
use muster::testbed::{
    Binaries, ClusterOptions, Component, Identity, SchedulerOptions, Stack, StackOptions, TestCluster, eventually,
    repository,
};

const CREATORS: usize = 32;
const GANG: usize = 8;
const DEADLINE: Duration = Duration::from_secs(600);

fn size(name: &str) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(1_000)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (nodes, pods) = (size("NODES"), size("PODS"));
    let repository = repository();
    let binaries = Binaries::ensure(&repository, |line| println!("{line}")).await?;
    println!("{pods} pods of eight GPUs on {nodes} nodes; one run each");
    println!(
        "{:<28} {:>8} {:>8} {:>10} {:>8} {:>10} {:>8}",
        "", "seconds", "pods/s", "apiserver", "etcd", "scheduler", "muster"
    );

    let mut options = ClusterOptions::new(&repository, binaries.clone());
    options.controller_manager = true;
    let cluster = TestCluster::start(options).await?;
    let scheduler = SchedulerOptions { file: "default-scheduler.yaml", ..SchedulerOptions::new(None) };
    cluster.start_scheduler(&scheduler).await?;
    measure("stock, pod by pod", &cluster, nodes, pods, "default-scheduler", 0).await?;
    drop(cluster);

    let muster = env!("CARGO_BIN_EXE_muster").into();
    let stack = Stack::start(StackOptions::new(repository, binaries, muster)).await?;
    measure(&format!("muster, gangs of {GANG}"), &stack.cluster, nodes, pods, "muster", GANG).await?;
    Ok(())
}

async fn measure(
    name: &str,
    cluster: &TestCluster,
    nodes: usize,
    pods: usize,
    scheduler: &str,
    gang: usize,
) -> anyhow::Result<()> {
    let client = cluster.client(Identity::Admin)?;
    cluster.create_namespace("load").await?;
    create_nodes(&client, nodes).await?;
    let before = cpu(cluster);
    let started = Instant::now();
    let watching = tokio::spawn(all_placed(client.clone(), pods));
    let api: Api<Pod> = Api::namespaced(client, "load");
    futures::stream::iter(0..pods)
        .map(Ok)
        .try_for_each_concurrent(CREATORS, |number| {
            let api = api.clone();
            let mut pod = TestPod::new(format!("p{number}")).gpus(8).scheduler(scheduler);
            if gang > 0 {
                pod = pod
                    .annotation("muster.dev/gang", &format!("g{}", number / gang))
                    .annotation("muster.dev/gang-size", &gang.to_string())
                    .annotation("muster.dev/rank", &(number % gang).to_string());
            }
            async move { api.create(&PostParams::default(), &pod.build()).await.map(drop) }
        })
        .await?;
    tokio::time::timeout(DEADLINE, watching).await.context("not all pods got a node")???;
    let took = started.elapsed();
    let after = cpu(cluster);
    let seconds: Vec<String> = before.iter().zip(&after).map(|(before, after)| tenths(after - before)).collect();
    let per_second = u128::try_from(pods).unwrap_or(u128::MAX) * 1_000 / took.as_millis().max(1);
    println!(
        "{name:<28} {:>8} {per_second:>8} {:>10} {:>8} {:>10} {:>8}",
        tenths(u64::try_from(took.as_millis() / 10).unwrap_or(u64::MAX)),
        seconds[0],
        seconds[1],
        seconds[2],
        seconds[3]
    );
    Ok(())
}

/// Hundredths as seconds with one place.
fn tenths(hundredths: u64) -> String {
    format!("{}.{}", hundredths / 100, hundredths / 10 % 10)
}

/// CPU time so far, in hundredths of a second: API server, etcd, kube-scheduler, Muster.
fn cpu(cluster: &TestCluster) -> [u64; 4] {
    [Component::ApiServer, Component::Etcd, Component::Scheduler(0), Component::Muster(0)].map(|component| {
        let stat = cluster.pid(component).and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok());
        // After the name, which may hold anything, user and system time are the 12th and 13th field.
        let stat = stat.unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        ticks(11) + ticks(12)
    })
}

async fn create_nodes(client: &Client, count: usize) -> anyhow::Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    futures::stream::iter(0..count)
        .map(Ok)
        .try_for_each_concurrent(CREATORS, |number| {
            let api = api.clone();
            let leaf = format!("nn-{}", number / 8);
            let node = TestNode::new(format!("n{number}")).layers(["nn-core", "nn-spine", &leaf]).build();
            async move { api.create(&PostParams::default(), &node).await.map(drop) }
        })
        .await?;
    let api = &api;
    eventually(DEADLINE, "all nodes to be untainted", || async move {
        let nodes = api.list(&kube::api::ListParams::default()).await?;
        let clean = |node: &Node| node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).is_none_or(Vec::is_empty);
        Ok::<_, kube::Error>(nodes.iter().all(clean).then_some(()))
    })
    .await?;
    Ok(())
}

async fn all_placed(client: Client, count: usize) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client, "load");
    let mut placed: BTreeSet<String> = BTreeSet::new();
    let mut stream = watcher(pods, watcher::Config::default()).applied_objects().boxed();
    while placed.len() < count {
        let Some(pod) = stream.try_next().await? else { anyhow::bail!("the watch ended") };
        if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
            placed.insert(pod.name_any());
        }
    }
    Ok(())
}
