//! Pods of no gang: the node that prioritize puts first, or why there is none.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::extender;
use muster_core::fit;
use muster_core::model::gang::Membership;
use muster_core::model::names::NodeName;
use muster_core::planner::plan::Host;
use muster_core::topology::natural_cmp;

use super::{ACCELERATORS, Planning};
use crate::document::PodEntry;
use crate::gangs::Known;

impl Planning<'_> {
    /// Places pending pods one after the other: priority, creation, namespace and name.
    pub(super) fn singles(&mut self, others: Vec<Known>) -> Vec<PodEntry> {
        let mut pending: Vec<Known> =
            others.into_iter().filter(|known| known.core.node.is_none() && known.core.is_live()).collect();
        pending.sort_by_cached_key(|known| {
            let created = known.core.created;
            (Reverse(known.priority), created.is_none(), created, known.core.key.clone())
        });
        pending.iter().map(|known| self.single(known)).collect()
    }

    fn single(&mut self, known: &Known) -> PodEntry {
        let core = &known.core;
        let placed = self.node_for(known);
        if let Ok(node) = &placed
            && core.nominated.as_ref() != Some(node)
        {
            self.cluster.add(node, Some(core), &core.held);
        }
        let (node, reason) = match placed {
            Ok(node) => (Some(node.to_string()), None),
            Err(reason) => (None, Some(reason)),
        };
        PodEntry { namespace: core.key.namespace.to_string(), name: core.key.name.to_string(), node, reason }
    }

    fn node_for(&self, known: &Known) -> Result<NodeName, String> {
        let core = &known.core;
        if core.membership == Membership::Unknown {
            let owners = known.object.metadata.owner_references.iter().flatten();
            let owner = owners.map(|owner| format!("{} {}", owner.kind, owner.name)).next().unwrap_or_default();
            return Err(format!("whether it belongs to a gang is not known: {owner} is not in the dump"));
        }
        if core.foreign_gates {
            let gates = known.object.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
            let names: Vec<&str> = gates.into_iter().flatten().map(|gate| gate.name.as_str()).collect();
            return Err(format!("held by scheduling gates: {}", names.join(", ")));
        }
        if let Some(awaits) = &core.claims.awaits {
            return Err(format!("waits for a volume: {awaits}"));
        }
        let shape = core.shape.as_ref().map_err(ToString::to_string)?;
        if let Some(constraint) = shape.unsupported.first() {
            return Err(format!("carries a constraint that is not modelled: {constraint}"));
        }
        // kube-scheduler has made capacity for it there, and that capacity is counted already.
        if let Some(node) = core.nominated.as_ref().filter(|node| self.cluster.node(node).is_some()) {
            return Ok(node.clone());
        }
        let mut blocked: BTreeMap<String, u32> = BTreeMap::new();
        let mut fitting: Vec<Host> = Vec::new();
        for host in self.cluster.hosts(Some(&known.core)) {
            match fit::fits(shape, &host.node, &host.usage) {
                Ok(()) => fitting.push(host),
                Err(misfit) => *blocked.entry(misfit.to_string()).or_default() += 1,
            }
        }
        let scores = if ACCELERATORS.iter().any(|name| shape.requests.get(name) > 0) {
            let accelerators: Vec<Arc<str>> = ACCELERATORS.iter().map(|name| Arc::from(*name)).collect();
            let offered: Vec<String> = fitting.iter().map(|host| host.node.name.to_string()).collect();
            extender::prioritize(&self.cluster.snapshot(&accelerators), core, &offered)
        } else {
            vec![0; fitting.len()]
        };
        // A pod without accelerators scores the same everywhere: it keeps off nodes that have some.
        let precious = |host: &Host| ACCELERATORS.iter().any(|name| host.node.allocatable.get(name) > 0);
        let best = fitting.iter().zip(&scores).min_by(|(one, one_score), (other, other_score)| {
            (Reverse(one_score), precious(one))
                .cmp(&(Reverse(other_score), precious(other)))
                .then_with(|| natural_cmp(one.node.name.as_str(), other.node.name.as_str()))
        });
        best.map(|(host, _)| host.node.name.clone()).ok_or_else(|| nowhere(blocked))
    }
}

/// Why no node takes the pod, the reason of most nodes first.
fn nowhere(blocked: BTreeMap<String, u32>) -> String {
    let mut blocked: Vec<(String, u32)> = blocked.into_iter().collect();
    blocked.sort_by_key(|(_, nodes)| Reverse(*nodes));
    let groups: Vec<String> = blocked
        .into_iter()
        .map(|(reason, nodes)| format!("{nodes} {}: {reason}", if nodes == 1 { "node" } else { "nodes" }))
        .collect();
    if groups.is_empty() { "there are no nodes".to_owned() } else { format!("fits no node; {}", groups.join(", ")) }
}
