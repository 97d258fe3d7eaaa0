//! The end of a batch: idle, drained, terminated in one call, group and templates deleted, object gone.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use kube::api::{Patch, PatchParams};
use muster_api::crd::NodeBatchStatus;
use muster_api::keys;
use muster_core::ec2::{ErrorClass, InstanceState, TAG_ATTEMPT, Tags};
use muster_core::model::names::InstanceId;
use muster_core::model::snapshot::PromisedRoom;
use serde_json::json;
use tracing::info;

use super::batch::{Next, elsewhere, later, owner_gone};
use super::store::Held;
use super::{Context, join, launch, pool};
use crate::cluster::State;
use crate::step::{Step, step};

/// The gang runs. When it is gone or has ended, the batch is idle.
pub(super) async fn in_use(context: &Context, held: &mut Held, state: &State) -> anyhow::Result<Next> {
    let mut status = held.status();
    let now = context.clock.now();
    let busy = pods_on(state, &status);
    // A booking is used by whichever gang consumes it; what it was bought for may be gone without anybody minding.
    let booked = held.object.spec.gang_ref.is_none();
    let ended = if booked {
        !join::used_by_gang(held, state, &status)
    } else {
        // A gang that was stopped may have found its room elsewhere.
        owner_gone(held, state) || elsewhere(held, state)
    };
    if !ended || busy > 0 {
        let deleted = held.object.metadata.deletion_timestamp.is_some();
        let message = (ended && busy > 0)
            .then(|| format!("its gang ended; waiting for {busy} pods to leave"))
            .or_else(|| deleted.then(|| "deleted: given back when its gang ends".to_owned()));
        if status.message != message {
            status.message = message;
            held.write(context, status).await?;
        }
        return Ok(Next::At(later(now, 30)));
    }
    "Idle".clone_into(&mut status.phase);
    status.idle_since = Some(now);
    status.message = Some("its gang ended; nodes idle".to_owned());
    held.write(context, status).await?;
    Ok(Next::Now)
}

/// Given back whole after `consolidateAfter` without pods and promises.
pub(super) async fn idle(context: &Context, held: &mut Held, state: &State) -> anyhow::Result<Next> {
    let mut status = held.status();
    let now = context.clock.now();
    let deleting = held.object.metadata.deletion_timestamp.is_some();
    if pods_on(state, &status) > 0 || promised(state, &status) {
        status.idle_since = Some(now);
        status.message = Some("used by pods that came after its gang".to_owned());
        if held.status().message != status.message {
            held.write(context, status).await?;
        }
        return Ok(Next::At(later(now, 30)));
    }
    let after = consolidate_after(state, &status);
    let since = status.idle_since.unwrap_or(now);
    let due = after.map(|after| since.saturating_add(after).unwrap_or(jiff::Timestamp::MAX));
    if !deleting && due.is_none_or(|due| due > now) {
        if status.idle_since.is_none() {
            status.idle_since = Some(now);
            held.write(context, status).await?;
        }
        return Ok(Next::At(due.unwrap_or_else(|| later(now, 300))));
    }
    "Draining".clone_into(&mut status.phase);
    status.message = Some("idle: being given back whole".to_owned());
    held.write(context, status).await?;
    Ok(Next::Now)
}

/// `None` for `Never`.
fn consolidate_after(state: &State, status: &NodeBatchStatus) -> Option<SignedDuration> {
    let pool = status.node_pool.as_ref().and_then(|name| state.pools.get(name));
    let text = pool.map_or("30s", |pool| pool.spec.disruption.consolidate_after.as_str());
    if text == "Never" { None } else { Some(pool::duration(text).unwrap_or(SignedDuration::from_secs(30))) }
}

fn node_names(status: &NodeBatchStatus) -> BTreeSet<&str> {
    status.instances.iter().chain(&status.replaced).filter_map(|instance| instance.node.as_deref()).collect()
}

/// Pods on the nodes of the batch that are neither of a DaemonSet nor ended, of its gang or not.
pub(super) fn pods_on(state: &State, status: &NodeBatchStatus) -> usize {
    state.snapshot.occupants(&node_names(status)).count()
}

fn promised(state: &State, status: &NodeBatchStatus) -> bool {
    node_names(status)
        .iter()
        .flat_map(|node| state.snapshot.promises.get(*node).into_iter().flatten())
        // Whole nodes are promised to the owner of the batch, which no longer wants them.
        .any(|promise| matches!(promise.room, PromisedRoom::Member(_)))
}

/// Keeps new pods away, waits for those there, terminates.
pub(super) async fn draining(context: &Context, held: &mut Held, state: &State) -> anyhow::Result<Next> {
    let mut status = held.status();
    let now = context.clock.now();
    if !taint(context, state, &status).await? {
        // What was planned or bound here before the taint was seen must be seen as well.
        return Ok(Next::At(later(now, 10)));
    }
    if promised(state, &status) {
        status.message = Some("draining: waiting for a gang planned here to be planned elsewhere".to_owned());
        held.write(context, status).await?;
        return Ok(Next::At(later(now, 10)));
    }
    let busy = pods_on(state, &status);
    if busy > 0 {
        status.message = Some(format!("draining: waiting for {busy} pods to leave"));
        held.write(context, status).await?;
        return Ok(Next::At(later(now, 10)));
    }
    "Terminating".clone_into(&mut status.phase);
    for instance in &mut status.instances {
        "Terminating".clone_into(&mut instance.state);
    }
    status.message = Some(format!("terminating {} instances in one call", status.instances.len()));
    held.write(context, status).await?;
    Ok(Next::Now)
}

/// Keeps new pods off the nodes. Whether all of them were seen so.
async fn taint(context: &Context, state: &State, status: &NodeBatchStatus) -> anyhow::Result<bool> {
    let api: Api<NodeObject> = Api::all(context.client.clone());
    let mut all = true;
    for name in node_names(status) {
        let tainted = state
            .snapshot
            .nodes
            .get(name)
            .is_none_or(|entry| entry.node.taints.iter().any(|taint| *taint.key == *keys::DISRUPTED));
        if tainted {
            continue;
        }
        all = false;
        let Some(node) = api.get_opt(name).await? else { continue };
        let mut taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        if taints.iter().any(|taint| taint.key == keys::DISRUPTED) {
            continue;
        }
        taints.push(k8s_openapi::api::core::v1::Taint {
            key: keys::DISRUPTED.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Default::default()
        });
        let patch =
            json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints}});
        match step(Step::EditNode, api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))).await {
            Ok(_) => {}
            Err(kube::Error::Api(answer)) if answer.code == 404 => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}

/// Terminates every live instance of the batch, and of the sweep where one is given. The answer is how many were
/// still live.
pub(super) async fn terminate_all(
    context: &Context,
    status: &NodeBatchStatus,
    sweep: Option<&Tags>,
) -> anyhow::Result<usize> {
    let ids = join::ids(status);
    let mut live: BTreeSet<InstanceId> = BTreeSet::new();
    let mut ending = 0;
    let mut seen = context.cloud.instances(&ids).await?;
    if let Some(sweep) = sweep {
        seen.extend(context.cloud.instances_by_tags(sweep).await?);
    }
    let known: BTreeSet<InstanceId> = seen.iter().map(|instance| instance.id.clone()).collect();
    for instance in seen {
        match instance.state {
            InstanceState::Terminated => {}
            InstanceState::ShuttingDown => ending += 1,
            InstanceState::Pending
            | InstanceState::Running
            | InstanceState::Stopping
            | InstanceState::Stopped
            | InstanceState::Unknown => {
                live.insert(instance.id);
            }
        }
    }
    // An id that is not visible may still become so: within a minute or two of the launch it is asked for again.
    let launched = status.attempts.last().and_then(|attempt| attempt.ended);
    let young = launched.is_some_and(|at| context.clock.now().duration_since(at) < SignedDuration::from_secs(120));
    let invisible = ids.iter().filter(|id| !known.contains(*id)).count();
    if !live.is_empty() {
        let ids: Vec<InstanceId> = live.iter().cloned().collect();
        info!(instances = ids.len(), "terminating");
        context.cloud.terminate_instances(&ids).await?;
    }
    Ok(live.len() + ending + if young { invisible } else { 0 })
}

/// Waits for the end of the instances, then deletes group, templates and object, in this order.
pub(super) async fn terminating(context: &Context, held: &mut Held, state: &State) -> anyhow::Result<Next> {
    let mut status = held.status();
    let now = context.clock.now();
    // By tags as well: what an attempt that counted as lost made after all goes with the batch.
    let mut sweep = launch::tags(context, held, status.attempt).sweep();
    sweep.remove(TAG_ATTEMPT);
    let left = terminate_all(context, &status, Some(&sweep)).await?;
    if left > 0 {
        status.message = Some(format!("{left} instances still terminating"));
        held.write(context, status).await?;
        return Ok(Next::Pause(later(now, 5)));
    }
    if let Some(group) = status.placement_group.clone() {
        match context.cloud.delete_placement_group(&group).await {
            Ok(()) => {}
            Err(error) if error.kind == ErrorClass::InUse => return Ok(Next::Pause(later(now, 5))),
            Err(error) => return Err(error.into()),
        }
        status.placement_group = None;
        held.write(context, status).await?;
        status = held.status();
    }
    context.cloud.delete_launch_templates(&launch::tags(context, held, status.attempt)).await?;
    // Nodes of ours without an instance: elsewhere the cloud controller removes them too.
    let api: Api<NodeObject> = Api::all(context.client.clone());
    for name in node_names(&status) {
        if state.snapshot.nodes.contains_key(name) {
            match step(Step::EditNode, api.delete(name, &kube::api::DeleteParams::default())).await {
                Ok(_) => {}
                Err(kube::Error::Api(answer)) if answer.code == 404 => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    context.fleets.lock().unwrap_or_else(std::sync::PoisonError::into_inner).ended(&status);
    held.remove(context).await?;
    info!("batch is gone: zero instances, no group, no template");
    Ok(Next::Gone)
}
