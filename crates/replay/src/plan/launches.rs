//! New nodes, launches, cost and limits as the document has them.

use std::collections::BTreeMap;

use muster_api::convert::ordinary::{Preference, What};
use muster_api::keys;
use muster_core::fit::Misfit;
use muster_core::model::money::usd;
use muster_core::model::node::Taint;
use muster_core::model::resources::{ATTACHABLE_VOLUMES, CPU, Resources, at_least};
use muster_core::offering::NODES;
use muster_core::packing::{self, CEILING, NewNode, Obstacle, Offer, Plan, Problem};

use crate::document::{
    AlternativeEntry, Basis, Cost, Gap, LaunchEntry, LimitEntry, NodeEntry, OverrideEntry, PodCode, PodReason, Relaxed,
    RelaxedWhat, TaintEntry,
};
use crate::supply::{Supply, Withheld};

/// Most nodes of one launch.
const LAUNCH: usize = 100;

/// What the document says of nodes to launch.
pub(super) struct Launched {
    pub(super) nodes: Vec<NodeEntry>,
    pub(super) launches: Vec<LaunchEntry>,
    pub(super) cost: Cost,
    pub(super) limits: Vec<LimitEntry>,
}

/// Describes a plan.
pub(super) fn describe(problem: &Problem, plan: &Plan, supply: &Supply) -> Launched {
    let nodes: Vec<NodeEntry> =
        plan.nodes.iter().enumerate().map(|(index, node)| entry(problem, supply, index, node)).collect();
    let mut groups: BTreeMap<(usize, u32, Vec<OverrideEntry>, &'static str), Vec<usize>> = BTreeMap::new();
    let mut order = Vec::new();
    for (index, node) in plan.nodes.iter().enumerate() {
        let own = &problem.offers[node.offer];
        let same = std::iter::once(&node.offer).chain(&node.alternatives).map(|offer| &problem.offers[*offer]);
        let same =
            same.filter(|offer| offer.capacity_type == own.capacity_type && offer.reservation == own.reservation);
        let mut overrides: Vec<OverrideEntry> = same.map(override_of).collect();
        overrides.sort_by(|one, other| {
            let key = |one: &OverrideEntry| (one.usd_micro_per_hour, one.instance_type.clone(), one.zone.clone());
            key(one).cmp(&key(other))
        });
        let key = (own.pool, own.variant, overrides, own.capacity_type.as_str());
        if !groups.contains_key(&key) {
            order.push(key.clone());
        }
        groups.entry(key).or_default().push(index);
    }
    let mut launches = Vec::new();
    for key in order {
        for nodes in groups.get(&key).into_iter().flat_map(|all| all.chunks(LAUNCH)) {
            let first = nodes.first().map(|index| &problem.offers[plan.nodes[*index].offer]);
            launches.extend(first.map(|first| LaunchEntry {
                pool: problem.pools[key.0].name.to_string(),
                capacity_type: first.capacity_type.into(),
                nodes: nodes.iter().map(|index| format!("new/{index}")).collect(),
                overrides: key.2.clone(),
            }));
        }
    }
    Launched { nodes, launches, cost: cost(plan), limits: limits(problem, plan, supply) }
}

fn entry(problem: &Problem, supply: &Supply, index: usize, node: &NewNode) -> NodeEntry {
    let offer = &problem.offers[node.offer];
    let mut labels: BTreeMap<String, String> =
        offer.node.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    labels.insert(keys::HOSTNAME.to_owned(), format!("new-{index}"));
    let mut alternatives: Vec<AlternativeEntry> =
        node.alternatives.iter().map(|offer| alternative(&problem.offers[*offer])).collect();
    alternatives.sort_by(|one, other| {
        let key = |one: &AlternativeEntry| {
            (one.usd_micro_per_hour, one.instance_type.clone(), one.zone.clone(), one.capacity_type)
        };
        key(one).cmp(&key(other))
    });
    alternatives.dedup();
    NodeEntry {
        id: format!("new/{index}"),
        pool: problem.pools[offer.pool].name.to_string(),
        instance_type: offer.instance_type.to_string(),
        zone: offer.zone.as_ref().map(ToString::to_string),
        capacity_type: offer.capacity_type.into(),
        reservation: offer.reservation.as_ref().map(ToString::to_string),
        usd_micro_per_hour: offer.price,
        labels,
        taints: offer.node.taints.iter().map(taint).collect(),
        startup_taints: supply.startup_taints[offer.pool].iter().map(taint).collect(),
        allocatable: amounts(&offer.node.allocatable),
        overhead: amounts(&offer.overhead.requested),
        alternatives,
    }
}

fn alternative(offer: &Offer) -> AlternativeEntry {
    AlternativeEntry {
        instance_type: offer.instance_type.to_string(),
        zone: offer.zone.as_ref().map(ToString::to_string),
        capacity_type: offer.capacity_type.into(),
        usd_micro_per_hour: offer.price,
    }
}

fn override_of(offer: &Offer) -> OverrideEntry {
    let AlternativeEntry { instance_type, zone, capacity_type: _, usd_micro_per_hour } = alternative(offer);
    OverrideEntry { instance_type, zone, usd_micro_per_hour }
}

fn taint(taint: &Taint) -> TaintEntry {
    TaintEntry { key: taint.key.to_string(), value: taint.value.to_string(), effect: taint.effect.to_string() }
}

/// Amounts as Kubernetes quantities; limits of volumes are no amounts of a node.
fn amounts(resources: &Resources) -> BTreeMap<String, String> {
    let named = resources.iter().filter(|(name, _)| !name.as_str().starts_with(ATTACHABLE_VOLUMES));
    named.map(|(name, amount)| (name.as_str().to_owned(), quantity(name.as_str(), amount))).collect()
}

fn quantity(name: &str, amount: i64) -> String {
    match name {
        CPU if amount % 1000 != 0 => format!("{amount}m"),
        CPU => (amount / 1000).to_string(),
        _ => amount.to_string(),
    }
}

fn cost(plan: &Plan) -> Cost {
    let Some(bound) = &plan.bound else { return Cost { usd_micro_per_hour: plan.cost, ..Cost::default() } };
    let gap = if bound.value == plan.cost {
        Gap::None
    } else {
        Gap::Open { field: "usdMicroPerHour".to_owned(), achieved: plan.cost, bound: bound.value }
    };
    let basis = match &bound.basis {
        packing::Basis::Enumeration => Basis::Enumeration,
        packing::Basis::Patterns(_) => Basis::Patterns,
        packing::Basis::Resources { .. } => Basis::Resources,
    };
    Cost { usd_micro_per_hour: plan.cost, bound: Some(bound.value), gap: Some(gap), basis: Some(basis) }
}

fn limits(problem: &Problem, plan: &Plan, supply: &Supply) -> Vec<LimitEntry> {
    let mut entries = Vec::new();
    for (index, (pool, limits)) in problem.pools.iter().zip(&supply.limits).enumerate() {
        for (name, (limit, used)) in limits {
            let each = |offer: &usize| {
                if name.as_str() == NODES { 1 } else { problem.offers[*offer].capacity.get(name.as_str()) }
            };
            let own = plan.nodes.iter().filter(|node| problem.offers[node.offer].pool == index);
            let largest = own.filter_map(|node| std::iter::once(&node.offer).chain(&node.alternatives).map(each).max());
            // What gangs were given before is off the limit already.
            let gangs = limit.saturating_sub(*used).saturating_sub(pool.left.get(name).copied().unwrap_or(0));
            let planned = largest.fold(gangs, i64::saturating_add);
            let text = |amount: i64| quantity(name.as_str(), amount);
            entries.push(LimitEntry {
                pool: pool.name.to_string(),
                resource: name.as_str().to_owned(),
                limit: text(*limit),
                used: text(*used),
                planned: text(planned),
            });
        }
    }
    entries
}

/// A preference that was dropped.
pub(super) fn relaxed(preference: &Preference) -> Relaxed {
    let what = match preference.what {
        What::PodAffinity => RelaxedWhat::PodAffinity,
        What::PodAntiAffinity => RelaxedWhat::PodAntiAffinity,
        What::NodeAffinity => RelaxedWhat::NodeAffinity,
        What::TopologySpread => RelaxedWhat::TopologySpread,
        What::Taint => RelaxedWhat::Taint,
    };
    Relaxed { what, index: u32::try_from(preference.index).unwrap_or(u32::MAX), weight: preference.weight }
}

/// The code of a refusal by a node that exists.
pub(super) fn code_of(misfit: &Misfit) -> PodCode {
    match misfit {
        Misfit::Unschedulable | Misfit::NotReady | Misfit::Shared => PodCode::NoOfferFits,
        Misfit::Taint { .. } | Misfit::Held => PodCode::Taint,
        Misfit::Selector => PodCode::Selector,
        Misfit::Volume => PodCode::VolumeZone,
        Misfit::Port => PodCode::Port,
        Misfit::Insufficient { resource } if resource.as_str().starts_with(ATTACHABLE_VOLUMES) => PodCode::VolumeLimit,
        Misfit::Insufficient { .. } => PodCode::Insufficient,
        Misfit::Occupied => PodCode::AntiAffinity,
    }
}

/// What a pool has for a pod and cannot be had; without a type: all that it has.
pub(super) fn withheld(pool: String, instance_type: Option<&str>, why: Withheld) -> PodReason {
    let its = instance_type.unwrap_or("its types");
    let (code, change) = match why {
        Withheld::Unpriced => (PodCode::PriceUnknown, format!("a price for {its}")),
        Withheld::Unavailable => (PodCode::NoOfferFits, format!("capacity for {its}, marked as not available")),
        Withheld::Unreserved => (PodCode::NoOfferFits, format!("a reservation of {its}, of which none is known")),
        Withheld::Full => (PodCode::NoOfferFits, format!("a free host of the reservation of {its}")),
    };
    let instance_type = instance_type.map(str::to_owned);
    PodReason { code, pool: Some(pool), instance_type, short: None, change: Some(change) }
}

/// Why a pool has nothing for a pod.
pub(super) fn obstacle(pool: String, instance_type: Option<&str>, obstacle: &Obstacle) -> PodReason {
    let positive = |amount: i64| u64::try_from(amount).ok();
    let (code, short, change) = match obstacle {
        Obstacle::NothingOffered => (PodCode::NoOfferFits, None, None),
        Obstacle::Taint(taint) => (PodCode::Taint, None, Some(format!("tolerate {taint}"))),
        // Every node has one of its own, or its type or zone decides; no pool can define it.
        Obstacle::UndefinedLabel(key) if **key == *keys::HOSTNAME => (PodCode::Selector, None, None),
        Obstacle::UndefinedLabel(key) if keys::is_known(key) => {
            (PodCode::Selector, None, Some("another selector or requirement".to_owned()))
        }
        Obstacle::UndefinedLabel(key) => {
            (PodCode::UndefinedLabel, None, Some(format!("define the label {key} in the pool")))
        }
        Obstacle::Selector => (PodCode::Selector, None, Some("another selector or requirement".to_owned())),
        Obstacle::Volume => (PodCode::VolumeZone, None, Some("a zone from which its volumes are reached".to_owned())),
        Obstacle::Port => (PodCode::Port, None, None),
        Obstacle::Insufficient(name, short) | Obstacle::Overhead(name, short)
            if name.as_str().starts_with(ATTACHABLE_VOLUMES) =>
        {
            (PodCode::VolumeLimit, positive(*short), None)
        }
        Obstacle::Insufficient(name, short) => {
            let more = at_least(name.as_str(), *short);
            (PodCode::Insufficient, positive(*short), Some(format!("a type with {more} more of {}", name.as_str())))
        }
        Obstacle::Overhead(name, short) => {
            let more = at_least(name.as_str(), *short);
            let change = format!("a type with {more} more of {} beside what DaemonSets take", name.as_str());
            (PodCode::Overhead, positive(*short), Some(change))
        }
        Obstacle::MinValues(key) => (PodCode::MinValues, None, Some(format!("fewer minValues of {key}"))),
        Obstacle::LimitReached(name, short) if name.as_str() == CEILING => {
            // To the cent above: an amount that is rounded down would not do.
            let cents = positive(*short).unwrap_or(0).div_ceil(10_000);
            let more = usd(cents.saturating_mul(10_000));
            (PodCode::LimitReached, positive(*short), Some(format!("a spec.maxUsdPerHour that is {more} higher")))
        }
        Obstacle::LimitReached(name, short) => {
            let more = at_least(name.as_str(), *short);
            let change = format!("a limit of {} that is {more} higher", name.as_str());
            (PodCode::LimitReached, positive(*short), Some(change))
        }
        Obstacle::NoReservation => (PodCode::NoOfferFits, None, Some("a free host of the reservation".to_owned())),
        Obstacle::Spread => (PodCode::Spread, None, None),
        Obstacle::Affinity => (PodCode::Affinity, None, None),
        Obstacle::AntiAffinity => (PodCode::AntiAffinity, None, None),
        // A plan starts from what is offered; what became of former purchases is the server's to know.
        Obstacle::KeptOff => (PodCode::NoOfferFits, None, None),
    };
    PodReason { code, pool: Some(pool), instance_type: instance_type.map(str::to_owned), short, change }
}
