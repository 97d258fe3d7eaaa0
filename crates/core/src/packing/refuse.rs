//! Why a class finds no new node, pool by pool: the obstacle of the offer that comes furthest.

use std::sync::Arc;

use crate::fit::{self, Misfit};
use crate::model::names::ResourceName;

use super::compile::accepts;
use super::problem::{Class, Offer, Place, Plan, Problem, Rule};
use super::state::amount;

/// What keeps a class from every offer of a pool. A later one is closer to a place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// The pool offers nothing.
    NothingOffered,
    /// A taint that is not tolerated.
    Taint(Arc<str>),
    /// A label that no node of the pool would carry.
    UndefinedLabel(Arc<str>),
    /// Node selector or affinity.
    Selector,
    /// A volume that is not reached from any zone of the pool.
    Volume,
    /// A host port that DaemonSets take.
    Port,
    /// Not even an empty node has so much: the resource, and what is short on the largest.
    Insufficient(ResourceName, i64),
    /// Fewer distinct values of a label are left than the pool asks for.
    MinValues(Arc<str>),
    /// A limit of the pool: its name, and how much is short.
    LimitReached(ResourceName, i64),
    /// The reservation has no free host.
    NoReservation,
    /// Topology spread.
    Spread,
    /// Pod affinity.
    Affinity,
    /// Pod anti-affinity.
    AntiAffinity,
    /// Nothing is launched there for this class now, although it would hold it.
    KeptOff,
}

/// The obstacles of a class: index of the pool, the instance type that comes furthest, what stops it there.
#[must_use]
pub fn obstacles(problem: &Problem, plan: &Plan, class: usize) -> Vec<(usize, Option<Arc<str>>, Obstacle)> {
    let Some(class) = problem.classes.get(class) else { return Vec::new() };
    let furthest = |pool: usize| {
        let offers = problem.offers.iter().filter(|offer| offer.pool == pool);
        let obstacle = |offer: &Offer| (obstacle(problem, plan, class, offer), Arc::clone(&offer.instance_type));
        let best = offers.map(obstacle).max_by(|one, other| one.0.cmp(&other.0).then_with(|| other.1.cmp(&one.1)));
        best.map_or((pool, None, Obstacle::NothingOffered), |(obstacle, name)| (pool, Some(name), obstacle))
    };
    (0..problem.pools.len()).map(furthest).collect()
}

fn obstacle(problem: &Problem, plan: &Plan, class: &Class, offer: &Offer) -> Obstacle {
    if !accepts(class, &offer.node) {
        return match fit::accepts(&class.shape, &offer.node) {
            Err(Misfit::Selector) => undefined(class, offer).map_or(Obstacle::Selector, Obstacle::UndefinedLabel),
            Err(Misfit::Volume) => Obstacle::Volume,
            Err(Misfit::Taint { taint }) => Obstacle::Taint(taint),
            Ok(())
            | Err(
                Misfit::Unschedulable
                | Misfit::NotReady
                | Misfit::Held
                | Misfit::Port
                | Misfit::Insufficient { .. }
                | Misfit::Occupied
                | Misfit::Shared,
            ) => Obstacle::Taint("PreferNoSchedule".into()),
        };
    }
    if !fit::ports_free(&class.shape.ports, &offer.overhead.ports) {
        return Obstacle::Port;
    }
    if let Some(resource) = fit::insufficient(&class.shape, &offer.node, &offer.overhead).into_iter().next() {
        let has = fit::free_of(&offer.node.allocatable, &offer.overhead.requested, resource.as_str());
        let short = class.shape.requests.get(resource.as_str()).saturating_sub(has);
        return Obstacle::Insufficient(resource, short);
    }
    if class.is_kept_off(offer) {
        return Obstacle::KeptOff;
    }
    let pool = &problem.pools[offer.pool];
    let used = |name: &str| -> i64 {
        let nodes = plan.nodes.iter().map(|node| &problem.offers[node.offer]).filter(|other| other.pool == offer.pool);
        nodes.map(|other| amount(other, name)).sum()
    };
    for (name, left) in &pool.left {
        let short = used(name.as_str()).saturating_add(amount(offer, name.as_str())).saturating_sub(*left);
        if short > 0 && amount(offer, name.as_str()) > 0 {
            return Obstacle::LimitReached(name.clone(), short);
        }
    }
    if let Some((key, _)) = pool.min_values.first().filter(|_| class.rules.is_empty()) {
        return Obstacle::MinValues(Arc::clone(key));
    }
    if offer.free.is_some() && class.rules.is_empty() {
        return Obstacle::NoReservation;
    }
    let kind = |rule: &Rule| match rule {
        Rule::Spread(_) => Obstacle::Spread,
        Rule::Affinity(_) => Obstacle::Affinity,
        Rule::AntiAffinity(_) => Obstacle::AntiAffinity,
    };
    class.rules.iter().map(kind).max().unwrap_or(Obstacle::AntiAffinity)
}

/// A label that the class asks for by selector and no node of the offer carries.
fn undefined(class: &Class, offer: &Offer) -> Option<Arc<str>> {
    class.shape.node_selector.keys().find(|key| !offer.node.labels.contains_key(*key)).cloned()
}

/// Whether a pod of the plan has no place.
impl Plan {
    /// Pods without a place.
    pub fn refused(&self) -> impl Iterator<Item = usize> {
        self.places.iter().enumerate().filter(|(_, place)| **place == Place::None).map(|(pod, _)| pod)
    }
}
