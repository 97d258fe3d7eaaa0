//! A dozen pods: every way to place them, pod by pod, cut off where the plan that is known is better. Constraints between
//! nodes, nodes that exist, limits and reservations are all looked at, so that what it ends with is the best there is.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::bits::Bits;
use super::compile::Compiled;
use super::draft::Draft;
use super::judge::{Judge, Placed, fits_existing};
use super::problem::Offer;
use super::state::{State, amount};
use super::topology::Topology;
use crate::model::node::Node;

/// Most pods.
const PODS: usize = 12;
/// Most nodes that exist, and most pods that stand on them and matter.
const NODES: usize = 24;
const STANDING: usize = 96;
/// The slot of a pod without a place.
const NOWHERE: usize = usize::MAX;

/// Pods on one new node.
#[derive(Clone, Debug)]
struct Group {
    mask: Bits,
    load: Vec<i64>,
    counts: Vec<(usize, u32)>,
}

/// How many pods of each class.
type Counts = Vec<(usize, u32)>;
/// Load of a node that exists, and the pods that the plan puts on it.
type Filled = (Vec<i64>, Counts);

/// The best so far: who has no place, dollars, nodes; `found` is the plan if it is one of this search.
struct Best {
    missing: Vec<bool>,
    cost: u64,
    nodes: usize,
    found: Option<Found>,
}

struct Found {
    slots: Vec<usize>,
    nodes: Vec<(usize, Bits, Counts)>,
}

struct Search<'s, 'c, 'p> {
    compiled: &'c Compiled<'p>,
    judge: &'s Judge<'c, 'p>,
    /// A state without pods, for questions about offers.
    empty: &'s State<'c, 'p>,
    /// Class on a new node, class on one that exists.
    pods: Vec<(usize, usize)>,
    /// Load and pods that the plan puts on nodes that exist.
    existing: Vec<Filled>,
    groups: Vec<Group>,
    slots: Vec<usize>,
    /// Offer and alternatives of each group, with what it counts against limits beyond that offer.
    chosen: Vec<(usize, Bits, Vec<i64>)>,
    best: Best,
    work: u64,
    most: u64,
}

/// A better plan than the draft, if there is one and the search is affordable. If it comes to its end the plan is proven.
pub(super) fn better<'c, 'p>(
    compiled: &'c Compiled<'p>,
    topology: &'c Topology<'p>,
    draft: Draft<'c, 'p>,
) -> Draft<'c, 'p> {
    let problem = compiled.problem;
    let most = problem.budget.branches;
    let one_weight = problem.pools.windows(2).all(|pair| pair[0].weight == pair[1].weight);
    let small = (1..=PODS).contains(&problem.pods.len())
        && problem.nodes.len() <= NODES
        && problem.standing.len() <= STANDING
        && draft.levels.iter().all(|level| *level == 0);
    let existing = |slot: &Option<usize>| slot.is_none_or(|at| draft.state.slots[at].existing.is_some());
    let settled = draft.proven && !draft.slots.iter().any(existing);
    if most == 0 || problem.budget.states == 0 || !one_weight || !small || settled {
        return draft;
    }
    let judge = Judge::new(compiled);
    let empty = State::new(compiled, topology);
    let pods = problem.pods.iter().map(|kind| {
        let kind = &problem.kinds[*kind];
        (kind.first().copied().unwrap_or(0), kind.last().copied().unwrap_or(0))
    });
    let nothing = (vec![0; compiled.resources.len()], Vec::new());
    let mut search = Search {
        compiled,
        judge: &judge,
        empty: &empty,
        pods: pods.collect(),
        existing: vec![nothing; problem.nodes.len()],
        groups: Vec::new(),
        slots: Vec::new(),
        chosen: Vec::new(),
        best: known(&judge, &draft),
        work: 0,
        most,
    };
    search.walk();
    let complete = search.work <= search.most;
    let (best, work) = (search.best, search.work);
    let mut draft = match best.found {
        Some(found) => rebuilt(compiled, topology, &draft, &found, &problem.pods),
        None => draft,
    };
    draft.state.work.patterns += work;
    draft.complete = complete;
    draft
}

/// What the draft comes to; nothing at all if kube-scheduler would refuse it, or would have put somebody on a node that exists.
fn known(judge: &Judge<'_, '_>, draft: &Draft<'_, '_>) -> Best {
    let state = &draft.state;
    let first = state.compiled.problem.nodes.len();
    let (number, new) = state.hosts();
    let placed: Vec<(usize, usize, usize)> = draft
        .slots
        .iter()
        .zip(&state.compiled.problem.pods)
        .filter_map(|(slot, kind)| {
            let kind = &state.compiled.problem.kinds[*kind];
            let (class, last) = (*kind.first()?, *kind.last()?);
            let ready = |at: usize| state.compiled.problem.nodes.get(at).is_some_and(|node| !node.joining);
            slot.map(|at| (if ready(at) { last } else { class }, last, number[at]))
        })
        .collect();
    let existing: Vec<Filled> =
        state.slots.iter().take(first).map(|slot| (slot.load.clone(), slot.counts.clone())).collect();
    if !is_valid(judge, state.compiled, &new, &placed, &existing) {
        return Best { missing: vec![true; draft.slots.len()], cost: u64::MAX, nodes: usize::MAX, found: None };
    }
    Best {
        missing: draft.slots.iter().map(Option::is_none).collect(),
        cost: state.cost(),
        nodes: state.new_nodes().count(),
        found: None,
    }
}

/// Whether the filters accept every pod on its node, in the order of the pods and if those on nodes that are joining come last,
/// and no pod would be taken by a node that comes before its own. Pods are given by the class they stand as, the class of what
/// they require, and their node.
pub(super) fn is_valid(
    judge: &Judge<'_, '_>,
    compiled: &Compiled<'_>,
    new: &[&Node],
    pods: &[(usize, usize, usize)],
    existing: &[Filled],
) -> bool {
    let mut placed: Vec<Placed> = pods.iter().map(|(class, _, at)| (*class, *at)).collect();
    let comes_last = |(_, at): &Placed| is_joining(compiled, *at);
    let holds = |placed: &mut Vec<Placed>| {
        judge.holds(new, placed)
            && (!compiled.comes_last || placed.is_sorted_by_key(comes_last) || {
                placed.sort_by_key(comes_last);
                judge.holds(new, placed)
            })
    };
    (!judge.is_needed() || holds(&mut placed)) && nobody_goes_earlier(judge, compiled, new, pods, existing)
}

fn is_joining(compiled: &Compiled<'_>, at: usize) -> bool {
    compiled.problem.nodes.get(at).is_some_and(|node| node.joining)
}

/// Whether no pod on a new node would be taken by one that exists, and none on a node that is joining by one that is Ready.
pub(super) fn nobody_goes_earlier(
    judge: &Judge<'_, '_>,
    compiled: &Compiled<'_>,
    new: &[&Node],
    pods: &[(usize, usize, usize)],
    existing: &[Filled],
) -> bool {
    let waits = |at: usize| at >= existing.len() || is_joining(compiled, at);
    // Pods of a class on one node are asked once.
    let mut asked: FxHashSet<(usize, usize, usize)> = FxHashSet::default();
    !pods.iter().enumerate().filter(|(_, one)| waits(one.2) && asked.insert(**one)).any(
        |(pod, (class, required, at))| {
            existing.iter().enumerate().any(|(node, (load, counts))| {
                let joining = is_joining(compiled, node);
                let asks = if joining { *class } else { *required };
                (!joining || *at >= existing.len()) && fits_existing(compiled, asks, node, load, counts) && {
                    let others = pods.iter().enumerate().filter(|(other, _)| *other != pod);
                    let others: Vec<Placed> = others.map(|(_, (class, _, at))| (*class, *at)).collect();
                    judge.allows(asks, node, new, &others)
                }
            })
        },
    )
}

fn rebuilt<'c, 'p>(
    compiled: &'c Compiled<'p>,
    topology: &'c Topology<'p>,
    draft: &Draft<'c, 'p>,
    found: &Found,
    pods: &[usize],
) -> Draft<'c, 'p> {
    let mut state = State::new(compiled, topology);
    state.work = draft.state.work;
    let first = compiled.problem.nodes.len();
    for (slot, kind) in found.slots.iter().zip(pods).filter(|(slot, _)| **slot < first) {
        state.stand(*slot, compiled.problem.class_on(&compiled.problem.kinds[*kind], *slot, 0));
    }
    for (offer, mask, counts) in &found.nodes {
        state.launch(*offer, mask.clone(), counts.clone());
    }
    let slots = found.slots.iter().map(|slot| (*slot != NOWHERE).then_some(*slot)).collect();
    Draft { state, slots, levels: vec![0; pods.len()], proven: false, complete: false }
}

impl Search<'_, '_, '_> {
    fn walk(&mut self) {
        self.work += 1;
        if self.work > self.most {
            return;
        }
        let pod = self.slots.len();
        let missing: Vec<bool> = self.slots.iter().map(|slot| *slot == NOWHERE).collect();
        let against = missing.as_slice().cmp(&self.best.missing[..pod]);
        let rest_placed = !self.best.missing[pod..].contains(&true);
        if against.is_gt() || against.is_eq() && rest_placed && (self.least(), self.groups.len()) >= self.known() {
            return;
        }
        let Some((class, required)) = self.pods.get(pod).copied() else {
            self.choose(0, 0, &missing);
            return;
        };
        // Equal pods one after the other take nodes in their order.
        let same = pod > 0 && self.pods[pod] == self.pods[pod - 1];
        let start = if same { self.slots[pod - 1] } else { 0 };
        let first = self.existing.len();
        for node in start.min(first)..first {
            let asks = if self.compiled.problem.nodes[node].joining { class } else { required };
            let (load, counts) = &self.existing[node];
            if !fits_existing(self.compiled, asks, node, load, counts) {
                continue;
            }
            let before = self.existing[node].clone();
            let (load, counts) = &mut self.existing[node];
            self.compiled.load(load, asks, 1, counts, Some(node));
            count(counts, asks);
            self.step(node);
            self.existing[node] = before;
        }
        for group in start.saturating_sub(first).min(self.groups.len())..self.groups.len() {
            if start == NOWHERE {
                break;
            }
            let Some(grown) = self.grown(&self.groups[group], class) else { continue };
            let before = std::mem::replace(&mut self.groups[group], grown);
            self.step(first + group);
            self.groups[group] = before;
        }
        if start != NOWHERE {
            let load = vec![0; self.compiled.resources.len()];
            let open = Group { mask: self.empty.tier.clone(), load, counts: Vec::new() };
            if let Some(opened) = self.grown(&open, class) {
                self.groups.push(opened);
                self.step(first + self.groups.len() - 1);
                self.groups.pop();
            }
        }
        self.step(NOWHERE);
    }

    fn step(&mut self, slot: usize) {
        self.slots.push(slot);
        self.walk();
        self.slots.pop();
    }

    fn known(&self) -> (u64, usize) {
        (self.best.cost, self.best.nodes)
    }

    /// What the groups cost at least.
    fn least(&self) -> u64 {
        let cheapest = |group: &Group| group.mask.iter().next().map_or(0, |at| self.compiled.offer(at).price);
        self.groups.iter().map(cheapest).fold(0, u64::saturating_add)
    }

    /// The group with one more pod, if some offer holds it.
    fn grown(&self, group: &Group, class: usize) -> Option<Group> {
        if !self.compiled.apart_from(class, &group.counts) {
            return None;
        }
        let mut grown = group.clone();
        self.compiled.load(&mut grown.load, class, 1, &group.counts, None);
        count(&mut grown.counts, class);
        grown.mask.intersect(&self.compiled.takes[class]);
        self.compiled.holding(&mut grown.mask, &grown.load);
        grown.mask.iter().next()?;
        Some(grown)
    }

    /// An offer for each group, the cheapest first.
    fn choose(&mut self, at: usize, cost: u64, missing: &[bool]) {
        self.work += 1;
        if self.work > self.most {
            return;
        }
        let same = missing == self.best.missing;
        if same && (cost, self.groups.len()) >= self.known() {
            return;
        }
        if at == self.groups.len() {
            self.judge_all(cost, missing);
            return;
        }
        for (offer, mask, more) in self.candidates(at) {
            let price = self.compiled.offer(offer).price;
            self.chosen.push((offer, mask, more));
            if self.within_limits() {
                self.choose(at + 1, cost.saturating_add(price), missing);
            }
            self.chosen.pop();
        }
    }

    /// Offers of a group that differ in anything but their price: the cheapest of each kind, with those of its kind.
    fn candidates(&self, group: usize) -> Vec<(usize, Bits, Vec<i64>)> {
        let mut kinds: Vec<(Kind, usize, Bits)> = Vec::new();
        let mask = &self.groups[group].mask;
        for at in mask.iter() {
            let offer = self.compiled.offer(at);
            let tied = self.judge.is_needed();
            let pool = &self.compiled.problem.pools[offer.pool];
            let kind = Kind {
                pool: (offer.pool, offer.variant),
                cell: tied.then(|| self.empty.topology.cell_of.get(at).copied().unwrap_or(0)),
                counting: if tied { self.judge.counting(&offer.node) } else { Vec::new() },
                amounts: pool.left.keys().map(|name| amount(offer, name.as_str())).collect(),
                values: pool.min_values.iter().map(|(key, _)| offer.node.labels.get(key).cloned()).collect(),
                reservation: offer.reservation.as_deref().map(str::to_owned),
            };
            match kinds.iter_mut().find(|(known, ..)| *known == kind) {
                Some((_, _, mask)) => mask.insert(at),
                None => {
                    let mut of = Bits::none(self.compiled.offer_of.len());
                    of.insert(at);
                    kinds.push((kind, at, of));
                }
            }
        }
        // What limits and reservations tell apart may still be alternatives of each other.
        let alike =
            |one: &Kind, other: &Kind| (one.pool, one.cell, &one.counting) == (other.pool, other.cell, &other.counting);
        let whole = |kind: &Kind| {
            let mut of = Bits::none(self.compiled.offer_of.len());
            for (_, _, mask) in kinds.iter().filter(|(other, ..)| alike(kind, other)) {
                mask.iter().for_each(|at| of.insert(at));
            }
            of
        };
        let candidate = |(kind, at, _): &(Kind, usize, Bits)| {
            let mask = whole(kind);
            let more = self.empty.needs(*at, &mask)?.more;
            Some((*at, mask, more))
        };
        kinds.iter().filter_map(candidate).collect()
    }

    fn within_limits(&self) -> bool {
        let offers: Vec<(&Offer, &Vec<i64>)> =
            self.chosen.iter().map(|(at, _, more)| (self.compiled.offer(*at), more)).collect();
        let Some((last, of_last)) = offers.last().copied() else { return true };
        let own = || offers.iter().filter(|(offer, _)| offer.pool == last.pool);
        let limited = self.compiled.problem.pools[last.pool].left.iter().enumerate().all(|(index, (name, left))| {
            let counts = |offer: &Offer, more: &[i64]| {
                amount(offer, name.as_str()).saturating_add(more.get(index).copied().unwrap_or(0))
            };
            let sum = own().map(|(offer, more)| counts(offer, more)).fold(0, i64::saturating_add);
            sum <= *left || counts(last, of_last) <= 0
        });
        let own = |offer: &Offer| offer.reservation.is_some() && offer.reservation == last.reservation;
        let hosts = offers.iter().filter(|(offer, _)| own(offer));
        limited && last.free.is_none_or(|free| hosts.count() <= free as usize)
    }

    fn judge_all(&mut self, cost: u64, missing: &[bool]) {
        let first = self.existing.len();
        let new: Vec<&Node> = self.chosen.iter().map(|(at, ..)| &*self.compiled.offer(*at).node).collect();
        let pods: Vec<(usize, usize, usize)> = self
            .slots
            .iter()
            .zip(&self.pods)
            .filter(|(slot, _)| **slot != NOWHERE)
            .map(|(slot, (class, required))| {
                let ready = *slot < first && !self.compiled.problem.nodes[*slot].joining;
                (if ready { *required } else { *class }, *required, *slot)
            })
            .collect();
        if !is_valid(self.judge, self.compiled, &new, &pods, &self.existing) {
            return;
        }
        let nodes = self.chosen.iter().zip(&self.groups);
        let found = Found {
            slots: self.slots.clone(),
            nodes: nodes.map(|((at, mask, _), group)| (*at, mask.clone(), group.counts.clone())).collect(),
        };
        self.best = Best { missing: missing.to_vec(), cost, nodes: self.groups.len(), found: Some(found) };
    }
}

/// What tells offers of a group apart.
#[derive(PartialEq, Eq)]
struct Kind {
    pool: (usize, u32),
    cell: Option<usize>,
    counting: Vec<bool>,
    amounts: Vec<i64>,
    /// Of the keys of `minValues`.
    values: Vec<Option<Arc<str>>>,
    reservation: Option<String>,
}

fn count(counts: &mut Vec<(usize, u32)>, class: usize) {
    match counts.iter_mut().find(|(other, _)| *other == class) {
        Some((_, number)) => *number += 1,
        None => counts.push((class, 1)),
    }
}
