//! The closed table of what keeps a pod from a node in kube-scheduler and is not in a shape.
//!
//! A gang with any of these is refused before anything of it is released: a plan made without them could be one that
//! kube-scheduler never carries out.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as k8s;
use muster_core::model::pod::{AntiAffinityTerm, DomainTerm, Neighbour, Shape, Together};
use muster_core::model::resources::DEVICE_CLASS;

use super::selectors::{label_requirements, selects};
use crate::keys;

/// The label by which a pod keeps to itself on a node.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Labels that the pods of one workload have, and nobody else.
const WORKLOADS: [&str; 8] = [
    keys::JOB_CONTROLLER_UID[0],
    keys::JOB_CONTROLLER_UID[1],
    keys::JOB_NAME[0],
    keys::JOB_NAME[1],
    "jobset.sigs.k8s.io/jobset-name",
    "leaderworkerset.sigs.k8s.io/group-key",
    "training.kubeflow.org/job-name",
    "ray.io/cluster",
];

/// A constraint that Muster does not model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unmodelled {
    /// `InterPodAffinity`: required affinity to other pods. Only who knows all members can keep that to the own workload.
    PodAffinity,
    /// `InterPodAffinity`: required anti-affinity beyond "no two of my own kind on a node".
    PodAntiAffinity,
    /// `PodTopologySpread`: `whenUnsatisfiable: DoNotSchedule`.
    TopologySpread,
    /// `DynamicResources`: claims, and requests that stand for one, until [`crate::dra`] has read them.
    ResourceClaims,
    /// `VolumeRestrictions`, `NodeVolumeLimits`: disks named in the pod itself.
    Disks,
    /// `NodeDeclaredFeatures`: something that only some kubelets can do.
    NodeFeatures,
}

impl Unmodelled {
    /// What `Shape::unsupported` says.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PodAffinity => Shape::POD_AFFINITY,
            Self::PodAntiAffinity => Shape::POD_ANTI_AFFINITY,
            Self::TopologySpread => "topologySpreadConstraints with DoNotSchedule",
            Self::ResourceClaims => "resourceClaims",
            Self::Disks => "disk volumes",
            Self::NodeFeatures => "features that only some kubelets have",
        }
    }
}

/// What a pod's required anti-affinity amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AntiAffinity {
    /// No term that can match anything.
    None,
    /// At most one such pod on a node.
    SelfByHostname,
    /// Anything else.
    Other,
}

/// Beside whom a pod may stand on its node.
///
/// Of a term's namespace selector only the empty one, which selects every namespace, is understood; any other counts as
/// selecting, since what Muster cannot tell must not be assigned.
/// Without the digest of its topology constraints.
#[must_use]
pub fn neighbour(pod: &k8s::Pod) -> Neighbour {
    let empty = k8s::PodSpec::default();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let (by_host, by_domain): (Vec<_>, Vec<_>) =
        anti_affinity_terms(pod.spec.as_ref().unwrap_or(&empty)).partition(|term| term.topology_key == HOSTNAME);
    let read = |term: &k8s::PodAffinityTerm| {
        // Without a selector a term selects nothing, and so keeps nothing away.
        let selector = label_requirements(term.label_selector.as_ref()?);
        let listed = term.namespaces.as_deref().filter(|names| !names.is_empty());
        let namespaces = match (&term.namespace_selector, listed) {
            (Some(_), _) => None,
            (None, Some(names)) => Some(names.iter().map(|name| Arc::from(name.as_str())).collect()),
            (None, None) => Some(vec![Arc::from(namespace)]),
        };
        Some(AntiAffinityTerm { namespaces, selector })
    };
    Neighbour {
        namespace: Arc::from(namespace),
        labels: super::shared(pod.metadata.labels.as_ref()),
        keeps_away: by_host.into_iter().filter_map(read).collect(),
        // A whole domain is not closed for what nobody knows: whom kube-scheduler refuses there is counted, and bounded.
        keeps_off: by_domain
            .into_iter()
            .filter(|term| term.namespace_selector.as_ref().is_none_or(|all| label_requirements(all).is_empty()))
            .filter_map(|term| Some(DomainTerm { key: Arc::from(term.topology_key.as_str()), term: read(term)? }))
            .collect(),
        constraints: None,
    }
}

/// Reads the required anti-affinity of a pod with this namespace and these labels.
pub(super) fn anti_affinity(namespace: &str, labels: &BTreeMap<String, String>, spec: &k8s::PodSpec) -> AntiAffinity {
    let mut found = AntiAffinity::None;
    // Without a selector a term selects nothing, and so keeps nothing away.
    for term in anti_affinity_terms(spec).filter(|term| term.label_selector.is_some()) {
        let own_namespace =
            term.namespace_selector.is_none() && term.namespaces.iter().flatten().all(|listed| listed == namespace);
        let own_kind = selects(term.label_selector.as_ref(), labels)
            && term.mismatch_label_keys.as_ref().is_none_or(Vec::is_empty);
        if term.topology_key != HOSTNAME || !own_namespace || !own_kind {
            return AntiAffinity::Other;
        }
        found = AntiAffinity::SelfByHostname;
    }
    found
}

/// Required pod affinity to the pods of the own workload; empty if there is any other.
///
/// A term counts if it selects the pod itself by a label that a controller gives to the pods of one workload alone.
pub(super) fn together(namespace: &str, labels: &BTreeMap<String, String>, spec: &k8s::PodSpec) -> Vec<Together> {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.pod_affinity.as_ref());
    let terms = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_deref());
    let own = |term| of_own_workload(namespace, labels, term);
    let mut found: Vec<Together> = terms.into_iter().flatten().map(own).collect::<Option<_>>().unwrap_or_default();
    found.sort();
    found.dedup();
    found
}

/// Required anti-affinity to the pods of the own workload in domains other than the node; empty if there is any other.
pub(super) fn apart(namespace: &str, labels: &BTreeMap<String, String>, spec: &k8s::PodSpec) -> Vec<Together> {
    let terms = anti_affinity_terms(spec).filter(|term| term.label_selector.is_some());
    let own = |term| of_own_workload(namespace, labels, term);
    let mut found: Vec<Together> = terms.map(own).collect::<Option<_>>().unwrap_or_default();
    // Whoever has a rack of its own has a node of its own.
    found.retain(|term| *term.key != *HOSTNAME);
    found.sort();
    found.dedup();
    found
}

/// A term that selects the pod itself by a label that a controller gives to the pods of one workload alone.
fn of_own_workload(
    namespace: &str,
    labels: &BTreeMap<String, String>,
    term: &k8s::PodAffinityTerm,
) -> Option<Together> {
    let selector = term.label_selector.as_ref()?;
    let own_namespace =
        term.namespace_selector.is_none() && term.namespaces.iter().flatten().all(|listed| listed == namespace);
    let own_kind = selects(Some(selector), labels) && term.mismatch_label_keys.as_ref().is_none_or(Vec::is_empty);
    let equal = |key: &str| selector.match_labels.as_ref().is_some_and(|all| all.contains_key(key));
    let listed = |key: &str| {
        selector.match_expressions.iter().flatten().any(|requirement| {
            let one = requirement.values.as_ref().is_some_and(|values| values.len() == 1);
            requirement.key == key && requirement.operator == "In" && one
        })
    };
    let (key, value) =
        WORKLOADS.iter().find_map(|key| Some((*key, labels.get(*key)?)).filter(|_| equal(key) || listed(key)))?;
    let workload = (Arc::from(key), Arc::from(value.as_str()));
    (own_namespace && own_kind).then(|| Together { key: Arc::from(term.topology_key.as_str()), workload })
}

/// Every constraint of the pod that is not modelled.
pub(super) fn unmodelled(spec: &k8s::PodSpec, anti_affinity: AntiAffinity) -> Vec<Unmodelled> {
    let mut found = Vec::new();
    let mut note = |present: bool, constraint| {
        if present {
            found.push(constraint);
        }
    };
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.pod_affinity.as_ref());
    note(
        affinity.is_some_and(|affinity| {
            affinity.required_during_scheduling_ignored_during_execution.as_ref().is_some_and(|terms| !terms.is_empty())
        }),
        Unmodelled::PodAffinity,
    );
    note(anti_affinity == AntiAffinity::Other, Unmodelled::PodAntiAffinity);
    note(
        spec.topology_spread_constraints
            .iter()
            .flatten()
            .any(|constraint| constraint.when_unsatisfiable != "ScheduleAnyway"),
        Unmodelled::TopologySpread,
    );
    note(
        spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty())
            || containers(spec).any(requests_device_class),
        Unmodelled::ResourceClaims,
    );
    note(spec.volumes.iter().flatten().any(is_disk), Unmodelled::Disks);
    let own_users = spec.host_users == Some(false) && spec.host_network == Some(true);
    note(own_users || containers(spec).any(restarts_all), Unmodelled::NodeFeatures);
    found
}

pub(super) fn anti_affinity_terms(spec: &k8s::PodSpec) -> impl Iterator<Item = &k8s::PodAffinityTerm> {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    affinity
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref())
        .into_iter()
        .flatten()
}

fn containers(spec: &k8s::PodSpec) -> impl Iterator<Item = &k8s::Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

fn requests_device_class(container: &k8s::Container) -> bool {
    let Some(resources) = &container.resources else { return false };
    [&resources.requests, &resources.limits]
        .into_iter()
        .flatten()
        .any(|list| list.keys().any(|name| name.starts_with(DEVICE_CLASS)))
}

fn restarts_all(container: &k8s::Container) -> bool {
    container.restart_policy_rules.iter().flatten().any(|rule| rule.action == "RestartAllContainers")
}

/// Volumes that only one pod may use, or that count against a node's limit.
fn is_disk(volume: &k8s::Volume) -> bool {
    volume.aws_elastic_block_store.is_some()
        || volume.azure_disk.is_some()
        || volume.cinder.is_some()
        || volume.gce_persistent_disk.is_some()
        || volume.iscsi.is_some()
        || volume.rbd.is_some()
        || volume.portworx_volume.is_some()
        || volume.vsphere_volume.is_some()
}
