//! How good a placement is, as a share of the best: for status and the published plan.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Pruning, plan_with};
use crate::model::node::Usage;
use crate::planner::plan::{Plan, Policy, Problem, Report};

/// Domains used at one level beside the fewest possible. A share is fewest over used, at most 1; 1 = none better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Score {
    /// Label key of the level.
    pub key: Arc<str>,
    /// Domains used.
    pub used: u32,
    /// The optimum on this snapshot, at most `used`.
    pub now: u32,
    /// The optimum on the same nodes without any pod, at most `used`.
    pub empty: u32,
}

/// Scores a plan, per level from the top down; `None` for a refusal.
///
/// The empty cluster is asked about as many members as were placed, in the same roles. It costs a plan of its own, so
/// it is computed on request only. A level may use fewer domains than the optimum, where a level above uses more: that
/// counts as 1.
#[must_use]
pub fn score(problem: &Problem, policy: &Policy, plan: &Plan, report: &Report) -> Option<Vec<Score>> {
    if report.refusal.is_some() || plan.places.is_empty() {
        return None;
    }
    let mut empty = problem.clone();
    for host in &mut empty.hosts {
        host.usage = Arc::new(Usage::default());
    }
    for (index, role) in empty.gang.roles.iter_mut().enumerate() {
        let placed = plan.places.iter().filter(|place| place.role == index).count();
        role.places.truncate(placed);
        role.min = u32::try_from(placed).unwrap_or(u32::MAX);
        for place in &mut role.places {
            place.bound = None;
        }
    }
    let (_, best) = plan_with(&empty, policy, Pruning::On);
    let levels = report.levels.iter().zip(&best.levels);
    Some(
        levels
            .map(|(level, empty)| Score {
                key: Arc::clone(&level.key),
                used: level.used,
                now: level.optimum.min(level.used),
                // Refused on the empty cluster: a cordon, say, that members bound earlier do not mind.
                empty: if empty.used == 0 { level.used } else { empty.used.min(level.used) },
            })
            .collect(),
    )
}
