//! Pods of few shapes: what nodes for them cost beside what they cost at least.

use std::sync::Arc;

use muster_core::ec2::CapacityType;
use muster_core::model::names::ResourceName;
use muster_core::model::node::Usage;
use muster_core::model::pod::{Operator, Requirement, SelectorTerm, Shape};
use muster_core::model::resources::Resources;
use muster_core::packing::check::check;
use muster_core::packing::{
    Basis, Bound, Budget, Class, Existing, Offer, Place, Plan, PodTerm, Pool, Problem, Rule, Spread, Standing, plan,
};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::{HOSTNAME, ZONE, ZONES, app, node, rules};

const GIB: i64 = 1 << 30;

/// Name, cores, GiB and micro-dollars per hour of some types.
const TYPES: [(&str, i64, i64, u64); 6] = [
    ("c6i.large", 2, 4, 85_000),
    ("m5.2xlarge", 8, 32, 384_000),
    ("c7i.8xlarge", 32, 64, 1_428_000),
    ("m5.8xlarge", 32, 128, 1_536_000),
    ("m7i.8xlarge", 32, 128, 1_612_800),
    ("r7i.8xlarge", 32, 256, 2_116_800),
];

fn offers() -> Vec<Offer> {
    let mut offers = Vec::new();
    for (name, cores, gib, price) in TYPES {
        for zone in ZONES {
            let (cpu, memory) = (cores * 1000 - 100, gib * GIB * 9 / 10);
            let mut node = node("new", &[(ZONE, zone), ("type", name)], cpu, memory);
            node.allocatable = Resources::from_iter([("cpu", cpu), ("memory", memory), ("pods", 110)]);
            let capacity = Resources::from_iter([("cpu", cores * 1000), ("memory", gib * GIB)]);
            let one = rules::offer(name, zone, cpu, price, CapacityType::OnDemand);
            offers.push(Offer { node: Arc::new(node), capacity, ..one });
        }
    }
    offers
}

/// A problem with so many pods of each shape: cores in thousandths, MiB, number.
fn problem(shapes: &[(i64, i64, usize)]) -> Problem {
    let mut problem = Problem { offers: offers(), ..Problem::default() };
    problem.pools.push(Pool { name: "general".into(), weight: 0, left: [].into(), min_values: Vec::new() });
    for (at, (cpu, mib, number)) in shapes.iter().enumerate() {
        let requests = Resources::from_iter([("cpu", *cpu), ("memory", mib << 20), ("pods", 1)]);
        let shape = Shape { requests, ..Shape::default() };
        let labels = [(Arc::from("app"), Arc::from(format!("app-{at}").as_str()))].into();
        problem.classes.push(Class { shape, namespace: "ns".into(), labels, ..Class::default() });
        problem.kinds.push(vec![at]);
        problem.pods.extend(std::iter::repeat_n(at, *number));
    }
    problem
}

/// Thousandths over the bound of a plan that places everybody.
fn over(problem: &Problem) -> (Plan, u64) {
    let made = plan(problem);
    assert_eq!(check(problem, &made), Vec::<String>::new());
    assert!(made.places.iter().all(|place| matches!(place, Place::New(_))), "every pod has a place");
    let bound = made.bound.as_ref().map_or(0, |bound| bound.value);
    let over = (made.cost - bound) * 1_000 / bound;
    (made, over)
}

#[test]
fn two_shapes_that_fill_each_others_nodes_cost_hardly_more_than_what_is_proven() {
    let (made, over) = over(&problem(&[(900, 3_100, 500), (3_500, 28 << 10, 500)]));
    let dollars = made.cost / 10_000;
    eprintln!("{} nodes for {dollars} cents, {over} thousandths over the bound", made.nodes.len());
    assert!(matches!(made.bound.map(|bound| bound.basis), Some(Basis::Patterns(_))), "patterns prove more");
    assert!(over <= 3, "{over} thousandths over the bound");
}

#[test]
fn thirty_shapes_cost_little_more_than_what_is_proven() {
    let mut random = ChaCha8Rng::seed_from_u64(30);
    let (mut worst, mut steps) = (0, 0);
    for case in 0..4 {
        let shape = |_| {
            let cpu = random.random_range(1..=40_i64) * 100;
            (cpu, cpu * random.random_range(1..=8_i64), random.random_range(5..=60_usize))
        };
        let shapes: Vec<(i64, i64, usize)> = (0..30).map(shape).collect();
        let (made, over) = over(&problem(&shapes));
        eprintln!("case {case}: {over} thousandths over the bound, {} steps", made.work.columns);
        (worst, steps) = (worst.max(over), steps.max(made.work.columns));
    }
    assert!(worst <= 25, "{worst} thousandths over the bound");
    assert!(steps <= 600_000, "{steps} steps of searches for patterns");
}

#[test]
fn a_forged_certificate_is_found_whatever_the_bound_claims() {
    let small = problem(&[(900, 3_100, 40), (3_500, 28 << 10, 40), (100, 200, 30)]);
    for columns in [0, Budget::default().columns] {
        let problem = Problem { budget: Budget { states: 0, columns, ..Budget::default() }, ..small.clone() };
        let made = plan(&problem);
        assert_eq!(check(&problem, &made), Vec::<String>::new());
        let bound = made.bound.clone().expect("new nodes have a bound");
        let faulty = |bound: Bound| {
            let faults = check(&problem, &Plan { bound: Some(bound), ..made.clone() });
            assert_eq!(faults.len(), 1, "one fault: {faults:?}");
        };
        faulty(Bound { value: bound.value + 1, ..bound.clone() });
        match &bound.basis {
            Basis::Resources { prices, nodes } => {
                assert_eq!(columns, 0);
                let mut dearer = prices.clone();
                dearer[0].prices.iter_mut().for_each(|(_, price)| *price += *price / 100);
                faulty(Bound { basis: Basis::Resources { prices: dearer, nodes: *nodes }, ..bound.clone() });
                let mut twice = prices.clone();
                let again = twice[0].prices.clone();
                twice[0].prices.extend(again);
                faulty(Bound { basis: Basis::Resources { prices: twice, nodes: *nodes }, ..bound.clone() });
                let nodes = (1_000, nodes.1);
                faulty(Bound { basis: Basis::Resources { prices: prices.clone(), nodes }, ..bound.clone() });
            }
            Basis::Patterns(worth) => {
                assert_ne!(columns, 0);
                let mut dearer = worth.clone();
                dearer.pods[0].value += dearer.pods[0].value / 100;
                faulty(Bound { basis: Basis::Patterns(dearer), ..bound.clone() });
                let mut alone = worth.clone();
                alone.pods[0].alone = true;
                faulty(Bound { basis: Basis::Patterns(alone), ..bound.clone() });
                let mut twice = worth.clone();
                twice.pods.push(worth.pods[0].clone());
                faulty(Bound { basis: Basis::Patterns(twice), ..bound.clone() });
                let mut shorter = worth.clone();
                shorter.nodes.last_mut().map(|node| node.prices.pop());
                faulty(Bound { basis: Basis::Patterns(shorter), ..bound.clone() });
                let mut free = worth.clone();
                free.nodes.iter_mut().flat_map(|node| &mut node.prices).for_each(|(_, price)| *price = 0);
                faulty(Bound { basis: Basis::Patterns(free), ..bound.clone() });
            }
            Basis::Enumeration => panic!("it is switched off"),
        }
    }
}

/// The same with every class spread over hosts by its label.
fn spread(mut problem: Problem, max_skew: u32) -> Problem {
    for class in &mut problem.classes {
        let value = class.labels["app"].to_string();
        class.rules.push(Rule::Spread(Spread {
            key: HOSTNAME.into(),
            selector: app(&value),
            max_skew,
            min_domains: 1,
            honor_affinity: true,
            honor_taints: false,
        }));
    }
    problem
}

#[test]
fn pods_spread_over_hosts_share_them_as_long_as_all_hosts_have_about_as_many() {
    for (number, nodes, thousandths) in [(20, 3, 300), (1_000, 30, 30)] {
        for max_skew in [1, 2, 5] {
            let problem = spread(problem(&[(900, 3_100, number)]), max_skew);
            let (made, over) = over(&problem);
            eprintln!("{number}, skew {max_skew}: {} nodes, {over} thousandths over the bound", made.nodes.len());
            assert!(made.nodes.len() <= nodes, "{} nodes for {number} pods", made.nodes.len());
            assert!(over <= thousandths, "{number} pods: {over} thousandths over the bound");
        }
    }
}

#[test]
fn several_deployments_that_are_spread_over_hosts_share_the_same_hosts() {
    let (made, over) = over(&spread(problem(&[(900, 3_100, 60), (250, 512, 90), (2_000, 4_096, 33)]), 1));
    eprintln!("{} nodes, {over} thousandths over the bound", made.nodes.len());
    assert!(over <= 150, "{over} thousandths over the bound");
}

#[test]
fn pods_spread_over_zones_and_hosts_have_as_many_hosts_in_each_zone() {
    let mut problem = spread(problem(&[(900, 3_100, 100)]), 1);
    let Some(Rule::Spread(by_host)) = problem.classes[0].rules.first().cloned() else { panic!("a spread") };
    problem.classes[0].rules.push(Rule::Spread(Spread { key: ZONE.into(), ..by_host }));
    let (made, over) = over(&problem);
    eprintln!("{} nodes, {over} thousandths over the bound", made.nodes.len());
    assert!(made.nodes.len() <= 15, "{} nodes", made.nodes.len());
    let hosts = |zone: &str| {
        let of = |at: usize| problem.offers[made.nodes[at].offer].zone.as_deref() == Some(zone);
        (0..made.nodes.len()).filter(|at| of(*at)).count()
    };
    assert!(ZONES.iter().all(|zone| hosts(zone) > 0), "a zone without any");
}

#[test]
fn a_host_that_counts_and_holds_none_of_them_keeps_pods_that_are_spread_to_their_skew() {
    let mut problem = spread(problem(&[(900, 3_100, 20)]), 1);
    let mut full = node("full", &[(ZONE, ZONES[0]), (HOSTNAME, "full")], 100, GIB);
    full.allocatable = Resources::from_iter([("cpu", 100), ("memory", GIB), ("pods", 110)]);
    let one = Existing { node: Arc::new(full), usage: Usage::default(), joining: false };
    problem.nodes.push(one);
    let (made, _) = over(&problem);
    assert_eq!(made.nodes.len(), 20, "a node each: the full node stays at none of them");
}

#[test]
fn while_other_hosts_come_pods_that_are_spread_are_kept_to_their_skew() {
    let problem = Problem { hosts_come: true, ..spread(problem(&[(900, 3_100, 20)]), 1) };
    assert_eq!(over(&problem).0.nodes.len(), 20, "a node each: a host that comes has none of them");
    // Even if somebody has planned otherwise.
    let bare = Problem { hosts_come: false, ..problem.clone() };
    let faults = check(&problem, &over(&bare).0);
    assert!(faults.iter().any(|fault| fault.contains("topology constraint")), "{faults:?}");
}

#[test]
fn deployments_that_share_no_offer_are_dealt_to_hosts_of_their_own() {
    let mut problem = spread(problem(&[(900, 3_100, 20), (900, 3_100, 20)]), 1);
    for (class, types) in problem.classes.iter_mut().zip([["m5.2xlarge", "c6i.large"], ["m5.8xlarge", "c7i.8xlarge"]]) {
        let values = types.map(Arc::from).to_vec();
        let wanted = Requirement { key: "type".into(), operator: Operator::In, values };
        class.shape.node_affinity = Some(vec![SelectorTerm { expressions: vec![wanted], fields: Vec::new() }]);
    }
    let (made, _) = over(&problem);
    assert!(made.nodes.len() <= 5, "{} nodes for two Deployments of 20", made.nodes.len());
}

#[test]
fn a_limit_that_the_cheapest_number_of_hosts_would_pass_leaves_others() {
    // 20 pods are cheapest on three nodes of eight cores; two nodes hold them as well, and cost more.
    let mut problem = spread(problem(&[(900, 3_100, 20)]), 1);
    problem.pools[0].left = [(ResourceName::from("nodes"), 2)].into();
    assert!(over(&problem).0.nodes.len() <= 2);
}

#[test]
fn a_pod_that_no_type_holds_takes_nothing_from_the_others() {
    let with = plan(&problem(&[(900, 3_100, 500), (3_500, 28 << 10, 500), (300_000, 1_024, 1)]));
    let without = plan(&problem(&[(900, 3_100, 500), (3_500, 28 << 10, 500)]));
    assert_eq!((with.cost, with.nodes.len()), (without.cost, without.nodes.len()));
    assert!(with.work.columns > 0, "patterns are looked for");
}

#[test]
fn a_certificate_for_many_classes_of_one_pod_is_verified_soon() {
    // The same three shapes in twenty namespaces.
    let shapes: Vec<(i64, i64, usize)> =
        (0..60).map(|at| [(900, 3_100, 1), (3_500, 7_000, 1), (1_300, 9_000, 1)][at % 3]).collect();
    let mut many = problem(&shapes);
    many.budget.states = 0;
    for (at, class) in many.classes.iter_mut().enumerate() {
        class.namespace = format!("ns-{}", at / 3).as_str().into();
    }
    let made = plan(&many);
    assert!(made.bound.is_some());
    assert_eq!(check(&many, &made), Vec::<String>::new());
}

#[test]
fn a_deployment_that_grows_beside_hosts_that_are_full_of_it_gets_hosts_for_several() {
    let mut problem = spread(problem(&[(900, 3_100, 16)]), 1);
    for (at, zone) in ZONES.into_iter().enumerate() {
        // Seven stand on each, and an eighth does not fit.
        let name = format!("n-{at}");
        let mut full = node(&name, &[(ZONE, zone), (HOSTNAME, &name)], 7_000, 29 * GIB);
        full.allocatable = Resources::from_iter([("cpu", 7_000), ("memory", 29 * GIB), ("pods", 110)]);
        let requested = Resources::from_iter([("cpu", 6_300), ("memory", (7 * 3_100) << 20), ("pods", 7)]);
        let usage = Usage { requested, ..Usage::default() };
        problem.nodes.push(Existing { node: Arc::new(full), usage, joining: false });
        let labels = problem.classes[0].labels.clone();
        let standing =
            Standing { node: at, namespace: "ns".into(), labels, anti_affinity: Vec::new(), deleting: false };
        problem.standing.extend(std::iter::repeat_n(standing, 7));
    }
    let (made, _) = over(&problem);
    assert!(made.nodes.len() <= 3, "{} nodes", made.nodes.len());
    // With capacity for one more on the third, kube-scheduler would put one there.
    let mut roomy = problem.clone();
    let one = Arc::make_mut(&mut roomy.nodes[2].node);
    one.allocatable = Resources::from_iter([("cpu", 7_900), ("memory", 29 * GIB), ("pods", 110)]);
    let made = plan(&roomy);
    assert_eq!(check(&roomy, &made), Vec::<String>::new());
    let mut on = vec![0_usize; made.nodes.len()];
    let mut there = 0;
    for place in &made.places {
        match place {
            Place::New(at) => on[*at] += 1,
            Place::Existing(at) => there += usize::from(*at == 2),
            Place::None => panic!("somebody has no place"),
        }
    }
    let least = on.iter().copied().min().unwrap_or(0).min(7);
    assert!(there == 1 || 8 - least > 1, "kube-scheduler would put one more on the third node: {on:?}");
}

#[test]
fn a_limit_of_nodes_places_more_pods_that_are_spread_if_nodes_hold_several() {
    let mut problem = spread(problem(&[(900, 3_100, 100)]), 1);
    problem.pools[0].left = [(ResourceName::from("nodes"), 5)].into();
    let (made, _) = over(&problem);
    assert!(made.nodes.len() <= 5);
}

#[test]
fn a_limit_ends_what_is_launched_by_patterns_and_the_rest_waits() {
    let mut limited = problem(&[(900, 3_100, 100), (3_500, 28 << 10, 100)]);
    limited.budget.states = 0;
    limited.pools[0].left = [(ResourceName::from("nodes"), 10)].into();
    let made = plan(&limited);
    assert_eq!(check(&limited, &made), Vec::<String>::new());
    assert_eq!(made.nodes.len(), 10, "the limit is used up");
    assert!(made.places.contains(&Place::None), "ten nodes do not hold them all");
}

#[test]
fn deployments_that_keep_off_each_other_s_nodes_share_none_however_they_would_fill_them() {
    let mut forbidden = 0;
    for seed in 0..100 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let number = random.random_range(2..=6);
        let shapes: Vec<(i64, i64, usize)> = (0..number)
            .map(|_| (random.random_range(200..8_000), random.random_range(200..60_000), random.random_range(1..12)))
            .collect();
        let mut problem = problem(&shapes);
        // Nothing but what the construction makes.
        problem.budget = Budget { states: 0, branches: 0, patterns: 0, ruins: 0, mending: 0, ..Budget::default() };
        let free = plan(&problem);
        let kept_off = random.random_range(1..number);
        let term =
            PodTerm { key: HOSTNAME.into(), namespaces: Some([Arc::from("ns")].into()), selector: Some(app("app-0")) };
        problem.classes[kept_off].rules = vec![Rule::AntiAffinity(term)];
        forbidden += u32::from(!check(&problem, &free).is_empty());
        let made = plan(&problem);
        assert_eq!(check(&problem, &made), Vec::<String>::new(), "seed {seed}");
        assert!(made.places.iter().all(|place| matches!(place, Place::New(_))), "seed {seed}: every pod has a place");
    }
    assert!(forbidden > 10, "{forbidden} of 100 would share nodes otherwise");
}

#[test]
fn deployments_that_keep_off_each_other_s_nodes_are_packed_as_if_each_were_alone() {
    let shapes = [(900, 3_100, 200), (3_500, 28 << 10, 200)];
    let each: u64 = shapes.iter().map(|shape| plan(&problem(&[*shape])).cost).sum();
    let mut both = problem(&shapes);
    let term =
        PodTerm { key: HOSTNAME.into(), namespaces: Some([Arc::from("ns")].into()), selector: Some(app("app-0")) };
    both.classes[1].rules = vec![Rule::AntiAffinity(term)];
    // Whatever finds nodes: also where hardly anything is enumerated or searched.
    let nothing = Budget { states: 0, branches: 0, patterns: 0, ruins: 0, mending: 0, ..Budget::default() };
    for budget in [Budget::default(), nothing, Budget { columns: 0, ..nothing }] {
        both.budget = budget;
        let (made, _) = over(&both);
        assert!(made.cost * 100 <= each * 103, "{} for both, {each} for each alone: {:?}", made.cost, both.budget);
    }
}
