//! Nodes that are joining: a gang that fits once they are Ready waits for them, for a while, instead of provisioning.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::working::Working;
use crate::model::gang::Gang;
use crate::model::names::NodeName;
use crate::model::node::{Node, TaintEffect};
use crate::planner;
use crate::planner::plan::{GangRequest, Host, Problem, Refusal, SearchBudget, Seed};
use crate::reason::Joining;
use crate::topology::Levels;

/// Taints of a node that is not Ready, or not yet.
pub const NOT_READY: [&str; 4] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/network-unavailable",
    "node.cloudprovider.kubernetes.io/uninitialized",
];

/// A node as it will be once it is Ready.
#[must_use]
pub fn ready(node: &Node) -> Node {
    let mut node = node.clone();
    node.ready = true;
    node.taints.retain(|taint| !NOT_READY.contains(&&*taint.key));
    node
}

/// Until when a node that is not Ready is taken for one that is joining; `None` if it is Ready, goes, or has had its time.
#[must_use]
pub fn joins_until(node: &Node, now: Timestamp, within: SignedDuration) -> Option<Timestamp> {
    let kept_off = |taint: &crate::model::node::Taint| {
        taint.effect != TaintEffect::PreferNoSchedule && NOT_READY.contains(&&*taint.key)
    };
    let joining = !node.deleting && (!node.ready || node.taints.iter().any(kept_off));
    let until = node.created.filter(|_| joining)?.saturating_add(within).ok()?;
    (until > now).then_some(until)
}

/// The problem with some nodes as they will be. Where one of them stands in the network may not be known yet: a cap below
/// the zone is then that of the zone, and the gang is planned again when it is known.
#[must_use]
pub fn with_joined(mut problem: Problem, joined: &BTreeMap<NodeName, Timestamp>) -> Problem {
    let network = problem.levels.network();
    let known = |levels: &Levels, node: &Node| {
        let mut keys = levels.as_slice()[network.clone()].iter();
        network.is_empty() || keys.any(|level| node.labels.contains_key(&level.key))
    };
    let mut unknown = false;
    for host in problem.hosts.iter_mut().filter(|host| joined.contains_key(&host.node.name)) {
        unknown |= !known(&problem.levels, &host.node);
        host.node = Arc::new(ready(&host.node));
    }
    if unknown {
        let required = problem.gang.topology_requests.required;
        problem.gang.topology_requests.required =
            required.zip(problem.levels.zone()).map(|(level, zone)| level.min(zone));
    }
    problem
}

impl Working<'_> {
    /// The joining nodes with which the gang fits, if it does: nodes that nobody was assigned, each for a while from its
    /// registration. After that it is no longer counted on, and nodes are provisioned.
    pub(super) fn awaited(&mut self, gang: &Gang, request: &GangRequest, refusal: &Refusal) -> Option<Joining> {
        let Refusal::DoesNotFit(_) = refusal else { return None };
        let joining = self.joining();
        if joining.is_empty() {
            return None;
        }
        let own = self.own(&gang.key);
        let hosts: Vec<Host> = self.snapshot.nodes.keys().filter_map(|node| self.host(node, &own)).collect();
        let problem = Problem { levels: self.world.levels.clone(), hosts, gang: request.clone() };
        let problem = with_joined(problem, &joining);
        let policy = &self.world.settings.policy;
        let (plan, report) = planner::plan(&problem, policy, SearchBudget::default(), Seed::default());
        if report.refusal.is_some() {
            return None;
        }
        let mut nodes: Vec<NodeName> =
            plan.places.iter().filter(|place| !place.bound).map(|p| p.node.clone()).collect();
        nodes.retain(|node| joining.contains_key(node));
        nodes.sort();
        nodes.dedup();
        let until = nodes.iter().filter_map(|node| joining.get(node)).min().copied();
        (!nodes.is_empty()).then_some(Joining { nodes, batches: Vec::new(), until })
    }

    fn joining(&mut self) -> Arc<BTreeMap<NodeName, Timestamp>> {
        let (world, nodes) = (self.world, &self.snapshot.nodes);
        let until = |node: &Node| joins_until(node, world.now, world.settings.join_within);
        let found = self.joining.get_or_insert_with(|| {
            let nodes = nodes.iter().filter(|(name, _)| !world.lost.contains(*name));
            Arc::new(nodes.filter_map(|(name, entry)| Some((name.clone(), until(&entry.node)?))).collect())
        });
        Arc::clone(found)
    }
}
