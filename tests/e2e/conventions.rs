//! Gangs as other systems write them, with slices, roles and elastic members. Where a system's controller is not there its
//! definition and objects are made by hand.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::{Api, ResourceExt};
use muster::testbed::workloads::{TestJob, TestPod};
use muster::testbed::{Stack, eventually};
use muster_api::conventions::Kind;
use muster_api::crd::Gang;
use muster_ec2_sim::Scenario;
use serde_json::{Value, json};

use crate::cloud::{instances, journal, launched_fleets, provisioning_stack};
use crate::support::{
    DEADLINE, all_run, gangs, leaves, node_of, options, phase, phase_within, runs, says, stack, submit,
};

/// Definitions are looked for every quarter of a minute.
const PROBED: Duration = Duration::from_secs(120);

/// Installs the definition of a kind with any fields.
pub(crate) async fn install(stack: &Stack, kind: Kind) {
    let served = kind.served();
    let (group, plural, version) = (served.group, served.plural, served.versions[0]);
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"),
            // The API server protects names below k8s.io.
            "annotations": {"api-approved.kubernetes.io": "unapproved, a fake for tests"},
        },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": served.kind, "plural": plural, "singular": served.kind.to_lowercase()},
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions: Api<DynamicObject> = Api::all_with(stack.admin().unwrap(), &ApiResource::from_gvk(&gvk));
    let object: DynamicObject = serde_json::from_value(definition).unwrap();
    definitions.create(&PostParams::default(), &object).await.unwrap();
}

/// Creates an object of such a kind in `ml`; the answer is its UID.
pub(crate) async fn make(stack: &Stack, kind: Kind, name: &str, spec: &Value) -> String {
    let served = kind.served();
    let gvk = GroupVersionKind::gvk(served.group, served.versions[0], served.kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, served.plural);
    let api: Api<DynamicObject> = Api::namespaced_with(stack.admin().unwrap(), "ml", &resource);
    let object = DynamicObject::new(name, &resource).data(json!({"spec": spec}));
    let (api, object, served) = (&api, &object, format!("{name} to be accepted"));
    eventually(DEADLINE, &served, || async move {
        match api.create(&PostParams::default(), object).await {
            Ok(made) => Ok(made.uid()),
            // The definition is not served yet.
            Err(error) => Err(error.to_string()),
        }
    })
    .await
    .unwrap()
}

async fn create(stack: &Stack, mut pod: Pod) {
    pod.metadata.namespace = Some("ml".to_owned());
    let pods: Api<Pod> = Api::namespaced(stack.admin().unwrap(), "ml");
    pods.create(&PostParams::default(), &pod).await.unwrap();
}

/// Nodes of all running pods of `ml` whose names begin so, once there are `count`.
async fn running(stack: &Stack, prefix: &str, count: usize) -> BTreeMap<String, String> {
    let pods: Api<Pod> = Api::namespaced(stack.admin().unwrap(), "ml");
    let (pods, what) = (&pods, format!("{count} pods {prefix}… to run"));
    eventually(DEADLINE, &what, || async move {
        let all = pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let all: Vec<Pod> = all.into_iter().filter(|pod| pod.name_any().starts_with(prefix)).collect();
        let found: BTreeMap<String, String> =
            all.iter().filter(|pod| runs(pod)).filter_map(|pod| Some((pod.name_any(), node_of(pod)?))).collect();
        if found.len() == count { Ok(Some(found)) } else { Err(format!("{} of {} run", found.len(), all.len())) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)))
}

fn leaf_of(node: &str) -> &str {
    node.split('-').next().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slices_of_an_indexed_job_stay_inside_their_leaf() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    // Leaves of three: six members fill two of them, which tears the second slice; slices need the third leaf.
    stack.create_nodes(leaves(&["a", "b", "c"], 3)).await.unwrap();
    let job = TestJob::new("train", 6)
        .gpus(8)
        .pod_annotation("muster.dev/gang", "train")
        .pod_annotation("muster.dev/slice-size", "2")
        .pod_annotation("muster.dev/slice-topology", "leaf")
        .build();
    submit(&stack.admin().unwrap(), "ml", job).await;

    let pods = all_run(&stack, "ml", "train", 6).await;

    let nodes: Vec<String> = pods.iter().filter_map(node_of).collect();
    for slice in nodes.chunks(2) {
        assert_eq!(leaf_of(&slice[0]), leaf_of(&slice[1]), "{nodes:?}");
    }
    let gang = phase(&stack, "ml", "train", "Bound").await;
    assert_eq!(gang.spec.topology_requests.slices.len(), 1);
}

/// A Job of a JobSet, as JobSet's controller makes it.
pub(crate) fn job_of(
    set: &str,
    uid: &str,
    role: &str,
    index: u16,
    pods: u16,
    gpus: u32,
) -> k8s_openapi::api::batch::v1::Job {
    let mut job = TestJob::new(format!("{set}-{role}-{index}"), pods)
        .gpus(gpus)
        .label("jobset.sigs.k8s.io/jobset-name", set)
        .label("jobset.sigs.k8s.io/replicatedjob-name", role)
        .label("jobset.sigs.k8s.io/job-index", &index.to_string())
        .build();
    job.metadata.owner_references = serde_json::from_value(json!([{
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": set, "uid": uid, "controller": true,
    }]))
    .unwrap();
    job
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jobset_that_is_installed_later_is_one_gang_of_leader_and_workers() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a", "b"], 4)).await.unwrap();
    install(&stack, Kind::JobSet).await;
    let replicated = |name: &str, replicas: u16, pods: u16| {
        let spec = json!({"parallelism": pods, "completions": pods, "completionMode": "Indexed"});
        json!({"name": name, "replicas": replicas, "template": {"spec": spec}})
    };
    let spec = json!({"replicatedJobs": [replicated("workers", 2, 2), replicated("leader", 1, 1)]});
    let uid = make(&stack, Kind::JobSet, "set", &spec).await;
    let client = stack.admin().unwrap();
    submit(&client, "ml", job_of("set", &uid, "leader", 0, 1, 0)).await;
    submit(&client, "ml", job_of("set", &uid, "workers", 0, 2, 8)).await;
    // Until its last Job is there nothing of it runs.
    let collecting = phase_within(&stack, "ml", "set", "Collecting", PROBED).await;
    assert_eq!(collecting.spec.size, 5);
    submit(&client, "ml", job_of("set", &uid, "workers", 1, 2, 8)).await;

    let nodes = running(&stack, "set-", 5).await;

    let gang = phase(&stack, "ml", "set", "Bound").await;
    assert_eq!(gang.spec.source.convention, "jobset");
    let roles: Vec<(&str, u32)> = gang.spec.roles.iter().map(|role| (&*role.name, role.count)).collect();
    assert_eq!(roles, [("leader", 1), ("workers", 4)]);
    let places = gang.status.unwrap().plan.unwrap().places;
    let ranks: Vec<(&str, u32)> = places.iter().map(|place| (&*place.role, place.rank)).collect();
    assert_eq!(ranks, [("leader", 0), ("workers", 0), ("workers", 1), ("workers", 2), ("workers", 3)]);
    let of_leaf: BTreeSet<&str> = nodes.values().map(|node| leaf_of(node)).collect();
    assert_eq!(of_leaf.len(), 1, "four hosts of one leaf hold it: {nodes:?}");
    assert_eq!(gangs(&client, "ml").await.len(), 1);
}

/// A pod of a LeaderWorkerSet, as its controllers make it.
fn lws_pod(group: u32, index: u32) -> Pod {
    TestPod::new(format!("infer-{group}-{index}"))
        .gpus(8)
        .label("leaderworkerset.sigs.k8s.io/name", "infer")
        .label("leaderworkerset.sigs.k8s.io/group-index", &group.to_string())
        .label("leaderworkerset.sigs.k8s.io/worker-index", &index.to_string())
        .annotation("leaderworkerset.sigs.k8s.io/size", "2")
        .build()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_group_of_a_leaderworkerset_starts_alone() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 3)).await.unwrap();
    install(&stack, Kind::LeaderWorkerSet).await;
    let spec = json!({"replicas": 2, "leaderWorkerTemplate": {"size": 2}});
    make(&stack, Kind::LeaderWorkerSet, "infer", &spec).await;
    // The second group comes once the first one runs: who is recognised together is planned in either order.
    create(&stack, lws_pod(0, 0)).await;
    create(&stack, lws_pod(0, 1)).await;
    phase_within(&stack, "ml", "infer-0", "Bound", PROBED).await;
    create(&stack, lws_pod(1, 0)).await;
    create(&stack, lws_pod(1, 1)).await;

    // Three nodes: the second group waits whole.
    phase(&stack, "ml", "infer-1", "Waiting").await;
    assert_eq!(running(&stack, "infer-", 2).await.len(), 2);
    stack.create_nodes(leaves(&["b"], 1)).await.unwrap();
    running(&stack, "infer-", 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_for_a_leader_and_its_workers_are_provisioned_together() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), 20, "60s").await else { return };
    let member = |role: &str, number: u32, gpus: u32| {
        TestPod::new(format!("train-{role}-{number}"))
            .gpus(gpus)
            .annotation("muster.dev/gang", "train")
            .annotation("muster.dev/gang-size", "4")
            .annotation("muster.dev/role", role)
            .annotation("muster.dev/rank", &number.to_string())
            .build()
    };
    create(&stack, member("leader", 0, 0)).await;
    for number in 0..3 {
        create(&stack, member("worker", number, 8)).await;
    }

    let nodes = running(&stack, "train-", 4).await;

    assert_eq!(nodes.values().collect::<BTreeSet<_>>().len(), 3, "the leader stands beside a worker: {nodes:?}");
    let journal = journal(&stack, 0).await;
    let fleets = launched_fleets(&journal);
    assert_eq!(fleets.iter().map(|fleet| instances(fleet).len()).collect::<Vec<_>>(), [3]);
    let gang = phase(&stack, "ml", "train", "Bound").await;
    let minimums = gang.status.unwrap().plan.unwrap().minimums;
    assert_eq!(minimums, BTreeMap::from([("leader".to_owned(), 1), ("worker".to_owned(), 3)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_elastic_gang_starts_with_its_minimum_and_grows() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 2)).await.unwrap();
    let job = TestJob::new("train", 4)
        .gpus(8)
        .pod_annotation("muster.dev/gang", "train")
        .pod_annotation("muster.dev/gang-min", "2")
        .build();
    submit(&stack.admin().unwrap(), "ml", job).await;

    let started = running(&stack, "train-", 2).await;

    phase(&stack, "ml", "train", "Bound").await;
    stack.create_nodes(leaves(&["b"], 2)).await.unwrap();
    let grown = running(&stack, "train-", 4).await;
    for (pod, node) in started {
        assert_eq!(grown.get(&pod), Some(&node), "who runs stays");
    }
    let gang: Gang = phase(&stack, "ml", "train", "Bound").await;
    assert_eq!(gang.status.unwrap().plan.unwrap().places.len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_group_whose_definition_comes_later_gives_the_minimum() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 3)).await.unwrap();
    for number in 0..2 {
        let pod = TestPod::new(format!("group-{number}")).gpus(8).label("scheduling.x-k8s.io/pod-group", "group");
        create(&stack, pod.build()).await;
    }
    says(&stack, "ml", "group", "nothing says how many").await;

    install(&stack, Kind::CoschedulingPodGroup).await;
    make(&stack, Kind::CoschedulingPodGroup, "group", &json!({"minMember": 3})).await;

    let deadline = PROBED;
    let (client, wanted) = (&stack.admin().unwrap(), "the gang to need three members");
    eventually(deadline, wanted, || async move {
        let found = gangs(client, "ml").await.into_iter().next().and_then(|gang| gang.status?.waiting);
        match found {
            Some(waiting) if waiting.message.contains("3 needed to start") => Ok(Some(())),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    let pod = TestPod::new("group-2").gpus(8).label("scheduling.x-k8s.io/pod-group", "group");
    create(&stack, pod.build()).await;
    running(&stack, "group-", 3).await;
    let gang = phase(&stack, "ml", "group", "Bound").await;
    assert_eq!(gang.spec.source.convention, "coscheduling");
}
