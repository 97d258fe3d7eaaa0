//! Muster as the extender of the cluster's default scheduler: one entry, `/v1/all`, for pods with accelerators.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;

use muster::testbed::eventually;
use muster::testbed::request::request;
use muster::testbed::workloads::{TestJob, TestPod};
use serde_json::json;

use crate::support::{
    DEADLINE, all_run, bare, create, delete, leaves, no_errors, node_of, options, phase, runs_on, stack, submit,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gangs_are_held_together_by_the_default_scheduler_and_other_pods_do_not_depend_on_muster() {
    let Some(mut options) = options().await else { return };
    options.scheduler = "default-scheduler.yaml";
    options.config = json!({"schedulerNames": ["default-scheduler"]});
    // Muster has its own permissions only: the kube-scheduler is not in its Pod.
    options.without = vec!["rbac-scheduler.yaml"];
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a", "b"], 4)).await.unwrap();
    let client = stack.admin().unwrap();

    // A whole gang, without a gate: the shipped policy is for Muster's own profile.
    let job = TestJob::new("train", 4).scheduler("default-scheduler").gpus(8);
    let job = job.pod_annotation("muster.dev/gang", "train").pod_annotation("muster.dev/topology-required", "leaf");
    submit(&client, "ml", job.build()).await;
    let pods = all_run(&stack, "ml", "train", 4).await;
    let leaf = |node: String| node.split('-').next().unwrap().to_owned();
    assert_eq!(pods.iter().filter_map(node_of).map(leaf).collect::<BTreeSet<_>>().len(), 1, "one leaf");

    // Half a gang: it stands at the barrier, gated or not, and is not bound.
    for number in 0..4 {
        let mut pod = bare("half", number, 4);
        pod.spec.as_mut().unwrap().scheduler_name = Some("default-scheduler".to_owned());
        if number == 3 {
            pod.spec.as_mut().unwrap().scheduling_gates =
                Some(vec![serde_json::from_value(json!({"name": "example.com/held"})).unwrap()]);
        }
        create(&stack, "ml", pod).await;
    }
    phase(&stack, "ml", "half", "Collecting").await;

    // Without Muster pods without accelerators are scheduled as ever.
    stack.kill_muster().unwrap();
    create(&stack, "ml", TestPod::new("plain").scheduler("default-scheduler").build()).await;
    runs_on(&stack, "ml", "plain", DEADLINE).await;

    stack.start_muster(&[]).await.unwrap();
    delete(&stack, "ml", "half-3").await;
    let mut last = bare("half", 3, 4);
    last.spec.as_mut().unwrap().scheduler_name = Some("default-scheduler".to_owned());
    create(&stack, "ml", last).await;
    let mut nodes = BTreeSet::new();
    for number in 0..4 {
        nodes.insert(runs_on(&stack, "ml", &format!("half-{number}"), DEADLINE).await);
    }
    assert_eq!(nodes.len(), 4);
    let http = stack.http();
    eventually(DEADLINE, "an empty barrier", || async move {
        let metrics = request(http, "GET", "/metrics", "").await.map_err(|error| error.to_string())?;
        Ok::<_, String>(metrics.lines().any(|line| line == "muster_barrier_waiting 0").then_some(()))
    })
    .await
    .unwrap();
    no_errors(&stack);
}
