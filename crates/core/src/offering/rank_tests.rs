//! Tests of the ranking: order, and every reason for being excluded.

use super::*;
use crate::ec2::machine::tests::p5;
use crate::model::resources::CPU;

struct World {
    pools: Vec<PoolOffer>,
    types: BTreeMap<String, InstanceTypeInfo>,
    /// By type; every pool is asked for the same.
    needs: BTreeMap<String, Need>,
    group: GroupPolicy,
    volume_zones: Option<BTreeSet<String>>,
    offerings: BTreeSet<Offering>,
    prices: PriceBook,
    unavailable: UnavailableMemory,
    refusals: Refusals,
}

const P5: &str = "p5.48xlarge";
const P5EN: &str = "p5en.48xlarge";

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn subnet(id: &str, zone: &str, free_addresses: u32) -> Subnet {
    Subnet {
        id: id.to_owned(),
        zone: zone.to_owned(),
        zone_id: format!("id-{zone}"),
        free_addresses,
        vpc_id: "vpc-1".to_owned(),
        ipv6: false,
        tags: BTreeMap::new(),
    }
}

fn pool(name: &str, weight: u32) -> PoolOffer {
    PoolOffer {
        name: name.to_owned(),
        weight,
        instance_types: set(&[P5, P5EN]),
        zones: set(&["a", "b"]),
        capacity_types: vec![CapacityType::OnDemand],
        group: GroupPolicy::Preferred,
        left: BTreeMap::new(),
        limits: BTreeMap::new(),
        ceilings: Vec::new(),
        max_nodes_per_batch: 1000,
        subnets: vec![subnet("s-a", "a", 100), subnet("s-b", "b", 100), subnet("s-b2", "b", 200)],
        ipv6: false,
        reservations: Vec::new(),
        min_values: Vec::new(),
    }
}

fn world() -> World {
    let offering =
        |instance_type: &str, zone: &str| Offering { instance_type: instance_type.to_owned(), zone: zone.to_owned() };
    World {
        pools: vec![pool("gpu", 0)],
        types: [P5, P5EN].map(|name| (name.to_owned(), InstanceTypeInfo { name: name.to_owned(), ..p5() })).into(),
        needs: [P5, P5EN].map(|name| (name.to_owned(), need(8))).into(),
        group: GroupPolicy::Preferred,
        volume_zones: None,
        offerings: [(P5, "a"), (P5, "b"), (P5EN, "a"), (P5EN, "b")].map(|(t, z)| offering(t, z)).into(),
        prices: PriceBook::default(),
        unavailable: UnavailableMemory::default(),
        refusals: Refusals::default(),
    }
}

fn need(nodes: u32) -> Need {
    Need { nodes, addresses_per_node: 1, capacity: p5().capacity() }
}

fn rank(world: &World) -> Ranking {
    let of = |pool: &PoolOffer, name: &String| PoolType { pool: pool.name.clone(), instance_type: name.clone() };
    let every = world.pools.iter().flat_map(|pool| world.needs.iter().map(move |(name, need)| (of(pool, name), need)));
    rank_for(world, &every.map(|(key, need)| (key, need.clone())).collect())
}

fn rank_for(world: &World, needs: &BTreeMap<PoolType, Need>) -> Ranking {
    rank_candidates(&RankInput {
        pools: &world.pools,
        types: &world.types,
        needs,
        group: world.group,
        volume_zones: world.volume_zones.as_ref(),
        offerings: &world.offerings,
        prices: &world.prices,
        unavailable: &world.unavailable,
        refusals: &world.refusals,
        now: now(),
    })
}

fn order(ranking: &Ranking) -> Vec<String> {
    let short = |ranked: &Ranked| {
        let candidate = &ranked.candidate;
        let group = if candidate.placement_group { "pg" } else { "open" };
        let family = candidate.instance_type.split('.').next().unwrap();
        format!("{}/{}/{}/{}/{group}", ranked.pool, family, candidate.zone, candidate.capacity_type)
    };
    ranking.candidates.iter().map(short).collect()
}

fn reasons(ranking: &Ranking) -> Vec<&Exclusion> {
    ranking.excluded.iter().map(|left| &left.reason).collect()
}

#[test]
fn two_pools_that_make_other_nodes_of_a_type_are_asked_for_what_each_needs() {
    let mut world = world();
    world.pools = vec![pool("wide", 0), pool("narrow", 0)];
    let mut needs = BTreeMap::new();
    for (pool, nodes) in [("wide", 2), ("narrow", 4)] {
        needs.insert(PoolType { pool: pool.to_owned(), instance_type: P5.to_owned() }, need(nodes));
    }
    let ranking = rank_for(&world, &needs);
    let counts = ranking.candidates.iter().map(|ranked| (ranked.pool.as_str(), ranked.count));
    assert_eq!(counts.collect::<BTreeSet<_>>(), BTreeSet::from([("wide", 2), ("narrow", 4)]));
}

#[test]
fn a_group_is_kept_over_all_zones_before_it_is_dropped_and_the_cheap_type_comes_first() {
    assert_eq!(
        order(&rank(&world())),
        [
            "gpu/p5/a/on-demand/pg",
            "gpu/p5/b/on-demand/pg",
            "gpu/p5en/a/on-demand/pg",
            "gpu/p5en/b/on-demand/pg",
            "gpu/p5/a/on-demand/open",
            "gpu/p5/b/on-demand/open",
            "gpu/p5en/a/on-demand/open",
            "gpu/p5en/b/on-demand/open",
        ]
    );
}

#[test]
fn weight_beats_everything_else() {
    let mut world = world();
    world.pools = vec![pool("cheap", 1), pool("loved", 50)];
    world.pools[0].instance_types = set(&[P5]);
    world.pools[1].instance_types = set(&[P5EN]);
    let ranking = rank(&world);
    assert!(order(&ranking)[..4].iter().all(|entry| entry.starts_with("loved/")), "{:?}", order(&ranking));
}

#[test]
fn the_order_of_capacity_types_beats_the_group_and_the_price() {
    let mut world = world();
    world.pools[0].instance_types = set(&[P5]);
    world.pools[0].zones = set(&["a"]);
    world.pools[0].capacity_types = vec![CapacityType::OnDemand, CapacityType::Spot];
    world.prices.set(P5, None, CapacityType::Spot, 1);
    assert_eq!(
        order(&rank(&world)),
        ["gpu/p5/a/on-demand/pg", "gpu/p5/a/on-demand/open", "gpu/p5/a/spot/pg", "gpu/p5/a/spot/open"]
    );
}

#[test]
fn the_price_of_the_whole_gang_counts_not_that_of_a_node() {
    let mut world = world();
    world.needs.insert(P5EN.to_owned(), need(4));
    let first = rank(&world).candidates.swap_remove(0);
    assert_eq!(first.candidate.instance_type, P5EN);
    assert_eq!((first.count, first.total_micro_usd_per_hour), (4, 4 * 63_296_000));
}

#[test]
fn the_subnet_with_most_free_addresses_is_taken() {
    let ranking = rank(&world());
    let in_b = ranking.candidates.iter().find(|ranked| ranked.candidate.zone == "b").unwrap();
    assert_eq!(in_b.candidate.subnet_id, "s-b2");
    assert_eq!(in_b.candidate.zone_id, "id-b");
}

#[test]
fn missing_capacity_excludes_that_size_and_pushes_back_smaller_ones() {
    let mut world = world();
    world.pools[0].instance_types = set(&[P5]);
    let in_a =
        Pool { instance_type: P5.to_owned(), zone: "a".to_owned(), capacity_type: CapacityType::OnDemand, group: true };
    world.unavailable.record(&in_a, 9, now());
    assert_eq!(order(&rank(&world))[..2], ["gpu/p5/b/on-demand/pg", "gpu/p5/a/on-demand/pg"]);
    world.unavailable.record(&in_a, 8, now());
    let ranking = rank(&world);
    assert!(!order(&ranking).contains(&"gpu/p5/a/on-demand/pg".to_owned()));
    assert!(order(&ranking).contains(&"gpu/p5/a/on-demand/open".to_owned()));
    assert!(matches!(reasons(&ranking)[..], [Exclusion::NoCapacity { .. }]));
}

#[test]
fn group_policies_combine_and_contradictions_rule_the_pool_out() {
    let mut world = world();
    world.pools[0].group = GroupPolicy::Required;
    assert!(rank(&world).candidates.iter().all(|ranked| ranked.candidate.placement_group));
    world.group = GroupPolicy::None;
    let ranking = rank(&world);
    assert!(ranking.candidates.is_empty());
    assert_eq!(reasons(&ranking), [&Exclusion::GroupPolicyConflict]);
    world.pools[0].group = GroupPolicy::Preferred;
    assert!(rank(&world).candidates.iter().all(|ranked| !ranked.candidate.placement_group));
}

#[test]
fn limits_are_kept_strictly_and_name_what_is_missing() {
    let mut world = world();
    world.pools[0].left = BTreeMap::from([("nvidia.com/gpu".into(), 63), ("nodes".into(), 100)]);
    let ranking = rank(&world);
    assert!(ranking.candidates.is_empty());
    let limit = Exclusion::Limit { resource: "nvidia.com/gpu".into(), needed: 64, left: 63, limit: 63 };
    assert_eq!(reasons(&ranking), [&limit, &limit]);
    world.pools[0].left = BTreeMap::from([("nvidia.com/gpu".into(), 64), ("nodes".into(), 8)]);
    assert_eq!(rank(&world).candidates.len(), 8);
    world.pools[0].left = BTreeMap::from([("nodes".into(), 7)]);
    assert!(rank(&world).candidates.is_empty());
    world.pools[0].left = BTreeMap::from([(CPU.into(), 8 * 192_000 - 1)]);
    assert!(rank(&world).candidates.is_empty());
    // An overdrawn limit on something the type does not have is no obstacle.
    world.pools[0].left = BTreeMap::from([("aws.amazon.com/neuron".into(), -1)]);
    assert_eq!(rank(&world).candidates.len(), 8);
}

#[test]
fn a_pool_whose_min_values_are_not_reached_by_what_is_left_is_no_candidate() {
    let mut world = world();
    let values = [(P5, "p5"), (P5EN, "p5en")].map(|(name, family)| (name.to_owned(), family.to_owned()));
    let asks = |least| MinValues { key: "family".to_owned(), least, values: values.clone().into() };
    world.pools[0].min_values = vec![asks(2)];
    assert_eq!(rank(&world).candidates.len(), 8);
    world.pools[0].min_values = vec![asks(3)];
    let ranking = rank(&world);
    assert!(ranking.candidates.is_empty());
    assert_eq!(reasons(&ranking), [&Exclusion::TooFewValues { key: "family".to_owned(), least: 3, left: 2 }]);
    // What is only out of capacity now comes back.
    world.pools[0].min_values = vec![asks(2)];
    for (zone, group) in [("a", true), ("a", false), ("b", true), ("b", false)] {
        let dry = Pool {
            instance_type: P5EN.to_owned(),
            zone: zone.to_owned(),
            capacity_type: CapacityType::OnDemand,
            group,
        };
        world.unavailable.record(&dry, 8, now());
    }
    assert_eq!(rank(&world).candidates.len(), 4);
    world.pools[0].instance_types = set(&[P5]);
    assert!(rank(&world).candidates.is_empty());
}

#[test]
fn everything_excluded_says_why() {
    let one = |change: &dyn Fn(&mut World)| {
        let mut world = world();
        world.pools[0].instance_types = set(&[P5]);
        world.pools[0].zones = set(&["a"]);
        change(&mut world);
        let ranking = rank(&world);
        ranking.excluded.into_iter().map(|left| left.reason).collect::<Vec<_>>()
    };
    assert_eq!(one(&|_| {}), []);
    assert_eq!(one(&|w| w.types.clear()), [Exclusion::UnknownType]);
    assert_eq!(one(&|w| w.needs.clear()), [Exclusion::DoesNotFit]);
    assert_eq!(one(&|w| w.offerings.clear()), [Exclusion::NotOffered]);
    assert_eq!(one(&|w| w.volume_zones = Some(set(&["b"]))), [Exclusion::VolumeElsewhere]);
    assert_eq!(one(&|w| w.pools[0].subnets.clear()), [Exclusion::NoSubnet]);
    assert_eq!(one(&|w| w.pools[0].subnets[0].free_addresses = 7), [Exclusion::TooFewAddresses { needed: 8, free: 7 }]);
    assert_eq!(one(&|w| w.pools[0].max_nodes_per_batch = 7), [Exclusion::TooManyNodes { needed: 8, most: 7 }]);
    assert_eq!(one(&|w| w.pools[0].capacity_types = vec![CapacityType::Spot]), [Exclusion::PriceUnknown]);
    assert_eq!(one(&|w| w.pools[0].capacity_types = vec![CapacityType::Reserved]), [Exclusion::NoReservation]);
    let no_group = one(&|w| w.types.values_mut().for_each(|info| info.supports_cluster_group = false));
    assert_eq!(no_group, [Exclusion::NoGroupForType]);
    let not_sold = one(&|w| w.types.values_mut().for_each(|info| info.usage_classes.clear()));
    assert_eq!(not_sold, [Exclusion::NotSold]);
}

#[test]
fn the_answer_does_not_depend_on_the_order_of_pools() {
    let mut world = world();
    world.pools = vec![pool("x", 1), pool("y", 1)];
    let one = rank(&world);
    world.pools.reverse();
    assert_eq!(one, rank(&world));
    assert_eq!(order(&one)[..2], ["x/p5/a/on-demand/pg", "y/p5/a/on-demand/pg"]);
}

#[test]
fn more_than_sixty_four_candidates_are_cut_and_listed() {
    let mut world = world();
    world.pools = (0..9).map(|index| pool(&format!("p{index}"), 1)).collect();
    let ranking = rank(&world);
    assert_eq!(ranking.candidates.len(), MAX_CANDIDATES);
    assert_eq!(reasons(&ranking), vec![&Exclusion::TooManyCandidates; 8]);
}

fn reservation(id: &str, zone: &str, free: u32) -> Reservation {
    Reservation {
        id: id.to_owned(),
        instance_type: P5.to_owned(),
        zone: zone.to_owned(),
        state: ReservationState::Active,
        block: false,
        targeted: true,
        placement_group: None,
        total: 16,
        free,
        start: None,
        end: None,
        owner: "123456789012".to_owned(),
        tags: BTreeMap::new(),
    }
}

/// One type; reserved before on-demand before spot, with a spot price.
fn ladder() -> World {
    let mut world = world();
    let pool = &mut world.pools[0];
    pool.instance_types = set(&[P5]);
    pool.capacity_types = vec![CapacityType::Reserved, CapacityType::OnDemand, CapacityType::Spot];
    world.prices.set(P5, None, CapacityType::Spot, 20_000_000);
    world
}

fn steps(ranking: &Ranking) -> Vec<String> {
    let mut steps: Vec<String> = ranking
        .candidates
        .iter()
        .map(|ranked| match &ranked.candidate.reservation {
            Some(target) => format!("{} {}", ranked.candidate.rung(), target.id),
            None => format!("{} {}", ranked.candidate.rung(), ranked.candidate.zone),
        })
        .collect();
    steps.dedup();
    steps
}

#[test]
fn the_ladder_goes_from_reservations_over_on_demand_to_spot_each_in_a_group_first() {
    let mut world = ladder();
    world.pools[0].reservations = vec![
        reservation("cr-large", "a", 16),
        reservation("cr-small", "a", 8),
        Reservation { placement_group: Some("theirs".to_owned()), ..reservation("cr-group", "b", 16) },
        Reservation { block: true, ..reservation("cr-block", "b", 9) },
    ];
    let ranking = rank(&world);
    assert_eq!(
        steps(&ranking),
        [
            "reserved in a placement group cr-group",
            "reserved without a placement group cr-small",
            "reserved without a placement group cr-large",
            "reserved without a placement group cr-block",
            "on-demand in a placement group a",
            "on-demand in a placement group b",
            "on-demand without a placement group a",
            "on-demand without a placement group b",
            "spot in a placement group a",
            "spot in a placement group b",
            "spot without a placement group a",
            "spot without a placement group b",
        ]
    );
    let first = &ranking.candidates[0];
    assert_eq!(first.candidate.reservation_group.as_deref(), Some("theirs"));
    assert_eq!(first.why(), "reserved in a placement group: reservation cr-group, paid for anyway");
    let block = ranking.candidates.iter().find(|ranked| ranked.why().contains("cr-block")).unwrap();
    assert!(block.candidate.reservation.as_ref().unwrap().block, "{}", block.why());
}

#[test]
fn a_reservation_that_ec2_refuses_is_excluded_and_the_others_of_its_class_are_tried() {
    let mut world = ladder();
    world.pools[0].reservations = vec![reservation("cr-1", "a", 8), reservation("cr-2", "a", 8)];
    world.refusals.refuse_reservation("cr-1", now());
    let ranking = rank(&world);
    let first = ranking.candidates[0].candidate.reservation.as_ref().unwrap();
    assert_eq!(first.id, "cr-2");
    let refused = ranking.excluded.iter().find(|left| left.reason.to_string().contains("reservation cr-1"));
    assert!(matches!(refused.unwrap().reason, Exclusion::Refused { .. }));
}

#[test]
fn the_pool_may_turn_the_order_of_capacity_types_around() {
    let mut world = ladder();
    world.pools[0].capacity_types = vec![CapacityType::Spot, CapacityType::Reserved];
    world.pools[0].reservations = vec![reservation("cr-1", "a", 8)];
    let steps = steps(&rank(&world));
    assert_eq!(steps[0], "spot in a placement group a");
    assert_eq!(steps.last().unwrap(), "reserved without a placement group cr-1");
}

#[test]
fn a_group_that_is_required_or_forbidden_rules_reservations_out_too() {
    let mut world = ladder();
    world.pools[0].capacity_types = vec![CapacityType::Reserved];
    world.pools[0].reservations = vec![
        reservation("cr-open", "a", 8),
        Reservation { placement_group: Some("theirs".to_owned()), ..reservation("cr-group", "a", 8) },
    ];
    world.group = GroupPolicy::Required;
    let required = rank(&world);
    assert_eq!(steps(&required), ["reserved in a placement group cr-group"]);
    assert_eq!(reasons(&required), [&Exclusion::ReservationGroup { id: "cr-open".to_owned(), in_group: false }]);
    world.group = GroupPolicy::None;
    let none = rank(&world);
    assert_eq!(steps(&none), ["reserved without a placement group cr-open"]);
    assert_eq!(reasons(&none), [&Exclusion::ReservationGroup { id: "cr-group".to_owned(), in_group: true }]);
}

#[test]
fn a_reservation_that_cannot_hold_the_gang_now_says_why_and_when() {
    let later = now() + jiff::SignedDuration::from_hours(2);
    let one = |reservation: Reservation| {
        let mut world = ladder();
        world.pools[0].capacity_types = vec![CapacityType::Reserved];
        world.pools[0].reservations = vec![reservation];
        let ranking = rank(&world);
        assert!(ranking.candidates.is_empty());
        let reason = ranking.excluded[0].reason.clone();
        (reason.until(), reason.to_string())
    };
    let id = || reservation("cr-1", "a", 8);
    assert_eq!(one(reservation("cr-1", "a", 7)).1, "reservation cr-1: 8 hosts needed, 7 free");
    let scheduled = Reservation { state: ReservationState::Scheduled, block: true, start: Some(later), ..id() };
    assert_eq!(one(scheduled), (Some(later), format!("reservation cr-1 begins {later}")));
    let early = Reservation { start: Some(later), ..id() };
    assert_eq!(one(early).0, Some(later), "a state of which EC2 was early");
    let ended = Reservation { state: ReservationState::Ended, end: Some(now()), ..id() };
    assert!(one(ended).1.starts_with("reservation cr-1 ends"));
    let soon = Some(now() + jiff::SignedDuration::from_mins(40));
    assert!(one(Reservation { block: true, end: soon, ..id() }).1.contains("ends"));
    let just = Some(now() + jiff::SignedDuration::from_secs(40 * 60 + 1));
    let mut world = ladder();
    world.pools[0].reservations = vec![Reservation { block: true, end: just, ..id() }];
    assert!(steps(&rank(&world))[0].contains("cr-1"));
}

#[test]
fn a_reserved_type_needs_no_price_and_no_offering() {
    let mut world = ladder();
    world.pools[0].instance_types = set(&["p5e.48xlarge"]);
    world.types.insert("p5e.48xlarge".to_owned(), InstanceTypeInfo { name: "p5e.48xlarge".to_owned(), ..p5() });
    world.needs.insert("p5e.48xlarge".to_owned(), need(8));
    world.pools[0].reservations =
        vec![Reservation { instance_type: "p5e.48xlarge".to_owned(), ..reservation("cr-1", "a", 8) }];
    world.offerings.insert(Offering { instance_type: "p5e.48xlarge".to_owned(), zone: "a".to_owned() });
    let ranking = rank(&world);
    assert_eq!(steps(&ranking), ["reserved without a placement group cr-1"]);
    assert_eq!(ranking.candidates[0].candidate.price_micro_usd_per_hour, None);
    assert!(reasons(&ranking).contains(&&Exclusion::PriceUnknown), "on demand it is not guessed");
}

#[test]
fn a_quota_excludes_every_zone_of_its_capacity_type_and_a_full_subnet_only_itself() {
    use crate::ec2::ErrorClass;
    use crate::offering::Asked;
    let mut world = ladder();
    let asked = Asked { instance_type: P5, zone: "a", capacity_type: CapacityType::OnDemand, subnet: "s-b2", count: 8 };
    world.refusals.record(ErrorClass::Quota, Some("VcpuLimitExceeded"), &asked, now());
    let ranking = rank(&world);
    assert!(steps(&ranking).iter().all(|step| step.starts_with("spot")), "{:?}", steps(&ranking));
    let refused = ranking.excluded.iter().filter(|left| matches!(left.reason, Exclusion::Refused { .. })).count();
    assert_eq!(refused, 4, "two zones, with and without a group");

    world.refusals = Refusals::default();
    world.refusals.record(ErrorClass::SubnetFull, None, &asked, now());
    let ranking = rank(&world);
    let in_b = ranking.candidates.iter().find(|ranked| ranked.candidate.zone == "b").unwrap();
    assert_eq!(in_b.candidate.subnet_id, "s-b", "the other subnet of the zone");
    world.pools[0].subnets.retain(|subnet| subnet.id != "s-b");
    assert!(rank(&world).candidates.iter().all(|ranked| ranked.candidate.zone == "a"));
}

#[test]
fn too_many_groups_in_the_region_lead_to_the_next_step_of_the_ladder() {
    use crate::ec2::ErrorClass;
    use crate::offering::Asked;
    let mut world = ladder();
    world.pools[0].reservations =
        vec![Reservation { placement_group: Some("theirs".to_owned()), ..reservation("cr-group", "a", 8) }];
    let asked = Asked { instance_type: P5, zone: "a", capacity_type: CapacityType::OnDemand, subnet: "s-a", count: 8 };
    world.refusals.record(ErrorClass::GroupLimit, None, &asked, now());
    let steps = steps(&rank(&world));
    assert_eq!(steps[0], "reserved in a placement group cr-group", "that group exists");
    assert!(steps[1..].iter().all(|step| step.contains("without a placement group")), "{steps:?}");
}

#[test]
fn the_change_that_an_exclusion_names_makes_candidates_and_less_does_not() {
    use crate::reason::PoolChange;
    let change = |world: &World| {
        let ranking = rank(world);
        assert!(ranking.candidates.is_empty());
        ranking.excluded[0].reason.change().unwrap()
    };
    let mut limited = world();
    limited.pools[0].left = BTreeMap::from([("nvidia.com/gpu".into(), 48)]);
    limited.pools[0].limits = BTreeMap::from([("nvidia.com/gpu".into(), 64)]);
    let raise = change(&limited);
    assert_eq!(raise.to_string(), "limit nvidia.com/gpu 64 → 80");
    let PoolChange::Limit { resource, from, to } = raise else { panic!("{raise:?}") };
    for (less, candidates) in [(1, false), (0, true)] {
        limited.pools[0].left = BTreeMap::from([(resource.clone(), 48 + to - from - less)]);
        assert_eq!(!rank(&limited).candidates.is_empty(), candidates, "{less} less");
    }
    let mut small = world();
    small.pools[0].max_nodes_per_batch = 5;
    let PoolChange::MaxNodes { from: 5, to } = change(&small) else { panic!() };
    for (most, candidates) in [(to - 1, false), (to, true)] {
        small.pools[0].max_nodes_per_batch = most;
        assert_eq!(!rank(&small).candidates.is_empty(), candidates, "{most} nodes");
    }
    let mut crowded = world();
    let PoolChange::Subnet { addresses: Some(addresses) } = ({
        crowded.pools[0].subnets = vec![subnet("s-a", "a", 3)];
        crowded.pools[0].zones = set(&["a"]);
        change(&crowded)
    }) else {
        panic!()
    };
    for (free, candidates) in [(addresses - 1, false), (addresses, true)] {
        crowded.pools[0].subnets = vec![subnet("s-a", "a", u32::try_from(free).unwrap())];
        assert_eq!(!rank(&crowded).candidates.is_empty(), candidates, "{free} addresses");
    }
}

#[test]
fn in_an_ipv6_cluster_a_subnet_without_an_ipv6_cidr_is_excluded_by_name() {
    let mut world = world();
    world.pools[0].ipv6 = true;
    let subnets = |world: &World| -> BTreeSet<String> {
        rank(world).candidates.into_iter().map(|ranked| ranked.candidate.subnet_id).collect()
    };
    let excluded = |world: &World, zone: &str| {
        let ranking = rank(world);
        let of_zone = ranking.excluded.into_iter().filter(|one| one.zone.as_deref() == Some(zone));
        of_zone.map(|one| one.reason.to_string()).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    assert_eq!(subnets(&world), set(&[]));
    assert_eq!(excluded(&world, "a"), ["the cluster is IPv6, and s-a has no IPv6 CIDR"]);
    assert_eq!(excluded(&world, "b"), ["the cluster is IPv6, and s-b, s-b2 have no IPv6 CIDR"]);
    // The other one of the zone has more addresses, and is none.
    world.pools[0].subnets[1].ipv6 = true;
    assert_eq!(subnets(&world), set(&["s-b"]));
    assert_eq!(excluded(&world, "b"), Vec::<String>::new());
    world.pools[0].subnets[1].free_addresses = 7;
    assert_eq!(excluded(&world, "b"), ["8 addresses needed, 7 free"]);
    world.pools[0].ipv6 = false;
    assert_eq!(subnets(&world), set(&["s-a", "s-b2"]));
}
