//! Types, offerings, network, images and topology.

use std::collections::BTreeSet;

use crate::support::{Fleet, SUBNET_A, Sim, small, text, texts};

#[tokio::test]
async fn the_first_card_of_p6_b300_takes_no_efa() {
    let sim = Sim::small();
    let body = sim.ok("DescribeInstanceTypes", &[("InstanceType.1", "p6-b300.48xlarge")]).await;
    let kinds = texts(&body, "interfaceTypeSet");
    assert_eq!(kinds.len(), 17);
    assert_eq!(texts(kinds[0], "item"), ["interface"]);
    assert_eq!(texts(kinds[16], "item"), ["interface", "efa", "efa-only"]);
    assert_eq!(text(&body, "maximumEfaInterfaces"), "16");
    assert_eq!(text(&body, "maximumNetworkInterfaces"), "68");
    assert_eq!(text(&body, "defaultVCpus"), "192");
    let strategies = text(&body, "supportedStrategies");
    assert_eq!(texts(strategies, "item"), ["cluster", "partition", "spread"]);
    let unknown = sim.refused("DescribeInstanceTypes", &[("InstanceType.1", "x1.x")]).await;
    assert_eq!(unknown.1, "InvalidInstanceType");
}

#[tokio::test]
async fn types_are_offered_where_there_are_pools() {
    let sim = Sim::small();
    let body = sim
        .ok(
            "DescribeInstanceTypeOfferings",
            &[("LocationType", "availability-zone"), ("Filter.1.Name", "instance-type"), ("Filter.1.Value.1", "p5.*")],
        )
        .await;
    assert_eq!(texts(&body, "location"), ["us-east-1a", "us-east-1b"]);
}

#[tokio::test]
async fn a_launch_takes_addresses_for_interfaces_that_have_them() {
    let mut scenario = small();
    scenario.zones[0].subnets[0].free_addresses = Some(3);
    let sim = Sim::new(scenario);
    let template = sim.template().await;
    let body = sim.ok("CreateFleet", &Fleet::of(&template, "4", "t1").parameters()).await;
    assert_eq!(texts(&body, "errorCode"), ["InsufficientFreeAddressesInSubnet"]);
    // Each instance has two interfaces, one of which is efa-only.
    sim.ok("CreateFleet", &Fleet::of(&template, "3", "t2").parameters()).await;
    let body = sim.ok("DescribeSubnets", &[("SubnetId.1", SUBNET_A)]).await;
    assert_eq!(text(&body, "availableIpAddressCount"), "0");
}

#[tokio::test]
async fn zones_and_security_groups_are_those_of_the_scenario() {
    let sim = Sim::small();
    let body = sim.ok("DescribeAvailabilityZones", &[]).await;
    assert_eq!(texts(&body, "zoneId"), ["use1-az6", "use1-az1", "use1-az2"]);
    let body = sim.ok("DescribeSecurityGroups", &[]).await;
    assert_eq!(text(&body, "groupName"), "muster-demo-nodes");
}

#[tokio::test]
async fn topology_is_empty_until_the_instances_run() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.group("pg-1").await;
    let mut fleet = Fleet::of(&template, "4", "t");
    fleet.group = Some("pg-1");
    sim.ok("CreateFleet", &fleet.parameters()).await;
    let ask = [("GroupName.1", "pg-1"), ("MaxResults", "100")];
    let body = sim.ok("DescribeInstanceTopology", &ask).await;
    assert_eq!(texts(&body, "instanceId").len(), 4);
    assert_eq!(body.matches("<networkNodeSet/>").count(), 4);
    sim.advance(20);
    let body = sim.ok("DescribeInstanceTopology", &ask).await;
    let nodes: Vec<Vec<&str>> = texts(&body, "networkNodeSet").into_iter().map(|set| texts(set, "item")).collect();
    assert!(nodes.iter().all(|n| n.len() == 3));
    let layer = |at: usize| nodes.iter().map(|n| n[at]).collect::<BTreeSet<_>>().len();
    assert_eq!((layer(0), layer(1), layer(2)), (1, 1, 2));
}

#[tokio::test]
async fn topology_is_answered_once_a_second() {
    let sim = Sim::small();
    sim.ok("DescribeInstanceTopology", &[]).await;
    let refused = sim.refused("DescribeInstanceTopology", &[]).await;
    assert_eq!(refused, (503, "RequestLimitExceeded".to_owned()));
    sim.advance(1);
    sim.ok("DescribeInstanceTopology", &[]).await;
}
