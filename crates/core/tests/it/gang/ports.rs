//! Gangs whose members ask for host ports.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_core::model::gang::Phase;
use muster_core::model::node::Usage;
use muster_core::model::pod::{HostPort, Shape};

use super::sim::Sim;

/// Two gangs of two members, all with the same host port, and kube-scheduler asleep.
fn two_gangs(nodes: &[(&str, i64)]) -> Sim {
    let mut sim = Sim::new(nodes);
    sim.gang("a", 2, 2);
    sim.gang("b", 2, 2);
    for pod in sim.pods.values_mut() {
        let mut shape = Shape::clone(pod.shape.as_ref().unwrap());
        shape.ports = vec![HostPort { ip: Arc::from(""), port: 29500, protocol: Arc::from("TCP") }];
        let (requested, ports) = (shape.requests.clone(), shape.ports.clone());
        pod.held = Arc::new(Usage { requested, ports, ..Usage::default() });
        pod.shape = Ok(Arc::new(shape));
    }
    sim.scheduler = false;
    sim
}

#[test]
fn two_gangs_with_one_host_port_are_never_planned_on_the_same_nodes() {
    let mut sim = two_gangs(&[("n1", 4), ("n2", 4)]);
    sim.settle();
    assert_eq!((sim.phase("a"), sim.phase("b")), (Phase::Released, Phase::Waiting), "{}", sim.message("b"));
    // Once the first is through, its pods hold the ports.
    sim.scheduler = true;
    sim.settle();
    assert_eq!((sim.phase("a"), sim.phase("b")), (Phase::Bound, Phase::Waiting), "{}", sim.message("b"));
}

#[test]
fn two_gangs_with_one_host_port_are_planned_beside_each_other_where_there_are_nodes_for_both() {
    let mut sim = two_gangs(&[("n1", 4), ("n2", 4), ("n3", 4), ("n4", 4)]);
    sim.settle();
    assert_eq!((sim.phase("a"), sim.phase("b")), (Phase::Released, Phase::Released), "{}", sim.message("b"));
    let nodes: BTreeSet<_> =
        ["a", "b"].iter().flat_map(|gang| &sim.state(gang).places).map(|place| &place.node).collect();
    assert_eq!(nodes.len(), 4);
    sim.scheduler = true;
    sim.settle();
    assert_eq!((sim.phase("a"), sim.phase("b")), (Phase::Bound, Phase::Bound));
}
