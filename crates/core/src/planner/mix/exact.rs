//! Several shapes exactly, where the tables stay small: for every set of counts the least cost of placing just these.
//!
//! The knapsack of one shape with one dimension per shape. With fewest domains first, a gang that fits into one domain
//! of a level is best placed inside one, so the levels are tried from the bottom up and most of the tree is never
//! looked at. The cells that may be merged are bounded by the search budget; beyond, nothing is reported.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::super::cost::{Cost, Layout};
use super::super::search::MOST_LIMBS;
use super::field::{Counts, Field};
use crate::planner::plan::{Elastic, LevelIndex, Placement, Work};

/// Cells of one table at most.
const MOST_CELLS: usize = 1 << 13;

/// The new members per host, by depth-first position.
pub(super) type Placed = Vec<(usize, Counts)>;

/// What became of a candidate.
#[derive(Clone, Debug)]
pub(super) enum Exact {
    /// The best placement, and its vector.
    Best(Vec<u64>, Placed),
    /// There is none.
    None,
    /// More work than is allowed.
    Unknown,
}

/// Solves one candidate domain, or all of the tree. `cells` is what may still be merged.
pub(super) fn solve(
    field: &Field<'_>,
    candidate: Option<(LevelIndex, usize)>,
    cells: &mut u64,
    work: &mut Work,
) -> Exact {
    let sizes = field.groups.iter().map(|group| group.may as usize + 1);
    if sizes.fold(1_usize, usize::saturating_mul) > MOST_CELLS {
        return Exact::Unknown;
    }
    let members: u64 = field.groups.iter().map(|group| u64::from(group.may)).sum();
    let layout = Layout::new(field.policy.placement, &field.capacity, members.max(1));
    match layout.limbs {
        ..=2 => run::<u128>(field, &layout, candidate, cells, work),
        3..=4 => run::<[u64; 4]>(field, &layout, candidate, cells, work),
        _ => run::<[u64; MOST_LIMBS]>(field, &layout, candidate, cells, work),
    }
}

fn run<C: Cost>(
    field: &Field<'_>,
    layout: &Layout,
    candidate: Option<(LevelIndex, usize)>,
    cells: &mut u64,
    work: &mut Work,
) -> Exact {
    let sizes: Counts = field.groups.iter().map(|group| group.may + 1).collect();
    let mut strides: SmallVec<[usize; 8]> = SmallVec::from_elem(1, sizes.len());
    for group in (1..sizes.len()).rev() {
        strides[group - 1] = strides[group] * sizes[group] as usize;
    }
    let mut solver = Solver::<C> {
        field,
        layout,
        strides,
        tables: Vec::new(),
        by_domain: FxHashMap::default(),
        by_class: FxHashMap::default(),
        by_pair: FxHashMap::default(),
        left: *cells,
        vertices: 0,
    };
    let before = solver.left;
    let answer = solver.candidate(candidate).unwrap_or(Exact::Unknown);
    *cells = solver.left;
    work.cells += before - solver.left;
    work.vertices += solver.vertices;
    answer
}

type TableId = usize;

/// The counts that have a placement: their index in the table of all counts, and the cost. Ascending.
#[derive(Clone, Debug)]
struct Table<C> {
    cells: Vec<(u32, C)>,
}

impl<C: Cost> Table<C> {
    fn get(&self, index: u32) -> C {
        self.cells.binary_search_by_key(&index, |(index, _)| *index).map_or(C::NEVER, |at| self.cells[at].1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Class {
    level: LevelIndex,
    slots: u64,
    free: u64,
    whole: bool,
    bound: bool,
    /// Table of the children, or class of the host.
    below: Result<TableId, u32>,
}

struct Solver<'a, C> {
    field: &'a Field<'a>,
    layout: &'a Layout,
    strides: SmallVec<[usize; 8]>,
    tables: Vec<Table<C>>,
    by_domain: FxHashMap<(LevelIndex, usize), TableId>,
    by_class: FxHashMap<Class, TableId>,
    by_pair: FxHashMap<(TableId, TableId), TableId>,
    left: u64,
    vertices: u64,
}

impl<C: Cost> Solver<'_, C> {
    /// `None` if it is too much work.
    fn candidate(&mut self, candidate: Option<(LevelIndex, usize)>) -> Option<Exact> {
        let field = self.field;
        let spread = field.policy.elastic == Elastic::Spread;
        let inside = candidate
            .map_or(0..field.tree.hosts().len(), |(level, domain)| field.tree.level(level)[domain].hosts.clone());
        if field.policy.placement == Placement::Locality {
            // With as many as possible first, only a domain that holds all of them may be preferred.
            let wanted = if spread { field.may() } else { field.must() };
            let above = candidate.map_or(0, |(level, _)| level + 1);
            for level in (above..field.tree.depth()).rev() {
                let mut best: Option<(Vec<u64>, Placed)> = None;
                for domain in self.alone(level, &inside) {
                    if !field.may_hold(Some((level, domain)), &wanted) {
                        continue;
                    }
                    let table = self.table(level, domain)?;
                    let counts = self.chosen(table, Some((level, domain)), spread);
                    let Some(placed) = counts.map(|counts| self.placed(Some((level, domain)), &counts)) else {
                        continue;
                    };
                    let placed = placed?;
                    let vector = field.vector(&placed);
                    if best.as_ref().is_none_or(|(least, _)| vector < *least) {
                        best = Some((vector, placed));
                    }
                }
                if let Some((vector, placed)) = best {
                    return Some(Exact::Best(vector, placed));
                }
            }
        }
        if !field.may_hold(candidate, &field.must()) {
            return Some(Exact::None);
        }
        let table = match candidate {
            Some((level, domain)) => Some(self.table(level, domain)?),
            None => self.run(0, 0..field.tree.level(0).len())?,
        };
        let none = Counts::from_elem(0, field.groups.len());
        let counts = match table {
            Some(table) => self.chosen(table, candidate, false),
            None => (field.must() == none).then_some(none),
        };
        let Some(counts) = counts else { return Some(Exact::None) };
        let placed = self.placed(candidate, &counts)?;
        Some(Exact::Best(field.vector(&placed), placed))
    }

    /// The domains of a level that could hold the whole gang, bound members included.
    fn alone(&self, level: LevelIndex, inside: &Range<usize>) -> Vec<usize> {
        let Field { tree, capacity, .. } = self.field;
        let domains = tree.level(level);
        let from = domains.partition_point(|domain| domain.hosts.end <= inside.start);
        let to = domains.partition_point(|domain| domain.hosts.start < inside.end);
        match self.field.stand(level) {
            0 => (from..to).collect(),
            1 => (from..to).filter(|domain| capacity.bound[level][*domain] > 0).collect(),
            _ => Vec::new(),
        }
    }

    /// The best counts of a table by the policy; only all members if `whole`.
    fn chosen(&self, table: TableId, at: Option<(LevelIndex, usize)>, whole: bool) -> Option<Counts> {
        let Field { tree, policy, .. } = self.field;
        let mask: C = self.layout.used_mask();
        let (must, may) = (self.field.must(), self.field.may());
        let mut best: Option<((C, u64, C), Counts)> = None;
        for (index, cost) in &self.tables[table].cells {
            let counts = self.counts(*index);
            if counts.iter().zip(&must).any(|(count, must)| count < must) || (whole && counts != may) {
                continue;
            }
            let mut cost = *cost;
            if let Some((level, domain)) = at {
                let mut parent = tree.level(level)[domain].parent;
                for above in (0..level).rev() {
                    cost = cost.plus(self.own(above, parent, &counts));
                    parent = tree.level(above)[parent].parent;
                }
            }
            let unplaced: u64 = may.iter().zip(&counts).map(|(may, count)| u64::from(may - count)).sum();
            let key = match (policy.elastic, policy.placement) {
                (Elastic::Spread, Placement::Locality | Placement::Packing) => (C::ZERO, unplaced, cost),
                (Elastic::Inside, Placement::Locality) => (cost.masked(mask), unplaced, cost),
                (Elastic::Inside, Placement::Packing) => (cost, unplaced, cost),
            };
            // Of equal ones the one with more of the first group.
            let better =
                best.as_ref().is_none_or(|(least, chosen)| key < *least || (key == *least && counts > *chosen));
            if better {
                best = Some((key, counts));
            }
        }
        best.map(|(_, counts)| counts)
    }

    fn index(&self, counts: &[u32]) -> u32 {
        let sum: usize = counts.iter().zip(&self.strides).map(|(count, stride)| *count as usize * stride).sum();
        u32::try_from(sum).expect("tables are small")
    }

    fn counts(&self, index: u32) -> Counts {
        let mut rest = index as usize;
        let digit = |stride: &usize| {
            let digit = rest / stride;
            rest %= stride;
            u32::try_from(digit).expect("tables are small")
        };
        self.strides.iter().map(digit).collect()
    }

    fn own(&self, level: LevelIndex, domain: usize, counts: &[u32]) -> C {
        let Field { capacity, groups, .. } = self.field;
        let main = u64::from(counts[0]);
        let left = capacity.left(level, domain, main);
        let any = counts.iter().any(|count| *count > 0);
        let mut cost = C::ZERO;
        if capacity.bound[level][domain] > 0 {
            cost = cost.plus(C::field(self.layout.left[level], left));
        } else if any {
            cost = cost.plus(C::field(self.layout.used[level], 1)).plus(C::field(self.layout.left[level], left));
        }
        let touched = main > 0 || counts.iter().zip(groups).any(|(count, group)| *count > 0 && group.takes);
        if touched && capacity.breaks(level, domain, main) {
            cost = cost.plus(C::field(self.layout.broken[level], 1));
        }
        cost
    }

    /// The table of domains side by side; `Some(None)` of none, `None` if it is too much work.
    fn run(&mut self, level: LevelIndex, domains: Range<usize>) -> Option<Option<TableId>> {
        match domains.len() {
            0 => Some(None),
            1 => Some(Some(self.table(level, domains.start)?)),
            _ => {
                let middle = domains.start.midpoint(domains.end);
                let left = self.run(level, domains.start..middle)??;
                let right = self.run(level, middle..domains.end)??;
                Some(Some(self.merge(left.min(right), left.max(right))?))
            }
        }
    }

    fn spend(&mut self, cells: u64) -> Option<()> {
        self.left = self.left.checked_sub(cells)?;
        Some(())
    }

    fn table(&mut self, level: LevelIndex, domain: usize) -> Option<TableId> {
        if let Some(table) = self.by_domain.get(&(level, domain)) {
            return Some(*table);
        }
        self.vertices += 1;
        self.spend(1)?;
        let Field { tree, capacity, classes, class_of, .. } = self.field;
        let below = if level + 1 < tree.depth() {
            Ok(self.run(level + 1, tree.level(level)[domain].children.clone())??)
        } else {
            Err(class_of[domain])
        };
        let (slots, whole) = (capacity.slots[level][domain], capacity.whole[level][domain]);
        let free = capacity.free[level][domain];
        let class = Class { level, slots, free, whole, bound: capacity.bound[level][domain] > 0, below };
        let table = match self.by_class.get(&class) {
            Some(table) => *table,
            None => {
                let mut cells = Vec::new();
                match below {
                    Ok(below) => {
                        self.spend(self.tables[below].cells.len() as u64)?;
                        for (index, cost) in &self.tables[below].cells {
                            cells.push((*index, cost.plus(self.own(level, domain, &self.counts(*index)))));
                        }
                    }
                    Err(class) => {
                        let class = &classes[class as usize];
                        let mut counts = Counts::from_elem(0, class.top.len());
                        loop {
                            self.spend(1)?;
                            if self.field.fits(class, &counts) {
                                cells.push((self.index(&counts), self.own(level, domain, &counts)));
                            }
                            // Counts up as an odometer does, the last group fastest.
                            let wheel = (0..counts.len()).rev().find(|wheel| counts[*wheel] < class.top[*wheel]);
                            let Some(wheel) = wheel else { break };
                            counts[wheel] += 1;
                            counts[wheel + 1..].fill(0);
                        }
                    }
                }
                self.tables.push(Table { cells });
                self.by_class.insert(class, self.tables.len() - 1);
                self.tables.len() - 1
            }
        };
        self.by_domain.insert((level, domain), table);
        Some(table)
    }

    fn merge(&mut self, left: TableId, right: TableId) -> Option<TableId> {
        if let Some(table) = self.by_pair.get(&(left, right)) {
            return Some(*table);
        }
        let pairs = self.tables[left].cells.len() as u64 * self.tables[right].cells.len() as u64;
        self.spend(pairs)?;
        let may = self.field.may();
        let size = self.index(&may) as usize + 1;
        let mut merged = vec![C::NEVER; size];
        let spread = |table: &Table<C>| -> Vec<(u32, Counts, C)> {
            table.cells.iter().map(|(index, cost)| (*index, self.counts(*index), *cost)).collect()
        };
        let (firsts, seconds) = (spread(&self.tables[left]), spread(&self.tables[right]));
        for (index, counts, cost) in &firsts {
            for (other, more, second) in &seconds {
                if counts.iter().zip(more).zip(&may).all(|((count, more), may)| count + more <= *may) {
                    let cell = &mut merged[(index + other) as usize];
                    *cell = (*cell).min(cost.plus(*second));
                }
            }
        }
        let cells = (0..).zip(merged).filter(|(_, cost)| *cost != C::NEVER).collect();
        self.tables.push(Table { cells });
        self.by_pair.insert((left, right), self.tables.len() - 1);
        Some(self.tables.len() - 1)
    }

    /// The best placement of just these members.
    fn placed(&mut self, at: Option<(LevelIndex, usize)>, counts: &Counts) -> Option<Placed> {
        let mut placed = BTreeMap::new();
        let index = self.index(counts);
        match at {
            Some((level, domain)) => self.assign(level, domain..domain + 1, index, &mut placed)?,
            None => self.assign(0, 0..self.field.tree.level(0).len(), index, &mut placed)?,
        }
        Some(placed.into_iter().collect())
    }

    fn assign(
        &mut self,
        level: LevelIndex,
        domains: Range<usize>,
        index: u32,
        placed: &mut BTreeMap<usize, Counts>,
    ) -> Option<()> {
        if index == 0 || domains.is_empty() {
            return Some(());
        }
        if domains.len() == 1 {
            if level + 1 == self.field.tree.depth() {
                placed.insert(domains.start, self.counts(index));
                return Some(());
            }
            let children = self.field.tree.level(level)[domains.start].children.clone();
            return self.assign(level + 1, children, index, placed);
        }
        let middle = domains.start.midpoint(domains.end);
        let left = self.run(level, domains.start..middle)??;
        let right = self.run(level, middle..domains.end)??;
        let whole = self.counts(index);
        let mut best: Option<(C, u32)> = None;
        // Of equal ones as many as possible in front.
        for (taken, cost) in self.tables[left].cells.iter().rev() {
            let inside = self.counts(*taken).iter().zip(&whole).all(|(taken, whole)| taken <= whole);
            if *taken > index || !inside {
                continue;
            }
            let rest = self.tables[right].get(index - taken);
            if rest != C::NEVER && best.is_none_or(|(least, _)| cost.plus(rest) < least) {
                best = Some((cost.plus(rest), *taken));
            }
        }
        let (_, taken) = best?;
        self.assign(level, domains.start..middle, taken, placed)?;
        self.assign(level, middle..domains.end, index - taken, placed)
    }
}
