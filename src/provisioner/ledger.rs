//! The ledger over all NodeBatches, opened from the published state and from what this process has written since.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use kube::ResourceExt;
use muster_api::claim::{PerNode, claim};
use muster_api::crd::{NodeBatch, NodePool};
use muster_api::pool as rules;
use muster_core::offering::{Amounts, Ceiling, LedgerInputs, PoolLimits, counted};

use super::{Context, pool};
use crate::cluster::State;

/// NodeBatches as this process wrote them last. The watch shows a write a moment later, and whoever looks meanwhile must not
/// find room that has just been taken.
#[derive(Debug, Default)]
pub(super) struct Written(Mutex<BTreeMap<String, Arc<NodeBatch>>>);

impl Written {
    /// Remembers what the API server answered to a write.
    pub(super) fn remember(&self, batch: &NodeBatch) {
        let mut known = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        known.insert(batch.name_any(), Arc::new(batch.clone()));
    }

    /// The newest of each batch that exists. Forgets what the watch has caught up with.
    fn newest(&self, state: &State) -> Vec<Arc<NodeBatch>> {
        let version = |batch: &NodeBatch| batch.resource_version().and_then(|version| version.parse::<u64>().ok());
        let mut known = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        known.retain(|name, written| {
            state.batches.get(name).is_some_and(|seen| seen.uid() == written.uid() && version(seen) < version(written))
        });
        let newest = |(name, seen): (&String, &Arc<NodeBatch>)| Arc::clone(known.get(name).unwrap_or(seen));
        state.batches.iter().map(newest).collect()
    }
}

/// Everything the ledger is opened from. `usable` names the pools that can be bought from.
pub(super) fn inputs(context: &Context, state: &State, usable: &BTreeSet<String>) -> LedgerInputs {
    let limits = |pool: &Arc<NodePool>| {
        // A pool whose limits cannot be read is not Ready and buys nothing.
        let limits = PoolLimits {
            limits: rules::limits(pool).unwrap_or_default(),
            max_micro_usd_per_hour: rules::max_usd_per_hour(pool).unwrap_or_default(),
        };
        (pool.name_any(), limits)
    };
    let now = context.clock.now();
    let of = |batch: &Arc<NodeBatch>| {
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
        claims: context.written.newest(state).iter().map(of).collect(),
    }
}

/// Pools that can be bought from.
pub(super) fn usable(context: &Context, state: &State) -> BTreeSet<String> {
    let usable = |pool: &&Arc<NodePool>| pool::problem(context, state, pool).is_none();
    state.pools.values().filter(usable).map(|pool| pool.name_any()).collect()
}

/// What one node takes, at the highest price that any market and zone of the pool has for it.
fn per_node(context: &Context, state: &State, pool: &str, instance_type: &str) -> Option<PerNode> {
    let catalogue = context.catalogue.load();
    let info = catalogue.types.get(instance_type)?;
    let object = state.pools.get(pool);
    let class = object.and_then(|pool| pool::class_of(state, pool));
    let node = rules::bare_node(class, info);
    let price = object.and_then(|object| {
        let zones = pool::zones(state, object);
        let markets = rules::markets(object);
        let prices = zones.iter().flat_map(|zone| {
            let catalogue = &catalogue;
            markets.iter().filter_map(move |market| catalogue.prices.price(instance_type, zone, *market))
        });
        prices.max()
    });
    Some(PerNode {
        amounts: Amounts { resources: counted(&node.capacity), micro_usd_per_hour: price.unwrap_or(0) },
        addresses: node.addresses(),
    })
}
