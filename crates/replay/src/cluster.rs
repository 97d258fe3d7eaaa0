//! Nodes of a dump with what holds capacity on them; every plan made adds to it, so that plans are disjoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::model::attached::Attached;
use muster_core::model::gang::Pod;
use muster_core::model::names::{NodeName, ObjectKey};
use muster_core::model::node::{Node, Usage};
use muster_core::planner::plan::Host;

/// The nodes.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    nodes: BTreeMap<NodeName, Standing>,
}

/// One node and what stands on it.
#[derive(Debug)]
struct Standing {
    node: Arc<Node>,
    usage: Arc<Usage>,
    pods: Vec<Arc<Pod>>,
    attached: Attached,
}

impl Standing {
    fn of(node: Node) -> Self {
        Self { node: Arc::new(node), usage: Arc::default(), pods: Vec::new(), attached: Attached::default() }
    }
}

impl Cluster {
    /// Empty nodes.
    pub(crate) fn new(nodes: impl IntoIterator<Item = Node>) -> Self {
        Self { nodes: nodes.into_iter().map(|node| (node.name.clone(), Standing::of(node))).collect() }
    }

    /// The nodes, in order of name.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values().map(|standing| &standing.node)
    }

    /// Claims whose volumes are attached to nodes, with the node.
    pub(crate) fn attached(&self) -> impl Iterator<Item = (&NodeName, &ObjectKey)> {
        self.nodes.iter().flat_map(|(name, standing)| standing.attached.claims().map(move |claim| (name, claim)))
    }

    /// One node.
    pub(crate) fn node(&self, name: &NodeName) -> Option<&Arc<Node>> {
        self.nodes.get(name).map(|standing| &standing.node)
    }

    /// A node that members stand on and the dump does not hold: nothing is known of it, and nothing new goes there.
    pub(crate) fn ensure(&mut self, name: &NodeName) {
        self.nodes.entry(name.clone()).or_insert_with(|| {
            let node = Node {
                name: name.clone(),
                labels: BTreeMap::new(),
                taints: Vec::new(),
                allocatable: muster_core::model::resources::Resources::default(),
                unschedulable: true,
                held: false,
                ready: false,
                deleting: false,
                memory: None,
                provider_id: None,
                created: None,
            };
            Standing::of(node)
        });
    }

    /// A pod holds capacity on a node. A node that is not known holds nothing.
    pub(crate) fn add(&mut self, node: &NodeName, pod: Option<&Arc<Pod>>, held: &Usage) {
        let Some(standing) = self.nodes.get_mut(node) else { return };
        let usage = Arc::make_mut(&mut standing.usage);
        usage.requested.add(&held.requested);
        usage.ports.extend(held.ports.iter().cloned());
        if let Some(pod) = pod {
            standing.attached.come(pod, &held.requested, &mut usage.requested);
        }
        standing.pods.extend(pod.cloned());
    }

    /// Gives back what [`Self::add`] took.
    pub(crate) fn subtract(&mut self, node: &NodeName, pod: Option<&Arc<Pod>>, held: &Usage) {
        let Some(standing) = self.nodes.get_mut(node) else { return };
        let usage = Arc::make_mut(&mut standing.usage);
        usage.requested.subtract(&held.requested);
        for port in &held.ports {
            if let Some(index) = usage.ports.iter().position(|taken| taken == port) {
                usage.ports.swap_remove(index);
            }
        }
        let same = |pod: &Arc<Pod>| standing.pods.iter().position(|other| Arc::ptr_eq(other, pod));
        if let Some(index) = pod.and_then(same) {
            let pod = standing.pods.swap_remove(index);
            standing.attached.go(&pod, &held.requested, &mut usage.requested);
        }
    }

    /// Every node as candidates for pods like `sample`: pods that must not stand beside it are counted.
    pub(crate) fn hosts(&self, sample: Option<&Pod>) -> Vec<Host> {
        let any = sample.is_some_and(keeps_others_away);
        self.nodes
            .values()
            .map(|standing| {
                let apart = sample.map_or(0, |sample| apart(sample, any, &standing.pods));
                let usage = if apart == 0 {
                    Arc::clone(&standing.usage)
                } else {
                    Arc::new(Usage { own_shape_pods: apart, ..Usage::clone(&standing.usage) })
                };
                Host { node: Arc::clone(&standing.node), usage }
            })
            .collect()
    }

    /// Every node without any pod.
    pub(crate) fn empty_hosts(&self) -> Vec<Host> {
        self.nodes().map(|node| Host { node: Arc::clone(node), usage: Arc::default() }).collect()
    }
}

/// Pods that must not stand beside `sample`. Where it keeps nobody away, only those that do can.
fn apart(sample: &Pod, any: bool, pods: &[Arc<Pod>]) -> u32 {
    let count = pods
        .iter()
        .filter(|pod| any || keeps_others_away(pod))
        .filter(|pod| sample.neighbour.keeps_apart(&pod.neighbour))
        .count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn keeps_others_away(pod: &Pod) -> bool {
    !pod.neighbour.keeps_away.is_empty()
}
