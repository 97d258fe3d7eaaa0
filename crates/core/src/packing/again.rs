//! Preferences that stood in the way: pods that find a place only without them, and preferences that were dropped for nothing.

use std::sync::Arc;

use super::check;
use super::problem::{Place, Plan, Problem, Rule};

/// Most pods of a problem that is planned once more without preferences.
pub(super) const PLANNED: usize = 1_000;
/// Most pods of a problem in which each dropped preference is tried again, and most of those that dropped one.
const TRIED: (usize, usize) = (200, 50);

/// A plan that places pods which the given one does not, by dropping every preference of those that go to new nodes. `once` plans a
/// problem, `from` goes on from a plan.
pub(super) fn without_preferences(
    problem: &Problem,
    plan: Plan,
    once: impl Fn(&Problem) -> Plan,
    from: impl Fn(&Problem, &Plan) -> Option<Plan>,
) -> Plan {
    let has_preferences = problem.kinds.iter().any(|kind| kind.len() > 1);
    let short = plan.places.contains(&Place::None);
    if !short || !has_preferences || problem.pods.len() > PLANNED {
        return plan;
    }
    let required = problem.kinds.iter().map(|kind| kind.last().copied().into_iter().collect()).collect();
    let bare = Problem { kinds: required, ..problem.clone() };
    let other = once(&bare);
    if missing(&other) >= missing(&plan) {
        return plan;
    }
    let dropped = |(pod, place): (&usize, &Place)| match place {
        Place::Existing(node) if !problem.nodes[*node].joining => 0,
        Place::New(_) | Place::Existing(_) => problem.kinds[*pod].len().saturating_sub(1),
        Place::None => 0,
    };
    let relaxed = problem.pods.iter().zip(&other.places).map(dropped).collect();
    let bare = Plan { relaxed, ..other };
    // Preferences come before dollars: with some of them pods go to other nodes than without any.
    let rank = |plan: &Plan| (missing(plan), plan.relaxed.iter().sum::<usize>(), plan.cost);
    match from(problem, &bare) {
        Some(better) if rank(&better) < rank(&bare) && check::stands(problem, &better) => better,
        Some(_) | None => bare,
    }
}

/// Who has no place.
pub(super) fn missing(plan: &Plan) -> Vec<bool> {
    plan.places.iter().map(|place| *place == Place::None).collect()
}

/// The same plan, with every preference kept that holds where the pod stands.
pub(super) fn kept(problem: &Problem, mut plan: Plan) -> Plan {
    let dropped: Vec<usize> = (0..plan.relaxed.len()).filter(|pod| plan.relaxed[*pod] > 0).collect();
    if dropped.is_empty() || problem.pods.len() > TRIED.0 || dropped.len() > TRIED.1 {
        return plan;
    }
    if !check::stands(problem, &plan) {
        return plan;
    }
    loop {
        let mut moved = false;
        for pod in &dropped {
            let better = (0..plan.relaxed[*pod]).find_map(|level| stands(problem, &plan, *pod, level));
            if let Some(better) = better {
                plan = better;
                moved = true;
            }
        }
        // What one keeps may be what another waits for.
        if !moved {
            return plan;
        }
    }
}

/// The plan with a pod at a lower level, if that holds on its node and on each of its alternatives. Where it asks for others
/// beside it, no node of the plan may come in another domain than it is planned in.
fn stands(problem: &Problem, plan: &Plan, pod: usize, level: usize) -> Option<Plan> {
    let kind = &problem.kinds[problem.pods[pod]];
    let class = |level: usize| kind.get(level).and_then(|class| problem.classes.get(*class));
    let (lower, higher) = (class(level)?, class(plan.relaxed[pod])?);
    let mut kept = plan.clone();
    kept.relaxed[pod] = level;
    if lower.preferred != higher.preferred {
        let labels = |offer: usize| {
            let of = |rule: &Rule| -> Vec<Arc<str>> {
                match rule {
                    Rule::Spread(spread) => vec![Arc::clone(&spread.key)],
                    Rule::Affinity(terms) => terms.iter().map(|term| Arc::clone(&term.key)).collect(),
                    Rule::AntiAffinity(term) => vec![Arc::clone(&term.key)],
                }
            };
            let keys = lower.preferred.iter().flat_map(of);
            keys.map(|key| problem.offers[offer].node.labels.get(&key).cloned()).collect::<Vec<_>>()
        };
        for node in &mut kept.nodes {
            let own = labels(node.offer);
            node.alternatives.retain(|other| labels(*other) == own);
        }
    }
    check::stands(problem, &kept).then_some(kept)
}
