//! Members without a gate that wait on a busy cluster: kube-scheduler asks about them again and again. Beside that, how long a pod
//! of no gang takes from its creation to its node, while nobody waits and while they do.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use muster::testbed::request::request;
use muster::testbed::workloads::TestPod;
use muster::testbed::{Stack, eventually};
use serde_json::{Value, json};

use crate::Bench;
use crate::machine::{DEADLINE, NAMESPACE, cpu, create};
use crate::place::{all_placed, create_nodes};

/// How long is measured.
const WINDOW: Duration = Duration::from_secs(20);
/// Status updates of bound pods a second, each of which requeues every pod that an extender rejected.
const UPDATES: u64 = 18;
/// Pods of no gang that are timed, one after the other, and the pause between two.
const SINGLES: usize = 40;
const PAUSE: Duration = Duration::from_millis(250);

/// Gangs that wait for one member each, `members` pods in all, while bound pods change.
pub(crate) async fn run(bench: &Bench, members: usize, nodes: usize) -> anyhow::Result<Value> {
    let stack = Stack::start(bench.options()).await?;
    let client = stack.admin()?;
    stack.cluster.create_namespace(NAMESPACE).await?;
    create_nodes(&client, nodes).await?;
    // A cluster that adds no gate.
    let kubectl = stack.cluster.kubectl();
    let removed = std::process::Command::new(&kubectl.program)
        .args(&kubectl.args)
        .args(["delete", "-f"])
        .arg(bench.repository.join("manifests/admission-policy.yaml"))
        .output()?;
    anyhow::ensure!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    let probing = &client;
    eventually(DEADLINE, "pods to come without a gate", || async move {
        let pods: Api<Pod> = Api::namespaced(probing.clone(), NAMESPACE);
        let probe = TestPod::new("probe").annotation("muster.dev/gang", "probe").build();
        let pod = pods.create(&kube::api::PostParams { dry_run: true, ..Default::default() }, &probe).await?;
        let gates = pod.spec.and_then(|spec| spec.scheduling_gates).unwrap_or_default();
        Ok::<_, kube::Error>(gates.is_empty().then_some(()))
    })
    .await?;
    let bound: Vec<Pod> = (0..64).map(|number| TestPod::new(format!("busy{number}")).build()).collect();
    create(&client, &format!("/api/v1/namespaces/{NAMESPACE}/pods"), bound).await?;
    tokio::time::timeout(DEADLINE, all_placed(client.clone(), 64)).await??;
    let alone = singles(&client, "alone").await?;
    let asked_before = filter_calls(&stack).await?;
    let waiting: Vec<Pod> = (0..members)
        .map(|number| {
            TestPod::new(format!("w{number}"))
                .gpus(8)
                .annotation("muster.dev/gang", &format!("g{}", number / 8))
                .annotation("muster.dev/gang-size", "9")
                .build()
        })
        .collect();
    create(&client, &format!("/api/v1/namespaces/{NAMESPACE}/pods"), waiting).await?;
    let seen = &stack;
    eventually(DEADLINE, "every member to be asked about", || async move {
        let calls = filter_calls(seen).await.map_err(|error| error.to_string())?;
        Ok::<_, String>((calls - asked_before >= u64::try_from(members).unwrap_or(u64::MAX)).then_some(()))
    })
    .await?;

    let (calls, before) = (filter_calls(&stack).await?, cpu(&stack.cluster));
    let end = tokio::time::Instant::now() + WINDOW;
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / u32::try_from(UPDATES)?);
    let mut number: u64 = 0;
    while tokio::time::Instant::now() < end {
        ticks.tick().await;
        touch(&client, number).await?;
        number += 1;
    }
    let (calls, after) = (filter_calls(&stack).await? - calls, cpu(&stack.cluster));
    let touching = tokio::spawn({
        let client = client.clone();
        async move {
            for number in number.. {
                ticks.tick().await;
                touch(&client, number).await?;
            }
            anyhow::Ok(())
        }
    });
    let beside = singles(&client, "beside").await;
    touching.abort();
    let beside = beside?;
    let share = |at: usize| (after[at] - before[at]) * 10 / WINDOW.as_secs();
    let (scheduler, muster) = (share(2), share(3));
    println!(
        "{members} members wait on {nodes} nodes, {UPDATES} pods change a second: {} filter calls/s; kube-scheduler {}.{} %, \
         muster {}.{} % of a core",
        calls / WINDOW.as_secs(),
        scheduler / 10,
        scheduler % 10,
        muster / 10,
        muster % 10
    );
    for (when, times) in [("alone", &alone), ("beside them", &beside)] {
        let [median, slowest] = times;
        println!("a pod of no gang {when}: {median} ms to its node, the slowest of {SINGLES} {slowest} ms");
    }
    let figures = |[median, slowest]: [u64; 2]| json!({"medianMilliseconds": median, "slowestMilliseconds": slowest});
    Ok(json!({
        "single": {"alone": figures(alone), "beside": figures(beside)},
        "members": members,
        "nodes": nodes,
        "filterCallsPerSecond": calls / WINDOW.as_secs(),
        "permilleOfACore": {"scheduler": scheduler, "muster": muster},
    }))
}

/// From the creation of a pod of no gang to its node, in milliseconds: the median and the slowest.
async fn singles(client: &Client, name: &str) -> anyhow::Result<[u64; 2]> {
    let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(client.clone(), NAMESPACE);
    let placed = watcher::Config::default().fields("spec.nodeName!=").labels("example.com/timed=yes");
    let mut stream = watcher(pods, placed).applied_objects().boxed();
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let mut times = Vec::with_capacity(SINGLES);
    for number in 0..SINGLES {
        let one = format!("{name}{number}");
        let pod = TestPod::new(&one).label("example.com/timed", "yes").build();
        let started = Instant::now();
        let created = create(client, &path, vec![pod]);
        let seen = async {
            while let Some(pod) = stream.try_next().await? {
                if pod.name_any() == one {
                    return anyhow::Ok(started.elapsed());
                }
            }
            anyhow::bail!("the watch ended")
        };
        let both = async { tokio::try_join!(created, seen) };
        let ((), took) = tokio::time::timeout(DEADLINE, both).await??;
        times.push(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        tokio::time::sleep(PAUSE).await;
    }
    times.sort_unstable();
    Ok([times[times.len() / 2], times.last().copied().unwrap_or_default()])
}

async fn touch(client: &Client, number: u64) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let patch = json!({"status": {"message": format!("change {number}")}});
    pods.patch_status(&format!("busy{}", number % 64), &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

async fn filter_calls(stack: &Stack) -> anyhow::Result<u64> {
    let text = request(stack.http(), "GET", "/metrics", "").await?;
    let line = text
        .lines()
        .find(|line| line.starts_with("muster_extender_request_duration_seconds_count") && line.contains("\"filter\""));
    let Some(line) = line else { return Ok(0) };
    line.rsplit(' ').next().and_then(|count| count.parse().ok()).context("a count that is no number")
}
