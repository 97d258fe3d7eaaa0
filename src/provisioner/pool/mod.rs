//! NodePools: what is written into their status, and what the gang loop sees of them.

pub(super) mod allowed;
pub(super) mod ledger;
pub(super) mod offers;
mod readiness;
mod reading;
pub(super) mod reservations;

use std::sync::Arc;

use futures::future::join_all;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::crd::{NodePool, NodePoolStatus, is_true, set_condition};
use muster_api::supply::Supplied;
use muster_api::{pool as rules, pool_state};
use muster_core::batch::{dollars, micros};
use muster_core::gang::{GangEvent, PoolView};
use muster_core::offering::Ledger;
use serde_json::json;
use tracing::warn;

use super::Context;
use crate::clock::now_real;
use crate::cluster::State;
use crate::step::{Step, step};

pub(super) use muster_api::pool_check::duration;
pub(super) use readiness::{only_blocked, problem, unready};
pub(super) use reading::{allowed, blocked, class_of, devices, instance_types, probes, spot_types, zones};

/// Statuses that are written side by side.
const STATUSES: usize = 16;

/// Describes all pools: for the gang loop, and in their status.
pub(super) async fn reconcile(context: &Context, state: &State) -> anyhow::Result<()> {
    let mut views = Vec::new();
    let mut problems = Vec::new();
    context.allowed.keep(|name| state.pools.contains_key(name));
    let batches = state.batches.values().map(|seen| &**seen.batch());
    let left = Ledger::beside_all(&ledger::inputs(context, state, batches));
    let pools = state.pools.iter().map(|(name, pool)| (name.as_str(), blocked(state, pool).is_some()));
    context.metrics.pools.measure(pools, &left);
    for pool in state.pools.values() {
        let problem = problem(context, state, pool);
        // A blocked pool is not Ready, and yet gangs ask it: who waits for it is who tries whether its nodes join again.
        if problem.is_none() || only_blocked(context, state, pool) {
            views.extend(view(context, state, pool, &left));
        }
        problems.push((pool, problem));
    }
    // Before their statuses are written: who may not write one says so, and gangs are planned on the pools all the same.
    if **context.pools.load() != views {
        context.pools.store(Arc::new(views));
        context.requeue.notify_one();
    }
    // Side by side: with a webhook that hangs each takes as long as a write may.
    let mut failed = None;
    while !problems.is_empty() {
        let some = problems.drain(..problems.len().min(STATUSES));
        let writes: Vec<_> = some.map(|(pool, problem)| write_status(context, state, pool, problem)).collect();
        failed = join_all(writes).await.into_iter().fold(failed, |failed, wrote| failed.or(wrote.err()));
    }
    failed.map_or(Ok(()), Err)
}

/// The pool as the gang loop sees it.
fn view(context: &Context, state: &State, pool: &NodePool, ledger: &Ledger) -> Option<PoolView> {
    let catalogue = context.catalogue.load();
    let class = class_of(state, pool)?;
    let supplied = Supplied { pool, class: Some(class), zones: &zones(state, pool) };
    let types = instance_types(context, state, pool, class, &catalogue);
    Some(supplied.view(types, &catalogue.prices, &state.daemons, ledger, blocked(state, pool).is_some()))
}

/// Condition, and event, of a pool of which more nodes look empty, or are missing, than is credible.
const KEPT: &str = "EmptinessHeld";
/// Condition of a pool that pauses with launches for pods of no gang since the last ones brought no node.
pub(in crate::provisioner) const PAUSED: &str = "LaunchesPaused";

async fn write_status(
    context: &Context,
    state: &State,
    pool: &NodePool,
    problem: Option<(&'static str, String)>,
) -> anyhow::Result<()> {
    let name = pool.name_any();
    let before = pool.status.clone().unwrap_or_default();
    let mut status = NodePoolStatus {
        conditions: before.conditions.clone(),
        join_blocked: before.join_blocked.clone(),
        scheduler_refused: before.scheduler_refused.clone(),
        spent: before.spent.clone(),
        booked: before.booked.clone(),
        cluster_max_usd_per_hour: Some(rules::cluster_ceiling_text(context.options.ceiling)),
        ..NodePoolStatus::default()
    };
    let over = before.join_blocked.is_some() && blocked(state, pool).is_none();
    let mut price: u64 = 0;
    for batch in state.batches.values().filter_map(|seen| seen.object().status.as_ref()) {
        if batch.node_pool.as_deref() == Some(name.as_str()) && !batch.instances.is_empty() {
            status.batches += 1;
            status.nodes = status.nodes.saturating_add(u32::try_from(batch.instances.len()).unwrap_or(u32::MAX));
            price = price.saturating_add(batch.price_per_hour.as_deref().and_then(micros).unwrap_or(0));
        }
    }
    status.price_per_hour = Some(dollars(price));
    let (ready, reason, message) = match &problem {
        None => (true, "Ready", ""),
        Some((reason, message)) => (false, *reason, message.as_str()),
    };
    set_condition(&mut status.conditions, "Ready", ready, reason, message, now_real());
    if let Some(held) = context.held() {
        set_condition(&mut status.conditions, "OrphanSweepHeld", true, "OrphanSweepHeld", &held.message, now_real());
    } else if is_true(&status.conditions, "OrphanSweepHeld") {
        set_condition(&mut status.conditions, "OrphanSweepHeld", false, "Swept", "", now_real());
    }
    let mut news = None;
    if let Some(kept) = context.kept(&name) {
        news = (!is_true(&status.conditions, KEPT)).then(|| kept.clone());
        set_condition(&mut status.conditions, KEPT, true, KEPT, &kept, now_real());
    } else if is_true(&status.conditions, KEPT) {
        set_condition(&mut status.conditions, KEPT, false, "SeenAgain", "", now_real());
    }
    if let Some(paused) = context.paused(&name) {
        set_condition(&mut status.conditions, PAUSED, true, PAUSED, &paused, now_real());
    } else if is_true(&status.conditions, PAUSED) {
        set_condition(&mut status.conditions, PAUSED, false, "CapacityCame", "", now_real());
    }
    match before.scheduler_refused.as_ref().and_then(|written| pool_state::read(written).waits()) {
        Some(waits) => {
            set_condition(&mut status.conditions, "SchedulerRefused", true, "SchedulerRefused", &waits, now_real());
        }
        None if is_true(&status.conditions, "SchedulerRefused") => {
            set_condition(&mut status.conditions, "SchedulerRefused", false, "PodsCame", "", now_real());
        }
        None => {}
    }
    if status == before && !over {
        return Ok(());
    }
    let pools: Api<NodePool> = Api::all(context.client.clone());
    let mut patch = json!({"status": status});
    // A block is written by the batch that found it out, perhaps since this pool was read: only its end is written here. Books are
    // written by the batch that is booked.
    if let Some(status) = patch["status"].as_object_mut() {
        for other in ["joinBlocked", "schedulerRefused", "spent", "booked"] {
            status.remove(other);
        }
        if over {
            status.insert("joinBlocked".to_owned(), serde_json::Value::Null);
        }
    }
    step(Step::WriteStatus, pools.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch))).await?;
    // Once for each time that it begins: the condition outlives the process.
    if let Some(message) = news {
        warn!(pool = name, message, "nodes are kept that look empty or are missing");
        context.events.publish(pool, &GangEvent { reason: KEPT, message, warning: true }).await;
    }
    Ok(())
}
