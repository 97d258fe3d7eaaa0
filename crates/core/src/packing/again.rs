//! Preferences that stood in the way: pods that find a place only without them, and preferences that were dropped for nothing.

use super::check;
use super::compile::accepts;
use super::problem::{Place, Plan, Problem};

/// Most pods of a problem that is planned once more without preferences.
const PLANNED: usize = 1_000;
/// Most pods of a problem in which each dropped preference is tried again, and most of those that dropped one.
const TRIED: (usize, usize) = (200, 50);

/// A plan that places pods which the given one does not, by dropping every preference of those that go to new nodes. `once` plans a
/// problem.
pub(super) fn without_preferences(problem: &Problem, plan: Plan, once: impl Fn(&Problem) -> Plan) -> Plan {
    let has_preferences = problem.kinds.iter().any(|kind| kind.len() > 1);
    let short = plan.places.contains(&Place::None);
    if !short || !has_preferences || problem.pods.len() > PLANNED {
        return plan;
    }
    let required = problem.kinds.iter().map(|kind| kind.last().copied().into_iter().collect()).collect();
    let bare = Problem { kinds: required, ..problem.clone() };
    let other = once(&bare);
    let missing = |plan: &Plan| -> Vec<bool> { plan.places.iter().map(|place| *place == Place::None).collect() };
    if missing(&other) >= missing(&plan) {
        return plan;
    }
    let dropped = |(pod, place): (&usize, &Place)| match place {
        Place::New(_) => problem.kinds[*pod].len().saturating_sub(1),
        Place::Existing(_) | Place::None => 0,
    };
    let relaxed = problem.pods.iter().zip(&other.places).map(dropped).collect();
    Plan { relaxed, ..other }
}

/// The same plan, with every preference kept that holds where the pod stands.
pub(super) fn kept(problem: &Problem, mut plan: Plan) -> Plan {
    let dropped: Vec<usize> = (0..plan.relaxed.len()).filter(|pod| plan.relaxed[*pod] > 0).collect();
    if dropped.is_empty() || problem.pods.len() > TRIED.0 || dropped.len() > TRIED.1 {
        return plan;
    }
    if !check::check(problem, &plan).is_empty() {
        return plan;
    }
    for pod in dropped {
        let before = plan.relaxed[pod];
        let holds = |plan: &mut Plan, level: usize| {
            plan.relaxed[pod] = level;
            stands(problem, plan, pod, (level, before)) && check::check(problem, plan).is_empty()
        };
        let least = (0..before).find(|level| holds(&mut plan, *level)).unwrap_or(before);
        plan.relaxed[pod] = least;
    }
    plan
}

/// Whether the node of a pod, and each of its alternatives, is one that the pod would rather have at the lower level. What it would
/// rather have beside it is not tried again.
fn stands(problem: &Problem, plan: &Plan, pod: usize, (lower, higher): (usize, usize)) -> bool {
    let kind = &problem.kinds[problem.pods[pod]];
    let class = |level: usize| kind.get(level).and_then(|class| problem.classes.get(*class));
    let (Some(lower), Some(higher), Place::New(node)) = (class(lower), class(higher), plan.places[pod]) else {
        return false;
    };
    let node = &plan.nodes[node];
    let mut offers = std::iter::once(&node.offer).chain(&node.alternatives).map(|offer| &problem.offers[*offer]);
    lower.preferred == higher.preferred && offers.all(|offer| accepts(lower, &offer.node))
}
