//! A gang that running nodes do not hold: nodes that are joining are awaited, else nodes are provisioned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use muster_api::keys;
use muster_core::gang;
use muster_core::model::gang::Pod;
use muster_core::model::names::NodeName;
use muster_core::model::node::Node;
use muster_core::offering::{Amounts, Exclusion, counted};
use muster_core::planner::plan::{GangRequest, Host, Problem, TopologyRequests};
use muster_core::reason::{Joining, Unsold, Why};

use super::Planning;
use super::gang::{Demand, levels_of};
use super::work::Work;
use crate::document::{GangEntry, Outcome, ProvisionEntry};
use crate::offers::{self, Asked, Asks, Purchase, Shop};
use crate::reasons::{of_unsold, of_why};
use crate::study::{Candidate, Detail};

/// Purchases tried before a gang is refused: the first holds it unless something is wrong with the estimate.
const PURCHASES_TRIED: usize = 8;

impl Planning<'_> {
    /// Whether the gang fits once the nodes are Ready that NodeBatches provisioned and that have registered: then it waits.
    ///
    /// Where such a node stands in the network may not be known yet; a cap below the zone is then that of the zone, and
    /// the gang is planned again when it is known.
    pub(super) fn awaits(&self, problem: &Problem, entry: &mut GangEntry, detail: &mut Detail) -> bool {
        let is_ours = |node: &Node| node.labels.contains_key(keys::BATCH);
        let provisioned = |node: &&Node| !node.ready && !node.deleting && is_ours(node) && self.is_young(node);
        let nodes = problem.hosts.iter().map(|host| &*host.node).filter(provisioned);
        let joining: BTreeMap<NodeName, Timestamp> = nodes.map(|node| (node.name.clone(), Timestamp::MAX)).collect();
        if joining.is_empty() {
            return false;
        }
        let joined = gang::with_joined(problem.clone(), &joining);
        let (plan, report, faults) = self.solve(&joined);
        if report.refusal.is_some() || !faults.is_empty() {
            return false;
        }
        let used: BTreeSet<&NodeName> =
            plan.places.iter().map(|place| &place.node).filter(|node| joining.contains_key(*node)).collect();
        let nodes = used.into_iter().cloned().collect();
        wait(Why::Joining(Joining { nodes, batches: Vec::new(), until: None }), entry, detail);
        true
    }

    /// Provisions nodes for the gang, if some pool sells what holds it.
    pub(super) fn provision(
        &mut self,
        demand: &Demand<'_>,
        problem: &Problem,
        work: &Work,
        entry: &mut GangEntry,
        detail: &mut Detail,
    ) {
        if demand.booked {
            wait(Why::Booking { request: demand.request.key.name.clone() }, entry, detail);
            return;
        }
        let key = &demand.request.key;
        let batches = match work {
            Work::Pods(_) => self.coming.for_gang(key),
            Work::Request(_) => self.coming.for_request(key),
        };
        if !batches.is_empty() {
            wait(Why::Joining(Joining { nodes: Vec::new(), batches, until: None }), entry, detail);
            return;
        }
        let bound: BTreeSet<NodeName> = demand.places().filter_map(|place| place.bound.clone()).collect();
        let existing = gang::existing(&demand.request);
        let request = existing.as_ref().unwrap_or(&demand.request);
        let zone_of = |name: &NodeName| self.cluster.node(name)?.labels.get(keys::ZONE).cloned();
        let asked = Asked {
            request,
            placement_group: demand.placement_group.as_deref(),
            bound_zones: &gang::bound_zones(request, zone_of),
            levels: &self.levels,
            policy: &self.policy,
            asks: match work {
                Work::Pods(_) => Asks::Pods,
                Work::Request(_) => Asks::Request,
            },
        };
        let shop = Shop { pools: &self.pools, ledger: &self.ledger, catalogue: self.catalogue };
        let sale = offers::find(&asked, &shop, || problem.hosts.clone());
        detail.excluded.clone_from(&sale.excluded);
        let mut provisioned = false;
        for (index, purchase) in sale.purchases.iter().enumerate() {
            let mut candidate = Candidate::new(purchase.entry.clone(), purchase.beside);
            if !provisioned && index < PURCHASES_TRIED {
                match self.place_on(purchase, demand, work, &bound, entry, detail) {
                    Ok(()) => (provisioned, candidate.chosen) = (true, true),
                    Err(why) => candidate.rejected = Some(why),
                }
            }
            detail.candidates.push(candidate);
        }
        if provisioned {
            return;
        }
        let alternatives = self.alternatives(demand, problem, work);
        entry.reasons.extend(alternatives.enough);
        detail.excluded.splice(0..0, alternatives.facts);
        if sale.purchases.is_empty() {
            entry.reasons.extend(sale.excluded);
        } else {
            let first = sale.purchases.first().map(|purchase| &purchase.entry);
            entry.reasons.extend(first.map(|first| {
                let (pool, instance_type) = (first.pool.as_str().into(), Some(first.instance_type.as_str().into()));
                of_unsold(&Unsold { pool, instance_type, count: Some(first.count), why: vec![Exclusion::DoesNotFit] })
            }));
        }
    }

    /// Places the gang on provisioned nodes beside its running members, and beside running nodes where that is counted on.
    ///
    /// Errors: why it does not fit there.
    fn place_on(
        &mut self,
        purchase: &Purchase,
        demand: &Demand<'_>,
        work: &Work,
        bound: &BTreeSet<NodeName>,
        entry: &mut GangEntry,
        detail: &mut Detail,
    ) -> Result<(), String> {
        let new = purchase.hosts(0);
        let problem = self.on_purchase(purchase, &new, &demand.request, demand.sample, bound);
        let (plan, report, faults) = self.solve(&problem);
        if let Some(refusal) = &report.refusal {
            return Err(refusal.to_string());
        }
        if let Some(fault) = faults.into_iter().next() {
            return Err(fault.change.unwrap_or_default());
        }
        entry.reasons.clear();
        entry.provision = vec![purchase.entry.clone()];
        let ProvisionEntry { pool, usd_micro_per_hour, count, .. } = &purchase.entry;
        self.ledger.take(pool, &Amounts::of_nodes(&counted(purchase.capacity()), *usd_micro_per_hour, *count));
        self.take(demand, work, &plan);
        self.describe(demand, work, &plan, &levels_of(&report), new, entry);
        self.note(&report, detail);
        Ok(())
    }

    /// What the planner is asked on provisioned nodes beside running members, and beside running nodes where that is counted on.
    pub(super) fn on_purchase(
        &self,
        purchase: &Purchase,
        new: &[Host],
        request: &GangRequest,
        sample: Option<&Pod>,
        bound: &BTreeSet<NodeName>,
    ) -> Problem {
        let mut hosts = new.to_vec();
        if purchase.beside > 0 {
            hosts.extend(self.cluster.hosts(sample));
        } else {
            for node in bound.iter().filter_map(|name| self.cluster.node(name)) {
                // Members stay where they are, and nobody joins them there: the provisioned nodes are for the rest.
                let node = Node { unschedulable: true, ready: false, ..Node::clone(node) };
                hosts.push(Host { node: Arc::new(node), usage: Arc::default() });
            }
        }
        let mut gang = request.clone();
        gang.topology_requests = self.without_network(gang.topology_requests, new);
        Problem { levels: self.levels.clone(), hosts, gang }
    }

    /// Where provisioned nodes stand in the network is known only once they run: of the cap, the zone is left, if they have
    /// one.
    pub(super) fn without_network(&self, topology_requests: TopologyRequests, new: &[Host]) -> TopologyRequests {
        let cap = self.levels.zone().zip(topology_requests.required).map(|(zone, required)| zone.min(required));
        let key = cap.and_then(|level| self.levels.as_slice().get(level)).map(|level| &level.key);
        let labelled = key.is_some_and(|key| new.iter().all(|host| host.node.labels.contains_key(key)));
        let host = self.levels.len().saturating_sub(1);
        TopologyRequests {
            required: cap.filter(|_| labelled),
            preferred: topology_requests.preferred,
            slices: topology_requests.slices.into_iter().filter(|slice| slice.level == host).collect(),
            exclusive: topology_requests.exclusive.filter(|level| *level == host),
            balance: topology_requests.balance.filter(|level| *level == host),
            apart: topology_requests.apart,
        }
    }
}

/// The gang waits.
fn wait(why: Why, entry: &mut GangEntry, detail: &mut Detail) {
    entry.outcome = Outcome::Waiting;
    entry.reasons.splice(0..0, of_why(&why));
    detail.why = Some(why);
}
