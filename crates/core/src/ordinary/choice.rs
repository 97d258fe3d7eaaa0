//! What EC2 may choose among for the nodes of one launch: other types and zones that hold the same pods, and on demand where there is
//! no spot.
//!
//! A launch is still N equal nodes: EC2 takes one type in one zone for all of them, so that a batch has one price and one shape.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::waiting::Waiting;
use crate::ec2::CapacityType;
use crate::fit;
use crate::model::launch::MAX_OVERRIDES;
use crate::offering::price::is_near;
use crate::packing::{self, Offer, Problem, Rule};

/// Most types of a launch from a pool without `minValues`: what EC2 chooses among, and what a NodeBatch lists.
const TYPES: usize = 20;

/// What the nodes of one batch have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) pool: usize,
    pub(super) instance_type: Arc<str>,
    pub(super) zone: Arc<str>,
    pub(super) capacity_type: CapacityType,
    /// Each launch goes into one.
    pub(super) reservation: Option<Arc<str>>,
    pub(super) price: u64,
}

/// Pods of the round, and who is planned on which new node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimants<'a> {
    pub(super) waiting: &'a [Waiting],
    /// By new node: pods, by number in the round.
    pub(super) held: &'a [Vec<usize>],
    /// Extended resources that count as accelerators.
    pub(super) accelerators: &'a [Arc<str>],
}

/// Beside the offer that was planned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// Types, cheapest first.
    pub(super) types: Vec<Arc<str>>,
    /// Zones in which all of them do.
    pub(super) zones: Vec<Arc<str>>,
    /// On demand does as well.
    pub(super) or_on_demand: bool,
}

/// What else the nodes of a launch could be.
pub(super) fn choice(
    claimants: Claimants<'_>,
    (problem, plan): (&Problem, &packing::Plan),
    key: &Key,
    nodes: &[usize],
) -> Choice {
    let mut choice = Choice::default();
    if key.reservation.is_some() {
        return choice;
    }
    let all = Alternatives { claimants, problem, plan, key, nodes };
    choice.or_on_demand = key.capacity_type == CapacityType::Spot && all.on_demand(&key.instance_type, &key.zone);
    let common = all.common();
    // What a pool asks for is named wherever it can be had; then all of it has to hold the pods on demand as well.
    let is_asked = !problem.pools[key.pool].min_values.is_empty();
    if is_asked && choice.or_on_demand {
        let sold = |offer: &&Offer| offer.capacity_type == CapacityType::OnDemand;
        let elsewhere = |offer: &Offer| !all.on_demand(&offer.instance_type, offer.zone.as_deref().unwrap_or_default());
        choice.or_on_demand = !common.iter().copied().filter(sold).any(elsewhere);
    }
    for offer in &common {
        let known = *offer.instance_type == *key.instance_type || choice.types.contains(&offer.instance_type);
        let in_zone = offer.zone.as_ref() == Some(&key.zone);
        let does = in_zone && (!choice.or_on_demand || all.on_demand(&offer.instance_type, &key.zone));
        if known || !(does || is_asked) {
            continue;
        }
        let near = key.capacity_type == CapacityType::Spot || is_near(offer.price, key.price);
        let as_planned = offer.capacity_type == key.capacity_type || choice.or_on_demand || is_asked;
        let most = if is_asked { MAX_OVERRIDES } else { TYPES };
        if as_planned && (near || is_asked) && choice.types.len() + 1 < most {
            choice.types.push(Arc::clone(&offer.instance_type));
        }
    }
    for offer in common.iter().filter(|offer| offer.instance_type == key.instance_type) {
        let Some(zone) = offer.zone.as_ref().filter(|zone| **zone != key.zone) else { continue };
        let known = offer.capacity_type != key.capacity_type || choice.zones.contains(zone);
        let types = || std::iter::once(&key.instance_type).chain(&choice.types);
        let overrides = (choice.zones.len() + 2) * types().count();
        // What cannot be had there now may be had when it is launched.
        let does = |name: &Arc<str>| {
            let offered = problem.offers.iter().any(|one| {
                one.pool == key.pool
                    && one.zone.as_ref() == Some(zone)
                    && one.capacity_type == key.capacity_type
                    && one.instance_type == *name
            });
            let same = |one: &&Offer| {
                one.instance_type == *name && one.zone.as_ref() == Some(zone) && one.capacity_type == key.capacity_type
            };
            !offered || common.iter().any(same)
        };
        let falls = |name: &Arc<str>| !choice.or_on_demand || all.on_demand(name, zone);
        if !known && overrides <= MAX_OVERRIDES && types().all(|name| does(name) && falls(name)) {
            choice.zones.push(Arc::clone(zone));
        }
    }
    choice
}

struct Alternatives<'a> {
    claimants: Claimants<'a>,
    problem: &'a Problem,
    plan: &'a packing::Plan,
    key: &'a Key,
    nodes: &'a [usize],
}

impl<'a> Alternatives<'a> {
    fn own(&self, node: usize) -> &'a Offer {
        &self.problem.offers[self.plan.nodes[node].offer]
    }

    fn has_devices(&self, offer: &Offer) -> bool {
        offer.has_any(self.claimants.accelerators)
    }

    /// Offers that would do in the place of each of the nodes, cheapest first.
    fn common(&self) -> Vec<&'a Offer> {
        let of = |node: &usize| -> BTreeSet<usize> { self.plan.nodes[*node].alternatives.iter().copied().collect() };
        let mut nodes = self.nodes.iter();
        let Some(first) = nodes.next() else { return Vec::new() };
        let mut common = of(first);
        for node in nodes {
            let also = of(node);
            common.retain(|offer| also.contains(offer));
        }
        let own = self.own(*first);
        let offers = common.into_iter().map(|offer| &self.problem.offers[offer]);
        let mut offers: Vec<&Offer> = offers
            .filter(|offer| offer.pool == self.key.pool && self.has_devices(offer) == self.has_devices(own))
            .collect();
        offers.sort_by(|one, other| {
            (one.price, &one.instance_type, &one.zone).cmp(&(other.price, &other.instance_type, &other.zone))
        });
        offers
    }

    /// Whether a type can be had on demand and holds every pod of every node there as on spot: labels differ, and domains may.
    fn on_demand(&self, name: &str, zone: &str) -> bool {
        let offer = self.problem.offers.iter().find(|offer| {
            offer.pool == self.key.pool
                && offer.zone.as_deref() == Some(zone)
                && *offer.instance_type == *name
                && offer.capacity_type == CapacityType::OnDemand
        });
        let Some(offer) = offer else { return false };
        let holds = |node: &usize| {
            let own = self.own(*node);
            let pods = self.claimants.held[*node].iter();
            let mut classes = pods.filter_map(|pod| self.claimants.waiting[*pod].ladder.last());
            classes.all(|class| {
                let same = |label: &Arc<str>| own.node.labels.get(label) == offer.node.labels.get(label);
                fit::accepts(&class.shape, &offer.node).is_ok() && class.rules.iter().all(|rule| keys(rule).all(same))
            })
        };
        self.nodes.iter().all(holds)
    }
}

/// Labels by which a rule counts.
fn keys(rule: &Rule) -> impl Iterator<Item = &Arc<str>> {
    let (one, terms) = match rule {
        Rule::Spread(spread) => (Some(&spread.key), [].as_slice()),
        Rule::AntiAffinity(term) => (Some(&term.key), [].as_slice()),
        Rule::Affinity(terms) => (None, terms.as_slice()),
    };
    one.into_iter().chain(terms.iter().map(|term| &term.key))
}
