//! From instances to nodes a gang can use: running, registered, devices present, topology known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use kube::api::{Patch, PatchParams};
use muster_api::crd::NodeBatchStatus;
use muster_api::{keys, pool as rules};
use muster_core::cloud::{Efa, InstanceState, Purpose, efa_count, efa_layout};
use muster_core::gang::Phase;
use muster_core::names::{InstanceId, ObjectKey};
use muster_core::node::{Node, Taint};
use serde_json::json;
use tracing::{debug, warn};

use super::batch::{Next, later, owner_gone};
use super::store::Held;
use super::{Context, launch, pool};
use crate::cluster::State;
use crate::step::{Step, step};

/// Booked nodes nobody uses become idle after this. Source: `BookingExpired` of the upstream ProvisioningRequest.
const BOOKED_SECONDS: i64 = 600;

/// Waits until all instances run, then reads their place in the network once.
pub(super) async fn launched(context: &Context, held: &mut Held) -> anyhow::Result<Next> {
    let mut status = held.status();
    let now = context.clock.now();
    let ids = ids(&status);
    let seen = context.cloud.instances(&ids).await?;
    let dead: Vec<_> = seen.iter().filter(|instance| gone(instance.state)).collect();
    if let Some(first) = dead.first() {
        let why = first.state_reason.as_ref().map_or_else(|| "terminated".to_owned(), |reason| reason.code.clone());
        let why = format!("{} ended right after the launch: {why}", first.id);
        return launch::violated(context, held, &ids, &why).await;
    }
    if status.deadline.is_some_and(|deadline| deadline <= now) {
        return launch::violated(context, held, &ids, "not all instances were running in time").await;
    }
    let running = seen.iter().filter(|instance| instance.state == InstanceState::Running).count();
    if running < ids.len() {
        status.message = Some(format!("{running} of {} instances running", ids.len()));
        held.write(context, status).await?;
        return Ok(Next::Pause(later(now, 2)));
    }
    // Once per batch: DescribeInstanceTopology has the tightest budget of all calls.
    let group = status.placement_group.clone().filter(|_| held.attempt().is_some_and(|attempt| attempt.group));
    let topology = match context.cloud.topology(group.as_deref(), &ids).await {
        Ok(topology) => topology,
        Err(error) => {
            // Labels of the nodes tell the same later.
            debug!(error = %error, "topology not read; the nodes' labels will tell");
            BTreeMap::new()
        }
    };
    for instance in &mut status.instances {
        "Running".clone_into(&mut instance.state);
        if let Some(nodes) = topology.get(&InstanceId::from(instance.id.as_str())) {
            instance.network_nodes.clone_from(nodes);
        }
    }
    "Joining".clone_into(&mut status.phase);
    let within = join_within(context, &status);
    status.deadline = Some(now.saturating_add(within).unwrap_or(jiff::Timestamp::MAX));
    status.message = Some(format!("all {} instances running; waiting for their nodes", ids.len()));
    held.write(context, status).await?;
    Ok(Next::Now)
}

fn join_within(context: &Context, status: &NodeBatchStatus) -> jiff::SignedDuration {
    let state = context.cluster.load();
    let join = status.node_pool.as_ref().and_then(|name| state.pools.get(name)).map(|pool| pool.spec.join.clone());
    let join = join.unwrap_or_default();
    let register = pool::duration(&join.register_within).unwrap_or(jiff::SignedDuration::from_mins(15));
    let ready = pool::duration(&join.ready_within).unwrap_or(jiff::SignedDuration::from_mins(10));
    register.saturating_add(ready)
}

fn gone(state: InstanceState) -> bool {
    match state {
        InstanceState::ShuttingDown | InstanceState::Terminated | InstanceState::Stopping | InstanceState::Stopped => {
            true
        }
        InstanceState::Pending | InstanceState::Running | InstanceState::Unknown => false,
    }
}

/// Instance ids of the batch.
pub(super) fn ids(status: &NodeBatchStatus) -> Vec<InstanceId> {
    status.instances.iter().map(|instance| InstanceId::from(instance.id.as_str())).collect()
}

/// Nodes by instance id: the last part of the provider id.
pub(super) fn nodes_by_instance(state: &State) -> BTreeMap<String, Arc<Node>> {
    state
        .snapshot
        .nodes
        .values()
        .filter_map(|entry| {
            let id = entry.node.provider_id.as_deref()?.rsplit('/').next()?;
            id.starts_with("i-").then(|| (id.to_owned(), Arc::clone(&entry.node)))
        })
        .collect()
}

/// Matches nodes to instances and waits for devices and labels.
pub(super) async fn joining(context: &Context, held: &mut Held, state: &State) -> anyhow::Result<Next> {
    let mut status = held.status();
    let now = context.clock.now();
    let nodes = nodes_by_instance(state);
    let expected = expected(context, state, &status);
    let permanent: Vec<Taint> = status
        .node_pool
        .as_ref()
        .and_then(|name| state.pools.get(name))
        .and_then(|pool| rules::taints(pool).ok())
        .unwrap_or_default();
    let mut missing: BTreeMap<String, u32> = BTreeMap::new();
    let mut ready = 0;
    let late = late_labels(held, &status);
    let mut to_label = Vec::new();
    for instance in &mut status.instances {
        let Some(node) = nodes.get(&instance.id) else {
            *missing.entry("nodes".to_owned()).or_default() += 1;
            continue;
        };
        instance.node = Some(node.name.to_string());
        "Registered".clone_into(&mut instance.state);
        let mut lacks = lacks(node, &expected, &permanent, !instance.network_nodes.is_empty());
        // Pods of a booking select this label; the other late ones only inform.
        if let Some(uid) =
            late.get(keys::BOOKING).filter(|uid| node.labels.get(keys::BOOKING).is_none_or(|l| **l != ***uid))
        {
            debug!(node = %node.name, uid, "the label of the booking is still to be seen");
            lacks.push(format!("label {}", keys::BOOKING));
        }
        if late.iter().any(|(key, value)| node.labels.get(*key).is_none_or(|known| **known != **value)) {
            to_label.push(node.name.to_string());
        }
        if lacks.is_empty() {
            "Ready".clone_into(&mut instance.state);
            ready += 1;
        }
        for what in lacks {
            *missing.entry(what).or_default() += 1;
        }
    }
    status.ready_count = ready;
    label(context, &to_label, &late).await;
    if usize::try_from(ready).ok() == Some(status.instances.len()) {
        "Ready".clone_into(&mut status.phase);
        let booked = held.object.spec.gang_ref.is_none();
        status.deadline = booked.then(|| later(now, BOOKED_SECONDS));
        status.message = Some("all nodes ready; waiting for the gang".to_owned());
        held.write(context, status).await?;
        return Ok(Next::Now);
    }
    let lacking: Vec<String> = missing.iter().map(|(what, count)| format!("{count} × {what}")).collect();
    if let Some(deadline) = status.deadline.filter(|deadline| *deadline <= now) {
        let why = format!("not ready by {deadline}, missing {}", lacking.join(", "));
        return launch::violated(context, held, &ids(&status), &why).await;
    }
    status.message = Some(format!("{ready} of {} nodes ready, missing {}", status.instances.len(), lacking.join(", ")));
    held.write(context, status).await?;
    if dead_instance(context, held).await? {
        return Ok(Next::Now);
    }
    Ok(Next::At(later(now, 15)))
}

/// Rolls the batch back if one of its instances ended before it was used.
async fn dead_instance(context: &Context, held: &mut Held) -> anyhow::Result<bool> {
    // Every change of the cluster wakes the batch; EC2 is asked now and then only.
    let now = context.clock.now();
    if held.looked.is_some_and(|looked| now < later(looked, 15)) {
        return Ok(false);
    }
    held.looked = Some(now);
    let ids = ids(&held.status());
    let seen = context.cloud.instances(&ids).await?;
    let Some(dead) = seen.iter().find(|instance| gone(instance.state)) else { return Ok(false) };
    let why = format!("{} ended before it joined", dead.id);
    launch::violated(context, held, &ids, &why).await?;
    Ok(true)
}

/// Extended resources every node of the batch must offer.
fn expected(context: &Context, state: &State, status: &NodeBatchStatus) -> Vec<(String, i64)> {
    let catalogue = context.catalogue.load();
    let Some(info) = status.instance_type.as_ref().and_then(|name| catalogue.types.get(name)) else {
        return Vec::new();
    };
    let efa = status
        .node_pool
        .as_ref()
        .and_then(|name| state.pools.get(name))
        .and_then(|pool| pool::class_of(state, pool))
        .map_or(Efa::Auto, rules::efa);
    let layout = efa_layout(info, efa, Purpose::Gang, &[]);
    let efas = i64::from(efa_count(&layout));
    let allocatable = info.allocatable(&layout);
    [(keys::NVIDIA_GPU, allocatable.get(keys::NVIDIA_GPU)), (keys::EFA, efas)]
        .into_iter()
        .filter(|(_, amount)| *amount > 0)
        .map(|(name, amount)| (name.to_owned(), amount))
        .collect()
}

fn lacks(node: &Node, expected: &[(String, i64)], permanent: &[Taint], topology: bool) -> Vec<String> {
    let mut lacks = Vec::new();
    // Taints of the node lifecycle and of initialisation go by themselves; before that no member fits.
    for taint in &node.taints {
        if *taint.key != *keys::GANG_PENDING && !permanent.contains(taint) {
            lacks.push(format!("removal of taint {}", taint.key));
        }
    }
    if !node.ready {
        lacks.push("Ready".to_owned());
    }
    for (resource, amount) in expected {
        if node.allocatable.get(resource) < *amount {
            lacks.push(resource.clone());
        }
    }
    if !node.labels.contains_key(keys::ZONE) {
        lacks.push(keys::ZONE.to_owned());
    }
    let layer = format!("{}1", keys::NETWORK_LAYER_PREFIX);
    if topology && !node.labels.contains_key(layer.as_str()) {
        lacks.push(layer);
    }
    lacks
}

/// Labels that are known only after the launch, or that outlive it: a booking goes on with the batch that replaces one.
fn late_labels(held: &Held, status: &NodeBatchStatus) -> BTreeMap<&'static str, String> {
    let mut labels = BTreeMap::new();
    if let Some(group) = status.placement_group.clone().filter(|_| held.attempt().is_some_and(|attempt| attempt.group))
    {
        labels.insert(keys::PLACEMENT_GROUP_ID, group);
    }
    if let Some(request) = &held.object.spec.provisioning_request_ref {
        labels.insert(keys::BOOKING, request.uid.clone());
    }
    labels
}

/// Failing to write one delays nothing here: it is tried again with the next look.
async fn label(context: &Context, nodes: &[String], labels: &BTreeMap<&'static str, String>) {
    let api: Api<NodeObject> = Api::all(context.client.clone());
    let patch = json!({"metadata": {"labels": labels}});
    for node in nodes {
        let written = step(Step::EditNode, api.patch(node, &PatchParams::default(), &Patch::Merge(&patch))).await;
        if let Err(error) = written {
            debug!(node, %error, "label not written");
        }
    }
}

/// Waits for the gang to be bound on the nodes; then their taint goes.
pub(super) async fn ready(context: &Context, held: &mut Held, state: &State) -> anyhow::Result<Next> {
    let mut status = held.status();
    let now = context.clock.now();
    if used_by_gang(held, state, &status) {
        untaint(context, state, &status).await?;
        "InUse".clone_into(&mut status.phase);
        status.deadline = None;
        status.message = None;
        held.write(context, status).await?;
        return Ok(Next::Now);
    }
    if held.object.spec.gang_ref.is_some() && owner_gone(held, state) {
        "Idle".clone_into(&mut status.phase);
        status.idle_since = Some(now);
        held.write(context, status).await?;
        return Ok(Next::Now);
    }
    if let Some(deadline) = status.deadline.filter(|_| held.object.spec.gang_ref.is_none()) {
        if deadline > now {
            return Ok(Next::At(deadline));
        }
        "Idle".clone_into(&mut status.phase);
        status.idle_since = Some(now);
        status.deadline = None;
        status.message = Some("the booking expired: nobody used the nodes in time".to_owned());
        held.write(context, status).await?;
        return Ok(Next::Now);
    }
    Ok(Next::At(later(now, 30)))
}

/// Whether a gang has reached its commit point on nodes of the batch.
pub(super) fn used_by_gang(held: &Held, state: &State, status: &NodeBatchStatus) -> bool {
    let nodes: BTreeSet<&str> = status.instances.iter().filter_map(|instance| instance.node.as_deref()).collect();
    let uses = |gang: &muster_core::gang::Gang| {
        matches!(gang.phase, Some(Phase::Committing | Phase::Bound | Phase::Degraded))
            && gang.places.iter().any(|place| nodes.contains(place.node.as_str()))
    };
    if let Some(gang) = &held.object.spec.gang_ref {
        let key = ObjectKey::new(gang.namespace.as_str(), gang.name.as_str());
        return state.snapshot.gangs.get(&key).is_some_and(|seen| uses(seen));
    }
    let Some(request) = &held.object.spec.provisioning_request_ref else { return false };
    state.snapshot.recognised.iter().any(|(key, recognised)| {
        key.namespace.as_ref() == request.namespace
            && recognised.booking.as_deref() == Some(request.name.as_str())
            && state.snapshot.gangs.get(key).is_some_and(|gang| uses(gang))
    })
}

/// Takes the pending taint off the nodes of the batch.
async fn untaint(context: &Context, state: &State, status: &NodeBatchStatus) -> anyhow::Result<()> {
    let api: Api<NodeObject> = Api::all(context.client.clone());
    for name in status.instances.iter().filter_map(|instance| instance.node.as_deref()) {
        let tainted = state
            .snapshot
            .nodes
            .get(name)
            .is_some_and(|entry| entry.node.taints.iter().any(|taint| *taint.key == *keys::GANG_PENDING));
        if !tainted {
            continue;
        }
        let Some(node) = api.get_opt(name).await? else { continue };
        let taints: Vec<_> = node
            .spec
            .and_then(|spec| spec.taints)
            .unwrap_or_default()
            .into_iter()
            .filter(|taint| taint.key != keys::GANG_PENDING)
            .collect();
        let patch =
            json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints}});
        let written = step(Step::EditNode, api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))).await;
        if let Err(error) = written {
            warn!(node = name, %error, "taint not removed, tried again");
            return Err(error.into());
        }
    }
    Ok(())
}
