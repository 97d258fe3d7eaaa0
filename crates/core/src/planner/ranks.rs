//! Which place of which role goes where, once the count per host is known.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::model::names::NodeName;
use crate::planner::plan::{GangRequest, Place, Problem, Role, SliceTopologyRequest};
use crate::topology::Tree;

/// Fills the free places in rank order with hosts in depth-first order; bound places stay.
///
/// If only some unbound members have capacity, every role first gets its lowest free ranks up to its minimum; what is left
/// goes to the lowest free ranks in role order.
///
/// Shapes: `hosts` yields one node per new member, depth-first, `new` of them; the answer is in role order, then rank
/// order: neighbouring ranks share a host, then a leaf, then a block.
pub(super) fn places<'a>(gang: &GangRequest, new: u32, hosts: impl Iterator<Item = &'a NodeName>) -> Vec<Place> {
    places_of(gang, |_| true, new, hosts)
}

/// [`places`], of some roles only.
pub(super) fn places_of<'a>(
    gang: &GangRequest,
    mine: impl Fn(&Role) -> bool,
    new: u32,
    mut hosts: impl Iterator<Item = &'a NodeName>,
) -> Vec<Place> {
    let must: u32 = gang.roles.iter().filter(|role| mine(role)).map(needed).sum();
    let mut extra = new.saturating_sub(must);
    let mut places = Vec::new();
    for (index, role) in gang.roles.iter().enumerate().filter(|(_, role)| mine(role)) {
        let needed = needed(role);
        let elastic = free(role).saturating_sub(needed).min(extra);
        extra -= elastic;
        let mut open = needed + elastic;
        for (rank, place) in (0..).zip(&role.places) {
            let node = match &place.bound {
                Some(node) => node,
                None if open == 0 => continue,
                None => {
                    open -= 1;
                    let Some(node) = hosts.next() else { continue };
                    node
                }
            };
            let (uid, node, bound) = (place.uid.clone(), node.clone(), place.bound.is_some());
            places.push(Place { role: index, rank, uid, node, bound });
        }
    }
    places
}

/// Deals the members of whole slices to the hosts: slices that stand somewhere are completed there, the others follow
/// in rank order along the tree, coarse slices first, the finer ones inside them.
///
/// Shapes: `sequence` and the answer have one entry per place, depth-first positions of hosts; `counts` one per host.
pub(super) fn deal(
    tree: &Tree,
    slices: &[SliceTopologyRequest],
    sequence: &[Option<usize>],
    counts: &[u32],
) -> Vec<Option<usize>> {
    let mut dealer = Dealer { tree, sequence, counts, dealt: sequence.to_vec() };
    dealer.deal(slices, 0..counts.len(), std::slice::from_ref(&(0..sequence.len())));
    dealer.dealt
}

struct Dealer<'a> {
    tree: &'a Tree,
    sequence: &'a [Option<usize>],
    counts: &'a [u32],
    dealt: Vec<Option<usize>>,
}

impl Dealer<'_> {
    /// Deals the places in `units` to `hosts`.
    fn deal(&mut self, slices: &[SliceTopologyRequest], hosts: Range<usize>, units: &[Range<usize>]) {
        let Some((SliceTopologyRequest { size, level }, finer)) = slices.split_first() else {
            let counts = self.counts;
            let mut capacities = hosts.flat_map(|host| std::iter::repeat_n(host, counts[host] as usize));
            for place in units.iter().cloned().flatten() {
                if self.dealt[place].is_none() {
                    self.dealt[place] = capacities.next();
                }
            }
            return;
        };
        let mut standing: BTreeMap<usize, Vec<Range<usize>>> = BTreeMap::new();
        let mut free: VecDeque<Range<usize>> = VecDeque::new();
        for slice in units.iter().cloned().flat_map(|unit| unit.step_by(*size as usize)) {
            let slice = slice..slice + *size as usize;
            match self.sequence[slice.clone()].iter().flatten().next() {
                Some(position) => {
                    standing.entry(self.tree.domain_of(*level, *position)).or_default().push(slice);
                }
                None => free.push_back(slice),
            }
        }
        for domain in self.tree.domain_of(*level, hosts.start)..self.tree.level(*level).len() {
            let inside = self.tree.level(*level)[domain].hosts.clone();
            if inside.start >= hosts.end {
                break;
            }
            let mut mine = standing.remove(&domain).unwrap_or_default();
            let new: usize = self.counts[inside.clone()].iter().map(|count| *count as usize).sum();
            let open = mine.iter().cloned().flatten().filter(|place| self.sequence[*place].is_none()).count();
            let whole = new.saturating_sub(open) / *size as usize;
            mine.extend(free.drain(..whole.min(free.len())));
            mine.sort_unstable_by_key(|slice| slice.start);
            if new > 0 {
                self.deal(finer, inside, &mine);
            }
        }
    }
}

/// The dealt places with their roles and ranks.
pub(super) fn sliced(problem: &Problem, tree: &Tree, dealt: &[Option<usize>]) -> Vec<Place> {
    let roles = problem.gang.roles.iter().enumerate();
    let places = roles.flat_map(|(role, entry)| (0..).zip(&entry.places).map(move |(rank, place)| (role, rank, place)));
    let placed = places.zip(dealt).filter_map(|((role, rank, place), position)| {
        let node = problem.hosts[tree.hosts()[(*position)?]].node.name.clone();
        Some(Place { role, rank, uid: place.uid.clone(), node, bound: place.bound.is_some() })
    });
    placed.collect()
}

fn needed(role: &Role) -> u32 {
    let bound = u32::try_from(role.places.len()).unwrap_or(u32::MAX) - free(role);
    role.min.saturating_sub(bound)
}

fn free(role: &Role) -> u32 {
    u32::try_from(role.places.iter().filter(|place| place.bound.is_none()).count()).unwrap_or(u32::MAX)
}
