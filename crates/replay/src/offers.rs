//! What is provisioned for a gang that no node of the dump holds.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::ec2::CapacityType;
use muster_core::gang::{Left, PoolView, offers_for};
use muster_core::model::names::{NodeName, ResourceName};
use muster_core::model::node::{Node, Usage};
use muster_core::model::resources::Resources;
use muster_core::offering::{Exclusion, GroupPolicy, UsageClass};
use muster_core::planner::plan::{GangRequest, Host};
use muster_core::reason::{Code, Help, Reason, Unsold};
use muster_core::topology::Levels;

use crate::catalogue::Catalogue;
use crate::document::{self, ProvisionEntry};
use crate::pools::Pool;
use crate::reasons;

/// One way to provision all nodes of a gang in one call.
#[derive(Debug)]
pub(crate) struct Purchase {
    /// Index of the pool.
    pub(crate) pool: usize,
    /// What the document says.
    pub(crate) entry: ProvisionEntry,
    /// Members that running nodes of the zone are counted on for.
    pub(crate) beside: u32,
    node: Arc<Node>,
    overhead: Arc<Usage>,
    capacity: Resources,
}

impl Purchase {
    /// The nodes to come, `new/<provision>/<k>`.
    pub(crate) fn hosts(&self, provision: usize) -> Vec<Host> {
        (0..self.entry.count)
            .map(|k| {
                let node = Node { name: NodeName::from(format!("new/{provision}/{k}")), ..Node::clone(&self.node) };
                Host { node: Arc::new(node), usage: Arc::clone(&self.overhead) }
            })
            .collect()
    }

    /// What the hardware of one node has.
    pub(crate) fn capacity(&self) -> &Resources {
        &self.capacity
    }
}

/// Members that running nodes take, per zone.
pub(crate) type Beside = BTreeMap<Arc<str>, u32>;

/// What is on sale for a gang, and what is not.
#[derive(Debug, Default)]
pub(crate) struct OnSale {
    /// Best first.
    pub(crate) purchases: Vec<Purchase>,
    /// Every pool, type, zone and capacity type that is no candidate, with the reason.
    pub(crate) excluded: Vec<document::Reason>,
}

/// Every way to provision for `request`, best first: pool weight, the order of capacity types, group kept before dropped, dollars per
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
    let mut reasons: Vec<document::Reason> = Vec::new();
    if pools.is_empty() {
        reasons.push(Reason::new(Code::NoPool, Help::NewPool).into());
    }
    for (index, pool) in pools.iter().enumerate() {
        let Some(policy) = pool.group.with(group) else {
            reasons.push(unsold(pool, None, Exclusion::GroupPolicyConflict));
            continue;
        };
        for (order, capacity_type) in pool.capacity_types.iter().enumerate() {
            // There is no list of reservations in a dump, so none is known to have capacity.
            if *capacity_type == CapacityType::Reserved {
                if pool.capacity_types.len() == 1 {
                    reasons.push(unsold(pool, None, Exclusion::NoReservation));
                }
                continue;
            }
            for zone in &pool.zones {
                if zones.is_some_and(|zones| zone.as_ref().is_none_or(|zone| !zones.contains(zone.as_str()))) {
                    reasons.push(unsold(pool, None, Exclusion::MembersElsewhere));
                    continue;
                }
                let beside = zone.as_deref().and_then(|zone| beside.get(zone)).copied().unwrap_or(0);
                let zone = zone.as_deref();
                let chosen = Choice { pool, index, order, capacity_type: *capacity_type, zone, policy, beside };
                look((request, levels), &chosen, catalogue, &mut found, &mut reasons);
            }
        }
    }
    if found.is_empty() && reasons.is_empty() {
        reasons.push(Reason::new(Code::NoPool, Help::NewPool).into());
    }
    let mut seen = BTreeSet::new();
    reasons.retain(|reason| seen.insert((reason.code, reason.short, reason.change.clone())));
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    OnSale { purchases: found.into_iter().map(|(_, purchase)| purchase).collect(), excluded: reasons }
}

/// One pool, capacity type and zone.
#[derive(Clone, Copy, Debug)]
struct Choice<'a> {
    pool: &'a Pool,
    index: usize,
    order: usize,
    capacity_type: CapacityType,
    zone: Option<&'a str>,
    policy: GroupPolicy,
    beside: u32,
}

/// Pool weight, capacity type, group dropped, dollars of all nodes, type, zone, pool.
type Key = (Reverse<u32>, usize, bool, u64, String, Option<String>, String);

fn look(
    (request, levels): (&GangRequest, &Levels),
    choice: &Choice<'_>,
    catalogue: &Catalogue,
    found: &mut Vec<(Key, Purchase)>,
    stated: &mut Vec<document::Reason>,
) {
    let Choice { pool, index, order, capacity_type, zone, policy, beside } = *choice;
    let mut request = request.clone();
    if let Some(role) = request.roles.first_mut() {
        role.places.truncate(role.places.len().saturating_sub(usize::try_from(beside).unwrap_or(usize::MAX)));
    }
    let request = &request;
    let class = if capacity_type == CapacityType::Spot { UsageClass::Spot } else { UsageClass::OnDemand };
    let mut views = BTreeMap::new();
    for info in &pool.types {
        if !info.usage_classes.contains(&class) {
            stated.push(unsold(pool, Some(&info.name), Exclusion::NotSold));
            continue;
        }
        if policy == GroupPolicy::Required && !info.supports_cluster_group {
            stated.push(unsold(pool, Some(&info.name), Exclusion::NoGroupForType));
            continue;
        }
        let price = catalogue.prices.price(&info.name, zone.unwrap_or_default(), capacity_type);
        views.insert(info.name.clone(), (pool.view(info, zone, capacity_type, price), info.supports_cluster_group));
    }
    let left = |(resource, left): (&ResourceName, &i64)| {
        let limit = pool.limits.get(resource).copied().unwrap_or(*left);
        Left { resource: resource.clone(), left: *left, limit }
    };
    let view = PoolView {
        name: pool.name.as_str().into(),
        blocked: false,
        weight: pool.weight,
        max_nodes: pool.max_nodes,
        placement_group: "preferred".into(),
        zones: Vec::new(),
        types: views.values().map(|(view, _)| view.clone()).collect(),
        left: pool.left.iter().map(left).collect(),
        ceilings: pool.ceiling.into_iter().collect(),
    };
    let offers = offers_for(request, levels, &[view]);
    for offer in &offers.possible {
        let Some((view, grouped)) = views.get(&*offer.instance_type) else { continue };
        let Some(price) = view.price else { continue };
        let dropped = policy == GroupPolicy::None || !grouped;
        let total = price.saturating_mul(u64::from(offer.count));
        let entry = ProvisionEntry {
            pool: pool.name.clone(),
            instance_type: offer.instance_type.to_string(),
            zone: zone.map(str::to_owned),
            capacity_type: capacity_type.into(),
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
        let (node, overhead, capacity) = (Arc::clone(&view.node), Arc::clone(&view.overhead), view.capacity.clone());
        let purchase = Purchase { pool: index, entry, beside, node, overhead, capacity };
        found.push((key, purchase));
    }
    // Without a type the capacity type has reported already why it has none.
    let types = offers.unsold.iter().filter(|unsold| unsold.instance_type.is_some());
    stated.extend(types.map(reasons::of_unsold));
}

fn unsold(pool: &Pool, instance_type: Option<&str>, why: Exclusion) -> document::Reason {
    let (pool, instance_type) = (pool.name.as_str().into(), instance_type.map(Into::into));
    reasons::of_unsold(&Unsold { pool, instance_type, count: None, why: vec![why] })
}
