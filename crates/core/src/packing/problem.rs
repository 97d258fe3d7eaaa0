//! What is packed: pods by class, nodes that exist, pools and what they offer.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::ec2::CapacityType;
use crate::model::names::{ObjectKey, ResourceName};
use crate::model::node::{Node, Usage};
use crate::model::pod::{Requirement, SelectorTerm, Shape};
use crate::model::resources::Resources;

/// Everything a plan for ordinary pods depends on.
#[derive(Clone, Debug, Default)]
pub struct Problem {
    /// Distinct pods. Pods of one class are interchangeable but for their order.
    pub classes: Vec<Class>,
    /// Kinds of pods: the class with every preference kept first, then with one preference less at a time, the weakest
    /// dropped first; the last has only what is required. Never empty.
    pub kinds: Vec<Vec<usize>>,
    /// The pending pods in planning order (priority, creation, namespace and name): the kind of each.
    pub pods: Vec<usize>,
    /// Nodes that exist, in the order in which they are tried: Ready ones first, then those that are joining.
    pub nodes: Vec<Existing>,
    /// Other nodes will register, of which nothing is known but that they come with none of these pods: a spread over hosts that
    /// counts one of them has no host with fewer.
    pub hosts_come: bool,
    /// Pods that stand on those nodes and matter to a topology constraint of any class, or carry one.
    pub standing: Vec<Standing>,
    /// Claims whose volumes are attached to those nodes, by index of the node. Only those that classes share matter.
    pub attached: BTreeMap<usize, BTreeSet<ObjectKey>>,
    /// NodePools.
    pub pools: Vec<Pool>,
    /// What the pools offer.
    pub offers: Vec<Offer>,
    /// How much may be spent on a proof.
    pub budget: Budget,
}

impl Problem {
    /// The class that a pod of a kind stands as on a node that exists, with so many preferences dropped.
    pub(super) fn class_on(&self, kind: &[usize], node: usize, level: usize) -> usize {
        let last = kind.len().saturating_sub(1);
        let level = if self.nodes[node].joining { level.min(last) } else { last };
        kind.get(level).copied().unwrap_or(0)
    }

    /// Pods with the classes of each, from every preference kept to the last dropped. Give them without the labels that nobody
    /// asks for: [`forget_labels`].
    #[must_use]
    pub fn of(ladders: Vec<Vec<Class>>) -> Self {
        let mut problem = Self::default();
        let (mut classes, mut kinds) = (BTreeMap::new(), BTreeMap::new());
        for ladder in ladders {
            let mut kind = Vec::new();
            for class in ladder {
                let next = classes.len();
                let number = *classes.entry(class.clone()).or_insert(next);
                if number == next {
                    problem.classes.push(class);
                }
                kind.push(number);
            }
            let next = kinds.len();
            let number = *kinds.entry(kind.clone()).or_insert(next);
            if number == next {
                problem.kinds.push(kind);
            }
            problem.pods.push(number);
        }
        problem
    }
}

/// Drops labels that no constraint asks for: they make no difference between pods.
pub fn forget_labels(ladders: &mut [Vec<Class>], standing: &[Standing]) {
    let mut asked: BTreeSet<Arc<str>> = BTreeSet::new();
    let mut ask = |term: &PodTerm| asked.extend(term.selector.iter().flatten().map(|one| Arc::clone(&one.key)));
    standing.iter().flat_map(|pod| &pod.anti_affinity).for_each(&mut ask);
    let mut spreads = BTreeSet::new();
    for rule in ladders.iter().flatten().flat_map(Class::all_rules) {
        match rule {
            Rule::Spread(spread) => spreads.extend(spread.selector.iter().map(|one| Arc::clone(&one.key))),
            Rule::Affinity(terms) => terms.iter().for_each(&mut ask),
            Rule::AntiAffinity(term) => ask(term),
        }
    }
    asked.extend(spreads);
    for class in ladders.iter_mut().flatten() {
        class.labels.retain(|key, _| asked.contains(key));
    }
}

/// One kind of pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class {
    /// Requests, selection, tolerations, ports and volumes. Its list of unsupported constraints is the gang planner's.
    pub shape: Shape,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Labels.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Required topology constraints.
    pub rules: Vec<Rule>,
    /// Preferred ones that are kept: they decide where the pod goes, and nothing of where others go once it is there.
    pub preferred: Vec<Rule>,
    /// Preferred node affinity that is kept: terms of which a node has to match all. Which nodes count for a spread constraint
    /// is for what is required alone to say.
    pub preferred_nodes: Vec<SelectorTerm>,
    /// Taints with the effect `PreferNoSchedule` that are not tolerated keep it away, as if they were `NoSchedule`.
    pub heeds_soft_taints: bool,
    /// It gets no new node: it may only use what exists.
    pub existing_only: bool,
    /// Of the nodes that exist it may use only those that registered after this, and those on their way.
    pub newer_than: Option<Timestamp>,
    /// It gets no new node of these, by index of the pool and instance type, or none of the pool at all; those that exist it may
    /// use.
    pub kept_off: BTreeSet<(usize, Option<Arc<str>>)>,
    /// Volumes that other pods use as well, by claim, each with the resource of its driver: a node attaches each once, so that none
    /// is among the requests.
    pub shares: BTreeMap<ObjectKey, ResourceName>,
}

impl Class {
    /// Topology constraints that decide where the pod goes.
    pub fn all_rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().chain(&self.preferred)
    }

    /// What a pod asks for on a node that has attached the volumes of these claims.
    #[must_use]
    pub fn beside(&self, attached: Option<&BTreeSet<ObjectKey>>) -> Cow<'_, Shape> {
        let is_there = |claim: &ObjectKey| attached.is_some_and(|attached| attached.contains(claim));
        let mut shape = Cow::Borrowed(&self.shape);
        for (_, resource) in self.shares.iter().filter(|(claim, _)| !is_there(claim)) {
            let one_more = shape.requests.get(resource.as_str()).saturating_add(1);
            shape.to_mut().requests.set(resource.clone(), one_more);
        }
        shape
    }

    /// Whether it may not use a node that exists, although that would hold it.
    #[must_use]
    pub fn is_shut_out(&self, node: &Node) -> bool {
        self.newer_than.is_some_and(|after| node.created.is_some_and(|created| created <= after))
    }

    /// Whether no node of this offer is launched for it, although it would hold it.
    #[must_use]
    pub fn is_kept_off(&self, offer: &Offer) -> bool {
        let Self { kept_off, .. } = self;
        !kept_off.is_empty()
            && (kept_off.contains(&(offer.pool, None))
                || kept_off.contains(&(offer.pool, Some(Arc::clone(&offer.instance_type)))))
    }
}

/// A topology constraint.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// `topologySpreadConstraints` with `DoNotSchedule`.
    Spread(Spread),
    /// `podAffinity`: all required terms of a pod are one rule, since kube-scheduler counts pods that match all of them.
    Affinity(Vec<PodTerm>),
    /// `podAntiAffinity`, one term.
    AntiAffinity(PodTerm),
}

impl Rule {
    /// Label keys whose values are its domains.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        let (spread, terms) = match self {
            Self::Spread(spread) => (Some(&spread.key), &[][..]),
            Self::Affinity(terms) => (None, &terms[..]),
            Self::AntiAffinity(term) => (None, std::slice::from_ref(term)),
        };
        spread.into_iter().chain(terms.iter().map(|term| &term.key))
    }
}

/// One topology spread constraint.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Spread {
    /// Label key whose values are the domains.
    pub key: Arc<str>,
    /// Which pods count; those of the pod's own namespace.
    pub selector: Vec<Requirement>,
    /// `maxSkew`.
    pub max_skew: u32,
    /// `minDomains`; 1 if absent.
    pub min_domains: u32,
    /// `nodeAffinityPolicy: Honor`: only nodes that the pod selects count.
    pub honor_affinity: bool,
    /// `nodeTaintsPolicy: Honor`: only nodes whose taints the pod tolerates count.
    pub honor_taints: bool,
}

/// A term of pod affinity or anti-affinity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodTerm {
    /// Label key whose values are the domains.
    pub key: Arc<str>,
    /// Namespaces whose pods count; `None` = all of them.
    pub namespaces: Option<BTreeSet<Arc<str>>>,
    /// Which pods count. `None` selects nothing, an empty list everything.
    pub selector: Option<Vec<Requirement>>,
}

/// A node that exists.
#[derive(Clone, Debug)]
pub struct Existing {
    /// The node. One that is joining is given as it will be: Ready, without the taints that go.
    pub node: Arc<Node>,
    /// What pods on it hold.
    pub usage: Usage,
    /// It is on its way: a pod has no place there unless what it prefers and has not dropped holds, as on a new node. One that is
    /// Ready is a place whatever a pod prefers, since kube-scheduler would use it.
    pub joining: bool,
}

/// A pod that stands on a node.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Index of the node.
    pub node: usize,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Labels.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Its required anti-affinity.
    pub anti_affinity: Vec<PodTerm>,
    /// Has a deletion timestamp: it holds capacity, and no spread constraint counts it.
    pub deleting: bool,
}

/// The limit of a pool that is a ceiling on dollars: it counts micro-dollars per hour by the prices of the lists.
pub const CEILING: &str = "maxUsdPerHour";

/// What all nodes of a pool have in common.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// Name.
    pub name: Arc<str>,
    /// Higher first.
    pub weight: u32,
    /// What is left of its limits; `nodes` counts nodes, [`CEILING`] dollars, everything else hardware capacity.
    pub left: BTreeMap<ResourceName, i64>,
    /// Label keys of which a node must leave so many distinct values among its alternatives.
    pub min_values: Vec<(Arc<str>, u32)>,
}

/// One way to launch a node: pool × instance type × zone × capacity type × reservation.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Index of the pool.
    pub pool: usize,
    /// Values of the custom labels that the pool leaves open: offers of one pool that differ in it are never alternatives of
    /// each other.
    pub variant: u32,
    /// Instance type.
    pub instance_type: Arc<str>,
    /// Zone; `None` where none is known.
    pub zone: Option<Arc<str>>,
    /// Capacity type.
    pub capacity_type: CapacityType,
    /// Capacity reservation.
    pub reservation: Option<Arc<str>>,
    /// Hosts that the reservation has free; `None` without one.
    pub free: Option<u32>,
    /// Micro-dollars per hour; 0 for a reservation, which is paid for anyway.
    pub price: u64,
    /// The same as lists have it, for a reservation too: of offers that cost the same the one with the least is taken.
    pub list_price: u64,
    /// The node as it would register, without its hostname.
    pub node: Arc<Node>,
    /// What DaemonSets take of it.
    pub overhead: Usage,
    /// What the hardware has: it counts against limits.
    pub capacity: Resources,
}

impl Offer {
    /// Whether its node has something of one of the resources.
    pub(crate) fn has_any(&self, names: &[Arc<str>]) -> bool {
        names.iter().any(|name| self.node.allocatable.get(name) > 0)
    }
}

/// Counted work that a plan may spend. Nothing here is time, so that the same problem gives the same plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// States of the enumeration; 0 switches it off.
    pub states: u64,
    /// Patterns the enumeration looks at, over all states.
    pub patterns: u64,
    /// Steps of all searches for patterns that a linear programme chooses from; 0 switches it off.
    pub columns: u64,
    /// Rounds of improvement.
    pub ruins: u32,
    /// Steps of the search over single pods, where there are a dozen at most; 0 switches it off.
    pub branches: u64,
    /// Nodes that the local search looks at; 0 switches it off.
    pub mending: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { states: 200_000, patterns: 400_000, columns: 300_000, ruins: 400, branches: 20_000, mending: 2_000_000 }
    }
}

/// What becomes of the pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// One entry per pod of the problem, in its order.
    pub places: Vec<Place>,
    /// How many preferences of each pod were dropped to find its place.
    pub relaxed: Vec<usize>,
    /// New nodes.
    pub nodes: Vec<NewNode>,
    /// Micro-dollars per hour of the new nodes.
    pub cost: u64,
    /// No plan that places the same pods on new nodes costs less; `None` if no pod goes to a new node.
    pub bound: Option<Bound>,
    /// Counted work.
    pub work: Work,
}

/// Where one pod goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// Index of a node that exists.
    Existing(usize),
    /// Index of a new node.
    New(usize),
    /// Nowhere.
    None,
}

/// A node to launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Index of the offer.
    pub offer: usize,
    /// Offers that would do as well, whatever becomes of the other nodes; cheapest first, without `offer`.
    pub alternatives: Vec<usize>,
}

/// A lower bound on the cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Micro-dollars per hour.
    pub value: u64,
    /// How it is proven.
    pub basis: Basis,
}

/// How a bound is proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Every plan was looked at.
    Enumeration,
    /// What pods are worth at most.
    Patterns(Worth),
    /// Prices of resources.
    Resources {
        /// For each class, in one of the groups.
        prices: Vec<GroupPrices>,
        /// Least number of new nodes, and the price of one in [`PRICE_SCALE`]ths of a micro-dollar.
        nodes: (u32, u64),
    },
}

/// Prices of resources for some classes. No offer has more to sell than its own price comes to, even if each of its
/// resources is sold at the highest price that a class it takes pays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPrices {
    /// The classes that pay these prices.
    pub classes: Vec<usize>,
    /// [`PRICE_SCALE`]ths of a micro-dollar per unit.
    pub prices: Vec<(ResourceName, u64)>,
}

/// What pods are worth. No node can hold pods that are worth more than its price.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Worth {
    /// By class.
    pub pods: Vec<PodValue>,
    /// At which prices of resources whatever is free of a node holds no more than it comes to: with them a search through what a
    /// node may hold ends soon.
    pub nodes: Vec<NodePrices>,
}

/// What a pod of some classes is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodValue {
    /// The classes.
    pub classes: Vec<usize>,
    /// There is one of them on a node at most.
    pub alone: bool,
    /// [`PRICE_SCALE`]ths of a micro-dollar.
    pub value: u128,
}

/// Prices of the resources of a node at which no pod that it takes is worth more than what the pod takes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePrices {
    /// [`PRICE_SCALE`]ths of a micro-dollar per unit.
    pub prices: Vec<(ResourceName, u128)>,
}

/// Parts of a micro-dollar in which certificates count.
pub const PRICE_SCALE: u64 = 1 << 40;

/// Counted work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Nodes looked at for a pod or a run of pods.
    pub nodes: u64,
    /// States and patterns of the enumeration.
    pub patterns: u64,
    /// Steps of the searches for patterns that a linear programme chooses from.
    pub columns: u64,
    /// Fillings of a node that were tried.
    pub fillings: u64,
    /// Nodes taken apart and packed again.
    pub ruins: u64,
    /// Nodes that the local search looked at.
    pub mended: u64,
}

/// Whether requirements on labels hold; the operators of label selectors.
#[must_use]
pub fn selects(requirements: &[Requirement], labels: &BTreeMap<Arc<str>, Arc<str>>) -> bool {
    use crate::model::pod::Operator;
    requirements.iter().all(|requirement| {
        let label = labels.get(&requirement.key);
        let listed = label.is_some_and(|label| requirement.values.contains(label));
        match requirement.operator {
            Operator::In => listed,
            Operator::NotIn => !listed,
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            // No operators of label selectors.
            Operator::Gt | Operator::Lt | Operator::Unknown => false,
        }
    })
}

impl PodTerm {
    /// Whether a pod counts.
    #[must_use]
    pub fn matches(&self, namespace: &str, labels: &BTreeMap<Arc<str>, Arc<str>>) -> bool {
        self.namespaces.as_ref().is_none_or(|names| names.contains(namespace))
            && self.selector.as_ref().is_some_and(|selector| selects(selector, labels))
    }
}
