//! Nodes that stand and have capacity where kube-scheduler sees none.

use std::sync::Arc;

use muster_core::model::batch::BatchPhase;
use muster_core::model::gang::Pod;
use muster_core::model::names::NodeName;
use muster_core::ordinary::Outcome;

use super::{Setup, pods, shown};
use crate::world::{at, node};

const MINUTE: i64 = 60;

/// A pod that waits, and a node that stands and would hold it.
fn setup() -> Setup {
    let mut setup = Setup::of(pods("web", 1, 3_000));
    let mut there = node("there", 0);
    there.created = Some(at(-1_000));
    setup.nodes = vec![there];
    refuse(&mut setup, "first");
    setup
}

fn refuse(setup: &mut Setup, message: &str) {
    setup.pods[0].unscheduled = Some((Arc::from("Unschedulable"), Arc::from(message)));
}

/// A round at this second, and what is disputed after it.
fn round(setup: &mut Setup, second: i64) -> (Outcome, usize) {
    let snapshot = setup.snapshot();
    let outcome = setup.plan_at(at(second), &snapshot);
    let lost = setup.disputes.look(&outcome.standing, &snapshot, at(second));
    (outcome, lost.len())
}

#[test]
fn a_pod_that_kube_scheduler_refuses_again_and_again_is_launched_for_although_a_node_has_capacity() {
    let mut setup = setup();
    for (second, message) in [(0, "first"), (30, "second"), (60, "third"), (119, "fourth")] {
        refuse(&mut setup, message);
        let (outcome, lost) = round(&mut setup, second);
        assert_eq!((outcome.placed, outcome.launches.len(), lost), (1, 0, 0), "{second}");
    }
    assert_eq!(round(&mut setup, 2 * MINUTE).1, 1, "now its word counts");
    assert_eq!(shown(&round(&mut setup, 2 * MINUTE + 1).0), [("small", 1, 1)]);
    // A node that came after that is a place, and so is every node once the pause is over.
    setup.nodes.push(node("later", 0));
    setup.nodes[1].created = Some(at(2 * MINUTE + 30));
    assert_eq!(round(&mut setup, 3 * MINUTE).0.placed, 1);
    setup.nodes.truncate(1);
    assert_eq!(round(&mut setup, 7 * MINUTE - 1).0.placed, 0);
    assert_eq!(round(&mut setup, 7 * MINUTE).0.placed, 1);
}

#[test]
fn a_refusal_that_is_only_repeated_counts_after_six_minutes_and_pauses_double() {
    let mut setup = setup();
    let (mut now, mut pauses) = (0, Vec::new());
    for _ in 0..3 {
        assert_eq!(round(&mut setup, now).1, 0);
        assert_eq!(round(&mut setup, now + 6 * MINUTE - 1).1, 0);
        assert_eq!(round(&mut setup, now + 6 * MINUTE).1, 1);
        now += 6 * MINUTE;
        let pause = (1..).find(|pause| round(&mut setup, now + pause * MINUTE).0.placed == 1).unwrap();
        pauses.push(pause);
        now += pause * MINUTE;
    }
    assert_eq!(pauses, [5, 10, 20]);
}

#[test]
fn a_pod_that_was_not_looked_at_yet_or_whose_like_are_being_bound_is_not_disputed() {
    let mut setup = setup();
    setup.pods[0].unscheduled = None;
    for second in [0, 3 * MINUTE, 60 * MINUTE] {
        assert_eq!(round(&mut setup, second).1, 0, "kube-scheduler may be far behind");
    }
    let mut setup = self::setup();
    setup.pods.extend(pods("more", 1, 3_000));
    assert_eq!(round(&mut setup, 0).1, 0);
    let bound = Pod { node: Some(NodeName::from("there")), ..setup.pods[1].clone() };
    setup.pods[1] = bound;
    assert_eq!(round(&mut setup, 6 * MINUTE).1, 0, "one of them came");
    assert_eq!(round(&mut setup, 12 * MINUTE).1, 1);
}

#[test]
fn for_pods_that_are_disputed_one_node_at_a_time_is_launched() {
    let mut setup = setup();
    setup.pods = pods("web", 8, 3_000);
    setup.nodes = (0..8).map(|number| node(&format!("there-{number}"), 0)).collect();
    for node in &mut setup.nodes {
        node.created = Some(at(-1_000));
    }
    for pod in &mut setup.pods {
        pod.unscheduled = Some((Arc::from("Unschedulable"), Arc::from("0/8 nodes are available")));
    }
    assert_eq!((round(&mut setup, 0).0.placed, round(&mut setup, 6 * MINUTE).1), (8, 8));
    let (outcome, _) = round(&mut setup, 6 * MINUTE + 1);
    assert_eq!((shown(&outcome), outcome.refused.len()), (vec![("small", 1, 1)], 7), "kube-scheduler may be at fault");
    setup.launch(&outcome.launches, BatchPhase::Launched);
    let (outcome, _) = round(&mut setup, 6 * MINUTE + 2);
    assert_eq!((shown(&outcome), outcome.joining), (vec![], 1), "until it is known what becomes of the first");
}
