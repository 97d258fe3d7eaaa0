//! What else would make a gang fit that nothing is provisioned for: a pool that allows more, or members that ask for less. Each is
//! planned before it is named.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::keys;
use muster_core::ec2::CapacityType;
use muster_core::gang;
use muster_core::model::gang::{Claims, Pod};
use muster_core::model::names::{NodeName, ResourceName};
use muster_core::model::pod::Shape;
use muster_core::model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS, amount};
use muster_core::planner::plan::{Change, GangRequest, Host, Problem};
use muster_core::reason::{self, Help, PoolChange};

use super::Planning;
use super::gang::Demand;
use super::work::{Pods, Work};
use crate::document::{Code, ProvisionEntry, Reason};
use crate::offers::{self, Asked, Asks, Shop};
use crate::pools::Pool;
use crate::reasons::described;

/// Purchases tried for each change.
const PURCHASES_TRIED: usize = 2;

/// Domains of label keys that no NodePool may set, or that have one meaning each.
const RESTRICTED: [&str; 5] = ["kubernetes.io", "k8s.io", "k8s.aws", "muster.dev", "karpenter.sh"];

/// Where a changed gang fits.
enum Fits {
    /// On nodes of the dump.
    Nodes,
    /// On nodes that would be provisioned.
    Provisioned(ProvisionEntry),
}

impl Fits {
    /// The change that it fits after.
    fn after(self, code: Code, change: Change) -> Reason {
        let provision = match self {
            Self::Nodes => None,
            Self::Provisioned(entry) => Some(entry),
        };
        Reason::from(reason::Reason::new(code, Help::Change(change))).provisioning(provision)
    }
}

/// What else would do, and what stands in the way then.
#[derive(Debug, Default)]
pub(super) struct Alternatives {
    /// Each would do alone.
    pub(super) enough: Vec<Reason>,
    /// Facts about which nothing can be changed.
    pub(super) facts: Vec<Reason>,
}

impl Planning<'_> {
    /// What would make the gang fit that neither nodes nor pools as they are hold.
    pub(super) fn alternatives(&self, demand: &Demand<'_>, problem: &Problem, work: &Work) -> Alternatives {
        let mut found = Alternatives::default();
        let Work::Pods(pods) = work else { return found };
        let request = &demand.request;
        let mut of_pool = |pool: &Pool, code: Code, change: PoolChange, changed: Pool| {
            let Some(entry) = self.holds(demand, problem, request, std::slice::from_ref(&changed)) else { return };
            let (instance_type, count) = (Some(Arc::from(entry.instance_type.as_str())), Some(entry.count));
            let help = Help::Pool { pool: pool.name.as_str().into(), instance_type, count, changes: vec![change] };
            found.enough.push(Reason::from(reason::Reason::new(code, help)).provisioning(Some(entry)));
        };
        for pool in &self.pools {
            if let Some(changed) = pool.with_on_demand() {
                let code = match pool.only() {
                    Some(CapacityType::Reserved) => Code::Reservation,
                    Some(CapacityType::Spot | CapacityType::OnDemand) | None => Code::PriceUnknown,
                };
                of_pool(pool, code, PoolChange::OnDemand, changed);
            }
            let labels = missing_labels(request, pool);
            if !labels.is_empty() {
                let changed = pool.with_labels(&labels);
                of_pool(pool, Code::Selector, PoolChange::Labels { labels }, changed);
            }
        }
        let selects = |shape: &Shape| !shape.node_selector.is_empty() || shape.node_affinity.is_some();
        if request.roles.iter().any(|role| selects(&role.shape)) && !self.pools.is_empty() {
            let changed = with_shapes(request, |shape| {
                shape.node_selector.clear();
                shape.node_affinity = None;
            });
            if let Some(fits) = self.fits(demand, problem, &changed) {
                found.enough.push(fits.after(Code::Selector, Change::Unselect));
            }
        }
        found.enough.extend(self.lower(demand, problem));
        self.own_volumes(demand, problem, pods, &mut found);
        found
    }

    /// Less of the one resource of which a member asks for more than any node has.
    fn lower(&self, demand: &Demand<'_>, problem: &Problem) -> Option<Reason> {
        let [role] = demand.request.roles.as_slice() else { return None };
        let exact = |name: &ResourceName| ![MEMORY, EPHEMERAL_STORAGE, PODS].contains(&name.as_str());
        let mut above = role.shape.requests.iter().filter_map(|(name, from)| {
            let most = self.most(problem, name);
            (from > most).then(|| (name.clone(), from, most))
        });
        let (resource, from, to) = above.next().filter(|(name, _, to)| exact(name) && *to > 0)?;
        if above.next().is_some() {
            return None;
        }
        let changed = with_shapes(&demand.request, |shape| shape.requests.set(resource.clone(), to));
        let fits = self.fits(demand, problem, &changed)?;
        Some(fits.after(Code::Insufficient, Change::Lower { resource, from, to }))
    }

    /// The most of a resource that a node has, one of the dump or one that could be provisioned, beside its DaemonSets.
    fn most(&self, problem: &Problem, resource: &ResourceName) -> i64 {
        let name = resource.as_str();
        let there = problem.hosts.iter().map(|host| {
            let daemons = self.daemons.get(&host.node.name).map_or(0, |held| held.requested.get(name));
            host.node.allocatable.get(name).saturating_sub(daemons)
        });
        let views = self.pools.iter().map(|pool| pool.view(&self.catalogue.prices, &self.ledger));
        let types = views.flat_map(|view| view.types);
        let new = types.map(|kind| kind.node.allocatable.get(name).saturating_sub(kind.overhead.requested.get(name)));
        there.chain(new).max().unwrap_or(0)
    }

    /// Claims that keep all members on one node: whether the gang fits with claims of their own.
    fn own_volumes(&self, demand: &Demand<'_>, problem: &Problem, pods: &Pods, found: &mut Alternatives) {
        let members: Vec<&Pod> = pods.found.members.values().map(|known| &*known.core).collect();
        let shared = |claim: &Arc<str>| members.iter().all(|pod| pod.claims.one_node.contains(claim));
        let claims: Vec<Arc<str>> = match members.split_first() {
            Some((first, [_, ..])) => first.claims.one_node.iter().filter(|claim| shared(claim)).cloned().collect(),
            Some((_, [])) | None => Vec::new(),
        };
        if claims.is_empty() {
            return;
        }
        let counted = demand.request.roles.iter().flat_map(|role| {
            let places = i64::try_from(role.places.len()).unwrap_or(i64::MAX);
            role.shape.requests.iter().map(move |(name, each)| (name, each.saturating_mul(places)))
        });
        let mut sums: BTreeMap<&ResourceName, i64> = BTreeMap::new();
        counted.for_each(|(name, sum)| *sums.entry(name).or_default() += sum);
        // Devices say best how large the node would be.
        let devices = sums.iter().filter(|(name, _)| name.as_str().contains('/'));
        let named: Vec<_> = match devices.clone().next() {
            Some(_) => devices.collect(),
            None => sums.iter().filter(|(name, _)| name.as_str() == CPU).collect(),
        };
        let named: Vec<String> =
            named.into_iter().map(|(name, sum)| format!("{} {}", amount(name.as_str(), *sum), name.as_str())).collect();
        let shared = claims.iter().map(|claim| &**claim).collect::<Vec<_>>().join(" and ");
        found.facts.push(described(
            Code::Volume,
            format!(
                "all members share {shared} (ReadWriteOnce), so they need one node with {}; no such node can be provisioned",
                named.join(" and ")
            ),
        ));
        let own = |pod: &Pod| {
            let mut pod = pod.clone();
            pod.claims = Arc::new(Claims::default());
            if let Ok(shape) = &mut pod.shape {
                Arc::make_mut(shape).volumes.clear();
            }
            Arc::new(pod)
        };
        let own: Vec<Arc<Pod>> = members.into_iter().map(own).collect();
        let Ok(wanted) = self.wanted(pods, &own) else { return };
        if let Some(fits) = self.fits(demand, problem, &wanted.request) {
            found.enough.push(fits.after(Code::Volume, Change::OwnVolumes { claims }));
        }
    }

    /// Where another request fits: on the nodes of the dump, else on what the pools would provision; `None` if nowhere.
    fn fits(&self, demand: &Demand<'_>, problem: &Problem, request: &GangRequest) -> Option<Fits> {
        let changed = Problem { gang: request.clone(), ..problem.clone() };
        let (_, report, faults) = self.solve(&changed);
        if report.refusal.is_none() && faults.is_empty() {
            return Some(Fits::Nodes);
        }
        self.holds(demand, problem, request, &self.pools).map(Fits::Provisioned)
    }

    /// What these pools would provision for a request, planned on it.
    fn holds(
        &self,
        demand: &Demand<'_>,
        problem: &Problem,
        request: &GangRequest,
        pools: &[Pool],
    ) -> Option<ProvisionEntry> {
        let existing = gang::existing(request);
        let zone_of = |name: &NodeName| self.cluster.node(name)?.labels.get(keys::ZONE).cloned();
        let asked_for = existing.as_ref().unwrap_or(request);
        let asked = Asked {
            request: asked_for,
            placement_group: demand.placement_group.as_deref(),
            bound_zones: &gang::bound_zones(asked_for, zone_of),
            levels: &self.levels,
            policy: &self.policy,
            asks: Asks::Pods,
        };
        let shop = Shop { pools, ledger: &self.ledger, catalogue: self.catalogue };
        let places = request.roles.iter().flat_map(|role| &role.places);
        let bound: BTreeSet<NodeName> = places.filter_map(|place| place.bound.clone()).collect();
        let sale = offers::find(&asked, &shop, || problem.hosts.clone());
        let mut tried = sale.purchases.iter().take(PURCHASES_TRIED);
        let found = tried.find(|purchase| {
            let new: Vec<Host> = purchase.hosts(0);
            let problem = self.on_purchase(purchase, &new, request, demand.sample, &bound);
            let (_, report, faults) = self.solve(&problem);
            report.refusal.is_none() && faults.is_empty()
        });
        found.map(|purchase| purchase.entry.clone())
    }
}

/// The request with other shapes.
fn with_shapes(request: &GangRequest, change: impl Fn(&mut Shape)) -> GangRequest {
    let mut changed = request.clone();
    changed.roles.iter_mut().for_each(|role| change(&mut role.shape));
    changed
}

/// Labels that members select and that a pool could set on its nodes, and does not.
fn missing_labels(request: &GangRequest, pool: &Pool) -> BTreeMap<Arc<str>, Arc<str>> {
    let selected = request.roles.iter().flat_map(|role| &role.shape.node_selector);
    let may_set = |key: &str| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        !RESTRICTED.iter().any(|one| domain == *one || domain.ends_with(&format!(".{one}"))) && pool.leaves_open(key)
    };
    let selected = selected.filter(|(key, _)| may_set(key));
    selected.map(|(key, value)| (Arc::clone(key), Arc::clone(value))).collect()
}
