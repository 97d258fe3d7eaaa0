//! What the API server refuses of a pod's constraints and a converter would read as something else: each is named by field and
//! value.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use k8s_openapi::api::core::v1::{
    NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm, PodSpec, ResourceRequirements, Taint, Toleration,
    TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use muster_core::model::spelling::{is_label_key, is_label_value, is_namespace};
use muster_core::model::units::Quantity;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Looks at every constraint of a pod; `prefix` is the path of what holds its spec.
///
/// Errors: the path of the first field that the API server would refuse, its value, and what is wrong.
pub(super) fn check(spec: &PodSpec, prefix: &str) -> Result<(), String> {
    labels(spec.node_selector.as_ref(), &format!("{prefix}spec.nodeSelector"))?;
    for (index, toleration) in spec.tolerations.iter().flatten().enumerate() {
        tolerated(toleration, &format!("{prefix}spec.tolerations[{index}]"))?;
    }
    let mut seen = BTreeSet::new();
    for (index, spread) in spec.topology_spread_constraints.iter().flatten().enumerate() {
        let path = format!("{prefix}spec.topologySpreadConstraints[{index}]");
        spreads(spread, &path)?;
        if !seen.insert((&spread.topology_key, &spread.when_unsatisfiable)) {
            let why = format!("is there twice with whenUnsatisfiable: {}", spread.when_unsatisfiable);
            return wrong(&path, "topologyKey", &spread.topology_key, &why);
        }
    }
    let Some(affinity) = &spec.affinity else { return Ok(()) };
    let path = format!("{prefix}spec.affinity");
    if let Some(nodes) = &affinity.node_affinity {
        let path = format!("{path}.nodeAffinity");
        if let Some(required) = &nodes.required_during_scheduling_ignored_during_execution {
            let path = format!("{path}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
            if required.node_selector_terms.is_empty() {
                return Err(format!("{path}: `[]` selects no node at all"));
            }
            for (index, one) in required.node_selector_terms.iter().enumerate() {
                let path = format!("{path}[{index}]");
                term(one, &path)?;
                for (index, one) in one.match_expressions.iter().flatten().enumerate() {
                    let path = format!("{path}.matchExpressions[{index}]");
                    one.values.iter().flatten().try_for_each(|value| label_value(value, &path, "values"))?;
                }
            }
        }
        let preferred = nodes.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        for (index, one) in preferred.enumerate() {
            let path = format!("{path}.preferredDuringSchedulingIgnoredDuringExecution[{index}]");
            weight(one.weight, &path)?;
            term(&one.preference, &format!("{path}.preference"))?;
        }
    }
    let near = affinity.pod_affinity.as_ref().map(|one| {
        let required = one.required_during_scheduling_ignored_during_execution.iter().flatten();
        ("podAffinity", required.collect::<Vec<_>>(), one.preferred_during_scheduling_ignored_during_execution.as_ref())
    });
    let away = affinity.pod_anti_affinity.as_ref().map(|one| {
        let required = one.required_during_scheduling_ignored_during_execution.iter().flatten();
        let preferred = one.preferred_during_scheduling_ignored_during_execution.as_ref();
        ("podAntiAffinity", required.collect::<Vec<_>>(), preferred)
    });
    for (field, required, preferred) in near.into_iter().chain(away) {
        for (index, one) in required.into_iter().enumerate() {
            neighbours(one, &format!("{path}.{field}.requiredDuringSchedulingIgnoredDuringExecution[{index}]"))?;
        }
        for (index, one) in preferred.into_iter().flatten().enumerate() {
            let path = format!("{path}.{field}.preferredDuringSchedulingIgnoredDuringExecution[{index}]");
            weight(one.weight, &path)?;
            neighbours(&one.pod_affinity_term, &format!("{path}.podAffinityTerm"))?;
        }
    }
    Ok(())
}

/// Looks at a taint.
///
/// Errors: the path of a field that the API server would refuse, and its value.
pub(super) fn taint(taint: &Taint, path: &str) -> Result<(), String> {
    label_key(&taint.key, path, "key")?;
    label_value(taint.value.as_deref().unwrap_or_default(), path, "value")?;
    one_of(&taint.effect, &EFFECTS, path, "effect")
}

fn tolerated(toleration: &Toleration, path: &str) -> Result<(), String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (operator, effect) = (text(&toleration.operator), text(&toleration.effect));
    one_of(&operator, &["", "Equal", "Exists", "Gt", "Lt"], path, "operator")?;
    if !effect.is_empty() {
        one_of(&effect, &EFFECTS, path, "effect")?;
    }
    let (key, value) = (text(&toleration.key), text(&toleration.value));
    if key.is_empty() && operator != "Exists" {
        return wrong(path, "operator", &operator, "has to be Exists where there is no key");
    }
    if !key.is_empty() {
        label_key(&key, path, "key")?;
    }
    if operator == "Exists" && !value.is_empty() {
        return wrong(path, "value", value, "has to be empty where the operator is Exists");
    }
    if let Some(seconds) = toleration.toleration_seconds.filter(|_| effect != "NoExecute") {
        return wrong(path, "tolerationSeconds", seconds, "needs effect: NoExecute");
    }
    match operator.as_str() {
        "Gt" | "Lt" if value.parse::<i64>().is_err() => {
            wrong(path, "value", value, "has to be an integer where the operator is Gt or Lt")
        }
        "Gt" | "Lt" => Ok(()),
        _ => label_value(&value, path, "value"),
    }
}

fn spreads(spread: &TopologySpreadConstraint, path: &str) -> Result<(), String> {
    if spread.max_skew < 1 {
        return wrong(path, "maxSkew", spread.max_skew, "has to be greater than zero");
    }
    filled(&spread.topology_key, path, "topologyKey")?;
    one_of(&spread.when_unsatisfiable, &["DoNotSchedule", "ScheduleAnyway"], path, "whenUnsatisfiable")?;
    if let Some(domains) = spread.min_domains {
        if domains < 1 {
            return wrong(path, "minDomains", domains, "has to be greater than zero");
        }
        if spread.when_unsatisfiable != "DoNotSchedule" {
            return wrong(path, "minDomains", domains, "needs whenUnsatisfiable: DoNotSchedule");
        }
    }
    let policies =
        [("nodeAffinityPolicy", &spread.node_affinity_policy), ("nodeTaintsPolicy", &spread.node_taints_policy)];
    for (field, policy) in policies {
        if let Some(policy) = policy {
            one_of(policy, &["Honor", "Ignore"], path, field)?;
        }
    }
    selector(spread.label_selector.as_ref(), &format!("{path}.labelSelector"))?;
    match_keys(spread.match_label_keys.as_deref(), spread.label_selector.as_ref(), path, "matchLabelKeys")
}

/// Keys whose values of the pod itself are added to a selector. The API server adds them when the pod is created, so that they are in the
/// selector of one that is there.
fn match_keys(keys: Option<&[String]>, of: Option<&LabelSelector>, path: &str, field: &str) -> Result<(), String> {
    for key in keys.unwrap_or_default() {
        label_key(key, path, field)?;
        if of.is_none() {
            return wrong(path, field, key, "needs a labelSelector");
        }
    }
    Ok(())
}

fn neighbours(one: &PodAffinityTerm, path: &str) -> Result<(), String> {
    label_key(&one.topology_key, path, "topologyKey")?;
    if let Some(namespace) = one.namespaces.iter().flatten().find(|name| !is_namespace(name)) {
        return wrong(path, "namespaces", namespace, "is no name of a namespace");
    }
    let (with, without) = (one.match_label_keys.as_deref(), one.mismatch_label_keys.as_deref());
    match_keys(with, one.label_selector.as_ref(), path, "matchLabelKeys")?;
    match_keys(without, one.label_selector.as_ref(), path, "mismatchLabelKeys")?;
    let both = |key: &&String| with.is_some_and(|with| with.contains(key));
    if let Some(key) = without.unwrap_or_default().iter().find(both) {
        return wrong(path, "mismatchLabelKeys", key, "is among matchLabelKeys too");
    }
    selector(one.label_selector.as_ref(), &format!("{path}.labelSelector"))?;
    selector(one.namespace_selector.as_ref(), &format!("{path}.namespaceSelector"))
}

pub(super) fn selector(of: Option<&LabelSelector>, path: &str) -> Result<(), String> {
    labels(of.and_then(|of| of.match_labels.as_ref()), &format!("{path}.matchLabels"))?;
    let requirements = of.and_then(|of| of.match_expressions.as_ref()).into_iter().flatten();
    for (index, one) in requirements.enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        label_key(&one.key, &path, "key")?;
        one_of(&one.operator, &["In", "NotIn", "Exists", "DoesNotExist"], &path, "operator")?;
        listed(&one.operator, one.values.as_deref().unwrap_or_default(), &path)?;
        one.values.iter().flatten().try_for_each(|value| label_value(value, &path, "values"))?;
    }
    Ok(())
}

pub(super) fn term(one: &NodeSelectorTerm, path: &str) -> Result<(), String> {
    for (index, one) in one.match_expressions.iter().flatten().enumerate() {
        requirement(one, &format!("{path}.matchExpressions[{index}]"))?;
    }
    for (index, one) in one.match_fields.iter().flatten().enumerate() {
        let path = format!("{path}.matchFields[{index}]");
        one_of(&one.key, &["metadata.name"], &path, "key")?;
        one_of(&one.operator, &["In", "NotIn"], &path, "operator")?;
        let values = one.values.as_deref().unwrap_or_default();
        if values.len() != 1 {
            return wrong(&path, "values", list(values), "has to be one value");
        }
    }
    Ok(())
}

fn requirement(one: &NodeSelectorRequirement, path: &str) -> Result<(), String> {
    label_key(&one.key, path, "key")?;
    one_of(&one.operator, &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"], path, "operator")?;
    let values = one.values.as_deref().unwrap_or_default();
    if matches!(one.operator.as_str(), "Gt" | "Lt") {
        return match values {
            [value] if value.parse::<i64>().is_ok() => Ok(()),
            _ => wrong(path, "values", list(values), "has to be one integer"),
        };
    }
    listed(&one.operator, values, path)
}

/// `In` and `NotIn` need values, and the others have none.
fn listed(operator: &str, values: &[String], path: &str) -> Result<(), String> {
    match (operator, values.is_empty()) {
        ("In" | "NotIn", true) => wrong(path, "values", "[]", "has to hold a value"),
        ("Exists" | "DoesNotExist", false) => wrong(path, "values", list(values), "has to be empty"),
        _ => Ok(()),
    }
}

fn weight(weight: i32, path: &str) -> Result<(), String> {
    if (1..=100).contains(&weight) { Ok(()) } else { wrong(path, "weight", weight, "has to be between 1 and 100") }
}

pub(super) fn label_key(text: &str, path: &str, field: &str) -> Result<(), String> {
    filled(text, path, field)?;
    if is_label_key(text) { Ok(()) } else { wrong(path, field, text, "is no label key") }
}

fn label_value(text: &str, path: &str, field: &str) -> Result<(), String> {
    let why = "is no label value: at most 63 letters, digits, -, _ and .";
    if is_label_value(text) { Ok(()) } else { wrong(path, field, text, why) }
}

/// Labels as an object has them, or as a selector asks for them.
pub(super) fn labels(labels: Option<&BTreeMap<String, String>>, path: &str) -> Result<(), String> {
    for (key, value) in labels.into_iter().flatten() {
        if !is_label_key(key) {
            return Err(format!("{path}: `{key}` is no label key"));
        }
        label_value(value, path, key)?;
    }
    Ok(())
}

pub(super) fn filled(text: &str, path: &str, field: &str) -> Result<(), String> {
    if text.is_empty() { wrong(path, field, text, "is empty") } else { Ok(()) }
}

fn one_of(text: &str, known: &[&str], path: &str, field: &str) -> Result<(), String> {
    if known.contains(&text) {
        return Ok(());
    }
    let known: Vec<&str> = known.iter().copied().filter(|one| !one.is_empty()).collect();
    wrong(path, field, text, &format!("is none of {}", known.join(", ")))
}

fn list(values: &[String]) -> String {
    format!("[{}]", values.join(", "))
}

pub(super) fn wrong(path: &str, field: &str, value: impl Display, why: &str) -> Result<(), String> {
    Err(format!("{path}.{field}: `{value}` {why}"))
}

/// Names that the API server knows; nothing stands for its default.
pub(super) fn named(text: Option<&str>, known: &[&str], path: &str) -> Result<(), String> {
    match text.filter(|text| !text.is_empty() && !known.contains(text)) {
        Some(text) => Err(format!("{path}: `{text}` is none of {}", known.join(", "))),
        None => Ok(()),
    }
}

/// No amount is below zero; what cannot be read is for others to name.
pub(super) fn not_negative(list: Option<&BTreeMap<String, Text>>, path: &str) -> Result<(), String> {
    for (name, text) in list.into_iter().flatten() {
        if text.0.parse::<Quantity>().is_ok_and(|amount| amount < Quantity::ZERO) {
            return Err(format!("{path}[{name}]: `{}` is negative", text.0));
        }
    }
    Ok(())
}

/// What a container, or a whole pod, asks for and may use.
pub(super) fn amounts(of: &ResourceRequirements, path: &str) -> Result<(), String> {
    let limits = of.limits.as_ref();
    for (field, list) in [("requests", of.requests.as_ref()), ("limits", limits)] {
        for (name, text) in list.into_iter().flatten() {
            if !is_label_key(name) {
                return Err(format!("{path}.{field}: `{name}` is no name of a resource"));
            }
            let extended = name.contains('/') || name.starts_with("hugepages-");
            if extended && text.0.parse::<Quantity>().is_ok_and(|amount| !amount.is_whole()) {
                return Err(format!("{path}.{field}[{name}]: `{}` is not a whole number", text.0));
            }
        }
    }
    for (name, asked) in of.requests.iter().flatten() {
        let Some(most) = limits.and_then(|limits| limits.get(name)) else { continue };
        let amount = |text: &Text| text.0.parse::<Quantity>().ok();
        if amount(asked).zip(amount(most)).is_some_and(|(asked, most)| asked > most) {
            return Err(format!("{path}.requests[{name}]: `{}` is more than its limit, `{}`", asked.0, most.0));
        }
    }
    Ok(())
}
