//! Rules that come before dollars: `minValues`, and nodes that are Ready before those on their way.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::ec2::CapacityType;
use muster_core::model::names::ResourceName;
use muster_core::model::node::Usage;
use muster_core::model::pod::Shape;
use muster_core::model::resources::Resources;
use muster_core::packing::check::check;
use muster_core::packing::{
    Budget, Class, Existing, Offer, Place, PodTerm, Pool, Problem, Rule, Spread, Standing, plan,
};

use super::{HOSTNAME, ZONE, app, missing, node};

const TYPE: &str = "type";

/// Full search, local search alone, and the construction alone.
fn budgets() -> [Budget; 3] {
    let searched = Budget { states: 0, branches: 0, ..Budget::default() };
    [Budget::default(), searched, Budget { mending: 0, ..searched }]
}

pub(super) fn offer(name: &str, zone: &str, cpu: i64, price: u64, capacity_type: CapacityType) -> Offer {
    let labels = [(TYPE, name), (ZONE, zone), ("new", "yes")];
    Offer {
        pool: 0,
        variant: 0,
        instance_type: name.into(),
        zone: Some(zone.into()),
        capacity_type,
        reservation: None,
        free: None,
        price,
        list_price: price,
        node: Arc::new(node("new", &labels, cpu, 64)),
        overhead: Usage::default(),
        capacity: Resources::from_iter([("cpu", cpu)]),
    }
}

fn existing(name: &str, zone: &str, joining: bool) -> Existing {
    let labels = [(HOSTNAME, name), (ZONE, zone), ("new", if joining { "yes" } else { "no" })];
    Existing { node: Arc::new(node(name, &labels, 4_000, 64)), usage: Usage::default(), joining }
}

fn class(name: &str) -> Class {
    let shape =
        Shape { requests: Resources::from_iter([("cpu", 1_500), ("memory", 1), ("pods", 1)]), ..Shape::default() };
    Class { shape, namespace: "ns".into(), labels: labels(name), ..Class::default() }
}

fn labels(name: &str) -> BTreeMap<Arc<str>, Arc<str>> {
    [(Arc::from("app"), Arc::from(name))].into()
}

/// A pod of each class, in their order.
fn problem(budget: Budget, classes: Vec<Class>, offers: Vec<Offer>) -> Problem {
    let all = 0..classes.len();
    Problem {
        budget,
        pools: vec![Pool { name: "default".into(), ..Pool::default() }],
        offers,
        kinds: all.clone().map(|class| vec![class]).collect(),
        pods: all.collect(),
        classes,
        ..Problem::default()
    }
}

#[test]
fn a_node_counts_against_limits_with_the_smallest_alternatives_that_min_values_asks_for() {
    let types = [("small", 2_000, 100), ("medium", 4_000, 199), ("large", 8_000, 400)];
    for budget in budgets() {
        let offers = types.map(|(name, cpu, price)| offer(name, "a", cpu, price, CapacityType::OnDemand));
        let mut problem = problem(budget, vec![class("x"), class("x"), class("x")], offers.to_vec());
        problem.pools[0].min_values = vec![(TYPE.into(), 2)];
        problem.pools[0].left = [(ResourceName::from("cpu"), 9_000)].into();
        let made = plan(&problem);
        assert_eq!(check(&problem, &made), Vec::<String>::new());
        assert_eq!(missing(&made), [false, false, true], "two nodes may become medium, or one large");
        let mut without = made.clone();
        without.nodes[0].alternatives.clear();
        assert!(check(&problem, &without).iter().any(|fault| fault.contains("leaves 1 values of type")));
    }
}

#[test]
fn spot_that_is_dearer_than_on_demand_brings_no_value_that_min_values_asks_for() {
    for budget in budgets() {
        let offers = [
            offer("medium", "a", 4_000, 100, CapacityType::OnDemand),
            offer("small", "a", 2_000, 200, CapacityType::Spot),
            offer("large", "a", 8_000, 300, CapacityType::OnDemand),
        ];
        let mut problem = problem(budget, vec![class("x")], offers.to_vec());
        problem.pools[0].min_values = vec![(TYPE.into(), 2)];
        let made = plan(&problem);
        assert_eq!(check(&problem, &made), Vec::<String>::new());
        assert_eq!((made.nodes[0].offer, &made.nodes[0].alternatives[..]), (0, &[2][..]));
        problem.offers.pop();
        let made = plan(&problem);
        assert_eq!(missing(&made), [true], "medium is all that is left");
    }
}

#[test]
fn whoever_waits_for_a_node_that_is_joining_comes_after_all_that_are_placed() {
    for budget in budgets() {
        let mut spread = class("x");
        spread.shape.node_selector.insert("new".into(), "yes".into());
        spread.rules = vec![Rule::Spread(Spread {
            key: ZONE.into(),
            selector: app("x"),
            max_skew: 1,
            min_domains: 1,
            honor_affinity: false,
            honor_taints: false,
        })];
        let offers = vec![offer("small", "b", 2_000, 100, CapacityType::OnDemand)];
        let mut problem = problem(budget, vec![spread, class("x")], offers);
        problem.nodes = vec![existing("ready", "a", false), existing("joins", "a", true)];
        let made = plan(&problem);
        assert_eq!(check(&problem, &made), Vec::<String>::new());
        assert_eq!(made.places, [Place::New(0), Place::Existing(0)], "zone a has one before its node is there");
    }
}

#[test]
fn a_pod_that_a_ready_node_takes_waits_for_none_that_is_joining() {
    for budget in budgets() {
        let mut near = class("y");
        near.shape.node_selector.insert("new".into(), "yes".into());
        let term = PodTerm { key: HOSTNAME.into(), namespaces: None, selector: Some(app("x")) };
        near.rules = vec![Rule::Affinity(vec![term])];
        let mut problem = problem(budget, vec![near, class("x")], Vec::new());
        problem.nodes = vec![existing("ready", "a", false), existing("joins", "a", true)];
        let stands = Standing {
            node: 0,
            namespace: "ns".into(),
            labels: labels("x"),
            anti_affinity: Vec::new(),
            deleting: false,
        };
        problem.standing = vec![stands];
        let made = plan(&problem);
        assert_eq!(check(&problem, &made), Vec::<String>::new());
        assert_eq!(made.places, [Place::None, Place::Existing(0)], "kube-scheduler binds the second at once");
    }
}

#[test]
fn a_pool_of_a_lower_weight_is_for_pods_that_none_of_a_higher_weight_holds() {
    for budget in budgets() {
        let offers = [
            offer("dear", "a", 2_000, 900, CapacityType::OnDemand),
            Offer { pool: 1, ..offer("cheap", "a", 8_000, 100, CapacityType::OnDemand) },
        ];
        let mut small = class("x");
        small.shape.requests = Resources::from_iter([("cpu", 1_000), ("memory", 1), ("pods", 1)]);
        let mut problem = problem(budget, vec![class("x"), class("x"), small], offers.to_vec());
        problem.pools[0].weight = 2;
        problem.pools[0].left = [(ResourceName::from("nodes"), 1)].into();
        problem.pools.push(Pool { name: "later".into(), ..Pool::default() });
        let made = plan(&problem);
        assert_eq!(check(&problem, &made), Vec::<String>::new());
        let mut used: Vec<usize> = made.nodes.iter().map(|node| node.offer).collect();
        used.sort_unstable();
        assert_eq!(used, [0, 1], "what the first pool holds goes there, whatever it costs");
    }
}

#[test]
fn a_zone_where_no_offer_has_another_label_that_the_pod_is_spread_over_is_no_domain() {
    let spread = |key: &str| {
        let (honor_affinity, honor_taints) = (true, false);
        Rule::Spread(Spread {
            key: key.into(),
            selector: app("x"),
            max_skew: 1,
            min_domains: 1,
            honor_affinity,
            honor_taints,
        })
    };
    for (racks, placed) in [(false, true), (true, false)] {
        for budget in budgets() {
            let rules = vec![spread("rack"), spread(ZONE)];
            let mut offers = ["a", "b"].map(|zone| offer("small", zone, 2_000, 100, CapacityType::OnDemand));
            for offer in offers.iter_mut().filter(|_| racks) {
                Arc::make_mut(&mut offer.node).labels.insert("rack".into(), "r-2".into());
            }
            let mut problem = problem(budget, vec![Class { rules, ..class("x") }], offers.to_vec());
            let mut running = existing("n", "a", false);
            Arc::make_mut(&mut running.node).labels.insert("rack".into(), "r-1".into());
            let (namespace, labels) = ("ns".into(), labels("x"));
            problem.standing.push(Standing { node: 0, namespace, labels, anti_affinity: Vec::new(), deleting: false });
            problem.nodes = vec![running];
            let made = plan(&problem);
            assert_eq!(check(&problem, &made), Vec::<String>::new());
            assert_eq!(made.places == [Place::Existing(0)], placed, "with racks to be had: {racks}: {:?}", made.places);
        }
    }
}
