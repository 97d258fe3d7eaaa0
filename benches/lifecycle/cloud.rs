//! The simulated EC2, the pool, what was launched there, and what the planner proves about it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use muster::fake_kubelet::FAKE_KUBELET;
use muster::testbed::nodes::{KWOK_NODE, KWOK_NODE_FAKE, TestNode, not_ready, ready_status};
use muster::testbed::{Stack, eventually, pools};
use muster_api::crd::{EC2NodeClass, NodeBatch, NodePool};
use muster_core::batch::micros;
use muster_ec2_sim::scenario::Delays;
use muster_ec2_sim::{MarketType, Scenario};
use serde_json::{Value, json};

use crate::Bench;
use crate::machine::DEADLINE;

/// Types of the pool: all of general use that the simulator knows.
const TYPES: [&str; 6] = ["c6i.large", "c7i.8xlarge", "m5.2xlarge", "m5.8xlarge", "m7i.8xlarge", "r7i.8xlarge"];
const ZONES: [&str; 3] = ["us-east-1a", "us-east-1b", "us-east-1c"];
/// Seconds from a launch until EC2 says `running`, how much that differs, until the node registers, and until it is Ready.
const BOOT: [f64; 4] = [10.0, 3.0, 1.0, 4.0];

/// How long the slowest machine takes.
pub(crate) fn boot() -> Duration {
    Duration::from_secs_f64(BOOT.iter().sum())
}

/// When the first of many machines registers.
pub(crate) fn registration() -> Duration {
    let [running, _, registration, _] = BOOT;
    Duration::from_secs_f64(running + registration)
}

/// For how long a node that registered is not Ready.
pub(crate) fn unready() -> Duration {
    let [.., ready] = BOOT;
    Duration::from_secs_f64(ready)
}

/// More than enough of everything, in real time, with EC2's buckets.
pub(crate) fn scenario() -> anyhow::Result<Value> {
    let mut scenario = Scenario::default();
    for instance_type in TYPES {
        for zone in ZONES {
            scenario = scenario.with_pool(instance_type, zone, MarketType::OnDemand, 1, 1, 1_000);
        }
    }
    let [boot_seconds, boot_jitter_seconds, registration_seconds, ready_seconds] = BOOT;
    scenario.delays =
        Delays { boot_seconds, boot_jitter_seconds, registration_seconds, ready_seconds, ..Delays::default() };
    Ok(serde_json::to_value(scenario)?)
}

/// What tells nodes of the pool with a limit from others.
pub(crate) const TIER: &str = "example.com/tier";
pub(crate) const LIMITED: &str = "limited";

/// Creates class and pool, and waits until they can be used.
pub(crate) async fn create_pool(client: &Client) -> anyhow::Result<()> {
    let (class, _) = pools::p5("30s")?;
    let pool = pool("general", &class.name_any(), &json!({}), 1_000)?;
    pools::create(client, &class, &pool).await?;
    ready(client, "general").await
}

/// Creates a pool of two nodes at most, of the same class.
pub(crate) async fn create_limited_pool(client: &Client) -> anyhow::Result<()> {
    let (class, _) = pools::p5("30s")?;
    let pool = pool(LIMITED, &class.name_any(), &json!({TIER: LIMITED}), 2)?;
    Api::<NodePool>::all(client.clone()).create(&PostParams::default(), &pool).await?;
    ready(client, LIMITED).await
}

fn pool(name: &str, class: &str, labels: &Value, nodes: u32) -> anyhow::Result<NodePool> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "limits": {"nodes": nodes},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeClassRef": {"group": "muster.dev", "kind": "EC2NodeClass", "name": class},
                    "requirements": [
                        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": TYPES},
                        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ZONES},
                        {"key": "muster.dev/capacity-type", "operator": "In", "values": ["on-demand"]},
                    ],
                },
            },
            "disruption": {"consolidateAfter": "1h"},
        },
    }))?)
}

async fn ready(client: &Client, name: &str) -> anyhow::Result<()> {
    eventually(DEADLINE, "the pool to be ready", || async move {
        let pool = Api::<NodePool>::all(client.clone()).get(name).await?;
        let conditions = pool.status.unwrap_or_default().conditions;
        Ok::<_, kube::Error>(muster_api::crd::is_true(&conditions, "Ready").then_some(()))
    })
    .await?;
    Ok(())
}

/// The node on which the control plane's pods run: Muster's own too. kube-scheduler tries pods of a cluster without any node once a
/// second, and not when a node comes.
pub(crate) const SYSTEM: &str = "system";

/// Creates that node, which takes none of the pods.
pub(crate) async fn create_system_node(client: &Client) -> anyhow::Result<()> {
    let node = TestNode::new(SYSTEM).instance_type("m5.large").gpus(0).efa(0);
    let node = node.taint("CriticalAddonsOnly", Some("true"), "NoSchedule").build();
    let nodes = Api::<Node>::all(client.clone());
    nodes.create(&PostParams::default(), &node).await?;
    Ok(eventually(DEADLINE, "the system node to be ready", || {
        let nodes = nodes.clone();
        async move {
            let taints = nodes.get(SYSTEM).await?.spec.and_then(|spec| spec.taints).unwrap_or_default();
            Ok::<_, kube::Error>((taints.len() == 1).then_some(()))
        }
    })
    .await?)
}

/// What was launched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launched {
    pub(crate) launches: usize,
    /// From the beginning to the last launching call, and how long EC2's buckets keep as many changing calls from coming before.
    pub(crate) last: Duration,
    pub(crate) buckets: Duration,
    /// Between the first launching call and the last one.
    pub(crate) launching: Duration,
    /// Micro-dollars per hour.
    pub(crate) cost: u64,
}

/// EC2's time.
pub(crate) async fn clock(stack: &Stack) -> anyhow::Result<Timestamp> {
    let clock: Value = stack.sim("/_sim/clock").await?;
    clock["now"].as_str().and_then(|now| now.parse().ok()).with_context(|| format!("no time: {clock}"))
}

/// Calls that change something, of which EC2 takes so many at once and then so many a second.
/// See <https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html>.
const CHANGING: [u32; 2] = [50, 5];

/// From EC2's journal since it `began`, and from what the NodeBatches say.
pub(crate) async fn launched(stack: &Stack, began: Timestamp) -> anyhow::Result<Launched> {
    let journal: Vec<Value> = stack.sim("/_sim/journal?from=0").await?;
    let time = |entry: &Value| entry["at"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
    let launched = journal.iter().filter(|entry| entry["operation"] == "CreateFleet" && entry["replayed"] == false);
    let real = launched.filter(|entry| entry["parameters"]["DryRun"] != "true" && entry["code"].is_null());
    let at: Vec<Timestamp> = real.filter_map(time).collect();
    let (first, last) = (at.iter().min().context("nothing was launched")?, at.iter().max().context("nothing")?);
    let reads = |entry: &Value| {
        entry["operation"].as_str().is_some_and(|name| name.starts_with("Describe") || name.starts_with("Get"))
    };
    let changing = journal.iter().filter(|entry| !reads(entry));
    let before = changing.filter_map(time).filter(|at| (began..=*last).contains(at)).count();
    let [burst, refill] = CHANGING;
    let over = u32::try_from(before).unwrap_or(u32::MAX).saturating_sub(burst);
    let batches = Api::<NodeBatch>::all(stack.admin()?).list(&ListParams::default()).await?;
    let price = |batch: &NodeBatch| micros(batch.status.as_ref()?.price_per_hour.as_deref()?);
    Ok(Launched {
        launches: at.len(),
        last: Duration::try_from(last.duration_since(began)).unwrap_or_default(),
        buckets: Duration::from_secs(1) * over / refill,
        launching: Duration::try_from(last.duration_since(*first)).unwrap_or_default(),
        cost: batches.iter().filter_map(price).sum(),
    })
}

/// What `muster plan` proves that nodes for these pods cost at least, in micro-dollars per hour.
pub(crate) async fn bound(bench: &Bench, stack: &Stack, pods: &[Pod]) -> anyhow::Result<u64> {
    let client = stack.admin()?;
    let mut items: Vec<Value> = pods.iter().map(unplaced).collect();
    for item in &mut items {
        // Of our profile again, and pending.
        item["spec"]["schedulerName"] = json!("muster");
        item["status"] = json!({"phase": "Pending"});
    }
    for pool in Api::<NodePool>::all(client.clone()).list(&ListParams::default()).await? {
        items.push(serde_json::to_value(pool)?);
    }
    for mut class in Api::<EC2NodeClass>::all(client).list(&ListParams::default()).await? {
        // How much memory these types have was not known when the nodes were planned.
        if let Some(status) = &mut class.status {
            status.memory.clear();
        }
        items.push(serde_json::to_value(class)?);
    }
    let facts = bench.repository.join("crates/ec2-sim/src/fixtures/instance-types.json");
    let facts = std::fs::read(&facts).with_context(|| format!("read {}", facts.display()))?;
    let facts: Value = serde_json::from_slice(&facts)?;
    let known = TYPES.map(|name| (name, &facts["types"][name]));
    let machine = |(name, of): (&str, &Value)| {
        json!({
            "name": name, "vcpu": of["vcpus"], "memoryMib": of["memoryMib"],
            "ipv4PerInterface": of["network"]["ipv4PerInterface"],
            "networkCards": [{"index": 0, "kinds": ["interface"], "maxInterfaces": of["network"]["interfaces"]}],
            "supportsClusterGroup": true, "usageClasses": ["on-demand"], "architectures": of["architectures"],
        })
    };
    let price = |(name, of): (&str, &Value)| json!({"type": name, "usdMicroPerHour": of["microUsdPerHour"]});
    let catalogue = json!({"types": known.map(machine), "prices": known.map(price)});
    let write = |name: &str, value: &Value| {
        let path = stack.cluster.folder().join(name);
        std::fs::write(&path, value.to_string()).with_context(|| format!("write {}", path.display())).map(|()| path)
    };
    let dump = write("dump.json", &json!({"apiVersion": "v1", "kind": "List", "items": items}))?;
    let catalogue = write("catalogue.json", &catalogue)?;
    let answer = tokio::process::Command::new(&bench.muster)
        .args(["plan", "-o", "json", "-f"])
        .arg(dump)
        .arg("--catalogue")
        .arg(catalogue)
        .output()
        .await?;
    let document: Value = serde_json::from_slice(&answer.stdout)
        .with_context(|| format!("muster plan: {}", String::from_utf8_lossy(&answer.stderr)))?;
    document["cost"]["bound"].as_u64().with_context(|| format!("no bound: {}", document["cost"]))
}

/// The nodes, and how long after the first of them each registers, as EC2's machines booted.
pub(crate) async fn registrations(stack: &Stack, nodes: &[Node]) -> anyhow::Result<Vec<(Duration, Node)>> {
    let instances: Vec<Value> = stack.sim("/_sim/instances").await?;
    let registers = |instance: &Value| {
        Some((instance["privateDnsName"].as_str()?.to_owned(), instance["registrationTime"].as_str()?.parse().ok()?))
    };
    let at: BTreeMap<String, Timestamp> = instances.iter().filter_map(registers).collect();
    let first = at.values().min().context("no machine registers")?;
    let offset = |node: &Node| {
        let at = at.get(&node.name_any()).with_context(|| format!("no machine is node {}", node.name_any()))?;
        anyhow::Ok((Duration::try_from(at.duration_since(*first))?, node.clone()))
    };
    nodes.iter().map(offset).collect()
}

/// The node as its kubelet registers it, and what it reports when it is Ready: as the simulated machines do.
pub(crate) fn registering(node: &Node) -> anyhow::Result<(Value, Value)> {
    let mut object = standing(node);
    object["metadata"]["labels"][FAKE_KUBELET] = json!("none");
    object["status"]["conditions"] = json!([not_ready()]);
    Ok((object, json!({"status": ready_status(node, "127.0.0.1")})))
}

/// The node as one that was always there. No machine reports for it: kwok does.
pub(crate) fn standing(node: &Node) -> Value {
    let status = node.status.as_ref();
    let labels: BTreeMap<&String, &String> = node.labels().iter().filter(|(key, _)| *key != FAKE_KUBELET).collect();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": node.name_any(), "labels": labels, "annotations": {KWOK_NODE: KWOK_NODE_FAKE},
        },
        "status": {
            "capacity": status.map(|status| &status.capacity), "allocatable": status.map(|status| &status.allocatable),
        },
    })
}

/// The pod as it was created.
pub(crate) fn unplaced(pod: &Pod) -> Value {
    let spec = pod.spec.clone().unwrap_or_default();
    let containers: Vec<Value> = spec
        .containers
        .iter()
        .map(|container| json!({"name": container.name, "image": container.image, "resources": container.resources}))
        .collect();
    let labels: BTreeMap<&str, &str> = pod
        .labels()
        .iter()
        .filter(|(key, _)| !key.contains('/'))
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod.name_any(), "namespace": pod.namespace(), "labels": labels},
        "spec": {
            "schedulerName": "default-scheduler", "containers": containers, "affinity": spec.affinity,
            "topologySpreadConstraints": spec.topology_spread_constraints,
        },
    })
}
