//! What is bought for a gang that no node of the dump holds.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::cloud::{CapacityType, GroupPolicy, UsageClass};
use muster_core::cycle::{PoolView, TooSmall, TypeView, nodes_needed, offers_for};
use muster_core::names::NodeName;
use muster_core::node::{Node, Usage};
use muster_core::plan::{GangRequest, Host};
use muster_core::topology::Levels;

use crate::catalogue::Catalogue;
use crate::document::{BuyEntry, Code, Reason};
use crate::pools::Pool;
use crate::reasons::reason;

/// One way to buy all nodes of a gang in one call.
#[derive(Debug)]
pub(crate) struct Purchase {
    /// Index of the pool.
    pub(crate) pool: usize,
    /// What the document says.
    pub(crate) entry: BuyEntry,
    /// Members that running nodes of the zone are counted on for.
    pub(crate) beside: u32,
    node: Arc<Node>,
    overhead: Arc<Usage>,
}

impl Purchase {
    /// The nodes to come, `new/<buy>/<k>`.
    pub(crate) fn hosts(&self, buy: usize) -> Vec<Host> {
        (0..self.entry.count)
            .map(|k| {
                let node = Node { name: NodeName::from(format!("new/{buy}/{k}")), ..Node::clone(&self.node) };
                Host { node: Arc::new(node), usage: Arc::clone(&self.overhead) }
            })
            .collect()
    }

    /// The node that is bought.
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }
}

/// Members that running nodes take, per zone.
pub(crate) type Beside = BTreeMap<Arc<str>, u32>;

/// What is on sale for a gang, and what is not.
#[derive(Debug, Default)]
pub(crate) struct OnSale {
    /// Best first.
    pub(crate) purchases: Vec<Purchase>,
    /// Every pool, type, zone and market that is no candidate, with the reason.
    pub(crate) left_out: Vec<Reason>,
}

/// Every way to buy for `request`, best first: pool weight, the order of markets, group kept before dropped, dollars per
/// hour of the whole gang, then names.
///
/// Source: `lifecycle.md` 3.1. `zones` are those its running members allow; `beside` are members that need no new node.
pub(crate) fn find(
    request: &GangRequest,
    levels: &Levels,
    (group, zones): (GroupPolicy, Option<&BTreeSet<Arc<str>>>),
    beside: &Beside,
    pools: &[Pool],
    catalogue: &Catalogue,
) -> OnSale {
    let mut found = Vec::new();
    let mut reasons = Vec::new();
    if pools.is_empty() {
        reasons.push(reason(Code::NoPool, None, "add a NodePool that may buy nodes"));
    }
    for (index, pool) in pools.iter().enumerate() {
        let Some(policy) = pool.group.with(group) else {
            reasons.push(reason(
                Code::PlacementGroup,
                None,
                format!("let NodePool {} and the gang agree about the placement group", pool.name),
            ));
            continue;
        };
        for (order, market) in pool.markets.iter().enumerate() {
            // There is no list of reservations in a dump, so none is known to have room.
            if *market == CapacityType::Reserved {
                if pool.markets.len() == 1 {
                    let of = &pool.name;
                    let change = format!("allow on-demand or spot in NodePool {of}: a dump holds no reservation");
                    reasons.push(reason(Code::NotSold, None, change));
                }
                continue;
            }
            for zone in &pool.zones {
                if zones.is_some_and(|zones| zone.as_ref().is_none_or(|zone| !zones.contains(zone.as_str()))) {
                    let zone = zone.as_deref().unwrap_or("an unknown zone");
                    let change = format!("move the running members to {zone}, where NodePool {} may buy", pool.name);
                    reasons.push(reason(Code::MixedWithRunning, None, change));
                    continue;
                }
                let beside = zone.as_deref().and_then(|zone| beside.get(zone)).copied().unwrap_or(0);
                let zone = zone.as_deref();
                let chosen = Choice { pool, index, order, market: *market, zone, policy, beside };
                look((request, levels), &chosen, catalogue, &mut found, &mut reasons);
            }
        }
    }
    if found.is_empty() && reasons.is_empty() {
        reasons.push(reason(Code::NoPool, None, "allow a zone and the market on-demand in a NodePool"));
    }
    let mut seen = BTreeSet::new();
    reasons.retain(|reason| seen.insert((reason.code, reason.short, reason.change.clone())));
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    OnSale { purchases: found.into_iter().map(|(_, purchase)| purchase).collect(), left_out: reasons }
}

/// One pool, market and zone.
#[derive(Clone, Copy, Debug)]
struct Choice<'a> {
    pool: &'a Pool,
    index: usize,
    order: usize,
    market: CapacityType,
    zone: Option<&'a str>,
    policy: GroupPolicy,
    beside: u32,
}

/// Pool weight, market, group dropped, dollars of all nodes, type, zone, pool.
type Key = (Reverse<u32>, usize, bool, u64, String, Option<String>, String);

fn look(
    (request, levels): (&GangRequest, &Levels),
    choice: &Choice<'_>,
    catalogue: &Catalogue,
    found: &mut Vec<(Key, Purchase)>,
    reasons: &mut Vec<Reason>,
) {
    let Choice { pool, index, order, market, zone, policy, beside } = *choice;
    let mut request = request.clone();
    if let Some(role) = request.roles.first_mut() {
        role.places.truncate(role.places.len().saturating_sub(usize::try_from(beside).unwrap_or(usize::MAX)));
    }
    let request = &request;
    let class = if market == CapacityType::Spot { UsageClass::Spot } else { UsageClass::OnDemand };
    let mut views = BTreeMap::new();
    for info in &pool.types {
        if !info.usage_classes.contains(&class) {
            reasons.push(reason(
                Code::NotSold,
                None,
                format!("{} is not sold {market}: allow another type or market in NodePool {}", info.name, pool.name),
            ));
            continue;
        }
        if policy == GroupPolicy::Required && !info.supports_cluster_group {
            reasons.push(reason(
                Code::PlacementGroup,
                None,
                format!("{} goes into no cluster placement group: allow another type", info.name),
            ));
            continue;
        }
        let price = catalogue.prices.price(&info.name, zone.unwrap_or_default(), market);
        views.insert(info.name.clone(), (pool.view(info, zone, market, price), info.supports_cluster_group));
    }
    let view = PoolView {
        name: pool.name.as_str().into(),
        weight: pool.weight,
        max_nodes: pool.max_nodes,
        placement_group: "preferred".into(),
        types: views.values().map(|(view, _)| view.clone()).collect(),
        left: pool.left.iter().map(|(resource, left)| (resource.as_str().into(), *left)).collect(),
    };
    let (offers, _) = offers_for(request, levels, &[view]);
    for offer in &offers {
        let Some((view, grouped)) = views.get(&*offer.instance_type) else { continue };
        let Some(price) = view.price else { continue };
        let dropped = policy == GroupPolicy::None || !grouped;
        let total = price.saturating_mul(u64::from(offer.count));
        let entry = BuyEntry {
            pool: pool.name.clone(),
            instance_type: offer.instance_type.to_string(),
            zone: zone.map(str::to_owned),
            market: market.into(),
            count: offer.count,
            usd_micro_per_hour: price,
        };
        let key = (
            Reverse(pool.weight),
            order,
            dropped,
            total,
            entry.instance_type.clone(),
            entry.zone.clone(),
            pool.name.clone(),
        );
        let purchase =
            Purchase { pool: index, entry, beside, node: Arc::clone(&view.node), overhead: Arc::clone(&view.overhead) };
        found.push((key, purchase));
    }
    for (view, _) in views.values().filter(|(view, _)| !offers.iter().any(|offer| offer.instance_type == view.name)) {
        reasons.push(left_out(request, levels, pool, view));
    }
}

/// Why a type is no offer: the first obstacle, and what would remove it.
fn left_out(request: &GangRequest, levels: &Levels, pool: &Pool, view: &TypeView) -> Reason {
    let (name, of) = (&view.name, &pool.name);
    let count = match nodes_needed(request, levels, view) {
        Ok(count) => count,
        Err(TooSmall::Never) => {
            return reason(Code::NoType, None, format!("ask for less than {name} of NodePool {of} has"));
        }
        Err(TooSmall::Misfit(misfit)) => {
            return reason(Code::NoType, None, format!("{name} of NodePool {of} holds no member: {misfit}"));
        }
        Err(TooSmall::Wishes) => {
            let change = format!("ask for slices that fit one {name} of NodePool {of}");
            return reason(Code::NoType, None, change);
        }
    };
    // All that stands in the way, so that what is said is enough.
    let mut obstacles: Vec<(Code, Option<u64>, String)> = Vec::new();
    if count > pool.max_nodes {
        let change = format!("raise maxNodesPerBatch of NodePool {of} from {} to {count} for {name}", pool.max_nodes);
        obstacles.push((Code::BatchTooLarge, Some(u64::from(count - pool.max_nodes)), change));
    }
    for (resource, left) in &pool.left {
        let each = if resource.as_str() == "nodes" { 1 } else { view.node.allocatable.get(resource.as_str()) };
        let wanted = each.saturating_mul(i64::from(count));
        if wanted > *left {
            let short = wanted.saturating_sub(*left);
            let unit = if resource.as_str() == "cpu" { "m" } else { "" };
            let change = format!("raise the limit {resource} of NodePool {of} by {short}{unit} for {count} {name}");
            obstacles.push((Code::LimitReached, u64::try_from(short).ok(), change));
        }
    }
    if view.price.is_none() {
        obstacles.push((Code::PriceUnknown, None, format!("give {name} a price in the catalogue")));
    }
    let change: Vec<&str> = obstacles.iter().map(|(_, _, change)| change.as_str()).collect();
    let change = change.join(" and ");
    match obstacles.first() {
        Some((code, short, _)) => reason(*code, *short, change),
        None => reason(Code::NoType, None, format!("allow another type than {name} in NodePool {of}")),
    }
}
