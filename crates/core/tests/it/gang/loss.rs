//! Gangs that lose members after their commit point: evicted whole, or going on without them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::gang::{Action, BatchStage, PoolView};
use muster_core::model::gang::{Phase, RankClaim};
use muster_core::model::names::NodeName;
use muster_core::model::node::Node;

use super::sim::{Sim, join, pool};
use crate::world::{self, key};

fn running(size: u32) -> Sim {
    let mut sim = Sim::new(&[("n1", 1), ("n2", 1), ("n3", 1), ("n4", 1), ("n5", 1)]);
    sim.gang("train", size, size);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
    sim
}

fn again(sim: &mut Sim, ranks: std::ops::Range<u32>) {
    for rank in ranks {
        sim.member("train", &format!("again-{rank}"), RankClaim::Rank(rank));
    }
}

#[test]
fn a_strict_gang_that_lost_a_member_is_evicted_from_the_highest_rank_down_and_starts_again() {
    let mut sim = running(4);
    let epoch = sim.state("train").epoch;
    sim.pods.remove("train-2");
    sim.settle();
    assert_eq!(sim.evicted, ["train-3", "train-1", "train-0"], "whoever leads goes last");
    assert!(sim.events.contains(&"MemberLost".to_owned()) && sim.events.contains(&"GangStopped".to_owned()));
    again(&mut sim, 0..4);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len(), sim.commits.len()), (Phase::Bound, 4, 2));
    assert!(sim.state("train").epoch > epoch, "a new epoch");
}

#[test]
fn a_member_whose_node_is_lost_is_a_lost_member_although_it_still_runs() {
    let mut sim = running(4);
    let lost = sim.state("train").places[3].node.clone();
    sim.lost.insert(lost.clone());
    sim.settle();
    assert_eq!(sim.evicted, ["train-3", "train-2", "train-1", "train-0"]);
    again(&mut sim, 0..4);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
    assert!(!sim.bound().iter().any(|(_, node)| *node == lost.as_str()), "nobody is planned there again");
}

#[test]
fn a_node_that_vanished_takes_its_member_without_grace() {
    let mut sim = running(4);
    let gone = sim.state("train").places[0].node.clone();
    sim.nodes.remove(gone.as_str());
    sim.step();
    sim.wait(3);
    let actions = sim.pass().actions;
    let at_once: Vec<(String, bool)> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Evict(evict) => Some((evict.pod.key.name.to_string(), evict.at_once)),
            _ => None,
        })
        .collect();
    let expected = [("train-3", false), ("train-2", false), ("train-1", false), ("train-0", true)];
    assert_eq!(at_once, expected.map(|(name, at_once)| (name.to_owned(), at_once)));
}

#[test]
fn the_evict_begins_within_seconds_and_never_while_the_whole_gang_is_being_deleted() {
    let mut sim = running(4);
    sim.pods.get_mut("train-3").unwrap().deleting = true;
    sim.step();
    assert_eq!(sim.phase("train"), Phase::Degraded);
    let requeue = sim.pass().requeue_at.unwrap();
    assert!(requeue.duration_since(sim.now).as_secs() <= 10, "looked at again in time");
    // Its owner deletes the others meanwhile.
    for pod in sim.pods.values_mut() {
        pod.deleting = true;
    }
    sim.wait(3);
    assert!(!sim.pass().actions.iter().any(|action| matches!(action, Action::Evict(_))));
}

#[test]
fn an_elastic_gang_that_keeps_its_minimum_loses_only_who_was_on_the_lost_node() {
    let mut sim = Sim::new(&[("n1", 1), ("n2", 1), ("n3", 1), ("n4", 1)]);
    sim.gang("train", 4, 4);
    sim.recognised.insert(key("train"), world::recognised("train", Some(4), Some(3)));
    sim.settle();
    let lost = sim.state("train").places[3].node.clone();
    sim.lost.insert(lost);
    sim.settle();
    assert_eq!((sim.evicted.as_slice(), sim.phase("train")), (["train-3".to_owned()].as_slice(), Phase::Bound));
}

#[test]
fn a_evicted_gang_waits_for_its_batch_to_be_repaired_and_provisions_no_second_one() {
    let mut sim = running(4);
    let name = "guid-1";
    sim.gangs.get_mut(&key("train")).unwrap().batch = Some(name.into());
    sim.stage(name, BatchStage::Provisioning);
    let lost = sim.state("train").places[0].node.clone();
    sim.lost.insert(lost.clone());
    for node in ["n1", "n2", "n3", "n4", "n5"] {
        if node != lost.as_str() {
            sim.whole.push((NodeName::from(node), key("train")));
        }
    }
    sim.settle();
    again(&mut sim, 0..4);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.provisioned.len()), (Phase::Provisioning, 0), "its nodes are on their way");
    sim.stage(name, BatchStage::Ready);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.provisioned.len()), (Phase::Bound, 0));
}

#[test]
fn members_that_failed_one_after_the_other_evict_the_gang_once() {
    let mut sim = running(3);
    sim.end("train-0", false);
    sim.step();
    sim.end("train-1", false);
    sim.settle();
    assert_eq!(sim.evicted, ["train-2"]);
    assert_eq!(sim.events.iter().filter(|event| *event == "GangStopped").count(), 1);
}

#[test]
fn a_evict_that_began_is_finished_although_the_new_machine_has_the_lost_ones_name() {
    let mut sim = running(4);
    let gone = sim.state("train").places[1].node.clone();
    let node = sim.nodes.remove(gone.as_str()).unwrap();
    sim.step();
    assert_eq!(sim.phase("train"), Phase::Degraded);
    sim.nodes.insert(gone.to_string(), node);
    sim.settle();
    assert_eq!(sim.evicted.len(), 4, "nobody goes on beside a pod of the machine before");
}

#[test]
fn members_that_go_with_their_owner_are_no_loss_and_their_nodes_are_not_kept() {
    let mut sim = running(4);
    let gang = sim.state("train").key.clone();
    sim.ending.insert(gang);
    for left in (0..4).rev() {
        sim.pods.remove(&format!("train-{left}"));
        sim.step();
    }
    assert!(sim.evicted.is_empty(), "{:?}", sim.evicted);
    assert!(!sim.events.iter().any(|event| event == "MemberLost" || event == "GangStopped"), "{:?}", sim.events);
    assert!(!sim.gangs.values().any(|gang| gang.phase == Some(Phase::Collecting)), "nobody is awaited");
}

#[test]
fn a_gang_whose_owner_turns_out_to_be_suspended_gives_its_nodes_up_although_a_loss_was_seen_first() {
    let mut sim = running(4);
    let gang = sim.state("train").key.clone();
    // The pods' watch is ahead of the owner's.
    sim.pods.remove("train-3");
    sim.step();
    assert_eq!(sim.phase("train"), Phase::Degraded);
    sim.ending.insert(gang);
    sim.pods.remove("train-2");
    sim.settle();
    assert!(sim.evicted.is_empty(), "{:?}", sim.evicted);
    for left in 0..2 {
        sim.pods.remove(&format!("train-{left}"));
    }
    sim.settle();
    sim.gang("other", 4, 4);
    sim.settle();
    assert_eq!((sim.phase("other"), sim.bound().len()), (Phase::Bound, 4), "nothing is kept for who was suspended");
}

#[test]
fn a_gang_that_was_evicted_and_is_suspended_before_it_is_back_keeps_nothing() {
    let mut sim = running(4);
    sim.pods.remove("train-2");
    sim.settle();
    assert_eq!(sim.reason("train"), "Restarting");
    sim.ending.insert(sim.state("train").key.clone());
    sim.gang("other", 4, 4);
    sim.settle();
    assert_eq!((sim.phase("other"), sim.bound().len()), (Phase::Bound, 4));
}

#[test]
fn the_node_of_a_member_that_failed_is_kept_too_while_its_gang_is_evicted() {
    let mut sim = running(4);
    sim.end("train-1", false);
    sim.gang("other", 2, 2);
    for _ in 0..4 {
        sim.step();
        assert!(!matches!(sim.phase("other"), Phase::Planned | Phase::Released), "one node is free");
    }
    assert_eq!(sim.phase("train"), Phase::Degraded);
}

#[test]
fn a_evicted_gang_keeps_the_capacity_it_had_and_nobody_else_takes_it() {
    let mut sim = running(4);
    let nodes = |sim: &Sim| sim.state("train").places.iter().map(|place| place.node.clone()).collect::<BTreeSet<_>>();
    let had = nodes(&sim);
    sim.pods.remove("train-2");
    sim.settle();
    assert_eq!(sim.reason("train"), "Restarting");
    sim.gang("other", 2, 2);
    sim.settle();
    assert_eq!((sim.phase("other"), sim.bound().len()), (Phase::Waiting, 0), "one node is free");
    // Some of its pods are back: the rest is kept for the others all the same.
    again(&mut sim, 0..2);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.phase("other")), (Phase::Collecting, Phase::Waiting));
    again(&mut sim, 2..4);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.phase("other")), (Phase::Bound, Phase::Waiting));
    assert_eq!(nodes(&sim), had);
    assert_eq!(sim.state("train").held, None, "the plan assigns the capacity by itself");
}

#[test]
fn the_capacity_of_an_evicted_gang_is_assigned_while_its_last_pods_go() {
    let mut sim = running(4);
    sim.pods.remove("train-2");
    sim.step();
    sim.pods.clear();
    let snapshot = sim.snapshot();
    assert_eq!(sim.phase("train"), Phase::Degraded);
    assert_eq!(snapshot.assignments.len(), 4, "although no pod tells any more what its members ask for");
}

#[test]
fn the_capacity_of_a_gang_whose_pods_do_not_come_back_in_time_is_released() {
    let mut sim = running(4);
    sim.pods.remove("train-2");
    sim.settle();
    sim.gang("other", 2, 2);
    sim.settle();
    assert_eq!(sim.phase("other"), Phase::Waiting);
    sim.wait(301);
    sim.settle();
    assert_eq!(sim.phase("other"), Phase::Bound);
}

#[test]
fn members_lost_while_others_are_planned_again_are_lost() {
    let mut sim = Sim::new(&[("n1", 1), ("n2", 1), ("n3", 1), ("n4", 1)]);
    sim.gang("train", 4, 4);
    sim.recognised.insert(key("train"), world::recognised("train", Some(4), Some(3)));
    sim.settle();
    let lost = sim.state("train").places[0].node.clone();
    sim.pods.remove("train-3");
    sim.member("train", "again-3", RankClaim::Rank(3));
    sim.scheduler = false;
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Released, "a replacement is on its way");
    sim.lost.insert(lost);
    sim.settle();
    assert_eq!(sim.evicted, ["train-0"], "the minimum stands without it");
    let lost =
        sim.state("train").places.iter().find(|place| place.pod.as_deref() == Some("train-1")).unwrap().node.clone();
    sim.lost.insert(lost);
    sim.settle();
    assert!(sim.events.contains(&"GangStopped".to_owned()), "{:?}", sim.events);
}

#[test]
fn the_last_member_that_failed_after_the_others_succeeded_runs_again() {
    let mut sim = running(4);
    for rank in 0..3 {
        sim.end(&format!("train-{rank}"), true);
    }
    sim.end("train-3", false);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Finished, "nobody runs, and nothing is held");
    // Its Job makes it again after a back-off of its own.
    sim.wait(360);
    again(&mut sim, 3..4);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound, "{}", sim.message("train"));
    assert!(sim.pods["again-3"].node.is_some());
}

#[test]
fn members_that_an_owner_ends_once_the_first_succeeded_are_no_loss() {
    let mut sim = running(4);
    sim.end("train-0", true);
    sim.pods.get_mut("train-2").unwrap().deleting = true;
    sim.step();
    sim.pods.get_mut("train-1").unwrap().deleting = true;
    sim.pods.get_mut("train-3").unwrap().deleting = true;
    sim.step();
    for rank in 1..4 {
        sim.pods.remove(&format!("train-{rank}"));
    }
    sim.settle();
    assert_eq!((sim.phase("train"), &sim.state("train").held), (Phase::Finished, &None));
    assert!(!sim.events.contains(&"GangStopped".to_owned()), "{:?}", sim.events);
    assert!(sim.evicted.is_empty(), "{:?}", sim.evicted);
}

#[test]
fn an_owner_that_is_scaled_down_loses_no_member_in_whatever_order_it_is_seen() {
    for owner_first in [true, false] {
        let mut sim = running(4);
        let epoch = sim.state("train").epoch;
        if owner_first {
            sim.recognised.insert(key("train"), world::recognised("train", Some(2), None));
            sim.step();
        }
        sim.pods.remove("train-2");
        sim.pods.remove("train-3");
        sim.step();
        sim.recognised.insert(key("train"), world::recognised("train", Some(2), None));
        sim.settle();
        assert!(sim.evicted.is_empty(), "{:?}", sim.evicted);
        let gang = sim.state("train");
        assert_eq!((gang.phase, gang.minimum, gang.places.len()), (Some(Phase::Bound), 2, 2));
        assert!(gang.epoch > epoch && gang.held.is_none());
        // The capacity is free.
        sim.gang("other", 3, 3);
        sim.settle();
        assert_eq!(sim.phase("other"), Phase::Bound);
        // One more that goes is a loss.
        sim.pods.remove("train-1");
        sim.settle();
        assert_eq!(sim.evicted, ["train-0"]);
    }
}

#[test]
fn running_members_whose_objects_are_gone_while_others_are_planned_again_are_lost() {
    let mut sim = Sim::new(&[("n1", 1), ("n2", 1), ("n3", 1), ("n4", 1)]);
    sim.gang("train", 4, 4);
    sim.recognised.insert(key("train"), world::recognised("train", Some(4), Some(3)));
    sim.settle();
    sim.pods.remove("train-3");
    sim.member("train", "again-3", RankClaim::Rank(3));
    sim.scheduler = false;
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Released, "a replacement is on its way");
    sim.pods.remove("train-0");
    sim.pods.remove("train-1");
    sim.settle();
    assert!(sim.evicted.contains(&"train-2".to_owned()), "{:?}", sim.evicted);
    assert!(sim.events.contains(&"GangStopped".to_owned()), "{:?}", sim.events);
}

#[test]
fn a_newcomer_that_is_never_bound_takes_nothing_from_those_that_run() {
    let mut sim = Sim::new(&[("n1", 1), ("n2", 1), ("n3", 1)]);
    sim.gang("train", 4, 3);
    sim.recognised.insert(key("train"), world::recognised("train", Some(4), Some(2)));
    sim.settle();
    sim.nodes.insert("n4".to_owned(), world::node("n4", 1));
    sim.member("train", "late", RankClaim::Rank(3));
    sim.scheduler = false;
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Released);
    sim.wait(301);
    sim.step();
    let gang = sim.state("train");
    assert_eq!((gang.phase, gang.places.len(), gang.minimum), (Some(Phase::Bound), 3, 2), "{:?}", gang.waiting);
    assert!(sim.events.contains(&"PlanExpired".to_owned()), "{:?}", sim.events);
    // Who runs is watched over as before, and the newcomer comes once it can.
    sim.scheduler = true;
    sim.wait(700);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len()), (Phase::Bound, 4));
}

#[test]
fn a_gang_keeps_no_capacity_for_members_that_nobody_has_created() {
    let mut sim = Sim::new(&[("n1", 8)]);
    sim.gang("train", 8, 1);
    sim.recognised.insert(key("train"), world::recognised("train", Some(5_000), Some(1)));
    sim.settle();
    assert_eq!((sim.phase("train"), sim.state("train").places.len()), (Phase::Bound, 1));
    sim.gang("other", 7, 7);
    sim.settle();
    assert_eq!(sim.phase("other"), Phase::Bound, "{}", sim.message("other"));
}

#[test]
fn a_member_that_succeeded_is_no_loss_when_its_pod_and_its_node_go_away() {
    let mut sim = running(4);
    let uid = sim.pods["train-0"].uid.clone();
    let node = sim.state("train").place_of(&uid).unwrap().node.clone();
    sim.end("train-0", true);
    sim.settle();
    sim.pods.remove("train-0");
    sim.settle();
    assert!(!sim.snapshot().assignments.contains_key(&node), "nobody comes in its stead");
    sim.nodes.remove(node.as_str());
    sim.settle();
    assert_eq!((sim.phase("train"), sim.evicted.len()), (Phase::Bound, 0), "{}", sim.message("train"));
    assert!(sim.state("train").notes.values().all(|note| note.message.is_empty()), "{:?}", sim.state("train").notes);
    // One that fails is placed again alone, as beside a pod that is still there.
    sim.nodes.insert(node.to_string(), world::node(node.as_str(), 1));
    sim.end("train-3", false);
    again(&mut sim, 3..4);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.evicted.len()), (Phase::Bound, 0), "{}", sim.message("train"));
    for pod in ["train-1", "train-2", "again-3"] {
        sim.end(pod, true);
    }
    sim.settle();
    assert_eq!((sim.phase("train"), sim.state("train").places.len()), (Phase::Finished, 0));
}

/// Of a gang of four that ran, two members succeeded and two failed.
fn half_done() -> Sim {
    let mut sim = running(4);
    for rank in 0..4 {
        sim.end(&format!("train-{rank}"), rank < 2);
    }
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Finished);
    sim
}

#[test]
fn members_that_succeeded_count_although_those_that_failed_are_made_again_one_by_one() {
    for cleaned_up in [false, true] {
        let mut sim = half_done();
        if cleaned_up {
            sim.pods.retain(|_, pod| !pod.succeeded);
        }
        again(&mut sim, 2..3);
        sim.settle();
        let epoch = sim.state("train").epoch;
        assert_eq!((sim.phase("train"), sim.reason("train").as_str()), (Phase::Collecting, "Collecting"));
        assert_eq!((sim.message("train").contains("3 of 4"), sim.snapshot().assignments.len()), (true, 0));
        again(&mut sim, 3..4);
        sim.settle();
        assert_eq!(sim.phase("train"), Phase::Bound, "{}", sim.message("train"));
        assert_eq!((sim.state("train").epoch, sim.state("train").places.len()), (epoch + 1, 4));
    }
}

#[test]
fn members_that_succeeded_count_although_the_plan_for_the_others_expires() {
    let mut sim = half_done();
    sim.scheduler = false;
    again(&mut sim, 2..4);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Released);
    sim.wait(301);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.reason("train").as_str()), (Phase::Waiting, "PlanExpired"));
    sim.scheduler = true;
    sim.wait(60);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound, "{}", sim.message("train"));
}

#[test]
fn members_that_succeeded_count_where_nodes_are_provisioned_for_some_of_the_others() {
    let mut sim = half_done();
    sim.nodes.retain(|name, _| name == "n1");
    // One more node beside the one that is there: it has a place for one of the two, and those that succeeded keep theirs.
    let mut pool = PoolView { max_nodes: 1, ..pool() };
    let one = Node { labels: BTreeMap::new(), ..world::node("", 1) };
    (pool.types[0].capacity, pool.types[0].node) = (one.allocatable.clone(), Arc::new(one));
    sim.pools.push(pool);
    again(&mut sim, 2..4);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.provisioned.len()), (Phase::Provisioning, 1), "{}", sim.message("train"));
    assert_eq!(sim.state("train").places.len(), 3);
    join(&mut sim, &["new"]);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound, "{}", sim.message("train"));
    assert_eq!(sim.state("train").places.len(), 4);
}

#[test]
fn a_whole_new_run_counts_nobody_who_succeeded_in_the_last_one() {
    let mut sim = half_done();
    for rank in 0..3 {
        again(&mut sim, rank..rank + 1);
        sim.settle();
        assert_eq!((sim.phase("train"), sim.state("train").waiting.is_some()), (Phase::Collecting, true), "{rank}");
    }
    again(&mut sim, 3..4);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.commits.len()), (Phase::Bound, 2), "{}", sim.message("train"));
}

/// A strict gang of four that runs, and two members more that its owner asks for.
fn grown() -> Sim {
    let mut sim = running(4);
    sim.recognised.insert(key("train"), world::recognised("train", Some(6), None));
    for rank in 4..6 {
        sim.member("train", &format!("train-{rank}"), RankClaim::Rank(rank));
    }
    sim
}

#[test]
fn a_gang_that_runs_stays_bound_while_there_is_no_capacity_for_what_its_owner_adds() {
    let mut sim = grown();
    sim.settle();
    let gang = sim.state("train");
    assert_eq!((gang.phase, gang.minimum, gang.places.len()), (Some(Phase::Bound), 4, 4));
    assert!(sim.message("train").contains("no capacity for a new member"), "{}", sim.message("train"));
    assert!(!sim.events.contains(&"MemberLost".to_owned()), "{:?}", sim.events);
    sim.wait(10);
    sim.settle();
    let reported = ["train-0", "train-4", "train-5"].map(|pod| sim.pods[pod].reported.as_deref());
    assert_eq!(reported, [None, Some("MemberLost"), Some("MemberLost")], "who waits says so");
    // A loss is seen all the same; and so is capacity.
    let mut lost = sim.clone();
    lost.pods.remove("train-0");
    lost.settle();
    assert!(lost.events.contains(&"GangStopped".to_owned()), "{:?}", lost.events);
    sim.nodes.insert("n6".to_owned(), world::node("n6", 1));
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len()), (Phase::Bound, 6), "{}", sim.message("train"));
    assert_eq!((sim.state("train").minimum, sim.reason("train").as_str()), (6, ""));
}

#[test]
fn newcomers_that_come_to_nothing_take_nothing_from_a_strict_gang_that_grew() {
    for capacity_goes in [false, true] {
        let mut sim = grown();
        sim.nodes.insert("n6".to_owned(), world::node("n6", 1));
        sim.scheduler = false;
        sim.settle();
        assert_eq!((sim.phase("train"), sim.state("train").minimum), (Phase::Released, 6));
        sim.is_the_same_from_its_recording();
        if capacity_goes {
            sim.nodes.remove("n6");
        } else {
            sim.wait(301);
        }
        sim.step();
        let gang = sim.state("train");
        assert_eq!((gang.phase, gang.minimum, gang.places.len()), (Some(Phase::Bound), 4, 4), "{:?}", gang.waiting);
        let reason = if capacity_goes { "MemberLost" } else { "PlanExpired" };
        assert_eq!((sim.reason("train").as_str(), sim.evicted.len()), (reason, 0));
        // A loss is seen all the same, and newcomers come once they can.
        let mut lost = sim.clone();
        lost.pods.remove("train-0");
        lost.settle();
        assert!(lost.events.contains(&"GangStopped".to_owned()), "{:?}", lost.events);
        sim.nodes.insert("n6".to_owned(), world::node("n6", 1));
        sim.scheduler = true;
        sim.wait(60);
        sim.settle();
        assert_eq!((sim.phase("train"), sim.bound().len()), (Phase::Bound, 6), "{}", sim.message("train"));
    }
}

#[test]
fn a_newcomer_that_is_lost_after_the_commit_takes_nothing_from_those_that_ran_before_it() {
    let mut sim = grown();
    sim.nodes.insert("n6".to_owned(), world::node("n6", 1));
    sim.scheduler = false;
    sim.settle();
    let gang = sim.gangs.get_mut(&key("train")).unwrap();
    (gang.phase, gang.since) = (Some(Phase::Committing), Some(sim.now));
    let node = |sim: &Sim, pod: &str| sim.state("train").place_of(&sim.pods[pod].uid).unwrap().node.clone();
    let bound = node(&sim, "train-4");
    sim.pods.get_mut("train-4").unwrap().node = Some(bound);
    let gone = node(&sim, "train-5");
    sim.nodes.remove(gone.as_str());
    sim.step();
    let gang = sim.state("train");
    assert_eq!((gang.phase, gang.minimum, gang.places.len()), (Some(Phase::Bound), 4, 5), "{:?}", gang.waiting);
    sim.scheduler = true;
    sim.settle();
    assert_eq!((sim.phase("train"), sim.evicted.len(), sim.bound().len()), (Phase::Bound, 0, 5));
    sim.nodes.insert("n7".to_owned(), world::node("n7", 1));
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len()), (Phase::Bound, 6), "{}", sim.message("train"));
}
