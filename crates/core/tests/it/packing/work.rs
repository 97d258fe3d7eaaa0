//! What a plan for many pods may cost, in counted work and in dollars over the bound: the mix that `make bench` times.

#[path = "../../../examples/packing/mix.rs"]
mod mix;

use muster_core::model::launch::MAX_OVERRIDES;
use muster_core::model::names::ResourceName;
use muster_core::model::pod::{Operator, Requirement, SelectorTerm};
use muster_core::model::resources::Resources;
use muster_core::packing::{Class, Offer, Place, Plan, Problem, check, forget_labels, plan};

fn planned(pods: usize, fifths: &[mix::Fifth]) -> Plan {
    let problem = mix::problem(mix::pods(42, pods, fifths), mix::offers(400));
    let made = plan(&problem);
    assert!(made.places.iter().all(|place| matches!(place, Place::New(_))), "every pod has a place");
    assert_eq!(check::check(&problem, &made), Vec::<String>::new());
    made
}

#[test]
fn the_work_for_a_pod_of_the_mix_does_not_grow_with_the_mix() {
    let looked_at = |pods: usize| planned(pods, &mix::Fifth::ALL).work.nodes / pods as u64;
    let (few, many) = (looked_at(500), looked_at(3_000));
    eprintln!("nodes looked at per pod: {few} at 500, {many} at 3,000");
    assert!(few <= FEW && many <= FEW, "{few} nodes a pod at 500, {many} at 3,000");
}

/// One and a half times what was measured first.
const FEW: u64 = 45;

#[test]
fn plain_pods_cost_little_more_than_the_bound() {
    for (pods, thousandths) in [(300, 50), (1_000, 10)] {
        let made = planned(pods, &[mix::Fifth::Plain]);
        let bound = made.bound.map_or(0, |bound| bound.value);
        let over = (made.cost - bound) * 1_000 / bound;
        eprintln!("{pods} plain pods: {over} thousandths over the bound, {} fillings", made.work.fillings);
        assert!(over <= thousandths, "{pods} plain pods: {over} thousandths over the bound");
        assert!(made.work.patterns <= 600_000, "{} patterns", made.work.patterns);
        let mended = made.work.mended / pods as u64;
        assert!(mended <= 110 + 9_000 / pods as u64, "the local search looked at {mended} nodes a pod");
    }
}

#[test]
fn the_local_search_looks_at_no_more_than_finds_what_a_hundred_pods_can_save() {
    let made = planned(100, &mix::Fifth::ALL);
    let bound = made.bound.map_or(0, |bound| bound.value);
    let over = (made.cost - bound) * 1_000 / bound;
    eprintln!("{} nodes looked at, {over} thousandths over the bound", made.work.mended);
    // Without the local search it is 143.
    assert!(over <= 114, "{over} thousandths over the bound");
    assert!(made.work.mended <= 11_000, "the local search looked at {} nodes", made.work.mended);
}

#[test]
fn the_local_search_looks_further_for_pods_without_a_place() {
    let mut problem = mix::problem(mix::pods(42, 100, &mix::Fifth::ALL), mix::offers(400));
    // A fifth of the pods each need a host of their own.
    problem.pools[0].left.insert(ResourceName::from("nodes"), 19);
    let made = plan(&problem);
    assert_eq!(made.places.iter().filter(|place| **place == Place::None).count(), 1, "one pod has no host of its own");
    eprintln!("{} nodes looked at", made.work.mended);
    assert!(made.work.mended > 11_000, "the local search looked at {} nodes", made.work.mended);
}

#[test]
fn the_local_search_looks_further_for_what_pods_prefer() {
    let mut ladders: Vec<Vec<Class>> = Vec::new();
    for pod in mix::pods(42, 100, &mix::Fifth::ALL) {
        let nowhere = Requirement { key: "zone".into(), operator: Operator::In, values: vec!["nowhere".into()] };
        let term = SelectorTerm { expressions: vec![nowhere], fields: Vec::new() };
        ladders.push(vec![Class { preferred_nodes: vec![term], ..pod.clone() }, pod]);
    }
    forget_labels(&mut ladders, &[]);
    let problem = mix::problem(Vec::new(), mix::offers(400));
    let made = plan(&Problem { pools: problem.pools, offers: problem.offers, ..Problem::of(ladders) });
    assert!(made.relaxed.iter().all(|dropped| *dropped == 1), "nobody gets what it prefers");
    eprintln!("{} nodes looked at", made.work.mended);
    assert!(made.work.mended > 11_000, "the local search looked at {} nodes", made.work.mended);
}

#[test]
fn alternatives_that_a_limit_refuses_take_nothing_from_those_it_allows() {
    let pods = || mix::pods(42, 1, &[mix::Fifth::Plain]);
    let mut problem = mix::problem(pods(), mix::offers(400));
    let other = |offer: &Offer| offer.instance_type.ends_with(['0', '2', '4', '6', '8']);
    for offer in problem.offers.iter_mut().filter(|offer| other(offer)) {
        offer.capacity = Resources::from_iter([("cpu", 1_000_000)]);
    }
    problem.pools[0].left.insert(ResourceName::from("cpu"), 400_000);
    let made = plan(&problem);
    assert_eq!(check::check(&problem, &made), Vec::<String>::new());
    let alternatives = &made.nodes[0].alternatives;
    assert_eq!(alternatives.len(), MAX_OVERRIDES - 1, "as many as a launch takes");
    assert!(!alternatives.iter().any(|at| other(&problem.offers[*at])), "none of those that are too large");
}

#[test]
fn a_plan_for_the_mix_has_hardly_more_nodes_than_pods_that_stand_alone() {
    // A fifth of the pods each need a host of their own; everybody else may join them.
    let made = planned(3_000, &mix::Fifth::ALL);
    eprintln!("{} nodes for 600 pods that stand alone", made.nodes.len());
    assert!(made.nodes.len() <= 606, "{} nodes", made.nodes.len());
    let looked_at = made.work.mended / 3_000;
    assert!(looked_at <= 60, "{looked_at} nodes looked at per pod for that");
}
