//! The control endpoint.

use axum::http::StatusCode;
use muster_ec2_sim::scenario::OtherInstances;
use muster_ec2_sim::{MarketType, NodeTopology, Scenario, ScenarioError};
use serde_json::json;

use crate::support::{Fleet, Sim, fleet_ids, small};

#[tokio::test]
async fn a_stand_in_for_nodes_finds_what_it_needs() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.ok("CreateFleet", &Fleet::of(&template, "1", "t").parameters()).await;
    let instances = sim.get("/_sim/instances").await;
    let one = &instances[0];
    for (member, value) in [
        ("type", json!("p5.48xlarge")),
        ("zone", json!("us-east-1a")),
        ("zoneId", json!("use1-az6")),
        ("privateDnsName", json!("ip-10-0-0-4.ec2.internal")),
        ("gpus", json!(8)),
        ("gpuResource", json!("nvidia.com/gpu")),
        ("efaInterfaces", json!(1)),
        ("vcpus", json!(192)),
        ("memoryMib", json!(2_097_152)),
        ("userData", json!("aGVsbG8=")),
        ("state", json!("pending")),
    ] {
        assert_eq!(one[member], value, "{member}");
    }
    assert_eq!(one["networkNodes"].as_array().map(Vec::len), Some(3));
    assert_eq!(one["tags"]["muster.dev/batch"], "b1");
    let state = sim.get("/_sim/state").await;
    assert_eq!(state["pools"][0]["free"], 7);
    let journal = sim.get("/_sim/journal?from=1").await;
    assert_eq!(journal[0]["operation"], "CreateFleet");
}

#[tokio::test]
async fn the_cloud_controllers_calls_draw_on_the_bucket_of_everybody() {
    let sim = Sim::small();
    let template = sim.template().await;
    let ids = fleet_ids(&sim.ok("CreateFleet", &Fleet::of(&template, "2", "t").parameters()).await);
    sim.advance(20);
    let of = |id: &str| sim.simulator.topology_for_node(id);
    assert!(matches!(of(&ids[0]), NodeTopology::Known(nodes) if nodes.len() == 3));
    assert_eq!(of(&ids[1]), NodeTopology::Throttled);
    let refused = sim.refused("DescribeInstanceTopology", &[("InstanceId.1", &ids[0])]).await;
    assert_eq!(refused, (503, "RequestLimitExceeded".to_owned()));
    sim.advance(1);
    assert!(matches!(of(&ids[1]), NodeTopology::Known(_)));
    let thirteen = sim.simulator.invariants().into_iter().find(|i| i.number == 13);
    assert!(thirteen.is_some_and(|i| i.holds), "nobody else asked too often");
}

#[tokio::test]
async fn a_clean_run_breaks_no_invariant() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.ok("CreateFleet", &Fleet::of(&template, "2", "t").parameters()).await;
    sim.advance(20);
    let invariants = sim.get("/_sim/invariants").await;
    for invariant in invariants.as_array().expect("it is a list") {
        assert_eq!(invariant["holds"], true, "{invariant}");
    }
}

#[tokio::test]
async fn the_bill_runs_from_running_to_shutting_down() {
    let sim = Sim::small();
    let template = sim.template().await;
    let body = sim.ok("CreateFleet", &Fleet::of(&template, "1", "t").parameters()).await;
    sim.advance(20 + 3600);
    let id = fleet_ids(&body).remove(0);
    sim.ok("TerminateInstances", &[("InstanceId.1", &id)]).await;
    sim.advance(1000);
    let described = sim.ok("DescribeInstances", &[("InstanceId.1", &id)]).await;
    let reason = "<reason>User initiated (2026-01-01 01:00:20 GMT)</reason>";
    assert!(described.contains(reason) && described.contains("<launchTime>2026-01-01T00:00:00.000Z"), "{described}");
    let bill = sim.get("/_sim/bill").await;
    assert_eq!(bill["total"]["microUsd"], 55_040_000);
    assert_eq!(bill["byBatch"]["b1"]["microUsd"], 55_040_000);
    assert_eq!(bill["instances"][0]["heldSeconds"], 3660);
}

#[tokio::test]
async fn faults_clock_pools_and_terminations_are_posted() {
    let sim = Sim::small();
    let template = sim.template().await;
    let fault = json!({"operation": "CreateFleet", "count": 1, "kind": {"violating": {"launch": 1}}});
    assert_eq!(sim.post("/_sim/faults", fault).await.0, StatusCode::OK);
    let fault = json!([{"operation": "CreateFleet", "kind": "ice", "type": "m5.2xlarge"}]);
    assert_eq!(sim.post("/_sim/faults", fault).await.0, StatusCode::OK);
    let bad = sim.post("/_sim/faults", json!({"kind": "weather"})).await;
    assert!(bad.0.is_client_error());
    let body = sim.ok("CreateFleet", &Fleet::of(&template, "2", "t").parameters()).await;
    let ids = fleet_ids(&body);
    assert_eq!(ids.len(), 1);
    sim.post("/_sim/clock", json!({"advanceSeconds": 20})).await;
    assert_eq!(sim.simulator.instances()[0].state, "running");
    let request = json!({"instanceIds": ids, "reason": "Server.SpotInstanceTermination"});
    sim.post("/_sim/terminate", request).await;
    let gone = &sim.simulator.instances()[0];
    assert_eq!(gone.state, "shutting-down");
    assert_eq!(gone.state_reason.as_deref(), Some("Server.SpotInstanceTermination"));
    let change = json!({"type": "p5en.48xlarge", "zone": "us-east-1c", "add": 2});
    assert_eq!(sim.post("/_sim/pools", change).await.1, "{\"hosts\":2}");
    let change = json!({"type": "p5en.48xlarge", "zone": "us-east-1z", "add": 2});
    assert_eq!(sim.post("/_sim/pools", change).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn what_belongs_to_others_is_seen_to_be_touched() {
    let mut scenario = small();
    scenario.others = vec![OtherInstances {
        instance_type: "m5.2xlarge".to_owned(),
        zone: "us-east-1a".to_owned(),
        capacity_type: MarketType::OnDemand,
        count: 1,
        tags: [("team".to_owned(), "other".to_owned())].into(),
    }];
    let sim = Sim::new(scenario);
    let id = sim.simulator.instances()[0].instance_id.clone();
    let verdict = || sim.simulator.invariants().into_iter().find(|i| i.number == 15);
    assert!(verdict().expect("it is judged").holds);
    sim.ok("TerminateInstances", &[("InstanceId.1", &id)]).await;
    assert!(!verdict().expect("it is judged").holds);
}

#[test]
fn a_scenario_is_read_strictly_and_checked() {
    let text = r#"{"pools":[{"type":"p5.48xlarge","zone":"us-east-1a","spines":[{"leaves":[4,4]}]}],
        "clock":{"factor":60},"faults":[{"operation":"CreateFleet","kind":"lostResponse"}]}"#;
    let scenario = Scenario::from_json(text).expect("it is a scenario");
    assert_eq!(scenario.pools[0].capacity_type, MarketType::OnDemand);
    assert!(matches!(Scenario::from_json(r#"{"colour":"red"}"#), Err(ScenarioError::Syntax(_))));
    let unknown = r#"{"pools":[{"type":"p9.huge","zone":"us-east-1a","spines":[]}]}"#;
    assert_eq!(Scenario::from_json(unknown), Err(ScenarioError::UnknownType("p9.huge".to_owned())));
    Scenario::demo().check().expect("the demonstration is playable");
    let text = serde_json::to_string(&Scenario::demo()).expect("a scenario is JSON");
    assert_eq!(Scenario::from_json(&text), Ok(Scenario::demo()));
}
