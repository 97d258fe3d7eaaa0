//! Members that are pinned to their planned nodes in the patch that drops their gate: who is, and what becomes of them when the plan
//! changes.

use std::sync::Arc;

use muster_core::gang::{Action, Pin, Release, Stuck};
use muster_core::model::gang::{Phase, RankClaim};
use muster_core::model::names::NodeName;
use muster_core::model::pod::SelectorTerm;

use super::sim::Sim;
use crate::world::{self, key};

/// A gang of two whose owner makes deleted pods again, on three nodes with a capacity for one each.
fn pinning() -> Sim {
    let mut sim = Sim::new(&[("n1", 1), ("n2", 1), ("n3", 1)]);
    sim.pin = Pin::Auto;
    sim.gang("train", 2, 2);
    remade(&mut sim);
    sim
}

/// Every pod has an owner that makes it again.
fn remade(sim: &mut Sim) {
    sim.pods.values_mut().for_each(|pod| pod.remade = true);
}

/// … released, with a scheduler that sleeps.
fn released() -> Sim {
    let mut sim = pinning();
    sim.scheduler = false;
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Released);
    sim
}

/// The owner makes those again who are gone.
fn make_again(sim: &mut Sim) {
    for rank in 0..2 {
        let name = format!("train-{rank}");
        if !sim.pods.contains_key(&name) {
            sim.member("train", &name, RankClaim::Rank(rank));
        }
    }
    remade(sim);
}

fn node_of(sim: &Sim, pod: &str) -> NodeName {
    sim.state("train").place_of(&sim.pods[pod].uid).unwrap().node.clone()
}

fn releases(sim: &Sim) -> Vec<Release> {
    let actions = sim.pass().actions.into_iter().filter_map(|action| match action {
        Action::Release(release) => Some(*release),
        _ => None,
    });
    actions.collect()
}

#[test]
fn a_gang_whose_owner_makes_its_pods_again_is_pinned_where_it_is_planned_and_takes_its_nodes() {
    let mut sim = released();
    for pod in ["train-0", "train-1"] {
        let (pod, planned) = (&sim.pods[pod], node_of(&sim, pod));
        assert_eq!(
            (&pod.pinned, &pod.nominated, pod.requeued),
            (&Some(planned), &None, None),
            "one patch, no nomination"
        );
    }
    assert_eq!(releases(&sim), [], "a pin is as good as a nomination: nobody is released again");
    assert_eq!(sim.state("train").epoch, 1);
    sim.scheduler = true;
    sim.settle();
    assert_eq!((sim.phase("train"), sim.state("train").epoch), (Phase::Bound, 1));
    assert_eq!(sim.events, ["Planned", "Released", "Bound"], "and planned once");
    assert!(sim.evicted.is_empty());
}

#[test]
fn nobody_is_pinned_whose_deletion_would_cost_anything_or_whom_the_api_server_would_not_pin() {
    type Change = fn(&mut Sim);
    let cases: [(&str, Change); 5] = [
        ("it is not configured", |sim| sim.pin = Pin::Never),
        ("nobody would make the pods again", |sim| sim.pods.values_mut().for_each(|pod| pod.remade = false)),
        ("the owner would fail", |sim| {
            sim.recognised.get_mut(&key("train")).unwrap().restart_would_fail = Some(Arc::from("backoffLimit is 0"));
        }),
        ("affinity does not change without a gate", |sim| sim.pods.values_mut().for_each(|pod| pod.gated = false)),
        ("a term without requirements gains none", |sim| {
            let mut shape = world::shape(1);
            let term = |zone: &str| SelectorTerm {
                expressions: vec![muster_core::model::pod::Requirement {
                    key: Arc::from("topology.kubernetes.io/zone"),
                    operator: muster_core::model::pod::Operator::In,
                    values: vec![Arc::from(zone)],
                }],
                fields: Vec::new(),
            };
            shape.node_affinity = Some(vec![SelectorTerm::default(), term("a")]);
            sim.pods.values_mut().for_each(|pod| pod.shape = Ok(Arc::new(shape.clone())));
        }),
    ];
    for (why, change) in cases {
        let mut sim = pinning();
        change(&mut sim);
        sim.scheduler = false;
        sim.settle();
        assert_eq!(sim.phase("train"), Phase::Released, "{why}");
        assert!(sim.pods.values().all(|pod| pod.pinned.is_none() && pod.nominated.is_some()), "{why}");
        sim.scheduler = true;
        sim.settle();
        assert_eq!(sim.phase("train"), Phase::Bound, "{why}");
    }
}

#[test]
fn of_a_gang_with_members_of_both_kinds_only_those_that_are_made_again_are_pinned() {
    let mut sim = pinning();
    sim.pods.get_mut("train-1").unwrap().remade = false;
    sim.scheduler = false;
    sim.settle();
    assert!(sim.pods["train-0"].pinned.is_some() && sim.pods["train-0"].nominated.is_none());
    assert!(sim.pods["train-1"].pinned.is_none() && sim.pods["train-1"].nominated.is_some());
}

#[test]
fn pinned_members_whose_node_is_taken_are_deleted_once_the_new_plan_is_persisted_and_those_made_again_take_it() {
    let mut sim = released();
    let lost = node_of(&sim, "train-0");
    sim.nodes.get_mut(lost.as_str()).unwrap().unschedulable = true;
    let first = sim.pass().actions;
    assert!(!first.iter().any(|action| matches!(action, Action::Evict(_))), "intent before effect: {first:?}");
    sim.step();
    assert_eq!(sim.state("train").epoch, 2);
    sim.step();
    assert_eq!(sim.evicted, ["train-0"], "the other stays, although ranks in their order would be the better plan");
    make_again(&mut sim);
    sim.scheduler = true;
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
    assert!(!sim.bound().iter().any(|(_, node)| *node == lost.as_str()), "{:?}", sim.bound());
    assert_eq!(sim.evicted, ["train-0"]);
}

#[test]
fn where_pinned_members_cannot_stay_the_whole_gang_is_planned_again() {
    let mut sim = Sim::new(&[("n1", 1), ("n2", 1), ("n3", 1), ("n4", 1)]);
    for (name, zone) in [("n3", "b"), ("n4", "b")] {
        let label = (Arc::from("topology.kubernetes.io/zone"), Arc::from(zone));
        sim.nodes.get_mut(name).unwrap().labels.extend([label]);
    }
    sim.pin = Pin::Auto;
    sim.gang("train", 2, 2);
    remade(&mut sim);
    sim.scheduler = false;
    sim.settle();
    let lost = node_of(&sim, "train-0");
    sim.nodes.get_mut(lost.as_str()).unwrap().unschedulable = true;
    sim.step();
    sim.step();
    let mut evicted = sim.evicted.clone();
    evicted.sort();
    assert_eq!(evicted, ["train-0", "train-1"], "one zone holds both, and it is the other");
    make_again(&mut sim);
    sim.scheduler = true;
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
}

#[test]
fn pinned_members_of_a_plan_that_is_withdrawn_are_deleted_and_a_gang_that_waits_has_none() {
    let mut sim = released();
    sim.wait(301);
    sim.step();
    assert_eq!(sim.phase("train"), Phase::Waiting);
    sim.step();
    let mut evicted = sim.evicted.clone();
    evicted.sort();
    assert_eq!(evicted, ["train-0", "train-1"]);
    make_again(&mut sim);
    sim.scheduler = true;
    sim.settle();
    sim.wait(60);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.evicted.len()), (Phase::Bound, 2));
}

#[test]
fn a_gang_all_of_whose_pinned_members_were_deleted_has_not_finished() {
    let mut sim = released();
    for pod in sim.pods.values_mut() {
        // As they are until their owner has seen it: a kubelet that would report their end never had them.
        (pod.ended, pod.deleting) = (true, true);
    }
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Collecting);
    sim.pods.clear();
    make_again(&mut sim);
    sim.scheduler = true;
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
    assert!(!sim.events.iter().any(|event| event == "Finished"), "{:?}", sim.events);
}

#[test]
fn a_pinned_member_of_a_plan_that_is_newer_than_what_is_seen_of_its_gang_is_left_alone() {
    let mut sim = released();
    let pod = sim.pods.get_mut("train-0").unwrap();
    // Another holder of the lease planned and released it; of its gang the watch shows the first plan.
    (pod.pinned, pod.planned_node) = (Some(NodeName::from("n3")), Some(NodeName::from("n3")));
    pod.plan_epoch = Some(2);
    let evicts = |sim: &Sim| sim.pass().actions.iter().any(|action| matches!(action, Action::Evict(_)));
    assert!(!evicts(&sim));
    sim.pods.get_mut("train-0").unwrap().plan_epoch = Some(1);
    assert!(evicts(&sim), "of the plan that is seen it is certain");
}

#[test]
fn nobody_is_deleted_for_a_gang_whose_owner_goes() {
    let mut sim = released();
    sim.ending.insert(key("train"));
    sim.nodes.get_mut(node_of(&sim, "train-0").as_str()).unwrap().unschedulable = true;
    sim.settle();
    assert!(sim.evicted.is_empty());
}

#[test]
fn members_that_keep_their_node_in_a_new_plan_are_sent_on_by_one_patch() {
    let mut sim = released();
    sim.pods.remove("train-0");
    make_again(&mut sim);
    sim.step();
    assert_eq!((sim.state("train").epoch, sim.phase("train")), (2, Phase::Planned));
    sim.wait(1);
    sim.step();
    let patches: Vec<(String, bool, bool)> = releases(&sim)
        .iter()
        .map(|release| (release.pod.key.name.to_string(), release.pin, release.nominates()))
        .collect();
    assert_eq!(patches, [("train-0".to_owned(), true, false), ("train-1".to_owned(), false, false)]);
    sim.scheduler = true;
    sim.settle();
    assert_eq!((sim.phase("train"), sim.evicted.len()), (Phase::Bound, 0));
}

#[test]
fn a_pinned_member_that_is_refused_is_nominated_and_requeued_and_a_second_refusal_is_trusted_as_ever() {
    let mut sim = released();
    let planned = node_of(&sim, "train-0");
    let lags =
        "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity].";
    let refuse = |sim: &mut Sim| {
        let pod = sim.pods.get_mut("train-0").unwrap();
        pod.unscheduled = Some((Arc::from("Unschedulable"), Arc::from(lags)));
        pod.nominated = None;
    };
    refuse(&mut sim);
    sim.now = sim.state("train").since.unwrap();
    sim.wait(3);
    sim.step();
    assert_eq!(sim.state("train").epoch, 1, "its release was no requeue: it may have been tried once");
    let pod = &sim.pods["train-0"];
    assert_eq!((&pod.nominated, pod.requeued), (&Some(planned.clone()), Some(sim.now)));
    refuse(&mut sim);
    sim.step();
    assert_eq!(sim.state("train").epoch, 2);
    assert_ne!(node_of(&sim, "train-0"), planned);
}

#[test]
fn a_pinned_member_needs_no_nomination_to_be_tried_again_on_its_node_alone() {
    let mut sim = released();
    sim.wait(2);
    let text = "a call of the extender failed";
    sim.pods.get_mut("train-0").unwrap().unscheduled = Some((Arc::from("SchedulerError"), Arc::from(text)));
    assert_eq!(releases(&sim), []);
    let pass = sim.pass();
    assert_eq!(pass.stuck.get(&Stuck::CallFailed), Some(&1));
    assert!(!pass.stuck.contains_key(&Stuck::NominationLost));
}

#[test]
fn a_pass_with_pinned_members_is_decided_again_from_its_recording() {
    let mut sim = pinning();
    sim.scheduler = false;
    for _ in 0..6 {
        sim.is_the_same_from_its_recording();
        sim.step();
        sim.wait(1);
    }
    assert!(sim.pods.values().all(|pod| pod.pinned.is_some()));
    sim.nodes.get_mut(node_of(&sim, "train-1").as_str()).unwrap().unschedulable = true;
    for _ in 0..3 {
        sim.is_the_same_from_its_recording();
        sim.step();
    }
    assert_eq!(sim.evicted.len(), 1);
}
