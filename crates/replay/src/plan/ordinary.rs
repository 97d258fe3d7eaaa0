//! Pods of no gang: the node that exists for each, or the cheapest nodes to launch, with the proof.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::convert::ordinary::{self as read, Kind, Namespaces};
use muster_api::keys;
use muster_core::fit;
use muster_core::model::gang::{Membership, Pod};
use muster_core::model::names::{NodeName, ObjectKey};
use muster_core::model::node::{Node, TaintEffect};
use muster_core::packing::{
    self, CEILING, Claimant, Class, Existing, Late, Obstacle, Offer, Place, Problem, Settled, Standing,
};
use muster_core::planner::plan::Host;
use muster_core::topology::natural_cmp;

use super::{ACCELERATORS, MinValues, Planning, Preferences};
use crate::document::{PodCode, PodEntry, PodOutcome, PodReason, Relaxed, RelaxedWhat};
use crate::gangs::Known;
use crate::plan::launches::{self, Launched};
use crate::supply::Withheld;

/// A pod that is planned, and its place in the document.
struct Planned {
    entry: usize,
    kind: Kind,
}

/// Nodes that exist as the plan leaves them.
struct After {
    nodes: Vec<(Host, bool)>,
    /// Claims whose volumes are attached, by index of the node.
    attached: BTreeMap<usize, BTreeSet<ObjectKey>>,
}

impl After {
    fn add(&mut self, node: usize, class: &Class) {
        let shape = class.beside(self.attached.get(&node));
        Arc::make_mut(&mut self.nodes[node].0.usage).add(&shape);
        self.attached.entry(node).or_default().extend(class.shares.keys().cloned());
    }
}

impl Planning<'_> {
    /// Places pending pods: priority, creation, namespace and name.
    pub(super) fn ordinary(&mut self, others: Vec<Known>, namespaces: &Namespaces) -> (Vec<PodEntry>, Launched) {
        let waits = |known: &Known| known.core.node.is_none() && known.core.is_live();
        let mut pending: Vec<Known> =
            others.into_iter().filter(|known| waits(known) || self.moves.contains(&known.core.uid)).collect();
        pending.sort_by_cached_key(|known| {
            let created = known.core.created;
            (Reverse(known.priority), created.is_none(), created, known.core.key.clone())
        });
        let nodes = self.tried();
        let soft = |node: &Node| node.taints.iter().any(|taint| taint.effect == TaintEffect::PreferNoSchedule);
        let soft_taints =
            nodes.iter().any(|(host, _)| soft(&host.node)) || self.supply.offers.iter().any(|offer| soft(&offer.node));
        let mut entries = Vec::new();
        let mut planned = Vec::new();
        for known in &pending {
            let core = &known.core;
            let mut entry = PodEntry {
                namespace: core.key.namespace.to_string(),
                name: core.key.name.to_string(),
                uid: known.uid.clone(),
                outcome: PodOutcome::Refused,
                node: None,
                relaxed: Vec::new(),
                reasons: Vec::new(),
            };
            // kube-scheduler has made capacity for it there, and that capacity is counted already.
            let nominated = core.nominated.as_ref().filter(|_| core.node.is_none());
            let nominated = nominated.filter(|node| self.cluster.node(node).is_some());
            match (self.aside(known), &core.shape, nominated) {
                (Some((outcome, reason)), ..) => {
                    entry.outcome = outcome;
                    entry.reasons.push(reason);
                }
                (None, Err(why), _) => entry.reasons.push(reason(PodCode::NoOfferFits, why.to_string())),
                (None, Ok(_), Some(node)) => {
                    entry.outcome = PodOutcome::Placed;
                    entry.node = Some(node.to_string());
                }
                (None, Ok(shape), None) => {
                    let mut kind = read::kind(&known.object, shape, namespaces, soft_taints);
                    kind.required.existing_only = stays_out(known);
                    if self.preferences == Preferences::Ignore {
                        kind.preferences.clear();
                    }
                    planned.push(Planned { entry: entries.len(), kind });
                }
            }
            entries.push(entry);
        }
        let base = self.base_of(&nodes, namespaces);
        let ladder = |one: &Planned| (0..=one.kind.preferences.len()).map(|dropped| one.kind.class(dropped)).collect();
        let ladders: Vec<Arc<[Class]>> = planned.iter().map(ladder).collect();
        let claimant = |(one, ladder): (&Planned, _)| Claimant { pod: &pending[one.entry].core, ladder };
        let claimants = planned.iter().zip(&ladders).map(claimant);
        let ahead: Vec<&Pod> = self.users.iter().map(|pod| &**pod).collect();
        let settled = packing::settle(&base, &claimants.collect::<Vec<_>>(), &ahead);
        let Settled { mut problem, mut plan, pods, unplaced, refused: late } = settled;
        if self.min_values == MinValues::BestEffort {
            drop_min_values(&mut problem, &mut plan);
        }
        let mut after = After { nodes: nodes.clone(), attached: problem.attached.clone() };
        for (pod, place) in plan.places.iter().enumerate() {
            let class = problem.kinds[problem.pods[pod]].last().map(|class| &problem.classes[*class]);
            if let (Place::Existing(index), Some(class)) = (place, class) {
                after.add(*index, class);
            }
        }
        debug_assert_eq!(packing::check::check(&problem, &plan), Vec::<String>::new(), "a plan that is wrong");
        let mut known: BTreeMap<usize, Vec<PodReason>> = BTreeMap::new();
        let obstacles = packing::Obstacles::new(&problem, &plan);
        for (pod, number) in pods.iter().enumerate() {
            let one = &planned[*number];
            let entry = &mut entries[one.entry];
            entry.relaxed = one.kind.preferences.iter().take(plan.relaxed[pod]).map(launches::relaxed).collect();
            match plan.places[pod] {
                Place::Existing(index) => {
                    let (host, joining) = &nodes[index];
                    entry.outcome = if *joining { PodOutcome::Joining } else { PodOutcome::Placed };
                    entry.node = Some(host.node.name.to_string());
                }
                Place::New(index) => {
                    entry.outcome = PodOutcome::Provision;
                    entry.node = Some(format!("new/{index}"));
                    let asked = &self.supply.pools[problem.offers[plan.nodes[index].offer].pool].min_values;
                    entry.relaxed.extend(fewer(&problem, &plan.nodes[index], asked));
                }
                Place::None => {
                    let class = problem.kinds[problem.pods[pod]].last().copied().unwrap_or(0);
                    let reasons =
                        known.entry(class).or_insert_with(|| self.reasons(&problem, &obstacles, class, &after));
                    entry.reasons.clone_from(reasons);
                }
            }
        }
        for (number, class) in unplaced {
            let reasons = known.entry(class).or_insert_with(|| self.reasons(&problem, &obstacles, class, &after));
            entries[planned[number].entry].reasons.clone_from(reasons);
        }
        for (number, why) in late {
            let code = match why {
                Late::InUse { .. } => PodCode::VolumeLimit,
                Late::NoVolume { .. } => PodCode::VolumeNotFound,
            };
            entries[planned[number].entry].reasons.push(reason(code, why.to_string()));
        }
        (entries, launches::describe(&problem, &plan, &self.supply))
    }

    /// Pods that are not planned, with the reason.
    fn aside(&self, known: &Known) -> Option<(PodOutcome, PodReason)> {
        let core = &known.core;
        let spec = known.object.spec.as_ref();
        if core.membership == Membership::Unknown {
            let owners = known.object.metadata.owner_references.iter().flatten();
            let owner = owners.map(|owner| format!("{} {}", owner.kind, owner.name)).next().unwrap_or_default();
            let why = format!("whether it belongs to a gang is not known: {owner} is not in the dump");
            return Some((PodOutcome::Waiting, reason(PodCode::NoOfferFits, why)));
        }
        if core.foreign_gate.is_some() {
            let gates = spec.and_then(|spec| spec.scheduling_gates.as_ref());
            let names: Vec<&str> = gates.into_iter().flatten().map(|gate| gate.name.as_str()).collect();
            let why = format!("held by scheduling gates: {}", names.join(", "));
            return Some((PodOutcome::Waiting, reason(PodCode::ForeignGate, why)));
        }
        if let Some(awaits) = &core.claims.awaits {
            let mut volumes = spec.and_then(|spec| spec.volumes.as_ref()).into_iter().flatten();
            let comes = volumes.any(|volume| volume.ephemeral.is_some());
            let outcome = if comes { PodOutcome::Waiting } else { PodOutcome::Refused };
            return Some((outcome, reason(PodCode::VolumeNotFound, format!("waits for a volume: {awaits}"))));
        }
        let constraint = core.shape.as_ref().ok().and_then(|shape| read::unmodelled(shape).into_iter().next())?;
        let code =
            if constraint.starts_with("resourceClaims") { PodCode::DRANotSupported } else { PodCode::NoOfferFits };
        Some((PodOutcome::Refused, reason(code, format!("carries a constraint that is not supported: {constraint}"))))
    }

    /// Nodes in the order in which they are tried, and whether each is joining, registered or not: Ready ones first; those
    /// without accelerators before those with, the fullest of which come first.
    fn tried(&self) -> Vec<(Host, bool)> {
        let mut nodes: Vec<(Host, bool)> = Vec::new();
        for Host { node, usage } in self.cluster.hosts(None) {
            if let Some(goes) = self.awaited_taints(&node) {
                let mut joined = Node { ready: true, ..Node::clone(&node) };
                joined.taints.retain(|taint| !goes(taint));
                nodes.push((Host { node: Arc::new(joined), usage }, true));
            } else {
                nodes.push((Host { node, usage }, false));
            }
        }
        let coming =
            self.coming.for_pods().map(|(node, usage)| Host { node: Arc::clone(node), usage: Arc::clone(usage) });
        nodes.extend(coming.map(|host| (host, true)));
        let left = |host: &Host| -> i64 {
            let one = |name: &&str| host.node.allocatable.get(name).saturating_sub(host.usage.requested.get(name));
            ACCELERATORS.iter().map(one).sum()
        };
        let precious = |host: &Host| ACCELERATORS.iter().any(|name| host.node.allocatable.get(name) > 0);
        nodes.sort_by(|(one, one_joining), (other, other_joining)| {
            let key = |host: &Host| (precious(host), if precious(host) { left(host) } else { 0 });
            (one_joining, key(one))
                .cmp(&(other_joining, key(other)))
                .then_with(|| natural_cmp(one.node.name.as_str(), other.node.name.as_str()))
        });
        nodes
    }

    /// What pods are planned on.
    fn base_of(&self, nodes: &[(Host, bool)], namespaces: &Namespaces) -> Problem {
        let index: BTreeMap<&NodeName, usize> =
            nodes.iter().enumerate().map(|(index, (host, _))| (&host.node.name, index)).collect();
        let mut standing: Vec<Standing> = Vec::new();
        for (name, pod) in &self.standing {
            let Some(node) = index.get(name).copied() else { continue };
            let ended = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            if matches!(ended, Some("Succeeded" | "Failed")) {
                continue;
            }
            let labels = pod.metadata.labels.iter().flatten();
            standing.push(Standing {
                node,
                namespace: pod.metadata.namespace.as_deref().unwrap_or_default().into(),
                labels: labels.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
                anti_affinity: read::anti_affinity(pod, namespaces),
                deleting: pod.metadata.deletion_timestamp.is_some(),
            });
        }
        let mut problem = Problem { standing, hosts_come: self.hosts_come, ..Problem::default() };
        for (node, claim) in self.cluster.attached() {
            if let Some(node) = index.get(node) {
                problem.attached.entry(*node).or_default().insert(claim.clone());
            }
        }
        let existing = |(host, joining): &(Host, bool)| Existing {
            node: Arc::clone(&host.node),
            usage: (*host.usage).clone(),
            joining: *joining,
        };
        problem.nodes = nodes.iter().map(existing).collect();
        problem.pools.clone_from(&self.supply.pools);
        for pool in &mut problem.pools {
            // Nodes that stand, that are on their way and that gangs were given are off it already.
            let left = self.ledger.ceilings(&pool.name).iter().map(|ceiling| ceiling.left).min();
            pool.left.extend(left.map(|left| (CEILING.into(), i64::try_from(left).unwrap_or(i64::MAX))));
        }
        problem.offers.clone_from(&self.supply.offers);
        problem
    }

    /// Why a class finds no place: on nodes that exist, and in each pool.
    fn reasons(
        &self,
        problem: &Problem,
        obstacles: &packing::Obstacles<'_>,
        class: usize,
        after: &After,
    ) -> Vec<PodReason> {
        let of = &problem.classes[class];
        let mut reasons = Vec::new();
        if of.existing_only {
            reasons.push(reason(PodCode::DoNotProvision, format!("annotated {}", keys::DO_NOT_PROVISION)));
        }
        if problem.pools.is_empty() && self.supply.not_ready.is_empty() {
            reasons.push(reason(PodCode::NoPool, "a NodePool that offers what it needs".to_owned()));
        }
        let mut blocked: BTreeMap<String, (u32, fit::Misfit)> = BTreeMap::new();
        for (index, (host, _)) in after.nodes.iter().enumerate() {
            if let Err(misfit) = fit::fits(&of.beside(after.attached.get(&index)), &host.node, &host.usage) {
                blocked.entry(misfit.to_string()).or_insert((0, misfit)).0 += 1;
            }
        }
        let mut blocked: Vec<(String, (u32, fit::Misfit))> = blocked.into_iter().collect();
        blocked.sort_by_key(|(_, (count, _))| Reverse(*count));
        if let Some((text, (count, misfit))) = blocked.into_iter().next() {
            let nodes = if count == 1 { "node" } else { "nodes" };
            reasons.push(reason(launches::code_of(&misfit), format!("{count} {nodes}: {text}")));
        }
        if !of.existing_only {
            let mut out_of_reach: BTreeSet<usize> = BTreeSet::new();
            for (pool, instance_type, obstacle) in obstacles.of(class) {
                if out_of_reach.contains(&pool) {
                    continue;
                }
                let name = problem.pools[pool].name.to_string();
                let withheld = self.withheld(of, pool, &obstacle);
                out_of_reach.extend(withheld.map(|_| pool));
                reasons.push(match withheld {
                    Some((instance_type, why)) => launches::withheld(name, instance_type, why),
                    None => launches::obstacle(name, instance_type.as_deref(), &obstacle),
                });
            }
            for (name, why) in &self.supply.not_ready {
                let pool = Some(name.clone());
                reasons.push(PodReason { pool, ..reason(PodCode::PoolNotReady, why.clone()) });
            }
        }
        if reasons.is_empty() {
            reasons.push(reason(PodCode::NoOfferFits, "no node and no offer fits".to_owned()));
        }
        reasons
    }
}

impl Planning<'_> {
    /// Where no node that a pool offers would take a class: what it allows and cannot be had that would, with its type, or what keeps
    /// it from offering anything.
    fn withheld(&self, of: &Class, pool: usize, obstacle: &Obstacle) -> Option<(Option<&str>, Withheld)> {
        if !obstacle.is_of_every_node() {
            return None;
        }
        let all = || self.supply.withheld.iter().filter(|(offer, _)| offer.pool == pool);
        let takes = |offer: &Offer| fit::fits(&of.shape, &offer.node, &offer.overhead).is_ok();
        let named = all().filter(|(offer, _)| takes(offer)).map(|(offer, why)| (*why, &*offer.instance_type)).min();
        let unnamed = || all().map(|(_, why)| *why).min().filter(|_| *obstacle == Obstacle::NothingOffered);
        named.map(|(why, name)| (Some(name), why)).or_else(|| unnamed().map(|why| (None, why)))
    }
}

/// Drops `minValues` pool by pool, where more pods find a place without those of the pool.
fn drop_min_values(problem: &mut Problem, plan: &mut packing::Plan) {
    for pool in 0..problem.pools.len() {
        if plan.refused().next().is_none() {
            return;
        }
        let asked = std::mem::take(&mut problem.pools[pool].min_values);
        if asked.is_empty() {
            continue;
        }
        let without = packing::plan(problem);
        if without.refused().count() < plan.refused().count() {
            *plan = without;
        } else {
            problem.pools[pool].min_values = asked;
        }
    }
}

/// Keys of which the node and its alternatives leave fewer values than `asked`.
fn fewer(problem: &Problem, node: &packing::NewNode, asked: &[(Arc<str>, u32)]) -> Vec<Relaxed> {
    let offers = || std::iter::once(&node.offer).chain(&node.alternatives).map(|offer| &problem.offers[*offer]);
    let left = |key: &Arc<str>| offers().filter_map(|offer| offer.node.labels.get(key)).collect::<BTreeSet<_>>().len();
    let short = asked.iter().zip(0..).filter(|((key, least), _)| left(key) < *least as usize);
    short.map(|(_, index)| Relaxed { what: RelaxedWhat::MinValues, index, weight: None }).collect()
}

/// A reason that is about no pool.
fn reason(code: PodCode, change: String) -> PodReason {
    PodReason { code, pool: None, instance_type: None, short: None, change: Some(change) }
}

/// Whether the pod says that nothing is to be launched for it.
fn stays_out(known: &Known) -> bool {
    let annotations = known.object.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(keys::DO_NOT_PROVISION)).is_some_and(|value| value == "true")
}
