//! Placement groups.

use crate::support::{Fleet, SUBNET_B, Sim, fleet_ids, small, text, texts};
use muster_ec2_sim::choices::EmptyGroup;

#[tokio::test]
async fn a_group_is_created_described_and_deleted_by_its_name() {
    let sim = Sim::small();
    sim.group("pg-1").await;
    let described = sim.ok("DescribePlacementGroups", &[("GroupName.1", "pg-1")]).await;
    assert_eq!(text(&described, "state"), "available");
    assert!(text(&described, "groupId").starts_with("pg-0"));
    let again = sim.refused("CreatePlacementGroup", &[("GroupName", "pg-1"), ("Strategy", "cluster")]).await;
    assert_eq!(again.1, "InvalidPlacementGroup.Duplicate");
    let deleted = sim.ok("DeletePlacementGroup", &[("GroupName", "pg-1")]).await;
    assert_eq!(text(&deleted, "return"), "true");
    for action in ["DeletePlacementGroup", "DescribePlacementGroups"] {
        let refused = sim.refused(action, &[("GroupName", "pg-1"), ("GroupName.1", "pg-1")]).await;
        assert_eq!(refused.1, "InvalidPlacementGroup.Unknown");
    }
}

#[tokio::test]
async fn the_first_launch_pins_a_group_to_its_spine() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.group("pg-1").await;
    let mut fleet = Fleet::of(&template, "3", "t1");
    fleet.group = Some("pg-1");
    assert_eq!(fleet_ids(&sim.ok("CreateFleet", &fleet.parameters()).await).len(), 3);
    // The other spine has four free hosts, the group's own spine one.
    fleet.n = "2";
    fleet.token = "t2";
    let body = sim.ok("CreateFleet", &fleet.parameters()).await;
    assert_eq!(texts(&body, "errorCode"), ["InsufficientInstanceCapacity"]);
    // Nor is there capacity for it in another zone.
    fleet.token = "t3";
    fleet.subnet = SUBNET_B;
    let body = sim.ok("CreateFleet", &fleet.parameters()).await;
    assert!(fleet_ids(&body).is_empty());
    fleet.n = "1";
    fleet.token = "t4";
    fleet.subnet = crate::support::SUBNET_A;
    assert_eq!(fleet_ids(&sim.ok("CreateFleet", &fleet.parameters()).await).len(), 1);
    let spines: std::collections::BTreeSet<String> =
        sim.simulator.instances().into_iter().map(|i| i.host.spine).collect();
    assert_eq!(spines.len(), 1);
}

#[tokio::test]
async fn a_group_is_in_use_until_its_instances_are_terminated() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.group("pg-1").await;
    let mut fleet = Fleet::of(&template, "1", "t1");
    fleet.group = Some("pg-1");
    let ids = fleet_ids(&sim.ok("CreateFleet", &fleet.parameters()).await);
    let delete = [("GroupName", "pg-1")];
    assert_eq!(sim.refused("DeletePlacementGroup", &delete).await.1, "InvalidPlacementGroup.InUse");
    sim.ok("TerminateInstances", &[("InstanceId.1", &ids[0])]).await;
    sim.advance(39);
    assert_eq!(sim.refused("DeletePlacementGroup", &delete).await.1, "InvalidPlacementGroup.InUse");
    sim.advance(1);
    sim.ok("DeletePlacementGroup", &delete).await;
    assert!(sim.simulator.placement_groups().is_empty());
}

#[tokio::test]
async fn an_empty_group_is_free_for_another_zone_unless_the_choice_says_not() {
    for (choice, launched) in [(EmptyGroup::Unpinned, 2), (EmptyGroup::StaysPinned, 0)] {
        let mut scenario = small();
        scenario.choices.empty_group = choice;
        let sim = Sim::new(scenario);
        let template = sim.template().await;
        sim.group("pg-1").await;
        let mut fleet = Fleet::of(&template, "2", "t1");
        fleet.group = Some("pg-1");
        let body = sim.ok("CreateFleet", &fleet.parameters()).await;
        let id = text(&body, "fleetId");
        sim.ok("DeleteFleets", &[("FleetId.1", id), ("TerminateInstances", "true")]).await;
        sim.advance(40);
        fleet.token = "t2";
        fleet.subnet = SUBNET_B;
        let body = sim.ok("CreateFleet", &fleet.parameters()).await;
        assert_eq!(fleet_ids(&body).len(), launched);
    }
}
