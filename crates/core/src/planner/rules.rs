//! Which numbers of new members a domain may take: slices, exclusive domains and the windows of balance.
//!
//! A slice is placed whole or not at all, and its ranks share a domain of its level. Since ranks are dealt after the
//! counts, a domain of that level may take any whole slices, plus exactly what completes the slices that stand there
//! already: an arithmetic progression. Finer slices inside coarser ones are progressions further down, and every pair
//! of such counts can be dealt, because the enclosing step is a multiple of the finer one. The most that a domain can
//! take under these rules has a closed form.

use std::ops::RangeInclusive;

use super::capacity::Capacity;
use super::demand::Demand;
use crate::planner::plan::{LevelIndex, Problem, Refusal};
use crate::topology::Tree;

/// The rules of one problem.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// New members a domain can take at most. Shapes: `[level][domain]`.
    pub(super) most: Vec<Vec<u64>>,
    /// Members that complete the damaged slices of the gang.
    pub(super) fixed: u32,
    /// Size of the coarsest slice; 1 without slices.
    pub(super) step: u32,
    /// One entry per level with slices, from the top down.
    layers: Vec<Layer>,
    /// Members a used domain of the level may hold, bound ones included.
    window: Option<(LevelIndex, RangeInclusive<u64>)>,
}

#[derive(Clone, Debug)]
struct Layer {
    level: LevelIndex,
    step: u32,
    /// Per domain: new members that complete the slices standing there.
    fixed: Vec<u32>,
}

/// The numbers of new members that a domain may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Allowed {
    fixed: u64,
    step: u64,
    most: u64,
    /// 0 or at least `low` and at most `high`, members bound there included.
    bound: u64,
    low: u64,
    high: u64,
}

impl Allowed {
    pub(super) fn contains(&self, members: u64) -> bool {
        let Self { fixed, step, most, bound, low, high } = *self;
        let held = members + bound;
        fixed <= members
            && members <= most
            && (members - fixed).is_multiple_of(step)
            && (held == 0 || (low..=high).contains(&held))
    }
}

impl Rules {
    /// Reads the topology requests of a gang whose slices divide it.
    ///
    /// Errors: members of one slice bound to several domains or to one without the label, or two slices bound to one
    /// domain that is to be exclusive. A slice that lost members is completed where it stands.
    pub(super) fn new(
        problem: &Problem,
        tree: &Tree,
        capacity: &Capacity,
        demand: &Demand<'_>,
    ) -> Result<Self, Refusal> {
        let topology_requests = &problem.gang.topology_requests;
        let mut rules = Self::plain(capacity.slots.clone());
        for topology_request in &topology_requests.slices {
            let mut fixed = vec![0_u32; tree.level(topology_request.level).len()];
            let mut standing = vec![0_u32; fixed.len()];
            // Finer slices at the level of coarser ones share their domain anyway.
            let same = rules.layers.last().is_some_and(|layer| layer.level == topology_request.level);
            let single = topology_requests.exclusive == Some(topology_request.level) && !same;
            for slice in demand.sequence.chunks(topology_request.size as usize) {
                let mut home = None;
                for position in slice.iter().flatten() {
                    let domain = tree.domain_of(topology_request.level, *position);
                    let first = home.is_none();
                    if *home.get_or_insert(domain) != domain || !tree.satisfies(topology_request.level, domain) {
                        return Err(demand.outside(problem, tree, *position));
                    }
                    standing[domain] += u32::from(first);
                    if first && single && standing[domain] > 1 {
                        return Err(demand.outside(problem, tree, *position));
                    }
                }
                if let Some(home) = home {
                    fixed[home] += count(slice.iter().filter(|place| place.is_none()).count());
                }
            }
            if rules.layers.is_empty() {
                (rules.fixed, rules.step) = (fixed.iter().sum(), topology_request.size);
            }
            if !same {
                rules.layers.push(Layer { level: topology_request.level, step: topology_request.size, fixed });
                let layer = rules.layers.len() - 1;
                for (domain, standing) in standing.iter().enumerate().filter(|_| single) {
                    rules.alone(layer, domain, *standing > 0);
                }
            }
        }
        rules.roll_up(tree);
        Ok(rules)
    }

    /// No rules but what every domain takes at most.
    pub(super) fn plain(most: Vec<Vec<u64>>) -> Self {
        Self { most, fixed: 0, step: 1, layers: Vec::new(), window: None }
    }

    /// Caps an exclusive domain at one slice.
    fn alone(&mut self, layer: usize, domain: usize, taken: bool) {
        let Layer { level, step, fixed } = &self.layers[layer];
        let cap = if taken { fixed[domain] } else { *step };
        let most = &mut self.most[*level][domain];
        *most = (*most).min(u64::from(cap));
    }

    /// The most a domain can take, from the bottom up.
    fn roll_up(&mut self, tree: &Tree) {
        if self.layers.is_empty() {
            return;
        }
        for level in (0..tree.depth()).rev() {
            for (index, domain) in tree.level(level).iter().enumerate() {
                if level + 1 < tree.depth() {
                    let below: u64 = self.most[level + 1][domain.children.clone()].iter().sum();
                    self.most[level][index] = self.most[level][index].min(below);
                }
                if let Some(layer) = self.layers.iter().find(|layer| layer.level == level) {
                    let fixed = u64::from(layer.fixed[index]);
                    let free = self.most[level][index].saturating_sub(fixed);
                    let whole = free - free % u64::from(layer.step);
                    let most = if tree.satisfies(level, index) { fixed + whole } else { 0 };
                    // Too little capacity to complete what stands there: nothing else may go there either.
                    self.most[level][index] = if self.most[level][index] < fixed { 0 } else { most };
                }
            }
        }
    }

    /// The same rules with a window: domains of a level that hold members hold as many as this.
    pub(super) fn windowed(&self, level: LevelIndex, window: RangeInclusive<u64>) -> Self {
        Self { window: Some((level, window)), ..self.clone() }
    }

    /// The deepest level whose domains may not take just any number.
    pub(super) fn deepest(&self) -> Option<LevelIndex> {
        let window = self.window.as_ref().map(|(level, _)| *level);
        self.layers.last().map(|layer| layer.level).max(window)
    }

    /// What a domain may take; `None` if any number up to the most.
    pub(super) fn allowed(&self, capacity: &Capacity, level: LevelIndex, domain: usize) -> Option<Allowed> {
        let layer = self.layers.iter().find(|layer| layer.level == level);
        let window = self.window.as_ref().filter(|(windowed, _)| *windowed == level);
        if layer.is_none() && window.is_none() {
            return None;
        }
        let (fixed, step) = layer.map_or((0, 1), |layer| (u64::from(layer.fixed[domain]), u64::from(layer.step)));
        let bound = if window.is_some() { u64::from(capacity.bound[level][domain]) } else { 0 };
        let (low, high) = window.map_or((0, u64::MAX), |(_, window)| (*window.start(), *window.end()));
        Some(Allowed { fixed, step, most: self.most[level][domain], bound, low, high })
    }

    /// Whether the damaged slices can all be completed where they stand.
    pub(super) fn completable(&self) -> bool {
        self.layers.iter().all(|layer| {
            let most = self.most[layer.level].iter();
            layer.fixed.iter().zip(most).all(|(fixed, most)| u64::from(*fixed) <= *most)
        })
    }

    /// The least number of new members, at least `must`, that cuts into whole slices.
    pub(super) fn least(&self, must: u64) -> u64 {
        let (fixed, step) = (u64::from(self.fixed), u64::from(self.step));
        fixed + must.saturating_sub(fixed).div_ceil(step) * step
    }

    /// Members that complete the slices standing in a domain.
    pub(super) fn fixed_at(&self, level: LevelIndex, domain: usize) -> u64 {
        let layer = self.layers.iter().find(|layer| layer.level == level);
        layer.map_or(0, |layer| u64::from(layer.fixed[domain]))
    }

    /// The numbers of new members from `must` to `may` that cut into whole slices.
    pub(super) fn numbers(&self, must: u64, may: u64) -> Vec<usize> {
        let first = self.least(must);
        let numbers = (first..=may).step_by(self.step as usize);
        numbers.map(|number| usize::try_from(number).expect("members are counted with u32")).collect()
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
