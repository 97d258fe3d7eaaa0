//! What keeps room from a gang and ends by itself: pods that are being deleted, and promises to other gangs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::request::count;
use super::working::Working;
use crate::gang::{Gang, Pod};
use crate::names::{NodeName, ObjectKey};
use crate::node::Usage;
use crate::plan::{GangRequest, Host, Problem, Refusal, SearchBudget, Seed, Shortfall};
use crate::reason::{Passing, Why};
use crate::{fit, planner};

impl Working<'_> {
    /// A refusal with what ends by itself.
    pub(super) fn refused(&mut self, gang: &Gang, request: &GangRequest, refusal: &Refusal) -> Why {
        Why::Refused { refusal: refusal.clone(), passing: self.passing(gang, request, refusal) }
    }

    /// What keeps room from a gang that does not fit, and ends by itself.
    pub(super) fn passing(&mut self, gang: &Gang, request: &GangRequest, refusal: &Refusal) -> Vec<Passing> {
        let Refusal::DoesNotFit(shortfall) = refusal else { return Vec::new() };
        let own = self.own_keys(&gang.key);
        let mut passing = Vec::new();
        let leaving = self.terminating();
        let mut pods = 0_u32;
        let mut freed: BTreeMap<NodeName, Host> = BTreeMap::new();
        let mut gained = 0;
        for (node, leaving) in leaving.iter() {
            let Some(host) = self.host(node, &own) else { continue };
            let mut usage = Usage::clone(&host.usage);
            for pod in leaving {
                usage.requested.subtract(&pod.held.requested);
                usage.ports.retain(|port| !pod.held.ports.contains(port));
            }
            let without = Host { node: Arc::clone(&host.node), usage: Arc::new(usage) };
            let gain = gain(request, &host, &without);
            if gain > 0 {
                gained += gain;
                pods = pods.saturating_add(count(leaving.len()));
                freed.insert(node.clone(), without);
            }
        }
        if !freed.is_empty() {
            let nodes = count(freed.len());
            let enough = gained >= missing(shortfall) && self.fits_with(request, &own, &freed);
            passing.push(Passing::Terminating { pods, nodes, enough });
        }
        let (mut gangs, mut freed) = (BTreeSet::new(), BTreeMap::new());
        let mut gained = 0;
        for (node, promises) in &self.snapshot.promises {
            if self.world.lost.contains(node) {
                continue;
            }
            let others: Vec<&ObjectKey> =
                promises.iter().map(|promise| &promise.gang).filter(|gang| !own.contains(gang)).collect();
            let Some(entry) = self.snapshot.nodes.get(node).filter(|_| !others.is_empty()) else { continue };
            let without = Host { node: Arc::clone(&entry.node), usage: Arc::clone(&entry.usage) };
            let gain = match self.host(node, &own) {
                Some(host) => gain(request, &host, &without),
                None => slots(request, &without),
            };
            if gain > 0 {
                gained += gain;
                gangs.extend(others.into_iter().cloned());
                freed.insert(node.clone(), without);
            }
        }
        if !freed.is_empty() {
            let nodes = count(freed.len());
            let enough = gained >= missing(shortfall) && self.fits_with(request, &own, &freed);
            passing.push(Passing::Promised { gangs: gangs.into_iter().collect(), nodes, enough });
        }
        passing
    }

    /// Pods that are being deleted and hold room, by node.
    fn terminating(&mut self) -> Arc<BTreeMap<NodeName, Vec<Arc<Pod>>>> {
        let pods = &self.snapshot.pods;
        let found = self.terminating.get_or_insert_with(|| {
            let mut found: BTreeMap<NodeName, Vec<Arc<Pod>>> = BTreeMap::new();
            for pod in pods.values().filter(|pod| pod.deleting && pod.holds_room()) {
                if let Some(node) = &pod.node {
                    found.entry(node.clone()).or_default().push(Arc::clone(pod));
                }
            }
            Arc::new(found)
        });
        Arc::clone(found)
    }

    /// Whether the gang fits if some hosts looked otherwise.
    fn fits_with(&self, request: &GangRequest, own: &[ObjectKey], other: &BTreeMap<NodeName, Host>) -> bool {
        let nodes = self.snapshot.nodes.keys();
        let hosts = nodes.filter_map(|node| other.get(node).cloned().or_else(|| self.host(node, own)));
        let problem = Problem { levels: self.world.levels.clone(), hosts: hosts.collect(), gang: request.clone() };
        let policy = &self.world.settings.policy;
        let (plan, report) = planner::plan(&problem, policy, SearchBudget::default(), Seed::default());
        report.refusal.is_none() && !plan.places.is_empty()
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

/// Members that a host holds more, all roles together.
fn gain(request: &GangRequest, before: &Host, after: &Host) -> u64 {
    slots(request, after).saturating_sub(slots(request, before))
}
