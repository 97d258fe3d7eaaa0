//! Rounds of pods of no gang: what is launched, and what is not launched twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use muster_core::ec2::CapacityType;
use muster_core::model::batch::{
    Batch, BatchMember, BatchOffer, BatchPhase, BatchSpec, BatchStatus, MemberState, Owner,
};
use muster_core::model::gang::{Foreign, Membership, Pod};
use muster_core::model::names::{InstanceId, NodeName, ResourceName};
use muster_core::model::node::{Node, Taint, TaintEffect, Usage};
use muster_core::model::pod::{Operator, Requirement, SelectorTerm, Shape};
use muster_core::model::resources::Resources;
use muster_core::model::snapshot::Snapshot;
use muster_core::ordinary::awaiting::{self, Classes, awaiting};
use muster_core::ordinary::{
    Cause, Disputes, Fruitless, Launch, Offered, Outcome, Round, SchedulerRefusals, Unseen, Waiting,
    any_rather_keeps_off, is_waiting, plan,
};
use muster_core::packing::{Class, Offer, Pool, Rule};
use rustc_hash::FxHashSet;

use super::world::{GPU, at, node, pod, snapshot};

mod claims;
mod disputes;
mod fallback;
mod foreign;
mod fruitless;
mod refused;
mod topology;

const POOL: &str = "general";

fn asks(cpu: i64) -> Shape {
    Shape { requests: Resources::from_iter([("cpu", cpu), ("pods", 1)]), ..Shape::default() }
}

fn pods(prefix: &str, count: u32, cpu: i64) -> Vec<Pod> {
    (0..count).map(|number| pod(&format!("{prefix}-{number:02}"), &asks(cpu))).collect()
}

fn offered(instance_type: &str, cpu: i64, gpus: i64, price: u64) -> Offered {
    let mut node = node(instance_type, gpus);
    node.allocatable.set("cpu", cpu);
    let offer = Offer {
        pool: 0,
        variant: 0,
        instance_type: instance_type.into(),
        zone: Some("a".into()),
        capacity_type: CapacityType::OnDemand,
        reservation: None,
        free: None,
        price,
        list_price: price,
        capacity: node.allocatable.clone(),
        node: Arc::new(node),
        overhead: Usage::default(),
    };
    Offered { offer, pool_name: POOL.into(), available: true }
}

/// Four CPUs for 4, sixteen for 15, and a machine with accelerators.
fn offers() -> Vec<Offered> {
    vec![offered("small", 4_000, 0, 4), offered("large", 16_000, 0, 15), offered("accelerated", 64_000, 8, 900)]
}

struct Setup {
    pods: Vec<Pod>,
    nodes: Vec<Node>,
    batches: Vec<Batch>,
    offers: Vec<Offered>,
    left: BTreeMap<ResourceName, i64>,
    min_values: Vec<(Arc<str>, u32)>,
    refusals: SchedulerRefusals,
    fruitless: Fruitless,
    disputes: Disputes,
    /// Topology constraints of pods, by their label `app`.
    rules: BTreeMap<Arc<str>, Vec<Rule>>,
}

impl Setup {
    fn of(pods: Vec<Pod>) -> Self {
        let (left, min_values, refusals) = (BTreeMap::new(), Vec::new(), SchedulerRefusals::default());
        let (nodes, batches, rules) = (Vec::new(), Vec::new(), BTreeMap::new());
        let (fruitless, disputes) = (Fruitless::default(), Disputes::default());
        Self { pods, nodes, batches, offers: offers(), left, min_values, refusals, fruitless, disputes, rules }
    }

    fn snapshot(&self) -> Snapshot {
        snapshot(&self.nodes, &self.pods, &[], &[])
    }

    fn plan(&self) -> Outcome {
        self.plan_at(at(100), &self.snapshot())
    }

    fn plan_at(&self, now: Timestamp, snapshot: &Snapshot) -> Outcome {
        self.plan_by(now, now, snapshot)
    }

    /// By the provisioner's clock and in real time.
    fn plan_by(&self, now: Timestamp, now_real: Timestamp, snapshot: &Snapshot) -> Outcome {
        let of = |pod: &Pod| {
            let shape = Shape::clone(pod.shape.as_ref().unwrap());
            let labels = pod.neighbour.labels.clone();
            let rules = labels.get("app").and_then(|app| self.rules.get(app)).cloned().unwrap_or_default();
            let namespace = Arc::clone(&pod.key.namespace);
            let class = Class { shape, namespace, labels, rules, ..Class::default() };
            Waiting { pod: Arc::new(pod.clone()), ladder: [class].into() }
        };
        let apart: Vec<Waiting> = self.pods.iter().filter(|pod| is_waiting(pod)).map(of).collect();
        let outcome = self.plan_of(apart.clone(), now, now_real, snapshot);
        // Pods of one template share what was read of them: no plan depends on it.
        let mut ladders: FxHashSet<Arc<[Class]>> = FxHashSet::default();
        let share = |mut one: Waiting| {
            one.ladder = ladders.get(&one.ladder).cloned().unwrap_or(one.ladder);
            ladders.insert(Arc::clone(&one.ladder));
            one
        };
        let shared = apart.into_iter().map(share).collect();
        assert_eq!(self.plan_of(shared, now, now_real, snapshot), outcome);
        outcome
    }

    fn plan_of(&self, waiting: Vec<Waiting>, now: Timestamp, now_real: Timestamp, snapshot: &Snapshot) -> Outcome {
        plan(&Round {
            waiting,
            snapshot,
            batches: self.batches.iter().cloned().map(Arc::new).collect(),
            pools: vec![Pool {
                name: POOL.into(),
                weight: 0,
                left: self.left.clone(),
                min_values: self.min_values.clone(),
            }],
            most: vec![1000],
            offers: self.offers.clone(),
            accelerators: &[GPU.into()],
            refusals: &self.refusals,
            fruitless: &self.fruitless,
            disputes: &self.disputes,
            now,
            now_real,
        })
    }

    /// The batches of launches in a phase, and no others.
    fn has_launched(&mut self, launches: &[Launch], phase: BatchPhase) {
        self.batches.clear();
        self.launch(launches, phase);
    }

    /// Creates the batches of launches, in a phase.
    fn launch(&mut self, launches: &[Launch], phase: BatchPhase) {
        for launch in launches {
            let offer = BatchOffer {
                node_pool: launch.pool.to_string(),
                instance_type: launch.instance_type.to_string(),
                count: launch.count,
            };
            let spec = BatchSpec {
                node_pools: vec![launch.pool.to_string()],
                count: launch.count,
                partial: true,
                owner: Owner::Pods,
                offers: vec![offer],
                zones: vec![launch.zone.to_string()],
                capacity_type: Some(launch.capacity_type),
                fillings: launch.fillings.clone(),
                ..BatchSpec::default()
            };
            let status = BatchStatus { phase, count: launch.count, ..BatchStatus::default() };
            self.batches.push(Batch {
                name: launch.name.clone(),
                uid: format!("{}-uid", launch.name),
                created: Some(at(0)),
                deleting: false,
                spec: Arc::new(spec),
                status,
                newer: None,
            });
        }
    }
}

fn shown(outcome: &Outcome) -> Vec<(&str, u32, usize)> {
    outcome.launches.iter().map(|one| (&*one.instance_type, one.count, one.pods.len())).collect()
}

#[test]
fn pods_of_no_gang_that_wait_get_the_cheapest_nodes() {
    let outcome = Setup::of(pods("web", 18, 1_000)).plan();
    let held: usize = outcome.launches.iter().map(|one| one.pods.len()).sum();
    assert_eq!((outcome.cost, outcome.bound, outcome.launches.len(), held), (19, 19, 2, 18));
    assert!(outcome.refused.is_empty());
}

#[test]
fn members_of_gangs_bound_held_and_foreign_pods_are_not_provisioned_for() {
    let one = || pods("web", 1, 1_000).remove(0);
    assert!(is_waiting(&one()));
    let membership = Membership::Unknown;
    for other in [
        Pod { membership, ..one() },
        Pod { node: Some(NodeName::from("n")), ..one() },
        Pod { nominated: Some(NodeName::from("n")), ..one() },
        Pod { deleting: true, ..one() },
        Pod { ended: true, ..one() },
        Pod { ours: false, ..one() },
        Pod { ours: false, foreign: Foreign::Provisioned, daemon: true, ..one() },
        Pod { foreign_gate: Some(Arc::from("quota.example.com/held")), ..one() },
        Pod { gated: true, ..one() },
        Pod { daemon: true, ..one() },
    ] {
        assert!(!is_waiting(&other), "{other:?}");
    }
}

#[test]
fn a_node_that_stands_is_used_before_one_is_launched() {
    let mut setup = Setup::of(pods("web", 12, 1_000));
    setup.nodes = vec![node("there", 0)];
    let outcome = setup.plan();
    assert_eq!((outcome.placed, shown(&outcome)), (10, vec![("small", 1, 2)]));
}

#[test]
fn pods_whose_places_others_took_are_launched_for_once_more_under_another_name() {
    let mut setup = Setup::of(pods("web", 1, 3_000));
    let first = setup.plan().launches;
    assert_eq!(setup.plan().launches, first, "nobody has seen it: it is the very same launch");
    setup.launch(&first, BatchPhase::InUse);
    // Another pod of its class stands on the node.
    let mut node = node("n-1", 0);
    node.allocatable.set("cpu", 4_000);
    setup.batches[0].status.instances = vec![BatchMember {
        node: Some("n-1".to_owned()),
        registered: Some(at(0)),
        ..BatchMember::new(InstanceId::from("i-1"), 1, MemberState::Ready)
    }];
    setup.nodes.push(node);
    let other = Pod { node: Some(NodeName::from("n-1")), ..pods("other", 1, 3_000).remove(0) };
    setup.pods.push(other);
    let second = setup.plan().launches;
    assert_eq!((second.len(), &second[0].pods), (1, &first[0].pods));
    assert_ne!(second[0].name, first[0].name);
    setup.launch(&second, BatchPhase::InUse);
    setup.batches[1].status.phase = BatchPhase::Terminating;
    let third = setup.plan().launches;
    let names: std::collections::BTreeSet<&str> =
        [&first, &second, &third].iter().map(|launches| launches[0].name.as_str()).collect();
    assert_eq!(names.len(), 3, "nothing came of the second: {names:?}");
}

#[test]
fn what_the_watch_does_not_show_is_assumed_until_it_does_and_listed_again_after_half_a_minute_or_a_lost_answer() {
    let mut setup = Setup::of(pods("web", 2, 3_000));
    let launches = setup.plan().launches;
    setup.launch(&launches, BatchPhase::Pending);
    let one = Arc::new(setup.batches.remove(0));
    let names = |unseen: &Unseen| unseen.batches().map(|batch| batch.name.clone()).collect::<Vec<_>>();
    let mut unseen = Unseen::default();
    assert!(unseen.is_due(at(0)), "nothing is known yet");
    unseen.listed([], at(0));
    assert!(!unseen.is_due(at(1_000)), "nothing is missing");
    unseen.made(Arc::clone(&one), at(1_000));
    assert_eq!(
        (names(&unseen), unseen.is_due(at(1_029)), unseen.is_due(at(1_030))),
        (vec![one.name.clone()], false, true)
    );
    unseen.listed([Arc::clone(&one)], at(1_030));
    assert_eq!((names(&unseen).len(), unseen.is_due(at(1_059))), (1, false));
    unseen.shown(|name| name != one.name);
    assert_eq!(names(&unseen).len(), 1);
    unseen.shown(|name| name == one.name);
    assert_eq!((names(&unseen).len(), unseen.is_due(at(9_000))), (0, false));
    unseen.unanswered();
    assert!(unseen.is_due(at(9_000)));
}

#[test]
fn a_launch_shrinks_to_what_the_limits_leave_and_takes_it() {
    use muster_core::offering::{Ceiling, Ledger, LedgerInputs, NODES, PoolLimits};
    let limits = PoolLimits { limits: [(ResourceName::from(NODES), 3)].into(), max_micro_usd_per_hour: None };
    let inputs =
        LedgerInputs { pools: [(POOL.to_owned(), limits)].into(), cluster: Ceiling::Unlimited, claims: Vec::new() };
    let mut left = Ledger::beside_all(&inputs);
    let each = Resources::from_iter([(NODES, 1)]);
    let mut setup = Setup::of(pods("web", 2, 3_000));
    setup.pods.extend(pods("small", 3, 1_000));
    setup.offers.truncate(1);
    let launch = setup.plan().launches.remove(0);
    let nodes = |launch: &Launch| launch.fillings.iter().map(|one| one.nodes).sum::<u32>();
    assert_eq!((launch.count, nodes(&launch), launch.price), (3, 3, 12));
    let two = Launch { count: 2, price: 8, fillings: launch.fillings[..1].to_vec(), ..launch.clone() };
    let addresses = launch.within(&mut left.clone(), &each, 1).unwrap();
    assert_eq!((addresses.count, nodes(&addresses), addresses.price), (1, 1, 4), "the subnets have no more addresses");
    assert_eq!(launch.within(&mut left.clone(), &each, 0), None, "they have none");
    let two = two.within(&mut left, &each, 9).unwrap();
    assert_eq!((two.count, two.price), (2, 8), "it fits");
    let one = launch.within(&mut left, &each, 9).unwrap();
    assert_eq!((one.count, nodes(&one), one.price, one.fillings.len()), (1, 1, 4, 1), "one is left");
    assert_eq!(launch.within(&mut left, &each, 9), None, "none is");
}

#[test]
fn a_taint_that_is_only_preferred_is_heeded_before_any_node_has_it() {
    let mut setup = Setup::of(Vec::new());
    assert!(!any_rather_keeps_off(&setup.snapshot(), &setup.offers));
    let soft = Taint { key: "dear".into(), value: "".into(), effect: TaintEffect::PreferNoSchedule };
    let mut there = node("there", 0);
    there.taints.push(soft.clone());
    setup.nodes.push(there);
    assert!(any_rather_keeps_off(&setup.snapshot(), &setup.offers), "a node has it");
    setup.nodes.clear();
    Arc::make_mut(&mut setup.offers[1].offer.node).taints.push(soft);
    assert!(any_rather_keeps_off(&setup.snapshot(), &setup.offers), "the next node of a pool will");
}

#[test]
fn what_is_on_its_way_is_not_provisioned_again_whatever_other_replicas_come() {
    let mut setup = Setup::of(pods("web", 6, 3_000));
    let first = setup.plan();
    for phase in [BatchPhase::Pending, BatchPhase::Launching, BatchPhase::Launched] {
        setup.has_launched(&first.launches, phase);
        let again = setup.plan();
        assert_eq!((again.joining, again.launches.len()), (6, 0), "{phase:?}");
        // A replica was made again under another name: it takes the place of the one that is gone.
        let mut others = pods("web", 5, 3_000);
        others.extend(pods("new", 1, 3_000));
        let renamed = Setup { pods: others, offers: offers(), ..Setup::of(Vec::new()) };
        let renamed = Setup { batches: setup.batches.clone(), ..renamed };
        assert!(renamed.plan().launches.is_empty(), "{phase:?}");
        // Two more replicas are two more pods, and no others.
        let more = Setup { pods: pods("web", 8, 3_000), batches: setup.batches.clone(), ..Setup::of(Vec::new()) };
        let launched: usize = more.plan().launches.iter().map(|one| one.pods.len()).sum();
        assert!(launched <= 2, "{phase:?}: {launched}");
    }
}

#[test]
fn nobody_waits_for_nodes_of_a_batch_that_is_deleted_before_they_are_there() {
    let mut setup = Setup::of(pods("web", 6, 3_000));
    let first = setup.plan();
    for phase in [BatchPhase::Pending, BatchPhase::Launching, BatchPhase::Launched] {
        setup.has_launched(&first.launches, phase);
        setup.batches.iter_mut().for_each(|batch| batch.deleting = true);
        let again = setup.plan();
        assert_eq!((again.joining, shown(&again)), (0, shown(&first)), "{phase:?}");
    }
}

#[test]
fn pods_on_their_way_by_a_batch_of_another_version_are_not_provisioned_for_again() {
    let mut setup = Setup::of(pods("web", 6, 3_000));
    setup.offers = vec![offered("small", 4_000, 0, 4)];
    let mut first = setup.plan();
    for filling in &mut first.launches.iter_mut().flat_map(|launch| &mut launch.fillings) {
        // As the first version wrote classes down.
        filling.pods.iter_mut().for_each(|(class, _)| *class = "abcdefghijklmnop".to_owned());
    }
    for phase in [BatchPhase::Pending, BatchPhase::Launching, BatchPhase::Launched] {
        setup.has_launched(&first.launches, phase);
        let again = setup.plan();
        assert_eq!((again.joining, again.launches.len()), (6, 0), "{phase:?}");
        // Who came after the batch was created is provisioned for, and nobody stands where its pods will stand; a replica
        // that was made again is not.
        let mut others = pods("web", 5, 3_000);
        others.extend(pods("new", 3, 3_000));
        others.iter_mut().skip(5).for_each(|pod| pod.created = Some(at(50)));
        others.iter_mut().take(5).for_each(|pod| pod.created = Some(at(-50)));
        others.reverse();
        let later = Setup {
            pods: others,
            batches: setup.batches.clone(),
            offers: setup.offers.clone(),
            ..Setup::of(Vec::new())
        };
        let later = later.plan();
        assert_eq!((later.joining, shown(&later)), (6, vec![("small", 2, 2)]), "{phase:?}");
        let launched = &later.launches[0].pods;
        assert!(launched.iter().all(|pod| pod.as_str().contains("new")), "{launched:?}");
    }
}

#[test]
fn a_batch_that_is_given_up_or_shrank_leaves_its_pods_to_the_next_round() {
    let mut setup = Setup::of(pods("web", 20, 3_000));
    setup.offers = vec![offered("small", 4_000, 0, 4)];
    let first = setup.plan();
    assert_eq!(shown(&first), [("small", 20, 20)]);
    setup.launch(&first.launches, BatchPhase::Terminating);
    assert_eq!(shown(&setup.plan()), [("small", 20, 20)]);
    setup.has_launched(&first.launches, BatchPhase::Launched);
    setup.batches[0].status.count = 15;
    let again = setup.plan();
    assert_eq!((again.joining, shown(&again)), (15, vec![("small", 5, 5)]));
}

#[test]
fn pods_that_are_bound_hold_their_places_and_the_others_still_come() {
    let mut setup = Setup::of(pods("web", 4, 3_000));
    setup.offers = vec![offered("small", 4_000, 0, 4)];
    let first = setup.plan();
    setup.launch(&first.launches, BatchPhase::Launched);
    let member = |number: usize, state| BatchMember {
        node: Some(format!("n-{number}")),
        registered: Some(at(90)),
        ..BatchMember::new(InstanceId::from(format!("i-{number}")), 1, state)
    };
    setup.batches[0].status.instances = (0..4)
        .map(|number| member(number, if number < 2 { MemberState::Ready } else { MemberState::Running }))
        .collect();
    setup.nodes = (0..2).map(|number| node(&format!("n-{number}"), 0)).collect();
    setup.pods[0].node = Some(NodeName::from("n-0"));
    let again = setup.plan();
    assert_eq!((again.joining, again.launches.len()), (3, 0));
}

#[test]
fn an_offer_without_capacity_is_not_asked_for_and_a_limit_is_kept() {
    let mut setup = Setup::of(pods("web", 8, 3_000));
    setup.offers[1].available = false;
    assert_eq!(shown(&setup.plan()), [("small", 8, 8)]);
    setup.left = BTreeMap::from([(ResourceName::from("nodes"), 3)]);
    let outcome = setup.plan();
    assert_eq!((shown(&outcome), outcome.refused.len()), (vec![("small", 3, 3)], 5));
    assert!(outcome.refused[0].why.contains("the limit on nodes is reached"), "{}", outcome.refused[0].why);
}

#[test]
fn nobody_gets_a_machine_with_accelerators_who_does_not_ask_for_them() {
    let outcome = Setup::of(pods("wide", 1, 32_000)).plan();
    assert!(outcome.launches.is_empty());
    assert!(outcome.refused[0].why.contains("only for pods that ask for one"), "{}", outcome.refused[0].why);
    let mut asks = asks(32_000);
    asks.requests.set(GPU, 1);
    assert_eq!(shown(&Setup::of(vec![pod("gpu", &asks)]).plan()), [("accelerated", 1, 1)]);
}

#[test]
fn whoever_asks_for_no_accelerator_does_not_wait_for_one_who_asks_and_gets_none() {
    let mut wants = asks(100_000);
    wants.requests.set(GPU, 1);
    let mut setup = Setup::of(pods("web", 2, 3_000).into_iter().chain([pod("gpu", &wants)]).collect());
    // Cheaper than what has none, as on spot.
    setup.offers[2] = offered("accelerated", 8_000, 8, 1);

    let outcome = setup.plan();

    assert_eq!(shown(&outcome), [("small", 2, 2)]);
    let [refused] = &outcome.refused[..] else { panic!("{:?}", outcome.refused) };
    assert_eq!((&refused.pod, refused.cause), (&setup.pods[2].uid, Cause::NoOfferFits));
    assert!(refused.why.contains("cpu") && !refused.why.contains("only for pods that ask"), "{}", refused.why);
    // Beside one who gets it they cost nothing.
    wants.requests.set("cpu", 1_000);
    setup.pods[2] = pod("gpu", &wants);
    assert_eq!(shown(&setup.plan()), [("accelerated", 1, 3)]);
}

#[test]
fn a_pod_that_fits_nowhere_says_what_is_short() {
    let outcome = Setup::of(pods("huge", 1, 100_000)).plan();
    let why = &outcome.refused[0].why;
    assert!(why.contains("NodePool general: an empty ") && why.contains(" cpu"), "{why}");
}

#[test]
fn a_launch_of_the_same_pods_has_the_same_name_and_of_others_another() {
    let names = |pods: Vec<Pod>| Setup::of(pods).plan().launches.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(pods("web", 3, 1_000)), names(pods("web", 3, 1_000)));
    assert_ne!(names(pods("web", 3, 1_000)), names(pods("job", 3, 1_000)));
}

#[test]
fn a_batch_has_a_hundred_nodes_at_most() {
    let mut setup = Setup::of(pods("web", 250, 3_000));
    setup.offers = vec![offered("small", 4_000, 0, 4)];
    let outcome = setup.plan();
    let counts: Vec<u32> = outcome.launches.iter().map(|one| one.count).collect();
    assert_eq!(counts, [100, 100, 50]);
    let places: u32 = outcome
        .launches
        .iter()
        .flat_map(|one| &one.fillings)
        .flat_map(|one| one.pods.iter().map(|pods| pods.1 * one.nodes))
        .sum();
    assert_eq!(places, 250);
}

#[test]
fn a_node_awaits_its_pods_once_it_has_registered_whether_or_not_its_batch_names_it_yet() {
    let mut setup = Setup::of(pods("web", 18, 1_000));
    let launches = setup.plan().launches;
    setup.launch(&launches, BatchPhase::Joining);
    let class = Classes::default().of(&setup.pods[0]).unwrap();
    let (mut all, mut first_ones) = (0, 0);
    for batch in &mut setup.batches {
        for number in 0..batch.status.count {
            let id = InstanceId::from(format!("i-{number}").as_str());
            batch.status.instances.push(BatchMember::new(id, 1, MemberState::Launched));
        }
        let coming = |registered: &[(InstanceId, NodeName)]| {
            let node_of = |id: &InstanceId| registered.iter().find(|(one, _)| one == id).map(|(_, node)| node);
            (awaiting::planned(batch, node_of), awaiting::coming(batch, node_of).get(&class).copied().unwrap_or(0))
        };
        let (planned, before) = coming(&[]);
        assert!(planned.is_empty());
        all += before;
        let (planned, after) = coming(&[(InstanceId::from("i-0"), NodeName::from("n1"))]);
        let [(node, of_it)] = &planned[..] else { panic!("{planned:?}") };
        assert_eq!(node, &NodeName::from("n1"));
        let on_first: u32 = of_it.values().sum();
        assert!(on_first > 0);
        assert_eq!(after, before - on_first, "what it holds does not come any more");
        first_ones += on_first;
    }
    assert_eq!(all, 18);
    assert!(first_ones > 0);
}

#[test]
fn each_node_of_a_batch_awaits_the_pods_it_was_planned_for_until_they_are_on_it() {
    let mut setup = Setup::of(pods("web", 18, 1_000));
    let launches = setup.plan().launches;
    setup.launch(&launches, BatchPhase::Joining);
    let mut classes = Classes::default();
    let class = classes.of(&setup.pods[0]).unwrap();
    let mut awaited = 0;
    for batch in &mut setup.batches {
        assert!(awaiting::planned(batch, |_| None).is_empty(), "no node has a name yet");
        for number in 0..batch.status.count {
            let id = InstanceId::from(format!("i-{number}").as_str());
            let mut member = BatchMember::new(id, 1, MemberState::Ready);
            member.node = Some(format!("{}-{number}", batch.name));
            batch.status.instances.push(member);
        }
        let planned = awaiting::planned(batch, |_| None);
        assert_eq!(planned.len(), batch.status.instances.len());
        for (node, of_it) in &planned {
            let on = |many: u32| -> Vec<Arc<Pod>> {
                let bound = pods("bound", many, 1_000).into_iter();
                bound.map(|pod| Arc::new(Pod { node: Some(node.clone()), ..pod })).collect()
            };
            let left = |on: &[Arc<Pod>], classes: &mut Classes| {
                awaiting(of_it, None, on.iter(), classes, None)
                    .map_or(0, |all| all.places.values().map(|one| one.left).sum())
            };
            let many: u32 = of_it.values().sum();
            awaited += many;
            assert_eq!(left(&[], &mut classes), many);
            assert_eq!(left(&on(1), &mut classes), many - 1);
            assert_eq!(left(&on(many), &mut classes), 0, "all have come");
            assert_eq!(left(&on(many + 1), &mut classes), 0);
            let daemon = Arc::new(Pod { daemon: true, ..Pod::clone(&on(1)[0]) });
            assert_eq!(left(&[daemon], &mut classes), many, "a DaemonSet's pod takes nobody's place");
            let ended = Arc::new(Pod { ended: true, ..Pod::clone(&on(1)[0]) });
            assert_eq!(left(&[ended], &mut classes), many, "who has ended takes no place");
            let other = pods("other", 1, 2_000).remove(0);
            let other = Arc::new(Pod { node: Some(node.clone()), ..other });
            assert_eq!(left(&[other], &mut classes), many, "of another class");
            let all = awaiting(of_it, None, [].iter(), &mut classes, None).unwrap();
            let fewer: BTreeMap<_, _> = of_it.iter().map(|(class, many)| (Arc::clone(class), many - 1)).collect();
            let again = awaiting(of_it, Some(&fewer), [].iter(), &mut classes, None);
            let again: u32 = again.map_or(0, |all| all.places.values().map(|one| one.left).sum());
            assert_eq!(
                again,
                fewer.values().sum::<u32>(),
                "one has come and is gone: nobody is awaited for that place"
            );
            assert_eq!(awaiting(of_it, Some(&BTreeMap::new()), [].iter(), &mut classes, None), None, "all have come");
            assert_eq!(
                all.places[&class].requests.as_ref(),
                Some(&asks(1_000).requests),
                "what each asks for is known"
            );
        }
        let mut ends = batch.clone();
        ends.status.phase = BatchPhase::Terminating;
        assert!(awaiting::planned(&ends, |_| None).is_empty(), "of a batch that ends no node awaits anybody");
        let deleted = Batch { deleting: true, ..batch.clone() };
        assert!(awaiting::planned(&deleted, |_| None).is_empty());
        let mut older = batch.clone();
        let spec = Arc::make_mut(&mut older.spec);
        // As the first version wrote classes down: its own pods would be kept away with all others.
        spec.fillings.iter_mut().flat_map(|one| &mut one.pods).for_each(|pods| pods.0 = "abcdefghijklmnop".to_owned());
        for (_, of_it) in awaiting::planned(&older, |_| None) {
            assert_eq!(awaiting(&of_it, None, [].iter(), &mut classes, None), None, "who is awaited cannot be read");
        }
    }
    assert_eq!(awaited, 18, "every pod is awaited somewhere");
}

#[test]
fn a_node_is_kept_for_a_minute_from_ready_and_not_at_all_if_it_has_stood_for_long() {
    let mut fresh = node("n", 0);
    assert_eq!(awaiting::until(&fresh, at(100)), at(160));
    fresh.created = Some(at(0));
    assert_eq!(awaiting::until(&fresh, at(100)), at(160));
    assert_eq!(awaiting::until(&fresh, at(899)), at(959));
    assert_eq!(awaiting::until(&fresh, at(900)), at(900), "seen again after a restart");
}

#[test]
fn a_node_that_serves_is_planned_on_as_it_is_while_another_of_its_batch_is_still_awaited() {
    // Two nodes of one pod each.
    let mut setup = Setup::of(pods("web", 2, 3_000));
    setup.offers = vec![offered("small", 4_000, 0, 4)];
    let launches = setup.plan().launches;
    setup.launch(&launches, BatchPhase::Launched);
    let status = &mut setup.batches[0].status;
    let mut first = BatchMember::new(InstanceId::from("i-0".to_owned()), 1, MemberState::Ready);
    first.node = Some("n-0".to_owned());
    first.registered = Some(at(0));
    status.instances = vec![first, BatchMember::new(InstanceId::from("i-1".to_owned()), 1, MemberState::Running)];
    let mut there = node("n-0", 0);
    there.allocatable.set("cpu", 4_000);
    setup.nodes = vec![there];
    setup.pods[0].node = Some(NodeName::from("n-0"));
    setup.pods.extend(pods("other", 2, 900));

    // At first both nodes are for whom they were launched for: one pod of another class fits beside each.
    let soon = setup.plan_at(at(60), &setup.snapshot());
    assert_eq!((soon.joining, soon.placed, soon.launches.len()), (1, 2, 0));

    // Its own pod has ended, and others fill it.
    setup.pods[0] = Pod { node: Some(NodeName::from("n-0")), ..pods("filler", 1, 3_500).remove(0) };
    let later = setup.plan_at(at(10 * 60), &setup.snapshot());
    assert_eq!((later.joining, later.placed), (1, 1), "the second node still comes for one pod");
    assert_eq!(shown(&later), [("small", 1, 1)], "the first one is full, whatever was planned for it");
    // A batch whose offer is gone hides none of its nodes.
    setup.offers[0].offer.zone = Some("b".into());
    setup.pods[0] = Pod { node: Some(NodeName::from("n-0")), ..pods("web", 1, 3_000).remove(0) };
    let elsewhere = setup.plan_at(at(60), &setup.snapshot());
    assert_eq!((elsewhere.joining, elsewhere.placed, elsewhere.launches.len()), (1, 1, 1));
}

#[test]
fn a_place_in_one_zone_is_not_for_a_pod_whose_volume_is_in_another() {
    let in_zone = |zone: &str| SelectorTerm {
        expressions: vec![Requirement { key: "zone".into(), operator: Operator::In, values: vec![zone.into()] }],
        ..SelectorTerm::default()
    };
    let with_volume = |name: &str, zone: &str| pod(name, &Shape { volumes: vec![vec![in_zone(zone)]], ..asks(3_000) });
    let at_zone = |zone: &str| {
        let mut one = offered("small", 4_000, 0, 4);
        one.offer.zone = Some(zone.into());
        Arc::make_mut(&mut one.offer.node).labels.insert("zone".into(), zone.into());
        one
    };
    let mut setup = Setup::of(vec![with_volume("db-1", "b")]);
    setup.offers = vec![at_zone("a"), at_zone("b")];
    let launches = setup.plan().launches;
    assert_eq!(&*launches[0].zone, "b");
    setup.launch(&launches, BatchPhase::Launched);
    // It is planned before the one that the node comes for.
    setup.pods.insert(0, with_volume("db-0", "a"));
    let outcome = setup.plan();
    assert_eq!(outcome.joining, 1);
    let zones: Vec<(&str, &str)> = outcome.launches.iter().map(|one| (&*one.zone, one.pods[0].as_str())).collect();
    assert_eq!(zones.len(), 1);
    assert!(zones[0].0 == "a" && zones[0].1.contains("db-0"), "{zones:?}");
}

#[test]
fn reserved_hosts_are_used_while_they_last_and_a_launch_goes_into_one_reservation() {
    let reserved = |id: &str, free: u32| {
        let mut one = offered("small", 4_000, 0, 0);
        one.offer.capacity_type = CapacityType::Reserved;
        one.offer.reservation = Some(id.into());
        one.offer.free = Some(free);
        one
    };
    let mut setup = Setup::of(pods("web", 4, 3_000));
    setup.offers = vec![offered("small", 4_000, 0, 4), reserved("cr-1", 2), reserved("cr-2", 1)];
    let outcome = setup.plan();
    let mut launched: Vec<(CapacityType, u32)> =
        outcome.launches.iter().map(|one| (one.capacity_type, one.count)).collect();
    launched.sort();
    assert_eq!(launched, [(CapacityType::Reserved, 1), (CapacityType::Reserved, 2), (CapacityType::OnDemand, 1)]);
    assert_eq!(outcome.cost, 4, "what is reserved is paid for anyway");
    let names: std::collections::BTreeSet<&str> = outcome.launches.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names.len(), 3);
    // One that refused is not counted on.
    setup.offers[1].available = false;
    let launched: Vec<u32> = setup.plan().launches.iter().map(|one| one.count).collect();
    assert_eq!(launched.iter().sum::<u32>(), 4);
    assert_eq!(setup.plan().cost, 12);
}
