//! What is kept of Pod objects.

use k8s_openapi::api::core::v1::{NodeSelectorTerm, Pod, PodSpec, Toleration};
use muster_api::convert::required_terms;

/// Lists of a member that the patches of its release replace, whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lists {
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Terms of required node affinity.
    pub terms: Vec<NodeSelectorTerm>,
}

impl Lists {
    /// Those of a pod; `None` where all are empty.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.clone()).unwrap_or_default();
        let lists = Self { tolerations, terms: required_terms(pod).to_vec() };
        (lists != Self::default()).then_some(lists)
    }
}

/// Only what recognition reads: pods are kept for as long as they exist.
pub(super) fn slim(pod: Pod) -> Pod {
    let mut metadata = pod.metadata;
    metadata.managed_fields = None;
    let spec = pod.spec.map(|spec| PodSpec {
        scheduler_name: spec.scheduler_name,
        workload_ref: spec.workload_ref,
        ..PodSpec::default()
    });
    Pod { metadata, spec, status: None }
}

/// What an event names it by, and what its topology constraints are read from.
pub(super) fn constrained(pod: &Pod) -> Pod {
    let mut metadata = pod.metadata.clone();
    metadata.managed_fields = None;
    // A status that nobody reads is a new version too.
    metadata.resource_version = None;
    let spec = pod.spec.as_ref().map(|spec| PodSpec {
        affinity: spec.affinity.clone(),
        topology_spread_constraints: spec.topology_spread_constraints.clone(),
        ..PodSpec::default()
    });
    Pod { metadata, spec, status: None }
}
