//! The pin of a release: required node affinity to one node by name, in every term.
//!
//! Behind a gate required node affinity may be set where there is none, and each of its terms may gain requirements behind those it
//! has; a term without any may gain none, and no term may come or go (`validateNodeAffinityMutation` of kube-apiserver 1.37,
//! KEP-3838). Terms are ORed, so kube-scheduler narrows its cycle to the node only if each of them names it.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as k8s;
use muster_core::model::names::NodeName;
use muster_core::model::pod::{Operator, Requirement, SelectorTerm, Shape};

use crate::keys;

/// The field that names a node.
const NAME: &str = "metadata.name";

/// The terms of required node affinity of a pod; empty without any.
#[must_use]
pub fn required_terms(pod: &k8s::Pod) -> &[k8s::NodeSelectorTerm] {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    required.map_or(&[], |required| &required.node_selector_terms)
}

/// Those terms with the pin to a node in each.
#[must_use]
pub fn pin(mut terms: Vec<k8s::NodeSelectorTerm>, node: &str) -> Vec<k8s::NodeSelectorTerm> {
    let pin = k8s::NodeSelectorRequirement {
        key: NAME.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    if terms.is_empty() {
        terms.push(k8s::NodeSelectorTerm::default());
    }
    for term in &mut terms {
        term.match_fields.get_or_insert_default().push(pin.clone());
    }
    terms
}

/// The node that a pod without our gate is pinned to: its annotation names it, and so does every term behind whatever else it asks
/// for. What the author of the pod wrote and no annotation of ours names is a constraint like any other.
#[must_use]
pub fn pinned_node(pod: &k8s::Pod) -> Option<NodeName> {
    let node = pod.metadata.annotations.as_ref()?.get(keys::PINNED_NODE)?;
    let gates = pod.spec.as_ref()?.scheduling_gates.as_deref().unwrap_or_default();
    let is_pin = |one: &k8s::NodeSelectorRequirement| {
        one.key == NAME && one.operator == "In" && one.values.as_deref() == Some(std::slice::from_ref(node))
    };
    let terms = required_terms(pod);
    let in_each = terms.iter().all(|term| term.match_fields.as_ref().and_then(|all| all.last()).is_some_and(is_pin));
    let is_pinned = !terms.is_empty() && in_each && !gates.iter().any(|gate| gate.name == keys::GATE);
    is_pinned.then(|| NodeName::from(node.as_str()))
}

/// The shape as it was before the pod was pinned to a node.
#[must_use]
pub fn without_pin(mut shape: Shape, node: &NodeName) -> Shape {
    let pin = Requirement { key: Arc::from(NAME), operator: Operator::In, values: vec![Arc::from(node.as_str())] };
    let mut terms = shape.node_affinity.take().unwrap_or_default();
    for term in &mut terms {
        if let Some(at) = term.fields.iter().position(|one| *one == pin) {
            term.fields.remove(at);
        }
    }
    // Order has no meaning, and is that of the terms as they are now.
    terms.sort();
    terms.dedup();
    shape.node_affinity = Some(terms).filter(|terms| !terms.is_empty() && *terms != [SelectorTerm::default()]);
    shape
}
