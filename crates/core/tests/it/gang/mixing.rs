//! Now, soon or new: running nodes, nodes that are joining, nodes to be provisioned, and running beside new ones.

use std::sync::Arc;

use muster_core::gang::{BatchStage, Left, Offer, PoolView, Short, TypeView, purchases};
use muster_core::model::gang::{Phase, RawTopologyRequest};
use muster_core::model::node::{Node, Usage};
use muster_core::planner::plan::{GangRequest, Host, Policy, Role, RolePlace, TopologyRequests};
use muster_core::topology::ZONE_KEY;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::sim::{self, Sim, join, levels};
use crate::world::{self, at, key};

/// One pool that sells nodes with four accelerators in zones a and b.
fn pool() -> PoolView {
    PoolView { zones: vec![Arc::from("a"), Arc::from("b")], ..sim::pool() }
}

/// A gang of eight, and one node that holds four of it.
fn half() -> Sim {
    let mut sim = Sim::new(&[("old", 4)]);
    sim.pools.push(pool());
    sim.gang("train", 8, 8);
    sim
}

fn count(sim: &Sim) -> Vec<u32> {
    sim.asked.iter().map(|request| request.offers[0].count).collect()
}

fn not_ready(sim: &mut Sim, name: &str, gpus: i64, registered: i64) {
    let node = Node { ready: false, created: Some(at(registered)), ..world::node(name, gpus) };
    sim.nodes.insert(name.to_owned(), node);
}

#[test]
fn only_what_running_nodes_do_not_hold_is_provisioned_in_their_zone() {
    let mut sim = half();
    sim.settle();
    assert_eq!((sim.phase("train"), count(&sim)), (Phase::Provisioning, vec![1]));
    assert_eq!(sim.asked[0].zones, [Arc::from("a")]);
    let assigned: Vec<&str> = sim.state("train").places.iter().map(|place| place.node.as_str()).collect();
    assert_eq!(assigned, ["old"; 4]);
    assert!(sim.bound().is_empty(), "nobody is sent before all have a place");
    join(&mut sim, &["new"]);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len(), sim.provisioned.len()), (Phase::Bound, 8, 1));
}

#[test]
fn what_only_a_blocked_pool_sells_whole_is_provisioned_beside_running_nodes_elsewhere() {
    let mut sim = half();
    sim.pools[0].max_nodes = 1;
    sim.pools.push(PoolView { name: Arc::from("blocked"), blocked: true, ..pool() });
    sim.settle();
    assert_eq!((sim.phase("train"), count(&sim)), (Phase::Provisioning, vec![1]));
    assert_eq!(sim.asked[0].offers[0].pool, Arc::from("gpu"));
}

#[test]
fn running_nodes_are_not_held_for_a_purchase_from_a_blocked_pool() {
    let mut sim = half();
    sim.pools[0].blocked = true;
    sim.settle();
    assert_eq!((sim.phase("train"), count(&sim)), (Phase::Provisioning, vec![2]), "all of it, once the pool is open");
    assert!(sim.state("train").places.is_empty());
}

#[test]
fn running_nodes_counted_on_beside_a_purchase_are_nobody_elses() {
    let mut sim = half();
    sim.settle();
    sim.gang("other", 4, 4);
    sim.settle();
    assert_eq!((sim.phase("other"), count(&sim)), (Phase::Provisioning, vec![1, 1]));
    assert!(sim.bound().is_empty());
}

#[test]
fn a_gang_that_asks_for_a_network_level_provisions_all_its_nodes() {
    let mut sim = half();
    sim.levels = levels(&[("zone", "topology.kubernetes.io/zone"), ("rack", "rack")]);
    let mut requesting = world::recognised("train", Some(8), None);
    requesting.topology_requests.preferred = Some(RawTopologyRequest { value: Arc::from("rack"), key: "key" });
    sim.recognised.insert(key("train"), requesting);
    sim.settle();
    assert_eq!((count(&sim), sim.asked[0].zones.len()), (vec![2], 0));
    assert!(sim.state("train").places.is_empty());
}

#[test]
fn a_purchase_beside_running_nodes_that_cannot_be_had_becomes_a_whole_one() {
    let mut sim = half();
    sim.settle();
    let batch = sim.provisioned[0].clone();
    sim.stage(&batch, BatchStage::BackingOff);
    sim.settle();
    assert_eq!((count(&sim), &sim.abandoned), (vec![1, 2], &vec![batch]));
    assert!(sim.asked[1].zones.is_empty() && sim.state("train").places.is_empty());
    let batch = sim.provisioned[1].clone();
    sim.stage(&batch, BatchStage::BackingOff);
    sim.settle();
    assert_eq!((sim.provisioned.len(), sim.reason("train").as_str()), (2, "InsufficientCapacity"));
}

#[test]
fn capacity_assigned_beside_a_purchase_is_terminated_with_it() {
    let mut sim = half();
    sim.settle();
    join(&mut sim, &[]);
    sim.settle();
    sim.wait(61);
    sim.step();
    assert_eq!((sim.phase("train"), sim.state("train").places.len()), (Phase::Waiting, 0));
}

#[test]
fn a_running_gang_provisions_in_the_zone_of_its_members() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.pools.push(pool());
    sim.gang("train", 8, 8);
    for rank in 0..4 {
        sim.pods.get_mut(&format!("train-{rank}")).unwrap().node = Some("n1".into());
    }
    sim.settle();
    assert_eq!((count(&sim), &sim.asked[0].zones), (vec![1], &vec![Arc::from("a")]));
}

#[test]
fn one_more_node_beside_running_ones_is_not_provisioned_where_it_costs_more_than_the_whole_gang_elsewhere() {
    let mut sim = half();
    let dear = |a: u64, b: u64| [(Arc::from("a"), a), (Arc::from("b"), b)].into();
    sim.pools[0].types[0].zonal = dear(3, 1);
    sim.settle();
    assert_eq!((count(&sim), sim.asked[0].zones.len()), (vec![2], 0), "two for 1 in zone b, not one for 3 in zone a");
    let mut sim = half();
    sim.pools[0].types[0].zonal = dear(2, 1);
    sim.settle();
    assert_eq!((count(&sim), &*sim.asked[0].zones), (vec![1], &[Arc::from("a")][..]), "the same money: fewer nodes");
}

/// Pools, running nodes and a gang of members that ask for one accelerator each.
struct Choice {
    pools: Vec<PoolView>,
    hosts: Vec<Host>,
    members: u32,
}

/// Pool and type.
type Kind = (Arc<str>, Arc<str>);

const ZONES: [&str; 3] = ["a", "b", "c"];

fn choice(rng: &mut ChaCha8Rng) -> Choice {
    let kind = |rng: &mut ChaCha8Rng, number: usize| {
        let gpus = [1, 2, 4, 8][rng.random_range(0..4)];
        let node = Node { labels: [].into(), ..world::node("", gpus) };
        let zonal: Vec<(Arc<str>, u64)> = ZONES.map(|zone| (Arc::from(zone), rng.random_range(0..20))).into();
        TypeView {
            name: Arc::from(format!("type-{number}")),
            capacity: node.allocatable.clone(),
            node: Arc::new(node),
            overhead: Arc::default(),
            price: zonal.iter().map(|(_, price)| *price).min(),
            zonal: zonal.into_iter().collect(),
            refused: None,
        }
    };
    let pool = |rng: &mut ChaCha8Rng, number: usize| PoolView {
        name: Arc::from(format!("pool-{number}")),
        max_nodes: 1000,
        zones: ZONES.map(Arc::from).into(),
        types: (0..rng.random_range(1..4)).map(|number| kind(rng, number)).collect(),
        ..pool()
    };
    let host = |rng: &mut ChaCha8Rng, number: usize| {
        let mut node = world::node(&format!("old-{number}"), rng.random_range(1..5));
        node.labels.insert(Arc::from(ZONE_KEY), Arc::from(ZONES[rng.random_range(0..3)]));
        Host { node: Arc::new(node), usage: Arc::new(Usage::default()) }
    };
    Choice {
        pools: (0..rng.random_range(1..3)).map(|number| pool(rng, number)).collect(),
        hosts: (0..rng.random_range(0..4)).map(|number| host(rng, number)).collect(),
        members: rng.random_range(2..11),
    }
}

impl Choice {
    /// Dollars, then nodes, of every type for so many members at its price in a zone, or at its lowest.
    fn costs(&self, members: u32, zone: Option<&str>) -> Vec<((u64, u32), Kind)> {
        let types = self.pools.iter().flat_map(|pool| pool.types.iter().map(move |kind| (pool, kind)));
        let cost = |(pool, kind): (&PoolView, &TypeView)| {
            let each = u32::try_from(kind.node.allocatable.get(world::GPU)).unwrap();
            let nodes = members.div_ceil(each);
            let price = zone.map_or_else(|| *kind.zonal.values().min().unwrap(), |zone| kind.zonal[zone]);
            ((price * u64::from(nodes), nodes), (Arc::clone(&pool.name), Arc::clone(&kind.name)))
        };
        types.map(cost).collect()
    }

    /// Members that running nodes of a zone take.
    fn taken(&self, zone: &str) -> u32 {
        let there = self.hosts.iter().filter(|host| *host.node.labels[ZONE_KEY] == *zone);
        let slots: i64 = there.map(|host| host.node.allocatable.get(world::GPU)).sum();
        u32::try_from(slots).unwrap().min(self.members - 1)
    }
}

#[test]
fn what_is_provisioned_beside_running_nodes_is_the_cheapest_of_all_and_cheaper_than_the_whole_gang() {
    let (mut rng, mut mixed, mut whole_cheaper) = (ChaCha8Rng::seed_from_u64(7), 0, 0);
    for number in 0..2_000 {
        let choice = choice(&mut rng);
        let role = Role {
            name: "".into(),
            shape: world::shape(1),
            min: choice.members,
            places: vec![RolePlace::default(); usize::try_from(choice.members).unwrap()],
        };
        let request =
            GangRequest { key: key("train"), roles: vec![role], topology_requests: TopologyRequests::default() };
        let levels = levels(&[("zone", ZONE_KEY), ("host", "kubernetes.io/hostname")]);
        let short = Short {
            request: &request,
            placement_group: None,
            bound_zones: &[],
            levels: &levels,
            pools: &choice.pools,
            policy: &Policy::default(),
        };
        let found = purchases(&short, || choice.hosts.clone());
        let whole = choice.costs(choice.members, None).into_iter().min().unwrap();
        let of = |offer: &Offer| (Arc::clone(&offer.pool), Arc::clone(&offer.instance_type));
        assert_eq!(of(&found.whole.unwrap().offers[0]), whole.1, "{number}");
        let beside = ZONES.into_iter().filter(|zone| choice.taken(zone) > 0);
        let beside = beside.flat_map(|zone| choice.costs(choice.members - choice.taken(zone), Some(zone)));
        let cheapest = beside.map(|(cost, _)| cost).min();
        let expected = cheapest.filter(|cost| *cost < whole.0);
        let paid = found.mixed.as_ref().map(|mixed| {
            let zone = &mixed.zones[0];
            let costs = choice.costs(choice.members - choice.taken(zone), Some(zone));
            let cost = |offer: &Offer| costs.iter().find(|(_, kind)| *kind == of(offer)).unwrap().0;
            assert!(mixed.offers.iter().all(|offer| cost(offer) < whole.0), "{number}: what is tried next is dearer");
            cost(&mixed.offers[0])
        });
        assert_eq!(paid, expected, "{number}");
        mixed += u32::from(paid.is_some());
        whole_cheaper += u32::from(paid.is_none() && cheapest.is_some());
    }
    assert!(
        mixed > 200 && whole_cheaper > 200,
        "{mixed} beside running nodes, {whole_cheaper} whole although some ran"
    );
}

#[test]
fn a_limit_is_to_be_raised_by_no_more_nodes_than_running_ones_leave_to_provision() {
    let (mut rng, mut fewer) = (ChaCha8Rng::seed_from_u64(11), 0);
    let levels = levels(&[("zone", ZONE_KEY), ("host", "kubernetes.io/hostname")]);
    for number in 0..500 {
        let mut choice = choice(&mut rng);
        for pool in &mut choice.pools {
            pool.left = vec![Left { resource: "nodes".into(), left: 0, limit: 5 }];
        }
        let role = Role {
            name: "".into(),
            shape: world::shape(1),
            min: choice.members,
            places: vec![RolePlace::default(); usize::try_from(choice.members).unwrap()],
        };
        let required = (number % 2 == 0).then_some(0);
        let topology_requests = TopologyRequests { required, ..TopologyRequests::default() };
        let request = GangRequest { key: key("train"), roles: vec![role], topology_requests };
        let found = |pools: &[PoolView]| {
            let short = Short {
                request: &request,
                placement_group: None,
                bound_zones: &[],
                levels: &levels,
                pools,
                policy: &Policy::default(),
            };
            purchases(&short, || choice.hosts.clone())
        };
        let blocked = found(&choice.pools);
        assert!(blocked.whole.is_none() && blocked.mixed.is_none());
        let types: usize = choice.pools.iter().map(|pool| pool.types.len()).sum();
        assert_eq!(blocked.unsold.len(), types, "{number}");
        for unsold in &blocked.unsold {
            let needed = i64::from(unsold.count.unwrap());
            let with = |left: i64| {
                let mut pools = choice.pools.clone();
                pools.retain(|pool| pool.name == unsold.pool);
                pools[0].types.retain(|kind| Some(&kind.name) == unsold.instance_type.as_ref());
                pools[0].left[0].left = left;
                let found = found(&pools);
                found.whole.is_some() || found.mixed.is_some()
            };
            assert!(with(needed) && !with(needed - 1), "{number}: {unsold:?}");
            let all = choice.costs(choice.members, None).into_iter();
            let of_type = |kind: &Kind| kind.0 == unsold.pool && Some(&kind.1) == unsold.instance_type.as_ref();
            let whole = all.filter(|(_, kind)| of_type(kind)).map(|((_, nodes), _)| i64::from(nodes)).min().unwrap();
            fewer += u32::from(needed < whole);
        }
    }
    assert!(fewer > 200, "{fewer} beside running nodes");
}

#[test]
fn a_gang_waits_for_nodes_that_are_joining_instead_of_provisioning() {
    let mut sim = Sim::new(&[("old", 4)]);
    sim.pools.push(pool());
    not_ready(&mut sim, "young", 4, 0);
    sim.gang("train", 8, 8);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.reason("train").as_str()), (Phase::Waiting, "Joining"));
    assert_eq!(
        sim.message("train"),
        "waiting for node young to become Ready; nodes are provisioned after 2023-11-14T22:23:20Z"
    );
    assert!(sim.provisioned.is_empty());
    sim.nodes.get_mut("young").unwrap().ready = true;
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len(), sim.provisioned.len()), (Phase::Bound, 8, 0));
}

#[test]
fn a_node_that_does_not_join_in_time_is_no_longer_waited_for() {
    let mut sim = Sim::new(&[]);
    sim.pools.push(pool());
    not_ready(&mut sim, "young", 8, 0);
    sim.gang("train", 8, 8);
    sim.settle();
    assert_eq!(sim.reason("train"), "Joining");
    assert_eq!(sim.pass().requeue_at, Some(at(11)), "its members say so then");
    sim.wait(11);
    sim.settle();
    assert_eq!(sim.pass().requeue_at, Some(at(600)), "it looks again by itself");
    sim.wait(589);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.provisioned.len()), (Phase::Provisioning, 1));
}

#[test]
fn a_node_that_was_lost_long_ago_delays_no_purchase() {
    let mut sim = Sim::new(&[]);
    sim.pools.push(pool());
    not_ready(&mut sim, "dead", 8, -3600);
    sim.gang("train", 8, 8);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.provisioned.len()), (Phase::Provisioning, 1));
}

#[test]
fn too_few_joining_nodes_are_not_waited_for() {
    let mut sim = Sim::new(&[]);
    sim.pools.push(pool());
    not_ready(&mut sim, "young", 4, 0);
    sim.gang("train", 8, 8);
    sim.settle();
    assert_eq!((sim.phase("train"), count(&sim)), (Phase::Provisioning, vec![2]));
}
