//! Gangs of several shapes beyond workers with one or two leaders.
//!
//! The objective is that of one shape. *Slots* are those of the **main** shape, which asks for an accelerator if any
//! does and has most members of those; *new members* in field 4 are the main shape's, and a domain is broken if it was
//! whole, these leave something, and it takes one or a member that needs one of the main shape's
//! accelerators. Field 5 is a rule here too, but not the one of one shape: earlier hosts take more, as far as the search
//! went.
//!
//! 1. Every candidate domain gets a bound, and some are ruled out (`bound`).
//! 2. While the tables stay small a candidate is solved exactly (`exact`).
//! 3. Else it is searched, in bounded work (`search`), and the best placement is compared with the least bound. What is
//!    between them is the gap in the report; none is a proof.
//!
//! Nothing is reported not to fit unless that is proven, by 1 or by 2; else it is [`Refusal::Undecided`].

mod bound;
mod exact;
mod field;
mod search;

use std::sync::Arc;

use self::bound::Candidate;
use self::exact::{Exact, Placed};
use self::field::{Counts, Field};
use self::search::{Found, Search};
use super::demand::Demand;
use super::rules::Rules;
use super::search::Domains;
use super::{Ground, change, ranks, shortfall};
use crate::planner::plan::{
    Change, Gap, GapField, Place, Policy, Problem, Refusal, Role, SearchBudget, Seed, Undecided, Work,
};

/// Iterations that are for the search alone; each beyond pays for so many cells of tables, too.
const SEARCH_ALONE: u64 = 1_000;
const CELLS: u64 = 64;
/// Candidates that are searched on after all were filled once.
const SEARCHED: usize = 4;

/// A placement, and what is known about better ones.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) places: Vec<Place>,
    /// Fewest domains per level that are proven.
    pub(super) least: Vec<u32>,
    pub(super) gap: Option<Gap>,
}

/// What a place looks at.
#[derive(Clone, Copy)]
pub(super) struct Sight<'a> {
    pub(super) problem: &'a Problem,
    pub(super) policy: &'a Policy,
    pub(super) ground: &'a Ground,
    pub(super) budget: SearchBudget,
    pub(super) seed: Seed,
}

/// Places the gang.
///
/// Errors: that it does not fit, if it is proven; else that it is not known.
pub(super) fn place(
    sight: Sight<'_>,
    demand: &Demand<'_>,
    domains: &Domains,
    work: &mut Work,
) -> Result<Answer, Refusal> {
    let Sight { problem, policy, ground, .. } = sight;
    work.slots += problem.hosts.len() as u64;
    let field = Field::new(problem, policy, ground, demand);
    match solve(&field, sight, domains, work) {
        Solved::Placed { vector, bound, placed } => {
            let gap = gap(&field, &vector, &bound);
            let least = fewest(&field, &vector, &bound);
            Ok(Answer { places: places(&field, &placed), least, gap })
        }
        Solved::Impossible => Err(refused(&field, sight, demand, domains, work)),
        Solved::Unknown { missing, iterations } => Err(Refusal::Undecided(Undecided {
            needed: demand.must,
            missing: u32::try_from(missing).unwrap_or(u32::MAX),
            bound: 0,
            required: domains
                .level()
                .and_then(|level| problem.levels.as_slice().get(level))
                .map(|l| Arc::clone(&l.name)),
            iterations,
        })),
    }
}

enum Solved {
    Placed { vector: Vec<u64>, bound: Vec<u64>, placed: Placed },
    Impossible,
    Unknown { missing: u64, iterations: u64 },
}

fn candidates(field: &Field<'_>, domains: &Domains) -> Vec<Candidate> {
    match domains.candidates(field.tree) {
        None => vec![None],
        Some((level, domains)) => domains.map(|domain| Some((level, domain))).collect(),
    }
}

fn solve(field: &Field<'_>, sight: Sight<'_>, domains: &Domains, work: &mut Work) -> Solved {
    let mut candidates = candidates(field, domains);
    if field.tree.hosts().is_empty() {
        candidates.clear();
    }
    let none = field.must().iter().all(|must| *must == 0);
    if candidates.is_empty() && none {
        // No domain, and nobody who needs one.
        let vector = field.vector(&[]);
        return Solved::Placed { bound: vector.clone(), vector, placed: Vec::new() };
    }
    let bounds = bound::bounds(field, &candidates, work);
    let mut open: Vec<(Vec<u64>, Candidate)> =
        bounds.into_iter().zip(candidates).filter_map(|(bound, candidate)| Some((bound?, candidate))).collect();
    open.sort();
    let iterations = sight.budget.iterations;
    let mut cells = iterations.saturating_sub(SEARCH_ALONE).saturating_mul(CELLS);
    let mut search = Search::new(field, sight.seed.0, iterations);
    let mut best: Option<(Vec<u64>, Placed)> = None;
    let mut unsolved: Vec<(Vec<u64>, Candidate, Option<Found>)> = Vec::new();
    for (bound, candidate) in open {
        if best.as_ref().is_some_and(|(vector, _)| *vector <= bound) {
            break;
        }
        match exact::solve(field, candidate, &mut cells, work) {
            Exact::Best(vector, placed) => keep(&mut best, vector, placed),
            Exact::None => {}
            Exact::Unknown => {
                let found = (search.left > 0).then(|| search.fill(candidate));
                if let Some(found) = found.as_ref().filter(|found| found.missing == 0) {
                    keep(&mut best, found.vector.clone(), found.placed.clone());
                }
                unsolved.push((bound, candidate, found));
            }
        }
    }
    // Those left over are no better than the best; those unsolved may be.
    let mut least: Option<Vec<u64>> = unsolved.iter().map(|(bound, ..)| bound.clone()).min();
    unsolved.sort_by_key(|(bound, _, found)| {
        found.as_ref().map_or((u64::MAX, Vec::new(), bound.clone()), |f| (f.missing, f.vector.clone(), bound.clone()))
    });
    let searched = unsolved.len().min(SEARCHED);
    for (index, (bound, candidate, found)) in unsolved.iter().take(SEARCHED).enumerate() {
        let (Some(found), true) = (found, search.left > 0) else { continue };
        if best.as_ref().is_some_and(|(vector, _)| vector <= bound) {
            continue;
        }
        let until = search.left - search.left / (searched - index) as u64;
        let found = search.improve(found.clone(), *candidate, bound, until);
        if found.missing == 0 {
            keep(&mut best, found.vector, found.placed);
        }
    }
    let spent = iterations - search.left;
    work.vertices += spent;
    match best {
        Some((vector, placed)) => {
            let bound = match least.take() {
                Some(least) if least < vector => least,
                Some(_) | None => vector.clone(),
            };
            Solved::Placed { vector, bound, placed }
        }
        None if unsolved.is_empty() => Solved::Impossible,
        None => {
            let missing = unsolved.iter().filter_map(|(.., found)| Some(found.as_ref()?.missing)).min();
            let needed = field.must().iter().map(|must| u64::from(*must)).sum();
            Solved::Unknown { missing: missing.unwrap_or(needed), iterations: spent }
        }
    }
}

fn keep(best: &mut Option<(Vec<u64>, Placed)>, vector: Vec<u64>, placed: Placed) {
    if best.as_ref().is_none_or(|(least, _)| vector < *least) {
        *best = Some((vector, placed));
    }
}

/// The first field that may be better than it is.
fn gap(field: &Field<'_>, vector: &[u64], bound: &[u64]) -> Option<Gap> {
    let names = field_names(field);
    let open = names.into_iter().zip(vector).zip(bound).find(|((_, achieved), bound)| achieved != bound);
    open.map(|((field, achieved), bound)| Gap { field, achieved: *achieved, bound: *bound })
}

fn field_names(field: &Field<'_>) -> Vec<GapField> {
    let keys = || field.problem.levels.as_slice().iter().map(|level| Arc::clone(&level.key));
    let used: Vec<GapField> = keys().map(GapField::Used).collect();
    let broken: Vec<GapField> = keys().map(GapField::Broken).collect();
    let left: Vec<GapField> = keys().map(GapField::Left).collect();
    field.ordered(&used, GapField::Unplaced, &broken, &left)
}

/// Domains per level that are proven to be needed, as far as the fields above are proven.
fn fewest(field: &Field<'_>, vector: &[u64], bound: &[u64]) -> Vec<u32> {
    let names = field_names(field);
    let used = names.iter().zip(vector).zip(bound).filter(|((name, _), _)| matches!(name, GapField::Used(_)));
    used.map(|((_, achieved), bound)| u32::try_from(*achieved.min(bound)).unwrap_or(u32::MAX)).collect()
}

/// The places of a placement, in role order, then rank order.
fn places(field: &Field<'_>, placed: &Placed) -> Vec<Place> {
    let (problem, tree) = (field.problem, field.tree);
    let mut places = Vec::new();
    for (number, group) in field.groups.iter().enumerate() {
        let new = placed.iter().map(|(_, counts)| counts[number]).sum();
        let hosts = placed.iter().flat_map(|(position, counts)| {
            std::iter::repeat_n(&problem.hosts[tree.hosts()[*position]].node.name, counts[number] as usize)
        });
        let mine = |role: &Role| role.shape == *group.shape;
        places.extend(ranks::places_of(&problem.gang, mine, new, hosts));
    }
    places.sort_by_key(|place| (place.role, place.rank));
    places
}

/// A refusal that is proven, with how far the domains are and what would help.
fn refused(field: &Field<'_>, sight: Sight<'_>, demand: &Demand<'_>, domains: &Domains, work: &mut Work) -> Refusal {
    let (problem, tree) = (field.problem, field.tree);
    let needed: u64 = field.must().iter().map(|must| u64::from(*must)).sum();
    let holds: Vec<Vec<u64>> = (0..tree.depth()).map(|level| held(field, level, needed)).collect();
    let rules = Rules::plain(holds);
    let mut slots = field.slots.clone();
    for slots in &mut slots {
        // One that takes a member of any shape is not blocked.
        if slots.as_ref().is_ok_and(|slots| *slots == 0) {
            *slots = Ok(1);
        }
    }
    let mut shortfall = shortfall::shortfall(problem, tree, &rules, demand, &slots, domains);
    shortfall.changes = capacity(field, domains).into_iter().collect();
    shortfall.changes.extend(change::fewer_topology_requests(problem, |changed| {
        let Ok(domains) = super::domains(changed, sight.ground, demand) else { return false };
        matches!(solve(field, sight, &domains, work), Solved::Placed { .. })
    }));
    Refusal::DoesNotFit(shortfall)
}

/// Per domain of a level how many of the needed members were found to fit, hosts filled one after another.
fn held(field: &Field<'_>, level: usize, needed: u64) -> Vec<u64> {
    let domains = field.tree.level(level).iter();
    let rest = domains.map(|domain| filled(field, domain.hosts.clone()));
    rest.map(|rest| needed - rest.iter().map(|rest| u64::from(*rest)).sum::<u64>()).collect()
}

/// Needed members without a place on some hosts, filled one after another.
fn filled(field: &Field<'_>, hosts: std::ops::Range<usize>) -> Counts {
    let mut rest = field.must();
    let none = Counts::from_elem(0, rest.len());
    let values: Vec<u64> = field.groups.iter().map(|group| 1 + u64::from(group.takes)).collect();
    for host in hosts {
        if rest.iter().all(|rest| *rest == 0) {
            break;
        }
        let taken = field.take(&field.classes[field.class_of[host] as usize], &none, &rest, &values);
        rest.iter_mut().zip(&taken).for_each(|(rest, taken)| *rest -= taken);
    }
    rest
}

/// Capacity that would do, in the domain where fewest members were left without a place.
fn capacity(field: &Field<'_>, domains: &Domains) -> Option<Change> {
    let hosts = |candidate: Candidate| match candidate {
        None => 0..field.tree.hosts().len(),
        Some((level, domain)) => field.tree.level(level)[domain].hosts.clone(),
    };
    let rests = candidates(field, domains).into_iter().map(|candidate| (filled(field, hosts(candidate)), candidate));
    let (rest, at) = rests.min_by_key(|(rest, _)| rest.iter().map(|rest| u64::from(*rest)).sum::<u64>())?;
    let capacities = field.groups.iter().zip(&rest).filter(|(_, rest)| **rest > 0).filter_map(|(group, rest)| {
        let role = field.problem.gang.roles.iter().find(|role| role.shape == *group.shape)?;
        let mut capacity = change::capacity(field.problem, field.tree, at, u64::from(*rest));
        capacity.role = Some(Arc::clone(&role.name));
        Some(capacity)
    });
    let capacities: Vec<_> = capacities.collect();
    (!capacities.is_empty()).then_some(Change::Capacity { capacities })
}
