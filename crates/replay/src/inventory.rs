//! What a dump holds, without planning anything: every node with what stands on it and what plans have assigned there,
//! and the objects of Muster.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::convert;
use muster_api::crd::{Gang, NodeBatch, NodePool};
use muster_core::model::gang::Membership;
use muster_core::model::names::{NodeName, ObjectKey};
use muster_core::model::node::{Node, Usage};

use crate::dump::Dump;
use crate::gangs;
use crate::plan::{self, Options};

/// Nodes and objects of a dump.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    /// Nodes, in order of name.
    pub nodes: Vec<Standing>,
    /// Pods that stand nowhere and belong to no gang.
    pub pending: u32,
    /// Gang objects.
    pub gangs: Vec<Gang>,
    /// NodeBatches.
    pub batches: Vec<NodeBatch>,
    /// NodePools.
    pub pools: Vec<NodePool>,
}

/// A node and what holds capacity on it.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The node.
    pub node: Node,
    /// What pods hold and plans have assigned, together.
    pub usage: Usage,
    /// Pods that stand here, and members that are to.
    pub pods: Vec<Occupant>,
}

/// Who holds capacity on a node.
#[derive(Clone, Debug)]
pub struct Occupant {
    /// Its Gang object, if it is a member of one.
    pub gang: Option<ObjectKey>,
    /// What it holds.
    pub usage: Usage,
    /// It is not bound yet: a persisted plan assigns the capacity to it.
    pub assigned: bool,
    /// It belongs to its node, as the pod of a DaemonSet does.
    pub daemon: bool,
}

/// Reads nodes and objects. The same dump and options give the same answer.
#[must_use]
pub fn read(dump: &Dump, options: &Options) -> Inventory {
    let mut dump = dump.clone();
    gangs::expand(&mut dump);
    let members = gangs::find(&dump, &options.scheduler_names);
    let mut nodes: BTreeMap<NodeName, Standing> = BTreeMap::new();
    let mut read: Vec<Node> = dump.nodes.iter().filter_map(|node| convert::node(node).ok()).collect();
    dump.complete(read.iter_mut());
    for node in read {
        let standing = Standing { node, usage: Usage::default(), pods: Vec::new() };
        nodes.insert(standing.node.name.clone(), standing);
    }
    let mut pending = 0;
    for known in &members.all {
        let core = &known.core;
        match core.occupied_node().and_then(|node| nodes.get_mut(node)) {
            Some(standing) => standing.add(Occupant {
                gang: core.membership.gang().cloned(),
                usage: Usage::clone(&core.held),
                assigned: core.node.is_none(),
                daemon: core.daemon,
            }),
            None if core.is_live() && core.node.is_none() && core.membership == Membership::Single => pending += 1,
            None => {}
        }
    }
    for (gang, all) in plan::assignments(&dump, &members) {
        for (node, usage) in all {
            if let Some(standing) = nodes.get_mut(&node) {
                standing.add(Occupant { gang: Some(gang.clone()), usage, assigned: true, daemon: false });
            }
        }
    }
    Inventory {
        nodes: nodes.into_values().collect(),
        pending,
        gangs: dump.gangs,
        batches: dump.batches,
        pools: dump.pools,
    }
}

impl Standing {
    fn add(&mut self, occupant: Occupant) {
        self.usage.requested.add(&occupant.usage.requested);
        self.usage.ports.extend(occupant.usage.ports.iter().cloned());
        self.pods.push(occupant);
    }
}

impl Inventory {
    /// Extended resources that count as accelerators and that some node has, in order.
    #[must_use]
    pub fn accelerators(&self) -> Vec<&'static str> {
        let has = |name: &&str| self.nodes.iter().any(|standing| standing.node.allocatable.get(name) > 0);
        let found: BTreeSet<&'static str> = plan::ACCELERATORS.into_iter().filter(has).collect();
        found.into_iter().collect()
    }
}
