//! What NodePools offer to pods of no gang: every type in every zone, reserved, on spot and on demand, with its price, and whether
//! it can be had now.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use kube::ResourceExt;
use muster_api::crd::NodePool;
use muster_api::{new_node, pool as rules, supply};
use muster_core::ec2::{CapacityType, Offering, Reservation};
use muster_core::offering::{InstanceTypeInfo, Ledger, Pool as Unavailable, UsageClass, not_open};
use muster_core::ordinary::{Launch, Offered};
use muster_core::packing;

use crate::cluster::State;
use crate::provisioner::{Context, class, pool};

/// Pools and what they offer.
#[derive(Debug, Default)]
pub(in crate::provisioner) struct Offers {
    /// Pools in order of name.
    pub(in crate::provisioner) pools: Vec<packing::Pool>,
    /// Most nodes of one batch, by pool.
    pub(in crate::provisioner) most: Vec<u32>,
    /// Offers.
    pub(in crate::provisioner) offers: Vec<Offered>,
}

/// Names of the pools that can be provisioned from.
pub(in crate::provisioner) fn usable(context: &Context, state: &State) -> BTreeSet<String> {
    let usable = |pool: &&Arc<NodePool>| pool::problem(context, state, pool).is_none();
    state.pools.values().filter(usable).map(|pool| pool.name_any()).collect()
}

/// What all of them offer now.
pub(in crate::provisioner) fn read(context: &Context, state: &State, left: &Ledger) -> Offers {
    let mut all = Offers::default();
    for pool in state.pools.values().filter(|pool| pool::problem(context, state, pool).is_none()) {
        of_pool(context, state, pool, left, &mut all);
    }
    all
}

fn of_pool(context: &Context, state: &State, pool: &NodePool, left: &Ledger, all: &mut Offers) {
    let Some(class) = pool::class_of(state, pool) else { return };
    let (name, index): (Arc<str>, usize) = (pool.name_any().into(), all.pools.len());
    let catalogue = context.catalogue.load();
    let zones = pool::zones(state, pool);
    let allowed = rules::capacity_types(pool);
    let now = context.clock.now();
    let unavailable = context.unavailable.lock().unwrap_or_else(PoisonError::into_inner);
    let refusals = context.refusals.lock().unwrap_or_else(PoisonError::into_inner);
    let reserved = if allowed.contains(&CapacityType::Reserved) {
        pool::reservations::free(context, class, left)
    } else {
        Vec::new()
    };
    // A zone whose subnets are full has nothing to offer.
    let (subnets, read) = (supply::open_subnets(class), class::subnets_read(context, class));
    let mut add = |info: &InstanceTypeInfo, zone: &str, capacity_type, sold: Sold<'_>| {
        let place =
            new_node::Place { zone: Some(zone), capacity_type: Some(capacity_type), ..new_node::Place::default() };
        // A pool whose taints cannot be read is not Ready.
        let Ok(new) = new_node::of_pool(pool, Some(class), info, place, &state.daemons) else { return };
        let asked =
            Unavailable { instance_type: info.name.clone(), zone: zone.to_owned(), capacity_type, group: false };
        let here = subnets.iter().filter(|subnet| subnet.zone == zone);
        let is_full = |subnet: &str, count| refusals.subnet_full(subnet, count, now);
        let available = sold.open
            && left.most_addressed(here, read, new.addresses(), 1, is_full) > 0
            && unavailable.blocks(&asked, 1, now).is_none()
            && refusals.against(&info.name, zone, capacity_type, false, now).is_none();
        let offer = packing::Offer {
            pool: index,
            variant: 0,
            instance_type: info.name.as_str().into(),
            zone: Some(zone.into()),
            capacity_type,
            reservation: sold.reservation.map(|reservation| reservation.id.as_str().into()),
            free: sold.reservation.map(|reservation| reservation.free),
            price: sold.price,
            list_price: sold.list_price,
            node: Arc::new(new.node),
            overhead: new.overhead,
            capacity: new.capacity,
        };
        all.offers.push(Offered { offer, pool_name: Arc::clone(&name), available });
    };
    for info in pool::instance_types(context, state, pool, class, &catalogue) {
        for reservation in reserved.iter().filter(|one| one.instance_type == info.name && is_for_pods(one)) {
            let open = not_open(reservation, now).is_none()
                && refusals.against_reservation(&reservation.id, now).is_none()
                && !refusals.was_full(&reservation.id, now);
            if zones.contains(&reservation.zone) {
                // It is paid for whether it is used or not.
                let list_price = catalogue.prices.price(&info.name, &reservation.zone, CapacityType::Reserved);
                let list_price = list_price.unwrap_or(0);
                let sold = Sold { reservation: Some(reservation), price: 0, list_price, open };
                add(info, &reservation.zone, CapacityType::Reserved, sold);
            }
        }
        for (capacity_type, usage) in
            [(CapacityType::Spot, UsageClass::Spot), (CapacityType::OnDemand, UsageClass::OnDemand)]
        {
            if !allowed.contains(&capacity_type) || !info.usage_classes.contains(&usage) {
                continue;
            }
            for zone in &zones {
                let sold = Offering { instance_type: info.name.clone(), zone: zone.clone() };
                if !catalogue.offerings.contains(&sold) {
                    continue;
                }
                let Some(price) = catalogue.prices.price(&info.name, zone, capacity_type) else { continue };
                add(info, zone, capacity_type, Sold { reservation: None, price, list_price: price, open: true });
            }
        }
    }
    all.most.push(pool.spec.placement.max_nodes_per_batch.unwrap_or(1000));
    all.pools.push(packing::Pool {
        weight: pool.spec.weight.unwrap_or(0),
        left: left.left(&name),
        min_values: rules::min_values(pool),
        name,
    });
}

/// Most nodes of a launch for which one of the subnets of its zone has the addresses; each takes so many of them.
pub(in crate::provisioner) fn most_addressed(
    context: &Context,
    state: &State,
    left: &Ledger,
    launch: &Launch,
    each: u32,
) -> u32 {
    let class = state.pools.get(&*launch.pool).and_then(|pool| pool::class_of(state, pool));
    let Some(class) = class else { return 0 };
    let (subnets, read, now) = (supply::open_subnets(class), class::subnets_read(context, class), context.clock.now());
    let refusals = context.refusals.lock().unwrap_or_else(PoisonError::into_inner);
    let here = subnets.iter().filter(|subnet| *subnet.zone == *launch.zone);
    left.most_addressed(here, read, each, launch.count, |subnet, count| refusals.subnet_full(subnet, count, now))
}

/// How an offer is sold.
struct Sold<'a> {
    /// The reservation it goes into.
    reservation: Option<&'a Reservation>,
    /// Micro-dollars per hour.
    price: u64,
    /// The same as lists have it.
    list_price: u64,
    /// Whether nothing is known against it.
    open: bool,
}

/// Whether pods of no gang use a reservation: Capacity Blocks end at a time and are for gangs, and what was made in a placement
/// group is launched into with it.
fn is_for_pods(reservation: &Reservation) -> bool {
    !reservation.block && reservation.placement_group.is_none()
}
