//! Nodes that may as well be one: of plans that cost the same the one with fewer nodes is better.
//!
//! A node gives all of its pods to another one, if the larger node that both need then costs no more than the two. Pods that
//! counters concern stay in their domains, so that nothing any constraint counts changes by it.

use super::bits::Bits;
use super::draft::Draft;
use super::state::{Slot, State};

/// Nodes that a node is held against.
const OTHERS: usize = 80;

/// How one node for the pods of both comes.
struct Merged {
    offer: usize,
    mask: Bits,
}

/// What decides at once that two nodes stay two.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Brief {
    weight: u32,
    /// The cell that pods which counters concern have to stay in.
    cell: Option<usize>,
}

impl Brief {
    fn of(state: &State<'_, '_>, at: usize) -> Self {
        let slot = &state.slots[at];
        let problem = state.compiled.problem;
        let linked = slot.counts.iter().any(|(class, _)| state.topology.links(*class));
        Self {
            weight: problem.pools[state.compiled.offer(slot.offer).pool].weight,
            cell: linked.then(|| state.topology.cell_of[slot.offer]),
        }
    }

    fn may_be_one_with(self, other: Self) -> bool {
        self.weight == other.weight && (self.cell == other.cell || self.cell.is_none() || other.cell.is_none())
    }
}

/// Merges nodes of the draft, the cheapest first.
pub(super) fn merged<'c, 'p>(mut draft: Draft<'c, 'p>) -> Draft<'c, 'p> {
    let problem = draft.state.compiled.problem;
    let first = problem.nodes.len();
    if draft.proven || draft.state.topology.is_partial() || problem.budget.mending == 0 {
        return draft;
    }
    let mut pods: Vec<Vec<usize>> = vec![Vec::new(); draft.state.slots.len()];
    for (pod, slot) in draft.slots.iter().enumerate() {
        if let Some(at) = slot {
            pods[*at].push(pod);
        }
    }
    let is_free = |state: &State<'_, '_>, at: usize| {
        let classes = &state.slots[at].counts;
        !classes.is_empty() && !classes.iter().any(|(class, _)| state.topology.by_host(*class))
    };
    let price = |state: &State<'_, '_>, at: usize| state.compiled.offer(state.slots[at].offer).price;
    let mut free: Vec<usize> = (first..draft.state.slots.len()).filter(|at| is_free(&draft.state, *at)).collect();
    free.sort_by_key(|at| (price(&draft.state, *at), *at));
    // Those that stand for a reason of their own take others in; what is left are merged with each other.
    let mut others: Vec<usize> =
        (first..draft.state.slots.len()).filter(|at| !draft.state.slots[*at].counts.is_empty()).collect();
    others.sort_by_key(|at| (is_free(&draft.state, *at), *at));
    let mut briefs: Vec<Option<Brief>> = vec![None; draft.state.slots.len()];
    others.iter().for_each(|at| briefs[*at] = Some(Brief::of(&draft.state, *at)));
    let mut start = 0_usize;
    for at in free {
        let state = &mut draft.state;
        let Some(own) = briefs[at] else { continue };
        let mut best: Option<(u64, usize, Merged)> = None;
        let may = |other: &usize| *other != at && briefs[*other].is_some_and(|brief| own.may_be_one_with(brief));
        let (before, after) = others.split_at(start % others.len());
        let mut looked_at = 0;
        for (step, other) in
            after.iter().chain(before).copied().enumerate().filter(|(_, other)| may(other)).take(OTHERS)
        {
            looked_at = step + 1;
            state.work.mended += 1;
            let most = price(state, at) + price(state, other);
            let Some(merged) = merge(state, at, other, most) else { continue };
            let saved = most - state.compiled.offer(merged.offer).price;
            if best.as_ref().is_none_or(|(largest, ..)| saved > *largest) {
                best = Some((saved, other, merged));
            }
        }
        // The next one begins elsewhere, so that not all go to the same few.
        start = start.wrapping_add(looked_at);
        let Some((_, other, merged)) = best else { continue };
        state.absorb(at, other, (merged.offer, merged.mask));
        briefs[at] = None;
        briefs[other] = Some(Brief::of(state, other));
        let moved = std::mem::take(&mut pods[at]);
        moved.iter().for_each(|pod| draft.slots[*pod] = Some(other));
        pods[other].extend(moved);
    }
    draft
}

/// The cheapest node for the pods of both, where those of the second may stand; `None` if there is none for so many dollars,
/// or they may not stand together.
fn merge(state: &State<'_, '_>, from: usize, at: usize, most: u64) -> Option<Merged> {
    let compiled = state.compiled;
    let (from, to) = (&state.slots[from], &state.slots[at]);
    let mut mask = to.mask.clone();
    for (class, _) in &from.counts {
        mask.intersect(&compiled.takes[*class]);
        if state.topology.links(*class) {
            mask.intersect(&state.topology.cells[state.topology.cell_of[from.offer]]);
            state.topology.keep_alike(*class, from.offer, &mut mask);
        }
    }
    if to.counts.iter().any(|(class, _)| state.topology.links(*class)) {
        mask.intersect(&state.topology.cells[state.topology.cell_of[to.offer]]);
        to.counts.iter().for_each(|(class, _)| state.topology.keep_alike(*class, to.offer, &mut mask));
    }
    if from.counts.iter().any(|(class, _)| compiled.shares(*class)) {
        compiled.holding(&mut mask, &compiled.load_of(&both(to, from)));
    } else {
        let load: Vec<i64> = to.load.iter().zip(&from.load).map(|(one, other)| one.saturating_add(*other)).collect();
        compiled.holding(&mut mask, &load);
    }
    // Offers come in the order of their prices.
    mask.iter().next().filter(|at| compiled.offer(*at).price <= most)?;
    let offer = state.cheapest(&mask, Some(at)).filter(|at| compiled.offer(*at).price <= most)?;
    compiled.all_together(&both(to, from), state.least).then_some(Merged { offer, mask })
}

/// The pods of two nodes.
fn both(one: &Slot, other: &Slot) -> Vec<(usize, u32)> {
    let mut counts = one.counts.clone();
    for (class, count) in &other.counts {
        match counts.iter_mut().find(|(known, _)| known == class) {
            Some((_, known)) => *known += count,
            None => counts.push((*class, *count)),
        }
    }
    counts
}
