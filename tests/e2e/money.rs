//! What was spent is counted for ever: it agrees with EC2's bill, whoever was deleted and however often Muster died.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeMap;

use kube::Api;
use muster::step::Step;
use muster::testbed::request::request;
use muster::testbed::{Component, Stack, eventually};
use muster_api::crd::NodePool;
use muster_ec2_sim::Scenario;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::cloud::{
    batches, delete_job, everything_is_terminated, gang_job, live, provisioning_on, provisioning_stack, zones,
};
use crate::ha::leads;
use crate::support::{DEADLINE, all_run, no_errors, options, submit};

/// EC2's minutes pass in seconds: what runs is counted up to a minute ago, and never less than once.
const FACTOR: u32 = 20;

/// Dollars of a metric by its labels.
async fn dollars(stack: &Stack, metric: &str) -> Result<BTreeMap<String, f64>, String> {
    dollars_of(stack, 0, metric).await
}

/// … as this replica has them.
async fn dollars_of(stack: &Stack, number: u8, metric: &str) -> Result<BTreeMap<String, f64>, String> {
    let scraped = request(stack.http_of(number), "GET", "/metrics", "").await.map_err(|error| error.to_string())?;
    let lines = scraped.lines().filter_map(|line| line.strip_prefix(metric)?.strip_prefix('{')?.split_once("} "));
    lines.map(|(labels, value)| Ok((labels.to_owned(), value.parse().map_err(|_| value.to_owned())?))).collect()
}

/// Dollars of EC2's bill.
async fn bill(stack: &Stack) -> f64 {
    let bill: Value = stack.sim("/_sim/bill").await.unwrap();
    bill["total"]["microUsd"].as_f64().unwrap() / 1e6
}

/// What of a metric is reported once it adds up to something that `is`. A replica that takes the lease, or takes it again on a machine
/// that is busy, reports nothing before.
async fn reports(stack: &Stack, metric: &str, is: impl Fn(f64) -> bool, what: &str) -> BTreeMap<String, f64> {
    let is = &is;
    eventually(DEADLINE, &format!("{metric}: {what}"), || async move {
        let sums = dollars(stack, metric).await?;
        if is(sums.values().sum()) { Ok(Some(sums)) } else { Err(format!("{sums:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)))
}

/// What is reported by who pays, once it adds up to what EC2 bills.
async fn shows(stack: &Stack, expected: f64) -> BTreeMap<String, f64> {
    let what = format!("what EC2 bills, {expected}");
    reports(stack, "muster_spent_usd_total", |sum| (sum - expected).abs() < 0.005, &what).await
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
    let Some(stack) = provisioning_stack(&scenario, FACTOR, "1s").await else { return };
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

    reports(&stack, "muster_spent_usd_total", |sum| sum > 1.0, "what is booked is there after a restart").await;
    delete_job(&stack, "two").await;
    everything_is_terminated(&stack).await;

    let expected = bill(&stack).await;
    let spent = shows(&stack, expected).await;
    let label = r#"namespace="ml",nodepool="h100",capacity_type="on-demand""#;
    assert_eq!(spent.keys().collect::<Vec<_>>(), [label]);
    reports(&stack, "muster_stranded_usd_total", |sum| sum > 0.0 && sum < expected, "part of what EC2 bills").await;
    let pool = Api::<NodePool>::all(client).get("h100").await.unwrap().status.unwrap();
    let booked = muster_core::batch::dollars(pool.spent.iter().map(|row| row.spent_micro_usd).sum());
    assert!((expected - booked.parse::<f64>().unwrap()).abs() < 0.005, "{expected} and {pool:?}");

    // Another process goes on from there.
    stack.kill_muster().unwrap();
    stack.start_muster(&[]).await.unwrap();
    shows(&stack, expected).await;
    no_errors(&stack);
}

/// Dollars an hour that these replicas report together.
async fn rate(stack: &Stack, replicas: &[u8]) -> Result<f64, String> {
    let mut sum = 0.0;
    for number in replicas {
        sum += dollars_of(stack, *number, "muster_node_cost_usd_per_hour").await?.values().sum::<f64>();
    }
    Ok(sum)
}

/// Dollars an hour that EC2 charges.
async fn charged(stack: &Stack) -> f64 {
    let live = live(stack).await;
    let bill: Value = stack.sim("/_sim/bill").await.unwrap();
    let of =
        bill["instances"].as_array().unwrap().iter().filter(|one| live.contains(one["instanceId"].as_str().unwrap()));
    of.map(|one| one["price"].as_f64().unwrap()).sum::<f64>() / 1e6
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_replicas_together_report_the_rate_that_ec2_charges_after_each_takeover_and_once_the_stopped_one_goes_on()
{
    let Some(mut options) = options().await else { return };
    options.replicas = 2;
    options.config = json!({"lease": {"duration": "2s", "grace": "1s"}});
    // Nothing in the first zone, so that each gang has an attempt that is lost; and EC2 charges from the launch on, as it is shown.
    let mut scenario = zones([0, 2, 4]);
    scenario.delays.boot_seconds = 0.0;
    let stack = provisioning_on(options, &scenario, FACTOR, "60s").await;
    let client = stack.admin().unwrap();
    submit(&client, "ml", gang_job("one", 2)).await;
    all_run(&stack, "ml", "one", 2).await;
    let report = async |replicas: &'static [u8], what: &str| {
        let expected = charged(&stack).await;
        assert!(expected > 0.0);
        eventually(DEADLINE, what, || async {
            let sum = rate(&stack, replicas).await?;
            if (sum - expected).abs() < 0.005 { Ok(Some(())) } else { Err(format!("{sum} of {expected}")) }
        })
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
        expected
    };
    let mut charges = vec![report(&[0, 1], "both to report the rate").await];
    // The second gang changes the rate under the other holder.
    for (gang, members) in [("two", 4), ("three", 0)] {
        let first = leads(&stack).await;
        let rest: &'static [u8] = if first == 0 { &[1] } else { &[0] };
        stack.cluster.signal(Component::Muster(first), Signal::SIGSTOP).unwrap();
        eventually(DEADLINE, "the other replica to hold the lease", || async {
            if leads(&stack).await == first { Err("it does not") } else { Ok(Some(())) }
        })
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
        if members > 0 {
            submit(&client, "ml", gang_job(gang, members)).await;
            // The kube-scheduler beside the one that is stopped may be the one that leads: nodes come without it.
            eventually(DEADLINE, "the nodes of the second gang to be launched", || async {
                let there = live(&stack).await.len();
                if there == 6 { Ok(Some(())) } else { Err(format!("{there} instances")) }
            })
            .await
            .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
        }
        charges.push(report(rest, "the one that goes on to report the rate").await);
        stack.cluster.signal(Component::Muster(first), Signal::SIGCONT).unwrap();
        charges.push(report(&[0, 1], "both to report the rate again").await);
    }
    assert!(charges[1] > charges[0] && charges[4] >= charges[1], "{charges:?}");

    // Two takeovers later the books have all of it, and one replica alone reports them.
    for gang in ["one", "two"] {
        delete_job(&stack, gang).await;
    }
    everything_is_terminated(&stack).await;
    let expected = bill(&stack).await;
    eventually(DEADLINE, "both together to report what EC2 bills", || async {
        let mut sums = Vec::new();
        for number in [0, 1] {
            sums.push(dollars_of(&stack, number, "muster_spent_usd_total").await?.values().sum::<f64>());
        }
        if (sums.iter().sum::<f64>() - expected).abs() < 0.005 {
            Ok(Some(()))
        } else {
            Err(format!("{sums:?} of {expected}"))
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}
