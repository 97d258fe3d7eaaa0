//! A batch for pods of no gang: one offer, and from then on each node for itself.

use std::sync::Arc;

use jiff::SignedDuration;
use muster_core::batch::{Look, Sight};
use muster_core::ec2::{CapacityType, InstanceState};
use muster_core::model::batch::{AttemptOutcome, BatchPhase, BatchSpec, BatchStatus, Filling, MemberState, Owner};
use muster_core::model::names::InstanceId;
use muster_core::model::node::{Taint, TaintEffect};
use muster_core::model::resources::Resources;
use muster_core::model::snapshot::{Awaiting, Places};
use muster_core::offering::{CeilingScope, Exclusion};

use super::super::cluster::UNREGISTERED;
use super::scene::{NOW, Scene, after, excluding, having, lose, ranked, ranking, single};
use super::{compare, launching, written};
use crate::world::at;

const SIX: [&str; 6] = ["i-1", "i-2", "i-3", "i-4", "i-5", "i-6"];

impl Scene {
    /// For pods of no gang, on spot or on demand.
    fn of_pods(self, capacity_type: Option<CapacityType>) -> Self {
        self.with(|one| {
            one.gangs.clear();
            one.batch.spec = Arc::new(BatchSpec {
                owner: Owner::Pods,
                partial: true,
                zones: vec!["a".to_owned()],
                capacity_type,
                ..BatchSpec::clone(&one.batch.spec)
            });
        })
    }
}

fn pending(status: BatchStatus) -> Scene {
    Scene::new(status).of_pods(None)
}

fn excluded(reason: Exclusion) -> Scene {
    pending(BatchStatus::default()).with(|one| one.says.ranking = ranking(&[], &[reason]))
}

/// Nothing was launched for it on demand in zone a.
fn refused(instance_type: &str) -> Scene {
    let mut status = after(BatchPhase::Pending, AttemptOutcome::Lost);
    status.billing = None;
    status.attempts[0].code = Some("InsufficientInstanceCapacity".to_owned());
    status.attempts[0].instance_type = instance_type.to_owned();
    pending(status).with(|one| one.says.ranking = ranking(&[ranked("a")], &[]))
}

#[test]
fn its_one_offer_is_launched_or_it_is_given_up_and_its_pods_are_planned_again() {
    let ceiling =
        Exclusion::CostCeiling { scope: CeilingScope::Cluster, needed: 300_000_000, left: 1, ceiling: 299_000_000 };
    let limit = Exclusion::Limit { resource: "nodes".into(), needed: 3, left: 2, limit: 4 };
    let offered = |scene: Scene| scene.with(|one| one.says.ranking = ranking(&[ranked("a")], &[]));
    let rows = [
        ("it is launched", offered(pending(BatchStatus::default()))),
        ("it is deleted", offered(pending(BatchStatus::default())).with(|one| one.batch.deleting = true)),
        ("its pool is not ready", {
            offered(pending(BatchStatus::default())).with(|one| one.says.unready = Some("NodePool p0: not Ready"))
        }),
        ("a limit is in the way: the next round knows", excluded(limit.clone())),
        ("a ceiling is in the way: the next round knows", excluded(ceiling.clone())),
        (
            "a ceiling is in the way of what was to be on demand",
            excluded(ceiling).of_pods(Some(CapacityType::OnDemand)),
        ),
        ("it is not sold: the next round has to hear it", excluded(Exclusion::NotSold)),
        ("it is not sold on demand", excluded(Exclusion::NotSold).of_pods(Some(CapacityType::OnDemand))),
        ("a limit is in the way, and a type that it never asked for is too small", {
            let both = [("a.large", Exclusion::DoesNotFit), ("p5.48xlarge", limit)];
            pending(BatchStatus::default()).with(|one| one.says.ranking = excluding(&[], &both))
        }),
        ("the subnets have fewer addresses: the next round knows", {
            excluded(Exclusion::TooFewAddresses { needed: 3, free: 2 })
        }),
        ("nothing is offered", pending(BatchStatus::default())),
        ("EC2 has refused this very offer", refused("p5.48xlarge")),
        ("EC2 has refused another type in the same zone", refused("p4d.24xlarge")),
    ];
    compare("ordinary-pending", &rows);
}

/// Its nodes are planned for pods of these classes.
fn for_classes(scene: Scene, classes: &[&str]) -> Scene {
    let pods = classes.iter().map(|class| ((*class).to_owned(), 1)).collect();
    scene.with(|one| {
        let fillings = vec![Filling { nodes: 3, pods }];
        one.batch.spec = Arc::new(BatchSpec { fillings, ..BatchSpec::clone(&one.batch.spec) });
    })
}

#[test]
fn nothing_is_launched_for_pods_that_are_gone() {
    let offered = || pending(BatchStatus::default()).with(|one| one.says.ranking = ranking(&[ranked("a")], &[]));
    let waits = |scene: Scene, class: &'static str, many: u32| scene.with(|one| one.waiting = vec![(class, many)]);
    let written = || {
        let mut status = after(BatchPhase::Launching, AttemptOutcome::Launching);
        (status.attempts[0].parameters, status.attempts[0].token) = (None, None);
        pending(status)
    };
    let throttled = || {
        let scene = for_classes(launching::open(|_| {}).of_pods(None), &["3-web"]);
        scene.answered(true, launching::code("RequestLimitExceeded"))
    };
    let rows = [
        ("one of its pods waits", waits(for_classes(offered(), &["3-web", "3-api"]), "3-api", 1)),
        ("pods of another class wait", waits(for_classes(offered(), &["3-web"]), "3-other", 4)),
        ("none is left of its class", waits(for_classes(offered(), &["3-web"]), "3-web", 0)),
        ("its class is another version's", for_classes(offered(), &["1-web"])),
        ("its call is not written down, and nobody waits", for_classes(written(), &["3-web"])),
        ("its call is not written down, and it is deleted", {
            waits(for_classes(written(), &["3-web"]), "3-web", 3).with(|one| one.batch.deleting = true)
        }),
        ("EC2 asks for less, and its pods wait", waits(throttled(), "3-web", 3)),
        ("EC2 asks for less, and nobody waits", throttled()),
    ];
    compare("ordinary-unwanted", &rows);
}

fn serving(state: MemberState, ids: &[&str]) -> Scene {
    let phase = if state == MemberState::Ready { BatchPhase::InUse } else { BatchPhase::Launched };
    let mut status = having(phase, state, ids);
    status.ready_count = if state == MemberState::Ready { status.count } else { 0 };
    let scene = Scene::new(status).with_nodes().of_pods(None);
    let pods = ids.iter().map(|id| single(&format!("on-{id}"), id)).collect();
    scene.with(|one| one.pods = pods)
}

/// Its instances were launched and have registered so many seconds ago; their nodes are not Ready.
fn unready(launched: i64, registered: i64) -> Scene {
    let shown = [("i-1", InstanceState::Running), ("i-2", InstanceState::Running)];
    let scene = serving(MemberState::Registered, &["i-1", "i-2"]).instances(&shown);
    let late = move |status: &mut BatchStatus| {
        status.attempts[0].ended = Some(at(NOW - launched));
        status.instances.iter_mut().for_each(|one| one.registered = Some(at(NOW - registered)));
    };
    scene.status(late).with(|one| one.nodes.iter_mut().for_each(|node| node.ready = false))
}

#[test]
fn each_of_its_nodes_joins_serves_and_fails_by_itself() {
    let two = || serving(MemberState::Ready, &["i-1", "i-2"]);
    let six = || serving(MemberState::Ready, &SIX);
    let losing =
        |scene: Scene, count: usize| scene.status(|status| status.instances.iter_mut().take(count).for_each(lose));
    let rows = [
        ("all serve", two()),
        ("all are ready", unready(60, 30).with(|one| one.nodes.iter_mut().for_each(|node| node.ready = true))),
        ("none is ready yet", unready(60, 30)),
        ("none is ready in the last second of readyWithin", unready(800, 599)),
        ("none is ready after readyWithin, and registerWithin is not over", unready(800, 600)),
        ("one never registered: what is on its console?", unready(900, 30).with(|one| drop(one.nodes.remove(1)))),
        ("one never registered", {
            let lines = Sight::Console(Some("nodeadm: 401 | login:".to_owned()));
            unready(900, 30).with(|one| drop(one.nodes.remove(1))).saw(Look::Console(InstanceId::from("i-2")), lines)
        }),
        ("one never registered in the last second of registerWithin", {
            unready(899, 30).with(|one| drop(one.nodes.remove(1)))
        }),
        ("one is lost", losing(two(), 1)),
        (
            "one is lost, and one never becomes ready",
            losing(unready(800, 600), 1).status(|status| status.instances[0].state = MemberState::Lost),
        ),
        ("five are lost", losing(six(), 5)),
        ("all six are lost", losing(six(), 6)),
        ("one is empty for long: it is kept free", {
            two()
                .with(|one| drop(one.pods.remove(0)))
                .status(|status| status.instances[0].empty_since = Some(at(NOW - 300)))
        }),
        ("a Node is gone, and another instance has its name", two().renamed("i-1")),
    ];
    compare("ordinary-serving", &rows);
}

#[test]
fn no_node_is_given_up_that_could_not_register_while_the_api_server_was_away() {
    let never = unready(900, 30).with(|one| drop(one.nodes.remove(1)));
    let never = never.saw(Look::Console(InstanceId::from("i-2")), Sight::Console(Some("login:".to_owned())));
    for scene in [never, unready(800, 600)] {
        let again = |seconds: i64| scene.clone().with(|one| one.regained = Some(at(NOW - seconds)));
        let kept = again(299).decide();
        assert!(kept.change.is_none() && kept.converge.is_empty() && kept.looks.is_empty(), "{kept:?}");
        assert_eq!(written::decision(&again(300)), written::decision(&scene));
        assert_ne!(written::decision(&again(299)), written::decision(&scene), "a clock has run out");
    }
    // However often it was away: after twice its clocks a machine is given up.
    for (launched, is_put_off) in [(2_999, true), (3_000, false)] {
        let scene = unready(launched, 600);
        let again = scene.clone().with(|one| one.regained = Some(at(NOW - 1)));
        assert_eq!(written::decision(&again) != written::decision(&scene), is_put_off, "{launched}");
    }
}

/// A status with the progress of its nodes was decided so many milliseconds ago.
fn progressed(scene: Scene, millis: i64) -> Scene {
    let last = at(NOW).saturating_sub(SignedDuration::from_millis(millis)).unwrap();
    scene.with(|one| {
        let scratch = &mut one.memory.scratch;
        (scratch.progressed, scratch.looked) = (Some(last), Some(at(NOW)));
    })
}

#[test]
fn a_status_that_only_says_how_far_nodes_are_is_not_written_for_each_of_them() {
    let one_ready = || unready(60, 30).with(|one| one.nodes[0].ready = true);
    let registered = |id: usize| {
        let scene = unready(60, 30).status(|status| {
            let member = &mut status.instances[id];
            (member.node, member.registered) = (None, None);
        });
        let tainted = vec![Taint { key: UNREGISTERED.into(), value: "".into(), effect: TaintEffect::NoExecute }];
        scene.with(|one| one.nodes.iter_mut().for_each(|node| node.taints.clone_from(&tainted)))
    };
    let rows = [
        ("one more is ready, and nothing was written before", progressed(one_ready(), 5_000)),
        ("one more is ready within a second", progressed(one_ready(), 999)),
        ("one more is ready after a second", progressed(one_ready(), 1_000)),
        ("the last one is ready within a second: another phase", {
            progressed(unready(60, 30).with(|one| one.nodes.iter_mut().for_each(|node| node.ready = true)), 999)
        }),
        ("one more has registered within a second: pods get to it before the status names it", {
            progressed(registered(1), 999)
        }),
        ("one more has registered after a second", progressed(registered(1), 1_000)),
        ("EC2 runs one that was only launched: it is known from now on", {
            let scene = registered(1).status(|status| status.instances[1].state = MemberState::Launched);
            let scene = progressed(scene, 199).with(|one| drop(one.nodes.remove(1)));
            scene.with(|one| one.memory.scratch.looked = None)
        }),
        ("one more has registered within a second, and one is lost", {
            progressed(registered(1), 199).status(|status| lose(&mut status.instances[0]))
        }),
    ];
    compare("ordinary-progress", &rows);
}

#[test]
fn a_node_waits_for_the_devices_that_the_pods_it_was_launched_for_ask_for_and_no_others() {
    let ready = |requests: &[Option<&str>]| {
        let shown = [("i-1", InstanceState::Running)];
        let scene = serving(MemberState::Registered, &["i-1"]).instances(&shown).with(|one| {
            one.says.devices = vec![("nvidia.com/gpu".into(), 8)];
            one.nodes[0].allocatable.set("nvidia.com/gpu", 0);
            let class = |(number, asks): (usize, &Option<&str>)| {
                let requests = asks.map(|asks| {
                    let mut requests = Resources::default();
                    requests.set(asks, 1);
                    requests
                });
                (Arc::from(format!("class-{number}")), Places { left: 1, requests })
            };
            let places = requests.iter().enumerate().map(class).collect();
            one.awaiting = vec![("n-i-1", Awaiting { places, until: None })];
            if requests.is_empty() {
                one.pods.clear();
            }
        });
        scene.decide().next.unwrap().instances[0].state == MemberState::Ready
    };
    assert!(ready(&[Some("cpu")]), "they need no device");
    assert!(!ready(&[Some("cpu"), Some("nvidia.com/gpu")]), "one needs it");
    assert!(!ready(&[Some("cpu"), None]), "what one needs is not known yet");
    assert!(!ready(&[]), "whom the node awaits is not known");
}
