//! Whose turn it is, and who must not stand beside whom.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::model::gang::{Phase, Pod};
use muster_core::model::names::NodeName;
use muster_core::model::pod::{AntiAffinityTerm, Neighbour, Operator, Requirement, Shape};

use super::sim::Sim;
use crate::world;

/// The capacity goes to the gang named first.
#[track_caller]
fn is_first(sim: &mut Sim, first: &str, second: &str) {
    sim.settle();
    assert_eq!((sim.phase(first), sim.phase(second)), (Phase::Bound, Phase::Waiting), "{first} before {second}");
}

fn prioritised(sim: &mut Sim, pod: &str, priority: i32) {
    sim.pods.get_mut(pod).unwrap().priority = priority;
}

#[test]
fn a_younger_gang_of_higher_priority_is_placed_before_an_older_one() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.gang("blocker", 4, 4);
    sim.settle();
    sim.gang("old", 4, 4);
    sim.settle();
    sim.wait(60);
    sim.gang("young", 4, 4);
    // One member is enough: it must not wait for a gang below it.
    prioritised(&mut sim, "young-3", 1_000);
    sim.settle();
    for rank in 0..4 {
        sim.end(&format!("blocker-{rank}"), true);
    }
    is_first(&mut sim, "young", "old");
}

#[test]
fn gangs_of_one_priority_are_placed_by_age_and_those_of_one_age_by_name() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.gang("zebra", 4, 4);
    sim.step();
    sim.wait(1);
    sim.gang("ant", 4, 4);
    sim.step();
    is_first(&mut sim, "zebra", "ant");
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.gang("zebra", 4, 4);
    sim.gang("ant", 4, 4);
    is_first(&mut sim, "ant", "zebra");
}

/// Labels, and whether pods with the same label `app` are kept away.
fn neighbour(app: &str, shy: bool) -> Arc<Neighbour> {
    let (namespace, value): (Arc<str>, Arc<str>) = (Arc::clone(&world::key("x").namespace), Arc::from(app));
    let selector = Requirement { key: "app".into(), operator: Operator::In, values: vec![Arc::clone(&value)] };
    let term = AntiAffinityTerm { namespaces: Some(vec![Arc::clone(&namespace)]), selector: vec![selector] };
    let labels = BTreeMap::from([("app".into(), value)]);
    Arc::new(Neighbour {
        namespace,
        labels,
        keeps_away: if shy { vec![term] } else { Vec::new() },
        ..Neighbour::default()
    })
}

/// The members of a gang of two, each with a node of its own if they are shy.
fn gang(sim: &mut Sim, name: &str, app: &str, shy: bool) {
    sim.gang(name, 2, 2);
    for rank in 0..2 {
        let pod = sim.pods.get_mut(&format!("{name}-{rank}")).unwrap();
        pod.neighbour = neighbour(app, shy);
        pod.shape = Ok(Arc::new(Shape { one_per_node: shy, ..world::shape(1) }));
    }
}

/// A pod of no gang that runs on a node.
fn stranger(sim: &mut Sim, node: &str, app: &str, shy: bool) {
    let pod = world::pod(&format!("on-{node}"), &world::shape(1));
    let pod = Pod { node: Some(NodeName::from(node)), running: true, neighbour: neighbour(app, shy), ..pod };
    sim.pods.insert(format!("on-{node}"), pod);
}

fn nodes(sim: &Sim, gang: &str) -> Vec<String> {
    let of = sim.bound().into_iter().filter(|(pod, _)| pod.starts_with(gang)).map(|(_, node)| node.to_owned());
    let mut nodes: Vec<String> = of.collect();
    nodes.sort();
    nodes
}

#[test]
fn members_that_keep_apart_are_planned_beside_nobody_they_must_keep_away_from() {
    for (stranger_is_shy, members_are_shy) in [(false, true), (true, false), (true, true)] {
        let mut sim = Sim::new(&[("n1", 4), ("n2", 4), ("n3", 4)]);
        stranger(&mut sim, "n1", "web", stranger_is_shy);
        gang(&mut sim, "train", "web", members_are_shy);
        sim.settle();
        let expected = if members_are_shy { ["n2", "n3"] } else { ["n2", "n2"] };
        assert_eq!(nodes(&sim, "train"), expected, "{stranger_is_shy} {members_are_shy}");
    }
    let mut sim = Sim::new(&[("n1", 4), ("n2", 4)]);
    stranger(&mut sim, "n1", "other", true);
    gang(&mut sim, "train", "web", true);
    sim.settle();
    assert_eq!(nodes(&sim, "train"), ["n1", "n2"], "a pod that neither selects is no hindrance");
}

#[test]
fn whom_members_must_keep_away_from_is_found_in_every_namespace_that_either_side_names() {
    let (own, other): (Arc<str>, Arc<str>) = (Arc::clone(&world::key("x").namespace), Arc::from("serving"));
    for (named, stranger_is_shy, kept_away) in [
        (Some(vec![Arc::clone(&own)]), false, false),
        (Some(vec![Arc::clone(&own)]), true, true),
        (Some(vec![Arc::clone(&own), Arc::clone(&other)]), false, true),
        (Some(vec![Arc::clone(&own), Arc::clone(&other)]), true, true),
        (None, false, true),
        (None, true, true),
    ] {
        let mut sim = Sim::new(&[("n1", 4), ("n2", 4), ("n3", 4)]);
        stranger(&mut sim, "n1", "web", stranger_is_shy);
        gang(&mut sim, "train", "web", true);
        for (name, pod) in &mut sim.pods {
            let neighbour = Arc::make_mut(&mut pod.neighbour);
            if name.starts_with("train") {
                neighbour.keeps_away[0].namespaces.clone_from(&named);
            } else {
                neighbour.namespace = Arc::clone(&other);
            }
        }
        sim.settle();
        let expected = if kept_away { ["n2", "n3"] } else { ["n1", "n2"] };
        assert_eq!(nodes(&sim, "train"), expected, "{named:?} {stranger_is_shy}");
    }
}

#[test]
fn two_gangs_that_keep_apart_from_each_other_share_no_node_in_one_pass_nor_later() {
    let mut sim = Sim::new(&[("n1", 4), ("n2", 4), ("n3", 4), ("n4", 4)]);
    gang(&mut sim, "one", "web", true);
    gang(&mut sim, "two", "web", true);
    sim.settle();
    let mut all = nodes(&sim, "one");
    all.extend(nodes(&sim, "two"));
    all.sort();
    assert_eq!(all, ["n1", "n2", "n3", "n4"]);
    gang(&mut sim, "three", "web", true);
    sim.settle();
    assert_eq!(sim.phase("three"), Phase::Waiting, "every node has one already");
}

#[test]
fn a_place_on_a_node_that_must_be_kept_away_from_by_now_is_planned_again() {
    let mut sim = Sim::new(&[("n1", 4), ("n2", 4), ("n3", 4)]);
    sim.scheduler = false;
    gang(&mut sim, "train", "web", true);
    sim.settle();
    let planned = |sim: &Sim| sim.state("train").places.iter().map(|place| place.node.to_string()).collect::<Vec<_>>();
    assert_eq!(planned(&sim), ["n1", "n2"]);
    stranger(&mut sim, "n1", "web", false);
    sim.settle();
    let mut again = planned(&sim);
    again.sort();
    assert_eq!(again, ["n2", "n3"]);
}
