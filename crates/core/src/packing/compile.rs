//! A problem as dense tables: which offers take which class, what fits where, and what keeps classes off each other's
//! nodes. The algebra of selectors is evaluated here, once; a search only looks things up.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::fit;
use crate::model::names::{ObjectKey, ResourceName};
use crate::model::node::Node;
use crate::model::pod::{Requirement, SelectorTerm, Shape, Toleration};

use super::bits::Bits;
use super::problem::{Class, Existing, Offer, PodTerm, Problem, Rule, selects};

/// The label whose domains are single nodes.
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";

/// At most so many pods of certain classes on a node that holds a pod of the class this belongs to.
#[derive(Clone, Debug)]
pub(super) struct Cap {
    pub(super) most: u32,
    /// The classes that count.
    pub(super) of: Bits,
    /// How many of them stand on each node that exists.
    pub(super) standing: Vec<u32>,
    /// It is only preferred: it holds for the class, and not for whoever comes to its pods.
    pub(super) preferred: bool,
}

/// The tables. Offers are in order of price, so that the first of a set is the cheapest.
#[derive(Debug)]
pub(super) struct Compiled<'a> {
    pub(super) problem: &'a Problem,
    /// Index of each offer in the problem.
    pub(super) offer_of: Vec<usize>,
    pub(super) resources: Vec<ResourceName>,
    /// `[class][resource]`.
    pub(super) requests: Vec<Vec<i64>>,
    /// `[class]`: volumes that other pods use as well, each by its number with its resource.
    shares: Vec<Vec<(usize, usize)>>,
    /// `[node]`: those of them that are attached to a node that exists.
    attached: Vec<Vec<usize>>,
    /// `[offer][resource]`: allocatable less DaemonSets.
    pub(super) avail: Vec<Vec<i64>>,
    /// `[node][resource]`: what is free on a node that exists.
    pub(super) free: Vec<Vec<i64>>,
    /// `[class]`: offers whose node takes the class if it is large enough.
    pub(super) takes: Vec<Bits>,
    /// `[class]`: nodes that exist and take the class if they have the resources.
    pub(super) open: Vec<Bits>,
    /// `[class]`: classes that cannot share a node with it, itself among them where there is one pod to a node.
    pub(super) apart: Vec<Option<Bits>>,
    /// `[class]`: hostname spread.
    pub(super) caps: Vec<Vec<Cap>>,
    /// Per resource: the distinct amounts of the offers, ascending, each with the offers that have at least so much.
    ladders: Vec<Vec<(i64, Bits)>>,
    /// `[offer]`: offers with the same amounts have the same number.
    pub(super) alike: Vec<usize>,
    /// So many different amounts there are.
    pub(super) distinct: usize,
    /// Per label key that a pod is spread over or shares with others, hosts apart: the offers whose node carries the label.
    carrying: BTreeMap<&'a str, Bits>,
    /// Some pool asks for several values of a key among the alternatives of each node.
    pub(super) varied: bool,
    /// Whoever waits for a node that is joining has to be accepted after all that are placed as well, and not only in its turn.
    pub(super) comes_last: bool,
}

type Selection<'a> = (
    &'a BTreeMap<Arc<str>, Arc<str>>,
    &'a Option<Vec<SelectorTerm>>,
    &'a [Toleration],
    &'a [Vec<SelectorTerm>],
    &'a [SelectorTerm],
    bool,
);

fn selection(class: &Class) -> Selection<'_> {
    let Shape { node_selector, node_affinity, tolerations, volumes, .. } = &class.shape;
    (node_selector, node_affinity, tolerations, volumes, &class.preferred_nodes, class.heeds_soft_taints)
}

impl<'a> Compiled<'a> {
    pub(super) fn new(problem: &'a Problem) -> Self {
        let mut offer_of: Vec<usize> = (0..problem.offers.len()).collect();
        offer_of.sort_by_cached_key(|index| order(problem, *index));
        let offers: Vec<&Offer> = offer_of.iter().filter_map(|index| problem.offers.get(*index)).collect();
        let mut resources: Vec<ResourceName> = Vec::new();
        for class in &problem.classes {
            let new = class.shape.requests.iter().filter(|(_, amount)| *amount > 0).map(|(name, _)| name.clone());
            resources.extend(new);
            resources.extend(class.shares.values().cloned());
        }
        resources.sort();
        resources.dedup();
        let dense = |get: &dyn Fn(&str) -> i64| resources.iter().map(|name| get(name.as_str())).collect::<Vec<i64>>();
        let requests: Vec<Vec<i64>> =
            problem.classes.iter().map(|class| dense(&|name| class.shape.requests.get(name))).collect();
        let avail: Vec<Vec<i64>> = offers
            .iter()
            .map(|offer| dense(&|name| fit::free_of(&offer.node.allocatable, &offer.overhead.requested, name)))
            .collect();
        let free: Vec<Vec<i64>> = problem
            .nodes
            .iter()
            .map(|one| dense(&|name| fit::free_of(&one.node.allocatable, &one.usage.requested, name)))
            .collect();
        let mut known: FxHashMap<&[i64], usize> = FxHashMap::default();
        let alike: Vec<usize> = avail
            .iter()
            .map(|amounts| {
                let next = known.len();
                *known.entry(amounts).or_insert(next)
            })
            .collect();
        let distinct = known.len();
        let (mut takes, mut open) = selected(problem, &offers);
        for (class, open) in problem.classes.iter().zip(&mut open) {
            keep_open(class, problem, open);
        }
        for (_, takes) in problem.classes.iter().zip(&mut takes).filter(|(class, _)| class.existing_only) {
            *takes = Bits::none(offers.len());
        }
        for (class, takes) in problem.classes.iter().zip(&mut takes).filter(|(class, _)| !class.kept_off.is_empty()) {
            takes.subtract(&Bits::of(offers.len(), |at| offers.get(at).is_some_and(|offer| class.is_kept_off(offer))));
        }
        for (class, takes) in problem.classes.iter().zip(&mut takes).filter(|(class, _)| !class.shape.ports.is_empty())
        {
            for (index, offer) in offers.iter().enumerate() {
                if !fit::ports_free(&class.shape.ports, &offer.overhead.ports) {
                    takes.subtract(&Bits::of(offers.len(), |other| other == index));
                }
            }
        }
        let ladders = (0..resources.len()).map(|resource| ladder(&avail, resource)).collect();
        let Volumes { shares, attached } = volumes(problem, &resources);
        let keys: BTreeSet<&str> = problem.classes.iter().flat_map(carried).collect();
        let carries = |key: &str| Bits::of(offers.len(), |at| offers[at].node.labels.contains_key(key));
        let carrying = keys.into_iter().map(|key| (key, carries(key))).collect();
        Self {
            problem,
            offer_of,
            requests,
            shares,
            attached,
            avail,
            free,
            takes,
            open,
            apart: apart(&problem.classes),
            caps: caps(problem),
            ladders,
            alike,
            distinct,
            resources,
            carrying,
            varied: problem.pools.iter().any(|pool| !pool.min_values.is_empty()),
            comes_last: true,
        }
    }

    /// The same where it is enough that everybody is accepted in turn.
    pub(super) fn in_turn(self) -> Self {
        Self { comes_last: false, ..self }
    }

    /// The offer at a place of the price order.
    pub(super) fn offer(&self, at: usize) -> &'a Offer {
        &self.problem.offers[self.offer_of[at]]
    }

    /// Offers that hold a pod of the class, whatever it prefers: their domains are those that a spread constraint counts. Without a label
    /// that another of its constraints asks for no node ever holds one.
    pub(super) fn possible(&self, class: usize) -> Bits {
        let of = &self.problem.classes[class];
        let takes =
            |offer: &Offer| !of.existing_only && !of.is_kept_off(offer) && fit::accepts(&of.shape, &offer.node).is_ok();
        let mut mask = if of.preferred_nodes.is_empty() && !of.heeds_soft_taints {
            self.takes[class].clone()
        } else {
            Bits::of(self.offer_of.len(), |at| takes(self.offer(at)))
        };
        carried(of).filter_map(|key| self.carrying.get(key)).for_each(|offers| mask.intersect(offers));
        self.holding(&mut mask, &self.need(class, &[], None));
        mask
    }

    /// Whether pods of the class use volumes that others use as well: what it takes of a node depends on who is there.
    pub(super) fn shares(&self, class: usize) -> bool {
        !self.shares[class].is_empty()
    }

    /// What one more pod of the class takes of a node beside those that the plan puts there: a volume that is attached already
    /// takes nothing.
    pub(super) fn need(&self, class: usize, counts: &[(usize, u32)], existing: Option<usize>) -> Cow<'_, [i64]> {
        let mut need = Cow::Borrowed(self.requests[class].as_slice());
        for (volume, resource) in &self.shares[class] {
            let on_node = existing.and_then(|node| self.attached.get(node)).is_some_and(|all| all.contains(volume));
            let uses = |other: usize| self.shares[other].iter().any(|(known, _)| known == volume);
            if !on_node && !counts.iter().any(|(other, count)| *count > 0 && uses(*other)) {
                need.to_mut()[*resource] += 1;
            }
        }
        need
    }

    /// What pods take of a new node together.
    pub(super) fn load_of(&self, counts: &[(usize, u32)]) -> Vec<i64> {
        let mut load = vec![0_i64; self.resources.len()];
        for (at, (class, count)) in counts.iter().enumerate() {
            self.load(&mut load, *class, *count, &counts[..at], None);
        }
        load
    }

    /// Adds pods of a class to the load of a node with these pods.
    pub(super) fn load(
        &self,
        load: &mut [i64],
        class: usize,
        count: u32,
        counts: &[(usize, u32)],
        existing: Option<usize>,
    ) {
        let Some(rest) = count.checked_sub(1) else { return };
        let (first, other) = (self.need(class, counts, existing), &self.requests[class]);
        for ((sum, first), other) in load.iter_mut().zip(&*first).zip(other) {
            *sum = sum.saturating_add(*first).saturating_add(other.saturating_mul(i64::from(rest)));
        }
    }

    /// Whether no pod of these classes keeps the class off their node, and it none of them.
    pub(super) fn apart_from(&self, class: usize, counts: &[(usize, u32)]) -> bool {
        let apart = self.apart[class].as_ref();
        apart.is_none_or(|apart| !counts.iter().any(|(other, count)| *count > 0 && apart.contains(*other)))
    }

    /// Whether all of these pods may share a new node, as far as they alone decide, where every host is taken to hold at least
    /// `least` of the pods that are spread over hosts.
    pub(super) fn all_together(&self, counts: &[(usize, u32)], least: u32) -> bool {
        counts.iter().filter(|(_, count)| *count > 0).all(|(class, _)| {
            let meets = |apart: &Bits| {
                let another = |(other, count): &(usize, u32)| *count > u32::from(other == class);
                counts.iter().any(|one| another(one) && apart.contains(one.0))
            };
            let within = |cap: &Cap| {
                let counted = counts.iter().filter(|(other, _)| cap.of.contains(*other)).map(|(_, count)| count);
                counted.sum::<u32>() <= cap.most.saturating_add(least)
            };
            !self.apart[*class].as_ref().is_some_and(meets) && self.caps[*class].iter().all(within)
        })
    }

    /// Leaves in `mask` the offers that hold a load.
    pub(super) fn holding(&self, mask: &mut Bits, load: &[i64]) {
        for (ladder, need) in self.ladders.iter().zip(load) {
            if *need <= 0 {
                continue;
            }
            let at = ladder.partition_point(|(amount, _)| amount < need);
            match ladder.get(at) {
                Some((_, enough)) => mask.intersect(enough),
                None => *mask = Bits::none(self.avail.len()),
            }
        }
    }

    /// For each resource of a load the offers that have as much; `None` where none has.
    pub(super) fn enough(&self, load: &[i64]) -> Option<SmallVec<[&Bits; 10]>> {
        let mut sets = SmallVec::new();
        for (ladder, need) in self.ladders.iter().zip(load).filter(|(_, need)| **need > 0) {
            let at = ladder.partition_point(|(amount, _)| amount < need);
            sets.push(&ladder.get(at)?.1);
        }
        Some(sets)
    }

    /// Whether one pod of the class may stand on a node with these pods, as far as they alone decide; every host is taken to
    /// hold none of the pods that are spread over hosts.
    pub(super) fn together(&self, class: usize, counts: &[(usize, u32)], existing: Option<usize>) -> bool {
        self.together_above(class, counts, existing, 0)
    }

    /// The same where every host is taken to hold at least `least` of those pods.
    pub(super) fn together_above(
        &self,
        class: usize,
        counts: &[(usize, u32)],
        existing: Option<usize>,
        least: u32,
    ) -> bool {
        if !self.apart_from(class, counts) {
            return false;
        }
        let within = |owner: usize| {
            // Whoever prefers it says nothing of those that come later.
            self.caps[owner].iter().filter(|cap| owner == class || !cap.preferred).all(|cap| {
                let there = existing.and_then(|node| cap.standing.get(node)).copied().unwrap_or(0);
                let counted = counts.iter().filter(|(other, _)| cap.of.contains(*other)).map(|(_, count)| count);
                let sum = counted.sum::<u32>() + there + u32::from(cap.of.contains(class));
                sum <= cap.most.saturating_add(least)
            })
        };
        within(class) && counts.iter().all(|(other, count)| *count == 0 || *other == class || within(*other))
    }
}

/// Volumes that several pods use, by number.
struct Volumes {
    /// `[class]`: its volumes, each with the index of the resource that counts it.
    shares: Vec<Vec<(usize, usize)>>,
    /// `[node]`: those that are attached to it.
    attached: Vec<Vec<usize>>,
}

/// Volumes that several pods use: those of each class, and those that are attached to each node.
fn volumes(problem: &Problem, resources: &[ResourceName]) -> Volumes {
    let mut known: BTreeMap<&ObjectKey, usize> = BTreeMap::new();
    let mut number = |claim| {
        let next = known.len();
        *known.entry(claim).or_insert(next)
    };
    let mut shares = Vec::with_capacity(problem.classes.len());
    for class in &problem.classes {
        let resource = |name: &ResourceName| resources.binary_search(name).unwrap_or(0);
        shares.push(class.shares.iter().map(|(claim, name)| (number(claim), resource(name))).collect());
    }
    let on_node = |node: usize| {
        let claims = problem.attached.get(&node).into_iter().flatten();
        claims.filter_map(|claim| known.get(claim).copied()).collect()
    };
    Volumes { shares, attached: (0..problem.nodes.len()).map(on_node).collect() }
}

/// Price, then what is tied up by it, then the names that make the order total.
fn order(problem: &Problem, index: usize) -> impl Ord + use<> {
    let offer = &problem.offers[index];
    let pool = problem.pools.get(offer.pool).map(|pool| Arc::clone(&pool.name));
    let names = (Arc::clone(&offer.instance_type), offer.zone.clone(), offer.capacity_type, offer.reservation.clone());
    (offer.price, offer.reservation.is_none(), offer.list_price, names, pool, offer.variant, index)
}

/// Which offers and which nodes take each class, by everything that is no amount.
fn selected(problem: &Problem, offers: &[&Offer]) -> (Vec<Bits>, Vec<Bits>) {
    let mut known: BTreeMap<Selection<'_>, (Bits, Bits)> = BTreeMap::new();
    let (mut takes, mut open) = (Vec::new(), Vec::new());
    for class in &problem.classes {
        let (of_offers, of_nodes) = known.entry(selection(class)).or_insert_with(|| {
            let accepts = |node: &Node| accepts(class, node);
            (
                Bits::of(offers.len(), |index| offers.get(index).is_some_and(|offer| accepts(&offer.node))),
                Bits::of(problem.nodes.len(), |index| problem.nodes.get(index).is_some_and(|one| accepts(&one.node))),
            )
        });
        takes.push(of_offers.clone());
        open.push(of_nodes.clone());
    }
    (takes, open)
}

/// Whether a node takes pods of the class, by everything that is no amount and depends on no other pod.
pub(super) fn accepts(class: &Class, node: &Node) -> bool {
    fit::accepts(&class.shape, node).is_ok()
        && class.preferred_nodes.iter().all(|term| fit::term_matches(term, node))
        && !(class.heeds_soft_taints && fit::soft_taint(&class.shape, node))
}

/// Takes the nodes out on which a host port is taken, or a pod stands that keeps the class away or that it keeps away.
fn keep_open(class: &Class, problem: &Problem, open: &mut Bits) {
    if !class.shape.ports.is_empty() {
        let taken = |one: &Existing| !fit::ports_free(&class.shape.ports, &one.usage.ports);
        open.subtract(&Bits::of(problem.nodes.len(), |index| problem.nodes.get(index).is_some_and(taken)));
    }
    if class.newer_than.is_some() {
        let shut_out = |one: &Existing| class.is_shut_out(&one.node);
        open.subtract(&Bits::of(problem.nodes.len(), |index| problem.nodes.get(index).is_some_and(shut_out)));
    }
    let own = || anti_terms(class).filter(|term| &*term.key == HOSTNAME);
    for pod in &problem.standing {
        let theirs = pod.anti_affinity.iter().filter(|term| &*term.key == HOSTNAME);
        let apart = own().any(|term| term.matches(&pod.namespace, &pod.labels))
            || theirs.into_iter().any(|term| term.matches(&class.namespace, &class.labels));
        if apart {
            open.subtract(&Bits::of(problem.nodes.len(), |index| index == pod.node));
        }
    }
}

/// The labels, hosts apart, without which no node ever takes pods of the class: what they are spread over, and what they share with
/// the pods that they have to be near.
fn carried(class: &Class) -> impl Iterator<Item = &str> {
    let rules = class.rules.iter().filter(|rule| !matches!(rule, Rule::AntiAffinity(_)));
    rules.flat_map(Rule::keys).map(|key| &**key).filter(|key| *key != HOSTNAME)
}

/// Required anti-affinity of a class.
pub(super) fn anti_terms(class: &Class) -> impl Iterator<Item = &PodTerm> {
    class.rules.iter().filter_map(|rule| match rule {
        Rule::AntiAffinity(term) => Some(term),
        Rule::Spread(_) | Rule::Affinity(_) => None,
    })
}

/// Host ports and anti-affinity by hostname: which classes never share a node.
fn apart(classes: &[Class]) -> Vec<Option<Bits>> {
    let size = classes.len();
    let mut found: Vec<Option<Bits>> = vec![None; size];
    let mut note = |one: usize, other: usize| {
        found[one].get_or_insert_with(|| Bits::none(size)).insert(other);
        found[other].get_or_insert_with(|| Bits::none(size)).insert(one);
    };
    for (index, class) in classes.iter().enumerate() {
        let terms: Vec<&PodTerm> = anti_terms(class).filter(|term| &*term.key == HOSTNAME).collect();
        if terms.is_empty() && class.shape.ports.is_empty() {
            continue;
        }
        for (at, other) in classes.iter().enumerate() {
            let ports = !fit::ports_free(&class.shape.ports, &other.shape.ports);
            if ports || terms.iter().any(|term| term.matches(&other.namespace, &other.labels)) {
                note(index, at);
            }
        }
    }
    found
}

/// Pods that a constraint selects: their namespace, and what their labels have to be.
type Selected<'a> = (&'a str, &'a [Requirement]);

/// Hostname spread of each class as caps. The least of all hosts is taken as 0: a host without such a pod can always come.
fn caps(problem: &Problem) -> Vec<Vec<Cap>> {
    // Most constraints select the same pods: those, and how many of them stand on each node that exists.
    let mut known: FxHashMap<Selected<'_>, (Bits, Vec<u32>)> = FxHashMap::default();
    let mut all = Vec::with_capacity(problem.classes.len());
    for class in &problem.classes {
        let required = class.rules.iter().map(|rule| (rule, false));
        let mut caps = Vec::new();
        for (rule, preferred) in required.chain(class.preferred.iter().map(|rule| (rule, true))) {
            let Rule::Spread(spread) = rule else { continue };
            if &*spread.key != HOSTNAME {
                continue;
            }
            let selected = || counted(problem, &class.namespace, &spread.selector);
            let (of, standing) = known.entry((&class.namespace, &spread.selector)).or_insert_with(selected).clone();
            caps.push(Cap { most: spread.max_skew, of, standing, preferred });
        }
        all.push(caps);
    }
    all
}

/// The classes that a selector selects in a namespace, and how many pods on each node that exists.
fn counted(problem: &Problem, namespace: &str, selector: &[Requirement]) -> (Bits, Vec<u32>) {
    let counts = |of: &str, labels: &BTreeMap<Arc<str>, Arc<str>>| of == namespace && selects(selector, labels);
    let of = Bits::of(problem.classes.len(), |index| {
        problem.classes.get(index).is_some_and(|other| counts(&other.namespace, &other.labels))
    });
    let mut standing = vec![0; problem.nodes.len()];
    for pod in problem.standing.iter().filter(|pod| !pod.deleting && counts(&pod.namespace, &pod.labels)) {
        if let Some(count) = standing.get_mut(pod.node) {
            *count += 1;
        }
    }
    (of, standing)
}

/// How many pods with such a request fit.
pub(super) fn most(request: &[i64], free: &[i64]) -> u32 {
    let fits = request.iter().zip(free).filter(|(need, _)| **need > 0).map(|(need, free)| free.max(&0) / need).min();
    fits.map_or(u32::MAX, |fits| u32::try_from(fits).unwrap_or(u32::MAX))
}

/// Kinds of node of which none is beaten by one that came before it: that takes whatever it takes, and has no less.
#[derive(Debug, Default)]
pub(super) struct Front<'a> {
    kinds: Vec<(Bits, &'a [i64])>,
    /// All that came, by what they are alike in: zones and capacity types have the same machines.
    seen: FxHashSet<(usize, SmallVec<[bool; 16]>)>,
}

impl<'a> Front<'a> {
    /// Whether no kind that came before beats an offer that takes these; then it is one of them.
    pub(super) fn takes(&mut self, compiled: &'a Compiled<'_>, offer: usize, takes: &[bool]) -> bool {
        if !self.seen.insert((compiled.alike[offer], SmallVec::from_slice(takes))) {
            return false;
        }
        let avail = compiled.avail[offer].as_slice();
        let takes = Bits::of(takes.len(), |index| takes[index]);
        let beats = |(others, has): &(Bits, &[i64])| {
            has.iter().zip(avail).all(|(one, other)| one >= other) && others.covers(&takes)
        };
        let new = !self.kinds.iter().any(beats);
        if new {
            self.kinds.push((takes, avail));
        }
        new
    }
}

fn ladder(avail: &[Vec<i64>], resource: usize) -> Vec<(i64, Bits)> {
    let amount = |amounts: &Vec<i64>| amounts.get(resource).copied().unwrap_or(0);
    let mut offers: Vec<(i64, usize)> = avail.iter().map(amount).zip(0..).collect();
    // From the largest down: whoever has an amount has every smaller one.
    offers.sort_unstable_by_key(|(amount, _)| std::cmp::Reverse(*amount));
    let (mut ladder, mut enough) = (Vec::new(), Bits::none(avail.len()));
    for same in offers.chunk_by(|one, other| one.0 == other.0) {
        same.iter().for_each(|(_, index)| enough.insert(*index));
        ladder.extend(same.first().map(|(amount, _)| (*amount, enough.clone())));
    }
    ladder.reverse();
    ladder
}
