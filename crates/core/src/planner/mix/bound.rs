//! What no placement of several shapes can be below: a vector per candidate domain.
//!
//! Give every member a weight, the same for all of one shape. Then a host holds at most a certain weight, and a
//! placement of the gang is one of so much weight as if it were so many members of one shape: the knapsack of one shape
//! says how few domains that takes. This holds for any weights, so the largest of several such vectors is a bound: each
//! shape alone, all members together, the amount of each resource. For the main shape alone the whole vector is one,
//! since more members beside it never use, break or leave over less.

use super::super::capacity::{Capacity, Measure};
use super::super::cost::{Cost, Layout};
use super::super::knapsack::{Pruning, Solver};
use super::super::rules::Rules;
use super::super::search::MOST_LIMBS;
use super::field::{Field, Weight};
use crate::planner::plan::{Elastic, LevelIndex, Placement, Work};

/// Squares of the needed weights that may be merged: a knapsack costs about as much.
const MOST_SQUARES: u64 = 40_000_000;

/// A candidate domain, or everything.
pub(super) type Candidate = Option<(LevelIndex, usize)>;

/// A vector per candidate, `None` for one that cannot hold the gang.
pub(super) fn bounds(field: &Field<'_>, candidates: &[Candidate], work: &mut Work) -> Vec<Option<Vec<u64>>> {
    let must = field.must();
    let open: Vec<bool> = candidates.iter().map(|candidate| field.may_hold(*candidate, &must)).collect();
    let mut found: Vec<Option<Vec<u64>>> = vec![None; candidates.len()];
    let depth = field.tree.depth();
    for (index, candidate) in candidates.iter().enumerate().filter(|(index, _)| open[*index]) {
        let used: Vec<u64> = (0..depth).map(|level| field.stand(level)).collect();
        let zero = vec![0; depth];
        found[index] = Some(field.ordered(&used, unplaced(field, *candidate), &zero, &zero));
    }
    let mut squares = MOST_SQUARES;
    for weight in &field.weights {
        let cost = weight.may.saturating_mul(weight.may);
        if weight.must == 0 || cost > squares {
            continue;
        }
        squares -= cost;
        let capacity = Capacity {
            slots: weight.caps.clone(),
            // Only the number of domains is read.
            free: weight.caps.clone(),
            measure: Measure::default(),
            bound: field.capacity.bound.clone(),
            whole: field.capacity.whole.iter().map(|whole| vec![false; whole.len()]).collect(),
        };
        let layout = Layout::new(Placement::Locality, &capacity, weight.may);
        let relaxed = Relaxed { field, weight, capacity: &capacity, layout: &layout, placement: Placement::Locality };
        relaxed.solve(candidates, &mut found, false, work);
    }
    let main = field.groups.first().filter(|main| main.must == main.may && main.must > 0);
    if let Some(main) = main.filter(|main| u64::from(main.may).pow(2) <= squares) {
        let mut each = vec![0; field.groups.len()];
        each[0] = 1;
        let (must, may) = (u64::from(main.must), u64::from(main.may));
        let weight = Weight { each, must, may, caps: field.capacity.slots.clone() };
        let placement = field.policy.placement;
        let layout = Layout::new(placement, &field.capacity, may);
        let relaxed = Relaxed { field, weight: &weight, capacity: &field.capacity, layout: &layout, placement };
        relaxed.solve(candidates, &mut found, true, work);
    }
    found
}

/// Elastic members that cannot be placed at all.
fn unplaced(field: &Field<'_>, candidate: Candidate) -> u64 {
    let missing = |weight: &Weight| weight.may.saturating_sub(weight.cap(candidate));
    let together = field.weights.iter().filter(|weight| weight.each.iter().all(|each| *each == 1)).map(missing).max();
    let single = field.weights.iter().filter(|weight| weight.each.iter().sum::<u64>() == 1).map(missing).sum();
    let any = field.weights.iter().any(|weight| missing(weight) > 0);
    together.unwrap_or(0).max(single).max(any.into())
}

struct Relaxed<'a> {
    field: &'a Field<'a>,
    weight: &'a Weight,
    capacity: &'a Capacity,
    layout: &'a Layout,
    placement: Placement,
}

impl Relaxed<'_> {
    fn solve(&self, candidates: &[Candidate], found: &mut [Option<Vec<u64>>], whole: bool, work: &mut Work) {
        match self.layout.limbs {
            ..=2 => self.run::<u128>(candidates, found, whole, work),
            3..=4 => self.run::<[u64; 4]>(candidates, found, whole, work),
            5..=8 => self.run::<[u64; 8]>(candidates, found, whole, work),
            _ => self.run::<[u64; MOST_LIMBS]>(candidates, found, whole, work),
        }
    }

    /// Raises what was found; all fields count if `whole`, else the domains used.
    fn run<C: Cost>(&self, candidates: &[Candidate], found: &mut [Option<Vec<u64>>], whole: bool, work: &mut Work) {
        let Self { field, weight, capacity, layout, placement } = *self;
        let tree = field.tree;
        let rules = Rules::plain(capacity.slots.clone());
        let limit = usize::try_from(weight.may).unwrap_or(usize::MAX);
        let mut solver = Solver::<C>::new(tree, capacity, layout, &rules, placement, Pruning::On, limit);
        for (candidate, found) in candidates.iter().zip(found) {
            let Some(known) = found else { continue };
            let missing = unplaced(field, *candidate);
            // With as many as possible first, who leaves nobody out has to place all.
            let all = field.policy.elastic == Elastic::Spread && missing == 0;
            let cap = weight.cap(*candidate);
            if cap < weight.must {
                *found = None;
                continue;
            }
            let number = if all && weight.may <= cap { weight.may } else { weight.must };
            let number = usize::try_from(number).unwrap_or(usize::MAX);
            let cost = match *candidate {
                None => solver.value_among(0, 0..tree.level(0).len(), number),
                Some((level, domain)) => {
                    let mut cost = solver.value(level, domain, number);
                    let mut parent = tree.level(level)[domain].parent;
                    for above in (0..level).rev() {
                        cost = cost.plus(solver.own(above, parent, number)).settled();
                        parent = tree.level(above)[parent].parent;
                    }
                    cost
                }
            };
            if cost == C::NEVER {
                continue;
            }
            let depth = tree.depth();
            let used: Vec<u64> = (0..depth).map(|level| layout.used_of(level, cost) + field.stand(level)).collect();
            let zero = || vec![0; depth];
            let rest = |of: fn(&Layout, LevelIndex, C) -> u64| {
                if whole { (0..depth).map(|level| of(layout, level, cost)).collect() } else { zero() }
            };
            let (broken, left) = (rest(Layout::broken_of), rest(Layout::left_of));
            let bound = field.ordered(&used, missing, &broken, &left);
            if bound > *known {
                *known = bound;
            }
        }
        work.add(solver.work());
    }
}
