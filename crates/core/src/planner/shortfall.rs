//! Why a gang does not fit: the best domain per level, what blocks the other nodes, the nearest cap that would do.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::demand::Demand;
use super::rules::Rules;
use super::search::Domains;
use crate::fit::Misfit;
use crate::planner::plan::{BestDomain, Blocked, LevelIndex, Problem, Shortfall};
use crate::topology::Tree;

/// Measures how far the best domain is.
pub(super) fn shortfall(
    problem: &Problem,
    tree: &Tree,
    rules: &Rules,
    demand: &Demand<'_>,
    slots: &[Result<u32, Misfit>],
    domains: &Domains,
) -> Shortfall {
    let required = domains.level();
    let inside: Range<usize> = match *domains {
        Domains::Fixed { level, domain } => tree.level(level)[domain].hosts.clone(),
        Domains::Any | Domains::OneOf { level: _ } => 0..tree.hosts().len(),
    };
    let best = problem.levels.as_slice().iter().enumerate().map(|(index, level)| {
        let (domain, holds) = match best_domain(tree, rules, index, &inside) {
            Some(best) => (tree.path(index, best), rules.most[index][best]),
            None => (String::new(), 0),
        };
        let (level, key) = (Arc::clone(&level.name), Arc::clone(&level.key));
        BestDomain { level, key, domain: Arc::from(domain), holds: saturated(holds) }
    });
    let best: Vec<BestDomain> = best.collect();
    let wider = required.and_then(|level| (0..level).rev().find(|wider| best[*wider].holds >= demand.must));
    let unlabelled = required.map_or(0, |level| {
        let domains = (0..).zip(tree.level(level)).filter(|(index, _)| !tree.satisfies(level, *index));
        domains.map(|(_, domain)| domain.hosts.len() as u64).sum()
    });
    Shortfall {
        needed: demand.must,
        bound: demand.bound.iter().sum(),
        required,
        total: saturated(Domains::Any.most(tree, rules)),
        best,
        wider,
        unlabelled: saturated(unlabelled),
        step: Some(rules.step).filter(|step| *step > 1),
        blocked: blocked(slots).into(),
        changes: Vec::new(),
    }
}

/// The domain with most capacity among those that can satisfy a topology request and hold a host of `inside`; the first of several.
fn best_domain(tree: &Tree, rules: &Rules, level: LevelIndex, inside: &Range<usize>) -> Option<usize> {
    let mut best: Option<usize> = None;
    for (index, domain) in tree.level(level).iter().enumerate() {
        let apart = domain.hosts.end <= inside.start || inside.end <= domain.hosts.start;
        if apart || !tree.satisfies(level, index) {
            continue;
        }
        if best.is_none_or(|best| rules.most[level][index] > rules.most[level][best]) {
            best = Some(index);
        }
    }
    best
}

fn blocked(slots: &[Result<u32, Misfit>]) -> Vec<Blocked> {
    let mut nodes: BTreeMap<&Misfit, u32> = BTreeMap::new();
    for reason in slots.iter().filter_map(|slots| slots.as_ref().err()) {
        *nodes.entry(reason).or_default() += 1;
    }
    let mut blocked: Vec<(Blocked, String)> = nodes
        .into_iter()
        .map(|(reason, nodes)| (Blocked { reason: reason.clone(), nodes }, reason.to_string()))
        .collect();
    blocked.sort_by(|(a, a_text), (b, b_text)| b.nodes.cmp(&a.nodes).then_with(|| a_text.cmp(b_text)));
    blocked.into_iter().map(|(blocked, _)| blocked).collect()
}

fn saturated(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
