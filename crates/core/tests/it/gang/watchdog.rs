//! Released members that do not arrive: refusals, expiry, bindings by others, changed needs, and what members are shown.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use muster_core::gang::{Action, Memory, Note, Stuck};
use muster_core::model::gang::{Phase, RankClaim};
use muster_core::model::names::NodeName;
use muster_core::model::resources::Resources;
use muster_core::model::snapshot::Snapshot;

use super::sim::Sim;
use crate::world;

const DISK: &str = "0/3 nodes are available: 1 node(s) had no available disk, 2 gang is being replanned.";

/// A released gang of two on two of three nodes, with a scheduler that sleeps.
fn released() -> Sim {
    let mut sim = Sim::new(&[("n1", 1), ("n2", 1), ("n3", 1)]);
    sim.gang("train", 2, 2);
    sim.scheduler = false;
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Released);
    sim
}

fn refuse(sim: &mut Sim, pod: &str, message: &str) {
    sim.pods.get_mut(pod).unwrap().unscheduled = Some((Arc::from("Unschedulable"), Arc::from(message)));
}

fn nodes(sim: &Sim) -> Vec<String> {
    let mut nodes: Vec<String> = sim.state("train").places.iter().map(|place| place.node.to_string()).collect();
    nodes.sort();
    nodes
}

fn node_of(sim: &Sim, pod: &str) -> String {
    let uid = &sim.pods[pod].uid;
    sim.state("train").place_of(uid).unwrap().node.to_string()
}

#[test]
fn a_node_that_the_scheduler_refuses_is_excluded_and_the_gang_is_planned_elsewhere() {
    let mut sim = released();
    let refused = node_of(&sim, "train-0");
    refuse(&mut sim, "train-0", DISK);
    sim.wait(11);
    sim.step();
    assert_eq!(
        (sim.phase("train"), sim.state("train").epoch),
        (Phase::Released, 1),
        "nominated and requeued once before"
    );
    sim.wait(10);
    sim.step();
    assert_eq!(sim.state("train").epoch, 2);
    assert!(!nodes(&sim).contains(&refused), "{refused} is excluded: {:?}", nodes(&sim));
    // The refusal is of the node, not of the pods: what runs elsewhere is as good.
    sim.scheduler = true;
    sim.pods.get_mut("train-0").unwrap().unscheduled = None;
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
}

#[test]
fn a_member_that_sits_in_the_scheduler_s_queue_is_requeued_after_a_second_and_it_is_stated_why() {
    let lags = "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 waiting for gang.";
    let sampled = "0/3 nodes are available: 2 gang is being replanned.";
    for (message, nominated, why) in [
        (DISK, true, Stuck::Refused),
        (lags, true, Stuck::RefusedThoughItFits),
        (sampled, true, Stuck::NotOffered),
        (sampled, false, Stuck::NominationLost),
    ] {
        let mut sim = released();
        refuse(&mut sim, "train-0", message);
        let planned = NodeName::from(node_of(&sim, "train-0").as_str());
        sim.pods.get_mut("train-0").unwrap().nominated = nominated.then_some(planned);
        let requeued = |sim: &mut Sim| -> Vec<Option<Stuck>> {
            let actions = sim.pass().actions;
            let releases = actions.iter().filter_map(|action| match action {
                Action::Release(release) if *release.pod.key.name == *"train-0" => Some(release.stuck),
                _ => None,
            });
            releases.collect()
        };
        sim.now = sim.state("train").since.unwrap();
        assert_eq!(requeued(&mut sim), [], "{message}: not before kube-scheduler could try again itself");
        sim.wait(1);
        assert_eq!(requeued(&mut sim), [Some(why)], "{message}");
    }
}

#[test]
fn a_refusal_that_says_that_the_scheduler_lags_is_given_more_time() {
    let mut sim = released();
    refuse(&mut sim, "train-0", "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 gang is being replanned.");
    sim.wait(25);
    sim.step();
    assert_eq!(sim.state("train").epoch, 1, "watch.released has not passed");
    sim.wait(6);
    sim.step();
    assert_eq!(sim.state("train").epoch, 2);
}

/// kube-scheduler tries the member again after its last requeue and refuses it once more: its nomination is gone.
fn refuse_again(sim: &mut Sim, pod: &str, message: &str) {
    refuse(sim, pod, message);
    sim.pods.get_mut(pod).unwrap().nominated = None;
}

const LAGS: &str = "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 gang is being replanned.";

#[test]
fn a_refusal_that_is_repeated_after_each_requeue_is_trusted_at_once_where_there_is_another_place() {
    for message in [LAGS, DISK] {
        let mut sim = released();
        let refused = node_of(&sim, "train-0");
        sim.now = sim.state("train").since.unwrap();
        for seconds in [0, 1] {
            sim.wait(seconds);
            refuse_again(&mut sim, "train-0", message);
            sim.step();
            assert_eq!(sim.state("train").epoch, 1, "{message}: kube-scheduler's view may lag for a moment");
        }
        // Nominated and requeued after two seconds more; nothing says yet what came of that.
        sim.wait(2);
        sim.step();
        assert_eq!((sim.state("train").epoch, sim.pods["train-0"].nominated.is_some()), (1, true), "{message}");
        sim.step();
        assert_eq!(sim.state("train").epoch, 1, "{message}: it may stand at the barrier");
        refuse_again(&mut sim, "train-0", message);
        sim.step();
        assert_eq!(sim.state("train").epoch, 2, "{message}");
        assert!(!nodes(&sim).contains(&refused), "{message}: {refused} is excluded: {:?}", nodes(&sim));
        sim.scheduler = true;
        sim.pods.get_mut("train-0").unwrap().unscheduled = None;
        sim.settle();
        assert_eq!(sim.phase("train"), Phase::Bound, "{message}");
    }
}

#[test]
fn a_refusal_that_is_repeated_leaves_the_plan_as_it_is_where_there_is_no_other_place() {
    let mut sim = Sim::new(&[("n1", 1), ("n2", 1)]);
    sim.gang("train", 2, 2);
    sim.scheduler = false;
    sim.settle();
    sim.now = sim.state("train").since.unwrap();
    for _ in 0..7 {
        sim.wait(4);
        sim.step();
        refuse_again(&mut sim, "train-0", LAGS);
        assert!(sim.pass().plans <= 1, "tried once");
        sim.step();
        assert_eq!((sim.phase("train"), sim.state("train").epoch), (Phase::Released, 1), "its places stay assigned");
    }
    assert_eq!(sim.pass().plans, 0, "a plan that came to nothing is not tried in every pass");
    sim.pods.get_mut("train-0").unwrap().unscheduled = None;
    sim.scheduler = true;
    sim.settle();
    assert_eq!((sim.phase("train"), sim.state("train").epoch), (Phase::Bound, 1));
}

#[test]
fn of_a_gang_that_is_refused_wherever_it_is_planned_three_refusals_are_trusted_at_once_and_the_others_later() {
    let nodes: Vec<String> = (0..12).map(|number| format!("n{number:02}")).collect();
    let mut sim = Sim::new(&nodes.iter().map(|name| (name.as_str(), 1)).collect::<Vec<_>>());
    sim.gang("train", 2, 2);
    sim.scheduler = false;
    sim.settle();
    let begin = sim.now;
    while sim.now.duration_since(begin).as_secs() < 25 {
        sim.step();
        refuse_again(&mut sim, "train-0", LAGS);
        sim.wait(1);
    }
    assert_eq!(sim.state("train").epoch, 4, "three plans, and the fourth stands until the watchdog");
}

#[test]
fn whoever_is_refused_after_the_commit_point_is_requeued_after_a_second() {
    let mut sim = released();
    sim.scheduler = true;
    sim.settle();
    let gang = sim.gangs.get_mut(&world::key("train")).unwrap();
    (gang.phase, gang.since) = (Some(Phase::Committing), Some(sim.now));
    sim.pods.get_mut("train-0").unwrap().node = None;
    sim.scheduler = false;
    refuse_again(&mut sim, "train-0", LAGS);
    sim.pods.get_mut("train-0").unwrap().requeued = Some(sim.now);
    let next = sim.pass().requeue_at.unwrap().duration_since(sim.now);
    assert!(next <= SignedDuration::from_secs(1), "looked at again in {next:#}");
    sim.wait(1);
    let stuck = |action: &Action| matches!(action, Action::Release(release) if release.stuck.is_some());
    assert!(sim.pass().actions.iter().any(stuck));
}

#[test]
fn every_released_member_that_is_not_bound_is_counted_with_what_it_waits_for() {
    let counted = |sim: &Sim| sim.pass().stuck.into_iter().collect::<Vec<(Stuck, u32)>>();
    let mut sim = released();
    sim.now = sim.state("train").since.unwrap();
    assert_eq!(counted(&sim), [], "not at once");
    sim.wait(3);
    assert_eq!(counted(&sim), [(Stuck::NotTried, 2)], "kube-scheduler sleeps");
    refuse(&mut sim, "train-0", LAGS);
    assert_eq!(counted(&sim), [(Stuck::RefusedThoughItFits, 1)], "the other waits at the barrier for this one");
    let failed = (Arc::from("SchedulerError"), Arc::from("gang barrier: 1 of 2 members after 55 s"));
    sim.pods.get_mut("train-0").unwrap().unscheduled = Some(failed);
    assert_eq!(counted(&sim), [(Stuck::CallFailed, 1)]);
}

#[test]
fn three_refusals_with_one_text_make_the_gang_wait_with_that_text_and_nothing_is_held_or_provisioned() {
    let mut sim = Sim::new(&[("n1", 1), ("n2", 1), ("n3", 1), ("n4", 1), ("n5", 1)]);
    sim.gang("train", 2, 2);
    sim.scheduler = false;
    let mut epochs = 1;
    for round in 0..3 {
        sim.settle();
        assert_eq!(sim.phase("train"), Phase::Released, "round {round}");
        refuse(&mut sim, "train-0", &DISK.replace('2', &round.to_string()));
        sim.wait(21);
        sim.step();
        // What was reported before may be old, and is given more time.
        assert_eq!(sim.state("train").epoch, epochs + u64::from(round == 0), "round {round}");
        sim.wait(10);
        sim.step();
        epochs = sim.state("train").epoch;
        sim.pods.get_mut("train-0").unwrap().unscheduled = None;
    }
    assert_eq!((sim.phase("train"), sim.reason("train").as_str()), (Phase::Waiting, "SchedulerRefused"));
    assert!(sim.state("train").waiting.as_ref().unwrap().message.contains("no available disk"));
    assert!(sim.state("train").places.is_empty(), "nothing is held");
    let epoch = sim.state("train").epoch;
    sim.wait(300);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.state("train").epoch), (Phase::Waiting, epoch), "it rests");
    sim.wait(301);
    sim.scheduler = true;
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound, "watch.excludeTtl has passed");
}

#[test]
fn a_gang_that_fits_only_on_nodes_excluded_waits_for_them_and_provisions_nothing() {
    let mut sim = Sim::new(&[("n1", 1), ("n2", 1)]);
    sim.gang("train", 2, 2);
    sim.scheduler = false;
    sim.settle();
    refuse(&mut sim, "train-0", DISK);
    sim.wait(21);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.reason("train").as_str()), (Phase::Waiting, "NodesExcluded"));
    sim.pods.get_mut("train-0").unwrap().unscheduled = None;
    sim.wait(600);
    sim.scheduler = true;
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
}

#[test]
fn plans_that_expire_are_made_again_after_a_pause_that_doubles() {
    let mut sim = released();
    let mut pauses = Vec::new();
    for _ in 0..3 {
        sim.wait(300);
        sim.step();
        assert_eq!((sim.phase("train"), sim.reason("train").as_str()), (Phase::Waiting, "PlanExpired"));
        assert!(sim.state("train").places.is_empty(), "capacity is released");
        let until = sim.state("train").waiting.as_ref().unwrap().next_try.unwrap();
        pauses.push(until.duration_since(sim.now).as_secs());
        sim.wait(pauses.last().copied().unwrap());
        sim.settle();
        assert_eq!(sim.phase("train"), Phase::Released);
    }
    assert_eq!(pauses, [30, 60, 120]);
    sim.scheduler = true;
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
    assert!(!sim.memory.knows(&world::key("train")), "a gang that runs has a clean record");
}

#[test]
fn a_member_bound_elsewhere_by_somebody_else_is_adopted_there_in_a_new_epoch() {
    let mut sim = released();
    let free = ["n1", "n2", "n3"].into_iter().find(|node| !nodes(&sim).contains(&(*node).to_owned())).unwrap();
    sim.pods.get_mut("train-0").unwrap().node = Some(NodeName::from(free));
    sim.scheduler = true;
    sim.settle();
    assert_eq!((sim.phase("train"), sim.state("train").epoch), (Phase::Bound, 2));
    assert_eq!(node_of(&sim, "train-0"), free);
}

#[test]
fn members_whose_needs_change_after_the_plan_are_planned_again() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.gang("train", 2, 2);
    sim.scheduler = false;
    sim.settle();
    assert_eq!(sim.state("train").epoch, 1);
    for pod in ["train-0", "train-1"] {
        let mut shape = world::shape(1);
        shape.requests.add(&Resources::from_iter([("memory", 1_i64)]));
        sim.pods.get_mut(pod).unwrap().shape = Ok(Arc::new(shape));
    }
    sim.nodes.get_mut("n1").unwrap().allocatable.add(&Resources::from_iter([("memory", 8_i64)]));
    sim.settle();
    assert_eq!((sim.phase("train"), sim.state("train").epoch), (Phase::Released, 2));
}

#[test]
fn a_committed_member_that_the_scheduler_refuses_for_too_long_is_planned_elsewhere() {
    let mut sim = released();
    sim.scheduler = true;
    sim.settle();
    // As if the process died between the commit point and one of the bindings, and the capacity is gone for kube-scheduler.
    let lost = node_of(&sim, "train-0");
    let gang = sim.gangs.get_mut(&world::key("train")).unwrap();
    gang.phase = Some(Phase::Committing);
    gang.since = Some(sim.now);
    sim.pods.get_mut("train-0").unwrap().node = None;
    sim.scheduler = false;
    refuse(&mut sim, "train-0", DISK);
    sim.wait(29);
    sim.step();
    assert_eq!(node_of(&sim, "train-0"), lost, "only forward, for now");
    sim.wait(2);
    sim.settle();
    assert_ne!(node_of(&sim, "train-0"), lost);
    sim.scheduler = true;
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
}

#[test]
fn a_committed_member_that_is_refused_again_after_each_requeue_is_planned_elsewhere_before_any_timer_ends() {
    // Of three nodes one is free for it, and then none.
    for free in [true, false] {
        let mut sim = if free { released() } else { Sim::new(&[("n1", 1), ("n2", 1)]) };
        if !free {
            sim.gang("train", 2, 2);
        }
        sim.scheduler = true;
        sim.settle();
        let (refused, stays) = (node_of(&sim, "train-0"), node_of(&sim, "train-1"));
        let gang = sim.gangs.get_mut(&world::key("train")).unwrap();
        (gang.phase, gang.since) = (Some(Phase::Committing), Some(sim.now));
        let epoch = gang.epoch;
        sim.pods.get_mut("train-0").unwrap().node = None;
        sim.scheduler = false;
        for seconds in [0, 1, 2] {
            sim.wait(seconds);
            refuse_again(&mut sim, "train-0", LAGS);
            sim.step();
            assert_eq!(sim.state("train").epoch, epoch, "kube-scheduler's view may lag for a moment");
        }
        sim.step();
        refuse_again(&mut sim, "train-0", LAGS);
        sim.step();
        let age = sim.now.duration_since(sim.state("train").since.unwrap());
        assert!(age < SignedDuration::from_secs(30), "no timer has ended: {age:#}");
        if free {
            assert_ne!(node_of(&sim, "train-0"), refused);
            sim.scheduler = true;
            sim.pods.get_mut("train-0").unwrap().unscheduled = None;
            sim.settle();
            assert_eq!(sim.phase("train"), Phase::Bound);
        } else {
            assert_eq!(
                (sim.state("train").epoch, sim.phase("train")),
                (epoch, Phase::Committing),
                "it has no other place"
            );
        }
        assert_eq!(node_of(&sim, "train-1"), stays, "who is bound stays");
        if !free {
            // What cannot become whole is evicted, and starts again whole once it can.
            sim.wait(31);
            sim.settle();
            assert_eq!(sim.evicted, ["train-1"]);
            for (name, rank) in [("again-0", 0), ("again-1", 1)] {
                sim.member("train", name, RankClaim::Rank(rank));
            }
            sim.pods.remove("train-0");
            sim.scheduler = true;
            sim.wait(700);
            sim.settle();
            assert_eq!((sim.phase("train"), sim.bound().len()), (Phase::Bound, 2));
        }
    }
}

#[test]
fn members_that_come_without_capacity_while_others_are_being_bound_hold_nobody_up() {
    let mut sim = Sim::new(&[("n1", 1), ("n2", 1)]);
    sim.gang("train", 2, 2);
    sim.settle();
    let gang = sim.gangs.get_mut(&world::key("train")).unwrap();
    (gang.phase, gang.since) = (Some(Phase::Committing), Some(sim.now));
    sim.pods.get_mut("train-0").unwrap().node = None;
    sim.scheduler = false;
    sim.recognised.insert(world::key("train"), world::recognised("train", Some(3), None));
    sim.member("train", "train-2", RankClaim::Rank(2));
    sim.step();
    assert_eq!(sim.phase("train"), Phase::Committing, "whose binding is under way is bound");
    sim.scheduler = true;
    sim.step();
    assert!(sim.pods["train-0"].node.is_some());
    assert!(sim.evicted.is_empty());
}

/// A strict gang of four three of which are bound; the last one was made again, and is planned alone. kube-scheduler sleeps.
fn half_bound() -> Sim {
    let mut sim = Sim::new(&["n1", "n2", "n3", "n4"].map(|name| (name, 1)));
    sim.gang("train", 4, 4);
    sim.scheduler = false;
    sim.settle();
    let gang = sim.gangs.get_mut(&world::key("train")).unwrap();
    (gang.phase, gang.since) = (Some(Phase::Committing), Some(sim.now));
    for name in ["train-0", "train-1", "train-2"] {
        let node = node_of(&sim, name);
        sim.pods.get_mut(name).unwrap().node = Some(NodeName::from(node.as_str()));
    }
    sim.pods.remove("train-3");
    sim.member("train", "again-3", RankClaim::Rank(3));
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len()), (Phase::Released, 3));
    sim
}

/// How a plan comes to nothing.
type Way = (&'static str, fn(&mut Sim));

#[test]
fn a_gang_that_is_bound_in_part_is_evicted_when_the_plan_for_the_rest_comes_to_nothing() {
    let node_goes = |sim: &mut Sim| drop(sim.nodes.remove(&node_of(sim, "again-3")));
    let expires = |sim: &mut Sim| sim.wait(301);
    let refused = |sim: &mut Sim| {
        for name in ["n5", "n6", "n7"] {
            sim.nodes.insert(name.to_owned(), world::node(name, 1));
        }
        for _ in 0..3 {
            refuse(sim, "again-3", DISK);
            sim.wait(60);
            sim.step();
            sim.pods.get_mut("again-3").unwrap().unscheduled = None;
            sim.step();
            sim.wait(1);
            sim.step();
        }
    };
    let ways: [Way; 3] = [("node", node_goes), ("expiry", expires), ("refusals", refused)];
    for (way, comes_to_nothing) in ways {
        let mut sim = half_bound();
        comes_to_nothing(&mut sim);
        sim.settle();
        assert_eq!(sim.evicted, ["train-2", "train-1", "train-0"], "{way}: {}", sim.message("train"));
        assert_eq!(sim.phase("train"), Phase::Collecting, "{way}");
        assert!(sim.events.contains(&"GangStopped".to_owned()), "{way}: {:?}", sim.events);
        // It starts again whole.
        sim.nodes.insert("n8".to_owned(), world::node("n8", 1));
        for rank in 0..3 {
            sim.member("train", &format!("again-{rank}"), RankClaim::Rank(rank));
        }
        sim.scheduler = true;
        sim.settle();
        assert_eq!((sim.phase("train"), sim.bound().len()), (Phase::Bound, 4), "{way}: {}", sim.message("train"));
    }
}

#[test]
fn a_gang_some_of_whose_members_succeeded_keeps_those_that_run_when_the_plan_for_the_rest_comes_to_nothing() {
    let mut sim = half_bound();
    sim.end("train-0", true);
    sim.step();
    sim.wait(301);
    sim.step();
    let gang = sim.state("train");
    assert_eq!((gang.phase, gang.places.len()), (Some(Phase::Degraded), 3), "{:?}", gang.waiting);
    assert_eq!((sim.reason("train").as_str(), sim.evicted.len()), ("PlanExpired", 0));
    let epoch = gang.epoch;
    sim.settle();
    assert_eq!(sim.state("train").epoch, epoch, "the next plan follows after a pause");
    sim.scheduler = true;
    sim.wait(60);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.bound().len()), (Phase::Bound, 4), "{}", sim.message("train"));
}

#[test]
fn members_are_informed_how_far_their_gang_is_once_it_takes_longer() {
    let mut sim = Sim::new(&[("n1", 1), ("n2", 1), ("n3", 1)]);
    sim.gang("train", 2, 2);
    sim.scheduler = false;
    for _ in 0..3 {
        sim.step();
        sim.wait(1);
    }
    sim.now = sim.state("train").since.unwrap();
    sim.step();
    assert_eq!(sim.phase("train"), Phase::Released);
    assert!(sim.pods.values().all(|pod| pod.reported.is_none()), "not at once");
    sim.wait(3);
    sim.settle();
    assert!(sim.pods.values().all(|pod| pod.reported.as_deref() == Some("Released")));
    refuse(&mut sim, "train-0", DISK);
    sim.step();
    assert_eq!(sim.pods["train-0"].reported.as_deref(), Some("Refused"));
    sim.pods.get_mut("train-0").unwrap().unscheduled = None;
    sim.settle();
    assert!(sim.pods.values().all(|pod| pod.reported.as_deref() == Some("Released")));
    // Nothing is written twice.
    assert!(!sim.pass().actions.iter().any(|action| matches!(action, Action::Report(_))));
    sim.wait(300);
    sim.step();
    assert!(sim.pods.values().all(|pod| pod.reported.as_deref() == Some("Refused")), "the plan was withdrawn");
}

#[test]
fn a_failed_call_of_the_scheduler_is_shown() {
    let mut sim = released();
    let message = "gang barrier: 1 of 2 members after 55 s";
    sim.pods.get_mut("train-1").unwrap().unscheduled = Some((Arc::from("SchedulerError"), Arc::from(message)));
    sim.wait(10);
    sim.step();
    assert_eq!(sim.reason("train"), "SchedulerError");
    assert!(sim.state("train").waiting.as_ref().unwrap().message.contains(message));
}

#[test]
fn a_node_whose_kubelet_did_not_take_a_member_is_excluded_and_people_are_informed() {
    let mut sim = Sim::new(&[("n1", 1), ("n2", 1)]);
    sim.gang("train", 1, 1);
    sim.settle();
    let refused = node_of(&sim, "train-0");
    sim.end("train-0", false);
    sim.pods.get_mut("train-0").unwrap().not_admitted = Some(Arc::from("TopologyAffinityError: cannot be aligned"));
    sim.settle();
    sim.member("train", "again-0", RankClaim::Rank(0));
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
    assert_ne!(node_of(&sim, "again-0"), refused);
    assert_eq!(sim.events.iter().filter(|event| *event == "NotAdmitted").count(), 1, "{:?}", sim.events);
}

#[test]
fn a_node_is_excluded_longer_each_time_its_kubelet_refuses_and_that_is_forgotten_in_the_end() {
    let (mut memory, ttl) = (Memory::default(), SignedDuration::from_mins(10));
    let (shape, node) = (Arc::new(world::shape(1)), NodeName::from("n1"));
    let mut refused = |pod: &str, at: Timestamp| {
        memory.record(&Note::NotAdmitted { pod: pod.into(), shape: Arc::clone(&shape), node: node.clone() }, at, ttl);
        let until = memory.excluded(&node, &shape, at);
        assert_eq!(memory.refused(&node, &shape, at), None, "another node may be provisioned");
        memory.prune(at, &Snapshot::default());
        until.map(|until| until.duration_since(at).as_mins())
    };
    assert_eq!(refused("a", world::at(0)), Some(10));
    assert_eq!(refused("b", world::at(700)), Some(20), "remembered after it was used again");
    assert_eq!(refused("c", world::at(800)), Some(40));
    assert_eq!(refused("d", world::at(100_000)), Some(10));
}

#[test]
fn nothing_is_remembered_of_gangs_that_are_gone() {
    let mut memory = Memory::default();
    memory.record(&Note::Expired { gang: world::key("train"), epoch: 1 }, world::at(0), SignedDuration::from_mins(10));
    let gang = world::gang("train", Phase::Waiting, Vec::new());
    memory.prune(world::at(1), &world::snapshot(&[], &[], &[gang], &[]));
    assert!(memory.knows(&world::key("train")));
    memory.prune(world::at(2), &world::snapshot(&[], &[], &[], &[]));
    assert!(!memory.knows(&world::key("train")));
}

#[test]
fn members_say_what_their_gang_waits_for_once_that_has_lasted_and_no_more_once_they_have_a_node() {
    let mut sim = Sim::new(&[("n1", 1)]);
    sim.gang("train", 30, 30);
    sim.scheduler = false;
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Waiting);
    let shown =
        |sim: &Sim, reason: &str| sim.pods.values().filter(|pod| pod.reported.as_deref() == Some(reason)).count();
    let waiting = |sim: &Sim| sim.state("train").waiting.clone().unwrap();
    let until =
        |sim: &mut Sim, seconds: i64| sim.now = waiting(sim).since.unwrap() + SignedDuration::from_secs(seconds);
    let code = waiting(&sim).reason;
    until(&mut sim, 9);
    sim.step();
    assert_eq!(shown(&sim, &code), 0, "a reason that passes is no news");
    for expected in [20, 30] {
        sim.wait(1);
        sim.step();
        assert_eq!(shown(&sim, &code), expected, "20 at once");
    }
    assert!(!sim.pass().actions.iter().any(|action| matches!(action, Action::Report(_))), "nothing is written twice");
    // A sentence that changes while its reason stays follows, a minute after the one before it at the earliest.
    let before = waiting(&sim);
    sim.nodes.insert("n2".to_owned(), world::node("n2", 1));
    sim.settle();
    let after = waiting(&sim);
    assert!(after.reason == before.reason && after.since == before.since && after.message != before.message);
    let rephrased = |sim: &Sim| {
        sim.pods
            .values()
            .filter(|pod| pod.sentence.as_ref().is_some_and(|shown| shown.message == after.message))
            .count()
    };
    assert_eq!(rephrased(&sim), 0);
    for (seconds, expected) in [(69, 0), (70, 5), (71, 10), (72, 15), (73, 20), (74, 25), (75, 30)] {
        until(&mut sim, seconds);
        let next = sim.pass().requeue_at.map(|at| at.duration_since(sim.now).as_secs());
        assert!(expected == 30 || next == Some(1), "{next:?} after {seconds} s");
        sim.step();
        assert_eq!(rephrased(&sim), expected, "after {seconds} s");
    }
    // Another reason counts from when it came.
    sim.wait(100);
    sim.pods.remove("train-7");
    let changed = sim.now;
    sim.settle();
    let other = waiting(&sim);
    assert_eq!((other.reason == code, other.since), (false, Some(changed)));
    until(&mut sim, 9);
    sim.step();
    assert_eq!((shown(&sim, &code), shown(&sim, &other.reason)), (29, 0));
    for expected in [20, 29] {
        sim.wait(1);
        sim.step();
        assert_eq!(shown(&sim, &other.reason), expected);
    }
    // With nodes for all of them the release says so by itself.
    sim.member("train", "train-30", RankClaim::Rank(7));
    for name in (2..=30).map(|number| format!("n{number}")) {
        sim.nodes.insert(name.clone(), world::node(&name, 1));
    }
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Released);
    assert_eq!((shown(&sim, "Released"), shown(&sim, &other.reason)), (30, 0));
}
