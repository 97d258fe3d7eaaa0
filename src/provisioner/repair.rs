//! Lost nodes of a batch: replaced in place, each replacement an attempt of its own, or all of it given back.
//!
//! The intent is written down first: the lost instances leave `instances[]` for `replaced[]`, and the attempt names
//! them. While pods are still on a lost node (it was given notice) the replacement is bought first; an instance that
//! serves nobody is terminated first. In a reservation the free host is taken before the lost one is given back.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::crd::{BatchAttempt, BatchInstance, BatchLoss, JoinBlocked, NodeBatchStatus, NodePool};
use muster_api::keys;
use muster_core::batch::{JoinCause, Verdict, cost_between, describe_failures, dollars, judge, micros};
use muster_core::ec2::{CapacityType, InstanceState, LaunchParameters};
use muster_core::gang::GangEvent;
use muster_core::model::gang::Phase;
use muster_core::model::names::{InstanceId, ObjectKey};
use muster_core::offering::Pool;
use serde_json::json;
use tracing::{debug, info, warn};

use super::batch::{Next, later, unwanted};
use super::store::{Held, close_attempt};
use super::{Context, join, launch, pool, teardown};
use crate::cluster::State;
use crate::step::{Step, step};

/// An answer that says nothing is followed by this many more looks before the replacement counts as lost.
const SWEEPS: u32 = 4;

/// Replaces instances of a joining batch.
pub(super) async fn replace(
    context: &Context,
    held: &mut Held,
    state: &State,
    failed: &BTreeMap<InstanceId, JoinCause>,
) -> anyhow::Result<Next> {
    let why = describe_failures(failed);
    let causes = failed.iter().map(|(id, cause)| (id.to_string(), cause.to_string())).collect();
    begin(context, held, state, &causes, &why).await
}

/// Instances of a batch in use that are lost by now.
pub(super) fn lost(status: &NodeBatchStatus, now: Timestamp) -> Vec<&BatchInstance> {
    let due = |loss: &BatchLoss| loss.act_at <= now;
    status.instances.iter().filter(|instance| instance.loss.as_ref().is_some_and(due)).collect()
}

/// A Node that vanished is a lost node, whoever deleted it: its machine ended, or somebody wants it gone. Whether any did.
pub(super) fn notice_absent(status: &mut NodeBatchStatus, state: &State, now: Timestamp) -> bool {
    let mut any = false;
    for instance in status.instances.iter_mut().filter(|instance| instance.loss.is_none()) {
        if instance.node.as_deref().is_some_and(|node| !state.snapshot.nodes.contains_key(node)) {
            "Lost".clone_into(&mut instance.state);
            let message = "its Node is gone".to_owned();
            instance.loss =
                Some(BatchLoss { cause: "missing".to_owned(), message, noticed: now, act_at: now, deadline: None });
            any = true;
        }
    }
    any
}

/// A batch in use, or ready for its gang, has lost nodes. An elastic gang that keeps its minimum goes on without them:
/// the batch shrinks. Else they are replaced at once, while the gang loop stops the gang.
pub(super) async fn lost_in_use(context: &Context, held: &mut Held, state: &State) -> anyhow::Result<Next> {
    let status = held.status();
    let now = context.clock.now();
    let gone: BTreeSet<String> = lost(&status, now).into_iter().map(|instance| instance.id.clone()).collect();
    if status.phase == "InUse" && gone.len() < status.instances.len() && survives(held, state, &status, &gone) {
        return shrink(context, held, state, &gone).await;
    }
    repair(context, held, state).await
}

/// Whether the gang of the batch keeps its minimum without these instances.
fn survives(held: &Held, state: &State, status: &NodeBatchStatus, gone: &BTreeSet<String>) -> bool {
    let Some(reference) = &held.object.spec.gang_ref else { return false };
    let key = ObjectKey::new(reference.namespace.as_str(), reference.name.as_str());
    let Some(gang) = state.snapshot.gangs.get(&key) else { return false };
    let lost: BTreeSet<&str> = status
        .instances
        .iter()
        .filter(|instance| gone.contains(&instance.id))
        .filter_map(|instance| instance.node.as_deref())
        .collect();
    let stay = state.snapshot.live_members(&key).filter(|pod| {
        pod.node.as_ref().is_some_and(|node| !lost.contains(node.as_str()) && state.snapshot.nodes.contains_key(node))
    });
    gang.phase == Some(Phase::Bound) && u32::try_from(stay.count()).is_ok_and(|stay| stay >= gang.minimum.max(1))
}

/// The recorded count goes down before any instance does.
async fn shrink(context: &Context, held: &mut Held, state: &State, gone: &BTreeSet<String>) -> anyhow::Result<Next> {
    let mut status = held.status();
    for instance in status.instances.iter().filter(|instance| gone.contains(&instance.id)) {
        if let Some(node) = instance.node.as_deref() {
            taint(context, state, node, keys::DISRUPTED, None).await?;
        }
    }
    let price = status.price_per_hour.as_deref().and_then(micros).unwrap_or(0);
    let (lost, kept): (Vec<_>, Vec<_>) = status.instances.into_iter().partition(|instance| gone.contains(&instance.id));
    let left = u32::try_from(kept.len()).unwrap_or(u32::MAX);
    status.price_per_hour = Some(dollars(price.saturating_mul(u64::from(left)) / u64::from(status.count.max(1))));
    status.count = left;
    status.ready_count = status.ready_count.min(left);
    status.instances = kept;
    status.replaced.extend(lost);
    status.message = Some(format!("{} nodes lost; its gang goes on with {left}", gone.len()));
    held.write(context, status).await?;
    let message = format!("the gang keeps its minimum without {}", gone.iter().cloned().collect::<Vec<_>>().join(", "));
    context.events.publish(&held.object, &GangEvent { reason: "Shrunk", message, warning: false }).await;
    Ok(Next::Now)
}

async fn repair(context: &Context, held: &mut Held, state: &State) -> anyhow::Result<Next> {
    let status = held.status();
    let now = context.clock.now();
    let causes: BTreeMap<String, String> = lost(&status, now)
        .into_iter()
        .map(|instance| {
            (instance.id.clone(), instance.loss.as_ref().map_or_else(String::new, |loss| loss.message.clone()))
        })
        .collect();
    let mut told: BTreeMap<&str, usize> = BTreeMap::new();
    for text in causes.values() {
        *told.entry(text).or_default() += 1;
    }
    let why: Vec<String> = told.into_iter().map(|(text, count)| format!("{count} × {text}")).collect();
    begin(context, held, state, &causes, &why.join("; ")).await
}

async fn begin(
    context: &Context,
    held: &mut Held,
    state: &State,
    lost: &BTreeMap<String, String>,
    why: &str,
) -> anyhow::Result<Next> {
    let mut status = held.status();
    let now = context.clock.now();
    let whole = |attempt: &&BatchAttempt| attempt.outcome == "Won" && attempt.replaces.is_empty();
    let Some(won) = status.attempts.iter().rev().find(whole).cloned() else {
        let ids = join::ids(&status);
        return launch::violated(context, held, &ids, why).await;
    };
    // No member is planned here any more, nor anything else on what stays until the gang uses it again.
    let lost_nodes: BTreeSet<&str> = status
        .instances
        .iter()
        .filter(|instance| lost.contains_key(&instance.id))
        .filter_map(|instance| instance.node.as_deref())
        .collect();
    for node in &lost_nodes {
        taint(context, state, node, keys::DISRUPTED, None).await?;
    }
    let mut parameters: LaunchParameters = serde_json::from_str(won.parameters.as_deref().unwrap_or_default())?;
    let number = status.attempt.saturating_add(1);
    parameters.count = u32::try_from(lost.len()).unwrap_or(u32::MAX);
    parameters.tags.attempt = number;
    let parameters = parameters.with_token(status.generation);
    let (gone, kept): (Vec<_>, Vec<_>) =
        status.instances.into_iter().partition(|instance| lost.contains_key(&instance.id));
    status.instances = kept;
    status.ready_count =
        u32::try_from(status.instances.iter().filter(|instance| instance.state == "Ready").count()).unwrap_or(u32::MAX);
    for mut instance in gone {
        "Lost".clone_into(&mut instance.state);
        if instance.loss.is_none() {
            let message = lost.get(&instance.id).cloned().unwrap_or_default();
            instance.loss =
                Some(BatchLoss { cause: "join".to_owned(), message, noticed: now, act_at: now, deadline: None });
        }
        status.replaced.push(instance);
    }
    "Replacing".clone_into(&mut status.phase);
    status.attempt = number;
    status.deadline = None;
    status.message = Some(format!("replacing {} of {} nodes in place: {why}", lost.len(), status.count));
    status.attempts.push(BatchAttempt {
        number,
        count: parameters.count,
        token: Some(parameters.token.clone()),
        parameters: Some(serde_json::to_string(&parameters)?),
        replaces: lost.keys().cloned().collect(),
        outcome: "Launching".to_owned(),
        started: Some(now),
        ended: None,
        replayed: false,
        sweeps: 0,
        fleet: None,
        code: None,
        message: None,
        ..won
    });
    warn!(lost = lost.len(), why, "nodes are lost: replacing them in place");
    held.write(context, status).await?;
    Ok(Next::Now)
}

/// Launches what replaces the lost instances. Sent again with the same token until there is an answer.
pub(super) async fn replacing(context: &Context, held: &mut Held, state: &State) -> anyhow::Result<Next> {
    let Some(attempt) = held.attempt() else { return Ok(Next::At(later(context.clock.now(), 60))) };
    let mut status = held.status();
    let now = context.clock.now();
    match attempt.outcome.as_str() {
        "Launching" => {}
        // Nothing came in their stead: all of it goes, once the gang has left the survivors.
        _ => return give_up(context, held, state, attempt.message.as_deref().unwrap_or("no replacement")).await,
    }
    // A crash between the intent and the termination: what serves nobody is not paid for any longer. In a reservation that
    // has a free host it goes last.
    let reserved = attempt.capacity_type == CapacityType::Reserved.as_str();
    let budget = attempt.started.and_then(|at| at.saturating_add(join::budget(context, &status)).ok());
    let in_time = budget.is_some_and(|until| now < until);
    let full = attempt.code.is_some();
    if !reserved || full {
        let left = terminate_replaced(context, state, &status, now).await?;
        if full && in_time && !left.is_empty() {
            return Ok(Next::Pause(later(now, 5)));
        }
    }
    let parameters: LaunchParameters = serde_json::from_str(attempt.parameters.as_deref().unwrap_or_default())?;
    let answer = context.cloud.launch(&parameters).await;
    let first = !attempt.replayed;
    if let (Ok(answer), Some(last)) = (&answer, status.attempts.last_mut()) {
        last.fleet.clone_from(&answer.fleet_id);
    }
    // What a reservation lacks says nothing about the pool.
    let remember = |ice: &[Pool]| {
        if !reserved {
            launch::remember(context, ice, parameters.count);
        }
    };
    let (why, open) = match judge(&parameters, first, &answer) {
        Verdict::Won(ids) => return won(context, held, status, ids).await,
        Verdict::Violated(ids) => {
            status.instances.extend(fresh(&ids, status.attempt));
            held.object.status = Some(status);
            return lost_again(context, held, None, "another number of instances than asked for").await;
        }
        Verdict::Lost { why, ice, .. } | Verdict::Quota { why, ice, .. } | Verdict::Configuration { why, ice, .. } => {
            remember(&ice);
            (Some(why), false)
        }
        Verdict::Throttled { why, .. } | Verdict::NotDecided { why } => (Some(why), true),
        Verdict::TokenRefused { why } => (Some(why), false),
        Verdict::Unknown { why, ice } => {
            remember(&ice);
            (why, true)
        }
    };
    let fleet = status.attempts.last().and_then(|last| last.fleet.clone());
    let made = launch::made(context, fleet.as_deref(), &parameters).await?;
    let found: Vec<InstanceId> = made.into_iter().map(|instance| instance.id).collect();
    if u32::try_from(found.len()) == Ok(parameters.count) {
        return won(context, held, status, found).await;
    }
    let no_host = reserved && why.as_ref().is_some_and(|why| why.kind.says_full()) && found.is_empty();
    // Whoever is not there any more waits for no host.
    if no_host && in_time && !unwanted(context, held, state).await? {
        // The hosts of the lost nodes are what there is to wait for.
        if let Some(last) = status.attempts.last_mut() {
            last.code = why.and_then(|why| why.code);
        }
        status.deadline = budget;
        status.message = Some(
            "the reservation has no free host: waiting for the hosts of the lost nodes, which go first".to_owned(),
        );
        held.write(context, status).await?;
        return Ok(Next::Pause(later(now, 15)));
    }
    let said =
        why.as_ref().map_or_else(|| "no answer".to_owned(), |why| why.code.clone().unwrap_or(why.message.clone()));
    if !found.is_empty() {
        status.instances.extend(fresh(&found, status.attempt));
        held.object.status = Some(status);
        return lost_again(context, held, None, "fewer instances than asked for were found").await;
    }
    if open && !no_host && attempt.sweeps < SWEEPS {
        let mut turn = 0;
        if let Some(last) = status.attempts.last_mut() {
            last.replayed = true;
            last.sweeps = last.sweeps.saturating_add(1);
            turn = last.sweeps;
        }
        status.message = Some(format!("the outcome of the replacement is open ({said}): the same call is sent again"));
        held.write(context, status).await?;
        return Ok(Next::Pause(later(now, 1_i64 << turn.min(4))));
    }
    lost_again(context, held, why.and_then(|why| why.code), &said).await
}

fn fresh(ids: &[InstanceId], attempt: u32) -> Vec<BatchInstance> {
    ids.iter()
        .map(|id| BatchInstance {
            id: id.to_string(),
            attempt,
            state: "Launched".to_owned(),
            ..BatchInstance::default()
        })
        .collect()
}

async fn won(
    context: &Context,
    held: &mut Held,
    mut status: NodeBatchStatus,
    ids: Vec<InstanceId>,
) -> anyhow::Result<Next> {
    let now = context.clock.now();
    status.instances.extend(fresh(&ids, status.attempt));
    "Launched".clone_into(&mut status.phase);
    status.message = Some(format!("{} instances launched in the place of lost ones", ids.len()));
    close_attempt(&mut status, "Won", None, None, now);
    let replaced = held.attempt().map(|attempt| attempt.replaces).unwrap_or_default();
    held.write(context, status).await?;
    let message = format!(
        "{} in the place of {}: same zone, type, group and image",
        ids.iter().map(InstanceId::as_str).collect::<Vec<_>>().join(", "),
        replaced.join(", ")
    );
    context.events.publish(&held.object, &GangEvent { reason: "NodeReplaced", message, warning: false }).await;
    Ok(Next::Now)
}

/// The replacement is lost: all n go.
async fn lost_again(context: &Context, held: &mut Held, code: Option<String>, why: &str) -> anyhow::Result<Next> {
    let mut status = held.status();
    let now = context.clock.now();
    let cost = cost_since_launch(&status, now);
    let message =
        format!("no replacement ({why}); {} instances cost ${cost} since their launch", status.instances.len());
    close_attempt(&mut status, "Lost", code, Some(message), now);
    status.message = Some(format!("no replacement ({why}): all {} nodes go once their pods have left", status.count));
    held.write(context, status).await?;
    Ok(Next::Now)
}

async fn give_up(context: &Context, held: &mut Held, state: &State, why: &str) -> anyhow::Result<Next> {
    let mut status = held.status();
    let now = context.clock.now();
    let busy = teardown::pods_on(state, &status);
    if busy > 0 {
        status.message = Some(format!("{why}; waiting for {busy} pods to leave before all nodes go"));
        held.write(context, status).await?;
        return Ok(Next::At(later(now, 5)));
    }
    let ids = join::ids(&status);
    launch::violated(context, held, &ids, why).await
}

/// Ends lost instances that serve nobody and forgets those that are gone. Whether the status changed.
pub(super) async fn give_back(context: &Context, held: &mut Held, state: &State) -> anyhow::Result<bool> {
    let mut status = held.status();
    let now = context.clock.now();
    let replacing = status.phase == "Replacing";
    let reserved = status.capacity_type.as_deref() == Some(CapacityType::Reserved.as_str());
    if held.cleared.is_some_and(|at| now < later(at, 5)) || replacing && reserved {
        return Ok(false);
    }
    held.cleared = Some(now);
    let left = terminate_replaced(context, state, &status, now).await?;
    let before = status.replaced.len();
    status.replaced.retain(|instance| left.contains(&instance.id));
    if status.replaced.len() == before {
        return Ok(false);
    }
    held.write(context, status).await?;
    Ok(true)
}

/// Terminates lost instances without pods, or whose time is over. The answer is those that EC2 still has.
async fn terminate_replaced(
    context: &Context,
    state: &State,
    status: &NodeBatchStatus,
    now: Timestamp,
) -> anyhow::Result<BTreeSet<String>> {
    let ids: Vec<InstanceId> = status.replaced.iter().map(|instance| InstanceId::from(instance.id.as_str())).collect();
    let seen = context.cloud.instances(&ids).await?;
    let there: BTreeMap<&str, InstanceState> =
        seen.iter().map(|instance| (instance.id.as_str(), instance.state)).collect();
    let mut left = BTreeSet::new();
    let mut due = Vec::new();
    let nodes: Api<NodeObject> = Api::all(context.client.clone());
    for instance in &status.replaced {
        let ended = matches!(there.get(instance.id.as_str()), None | Some(InstanceState::Terminated));
        if ended {
            if let Some(node) = instance.node.as_deref().filter(|node| state.snapshot.nodes.contains_key(*node)) {
                // Elsewhere the cloud controller removes it too.
                match step(Step::EditNode, nodes.delete(node, &DeleteParams::default())).await {
                    Ok(_) => {}
                    Err(kube::Error::Api(answer)) if answer.code == 404 => {}
                    Err(error) => return Err(error.into()),
                }
            }
            continue;
        }
        left.insert(instance.id.clone());
        let live = there.get(instance.id.as_str()).is_some_and(|state| *state != InstanceState::ShuttingDown);
        let node = instance.node.as_deref();
        let busy =
            node.is_some_and(|node| {
                state.snapshot.pods.values().any(|pod| {
                    pod.holds_room() && !pod.daemon && pod.node.as_ref().is_some_and(|on| on.as_str() == node)
                })
            });
        let over = instance.loss.as_ref().is_some_and(|loss| loss.deadline.is_some_and(|deadline| deadline <= now));
        if live && (!busy || over) {
            due.push(InstanceId::from(instance.id.as_str()));
        }
    }
    if !due.is_empty() {
        info!(instances = due.len(), "terminating what was replaced");
        context.cloud.terminate_instances(&due).await?;
    }
    Ok(left)
}

/// Dollars since the launch of the whole batch.
pub(super) fn cost_since_launch(status: &NodeBatchStatus, now: Timestamp) -> String {
    let price = status.price_per_hour.as_deref().and_then(micros).unwrap_or(0);
    let launched = status
        .attempts
        .iter()
        .rev()
        .find(|attempt| attempt.outcome == "Won" && attempt.replaces.is_empty())
        .and_then(|attempt| attempt.started);
    dollars(launched.map_or(0, |launched| cost_between(price, launched, now)))
}

/// Puts a taint on a node that lacks it.
pub(super) async fn taint(
    context: &Context,
    state: &State,
    name: &str,
    key: &str,
    value: Option<&str>,
) -> anyhow::Result<()> {
    let seen = state.snapshot.nodes.get(name);
    if seen.is_none_or(|entry| entry.node.taints.iter().any(|taint| *taint.key == *key)) {
        return Ok(());
    }
    let api: Api<NodeObject> = Api::all(context.client.clone());
    let Some(node) = api.get_opt(name).await? else { return Ok(()) };
    let mut taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    if taints.iter().any(|taint| taint.key == key) {
        return Ok(());
    }
    taints.push(k8s_openapi::api::core::v1::Taint {
        key: key.to_owned(),
        value: value.map(str::to_owned),
        effect: "NoSchedule".to_owned(),
        ..Default::default()
    });
    let patch = json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints}});
    match step(Step::EditNode, api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// DaemonSets that would run on the batch's nodes and do not tolerate our taint, at most five names.
pub(super) async fn intolerant_daemon_sets(context: &Context, state: &State, status: &NodeBatchStatus) -> Vec<String> {
    let sets: Api<DaemonSet> = Api::all(context.client.clone());
    let all = match sets.list(&ListParams::default()).await {
        Ok(all) => all.items,
        Err(error) => {
            debug!(%error, "DaemonSets not read; the event names none");
            return Vec::new();
        }
    };
    let node = status.instances.iter().find_map(|instance| state.snapshot.nodes.get(instance.node.as_deref()?));
    let mut names: Vec<String> = all
        .iter()
        .filter(|set| {
            let pod = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
            let selects = pod.and_then(|pod| pod.node_selector.as_ref()).is_none_or(|selector| {
                node.is_some_and(|entry| {
                    selector
                        .iter()
                        .all(|(key, value)| entry.node.labels.get(key.as_str()).is_some_and(|has| **has == **value))
                })
            });
            let tolerations = pod.and_then(|pod| pod.tolerations.as_deref()).unwrap_or_default();
            let tolerates = tolerations.iter().any(|toleration| {
                let key = toleration.key.as_deref();
                let exists = toleration.operator.as_deref() == Some("Exists");
                let effect = toleration.effect.as_deref().is_none_or(|effect| effect == "NoSchedule");
                effect && exists && (key.is_none() || key == Some(keys::GANG_PENDING))
            });
            selects && !tolerates
        })
        .map(|set| format!("{}/{}", set.namespace().unwrap_or_default(), set.name_any()))
        .collect();
    names.sort();
    names.truncate(5);
    names
}

/// The pool buys no batch before it or its class changes, or a node that is tried alone joins.
pub(super) async fn block_pool(
    context: &Context,
    held: &Held,
    state: &State,
    status: &NodeBatchStatus,
    cause: &JoinCause,
) -> anyhow::Result<()> {
    let Some(pool) = status.node_pool.as_ref().and_then(|name| state.pools.get(name)) else { return Ok(()) };
    let class = pool::class_of(state, pool);
    let blocked = JoinBlocked {
        cause: cause.to_string(),
        batch: held.name(),
        pool_generation: pool.metadata.generation.unwrap_or_default(),
        class_generation: class.and_then(|class| class.metadata.generation).unwrap_or_default(),
    };
    let message = format!(
        "most nodes of NodeBatch {} {cause}: no batch is bought from this pool until it or its EC2NodeClass changes, or a \
         node that is tried alone joins",
        blocked.batch
    );
    let api: Api<NodePool> = Api::all(context.client.clone());
    let patch = json!({"status": {"joinBlocked": blocked}});
    step(Step::WriteStatus, api.patch_status(&pool.name_any(), &PatchParams::default(), &Patch::Merge(&patch))).await?;
    let event = GangEvent { reason: "JoinBlocked", message, warning: true };
    context.events.publish(&**pool, &event).await;
    Ok(())
}
