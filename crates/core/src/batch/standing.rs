//! What stands on nodes: each batch asks for its own on every change of the cluster.

use std::collections::BTreeSet;

use crate::model::gang::Pod;
use crate::model::pods::Pods;
use crate::model::snapshot::Snapshot;

/// Pods on nodes, and on their way to them.
#[derive(Debug)]
pub(super) struct Standing<'a> {
    pods: &'a Pods,
    /// Nodes that a pod which is not bound is nominated for, or pinned to.
    nominated: BTreeSet<&'a str>,
}

impl<'a> Standing<'a> {
    /// Looks through those that are on their way.
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let nodes = snapshot.pods.sent().flat_map(|pod| pod.nominated.iter().chain(&pod.pinned));
        Self { pods: &snapshot.pods, nominated: nodes.map(|node| node.as_str()).collect() }
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
