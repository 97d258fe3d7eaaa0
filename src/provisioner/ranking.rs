//! The candidates of a batch, as its status shows them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use muster_api::crd::{BatchCandidate, BatchLeftOut, EC2NodeClass, NodeBatchStatus};
use muster_api::pool as rules;
use muster_core::batch::dollars;
use muster_core::ec2::{Blame, CapacityType, Reservation};
use muster_core::offering::{
    GroupPolicy, Ledger, LeftOut, Need, PoolOffer, PoolType, RankInput, Ranked, Ranking, rank_candidates,
};
use muster_core::reason::{Help, Unsold};
use tracing::debug;

use super::store::Held;
use super::{Context, class, ledger, pool};
use crate::cluster::State;

/// Left-out entries kept in the status.
const LEFT_OUT: usize = 32;
/// Free hosts of reservations are read anew after this, in the provisioner's time.
const FRESH: SignedDuration = SignedDuration::from_secs(20);

/// Which batches that have not begun go before the one that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// Those that are older.
    Older,
    /// None.
    Nobody,
}

/// Ranks all ways to buy the batch now.
pub(super) fn rank(context: &Context, held: &Held, state: &State, before: Before, now: Timestamp) -> Ranking {
    let spec = &held.object.spec;
    let inputs = ledger::inputs(context, state, &ledger::usable(context, state));
    let left = match before {
        Before::Older => Ledger::before(&inputs, &held.name()),
        Before::Nobody => Ledger::new(&inputs, Some(&held.name())),
    };
    let names = spec.node_pools.iter();
    let pools: Vec<_> = names
        .filter_map(|name| pool::offer(context, state, state.pools.get(name)?, &left))
        .map(|pool| in_zones(pool, &spec.zones))
        .collect();
    rank_in(context, held, state, &pools, None, now)
}

/// Ranks all ways to buy one node of a blocked pool now.
pub(super) fn rank_one(context: &Context, held: &Held, state: &State, pool: &str, now: Timestamp) -> Ranking {
    let inputs = ledger::inputs(context, state, &ledger::usable(context, state));
    let left = Ledger::before(&inputs, &held.name());
    let offer = state.pools.get(pool).and_then(|pool| pool::blocked_offer(context, state, pool, &left));
    let offer = offer.map(|pool| in_zones(pool, &held.object.spec.zones));
    rank_in(context, held, state, offer.as_slice(), Some(1), now)
}

/// The pool in these zones alone; in all of its own if none is named.
fn in_zones(mut pool: PoolOffer, zones: &[String]) -> PoolOffer {
    pool.zones.retain(|zone| zones.is_empty() || zones.contains(zone));
    pool
}

fn rank_in(
    context: &Context,
    held: &Held,
    state: &State,
    pools: &[PoolOffer],
    nodes: Option<u32>,
    now: Timestamp,
) -> Ranking {
    let catalogue = context.catalogue.load();
    let spec = &held.object.spec;
    let mut needs: BTreeMap<PoolType, Need> = BTreeMap::new();
    for offer in &spec.offers {
        let Some(info) = catalogue.types.get(&offer.instance_type) else { continue };
        let Some(pool) = state.pools.get(&offer.node_pool) else { continue };
        let Ok(new) = rules::new_node(pool, pool::class_of(state, pool), info, rules::Place::default(), &[]) else {
            continue;
        };
        let need =
            Need { nodes: nodes.unwrap_or(offer.count), addresses_per_node: new.addresses(), capacity: new.capacity };
        needs.insert(PoolType { pool: offer.node_pool.clone(), instance_type: offer.instance_type.clone() }, need);
    }
    let wish = match spec.placement_group.as_deref() {
        Some("required") => GroupPolicy::Required,
        Some("none") => GroupPolicy::None,
        Some(_) | None => GroupPolicy::Preferred,
    };
    let ice = context.ice.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let refusals = context.refusals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    rank_candidates(&RankInput {
        pools,
        types: &catalogue.types,
        needs: &needs,
        group: wish,
        volume_zones: None,
        offerings: &catalogue.offerings,
        prices: &catalogue.prices,
        ice: &ice,
        refusals: &refusals,
        now,
    })
}

/// Writes the ranking into the status.
pub(super) fn show(status: &mut NodeBatchStatus, ranking: &Ranking) {
    status.candidates = ranking
        .candidates
        .iter()
        .map(|ranked| {
            let candidate = &ranked.candidate;
            let known = candidate.price_micro_usd_per_hour.is_some();
            BatchCandidate {
                node_pool: ranked.pool.clone(),
                instance_type: candidate.instance_type.clone(),
                zone: candidate.zone.clone(),
                subnet: candidate.subnet_id.clone(),
                capacity_type: candidate.capacity_type.as_str().to_owned(),
                count: ranked.count,
                group: candidate.placement_group,
                reservation: candidate.reservation.as_ref().map(|target| target.id.clone()),
                price_per_hour: known.then(|| dollars(ranked.total_micro_usd_per_hour)),
                why: ranked.why(),
            }
        })
        .collect();
    status.left_out = ranking.left_out.iter().take(LEFT_OUT).map(left_out).collect();
}

fn left_out(left: &LeftOut) -> BatchLeftOut {
    let group = left.placement_group.map(|group| if group { "in a group" } else { "without a group" });
    let parts = [
        Some(left.pool.as_str()),
        left.instance_type.as_deref(),
        left.capacity_type.map(CapacityType::as_str),
        left.zone.as_deref(),
        group,
    ];
    let what: Vec<&str> = parts.into_iter().flatten().collect();
    let unsold = Unsold {
        pool: left.pool.as_str().into(),
        instance_type: left.instance_type.as_deref().map(Into::into),
        count: None,
        why: vec![left.reason.clone()],
    };
    let help = unsold.help();
    let change = (help != Help::Nothing).then(|| help.to_string());
    BatchLeftOut { what: what.join(" "), why: left.reason.to_string(), change }
}

/// Reads the reservations of the batch's pools, if the last reading is old.
pub(super) async fn refresh_reservations(context: &Context, held: &Held, state: &State) {
    let now = context.clock.now();
    for name in &held.object.spec.node_pools {
        let Some(pool) = state.pools.get(name) else { continue };
        let Some(of_pool) = pool::class_of(state, pool) else { continue };
        let wanted = rules::markets(pool).contains(&CapacityType::Reserved)
            && !of_pool.spec.capacity_reservation_selector_terms.is_empty();
        let known = lock(context).get(&of_pool.name_any()).is_some_and(|(at, _)| now.duration_since(*at) < FRESH);
        if !wanted || known {
            continue;
        }
        match class::reservations(context, of_pool).await {
            Ok(found) => {
                lock(context).insert(of_pool.name_any(), (now, found));
            }
            Err(error) => debug!(error = %error, "reservations not read; those read last are used"),
        }
    }
}

/// Forgets what is known of free hosts: EC2 has just said otherwise.
pub(super) fn forget_reservations(context: &Context) {
    lock(context).clear();
}

fn lock(context: &Context) -> std::sync::MutexGuard<'_, BTreeMap<String, (Timestamp, Vec<Reservation>)>> {
    context.reservations.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Reservations of a class, hosts that other batches take off the free ones.
pub(super) fn reservations(context: &Context, class: &EC2NodeClass, ledger: &Ledger) -> Vec<Reservation> {
    let Some((read, mut found)) = lock(context).get(&class.name_any()).cloned() else { return Vec::new() };
    for reservation in &mut found {
        reservation.free = ledger.hosts(reservation, read);
    }
    found
}

/// What keeps pools of the batch from being bought from, whatever EC2 has.
pub(super) fn unusable(context: &Context, held: &Held, state: &State) -> Vec<String> {
    let of = |name: &String| {
        let Some(pool) = state.pools.get(name) else { return Some(format!("NodePool {name} is gone")) };
        pool::problem(context, state, pool).map(|(reason, message)| format!("NodePool {name}: {reason}: {message}"))
    };
    held.object.spec.node_pools.iter().filter_map(of).collect()
}

/// Why there is no candidate, in a sentence.
pub(super) fn nothing_left(ranking: &Ranking, unusable: &[String]) -> String {
    let mut reasons: Vec<String> = unusable.to_vec();
    for left in &ranking.left_out {
        let reason = left.reason.to_string();
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons.truncate(3);
    if !ranking.candidates.is_empty() || reasons.is_empty() {
        return "no candidate has capacity".to_owned();
    }
    format!("no candidate is left: {}", reasons.join("; "))
}

/// What a dry run tells instead of a launch.
pub(super) fn would_launch(ranked: &Ranked) -> String {
    let candidate = &ranked.candidate;
    format!(
        "dry run: would launch {} × {} {} in {}{} for {} $/h; nothing is sent",
        ranked.count,
        candidate.instance_type,
        candidate.capacity_type,
        candidate.zone,
        if candidate.placement_group { ", one placement group," } else { "" },
        dollars(ranked.total_micro_usd_per_hour),
    )
}

/// Whether the last attempt went into a reservation that EC2 does not launch into any more. It is left alone then, and the
/// class that chose it is not to blame.
pub(super) fn reservation_gone(context: &Context, held: &Held, blame: Option<Blame>, now: Timestamp) -> bool {
    let reservation = held.attempt().and_then(|attempt| attempt.reservation);
    let Some(id) = reservation.filter(|_| blame == Some(Blame::Reservations)) else { return false };
    forget_reservations(context);
    context.refusals.lock().unwrap_or_else(std::sync::PoisonError::into_inner).refuse_reservation(&id, now);
    true
}
