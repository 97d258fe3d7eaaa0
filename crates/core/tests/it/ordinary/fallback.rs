//! Where EC2 has no spot capacity, a launch goes on with what else holds its pods.

use std::sync::Arc;

use muster_core::ec2::CapacityType;
use muster_core::model::batch::BatchPhase;
use muster_core::model::node::{Taint, TaintEffect};
use muster_core::model::pod::{Operator, Requirement, SelectorTerm};
use muster_core::ordinary::{Offered, Outcome};

use super::{Setup, offered, pods};

const CAPACITY_TYPE: &str = "muster.dev/capacity-type";

/// An offer on spot or on demand, as its nodes say.
fn as_of(capacity_type: CapacityType, mut one: Offered) -> Offered {
    let mut node = (*one.offer.node).clone();
    node.labels.insert(CAPACITY_TYPE.into(), capacity_type.as_str().into());
    node.labels.insert("type".into(), Arc::clone(&one.offer.instance_type));
    one.offer.node = Arc::new(node);
    one.offer.capacity_type = capacity_type;
    one
}

fn spot(name: &str, cpu: i64, price: u64) -> Offered {
    as_of(CapacityType::Spot, offered(name, cpu, 0, price))
}

fn on_demand(name: &str, cpu: i64, price: u64) -> Offered {
    as_of(CapacityType::OnDemand, offered(name, cpu, 0, price))
}

/// Four types that hold a pod each, on spot and on demand, and one that is too small.
fn both() -> Vec<Offered> {
    let types = [("tiny", 2_000, 1), ("one", 4_000, 2), ("two", 4_000, 3), ("three", 4_000, 4), ("four", 4_000, 5)];
    types.iter().flat_map(|(name, cpu, price)| [spot(name, *cpu, *price), on_demand(name, *cpu, 3 * price)]).collect()
}

/// The other types of the one launch, and whether it may go on demand.
fn otherwise(outcome: &Outcome) -> (Vec<&str>, bool) {
    assert_eq!(outcome.launches.len(), 1);
    let launch = &outcome.launches[0];
    (launch.other_types.iter().map(|name| &**name).collect(), launch.or_on_demand)
}

#[test]
fn a_launch_on_spot_names_the_other_types_that_hold_its_pods_and_goes_on_demand_after_them() {
    let mut setup = Setup::of(pods("web", 1, 3_000));
    setup.offers = both();
    let outcome = setup.plan();
    assert_eq!((&*outcome.launches[0].instance_type, outcome.launches[0].capacity_type), ("one", CapacityType::Spot));
    assert_eq!(otherwise(&outcome), (vec!["two", "three", "four"], true));
    // One without an offer on demand that can be had, or that has devices nobody asked for, is none of them.
    setup.offers.retain(|one| &*one.offer.instance_type != "two" || one.offer.capacity_type == CapacityType::Spot);
    assert_eq!(otherwise(&setup.plan()), (vec!["three", "four"], true));
    for one in setup.offers.iter_mut().filter(|one| one.offer.capacity_type == CapacityType::OnDemand) {
        one.available &= &*one.offer.instance_type != "three";
    }
    assert_eq!(otherwise(&setup.plan()), (vec!["four"], true));
}

#[test]
fn pods_that_would_not_stand_on_demand_wait_for_spot() {
    let all = || {
        let mut setup = Setup::of(pods("web", 1, 3_000));
        setup.offers = both();
        setup
    };
    let with = |change: &dyn Fn(&mut muster_core::model::pod::Shape)| {
        let mut setup = all();
        let mut shape = setup.pods[0].shape.as_deref().unwrap().clone();
        change(&mut shape);
        setup.pods[0].shape = Ok(Arc::new(shape));
        setup
    };
    let selects = with(&|shape| {
        shape.node_selector.insert(CAPACITY_TYPE.into(), "spot".into());
    });
    assert_eq!(otherwise(&selects.plan()), (vec!["two", "three", "four"], false));
    // One type only on spot, the others in either way.
    let term = |pairs: &[(&str, &str)]| SelectorTerm {
        expressions: pairs
            .iter()
            .map(|(key, value)| Requirement {
                key: Arc::from(*key),
                operator: Operator::In,
                values: vec![Arc::from(*value)],
            })
            .collect(),
        fields: Vec::new(),
    };
    let terms =
        [term(&[("type", "one")]), term(&[("type", "two"), (CAPACITY_TYPE, "spot")]), term(&[("type", "three")])];
    let affine = with(&|shape| shape.node_affinity = Some(terms.to_vec()));
    assert_eq!(otherwise(&affine.plan()), (vec!["three"], true));
    let mut tainted = all();
    for one in tainted.offers.iter_mut().filter(|one| one.offer.capacity_type == CapacityType::OnDemand) {
        let mut node = (*one.offer.node).clone();
        node.taints.push(Taint { key: "dear".into(), value: "".into(), effect: TaintEffect::NoSchedule });
        one.offer.node = Arc::new(node);
    }
    assert_eq!(otherwise(&tainted.plan()), (vec!["two", "three", "four"], false));
}

#[test]
fn on_demand_no_type_is_named_that_is_dearer_by_more_than_a_quarter_unless_the_pool_asks_for_values() {
    let mut setup = Setup::of(pods("web", 1, 3_000));
    setup.offers = [("one", 100), ("two", 125), ("three", 126), ("four", 300)]
        .iter()
        .map(|(name, price)| on_demand(name, 4_000, *price))
        .collect();
    assert_eq!(otherwise(&setup.plan()), (vec!["two"], false));
    setup.min_values = vec![("type".into(), 3)];
    assert_eq!(otherwise(&setup.plan()), (vec!["two", "three", "four"], false));
    setup.min_values = vec![("type".into(), 5)];
    assert!(setup.plan().launches.is_empty());
}

#[test]
fn what_min_values_needs_is_named_also_where_it_is_sold_on_spot_alone_or_in_another_zone() {
    let mut setup = Setup::of(pods("web", 1, 3_000));
    setup.offers = both();
    setup.offers.retain(|one| &*one.offer.instance_type != "two" || one.offer.capacity_type == CapacityType::Spot);
    setup.min_values = vec![("type".into(), 4)];
    assert_eq!(otherwise(&setup.plan()), (vec!["two", "three", "four"], true));
    let elsewhere = |mut one: Offered| {
        let zone = if &*one.offer.instance_type == "four" { "b" } else { "a" };
        let mut node = (*one.offer.node).clone();
        node.labels.insert(ZONE.into(), zone.into());
        one.offer.node = Arc::new(node);
        one.offer.zone = Some(zone.into());
        one
    };
    setup.offers = setup.offers.into_iter().map(elsewhere).collect();
    assert_eq!(otherwise(&setup.plan()).0, ["two", "three", "four"]);
}

#[test]
fn a_launch_names_the_zones_in_which_all_of_its_types_hold_the_pods() {
    let in_zone = |mut one: Offered, zone: &str| {
        let mut node = (*one.offer.node).clone();
        node.labels.insert(ZONE.into(), zone.into());
        one.offer.node = Arc::new(node);
        one.offer.zone = Some(zone.into());
        one
    };
    let offers = || -> Vec<Offered> {
        let zones = ["a", "b", "c"].into_iter();
        zones.flat_map(|zone| both().into_iter().map(move |one| in_zone(one, zone))).collect()
    };
    let zones = |setup: &Setup| -> Vec<String> {
        let outcome = setup.plan();
        assert_eq!(outcome.launches.len(), 1);
        outcome.launches[0].other_zones.iter().map(ToString::to_string).collect()
    };
    let mut setup = Setup::of(pods("web", 1, 3_000));
    setup.offers = offers();
    assert_eq!(&*setup.plan().launches[0].zone, "a");
    assert_eq!(zones(&setup), ["b", "c"]);
    // A pod that selects its zone is launched for there alone.
    let mut shape = setup.pods[0].shape.as_deref().unwrap().clone();
    shape.node_selector.insert(ZONE.into(), "b".into());
    setup.pods[0].shape = Ok(Arc::new(shape));
    assert_eq!((&*setup.plan().launches[0].zone, zones(&setup)), ("b", Vec::new()));
}

const ZONE: &str = "topology.kubernetes.io/zone";

#[test]
fn a_batch_that_went_on_demand_is_on_its_way_as_that() {
    let mut setup = Setup::of(pods("web", 1, 3_000));
    setup.offers = both();
    let launches = setup.plan().launches;
    setup.launch(&launches, BatchPhase::Launched);
    let batch = &mut setup.batches[0];
    batch.status.instance_type = Some("three".to_owned());
    batch.status.capacity_type = Some(CapacityType::OnDemand);
    // The place beside it is on that node: a pod of another class fits there as long as it takes what is on demand.
    setup.pods.extend(pods("late", 1, 1_000));
    let mut shape = setup.pods[1].shape.as_deref().unwrap().clone();
    shape.node_selector.insert(CAPACITY_TYPE.into(), "on-demand".into());
    setup.pods[1].shape = Ok(Arc::new(shape));
    let outcome = setup.plan();
    assert_eq!((outcome.joining, outcome.placed, outcome.launches.len()), (1, 1, 0));
}
