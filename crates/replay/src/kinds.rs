//! The kinds of objects that play a part in planning: what a dump keeps and what is listed live.

use muster_api::conventions::{self, Served};
use muster_api::keys;

/// A kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Versions to list it in, best first; a dump may have another one.
    pub versions: &'static [&'static str],
    /// Kind.
    pub kind: &'static str,
    /// Name in URLs.
    pub plural: &'static str,
    /// Whether its objects have a namespace.
    pub namespaced: bool,
}

const fn kind(
    group: &'static str,
    versions: &'static [&'static str],
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
) -> Kind {
    Kind { group, versions, kind, plural, namespaced }
}

/// Those that are read field by field. Secrets and ConfigMaps are none.
pub const KINDS: [Kind; 22] = [
    kind("", &["v1"], "Node", "nodes", false),
    kind("", &["v1"], "Pod", "pods", true),
    kind("", &["v1"], "Namespace", "namespaces", false),
    kind("", &["v1"], "PersistentVolumeClaim", "persistentvolumeclaims", true),
    kind("", &["v1"], "PersistentVolume", "persistentvolumes", false),
    kind("storage.k8s.io", &["v1"], "StorageClass", "storageclasses", false),
    kind("storage.k8s.io", &["v1"], "CSINode", "csinodes", false),
    kind("resource.k8s.io", &["v1"], "DeviceClass", "deviceclasses", false),
    kind("resource.k8s.io", &["v1"], "ResourceSlice", "resourceslices", false),
    kind("resource.k8s.io", &["v1"], "ResourceClaim", "resourceclaims", true),
    kind("resource.k8s.io", &["v1"], "ResourceClaimTemplate", "resourceclaimtemplates", true),
    kind("", &["v1"], "PodTemplate", "podtemplates", true),
    kind("apps", &["v1"], "DaemonSet", "daemonsets", true),
    kind("batch", &["v1"], "Job", "jobs", true),
    kind("scheduling.k8s.io", &["v1"], "PriorityClass", "priorityclasses", false),
    kind(keys::GROUP, &["v1alpha1"], "NodePool", "nodepools", false),
    kind(keys::GROUP, &["v1alpha1"], "EC2NodeClass", "ec2nodeclasses", false),
    kind(keys::GROUP, &["v1alpha1"], "NodeBatch", "nodebatches", false),
    kind(keys::GROUP, &["v1alpha1"], "Gang", "gangs", true),
    kind("trainer.kubeflow.org", &["v1alpha1"], "ClusterTrainingRuntime", "clustertrainingruntimes", false),
    kind("trainer.kubeflow.org", &["v1alpha1"], "TrainingRuntime", "trainingruntimes", true),
    kind("autoscaling.x-k8s.io", &["v1"], "ProvisioningRequest", "provisioningrequests", true),
];

/// One that is read if a dump has it, and is not listed of a running cluster.
const BUDGETS: Kind = kind("policy", &["v1"], "PodDisruptionBudget", "poddisruptionbudgets", true);

/// Kinds that matter to pods which do not exist yet, of whose templates a dump may know. The server reads pods alone, and has no
/// permission to list them.
const OF_TEMPLATES: [&str; 3] = ["clustertrainingruntimes", "priorityclasses", "trainingruntimes"];

/// The kind with this group and name.
#[must_use]
pub fn find(group: &str, name: &str) -> Option<&'static Kind> {
    KINDS.iter().chain([&BUDGETS]).find(|kind| kind.group == group && kind.kind == name)
}

/// Everything that is listed of a running cluster: those, and the owners and groups by which gangs are recognised.
pub fn listed() -> impl Iterator<Item = Kind> {
    let owner = |owner: conventions::Kind| {
        let Served { group, versions, kind, plural } = owner.served();
        Kind { group, versions, kind, plural, namespaced: true }
    };
    let owners = conventions::Kind::ALL.into_iter().map(owner).filter(|kind| find(kind.group, kind.kind).is_none());
    KINDS.into_iter().chain(owners)
}

/// What `muster serve` lists of them for its page.
pub fn of_server() -> impl Iterator<Item = Kind> {
    listed().filter(|kind| !OF_TEMPLATES.contains(&kind.plural))
}
