//! The cheapest nodes for classes that depend on each other only on one node: every way to pack them is looked at.
//!
//! A dynamic programme over how many pods of each class are left. A node holds a pod of the first class that is left (some
//! node has to), and what it holds is maximal, since fewer pods never cost more.

use rustc_hash::FxHashMap;

use super::bits::Bits;
use super::compile::{Front, most};
use super::state::State;

/// Most pods of one enumeration: its depth is that of the call stack.
const MOST_PODS: u64 = 400;

/// Nodes of a cheapest packing: the offer and the pods of each.
pub(super) type Packing = Vec<(usize, Vec<(usize, u32)>)>;

/// One undominated kind of node.
struct Bin {
    offer: usize,
    price: u64,
    /// `[class]`, in the order of the search.
    takes: Vec<bool>,
    avail: Vec<i64>,
}

struct Search<'s, 'c, 'p> {
    state: &'s State<'c, 'p>,
    classes: Vec<usize>,
    bins: Vec<Bin>,
    /// Pods left → dollars, nodes, the best first node.
    known: FxHashMap<Vec<u32>, Best>,
    patterns: u64,
    most: u64,
    /// Some pool has `minValues`.
    varied: bool,
}

#[derive(Clone, Debug)]
struct Best {
    price: u64,
    nodes: u32,
    first: Option<(usize, Vec<u32>)>,
}

/// The cheapest packing of these pods on new nodes of the tier, fewest nodes among equals; `None` if the budget ends first
/// (`most` patterns)
/// or no offer holds one of them. Limits and reservations are not looked at.
pub(super) fn pack(state: &mut State<'_, '_>, wanted: &[(usize, u32)], most: u64) -> Option<Packing> {
    let budget = state.compiled.problem.budget;
    let states = wanted.iter().try_fold(1_u64, |product, (_, count)| product.checked_mul(u64::from(*count) + 1))?;
    let pods: u64 = wanted.iter().map(|(_, count)| u64::from(*count)).sum();
    if states > budget.states || pods > MOST_PODS || wanted.is_empty() {
        return None;
    }
    // What they take is no sum.
    if wanted.iter().any(|(class, _)| state.compiled.shares(*class)) {
        return None;
    }
    let classes: Vec<usize> = wanted.iter().map(|(class, _)| *class).collect();
    let bins = bins(state, &classes);
    let varied = state.compiled.problem.pools.iter().any(|pool| !pool.min_values.is_empty());
    let known = FxHashMap::default();
    let mut search = Search { state, classes, bins, known, patterns: 0, most, varied };
    let all: Vec<u32> = wanted.iter().map(|(_, count)| *count).collect();
    let found = search.best(&all);
    let mut packing = Packing::new();
    let mut left = all;
    if found.is_some() {
        while left.iter().any(|count| *count > 0) {
            let (bin, pattern) = search.known.get(&left)?.first.clone()?;
            let pods = search.classes.iter().zip(&pattern).filter(|(_, count)| **count > 0);
            packing.push((search.bins[bin].offer, pods.map(|(class, count)| (*class, *count)).collect()));
            left.iter_mut().zip(&pattern).for_each(|(left, count)| *left -= count);
        }
    }
    let patterns = search.patterns;
    state.work.patterns += patterns;
    found.map(|_| packing)
}

/// Kinds of node of which none is beaten by another that costs no more, takes the same classes and has no less.
fn bins(state: &State<'_, '_>, classes: &[usize]) -> Vec<Bin> {
    let compiled = state.compiled;
    let varied = compiled.problem.pools.iter().any(|pool| !pool.min_values.is_empty());
    let (mut bins, mut front) = (Vec::new(), Front::default());
    for at in state.tier.iter() {
        let takes: Vec<bool> = classes.iter().map(|class| compiled.takes[*class].contains(at)).collect();
        if !takes.contains(&true) {
            continue;
        }
        let price = compiled.offer(at).price;
        // Offers come in order of price: who is known already costs no more.
        if varied || front.takes(compiled, at, &takes) {
            bins.push(Bin { offer: at, price, takes, avail: compiled.avail[at].clone() });
        }
    }
    bins
}

impl Search<'_, '_, '_> {
    /// Dollars and nodes for what is left; `None` if that cannot be done or the budget is spent.
    fn best(&mut self, left: &[u32]) -> Option<(u64, u32)> {
        if let Some(known) = self.known.get(left) {
            return (known.price < u64::MAX).then_some((known.price, known.nodes));
        }
        let Some(first) = left.iter().position(|count| *count > 0) else {
            self.known.insert(left.to_vec(), Best { price: 0, nodes: 0, first: None });
            return Some((0, 0));
        };
        let mut best = Best { price: u64::MAX, nodes: u32::MAX, first: None };
        for bin in 0..self.bins.len() {
            if !self.bins[bin].takes[first] || self.bins[bin].price > best.price {
                continue;
            }
            let mut found = Vec::new();
            let mut pattern = vec![0; left.len()];
            let avail = self.bins[bin].avail.clone();
            self.fill(bin, left, first, &mut pattern, &avail, &mut found);
            for pattern in found {
                let rest: Vec<u32> = left.iter().zip(&pattern).map(|(left, count)| left - count).collect();
                let Some((price, nodes)) = self.best(&rest) else {
                    if self.patterns > self.most {
                        return None;
                    }
                    continue;
                };
                let price = price.saturating_add(self.bins[bin].price);
                if (price, nodes + 1) < (best.price, best.nodes) {
                    best = Best { price, nodes: nodes + 1, first: Some((bin, pattern)) };
                }
            }
            if self.patterns > self.most {
                return None;
            }
        }
        let answer = best.first.is_some().then_some((best.price, best.nodes));
        self.known.insert(left.to_vec(), best);
        answer
    }

    /// Every maximal set of the pods left that the node holds, with at least one of the class `first`.
    fn fill(
        &mut self,
        bin: usize,
        left: &[u32],
        at: usize,
        pattern: &mut Vec<u32>,
        free: &[i64],
        found: &mut Vec<Vec<u32>>,
    ) {
        if self.patterns > self.most {
            return;
        }
        let Some(class) = self.classes.get(at).copied() else {
            self.patterns += 1;
            if self.is_maximal(bin, left, pattern, free) {
                found.push(pattern.clone());
            }
            return;
        };
        let first = left.iter().position(|count| *count > 0) == Some(at);
        let request = &self.state.compiled.requests[class];
        let most = if self.bins[bin].takes[at] { most(request, free).min(left[at]) } else { 0 };
        let last = self.classes.len() == at + 1;
        for count in (u32::from(first)..=most).rev() {
            pattern[at] = count;
            if count == 0 || self.is_together(pattern) {
                let request = &self.state.compiled.requests[class];
                let used = request.iter().zip(free).map(|(need, free)| free - need * i64::from(count));
                let rest: Vec<i64> = used.collect();
                self.fill(bin, left, at + 1, pattern, &rest, found);
                // Of the last class only the most is maximal.
                if last && !self.varied {
                    break;
                }
            }
        }
        pattern[at] = 0;
    }

    /// Anti-affinity, host ports and hostname spread of the pods of one node.
    fn is_together(&self, pattern: &[u32]) -> bool {
        let pods: Vec<(usize, u32)> =
            self.classes.iter().zip(pattern).map(|(class, count)| (*class, *count)).filter(|(_, n)| *n > 0).collect();
        pods.iter().enumerate().all(|(index, (class, count))| {
            // The last pod of each class comes to all the others.
            let mut others = pods.clone();
            others[index].1 = count - 1;
            self.state.compiled.together(*class, &others, None)
        })
    }

    fn is_maximal(&self, bin: usize, left: &[u32], pattern: &[u32], free: &[i64]) -> bool {
        let compiled = self.state.compiled;
        let pods: Vec<(usize, u32)> = self.classes.iter().zip(pattern).map(|(class, count)| (*class, *count)).collect();
        let open: Vec<(usize, u32)> = pods.iter().filter(|(_, count)| *count > 0).copied().collect();
        if self.varied {
            // Fewer pods may leave more alternatives, so that every set counts that leaves enough.
            let mask: Bits = self.state.becoming(&open);
            return self.state.needs(self.bins[bin].offer, &mask).is_some();
        }
        pods.iter().enumerate().all(|(at, (class, count))| {
            let more = self.bins[bin].takes[at]
                && *count < left[at]
                && compiled.requests[*class].iter().zip(free).all(|(need, free)| *need <= 0 || need <= free)
                && compiled.together(*class, &open, None);
            !more
        })
    }
}
