//! The mix that pods of many kinds make: what a scheduler for ordinary pods is measured with.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::ec2::CapacityType;
use muster_core::model::names::NodeName;
use muster_core::model::node::{Node, Usage};
use muster_core::model::pod::{Operator, Requirement, Shape};
use muster_core::model::resources::Resources;
use muster_core::packing::{Class, Offer, PodTerm, Pool, Problem, Rule, Spread, forget_labels};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";
const LABEL: &str = "my-label";
const LETTERS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

/// A fifth of the mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fifth {
    Plain,
    ZoneSpread,
    HostSpread,
    ZoneAffinity,
    HostAntiAffinity,
}

impl Fifth {
    pub(crate) const ALL: [Self; 5] =
        [Self::Plain, Self::ZoneSpread, Self::HostSpread, Self::ZoneAffinity, Self::HostAntiAffinity];
}

/// So many pods of these fifths.
pub(crate) fn pods(seed: u64, pods: usize, fifths: &[Fifth]) -> Vec<Class> {
    let mut random = ChaCha8Rng::seed_from_u64(seed + pods as u64);
    (0..pods).map(|number| pod(&mut random, fifths[number * fifths.len() / pods])).collect()
}

/// So many types in three zones, spot and on demand.
pub(crate) fn offers(types: u32) -> Vec<Offer> {
    let mut offers = Vec::new();
    for number in 1..=types {
        for (zone, capacity_type) in [
            ("z-1", CapacityType::Spot),
            ("z-2", CapacityType::Spot),
            ("z-1", CapacityType::OnDemand),
            ("z-2", CapacityType::OnDemand),
            ("z-3", CapacityType::OnDemand),
        ] {
            offers.push(offer(number, zone, capacity_type));
        }
    }
    offers
}

/// The problem that the planner gets of them: one pool, no nodes.
pub(crate) fn problem(pods: Vec<Class>, offers: Vec<Offer>) -> Problem {
    let mut ladders: Vec<Vec<Class>> = pods.into_iter().map(|pod| vec![pod]).collect();
    forget_labels(&mut ladders, &[]);
    let pools = vec![Pool { name: "default".into(), ..Pool::default() }];
    Problem { pools, offers, ..Problem::of(ladders) }
}

fn offer(number: u32, zone: &str, capacity_type: CapacityType) -> Offer {
    let cores = i64::from(number);
    let gib = 1_i64 << 30;
    let amounts =
        |cpu: i64, memory: i64| Resources::from_iter([("cpu", cpu), ("memory", memory), ("pods", cores * 10)]);
    // A tenth of a dollar per core and per 10^9 byte, whatever its capacity type, as exact a multiple as families have: rounded
    // for each type, four small ones would be a millionth cheaper than a large one.
    let price = u64::from(number) * (100_000 + 2 * (1_u64 << 30) / 10_000);
    let name = format!("fake-{number}");
    let labels: BTreeMap<Arc<str>, Arc<str>> = [
        (ZONE, zone),
        ("node.kubernetes.io/instance-type", name.as_str()),
        ("muster.dev/capacity-type", capacity_type.as_str()),
    ]
    .into_iter()
    .map(|(key, value)| (Arc::from(key), Arc::from(value)))
    .collect();
    let node = Node {
        name: NodeName::from(format!("new {name}")),
        labels,
        taints: Vec::new(),
        allocatable: amounts(cores * 1_000 - 100, cores * 2 * gib - 10 * (1 << 20)),
        unschedulable: false,
        held: false,
        ready: true,
        deleting: false,
        memory: None,
        provider_id: None,
        created: None,
    };
    Offer {
        pool: 0,
        variant: 0,
        instance_type: name.as_str().into(),
        zone: Some(zone.into()),
        capacity_type,
        reservation: None,
        free: None,
        price,
        list_price: price,
        node: Arc::new(node),
        overhead: Usage::default(),
        capacity: amounts(cores * 1_000, cores * 2 * gib),
    }
}

fn pod(random: &mut ChaCha8Rng, fifth: Fifth) -> Class {
    let mut pick = |list: &[i64]| list[random.random_range(0..list.len())];
    let (cpu, memory) = (pick(&[100, 250, 500, 1_000, 1_500]), pick(&[100, 256, 512, 1_024, 2_048, 4_096]) << 20);
    let mut letter = || LETTERS[random.random_range(0..LETTERS.len())];
    let own = letter();
    let selects = |key: &str, value: &str| {
        vec![Requirement { key: key.into(), operator: Operator::In, values: vec![value.into()] }]
    };
    let spread = |key: &str, value: &str| {
        Rule::Spread(Spread {
            key: key.into(),
            selector: selects(LABEL, value),
            max_skew: 1,
            min_domains: 1,
            honor_affinity: true,
            honor_taints: false,
        })
    };
    let term = |key: &str, selector: Vec<Requirement>| PodTerm {
        key: key.into(),
        namespaces: Some([Arc::from("default")].into()),
        selector: Some(selector),
    };
    let mut labels: BTreeMap<Arc<str>, Arc<str>> = [(Arc::from(LABEL), Arc::from(own))].into();
    let rules = match fifth {
        Fifth::Plain => Vec::new(),
        Fifth::ZoneSpread => vec![spread(ZONE, letter())],
        Fifth::HostSpread => vec![spread(HOSTNAME, letter())],
        Fifth::ZoneAffinity => {
            labels.insert("my-affinity".into(), own.into());
            vec![Rule::Affinity(vec![term(ZONE, selects("my-affinity", own))])]
        }
        Fifth::HostAntiAffinity => {
            labels.insert("app".into(), "nginx".into());
            vec![Rule::AntiAffinity(term(HOSTNAME, selects("app", "nginx")))]
        }
    };
    let shape =
        Shape { requests: Resources::from_iter([("cpu", cpu), ("memory", memory), ("pods", 1)]), ..Shape::default() };
    Class { shape, namespace: "default".into(), labels, rules, ..Class::default() }
}
