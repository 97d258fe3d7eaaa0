//! A second opinion about a plan: everything it claims, from the definition. It shares nothing with the search but the
//! question whether one pod fits one node.

use std::collections::{BTreeMap, BTreeSet};

use crate::fit;
use crate::model::names::ObjectKey;
use crate::model::node::{Node, Usage};
use crate::model::resources::Resources;

use super::problem::{CEILING, Class, Offer, Place, Plan, Problem};
use super::proof;
use super::tally::Tally;

/// What is wrong with the plan; empty if nothing is.
#[must_use]
pub fn check(problem: &Problem, plan: &Plan) -> Vec<String> {
    let mut faults = of_plan(problem, plan);
    // Of what is no plan of this problem nothing can be proven.
    if plan.places.len() == problem.pods.len() {
        proven(problem, plan, &mut faults);
    }
    faults
}

/// Whether every pod comes to stand where the plan has it; its bound is not looked at.
pub(super) fn stands(problem: &Problem, plan: &Plan) -> bool {
    let stands = |part: &Part| {
        let mut faults = Vec::new();
        part(problem, plan, &mut faults);
        faults.is_empty()
    };
    // Topology first: most plans that do not stand fail there.
    is_of(problem, plan) && PARTS.iter().rev().all(stands)
}

type Part = fn(&Problem, &Plan, &mut Vec<String>);
/// What a plan is looked at for, beside its bound.
const PARTS: [Part; 6] = [nodes, kept_off, money, variety, limits, topology];

/// Whether the plan has a place for each pod of the problem.
fn is_of(problem: &Problem, plan: &Plan) -> bool {
    plan.places.len() == problem.pods.len() && plan.relaxed.len() == problem.pods.len()
}

fn of_plan(problem: &Problem, plan: &Plan) -> Vec<String> {
    let mut faults = Vec::new();
    if !is_of(problem, plan) {
        return vec![format!("{} places for {} pods", plan.places.len(), problem.pods.len())];
    }
    PARTS.iter().for_each(|part| part(problem, plan, &mut faults));
    faults
}

/// The class a pod was placed as. On a node that is Ready it is what is required alone.
fn class_of<'p>(problem: &'p Problem, plan: &Plan, pod: usize) -> &'p Class {
    &problem.classes[number_of_class(problem, plan, pod)]
}

/// Its number.
pub(super) fn number_of_class(problem: &Problem, plan: &Plan, pod: usize) -> usize {
    let kind = &problem.kinds[problem.pods[pod]];
    let level = match plan.places[pod] {
        Place::Existing(node) if !problem.nodes[node].joining => kind.len() - 1,
        Place::New(_) | Place::Existing(_) => plan.relaxed[pod].min(kind.len() - 1),
        Place::None => kind.len() - 1,
    };
    kind[level]
}

/// Every node takes its pods one after the other, with its own offer and with each alternative.
fn nodes(problem: &Problem, plan: &Plan, faults: &mut Vec<String>) {
    let mut on: BTreeMap<Place, Vec<usize>> = BTreeMap::new();
    for (pod, place) in plan.places.iter().enumerate() {
        on.entry(*place).or_default().push(pod);
    }
    let mut fill =
        |name: String, node: &Node, usage: &Usage, attached: Option<&BTreeSet<ObjectKey>>, pods: &[usize]| {
            let mut attached = attached.cloned().unwrap_or_default();
            // Anti-affinity is for `topology` to hold.
            let mut usage = Usage { own_shape_pods: 0, ..usage.clone() };
            for pod in pods {
                let class = class_of(problem, plan, *pod);
                let shape = class.beside(Some(&attached));
                if let Err(misfit) = fit::fits(&shape, node, &usage) {
                    faults.push(format!("pod {pod} does not fit {name}: {misfit}"));
                }
                if !keeps_preferences(class, node) {
                    faults.push(format!("pod {pod} would rather have another node than {name}"));
                }
                usage.requested.add(&shape.requests);
                attached.extend(class.shares.keys().cloned());
                usage.ports.extend(class.shape.ports.iter().cloned());
            }
        };
    for (place, pods) in &on {
        match place {
            Place::None => {}
            Place::Existing(index) => {
                let one = &problem.nodes[*index];
                let attached = problem.attached.get(index);
                fill(format!("node {}", one.node.name.as_str()), &one.node, &one.usage, attached, pods);
            }
            Place::New(index) => {
                let Some(node) = plan.nodes.get(*index) else {
                    let name = format!("new node {index}, which is not in the plan");
                    fill(name, &no_node(), &Usage::default(), None, pods);
                    continue;
                };
                let all = Together::of(problem, plan, pods);
                for offer in std::iter::once(&node.offer).chain(&node.alternatives) {
                    let offer = &problem.offers[*offer];
                    if all.as_ref().is_some_and(|all| all.fit(offer)) {
                        continue;
                    }
                    let name = format!("new node {index} as {}", offer.instance_type);
                    fill(name, &offer.node, &offer.overhead, None, pods);
                }
            }
        }
    }
    for index in (0..plan.nodes.len()).filter(|index| !on.contains_key(&Place::New(*index))) {
        faults.push(format!("new node {index} holds no pod"));
    }
}

/// Whether a node is what pods of the class still prefer.
fn keeps_preferences(class: &Class, node: &Node) -> bool {
    class.preferred_nodes.iter().all(|term| fit::term_matches(term, node))
        && !(class.heeds_soft_taints && fit::soft_taint(&class.shape, node))
}

/// The pods of a new node, if what they take just adds up: whoever comes last decides then whether all of them fit.
struct Together<'p> {
    classes: Vec<&'p Class>,
    requested: Resources,
}

impl<'p> Together<'p> {
    /// `None` where host ports or volumes that several pods use are among what they ask for.
    fn of(problem: &'p Problem, plan: &Plan, pods: &[usize]) -> Option<Self> {
        let mut numbers: Vec<usize> = pods.iter().map(|pod| number_of_class(problem, plan, *pod)).collect();
        let mut requested = Resources::default();
        numbers.iter().for_each(|class| requested.add(&problem.classes[*class].shape.requests));
        numbers.sort_unstable();
        numbers.dedup();
        let classes: Vec<&Class> = numbers.iter().map(|class| &problem.classes[*class]).collect();
        let adds_up = classes.iter().all(|class| class.shares.is_empty() && class.shape.ports.is_empty());
        adds_up.then_some(Self { classes, requested })
    }

    fn fit(&self, offer: &Offer) -> bool {
        let node = &*offer.node;
        let free = |name: &str| fit::free_of(&node.allocatable, &offer.overhead.requested, name);
        self.requested.iter().all(|(name, amount)| amount <= free(name.as_str()))
            && self
                .classes
                .iter()
                .all(|class| fit::accepts(&class.shape, node).is_ok() && keeps_preferences(class, node))
    }
}

/// No pod gets a new node of which nothing is launched for it, nor an alternative of that kind.
fn kept_off(problem: &Problem, plan: &Plan, faults: &mut Vec<String>) {
    for (pod, place) in plan.places.iter().enumerate() {
        let Place::New(index) = place else { continue };
        let Some(node) = plan.nodes.get(*index) else { continue };
        for offer in std::iter::once(&node.offer).chain(&node.alternatives) {
            let offer = &problem.offers[*offer];
            if class_of(problem, plan, pod).is_kept_off(offer) {
                faults.push(format!("pod {pod} is kept off {}", offer.instance_type));
            }
        }
    }
}

/// A node that takes nothing.
fn no_node() -> Node {
    Node {
        name: crate::model::names::NodeName::from(String::new()),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        allocatable: Resources::default(),
        unschedulable: true,
        held: false,
        ready: false,
        deleting: false,
        memory: None,
        provider_id: None,
        created: None,
    }
}

/// The cost is the sum of the nodes.
fn money(problem: &Problem, plan: &Plan, faults: &mut Vec<String>) {
    let cost = plan.nodes.iter().map(|node| problem.offers[node.offer].price).fold(0, u64::saturating_add);
    if cost != plan.cost {
        faults.push(format!("cost {} is not {cost}", plan.cost));
    }
}

/// The bound is not above the cost, and its certificate holds.
fn proven(problem: &Problem, plan: &Plan, faults: &mut Vec<String>) {
    let Some(bound) = &plan.bound else {
        if !plan.nodes.is_empty() {
            faults.push("new nodes and no bound".to_owned());
        }
        return;
    };
    if bound.value > plan.cost {
        faults.push(format!("the bound {} is above the cost {}", bound.value, plan.cost));
    }
    faults.extend(proof::fault(problem, plan, bound));
}

/// Every node leaves as many distinct values of a label as its pool asks for.
fn variety(problem: &Problem, plan: &Plan, faults: &mut Vec<String>) {
    for (index, node) in plan.nodes.iter().enumerate() {
        let pool = &problem.pools[problem.offers[node.offer].pool];
        for (key, least) in &pool.min_values {
            let all = std::iter::once(&node.offer).chain(&node.alternatives);
            let values: BTreeSet<_> = all.filter_map(|offer| problem.offers[*offer].node.labels.get(key)).collect();
            if values.len() < *least as usize {
                faults.push(format!("new node {index} leaves {} values of {key}, and not {least}", values.len()));
            }
        }
    }
}

/// Limits hold if every node counts as the largest it may become.
fn limits(problem: &Problem, plan: &Plan, faults: &mut Vec<String>) {
    for (index, pool) in problem.pools.iter().enumerate() {
        for (name, left) in &pool.left {
            let amount = |offer: &usize| match name.as_str() {
                "nodes" => 1,
                CEILING => i64::try_from(problem.offers[*offer].list_price).unwrap_or(i64::MAX),
                name => problem.offers[*offer].capacity.get(name),
            };
            let nodes = plan.nodes.iter().filter(|node| problem.offers[node.offer].pool == index);
            let largest =
                nodes.filter_map(|node| std::iter::once(&node.offer).chain(&node.alternatives).map(amount).max());
            let sum = largest.fold(0, i64::saturating_add);
            if sum > *left && sum > 0 {
                faults.push(format!("pool {}: {name:?}: {sum} of {left}", pool.name));
            }
        }
    }
    let mut reserved: BTreeMap<&str, u32> = BTreeMap::new();
    for node in &plan.nodes {
        let offer = &problem.offers[node.offer];
        if let Some((name, free)) = offer.reservation.as_deref().zip(offer.free) {
            let count = reserved.entry(name).or_default();
            *count += 1;
            if *count > free {
                faults.push(format!("reservation {name}: {count} of {free} hosts"));
            }
        }
    }
}

/// Topology constraints: pods are placed in their order, those that are refused again and again until nobody moves, as
/// kube-scheduler would. At the end nobody is left, and anti-affinity holds between all of them.
fn topology(problem: &Problem, plan: &Plan, faults: &mut Vec<String>) {
    let constrained = problem.classes.iter().any(|class| class.all_rules().next().is_some());
    if !constrained && problem.standing.iter().all(|pod| pod.anti_affinity.is_empty()) {
        return;
    }
    let existing = problem.nodes.len();
    let mut tally = Tally::new(problem, plan);
    let mut waiting: Vec<(usize, usize, usize)> = Vec::new();
    for (pod, place) in plan.places.iter().enumerate() {
        match place {
            Place::None => {}
            Place::Existing(node) => waiting.push((pod, number_of_class(problem, plan, pod), *node)),
            Place::New(node) => waiting.push((pod, number_of_class(problem, plan, pod), existing + node)),
        }
    }
    let placed = waiting.clone();
    loop {
        let before = waiting.len();
        waiting.retain(|(_, class, node)| {
            let allowed = tally.allows(*class, *node);
            if allowed {
                tally.add(*class, *node);
            }
            !allowed
        });
        if waiting.len() == before {
            break;
        }
    }
    for (pod, class, _) in &waiting {
        faults.push(format!(
            "pod {pod} is refused by its node for a topology constraint of {:?}",
            problem.classes[*class].all_rules().collect::<Vec<_>>()
        ));
    }
    let refused: BTreeSet<usize> = waiting.iter().map(|(pod, _, _)| *pod).collect();
    for (pod, class, node) in placed {
        if !refused.contains(&pod) && tally.is_beside_excluded(class, node) {
            faults.push(format!("anti-affinity does not hold on node {node}"));
        }
    }
}
