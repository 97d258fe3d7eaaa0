//! What fits now, against an exhaustive search written from the definition, and against the planner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::model::names::{NodeName, ObjectKey};
use muster_core::model::node::{Node, Taint, TaintEffect, Usage};
use muster_core::model::resources::{PODS, Resources};
use muster_core::planner;
use muster_core::planner::plan::{
    GangRequest, Host, Policy, Problem, Role, RolePlace, SearchBudget, Seed, TopologyRequests,
};
use muster_core::topology::{HOST_KEY, Levels, NETWORK_LAYER_KEYS, Tree, ZONE_KEY};
use muster_view::fits;
use muster_view::overview::FitEntry;
use proptest::prelude::*;

const GPU: &str = "nvidia.com/gpu";

/// One node: labels of zone, layer 3 and layer 4, accelerators, how many of them are held, and what is wrong with it.
type Drawn = (u8, Option<u8>, Option<u8>, i64, i64, u8);

fn node(index: usize, drawn: Drawn) -> (Node, Usage) {
    let (zone, upper, leaf, gpus, held, fault) = drawn;
    let mut labels: BTreeMap<Arc<str>, Arc<str>> = BTreeMap::new();
    let name = format!("n-{index}");
    labels.insert(HOST_KEY.into(), name.as_str().into());
    labels.insert(ZONE_KEY.into(), format!("z{zone}").into());
    if let Some(upper) = upper {
        labels.insert(NETWORK_LAYER_KEYS[2].into(), format!("u{upper}").into());
        if let Some(leaf) = leaf {
            labels.insert(NETWORK_LAYER_KEYS[3].into(), format!("l{leaf}").into());
        }
    }
    let mut allocatable = Resources::default();
    allocatable.set(GPU, gpus);
    allocatable.set(PODS, 10);
    let mut requested = Resources::default();
    requested.set(GPU, held.min(gpus));
    let taint = |key: &str| Taint { key: key.into(), value: "".into(), effect: TaintEffect::NoSchedule };
    let node = Node {
        name: NodeName::from(name.as_str()),
        labels,
        taints: match fault {
            3 => vec![taint("example.com/other")],
            4 => vec![taint(GPU)],
            _ => Vec::new(),
        },
        allocatable,
        unschedulable: fault == 1,
        held: false,
        ready: fault != 2,
        deleting: false,
        memory: None,
        provider_id: None,
        created: None,
    };
    (node, Usage { requested, ..Usage::default() })
}

fn levels() -> Levels {
    let level = |name: &str, key: &str| muster_core::topology::Level { name: name.into(), key: key.into() };
    Levels::new(vec![
        level("zone", ZONE_KEY),
        level("layer-3", NETWORK_LAYER_KEYS[2]),
        level("layer-4", NETWORK_LAYER_KEYS[3]),
    ])
    .unwrap()
}

/// The definition: members of 8 stand one to a node, on nodes of one domain.
fn may_hold(drawn: &[Drawn], set: u32, level: usize) -> bool {
    let inside: Vec<&Drawn> = (0..drawn.len()).filter(|bit| set & (1 << bit) != 0).map(|bit| &drawn[bit]).collect();
    let path = |one: &Drawn| {
        let (zone, upper, leaf, ..) = *one;
        let leaf = upper.and(leaf);
        match level {
            0 => Some((zone, None, None)),
            1 => upper.map(|upper| (zone, Some(upper), None)),
            // Nodes without the deepest layer stand together in the layer above.
            _ => upper.map(|upper| (zone, Some(upper), leaf)),
        }
    };
    let takes = |one: &Drawn| {
        let (.., gpus, held, fault) = *one;
        gpus - held.min(gpus) >= 8 && !matches!(fault, 1..=3)
    };
    let first = inside.first().and_then(|one| path(one));
    first.is_some() && inside.iter().all(|one| takes(one) && path(one) == first)
}

/// The most disjoint sets of `size` nodes, by trying all of them.
fn most(drawn: &[Drawn], level: usize, size: u32) -> u32 {
    let all = 1_u32 << drawn.len();
    let sets: Vec<u32> = (1..all).filter(|set| set.count_ones() == size && may_hold(drawn, *set, level)).collect();
    let mut best = vec![0_u32; usize::try_from(all).unwrap()];
    for free in 1..all {
        let more = sets.iter().filter(|set| free & **set == **set).map(|set| 1 + best[(free ^ set) as usize]);
        best[free as usize] = more.max().unwrap_or(0);
    }
    best[(all - 1) as usize]
}

/// Whether the planner places a gang of so many members.
fn placed(nodes: &[(Node, Usage)], level: usize, size: u32) -> bool {
    let shape = fits::member(&(GPU.to_owned(), 8), &BTreeSet::new());
    let places = vec![RolePlace::default(); usize::try_from(size).unwrap()];
    let gang = GangRequest {
        key: ObjectKey::new("default", "probe"),
        roles: vec![Role { name: "".into(), shape, min: size, places }],
        topology_requests: TopologyRequests { required: Some(level), ..TopologyRequests::default() },
    };
    let hosts = nodes.iter().map(|(node, usage)| Host { node: Arc::new(node.clone()), usage: Arc::new(usage.clone()) });
    let problem = Problem { levels: levels(), hosts: hosts.collect(), gang };
    let (_, report) = planner::plan(&problem, &Policy::default(), SearchBudget::default(), Seed::default());
    report.refusal.is_none()
}

fn drawn() -> impl Strategy<Value = Vec<Drawn>> {
    let label = |most: u8| proptest::option::weighted(0.8, 0..most);
    let gpus = prop_oneof![4 => Just(8_i64), 1 => Just(4), 1 => Just(16), 1 => Just(0)];
    let held = prop_oneof![3 => Just(0_i64), 1 => Just(3), 1 => Just(8)];
    let fault = prop_oneof![5 => Just(0_u8), 1 => 1..5_u8];
    proptest::collection::vec((0..2_u8, label(2), label(3), gpus, held, fault), 1..=8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn what_fits_now_is_what_an_exhaustive_search_finds_and_what_the_planner_places(drawn in drawn()) {
        let nodes: Vec<(Node, Usage)> = drawn.iter().enumerate().map(|(index, one)| node(index, *one)).collect();
        let levels = levels();
        let tree = Tree::build(&levels, nodes.iter().map(|(node, _)| node));
        let borrowed: Vec<(&Node, &Usage)> = nodes.iter().map(|(node, usage)| (node, usage)).collect();
        let found = fits::of_kind(&(GPU.to_owned(), 8), &levels, &tree, &borrowed, &BTreeSet::new());
        prop_assert_eq!(found.len(), 3, "one entry per level above the host");
        for (level, entry) in found.iter().enumerate() {
            for one in entry.at_once.iter().filter(|one| one.nodes <= 8) {
                prop_assert_eq!(one.gangs, most(&drawn, level, one.nodes), "gangs of {} at level {}", one.nodes, level);
            }
            let largest = (1..=8).filter(|size| most(&drawn, level, *size) > 0).max().unwrap_or(0);
            prop_assert_eq!(entry.largest, largest);
            prop_assert!(largest == 0 || placed(&nodes, level, largest), "the planner places {}", largest);
            prop_assert!(!placed(&nodes, level, largest + 1), "and none of one node more");
        }
    }
}

fn drawn_larger() -> impl Strategy<Value = Vec<Drawn>> {
    let label = |most: u8| proptest::option::weighted(0.95, 0..most);
    let gpus = prop_oneof![8 => Just(8_i64), 1 => Just(4), 1 => Just(16)];
    let held = prop_oneof![4 => Just(0_i64), 1 => Just(3), 1 => Just(8)];
    let fault = prop_oneof![12 => Just(0_u8), 1 => 1..5_u8];
    proptest::collection::vec((0..3_u8, label(4), label(5), gpus, held, fault), 60..=200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn in_larger_clusters_the_planner_places_a_gang_of_the_size_shown_and_none_of_one_node_more(drawn in drawn_larger()) {
        let nodes: Vec<(Node, Usage)> = drawn.iter().enumerate().map(|(index, one)| node(index, *one)).collect();
        let levels = levels();
        let tree = Tree::build(&levels, nodes.iter().map(|(node, _)| node));
        let borrowed: Vec<(&Node, &Usage)> = nodes.iter().map(|(node, usage)| (node, usage)).collect();
        let found = fits::of_kind(&(GPU.to_owned(), 8), &levels, &tree, &borrowed, &BTreeSet::new());
        prop_assert!(found[0].largest >= 1, "a zone of {} nodes holds {}", nodes.len(), found[0].largest);
        for (level, FitEntry { largest, .. }) in found.into_iter().enumerate() {
            prop_assert!(largest == 0 || placed(&nodes, level, largest), "{} at level {}", largest, level);
            prop_assert!(!placed(&nodes, level, largest + 1), "one more than {} at level {}", largest, level);
        }
    }
}
