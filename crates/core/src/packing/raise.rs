//! Pods on hosts that exist, beside more of those that are spread over hosts than a new host would hold.
//!
//! The construction takes the least number of such pods that a host holds as 0, since a new one has none, and it keeps whoever a
//! spread counts to that as well. Where hosts that exist take everybody none comes, and each may hold any number as long as all that
//! count hold about as many; and who is only counted goes wherever there is capacity. Here pods are dealt to hosts that exist by what
//! all of them hold. The checker judges what comes of it.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::bits::Bits;
use super::construct;
use super::draft::{self, Draft};
use super::finish;
use super::judge;
use super::tally::Tally;

/// Most kinds of pods that are dealt by themselves.
const SCOPES: usize = 16;
/// Of more pods none are.
const MANY: usize = 2_000;
/// Hosts that are compared, each for each pod that is held against it.
const COMPARED: usize = 20_000_000;

/// The draft with pods on hosts that exist, where that costs less or places more and holds; `None` where it never does.
pub(super) fn raised<'c, 'p>(draft: &Draft<'c, 'p>, holds: &dyn Fn(&Draft<'c, 'p>) -> bool) -> Option<Draft<'c, 'p>> {
    let compiled = draft.state.compiled;
    let problem = compiled.problem;
    let first = problem.nodes.len();
    // Whoever is placed before a node that is joining is one does not count it.
    if first == 0 || compiled.caps.iter().all(Vec::is_empty) || problem.nodes.iter().any(|node| node.joining) {
        return None;
    }
    // Who is spread, and whom a spread counts.
    let mut concerned = Bits::of(problem.classes.len(), |class| !compiled.caps[class].is_empty());
    compiled.caps.iter().flatten().for_each(|cap| concerned.unite(&cap.of));
    let last = |pod: usize| problem.kinds[problem.pods[pod]].last().copied();
    let concerns = |pod: &usize| last(*pod).is_some_and(|class| concerned.contains(class));
    let all: Vec<usize> = (0..draft.slots.len()).filter(concerns).collect();
    let mut known: FxHashMap<usize, bool> = FxHashMap::default();
    let mut could_take = |class: usize| {
        let takes = |at: usize| {
            let slot = &draft.state.slots[at];
            judge::fits_existing(compiled, class, at, &slot.load, &slot.counts)
        };
        *known.entry(class).or_insert_with(|| (0..first).any(takes))
    };
    let is_open = |draft: &Draft<'c, 'p>, pod: usize| draft.slots[pod].is_none_or(|at| at >= first);
    let open = all.iter().copied().filter(|pod| is_open(draft, *pod) && last(*pod).is_some_and(&mut could_take));
    let open: Vec<usize> = open.collect();
    if open.is_empty() {
        return None;
    }
    let mut kinds: Vec<usize> = open.iter().map(|pod| problem.pods[*pod]).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.truncate(if draft.slots.len() > MANY { 0 } else { SCOPES });
    // Those without a place and those on new nodes; then kind by kind, as one that leaves pods for new nodes keeps to what those hold;
    // at last everybody once more.
    let of_kind = |kind: &usize| open.iter().copied().filter(|pod| problem.pods[*pod] == *kind).collect();
    let kinds: Vec<Vec<usize>> = kinds.iter().map(of_kind).collect();
    let mut best: Option<Draft<'c, 'p>> = None;
    let mut compared = 0;
    for pods in [open].into_iter().chain(kinds).chain([all]) {
        let now = best.as_ref().unwrap_or(draft);
        if !pods.iter().any(|pod| is_open(now, *pod)) {
            continue;
        }
        let next = dealt(now, &pods, &mut compared).filter(|next| next.rank() < now.rank() && holds(next));
        best = next.or(best);
        if compared > COMPARED {
            break;
        }
    }
    best
}

/// The draft with these pods dealt to hosts that exist, and whom those do not take on new ones.
fn dealt<'c, 'p>(draft: &Draft<'c, 'p>, pods: &[usize], compared: &mut usize) -> Option<Draft<'c, 'p>> {
    let compiled = draft.state.compiled;
    let problem = compiled.problem;
    let first = problem.nodes.len();
    let mut made = draft.clone();
    (made.proven, made.complete) = (false, false);
    let mut left_by: BTreeSet<usize> = BTreeSet::new();
    for pod in pods {
        if let Some((class, at)) = made.class_of(*pod) {
            made.state.remove(at, class);
            made.slots[*pod] = None;
            left_by.extend((at >= first).then_some(at));
        }
    }
    for at in left_by {
        if !made.state.slots[at].counts.is_empty() {
            made.state.tier = construct::tier(&made.state, made.state.weight(made.state.slots[at].offer));
            if !made.state.refit(at) {
                return None;
            }
        }
    }
    let plan = finish::unproven(made.clone());
    let mut tally = Tally::with_all(problem, &plan);
    let hosts = first + plan.nodes.len();
    // Who is only counted comes after those that are held against what stands there.
    let required = |pod: usize| problem.kinds[problem.pods[pod]].last().copied();
    let is_spread = |pod: &usize| required(*pod).is_some_and(|class| !compiled.caps[class].is_empty());
    let (mut left, mut later): (Vec<usize>, Vec<usize>) = pods.iter().copied().partition(is_spread);
    loop {
        let before = left.len();
        // A host that refused a pod refuses the next of its kind until all have had their turn.
        let mut from: FxHashMap<usize, usize> = FxHashMap::default();
        for pod in std::mem::take(&mut left) {
            // On a node that is Ready that is what it stands as.
            let Some(class) = required(pod) else { continue };
            let start = from.entry(problem.pods[pod]).or_insert(0);
            let found = (*start..first).find(|at| {
                made.state.work.nodes += 1;
                let slot = &made.state.slots[*at];
                if !judge::fits_existing(compiled, class, *at, &slot.load, &slot.counts) {
                    return false;
                }
                *compared = compared.saturating_add(hosts);
                tally.allows(class, *at)
            });
            if *compared > COMPARED {
                return None;
            }
            *start = found.unwrap_or(first);
            let Some(at) = found else {
                left.push(pod);
                continue;
            };
            made.state.stand(at, class);
            tally.add(class, at);
            (made.slots[pod], made.levels[pod]) = (Some(at), 0);
        }
        if !left.is_empty() && left.len() < before {
            continue;
        }
        if later.is_empty() {
            break;
        }
        left.append(&mut later);
    }
    left.sort_unstable();
    let weights = draft::weights(problem);
    for pod in left {
        let kind = &problem.kinds[problem.pods[pod]];
        for (level, class) in kind.iter().enumerate().skip(made.levels[pod]) {
            made.slots[pod] = made.on_new(*class, &weights);
            if made.slots[pod].is_some() {
                made.levels[pod] = level;
                break;
            }
        }
    }
    Some(made)
}
