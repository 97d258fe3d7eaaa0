//! Whole nodes from the fractions of a linear programme: the whole part of each pattern is launched, and the programme is solved
//! again for the pods that are left, until so few are left that they can be enumerated.

use std::sync::Arc;

use super::bound::Prices;
use super::columns::{self, Columns, Solved};
use super::exact;
use super::fill;
use super::state::State;

/// A fraction this far below a whole number is one.
const WHOLE: f64 = 1e-6;
/// Patterns that are looked at to enumerate what is left.
const LEFT_PATTERNS: u64 = 20_000;

/// Pods without a place: how many of each class, and the classes in their order.
struct Left {
    /// `[class]`.
    counts: Vec<u32>,
    classes: Vec<usize>,
}

impl Left {
    fn new(state: &State<'_, '_>, plain: &[(usize, u32)]) -> Self {
        let mut counts = vec![0; state.compiled.requests.len()];
        plain.iter().for_each(|(class, count)| counts[*class] += count);
        // Whom no offer holds has no pattern.
        let held = plain.iter().map(|(class, _)| *class).filter(|class| state.holding(*class).iter().next().is_some());
        Self { counts, classes: held.collect() }
    }

    fn listed(&self) -> Vec<(usize, u32)> {
        self.classes.iter().map(|class| (*class, self.counts[*class])).filter(|(_, count)| *count > 0).collect()
    }

    /// Pods of the classes that are left for a pattern of shapes.
    fn drawn(&self, columns: &Columns, pods: &[u32]) -> Vec<(usize, u32)> {
        let mut drawn = Vec::new();
        for (shape, number) in columns.shapes.iter().zip(pods) {
            let mut number = *number;
            for (class, _) in &shape.classes {
                let count = self.counts[*class].min(number);
                number -= count;
                if count > 0 {
                    drawn.push((*class, count));
                }
            }
        }
        drawn
    }

    /// Launches nodes with these pods as long as there are so many, `most` at most, as the cheapest offer that holds them; how many
    /// limits allow.
    fn launch(&mut self, state: &mut State<'_, '_>, counts: &[(usize, u32)], most: u32) -> u32 {
        let mask = state.becoming(counts);
        let Some(offer) = state.cheapest(&mask, None) else { return 0 };
        let enough = counts.iter().map(|(class, count)| self.counts[*class] / count).min().unwrap_or(0);
        let more = state.needs(offer, &mask).unwrap_or_default().more;
        let times = state.capacity(offer, &more, None, enough.min(most));
        state.open(offer, counts, times);
        counts.iter().for_each(|(class, count)| self.counts[*class] -= count * times);
        times
    }

    /// Launches the whole part of each pattern; a node of the most needed one where there is none. `false` if nothing could be
    /// launched.
    fn launch_whole(&mut self, state: &mut State<'_, '_>, columns: &Columns) -> bool {
        let mut any = false;
        for pattern in &columns.used {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of nodes")]
            let mut times = (pattern.times + WHOLE).floor() as u32;
            while times > 0 {
                let counts = self.drawn(columns, &pattern.pods);
                let launched = if counts.is_empty() { 0 } else { self.launch(state, &counts, times) };
                if launched == 0 {
                    break;
                }
                times -= launched;
                any = true;
            }
        }
        let largest = columns.used.iter().max_by(|one, other| one.times.total_cmp(&other.times));
        any || largest.is_some_and(|pattern| {
            let counts = self.drawn(columns, &pattern.pods);
            !counts.is_empty() && self.launch(state, &counts, 1) > 0
        })
    }
}

/// The state with nodes for these pods that no counter concerns; `None` where there is no programme for them. Who finds no place
/// is missing from it.
pub(super) fn dived<'c, 'p>(
    state: &mut State<'c, 'p>,
    plain: &[(usize, u32)],
    prices: &Prices,
) -> Option<State<'c, 'p>> {
    let mut tried = state.clone();
    let (mut solved, mut missing) = (false, Vec::new());
    for group in groups(state, plain) {
        let mut left = Left::new(state, &group);
        solved |= launched(state, &mut tried, &mut left);
        missing.extend(left.listed());
    }
    state.work = tried.work;
    tried.solved.clone_from(&state.solved);
    if !solved {
        return None;
    }
    // What limits forbid, or what there was no budget for.
    fill::packed(&mut tried, &mut missing, prices);
    Some(tried)
}

/// Classes of which none keeps off the nodes of another one of its group: a pattern says how many of each shape a node holds, and not
/// who may stand beside whom.
fn groups(state: &State<'_, '_>, plain: &[(usize, u32)]) -> Vec<Vec<(usize, u32)>> {
    let mut groups: Vec<Vec<(usize, u32)>> = Vec::new();
    for (class, count) in plain.iter().copied().filter(|(_, count)| *count > 0) {
        match groups.iter_mut().find(|group| state.compiled.apart_from(class, group)) {
            Some(group) => group.push((class, count)),
            None => groups.push(vec![(class, count)]),
        }
    }
    groups
}

/// Launches nodes for a group as long as there is a programme for who is left; `false` if there was none.
fn launched<'c, 'p>(state: &mut State<'c, 'p>, tried: &mut State<'c, 'p>, left: &mut Left) -> bool {
    let most = state.compiled.problem.budget.columns;
    let mut solved = false;
    loop {
        let wanted = left.listed();
        if wanted.is_empty() {
            break;
        }
        if let Some(packing) = exact::pack(tried, &wanted, LEFT_PATTERNS).filter(|_| solved) {
            packing.iter().for_each(|(_, counts)| {
                left.launch(tried, counts, 1);
            });
            break;
        }
        let budget = most.saturating_sub(tried.work.columns);
        let Some(columns) = columns::solve(state.compiled, &state.tier, &wanted, budget) else { break };
        tried.work.columns += columns.steps;
        let goes_on = left.launch_whole(tried, &columns);
        if !solved {
            state.solved.get_or_insert_with(|| Arc::new(Solved::new(&state.tier, &wanted, columns)));
        }
        solved = true;
        if !goes_on {
            break;
        }
    }
    solved
}
