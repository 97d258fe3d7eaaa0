//! Counters of topology constraints over domains of more than one node: spread, pod affinity and anti-affinity.
//!
//! One counter per question "how many pods like these stand in each domain of this key". A class feeds some counters and
//! obeys some. Constraints by hostname that only restrict one node are not here: see `compile`.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::fit;
use crate::model::node::Node;

use super::bits::Bits;
use super::compile::{Compiled, HOSTNAME, anti_terms};
use super::problem::{Class, PodTerm, Problem, Rule, Spread, Standing, selects};

/// A domain of a counter: the interned value of its label, or a node.
type Domain = usize;

/// What a class has to obey.
#[derive(Debug)]
enum Obey {
    Spread {
        counter: usize,
        max_skew: u32,
        min_domains: u32,
        own: bool,
        domains: Vec<Domain>,
    },
    /// Every counter has a pod in the domain, or none has one anywhere and the pod matches itself.
    Affinity {
        counters: Vec<usize>,
        own: bool,
    },
    /// No pod in the domain.
    Away {
        counter: usize,
    },
}

/// Which pods a counter counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Counted<'a> {
    /// Those a spread constraint of this class selects, on nodes that its policies let count.
    Spread { owner: usize, spread: &'a Spread },
    /// Those that match all these terms.
    Matching(&'a [PodTerm]),
    /// Those that carry this anti-affinity term.
    Owners(&'a PodTerm),
}

/// The values of a key that is not the hostname, as numbers.
#[derive(Debug)]
struct Domains {
    of_offer: Vec<Option<Domain>>,
    of_node: Vec<Option<Domain>>,
    /// `[domain]`: its offers.
    offers: Vec<Bits>,
}

#[derive(Debug)]
struct Counter<'a> {
    counted: Counted<'a>,
    key: Arc<str>,
    /// `None` where every node is a domain.
    domains: Option<Arc<Domains>>,
    /// Offers and nodes that count, for spread.
    offers: Option<Bits>,
    nodes: Option<Bits>,
}

/// The constraints of a problem; what changes while a plan grows is in [`Counts`].
#[derive(Debug)]
pub(super) struct Topology<'a> {
    counters: Vec<Counter<'a>>,
    feeds: Vec<Vec<usize>>,
    obeys: Vec<Vec<Obey>>,
    /// Offers that agree in every key somebody counts by, per combination of values; in order of price.
    pub(super) cells: Vec<Bits>,
    /// Counters of spread constraints with offers that count in domains where none of them holds the pod: such a domain is
    /// one as soon as a node for others comes there.
    partial: Vec<usize>,
    /// `[offer]`: its cell.
    pub(super) cell_of: Vec<usize>,
    /// `[class]`: every offer counts for whatever it feeds.
    settled: Vec<bool>,
}

/// How many pods stand in each domain of each counter, and how many new nodes count in each domain of those that are in
/// `Topology::partial`.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pods: Vec<FxHashMap<Domain, u32>>,
    nodes: FxHashMap<(usize, Domain), i64>,
}

/// What a node of the plan is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// One that exists.
    Existing(usize),
    /// A new one, by any offer it may become: they agree in what is asked.
    Offer(usize),
}

/// A node of the plan, by its number there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) slot: usize,
    pub(super) kind: Kind,
}

impl<'a> Topology<'a> {
    pub(super) fn new(compiled: &Compiled<'a>) -> Self {
        let problem = compiled.problem;
        let mut made = Self {
            counters: Vec::new(),
            feeds: vec![Vec::new(); problem.classes.len()],
            obeys: (0..problem.classes.len()).map(|_| Vec::new()).collect(),
            cells: Vec::new(),
            partial: Vec::new(),
            cell_of: Vec::new(),
            settled: Vec::new(),
        };
        for (index, class) in problem.classes.iter().enumerate() {
            for rule in &class.rules {
                match rule {
                    Rule::Spread(spread) if &*spread.key != HOSTNAME => made.spread(compiled, index, spread),
                    Rule::Affinity(terms) => made.affinity(compiled, index, terms),
                    Rule::AntiAffinity(term) if &*term.key != HOSTNAME => made.anti_affinity(compiled, index, term),
                    Rule::Spread(_) | Rule::AntiAffinity(_) => {}
                }
            }
            for rule in &class.preferred {
                match rule {
                    Rule::Spread(spread) if &*spread.key != HOSTNAME => made.spread(compiled, index, spread),
                    Rule::Affinity(terms) => made.affinity(compiled, index, terms),
                    Rule::AntiAffinity(term) => made.keeps_off(compiled, index, term),
                    Rule::Spread(_) => {}
                }
            }
        }
        for (index, counter) in made.counters.iter().enumerate() {
            for (class, feeds) in made.feeds.iter_mut().enumerate() {
                if counter.counts(&problem.classes[class], problem) {
                    feeds.push(index);
                }
            }
        }
        made.cut(compiled);
        let all = Bits::of(compiled.offer_of.len(), |_| true);
        let counts_all = |counter: &usize| made.counters[*counter].offers.as_ref().is_none_or(|offers| *offers == all);
        made.settled = made.feeds.iter().map(|feeds| feeds.iter().all(counts_all)).collect();
        made
    }

    /// Whether a node for a pod of the class counts for whatever that feeds, whatever offer it comes as.
    pub(super) fn is_settled(&self, class: usize) -> bool {
        self.settled[class]
    }

    /// Whether the class obeys or feeds any counter.
    pub(super) fn links(&self, class: usize) -> bool {
        !self.feeds[class].is_empty() || !self.obeys[class].is_empty()
    }

    /// What stands on the nodes that exist.
    pub(super) fn counts(&self, problem: &Problem) -> Counts {
        let mut counts = Counts { pods: vec![FxHashMap::default(); self.counters.len()], ..Counts::default() };
        for pod in &problem.standing {
            if pod.node >= problem.nodes.len() {
                continue;
            }
            for (counter, of) in self.counters.iter().zip(&mut counts.pods) {
                let skipped = pod.deleting && matches!(counter.counted, Counted::Spread { .. });
                if skipped || !counter.counts_standing(pod, problem) || !counter.counts_node(pod.node) {
                    continue;
                }
                if let Some(domain) = counter.domain(Spot { slot: pod.node, kind: Kind::Existing(pod.node) }) {
                    *of.entry(domain).or_default() += 1;
                }
            }
        }
        counts
    }

    /// Whether a pod of the class may stand there now.
    pub(super) fn allows(&self, counts: &Counts, class: usize, spot: Spot) -> bool {
        self.obeys[class].iter().all(|obey| match obey {
            Obey::Away { counter } => {
                let domain = self.counters[*counter].domain(spot);
                domain.is_none_or(|domain| counts.of(*counter, domain) == 0)
            }
            Obey::Affinity { counters, own } => {
                let first =
                    *own && counters.iter().all(|counter| counts.pods[*counter].values().all(|count| *count == 0));
                counters.iter().all(|counter| {
                    let domain = self.counters[*counter].domain(spot);
                    domain.is_some_and(|domain| first || counts.of(*counter, domain) > 0)
                })
            }
            Obey::Spread { counter, max_skew, min_domains, own, domains } => {
                let Some(domain) = self.counters[*counter].domain(spot) else { return false };
                let opened = counts.nodes.iter().filter(|((of, domain), nodes)| {
                    of == counter && **nodes > 0 && domains.binary_search(domain).is_err()
                });
                let opened: Vec<Domain> = opened.map(|((_, domain), _)| *domain).collect();
                let enough = domains.len() + opened.len() >= *min_domains as usize;
                let all = domains.iter().chain(&opened);
                let least = all.map(|domain| counts.of(*counter, *domain)).min().filter(|_| enough);
                let there = counts.of(*counter, domain) + u32::from(*own);
                there.saturating_sub(least.unwrap_or(0)) <= *max_skew
            }
        })
    }

    /// How many pods stand there with which one of the class would be counted for a spread constraint.
    pub(super) fn pressure(&self, counts: &Counts, class: usize, spot: Spot) -> u32 {
        let spread = |counter: &&usize| matches!(self.counters[**counter].counted, Counted::Spread { .. });
        let there =
            |counter: &usize| self.counters[*counter].domain(spot).map_or(0, |domain| counts.of(*counter, domain));
        self.feeds[class].iter().filter(spread).map(there).fold(0, u32::saturating_add)
    }

    /// Whether the class obeys or feeds a counter whose domains are single nodes.
    pub(super) fn by_host(&self, class: usize) -> bool {
        let by_host = |counter: &usize| &*self.counters[*counter].key == HOSTNAME;
        self.feeds[class].iter().any(by_host)
            || self.obeys[class].iter().any(|obey| match obey {
                Obey::Spread { counter, .. } | Obey::Away { counter } => by_host(counter),
                Obey::Affinity { counters, .. } => counters.iter().any(by_host),
            })
    }

    /// Whether pods of the class have to share a domain with others.
    pub(super) fn is_drawn(&self, class: usize) -> bool {
        self.obeys[class].iter().any(|obey| match obey {
            Obey::Affinity { .. } => true,
            Obey::Spread { .. } | Obey::Away { .. } => false,
        })
    }

    /// Whether the class obeys a spread constraint over domains of several nodes.
    pub(super) fn is_spread(&self, class: usize) -> bool {
        self.obeys[class].iter().any(|obey| match obey {
            Obey::Spread { .. } => true,
            Obey::Affinity { .. } | Obey::Away { .. } => false,
        })
    }

    /// One pod of the class comes to or leaves a node.
    pub(super) fn count(&self, counts: &mut Counts, class: usize, spot: Spot, comes: bool) {
        for counter in &self.feeds[class] {
            let of = &self.counters[*counter];
            let counted = match spot.kind {
                Kind::Existing(existing) => of.counts_node(existing),
                Kind::Offer(offer) => of.offers.as_ref().is_none_or(|offers| offers.contains(offer)),
            };
            if let Some(domain) = of.domain(spot).filter(|_| counted) {
                let count = counts.pods[*counter].entry(domain).or_default();
                *count = if comes { *count + 1 } else { count.saturating_sub(1) };
            }
        }
    }

    /// Leaves offers that agree on whether they count for whatever the class feeds.
    pub(super) fn settle(&self, class: usize, mask: &mut Bits) {
        for counter in &self.feeds[class] {
            if let Some(offers) = self.counters[*counter].offers.as_ref().filter(|offers| offers.meets(mask)) {
                mask.intersect(offers);
            }
        }
    }

    /// So many nodes of an offer come or go.
    pub(super) fn count_nodes(&self, counts: &mut Counts, offer: usize, number: i64) {
        for index in &self.partial {
            let counter = &self.counters[*index];
            let counted = counter.offers.as_ref().is_none_or(|offers| offers.contains(offer));
            let domain = counter.domains.as_ref().and_then(|domains| domains.of_offer.get(offer).copied().flatten());
            if let Some(domain) = domain.filter(|_| counted) {
                *counts.nodes.entry((*index, domain)).or_default() += number;
            }
        }
    }

    /// Counts without the pods of the plan, and with its nodes.
    pub(super) fn without_pods(&self, problem: &Problem, counts: &Counts) -> Counts {
        Counts { nodes: counts.nodes.clone(), ..self.counts(problem) }
    }

    /// Whether the node of a pod may make a domain for others.
    pub(super) fn is_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Whether a node of one offer in the place of the other changes no constraint of anybody, whoever stands on it.
    pub(super) fn is_same_domain(&self, one: usize, other: usize) -> bool {
        self.partial.is_empty()
            || self.cell_of.get(one) == self.cell_of.get(other)
                && self.partial.iter().all(|counter| {
                    let offers = self.counters[*counter].offers.as_ref();
                    offers.is_none_or(|offers| offers.contains(one) == offers.contains(other))
                })
    }

    /// Whether a pod of the class changes no counter by moving from a node of one offer to one of the other.
    pub(super) fn is_alike(&self, class: usize, one: usize, other: usize) -> bool {
        !self.links(class)
            || self.cell_of.get(one) == self.cell_of.get(other)
                && self.feeds[class].iter().all(|counter| {
                    let offers = self.counters[*counter].offers.as_ref();
                    offers.is_none_or(|offers| offers.contains(one) == offers.contains(other))
                })
    }

    /// Leaves offers that count as `offer` does for whatever the class feeds.
    pub(super) fn keep_alike(&self, class: usize, offer: usize, mask: &mut Bits) {
        for offers in self.feeds[class].iter().filter_map(|counter| self.counters[*counter].offers.as_ref()) {
            if offers.contains(offer) { mask.intersect(offers) } else { mask.subtract(offers) }
        }
    }

    fn counter(&mut self, compiled: &Compiled<'a>, key: &Arc<str>, counted: Counted<'a>) -> usize {
        if let Some(known) = self.counters.iter().position(|one| one.key == *key && one.counted == counted) {
            return known;
        }
        let problem = compiled.problem;
        let known = self.counters.iter().find(|one| one.key == *key).map(|one| one.domains.clone());
        let domains = known.unwrap_or_else(|| (**key != *HOSTNAME).then(|| Arc::new(Domains::new(compiled, key))));
        let (mut of_offers, mut of_nodes) = (None, None);
        if let Counted::Spread { owner, spread } = &counted {
            let class = &problem.classes[*owner];
            // Most constraints look at the same nodes.
            let same = |other: &&Counter<'_>| match &other.counted {
                Counted::Spread { owner, spread: one } => {
                    (one.honor_affinity, one.honor_taints) == (spread.honor_affinity, spread.honor_taints)
                        && look_at_the_same(class, &problem.classes[*owner], spread)
                }
                Counted::Matching(_) | Counted::Owners(_) => false,
            };
            if let Some(known) = self.counters.iter().find(same) {
                (of_offers, of_nodes) = (known.offers.clone(), known.nodes.clone());
            } else {
                let counts = |node: &Node| counts_for(class, spread, node);
                of_offers = Some(Bits::of(compiled.offer_of.len(), |at| counts(&compiled.offer(at).node)));
                of_nodes = Some(Bits::of(problem.nodes.len(), |at| counts(&problem.nodes[at].node)));
            }
        }
        self.counters.push(Counter { counted, key: Arc::clone(key), domains, offers: of_offers, nodes: of_nodes });
        self.counters.len() - 1
    }

    fn spread(&mut self, compiled: &Compiled<'a>, index: usize, spread: &'a Spread) {
        let problem = compiled.problem;
        let class = &problem.classes[index];
        // Classes that look at the same nodes share a counter.
        let same = |other: &Class| class.namespace == other.namespace && look_at_the_same(class, other, spread);
        let owner = self.counters.iter().find_map(|counter| match &counter.counted {
            Counted::Spread { owner, spread: other } => {
                (*other == spread && same(&problem.classes[*owner])).then_some(*owner)
            }
            Counted::Matching(_) | Counted::Owners(_) => None,
        });
        let counted = Counted::Spread { owner: owner.unwrap_or(index), spread };
        let counter = self.counter(compiled, &spread.key, counted);
        let of = &self.counters[counter];
        let mut domains: Vec<Domain> = Vec::new();
        let mut is_partial = false;
        if let Some(all) = &of.domains {
            let nodes = all.of_node.iter().enumerate().filter(|(at, _)| of.counts_node(*at));
            domains.extend(nodes.filter_map(|(_, domain)| *domain));
            let possible = compiled.possible(index);
            domains.extend((0..all.offers.len()).filter(|domain| all.offers[*domain].meets(&possible)));
            domains.sort_unstable();
            domains.dedup();
            // A new node counts by its domain and by what the constraint lets count, large enough for the pod or not.
            let counting = |domain: &Domain| of.offers.as_ref().is_some_and(|of| of.meets(&all.offers[*domain]));
            is_partial = (0..all.offers.len()).filter(counting).any(|domain| domains.binary_search(&domain).is_err());
        }
        if is_partial && !self.partial.contains(&counter) {
            self.partial.push(counter);
        }
        let own = selects(&spread.selector, &class.labels);
        let (max_skew, min_domains) = (spread.max_skew, spread.min_domains);
        self.obeys[index].push(Obey::Spread { counter, max_skew, min_domains, own, domains });
    }

    fn affinity(&mut self, compiled: &Compiled<'a>, index: usize, terms: &'a [PodTerm]) {
        let class = &compiled.problem.classes[index];
        let own = terms.iter().all(|term| term.matches(&class.namespace, &class.labels));
        let counters = terms.iter().map(|term| self.counter(compiled, &term.key, Counted::Matching(terms))).collect();
        self.obeys[index].push(Obey::Affinity { counters, own });
    }

    /// Nobody it selects in its domain when it comes.
    fn keeps_off(&mut self, compiled: &Compiled<'a>, index: usize, term: &'a PodTerm) {
        let matching = self.counter(compiled, &term.key, Counted::Matching(std::slice::from_ref(term)));
        self.obeys[index].push(Obey::Away { counter: matching });
    }

    /// Both directions: nobody it selects in its domain, and it in no domain of anybody who selects it.
    fn anti_affinity(&mut self, compiled: &Compiled<'a>, index: usize, term: &'a PodTerm) {
        self.keeps_off(compiled, index, term);
        let owners = self.counter(compiled, &term.key, Counted::Owners(term));
        for (other, class) in compiled.problem.classes.iter().enumerate() {
            let known =
                self.obeys[other].iter().any(|obey| matches!(obey, Obey::Away { counter } if *counter == owners));
            if !known && term.matches(&class.namespace, &class.labels) {
                self.obeys[other].push(Obey::Away { counter: owners });
            }
        }
    }

    /// Anti-affinity of standing pods whose term no class shares, and the cells.
    fn cut(&mut self, compiled: &Compiled<'a>) {
        let problem = compiled.problem;
        let terms = problem.standing.iter().flat_map(|pod| &pod.anti_affinity).filter(|term| &*term.key != HOSTNAME);
        for term in terms {
            let concerned: Vec<usize> = (0..problem.classes.len())
                .filter(|index| term.matches(&problem.classes[*index].namespace, &problem.classes[*index].labels))
                .collect();
            if concerned.is_empty() {
                continue;
            }
            let counter = self.counter(compiled, &term.key, Counted::Owners(term));
            for index in concerned {
                let known =
                    self.obeys[index].iter().any(|obey| matches!(obey, Obey::Away { counter: one } if *one == counter));
                if !known {
                    self.obeys[index].push(Obey::Away { counter });
                }
            }
        }
        let keys = self.counters.iter().filter_map(|counter| Some((&counter.key, counter.domains.as_ref()?)));
        let mut keys: Vec<_> = keys.collect();
        keys.sort_by_key(|(key, _)| *key);
        keys.dedup_by_key(|(key, _)| *key);
        let mut known: FxHashMap<SmallVec<[Option<Domain>; 4]>, usize> = FxHashMap::default();
        let size = compiled.offer_of.len();
        let (mut cells, mut cell_of): (Vec<Bits>, Vec<usize>) = (Vec::new(), Vec::new());
        for at in 0..size {
            let next = known.len();
            let of = keys.iter().map(|(_, domains)| domains.of_offer[at]).collect();
            let cell = *known.entry(of).or_insert(next);
            if cell == cells.len() {
                cells.push(Bits::none(size));
            }
            cells[cell].insert(at);
            cell_of.push(cell);
        }
        (self.cells, self.cell_of) = (cells, cell_of);
    }
}

impl Counter<'_> {
    fn counts(&self, class: &Class, problem: &Problem) -> bool {
        match &self.counted {
            Counted::Spread { owner, spread } => {
                class.namespace == problem.classes[*owner].namespace && selects(&spread.selector, &class.labels)
            }
            Counted::Matching(terms) => terms.iter().all(|term| term.matches(&class.namespace, &class.labels)),
            Counted::Owners(term) => anti_terms(class).any(|own| own == *term),
        }
    }

    fn counts_standing(&self, pod: &Standing, problem: &Problem) -> bool {
        match &self.counted {
            Counted::Spread { owner, spread } => {
                pod.namespace == problem.classes[*owner].namespace && selects(&spread.selector, &pod.labels)
            }
            Counted::Matching(terms) => terms.iter().all(|term| term.matches(&pod.namespace, &pod.labels)),
            Counted::Owners(term) => pod.anti_affinity.contains(*term),
        }
    }

    fn counts_node(&self, index: usize) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.contains(index))
    }

    fn domain(&self, spot: Spot) -> Option<Domain> {
        let Some(domains) = &self.domains else { return Some(spot.slot) };
        match spot.kind {
            Kind::Existing(existing) => domains.of_node.get(existing),
            Kind::Offer(offer) => domains.of_offer.get(offer),
        }
        .copied()
        .flatten()
    }
}

impl Domains {
    fn new(compiled: &Compiled<'_>, key: &str) -> Self {
        let mut values: BTreeMap<Arc<str>, Domain> = BTreeMap::new();
        let mut domain = |node: &Node| {
            let value = node.labels.get(key)?;
            let next = values.len();
            Some(*values.entry(Arc::clone(value)).or_insert(next))
        };
        let of_node = compiled.problem.nodes.iter().map(|one| domain(&one.node)).collect();
        let size = compiled.offer_of.len();
        let of_offer: Vec<Option<Domain>> = (0..size).map(|at| domain(&compiled.offer(at).node)).collect();
        let mut offers = vec![Bits::none(size); values.len()];
        for (at, domain) in of_offer.iter().enumerate() {
            if let Some(domain) = domain {
                offers[*domain].insert(at);
            }
        }
        Self { of_offer, of_node, offers }
    }
}

impl Counts {
    fn of(&self, counter: usize, domain: Domain) -> u32 {
        self.pods[counter].get(&domain).copied().unwrap_or(0)
    }
}

/// The keys that a node must carry to count for any spread constraint of the class: those of required ones.
fn keys(class: &Class) -> impl Iterator<Item = &Arc<str>> {
    class.rules.iter().filter_map(|rule| match rule {
        Rule::Spread(spread) => Some(&spread.key),
        Rule::Affinity(_) | Rule::AntiAffinity(_) => None,
    })
}

/// Whether the same nodes count for a constraint of both classes.
fn look_at_the_same(one: &Class, other: &Class, spread: &Spread) -> bool {
    let (class, with) = (&one.shape, &other.shape);
    keys(one).eq(keys(other))
        && (!spread.honor_affinity
            || (&class.node_selector, &class.node_affinity) == (&with.node_selector, &with.node_affinity))
        && (!spread.honor_taints || class.tolerations == with.tolerations)
}

/// Whether a node counts for a spread constraint of the class. Every node has a hostname by the time it is asked.
pub(super) fn counts_for(class: &Class, spread: &Spread, node: &Node) -> bool {
    keys(class).all(|key| &**key == HOSTNAME || node.labels.contains_key(key))
        && (!spread.honor_affinity || fit::selected_by(&class.shape, node))
        && (!spread.honor_taints || fit::tolerates_all(&class.shape, node))
}
