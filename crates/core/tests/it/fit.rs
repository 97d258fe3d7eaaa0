//! Whether a pod fits a node, filter by filter. That the filters are those of kube-scheduler is the business of the
//! end-to-end suite, which asks the real one.

use std::sync::Arc;

use muster_core::fit::{Misfit, accepts, fits, insufficient, slots};
use muster_core::model::node::{Node, Taint, TaintEffect, Usage};
use muster_core::model::pod::{HostPort, Operator, Requirement, SelectorTerm, Shape, Toleration};
use muster_core::model::resources::Resources;
use proptest::prelude::*;

const GPU: &str = "nvidia.com/gpu";

fn node() -> Node {
    Node {
        name: "a".into(),
        labels: [("rack", "r1"), ("size", "8"), ("empty", "")].map(|(key, value)| (key.into(), value.into())).into(),
        taints: Vec::new(),
        allocatable: [("pods", 110), ("cpu", 8_000), ("memory", 1_000), (GPU, 8)].into_iter().collect(),
        unschedulable: false,
        held: false,
        ready: true,
        deleting: false,
        memory: None,
        provider_id: None,
        created: None,
    }
}

fn shape(requests: &[(&str, i64)]) -> Shape {
    let mut requests: Resources = requests.iter().copied().collect();
    requests.set("pods", 1);
    Shape { requests, ..Shape::default() }
}

fn used(requested: &[(&str, i64)]) -> Usage {
    Usage { requested: requested.iter().copied().collect(), ..Usage::default() }
}

fn short_of(resource: &str) -> Misfit {
    Misfit::Insufficient { resource: resource.into() }
}

fn requirement(key: &str, operator: Operator, values: &[&str]) -> Requirement {
    Requirement { key: key.into(), operator, values: values.iter().map(|value| Arc::from(*value)).collect() }
}

fn on_labels(expressions: Vec<Requirement>) -> Shape {
    Shape { node_affinity: Some(vec![SelectorTerm { expressions, fields: Vec::new() }]), ..shape(&[]) }
}

fn matches(shape: &Shape) -> bool {
    match fits(shape, &node(), &Usage::default()) {
        Ok(()) => true,
        Err(reason) => {
            assert_eq!(reason, Misfit::Selector);
            false
        }
    }
}

fn port(ip: &str, protocol: &str, port: i32) -> HostPort {
    HostPort { ip: ip.into(), protocol: protocol.into(), port }
}

fn taint(key: &str, value: &str, effect: TaintEffect) -> Taint {
    Taint { key: key.into(), value: value.into(), effect }
}

fn toleration(key: &str, exists: bool, value: &str, effect: Option<TaintEffect>) -> Toleration {
    Toleration { key: key.into(), exists, value: value.into(), effect }
}

#[test]
fn the_last_unit_is_usable_and_one_more_is_not() {
    let usage = used(&[("cpu", 7_000), (GPU, 4)]);
    assert_eq!(fits(&shape(&[("cpu", 1_000), (GPU, 4)]), &node(), &usage), Ok(()));
    assert_eq!(fits(&shape(&[("cpu", 1_001)]), &node(), &usage), Err(short_of("cpu")));
    assert_eq!(fits(&shape(&[(GPU, 5)]), &node(), &usage), Err(short_of(GPU)));
}

#[test]
fn a_resource_absent_from_the_node_counts_as_zero() {
    assert_eq!(fits(&shape(&[("example.com/fpga", 1)]), &node(), &Usage::default()), Err(short_of("example.com/fpga")));
}

#[test]
fn a_resource_not_requested_is_not_checked_even_on_an_overcommitted_node() {
    let usage = used(&[("cpu", 9_000), ("memory", 2_000)]);
    assert_eq!(fits(&shape(&[(GPU, 1)]), &node(), &usage), Ok(()));
    assert_eq!(fits(&shape(&[("cpu", 1)]), &node(), &usage), Err(short_of("cpu")));
}

#[test]
fn the_number_of_pods_is_a_resource() {
    assert_eq!(fits(&shape(&[]), &node(), &used(&[("pods", 110)])), Err(short_of("pods")));
    assert_eq!(slots(&shape(&[]), &node(), &used(&[("pods", 100)])), Ok(10));
}

#[test]
fn every_short_resource_is_named_in_kube_schedulers_order() {
    let shape = shape(&[(GPU, 9), ("memory", 1_001), ("cpu", 8_001), ("ephemeral-storage", 1), ("example.com/a", 1)]);
    let names = insufficient(&shape, &node(), &used(&[("pods", 110)]));
    let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    assert_eq!(names, ["pods", "cpu", "memory", "ephemeral-storage", "example.com/a", GPU]);
}

#[test]
fn a_cordoned_node_takes_only_pods_that_tolerate_the_cordon() {
    let cordoned = Node { unschedulable: true, ..node() };
    assert_eq!(accepts(&shape(&[]), &cordoned), Err(Misfit::Unschedulable));
    for (tolerations, accepted) in [
        (vec![toleration("node.kubernetes.io/unschedulable", true, "", None)], true),
        (vec![toleration("node.kubernetes.io/unschedulable", false, "", Some(TaintEffect::NoSchedule))], true),
        (vec![toleration("", true, "", None)], true),
        (vec![toleration("node.kubernetes.io/unschedulable", true, "", Some(TaintEffect::NoExecute))], false),
        (vec![toleration("node.kubernetes.io/unschedulable", false, "x", None)], false),
    ] {
        let shape = Shape { tolerations, ..shape(&[]) };
        assert_eq!(accepts(&shape, &cordoned).is_ok(), accepted, "{:?}", shape.tolerations);
    }
}

#[test]
fn a_node_that_is_not_ready_or_going_takes_nothing() {
    for node in [Node { ready: false, ..node() }, Node { deleting: true, ..node() }] {
        assert_eq!(fits(&shape(&[]), &node, &Usage::default()), Err(Misfit::NotReady));
    }
}

#[test]
fn a_taint_needs_a_toleration_of_key_value_and_effect() {
    let tainted = Node { taints: vec![taint("team", "red", TaintEffect::NoSchedule)], ..node() };
    for (tolerations, accepted) in [
        (vec![], false),
        (vec![toleration("team", false, "red", None)], true),
        (vec![toleration("team", false, "red", Some(TaintEffect::NoSchedule))], true),
        (vec![toleration("team", false, "red", Some(TaintEffect::NoExecute))], false),
        (vec![toleration("team", false, "blue", None)], false),
        (vec![toleration("team", true, "", None)], true),
        (vec![toleration("crew", true, "", None)], false),
        (vec![toleration("", true, "", Some(TaintEffect::NoSchedule))], true),
        (vec![toleration("crew", true, "", None), toleration("team", false, "red", None)], true),
    ] {
        let shape = Shape { tolerations, ..shape(&[]) };
        let verdict = fits(&shape, &tainted, &Usage::default());
        let expected = if accepted { Ok(()) } else { Err(Misfit::Taint { taint: "team=red:NoSchedule".into() }) };
        assert_eq!(verdict, expected, "{:?}", shape.tolerations);
    }
}

#[test]
fn every_taint_must_be_tolerated_but_preferences_need_not() {
    let taints = vec![
        taint("soft", "", TaintEffect::PreferNoSchedule),
        taint("one", "", TaintEffect::NoSchedule),
        taint("two", "", TaintEffect::NoExecute),
    ];
    let tainted = Node { taints, ..node() };
    let shape = Shape { tolerations: vec![toleration("one", true, "", None)], ..shape(&[]) };
    assert_eq!(accepts(&shape, &tainted), Err(Misfit::Taint { taint: "two:NoExecute".into() }));
}

#[test]
fn a_node_selector_wants_every_label() {
    for (selector, matched) in [
        (vec![("rack", "r1")], true),
        (vec![("rack", "r1"), ("size", "8")], true),
        (vec![("rack", "r1"), ("size", "9")], false),
        (vec![("empty", "")], true),
        (vec![("absent", "")], false),
    ] {
        let node_selector = selector.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        let shape = Shape { node_selector, ..shape(&[]) };
        assert_eq!(matches(&shape), matched, "{:?}", shape.node_selector);
    }
}

#[test]
fn every_operator_reads_labels_as_kube_scheduler_does() {
    use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn, Unknown};
    for (key, operator, values, matched) in [
        ("rack", In, &["r1", "r2"][..], true),
        ("rack", In, &["r2"], false),
        ("rack", In, &[], false),
        ("absent", In, &["r1"], false),
        ("absent", In, &[""], false),
        ("empty", In, &[""], true),
        ("rack", NotIn, &["r2"], true),
        ("rack", NotIn, &["r1"], false),
        ("absent", NotIn, &["r1"], true),
        ("rack", NotIn, &[], false),
        ("rack", NotIn, &["-not-a-label-value-"], false),
        ("rack", Exists, &[], true),
        ("rack", Exists, &["r1"], false),
        ("absent", Exists, &[], false),
        ("absent", DoesNotExist, &[], true),
        ("rack", DoesNotExist, &[], false),
        ("size", Gt, &["7"], true),
        ("size", Gt, &["007"], true),
        ("size", Gt, &["8"], false),
        ("size", Gt, &["-1"], false),
        ("size", Gt, &["9223372036854775808"], false),
        ("size", Gt, &["7", "6"], false),
        ("size", Gt, &[], false),
        ("rack", Gt, &["0"], false),
        ("empty", Gt, &["0"], false),
        ("absent", Gt, &["0"], false),
        ("size", Lt, &["9"], true),
        ("size", Lt, &["8"], false),
        ("size", Unknown, &["8"], false),
    ] {
        let requirement = requirement(key, operator, values);
        assert_eq!(matches(&on_labels(vec![requirement.clone()])), matched, "{requirement:?}");
    }
}

#[test]
fn terms_are_alternatives_and_requirements_are_not() {
    let rack = |name| requirement("rack", Operator::In, &[name]);
    let term = |expressions| SelectorTerm { expressions, fields: Vec::new() };
    let affinity = |terms| Shape { node_affinity: Some(terms), ..shape(&[]) };
    assert!(matches(&affinity(vec![term(vec![rack("r9")]), term(vec![rack("r1")])])));
    assert!(!matches(&on_labels(vec![rack("r1"), rack("r9")])));
    assert!(!matches(&affinity(vec![])));
    assert!(!matches(&affinity(vec![SelectorTerm::default()])));
    assert!(matches(&affinity(vec![SelectorTerm::default(), term(vec![rack("r1")])])));
    // One malformed requirement drops its term, and no other.
    let malformed = requirement("absent", Operator::NotIn, &[]);
    assert!(!matches(&on_labels(vec![rack("r1"), malformed.clone()])));
    assert!(matches(&affinity(vec![term(vec![malformed]), term(vec![rack("r1")])])));
}

#[test]
fn the_name_is_the_only_field_and_takes_one_value() {
    use Operator::{Exists, In, NotIn};
    for (key, operator, values, matched) in [
        ("metadata.name", In, &["a"][..], true),
        ("metadata.name", In, &["b"], false),
        ("metadata.name", In, &["a", "b"], false),
        ("metadata.name", NotIn, &["b"], true),
        ("metadata.name", NotIn, &["a"], false),
        ("metadata.name", Exists, &[], false),
        ("metadata.uid", In, &["a"], false),
    ] {
        let fields = vec![requirement(key, operator, values)];
        let term = SelectorTerm { expressions: Vec::new(), fields };
        let shape = Shape { node_affinity: Some(vec![term.clone()]), ..shape(&[]) };
        assert_eq!(matches(&shape), matched, "{term:?}");
    }
}

#[test]
fn host_ports_conflict_by_protocol_port_and_address() {
    for (wanted, taken, free) in [
        (port("0.0.0.0", "TCP", 80), port("0.0.0.0", "TCP", 80), false),
        (port("0.0.0.0", "TCP", 80), port("10.0.0.1", "TCP", 80), false),
        (port("10.0.0.1", "TCP", 80), port("0.0.0.0", "TCP", 80), false),
        (port("10.0.0.1", "TCP", 80), port("10.0.0.1", "TCP", 80), false),
        (port("10.0.0.1", "TCP", 80), port("10.0.0.2", "TCP", 80), true),
        (port("0.0.0.0", "TCP", 80), port("0.0.0.0", "UDP", 80), true),
        (port("0.0.0.0", "TCP", 80), port("0.0.0.0", "TCP", 81), true),
        (port("", "", 80), port("10.0.0.1", "TCP", 80), false),
    ] {
        let usage = Usage { ports: vec![taken.clone()], ..Usage::default() };
        let shape = Shape { ports: vec![wanted.clone()], ..shape(&[]) };
        assert_eq!(fits(&shape, &node(), &usage) == Ok(()), free, "{wanted:?} beside {taken:?}");
    }
}

#[test]
fn a_pod_with_a_host_port_or_alone_by_hostname_has_one_slot() {
    let with_port = Shape { ports: vec![port("0.0.0.0", "TCP", 80)], ..shape(&[]) };
    assert_eq!(slots(&with_port, &node(), &Usage::default()), Ok(1));
    let alone = Shape { one_per_node: true, ..shape(&[]) };
    assert_eq!(slots(&alone, &node(), &Usage::default()), Ok(1));
    let taken = Usage { own_shape_pods: 1, ..Usage::default() };
    assert_eq!(slots(&alone, &node(), &taken), Err(Misfit::Occupied));
    // The anti-affinity may also be the other pod's.
    assert_eq!(slots(&shape(&[]), &node(), &taken), Err(Misfit::Occupied));
}

#[test]
fn the_first_reason_in_kube_schedulers_order_is_given() {
    let mut node =
        Node { unschedulable: true, ready: false, taints: vec![taint("x", "", TaintEffect::NoSchedule)], ..node() };
    let mut shape = Shape { ports: vec![port("", "", 1)], one_per_node: true, ..shape(&[("cpu", 9_000)]) };
    shape.node_selector.insert("rack".into(), "r2".into());
    let usage = Usage { ports: vec![port("", "", 1)], own_shape_pods: 1, ..Usage::default() };
    let reason = |node: &Node, shape: &Shape, usage: &Usage| fits(shape, node, usage).unwrap_err();
    assert_eq!(reason(&node, &shape, &usage), Misfit::Unschedulable);
    node.unschedulable = false;
    assert_eq!(reason(&node, &shape, &usage), Misfit::NotReady);
    node.ready = true;
    assert_eq!(reason(&node, &shape, &usage), Misfit::Taint { taint: "x:NoSchedule".into() });
    node.taints.clear();
    assert_eq!(reason(&node, &shape, &usage), Misfit::Selector);
    shape.node_selector.clear();
    assert_eq!(reason(&node, &shape, &usage), Misfit::Port);
    shape.ports.clear();
    assert_eq!(reason(&node, &shape, &usage), short_of("cpu"));
    shape.requests.set("cpu", 1);
    assert_eq!(reason(&node, &shape, &usage), Misfit::Occupied);
}

#[test]
fn extreme_amounts_neither_wrap_nor_loop() {
    let huge = Node { allocatable: [("cpu", i64::MAX), ("pods", i64::MAX)].into_iter().collect(), ..node() };
    assert_eq!(slots(&shape(&[("cpu", 1)]), &huge, &Usage::default()), Ok(u32::MAX));
    assert_eq!(slots(&Shape::default(), &huge, &Usage::default()), Ok(u32::MAX));
    let overdrawn = used(&[("cpu", i64::MAX)]);
    let negative = Node { allocatable: [("cpu", i64::MIN)].into_iter().collect(), ..node() };
    let cpu = Shape { requests: [("cpu", i64::MAX)].into_iter().collect(), ..Shape::default() };
    assert_eq!(fits(&cpu, &negative, &overdrawn), Err(short_of("cpu")));
}

proptest! {
    #[test]
    fn slots_is_the_number_of_pods_that_can_be_added_one_by_one(
        requests in proptest::collection::vec((0_usize..4, 0_i64..4), 0..4),
        allocatable in proptest::collection::vec((0_usize..4, 0_i64..40), 0..5),
        requested in proptest::collection::vec((0_usize..4, 0_i64..20), 0..4),
        alone in any::<bool>(),
    ) {
        let names = ["cpu", "memory", GPU, "example.com/a"];
        let amounts = |entries: &[(usize, i64)]| entries.iter().map(|(index, amount)| (names[*index], *amount)).collect::<Vec<_>>();
        let mut node = Node { allocatable: amounts(&allocatable).into_iter().collect(), ..node() };
        node.allocatable.set("pods", 30);
        let shape = Shape { one_per_node: alone, ..shape(&amounts(&requests)) };
        let mut usage = used(&amounts(&requested));
        let assigned = slots(&shape, &node, &usage).unwrap_or(0);
        let mut added = 0;
        while fits(&shape, &node, &usage).is_ok() {
            usage.add(&shape);
            added += 1;
        }
        prop_assert_eq!(assigned, added);
    }
}
