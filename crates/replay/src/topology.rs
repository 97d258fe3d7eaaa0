//! The levels of a dump, and how many domains of each some members use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::keys;
use muster_core::model::node::Node;
use muster_core::topology::{HOST_KEY, Level, Levels, LevelsError, Tree};

/// Topology label keys that are known, top to bottom. Of one fabric only one vocabulary is in use; where a cluster has
/// several, each keeps its order. EKS counts layers from the top, topograph tiers from the bottom.
const KNOWN: [&str; 21] = [
    keys::ZONE,
    "topology.k8s.aws/network-node-layer-1",
    "topology.k8s.aws/network-node-layer-2",
    "topology.k8s.aws/network-node-layer-3",
    "topology.k8s.aws/network-node-layer-4",
    "fabric.topograph.run/tier-4",
    "fabric.topograph.run/tier-3",
    "fabric.topograph.run/tier-2",
    "fabric.topograph.run/tier-1",
    "fabric.topograph.run/tier-0",
    "network.topology.nvidia.com/datacenter",
    "network.topology.nvidia.com/core",
    "network.topology.nvidia.com/spine",
    "network.topology.nvidia.com/block",
    "network.topology.nvidia.com/leaf",
    "network.topology.nvidia.com/accelerator",
    "accelerator.topograph.run/domain",
    "accelerator.topograph.run/sub-domain",
    "cloud.provider.com/topology-block",
    "cloud.provider.com/topology-rack",
    "nvidia.com/gpu.clique",
];

/// The levels with these label keys, top to bottom. A level is named as in the default configuration, else by what
/// stands behind the slash, else by its key.
///
/// Errors: those of [`Levels::new`].
pub(crate) fn of_keys(keys: &[String]) -> Result<Levels, LevelsError> {
    let short = |key: &str| key.rsplit('/').next().unwrap_or_default().to_owned();
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    for key in keys {
        *uses.entry(short(key)).or_default() += 1;
    }
    let defaults = Levels::default();
    let known = |key: &str| defaults.as_slice().iter().find(|level| &*level.key == key).map(|level| &level.name);
    let reserved = ["host", "leaf", "zone", ""];
    let level = |key: &String| {
        let name: Arc<str> = match known(key) {
            Some(name) => Arc::clone(name),
            None => {
                let short = short(key);
                let usable = uses.get(&short) == Some(&1) && !reserved.contains(&short.as_str());
                Arc::from(if usable { short } else { key.clone() })
            }
        };
        Level { name, key: Arc::from(key.as_str()) }
    };
    let mut levels: Vec<Level> = keys.iter().map(level).collect();
    if levels.is_empty() {
        levels.push(level(&HOST_KEY.to_owned()));
    }
    Levels::new(levels)
}

/// The known levels that nodes carry or topology requests name. `leaf` names EC2's layers if nothing else is there.
pub(crate) fn present<'a>(
    nodes: impl Iterator<Item = &'a Node>,
    requested: &BTreeSet<Arc<str>>,
) -> Result<Levels, LevelsError> {
    let mut found: BTreeSet<&str> = BTreeSet::new();
    let mut zone_id = false;
    for node in nodes {
        found.extend(KNOWN.iter().filter(|key| node.labels.contains_key(**key)));
        zone_id |= node.labels.contains_key(keys::ZONE_ID);
    }
    let defaults = Levels::default();
    for level in defaults.as_slice() {
        if requested.contains(&level.name) || requested.contains(&level.key) {
            found.extend(KNOWN.iter().filter(|key| ***key == *level.key));
        }
    }
    found.extend(KNOWN.iter().filter(|key| requested.contains(**key)));
    let network = found.iter().any(|key| *key != keys::ZONE);
    if requested.contains("leaf") && !network {
        found.extend(&KNOWN[1..5]);
    }
    let mut keys: Vec<String> = KNOWN.iter().filter(|key| found.contains(**key)).map(|key| (*key).to_owned()).collect();
    if zone_id && !found.contains(keys::ZONE) {
        keys.insert(0, muster_api::keys::ZONE_ID.to_owned());
    }
    of_keys(&keys)
}

/// Distinct domains per level that hold one of the named nodes, each node once.
pub(crate) fn used<'a>(levels: &Levels, nodes: impl Iterator<Item = &'a Node>) -> Vec<u32> {
    let nodes: Vec<&Node> = nodes.collect();
    let tree = Tree::build(levels, nodes.iter().copied());
    (0..levels.len()).map(|level| u32::try_from(tree.level(level).len()).unwrap_or(u32::MAX)).collect()
}
