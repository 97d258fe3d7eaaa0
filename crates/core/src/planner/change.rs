//! The smallest changes that would make a refused gang fit: more capacity in named domains, or one topology request less.

use std::ops::Range;
use std::sync::Arc;

use super::search::Domains;
use super::{Asked, Facts, Ground, Pruning, remedy};
use crate::fit::Misfit;
use crate::planner::plan::{
    Capacity, Change, LevelIndex, Policy, Problem, Refusal, SearchBudget, SliceFault, SliceTopologyRequest,
    TopologyRequests, Work,
};
use crate::topology::Tree;

/// Pairs of roles that are tried with one template.
const MOST_PAIRS: usize = 12;
/// Steps of the search with which a change to a mix of shapes is tried.
const STEPS: u64 = 10_000;
/// Slices of more members are not looked for.
const MOST_DIVIDED: u32 = 10_000;

/// Every kind of change that would do alone, each the smallest of its kind.
///
/// Known limits: no amount of capacity is named for nested slices, for exclusive domains, and for slices of a level above
/// the required one; topology requests are dropped or widened one at a time, slices beside an exclusive domain only dropped.
pub(super) fn changes(
    problem: &Problem,
    ground: &Ground,
    counted: Option<&[Result<u32, Misfit>]>,
    facts: &Facts<'_>,
    work: &mut Work,
) -> Vec<Change> {
    let tree = &ground.tree;
    let mut changes: Vec<Change> = more_capacity(problem, tree, facts).into_iter().collect();
    let fits = |changed: &Problem, work: &mut Work| {
        let facts = Facts::read(changed, ground, counted, work);
        facts.is_ok_and(|facts| facts.is_none_or(|facts| facts.fits()))
    };
    changes.extend(fewer_topology_requests(problem, |changed| fits(changed, work)));
    changes.extend(remedy::remedies(problem, ground, facts, work));
    changes
}

/// A refusal with what would make the gang fit where that is not known from the search: each change is proven by
/// planning again.
pub(super) fn completed(problem: &Problem, ground: &Ground, mut refusal: Refusal) -> Refusal {
    let fits = |changed: &Problem| {
        let policy = Policy::default();
        let asked = Asked { budget: SearchBudget { iterations: STEPS }, ..Asked::usual(&policy, Pruning::On) };
        super::place(changed, asked, ground, None, &mut Work::default()).is_ok()
    };
    let found = match &refusal {
        Refusal::DoesNotFit(_) | Refusal::Undecided(_) => return refusal,
        Refusal::BoundOutside { node, .. } if !ground.index.contains_key(node) => Vec::new(),
        Refusal::BoundOutside { .. } | Refusal::UnknownLevel { .. } => fewer_topology_requests(problem, fits),
        Refusal::Unsupported { .. } => {
            let removed = without_constraints(problem).filter(|(changed, _)| fits(changed));
            removed.map(|(_, change)| change).into_iter().chain(fewer_topology_requests(problem, fits)).collect()
        }
        Refusal::MixedShapes { .. } => {
            same_template(problem, fits).into_iter().chain(fewer_topology_requests(problem, fits)).collect()
        }
        Refusal::MinimumAboveCount { role, count, .. } => {
            let at_fault = problem.gang.roles.iter().position(|entry| entry.name == *role && entry.min > *count);
            at_fault.and_then(|index| minimum(problem, index, *count, fits)).into_iter().collect()
        }
        Refusal::Slices { size, fault, .. } => slice_changes(problem, *size, *fault, fits),
    };
    if let Some(changes) = refusal.changes_mut() {
        *changes = found;
    }
    refusal
}

/// The gang without any constraint that is not supported; `None` if no pod has one.
fn without_constraints(problem: &Problem) -> Option<(Problem, Change)> {
    let mut changed = problem.clone();
    let mut constraints: Vec<Arc<str>> = Vec::new();
    for role in &mut changed.gang.roles {
        for constraint in role.shape.unsupported.drain(..) {
            if !constraints.contains(&constraint) {
                constraints.push(constraint);
            }
        }
    }
    (!constraints.is_empty()).then_some((changed, Change::Remove { constraints }))
}

/// The first two roles that would make the gang fit with one template.
fn same_template(problem: &Problem, mut fits: impl FnMut(&Problem) -> bool) -> Option<Change> {
    let roles = &problem.gang.roles;
    let pairs = (0..roles.len()).rev().flat_map(|role| (0..roles.len()).map(move |like| (role, like)));
    let mut pairs = pairs.filter(|(role, like)| roles[*role].shape != roles[*like].shape).take(MOST_PAIRS);
    let found = pairs.find(|(role, like)| {
        let mut changed = problem.clone();
        changed.gang.roles[*role].shape = roles[*like].shape.clone();
        fits(&changed)
    });
    let (role, like) = found?;
    let name = |index: usize| Arc::clone(&roles[index].name);
    Some(Change::SameTemplate { role: name(role), like: name(like), indices: (role, like) })
}

/// Another minimum of one role, if the gang fits with it.
fn minimum(problem: &Problem, role: usize, members: u32, mut fits: impl FnMut(&Problem) -> bool) -> Option<Change> {
    let mut changed = problem.clone();
    let entry = changed.gang.roles.get_mut(role)?;
    entry.min = members;
    let role = Arc::clone(&entry.name);
    fits(&changed).then_some(Change::Minimum { role, members })
}

/// What would make slices cut the gang.
fn slice_changes(
    problem: &Problem,
    size: u32,
    fault: SliceFault,
    mut fits: impl FnMut(&Problem) -> bool,
) -> Vec<Change> {
    let mut changes = Vec::new();
    let slices = &problem.gang.topology_requests.slices;
    let with = |index: usize, slice: SliceTopologyRequest| {
        let mut changed = problem.clone();
        changed.gang.topology_requests.slices[index] = slice;
        changed
    };
    let at_fault = slices.iter().position(|slice| slice.size == size);
    match (fault, at_fault) {
        (SliceFault::DoesNotDivide { of }, Some(index)) => {
            // The nearest first; of two as near the smaller one.
            let divisors = (1..=of.min(MOST_DIVIDED)).filter(|size| of % size == 0);
            let mut sizes: Vec<u32> = divisors.collect();
            sizes.sort_by_key(|to| (to.abs_diff(size), *to));
            let to =
                sizes.into_iter().find(|to| fits(&with(index, SliceTopologyRequest { size: *to, ..slices[index] })));
            changes.extend(to.map(|to| Change::SliceSize { from: size, to }));
        }
        (SliceFault::AboveEnclosing, _) => {
            let above = |pair: &[SliceTopologyRequest]| pair[1].level < pair[0].level;
            let index = slices.windows(2).position(above).map(|index| index + 1);
            changes.extend(index.and_then(|index| {
                let mut levels = slices[index].level + 1..problem.levels.len();
                let to =
                    levels.find(|level| fits(&with(index, SliceTopologyRequest { level: *level, ..slices[index] })))?;
                let level = Arc::clone(&problem.levels.as_slice()[to].name);
                Some(Change::NarrowSlices { size: slices[index].size, to, level })
            }));
        }
        (SliceFault::ElasticRoles, _) => {
            let roles = problem.gang.roles.iter().enumerate();
            let elastic = roles.filter(|(_, role)| (role.min as usize) < role.places.len());
            if let [(index, role)] = *elastic.collect::<Vec<_>>() {
                changes.extend(minimum(problem, index, super::count(role.places.len()), &mut fits));
            }
        }
        (SliceFault::DoesNotDivide { .. }, None) => {}
    }
    changes.extend(fewer_topology_requests(problem, fits).into_iter().filter(|change| *change == Change::Unslice));
    changes
}

/// One topology request less, or a wider one: every such change with which the gang fits.
pub(super) fn fewer_topology_requests(problem: &Problem, mut fits: impl FnMut(&Problem) -> bool) -> Vec<Change> {
    let mut changes = Vec::new();
    let topology_requests = &problem.gang.topology_requests;
    let name = |level: LevelIndex| problem.levels.as_slice().get(level).map(|level| Arc::clone(&level.name));
    let mut fits = |topology_requests: TopologyRequests| {
        let mut changed = problem.clone();
        changed.gang.topology_requests = topology_requests;
        fits(&changed)
    };
    if let Some(level) = topology_requests.required {
        let wider = (0..level.min(problem.levels.len())).rev().map(Some).chain([None]);
        let mut wider = wider.filter(|to| fits(TopologyRequests { required: *to, ..topology_requests.clone() }));
        changes.extend(wider.next().map(|to| Change::Widen { to, level: to.and_then(name) }));
    }
    if topology_requests.exclusive.is_some() && fits(TopologyRequests { exclusive: None, ..topology_requests.clone() })
    {
        changes.push(Change::Share);
    }
    if let ([slice], None) = (topology_requests.slices.as_slice(), topology_requests.exclusive) {
        let wider = (0..slice.level.min(problem.levels.len())).rev();
        let sliced = |level| TopologyRequests {
            slices: vec![SliceTopologyRequest { level, ..*slice }],
            ..topology_requests.clone()
        };
        let to = wider.into_iter().find(|level| fits(sliced(*level)));
        changes.extend(to.and_then(|to| Some(Change::WidenSlices { to, level: name(to)? })));
    }
    if !topology_requests.slices.is_empty()
        && fits(TopologyRequests { slices: Vec::new(), ..topology_requests.clone() })
    {
        changes.push(Change::Unslice);
    }
    // Balance refuses nothing but members of several shapes.
    if topology_requests.balance.is_some() && fits(TopologyRequests { balance: None, ..topology_requests.clone() }) {
        changes.push(Change::Unbalance);
    }
    changes
}

/// The least capacity that must be added inside one domain of the required level, and where.
fn more_capacity(problem: &Problem, tree: &Tree, facts: &Facts<'_>) -> Option<Change> {
    let topology_requests = &problem.gang.topology_requests;
    let cap = facts.domains.level();
    let sliced = match topology_requests.slices.as_slice() {
        [] => None,
        [slice] if cap.is_none_or(|cap| cap <= slice.level) => Some(slice.level),
        _ => return None,
    };
    if topology_requests.exclusive.is_some() {
        return None;
    }
    let shape = facts.demand.shape;
    let host = problem.levels.host();
    if (shape.one_per_node || !shape.ports.is_empty()) && (cap == Some(host) || sliced == Some(host)) {
        // One member is all that a node can ever hold.
        return None;
    }
    let target = facts.rules.least(u64::from(facts.demand.must));
    let mut best: Option<(u64, Vec<Capacity>)> = None;
    let mut consider = |capacities: Vec<Capacity>| {
        let sum = capacities.iter().map(|capacity| u64::from(capacity.members)).sum();
        if best.as_ref().is_none_or(|(least, _)| sum < *least) {
            best = Some((sum, capacities));
        }
    };
    let inside = |domain: Option<(LevelIndex, usize)>, hosts: Range<usize>| match sliced {
        None => {
            let holds = domain.map_or_else(
                || Domains::Any.most(tree, &facts.rules),
                |(level, domain)| facts.rules.most[level][domain],
            );
            vec![capacity(problem, tree, domain, target.saturating_sub(holds))]
        }
        Some(level) => slices(problem, tree, facts, level, &hosts, target),
    };
    match facts.domains.candidates(tree) {
        None => consider(inside(None, 0..tree.hosts().len())),
        Some((level, candidates)) => {
            for domain in candidates {
                consider(inside(Some((level, domain)), tree.level(level)[domain].hosts.clone()));
            }
        }
    }
    match best {
        Some((_, capacities)) => Some(Change::Capacity { capacities }),
        // No node has the label: the capacity must come with it.
        None => cap.map(|level| Change::Capacity { capacities: vec![unnamed(problem, Some(level), target)] }),
    }
}

/// Capacity that completes the damaged slices and then the cheapest further ones.
fn slices(
    problem: &Problem,
    tree: &Tree,
    facts: &Facts<'_>,
    level: LevelIndex,
    hosts: &Range<usize>,
    target: u64,
) -> Vec<Capacity> {
    let step = u64::from(facts.rules.step);
    let (mut held, mut capacities, mut next) = (0, Vec::new(), Vec::new());
    for (index, domain) in tree.level(level).iter().enumerate() {
        let within = hosts.start <= domain.hosts.start && domain.hosts.end <= hosts.end;
        if !within || !tree.satisfies(level, index) {
            continue;
        }
        let (fixed, free) = (facts.rules.fixed_at(level, index), facts.capacity.slots[level][index]);
        let missing = fixed.saturating_sub(free);
        let spare = free.saturating_sub(fixed);
        held += fixed + spare / step * step;
        capacities.push((index, missing));
        next.push((step - spare % step, capacities.len() - 1));
    }
    next.sort_unstable();
    let mut more = target.saturating_sub(held).div_ceil(step);
    for (cost, at) in next.iter().copied().take(usize::try_from(more).unwrap_or(usize::MAX)) {
        capacities[at].1 += cost;
        more -= 1;
    }
    // Beyond one slice each, every further one costs its whole size, wherever it is.
    let rest = more * step;
    match capacities.first_mut() {
        None => return vec![unnamed(problem, Some(level), rest)],
        Some((_, members)) => *members += rest,
    }
    let capacities = capacities.into_iter().filter(|(_, members)| *members > 0);
    capacities.map(|(domain, members)| capacity(problem, tree, Some((level, domain)), members)).collect()
}

/// Capacity in a domain, or anywhere.
pub(super) fn capacity(problem: &Problem, tree: &Tree, domain: Option<(LevelIndex, usize)>, members: u64) -> Capacity {
    let mut capacity = unnamed(problem, domain.map(|(level, _)| level), members);
    if let Some((level, domain)) = domain {
        capacity.domain = Arc::from(tree.path(level, domain));
    }
    capacity
}

/// Capacity in a domain that does not exist yet, or anywhere.
fn unnamed(problem: &Problem, level: Option<LevelIndex>, members: u64) -> Capacity {
    let level = level.and_then(|level| problem.levels.as_slice().get(level)).map(|level| Arc::clone(&level.name));
    Capacity { level, domain: Arc::from(""), members: u32::try_from(members).unwrap_or(u32::MAX), role: None }
}
