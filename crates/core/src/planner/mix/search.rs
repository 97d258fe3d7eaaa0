//! Several shapes by bounded search: fill domains greedily, then take one out again and fill its members in elsewhere.
//!
//! Every host and every domain that is looked at is one iteration; the budget bounds them, and the seed alone decides
//! what is tried. The first filling takes at every level the child that holds all that is left, the tightest, or else
//! the one that covers most of it.

use std::collections::BTreeMap;
use std::ops::Range;

use super::bound::Candidate;
use super::exact::Placed;
use super::field::{Counts, Field};
use crate::planner::plan::{Elastic, LevelIndex, Placement};

/// Children that are tried for all that is left before it is divided.
const TRIES: usize = 3;
/// Fillings of a candidate before anything is taken out again.
const FILLINGS: u64 = 4;
/// Rounds without a better placement after which a candidate is left.
const PATIENCE: u64 = 400;
/// Fixed-point one.
const ONE: u64 = 1 << 16;

/// A placement on the way.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Needed members without a place.
    pub(super) missing: u64,
    /// Valid if nobody is missing.
    pub(super) vector: Vec<u64>,
    pub(super) placed: Placed,
    /// Needed members without a place, per group.
    pub(super) rest: Counts,
}

impl Found {
    fn better(&self, other: &Self) -> bool {
        (self.missing, &self.vector) < (other.missing, &other.vector)
    }
}

/// The search of one problem.
pub(super) struct Search<'a> {
    field: &'a Field<'a>,
    random: u64,
    /// Iterations left.
    pub(super) left: u64,
    values: Vec<u64>,
    favour: Vec<u64>,
}

/// New members by depth-first position.
type State = BTreeMap<usize, Counts>;

impl<'a> Search<'a> {
    pub(super) fn new(field: &'a Field<'a>, seed: u64, iterations: u64) -> Self {
        let favour = vec![1; field.weights.len()];
        let mut search = Self { field, random: seed, left: iterations, values: Vec::new(), favour };
        search.values = search.worth();
        search
    }

    /// Who is hardest to place: the largest share of a weight that all hosts together hold.
    fn worth(&self) -> Vec<u64> {
        let groups = 0..self.field.groups.len();
        let share = |group: usize| {
            let weights = self.field.weights.iter().filter(|weight| weight.each[group] > 0);
            let share = weights.map(|weight| {
                let (each, cap) = (u128::from(weight.each[group]), u128::from(weight.cap(None).max(1)));
                u64::try_from((each << 32) / cap).unwrap_or(u64::MAX)
            });
            share.max().unwrap_or(0).clamp(1, 1 << 40)
        };
        groups.map(share).collect()
    }

    /// The next arbitrary number. Source: SplitMix64, Steele, Lea and Flood, 2014.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.draw() % (bound.max(1) as u64)).unwrap_or(0)
    }

    fn spend(&mut self, iterations: usize) -> bool {
        self.left = self.left.saturating_sub(iterations as u64);
        self.left > 0
    }

    /// Fills a candidate in several ways, the first without any chance.
    pub(super) fn fill(&mut self, candidate: Candidate) -> Found {
        let mut best: Option<Found> = None;
        for round in 0..FILLINGS {
            if round > 0 {
                for index in 0..self.favour.len() {
                    self.favour[index] = 1 + self.draw() % 4;
                }
                self.values = self.worth();
                for index in 0..self.values.len() {
                    let noise = self.draw() % ONE;
                    self.values[index] +=
                        u64::try_from(u128::from(self.values[index]) * u128::from(noise) / u128::from(ONE))
                            .unwrap_or(0);
                }
            } else {
                self.favour.fill(1);
                self.values = self.worth();
            }
            let mut state = State::new();
            let spread = self.field.policy.elastic == Elastic::Spread;
            let must = self.field.must();
            // With as many as possible first, try all at once, in the last round only those needed first.
            let all = spread && round + 1 < FILLINGS;
            let mut rest = if all { self.field.may() } else { must.clone() };
            let (level, range) = self.children_of(candidate);
            self.among(level, range, &mut rest, &mut state);
            let found = self.finished(state, candidate);
            if best.as_ref().is_none_or(|best| found.better(best)) {
                best = Some(found);
            }
            if self.left == 0 {
                break;
            }
        }
        best.expect("there is a first round")
    }

    fn children_of(&self, candidate: Candidate) -> (LevelIndex, Range<usize>) {
        match candidate {
            None => (0, 0..self.field.tree.level(0).len()),
            Some((level, domain)) => (level, domain..domain + 1),
        }
    }

    /// Adds elastic members where the policy allows, and judges.
    fn finished(&mut self, mut state: State, candidate: Candidate) -> Found {
        let field = self.field;
        let mut placed: Counts = Counts::from_elem(0, field.groups.len());
        for counts in state.values() {
            placed.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let rest: Counts =
            field.groups.iter().zip(&placed).map(|(group, placed)| group.must.saturating_sub(*placed)).collect();
        let missing: u64 = rest.iter().map(|rest| u64::from(*rest)).sum();
        let mut extra: Counts = field.groups.iter().zip(&placed).map(|(group, placed)| group.may - placed).collect();
        if missing > 0 || extra.iter().all(|extra| *extra == 0) {
            let placed: Placed = state.into_iter().collect();
            let vector = if missing > 0 { Vec::new() } else { field.vector(&placed) };
            return Found { missing, vector, placed, rest };
        }
        let before: Placed = state.clone().into_iter().collect();
        let hosts: Vec<usize> = match (field.policy.elastic, candidate) {
            (Elastic::Inside, _) => state.keys().copied().collect(),
            (Elastic::Spread, Some((level, domain))) => field.tree.level(level)[domain].hosts.clone().collect(),
            (Elastic::Spread, None) => (0..field.tree.hosts().len()).collect(),
        };
        // Hosts that are used already first.
        let used: Vec<usize> = state.keys().copied().collect();
        self.pack(&used, &mut extra, &mut state);
        self.pack(&hosts, &mut extra, &mut state);
        let placed: Placed = state.into_iter().collect();
        let vector = field.vector(&placed);
        // More members may break more, which packing minds more.
        if field.policy.placement == Placement::Packing {
            let other = field.vector(&before);
            if other < vector {
                return Found { missing, vector: other, placed: before, rest };
            }
        }
        Found { missing, vector, placed, rest }
    }

    /// Puts what is left on some hosts, in their order.
    fn pack(&mut self, hosts: &[usize], rest: &mut Counts, state: &mut State) {
        let none = Counts::from_elem(0, rest.len());
        for &host in hosts {
            if rest.iter().all(|rest| *rest == 0) || !self.spend(1) {
                return;
            }
            let there = state.get(&host).unwrap_or(&none);
            let class = &self.field.classes[self.field.class_of[host] as usize];
            let taken = self.field.take(class, there, rest, &self.values);
            if taken != none {
                rest.iter_mut().zip(&taken).for_each(|(rest, taken)| *rest -= taken);
                let there = state.entry(host).or_insert_with(|| none.clone());
                there.iter_mut().zip(&taken).for_each(|(there, taken)| *there += taken);
            }
        }
    }

    fn into(&mut self, level: LevelIndex, domain: usize, rest: &mut Counts, state: &mut State) {
        if level + 1 == self.field.tree.depth() {
            self.pack(&[domain], rest, state);
        } else {
            let children = self.field.tree.level(level)[domain].children.clone();
            self.among(level + 1, children, rest, state);
        }
    }

    /// Fills some domains of one level with what is left, as few of them as it knows how.
    fn among(&mut self, level: LevelIndex, domains: Range<usize>, rest: &mut Counts, state: &mut State) {
        if domains.len() == 1 {
            return self.into(level, domains.start, rest, state);
        }
        let field = self.field;
        let mut open: Vec<(u64, usize)> = Vec::new();
        let mut finished = usize::MAX;
        loop {
            let left = rest.iter().filter(|rest| **rest > 0).count();
            if left == 0 || self.left == 0 {
                return;
            }
            if left != finished {
                // The first time, and whenever a group is complete: others cover most then.
                let known = finished != usize::MAX;
                finished = left;
                let domains: Vec<usize> =
                    if known { open.iter().map(|(_, domain)| *domain).collect() } else { domains.clone().collect() };
                open = self.scored(level, &domains, rest);
                if !self.spend(domains.len()) {
                    return;
                }
            }
            // One that takes all: the tightest first.
            let most = |weight: &super::field::Weight| {
                open.iter().map(|(_, domain)| weight.caps[level][*domain]).max().unwrap_or(0)
            };
            let last = open.len() <= 64 || self.last_of(level, &open, rest);
            if last && field.weights.iter().all(|weight| most(weight) >= weight.of(rest)) {
                if !self.spend(open.len()) {
                    return;
                }
                let mut whole: Vec<(u64, usize)> = open
                    .iter()
                    .filter(|(_, domain)| field.may_hold(Some((level, *domain)), rest))
                    .map(|(_, domain)| (self.slack(level, *domain, rest), *domain))
                    .collect();
                whole.sort_unstable();
                for (_, domain) in whole.into_iter().take(TRIES) {
                    let (mut trial, mut after) = (state.clone(), rest.clone());
                    self.into(level, domain, &mut after, &mut trial);
                    if after.iter().all(|after| *after == 0) {
                        (*rest, *state) = (after, trial);
                        return;
                    }
                }
            }
            let Some((_, domain)) = open.pop() else { return };
            self.into(level, domain, rest, state);
        }
    }

    /// Whether the child that covers most could take all that is left.
    fn last_of(&self, level: LevelIndex, open: &[(u64, usize)], rest: &Counts) -> bool {
        open.last().is_some_and(|(_, domain)| self.field.may_hold(Some((level, *domain)), rest))
    }

    /// Domains by how much of what is left they cover, most last; those that cover nothing are omitted. Bound members
    /// make a domain come first: it is used already.
    fn scored(&mut self, level: LevelIndex, domains: &[usize], rest: &Counts) -> Vec<(u64, usize)> {
        let field = self.field;
        let needs: Vec<u64> = field.weights.iter().map(|weight| weight.of(rest)).collect();
        let mut scored: Vec<(u64, usize)> = Vec::with_capacity(domains.len());
        for &domain in domains {
            let each = field.weights.iter().zip(&needs).zip(&self.favour).filter(|((_, need), _)| **need > 0);
            let score = each
                .map(|((weight, need), favour)| {
                    let covered =
                        u128::from(weight.caps[level][domain].min(*need)) * u128::from(ONE) / u128::from(*need);
                    favour * u64::try_from(covered).unwrap_or(ONE)
                })
                .sum::<u64>();
            let used = u64::from(field.capacity.bound[level][domain] > 0);
            if score > 0 {
                scored.push((score + used * ONE * 1_000, domain));
            }
        }
        // Of equal ones the first in the tree comes last here, and so is taken first.
        scored.sort_unstable_by(|(one, a), (other, b)| one.cmp(other).then_with(|| b.cmp(a)));
        scored
    }

    /// Capacity beyond what is left, of all weights.
    fn slack(&self, level: LevelIndex, domain: usize, rest: &Counts) -> u64 {
        let each = self.field.weights.iter().map(|weight| {
            let (cap, need) = (weight.caps[level][domain], weight.of(rest));
            if need == 0 {
                0
            } else {
                u64::try_from(u128::from(cap) * u128::from(ONE) / u128::from(need)).unwrap_or(u64::MAX)
            }
        });
        let bound = if self.field.capacity.bound[level][domain] > 0 { 0 } else { 1 << 50 };
        each.fold(bound, u64::saturating_add)
    }

    /// Takes domains out of a placement and fills their members in elsewhere, as long as there is budget and hope.
    pub(super) fn improve(&mut self, start: Found, candidate: Candidate, bound: &[u64], until: u64) -> Found {
        let (mut best, mut current) = (start.clone(), start);
        let depth = self.field.tree.depth();
        let first = candidate.map_or(0, |(level, _)| (level + 1).min(depth - 1));
        let mut idle = 0;
        while self.left > until && idle < PATIENCE && !(best.missing == 0 && best.vector == bound) {
            idle += 1;
            if current.placed.is_empty() {
                break;
            }
            if !self.spend(current.placed.len()) {
                break;
            }
            let level = first + self.below(depth - first);
            let mut state: State = current.placed.iter().cloned().collect();
            let mut rest = current.rest.clone();
            // Elastic members are put back at the end.
            self.trim(&mut state);
            let mut removed: Vec<usize> = Vec::new();
            for _ in 0..=self.below(2) {
                let Some((host, _)) = current.placed.get(self.below(current.placed.len())) else { break };
                let domain = self.field.tree.domain_of(level, *host);
                removed.push(domain);
                let hosts = self.field.tree.level(level)[domain].hosts.clone();
                let inside: Vec<usize> = state.range(hosts).map(|(host, _)| *host).collect();
                for host in inside {
                    let counts = state.remove(&host).unwrap_or_default();
                    rest.iter_mut().zip(&counts).for_each(|(rest, count)| *rest += count);
                }
            }
            // Hosts in use, then their neighbours, then anything but what was taken out.
            let mut hosts: Vec<usize> = state.keys().copied().collect();
            let turn = self.below(hosts.len());
            hosts.rotate_left(turn);
            self.pack(&hosts, &mut rest, &mut state);
            if rest.iter().any(|rest| *rest > 0) {
                let mut parents: Vec<usize> =
                    hosts.iter().map(|host| self.field.tree.domain_of(level, *host)).collect();
                parents.sort_unstable();
                parents.dedup();
                let near = parents.iter().flat_map(|domain| self.field.tree.level(level)[*domain].hosts.clone());
                let near: Vec<usize> = near.filter(|host| !state.contains_key(host)).take(512).collect();
                self.pack(&near, &mut rest, &mut state);
            }
            if rest.iter().any(|rest| *rest > 0) {
                self.elsewhere(level, candidate, &removed, &mut rest, &mut state);
            }
            let found = self.finished(state, candidate);
            if found.better(&best) {
                best = found.clone();
                idle = 0;
            }
            if !current.better(&found) {
                current = found;
            }
        }
        best
    }

    /// Fills the best domains of a level that hold nothing yet, in half of the cases without those just taken out.
    fn elsewhere(
        &mut self,
        level: LevelIndex,
        candidate: Candidate,
        removed: &[usize],
        rest: &mut Counts,
        state: &mut State,
    ) {
        let tree = self.field.tree;
        let inside = candidate.map_or(0..tree.hosts().len(), |(level, domain)| tree.level(level)[domain].hosts.clone());
        let from = tree.level(level).partition_point(|domain| domain.hosts.end <= inside.start);
        let to = tree.level(level).partition_point(|domain| domain.hosts.start < inside.end);
        let again = self.draw().is_multiple_of(2);
        let open: Vec<usize> = (from..to)
            .filter(|domain| again || !removed.contains(domain))
            .filter(|domain| state.range(tree.level(level)[*domain].hosts.clone()).next().is_none())
            .collect();
        if !self.spend(open.len()) {
            return;
        }
        for index in 0..self.favour.len() {
            self.favour[index] = 1 + self.draw() % 4;
        }
        let scored = self.scored(level, &open, rest);
        let whole = scored.iter().filter(|(_, domain)| self.field.may_hold(Some((level, *domain)), rest));
        let tightest = whole.map(|(_, domain)| (self.slack(level, *domain, rest), *domain)).min();
        if let Some((_, domain)) = tightest {
            let (mut trial, mut after) = (state.clone(), rest.clone());
            self.into(level, domain, &mut after, &mut trial);
            if after.iter().all(|after| *after == 0) {
                (*rest, *state) = (after, trial);
                return;
            }
        }
        for (_, domain) in scored.into_iter().rev() {
            if rest.iter().all(|rest| *rest == 0) || self.left == 0 {
                return;
            }
            self.into(level, domain, rest, state);
        }
    }

    /// Takes elastic members out, last hosts first.
    fn trim(&self, state: &mut State) {
        let mut placed: Counts = Counts::from_elem(0, self.field.groups.len());
        for counts in state.values() {
            placed.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let mut surplus: Counts =
            placed.iter().zip(&self.field.groups).map(|(placed, group)| placed.saturating_sub(group.must)).collect();
        for counts in state.values_mut().rev() {
            for (count, surplus) in counts.iter_mut().zip(&mut surplus) {
                let taken = (*count).min(*surplus);
                *count -= taken;
                *surplus -= taken;
            }
        }
        state.retain(|_, counts| counts.iter().any(|count| *count > 0));
    }
}
