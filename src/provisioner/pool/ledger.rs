//! The ledger over all NodeBatches, opened from one state of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::ResourceExt;
use muster_api::crd::NodePool;
use muster_api::{new_node, pool as rules};
use muster_core::batch::{PerNode, claim};
use muster_core::model::batch::Batch;
use muster_core::offering::{Amounts, Ceiling, LedgerInputs, PoolLimits, counted};

use crate::cluster::State;
use crate::provisioner::{Context, pool};

/// Everything the ledger is opened from: all NodeBatches, and the pools that can be provisioned from.
pub(in crate::provisioner) fn inputs<'b>(
    context: &Context,
    state: &State,
    batches: impl Iterator<Item = &'b Batch>,
) -> LedgerInputs {
    let usable = usable(context, state);
    let limits = |pool: &Arc<NodePool>| {
        // A pool whose limits cannot be read is not Ready and provisions nothing.
        let limits = PoolLimits {
            limits: rules::limits(pool).unwrap_or_default(),
            max_micro_usd_per_hour: rules::max_usd_per_hour(pool).unwrap_or_default(),
        };
        (pool.name_any(), limits)
    };
    let now = context.clock.now();
    let of = |batch: &Batch| {
        claim(
            batch,
            |pool, instance_type| per_node(context, state, pool, instance_type),
            |pool| usable.contains(pool),
            now,
        )
    };
    LedgerInputs {
        pools: state.pools.values().map(limits).collect(),
        // Without a ceiling no pool is Ready, so this one is never asked for a purchase.
        cluster: context.options.ceiling.unwrap_or(Ceiling::At(0)),
        claims: batches.map(of).collect(),
    }
}

/// Pools that can be provisioned from.
fn usable(context: &Context, state: &State) -> BTreeSet<String> {
    let usable = |pool: &&Arc<NodePool>| pool::problem(context, state, pool).is_none();
    state.pools.values().filter(usable).map(|pool| pool.name_any()).collect()
}

/// What one node takes, at the highest price that any capacity type and zone of the pool has for it.
pub(in crate::provisioner) fn per_node(
    context: &Context,
    state: &State,
    pool: &str,
    instance_type: &str,
) -> Option<PerNode> {
    let catalogue = context.catalogue.load();
    let info = catalogue.types.get(instance_type)?;
    let object = state.pools.get(pool);
    let class = object.and_then(|pool| pool::class_of(state, pool));
    let node = new_node::of_class(class, info);
    let price = object.and_then(|object| {
        let zones = pool::zones(state, object);
        let capacity_types = rules::capacity_types(object);
        let prices = zones.iter().flat_map(|zone| {
            let catalogue = &catalogue;
            capacity_types
                .iter()
                .filter_map(move |capacity_type| catalogue.prices.price(instance_type, zone, *capacity_type))
        });
        prices.max()
    });
    Some(PerNode {
        amounts: Amounts { resources: counted(&node.capacity), micro_usd_per_hour: price.unwrap_or(0) },
        addresses: node.addresses(),
    })
}
