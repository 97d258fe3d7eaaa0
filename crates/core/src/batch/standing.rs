//! What stands on nodes, looked through once for all batches of a pass: each of them asks on every change of the cluster.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::gang::Pod;
use crate::model::snapshot::Snapshot;

/// Pods by node.
#[derive(Debug, Default)]
pub(super) struct Standing<'a> {
    /// Those that hold capacity and are of no DaemonSet, also where their Node is gone.
    occupants: BTreeMap<&'a str, Vec<&'a Pod>>,
    /// Nodes that a pod which is not bound is nominated for, or pinned to.
    nominated: BTreeSet<&'a str>,
}

impl<'a> Standing<'a> {
    /// Looks through all pods.
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let mut standing = Self::default();
        for pod in snapshot.pods.values() {
            match &pod.node {
                Some(node) if pod.holds_capacity() && !pod.daemon => {
                    standing.occupants.entry(node.as_str()).or_default().push(pod);
                }
                Some(_) => {}
                None if pod.is_live() => {
                    let nodes = pod.nominated.iter().chain(&pod.pinned);
                    standing.nominated.extend(nodes.map(|node| node.as_str()));
                }
                None => {}
            }
        }
        standing
    }

    /// Pods that hold capacity on a node.
    pub(super) fn on(&self, node: &str) -> &[&'a Pod] {
        self.occupants.get(node).map_or(&[], Vec::as_slice)
    }

    /// Whether a pod that is not bound is nominated to a node.
    pub(super) fn is_nominated(&self, node: &str) -> bool {
        self.nominated.contains(node)
    }
}
