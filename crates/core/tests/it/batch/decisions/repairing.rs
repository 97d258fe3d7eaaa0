//! A batch that has lost nodes: it shrinks, or they are replaced in place, or all of it goes.

use std::sync::Arc;

use muster_core::batch::{Change, LastLooks, Look, Made, OwnerLook, Sight};
use muster_core::ec2::{
    CallError, CapacityType, FleetError, InstanceState, LaunchAnswer, NoticeKind, TAG_CLUSTER_UID, Tags, Target,
};
use muster_core::model::batch::{Attempt, AttemptOutcome, BatchMember, BatchPhase, LossCause, MemberState};
use muster_core::model::gang::{Phase, Pod};
use muster_core::model::names::InstanceId;

use super::super::ec2::CLUSTER_UID;
use super::compare;
use super::scene::{NOW, Scene, attempt, error, having, instances, launched, lose, loss, member, node, single};
use crate::world::{self, at, key};

const RUNNING: InstanceState = InstanceState::Running;
const GONE: InstanceState = InstanceState::Terminated;

/// Three nodes in use, the last of which is lost.
fn lost() -> Scene {
    let mut status = having(BatchPhase::InUse, MemberState::Ready, &["i-1", "i-2", "i-3"]);
    lose(&mut status.instances[2]);
    status.ready_count = 3;
    Scene::new(status).with_nodes().bound(&["i-1", "i-2", "i-3"])
}

/// The launch of all nodes went into a reservation, whose end takes the last of them or those that are lost already.
fn in_block(scene: Scene, block: bool) -> Scene {
    scene.status(|status| {
        status.capacity_type = Some(CapacityType::Reserved);
        let won = &mut status.attempts[0];
        into_reservation(won);
        won.reservation.as_mut().unwrap().block = block;
        let lost = status.instances.iter_mut().chain(&mut status.replaced).filter(|one| one.loss.is_some());
        let cause = LossCause::Notice(NoticeKind::BlockExpiration);
        lost.for_each(|one| one.loss = Some(loss(cause, "the Capacity Block ends")));
    })
}

fn minimum(scene: Scene, minimum: u32) -> Scene {
    scene.with(|one| one.gangs[0].minimum = minimum)
}

#[test]
fn a_gang_that_keeps_its_minimum_goes_on_and_others_get_a_replacement() {
    // EC2 had started one more than it was asked for, and the gang took it.
    let beyond = |gone: std::ops::Range<usize>| {
        let mut status = having(BatchPhase::InUse, MemberState::Ready, &["i-1", "i-2", "i-3", "i-4"]);
        status.instances[gone].iter_mut().for_each(lose);
        let scene = Scene::new(status).with_nodes().bound(&["i-1", "i-2", "i-3"]);
        minimum(scene.with(|one| Arc::make_mut(&mut one.batch.spec).count = 3), 4)
    };
    let rows = [
        ("the gang needs all", lost()),
        ("one more than was asked for is lost", beyond(3..4)),
        ("two are lost, and one of them was more than was asked for", beyond(2..4)),
        (
            "the gang needs all, and its launch was content with part",
            lost().status(|status| {
                let parameters = status.attempts[0].parameters.as_mut().unwrap();
                Arc::make_mut(&mut parameters.value).partial = true;
            }),
        ),
        ("the gang goes on with two", minimum(lost(), 2)),
        ("the gang goes on with none, and two are left", minimum(lost(), 0)),
        ("the gang goes on with two, and one of their Nodes is gone", {
            let scene = minimum(lost(), 2);
            scene.with(|one| drop(one.nodes.remove(1))).status(|status| {
                status.instances[1].loss = Some(loss(LossCause::Missing, "later"));
                status.instances[1].loss.as_mut().unwrap().act_at = at(NOW + 9);
            })
        }),
        (
            "the gang goes on with two, and is degraded",
            minimum(lost(), 2).with(|one| one.gangs[0].phase = Some(Phase::Degraded)),
        ),
        ("the gang goes on with two, and one has ended", minimum(lost(), 2).with(|one| one.pods[0].ended = true)),
        (
            "the gang goes on with two, and waits",
            minimum(lost(), 2).with(|one| one.gangs[0].phase = Some(Phase::Waiting)),
        ),
        ("all are lost", minimum(lost(), 0).status(|status| status.instances.iter_mut().for_each(lose))),
        (
            "two are lost for two causes",
            lost().status(|status| {
                lose(&mut status.instances[0]);
                status.instances[0].loss = Some(loss(LossCause::Missing, "its Node is gone"));
            }),
        ),
        (
            "one is lost while nodes wait for their gang",
            lost().status(|status| status.phase = BatchPhase::Ready).with(|one| {
                one.pods.clear();
                one.gangs[0] = world::gang("a", Phase::Waiting, Vec::new());
            }),
        ),
        ("one is lost, and no launch is known", lost().status(|status| status.attempts.clear())),
        ("one is lost, and its launch has no parameters", lost().status(|status| status.attempts[0].parameters = None)),
        (
            "one is lost after a replacement",
            lost().status(|status| {
                let replaces = vec![InstanceId::from("i-0")];
                status.attempts.push(Attempt { replaces, ..attempt(2, AttemptOutcome::Won) });
                status.attempt = 2;
            }),
        ),
        (
            "all are lost, and the gang has its minimum on other nodes",
            minimum(lost(), 1).status(|status| status.instances.iter_mut().for_each(lose)).with(|one| {
                one.nodes.push(node("i-9"));
                one.pods.push(member("a", 3, "i-9"));
            }),
        ),
        (
            "one is lost after a launch that took long",
            lost()
                .status(|status| {
                    let won = &mut status.attempts[0];
                    (won.replayed, won.sweeps, won.probe) = (true, 2, true);
                    (won.request_id, won.fleet) = (Some("req-1".to_owned()), Some("fleet-1".to_owned()));
                    (won.code, won.message) = (Some("code".to_owned()), Some("words".to_owned()));
                })
                .with(|one| one.memory.scratch.cleared = Some(at(NOW - 1))),
        ),
        ("the end of its Capacity Block takes one", in_block(lost(), true)),
        ("the end of its Capacity Block takes one, and the gang goes on with two", minimum(in_block(lost(), true), 2)),
        ("the end of its Capacity Block takes all", {
            in_block(lost(), true).status(|status| {
                let loss = status.instances[2].loss.clone();
                for one in &mut status.instances {
                    (one.state, one.loss) = (MemberState::Lost, loss.clone());
                }
            })
        }),
        ("the end of a Capacity Block is noticed of a reservation that is none", in_block(lost(), false)),
        ("one is lost in a Capacity Block that does not end", {
            in_block(lost(), true).status(|status| status.instances[2].loss = Some(loss(LossCause::Missing, "gone")))
        }),
        ("what is lost ran in a Capacity Block, and all others were launched later on demand", {
            in_block(lost(), true).status(|status| {
                status.attempts.push(attempt(2, AttemptOutcome::Won));
                status.attempt = 2;
                status.instances[..2].iter_mut().for_each(|one| one.attempt = 2);
            })
        }),
        ("the gang has ended", lost().with(|one| one.gangs.clear())),
        ("a Node is gone", lost().with(|one| drop(one.nodes.remove(0)))),
        ("a Node is gone, and another instance has its name", lost().renamed("i-1")),
        ("a Node is gone whose instance will be lost", lost().with(|one| drop(one.nodes.remove(2)))),
        (
            "a Node of an idle batch is gone",
            lost().status(|status| status.phase = BatchPhase::Idle).with(|one| {
                one.nodes.clear();
                one.gangs.clear();
            }),
        ),
    ];
    compare("repairing-lost", &rows);
}

/// i-3 is being replaced; the call may have been sent.
fn replacing(change: impl FnOnce(&mut Attempt)) -> Scene {
    let mut status = having(BatchPhase::Replacing, MemberState::Ready, &["i-1", "i-2"]);
    status.count = 3;
    status.attempt = 2;
    let mut gone =
        BatchMember { node: Some("n-i-3".to_owned()), ..BatchMember::new("i-3".into(), 1, MemberState::Lost) };
    lose(&mut gone);
    status.replaced.push(gone);
    let mut attempt = Attempt { count: 1, replaces: vec!["i-3".into()], ..attempt(2, AttemptOutcome::Launching) };
    std::sync::Arc::make_mut(&mut attempt.parameters.as_mut().unwrap().value).count = 1;
    change(&mut attempt);
    status.attempts[0].ended = Some(at(NOW - 700));
    status.attempts[0].started = Some(at(NOW - 720));
    status.attempts.push(attempt);
    Scene::new(status).with_nodes()
}

/// EC2 shows the instance that is replaced like this.
fn third(scene: Scene, state: InstanceState) -> Scene {
    scene.saw(Look::Instances(vec!["i-3".into()]), Sight::Instances(super::scene::instances(&[("i-3", state)])))
}

fn missing(scene: Scene) -> Scene {
    scene.saw(Look::Instances(vec!["i-3".into()]), Sight::Instances(Vec::new()))
}

fn into_reservation(attempt: &mut Attempt) {
    attempt.capacity_type = CapacityType::Reserved;
    attempt.reservation = Some(Target { id: "cr-1".to_owned(), block: false });
    std::sync::Arc::make_mut(&mut attempt.parameters.as_mut().unwrap().value).capacity_type = CapacityType::Reserved;
}

fn reserved(change: impl FnOnce(&mut Attempt)) -> Scene {
    replacing(|attempt| {
        into_reservation(attempt);
        change(attempt);
    })
    .status(|status| status.capacity_type = Some(CapacityType::Reserved))
}

fn terminate() -> Change {
    Change::Terminate(vec!["i-3".into()])
}

#[test]
fn lost_instances_are_ended_once_they_serve_nobody_and_forgotten_when_they_are_gone() {
    let settled = || {
        let scene = replacing(|attempt| attempt.outcome = AttemptOutcome::Won);
        scene.status(|status| status.phase = BatchPhase::Ready).bound(&["i-1", "i-2"])
    };
    let busy = |scene: Scene| scene.with(|one| one.pods = vec![single("other", "i-3")]);
    let deadline = |seconds: i64| {
        busy(third(settled(), RUNNING))
            .status(|status| status.replaced[0].loss.as_mut().unwrap().deadline = Some(at(NOW + seconds)))
    };
    let there = |scene: Scene| scene.with(|one| one.nodes.push(node("i-3")));
    let looked = |seconds: i64| settled().with(|one| one.memory.scratch.cleared = Some(at(NOW - seconds)));
    let rows = [
        ("it is looked at", settled()),
        ("it runs: it is ended", third(settled(), RUNNING)),
        ("it is ending", third(settled(), InstanceState::ShuttingDown)),
        ("it has ended", third(settled(), GONE)),
        ("it has ended, and its Node is there", there(third(settled(), GONE))),
        ("it has ended, and another instance has the name of its Node", third(settled(), GONE).renamed("i-3")),
        (
            "it runs, and another instance has the name of its Node, with a pod",
            busy(third(settled(), RUNNING)).renamed("i-3"),
        ),
        ("EC2 does not show it", missing(settled())),
        (
            "EC2 does not show it, and it was just launched",
            missing(settled().status(|status| status.attempts[0].ended = Some(at(NOW - 119)))),
        ),
        (
            "EC2 does not show it, and it was launched two minutes ago",
            missing(settled().status(|status| status.attempts[0].ended = Some(at(NOW - 120)))),
        ),
        (
            "EC2 does not show it, and its launch began just now",
            missing(settled().status(|status| {
                (status.attempts[0].started, status.attempts[0].ended) = (Some(at(NOW)), None);
            })),
        ),
        ("a pod is on it", busy(third(settled(), RUNNING))),
        ("a pod of a DaemonSet is on it", busy(third(settled(), RUNNING)).with(|one| one.pods[0].daemon = true)),
        ("a pod that has ended is on it", busy(third(settled(), RUNNING)).with(|one| one.pods[0].ended = true)),
        ("a pod is on it, and EC2 ends it in a second", deadline(1)),
        ("a pod is on it, and EC2 ends it now", deadline(0)),
        ("it was just ended", third(settled(), RUNNING).done(terminate(), Ok(Made::Nothing))),
        (
            "it could not be ended",
            third(settled(), RUNNING).done(terminate(), Err(error("TerminateInstances", Some("InternalError")))),
        ),
        (
            "something else was just changed",
            third(settled(), RUNNING).done(Change::DeleteFinishedFleets, Ok(Made::Nothing)),
        ),
        ("it was looked after four seconds ago", looked(4)),
        ("it was looked after five seconds ago", looked(5)),
        ("it is looked after later: its Node is kept free", cleared(there(settled()))),
        ("all of the batch is ended", settled().status(|status| status.phase = BatchPhase::Terminating)),
        (
            "a node of a lost instance is kept free",
            there(third(settled(), InstanceState::ShuttingDown)).bound(&["i-1", "i-2"]),
        ),
        (
            "in a reservation it goes as well, once it is replaced",
            third(settled().status(|status| status.capacity_type = Some(CapacityType::Reserved)), RUNNING),
        ),
        ("in a reservation it stays until there is no free host", reserved(|_| {})),
    ];
    compare("repairing-ends", &rows);
}

fn code(code: &str) -> Result<Made, CallError> {
    Err(error("CreateFleet", Some(code)))
}

fn made(ids: &[&str]) -> Result<Made, CallError> {
    Ok(Made::Launched(launched(ids)))
}

fn empty(code: &str) -> Result<Made, CallError> {
    let (code, message) = (code.to_owned(), "EC2's words".to_owned());
    let item = FleetError { code, message, instance_type: None, zone: None };
    Ok(Made::Launched(LaunchAnswer { errors: vec![item], ..launched(&[]) }))
}

/// The lost instance was looked after just now.
fn cleared(scene: Scene) -> Scene {
    scene.with(|one| one.memory.scratch.cleared = Some(at(NOW)))
}

#[test]
fn a_replacement_is_sent_until_there_is_an_answer_and_one_that_does_not_come_ends_the_batch() {
    let answered = |first, result| replacing(|_| {}).answered(first, result);
    let timed_out = || Err(error("CreateFleet", None));
    let looked = |number, looks| {
        cleared(third(replacing(|attempt| attempt.sweeps = 4), GONE))
            .with(|scene| scene.memory.scratch.last_looks = Some(LastLooks { attempt: number, looks }))
    };
    let unknown = |sweeps: u32| replacing(|attempt| attempt.sweeps = sweeps).answered(false, timed_out());
    let one: [(&str, InstanceState); 1] = [("i-4", RUNNING)];
    let two: [(&str, InstanceState); 2] = [("i-4", RUNNING), ("i-5", RUNNING)];
    let fleet = || {
        replacing(|attempt| attempt.fleet = Some("fleet-1".to_owned()))
            .answered(false, timed_out())
            .saw(Look::Fleet("fleet-1".to_owned()), Sight::Fleet(Some(launched(&["i-4"]))))
    };
    let no_host =
        |change: fn(&mut Attempt)| reserved(change).answered(true, code("ReservationCapacityExceeded")).swept(&[]);
    let closed = |outcome| replacing(|attempt| attempt.outcome = outcome);
    let replayed = || replacing(|attempt| attempt.replayed = true);
    // Nothing was launched for what the end of the block takes.
    let ending = || {
        closed(AttemptOutcome::Won).status(|status| {
            status.attempts.pop();
            status.attempt = 1;
        })
    };
    let slow = |change: fn(&mut Attempt)| {
        let four = |attempt: &mut Attempt| {
            attempt.sweeps = 4;
            change(attempt);
        };
        replacing(four).answered(false, code("RequestLimitExceeded"))
    };
    let quota = |change: fn(&mut Attempt), ours: &[(&str, InstanceState)]| {
        let scene = replacing(change).answered(true, code("VcpuLimitExceeded")).swept(&[]);
        let all = Tags::from([(TAG_CLUSTER_UID.to_owned(), CLUSTER_UID.to_owned())]);
        if ours.is_empty() { scene } else { scene.saw(Look::Tagged(all), Sight::Instances(instances(ours))) }
    };
    let invisible = |seconds: i64| {
        replacing(|attempt| (attempt.sweeps, attempt.started) = (4, Some(at(NOW - seconds))))
            .answered(false, code("InvalidLaunchTemplateId.NotFound"))
            .swept(&[])
    };
    let long_ago = || cleared(third(replacing(|attempt| attempt.started = Some(at(NOW - 600))), GONE));
    let of_two = |sweeps: u32| {
        let two = |attempt: &mut Attempt| {
            (attempt.count, attempt.sweeps) = (2, sweeps);
            std::sync::Arc::make_mut(&mut attempt.parameters.as_mut().unwrap().value).count = 2;
        };
        replacing(two).answered(false, timed_out())
    };
    let of_two_in_part = |result| {
        let in_part = |attempt: &mut Attempt| {
            attempt.count = 2;
            let parameters = &mut std::sync::Arc::make_mut(&mut attempt.parameters.as_mut().unwrap().value);
            (parameters.count, parameters.partial) = (2, true);
        };
        replacing(in_part).answered(true, result)
    };
    let rows = [
        ("the lost instance is looked after first", replacing(|_| {})),
        ("the lost instance is ended first", third(replacing(|_| {}), RUNNING)),
        (
            "it is sent for the first time",
            cleared(third(replacing(|_| {}), GONE)).with(|one| one.memory.scratch.first = Some(2)),
        ),
        ("it may have been sent before", cleared(third(replacing(|_| {}), GONE))),
        ("it was sent long ago, and nothing is found", long_ago().swept(&[])),
        ("it was sent long ago, and is found", long_ago().swept(&one)),
        ("it was sent long ago, and another number is found", long_ago().swept(&two)),
        ("in a reservation the free host comes first", reserved(|_| {})),
        (
            "in a full reservation the lost instance goes first",
            third(reserved(|attempt| attempt.code = Some("full".to_owned())), InstanceState::ShuttingDown),
        ),
        (
            "in a full reservation the lost instance has gone",
            third(reserved(|attempt| attempt.code = Some("full".to_owned())), GONE),
        ),
        (
            "in a full reservation the lost instance stays too long",
            third(
                reserved(|attempt| {
                    attempt.code = Some("full".to_owned());
                    attempt.started = Some(at(NOW - 1500));
                }),
                InstanceState::ShuttingDown,
            ),
        ),
        ("it came", answered(true, made(&["i-4"]))),
        ("it came by an earlier call", answered(false, made(&["i-4"]))),
        ("two came", answered(true, made(&["i-4", "i-5"]))),
        ("one of two came where part would do", of_two_in_part(made(&["i-4"]))),
        ("two of two came where part would do", of_two_in_part(made(&["i-4", "i-5"]))),
        ("slow down where part would do", {
            of_two_in_part(empty("RequestLimitExceeded"))
                .swept(&[])
                .saw(Look::Fleet("fleet-1".to_owned()), Sight::Fleet(Some(launched(&[]))))
        }),
        ("no capacity", answered(true, code("InsufficientInstanceCapacity")).swept(&[])),
        ("no capacity, before the tags were looked for", answered(true, code("InsufficientInstanceCapacity"))),
        ("no capacity, and it is found", answered(true, code("InsufficientInstanceCapacity")).swept(&one)),
        ("no capacity, and two are found", answered(true, code("InsufficientInstanceCapacity")).swept(&two)),
        ("no capacity at a replay", answered(false, code("InsufficientInstanceCapacity")).swept(&[])),
        (
            "no capacity at a replay that this process did not begin",
            replayed().answered(true, code("InsufficientInstanceCapacity")).swept(&[]),
        ),
        ("a quota, while the lost instance counts", quota(|_| {}, &[])),
        (
            "a quota, while the lost instance counts, for long",
            quota(|attempt| attempt.started = Some(at(NOW - 60)), &[]),
        ),
        (
            "a quota, while the lost instance counts, for too long",
            quota(|attempt| attempt.started = Some(at(NOW - 9000)), &[]),
        ),
        ("a quota, while the lost instance counts, and nobody waits any more", quota(|_| {}, &[]).unwanted()),
        (
            "a quota, before it is known whether instances of ours are ending",
            quota(|_| {}, &[]).status(|status| status.replaced.clear()),
        ),
        (
            "a quota, while another instance of ours is ending",
            quota(|_| {}, &[("i-8", InstanceState::ShuttingDown)]).status(|status| status.replaced.clear()),
        ),
        ("a quota, and nothing is ending", quota(|_| {}, &[("i-8", RUNNING)]).status(|status| status.replaced.clear())),
        ("a permission is missing", answered(true, code("UnauthorizedOperation")).swept(&[])),
        ("slow down", answered(true, code("RequestLimitExceeded"))),
        ("slow down, and it was looked for four times before", slow(|_| {})),
        ("slow down for long", slow(|attempt| attempt.started = Some(at(NOW - 1000)))),
        ("slow down, and nobody waits any more", slow(|attempt| attempt.sweeps = 3).unwanted().swept(&[])),
        ("slow down to the last, and nobody waits any more", slow(|_| {}).unwanted().swept(&[])),
        ("slow down, nobody waits any more, and it is found", slow(|_| {}).unwanted().swept(&one)),
        ("the template is not visible yet", invisible(299)),
        ("the template is gone", invisible(300)),
        ("one of two is found", of_two(0).swept(&one)),
        ("one of two is found for the fifth time", of_two(4).swept(&one)),
        ("three of two are found", of_two(0).swept(&[("i-4", RUNNING), ("i-5", RUNNING), ("i-6", RUNNING)])),
        ("the token is another call's", answered(true, code("IdempotentParameterMismatch")).swept(&[])),
        (
            "an empty answer without capacity",
            answered(true, empty("InsufficientInstanceCapacity"))
                .saw(Look::Fleet("fleet-1".to_owned()), Sight::Fleet(None))
                .swept(&[]),
        ),
        (
            "an empty answer that throttles",
            answered(true, empty("RequestLimitExceeded"))
                .saw(Look::Fleet("fleet-1".to_owned()), Sight::Fleet(None))
                .swept(&[]),
        ),
        ("no answer", unknown(0).swept(&[])),
        ("no answer for the third time", unknown(2).swept(&[])),
        ("no answer for the fifth time", unknown(4).swept(&[])),
        ("the last call is over, and nothing is found yet", looked(2, 2).swept(&[])),
        ("the last call is over, and nothing is found at the last look", looked(2, 3).swept(&[])),
        ("the last call is over, and it is found at the last look", looked(2, 3).swept(&one)),
        ("what was looked for belongs to another attempt", looked(1, 3)),
        ("no answer, and the fleet knows it", fleet().swept(&[])),
        (
            "no answer, and in a reservation it is not sent again for that",
            reserved(|_| {}).answered(false, timed_out()).swept(&[]),
        ),
        ("the reservation has no free host", no_host(|_| {})),
        (
            "the reservation has no free host, in EC2's other words",
            reserved(|_| {}).answered(true, code("InsufficientInstanceCapacity")).swept(&[]),
        ),
        (
            "the reservation has no free host, and the time is over",
            no_host(|attempt| attempt.started = Some(at(NOW - 1500))),
        ),
        (
            "the reservation has no free host, and the batch is being deleted",
            no_host(|_| {}).with(|one| one.batch.deleting = true),
        ),
        ("the reservation has no free host, and its gang may be gone", no_host(|_| {}).with(|one| one.gangs.clear())),
        (
            "the reservation has no free host, and its gang is gone",
            no_host(|_| {})
                .with(|one| one.gangs.clear())
                .saw(Look::Owner(OwnerLook::Gang { key: key("a"), uid: "a-uid".to_owned() }), Sight::Owner(false)),
        ),
        (
            "the reservation is full, and one is found",
            reserved(|_| {}).answered(true, code("ReservationCapacityExceeded")).swept(&two),
        ),
        ("none came", cleared(closed(AttemptOutcome::Lost))),
        (
            "none came, and members are there, too few",
            cleared(closed(AttemptOutcome::Lost)).bound(&["i-1"]).with(|one| one.gangs[0].minimum = 3),
        ),
        ("none came, and its gang keeps its minimum", cleared(closed(AttemptOutcome::Lost)).bound(&["i-1"])),
        ("the reservation has no free host, and is a Capacity Block that ends", {
            let block = |attempt: &mut Attempt| attempt.reservation.as_mut().unwrap().block = true;
            in_block(no_host(block), true)
        }),
        ("its Capacity Block ends: all go", cleared(in_block(ending(), true))),
        (
            "its Capacity Block ends: members are there",
            cleared(in_block(ending(), true)).bound(&["i-1"]).with(|one| {
                one.gangs[0].minimum = 3;
            }),
        ),
        (
            "none came, and a pod of no gang is there",
            cleared(closed(AttemptOutcome::Lost)).with(|one| one.pods = vec![single("other", "i-1")]),
        ),
        (
            "none came, and a pod of no gang is there for long",
            cleared(closed(AttemptOutcome::Lost))
                .with(|one| one.pods = vec![single("other", "i-1")])
                .status(|status| status.idle_since = Some(at(NOW - 900))),
        ),
        (
            "none came, and a member is deleted where the node is not Ready for 5 min",
            cleared(closed(AttemptOutcome::Lost))
                .with(|one| {
                    one.nodes[0].ready = false;
                    one.pods = vec![Pod { deleting: true, ..member("a", 0, "i-1") }];
                })
                .status(|status| status.instances[0].empty_since = Some(at(NOW - 300))),
        ),
        (
            "none came, and why is known",
            cleared(closed(AttemptOutcome::Lost))
                .status(|status| status.attempts[1].message = Some("no capacity".to_owned())),
        ),
        ("nothing is known of the call", cleared(replacing(|attempt| attempt.parameters = None))),
        ("there is no attempt", cleared(replacing(|_| {}).status(|status| status.attempts.clear()))),
        (
            "it is not wanted any more while the call is open",
            cleared(third(replacing(|_| {}), GONE)).with(|one| one.batch.deleting = true),
        ),
        (
            "it is not wanted any more, and the call was never sent",
            cleared(third(replacing(|_| {}), GONE)).unwanted().with(|one| one.memory.scratch.first = Some(2)),
        ),
        (
            "its gang is gone, and the call was never sent",
            cleared(third(replacing(|_| {}), GONE))
                .with(|one| {
                    one.memory.scratch.first = Some(2);
                    one.gangs.clear();
                })
                .saw(Look::Owner(OwnerLook::Gang { key: key("a"), uid: "a-uid".to_owned() }), Sight::Owner(false)),
        ),
    ];
    compare("repairing-replaces", &rows);
}
