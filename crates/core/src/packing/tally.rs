//! What topology constraints count, kept up to date pod by pod, so that checking a plan takes no longer than making it.
//! The search has its own counts; the checker uses nothing of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fit;
use crate::model::node::Node;
use crate::model::pod::{SelectorTerm, Toleration};

use super::problem::{Class, Place, Plan, PodTerm, Problem, Rule, Spread, selects};

const HOSTNAME: &str = "kubernetes.io/hostname";

type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// The domains of one key, as numbers. Every node is its own domain of the hostname; offers have none of that, and `of_offer` is empty.
#[derive(Default)]
struct Domains {
    of_node: Vec<Option<usize>>,
    of_offer: Vec<Option<usize>>,
    count: usize,
}

/// Which pods a counter counts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Counted<'p> {
    /// Those that the term matches.
    Matching(&'p PodTerm),
    /// Those that have the term as required anti-affinity.
    Avoiding(&'p PodTerm),
    /// Those that all terms match, by the key of one of them.
    MatchingAll(&'p [PodTerm], usize),
    /// Those that a spread constraint counts.
    Spread(Scope<'p>),
}

impl<'p> Counted<'p> {
    fn key(&self) -> &'p str {
        match self {
            Self::Matching(term) | Self::Avoiding(term) => &term.key,
            Self::MatchingAll(terms, at) => &terms[*at].key,
            Self::Spread(scope) => &scope.spread.key,
        }
    }
}

/// A spread constraint of pods that select and tolerate the same nodes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Scope<'p> {
    spread: &'p Spread,
    namespace: &'p str,
    /// Keys of all required spread constraints of the pod: only nodes that have each count.
    keys: Vec<&'p str>,
    node_selector: &'p Labels,
    node_affinity: Option<&'p [SelectorTerm]>,
    tolerations: &'p [Toleration],
}

/// Pods by domain.
struct Counter<'p> {
    counted: Counted<'p>,
    pods: Vec<u32>,
    /// In all of them.
    all: u32,
    /// For a spread constraint: nodes that count, and domains that one of them is in.
    eligible: Option<(Vec<bool>, Vec<bool>)>,
}

/// Counters that count a pod for its namespace and labels, and those of anti-affinity that excludes it.
type Matched = (Vec<usize>, Vec<usize>);

/// A class by what it asks, as indices of counters.
struct Asked<'p> {
    counted_by: Vec<usize>,
    /// Terms of others that may stand against it.
    avoided_by: Vec<usize>,
    rules: Vec<Question<'p>>,
}

enum Question<'p> {
    AntiAffinity { counter: usize, own: u32, required: bool },
    Affinity { counters: Vec<usize>, own: bool },
    Spread { counter: usize, spread: &'p Spread, own: u32, launchable: Vec<usize> },
}

/// A kind of topology constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Constraint {
    Spread,
    Affinity,
    AntiAffinity,
}

/// Where a pod would stand, as one counter has it.
enum Stands {
    /// In no domain.
    InNone,
    /// In one of its own, which holds nobody.
    OnNewHost,
    In(usize),
}

/// Pods that stand, as all constraints count them.
pub(super) struct Tally<'p> {
    domains: BTreeMap<&'p str, Domains>,
    counters: Vec<Counter<'p>>,
    classes: Vec<Asked<'p>>,
    hosts_come: bool,
}

impl<'p> Tally<'p> {
    /// Counts what stands before the plan.
    pub(super) fn new(problem: &'p Problem, plan: &'p Plan) -> Self {
        let new = plan.nodes.iter().map(|node| &*problem.offers[node.offer].node);
        let nodes: Vec<&'p Node> = problem.nodes.iter().map(|one| &*one.node).chain(new).collect();
        let mut known: BTreeMap<Counted<'p>, usize> = BTreeMap::new();
        let mut number = |counted: Counted<'p>| {
            let next = known.len();
            *known.entry(counted).or_insert(next)
        };
        for term in problem.standing.iter().flat_map(|pod| &pod.anti_affinity) {
            number(Counted::Avoiding(term));
        }
        let mut rules: Vec<Vec<Question<'p>>> =
            problem.classes.iter().map(|class| questions(class, &mut number)).collect();
        let mut counters: Vec<(usize, Counted<'p>)> =
            known.into_iter().map(|(counted, number)| (number, counted)).collect();
        counters.sort_by_key(|(number, _)| *number);
        let mut domains = BTreeMap::new();
        for (_, counted) in &counters {
            domains.entry(counted.key()).or_insert_with(|| domains_of(counted.key(), problem, &nodes));
        }
        let counters: Vec<Counter<'p>> =
            counters.into_iter().map(|(_, counted)| counter(counted, &domains, &nodes)).collect();
        for (class, rules) in problem.classes.iter().zip(&mut rules) {
            for rule in rules {
                if let Question::Spread { spread, launchable, .. } = rule {
                    *launchable = launchable_domains(class, &domains[&*spread.key], problem);
                }
            }
        }
        let mut groups: BTreeMap<(&str, &Labels), Matched> = BTreeMap::new();
        let mut classes = Vec::with_capacity(problem.classes.len());
        for (class, rules) in problem.classes.iter().zip(rules) {
            let group = (&*class.namespace, &class.labels);
            let (matched, avoided_by) =
                groups.entry(group).or_insert_with(|| matched(&counters, &class.namespace, &class.labels)).clone();
            let terms = class.rules.iter().filter_map(|rule| match rule {
                Rule::AntiAffinity(term) => Some(term),
                Rule::Spread(_) | Rule::Affinity(_) => None,
            });
            let counted_by = counted_by(&counters, matched, terms);
            classes.push(Asked { counted_by, avoided_by, rules });
        }
        let mut tally = Self { domains, counters, classes, hosts_come: problem.hosts_come };
        for pod in &problem.standing {
            let (matched, _) = matched(&tally.counters, &pod.namespace, &pod.labels);
            let counted_by = counted_by(&tally.counters, matched, pod.anti_affinity.iter());
            tally.count(&counted_by, pod.node, pod.deleting);
        }
        tally
    }

    /// Counts what stands and whom the plan places, wherever that is.
    pub(super) fn with_all(problem: &'p Problem, plan: &'p Plan) -> Self {
        let mut tally = Self::new(problem, plan);
        for (pod, place) in plan.places.iter().enumerate() {
            let kind = &problem.kinds[problem.pods[pod]];
            match place {
                Place::None => {}
                Place::Existing(node) => tally.add(problem.class_on(kind, *node, plan.relaxed[pod]), *node),
                Place::New(node) => tally.add(kind[plan.relaxed[pod]], problem.nodes.len() + node),
            }
        }
        tally
    }

    /// One more pod of the class stands on the node.
    pub(super) fn add(&mut self, class: usize, node: usize) {
        let counted_by = std::mem::take(&mut self.classes[class].counted_by);
        self.count(&counted_by, node, false);
        self.classes[class].counted_by = counted_by;
    }

    fn count(&mut self, counters: &[usize], node: usize, deleting: bool) {
        for index in counters {
            let counter = &mut self.counters[*index];
            let ignored = counter.eligible.as_ref().is_some_and(|(nodes, _)| deleting || !nodes[node]);
            let domain = self.domains[counter.counted.key()].of_node[node];
            if let Some(domain) = domain.filter(|_| !ignored) {
                counter.pods[domain] += 1;
                counter.all += 1;
            }
        }
    }

    fn domain(&self, counter: usize, node: usize) -> Option<usize> {
        self.domains[self.counters[counter].counted.key()].of_node[node]
    }

    fn pods(&self, counter: usize, node: usize) -> u32 {
        self.domain(counter, node).map_or(0, |domain| self.counters[counter].pods[domain])
    }

    /// Whether kube-scheduler's filters for topology accept a pod of the class on the node, beside those that stand.
    pub(super) fn allows(&self, class: usize, node: usize) -> bool {
        self.refuses(class, |counter| self.domain(counter, node).map_or(Stands::InNone, Stands::In)).is_none()
    }

    /// What keeps a pod of the class from one more new node of the offer, beside those that stand.
    pub(super) fn refuses_new(&self, class: usize, offer: usize) -> Option<Constraint> {
        self.refuses(class, |counter| match self.counters[counter].counted.key() {
            HOSTNAME => Stands::OnNewHost,
            key => self.domains[key].of_offer[offer].map_or(Stands::InNone, Stands::In),
        })
    }

    /// What keeps a pod of the class from where it would stand, as each counter has it.
    fn refuses(&self, class: usize, stands: impl Fn(usize) -> Stands) -> Option<Constraint> {
        let pods = |counter: usize| match stands(counter) {
            Stands::In(domain) => self.counters[counter].pods[domain],
            Stands::InNone | Stands::OnNewHost => 0,
        };
        let asked = &self.classes[class];
        if asked.avoided_by.iter().any(|counter| pods(*counter) > 0) {
            return Some(Constraint::AntiAffinity);
        }
        asked.rules.iter().find_map(|rule| match rule {
            Question::AntiAffinity { counter, .. } => (pods(*counter) > 0).then_some(Constraint::AntiAffinity),
            Question::Affinity { counters, own } => {
                let first = *own && self.counts_nobody(counters);
                let shares = |counter: &usize| match stands(*counter) {
                    Stands::InNone => false,
                    Stands::In(_) | Stands::OnNewHost => first || pods(*counter) > 0,
                };
                (!counters.iter().all(shares)).then_some(Constraint::Affinity)
            }
            Question::Spread { counter, spread, own, launchable } => {
                let within = match stands(*counter) {
                    Stands::InNone => false,
                    Stands::In(here) => self.within_skew(*counter, spread, *own, launchable, here),
                    // The least that any host holds is nothing then.
                    Stands::OnNewHost => *own <= spread.max_skew,
                };
                (!within).then_some(Constraint::Spread)
            }
        })
    }

    fn counts_nobody(&self, counters: &[usize]) -> bool {
        counters.iter().all(|counter| self.counters[*counter].all == 0)
    }

    fn within_skew(&self, counter: usize, spread: &Spread, own: u32, launchable: &[usize], here: usize) -> bool {
        let Counter { pods, eligible, .. } = &self.counters[counter];
        let counts = |domain: &usize| eligible.as_ref().is_none_or(|(_, domains)| domains[*domain]);
        let of_nodes = (0..pods.len()).filter(counts);
        // A domain that can be launched into counts before it has a node.
        let others = launchable.iter().copied().filter(|domain| !counts(domain));
        let (mut domains, mut least) = (0_u32, u32::MAX);
        for domain in of_nodes.chain(others) {
            (domains, least) = (domains + 1, least.min(pods[domain]));
        }
        let empty = self.hosts_come && &*spread.key == HOSTNAME;
        let least = if domains >= spread.min_domains && domains > 0 && !empty { least } else { 0 };
        (pods[here] + own).saturating_sub(least) <= spread.max_skew
    }

    /// Whether a pod that stands on the node shares a domain with another one that its required anti-affinity excludes.
    pub(super) fn is_beside_excluded(&self, class: usize, node: usize) -> bool {
        self.classes[class].rules.iter().any(|rule| match rule {
            Question::AntiAffinity { counter, own, required } => *required && self.pods(*counter, node) > *own,
            Question::Affinity { .. } | Question::Spread { .. } => false,
        })
    }
}

fn questions<'p>(class: &'p Class, number: &mut impl FnMut(Counted<'p>) -> usize) -> Vec<Question<'p>> {
    let keys = class.rules.iter().filter_map(|rule| match rule {
        Rule::Spread(spread) => Some(&*spread.key),
        Rule::Affinity(_) | Rule::AntiAffinity(_) => None,
    });
    let keys: Vec<&str> = keys.collect();
    let required = class.rules.iter().map(|rule| (rule, true));
    let all = required.chain(class.preferred.iter().map(|rule| (rule, false)));
    let question = |(rule, required): (&'p Rule, bool)| match rule {
        Rule::AntiAffinity(term) => {
            if required {
                number(Counted::Avoiding(term));
            }
            let own = u32::from(term.matches(&class.namespace, &class.labels));
            Question::AntiAffinity { counter: number(Counted::Matching(term)), own, required }
        }
        Rule::Affinity(terms) => Question::Affinity {
            counters: (0..terms.len()).map(|at| number(Counted::MatchingAll(terms, at))).collect(),
            own: terms.iter().all(|term| term.matches(&class.namespace, &class.labels)),
        },
        Rule::Spread(spread) => {
            let scope = Scope {
                spread,
                namespace: &class.namespace,
                keys: keys.clone(),
                node_selector: &class.shape.node_selector,
                node_affinity: class.shape.node_affinity.as_deref(),
                tolerations: &class.shape.tolerations,
            };
            let own = u32::from(selects(&spread.selector, &class.labels));
            Question::Spread { counter: number(Counted::Spread(scope)), spread, own, launchable: Vec::new() }
        }
    };
    all.map(question).collect()
}

fn domains_of(key: &str, problem: &Problem, nodes: &[&Node]) -> Domains {
    if key == HOSTNAME {
        let of_node = (0..nodes.len()).map(Some).collect();
        return Domains { of_node, of_offer: Vec::new(), count: nodes.len() };
    }
    let mut values: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    let mut domain = |node: &Node| {
        let value = node.labels.get(key)?;
        let next = values.len();
        Some(*values.entry(Arc::clone(value)).or_insert(next))
    };
    let of_node = nodes.iter().map(|node| domain(node)).collect();
    let of_offer = problem.offers.iter().map(|offer| domain(&offer.node)).collect();
    Domains { of_node, of_offer, count: values.len() }
}

fn counter<'p>(counted: Counted<'p>, domains: &BTreeMap<&str, Domains>, nodes: &[&Node]) -> Counter<'p> {
    let domains = &domains[counted.key()];
    let eligible = match &counted {
        Counted::Spread(scope) => {
            let shape = crate::model::pod::Shape {
                node_selector: scope.node_selector.clone(),
                node_affinity: scope.node_affinity.map(<[_]>::to_vec),
                tolerations: scope.tolerations.to_vec(),
                ..crate::model::pod::Shape::default()
            };
            let eligible = |node: &&Node| {
                scope.keys.iter().all(|key| *key == HOSTNAME || node.labels.contains_key(*key))
                    && (!scope.spread.honor_affinity || fit::selected_by(&shape, node))
                    && (!scope.spread.honor_taints || fit::tolerates_all(&shape, node))
            };
            let nodes: Vec<bool> = nodes.iter().map(eligible).collect();
            let mut inhabited = vec![false; domains.count];
            for domain in nodes.iter().zip(&domains.of_node).filter_map(|(node, domain)| domain.filter(|_| *node)) {
                inhabited[domain] = true;
            }
            Some((nodes, inhabited))
        }
        Counted::Matching(_) | Counted::Avoiding(_) | Counted::MatchingAll(..) => None,
    };
    Counter { counted, pods: vec![0; domains.count], all: 0, eligible }
}

/// Domains of offers that hold the pod: with every label that it is spread over, or that it has to share with others.
fn launchable_domains(class: &Class, domains: &Domains, problem: &Problem) -> Vec<usize> {
    let mut found = vec![false; domains.count];
    let alone = class.beside(None);
    let labelled = |node: &Node| {
        let has = |key: &str| key == HOSTNAME || node.labels.contains_key(key);
        class.rules.iter().all(|rule| match rule {
            Rule::Spread(spread) => has(&spread.key),
            Rule::Affinity(terms) => terms.iter().all(|term| has(&term.key)),
            Rule::AntiAffinity(_) => true,
        })
    };
    if !class.existing_only {
        let mut left = domains.count;
        for (offer, domain) in problem.offers.iter().zip(&domains.of_offer) {
            let Some(domain) = domain.filter(|domain| !found[*domain]) else { continue };
            found[domain] = !class.is_kept_off(offer)
                && labelled(&offer.node)
                && fit::fits(&alone, &offer.node, &offer.overhead).is_ok();
            left -= usize::from(found[domain]);
            if left == 0 {
                break;
            }
        }
    }
    (0..domains.count).filter(|domain| found[*domain]).collect()
}

/// Which counters count a pod for its namespace and labels, and by whose anti-affinity it is excluded.
fn matched(counters: &[Counter<'_>], namespace: &str, labels: &Labels) -> Matched {
    let (mut counting, mut avoiding) = (Vec::new(), Vec::new());
    for (index, counter) in counters.iter().enumerate() {
        match &counter.counted {
            Counted::Matching(term) if term.matches(namespace, labels) => counting.push(index),
            Counted::Avoiding(term) if term.matches(namespace, labels) => avoiding.push(index),
            Counted::MatchingAll(terms, _) if terms.iter().all(|term| term.matches(namespace, labels)) => {
                counting.push(index);
            }
            Counted::Spread(scope) if scope.namespace == namespace && selects(&scope.spread.selector, labels) => {
                counting.push(index);
            }
            _ => {}
        }
    }
    (counting, avoiding)
}

/// Which counters count a pod, with the terms that it has itself.
fn counted_by<'p>(
    counters: &[Counter<'p>],
    mut matched: Vec<usize>,
    terms: impl Iterator<Item = &'p PodTerm>,
) -> Vec<usize> {
    let terms: Vec<&PodTerm> = terms.collect();
    if !terms.is_empty() {
        let own = |counter: &Counter<'_>| matches!(counter.counted, Counted::Avoiding(term) if terms.contains(&term));
        matched.extend((0..counters.len()).filter(|index| own(&counters[*index])));
    }
    matched
}
