//! Rows of the race table: what can come between a plan and its bindings.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use muster::testbed::nodes::DEMO_NOT_READY;
use muster::testbed::request::request;
use muster::testbed::workloads::TestPod;
use muster::testbed::{Component, Stack, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{DEADLINE, bare, create, delete, gangs, leaves, options, phase, runs_on, says, stack};

/// A released gang of `size` whose kube-scheduler sleeps; the nodes of its plan.
async fn released(config: Value, nodes: usize, size: u32) -> Option<(Stack, Vec<String>)> {
    let mut options = options().await?;
    options.config = config;
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], nodes)).await.unwrap();
    stack.cluster.signal(Component::Scheduler(0), Signal::SIGSTOP).unwrap();
    for number in 0..size {
        create(&stack, "ml", bare("train", number, size)).await;
    }
    let gang = phase(&stack, "ml", "train", "Released").await;
    let planned = gang.status.unwrap().plan.unwrap().nodes;
    Some((stack, planned))
}

async fn epoch_is(stack: &Stack, epoch: u64) {
    let client = &stack.admin().unwrap();
    eventually(DEADLINE, format!("epoch {epoch}"), || async move {
        let status = gangs(client, "ml").await.into_iter().find(|gang| gang.name_any().starts_with("train"));
        let status = status.and_then(|gang| gang.status).unwrap_or_default();
        if status.epoch >= epoch && status.phase == "Released" {
            Ok(Some(()))
        } else {
            Err(format!("{} {}", status.phase, status.epoch))
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

fn goes_on(stack: &Stack) {
    stack.cluster.signal(Component::Scheduler(0), Signal::SIGCONT).unwrap();
}

async fn run_on(stack: &Stack, size: u32) -> BTreeSet<String> {
    let mut nodes = BTreeSet::new();
    for number in 0..size {
        nodes.insert(runs_on(stack, "ml", &format!("train-{number}"), DEADLINE).await);
    }
    phase(stack, "ml", "train", "Bound").await;
    nodes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_node_that_is_not_ready_cordoned_or_gone_before_the_commit_point_is_planned_around() {
    let Some((stack, planned)) = released(json!({}), 5, 2).await else { return };
    let nodes: Api<Node> = Api::all(stack.admin().unwrap());
    let change = |node: String, patch: Value| {
        let nodes = nodes.clone();
        async move { nodes.patch(&node, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap() }
    };
    change(planned[0].clone(), json!({"metadata": {"annotations": {DEMO_NOT_READY: "yes"}}})).await;
    epoch_is(&stack, 2).await;
    let second = phase(&stack, "ml", "train", "Released").await.status.unwrap().plan.unwrap().nodes;
    assert!(!second.contains(&planned[0]), "{second:?}");
    change(second[0].clone(), json!({"spec": {"unschedulable": true}})).await;
    epoch_is(&stack, 3).await;
    let third = phase(&stack, "ml", "train", "Released").await.status.unwrap().plan.unwrap().nodes;
    assert!(!third.contains(&second[0]), "{third:?}");
    nodes.delete(&third[0], &kube::api::DeleteParams::default()).await.unwrap();
    epoch_is(&stack, 4).await;
    goes_on(&stack);
    let on = run_on(&stack, 2).await;
    for lost in [&planned[0], &second[0], &third[0]] {
        assert!(!on.contains(lost), "{lost} is in use: {on:?}");
    }
}

/// Three nodes, each a rack of its own, and a pod on the first that bears no pod of `train` in its rack: nothing the members
/// say, and nothing that Muster models. Two members of `train` are there.
async fn guarded(config: Value) -> Option<Stack> {
    let mut options = options().await?;
    options.config = config;
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 3)).await.unwrap();
    let nodes: Api<Node> = Api::all(stack.admin().unwrap());
    for name in ["a-0", "a-1", "a-2"] {
        let rack = json!({"metadata": {"labels": {"example.com/rack": name}}});
        nodes.patch(name, &PatchParams::default(), &Patch::Merge(&rack)).await.unwrap();
    }
    let mut guard = TestPod::new("guard").build();
    guard.spec.as_mut().unwrap().node_name = Some("a-0".to_owned());
    guard.spec.as_mut().unwrap().affinity = serde_json::from_value(json!({"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"job": "train"}}, "topologyKey": "example.com/rack"}
        ]
    }}))
    .unwrap();
    create(&stack, "ml", guard).await;
    runs_on(&stack, "ml", "guard", DEADLINE).await;
    for number in 0..2 {
        let mut pod = bare("train", number, 2);
        pod.metadata.labels = Some([("job".to_owned(), "train".to_owned())].into());
        create(&stack, "ml", pod).await;
    }
    Some(stack)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_kube_scheduler_refuses_for_a_reason_of_its_own_is_excluded() {
    let Some(stack) = guarded(json!({"release": {"renominate": "1s"}})).await else { return };
    let on = run_on(&stack, 2).await;
    assert_eq!(on, BTreeSet::from(["a-1".to_owned(), "a-2".to_owned()]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_kube_scheduler_refuses_again_after_each_requeue_is_planned_around_before_any_timer_ends() {
    // Nobody could wait for the end of these.
    let config = json!({"release": {"renominate": "20m"}, "watch": {"released": "40m"}});
    let Some(stack) = guarded(config).await else { return };
    let on = run_on(&stack, 2).await;
    assert_eq!(on, BTreeSet::from(["a-1".to_owned(), "a-2".to_owned()]));
    assert!(
        phase(&stack, "ml", "train", "Bound").await.status.unwrap().epoch > 1,
        "the first plan named the first node"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_bound_by_somebody_else_is_adopted_where_it_is() {
    let Some((stack, planned)) = released(json!({}), 3, 2).await else { return };
    let free = (0..3).map(|number| format!("a-{number}")).find(|node| !planned.contains(node)).unwrap();
    let pods: Api<Pod> = Api::namespaced(stack.admin().unwrap(), "ml");
    let binding = Binding {
        metadata: ObjectMeta { name: Some("train-0".to_owned()), ..ObjectMeta::default() },
        target: ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(free.clone()),
            ..ObjectReference::default()
        },
    };
    // The phase is written before the last gate is dropped.
    let (pods, binding) = (&pods, &binding);
    eventually(DEADLINE, "train-0 to be without a gate", || async move {
        let params = PostParams::default();
        pods.create_subresource::<_, Value>("binding", "train-0", &params, binding).await.map(Some)
    })
    .await
    .unwrap();
    epoch_is(&stack, 2).await;
    goes_on(&stack);
    assert!(run_on(&stack, 2).await.contains(&free));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_barrier_that_times_out_says_so_and_members_are_informed_where_they_stand() {
    let Some((stack, _)) = released(json!({"bind": {"hold": "2s"}}), 3, 3).await else { return };
    delete(&stack, "ml", "train-2").await;
    let pods: Api<Pod> = Api::namespaced(stack.admin().unwrap(), "ml");
    let pods = &pods;
    eventually(DEADLINE, "train-0 to be reported that it is released", || async move {
        let pod = pods.get("train-0").await.map_err(|error| error.to_string())?;
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        let ours = conditions.into_iter().find(|condition| condition.type_ == "muster.dev/Gang");
        Ok::<_, String>(ours.filter(|condition| condition.reason.as_deref() == Some("Released")).map(|_| ()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));

    goes_on(&stack);
    let events: Api<Event> = Api::namespaced(stack.admin().unwrap(), "ml");
    let events = &events;
    // Whoever comes to the barrier later than the hold of the one before is reported alone first.
    eventually(DEADLINE, "the event", || async move {
        let events = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let timeouts = events.into_iter().filter(|event| event.reason.as_deref() == Some("BarrierTimeout"));
        let notes: Vec<String> = timeouts.filter_map(|event| event.note).collect();
        let is_there = notes.iter().any(|note| note == "gang barrier: 2 of 3 members after 2 s");
        if is_there { Ok(Some(())) } else { Err(format!("{notes:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    create(&stack, "ml", bare("train", 2, 3)).await;
    assert_eq!(run_on(&stack, 3).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_restarts_with_an_open_barrier_gathers_its_members_again() {
    let Some((stack, _)) = released(json!({"lease": {"duration": "2s", "grace": "1s"}}), 3, 3).await else { return };
    delete(&stack, "ml", "train-2").await;
    goes_on(&stack);
    let http = stack.http();
    let two_wait = || async move {
        let metrics = request(http, "GET", "/metrics", "").await.map_err(|error| error.to_string())?;
        Ok::<_, String>(metrics.lines().any(|line| line == "muster_barrier_waiting 2").then_some(()))
    };
    eventually(DEADLINE, "two members at the barrier", two_wait).await.unwrap();
    stack.kill_muster().unwrap();
    stack.start_muster(&[]).await.unwrap();
    eventually(DEADLINE, "two members at the barrier again", two_wait)
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    create(&stack, "ml", bare("train", 2, 3)).await;
    assert_eq!(run_on(&stack, 3).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_that_is_too_old_is_not_answered_from() {
    let Some(mut options) = options().await else { return };
    options.config = json!({"state": {"maxAge": "3s"}, "lease": {"duration": "2s", "grace": "1s"}});
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 2)).await.unwrap();
    let pod = TestPod::new("probe").build();
    let body = json!({"Pod": pod, "Nodes": null, "NodeNames": ["a-0"]}).to_string();
    let (stack, body) = (&stack, &body);
    let asked = || async move {
        let answer =
            request(stack.extender(), "POST", "/v1/sync/filter", body).await.map_err(|error| error.to_string())?;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        Ok::<_, String>(answer["Error"].as_str().unwrap_or_default().to_owned())
    };
    eventually(
        DEADLINE,
        "filter to answer",
        || async move { Ok::<_, String>(asked().await?.is_empty().then_some(())) },
    )
    .await
    .unwrap();
    stack.cluster.signal(Component::ApiServer, Signal::SIGSTOP).unwrap();
    eventually(DEADLINE, "filter to refuse to answer", || async move {
        Ok::<_, String>(asked().await?.contains("is too old").then_some(()))
    })
    .await
    .unwrap();
    assert!(request(stack.http(), "GET", "/readyz", "").await.unwrap_err().to_string().contains("too old"));
    stack.cluster.signal(Component::ApiServer, Signal::SIGCONT).unwrap();
    eventually(DEADLINE, "filter to answer again", || async move {
        Ok::<_, String>(asked().await?.is_empty().then_some(()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    for number in 0..2 {
        create(stack, "ml", bare("train", number, 2)).await;
    }
    assert_eq!(run_on(stack, 2).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_refused_again_and_again_make_the_gang_wait_and_hold_nothing() {
    let Some(mut options) = options().await else { return };
    options.config = json!({"release": {"renominate": "1s"}});
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 2)).await.unwrap();
    // By a key of its own: what keeps members away by hostname is planned around, and never refused.
    let nodes: Api<Node> = Api::all(stack.admin().unwrap());
    let rack = json!({"metadata": {"labels": {"example.com/rack": "r-1"}}});
    nodes.patch("a-0", &PatchParams::default(), &Patch::Merge(&rack)).await.unwrap();
    let mut guard = TestPod::new("guard").build();
    guard.spec.as_mut().unwrap().node_name = Some("a-0".to_owned());
    guard.spec.as_mut().unwrap().affinity = serde_json::from_value(json!({"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"job": "train"}}, "topologyKey": "example.com/rack"}
        ]
    }}))
    .unwrap();
    create(&stack, "ml", guard).await;
    runs_on(&stack, "ml", "guard", DEADLINE).await;
    for number in 0..2 {
        let mut pod = bare("train", number, 2);
        pod.metadata.labels = Some([("job".to_owned(), "train".to_owned())].into());
        create(&stack, "ml", pod).await;
    }
    says(&stack, "ml", "train", "nodes that kube-scheduler refused lately are excluded").await;
    let gang = phase(&stack, "ml", "train", "Waiting").await;
    assert!(gang.status.unwrap().plan.is_none(), "nothing is held");
    create(&stack, "ml", TestPod::new("single").gpus(8).build()).await;
    runs_on(&stack, "ml", "single", DEADLINE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_of_higher_priority_never_evicts_one_member_of_a_gang() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 2)).await.unwrap();
    let classes: Api<PriorityClass> = Api::all(stack.admin().unwrap());
    let class = serde_json::from_value(json!({"metadata": {"name": "urgent"}, "value": 100_000_000})).unwrap();
    classes.create(&PostParams::default(), &class).await.unwrap();
    for number in 0..2 {
        create(&stack, "ml", bare("train", number, 2)).await;
    }
    run_on(&stack, 2).await;

    create(&stack, "ml", TestPod::new("urgent").gpus(8).priority_class("urgent").build()).await;
    let pods: Api<Pod> = Api::namespaced(stack.admin().unwrap(), "ml");
    let pods = &pods;
    eventually(DEADLINE, "the preemption to be vetoed", || async move {
        let pod = pods.get("urgent").await.map_err(|error| error.to_string())?;
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        let scheduled = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled");
        let message = scheduled.and_then(|condition| condition.message).unwrap_or_default();
        if message.contains("preemption:") { Ok(Some(())) } else { Err(message) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(40)));
    for number in 0..2 {
        let pod = pods.get(&format!("train-{number}")).await.unwrap();
        assert!(pod.metadata.deletion_timestamp.is_none(), "a member was evicted");
    }

    // It runs as soon as there is capacity that nobody has to be evicted from.
    stack.create_nodes(leaves(&["b"], 1)).await.unwrap();
    runs_on(&stack, "ml", "urgent", DEADLINE).await;
}
