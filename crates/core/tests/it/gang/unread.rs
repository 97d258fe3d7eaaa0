//! Gangs whose pods exist and cannot be recognised, as after a restart while their owners cannot be read.

use muster_core::gang::BatchStage;
use muster_core::model::gang::{Membership, Phase, RankClaim};

use super::sim::{Sim, join, pool};
use crate::world::{self, key};

/// Four members that run.
fn running() -> Sim {
    let mut sim = Sim::new(&[("n1", 1), ("n2", 1), ("n3", 1), ("n4", 1), ("n5", 1)]);
    sim.gang("train", 4, 4);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
    sim
}

/// The owner of these pods cannot be read: nobody says of which gang they are.
fn unread(sim: &mut Sim, pods: impl Fn(&str) -> bool) {
    for (_, pod) in sim.pods.iter_mut().filter(|(name, _)| pods(name)) {
        pod.membership = Membership::Unknown;
    }
}

#[track_caller]
fn nothing_happens(sim: &mut Sim) {
    let before = sim.gangs.clone();
    for _ in 0..5 {
        let actions = sim.pass().actions;
        assert!(actions.is_empty(), "{actions:#?}");
        sim.wait(200);
    }
    assert_eq!(sim.gangs, before);
}

#[test]
fn a_running_gang_whose_owner_cannot_be_read_is_neither_finished_nor_stopped() {
    let mut sim = running();
    unread(&mut sim, |_| true);
    nothing_happens(&mut sim);
}

#[test]
fn a_gang_in_repair_whose_owner_cannot_be_read_does_not_forget_what_it_was_about() {
    let mut sim = running();
    sim.pods.remove("train-2");
    sim.step();
    assert_eq!((sim.phase("train"), sim.reason("train")), (Phase::Degraded, "Stopping".to_owned()));
    unread(&mut sim, |_| true);
    nothing_happens(&mut sim);
}

#[test]
fn a_gang_that_has_a_plan_keeps_it_while_its_owner_cannot_be_read() {
    let mut sim = Sim::new(&[("n1", 1), ("n2", 1)]);
    sim.scheduler = false;
    sim.gang("train", 2, 2);
    sim.step();
    sim.step();
    assert_eq!(sim.phase("train"), Phase::Planned);
    unread(&mut sim, |_| true);
    nothing_happens(&mut sim);
}

#[test]
fn nodes_provisioned_for_a_gang_whose_owner_cannot_be_read_are_not_terminated() {
    let mut sim = Sim::new(&[]);
    sim.pools.push(pool());
    sim.gang("train", 4, 4);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Provisioning);
    join(&mut sim, &["b1"]);
    unread(&mut sim, |_| true);
    nothing_happens(&mut sim);
    assert!(sim.abandoned.is_empty());
}

#[test]
fn a_gang_without_a_plan_is_not_finished_while_a_pod_of_its_namespace_is_unknown() {
    let mut sim = Sim::new(&[("n1", 1)]);
    sim.gang("train", 2, 1);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Collecting);
    unread(&mut sim, |_| true);
    nothing_happens(&mut sim);
    // The pod is gone: it was the last one that could have been the gang's.
    sim.pods.clear();
    sim.settle();
    assert!(sim.gangs.is_empty(), "finished, and deleted since nobody owns it");
}

#[test]
fn pods_that_have_ended_or_that_are_in_other_namespaces_keep_no_gang_alive() {
    let mut sim = Sim::new(&[("n1", 1)]);
    sim.gang("train", 2, 1);
    sim.settle();
    sim.pods.clear();
    for (name, namespace) in [("elsewhere", "other"), ("ended", "ns")] {
        sim.member("train", name, RankClaim::Rank(0));
        let pod = sim.pods.get_mut(name).unwrap();
        pod.membership = Membership::Unknown;
        pod.key.namespace = namespace.into();
        pod.ended = name == "ended";
    }
    sim.settle();
    assert!(sim.gangs.is_empty());
}

#[test]
fn a_gang_is_judged_again_once_its_owner_can_be_read() {
    let mut sim = running();
    let known = sim.pods.clone();
    unread(&mut sim, |_| true);
    nothing_happens(&mut sim);
    sim.pods = known;
    sim.pods.remove("train-1");
    sim.settle();
    assert_eq!(sim.evicted, ["train-3", "train-2", "train-0"]);
}

#[test]
fn a_gang_some_of_whose_pods_cannot_be_recognised_is_not_one_that_lost_them() {
    let mut sim = running();
    unread(&mut sim, |name| name == "train-3");
    nothing_happens(&mut sim);
    // Those that can be read have ended: that is not the end of the others.
    for pod in ["train-0", "train-1", "train-2"] {
        sim.end(pod, true);
    }
    nothing_happens(&mut sim);
}

#[test]
fn other_gangs_go_on_beside_one_whose_owner_cannot_be_read() {
    let mut sim = Sim::new(&[("n1", 1), ("n2", 1)]);
    sim.gang("train", 1, 1);
    sim.settle();
    unread(&mut sim, |_| true);
    sim.recognised.insert(key("other"), world::recognised("other", Some(1), None));
    sim.member("other", "other-0", RankClaim::Rank(0));
    sim.settle();
    assert_eq!((sim.phase("train"), sim.phase("other")), (Phase::Bound, Phase::Bound));
    assert_eq!(sim.bound().len(), 2);
    assert!(!sim.batches.values().any(|batch| batch.stage == BatchStage::Ending));
}

#[test]
fn in_every_phase_a_gang_whose_owner_cannot_be_read_is_left_as_it_is() {
    for phase in Phase::ALL {
        let mut sim = running();
        let gang = sim.gangs.get_mut(&key("train")).unwrap();
        gang.phase = Some(phase);
        // Who is planned and not bound yet stands where it was planned.
        let bound = !matches!(phase, Phase::Planned | Phase::Released | Phase::Committing);
        for pod in sim.pods.values_mut().filter(|_| !bound) {
            pod.node = None;
        }
        unread(&mut sim, |_| true);
        // As after a restart: what nobody can say of its pods nobody can say of the gang.
        sim.recognised.clear();
        nothing_happens(&mut sim);
    }
}
