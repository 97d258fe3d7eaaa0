//! Whether kube-scheduler's topology filters accept every pod of a finished plan on its node, in the order of the pods, those
//! refused again and again until nobody moves. For small plans: everything is looked at each time.
//!
//! Hostname spread is judged by its real minimum here, over all hosts of the plan that count; a search that takes that minimum
//! as 0 finds valid plans, and not always the best.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::node::Node;

use super::compile::{Compiled, HOSTNAME, anti_terms};
use super::problem::{Class, PodTerm, Rule, Spread, selects};
use super::topology::counts_for;

/// Which pods count for a rule: of the plan by class, and those that stand.
#[derive(Debug)]
struct Matched {
    classes: Vec<bool>,
    standing: Vec<bool>,
}

/// A rule with whom it counts.
#[derive(Debug)]
enum Filter<'p> {
    Spread {
        spread: &'p Spread,
        own: bool,
        counted: Matched,
        offered: Vec<&'p str>,
    },
    Affinity {
        terms: &'p [PodTerm],
        own: bool,
        counted: Matched,
    },
    Away {
        key: &'p Arc<str>,
        counted: Matched,
        /// Whether nobody may come there later either.
        lasts: bool,
    },
    /// The anti-affinity of others that select the class.
    KeptAway {
        key: &'p Arc<str>,
        counted: Matched,
    },
}

/// The topology constraints of a problem.
#[derive(Debug)]
pub(super) struct Judge<'c, 'p> {
    compiled: &'c Compiled<'p>,
    /// `[class]`.
    filters: Vec<Vec<Filter<'p>>>,
    /// Classes with a spread constraint, each with it.
    spreads: Vec<(&'p Class, &'p Spread)>,
}

/// A pod of a plan: its class, and its node by number: those that exist first, then new ones.
pub(super) type Placed = (usize, usize);

impl<'c, 'p> Judge<'c, 'p> {
    pub(super) fn new(compiled: &'c Compiled<'p>) -> Self {
        let problem = compiled.problem;
        let filters = problem.classes.iter().enumerate().map(|(index, class)| filters(compiled, index, class));
        let spreads = problem.classes.iter().flat_map(|class| {
            class.all_rules().filter_map(move |rule| match rule {
                Rule::Spread(spread) => Some((class, spread)),
                Rule::Affinity(_) | Rule::AntiAffinity(_) => None,
            })
        });
        Self { compiled, filters: filters.collect(), spreads: spreads.collect() }
    }

    /// Whether any constraint depends on where other pods are.
    pub(super) fn is_needed(&self) -> bool {
        self.filters.iter().any(|filters| !filters.is_empty())
    }

    /// For which spread constraints a node counts: nodes that differ in it are no alternatives of each other.
    pub(super) fn counting(&self, node: &Node) -> Vec<bool> {
        self.spreads.iter().map(|(class, spread)| counts_for(class, spread, node)).collect()
    }

    /// Whether every pod comes to stand where the plan has it. `new` are the nodes to come.
    pub(super) fn holds(&self, new: &[&Node], pods: &[Placed]) -> bool {
        let mut seen: Vec<Placed> = Vec::with_capacity(pods.len());
        let mut waiting = pods.to_vec();
        while !waiting.is_empty() {
            let before = waiting.len();
            waiting.retain(|(class, node)| {
                let comes = self.allows(*class, *node, new, &seen);
                if comes {
                    seen.push((*class, *node));
                }
                !comes
            });
            if waiting.len() == before {
                return false;
            }
        }
        // Anti-affinity is looked at once more, between all of them.
        (0..pods.len()).all(|at| {
            let others: Vec<Placed> =
                pods.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, one)| *one).collect();
            let (class, node) = pods[at];
            self.filters[class].iter().all(|filter| match filter {
                Filter::Away { key, counted, lasts: true } | Filter::KeptAway { key, counted } => {
                    !self.shares(key, counted, node, new, &others)
                }
                Filter::Away { .. } | Filter::Spread { .. } | Filter::Affinity { .. } => true,
            })
        })
    }

    /// Whether a pod of the class may come to a node beside those that are there.
    pub(super) fn allows(&self, class: usize, node: usize, new: &[&Node], seen: &[Placed]) -> bool {
        self.filters[class].iter().all(|filter| match filter {
            Filter::Away { key, counted, .. } | Filter::KeptAway { key, counted } => {
                !self.shares(key, counted, node, new, seen)
            }
            Filter::Affinity { terms, own, counted } => {
                let anywhere = |term: &&PodTerm| {
                    self.counted_nodes(counted, seen).any(|other| self.domain(&term.key, other, new).is_some())
                };
                let first = *own && !terms.iter().any(|term| anywhere(&term));
                terms.iter().all(|term| {
                    let here = self.domain(&term.key, node, new);
                    here.is_some() && (first || self.shares(&term.key, counted, node, new, seen))
                })
            }
            Filter::Spread { spread, own, counted, offered } => {
                self.within_skew(&self.compiled.problem.classes[class], spread, *own, counted, offered, node, new, seen)
            }
        })
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one filter, and where it is asked")]
    fn within_skew(
        &self,
        class: &Class,
        spread: &Spread,
        own: bool,
        counted: &Matched,
        offered: &[&str],
        node: usize,
        new: &[&Node],
        seen: &[Placed],
    ) -> bool {
        let Some(here) = self.domain(&spread.key, node, new) else { return false };
        let mut domains: FxHashMap<Domain<'_>, u32> = offered.iter().map(|value| (Domain::Value(value), 0)).collect();
        let existing = self.compiled.problem.nodes.len();
        for other in (0..existing + new.len()).filter(|other| counts_for(class, spread, self.node(*other, new))) {
            if let Some(domain) = self.domain(&spread.key, other, new) {
                domains.entry(domain).or_default();
            }
        }
        for other in self.counted_nodes(counted, seen) {
            if !counts_for(class, spread, self.node(other, new)) {
                continue;
            }
            let domain = self.domain(&spread.key, other, new);
            if let Some(count) = domain.and_then(|domain| domains.get_mut(&domain)) {
                *count += 1;
            }
        }
        let empty = self.compiled.problem.hosts_come && &*spread.key == HOSTNAME;
        let enough = domains.len() >= spread.min_domains as usize && !empty;
        let least = domains.values().min().copied().filter(|_| enough).unwrap_or(0);
        let there = domains.get(&here).copied().unwrap_or(0);
        (there + u32::from(own)).saturating_sub(least) <= spread.max_skew
    }

    /// Whether a pod that counts stands in the domain of the node.
    fn shares(&self, key: &str, counted: &Matched, node: usize, new: &[&Node], seen: &[Placed]) -> bool {
        let here = self.domain(key, node, new);
        here.is_some() && self.counted_nodes(counted, seen).any(|other| self.domain(key, other, new) == here)
    }

    /// The nodes of all pods that count.
    fn counted_nodes<'s>(&'s self, counted: &'s Matched, seen: &'s [Placed]) -> impl Iterator<Item = usize> + 's {
        let standing = self.compiled.problem.standing.iter().zip(&counted.standing);
        let standing = standing.filter(|(_, counts)| **counts).map(|(pod, _)| pod.node);
        standing.chain(seen.iter().filter(|(class, _)| counted.classes[*class]).map(|(_, node)| *node))
    }

    fn node<'n>(&self, index: usize, new: &[&'n Node]) -> &'n Node
    where
        'p: 'n,
    {
        let problem = self.compiled.problem;
        problem.nodes.get(index).map_or_else(|| new[index - problem.nodes.len()], |one| &*one.node)
    }

    fn domain<'n>(&self, key: &str, index: usize, new: &[&'n Node]) -> Option<Domain<'n>>
    where
        'p: 'n,
    {
        if key == HOSTNAME {
            return Some(Domain::Host(index));
        }
        self.node(index, new).labels.get(key).map(|value| Domain::Value(value))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Domain<'n> {
    Host(usize),
    Value(&'n str),
}

type Labels = std::collections::BTreeMap<Arc<str>, Arc<str>>;

fn filters<'p>(compiled: &Compiled<'p>, index: usize, class: &'p Class) -> Vec<Filter<'p>> {
    let problem = compiled.problem;
    let matched = |of: &dyn Fn(&str, &Labels) -> bool, deleting: bool| Matched {
        classes: problem.classes.iter().map(|other| of(&other.namespace, &other.labels)).collect(),
        standing: problem
            .standing
            .iter()
            .map(|pod| (deleting || !pod.deleting) && of(&pod.namespace, &pod.labels))
            .collect(),
    };
    let mut filters: Vec<Filter<'p>> = Vec::new();
    for (number, rule) in class.all_rules().enumerate() {
        filters.push(match rule {
            Rule::Spread(spread) => {
                let counted = matched(
                    &|namespace, labels| namespace == &*class.namespace && selects(&spread.selector, labels),
                    false,
                );
                let possible = compiled.possible(index);
                let offers = possible.iter().map(|at| compiled.offer(at));
                let values = offers.filter_map(|offer| offer.node.labels.get(&spread.key));
                let mut offered: Vec<&str> =
                    if &*spread.key == HOSTNAME { Vec::new() } else { values.map(|value| &**value).collect() };
                offered.sort_unstable();
                offered.dedup();
                Filter::Spread { spread, own: selects(&spread.selector, &class.labels), counted, offered }
            }
            Rule::Affinity(terms) => {
                let all = |namespace: &str, labels: &std::collections::BTreeMap<Arc<str>, Arc<str>>| {
                    terms.iter().all(|term| term.matches(namespace, labels))
                };
                let counted = matched(&all, true);
                Filter::Affinity { terms, own: all(&class.namespace, &class.labels), counted }
            }
            Rule::AntiAffinity(term) => {
                let counted = matched(&|space, labels| term.matches(space, labels), true);
                Filter::Away { key: &term.key, counted, lasts: number < class.rules.len() }
            }
        });
    }
    let mut keys: Vec<&'p Arc<str>> = Vec::new();
    let standing = problem.standing.iter().flat_map(|pod| &pod.anti_affinity);
    for term in problem.classes.iter().flat_map(anti_terms).chain(standing) {
        if term.matches(&class.namespace, &class.labels) && !keys.contains(&&term.key) {
            keys.push(&term.key);
        }
    }
    for key in keys {
        let keeps = |term: &PodTerm| term.key == *key && term.matches(&class.namespace, &class.labels);
        let counted = Matched {
            classes: problem.classes.iter().map(|other| anti_terms(other).any(keeps)).collect(),
            standing: problem.standing.iter().map(|pod| pod.anti_affinity.iter().any(keeps)).collect(),
        };
        filters.push(Filter::KeptAway { key, counted });
    }
    filters
}

/// Whether a new pod fits what is left of a node that exists.
pub(super) fn fits_existing(
    compiled: &Compiled<'_>,
    class: usize,
    node: usize,
    load: &[i64],
    counts: &[(usize, u32)],
) -> bool {
    let enough = compiled
        .need(class, counts, Some(node))
        .iter()
        .zip(load)
        .zip(&compiled.free[node])
        .all(|((need, load), free)| *need <= 0 || need.saturating_add(*load) <= *free);
    enough && compiled.open[class].contains(node) && compiled.apart_from(class, counts)
}
