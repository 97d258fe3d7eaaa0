//! What a NodePool states and cannot mean, by field and value. The API server refuses some of it; a file, and an object that is older
//! than those rules, come here. The provisioner and the offline planner look through here.

use std::collections::BTreeSet;
use std::fmt::Display;

use jiff::SignedDuration;
use muster_core::batch::replacements;
use muster_core::model::spelling::{is_label_key, is_label_value};

use crate::crd::{NodePool, NodeRequirement, NodeRequirementOperator as Operator};
use crate::{keys, pool as rules};

/// Most requirements of a pool.
const REQUIREMENTS: usize = 100;

/// Everything in the pool that it cannot mean, in a line.
///
/// Errors: these.
pub fn read(pool: &NodePool) -> Result<(), String> {
    let all: Vec<String> = problems(pool).into_iter().map(|(_, why)| why).collect();
    if all.is_empty() { Ok(()) } else { Err(all.join("; ")) }
}

/// Reason of the condition `Ready`, and message, of each; what comes first is the first to mend.
#[must_use]
pub fn problems(pool: &NodePool) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    let labels = pool.spec.template.metadata.labels.keys();
    let restricted = labels.filter(|key| key.starts_with(keys::PREFIX) || *key == keys::HOSTNAME);
    all.extend(
        restricted
            .map(|key| ("LabelRestricted", format!("spec.template.metadata.labels: {key} is set by Muster alone"))),
    );
    all.extend(labels_of_machines(pool).into_iter().map(|why| ("LabelRestricted", why)));
    all.extend(labels_of(pool).into_iter().map(|why| ("LabelInvalid", why)));
    let limits = [rules::limits(pool).err(), rules::max_usd_per_hour(pool).err(), rules::max_probe_usd(pool).err()];
    all.extend(limits.into_iter().flatten().chain(numbers(pool)).map(|why| ("LimitInvalid", why)));
    let taints = [rules::taints(pool).err(), rules::startup_taints(pool).err()];
    all.extend(taints.into_iter().flatten().chain(taints_of(pool)).map(|why| ("TaintInvalid", why)));
    all.extend(rules::acts(pool).err().map(|why| ("FieldNotSupported", why)));
    all.extend(durations(pool).into_iter().map(|why| ("DurationInvalid", why)));
    let requirements = rules::requirements(pool).err().into_iter().chain(requirements_of(pool));
    all.extend(requirements.map(|why| ("RequirementInvalid", why)));
    all
}

fn wrong(field: &str, value: impl Display, why: &str) -> String {
    format!("{field}: \"{value}\" {why}")
}

const NO_KEY: &str = "is no label key";
const NO_VALUE: &str = "is no label value: at most 63 letters, digits, -, _ and .";

/// Labels by which a node would be a machine that the pool does not allow: it gets those of its machine.
fn labels_of_machines(pool: &NodePool) -> Vec<String> {
    let required = rules::requirements(pool).unwrap_or_default();
    let of_machines = [keys::INSTANCE_TYPE, keys::ARCH, keys::OS, keys::ZONE];
    let other = pool.spec.template.metadata.labels.iter().filter(|(key, value)| {
        let allowed = required.allows(key, Some(value)) && (*key != keys::OS || *value == "linux");
        of_machines.contains(&key.as_str()) && !allowed
    });
    let stated = |(key, value): (&String, &String)| {
        let silent = key == keys::ARCH && rules::of_key(pool, key).next().is_none();
        let default = if silent { ", which are silent on it and so mean amd64" } else { "" };
        let why = format!("contradicts spec.template.spec.requirements{default}: its nodes get what their machine is");
        wrong(&format!("spec.template.metadata.labels.{key}"), value, &why)
    };
    other.map(stated).collect()
}

/// Labels that a kubelet would not start with.
fn labels_of(pool: &NodePool) -> Vec<String> {
    let mut all = Vec::new();
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    if !is_label_value(name) {
        all.push(wrong("metadata.name", name, NO_VALUE));
    }
    for (key, value) in &pool.spec.template.metadata.labels {
        if !is_label_key(key) {
            all.push(wrong("spec.template.metadata.labels", key, NO_KEY));
        }
        if !is_label_value(value) {
            all.push(wrong(&format!("spec.template.metadata.labels.{key}"), value, NO_VALUE));
        }
    }
    all
}

/// Numbers beyond their range. A weight of 0 is what an absent one means.
fn numbers(pool: &NodePool) -> Vec<String> {
    let spec = &pool.spec;
    let of = [
        ("spec.weight", spec.weight, 0..=100),
        ("spec.placement.maxNodesPerBatch", spec.placement.max_nodes_per_batch, 1..=1000),
    ];
    let beyond = of.into_iter().filter_map(|(field, number, may)| {
        let number = number.filter(|number| !may.contains(number))?;
        Some(wrong(field, number, &format!("is not between {} and {}", may.start(), may.end())))
    });
    beyond.collect()
}

fn taints_of(pool: &NodePool) -> Vec<String> {
    let spec = &pool.spec.template.spec;
    let mut all = Vec::new();
    // A kubelet registers with both, and a Node has each key and effect once.
    let mut seen: BTreeSet<(&str, &str)> = BTreeSet::new();
    for (name, list) in [("taints", &spec.taints), ("startupTaints", &spec.startup_taints)] {
        for (index, taint) in list.iter().enumerate() {
            let path = format!("spec.template.spec.{name}[{index}]");
            let value = taint.value.as_deref().unwrap_or_default();
            if !is_label_key(&taint.key) {
                all.push(wrong(&format!("{path}.key"), &taint.key, NO_KEY));
            }
            if !is_label_value(value) {
                all.push(wrong(&format!("{path}.value"), value, NO_VALUE));
            }
            if !seen.insert((&taint.key, &taint.effect)) {
                let both = format!("{}:{}", taint.key, taint.effect);
                all.push(wrong(&path, both, "is there twice: a Node has each key and effect once"));
            }
        }
    }
    all
}

fn durations(pool: &NodePool) -> Vec<String> {
    let (join, disruption) = (&pool.spec.join, &pool.spec.disruption);
    let mut all = Vec::new();
    let share = &join.max_replacements.0;
    if replacements(share, 1).is_none() {
        all.push(wrong("spec.join.maxReplacements", share, "is neither a number nor a share such as 10%"));
    }
    for (field, text) in [
        ("spec.join.registerWithin", &join.register_within),
        ("spec.join.readyWithin", &join.ready_within),
        ("spec.join.replaceAfter", &join.replace_after),
        ("spec.disruption.consolidateAfter", &disruption.consolidate_after),
        ("spec.disruption.foreignPodsAfter", &disruption.foreign_pods_after),
    ] {
        if text != "Never" && duration(text).is_none() {
            all.push(wrong(field, text, "is not a duration such as 90s, 15m or 1h, nor Never"));
        }
    }
    all
}

/// Reads a Go duration such as `1h30m`, `45s`, `500ms`.
#[must_use]
pub fn duration(text: &str) -> Option<SignedDuration> {
    text.parse().ok().filter(|duration: &SignedDuration| !duration.is_negative())
}

fn requirements_of(pool: &NodePool) -> Vec<String> {
    let requirements = &pool.spec.template.spec.requirements;
    let mut all = Vec::new();
    if requirements.len() > REQUIREMENTS {
        let many = requirements.len();
        all.push(format!("spec.template.spec.requirements: {many} requirements are more than {REQUIREMENTS}"));
    }
    for (index, requirement) in requirements.iter().enumerate().take(REQUIREMENTS) {
        all.extend(requirement_of(requirement, &format!("spec.template.spec.requirements[{index}]")));
    }
    all
}

fn requirement_of(requirement: &NodeRequirement, path: &str) -> Vec<String> {
    let NodeRequirement { key, operator, values, min_values } = requirement;
    let mut all = Vec::new();
    if !is_label_key(key) {
        all.push(wrong(&format!("{path}.key"), key, NO_KEY));
    }
    let field = format!("{path}.values");
    match operator {
        Operator::In | Operator::NotIn => {
            if values.is_empty() {
                all.push(format!("{field}: [] holds no value of {key}, and operator {operator:?} needs one"));
            }
            let bad = values.iter().filter(|value| !is_label_value(value));
            all.extend(bad.map(|value| wrong(&field, value, NO_VALUE)));
        }
        Operator::Exists | Operator::DoesNotExist => {
            let some = values.first().map(|value| wrong(&field, value, "is there, and the operator takes no value"));
            all.extend(some);
        }
        Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte => {
            let below = values.iter().find(|value| value.parse::<i64>().is_ok_and(i64::is_negative));
            all.extend(below.map(|value| wrong(&field, value, "is negative")));
        }
    }
    if let Some(least) = min_values {
        let field = format!("{path}.minValues");
        if !(1..=50).contains(least) {
            all.push(wrong(&field, least, "is not between 1 and 50"));
        } else if *operator == Operator::In && usize::try_from(*least).is_ok_and(|least| least > values.len()) {
            all.push(wrong(&field, least, &format!("is more than the {} values of {key}", values.len())));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::{Value, json};

    use super::*;

    fn pool(name: &str, spec: Value) -> NodePool {
        let mut object = json!({
            "apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": name},
            "spec": {"template": {"spec": {"nodeClassRef": {"group": "muster.dev", "kind": "EC2NodeClass", "name": "c"}}}},
        });
        merge(&mut object["spec"], spec);
        serde_json::from_value(object).unwrap()
    }

    fn merge(into: &mut Value, from: Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                from.into_iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
            }
            (into, from) => *into = from,
        }
    }

    fn node(field: &str, value: &Value) -> Value {
        json!({"template": {"spec": {(field): value}}})
    }

    fn requires(requirement: &Value) -> Value {
        node("requirements", &json!([requirement]))
    }

    #[test]
    fn what_a_pool_cannot_mean_is_named_by_field_and_value() {
        let long = "a".repeat(64);
        let taint = json!({"key": "team", "value": "a", "effect": "NoSchedule"});
        let labels = |key: &str, value: &str| json!({"template": {"metadata": {"labels": {(key): value}}}});
        for (spec, reason, says) in [
            (
                labels("muster.dev/nodepool", "x"),
                "LabelRestricted",
                "labels: muster.dev/nodepool is set by Muster alone",
            ),
            (labels("kubernetes.io/hostname", "x"), "LabelRestricted", "kubernetes.io/hostname"),
            (
                labels("kubernetes.io/arch", "arm64"),
                "LabelRestricted",
                "labels.kubernetes.io/arch: \"arm64\" contradicts spec.template.spec.requirements, which are silent on it and so mean amd64",
            ),
            (
                json!({"template": {
                    "metadata": {"labels": {"topology.kubernetes.io/zone": "z-1"}},
                    "spec": {"requirements": [
                        {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["z-1"]},
                    ]},
                }}),
                "LabelRestricted",
                "zone: \"z-1\"",
            ),
            (labels("kubernetes.io/os", "windows"), "LabelRestricted", "os: \"windows\""),
            (labels("UPPER bad!", "x"), "LabelInvalid", "labels: \"UPPER bad!\" is no label key"),
            (labels("team", "bad value!"), "LabelInvalid", "labels.team: \"bad value!\" is no label value"),
            (json!({"limits": {"cpu": "-1"}}), "LimitInvalid", "spec.limits.cpu: \"-1\" is negative"),
            (json!({"weight": 101}), "LimitInvalid", "spec.weight: \"101\" is not between 0 and 100"),
            (
                json!({"placement": {"maxNodesPerBatch": 0}}),
                "LimitInvalid",
                "maxNodesPerBatch: \"0\" is not between 1 and 1000",
            ),
            (json!({"placement": {"maxNodesPerBatch": 1001}}), "LimitInvalid", "maxNodesPerBatch: \"1001\""),
            (json!({"join": {"maxProbeUsd": "much"}}), "LimitInvalid", "spec.join.maxProbeUsd: \"much\""),
            (node("taints", &json!([{"key": "", "effect": "NoSchedule"}])), "TaintInvalid", "taints[0].key: \"\""),
            (
                node("taints", &json!([{"key": "a b", "effect": "NoSchedule"}])),
                "TaintInvalid",
                "taints[0].key: \"a b\"",
            ),
            (
                node("startupTaints", &json!([{"key": "a", "value": "b c", "effect": "NoSchedule"}])),
                "TaintInvalid",
                "startupTaints[0].value: \"b c\" is no label value",
            ),
            (node("taints", &json!([taint, taint])), "TaintInvalid", "taints[1]: \"team:NoSchedule\" is there twice"),
            (
                json!({"template": {"spec": {"taints": [taint], "startupTaints": [taint]}}}),
                "TaintInvalid",
                "startupTaints[0]: \"team:NoSchedule\" is there twice",
            ),
            (json!({"join": {"registerWithin": "soon"}}), "DurationInvalid", "spec.join.registerWithin: \"soon\""),
            (json!({"join": {"readyWithin": "-1m"}}), "DurationInvalid", "spec.join.readyWithin: \"-1m\""),
            (json!({"join": {"maxReplacements": "some"}}), "DurationInvalid", "maxReplacements: \"some\""),
            (requires(&json!({"key": "", "operator": "Exists"})), "RequirementInvalid", "requirements[0].key: \"\""),
            (
                requires(&json!({"key": "a b", "operator": "Exists"})),
                "RequirementInvalid",
                "requirements[0].key: \"a b\"",
            ),
            (requires(&json!({"key": "a", "operator": "NotIn"})), "RequirementInvalid", "[] holds no value of a"),
            (
                requires(&json!({"key": "a", "operator": "In", "values": [long]})),
                "RequirementInvalid",
                "requirements[0].values: \"aaaa",
            ),
            (
                requires(&json!({"key": "a", "operator": "Exists", "values": ["x"]})),
                "RequirementInvalid",
                "requirements[0].values: \"x\" is there",
            ),
            (
                requires(&json!({"key": "a", "operator": "Gt", "values": ["-1"]})),
                "RequirementInvalid",
                "requirements[0].values: \"-1\" is negative",
            ),
            (
                requires(&json!({"key": "a", "operator": "Exists", "minValues": 51})),
                "RequirementInvalid",
                "minValues: \"51\" is not between 1 and 50",
            ),
            (
                requires(&json!({"key": "a", "operator": "In", "values": ["x", "y"], "minValues": 3})),
                "RequirementInvalid",
                "minValues: \"3\" is more than the 2 values of a",
            ),
        ] {
            let found = problems(&pool("p", spec.clone()));
            assert!(found.iter().any(|(of, why)| *of == reason && why.contains(says)), "{spec}: {found:?}");
        }
        let found = problems(&pool(&long, json!({})));
        assert!(matches!(&found[..], [("LabelInvalid", why)] if why.contains("metadata.name")), "{found:?}");
        let many = vec![json!({"key": "a", "operator": "Exists"}); 101];
        let found = problems(&pool("p", node("requirements", &json!(many))));
        assert!(matches!(&found[..], [("RequirementInvalid", why)] if why.contains("101")), "{found:?}");
    }

    #[test]
    fn nothing_stands_against_a_pool_that_says_what_it_may() {
        let spec = json!({
            "weight": 100, "limits": {"cpu": "0", "nodes": 5}, "join": {"registerWithin": "Never"},
            "template": {
                "metadata": {"labels": {
                    "example.com/team": "a", "empty": "", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
                    "topology.kubernetes.io/zone": "z-1", "node.kubernetes.io/instance-type": "m5.large",
                }},
                "spec": {
                    "taints": [
                        {"key": "team", "value": "a", "effect": "NoSchedule"}, {"key": "team", "effect": "NoExecute"},
                    ],
                    "requirements": [
                        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z-1", "z-2"]},
                        {"key": "muster.dev/instance-cpu", "operator": "Gt", "values": ["0"]},
                        {"key": "muster.dev/instance-family", "operator": "In", "values": ["m5", "m6i"], "minValues": 2},
                    ],
                },
            },
        });
        assert_eq!(problems(&pool("p", spec)), []);
        assert_eq!(problems(&pool("p", json!({"weight": 0}))), [], "what an absent one means");
    }

    #[test]
    fn go_durations_are_read_and_nonsense_is_not() {
        assert_eq!(duration("1h30m"), Some(SignedDuration::from_mins(90)));
        assert_eq!(duration("500ms"), Some(SignedDuration::from_millis(500)));
        assert_eq!(duration("soon"), None);
        assert_eq!(duration("-5s"), None);
    }
}
