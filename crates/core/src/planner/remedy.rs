//! Changes that are no topology request of the gang: what blocks nodes, and how many members have to start.
//!
//! Each is tried on the slots that it changes alone, so that explaining a refusal on a large cluster costs little more
//! than the refusal itself.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::search::Domains;
use super::{Facts, Ground};
use crate::fit::{self, Misfit};
use crate::model::node::{Node, Taint, TaintEffect, Usage};
use crate::model::pod::{Shape, Toleration};
use crate::planner::plan::{Change, Host, Problem, Work};

/// Different taints that are tried: more are no small change.
const MOST_TAINTS: usize = 6;

/// Slots of every host, in the order of the problem.
type Slots = Vec<Result<u32, Misfit>>;

/// Every remedy that would do alone, at most one of a kind.
pub(super) fn remedies(problem: &Problem, ground: &Ground, facts: &Facts<'_>, work: &mut Work) -> Vec<Change> {
    let mut try_out = Try { problem, ground, facts, work };
    let mut changes = Vec::new();
    changes.extend(try_out.tolerate());
    changes.extend(try_out.unselect());
    for reason in [Misfit::Unschedulable, Misfit::NotReady, Misfit::Port, Misfit::Occupied] {
        let nodes = try_out.nodes(&reason);
        changes.extend(nodes.map(|nodes| Change::Nodes { reason, nodes }));
    }
    changes.extend(try_out.fewer());
    changes
}

struct Try<'a> {
    problem: &'a Problem,
    ground: &'a Ground,
    facts: &'a Facts<'a>,
    work: &'a mut Work,
}

impl Try<'_> {
    /// The slots if some hosts were judged again. Hosts that the topology requests rule out are judged by the topology requests again.
    fn slots(&self, again: impl Fn(usize, &Host) -> Option<Result<u32, Misfit>>) -> Slots {
        let shape = self.facts.demand.shape;
        let judge = |(index, slots): (usize, &Result<u32, Misfit>)| {
            let host = &self.problem.hosts[index];
            match slots {
                // The same name again has no capacity of its own.
                Err(Misfit::Shared) if self.ground.index.get(&host.node.name) != Some(&index) => Ok(0),
                Err(Misfit::Shared) => fit::slots(shape, &host.node, &host.usage),
                slots => again(index, host).unwrap_or_else(|| slots.clone()),
            }
        };
        self.facts.slots.iter().enumerate().map(judge).collect()
    }

    fn fits(&mut self, slots: &Slots) -> bool {
        let facts = Facts::read(self.problem, self.ground, Some(slots), self.work);
        facts.is_ok_and(|facts| facts.is_none_or(|facts| facts.fits()))
    }

    fn blocked_by(&self, reason: impl Fn(&Misfit) -> bool) -> Vec<usize> {
        let slots = self.facts.slots.iter().enumerate();
        slots.filter(|(_, slots)| slots.as_ref().is_err_and(&reason)).map(|(host, _)| host).collect()
    }

    /// One taint if one is enough, else a set of which none can be spared.
    fn tolerate(&mut self) -> Option<Change> {
        let blocked = self.blocked_by(|reason| matches!(reason, Misfit::Taint { .. }));
        let shape = self.facts.demand.shape;
        let mut taints: BTreeSet<&Taint> = BTreeSet::new();
        for host in &blocked {
            let node = &self.problem.hosts[*host].node;
            let hard = node.taints.iter().filter(|taint| taint.effect != TaintEffect::PreferNoSchedule);
            let new: Vec<&Taint> = hard.filter(|taint| !taints.contains(taint)).collect();
            taints.extend(new.into_iter().filter(|taint| {
                let alone = Node { taints: vec![Taint::clone(taint)], ..Node::clone(node) };
                matches!(fit::accepts(shape, &alone), Err(Misfit::Taint { .. }))
            }));
            if taints.len() > MOST_TAINTS {
                return None;
            }
        }
        let taints: Vec<&Taint> = taints.into_iter().collect();
        let mut fits = |taints: &[&Taint]| {
            let mut shape = Shape::clone(shape);
            shape.tolerations.extend(taints.iter().map(|taint| Toleration {
                key: Arc::clone(&taint.key),
                exists: false,
                value: Arc::clone(&taint.value),
                effect: Some(taint.effect),
            }));
            let again = |index: usize, host: &Host| {
                blocked.binary_search(&index).is_ok().then(|| fit::slots(&shape, &host.node, &host.usage))
            };
            let slots = self.slots(again);
            self.fits(&slots)
        };
        let one = taints.iter().find(|taint| fits(&[**taint])).map(|taint| vec![*taint]);
        let needed = one.or_else(|| {
            let mut needed = taints.clone();
            if taints.is_empty() || !fits(&needed) {
                return None;
            }
            for taint in &taints {
                let without: Vec<&Taint> = needed.iter().copied().filter(|other| other != taint).collect();
                if fits(&without) {
                    needed = without;
                }
            }
            Some(needed)
        })?;
        Some(Change::Tolerate { taints: needed.iter().map(|taint| Arc::from(taint.to_string())).collect() })
    }

    fn unselect(&mut self) -> Option<Change> {
        let blocked = self.blocked_by(|reason| *reason == Misfit::Selector);
        let mut shape = Shape::clone(self.facts.demand.shape);
        shape.node_selector.clear();
        shape.node_affinity = None;
        let again = |index: usize, host: &Host| {
            blocked.binary_search(&index).is_ok().then(|| fit::slots(&shape, &host.node, &host.usage))
        };
        if blocked.is_empty() {
            return None;
        }
        let slots = self.slots(again);
        self.fits(&slots).then_some(Change::Unselect)
    }

    /// The fewest nodes to be freed of a reason.
    fn nodes(&mut self, reason: &Misfit) -> Option<u32> {
        let shape = self.facts.demand.shape;
        let blocked = self.blocked_by(|other| other == reason);
        let cured = |host: usize| {
            let Host { node, usage } = &self.problem.hosts[host];
            let (mut node, mut usage) = (Node::clone(node), Usage::clone(usage));
            match reason {
                Misfit::Unschedulable => node.unschedulable = false,
                // A node that is being deleted does not come back.
                Misfit::NotReady => node.ready = true,
                Misfit::Port => usage.ports.clear(),
                Misfit::Occupied if self.facts.demand.bound[host] == 0 => usage.own_shape_pods = 0,
                Misfit::Occupied
                | Misfit::Taint { .. }
                | Misfit::Held
                | Misfit::Selector
                | Misfit::Volume
                | Misfit::Insufficient { .. }
                | Misfit::Shared => return None,
            }
            fit::slots(shape, &node, &usage).ok().filter(|slots| *slots > 0).map(|slots| (host, slots))
        };
        let mut cured: Vec<(usize, u32)> = blocked.into_iter().filter_map(cured).collect();
        cured.sort_by_key(|(host, slots)| (std::cmp::Reverse(*slots), *host));
        let topology_requests = &self.problem.gang.topology_requests;
        let searched = !topology_requests.slices.is_empty() || topology_requests.exclusive.is_some();
        let mut with = |cured: &[(usize, u32)]| {
            let cured: FxHashMap<usize, u32> = cured.iter().copied().collect();
            let slots = self.slots(|index, _| cured.get(&index).map(|slots| Ok(*slots)));
            self.fits(&slots)
        };
        if cured.is_empty() || !with(&cured) {
            return None;
        }
        if searched {
            // Which nodes would do is a search of its own: only a single one is named.
            return cured.iter().any(|one| with(&[*one])).then_some(1);
        }
        // Inside one domain the largest nodes are the fewest.
        let needed = u64::from(self.facts.demand.must);
        let (tree, positions) = (&self.ground.tree, &self.ground.positions);
        let fewest = |inside: &Range<usize>, holds: u64| {
            let mut holds = holds;
            let mut nodes = 0_u32;
            let mut inside = cured.iter().filter(|(host, _)| inside.contains(&positions[*host]));
            while holds < needed {
                let (_, slots) = inside.next()?;
                holds += u64::from(*slots);
                nodes += 1;
            }
            Some(nodes)
        };
        match self.facts.domains.candidates(tree) {
            None => fewest(&(0..tree.hosts().len()), Domains::Any.most(tree, &self.facts.rules)),
            Some((level, candidates)) => {
                let domains = candidates
                    .map(|domain| fewest(&tree.level(level)[domain].hosts, self.facts.rules.most[level][domain]));
                domains.flatten().min()
            }
        }
    }

    /// The largest minimum that can start, of an elastic gang of one role.
    fn fewer(&self) -> Option<Change> {
        let [role] = self.problem.gang.roles.as_slice() else { return None };
        let demand = &self.facts.demand;
        if role.min as usize >= role.places.len() || !self.facts.rules.completable() {
            return None;
        }
        let most =
            self.facts.domains.most(&self.ground.tree, &self.facts.rules).min(u64::from(demand.must).checked_sub(1)?);
        let new = self.facts.rules.numbers(0, most).last().copied()?;
        let members = demand.bound.iter().sum::<u32>().checked_add(u32::try_from(new).ok()?)?;
        (members > 0).then_some(Change::Minimum { role: Arc::clone(&role.name), members })
    }
}
