//! The candidates of a batch, as its status shows them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use muster_api::crd::NodePool;
use muster_api::supply::{self, Supplied};
use muster_core::batch::{Before, Working};
use muster_core::ec2::{CapacityType, Subnet};
use muster_core::model::batch::{Batch, Owner};
use muster_core::offering::{GroupPolicy, Ledger, Need, PoolOffer, PoolType, RankInput, Ranking, rank_candidates};

use crate::cluster::State;
use crate::provisioner::pool::{ledger, reservations};
use crate::provisioner::{Context, class, pool};

/// Ranks all ways to provision the batch now.
pub(in crate::provisioner) fn rank(
    context: &Context,
    batch: &Batch,
    others: &Working,
    state: &State,
    before: Before,
    now: Timestamp,
) -> Ranking {
    let spec = &batch.spec;
    let inputs = ledger::inputs(context, state, others.values().map(AsRef::as_ref));
    let left = match before {
        Before::Older => Ledger::before(&inputs, &batch.name),
        Before::Nobody => Ledger::new(&inputs, Some(&batch.name)),
    };
    let names = spec.node_pools.iter();
    let pools: Vec<_> = names
        .filter_map(|name| offer(context, state, state.pools.get(name)?, &left))
        .map(|pool| in_zones(pool, &spec.zones))
        .map(|pool| for_pods(pool, batch))
        .collect();
    rank_in(context, batch, state, &pools, None, now)
}

/// Ranks all ways to provision one node of a blocked pool now.
pub(in crate::provisioner) fn rank_one(
    context: &Context,
    batch: &Batch,
    others: &Working,
    state: &State,
    pool: &str,
    now: Timestamp,
) -> Ranking {
    let inputs = ledger::inputs(context, state, others.values().map(AsRef::as_ref));
    let left = Ledger::before(&inputs, &batch.name);
    let offer = state.pools.get(pool).and_then(|pool| blocked_offer(context, state, pool, &left));
    let offer = offer.map(|pool| in_zones(pool, &batch.spec.zones));
    rank_in(context, batch, state, offer.as_slice(), Some(1), now)
}

/// The pool as the ranking sees it, with what is left for the batch that asks.
fn offer(context: &Context, state: &State, pool: &NodePool, ledger: &Ledger) -> Option<PoolOffer> {
    if pool::problem(context, state, pool).is_some() { None } else { describe(context, state, pool, ledger) }
}

/// As [`offer`], for a pool that is blocked.
fn blocked_offer(context: &Context, state: &State, pool: &NodePool, ledger: &Ledger) -> Option<PoolOffer> {
    if pool::only_blocked(context, state, pool) { describe(context, state, pool, ledger) } else { None }
}

fn describe(context: &Context, state: &State, pool: &NodePool, ledger: &Ledger) -> Option<PoolOffer> {
    let class = pool::class_of(state, pool)?;
    let catalogue = context.catalogue.load();
    let read = class::subnets_read(context, class);
    let free = |subnet: Subnet| Subnet { free_addresses: ledger.addresses(&subnet, read), ..subnet };
    let subnets = supply::subnets(class).into_iter().map(free).collect();
    let supplied = Supplied { pool, class: Some(class), zones: &pool::zones(state, pool) };
    let types = pool::instance_types(context, state, pool, class, &catalogue);
    Some(supplied.offer(types, subnets, reservations::free(context, class, ledger), ledger))
}

/// The pool in these zones alone; in all of its own if none is named.
fn in_zones(mut pool: PoolOffer, zones: &[String]) -> PoolOffer {
    pool.zones.retain(|zone| zones.is_empty() || zones.contains(zone));
    pool
}

/// The pool as a batch for pods of no gang uses it: on the capacity type it was planned with, and without placement groups.
fn for_pods(mut pool: PoolOffer, batch: &Batch) -> PoolOffer {
    if let Some(planned) = batch.spec.capacity_type {
        pool.capacity_types.retain(|capacity_type| *capacity_type == planned);
    }
    if batch.spec.owner == Owner::Pods {
        // A round says so where it plans with a reservation; spot was chosen for its price, and on demand is what it falls back to.
        pool.capacity_types.retain(|capacity_type| {
            *capacity_type != CapacityType::Reserved || batch.spec.capacity_type == Some(CapacityType::Reserved)
        });
        // Blocks are for gangs: they end at a time.
        pool.reservations.retain(|reservation| !reservation.block);
        pool.capacity_types.sort_unstable();
        pool.group = GroupPolicy::None;
        // The round has kept them among what could be had then.
        pool.min_values.clear();
    }
    pool
}

fn rank_in(
    context: &Context,
    batch: &Batch,
    state: &State,
    pools: &[PoolOffer],
    nodes: Option<u32>,
    now: Timestamp,
) -> Ranking {
    let catalogue = context.catalogue.load();
    let spec = &batch.spec;
    let mut needs: BTreeMap<PoolType, Need> = BTreeMap::new();
    for offer in &spec.offers {
        let Some(info) = catalogue.types.get(&offer.instance_type) else { continue };
        let Some(pool) = state.pools.get(&offer.node_pool) else { continue };
        let supplied = Supplied { pool, class: pool::class_of(state, pool), zones: &BTreeSet::new() };
        needs.extend(supplied.need(info, nodes.unwrap_or(offer.count)));
    }
    let unavailable = context.unavailable.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let refusals = context.refusals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    rank_candidates(&RankInput {
        pools,
        types: &catalogue.types,
        needs: &needs,
        group: GroupPolicy::of_gang(spec.placement_group.as_deref()),
        volume_zones: None,
        offerings: &catalogue.offerings,
        prices: &catalogue.prices,
        unavailable: &unavailable,
        refusals: &refusals,
        now,
    })
}
