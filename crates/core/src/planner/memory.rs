//! Nodes and what stands on them, remembered between gangs: what did not change is not counted again.
//!
//! A memory answers exactly as [`plan`](super::plan) does on its hosts, whatever was asked before; only the counted work
//! differs. It keeps the topology tree as long as names and labels stay, slots and roll-ups for the shapes asked about
//! last, and for small plain gangs the knapsack's tables (`forest`).

use std::sync::Arc;

use super::capacity::Measure;
use super::forest::{self, Forest, Sums};
use super::search::{self, Domains};
use super::{Asked, Ground, Pruning, answered, place, ranks};
use crate::fit::{self, Misfit};
use crate::model::names::{NodeName, ObjectKey, ResourceName};
use crate::model::node::Usage;
use crate::model::pod::Shape;
use crate::planner::plan::{
    GangRequest, Host, LevelIndex, Placement, Plan, Policy, Problem, Report, TopologyRequests, Work,
};
use crate::topology::{Levels, Tree};

/// Shapes of which slots are kept; of more, the one that was not asked about for longest is forgotten.
const MOST_SHAPES: usize = 8;
/// Kept tables of one shape, likewise.
const MOST_FORESTS: usize = 8;
/// Hosts times members up to which tables are kept: some hundred megabytes at most.
const MOST_CELLS: usize = 1 << 22;

/// Nodes, and what was found out about them.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The gang is the one asked about last.
    problem: Problem,
    ground: Ground,
    /// Names or labels changed since the ground was read.
    moved: bool,
    /// Asked about last comes last.
    shapes: Vec<Remembered>,
}

/// What is known about one shape.
#[derive(Clone, Debug)]
struct Remembered {
    shape: Shape,
    accelerators: Vec<ResourceName>,
    /// In the order of the hosts.
    slots: Vec<Result<u32, Misfit>>,
    tally: Tally,
    /// Hosts that changed since.
    stale: Vec<usize>,
    /// Used last comes last.
    forests: Vec<(Placement, Forest)>,
}

/// Roll-ups. Shapes: `[level][domain]`.
#[derive(Clone, Debug)]
struct Tally {
    slots: Vec<Vec<u64>>,
    /// Hosts on which an accelerator of the shape is in use.
    used: Vec<Vec<u32>>,
    /// Per host, by depth-first position: slots and what is free that are never exceeded while the node stays what it is.
    most: Vec<(u32, u64)>,
    /// What is free, as `measure` counts it.
    free: Vec<Vec<u64>>,
    measure: Measure,
}

impl Sums for Tally {
    fn slots(&self, level: LevelIndex, domain: usize) -> u64 {
        self.slots[level][domain]
    }

    fn left(&self, level: LevelIndex, domain: usize, members: u64) -> u64 {
        self.free[level][domain].saturating_sub(members.saturating_mul(self.measure.each))
    }

    fn breaks(&self, level: LevelIndex, domain: usize, members: u64) -> bool {
        self.used[level][domain] == 0
            && if self.measure.accelerators {
                self.left(level, domain, members) > 0
            } else {
                members < self.slots[level][domain]
            }
    }
}

impl Memory {
    /// Remembers nothing but the hosts.
    #[must_use]
    pub fn new(levels: Levels, hosts: Vec<Host>) -> Self {
        let nobody = ObjectKey::new("", "");
        let gang = GangRequest { key: nobody, roles: Vec::new(), topology_requests: TopologyRequests::default() };
        let problem = Problem { levels, hosts, gang };
        Self { ground: Ground::new(&problem), problem, moved: false, shapes: Vec::new() }
    }

    /// The hosts as they are now, with the gang asked about last: what a checker needs.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Where a node is among the hosts.
    #[must_use]
    pub fn position(&self, node: &NodeName) -> Option<usize> {
        let host = *self.ground.index.get(node)?;
        // The index is that of the names when the ground was read.
        (!self.moved || self.problem.hosts[host].node.name == *node).then_some(host)
    }

    /// Replaces one host; the index is that of the list the memory was made of.
    pub fn change(&mut self, index: usize, host: Host) {
        let before = &mut self.problem.hosts[index];
        let same_node = Arc::ptr_eq(&before.node, &host.node) || before.node == host.node;
        if same_node && (Arc::ptr_eq(&before.usage, &host.usage) || before.usage == host.usage) {
            return;
        }
        if !same_node {
            self.moved |= before.node.name != host.node.name || before.node.labels != host.node.labels;
        }
        *before = host;
        for remembered in &mut self.shapes {
            remembered.stale.push(index);
        }
    }

    /// Replaces what holds capacity on one host.
    pub fn charge(&mut self, index: usize, usage: Arc<Usage>) {
        let node = Arc::clone(&self.problem.hosts[index].node);
        self.change(index, Host { node, usage });
    }

    /// Places one gang on the hosts as they are now, as [`plan`](super::plan) does.
    pub fn plan(&mut self, gang: GangRequest, policy: &Policy) -> (Plan, Report) {
        if self.moved {
            self.ground = Ground::new(&self.problem);
            self.shapes.clear();
            self.moved = false;
        }
        self.problem.gang = gang;
        let Self { problem, ground, moved: _, shapes } = self;
        let mut work = Work::default();
        let Some(shape) = only_shape(&problem.gang) else {
            let answer = place(problem, Asked::usual(policy, Pruning::On), ground, None, &mut work);
            return answered(problem, ground, answer, work);
        };
        match shapes.iter().position(|remembered| remembered.shape == *shape) {
            Some(known) => shapes[known..].rotate_left(1),
            None => {
                if shapes.len() >= MOST_SHAPES {
                    shapes.remove(0);
                }
                shapes.push(Remembered::new(problem, ground, shape, &mut work));
            }
        }
        let remembered = shapes.last_mut().expect("one was found or pushed just now");
        remembered.renew(problem, ground, &mut work);
        let answer = match remembered.small(problem, ground, policy, &mut work) {
            Some(counts) => {
                let new = counts.iter().map(|(_, count)| count).sum();
                let hosts = counts.iter().flat_map(|(position, count)| {
                    let host = &problem.hosts[ground.tree.hosts()[*position]];
                    std::iter::repeat_n(&host.node.name, *count as usize)
                });
                Ok(ranks::places(&problem.gang, new, hosts).into())
            }
            None => place(problem, Asked::usual(policy, Pruning::On), ground, Some(&remembered.slots), &mut work),
        };
        answered(problem, ground, answer, work)
    }
}

impl Remembered {
    fn new(problem: &Problem, ground: &Ground, shape: &Shape, work: &mut Work) -> Self {
        let hosts = 0..problem.hosts.len();
        work.slots += hosts.len() as u64;
        let slots: Vec<Result<u32, Misfit>> =
            hosts.map(|host| super::slots(problem, &ground.index, shape, host)).collect();
        let accelerators: Vec<ResourceName> = super::shapes::accelerators(shape).map(ResourceName::from).collect();
        let tree = &ground.tree;
        let (depth, last) = (tree.depth(), tree.depth().saturating_sub(1));
        let measure = Measure::of(shape);
        let mut tally = Tally {
            slots: vec![Vec::new(); depth],
            used: vec![Vec::new(); depth],
            most: Vec::new(),
            free: vec![Vec::new(); depth],
            measure,
        };
        for &host in tree.hosts() {
            let entry = &problem.hosts[host];
            tally.slots[last].push(count(&slots[host]));
            tally.free[last].push(measure.free(shape, &entry.node, &entry.usage, count(&slots[host])));
            tally.used[last].push(u32::from(in_use(&accelerators, &problem.hosts[host])));
        }
        for level in (0..last).rev() {
            for domain in tree.level(level) {
                let children = domain.children.clone();
                let slots = tally.slots[level + 1][children.clone()].iter().sum();
                let free = tally.free[level + 1][children.clone()].iter().sum();
                let used = tally.used[level + 1][children].iter().sum();
                tally.slots[level].push(slots);
                tally.free[level].push(free);
                tally.used[level].push(used);
            }
        }
        Self { shape: shape.clone(), accelerators, slots, tally, stale: Vec::new(), forests: Vec::new() }
    }

    /// Counts the hosts that changed again and corrects what lies above them.
    fn renew(&mut self, problem: &Problem, ground: &Ground, work: &mut Work) {
        let tree = &ground.tree;
        let last = tree.depth().saturating_sub(1);
        for host in self.stale.drain(..) {
            work.slots += 1;
            let position = ground.positions[host];
            let slots = super::slots(problem, &ground.index, &self.shape, host);
            let (before, after) = (count(&self.slots[host]), count(&slots));
            self.slots[host] = slots;
            let in_use = u32::from(in_use(&self.accelerators, &problem.hosts[host]));
            let was_in_use = self.tally.used[last][position];
            let entry = &problem.hosts[host];
            let free = self.tally.measure.free(&self.shape, &entry.node, &entry.usage, after);
            let was_free = self.tally.free[last][position];
            if before == after && in_use == was_in_use && free == was_free {
                continue;
            }
            let mut domain = position;
            for level in (0..=last).rev() {
                let slots = &mut self.tally.slots[level][domain];
                *slots = *slots + after - before;
                let used = &mut self.tally.used[level][domain];
                *used = *used + in_use - was_in_use;
                let sum = &mut self.tally.free[level][domain];
                *sum = *sum + free - was_free;
                domain = tree.level(level)[domain].parent;
            }
            let (most, most_free) = self.tally.most.get(position).copied().unwrap_or_default();
            if after > u64::from(most) || free > most_free {
                // The node grew; tables are laid out for what it held at most.
                self.tally.most.clear();
                self.forests.clear();
            }
            for (_, forest) in &mut self.forests {
                forest.touch(position);
            }
        }
    }

    /// Counts of a gang that a forest answers for, by depth-first position; `None` for any other, and for one that does
    /// not fit.
    fn small(
        &mut self,
        problem: &Problem,
        ground: &Ground,
        policy: &Policy,
        work: &mut Work,
    ) -> Option<Vec<(usize, u32)>> {
        let tree = &ground.tree;
        let (least, most) = plain(problem)?;
        let domains = match problem.gang.topology_requests.required {
            Some(level) => Domains::OneOf { level },
            None => Domains::Any,
        };
        let slots = &self.tally.slots;
        let capacity = match domains.candidates(tree) {
            None => slots.first()?.iter().sum(),
            Some((level, candidates)) => candidates.map(|domain| slots[level][domain]).max().unwrap_or(0),
        };
        let most = most.min(usize::try_from(capacity).unwrap_or(usize::MAX));
        if least > most || most == 0 {
            return None;
        }
        let forest = self.forest(problem, tree, policy.placement, most, work)?;
        let (forest, tally) = (&self.forests[forest].1, &self.tally);
        let best = |number: usize| {
            let Some((level, candidates)) = domains.candidates(tree) else { return (None, forest.anywhere(number)) };
            let costs = candidates
                .filter(|domain| tally.slots[level][*domain] >= number as u64)
                .map(|domain| (Some((level, domain)), forest.inside(tree, tally, level, domain, number)));
            // The first of equal ones.
            costs.min_by_key(|(_, cost)| *cost).unwrap_or((None, u128::MAX))
        };
        let numbers: Vec<usize> = (least..=most).collect();
        let number = search::number(policy, forest.used_mask(), &numbers, |number| best(number).1);
        Some(if number == 0 { Vec::new() } else { forest.counts(best(number).0, number) })
    }

    /// The tables for gangs of so many members, up to date.
    fn forest(
        &mut self,
        problem: &Problem,
        tree: &Tree,
        placement: Placement,
        members: usize,
        work: &mut Work,
    ) -> Option<usize> {
        let limit = members.next_power_of_two().clamp(4, forest::LARGEST);
        if tree.hosts().len().saturating_mul(limit) > MOST_CELLS {
            return None;
        }
        match self.forests.iter().position(|(order, forest)| *order == placement && forest.limit() == limit) {
            Some(known) => self.forests[known..].rotate_left(1),
            None => {
                if self.tally.most.is_empty() {
                    let empty = Usage::default();
                    let now = self.tally.slots.last()?.iter().zip(self.tally.free.last()?);
                    let most = tree.hosts().iter().zip(now).map(|(host, (slots, free))| {
                        let node = &problem.hosts[*host].node;
                        let most = fit::slots(&self.shape, node, &empty).unwrap_or(0);
                        let most_free = self.tally.measure.free(&self.shape, node, &empty, most.into());
                        (most.max(u32::try_from(*slots).unwrap_or(u32::MAX)), most_free.max(*free))
                    });
                    self.tally.most = most.collect();
                    work.slots += tree.hosts().len() as u64;
                }
                if self.forests.len() >= MOST_FORESTS {
                    self.forests.remove(0);
                }
                let (most, free): (Vec<u32>, Vec<u64>) = self.tally.most.iter().copied().unzip();
                let free = free.iter().sum();
                let forest = Forest::new(tree, placement, limit, &most, free, &self.tally, work)?;
                self.forests.push((placement, forest));
            }
        }
        let (_, forest) = self.forests.last_mut()?;
        forest.renew(&self.tally, work);
        Some(self.forests.len() - 1)
    }
}

/// The shape of all members, if it is one.
fn only_shape(gang: &GangRequest) -> Option<&Shape> {
    let mut shapes = gang.roles.iter().filter(|role| !role.places.is_empty()).map(|role| &role.shape);
    let first = shapes.next()?;
    shapes.all(|shape| shape == first).then_some(first)
}

/// Least and most members of a gang that has no topology request but a required level and no member bound, and is small.
fn plain(problem: &Problem) -> Option<(usize, usize)> {
    let GangRequest { key: _, roles, topology_requests } = &problem.gang;
    let TopologyRequests { required, preferred, slices, exclusive, balance, apart } = topology_requests;
    let levels = required.is_none_or(|level| level < problem.levels.len())
        && preferred.is_none_or(|level| level < problem.levels.len());
    if !levels || !slices.is_empty() || exclusive.is_some() || balance.is_some() || apart.is_some() {
        return None;
    }
    let most: usize = roles.iter().map(|role| role.places.len()).sum();
    let small = most <= forest::LARGEST;
    let plain = small
        && roles.iter().all(|role| {
            role.min as usize <= role.places.len()
                && role.shape.unsupported.is_empty()
                && role.places.iter().all(|place| place.bound.is_none())
        });
    let least = roles.iter().map(|role| role.min as usize).sum();
    plain.then_some((least, most))
}

fn in_use(accelerators: &[ResourceName], host: &Host) -> bool {
    accelerators.iter().any(|name| host.usage.requested.get(name.as_str()) > 0)
}

fn count(slots: &Result<u32, Misfit>) -> u64 {
    slots.as_ref().map_or(0, |slots| u64::from(*slots))
}
