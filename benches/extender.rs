//! Times `filter` and `prioritize` at 5,000 offered nodes beside the bare cost of reading and writing the same bodies.
//!
//! The yardstick is taken in the same run, call by call in turn, so that a busy machine slows both. Nothing gates on
//! these figures: they are for people.

#![allow(clippy::print_stdout, reason = "prints its table")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Json;
use axum::response::IntoResponse;
use muster::cluster::{Store, StoreOptions};
use muster::extender::wire::{ExtenderArgs, ExtenderFilterResult, HostPriority};
use muster::extender::{Barrier, BarrierOptions, Extender, Limits, answer_filter, answer_prioritize};
use muster::telemetry::Metrics;
use muster::testbed::nodes::TestNode;
use muster::testbed::workloads::TestPod;
use muster_api::crd::Gang;
use serde_json::json;
use tokio_util::task::TaskTracker;

const NODES: usize = 5_000;
const ROUNDS: usize = 300;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    println!(
        "{NODES} nodes offered, {ROUNDS} calls each; times in microseconds; yardstick: the same bodies read and written"
    );
    println!("{:<44} {:>8} {:>8} {:>8} {:>8} {:>7}", "call", "p50", "p99", "bare p50", "bare p99", "ratio");
    for (what, assigned) in [("nothing is assigned", 0), ("a gang is assigned 512 nodes", 512)] {
        let extender = extender(assigned)?;
        for (pod, gpus) in [("pod without accelerator", 0), ("pod with accelerator", 8)] {
            let body = body(gpus)?;
            row(&format!("filter, {what}, {pod}"), &extender, &body, Verb::Filter)?;
            row(&format!("prioritize, {what}, {pod}"), &extender, &body, Verb::Prioritize)?;
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Verb {
    Filter,
    Prioritize,
}

fn row(name: &str, extender: &Extender, body: &[u8], verb: Verb) -> anyhow::Result<()> {
    let (mut ours, mut bare) = (Vec::with_capacity(ROUNDS), Vec::with_capacity(ROUNDS));
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let args: ExtenderArgs<'_> = serde_json::from_slice(body)?;
        let answer = match verb {
            Verb::Filter => answer_filter(extender, &extender.view(), &args, body).map(|answer| answer.response),
            Verb::Prioritize => answer_prioritize(extender, &extender.view(), &args, body),
        };
        answer.map_err(|error| anyhow::anyhow!(error))?;
        ours.push(started.elapsed());

        let started = Instant::now();
        let args: ExtenderArgs<'_> = serde_json::from_slice(body)?;
        let names = args.node_names.as_deref().unwrap_or_default();
        match verb {
            Verb::Filter => drop(
                Json(ExtenderFilterResult {
                    node_names: names.iter().map(AsRef::as_ref).collect(),
                    ..ExtenderFilterResult::default()
                })
                .into_response(),
            ),
            Verb::Prioritize => {
                let scores: Vec<HostPriority<'_>> =
                    names.iter().map(|host| HostPriority { host: host.as_ref(), score: 5_000 }).collect();
                drop(Json(scores).into_response());
            }
        }
        bare.push(started.elapsed());
    }
    let (ours, bare) = (percentiles(ours), percentiles(bare));
    // Two places without floats.
    let ratio = ours.0.as_nanos() * 100 / bare.0.as_nanos().max(1);
    println!(
        "{name:<44} {:>8} {:>8} {:>8} {:>8} {:>4}.{:02}",
        ours.0.as_micros(),
        ours.1.as_micros(),
        bare.0.as_micros(),
        bare.1.as_micros(),
        ratio / 100,
        ratio % 100
    );
    Ok(())
}

/// Median and 99th percentile.
fn percentiles(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

fn name(node: usize) -> String {
    format!("ip-10-0-{}-{}.us-east-1.compute.internal", node / 250, node % 250)
}

fn extender(assigned: usize) -> anyhow::Result<Extender> {
    let (mut store, cluster) = Store::new(
        StoreOptions {
            scheduler_names: vec!["muster".to_owned()],
            provisioner_scheduler_names: Vec::new(),
            accelerators: vec!["nvidia.com/gpu".into()],
            max_age: Duration::from_secs(3600),
        },
        &[],
        &[],
    );
    for node in 0..NODES {
        store.apply_node(&TestNode::new(name(node)).build());
    }
    for gpus in [0, 8] {
        store.apply_pod(pod(gpus)?);
    }
    if assigned > 0 {
        let nodes: Vec<String> = (0..assigned).map(name).collect();
        let places: Vec<_> = (0..assigned).map(|rank| json!({"rank": rank, "node": rank})).collect();
        let gang: Gang = serde_json::from_value(json!({
            "apiVersion": "muster.dev/v1alpha1", "kind": "Gang",
            "metadata": {"name": "train", "namespace": "ml", "uid": "g", "resourceVersion": "1"},
            "spec": {"source": {"convention": "annotations", "identity": "train"}, "size": assigned, "min": assigned},
            "status": {"version": 1, "phase": "Released", "epoch": 1,
                "plan": {"minimum": assigned, "nodes": nodes, "places": places}},
        }))?;
        let mut member = TestPod::new("train-0").gpus(8).annotation("muster.dev/gang", "train").build();
        member.metadata.namespace = Some("ml".to_owned());
        member.metadata.uid = Some("train-0".to_owned());
        store.apply_pod(member);
        store.apply_gang(gang);
    }
    store.publish();
    let client = kube::Client::try_from(kube::Config::new("http://127.0.0.1:9".parse()?)).context("make a client")?;
    let metrics = Metrics::shared();
    let options = BarrierOptions { hold: Duration::from_secs(55), limit: Duration::from_secs(58), parallel: 64 };
    let barrier = Barrier::new(client, cluster.clone(), options, metrics.gangs.clone(), TaskTracker::new());
    let extender = Extender::new(
        cluster,
        Arc::new(barrier),
        Arc::default(),
        metrics.extender.clone(),
        vec!["muster".to_owned()],
        Limits::default(),
    );
    Ok(extender)
}

fn pod(gpus: u32) -> anyhow::Result<k8s_openapi::api::core::v1::Pod> {
    let mut pod = TestPod::new(format!("single-{gpus}")).gpus(gpus).build();
    pod.metadata.namespace = Some("ml".to_owned());
    pod.metadata.uid = Some(format!("single-{gpus}"));
    // A pod of usual size: some ten kilobytes, most of it of no interest here.
    let spec = pod.spec.as_mut().context("a pod has a spec")?;
    let environment: Vec<_> =
        (0..120).map(|number| json!({"name": format!("VARIABLE_{number}"), "value": "x".repeat(60)})).collect();
    for container in &mut spec.containers {
        container.env = Some(serde_json::from_value(json!(environment))?);
    }
    Ok(pod)
}

fn body(gpus: u32) -> anyhow::Result<Vec<u8>> {
    let names: Vec<String> = (0..NODES).map(name).collect();
    Ok(serde_json::to_vec(&json!({"Pod": pod(gpus)?, "Nodes": null, "NodeNames": names}))?)
}
