//! Pods of no gang as classes of the packing planner: topology constraints, and preferences in the order in which they are
//! dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use muster_core::model::pod::{Operator, Requirement, SelectorTerm, Shape};
use muster_core::ordinary::constraints_digest;
use muster_core::packing::{Class, PodTerm, Rule, Spread, selects};

use super::constraints::{self, Unmodelled};
use super::selectors;

/// Labels of namespaces, by name. One that is absent has none but its name.
pub type Namespaces = BTreeMap<Arc<str>, BTreeMap<Arc<str>, Arc<str>>>;

/// Such a spread constraint is only preferred.
const SCHEDULE_ANYWAY: &str = "ScheduleAnyway";
/// The label that every namespace has.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// What kind of preference it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// A preferred term of pod affinity.
    PodAffinity,
    /// A preferred term of pod anti-affinity.
    PodAntiAffinity,
    /// A preferred term of node affinity.
    NodeAffinity,
    /// A spread constraint with `ScheduleAnyway`.
    TopologySpread,
    /// Taints with the effect `PreferNoSchedule`.
    Taint,
}

/// One preference, and what it is if it is kept.
#[derive(Clone, Debug)]
pub struct Preference {
    /// What kind.
    pub what: What,
    /// Its place in the pod's list of that kind.
    pub index: usize,
    /// Its weight, where it has one.
    pub weight: Option<i32>,
    kept: Kept,
}

#[derive(Clone, Debug)]
enum Kept {
    Rule(Rule),
    Selection(SelectorTerm),
    SoftTaints,
}

/// A pod as the packing planner sees it.
#[derive(Clone, Debug)]
pub struct Kind {
    /// What is required.
    pub required: Class,
    /// Preferences in the order in which they are dropped.
    pub preferences: Vec<Preference>,
}

impl Kind {
    /// The class with all but the first `dropped` preferences kept.
    #[must_use]
    pub fn class(&self, dropped: usize) -> Class {
        let mut class = self.required.clone();
        for preference in self.preferences.iter().skip(dropped) {
            match &preference.kept {
                Kept::Rule(rule) => class.preferred.push(rule.clone()),
                Kept::SoftTaints => class.heeds_soft_taints = true,
                Kept::Selection(term) => class.preferred_nodes.push(term.clone()),
            }
        }
        class
    }
}

/// Reads a pod whose shape is known. `soft_taints` says whether any node or pool has a taint that is only preferred.
#[must_use]
pub fn kind(pod: &k8s::Pod, shape: &Shape, namespaces: &Namespaces, soft_taints: bool) -> Kind {
    let (empty, no_labels) = (k8s::PodSpec::default(), BTreeMap::new());
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let labels = pod.metadata.labels.as_ref().unwrap_or(&no_labels);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut shape = shape.clone();
    shape.one_per_node = false;
    shape.unsupported.clear();
    let rules = required(pod, namespaces);
    let required =
        Class { shape, namespace: namespace.into(), labels: super::shared(Some(labels)), rules, ..Class::default() };
    let mut preferences = Vec::new();
    let mut prefer = |what: What, index: usize, weight: Option<i32>, kept: Kept| {
        preferences.push(Preference { what, index, weight, kept });
    };
    let affinity = spec.affinity.as_ref();
    let term = |one: &k8s::PodAffinityTerm| pod_term(one, namespace, labels, namespaces);
    if let Some(affinity) = affinity.and_then(|affinity| affinity.pod_affinity.as_ref()) {
        for (index, one) in affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten().enumerate() {
            let kept = Kept::Rule(Rule::Affinity(vec![term(&one.pod_affinity_term)]));
            prefer(What::PodAffinity, index, Some(one.weight), kept);
        }
    }
    if let Some(affinity) = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref()) {
        for (index, one) in affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten().enumerate() {
            let kept = Kept::Rule(Rule::AntiAffinity(term(&one.pod_affinity_term)));
            prefer(What::PodAntiAffinity, index, Some(one.weight), kept);
        }
    }
    if let Some(affinity) = affinity.and_then(|affinity| affinity.node_affinity.as_ref()) {
        for (index, one) in affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten().enumerate() {
            let selector = k8s::NodeSelector { node_selector_terms: vec![one.preference.clone()] };
            // A term without requirements prefers nothing.
            if let Some(term) = selectors::terms(&selector).pop().filter(|term| *term != SelectorTerm::default()) {
                prefer(What::NodeAffinity, index, Some(one.weight), Kept::Selection(term));
            }
        }
    }
    for (index, one) in spec.topology_spread_constraints.iter().flatten().enumerate() {
        if one.when_unsatisfiable == SCHEDULE_ANYWAY {
            prefer(What::TopologySpread, index, None, Kept::Rule(Rule::Spread(spread(one, labels))));
        }
    }
    if soft_taints {
        prefer(What::Taint, 0, None, Kept::SoftTaints);
    }
    // By kind, each by weight, the lightest first.
    preferences.sort_by_key(|one| (one.what, one.weight, one.index));
    Kind { required, preferences }
}

/// Topology constraints that a pod cannot do without: affinity, anti-affinity, spread.
fn required(pod: &k8s::Pod, namespaces: &Namespaces) -> Vec<Rule> {
    let (no_labels, spec) = (BTreeMap::new(), pod.spec.as_ref());
    let labels = pod.metadata.labels.as_ref().unwrap_or(&no_labels);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let near: Vec<PodTerm> = affinity_terms(pod).map(|term| pod_term(term, namespace, labels, namespaces)).collect();
    let mut rules = Vec::new();
    if !near.is_empty() {
        rules.push(Rule::Affinity(near));
    }
    rules.extend(anti_affinity(pod, namespaces).into_iter().map(Rule::AntiAffinity));
    let spreads = spec.and_then(|spec| spec.topology_spread_constraints.as_ref()).into_iter().flatten();
    let spreads = spreads.filter(|one| one.when_unsatisfiable != SCHEDULE_ANYWAY);
    rules.extend(spreads.map(|one| Rule::Spread(spread(one, labels))));
    rules
}

fn affinity_terms(pod: &k8s::Pod) -> impl Iterator<Item = &k8s::PodAffinityTerm> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.pod_affinity.as_ref());
    let terms = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    terms.into_iter().flatten()
}

fn anti_affinity_terms(pod: &k8s::Pod) -> impl Iterator<Item = &k8s::PodAffinityTerm> {
    pod.spec.iter().flat_map(constraints::anti_affinity_terms)
}

/// A digest of the topology constraints that a pod cannot do without, and of those of its labels that they look at: by it pods that
/// ask for the same are of different classes. `None`: there are none.
#[must_use]
pub fn constraints(pod: &k8s::Pod) -> Option<Arc<str>> {
    // Which namespaces a selector selects changes with every new one, so it is written down as it is.
    let rules = required(pod, &Namespaces::new());
    let selectors: Vec<Option<Vec<Requirement>>> = affinity_terms(pod)
        .chain(anti_affinity_terms(pod))
        .map(|term| requirements(term.namespace_selector.as_ref()))
        .collect();
    (!rules.is_empty()).then(|| constraints_digest(&rules, &selectors, &super::shared(pod.metadata.labels.as_ref())))
}

/// Required anti-affinity of a pod that stands on a node.
#[must_use]
pub fn anti_affinity(pod: &k8s::Pod, namespaces: &Namespaces) -> Vec<PodTerm> {
    let no_labels = BTreeMap::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&no_labels);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    anti_affinity_terms(pod).map(|term| pod_term(term, namespace, labels, namespaces)).collect()
}

/// Constraints of a shape that nobody models, in their words; what the packing planner models is none.
#[must_use]
pub fn unmodelled(shape: &Shape) -> Vec<Arc<str>> {
    let modelled = [Unmodelled::PodAffinity, Unmodelled::PodAntiAffinity, Unmodelled::TopologySpread];
    let is = |text: &&Arc<str>| !modelled.iter().any(|one| one.as_str() == &***text);
    shape.unsupported.iter().filter(is).cloned().collect()
}

fn spread(one: &k8s::TopologySpreadConstraint, labels: &BTreeMap<String, String>) -> Spread {
    let mut selector = requirements(one.label_selector.as_ref()).unwrap_or_else(|| vec![nothing()]);
    selector.extend(of_keys(one.match_label_keys.as_deref(), labels, Operator::In));
    let number = |number: i32| u32::try_from(number).unwrap_or(0);
    Spread {
        key: one.topology_key.as_str().into(),
        selector,
        max_skew: number(one.max_skew),
        min_domains: one.min_domains.map_or(1, number),
        honor_affinity: one.node_affinity_policy.as_deref() != Some("Ignore"),
        honor_taints: one.node_taints_policy.as_deref() == Some("Honor"),
    }
}

fn pod_term(
    one: &k8s::PodAffinityTerm,
    own: &str,
    labels: &BTreeMap<String, String>,
    namespaces: &Namespaces,
) -> PodTerm {
    let mut selector = requirements(one.label_selector.as_ref());
    if let Some(selector) = &mut selector {
        selector.extend(of_keys(one.match_label_keys.as_deref(), labels, Operator::In));
        selector.extend(of_keys(one.mismatch_label_keys.as_deref(), labels, Operator::NotIn));
    }
    let listed = one.namespaces.iter().flatten().map(|name| Arc::from(name.as_str()));
    let mut names: BTreeSet<Arc<str>> = listed.collect();
    let mut every = false;
    match &one.namespace_selector {
        None if names.is_empty() => {
            names.insert(own.into());
        }
        None => {}
        Some(selector) => {
            let wanted = requirements(Some(selector)).unwrap_or_default();
            every = wanted.is_empty();
            let matching = namespaces.iter().filter(|(_, labels)| selects(&wanted, labels));
            names.extend(matching.map(|(name, _)| Arc::clone(name)));
        }
    }
    PodTerm { key: one.topology_key.as_str().into(), namespaces: (!every).then_some(names), selector }
}

/// A namespace's labels, its name among them.
#[must_use]
pub fn namespace_labels(name: &str, labels: Option<&BTreeMap<String, String>>) -> BTreeMap<Arc<str>, Arc<str>> {
    let mut labels = super::shared(labels);
    labels.entry(NAMESPACE_NAME.into()).or_insert_with(|| name.into());
    labels
}

/// A label selector; `None` selects nothing.
fn requirements(selector: Option<&LabelSelector>) -> Option<Vec<Requirement>> {
    let selector = selector?;
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| Requirement {
        key: key.as_str().into(),
        operator: Operator::In,
        values: vec![value.as_str().into()],
    });
    let more = selector.match_expressions.iter().flatten().map(|one| Requirement {
        key: one.key.as_str().into(),
        operator: selectors::operator(&one.operator),
        values: one.values.iter().flatten().map(|value| value.as_str().into()).collect(),
    });
    let mut all: Vec<Requirement> = equal.chain(more).collect();
    all.sort();
    Some(all)
}

/// A requirement that no labels meet.
fn nothing() -> Requirement {
    Requirement { key: "".into(), operator: Operator::Unknown, values: Vec::new() }
}

/// `matchLabelKeys` and `mismatchLabelKeys`: the pod's own values; a key that it lacks is passed over.
fn of_keys<'a>(
    keys: Option<&'a [String]>,
    labels: &'a BTreeMap<String, String>,
    operator: Operator,
) -> impl Iterator<Item = Requirement> + 'a {
    keys.unwrap_or_default().iter().filter_map(move |key| {
        let value = labels.get(key)?;
        Some(Requirement { key: key.as_str().into(), operator, values: vec![value.as_str().into()] })
    })
}
