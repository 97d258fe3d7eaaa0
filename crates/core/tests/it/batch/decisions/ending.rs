//! A batch whose gang runs or has ended: idle, drained, terminated, gone.

use jiff::SignedDuration;
use muster_core::batch::{Change, Converge, Look, Made, OwnerLook, Sight};
use muster_core::ec2::{GroupState, InstanceState, PlacementGroup, ResourceKind, Tags};
use muster_core::model::batch::{BatchMember, BatchPhase, MemberState, Share};
use muster_core::model::gang::{Gang, Phase, Pod};
use muster_core::model::node::Node;

use super::super::cluster::{DISRUPTED, PENDING};
use super::compare;
use super::scene::{NOW, Scene, error, having, lose, member, single, tags, taint};
use crate::world::{self, at, place};

const GONE: InstanceState = InstanceState::Terminated;

fn of(phase: BatchPhase) -> Scene {
    Scene::new(having(phase, MemberState::Ready, &["i-1", "i-2"])).with_nodes()
}

fn finished(phase: BatchPhase) -> Scene {
    of(phase).with(|one| one.gangs = vec![world::gang("a", Phase::Finished, Vec::new())])
}

fn idle_since(scene: Scene, seconds: i64) -> Scene {
    scene.status(|status| status.idle_since = Some(at(NOW - seconds)))
}

fn foreign(scene: Scene) -> Scene {
    scene.with(|one| one.pods = vec![single("b", "i-2"), single("a", "i-1")])
}

/// A member of the gang is being deleted on i-1, whose kubelet is gone: that is known for so long.
fn stuck(scene: Scene, seconds: impl Into<Option<i64>>) -> Scene {
    let since = seconds.into().map(|seconds| at(NOW - seconds));
    scene.status(|status| status.instances[0].empty_since = since).with(|one| {
        one.nodes[0].ready = false;
        one.pods = vec![Pod { deleting: true, ..member("a", 0, "i-1") }];
    })
}

#[test]
fn a_batch_is_idle_once_its_gang_has_ended_and_the_last_member_has_left() {
    let in_use = || of(BatchPhase::InUse);
    let ended = || finished(BatchPhase::InUse);
    let late = |seconds| idle_since(foreign(ended()), seconds);
    let booked = |phase, node: &str, other: Option<&'static str>| {
        in_use().of_request().with(|one| {
            one.booked = Some(other.unwrap_or("r"));
            one.gangs = vec![world::gang("a", phase, vec![place(0, Some("a-0"), node)])];
            // Its pods are there again, and wait.
            one.pods = vec![Pod { node: None, ..member("a", 0, "i-1") }];
        })
    };
    let rows = [
        ("the gang runs", in_use().bound(&["i-1", "i-2"])),
        ("the gang runs again", idle_since(in_use().bound(&["i-1", "i-2"]), 60)),
        (
            "the gang runs, and the batch is deleted",
            in_use().bound(&["i-1", "i-2"]).with(|one| one.batch.deleting = true),
        ),
        (
            "the gang runs elsewhere",
            in_use().with(|one| one.gangs = vec![world::gang("a", Phase::Bound, vec![place(0, None, "n-i-9")])]),
        ),
        ("the gang waits for a plan", in_use()),
        ("the gang waits for a plan for some minutes", idle_since(in_use(), 600)),
        ("the gang waits for a plan for a quarter of an hour", idle_since(in_use(), 900)),
        ("the gang waits for a plan, and a member is there still", {
            in_use().with(|one| one.pods = vec![member("a", 0, "i-1")])
        }),
        (
            "the gang was planned here just in time",
            idle_since(in_use(), 900).with(|one| {
                one.gangs = vec![world::gang("a", Phase::Released, vec![place(0, Some("a-0"), "n-i-1")])];
                one.pods = vec![Pod { node: None, ..member("a", 0, "i-1") }];
            }),
        ),
        ("the gang of its booking has ended", in_use().of_request()),
        ("the gang of its booking runs", in_use().of_request().bound(&["i-1"]).with(|one| one.booked = Some("r"))),
        (
            "the gang of its booking runs, and the request is gone",
            in_use().of_request().bound(&["i-1"]).with(|one| {
                one.booked = Some("r");
                one.says.requests = false;
            }),
        ),
        ("the gang of its booking was evicted", booked(Phase::Waiting, "n-i-1", None)),
        ("the gang of its booking was evicted, and a member is there still", {
            booked(Phase::Waiting, "n-i-1", None).with(|one| one.pods = vec![member("a", 0, "i-1")])
        }),
        (
            "the gang of its booking was evicted a quarter of an hour ago",
            idle_since(booked(Phase::Waiting, "n-i-1", None), 900),
        ),
        ("the gang of its booking was evicted, and runs elsewhere", booked(Phase::Bound, "n-i-9", None)),
        ("the gang of its booking was evicted, and has ended", booked(Phase::Finished, "n-i-1", None)),
        ("the gang of its booking was evicted, and is being deleted", {
            booked(Phase::Waiting, "n-i-1", None).with(|one| one.gangs[0].deleting = true)
        }),
        ("a gang of another booking was evicted", booked(Phase::Waiting, "n-i-1", Some("s"))),
        ("the gang has ended", ended()),
        ("the gang has ended, and a member leaves", ended().with(|one| one.pods = vec![member("a", 0, "i-1")])),
        (
            "the gang has ended, and a member and another are there",
            foreign(ended()).with(|one| one.pods.push(member("c", 0, "i-1"))),
        ),
        (
            "the gang has ended, and pods of DaemonSets and ended ones are there",
            foreign(ended()).with(|one| {
                one.pods[0].daemon = true;
                one.pods[1].ended = true;
            }),
        ),
        ("the gang has ended, and pods of no gang are there", foreign(ended())),
        ("pods of no gang are there for almost fifteen minutes", late(899)),
        ("pods of no gang are there for fifteen minutes", late(900)),
        ("pods of no gang are there for half an hour", late(1800)),
        ("pods of no gang are leaving", late(900).with(|one| one.pods[0].deleting = true)),
        ("pods of no gang may stay for ever", late(90_000).with(|one| one.says.foreign = None)),
        ("a member is deleted, and its node is not Ready", stuck(ended(), None)),
        ("a member is deleted, and its node is not Ready for 4 min", stuck(ended(), 240)),
        ("a member is deleted, and its node is not Ready for 5 min", stuck(ended(), 300)),
        (
            "a member is deleted, its node is not Ready for 5 min, and another is there",
            stuck(ended(), 300).with(|one| one.pods.push(member("a", 1, "i-2"))),
        ),
        ("a member is deleted, and its node is Ready again", stuck(ended(), 300).with(|one| one.nodes[0].ready = true)),
        ("a member runs on, and its node is not Ready", stuck(ended(), None).with(|one| one.pods[0].deleting = false)),
        (
            "the gang waits for a plan, and a member is deleted where the node is not Ready for 5 min",
            stuck(in_use(), 300),
        ),
    ];
    compare("ending-in-use", &rows);
}

/// Nodes that wait for a gang of which the API server says that it is gone or has ended.
fn ready_for_nobody(gangs: Vec<Gang>) -> Scene {
    let look = Look::Owner(OwnerLook::Gang { key: world::key("a"), uid: "a-uid".to_owned() });
    of(BatchPhase::Ready).saw(look, Sight::Owner(false)).with(|one| one.gangs = gangs)
}

#[test]
fn nodes_of_a_gang_that_ended_before_they_were_written_down_as_in_use_stay_as_long_as_the_pool_says() {
    let ended = || vec![world::gang("a", Phase::Finished, Vec::new())];
    for gangs in [Vec::new(), ended()] {
        let mut scene = ready_for_nobody(gangs).with(|one| one.says.consolidate = None);
        let ready = scene.decide();
        let idle = ready.next.expect("nobody waits for them any more");
        assert_eq!((idle.phase, idle.idle_since), (BatchPhase::Idle, Some(at(NOW))));
        assert_eq!((ready.change, ready.converge), (None, Vec::new()));
        scene.batch.status = idle;
        let kept = scene.decide();
        assert_eq!((kept.next, kept.change), (None, None), "consolidateAfter: Never");
    }
}

#[test]
fn nodes_held_for_a_gang_that_ended_are_opened_before_they_are_idle_and_a_deleted_batch_drains_at_once() {
    let held = |scene: Scene| {
        scene.with(|one| {
            for node in &mut one.nodes {
                node.taints.push(taint(PENDING, "a-uid"));
                node.held = true;
            }
        })
    };
    let opened = held(ready_for_nobody(Vec::new())).decide();
    let unhold = |id: &str| Converge::Unhold { node: format!("n-{id}") };
    assert_eq!((opened.next, opened.converge), (None, vec![unhold("i-1"), unhold("i-2")]));
    let deleted = held(ready_for_nobody(Vec::new())).with(|one| one.batch.deleting = true).decide();
    assert_eq!(deleted.next.map(|next| next.phase), Some(BatchPhase::Draining));
}

#[test]
fn nodes_stay_ready_while_the_api_server_has_the_gang_that_the_cache_does_not_show() {
    let look = Look::Owner(OwnerLook::Gang { key: world::key("a"), uid: "a-uid".to_owned() });
    let scene = ready_for_nobody(Vec::new()).saw(look, Sight::Owner(true));
    assert_eq!(scene.decide().next, None);
}

#[test]
fn idle_nodes_go_together_when_they_were_quiet_for_long_enough() {
    let idle = |seconds| idle_since(finished(BatchPhase::Idle), seconds);
    let planned = |scene: Scene| {
        scene
            .with(|one| one.gangs.push(world::gang("b", Phase::Committing, vec![place(0, Some("b-0"), "n-i-1")])))
            .with(|one| {
                let mut pod = member("b", 0, "i-1");
                pod.node = None;
                one.pods.push(pod);
            })
    };
    let rows = [
        ("they are quiet since just now", finished(BatchPhase::Idle)),
        ("they are quiet for almost five minutes", idle(299)),
        ("they are quiet for five minutes", idle(300)),
        ("they may stay for ever", idle(90_000).with(|one| one.says.consolidate = None)),
        ("a person deletes the batch", idle(1).with(|one| one.batch.deleting = true)),
        ("a member of another gang came", idle(300).with(|one| one.pods = vec![member("b", 0, "i-1")])),
        ("a gang is planned here", planned(idle(300))),
        ("pods of no gang are there", foreign(idle(300))),
        ("pods of no gang are there for fifteen minutes", foreign(idle(900))),
        ("pods of no gang are there, and the batch is deleted", foreign(idle(1)).with(|one| one.batch.deleting = true)),
        ("a member is deleted, and its node is not Ready for 4 min", stuck(idle(299), 240)),
        ("a member is deleted, and its node is not Ready for 5 min", stuck(idle(299), 300)),
        ("its gang came again", idle_since(of(BatchPhase::Idle).bound(&["i-1", "i-2"]), 60)),
        ("its gang came again, and is named after a later batch", {
            let scene = idle_since(of(BatchPhase::Idle).bound(&["i-1", "i-2"]), 60);
            scene.with(|one| one.gangs[0].batch = Some("a-2".into()))
        }),
        (
            "the gang of its booking came again",
            of(BatchPhase::Idle).of_request().bound(&["i-1", "i-2"]).with(|one| one.booked = Some("r")),
        ),
        ("nodes go at once", idle(0).with(|one| one.says.consolidate = Some(SignedDuration::ZERO))),
    ];
    compare("ending-idle", &rows);
}

#[test]
fn draining_keeps_new_pods_away_before_anything_ends() {
    let tainted = |node: &mut Node| node.taints.push(taint(DISRUPTED, ""));
    let draining = || finished(BatchPhase::Draining);
    let tainted_all = || draining().with(|one| one.nodes.iter_mut().for_each(tainted));
    let since = |seconds: i64| {
        tainted_all().status(|status| {
            status.instances.iter_mut().for_each(|one| one.leaving_since = Some(at(NOW - seconds)));
        })
    };
    // A machine that ends is no ready node.
    let drained = || since(10).status(|status| status.ready_count = 2);
    let look = |ids: &[&str]| Look::Occupied(ids.iter().map(|id| format!("n-{id}")).collect());
    let holds = |scene: Scene, ids: &[&str], held: &[&str]| {
        scene.saw(look(ids), Sight::Names(held.iter().map(|id| format!("n-{id}")).collect()))
    };
    let ending = |seconds: i64| {
        drained().status(|status| {
            lose(&mut status.instances[1]);
            status.instances[1].loss.as_mut().unwrap().deadline = Some(at(NOW + seconds));
        })
    };
    let planned = |scene: Scene| {
        scene.with(|one| {
            one.gangs.push(world::gang("b", Phase::Committing, vec![place(0, Some("b-0"), "n-i-1")]));
            let mut pod = member("b", 0, "i-1");
            pod.node = None;
            one.pods.push(pod);
        })
    };
    let rows = [
        ("the taint is missing", draining()),
        ("the taint is missing on one", draining().with(|one| tainted(&mut one.nodes[0]))),
        ("another taint is there", draining().with(|one| one.nodes[0].taints.push(taint("team", "")))),
        ("another instance has the name of a node", draining().renamed("i-1")),
        ("the nodes are not there", draining().with(|one| one.nodes.clear())),
        ("a gang is planned here", planned(drained())),
        ("a member is there", drained().with(|one| one.pods = vec![member("b", 0, "i-1")])),
        ("pods of no gang are there", foreign(drained())),
        ("pods of no gang are there for fifteen minutes", idle_since(foreign(drained()), 900)),
        ("pods of no gang are there for half an hour", idle_since(foreign(drained()), 1800)),
        ("a member is deleted, and its node is not Ready for 4 min", stuck(drained(), 240)),
        ("a member is deleted, and its node is not Ready for 5 min", stuck(drained(), 300)),
        (
            "a member is deleted, its node is not Ready for 5 min, and nobody is on the other",
            holds(stuck(drained(), 300), &["i-2"], &[]),
        ),
        ("tainted just now", tainted_all()),
        ("tainted for nine seconds", since(9)),
        ("tainted for ten seconds: the API server is asked", drained()),
        (
            "tainted for nine seconds, and not Ready",
            since(9).with(|one| one.nodes.iter_mut().for_each(|node| node.ready = false)),
        ),
        ("one was tainted again", drained().status(|status| status.instances[1].leaving_since = None)),
        ("somebody took a taint off", drained().with(|one| one.nodes[1].taints.clear())),
        ("the API server has a pod there", holds(drained(), &["i-1", "i-2"], &["i-2"])),
        ("the API server does not answer", drained().failed_to_see(look(&["i-1", "i-2"]))),
        ("the API server is asked, and another instance has the name of a node", drained().renamed("i-1")),
        ("the API server is asked, and EC2 ends one in a second", ending(1)),
        ("the API server is asked, and EC2 ends one now", ending(0)),
        ("nobody is there", holds(drained(), &["i-1", "i-2"], &[])),
    ];
    compare("ending-draining", &rows);
}

#[test]
fn the_end_leaves_nothing_in_ec2_and_then_no_object() {
    let ending = || {
        finished(BatchPhase::Terminating)
            .status(|status| status.instances.iter_mut().for_each(|one| one.state = MemberState::Terminating))
    };
    let ended = || ending().instances(&[("i-1", GONE), ("i-2", GONE)]).swept_all(&[]);
    let gone = || {
        ended().status(|status| {
            status.instances.iter_mut().for_each(|one| one.state = MemberState::Gone);
            let earlier = Share { node_pool: "p1".to_owned(), spent: 3, ..Share::default() };
            let billing = status.billing.as_mut().unwrap();
            (billing.spent, billing.earlier, billing.closed) = (7, vec![earlier], true);
        })
    };
    let grouped = || gone().status(|status| status.placement_group = Some("mine".to_owned()));
    let delete = || Change::DeleteGroup("mine".to_owned());
    let templates = || Change::DeleteTemplates(tags(1));
    let group = |tags: Tags| {
        let (name, id, strategy) = ("mine".to_owned(), "pg-1".to_owned(), "cluster".to_owned());
        Sight::Group(Some(PlacementGroup { name, id, state: GroupState::Available, strategy, tags }))
    };
    let look = || Look::Group("mine".to_owned());
    let in_use = error("DeletePlacementGroup", Some("InvalidPlacementGroup.InUse"));
    let trouble = || error("DeleteLaunchTemplate", Some("InternalError"));
    let lost = || {
        gone().done(templates(), Ok(Made::Nothing)).status(|status| {
            let mut one =
                BatchMember { node: Some("n-i-3".to_owned()), ..BatchMember::new("i-3".into(), 1, MemberState::Lost) };
            lose(&mut one);
            status.replaced.push(one);
            status.attempts[0].fleet = Some("fleet-1".to_owned());
        })
    };
    let rows = [
        ("the instances are looked at", ending()),
        ("one runs", ending().instances(&[("i-1", InstanceState::Running), ("i-2", GONE)]).swept_all(&[])),
        ("they were just ended", ending().done(Change::Terminate(vec!["i-1".into(), "i-2".into()]), Ok(Made::Nothing))),
        ("one is ending", ending().instances(&[("i-1", InstanceState::ShuttingDown), ("i-2", GONE)]).swept_all(&[])),
        (
            "the tags find one of an attempt that was given up",
            ending().instances(&[("i-1", GONE), ("i-2", GONE)]).swept_all(&[("i-9", InstanceState::Pending)]),
        ),
        ("all have ended: the bill is closed", ended()),
        (
            "nothing is listed and something was spent: the bill is closed",
            ended().status(|status| {
                status.instances.clear();
                status.billing.as_mut().unwrap().spent = 7;
            }),
        ),
        ("nothing was ever launched: there is no bill", ended().status(|status| status.instances.clear())),
        ("the bill is closed: the templates go", gone()),
        ("the templates are gone: what each pool spent is booked", gone().done(templates(), Ok(Made::Nothing))),
        (
            "nothing was spent: nothing is booked",
            gone().done(templates(), Ok(Made::Nothing)).status(|status| status.billing = None),
        ),
        ("the templates cannot be deleted", gone().done(templates(), Err(trouble()))),
        (
            "another instance has the name of a Node: that one stays",
            gone().done(templates(), Ok(Made::Nothing)).renamed("i-1"),
        ),
        ("the Nodes are gone too", gone().done(templates(), Ok(Made::Nothing)).with(|one| one.nodes.clear())),
        ("fleets are left to be deleted", lost()),
        ("the group is looked at", grouped()),
        ("the group is ours", grouped().saw(look(), group(tags(1).of(ResourceKind::PlacementGroup)))),
        ("the group is somebody else's", grouped().saw(look(), group(Tags::new()))),
        ("the group is deleted", grouped().with(|one| one.memory.seen.clear()).done(delete(), Ok(Made::Nothing))),
        ("the group is in use", grouped().done(delete(), Err(in_use))),
        ("the group cannot be deleted", grouped().done(delete(), Err(trouble()))),
    ];
    compare("ending-terminating", &rows);
}
