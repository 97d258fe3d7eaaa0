//! The objects conventions read beside pods: owners, and groups that pods name.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_core::model::gang::Owner;
use serde_json::Value;

/// A kind that some convention reads. Muster watches those that the cluster serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `batch/v1` Job.
    Job,
    /// `apps/v1` StatefulSet.
    StatefulSet,
    /// JobSet.
    JobSet,
    /// Kubeflow Trainer v2.
    TrainJob,
    /// LeaderWorkerSet.
    LeaderWorkerSet,
    /// scheduler-plugins coscheduling.
    CoschedulingPodGroup,
    /// Kueue.
    KueueWorkload,
    /// Kubeflow training-operator v1.
    PyTorchJob,
    /// Kubeflow training-operator v1.
    TfJob,
    /// Kubeflow training-operator v1.
    XgBoostJob,
    /// Kubeflow training-operator v1.
    PaddleJob,
    /// Kubeflow training-operator v1.
    JaxJob,
    /// MPI operator.
    MpiJob,
    /// KubeRay.
    RayCluster,
    /// Kubernetes 1.36 and later.
    NativePodGroup,
    /// Kubernetes 1.35.
    NativeWorkload,
    /// Volcano.
    VolcanoPodGroup,
    /// Volcano.
    VolcanoJob,
    /// KAI scheduler.
    KaiPodGroup,
    /// Koordinator, and the old name of coscheduling's group.
    KoordinatorPodGroup,
    /// Grove.
    GrovePodGang,
}

/// What kubectl writes down of an object it applied.
const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The fields of a Job that conventions read.
const JOB_FIELDS: [&str; 6] =
    ["backoffLimit", "backoffLimitPerIndex", "completionMode", "completions", "parallelism", "podFailurePolicy"];

/// How a kind is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// API group.
    pub group: &'static str,
    /// Versions that are understood, best first.
    pub versions: &'static [&'static str],
    /// Kind.
    pub kind: &'static str,
    /// Resource name.
    pub plural: &'static str,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::Job,
        Self::StatefulSet,
        Self::JobSet,
        Self::TrainJob,
        Self::LeaderWorkerSet,
        Self::CoschedulingPodGroup,
        Self::KueueWorkload,
        Self::PyTorchJob,
        Self::TfJob,
        Self::XgBoostJob,
        Self::PaddleJob,
        Self::JaxJob,
        Self::MpiJob,
        Self::RayCluster,
        Self::NativePodGroup,
        Self::NativeWorkload,
        Self::VolcanoPodGroup,
        Self::VolcanoJob,
        Self::KaiPodGroup,
        Self::KoordinatorPodGroup,
        Self::GrovePodGang,
    ];

    /// How it is reached.
    #[must_use]
    pub fn served(self) -> Served {
        let (group, versions, kind, plural): (_, &'static [&'static str], _, _) = match self {
            Self::Job => ("batch", &["v1"], "Job", "jobs"),
            Self::StatefulSet => ("apps", &["v1"], "StatefulSet", "statefulsets"),
            Self::JobSet => ("jobset.x-k8s.io", &["v1alpha2"], "JobSet", "jobsets"),
            Self::TrainJob => ("trainer.kubeflow.org", &["v1alpha1"], "TrainJob", "trainjobs"),
            Self::LeaderWorkerSet => ("leaderworkerset.x-k8s.io", &["v1"], "LeaderWorkerSet", "leaderworkersets"),
            Self::CoschedulingPodGroup => ("scheduling.x-k8s.io", &["v1alpha1"], "PodGroup", "podgroups"),
            Self::KueueWorkload => ("kueue.x-k8s.io", &["v1beta2", "v1beta1"], "Workload", "workloads"),
            Self::PyTorchJob => ("kubeflow.org", &["v1"], "PyTorchJob", "pytorchjobs"),
            Self::TfJob => ("kubeflow.org", &["v1"], "TFJob", "tfjobs"),
            Self::XgBoostJob => ("kubeflow.org", &["v1"], "XGBoostJob", "xgboostjobs"),
            Self::PaddleJob => ("kubeflow.org", &["v1"], "PaddleJob", "paddlejobs"),
            Self::JaxJob => ("kubeflow.org", &["v1"], "JAXJob", "jaxjobs"),
            Self::MpiJob => ("kubeflow.org", &["v2beta1", "v1"], "MPIJob", "mpijobs"),
            Self::RayCluster => ("ray.io", &["v1", "v1alpha1"], "RayCluster", "rayclusters"),
            Self::NativePodGroup => ("scheduling.k8s.io", &["v1beta1", "v1alpha2"], "PodGroup", "podgroups"),
            Self::NativeWorkload => ("scheduling.k8s.io", &["v1alpha1"], "Workload", "workloads"),
            Self::VolcanoPodGroup => ("scheduling.volcano.sh", &["v1beta1"], "PodGroup", "podgroups"),
            Self::VolcanoJob => ("batch.volcano.sh", &["v1alpha1"], "Job", "jobs"),
            Self::KaiPodGroup => ("scheduling.run.ai", &["v2alpha2"], "PodGroup", "podgroups"),
            Self::KoordinatorPodGroup => ("scheduling.sigs.k8s.io", &["v1alpha1"], "PodGroup", "podgroups"),
            Self::GrovePodGang => ("scheduler.grove.io", &["v1alpha1"], "PodGang", "podgangs"),
        };
        Served { group, versions, kind, plural }
    }

    /// The kind of an owner reference or object, whatever its version.
    #[must_use]
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Self::ALL.into_iter().find(|one| one.served().kind == kind && one.served().group == group)
    }
}

/// One object of such a kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// Group and version it was read in.
    pub api_version: Arc<str>,
    /// Metadata.
    pub metadata: ObjectMeta,
    /// `spec`, as it was written.
    pub spec: Value,
}

impl Object {
    /// Reads an object of a known kind from JSON; `None` for any other.
    #[must_use]
    pub fn read(object: &Value) -> Option<Self> {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let kind = Kind::of(text("apiVersion"), text("kind"))?;
        let metadata = serde_json::from_value(object.get("metadata").cloned().unwrap_or_default()).ok()?;
        let spec = object.get("spec").cloned().unwrap_or_default();
        Some(Self { kind, api_version: Arc::from(text("apiVersion")), metadata, spec })
    }

    /// Without what no convention reads: a cluster may have tens of thousands of Jobs that are no gangs, each with a whole pod
    /// template, and a status that changes with every pod.
    #[must_use]
    pub fn slim(mut self) -> Self {
        self.metadata.managed_fields = None;
        self.metadata.resource_version = None;
        self.metadata.generation = None;
        if let Some(annotations) = &mut self.metadata.annotations {
            annotations.remove(APPLIED);
        }
        if self.kind == Kind::Job
            && let Value::Object(spec) = &mut self.spec
        {
            // Nearly every Job says that it is not suspended.
            spec.retain(|field, value| {
                JOB_FIELDS.contains(&field.as_str()) || field == "suspend" && *value == Value::Bool(true)
            });
        }
        self
    }

    /// Whether it asks for no pods any more: it is suspended, as Kueue does to whom it preempts, or scaled to none.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let is = |pointer: &str| self.spec.pointer(pointer).and_then(Value::as_bool) == Some(true);
        let scaled = match self.kind {
            Kind::Job => self.number("/parallelism"),
            Kind::StatefulSet | Kind::LeaderWorkerSet => self.number("/replicas"),
            _other => None,
        };
        is("/suspend") || is("/runPolicy/suspend") || scaled == Some(0)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// A reference to it.
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner {
            api_version: Arc::clone(&self.api_version),
            kind: Arc::from(self.kind.served().kind),
            name: Arc::from(self.name()),
            uid: Arc::from(self.metadata.uid.as_deref().unwrap_or_default()),
        }
    }

    /// What a person calls it.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{} {}", self.kind.served().kind, self.name())
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// A field of the spec by JSON pointer.
    pub(super) fn text(&self, pointer: &str) -> Option<&str> {
        self.spec.pointer(pointer)?.as_str()
    }

    /// A number of the spec that is not negative.
    pub(super) fn number(&self, pointer: &str) -> Option<u32> {
        number(&self.spec, pointer)
    }
}

/// A number at a JSON pointer that is not negative.
pub(super) fn number(value: &Value, pointer: &str) -> Option<u32> {
    u32::try_from(value.pointer(pointer)?.as_u64()?).ok()
}

/// The objects that are known.
pub trait Objects {
    /// An object by UID.
    fn by_uid(&self, uid: &str) -> Option<&Object>;
    /// An object by kind, namespace and name.
    fn by_name(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Object>;
}

/// What a recognition depends on: when it appears or changes, the pod is recognised again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ref {
    /// An owner.
    Uid(String),
    /// A group that pods name.
    Named(Kind, String, String),
}
