//! Who stands at the barrier, and what follows: judged and taken in one call.

use std::sync::Arc;

use muster_core::extender::barrier::{AfterConflict, Arrivals, CommitObstacle, Judged, Refusal, Then, after_conflict};
use muster_core::model::gang::{Gang, Phase, Pod, RankClaim};
use muster_core::model::names::{NodeName, PodUid};
use muster_core::model::node::{Node, Taint, TaintEffect};
use muster_core::model::snapshot::Snapshot;

use crate::world::{gang, key, member, node, place, snapshot};

const PENDING: &str = "muster.dev/gang-pending";

fn uid(name: &str) -> PodUid {
    PodUid::from(format!("uid-{name}"))
}

/// A gang of `m0`, `m1`, … on `n0`, `n1`, …, released, that needs all of them.
fn released(size: u32) -> Gang {
    gang("g", Phase::Released, (0..size).map(|rank| on(rank, &format!("n{rank}"))).collect())
}

fn on(rank: u32, node: &str) -> muster_core::model::gang::GangPlace {
    place(rank, Some(&format!("m{rank}")), node)
}

fn members(size: u32) -> Vec<Pod> {
    (0..size).map(|rank| member(&format!("m{rank}"), "g", RankClaim::Rank(rank))).collect()
}

fn nodes(size: u32) -> Vec<Node> {
    (0..size).map(|number| node(&format!("n{number}"), 1)).collect()
}

/// The cluster of [`released`], with this Gang instead.
fn world(gang: Gang) -> Snapshot {
    snapshot(&nodes(4), &members(4), &[gang], &[])
}

/// The barrier after these came, each to the node of its number; the waiter of each is its number.
fn stand(numbers: &[u32]) -> Arrivals<u32> {
    let mut arrivals = Arrivals::default();
    for number in numbers {
        let node = NodeName::from(format!("n{number}"));
        arrivals.arrive(uid(&format!("m{number}")), node, u64::from(*number), *number);
    }
    arrivals
}

fn judge(arrivals: &mut Arrivals<u32>, snapshot: &Snapshot) -> Judged<u32> {
    arrivals.judge(snapshot, &key("g"), PENDING)
}

/// Who was taken, and what for.
fn closed(judged: &Judged<u32>) -> Option<(Then, Vec<u32>)> {
    let closed = judged.closed.as_ref()?;
    Some((closed.then, closed.members.iter().map(|member| member.waiter).collect()))
}

#[test]
fn the_barrier_closes_once_the_minimum_stands_and_everybody_is_taken_at_once() {
    let snapshot = world(released(3));
    let mut arrivals = stand(&[0, 1]);
    assert_eq!(judge(&mut arrivals, &snapshot), Judged { refused: vec![], closed: None });
    assert_eq!(arrivals.len(), 2);
    arrivals.arrive(uid("m2"), NodeName::from("n2"), 2, 2);
    assert_eq!(closed(&judge(&mut arrivals, &snapshot)), Some((Then::Commit, vec![0, 1, 2])));
    assert!(arrivals.is_empty());
}

#[test]
fn a_second_judgement_of_the_same_arrivals_takes_nobody_and_commits_nothing() {
    for phase in [Phase::Released, Phase::Committing, Phase::Bound] {
        // All are seen bound by the second look: the minimum stands, and nobody waits.
        let mut bound = members(2);
        for (pod, node) in bound.iter_mut().zip(["n0", "n1"]) {
            pod.node = Some(NodeName::from(node));
        }
        let gang = Gang { phase: Some(phase), ..released(2) };
        let later = snapshot(&nodes(2), &bound, std::slice::from_ref(&gang), &[]);
        let mut arrivals = stand(&[0, 1]);
        assert!(judge(&mut arrivals, &world(gang)).closed.is_some(), "{phase}");
        assert_eq!(judge(&mut arrivals, &later), Judged { refused: vec![], closed: None }, "{phase}");
    }
}

#[test]
fn elastic_members_are_never_waited_for_and_each_role_needs_its_own() {
    let mut elastic = released(3);
    elastic.minimum = 2;
    assert_eq!(closed(&judge(&mut stand(&[0, 2]), &world(elastic.clone()))), Some((Then::Commit, vec![0, 2])));
    elastic.minimum = 0;
    assert_eq!(closed(&judge(&mut stand(&[]), &world(elastic.clone()))), None, "nobody is no gang");
    elastic.minimum = 2;
    elastic.places[2].role = Arc::from("driver");
    elastic.minimums = [(Arc::from("driver"), 1)].into();
    let snapshot = world(elastic);
    assert_eq!(closed(&judge(&mut stand(&[0, 1]), &snapshot)), None);
    assert_eq!(closed(&judge(&mut stand(&[0, 2]), &snapshot)), Some((Then::Commit, vec![0, 2])));
}

#[test]
fn members_seen_bound_on_their_node_stand_and_those_that_failed_or_go_do_not() {
    let with = |change: &dyn Fn(&mut Pod)| {
        let mut pods = members(2);
        change(&mut pods[0]);
        let snapshot = snapshot(&nodes(2), &pods, &[released(2)], &[]);
        closed(&judge(&mut stand(&[1]), &snapshot)).is_some()
    };
    let bound = |pod: &mut Pod| pod.node = Some(NodeName::from("n0"));
    assert!(with(&bound));
    assert!(!with(&|pod| pod.node = Some(NodeName::from("n1"))), "bound elsewhere");
    assert!(!with(&|pod| (pod.node, pod.deleting) = (Some(NodeName::from("n0")), true)));
    let ended = |succeeded| {
        move |pod: &mut Pod| {
            bound(pod);
            (pod.ended, pod.succeeded) = (true, succeeded);
        }
    };
    assert!(with(&ended(true)));
    assert!(!with(&ended(false)), "one that failed is a lost one");
}

#[test]
fn a_waiter_whose_node_changed_in_the_plan_is_sent_away_and_the_others_stay() {
    let mut arrivals = stand(&[0, 1]);
    let mut moved = released(3);
    moved.places[1] = on(1, "n3");
    let snapshot = world(moved);
    assert_eq!(judge(&mut arrivals, &snapshot).refused, vec![(1, Refusal::Replanned)]);
    assert_eq!(arrivals.len(), 1);
    let without = world(Gang { places: vec![on(1, "n1")], ..released(1) });
    assert_eq!(judge(&mut arrivals, &without).refused, vec![(0, Refusal::Replanned)], "no place for it any more");
}

#[test]
fn each_phase_keeps_takes_or_sends_away_whoever_waits() {
    for phase in Phase::ALL {
        let snapshot = world(Gang { phase: Some(phase), ..released(3) });
        let mut arrivals = stand(&[0, 1]);
        let judged = judge(&mut arrivals, &snapshot);
        match phase {
            Phase::Released | Phase::Planned => {
                assert_eq!((judged, arrivals.len()), (Judged { refused: vec![], closed: None }, 2), "{phase}");
            }
            Phase::Committing | Phase::Bound => assert_eq!(closed(&judged), Some((Then::Post, vec![0, 1])), "{phase}"),
            Phase::Collecting
            | Phase::Waiting
            | Phase::Provisioning
            | Phase::Finished
            | Phase::Degraded
            | Phase::Invalid
            | Phase::Unsatisfiable => {
                assert_eq!(judged.refused, vec![(0, Refusal::Replanned), (1, Refusal::Replanned)], "{phase}");
                assert!(arrivals.is_empty(), "{phase}");
            }
        }
    }
    let gone = snapshot(&nodes(2), &members(2), &[], &[]);
    assert_eq!(judge(&mut stand(&[0]), &gone).refused, vec![(0, Refusal::Replanned)]);
}

/// What the commit of a whole gang of one says, once its member and its node were changed.
fn last_check(change: &dyn Fn(&mut Pod), node_change: &dyn Fn(&mut Node)) -> Result<(), Refusal> {
    let (mut pods, mut nodes) = (members(1), nodes(1));
    change(&mut pods[0]);
    node_change(&mut nodes[0]);
    let judged = judge(&mut stand(&[0]), &snapshot(&nodes, &pods, &[released(1)], &[]));
    match judged.refused.first() {
        Some((_, why)) => {
            assert!(judged.closed.is_none());
            Err(*why)
        }
        None => {
            assert_eq!(closed(&judged), Some((Then::Commit, vec![0])));
            Ok(())
        }
    }
}

fn taint(key: &str, effect: TaintEffect) -> Taint {
    Taint { key: Arc::from(key), value: Arc::from("x"), effect }
}

#[test]
fn the_last_look_before_the_commit_names_what_is_in_the_way() {
    let unfit = Err(Refusal::Obstacle(CommitObstacle::NodeUnfit));
    assert_eq!(last_check(&|_| {}, &|_| {}), Ok(()));
    assert_eq!(last_check(&|pod| pod.deleting = true, &|_| {}), Err(Refusal::Obstacle(CommitObstacle::MemberGone)));
    assert_eq!(last_check(&|pod| pod.ended = true, &|_| {}), Err(Refusal::Obstacle(CommitObstacle::MemberGone)));
    assert_eq!(
        last_check(&|pod| pod.uid = "other".into(), &|_| {}),
        Err(Refusal::Obstacle(CommitObstacle::MemberGone))
    );
    let elsewhere = |pod: &mut Pod| pod.node = Some(NodeName::from("n9"));
    assert_eq!(last_check(&elsewhere, &|_| {}), Err(Refusal::Obstacle(CommitObstacle::BoundElsewhere)));
    assert_eq!(last_check(&|_| {}, &|node| node.ready = false), unfit);
    assert_eq!(last_check(&|_| {}, &|node| node.unschedulable = true), unfit);
    assert_eq!(last_check(&|_| {}, &|node| node.deleting = true), unfit);
    assert_eq!(last_check(&|_| {}, &|node| node.name = NodeName::from("other")), unfit);
    let here = |pod: &mut Pod| pod.node = Some(NodeName::from("n0"));
    assert_eq!(last_check(&here, &|node| node.unschedulable = true), Ok(()), "a cordon does not unbind anybody");
}

#[test]
fn a_taint_that_came_after_the_plan_keeps_the_gang_from_being_committed() {
    let tainted = |key: &'static str, effect| move |node: &mut Node| node.taints.push(taint(key, effect));
    let unfit = Err(Refusal::Obstacle(CommitObstacle::NodeUnfit));
    assert_eq!(last_check(&|_| {}, &tainted("maintenance", TaintEffect::NoSchedule)), unfit);
    assert_eq!(last_check(&|_| {}, &tainted("maintenance", TaintEffect::NoExecute)), unfit);
    assert_eq!(last_check(&|_| {}, &tainted("maintenance", TaintEffect::PreferNoSchedule)), Ok(()));
    assert_eq!(last_check(&|_| {}, &tainted(PENDING, TaintEffect::NoSchedule)), Ok(()), "the release tolerates ours");
    let both = |node: &mut Node| {
        node.taints.push(taint(PENDING, TaintEffect::NoSchedule));
        node.taints.push(taint("maintenance", TaintEffect::NoSchedule));
    };
    assert_eq!(last_check(&|_| {}, &both), unfit);
}

#[test]
fn arrivals_are_counted_as_they_come_and_go_and_a_newer_one_stays() {
    let snapshot = world(released(2));
    let mut arrivals = stand(&[0]);
    assert!(arrivals.is_due(&snapshot, &key("g")), "not judged by this plan yet");
    judge(&mut arrivals, &snapshot);
    assert!(!arrivals.is_due(&snapshot, &key("g")));
    assert_eq!(
        arrivals.arrive(uid("m0"), NodeName::from("n0"), 7, 70),
        Some(0),
        "the first of the same pod is replaced"
    );
    assert!(!arrivals.is_due(&snapshot, &key("g")), "one pod, however often it comes");
    assert_eq!(arrivals.leave(&uid("m0"), 0), None, "the connection that closed is the older one");
    arrivals.arrive(uid("m1"), NodeName::from("n1"), 8, 80);
    assert!(arrivals.is_due(&snapshot, &key("g")));
    assert_eq!(arrivals.oldest(), Some(&70));
    assert_eq!(arrivals.leave(&uid("m0"), 7), Some(70));
    assert!(!arrivals.is_due(&snapshot, &key("g")));
    assert_eq!(closed(&judge(&mut arrivals, &snapshot)), None);
    assert_eq!(arrivals.leave_all(), [80]);
    assert!(arrivals.is_empty() && arrivals.oldest().is_none());
}

fn after(now: Gang, snapshot: &Snapshot, numbers: &[u32]) -> Result<AfterConflict, Refusal> {
    let members: Vec<(PodUid, NodeName)> =
        numbers.iter().map(|number| (uid(&format!("m{number}")), NodeName::from(format!("n{number}")))).collect();
    after_conflict(snapshot, &released(2), now, PENDING, &members)
}

#[test]
fn after_a_conflict_the_same_plan_is_written_again_or_followed() {
    let snapshot = world(released(2));
    assert_eq!(after(released(2), &snapshot, &[0, 1]), Ok(AfterConflict::WriteAgain));
    for phase in Phase::ALL {
        let now = Gang { phase: Some(phase), ..released(2) };
        let expected = match phase {
            Phase::Released => Ok(AfterConflict::WriteAgain),
            Phase::Committing | Phase::Bound => Ok(AfterConflict::Forward),
            Phase::Collecting
            | Phase::Waiting
            | Phase::Provisioning
            | Phase::Planned
            | Phase::Finished
            | Phase::Degraded
            | Phase::Invalid
            | Phase::Unsatisfiable => Err(Refusal::Replanned),
        };
        assert_eq!(after(now, &snapshot, &[0, 1]), expected, "{phase}");
    }
}

#[test]
fn after_a_conflict_an_empty_list_stands_for_nobody() {
    for phase in Phase::ALL {
        let now = Gang { phase: Some(phase), ..released(2) };
        assert_eq!(after(now, &world(released(2)), &[]), Err(Refusal::Replanned), "{phase}");
    }
}

#[test]
fn after_a_conflict_the_minimum_is_counted_again() {
    let grown = released(3);
    assert_eq!(after(grown, &world(released(3)), &[0, 1]), Err(Refusal::BelowMinimum));
    let mut third = members(4);
    third[2].node = Some(NodeName::from("n2"));
    let bound = snapshot(&nodes(4), &third, &[released(3)], &[]);
    assert_eq!(after(released(3), &bound, &[0, 1]), Ok(AfterConflict::WriteAgain), "the third runs already");
}

#[test]
fn after_a_conflict_another_node_another_gang_or_an_obstacle_ends_the_commit() {
    let snapshot = world(released(2));
    let moved = Gang { places: vec![on(0, "n0"), on(1, "n3")], ..released(2) };
    assert_eq!(after(moved, &snapshot, &[0, 1]), Err(Refusal::Replanned));
    let another = Gang { uid: Arc::from("another"), ..released(2) };
    assert_eq!(after(another, &snapshot, &[0, 1]), Err(Refusal::Replanned));
    let mut going = members(4);
    going[0].deleting = true;
    let going = crate::world::snapshot(&nodes(4), &going, &[released(2)], &[]);
    assert_eq!(after(released(2), &going, &[0, 1]), Err(Refusal::Obstacle(CommitObstacle::MemberGone)));
}
