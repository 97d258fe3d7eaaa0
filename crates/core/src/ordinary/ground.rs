//! What a round is planned on: every node, whether or not it takes anybody, with all pods that topology constraints count.
//!
//! kube-scheduler counts pods wherever they stand: on nodes that are cordoned, NotReady, going, or kept for a gang. A plan that
//! did not see them would put a pod where it is refused every time. Nodes on their way have those who are there, and those who
//! wait and will be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::joining::Joining;
use super::waiting::Waiting;
use crate::model::names::ObjectKey;
use crate::model::node::{Node, Usage};
use crate::model::pod::{AntiAffinityTerm, Neighbour};
use crate::model::snapshot::{AssignedCapacity, NodeEntry, Snapshot};
use crate::packing::{Existing, PodTerm, Rule, Standing};

/// Label of a node's own name.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Nodes and the pods on them.
pub(super) struct Ground {
    /// Those that stand first, then those on their way.
    pub(super) nodes: Vec<Existing>,
    pub(super) standing: Vec<Standing>,
    /// Claims whose volumes are attached, by index of the node.
    pub(super) attached: BTreeMap<usize, BTreeSet<ObjectKey>>,
    /// Index of the first node on its way.
    pub(super) joining_from: usize,
}

impl Ground {
    pub(super) fn of(waiting: &[Waiting], snapshot: &Snapshot, under_way: &[Joining]) -> Self {
        let joining: Vec<_> = under_way.iter().flat_map(|one| one.nodes(waiting)).collect();
        let coming: BTreeSet<&str> = joining.iter().filter_map(|one| one.registered.as_deref()).collect();
        // What these hold for whom is not known: they take nobody else.
        let kept: BTreeSet<&str> = under_way.iter().flat_map(|one| one.names.iter().map(String::as_str)).collect();
        let (mut nodes, mut index): (Vec<Existing>, BTreeMap<&str, usize>) = Default::default();
        for entry in snapshot.nodes.values().filter(|entry| !coming.contains(entry.node.name.as_str())) {
            index.insert(entry.node.name.as_str(), nodes.len());
            nodes.push(existing(snapshot, entry, kept.contains(entry.node.name.as_str())));
        }
        let (mut standing, joining_from) = (Vec::new(), nodes.len());
        let mut attached: BTreeMap<usize, BTreeSet<ObjectKey>> = BTreeMap::new();
        for one in &joining {
            for claim in one.takers.iter().flat_map(|taker| waiting[*taker].pod.attachments()).map(|one| one.claim) {
                attached.entry(nodes.len()).or_default().insert(claim);
            }
            let takers = one.takers.iter().filter_map(|taker| taker_on(nodes.len(), &waiting[*taker]));
            standing.extend(takers);
            index.extend(one.registered.as_deref().map(|name| (name, nodes.len())));
            nodes.push(one.existing.clone());
        }
        // Where no pod that waits has a constraint, only those that keep others off make a difference.
        let ladders: FxHashMap<_, _> = waiting.iter().map(|one| (Arc::as_ptr(&one.ladder), &one.ladder)).collect();
        let mut classes = ladders.values().flat_map(|ladder| ladder.iter());
        let counted = classes.any(|class| class.all_rules().next().is_some());
        for pod in snapshot.pods.standing() {
            let neighbour = &pod.neighbour;
            let counts = counted || !neighbour.keeps_away.is_empty() || !neighbour.keeps_off.is_empty();
            if !counts && pod.attachments().next().is_none() {
                continue;
            }
            let Some(node) = pod.node.as_ref().and_then(|name| index.get(name.as_str())).copied() else { continue };
            for claim in pod.attachments().map(|one| one.claim) {
                attached.entry(node).or_default().insert(claim);
            }
            if !counts {
                continue;
            }
            standing.push(Standing {
                node,
                namespace: Arc::clone(&neighbour.namespace),
                labels: neighbour.labels.clone(),
                anti_affinity: anti_affinity(neighbour),
                deleting: pod.deleting,
            });
        }
        Self { nodes, standing, attached, joining_from }
    }
}

/// A node that stands, with what pods and gangs' plans hold of it. One that kube-scheduler or Muster lets nobody use has no
/// capacity, and its pods count all the same.
fn existing(snapshot: &Snapshot, entry: &NodeEntry, kept: bool) -> Existing {
    let mut usage = Usage::clone(&entry.usage);
    let mut closed = kept || entry.node.held;
    for assignment in snapshot.assignments.get(&entry.node.name).into_iter().flatten() {
        match &assignment.capacity {
            AssignedCapacity::WholeNode => closed = true,
            AssignedCapacity::Member(held) => usage.join(held),
        }
    }
    let node =
        if closed { Arc::new(Node { ready: false, ..Node::clone(&entry.node) }) } else { Arc::clone(&entry.node) };
    Existing { node, usage, joining: false }
}

/// A pod that waits and has a place on a node that is on its way, as if it stood there.
fn taker_on(node: usize, taker: &Waiting) -> Option<Standing> {
    let class = taker.ladder.last()?;
    let keeps_off = |rule: &Rule| match rule {
        Rule::AntiAffinity(term) => Some(term.clone()),
        Rule::Spread(_) | Rule::Affinity(_) => None,
    };
    Some(Standing {
        node,
        namespace: Arc::clone(&class.namespace),
        labels: class.labels.clone(),
        anti_affinity: class.rules.iter().filter_map(keeps_off).collect(),
        deleting: false,
    })
}

/// Required anti-affinity of a pod that stands on a node.
fn anti_affinity(neighbour: &Neighbour) -> Vec<PodTerm> {
    let term = |key: &Arc<str>, term: &AntiAffinityTerm| PodTerm {
        key: Arc::clone(key),
        namespaces: term.namespaces.as_ref().map(|all| all.iter().cloned().collect()),
        selector: Some(term.selector.clone()),
    };
    let by_host = neighbour.keeps_away.iter().map(|one| term(&HOSTNAME.into(), one));
    by_host.chain(neighbour.keeps_off.iter().map(|one| term(&one.key, &one.term))).collect()
}
