//! Volumes that are there already and that nobody has claimed: which claim gets which, as a matching in the order of the pods.
//!
//! A claim that comes later never leaves an earlier one without a volume, but it may leave it another one. Claims of pods with
//! several of them stay with the volumes they got, since those must be reached from one node.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::problem::{Class, Problem};
use crate::fit;
use crate::model::gang::{self, Pod, Taken};
use crate::model::names::ObjectKey;
use crate::model::node::Node;
use crate::model::pod::SelectorTerm;

/// Where something can be reached: all must hold, the terms of each are ORed.
type Reach = Vec<Vec<SelectorTerm>>;

/// How good a place is: on a node that exists, in their order, before new ones, by price. `None`: there is none.
type Rank = Option<(bool, u64)>;

/// A claim that is met by one of the volumes that are there.
struct OfClaim<'a> {
    /// Volumes that would do for it where its pod may stand, the best first.
    candidates: Vec<&'a gang::Unclaimed>,
    /// Those of them that its pod reaches where it is planned.
    preferred: Vec<&'a gang::Unclaimed>,
    given: Option<&'a gang::Unclaimed>,
    /// It may be given another one for the sake of others.
    moves: bool,
    /// Its volumes are not all reached from the same places.
    differ: bool,
}

/// Who gets which volume.
pub(super) struct Unclaimed<'a> {
    base: &'a Problem,
    claims: Vec<OfClaim<'a>>,
    by_key: BTreeMap<ObjectKey, usize>,
    owners: BTreeMap<&'a str, usize>,
    of_pod: BTreeMap<usize, Vec<usize>>,
    ranks: FxHashMap<(Class, Reach), Rank>,
}

impl<'a> Unclaimed<'a> {
    pub(super) fn new(base: &'a Problem) -> Self {
        Self {
            base,
            claims: Vec::new(),
            by_key: BTreeMap::new(),
            owners: BTreeMap::new(),
            of_pod: BTreeMap::new(),
            ranks: FxHashMap::default(),
        }
    }

    /// A pod with a place takes a volume for each of its claims, one that it reaches from there if that is known.
    pub(super) fn gone(&mut self, pod: &'a Pod) {
        let name = pod.occupied_node().filter(|_| one_by_one(pod).next().is_some());
        let node = name.and_then(|name| self.base.nodes.iter().find(|one| one.node.name == *name));
        for taken in one_by_one(pod) {
            let mut candidates: Vec<&gang::Unclaimed> = taken.among.iter().collect();
            candidates.sort_by_key(|one| node.is_some_and(|on| !reaches(&one.reach, &on.node)));
            self.add(pod, taken, candidates, true);
        }
    }

    /// A pod takes a volume for each of its claims. One that could stand nowhere, whatever volumes it had, takes none.
    ///
    /// Errors: the claim for which others have left none.
    pub(super) fn take(&mut self, number: usize, pod: &'a Pod, class: &Class) -> Result<(), &'a Taken> {
        let moves = one_by_one(pod).nth(1).is_none();
        let (mut own, mut added): (Vec<usize>, Vec<usize>) = Default::default();
        let mut reach: Reach = Vec::new();
        for taken in one_by_one(pod) {
            let claim = match self.by_key.get(&key(pod, taken)) {
                // Somebody else uses the same claim: it has its volume.
                Some(known) => *known,
                None => {
                    let candidates = self.candidates(taken, class, &reach);
                    if candidates.is_empty() {
                        continue;
                    }
                    let claim = self.add(pod, taken, candidates, moves);
                    added.push(claim);
                    if self.claims[claim].given.is_none() {
                        self.withdraw(&added);
                        return Err(taken);
                    }
                    claim
                }
            };
            if let Some(given) = self.claims[claim].given.filter(|_| !moves) {
                reach.extend(given.reach.iter().cloned());
            }
            own.push(claim);
        }
        self.of_pod.insert(number, own);
        Ok(())
    }

    /// Whether some pod may have one of several volumes that are not reached from the same places.
    pub(super) fn is_choice(&self) -> bool {
        self.claims.iter().any(|claim| claim.moves && !alike(&claim.candidates))
    }

    /// A pod would be planned on a node: volumes that it reaches from there are better than others.
    pub(super) fn prefer(&mut self, number: usize, node: &Node) {
        for claim in self.of_pod.get(&number).into_iter().flatten() {
            let claim = &mut self.claims[*claim];
            let here = claim.candidates.iter().copied().filter(|one| reaches(&one.reach, node));
            claim.preferred = here.collect();
        }
    }

    /// Hands the volumes out once more, those that are preferred as far as that goes.
    pub(super) fn choose(&mut self) {
        let moving: Vec<usize> = (0..self.claims.len()).filter(|claim| self.claims[*claim].moves).collect();
        moving.iter().for_each(|claim| self.release(*claim));
        for only_preferred in [true, false] {
            for claim in &moving {
                if self.claims[*claim].given.is_none() {
                    self.give(*claim, only_preferred, &mut BTreeSet::new());
                }
            }
        }
    }

    /// Whether the pod has been given volumes.
    pub(super) fn is_given_any(&self, number: usize) -> bool {
        self.of_pod.get(&number).is_some_and(|own| !own.is_empty())
    }

    /// Pins the pod to where it reaches the volumes that it was given.
    pub(super) fn pin(&self, number: usize, class: &mut Class) {
        let own = self.of_pod.get(&number).into_iter().flatten().map(|claim| &self.claims[*claim]);
        let reach: Vec<_> =
            own.filter(|claim| claim.differ).filter_map(|claim| claim.given).flat_map(|one| &one.reach).collect();
        if !reach.is_empty() {
            class.shape.volumes.extend(reach.into_iter().cloned());
            class.shape.volumes.sort();
            class.shape.volumes.dedup();
        }
    }

    fn add(&mut self, pod: &Pod, taken: &'a Taken, candidates: Vec<&'a gang::Unclaimed>, moves: bool) -> usize {
        let next = self.claims.len();
        let claim = *self.by_key.entry(key(pod, taken)).or_insert(next);
        if claim == next {
            let all: Vec<&gang::Unclaimed> = taken.among.iter().collect();
            let differ = !alike(&all);
            self.claims.push(OfClaim { candidates, preferred: Vec::new(), given: None, moves, differ });
            if !self.give(claim, false, &mut BTreeSet::new()) {
                self.claims[claim].candidates.clear();
            }
        }
        claim
    }

    /// These claims ask for no volume after all.
    fn withdraw(&mut self, claims: &[usize]) {
        for claim in claims {
            self.release(*claim);
            self.claims[*claim].candidates.clear();
        }
        self.by_key.retain(|_, known| !claims.contains(known));
    }

    fn release(&mut self, claim: usize) {
        if let Some(given) = self.claims[claim].given.take() {
            self.owners.remove(&*given.volume);
        }
    }

    /// Gives a claim one of its volumes, and whoever has that another one of its own.
    fn give(&mut self, claim: usize, only_preferred: bool, tried: &mut BTreeSet<&'a str>) -> bool {
        let of = &self.claims[claim];
        let rest = if only_preferred { [].as_slice() } else { of.candidates.as_slice() };
        let all: Vec<&'a gang::Unclaimed> = of.preferred.iter().chain(rest).copied().collect();
        for one in all {
            if !tried.insert(&*one.volume) {
                continue;
            }
            let owner = self.owners.get(&*one.volume).copied();
            if owner.is_none_or(|owner| self.claims[owner].moves && self.give(owner, only_preferred, tried)) {
                self.owners.insert(&*one.volume, claim);
                self.claims[claim].given = Some(one);
                return true;
            }
        }
        false
    }

    /// Volumes of a claim with which the pod could stand somewhere, the best first.
    fn candidates(&mut self, taken: &'a Taken, class: &Class, reach: &Reach) -> Vec<&'a gang::Unclaimed> {
        let mut ranked: Vec<((bool, u64), &'a gang::Unclaimed)> = Vec::new();
        for one in &taken.among {
            let reach: Reach = reach.iter().chain(&one.reach).cloned().collect();
            let key = (class.clone(), reach);
            let rank = match self.ranks.get(&key) {
                Some(known) => *known,
                None => {
                    let found = rank(self.base, class, &key.1);
                    self.ranks.insert(key, found);
                    found
                }
            };
            ranked.extend(rank.map(|rank| (rank, one)));
        }
        // Of those that are as good the order stays: it is that of their sizes.
        ranked.sort_by_key(|(rank, _)| *rank);
        ranked.into_iter().map(|(_, one)| one).collect()
    }
}

/// Where a pod that reaches its volumes from there alone would stand best, as far as it alone decides.
fn rank(base: &Problem, class: &Class, reach: &Reach) -> Rank {
    let mut shape = class.shape.clone();
    shape.volumes.extend(reach.iter().cloned());
    let takes = |node: &Node| !class.is_shut_out(node);
    let mut nodes = base.nodes.iter().zip(0_u64..);
    let there = nodes.find(|(one, _)| takes(&one.node) && fit::fits(&shape, &one.node, &one.usage).is_ok());
    if let Some((_, index)) = there {
        return Some((false, index));
    }
    let offers = base.offers.iter().filter(|offer| !class.existing_only && !class.is_kept_off(offer));
    let holding = offers.filter(|offer| fit::fits(&shape, &offer.node, &offer.overhead).is_ok());
    let weight = |pool: usize| base.pools.get(pool).map_or(0, |pool| pool.weight);
    let best = holding.min_by_key(|offer| (Reverse(weight(offer.pool)), offer.price));
    best.map(|offer| (true, offer.price))
}

/// Claims of which each volume is known.
fn one_by_one(pod: &Pod) -> impl Iterator<Item = &Taken> {
    pod.claims.taken.iter().filter(|taken| !taken.among.is_empty())
}

fn key(pod: &Pod, taken: &Taken) -> ObjectKey {
    ObjectKey::new(&*pod.key.namespace, &*taken.claim)
}

fn alike(volumes: &[&gang::Unclaimed]) -> bool {
    volumes.windows(2).all(|pair| pair[0].reach == pair[1].reach)
}

fn reaches(reach: &Reach, node: &Node) -> bool {
    reach.iter().all(|terms| terms.iter().any(|term| fit::term_matches(term, node)))
}
