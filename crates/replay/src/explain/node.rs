//! One node: who holds it, to whom it is assigned, and what it says to every gang.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_api::keys;
use muster_core::model::resources::Resources;
use serde::Serialize;

use super::{ExplainError, suggestion};
use crate::document::{MemberState, Outcome};
use crate::dump::Dump;
use crate::study::Study;

/// Everything there is to say about one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeExplanation {
    /// The moment it is planned for.
    pub now: Timestamp,
    /// Name.
    pub name: String,
    /// Condition `Ready`.
    pub ready: bool,
    /// Cordoned.
    pub unschedulable: bool,
    /// Being deleted.
    pub deleting: bool,
    /// Taints, as kubectl writes them.
    pub taints: Vec<String>,
    /// The gang or ProvisioningRequest whose node it is until it runs here, as `namespace/name`; null if it is held for
    /// none, or for one that is not there.
    pub held_for: Option<String>,
    /// Its domain per level, top to bottom: level and label, null without one.
    pub levels: Vec<(String, Option<String>)>,
    /// What it has, per resource; CPU in thousandths.
    pub allocatable: BTreeMap<String, i64>,
    /// What pods hold of it now.
    pub held: BTreeMap<String, i64>,
    /// What is left of it now.
    pub free: BTreeMap<String, i64>,
    /// Pods that hold capacity.
    pub pods: Vec<OnNode>,
    /// Members and pods that have capacity here by a plan: persisted ones, and those of this explanation.
    #[serde(rename = "promised")]
    pub assigned: Vec<Assignment>,
    /// What it says to every gang that is not placed whole already, in planning order.
    pub gangs: Vec<OfGang>,
}

/// A pod on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OnNode {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Its gang's object.
    pub gang: Option<String>,
    /// It is being deleted, and holds its capacity until it is gone.
    pub terminating: bool,
    /// Capacity made by kube-scheduler; it is not bound yet.
    pub nominated: bool,
    /// What it holds.
    pub requests: BTreeMap<String, i64>,
}

/// Capacity assigned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    /// Namespace.
    pub namespace: String,
    /// Gang; null for a pod of none.
    pub gang: Option<String>,
    /// Pod; null while there is none.
    pub pod: Option<String>,
    /// The plan is persisted in the Gang's status, not made for this explanation.
    pub persisted: bool,
}

/// What the node says to a gang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OfGang {
    /// Namespace.
    pub namespace: String,
    /// Gang.
    pub name: String,
    /// What becomes of the gang.
    pub outcome: Outcome,
    /// Members it could take when the gang was planned.
    pub slots: u32,
    /// Members planned here.
    pub used: usize,
    /// Why it is skipped; null if it is used.
    pub why: Option<String>,
}

/// Gangs and ProvisioningRequests by UID, as `namespace/name`.
pub(super) fn owners(dump: &Dump) -> BTreeMap<String, String> {
    let gangs = dump.gangs.iter().map(|gang| &gang.metadata);
    let requests = dump.requests.iter().map(|request| &request.metadata);
    let named = |metadata: &ObjectMeta| {
        let (namespace, name) = (metadata.namespace.as_deref()?, metadata.name.as_deref()?);
        Some((metadata.uid.clone()?, format!("{namespace}/{name}")))
    };
    gangs.chain(requests).filter_map(named).collect()
}

/// Explains a node.
///
/// Errors: no such node.
pub(super) fn explain(
    study: &Study,
    owners: &BTreeMap<String, String>,
    name: &str,
) -> Result<NodeExplanation, ExplainError> {
    let Some(facts) = &study.focus else {
        return Err(ExplainError::NotFound {
            what: "node",
            name: name.to_owned(),
            suggestion: suggestion(std::iter::empty()),
        });
    };
    let node = &facts.node;
    let mut free = node.allocatable.clone();
    free.subtract(&facts.held.requested);
    let labels = study.levels.as_slice().iter();
    let mut assigned: Vec<Assignment> = facts
        .assigned
        .iter()
        .map(|(gang, pod)| Assignment {
            namespace: gang.namespace.to_string(),
            gang: Some(gang.name.to_string()),
            pod: pod.clone(),
            persisted: true,
        })
        .collect();
    let known = |assigned: &[Assignment], namespace: &str, pod: Option<&String>| {
        assigned.iter().any(|one| one.persisted && one.namespace == namespace && one.pod.as_ref() == pod)
    };
    let mut gangs = Vec::new();
    for (entry, detail) in study.document.gangs.iter().zip(&study.details) {
        let here = entry.members.iter().filter(|member| member.node == name);
        let planned: Vec<_> = here.clone().filter(|member| member.state == MemberState::Planned).collect();
        for member in &planned {
            if !known(&assigned, &entry.namespace, member.pod.as_ref()) {
                assigned.push(Assignment {
                    namespace: entry.namespace.clone(),
                    gang: Some(entry.name.clone()),
                    pod: member.pod.clone(),
                    persisted: false,
                });
            }
        }
        let (slots, why) = match &detail.focus {
            None => continue,
            Some(Ok(slots)) => (*slots, skipped(entry.outcome, *slots)),
            Some(Err(misfit)) => (0, misfit.to_string()),
        };
        let used = here.count();
        gangs.push(OfGang {
            namespace: entry.namespace.clone(),
            name: entry.name.clone(),
            outcome: entry.outcome,
            slots,
            used,
            why: (used == 0).then_some(why),
        });
    }
    let single = study.document.pods.iter().filter(|pod| pod.node.as_deref() == Some(name));
    assigned.extend(single.map(|pod| Assignment {
        namespace: pod.namespace.clone(),
        gang: None,
        pod: Some(pod.name.clone()),
        persisted: false,
    }));
    Ok(NodeExplanation {
        now: study.document.now,
        name: name.to_owned(),
        ready: node.ready,
        unschedulable: node.unschedulable,
        deleting: node.deleting,
        taints: node.taints.iter().map(ToString::to_string).collect(),
        held_for: node
            .taints
            .iter()
            .find(|taint| &*taint.key == keys::GANG_PENDING)
            .and_then(|taint| owners.get(&*taint.value).cloned()),
        levels: labels
            .map(|level| (level.name.to_string(), node.labels.get(&level.key).map(ToString::to_string)))
            .collect(),
        allocatable: amounts(&node.allocatable),
        held: amounts(&facts.held.requested),
        free: amounts(&free),
        pods: facts
            .holders
            .iter()
            .map(|holder| OnNode {
                namespace: holder.namespace.clone(),
                name: holder.name.clone(),
                gang: holder.gang.clone(),
                terminating: holder.terminating,
                nominated: holder.nominated,
                requests: amounts(&holder.usage.requested),
            })
            .collect(),
        assigned,
        gangs,
    })
}

/// Why a node that has capacity is not used.
fn skipped(outcome: Outcome, slots: u32) -> String {
    let holds = format!("could take {slots}");
    match outcome {
        Outcome::Placed => format!("{holds}; the plan needs fewer domains without it"),
        Outcome::Provision => {
            format!("{holds}; together with the other nodes that is not enough, so nodes are provisioned")
        }
        Outcome::Waiting => format!("{holds}; the gang waits for something else"),
        Outcome::Refused | Outcome::Invalid => format!("{holds}; no domain that it is part of holds the whole gang"),
    }
}

fn amounts(resources: &Resources) -> BTreeMap<String, i64> {
    resources.iter().map(|(name, amount)| (name.as_str().to_owned(), amount)).collect()
}
