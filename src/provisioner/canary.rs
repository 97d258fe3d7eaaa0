//! One node, bought alone, finds out whether nodes of a blocked pool join again before a whole batch is risked.
//!
//! Most nodes of a batch failed to join for one cause: configuration, not capacity. What is wrong may lie outside of the
//! pool and its class, in a network or a DaemonSet, where no change tells. So the batch that waits first in line buys a
//! single node after each pause of its back-off, and gives it back. If it joined, the pool is open again.

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::crd::{BatchHold, NodeBatch, NodeBatchStatus, NodePool};
use muster_core::gang::GangEvent;
use serde_json::json;
use tracing::info;

use super::batch::{Next, later};
use super::store::{Held, close_attempt};
use super::{Context, launch, pool, ranking};
use crate::cluster::State;
use crate::step::{Step, step};

/// Why a batch is held while its pool is blocked.
pub(super) const BLOCKED: &str = "JoinBlocked";
/// How the attempt of a node ends that joined and is given back.
pub(super) const OUTCOME: &str = "Canary";

/// Whether the batch waits for a blocked pool.
pub(super) fn held(status: &NodeBatchStatus) -> bool {
    status.held.as_ref().is_some_and(|hold| hold.reason == BLOCKED)
}

/// None of the batch's pools can be used. Where one is only blocked, a node is tried alone when it is time.
pub(super) async fn wait(
    context: &Context,
    held: &mut Held,
    state: &State,
    mut status: NodeBatchStatus,
    why: &str,
) -> anyhow::Result<Next> {
    let now = context.clock.now();
    let pools = &held.object.spec.node_pools;
    let blocked =
        pools.iter().filter_map(|name| state.pools.get(name)).find(|pool| pool::only_blocked(context, state, pool));
    let Some(pool) = blocked.map(|pool| pool.name_any()) else {
        status.message = Some(format!("no NodePool of this batch is ready: {why}"));
        held.write(context, status).await?;
        return Ok(Next::At(later(now, 15)));
    };
    if !self::held(&status) {
        status.held = Some(BatchHold { reason: BLOCKED.to_owned(), seen: String::new() });
        status.next_attempt_after = None;
        status.failed_rounds = 0;
    }
    if !first_in_line(state, &held.name(), &pool) {
        status.message = Some(format!("waits until one node of NodePool {pool} has joined: {why}"));
        held.write(context, status).await?;
        return Ok(Next::At(later(now, 15)));
    }
    match status.next_attempt_after {
        None => {
            let said = format!("{why}; one node is tried alone next");
            launch::back_off(&mut status, now, context.options.back_off, &said);
            held.write(context, status).await?;
            Ok(Next::At(later(now, 5)))
        }
        Some(at) if at > now => {
            held.write(context, status).await?;
            Ok(Next::At(at.min(later(now, 15))))
        }
        Some(_) => {
            let _turn = context.purchase.lock().await;
            let state = &*context.cluster.load();
            let ranking = ranking::rank_one(context, held, state, &pool, now);
            ranking::show(&mut status, &ranking);
            let Some(ranked) = ranking.candidates.first() else {
                launch::back_off(&mut status, now, context.options.back_off, "not even one node can be bought");
                held.write(context, status).await?;
                return Ok(Next::At(later(now, 15)));
            };
            launch::begin(context, held, state, status, ranked, true).await
        }
    }
}

/// One batch at a time tries: the first by name of those that wait for the pool.
fn first_in_line(state: &State, name: &str, pool: &str) -> bool {
    let waits = |batch: &NodeBatch| {
        let status = batch.status.as_ref();
        batch.metadata.deletion_timestamp.is_none()
            && batch.spec.node_pools.iter().any(|of_batch| of_batch == pool)
            && status.is_some_and(held)
    };
    state.batches.values().filter(|batch| waits(batch)).all(|batch| batch.name_any().as_str() >= name)
}

/// The pool is open again, or was changed: whole batches are bought.
pub(super) fn over(status: &mut NodeBatchStatus) {
    status.held = None;
    status.failed_rounds = 0;
    status.next_attempt_after = None;
    status.round_from = status.attempt;
    status.message = Some("the pool is open again: the whole batch is tried".to_owned());
}

/// The node joined: the pool is open, and the node goes unless it is all that the batch wants.
pub(super) async fn joined(
    context: &Context,
    held: &mut Held,
    state: &State,
    mut status: NodeBatchStatus,
    now: Timestamp,
) -> anyhow::Result<Option<Next>> {
    let name = status.node_pool.clone().unwrap_or_default();
    if let Some(pool) = state.pools.get(&name) {
        let api: Api<NodePool> = Api::all(context.client.clone());
        let patch = json!({"status": {"joinBlocked": null}});
        step(Step::WriteStatus, api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch))).await?;
        let message =
            format!("a node that NodeBatch {} bought alone has joined: whole batches are bought again", held.name());
        info!(pool = name, "open again");
        context.events.publish(&**pool, &GangEvent { reason: "JoinUnblocked", message, warning: false }).await;
    }
    over(&mut status);
    let wanted =
        held.object.spec.offers.iter().filter(|offer| Some(&offer.instance_type) == status.instance_type.as_ref());
    if wanted.map(|offer| offer.count).max() == Some(1) {
        held.object.status = Some(status);
        return Ok(None);
    }
    for instance in &mut status.instances {
        "Terminating".clone_into(&mut instance.state);
    }
    status.ready_count = 0;
    "Launching".clone_into(&mut status.phase);
    let said = "it joined and is given back; the whole batch is bought next".to_owned();
    status.message = Some(said.clone());
    close_attempt(&mut status, OUTCOME, None, Some(said), now);
    held.write(context, status).await?;
    Ok(Some(Next::Now))
}
