//! Statuses of NodeBatches that earlier versions wrote, one file of `tests/golden/nodebatch` each, are found by this version at its
//! start: each comes to an end, nothing is launched twice, and nothing is left.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use muster::testbed::{eventually, repository};
use muster_api::crd::NodeBatch;
use muster_ec2_sim::Scenario;
use serde_json::{Value, json};

use crate::cloud::{
    batches, everything_is_terminated, impatient, journal, launched_fleets, phase_of, provisioning_stack,
};
use crate::support::no_errors;

/// Every golden object by the name of its file.
fn goldens() -> BTreeMap<String, Value> {
    let folder = repository().join("tests/golden/nodebatch");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        let object = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        (path.file_stem().unwrap().to_str().unwrap().to_owned(), object)
    };
    std::fs::read_dir(folder).unwrap().map(read).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_status_an_earlier_version_wrote_is_taken_over_and_comes_to_an_end() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), 60, "1s").await else { return };
    impatient(&stack).await;
    stack.kill_muster().unwrap();
    let api: Api<NodeBatch> = Api::all(stack.admin().unwrap());
    let goldens = goldens();
    let phases: BTreeSet<&str> = goldens.values().filter_map(|object| object["status"]["phase"].as_str()).collect();
    assert!(goldens.len() >= 64 && phases.len() >= 10, "{} objects, {phases:?}", goldens.len());
    for (name, golden) in &goldens {
        let object: NodeBatch = serde_json::from_value(json!({
            "apiVersion": golden["apiVersion"], "kind": golden["kind"], "spec": golden["spec"],
            "metadata": {"name": name, "finalizers": golden["metadata"]["finalizers"]},
        }))
        .unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
        if golden["status"].is_object() {
            let status = Patch::Merge(json!({"status": golden["status"]}));
            api.patch_status(name, &PatchParams::default(), &status).await.unwrap();
        }
        if golden["metadata"]["deletionTimestamp"].is_string() {
            api.delete(name, &DeleteParams::default()).await.unwrap();
        }
    }
    let found: BTreeSet<String> = batches(&stack).await.values().map(|batch| phase_of(batch).to_owned()).collect();
    assert!(found.is_superset(&phases.iter().map(|phase| (*phase).to_owned()).collect()), "{found:?}");

    stack.start_muster(&[]).await.unwrap();

    // Their owners are gone, and so are the instances that they name: each is taken through what is left of its life.
    let stack_ = &stack;
    eventually(Duration::from_secs(200), "every NodeBatch to come to its end", || async move {
        let left = batches(stack_).await;
        if left.is_empty() {
            return Ok(Some(()));
        }
        let at = |(name, batch): (&String, &NodeBatch)| {
            let message = batch.status.as_ref().and_then(|status| status.message.clone());
            format!("{name}: {} {message:?}", phase_of(batch))
        };
        Err(left.iter().map(at).collect::<Vec<_>>().join("\n"))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    let journal = journal(&stack, 0).await;
    let mut tokens = BTreeSet::new();
    for fleet in launched_fleets(&journal) {
        let token = fleet["parameters"]["ClientToken"].to_string();
        assert!(tokens.insert(token.clone()), "{token} launched twice");
    }
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}
