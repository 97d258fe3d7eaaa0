//! Releases that waited for their turn.

use std::sync::Arc;

use muster_core::gang::Release;
use muster_core::model::gang::Pod;
use muster_core::model::names::NodeName;

use super::sim::Sim;

/// A gang of two that is released, and kube-scheduler has not placed it yet; the release of its first member.
fn released() -> (Sim, Release) {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.scheduler = false;
    sim.gang("train", 2, 2).settle();
    let (pod, epoch) = (Arc::new(sim.pods["train-0"].clone()), sim.state("train").epoch);
    (sim, Release { pod, epoch, node: NodeName::from("n1"), tolerate: Vec::new(), pin: false, stuck: None })
}

#[test]
fn a_release_is_made_as_long_as_its_pod_waits_under_the_plan_it_is_of() {
    let (sim, release) = released();
    assert!(release.holds(&sim.snapshot()));
    let older = Release { epoch: release.epoch - 1, ..release };
    assert!(!older.holds(&sim.snapshot()), "another plan came meanwhile");
    let changes: [fn(&mut Pod); 2] = [|pod| pod.node = Some(NodeName::from("n2")), |pod| pod.ended = true];
    for change in changes {
        let (mut sim, release) = released();
        change(sim.pods.get_mut("train-0").unwrap());
        assert!(!release.holds(&sim.snapshot()));
    }
    let (mut sim, release) = released();
    sim.pods.remove("train-0");
    assert!(!release.holds(&sim.snapshot()), "it is gone");
}
