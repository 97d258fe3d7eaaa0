//! Nodes that may as well be one: of plans that cost the same the one with fewer nodes is better.
//!
//! A node gives all of its pods to another one, if the larger node that both need then costs no more than the two. Pods that
//! counters concern stay in their domains, so that nothing any constraint counts changes by it.

use super::bits::Bits;
use super::draft::Draft;
use super::state::State;

/// Nodes that a node is held against.
const OTHERS: usize = 160;

/// How one node for the pods of both comes.
struct Merged {
    offer: usize,
    mask: Bits,
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
    let mut start = 0_usize;
    for at in free {
        let state = &mut draft.state;
        let both = price(state, at);
        let mut best: Option<(u64, usize, Merged)> = None;
        let candidates = (0..others.len()).map(|step| others[(start + step) % others.len()]);
        for other in candidates.take(OTHERS) {
            if other == at || state.slots[other].counts.is_empty() {
                continue;
            }
            state.work.mended += 1;
            let Some(merged) = merge(state, at, other) else { continue };
            let (after, before) = (state.compiled.offer(merged.offer).price, both + price(state, other));
            if after > before {
                continue;
            }
            let saved = before - after;
            if best.as_ref().is_none_or(|(most, ..)| saved > *most) {
                best = Some((saved, other, merged));
            }
        }
        // The next one begins elsewhere, so that not all go to the same few.
        start = start.wrapping_add(OTHERS);
        let Some((_, other, merged)) = best else { continue };
        state.absorb(at, other, (merged.offer, merged.mask));
        let moved = std::mem::take(&mut pods[at]);
        moved.iter().for_each(|pod| draft.slots[*pod] = Some(other));
        pods[other].extend(moved);
    }
    draft
}

/// The cheapest node for the pods of both, where those of the second may stand; `None` if there is none, or they may not stand
/// together.
fn merge(state: &State<'_, '_>, from: usize, to: usize) -> Option<Merged> {
    let compiled = state.compiled;
    let (from, to) = (&state.slots[from], &state.slots[to]);
    let weight = |offer: usize| compiled.problem.pools[compiled.offer(offer).pool].weight;
    if weight(from.offer) != weight(to.offer) {
        return None;
    }
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
    let load: Vec<i64> = to.load.iter().zip(&from.load).map(|(one, other)| one.saturating_add(*other)).collect();
    compiled.holding(&mut mask, &load);
    let offer = state.cheapest(&mask, Some(to.offer))?;
    let mut counts = to.counts.clone();
    for (class, count) in &from.counts {
        match counts.iter_mut().find(|(known, _)| known == class) {
            Some((_, known)) => *known += count,
            None => counts.push((*class, *count)),
        }
    }
    let alone = |at: usize| {
        let mut others = counts.clone();
        others[at].1 -= 1;
        compiled.together_above(counts[at].0, &others, None, state.least)
    };
    (0..counts.len()).all(alone).then_some(Merged { offer, mask })
}
