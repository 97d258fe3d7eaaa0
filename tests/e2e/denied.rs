//! Every action of the shipped IAM policy, denied alone: a condition names it, nothing is provisioned that could not be given
//! back, nothing is left over, and it goes on once the action is allowed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use muster::testbed::workloads::TestPod;
use muster::testbed::{Stack, eventually, pools, repository};
use muster_api::crd::{EC2NodeClass, NodeBatch, NodePool};
use muster_ec2_sim::choices::DryRun;
use muster_ec2_sim::policy::Policy;
use muster_ec2_sim::{Fault, FaultKind, MarketType, Scenario};
use serde_json::{Value, json};

use crate::cloud::{
    batch_that, batches, delete_job, everything_is_terminated, gang_job, goes_wrong, instances, journal,
    launched_fleets, patient, provisioning_stack,
};
use crate::leftovers::metric;
use crate::support::{
    DEADLINE, all_run, choices, create, delete, no_errors, options, refused, runs_on, says, stack, submit,
};
use crate::ways::{capacity_types, reservation, stack_with};

/// EC2's minutes pass in a second: classes are looked at again every five.
const FACTOR: u32 = 60;

/// Found by a dry run of what a launch needs, before any gang is there.
const LAUNCHING: [&str; 7] = [
    "ec2:CreateFleet",
    "ec2:RunInstances",
    "ec2:CreateTags",
    "iam:PassRole",
    "ec2:CreateLaunchTemplate",
    "ec2:DeleteLaunchTemplate",
    "ec2:CreatePlacementGroup",
];
/// Found by the readings that go on all the time.
const READING: [&str; 8] = [
    "ec2:DescribeInstances",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribePlacementGroups",
    "ec2:DescribeLaunchTemplates",
    "ec2:DescribeSubnets",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeCapacityReservations",
];
/// Found when nodes are terminated.
const LEAVING: [&str; 2] = ["ec2:TerminateInstances", "ec2:DeletePlacementGroup"];
/// Reported, and nothing waits for them.
const TELLING: [&str; 4] =
    ["ec2:DescribeInstanceTopology", "ec2:DescribeInstanceStatus", "sqs:ReceiveMessage", "sqs:DeleteMessage"];
/// As those, and asked for at the start.
const STARTING: [&str; 2] = ["sqs:GetQueueUrl", "ec2:DescribeSpotPriceHistory"];
/// Each in a test of its own; a cluster is described and quotas are read in those of `crates/ec2`, since simulated nodes have no
/// need of it and `muster serve` never asks for quotas.
const APART: [&str; 10] = [
    "eks:DescribeAccessEntry",
    "eks:DescribeCluster",
    "pricing:GetProducts",
    "ssm:GetParameter",
    "servicequotas:GetAWSDefaultServiceQuota",
    "servicequotas:GetServiceQuota",
    "ec2:DescribeFleets",
    "ec2:DescribeImages",
    "ec2:DeleteFleets",
    "ec2:GetConsoleOutput",
];

#[test]
fn no_action_of_the_shipped_policy_is_excluded() {
    let text = std::fs::read_to_string(repository().join("manifests/iam/policy.json")).unwrap();
    let policy: Value = serde_json::from_str(&text).unwrap();
    let actions = policy["Statement"].as_array().unwrap().iter().flat_map(|statement| match &statement["Action"] {
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect::<Vec<_>>(),
        one => one.as_str().into_iter().collect(),
    });
    let shipped: BTreeSet<&str> = actions.collect();
    let here: BTreeSet<&str> =
        [&LAUNCHING[..], &READING, &LEAVING, &TELLING, &STARTING, &APART].into_iter().flatten().copied().collect();
    assert_eq!(here, shipped);
}

/// No suite has more than an account that was set up by the page: what the simulator holds calls against is what `muster iam`
/// prints for the cluster, and nothing else is allowed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_stack_is_held_against_the_policy_that_muster_iam_prints() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), FACTOR, "1s").await else { return };
    let held: Value = stack.sim("/_sim/policy").await.unwrap();
    let namespaces: Api<Namespace> = Api::all(stack.admin().unwrap());
    let uid = namespaces.get("kube-system").await.unwrap().metadata.uid.unwrap();
    let printed = std::process::Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["iam", "--cluster-name", "muster", "--cluster-uid", &uid, "--account", "123456789012"])
        .args(["--region", "us-east-1", "--node-role", "muster-node", "--queue", "muster-interruptions"])
        .output()
        .unwrap();
    let printed: Policy = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(serde_json::from_value::<Policy>(held).unwrap(), printed);
    // It is not only there: of what Muster makes, nothing is allowed under another role.
    let classes = Api::<EC2NodeClass>::all(stack.admin().unwrap());
    let other = kube::api::Patch::Merge(json!({"spec": {"instanceProfile": "administrators"}}));
    classes.patch("gpu", &kube::api::PatchParams::default(), &other).await.unwrap();
    named(&stack, "iam:PassRole", true).await;
    no_errors(&stack);
}

/// A stack that hears of interruptions, with spot and reservations beside on-demand, and the testbed's class and pool.
async fn guarded() -> Option<Stack> {
    let mut options = options().await?;
    let mut scenario = Scenario::default().with_pool("p5.48xlarge", "us-east-1a", MarketType::OnDemand, 1, 1, 4);
    scenario.reservations = vec![reservation("cr-00000000000000001", None, 1)];
    options.scenario = Some(serde_json::to_value(&scenario).unwrap());
    options.factor = FACTOR;
    options.config = json!({"ec2": {"interruptionQueue": "muster-interruptions"}});
    let stack = stack(options, "ml").await;
    let (class, pool) = pools::p5("1s").unwrap();
    let (mut class, mut pool) = (json!(class), json!(patient(&pool)));
    class["spec"]["capacityReservationSelectorTerms"] = json!([{"tags": {"team": "ml"}}]);
    pool["spec"]["template"] = capacity_types(&["on-demand", "spot"]);
    let (class, pool) = (serde_json::from_value(class).unwrap(), serde_json::from_value(pool).unwrap());
    pools::create(&stack.admin().unwrap(), &class, &pool).await.unwrap();
    Some(stack)
}

async fn deny(stack: &Stack, actions: &[&str]) {
    stack.sim_post("/_sim/denied", &json!(actions)).await.unwrap();
}

fn of(conditions: &[Condition], kind: &str) -> Option<Condition> {
    conditions.iter().find(|one| one.type_ == kind).cloned()
}

/// `Authorized` and `Ready` of the class, and `Ready` of the pool.
async fn conditions(stack: &Stack) -> Result<[Option<Condition>; 3], String> {
    let client = stack.admin().map_err(|error| error.to_string())?;
    let class = Api::<EC2NodeClass>::all(client.clone()).get("gpu").await.map_err(|error| error.to_string())?;
    let pool = Api::<NodePool>::all(client).get("h100").await.map_err(|error| error.to_string())?;
    let class = class.status.unwrap_or_default().conditions;
    let pool = pool.status.unwrap_or_default().conditions;
    Ok([of(&class, "Authorized"), of(&class, "Ready"), of(&pool, "Ready")])
}

/// Waits until class and pool say that `action` is denied, and whether anything is provisioned without it.
async fn named(stack: &Stack, action: &str, blocks: bool) {
    eventually(DEADLINE, &format!("a condition to name {action}"), || async move {
        let seen = conditions(stack).await?;
        let names = |one: &Option<Condition>| {
            one.as_ref().is_some_and(|one| {
                one.status == "False" && one.reason == "NotAuthorized" && one.message.contains(action)
            })
        };
        let ready = |one: &Option<Condition>| one.as_ref().is_some_and(|one| one.status == "True");
        let [authorized, class, pool] = &seen;
        let rest = if blocks { names(class) && names(pool) } else { ready(class) && ready(pool) };
        if names(authorized) && rest { Ok(Some(())) } else { Err(format!("{seen:#?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

/// Waits until nothing is denied any more.
async fn all_is_allowed(stack: &Stack, action: &str) {
    eventually(DEADLINE, &format!("class and pool to be ready after {action}"), || async move {
        let seen = conditions(stack).await?;
        let ready = |one: &Option<Condition>| one.as_ref().is_some_and(|one| one.status == "True");
        if seen.iter().all(ready) { Ok(Some(())) } else { Err(format!("{seen:#?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

/// What a gang and a pod of no gang wait for while a right is missing.
const NOT_READY: &str = "no NodePool is ready to provision nodes";

/// A gang of so many and a pod of no gang, each on whole nodes.
async fn submit_both(stack: &Stack, job: &str, members: u16) {
    submit(&stack.admin().unwrap(), "ml", gang_job(job, members)).await;
    create(stack, "ml", TestPod::new(beside(job)).gpus(8).build()).await;
}

/// The pod of no gang beside this gang.
fn beside(job: &str) -> String {
    format!("{job}-alone")
}

/// Waits until both say that no pool is ready: the gang by its reason, the pod by an event.
async fn both_wait(stack: &Stack, job: &str) {
    says(stack, "ml", job, NOT_READY).await;
    refused(stack, "ml", &beside(job), &[NOT_READY]).await;
}

async fn both_run(stack: &Stack, job: &str, members: usize) {
    all_run(stack, "ml", job, members).await;
    runs_on(stack, "ml", &beside(job), DEADLINE).await;
}

async fn delete_both(stack: &Stack, job: &str) {
    delete_job(stack, job).await;
    delete(stack, "ml", &beside(job)).await;
}

/// Each action denied before anybody comes: it is named, nothing is launched, and gang and pod run once it is allowed.
async fn found_before_anybody_needs_it(actions: &[&str]) {
    let Some(stack) = guarded().await else { return };
    all_is_allowed(&stack, "the start").await;
    for action in actions {
        let from = journal(&stack, 0).await.len();
        deny(&stack, &[action]).await;
        named(&stack, action, true).await;
        let job = format!("job-{from}");
        submit_both(&stack, &job, 2).await;
        both_wait(&stack, &job).await;
        let entries = journal(&stack, from).await;
        assert!(launched_fleets(&entries).is_empty(), "{action}");
        deny(&stack, &[]).await;
        all_is_allowed(&stack, action).await;
        both_run(&stack, &job, 2).await;
        assert_eq!(launched_fleets(&journal(&stack, from).await).len(), 2, "{action}: one launch each");
        delete_both(&stack, &job).await;
        everything_is_terminated(&stack).await;
    }
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_a_launch_needs_is_missed_before_the_first_gang_or_pod_needs_it() {
    found_before_anybody_needs_it(&LAUNCHING).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_to_read_is_missed_before_the_first_gang_or_pod_needs_it() {
    found_before_anybody_needs_it(&READING).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_to_terminate_is_reported_on_the_batch_and_nothing_more_is_provisioned_until_all_is_gone() {
    let Some(stack) = guarded().await else { return };
    all_is_allowed(&stack, "the start").await;
    for (number, action) in LEAVING.iter().enumerate() {
        let job = format!("job-{number}");
        submit_both(&stack, &job, 2).await;
        both_run(&stack, &job, 2).await;
        deny(&stack, &[action]).await;
        let from = journal(&stack, 0).await.len();
        delete_both(&stack, &job).await;
        named(&stack, action, true).await;
        // Where the pod's node can be terminated it is gone by then, and nobody is placed there any more.
        let at = &stack;
        eventually(DEADLINE, "every batch that is left to name the right", || async move {
            let left = batches(at).await;
            let names = |batch: &NodeBatch| {
                let status = batch.status.as_ref();
                let reported = status.and_then(|status| of(&status.conditions, "Authorized"));
                reported.is_some_and(|one| one.status == "False" && one.message.contains(action))
            };
            if !left.is_empty() && left.values().all(names) { Ok(Some(())) } else { Err(format!("{left:?}")) }
        })
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
        let next = format!("next-{number}");
        submit_both(&stack, &next, 3).await;
        both_wait(&stack, &next).await;
        assert!(launched_fleets(&journal(&stack, from).await).is_empty(), "{action}");
        deny(&stack, &[]).await;
        both_run(&stack, &next, 3).await;
        all_is_allowed(&stack, action).await;
        delete_both(&stack, &next).await;
        everything_is_terminated(&stack).await;
    }
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_only_tells_more_is_missed_aloud_and_gangs_and_pods_run_all_the_same() {
    let Some(stack) = guarded().await else { return };
    all_is_allowed(&stack, "the start").await;
    for (number, action) in TELLING.iter().enumerate() {
        deny(&stack, &[action]).await;
        let job = format!("job-{number}");
        submit_both(&stack, &job, 2).await;
        both_run(&stack, &job, 2).await;
        // A message has to be there before it can be deleted.
        let live: Vec<Value> = stack.sim("/_sim/instances").await.unwrap();
        let notice = json!({"kind": "rebalance", "instanceIds": [live[0]["instanceId"]]});
        stack.sim_post("/_sim/interrupt", &notice).await.unwrap();
        named(&stack, action, false).await;
        deny(&stack, &[]).await;
        // Topology is asked for by the next launch.
        delete_both(&stack, &job).await;
        everything_is_terminated(&stack).await;
        let job = format!("after-{number}");
        submit(&stack.admin().unwrap(), "ml", gang_job(&job, 2)).await;
        all_run(&stack, "ml", &job, 2).await;
        let live: Vec<Value> = stack.sim("/_sim/instances").await.unwrap();
        let notice = json!({"kind": "rebalance", "instanceIds": [live[0]["instanceId"]]});
        stack.sim_post("/_sim/interrupt", &notice).await.unwrap();
        all_is_allowed(&stack, action).await;
        delete_job(&stack, &job).await;
        everything_is_terminated(&stack).await;
    }
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_missed_at_the_start_is_reported_and_asked_for_again() {
    let Some(stack) = guarded().await else { return };
    all_is_allowed(&stack, "the start").await;
    for action in STARTING {
        deny(&stack, &[action]).await;
        stack.kill_muster().unwrap();
        stack.start_muster(&[]).await.unwrap();
        named(&stack, action, false).await;
        deny(&stack, &[]).await;
        all_is_allowed(&stack, action).await;
    }
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_launch_that_cannot_be_looked_up_again_is_not_taken_for_lost() {
    // The first zone has too few hosts; whether its fleet left anything can only be reported by reading it.
    let scenario =
        ["us-east-1a", "us-east-1b"].into_iter().zip([1, 4]).fold(Scenario::default(), |all, (zone, hosts)| {
            all.with_pool("p5.48xlarge", zone, MarketType::OnDemand, 1, 1, hosts)
        });
    let Some(stack) = stack_with(&scenario, &json!({}), &json!({})).await else { return };
    all_is_allowed(&stack, "the start").await;
    deny(&stack, &["ec2:DescribeFleets"]).await;
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 4)).await;
    named(&stack, "ec2:DescribeFleets", true).await;
    // The same call is sent again, and no other.
    let launches = |entries: &[Value]| -> usize {
        let fleets = entries.iter().filter(|entry| entry["operation"] == "CreateFleet");
        fleets.map(|entry| entry["token"].to_string()).collect::<BTreeSet<_>>().len()
    };
    assert_eq!(launches(&journal(&stack, 0).await), 1, "no other zone while the first is open");
    deny(&stack, &[]).await;
    all_run(&stack, "ml", "train", 4).await;
    let entries = journal(&stack, 0).await;
    assert_eq!(launches(&entries), 2);
    assert_eq!(instances(launched_fleets(&entries)[0]).len(), 4);
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_fleets_that_may_not_be_deleted_are_gone_around() {
    let Some(stack) = stack_with(&Scenario::demo(), &json!({}), &json!({})).await else { return };
    submit(&stack.admin().unwrap(), "ml", gang_job("first", 2)).await;
    all_run(&stack, "ml", "first", 2).await;
    delete_job(&stack, "first").await;
    everything_is_terminated(&stack).await;
    deny(&stack, &["ec2:DeleteFleets"]).await;
    let full = json!({"operation": "CreateFleet", "count": 1, "kind": {"error": {"code": "MaxFleetCountExceeded"}}});
    stack.sim_post("/_sim/faults", &full).await.unwrap();
    submit(&stack.admin().unwrap(), "ml", gang_job("second", 2)).await;
    all_run(&stack, "ml", "second", 2).await;
    named(&stack, "ec2:DeleteFleets", false).await;
    delete_job(&stack, "second").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_that_was_read_before_goes_on_while_its_parameter_may_not_be_read() {
    let Some(stack) = guarded().await else { return };
    all_is_allowed(&stack, "the start").await;
    deny(&stack, &["ssm:GetParameter"]).await;
    // The image is read again after half an hour.
    named(&stack, "ssm:GetParameter", false).await;
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 2)).await;
    all_run(&stack, "ml", "train", 2).await;
    let classes = Api::<EC2NodeClass>::all(stack.admin().unwrap());
    let amis = classes.get("gpu").await.unwrap().status.unwrap_or_default().amis;
    assert!(amis.iter().all(|ami| ami.read.is_some() && ami.parameter.is_some()), "{amis:?}");
    // A class that was never resolved has no image to go on with.
    let mut fresh = classes.get("gpu").await.unwrap();
    fresh.metadata = kube::core::ObjectMeta { name: Some("fresh".to_owned()), ..Default::default() };
    fresh.status = None;
    classes.create(&kube::api::PostParams::default(), &fresh).await.unwrap();
    eventually(DEADLINE, "the class to name its parameter", || async {
        let status = classes.get("fresh").await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        let ready = of(&status.conditions, "AMIsReady");
        let named = ready.as_ref().is_some_and(|one| {
            one.reason == "AMINotFound" && one.message.contains("al2023@latest") && one.message.contains("GetParameter")
        });
        if named { Ok(Some(())) } else { Err(format!("{ready:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    deny(&stack, &[]).await;
    all_is_allowed(&stack, "ssm:GetParameter").await;
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_costs_what_aws_lists_and_without_the_right_to_read_it_what_muster_brings() {
    let mut scenario = Scenario::default().with_pool("p5.48xlarge", "us-east-1a", MarketType::OnDemand, 1, 1, 4);
    scenario.prices.insert("p5.48xlarge".to_owned(), 12_340_000);
    let Some(stack) = provisioning_stack(&scenario, FACTOR, "1s").await else { return };
    let stack = &stack;
    // The list of this version is months old.
    let hour = 3600.0;
    eventually(DEADLINE, "the list prices to be read", || async move {
        let age = metric(stack, "muster_price_age_seconds", |line| line.contains("on-demand")).await;
        if age > 0.0 && age < hour { Ok(Some(())) } else { Err(format!("{age} s old")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    let client = stack.admin().unwrap();
    for (job, price) in [("listed", "24.68"), ("brought", "110.08")] {
        submit(&client, "ml", gang_job(job, 2)).await;
        all_run(stack, "ml", job, 2).await;
        let batch =
            batch_that(stack, "its price", |batch| batch.status.as_ref().is_some_and(|s| s.price_per_hour.is_some()));
        assert_eq!(batch.await.status.unwrap().price_per_hour.as_deref(), Some(price), "{job}");
        delete_job(stack, job).await;
        everything_is_terminated(stack).await;
        deny(stack, &["pricing:GetProducts"]).await;
        stack.kill_muster().unwrap();
        stack.start_muster(&[]).await.unwrap();
        named(stack, "pricing:GetProducts", false).await;
    }
    no_errors(stack);
}

/// Waits until an attempt of the only batch ended with a message that holds all of this.
async fn an_attempt_says(stack: &Stack, texts: &[&str]) {
    batch_that(stack, &format!("an attempt to say {texts:?}"), |batch| {
        let attempts = batch.status.iter().flat_map(|status| &status.attempts);
        let mut messages = attempts.filter_map(|attempt| attempt.message.as_deref());
        messages.any(|message| texts.iter().all(|text| message.contains(text)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_console_of_a_machine_that_never_joined_is_shown_and_without_the_right_it_is_named_and_all_goes_on() {
    let scenario = Scenario::default().with_pool("p5.48xlarge", "us-east-1a", MarketType::OnDemand, 1, 1, 4);
    let join = json!({"join": {"registerWithin": "4m", "readyWithin": "4m", "maxReplacements": "0"}});
    let Some(stack) = stack_with(&scenario, &json!({}), &join).await else { return };
    all_is_allowed(&stack, "the start").await;
    goes_wrong(&stack, &Fault::of(FaultKind::SlowRegistration { instances: None, seconds: None })).await;
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 2)).await;
    an_attempt_says(
        &stack,
        &["never registered as a node", "the console of i-", "cloud-init: finished | kubelet: Unable"],
    )
    .await;
    deny(&stack, &["ec2:GetConsoleOutput"]).await;
    // A node that is tried alone while the pool is blocked fails as they did.
    an_attempt_says(&stack, &["is not shown, since ec2:GetConsoleOutput is not allowed"]).await;
    let looked = &stack;
    eventually(DEADLINE, "the class to name the right", || async move {
        let [authorized, class, _] = conditions(looked).await?;
        let named = |one: &Condition| one.status == "False" && one.message.contains("ec2:GetConsoleOutput");
        let goes_on = class.as_ref().is_some_and(|one| one.status == "True");
        let seen = authorized.as_ref().is_some_and(named) && goes_on;
        if seen { Ok(Some(())) } else { Err(format!("{authorized:?} {class:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    // Mended, the next node that is tried alone joins, and the gang runs.
    stack.sim_calm().await.unwrap();
    all_run(&stack, "ml", "train", 2).await;
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_that_may_not_be_read_are_reported_with_the_action() {
    let class = json!({"amiSelectorTerms": [{"ssmParameter":
        "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/nvidia/recommended/image_id"}]});
    let Some(stack) = stack_with(&Scenario::demo(), &class, &json!({})).await else { return };
    all_is_allowed(&stack, "the start").await;
    deny(&stack, &["ec2:DescribeImages"]).await;
    named(&stack, "ec2:DescribeImages", true).await;
    deny(&stack, &[]).await;
    all_is_allowed(&stack, "ec2:DescribeImages").await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_profile_that_does_not_exist_is_named_before_the_first_gang_needs_it() {
    let mut scenario = Scenario::demo();
    scenario.instance_profiles = vec!["other".to_owned()];
    scenario.policy_values = [("NODE-ROLE".to_owned(), "other".to_owned())].into();
    let Some(stack) = stack_with(&scenario, &json!({}), &json!({})).await else { return };
    let classes = &Api::<EC2NodeClass>::all(stack.admin().unwrap());
    // Where a dry run looks at permissions alone, the first launch finds it out.
    let early = choices().dry_run == DryRun::Parameters;
    if !early {
        submit(&stack.admin().unwrap(), "ml", gang_job("train", 2)).await;
    }
    eventually(DEADLINE, "the class to name its instance profile", || async move {
        let status = classes.get("gpu").await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        let profile = of(&status.conditions, "InstanceProfileReady");
        let named = profile.as_ref().is_some_and(|one| {
            one.status == "False"
                && one.reason == "InstanceProfileNotFound"
                && one.message.starts_with("spec.instanceProfile: ")
        });
        if named { Ok(Some(())) } else { Err(format!("{profile:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    if early {
        submit(&stack.admin().unwrap(), "ml", gang_job("train", 2)).await;
        says(&stack, "ml", "train", "no NodePool is ready to provision nodes").await;
    }
    let patch = kube::api::Patch::Merge(json!({"spec": {"instanceProfile": "other"}}));
    classes.patch("gpu", &kube::api::PatchParams::default(), &patch).await.unwrap();
    all_run(&stack, "ml", "train", 2).await;
    let entries = journal(&stack, 0).await;
    let launches = entries.iter().filter(|entry| entry["operation"] == "CreateFleet").count();
    assert_eq!(launches, if early { 1 } else { 2 }, "nothing was launched in vain");
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}
