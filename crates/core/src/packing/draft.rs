//! A plan as it is made: nodes that exist first, then new ones pool by pool, preference by preference.

use super::bits::Bits;
use super::compile::Compiled;
use super::construct::{self, Order};
use super::problem::{Place, Plan, Problem};
use super::state::State;
use super::topology::Topology;

/// Rounds in which pods that would be refused are moved; later ones only take them out.
const REORDERED: u32 = 12;

/// A draft that is dearer than another by this part of it may still become the cheaper one.
const NEAR: u64 = 20;

/// A plan before pods and nodes have their numbers.
#[derive(Clone)]
pub(super) struct Draft<'c, 'p> {
    pub(super) state: State<'c, 'p>,
    /// `[pod]`: the node, by its number in the state.
    pub(super) slots: Vec<Option<usize>>,
    /// `[pod]`: how many preferences were dropped.
    pub(super) levels: Vec<usize>,
    /// Every step was proven to be the cheapest.
    pub(super) proven: bool,
    /// Every plan was looked at, nodes that exist included.
    pub(super) complete: bool,
}

impl<'c, 'p> Draft<'c, 'p> {
    pub(super) fn make(compiled: &'c Compiled<'p>, topology: &'c Topology<'p>, order: Order) -> Self {
        let problem = compiled.problem;
        let pods = problem.pods.len();
        let mut draft = Self {
            state: State::new(compiled, topology),
            slots: vec![None; pods],
            levels: vec![0; pods],
            proven: true,
            complete: false,
        };
        let weights = weights(problem);
        let deepest = problem.kinds.iter().map(Vec::len).max().unwrap_or(0);
        for level in 0..deepest {
            draft.settle(level);
            for weight in weights.iter().rev() {
                draft.state.tier = construct::tier(&draft.state, *weight);
                draft.new_nodes(level, order);
            }
            // Who stands now may be what somebody refused before waits for.
            draft.settle(level);
        }
        draft.lift(&weights);
        draft.reorder(&weights);
        draft
    }

    /// Pods on nodes of a pool that a pool of a higher weight has a node for after all, now that others stand: constraints
    /// between pods may have healed, and limits may be left.
    fn lift(&mut self, weights: &[u32]) {
        let first = self.state.compiled.problem.nodes.len();
        if weights.len() < 2 {
            return;
        }
        for pod in 0..self.slots.len() {
            let Some((class, at)) = self.class_of(pod).filter(|(_, at)| *at >= first) else { continue };
            let own = self.state.weight(self.state.slots[at].offer);
            for weight in weights.iter().rev().take_while(|weight| **weight > own) {
                let tier = construct::tier(&self.state, *weight);
                if !self.state.could_open(at, class, &tier) {
                    continue;
                }
                self.state.remove(at, class);
                self.state.tier = tier;
                self.slots[pod] = construct::join(&mut self.state, class, first);
                self.proven = false;
                if !self.state.slots[at].counts.is_empty() {
                    self.state.tier = construct::tier(&self.state, own);
                    self.state.refit(at);
                }
                break;
            }
        }
    }

    /// Pods that would be refused where they stand: if they came in their order, those refused again and again, or if those on
    /// nodes that are joining came last, as they will.
    pub(super) fn refused(&self) -> Vec<usize> {
        let mut placed: Vec<usize> = (0..self.slots.len()).filter(|pod| self.slots[*pod].is_some()).collect();
        let refused = |placed: &[usize]| -> Vec<usize> {
            let pods: Vec<(usize, usize)> = placed.iter().filter_map(|pod| self.class_of(*pod)).collect();
            self.state.refused_in_order(&pods).into_iter().map(|index| placed[index]).collect()
        };
        let found = refused(&placed);
        let nodes = &self.state.compiled.problem.nodes;
        let joining = |pod: &usize| self.slots[*pod].and_then(|at| nodes.get(at)).is_some_and(|node| node.joining);
        if !found.is_empty() || !self.state.compiled.comes_last || placed.is_sorted_by_key(joining) {
            return found;
        }
        placed.sort_by_key(joining);
        refused(&placed)
    }

    /// The class a pod stands as.
    pub(super) fn class_of(&self, pod: usize) -> Option<(usize, usize)> {
        let at = self.slots[pod]?;
        let problem = self.state.compiled.problem;
        let kind = &problem.kinds[problem.pods[pod]];
        match self.state.slots[at].existing {
            Some(node) => Some((problem.class_on(kind, node, self.levels[pod]), at)),
            None => Some((*kind.get(self.levels[pod])?, at)),
        }
    }

    /// Pods come in their order and not in that of the search: who would be refused then is moved to where it may come last,
    /// and has no place if there is none.
    fn reorder(&mut self, weights: &[u32]) {
        for round in 0_u32.. {
            let refused = self.refused();
            if refused.is_empty() {
                return;
            }
            self.proven = false;
            for pod in &refused {
                if let Some((class, at)) = self.class_of(*pod) {
                    self.state.remove(at, class);
                    self.slots[*pod] = None;
                }
            }
            for pod in refused.into_iter().filter(|_| round < REORDERED) {
                let problem = self.state.compiled.problem;
                let kind = &problem.kinds[problem.pods[pod]];
                for level in self.levels[pod]..kind.len() {
                    self.slots[pod] = self.on_existing(kind, level).or_else(|| self.on_new(kind[level], weights));
                    if let Some(at) = self.slots[pod] {
                        self.levels[pod] = if self.is_ready(at) { 0 } else { level };
                        break;
                    }
                }
            }
        }
    }

    /// A plan as a draft; `None` if it is none of this problem.
    pub(super) fn of(compiled: &'c Compiled<'p>, topology: &'c Topology<'p>, plan: &Plan) -> Option<Self> {
        let problem = compiled.problem;
        let mut state = State::new(compiled, topology);
        let mut at_of: Vec<Option<usize>> = vec![None; plan.nodes.len()];
        let number = |offer: usize| compiled.offer_of.iter().position(|known| *known == offer);
        let mut slots = Vec::with_capacity(plan.places.len());
        for (pod, place) in plan.places.iter().enumerate() {
            let kind = &problem.kinds[*problem.pods.get(pod)?];
            let level = *plan.relaxed.get(pod)?;
            slots.push(match place {
                Place::None => None,
                Place::Existing(node) => {
                    state.stand(*node, problem.class_on(kind, *node, level));
                    Some(*node)
                }
                Place::New(index) => {
                    let node = plan.nodes.get(*index)?;
                    let mut mask = Bits::none(compiled.offer_of.len());
                    for offer in std::iter::once(&node.offer).chain(&node.alternatives) {
                        mask.insert(number(*offer)?);
                    }
                    let slot = *at_of[*index].get_or_insert(state.slots.len());
                    Some(state.come(slot, *kind.get(level)?, number(node.offer)?, mask))
                }
            });
        }
        Some(Self { state, slots, levels: plan.relaxed.clone(), proven: false, complete: false })
    }

    /// Pods of a kind are interchangeable: the earliest get the nodes that exist, in their order, and the last none.
    pub(super) fn exchange(&mut self) {
        let problem = self.state.compiled.problem;
        let mut of: Vec<Vec<usize>> = vec![Vec::new(); problem.kinds.len()];
        problem.pods.iter().enumerate().for_each(|(pod, kind)| of[*kind].push(pod));
        for pods in of {
            let mut places: Vec<(Option<usize>, usize)> =
                pods.iter().map(|pod| (self.slots[*pod], self.levels[*pod])).collect();
            places.sort_by_key(|(slot, _)| slot.map_or(usize::MAX, |at| at.min(problem.nodes.len())));
            for (pod, (slot, level)) in pods.into_iter().zip(places) {
                (self.slots[pod], self.levels[pod]) = (slot, level);
            }
        }
    }

    /// Whether some pod has no place.
    pub(super) fn is_short(&self) -> bool {
        self.slots.iter().any(Option::is_none)
    }

    /// Whether the node is one that exists and is Ready.
    pub(super) fn is_ready(&self, at: usize) -> bool {
        self.state.slots[at].existing.is_some_and(|node| !self.state.compiled.problem.nodes[node].joining)
    }

    /// Puts a pod of the class on a new node, open or not, of the pools with the highest weight that have one for it.
    pub(super) fn on_new(&mut self, class: usize, weights: &[u32]) -> Option<usize> {
        let first = self.state.compiled.problem.nodes.len();
        weights.iter().rev().find_map(|weight| {
            self.state.tier = construct::tier(&self.state, *weight);
            construct::join(&mut self.state, class, first)
        })
    }

    /// Puts a pod on the first node that exists and takes it with so many preferences dropped.
    fn on_existing(&mut self, kind: &[usize], level: usize) -> Option<usize> {
        let problem = self.state.compiled.problem;
        (0..problem.nodes.len()).find_map(|at| {
            let class = problem.class_on(kind, at, level);
            let fitted = self.state.fits(at, class)?;
            Some(self.state.put(class, fitted))
        })
    }

    /// Pods without a place into nodes that exist, into those on their way with so many preferences dropped, until nobody finds
    /// one any more.
    pub(super) fn settle(&mut self, level: usize) {
        let problem = self.state.compiled.problem;
        let mut from: rustc_hash::FxHashMap<usize, usize> = rustc_hash::FxHashMap::default();
        loop {
            let mut moved = false;
            for (pod, kind) in problem.pods.iter().enumerate() {
                if self.slots[pod].is_some() {
                    continue;
                }
                let of = &problem.kinds[*kind];
                let level = level.min(of.len() - 1);
                let linked = [of[level], of[of.len() - 1]].into_iter().any(|class| self.state.topology.links(class));
                let start = if linked { 0 } else { from.get(kind).copied().unwrap_or(0) };
                let found = (start..problem.nodes.len()).find_map(|at| {
                    let class = problem.class_on(of, at, level);
                    Some((class, self.state.fits(at, class)?))
                });
                if !linked {
                    // What refused this pod refuses the next of its kind.
                    from.insert(*kind, found.as_ref().map_or(problem.nodes.len(), |(_, fitted)| fitted.slot));
                }
                if let Some((class, fitted)) = found {
                    let at = self.state.put(class, fitted);
                    self.slots[pod] = Some(at);
                    self.levels[pod] = if self.is_ready(at) { 0 } else { level };
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// Pods without a place onto new nodes of the tier, with so many preferences dropped.
    fn new_nodes(&mut self, level: usize, order: Order) {
        let problem = self.state.compiled.problem;
        let class_of = |pod: usize| problem.kinds[problem.pods[pod]].get(level).copied();
        let open: Vec<(usize, usize)> = (0..problem.pods.len())
            .filter(|pod| self.slots[*pod].is_none())
            .filter_map(|pod| Some((pod, class_of(pod)?)))
            .filter(|(_, class)| self.state.compiled.takes[*class].meets(&self.state.tier))
            .collect();
        let classes: Vec<usize> = open.iter().map(|(_, class)| *class).collect();
        let before = self.state.slots.clone();
        // Who dropped a preference may stand on a new node of somebody who did not, which is not among what is enumerated here.
        let alone = level == 0 || self.state.new_nodes().next().is_none();
        self.proven &= (construct::place(&mut self.state, &classes, order) && alone) || open.is_empty();
        // Pods of a class are interchangeable: the earliest get what there is.
        let mut free: rustc_hash::FxHashMap<usize, std::collections::VecDeque<usize>> =
            rustc_hash::FxHashMap::default();
        for (at, slot) in self.state.slots.iter().enumerate() {
            for (class, count) in &slot.counts {
                let had = before.get(at).and_then(|old| old.counts.iter().find(|(other, _)| other == class));
                let new = count.saturating_sub(had.map_or(0, |(_, count)| *count));
                free.entry(*class).or_default().extend(std::iter::repeat_n(at, new as usize));
            }
        }
        for (pod, class) in open {
            if let Some(at) = free.get_mut(&class).and_then(std::collections::VecDeque::pop_front) {
                self.slots[pod] = Some(at);
                self.levels[pod] = level;
            }
        }
    }

    /// Whether a search may still make it better than another, which was searched already.
    pub(super) fn is_near(&self, other: &Self) -> bool {
        let missing = |draft: &Self| draft.rank().0;
        let cost = other.state.cost();
        missing(self) < missing(other) || self.state.cost() <= cost.saturating_add(cost / NEAR)
    }

    /// Smaller is better: who has no place in the order of pods, preferences dropped, dollars, nodes.
    pub(super) fn rank(&self) -> (Vec<bool>, usize, u64, usize) {
        let missing = self.slots.iter().map(Option::is_none).collect();
        (missing, self.levels.iter().sum(), self.state.cost(), self.state.new_nodes().count())
    }
}

/// The weights of all pools, the lowest first.
pub(super) fn weights(problem: &Problem) -> Vec<u32> {
    let mut weights: Vec<u32> = problem.pools.iter().map(|pool| pool.weight).collect();
    weights.sort_unstable();
    weights.dedup();
    weights
}
