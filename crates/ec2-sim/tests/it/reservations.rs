//! Capacity reservations and blocks: who may launch into them, and what becomes of their hosts.

use muster_ec2_sim::scenario::{GroupSpec, Matching, ReservationKind, ReservationSpec, SpineSpec, Strategy};
use muster_ec2_sim::{Interruption, InterruptionKind, MarketType, Scenario};

use crate::support::{Fleet, P5, SSM, SUBNET_A, SUBNET_B, Sim, fleet_ids, small, text, texts};

fn reservation(id: &str) -> ReservationSpec {
    ReservationSpec {
        id: id.to_owned(),
        instance_type: P5.to_owned(),
        zone: "us-east-1a".to_owned(),
        kind: ReservationKind::OnDemand,
        matching: Matching::Targeted,
        placement_group: None,
        spines: vec![SpineSpec { leaves: vec![2, 2] }],
        start_seconds: None,
        end_seconds: None,
        tags: [("team".to_owned(), "ml".to_owned())].into(),
    }
}

fn with(reservation: ReservationSpec) -> Scenario {
    let mut scenario = small();
    scenario.reservations.push(reservation);
    scenario
}

fn in_group(group: &str) -> Scenario {
    let mut scenario = with(ReservationSpec { placement_group: Some(group.to_owned()), ..reservation("cr-1") });
    scenario.placement_groups.push(GroupSpec {
        name: group.to_owned(),
        strategy: Strategy::Cluster,
        owner: None,
        tags: [].into(),
    });
    scenario
}

/// RunInstances of exactly `n` p5.
fn run<'a>(n: &'a str, token: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut parameters = vec![
        ("MinCount", n),
        ("MaxCount", n),
        ("ClientToken", token),
        ("ImageId", SSM),
        ("InstanceType", P5),
        ("SubnetId", SUBNET_A),
    ];
    parameters.extend(more);
    parameters
}

const TARGET: &str = "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId";
const PREFERENCE: &str = "CapacityReservationSpecification.CapacityReservationPreference";
const BLOCK: (&str, &str) = ("InstanceMarketOptions.MarketType", "capacity-block");

async fn available(sim: &Sim, id: &str) -> String {
    let body = sim.ok("DescribeCapacityReservations", &[("CapacityReservationId.1", id)]).await;
    text(&body, "availableInstanceCount").to_owned()
}

#[tokio::test]
async fn a_targeted_reservation_serves_those_who_name_it_and_nobody_else() {
    let sim = Sim::new(with(reservation("cr-1")));
    let body = sim.ok("RunInstances", &run("3", "t1", &[(TARGET, "cr-1")])).await;
    assert_eq!(texts(&body, "instanceId").len(), 3);
    assert_eq!(texts(&body, "capacityReservationId")[0], "cr-1");
    assert_eq!(available(&sim, "cr-1").await, "1");
    assert_eq!(
        sim.refused("RunInstances", &run("2", "t2", &[(TARGET, "cr-1")])).await,
        (400, "ReservationCapacityExceeded".to_owned())
    );
    // The pool holds 8, and the free host of the reservation is none of them.
    sim.ok("RunInstances", &run("8", "t3", &[])).await;
    assert_eq!(
        sim.refused("RunInstances", &run("1", "t4", &[])).await,
        (500, "InsufficientInstanceCapacity".to_owned())
    );
    assert_eq!(available(&sim, "cr-1").await, "1");
}

#[tokio::test]
async fn an_open_reservation_serves_what_matches_it_first() {
    let sim = Sim::new(with(ReservationSpec { matching: Matching::Open, ..reservation("cr-1") }));
    sim.ok("RunInstances", &run("2", "t1", &[])).await;
    assert_eq!(available(&sim, "cr-1").await, "2");
    sim.ok("RunInstances", &run("1", "t2", &[(PREFERENCE, "none")])).await;
    assert_eq!(available(&sim, "cr-1").await, "2");
    sim.ok("RunInstances", &run("2", "t3", &[(PREFERENCE, "capacity-reservations-only")])).await;
    assert_eq!(available(&sim, "cr-1").await, "0");
    assert_eq!(
        sim.refused("RunInstances", &run("1", "t4", &[(PREFERENCE, "capacity-reservations-only")])).await,
        (400, "ReservationCapacityExceeded".to_owned())
    );
}

#[tokio::test]
async fn a_group_and_a_reservation_made_elsewhere_are_a_want_of_capacity_although_there_is_capacity() {
    let sim = Sim::new(with(reservation("cr-1")));
    sim.group("g").await;
    let parameters = run("2", "t1", &[(TARGET, "cr-1"), ("Placement.GroupName", "g")]);
    assert_eq!(sim.refused("RunInstances", &parameters).await, (500, "InsufficientInstanceCapacity".to_owned()));
    assert_eq!(available(&sim, "cr-1").await, "4");
}

#[tokio::test]
async fn a_reservation_made_in_a_group_is_launched_into_by_naming_both() {
    let sim = Sim::new(in_group("theirs"));
    let body = sim.ok("DescribeCapacityReservations", &[]).await;
    assert_eq!(text(&body, "placementGroupArn"), "arn:aws:ec2:us-east-1:123456789012:placement-group/theirs");
    let (status, _) = sim.refused("RunInstances", &run("2", "t1", &[(TARGET, "cr-1")])).await;
    assert_eq!(status, 400);
    let both = [(TARGET, "cr-1"), ("Placement.GroupName", "theirs")];
    sim.ok("RunInstances", &run("4", "t2", &both)).await;
    assert_eq!(sim.refused("RunInstances", &run("1", "t3", &both)).await.1, "ReservationCapacityExceeded");
    assert_eq!(sim.refused("DeletePlacementGroup", &[("GroupName", "theirs")]).await.1, "InvalidPlacementGroup.InUse");
}

#[tokio::test]
async fn a_group_that_another_account_shares_is_named_by_its_id_alone() {
    let mut scenario = in_group("theirs");
    scenario.placement_groups[0].owner = Some("999999999999".to_owned());
    let sim = Sim::new(scenario);
    let body = sim.ok("DescribeCapacityReservations", &[]).await;
    let arn = text(&body, "placementGroupArn").to_owned();
    assert_eq!(arn, "arn:aws:ec2:us-east-1:999999999999:placement-group/theirs");
    let unknown = sim.refused("DescribePlacementGroups", &[("GroupName.1", "theirs")]).await;
    assert_eq!(unknown.1, "InvalidPlacementGroup.Unknown");
    let by_arn = [("Filter.1.Name", "group-arn"), ("Filter.1.Value.1", arn.as_str())];
    let body = sim.ok("DescribePlacementGroups", &by_arn).await;
    let by_name = [(TARGET, "cr-1"), ("Placement.GroupName", "theirs")];
    assert_eq!(sim.refused("RunInstances", &run("2", "t1", &by_name)).await.1, "InvalidPlacementGroup.Unknown");
    sim.ok("RunInstances", &run("2", "t2", &[(TARGET, "cr-1"), ("Placement.GroupId", text(&body, "groupId"))])).await;
    assert_eq!(available(&sim, "cr-1").await, "2");
}

#[tokio::test]
async fn a_bad_reservation_is_named() {
    let sim = Sim::new(with(reservation("cr-1")));
    for (id, code) in
        [("cr-2", "InvalidCapacityReservationId.NotFound"), ("x", "InvalidCapacityReservationId.Malformed")]
    {
        assert_eq!(sim.refused("RunInstances", &run("1", "t", &[(TARGET, id)])).await, (400, code.to_owned()));
    }
    let wrong_zone: Vec<_> = run("1", "t", &[(TARGET, "cr-1")])
        .into_iter()
        .map(|(name, value)| (name, if name == "SubnetId" { SUBNET_B } else { value }))
        .collect();
    assert_eq!(sim.refused("RunInstances", &wrong_zone).await.0, 400);
    let both = [(TARGET, "cr-1"), (PREFERENCE, "open")];
    assert_eq!(sim.refused("RunInstances", &run("1", "t", &both)).await.0, 400);
    let spot = [(TARGET, "cr-1"), ("InstanceMarketOptions.MarketType", "spot")];
    assert_eq!(sim.refused("RunInstances", &run("1", "t", &spot)).await.0, 400);
}

fn block(start: f64, end: f64) -> ReservationSpec {
    ReservationSpec {
        kind: ReservationKind::CapacityBlock,
        start_seconds: Some(start),
        end_seconds: Some(end),
        ..reservation("cr-1")
    }
}

#[tokio::test]
async fn a_block_opens_at_its_start_and_takes_its_own_market_type_alone() {
    let sim = Sim::new(with(block(600.0, 86_400.0)));
    assert_eq!(
        sim.refused("RunInstances", &run("2", "t1", &[(TARGET, "cr-1"), BLOCK])).await,
        (400, "InvalidCapacityReservationState.PendingActivation".to_owned())
    );
    let body = sim.ok("DescribeCapacityReservations", &[("Filter.1.Name", "state"), ("Filter.1.Value.1", "scheduled")]);
    assert_eq!(text(&body.await, "reservationType"), "capacity-block");
    sim.advance(600);
    assert_eq!(sim.refused("RunInstances", &run("2", "t2", &[(TARGET, "cr-1")])).await.0, 400);
    let body = sim.ok("RunInstances", &run("4", "t3", &[(TARGET, "cr-1"), BLOCK])).await;
    assert_eq!(text(&body, "instanceLifecycle"), "capacity-block");
}

#[tokio::test]
async fn the_host_of_a_block_comes_back_only_after_its_clean_up() {
    let sim = Sim::new(with(block(0.0, 86_400.0)));
    let body = sim.ok("RunInstances", &run("4", "t1", &[(TARGET, "cr-1"), BLOCK])).await;
    sim.advance(60);
    sim.ok("TerminateInstances", &[("InstanceId.1", text(&body, "instanceId"))]).await;
    sim.advance(60);
    assert_eq!(available(&sim, "cr-1").await, "0");
    sim.advance(300);
    assert_eq!(available(&sim, "cr-1").await, "1");
}

#[tokio::test]
async fn what_runs_in_a_block_ends_half_an_hour_before_it() {
    let sim = Sim::new(with(block(0.0, 7200.0)));
    sim.ok("RunInstances", &run("4", "t1", &[(TARGET, "cr-1"), BLOCK])).await;
    sim.advance(7200 - 2400 + 1);
    assert_eq!(sim.get("/_sim/queue").await["messages"], 1);
    sim.advance(600);
    assert!(sim.simulator.instances().iter().all(|i| i.state == "shutting-down"));
    sim.advance(3600);
    assert_eq!(
        sim.refused("RunInstances", &run("1", "t2", &[(TARGET, "cr-1"), BLOCK])).await.1,
        "InvalidCapacityReservationId.NotFound"
    );
}

#[tokio::test]
async fn a_reservation_is_made_of_free_hosts_and_gives_them_back() {
    let sim = Sim::small();
    sim.group("g").await;
    let parameters = [
        ("InstanceType", P5),
        ("InstancePlatform", "Linux/UNIX"),
        ("AvailabilityZone", "us-east-1a"),
        ("InstanceCount", "4"),
        ("InstanceMatchCriteria", "targeted"),
        ("PlacementGroupArn", "arn:aws:ec2:us-east-1:123456789012:placement-group/g"),
        ("ClientToken", "t1"),
        ("TagSpecifications.1.ResourceType", "capacity-reservation"),
        ("TagSpecifications.1.Tag.1.Key", "muster.dev/batch"),
        ("TagSpecifications.1.Tag.1.Value", "b1"),
    ];
    let body = sim.ok("CreateCapacityReservation", &parameters).await;
    let id = text(&body, "capacityReservationId").to_owned();
    assert_eq!(text(&body, "key"), "muster.dev/batch");
    // The same token makes no second one.
    assert_eq!(text(&sim.ok("CreateCapacityReservation", &parameters).await, "capacityReservationId"), id);
    let mut larger = parameters.to_vec();
    larger[3] = ("InstanceCount", "5");
    larger[6] = ("ClientToken", "t2");
    assert_eq!(
        sim.refused("CreateCapacityReservation", &larger).await,
        (500, "InsufficientInstanceCapacity".to_owned())
    );
    let both = [(TARGET, id.as_str()), ("Placement.GroupName", "g")];
    sim.ok("RunInstances", &run("2", "r1", &both)).await;
    let body = sim.ok("DescribeCapacityReservationTopology", &[("CapacityReservationId.1", &id)]).await;
    assert_eq!(texts(text(&body, "networkNodeSet"), "item").len(), 2, "core and spine; the hosts lie on two leaves");
    sim.ok("CancelCapacityReservation", &[("CapacityReservationId", &id)]).await;
    assert_eq!(available(&sim, &id).await, "0");
    // Two of its hosts run on; all the others are the pool's again.
    sim.ok("RunInstances", &run("6", "r2", &[])).await;
    assert_eq!(sim.refused("RunInstances", &run("1", "r3", &[])).await.1, "InsufficientInstanceCapacity");
}

/// CreateFleet of exactly two p5.
fn fleet<'a>(template: &'a str, token: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut parameters = Fleet::of(template, "2", token).parameters();
    parameters.retain(|(key, _)| !more.iter().any(|(changed, _)| changed == key));
    parameters.extend(more);
    parameters
}

#[tokio::test]
async fn a_fleet_that_asks_for_reservations_first_fails_where_they_lie_outside_its_group() {
    let sim = Sim::new(with(ReservationSpec { matching: Matching::Open, ..reservation("cr-1") }));
    let template = sim.template().await;
    sim.group("g").await;
    let first = ("OnDemandOptions.CapacityReservationOptions.UsageStrategy", "use-capacity-reservations-first");
    let group = ("LaunchTemplateConfigs.1.Overrides.1.Placement.GroupName", "g");
    let body = sim.ok("CreateFleet", &fleet(&template, "t1", &[first, group])).await;
    assert_eq!(text(&body, "errorCode"), "InsufficientInstanceCapacity");
    // Without the option the group's launch is one of the pool, and without the group the reservation serves it.
    let body = sim.ok("CreateFleet", &fleet(&template, "t2", &[group])).await;
    assert_eq!(fleet_ids(&body).len(), 2);
    assert_eq!(available(&sim, "cr-1").await, "4");
    sim.ok("CreateFleet", &fleet(&template, "t3", &[first])).await;
    assert_eq!(available(&sim, "cr-1").await, "2");
}

#[tokio::test]
async fn a_fleet_of_reserved_capacity_knows_no_minimum() {
    let sim = Sim::new(with(ReservationSpec { spines: vec![SpineSpec { leaves: vec![1] }], ..reservation("cr-1") }));
    let template = sim.template().await;
    let reserved = [
        ("TargetCapacitySpecification.DefaultTargetCapacityType", "reserved-capacity"),
        ("ReservedCapacityOptions.ReservationType.1", "on-demand-capacity-reservation"),
        ("ReservedCapacityOptions.CapacityReservationTarget.CapacityReservationId.1", "cr-1"),
    ];
    let body = sim.ok("CreateFleet", &fleet(&template, "t1", &reserved)).await;
    assert_eq!(fleet_ids(&body).len(), 1);
    assert_eq!(text(&body, "errorCode"), "ReservationCapacityExceeded");
}

#[tokio::test]
async fn an_interruptible_reservation_is_reclaimed_with_a_warning_of_its_own_spelling() {
    let kind = ReservationKind::Interruptible;
    let sim = Sim::new(with(ReservationSpec { kind, ..reservation("cr-1") }));
    let capacity_type = ("InstanceMarketOptions.MarketType", "interruptible-capacity-reservation");
    assert_eq!(sim.refused("RunInstances", &run("2", "t0", &[(TARGET, "cr-1")])).await.0, 400);
    let body = sim.ok("RunInstances", &run("2", "t1", &[(TARGET, "cr-1"), capacity_type])).await;
    assert_eq!(text(&body, "instanceLifecycle"), "interruptible-capacity-reservation");
    sim.advance(60);
    let id = text(&body, "instanceId").to_owned();
    sim.simulator.interrupt(&Interruption {
        kind: InterruptionKind::ReservationReclaim,
        instance_ids: vec![id.clone()],
        ..Interruption::default()
    });
    let event = &sim.events().await[0];
    assert_eq!(event["detail-type"], "EC2 Capacity Reservation Instance Interruption Warning");
    assert_eq!(event["detail"]["azId"], "use1-az6");
    assert_eq!(event["detail"]["instance-lifecycle"], "interruptible-capacity-reservation");
    sim.advance(120);
    let ended = sim.simulator.instances().into_iter().find(|i| i.instance_id == id);
    assert!(ended.is_some_and(|i| i.state == "shutting-down"));
    sim.advance(60);
    let body = sim.ok("DescribeCapacityReservations", &[]).await;
    assert_eq!((text(&body, "totalInstanceCount"), text(&body, "availableInstanceCount")), ("3", "2"));
}

#[tokio::test]
async fn the_price_of_spot_is_that_of_the_zones_that_offer_the_type() {
    let mut scenario = small().with_pool(P5, "us-east-1a", MarketType::Spot, 1, 1, 2);
    scenario.spot_price_percent = 50;
    let sim = Sim::new(scenario);
    let body =
        sim.ok("DescribeSpotPriceHistory", &[("InstanceType.1", P5), ("ProductDescription.1", "Linux/UNIX")]).await;
    assert_eq!(texts(&body, "spotPrice"), ["27.520000", "27.520000"]);
    assert_eq!(texts(&body, "availabilityZone"), ["us-east-1a", "us-east-1b"]);
}
