//! New nodes for pods that no node takes: the pods that constraints tie to domains or keep apart first, each where the price
//! rises least; the others fill those nodes, and the rest is packed node by node at the best value for its price.

use std::cmp::Reverse;
use std::sync::Arc;

use super::bits::Bits;
use super::bound::{self, Prices};
use super::dive;
use super::exact;
use super::field::Field;
use super::fill::packed;
use super::problem::PRICE_SCALE;
use super::state::{Priced, State};

/// Nodes taken apart together in one round of improvement.
const RUINED: usize = 3;
/// Patterns that are looked at to pack them again.
const RUINED_PATTERNS: u64 = 20_000;

/// In which order pods are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Whatever costs least.
    Cost,
    /// As they come: where limits are short, an earlier pod never waits for a later one.
    Given,
}

/// Places pods of these classes, in the order of their first pod, on new nodes of the tier; `false` if that is not proven to
/// be the cheapest way. Who finds no place is missing from the state.
pub(super) fn place(state: &mut State<'_, '_>, pods: &[usize], order: Order) -> bool {
    let wanted = counted(pods);
    if wanted.is_empty() {
        return true;
    }
    match order {
        Order::Given => {
            one_by_one(state, pods);
            false
        }
        Order::Cost => {
            let linked = wanted.iter().any(|(class, _)| state.topology.links(*class));
            if !linked && whole(state, &wanted) {
                // Hosts may hold more of what is spread over them once every host holds some: no enumeration looks at that.
                return wanted.iter().all(|(class, _)| state.compiled.caps[*class].is_empty());
            }
            let prices = bound::prices(state.compiled, &state.tier, &wanted);
            let priced = Arc::new(Priced { tier: state.tier.clone(), wanted, prices });
            state.priced.get_or_insert_with(|| Arc::clone(&priced));
            cheaply(state, &priced.wanted, &priced.prices);
            false
        }
    }
}

/// Classes with the number of their pods, in the order of the first pod of each.
pub(super) fn counted(pods: &[usize]) -> Vec<(usize, u32)> {
    let mut counts: indexmap::IndexMap<usize, u32, rustc_hash::FxBuildHasher> = indexmap::IndexMap::default();
    for class in pods {
        *counts.entry(*class).or_default() += 1;
    }
    counts.into_iter().collect()
}

/// Packs everything by enumeration, if that ends and limits hold.
fn whole(state: &mut State<'_, '_>, wanted: &[(usize, u32)]) -> bool {
    let most = state.compiled.problem.budget.patterns;
    let Some(packing) = exact::pack(state, wanted, most) else { return false };
    let mut tried = state.clone();
    for (offer, counts) in &packing {
        if !tried.admits(*offer, &tried.becoming(counts), None) {
            return false;
        }
        tried.open(*offer, counts, 1);
    }
    *state = tried;
    true
}

fn one_by_one(state: &mut State<'_, '_>, pods: &[usize]) {
    let first = state.compiled.problem.nodes.len();
    let mut left = pods.to_vec();
    loop {
        let before = left.len();
        left.retain(|class| join(state, *class, first).is_none());
        if left.is_empty() || left.len() == before {
            return;
        }
    }
}

/// Puts one pod where the price rises least, on a node that is open already or a new one.
pub(super) fn join(state: &mut State<'_, '_>, class: usize, first: usize) -> Option<usize> {
    let opened = state.opened(class);
    let mut best = None;
    let weight = state.tier.iter().next().map_or(0, |offer| state.weight(offer));
    for at in first..state.slots.len() {
        // A pool of a lower weight is for those that this one does not hold.
        if state.slots[at].counts.is_empty() || state.weight(state.slots[at].offer) < weight {
            continue;
        }
        let Some(fitted) = state.fits(at, class) else { continue };
        if best.as_ref().is_none_or(|best: &super::state::Fitted| fitted.rise < best.rise) {
            let free = fitted.rise == 0;
            best = Some(fitted);
            if free {
                break;
            }
        }
    }
    let best = match (best, opened) {
        (Some(best), Some(opened)) => Some(if opened.rise < best.rise { opened } else { best }),
        (best, opened) => best.or(opened),
    };
    best.map(|fitted| state.put(class, fitted))
}

fn cheaply(state: &mut State<'_, '_>, wanted: &[(usize, u32)], prices: &Prices) {
    let first = state.slots.len();
    let mut classes = wanted.to_vec();
    classes.sort_by_key(|(class, _)| (Reverse(prices.values[*class]), *class));
    let alone = |state: &State<'_, '_>, class: usize| {
        let apart = state.compiled.apart[class].as_ref().is_some_and(|apart| apart.contains(class));
        apart || !state.compiled.caps[class].is_empty() || state.compiled.shares(class)
    };
    let (tied, plain): (Vec<_>, Vec<_>) =
        classes.into_iter().partition(|(class, _)| state.topology.links(*class) || alone(state, *class));
    let mut tied = tied;
    // Nodes that are forced come first, so that everybody else fills them. Who is drawn to others decides a domain for all of
    // them; who is spread comes last, where it evens out what is there.
    tied.sort_by_key(|(class, _)| {
        let topology = state.topology;
        let forced = state.compiled.apart[*class].as_ref().is_some_and(|apart| apart.contains(*class));
        (topology.is_spread(*class), !forced, !topology.is_drawn(*class), !alone(state, *class))
    });
    let mut left: Vec<usize> =
        tied.iter().flat_map(|(class, count)| std::iter::repeat_n(*class, *count as usize)).collect();
    loop {
        let before = left.len();
        left = runs(state, &left, first);
        if left.is_empty() || left.len() == before {
            break;
        }
    }
    let mut plain = plain;
    slack(state, &mut plain, prices, first);
    let by_columns = dive::dived(state, &plain, prices);
    packed(state, &mut plain, prices);
    if let Some(mut other) = by_columns.filter(|other| rank(other) < rank(state)) {
        other.work = state.work;
        *state = other;
    }
    improve(state, prices, first);
}

/// Smaller is better: pods on new nodes, dollars, nodes.
fn rank(state: &State<'_, '_>) -> (Reverse<u64>, u64, usize) {
    let placed = state.new_nodes().flat_map(|slot| &slot.counts).map(|(_, count)| u64::from(*count)).sum();
    (Reverse(placed), state.cost(), state.new_nodes().count())
}

/// Tied pods in runs of a class. What a node refused to a class of no counter it refuses to the whole run.
fn runs(state: &mut State<'_, '_>, pods: &[usize], first: usize) -> Vec<usize> {
    let mut left = Vec::new();
    let (mut run, mut from) = (usize::MAX, first);
    let mut field = Field::new(state);
    for class in pods {
        if *class != run {
            (run, from) = (*class, first);
        }
        let linked = state.topology.links(*class);
        if linked {
            let by_host = state.topology.by_host(*class);
            let at = if by_host { join(state, *class, first) } else { field.seat(state, *class) };
            match at {
                Some(at) if by_host => field.update(state, at),
                Some(_) => {}
                None => left.push(*class),
            }
            continue;
        }
        let opened = state.opened(*class);
        let mut placed = false;
        while from < state.slots.len() {
            let fitted = if state.slots[from].counts.is_empty() { None } else { state.fits(from, *class) };
            let cheaper = |rise: u64| opened.as_ref().is_none_or(|opened| rise <= opened.rise);
            if let Some(fitted) = fitted.filter(|fitted| cheaper(fitted.rise)) {
                let at = state.put(*class, fitted);
                field.update(state, at);
                placed = true;
                break;
            }
            from += 1;
        }
        if !placed {
            match opened {
                Some(opened) => {
                    from = state.put(*class, opened);
                    field.update(state, from);
                }
                None => left.push(*class),
            }
        }
    }
    left
}

/// Plain pods into nodes that are open already, as long as the price rises by no more than a pod is worth.
fn slack(state: &mut State<'_, '_>, plain: &mut [(usize, u32)], prices: &Prices, first: usize) {
    for (class, count) in plain {
        let worth = u64::try_from(prices.values[*class] / u128::from(PRICE_SCALE)).unwrap_or(u64::MAX);
        for at in first..state.slots.len() {
            while *count > 0 && !state.slots[at].counts.is_empty() {
                match state.fits(at, *class).filter(|fitted| fitted.rise <= worth) {
                    Some(fitted) => state.put(*class, fitted),
                    None => break,
                };
                *count -= 1;
            }
        }
    }
}

/// Takes the worst nodes of plain pods apart and packs their pods again, exactly where that is affordable; keeps what is
/// cheaper.
fn improve(state: &mut State<'_, '_>, prices: &Prices, first: usize) {
    let rounds = state.compiled.problem.budget.ruins;
    let mut left = state.compiled.problem.budget.patterns;
    let mut from = 0;
    for _ in 0..rounds {
        let mut worst: Vec<(i128, usize)> = (first..state.slots.len())
            .filter(|at| {
                let slot = &state.slots[*at];
                let tied = |class: usize| state.topology.links(class) || state.compiled.shares(class);
                !slot.counts.is_empty() && !slot.counts.iter().any(|(class, _)| tied(*class))
            })
            .map(|at| (lost(state, at, prices), at))
            .filter(|(lost, _)| *lost > 0)
            .collect();
        worst.sort_by_key(|(lost, at)| (Reverse(*lost), *at));
        let ruined: Vec<usize> = worst.iter().skip(from).take(RUINED).map(|(_, at)| *at).collect();
        if ruined.is_empty() {
            return;
        }
        state.work.ruins += ruined.len() as u64;
        let mut tried = state.clone();
        let mut pods: Vec<(usize, u32)> = Vec::new();
        for at in &ruined {
            for (class, count) in tried.close(*at) {
                match pods.iter_mut().find(|(other, _)| *other == class) {
                    Some((_, sum)) => *sum += count,
                    None => pods.push((class, count)),
                }
            }
        }
        let packing = exact::pack(&mut tried, &pods, RUINED_PATTERNS.min(left));
        left = left.saturating_sub(tried.work.patterns - state.work.patterns);
        match packing {
            Some(packing) => {
                // What limits forbid stays without a place, and then the state before is kept.
                for (offer, counts) in &packing {
                    if tried.admits(*offer, &tried.becoming(counts), None) {
                        tried.open(*offer, counts, 1);
                    }
                }
            }
            None => {
                let mut left = pods.clone();
                slack(&mut tried, &mut left, prices, first);
                packed(&mut tried, &mut left, prices);
                if left.iter().any(|(_, count)| *count > 0) {
                    tried.slots.clone_from(&state.slots);
                }
            }
        }
        let work = tried.work;
        if rank(&tried) < rank(state) {
            *state = tried;
            from = 0;
        } else {
            from += 1;
        }
        state.work = work;
    }
}

/// Price of a node beyond what its pods are worth.
fn lost(state: &State<'_, '_>, at: usize, prices: &Prices) -> i128 {
    let slot = &state.slots[at];
    let price = i128::from(state.compiled.offer(slot.offer).price) * i128::from(PRICE_SCALE);
    let value: u128 = slot.counts.iter().map(|(class, count)| prices.values[*class] * u128::from(*count)).sum();
    price - i128::try_from(value).unwrap_or(i128::MAX)
}

/// Offers of the pools with a weight.
pub(super) fn tier(state: &State<'_, '_>, weight: u32) -> Bits {
    let compiled = state.compiled;
    let of = |at: usize| compiled.problem.pools.get(compiled.offer(at).pool).is_some_and(|pool| pool.weight == weight);
    Bits::of(compiled.offer_of.len(), of)
}
