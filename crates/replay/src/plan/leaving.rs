//! Pods on nodes that go: each will need another place, and is planned as if it waited for one already.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use muster_api::{convert, keys};
use muster_core::fit;
use muster_core::model::names::PodUid;
use muster_core::model::node::{Node, Taint, TaintEffect};

use super::Cluster;
use crate::dump::Dump;
use crate::gangs::Known;

/// The pods of no gang, as far as that is known, that have to leave their node: it is being deleted or has the taint
/// `muster.dev/disrupted`, which they do not tolerate, and nothing keeps them there. A pod that is terminating already comes back
/// only if a StatefulSet makes it again.
///
/// `all`: every pod of the dump and whether it has ended, by which budgets without a status are computed.
pub(super) fn leaving(others: &[Known], all: &[(Arc<Pod>, bool)], cluster: &Cluster, dump: &Dump) -> BTreeSet<PodUid> {
    // EC2 takes these, whatever a budget says.
    let instances = dump.batches.iter().filter_map(|batch| batch.status.as_ref());
    let instances = instances.flat_map(|status| status.instances.iter().chain(&status.replaced));
    let ends = instances.filter(|one| one.loss.as_ref().is_some_and(|loss| loss.deadline.is_some()));
    let ends: BTreeSet<&str> = ends.filter_map(|one| one.node.as_deref()).collect();
    let leaves = |known: &&Known| {
        let core = &known.core;
        let node = core.node.as_ref().and_then(|name| cluster.node(name));
        let goes = node.and_then(|node| taint(node)).is_some_and(|taint| {
            let tolerations = core.shape.as_ref().map(|shape| &shape.tolerations);
            !tolerations.is_ok_and(|tolerations| fit::tolerated(&taint, tolerations))
        });
        goes && core.membership.gang().is_none() && !core.daemon && !core.ended && may_go(known, all, dump, &ends)
    };
    others.iter().filter(leaves).map(|known| known.core.uid.clone()).collect()
}

/// What keeps new pods off a node that goes; `None`: it stays.
fn taint(node: &Node) -> Option<Taint> {
    let disrupted = node.taints.iter().find(|taint| &*taint.key == keys::DISRUPTED).cloned();
    let is_to_come = || Taint { key: keys::DISRUPTED.into(), value: "".into(), effect: TaintEffect::NoSchedule };
    disrupted.or_else(|| node.deleting.then(is_to_come))
}

fn may_go(known: &Known, all: &[(Arc<Pod>, bool)], dump: &Dump, ends: &BTreeSet<&str>) -> bool {
    let (core, pod) = (&known.core, &known.object);
    if core.deleting {
        let owners = pod.metadata.owner_references.iter().flatten();
        return owners.into_iter().any(|owner| owner.kind == "StatefulSet" && owner.controller == Some(true));
    }
    // The eviction API asks no budget for a pod that has not begun.
    let begins = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending");
    if begins || core.node.as_ref().is_some_and(|node| ends.contains(node.as_str())) {
        return true;
    }
    let concerned: Vec<&PodDisruptionBudget> = dump.budgets.iter().filter(|budget| concerns(budget, pod)).collect();
    match concerned.as_slice() {
        [] => true,
        [budget] => lets_go(budget, pod, all),
        // It refuses a pod of two budgets.
        _ => false,
    }
}

fn concerns(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let empty = std::collections::BTreeMap::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&empty);
    budget.metadata.namespace == pod.metadata.namespace && convert::selects(selector, labels)
}

/// Whether the eviction API would let the pod go as far as this budget is concerned. One that is not Ready may go where the others
/// are as many as they have to be, or always if the budget says so.
fn lets_go(budget: &PodDisruptionBudget, pod: &Pod, all: &[(Arc<Pod>, bool)]) -> bool {
    let Health { allowed, healthy, desired } = health(budget, all);
    let policy = budget.spec.as_ref().and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
    let enough = healthy >= desired && desired > 0;
    allowed > 0 || !is_ready(pod) && (enough || policy == Some("AlwaysAllow"))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// How the pods of a budget fare.
struct Health {
    /// Evictions that are allowed.
    allowed: i64,
    healthy: i64,
    desired: i64,
}

/// As the status of the budget says, else by the pods of the dump.
fn health(budget: &PodDisruptionBudget, all: &[(Arc<Pod>, bool)]) -> Health {
    // One that the controller has not looked at yet says nothing.
    let looked_at = |status: &&PodDisruptionBudgetStatus| {
        status.observed_generation.is_some() || status.expected_pods > 0 || status.disruptions_allowed > 0
    };
    if let Some(status) = budget.status.as_ref().filter(looked_at) {
        return Health {
            allowed: status.disruptions_allowed.into(),
            healthy: status.current_healthy.into(),
            desired: status.desired_healthy.into(),
        };
    }
    let counted = || all.iter().filter(|(pod, ended)| !ended && concerns(budget, pod)).map(|(pod, _)| pod);
    let expected = i64::try_from(counted().count()).unwrap_or(i64::MAX);
    let healthy = counted().filter(|pod| is_ready(pod)).count();
    let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
    let spec = budget.spec.clone().unwrap_or_default();
    let desired = match (&spec.min_available, &spec.max_unavailable) {
        (Some(least), _) => scaled(least, expected),
        (None, Some(most)) => (expected - scaled(most, expected)).max(0),
        (None, None) => 0,
    };
    Health { allowed: healthy - desired, healthy, desired }
}

/// A number, or a percentage of the pods, rounded up as the disruption controller does.
fn scaled(amount: &IntOrString, of: i64) -> i64 {
    match amount {
        IntOrString::Int(number) => i64::from(*number),
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(100);
            (of.saturating_mul(percent) + 99).div_euclid(100)
        }
    }
}
