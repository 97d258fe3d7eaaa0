//! The candidates of a batch, as its status shows them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use muster_api::crd::{EC2NodeClass, NodePool};
use muster_api::pool as rules;
use muster_api::supply::{self, Supplied};
use muster_core::batch::{Before, Working};
use muster_core::ec2::{CapacityType, Reservation, Subnet};
use muster_core::model::batch::{Batch, Owner};
use muster_core::offering::{GroupPolicy, Ledger, Need, PoolOffer, PoolType, RankInput, Ranking, rank_candidates};
use tracing::debug;

use crate::cluster::State;
use crate::provisioner::pool::ledger;
use crate::provisioner::{Context, class, pool};

/// Free hosts of reservations are read again after this, in the provisioner's time.
const FRESH: SignedDuration = SignedDuration::from_secs(20);

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
    Some(supplied.offer(types, subnets, reservations(context, class, ledger), ledger))
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
        // No round plans with reservations; spot was chosen for its price, and on demand is what it falls back to.
        pool.capacity_types.retain(|capacity_type| *capacity_type != CapacityType::Reserved);
        pool.capacity_types.sort_unstable();
        pool.group = GroupPolicy::None;
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

/// Classes of these pools whose reservations were read too long ago.
pub(in crate::provisioner) fn stale_reservations<'a>(
    context: &'a Context,
    pools: &'a [String],
    state: &'a State,
    now: Timestamp,
) -> impl Iterator<Item = &'a EC2NodeClass> {
    pools.iter().filter_map(move |name| {
        let pool = state.pools.get(name)?;
        let class = pool::class_of(state, pool)?;
        let wanted = rules::capacity_types(pool).contains(&CapacityType::Reserved)
            && !class.spec.capacity_reservation_selector_terms.is_empty();
        let known = lock(context).get(&class.name_any()).is_some_and(|(at, _)| now.duration_since(*at) < FRESH);
        (wanted && !known).then_some(class)
    })
}

/// Reads the reservations of these pools, where the last reading is old. What cannot be read is not asked for again at
/// once.
pub(in crate::provisioner) async fn refresh_reservations(context: &Context, pools: &[String], state: &State) {
    let now = context.clock.now();
    let stale: Vec<&EC2NodeClass> = stale_reservations(context, pools, state, now).collect();
    for class in stale {
        match class::reservations(context, class).await {
            Ok(found) => {
                lock(context).insert(class.name_any(), (now, found));
            }
            Err(error) => debug!(error = %error, "reservations not read; those read last are used"),
        }
    }
}

/// Forgets what is known of free hosts: EC2 has just reported otherwise.
pub(in crate::provisioner) fn forget_reservations(context: &Context) {
    lock(context).clear();
}

fn lock(context: &Context) -> std::sync::MutexGuard<'_, BTreeMap<String, (Timestamp, Vec<Reservation>)>> {
    context.reservations.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Reservations of a class, hosts that other batches take off the free ones.
pub(in crate::provisioner) fn reservations(
    context: &Context,
    class: &EC2NodeClass,
    ledger: &Ledger,
) -> Vec<Reservation> {
    let Some((read, mut found)) = lock(context).get(&class.name_any()).cloned() else { return Vec::new() };
    for reservation in &mut found {
        reservation.free = ledger.hosts(reservation, read);
    }
    found
}
