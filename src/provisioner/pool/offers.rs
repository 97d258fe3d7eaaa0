//! What NodePools offer to pods of no gang: every type in every zone, on spot and on demand, with its price, and whether it can be
//! had now.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use kube::ResourceExt;
use muster_api::crd::NodePool;
use muster_api::{new_node, pool as rules};
use muster_core::ec2::{CapacityType, Offering};
use muster_core::offering::{Ledger, Pool as Unavailable, UsageClass};
use muster_core::ordinary::Offered;
use muster_core::packing;

use crate::cluster::State;
use crate::provisioner::{Context, pool};

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
    for info in pool::instance_types(context, state, pool, class, &catalogue) {
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
                let place = new_node::Place { zone: Some(zone), capacity_type: Some(capacity_type) };
                // A pool whose taints cannot be read is not Ready.
                let Ok(new) = new_node::of_pool(pool, Some(class), info, place, &state.daemons) else { continue };
                let asked =
                    Unavailable { instance_type: info.name.clone(), zone: zone.clone(), capacity_type, group: false };
                let available = unavailable.blocks(&asked, 1, now).is_none()
                    && refusals.against(&info.name, zone, capacity_type, false, now).is_none();
                let offer = packing::Offer {
                    pool: index,
                    variant: 0,
                    instance_type: info.name.as_str().into(),
                    zone: Some(zone.as_str().into()),
                    capacity_type,
                    reservation: None,
                    free: None,
                    price,
                    node: Arc::new(new.node),
                    overhead: new.overhead,
                    capacity: new.capacity,
                };
                all.offers.push(Offered { offer, pool_name: Arc::clone(&name), available });
            }
        }
    }
    all.most.push(pool.spec.placement.max_nodes_per_batch.unwrap_or(1000));
    all.pools.push(packing::Pool {
        weight: pool.spec.weight.unwrap_or(0),
        left: left.left(&name),
        min_values: Vec::new(),
        name,
    });
}
