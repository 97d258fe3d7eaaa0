//! What keeps capacity from a gang of the dump and ends by itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::gang::{passing, take_away};
use muster_core::model::names::{NodeName, ObjectKey};
use muster_core::model::node::Usage;
use muster_core::planner::plan::{Host, Problem, Shortfall};
use muster_core::reason::Passing;

use super::Planning;
use crate::remedy::Kept;

impl Planning<'_> {
    /// What ending pods does not free: assignments, what DaemonSets bring back, and pods that have been ended already. Members of gangs
    /// are no pods to be ended: the rest of their gang would end with them.
    pub(super) fn kept(&self) -> Kept {
        let assigned = self.assignments.values().flatten().map(|one| (&one.node, &one.held));
        let taken = self.taken.iter().map(|(node, _, held)| (node, held));
        let mut kept: Kept = self.daemons.clone();
        let leaving = self.leaving.iter().flat_map(|(node, all)| all.iter().map(move |held| (node, &**held)));
        let running = self.running.iter().map(|(node, held)| (node, &**held));
        for (node, held) in assigned.chain(taken).chain(leaving).chain(running) {
            let all = kept.entry(node.clone()).or_default();
            all.requested.add(&held.requested);
            all.ports.extend(held.ports.iter().cloned());
            // Whether such a member is one of the gang's own kind is not known: it is taken for one.
            all.own_shape_pods = all.own_shape_pods.saturating_add(1);
        }
        kept
    }

    /// Terminating pods, and capacity that other gangs have: by plans in the dump, or by those made here before.
    pub(super) fn passing(&self, problem: &Problem, shortfall: &Shortfall) -> Vec<Passing> {
        let hosts: BTreeMap<&NodeName, &Host> = problem.hosts.iter().map(|host| (&host.node.name, host)).collect();
        let without = |node: &NodeName, held: &mut dyn Iterator<Item = &Usage>| {
            let mut host = Host::clone(hosts.get(node)?);
            held.for_each(|held| take_away(Arc::make_mut(&mut host.usage), held));
            Some(host)
        };
        let leaving = self.leaving.iter().filter_map(|(node, held)| {
            let host = without(node, &mut held.iter().map(|held| &**held))?;
            Some((node.clone(), (host, u32::try_from(held.len()).unwrap_or(u32::MAX))))
        });
        let mut others: BTreeMap<&NodeName, Vec<(&ObjectKey, &Usage)>> = BTreeMap::new();
        for (gang, assigned) in &self.assignments {
            for one in assigned {
                others.entry(&one.node).or_default().push((gang, &one.held));
            }
        }
        for (node, gang, held) in &self.taken {
            others.entry(node).or_default().push((gang, held));
        }
        let assigned = others.into_iter().filter_map(|(node, all)| {
            let host = without(node, &mut all.iter().map(|(_, held)| *held))?;
            Some((node.clone(), (host, all.into_iter().map(|(gang, _)| gang.clone()).collect())))
        });
        passing(problem, &self.policy, shortfall, leaving.collect(), assigned.collect())
    }
}
