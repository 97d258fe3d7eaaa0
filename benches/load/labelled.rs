//! What Muster remembers of a large cluster of services: labelled pods on many nodes, with their Deployments and claims.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use muster::testbed::nodes::TestNode;
use muster::testbed::workloads::TestPod;
use muster::testbed::{Component, Stack, pools};
use muster_ec2_sim::Scenario;
use serde_json::{Value, json};

use crate::Bench;
use crate::machine::{NAMESPACE, create, memory_of, muster_at_rest, permille_of_muster};

/// How long is measured.
const WINDOW: Duration = Duration::from_secs(60);
/// Hundredths of a second that Muster may use in a second before it counts as at rest.
const QUIET: u64 = 50;
/// What is allowed at the peak, in MiB.
const MOST: u64 = 1_024;

/// How much there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    pub(crate) deployments: usize,
    pub(crate) claims: usize,
}

/// Creates everything, waits until it was read, and measures then. Nobody plays the nodes' kubelets: their pods are bound, and begin
/// nothing.
pub(crate) async fn run(bench: &Bench, size: Size) -> anyhow::Result<Value> {
    let mut options = bench.options();
    options.scenario = Some(serde_json::to_value(Scenario::default())?);
    let stack = Stack::start(options).await?;
    let client = stack.admin()?;
    stack.cluster.create_namespace(NAMESPACE).await?;
    let (class, pool) = pools::p5("1h")?;
    pools::create(&client, &class, &pool).await?;
    let path = |group: &str, plural: &str| format!("/{group}/namespaces/{NAMESPACE}/{plural}");
    create(&client, "/api/v1/nodes", (0..size.nodes).map(node).collect()).await?;
    let deployments = (0..size.deployments).map(deployment).collect::<Result<Vec<Deployment>, _>>()?;
    create(&client, &path("apis/apps/v1", "deployments"), deployments).await?;
    let volumes = (0..size.claims).map(volume).collect::<Result<Vec<PersistentVolume>, _>>()?;
    create(&client, "/api/v1/persistentvolumes", volumes).await?;
    let claims = (0..size.claims).map(claim).collect::<Result<Vec<PersistentVolumeClaim>, _>>()?;
    create(&client, &path("api/v1", "persistentvolumeclaims"), claims).await?;
    let pods = (0..size.pods).map(|number| pod(number, size)).collect::<Result<Vec<Pod>, _>>()?;
    create(&client, &path("api/v1", "pods"), pods).await?;
    muster_at_rest(&stack.cluster, QUIET, 5).await?;
    let permille = permille_of_muster(&stack.cluster, WINDOW).await;
    let of = |what| memory_of(&stack.cluster, Component::Muster(0), what);
    let (resident, peak) = (of("VmRSS:"), of("VmHWM:"));
    let Size { nodes, pods, deployments, claims } = size;
    println!(
        "{pods} labelled pods of {deployments} Deployments on {nodes} nodes, {claims} claims: muster {resident} MiB resident, {peak} MiB at \
         its peak ({MOST} allowed), {}.{} % of a core at rest",
        permille / 10,
        permille % 10,
    );
    anyhow::ensure!(peak <= MOST, "more than is allowed");
    Ok(json!({
        "pods": pods,
        "deployments": deployments,
        "nodes": nodes,
        "claims": claims,
        "residentMiB": resident,
        "peakMiB": peak,
        "permilleOfACore": permille,
    }))
}

fn node(number: usize) -> Node {
    let mut node = TestNode::new(format!("n{number}")).instance_type("m5.8xlarge").gpus(0).efa(0).build();
    node.metadata.annotations = None;
    node
}

fn labels(number: usize) -> Value {
    json!({
        "app": format!("service-{number}"), "app.kubernetes.io/name": format!("service-{number}"),
        "app.kubernetes.io/part-of": format!("product-{}", number % 20), "app.kubernetes.io/version": format!("1.{number}.0"),
        "team": format!("team-{}", number % 40), "tier": (["web", "api", "worker"][number % 3]),
    })
}

fn deployment(number: usize) -> Result<Deployment, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": {"name": format!("service-{number}"), "labels": labels(number)},
        // Its pods are made here, and not by a controller.
        "spec": {"paused": true, "replicas": 0, "selector": {"matchLabels": {"app": format!("service-{number}")}}, "template": {
            "metadata": {"labels": labels(number)}, "spec": {"containers": [{"name": "main", "image": "service"}]},
        }},
    }))
}

fn volume(number: usize) -> Result<PersistentVolume, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": {"name": format!("pv-{number}")},
        "spec": {
            "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "gp3",
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": format!("vol-{number}")},
            "claimRef": {"namespace": NAMESPACE, "name": format!("data-{number}")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-1a"]},
            ]}]}},
        },
    }))
}

fn claim(number: usize) -> Result<PersistentVolumeClaim, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": {"name": format!("data-{number}")},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "gp3", "volumeName": format!("pv-{number}"),
            "resources": {"requests": {"storage": "10Gi"}},
        },
    }))
}

/// Bound, spread over hosts, with the owner that a Deployment's pods have; the first of them with a claim each.
fn pod(number: usize, size: Size) -> Result<Pod, serde_json::Error> {
    let service = number % size.deployments.max(1);
    let mut pod = TestPod::new(format!("p{number}")).request("cpu", "500m").request("memory", "1Gi").build();
    pod.metadata.labels = serde_json::from_value(labels(service))?;
    pod.metadata.owner_references = serde_json::from_value(json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("service-{service}-0"), "uid": format!("rs-{service}"),
        "controller": true,
    }]))?;
    if let Some(spec) = &mut pod.spec {
        spec.node_name = Some(format!("n{}", number % size.nodes.max(1)));
        spec.topology_spread_constraints = serde_json::from_value(json!([{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": format!("service-{service}")}},
        }]))?;
        if number < size.claims {
            spec.volumes = serde_json::from_value(json!([
                {"name": "data", "persistentVolumeClaim": {"claimName": format!("data-{number}")}},
            ]))?;
        }
    }
    Ok(pod)
}
