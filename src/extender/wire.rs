//! Wire structs of the extender protocol: Go field names, absent values arrive as `null`.
//!
//! Source: `k8s.io/kube-scheduler/extender/v1`, identical from 1.33 to 1.37. Lists in answers are always arrays.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

/// Body of `filter` and `prioritize`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ExtenderArgs {
    /// The pod.
    pub pod: Pod,
    /// Present only if `nodeCacheCapable` is off, which Muster refuses.
    pub nodes: Option<serde::de::IgnoredAny>,
    /// Names of the nodes offered.
    pub node_names: Option<Vec<String>>,
}

/// Answer of `filter`.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ExtenderFilterResult {
    /// Always `null`: names are enough.
    pub nodes: Option<()>,
    /// Nodes kept.
    pub node_names: Vec<String>,
    /// Always empty: its nodes would become candidates for preemption.
    pub failed_nodes: BTreeMap<String, String>,
    /// Nodes rejected.
    pub failed_and_unresolvable_nodes: BTreeMap<String, String>,
    /// Not empty: the call failed.
    pub error: String,
}

/// One entry of the answer of `prioritize`.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct HostPriority {
    /// Node.
    pub host: String,
    /// Higher is better.
    pub score: i64,
}

/// Body of `bind`; it carries no pod.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ExtenderBindingArgs {
    /// Name.
    pub pod_name: String,
    /// Namespace.
    pub pod_namespace: String,
    /// UID.
    #[serde(rename = "PodUID")]
    pub pod_uid: String,
    /// Node.
    pub node: String,
}

/// Answer of `bind`.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ExtenderBindingResult {
    /// Empty: the binding exists.
    pub error: String,
}

/// Body of `preempt`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ExtenderPreemptionArgs {
    /// The pod that wants room.
    pub pod: Pod,
    /// Present only if `nodeCacheCapable` is off.
    pub node_name_to_victims: Option<serde::de::IgnoredAny>,
    /// Candidates.
    pub node_name_to_meta_victims: Option<BTreeMap<String, MetaVictims>>,
}

/// Answer of `preempt`.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ExtenderPreemptionResult {
    /// Candidates that stay; an empty map is a veto.
    pub node_name_to_meta_victims: BTreeMap<String, MetaVictims>,
}

/// Victims on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct MetaVictims {
    /// Victims.
    #[serde(default)]
    pub pods: Option<Vec<MetaPod>>,
    /// PodDisruptionBudgets violated.
    #[serde(rename = "NumPDBViolations", default)]
    pub num_pdb_violations: i64,
}

/// One victim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetaPod {
    /// UID.
    #[serde(rename = "UID")]
    pub uid: String,
}

/// Makes a text safe for kube-scheduler, which passes it through `fmt.Errorf`.
#[must_use]
pub fn safe(text: &str) -> String {
    text.replace('%', " percent")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_filter_has_gos_keys_and_no_null_list() {
        let answer = serde_json::to_string(&ExtenderFilterResult::default()).unwrap();
        assert_eq!(
            answer,
            r#"{"Nodes":null,"NodeNames":[],"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}"#
        );
    }

    #[test]
    fn nulls_of_older_versions_are_read() {
        let body = r#"{"Pod":{"metadata":{"name":"p","creationTimestamp":null},"spec":{"containers":[]},"status":{}},
            "Nodes":null,"NodeNames":null}"#;
        let args: ExtenderArgs = serde_json::from_str(body).unwrap();
        assert!(args.nodes.is_none() && args.node_names.is_none());
        let bind: ExtenderBindingArgs =
            serde_json::from_str(r#"{"PodName":"p","PodNamespace":"n","PodUID":"u","Node":"m"}"#).unwrap();
        assert_eq!(bind.pod_uid, "u");
        let victims: MetaVictims = serde_json::from_str(r#"{"Pods":[{"UID":"v"}],"NumPDBViolations":1}"#).unwrap();
        assert_eq!(victims.num_pdb_violations, 1);
    }

    #[test]
    fn a_percent_sign_never_reaches_the_scheduler() {
        assert!(!safe("50%d off").contains('%'));
    }
}
