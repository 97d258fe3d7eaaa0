//! Nodes that never take the pods they were launched for are not launched for ever.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use muster_core::ec2::{LaunchWay, NoticeKind};
use muster_core::model::batch::{AttemptOutcome, BatchMember, BatchPhase, Loss, LossCause, MemberState};
use muster_core::model::gang::Pod;
use muster_core::model::names::{InstanceId, NodeName};
use muster_core::model::snapshot::Snapshot;
use muster_core::ordinary::awaiting::{Classes, awaiting};
use muster_core::ordinary::{Cause, Generations, InVain, Purchase, Purchases, SchedulerRefusals, Seen, digest};

use super::{POOL, Setup, asks, awaiting as kept, offered, pods, shown};
use crate::batch::made;
use crate::world::{at, node, pod};

const MINUTE: i64 = 60;

fn class(cpu: i64) -> Arc<str> {
    digest(&pod("any", &asks(cpu))).unwrap().into()
}

/// Purchases of these types for pods of 3 CPU were in vain, one after the other, the last at `at(90)`.
fn refused(types: &[&str]) -> SchedulerRefusals {
    let mut refusals = SchedulerRefusals::default();
    let (pool, class) = (Arc::from(POOL), class(3_000));
    for (number, name) in types.iter().enumerate() {
        let name: Arc<str> = Arc::from(*name);
        let now = 90 - 10 * i64::try_from(types.len() - 1 - number).unwrap();
        let of = Purchase { pool: &pool, generations: (1, 1), class: &class, instance_type: &name };
        assert!(refusals.refuse(&of, at(now - 5), at(now)));
    }
    refusals
}

#[test]
fn after_a_purchase_in_vain_one_node_of_another_type_is_tried_for_that_class_alone() {
    let mut setup = Setup::of(pods("web", 8, 3_000));
    setup.pods.extend(pods("other", 2, 3_500));
    setup.refusals = refused(&["small"]);
    let outcome = setup.plan();
    let on = |prefix: &str| {
        let all = outcome.launches.iter().flat_map(|one| &one.pods);
        all.filter(|pod| pod.as_str().contains(prefix)).count()
    };
    assert_eq!(on("other"), 2, "no other class is disturbed");
    let of_class = class(3_000);
    let fillings =
        outcome.launches.iter().flat_map(|one| one.fillings.iter().map(|filling| (&*one.instance_type, filling)));
    let tried: Vec<(&str, u32)> = fillings
        .filter(|(_, filling)| filling.pods.iter().any(|(class, _)| **class == *of_class))
        .map(|(name, filling)| (name, filling.nodes))
        .collect();
    assert_eq!(tried, [("large", 1)]);
    assert!((1..=5).contains(&on("web")), "{outcome:?}");
    assert_eq!(outcome.refused.len(), 8 - on("web"));
    for refusal in &outcome.refused {
        assert_eq!(refusal.cause, Cause::SchedulerRefused);
        assert!(refusal.pod.as_str().contains("web"));
        assert!(refusal.why.contains("NodePool general: one node is tried alone first"), "{}", refusal.why);
    }
    let web = on("web");
    // As long as it is under way no other is launched.
    let launches = outcome.launches.clone();
    setup.launch(&launches, BatchPhase::Launched);
    let again = setup.plan();
    assert_eq!((again.joining, again.launches.len(), again.refused.len()), (2 + web, 0, 8 - web));
    assert!(again.refused[0].why.contains("a node is on its way that is tried alone"), "{}", again.refused[0].why);
}

#[test]
fn a_pool_with_one_type_tries_one_node_of_it() {
    let mut setup = Setup::of(pods("web", 8, 3_000));
    setup.refusals = refused(&["small"]);
    setup.offers = vec![offered("small", 4_000, 0, 4), offered("accelerated", 64_000, 8, 900)];
    assert_eq!(shown(&setup.plan()), [("small", 1, 1)]);
    // A type that cannot be had now is no other choice.
    setup.offers = vec![offered("small", 4_000, 0, 4), offered("large", 16_000, 0, 15)];
    setup.offers[1].available = false;
    assert_eq!(shown(&setup.plan()), [("small", 1, 1)]);
    // Nor one that is too small.
    setup.offers = vec![offered("small", 4_000, 0, 4), offered("tiny", 2_000, 0, 1)];
    assert_eq!(shown(&setup.plan()), [("small", 1, 1)]);
}

#[test]
fn after_two_purchases_in_vain_the_pool_launches_nothing_for_the_class_until_the_pause_is_over() {
    let mut setup = Setup::of(pods("web", 3, 3_000));
    setup.pods.extend(pods("other", 2, 3_500));
    setup.refusals = refused(&["small", "large"]);
    let outcome = setup.plan();
    assert_eq!(shown(&outcome), [("small", 2, 2)], "other classes are not disturbed");
    assert_eq!(outcome.refused.len(), 3);
    let why = &outcome.refused[0].why;
    assert_eq!(outcome.refused[0].cause, Cause::SchedulerRefused);
    assert!(why.contains("NodePool general: 2 launches in a row for pods like this one were not used"), "{why}");
    assert!(why.contains("after 2023-11-14T22:19:50Z"), "{why}");
    let snapshot = setup.snapshot();
    assert_eq!(setup.plan_at(at(90 + 5 * MINUTE - 1), &snapshot).refused.len(), 3);
    let after = setup.plan_at(at(90 + 5 * MINUTE), &snapshot);
    let tried: u32 = after.launches.iter().map(|one| one.count).sum();
    // One node on trial for the refused class; two as ever for the other.
    assert!(after.launches.iter().any(|one| one.pods.iter().any(|pod| pod.as_str().contains("web"))));
    assert!(tried <= 3, "{tried}");
}

#[test]
fn a_node_that_stands_takes_pods_of_a_class_that_nothing_is_launched_for() {
    let mut setup = Setup::of(pods("web", 3, 3_000));
    setup.refusals = refused(&["small", "large"]);
    setup.nodes = vec![node("there", 0)];
    let outcome = setup.plan();
    assert_eq!((outcome.placed, outcome.launches.len()), (3, 0));
}

/// One Deployment and the batches for it, second by second.
struct Life {
    setup: Setup,
    purchases: Purchases,
    generations: BTreeMap<Arc<str>, Generations>,
    /// Since when each node is Ready.
    ready: BTreeMap<NodeName, Timestamp>,
    launched: Vec<(i64, u32)>,
    /// Muster has seen the pods that wait, and knows what they ask for.
    knows_requests: bool,
    /// Milli-CPU that nodes come with that are not large.
    small_has: i64,
}

impl Life {
    fn of(pods: Vec<Pod>) -> Self {
        Self {
            setup: Setup::of(pods),
            purchases: Purchases::default(),
            generations: BTreeMap::from([(Arc::from(POOL), (1, 1))]),
            ready: BTreeMap::new(),
            launched: Vec::new(),
            knows_requests: false,
            small_has: 2_000,
        }
    }

    fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.setup.snapshot();
        let mut classes = Classes::default();
        if self.knows_requests {
            snapshot.pods.values().for_each(|pod| drop(classes.of(pod)));
        }
        for (node, planned) in self.setup.batches.iter().flat_map(|batch| kept::planned(batch, |_| None)) {
            if !snapshot.nodes.contains_key(&node) {
                continue;
            }
            let on = snapshot.pods.values().filter(|pod| pod.node.as_ref() == Some(&node));
            let until = self.ready.get(&node).map(|at| *at + SignedDuration::from_secs(MINUTE));
            if let Some(found) = awaiting(&planned, None, on, &mut classes, until) {
                snapshot.awaiting.insert(node, Arc::new(found));
            }
        }
        snapshot
    }

    fn look(&mut self, seconds: i64) -> Vec<InVain> {
        let snapshot = self.snapshot();
        let batches = self.setup.batches.iter().collect();
        let generations = self.generations.clone();
        let (now, now_real) = (at(seconds), at(seconds));
        let found = self.purchases.look(&Seen { batches, snapshot: &snapshot, generations, now, now_real });
        self.setup.refusals = self.purchases.refusals().clone();
        found
    }

    /// A round, and its batches, whose nodes are Ready at once.
    fn provision(&mut self, seconds: i64) -> usize {
        let outcome = self.setup.plan_at(at(seconds), &self.snapshot());
        for launch in &outcome.launches {
            self.launched.push((seconds, launch.count));
            self.setup.launch(std::slice::from_ref(launch), BatchPhase::Launched);
            let batch = self.setup.batches.last_mut().unwrap();
            batch.created = Some(at(seconds));
            batch.uid = format!("{}-{seconds}", batch.name);
            let status = &mut batch.status;
            status.node_pool = Some(launch.pool.to_string());
            status.instance_type = Some(launch.instance_type.to_string());
            for number in 0..launch.count {
                let name = format!("n-{seconds}-{}-{number}", self.launched.len());
                let mut member = BatchMember::new(InstanceId::from(format!("i-{name}")), 1, MemberState::Ready);
                member.place = Some(number);
                member.node = Some(name.clone());
                member.registered = Some(at(seconds));
                status.instances.push(member);
                // Seven parts in a hundred less than was thought.
                let mut node = node(&name, 0);
                node.allocatable.set("cpu", if &*launch.instance_type == "large" { 2_900 } else { self.small_has });
                self.setup.nodes.push(node);
                self.ready.insert(NodeName::from(name.as_str()), at(seconds));
            }
        }
        outcome.launches.len()
    }

    /// The nodes of all batches are gone, and so are the batches.
    fn leave(&mut self) {
        self.setup.batches.clear();
        self.setup.nodes.clear();
    }
}

#[test]
fn a_node_is_in_vain_once_its_minute_is_over_and_no_pod_of_the_class_has_come() {
    let mut life = Life::of(pods("web", 1, 3_000));
    life.provision(10);
    assert!(life.look(10 + MINUTE - 1).is_empty());
    let found = life.look(10 + MINUTE);
    assert_eq!(found.len(), 1);
    assert_eq!((&*found[0].pool, &*found[0].instance_type, found[0].in_a_row), (POOL, "small", 1));
    assert_eq!((found[0].next_try, &found[0].class), (None, &class(3_000)));
    assert!(life.look(10 + MINUTE + 1).is_empty(), "a purchase counts once");
    // Another process that knows what was written down does not count it again.
    life.purchases = Purchases::new(life.purchases.refusals().clone());
    assert!(life.look(10 + 2 * MINUTE).is_empty());
    // One that knows nothing finds it by what stands.
    life.purchases = Purchases::default();
    assert_eq!(life.look(10 + 3 * MINUTE).len(), 1);
}

#[test]
fn a_node_that_pods_of_other_schedulers_took_first_was_launched_in_vain_for_nobody() {
    for (milli, in_vain) in [(1_000, 0), (100, 1)] {
        let mut life = Life { knows_requests: true, ..Life::of(pods("web", 1, 1_900)) };
        life.provision(10);
        let node = life.setup.nodes[0].name.clone();
        life.setup.pods.push(Pod { node: Some(node), ours: false, ..pods("other", 1, milli).remove(0) });
        assert_eq!(life.look(10 + MINUTE).len(), in_vain, "{milli}");
        life.leave();
        assert!(life.look(10 + 2 * MINUTE).is_empty(), "{milli}");
    }
}

#[test]
fn a_node_that_came_with_less_than_its_pods_ask_for_is_in_vain_at_once() {
    for (cpu, is) in [(2_001, true), (2_000, false)] {
        let mut life = Life { knows_requests: true, ..Life::of(pods("web", 2, cpu)) };
        life.provision(10);
        assert_eq!(life.look(10).len(), usize::from(is), "{cpu}: the small one came with 2,000");
        assert!(life.look(10).is_empty(), "a purchase counts once");
        assert_eq!(life.look(10 + MINUTE).len(), usize::from(!is), "as every other, when its minute is over");
    }
}

#[test]
fn pods_have_their_places_on_a_node_as_long_as_it_is_kept_for_them_however_fast_the_clock_of_ec2_goes() {
    let mut life = Life::of(pods("web", 1, 3_000));
    life.provision(10);
    let by = |life: &Life, real| {
        let outcome = life.setup.plan_by(at(3600), at(real), &life.snapshot());
        (outcome.joining, outcome.launches.len())
    };
    assert_eq!(by(&life, 10 + MINUTE - 1), (1, 0));
    assert_eq!(by(&life, 10 + MINUTE), (0, 1));
    // Of a node that no process has seen Ready nobody knows how long it is kept.
    life.ready.clear();
    assert_eq!(by(&life, 20), (0, 1));
}

#[test]
fn a_node_that_goes_empty_or_does_not_finish_joining_before_its_minute_is_over_was_in_vain() {
    for cause in [None, Some(LossCause::Join)] {
        let mut life = Life::of(pods("web", 1, 3_000));
        life.provision(10);
        assert!(life.look(20).is_empty());
        let status = &mut life.setup.batches[0].status;
        let mut gone = status.instances.remove(0);
        let loss = |cause| Loss { cause, message: String::new(), noticed: at(25), act_at: at(25), deadline: None };
        gone.loss = cause.map(loss);
        status.replaced.push(gone);
        assert_eq!(life.look(30).len(), 1, "{cause:?}");
        assert!(life.look(31).is_empty());
        life.leave();
        assert!(life.look(32).is_empty());
    }
    let mut life = Life::of(pods("web", 1, 3_000));
    life.provision(10);
    assert!(life.look(20).is_empty());
    life.leave();
    assert_eq!(life.look(30).len(), 1, "the batch went between two looks");
}

#[test]
fn nodes_that_became_ready_and_went_empty_between_two_looks_were_in_vain() {
    let (won, violated) = (AttemptOutcome::Won, AttemptOutcome::Violated);
    for (looked_before, purged, outcome, counted) in [
        (true, false, won, 1),
        (true, true, won, 1),
        (true, true, violated, 0),
        (false, false, won, 0),
        (false, true, won, 0),
    ] {
        let mut life = Life::of(pods("web", 1, 3_000));
        life.provision(10);
        let nodes = std::mem::take(&mut life.setup.nodes);
        let batch = life.setup.batches.last_mut().unwrap();
        batch.status.instances[0].state = MemberState::Launched;
        let registered = batch.status.instances[0].node.take();
        if looked_before {
            assert!(life.look(20).is_empty());
        }
        life.setup.nodes = nodes;
        let batch = life.setup.batches.last_mut().unwrap();
        batch.status.phase = if purged { BatchPhase::Terminating } else { BatchPhase::Draining };
        let tags = made::tags(&batch.uid, None, 1);
        batch.status.attempts.push(made::attempt(tags, "small", LaunchWay::Fleet, outcome, (None, None)));
        let mut gone = batch.status.instances.remove(0);
        (gone.state, gone.node) = (MemberState::Lost, registered);
        // What EC2 has ended is listed no more.
        batch.status.replaced.extend((!purged).then_some(gone));
        // A process that sees it for the first time does not know who has been there.
        let found = life.look(30);
        assert_eq!(found.len(), counted);
        assert!(found.iter().all(|one| !one.never_ready), "they had been Ready");
        assert!(life.look(31).is_empty(), "a purchase counts once");
        life.leave();
        assert!(life.look(32).is_empty());
    }
}

#[test]
fn of_a_class_whose_nodes_went_before_anybody_looked_or_are_still_to_come_nothing_is_concluded() {
    // For two classes; the node of the first has served and is long gone, then Muster restarts.
    let mut life = Life::of([pods("web", 1, 3_000), pods("other", 1, 3_500)].concat());
    life.provision(10);
    life.setup.batches[0].status.instances.remove(0);
    life.setup.pods.retain(|pod| pod.uid.as_str().contains("web"));
    assert!(life.look(20).is_empty());
    let batch = &mut life.setup.batches[0];
    let mut gone = batch.status.instances.remove(0);
    gone.state = MemberState::Lost;
    batch.status.replaced.push(gone);
    assert!(life.look(30).is_empty(), "the node that went empty was for others");

    // The same, and EC2 still ends the first when Muster restarts.
    let mut life = Life::of([pods("web", 1, 3_000), pods("other", 1, 3_500)].concat());
    life.provision(10);
    let batch = &mut life.setup.batches[0];
    let mut gone = batch.status.instances.remove(0);
    gone.state = MemberState::Lost;
    batch.status.replaced.push(gone);
    life.setup.nodes.remove(0);
    life.setup.pods.retain(|pod| pod.uid.as_str().contains("web"));
    assert!(life.look(20).is_empty(), "it may have served");
    assert!(life.look(30).is_empty());

    // Two for one class: one went empty, the other has not come yet.
    let mut life = Life::of(pods("web", 2, 3_000));
    life.setup.offers = vec![offered("small", 4_000, 0, 4)];
    life.provision(10);
    let batch = &mut life.setup.batches[0];
    assert_eq!(batch.status.instances.len(), 2);
    for member in &mut batch.status.instances {
        member.state = MemberState::Launched;
        member.node = None;
    }
    assert!(life.look(20).is_empty());
    let batch = &mut life.setup.batches[0];
    let mut gone = batch.status.instances.remove(0);
    gone.state = MemberState::Lost;
    batch.status.replaced.push(gone);
    assert!(life.look(30).is_empty());
    // It goes as well.
    let batch = &mut life.setup.batches[0];
    let mut gone = batch.status.instances.remove(0);
    gone.state = MemberState::Lost;
    batch.status.replaced.push(gone);
    assert_eq!(life.look(40).len(), 1);
}

#[test]
fn when_the_first_node_of_a_batch_has_gone_the_second_is_still_for_its_own_pods() {
    let mut life = Life::of([pods("web", 1, 3_000), pods("other", 1, 3_500)].concat());
    life.provision(10);
    let (first, second) = {
        let batch = life.setup.batches.last_mut().unwrap();
        assert_eq!(batch.spec.fillings.len(), 2, "{:?}", batch.spec.fillings);
        let classes: Vec<String> = batch.spec.fillings.iter().map(|one| one.pods[0].0.clone()).collect();
        (classes[0].clone(), classes[1].clone())
    };
    let batch = life.setup.batches.last_mut().unwrap();
    let mut gone = batch.status.instances.remove(0);
    gone.state = MemberState::Lost;
    batch.status.replaced.push(gone);
    let left: Vec<_> = kept::planned(batch, |_| None).into_iter().flat_map(|(_, pods)| pods.into_keys()).collect();
    assert_eq!(left.iter().map(|class| &**class).collect::<Vec<_>>(), [second.as_str()]);
    let outcome = life.setup.plan_at(at(20), &life.snapshot());
    let launched: Vec<&str> =
        outcome.launches.iter().flat_map(|one| &one.fillings).map(|filling| filling.pods[0].0.as_str()).collect();
    assert_eq!((outcome.joining, launched), (1, vec![first.as_str()]));
}

#[test]
fn nodes_that_never_become_ready_are_launched_twice_and_then_once_per_pause() {
    let mut life = Life::of(pods("web", 12, 3_000));
    life.setup.offers = vec![offered("small", 4_000, 0, 4)];
    let fail = |life: &mut Life, seconds: i64, registers: bool| {
        let before = life.launched.len();
        life.provision(seconds);
        assert_eq!(life.launched.len(), before + 1, "{seconds}");
        let batch = life.setup.batches.last_mut().unwrap();
        for member in &mut batch.status.instances {
            member.state = if registers { MemberState::Registered } else { MemberState::Running };
            if !registers {
                member.node = None;
            }
        }
        for node in &mut life.setup.nodes {
            node.ready = false;
        }
        if !registers {
            life.setup.nodes.clear();
        }
        assert!(life.look(seconds + 10 * MINUTE).is_empty(), "they may still come");
        let status = &mut life.setup.batches.last_mut().unwrap().status;
        let noticed = at(seconds + 15 * MINUTE);
        for mut gone in std::mem::take(&mut status.instances) {
            gone.loss =
                Some(Loss { cause: LossCause::Join, message: String::new(), noticed, act_at: noticed, deadline: None });
            status.replaced.push(gone);
        }
        let found = life.look(seconds + 15 * MINUTE);
        assert!(found.iter().all(|one| one.never_ready) && found.len() == 1, "{found:?}");
        assert!(found[0].to_string().contains("became Ready"), "{}", found[0]);
        life.leave();
        assert!(life.look(seconds + 16 * MINUTE).is_empty(), "a purchase counts once");
    };
    fail(&mut life, 10, true);
    let second = 10 + 17 * MINUTE;
    fail(&mut life, second, false);
    assert_eq!(life.provision(second + 17 * MINUTE), 0, "the pool waits");
    fail(&mut life, second + 21 * MINUTE, true);
    let counts: Vec<u32> = life.launched.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [12, 1, 1]);
}

#[test]
fn a_node_whose_startup_taint_is_awaited_is_not_yet_in_vain() {
    let mut life = Life::of(pods("web", 1, 3_000));
    life.provision(10);
    life.setup.batches[0].status.instances[0].state = MemberState::Registered;
    assert!(life.look(10 + 2 * MINUTE).is_empty());
    life.setup.batches[0].status.instances[0].state = MemberState::Ready;
    assert_eq!(life.look(10 + 3 * MINUTE).len(), 1);
}

#[test]
fn nobody_is_refused_where_ec2_took_the_node_a_person_deleted_the_batch_or_no_pod_waits() {
    let lose = |life: &mut Life, cause| {
        let status = &mut life.setup.batches[0].status;
        let mut gone = status.instances.remove(0);
        gone.loss = Some(Loss { cause, message: String::new(), noticed: at(25), act_at: at(25), deadline: None });
        status.replaced.push(gone);
    };
    let ends: [&dyn Fn(&mut Life); 5] = [
        &|life| lose(life, LossCause::Missing),
        &|life| lose(life, LossCause::Notice(NoticeKind::SpotInterruption)),
        &|life| life.setup.batches[0].deleting = true,
        &|life| life.setup.pods.clear(),
        &|life| life.setup.nodes[0].ready = false,
    ];
    for (number, end) in ends.iter().enumerate() {
        let mut life = Life::of(pods("web", 1, 3_000));
        life.provision(10);
        if number < 4 {
            assert!(life.look(20).is_empty());
        }
        end(&mut life);
        assert!(life.look(30).is_empty(), "{number}");
        let late = life.look(10 + 2 * MINUTE);
        assert!(late.is_empty(), "{number}: {late:?}");
        life.leave();
        assert!(life.look(10 + 3 * MINUTE).is_empty(), "{number}");
    }
}

#[test]
fn pods_that_have_just_come_and_pods_that_others_of_their_class_still_come_before_have_their_chance_first() {
    let mut life = Life::of(pods("web", 1, 3_000));
    life.provision(10);
    // Made again a moment ago: kube-scheduler has hardly looked at it.
    life.setup.pods[0].created = Some(at(MINUTE));
    assert!(life.look(10 + MINUTE).is_empty());
    assert_eq!(life.look(2 * MINUTE).len(), 1);

    let mut life = Life { small_has: 3_000, ..Life::of(pods("web", 2, 3_000)) };
    life.setup.offers = vec![offered("small", 4_000, 0, 4)];
    life.provision(10);
    let other = life.setup.batches[0].clone();
    life.setup.pods.extend(pods("more", 1, 3_000));
    life.provision(20);
    assert_eq!(life.setup.batches.len(), 2);
    assert!(life.look(20).is_empty());
    let name = other.status.instances[0].node.clone().unwrap();
    life.setup.pods[0].node = Some(NodeName::from(name.as_str()));
    assert!(life.look(70).is_empty());
    assert!(life.look(20 + MINUTE).is_empty(), "a pod of the class came ten seconds ago");
    assert_eq!(life.look(70 + MINUTE).len(), 1);
}

#[test]
fn a_pod_that_comes_after_all_takes_the_refusal_back() {
    let mut life = Life::of(pods("web", 1, 3_000));
    life.provision(10);
    assert_eq!(life.look(10 + MINUTE).len(), 1);
    let name = life.setup.batches[0].status.instances[0].node.clone().unwrap();
    life.setup.pods[0].node = Some(NodeName::from(name.as_str()));
    assert!(life.look(10 + 2 * MINUTE).is_empty());
    assert!(life.setup.refusals.is_empty());
    // A new process finds a pod on a node that was launched after the last refusal, and one that was launched before it.
    for (refused_at, cleared) in [(5, true), (15, false)] {
        let mut refusals = SchedulerRefusals::default();
        let (pool, class, name) = (Arc::from(POOL), class(3_000), Arc::from("small"));
        let of = Purchase { pool: &pool, generations: (1, 1), class: &class, instance_type: &name };
        refusals.refuse(&of, at(0), at(refused_at));
        life.purchases = Purchases::new(refusals);
        life.look(10 + 3 * MINUTE);
        assert_eq!(life.setup.refusals.is_empty(), cleared, "{refused_at}");
    }
}

#[test]
fn nodes_that_never_take_their_pods_are_launched_twice_and_then_once_per_pause() {
    for stays in [true, false] {
        let mut life = Life::of(pods("web", 3, 3_000));
        let mut launched_at = None;
        for seconds in 0..12 * 60 * MINUTE {
            if seconds % 5 != 0 {
                continue;
            }
            // Empty nodes go after three minutes, or half a minute.
            if launched_at.is_some_and(|at| seconds - at >= if stays { 180 } else { 30 }) {
                life.leave();
                launched_at = None;
            }
            life.look(seconds);
            if life.provision(seconds) > 0 {
                launched_at = Some(seconds);
            }
        }
        let (first, rest) = life.launched.split_at(2);
        assert_eq!(first.iter().map(|one| one.1).collect::<Vec<_>>(), [3, 1], "{:?}", life.launched);
        assert!(rest.iter().all(|one| one.1 == 1), "one node is tried alone: {:?}", life.launched);
        assert!(rest[0].0 - first[1].0 >= 5 * MINUTE, "{:?}", life.launched);
        // 5, 10, 20, 40, then every hour.
        assert!((13..=16).contains(&life.launched.len()), "{:?}", life.launched);
    }
}
