//! The largest gangs that fit now, from the counts of the page and of `muster top`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::pool;
use muster_core::model::node::{Node, Usage};
use muster_core::topology::{Levels, Tree};
use muster_view::fits;

use crate::cluster::State;

/// Nodes of the largest gang by level and accelerator. Nodes that are assigned to a gang are its own.
pub(super) fn largest(state: &State, levels: &Levels) -> BTreeMap<(String, String), u32> {
    let snapshot = &state.snapshot;
    let assigned = |node: &Node| snapshot.assignments.get(&node.name).is_some_and(|of| !of.is_empty());
    let entries: Vec<_> = snapshot.nodes.values().filter(|entry| !assigned(&entry.node)).collect();
    let nodes: Vec<(&Node, &Usage)> = entries.iter().map(|entry| (&*entry.node, &*entry.usage)).collect();
    let tree = Tree::build(levels, nodes.iter().map(|(node, _)| *node));
    let mut tolerated: BTreeSet<Arc<str>> = BTreeSet::new();
    for pool in state.pools.values() {
        tolerated.extend(pool::taints(pool).unwrap_or_default().into_iter().map(|taint| taint.key));
    }
    let accelerators: Vec<&str> = snapshot.accelerators.iter().map(AsRef::as_ref).collect();
    // Kinds are of all nodes: where every one is taken, the largest gang has none.
    let kinds = fits::kinds(snapshot.nodes.values().map(|entry| &*entry.node), &accelerators);
    fits::largest(kinds.iter().flat_map(|kind| fits::of_kind(kind, levels, &tree, &nodes, &tolerated)))
}
