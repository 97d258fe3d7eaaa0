//! From instances to nodes a gang can use: running, registered, devices present, topology known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use kube::api::{Patch, PatchParams};
use muster_api::crd::{NodeBatchStatus, NodePoolJoin, is_true, set_condition};
use muster_api::{keys, pool as rules};
use muster_core::batch::{
    JoinCause, JoinRules, JoinStage, JoinVerdict, Joiner, describe_failures, judge_join, replacements,
};
use muster_core::ec2::{Instance, InstanceState};
use muster_core::model::gang::Phase;
use muster_core::model::names::{InstanceId, ObjectKey, ResourceName};
use muster_core::model::node::{Node, Taint};
use serde_json::json;
use tracing::{debug, warn};

use super::batch::{Next, later, owner_gone};
use super::store::Held;
use super::{Context, canary, launch, located, pool, repair};
use crate::clock::now_real;
use crate::cluster::State;
use crate::step::{Step, step};

/// Nodes edited at once.
const EDITS: usize = 16;

/// Booked nodes nobody uses become idle after this. Source: `BookingExpired` of the upstream ProvisioningRequest.
const BOOKED_SECONDS: i64 = 600;

/// Waits until all instances run, then reads their place in the network once.
pub(super) async fn launched(context: &Context, held: &mut Held, state: &State) -> anyhow::Result<Next> {
    let mut status = held.status();
    let now = context.clock.now();
    let ids = ids(&status);
    let seen = context.cloud.instances(&ids).await?;
    let late = late_labels(held);
    let (joiners, _) = joiners(context, state, &mut status, (Some(&seen), &late), now);
    let wait = match judge(context, held, state, &status, &joiners, now).await? {
        Judged::Acted(next) => return Ok(next),
        Judged::Wait(until) => until,
        Judged::Ready => now,
    };
    let running = seen.iter().filter(|instance| instance.state == InstanceState::Running).count();
    if running < ids.len() {
        status.message = Some(format!("{running} of {} instances running", ids.len()));
        held.write(context, status).await?;
        return Ok(Next::Pause(later(now, 2).min(wait)));
    }
    status.message = Some(format!("all {} instances running; waiting for their nodes", ids.len()));
    if let Some(next) = locate(context, held, state, &mut status, &ids).await? {
        return Ok(next);
    }
    for instance in &mut status.instances {
        if instance.state == "Launched" {
            "Running".clone_into(&mut instance.state);
        }
    }
    "Joining".clone_into(&mut status.phase);
    status.deadline = Some(clocks(context, &status).deadline);
    held.write(context, status).await?;
    Ok(Next::Now)
}

/// Reads where the instances lie, and judges it. Once per launch, and once more before its nodes are used if EC2 could not
/// tell: DescribeInstanceTopology has the tightest budget of all calls.
async fn locate(
    context: &Context,
    held: &mut Held,
    state: &State,
    status: &mut NodeBatchStatus,
    ids: &[InstanceId],
) -> anyhow::Result<Option<Next>> {
    let group = held.group();
    let topology = match context.cloud.topology(group.as_deref(), ids).await {
        Ok(topology) => topology,
        Err(error) => {
            // Labels of the nodes tell the same later.
            debug!(error = %error, "topology not read; the nodes' labels will tell");
            return Ok(None);
        }
    };
    if let Some(next) = located::judge(context, held, state, status, ids, &topology).await? {
        return Ok(Some(next));
    }
    for instance in &mut status.instances {
        if let Some(nodes) = topology.get(&InstanceId::from(instance.id.as_str())) {
            instance.network_nodes.clone_from(nodes);
        }
    }
    Ok(None)
}

fn of_pool(context: &Context, status: &NodeBatchStatus) -> NodePoolJoin {
    let state = context.cluster.load();
    let pool = status.node_pool.as_ref().and_then(|name| state.pools.get(name));
    pool.map(|pool| pool.spec.join.clone()).unwrap_or_default()
}

fn minutes(text: &str, otherwise: i64) -> SignedDuration {
    pool::duration(text).unwrap_or(SignedDuration::from_mins(otherwise))
}

/// How long the nodes of one launch have, from the launch until they are ready.
pub(super) fn budget(context: &Context, status: &NodeBatchStatus) -> SignedDuration {
    let join = of_pool(context, status);
    minutes(&join.register_within, 15).saturating_add(minutes(&join.ready_within, 10))
}

/// The clocks of the batch's pool, for the launch under way.
fn clocks(context: &Context, status: &NodeBatchStatus) -> JoinRules {
    let join = of_pool(context, status);
    let whole = status.attempts.iter().rposition(|attempt| attempt.outcome == "Won" && attempt.replaces.is_empty());
    let since = whole.map_or(0, |position| position + 1);
    let replaced: usize = status.attempts.iter().skip(since).map(|attempt| attempt.replaces.len()).sum();
    let allowed = replacements(&join.max_replacements.0, status.count).unwrap_or(0);
    let launched = status.attempts.iter().rev().find(|attempt| attempt.outcome == "Won").and_then(|won| won.ended);
    let all = budget(context, status);
    JoinRules {
        replace_after: minutes(&join.replace_after, 5),
        register_within: minutes(&join.register_within, 15),
        ready_within: minutes(&join.ready_within, 10),
        // Of a node that is tried alone the first answer counts.
        replacements_left: if alone(status) {
            0
        } else {
            allowed.saturating_sub(u32::try_from(replaced).unwrap_or(u32::MAX))
        },
        // Each replacement has the clocks once more; `maxReplacements` bounds how often.
        deadline: launched.and_then(|at| at.saturating_add(all).ok()).unwrap_or(jiff::Timestamp::MAX),
    }
}

/// Whether one node was bought alone, to see whether it joins.
fn alone(status: &NodeBatchStatus) -> bool {
    status.attempts.last().is_some_and(|attempt| attempt.canary)
}

/// How far each instance is, and what the nodes lack. Writes down what was seen for the first time. Without `seen`
/// EC2 was not asked: whoever was running still is, unless a loss is known.
fn joiners(
    context: &Context,
    state: &State,
    status: &mut NodeBatchStatus,
    (seen, late): (Option<&[Instance]>, &BTreeMap<&'static str, String>),
    now: jiff::Timestamp,
) -> (Vec<Joiner>, BTreeMap<String, u32>) {
    let nodes = nodes_by_instance(state);
    let expected = expected(context, state, status);
    let permanent: Vec<Taint> = status
        .node_pool
        .as_ref()
        .and_then(|name| state.pools.get(name))
        .and_then(|pool| rules::taints(pool).ok())
        .unwrap_or_default();
    let launches: BTreeMap<u32, jiff::Timestamp> = status
        .attempts
        .iter()
        .filter_map(|attempt| Some((attempt.number, attempt.ended.or(attempt.started)?)))
        .collect();
    let mut missing: BTreeMap<String, u32> = BTreeMap::new();
    let mut joiners = Vec::new();
    for instance in &mut status.instances {
        let launched = launches.get(&instance.attempt).copied().unwrap_or(now);
        let in_ec2 = seen.and_then(|seen| seen.iter().find(|seen| seen.id.as_str() == instance.id));
        let stage = if let Some(loss) = instance.loss.as_ref().filter(|loss| loss.act_at <= now) {
            JoinStage::Gone { code: Some(loss.cause.clone()) }
        } else if let Some(gone) = in_ec2.filter(|seen| gone(seen.state)) {
            JoinStage::Gone { code: gone.state_reason.as_ref().map(|reason| reason.code.clone()) }
        } else if let Some(node) = nodes.get(&instance.id) {
            let registered = *instance.registered.get_or_insert(now);
            instance.node = Some(node.name.to_string());
            let mut lacks = lacks(node, &expected, &permanent, !instance.network_nodes.is_empty());
            // Pods of a booking select this label; the other late ones only inform.
            if late.get(keys::BOOKING).is_some_and(|uid| !carries(node, keys::BOOKING, uid)) {
                lacks.push(format!("label {}", keys::BOOKING));
            }
            for what in &lacks {
                *missing.entry(what.clone()).or_default() += 1;
            }
            if lacks.is_empty() {
                "Ready".clone_into(&mut instance.state);
                JoinStage::Ready { registered }
            } else {
                "Registered".clone_into(&mut instance.state);
                JoinStage::Registered { at: registered, lacks: lacks.into_iter().collect() }
            }
        } else {
            *missing.entry("nodes".to_owned()).or_default() += 1;
            let running = in_ec2.map_or(instance.state != "Launched", |seen| seen.state == InstanceState::Running);
            if running { JoinStage::Running } else { JoinStage::Pending }
        };
        joiners.push(Joiner { id: InstanceId::from(instance.id.as_str()), launched, stage });
    }
    (joiners, missing)
}

enum Judged {
    /// All can be used.
    Ready,
    /// Look again by then.
    Wait(jiff::Timestamp),
    /// The batch goes another way.
    Acted(Next),
}

async fn judge(
    context: &Context,
    held: &mut Held,
    state: &State,
    status: &NodeBatchStatus,
    joiners: &[Joiner],
    now: jiff::Timestamp,
) -> anyhow::Result<Judged> {
    let rules = clocks(context, status);
    let (failed, blocked) = match judge_join(joiners, &rules, now) {
        JoinVerdict::Ready => return Ok(Judged::Ready),
        JoinVerdict::Wait(until) => return Ok(Judged::Wait(until)),
        JoinVerdict::Replace(failed) => {
            held.object.status = Some(status.clone());
            return Ok(Judged::Acted(repair::replace(context, held, state, &failed).await?));
        }
        JoinVerdict::RollBack(failed) => (failed, None),
        JoinVerdict::Block { cause, failed } => (failed, Some(cause)),
    };
    let lacking = failed.values().find_map(|cause| match cause {
        JoinCause::Lacks(what) => Some(what.clone()),
        JoinCause::Died(_) | JoinCause::NeverRan | JoinCause::NeverRegistered => None,
    });
    let why = if failed.is_empty() {
        format!("the batch has not joined by {}", rules.deadline)
    } else {
        describe_failures(&failed)
    };
    let cost = repair::cost_since_launch(status, now);
    let said = format!("{why}; {} instances cost ${cost} for nothing", status.instances.len());
    let dead = failed.values().any(|cause| matches!(cause, JoinCause::Died(_)));
    let reason = if lacking.is_some() {
        "DevicesMissing"
    } else if dead {
        "InstancesLost"
    } else {
        "JoinTimeout"
    };
    let mut message = said.clone();
    if let Some(resource) = &lacking {
        let intolerant = repair::intolerant_daemon_sets(context, state, status).await;
        if !intolerant.is_empty() {
            message = format!(
                "{said}; {resource} may be missing because these DaemonSets do not tolerate the taint {}: {}",
                keys::GANG_PENDING,
                intolerant.join(", ")
            );
        }
    }
    let event = muster_core::gang::GangEvent { reason, message, warning: true };
    context.events.publish(&held.object, &event).await;
    if let Some(cause) = blocked.filter(|_| !alone(status)) {
        repair::block_pool(context, held, state, status, &cause).await?;
    }
    held.object.status = Some(status.clone());
    Ok(Judged::Acted(launch::violated(context, held, &ids(status), &said).await?))
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
    // Every change of the cluster wakes the batch; EC2 is asked now and then only.
    let look = held.looked.is_none_or(|looked| now >= later(looked, 15));
    let seen = if look {
        held.looked = Some(now);
        Some(context.cloud.instances(&ids(&status)).await?)
    } else {
        None
    };
    let late = late_labels(held);
    let (joiners, missing) = joiners(context, state, &mut status, (seen.as_deref(), &late), now);
    let ready = status.instances.iter().filter(|instance| instance.state == "Ready").count();
    status.ready_count = u32::try_from(ready).unwrap_or(u32::MAX);
    let unlabelled: Vec<String> = status
        .instances
        .iter()
        .filter_map(|instance| instance.node.clone())
        .filter(|node| {
            let entry = state.snapshot.nodes.get(node.as_str());
            entry.is_some_and(|entry| late.iter().any(|(key, value)| !carries(&entry.node, key, value)))
        })
        .collect();
    label(context, &unlabelled, &late).await;
    let until = match judge(context, held, state, &status, &joiners, now).await? {
        Judged::Acted(next) => return Ok(next),
        Judged::Wait(until) => until,
        Judged::Ready => {
            // Where EC2 could not tell before, a launch that misses the level its gang requires is found out now.
            if located::matters(context, held, state) && status.instances.iter().any(|one| one.network_nodes.is_empty())
            {
                let ids = ids(&status);
                if let Some(next) = locate(context, held, state, &mut status, &ids).await? {
                    return Ok(next);
                }
            }
            if alone(&status) {
                if let Some(next) = canary::joined(context, held, state, status, now).await? {
                    return Ok(next);
                }
                status = held.status();
            }
            "Ready".clone_into(&mut status.phase);
            if is_true(&status.conditions, "Interrupted") {
                set_condition(&mut status.conditions, "Interrupted", false, "Repaired", "", now_real());
            }
            let booked = held.object.spec.gang_ref.is_none();
            status.deadline = booked.then(|| later(now, BOOKED_SECONDS));
            status.message = Some("all nodes ready; waiting for the gang".to_owned());
            held.write(context, status).await?;
            return Ok(Next::Now);
        }
    };
    let lacking: Vec<String> = missing.iter().map(|(what, count)| format!("{count} × {what}")).collect();
    status.message = Some(format!("{ready} of {} nodes ready, missing {}", status.instances.len(), lacking.join(", ")));
    held.write(context, status).await?;
    Ok(Next::At(later(now, 15).min(until)))
}

/// Extended resources every node of the batch must offer: those its launch template was made for.
fn expected(context: &Context, state: &State, status: &NodeBatchStatus) -> Vec<(ResourceName, i64)> {
    let catalogue = context.catalogue.load();
    let Some(info) = status.instance_type.as_ref().and_then(|name| catalogue.types.get(name)) else {
        return Vec::new();
    };
    let pool = status.node_pool.as_ref().and_then(|name| state.pools.get(name));
    rules::bare_node(pool.and_then(|pool| pool::class_of(state, pool)), info).devices()
}

fn lacks(node: &Node, expected: &[(ResourceName, i64)], permanent: &[Taint], topology: bool) -> Vec<String> {
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
        if node.allocatable.get(resource.as_str()) < *amount {
            lacks.push(resource.to_string());
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

fn carries(node: &Node, key: &str, value: &str) -> bool {
    node.labels.get(key).is_some_and(|known| **known == *value)
}

/// Labels that are known only after the launch, or that outlive it: a booking goes on with the batch that replaces one.
fn late_labels(held: &Held) -> BTreeMap<&'static str, String> {
    let mut labels = BTreeMap::new();
    if let Some(group) = held.group() {
        labels.insert(keys::PLACEMENT_GROUP_ID, group);
    }
    if let Some(request) = &held.object.spec.provisioning_request_ref {
        labels.insert(keys::BOOKING, request.uid.clone());
    }
    labels
}

/// Failing to write one delays nothing here: it is tried again with the next look.
async fn label(context: &Context, nodes: &[String], labels: &BTreeMap<&'static str, String>) {
    let api: &Api<NodeObject> = &Api::all(context.client.clone());
    let patch = &Patch::Merge(json!({"metadata": {"labels": labels}}));
    let write = |node: String| async move {
        if let Err(error) = step(Step::EditNode, api.patch(&node, &PatchParams::default(), patch)).await {
            debug!(node, %error, "label not written");
        }
    };
    futures::stream::iter(nodes.to_vec()).for_each_concurrent(EDITS, write).await;
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
    let uses = |gang: &muster_core::model::gang::Gang| {
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
    let api: &Api<NodeObject> = &Api::all(context.client.clone());
    let nodes = status.instances.iter().filter_map(|instance| instance.node.as_deref());
    let tainted = nodes.filter(|name| {
        let entry = state.snapshot.nodes.get(*name);
        entry.is_some_and(|entry| entry.node.taints.iter().any(|taint| *taint.key == *keys::GANG_PENDING))
    });
    let edit = |name: String| async move {
        let Some(node) = api.get_opt(&name).await? else { return Ok(()) };
        let taints: Vec<_> = node
            .spec
            .and_then(|spec| spec.taints)
            .unwrap_or_default()
            .into_iter()
            .filter(|taint| taint.key != keys::GANG_PENDING)
            .collect();
        let patch =
            json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints}});
        let written = step(Step::EditNode, api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch))).await;
        if let Err(error) = &written {
            warn!(node = name, %error, "taint not removed, tried again");
        }
        written.map(drop)
    };
    futures::stream::iter(tainted.map(|name| Ok(name.to_owned()))).try_for_each_concurrent(EDITS, edit).await?;
    Ok(())
}
