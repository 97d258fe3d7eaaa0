//! `muster serve` and an API server that fails in part: a kind of owners cannot be read, a write is never answered.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeMap;

use kube::ResourceExt;
use muster::step::Step;
use muster::testbed::request::request;
use muster::testbed::workloads::TestJob;
use muster::testbed::{Component, Stack, eventually};
use muster_api::conventions::Kind;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::cloud::{batches, journal, launched_fleets, live, provisioning_stack, zones};
use crate::conventions::{install, job_of, make};
use crate::crash::{after, dies, restart};
use crate::proxy::{Fault, Proxy};
use crate::support::{DEADLINE, gangs, leaves, options, phase, stack, submit};
use crate::wire::Wire;

/// A JobSet of one replicated Job with `pods` members, of which the first `jobs` Jobs exist.
async fn jobset(stack: &Stack, name: &str, (jobs, pods, gpus): (u16, u16, u32), made: u16) {
    let template = json!({"parallelism": pods, "completions": pods, "completionMode": "Indexed"});
    let spec = json!({"replicatedJobs": [{"name": "w", "replicas": jobs, "template": {"spec": template}}]});
    let uid = make(stack, Kind::JobSet, name, &spec).await;
    for index in 0..made {
        submit(&stack.admin().unwrap(), "ml", job_of(name, &uid, "w", index, pods, gpus)).await;
    }
}

/// What must not change: each gang's UID, phase and epoch; each batch's phase; what EC2 bills.
async fn standing(stack: &Stack) -> (BTreeMap<String, String>, BTreeMap<String, String>, usize) {
    let client = stack.admin().unwrap();
    let sets = gangs(&client, "ml").await.into_iter().filter(|gang| gang.spec.source.convention == "jobset");
    let gangs = sets.map(|gang| {
        let status = gang.status.clone().unwrap_or_default();
        (gang.name_any(), format!("{:?} {} {}", gang.metadata.uid, status.phase, status.epoch))
    });
    let owned = batches(stack).await;
    let owned = owned.iter().map(|(name, batch)| {
        // One that waits for capacity says so in two phases by turns.
        let provisioned = batch.status.as_ref().is_some_and(|status| !status.instances.is_empty());
        (name.clone(), format!("{provisioned} {:?}", batch.metadata.deletion_timestamp))
    });
    (gangs.collect(), owned.collect(), live(stack).await.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_while_jobsets_cannot_be_listed_ends_no_gang_and_gives_nothing_back() {
    let Some(stack) = provisioning_stack(&zones([2, 0, 0]), 20, "1s").await else { return };
    install(&stack, Kind::JobSet).await;
    jobset(&stack, "runs", (1, 2, 8), 1).await;
    phase(&stack, "ml", "runs", "Bound").await;
    jobset(&stack, "waits", (1, 3, 8), 1).await;
    phase(&stack, "ml", "waits", "Provisioning").await;
    jobset(&stack, "collects", (2, 1, 0), 1).await;
    phase(&stack, "ml", "collects", "Collecting").await;
    stack.create_nodes(leaves(&["a"], 1)).await.unwrap();
    stack.cluster.signal(Component::Scheduler(0), Signal::SIGSTOP).unwrap();
    jobset(&stack, "sent", (1, 2, 0), 1).await;
    phase(&stack, "ml", "sent", "Released").await;
    let before = standing(&stack).await;
    assert_eq!((before.0.len(), before.2), (4, 2), "{before:?}");

    stack.kill_muster().unwrap();
    let proxy = Proxy::start(&stack).await;
    proxy.breaks("/jobsets", Fault::Fails);
    let env = [("KUBECONFIG", proxy.kubeconfig.to_str().unwrap())];
    stack.start_muster(&env).await.unwrap();

    let ready = request(stack.http(), "GET", "/readyz", "").await.unwrap();
    assert!(ready.contains("JobSet (jobset.x-k8s.io) cannot be listed"), "{ready}");
    let metrics = request(stack.http(), "GET", "/metrics", "").await.unwrap();
    assert!(metrics.contains("muster_unlisted_kinds{group=\"jobset.x-k8s.io\",kind=\"JobSet\"} 1"), "{metrics}");
    stack.cluster.signal(Component::Scheduler(0), Signal::SIGCONT).unwrap();
    // Nobody else waits: gangs of other owners are planned and run, several passes long.
    for name in ["other", "another"] {
        let job = TestJob::new(name, 2).pod_annotation("muster.dev/gang", name).build();
        submit(&stack.admin().unwrap(), "ml", job).await;
        phase(&stack, "ml", name, "Bound").await;
    }
    assert_eq!(standing(&stack).await, before);
    assert_eq!(launched_fleets(&journal(&stack, 0).await).len(), 1, "nothing was provisioned");

    proxy.heals();
    phase(&stack, "ml", "sent", "Bound").await;
    phase(&stack, "ml", "runs", "Bound").await;
    let http = stack.http();
    eventually(DEADLINE, "JobSets to be listed", || async move {
        let ready = request(http, "GET", "/readyz", "").await.map_err(|error| error.to_string())?;
        if ready == "ok\n" { Ok(Some(())) } else { Err(ready) }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_is_never_answered_stops_no_other_gang() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 2)).await.unwrap();
    stack.kill_muster().unwrap();
    let proxy = Proxy::start(&stack).await;
    proxy.breaks("/gangs/stuck", Fault::Hangs);
    stack.start_muster(&[("KUBECONFIG", proxy.kubeconfig.to_str().unwrap())]).await.unwrap();
    let job = |name: &str| TestJob::new(name, 2).pod_annotation("muster.dev/gang", name).build();
    submit(&stack.admin().unwrap(), "ml", job("stuck")).await;
    let http = stack.http();
    let counts = |what: &'static str| async move {
        eventually(DEADLINE, what, || async move {
            let metrics = request(http, "GET", "/metrics", "").await.map_err(|error| error.to_string())?;
            Ok::<_, String>(metrics.contains(what).then_some(()))
        })
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    };
    // The write is under way, or has been: others are planned, released and bound meanwhile.
    eventually(DEADLINE, "the Gang to be there", || async {
        let gangs = gangs(&stack.admin().unwrap(), "ml").await;
        Ok::<_, String>(gangs.iter().any(|gang| gang.name_any().starts_with("stuck")).then_some(()))
    })
    .await
    .unwrap();
    submit(&stack.admin().unwrap(), "ml", job("other")).await;
    phase(&stack, "ml", "other", "Bound").await;
    counts("muster_steps_total{step=\"write-gang\",outcome=\"late\"}").await;
    assert_eq!(request(http, "GET", "/healthz", "").await.unwrap(), "ok", "late answers are no reason to end");
    proxy.heals();
    phase(&stack, "ml", "stuck", "Bound").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_whose_connections_go_silent_are_opened_again_and_a_gang_made_meanwhile_starts() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 2)).await.unwrap();
    stack.kill_muster().unwrap();
    let proxy = Proxy::start(&stack).await;
    stack.start_muster(&[("KUBECONFIG", proxy.kubeconfig.to_str().unwrap())]).await.unwrap();
    let job = |name: &str| TestJob::new(name, 2).pod_annotation("muster.dev/gang", name).build();
    submit(&stack.admin().unwrap(), "ml", job("before")).await;
    phase(&stack, "ml", "before", "Bound").await;
    proxy.mutes();
    // Nobody is informed of it on the connections that were open.
    submit(&stack.admin().unwrap(), "ml", job("meanwhile")).await;
    phase(&stack, "ml", "meanwhile", "Bound").await;
    assert_eq!(request(stack.http(), "GET", "/healthz", "").await.unwrap(), "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_share_a_connection_and_when_it_goes_silent_another_takes_its_place_and_a_gang_made_meanwhile_starts() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 2)).await.unwrap();
    stack.kill_muster().unwrap();
    let wire = Wire::start(&stack).await;
    stack.start_muster(&[("KUBECONFIG", wire.kubeconfig.to_str().unwrap())]).await.unwrap();
    let job = |name: &str| TestJob::new(name, 2).pod_annotation("muster.dev/gang", name).build();
    submit(&stack.admin().unwrap(), "ml", job("before")).await;
    phase(&stack, "ml", "before", "Bound").await;
    // Each of its own would be more than these by the kinds of the shipped manifests alone.
    let connected = &wire;
    eventually(DEADLINE, "few connections to be left", || async move {
        Ok::<_, String>((connected.open() <= 8).then_some(()))
    })
    .await
    .unwrap();
    wire.mutes();
    // Nobody is informed of it on the connections that were open.
    submit(&stack.admin().unwrap(), "ml", job("meanwhile")).await;
    phase(&stack, "ml", "meanwhile", "Bound").await;
    assert_eq!(request(stack.http(), "GET", "/healthz", "").await.unwrap(), "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_launched_before_what_the_lease_holder_of_before_wrote_last_is_known() {
    let Some(stack) = provisioning_stack(&zones([2, 0, 0]), 20, "1s").await else { return };
    let point = after(Step::CreateBatch, 1);
    restart(&stack, Some(point)).await;
    let job = TestJob::new("train", 2).gpus(8).pod_annotation("muster.dev/gang", "train").build();
    submit(&stack.admin().unwrap(), "ml", job).await;
    dies(&stack, point).await;
    assert_eq!(batches(&stack).await.len(), 1);

    let proxy = Proxy::start(&stack).await;
    // The watches list whole objects and go on.
    proxy.breaks("/nodebatches application/json;as=PartialObjectMetadataList", Fault::Fails);
    stack.kill_muster().unwrap();
    stack.start_muster(&[("KUBECONFIG", proxy.kubeconfig.to_str().unwrap())]).await.unwrap();
    // A second lies between them, and a launch is decided in less.
    let asked = &proxy;
    eventually(DEADLINE, "NodeBatches to be asked for five times", || async move {
        Ok::<_, String>((asked.broke() >= 5).then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(launched_fleets(&journal(&stack, 0).await).len(), 0);

    proxy.heals();
    phase(&stack, "ml", "train", "Bound").await;
    assert_eq!(launched_fleets(&journal(&stack, 0).await).len(), 1);
}
