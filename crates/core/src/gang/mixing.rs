//! New nodes beside running ones: only what running nodes of one zone do not take is provisioned.
//!
//! Where new nodes stand in the network is known only once they run, so nothing is mixed for a gang that asks for a
//! network level below the zone. The running nodes' places are assigned in the write that names the purchase; nobody is
//! released before the whole gang has its places.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::offers::{Offer, PoolView, offers_for};
use super::request::count;
use super::volumes::in_zone;
use super::working::Working;
use crate::fit;
use crate::model::gang::{Gang, Recognised};
use crate::model::names::NodeName;
use crate::model::node::Node;
use crate::planner;
use crate::planner::plan::{GangRequest, Host, LevelIndex, Place, Problem, SearchBudget, Seed, TopologyRequests};
use crate::topology::Levels;

/// A purchase beside running nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mixed {
    /// What may be provisioned, best first.
    pub(super) offers: Vec<Offer>,
    /// The zone it must be provisioned in; `None` if the nodes name none.
    pub(super) zone: Option<Arc<str>>,
    /// Places on running nodes.
    pub(super) beside: Vec<Place>,
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

impl Working<'_> {
    /// Zones that the gang's bound members leave open; empty: any.
    pub(super) fn zones_of_bound(&self, request: &GangRequest) -> Vec<Arc<str>> {
        if request.topology_requests.required.is_none() {
            return Vec::new();
        }
        let bound = request.roles.iter().flat_map(|role| &role.places).filter_map(|place| place.bound.as_ref());
        let mut zones: Vec<Arc<str>> =
            bound.filter_map(|node| self.snapshot.nodes.get(node)?.node.labels.get(ZONE).cloned()).collect();
        zones.sort();
        zones.dedup();
        zones
    }

    /// The cheapest purchase beside running nodes that needs fewer nodes than a whole one; `None` if nothing may be mixed
    /// or nothing is saved. Members of one shape only.
    pub(super) fn mixed(
        &self,
        gang: &Gang,
        recognised: &Recognised,
        request: &GangRequest,
        whole: Option<&Offer>,
    ) -> Option<Mixed> {
        let [role] = request.roles.as_slice() else { return None };
        if self.world.pools.is_empty() {
            return None;
        }
        let group =
            recognised.topology_requests.placement_group.as_ref().map(|topology_request| &*topology_request.value);
        if !may_mix(&request.topology_requests, self.world.levels) || group == Some("required") {
            return None;
        }
        // What a blocked pool would sell one day is no purchase to compare with.
        let blocked = |offer: &&Offer| self.world.pools.iter().any(|pool| pool.name == offer.pool && pool.blocked);
        let whole = whole.filter(|offer| !blocked(offer));
        let own = self.own(&gang.key);
        let bound_zones = self.zones_of_bound(request);
        let mut zones: BTreeMap<Option<Arc<str>>, (u32, Vec<Host>)> = BTreeMap::new();
        for host in self.snapshot.nodes.keys().filter_map(|node| self.host(node, &own)) {
            if self.is_excluded(&host.node.name, &role.shape) {
                continue;
            }
            let zone = host.node.labels.get(ZONE).cloned();
            if !bound_zones.is_empty() && !zone.as_ref().is_some_and(|zone| bound_zones.contains(zone)) {
                continue;
            }
            let slots = fit::slots(&role.shape, &host.node, &host.usage).unwrap_or(0);
            let (sum, hosts) = zones.entry(zone).or_default();
            *sum = sum.saturating_add(slots);
            hosts.push(host);
        }
        let unbound = count(role.places.iter().filter(|place| place.bound.is_none()).count());
        let mut best: Option<(u64, Mixed)> = None;
        for (zone, (slots, hosts)) in zones {
            let beside = slots.min(unbound.saturating_sub(1));
            if beside == 0 {
                continue;
            }
            let pools: Vec<PoolView> =
                self.world.pools.iter().filter_map(|pool| of_zone(pool, zone.as_ref())).collect();
            let offers = offers_for(&less(request, beside), self.world.levels, &pools).possible;
            let Some(first) = offers.first().filter(|first| whole.is_none_or(|whole| first.count < whole.count)) else {
                continue;
            };
            let kind = pools.iter().filter(|pool| pool.name == first.pool).flat_map(|pool| &pool.types);
            let Some(kind) = kind.into_iter().find(|kind| kind.name == first.instance_type) else { continue };
            let total = kind.price.unwrap_or(0).saturating_mul(u64::from(first.count));
            if best.as_ref().is_some_and(|(least, _)| *least <= total) {
                continue;
            }
            let new_node = zone.as_ref().map_or_else(|| Node::clone(&kind.node), |zone| in_zone(&kind.node, zone));
            let new = (0..first.count).map(|number| {
                let name = NodeName::from(format!("new/{number}"));
                Host { node: Arc::new(Node { name, ..new_node.clone() }), usage: Arc::clone(&kind.overhead) }
            });
            let hosts: Vec<Host> = hosts.into_iter().chain(new).collect();
            if let Some(beside) = self.beside(request, hosts) {
                best = Some((total, Mixed { offers, zone, beside }));
            }
        }
        best.map(|(_, mixed)| mixed)
    }

    /// The places on running nodes of a plan for the whole gang on these hosts; `None` if it does not fit there.
    fn beside(&self, request: &GangRequest, hosts: Vec<Host>) -> Option<Vec<Place>> {
        let mut gang = request.clone();
        for role in &mut gang.roles {
            role.min = count(role.places.len());
        }
        let problem = Problem { levels: self.world.levels.clone(), hosts, gang };
        let policy = &self.world.settings.policy;
        let (plan, report) = planner::plan(&problem, policy, SearchBudget::default(), Seed::default());
        let new = |place: &Place| place.node.as_str().starts_with("new/");
        let used = report.refusal.is_none() && plan.places.iter().any(|place| !new(place) && !place.bound);
        used.then(|| plan.places.into_iter().filter(|place| !new(place) && !place.bound).collect())
    }
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

/// The pool as it sells in a zone; `None` if it does not. A blocked one sells nothing that running nodes could be held for.
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
        Arc::make_mut(&mut kind.node).labels.insert(Arc::from(ZONE), Arc::clone(zone));
    }
    Some(pool)
}

/// Every kubelet and cloud writes this key.
const ZONE: &str = "topology.kubernetes.io/zone";
