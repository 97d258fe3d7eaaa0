//! Members that are pinned to their planned nodes in the patch that drops their gate, and made again by their owner where the plan
//! changes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster::testbed::audit::{self, Entry};
use muster::testbed::workloads::TestJob;
use muster::testbed::{Component, Stack, eventually};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{
    DEADLINE, all_run, bare, create, index, leaves, members, no_errors, node_of, options, phase, runs_on, stack, submit,
};

/// A stack that pins, with so many nodes.
async fn pinning(nodes: usize) -> Option<Stack> {
    let mut options = options().await?;
    options.config = json!({"release": {"pin": "auto"}});
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], nodes)).await.unwrap();
    Some(stack)
}

fn job(size: u16) -> Job {
    TestJob::new("train", size).gpus(8).ignores_disruptions().pod_annotation("muster.dev/gang", "train").build()
}

/// The node to which the affinity of a pod pins it.
fn pin_of(pod: &Pod) -> Option<String> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let [term] = required.node_selector_terms.as_slice() else { return None };
    let pin = term.match_fields.as_ref()?.last()?;
    pin.values.as_ref()?.first().cloned()
}

/// Waits until every member is without a gate; where each is pinned.
async fn pinned(stack: &Stack, size: usize) -> BTreeMap<u32, (String, String)> {
    let client = stack.admin().unwrap();
    let client = &client;
    eventually(DEADLINE, "all members to be pinned", || async move {
        let pods = members(client, "ml", "train").await;
        let pins: BTreeMap<u32, (String, String)> =
            pods.iter().filter_map(|pod| Some((index(pod), (pin_of(pod)?, pod.uid()?)))).collect();
        Ok::<_, String>((pins.len() == size).then_some(pins))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)))
}

/// Writes of Muster to pods, their status aside.
fn patches(entries: &[Entry]) -> usize {
    entries.iter().filter(|entry| entry.namespace == "ml" && entry.is_release()).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_pin_a_gang_takes_the_nodes_of_its_plan_by_one_patch_for_each_member() {
    let Some(stack) = pinning(4).await else { return };
    submit(&stack.admin().unwrap(), "ml", job(4)).await;
    let pods = all_run(&stack, "ml", "train", 4).await;
    let status = phase(&stack, "ml", "train", "Bound").await.status.unwrap();
    assert_eq!(status.epoch, 1, "planned once: a pinned member is as good as a nominated one");
    for pod in &pods {
        assert_eq!(pin_of(pod), node_of(pod), "bound where it is pinned");
        assert_eq!(pod.annotations().get("muster.dev/planned-node"), node_of(pod).as_ref());
    }
    assert_eq!(pods.iter().filter_map(node_of).collect::<BTreeSet<_>>().len(), 4);
    let entries = audit::read(&stack.cluster.audit_log()).unwrap();
    assert_eq!(patches(&entries), 4);
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pinned_members_whose_node_is_taken_are_made_again_elsewhere_and_their_job_counts_no_failure() {
    let Some(stack) = pinning(4).await else { return };
    stack.cluster.signal(Component::Scheduler(0), Signal::SIGSTOP).unwrap();
    let client = stack.admin().unwrap();
    submit(&client, "ml", job(3)).await;
    let first = pinned(&stack, 3).await;
    let taken = first[&1].0.clone();
    let nodes: Api<Node> = Api::all(client.clone());
    let cordon = json!({"spec": {"unschedulable": true}});
    nodes.patch(&taken, &PatchParams::default(), &Patch::Merge(&cordon)).await.unwrap();
    // Who was pinned there is gone, and whoever came in its stead is pinned elsewhere.
    let (seen, before) = (&client, &first);
    let taken_from = &taken;
    let second = eventually(DEADLINE, "all members to be pinned to other nodes", || async move {
        let pods = members(seen, "ml", "train").await;
        let live = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let pins: BTreeMap<u32, (String, String)> =
            live.filter_map(|pod| Some((index(pod), (pin_of(pod)?, pod.uid()?)))).collect();
        let moved = pins.len() == 3 && pins.values().all(|(node, _)| node != taken_from);
        if moved { Ok(Some(pins)) } else { Err(format!("{before:?}, then {pins:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    assert_ne!(second[&1].1, first[&1].1, "affinity does not change without a gate: it is another pod");
    for (index, (node, uid)) in &second {
        assert!(node == &first[index].0 || *uid != first[index].1, "whoever is elsewhere is another pod");
    }
    stack.cluster.signal(Component::Scheduler(0), Signal::SIGCONT).unwrap();
    let pods = all_run(&stack, "ml", "train", 3).await;
    assert!(pods.iter().filter_map(node_of).all(|node| node != taken));
    phase(&stack, "ml", "train", "Bound").await;

    let job = Api::<Job>::namespaced(client, "ml").get("train").await.unwrap();
    let status = job.status.unwrap();
    assert_eq!(status.failed.unwrap_or(0), 0, "no failure is counted: {status:?}");
    let conditions = status.conditions.unwrap_or_default();
    assert!(conditions.iter().all(|condition| condition.type_ != "Failed"), "{conditions:?}");
    // Marked first, then deleted: the mark is the only write of a status.
    let entries = audit::read(&stack.cluster.audit_log()).unwrap();
    let of = |verb: &str, subresource: &str| -> Vec<&Entry> {
        let counts = |entry: &&Entry| {
            entry.resource == "pods"
                && entry.verb == verb
                && entry.subresource == subresource
                && entry.by_muster()
                && entry.succeeded()
        };
        entries.iter().filter(counts).collect()
    };
    let (marked, deleted) = (of("patch", "status"), of("delete", ""));
    assert!(!deleted.is_empty());
    for entry in deleted {
        let mark = marked.iter().find(|mark| mark.name == entry.name);
        assert!(mark.is_some_and(|mark| mark.answered <= entry.received), "{} was deleted without a mark", entry.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_holder_that_starts_again_takes_pinned_members_for_released_ones() {
    let Some(stack) = pinning(3).await else { return };
    stack.cluster.signal(Component::Scheduler(0), Signal::SIGSTOP).unwrap();
    submit(&stack.admin().unwrap(), "ml", job(3)).await;
    let first = pinned(&stack, 3).await;
    stack.kill_muster().unwrap();
    stack.start_muster(&[]).await.unwrap();
    stack.cluster.signal(Component::Scheduler(0), Signal::SIGCONT).unwrap();
    let pods = all_run(&stack, "ml", "train", 3).await;
    for pod in &pods {
        let (node, uid) = &first[&index(pod)];
        assert_eq!((node_of(pod).as_ref(), pod.uid().as_ref()), (Some(node), Some(uid)));
    }
    assert_eq!(phase(&stack, "ml", "train", "Bound").await.status.unwrap().epoch, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_nobody_would_make_again_are_nominated_and_not_pinned() {
    let Some(stack) = pinning(4).await else { return };
    for number in 0..2 {
        create(&stack, "ml", bare("train", number, 2)).await;
    }
    let counting = TestJob::new("counting", 2).gpus(8).pod_annotation("muster.dev/gang", "counting").build();
    submit(&stack.admin().unwrap(), "ml", counting).await;
    for number in 0..2 {
        runs_on(&stack, "ml", &format!("train-{number}"), DEADLINE).await;
    }
    let of_job = all_run(&stack, "ml", "counting", 2).await;
    let pods: Api<Pod> = Api::namespaced(stack.admin().unwrap(), "ml");
    let bare = [pods.get("train-0").await.unwrap(), pods.get("train-1").await.unwrap()];
    assert!(of_job.iter().chain(&bare).all(|pod| pin_of(pod).is_none()), "each deletion would count, or lose a pod");
}
