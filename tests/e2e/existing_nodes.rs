//! Gangs on nodes that exist.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use muster::testbed::request::request;
use muster::testbed::workloads::{TestJob, TestPod};
use muster::testbed::{Component, Stack, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    DEADLINE, all_run, bare, create, delete, leaves, members, node_of, options, phase, phase_within, runs, runs_on,
    says, stack, submit,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_takes_the_fewest_leaves_with_contiguous_ranks() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a", "b", "c", "d"], 3)).await.unwrap();
    let client = stack.admin().unwrap();
    submit(&client, "ml", TestJob::new("train", 8).gpus(8).pod_annotation("muster.dev/gang", "train").build()).await;

    let pods = all_run(&stack, "ml", "train", 8).await;

    let nodes: Vec<String> = pods.iter().filter_map(node_of).collect();
    assert_eq!(nodes.iter().collect::<BTreeSet<_>>().len(), 8, "eight whole nodes: {nodes:?}");
    // Eight nodes of leaves of three: three leaves at least.
    let leaf_of = |node: &String| node.split('-').next().unwrap().to_owned();
    let mut order: Vec<String> = nodes.iter().map(leaf_of).collect();
    order.dedup();
    assert_eq!(order.len(), 3, "three leaves, each one run of ranks: {nodes:?}");
    let gang = phase(&stack, "ml", "train", "Bound").await;
    let status = gang.status.unwrap();
    assert_eq!(status.members, "8/8");
}

async fn pod(stack: &Stack, namespace: &str, name: &str) -> Pod {
    Api::<Pod>::namespaced(stack.admin().unwrap(), namespace).get(name).await.unwrap()
}

/// The message of `PodScheduled=False`, once it contains `text`.
async fn is_reported(stack: &Stack, namespace: &str, name: &str, text: &str) {
    let pods: Api<Pod> = Api::namespaced(stack.admin().unwrap(), namespace);
    let (pods, reported) = (&pods, format!("{name} to be reported {text:?}"));
    eventually(DEADLINE, &reported, || async move {
        let pod = pods.get(name).await.map_err(|error| error.to_string())?;
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        let message = conditions.into_iter().find(|c| c.type_ == "PodScheduled").and_then(|c| c.message);
        match message {
            Some(message) if message.contains(text) => Ok(Some(())),
            message => Err(format!("{message:?}")),
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(40)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_short_nothing_is_bound_and_nothing_is_held() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 3)).await.unwrap();
    let client = stack.admin().unwrap();
    submit(&client, "ml", TestJob::new("train", 4).gpus(8).pod_annotation("muster.dev/gang", "train").build()).await;

    says(&stack, "ml", "train", "needs capacity for 4 members in one zone; the best, us-east-1a, has capacity for 3")
        .await;
    let waiting = members(&client, "ml", "train").await;
    assert_eq!(waiting.len(), 4, "all members are there");
    assert!(waiting.iter().all(|pod| node_of(pod).is_none()), "nothing is bound");
    // What the gang does not hold, others may use.
    create(&stack, "ml", TestPod::new("single").gpus(8).build()).await;
    runs_on(&stack, "ml", "single", DEADLINE).await;

    stack.create_nodes(leaves(&["b"], 2)).await.unwrap();
    all_run(&stack, "ml", "train", 4).await;
}

/// Waits until the extender keeps an ordinary pod off every one of `nodes`.
async fn protects(stack: &Stack, nodes: &BTreeSet<String>) {
    let pod = TestPod::new("probe").gpus(8).build();
    let body = json!({"Pod": pod, "Nodes": null, "NodeNames": nodes}).to_string();
    let (extender, body) = (stack.extender(), &body);
    eventually(DEADLINE, "the assignment to be protected", || async move {
        let answer = request(extender, "POST", "/v1/sync/filter", body).await.map_err(|error| error.to_string())?;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        Ok::<_, String>((answer["NodeNames"] == json!([])).then_some(()))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordinary_pod_cannot_take_an_assigned_node_and_runs_elsewhere() {
    let Some(mut options) = options().await else { return };
    // The plan stands for a while before anybody is released.
    options.config = json!({"release": {"settle": "20s"}});
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 4)).await.unwrap();
    for number in 0..3 {
        create(&stack, "ml", bare("train", number, 3)).await;
    }
    let gang = phase(&stack, "ml", "train", "Planned").await;
    let assigned: BTreeSet<String> = gang.status.unwrap().plan.unwrap().nodes.into_iter().collect();
    // Every replica protects an assignment once it sees it; a plan is released only after that.
    protects(&stack, &assigned).await;

    create(&stack, "ml", TestPod::new("single-0").gpus(8).build()).await;
    let free = runs_on(&stack, "ml", "single-0", DEADLINE).await;
    assert!(!assigned.contains(&free), "{free} is assigned: {assigned:?}");
    create(&stack, "ml", TestPod::new("single-1").gpus(8).build()).await;
    is_reported(&stack, "ml", "single-1", "assigned to a gang").await;

    for number in 0..3 {
        let node = runs_on(&stack, "ml", &format!("train-{number}"), DEADLINE).await;
        assert!(assigned.contains(&node));
    }
    assert_eq!(node_of(&pod(&stack, "ml", "single-1").await), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gangs_and_one_free_leaf_both_end_running() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 4)).await.unwrap();
    let client = stack.admin().unwrap();
    for name in ["first", "second"] {
        let job = TestJob::new(name, 4)
            .gpus(8)
            .pod_annotation("muster.dev/gang", name)
            .pod_annotation("muster.dev/topology-required", "leaf")
            .build();
        submit(&client, "ml", job).await;
    }
    let running = |name: &'static str| {
        let client = client.clone();
        async move { members(&client, "ml", name).await.iter().filter(|pod| runs(pod)).count() }
    };
    let running = &running;
    let winner = eventually(DEADLINE, "one gang to run", || async move {
        let counts = (running("first").await, running("second").await);
        match counts {
            (4, 0) => Ok(Some("first")),
            (0, 4) => Ok(Some("second")),
            counts => Err(format!("{counts:?} run")),
        }
    })
    .await
    .unwrap();
    let loser = if winner == "first" { "second" } else { "first" };
    let waiting = phase(&stack, "ml", loser, "Waiting").await;
    assert!(waiting.status.unwrap().plan.is_none(), "a waiting gang holds nothing");

    Api::<Job>::namespaced(client.clone(), "ml").delete(winner, &DeleteParams::background()).await.unwrap();
    all_run(&stack, "ml", loser, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_deleted_at_the_barrier_is_replaced_and_nobody_was_bound_before() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 4)).await.unwrap();
    // The scheduler sleeps until the gang is released, so that a member can be lost in between.
    stack.cluster.signal(Component::Scheduler(0), Signal::SIGSTOP).unwrap();
    for number in 0..4 {
        create(&stack, "ml", bare("train", number, 4)).await;
    }
    phase(&stack, "ml", "train", "Released").await;
    delete(&stack, "ml", "train-3").await;
    stack.cluster.signal(Component::Scheduler(0), Signal::SIGCONT).unwrap();
    // Three stand at the barrier: their assumed nodes are taken, and none of them is bound.
    let http = stack.http();
    eventually(DEADLINE, "three members to be held at the barrier", || async move {
        let metrics = request(http, "GET", "/metrics", "").await.map_err(|error| error.to_string())?;
        Ok::<_, String>(metrics.lines().any(|line| line == "muster_barrier_waiting 3").then_some(()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    for number in 0..3 {
        assert_eq!(node_of(&pod(&stack, "ml", &format!("train-{number}")).await), None);
    }
    delete(&stack, "ml", "train-2").await;

    create(&stack, "ml", bare("train", 2, 4)).await;
    create(&stack, "ml", bare("train", 3, 4)).await;
    let mut nodes = BTreeSet::new();
    for number in 0..4 {
        nodes.insert(runs_on(&stack, "ml", &format!("train-{number}"), DEADLINE).await);
    }
    assert_eq!(nodes.len(), 4);
    let gang = phase(&stack, "ml", "train", "Bound").await;
    assert!(gang.status.unwrap().epoch > 1, "the lost places were given in a new epoch");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_annotated_on_its_job_alone_is_held_together_without_a_gate() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a", "b"], 4)).await.unwrap();
    let client = stack.admin().unwrap();
    // kube-scheduler sees these pods at once, and the extender sees them before their Job.
    let job = TestJob::new("train", 4).gpus(8).annotation("muster.dev/topology-required", "leaf").build();
    submit(&client, "ml", job).await;

    let pods = all_run(&stack, "ml", "train", 4).await;
    let leaves: BTreeSet<String> =
        pods.iter().filter_map(node_of).map(|node| node.split('-').next().unwrap().to_owned()).collect();
    assert_eq!(leaves.len(), 1, "one leaf");
    let gang = phase(&stack, "ml", "train", "Bound").await;
    assert_eq!(gang.spec.source.convention, "job");
    assert_eq!(gang.spec.topology_requests.required.unwrap().from, "muster.dev/topology-required");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_keep_apart_by_a_network_layer_get_one_each_and_no_more_of_them_start_than_there_are() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a", "b", "c"], 2)).await.unwrap();
    let client = stack.admin().unwrap();
    let job = |name: &str, members: u16| {
        let mut job = TestJob::new(name, members).gpus(1).pod_annotation("muster.dev/gang", name).build();
        let spec = job.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
        spec.affinity = serde_json::from_value(serde_json::json!({"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{
                "topologyKey": "topology.k8s.aws/network-node-layer-3",
                "labelSelector": {"matchLabels": {"batch.kubernetes.io/job-name": name}},
            }],
        }}))
        .unwrap();
        job
    };
    submit(&client, "ml", job("many", 4)).await;
    says(&stack, "ml", "many", "needs capacity for 4 members").await;
    submit(&client, "ml", job("few", 3)).await;
    let pods = all_run(&stack, "ml", "few", 3).await;
    let mut leaves: Vec<String> = pods.iter().filter_map(node_of).map(|node| node[..1].to_owned()).collect();
    leaves.sort();
    assert_eq!(leaves, ["a", "b", "c"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_and_twelve_members_are_bound_together() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    let names: Vec<String> = (0..32).map(|leaf| format!("l{leaf}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    stack.create_nodes(leaves(&names, 16)).await.unwrap();
    let client = stack.admin().unwrap();
    let job = TestJob::new("train", 512).gpus(8).pod_annotation("muster.dev/gang", "train").build();
    submit(&client, "ml", job).await;

    let gang = phase_within(&stack, "ml", "train", "Bound", Duration::from_secs(180)).await;
    let status = gang.status.unwrap();
    assert_eq!(status.members, "512/512");
    let pods = members(&client, "ml", "train").await;
    assert_eq!(pods.iter().filter_map(node_of).collect::<BTreeSet<_>>().len(), 512);
    nobody_was_bound_before_the_minimum(&stack, 512).await;
}

/// From the audit log: the first Binding comes after the write of `Committing`, and no member was bound before.
async fn nobody_was_bound_before_the_minimum(stack: &Stack, minimum: usize) {
    // An answer is written to the audit log after it was given.
    let events = eventually(DEADLINE, "all bindings in the audit log", || async move {
        let log = std::fs::read_to_string(stack.cluster.audit_log()).map_err(|error| error.to_string())?;
        let events: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let is_binding =
            |event: &&Value| event["objectRef"]["subresource"] == "binding" && event["stage"] == "ResponseComplete";
        let bound = events.iter().filter(is_binding).count();
        if bound < minimum { Err(format!("{bound} of {minimum}")) } else { Ok(Some(events)) }
    })
    .await
    .unwrap();
    let succeeded = |event: &&Value| event["responseStatus"]["code"].as_u64().is_some_and(|code| code < 300);
    let bindings: Vec<&Value> = events
        .iter()
        .filter(|event| event["objectRef"]["subresource"] == "binding" && event["stage"] == "ResponseComplete")
        .filter(succeeded)
        .collect();
    assert_eq!(bindings.len(), minimum);
    let first = bindings.iter().filter_map(|event| event["requestReceivedTimestamp"].as_str()).min().unwrap();
    let released = events
        .iter()
        .filter(|event| event["objectRef"]["resource"] == "pods" && event["verb"] == "patch")
        .filter(|event| event["objectRef"]["subresource"].is_null() && event["stage"] == "ResponseComplete")
        .filter(|event| event["user"]["username"] == "system:serviceaccount:muster-system:muster")
        .filter_map(|event| event["stageTimestamp"].as_str())
        .filter(|at| *at < first)
        .count();
    assert!(released >= minimum, "{released} members were released before the first binding");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_must_stand_together_by_pod_affinity_are_bound_in_one_leaf_or_wait() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes([leaves(&["a"], 2), leaves(&["b"], 3)].concat()).await.unwrap();
    let client = stack.admin().unwrap();
    let tied = |name: &str, members: u16| {
        let mut job = TestJob::new(name, members).gpus(8).pod_annotation("muster.dev/gang", name).build();
        let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "topology.k8s.aws/network-node-layer-3",
            "labelSelector": {"matchLabels": {"batch.kubernetes.io/job-name": name}},
        }]}});
        let spec = job.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
        spec.affinity = Some(serde_json::from_value(affinity).unwrap());
        job
    };
    submit(&client, "ml", tied("wide", 4)).await;
    phase(&stack, "ml", "wide", "Waiting").await;
    submit(&client, "ml", tied("fits", 3)).await;
    all_run(&stack, "ml", "fits", 3).await;
    let nodes: Vec<String> = members(&client, "ml", "fits").await.iter().filter_map(node_of).collect();
    assert!(nodes.iter().all(|node| node.starts_with("b-")), "{nodes:?}");
}
