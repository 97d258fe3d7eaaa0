//! The zones that the volumes or the selectors of a gang ask for: nodes that are provisioned for it must stand there.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::node::Node;
use crate::model::pod::Operator;
use crate::planner::plan::GangRequest;
use crate::topology::ZONE_KEY;

/// The zone as the EBS driver wrote it into volumes before Kubernetes had a label for it.
const EBS_ZONE_KEY: &str = "topology.ebs.csi.aws.com/zone";
const REGION_KEY: &str = "topology.kubernetes.io/region";

/// Zones that volumes, node selectors or node affinities of members name; empty: none.
#[must_use]
pub fn zones(request: &GangRequest) -> BTreeSet<Arc<str>> {
    let shapes = || request.roles.iter().map(|role| &role.shape);
    let selected = shapes().filter_map(|shape| shape.node_selector.get(ZONE_KEY).cloned());
    let affinities = shapes().flat_map(|shape| shape.node_affinity.iter().flatten());
    let terms = shapes().flat_map(|shape| shape.volumes.iter().flatten()).chain(affinities);
    let named = terms.flat_map(|term| &term.expressions).filter(|requirement| {
        requirement.operator == Operator::In && [ZONE_KEY, EBS_ZONE_KEY].contains(&&*requirement.key)
    });
    named.flat_map(|requirement| requirement.values.iter().cloned()).chain(selected).collect()
}

/// A node to come as it will be in a zone.
pub(super) fn in_zone(node: &Node, zone: &Arc<str>) -> Node {
    let mut node = node.clone();
    for key in [ZONE_KEY, EBS_ZONE_KEY] {
        node.labels.insert(Arc::from(key), Arc::clone(zone));
    }
    node.labels.entry(Arc::from(REGION_KEY)).or_insert_with(|| Arc::from(region(zone)));
    node
}

/// `us-east-1` of `us-east-1a` and of the local zone `us-east-1-bos-1a`.
fn region(zone: &str) -> &str {
    let end = zone.match_indices('-').nth(2).map_or(zone.len(), |(at, _)| at);
    zone[..end].trim_end_matches(|c: char| c.is_ascii_lowercase())
}
