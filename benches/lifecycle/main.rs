//! How soon pods run for which there are no nodes yet, and what these nodes cost: real control plane, simulated EC2 in real time, its
//! buckets included. `make bench-lifecycle` builds what it needs.
//!
//! Timed from the first create request to the last pod that one watch sees running. Then the same nodes stand ready in a cluster of their
//! own, where kube-scheduler alone places the same pods, as many as it finds nodes for: it goes pod by pod and spreads, and nodes that are
//! launched for a plan have little to spare. Deployments are created there as Deployments: their controllers work while pods are placed.
//! What is allowed: the time in which pods are collected, the machines' boot, and 1.25 times what kube-scheduler needs; 1.03 times the bound
//! that `muster plan` proves for the same pods; 260 MiB; half a core. Five hundred nodes may wait for EC2's buckets, and for nothing else:
//! the last of them is to be launched a second after the pods are collected, and later by as long as the buckets take. And the pods wait in
//! the other cluster too while the same nodes register and get Ready when they did here: allowed are the time in which pods are collected,
//! that between EC2's launches, until the first machine registers, and 1.25 times from there to the last pod.
//! In the end the pods of `mix` are all deleted: their nodes may take `consolidateAfter` and half a minute to be gone.
//!
//! In the environment: `PODS` (1,000), `ROWS` (a list out of `mix`, `spread`, `deployments`, `apart`, `nodes`; and `waiting`, which takes a
//! quarter of an hour and is run by name only, with `NOWHERE` and `AT_LIMIT` pods), `MUSTER` (another `muster` binary), `JSON` (a file
//! for the figures).

#![allow(clippy::print_stdout, reason = "prints its table")]

mod case;
mod cloud;
mod emptying;
#[path = "../load/machine.rs"]
mod machine;
mod waiting;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use muster::testbed::{
    Binaries, ClusterOptions, Component, SchedulerOptions, Stack, StackOptions, TestCluster, eventually, repository,
};
use serde_json::{Value, json};

use case::Case;
use emptying::Emptied;
use machine::{CREATORS, Cpu, DEADLINE, NAMESPACE, cpu, create, memory_of, post};

/// For how long pods are collected: so long after the last one, and so long at most, as the shipped configuration has it.
const IDLE: Duration = Duration::from_secs(1);
const COLLECT: Duration = Duration::from_secs(10);
/// What is allowed: percent of what kube-scheduler needs, percent of the bound, MiB, and hundredths of a core.
const OF_STOCK: u32 = 125;
const OF_BOUND: u64 = 103;
const MEMORY: u64 = 260;
const CORE: u64 = 50;
/// So long after the pods are collected five hundred nodes are launched, where EC2's buckets allow it.
const AT_ONCE: Duration = Duration::from_secs(1);

/// kube-scheduler has placed what it can when no pod has begun to run for so long; and so long may nodes take to come.
const STUCK: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(180);

/// What makes pods of Deployments.
const CONTROLLERS: [&str; 2] = ["deployment-controller", "replicaset-controller"];

/// So long pods have waited for the first node, when nothing is left to do for them.
const WAIT: Duration = Duration::from_secs(10);

/// The row of those who get nothing.
const WAITING: &str = "waiting";

/// What every case needs.
#[derive(Clone, Debug)]
struct Bench {
    repository: PathBuf,
    binaries: Binaries,
    muster: PathBuf,
}

/// What was seen of one case.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// From the first request until all were created, and until all ran.
    created: Duration,
    ran: Duration,
    /// What kube-scheduler alone needed, once the nodes stood ready, and the pods that it found no node for.
    stock: Duration,
    unplaced: usize,
    /// From the first node that registers to the last pod, where the same nodes come as they came here and kube-scheduler is alone.
    joining: Option<Duration>,
    nodes: usize,
    launches: usize,
    /// From the first request to the last launching call, how long EC2's buckets keep that from coming before, and from the first launching
    /// call to the last.
    launched: Duration,
    buckets: Duration,
    launching: Duration,
    /// Micro-dollars per hour, and their bound.
    cost: u64,
    bound: u64,
    /// MiB of Muster at its peak.
    memory: u64,
    cpu: Cpu,
    /// From the last pod to the last node, where all pods are deleted.
    emptied: Option<Emptied>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let number = |name: &str, default: usize| match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name}: \"{text}\" is no number")),
        Err(_) => Ok(default),
    };
    let (pods, nowhere, at_limit) = (number("PODS", 1_000)?, number("NOWHERE", 10_000)?, number("AT_LIMIT", 15_000)?);
    let all = Case::ALL.map(Case::key).join(",");
    let rows = std::env::var("ROWS").unwrap_or_else(|_| all.clone());
    let (waiting, rows): (Vec<&str>, Vec<&str>) = rows.split(',').partition(|row| *row == WAITING);
    let cases = rows
        .into_iter()
        .map(|row| {
            let case = Case::ALL.into_iter().find(|case| case.key() == row);
            case.with_context(|| format!("ROWS: there is no row \"{row}\"; write some of {all},{WAITING}"))
        })
        .collect::<anyhow::Result<Vec<Case>>>()?;
    let repository = repository();
    let binaries = Binaries::ensure(&repository, |line| println!("{line}")).await?;
    let muster = std::env::var_os("MUSTER").map_or_else(|| env!("CARGO_BIN_EXE_muster").into(), PathBuf::from);
    let bench = Bench { repository, binaries, muster };
    let (mut figures, mut missed) = (json!({"pods": pods}), Vec::new());
    for case in cases {
        let outcome = bench.run(case, pods).await.with_context(|| case.title(pods))?;
        println!("{}", case.title(pods));
        for line in outcome.lines() {
            println!("  {line}");
        }
        missed.extend(outcome.missed().into_iter().map(|what| format!("{}: {what}", case.key())));
        figures[case.key()] = outcome.json();
    }
    if !waiting.is_empty() {
        figures[WAITING] = waiting::run(&bench, nowhere, at_limit).await?;
    }
    if let Some(file) = std::env::var_os("JSON") {
        std::fs::write(&file, format!("{figures:#}\n")).with_context(|| format!("write {}", file.display()))?;
    }
    anyhow::ensure!(missed.is_empty(), "missed:\n{}", missed.join("\n"));
    Ok(())
}

impl Bench {
    /// A control plane, and a pool that has everything.
    async fn stack(&self) -> anyhow::Result<Stack> {
        let mut options = StackOptions::new(self.repository.clone(), self.binaries.clone(), self.muster.clone());
        options.measured = true;
        options.scenario = Some(cloud::scenario()?);
        options.controllers = &CONTROLLERS;
        let stack = Stack::start(options).await?;
        let client = stack.admin()?;
        stack.cluster.create_namespace(NAMESPACE).await?;
        cloud::create_system_node(&client).await?;
        cloud::create_pool(&client).await?;
        Ok(stack)
    }

    async fn run(&self, case: Case, pods: usize) -> anyhow::Result<Outcome> {
        let stack = self.stack().await?;
        let client = stack.admin()?;
        let count = case.count(pods);

        let before = cpu(&stack.cluster);
        let began = cloud::clock(&stack).await?;
        let started = Instant::now();
        let running = tokio::spawn(all_run(client.clone(), count, LONGEST));
        // Pods of Deployments are created by a controller, which takes its time.
        let creating = tokio::spawn(all_seen(client.clone(), watcher::Config::default(), count, LONGEST));
        let objects = case.objects(pods);
        send(&client, &objects).await?;
        let (created, _) = creating.await??;
        let created = created.duration_since(started);
        let (ran, running) = running.await??;
        anyhow::ensure!(running == count, "{running} pods of {count} ran\n{}", stack.cluster.report(60));
        let after = cpu(&stack.cluster);
        let memory = memory_of(&stack.cluster, Component::Muster(0), "VmHWM:");

        let mut nodes: Vec<Node> = Api::all(client.clone()).list(&ListParams::default()).await?.items;
        nodes.retain(|node| node.name_any() != cloud::SYSTEM);
        let placed: Vec<Pod> = Api::namespaced(client.clone(), NAMESPACE).list(&ListParams::default()).await?.items;
        let launched = cloud::launched(&stack, began).await?;
        let bound = cloud::bound(self, &stack, &placed).await?;
        let registrations = if case == Case::Nodes { Some(cloud::registrations(&stack, &nodes).await?) } else { None };
        let emptied = if case == Case::Mix { Some(emptying::run(&stack).await?) } else { None };
        drop(stack);
        let same = case.objects_alone(pods);
        let (stock, unplaced) = self.stock(&nodes, &same, count).await?;
        let joining = match &registrations {
            Some(registrations) => Some(self.joining(registrations, &same, count).await?),
            None => None,
        };
        Ok(Outcome {
            created,
            ran: ran.duration_since(started),
            stock,
            unplaced,
            joining,
            nodes: nodes.len(),
            launches: launched.launches,
            launched: launched.last,
            buckets: launched.buckets,
            launching: launched.launching,
            cost: launched.cost,
            bound,
            memory,
            cpu: [0, 1, 2, 3].map(|at| after[at].saturating_sub(before[at])),
            emptied,
        })
    }

    /// A control plane with kube-scheduler alone, and the controllers of the other one.
    async fn alone(&self) -> anyhow::Result<(TestCluster, Client)> {
        let mut options = ClusterOptions::new(&self.repository, self.binaries.clone());
        options.measured = true;
        options.run_controllers(&CONTROLLERS);
        let cluster = TestCluster::start(options).await?;
        let file = "default-scheduler.yaml";
        cluster.start_scheduler(&SchedulerOptions { file, ..SchedulerOptions::new(None) }).await?;
        cluster.create_namespace(NAMESPACE).await?;
        let client = cluster.client(muster::testbed::Identity::Admin)?;
        Ok((cluster, client))
    }

    /// The same pods, created in the same way, on the same nodes, which stand ready, by kube-scheduler alone.
    async fn stock(
        &self,
        nodes: &[Node],
        objects: &[(String, Value)],
        count: usize,
    ) -> anyhow::Result<(Duration, usize)> {
        let (_cluster, client) = self.alone().await?;
        create(&client, "/api/v1/nodes", nodes.iter().map(cloud::standing).collect()).await?;
        let looking = &client;
        eventually(DEADLINE, "all nodes to be untainted", || async move {
            let nodes: Vec<Node> = Api::all(looking.clone()).list(&ListParams::default()).await?.items;
            let taints = nodes.iter().filter_map(|node| node.spec.as_ref()?.taints.as_ref()).flatten();
            Ok::<_, kube::Error>((taints.count() == 0).then_some(()))
        })
        .await?;
        let started = Instant::now();
        let running = tokio::spawn(all_run(client.clone(), count, STUCK));
        send(&client, objects).await?;
        let (ran, placed) = running.await??;
        Ok((ran.duration_since(started), count - placed))
    }

    /// The same pods wait, and the same nodes register when they did, and get Ready: how long after the first of them the last pod runs.
    async fn joining(
        &self,
        nodes: &[(Duration, Node)],
        objects: &[(String, Value)],
        count: usize,
    ) -> anyhow::Result<Duration> {
        let (_cluster, client) = self.alone().await?;
        cloud::create_system_node(&client).await?;
        let running = tokio::spawn(all_run(client.clone(), count, LONGEST));
        send(&client, objects).await?;
        tokio::time::sleep(WAIT).await;
        let started = Instant::now();
        let come = nodes.iter().map(|(offset, node)| {
            let client = client.clone();
            async move {
                let (object, ready) = cloud::registering(node)?;
                tokio::time::sleep_until((started + *offset).into()).await;
                post(client.clone(), "/api/v1/nodes".to_owned(), serde_json::to_vec(&object)?).await?;
                tokio::time::sleep(cloud::unready()).await;
                let (params, ready) = (PatchParams::default(), Patch::Strategic(ready));
                Api::<Node>::all(client).patch_status(&node.name_any(), &params, &ready).await?;
                Ok::<_, anyhow::Error>(())
            }
        });
        futures::future::try_join_all(come).await?;
        let (ran, placed) = running.await??;
        anyhow::ensure!(placed == count, "{placed} pods of {count} ran");
        Ok(ran.duration_since(started))
    }
}

async fn send(client: &Client, objects: &[(String, Value)]) -> anyhow::Result<()> {
    let bodies: Vec<(String, Vec<u8>)> = objects
        .iter()
        .map(|(path, object)| Ok((path.clone(), serde_json::to_vec(object)?)))
        .collect::<anyhow::Result<_>>()?;
    futures::stream::iter(bodies)
        .map(Ok)
        .try_for_each_concurrent(CREATORS, |(path, body)| post(client.clone(), path, body))
        .await
}

/// When so many pods have been seen to run, or the last one before none followed for so long; and how many did.
async fn all_run(client: Client, count: usize, patience: Duration) -> anyhow::Result<(Instant, usize)> {
    all_seen(client, watcher::Config::default().fields("status.phase=Running"), count, patience).await
}

/// The same of all pods that a watch shows.
async fn all_seen(
    client: Client,
    config: watcher::Config,
    count: usize,
    patience: Duration,
) -> anyhow::Result<(Instant, usize)> {
    let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(client, NAMESPACE);
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut stream = watcher(pods, config).applied_objects().boxed();
    let mut last = Instant::now();
    while seen.len() < count {
        let Ok(next) = tokio::time::timeout(patience, stream.try_next()).await else { break };
        let Some(pod) = next? else { anyhow::bail!("the watch ended") };
        if seen.insert(pod.name_any()) {
            last = Instant::now();
        }
    }
    Ok((last, seen.len()))
}

impl Outcome {
    /// For how long pods were collected.
    fn window(&self) -> Duration {
        (self.created + IDLE).min(COLLECT)
    }

    /// When the last pod may run. Five hundred nodes have to wait for EC2's buckets, and for nothing else.
    fn allowed(&self) -> Duration {
        let after = match self.joining {
            Some(joining) => self.launching + cloud::registration() + joining * OF_STOCK / 100,
            None => cloud::boot() + self.stock * OF_STOCK / 100,
        };
        self.window() + after
    }

    /// When the last of five hundred nodes may be launched: they wait for EC2's buckets, and for nothing else.
    fn launch_allowed(&self) -> Duration {
        self.window() + AT_ONCE + self.buckets
    }

    /// Hundredths of a core, from the first request to the last pod.
    fn core(&self) -> u64 {
        self.cpu[3] * 1_000 / u64::try_from(self.ran.as_millis()).unwrap_or(u64::MAX).max(1)
    }

    fn percent_of_bound(&self) -> u64 {
        self.cost.saturating_mul(100).div_ceil(self.bound.max(1))
    }

    fn lines(&self) -> Vec<String> {
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        let dollars = |micros: u64| format!("${}.{:03}/h", micros / 1_000_000, micros % 1_000_000 / 1_000);
        let over = self.cost.saturating_sub(self.bound).saturating_mul(10_000) / self.bound.max(1);
        let mut lines = vec![format!(
            "the last pod runs after {} ({} allowed: pods are collected for {}, {})",
            seconds(self.ran),
            seconds(self.allowed()),
            seconds(self.window()),
            match self.joining {
                Some(joining) => format!(
                    "{} between launching calls, the first machine registers after {}, {OF_STOCK} % of the {} from there that kube-scheduler \
                     alone needs where the same nodes come; where they stand ready it needs {}",
                    seconds(self.launching),
                    seconds(cloud::registration()),
                    seconds(joining),
                    seconds(self.stock)
                ),
                None => format!(
                    "machines boot in {}, {OF_STOCK} % of the {} that kube-scheduler alone needs on the same nodes, which stand ready; it \
                     finds no node for {} pods",
                    seconds(cloud::boot()),
                    seconds(self.stock),
                    self.unplaced
                ),
            }
        )];
        lines.extend(self.joining.map(|_| {
            format!(
                "the last launch is called for after {} ({} allowed: EC2's buckets take {})",
                seconds(self.launched),
                seconds(self.launch_allowed()),
                seconds(self.buckets)
            )
        }));
        lines.extend([
            format!(
                "{} nodes in {} launches at {}, {}.{:02} % over the bound of {}",
                self.nodes,
                self.launches,
                dollars(self.cost),
                over / 100,
                over % 100,
                dollars(self.bound)
            ),
            format!(
                "muster: {} MiB at its peak ({MEMORY} allowed), 0.{:02} cores (0.{CORE} allowed); CPU seconds: API server {}, etcd {}, \
                 kube-scheduler {}, muster {}",
                self.memory,
                self.core(),
                self.cpu[0] / 100,
                self.cpu[1] / 100,
                self.cpu[2] / 100,
                self.cpu[3] / 100
            ),
        ]);
        lines.extend(self.emptied.map(|Emptied { took, allowed }| {
            format!("all pods deleted, the last node is gone after {} ({} allowed)", seconds(took), seconds(allowed))
        }));
        lines
    }

    /// What is more than allowed.
    fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        if self.ran > self.allowed() {
            missed.push(format!(
                "{:.1} s, and {:.1} s are allowed",
                self.ran.as_secs_f64(),
                self.allowed().as_secs_f64()
            ));
        }
        if self.joining.is_some() && self.launched > self.launch_allowed() {
            missed.push(format!(
                "launched after {:.1} s, and {:.1} s are allowed",
                self.launched.as_secs_f64(),
                self.launch_allowed().as_secs_f64()
            ));
        }
        if self.percent_of_bound() > OF_BOUND {
            missed.push(format!("{} % of the bound", self.percent_of_bound()));
        }
        if let Some(Emptied { took, allowed }) = self.emptied.filter(|emptied| emptied.took > emptied.allowed) {
            missed.push(format!(
                "nodes are gone after {:.1} s, and {:.1} s are allowed",
                took.as_secs_f64(),
                allowed.as_secs_f64()
            ));
        }
        if self.memory > MEMORY {
            missed.push(format!("{} MiB", self.memory));
        }
        if self.core() > CORE {
            missed.push(format!("{} hundredths of a core", self.core()));
        }
        missed
    }

    fn json(&self) -> Value {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        json!({
            "milliseconds": millis(self.ran),
            "allowedMilliseconds": millis(self.allowed()),
            "stockMilliseconds": millis(self.stock),
            "stockUnplaced": self.unplaced,
            "stockJoiningMilliseconds": self.joining.map(millis),
            "emptiedMilliseconds": self.emptied.map(|emptied| millis(emptied.took)),
            "launchedMilliseconds": millis(self.launched),
            "launchingMilliseconds": millis(self.launching),
            "nodes": self.nodes,
            "launches": self.launches,
            "usdMicroPerHour": self.cost,
            "boundUsdMicroPerHour": self.bound,
            "musterMemoryMiB": self.memory,
            "musterHundredthsOfACore": self.core(),
        })
    }
}
