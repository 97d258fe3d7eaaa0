//! Synthetic clusters: zone, spines of ten racks, racks of a hundred hosts with eight slots each.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::model::names::{NodeName, ObjectKey};
use muster_core::model::node::{Node, Usage};
use muster_core::model::pod::Shape;
use muster_core::model::resources::Resources;
use muster_core::model::snapshot::{NodeEntry, Snapshot};
use muster_core::planner::plan::{GangRequest, Host, Plan, Problem, Role, RolePlace, TopologyRequests};
use muster_core::topology::{Level, Levels, ZONE_KEY};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// What the members ask for.
pub(crate) const GPU: &str = "nvidia.com/gpu";
/// Slots of a host.
pub(crate) const SLOTS: i64 = 8;
/// Hosts in a rack.
pub(crate) const RACK: usize = 100;
/// Racks below a spine.
pub(crate) const SPINE: usize = 10;

/// Whether racks stand below spines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fabric {
    /// Zone, spine, rack, host.
    Spines,
    /// Zone, rack, host.
    Racks,
}

/// The cluster as the gang loop sees it.
pub(crate) struct Cluster {
    pub(crate) snapshot: Snapshot,
    pub(crate) levels: Levels,
    rng: ChaCha8Rng,
    names: Vec<NodeName>,
}

impl Cluster {
    /// Every slot is taken with the same probability.
    pub(crate) fn new(seed: u64, fabric: Fabric, racks: usize, full: f64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let level = |name: &str, key: &str| Level { name: Arc::from(name), key: Arc::from(key) };
        let mut levels = vec![level("zone", ZONE_KEY), level("rack", "bench/rack")];
        if fabric == Fabric::Spines {
            levels.insert(1, level("spine", "bench/spine"));
        }
        let mut nodes = BTreeMap::new();
        let mut names = Vec::new();
        for index in 0..racks * RACK {
            let used = (0..SLOTS).map(|_| i64::from(rng.random_bool(full))).sum();
            let name = NodeName::from(format!("node-{index}"));
            let node = Arc::new(node(name.clone(), index, fabric));
            nodes.insert(name.clone(), Arc::new(NodeEntry { node, usage: usage(used) }));
            names.push(name);
        }
        let snapshot = Snapshot { nodes: nodes.into(), synced: true, ..Snapshot::default() };
        Self { snapshot, levels: Levels::new(levels).expect("known names and keys, the host last"), rng, names }
    }

    /// The members of a plan run.
    pub(crate) fn arrive(&mut self, plan: &Plan) {
        for place in &plan.places {
            assert!(self.change(&place.node, 1), "a plan fits");
        }
    }

    /// So many pods leave, wherever they are.
    pub(crate) fn depart(&mut self, pods: usize) {
        for _ in 0..pods {
            loop {
                let name = self.names[self.rng.random_range(0..self.names.len())].clone();
                if self.change(&name, -1) {
                    break;
                }
            }
        }
    }

    fn change(&mut self, name: &NodeName, more: i64) -> bool {
        let nodes = &mut self.snapshot.nodes;
        let entry = nodes.get_mut(name).expect("a node of the cluster");
        let used = entry.usage.requested.get(GPU) + more;
        let possible = (0..=SLOTS).contains(&used);
        if possible {
            *entry = Arc::new(NodeEntry { node: Arc::clone(&entry.node), usage: usage(used) });
        }
        possible
    }

    /// The same as a problem for the planner.
    pub(crate) fn problem(&self, members: usize) -> Problem {
        let hosts = self.snapshot.nodes.values();
        let hosts = hosts.map(|entry| Host { node: Arc::clone(&entry.node), usage: Arc::clone(&entry.usage) });
        Problem { levels: self.levels.clone(), hosts: hosts.collect(), gang: gang(members) }
    }
}

/// A gang that must be placed whole in one zone.
pub(crate) fn gang(members: usize) -> GangRequest {
    let shape = Shape { requests: Resources::from_iter([(GPU, 1), ("pods", 1)]), ..Shape::default() };
    let min = u32::try_from(members).expect("a few thousand at most");
    GangRequest {
        key: ObjectKey::new("bench", "gang"),
        roles: vec![Role { name: Arc::from(""), shape, min, places: vec![RolePlace::default(); members] }],
        topology_requests: TopologyRequests { required: Some(0), ..TopologyRequests::default() },
    }
}

fn usage(used: i64) -> Arc<Usage> {
    Arc::new(Usage { requested: Resources::from_iter([(GPU, used), ("pods", used)]), ..Usage::default() })
}

fn node(name: NodeName, index: usize, fabric: Fabric) -> Node {
    let rack = index / RACK;
    let spine = if fabric == Fabric::Spines { rack / SPINE } else { 0 };
    let labels = [
        (ZONE_KEY, "zone-a".to_owned()),
        ("bench/spine", spine.to_string()),
        ("bench/rack", rack.to_string()),
        ("kubernetes.io/hostname", name.as_str().to_owned()),
    ];
    Node {
        name,
        labels: labels.into_iter().map(|(key, value)| (Arc::from(key), Arc::from(value))).collect(),
        taints: Vec::new(),
        allocatable: Resources::from_iter([(GPU, SLOTS), ("pods", 110)]),
        unschedulable: false,
        held: false,
        ready: true,
        deleting: false,
        memory: None,
        provider_id: None,
        created: None,
    }
}
