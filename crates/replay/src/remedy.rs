//! The fewest nodes of a blocked group that would make a gang fit, if they were not blocked: found, and then proven by
//! planning again with exactly those nodes freed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::fit::{self, Misfit};
use muster_core::gang;
use muster_core::model::names::NodeName;
use muster_core::model::node::{Node, Usage};
use muster_core::model::pod::Shape;
use muster_core::planner::plan::{Host, LevelIndex, Policy, Problem, Role, Shortfall};
use muster_core::planner::{self, Ground, Pruning};
use muster_core::topology::{Tree, natural_cmp};

use crate::study::Searched;

/// The taint kube-scheduler's node controller puts on a cordoned node.
const CORDON: &str = "node.kubernetes.io/unschedulable";

/// What stays on nodes whatever pods are ended there: what plans assign to gangs, their members, and DaemonSets.
pub(crate) type Kept = BTreeMap<NodeName, Usage>;

/// The problem of a refused gang, with what is needed to ask it again.
pub(crate) struct Refused<'a> {
    problem: &'a Problem,
    policy: &'a Policy,
    shortfall: &'a Shortfall,
    kept: &'a Kept,
    searched: &'a Searched,
    ground: Ground,
    tree: Tree,
}

impl<'a> Refused<'a> {
    /// Reads the problem's nodes once.
    pub(crate) fn new(
        problem: &'a Problem,
        policy: &'a Policy,
        shortfall: &'a Shortfall,
        kept: &'a Kept,
        searched: &'a Searched,
    ) -> Self {
        let ground = Ground::new(problem);
        let tree = Tree::build(&problem.levels, problem.hosts.iter().map(|host| &*host.node));
        Self { problem, policy, shortfall, kept, searched, ground, tree }
    }

    /// The fewest nodes blocked by `misfit` that would have to be freed, in natural order of name; `None` if freeing all
    /// of them is not enough or freeing is nothing that can be done.
    pub(crate) fn fewest(&self, misfit: &Misfit) -> Option<Vec<NodeName>> {
        let role = self.problem.gang.roles.first()?;
        let blocked: Vec<usize> = (0..self.problem.hosts.len())
            .filter(|host| {
                let Host { node, usage } = &self.problem.hosts[*host];
                fit::slots(&role.shape, node, usage).as_ref() == Err(misfit)
            })
            .collect();
        let chosen = self.exact(role, misfit, &blocked).or_else(|| self.some(misfit, &blocked))?;
        let mut names: Vec<NodeName> =
            chosen.into_iter().map(|host| self.problem.hosts[host].node.name.clone()).collect();
        names.sort_by(|one, other| natural_cmp(one.as_str(), other.as_str()));
        Some(names)
    }

    /// For one shape without further topology requests: per domain that may hold the gang, the largest of the blocked nodes first.
    fn exact(&self, role: &Role, misfit: &Misfit, blocked: &[usize]) -> Option<BTreeSet<usize>> {
        let topology_requests = &self.problem.gang.topology_requests;
        if self.problem.gang.roles.len() != 1
            || !topology_requests.slices.is_empty()
            || topology_requests.exclusive.is_some()
        {
            return None;
        }
        let (freed, bound): (BTreeSet<usize>, BTreeSet<&NodeName>) =
            (blocked.iter().copied().collect(), role.places.iter().filter_map(|place| place.bound.as_ref()).collect());
        let hosts = self.tree.hosts();
        let mut best: Option<Vec<usize>> = None;
        for inside in self.domains(topology_requests.required, &bound) {
            let mut gains = Vec::new();
            let mut held = 0_u64;
            for host in hosts[inside].iter().copied() {
                let Host { node, usage } = &self.problem.hosts[host];
                if role.shape.one_per_node && bound.contains(&node.name) {
                    continue;
                }
                if !freed.contains(&host) {
                    held = held.saturating_add(slots(&role.shape, node, usage));
                    continue;
                }
                if let Some(Host { node, usage }) = self.without(host, misfit) {
                    gains.push((slots(&role.shape, &node, &usage), host));
                }
            }
            gains.sort_by_key(|(slots, host)| (std::cmp::Reverse(*slots), *host));
            let mut chosen = Vec::new();
            for (slots, host) in gains {
                if held >= u64::from(self.shortfall.needed) || slots == 0 {
                    break;
                }
                held = held.saturating_add(slots);
                chosen.push(host);
            }
            let enough = held >= u64::from(self.shortfall.needed) && !chosen.is_empty();
            if enough && best.as_ref().is_none_or(|best| chosen.len() < best.len()) {
                best = Some(chosen);
            }
        }
        let best: BTreeSet<usize> = best?.into_iter().collect();
        self.fits(misfit, &best).is_some().then_some(best)
    }

    /// Positions in the tree that may hold the whole gang.
    fn domains(&self, required: Option<LevelIndex>, bound: &BTreeSet<&NodeName>) -> Vec<std::ops::Range<usize>> {
        let hosts = self.tree.hosts();
        let Some(level) = required else { return std::iter::once(0..hosts.len()).collect() };
        let domains = self.tree.level(level).iter().enumerate();
        let may = domains.filter(|(index, domain)| {
            let names: BTreeSet<&NodeName> =
                hosts[domain.hosts.clone()].iter().map(|host| &self.problem.hosts[*host].node.name).collect();
            self.tree.satisfies(level, *index) && bound.is_subset(&names)
        });
        may.map(|(_, domain)| domain.hosts.clone()).collect()
    }

    /// For everything else: those that a plan with all of them uses, and then one after the other taken away again.
    fn some(&self, misfit: &Misfit, blocked: &[usize]) -> Option<BTreeSet<usize>> {
        let all: BTreeSet<usize> = blocked.iter().copied().collect();
        let used = self.fits(misfit, &all)?;
        let mut chosen: BTreeSet<usize> =
            all.into_iter().filter(|host| used.contains(&self.problem.hosts[*host].node.name)).collect();
        if chosen.len() > MOST_ASKED || self.fits(misfit, &chosen).is_none() {
            return None;
        }
        for host in chosen.clone() {
            chosen.remove(&host);
            if self.fits(misfit, &chosen).is_none() {
                chosen.insert(host);
            }
        }
        Some(chosen)
    }

    /// A node without what blocks it; `None` where that is nothing anybody can take away from one node.
    fn without(&self, host: usize, misfit: &Misfit) -> Option<Host> {
        let host = &self.problem.hosts[host];
        let (mut node, mut usage) = (Node::clone(&host.node), Usage::clone(&host.usage));
        let kept = self.kept.get(&node.name);
        match misfit {
            Misfit::Unschedulable => {
                node.unschedulable = false;
                node.taints.retain(|taint| &*taint.key != CORDON);
            }
            Misfit::NotReady if node.deleting => return None,
            Misfit::NotReady => node = gang::ready(&node),
            Misfit::Taint { taint } => node.taints.retain(|entry| *entry.to_string() != **taint),
            // Members of the gang itself stay, and so does what is assigned to others without a pod that could be ended.
            Misfit::Port | Misfit::Insufficient { .. } | Misfit::Occupied if self.holds_members(&node.name) => {
                return None;
            }
            Misfit::Port if kept.is_some_and(|kept| !kept.ports.is_empty()) => return None,
            Misfit::Port => usage.ports.clear(),
            Misfit::Insufficient { resource } => {
                let stays = kept.map_or(0, |kept| kept.requested.get(resource.as_str()));
                if usage.requested.get(resource.as_str()) <= stays {
                    return None;
                }
                usage.requested.set(resource.clone(), stays);
            }
            Misfit::Occupied if kept.is_some_and(|kept| kept.own_shape_pods > 0) => return None,
            Misfit::Occupied => usage.own_shape_pods = 0,
            Misfit::Held | Misfit::Selector | Misfit::Volume | Misfit::Shared => return None,
        }
        Some(Host { node: Arc::new(node), usage: Arc::new(usage) })
    }

    fn holds_members(&self, node: &NodeName) -> bool {
        let places = self.problem.gang.roles.iter().flat_map(|role| &role.places);
        places.filter_map(|place| place.bound.as_ref()).any(|bound| bound == node)
    }

    /// Nodes of a plan with some nodes freed, if there is one.
    fn fits(&self, misfit: &Misfit, freed: &BTreeSet<usize>) -> Option<BTreeSet<NodeName>> {
        let mut problem = self.problem.clone();
        for host in freed {
            problem.hosts[*host] = self.without(*host, misfit)?;
        }
        let (plan, report) = planner::plan_on(&self.ground, &problem, self.policy, Pruning::On);
        self.searched.add(report.work);
        report.refusal.is_none().then(|| plan.places.into_iter().map(|place| place.node).collect())
    }
}

/// More nodes than this are not taken away one by one.
const MOST_ASKED: usize = 32;

fn slots(shape: &Shape, node: &Node, usage: &Usage) -> u64 {
    fit::slots(shape, node, usage).map_or(0, u64::from)
}
