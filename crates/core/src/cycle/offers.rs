//! What could be bought for a gang: per pool and type, how many nodes hold it.

use std::sync::Arc;

use crate::fit;
use crate::node::{Node, Usage};
use crate::plan::GangRequest;

/// A pool that may buy, as the gang loop sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolView {
    /// Name.
    pub name: Arc<str>,
    /// Higher first.
    pub weight: u32,
    /// Largest batch.
    pub max_nodes: u32,
    /// `required`, `preferred` or `none`.
    pub placement_group: Arc<str>,
    /// What the pool may buy.
    pub types: Vec<TypeView>,
    /// What is left of the pool's limits, per resource and `nodes`.
    pub left: Vec<(Arc<str>, i64)>,
}

/// One instance type of a pool, as the node it would become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeView {
    /// Instance type.
    pub name: Arc<str>,
    /// The node to come: labels, taints, allocatable. Without a zone, since that is chosen with the candidate.
    pub node: Arc<Node>,
    /// What DaemonSets will take there.
    pub overhead: Arc<Usage>,
    /// Micro-dollars per hour and node, cheapest market; `None` if there is no price.
    pub price: Option<u64>,
}

/// N nodes of one type of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Pool.
    pub pool: Arc<str>,
    /// Instance type.
    pub instance_type: Arc<str>,
    /// Nodes.
    pub count: u32,
}

/// What can be bought, best first, and what cannot, with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Offers {
    pub(super) possible: Vec<Offer>,
    pub(super) left_out: Vec<String>,
}

/// Offers for the whole gang: pool weight first, then dollars per hour of the whole gang, then nodes, then names.
///
/// Source: `lifecycle.md` 3.1. W members, g to a node, need n = ⌈W/g⌉ nodes of one type.
pub(super) fn offers(request: &GangRequest, pools: &[PoolView]) -> Offers {
    let mut offers = Offers::default();
    let Some(role) = request.roles.first() else { return offers };
    // Bound members stay where they are.
    let members = role.places.iter().filter(|place| place.bound.is_none()).count();
    let members = u32::try_from(members).unwrap_or(u32::MAX);
    let mut ranked = Vec::new();
    for pool in pools {
        if pool.types.is_empty() {
            offers.left_out.push(format!("pool {} allows no known instance type", pool.name));
        }
        for kind in &pool.types {
            let per_node = match fit::slots(&role.shape, &kind.node, &kind.overhead) {
                Ok(slots) if slots > 0 => slots,
                Ok(_) => continue,
                Err(misfit) => {
                    offers.left_out.push(format!("{} of pool {}: {misfit}", kind.name, pool.name));
                    continue;
                }
            };
            let count = members.div_ceil(per_node);
            if count > pool.max_nodes {
                offers.left_out.push(format!(
                    "{} of pool {}: {count} nodes are needed, maxNodesPerBatch is {}",
                    kind.name, pool.name, pool.max_nodes
                ));
                continue;
            }
            if let Some(limit) = beyond_limit(pool, kind, count) {
                offers.left_out.push(limit);
                continue;
            }
            let Some(price) = kind.price else {
                offers.left_out.push(format!(
                    "{} of pool {}: its price is not known; set one in the configuration",
                    kind.name, pool.name
                ));
                continue;
            };
            let total = price.saturating_mul(u64::from(count));
            ranked.push(((u32::MAX - pool.weight, total, count, pool.name.clone(), kind.name.clone()), count));
        }
    }
    ranked.sort();
    offers.possible = ranked
        .into_iter()
        .map(|((_, _, _, pool, instance_type), count)| Offer { pool, instance_type, count })
        .collect();
    offers
}

fn beyond_limit(pool: &PoolView, kind: &TypeView, count: u32) -> Option<String> {
    for (resource, left) in &pool.left {
        let per_node = if **resource == *"nodes" { 1 } else { kind.node.allocatable.get(resource) };
        let wanted = per_node.saturating_mul(i64::from(count));
        if wanted > *left {
            return Some(format!(
                "{} of pool {}: {wanted} {resource} are needed, {left} are left of the limit",
                kind.name, pool.name
            ));
        }
    }
    None
}

/// What could be bought for a request, best first, and what is left out with the reason.
#[must_use]
pub fn offers_for(request: &GangRequest, pools: &[PoolView]) -> (Vec<Offer>, Vec<String>) {
    let offers = offers(request, pools);
    (offers.possible, offers.left_out)
}
