//! A gang's life on nodes that are there.

use std::sync::Arc;

use muster_core::gang::Action;
use muster_core::model::gang::{Invalid, Phase, RankClaim};
use muster_core::model::names::NodeName;
use muster_core::reason::Code;

use super::sim::Sim;
use crate::world::{self, key};

#[test]
fn a_gang_that_fits_goes_through_every_phase_to_its_end() {
    let mut sim = Sim::new(&[("n1", 2), ("n2", 2)]);
    sim.gang("train", 4, 4);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
    assert_eq!(sim.bound(), [("train-0", "n1"), ("train-1", "n1"), ("train-2", "n2"), ("train-3", "n2")]);
    assert_eq!(sim.events, ["Planned", "Released", "Bound"]);
    assert_eq!(sim.commits, ["train"]);
    for rank in 0..4 {
        sim.end(&format!("train-{rank}"), true);
    }
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Finished);
    sim.pods.clear();
    sim.settle();
    assert!(sim.gangs.is_empty(), "a gang whose pods are gone is deleted");
}

#[test]
fn a_gang_that_is_one_short_waits_and_assigns_nothing() {
    let mut sim = Sim::new(&[("n1", 3)]);
    sim.gang("train", 4, 4);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Waiting);
    assert!(sim.snapshot().assignments.is_empty());
    sim.nodes.insert("n2".to_owned(), world::node("n2", 1));
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
}

#[test]
fn an_incomplete_gang_is_collected_and_never_planned() {
    let mut sim = Sim::new(&[("n1", 8)]);
    sim.gang("train", 4, 3);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.reason("train").as_str()), (Phase::Collecting, "Collecting"));
    assert_eq!(&*sim.state("train").members, "3/4");
    assert_eq!(sim.pass().plans, 0);
}

#[test]
fn a_gang_of_unknown_size_waits_instead_of_starting_with_whoever_is_there() {
    let mut sim = Sim::new(&[("n1", 8)]);
    sim.gang("train", 4, 2);
    sim.recognised.insert(key("train"), world::recognised("train", None, None));
    sim.settle();
    assert_eq!((sim.phase("train"), sim.reason("train").as_str()), (Phase::Collecting, "SizeUnknown"));
    assert!(sim.bound().is_empty());
}

#[test]
fn of_two_gangs_and_one_free_node_the_older_gets_it() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.gang("older", 4, 4);
    sim.scheduler = false;
    sim.settle();
    sim.gang("newer", 4, 4);
    sim.settle();
    assert_eq!((sim.phase("older"), sim.phase("newer")), (Phase::Released, Phase::Waiting));
    sim.scheduler = true;
    sim.settle();
    assert_eq!((sim.phase("older"), sim.phase("newer")), (Phase::Bound, Phase::Waiting));
}

#[test]
fn two_gangs_planned_in_one_pass_share_no_capacity() {
    let mut sim = Sim::new(&[("n1", 4), ("n2", 3)]);
    sim.gang("a", 4, 4).gang("b", 4, 4);
    sim.step();
    sim.step();
    let phases = [sim.phase("a"), sim.phase("b")];
    assert_eq!(phases, [Phase::Planned, Phase::Waiting]);
}

#[test]
fn a_deleted_member_keeps_its_place_for_its_successor_in_a_new_epoch() {
    let mut sim = Sim::new(&[("n1", 4), ("n2", 4)]);
    sim.gang("train", 4, 4);
    sim.scheduler = false;
    sim.settle();
    let (epoch, node) = (sim.state("train").epoch, sim.state("train").places[2].node.clone());
    sim.pods.remove("train-2");
    sim.settle();
    // The others are sent all the same: they stand at the barrier, which cannot close without the missing one.
    assert_eq!((sim.phase("train"), sim.reason("train").as_str()), (Phase::Released, "Collecting"));
    assert_eq!(sim.state("train").places[2].uid, None);
    assert_eq!(sim.snapshot().assignments[&node].len(), 4, "the capacity of the missing member stays assigned");
    sim.member("train", "train-2b", RankClaim::Rank(2));
    sim.settle();
    assert!(sim.state("train").epoch > epoch);
    assert_eq!((&sim.state("train").places[2].node, sim.phase("train")), (&node, Phase::Released));
    sim.scheduler = true;
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
}

#[test]
fn a_successor_without_a_rank_takes_the_place_too() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.gang("train", 3, 0);
    for name in ["a", "b", "c"] {
        sim.member("train", name, RankClaim::Missing);
    }
    sim.scheduler = false;
    sim.settle();
    sim.pods.remove("a");
    sim.settle();
    sim.member("train", "d", RankClaim::Missing);
    sim.settle();
    sim.scheduler = true;
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
    let ranks: Vec<_> =
        sim.state("train").places.iter().map(|place| (place.rank, place.pod.as_deref().unwrap())).collect();
    assert_eq!(ranks, [(0, "d"), (1, "b"), (2, "c")], "nobody else moves");
}

#[test]
fn a_plan_whose_missing_member_never_comes_expires() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.gang("train", 4, 4);
    sim.scheduler = false;
    sim.settle();
    sim.pods.remove("train-2");
    sim.settle();
    sim.wait(300);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Collecting);
    assert!(sim.snapshot().assignments.is_empty());
}

#[test]
fn a_member_that_failed_before_it_ran_is_replaced() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.gang("train", 3, 3);
    sim.scheduler = false;
    sim.settle();
    sim.end("train-1", false);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Released);
    sim.member("train", "train-1b", RankClaim::Rank(1));
    sim.scheduler = true;
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
    assert_eq!(sim.bound().len(), 3);
}

#[test]
fn a_node_lost_before_the_commit_point_is_replanned_around() {
    let lose: [fn(&mut Sim); 3] = [
        |sim| drop(sim.nodes.remove("n1")),
        |sim| sim.nodes.get_mut("n1").unwrap().unschedulable = true,
        |sim| sim.nodes.get_mut("n1").unwrap().ready = false,
    ];
    for lose in lose {
        let mut sim = Sim::new(&[("n1", 4), ("n2", 4)]);
        sim.gang("train", 4, 4);
        sim.scheduler = false;
        sim.settle();
        assert!(sim.state("train").places.iter().all(|place| place.node.as_str() == "n1"));
        lose(&mut sim);
        sim.settle();
        assert!(sim.state("train").places.iter().all(|place| place.node.as_str() == "n2"));
        assert_eq!((sim.phase("train"), sim.state("train").epoch), (Phase::Released, 2));
        sim.scheduler = true;
        sim.settle();
        assert_eq!(sim.phase("train"), Phase::Bound);
    }
}

#[test]
fn a_node_assigned_whole_to_another_makes_the_plan_stale() {
    let mut sim = Sim::new(&[("n1", 4), ("n2", 4)]);
    sim.gang("train", 4, 4);
    sim.scheduler = false;
    sim.settle();
    sim.whole.push((NodeName::from("n1"), key("booked")));
    sim.settle();
    assert!(sim.state("train").places.iter().all(|place| place.node.as_str() == "n2"));
}

#[test]
fn a_released_plan_that_nobody_carries_out_expires_and_is_made_again() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.gang("train", 4, 4);
    sim.scheduler = false;
    sim.settle();
    sim.wait(300);
    sim.settle();
    assert!(sim.events.contains(&"PlanExpired".to_owned()));
    assert_eq!((sim.phase("train"), sim.reason("train").as_str()), (Phase::Waiting, "PlanExpired"));
    sim.wait(30);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.state("train").epoch), (Phase::Released, 3));
}

#[test]
fn a_member_of_an_elastic_gang_lost_after_the_commit_point_is_planned_with_the_others_fixed() {
    let mut sim = Sim::new(&[("n1", 2), ("n2", 2), ("n3", 2)]);
    sim.gang("train", 4, 4);
    sim.recognised.insert(key("train"), world::recognised("train", Some(4), Some(3)));
    sim.settle();
    let before = sim.bound().iter().map(|(pod, node)| format!("{pod} {node}")).collect::<Vec<_>>();
    sim.pods.remove("train-3");
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound, "its minimum is left");
    sim.member("train", "train-3", RankClaim::Rank(3));
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
    let after = sim.bound().iter().map(|(pod, node)| format!("{pod} {node}")).collect::<Vec<_>>();
    assert_eq!(before, after, "the freed place is the best again, and nobody else moved");
    assert_eq!((sim.commits.len(), sim.evicted.len()), (2, 0));
}

#[test]
fn members_that_succeeded_are_neither_lost_nor_planned_again() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.gang("train", 4, 4);
    sim.settle();
    sim.end("train-0", true);
    sim.end("train-1", true);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
    // Somebody else takes the capacity that the two terminated.
    sim.nodes.get_mut("n1").unwrap().allocatable.set(world::GPU, 2);
    sim.pods.remove("train-3");
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Degraded);
    sim.member("train", "train-3b", RankClaim::Rank(3));
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
    assert_eq!(sim.pods["train-3b"].node, Some(NodeName::from("n1")), "one place was needed, not three");
    sim.end("train-2", true);
    sim.end("train-3b", true);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Finished);
}

#[test]
fn a_whole_gang_that_failed_starts_again_all_or_none() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.gang("train", 4, 4);
    sim.settle();
    for rank in 0..4 {
        sim.end(&format!("train-{rank}"), false);
    }
    for rank in 0..3 {
        sim.member("train", &format!("again-{rank}"), RankClaim::Rank(rank));
        sim.settle();
    }
    assert_eq!(sim.bound().len(), 4, "only the failed ones have nodes: {:?}", sim.bound());
    sim.member("train", "again-3", RankClaim::Rank(3));
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len()), (Phase::Bound, 8));
}

#[test]
fn a_finished_gang_starts_again_when_its_pods_are_made_again() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.gang("train", 2, 2);
    sim.settle();
    sim.end("train-0", true);
    sim.end("train-1", true);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Finished);
    sim.member("train", "again-0", RankClaim::Rank(0));
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Collecting, "what succeeded in the last run is history");
    sim.member("train", "again-1", RankClaim::Rank(1));
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len()), (Phase::Bound, 4));
}

#[test]
fn surplus_members_of_a_running_gang_change_nothing() {
    let mut sim = Sim::new(&[("n1", 8)]);
    sim.gang("train", 4, 4);
    sim.settle();
    sim.member("train", "surplus", RankClaim::Rank(9));
    sim.settle();
    assert_eq!((sim.phase("train"), sim.state("train").epoch), (Phase::Bound, 1));
    assert_eq!(sim.pods["surplus"].node, None);
}

#[test]
fn members_beyond_the_minimum_are_never_waited_for() {
    let mut sim = Sim::new(&[("n1", 3)]);
    sim.gang("train", 4, 4);
    sim.recognised.insert(key("train"), world::recognised("train", Some(4), Some(2)));
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len(), sim.state("train").epoch), (Phase::Bound, 3, 1));
    // The fourth comes when there is capacity, as an epoch of its own.
    sim.nodes.insert("n2".to_owned(), world::node("n2", 1));
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len(), sim.state("train").epoch), (Phase::Bound, 4, 2));
}

#[test]
fn a_gang_with_only_a_minimum_takes_whoever_comes() {
    let mut sim = Sim::new(&[("n1", 8)]);
    sim.gang("train", 0, 3);
    sim.recognised.insert(key("train"), world::recognised("train", None, Some(2)));
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len()), (Phase::Bound, 3));
    sim.member("train", "late", RankClaim::Rank(3));
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len()), (Phase::Bound, 4));
}

#[test]
fn members_on_their_way_to_a_node_are_not_moved_by_a_newcomer() {
    let mut sim = Sim::new(&[("n1", 2), ("n2", 1), ("n3", 1)]);
    sim.gang("train", 3, 3);
    sim.scheduler = false;
    sim.settle();
    let places = sim.state("train").places.clone();
    // The commit point is passed; one binding is seen, one is not, and the third member was deleted.
    sim.gangs.get_mut(&key("train")).unwrap().phase = Some(Phase::Committing);
    let node = places[0].node.clone();
    sim.pods.get_mut("train-0").unwrap().node = Some(node);
    sim.pods.remove("train-2");
    sim.member("train", "train-2b", RankClaim::Rank(2));
    sim.settle();
    assert_eq!(sim.state("train").places[1].node, places[1].node);
    sim.scheduler = true;
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len()), (Phase::Bound, 3));
}

#[test]
fn a_gang_object_that_was_deleted_under_a_running_gang_comes_back_bound() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.gang("train", 4, 4);
    sim.settle();
    sim.gangs.clear();
    sim.settle();
    assert_eq!((sim.phase("train"), sim.commits.len()), (Phase::Bound, 1));
}

#[test]
fn an_invalid_gang_says_why_and_comes_back() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.gang("train", 2, 2);
    let mut bad = world::recognised("train", Some(2), None);
    bad.invalid = Some(Invalid { reason: Code::BadNumber, message: "muster.dev/gang-min: …".to_owned() });
    sim.recognised.insert(key("train"), bad);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.reason("train").as_str()), (Phase::Invalid, "BadNumber"));
    // While its pods are being deleted nothing flaps.
    for pod in sim.pods.values_mut() {
        pod.deleting = true;
    }
    sim.settle();
    for pod in sim.pods.values_mut() {
        pod.deleting = false;
    }
    sim.recognised.insert(key("train"), world::recognised("train", Some(2), None));
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
}

#[test]
fn a_gang_whose_pods_are_all_being_deleted_has_lost_no_member() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.gang("train", 2, 2);
    sim.settle();
    for pod in sim.pods.values_mut() {
        pod.deleting = true;
    }
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
    sim.pods.clear();
    sim.settle();
    assert!(sim.gangs.is_empty());
}

#[test]
fn a_gate_of_somebody_else_holds_the_gang_back() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.gang("train", 2, 2);
    sim.pods.get_mut("train-1").unwrap().foreign_gate = Some(Arc::from("quota.example.com/held"));
    sim.settle();
    assert_eq!((sim.phase("train"), sim.reason("train").as_str()), (Phase::Collecting, "ForeignGate"));
    sim.pods.get_mut("train-1").unwrap().foreign_gate = None;
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
    // A newcomer behind a foreign gate does not take a running gang back.
    sim.member("train", "surplus", RankClaim::Rank(2));
    sim.pods.get_mut("surplus").unwrap().foreign_gate = Some(Arc::from("quota.example.com/held"));
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
}

#[test]
fn a_single_pod_behind_our_gate_is_let_go_and_an_unknown_one_is_not() {
    let mut sim = Sim::new(&[("n1", 4)]);
    for (name, ours) in [("single", true), ("foreign", false), ("unknown", true)] {
        let mut pod = world::pod(name, &world::shape(0));
        (pod.gated, pod.ours) = (true, ours);
        sim.pods.insert(name.to_owned(), pod);
    }
    sim.pods.get_mut("unknown").unwrap().membership = muster_core::model::gang::Membership::Unknown;
    let actions = sim.pass().actions;
    assert_eq!(actions, [Action::Ungate { uid: "uid-single".into() }]);
}

#[test]
fn an_unknown_phase_is_left_alone() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.gang("train", 2, 2);
    sim.settle();
    sim.gangs.get_mut(&key("train")).unwrap().phase = None;
    sim.pods.remove("train-1");
    assert_eq!(sim.pass().actions, []);
    sim.pods.clear();
    assert_eq!(sim.pass().actions, []);
}

#[test]
fn a_plan_for_a_size_that_changed_is_made_again() {
    let mut sim = Sim::new(&[("n1", 8)]);
    sim.gang("train", 4, 4);
    sim.scheduler = false;
    sim.settle();
    sim.recognised.insert(key("train"), world::recognised("train", Some(3), None));
    sim.settle();
    assert_eq!((sim.state("train").minimum, sim.state("train").places.len()), (3, 3));
}

#[test]
fn pods_that_only_ended_make_no_gang() {
    let mut sim = Sim::new(&[("n1", 8)]);
    sim.gang("train", 1, 1);
    sim.pods.get_mut("train-0").unwrap().node = Some(NodeName::from("n1"));
    sim.end("train-0", true);
    sim.settle();
    assert!(sim.gangs.is_empty());
}

#[test]
fn a_released_member_that_the_scheduler_refuses_is_shown_and_requeued_again() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.gang("train", 2, 2);
    sim.scheduler = false;
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Released);
    let message = "0/1 nodes are available: 1 node(s) had no available disk.";
    sim.pods.get_mut("train-1").unwrap().unscheduled = Some((Arc::from("Unschedulable"), Arc::from(message)));
    sim.wait(10);
    let pass = sim.pass();
    let requeued = |action: &Action| matches!(action, Action::Release(release) if *release.pod.key.name == *"train-1");
    assert_eq!(pass.actions.iter().filter(|action| requeued(action)).count(), 1);
    for action in pass.actions {
        sim.apply(action);
    }
    assert_eq!(sim.reason("train"), "SchedulerRefused");
    // What kube-scheduler says only because of us is no refusal of its own.
    sim.pods.get_mut("train-1").unwrap().unscheduled =
        Some((Arc::from("Unschedulable"), Arc::from("0/1 nodes are available: 1 waiting for gang.")));
    assert!(!sim.pass().actions.iter().any(requeued));
}
