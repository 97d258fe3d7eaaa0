//! CreateFleet, DescribeFleets, DeleteFleets.

use crate::support::{Fleet, P5, SUBNET_A, SUBNET_B, Sim, fleet_ids, small, text, texts};
use muster_ec2_sim::choices::{LeafSpread, Replay, Shortfall};

#[tokio::test]
async fn a_fleet_that_fits_is_answered_with_all_its_instances() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.group("pg-1").await;
    let mut fleet = Fleet::of(&template, "2", "token-1");
    fleet.group = Some("pg-1");
    let body = sim.ok("CreateFleet", &fleet.parameters()).await;
    let ids = fleet_ids(&body);
    let expected = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
         <CreateFleetResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\">\
         <requestId>{request}</requestId><fleetId>{fleet}</fleetId><errorSet/>\
         <fleetInstanceSet><item><launchTemplateAndOverrides>\
         <launchTemplateSpecification><launchTemplateId>{template}</launchTemplateId>\
         <version>1</version></launchTemplateSpecification>\
         <overrides><instanceType>p5.48xlarge</instanceType><subnetId>{SUBNET_A}</subnetId>\
         <availabilityZone>us-east-1a</availabilityZone><priority>0</priority>\
         <placement><groupName>pg-1</groupName></placement></overrides>\
         </launchTemplateAndOverrides><lifecycle>on-demand</lifecycle>\
         <instanceIds><item>{}</item><item>{}</item></instanceIds>\
         <instanceType>p5.48xlarge</instanceType>\
         <availabilityZone>us-east-1a</availabilityZone>\
         <availabilityZoneId>use1-az6</availabilityZoneId><subnetId>{SUBNET_A}</subnetId>\
         </item></fleetInstanceSet></CreateFleetResponse>",
        ids[0],
        ids[1],
        request = text(&body, "requestId"),
        fleet = text(&body, "fleetId"),
    );
    assert_eq!(body, expected);
}

#[tokio::test]
async fn a_fleet_short_of_its_minimum_launches_nothing() {
    let sim = Sim::small();
    let template = sim.template().await;
    let body = sim.ok("CreateFleet", &Fleet::of(&template, "9", "token-1").parameters()).await;
    let message = text(&body, "errorMessage");
    let expected = format!(
        "<fleetId>{}</fleetId><errorSet><item><launchTemplateAndOverrides>\
         <launchTemplateSpecification><launchTemplateId>{template}</launchTemplateId>\
         <version>1</version></launchTemplateSpecification>\
         <overrides><instanceType>p5.48xlarge</instanceType><subnetId>{SUBNET_A}</subnetId>\
         <availabilityZone>us-east-1a</availabilityZone><priority>0</priority></overrides>\
         </launchTemplateAndOverrides><lifecycle>on-demand</lifecycle>\
         <errorCode>InsufficientInstanceCapacity</errorCode>\
         <errorMessage>{message}</errorMessage></item></errorSet><fleetInstanceSet/>\
         </CreateFleetResponse>",
        text(&body, "fleetId"),
    );
    assert!(body.ends_with(&expected), "{body}");
    assert!(sim.simulator.instances().is_empty());
    // What was tried for is free again.
    let body = sim.ok("CreateFleet", &Fleet::of(&template, "8", "token-2").parameters()).await;
    assert_eq!(fleet_ids(&body).len(), 8);
}

#[tokio::test]
async fn a_minimum_in_one_zone_goes_to_the_zone_with_capacity() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.group("pg-1").await;
    let mut fleet = Fleet::of(&template, "8", "token-1");
    fleet.group = Some("pg-1");
    let mut parameters = fleet.parameters();
    parameters.extend([
        ("LaunchTemplateConfigs.1.Overrides.2.InstanceType", P5),
        ("LaunchTemplateConfigs.1.Overrides.2.SubnetId", SUBNET_B),
        ("LaunchTemplateConfigs.1.Overrides.2.Priority", "1"),
        ("LaunchTemplateConfigs.1.Overrides.2.Placement.GroupName", "pg-1"),
    ]);
    let body = sim.ok("CreateFleet", &parameters).await;
    // us-east-1a has 8 hosts, but no spine of 8.
    assert_eq!(fleet_ids(&body).len(), 8);
    let instances = sim.simulator.instances();
    assert!(instances.iter().all(|i| i.zone == "us-east-1b"));
}

#[tokio::test]
async fn without_a_minimum_a_fleet_is_filled_in_part() {
    let sim = Sim::small();
    let template = sim.template().await;
    let parameters: Vec<_> = Fleet::of(&template, "9", "token-1")
        .parameters()
        .into_iter()
        .filter(|(name, _)| !name.contains("MinTargetCapacity"))
        .collect();
    let body = sim.ok("CreateFleet", &parameters).await;
    assert_eq!(fleet_ids(&body).len(), 8);
    assert_eq!(texts(&body, "errorCode"), ["InsufficientInstanceCapacity"]);
}

#[tokio::test]
async fn a_known_token_is_answered_as_the_first_time() {
    let sim = Sim::small();
    let template = sim.template().await;
    let parameters = Fleet::of(&template, "2", "token-1").parameters();
    let first = sim.ok("CreateFleet", &parameters).await;
    let second = sim.ok("CreateFleet", &parameters).await;
    assert_eq!(fleet_ids(&first), fleet_ids(&second));
    assert_eq!(text(&first, "fleetId"), text(&second, "fleetId"));
    assert_eq!(sim.simulator.instances().len(), 2);
    let journal = sim.simulator.journal();
    assert!(journal.last().expect("there are entries").replayed);
}

#[tokio::test]
async fn a_replay_can_be_without_ids_or_an_error() {
    for (replay, refused) in [(Replay::WithoutIds, false), (Replay::Error, true)] {
        let mut scenario = small();
        scenario.choices.replay = replay;
        let sim = Sim::new(scenario);
        let template = sim.template().await;
        let parameters = Fleet::of(&template, "2", "token-1").parameters();
        sim.ok("CreateFleet", &parameters).await;
        let (status, body) = sim.call("CreateFleet", &parameters).await;
        assert_eq!(status.is_success(), !refused);
        assert!(fleet_ids(&body).is_empty());
        assert_eq!(sim.simulator.instances().len(), 2);
    }
}

#[tokio::test]
async fn a_known_token_with_other_parameters_is_a_mismatch() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.ok("CreateFleet", &Fleet::of(&template, "2", "token-1").parameters()).await;
    let refused = sim.refused("CreateFleet", &Fleet::of(&template, "3", "token-1").parameters()).await;
    assert_eq!(refused, (400, "IdempotentParameterMismatch".to_owned()));
    let broken: Vec<u8> = sim.simulator.invariants().iter().filter(|i| !i.holds).map(|i| i.number).collect();
    assert_eq!(broken, [4, 7], "a batch of 3 has 2, and one token two meanings");
}

#[tokio::test]
async fn the_shortfall_can_be_stated_in_other_ways() {
    for (choice, codes) in [(Shortfall::Unfulfillable, vec!["UnfulfillableCapacity"]), (Shortfall::Empty, vec![])] {
        let mut scenario = small();
        scenario.choices.shortfall = choice;
        let sim = Sim::new(scenario);
        let template = sim.template().await;
        let body = sim.ok("CreateFleet", &Fleet::of(&template, "9", "t").parameters()).await;
        assert_eq!(texts(&body, "errorCode"), codes);
    }
}

#[tokio::test]
async fn refused_combinations_launch_nothing() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.group("pg-1").await;
    let base = Fleet::of(&template, "2", "t").parameters();
    let without =
        |name: &str| -> Vec<(&str, &str)> { base.iter().copied().filter(|(n, _)| !n.contains(name)).collect() };
    let with = |extra: &[(&'static str, &'static str)]| {
        let mut all = base.clone();
        all.extend(extra);
        all
    };
    for (parameters, code) in [
        (without("Single"), "InvalidParameterCombination"),
        (without("Type"), "MissingParameter"),
        (without("Version"), "MissingParameter"),
        (with(&[("OnDemandOptions.MinTargetCapacity", "3")]), "InvalidParameterCombination"),
        (
            with(&[("LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version", "2")]),
            "InvalidLaunchTemplateId.VersionNotFound",
        ),
        (with(&[("LaunchTemplateConfigs.1.Overrides.1.InstanceType", "p9.huge")]), "InvalidInstanceType"),
        (with(&[("LaunchTemplateConfigs.1.Overrides.1.SubnetId", "subnet-x")]), "InvalidSubnetID.NotFound"),
        (with(&[("LaunchTemplateConfigs.1.Overrides.1.Placement.GroupName", "none")]), "InvalidPlacementGroup.Unknown"),
        (
            with(&[
                ("LaunchTemplateConfigs.1.Overrides.1.Placement.GroupName", "pg-1"),
                ("LaunchTemplateConfigs.1.Overrides.1.Placement.GroupId", "pg-0"),
            ]),
            "InvalidParameterCombination",
        ),
        (with(&[("LaunchTemplateConfigs.1.Overrides.1.Placement.Tenancy", "host")]), "InvalidParameterCombination"),
        (
            // The type has one card, so the template's second interface has no place.
            with(&[("LaunchTemplateConfigs.1.Overrides.1.InstanceType", "m5.2xlarge")]),
            "InvalidParameterCombination",
        ),
        (
            with(&[("TargetCapacitySpecification.DefaultTargetCapacityType", "capacity-block")]),
            "InvalidParameterCombination",
        ),
    ] {
        let refused = sim.refused("CreateFleet", &parameters).await;
        assert_eq!(refused, (400, code.to_owned()), "{parameters:?}");
    }
    assert!(sim.simulator.instances().is_empty());
}

#[tokio::test]
async fn an_instant_fleet_is_described_by_its_id_alone() {
    let sim = Sim::small();
    let template = sim.template().await;
    let body = sim.ok("CreateFleet", &Fleet::of(&template, "2", "t").parameters()).await;
    let id = text(&body, "fleetId");
    assert!(sim.ok("DescribeFleets", &[]).await.contains("<fleetSet/>"));
    let described = sim.ok("DescribeFleets", &[("FleetId.1", id)]).await;
    assert_eq!(fleet_ids(&described), fleet_ids(&body));
    assert_eq!(text(&described, "fleetState"), "active");
    let refused = sim.refused("DescribeFleets", &[("FleetId.1", "fleet-0")]).await;
    assert_eq!(refused.1, "InvalidFleetId.NotFound");
}

#[tokio::test]
async fn deleting_a_fleet_terminates_its_instances() {
    let sim = Sim::small();
    let template = sim.template().await;
    let body = sim.ok("CreateFleet", &Fleet::of(&template, "2", "t").parameters()).await;
    let id = text(&body, "fleetId");
    let deleted = sim.ok("DeleteFleets", &[("FleetId.1", id), ("TerminateInstances", "true")]).await;
    assert_eq!(text(&deleted, "currentFleetState"), "deleted_terminating");
    let states: Vec<_> = sim.simulator.instances().iter().map(|i| i.state).collect();
    assert_eq!(states, ["shutting-down", "shutting-down"]);
}

#[tokio::test]
async fn hosts_and_ids_follow_from_the_seed() {
    let run = |seed: u64| async move {
        let mut scenario = small();
        scenario.seed = seed;
        let sim = Sim::new(scenario);
        let template = sim.template().await;
        sim.ok("CreateFleet", &Fleet::of(&template, "3", "t").parameters()).await;
        sim.simulator.instances()
    };
    assert_eq!(run(1).await, run(1).await);
    assert_ne!(run(1).await, run(2).await);
}

#[tokio::test]
async fn a_group_launch_lies_over_the_leaves_of_one_spine() {
    for (spread, leaves) in [(LeafSpread::RoundRobin, 4), (LeafSpread::Packed, 2)] {
        let mut scenario = small();
        scenario.choices.leaf_spread = spread;
        let sim = Sim::new(scenario);
        let template = sim.template().await;
        sim.group("pg-1").await;
        let mut fleet = Fleet::of(&template, "4", "t");
        fleet.group = Some("pg-1");
        fleet.subnet = SUBNET_B;
        sim.ok("CreateFleet", &fleet.parameters()).await;
        let instances = sim.simulator.instances();
        let count = |of: fn(&muster_ec2_sim::InstanceView) -> &String| {
            instances.iter().map(of).collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!(count(|i| &i.host.spine), 1);
        assert_eq!(count(|i| &i.host.leaf), leaves);
    }
}
