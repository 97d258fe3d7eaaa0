//! The smallest changes that would make a refused gang fit: more room in named domains, or one wish less.

use std::ops::Range;
use std::sync::Arc;

use super::search::Domains;
use super::{Facts, Ground, remedy};
use crate::fit::Misfit;
use crate::plan::{Change, LevelIndex, Problem, Refusal, Room, SliceWish, Wishes, Work};
use crate::topology::Tree;

/// Every kind of change that would do alone, each the smallest of its kind.
///
/// Known limits: no amount of room is named for nested slices, for exclusive domains, and for slices of a level above
/// the required one; wishes are dropped or widened one at a time, slices beside an exclusive domain only dropped.
pub(super) fn changes(
    problem: &Problem,
    ground: &Ground,
    counted: Option<&[Result<u32, Misfit>]>,
    facts: &Facts<'_>,
    work: &mut Work,
) -> Vec<Change> {
    let tree = &ground.tree;
    let mut changes: Vec<Change> = more_room(problem, tree, facts).into_iter().collect();
    let fits = |changed: &Problem, work: &mut Work| {
        let facts = Facts::read(changed, ground, counted, work);
        facts.is_ok_and(|facts| facts.is_none_or(|facts| facts.fits()))
    };
    changes.extend(fewer_wishes(problem, |changed| fits(changed, work)));
    changes.extend(remedy::remedies(problem, ground, facts, work));
    changes
}

/// A refusal for the wishes alone, with the wishes without which the gang would fit.
pub(super) fn of_refusal(
    problem: &Problem,
    ground: &Ground,
    counted: Option<&[Result<u32, Misfit>]>,
    mut refusal: Refusal,
    work: &mut Work,
) -> Refusal {
    if let Refusal::BoundOutside { node: _, changes } = &mut refusal {
        *changes = fewer_wishes(problem, |changed| {
            let facts = Facts::read(changed, ground, counted, work);
            facts.is_ok_and(|facts| facts.is_none_or(|facts| facts.fits()))
        });
    }
    refusal
}

/// One wish less, or a wider one: every such change with which the gang fits.
pub(super) fn fewer_wishes(problem: &Problem, mut fits: impl FnMut(&Problem) -> bool) -> Vec<Change> {
    let mut changes = Vec::new();
    let wishes = &problem.gang.wishes;
    let name = |level: LevelIndex| problem.levels.as_slice().get(level).map(|level| Arc::clone(&level.name));
    let mut fits = |wishes: Wishes| {
        let mut changed = problem.clone();
        changed.gang.wishes = wishes;
        fits(&changed)
    };
    if let Some(level) = wishes.required {
        let wider = (0..level.min(problem.levels.len())).rev().map(Some).chain([None]);
        let mut wider = wider.filter(|to| fits(Wishes { required: *to, ..wishes.clone() }));
        changes.extend(wider.next().map(|to| Change::Widen { to, level: to.and_then(name) }));
    }
    if wishes.exclusive.is_some() && fits(Wishes { exclusive: None, ..wishes.clone() }) {
        changes.push(Change::Share);
    }
    if let ([slice], None) = (wishes.slices.as_slice(), wishes.exclusive) {
        let wider = (0..slice.level.min(problem.levels.len())).rev();
        let sliced = |level| Wishes { slices: vec![SliceWish { level, ..*slice }], ..wishes.clone() };
        let to = wider.into_iter().find(|level| fits(sliced(*level)));
        changes.extend(to.and_then(|to| Some(Change::WidenSlices { to, level: name(to)? })));
    }
    if !wishes.slices.is_empty() && fits(Wishes { slices: Vec::new(), ..wishes.clone() }) {
        changes.push(Change::Unslice);
    }
    changes
}

/// The least room that must be added inside one domain of the required level, and where.
fn more_room(problem: &Problem, tree: &Tree, facts: &Facts<'_>) -> Option<Change> {
    let wishes = &problem.gang.wishes;
    let cap = facts.domains.level();
    let sliced = match wishes.slices.as_slice() {
        [] => None,
        [slice] if cap.is_none_or(|cap| cap <= slice.level) => Some(slice.level),
        _ => return None,
    };
    if wishes.exclusive.is_some() {
        return None;
    }
    let shape = facts.demand.shape;
    let host = problem.levels.host();
    if (shape.one_per_node || !shape.ports.is_empty()) && (cap == Some(host) || sliced == Some(host)) {
        // One member is all that a node can ever hold.
        return None;
    }
    let target = facts.rules.least(u64::from(facts.demand.must));
    let mut best: Option<(u64, Vec<Room>)> = None;
    let mut consider = |rooms: Vec<Room>| {
        let sum = rooms.iter().map(|room| u64::from(room.members)).sum();
        if best.as_ref().is_none_or(|(least, _)| sum < *least) {
            best = Some((sum, rooms));
        }
    };
    let inside = |domain: Option<(LevelIndex, usize)>, hosts: Range<usize>| match sliced {
        None => {
            let holds = domain.map_or_else(
                || Domains::Any.most(tree, &facts.rules),
                |(level, domain)| facts.rules.most[level][domain],
            );
            vec![room(problem, tree, domain, target.saturating_sub(holds))]
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
        Some((_, rooms)) => Some(Change::Room { rooms }),
        // No node has the label: the room must come with it.
        None => cap.map(|level| Change::Room { rooms: vec![unnamed(problem, Some(level), target)] }),
    }
}

/// Room that completes the damaged slices and then the cheapest further ones.
fn slices(
    problem: &Problem,
    tree: &Tree,
    facts: &Facts<'_>,
    level: LevelIndex,
    hosts: &Range<usize>,
    target: u64,
) -> Vec<Room> {
    let step = u64::from(facts.rules.step);
    let (mut held, mut rooms, mut next) = (0, Vec::new(), Vec::new());
    for (index, domain) in tree.level(level).iter().enumerate() {
        let within = hosts.start <= domain.hosts.start && domain.hosts.end <= hosts.end;
        if !within || !tree.satisfies(level, index) {
            continue;
        }
        let (fixed, free) = (facts.rules.fixed_at(level, index), facts.room.slots[level][index]);
        let missing = fixed.saturating_sub(free);
        let spare = free.saturating_sub(fixed);
        held += fixed + spare / step * step;
        rooms.push((index, missing));
        next.push((step - spare % step, rooms.len() - 1));
    }
    next.sort_unstable();
    let mut more = target.saturating_sub(held).div_ceil(step);
    for (cost, at) in next.iter().copied().take(usize::try_from(more).unwrap_or(usize::MAX)) {
        rooms[at].1 += cost;
        more -= 1;
    }
    // Beyond one slice each, every further one costs its whole size, wherever it is.
    let rest = more * step;
    match rooms.first_mut() {
        None => return vec![unnamed(problem, Some(level), rest)],
        Some((_, members)) => *members += rest,
    }
    let rooms = rooms.into_iter().filter(|(_, members)| *members > 0);
    rooms.map(|(domain, members)| room(problem, tree, Some((level, domain)), members)).collect()
}

/// Room in a domain, or anywhere.
pub(super) fn room(problem: &Problem, tree: &Tree, domain: Option<(LevelIndex, usize)>, members: u64) -> Room {
    let mut room = unnamed(problem, domain.map(|(level, _)| level), members);
    if let Some((level, domain)) = domain {
        room.domain = Arc::from(tree.path(level, domain));
    }
    room
}

/// Room in a domain that does not exist yet, or anywhere.
fn unnamed(problem: &Problem, level: Option<LevelIndex>, members: u64) -> Room {
    let level = level.and_then(|level| problem.levels.as_slice().get(level)).map(|level| Arc::clone(&level.name));
    Room { level, domain: Arc::from(""), members: u32::try_from(members).unwrap_or(u32::MAX), role: None }
}
