//! What every domain holds: free slots, what is free in accelerators, bound members, whether its accelerators are untouched.
//! Rolled up once per call.

use std::collections::{BTreeMap, BTreeSet};

use super::demand::Demand;
use super::shapes::{accelerators, is_accelerator};
use crate::fit::{self, Misfit};
use crate::model::names::ResourceName;
use crate::model::node::{Node, Usage};
use crate::model::pod::Shape;
use crate::planner::plan::{Host, LevelIndex, Problem, Refusal};
use crate::topology::Tree;

/// Roll-ups per domain. Shapes: `[level][domain]`, as [`Tree::level`].
#[derive(Debug, Default)]
pub(super) struct Capacity {
    /// Members the domain can still take.
    pub(super) slots: Vec<Vec<u64>>,
    /// Members bound inside it.
    pub(super) bound: Vec<Vec<u32>>,
    /// No accelerator that the gang's shape requests is in use in it; always true for a shape that requests none.
    pub(super) whole: Vec<Vec<bool>>,
    /// What is free on its hosts that take a member, as [`Measure`] counts it.
    pub(super) free: Vec<Vec<u64>>,
    /// In what `free` counts.
    pub(super) measure: Measure,
}

/// In what the shape of a gang counts what is free: what is left over on a host matters to gangs of other shapes too, so
/// it is not counted in whole members of this one.
///
/// In accelerators: in units of the kind a member requests fewest of, and at every host by the scarcest kind. For a shape
/// without accelerators in quarters of a member, by the scarcest of all that it requests. What a host has beyond a whole
/// unit counts as one, so that members never take more than is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Measure {
    /// What one member takes.
    pub(super) each: u64,
    /// Counts accelerators.
    pub(super) accelerators: bool,
}

/// Units of a member of which there are more make no better placement, but wider vectors.
const MOST_UNITS: u64 = 64;
/// Units of a member without accelerators.
const QUARTERS: u64 = 4;

impl Measure {
    pub(super) fn of(shape: &Shape) -> Self {
        let least = accelerators(shape).map(|name| shape.requests.get(name).unsigned_abs()).min();
        Self { each: least.map_or(QUARTERS, |least| least.min(MOST_UNITS)), accelerators: least.is_some() }
    }

    /// What is free on a host of so many slots; nothing where no member fits.
    pub(super) fn free(self, shape: &Shape, node: &Node, usage: &Usage, slots: u64) -> u64 {
        if slots == 0 {
            return 0;
        }
        let counted = shape
            .requests
            .iter()
            .filter(|(name, amount)| *amount > 0 && (!self.accelerators || is_accelerator(name.as_str())));
        let units = |(name, request): (&ResourceName, i64)| {
            let free = fit::free_of(&node.allocatable, &usage.requested, name.as_str()).max(0);
            if request.unsigned_abs() == self.each {
                return free.unsigned_abs();
            }
            let units =
                (u128::from(free.unsigned_abs()) * u128::from(self.each)).div_ceil(request.unsigned_abs().into());
            u64::try_from(units).unwrap_or(u64::MAX)
        };
        let free = counted.map(units).min().unwrap_or(slots * self.each);
        free.min(u32::MAX.into())
    }
}

impl Capacity {
    /// Rolls up the roles' one shape. Shapes: `slots` and `bound` have one entry per host, in the order of `hosts`.
    pub(super) fn new(
        tree: &Tree,
        hosts: &[Host],
        shape: &Shape,
        slots: &[Result<u32, Misfit>],
        bound: &[u32],
    ) -> Self {
        let accelerators: Vec<&str> = accelerators(shape).collect();
        let depth = tree.depth();
        let measure = Measure::of(shape);
        let mut capacity = Self {
            slots: vec![Vec::new(); depth],
            bound: vec![Vec::new(); depth],
            whole: vec![Vec::new(); depth],
            free: vec![Vec::new(); depth],
            measure,
        };
        let last = depth.saturating_sub(1);
        for &host in tree.hosts() {
            let used = &hosts[host].usage.requested;
            let slots = slots[host].as_ref().map_or(0, |slots| u64::from(*slots));
            capacity.slots[last].push(slots);
            capacity.free[last].push(measure.free(shape, &hosts[host].node, &hosts[host].usage, slots));
            capacity.bound[last].push(bound[host]);
            capacity.whole[last].push(accelerators.iter().all(|name| used.get(name) <= 0));
        }
        for level in (0..last).rev() {
            for domain in tree.level(level) {
                let children = domain.children.clone();
                let slots = capacity.slots[level + 1][children.clone()].iter().sum();
                let bound = capacity.bound[level + 1][children.clone()].iter().sum();
                let free = capacity.free[level + 1][children.clone()].iter().sum();
                let whole = capacity.whole[level + 1][children].iter().all(|whole| *whole);
                capacity.free[level].push(free);
                capacity.slots[level].push(slots);
                capacity.bound[level].push(bound);
                capacity.whole[level].push(whole);
            }
        }
        capacity
    }

    /// What a domain has left beside so many new members.
    pub(super) fn left(&self, level: LevelIndex, domain: usize, members: u64) -> u64 {
        self.free[level][domain].saturating_sub(members.saturating_mul(self.measure.each))
    }

    /// Whether a domain that takes so many new members, or an accelerator of theirs, is broken.
    pub(super) fn breaks(&self, level: LevelIndex, domain: usize, members: u64) -> bool {
        self.whole[level][domain]
            && if self.measure.accelerators {
                self.left(level, domain, members) > 0
            } else {
                members < self.slots[level][domain]
            }
    }
}

/// Takes the slots from hosts whose domain of `level` others use: an accelerator there is in use, and not by the gang's
/// bound members.
///
/// Errors: a bound member in such a domain.
pub(super) fn leave_shared(
    problem: &Problem,
    tree: &Tree,
    level: LevelIndex,
    demand: &Demand<'_>,
    slots: &mut [Result<u32, Misfit>],
) -> Result<(), Refusal> {
    let accelerators: Vec<&str> = accelerators(demand.shape).collect();
    for (index, domain) in tree.level(level).iter().enumerate() {
        let hosts = &tree.hosts()[domain.hosts.clone()];
        let shared = hosts.iter().any(|&host| {
            let used = &problem.hosts[host].usage.requested;
            let bound = i64::from(demand.bound[host]);
            accelerators.iter().any(|name| used.get(name) > demand.shape.requests.get(name).saturating_mul(bound))
        });
        // Without the label nothing is known about who else is there.
        if !shared && tree.satisfies(level, index) {
            continue;
        }
        if let Some(position) = domain.hosts.clone().find(|position| demand.bound[tree.hosts()[*position]] > 0) {
            return Err(demand.outside(problem, tree, position));
        }
        for &host in hosts {
            if slots[host].is_ok() {
                slots[host] = Err(Misfit::Shared);
            }
        }
    }
    Ok(())
}

/// Leaves one slot in every domain of a level that a member may stand in alone. A domain is all hosts with one value of the
/// level's label, as for kube-scheduler; where all members go to one domain of the level `within`, each of those has a host.
///
/// Members are alike, so any host that takes one will do: the fullest, since what is left beside the gang serves others.
pub(super) fn leave_apart(
    problem: &Problem,
    tree: &Tree,
    (level, within): (LevelIndex, Option<LevelIndex>),
    demand: &Demand<'_>,
    slots: &mut [Result<u32, Misfit>],
) {
    let Some(key) = problem.levels.as_slice().get(level).map(|level| &level.key) else { return };
    let value = |host: usize| problem.hosts[host].node.labels.get(key);
    let taken: BTreeSet<_> = demand.bound_hosts.iter().filter_map(|host| value(*host)).collect();
    let mut chosen = BTreeMap::new();
    for (position, host) in tree.hosts().iter().copied().enumerate() {
        let (Ok(free), Some(value)) = (&slots[host], value(host)) else { continue };
        if *free == 0 || taken.contains(value) {
            continue;
        }
        let domain = (value, within.map(|level| tree.domain_of(level, position)));
        let best = chosen.entry(domain).or_insert((*free, host));
        if *free < best.0 {
            *best = (*free, host);
        }
    }
    let chosen: BTreeSet<usize> = chosen.into_values().map(|(_, host)| host).collect();
    for (host, slots) in slots.iter_mut().enumerate().filter(|(_, slots)| slots.is_ok()) {
        *slots = if chosen.contains(&host) { Ok(1) } else { Err(Misfit::Occupied) };
    }
}

/// Takes the slots from hosts that cannot satisfy a level.
pub(super) fn leave_unlabelled(tree: &Tree, level: LevelIndex, slots: &mut [Result<u32, Misfit>]) {
    for (_, domain) in tree.level(level).iter().enumerate().filter(|(index, _)| !tree.satisfies(level, *index)) {
        for &host in &tree.hosts()[domain.hosts.clone()] {
            if slots[host].is_ok() {
                slots[host] = Err(Misfit::Shared);
            }
        }
    }
}
