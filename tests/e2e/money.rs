//! What was spent is counted for ever: it agrees with EC2's bill, whoever was deleted and however often Muster died.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeMap;

use kube::Api;
use muster::step::Step;
use muster::testbed::stack::request;
use muster::testbed::{Component, Stack, eventually};
use muster_api::crd::NodePool;
use muster_ec2_sim::Scenario;
use serde_json::Value;

use crate::cloud::{batches, delete_job, everything_is_terminated, gang_job, provisioning_stack};
use crate::support::{DEADLINE, all_run, no_errors, submit};

/// Dollars of a counter by its labels.
async fn dollars(stack: &Stack, metric: &str) -> Result<BTreeMap<String, f64>, String> {
    let scraped = request(stack.http(), "GET", "/metrics", "").await.map_err(|error| error.to_string())?;
    let lines = scraped.lines().filter_map(|line| line.strip_prefix(metric)?.strip_prefix('{')?.split_once("} "));
    lines.map(|(labels, value)| Ok((labels.to_owned(), value.parse().map_err(|_| value.to_owned())?))).collect()
}

/// Dollars of EC2's bill.
async fn bill(stack: &Stack) -> f64 {
    let bill: Value = stack.sim("/_sim/bill").await.unwrap();
    bill["total"]["microUsd"].as_f64().unwrap() / 1e6
}

async fn shows(stack: &Stack, expected: f64) {
    eventually(DEADLINE, "the counter to show what EC2 bills", || async move {
        let sums = dollars(stack, "muster_spent_usd_total").await?;
        let all: f64 = sums.values().sum();
        if (all - expected).abs() < 0.005 { Ok(Some(())) } else { Err(format!("{sums:?} of {expected}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

/// Waits until a batch is gone.
async fn is_gone(stack: &Stack, left: usize) {
    eventually(DEADLINE, "the batch to be gone", || async move {
        let there = batches(stack).await.len();
        if there == left { Ok(Some(())) } else { Err(format!("{there} batches")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_spent_agrees_with_the_bill_to_the_cent_after_gangs_were_deleted_and_muster_died_between_book_and_delete()
 {
    let mut scenario = Scenario::demo();
    // EC2 charges from `running`, and shows the launch alone: here they are the same moment.
    scenario.delays.boot_seconds = 0.0;
    let Some(stack) = provisioning_stack(&scenario, 60, "1s").await else { return };
    let client = stack.admin().unwrap();
    for (name, members) in [("one", 4), ("two", 2)] {
        submit(&client, "ml", gang_job(name, members)).await;
        all_run(&stack, "ml", name, usize::from(members)).await;
    }
    stack.kill_muster().unwrap();
    stack.spawn_muster(&[("MUSTER_CRASH", &format!("{}:after", Step::BookBatch.as_str()))]).unwrap();

    delete_job(&stack, "one").await;
    eventually(DEADLINE, "Muster to die with a bill in the books whose batch is there", || async {
        Ok::<_, String>(stack.cluster.exit_status(Component::Muster(0)).map(|_| ()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    assert_eq!(batches(&stack).await.len(), 2, "it is not deleted yet");
    stack.start_muster(&[]).await.unwrap();
    is_gone(&stack, 1).await;

    let running = dollars(&stack, "muster_spent_usd_total").await.unwrap();
    assert!(running.values().sum::<f64>() > 1.0, "what is booked is there after a restart: {running:?}");
    delete_job(&stack, "two").await;
    everything_is_terminated(&stack).await;

    let expected = bill(&stack).await;
    shows(&stack, expected).await;
    let spent = dollars(&stack, "muster_spent_usd_total").await.unwrap();
    let label = r#"namespace="ml",nodepool="h100",capacity_type="on-demand""#;
    assert_eq!(spent.keys().collect::<Vec<_>>(), [label]);
    let stranded: f64 = dollars(&stack, "muster_stranded_usd_total").await.unwrap().values().sum();
    assert!(stranded > 0.0 && stranded < expected, "{stranded} of {expected}");
    let pool = Api::<NodePool>::all(client).get("h100").await.unwrap().status.unwrap();
    let booked = muster_core::batch::dollars(pool.spent.iter().map(|row| row.spent_micro_usd).sum());
    assert!((expected - booked.parse::<f64>().unwrap()).abs() < 0.005, "{expected} and {pool:?}");

    // Another process goes on from there.
    stack.kill_muster().unwrap();
    stack.start_muster(&[]).await.unwrap();
    shows(&stack, expected).await;
    no_errors(&stack);
}
