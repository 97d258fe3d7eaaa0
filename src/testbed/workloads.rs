//! Builders of pods and Jobs for tests and the demo.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::{
    Container, Pod, PodSchedulingGate, PodSpec, PodTemplateSpec, ResourceRequirements, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::ObjectMeta;
use muster_api::keys;

use crate::testbed::nodes::{EFA, GPU};

/// Pod annotation: kwok completes the pod after this Go duration; without it pods run for ever.
///
/// Like every key of Muster's own it opts a Job in as a gang when it is on the Job's template.
pub const DEMO_COMPLETE_AFTER: &str = "muster.dev/demo-complete-after";
/// Pod annotation: the exit code with which [`DEMO_COMPLETE_AFTER`] ends the pod, default 0.
pub const DEMO_EXIT_CODE: &str = "muster.dev/demo-exit-code";
/// Pod annotation: kwok refuses the bound pod with this reason, e.g. `OutOfnvidia.com/gpu`.
pub const DEMO_REFUSE: &str = "muster.dev/demo-refuse";

/// What a pod asks for: by default one container of 1 CPU and 1 GiB, for Muster's profile.
#[derive(Clone, Debug)]
struct Shape {
    scheduler: String,
    annotations: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    requests: BTreeMap<String, Quantity>,
    tolerations: Vec<Toleration>,
    node_selector: BTreeMap<String, String>,
    gates: Vec<PodSchedulingGate>,
    priority_class: Option<String>,
}

/// A pod to be.
#[derive(Clone, Debug)]
pub struct TestPod {
    name: String,
    shape: Shape,
}

/// An Indexed Job to be: as many completions as members at a time.
#[derive(Clone, Debug)]
pub struct TestJob {
    name: String,
    members: u16,
    annotations: BTreeMap<String, String>,
    backoff_limit: i32,
    ignores_disruptions: bool,
    shape: Shape,
}

/// The settings that a pod and the template of a Job share.
macro_rules! shape_setters {
    () => {
        /// For the profile of this name.
        #[must_use]
        pub fn scheduler(mut self, name: &str) -> Self {
            self.shape.scheduler = name.to_owned();
            self
        }

        /// With this many GPUs; 0 leaves the resource out.
        #[must_use]
        pub fn gpus(mut self, count: u32) -> Self {
            self.shape.device(GPU, count);
            self
        }

        /// With this many EFA interfaces; 0 leaves the resource out.
        #[must_use]
        pub fn efa(mut self, count: u32) -> Self {
            self.shape.device(EFA, count);
            self
        }

        /// Requests this much, e.g. `("cpu", "500m")`; limits are set for extended resources only.
        #[must_use]
        pub fn request(mut self, name: &str, quantity: &str) -> Self {
            self.shape.requests.insert(name.to_owned(), Quantity(quantity.to_owned()));
            self
        }

        /// With this label on the pod.
        #[must_use]
        pub fn label(mut self, key: &str, value: &str) -> Self {
            self.shape.labels.insert(key.to_owned(), value.to_owned());
            self
        }

        /// Tolerates every taint with this key.
        #[must_use]
        pub fn tolerates(mut self, key: &str) -> Self {
            self.shape.tolerations.push(Toleration {
                key: Some(key.to_owned()),
                operator: Some("Exists".to_owned()),
                ..Toleration::default()
            });
            self
        }

        /// Only on nodes with this label.
        #[must_use]
        pub fn on(mut self, label: &str, value: &str) -> Self {
            self.shape.node_selector.insert(label.to_owned(), value.to_owned());
            self
        }

        /// With this scheduling gate from the start, as in clusters without the admission policy.
        #[must_use]
        pub fn gate(mut self, name: &str) -> Self {
            self.shape.gates.push(PodSchedulingGate { name: name.to_owned() });
            self
        }

        /// Of this priority class.
        #[must_use]
        pub fn priority_class(mut self, name: &str) -> Self {
            self.shape.priority_class = Some(name.to_owned());
            self
        }
    };
}

impl TestPod {
    /// A pod named `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), shape: Shape::new() }
    }

    shape_setters!();

    /// With this annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.shape.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// The object, to be created in any namespace.
    pub fn build(self) -> Pod {
        let template = self.shape.template("Always");
        Pod {
            metadata: ObjectMeta { name: Some(self.name), ..template.metadata.unwrap_or_default() },
            spec: template.spec,
            status: None,
        }
    }
}

impl TestJob {
    /// A Job named `name` of `members` pods.
    pub fn new(name: impl Into<String>, members: u16) -> Self {
        Self {
            name: name.into(),
            members,
            annotations: BTreeMap::new(),
            backoff_limit: 6,
            ignores_disruptions: false,
            shape: Shape::new(),
        }
    }

    shape_setters!();

    /// With this annotation on the Job only: a topology request that is read from the owner. The admission
    /// policy does not see it.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// With this annotation on the pod template.
    #[must_use]
    pub fn pod_annotation(mut self, key: &str, value: &str) -> Self {
        self.shape.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Fails after this many failed pods; 6 by default, as in Kubernetes.
    #[must_use]
    pub fn backoff_limit(mut self, limit: u16) -> Self {
        self.backoff_limit = i32::from(limit);
        self
    }

    /// A pod that is evicted by a disruption is no failure of the Job, which makes another at once.
    #[must_use]
    pub fn ignores_disruptions(mut self) -> Self {
        self.ignores_disruptions = true;
        self
    }

    /// The object, to be created in any namespace.
    pub fn build(self) -> Job {
        let ignore = PodFailurePolicy {
            rules: vec![PodFailurePolicyRule {
                action: "Ignore".to_owned(),
                on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
                    type_: "DisruptionTarget".to_owned(),
                    status: Some("True".to_owned()),
                }]),
                ..PodFailurePolicyRule::default()
            }],
        };
        Job {
            metadata: ObjectMeta {
                name: Some(self.name),
                annotations: Some(self.annotations),
                ..ObjectMeta::default()
            },
            spec: Some(JobSpec {
                completion_mode: Some("Indexed".to_owned()),
                completions: Some(i32::from(self.members)),
                parallelism: Some(i32::from(self.members)),
                backoff_limit: Some(self.backoff_limit),
                pod_failure_policy: self.ignores_disruptions.then_some(ignore),
                // Counted over all indices, the failures of one eviction make the Job wait ten minutes, ignored or not.
                backoff_limit_per_index: self.ignores_disruptions.then_some(1_000),
                template: self.shape.template("Never"),
                ..JobSpec::default()
            }),
            status: None,
        }
    }
}

impl Shape {
    fn new() -> Self {
        Self {
            scheduler: keys::SCHEDULER_NAME.to_owned(),
            annotations: BTreeMap::new(),
            labels: BTreeMap::new(),
            requests: BTreeMap::from([
                ("cpu".to_owned(), Quantity("1".to_owned())),
                ("memory".to_owned(), Quantity("1Gi".to_owned())),
            ]),
            tolerations: Vec::new(),
            node_selector: BTreeMap::new(),
            gates: Vec::new(),
            priority_class: None,
        }
    }

    fn device(&mut self, name: &str, count: u32) {
        if count == 0 {
            self.requests.remove(name);
        } else {
            self.requests.insert(name.to_owned(), Quantity(count.to_string()));
        }
    }

    fn template(self, restart_policy: &str) -> PodTemplateSpec {
        // The API server wants equal requests and limits of extended resources, whose names are
        // those with a domain.
        let limits: BTreeMap<String, Quantity> = self
            .requests
            .iter()
            .filter(|(name, _)| name.contains('/'))
            .map(|(name, quantity)| (name.clone(), quantity.clone()))
            .collect();
        PodTemplateSpec {
            metadata: Some(ObjectMeta {
                annotations: Some(self.annotations),
                labels: Some(self.labels),
                ..ObjectMeta::default()
            }),
            spec: Some(PodSpec {
                scheduler_name: Some(self.scheduler),
                restart_policy: Some(restart_policy.to_owned()),
                tolerations: Some(self.tolerations),
                node_selector: Some(self.node_selector),
                scheduling_gates: if self.gates.is_empty() { None } else { Some(self.gates) },
                priority_class_name: self.priority_class,
                termination_grace_period_seconds: Some(1),
                containers: vec![Container {
                    name: "main".to_owned(),
                    image: Some("train".to_owned()),
                    resources: Some(ResourceRequirements {
                        requests: Some(self.requests),
                        limits: Some(limits),
                        ..ResourceRequirements::default()
                    }),
                    ..Container::default()
                }],
                ..PodSpec::default()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_runs_all_its_members_at_once_and_keeps_the_owners_topology_requests_off_the_pods() {
        let job = TestJob::new("train", 8)
            .gpus(8)
            .annotation(keys::TOPOLOGY_REQUIRED, "zone")
            .pod_annotation(keys::GANG, "train")
            .build();
        assert_eq!(job.metadata.annotations.unwrap().len(), 1);
        let spec = job.spec.unwrap();
        assert_eq!((spec.completions, spec.parallelism), (Some(8), Some(8)));
        assert_eq!(spec.template.metadata.unwrap().annotations.unwrap()[keys::GANG], "train");
        let resources = spec.template.spec.unwrap().containers.remove(0).resources.unwrap();
        assert_eq!(resources.limits.unwrap().keys().collect::<Vec<_>>(), [GPU]);
    }
}
