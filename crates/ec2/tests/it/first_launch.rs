//! What `make test-aws` does in somebody's account, played here: also when it is killed anywhere, and run again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "../../examples/first_launch/trial.rs"]
mod trial;

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use muster_core::ec2::TAG_CLUSTER_UID;
use muster_ec2::{Client, ClientOptions, Credentials, Exchange, Journal};
use muster_ec2_sim::{Fault, FaultKind, MarketType, Scenario, Simulator};
use serde_json::{Value, json};

use crate::support::{World, ZONE};
use trial::{CLUSTER, Chosen, IMAGE, Trial, Wanted};

const TYPE: &str = "c7g.16xlarge";

/// An account with a default subnet and capacity of both kinds, on a clock that runs fast.
fn scenario() -> Scenario {
    let mut scenario = Scenario::default().with_pool(TYPE, ZONE, MarketType::OnDemand, 1, 1, 4).with_pool(
        TYPE,
        ZONE,
        MarketType::Spot,
        1,
        1,
        4,
    );
    scenario.clock.factor = 2000.0;
    scenario.seed = 7;
    scenario.zones[0].subnets[0].default_for_zone = true;
    let image = json!({"id": "ami-00000000000000a64", "name": "al2023", "path": format!("{IMAGE}arm64")});
    let other = json!({"type": TYPE, "zone": ZONE, "count": 1});
    with(&scenario, &json!({"images": [image], "others": [other]}))
}

fn with(scenario: &Scenario, changes: &Value) -> Scenario {
    let mut text = serde_json::to_value(scenario).unwrap();
    text.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    Scenario::from_json(&text.to_string()).unwrap()
}

fn trial<'a>(client: &'a Client, report: &'a (dyn Fn(&str) + Send + Sync)) -> Trial<'a> {
    // A look is sooner or later than in an account, never other.
    Trial { client, report, pause: Duration::from_millis(2), looks: 2000, wrong: Vec::new() }
}

fn wanted() -> Wanted {
    Wanted { instance_type: TYPE.to_owned(), subnet: None, region: "us-east-1".to_owned() }
}

/// A whole run, of what was chosen before if something was: what it found wrong, and what it could not go on after.
async fn run(
    client: &Client,
    name: &str,
    chosen: Option<Chosen>,
    lines: &Mutex<Vec<String>>,
) -> (Vec<String>, Result<Chosen, String>) {
    let report = |line: &str| lines.lock().unwrap().push(line.to_owned());
    let mut trial = trial(client, &report);
    let all = async {
        trial.clean_up().await?;
        let chosen = match chosen {
            Some(chosen) => chosen,
            None => trial.choose(&wanted()).await?,
        };
        trial.run(&chosen, name).await?;
        Ok(chosen)
    };
    let outcome = Box::pin(all).await;
    (trial.wrong, outcome)
}

/// Of ours nothing, and of others what there was.
fn nothing_is_left(simulator: &Simulator, at: &str) {
    let is_live = |state| matches!(state, "pending" | "running" | "shutting-down");
    let live =
        simulator.instances().into_iter().filter(|one| is_live(one.state) && one.tags.contains_key(TAG_CLUSTER_UID));
    assert_eq!(live.count(), 0, "{at}");
    assert_eq!(simulator.placement_groups(), Vec::<String>::new(), "{at}");
    assert_eq!(simulator.launch_templates(), Vec::<String>::new(), "{at}");
    let broken: Vec<_> = simulator.invariants().into_iter().filter(|one| !one.holds).collect();
    assert!(broken.is_empty(), "{at}: {broken:?}");
}

#[tokio::test]
async fn a_first_launch_in_an_account_is_as_muster_relies_on_it_and_leaves_nothing() {
    let world = World::of(scenario()).await;
    let lines = Mutex::default();
    let (wrong, outcome) = run(&world.client, "00c0ffee", None, &lines).await;
    let chosen = outcome.unwrap();
    let lines = lines.into_inner().unwrap();
    assert_eq!(wrong, Vec::<String>::new(), "{lines:#?}");
    assert_eq!((chosen.zone.as_str(), chosen.image_id.as_str()), (ZONE, "ami-00000000000000a64"));
    // Two on demand and two on spot, for half an hour.
    assert_eq!(chosen.most(), chosen.on_demand + chosen.spot.unwrap());
    let ours = world.simulator.instances().into_iter().filter(|one| one.tags.contains_key(TAG_CLUSTER_UID)).count();
    assert_eq!(ours, 4, "{lines:#?}");
    for capacity_type in ["on-demand", "spot"] {
        assert!(lines.contains(&format!("{capacity_type}: 2 x {TYPE} in {ZONE}")), "{lines:#?}");
    }
    nothing_is_left(&world.simulator, "after a run");
}

/// Kills a first launch after so many calls, and after two more, until it ends on its own.
async fn is_killed_after(calls: usize) {
    // What is only read before the launch is read once.
    let chosen = run(&World::of(scenario()).await.client, "00c0ffee", None, &Mutex::default()).await.1.unwrap();
    let mut killed = 0;
    for calls in (calls..).step_by(2) {
        let world = World::of(scenario()).await;
        let lines = Mutex::default();
        let first = run(&world.client, "00c0ffee", Some(chosen.clone()), &lines);
        let seen = || world.simulator.requests();
        let mut first = pin!(first);
        // The process ends between two polls, once so many calls have come in.
        let ended = std::future::poll_fn(|context| match first.as_mut().poll(context) {
            std::task::Poll::Ready(_) => std::task::Poll::Ready(true),
            std::task::Poll::Pending if seen() >= calls => std::task::Poll::Ready(false),
            std::task::Poll::Pending => std::task::Poll::Pending,
        })
        .await;
        if ended {
            break;
        }
        killed += 1;
        let lines = Mutex::default();
        let (wrong, outcome) = run(&world.client, "00c0ffef", Some(chosen.clone()), &lines).await;
        let at = format!("killed at call {calls}: {lines:#?}");
        outcome.unwrap_or_else(|error| panic!("{error}; {at}"));
        assert_eq!(wrong, Vec::<String>::new(), "{at}");
        nothing_is_left(&world.simulator, &at);
    }
    assert!(killed > 10, "killed at {killed} calls only");
}

#[tokio::test]
async fn a_first_launch_that_is_killed_after_any_odd_number_of_calls_is_ended_by_the_next_and_other_instances_stay() {
    is_killed_after(1).await;
}

#[tokio::test]
async fn a_first_launch_that_is_killed_after_any_even_number_of_calls_is_ended_by_the_next_and_other_instances_stay() {
    is_killed_after(2).await;
}

#[tokio::test]
async fn what_is_not_as_muster_relies_on_it_is_named_and_what_was_launched_is_ended() {
    let world = World::of(scenario()).await;
    world.simulator.add_fault(Fault::of(FaultKind::Violating { launch: 1 }));
    let lines = Mutex::default();
    let (_, outcome) = run(&world.client, "00c0ffee", None, &lines).await;
    let error = outcome.unwrap_err();
    assert!(error.contains("Violated"), "{error}");
    nothing_is_left(&world.simulator, "after a launch of fewer");

    let mut none = scenario();
    none.zones[0].subnets[0].default_for_zone = false;
    let none = World::of(none).await;
    let (_, outcome) = run(&none.client, "00c0ffee", None, &lines).await;
    let error = outcome.unwrap_err();
    assert!(error.contains("--subnet"), "{error}");
}

#[tokio::test]
async fn a_journal_has_each_exchange_with_its_bodies_and_no_signature() {
    let world = World::of(scenario()).await;
    let kept: Arc<Mutex<Vec<Exchange>>> = Arc::default();
    let into = Arc::clone(&kept);
    let client = Client::connect_recorded(
        ClientOptions {
            region: "us-east-1".to_owned(),
            endpoint_url: Some(world.endpoint.clone()),
            credentials: Credentials::Static {
                access_key_id: "AKIDEXAMPLE".to_owned(),
                secret_access_key: "secret".to_owned(),
            },
            launch_timeout: ClientOptions::LAUNCH_TIMEOUT,
        },
        Journal::new(move |exchange| into.lock().unwrap().push(exchange)),
    )
    .await
    .unwrap();
    let lines = Mutex::default();
    let (wrong, outcome) = run(&client, "00c0ffee", None, &lines).await;
    outcome.unwrap();
    assert_eq!(wrong, Vec::<String>::new());
    let kept = kept.lock().unwrap();
    let theirs: Vec<(String, u16)> =
        world.simulator.journal().into_iter().map(|entry| (entry.operation, entry.status)).collect();
    let ours: Vec<(String, u16)> = kept.iter().map(|one| (one.operation.clone(), one.status)).collect();
    assert_eq!(ours, theirs);
    for one in kept.iter() {
        assert!(!one.request.is_empty() && !one.response.is_empty(), "{one:?}");
        assert!(!format!("{one:?}").contains("AKIDEXAMPLE"), "{one:?}");
    }
    assert!(kept.iter().any(|one| one.service == "ssm") && kept.iter().any(|one| one.service == "pricing"));
    assert!(kept.iter().any(|one| one.request.contains(CLUSTER)));
}
