//! A pod as the planner and the extender see it: its scheduling shape, and where it stands.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::resources::Resources;
use crate::model::taint::TaintEffect;

/// Everything about a pod that decides which nodes it fits. Pods with equal shapes are interchangeable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shape {
    /// Effective requests as kube-scheduler counts them (init containers, sidecars, overhead), `pods: 1` included.
    pub requests: Resources,
    /// `spec.nodeSelector`.
    pub node_selector: BTreeMap<Arc<str>, Arc<str>>,
    /// `requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms`: ORed. `None` = no constraint; `Some` of an
    /// empty list matches no node.
    pub node_affinity: Option<Vec<SelectorTerm>>,
    /// `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// Host ports.
    pub ports: Vec<HostPort>,
    /// Where the pod's volumes can be reached: one entry per claim that is not reached from everywhere, of which all must
    /// hold; the terms of an entry are ORed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Vec<SelectorTerm>>,
    /// Required anti-affinity of the shape with itself by hostname: at most one such pod on a node.
    pub one_per_node: bool,
    /// Required pod affinity, if every term of it selects the pod itself and nobody beside its workload. It stands in
    /// `unsupported` too, as [`Shape::POD_AFFINITY`]: only who knows all members of a gang can keep it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub together: Vec<Together>,
    /// Required anti-affinity to the own workload in domains other than the node, if there is any and every term of it is of that
    /// kind. It stands in `unsupported` too, as [`Shape::POD_ANTI_AFFINITY`], for the same reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<Together>,
    /// Constraints of kube-scheduler that Muster does not model, each a short text such as
    /// `topologySpreadConstraints`; a gang with any is refused before anything is released.
    pub unsupported: Vec<Arc<str>>,
}

impl Shape {
    /// What `unsupported` says of required pod affinity.
    pub const POD_AFFINITY: &'static str = "required podAffinity";
    /// What `unsupported` says of required anti-affinity beyond that of a shape with itself by hostname.
    pub const POD_ANTI_AFFINITY: &'static str = "required podAntiAffinity other than with itself by hostname";
}

/// One term of required pod affinity, or anti-affinity: all pods of a workload in one domain, or each in another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Together {
    /// Label key of the domains.
    pub key: Arc<str>,
    /// The label that tells the workload from others, and its value.
    pub workload: (Arc<str>, Arc<str>),
}

/// One nodeSelectorTerm: all its requirements must hold. A term without any matches no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SelectorTerm {
    /// Requirements on labels.
    pub expressions: Vec<Requirement>,
    /// Requirements on fields; kube-scheduler knows `metadata.name` alone.
    pub fields: Vec<Requirement>,
}

/// One requirement on a label or field, with kube-scheduler's operators.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Requirement {
    /// Label key, or `metadata.name`.
    pub key: Arc<str>,
    /// Operator.
    pub operator: Operator,
    /// Values.
    pub values: Vec<Arc<str>>,
}

/// `NodeSelectorOperator`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Operator {
    /// The value is among the values.
    In,
    /// The value is absent or not among the values.
    NotIn,
    /// The key is present.
    Exists,
    /// The key is absent.
    DoesNotExist,
    /// Both are integers and the label's is greater.
    Gt,
    /// Both are integers and the label's is less.
    Lt,
    /// An operator unknown to Muster: the requirement matches no node.
    Unknown,
}

/// `core/v1` Toleration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Toleration {
    /// Key; empty with `Exists` tolerates everything.
    pub key: Arc<str>,
    /// `Exists`; otherwise `Equal`.
    pub exists: bool,
    /// Value for `Equal`.
    pub value: Arc<str>,
    /// Effect; `None` = every effect.
    pub effect: Option<TaintEffect>,
}

/// A host port as kube-scheduler compares them: same protocol and port, and equal or wildcard addresses, conflict.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostPort {
    /// Address; `0.0.0.0` where absent.
    pub ip: Arc<str>,
    /// `TCP`, `UDP` or `SCTP`; `TCP` where absent.
    pub protocol: Arc<str>,
    /// Port, never 0.
    pub port: i32,
}

/// What decides which pods may stand beside a pod on its node: who it is, and whom it keeps away itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Neighbour {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.labels`.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Its required anti-affinity by hostname, as far as that can select anything.
    pub keeps_away: Vec<AntiAffinityTerm>,
    /// Its required anti-affinity by any other label, likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keeps_off: Vec<DomainTerm>,
    /// A digest of its required topology constraints and of those of its labels that they look at. `None`: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraints: Option<Arc<str>>,
}

/// A term of required anti-affinity by a label that several nodes may share: the pods it selects must not stand in the same domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainTerm {
    /// Label key of the domains.
    pub key: Arc<str>,
    /// Which pods.
    pub term: AntiAffinityTerm,
}

/// A term of required anti-affinity: the pods it selects must not stand on the same node, or in the same domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AntiAffinityTerm {
    /// Namespaces of those pods; `None`: every one.
    pub namespaces: Option<Vec<Arc<str>>>,
    /// What their labels must be, all of it; nothing: any.
    pub selector: Vec<Requirement>,
}

impl Neighbour {
    /// Whether the two cannot stand on one node, by the required anti-affinity of either.
    #[must_use]
    pub fn keeps_apart(&self, other: &Self) -> bool {
        let shuns = |one: &Self, other: &Self| one.keeps_away.iter().any(|term| term.selects(other));
        shuns(self, other) || shuns(other, self)
    }
}

impl AntiAffinityTerm {
    /// Whether the term selects a pod.
    fn selects(&self, pod: &Neighbour) -> bool {
        self.namespaces.as_ref().is_none_or(|all| all.contains(&pod.namespace))
            && self.selector.iter().all(|requirement| requirement.matches(&pod.labels))
    }
}

impl Requirement {
    /// Whether labels are as the requirement asks.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<Arc<str>, Arc<str>>) -> bool {
        let label = labels.get(&self.key);
        let listed = |value: &Arc<str>| self.values.contains(value);
        match self.operator {
            Operator::In => label.is_some_and(listed),
            Operator::NotIn => !label.is_some_and(listed),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::Gt => self.integers(label).is_some_and(|(label, bound)| label > bound),
            Operator::Lt => self.integers(label).is_some_and(|(label, bound)| label < bound),
            Operator::Unknown => false,
        }
    }

    /// Label and bound of `Gt` and `Lt`, if both are integers of 64 bits.
    fn integers(&self, label: Option<&Arc<str>>) -> Option<(i64, i64)> {
        let label = label?.parse().ok()?;
        let bound = self.values.first()?.parse().ok()?;
        Some((label, bound))
    }
}
