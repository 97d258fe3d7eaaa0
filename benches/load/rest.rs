//! What Muster costs on a cluster that has much and asks for nothing: Jobs and pods of others, at rest.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use muster::testbed::workloads::{TestJob, TestPod};
use muster::testbed::{Component, Stack, eventually};
use serde_json::{Value, json};

use crate::Bench;
use crate::machine::{DEADLINE, NAMESPACE, create, memory_of, muster_at_rest, permille_of_muster};
use crate::place::create_nodes;

/// How long is measured.
const WINDOW: Duration = Duration::from_secs(60);
/// Hundredths of a second that Muster may use in a second before it counts as at rest.
const QUIET: u64 = 20;
/// What is allowed: resident memory in MiB, and thousandths of a core.
const MOST: (u64, u64) = (300, 50);

/// Waits until everything was read, and measures then.
pub(crate) async fn run(bench: &Bench, jobs: usize, pods: usize, nodes: usize) -> anyhow::Result<Value> {
    let stack = Stack::start(bench.options()).await?;
    let client = stack.admin()?;
    stack.cluster.create_namespace(NAMESPACE).await?;
    create_nodes(&client, nodes).await?;
    // Suspended, so that no controller works on them; with a template as people write them.
    let foreign: Vec<Job> = (0..jobs)
        .map(|number| {
            let mut job = TestJob::new(format!("j{number}"), 1).scheduler("default-scheduler").build();
            if let Some(spec) = &mut job.spec {
                spec.suspend = Some(true);
                let containers = spec.template.spec.iter_mut().flat_map(|pod| &mut pod.containers);
                for container in containers {
                    let values =
                        (0..20).map(|index| json!({"name": format!("SETTING_{index}"), "value": "x".repeat(64)}));
                    container.env = serde_json::from_value(values.collect()).ok();
                }
            }
            job
        })
        .collect();
    create(&client, &format!("/apis/batch/v1/namespaces/{NAMESPACE}/jobs"), foreign).await?;
    let bound: Vec<Pod> = (0..pods)
        .map(|number| {
            let mut pod = TestPod::new(format!("p{number}")).scheduler("default-scheduler").build();
            if let Some(spec) = &mut pod.spec {
                spec.node_name = Some(format!("n{}", number % nodes.max(1)));
            }
            pod
        })
        .collect();
    create(&client, &format!("/api/v1/namespaces/{NAMESPACE}/pods"), bound).await?;
    // The nodes' kubelets are simulated: a pod that has not begun to run yet is one that still changes.
    let cluster = &stack.cluster;
    let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    eventually(DEADLINE, "every pod to run", || async {
        let others = ListParams::default().fields("status.phase!=Running").limit(1);
        Ok::<_, kube::Error>(api.list_metadata(&others).await?.items.is_empty().then_some(()))
    })
    .await?;
    muster_at_rest(cluster, QUIET, 5).await?;
    let permille = permille_of_muster(cluster, WINDOW).await;
    let (resident, peak) =
        (memory_of(cluster, Component::Muster(0), "VmRSS:"), memory_of(cluster, Component::Muster(0), "VmHWM:"));
    println!(
        "{jobs} Jobs and {pods} pods of others on {nodes} nodes, at rest: muster {resident} MiB resident ({} allowed), {peak} \
         MiB at its peak, {}.{} % of a core ({} allowed)",
        MOST.0,
        permille / 10,
        permille % 10,
        MOST.1 / 10
    );
    anyhow::ensure!(resident <= MOST.0 && permille <= MOST.1, "more than is allowed");
    Ok(json!({
        "jobs": jobs,
        "pods": pods,
        "nodes": nodes,
        "residentMiB": resident,
        "peakMiB": peak,
        "permilleOfACore": permille,
    }))
}
