//! Kubernetes objects as core types: what kube-scheduler v1.37 reads from a Node and a Pod, and nothing else.
//!
//! Planner, checker and extender all read a cluster through these functions, so a mistake here is one that none of them
//! can find. The end-to-end suite compares the outcome with the real kube-scheduler.
//!
//! Three things decide where a pod fits but stand in no Pod: what admission adds to a template that is no pod yet (a
//! RuntimeClass's overhead, a LimitRange's defaults), extended resources that a DeviceClass provides, and volumes. The
//! first two are not seen (kube-scheduler may then differ), the last are added by [`crate::volumes`].

pub mod constraints;
pub mod ordinary;
mod pin;
mod requests;
pub(crate) mod selectors;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1 as k8s;
use muster_core::devices::{self, Daemon};
use muster_core::model::names::NodeName;
use muster_core::model::node::{Node, Taint, TaintEffect, Usage};
use muster_core::model::pod::{HostPort, Shape};
use muster_core::model::units::QuantityError;
use thiserror::Error;

pub use self::constraints::neighbour;
pub use self::pin::{pin, pinned_node, required_terms, without_pin};
pub use self::selectors::{is_of_held, of_held, selects};
use crate::keys;

/// An object that the API server would not have accepted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("read {field}")]
pub struct ConvertError {
    /// Path of the field in the object, `spec.containers[0].resources.requests[cpu]`.
    pub field: String,
    /// What is wrong with its value; names it.
    pub source: QuantityError,
}

/// A Node as core sees it.
///
/// Errors: an amount in `status.allocatable` that is no quantity.
pub fn node(node: &k8s::Node) -> Result<Node, ConvertError> {
    let spec = node.spec.as_ref();
    let status = node.status.as_ref();
    let metadata = &node.metadata;
    let mut taints: Vec<Taint> =
        spec.and_then(|spec| spec.taints.as_ref()).into_iter().flatten().filter_map(taint).collect();
    let cordoned = spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
    let hold = metadata.annotations.as_ref().and_then(|all| all.get(keys::HOLD));
    if let Some(uid) = hold {
        // Ours is for one gang: whoever tolerates that passes. Without the cordon, which somebody has lifted, it is so still.
        taints.retain(|taint| *taint.key != *keys::UNSCHEDULABLE && *taint.key != *keys::GANG_PENDING);
        let (key, value) = (keys::GANG_PENDING.into(), uid.as_str().into());
        taints.push(Taint { key, value, effect: TaintEffect::NoSchedule });
    }
    Ok(Node {
        name: NodeName::from(metadata.name.as_deref().unwrap_or_default()),
        labels: shared(metadata.labels.as_ref()),
        taints,
        allocatable: requests::allocatable(status.and_then(|status| status.allocatable.as_ref()))?,
        memory: requests::memory(status.and_then(|status| status.capacity.as_ref())),
        unschedulable: cordoned && hold.is_none(),
        held: cordoned && hold.is_some(),
        ready: status
            .and_then(|status| status.conditions.as_ref())
            .is_some_and(|all| all.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")),
        deleting: metadata.deletion_timestamp.is_some(),
        provider_id: spec.and_then(|spec| spec.provider_id.as_deref()).map(Arc::from),
        created: metadata.creation_timestamp.as_ref().map(|created| created.0),
    })
}

/// The shape of a pod, whether it has a node or not. Its status plays no part: equal pods have equal shapes. What a release pinned it
/// to is part of it; who reads a member takes that away ([`without_pin`]).
///
/// Errors: a request, limit or overhead that is no quantity.
pub fn shape_of_pod(pod: &k8s::Pod) -> Result<Shape, ConvertError> {
    let empty = k8s::PodSpec::default();
    shape(
        pod.metadata.namespace.as_deref().unwrap_or_default(),
        pod.metadata.labels.as_ref().unwrap_or(&BTreeMap::new()),
        pod.spec.as_ref().unwrap_or(&empty),
    )
}

/// The shape of the pods that a template in `namespace` will make, with the defaults the API server gives to pods.
///
/// Errors: a request, limit or overhead that is no quantity.
pub fn shape_of_template(namespace: &str, template: &k8s::PodTemplateSpec) -> Result<Shape, ConvertError> {
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    let empty = k8s::PodSpec::default();
    shape(namespace, labels.unwrap_or(&BTreeMap::new()), template.spec.as_ref().unwrap_or(&empty))
}

/// A DaemonSet with the shape of its pods; `None` if they cannot be read, or if it goes.
///
/// Taints of their own they tolerate by their template; those that the controller adds are for conditions of a node that is
/// not ready.
#[must_use]
pub fn daemon(set: &DaemonSet) -> Option<Daemon> {
    if set.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let template = &set.spec.as_ref()?.template;
    let shape = shape_of_template(namespace, template).ok()?;
    let containers = template.spec.iter().flat_map(|pod| &pod.containers);
    let images: Vec<&str> = containers.filter_map(|container| container.image.as_deref()).collect();
    let name = set.metadata.name.clone().unwrap_or_default();
    // Whoever may create DaemonSets elsewhere must not say how many pods nodes take.
    let is_network = namespace == "kube-system" && name == "aws-node";
    let prefixes = is_network && template.spec.as_ref().is_some_and(gives_prefixes);
    Some(Daemon { namespace: namespace.to_owned(), role: devices::role(&name, &images), name, prefixes, shape })
}

/// Whether the pods are those of the VPC network that give their node prefixes of addresses.
///
/// Source: `ENABLE_PREFIX_DELEGATION` of amazon-vpc-cni-k8s, which reads it as Go reads a bool. A value that comes from elsewhere
/// is not known.
fn gives_prefixes(spec: &k8s::PodSpec) -> bool {
    let network = spec.containers.iter().filter(|container| container.name == "aws-node");
    let mut variables = network.flat_map(|container| container.env.iter().flatten());
    let is_set = |value: &str| matches!(value, "1" | "t" | "T" | "TRUE" | "true" | "True");
    variables.any(|one| one.name == "ENABLE_PREFIX_DELEGATION" && one.value.as_deref().is_some_and(is_set))
}

/// The shape of a pod with this namespace, these labels and this spec.
///
/// What kube-scheduler treats alike becomes equal: lists whose order has no meaning are sorted.
///
/// Errors: a request, limit or overhead that is no quantity.
pub fn shape(namespace: &str, labels: &BTreeMap<String, String>, spec: &k8s::PodSpec) -> Result<Shape, ConvertError> {
    let mut ports = host_ports(spec);
    ports.sort();
    ports.dedup();
    let apart = constraints::anti_affinity(namespace, labels, spec);
    let mut unsupported: Vec<Arc<str>> =
        constraints::unmodelled(spec, apart).into_iter().map(|constraint| Arc::from(constraint.as_str())).collect();
    unsupported.sort();
    unsupported.dedup();
    Ok(Shape {
        requests: requests::effective(spec, None)?,
        node_selector: shared(spec.node_selector.as_ref()),
        node_affinity: selectors::required_terms(spec),
        tolerations: selectors::tolerations(spec),
        ports,
        one_per_node: apart == constraints::AntiAffinity::SelfByHostname,
        volumes: Vec::new(),
        together: constraints::together(namespace, labels, spec),
        apart: constraints::apart(namespace, labels, spec),
        unsupported,
    })
}

/// Whether the pod holds capacity on a node: it has one, and has not finished. A terminating pod holds its capacity until it is
/// gone. A pod that is only nominated holds none here; the caller counts those separately.
#[must_use]
pub fn holds_capacity(pod: &k8s::Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    assigned_node(pod).is_some() && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// The node a pod is bound to.
#[must_use]
pub fn assigned_node(pod: &k8s::Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// What one pod holds on its node, whether it [`holds_capacity`] or not. During an in-place resize that is the largest of
/// what is wanted, allocated and in use, as for kube-scheduler.
///
/// Errors: an amount that is no quantity.
pub fn usage(pod: &k8s::Pod) -> Result<Usage, ConvertError> {
    let Some(spec) = &pod.spec else { return Ok(Usage::default()) };
    Ok(Usage { requested: requests::effective(spec, pod.status.as_ref())?, ports: host_ports(spec), own_shape_pods: 0 })
}

/// What the pods of one node hold together; those that hold no capacity are excluded.
///
/// Errors: an amount that is no quantity.
pub fn usage_of<'a>(pods: impl IntoIterator<Item = &'a k8s::Pod>) -> Result<Usage, ConvertError> {
    let mut sum = Usage::default();
    for pod in pods.into_iter().filter(|pod| holds_capacity(pod)) {
        let one = usage(pod)?;
        sum.requested.add(&one.requested);
        sum.ports.extend(one.ports);
    }
    Ok(sum)
}

/// `Usage::own_shape_pods` for `pod` on a node with `pods`: how many there, holding capacity, must not stand beside it.
pub fn own_shape_pods<'a>(pod: &k8s::Pod, pods: impl IntoIterator<Item = &'a k8s::Pod>) -> u32 {
    let own = neighbour(pod);
    let count = pods.into_iter().filter(|other| holds_capacity(other) && own.keeps_apart(&neighbour(other))).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Host ports of the containers that run as long as the pod does: regular ones and sidecars.
fn host_ports(spec: &k8s::PodSpec) -> Vec<HostPort> {
    let host_network = spec.host_network.unwrap_or(false);
    let sidecars = spec.init_containers.iter().flatten().filter(|container| requests::is_sidecar(container));
    sidecars
        .chain(&spec.containers)
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            // The API server gives every port of a pod on the host's network its container port.
            let default = if host_network { port.container_port } else { 0 };
            let number = port.host_port.filter(|port| *port != 0).unwrap_or(default);
            (number > 0).then(|| HostPort {
                ip: Arc::from(non_empty(port.host_ip.as_deref(), "0.0.0.0")),
                protocol: Arc::from(non_empty(port.protocol.as_deref(), "TCP")),
                port: number,
            })
        })
        .collect()
}

fn non_empty<'a>(text: Option<&'a str>, default: &'a str) -> &'a str {
    text.filter(|text| !text.is_empty()).unwrap_or(default)
}

/// `None` for an effect that kube-scheduler does not act on.
pub(crate) fn taint(taint: &k8s::Taint) -> Option<Taint> {
    Some(Taint {
        key: Arc::from(taint.key.as_str()),
        value: Arc::from(taint.value.as_deref().unwrap_or_default()),
        effect: effect(&taint.effect)?,
    })
}

/// As the API server has it.
pub(crate) fn write_taint(taint: &Taint) -> k8s::Taint {
    k8s::Taint {
        key: taint.key.to_string(),
        value: (!taint.value.is_empty()).then(|| taint.value.to_string()),
        effect: taint.effect.to_string(),
        time_added: None,
    }
}

fn effect(text: &str) -> Option<TaintEffect> {
    match text {
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => None,
    }
}

fn shared(map: Option<&BTreeMap<String, String>>) -> BTreeMap<Arc<str>, Arc<str>> {
    map.into_iter().flatten().map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str()))).collect()
}

/// Keeps `spec.schedulingGroup` of Kubernetes 1.36 and later in a pod that is to be read with older types.
#[must_use]
pub fn keep_scheduling_group(mut pod: serde_json::Value) -> serde_json::Value {
    let name = pod.pointer("/spec/schedulingGroup/podGroupName").and_then(serde_json::Value::as_str);
    if let Some(name) = name.map(str::to_owned)
        && let Some(metadata) = pod.get_mut("metadata").and_then(serde_json::Value::as_object_mut)
    {
        let annotations = metadata.entry("annotations").or_insert_with(|| serde_json::json!({}));
        if annotations.is_null() {
            *annotations = serde_json::json!({});
        }
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(crate::keys::SCHEDULING_GROUP.to_owned(), name.into());
        }
    }
    pod
}
