//! Whether a pod of a shape fits a node, and how many do: the same verdict as kube-scheduler's filters.
//!
//! This is the one place that answers the question; planner, checker and extender all ask here. It follows the default
//! Filter plugins of kube-scheduler v1.37 in their order, each as far as a [`Shape`] can express it:
//!
//! | plugin | here |
//! | --- | --- |
//! | `NodeName` | not asked: a pod that names its node is never scheduled |
//! | `NodeUnschedulable` | [`Misfit::Unschedulable`] |
//! | `TaintToleration` | [`Misfit::Taint`]: `NoSchedule` and `NoExecute`; [`Misfit::Held`] where the taint is Muster's hold |
//! | `NodeAffinity` | [`Misfit::Selector`]: `nodeSelector` and required node affinity |
//! | `NodePorts` | [`Misfit::Port`] |
//! | `NodeResourcesFit` | [`Misfit::Insufficient`]; kube-scheduler names all, [`insufficient`] does too |
//! | `InterPodAffinity` | [`Misfit::Occupied`]: anti-affinity by hostname, of a shape with itself or of pods there |
//! | `VolumeBinding`, `VolumeZone` | [`Misfit::Volume`]: what the claims of the pod say was made terms of selectors before |
//! | `NodeVolumeLimits` | [`Misfit::Insufficient`]: volumes of a driver are a resource, each attached once: `model::attached` |
//! | topology spread, resource claims | not here: such shapes carry `unsupported` |
//!
//! One verdict is Muster's own: [`Misfit::NotReady`]. kube-scheduler looks at taints alone, and a node may be NotReady for
//! seconds before the node controller taints it; a gang should not be assigned capacity there.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::names::ResourceName;
use crate::model::node::{GANG_PENDING, Node, Taint, TaintEffect, Usage};
use crate::model::pod::{HostPort, Operator, Requirement, SelectorTerm, Shape, Toleration};
use crate::model::resources::{ATTACHABLE_VOLUMES, CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources};
use crate::model::spelling::is_label_value;

/// The taint that a pod must tolerate to land on a cordoned node (`core/v1` `TaintNodeUnschedulable`).
const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";
/// The only field that node affinity can match.
const NAME_FIELD: &str = "metadata.name";
/// A host port on this address conflicts with the same port on every address.
const ANY_ADDRESS: &str = "0.0.0.0";

/// Why a pod does not fit a node. The first that applies, in kube-scheduler's order of filters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Misfit {
    /// The node is cordoned and the pod does not tolerate it.
    Unschedulable,
    /// The node is not Ready or is being deleted.
    NotReady,
    /// An untolerated taint.
    Taint {
        /// `key=value:effect`.
        taint: Arc<str>,
    },
    /// The node waits for another gang. It opens by itself once that gang runs, and nobody is to lift it.
    Held,
    /// Node selector or required node affinity does not match.
    Selector,
    /// A volume of the pod cannot be reached from the node.
    Volume,
    /// A host port is taken.
    Port,
    /// Too little of a resource is free.
    Insufficient {
        /// The resource.
        resource: ResourceName,
    },
    /// A pod stands there that must not stand beside the shape's: anti-affinity by hostname of either.
    Occupied,
    /// The gang asks to be alone in a domain, and others hold accelerators in the node's. Reported by the planner only.
    Shared,
}

/// Checks one more pod of `shape` on `node` beside what `usage` holds.
///
/// Errors: the first reason in the order of kube-scheduler's filters.
pub fn fits(shape: &Shape, node: &Node, usage: &Usage) -> Result<(), Misfit> {
    accepts(shape, node)?;
    if !ports_free(&shape.ports, &usage.ports) {
        return Err(Misfit::Port);
    }
    if let Some(resource) = short(shape, node, usage).next() {
        return Err(Misfit::Insufficient { resource: resource.clone() });
    }
    if usage.own_shape_pods > 0 {
        return Err(Misfit::Occupied);
    }
    Ok(())
}

/// How many more pods of `shape` fit on `node` beside what `usage` holds, at most `u32::MAX`.
///
/// A closed form, so that neither a huge node nor a shape that requests nothing costs time. Pods with a host port
/// conflict with their own kind, and a shape with anti-affinity to itself too: one such pod at most.
///
/// Errors: why not even one does.
pub fn slots(shape: &Shape, node: &Node, usage: &Usage) -> Result<u32, Misfit> {
    accepts(shape, node)?;
    let bound = if shape.one_per_node || !shape.ports.is_empty() { 1 } else { u32::MAX };
    let count = shape
        .requests
        .iter()
        .filter(|(_, request)| *request > 0)
        .map(|(name, request)| {
            let count = free(node, usage, name) / request;
            u32::try_from(count.max(0)).unwrap_or(u32::MAX)
        })
        .fold(bound, u32::min);
    // The resources were looked up once, which is what this function costs; only a refusal asks for the reason.
    if count == 0 || usage.own_shape_pods > 0 || !ports_free(&shape.ports, &usage.ports) {
        fits(shape, node, usage)?;
    }
    Ok(count)
}

/// Whether `node` would take a pod of `shape` if it were empty of pods and large enough: cordon, readiness, taints,
/// selectors. What is left of [`fits`] then depends on usage alone.
///
/// Errors: the first reason in the order of kube-scheduler's filters.
pub fn accepts(shape: &Shape, node: &Node) -> Result<(), Misfit> {
    if node.unschedulable && !tolerates_cordon(&shape.tolerations) {
        return Err(Misfit::Unschedulable);
    }
    if !node.ready || node.deleting {
        return Err(Misfit::NotReady);
    }
    if let Some(taint) = untolerated(shape, node) {
        let held = *taint.key == *GANG_PENDING;
        return Err(if held { Misfit::Held } else { Misfit::Taint { taint: Arc::from(taint.to_string()) } });
    }
    if !selected(shape, node) {
        return Err(Misfit::Selector);
    }
    if reaches_volumes(shape, node) { Ok(()) } else { Err(Misfit::Volume) }
}

/// The first taint of a node that keeps a pod of this shape away.
#[must_use]
pub fn untolerated<'a>(shape: &Shape, node: &'a Node) -> Option<&'a Taint> {
    node.taints.iter().find(|taint| !tolerated(taint, &shape.tolerations))
}

/// Every resource of which too little is free for one more pod, `pods`, `cpu`, `memory` and `ephemeral-storage` first as
/// kube-scheduler names them, the others by name. Looks at nothing but resources.
#[must_use]
pub fn insufficient(shape: &Shape, node: &Node, usage: &Usage) -> Vec<ResourceName> {
    short(shape, node, usage).cloned().collect()
}

/// The resources that are short, in kube-scheduler's order. A request of zero is never short, even on an over-committed
/// node: `Resources` holds no zero entries, and a negative request cannot pass the API server.
fn short<'a>(shape: &'a Shape, node: &'a Node, usage: &'a Usage) -> impl Iterator<Item = &'a ResourceName> {
    let core = [PODS, CPU, MEMORY, EPHEMERAL_STORAGE];
    let is_core = move |name: &ResourceName| core.contains(&name.as_str());
    let named = core.into_iter().filter_map(|name| shape.requests.iter().find(|(entry, _)| entry.as_str() == name));
    let others = shape.requests.iter().filter(move |(name, _)| !is_core(name));
    named
        .chain(others)
        .filter(|(name, request)| *request > 0 && *request > free(node, usage, name))
        .map(|(name, _)| name)
}

fn free(node: &Node, usage: &Usage, resource: &ResourceName) -> i64 {
    free_of(&node.allocatable, &usage.requested, resource.as_str())
}

/// What is left of a resource.
pub(crate) fn free_of(allocatable: &Resources, requested: &Resources, name: &str) -> i64 {
    if is_unlimited(allocatable, name) {
        return i64::MAX;
    }
    allocatable.get(name).saturating_sub(requested.get(name))
}

/// Whether these are volumes of a driver for which the node names no limit.
pub(crate) fn is_unlimited(allocatable: &Resources, name: &str) -> bool {
    name.starts_with(ATTACHABLE_VOLUMES) && allocatable.get(name) == 0
}

fn tolerates_cordon(tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| tolerates(toleration, UNSCHEDULABLE_TAINT, "", TaintEffect::NoSchedule))
}

/// Whether the taint keeps no pod away, or is tolerated.
#[must_use]
pub fn tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    match taint.effect {
        TaintEffect::PreferNoSchedule => true,
        TaintEffect::NoSchedule | TaintEffect::NoExecute => {
            tolerations.iter().any(|toleration| tolerates(toleration, &taint.key, &taint.value, taint.effect))
        }
    }
}

/// Whether the node has a taint with the effect `PreferNoSchedule` that pods of the shape do not tolerate.
pub(crate) fn soft_taint(shape: &Shape, node: &Node) -> bool {
    let soft = |taint: &&Taint| taint.effect == TaintEffect::PreferNoSchedule;
    let mut taints = node.taints.iter().filter(soft);
    taints.any(|taint| !shape.tolerations.iter().any(|one| tolerates(one, &taint.key, &taint.value, taint.effect)))
}

/// Whether node selector and required node affinity of the shape match the node.
pub(crate) fn selected_by(shape: &Shape, node: &Node) -> bool {
    selected(shape, node)
}

/// Whether the shape tolerates every taint of the node that keeps pods away.
pub(crate) fn tolerates_all(shape: &Shape, node: &Node) -> bool {
    node.taints.iter().all(|taint| tolerated(taint, &shape.tolerations))
}

/// `Toleration.ToleratesTaint`: an empty key matches every key whatever the operator; validation alone keeps `Equal` with
/// an empty key out of a cluster.
fn tolerates(toleration: &Toleration, key: &str, value: &str, effect: TaintEffect) -> bool {
    toleration.effect.is_none_or(|tolerated| tolerated == effect)
        && (toleration.key.is_empty() || &*toleration.key == key)
        && (toleration.exists || &*toleration.value == value)
}

fn selected(shape: &Shape, node: &Node) -> bool {
    shape.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        && shape.node_affinity.as_ref().is_none_or(|terms| terms.iter().any(|term| term_matches(term, node)))
}

/// Whether every volume of the pod can be reached from the node.
#[must_use]
pub fn reaches_volumes(shape: &Shape, node: &Node) -> bool {
    shape.volumes.iter().all(|terms| terms.iter().any(|term| term_matches(term, node)))
}

/// A term without requirements matches nothing, and so does one with a single malformed requirement: kube-scheduler
/// drops the whole term then, so `NotIn` with a malformed value must not count as a match.
pub(crate) fn term_matches(term: &SelectorTerm, node: &Node) -> bool {
    if term.expressions.is_empty() && term.fields.is_empty() {
        return false;
    }
    term.expressions.iter().all(well_formed)
        && term.expressions.iter().all(|requirement| requirement.matches(&node.labels))
        && term.fields.iter().all(|requirement| field_matches(requirement, node))
}

/// Fields know `In` and `NotIn` with exactly one value; anything else is malformed, and drops the term.
fn field_matches(requirement: &Requirement, node: &Node) -> bool {
    let [value] = requirement.values.as_slice() else { return false };
    // Any other field reads as empty, as in kube-scheduler.
    let field = if &*requirement.key == NAME_FIELD { node.name.as_str() } else { "" };
    match requirement.operator {
        Operator::In => &**value == field,
        Operator::NotIn => &**value != field,
        Operator::Exists | Operator::DoesNotExist | Operator::Gt | Operator::Lt | Operator::Unknown => false,
    }
}

/// The checks of `labels.NewRequirement` on operator and values. Values must be valid label values for every operator,
/// which makes `Gt` with a negative bound malformed.
fn well_formed(requirement: &Requirement) -> bool {
    let values = &requirement.values;
    let count = match requirement.operator {
        Operator::In | Operator::NotIn => !values.is_empty(),
        Operator::Exists | Operator::DoesNotExist => values.is_empty(),
        Operator::Gt | Operator::Lt => values.len() == 1 && values.iter().all(|value| value.parse::<i64>().is_ok()),
        Operator::Unknown => false,
    };
    count && values.iter().all(|value| is_label_value(value))
}

/// Ports of the new pod among themselves are not compared: two containers may declare the same host port, and
/// kube-scheduler lets the kubelet find out.
pub(crate) fn ports_free(wanted: &[HostPort], used: &[HostPort]) -> bool {
    !wanted.iter().any(|port| used.iter().any(|other| conflict(port, other)))
}

fn conflict(one: &HostPort, other: &HostPort) -> bool {
    let (one_ip, other_ip) = (address(one), address(other));
    one.port == other.port
        && protocol(one) == protocol(other)
        && (one_ip == other_ip || one_ip == ANY_ADDRESS || other_ip == ANY_ADDRESS)
}

fn address(port: &HostPort) -> &str {
    if port.ip.is_empty() { ANY_ADDRESS } else { &port.ip }
}

fn protocol(port: &HostPort) -> &str {
    if port.protocol.is_empty() { "TCP" } else { &port.protocol }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unschedulable => f.write_str("cordoned"),
            Self::NotReady => f.write_str("not ready"),
            Self::Taint { taint } => write!(f, "untolerated taint {taint}"),
            Self::Held => f.write_str("held for another gang"),
            Self::Selector => f.write_str("node selector or affinity does not match"),
            Self::Volume => f.write_str("a volume of the pod cannot be reached from there"),
            Self::Port => f.write_str("host port taken"),
            Self::Insufficient { resource } => write!(f, "insufficient {resource}"),
            Self::Occupied => f.write_str("taken by a pod that the members keep apart from"),
            Self::Shared => f.write_str("in a domain that cannot be the gang's alone"),
        }
    }
}
