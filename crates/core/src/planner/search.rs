//! How many members every host takes: the cap and elastic members, around the knapsack.

use std::ops::{Range, RangeInclusive};

use super::cost::{Cost, Layout};
use super::knapsack::{Pruning, Solver};
use super::room::Room;
use crate::plan::{Elastic, LevelIndex, Placement, Policy, Work};
use crate::topology::{MAX_LEVELS, Tree};

/// Limbs that hold any vector: three fields per level, each in a limb of its own at worst.
const MOST_LIMBS: usize = 3 * MAX_LEVELS;

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
    /// How many new members fit at most.
    pub(super) fn most(&self, tree: &Tree, room: &Room) -> u64 {
        match self.candidates(tree) {
            None => room.total(),
            Some((level, domains)) => domains.map(|domain| room.slots[level][domain]).max().unwrap_or(0),
        }
    }

    /// The level and the domains to choose one from; `None` if there is no cap.
    fn candidates<'t>(&self, tree: &'t Tree) -> Option<(LevelIndex, impl Iterator<Item = usize> + use<'t>)> {
        let (level, domains) = match *self {
            Self::Any => return None,
            Self::OneOf { level } => (level, 0..tree.level(level).len()),
            Self::Fixed { level, domain } => (level, domain..domain + 1),
        };
        Some((level, domains.filter(move |domain| tree.satisfies(level, *domain))))
    }
}

/// The best counts of new members, one per host in depth-first order.
///
/// Their sum is in `members`: the members that must be placed, and the most that fit.
pub(super) fn counts(
    tree: &Tree,
    room: &Room,
    policy: &Policy,
    pruning: Pruning,
    domains: &Domains,
    members: RangeInclusive<usize>,
    work: &mut Work,
) -> Vec<u32> {
    if *members.end() == 0 {
        return vec![0; tree.hosts().len()];
    }
    let layout = Layout::new(policy.placement, room, *members.end() as u64);
    let search = Search { tree, room, policy, layout: &layout, domains };
    match layout.limbs {
        ..=2 => search.run::<u128>(pruning, members, work),
        3..=4 => search.run::<[u64; 4]>(pruning, members, work),
        5..=8 => search.run::<[u64; 8]>(pruning, members, work),
        _ => search.run::<[u64; MOST_LIMBS]>(pruning, members, work),
    }
}

struct Search<'a> {
    tree: &'a Tree,
    room: &'a Room,
    policy: &'a Policy,
    layout: &'a Layout,
    domains: &'a Domains,
}

impl Search<'_> {
    fn run<C: Cost>(&self, pruning: Pruning, members: RangeInclusive<usize>, work: &mut Work) -> Vec<u32> {
        debug_assert!(self.layout.limbs <= C::LIMBS, "the vector fits its type");
        let limit = *members.end();
        let mut solver = Solver::<C>::new(self.tree, self.room, self.layout, self.policy.placement, pruning, limit);
        let number = self.number(&mut solver, members);
        let mut counts = vec![0; self.tree.hosts().len()];
        match self.best(&mut solver, number) {
            (None, _) => solver.assign_among(0, self.top(), &[number], &mut counts),
            (Some((level, domain)), _) => solver.assign(level, domain, &[number], &mut counts),
        };
        *work = solver.work();
        counts
    }

    /// How many members to place: field 3.
    fn number<C: Cost>(&self, solver: &mut Solver<'_, C>, members: RangeInclusive<usize>) -> usize {
        let (least, most) = members.into_inner();
        match (self.policy.elastic, self.policy.placement) {
            (Elastic::Spread, Placement::Locality | Placement::Packing) => most,
            (Elastic::Inside, Placement::Locality) => {
                // Taking a member away never uses more domains, so the numbers that need no more domains than the
                // least are the first few: bisect.
                let mask = self.layout.used_mask::<C>();
                let needed = self.best(solver, least).1.masked(mask);
                let (mut fits, mut beyond) = (least, most + 1);
                while fits + 1 < beyond {
                    let middle = fits.midpoint(beyond);
                    if self.best(solver, middle).1.masked(mask) == needed { fits = middle } else { beyond = middle }
                }
                fits
            }
            (Elastic::Inside, Placement::Packing) => {
                // Fragmentation first: any number may win. Of equally good ones the largest.
                let cost = |number: &usize| (self.best(solver, *number).1, most - number);
                (least..=most).min_by_key(cost).unwrap_or(least)
            }
        }
    }

    /// The cheapest candidate domain for exactly `number` members and what it costs with all its ancestors; `None` and
    /// the whole tree's cost if there is no cap. Candidates are taken in order, and of equal ones the first wins: its
    /// counts are lexicographically larger.
    fn best<C: Cost>(&self, solver: &mut Solver<'_, C>, number: usize) -> (Option<(LevelIndex, usize)>, C) {
        let Some((level, candidates)) = self.domains.candidates(self.tree) else {
            return (None, solver.value_among(0, self.top(), number));
        };
        let mut best = (None, C::MAX);
        for domain in candidates.filter(|domain| self.room.slots[level][*domain] >= number as u64) {
            let mut cost = solver.value(level, domain, number);
            let mut parent = self.tree.level(level)[domain].parent;
            for above in (0..level).rev() {
                cost = cost.plus(solver.own(above, parent, number));
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
