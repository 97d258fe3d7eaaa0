//! Wire structs of the extender protocol: Go field names, absent values arrive as `null`.
//!
//! Requests borrow from their body and answers from the request, so that a call costs no allocation per node. Of the
//! pod only what tells it apart is read; the whole object is read a second time where the watch has not shown it yet.
//! Source: `k8s.io/kube-scheduler/extender/v1`, identical from 1.33 to 1.37. Lists in answers are always arrays.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use muster_api::{convert, keys};
use muster_core::extender::Rejection;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Body of `filter` and `prioritize`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ExtenderArgs<'a> {
    /// The pod, as far as it tells the pod apart.
    #[serde(borrow)]
    pub pod: WirePod<'a>,
    /// Present only if `nodeCacheCapable` is off, which Muster refuses.
    pub nodes: Option<IgnoredAny>,
    /// Names of the nodes offered.
    #[serde(borrow)]
    pub node_names: Option<Vec<Name<'a>>>,
}

/// A pod in a request: which one it is, and the annotations that may be newer than what the watch has shown.
#[derive(Debug, Default, Deserialize)]
pub struct WirePod<'a> {
    /// Metadata.
    #[serde(borrow)]
    pub metadata: WireMetadata<'a>,
}

/// Metadata of a pod in a request.
#[derive(Debug, Default, Deserialize)]
pub struct WireMetadata<'a> {
    /// UID.
    #[serde(borrow)]
    pub uid: Option<Name<'a>>,
    /// The annotation of a release.
    #[serde(borrow)]
    pub annotations: Option<WireAnnotations<'a>>,
}

/// The annotation of a release; all others are skipped.
#[derive(Debug, Default)]
pub struct WireAnnotations<'a> {
    /// `muster.dev/plan-epoch`.
    pub plan_epoch: Option<Name<'a>>,
}

/// A name, borrowed from the body; owned only where JSON escapes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name<'a>(pub Cow<'a, str>);

impl AsRef<str> for Name<'_> {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for WireAnnotations<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct One;
        impl<'de> Visitor<'de> for One {
            type Value = WireAnnotations<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of annotations")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut read = WireAnnotations::default();
                while let Some(key) = map.next_key::<Name<'de>>()? {
                    match key.as_ref() {
                        keys::PLAN_EPOCH => read.plan_epoch = Some(map.next_value()?),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(read)
            }
        }
        deserializer.deserialize_map(One)
    }
}

/// The pod of any request, whole.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct WholePod {
    /// The pod, with the scheduling group of newer Kubernetes: without it a member of a native gang would look single.
    #[serde(deserialize_with = "with_group")]
    pub pod: Pod,
}

fn with_group<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Pod, D::Error> {
    let pod = convert::keep_scheduling_group(serde_json::Value::deserialize(deserializer)?);
    Pod::deserialize(pod).map_err(serde::de::Error::custom)
}

/// Answer of `filter`.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ExtenderFilterResult<'a> {
    /// Always `null`: names are enough.
    pub nodes: Option<()>,
    /// Nodes kept.
    pub node_names: Vec<&'a str>,
    /// Always empty: its nodes would become candidates for preemption.
    pub failed_nodes: BTreeMap<&'a str, &'a str>,
    /// Nodes rejected.
    pub failed_and_unresolvable_nodes: Rejected<'a>,
    /// Not empty: the call failed.
    pub error: String,
}

/// Nodes rejected, in the order of the request, with the reason: a map in JSON.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rejected<'a>(pub Vec<(&'a str, Rejection)>);

impl Serialize for Rejected<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (node, reason) in &self.0 {
            map.serialize_entry(node, reason.as_str())?;
        }
        map.end()
    }
}

/// One entry of the answer of `prioritize`.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct HostPriority<'a> {
    /// Node.
    pub host: &'a str,
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
pub struct ExtenderPreemptionArgs<'a> {
    /// The pod that wants capacity.
    #[serde(borrow)]
    pub pod: WirePod<'a>,
    /// Present only if `nodeCacheCapable` is off.
    pub node_name_to_victims: Option<IgnoredAny>,
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

/// Makes a text safe for kube-scheduler, which passes it through `fmt.Errorf` before 1.36.
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
    fn every_answer_has_exactly_this_body() {
        let filtered = ExtenderFilterResult {
            node_names: vec!["n2"],
            failed_and_unresolvable_nodes: Rejected(vec![
                ("n3", Rejection::WaitingForGang),
                ("n1", Rejection::AssignedToGang),
            ]),
            ..ExtenderFilterResult::default()
        };
        let victims = MetaVictims { pods: Some(vec![MetaPod { uid: "v".to_owned() }]), num_pdb_violations: 1 };
        assert_eq!(
            serde_json::to_string(&filtered).unwrap(),
            r#"{"Nodes":null,"NodeNames":["n2"],"FailedNodes":{},"FailedAndUnresolvableNodes":{"n3":"waiting for gang","n1":"assigned to a gang"},"Error":""}"#
        );
        assert_eq!(
            serde_json::to_string(&[HostPriority { host: "n1", score: 10 }]).unwrap(),
            r#"[{"Host":"n1","Score":10}]"#
        );
        assert_eq!(serde_json::to_string(&ExtenderBindingResult::default()).unwrap(), r#"{"Error":""}"#);
        assert_eq!(
            serde_json::to_string(&ExtenderPreemptionResult {
                node_name_to_meta_victims: BTreeMap::from([("n1".to_owned(), victims)])
            })
            .unwrap(),
            r#"{"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"v"}],"NumPDBViolations":1}}}"#
        );
        assert_eq!(
            serde_json::to_string(&ExtenderPreemptionResult::default()).unwrap(),
            r#"{"NodeNameToMetaVictims":{}}"#
        );
    }

    #[test]
    fn nulls_of_older_versions_are_read() {
        let body = r#"{"Pod":{"metadata":{"name":"p","creationTimestamp":null},"spec":{"containers":null},"status":{}},
            "Nodes":null,"NodeNames":null}"#;
        let args: ExtenderArgs<'_> = serde_json::from_str(body).unwrap();
        assert!(args.nodes.is_none() && args.node_names.is_none());
        let whole: WholePod = serde_json::from_str(body).unwrap();
        assert_eq!(whole.pod.metadata.name.as_deref(), Some("p"));
        let bind: ExtenderBindingArgs =
            serde_json::from_str(r#"{"PodName":"p","PodNamespace":"n","PodUID":"u","Node":"m"}"#).unwrap();
        assert_eq!(bind.pod_uid, "u");
        let victims: MetaVictims = serde_json::from_str(r#"{"Pods":[{"UID":"v"}],"NumPDBViolations":1}"#).unwrap();
        assert_eq!(victims.num_pdb_violations, 1);
        let victims: MetaVictims = serde_json::from_str(r#"{"Pods":null,"NumPDBViolations":0}"#).unwrap();
        assert_eq!(victims.pods, None);
    }

    #[test]
    fn a_pod_read_whole_keeps_the_group_of_newer_kubernetes() {
        let body =
            r#"{"Pod":{"metadata":{"name":"p"},"spec":{"containers":[],"schedulingGroup":{"podGroupName":"g"}}}}"#;
        let whole: WholePod = serde_json::from_str(body).unwrap();
        assert_eq!(whole.pod.metadata.annotations.unwrap()[keys::SCHEDULING_GROUP], "g");
    }

    #[test]
    fn of_a_pod_only_its_uid_and_the_annotation_of_a_release_are_read() {
        let body = format!(
            r#"{{"Pod":{{"metadata":{{"uid":"u","annotations":{{"a":"{{\"b\":1}}","{}":"n1","{}":"\u0037"}}}},
                "spec":{{"containers":[{{"name":"c","image":"\u00e9"}}]}}}},"Nodes":null,"NodeNames":["n1","n2"]}}"#,
            keys::PLANNED_NODE,
            keys::PLAN_EPOCH
        );
        let args: ExtenderArgs<'_> = serde_json::from_str(&body).unwrap();
        let metadata = args.pod.metadata;
        assert_eq!(metadata.uid.as_ref().map(AsRef::as_ref), Some("u"));
        let read = metadata.annotations.unwrap();
        assert_eq!(read.plan_epoch, Some(Name(Cow::Borrowed("7"))), "escapes are resolved");
        let names = args.node_names.unwrap();
        assert!(names.iter().all(|name| matches!(name.0, Cow::Borrowed(_))), "names are not copied");
    }

    #[test]
    fn a_percent_sign_never_reaches_the_scheduler() {
        assert!(!safe("50%d off").contains('%'));
        for reason in Rejection::ALL {
            assert!(!reason.as_str().contains('%'), "{reason}");
        }
    }
}
