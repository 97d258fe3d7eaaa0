//! One run: nodes, pods, the watch that sees them placed, CPU seconds meanwhile, and what the audit log proves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use muster::testbed::nodes::TestNode;
use muster::testbed::workloads::TestPod;
use muster::testbed::{Component, Identity, TestCluster, audit, eventually};
use serde_json::{Value, json};

use crate::GANG;
use crate::machine::{CREATORS, Cpu, DEADLINE, NAMESPACE, cpu, create, memory_of, post};
use crate::row::{Row, Who};

/// Nodes of a leaf, and of the leaves of a fragmented cluster in turn.
const LEAF: usize = 8;
const LEAVES: [usize; 3] = [8, 16, 32];
/// Leaves of a spine.
const SPINE: usize = 8;
const SPINE_KEY: &str = "topology.k8s.aws/network-node-layer-2";
const LEAF_KEY: &str = "topology.k8s.aws/network-node-layer-3";
/// What is in use before a run on a fragmented cluster.
const IN_USE: &str = "in-use";

/// What is to be placed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    pub(crate) row: Row,
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) pods: usize,
    pub(crate) took: Duration,
    pub(crate) cpu: Cpu,
    /// Leaves that the gangs of a run use, all together, and how many gangs there are.
    pub(crate) leaves: usize,
    pub(crate) gangs: usize,
    /// Of the gang that uses the most.
    pub(crate) most_leaves: usize,
    /// Bindings of the audit log.
    pub(crate) bindings: usize,
    /// Peak memory of Muster, in MiB.
    pub(crate) memory: u64,
    /// Changes that the API server made meanwhile: who asked for what, how often.
    pub(crate) writes: BTreeMap<String, usize>,
}

pub(crate) async fn run(cluster: &TestCluster, load: &Load) -> anyhow::Result<Outcome> {
    let client = cluster.client(Identity::Admin)?;
    cluster.create_namespace(NAMESPACE).await?;
    create_leaves(&client, load.nodes, load.row.fragmented).await?;
    if load.row.fragmented {
        cluster.create_namespace(IN_USE).await?;
        occupy(&client, load.nodes).await?;
    }
    let owner = if load.row.who.is_owned() { Some(owner(&client, load.pods).await?) } else { None };
    let bodies: Vec<(String, Vec<u8>)> = bodies(load, owner.as_ref())?;
    let before = cpu(cluster);
    let since = jiff::Timestamp::now();
    let started = Instant::now();
    let watching = tokio::spawn(all_placed(client.clone(), load.pods));
    let profiled =
        std::env::var_os("PROFILE").map(|folder| tokio::spawn(profile(client.clone(), folder.into(), load.row)));
    futures::stream::iter(bodies)
        .map(Ok)
        .try_for_each_concurrent(CREATORS, |(path, body)| post(client.clone(), path, body))
        .await?;
    tokio::time::timeout(DEADLINE, watching).await.context("not all pods got a node")???;
    let took = started.elapsed();
    let after = cpu(cluster);
    if let Some(profiled) = profiled {
        profiled.await??;
    }
    let memory = memory(cluster);
    let used = leaves_of_gangs(&client, load).await?;
    let entries = audit::read(&cluster.audit_log())?;
    if load.row.who.is_muster() {
        let torn = audit::torn_bindings(&entries, |_, pod| number_of(pod).map(|number| format!("g{}", number / GANG)));
        anyhow::ensure!(torn.is_empty(), "gangs were bound in part:\n{}", torn.join("\n"));
    }
    Ok(Outcome {
        pods: load.pods,
        took,
        cpu: [0, 1, 2, 3].map(|at| after[at].saturating_sub(before[at])),
        leaves: used.values().map(BTreeSet::len).sum(),
        gangs: used.len(),
        most_leaves: used.values().map(BTreeSet::len).max().unwrap_or_default(),
        bindings: entries.iter().filter(|entry| entry.is_binding()).count(),
        memory,
        writes: writes(&entries, since),
    })
}

fn writes(entries: &[audit::Entry], since: jiff::Timestamp) -> BTreeMap<String, usize> {
    let mut writes = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.received >= since && entry.namespace == NAMESPACE) {
        let slash = if entry.subresource.is_empty() { "" } else { "/" };
        let user = entry.user.rsplit(':').next().unwrap_or_default();
        let what = format!("{user} {} {}{slash}{} {}", entry.verb, entry.resource, entry.subresource, entry.code);
        *writes.entry(what).or_default() += 1;
    }
    writes
}

impl Outcome {
    pub(crate) fn per_second(&self) -> u64 {
        let pods = u128::try_from(self.pods).unwrap_or(u128::MAX) * 1_000;
        u64::try_from(pods / self.took.as_millis().max(1)).unwrap_or(u64::MAX)
    }

    /// Mean leaves per gang, in hundredths.
    pub(crate) fn mean_leaves(&self) -> u64 {
        u64::try_from(self.leaves * 100 / self.gangs.max(1)).unwrap_or(u64::MAX)
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "milliseconds": u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
            "podsPerSecond": self.per_second(),
            "cpuHundredths": {"apiserver": self.cpu[0], "etcd": self.cpu[1], "scheduler": self.cpu[2], "muster": self.cpu[3]},
            "leavesPerGangHundredths": self.mean_leaves(),
            "mostLeaves": self.most_leaves,
            "bindings": self.bindings,
            "musterMemoryMiB": self.memory,
            "writes": self.writes,
        })
    }
}

fn number_of(pod: &str) -> Option<usize> {
    pod.strip_prefix('p')?.parse().ok()
}

/// Requests in the order they are sent: path and body.
fn bodies(load: &Load, owner: Option<&Value>) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let who = load.row.who;
    // All pods fit, and no more.
    let gpus = u32::try_from((load.nodes * 8 / load.pods.max(1)).clamp(1, 8)).unwrap_or(8);
    // A leaf most of whose nodes are in use holds no gang, and neither may a leaf do where another level is preferred.
    let required = if load.row.fragmented || who == Who::Preferred { SPINE_KEY } else { LEAF_KEY };
    let mut bodies = Vec::with_capacity(load.pods + load.pods / GANG);
    for number in 0..load.pods {
        let gang = number / GANG;
        if who.is_native() && number % GANG == 0 {
            let group = json!({
                "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": format!("g{gang}")},
                "spec": {
                    "schedulingPolicy": {"gang": {"minCount": GANG.min(load.pods - number)}},
                    "schedulingConstraints": {"topology": [{"key": required}]},
                },
            });
            let path = format!("/apis/scheduling.k8s.io/v1beta1/namespaces/{NAMESPACE}/podgroups");
            bodies.push((path, serde_json::to_vec(&group)?));
        }
        let scheduler = if who.is_muster() { "muster" } else { "default-scheduler" };
        let mut pod = TestPod::new(format!("p{number}")).gpus(gpus).scheduler(scheduler);
        if who == Who::Preferred {
            pod = pod.annotation("muster.dev/topology-preferred", LEAF_KEY);
        } else if who.is_muster() {
            pod = pod
                .annotation("muster.dev/gang", &format!("g{gang}"))
                .annotation("muster.dev/gang-size", &GANG.min(load.pods - gang * GANG).to_string())
                .annotation("muster.dev/rank", &(number % GANG).to_string());
        }
        let mut pod = serde_json::to_value(pod.build())?;
        if let Some(owner) = owner {
            pod["metadata"]["ownerReferences"] = json!([owner]);
        }
        if who.is_native() {
            pod["spec"]["schedulingGroup"] = json!({"podGroupName": format!("g{gang}")});
        }
        bodies.push((format!("/api/v1/namespaces/{NAMESPACE}/pods"), serde_json::to_vec(&pod)?));
    }
    Ok(bodies)
}

/// The owner of all pods: a Job that ignores disruptions, and that no controller here looks after.
async fn owner(client: &Client, pods: usize) -> anyhow::Result<Value> {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "owner"},
        "spec": {
            "managedBy": "example.com/nobody", "parallelism": pods, "completions": pods,
            "podFailurePolicy": {
                "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}],
            },
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "train"}]}},
        },
    });
    let request = http::Request::post(format!("/apis/batch/v1/namespaces/{NAMESPACE}/jobs"))
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&job)?)?;
    let made: Value = serde_json::from_str(&client.request_text(request).await?)?;
    let uid = &made["metadata"]["uid"];
    Ok(json!({"apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": uid, "controller": true}))
}

/// Three of five nodes get a pod that takes all their GPUs, scattered, and all of them run.
async fn occupy(client: &Client, nodes: usize) -> anyhow::Result<()> {
    // 7 and 10 have no common divisor: of ten nodes in a row six are in use, and no two runs of them are alike.
    let used = (0..nodes).filter(|number| (number * 7 + number / 10 * 3) % 10 < 6);
    let pods = used.map(|number| {
        let mut pod = TestPod::new(format!("u{number}")).gpus(8).scheduler("default-scheduler").build();
        if let Some(spec) = &mut pod.spec {
            spec.node_name = Some(format!("n{number}"));
        }
        pod
    });
    create(client, &format!("/api/v1/namespaces/{IN_USE}/pods"), pods.collect()).await?;
    eventually(DEADLINE, "what is in use to run", || async move {
        let path = format!("/api/v1/namespaces/{IN_USE}/pods?fieldSelector=status.phase!%3DRunning&limit=1");
        let request = http::Request::get(path).body(Vec::new()).expect("a constant path is a valid URI");
        let left: Value =
            serde_json::from_str(&client.request_text(request).await?).map_err(kube::Error::SerdeError)?;
        Ok::<_, kube::Error>(left["items"].as_array().is_some_and(Vec::is_empty).then_some(()))
    })
    .await?;
    Ok(())
}

/// The leaf of a node.
fn leaf_of(number: usize, fragmented: bool) -> usize {
    if !fragmented {
        return number / LEAF;
    }
    let of_all: usize = LEAVES.iter().sum();
    let mut left = number % of_all;
    let within = LEAVES.iter().position(|size| {
        let here = left < *size;
        left = left.saturating_sub(*size);
        here
    });
    number / of_all * LEAVES.len() + within.unwrap_or_default()
}

/// Nodes of eight GPUs, eight to a leaf, ready to be used.
pub(crate) async fn create_nodes(client: &Client, count: usize) -> anyhow::Result<()> {
    create_leaves(client, count, false).await
}

async fn create_leaves(client: &Client, count: usize, fragmented: bool) -> anyhow::Result<()> {
    let nodes = (0..count).map(|number| {
        let leaf = leaf_of(number, fragmented);
        let (leaf, spine) = (format!("nn-{leaf}"), format!("nn-spine-{}", leaf / SPINE));
        TestNode::new(format!("n{number}")).layers(["nn-core", &spine, &leaf]).build()
    });
    create(client, "/api/v1/nodes", nodes.collect()).await?;
    eventually(DEADLINE, "all nodes to be untainted", || async move {
        let request = http::Request::get("/api/v1/nodes").body(Vec::new()).expect("a constant path is a valid URI");
        let text = client.request_text(request).await?;
        Ok::<_, kube::Error>((!text.contains("node.kubernetes.io/not-ready")).then_some(()))
    })
    .await?;
    Ok(())
}

/// What kube-apiserver does in the first seconds of a run.
async fn profile(client: Client, folder: PathBuf, row: Row) -> anyhow::Result<()> {
    let request = http::Request::get("/debug/pprof/profile?seconds=15").body(kube::client::Body::empty())?;
    let answer = client.send(request).await?.into_body().collect_bytes().await?;
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(format!("{}.pprof", row.key())), answer)?;
    Ok(())
}

/// Waits until so many pods have a node.
pub(crate) async fn all_placed(client: Client, count: usize) -> anyhow::Result<()> {
    let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(client, NAMESPACE);
    let bound = watcher::Config::default().fields("spec.nodeName!=");
    let mut placed: BTreeSet<String> = BTreeSet::new();
    let mut stream = watcher(pods, bound).applied_objects().boxed();
    while placed.len() < count {
        let Some(pod) = stream.try_next().await? else { anyhow::bail!("the watch ended") };
        placed.insert(pod.name_any());
    }
    Ok(())
}

/// Leaves by gang, or by what would be one.
async fn leaves_of_gangs(client: &Client, load: &Load) -> anyhow::Result<BTreeMap<usize, BTreeSet<usize>>> {
    let request = http::Request::get(format!("/api/v1/namespaces/{NAMESPACE}/pods")).body(Vec::new())?;
    let pods: Value = serde_json::from_str(&client.request_text(request).await?)?;
    let mut used: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for pod in pods["items"].as_array().into_iter().flatten() {
        let number = pod["metadata"]["name"].as_str().and_then(number_of).context("a pod of another name")?;
        let node = pod["spec"]["nodeName"].as_str().and_then(|node| node.strip_prefix('n'));
        let node: usize = node.and_then(|node| node.parse().ok()).context("a node of another name")?;
        used.entry(number / GANG).or_default().insert(leaf_of(node, load.row.fragmented));
    }
    anyhow::ensure!(used.len() == load.pods.div_ceil(GANG), "{} gangs have nodes", used.len());
    Ok(used)
}

/// Peak resident memory of Muster in MiB; 0 where it does not run.
pub(crate) fn memory(cluster: &TestCluster) -> u64 {
    memory_of(cluster, Component::Muster(0), "VmHWM:")
}
