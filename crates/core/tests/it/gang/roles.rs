//! Gangs whose members differ: roles, leaders beside workers, slices, and elastic members.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::gang::{Action, PoolView, TypeView};
use muster_core::model::gang::{
    Claims, Membership, NoteKind, Phase, RankClaim, RawSlice, RawTopologyRequest, RoleStated,
};
use muster_core::model::node::Node;
use muster_core::model::pod::{Shape, Together};

use super::sim::{Sim, levels};
use crate::world::{self, key};

/// A gang of one leader without accelerators and `workers` with four each.
fn leader_and_workers(sim: &mut Sim, workers: u32, min: Option<u32>) {
    sim.gang("train", 0, 0);
    let stated = sim.recognised.get_mut(&key("train")).unwrap();
    stated.size = Some(workers + 1);
    stated.min = min;
    let role = |name: &str, count| RoleStated { name: Arc::from(name), count: Some(count), min: None };
    stated.roles = vec![role("leader", 1), role("worker", workers)];
    add(sim, "leader", 0, 0);
    for rank in 0..workers {
        add(sim, "worker", rank, 4);
    }
}

fn add(sim: &mut Sim, role: &str, rank: u32, gpus: i64) {
    let name = format!("train-{role}-{rank}");
    sim.member("train", &name, RankClaim::Rank(rank));
    let pod = sim.pods.get_mut(&name).unwrap();
    pod.membership = Membership::Member { gang: key("train"), role: Arc::from(role), rank: RankClaim::Rank(rank) };
    let shape = world::shape(gpus);
    pod.held = Arc::new(muster_core::model::node::Usage { requested: shape.requests.clone(), ..Default::default() });
    pod.shape = Ok(Arc::new(shape));
}

fn places(sim: &Sim) -> Vec<(String, u32, String)> {
    let places = sim.state("train").places.iter();
    places.map(|place| (place.role.to_string(), place.rank, place.node.to_string())).collect()
}

fn topology_request(value: &str) -> RawTopologyRequest {
    RawTopologyRequest { value: Arc::from(value), key: "muster.dev/slice-topology" }
}

/// Levels with racks below zones, and nodes n1 to n4 in two racks.
fn racks() -> Sim {
    let mut sim = Sim::new(&[("n1", 2), ("n2", 2), ("n3", 2), ("n4", 3)]);
    sim.levels =
        levels(&[("zone", "topology.kubernetes.io/zone"), ("rack", "rack"), ("host", "kubernetes.io/hostname")]);
    for (name, node) in &mut sim.nodes {
        let rack = if name == "n1" || name == "n4" { "r1" } else { "r2" };
        node.labels.insert("rack".into(), rack.into());
        node.labels.insert("kubernetes.io/hostname".into(), name.as_str().into());
    }
    sim
}

#[test]
fn a_gang_with_more_roles_than_it_may_have_is_refused_by_name() {
    for (roles, refused) in [(64, false), (65, true)] {
        let mut sim = Sim::new(&["n1", "n2", "n3", "n4", "n5", "n6", "n7"].map(|name| (name, 100)));
        sim.gang("train", 0, 0);
        let stated = sim.recognised.get_mut(&key("train")).unwrap();
        stated.size = Some(roles);
        let role = |name: u32| RoleStated { name: Arc::from(format!("r{name}")), count: Some(1), min: None };
        stated.roles = (0..roles).map(role).collect();
        for name in 0..roles {
            add(&mut sim, &format!("r{name}"), 0, 1);
        }
        sim.settle();
        assert_eq!(sim.phase("train") == Phase::Bound, !refused, "{}", sim.message("train"));
        assert_eq!(sim.message("train").contains("65 roles, the limit is 64"), refused, "{}", sim.message("train"));
    }
}

#[test]
fn pod_affinity_of_all_members_to_each_other_is_a_required_level_and_of_some_is_refused() {
    let ask = |sim: &mut Sim, of: usize, key: &str| {
        for pod in sim.pods.values_mut().take(of) {
            let mut shape = Shape::clone(pod.shape.as_ref().unwrap());
            let workload = (Arc::from("job-name"), Arc::from("train"));
            shape.together = vec![Together { key: Arc::from(key), workload }];
            shape.unsupported = vec![Arc::from(Shape::POD_AFFINITY)];
            pod.shape = Ok(Arc::new(shape));
        }
    };
    // Five need both nodes of the first rack; six fit in no rack, and on both racks together.
    for (members, of, key, phase) in [
        (5, 5, "rack", Phase::Bound),
        (6, 6, "rack", Phase::Waiting),
        (6, 6, "topology.kubernetes.io/zone", Phase::Bound),
        (6, 5, "topology.kubernetes.io/zone", Phase::Unsatisfiable),
        (5, 5, "example.com/aisle", Phase::Unsatisfiable),
    ] {
        let mut sim = racks();
        sim.gang("train", members, members);
        ask(&mut sim, of, key);
        sim.settle();
        assert_eq!(sim.phase("train"), phase, "{members} by {key}: {}", sim.message("train"));
        if key == "rack" {
            assert!(sim.bound().iter().all(|(_, node)| ["n1", "n4"].contains(node)), "{:?}", sim.bound());
        }
    }
}

#[test]
fn anti_affinity_of_all_members_to_each_other_gives_each_a_domain_of_its_own_and_any_other_is_refused() {
    let zone = "topology.kubernetes.io/zone";
    let ask = |sim: &mut Sim, of: usize, keys: &[&str]| {
        for pod in sim.pods.values_mut().take(of) {
            let mut shape = Shape::clone(pod.shape.as_ref().unwrap());
            let workload = (Arc::from("job-name"), Arc::from("train"));
            let term = |key: &&str| Together { key: Arc::from(*key), workload: workload.clone() };
            shape.apart = keys.iter().map(term).collect();
            shape.unsupported = vec![Arc::from(Shape::POD_ANTI_AFFINITY)];
            pod.shape = Ok(Arc::new(shape));
        }
    };
    // Two racks in two zones, two nodes in each.
    for (members, of, keys, phase) in [
        (2, 2, vec!["rack"], Phase::Waiting),
        (2, 2, vec![zone], Phase::Bound),
        (3, 3, vec![zone], Phase::Waiting),
        (2, 1, vec![zone], Phase::Unsatisfiable),
        (2, 2, vec![zone, "rack"], Phase::Unsatisfiable),
        (2, 2, vec!["example.com/aisle"], Phase::Unsatisfiable),
    ] {
        let mut sim = racks();
        for name in ["n2", "n3"] {
            sim.nodes.get_mut(name).unwrap().labels.insert(zone.into(), "b".into());
        }
        sim.gang("train", members, members);
        ask(&mut sim, of, &keys);
        sim.settle();
        assert_eq!(sim.phase("train"), phase, "{members} by {keys:?}: {}", sim.message("train"));
        let on = |names: [&str; 2]| sim.bound().iter().filter(|(_, node)| names.contains(node)).count();
        assert!(on(["n1", "n4"]) <= 1 && on(["n2", "n3"]) <= 1, "{:?}", sim.bound());
    }
}

#[test]
fn a_leader_beside_workers_of_another_shape_is_placed_and_bound() {
    let mut sim = Sim::new(&[("n1", 8), ("n2", 8)]);
    leader_and_workers(&mut sim, 4, None);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len()), (Phase::Bound, 5), "{}", sim.reason("train"));
    let roles: Vec<(String, u32)> = places(&sim).into_iter().map(|(role, rank, _)| (role, rank)).collect();
    let expected = [("leader", 0), ("worker", 0), ("worker", 1), ("worker", 2), ("worker", 3)];
    assert_eq!(roles, expected.map(|(role, rank)| (role.to_owned(), rank)));
    let minimums = BTreeMap::from([(Arc::from("leader"), 1), (Arc::from("worker"), 4)]);
    assert_eq!((sim.state("train").minimum, &sim.state("train").minimums), (5, &minimums));
}

/// A head without accelerators, two learners with eight and three rollouts with two.
fn mixed(sim: &mut Sim) {
    sim.gang("train", 0, 0);
    let stated = sim.recognised.get_mut(&key("train")).unwrap();
    stated.size = Some(6);
    let role = |name: &str, count| RoleStated { name: Arc::from(name), count: Some(count), min: None };
    stated.roles = vec![role("head", 1), role("learner", 2), role("rollout", 3)];
    add(sim, "head", 0, 0);
    (0..2).for_each(|rank| add(sim, "learner", rank, 8));
    (0..3).for_each(|rank| add(sim, "rollout", rank, 2));
}

#[test]
fn members_of_three_shapes_are_placed_and_bound() {
    let mut sim = Sim::new(&[("n1", 8), ("n2", 8), ("n3", 6), ("n4", 4)]);
    mixed(&mut sim);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len()), (Phase::Bound, 6), "{}", sim.reason("train"));
    let rollouts: Vec<String> =
        places(&sim).into_iter().filter(|(role, ..)| role == "rollout").map(|(.., node)| node).collect();
    assert_eq!(rollouts, ["n3", "n3", "n3"], "fewest nodes");
}

#[test]
fn for_members_of_three_shapes_as_many_nodes_are_provisioned_as_hold_them_together() {
    let mut sim = Sim::new(&[]);
    let mut pool = pool(9);
    let node = Node { labels: BTreeMap::new(), ..world::node("", 8) };
    pool.types[0].node = Arc::new(node);
    sim.pools.push(pool);
    mixed(&mut sim);
    assert_eq!(asked(&mut sim), Some(3), "two learners fill two nodes, the others share the third");
}

#[test]
fn workers_without_their_leader_wait_for_it() {
    let mut sim = Sim::new(&[("n1", 8), ("n2", 8)]);
    leader_and_workers(&mut sim, 4, Some(3));
    sim.pods.remove("train-leader-0");
    sim.settle();
    // Four of five are there and three would do, but not without the leader.
    assert_eq!(sim.phase("train"), Phase::Collecting);
    add(&mut sim, "leader", 0, 0);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len()), (Phase::Bound, 5));
    assert_eq!(sim.state("train").minimums.get("leader"), Some(&1));
    assert_eq!(sim.state("train").minimums.get("worker"), Some(&2));
}

#[test]
fn a_leader_that_is_lost_leaves_its_gang_below_its_minimum() {
    let mut sim = Sim::new(&[("n1", 8), ("n2", 8)]);
    leader_and_workers(&mut sim, 4, Some(3));
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
    sim.pods.remove("train-leader-0");
    sim.step();
    assert_eq!(sim.phase("train"), Phase::Degraded);
    assert!(sim.state("train").waiting.as_ref().unwrap().message.contains("role leader"));
}

#[test]
fn members_of_one_role_that_differ_are_placed_all_the_same() {
    let mut sim = Sim::new(&[("n1", 4), ("n2", 4)]);
    sim.gang("train", 3, 3);
    sim.pods.get_mut("train-0").unwrap().shape = Ok(Arc::new(world::shape(2)));
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len()), (Phase::Bound, 3), "{}", sim.reason("train"));
    let ranks: Vec<u32> = sim.state("train").places.iter().map(|place| place.rank).collect();
    assert_eq!(ranks, [0, 1, 2]);
}

#[test]
fn slices_stay_inside_their_domain() {
    let mut sim = Sim::new(&[("n1", 3), ("n2", 3), ("n3", 3)]);
    sim.gang("train", 6, 6);
    sim.recognised.get_mut(&key("train")).unwrap().topology_requests.slices =
        vec![RawSlice { size: 2, level: topology_request("host") }];
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound, "{}", sim.reason("train"));
    for slice in places(&sim).chunks(2) {
        assert_eq!(slice[0].2, slice[1].2, "both members of a slice stand on one node");
    }
}

#[test]
fn a_slice_level_that_does_not_exist_makes_the_gang_invalid_and_names_the_key() {
    let mut sim = Sim::new(&[("n1", 8)]);
    sim.gang("train", 2, 2);
    sim.recognised.get_mut(&key("train")).unwrap().topology_requests.slices =
        vec![RawSlice { size: 2, level: topology_request("rack") }];
    sim.settle();
    assert_eq!((sim.phase("train"), sim.reason("train").as_str()), (Phase::Invalid, "UnknownLevel"));
    assert!(sim.state("train").waiting.as_ref().unwrap().message.contains("muster.dev/slice-topology"));
}

#[test]
fn of_an_elastic_gang_the_members_that_exist_get_the_capacity() {
    // Four slots for a gang of eight; members 1, 3, 5 and 7 exist.
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.gang("train", 8, 0);
    sim.recognised.get_mut(&key("train")).unwrap().min = Some(4);
    for rank in [1, 3, 5, 7] {
        sim.member("train", &format!("train-{rank}"), RankClaim::Rank(rank));
    }
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len()), (Phase::Bound, 4), "{}", sim.reason("train"));
}

fn pool(max_nodes: u32) -> PoolView {
    let node = Node { labels: BTreeMap::new(), ..world::node("", 4) };
    let kind = TypeView {
        name: Arc::from("p5"),
        capacity: node.allocatable.clone(),
        node: Arc::new(node),
        overhead: Arc::default(),
        price: Some(1),
        zonal: BTreeMap::new(),
        refused: None,
    };
    PoolView {
        name: Arc::from("gpu"),
        blocked: false,
        weight: 0,
        max_nodes,
        placement_group: Arc::from("preferred"),
        zones: Vec::new(),
        types: vec![kind],
        left: Vec::new(),
        ceilings: Vec::new(),
    }
}

/// How many nodes are asked for.
fn asked(sim: &mut Sim) -> Option<u32> {
    let mut asked = None;
    for _ in 0..4 {
        for action in sim.pass().actions {
            if let Action::CreateBatch(request) = &action {
                asked = request.offers.first().map(|offer| offer.count);
            }
            sim.apply(action);
        }
    }
    asked
}

#[test]
fn nodes_provisioned_for_leader_and_workers_hold_them_together() {
    // Ten cores and four accelerators a node, a core each: the leader finds capacity beside a worker.
    let mut sim = Sim::new(&[]);
    sim.pools.push(pool(8));
    leader_and_workers(&mut sim, 3, None);
    assert_eq!(asked(&mut sim), Some(3));
}

#[test]
fn nodes_provisioned_for_slices_by_host_are_counted_by_slices() {
    // Four slots a node and slices of three: a node holds one slice, not four members.
    let mut sim = Sim::new(&[]);
    sim.pools.push(pool(8));
    sim.gang("train", 12, 12);
    sim.recognised.get_mut(&key("train")).unwrap().topology_requests.slices =
        vec![RawSlice { size: 3, level: topology_request("host") }];
    assert_eq!(asked(&mut sim), Some(4));
}

#[test]
fn a_gang_that_must_stand_on_one_host_is_sold_one_node_that_holds_it_or_none() {
    type Ask = fn(&mut Sim);
    let share: Ask = |sim| {
        for pod in sim.pods.values_mut() {
            pod.claims = Arc::new(Claims { one_node: vec![Arc::from("data")], ..Claims::default() });
        }
    };
    let state: Ask = |sim| {
        sim.recognised.get_mut(&key("train")).unwrap().topology_requests.required = Some(topology_request("host"));
    };
    for ask in [share, state] {
        // Four slots a node.
        for (size, nodes) in [(8, None), (4, Some(1))] {
            let mut sim = Sim::new(&[]);
            sim.pools.push(pool(8));
            sim.gang("train", size, size);
            ask(&mut sim);
            assert_eq!(asked(&mut sim), nodes, "{size}: {}", sim.message("train"));
        }
    }
}

#[test]
fn for_a_member_that_must_join_the_others_on_their_host_no_node_is_provisioned() {
    let mut sim = Sim::new(&[("n1", 3)]);
    sim.pools.push(pool(8));
    sim.gang("train", 4, 3);
    let stated = sim.recognised.get_mut(&key("train")).unwrap();
    stated.min = Some(3);
    stated.topology_requests.required = Some(topology_request("host"));
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len()), (Phase::Bound, 3), "{}", sim.message("train"));
    sim.pods.retain(|name, _| name != "train-1");
    sim.nodes.get_mut("n1").unwrap().allocatable.set("nvidia.com/gpu", 2);
    sim.member("train", "again-1", RankClaim::Rank(1));
    assert_eq!(asked(&mut sim), None, "{}", sim.message("train"));
}

#[test]
fn ranks_out_of_order_and_surplus_members_are_conditions_and_events() {
    let mut sim = Sim::new(&[("n1", 8)]);
    sim.gang("train", 3, 2);
    sim.member("train", "train-x", RankClaim::Rank(1));
    sim.member("train", "train-y", RankClaim::NotInteger(Arc::from("two")));
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
    let notes = &sim.state("train").notes;
    let ranks = &notes[&NoteKind::RanksOrdered];
    assert!(!ranks.holds && ranks.message.contains("duplicate rank") && ranks.message.contains("not_integer rank"));
    assert!(notes[&NoteKind::SurplusMembers].message.contains("4 live members, 3 expected"));
    for reason in ["RankFault", "SurplusMembers"] {
        assert_eq!(sim.events.iter().filter(|event| *event == reason).count(), 1, "{reason} once");
    }
    sim.pods.retain(|name, _| !matches!(name.as_str(), "train-x" | "train-y"));
    sim.settle();
    let notes = &sim.state("train").notes;
    assert!(notes[&NoteKind::RanksOrdered].holds && !notes.contains_key(&NoteKind::SurplusMembers));
}

#[test]
fn a_bound_gang_says_while_one_of_its_nodes_is_not_ready() {
    let mut sim = Sim::new(&[("n1", 4), ("n2", 4)]);
    sim.gang("train", 8, 8);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.state("train").notes.get(&NoteKind::NodesReady)), (Phase::Bound, None));
    sim.nodes.get_mut("n2").unwrap().ready = false;
    sim.settle();
    let note = &sim.state("train").notes[&NoteKind::NodesReady];
    assert_eq!((note.holds, &*note.message), (false, "node n2 is not Ready"));
    assert_eq!(sim.events.iter().filter(|event| *event == "NodesNotReady").count(), 1, "once");
    sim.nodes.get_mut("n2").unwrap().ready = true;
    sim.settle();
    assert_eq!((sim.phase("train"), sim.state("train").notes.get(&NoteKind::NodesReady)), (Phase::Bound, None));
}

#[test]
fn a_member_of_a_role_that_the_gang_does_not_have_counts_for_the_role_whose_place_it_has() {
    let mut sim = Sim::new(&[("n1", 8)]);
    sim.gang("train", 0, 0);
    let stated = sim.recognised.get_mut(&key("train")).unwrap();
    (stated.size, stated.min) = (None, Some(3));
    let role = |name: &str| RoleStated { name: Arc::from(name), count: None, min: None };
    stated.roles = vec![role("leader"), role("worker")];
    for role in ["leader", "worker", ""] {
        add(&mut sim, role, 0, 1);
    }
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len()), (Phase::Bound, 3), "{}", sim.message("train"));
    sim.wait(60);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound, "{}", sim.message("train"));
}
