//! The (min, +) tree knapsack: how many members every host takes.
//!
//! A *table* of a domain gives, for every number of members up to what it holds, the least cost of placing exactly that
//! many inside it. The table of a domain is the merge of its children's tables plus the domain's own cost. Children are
//! merged pairwise along a balanced split of their order, so that equal runs of equal domains share one table (tables
//! are interned by what they were made from), and so that back-tracking needs no more than these same tables.
//!
//! Where the objective starts with the number of domains (locality), the number of children a domain needs is decided
//! before anything else: children that cannot belong to so small a set are dropped, and where one child suffices
//! nothing is merged at all. [`Pruning::Off`] skips this and must give the same answer.

use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::capacity::Capacity;
use super::cost::{Cost, Layout};
use super::narrow::{self, Limits};
use super::rules::{Allowed, Rules};
use crate::planner::plan::{LevelIndex, Placement, Work};
use crate::topology::Tree;

/// Whether choices that cannot be optimal are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pruning {
    /// Skip them.
    On,
    /// Merge everything; for tests of the pruning itself.
    Off,
}

/// Tables of one problem, made as they are needed.
#[derive(Debug)]
pub(super) struct Solver<'a, C> {
    tree: &'a Tree,
    capacity: &'a Capacity,
    layout: &'a Layout,
    rules: &'a Rules,
    /// Levels from this one down may be pruned; above it, rules decide which numbers a domain may take.
    prune_from: LevelIndex,
    /// No table is longer than this many members plus one.
    limit: usize,
    cells: Vec<C>,
    tables: Vec<Table>,
    by_domain: Vec<Vec<Option<TableId>>>,
    by_class: FxHashMap<Class, TableId>,
    by_pair: FxHashMap<(BoundId, TableId, TableId), TableId>,
    /// Tables of domains without what a bound rules out.
    by_bound: FxHashMap<(BoundId, TableId), TableId>,
    /// By level, first domain and members.
    branches: FxHashMap<(LevelIndex, usize, usize), Rc<Branch>>,
    work: Work,
}

type TableId = u32;
/// The branch whose limits hold in a table; 0 for none.
type BoundId = u32;

/// Where a table's cells are.
#[derive(Clone, Debug)]
struct Table {
    cells: Range<usize>,
    /// Members, apart from none at all, for which there may be a placement.
    span: Range<usize>,
}

/// Everything that decides a domain's table: domains of equal class share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Class {
    level: LevelIndex,
    slots: u64,
    free: u64,
    whole: bool,
    bound: bool,
    allowed: Option<Allowed>,
    /// Merge of the children; `None` for a host.
    below: Option<TableId>,
}

/// Which children of a domain can take part in an optimal placement.
#[derive(Debug)]
enum Branch {
    /// Exactly one of these takes everything.
    One(Vec<usize>),
    /// Any of these, within limits if there are any.
    Some(Vec<usize>, Option<Bound>),
}

/// Limits that hold for the placements a branch looks for.
#[derive(Debug)]
struct Bound {
    id: BoundId,
    limits: Limits,
}

impl<'a, C: Cost> Solver<'a, C> {
    /// A solver for at most `limit` new members.
    pub(super) fn new(
        tree: &'a Tree,
        capacity: &'a Capacity,
        layout: &'a Layout,
        rules: &'a Rules,
        placement: Placement,
        pruning: Pruning,
        limit: usize,
    ) -> Self {
        let prune_from = match (placement, pruning) {
            (Placement::Locality, Pruning::On) => rules.deepest().map_or(0, |level| level + 1),
            // The number of domains is not what decides first, so it rules nothing out.
            (Placement::Packing, _) | (_, Pruning::Off) => LevelIndex::MAX,
        };
        let by_domain = capacity.slots.iter().map(|slots| vec![None; slots.len()]).collect();
        Self {
            tree,
            capacity,
            layout,
            rules,
            prune_from,
            limit,
            cells: Vec::new(),
            tables: Vec::new(),
            by_domain,
            by_class: FxHashMap::default(),
            by_pair: FxHashMap::default(),
            by_bound: FxHashMap::default(),
            branches: FxHashMap::default(),
            work: Work::default(),
        }
    }

    /// Work done so far.
    pub(super) fn work(&self) -> Work {
        self.work
    }

    /// Least cost of placing exactly `members` in some domains of one level, which together must hold as many.
    pub(super) fn value_among(&mut self, level: LevelIndex, domains: Range<usize>, members: usize) -> C {
        match &*self.branch(level, domains, members) {
            Branch::One(candidates) => self.best_of(level, candidates, members).1,
            Branch::Some(parts, bound) => match parts.as_slice() {
                [] if members > 0 => C::NEVER,
                [] => C::ZERO,
                [only] => self.value(level, *only, members),
                parts => {
                    let (left, right) = parts.split_at(parts.len() / 2);
                    let bound = bound.as_ref();
                    let (left, right) = (self.run(level, left, bound), self.run(level, right, bound));
                    self.splits(left, right, members).map(|(_, cost)| cost).min().unwrap_or(C::NEVER)
                }
            },
        }
    }

    /// Least cost of placing exactly `members` inside one domain, which must hold as many.
    pub(super) fn value(&mut self, level: LevelIndex, domain: usize, members: usize) -> C {
        self.work.vertices += 1;
        let own = self.own(level, domain, members);
        match self.children(level, domain) {
            None => own,
            Some(_) if own == C::NEVER => own,
            Some(children) => own.plus(self.value_among(level + 1, children, members)).settled(),
        }
    }

    /// Cost of a domain itself when it takes `members`, whatever happens inside it; [`Cost::NEVER`] if it may not.
    pub(super) fn own(&self, level: LevelIndex, domain: usize, members: usize) -> C {
        let allowed = self.rules.allowed(self.capacity, level, domain);
        if allowed.is_some_and(|allowed| !allowed.contains(members as u64)) {
            return C::NEVER;
        }
        self.cost(level, domain, members)
    }

    fn cost(&self, level: LevelIndex, domain: usize, members: usize) -> C {
        let taken = members as u64;
        let mut cost = C::ZERO;
        // A domain with bound members is used already, whatever else it takes.
        let bound = self.capacity.bound[level][domain] > 0;
        if members > 0 && !bound {
            cost = cost.plus(C::field(self.layout.used[level], 1));
        }
        if members > 0 || bound {
            // The same number in every solver of a problem, whatever its limit: balance compares them.
            cost = cost.plus(C::field(self.layout.left[level], self.capacity.left(level, domain, taken)));
        }
        if 0 < taken && self.capacity.breaks(level, domain, taken) {
            cost = cost.plus(C::field(self.layout.broken[level], 1));
        }
        cost
    }

    /// Among all optimal placements of one of the numbers in `sums` inside some domains of one level, the one whose
    /// host counts in depth-first order are lexicographically largest; returns its number. `sums` is not empty.
    pub(super) fn assign_among(
        &mut self,
        level: LevelIndex,
        domains: Range<usize>,
        sums: &[usize],
        counts: &mut [u32],
    ) -> usize {
        if let [members] = *sums {
            match &*self.branch(level, domains, members) {
                Branch::One(candidates) => {
                    let (domain, _) = self.best_of(level, candidates, members);
                    self.assign(level, domain, sums, counts)
                }
                Branch::Some(parts, bound) => self.assign_run(level, parts, bound.as_ref(), sums, counts),
            }
        } else {
            let parts = self.open(level, domains);
            self.assign_run(level, &parts, None, sums, counts)
        }
    }

    /// [`Self::assign_among`] for one domain.
    pub(super) fn assign(&mut self, level: LevelIndex, domain: usize, sums: &[usize], counts: &mut [u32]) -> usize {
        let most = sums.last().copied().unwrap_or(0);
        if most == 0 {
            return 0;
        }
        match self.children(level, domain) {
            None => {
                counts[domain] = u32::try_from(most).expect("a gang has fewer members than u32 can count");
                most
            }
            Some(children) => self.assign_among(level + 1, children, sums, counts),
        }
    }

    fn assign_run(
        &mut self,
        level: LevelIndex,
        parts: &[usize],
        bound: Option<&Bound>,
        sums: &[usize],
        counts: &mut [u32],
    ) -> usize {
        let (left, right) = match parts {
            [] => return 0,
            [only] => return self.assign(level, *only, sums, counts),
            parts => parts.split_at(parts.len() / 2),
        };
        let (left_table, right_table) = (self.run(level, left, bound), self.run(level, right, bound));
        let best: Vec<C> = sums
            .iter()
            .map(|sum| self.splits(left_table, right_table, *sum).map(|(_, cost)| cost).min().unwrap_or(C::NEVER))
            .collect();
        // Different sums stay in the race together: the first host alone may decide between them.
        let mut open = vec![false; self.table(left_table).len()];
        for (sum, best) in sums.iter().zip(&best) {
            for (taken, cost) in self.splits(left_table, right_table, *sum) {
                open[taken] |= cost == *best;
            }
        }
        let left_sums: Vec<usize> = (0..open.len()).filter(|taken| open[*taken]).collect();
        let taken = self.assign_run(level, left, bound, &left_sums, counts);
        let right_sums: Vec<usize> = sums
            .iter()
            .zip(&best)
            .filter(|(sum, best)| {
                let rest = sum.checked_sub(taken).and_then(|rest| self.table(right_table).get(rest));
                rest.is_some_and(|rest| self.table(left_table)[taken].plus(*rest) == **best)
            })
            .map(|(sum, _)| sum - taken)
            .collect();
        taken + self.assign_run(level, right, bound, &right_sums, counts)
    }

    /// The cheapest domain to take everything, the first of several: members in an earlier domain are
    /// lexicographically larger counts.
    fn best_of(&mut self, level: LevelIndex, candidates: &[usize], members: usize) -> (usize, C) {
        let mut best = (candidates.first().copied().unwrap_or(0), C::NEVER);
        for &domain in candidates {
            let cost = self.value(level, domain, members);
            if cost < best.1 {
                best = (domain, cost);
            }
        }
        best
    }

    /// Picks the domains of a level that an optimal placement of exactly `members` can use.
    fn branch(&mut self, level: LevelIndex, domains: Range<usize>, members: usize) -> Rc<Branch> {
        let key = (level, domains.start, members);
        if let Some(branch) = self.branches.get(&key) {
            return Rc::clone(branch);
        }
        let id = BoundId::try_from(self.branches.len() + 1).expect("there are fewer branches than u32 can count");
        let branch = Rc::new(self.picked(level, domains, members, id));
        self.branches.insert(key, Rc::clone(&branch));
        branch
    }

    fn picked(&self, level: LevelIndex, domains: Range<usize>, members: usize, id: BoundId) -> Branch {
        let mut open = self.open(level, domains);
        if level < self.prune_from {
            return Branch::Some(open, None);
        }
        // Domains with bound members are used already: they cost nothing at this level, new ones cost one each.
        let used = |domain: &usize| self.capacity.bound[level][*domain] > 0;
        let free: usize = open.iter().filter(|domain| used(domain)).map(|domain| self.cap(level, *domain)).sum();
        if free >= members {
            open.retain(used);
            return Branch::Some(open, None);
        }
        let rest = members - free;
        let mut caps: Vec<usize> =
            open.iter().filter(|domain| !used(domain)).map(|domain| self.cap(level, *domain)).collect();
        caps.sort_unstable_by(|a, b| b.cmp(a));
        let mut others = 0;
        let mut smallest = 0;
        // Domains of the smallest set.
        let mut number = 1;
        for cap in caps {
            if others + cap >= rest {
                // One more completes the smallest set: it must bring what the largest others lack.
                smallest = rest - others;
                break;
            }
            others += cap;
            number += 1;
        }
        if free == 0 && others == 0 {
            open.retain(|domain| self.cap(level, *domain) >= members);
            self.narrow(level, &mut open, 1, members);
            return Branch::One(open);
        }
        open.retain(|domain| used(domain) || self.cap(level, *domain) >= smallest);
        let limits = if open.iter().any(used) { None } else { self.narrow(level, &mut open, number, members) };
        Branch::Some(open, limits.map(|limits| Bound { id, limits }))
    }

    /// Keeps those of some domains without bound members that can be among the `number` an optimal placement uses.
    fn narrow(&self, level: LevelIndex, open: &mut Vec<usize>, number: usize, members: usize) -> Option<Limits> {
        let capacities: Option<Vec<Vec<usize>>> = open
            .iter()
            .map(|domain| Some(self.children(level, *domain)?.map(|child| self.cap(level + 1, child)).collect()))
            .collect();
        let narrowed = narrow::narrowed(capacities?, number, members);
        let mut possible = narrowed.possible.into_iter();
        open.retain(|_| possible.next().unwrap_or(true));
        narrowed.limits
    }

    /// Domains that can take a member.
    fn open(&self, level: LevelIndex, domains: Range<usize>) -> Vec<usize> {
        // Where rules hold, a full domain matters too: what is bound there may break one.
        let ruled = self.rules.deepest().is_some_and(|deepest| level <= deepest);
        let open =
            |domain: &usize| self.rules.most[level][*domain] > 0 || (ruled && self.capacity.bound[level][*domain] > 0);
        domains.filter(open).collect()
    }

    fn cap(&self, level: LevelIndex, domain: usize) -> usize {
        usize::try_from(self.rules.most[level][domain]).map_or(self.limit, |slots| slots.min(self.limit))
    }

    /// Children of a domain; `None` for a host.
    fn children(&self, level: LevelIndex, domain: usize) -> Option<Range<usize>> {
        (level + 1 < self.tree.depth()).then(|| self.tree.level(level)[domain].children.clone())
    }

    /// Every way to divide `members` between two tables, with its cost: (members of the left one, cost).
    fn splits(&self, left: TableId, right: TableId, members: usize) -> impl Iterator<Item = (usize, C)> {
        let (left, right) = (self.table(left), self.table(right));
        let from = (members + 1).saturating_sub(right.len());
        let to = (members + 1).min(left.len());
        (from..to).map(move |taken| (taken, left[taken].plus(right[members - taken]).settled()))
    }

    fn table(&self, id: TableId) -> &[C] {
        &self.cells[self.tables[id as usize].cells.clone()]
    }

    /// The table of several domains side by side; there is at least one. Numbers of members that a bound rules out have
    /// no placement in it.
    fn run(&mut self, level: LevelIndex, parts: &[usize], bound: Option<&Bound>) -> TableId {
        match parts {
            [only] => {
                let table = self.domain_table(level, *only);
                bound.map_or(table, |bound| self.bounded(level, table, bound))
            }
            parts => {
                let (left, right) = parts.split_at(parts.len() / 2);
                let (left, right) = (self.run(level, left, bound), self.run(level, right, bound));
                self.merge(level, left.min(right), left.max(right), bound)
            }
        }
    }

    /// A domain's table without what a bound rules out.
    fn bounded(&mut self, level: LevelIndex, table: TableId, bound: &Bound) -> TableId {
        if let Some(id) = self.by_bound.get(&(bound.id, table)) {
            return *id;
        }
        let start = self.cells.len();
        self.cells.extend_from_within(self.tables[table as usize].cells.clone());
        self.rule_out(level, start, bound);
        let id = self.intern(start);
        self.by_bound.insert((bound.id, table), id);
        id
    }

    /// Takes the placements that a bound rules out from a table that is being made.
    fn rule_out(&mut self, level: LevelIndex, start: usize, bound: &Bound) {
        let layout = self.layout;
        for (members, cell) in self.cells[start..].iter_mut().enumerate().filter(|(_, cell)| **cell != C::NEVER) {
            let (used, children) = (layout.used_of(level, *cell), layout.used_of(level + 1, *cell));
            if !bound.limits.allow(members, used, children) {
                *cell = C::NEVER;
            }
        }
    }

    fn domain_table(&mut self, level: LevelIndex, domain: usize) -> TableId {
        if let Some(id) = self.by_domain[level][domain] {
            return id;
        }
        self.work.vertices += 1;
        // A domain that holds bound members only, and is full, has no open child.
        let below = self.children(level, domain).and_then(|children| {
            let parts = self.open(level + 1, children);
            (!parts.is_empty()).then(|| self.run(level + 1, &parts, None))
        });
        let class = Class {
            level,
            slots: self.capacity.slots[level][domain],
            free: self.capacity.free[level][domain],
            whole: self.capacity.whole[level][domain],
            bound: self.capacity.bound[level][domain] > 0,
            allowed: self.rules.allowed(self.capacity, level, domain),
            below,
        };
        let id = match self.by_class.get(&class) {
            Some(id) => *id,
            None => {
                let start = self.cells.len();
                for members in 0..=self.cap(level, domain) {
                    let below = below.map_or(C::ZERO, |below| self.table(below)[members]);
                    let allowed = class.allowed.is_none_or(|allowed| allowed.contains(members as u64));
                    let own = if allowed { self.cost(level, domain, members) } else { C::NEVER };
                    self.cells.push(below.plus(own).settled());
                }
                let id = self.intern(start);
                self.by_class.insert(class, id);
                id
            }
        };
        self.by_domain[level][domain] = Some(id);
        id
    }

    fn merge(&mut self, level: LevelIndex, left: TableId, right: TableId, bound: Option<&Bound>) -> TableId {
        let key = (bound.map_or(0, |bound| bound.id), left, right);
        if let Some(id) = self.by_pair.get(&key) {
            return *id;
        }
        let (a, b) = (self.tables[left as usize].clone(), self.tables[right as usize].clone());
        let length = (a.cells.len() + b.cells.len() - 1).min(self.limit + 1);
        let start = self.cells.len();
        self.cells.resize(start + length, C::NEVER);
        let (made, merged) = self.cells.split_at_mut(start);
        // The longer table runs inside.
        let (outer, inner) = if a.span.len() < b.span.len() { (a, b) } else { (b, a) };
        let (first_of, second_of) = (&made[outer.cells], &made[inner.cells]);
        let seconds = &second_of[inner.span.clone()];
        for offset in std::iter::once(0).chain(outer.span) {
            let first = first_of[offset];
            if first == C::NEVER {
                continue;
            }
            // Nobody in the other table, then everybody it may hold.
            if let Some(cell) = merged.get_mut(offset) {
                *cell = (*cell).min(first.plus(second_of[0]));
            }
            let out = merged.get_mut(offset + inner.span.start..).unwrap_or_default();
            self.work.cells += 1 + out.len().min(seconds.len()) as u64;
            for (cell, second) in out.iter_mut().zip(seconds) {
                let sum = first.plus(*second);
                if sum < *cell {
                    *cell = sum;
                }
            }
        }
        for cell in merged {
            *cell = cell.settled();
        }
        if let Some(bound) = bound {
            self.rule_out(level, start, bound);
        }
        let id = self.intern(start);
        self.by_pair.insert(key, id);
        id
    }

    fn intern(&mut self, start: usize) -> TableId {
        let cells = &self.cells[start..];
        let possible = |cell: &C| *cell != C::NEVER;
        let last = cells.iter().rposition(possible).map_or(1, |last| last + 1);
        let first = cells.iter().skip(1).position(possible).map_or(last.max(1), |first| first + 1);
        self.tables.push(Table { cells: start..self.cells.len(), span: first..last.max(first) });
        u32::try_from(self.tables.len() - 1).expect("a tree has fewer tables than u32 can count")
    }
}
