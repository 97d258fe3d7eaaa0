//! What kubelet and cloud controller do, for machines that exist only in the simulator: a Node for every running
//! instance, gone with the instance.
//!
//! The Node is what the machine's user data says it would register as, plus what cloud-provider-aws writes: zone,
//! network layers, provider id. It reports once that it is ready; kwok plays the kubelet from there on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use muster_api::keys;
use muster_ec2_sim::view::InstanceView;
use muster_ec2_sim::{NodeTopology, Simulator};
use serde::Deserialize;
use serde_json::json;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::testbed::nodes::{TestNode, is_ready, not_ready, ready_status};

/// Label of the nodes the fake made, so that it removes no others.
pub const FAKE_KUBELET: &str = "fake-kubelet.muster.dev/simulated";
/// Label of a pool whose nodes register without devices: somebody else plays the device plugins.
pub const DEVICES_BY_PLUGIN: &str = "example.com/devices-by-plugin";
/// Label of a pool whose kubelets leave so many percent of the memory to pods.
pub const MEMORY_PERCENT: &str = "example.com/memory-percent";
/// Label of a pool whose nodes have so many percent of the memory that their type is sold with.
pub const CAPACITY_PERCENT: &str = "example.com/memory-capacity-percent";
/// Machines that register at a time.
const KUBELETS: usize = 32;
/// Real time between two looks at the simulator, which runs on a clock of its own.
const TICK: Duration = Duration::from_millis(100);

/// Registers and removes nodes until cancelled.
pub async fn run(client: Client, simulator: Arc<Simulator>, cancel: CancellationToken) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client);
    let mut registered: BTreeMap<String, Registered> = BTreeMap::new();
    let mut unanswered: BTreeMap<String, BackOff> = BTreeMap::new();
    for node in nodes.list(&ListParams::default().labels(FAKE_KUBELET)).await.context("list simulated nodes")? {
        if let Some(id) = node.labels().get(FAKE_KUBELET) {
            registered.insert(id.clone(), Registered { name: node.name_any(), reported: is_ready(&node) });
        }
    }
    // Each machine has a kubelet of its own: none waits for what the API server answers to another.
    let mut under_way = FuturesUnordered::new();
    let mut busy: BTreeSet<String> = BTreeSet::new();
    let mut looks = tokio::time::interval(TICK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            Some(done) = under_way.next() => {
                let Done { instance, next, answer } = done;
                busy.remove(&instance.instance_id);
                match answer {
                    Ok(()) => {
                        let (instance, name) = (instance.instance_id, instance.private_dns_name);
                        debug!(instance, node = name, ready = next.reports, "node registered");
                        registered.insert(instance, Registered { name, reported: next.reports });
                    }
                    Err(error) => {
                        warn!(instance = instance.instance_id, error = %crate::telemetry::chain(&error), "node not registered")
                    }
                }
                continue;
            }
            _ = looks.tick() => {}
        }
        let mut machines = simulator.machines();
        // Instances that EC2 did not show come after those it was not asked about yet: a full bucket has a single call.
        machines.sort_by_key(|machine| unanswered.contains_key(&machine.instance_id));
        // EC2's bucket is empty: nobody else asks in this look.
        let mut throttled = false;
        for machine in &machines {
            let id = &machine.instance_id;
            if busy.len() >= KUBELETS {
                break;
            }
            // A kubelet may be slow, or never come up.
            let is_over = |at: Option<Timestamp>| at.is_some_and(|at| at <= simulator.clock().now());
            let ready = is_over(machine.ready_time);
            let next = match registered.get(id) {
                _ if busy.contains(id) => continue,
                Some(node) if ready && !node.reported => Next { registers: false, reports: true },
                None if is_over(machine.registration_time) => Next { registers: true, reports: ready },
                _ => continue,
            };
            // For these types the cloud controller asks for the topology of each new node, and does not let the node
            // begin without an answer.
            if next.registers && asks_for_topology(&machine.instance_type) {
                let now = simulator.clock().now();
                if throttled || unanswered.get(id).is_some_and(|back_off| now < back_off.until) {
                    continue;
                }
                match simulator.topology_for_node(id) {
                    NodeTopology::Known(_) => {}
                    NodeTopology::Throttled => {
                        throttled = true;
                        continue;
                    }
                    NodeTopology::Refused => {
                        unanswered.entry(id.clone()).or_insert_with(|| BackOff::first(now)).double(now);
                        continue;
                    }
                }
                unanswered.remove(id);
            }
            let Some(instance) = simulator.instance(id) else { continue };
            busy.insert(id.clone());
            let nodes = nodes.clone();
            under_way.push(async move {
                let answer = go_on(&nodes, &instance, next).await;
                Done { instance, next, answer }
            });
        }
        let running: BTreeSet<&str> = machines.iter().map(|machine| machine.instance_id.as_str()).collect();
        let gone: Vec<String> = registered.keys().filter(|id| !running.contains(id.as_str())).cloned().collect();
        for id in gone {
            let Some(node) = registered.remove(&id) else { continue };
            match nodes.delete(&node.name, &DeleteParams::default()).await {
                Ok(_) => info!(instance = id, node = node.name, "node removed with its instance"),
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => {
                    warn!(node = node.name, %error, "node not removed, tried again");
                    registered.insert(id, node);
                }
            }
        }
    }
}

/// A Node that stands for a machine.
#[derive(Debug)]
struct Registered {
    name: String,
    /// That it is Ready.
    reported: bool,
}

/// What a kubelet does next.
#[derive(Debug, Clone, Copy)]
struct Next {
    registers: bool,
    /// That the node is Ready.
    reports: bool,
}

/// What came of it.
#[derive(Debug)]
struct Done {
    instance: InstanceView,
    next: Next,
    answer: anyhow::Result<()>,
}

/// When the cloud controller asks again about an instance that EC2 does not show. Each has a pause of its own that doubles,
/// so that one without an answer takes no other's turn.
#[derive(Debug)]
struct BackOff {
    pause: SignedDuration,
    until: Timestamp,
}

impl BackOff {
    const LONGEST: SignedDuration = SignedDuration::from_mins(5);

    fn first(now: Timestamp) -> Self {
        Self { pause: SignedDuration::from_millis(500), until: now }
    }

    fn double(&mut self, now: Timestamp) {
        self.pause = self.pause.saturating_mul(2).min(Self::LONGEST);
        self.until = now.saturating_add(self.pause).unwrap_or(Timestamp::MAX);
    }
}

/// Whether the cloud controller asks about nodes of this type: `^(hpc|trn|p)[0-9]+`.
fn asks_for_topology(instance_type: &str) -> bool {
    let letters = instance_type.trim_start_matches(|c: char| c.is_ascii_lowercase());
    let family = instance_type.strip_suffix(letters).unwrap_or_default();
    matches!(family, "hpc" | "trn" | "p") && letters.starts_with(|c: char| c.is_ascii_digit())
}

async fn go_on(nodes: &Api<Node>, instance: &InstanceView, next: Next) -> anyhow::Result<()> {
    let mut node = node_of(instance)?;
    if next.registers {
        if !next.reports {
            let status = NodeStatus { conditions: Some(vec![not_ready()]), ..node.status.take().unwrap_or_default() };
            node.status = Some(status);
        }
        match nodes.create(&PostParams::default(), &node).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error.into()),
        }
    }
    if next.reports {
        // A kubelet does so once. kwok would for every event of before its own report, and where hundreds of nodes come at once that is
        // twice and more for each of them.
        let status = Patch::Strategic(json!({"status": ready_status(&node, &instance.private_ip)}));
        match nodes.patch_status(&instance.private_dns_name, &PatchParams::default(), &status).await {
            Ok(_) => {}
            // Somebody deleted it: a kubelet registers once.
            Err(kube::Error::Api(status)) if status.code == 404 && !next.registers => {}
            Err(error) => return Err(error).context("report that it is ready"),
        }
    }
    Ok(())
}

/// What it registers as.
fn node_of(instance: &InstanceView) -> anyhow::Result<Node> {
    let config = node_config(instance)?;
    let labels = || config.spec.kubelet.flags.iter().filter_map(|flag| flag.strip_prefix("--node-labels="));
    let percent = |of: &str| {
        let mut pairs = labels().flat_map(|labels| labels.split(',')).filter_map(|label| label.split_once('='));
        pairs.find(|(key, _)| *key == of).and_then(|(_, value)| value.parse().ok()).unwrap_or(100)
    };
    let memory_mib = instance.memory_mib.saturating_mul(percent(CAPACITY_PERCENT)) / 100;
    let for_pods_mib = memory_mib.saturating_mul(percent(MEMORY_PERCENT)) / 100;
    let mut node = TestNode::new(&instance.private_dns_name)
        .zone(&instance.zone)
        .instance_type(&instance.instance_type)
        .provider_id(format!("aws:///{}/{}", instance.zone, instance.instance_id))
        .label(FAKE_KUBELET, &instance.instance_id)
        .label(keys::ZONE_ID, &instance.zone_id)
        .resource("cpu", &instance.vcpus.to_string())
        .resource("memory", &format!("{memory_mib}Mi"))
        .allocatable("memory", &format!("{for_pods_mib}Mi"));
    for (index, layer) in instance.network_nodes.iter().enumerate() {
        node = node.label(&format!("{}{}", keys::NETWORK_LAYER_PREFIX, index + 1), layer);
    }
    let by_plugin = labels().flat_map(|labels| labels.split(',')).any(|label| label.starts_with(DEVICES_BY_PLUGIN));
    node = node.gpus(0).efa(if by_plugin { 0 } else { u32::try_from(instance.efa_interfaces).unwrap_or(u32::MAX) });
    if let (Some(resource), true) = (&instance.gpu_resource, instance.gpus > 0 && !by_plugin) {
        node = node.resource(resource, &instance.gpus.to_string());
    }
    for flag in labels() {
        for (key, value) in flag.split(',').filter_map(|label| label.split_once('=')) {
            node = node.label(key, value);
        }
    }
    for taint in &config.spec.kubelet.config.register_with_taints {
        node = node.taint(&taint.key, Some(taint.value.as_str()).filter(|value| !value.is_empty()), &taint.effect);
    }
    Ok(node.build())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NodeConfig {
    spec: NodeConfigSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NodeConfigSpec {
    kubelet: Kubelet,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Kubelet {
    config: KubeletConfig,
    flags: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct KubeletConfig {
    register_with_taints: Vec<RegisteredTaint>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RegisteredTaint {
    key: String,
    value: String,
    effect: String,
}

/// The last NodeConfig of the user data: nodeadm merges in order, and ours comes last.
fn node_config(instance: &InstanceView) -> anyhow::Result<NodeConfig> {
    let Some(encoded) = &instance.user_data else { return Ok(NodeConfig::default()) };
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).context("user data is not base64")?;
    let text = String::from_utf8(bytes).context("user data is not text")?;
    let Some(last) =
        text.rsplit("Content-Type: application/node.eks.aws").next().filter(|part| part.len() < text.len())
    else {
        return Ok(NodeConfig::default());
    };
    let yaml = last.split("\n--//").next().unwrap_or_default();
    serde_saphyr::from_str(yaml.trim()).map_err(|error| anyhow::anyhow!("node configuration of the user data: {error}"))
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::{BackOff, asks_for_topology};

    #[test]
    fn a_node_without_an_answer_is_asked_about_after_pauses_that_double_up_to_five_minutes() {
        let now = Timestamp::UNIX_EPOCH;
        let mut back_off = BackOff::first(now);
        let mut pause = || {
            back_off.double(now);
            back_off.until.duration_since(now)
        };
        assert_eq!([pause(), pause(), pause()], [1, 2, 4].map(SignedDuration::from_secs));
        assert_eq!((0..20).map(|_| pause()).last(), Some(BackOff::LONGEST));
    }

    #[test]
    fn the_cloud_controller_asks_about_accelerated_and_hpc_types_alone() {
        for instance_type in ["p5.48xlarge", "p6-b200.48xlarge", "trn2.48xlarge", "hpc7a.96xlarge"] {
            assert!(asks_for_topology(instance_type), "{instance_type}");
        }
        for instance_type in ["m5.2xlarge", "g6e.48xlarge", "inf2.48xlarge", ""] {
            assert!(!asks_for_topology(instance_type), "{instance_type}");
        }
    }
}
