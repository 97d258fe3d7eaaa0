//! What pods cost that wait and get nothing: those of a Deployment that fits nowhere, and those of one whose pool is at its limit. And
//! whether others get their nodes in time beside them.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, Client};
use muster::testbed::audit::{self, Entry};
use muster::testbed::nodes::is_ready;
use muster::testbed::{Component, Stack, eventually};
use serde_json::{Value, json};

use crate::case::spec;
use crate::machine::{DEADLINE, NAMESPACE, memory_of, muster_at_rest, permille_of_muster};
use crate::{Bench, IDLE, LONGEST, all_seen, cloud, send};

/// How long is measured.
const WINDOW: Duration = Duration::from_secs(120);
/// A second in which Muster uses fewer hundredths than these is one of rest. While kube-scheduler tries ten thousand pods, which is not
/// what is measured here, there are five to ten of them.
const QUIET: u64 = 5;
/// Pods that are served beside those who wait.
const SERVED: usize = 20;
/// What is allowed: thousandths of a core, events a minute, how long after the window nodes for others are decided on, and how long
/// after the window and the machines' boot they are ready.
const CORE: u64 = 10;
const EVENTS: u64 = 1;
const ROUND: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(2);

/// Muster while it waits: thousandths of a core, and its events in a minute.
async fn at_rest(stack: &Stack, client: &Client) -> anyhow::Result<(u64, u64)> {
    muster_at_rest(&stack.cluster, QUIET, 10).await?;
    let reported = events(client).await?;
    let permille = permille_of_muster(&stack.cluster, WINDOW).await;
    let more = events(client).await?.saturating_sub(reported);
    Ok((permille, (more * 60).div_ceil(WINDOW.as_secs())))
}

/// How often Muster has reported something. kube-scheduler reports under the name of its profile, which is the same.
async fn events(client: &Client) -> anyhow::Result<u64> {
    let all: Vec<Event> = Api::<Event>::all(client.clone()).list(&ListParams::default()).await?.items;
    let of_scheduler = |event: &Event| matches!(event.reason.as_deref(), Some("FailedScheduling" | "Scheduled"));
    let ours =
        all.iter().filter(|event| event.reporting_component.as_deref() == Some("muster") && !of_scheduler(event));
    let times = |event: &Event| event.series.as_ref().and_then(|series| series.count).or(event.count).unwrap_or(1);
    Ok(ours.map(|event| u64::try_from(times(event)).unwrap_or(1)).sum())
}

/// A Deployment, and until all of its pods are there.
async fn deploy(client: &Client, name: &str, replicas: usize, cpu: &str, more: &Value) -> anyhow::Result<()> {
    let labels = json!({"app": name});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec(cpu, "1Gi", more)},
        },
    });
    send(client, &[(format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments"), deployment)]).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let of = ListParams::default().labels(&format!("app={name}"));
    Ok(eventually(DEADLINE, "all pods of a Deployment to be created", || async {
        let tried = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.conditions.is_some());
        let pods = pods.list(&of).await?.items;
        // kube-scheduler has tried each once, or it has a node.
        Ok::<_, kube::Error>((pods.iter().filter(|pod| tried(pod)).count() == replicas).then_some(()))
    })
    .await?)
}

/// Sends the pods that are served.
async fn ask(client: &Client, name: &str) -> anyhow::Result<()> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let objects: Vec<(String, Value)> = (0..SERVED)
        .map(|number| {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("{name}{number}"), "labels": {"app": name}},
                "spec": spec("3500m", "20Gi", &json!({})),
            });
            (path.clone(), pod)
        })
        .collect();
    send(client, &objects).await
}

/// From the request for some pods to the last of them running.
async fn served(client: &Client, name: &str) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let these = watcher::Config::default().fields("status.phase=Running").labels(&format!("app={name}"));
    let running = tokio::spawn(all_seen(client.clone(), these, SERVED, LONGEST));
    ask(client, name).await?;
    let (ran, count) = running.await??;
    anyhow::ensure!(count == SERVED, "{count} of {SERVED} pods ran");
    Ok(ran.duration_since(started))
}

/// From the request for some pods to so many nodes more that are Ready. When their pods are bound is up to kube-scheduler, which tries
/// every pod of a crowd once more whenever a node comes that has the capacity for one of them, in the order of its queue.
async fn provisioned(client: &Client, name: &str, more: usize) -> anyhow::Result<Duration> {
    let before = ready_nodes(client).await?;
    let started = Instant::now();
    ask(client, name).await?;
    eventually(DEADLINE, "nodes to be ready", || async move {
        Ok::<_, kube::Error>((ready_nodes(client).await? >= before + more).then_some(()))
    })
    .await?;
    Ok(started.elapsed())
}

/// From the last of some pods to the last NodeBatch: what of [`provisioned`] is up to Muster. Source: the audit log.
fn decided(stack: &Stack, name: &str) -> anyhow::Result<Duration> {
    let entries = audit::read(&stack.cluster.audit_log())?;
    let made = |entry: &&Entry| entry.verb == "create" && entry.subresource.is_empty() && entry.succeeded();
    let of = |entry: &&Entry| entry.resource == "pods" && entry.namespace == NAMESPACE && entry.name.starts_with(name);
    let asked = entries.iter().filter(made).filter(of).map(|entry| entry.answered).max().context("no pod")?;
    let batches = entries.iter().filter(made).filter(|entry| entry.resource == "nodebatches");
    let last = batches.map(|entry| entry.received).max().filter(|at| *at > asked).context("no NodeBatch")?;
    Ok(last.duration_since(asked).unsigned_abs())
}

/// Nodes that are Ready and have no taint but one that is up to kube-controller-manager alone: every five seconds it looks for nodes that
/// are not Ready and taints one of a zone, not the next within ten seconds, and takes that off when it looks again.
/// Source: `--node-monitor-period` and `--node-eviction-rate`.
async fn ready_nodes(client: &Client) -> kube::Result<usize> {
    let nodes: Vec<Node> = Api::all(client.clone()).list(&ListParams::default()).await?.items;
    let is_tainted = |node: &Node| {
        let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        taints.any(|taint| (taint.key.as_str(), taint.effect.as_str()) != ("node.kubernetes.io/not-ready", "NoExecute"))
    };
    Ok(nodes.iter().filter(|node| is_ready(node) && !is_tainted(node)).count())
}

/// Runs the row with so many pods that fit nowhere, and so many that wait at a limit.
pub(crate) async fn run(bench: &Bench, nowhere: usize, at_limit: usize) -> anyhow::Result<Value> {
    let stack = bench.stack().await?;
    let client = stack.admin()?;
    cloud::create_limited_pool(&client).await?;
    let alone = served(&client, "alone").await?;
    let nodes = ready_nodes(&client).await?;
    deploy(&client, "nowhere", nowhere, "1000", &json!({})).await?;
    let (core, events) = at_rest(&stack, &client).await?;
    println!(
        "{nowhere} pods of a Deployment that fits nowhere, at rest: muster {}.{} % of a core ({} allowed), {events} events a minute \
         ({EVENTS} allowed)",
        core / 10,
        core % 10,
        CORE / 10
    );
    deploy(&client, "limited", at_limit, "900m", &json!({"nodeSelector": {cloud::TIER: cloud::LIMITED}})).await?;
    let (both, _) = at_rest(&stack, &client).await?;
    let beside = provisioned(&client, "beside", nodes).await?;
    let decided = decided(&stack, "beside")?;
    let allowed = IDLE + cloud::boot() + LATER;
    let memory = memory_of(&stack.cluster, Component::Muster(0), "VmHWM:");
    println!(
        "and {at_limit} pods whose pool is at its limit: muster {}.{} % of a core at rest, {memory} MiB at its peak; {nodes} nodes for {SERVED} other pods \
         are decided on {:.2} s after the last of these came ({} s allowed) and ready {:.1} s after the first ({} s allowed; the same pods ran after {:.1} s \
         before anybody waited)",
        both / 10,
        both % 10,
        decided.as_secs_f64(),
        (IDLE + ROUND).as_secs(),
        beside.as_secs_f64(),
        allowed.as_secs(),
        alone.as_secs_f64()
    );
    let in_time = decided <= IDLE + ROUND && beside <= allowed;
    anyhow::ensure!(core <= CORE && events <= EVENTS && in_time, "waiting: more than is allowed");
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Ok(json!({
        "nowhere": nowhere,
        "atLimit": at_limit,
        "permilleOfACore": core,
        "permilleOfACoreWithBoth": both,
        "eventsPerMinute": events,
        "aloneMilliseconds": millis(alone),
        "besideMilliseconds": millis(beside),
        "decidedMilliseconds": millis(decided),
        "musterMemoryMiB": memory,
    }))
}
