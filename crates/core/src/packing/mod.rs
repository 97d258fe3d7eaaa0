//! Nodes for ordinary pods: which pods go to nodes that exist, and the cheapest mix of new nodes for the others, with a lower
//! bound on its cost.
//!
//! Best is lexicographic: the placed pods in their order, fewest preferences dropped, dollars, nodes. The plan is a
//! deterministic function of the problem; what may be spent on it is counted work, not time. `check` is a second opinion
//! that shares nothing with the search.

mod again;
mod bits;
mod bound;
mod branch;
pub mod check;
mod claims;
mod columns;
mod compile;
mod construct;
mod dive;
mod draft;
mod even;
mod exact;
mod field;
mod fill;
mod finish;
mod judge;
mod mend;
mod merge;
mod problem;
mod proof;
mod raise;
mod refuse;
mod shift;
mod simplex;
mod state;
mod tally;
mod topology;
mod unclaimed;
mod variety;
mod volumes;

use compile::Compiled;
use construct::Order;
use draft::Draft;
use topology::Topology;

use crate::model::gang::Pod;

pub use claims::{Claimant, Late, Settled};
pub use problem::{
    Basis, Bound, Budget, CEILING, Class, Existing, GroupPrices, NewNode, NodePrices, Offer, PRICE_SCALE, Place, Plan,
    PodTerm, PodValue, Pool, Problem, Rule, Spread, Standing, Work, Worth, forget_labels, selects,
};
pub use refuse::{Obstacle, Obstacles};

/// Places every pod that can be placed.
///
/// Shapes: `places[pod]` and `relaxed[pod]` follow `problem.pods`. The answer is the same for the same problem.
#[must_use]
pub fn plan(problem: &Problem) -> Plan {
    again::kept(problem, again::without_preferences(problem, once(problem), once, from))
}

/// Places every pod that can be placed on what `base` has beside pods. Claims that pods take from each other go to them in their
/// order, see [`Late`]; `ahead` are the pods that stand, and those that wait and have a place already.
#[must_use]
pub fn settle(base: &Problem, pods: &[Claimant<'_>], ahead: &[&Pod]) -> Settled {
    claims::settle(base, pods, ahead, plan)
}

fn once(problem: &Problem) -> Plan {
    let plan = planned(&Compiled::new(problem));
    let waits = plan.places.iter().any(|place| matches!(place, Place::Existing(node) if problem.nodes[*node].joining));
    if !waits || plan.refused().next().is_none() || problem.pods.len() > again::PLANNED {
        return plan;
    }
    // Nobody is without a place for the sake of those that wait for nodes.
    let other = planned(&Compiled::new(problem).in_turn());
    if again::missing(&other) < again::missing(&plan) { other } else { plan }
}

fn planned(compiled: &Compiled<'_>) -> Plan {
    let topology = Topology::new(compiled);
    let cheap = Draft::make(compiled, &topology, Order::Cost);
    let draft = if cheap.is_short() {
        // Somebody has no place: perhaps limits went to later pods, or a domain filled up in an unlucky order.
        let given = Draft::make(compiled, &topology, Order::Given);
        if given.rank() < cheap.rank() { given } else { cheap }
    } else {
        cheap
    };
    let holds = |draft: &Draft<'_, '_>| {
        let plan = finish::unproven(draft.clone());
        check::stands(compiled.problem, &plan) && even::stays_new(draft, &plan)
    };
    let mended =
        |draft| branch::better(compiled, &topology, mend::better(compiled, merge::merged(shift::shifted(draft))));
    // What the search makes of a draft that was dealt to hosts may be uneven again.
    let searched = |dealt| {
        let searched = mended(Draft::clone(&dealt));
        if searched.rank() < dealt.rank() && holds(&searched) { searched } else { dealt }
    };
    let raised = raise::raised(&draft, &holds);
    // Whether it holds takes as long to find out as all the rest: first whether it may matter.
    let dealt = even::evened(&draft, &|_| true);
    let before = dealt.as_ref().map(|_| draft.clone());
    let mut best = mended(draft);
    let near = |draft: &Draft<'_, '_>| draft.is_near(&best);
    let even = match dealt.filter(near) {
        Some(even) if holds(&even) => Some(even),
        // Less of it may.
        Some(_) => before.and_then(|before| even::evened(&before, &holds)).filter(near),
        None => None,
    };
    for dealt in [raised, even].into_iter().flatten() {
        let dealt = searched(dealt);
        if dealt.rank() < best.rank() {
            best = dealt;
        }
    }
    finish::finish(best)
}

/// A plan made better by a search that begins with it.
fn from(problem: &Problem, plan: &Plan) -> Option<Plan> {
    let compiled = Compiled::new(problem);
    let topology = Topology::new(&compiled);
    let draft = Draft::of(&compiled, &topology, plan)?;
    Some(finish::finish(mend::better(&compiled, draft)))
}
