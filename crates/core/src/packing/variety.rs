//! `minValues`: which offers do in the place of another one, and what a node counts against limits for those its pool asks for.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::bits::Bits;
use super::problem::{Offer, Pool};
use super::state::{State, amount};
use crate::ec2::CapacityType;

/// The alternatives that a node needs for `minValues`.
#[derive(Clone, Debug, Default)]
pub(super) struct Needed {
    pub(super) others: Vec<usize>,
    /// By how much the largest of them is above the node's own offer, per limit of the pool in their order; empty if there is
    /// none. A node counts with the largest of its alternatives.
    pub(super) more: Vec<i64>,
}

impl State<'_, '_> {
    /// Offers in `mask` that would do in the place of one of them, whatever becomes of the other nodes: of its pool, and spot
    /// only where it is no dearer than on demand.
    pub(super) fn alternatives<'m>(&'m self, at: usize, mask: &'m Bits) -> impl Iterator<Item = usize> + 'm {
        let own = self.compiled.offer(at);
        let on_demand = self.on_demand(at, mask);
        mask.iter().filter(move |other| {
            let offer = self.compiled.offer(*other);
            *other != at
                && (offer.pool, offer.variant) == (own.pool, own.variant)
                // Another reserved host is no alternative of a node.
                && offer.reservation.is_none()
                && !is_dear(offer, on_demand)
                && self.topology.is_same_domain(at, *other)
        })
    }

    /// The cheapest price on demand in `mask`, in the pool of an offer: offers are in the order of their prices.
    fn on_demand(&self, at: usize, mask: &Bits) -> Option<u64> {
        let own = self.compiled.offer(at);
        let mut of_pool = mask.iter().map(|other| self.compiled.offer(other)).filter(|other| other.pool == own.pool);
        of_pool.find(|other| other.capacity_type == CapacityType::OnDemand).map(|other| other.price)
    }

    /// The smallest alternatives in `mask` that bring the values which the pool of an offer asks for; `None` if there are not
    /// as many.
    pub(super) fn needs(&self, at: usize, mask: &Bits) -> Option<Needed> {
        let own = self.compiled.offer(at);
        let pool = &self.compiled.problem.pools[own.pool];
        let mut needed = Needed::default();
        if pool.min_values.is_empty() {
            return Some(needed);
        }
        if is_dear(own, self.on_demand(at, mask)) {
            return None;
        }
        let more = |other: &Offer| -> Vec<i64> {
            let names = pool.left.keys().map(|name| name.as_str());
            names.map(|name| (amount(other, name) - amount(own, name)).max(0)).collect()
        };
        let mut lacking = Lacking::of(pool, own);
        let mut others: Vec<(Vec<i64>, usize)> =
            self.alternatives(at, mask).map(|other| (more(self.compiled.offer(other)), other)).collect();
        others.sort_unstable();
        for (more, other) in others {
            if !lacking.is_brought_by(self.compiled.offer(other)) {
                continue;
            }
            needed.others.push(other);
            needed.more.resize(more.len(), 0);
            needed.more.iter_mut().zip(more).for_each(|(largest, more)| *largest = more.max(*largest));
        }
        lacking.is_nothing().then_some(needed)
    }

    /// Whether all offers of a pool in `mask` together lack a value that the pool asks for: then no offer needs to be looked at, of which
    /// each would be held against all others.
    pub(super) fn is_short(&self, pool: usize, mask: &Bits) -> bool {
        let asked = &self.compiled.problem.pools[pool].min_values;
        if asked.is_empty() {
            return false;
        }
        let mut lacking = Lacking { keys: asked.iter().map(Lacking::key).collect() };
        let offers = mask.iter().map(|at| self.compiled.offer(at)).filter(|offer| offer.pool == pool);
        offers.for_each(|offer| {
            lacking.is_brought_by(offer);
        });
        !lacking.is_nothing()
    }

    /// Whether one more node of an offer may come with alternatives in `mask`: limits and reservations allow it, and enough
    /// distinct values are left. `now` is the node it comes in the place of.
    pub(super) fn admits(&self, at: usize, mask: &Bits, now: Option<usize>) -> bool {
        self.may(at, now)
            && self
                .needs(at, mask)
                .is_some_and(|needed| needed.more.is_empty() || self.capacity(at, &needed.more, now, 1) > 0)
    }
}

/// Whether an offer is spot that is dearer than on demand.
fn is_dear(offer: &Offer, on_demand: Option<u64>) -> bool {
    offer.capacity_type == CapacityType::Spot && on_demand.is_some_and(|price| offer.price > price)
}

/// Values of the keys of `minValues` that a node and its alternatives do not have yet.
struct Lacking<'p> {
    keys: Vec<(&'p str, usize, BTreeSet<&'p str>)>,
}

impl<'p> Lacking<'p> {
    fn of(pool: &'p Pool, own: &'p Offer) -> Self {
        let value = |key: &str| own.node.labels.get(key).map(|value| &**value);
        let key = |asked: &'p (Arc<str>, u32)| {
            let (key, wanted, _) = Self::key(asked);
            (key, wanted, value(key).into_iter().collect())
        };
        Self { keys: pool.min_values.iter().map(key).collect() }
    }

    fn key((key, wanted): &'p (Arc<str>, u32)) -> (&'p str, usize, BTreeSet<&'p str>) {
        (key, usize::try_from(*wanted).unwrap_or(usize::MAX), BTreeSet::new())
    }

    /// Whether an offer brings a value that is still asked for; it counts from then on.
    fn is_brought_by(&mut self, offer: &'p Offer) -> bool {
        let mut brings = false;
        for (key, wanted, values) in &mut self.keys {
            let value = offer.node.labels.get(*key).map(|value| &**value);
            if let Some(value) = value.filter(|_| values.len() < *wanted) {
                brings |= values.insert(value);
            }
        }
        brings
    }

    fn is_nothing(&self) -> bool {
        self.keys.iter().all(|(_, wanted, values)| values.len() >= *wanted)
    }
}
