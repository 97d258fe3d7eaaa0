//! The real Kueue admits Jobs through ProvisioningRequests of our class.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use muster::testbed::workloads::TestJob;
use muster::testbed::{Kueue, Stack, eventually, repository};
use muster_api::crd::{NodeBatch, ProvisioningRequest, is_true};
use muster_api::keys;
use muster_ec2_sim::Scenario;
use serde_json::{Value, json};

use crate::cloud::{
    batch_that, delete_job, everything_is_terminated, journal, launched_fleets, node_names, phase_of,
    provisioning_stack,
};
use crate::support::{DEADLINE, all_run, members, no_errors, node_of, submit};

/// EC2's minutes pass in seconds, a booking of ten minutes in one.
const FACTOR: u32 = 10;
/// A gate of somebody else that keeps the pods from being planned.
const HOLD: &str = "example.com/hold";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kueue_admits_a_job_through_a_provisioning_request_and_again_after_the_batch_was_replaced_before_use() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), FACTOR, "1s").await else { return };
    let client = stack.admin().unwrap();
    let kueue = Kueue::ensure(&repository(), |line| eprintln!("{line}")).await.unwrap();
    kueue.start(&stack.cluster).await.unwrap_or_else(|error| panic!("{error}"));
    queue(&client).await;

    submit(&client, "ml", queued("first", None)).await;

    let pods = all_run(&stack, "ml", "first", 8).await;
    let request = request_of(&stack, "first").await;
    let uid = request.uid().unwrap();
    assert!(is_true(&request.status.clone().unwrap_or_default().conditions, "Provisioned"));
    for pod in &pods {
        let selector = pod.spec.clone().unwrap_or_default().node_selector.unwrap_or_default();
        assert_eq!(selector.get(keys::BOOKING), Some(&uid), "Kueue pins the pods to the booking");
        assert_eq!(pod.annotations()[keys::CONSUME_PROVISIONING_REQUEST], request.name_any());
    }
    assert_eq!(pods.iter().filter_map(node_of).collect::<BTreeSet<_>>(), node_names(&stack).await);
    assert_eq!(launched_fleets(&journal(&stack, 0).await).len(), 1, "the booked nodes and no others");
    delete_job(&stack, "first").await;
    everything_is_terminated(&stack).await;

    submit(&client, "ml", queued("second", Some(HOLD))).await;
    held(&stack, "second").await;
    let booked = request_of(&stack, "second").await;
    let batch = batch_that(&stack, "the booked batch", |batch| phase_of(batch) == "Ready").await;
    Api::<NodeBatch>::all(client.clone()).delete(&batch.name_any(), &DeleteParams::default()).await.unwrap();
    let replaced = batch_that(&stack, "a batch of the second round", |other| {
        phase_of(other) == "Ready" && other.name_any() != batch.name_any()
    })
    .await;
    assert_eq!(replaced.spec.provisioning_request_ref, batch.spec.provisioning_request_ref);
    let_go(&client, "second").await;

    let pods = all_run(&stack, "ml", "second", 8).await;

    assert_eq!(pods.iter().filter_map(node_of).collect::<BTreeSet<_>>(), node_names(&stack).await);
    assert!(ids(&batch).is_disjoint(&ids(&replaced)), "other machines than those that were lost");
    assert_eq!(launched_fleets(&journal(&stack, 0).await).len(), 3, "one for the first, two for the second");
    let now = request_of(&stack, "second").await;
    assert_eq!(now.uid(), booked.uid(), "the same request, and so the same booking");
    assert_eq!(now.status.unwrap_or_default().provisioning_class_details["NodeBatch"], replaced.name_any());
    delete_job(&stack, "second").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

fn ids(batch: &NodeBatch) -> BTreeSet<String> {
    batch.status.iter().flat_map(|status| &status.instances).map(|instance| instance.id.clone()).collect()
}

/// A Job for Kueue's queue, with a gate of somebody else on its pods.
fn queued(name: &str, gate: Option<&str>) -> Job {
    let mut job = TestJob::new(name, 8).gpus(8).pod_annotation("muster.dev/gang", name);
    if let Some(gate) = gate {
        job = job.gate(gate);
    }
    let mut job = job.build();
    job.metadata.labels = Some([("kueue.x-k8s.io/queue-name".to_owned(), "training".to_owned())].into());
    job
}

/// A queue whose Jobs are admitted once Muster has provisioned their nodes.
async fn queue(client: &Client) {
    let objects = [
        ("ResourceFlavor", "gpu", None, json!({})),
        (
            "ProvisioningRequestConfig",
            "muster",
            None,
            json!({
                "provisioningClassName": keys::PROVISIONING_CLASS,
                "managedResources": [keys::NVIDIA_GPU],
                "podSetUpdates": {"nodeSelector": [
                    {"key": keys::BOOKING, "valueFromProvisioningClassDetail": "BookingUID"},
                ]},
            }),
        ),
        (
            "AdmissionCheck",
            "nodes",
            None,
            json!({
                "controllerName": "kueue.x-k8s.io/provisioning-request",
                "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "muster"},
            }),
        ),
        (
            "ClusterQueue",
            "training",
            None,
            json!({
                "namespaceSelector": {},
                "resourceGroups": [{
                    "coveredResources": ["cpu", "memory", keys::NVIDIA_GPU],
                    "flavors": [{"name": "gpu", "resources": [
                        {"name": "cpu", "nominalQuota": "1000"},
                        {"name": "memory", "nominalQuota": "1000Gi"},
                        {"name": keys::NVIDIA_GPU, "nominalQuota": "64"},
                    ]}],
                }],
                "admissionChecksStrategy": {"admissionChecks": [{"name": "nodes"}]},
            }),
        ),
        ("LocalQueue", "training", Some("ml"), json!({"clusterQueue": "training"})),
    ];
    for (kind, name, namespace, spec) in objects {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", kind));
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let object = DynamicObject::new(name, &resource).data(json!({"spec": spec}));
        api.create(&PostParams::default(), &object).await.unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
}

/// The ProvisioningRequest that Kueue made for a Job, once it is provisioned.
async fn request_of(stack: &Stack, job: &str) -> ProvisioningRequest {
    let requests = &Api::<ProvisioningRequest>::namespaced(stack.admin().unwrap(), "ml");
    let prefix = &format!("job-{job}-");
    eventually(DEADLINE, &format!("a provisioned request of {job}"), || async move {
        let seen = requests.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let found = seen.iter().find(|request| {
            let status = request.status.clone().unwrap_or_default();
            request.name_any().starts_with(prefix) && is_true(&status.conditions, "Provisioned")
        });
        found.cloned().map(Some).ok_or_else(|| format!("{:?}", seen.iter().map(|r| &r.status).collect::<Vec<_>>()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)))
}

/// Waits until Kueue has admitted the Job: all its pods are there, behind the foreign gate.
async fn held(stack: &Stack, job: &str) {
    let client = &stack.admin().unwrap();
    eventually(DEADLINE, "Kueue to let the Job make its pods", || async move {
        let pods = members(client, "ml", job).await;
        Ok::<_, String>((pods.len() == 8).then_some(()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

/// Drops the foreign gate.
async fn let_go(client: &Client, job: &str) {
    let api: Api<Pod> = Api::namespaced(client.clone(), "ml");
    for pod in members(client, "ml", job).await {
        let gates = pod.spec.clone().unwrap_or_default().scheduling_gates.unwrap_or_default();
        let kept: Vec<Value> =
            gates.iter().filter(|gate| gate.name != HOLD).map(|gate| json!({"name": gate.name})).collect();
        let patch = json!({"spec": {"schedulingGates": kept}});
        api.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }
}
