//! Single pods move to nodes that have enough free for them as they are, where the node they leave then comes cheaper.
//!
//! Offers come in steps, so that every node of a plan is somewhat larger than its pods. A node that is little above a step gives
//! some pods away to what others have to spare. A pod that counters concern stays in its domains, so that nothing any
//! constraint counts changes.

use rustc_hash::FxHashMap;

use super::bits::Bits;
use super::construct;
use super::draft::Draft;
use super::field::Field;
use super::state::{Slot, State};

/// Times that all nodes are looked at.
const PASSES: usize = 4;
/// Cheaper offers a node is held against, and pods it gives away for one.
const STEPS: usize = 4;
const MOVED: usize = 4;
/// Classes of a node that are looked at.
const CLASSES: usize = 24;

/// The pods of a class on a node.
type Stands = FxHashMap<(usize, usize), Vec<usize>>;

/// What an attempt changed: nodes as they were, and class, from, to of each pod.
#[derive(Default)]
struct Attempt {
    before: Vec<(usize, Slot)>,
    moves: Vec<(usize, usize, usize)>,
}

/// Makes the draft cheaper, pod by pod.
pub(super) fn shifted<'c, 'p>(mut draft: Draft<'c, 'p>) -> Draft<'c, 'p> {
    let problem = draft.state.compiled.problem;
    let first = problem.nodes.len();
    let nodes = draft.state.new_nodes().count();
    if nodes < 2 || draft.proven || draft.state.topology.is_partial() || problem.budget.mending == 0 {
        return draft;
    }
    let before = draft.state.work.nodes;
    let mut stands = Stands::default();
    for pod in (0..draft.slots.len()).rev() {
        if let Some((class, at)) = draft.class_of(pod).filter(|(_, at)| *at >= first) {
            stands.entry((class, at)).or_default().push(pod);
        }
    }
    let mut field = Field::new(&draft.state);
    let mut tiers: Vec<(u32, Bits)> = Vec::new();
    for pool in &problem.pools {
        if !tiers.iter().any(|(weight, _)| *weight == pool.weight) {
            tiers.push((pool.weight, construct::tier(&draft.state, pool.weight)));
        }
    }
    for _ in 0..PASSES {
        let mut steps: Vec<(i128, usize, Vec<usize>)> = Vec::new();
        for at in first..draft.state.slots.len() {
            if draft.state.slots[at].counts.is_empty() {
                continue;
            }
            set_tier(&mut draft.state, &tiers, at);
            let below = cheaper(&draft.state, at);
            if let Some(step) = below.first() {
                steps.push((excess(&draft.state, at, *step), at, below));
            }
        }
        // Who is least above a step first: what others have to spare goes furthest there.
        steps.sort();
        let mut moved = false;
        for (_, at, steps) in steps {
            set_tier(&mut draft.state, &tiers, at);
            for step in steps {
                if draft.state.compiled.offer(draft.state.slots[at].offer).price
                    <= draft.state.compiled.offer(step).price
                {
                    continue;
                }
                if let Some(moves) = reach(&mut draft.state, &mut field, at, step) {
                    moved |= !moves.is_empty();
                    for (class, from, to) in moves {
                        let Some(pod) = stands.get_mut(&(class, from)).and_then(Vec::pop) else { continue };
                        draft.slots[pod] = Some(to);
                        stands.entry((class, to)).or_default().push(pod);
                    }
                    break;
                }
            }
        }
        if !moved {
            break;
        }
    }
    draft.state.work.mended += draft.state.work.nodes - before;
    draft.state.work.nodes = before;
    draft
}

fn set_tier(state: &mut State<'_, '_>, tiers: &[(u32, Bits)], at: usize) {
    let weight = state.compiled.problem.pools[state.compiled.offer(state.slots[at].offer).pool].weight;
    if let Some((_, tier)) = tiers.iter().find(|(known, _)| *known == weight) {
        state.tier.clone_from(tier);
    }
}

/// Cheaper offers that take the classes of a node and are too small for all of its pods, the dearest first.
fn cheaper(state: &State<'_, '_>, at: usize) -> Vec<usize> {
    let compiled = state.compiled;
    let mask = state.taking(at);
    let now = state.slots[at].offer;
    let price = compiled.offer(now).price;
    let below: Vec<usize> = mask.iter().take_while(|other| *other < now).collect();
    let mut found: Vec<usize> = Vec::new();
    for other in below.into_iter().rev() {
        let offer = compiled.offer(other);
        if offer.price < price
            && offer.reservation.is_none()
            && !found.iter().any(|known| compiled.avail[*known] == compiled.avail[other])
        {
            found.push(other);
            if found.len() == STEPS {
                break;
            }
        }
    }
    found
}

/// By how much a node is above an offer, in millionths of it over all resources.
fn excess(state: &State<'_, '_>, at: usize, offer: usize) -> i128 {
    let shares = state.slots[at].load.iter().zip(&state.compiled.avail[offer]);
    shares.map(|(load, avail)| i128::from((load - avail).max(0)) * 1_000_000 / i128::from(*avail.max(&1))).sum()
}

/// Gives pods away until the node comes as the offer; everything is as before if that cannot be done.
fn reach(state: &mut State<'_, '_>, field: &mut Field, at: usize, step: usize) -> Option<Vec<(usize, usize, usize)>> {
    let mut attempt = Attempt { before: vec![(at, state.slots[at].clone())], moves: Vec::new() };
    let price = state.compiled.offer(state.slots[at].offer).price;
    let mut refused: Vec<usize> = Vec::new();
    while attempt.moves.len() < MOVED {
        let Some(class) = next(state, at, step, &refused) else { break };
        let cells = if state.topology.links(class) {
            vec![state.topology.cell_of.get(state.slots[at].offer).copied().unwrap_or(0)]
        } else {
            (0..state.topology.cells.len().max(1)).collect()
        };
        let Some(fitted) = field.taker(state, class, &cells, at) else {
            refused.push(class);
            continue;
        };
        let to = fitted.slot;
        if !attempt.before.iter().any(|(known, _)| *known == to) {
            attempt.before.push((to, state.slots[to].clone()));
        }
        state.remove(at, class);
        state.put(class, fitted);
        field.update(state, to);
        attempt.moves.push((class, at, to));
        if excess(state, at, step) == 0 {
            break;
        }
    }
    let reached = state.slots[at].counts.is_empty()
        || excess(state, at, step) == 0 && state.refit(at) && {
            let slot = &state.slots[at];
            state.compiled.offer(slot.offer).price < price
        };
    if !attempt.moves.is_empty() && reached {
        field.update(state, at);
        return Some(attempt.moves);
    }
    for (known, slot) in attempt.before {
        state.restore(known, slot);
        field.update(state, known);
    }
    None
}

/// The class whose pod should go next: one that is enough by itself and as small as can be, else the one that helps most.
fn next(state: &State<'_, '_>, at: usize, step: usize, refused: &[usize]) -> Option<usize> {
    let compiled = state.compiled;
    let avail = &compiled.avail[step];
    let slot = &state.slots[at];
    let share = |amount: i64, avail: i64| i128::from(amount.max(0)) * 1_000_000 / i128::from(avail.max(1));
    let candidates = slot.counts.iter().take(CLASSES).map(|(class, _)| *class).filter(|class| {
        let forced = compiled.apart[*class].as_ref().is_some_and(|apart| apart.contains(*class));
        !refused.contains(class) && !forced && !state.topology.by_host(*class)
    });
    let rated = candidates.map(|class| {
        let (mut short, mut size) = (0, 0);
        for ((need, load), avail) in compiled.requests[class].iter().zip(&slot.load).zip(avail) {
            short += share(load - need - avail, *avail);
            size += share(*need, *avail);
        }
        (short, size, class)
    });
    rated.min().map(|(_, _, class)| class)
}
