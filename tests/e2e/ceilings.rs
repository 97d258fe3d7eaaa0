//! What holds a purchase back before EC2 is asked: limits, ceilings on dollars per hour, a missing ceiling, a dry run.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use kube::Api;
use kube::api::{Patch, PatchParams};
use muster::testbed::{Identity, Stack, eventually, pools};
use muster_api::crd::NodePool;
use muster_ec2_sim::Scenario;
use serde_json::{Value, json};

use crate::cloud::{
    batch_that, batches, delete_job, everything_is_terminated, gang_job, instances, invariants_hold, journal,
    launched_fleets, patient, zones,
};
use crate::support::{DEADLINE, no_errors, options, phase, says, stack, submit};

/// EC2's minutes pass in seconds.
const FACTOR: u32 = 60;

/// A stack with this configuration of the provisioner and these fields of the pool's spec.
async fn capped(scenario: &Scenario, provisioner: Value, pool: &Value) -> Option<Stack> {
    let mut options = options().await?;
    options.scenario = Some(serde_json::to_value(scenario).unwrap());
    options.factor = FACTOR;
    options.config = json!({"provisioner": provisioner});
    let stack = stack(options, "ml").await;
    let (class, of_testbed) = pools::p5("1s").unwrap();
    let mut new = json!(patient(&of_testbed));
    for (field, value) in pool.as_object().unwrap() {
        new["spec"][field] = value.clone();
    }
    pools::create(&stack.admin().unwrap(), &class, &serde_json::from_value(new).unwrap()).await.unwrap();
    Some(stack)
}

/// Waits until the pool is not Ready for this reason, and returns what it says.
async fn not_ready(stack: &Stack, reason: &str) -> String {
    let pools = &Api::<NodePool>::all(stack.admin().unwrap());
    eventually(DEADLINE, &format!("the pool to be not Ready for {reason}"), || async move {
        let status = pools.get("h100").await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        let ready = status.conditions.into_iter().find(|condition| condition.type_ == "Ready");
        match ready {
            Some(ready) if ready.status == "False" && ready.reason == reason => Ok(Some(ready.message)),
            ready => Err(format!("{ready:?}")),
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)))
}

async fn change_pool(stack: &Stack, spec: Value) {
    let pools = Api::<NodePool>::all(stack.admin().unwrap());
    let patch = Patch::Merge(json!({"spec": spec}));
    pools.patch("h100", &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gangs_that_race_for_the_last_capacity_of_a_limit_never_pass_it_and_use_it_up() {
    let pool = json!({"limits": {"nodes": 8}});
    let Some(stack) = capped(&zones([16, 16, 16]), json!({"backOff": "5s"}), &pool).await else { return };
    let client = stack.admin().unwrap();
    for name in ["first", "second", "third", "fourth"] {
        submit(&client, "ml", gang_job(name, 8)).await;
    }

    let provisioned = batch_that(&stack, "one gang's nodes to be in use", |batch| {
        batch.status.as_ref().is_some_and(|status| status.phase == "InUse")
    })
    .await;

    let journal = journal(&stack, 0).await;
    let launched: usize = launched_fleets(&journal).iter().map(|fleet| instances(fleet).len()).sum();
    assert_eq!(launched, 8, "the limit is 8, and 8 fit");
    let winner = provisioned.spec.gang_ref.unwrap().name;
    let loser = ["first", "second", "third", "fourth"].into_iter().find(|name| !winner.starts_with(name)).unwrap();
    says(&stack, "ml", loser, "limit on nodes: 8 needed, 0 left").await;
    invariants_hold(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_ceiling_on_dollars_refuses_by_its_name() {
    // Eight p5.48xlarge are 440.32 dollars per hour.
    let config = json!({"maxUsdPerHour": "500", "backOff": "5s"});
    let Some(stack) = capped(&zones([16, 16, 16]), config, &json!({})).await else { return };
    let client = stack.admin().unwrap();
    submit(&client, "ml", gang_job("first", 8)).await;
    phase(&stack, "ml", "first", "Bound").await;

    submit(&client, "ml", gang_job("second", 8)).await;
    says(&stack, "ml", "second", "provisioner.maxUsdPerHour is $500.00: $440.32/h needed, $59.68/h left").await;
    // Whoever asks without the server's configuration is answered the same.
    let raise = ". Raise provisioner.maxUsdPerHour in Muster's configuration from \"500.00\" to \"880.64\"";
    eventually(DEADLINE, "muster explain to know the ceiling of the cluster", || async {
        let explain = tokio::process::Command::new(env!("CARGO_BIN_EXE_muster"))
            .args(["explain", "gang", "second", "-n", "ml"])
            .env("KUBECONFIG", stack.cluster.kubeconfig(Identity::Admin))
            .output();
        let answer = explain.await.map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        let knows = text.starts_with("gang ml/second waits: ") && text.contains(raise);
        if knows { Ok(Some(())) } else { Err(text) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));

    change_pool(&stack, json!({"maxUsdPerHour": "495.36"})).await;
    says(&stack, "ml", "second", "spec.maxUsdPerHour is $495.36: $440.32/h needed, $55.04/h left").await;
    submit(&client, "ml", gang_job("one", 1)).await;
    phase(&stack, "ml", "one", "Bound").await;
    let journal = journal(&stack, 0).await;
    let launched: usize = launched_fleets(&journal).iter().map(|fleet| instances(fleet).len()).sum();
    assert_eq!(launched, 9, "what fits under both ceilings is provisioned, and no more");
    invariants_hold(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_ceiling_on_dollars_and_with_a_limit_that_limits_nothing_no_pool_is_ready() {
    let pool = json!({"limits": {"node": 4}});
    let Some(stack) = capped(&Scenario::demo(), json!({"maxUsdPerHour": null}), &pool).await else { return };
    let stated = not_ready(&stack, "MaxUsdPerHourNotSet").await;
    assert!(stated.contains("provisioner.maxUsdPerHour") && stated.contains("unlimited"), "{stated}");
    drop(stack);

    let Some(stack) = capped(&Scenario::demo(), json!({}), &pool).await else { return };
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;
    let stated = not_ready(&stack, "LimitInvalid").await;
    assert!(stated.contains("spec.limits.node: \"4\"") && stated.contains("did you mean nodes?"), "{stated}");
    assert!(batches(&stack).await.is_empty());
    change_pool(&stack, json!({"limits": {"node": null, "nodes": 8}})).await;
    phase(&stack, "ml", "train", "Bound").await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_decides_and_tells_and_sends_no_call_that_changes_anything() {
    let Some(stack) = capped(&Scenario::demo(), json!({"dryRun": true}), &json!({})).await else { return };
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;

    let batch = batch_that(&stack, "a batch to say what it would launch", |batch| {
        let message = batch.status.as_ref().and_then(|status| status.message.clone()).unwrap_or_default();
        message.starts_with("dry run: would launch 8 × p5.48xlarge on-demand in us-east-1")
    })
    .await;
    assert!(!batch.status.unwrap().candidates.is_empty(), "with everything else it would try");
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;

    let journal = journal(&stack, 0).await;
    let changing = ["Create", "Delete", "Run", "Terminate", "Modify"];
    let sent: Vec<&str> = journal
        .iter()
        .filter_map(|entry| entry["operation"].as_str())
        .filter(|operation| changing.iter().any(|verb| operation.starts_with(verb)))
        .collect();
    assert!(sent.is_empty(), "{sent:?}");
    assert!(journal.iter().any(|entry| entry["operation"] == "DescribeInstanceTypes"), "it looks, though");
    no_errors(&stack);
}
