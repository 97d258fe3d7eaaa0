//! New nodes for pods that no node takes: the pods that constraints tie to domains or keep apart first, each where the price
//! rises least; the others fill those nodes, and the rest is packed node by node at the best value for its price.

use std::cmp::Reverse;
use std::sync::Arc;

use super::bits::Bits;
use super::bound::{self, Prices};
use super::exact;
use super::field::Field;
use super::problem::PRICE_SCALE;
use super::state::{Priced, State};

/// Offers whose filling is tried for one node, the most assigning first.
const FILLINGS: usize = 24;
/// Classes a balanced filling chooses from, and in how many parts each is taken.
const BALANCED: usize = 96;
const PARTS: u32 = 6;
/// Percent of the best value from which on a filling of everybody's share is taken.
const ALIKE: u128 = 98;
/// Nodes taken apart together in one round of improvement.
const RUINED: usize = 3;
/// Patterns that are looked at to pack them again.
const RUINED_PATTERNS: u64 = 20_000;

/// Classes with the number of their pods.
type Pods = Vec<(usize, u32)>;

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
    packed(state, &mut plain, prices);
    improve(state, prices, first);
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

/// Node by node: of the nodes that hold a pod of the most valuable class left, the one with the most value for its price.
fn packed(state: &mut State<'_, '_>, plain: &mut [(usize, u32)], prices: &Prices) {
    plain.sort_by_key(|(class, _)| (Reverse(prices.values[*class]), *class));
    let mut start = 0;
    while let Some((class, _)) = plain.get(start).copied() {
        if plain[start].1 == 0 {
            start += 1;
            continue;
        }
        let left: u128 = plain[start..].iter().map(|(class, count)| prices.values[*class] * u128::from(*count)).sum();
        match filled(state, &plain[start..], class, left, prices) {
            Some((offer, counts)) => {
                let times = counts.iter().map(|(class, count)| {
                    let has = plain[start..].iter().find(|(other, _)| other == class).map_or(0, |(_, count)| *count);
                    has / count
                });
                let more = state.needs(offer, &state.becoming(&counts)).unwrap_or_default().more;
                let times = state.capacity(offer, &more, None, times.min().unwrap_or(0).max(1));
                state.open(offer, &counts, times);
                for (class, count) in &counts {
                    if let Some((_, left)) = plain[start..].iter_mut().find(|(other, _)| other == class) {
                        *left -= count * times;
                    }
                }
            }
            // Nothing takes it, or the limits are used up: who comes next may still find something.
            None => start += 1,
        }
    }
}

/// The best filling: an offer and the pods of its node.
fn filled(
    state: &mut State<'_, '_>,
    plain: &[(usize, u32)],
    class: usize,
    left: u128,
    prices: &Prices,
) -> Option<(usize, Vec<(usize, u32)>)> {
    let compiled = state.compiled;
    let mut mask = state.tier.clone();
    mask.intersect(&compiled.takes[class]);
    compiled.holding(&mut mask, &compiled.requests[class]);
    // Offers by the least they could cost per value, with as much as they could ever hold.
    let mut assigning: Vec<(f64, usize)> = Vec::new();
    for at in mask.iter().filter(|at| state.may(*at, None)) {
        let price = compiled.offer(at).price;
        let value = sold(compiled, at, prices).min(left).max(1);
        #[expect(clippy::cast_precision_loss, reason = "an order in which offers are tried, and nothing else")]
        assigning.push((price as f64 / value as f64, at));
    }
    assigning.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    let mut best: Option<(u64, u128, usize, Pods)> = None;
    let mut tried = 0;
    let mut seen: Vec<&Vec<i64>> = Vec::new();
    for (least, at) in assigning {
        let price = compiled.offer(at).price;
        #[expect(clippy::cast_precision_loss, reason = "as above")]
        if best.as_ref().is_some_and(|(price, value, ..)| least > *price as f64 / *value as f64) || tried >= FILLINGS {
            break;
        }
        // The same node in another zone is filled the same way.
        if seen.contains(&&compiled.avail[at]) {
            continue;
        }
        seen.push(&compiled.avail[at]);
        tried += 1;
        state.work.fillings += 1;
        let by_value = fill(state, at, plain, prices);
        let balanced = balanced(state, at, plain, prices);
        let best_filling = if balanced.1 > by_value.1 { balanced } else { by_value };
        // As long as the pods left are like those taken, what is left at the end fills its nodes too.
        let alike = proportional(state, at, plain, prices);
        let (counts, value) =
            if alike.1.saturating_mul(100) >= best_filling.1.saturating_mul(ALIKE) { alike } else { best_filling };
        if counts.is_empty() || !state.admits(at, &state.becoming(&counts), None) {
            continue;
        }
        let value = value.max(1);
        let better = best.as_ref().is_none_or(|(best_price, best_value, ..)| {
            u128::from(price).saturating_mul(*best_value) < u128::from(*best_price).saturating_mul(value)
        });
        if better {
            best = Some((price, value, at, counts));
        }
    }
    best.map(|(_, _, at, counts)| {
        // What the pods came to may fit a cheaper offer than the one that was filled.
        let cheapest = state.cheapest(&state.becoming(&counts), None);
        (cheapest.unwrap_or(at), counts)
    })
}

/// What an offer's resources are worth to whoever pays most.
fn sold(compiled: &super::compile::Compiled<'_>, at: usize, prices: &Prices) -> u128 {
    let highest = |resource: &crate::model::names::ResourceName| {
        let of = prices.bound.prices.iter().flat_map(|group| &group.prices).filter(|(name, _)| name == resource);
        of.map(|(_, price)| *price).max().unwrap_or(0)
    };
    compiled
        .resources
        .iter()
        .zip(&compiled.avail[at])
        .map(|(resource, amount)| u128::from(amount.max(&0).unsigned_abs()) * u128::from(highest(resource)))
        .fold(0, u128::saturating_add)
}

/// Fills a node with the most valuable pods first.
fn fill(state: &State<'_, '_>, at: usize, plain: &[(usize, u32)], prices: &Prices) -> (Vec<(usize, u32)>, u128) {
    let compiled = state.compiled;
    let mut free = compiled.avail[at].clone();
    let mut counts: Vec<(usize, u32)> = Vec::new();
    let mut value = 0_u128;
    for (class, left) in plain.iter().filter(|(_, left)| *left > 0) {
        if !compiled.takes[*class].contains(at) {
            continue;
        }
        let request = &compiled.requests[*class];
        let fits =
            request.iter().zip(&free).filter(|(need, _)| **need > 0).map(|(need, free)| free.max(&0) / need).min();
        let mut count = fits.map_or(*left, |fits| u32::try_from(fits).unwrap_or(u32::MAX).min(*left));
        if count > 0
            && (compiled.apart[*class].is_some()
                || !compiled.caps[*class].is_empty()
                || counts.iter().any(|(other, _)| !compiled.caps[*other].is_empty()))
        {
            count = 1;
            if !compiled.together(*class, &counts, None) {
                continue;
            }
        }
        if count == 0 {
            continue;
        }
        free.iter_mut().zip(request).for_each(|(free, need)| *free -= need * i64::from(count));
        counts.push((*class, count));
        value = value.saturating_add(prices.values[*class].saturating_mul(u128::from(count)));
    }
    (counts, value)
}

/// Fills a node so that no resource is left over for want of another: whichever class brings most for the share it takes of
/// what is still free, a part of what fits at a time.
fn balanced(state: &State<'_, '_>, at: usize, plain: &[(usize, u32)], prices: &Prices) -> (Vec<(usize, u32)>, u128) {
    let compiled = state.compiled;
    let alone = |class: usize| compiled.apart[class].is_some() || !compiled.caps[class].is_empty();
    let mut open: Vec<(usize, u32)> = plain
        .iter()
        .filter(|(class, left)| *left > 0 && compiled.takes[*class].contains(at) && !alone(*class))
        .take(BALANCED)
        .copied()
        .collect();
    let mut free = compiled.avail[at].clone();
    let mut counts: Vec<(usize, u32)> = Vec::new();
    let mut value = 0_u128;
    loop {
        let mut best: Option<(f64, usize, u32)> = None;
        open.retain(|(class, left)| *left > 0 && most(&compiled.requests[*class], &free) > 0);
        for (index, (class, left)) in open.iter().enumerate() {
            let request = &compiled.requests[*class];
            #[expect(clippy::cast_precision_loss, reason = "an order in which classes are taken, and nothing else")]
            let share: f64 = request
                .iter()
                .zip(&free)
                .filter(|(need, _)| **need > 0)
                .map(|(need, free)| *need as f64 / *free as f64)
                .sum();
            #[expect(clippy::cast_precision_loss, reason = "as above")]
            let worth = prices.values[*class] as f64 / share.max(f64::MIN_POSITIVE);
            if best.is_none_or(|(known, ..)| worth > known) {
                best = Some((worth, index, most(request, &free).min(*left)));
            }
        }
        let Some((_, index, fits)) = best else { break };
        let (class, left) = &mut open[index];
        let count = fits.div_ceil(PARTS);
        *left -= count;
        free.iter_mut().zip(&compiled.requests[*class]).for_each(|(free, need)| *free -= need * i64::from(count));
        match counts.iter_mut().find(|(other, _)| other == class) {
            Some((_, sum)) => *sum += count,
            None => counts.push((*class, count)),
        }
        value = value.saturating_add(prices.values[*class].saturating_mul(u128::from(count)));
    }
    (counts, value)
}

/// Fills a node with the same share of every class, and what is free then by value; nothing where the node holds all of them.
fn proportional(
    state: &State<'_, '_>,
    at: usize,
    plain: &[(usize, u32)],
    prices: &Prices,
) -> (Vec<(usize, u32)>, u128) {
    let compiled = state.compiled;
    let alone = |class: usize| compiled.apart[class].is_some() || !compiled.caps[class].is_empty();
    let open =
        || plain.iter().filter(|(class, left)| *left > 0 && compiled.takes[*class].contains(at) && !alone(*class));
    let avail = &compiled.avail[at];
    let mut demand = vec![0_i64; avail.len()];
    for (class, left) in open() {
        for (sum, need) in demand.iter_mut().zip(&compiled.requests[*class]) {
            *sum = sum.saturating_add(need.saturating_mul(i64::from(*left)));
        }
    }
    // In millionths; rounding is carried on from class to class.
    let shares = demand.iter().zip(avail).filter(|(demand, _)| **demand > 0);
    let share = shares.map(|(demand, avail)| i128::from(*avail.max(&0)) * 1_000_000 / i128::from(*demand)).min();
    let Some(share) = share.filter(|share| *share < 1_000_000) else { return (Vec::new(), 0) };
    let mut free = avail.clone();
    let (mut counts, mut rest, mut carried, mut value) = (Vec::new(), Vec::new(), 0_i128, 0_u128);
    for (class, left) in open() {
        carried += i128::from(*left) * share;
        let request = &compiled.requests[*class];
        let count = u32::try_from(carried / 1_000_000).unwrap_or(0).min(*left).min(most(request, &free));
        carried -= i128::from(count) * 1_000_000;
        free.iter_mut().zip(request).for_each(|(free, need)| *free -= need * i64::from(count));
        if count > 0 {
            counts.push((*class, count));
        }
        rest.push((*class, left - count));
    }
    for (class, left) in rest {
        let request = &compiled.requests[class];
        let more = most(request, &free).min(left);
        free.iter_mut().zip(request).for_each(|(free, need)| *free -= need * i64::from(more));
        match counts.iter_mut().find(|(other, _): &&mut (usize, u32)| *other == class) {
            Some((_, sum)) => *sum += more,
            None if more > 0 => counts.push((class, more)),
            None => {}
        }
    }
    for (class, count) in &counts {
        value = value.saturating_add(prices.values[*class].saturating_mul(u128::from(*count)));
    }
    (counts, value)
}

/// How many such pods fit.
fn most(request: &[i64], free: &[i64]) -> u32 {
    let fits = request.iter().zip(free).filter(|(need, _)| **need > 0).map(|(need, free)| free.max(&0) / need).min();
    fits.map_or(u32::MAX, |fits| u32::try_from(fits).unwrap_or(u32::MAX))
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
        let nodes = |state: &State<'_, '_>| state.new_nodes().count();
        let complete = |state: &State<'_, '_>| -> u64 {
            state.new_nodes().flat_map(|slot| &slot.counts).map(|(_, count)| u64::from(*count)).sum()
        };
        let work = tried.work;
        if complete(&tried) == complete(state) && (tried.cost(), nodes(&tried)) < (state.cost(), nodes(state)) {
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
