//! Every way to launch: what goes over the wire, word by word, and what the simulator makes of it.

use std::fmt::Write as _;
use std::path::Path;

use jiff::SignedDuration;
use muster_core::batch::{Verdict, judge};
use muster_core::ec2::{CapacityType, ErrorClass, LaunchParameters, LaunchWay, ReservationState, ResourceKind, Target};
use muster_ec2::ReservationQuery;
use muster_ec2_sim::scenario::{GroupSpec, Matching, ReservationKind, ReservationSpec, SpineSpec, Strategy};
use muster_ec2_sim::{MarketType, Scenario};

use crate::support::{P5, SUBNET, World, ZONE, scenario, tags};

const GROUP: &str = "theirs";

fn reservation(id: &str, group: Option<&str>, kind: ReservationKind, start: Option<f64>) -> ReservationSpec {
    ReservationSpec {
        id: id.to_owned(),
        instance_type: P5.to_owned(),
        zone: ZONE.to_owned(),
        kind,
        matching: Matching::Targeted,
        placement_group: group.map(str::to_owned),
        spines: vec![SpineSpec { leaves: vec![2, 2] }],
        start_seconds: start,
        end_seconds: start.map(|start| start + 86_400.0),
        tags: [("team".to_owned(), "ml".to_owned())].into(),
    }
}

/// Capacity on demand, on spot, in a reservation inside and one outside a group, and in a block that begins in an hour.
async fn world() -> World {
    world_with_group_of(None).await
}

/// The same, with the group shared by another account.
async fn world_with_group_of(owner: Option<&str>) -> World {
    let mut scenario: Scenario = scenario().with_pool(P5, ZONE, MarketType::Spot, 1, 1, 4);
    let owner = owner.map(str::to_owned);
    let group = GroupSpec { name: GROUP.to_owned(), strategy: Strategy::Cluster, owner, tags: [].into() };
    scenario.placement_groups.push(group);
    scenario.reservations = vec![
        reservation("cr-00000000000000001", None, ReservationKind::OnDemand, None),
        reservation("cr-00000000000000002", Some(GROUP), ReservationKind::OnDemand, None),
        reservation("cr-00000000000000003", None, ReservationKind::CapacityBlock, Some(3_600.0)),
    ];
    World::of(scenario).await
}

/// The parameters of a way, with a template that carries the subnet where RunInstances needs it there.
async fn parameters(world: &World, capacity_type: CapacityType, reservation: Option<Target>) -> LaunchParameters {
    of(world, &world.intent(4).await, capacity_type, reservation).await
}

async fn of(
    world: &World,
    base: &LaunchParameters,
    capacity_type: CapacityType,
    reservation: Option<Target>,
) -> LaunchParameters {
    let template = world.template_in(&base.tags, Some(SUBNET.to_owned()), capacity_type).await;
    let base = base.clone();
    LaunchParameters { capacity_type, way: LaunchWay::Run, reservation, template_id: template.id, ..base }.with_token(1)
}

fn target(id: &str, block: bool) -> Option<Target> {
    Some(Target { id: id.to_owned(), block })
}

/// The parameters of the last call of an operation, one a line, compared with a file beside this one. With
/// `MUSTER_BLESS` set the file is written instead.
#[track_caller]
fn golden(world: &World, operation: &str, name: &str) {
    let journal = world.simulator.journal();
    let entry = journal.iter().rev().find(|entry| entry.operation == operation).expect("the call was made");
    let mut form = format!("Action={operation}\n");
    for (key, value) in &entry.parameters {
        writeln!(form, "{key}={value}").expect("writing to a string");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden").join(format!("{name}.form"));
    if std::env::var_os("MUSTER_BLESS").is_some() {
        std::fs::write(&path, &form).expect("the checkout can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(form, written, "{name} differs; a wanted change is written with MUSTER_BLESS=1");
}

#[tokio::test]
async fn the_form_of_every_call_of_a_fleet_is_as_written_down() {
    let world = world().await;
    let in_group = world.intent(4).await;
    golden(&world, "CreatePlacementGroup", "create-placement-group");
    golden(&world, "CreateLaunchTemplate", "create-launch-template");
    for (capacity_type, name) in [(CapacityType::OnDemand, "fleet-on-demand"), (CapacityType::Spot, "fleet-spot")] {
        let mut intent = LaunchParameters { capacity_type, ..in_group.clone() };
        intent.tags.attempt = 2;
        let answer = world.client.create_fleet(&intent.clone().with_token(1)).await;
        golden(&world, "CreateFleet", &format!("{name}-in-group"));
        let verdict = judge(&intent, true, &answer);
        assert!(matches!(verdict, Verdict::Won(_) | Verdict::Lost { .. }), "{answer:?}");
        let open = LaunchParameters { placement_group: None, ..intent };
        let _ = world.client.create_fleet(&open.clone().with_token(1)).await;
        golden(&world, "CreateFleet", name);
        let part = LaunchParameters { partial: true, ..open };
        let _ = world.client.create_fleet(&part.with_token(1)).await;
        golden(&world, "CreateFleet", &format!("{name}-partial"));
    }
}

#[tokio::test]
async fn a_spot_fleet_is_all_or_nothing_too() {
    let world = world().await;
    let base = LaunchParameters { capacity_type: CapacityType::Spot, placement_group: None, ..world.intent(4).await };
    let five = LaunchParameters { count: 5, ..base.clone() }.with_token(1);
    let answer = world.client.create_fleet(&five).await;
    assert!(matches!(judge(&five, true, &answer), Verdict::Lost { .. }), "{answer:?}");
    assert_eq!(world.simulator.instances().len(), 0);
    let part = LaunchParameters { count: 5, partial: true, ..base.clone() }.with_token(1);
    let answer = world.client.create_fleet(&part).await;
    assert!(matches!(judge(&part, true, &answer), Verdict::Won(ids) if ids.len() == 4), "{answer:?}");
}

#[tokio::test]
async fn a_reservation_is_launched_into_whole_and_never_left_for_open_capacity() {
    let world = world().await;
    let open = LaunchParameters {
        placement_group: None,
        ..parameters(&world, CapacityType::Reserved, target("cr-00000000000000001", false)).await
    }
    .with_token(1);
    let answer = world.client.run_instances(&open).await;
    golden(&world, "RunInstances", "run-reserved");
    let Verdict::Won(ids) = judge(&open, true, &answer) else { panic!("{answer:?}") };
    assert_eq!(ids.len(), 4);
    let seen = world.client.describe_reservations(&ReservationQuery::default()).await.unwrap();
    let free = |id: &str| seen.iter().find(|one| one.id == id).map(|one| one.free);
    assert_eq!((free("cr-00000000000000001"), free("cr-00000000000000002")), (Some(0), Some(4)));

    // Full now: refused, although there are eight hosts on demand beside it.
    let mut again = open.clone();
    again.tags.attempt = 2;
    let again = again.with_token(1);
    let answer = world.client.run_instances(&again).await;
    let Verdict::Lost { why, unavailable, .. } = judge(&again, true, &answer) else { panic!("{answer:?}") };
    assert_eq!((why.kind, unavailable.len()), (ErrorClass::ReservationFull, 0), "no verdict on the pool");
    assert_eq!(world.simulator.instances().len(), 4);

    // The same token again gives the same instances.
    let replay = world.client.run_instances(&open).await;
    assert!(matches!(judge(&open, false, &replay), Verdict::Won(same) if same == ids), "{replay:?}");
    assert_eq!(world.simulator.instances().len(), 4);
}

#[tokio::test]
async fn a_reservation_made_in_a_group_needs_that_group_and_one_made_outside_none() {
    let world = world().await;
    let base = parameters(&world, CapacityType::Reserved, target("cr-00000000000000002", false)).await;
    let inside = LaunchParameters { placement_group: Some(GROUP.to_owned()), ..base.clone() }.with_token(1);
    let answer = world.client.run_instances(&inside).await;
    golden(&world, "RunInstances", "run-reserved-in-group");
    assert!(matches!(judge(&inside, true, &answer), Verdict::Won(_)), "{answer:?}");

    let wrong = LaunchParameters { reservation: target("cr-00000000000000001", false), ..base }.with_token(1);
    let answer = world.client.run_instances(&wrong).await;
    assert_eq!(answer.as_ref().unwrap_err().http_status, Some(500));
    assert!(matches!(judge(&wrong, true, &answer), Verdict::Lost { .. }), "{answer:?}");
}

#[tokio::test]
async fn a_reservation_in_a_group_that_another_account_shares_is_launched_into_by_the_id_of_the_group() {
    for owner in [None, Some("999999999999")] {
        let world = world_with_group_of(owner).await;
        let read = async || {
            let seen = world.client.describe_reservations(&ReservationQuery::default()).await.unwrap();
            seen.into_iter().find_map(|one| one.placement_group).unwrap()
        };
        let group = read().await;
        assert_eq!(group == GROUP, owner.is_none(), "{group}");
        let asked = world.seen("DescribePlacementGroups");
        assert_eq!(read().await, group);
        assert_eq!(world.seen("DescribePlacementGroups"), asked, "what a group is called is asked for once");
        let base = parameters(&world, CapacityType::Reserved, target("cr-00000000000000002", false)).await;
        let inside = LaunchParameters { placement_group: Some(group), ..base }.with_token(1);
        let answer = world.client.run_instances(&inside).await;
        assert!(matches!(judge(&inside, true, &answer), Verdict::Won(_)), "{owner:?}: {answer:?}");
    }
}

#[tokio::test]
async fn a_capacity_block_is_refused_before_it_begins_and_launched_into_afterwards() {
    let world = world().await;
    let block = LaunchParameters {
        placement_group: None,
        ..parameters(&world, CapacityType::Reserved, target("cr-00000000000000003", true)).await
    }
    .with_token(1);
    let early = world.client.run_instances(&block).await;
    golden(&world, "RunInstances", "run-capacity-block");
    let Verdict::Lost { why, .. } = judge(&block, true, &early) else { panic!("{early:?}") };
    assert_eq!(why.kind, ErrorClass::ReservationNotStarted);
    let query = ReservationQuery { ids: vec!["cr-00000000000000003".to_owned()], ..ReservationQuery::default() };
    let seen = world.client.describe_reservations(&query).await.unwrap().swap_remove(0);
    assert_eq!((seen.state, seen.block), (ReservationState::Scheduled, true));
    let start = seen.start.expect("a block has a beginning");
    assert!(seen.end.is_some_and(|end| end > start));

    world.simulator.clock().advance(SignedDuration::from_secs(3_700));
    let mut later = block.clone();
    later.tags.attempt = 2;
    let later = later.with_token(1);
    let answer = world.client.run_instances(&later).await;
    assert!(matches!(judge(&later, true, &answer), Verdict::Won(ids) if ids.len() == 4), "{answer:?}");
}

#[tokio::test]
async fn run_instances_stands_in_for_a_fleet_on_demand_and_on_spot() {
    let world = world().await;
    let base = world.intent(4).await;
    for (capacity_type, name) in [(CapacityType::OnDemand, "run-on-demand"), (CapacityType::Spot, "run-spot")] {
        let run =
            LaunchParameters { placement_group: None, ..of(&world, &base, capacity_type, None).await }.with_token(1);
        let answer = world.client.run_instances(&run).await;
        golden(&world, "RunInstances", name);
        assert!(matches!(judge(&run, true, &answer), Verdict::Won(_)), "{answer:?}");
        let live = world.simulator.instances();
        let tagged = live.iter().filter(|instance| instance.tags == tags().of(ResourceKind::Instance)).count();
        assert_eq!(tagged, live.len());
    }
    golden(&world, "CreateLaunchTemplate", "create-launch-template-run");
    let too_many = of(&world, &base, CapacityType::OnDemand, None).await;
    let too_many = LaunchParameters { count: 900, placement_group: None, ..too_many }.with_token(1);
    let answer = world.client.run_instances(&too_many).await;
    let Verdict::Lost { why, unavailable, .. } = judge(&too_many, true, &answer) else { panic!("{answer:?}") };
    assert_eq!((why.kind, unavailable), (ErrorClass::Capacity, vec![too_many.pool()]));
}

#[tokio::test]
async fn spot_prices_are_read_by_type_and_zone() {
    let world = world().await;
    let prices = world.client.describe_spot_prices(&[P5.to_owned()], world.simulator.clock().now()).await.unwrap();
    // 40 percent of the list price, in the scenario's default.
    assert_eq!(prices.get(&(P5.to_owned(), ZONE.to_owned())), Some(&22_016_000));
    assert!(prices.keys().all(|(name, _)| name == P5), "{prices:?}");
}
