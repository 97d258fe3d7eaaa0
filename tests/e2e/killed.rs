//! Muster is killed for good after a launch: what it launched, and nobody looks after any more, ends itself.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;

use jiff::SignedDuration;
use kube::Api;
use muster::testbed::eventually;
use muster_api::crd::NodePool;
use muster_ec2_sim::choices::SpotPowerOff;
use muster_ec2_sim::{Fault, FaultKind, MarketType, Scenario};
use serde_json::{Value, json};

use crate::cloud::{gang_job, live};
use crate::support::{DEADLINE, choices, submit};
use crate::ways::{capacity_types, stack_with};

const MEMBERS: usize = 4;
/// So many of them never register.
const DEAD: u32 = 3;

/// An instance of EC2's, living or dead.
fn of(instance: &Value, field: &str) -> String {
    instance[field].as_str().unwrap_or_default().to_owned()
}

/// No instance that never registered is older than `registerWithin` and five minutes.
async fn what_is_left_ends_itself(capacity_type: MarketType, name: &str) {
    let mut scenario = Scenario::default().with_pool("p5.48xlarge", "us-east-1a", capacity_type, 1, 1, 8);
    scenario.faults = vec![Fault::of(FaultKind::SlowRegistration { instances: Some(DEAD), seconds: None })];
    let pool = json!({"template": capacity_types(&[name])});
    let Some(stack) = stack_with(&scenario, &json!({}), &pool).await else { return };
    let client = stack.admin().unwrap();
    submit(&client, "ml", gang_job("train", 4)).await;
    let (looked, launched) = (&stack, format!("{MEMBERS} instances"));
    eventually(DEADLINE, &launched, || async move {
        let seen = live(looked).await;
        if seen.len() == MEMBERS { Ok(Some(())) } else { Err(format!("{seen:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    stack.kill_muster().unwrap();

    let pool = Api::<NodePool>::all(client).get("h100").await.unwrap();
    let within = pool.spec.join.register_within.parse::<SignedDuration>().unwrap().as_secs();
    stack.sim_post("/_sim/clock", &json!({"advanceSeconds": within + 5 * 60})).await.unwrap();

    let state: Value = stack.sim("/_sim/state").await.unwrap();
    let instances = state["instances"].as_array().unwrap();
    assert_eq!(instances.len(), MEMBERS, "nothing else was launched");
    let registered: BTreeSet<String> =
        instances.iter().filter(|one| one["registrationTime"].is_string()).map(|one| of(one, "instanceId")).collect();
    assert_eq!(registered.len(), 1, "{instances:#?}");
    let goes_on = capacity_type == MarketType::Spot && choices().spot_power_off == SpotPowerOff::Stops;
    for one in instances.iter().filter(|one| !registered.contains(&of(one, "instanceId"))) {
        let ended = of(one, "state") == "shutting-down" || of(one, "state") == "terminated";
        assert_eq!(ended, !goes_on, "{one:#}");
        if ended {
            assert_eq!(of(one, "stateReason"), "Client.InstanceInitiatedShutdown", "by itself");
        }
    }
    // Whatever becomes of Muster, a node that is one is not ended by its own machine.
    stack.sim_post("/_sim/clock", &json!({"advanceSeconds": 30 * 24 * 3600})).await.unwrap();
    assert!(registered.is_subset(&live(&stack).await), "it lives on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_demand_what_never_became_a_node_ends_itself_although_muster_is_gone_for_good() {
    what_is_left_ends_itself(MarketType::OnDemand, "on-demand").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_spot_what_never_became_a_node_ends_itself_although_muster_is_gone_for_good() {
    what_is_left_ends_itself(MarketType::Spot, "spot").await;
}
