//! The gangs of a wave, by who makes their pods: Jobs, a Job of a JobSet, a StatefulSet, and a LeaderWorkerSet whose
//! controller is played here.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use kube::{Api, Client};
use muster::testbed::Stack;
use muster::testbed::workloads::{TestJob, TestPod};
use muster_api::conventions::Kind;
use serde_json::json;
use tokio::task::JoinHandle;

use super::faults::Fault;
use super::view::RUN;
use crate::conventions::make;
use crate::support::submit;

/// One gang to be, and what happens to it.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) name: String,
    pub(super) size: u16,
    /// More members than one leaf holds, all of them inside one: it can never run.
    pub(super) impossible: bool,
    pub(super) maker: Maker,
    pub(super) faults: Vec<Fault>,
}

/// Who makes the pods of a gang, and makes them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    Job,
    JobSet,
    LeaderWorkerSet,
    StatefulSet,
}

impl Run {
    /// Name of its Gang, up to the digest at the end.
    pub(super) fn gang(&self) -> String {
        match self.maker {
            Maker::LeaderWorkerSet => format!("{}-0", self.name),
            Maker::Job | Maker::JobSet | Maker::StatefulSet => self.name.clone(),
        }
    }

    /// Name of its Job, if a Job makes the pods.
    pub(super) fn job(&self) -> Option<String> {
        match self.maker {
            Maker::Job => Some(self.name.clone()),
            Maker::JobSet => Some(format!("{}-w-0", self.name)),
            Maker::LeaderWorkerSet | Maker::StatefulSet => None,
        }
    }

    /// Makes its objects. The answer plays its controller for as long as it is kept.
    pub(super) async fn begin(&self, stack: &Stack) -> Option<Controller> {
        let client = stack.admin().unwrap();
        let job =
            |name: &str| TestJob::new(name, self.size).gpus(8).ignores_disruptions().pod_annotation(RUN, &self.name);
        match self.maker {
            Maker::Job => {
                let job = job(&self.name).pod_annotation("muster.dev/gang", &self.name);
                let inside = |job: TestJob| job.pod_annotation("muster.dev/topology-required", "layer-3");
                submit(&client, "ml", if self.impossible { inside(job) } else { job }.build()).await;
                None
            }
            Maker::JobSet => {
                let pods = json!({"parallelism": self.size, "completions": self.size, "completionMode": "Indexed"});
                let spec = json!({"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": pods}}]});
                let uid = make(stack, Kind::JobSet, &self.name, &spec).await;
                let mut job = job(&format!("{}-w-0", self.name))
                    .label("jobset.sigs.k8s.io/jobset-name", &self.name)
                    .label("jobset.sigs.k8s.io/replicatedjob-name", "w")
                    .label("jobset.sigs.k8s.io/job-index", "0")
                    .build();
                job.metadata.owner_references = serde_json::from_value(json!([{
                    "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": self.name, "uid": uid,
                    "controller": true,
                }]))
                .unwrap();
                submit(&client, "ml", job).await;
                None
            }
            Maker::StatefulSet => {
                let sets: Api<StatefulSet> = Api::namespaced(client, "ml");
                sets.create(&PostParams::default(), &self.stateful_set()).await.unwrap();
                None
            }
            Maker::LeaderWorkerSet => {
                let spec = json!({"replicas": 1, "leaderWorkerTemplate": {"size": self.size}});
                make(stack, Kind::LeaderWorkerSet, &self.name, &spec).await;
                Some(Controller(tokio::spawn(keep(client, self.clone()))))
            }
        }
    }

    /// Deletes its objects; its pods and Gang follow.
    pub(super) async fn end(&self, client: &Client) -> Result<(), kube::Error> {
        let background = DeleteParams::background();
        if let Some(job) = self.job() {
            Api::<Job>::namespaced(client.clone(), "ml").delete(&job, &background).await?;
        }
        let kind = match self.maker {
            Maker::Job => return Ok(()),
            Maker::StatefulSet => {
                let sets: Api<StatefulSet> = Api::namespaced(client.clone(), "ml");
                return sets.delete(&self.name, &background).await.map(|_| ());
            }
            Maker::JobSet => Kind::JobSet.served(),
            Maker::LeaderWorkerSet => Kind::LeaderWorkerSet.served(),
        };
        let gvk = GroupVersionKind::gvk(kind.group, kind.versions[0], kind.kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural);
        let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), "ml", &resource);
        objects.delete(&self.name, &background).await?;
        if self.maker == Maker::LeaderWorkerSet {
            let pods: Api<Pod> = Api::namespaced(client.clone(), "ml");
            for index in 0..self.size {
                match pods.delete(&self.group_pod(index), &DeleteParams::default()).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    deleted => drop(deleted?),
                }
            }
        }
        Ok(())
    }

    fn group_pod(&self, index: u16) -> String {
        format!("{}-0-{index}", self.name)
    }

    fn stateful_set(&self) -> StatefulSet {
        let labels = json!({"app": self.name});
        serde_json::from_value(json!({
            "metadata": {"name": self.name},
            "spec": {
                "replicas": self.size, "podManagementPolicy": "Parallel", "serviceName": self.name,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels, "annotations": {"muster.dev/gang": self.name, RUN: self.name}},
                    "spec": {
                        "schedulerName": "muster", "terminationGracePeriodSeconds": 1,
                        "containers": [{
                            "name": "main", "image": "store", "resources": {"limits": {"nvidia.com/gpu": "8"}},
                        }],
                    },
                },
            },
        }))
        .unwrap()
    }
}

/// A controller that is played until it is dropped.
#[derive(Debug)]
pub(super) struct Controller(JoinHandle<()>);

impl Controller {
    /// Ends it: afterwards it makes no more pods.
    pub(super) async fn stop(mut self) {
        self.0.abort();
        let _ = (&mut self.0).await;
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// LeaderWorkerSet's controllers: a pod that is not there is made, one that failed is made again.
async fn keep(client: Client, run: Run) {
    let pods: Api<Pod> = Api::namespaced(client, "ml");
    let mut tick = tokio::time::interval(Duration::from_millis(500));
    loop {
        tick.tick().await;
        for index in 0..run.size {
            let name = run.group_pod(index);
            let failed = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Failed");
            // The API server is killed now and then: the next look is soon.
            match pods.get_opt(&name).await {
                Ok(None) => {
                    let pod = TestPod::new(&name)
                        .gpus(8)
                        .label("leaderworkerset.sigs.k8s.io/name", &run.name)
                        .label("leaderworkerset.sigs.k8s.io/group-index", "0")
                        .label("leaderworkerset.sigs.k8s.io/worker-index", &index.to_string())
                        .annotation("leaderworkerset.sigs.k8s.io/size", &run.size.to_string())
                        .annotation(RUN, &run.name)
                        .build();
                    let _ = pods.create(&PostParams::default(), &pod).await;
                }
                Ok(Some(pod)) if failed(&pod) => drop(pods.delete(&name, &DeleteParams::default()).await),
                Ok(Some(_)) | Err(_) => {}
            }
        }
    }
}
