//! Nodes that stand ready for a gang that has no plan for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use muster_core::gang::{BatchStage, BatchView, Memory, Note};
use muster_core::model::gang::{Phase, Pod, RankClaim, RawTopologyRequest};
use muster_core::model::node::{Taint, TaintEffect};
use muster_core::model::pod::Shape;

use super::sim::{PENDING, Sim, levels, pool};
use crate::world;

/// What kube-scheduler says for a reason that no planner models.
const DISK: &str = "0/2 nodes are available: 2 node(s) had no available disk.";

/// A gang of eight for which two nodes were provisioned; they are ready, and kube-scheduler sleeps.
fn provisioned() -> Sim {
    let mut sim = Sim::new(&[]);
    sim.pools.push(pool());
    sim.gang("train", 8, 8);
    sim.scheduler = false;
    sim.settle();
    sim
}

/// The nodes of the newest batch join, tainted for the gang.
fn join(sim: &mut Sim) {
    join_with(sim, 4);
}

/// The same, with so many accelerators each.
fn join_with(sim: &mut Sim, gpus: i64) {
    let value = Arc::clone(&sim.state("train").uid);
    for number in [1, 2] {
        // Another instance is another Node.
        let name = format!("n{}-{number}", sim.provisioned.len());
        let mut node = world::node(&name, gpus);
        node.labels.insert("node.kubernetes.io/instance-type".into(), "p5.48xlarge".into());
        node.taints.push(Taint { key: Arc::from(PENDING), value: Arc::clone(&value), effect: TaintEffect::NoSchedule });
        sim.nodes.insert(name, node);
    }
    let name = sim.provisioned.last().unwrap().clone();
    sim.stage(&name, BatchStage::Ready);
}

/// Minutes after which the nodes are given up, one step a second; `None` if they are not within an hour. `each` does what
/// others do meanwhile.
fn given_up_after(sim: &mut Sim, mut each: impl FnMut(&mut Sim)) -> Option<i64> {
    let ready = sim.now;
    while sim.abandoned.is_empty() {
        if sim.now.duration_since(ready) > SignedDuration::from_hours(1) {
            return None;
        }
        each(sim);
        sim.step();
        sim.wait(1);
    }
    Some(sim.now.duration_since(ready).as_mins())
}

#[test]
fn ready_nodes_of_a_gang_a_member_of_which_never_comes_again_are_terminated_after_a_quarter_of_an_hour() {
    let mut sim = provisioned();
    sim.pods.remove("train-3");
    join(&mut sim);
    assert_eq!(given_up_after(&mut sim, |_| {}), Some(15));
    assert_eq!((sim.phase("train"), &sim.abandoned), (Phase::Collecting, &sim.provisioned));
    assert!(sim.events.iter().any(|event| event == "NodesGivenUp"), "{:?}", sim.events);
    // Once it is whole, others are provisioned.
    sim.nodes.clear();
    sim.member("train", "again-3", RankClaim::Rank(3));
    sim.settle();
    assert_eq!((sim.phase("train"), sim.provisioned.len()), (Phase::Provisioning, 2));
}

#[test]
fn the_pass_that_gives_them_up_is_asked_for_in_time() {
    let mut sim = provisioned();
    sim.pods.remove("train-3");
    join(&mut sim);
    let ready = sim.now;
    sim.settle();
    sim.wait(60);
    assert_eq!(sim.pass().requeue_at, Some(ready + SignedDuration::from_mins(15)));
}

#[test]
fn ready_nodes_of_a_gang_that_is_held_or_cannot_be_read_are_terminated_as_well() {
    let hold = |pod: &mut Pod| pod.foreign_gate = Some(Arc::from("quota.example.com/held"));
    let spoil = |pod: &mut Pod| pod.shape = Err(Arc::from("cpu: not a number"));
    type Change = fn(&mut Pod);
    for (what, change) in [("held", hold as Change), ("not readable", spoil)] {
        let mut sim = provisioned();
        change(sim.pods.get_mut("train-3").unwrap());
        join(&mut sim);
        assert_eq!(given_up_after(&mut sim, |_| {}), Some(15), "{what}");
    }
}

#[test]
fn nodes_on_which_the_scheduler_refuses_a_member_for_ever_are_terminated_however_often_the_plan_is_made_again() {
    let mut sim = provisioned();
    join(&mut sim);
    let refuse = |sim: &mut Sim| {
        let pod = sim.pods.get_mut("train-0").unwrap();
        pod.unscheduled = Some((Arc::from("Unschedulable"), Arc::from(DISK)));
    };
    for round in 1..=2 {
        let after = given_up_after(&mut sim, refuse);
        assert!(after.is_some_and(|minutes| (15..=26).contains(&minutes)), "{after:?}");
        assert_eq!(sim.provisioned.len(), round);
        let closed = sim.memory.closed("p5.48xlarge", &world::shape(1), sim.now);
        assert_eq!(closed.is_some(), round == 2, "what holds nobody twice is not provisioned a third time at once");
        // Their nodes go, and after a pause others come.
        sim.nodes.clear();
        sim.abandoned.clear();
        sim.batches.clear();
        sim.pods.get_mut("train-0").unwrap().unscheduled = None;
        sim.wait(60);
        sim.settle();
        if round == 1 {
            join(&mut sim);
        }
    }
    assert_eq!((sim.phase("train"), sim.provisioned.len()), (Phase::Waiting, 2), "{}", sim.message("train"));
}

/// The batch that is ready is given up, its nodes go, and after a pause the next is provisioned if anything is.
fn next_round(sim: &mut Sim) {
    assert!(given_up_after(sim, |_| {}).is_some_and(|minutes| minutes < 5), "{}", sim.message("train"));
    sim.nodes.clear();
    sim.abandoned.clear();
    sim.batches.clear();
    sim.wait(120);
    sim.settle();
}

#[test]
fn a_type_whose_nodes_twice_hold_less_than_they_were_provisioned_for_is_not_provisioned_a_third_time_at_once() {
    let mut sim = provisioned();
    for round in 1..=2 {
        assert_eq!(sim.provisioned.len(), round, "{}", sim.message("train"));
        join_with(&mut sim, 3);
        next_round(&mut sim);
        assert_eq!(sim.memory.closed("p5.48xlarge", &world::shape(1), sim.now).is_some(), round == 2);
    }
    assert_eq!((sim.phase("train"), sim.provisioned.len()), (Phase::Waiting, 2), "{}", sim.message("train"));
}

#[test]
fn a_type_whose_nodes_came_up_too_far_apart_stays_on_sale() {
    let mut sim = Sim::new(&[]);
    sim.levels = levels(&[("zone", "topology.kubernetes.io/zone"), ("rack", "rack")]);
    sim.pools.push(pool());
    sim.gang("train", 8, 8);
    let required = RawTopologyRequest { value: Arc::from("rack"), key: "muster.dev/topology-required" };
    sim.recognised.get_mut(&world::key("train")).unwrap().topology_requests.required = Some(required);
    sim.settle();
    for round in 1..=2 {
        assert_eq!(sim.provisioned.len(), round, "{}", sim.message("train"));
        join(&mut sim);
        for (name, node) in &mut sim.nodes {
            node.labels.insert("rack".into(), name.as_str().into());
        }
        next_round(&mut sim);
        assert_eq!(sim.memory.closed("p5.48xlarge", &world::shape(1), sim.now), None);
    }
    assert_eq!(sim.provisioned.len(), 3, "where nodes come up is luck: {}", sim.message("train"));
}

#[test]
fn nodes_for_which_every_plan_expires_are_terminated() {
    let mut sim = provisioned();
    join(&mut sim);
    let after = given_up_after(&mut sim, |_| {});
    assert!(after.is_some_and(|minutes| (15..=25).contains(&minutes)), "{after:?}");
    assert_eq!((sim.phase("train"), sim.reason("train").as_str()), (Phase::Waiting, "PlanExpired"));
}

#[test]
fn nodes_that_a_plan_is_under_way_for_stay_and_so_do_those_of_a_gang_that_runs() {
    let mut sim = provisioned();
    join(&mut sim);
    sim.wait(900);
    sim.scheduler = true;
    sim.settle();
    assert_eq!((sim.phase("train"), sim.abandoned.len()), (Phase::Bound, 0), "it came just in time");
    sim.wait(3600);
    sim.settle();
    assert!(sim.abandoned.is_empty());
}

#[test]
fn a_type_whose_kubelets_refuse_a_gang_is_provisioned_less_and_less_often_and_as_ever_once_the_gang_runs() {
    let mut sim = provisioned();
    (sim.scheduler, sim.kubelets) = (true, false);
    let begin = sim.now;
    let (mut stated, mut rounds) = (BTreeSet::new(), Vec::new());
    while sim.now.duration_since(begin) < SignedDuration::from_hours(4) {
        come_and_go(&mut sim);
        if sim.provisioned.len() > rounds.len() {
            rounds.push(sim.now.duration_since(begin).as_secs());
        }
        stated.insert((sim.phase("train").as_str(), sim.message("train").contains("refused such members")));
    }
    assert!((6..=9).contains(&rounds.len()), "{rounds:?}");
    assert!(stated.contains(&("Waiting", true)), "it is stated: {stated:?}");
    sim.kubelets = true;
    while sim.phase("train") != Phase::Bound {
        come_and_go(&mut sim);
    }
    sim.settle();
    assert_eq!(sim.memory.closed("p5.48xlarge", &world::shape(1), sim.now), None);
    assert!(sim.now.duration_since(begin) < SignedDuration::from_hours(6), "an hour at most");
}

/// Nodes join as they are provisioned; a gang whose members ended there is made again by its owner, and the nodes go.
fn come_and_go(sim: &mut Sim) {
    let provisioning = |batch: &BatchView| batch.stage == BatchStage::Provisioning;
    if sim.batches.values().any(provisioning) {
        join(sim);
    }
    sim.settle();
    if sim.pods.values().any(|pod| pod.ended) {
        sim.pods.clear();
        sim.nodes.clear();
        sim.batches.clear();
        for rank in 0..8 {
            sim.member("train", &format!("train-{rank}"), RankClaim::Rank(rank));
        }
    }
    sim.wait(10);
}

#[test]
fn of_a_type_two_refused_rounds_count_whoever_they_were_for_each_once_and_for_such_members_alone() {
    let (mut memory, shape) = (Memory::default(), Arc::new(world::shape(1)));
    let ttl = SignedDuration::from_mins(10);
    let mut refused = |gang: &str, round: u32, seconds: i64| {
        let (gang, batch) = (world::key(gang), Arc::from(format!("{gang}-{round}")));
        let kind = (Arc::from("p5.48xlarge"), Arc::clone(&shape));
        memory.record(&Note::RoundRefused { gang, batch, kind }, world::at(seconds), ttl);
        let closed = |kind: &str, shape: &Shape| memory.closed(kind, shape, world::at(seconds));
        assert_eq!((closed("p4d.24xlarge", &shape), closed("p5.48xlarge", &world::shape(2))), (None, None));
        closed("p5.48xlarge", &shape).map(|until| until.duration_since(world::at(seconds)).as_mins())
    };
    assert_eq!(refused("a", 1, 0), None);
    assert_eq!(refused("a", 1, 10), None, "another member of the same round");
    assert_eq!(refused("b", 1, 20), Some(5));
    for gang in ["c", "d", "e", "f"] {
        assert_eq!(refused(gang, 1, 20), Some(5), "they stood on such nodes at the same time");
    }
    let pauses: Vec<Option<i64>> = (2..7).map(|round| refused("b", round, 4000 * i64::from(round))).collect();
    assert_eq!(pauses, [Some(10), Some(20), Some(40), Some(60), Some(60)]);
    memory.prune(world::at(200_000), &world::snapshot(&[], &[], &[], &[]));
    assert_eq!(memory, Memory::default(), "a day later nothing is held against it");
}
