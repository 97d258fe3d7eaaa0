//! What stands on nodes: each batch asks for its own on every change of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::gang::Pod;
use crate::model::names::InstanceId;
use crate::model::node::Node;
use crate::model::pods::Pods;
use crate::model::snapshot::Snapshot;

/// Pods on nodes, and on their way to them.
#[derive(Debug)]
pub(super) struct Standing<'a> {
    pods: &'a Pods,
    /// Nodes that a pod which is not bound is nominated for, or pinned to.
    nominated: BTreeSet<&'a str>,
    /// The Node whose provider id names an instance.
    by_instance: BTreeMap<&'a str, &'a Arc<Node>>,
}

impl<'a> Standing<'a> {
    /// Looks through the nodes, and the pods that are on their way.
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let nodes = snapshot.pods.sent().flat_map(|pod| pod.nominated.iter().chain(&pod.pinned));
        let of_instances = snapshot.nodes.values().filter_map(|entry| Some((entry.node.instance()?, &entry.node)));
        Self {
            pods: &snapshot.pods,
            nominated: nodes.map(|node| node.as_str()).collect(),
            by_instance: of_instances.collect(),
        }
    }

    /// The Node whose provider id names this instance.
    pub(super) fn node_of(&self, instance: &InstanceId) -> Option<&'a Arc<Node>> {
        self.by_instance.get(instance.as_str()).copied()
    }

    /// Pods that hold capacity on a node and are of no DaemonSet, also where their Node is gone.
    pub(super) fn on(&self, node: &str) -> impl Iterator<Item = &'a Pod> {
        self.pods.standing_on(node).filter(|pod| !pod.daemon).map(AsRef::as_ref)
    }

    /// Whether a pod that is not bound is nominated to a node.
    pub(super) fn is_nominated(&self, node: &str) -> bool {
        self.nominated.contains(node)
    }
}
