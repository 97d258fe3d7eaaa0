//! Node selection, tolerations and label selectors.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use muster_core::model::pod::{Operator, Requirement, SelectorTerm, Toleration};

use crate::keys;

/// Required node affinity; `None` without any.
pub(super) fn required_terms(spec: &k8s::PodSpec) -> Option<Vec<SelectorTerm>> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    Some(terms(required))
}

/// The ORed terms of a node selector.
pub(crate) fn terms(selector: &k8s::NodeSelector) -> Vec<SelectorTerm> {
    let mut terms: Vec<SelectorTerm> = selector
        .node_selector_terms
        .iter()
        .map(|term| SelectorTerm {
            expressions: requirements(term.match_expressions.as_deref()),
            fields: requirements(term.match_fields.as_deref()),
        })
        .collect();
    terms.sort();
    terms.dedup();
    terms
}

fn requirements(list: Option<&[k8s::NodeSelectorRequirement]>) -> Vec<Requirement> {
    let mut requirements: Vec<Requirement> = list
        .into_iter()
        .flatten()
        .map(|requirement| Requirement {
            key: Arc::from(requirement.key.as_str()),
            operator: operator(&requirement.operator),
            values: requirement.values.iter().flatten().map(|value| Arc::from(value.as_str())).collect(),
        })
        .collect();
    requirements.sort();
    requirements
}

pub(crate) fn operator(text: &str) -> Operator {
    match text {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::Gt,
        "Lt" => Operator::Lt,
        _ => Operator::Unknown,
    }
}

/// Tolerations that can tolerate anything. One with an operator or effect unknown to Muster tolerates nothing, which errs
/// on the safe side: the numeric operators `Gt` and `Lt` stand behind a gate that is off by default.
pub(super) fn tolerations(spec: &k8s::PodSpec) -> Vec<Toleration> {
    let all = spec.tolerations.as_deref().unwrap_or_default();
    // What the release adds beside the toleration of a hold lets a member pass a cordon of ours, and is no licence for any other.
    let released = all.iter().any(|toleration| toleration.key.as_deref() == Some(keys::GANG_PENDING));
    let own = all.iter().filter(|toleration| !(released && is_of_held(toleration)));
    let mut tolerations: Vec<Toleration> = own.filter_map(toleration).collect();
    tolerations.sort();
    tolerations.dedup();
    tolerations
}

/// The toleration that the release gives to members whose nodes are held for them. It is written out as nobody else writes it,
/// so that it is known again: people write `Exists` for a taint without a value.
#[must_use]
pub fn of_held() -> k8s::Toleration {
    k8s::Toleration {
        key: Some(keys::UNSCHEDULABLE.to_owned()),
        operator: Some("Equal".to_owned()),
        value: Some(String::new()),
        effect: Some("NoSchedule".to_owned()),
        toleration_seconds: None,
    }
}

/// Whether a toleration is that of [`of_held`]. The API server drops an empty value.
#[must_use]
pub fn is_of_held(toleration: &k8s::Toleration) -> bool {
    let value = toleration.value.clone().unwrap_or_default();
    k8s::Toleration { value: Some(value), ..toleration.clone() } == of_held()
}

fn toleration(toleration: &k8s::Toleration) -> Option<Toleration> {
    let exists = match toleration.operator.as_deref() {
        None | Some("" | "Equal") => false,
        Some("Exists") => true,
        Some(_) => return None,
    };
    let effect = match toleration.effect.as_deref() {
        None | Some("") => None,
        Some(effect) => Some(super::effect(effect)?),
    };
    Some(Toleration {
        key: Arc::from(toleration.key.as_deref().unwrap_or_default()),
        exists,
        value: Arc::from(toleration.value.as_deref().unwrap_or_default()),
        effect,
    })
}

/// What a label selector asks for, all of it.
pub(super) fn label_requirements(selector: &LabelSelector) -> Vec<Requirement> {
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| Requirement {
        key: Arc::from(key.as_str()),
        operator: Operator::In,
        values: vec![Arc::from(value.as_str())],
    });
    let expressions = selector.match_expressions.iter().flatten().map(|requirement| Requirement {
        key: Arc::from(requirement.key.as_str()),
        operator: match requirement.operator.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            _ => Operator::Unknown,
        },
        values: requirement.values.iter().flatten().map(|value| Arc::from(value.as_str())).collect(),
    });
    equal.chain(expressions).collect()
}

/// Whether a label selector selects an object with `labels`. None selects nothing, an empty one everything.
#[must_use]
pub fn selects(selector: Option<&LabelSelector>, labels: &BTreeMap<String, String>) -> bool {
    let Some(selector) = selector else { return false };
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    equal
        && selector.match_expressions.iter().flatten().all(|requirement| {
            let label = labels.get(&requirement.key);
            let listed = label.is_some_and(|label| requirement.values.iter().flatten().any(|value| value == label));
            match requirement.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => label.is_some(),
                "DoesNotExist" => label.is_none(),
                _ => false,
            }
        })
}
