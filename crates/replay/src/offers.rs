//! What is provisioned for a gang that no node of the dump holds: the server's decisions, asked in the server's order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use muster_api::keys;
use muster_core::ec2::{CapacityType, Offering};
use muster_core::fit::Misfit;
use muster_core::gang::{self, PoolView, Purchases, Short};
use muster_core::model::names::NodeName;
use muster_core::model::node::{Node, Usage};
use muster_core::model::resources::{Resources, at_least, at_most};
use muster_core::offering::{
    Candidate, Ceiling, Excluded, Exclusion, GroupPolicy, Ledger, LedgerInputs, PoolOffer, RankInput, Ranked, Ranking,
    Refusals, UnavailableMemory, rank_candidates,
};
use muster_core::planner::plan::{GangRequest, Host, Policy, TopologyRequests};
use muster_core::reason::{Code, Help, NewOffer, Reason, Unsold};
use muster_core::topology::Levels;

use crate::catalogue::Catalogue;
use crate::document::{self, ProvisionEntry};
use crate::plan::ACCELERATORS;
use crate::pools::{self, Pool};
use crate::reasons;

/// One way to provision all nodes of a gang in one call.
#[derive(Debug)]
pub(crate) struct Purchase {
    /// What the document says.
    pub(crate) entry: ProvisionEntry,
    /// Members that running nodes of the zone are counted on for.
    pub(crate) beside: u32,
    node: Node,
    overhead: Arc<Usage>,
    capacity: Resources,
}

impl Purchase {
    /// The nodes to come, `new/<provision>/<k>`.
    pub(crate) fn hosts(&self, provision: usize) -> Vec<Host> {
        (0..self.entry.count)
            .map(|k| {
                let node = Node { name: NodeName::from(format!("new/{provision}/{k}")), ..self.node.clone() };
                Host { node: Arc::new(node), usage: Arc::clone(&self.overhead) }
            })
            .collect()
    }

    /// What the hardware of one node has.
    pub(crate) fn capacity(&self) -> &Resources {
        &self.capacity
    }
}

/// What is on sale for a gang, and what is not.
#[derive(Debug, Default)]
pub(crate) struct OnSale {
    /// In the order they are tried.
    pub(crate) purchases: Vec<Purchase>,
    /// Everything that is no candidate, with the reason.
    pub(crate) excluded: Vec<document::Reason>,
}

/// A gang that the nodes of the dump do not hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// The gang.
    pub(crate) request: &'a GangRequest,
    /// Its placement group.
    pub(crate) placement_group: Option<&'a str>,
    /// Zones that its bound members leave open; empty: any.
    pub(crate) bound_zones: &'a [Arc<str>],
    /// Topology levels.
    pub(crate) levels: &'a Levels,
    /// What is best.
    pub(crate) policy: &'a Policy,
    /// What asks.
    pub(crate) asks: Asks,
}

/// What asks for nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Pods, which may stand on what runs.
    Pods,
    /// A ProvisioningRequest, which books nodes of its own.
    Request,
}

/// What is on sale, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shop<'a> {
    /// Pools of the dump.
    pub(crate) pools: &'a [Pool],
    /// What they have left.
    pub(crate) ledger: &'a Ledger,
    /// Types and prices.
    pub(crate) catalogue: &'a Catalogue,
}

/// Every way to provision for a gang, in the order they are tried: beside running nodes, `hosts`, where that takes fewer new
/// ones, then all of it.
pub(crate) fn find(asked: &Asked<'_>, shop: &Shop<'_>, hosts: impl Fn() -> Vec<Host>) -> OnSale {
    let Asked { request, placement_group, bound_zones, levels, policy, asks } = *asked;
    let views: Vec<PoolView> = shop.pools.iter().map(|pool| pool.view(&shop.catalogue.prices, shop.ledger)).collect();
    let short = Short { request, placement_group, bound_zones, levels, pools: &views, policy };
    let Purchases { mixed, whole, unsold } = match asks {
        Asks::Pods => gang::purchases(&short, &hosts),
        Asks::Request => gang::for_booking(request, &views),
    };
    // Without a type the pool has been reported already.
    let types = unsold.iter().filter(|unsold| unsold.instance_type.is_some());
    let fact =
        |unsold: &Unsold| fact(unsold, request, &views, shop.pools).unwrap_or_else(|| reasons::of_unsold(unsold));
    let mut sale = OnSale { purchases: Vec::new(), excluded: types.map(fact).collect() };
    let group = GroupPolicy::of_gang(placement_group);
    let mut seen = BTreeSet::new();
    for purchase in mixed.iter().chain(&whole) {
        let Ranking { candidates, excluded } = rank(purchase, group, shop);
        for ranked in candidates {
            let Candidate { instance_type, zone, capacity_type, .. } = &ranked.candidate;
            let place = (ranked.pool.clone(), instance_type.clone(), zone.clone(), *capacity_type);
            // With and without a placement group it is the same to whoever reads the plan.
            if seen.insert(place) {
                let beside = u32::try_from(purchase.beside.len()).unwrap_or(u32::MAX);
                sale.purchases.extend(described(&ranked, beside, shop.pools));
            }
        }
        let sold = |excluded: &&Excluded| {
            let Excluded { pool, instance_type, zone, capacity_type, .. } = *excluded;
            let place = (pool.clone(), instance_type.clone()?, zone.clone()?, (*capacity_type)?);
            Some(seen.contains(&place))
        };
        let excluded = excluded.iter().filter(|excluded| sold(excluded) != Some(true));
        sale.excluded.extend(excluded.filter_map(|excluded| stated(excluded, purchase, shop)));
    }
    sale.excluded.extend(elsewhere(bound_zones, &views));
    if shop.pools.is_empty() || sale.purchases.is_empty() && sale.excluded.is_empty() {
        let offer = cheapest(&short, shop.catalogue, asks, &hosts);
        sale.excluded.push(Reason::new(Code::NoPool, Help::NewPool { offer }).into());
    }
    let mut seen = BTreeSet::new();
    sale.excluded.retain(|reason| seen.insert((reason.code, reason.short, reason.change.clone())));
    sale
}

/// The cheapest type of the catalogue with a price of which new nodes hold the gang, beside running ones where that takes fewer,
/// and how many: what a NodePool without taints, labels and limits would provision. Where nodes with the accelerators that the gang asks
/// for are there, one of their types: a gang on different ones runs as fast as the slowest.
fn cheapest(short: &Short<'_>, catalogue: &Catalogue, asks: Asks, hosts: &impl Fn() -> Vec<Host>) -> Option<NewOffer> {
    let pool = pools::hypothetical(catalogue, short.bound_zones)?;
    let unlimited = LedgerInputs { pools: BTreeMap::new(), cluster: Ceiling::Unlimited, claims: Vec::new() };
    let any = pool.view(&catalogue.prices, &Ledger::new(&unlimited, None));
    let there = accelerated(short.request, &hosts());
    let alike = PoolView {
        types: any.types.iter().filter(|kind| there.contains(&kind.name)).cloned().collect(),
        ..any.clone()
    };
    let found = [alike, any].into_iter().find_map(|view| {
        let view = [view];
        let Purchases { mixed, whole, .. } = match asks {
            Asks::Pods => gang::purchases(&Short { pools: &view, ..*short }, hosts),
            Asks::Request => gang::for_booking(short.request, &view),
        };
        let mut all = mixed.into_iter().chain(whole);
        all.find_map(|purchase| Some((purchase.zones.clone(), purchase.offers.first()?.clone())))
    });
    let (zones, offer) = found?;
    let level = match asks {
        Asks::Pods => network_level(&short.request.topology_requests, short.levels),
        Asks::Request => None,
    };
    let (instance_type, zone) = (Arc::clone(&offer.instance_type), zones.first().cloned());
    Some(NewOffer { instance_type, count: offer.count, zone, level })
}

/// Types of the nodes with accelerators that the gang asks for.
fn accelerated(request: &GangRequest, hosts: &[Host]) -> BTreeSet<Arc<str>> {
    let asks = |name: &&str| request.roles.iter().any(|role| role.shape.requests.get(name) > 0);
    let asked: Vec<&str> = ACCELERATORS.into_iter().filter(asks).collect();
    let has = |host: &&Host| asked.iter().any(|name| host.node.allocatable.get(name) > 0);
    hosts.iter().filter(has).filter_map(|host| host.node.labels.get(keys::INSTANCE_TYPE).cloned()).collect()
}

/// The name of the lowest level of the network below the zone that the gang must keep to.
fn network_level(topology_requests: &TopologyRequests, levels: &Levels) -> Option<Arc<str>> {
    let TopologyRequests { required, exclusive, slices, .. } = topology_requests;
    let requested = required.iter().chain(exclusive).copied().chain(slices.iter().map(|slice| slice.level));
    let lowest = requested.filter(|level| levels.network().contains(level)).max()?;
    levels.as_slice().get(lowest).map(|level| Arc::clone(&level.name))
}

/// What is in the way of a type where a number or the pool's own requirement tells more than the obstacle does.
fn fact(unsold: &Unsold, request: &GangRequest, views: &[PoolView], pools: &[Pool]) -> Option<document::Reason> {
    let Unsold { pool, instance_type, count: _, why } = unsold;
    let instance_type = instance_type.as_ref()?;
    match why.as_slice() {
        [Exclusion::Misfit { misfit: Misfit::Insufficient { resource } }] => {
            let name = resource.as_str();
            let view = views.iter().find(|view| view.name == *pool)?;
            let kind = view.types.iter().find(|kind| kind.name == *instance_type)?;
            let has = kind.node.allocatable.get(name).saturating_sub(kind.overhead.requested.get(name));
            let asks = request.roles.iter().map(|role| role.shape.requests.get(name)).max()?;
            let (asks, has) = (at_least(name, asks), at_most(name, has));
            let text =
                format!("{instance_type} of NodePool {pool}: has {has} {name} for pods, each member asks for {asks}");
            Some(reasons::described(Code::NoType, text))
        }
        [Exclusion::PriceUnknown] => {
            let only = pools.iter().find(|known| *known.name == **pool)?.only()?;
            let (code, lacks) = match only {
                CapacityType::Reserved => (Code::Reservation, format!("no reservation of {instance_type}")),
                CapacityType::Spot => (Code::PriceUnknown, format!("no spot price of {instance_type}")),
                CapacityType::OnDemand => (Code::PriceUnknown, format!("no price of {instance_type}")),
            };
            let text = format!("NodePool {pool} allows only {}; {lacks} is known", only.as_str());
            Some(reasons::described(code, text))
        }
        _ => None,
    }
}

/// The candidates of a purchase, as the NodeBatch would rank them.
fn rank(purchase: &gang::Purchase, group: GroupPolicy, shop: &Shop<'_>) -> Ranking {
    let pool = |name: &str| shop.pools.iter().find(|pool| pool.name == name);
    let names: BTreeSet<&str> = purchase.offers.iter().map(|offer| &*offer.pool).collect();
    let pools: Vec<PoolOffer> =
        names.into_iter().filter_map(pool).map(|pool| pool.offer(&purchase.zones, shop.ledger)).collect();
    let needs = purchase.offers.iter().filter_map(|offer| pool(&offer.pool)?.need(&offer.instance_type, offer.count));
    // A dump tells nothing of what EC2 offers where: every type everywhere.
    let zones: BTreeSet<&String> = pools.iter().flat_map(|pool| &pool.zones).collect();
    let offered = |zone: &&String| -> Vec<Offering> {
        let of = |name: &String| Offering { instance_type: name.clone(), zone: (*zone).clone() };
        shop.catalogue.types.keys().map(of).collect()
    };
    rank_candidates(&RankInput {
        pools: &pools,
        types: &shop.catalogue.types,
        needs: &needs.collect::<BTreeMap<_, _>>(),
        group,
        volume_zones: None,
        offerings: &zones.iter().flat_map(offered).collect(),
        prices: &shop.catalogue.prices,
        unavailable: &UnavailableMemory::default(),
        refusals: &Refusals::default(),
        now: Timestamp::UNIX_EPOCH,
    })
}

/// A candidate with the node it becomes.
fn described(ranked: &Ranked, beside: u32, pools: &[Pool]) -> Option<Purchase> {
    let candidate = &ranked.candidate;
    let new = pools.iter().find(|pool| pool.name == ranked.pool)?.node(candidate)?;
    Some(Purchase {
        entry: ProvisionEntry {
            pool: ranked.pool.clone(),
            instance_type: candidate.instance_type.clone(),
            zone: Some(candidate.zone.clone()).filter(|zone| !zone.is_empty()),
            capacity_type: candidate.capacity_type.into(),
            count: ranked.count,
            usd_micro_per_hour: candidate.price_micro_usd_per_hour?,
        },
        beside,
        node: new.node,
        overhead: Arc::new(new.overhead),
        capacity: new.capacity,
    })
}

/// What the ranking excluded, as the document has it; `None` for what is reported already.
fn stated(excluded: &Excluded, purchase: &gang::Purchase, shop: &Shop<'_>) -> Option<document::Reason> {
    let Excluded { pool, instance_type, zone, reason, .. } = excluded;
    // Types that are no offer at all are reported with everything that stands in the way of them.
    if matches!(reason, Exclusion::DoesNotFit | Exclusion::TooManyCandidates) {
        return None;
    }
    let unread = *reason == Exclusion::NoReservation;
    // What else the pool may provision is not held up by a reservation of which the dump tells nothing.
    if unread && !shop.pools.iter().any(|known| known.name == *pool && known.is_only_reserved()) {
        return None;
    }
    let named = instance_type.as_deref().filter(|_| !unread);
    let unsold = Unsold {
        pool: pool.as_str().into(),
        instance_type: named.map(Into::into),
        count: None,
        why: vec![reason.clone()],
    };
    let stated = reasons::of_unsold(&unsold);
    if !matches!(reason.code(), Code::PlacementGroup | Code::Addresses) {
        return Some(stated);
    }
    // What is in the way is no lack of capacity: the offer is what would be provisioned without it.
    let is_offered = |name: &str| named.is_none_or(|named| named == name);
    let offer = purchase.offers.iter().find(|offer| *offer.pool == **pool && is_offered(&offer.instance_type));
    let entry = offer.and_then(|offer| {
        let place = zone.as_deref().unwrap_or_default();
        Some(ProvisionEntry {
            pool: pool.clone(),
            instance_type: offer.instance_type.to_string(),
            zone: zone.clone(),
            capacity_type: CapacityType::OnDemand.into(),
            count: offer.count,
            usd_micro_per_hour: shop.catalogue.prices.price(&offer.instance_type, place, CapacityType::OnDemand)?,
        })
    });
    Some(stated.provisioning(entry))
}

/// Pools with zones that running members rule out.
fn elsewhere(bound_zones: &[Arc<str>], pools: &[PoolView]) -> Vec<document::Reason> {
    let outside = |pool: &&PoolView| pool.zones.iter().any(|zone| !bound_zones.contains(zone));
    let outside = pools.iter().filter(|_| !bound_zones.is_empty()).filter(outside);
    let unsold = |pool: &PoolView| Unsold {
        pool: Arc::clone(&pool.name),
        instance_type: None,
        count: None,
        why: vec![Exclusion::MembersElsewhere],
    };
    outside.map(|pool| reasons::of_unsold(&unsold(pool))).collect()
}
