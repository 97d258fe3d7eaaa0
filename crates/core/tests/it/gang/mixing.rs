//! Now, soon or new: running nodes, nodes that are joining, nodes to be provisioned, and running beside new ones.

use std::sync::Arc;

use muster_core::gang::{BatchStage, PoolView};
use muster_core::model::gang::{Phase, RawTopologyRequest};
use muster_core::model::node::Node;

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
    sim.asked.iter().map(|topology_request| topology_request.offers[0].count).collect()
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
fn a_gang_waits_for_nodes_that_are_joining_instead_of_provisioning() {
    let mut sim = Sim::new(&[("old", 4)]);
    sim.pools.push(pool());
    not_ready(&mut sim, "young", 4, 0);
    sim.gang("train", 8, 8);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.reason("train").as_str()), (Phase::Waiting, "Joining"));
    assert_eq!(
        sim.message("train"),
        "waits until node young has joined and is Ready; nodes are provisioned after 2023-11-14T22:23:20Z"
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
    assert_eq!(sim.pass().requeue_at, Some(at(600)), "it looks again by itself");
    sim.wait(600);
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
