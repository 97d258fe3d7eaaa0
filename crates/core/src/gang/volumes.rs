//! The zones that the volumes or the selectors of a gang ask for: nodes that are provisioned for it must stand there.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::node::Node;
use crate::model::pod::Operator;
use crate::planner::plan::GangRequest;
use crate::topology::{EBS_ZONE_KEY, ZONE_KEY, beside_zone};

/// Labels that name the zone of a node.
const KEYS: [&str; 2] = [ZONE_KEY, EBS_ZONE_KEY];

/// Zones that volumes, node selectors or node affinities of members name; empty: none.
#[must_use]
pub fn zones(request: &GangRequest) -> BTreeSet<Arc<str>> {
    let shapes = || request.roles.iter().map(|role| &role.shape);
    let selected = shapes().flat_map(|shape| KEYS.into_iter().filter_map(|key| shape.node_selector.get(key).cloned()));
    let affinities = shapes().flat_map(|shape| shape.node_affinity.iter().flatten());
    let terms = shapes().flat_map(|shape| shape.volumes.iter().flatten()).chain(affinities);
    let named = terms
        .flat_map(|term| &term.expressions)
        .filter(|requirement| requirement.operator == Operator::In && KEYS.contains(&&*requirement.key));
    named.flat_map(|requirement| requirement.values.iter().cloned()).chain(selected).collect()
}

/// A node to come as it will be in a zone.
pub(super) fn in_zone(node: &Node, zone: &Arc<str>) -> Node {
    let mut node = node.clone();
    node.labels.insert(Arc::from(ZONE_KEY), Arc::clone(zone));
    for (key, value) in beside_zone(zone) {
        node.labels.insert(Arc::from(key), Arc::from(value));
    }
    node
}
