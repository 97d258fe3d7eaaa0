//! A batch whose instances exist: they run, register, get their devices and wait for their gang.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use muster_core::batch::{JoinClocks, Look, Report, Sight};
use muster_core::ec2::{InstanceState, NoticeKind, StateReason};
use muster_core::model::batch::{
    Attempt, AttemptOutcome, BatchOffer, BatchPhase, BatchSpec, BatchStatus, ConditionKind, Loss, LossCause,
    MemberState,
};
use muster_core::model::gang::{Phase, Pod, RankClaim};
use muster_core::model::names::InstanceId;
use muster_core::model::node::Node;
use muster_core::topology::{Level, NETWORK_LAYER_KEYS};

use super::super::cluster::{BOOKING, PENDING};
use super::scene::{NOW, Scene, attempt, having, instances, lose, loss, member, node, single, taint};
use super::{compare, written};
use crate::world::{self, at};

const RUNNING: InstanceState = InstanceState::Running;
const ALL: [(&str, InstanceState); 2] = [("i-1", RUNNING), ("i-2", RUNNING)];

fn ids() -> Vec<InstanceId> {
    ["i-1", "i-2"].map(InstanceId::from).into()
}

fn places(paths: [&[&str]; 2]) -> Sight {
    let path = |path: &[&str]| path.iter().map(|one| (*one).to_owned()).collect::<Vec<String>>();
    Sight::Topology(ids().into_iter().zip(paths.map(path)).collect())
}

fn topology() -> Look {
    Look::Topology { group: None, ids: ids() }
}

/// The layer of the network from the top.
fn level(layer: usize) -> Level {
    Level { name: Arc::from(["spine", "leaf", "block"][layer]), key: Arc::from(NETWORK_LAYER_KEYS[layer]) }
}

#[test]
fn launched_instances_are_awaited_until_all_run_and_then_located_once() {
    let launched = || Scene::new(having(BatchPhase::Launched, MemberState::Launched, &["i-1", "i-2"]));
    let running = || launched().instances(&ALL);
    let apart = || running().saw(topology(), places([&["s", "l1"], &["s", "l2"]]));
    let in_group = || {
        let mut shown = instances(&ALL);
        shown[0].placement_group_id = Some("pg-1".to_owned());
        let group = Look::Topology { group: Some("mine".to_owned()), ids: ids() };
        launched()
            .status(|status| {
                status.attempts[0].group = true;
                status.placement_group = Some("mine".to_owned());
            })
            .saw(Look::Instances(ids()), Sight::Instances(shown))
            .saw(group, places([&["s", "l1"], &["s", "l1"]]))
    };
    let rows = [
        ("the instances are looked at", launched()),
        ("one is pending", launched().instances(&[ALL[0], ("i-2", InstanceState::Pending)])),
        (
            "one is pending, and its time is over in a second",
            launched().instances(&[ALL[0], ("i-2", InstanceState::Pending)]).with(|one| {
                one.says.join = JoinClocks { register_within: SignedDuration::from_secs(51), ..one.says.join.clone() };
            }),
        ),
        ("one is not shown yet", launched().instances(&ALL[..1])),
        ("all run: where do they lie?", running()),
        ("EC2 cannot tell where they lie", running().failed_to_see(topology())),
        ("half an answer", running().saw(topology(), places([&["s", "l1"], &[]]))),
        ("they lie together", running().saw(topology(), places([&["s", "l1"], &["s", "l1"]]))),
        ("they lie apart, and nobody minds", apart()),
        (
            "they lie apart, and a preferred level is missed",
            apart().with(|one| one.says.levels.preferred = Some(level(1))),
        ),
        ("they lie apart below the preferred level", apart().with(|one| one.says.levels.preferred = Some(level(0)))),
        (
            "they lie apart, and a required level is missed",
            apart().with(|one| one.says.levels.required = Some(level(1))),
        ),
        (
            "a required level is missed for the second time",
            apart().with(|one| {
                one.says.levels.required = Some(level(1));
                one.batch.status.misses = 1;
            }),
        ),
        ("they lie apart below the required level", apart().with(|one| one.says.levels.required = Some(level(0)))),
        (
            "a replacement misses the required level: it is kept",
            apart().with(|one| {
                one.says.levels.required = Some(level(1));
                one.batch.status.attempts[0].replaces = vec![InstanceId::from("i-9")];
            }),
        ),
        ("they are in a placement group", in_group()),
        (
            "an instance that has ended says nothing of their placement group",
            in_group().with(|one| {
                let mut shown = instances(&[("i-1", InstanceState::Terminated), ALL[1]]);
                shown[0].placement_group_id = Some("pg-0".to_owned());
                one.memory.seen.insert(Look::Instances(ids()), Ok(Sight::Instances(shown)));
            }),
        ),
        (
            "an instance of another attempt says nothing of their placement group",
            in_group().status(|status| status.instances[0].attempt = 0),
        ),
        (
            "one has registered already",
            running().saw(topology(), places([&["s"], &["s"]])).with(|one| one.nodes = vec![node("i-1")]),
        ),
        ("one has ended, and may be replaced", launched().instances(&[ALL[0], ("i-2", InstanceState::Terminated)])),
        (
            "all have ended",
            launched().instances(&[("i-1", InstanceState::Terminated), ("i-2", InstanceState::ShuttingDown)]),
        ),
        ("one is stopped", launched().instances(&[ALL[0], ("i-2", InstanceState::Stopped)])),
        ("one is in a state nobody knows", launched().instances(&[ALL[0], ("i-2", InstanceState::Unknown)])),
    ];
    compare("joining-launched", &rows);
}

/// Two instances whose nodes are awaited; EC2 was asked just now.
fn joining() -> Scene {
    let mut status = having(BatchPhase::Joining, MemberState::Running, &["i-1", "i-2"]);
    status.deadline = Some(at(NOW + 1450));
    Scene::new(status).with(|one| one.memory.scratch.looked = Some(at(NOW)))
}

fn with(change: impl FnOnce(&mut Node)) -> Scene {
    let mut second = node("i-2");
    change(&mut second);
    joining().with(|one| one.nodes = vec![node("i-1"), second])
}

#[test]
fn nodes_join_one_by_one_and_what_each_lacks_is_named() {
    let looked = |seconds: i64| joining().with(|one| one.memory.scratch.looked = Some(at(NOW - seconds)));
    let located = || {
        with(|_| {}).status(|status| {
            status.instances.iter_mut().for_each(|one| one.network_nodes = vec!["s".to_owned()]);
        })
    };
    let grouped = || {
        with(|_| {}).status(|status| {
            status.attempts[0].group = true;
            status.placement_group = Some("mine".to_owned());
            status.placement_group_id = Some("pg-1".to_owned());
        })
    };
    let unknown = || with(|_| {}).with(|one| one.says.levels.required = Some(level(0)));
    let labelled = |value: &'static str| {
        with(|_| {}).of_request().with(|one| {
            for node in &mut one.nodes {
                node.labels.insert(Arc::from(BOOKING), Arc::from(value));
            }
        })
    };
    let rows = [
        ("none has come", joining()),
        ("EC2 was asked fourteen seconds ago", looked(14)),
        ("EC2 was asked fifteen seconds ago", looked(15)),
        ("EC2 was never asked", joining().with(|one| one.memory.scratch.looked = None)),
        ("EC2 shows that one has not run yet", looked(15).instances(&[ALL[0], ("i-2", InstanceState::Pending)])),
        ("one has come", joining().with(|one| one.nodes = vec![node("i-1")])),
        ("one is not Ready", with(|node| node.ready = false)),
        ("one has no devices", with(|node| node.allocatable = world::node("other", 7).allocatable)),
        ("one has no zone", with(|node| node.labels.clear())),
        ("one has a taint", with(|node| node.taints.push(taint("node.kubernetes.io/not-ready", "")))),
        (
            "one has a startup taint, which the network's agent takes off",
            with(|node| node.taints.push(taint("node.cilium.io/agent-not-ready", "true"))),
        ),
        (
            "one has a taint that nodes of the pool keep",
            with(|node| node.taints.push(taint("team", "a"))).with(|one| one.says.taints = vec![taint("team", "a")]),
        ),
        ("one waits for its gang: it is held, and ready", with(|node| node.taints.push(taint(PENDING, "a-uid")))),
        (
            "one waits for its gang and is held",
            with(|node| {
                node.taints.push(taint(PENDING, "a-uid"));
                node.held = true;
            }),
        ),
        ("all are ready", with(|_| {})),
        (
            "all are ready again after a loss",
            with(|_| {}).status(|status| status.set(ConditionKind::Interrupted, true, "SpotInterruption", "", at(0))),
        ),
        ("all are ready for a request: its label is missing", with(|_| {}).of_request()),
        ("all are ready for a request: its label is another's", labelled("other")),
        ("all are ready for a request, labels and all", labelled("r-uid")),
        ("all lack the label of their place", located()),
        (
            "all have the label of their place",
            located().with(|one| {
                for node in &mut one.nodes {
                    node.labels.insert(Arc::from(NETWORK_LAYER_KEYS[0]), Arc::from("s"));
                }
            }),
        ),
        ("all lack the label of their placement group", grouped()),
        (
            "all have the label of their placement group",
            grouped().with(|one| {
                for node in &mut one.nodes {
                    node.labels.insert(Arc::from("muster.dev/placement-group-id"), Arc::from("pg-1"));
                }
            }),
        ),
        ("a level is required, and where they lie is not known", unknown()),
        ("a level is required, and they lie together", unknown().saw(topology(), places([&["s"], &["s"]]))),
        ("a level is required, and they lie apart", unknown().saw(topology(), places([&["s"], &["t"]]))),
        (
            "a node of another machine has come",
            joining().with(|one| one.nodes = vec![node("i-9"), world::node("n-i-1", 8)]),
        ),
    ];
    compare("joining-nodes", &rows);
}

/// Four instances, of which the first two have nodes since the given number of seconds.
fn late(registered: i64, launched: i64) -> Scene {
    let mut status = having(BatchPhase::Joining, MemberState::Running, &["i-1", "i-2", "i-3", "i-4"]);
    for one in &mut status.instances[..2] {
        one.registered = Some(at(NOW - registered));
    }
    status.attempts[0].ended = Some(at(NOW - launched));
    Scene::new(status).with(|one| {
        one.memory.scratch.looked = Some(at(NOW));
        one.nodes = vec![node("i-1"), node("i-2")];
        one.says.join.max_replacements = "2".to_owned();
    })
}

#[test]
fn no_node_of_a_gang_is_replaced_that_could_not_register_while_the_api_server_was_away() {
    for scene in [late(300, 400), late(100, 1500)] {
        let again = |seconds: i64| scene.clone().with(|one| one.regained = Some(at(NOW - seconds)));
        let kept = again(299).decide();
        assert!(kept.change.is_none() && kept.looks.is_empty(), "{kept:?}");
        assert_eq!(written::decision(&again(300)), written::decision(&scene));
        assert_ne!(written::decision(&again(299)), written::decision(&scene), "a clock has run out");
    }
}

#[test]
fn nodes_that_do_not_come_are_replaced_or_all_of_them_go() {
    let few = || late(300, 400);
    let allowed = |most: &str, scene: Scene| scene.with(|one| one.says.join.max_replacements = most.to_owned());
    let over = || late(100, 1500);
    let dead = |status: &mut BatchStatus| {
        let first = &mut status.instances[0];
        (first.node, first.empty_since) = (Some("n-i-1".to_owned()), Some(at(NOW - 300)));
    };
    let bare = |scene: Scene| {
        scene.with(|one| {
            one.nodes = ["i-1", "i-2", "i-3", "i-4"].map(node).into();
            for node in &mut one.nodes {
                node.allocatable = world::node("other", 0).allocatable;
            }
        })
    };
    // The first of those that never came is looked at once more before it goes.
    let console = || Look::Console(InstanceId::from("i-3"));
    let shows = |scene: Scene, lines: Option<&str>| scene.saw(console(), Sight::Console(lines.map(str::to_owned)));
    let nodes = || Look::IntolerantDaemonSets(["n-i-1", "n-i-2", "n-i-3", "n-i-4"].map(str::to_owned).into());
    let stale = || {
        bare(late(601, 700)).status(|status| {
            for one in &mut status.instances {
                one.registered = Some(at(NOW - 601));
            }
        })
    };
    let half = || {
        stale().with(|one| {
            one.nodes[0] = node("i-1");
            one.nodes[1] = node("i-2");
        })
    };
    let again = |replaced: &[&str]| {
        let replaces: Vec<InstanceId> = replaced.iter().map(|id| InstanceId::from(*id)).collect();
        few().status(|status| {
            let number = 2;
            let replacement = Attempt { replaces, ended: Some(at(NOW - 350)), ..attempt(number, AttemptOutcome::Won) };
            status.attempts.push(replacement);
        })
    };
    let rows = [
        ("two are late", few()),
        ("two are almost late", late(299, 400)),
        ("two are late, and none was there before", late(300, 400).with(|one| one.nodes.clear())),
        ("two are late, and one may be replaced: what is on the console?", allowed("1", few())),
        (
            "two are late, and one may be replaced",
            shows(allowed("1", few()), Some("nodeadm: no route to host | login:")),
        ),
        ("two are late, and a console is empty", shows(allowed("1", few()), None)),
        ("two are late, and EC2 does not show a console", allowed("1", few()).failed_to_see(console())),
        (
            "two are late, and nobody may see a console",
            allowed("1", few()).with(|one| {
                let denied = super::super::ec2::error("GetConsoleOutput", Some("UnauthorizedOperation"), Some(403));
                one.memory.seen.insert(console(), Err(denied));
            }),
        ),
        ("two are late, and half may be replaced", allowed("50%", few())),
        ("two are late, and the pool says nonsense", shows(allowed("many", few()), None)),
        ("one was replaced before", shows(again(&["i-8"]), None)),
        ("none was replaced before", again(&[])),
        (
            "two were launched after the others had come",
            again(&[]).status(|status| {
                for one in &mut status.instances[2..] {
                    one.attempt = 2;
                }
                status.attempts[1].ended = Some(at(NOW - 250));
            }),
        ),
        (
            "two are late, and one of them never ran",
            few().with(|one| one.memory.scratch.looked = None).instances(&[
                ALL[0],
                ALL[1],
                ("i-3", RUNNING),
                ("i-4", InstanceState::Pending),
            ]),
        ),
        ("the time of all is over", shows(over(), None)),
        (
            "the time of all is over, for no known failure",
            late(100, 1500).with(|one| {
                one.nodes = ["i-1", "i-2", "i-3", "i-4"].map(node).into();
                one.nodes[3].ready = false;
            }),
        ),
        ("the time of all is over while a member runs here", over().with(|one| one.pods = vec![member("a", 0, "i-1")])),
        (
            "the time of all is over, and a member is deleted where the node is not Ready for 5 min",
            shows(over(), None).status(dead).with(|one| {
                one.nodes[0].ready = false;
                one.pods = vec![Pod { deleting: true, ..member("a", 0, "i-1") }];
            }),
        ),
        (
            "the time of all is over while a pod of no gang runs here",
            shows(over(), None).with(|one| one.pods = vec![single("other", "i-1")]),
        ),
        ("half of them have no devices", allowed("0", half())),
        ("half of them have no devices: why not?", allowed("0", half()).saw(nodes(), Sight::Names(Vec::new()))),
        (
            "half of them have no devices for the taint of a DaemonSet",
            allowed("0", half()).saw(nodes(), Sight::Names(vec!["plugin".to_owned(), "agent".to_owned()])),
        ),
        ("half of them have no devices, and nobody knows why", allowed("0", half()).failed_to_see(nodes())),
        ("most have no devices: the pool is blocked first", stale()),
        (
            "most have no devices, and the pool is blocked",
            stale().with(|one| one.says.blocked_by = Some("a-1")).saw(nodes(), Sight::Names(Vec::new())),
        ),
        (
            "most have no devices, and another batch blocked the pool",
            stale().with(|one| one.says.blocked_by = Some("b-1")),
        ),
        (
            "one that was tried alone has no devices",
            stale().status(|status| {
                status.instances.truncate(1);
                status.count = 1;
                status.attempts[0].probe = true;
            }),
        ),
    ];
    compare("joining-fails", &rows);
}

#[test]
fn an_instance_that_ec2_took_back_while_it_joined_is_replaced() {
    let reported = |cause| {
        joining().status(|status| {
            lose(&mut status.instances[1]);
            status.instances[1].loss = Some(loss(cause, "gone"));
        })
    };
    let later = || {
        reported(LossCause::Missing).status(|status| {
            status.instances[1].state = MemberState::Running;
            status.instances[1].loss.as_mut().unwrap().act_at = at(NOW + 1);
        })
    };
    let reason = || {
        let mut shown = instances(&[ALL[0], ("i-2", InstanceState::Terminated)]);
        let (code, message) = ("Server.SpotInstanceTermination".to_owned(), "taken back".to_owned());
        shown[1].state_reason = Some(StateReason { code, message });
        joining().with(|one| one.memory.scratch.looked = None).saw(Look::Instances(ids()), Sight::Instances(shown))
    };
    let at_fault = || {
        let ended = [("i-1", InstanceState::Terminated), ("i-2", InstanceState::Terminated)];
        let mut shown = instances(&ended);
        for one in &mut shown {
            let (code, message) = ("Client.InternalError".to_owned(), "Client error on launch".to_owned());
            one.state_reason = Some(StateReason { code, message });
        }
        let notice = LossCause::Notice(NoticeKind::StateChange);
        joining()
            .status(|status| {
                for member in &mut status.instances {
                    lose(member);
                    member.loss = Some(loss(notice, "the instance stops or has ended"));
                }
            })
            .saw(Look::Instances(ids()), Sight::Instances(shown))
    };
    let none_left = |scene: Scene| scene.with(|one| one.says.join.max_replacements = "0".to_owned());
    let rows = [
        ("a notice", reported(LossCause::Notice(NoticeKind::SpotInterruption))),
        ("its instance is missing", reported(LossCause::Missing)),
        ("it did not join", reported(LossCause::Join)),
        ("it will be lost in a second", later()),
        ("EC2 says why it ended", reason()),
        ("none may be replaced", none_left(reason())),
        ("EC2 says that the key is at fault, and a notice that they ended", at_fault()),
    ];
    compare("joining-lost", &rows);
}

/// One node that was launched alone to see whether it joins.
fn probe(change: impl FnOnce(&mut BatchStatus)) -> Scene {
    let mut status = having(BatchPhase::Joining, MemberState::Running, &["i-1"]);
    status.attempts[0].probe = true;
    change(&mut status);
    Scene::new(status).with(|one| {
        one.memory.scratch.looked = Some(at(NOW));
        one.nodes = vec![node("i-1")];
    })
}

#[test]
fn a_node_that_was_tried_alone_opens_the_pool_and_goes_unless_it_is_all_that_is_wanted() {
    let wants = |count: u32, instance_type: &str| {
        let offer = BatchOffer { node_pool: "p0".to_owned(), instance_type: instance_type.to_owned(), count };
        probe(|_| {}).with(|one| {
            let spec = BatchSpec { offers: vec![offer], ..BatchSpec::clone(&one.batch.spec) };
            one.batch.spec = Arc::new(spec);
        })
    };
    let rows = [
        ("the pool is blocked", probe(|_| {}).with(|one| one.says.blocked = true)),
        ("the pool is open", probe(|_| {})),
        ("the batch wants one node", wants(1, "p5.48xlarge")),
        ("the batch wants one node of another type", wants(1, "p4d.24xlarge")),
    ];
    compare("joining-probe", &rows);
}

#[test]
fn ready_nodes_wait_for_their_gang_and_are_held_for_it() {
    let ready = || Scene::new(having(BatchPhase::Ready, MemberState::Ready, &["i-1", "i-2"])).with_nodes();
    let waiting = |held: bool| {
        ready().with(|one| {
            for node in &mut one.nodes {
                node.taints.push(taint(PENDING, "a-uid"));
                node.held = held;
            }
        })
    };
    let gone = || ready().with(|one| one.gangs = vec![world::gang("a", Phase::Finished, Vec::new())]);
    let booked = |deadline: i64| ready().of_request().status(|status| status.deadline = Some(at(NOW + deadline)));
    let held = |scene: Scene, held: bool| {
        scene.with(|one| {
            for node in &mut one.nodes {
                node.taints.push(taint(PENDING, "r-uid"));
                node.held = held;
            }
        })
    };
    let rows = [
        ("nothing happens", ready()),
        ("they are not held yet", waiting(false)),
        ("they are held", waiting(true)),
        ("a pod of no gang crept in", waiting(true).with(|one| one.pods = vec![single("other", "i-1")])),
        (
            "a pod that crept in is leaving",
            waiting(true).with(|one| {
                one.pods = vec![single("other", "i-1")];
                one.pods[0].deleting = true;
            }),
        ),
        (
            "a pod of no gang is on a node that waits for nobody",
            ready().with(|one| one.pods = vec![single("other", "i-1")]),
        ),
        ("a member crept in", waiting(true).with(|one| one.pods = vec![member("b", 0, "i-1")])),
        ("the gang runs, and the nodes are held", waiting(true).bound(&["i-1", "i-2"])),
        ("the gang runs", ready().bound(&["i-1", "i-2"]).status(|status| status.idle_since = Some(at(0)))),
        ("its gang has finished, and is looked for", gone()),
        ("a booking that nobody uses yet", booked(1)),
        ("a booking that expired", booked(0)),
        ("a booking that expired, and its nodes are held", held(booked(0), true)),
        ("a booking that expired, and its nodes are not held yet", held(booked(0), false)),
        (
            "a booking that expired, and a gang is planned here",
            held(booked(0), true).with(|one| {
                one.booked = Some("r");
                one.gangs = vec![world::gang("a", Phase::Released, vec![world::place(0, Some("a-0"), "n-i-1")])];
                one.pods = vec![Pod { node: None, ..member("a", 0, "i-1") }];
            }),
        ),
        (
            "a booking that crept in stays",
            booked(1).with(|one| {
                one.nodes[0].taints.push(taint(PENDING, "r-uid"));
                one.nodes[0].held = true;
                one.pods = vec![single("other", "i-1")];
            }),
        ),
        ("a booking that is used", booked(1).bound(&["i-1"]).with(|one| one.booked = Some("r"))),
        ("a booking of another request is used", booked(1).bound(&["i-1"]).with(|one| one.booked = Some("s"))),
        ("a gang of its booking runs elsewhere", booked(1).bound(&["i-9"]).with(|one| one.booked = Some("r"))),
        (
            "a gang of its booking is planned here",
            booked(1).bound(&["i-1"]).with(|one| {
                one.booked = Some("r");
                one.gangs[0].phase = Some(Phase::Waiting);
            }),
        ),
        ("a Node is gone", ready().with(|one| drop(one.nodes.pop()))),
        (
            "a gang that failed to be looked for",
            gone().failed_to_see(Look::Owner(muster_core::batch::OwnerLook::Gang {
                key: world::key("a"),
                uid: "a-uid".to_owned(),
            })),
        ),
    ];
    compare("joining-ready", &rows);
}

#[test]
fn losses_that_others_found_are_written_down_once() {
    let report = |id: &str, act_at: i64| {
        let loss =
            Loss { act_at: at(NOW + act_at), ..loss(LossCause::Notice(NoticeKind::SpotInterruption), "taken back") };
        Report {
            losses: BTreeMap::from([(InstanceId::from(id), loss)]),
            reason: "SpotInterruption",
            ..Report::default()
        }
    };
    let in_use = || {
        Scene::new(having(BatchPhase::InUse, MemberState::Ready, &["i-1", "i-2"])).with_nodes().bound(&["i-1", "i-2"])
    };
    let reported = |scene: Scene, reports: &[Report]| scene.with(|one| one.memory.reports = reports.to_vec());
    let phase = |phase| {
        reported(Scene::new(having(phase, MemberState::Ready, &["i-1", "i-2"])).with_nodes(), &[report("i-2", 0)])
    };
    let rows = [
        ("one is lost", reported(in_use(), &[report("i-2", 0)])),
        ("one will be lost", reported(in_use(), &[report("i-2", 1)])),
        ("the same twice", reported(in_use(), &[report("i-2", 0), report("i-2", 0)])),
        ("one after the other", reported(in_use(), &[report("i-2", 0), report("i-1", 9)])),
        ("one that is not listed", reported(in_use(), &[report("i-9", 0)])),
        (
            "one that is being ended",
            reported(
                in_use().status(|status| status.instances[1].state = MemberState::Terminating),
                &[report("i-2", 0)],
            ),
        ),
        ("a batch that is idle", phase(BatchPhase::Idle)),
        ("a batch that ends its instances", phase(BatchPhase::Terminating)),
        ("a batch that drains", phase(BatchPhase::Draining)),
    ];
    compare("joining-reports", &rows);
}

#[test]
fn a_loss_that_was_reported_waits_until_a_decision_looks_at_it() {
    use muster_core::batch::Failure;
    let loss = loss(LossCause::Notice(NoticeKind::SpotInterruption), "taken back");
    let report = Report {
        losses: BTreeMap::from([(InstanceId::from("i-2"), loss)]),
        reason: "SpotInterruption",
        ..Report::default()
    };
    let mut scene = Scene::new(having(BatchPhase::InUse, MemberState::Ready, &["i-1", "i-2"]))
        .with_nodes()
        .bound(&["i-1", "i-2"])
        .with(|one| {
            one.memory.reports = vec![report];
            one.memory.failed = Some(Failure { text: "the write failed".to_owned(), denied: false });
        });
    let failing = scene.decide();
    assert_eq!((failing.next.is_some(), failing.reports), (false, 0), "an edit failed a moment ago");
    let settled = scene.memory.settle(&muster_core::batch::Remains::of(&failing));
    assert_eq!((settled.len(), scene.memory.reports.len()), (0, 1));
    for stale in [false, true] {
        let of_a_newer_version = scene.clone().with(|one| {
            one.batch.newer = Some("phase Dozing".to_owned());
            one.stale = stale;
        });
        let left_alone = of_a_newer_version.decide();
        assert_eq!((left_alone.next.is_some(), left_alone.reports), (false, 0), "stale: {stale}");
    }
    let written = scene.decide();
    assert_eq!(written.next.map(|next| next.instances[1].state), Some(MemberState::Lost));
    assert_eq!(written.reports, 1);
}

/// Which devices the first of two nodes, which has none yet, is reported to lack.
fn lacked(pods: Vec<Pod>) -> Option<String> {
    let status = having(BatchPhase::Joining, MemberState::Registered, &["i-1", "i-2"]);
    let scene = Scene::new(status).instances(&ALL).with_nodes().with(|one| {
        one.says.devices = vec![("nvidia.com/gpu".into(), 8), ("vpc.amazonaws.com/efa".into(), 32)];
        one.nodes[0].allocatable.set("nvidia.com/gpu", 0);
        one.nodes.iter_mut().for_each(|node| node.allocatable.set("cpu", 192_000));
        one.pods = pods;
    });
    let next = scene.decide().next.unwrap();
    if next.phase == BatchPhase::Ready { None } else { next.message }
}

#[test]
fn a_node_waits_for_the_devices_that_the_members_of_its_gang_ask_for_and_no_others() {
    let asking = |name: &str, names: &[&str]| {
        let mut shape = world::shape(0);
        shape.requests.set("cpu", 1000);
        names.iter().for_each(|resource| shape.requests.set(*resource, 1));
        Pod { shape: Ok(Arc::new(shape)), ..world::member(name, "a", RankClaim::Rank(0)) }
    };
    let (gpu, efa) = ("nvidia.com/gpu", "vpc.amazonaws.com/efa");
    let missing = |counts: &str| Some(format!("0 of 2 nodes ready, missing {counts}"));
    let both = missing("1 × nvidia.com/gpu, 2 × vpc.amazonaws.com/efa");
    let one_ready = |what: &str| Some(format!("1 of 2 nodes ready, missing 1 × {what}"));
    assert_eq!(lacked(vec![asking("a-0", &[gpu, efa])]), both);
    assert_eq!(lacked(vec![asking("a-0", &[gpu])]), one_ready(gpu), "no EFA plugin runs, and nobody needs it");
    assert_eq!(lacked(vec![asking("a-0", &[])]), None);
    assert_eq!(lacked(vec![asking("a-0", &[]), asking("a-1", &[gpu])]), one_ready(gpu), "one of them asks");
    let ended = Pod { ended: true, ..asking("a-1", &[gpu]) };
    assert_eq!(lacked(vec![asking("a-0", &[]), ended.clone()]), None, "it does not run again");
    assert_eq!(lacked(vec![ended]), both, "nobody is left to say what is needed");
    assert_eq!(lacked(Vec::new()), both, "no member is there yet");
    let unknown = Pod { shape: Err(Arc::from("unreadable")), ..asking("a-1", &[]) };
    assert_eq!(lacked(vec![asking("a-0", &[]), unknown]), both, "what one asks for is not known");
}
