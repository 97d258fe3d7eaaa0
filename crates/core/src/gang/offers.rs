//! What could be provisioned for a gang: per pool and type, how many nodes hold it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::volumes;
use crate::fit::{self, Misfit};
use crate::model::names::{NodeName, ResourceName};
use crate::model::node::{Node, Usage};
use crate::model::pod::Shape;
use crate::model::resources::Resources;
use crate::offering::{CeilingLeft, Exclusion, NewNode};
use crate::planner;
use crate::planner::plan::{GangRequest, Host, Policy, Problem, SearchBudget, Seed, TopologyRequests};
use crate::reason::Unsold;
use crate::topology::{Levels, ZONE_KEY};

/// A pool that may provision, as the gang loop sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolView {
    /// Name.
    pub name: Arc<str>,
    /// Most nodes of a batch did not join: it provisions one node now and then, and whole batches again once that has joined. Its
    /// offers come behind all others.
    pub blocked: bool,
    /// Higher first.
    pub weight: u32,
    /// Largest batch.
    pub max_nodes: u32,
    /// `required`, `preferred` or `none`.
    pub placement_group: Arc<str>,
    /// Zones it may provision in; empty: not known.
    pub zones: Vec<Arc<str>>,
    /// What the pool may provision.
    pub types: Vec<TypeView>,
    /// What is left of the pool's limits, per resource and `nodes`.
    pub left: Vec<Left>,
    /// What is left under the ceilings on dollars per hour that hold for it: its own, and that of the cluster.
    pub ceilings: Vec<CeilingLeft>,
}

/// What is left of one limit, in the units of [`crate::model::resources::Resources`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Left {
    /// Resource, or `nodes`.
    pub resource: ResourceName,
    /// What is left.
    pub left: i64,
    /// The limit.
    pub limit: i64,
}

/// One instance type of a pool, as the node it would become.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TypeView {
    /// Instance type.
    pub name: Arc<str>,
    /// The node to come: labels, taints, allocatable. Without a zone, since that is chosen with the candidate.
    pub node: Arc<Node>,
    /// What DaemonSets will take there.
    pub overhead: Arc<Usage>,
    /// What the hardware has: the amounts that count against the pool's limits.
    pub capacity: Resources,
    /// Micro-dollars per hour and node, cheapest capacity type; `None` if there is no price.
    pub price: Option<u64>,
    /// The same in each zone where there is a price; empty: one price everywhere.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub zonal: BTreeMap<Arc<str>, u64>,
    /// Until when it is no offer for the gang that is looked at: its nodes refused such members again and again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Timestamp>,
}

impl TypeView {
    /// The type as the node it becomes, at this price per hour, and at these in each zone.
    #[must_use]
    pub fn new(instance_type: &str, new: NewNode, price: Option<u64>, zonal: BTreeMap<Arc<str>, u64>) -> Self {
        let NewNode { node, capacity, overhead, interfaces: _, max_pods: _ } = new;
        let (node, overhead) = (Arc::new(node), Arc::new(overhead));
        Self { name: instance_type.into(), node, overhead, capacity, price, zonal, refused: None }
    }

    /// Its lowest price in any of these zones; empty: in any.
    #[must_use]
    pub(super) fn price_in(&self, zones: &[Arc<str>]) -> Option<u64> {
        if zones.is_empty() || self.zonal.is_empty() {
            return self.price;
        }
        zones.iter().filter_map(|zone| self.zonal.get(zone)).min().copied()
    }
}

/// N nodes of one type of one pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Offer {
    /// Pool.
    pub pool: Arc<str>,
    /// Instance type.
    pub instance_type: Arc<str>,
    /// Nodes.
    pub count: u32,
}

/// What can be provisioned, best first, and what cannot, with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// Best first.
    pub possible: Vec<Offer>,
    /// Every type of every pool that is no offer, with all that stands in the way.
    pub unsold: Vec<Unsold>,
}

/// Offers for the whole gang: pools that are not blocked, then pool weight, then dollars per hour of the whole gang, then nodes, then names.
#[must_use]
pub fn offers_for(request: &GangRequest, levels: &Levels, pools: &[PoolView]) -> Offers {
    let mut offers = Offers::default();
    let mut ranked = Vec::new();
    for pool in pools {
        if pool.types.is_empty() {
            offers.unsold.push(Unsold {
                pool: Arc::clone(&pool.name),
                instance_type: None,
                count: None,
                why: vec![Exclusion::NoTypes],
            });
        }
        for kind in &pool.types {
            let needed = nodes_in_reach(request, levels, pool, kind);
            let why = obstacles(pool, kind, &needed);
            let (Ok(count), Some(price), true) = (&needed, kind.price, why.is_empty()) else {
                let (pool, instance_type) = (Arc::clone(&pool.name), Some(Arc::clone(&kind.name)));
                offers.unsold.push(Unsold { pool, instance_type, count: needed.ok(), why });
                continue;
            };
            let total = price.saturating_mul(u64::from(*count));
            ranked.push((
                (pool.blocked, u32::MAX - pool.weight, total, *count, pool.name.clone(), kind.name.clone()),
                *count,
            ));
        }
    }
    ranked.sort();
    offers.possible =
        ranked.into_iter().map(|((.., pool, instance_type), count)| Offer { pool, instance_type, count }).collect();
    offers
}

/// [`nodes_needed`] in a zone that the volumes or selectors of the gang ask for, if they do: what is provisioned has a
/// zone only once it is chosen.
fn nodes_in_reach(request: &GangRequest, levels: &Levels, pool: &PoolView, kind: &TypeView) -> Result<u32, TooSmall> {
    let mut zones = volumes::zones(request);
    let sells_in = |zone: &Arc<str>| pool.zones.is_empty() || pool.zones.contains(zone);
    zones.retain(|zone| kind.node.labels.get(ZONE_KEY).map_or_else(|| sells_in(zone), |only| only == zone));
    if zones.is_empty() {
        return nodes_needed(request, levels, kind);
    }
    let in_zone = |zone: &Arc<str>| {
        let node = Arc::new(volumes::in_zone(&kind.node, zone));
        nodes_needed(request, levels, &TypeView { node, ..kind.clone() })
    };
    let found: Vec<Result<u32, TooSmall>> = zones.iter().map(in_zone).collect();
    let best = found.iter().filter_map(|needed| needed.as_ref().ok()).min().copied();
    best.map_or_else(|| found.into_iter().next().unwrap_or(Err(TooSmall::Never)), Ok)
}

/// Zones that the volumes or selectors of a gang ask for in which a node that some pool sells is one for every member and reaches its volumes; empty if they ask
/// for none.
pub(super) fn reached(request: &GangRequest, pools: &[PoolView]) -> Vec<Arc<str>> {
    let mut zones = volumes::zones(request);
    let nodes = || pools.iter().flat_map(|pool| &pool.types).map(|kind| &kind.node);
    zones.retain(|zone| {
        let reaches = |node: &Node| {
            let node = volumes::in_zone(node, zone);
            let here = |shape: &Shape| fit::accepts(shape, &node).is_ok() && fit::reaches_volumes(shape, &node);
            request.roles.iter().all(|role| here(&role.shape))
        };
        nodes().any(|node| reaches(node))
    });
    zones.into_iter().collect()
}

/// All that stands in the way of a purchase, so that what is reported is enough.
fn obstacles(pool: &PoolView, kind: &TypeView, needed: &Result<u32, TooSmall>) -> Vec<Exclusion> {
    let count = match needed {
        Ok(count) => *count,
        Err(TooSmall::Never) => return vec![Exclusion::DoesNotFit],
        Err(TooSmall::Misfit(misfit)) => return vec![Exclusion::Misfit { misfit: misfit.clone() }],
        Err(TooSmall::TopologyRequests) => return vec![Exclusion::TopologyRequests],
    };
    let mut obstacles: Vec<Exclusion> = kind.refused.map(|until| Exclusion::InVain { until }).into_iter().collect();
    if count > pool.max_nodes {
        obstacles.push(Exclusion::TooManyNodes { needed: count, most: pool.max_nodes });
    }
    for Left { resource, left, limit } in &pool.left {
        let each = if resource.as_str() == "nodes" { 1 } else { kind.capacity.get(resource.as_str()) };
        let needed = each.saturating_mul(i64::from(count));
        if needed > *left {
            let (resource, left, limit) = (resource.clone(), *left, *limit);
            obstacles.push(Exclusion::Limit { resource, needed, left, limit });
        }
    }
    let Some(price) = kind.price else {
        obstacles.push(Exclusion::PriceUnknown);
        return obstacles;
    };
    let needed = price.saturating_mul(u64::from(count));
    for CeilingLeft { scope, left, ceiling } in &pool.ceilings {
        if needed > *left {
            let (scope, left, ceiling) = (*scope, *left, *ceiling);
            obstacles.push(Exclusion::CostCeiling { scope, needed, left, ceiling });
        }
    }
    obstacles
}

/// Why no number of nodes of a type holds a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TooSmall {
    /// A node holds no member.
    Never,
    /// A node can never hold a member.
    Misfit(Misfit),
    /// Slices by host, exclusive hosts or one host for all that a node cannot give.
    TopologyRequests,
}

/// Nodes of one type that hold all members of a gang which are not bound.
///
/// Members of one shape, g to a node: ⌈W/g⌉. With several shapes, or topology requests about hosts, the smallest number on which the
/// planner places them; topology requests about levels above the host play no part, since where new nodes stand is known only once
/// they run.
pub fn nodes_needed(request: &GangRequest, levels: &Levels, kind: &TypeView) -> Result<u32, TooSmall> {
    // In which domain a node comes up is known only once it runs: two may come up in one.
    if request.topology_requests.apart.is_some() {
        return Err(TooSmall::TopologyRequests);
    }
    let mut asked = request.clone();
    asked.topology_requests = of_hosts(request, levels);
    let one_host = asked.topology_requests.required.is_some();
    // A new node is never the one that the others stand on.
    if one_host && has_bound(request) {
        return Err(TooSmall::TopologyRequests);
    }
    for role in &mut asked.roles {
        role.places.retain(|place| place.bound.is_none());
        role.min = u32::try_from(role.places.len()).unwrap_or(u32::MAX);
    }
    asked.roles.retain(|role| !role.places.is_empty());
    let mut members: Vec<(&Shape, u32)> = Vec::new();
    for role in &asked.roles {
        match members.iter_mut().find(|(shape, _)| **shape == role.shape) {
            Some((_, count)) => *count = count.saturating_add(role.min),
            None => members.push((&role.shape, role.min)),
        }
    }
    let (mut least, mut most) = (1_u32, 0_u32);
    for (shape, count) in &members {
        let slots = fit::slots(shape, &kind.node, &kind.overhead).map_err(TooSmall::Misfit)?;
        if slots == 0 {
            return Err(TooSmall::Never);
        }
        least = least.max(count.div_ceil(slots));
        most = most.saturating_add(count.div_ceil(slots));
    }
    if members.len() < 2 && asked.topology_requests == TopologyRequests::default() {
        return Ok(most);
    }
    if one_host {
        most = 1;
    } else if asked.topology_requests != TopologyRequests::default() {
        // At worst every slice has a host of its own.
        most = members.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
    }
    if !holds(&asked, levels, kind, most) {
        return Err(TooSmall::TopologyRequests);
    }
    while least < most {
        let middle = least + (most - least) / 2;
        if holds(&asked, levels, kind, middle) {
            most = middle;
        } else {
            least = middle + 1;
        }
    }
    Ok(most)
}

/// The topology requests that the number of new nodes answers for: those about single hosts.
pub(super) fn of_hosts(request: &GangRequest, levels: &Levels) -> TopologyRequests {
    let TopologyRequests { required, preferred: _, slices, exclusive, balance: _, apart: _ } =
        &request.topology_requests;
    let host = levels.host();
    // Slices that lost members are completed where they stand, so what is left is not cut evenly.
    let whole = !has_bound(request);
    TopologyRequests {
        required: required.filter(|level| *level == host),
        slices: slices.iter().copied().filter(|slice| slice.level == host && whole).collect(),
        exclusive: exclusive.filter(|level| *level == host && whole),
        ..TopologyRequests::default()
    }
}

fn has_bound(request: &GangRequest) -> bool {
    request.roles.iter().flat_map(|role| &role.places).any(|place| place.bound.is_some())
}

/// Steps of the search for a mix of many shapes on so many empty nodes: it is asked for every type that is sold.
const STEPS: u64 = 10_000;

/// Whether that many empty nodes hold the gang.
fn holds(request: &GangRequest, levels: &Levels, kind: &TypeView, count: u32) -> bool {
    let host = |number| {
        let name = NodeName::from(format!("new/{number}"));
        Host { node: Arc::new(Node { name, ..Node::clone(&kind.node) }), usage: Arc::clone(&kind.overhead) }
    };
    let problem = Problem { levels: levels.clone(), hosts: (0..count).map(host).collect(), gang: request.clone() };
    let budget = SearchBudget { iterations: STEPS };
    let (plan, report) = planner::plan(&problem, &Policy::default(), budget, Seed::default());
    report.refusal.is_none() && !plan.places.is_empty()
}
