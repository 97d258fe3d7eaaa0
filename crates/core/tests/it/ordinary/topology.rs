//! Topology constraints of pods that wait and of those that stand, wherever that is.

use std::sync::Arc;

use muster_core::model::batch::{BatchMember, BatchPhase, BatchSpec, MemberState, Owner, OwnerRef};
use muster_core::model::gang::{Phase, Pod};
use muster_core::model::names::{InstanceId, NodeName, ObjectKey};
use muster_core::model::node::Node;
use muster_core::model::pod::{AntiAffinityTerm, DomainTerm, Neighbour, Operator, Requirement};
use muster_core::ordinary::{Offered, Outcome};
use muster_core::packing::{PodTerm, Rule, Spread};

use super::{Setup, offered, pods, shown};
use crate::world::{at, gang, node, place, snapshot};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";

fn selects(app: &str) -> Vec<Requirement> {
    vec![Requirement { key: "app".into(), operator: Operator::In, values: vec![app.into()] }]
}

fn term(key: &str, app: &str) -> PodTerm {
    PodTerm { key: key.into(), namespaces: Some([Arc::from("ns")].into()), selector: Some(selects(app)) }
}

fn spread(key: &str, app: &str) -> Rule {
    let (honor_affinity, honor_taints) = (true, false);
    let (selector, key) = (selects(app), key.into());
    Rule::Spread(Spread { key, selector, max_skew: 1, min_domains: 1, honor_affinity, honor_taints })
}

/// Pods with the label `app`, as of a class of its own.
fn of_app(app: &str, count: u32, cpu: i64) -> Vec<Pod> {
    let labels = [(Arc::from("app"), Arc::from(app))].into();
    let constraints = Some(Arc::from(app));
    let neighbour = Arc::new(Neighbour { namespace: "ns".into(), labels, constraints, ..Neighbour::default() });
    pods(app, count, cpu).into_iter().map(|pod| Pod { neighbour: Arc::clone(&neighbour), ..pod }).collect()
}

fn on(node: &str, pod: Pod) -> Pod {
    Pod { node: Some(NodeName::from(node)), running: true, ..pod }
}

fn in_zone(zone: &str) -> Offered {
    let mut one = offered("small", 4_000, 0, 4);
    one.offer.zone = Some(zone.into());
    Arc::make_mut(&mut one.offer.node).labels.insert(ZONE.into(), zone.into());
    one
}

/// A pod of `web` waits; `db` stands on a node of zone a, beside which another of that zone is free.
fn beside_db(rule: Rule) -> Setup {
    let mut setup = Setup::of(of_app("web", 1, 1_000));
    setup.pods.push(on("n-db", of_app("db", 1, 1_000).remove(0)));
    setup.nodes = vec![node("n-db", 0), node("n-free", 0)];
    setup.offers = vec![in_zone("a"), in_zone("b")];
    setup.rules.insert("web".into(), vec![rule]);
    setup
}

fn zones(outcome: &Outcome) -> Vec<&str> {
    outcome.launches.iter().map(|one| &*one.zone).collect()
}

type Spoil = (&'static str, fn(&mut Node));

/// What keeps pods from a node, and does not keep those that stand there from being counted.
const SPOILT: [Spoil; 4] = [
    ("cordoned", |node| node.unschedulable = true),
    ("NotReady", |node| node.ready = false),
    ("held", |node| node.held = true),
    ("going", |node| node.deleting = true),
];

#[test]
fn whoever_stands_on_a_node_that_takes_nobody_keeps_its_zone_from_those_who_keep_away() {
    for (name, spoil) in SPOILT {
        let mut setup = beside_db(Rule::AntiAffinity(term(ZONE, "db")));
        spoil(&mut setup.nodes[0]);
        let outcome = setup.plan();
        assert_eq!((outcome.placed, zones(&outcome)), (0, vec!["b"]), "{name}");
    }
    // Provisioned for a gang that does not use it yet.
    let setup = beside_db(Rule::AntiAffinity(term(ZONE, "db")));
    let mut seen = snapshot(&setup.nodes, &setup.pods, &[], &[]);
    let gang = gang("train", Phase::Planned, vec![place(0, None, "n-db")]);
    let capacity = muster_core::model::snapshot::AssignedCapacity::WholeNode;
    let assignment = muster_core::model::snapshot::Assignment { gang: gang.key, capacity };
    seen.assignments.insert(NodeName::from("n-db"), vec![assignment]);
    let outcome = setup.plan_at(at(100), &seen);
    assert_eq!((outcome.placed, zones(&outcome)), (0, vec!["b"]));
}

#[test]
fn affinity_to_a_pod_on_a_node_that_takes_nobody_is_met_in_its_zone() {
    for (name, spoil) in SPOILT {
        let mut setup = beside_db(Rule::Affinity(vec![term(ZONE, "db")]));
        spoil(&mut setup.nodes[0]);
        setup.nodes.truncate(1);
        let outcome = setup.plan();
        assert_eq!((zones(&outcome), outcome.refused.len()), (vec!["a"], 0), "{name}");
    }
}

#[test]
fn pods_on_a_cordoned_node_count_for_spread() {
    let mut setup = beside_db(spread(ZONE, "web"));
    setup.pods[1] = on("n-db", of_app("web", 2, 1_000).remove(1));
    setup.nodes[0].unschedulable = true;
    let outcome = setup.plan();
    assert_eq!((outcome.placed, zones(&outcome)), (0, vec!["b"]));
}

#[test]
fn a_running_pod_keeps_its_zone_from_those_it_keeps_away() {
    let mut setup = beside_db(spread(HOSTNAME, "web"));
    let away = AntiAffinityTerm { namespaces: Some(vec!["ns".into()]), selector: selects("web") };
    let db = &mut setup.pods[1];
    Arc::make_mut(&mut db.neighbour).keeps_off = vec![DomainTerm { key: ZONE.into(), term: away }];
    let outcome = setup.plan();
    assert_eq!((outcome.placed, zones(&outcome)), (0, vec!["b"]));
    setup.pods.remove(1);
    assert_eq!(setup.plan().placed, 1, "nobody else minds");
}

#[test]
fn replicas_that_keep_apart_are_launched_for_although_nodes_with_capacity_are_on_their_way() {
    for rule in [Rule::AntiAffinity(term(HOSTNAME, "web"))] {
        let mut setup = Setup::of(of_app("web", 10, 1_000));
        setup.offers = vec![offered("small", 4_000, 0, 4)];
        setup.rules.insert("web".into(), vec![rule.clone()]);
        let first = setup.plan();
        assert_eq!(shown(&first), [("small", 10, 10)]);
        setup.launch(&first.launches, BatchPhase::Launched);
        setup.pods = of_app("web", 20, 1_000);
        let second = setup.plan();
        assert_eq!((second.joining, second.placed, shown(&second)), (10, 0, vec![("small", 10, 10)]), "{rule:?}");
        // Some have registered, and replicas stand there: now these are the ones that keep the others away.
        let member = |number: usize| BatchMember {
            node: (number < 5).then(|| format!("n-{number}")),
            registered: (number < 5).then(|| at(90)),
            ..BatchMember::new(InstanceId::from(format!("i-{number}")), 1, MemberState::Running)
        };
        setup.batches[0].status.instances = (0..10).map(member).collect();
        for number in 0..5 {
            let name = format!("n-{number}");
            setup.nodes.push(node(&name, 0));
            setup.pods[number] = on(&name, setup.pods[number].clone());
        }
        let third = setup.plan();
        assert_eq!((third.joining, third.placed, shown(&third)), (5, 0, vec![("small", 10, 10)]), "{rule:?}");
    }
}

#[test]
fn a_zone_is_taken_by_whoever_is_on_the_way_there() {
    let mut setup = Setup::of(of_app("web", 1, 1_000));
    setup.offers = vec![in_zone("a"), in_zone("b")];
    setup.rules.insert("web".into(), vec![Rule::AntiAffinity(term(ZONE, "web"))]);
    let first = setup.plan();
    assert_eq!(zones(&first), ["a"]);
    setup.launch(&first.launches, BatchPhase::Launched);
    setup.pods = of_app("web", 2, 1_000);
    let second = setup.plan();
    assert_eq!((second.joining, zones(&second)), (1, vec!["b"]));
}

#[test]
fn pods_that_ask_for_the_same_under_other_constraints_take_nobody_s_place() {
    let mut setup = beside_db(Rule::AntiAffinity(term(ZONE, "db")));
    setup.nodes.truncate(1);
    let first = setup.plan();
    assert_eq!(zones(&first), ["b"]);
    setup.launch(&first.launches, BatchPhase::Launched);
    // They come before it in planning order, and ask for as much.
    let mut all = of_app("plain", 12, 1_000);
    all.append(&mut setup.pods);
    setup.pods = all;
    let second = setup.plan();
    assert_eq!((second.joining, second.placed), (1, 12), "{:?}", shown(&second));
}

/// Twelve pods of `web` are spread over hosts, two to a `small` node.
fn spread_over_hosts() -> Setup {
    let mut setup = Setup::of(of_app("web", 12, 2_000));
    setup.rules.insert("web".into(), vec![spread(HOSTNAME, "web")]);
    setup.offers = vec![in_zone("a")];
    setup
}

fn nodes_of(outcome: &Outcome) -> u32 {
    outcome.launches.iter().map(|one| one.count).sum()
}

#[test]
fn hosts_that_come_for_a_gang_keep_pods_that_are_spread_to_their_skew() {
    let mut setup = spread_over_hosts();
    assert_eq!(nodes_of(&setup.plan()), 6, "two on each node");
    let launches = Setup { offers: vec![in_zone("a")], ..Setup::of(pods("gang", 4, 3_000)) }.plan().launches;
    for (phase, pauses, expected) in [
        (BatchPhase::Pending, false, 12),
        (BatchPhase::Pending, true, 6),
        (BatchPhase::Launching, false, 12),
        (BatchPhase::Launched, false, 12),
        (BatchPhase::Terminating, false, 6),
    ] {
        setup.has_launched(&launches, phase);
        for batch in &mut setup.batches {
            let mut spec = BatchSpec::clone(&batch.spec);
            let owner = OwnerRef { key: ObjectKey::new("ns", "train"), uid: "g".to_owned() };
            (spec.owner, spec.partial) = (Owner::Gang(owner), false);
            batch.spec = Arc::new(spec);
            batch.status.next_attempt_after = pauses.then(|| at(900));
            batch.status.instances = vec![BatchMember::new(InstanceId::from("i-gang"), 1, MemberState::Running)];
        }
        assert_eq!(nodes_of(&setup.plan()), expected, "{phase:?}, pauses: {pauses}");
    }
}

#[test]
fn a_node_that_has_registered_before_its_status_names_it_counts_once() {
    let mut setup = spread_over_hosts();
    let first = setup.plan();
    setup.launch(&first.launches, BatchPhase::Launched);
    let mut count = 0;
    for batch in &mut setup.batches {
        let member = |number: u32| BatchMember::new(InstanceId::from(format!("i-{number}")), 1, MemberState::Running);
        batch.status.instances = (0..batch.status.count).map(member).collect();
        count += batch.status.count;
    }
    // Their Nodes are there, tainted, and no status names them.
    setup.nodes = (0..count)
        .map(|number| {
            let mut node = node(&format!("n-{number}"), 0);
            node.provider_id = Some(format!("aws:///a/i-{number}").as_str().into());
            node.ready = false;
            node
        })
        .collect();
    setup.pods = of_app("web", 24, 2_000);
    assert_eq!(nodes_of(&setup.plan()), 6, "twelve more share six more nodes");
    // Those that it was launched for stand there already: no place is left for twelve others.
    setup.nodes.iter_mut().for_each(|node| node.ready = true);
    let here = (0..count).flat_map(|number| [number, number]).map(|number| format!("n-{number}"));
    setup.pods[..12].iter_mut().zip(here).for_each(|(pod, node)| {
        (pod.node, pod.running) = (Some(NodeName::from(node.as_str())), true);
    });
    assert_eq!(nodes_of(&setup.plan()), 6, "twelve others have six nodes of their own");
}
