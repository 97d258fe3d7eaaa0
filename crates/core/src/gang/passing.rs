//! What keeps capacity from a gang and ends by itself: pods that are being deleted, and assignments to other gangs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::asked::count;
use super::working::Working;
use crate::model::gang::{Gang, Pod};
use crate::model::names::{NodeName, ObjectKey};
use crate::model::node::Usage;
use crate::planner::plan::{GangRequest, Host, Policy, Problem, Refusal, SearchBudget, Seed, Shortfall};
use crate::reason::{Passing, Why};
use crate::{fit, planner};

/// Gangs that are tried one by one: more are a plan each.
const MOST_TRIED: usize = 4;

impl Working<'_> {
    /// A refusal with what ends by itself.
    pub(super) fn refused(&mut self, gang: &Gang, request: &GangRequest, refusal: &Refusal) -> Why {
        Why::Refused { refusal: refusal.clone(), passing: self.passing(gang, request, refusal) }
    }

    /// See [`Self::passing`].
    pub(super) fn find_passing(&mut self, gang: &Gang, request: &GangRequest, refusal: &Refusal) -> Vec<Passing> {
        let Refusal::DoesNotFit(shortfall) = refusal else { return Vec::new() };
        let own = self.own(&gang.key);
        let mut leaving = BTreeMap::new();
        for (node, pods) in self.terminating().iter() {
            let Some(mut host) = self.host(node, &own) else { continue };
            let usage = Arc::make_mut(&mut host.usage);
            pods.iter().for_each(|pod| take_away(usage, &pod.held));
            leaving.insert(node.clone(), (host, count(pods.len())));
        }
        let mut assigned = BTreeMap::new();
        for (node, assignments) in &self.snapshot.assignments {
            let others =
                assignments.iter().map(|assignment| assignment.gang.clone()).filter(|gang| !own.keys.contains(gang));
            let others: Vec<ObjectKey> = others.collect();
            let entry = self.snapshot.nodes.get(node).filter(|_| !others.is_empty() && !self.world.lost.contains(node));
            let Some(entry) = entry else { continue };
            let host = Host { node: Arc::clone(&entry.node), usage: Arc::clone(&entry.usage) };
            assigned.insert(node.clone(), (host, others));
        }
        if leaving.is_empty() && assigned.is_empty() {
            return Vec::new();
        }
        let hosts = self.snapshot.nodes.keys().filter_map(|node| self.host(node, &own)).collect();
        let problem = Problem { levels: self.world.levels.clone(), hosts, gang: request.clone() };
        passing(&problem, &self.world.settings.policy, shortfall, leaving, assigned)
    }

    /// Pods that are being deleted and hold capacity, by node.
    fn terminating(&mut self) -> Arc<BTreeMap<NodeName, Vec<Arc<Pod>>>> {
        let pods = &self.snapshot.pods;
        let found = self.terminating.get_or_insert_with(|| {
            let mut found: BTreeMap<NodeName, Vec<Arc<Pod>>> = BTreeMap::new();
            for pod in pods.standing().filter(|pod| pod.deleting) {
                if let Some(node) = &pod.node {
                    found.entry(node.clone()).or_default().push(Arc::clone(pod));
                }
            }
            Arc::new(found)
        });
        Arc::clone(found)
    }
}

/// What keeps capacity from a gang that does not fit, and ends by itself. `leaving` are hosts without their terminating pods,
/// with the number of those; `assigned` are hosts without what is assigned to others, with those gangs.
#[must_use]
pub fn passing(
    problem: &Problem,
    policy: &Policy,
    shortfall: &Shortfall,
    leaving: BTreeMap<NodeName, (Host, u32)>,
    assigned: BTreeMap<NodeName, (Host, Vec<ObjectKey>)>,
) -> Vec<Passing> {
    let request = &problem.gang;
    let before: BTreeMap<&NodeName, &Host> = problem.hosts.iter().map(|host| (&host.node.name, host)).collect();
    let gain = |name: &NodeName, after: &Host| {
        slots(request, after).saturating_sub(before.get(name).map_or(0, |host| slots(request, host)))
    };
    // Whether it fits if these hosts looked otherwise; asked only where they hold as many members more as are missing.
    let enough = |gained: u64, other: BTreeMap<NodeName, Host>| {
        let mut problem = problem.clone();
        problem.hosts.retain(|host| !other.contains_key(&host.node.name));
        problem.hosts.extend(other.into_values());
        let fits = || planner::plan(&problem, policy, SearchBudget::default(), Seed::default()).1.refusal.is_none();
        gained >= missing(shortfall) && fits()
    };
    let mut found = Vec::new();
    let (mut pods, mut gained, mut other) = (0_u32, 0, BTreeMap::new());
    for (node, (host, leaving)) in leaving {
        let gain = gain(&node, &host);
        if gain > 0 {
            gained += gain;
            pods = pods.saturating_add(leaving);
            other.insert(node, host);
        }
    }
    if !other.is_empty() {
        let nodes = count(other.len());
        found.push(Passing::Terminating { pods, nodes, enough: enough(gained, other) });
    }
    let mut gains = BTreeMap::new();
    for (node, (host, others)) in assigned {
        let gain = gain(&node, &host);
        if gain > 0 {
            gains.insert(node, (gain, host, others));
        }
    }
    // With the hosts that are free once these gangs have ended.
    let without = |ended: &dyn Fn(&ObjectKey) -> bool| {
        let free = gains.iter().filter(|(_, (_, _, others))| others.iter().all(ended));
        let (sum, hosts) = free.fold((0, BTreeMap::new()), |(sum, mut hosts), (node, (gain, host, _))| {
            hosts.insert(node.clone(), host.clone());
            (sum + gain, hosts)
        });
        enough(sum, hosts)
    };
    let gangs: BTreeSet<&ObjectKey> = gains.values().flat_map(|(_, _, others)| others).collect();
    if !gangs.is_empty() {
        let enough = without(&|_| true);
        let any = enough && gangs.len() <= MOST_TRIED && gangs.iter().all(|only| without(&|gang| gang == *only));
        let (nodes, gangs) = (count(gains.len()), gangs.into_iter().cloned().collect());
        found.push(Passing::Assigned { gangs, nodes, enough, any });
    }
    found
}

/// Takes what a pod holds off what a node holds.
pub fn take_away(usage: &mut Usage, held: &Usage) {
    usage.requested.subtract(&held.requested);
    for port in &held.ports {
        if let Some(index) = usage.ports.iter().position(|other| other == port) {
            usage.ports.swap_remove(index);
        }
    }
}

/// Members that the best domain lacks.
fn missing(shortfall: &Shortfall) -> u64 {
    let best = shortfall.required.and_then(|level| shortfall.best.get(level));
    u64::from(shortfall.needed.saturating_sub(best.map_or(shortfall.total, |best| best.holds)))
}

fn slots(request: &GangRequest, host: &Host) -> u64 {
    let slots = |shape| fit::slots(shape, &host.node, &host.usage).map_or(0, u64::from);
    request.roles.iter().map(|role| slots(&role.shape)).sum()
}
