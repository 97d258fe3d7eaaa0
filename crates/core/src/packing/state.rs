//! A plan as it grows: what stands on each node, which offers each new node may still become, what limits have left.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::bits::Bits;
use super::bound::Prices;
use super::columns::Solved;
use super::compile::Compiled;
use super::problem::{CEILING, Work};
use super::topology::{Counts, Kind, Spot, Topology};
use crate::model::node::Node;

/// The name of the limit that counts nodes.
const NODES: &str = "nodes";

/// One node of the plan: those that exist first, in the order of the problem, then new ones.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// `Some`: a node that exists.
    pub(super) existing: Option<usize>,
    /// What the plan puts there; on a node that exists without what stands there.
    pub(super) load: Vec<i64>,
    /// Class and number of pods that the plan puts there.
    pub(super) counts: Vec<(usize, u32)>,
    /// Offers a new node may still become.
    pub(super) mask: Bits,
    /// The cheapest of them that limits allow.
    pub(super) offer: usize,
    /// What it counts against the limits of its pool beyond that offer: it has to leave larger alternatives.
    more: Vec<i64>,
}

/// What a new node may become with one more pod.
#[derive(Clone, Debug)]
enum Becomes {
    /// One of these.
    Of(Bits),
    /// Whatever holds one more pod of what it may become now, in a cell.
    In(Option<usize>),
}

/// What pods take of a node.
type Load = SmallVec<[i64; 8]>;

/// How a node would take one more pod.
#[derive(Clone, Debug)]
pub(super) struct Fitted {
    pub(super) slot: usize,
    becomes: Becomes,
    pub(super) offer: usize,
    /// By how much its price rises.
    pub(super) rise: u64,
}

/// The plan as it is.
#[derive(Clone, Debug)]
pub(super) struct State<'c, 'p> {
    pub(super) compiled: &'c Compiled<'p>,
    pub(super) topology: &'c Topology<'p>,
    pub(super) slots: Vec<Slot>,
    counts: Counts,
    /// Per pool: new nodes and their hardware, by the names of its limits.
    taken: Vec<BTreeMap<Arc<str>, i64>>,
    /// Hosts taken of each reservation.
    reserved: BTreeMap<Arc<str>, u32>,
    /// Offers that may be used: the pools of the weight that is tried now.
    pub(super) tier: Bits,
    /// How many pods that are spread over hosts every host is taken to hold.
    pub(super) least: u32,
    /// The first prices that new nodes were chosen by.
    pub(super) priced: Option<Arc<Priced>>,
    /// The first programme of patterns that new nodes were chosen by.
    pub(super) solved: Option<Arc<Solved>>,
    pub(super) work: Work,
}

/// Prices, and what they are for.
#[derive(Debug)]
pub(super) struct Priced {
    pub(super) tier: Bits,
    /// Classes with the number of their pods.
    pub(super) wanted: Vec<(usize, u32)>,
    pub(super) prices: Prices,
}

impl<'c, 'p> State<'c, 'p> {
    pub(super) fn new(compiled: &'c Compiled<'p>, topology: &'c Topology<'p>) -> Self {
        let problem = compiled.problem;
        let slot = |index: usize| Slot {
            existing: Some(index),
            load: vec![0; compiled.resources.len()],
            counts: Vec::new(),
            mask: Bits::default(),
            offer: 0,
            more: Vec::new(),
        };
        Self {
            compiled,
            topology,
            slots: (0..problem.nodes.len()).map(slot).collect(),
            counts: topology.counts(problem),
            taken: vec![BTreeMap::new(); problem.pools.len()],
            reserved: BTreeMap::new(),
            tier: Bits::of(compiled.offer_of.len(), |_| true),
            least: 0,
            priced: None,
            solved: None,
            work: Work::default(),
        }
    }

    /// Whether the node takes one more pod of the class now.
    pub(super) fn fits(&mut self, at: usize, class: usize) -> Option<Fitted> {
        self.work.nodes += 1;
        let (compiled, slot) = (self.compiled, &self.slots[at]);
        let need = compiled.need(class, &slot.counts, slot.existing);
        if let Some(node) = slot.existing {
            let enough = need
                .iter()
                .zip(&slot.load)
                .zip(&compiled.free[node])
                .all(|((need, load), free)| *need <= 0 || *need <= free.saturating_sub(*load));
            let spot = Spot { slot: at, kind: Kind::Existing(node) };
            let taken = compiled.open[class].contains(node)
                && enough
                && compiled.together_above(class, &slot.counts, Some(node), self.least)
                && self.topology.allows(&self.counts, class, spot);
            return taken.then_some(Fitted { slot: at, becomes: Becomes::In(None), offer: 0, rise: 0 });
        }
        if !slot.mask.meets(&compiled.takes[class]) || !compiled.together_above(class, &slot.counts, None, self.least) {
            return None;
        }
        let tied = |(other, _): &(usize, u32)| self.topology.links(*other);
        if self.topology.links(class) && self.topology.is_settled(class) && slot.counts.iter().any(tied) {
            // It stays in its cell.
            let spot = Spot { slot: at, kind: Kind::Offer(slot.offer) };
            if !self.topology.allows(&self.counts, class, spot) {
                return None;
            }
        }
        let mut load = Load::from_slice(&slot.load);
        load.iter_mut().zip(&*need).for_each(|(load, need)| *load = load.saturating_add(*need));
        self.first(class, &slot.mask, None, &load, Some(at))
    }

    /// What a new node with such a load, a pod of the class among it, may become, of those in `mask` and in a cell.
    fn grown(&self, class: usize, mask: &Bits, cell: Option<usize>, load: &[i64]) -> Bits {
        let mut mask = mask.clone();
        mask.intersect(&self.compiled.takes[class]);
        self.compiled.holding(&mut mask, load);
        if let Some(cell) = cell {
            mask.intersect(&self.topology.cells[cell]);
        }
        mask
    }

    /// The cheapest of the offers in `mask`, and in a cell, for a node with such a load, the pod of the class among it. `now` is the
    /// node that grows; a new one where there is none.
    fn first(
        &self,
        class: usize,
        mask: &Bits,
        cell: Option<usize>,
        load: &[i64],
        now: Option<usize>,
    ) -> Option<Fitted> {
        let (compiled, topology) = (self.compiled, self.topology);
        if compiled.varied || !topology.is_settled(class) {
            return self.best(class, &self.grown(class, mask, cell, load), now);
        }
        // Offers are looked at in the order of their prices until one does. What else the node may become is only asked of the one
        // that is chosen.
        let also = std::iter::once(&compiled.takes[class]).chain(cell.map(|cell| &topology.cells[cell]));
        let offer = self.cheapest_with(mask, also, load, now)?;
        if !topology.links(class) {
            return Some(self.fitted(now, offer, Becomes::In(None)));
        }
        let (slot, found) = (now.unwrap_or(self.slots.len()), topology.cell_of[offer]);
        if topology.allows(&self.counts, class, Spot { slot, kind: Kind::Offer(offer) }) {
            return Some(self.fitted(now, offer, Becomes::In(Some(found))));
        }
        // Another cell may do.
        let mut others = self.grown(class, mask, cell, load);
        others.subtract(&topology.cells[found]);
        self.best(class, &others, now)
    }

    /// One more pod on the node `now`, or on a new one, which is an offer then.
    fn fitted(&self, now: Option<usize>, offer: usize, becomes: Becomes) -> Fitted {
        let price = |offer: usize| self.compiled.offer(offer).price;
        let before = now.map_or(0, |now| price(self.slots[now].offer));
        let slot = now.unwrap_or(self.slots.len());
        Fitted { slot, becomes, offer, rise: price(offer).saturating_sub(before) }
    }

    /// The same for a new node that holds pods, and only if it does.
    pub(super) fn grows(&mut self, at: usize, class: usize) -> Option<Fitted> {
        if self.slots[at].counts.is_empty() { None } else { self.fits(at, class) }
    }

    /// Cells in which counters allow a pod of the class now, those with the fewest pods it counts with first.
    pub(super) fn cells_for(&self, class: usize) -> Vec<usize> {
        let mut cells: Vec<(u32, usize)> = Vec::new();
        for (cell, offers) in self.topology.cells.iter().enumerate() {
            if !offers.meets(&self.compiled.takes[class]) {
                continue;
            }
            let Some(offer) = offers.iter().next() else { continue };
            let spot = Spot { slot: usize::MAX, kind: Kind::Offer(offer) };
            if self.topology.allows(&self.counts, class, spot) {
                cells.push((self.topology.pressure(&self.counts, class, spot), cell));
            }
        }
        cells.sort_unstable();
        cells.into_iter().map(|(_, cell)| cell).collect()
    }

    /// How a new node of the cell for one pod of the class would come cheapest.
    pub(super) fn opened_in(&mut self, class: usize, cell: usize) -> Option<Fitted> {
        self.work.nodes += 1;
        if !self.compiled.together_above(class, &[], None, self.least) {
            return None;
        }
        let need = self.compiled.need(class, &[], None);
        self.first(class, &self.tier, Some(cell), &need, None)
    }

    /// How a new node for one pod of the class would come as an offer, and as nothing else.
    pub(super) fn opened_as(&mut self, class: usize, offer: usize) -> Option<Fitted> {
        self.work.nodes += 1;
        let mut mask = Bits::none(self.compiled.offer_of.len());
        mask.insert(offer);
        let spot = Spot { slot: self.slots.len(), kind: Kind::Offer(offer) };
        let taken = self.may(offer, None)
            && self.compiled.together_above(class, &[], None, self.least)
            && self.topology.allows(&self.counts, class, spot);
        let rise = self.compiled.offer(offer).price;
        taken.then_some(Fitted { slot: spot.slot, becomes: Becomes::Of(mask), offer, rise })
    }

    /// Offers of the tier that hold one pod of the class.
    pub(super) fn holding(&self, class: usize) -> Bits {
        let mut mask = self.tier.clone();
        mask.intersect(&self.compiled.takes[class]);
        self.compiled.holding(&mut mask, &self.compiled.need(class, &[], None));
        mask
    }

    /// Makes a new node the cheapest that its pods may stand on without moving to another domain; `false` if it cannot be
    /// what it is.
    pub(super) fn refit(&mut self, at: usize) -> bool {
        let mut mask = self.taking(at);
        self.compiled.holding(&mut mask, &self.slots[at].load);
        let Some(offer) = self.cheapest(&mask, Some(at)) else { return false };
        self.turn_into(at, offer, mask);
        true
    }

    /// Offers of the tier that take the pods of a new node, large enough or not, without a change of its domain.
    pub(super) fn taking(&self, at: usize) -> Bits {
        let slot = &self.slots[at];
        let mut mask = self.tier.clone();
        slot.counts.iter().for_each(|(class, _)| mask.intersect(&self.compiled.takes[*class]));
        if slot.counts.iter().any(|(class, _)| self.topology.links(*class)) {
            if let Some(cell) = self.topology.cell_of.get(slot.offer).and_then(|cell| self.topology.cells.get(*cell)) {
                mask.intersect(cell);
            }
            for (class, _) in &slot.counts {
                self.topology.keep_alike(*class, slot.offer, &mut mask);
            }
        }
        mask
    }

    /// Makes a new node what it was. Counters are not touched: what left it and what came stays in their domains.
    pub(super) fn restore(&mut self, at: usize, slot: Slot) {
        if !self.slots[at].counts.is_empty() {
            self.charge(at, -1);
        }
        self.slots[at] = slot;
        self.charge(at, 1);
    }

    /// Pods that stand where they would be refused if they came in this order, those refused again and again until nobody
    /// moves.
    pub(super) fn refused_in_order(&self, pods: &[(usize, usize)]) -> Vec<usize> {
        let mut counts = self.topology.without_pods(self.compiled.problem, &self.counts);
        let mut waiting: Vec<usize> = (0..pods.len()).collect();
        loop {
            let before = waiting.len();
            waiting.retain(|pod| {
                let (class, at) = pods[*pod];
                let slot = &self.slots[at];
                let spot = Spot { slot: at, kind: slot.existing.map_or(Kind::Offer(slot.offer), Kind::Existing) };
                let comes = self.topology.allows(&counts, class, spot);
                if comes {
                    self.topology.count(&mut counts, class, spot, true);
                }
                !comes
            });
            if waiting.is_empty() || waiting.len() == before {
                return waiting;
            }
        }
    }

    /// The number of each node among those that count as hosts, which nodes that were given up do not, and the new ones of them.
    pub(super) fn hosts(&self) -> (Vec<usize>, Vec<&'p Node>) {
        let first = self.compiled.problem.nodes.len();
        let mut number: Vec<usize> = (0..first).collect();
        let mut new: Vec<&Node> = Vec::new();
        for slot in self.slots.iter().skip(first) {
            if slot.counts.is_empty() {
                number.push(usize::MAX);
            } else {
                number.push(first + new.len());
                new.push(&self.compiled.offer(slot.offer).node);
            }
        }
        (number, new)
    }

    /// The weight of the pool of an offer.
    pub(super) fn weight(&self, offer: usize) -> u32 {
        self.compiled.problem.pools[self.compiled.offer(offer).pool].weight
    }

    /// Whether a new node of `tier` could be launched for a pod of the class that stands on a node already.
    pub(super) fn could_open(&mut self, at: usize, class: usize, tier: &Bits) -> bool {
        let slot = &self.slots[at];
        let spot = Spot { slot: at, kind: slot.existing.map_or(Kind::Offer(slot.offer), Kind::Existing) };
        let before = std::mem::replace(&mut self.tier, tier.clone());
        self.topology.count(&mut self.counts, class, spot, false);
        let opened = self.opened(class).is_some();
        self.topology.count(&mut self.counts, class, spot, true);
        self.tier = before;
        opened
    }

    /// Takes one pod out again.
    pub(super) fn remove(&mut self, at: usize, class: usize) {
        let slot = &mut self.slots[at];
        if let Some((_, count)) = slot.counts.iter_mut().find(|(other, _)| *other == class) {
            *count -= 1;
        }
        slot.counts.retain(|(_, count)| *count > 0);
        for (sum, need) in slot.load.iter_mut().zip(&*self.compiled.need(class, &slot.counts, slot.existing)) {
            *sum = sum.saturating_sub(*need);
        }
        let kind = slot.existing.map_or(Kind::Offer(slot.offer), Kind::Existing);
        self.topology.count(&mut self.counts, class, Spot { slot: at, kind }, false);
        let slot = &mut self.slots[at];
        if slot.existing.is_none() && slot.counts.is_empty() {
            slot.mask = Bits::none(self.compiled.offer_of.len());
            self.charge(at, -1);
        }
    }

    /// How a new node for one pod of the class would come cheapest.
    pub(super) fn opened(&mut self, class: usize) -> Option<Fitted> {
        self.work.nodes += 1;
        if !self.compiled.together_above(class, &[], None, self.least) {
            return None;
        }
        let need = self.compiled.need(class, &[], None);
        self.first(class, &self.tier, None, &need, None)
    }

    /// The cheapest way among `mask`, cell by cell where the class has anything to do with a counter.
    fn best(&self, class: usize, mask: &Bits, now: Option<usize>) -> Option<Fitted> {
        let fitted = |mask: Bits| Some(self.fitted(now, self.cheapest(&mask, now)?, Becomes::Of(mask)));
        if !self.topology.links(class) {
            return fitted(mask.clone());
        }
        let mut best: Option<Fitted> = None;
        for cell in self.topology.cells.iter().filter(|cell| cell.meets(mask)) {
            let mut inside = mask.clone();
            inside.intersect(cell);
            self.topology.settle(class, &mut inside);
            let Some(found) = fitted(inside) else { continue };
            let spot = Spot { slot: found.slot, kind: Kind::Offer(found.offer) };
            let better = best.as_ref().is_none_or(|best| found.rise < best.rise);
            if better && self.topology.allows(&self.counts, class, spot) {
                best = Some(found);
            }
        }
        best
    }

    /// The cheapest offer that limits and reservations allow, and that leaves the distinct values its pool asks for. `now`
    /// is the node whose place it takes.
    pub(super) fn cheapest(&self, mask: &Bits, now: Option<usize>) -> Option<usize> {
        let mut short = BTreeMap::new();
        mask.iter().find(|at| {
            let pool = self.compiled.offer(*at).pool;
            !*short.entry(pool).or_insert_with(|| self.is_short(pool, mask)) && self.admits(*at, mask, now)
        })
    }

    /// The cheapest offer in `mask` and in all others that holds a load and that limits and reservations allow; for problems without
    /// `minValues`.
    pub(super) fn cheapest_with<'s>(
        &'s self,
        mask: &Bits,
        also: impl IntoIterator<Item = &'s Bits>,
        load: &[i64],
        now: Option<usize>,
    ) -> Option<usize> {
        let mut sets = self.compiled.enough(load)?;
        sets.extend(also);
        mask.shared_with(&sets).find(|offer| self.may(*offer, now))
    }

    /// Whether limits and reservations allow one more node of an offer in the place of the node `now`.
    pub(super) fn may(&self, at: usize, now: Option<usize>) -> bool {
        self.capacity(at, &[], now, 1) > 0
    }

    /// How many more nodes of an offer limits and reservations allow, at most `most`, if each counts so much more.
    pub(super) fn capacity(&self, at: usize, more: &[i64], now: Option<usize>, most: u32) -> u32 {
        let offer = self.compiled.offer(at);
        let now = now.map(|now| (self.compiled.offer(self.slots[now].offer), &self.slots[now].more));
        let mut capacity = most;
        if let Some((free, name)) = offer.free.zip(offer.reservation.as_ref()) {
            let own = now.is_some_and(|(now, _)| now.reservation.as_ref() == Some(name));
            let taken = self.reserved.get(name).copied().unwrap_or(0).saturating_sub(u32::from(own));
            capacity = capacity.min(free.saturating_sub(taken));
        }
        let pool = &self.compiled.problem.pools[offer.pool];
        let same = now.filter(|(now, _)| now.pool == offer.pool);
        for (index, (name, left)) in pool.left.iter().enumerate() {
            let and = |more: &[i64]| more.get(index).copied().unwrap_or(0);
            let each = amount(offer, name.as_str()).saturating_add(and(more));
            if each <= 0 {
                continue;
            }
            let taken = self.taken[offer.pool].get(name.as_str()).copied().unwrap_or(0);
            let own = same.map_or(0, |(now, more)| amount(now, name.as_str()).saturating_add(and(more)));
            let fits = left.saturating_sub(taken).saturating_add(own).max(0) / each;
            capacity = capacity.min(u32::try_from(fits).unwrap_or(u32::MAX));
        }
        capacity
    }

    /// Puts the pod there.
    pub(super) fn put(&mut self, class: usize, fitted: Fitted) -> usize {
        let at = fitted.slot;
        if at == self.slots.len() {
            let load = vec![0; self.compiled.resources.len()];
            let (mask, offer) = (self.tier.clone(), fitted.offer);
            self.slots.push(Slot { existing: None, load, counts: Vec::new(), mask, offer, more: Vec::new() });
            self.charge(at, 1);
        }
        let slot = &self.slots[at];
        if slot.existing.is_none() {
            let mask = match fitted.becomes {
                Becomes::Of(mask) => mask,
                Becomes::In(cell) => {
                    let mut load = slot.load.clone();
                    self.compiled.load(&mut load, class, 1, &slot.counts, None);
                    self.grown(class, &slot.mask, cell, &load)
                }
            };
            self.turn_into(at, fitted.offer, mask);
        }
        let slot = &mut self.slots[at];
        add(self.compiled, slot, class, 1);
        let kind = slot.existing.map_or(Kind::Offer(slot.offer), Kind::Existing);
        self.topology.count(&mut self.counts, class, Spot { slot: at, kind }, true);
        at
    }

    /// Opens `number` new nodes with the same pods of classes that no counter concerns.
    pub(super) fn open(&mut self, offer: usize, counts: &[(usize, u32)], number: u32) {
        let load = self.compiled.load_of(counts);
        let mut mask = self.tier.clone();
        counts.iter().for_each(|(class, _)| mask.intersect(&self.compiled.takes[*class]));
        self.compiled.holding(&mut mask, &load);
        let more = self.more(offer, &mask);
        self.count_node(offer, &more, i64::from(number));
        let slot = Slot { existing: None, load, counts: counts.to_vec(), mask, offer, more };
        self.slots.extend(std::iter::repeat_n(slot, number as usize));
    }

    /// A pod on a node that exists.
    pub(super) fn stand(&mut self, at: usize, class: usize) {
        self.put(class, Fitted { slot: at, becomes: Becomes::In(None), offer: 0, rise: 0 });
    }

    /// A pod on a new node, open or not, that is this offer, or one of those in `mask`.
    pub(super) fn come(&mut self, at: usize, class: usize, offer: usize, mask: Bits) -> usize {
        self.put(class, Fitted { slot: at, becomes: Becomes::Of(mask), offer, rise: 0 })
    }

    /// A new node with these pods, of one of the offers in `mask`.
    pub(super) fn launch(&mut self, offer: usize, mask: Bits, counts: Vec<(usize, u32)>) {
        let load = self.compiled.load_of(&counts);
        let more = self.more(offer, &mask);
        self.slots.push(Slot { existing: None, load, counts, mask, offer, more });
        self.charge(self.slots.len() - 1, 1);
    }

    /// The offers a node with these pods of classes without counters may become.
    pub(super) fn becoming(&self, counts: &[(usize, u32)]) -> Bits {
        let mut mask = self.tier.clone();
        counts.iter().for_each(|(class, _)| mask.intersect(&self.compiled.takes[*class]));
        self.compiled.holding(&mut mask, &self.compiled.load_of(counts));
        mask
    }

    /// Takes a new node out again; its pods are free. It stays in the list, empty, and is dropped at the end.
    pub(super) fn close(&mut self, at: usize) -> Vec<(usize, u32)> {
        let counts = std::mem::take(&mut self.slots[at].counts);
        let slot = &mut self.slots[at];
        slot.load.fill(0);
        let kind = Kind::Offer(slot.offer);
        self.charge(at, -1);
        for (class, count) in &counts {
            for _ in 0..*count {
                let spot = Spot { slot: at, kind };
                self.topology.count(&mut self.counts, *class, spot, false);
            }
        }
        self.slots[at].mask = Bits::none(self.compiled.offer_of.len());
        counts
    }

    /// All pods of a new node go to another one, which comes as this offer from then on.
    pub(super) fn absorb(&mut self, from: usize, to: usize, (offer, mask): (usize, Bits)) {
        let given = self.close(from);
        self.turn_into(to, offer, mask);
        for (class, count) in given {
            add(self.compiled, &mut self.slots[to], class, count);
            for _ in 0..count {
                let spot = Spot { slot: to, kind: Kind::Offer(offer) };
                self.topology.count(&mut self.counts, class, spot, true);
            }
        }
    }

    /// Dollars of the new nodes.
    pub(super) fn cost(&self) -> u64 {
        self.new_nodes().map(|slot| self.compiled.offer(slot.offer).price).fold(0, u64::saturating_add)
    }

    /// New nodes that hold pods.
    pub(super) fn new_nodes(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| slot.existing.is_none() && !slot.counts.is_empty())
    }

    /// A new node comes as another offer from now on.
    fn turn_into(&mut self, at: usize, offer: usize, mask: Bits) {
        self.charge(at, -1);
        let more = self.more(offer, &mask);
        let slot = &mut self.slots[at];
        (slot.offer, slot.mask, slot.more) = (offer, mask, more);
        self.charge(at, 1);
    }

    /// What a node counts beyond its own offer.
    fn more(&self, offer: usize, mask: &Bits) -> Vec<i64> {
        self.needs(offer, mask).map(|needed| needed.more).unwrap_or_default()
    }

    /// Counts a new node, or takes it back.
    fn charge(&mut self, at: usize, number: i64) {
        let more = std::mem::take(&mut self.slots[at].more);
        self.count_node(self.slots[at].offer, &more, number);
        self.slots[at].more = more;
    }

    /// Counts nodes of an offer against limits and reservation.
    fn count_node(&mut self, at: usize, more: &[i64], number: i64) {
        self.topology.count_nodes(&mut self.counts, at, number);
        let offer = self.compiled.offer(at);
        for (index, name) in self.compiled.problem.pools[offer.pool].left.keys().enumerate() {
            let more = more.get(index).copied().unwrap_or(0);
            let each = amount(offer, name.as_str()).saturating_add(more);
            *self.taken[offer.pool].entry(Arc::from(name.as_str())).or_default() += each.saturating_mul(number);
        }
        if let Some(name) = &offer.reservation {
            let taken = self.reserved.entry(Arc::clone(name)).or_default();
            *taken = u32::try_from(i64::from(*taken) + number).unwrap_or(0);
        }
    }
}

/// Adds pods to a node.
fn add(compiled: &Compiled<'_>, slot: &mut Slot, class: usize, count: u32) {
    compiled.load(&mut slot.load, class, count, &slot.counts, slot.existing);
    match slot.counts.iter_mut().find(|(other, _)| *other == class) {
        Some((_, number)) => *number += count,
        None => slot.counts.push((class, count)),
    }
}

/// What a node of an offer counts against a limit of this name.
pub(super) fn amount(offer: &super::problem::Offer, name: &str) -> i64 {
    match name {
        NODES => 1,
        // Against a ceiling a reserved node counts as its batch does: with the price of the lists.
        CEILING => i64::try_from(offer.list_price).unwrap_or(i64::MAX),
        name => offer.capacity.get(name),
    }
}

impl State<'_, '_> {
    /// Counts so much more against the limits of a pool, in their order, if there is so much left.
    pub(super) fn extend(&mut self, pool: usize, more: &[i64]) -> bool {
        let limits = &self.compiled.problem.pools[pool].left;
        let taken = |name: &str| self.taken[pool].get(name).copied().unwrap_or(0);
        let fits = limits
            .iter()
            .zip(more)
            .all(|((name, left), more)| *more == 0 || *more <= left.saturating_sub(taken(name.as_str())));
        if fits {
            for (name, more) in limits.keys().zip(more) {
                *self.taken[pool].entry(Arc::from(name.as_str())).or_default() += more;
            }
        }
        fits
    }
}
