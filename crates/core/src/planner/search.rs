//! How many members every host takes: the cap and elastic members, around the knapsack.

use std::ops::Range;

use super::capacity::Capacity;
use super::cost::{Cost, Layout};
use super::knapsack::{Pruning, Solver};
use super::rules::Rules;
use super::window::Windows;
use crate::planner::plan::{Elastic, LevelIndex, Placement, Policy, Work};
use crate::topology::{MAX_LEVELS, Tree};

/// Limbs that hold any vector: three fields per level, each in a limb of its own at worst.
pub(super) const MOST_LIMBS: usize = 3 * MAX_LEVELS;

/// Where the gang may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Domains {
    /// Anywhere.
    Any,
    /// Inside one domain of a level.
    OneOf {
        /// The level.
        level: LevelIndex,
    },
    /// Inside this domain, where members are bound already.
    Fixed {
        /// The level.
        level: LevelIndex,
        /// The domain.
        domain: usize,
    },
}

impl Domains {
    /// The level whose domain all members share.
    pub(super) fn level(&self) -> Option<LevelIndex> {
        match self {
            Self::Any => None,
            Self::OneOf { level } | Self::Fixed { level, domain: _ } => Some(*level),
        }
    }

    /// How many new members fit at most.
    pub(super) fn most(&self, tree: &Tree, rules: &Rules) -> u64 {
        let Some((level, domains)) = self.candidates(tree) else {
            return rules.most.first().map_or(0, |most| most.iter().sum());
        };
        domains.map(|domain| most_under(tree, rules, level, domain)).max().unwrap_or(0)
    }

    /// The level and the domains to choose one from; `None` if there is no cap.
    pub(super) fn candidates<'t>(&self, tree: &'t Tree) -> Option<(LevelIndex, impl Iterator<Item = usize> + use<'t>)> {
        let (level, domains) = match *self {
            Self::Any => return None,
            Self::OneOf { level } => (level, 0..tree.level(level).len()),
            Self::Fixed { level, domain } => (level, domain..domain + 1),
        };
        Some((level, domains.filter(move |domain| tree.satisfies(level, *domain))))
    }
}

/// The most that a domain can take, given what those around it may.
fn most_under(tree: &Tree, rules: &Rules, level: LevelIndex, domain: usize) -> u64 {
    let mut most = rules.most[level][domain];
    let mut parent = tree.level(level)[domain].parent;
    for above in (0..level).rev() {
        most = most.min(rules.most[above][parent]);
        parent = tree.level(above)[parent].parent;
    }
    most
}

/// The best counts of new members, one per host in depth-first order.
///
/// Their sum is in `numbers`: ascending, not empty, and each can be placed. The knapsack answers everything but balance,
/// which asks it once per window.
pub(super) fn counts(search: &Search<'_>, numbers: &[usize], work: &mut Work) -> Vec<u32> {
    let Some(most) = numbers.last().copied().filter(|most| *most > 0) else {
        return vec![0; search.tree.hosts().len()];
    };
    let layout = Layout::new(search.policy.placement, search.capacity, most as u64);
    match layout.limbs {
        ..=2 => search.run::<u128>(&layout, numbers, work),
        3..=4 => search.run::<[u64; 4]>(&layout, numbers, work),
        5..=8 => search.run::<[u64; 8]>(&layout, numbers, work),
        _ => search.run::<[u64; MOST_LIMBS]>(&layout, numbers, work),
    }
}

/// What a search looks at.
pub(super) struct Search<'a> {
    pub(super) tree: &'a Tree,
    pub(super) capacity: &'a Capacity,
    pub(super) rules: &'a Rules,
    pub(super) policy: &'a Policy,
    pub(super) pruning: Pruning,
    pub(super) domains: &'a Domains,
    /// The level to balance over.
    pub(super) balance: Option<LevelIndex>,
}

/// The cheapest candidate domain, `None` without a cap, and the cost.
type Best<C> = (Option<(LevelIndex, usize)>, C);

impl Search<'_> {
    fn run<C: Cost>(&self, layout: &Layout, numbers: &[usize], work: &mut Work) -> Vec<u32> {
        debug_assert!(layout.limbs <= C::LIMBS, "the vector fits its type");
        let most = numbers.last().copied().unwrap_or(0);
        let mut solver = self.solver::<C>(layout, self.rules, most);
        let counts = match self.balance {
            None => {
                let cost = |number| self.best(&mut solver, self.rules, number).1;
                let number = number(self.policy, layout.used_mask(), numbers, cost);
                let best = self.best(&mut solver, self.rules, number);
                self.assign(&mut solver, best, number)
            }
            Some(level) => self.balanced(&mut solver, layout, level, numbers, work),
        };
        work.add(solver.work());
        counts
    }

    fn solver<'s, C: Cost>(&'s self, layout: &'s Layout, rules: &'s Rules, most: usize) -> Solver<'s, C> {
        Solver::new(self.tree, self.capacity, layout, rules, self.policy.placement, self.pruning, most)
    }

    fn assign<C: Cost>(&self, solver: &mut Solver<'_, C>, best: Best<C>, number: usize) -> Vec<u32> {
        let mut counts = vec![0; self.tree.hosts().len()];
        match best.0 {
            None => solver.assign_among(0, self.top(), &[number], &mut counts),
            Some((level, domain)) => solver.assign(level, domain, &[number], &mut counts),
        };
        counts
    }

    /// The best counts where the difference between the fullest and the emptiest used domain of a level is a field.
    ///
    /// What stands above that field is solved first. The smallest difference that keeps it is found by doubling and
    /// bisection, since a wider window allows all that a narrower one does; then every window of that width is tried.
    fn balanced<C: Cost>(
        &self,
        solver: &mut Solver<'_, C>,
        layout: &Layout,
        level: LevelIndex,
        numbers: &[usize],
        work: &mut Work,
    ) -> Vec<u32> {
        let mask = layout.above_balance::<C>(self.policy.placement, level);
        let all = match self.policy.elastic {
            Elastic::Spread => &numbers[numbers.len() - 1..],
            Elastic::Inside => numbers,
        };
        let above: Vec<C> = all.iter().map(|number| self.best(solver, self.rules, *number).1.masked(mask)).collect();
        let least = above.iter().copied().min().unwrap_or(C::NEVER);
        let kept: Vec<usize> =
            all.iter().zip(&above).filter(|(_, above)| **above == least).map(|(number, _)| *number).collect();
        let bound = &self.capacity.bound[level];
        let held: u64 = bound.iter().map(|bound| u64::from(*bound)).sum();
        let standing = bound.iter().filter(|bound| **bound > 0).count() as u64;
        let used = (layout.used_of(level, least) + standing).max(1);
        let (fewest, most) = (kept[0] as u64 + held, kept[kept.len() - 1] as u64 + held);
        let windows = Windows::new(self.rules, self.capacity, level, used, (fewest, most));
        let mut probe = |width: u64| {
            let mut found: Option<(_, Vec<u32>)> = None;
            for start in windows.starts(width) {
                let rules = self.rules.windowed(level, start..=start + width);
                let mut solver = self.solver::<C>(layout, &rules, kept[kept.len() - 1]);
                for &number in &kept {
                    let best = self.best(&mut solver, &rules, number);
                    if best.1 == C::NEVER || best.1.masked(mask) != least {
                        continue;
                    }
                    // Field 3 stands after field 2: with locality before the rest, with packing after everything.
                    let first = match self.policy.placement {
                        Placement::Locality => best.1.masked(layout.used_mask()),
                        Placement::Packing => best.1,
                    };
                    let key = (first, numbers[numbers.len() - 1] - number, best.1);
                    if found.as_ref().is_some_and(|(least, _)| *least < key) {
                        continue;
                    }
                    let counts = self.assign(&mut solver, best, number);
                    if found.as_ref().is_none_or(|(least, chosen)| key < *least || counts > *chosen) {
                        found = Some((key, counts));
                    }
                }
                work.add(solver.work());
            }
            found.map(|(_, counts)| counts)
        };
        let mut width = windows.narrowest(most);
        let mut fails = width.checked_sub(1);
        let mut counts = probe(width);
        while counts.is_none() && width <= most {
            fails = Some(width);
            width = (width * 2).max(1);
            counts = probe(width);
        }
        let mut counts = counts.unwrap_or_else(|| vec![0; self.tree.hosts().len()]);
        while let Some(fail) = fails.filter(|fail| fail + 1 < width) {
            let middle = fail.midpoint(width);
            match probe(middle) {
                Some(better) => (width, counts) = (middle, better),
                None => fails = Some(middle),
            }
        }
        counts
    }

    /// The cheapest candidate domain for exactly `number` members and what it costs with all its ancestors; `None` and
    /// the whole tree's cost if there is no cap. Candidates are taken in order, and of equal ones the first wins: its
    /// counts are lexicographically larger.
    fn best<C: Cost>(&self, solver: &mut Solver<'_, C>, rules: &Rules, number: usize) -> Best<C> {
        let Some((level, candidates)) = self.domains.candidates(self.tree) else {
            return (None, solver.value_among(0, self.top(), number));
        };
        let mut best = (None, C::NEVER);
        for domain in candidates.filter(|domain| rules.most[level][*domain] >= number as u64) {
            let mut cost = solver.value(level, domain, number);
            let mut parent = self.tree.level(level)[domain].parent;
            for above in (0..level).rev() {
                cost = cost.plus(solver.own(above, parent, number)).settled();
                parent = self.tree.level(above)[parent].parent;
            }
            if cost < best.1 {
                best = (Some((level, domain)), cost);
            }
        }
        best
    }

    fn top(&self) -> Range<usize> {
        0..self.tree.level(0).len()
    }
}

/// How many members to place: field 3. `numbers` is ascending and not empty; `cost` is the least cost of a number, of
/// which `mask` keeps field 2.
pub(super) fn number<C: Cost>(policy: &Policy, mask: C, numbers: &[usize], mut cost: impl FnMut(usize) -> C) -> usize {
    let (least, most) = (numbers[0], numbers[numbers.len() - 1]);
    match (policy.elastic, policy.placement) {
        (Elastic::Spread, Placement::Locality | Placement::Packing) => most,
        _ if least == most => most,
        (Elastic::Inside, Placement::Locality) => {
            // Taking a member or a slice away never uses more domains, so the numbers that need no more domains
            // than the least are the first few: bisect.
            let needed = cost(least).masked(mask);
            let (mut fits, mut beyond) = (0, numbers.len());
            while fits + 1 < beyond {
                let middle = fits.midpoint(beyond);
                let cost = cost(numbers[middle]);
                if cost.masked(mask) == needed { fits = middle } else { beyond = middle }
            }
            numbers[fits]
        }
        (Elastic::Inside, Placement::Packing) => {
            // Fragmentation first: any number may win. Of equally good ones the largest.
            let cost = |number: &usize| (cost(*number), most - number);
            numbers.iter().copied().min_by_key(cost).unwrap_or(least)
        }
    }
}
