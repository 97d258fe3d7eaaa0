//! How long gangs took to start, as the metric has it and as the audit log has it. Two clocks of one machine agree only while it has
//! time for both: `make test-slis` runs this alone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use muster::testbed::audit::{self, Entry};
use muster::testbed::request::request;
use muster::testbed::{Stack, eventually};
use muster_ec2_sim::Scenario;

use crate::cloud::{clock, delete_job, gang_job, journal, nothing_is_left, provisioning_stack, zones};
use crate::support::{DEADLINE, all_run, leaves, no_errors, submit};

/// Furthest apart, in seconds.
const APART: f64 = 0.1;
/// Gangs from each source.
const EACH: usize = 10;

/// How many gangs started, and how long all of them took, by source.
async fn starts(stack: &Stack) -> Result<BTreeMap<String, [f64; 2]>, String> {
    let scraped = request(stack.http(), "GET", "/metrics", "").await.map_err(|error| error.to_string())?;
    let mut all: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    for line in scraped.lines() {
        for (position, of) in ["count", "sum"].into_iter().enumerate() {
            let prefix = format!("muster_gang_start_duration_seconds_{of}{{source=\"");
            let Some((source, value)) = line.strip_prefix(&prefix).and_then(|rest| rest.split_once("\"} ")) else {
                continue;
            };
            all.entry(source.to_owned()).or_default()[position] = value.parse().map_err(|_| line.to_owned())?;
        }
    }
    Ok(all)
}

/// Starts a gang: seconds by the audit log, from the last member's creation to the last Binding, and by the metric.
async fn start(stack: &Stack, name: &str, members: u16, source: &str) -> [f64; 2] {
    let log = stack.cluster.audit_log();
    let before = starts(stack).await.unwrap().get(source).copied().unwrap_or_default();
    let old = audit::read(&log).unwrap().len();
    submit(&stack.admin().unwrap(), "ml", gang_job(name, members)).await;
    all_run(stack, "ml", name, usize::from(members)).await;
    let metric = eventually(DEADLINE, "the gang to be counted", || async {
        let now = starts(stack).await?.get(source).copied().unwrap_or_default();
        Ok::<_, String>((now[0] > before[0]).then_some(now[1] - before[1]))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    let expected = usize::from(members);
    let logged = eventually(DEADLINE, "the audit log to have all of it", || async {
        let entries = audit::read(&log).map_err(|error| error.to_string())?;
        let last = |is: &dyn Fn(&&Entry) -> bool| {
            let all: Vec<&Entry> = entries[old..].iter().filter(|entry| is(entry)).collect();
            (all.len() == expected).then(|| all.into_iter().map(|entry| entry.answered).max()).flatten()
        };
        let made = last(&|entry| {
            entry.verb == "create" && entry.resource == "pods" && entry.subresource.is_empty() && entry.succeeded()
        });
        let bound = last(&|entry| entry.is_binding());
        Ok::<_, String>(made.zip(bound).map(|(made, bound)| bound.duration_since(made).as_secs_f64()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    delete_job(stack, name).await;
    [logged, metric]
}

/// What is further apart than it may be.
#[expect(clippy::print_stdout, reason = "what was measured is the output of this suite")]
fn apart(found: &[(String, [f64; 2])]) -> Vec<String> {
    for (name, [logged, metric]) in found {
        println!("{name}: {logged:.3} s by the audit log, {metric:.3} s by the metric");
    }
    let wrong = |(_, [logged, metric]): &&(String, [f64; 2])| (logged - metric).abs() > APART;
    found.iter().filter(wrong).map(|(name, both)| format!("{name}: {both:?}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gangs_on_nodes_that_are_there_start_as_fast_as_the_audit_log_has_it() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), 60, "1s").await else { return };
    stack.create_nodes(leaves(&["a"], 4)).await.unwrap();
    let mut found = Vec::new();
    for number in 0..EACH {
        let name = format!("there-{number}");
        found.push((name.clone(), start(&stack, &name, 4, "existing").await));
        pods_are_gone(&stack).await;
    }
    assert_eq!(apart(&found), Vec::<String>::new());
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gangs_on_new_nodes_start_as_fast_as_the_audit_log_has_it() {
    let Some(stack) = provisioning_stack(&zones([4, 4, 4]), 60, "1s").await else { return };
    let mut found = Vec::new();
    for number in 0..EACH {
        let name = format!("new-{number}");
        found.push((name.clone(), start(&stack, &name, 4, "on-demand").await));
        nothing_is_left(&stack).await;
    }
    assert_eq!(apart(&found), Vec::<String>::new());
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gangs_that_two_zones_had_nothing_for_start_as_fast_as_the_audit_log_has_it() {
    let Some(stack) = provisioning_stack(&zones([0, 0, 4]), 60, "1s").await else { return };
    let mut found = Vec::new();
    for number in 0..EACH {
        ten_minutes_pass(&stack).await;
        let from = journal(&stack, 0).await.len();
        let name = format!("third-{number}");
        found.push((name.clone(), start(&stack, &name, 4, "on-demand").await));
        let refused =
            journal(&stack, from).await.into_iter().filter(|entry| entry["operation"] == "CreateFleet").count();
        assert!(refused >= 3, "{refused} launches: two zones have nothing");
        nothing_is_left(&stack).await;
    }
    assert_eq!(apart(&found), Vec::<String>::new());
    no_errors(&stack);
}

/// What was unavailable is asked for again after five.
async fn ten_minutes_pass(stack: &Stack) {
    let start = clock(stack).await;
    eventually(DEADLINE, "ten minutes of EC2's to pass", || async move {
        Ok::<_, String>((clock(stack).await.duration_since(start).as_secs() > 600).then_some(()))
    })
    .await
    .unwrap();
}

/// Waits until the nodes are free again.
async fn pods_are_gone(stack: &Stack) {
    let pods: Api<Pod> = Api::namespaced(stack.admin().unwrap(), "ml");
    eventually(DEADLINE, "the pods to be gone", || async {
        let there = pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items.len();
        if there == 0 { Ok(Some(())) } else { Err(format!("{there} pods")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}
