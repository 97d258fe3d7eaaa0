//! Plain pods node by node: whichever offer brings most for its price, filled in the best of several ways.

use std::cmp::Reverse;

use super::bound::Prices;
use super::compile::{Compiled, most};
use super::state::State;

/// Offers whose filling is tried for one node, the most assigning first.
const FILLINGS: usize = 24;
/// Classes a balanced filling chooses from, and in how many parts each is taken.
const BALANCED: usize = 96;
const PARTS: u32 = 6;
/// Percent of the best value from which on a filling of everybody's share is taken.
const ALIKE: u128 = 98;
/// Classes with the number of their pods.
type Pods = Vec<(usize, u32)>;

/// Node by node: of the nodes that hold a pod of the most valuable class left, the one with the most value for its price.
pub(super) fn packed(state: &mut State<'_, '_>, plain: &mut [(usize, u32)], prices: &Prices) {
    plain.sort_by_key(|(class, _)| (Reverse(prices.values[*class]), *class));
    let sold: Vec<u128> = (0..state.compiled.avail.len()).map(|at| sold(state.compiled, at, prices)).collect();
    let mut start = 0;
    while let Some((class, _)) = plain.get(start).copied() {
        if plain[start].1 == 0 {
            start += 1;
            continue;
        }
        let left: u128 = plain[start..].iter().map(|(class, count)| prices.values[*class] * u128::from(*count)).sum();
        match filled(state, &plain[start..], class, (left, &sold), prices) {
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

/// The best filling: an offer and the pods of its node. `left`, `sold`: what the pods are worth, and what each offer's resources are.
fn filled(
    state: &mut State<'_, '_>,
    plain: &[(usize, u32)],
    class: usize,
    (left, sold): (u128, &[u128]),
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
        let value = sold[at].min(left).max(1);
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
fn sold(compiled: &Compiled<'_>, at: usize, prices: &Prices) -> u128 {
    let highest = |resource: &crate::model::names::ResourceName| {
        let of = prices.groups().iter().flat_map(|group| &group.prices).filter(|(name, _)| name == resource);
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
        // The number of those that are spread is held pod by pod, and who keeps others like it off a node stands there alone.
        let by_number =
            !compiled.caps[*class].is_empty() || counts.iter().any(|(other, _)| !compiled.caps[*other].is_empty());
        let apart = compiled.apart[*class].as_ref();
        if count > 0 && (by_number || apart.is_some()) && !compiled.together(*class, &counts, None) {
            continue;
        }
        if by_number || apart.is_some_and(|apart| apart.contains(*class)) {
            count = count.min(1);
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
