//! Pods that are spread over hosts, and those that are counted with them, on hosts that exist.

use std::sync::Arc;

use muster_core::ec2::CapacityType;
use muster_core::model::node::Usage;
use muster_core::model::pod::Shape;
use muster_core::model::resources::Resources;
use muster_core::packing::check::check;
use muster_core::packing::{Budget, Class, Existing, Place, Plan, Pool, Problem, Rule, Spread, plan};

use super::rules::offer;
use super::{HOSTNAME, ZONE, app, missing, node};

/// Full search, local search alone, and the construction alone.
fn budgets() -> [Budget; 3] {
    let searched = Budget { states: 0, branches: 0, ..Budget::default() };
    [Budget::default(), searched, Budget { mending: 0, ..searched }]
}

fn class(max_skew: Option<u32>) -> Class {
    let requests = Resources::from_iter([("cpu", 1_000), ("memory", 1), ("pods", 1)]);
    let spread = |max_skew| {
        let (key, selector) = (HOSTNAME.into(), app("x"));
        Rule::Spread(Spread { key, selector, max_skew, min_domains: 1, honor_affinity: true, honor_taints: false })
    };
    Class {
        shape: Shape { requests, ..Shape::default() },
        namespace: "ns".into(),
        labels: [(Arc::from("app"), Arc::from("x"))].into(),
        rules: max_skew.map(spread).into_iter().collect(),
        ..Class::default()
    }
}

/// Hosts with so many CPUs each, pods of these classes, and a pool if `sells`.
fn problem(budget: Budget, hosts: &[i64], pods: &[(Option<u32>, usize)], sells: bool) -> Problem {
    let host = |(index, cpu): (usize, &i64)| {
        let name = format!("n-{index}");
        let mut node = node(&name, &[(HOSTNAME, &name), (ZONE, "a")], cpu * 1_000, 1_000);
        node.allocatable.set("pods", 110);
        Existing { node: Arc::new(node), usage: Usage::default(), joining: false }
    };
    let mut offer = offer("large", "a", 16_000, 100, CapacityType::OnDemand);
    Arc::make_mut(&mut offer.node).allocatable.set("pods", 110);
    Problem {
        budget,
        pools: vec![Pool { name: "default".into(), ..Pool::default() }],
        offers: if sells { vec![offer] } else { Vec::new() },
        nodes: hosts.iter().enumerate().map(host).collect(),
        classes: pods.iter().map(|(skew, _)| class(*skew)).collect(),
        kinds: (0..pods.len()).map(|class| vec![class]).collect(),
        pods: pods.iter().enumerate().flat_map(|(kind, (_, count))| std::iter::repeat_n(kind, *count)).collect(),
        ..Problem::default()
    }
}

/// How many pods stand on each host, and how many have no place.
fn held(problem: &Problem, made: &Plan) -> (Vec<usize>, usize) {
    assert_eq!(check(problem, made), Vec::<String>::new());
    let on = |node: usize| made.places.iter().filter(|place| **place == Place::Existing(node)).count();
    ((0..problem.nodes.len()).map(on).collect(), missing(made).into_iter().filter(|missing| *missing).count())
}

#[test]
fn hosts_that_exist_hold_any_number_of_pods_that_are_spread_evenly_over_them() {
    for budget in budgets() {
        for (hosts, pods) in [(1, 30), (2, 16), (3, 30), (5, 16)] {
            for (skew, sells) in [(1, false), (1, true), (2, true)] {
                let problem = problem(budget, &vec![64; hosts], &[(Some(skew), pods)], sells);
                let made = plan(&problem);
                let (held, left) = held(&problem, &made);
                assert_eq!((left, made.cost), (0, 0), "{held:?} of {pods} on {hosts}, {left} left");
                let (most, least) = (held.iter().max().unwrap(), held.iter().min().unwrap());
                assert!(most - least <= skew as usize, "{held:?}");
            }
        }
    }
}

#[test]
fn the_fullest_host_is_held_against_the_one_that_has_the_fewest() {
    for budget in budgets() {
        let narrow = problem(budget, &[12, 8, 12], &[(Some(1), 30)], false);
        assert_eq!(held(&narrow, &plan(&narrow)), (vec![9, 8, 9], 4), "the second is full");
        let sells = problem(budget, &[12, 8, 12], &[(Some(1), 30)], true);
        let made = plan(&sells);
        assert_eq!(held(&sells, &made).1, 0);
    }
}

#[test]
fn a_pod_that_others_count_and_that_is_spread_over_nothing_goes_wherever_there_is_capacity() {
    for budget in budgets() {
        for sells in [false, true] {
            let problem = problem(budget, &[4, 2, 4], &[(Some(1), 8), (None, 1)], sells);
            let made = plan(&problem);
            let (held, left) = held(&problem, &made);
            assert_eq!((left, made.cost), (0, 0), "{held:?}");
            assert_eq!(held.iter().sum::<usize>(), 9);
        }
    }
}

#[test]
fn pods_that_no_host_takes_are_left_alone_beside_others_that_are_spread_over_hosts() {
    for budget in budgets() {
        // One class fits both hosts, the other neither.
        let mut problem = problem(budget, &[20, 20], &[(Some(1), 30), (Some(1), 4)], true);
        problem.classes[1].labels = [(Arc::from("app"), Arc::from("y"))].into();
        problem.classes[1].shape.requests.set("cpu", 15_000);
        if let Rule::Spread(spread) = &mut problem.classes[1].rules[0] {
            spread.selector = app("y");
        }
        let made = plan(&problem);
        assert_eq!(held(&problem, &made).1, 0);
    }
}
