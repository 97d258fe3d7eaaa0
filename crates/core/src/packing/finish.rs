//! From a draft to the plan: numbers, alternatives and the bound.

use super::bits::Bits;
use super::bound;
use super::compile::Compiled;
use super::construct::counted;
use super::draft::Draft;
use super::problem::{Basis, Bound, NewNode, Place, Plan};
use super::state::State;
use super::state::amount;
use crate::ec2::CapacityType;

/// Most alternatives of a node: what one launch takes.
const ALTERNATIVES: usize = 60;

pub(super) fn finish(draft: Draft<'_, '_>) -> Plan {
    let Draft { mut state, slots, levels, proven } = draft;
    let compiled = state.compiled;
    let problem = compiled.problem;
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
    let provisioned: Vec<usize> = (0..slots.len()).filter(|pod| matches!(places[*pod], Place::New(_))).collect();
    let bound = (!provisioned.is_empty()).then(|| {
        if proven && levels.iter().all(|level| *level == 0) {
            return Bound { value: cost, basis: Basis::Enumeration, prices: Vec::new(), nodes: (0, 0) };
        }
        // With what is required alone: another plan may drop preferences of other pods.
        let classes: Vec<usize> =
            provisioned.iter().filter_map(|pod| problem.kinds[problem.pods[*pod]].last().copied()).collect();
        bound::prices(compiled, &tiers(compiled, &state, &order), &counted(&classes)).bound
    });
    Plan { places, relaxed: levels, nodes, cost, bound, work: state.work }
}

/// What the bound compares with: the one tier that all new nodes are of, else every offer.
fn tiers(compiled: &Compiled<'_>, state: &State<'_, '_>, order: &[usize]) -> Bits {
    let weight = |at: usize| compiled.problem.pools[compiled.offer(at).pool].weight;
    let mut used: Vec<u32> = order.iter().map(|at| weight(state.slots[*at].offer)).collect();
    used.sort_unstable();
    used.dedup();
    Bits::of(compiled.offer_of.len(), |at| used.len() != 1 || used.contains(&weight(at)))
}

/// Offers that would do in the place of a node's own, whatever becomes of the other nodes: of its pool, within what limits
/// have left if the node counts as the largest of them, and spot only where it is no dearer than on demand.
fn alternatives(state: &mut State<'_, '_>, at: usize) -> Vec<usize> {
    let compiled = state.compiled;
    let (chosen, mask) = (state.slots[at].offer, state.slots[at].mask.clone());
    let own = compiled.offer(chosen);
    let pool = &compiled.problem.pools[own.pool];
    let on_demand = mask
        .iter()
        .map(|other| compiled.offer(other))
        .filter(|other| other.pool == own.pool && other.capacity_type == CapacityType::OnDemand)
        .map(|other| other.price)
        .min();
    let mut largest: Vec<i64> = pool.left.keys().map(|name| amount(own, name.as_str())).collect();
    let mut found = Vec::new();
    for other in mask.iter().filter(|other| *other != chosen) {
        let offer = compiled.offer(other);
        let dear = offer.capacity_type == CapacityType::Spot && on_demand.is_some_and(|price| offer.price > price);
        if offer.pool != own.pool || offer.variant != own.variant || offer.reservation.is_some() || dear {
            continue;
        }
        if found.len() == ALTERNATIVES {
            break;
        }
        let more: Vec<i64> =
            pool.left.keys().zip(&largest).map(|(name, now)| (amount(offer, name.as_str()) - now).max(0)).collect();
        if state.extend(own.pool, &more) {
            largest.iter_mut().zip(&more).for_each(|(now, more)| *now += more);
            found.push(other);
        }
    }
    found
}
