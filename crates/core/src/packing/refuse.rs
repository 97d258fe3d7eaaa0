//! Why a class finds no new node, pool by pool: the obstacle of the offer that comes nearest.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::fit::{self, Misfit};
use crate::model::names::ResourceName;
use crate::model::node::Usage;
use crate::model::pod::{Operator, Requirement, SelectorTerm, Toleration};
use crate::model::taint::Taint;

use super::check::number_of_class;
use super::compile::{HOSTNAME, accepts};
use super::problem::{Class, Offer, Place, Plan, Problem, Rule};
use super::state::amount;
use super::tally::{Constraint, Tally};

/// Parts in which a shortage is compared with what is asked for.
const PARTS: i128 = 1_000_000;

/// What keeps a class from every offer of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Not even an empty node has so much: the resource, and what is short on the one that lacks least.
    Insufficient(ResourceName, i64),
    /// The same, of a machine that would hold it without DaemonSets.
    Overhead(ResourceName, i64),
    /// Fewer distinct values of a label are left than the pool asks for.
    MinValues(Arc<str>),
    /// A limit of the pool, or [`CEILING`](super::CEILING): its name, and how much is short.
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

impl Obstacle {
    /// How far an offer comes that has it: a later one is nearer to a place.
    fn step(&self) -> u8 {
        match self {
            Self::NothingOffered => 0,
            Self::Taint(_) => 1,
            Self::UndefinedLabel(_) => 2,
            Self::Selector => 3,
            Self::Volume => 4,
            Self::Port => 5,
            Self::Insufficient(..) | Self::Overhead(..) => 6,
            Self::MinValues(_) => 7,
            Self::Spread => 8,
            Self::Affinity => 9,
            Self::AntiAffinity => 10,
            Self::LimitReached(..) => 11,
            Self::NoReservation => 12,
            Self::KeptOff => 13,
        }
    }

    /// Whether it says that no node which is offered would take the class, whatever else there is.
    #[must_use]
    pub fn is_of_every_node(&self) -> bool {
        match self {
            Self::NothingOffered
            | Self::Taint(_)
            | Self::UndefinedLabel(_)
            | Self::Selector
            | Self::Volume
            | Self::Port
            | Self::Insufficient(..)
            | Self::Overhead(..) => true,
            Self::MinValues(_)
            | Self::LimitReached(..)
            | Self::NoReservation
            | Self::Spread
            | Self::Affinity
            | Self::AntiAffinity
            | Self::KeptOff => false,
        }
    }
}

/// What is short: of how many names, and how much of what is asked for or left, in all.
type Shortage = (usize, i128);

/// Why classes find no new node. What topology constraints count is counted once, for whoever comes so far.
pub struct Obstacles<'p> {
    problem: &'p Problem,
    plan: &'p Plan,
    tally: OnceCell<Tally<'p>>,
    /// Classes of pods without a place.
    refused: OnceCell<BTreeSet<usize>>,
}

impl std::fmt::Debug for Obstacles<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Obstacles").finish_non_exhaustive()
    }
}

impl<'p> Obstacles<'p> {
    /// Those that a plan leaves.
    #[must_use]
    pub fn new(problem: &'p Problem, plan: &'p Plan) -> Self {
        Self { problem, plan, tally: OnceCell::new(), refused: OnceCell::new() }
    }

    /// The obstacles of a class, pool by pool: index of the pool, the instance type that comes nearest, what stops it there. Behind a
    /// taint that is not tolerated the pool is looked at as if it were, and of limits all that are reached are named: only all of it
    /// together helps. Where a topology constraint would be in the way with any limit, an offer is stopped by that instead.
    #[must_use]
    pub fn of(&self, class: usize) -> Vec<(usize, Option<Arc<str>>, Obstacle)> {
        let Some(known) = self.problem.classes.get(class) else { return Vec::new() };
        // On a new node it is the first that brings its volumes.
        let alone = Class { shape: known.beside(None).into_owned(), ..known.clone() };
        let of = |pool: usize| {
            let (name, found) = self.of_pool((class, &alone), pool);
            found.into_iter().map(move |obstacle| (pool, name.clone(), obstacle))
        };
        (0..self.problem.pools.len()).flat_map(of).collect()
    }

    /// The obstacles of one pool, and the instance type that comes nearest.
    fn of_pool(&self, (number, class): (usize, &Class), pool: usize) -> (Option<Arc<str>>, Vec<Obstacle>) {
        let (mut class, mut found) = (Cow::Borrowed(class), Vec::new());
        loop {
            let Some((offer, obstacle)) = self.nearest((number, &class), pool, found.is_empty()) else {
                return (None, vec![Obstacle::NothingOffered]);
            };
            let taint = fit::untolerated(&class.shape, &offer.node);
            match (obstacle, taint) {
                (Some(Obstacle::Taint(text)), Some(taint)) => {
                    let Taint { key, value, effect } = taint.clone();
                    let toleration = Toleration { key, exists: false, value, effect: Some(effect) };
                    class.to_mut().shape.tolerations.push(toleration);
                    found.push(Obstacle::Taint(text));
                    continue;
                }
                (Some(Obstacle::LimitReached(..)), _) => {
                    let limits = reached(self.problem, self.plan, offer).into_iter();
                    found.extend(limits.map(|(name, short, _)| Obstacle::LimitReached(name, short)));
                }
                (obstacle, _) => found.extend(obstacle),
            }
            return (Some(Arc::clone(&offer.instance_type)), found);
        }
    }

    /// The offer of a pool that comes nearest, and what stops it; `None` if the pool offers nothing. `first`: something has to be in
    /// the way, since the class has no place; else nothing may be.
    fn nearest(
        &self,
        (number, class): (usize, &Class),
        pool: usize,
        first: bool,
    ) -> Option<(&'p Offer, Option<Obstacle>)> {
        let problem = self.problem;
        let offers = problem.offers.iter().enumerate().filter(|(_, offer)| offer.pool == pool);
        let lacking = lacking_values(problem, class, pool);
        let obstacle = |(index, offer): (usize, &'p Offer)| {
            let found = self.obstacle((number, class), (index, offer), lacking.get(&alternatives_of(class, offer)));
            let unknown = || self.constraint(number, index).unwrap_or_else(|| unknown(problem, class, offer));
            let found = found.or_else(|| first.then(|| (unknown(), (0, 0))));
            let (obstacle, short) = found.map_or((None, (0, 0)), |(obstacle, short)| (Some(obstacle), short));
            // The one with the least shortage, of equals the first by name.
            let step = obstacle.as_ref().map_or(u8::MAX, Obstacle::step);
            ((step, Reverse(short), Reverse(Arc::clone(&offer.instance_type))), (offer, obstacle))
        };
        offers.map(obstacle).max_by(|(one, _), (other, _)| one.cmp(other)).map(|(_, nearest)| nearest)
    }

    /// The topology constraint that keeps a class from one more node of an offer.
    fn constraint(&self, class: usize, offer: usize) -> Option<Obstacle> {
        match self.tally().refuses_new(class, offer)? {
            Constraint::Spread => Some(Obstacle::Spread),
            // Whom it has to be near to may come together with it.
            Constraint::Affinity if self.awaits_others(class) => None,
            Constraint::Affinity => Some(Obstacle::Affinity),
            Constraint::AntiAffinity => Some(Obstacle::AntiAffinity),
        }
    }

    /// Whether a pod that a class has to be near to has no place either.
    fn awaits_others(&self, class: usize) -> bool {
        let Problem { classes, pods, kinds, .. } = self.problem;
        let refused = self.refused.get_or_init(|| {
            let last = |pod: usize| kinds[pods[pod]].last().copied();
            self.plan.refused().filter_map(last).collect()
        });
        classes[class].rules.iter().any(|rule| match rule {
            Rule::Affinity(terms) => {
                let others = refused.iter().filter(|other| **other != class).map(|other| &classes[*other]);
                others.into_iter().any(|other| terms.iter().all(|term| term.matches(&other.namespace, &other.labels)))
            }
            Rule::Spread(_) | Rule::AntiAffinity(_) => false,
        })
    }

    /// Everybody who has a place, as the constraints count them.
    fn tally(&self) -> &Tally<'p> {
        self.tally.get_or_init(|| {
            let mut tally = Tally::new(self.problem, self.plan);
            for (pod, place) in self.plan.places.iter().enumerate() {
                let node = match place {
                    Place::Existing(node) => *node,
                    Place::New(node) => self.problem.nodes.len() + node,
                    Place::None => continue,
                };
                tally.add(number_of_class(self.problem, self.plan, pod), node);
            }
            tally
        })
    }

    fn obstacle(
        &self,
        (number, class): (usize, &Class),
        (index, offer): (usize, &Offer),
        lacking_values: Option<&Arc<str>>,
    ) -> Option<(Obstacle, Shortage)> {
        let nothing = (0, 0);
        let taken = |name: &Arc<str>| {
            let nodes = self.plan.nodes.iter().map(|node| &self.problem.offers[node.offer]);
            nodes.filter(|other| other.reservation.as_ref() == Some(name)).count()
        };
        if !accepts(class, &offer.node) {
            let refused = match fit::accepts(&class.shape, &offer.node) {
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
            return Some((refused, nothing));
        }
        if !fit::ports_free(&class.shape.ports, &offer.overhead.ports) {
            return Some((Obstacle::Port, nothing));
        }
        let lacks = fit::insufficient(&class.shape, &offer.node, &offer.overhead).into_iter().map(|resource| {
            let has = fit::free_of(&offer.node.allocatable, &offer.overhead.requested, resource.as_str());
            let asks = class.shape.requests.get(resource.as_str());
            (resource, asks.saturating_sub(has), asks)
        });
        if let Some((resource, short, shortage)) = shortage(lacks) {
            let alone = fit::insufficient(&class.shape, &offer.node, &Usage::default()).is_empty();
            let of = if alone { Obstacle::Overhead } else { Obstacle::Insufficient };
            return Some((of(resource, short), shortage));
        }
        if class.is_kept_off(offer) {
            return Some((Obstacle::KeptOff, nothing));
        }
        if let Some(key) = lacking_values {
            return Some((Obstacle::MinValues(Arc::clone(key)), nothing));
        }
        let limit = shortage(reached(self.problem, self.plan, offer).into_iter());
        let reservation = offer.free.zip(offer.reservation.as_ref());
        let full = reservation.is_some_and(|(free, name)| taken(name) >= free as usize);
        if limit.is_none() && !full {
            return None;
        }
        // More of it would be of no use.
        if let Some(constraint) = self.constraint(number, index) {
            return Some((constraint, nothing));
        }
        Some(match limit {
            Some((name, short, shortage)) => (Obstacle::LimitReached(name, short), shortage),
            None => (Obstacle::NoReservation, nothing),
        })
    }
}

/// Whether an empty node of an offer holds a pod of the class.
fn holds(class: &Class, offer: &Offer) -> bool {
    accepts(class, &offer.node)
        && fit::ports_free(&class.shape.ports, &offer.overhead.ports)
        && fit::insufficient(&class.shape, &offer.node, &offer.overhead).is_empty()
        && !class.is_kept_off(offer)
}

/// What alternatives of a node of an offer have in common: the variant, and the domains that the class's constraints look at.
type Alike<'p> = (u32, Vec<Option<&'p Arc<str>>>);

fn alternatives_of<'p>(class: &Class, offer: &'p Offer) -> Alike<'p> {
    let keys = class.rules.iter().flat_map(Rule::keys).filter(|key| &***key != HOSTNAME);
    (offer.variant, keys.map(|key| offer.node.labels.get(key)).collect())
}

/// The first key of the pool's `minValues` of which the offers that hold the class have too few values, by what alternatives of each
/// other have in common. No other plan changes that, so it comes before limits and constraints.
fn lacking_values<'p>(problem: &'p Problem, class: &Class, pool: usize) -> BTreeMap<Alike<'p>, Arc<str>> {
    let min_values = &problem.pools[pool].min_values;
    let mut holding: BTreeMap<Alike<'_>, Vec<&Offer>> = BTreeMap::new();
    if !min_values.is_empty() {
        for offer in problem.offers.iter().filter(|offer| offer.pool == pool && holds(class, offer)) {
            holding.entry(alternatives_of(class, offer)).or_default().push(offer);
        }
    }
    let lacking = |offers: &[&Offer]| {
        let values = |key| offers.iter().filter_map(|offer| offer.node.labels.get(key)).collect::<BTreeSet<_>>().len();
        min_values.iter().find(|(key, least)| values(key) < *least as usize).map(|(key, _)| Arc::clone(key))
    };
    holding.into_iter().filter_map(|(alike, offers)| Some((alike, lacking(&offers)?))).collect()
}

/// The limits of its pool that one more node of an offer would pass: how much is short, and how much is left.
fn reached(problem: &Problem, plan: &Plan, offer: &Offer) -> Vec<(ResourceName, i64, i64)> {
    let used = |name: &str| -> i64 {
        let nodes = plan.nodes.iter().map(|node| &problem.offers[node.offer]).filter(|other| other.pool == offer.pool);
        nodes.map(|other| amount(other, name)).fold(0, i64::saturating_add)
    };
    let left = problem.pools[offer.pool].left.iter().filter(|(name, _)| amount(offer, name.as_str()) > 0);
    let short = left.filter_map(|(name, left)| {
        let short = used(name.as_str()).saturating_add(amount(offer, name.as_str())).saturating_sub(*left);
        (short > 0).then(|| (name.clone(), short, *left))
    });
    short.collect()
}

/// Where nothing that the pod asks for is in the way, it is what its node would have to leave.
fn unknown(problem: &Problem, class: &Class, offer: &Offer) -> Obstacle {
    let kind = |rule: &Rule| match rule {
        Rule::Spread(_) => Obstacle::Spread,
        Rule::Affinity(_) => Obstacle::Affinity,
        Rule::AntiAffinity(_) => Obstacle::AntiAffinity,
    };
    let of_rules = class.rules.iter().map(kind).max_by_key(Obstacle::step);
    let of_pool = || problem.pools[offer.pool].min_values.first().map(|(key, _)| Obstacle::MinValues(Arc::clone(key)));
    let of_offer = || offer.free.map(|_| Obstacle::NoReservation);
    of_rules.or_else(of_pool).or_else(of_offer).unwrap_or(Obstacle::AntiAffinity)
}

/// The first of what is short, and how much of everything is, each measured by what is asked for or left of it.
fn shortage(short: impl Iterator<Item = (ResourceName, i64, i64)>) -> Option<(ResourceName, i64, Shortage)> {
    let (mut first, mut sum) = (None, (0, 0));
    for (name, short, of) in short {
        sum = (sum.0 + 1, sum.1 + i128::from(short) * PARTS / i128::from(of.max(1)));
        first.get_or_insert((name, short));
    }
    first.map(|(name, short)| (name, short, sum))
}

/// A label that the class asks for and no node of the offer carries: by selector, or in every term of its affinity.
fn undefined(class: &Class, offer: &Offer) -> Option<Arc<str>> {
    let lacks = |key: &&Arc<str>| !offer.node.labels.contains_key(*key);
    let selector = &class.shape.node_selector;
    if let Some(key) = selector.keys().find(lacks) {
        return Some(Arc::clone(key));
    }
    if selector.iter().any(|(key, value)| offer.node.labels.get(key) != Some(value)) {
        return None;
    }
    let asks = |one: &&Requirement| match one.operator {
        Operator::In | Operator::Exists | Operator::Gt | Operator::Lt => true,
        Operator::NotIn | Operator::DoesNotExist | Operator::Unknown => false,
    };
    let of_term = |term: &SelectorTerm| term.expressions.iter().filter(asks).map(|one| &one.key).find(lacks).cloned();
    let terms: Option<Vec<Arc<str>>> = class.shape.node_affinity.as_ref()?.iter().map(of_term).collect();
    terms?.into_iter().next()
}

/// Whether a pod of the plan has no place.
impl Plan {
    /// Pods without a place.
    pub fn refused(&self) -> impl Iterator<Item = usize> {
        self.places.iter().enumerate().filter(|(_, place)| **place == Place::None).map(|(pod, _)| pod)
    }
}
