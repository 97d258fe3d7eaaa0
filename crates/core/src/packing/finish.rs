//! From a draft to the plan: numbers, alternatives and the bound.

use super::bits::Bits;
use super::bound;
use super::columns;
use super::compile::Compiled;
use super::construct::counted;
use super::draft::Draft;
use super::judge;
use super::problem::{Basis, Bound, GroupPrices, NewNode, PRICE_SCALE, Place, Plan};
use super::state::State;
use super::state::amount;
use crate::model::launch::MAX_OVERRIDES;

/// Most alternatives of a node: with its own offer as many as one launch takes.
const ALTERNATIVES: usize = MAX_OVERRIDES - 1;

/// The plan with its bound.
pub(super) fn finish(draft: Draft<'_, '_>) -> Plan {
    let (proven, complete) = (draft.proven, draft.complete);
    let (mut plan, mut state, order) = placed(draft);
    plan.bound = bound(&mut state, &plan, &order, proven, complete);
    plan.work = state.work;
    plan
}

/// The plan, and nothing of what it costs at least.
pub(super) fn unproven(draft: Draft<'_, '_>) -> Plan {
    placed(draft).0
}

/// The plan without its bound, and its new nodes by their numbers in the state.
fn placed<'c, 'p>(draft: Draft<'c, 'p>) -> (Plan, State<'c, 'p>, Vec<usize>) {
    let Draft { mut state, slots, levels, proven: _, complete: _ } = draft;
    let compiled = state.compiled;
    // New nodes in the order of their first pod.
    let mut number: Vec<Option<usize>> = vec![None; state.slots.len()];
    let mut order = Vec::new();
    let mut places = Vec::with_capacity(slots.len());
    for slot in &slots {
        places.push(match slot {
            None => Place::None,
            Some(at) => match state.slots[*at].existing {
                Some(existing) => Place::Existing(existing),
                None => Place::New(*number[*at].get_or_insert_with(|| {
                    order.push(*at);
                    order.len() - 1
                })),
            },
        });
    }
    let mut nodes = Vec::with_capacity(order.len());
    for at in &order {
        let alternatives = alternatives(&mut state, *at);
        let offer = compiled.offer_of[state.slots[*at].offer];
        nodes.push(NewNode { offer, alternatives: alternatives.into_iter().map(|at| compiled.offer_of[at]).collect() });
    }
    let cost = state.cost();
    (Plan { places, relaxed: levels, nodes, cost, bound: None, work: state.work }, state, order)
}

/// What the pods that go to new nodes cost at least; `None` if none does.
fn bound(state: &mut State<'_, '_>, plan: &Plan, order: &[usize], proven: bool, complete: bool) -> Option<Bound> {
    let compiled = state.compiled;
    let problem = compiled.problem;
    // With what is required alone: another plan may drop preferences of other pods.
    let of = |is: &dyn Fn(&Place) -> bool| -> Vec<usize> {
        let pods = (0..plan.places.len()).filter(|pod| is(&plan.places[*pod]));
        pods.filter_map(|pod| problem.kinds[problem.pods[pod]].last().copied()).collect()
    };
    let classes = of(&|place| matches!(place, Place::New(_)));
    if classes.is_empty() {
        return None;
    }
    let wanted = counted(&classes);
    let usable = usable(compiled, &wanted);
    if (complete || proven && usable.is_empty()) && plan.relaxed.iter().all(|level| *level == 0) {
        return Some(Bound { value: plan.cost, basis: Basis::Enumeration });
    }
    let tier = tiers(compiled, state, order);
    let known = state.priced.as_ref().filter(|known| known.tier == tier && known.wanted == wanted);
    let bound = known.map_or_else(|| bound::prices(compiled, &tier, &wanted).bound, |known| known.prices.bound.clone());
    let existing = of(&|place| matches!(place, Place::Existing(_)));
    let bound = lowered(compiled, bound, &usable, existing.into_iter());
    if bound.value == plan.cost || !usable.is_empty() {
        return Some(bound);
    }
    let other = by_patterns(state, &tier, &wanted).filter(|other| other.value > bound.value);
    Some(other.unwrap_or(bound))
}

/// Nodes that exist and could take a pod that goes to a new node, if others had gone elsewhere.
fn usable(compiled: &Compiled<'_>, wanted: &[(usize, u32)]) -> Vec<usize> {
    let nothing = vec![0; compiled.resources.len()];
    let takes =
        |node: &usize| wanted.iter().any(|(class, _)| judge::fits_existing(compiled, *class, *node, &nothing, &[]));
    (0..compiled.problem.nodes.len()).filter(takes).collect()
}

/// What the pods are worth at most, if that can be had.
fn by_patterns(state: &mut State<'_, '_>, tier: &Bits, wanted: &[(usize, u32)]) -> Option<Bound> {
    let (compiled, most) = (state.compiled, state.compiled.problem.budget.columns);
    let known = state.solved.clone().filter(|known| known.is_of(tier, wanted));
    let mut new = None;
    let columns = match &known {
        Some(known) => &known.columns,
        None => {
            let columns = new.insert(columns::solve(compiled, tier, wanted, most)?);
            state.work.columns += columns.steps;
            columns
        }
    };
    let (value, worth) = columns.bound(compiled, most, &mut state.work.columns)?;
    Some(Bound { value, basis: Basis::Patterns(worth) })
}

/// Another plan may put other pods on the nodes that exist: the bound is on all of them, less whatever those nodes hold at the
/// prices of the bound.
fn lowered(compiled: &Compiled<'_>, bound: Bound, usable: &[usize], existing: impl Iterator<Item = usize>) -> Bound {
    let Basis::Resources { prices: groups, nodes: (_, of_node) } = &bound.basis else { return bound };
    let scale = u128::from(PRICE_SCALE);
    let amount = |amount: i64| u128::from(amount.max(0).unsigned_abs());
    let sum = |amounts: &[i64], prices: &dyn Fn(usize) -> u64| -> u128 {
        let each = amounts.iter().enumerate().map(|(at, one)| amount(*one).saturating_mul(u128::from(prices(at))));
        each.fold(0, u128::saturating_add)
    };
    let price = |group: &GroupPrices, at: usize| group.prices.get(at).map_or(0, |(_, price)| *price);
    let highest = |at: usize| groups.iter().map(|group| price(group, at)).max().unwrap_or(0);
    let held = usable.iter().map(|node| sum(&compiled.free[*node], &highest)).fold(0, u128::saturating_add);
    let held = held.saturating_add(u128::from(*of_node) * usable.len() as u128);
    let others = existing.map(|class| {
        let group = groups.iter().find(|group| group.classes.contains(&class));
        group.map_or(0, |group| sum(&compiled.requests[class], &|at| price(group, at)))
    });
    let all = (u128::from(bound.value) * scale).saturating_add(others.fold(0, u128::saturating_add));
    let value = u64::try_from(all.saturating_sub(held) / scale).unwrap_or(u64::MAX).min(bound.value);
    Bound { value, ..bound }
}

/// What the bound compares with: the one tier that all new nodes are of, else every offer.
fn tiers(compiled: &Compiled<'_>, state: &State<'_, '_>, order: &[usize]) -> Bits {
    let weight = |at: usize| compiled.problem.pools[compiled.offer(at).pool].weight;
    let mut used: Vec<u32> = order.iter().map(|at| weight(state.slots[*at].offer)).collect();
    used.sort_unstable();
    used.dedup();
    Bits::of(compiled.offer_of.len(), |at| used.len() != 1 || used.contains(&weight(at)))
}

/// Offers that would do in the place of a node's own, within what limits have left if the node counts as the largest of them.
fn alternatives(state: &mut State<'_, '_>, at: usize) -> Vec<usize> {
    let compiled = state.compiled;
    let (chosen, mask) = (state.slots[at].offer, state.slots[at].mask.clone());
    let own = compiled.offer(chosen);
    let pool = &compiled.problem.pools[own.pool];
    // Those first that bring the values which the pool asks for: they are counted already, and of many alike there are soon
    // as many as a launch takes.
    let needed = state.needs(chosen, &mask).unwrap_or_default();
    let mut found = needed.others;
    found.truncate(ALTERNATIVES);
    let more = |at: usize| needed.more.get(at).copied().unwrap_or(0);
    let mut largest: Vec<i64> =
        pool.left.keys().enumerate().map(|(at, name)| amount(own, name.as_str()) + more(at)).collect();
    let rest = state.alternatives(chosen, &mask).filter(|other| !found.contains(other));
    // Without limits nothing keeps the first of them out.
    let most = if pool.left.is_empty() { ALTERNATIVES - found.len() } else { usize::MAX };
    let rest: Vec<usize> = rest.take(most).collect();
    for other in rest {
        if found.len() == ALTERNATIVES {
            break;
        }
        let offer = compiled.offer(other);
        let more: Vec<i64> =
            pool.left.keys().zip(&largest).map(|(name, now)| (amount(offer, name.as_str()) - now).max(0)).collect();
        if state.extend(own.pool, &more) {
            largest.iter_mut().zip(&more).for_each(|(now, more)| *now += more);
            found.push(other);
        }
    }
    found.sort_unstable();
    found
}
