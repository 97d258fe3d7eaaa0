//! What AWS documents about the requests of a launch, and the simulator enforces.

use std::collections::BTreeMap;
use std::path::Path;

use muster_core::batch::{Verdict, judge};
use muster_core::ec2::{CapacityType, LaunchParameters};
use muster_ec2_sim::MarketType;
use muster_ec2_sim::choices::{FleetVolumeTags, SpotShutdown};

use crate::support::{P5, World, ZONE, scenario};

/// The parameters of the last call of an operation.
fn sent(world: &World, operation: &str) -> BTreeMap<String, String> {
    let journal = world.simulator.journal();
    let entry = journal.iter().rev().find(|entry| entry.operation == operation).expect("the call was made");
    entry.parameters.clone()
}

/// The resource types that the last call of an operation tags, in order.
fn tagged(world: &World, operation: &str, list: &str) -> Vec<String> {
    let of_kind =
        |(key, value): (String, String)| (key.starts_with(list) && key.ends_with(".ResourceType")).then_some(value);
    sent(world, operation).into_iter().filter_map(of_kind).collect()
}

#[tokio::test]
async fn a_fleet_tags_itself_and_its_instances_and_the_template_everything_else() {
    let mut strict = scenario();
    strict.choices.fleet_volume_tags = FleetVolumeTags::Refused;
    for scenario in [scenario(), strict] {
        let world = World::of(scenario).await;
        let intent = world.intent(4).await;
        let answer = world.client.create_fleet(&intent).await;
        assert!(matches!(judge(&intent, true, &answer), Verdict::Won(_)), "{answer:?}");
        assert_eq!(tagged(&world, "CreateFleet", "TagSpecification."), ["fleet", "instance"]);
        let of_template = tagged(&world, "CreateLaunchTemplate", "LaunchTemplateData.TagSpecification.");
        assert_eq!(of_template, ["instance", "volume", "network-interface"]);
        let broken: Vec<_> = world.simulator.invariants().into_iter().filter(|i| !i.holds && !i.at_rest).collect();
        assert!(broken.is_empty(), "{broken:?}");
    }
}

#[tokio::test]
async fn under_the_shipped_policy_a_spot_request_is_tagged_by_the_template_alone() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/iam/policy.json");
    let policy = std::fs::read_to_string(path).expect("the policy is shipped");
    let mut scenario = scenario().with_pool(P5, ZONE, MarketType::Spot, 2, 2, 2);
    scenario.policy = Some(serde_json::from_str(&policy).expect("the simulator understands it"));
    let values = [("CLUSTER", "prod"), ("UID", "cluster-1"), ("NODE-ROLE", "nodes"), ("QUEUE", "queue")];
    scenario.policy_values = values.map(|(word, value)| (word.to_owned(), value.to_owned())).into();
    scenario.choices.spot_shutdown = SpotShutdown::Refused;
    for capacity_type in [CapacityType::OnDemand, CapacityType::Spot] {
        let world = World::of(scenario.clone()).await;
        let intent = world.intent_on(capacity_type, 4).await;
        let answer = world.client.create_fleet(&intent).await;
        assert!(matches!(judge(&intent, true, &answer), Verdict::Won(_)), "{capacity_type}: {answer:?}");
        let run = world.run_beside(&intent, 2).await;
        world.client.run_instances(&run).await.unwrap_or_else(|error| panic!("{capacity_type}: {error}"));
    }
}

#[tokio::test]
async fn a_template_closes_what_instances_need_not_have() {
    let world = World::start().await;
    world.intent_on(CapacityType::OnDemand, 1).await;
    let on_demand = sent(&world, "CreateLaunchTemplate");
    let value = |name: &str| on_demand.get(&format!("LaunchTemplateData.{name}")).map(String::as_str);
    assert_eq!(value("MetadataOptions.InstanceMetadataTags"), Some("disabled"));
    assert_eq!(value("CapacityReservationSpecification.CapacityReservationPreference"), Some("none"));
    assert_eq!(value("InstanceInitiatedShutdownBehavior"), Some("terminate"));
}

#[tokio::test]
async fn a_launch_into_a_reservation_has_no_preference_in_its_template() {
    let world = World::start().await;
    world.intent_on(CapacityType::Reserved, 1).await;
    let reserved = sent(&world, "CreateLaunchTemplate");
    assert!(!reserved.keys().any(|key| key.contains("CapacityReservationSpecification")), "{reserved:?}");
    assert_eq!(
        reserved.get("LaunchTemplateData.InstanceInitiatedShutdownBehavior").map(String::as_str),
        Some("terminate")
    );
}

#[tokio::test]
async fn every_call_says_which_muster_it_comes_from() {
    let world = World::start().await;
    let intent: LaunchParameters = world.intent(1).await;
    world.client.create_fleet(&intent).await.expect("there is capacity");
    let version = format!("muster/{}", env!("CARGO_PKG_VERSION"));
    for entry in world.simulator.journal() {
        let agent = entry.user_agent.unwrap_or_default();
        assert!(agent.split(' ').any(|word| word == version), "{}: {agent}", entry.operation);
    }
}
