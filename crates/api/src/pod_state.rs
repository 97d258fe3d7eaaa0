//! From Pod objects to core's pods.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use muster_core::model::attached::Attached;
use muster_core::model::gang::{Foreign, Membership, Pod as State, Sentence};
use muster_core::model::names::{NodeName, ObjectKey, PodUid};
use muster_core::model::node::Usage;
use muster_core::model::pod::Neighbour;

use crate::{conventions, convert, keys};

/// Who schedules a pod that names nobody: the API server fills it in, and a pod that was written by hand may lack it.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Priority classes that every cluster has, of pods it cannot do without.
const SYSTEM_CLASSES: [&str; 2] = ["system-cluster-critical", "system-node-critical"];
/// Priorities from here on belong to the system: users may not define classes above 1,000,000,000.
const SYSTEM_PRIORITY: i32 = 2_000_000_000;

/// The DaemonSet that a pod names as its controller. Anybody who may write pods may write one: whether it exists in the
/// pod's namespace is for the caller to find out.
#[must_use]
pub fn daemon_set(pod: &Pod) -> Option<&OwnerReference> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.find(|owner| {
        owner.controller == Some(true) && owner.kind == "DaemonSet" && owner.api_version.starts_with("apps/")
    })
}

/// Whether a pod stands for one that the kubelet of its node runs by itself: it is assigned to that node from the start.
fn is_mirror(pod: &Pod) -> bool {
    let Some(node) = convert::assigned_node(pod) else { return false };
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.kind == "Node" && owner.api_version == "v1" && owner.name == node)
}

/// Whether one of these profiles schedules a pod.
#[must_use]
pub fn is_scheduled_by(pod: &Pod, names: &[String]) -> bool {
    let scheduler = |spec: &PodSpec| {
        let named = spec.scheduler_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(DEFAULT_SCHEDULER);
        names.iter().any(|name| name == named)
    };
    pod.spec.as_ref().is_some_and(scheduler)
}

/// Whether a pod that none of our profiles schedules is of one that is provisioned for too. Pods that belong to their node get no
/// node of their own, whether or not their DaemonSet is known: who names one without need is the only one to lose by it.
#[must_use]
pub fn is_foreign(pod: &Pod, scheduler_names: &[String], provisioned: &[String]) -> bool {
    let of_its_node = |owner: &OwnerReference| owner.kind == "Node" && owner.api_version == "v1";
    is_scheduled_by(pod, provisioned)
        && !is_scheduled_by(pod, scheduler_names)
        && daemon_set(pod).is_none()
        && !pod.metadata.owner_references.iter().flatten().any(of_its_node)
}

/// What a pod of another scheduler's profile that is provisioned for would be if the profile were ours, and what it is: nobody holds
/// its gang together, and of whom owners may say more nothing is known yet.
#[must_use]
pub fn foreign(would_be: &Membership) -> Foreign {
    match would_be {
        Membership::Unknown => Foreign::Other,
        Membership::Single => Foreign::Provisioned,
        Membership::Member { .. } => Foreign::OfGang,
    }
}

/// Reads a Pod object, without its volumes. What it needs is an error text where a quantity cannot be read. Whether its DaemonSet is known and
/// its owner would make it again, and what it is to the provisioner if its profile is not ours, the caller adds.
#[must_use]
pub fn read(pod: &Pod, membership: Membership, scheduler_names: &[String]) -> State {
    let metadata = &pod.metadata;
    let spec = pod.spec.as_ref();
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let annotations = metadata.annotations.as_ref();
    let gates = spec.and_then(|spec| spec.scheduling_gates.as_deref()).unwrap_or_default();
    // Only members are released: whoever wrote the annotation on any other pod has pinned it for a reason of their own.
    let pinned = convert::pinned_node(pod).filter(|_| membership != Membership::Single);
    let shape = convert::shape_of_pod(pod).map(|shape| match &pinned {
        Some(node) => convert::without_pin(shape, node),
        None => shape,
    });
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let unscheduled =
        conditions.and_then(|all| all.iter().find(|c| c.type_ == "PodScheduled" && c.status == "False")).map(|c| {
            (Arc::from(c.reason.as_deref().unwrap_or_default()), Arc::from(c.message.as_deref().unwrap_or_default()))
        });
    let shown = conditions.and_then(|all| all.iter().find(|one| one.type_ == keys::POD_CONDITION));
    State {
        uid: PodUid::from(metadata.uid.as_deref().unwrap_or_default()),
        key: ObjectKey::new(
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
        ),
        shape: shape.map(Arc::new).map_err(|error| Arc::from(describe(&error))),
        neighbour: Arc::new(Neighbour { constraints: convert::ordinary::constraints(pod), ..convert::neighbour(pod) }),
        held: Arc::new(convert::usage(pod).unwrap_or_default()),
        claims: Arc::default(),
        node: convert::assigned_node(pod).map(NodeName::from),
        nominated: status
            .and_then(|status| status.nominated_node_name.as_deref())
            .filter(|name| !name.is_empty())
            .map(NodeName::from),
        pinned,
        remade: false,
        ended: matches!(phase, "Succeeded" | "Failed"),
        succeeded: phase == "Succeeded",
        running: phase == "Running",
        deleting: metadata.deletion_timestamp.is_some(),
        gated: gates.iter().any(|gate| gate.name == keys::GATE),
        foreign_gate: gates.iter().find(|gate| gate.name != keys::GATE).map(|gate| Arc::from(gate.name.as_str())),
        plan_epoch: conventions::annotation_number(annotations, keys::PLAN_EPOCH),
        planned_node: annotations.and_then(|all| all.get(keys::PLANNED_NODE)).map(|node| NodeName::from(node.as_str())),
        requeued: conventions::annotation_number(annotations, keys::REQUEUE)
            .and_then(|micros| Timestamp::from_microsecond(i64::try_from(micros).ok()?).ok()),
        ours: is_scheduled_by(pod, scheduler_names),
        foreign: Foreign::default(),
        daemon: is_mirror(pod),
        critical: spec.is_some_and(|spec| {
            let class = spec.priority_class_name.as_deref().unwrap_or_default();
            SYSTEM_CLASSES.contains(&class) || spec.priority.is_some_and(|priority| priority >= SYSTEM_PRIORITY)
        }),
        not_admitted: status.filter(|_| phase == "Failed").and_then(not_admitted),
        priority: spec.and_then(|spec| spec.priority).unwrap_or(0),
        reported: shown.map(|c| Arc::from(c.reason.as_deref().unwrap_or_default())),
        sentence: shown.map(sentence),
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        unscheduled,
        membership,
    }
}

fn sentence(condition: &PodCondition) -> Sentence {
    Sentence {
        message: Arc::from(condition.message.as_deref().unwrap_or_default()),
        at: condition.last_transition_time.as_ref().map(|time| time.0),
    }
}

/// What a kubelet says that takes a pod no sooner on this node than before: devices that do not lie together, devices that
/// are broken or gone, capacity that something else takes. A pod that another refuses, as for a node selector, says nothing
/// of the node's devices.
fn not_admitted(status: &PodStatus) -> Option<Arc<str>> {
    let reason = status.reason.as_deref()?;
    let of_the_node =
        matches!(reason, "TopologyAffinityError" | "UnexpectedAdmissionError") || reason.starts_with("OutOf");
    of_the_node.then(|| match status.message.as_deref().filter(|message| !message.is_empty()) {
        Some(message) => Arc::from(format!("{reason}: {message}")),
        None => Arc::from(reason),
    })
}

fn describe(error: &convert::ConvertError) -> String {
    format!("{error}: {}", error.source)
}

/// What pods hold together on the node they share.
#[must_use]
pub fn usage<'a>(pods: impl Iterator<Item = &'a State>) -> Usage {
    let mut sum = Usage::default();
    let mut attached = Attached::default();
    for pod in pods {
        sum.requested.add(&pod.held.requested);
        attached.come(pod, &pod.held.requested, &mut sum.requested);
        sum.ports.extend(pod.held.ports.iter().cloned());
    }
    sum
}
