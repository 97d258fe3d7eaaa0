//! The effects of decisions about NodeBatches, one function for each kind: changes of EC2, edits of the API server, looks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod as PodObject, Taint, Toleration};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use muster_api::crd::{Gang, JoinBlocked, JoinProbes, NodeBatch, NodePool};
use muster_api::{batch_state, books, keys, pod_state};
use muster_core::batch::{
    BatchEvent, Booking, Change, Converge, Look, Made, Note, OwnerLook, Probes, Sight, dollars, gone,
};
use muster_core::ec2::{CallError, ErrorClass, last_lines};
use muster_core::model::gang::{Membership, Phase};
use muster_core::model::names::InstanceId;
use muster_core::model::node::{Taint as KnownTaint, TaintEffect, instance_of};
use muster_core::offering::Asked;
use serde_json::json;
use tracing::{debug, info, warn};

use super::fleets;
use crate::cluster::State;
use crate::provisioner::pool::reservations;
use crate::provisioner::{Context, class, pool, request};
use crate::step::{Step, step};

/// How often a Node is edited that others edit meanwhile, before the next look at the batch tries it again.
const CONFLICTS: u32 = 5;

/// Carries out a change. Its outcome is never dropped.
pub(in crate::provisioner) async fn change(
    context: &Context,
    state: &State,
    change: &Change,
) -> Result<Made, CallError> {
    let cloud = &context.cloud;
    match change {
        Change::CreateGroup { name, tags } => cloud.create_placement_group(name, tags).await.map(|()| Made::Nothing),
        Change::DeleteGroup(name) => cloud.delete_placement_group(name).await.map(|()| Made::Nothing),
        Change::CreateTemplate(spec) => {
            let created = cloud.create_launch_template(spec).await?;
            Ok(Made::Template { id: created.id, version: created.latest_version })
        }
        Change::DeleteTemplates(tags) => cloud.delete_launch_templates(tags).await.map(|()| Made::Nothing),
        Change::Launch { parameters, .. } => cloud.launch(parameters).await.map(Made::Launched),
        Change::Terminate(ids) => {
            info!(instances = ids.len(), "terminating");
            cloud.terminate_instances(ids).await.map(|()| Made::Nothing)
        }
        Change::DeleteFinishedFleets => fleets::delete_finished(context, state).await.map(Made::Fleets),
    }
}

/// Reads what a decision needs.
pub(in crate::provisioner) async fn look(context: &Context, state: &State, look: &Look) -> Result<Sight, CallError> {
    let cloud = &context.cloud;
    match look {
        Look::Instances(ids) => cloud.instances(ids).await.map(Sight::Instances),
        Look::Tagged(tags) => cloud.instances_by_tags(tags).await.map(Sight::Instances),
        Look::Fleet(id) => cloud.fleet(id).await.map(Sight::Fleet),
        Look::Group(name) => cloud.placement_group(name).await.map(Sight::Group),
        Look::Topology { group, ids } => cloud.topology(group.as_deref(), ids).await.map(Sight::Topology),
        Look::Console(id) => cloud.console(id).await.map(|text| Sight::Console(last_lines(&text))),
        Look::Reservations(pools) => {
            reservations::refresh(context, pools, state).await;
            Ok(Sight::Read)
        }
        Look::Owner(owner) => lives(context, owner).await.map(Sight::Owner).map_err(|error| of_kube("get", &error)),
        Look::Occupied(nodes) => {
            let held = occupied(context, state, nodes).await;
            held.map(Sight::Names).map_err(|error| of_kube("list pods", &error))
        }
        Look::IntolerantDaemonSets(nodes) => Ok(Sight::Names(intolerant_daemon_sets(context, state, nodes).await)),
    }
}

/// An error of the API server as one of a call: what a look fails with.
fn of_kube(operation: &str, error: &anyhow::Error) -> CallError {
    CallError {
        operation: operation.to_owned(),
        kind: ErrorClass::Unknown,
        code: None,
        message: crate::telemetry::chain(error),
        http_status: None,
        request_id: None,
    }
}

/// Whether an owner exists and has not ended.
async fn lives(context: &Context, owner: &OwnerLook) -> anyhow::Result<bool> {
    match owner {
        OwnerLook::Gang { key, uid } => {
            let api: Api<Gang> = Api::namespaced(context.client.clone(), &key.namespace);
            let seen = api.get_opt(&key.name).await.context("look up the gang of the NodeBatch")?;
            Ok(seen.is_some_and(|seen| {
                let ended = seen.status.as_ref().is_some_and(|status| status.phase == Phase::Finished.as_str());
                seen.uid().as_deref() == Some(uid) && seen.metadata.deletion_timestamp.is_none() && !ended
            }))
        }
        OwnerLook::Request { key, uid } => {
            let seen = request::get(context, &key.namespace, &key.name).await;
            let seen = seen.context("look up the ProvisioningRequest of the NodeBatch")?;
            Ok(seen.is_some_and(|seen| seen.uid().as_deref() == Some(uid)))
        }
    }
}

/// What became of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::provisioner) enum Edited {
    Done,
    /// It is as it was, and nothing waits for it.
    Not,
    /// The batch itself is gone.
    Removed,
}

/// Brings one object where it should be.
pub(in crate::provisioner) async fn converge(
    context: &Context,
    state: &State,
    batch: &NodeBatch,
    edit: &Converge,
) -> anyhow::Result<Edited> {
    match edit {
        Converge::Taint { node, instance, key } => {
            taints(&context.client, node, Some(instance), |taints| add(taints, key)).await?;
        }
        Converge::Untaint { node, key } => {
            untaint(&context.client, node, key, place_of(state, node, key)).await?;
        }
        Converge::Hold { node, owner } => hold(context, node, Some(owner)).await?,
        Converge::Unhold { node } => hold(context, node, None).await?,
        Converge::Label { node, labels } => return Ok(label(&context.client, node, labels).await),
        Converge::DeleteNode { node, instance } => {
            delete_node(&context.client, node, instance).await?;
        }
        Converge::Evict { pod, uid, force } => evict(&context.client, pod, uid.as_str(), *force).await?,
        Converge::BlockPool { pool, cause } => block(context, state, batch, pool, cause).await?,
        Converge::CountProbe { pool, probes } => count_probe(context, state, pool, probes).await?,
        Converge::UnblockPool(pool) => {
            let api: Api<NodePool> = Api::all(context.client.clone());
            let patch = Patch::Merge(json!({"status": {"joinBlocked": null}}));
            info!(pool, "open again");
            absent(step(Step::WriteStatus, api.patch_status(pool, &PatchParams::default(), &patch)).await)
                .with_context(|| format!("open the NodePool {pool}"))?;
        }
        Converge::Book(pool) => book(context, batch, pool).await?,
        Converge::Remove => {
            remove_batch(context, batch).await?;
            return Ok(Edited::Removed);
        }
    }
    Ok(Edited::Done)
}

/// What is gone already is as good as edited.
pub(super) fn absent<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}

fn add(mut taints: Vec<Taint>, key: &str) -> Vec<Taint> {
    if taints.iter().all(|taint| taint.key != key) {
        taints.push(Taint { key: key.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() });
    }
    taints
}

fn without(mut taints: Vec<Taint>, key: &str) -> Vec<Taint> {
    taints.retain(|taint| taint.key != key);
    taints
}

/// Cordons a Node for `owner`, or lifts our cordon; the taint it registered with goes either way, in the same patch. A cordon
/// of somebody else's, without our annotation, is not lifted.
async fn hold(context: &Context, name: &str, owner: Option<&str>) -> anyhow::Result<()> {
    let edit = |node: &NodeObject| {
        let held = node.annotations().contains_key(keys::HOLD);
        let spec = node.spec.as_ref();
        let cordoned = owner.is_some() || !held && spec.is_some_and(|spec| spec.unschedulable == Some(true));
        let mut taints = spec.and_then(|spec| spec.taints.clone()).unwrap_or_default();
        taints.retain(|taint| taint.key != keys::GANG_PENDING && (cordoned || taint.key != keys::UNSCHEDULABLE));
        Some(json!({
            "metadata": {"annotations": {keys::HOLD: owner}},
            "spec": {"unschedulable": cordoned.then_some(true), "taints": taints},
        }))
    };
    let edited = edit_node(&context.client, name, edit).await;
    edited.with_context(|| format!("hold the Node {name}, or lift the hold"))
}

/// Edits a Node as the API server has it, with a merge patch that holds for the version it was made for; again on the next one
/// where others were faster, as kube-controller-manager is with the taints of every node that comes. Nothing to do: no patch.
/// Of the answer nothing but whether it is one counts: its metadata alone is asked for, here as in all edits of Nodes.
async fn edit_node(
    client: &Client,
    name: &str,
    edit: impl Fn(&NodeObject) -> Option<serde_json::Value>,
) -> anyhow::Result<()> {
    let api: Api<NodeObject> = Api::all(client.clone());
    for attempt in 1.. {
        let Some(node) = api.get_opt(name).await.context("read it")? else { break };
        let Some(mut patch) = edit(&node) else { break };
        patch["metadata"]["resourceVersion"] = json!(node.metadata.resource_version);
        match step(Step::EditNode, api.patch_metadata(name, &PatchParams::default(), &Patch::Merge(&patch))).await {
            Err(kube::Error::Api(answer)) if answer.code == 409 && attempt < CONFLICTS => {}
            written => return Ok(absent(written)?),
        }
    }
    Ok(())
}

/// Whether a Node is that of an instance.
fn is_of(node: &NodeObject, instance: &InstanceId) -> bool {
    let id = node.spec.as_ref().and_then(|spec| instance_of(spec.provider_id.as_deref()?));
    id == Some(instance.as_str())
}

/// Deletes the Node of an instance that has ended, and whether it did. Whoever has its name by now is left alone: names made
/// of addresses come back.
pub(super) async fn delete_node(client: &Client, name: &str, instance: &InstanceId) -> anyhow::Result<bool> {
    let api: Api<NodeObject> = Api::all(client.clone());
    let seen = api.get_opt(name).await.with_context(|| format!("read the Node {name}"))?;
    let Some(node) = seen.filter(|node| is_of(node, instance)) else { return Ok(false) };
    let preconditions = Some(Preconditions { uid: node.metadata.uid, resource_version: None });
    let delete = DeleteParams { preconditions, ..DeleteParams::default() };
    match step(Step::EditNode, api.delete(name, &delete)).await {
        Ok(_) => Ok(true),
        // It is gone, and another may have its name.
        Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409) => Ok(false),
        Err(error) => Err(anyhow::Error::new(error).context(format!("delete the Node {name}"))),
    }
}

/// Writes labels. Failing to delays nothing: it is tried again with the next look.
async fn label(client: &Client, node: &str, labels: &BTreeMap<Arc<str>, Arc<str>>) -> Edited {
    let api: Api<NodeObject> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
    match step(Step::EditNode, api.patch_metadata(node, &PatchParams::default(), &patch)).await {
        Ok(_) => Edited::Done,
        Err(error) => {
            debug!(node, %error, "label not written");
            Edited::Not
        }
    }
}

/// Where in the list of a Node's taints the watch shows this one.
fn place_of(state: &State, node: &str, key: &str) -> Option<usize> {
    let mut taints = state.snapshot.nodes.get(node)?.node.taints.iter();
    taints.position(|taint| *taint.key == *key)
}

/// Takes a taint off a Node. Where it is shown at `place` that is one request, which holds for this taint alone: of hundreds of nodes that
/// come at once a read of each is what their pods wait for. Where others moved it meanwhile the Node is read.
async fn untaint(client: &Client, name: &str, key: &str, place: Option<usize>) -> anyhow::Result<()> {
    if let Some(place) = place {
        let patch = serde_json::from_value(json!([
            {"op": "test", "path": format!("/spec/taints/{place}/key"), "value": key},
            {"op": "remove", "path": format!("/spec/taints/{place}")},
        ]))?;
        let api: Api<NodeObject> = Api::all(client.clone());
        match step(Step::EditNode, api.patch_metadata(name, &PatchParams::default(), &Patch::<()>::Json(patch))).await {
            // Another taint is there by now, or none.
            Err(kube::Error::Api(answer)) if answer.code == 422 => {}
            written => return absent(written).with_context(|| format!("take the taint {key} off the Node {name}")),
        }
    }
    taints(client, name, None, |taints| without(taints, key)).await
}

/// Edits the taints of a Node as the API server has them; of that of one instance, if one is named.
async fn taints(
    client: &Client,
    name: &str,
    of: Option<&InstanceId>,
    edit: impl Fn(Vec<Taint>) -> Vec<Taint>,
) -> anyhow::Result<()> {
    let edit = |node: &NodeObject| {
        if of.is_some_and(|instance| !is_of(node, instance)) {
            return None;
        }
        let before = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let after = edit(before.clone());
        (before != after).then(|| json!({"spec": {"taints": after}}))
    };
    let edited = edit_node(client, name, edit).await;
    edited.with_context(|| format!("edit the taints of the Node {name}"))
}

/// Evicts a pod; with `force` it is deleted, whatever its disruption budget says.
async fn evict(
    client: &Client,
    pod: &muster_core::model::names::ObjectKey,
    uid: &str,
    force: bool,
) -> anyhow::Result<()> {
    let api: Api<PodObject> = Api::namespaced(client.clone(), &pod.namespace);
    let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
    let delete = DeleteParams { preconditions, ..DeleteParams::default() };
    let what = || format!("end the pod {}/{}", pod.namespace, pod.name);
    if force {
        return match step(Step::EvictPod, api.delete(&pod.name, &delete)).await {
            // Another pod of that name.
            Err(kube::Error::Api(answer)) if answer.code == 409 => Ok(()),
            result => absent(result).with_context(what),
        };
    }
    match crate::gang::post_eviction(&api, &pod.name, &delete).await {
        Err(_) => {
            debug!(pod = %pod.name, "an eviction is refused");
            Ok(())
        }
        // A disruption budget says no, or two of them, or it is another pod of that name: asked again later.
        Ok(Err(kube::Error::Api(answer))) if matches!(answer.code, 409 | 429 | 500) => {
            debug!(pod = %pod.name, "an eviction is refused");
            Ok(())
        }
        Ok(result) => absent(result).with_context(what),
    }
}

/// The pool launches no batch before it or its class changes, or a node that is tried alone joins.
async fn block(context: &Context, state: &State, batch: &NodeBatch, pool: &str, cause: &str) -> anyhow::Result<()> {
    let Some(object) = state.pools.get(pool) else { return Ok(()) };
    let class = pool::class_of(state, object);
    let blocked = JoinBlocked {
        cause: cause.to_owned(),
        batch: batch.name_any(),
        pool_generation: object.metadata.generation.unwrap_or_default(),
        class_generation: class.and_then(|class| class.metadata.generation).unwrap_or_default(),
        // A block that is there counts on, whoever finds the same fault again.
        probes: pool::blocked(state, object).and_then(|blocked| blocked.probes.clone()),
    };
    let api: Api<NodePool> = Api::all(context.client.clone());
    let patch = Patch::Merge(json!({"status": {"joinBlocked": blocked}}));
    absent(step(Step::WriteStatus, api.patch_status(pool, &PatchParams::default(), &patch)).await)
        .with_context(|| format!("block the NodePool {pool}"))
}

/// Counts a node that is about to be tried alone. Conditional on the version the number was read from: none is forgotten.
async fn count_probe(context: &Context, state: &State, pool: &str, probes: &Probes) -> anyhow::Result<()> {
    let (Some(object), Some(last)) = (state.pools.get(pool), &probes.last) else { return Ok(()) };
    let counted = JoinProbes {
        count: probes.count,
        usd: dollars(probes.micro_usd),
        batch: last.batch.clone(),
        attempt: last.attempt,
        last_usd: dollars(last.micro_usd),
    };
    let api: Api<NodePool> = Api::all(context.client.clone());
    let patch = Patch::Merge(json!({
        "metadata": {"resourceVersion": object.metadata.resource_version},
        "status": {"joinBlocked": {"probes": counted}},
    }));
    match step(Step::WriteStatus, api.patch_status(pool, &PatchParams::default(), &patch)).await {
        // Somebody else wrote; it is decided again on what they wrote.
        Err(kube::Error::Api(answer)) if answer.code == 409 => Ok(()),
        result => absent(result).with_context(|| format!("count a node of the NodePool {pool} that is tried alone")),
    }
}

/// A booking is tried so often while others write the pool.
const BOOKINGS: usize = 5;

/// Adds what a batch cost to the books of a pool. The books are read first, then whether the batch exists, and nothing is written
/// if somebody else wrote the pool since: so it is in them once, whoever else books it.
async fn book(context: &Context, object: &NodeBatch, pool: &str) -> anyhow::Result<()> {
    let pools: Api<NodePool> = Api::all(context.client.clone());
    let batches: Api<NodeBatch> = Api::all(context.client.clone());
    let batch = batch_state::read(object);
    for _ in 0..BOOKINGS {
        let seen = pools.get_opt(pool).await.with_context(|| format!("read the books of the NodePool {pool}"))?;
        // Its books went with it.
        let Some(seen) = seen else { return Ok(()) };
        let exist = batches.list_metadata(&ListParams::default()).await.context("list the NodeBatches that exist")?;
        let exist: BTreeSet<String> = exist.items.into_iter().filter_map(|one| one.metadata.uid).collect();
        let next = match muster_core::batch::book(&books::read(&seen), pool, &batch, &exist) {
            Booking::Done => return Ok(()),
            Booking::Open => anyhow::bail!("the bill of the NodeBatch is not closed"),
            Booking::Write(next) => next,
        };
        let (spent, booked) = books::write(&next);
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": seen.metadata.resource_version},
            "status": {"spent": spent, "booked": booked},
        }));
        match step(Step::BookBatch, pools.patch_status(pool, &PatchParams::default(), &patch)).await {
            Err(kube::Error::Api(answer)) if answer.code == 409 => {}
            result => return absent(result).with_context(|| format!("write the books of the NodePool {pool}")),
        }
    }
    anyhow::bail!("others keep writing the NodePool {pool}: its books are tried again")
}

/// Removes the finalizer and the object: nothing of the batch is left in EC2. Its request knows first that it was used.
async fn remove_batch(context: &Context, batch: &NodeBatch) -> anyhow::Result<()> {
    request::note_use(context, batch)
        .await
        .context("write down on its ProvisioningRequest that the booked nodes were used")?;
    let batches: Api<NodeBatch> = Api::all(context.client.clone());
    let name = batch.name_any();
    match step(Step::EditBatch, batches.delete(&name, &DeleteParams::default())).await {
        Ok(_) => {}
        Err(kube::Error::Api(answer)) if answer.code == 404 => return Ok(()),
        Err(error) => return Err(anyhow::Error::new(error).context("delete the NodeBatch")),
    }
    let others: Vec<&String> = batch.finalizers().iter().filter(|one| *one != keys::TERMINATION).collect();
    let patch = Patch::Merge(json!({"metadata": {"finalizers": others}}));
    match step(Step::EditBatch, batches.patch(&name, &PatchParams::default(), &patch)).await {
        Ok(_) => {
            context.events.publish(batch, &gone()).await;
            info!("batch is gone: zero instances, no group, no template");
            Ok(())
        }
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(()),
        Err(error) => Err(anyhow::Error::new(error).context("remove the finalizer of the NodeBatch")),
    }
}

/// Publishes events.
pub(in crate::provisioner) async fn publish(
    context: &Context,
    state: &State,
    batch: &NodeBatch,
    events: &[BatchEvent],
) {
    for BatchEvent { pool, event } in events {
        match pool {
            None => context.events.publish(batch, event).await,
            Some(pool) => {
                if let Some(pool) = state.pools.get(pool) {
                    context.events.publish(&**pool, event).await;
                }
            }
        }
    }
}

/// Remembers for all batches what one learned.
pub(in crate::provisioner) fn learn(context: &Context, state: &State, notes: Vec<Note>) {
    let now = context.clock.now();
    for note in notes {
        match note {
            Note::NoCapacity { pools, count } => {
                let mut unavailable = context.unavailable.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                pools.iter().for_each(|pool| unavailable.record(pool, count, now));
            }
            Note::Launched { pool, count } => {
                let mut unavailable = context.unavailable.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                unavailable.succeeded(&pool, count);
            }
            Note::Refused { kind, code, asked } => {
                let asked = Asked {
                    instance_type: &asked.instance_type,
                    zone: &asked.zone,
                    capacity_type: asked.capacity_type,
                    subnet: &asked.subnet,
                    count: asked.count,
                };
                let mut refusals = context.refusals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                refusals.record(kind, code.as_deref(), &asked, now);
            }
            Note::Denied { operation, code, message } => {
                context.cloud.denied("ec2", &operation, code.as_deref(), &message, false);
            }
            Note::Blame { pool, kind, code, message } => {
                let class = state.pools.get(&pool).and_then(|pool| pool::class_of(state, pool));
                if let Some(class) = class {
                    class::blame(context, class, kind, code.as_deref(), &message);
                }
            }
            Note::ForgetReservations => reservations::forget(context),
            Note::ReservationGone(id) => {
                let mut refusals = context.refusals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                refusals.refuse_reservation(&id, now);
            }
            Note::ReservationFull(id) => {
                let mut refusals = context.refusals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                refusals.fill_reservation(&id, now);
            }
            Note::FleetsEnded(fleets) => {
                context.fleets.lock().unwrap_or_else(std::sync::PoisonError::into_inner).ended(fleets);
            }
        }
    }
}

/// Those of the nodes that hold a pod which neither belongs to its node nor has ended. Not from the cache: each is listed.
async fn occupied(context: &Context, state: &State, nodes: &[String]) -> anyhow::Result<Vec<String>> {
    let pods: Api<PodObject> = Api::all(context.client.clone());
    let mut held = Vec::new();
    for node in nodes {
        let on = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let there = pods.list(&on).await.with_context(|| format!("list the pods of the Node {node}"))?;
        let holds = |pod: &PodObject| {
            let known = pod_state::read(pod, Membership::Single, &[]);
            known.holds_capacity() && !known.daemon && !state.is_of_daemon_set(pod)
        };
        if there.iter().any(holds) {
            held.push(node.clone());
        }
    }
    Ok(held)
}

/// DaemonSets that would run on these nodes and do not tolerate their taints, at most five names. A cordon is tolerated by all of
/// their pods.
async fn intolerant_daemon_sets(context: &Context, state: &State, nodes: &[String]) -> Vec<String> {
    let sets: Api<DaemonSet> = Api::all(context.client.clone());
    let all = match sets.list(&ListParams::default()).await {
        Ok(all) => all.items,
        Err(error) => {
            warn!(%error, "DaemonSets not read; the event names none");
            return Vec::new();
        }
    };
    let node = nodes.iter().find_map(|node| state.snapshot.nodes.get(node.as_str()));
    let concerned = |set: &&DaemonSet| {
        let pod = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        let selects = pod.and_then(|pod| pod.node_selector.as_ref()).is_none_or(|selector| {
            node.is_some_and(|entry| {
                let carries = |key: &String, value: &String| {
                    entry.node.labels.get(key.as_str()).is_some_and(|has| **has == **value)
                };
                selector.iter().all(|(key, value)| carries(key, value))
            })
        });
        let tolerations = pod.and_then(|pod| pod.tolerations.as_deref()).unwrap_or_default();
        let mut taints = node.into_iter().flat_map(|entry| {
            let held = entry.node.held;
            entry.node.taints.iter().filter(move |taint| !(held && *taint.key == *keys::GANG_PENDING))
        });
        let tolerated = |taint: &KnownTaint| tolerations.iter().any(|toleration| tolerates(toleration, taint));
        selects && taints.any(|taint| !tolerated(taint))
    };
    let named = |set: &DaemonSet| format!("{}/{}", set.namespace().unwrap_or_default(), set.name_any());
    let names: BTreeSet<String> = all.iter().filter(concerned).map(named).collect();
    names.into_iter().take(5).collect()
}

/// As kube-scheduler compares them. The DaemonSet controller makes its pods tolerate what the node lifecycle puts on nodes.
fn tolerates(toleration: &Toleration, taint: &KnownTaint) -> bool {
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    let value = exists || toleration.value.as_deref().unwrap_or_default() == &*taint.value;
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let named = key.is_empty() && exists || key == &*taint.key;
    taint.effect == TaintEffect::PreferNoSchedule
        || taint.key.starts_with("node.kubernetes.io/")
        || named && value && (effect.is_empty() || effect == taint.effect.to_string())
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Mutex;

    use kube::client::Body;

    use super::*;

    /// An API server that answers each request, of a method with a body, with a status and an object.
    pub(in crate::provisioner::batch) fn serving(
        answer: impl Fn(&http::Method, &serde_json::Value) -> (u16, serde_json::Value) + Clone + Send + 'static,
    ) -> Client {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let answer = answer.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let asked = serde_json::from_slice(&body).unwrap_or_default();
                let (status, answer) = answer(&parts.method, &asked);
                let answer = http::Response::builder().status(status).body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, std::convert::Infallible>(answer.unwrap())
            }
        });
        Client::new(service, "default")
    }

    /// An API server whose Node somebody else edits just before each of the first `conflicts` patches; and the versions they were for.
    fn contended(conflicts: usize) -> (Client, Arc<Mutex<Vec<String>>>) {
        let patched: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&patched);
        let client = serving(move |method, asked| {
            let mut seen = seen.lock().unwrap();
            if method == http::Method::PATCH {
                seen.push(asked["metadata"]["resourceVersion"].as_str().unwrap().to_owned());
                if seen.len() <= conflicts {
                    let conflict = json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409, "message": "modified"});
                    return (409, conflict);
                }
            }
            let taints = json!([{"key": keys::UNREGISTERED, "effect": "NoExecute"}]);
            (
                200,
                json!({"metadata": {"name": "n", "resourceVersion": seen.len().to_string()}, "spec": {"taints": taints}}),
            )
        });
        (client, patched)
    }

    fn untainted(node: &NodeObject) -> Option<serde_json::Value> {
        let taints = node.spec.as_ref()?.taints.as_ref()?;
        (!taints.is_empty()).then(|| json!({"spec": {"taints": []}}))
    }

    #[tokio::test]
    async fn a_node_that_others_edit_meanwhile_is_edited_at_once_on_its_next_version() {
        let (client, patched) = contended(2);
        edit_node(&client, "n", untainted).await.unwrap();
        assert_eq!(*patched.lock().unwrap(), ["0", "1", "2"], "each for the version that was read before it");
    }

    #[tokio::test]
    async fn a_node_that_others_edit_all_the_time_is_left_to_the_next_look() {
        let (client, patched) = contended(usize::MAX);
        let error = edit_node(&client, "n", untainted).await.unwrap_err();
        assert_eq!(patched.lock().unwrap().len(), CONFLICTS as usize);
        assert!(error.to_string().contains("modified"), "{error}");
    }

    #[tokio::test]
    async fn a_node_that_is_as_it_should_be_is_not_edited() {
        let (client, patched) = contended(0);
        edit_node(&client, "n", |_| None).await.unwrap();
        assert_eq!(patched.lock().unwrap().len(), 0);
    }

    /// Methods and bodies.
    type Requests = Arc<Mutex<Vec<(http::Method, serde_json::Value)>>>;

    /// An API server whose Node has a taint that is ours behind one of others, or not where it is looked for; and what it is asked for.
    fn tainted(is_there: bool) -> (Client, Requests) {
        let asked = Requests::default();
        let seen = Arc::clone(&asked);
        let client = serving(move |method, asked| {
            seen.lock().unwrap().push((method.clone(), asked.clone()));
            if asked.is_array() && !is_there {
                let failed = json!({"kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422, "message": "test failed"});
                return (422, failed);
            }
            let taints = json!([
                {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"},
                {"key": keys::UNREGISTERED, "effect": "NoExecute"},
            ]);
            (200, json!({"metadata": {"name": "n", "resourceVersion": "7"}, "spec": {"taints": taints}}))
        });
        (client, asked)
    }

    #[tokio::test]
    async fn labels_that_the_api_server_does_not_take_are_not_counted_as_written() {
        let labels = BTreeMap::from([("example.com/own".into(), "a".into())]);
        let (taken, _) = tainted(true);
        assert_eq!(label(&taken, "n", &labels).await, Edited::Done);
        let denied =
            serving(|_, _| (403, json!({"kind": "Status", "status": "Failure", "code": 403, "message": "no"})));
        assert_eq!(label(&denied, "n", &labels).await, Edited::Not);
    }

    #[tokio::test]
    async fn a_taint_that_the_watch_shows_goes_by_one_request_that_holds_for_it_alone() {
        let (client, asked) = tainted(true);
        untaint(&client, "n", keys::UNREGISTERED, Some(1)).await.unwrap();
        let patch = json!([
            {"op": "test", "path": "/spec/taints/1/key", "value": keys::UNREGISTERED},
            {"op": "remove", "path": "/spec/taints/1"},
        ]);
        assert_eq!(*asked.lock().unwrap(), [(http::Method::PATCH, patch)]);
    }

    #[tokio::test]
    async fn a_taint_that_others_moved_meanwhile_goes_from_where_it_is() {
        for place in [Some(0), None] {
            let (client, asked) = tainted(false);
            untaint(&client, "n", keys::UNREGISTERED, place).await.unwrap();
            let asked = asked.lock().unwrap();
            let (method, patch) = asked.last().unwrap();
            assert_eq!(*method, http::Method::PATCH);
            let kept = patch["spec"]["taints"].as_array().unwrap();
            assert_eq!(kept.len(), 1, "{patch}");
            assert_eq!(kept[0]["timeAdded"], "2026-01-01T00:00:00Z", "that of others is as it was");
        }
    }

    /// An API server that has the Node of an instance under a UID, and what it is asked to delete or evict.
    fn listening() -> (Client, Arc<Mutex<Vec<serde_json::Value>>>) {
        let asked: Arc<Mutex<Vec<serde_json::Value>>> = Arc::default();
        let seen = Arc::clone(&asked);
        let client = serving(move |method, asked| {
            if method == http::Method::GET {
                let spec = json!({"providerID": "aws:///a/i-1"});
                return (200, json!({"metadata": {"name": "n", "uid": "u-1"}, "spec": spec}));
            }
            seen.lock().unwrap().push(asked.clone());
            (200, json!({"kind": "Status", "status": "Success", "code": 200, "message": "", "reason": ""}))
        });
        (client, asked)
    }

    #[tokio::test]
    async fn who_has_the_name_of_a_node_by_now_is_not_deleted_for_it() {
        let (client, asked) = listening();
        assert!(!delete_node(&client, "n", &InstanceId::from("i-2")).await.unwrap());
        assert!(asked.lock().unwrap().is_empty(), "its instance is another");
        assert!(delete_node(&client, "n", &InstanceId::from("i-1")).await.unwrap());
        assert_eq!(asked.lock().unwrap()[0]["preconditions"]["uid"], "u-1");
    }

    #[tokio::test]
    async fn who_has_the_name_of_a_pod_by_now_is_neither_evicted_nor_deleted_for_it() {
        let (client, asked) = listening();
        let pod = muster_core::model::names::ObjectKey::new("ml", "p");
        evict(&client, &pod, "u-2", false).await.unwrap();
        evict(&client, &pod, "u-2", true).await.unwrap();
        let asked = asked.lock().unwrap();
        assert_eq!(asked[0]["deleteOptions"]["preconditions"]["uid"], "u-2");
        assert_eq!(asked[1]["preconditions"]["uid"], "u-2");
    }
}
