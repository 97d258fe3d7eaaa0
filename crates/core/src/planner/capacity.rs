//! What every domain holds: free slots, bound members, whether its accelerators are untouched. Rolled up once per call.

use super::demand::Demand;
use crate::fit::Misfit;
use crate::model::pod::Shape;
use crate::planner::plan::{Host, LevelIndex, Problem, Refusal};
use crate::topology::Tree;

/// Roll-ups per domain. Shapes: `[level][domain]`, as [`Tree::level`].
#[derive(Debug)]
pub(super) struct Capacity {
    /// Members the domain can still take.
    pub(super) slots: Vec<Vec<u64>>,
    /// Members bound inside it.
    pub(super) bound: Vec<Vec<u32>>,
    /// No accelerator that the gang's shape requests is in use in it; always true for a shape that requests none.
    pub(super) whole: Vec<Vec<bool>>,
}

impl Capacity {
    /// Rolls up the roles' one shape. Shapes: `slots` and `bound` have one entry per host, in the order of `hosts`.
    pub(super) fn new(
        tree: &Tree,
        hosts: &[Host],
        shape: &Shape,
        slots: &[Result<u32, Misfit>],
        bound: &[u32],
    ) -> Self {
        let accelerators: Vec<&str> = accelerators(shape).collect();
        let depth = tree.depth();
        let mut capacity =
            Self { slots: vec![Vec::new(); depth], bound: vec![Vec::new(); depth], whole: vec![Vec::new(); depth] };
        let last = depth.saturating_sub(1);
        for &host in tree.hosts() {
            let used = &hosts[host].usage.requested;
            capacity.slots[last].push(slots[host].as_ref().map_or(0, |slots| u64::from(*slots)));
            capacity.bound[last].push(bound[host]);
            capacity.whole[last].push(accelerators.iter().all(|name| used.get(name) <= 0));
        }
        for level in (0..last).rev() {
            for domain in tree.level(level) {
                let children = domain.children.clone();
                let slots = capacity.slots[level + 1][children.clone()].iter().sum();
                let bound = capacity.bound[level + 1][children.clone()].iter().sum();
                let whole = capacity.whole[level + 1][children].iter().all(|whole| *whole);
                capacity.slots[level].push(slots);
                capacity.bound[level].push(bound);
                capacity.whole[level].push(whole);
            }
        }
        capacity
    }
}

/// Takes the slots from hosts whose domain of `level` others use: an accelerator there is in use, and not by the gang's
/// bound members.
///
/// Errors: a bound member in such a domain.
pub(super) fn leave_shared(
    problem: &Problem,
    tree: &Tree,
    level: LevelIndex,
    demand: &Demand<'_>,
    slots: &mut [Result<u32, Misfit>],
) -> Result<(), Refusal> {
    let accelerators: Vec<&str> = accelerators(demand.shape).collect();
    for (index, domain) in tree.level(level).iter().enumerate() {
        let hosts = &tree.hosts()[domain.hosts.clone()];
        let shared = hosts.iter().any(|&host| {
            let used = &problem.hosts[host].usage.requested;
            let bound = i64::from(demand.bound[host]);
            accelerators.iter().any(|name| used.get(name) > demand.shape.requests.get(name).saturating_mul(bound))
        });
        // Without the label nothing is known about who else is there.
        if !shared && tree.satisfies(level, index) {
            continue;
        }
        if let Some(position) = domain.hosts.clone().find(|position| demand.bound[tree.hosts()[*position]] > 0) {
            return Err(demand.outside(problem, tree, position));
        }
        for &host in hosts {
            if slots[host].is_ok() {
                slots[host] = Err(Misfit::Shared);
            }
        }
    }
    Ok(())
}

/// Takes the slots from hosts that cannot satisfy a level.
pub(super) fn leave_unlabelled(tree: &Tree, level: LevelIndex, slots: &mut [Result<u32, Misfit>]) {
    for (_, domain) in tree.level(level).iter().enumerate().filter(|(index, _)| !tree.satisfies(level, *index)) {
        for &host in &tree.hosts()[domain.hosts.clone()] {
            if slots[host].is_ok() {
                slots[host] = Err(Misfit::Shared);
            }
        }
    }
}

/// The extended resources a shape requests, by Kubernetes' rule: a qualified name outside `kubernetes.io`.
pub(super) fn accelerators(shape: &Shape) -> impl Iterator<Item = &str> {
    let names = shape.requests.iter().filter(|(_, amount)| *amount > 0).map(|(name, _)| name.as_str());
    names.filter(|name| name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests."))
}
