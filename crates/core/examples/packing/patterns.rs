//! Plans of some dozens of pods with constraints, against an integer programme over patterns: every maximal set of pods of every
//! offer is a column, spread, affinity and anti-affinity over zones are rows, and so are limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use good_lp::{Expression, ProblemVariables, Solution, SolverModel, Variable, microlp, variable};
use muster_core::ec2::CapacityType;
use muster_core::model::names::{NodeName, ResourceName};
use muster_core::model::node::{Node, Usage};
use muster_core::model::pod::{Operator, Requirement, Shape};
use muster_core::model::resources::Resources;
use muster_core::packing::{Class, Offer, PodTerm, Pool, Problem, Rule, Spread};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONES: [&str; 3] = ["a", "b", "c"];
/// Columns of a programme that is still solved in seconds.
const COLUMNS: usize = 300;

/// What ties the pods of a class to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tie {
    Nothing,
    ZoneSpread(u32),
    ZoneAffinity,
    HostAntiAffinity,
}

/// A case: the problem, and how often and how tied each class comes.
pub(crate) struct Case {
    pub(crate) problem: Problem,
    classes: Vec<(Tie, u32)>,
}

struct Column {
    zone: usize,
    offer: usize,
    counts: Vec<u32>,
}

/// A random case of 13 to 40 pods of at most five classes; `None` if its programme would be too large.
pub(crate) fn draw(seed: u64) -> Option<Case> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut problem = Problem::default();
    let mut left = BTreeMap::new();
    if random.random_bool(0.2) {
        left.insert(ResourceName::from("nodes"), random.random_range(6..14));
    }
    problem.pools.push(Pool { name: "default".into(), left, ..Pool::default() });
    for number in 0..random.random_range(2..=5_u32) {
        let (cpu, memory) = (random.random_range(2..=12) * 500, random.random_range(2..=12));
        let dear: u64 = random.random_range(80..=120);
        for zone in ZONES {
            let price = u64::try_from(cpu / 5 + memory * 60).unwrap_or(0) * dear * random.random_range(95..=105);
            problem.offers.push(offer(&format!("t{number}"), zone, cpu, memory, price));
        }
    }
    let mut classes = Vec::new();
    let kinds = random.random_range(2..=5_usize);
    for kind in 0..kinds {
        let app = format!("app-{kind}");
        let tie = match random.random_range(0..8) {
            0 | 1 => Tie::ZoneSpread(random.random_range(1..=2)),
            2 => Tie::ZoneAffinity,
            3 => Tie::HostAntiAffinity,
            _ => Tie::Nothing,
        };
        let most = 40 / u32::try_from(kinds).unwrap_or(1);
        let count = random.random_range(3..=if tie == Tie::HostAntiAffinity { 6 } else { most });
        let requests = Resources::from_iter([
            ("cpu", random.random_range(1..=10) * 250),
            ("memory", random.random_range(1..=6)),
            ("pods", 1),
        ]);
        problem.kinds.push(vec![kind]);
        problem.pods.extend(std::iter::repeat_n(kind, count as usize));
        problem.classes.push(Class {
            shape: Shape { requests, ..Shape::default() },
            namespace: "ns".into(),
            labels: [(Arc::from("app"), Arc::from(app.as_str()))].into(),
            rules: rules(tie, &app),
            ..Class::default()
        });
        classes.push((tie, count));
    }
    let case = Case { problem, classes };
    (case.problem.pods.len() > 12 && case.columns().len() <= COLUMNS).then_some(case)
}

fn offer(name: &str, zone: &str, cpu: i64, memory: i64, price: u64) -> Offer {
    let labels = [(ZONE, zone), ("type", name)];
    let node = Node {
        name: NodeName::from(format!("new {name}")),
        labels: labels.iter().map(|(key, value)| (Arc::from(*key), Arc::from(*value))).collect(),
        taints: Vec::new(),
        allocatable: Resources::from_iter([("cpu", cpu), ("memory", memory), ("pods", 30)]),
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
        instance_type: name.into(),
        zone: Some(zone.into()),
        capacity_type: CapacityType::OnDemand,
        reservation: None,
        free: None,
        price,
        list_price: price,
        node: Arc::new(node),
        overhead: Usage::default(),
        capacity: Resources::from_iter([("cpu", cpu), ("memory", memory)]),
    }
}

fn rules(tie: Tie, app: &str) -> Vec<Rule> {
    let selector = vec![Requirement { key: "app".into(), operator: Operator::In, values: vec![app.into()] }];
    let term = |key: &str| PodTerm {
        key: key.into(),
        namespaces: Some([Arc::from("ns")].into()),
        selector: Some(selector.clone()),
    };
    match tie {
        Tie::Nothing => Vec::new(),
        Tie::ZoneSpread(max_skew) => vec![Rule::Spread(Spread {
            key: ZONE.into(),
            selector: selector.clone(),
            max_skew,
            min_domains: 1,
            honor_affinity: true,
            honor_taints: false,
        })],
        Tie::ZoneAffinity => vec![Rule::Affinity(vec![term(ZONE)])],
        Tie::HostAntiAffinity => vec![Rule::AntiAffinity(term(HOSTNAME))],
    }
}

impl Case {
    /// Every maximal set of pods of every offer.
    fn columns(&self) -> Vec<Column> {
        let mut columns = Vec::new();
        for (index, offer) in self.problem.offers.iter().enumerate() {
            let zone = ZONES.iter().position(|zone| offer.zone.as_deref() == Some(*zone)).unwrap_or(0);
            let mut found = Vec::new();
            self.fill(offer, 0, &mut vec![0; self.classes.len()], &mut found);
            let maximal = |counts: &Vec<u32>| {
                !found.iter().any(|other| other != counts && other.iter().zip(counts).all(|(one, two)| one >= two))
            };
            let kept: Vec<Vec<u32>> = found.iter().filter(|counts| maximal(counts)).cloned().collect();
            columns.extend(kept.into_iter().map(|counts| Column { zone, offer: index, counts }));
            if columns.len() > COLUMNS {
                break;
            }
        }
        columns
    }

    fn fill(&self, offer: &Offer, at: usize, counts: &mut Vec<u32>, found: &mut Vec<Vec<u32>>) {
        if at == counts.len() {
            found.push(counts.clone());
            return;
        }
        let most = if self.classes[at].0 == Tie::HostAntiAffinity { 1 } else { self.classes[at].1 };
        for count in 0..=most {
            counts[at] = count;
            let fits = ["cpu", "memory", "pods"].iter().all(|name| {
                let requests = self.problem.classes.iter().zip(counts.iter());
                let sum: i64 = requests.map(|(class, n)| class.shape.requests.get(name) * i64::from(*n)).sum();
                sum <= offer.node.allocatable.get(name)
            });
            if !fits {
                break;
            }
            self.fill(offer, at + 1, counts, found);
        }
        counts[at] = 0;
    }

    /// The least any plan of all pods costs; `None` if limits forbid every such plan.
    pub(crate) fn least(&self) -> Option<u64> {
        let columns = self.columns();
        let mut variables = ProblemVariables::new();
        let define = |most: u32| variable().min(0).max(f64::from(most)).integer();
        let all: u32 = self.classes.iter().map(|(_, count)| count).sum();
        let nodes: Vec<Variable> = columns.iter().map(|_| variables.add(define(all))).collect();
        let pods: Vec<Vec<Variable>> = self
            .classes
            .iter()
            .map(|(_, count)| ZONES.iter().map(|_| variables.add(define(*count))).collect())
            .collect();
        let chosen: Vec<Vec<Variable>> =
            self.classes.iter().map(|_| ZONES.iter().map(|_| variables.add(define(1))).collect()).collect();
        let price = |column: &Column| {
            #[expect(clippy::cast_precision_loss, reason = "prices are far below 2^52")]
            let price = self.problem.offers[column.offer].price as f64;
            price / 1e6
        };
        let sum = |of: &mut dyn Iterator<Item = (f64, Variable)>| -> Expression {
            of.map(|(times, variable)| times * variable).sum()
        };
        let goal = sum(&mut columns.iter().zip(&nodes).map(|(column, node)| (price(column), *node)));
        let mut model = variables.minimise(goal).using(microlp);
        for (class, (tie, count)) in self.classes.iter().enumerate() {
            for zone in 0..ZONES.len() {
                let mut held = columns.iter().zip(&nodes).filter(|(column, _)| column.zone == zone);
                let held = sum(&mut held.by_ref().map(|(column, node)| (f64::from(column.counts[class]), *node)));
                model.add_constraint((held - pods[class][zone]).geq(0));
                for other in (0..ZONES.len()).filter(|other| *other != zone) {
                    if let Tie::ZoneSpread(skew) = tie {
                        model.add_constraint((pods[class][zone] - pods[class][other]).leq(f64::from(*skew)));
                    }
                }
                if *tie == Tie::ZoneAffinity {
                    model.add_constraint((pods[class][zone] - f64::from(*count) * chosen[class][zone]).leq(0));
                }
            }
            let placed: Expression = pods[class].iter().copied().sum();
            model.add_constraint(placed.eq(f64::from(*count)));
            if *tie == Tie::ZoneAffinity {
                let zones: Expression = chosen[class].iter().copied().sum();
                model.add_constraint(zones.eq(1));
            }
        }
        if let Some(most) = self.problem.pools[0].left.get("nodes") {
            let number: Expression = nodes.iter().copied().sum();
            #[expect(clippy::cast_precision_loss, reason = "a few nodes")]
            model.add_constraint(number.leq(*most as f64));
        }
        let solution = model.solve().ok()?;
        let cost = columns.iter().zip(&nodes).map(|(column, node)| price(column) * solution.value(*node).round());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a price")]
        let micro = (cost.sum::<f64>() * 1e6).round() as u64;
        Some(micro)
    }
}
