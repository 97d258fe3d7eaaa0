//! Pods that are spread over hosts, dealt to hosts that hold several of them each.
//!
//! kube-scheduler holds a host against the one that has the fewest of these pods, so that hosts may have any number as long as
//! all have about as many. The construction takes that least number as 0, which is right wherever some host that counts has
//! none. Here it is not: every new node gets its share of all pods, one after the other. The checker judges what comes of it.

use std::collections::BTreeSet;

use super::bits::Bits;
use super::construct;
use super::draft::Draft;
use super::judge;
use super::problem::{Place, Plan};
use super::state::State;
use super::tally::Tally;

/// Most pods that are dealt, and most classes of them.
const PODS: usize = 5_000;
const CLASSES: usize = 64;
/// Classes whose nodes are dealt by themselves, and numbers of hosts that are built for each scope.
const SCOPES: usize = 16;
const BUILT: usize = 6;
/// Numbers of hosts that are tried, and nodes that are looked at for that.
const NUMBERS: usize = 48;
const LOOKED_AT: usize = 40_000;

/// What is dealt: pods by class, in their order.
struct Deck {
    pods: Vec<(usize, Vec<usize>)>,
    /// New nodes that it is taken from.
    nodes: Vec<usize>,
    /// What those cost.
    cost: u64,
}

/// The pods of one node.
type Hand = Vec<(usize, u32)>;

/// Whose pods are dealt.
#[derive(Clone, Copy)]
enum Scope {
    /// Everybody on new nodes.
    All,
    /// Who stands on new nodes with pods that are spread.
    Spread,
    /// Who stands on new nodes with pods of this class.
    Class(usize),
}

/// The draft with pods dealt to fewer and larger nodes, scope by scope, where that costs less or places more and holds; `None` where it
/// never does.
pub(super) fn evened<'c, 'p>(draft: &Draft<'c, 'p>, holds: &dyn Fn(&Draft<'c, 'p>) -> bool) -> Option<Draft<'c, 'p>> {
    let problem = draft.state.compiled.problem;
    if problem.hosts_come {
        // One of them counts, and has none of the pods.
        return None;
    }
    let on_new = |pod: usize| draft.class_of(pod).filter(|(_, at)| *at >= problem.nodes.len()).map(|(class, _)| class);
    let mut classes: Vec<usize> = (0..draft.slots.len())
        .filter_map(|pod| if draft.slots[pod].is_none() { only_class(draft, pod) } else { on_new(pod) })
        .filter(|class| is_spread(draft, *class))
        .collect();
    classes.sort_unstable();
    classes.dedup();
    if classes.is_empty() {
        return None;
    }
    let of_class = classes.iter().take(SCOPES).map(|class| Scope::Class(*class));
    let mut tried: Vec<Vec<usize>> = Vec::new();
    let mut best: Option<Draft<'c, 'p>> = None;
    for scope in [Scope::All, Scope::Spread].into_iter().chain(of_class) {
        let now = best.as_ref().unwrap_or(draft);
        let nodes = nodes_of(now, scope);
        if tried.contains(&nodes) {
            continue;
        }
        let next = dealt(now, nodes.clone()).filter(|next| next.rank() < now.rank() && holds(next));
        tried.push(nodes);
        best = next.or(best);
    }
    best
}

fn is_spread(draft: &Draft<'_, '_>, class: usize) -> bool {
    draft.state.compiled.caps[class].iter().any(|cap| !cap.preferred && cap.of.contains(class))
}

/// The new nodes of a scope.
fn nodes_of(draft: &Draft<'_, '_>, scope: Scope) -> Vec<usize> {
    let counts = |at: usize| draft.state.slots[at].counts.iter().map(|(class, _)| *class);
    let within = |at: usize| match scope {
        Scope::All => counts(at).next().is_some(),
        Scope::Spread => counts(at).any(|class| is_spread(draft, class)),
        Scope::Class(class) => counts(at).any(|other| other == class),
    };
    (draft.state.compiled.problem.nodes.len()..draft.state.slots.len()).filter(|at| within(*at)).collect()
}

/// Whether kube-scheduler would put nobody from a new node on one that exists, with everybody where the plan has them.
pub(super) fn stays_new(draft: &Draft<'_, '_>, plan: &Plan) -> bool {
    let compiled = draft.state.compiled;
    let problem = compiled.problem;
    if problem.nodes.is_empty() {
        return true;
    }
    let tally = Tally::with_all(problem, plan);
    let on_new = plan.places.iter().enumerate().filter(|(_, place)| matches!(place, Place::New(_)));
    let new: BTreeSet<usize> = on_new.filter_map(|(pod, _)| problem.kinds[problem.pods[pod]].last()).copied().collect();
    let existing = || draft.state.slots.iter().take(problem.nodes.len()).enumerate();
    !new.into_iter().any(|class| {
        existing().any(|(at, slot)| {
            judge::fits_existing(compiled, class, at, &slot.load, &slot.counts) && tally.allows(class, at)
        })
    })
}

/// The class of a pod without preferences.
fn only_class(draft: &Draft<'_, '_>, pod: usize) -> Option<usize> {
    let problem = draft.state.compiled.problem;
    match problem.kinds[problem.pods[pod]].as_slice() {
        [class] => Some(*class),
        _ => None,
    }
}

/// The draft with everybody on these nodes, and who has no place, dealt to the cheapest number of hosts that can be had.
fn dealt<'c, 'p>(draft: &Draft<'c, 'p>, nodes: Vec<usize>) -> Option<Draft<'c, 'p>> {
    let compiled = draft.state.compiled;
    let problem = compiled.problem;
    let deck = deck(draft, nodes)?;
    let mut made = draft.clone();
    made.proven = false;
    deck.nodes.iter().for_each(|at| {
        made.state.close(*at);
    });
    let weight = match deck.nodes.first() {
        Some(at) => draft.state.weight(draft.state.slots[*at].offer),
        None => problem.pools.iter().map(|pool| pool.weight).max()?,
    };
    made.state.tier = construct::tier(&made.state, weight);
    let cells = cells(&made.state, &deck);
    let all: Vec<usize> = deck.pods.iter().flat_map(|(_, pods)| pods).copied().collect();
    let places_more = all.iter().any(|pod| draft.slots[*pod].is_none());
    let mut looked_at = 0;
    let mut numbers: Vec<(u64, usize)> = Vec::new();
    for hosts in numbers_of(&made.state, &deck, &cells, all.len()) {
        looked_at += hosts;
        if looked_at > LOOKED_AT {
            break;
        }
        let below = if places_more { u64::MAX } else { deck.cost };
        let cost = cost(&made.state, &deck, &cells, hosts, below);
        numbers.extend(cost.map(|cost| (cost, hosts)));
    }
    made.state.work.mended += looked_at as u64;
    numbers.sort_unstable();
    // What limits leave is known when all nodes are there.
    numbers.iter().take(BUILT).find_map(|(_, hosts)| {
        let mut made = made.clone();
        let mut at_of: Vec<usize> = Vec::new();
        for (host, counts) in hands(&deck, *hosts).iter().enumerate() {
            let offer = cheapest(&made.state, &cells, host, counts)?;
            let cell = cells.get(host % cells.len().max(1))?;
            let inside = holding(&made.state, cell, &compiled.load_of(counts));
            let at = made.state.slots.len();
            for class in counts.iter().flat_map(|(class, count)| std::iter::repeat_n(*class, *count as usize)) {
                made.state.come(at, class, offer, inside.clone());
            }
            at_of.push(at);
        }
        for (turn, pod) in all.iter().enumerate() {
            made.slots[*pod] = at_of.get(turn % hosts).copied();
        }
        Some(made)
    })
}

/// Offers that take everybody, domain by domain where counters concern somebody.
fn cells(state: &State<'_, '_>, deck: &Deck) -> Vec<Bits> {
    let mut mask = state.tier.clone();
    deck.pods.iter().for_each(|(class, _)| mask.intersect(&state.compiled.takes[*class]));
    if !deck.pods.iter().any(|(class, _)| state.topology.links(*class)) {
        return vec![mask];
    }
    let inside = |cell: &Bits| {
        let mut inside = cell.clone();
        inside.intersect(&mask);
        inside
    };
    let cells = state.topology.cells.iter().map(inside);
    cells.filter(|cell| cell.iter().next().is_some()).collect()
}

/// Everybody on these nodes, and who has no place and no preference either; `None` if they are too many, or of pools of several
/// weights.
fn deck(draft: &Draft<'_, '_>, nodes: Vec<usize>) -> Option<Deck> {
    let state = &draft.state;
    let mut pods: indexmap::IndexMap<usize, Vec<usize>, rustc_hash::FxBuildHasher> = indexmap::IndexMap::default();
    for pod in 0..draft.slots.len() {
        let class = match draft.class_of(pod) {
            Some((class, at)) => nodes.binary_search(&at).is_ok().then_some(class),
            None => only_class(draft, pod),
        };
        if let Some(class) = class {
            pods.entry(class).or_default().push(pod);
        }
    }
    let weights: Vec<u32> = nodes.iter().map(|at| state.weight(state.slots[*at].offer)).collect();
    let by_host = pods.keys().any(|class| state.topology.by_host(*class) || state.compiled.shares(*class));
    let number: usize = pods.values().map(Vec::len).sum();
    if by_host || number > PODS || pods.len() > CLASSES || weights.windows(2).any(|pair| pair[0] != pair[1]) {
        return None;
    }
    let price = |at: &usize| state.compiled.offer(state.slots[*at].offer).price;
    let cost = nodes.iter().map(price).sum();
    Some(Deck { pods: pods.into_iter().collect(), nodes, cost })
}

/// Numbers of hosts with which the resources of some offer are used up.
fn numbers_of(state: &State<'_, '_>, deck: &Deck, cells: &[Bits], pods: usize) -> Vec<usize> {
    let compiled = state.compiled;
    let mut demand = vec![0_i64; compiled.resources.len()];
    for (class, pods) in &deck.pods {
        let number = i64::try_from(pods.len()).unwrap_or(i64::MAX);
        for (sum, need) in demand.iter_mut().zip(&compiled.requests[*class]) {
            *sum = sum.saturating_add(need.saturating_mul(number));
        }
    }
    let alone = |class: usize| compiled.apart[class].as_ref().is_some_and(|apart| apart.contains(class));
    let least = deck.pods.iter().filter(|(class, _)| alone(*class)).map(|(_, pods)| pods.len()).max().unwrap_or(1);
    let mut least_of: Vec<usize> = Vec::new();
    let mut known = Bits::none(compiled.distinct);
    for offer in cells.iter().flat_map(Bits::iter).filter(|offer| known.is_new(compiled.alike[*offer])) {
        let hosts = demand.iter().zip(&compiled.avail[offer]).filter(|(demand, _)| **demand > 0);
        let hosts = hosts.map(|(demand, avail)| if *avail > 0 { (demand - 1) / avail + 1 } else { i64::MAX }).max();
        let Some(hosts) = hosts.and_then(|hosts| usize::try_from(hosts).ok()) else { continue };
        least_of.push(hosts.max(least));
    }
    least_of.sort_unstable();
    least_of.dedup();
    let mut found: Vec<usize> = Vec::new();
    for hosts in least_of {
        // A little more where shares are uneven; as many in each domain where domains are counted.
        for hosts in [hosts, hosts.saturating_add(1), hosts.saturating_add(hosts / 8 + 2)] {
            found.extend([hosts, hosts.div_ceil(cells.len()).saturating_mul(cells.len())]);
        }
    }
    found.retain(|hosts| *hosts <= pods);
    found.sort_unstable();
    found.dedup();
    // Of many numbers some, evenly.
    let step = found.len().div_ceil(NUMBERS).max(1);
    found.into_iter().step_by(step).collect()
}

/// Everybody one after the other, class by class.
fn hands(deck: &Deck, hosts: usize) -> Vec<Hand> {
    let mut hands: Vec<Hand> = vec![Vec::new(); hosts];
    let mut cursor = 0;
    for (class, pods) in &deck.pods {
        for _ in pods {
            let hand = &mut hands[cursor % hosts];
            match hand.last_mut().filter(|(known, _)| known == class) {
                Some((_, count)) => *count += 1,
                None => hand.push((*class, 1)),
            }
            cursor += 1;
        }
    }
    hands
}

/// What the hosts cost; `None` if one of them cannot be had, or if all of them come to `below` or more.
fn cost(state: &State<'_, '_>, deck: &Deck, cells: &[Bits], hosts: usize, below: u64) -> Option<u64> {
    hands(deck, hosts).iter().enumerate().try_fold(0_u64, |sum, (host, counts)| {
        let offer = cheapest(state, cells, host, counts)?;
        Some(sum.saturating_add(state.compiled.offer(offer).price)).filter(|sum| *sum < below)
    })
}

/// The cheapest offer of a host's domain that holds these pods.
fn cheapest(state: &State<'_, '_>, cells: &[Bits], host: usize, counts: &[(usize, u32)]) -> Option<usize> {
    let cell = cells.get(host % cells.len().max(1))?;
    let load = state.compiled.load_of(counts);
    if state.compiled.varied {
        return state.cheapest(&holding(state, cell, &load), None);
    }
    state.cheapest_with(cell, None, &load, None)
}

/// The offers of a domain that hold a load.
fn holding(state: &State<'_, '_>, cell: &Bits, load: &[i64]) -> Bits {
    let mut mask = cell.clone();
    state.compiled.holding(&mut mask, load);
    mask
}
