//! Pods that sit in kube-scheduler's queue for a reason of ours: they go on when it ends.

use std::sync::Arc;

use jiff::SignedDuration;
use muster_core::gang::{Action, Pass};
use muster_core::model::gang::{Phase, RankClaim};
use muster_core::model::names::NodeName;

use super::sim::Sim;
use crate::world::{self, key};

fn refused(sim: &mut Sim, name: &str, message: &str) {
    let mut pod = world::pod(name, &world::shape(1));
    (pod.ours, pod.gated) = (true, false);
    pod.unscheduled = Some((Arc::from("Unschedulable"), Arc::from(message)));
    sim.pods.insert(name.to_owned(), pod);
}

fn requeued(pass: &Pass) -> Vec<String> {
    let name = |action: &Action| match action {
        Action::Requeue { pod } => Some(pod.key.name.to_string()),
        _ => None,
    };
    pass.actions.iter().filter_map(name).collect()
}

const OURS: &str = "0/1 nodes are available: 1 assigned to a gang.";

#[test]
fn a_pod_of_no_gang_is_requeued_once_the_capacity_it_was_refused_is_free_again() {
    let mut sim = Sim::new(&[("n1", 1)]);
    sim.scheduler = false;
    sim.gang("train", 1, 1);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Released, "the node is assigned");
    refused(&mut sim, "web", OURS);
    sim.wait(10);
    assert_eq!(requeued(&sim.pass()), Vec::<String>::new(), "it would be refused again");
    sim.step();
    // The plan is withdrawn: kube-scheduler sees no event.
    sim.pods.remove("train-0");
    sim.gangs.clear();
    sim.recognised.clear();
    assert_eq!(requeued(&sim.pass()), Vec::<String>::new(), "not at every change");
    let due = sim.pass().requeue_at.unwrap();
    assert!(due.duration_since(sim.now) <= SignedDuration::from_secs(5), "looked at again in time: {due}");
    sim.wait(5);
    assert_eq!(requeued(&sim.pass()), ["web"]);
    sim.step();
    sim.wait(60);
    assert_eq!(requeued(&sim.pass()), Vec::<String>::new(), "nothing is reported of it any more");
}

#[test]
fn pods_that_fit_nowhere_or_that_others_refuse_are_not_requeued() {
    let mut sim = Sim::new(&[("n1", 1)]);
    refused(&mut sim, "large", OURS);
    sim.pods.get_mut("large").unwrap().shape = Ok(Arc::new(world::shape(2)));
    refused(&mut sim, "theirs", "0/1 nodes are available: 1 Insufficient cpu.");
    refused(&mut sim, "foreign", OURS);
    sim.pods.get_mut("foreign").unwrap().ours = false;
    refused(&mut sim, "bound", OURS);
    sim.pods.get_mut("bound").unwrap().node = Some(NodeName::from("n2"));
    assert_eq!(requeued(&sim.pass()), Vec::<String>::new());
    assert!(sim.pass().requeue_at.is_some(), "one may fit later");
}

#[test]
fn of_many_pods_each_has_its_turn() {
    let mut sim = Sim::new(&[("n1", 1)]);
    sim.scheduler = false;
    for number in 0..50 {
        refused(&mut sim, &format!("large-{number}"), OURS);
        sim.pods.get_mut(&format!("large-{number}")).unwrap().shape = Ok(Arc::new(world::shape(2)));
    }
    refused(&mut sim, "small", OURS);
    let mut seen = false;
    for _ in 0..3 {
        seen |= requeued(&sim.pass()) == ["small"];
        sim.step();
        sim.wait(5);
    }
    assert!(seen, "three looks at twenty each");
}

#[test]
fn a_member_behind_its_gate_keeps_no_nomination_that_no_plan_stands_for() {
    let mut sim = Sim::new(&[("n1", 1)]);
    sim.scheduler = false;
    sim.gang("train", 2, 1);
    // Nominated by a plan that was withdrawn before the gate was dropped.
    sim.pods.get_mut("train-0").unwrap().nominated = Some(NodeName::from("n1"));
    sim.settle();
    assert_eq!((sim.phase("train"), &sim.pods["train-0"].nominated), (Phase::Collecting, &None));
    // One that a plan stands for is kept.
    sim.nodes.insert("n2".to_owned(), world::node("n2", 1));
    sim.member("train", "train-1", RankClaim::Rank(1));
    sim.settle();
    assert!(sim.gangs[&key("train")].places.len() == 2 && sim.pods["train-0"].nominated.is_some());
}
