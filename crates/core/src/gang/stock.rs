//! What a gang may use: nodes with everybody else's assignments counted, and whether a plan still holds on them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::apart::Met;
use super::asked::{self, Pending, RequestError};
use super::claims::{self, CountedOn};
use super::memory::Doubted;
use super::request::{Wanted, build_request};
use super::working::Working;
use super::working::watchdog::digest;
use super::{Decision, Pass, roles};
use crate::model::gang::{Gang, GangPlace, Membership, Phase, Pod, RankClaim, Recognised};
use crate::model::names::{NodeName, ObjectKey, PodUid};
use crate::model::node::Usage;
use crate::model::pod::Shape;
use crate::model::snapshot::Snapshot;
use crate::planner::check;
use crate::planner::plan::{GangRequest, Host, Plan, Problem, Report, RolePlace, SearchBudget, Seed};
use crate::reason::Stale;
use crate::{fit, planner};

/// How a node looks to one gang and to no other.
#[derive(Debug)]
pub(super) struct Own {
    /// Keys under which the gang holds assignments: its own, and that of its booking.
    pub(super) keys: Vec<ObjectKey>,
    /// Nodes with pods that its members must keep apart from.
    apart: BTreeMap<NodeName, Met>,
}

impl Own {
    /// Whether every gang that asks for the same sees the same nodes, as far as anti-affinity goes.
    pub(super) fn meets_nobody(&self) -> bool {
        self.apart.is_empty()
    }
}

impl Working<'_> {
    /// Why the plan no longer holds on this snapshot, if so.
    pub(super) fn stale(&self, gang: &Gang, wanted: &Wanted) -> Option<Stale> {
        if gang.minimum != wanted.needed {
            return Some(Stale::Needs { now: wanted.needed, then: gang.minimum });
        }
        if gang.minimums != wanted.minimums {
            return Some(Stale::Roles);
        }
        if gang.shape.as_ref().is_some_and(|shape| *shape != digest(wanted, self.world.settings.pending_taint)) {
            return Some(Stale::Shape);
        }
        let open = || gang.places.iter().filter(|place| !place.done);
        for place in open() {
            let pod = place.uid.as_ref().and_then(|uid| self.snapshot.pods.get(uid));
            if let Some(pod) = pod
                && let Some(node) = pod.node.as_ref().filter(|node| **node != place.node && pod.is_live())
            {
                // Adopted where it is: a binding is final.
                return Some(Stale::Moved { pod: Arc::clone(&pod.key.name), node: node.clone() });
            }
            if pod.is_some_and(|pod| pod.node.is_some() || pod.ended) {
                continue;
            }
            let Some(entry) = self.snapshot.nodes.get(&place.node) else {
                return Some(Stale::Gone(place.node.clone()));
            };
            if !entry.node.ready || entry.node.deleting || entry.node.unschedulable {
                return Some(Stale::NotReady(place.node.clone()));
            }
        }
        let refused = wanted.request.roles.iter().find_map(|role| {
            open()
                .filter(|place| place.role == role.name)
                .filter(|place| {
                    let pod = place.uid.as_ref().and_then(|uid| self.snapshot.pods.get(uid));
                    pod.is_none_or(|pod| pod.node.is_none() && !pod.ended)
                })
                .find(|place| self.is_excluded(&place.node, &role.shape))
        });
        if let Some(place) = refused {
            return Some(Stale::Refused(place.node.clone()));
        }
        // Members of the same gang on one node must fit there together, beside everybody else.
        let own = self.own(&gang.key);
        let shapes = shapes(wanted);
        let mut per_node: BTreeMap<&NodeName, Vec<Cow<'_, Shape>>> = BTreeMap::new();
        for place in open() {
            let pod = place.uid.as_ref().and_then(|uid| self.snapshot.pods.get(uid));
            if pod.is_none_or(|pod| pod.node.is_none() && !pod.ended) {
                let shape = shapes.get(&(&*place.role, place.rank)).copied();
                let shape = shape.map(|shape| claims::with_own_volumes(shape, pod.map(AsRef::as_ref)));
                per_node.entry(&place.node).or_default().extend(shape);
            }
        }
        for (node, members) in per_node {
            let Some(mut host) = self.host(node, &own) else {
                return Some(Stale::Assigned(node.clone()));
            };
            if let Some(met) = own.apart.get(node) {
                Arc::make_mut(&mut host.usage).own_shape_pods = met.others;
            }
            if let Some(why) = does_not_hold(&host, &members) {
                return Some(why);
            }
        }
        None
    }

    pub(super) fn request(
        &self,
        recognised: &Recognised,
        gang: &Gang,
        members: &[Arc<Pod>],
    ) -> Result<Wanted, RequestError> {
        self.request_moving(recognised, gang, members, &self.lost_in_tree(gang))
    }

    /// The same; of the members that wait for their binding only `moving` are placed again.
    pub(super) fn request_moving(
        &self,
        recognised: &Recognised,
        gang: &Gang,
        members: &[Arc<Pod>],
        moving: &BTreeSet<PodUid>,
    ) -> Result<Wanted, RequestError> {
        // After the commit point members that wait for their binding are not moved, unless their node is gone.
        let started = matches!(gang.phase, Some(Phase::Committing | Phase::Bound | Phase::Degraded));
        let fixed: BTreeSet<PodUid> = gang
            .places
            .iter()
            .filter(|place| started && self.snapshot.nodes.contains_key(&place.node))
            .filter_map(|place| place.uid.clone())
            .filter(|uid| !moving.contains(uid))
            .collect();
        self.request_keeping(recognised, gang, members, &fixed)
    }

    /// The same; members without a node that are `fixed` stay where the plan has them.
    pub(super) fn request_keeping(
        &self,
        recognised: &Recognised,
        gang: &Gang,
        members: &[Arc<Pod>],
        fixed: &BTreeSet<PodUid>,
    ) -> Result<Wanted, RequestError> {
        let values = self.tolerated(gang, recognised);
        let pending = Pending { taint: self.world.settings.pending_taint, values: &values };
        let done = self.done(gang);
        let wanted = build_request(recognised, gang, (members, &done), fixed, self.world.levels, &pending)?;
        let ready = members.iter().filter(|pod| pod.foreign_gate.is_none() && claims::awaited(pod).is_none());
        claims::enough(&ready.collect::<Vec<_>>(), &self.counted_on(gang, members))?;
        Ok(wanted)
    }

    /// Volumes that gangs with a plan count on, and so are not there for one without: each binds them on its own, one by one, and
    /// two that had half of them each would both wait for ever.
    fn counted_on(&self, gang: &Gang, members: &[Arc<Pod>]) -> CountedOn {
        let mut sum = CountedOn::new();
        if gang.phase.is_some_and(Phase::assigns_capacity) || members.iter().all(|pod| pod.claims.taken.is_empty()) {
            return sum;
        }
        let planned =
            |other: &Gang| other.phase.is_some_and(Phase::assigns_capacity) || self.planned.contains(&other.key);
        for other in self.snapshot.gangs.values().filter(|other| other.key != gang.key && planned(other)) {
            claims::count_on(self.snapshot.live_members(&other.key), &mut sum);
        }
        sum
    }

    /// Members that succeeded in this run: those of the plan, or, while there is none, beside members still bound. What
    /// succeeded in an earlier run of the same name is history.
    pub(super) fn done(&self, gang: &Gang) -> Vec<Arc<Pod>> {
        let running = || self.snapshot.live_members(&gang.key).any(|pod| pod.node.is_some());
        let none = gang.places.is_empty() || gang.phase == Some(Phase::Provisioning);
        let beside_bound = none && running();
        if !beside_bound && self.begins_again(gang) {
            return Vec::new();
        }
        let places = gang.places_by_uid();
        let there = self
            .snapshot
            .all_members(&gang.key)
            .filter(|pod| pod.is_done() && (beside_bound || places.contains_key(&pod.uid)));
        // A finished pod is cleaned up, or goes with its node, while the others run: it counts all the same.
        let is_gone = |place: &&GangPlace| {
            place.done && place.uid.as_ref().is_some_and(|uid| !self.snapshot.pods.contains_key(uid))
        };
        let gone = gang.places.iter().filter(is_gone);
        let gone = gone.filter_map(|place| Some(Arc::new(Pod::succeeded_in(&gang.key, place)?)));
        there.cloned().chain(gone).collect()
    }

    /// Whether the members of a gang without a plan are a run of their own: no owner makes a member again that succeeded, so one of
    /// the same rank says that all of them are.
    fn begins_again(&self, gang: &Gang) -> bool {
        let planned = matches!(
            gang.phase,
            Some(Phase::Planned | Phase::Released | Phase::Committing | Phase::Bound | Phase::Degraded)
        );
        let done: BTreeSet<(&Arc<str>, u32)> =
            gang.places.iter().filter(|place| place.done).map(|place| (&place.role, place.rank)).collect();
        if planned || done.is_empty() {
            return false;
        }
        let Some(recognised) = self.snapshot.recognised.get(&gang.key) else { return false };
        self.snapshot.live_members(&gang.key).any(|pod| match &pod.membership {
            Membership::Member { rank: RankClaim::Rank(rank), .. } => {
                done.contains(&(&roles::role_in(pod, recognised), *rank))
            }
            Membership::Member { .. } | Membership::Unknown | Membership::Single => false,
        })
    }

    /// Until when no further round is provisioned: a round that was provisioned and did not hold the gang, or whose nodes refused
    /// it, must not be followed by another at once.
    pub(super) fn round_pause(&self, gang: &Gang) -> Option<Timestamp> {
        let pause = |rounds: u32, since: Timestamp| {
            let doublings = rounds.saturating_sub(1).min(5);
            since.saturating_add(self.world.settings.round_pause.saturating_mul(1 << doublings)).ok()
        };
        let waits = gang.round > 0 && gang.phase == Some(Phase::Waiting);
        let waiting = gang.since.filter(|_| waits).and_then(|since| pause(gang.round, since));
        // In whatever phase: a gang that is evicted collects its members first.
        let refused = self.memory.rounds().of_gang(&gang.key).and_then(|(rounds, last)| pause(rounds, last));
        waiting.max(refused)
    }

    /// Values of the pending taint that belong to the gang: its own UID, or that of its booking.
    pub(super) fn tolerated(&self, gang: &Gang, recognised: &Recognised) -> Vec<Arc<str>> {
        let booking = recognised.booking.as_ref().and_then(|name| {
            self.world.bookings.get(&ObjectKey::new(Arc::clone(&gang.key.namespace), Arc::clone(name)))
        });
        std::iter::once(Arc::clone(&gang.uid)).chain(booking.cloned()).collect()
    }

    /// Plans the gang; without the nodes where its members were refused again and again, if it can be.
    pub(super) fn plan(&mut self, request: &GangRequest, gang: &Gang, pass: &mut Pass) -> (Plan, Report) {
        if self.memory.doubts_any(&gang.key, self.world.now) {
            let (plan, report) = self.plan_on(Doubted::Excluded, request, gang, pass);
            if report.refusal.is_none() {
                return (plan, report);
            }
        }
        self.plan_on(Doubted::Offered, request, gang, pass)
    }

    pub(super) fn plan_on(
        &mut self,
        doubted: Doubted,
        request: &GangRequest,
        gang: &Gang,
        pass: &mut Pass,
    ) -> (Plan, Report) {
        pass.plans = pass.plans.saturating_add(1);
        if !self.seen {
            self.ledger.see(&self.snapshot, self.world.levels);
            self.seen = true;
        }
        let own = self.own(&gang.key);
        let hosts = self.own_hosts(request, &own);
        let policy = &self.world.settings.policy;
        // The ledger knows nothing of nodes that are excluded: gangs that ask for something else are planned with it all the same.
        let without = |node: &NodeName| {
            doubted == Doubted::Excluded && self.memory.doubts(&gang.key, node, self.world.now) && !holds(request, node)
        };
        let excluded = self.excludes_any(request) || doubted == Doubted::Excluded;
        let answer = if excluded { None } else { self.ledger.plan(request, policy, hosts, judged) };
        let problem = || {
            let usable = |node: &&NodeName| !excluded || !(without(node) || self.is_closed_to(node, request));
            let hosts = self.snapshot.nodes.keys().filter(usable).filter_map(|node| self.host(node, &own));
            let hosts = hosts.map(|host| self.with_fixed(host, request)).collect();
            Problem { levels: self.world.levels.clone(), hosts, gang: request.clone() }
        };
        let (plan, report, fatal) = answer.unwrap_or_else(|| {
            let problem = problem();
            let (plan, report) = planner::plan(&problem, policy, SearchBudget::default(), Seed::default());
            judged(&problem, plan, report)
        });
        let recorded = self.world.settings.record.then(problem);
        if !fatal.is_empty() {
            // A plan with a fatal note is never executed; the gang waits, and the bug is reported.
            pass.refused_plans.push((gang.key.clone(), fatal));
        }
        pass.decisions.extend(recorded.map(|problem| Decision {
            gang: gang.key.clone(),
            at: self.world.now,
            policy: self.world.settings.policy,
            problem,
            plan: plan.clone(),
            report: report.clone(),
        }));
        (plan, report)
    }

    /// Whether kube-scheduler refused a shape of the gang there lately. A node that holds a member stays: the plan is made
    /// around it.
    fn is_closed_to(&self, node: &NodeName, request: &GangRequest) -> bool {
        request.roles.iter().any(|role| self.is_excluded(node, &role.shape)) && !holds(request, node)
    }

    /// Hosts that look otherwise to the gang than to one without assignments of its own: what it was assigned there is its
    /// own, members on their way to them count, and so do pods that its members must keep apart from.
    fn own_hosts(&self, request: &GangRequest, own: &Own) -> Vec<Host> {
        let places = request.roles.iter().flat_map(|role| &role.places);
        let coming = places.filter_map(|place| {
            let pod = self.snapshot.pods.get(place.uid.as_ref()?)?;
            place.bound.clone().filter(|_| pod.node.is_none())
        });
        let apart = own.apart.keys().cloned();
        let nodes: BTreeSet<NodeName> = self.ledger.held(&own.keys).into_iter().chain(coming).chain(apart).collect();
        let hosts = nodes.iter().filter_map(|node| self.host(node, own));
        hosts.map(|host| self.with_fixed(host, request)).collect()
    }

    /// What is the gang's alone, for [`Self::host`].
    pub(super) fn own(&self, gang: &ObjectKey) -> Own {
        Own { keys: self.own_keys(gang), apart: self.apart.met(&self.snapshot, gang) }
    }

    /// Keys under which the gang holds assignments: its own, and that of its booking.
    pub(super) fn own_keys(&self, gang: &ObjectKey) -> Vec<ObjectKey> {
        let booking = self.snapshot.recognised.get(gang).and_then(|recognised| recognised.booking.clone());
        let booking = booking.map(|name| Snapshot::booking_key(&gang.namespace, &name));
        std::iter::once(gang.clone()).chain(booking).collect()
    }

    /// A node as the gang may use it: what is assigned to others counts as used. `None` if it is theirs alone.
    pub(super) fn host(&self, node: &NodeName, own: &Own) -> Option<Host> {
        let entry = self.snapshot.nodes.get(node)?;
        let assigned = self.snapshot.assigned_to_others(node, &own.keys)?;
        // The planner knows which members are bound there, and counts them off again.
        let apart = own.apart.get(node).map(|met| met.others.saturating_add(met.own));
        let usage = if assigned.is_nothing() && apart.is_none() {
            Arc::clone(&entry.usage)
        } else {
            let mut usage = Usage::clone(&entry.usage);
            usage.join(&assigned);
            usage.own_shape_pods = apart.unwrap_or(0);
            Arc::new(usage)
        };
        Some(Host { node: Arc::clone(&entry.node), usage })
    }

    /// A host with what the gang's fixed members will hold there: they are not in its usage before their bindings are
    /// seen, and the gang's own assignments are not counted.
    fn with_fixed(&self, host: Host, request: &GangRequest) -> Host {
        let coming = |place: &&RolePlace| {
            let pod = place.uid.as_ref().and_then(|uid| self.snapshot.pods.get(uid));
            place.bound.as_ref() == Some(&host.node.name) && pod.is_some_and(|pod| pod.node.is_none())
        };
        let coming: Vec<(&Shape, usize)> = request
            .roles
            .iter()
            .map(|role| (&role.shape, role.places.iter().filter(coming).count()))
            .filter(|(_, count)| *count > 0)
            .collect();
        if coming.is_empty() {
            return host;
        }
        let mut usage = Usage::clone(&host.usage);
        for (shape, count) in coming {
            for _ in 0..count {
                usage.add(shape);
            }
        }
        Host { node: host.node, usage: Arc::new(usage) }
    }

    pub(super) fn fits_on_empty_cluster(&self, request: &GangRequest, pass: &mut Pass) -> bool {
        let problem = Problem {
            levels: self.world.levels.clone(),
            hosts: self
                .snapshot
                .nodes
                .values()
                .map(|entry| Host { node: Arc::clone(&entry.node), usage: Arc::default() })
                .collect(),
            gang: request.clone(),
        };
        pass.plans = pass.plans.saturating_add(1);
        let (plan, report) =
            planner::plan(&problem, &self.world.settings.policy, SearchBudget::default(), Seed::default());
        report.refusal.is_none() && !plan.places.is_empty()
    }
}

/// Whether the node holds a member already: the plan is made around it.
fn holds(request: &GangRequest, node: &NodeName) -> bool {
    let places = request.roles.iter().flat_map(|role| &role.places);
    places.into_iter().any(|place| place.bound.as_ref() == Some(node))
}

/// A plan as the checker leaves it, and its fatal notes.
fn judged(problem: &Problem, mut plan: Plan, report: Report) -> (Plan, Report, Vec<String>) {
    let notes = if plan.places.is_empty() { Vec::new() } else { check::check(problem, &plan) };
    let fatal = notes.into_iter().filter(|note| note.severity == check::Severity::Fatal);
    let fatal: Vec<String> = fatal.map(|note| note.to_string()).collect();
    if !fatal.is_empty() {
        plan.places.clear();
    }
    (plan, report, fatal)
}

/// What each place that is still to be held asks for, by role and rank.
fn shapes(wanted: &Wanted) -> BTreeMap<(&str, u32), &Shape> {
    let roles = wanted.request.roles.iter().zip(&wanted.ranks);
    roles.flat_map(|(role, ranks)| ranks.iter().map(|rank| ((&*role.name, *rank), &role.shape))).collect()
}

/// Why a host does not hold these members together, if so.
fn does_not_hold(host: &Host, members: &[Cow<'_, Shape>]) -> Option<Stale> {
    let first = &**members.first()?;
    let node = || host.node.name.clone();
    if members.iter().all(|shape| **shape == *first) {
        let wanted = asked::count(members.len());
        return match fit::slots(first, &host.node, &host.usage) {
            Ok(slots) if slots >= wanted => None,
            Ok(slots) => Some(Stale::Holds { node: node(), slots, planned: wanted }),
            Err(misfit) => Some(Stale::Misfit { node: node(), misfit }),
        };
    }
    let mut usage = Usage::clone(&host.usage);
    members.iter().find_map(|shape| {
        let misfit = fit::fits(shape, &host.node, &usage).err();
        usage.add(shape);
        misfit.map(|misfit| Stale::Misfit { node: node(), misfit })
    })
}
