//! What is provisioned for a gang that running nodes do not hold: the one answer of the pass and of the offline planner.
//!
//! New nodes may stand beside running ones: then only what running nodes of one zone do not take is provisioned. Where new
//! nodes stand in the network is known only once they run, so nothing is mixed for a gang that asks for a network level
//! below the zone. The running nodes' places are assigned in the write that names the purchase; nobody is released before
//! the whole gang has its places.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::asked::count;
use super::offers::{Offer, PoolView, TypeView, offers_for, reached};
use super::volumes::in_zone;
use crate::fit;
use crate::model::names::NodeName;
use crate::model::node::Node;
use crate::planner;
use crate::planner::plan::{
    GangRequest, Host, LevelIndex, Place, Policy, Problem, SearchBudget, Seed, TopologyRequests,
};
use crate::reason::Unsold;
use crate::topology::{HOST_KEY, Level, Levels, ZONE_KEY};

/// A gang that running nodes do not hold.
#[derive(Clone, Copy, Debug)]
pub struct Short<'a> {
    /// The gang, without places that nobody has created: see [`existing`](super::existing).
    pub request: &'a GangRequest,
    /// Its placement group: `required`, `preferred` or `none`.
    pub placement_group: Option<&'a str>,
    /// Zones that its bound members leave open; empty: any. See [`bound_zones`].
    pub bound_zones: &'a [Arc<str>],
    /// Topology levels.
    pub levels: &'a Levels,
    /// Pools that may provision.
    pub pools: &'a [PoolView],
    /// What is best.
    pub policy: &'a Policy,
}

/// What a NodeBatch is created with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purchase {
    /// What may be provisioned, best first; at least one.
    pub offers: Vec<Offer>,
    /// Zones it may be provisioned in; empty: any.
    pub zones: Vec<Arc<str>>,
    /// Places on running nodes that are counted on.
    pub beside: Vec<Place>,
}

/// What can be provisioned for a gang.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purchases {
    /// Nodes beside running ones, where that takes fewer of them; tried first.
    pub mixed: Option<Purchase>,
    /// Nodes for the whole gang.
    pub whole: Option<Purchase>,
    /// Every type of every pool that is no offer for the whole gang, with all that stands in the way.
    pub unsold: Vec<Unsold>,
}

/// What can be provisioned for a gang. `hosts` are running nodes that members could stand beside new ones on; they are
/// asked for only where that is possible.
#[must_use]
pub fn purchases(short: &Short<'_>, hosts: impl FnOnce() -> Vec<Host>) -> Purchases {
    let Short { request, placement_group, bound_zones, levels, pools, policy: _ } = *short;
    let offers = offers_for(request, levels, pools);
    let mixes = request.roles.len() == 1
        && !pools.is_empty()
        && placement_group != Some("required")
        && may_mix(&request.topology_requests, levels);
    let zones = match bound_zones {
        [] => reached(request, pools),
        zones => zones.to_vec(),
    };
    let whole = offers.possible.first().map(|first| Whole { offer: first, zones: &zones });
    let running = if mixes { by_zone(short, hosts()) } else { BTreeMap::new() };
    let mixed = mixed(short, &running, whole);
    let mut unsold = offers.unsold;
    if whole.is_none() && mixed.is_none() {
        fewer(&mut unsold, short, &running);
    }
    let whole = (!offers.possible.is_empty()).then(|| Purchase { offers: offers.possible, zones, beside: Vec::new() });
    Purchases { mixed, whole, unsold }
}

/// Running nodes of one zone, and how many members they hold.
#[derive(Default)]
struct Running {
    slots: u32,
    hosts: Vec<Host>,
}

impl Running {
    /// Members that running nodes take: at least one is left for what is provisioned. `None`: nobody.
    fn taken(&self, request: &GangRequest) -> Option<u32> {
        let unbound = request.roles.iter().flat_map(|role| &role.places).filter(|place| place.bound.is_none());
        let taken = self.slots.min(count(unbound.count()).saturating_sub(1));
        (taken > 0).then_some(taken)
    }
}

/// Where members of one shape may stand on running nodes.
fn by_zone(short: &Short<'_>, hosts: Vec<Host>) -> BTreeMap<Option<Arc<str>>, Running> {
    let mut zones: BTreeMap<Option<Arc<str>>, Running> = BTreeMap::new();
    let [role] = short.request.roles.as_slice() else { return zones };
    for host in hosts {
        let zone = host.node.labels.get(ZONE_KEY).cloned();
        if !short.bound_zones.is_empty() && !zone.as_ref().is_some_and(|zone| short.bound_zones.contains(zone)) {
            continue;
        }
        let running = zones.entry(zone).or_default();
        let slots = fit::slots(&role.shape, &host.node, &host.usage).unwrap_or(0);
        running.slots = running.slots.saturating_add(slots);
        running.hosts.push(host);
    }
    zones
}

/// What stands in the way where running nodes take a part of the gang: the fewest nodes of each type that would do, so that
/// nobody is asked to raise a limit further than what is provisioned then. With topology requests beyond one zone only the
/// planner knows what running nodes take.
fn fewer(unsold: &mut [Unsold], short: &Short<'_>, running: &BTreeMap<Option<Arc<str>>, Running>) {
    let TopologyRequests { required, preferred: _, slices, exclusive, balance, apart } =
        &short.request.topology_requests;
    let of_zone_alone = required.is_none_or(|level| Some(level) == short.levels.zone());
    if !of_zone_alone || !slices.is_empty() || exclusive.is_some() || balance.is_some() || apart.is_some() {
        return;
    }
    for (zone, running) in running.iter().filter(|(zone, _)| zone.is_some() || required.is_none()) {
        let Some(taken) = running.taken(short.request) else { continue };
        let pools: Vec<PoolView> = short.pools.iter().filter_map(|pool| of_zone(pool, zone.as_ref())).collect();
        for rest in offers_for(&less(short.request, taken), short.levels, &pools).unsold {
            let same = |one: &&mut Unsold| one.pool == rest.pool && one.instance_type == rest.instance_type;
            let Some(one) = unsold.iter_mut().find(same) else { continue };
            if rest.count.is_some_and(|count| one.count.is_some_and(|all| count < all)) {
                *one = rest;
            }
        }
    }
}

/// What is provisioned for a booking: nodes of its own, whatever runs, since they are for pods that come later. Where they will
/// stand plays no part in how many there must be.
#[must_use]
pub fn for_booking(request: &GangRequest, pools: &[PoolView]) -> Purchases {
    let host = Level { name: "host".into(), key: HOST_KEY.into() };
    let Ok(levels) = Levels::new(vec![host]) else { return Purchases::default() };
    let request = GangRequest { topology_requests: TopologyRequests::default(), ..request.clone() };
    let offers = offers_for(&request, &levels, pools);
    let whole = Purchase { offers: offers.possible, zones: Vec::new(), beside: Vec::new() };
    Purchases { mixed: None, whole: (!whole.offers.is_empty()).then_some(whole), unsold: offers.unsold }
}

/// Zones that a gang's bound members leave open, by the zone of each node; empty: any.
pub fn bound_zones(request: &GangRequest, zone_of: impl Fn(&NodeName) -> Option<Arc<str>>) -> Vec<Arc<str>> {
    if request.topology_requests.required.is_none() {
        return Vec::new();
    }
    let bound = request.roles.iter().flat_map(|role| &role.places).filter_map(|place| place.bound.as_ref());
    let zones: BTreeSet<Arc<str>> = bound.filter_map(zone_of).collect();
    zones.into_iter().collect()
}

/// Whether provisioned nodes may stand beside running ones: only where no network level below the zone is requested.
#[must_use]
pub fn may_mix(topology_requests: &TopologyRequests, levels: &Levels) -> bool {
    let network = levels.network();
    let below = |level: LevelIndex| network.contains(&level);
    let slices = topology_requests.slices.iter().map(|slice| slice.level);
    let requested = [
        topology_requests.required,
        topology_requests.preferred,
        topology_requests.exclusive,
        topology_requests.balance,
    ];
    !requested.into_iter().flatten().chain(slices).any(below)
}

/// What would be provisioned for the whole gang first.
#[derive(Clone, Copy)]
struct Whole<'a> {
    offer: &'a Offer,
    /// Zones it may be provisioned in; empty: any.
    zones: &'a [Arc<str>],
}

/// Micro-dollars per hour of an offer at its cheapest in these zones, then its nodes: what is less is the better purchase.
/// Without a price it has none.
fn cost(offer: &Offer, pools: &[PoolView], zones: &[Arc<str>]) -> Option<(u64, u32)> {
    let each = kind(offer, pools)?.price_in(zones)?;
    Some((each.saturating_mul(u64::from(offer.count)), offer.count))
}

/// The type of an offer, as its pool has it.
fn kind<'a>(offer: &Offer, pools: &'a [PoolView]) -> Option<&'a TypeView> {
    let mut kinds = pools.iter().filter(|pool| pool.name == offer.pool).flat_map(|pool| &pool.types);
    kinds.find(|kind| kind.name == offer.instance_type)
}

/// The cheapest purchase beside running nodes; `None` if none is cheaper than a whole one, or as cheap with fewer nodes. All of
/// its offers are, each at the price of the zone the running nodes are in. Members of one shape only, with topology requests
/// that [`may_mix`].
fn mixed(
    short: &Short<'_>,
    running: &BTreeMap<Option<Arc<str>>, Running>,
    whole: Option<Whole<'_>>,
) -> Option<Purchase> {
    let Short { request, placement_group: _, bound_zones: _, levels, pools, policy: _ } = *short;
    // What a blocked pool would sell one day is no purchase to compare with.
    let blocked = |offer: &Offer| pools.iter().any(|pool| pool.name == offer.pool && pool.blocked);
    let whole = whole.filter(|whole| !blocked(whole.offer));
    let of_whole = whole.and_then(|whole| cost(whole.offer, pools, whole.zones));
    let mut best: Option<((u64, u32), Purchase)> = None;
    for (zone, running) in running {
        let Some(taken) = running.taken(request) else { continue };
        let pools: Vec<PoolView> = pools.iter().filter_map(|pool| of_zone(pool, zone.as_ref())).collect();
        let mut offers = offers_for(&less(request, taken), levels, &pools).possible;
        let costs = |offer: &Offer| cost(offer, &pools, &[]);
        offers.retain(|offer| costs(offer).is_some_and(|cost| of_whole.is_none_or(|whole| cost < whole)));
        let Some((first, total)) = offers.first().and_then(|first| Some((first, costs(first)?))) else { continue };
        if best.as_ref().is_some_and(|(least, _)| *least <= total) {
            continue;
        }
        let Some(kind) = kind(first, &pools) else { continue };
        let new_node = zone.as_ref().map_or_else(|| Node::clone(&kind.node), |zone| in_zone(&kind.node, zone));
        let new = (0..first.count).map(|number| {
            let name = NodeName::from(format!("new/{number}"));
            Host { node: Arc::new(Node { name, ..new_node.clone() }), usage: Arc::clone(&kind.overhead) }
        });
        let hosts: Vec<Host> = running.hosts.iter().cloned().chain(new).collect();
        if let Some(beside) = beside(short, hosts) {
            best = Some((total, Purchase { offers, zones: zone.iter().cloned().collect(), beside }));
        }
    }
    best.map(|(_, purchase)| purchase)
}

/// The places on running nodes of a plan for the whole gang on these hosts; `None` if it does not fit there.
fn beside(short: &Short<'_>, hosts: Vec<Host>) -> Option<Vec<Place>> {
    let mut gang = short.request.clone();
    for role in &mut gang.roles {
        role.min = count(role.places.len());
    }
    let problem = Problem { levels: short.levels.clone(), hosts, gang };
    let (plan, report) = planner::plan(&problem, short.policy, SearchBudget::default(), Seed::default());
    let new = |place: &Place| place.node.as_str().starts_with("new/");
    let used = report.refusal.is_none() && plan.places.iter().any(|place| !new(place) && !place.bound);
    used.then(|| plan.places.into_iter().filter(|place| !new(place) && !place.bound).collect())
}

/// The request without so many of its unbound places.
fn less(request: &GangRequest, members: u32) -> GangRequest {
    let mut request = request.clone();
    let mut left = members;
    for role in &mut request.roles {
        let mut places = std::mem::take(&mut role.places);
        places.retain(|place| {
            let gone = place.bound.is_none() && left > 0;
            left -= u32::from(gone);
            !gone
        });
        role.min = role.min.min(count(places.len()));
        role.places = places;
    }
    request
}

/// The pool as it sells in a zone, at the prices there; `None` if it does not. A blocked one sells nothing that running nodes could be held for.
fn of_zone(pool: &PoolView, zone: Option<&Arc<str>>) -> Option<PoolView> {
    if pool.blocked {
        return None;
    }
    let Some(zone) = zone else { return Some(pool.clone()) };
    if !pool.zones.is_empty() && !pool.zones.contains(zone) {
        return None;
    }
    let mut pool = pool.clone();
    for kind in &mut pool.types {
        kind.price = kind.price_in(std::slice::from_ref(zone));
        kind.zonal.clear();
        kind.node = Arc::new(in_zone(&kind.node, zone));
    }
    Some(pool)
}
