//! One gang: its request, its plan on the nodes of the dump, and else what is provisioned for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_api::keys;
use muster_core::fit::{self, Misfit};
use muster_core::gang::{Pending, RequestError, Wanted, build_request};
use muster_core::model::gang::{Pod, RoleStated};
use muster_core::model::names::{NodeName, PodUid};
use muster_core::model::node::Usage;
use muster_core::model::pod::Operator;
use muster_core::planner;
use muster_core::planner::check::{self, Severity};
use muster_core::planner::plan::{
    Change, GangRequest, Host, LevelIndex, Place, Plan, Problem, Refusal, Report, Role, RolePlace, SearchBudget, Seed,
};
use muster_core::reason::{Help, Why};

use super::requests::Request;
use super::work::{Pods, Work, placement_group, pseudo, recognised, refused};
use super::{Planning, assignments};
use crate::document::{
    Code, GangEntry, Gap, Ignored, LevelEntry, MemberEntry, MemberState, Outcome, Reason, RoleEntry, Score,
};
use crate::gangs::Found;
use crate::reasons::{self, described};
use crate::study::{Detail, Holds};
use crate::topology;

/// Claims named one by one.
const CLAIMS_SHOWN: usize = 3;

/// What is planned: the request, and which rank each place has in each role.
pub(super) struct Demand<'a> {
    pub(super) request: GangRequest,
    ranks: Vec<Vec<u32>>,
    pub(super) sample: Option<&'a Pod>,
    pub(super) placement_group: Option<Arc<str>>,
    pub(super) booked: bool,
}

/// Why there is nothing to plan.
pub(super) enum Nothing {
    /// As the server says it.
    Why(Box<Why>),
    /// What only a ProvisioningRequest can lack.
    Reason(Outcome, Reason),
}

impl Demand<'_> {
    pub(super) fn places(&self) -> impl Iterator<Item = &RolePlace> {
        self.request.roles.iter().flat_map(|role| &role.places)
    }
}

impl Planning<'_> {
    /// Plans one gang and takes its capacity.
    pub(super) fn gang(&mut self, work: &Work) -> (GangEntry, Detail) {
        let mut entry = self.blank(work);
        let mut detail =
            Detail { object: work.object(), exists: work.exists(), pods: work.pods(), ..Detail::default() };
        let demand = match self.demand(work) {
            Ok(demand) => demand,
            Err(Nothing::Why(why)) => {
                let invalid = matches!(*why, Why::Invalid(_));
                entry.outcome = if invalid { Outcome::Invalid } else { Outcome::Waiting };
                entry.reasons = reasons::of_why(&why);
                detail.why = Some(*why);
                return (entry, detail);
            }
            Err(Nothing::Reason(outcome, reason)) => {
                entry.outcome = outcome;
                entry.reasons.push(reason);
                return (entry, detail);
            }
        };
        entry.roles = roles(&demand.request);
        let assigned = self.release(&demand.request.key);
        let problem = self.problem(&demand);
        detail.focus = self.focus(&problem);
        if demand.places().all(|place| place.bound.is_some()) {
            self.running(&demand, work, &mut entry);
            return (entry, detail);
        }
        if let Work::Request(_) = work {
            // It books nodes of its own, whatever runs.
            entry.outcome = Outcome::Refused;
            self.provision(&demand, &problem, work, &mut entry, &mut detail);
            return (entry, detail);
        }
        let (plan, report, faults) = self.solve(&problem);
        match report.refusal.clone() {
            None if faults.is_empty() => {
                let (plan, levels) = match assignments::kept(&assigned, &problem, &plan) {
                    Some(plan) => {
                        let used = self.used(&plan);
                        let levels = used.into_iter().zip(&report.levels).map(|(used, best)| (used, best.optimum));
                        (plan, levels.collect())
                    }
                    None => (plan, levels_of(&report)),
                };
                self.take(&demand, work, &plan);
                self.describe(&demand, work, &plan, &levels, Vec::new(), &mut entry);
                entry.gap = gap_of(&report);
                self.note(&report, &mut detail);
            }
            None => {
                entry.outcome = Outcome::Refused;
                entry.reasons = faults;
            }
            Some(refusal) => {
                entry.outcome = Outcome::Refused;
                entry.reasons = reasons::of_refusal(&refusal, &problem, &self.policy, &self.kept(), &self.searched);
                let may_help = matches!(refusal, Refusal::DoesNotFit(_));
                let passing = match &refusal {
                    Refusal::DoesNotFit(shortfall) => self.passing(&problem, shortfall),
                    Refusal::Unsupported { .. }
                    | Refusal::MixedShapes { .. }
                    | Refusal::MinimumAboveCount { .. }
                    | Refusal::Slices { .. }
                    | Refusal::UnknownLevel { .. }
                    | Refusal::BoundOutside { .. }
                    | Refusal::Undecided(_) => Vec::new(),
                };
                entry.reasons.extend(passing.iter().map(|passing| Reason::from(passing.reason())));
                detail.holders = self.holders_of(&entry.reasons);
                detail.volumes = reached(&demand.request, work);
                detail.why = Some(Why::Refused { refusal: refusal.clone(), passing });
                detail.refusal = Some(refusal);
                if may_help && !self.awaits(&problem, &mut entry, &mut detail) {
                    self.provision(&demand, &problem, work, &mut entry, &mut detail);
                }
            }
        }
        (entry, detail)
    }

    /// What the planner is asked on the nodes as they are now.
    fn problem(&self, demand: &Demand<'_>) -> Problem {
        let (levels, hosts) = (self.levels.clone(), self.cluster.hosts(demand.sample));
        Problem { levels, hosts, gang: demand.request.clone() }
    }

    /// What the node that is asked about says to the gang's first role.
    fn focus(&self, problem: &Problem) -> Option<Result<u32, Misfit>> {
        let name = self.focus.as_ref()?;
        let host = problem.hosts.iter().find(|host| host.node.name == *name)?;
        Some(fit::slots(&problem.gang.roles.first()?.shape, &host.node, &host.usage))
    }

    /// Pods on the nodes that a reason names to be freed.
    fn holders_of(&self, reasons: &[Reason]) -> Vec<Holds> {
        let freed = reasons.iter().filter_map(|reason| match &*reason.help {
            Help::Change(Change::Free { nodes, .. }) => Some(nodes),
            _ => None,
        });
        let freed: BTreeSet<&NodeName> = freed.flatten().collect();
        self.holders.iter().filter(|holds| freed.contains(&holds.node)).cloned().collect()
    }

    /// What a plan's report says beside the document.
    pub(super) fn note(&self, report: &Report, detail: &mut Detail) {
        let name = |level: LevelIndex| self.levels.as_slice().get(level).map(|level| level.name.to_string());
        detail.ring_crossings.clone_from(&report.ring_crossings);
        detail.unplaced = report.unplaced;
        detail.preferred_missed = report.preferred_missed.and_then(name);
    }

    /// An entry without any outcome yet.
    fn blank(&self, work: &Work) -> GangEntry {
        let (namespace, name, source) = work.name();
        let roles = work.found().map_or_else(Vec::new, |found| {
            let seen = u32::try_from(found.members.len()).unwrap_or(u32::MAX);
            let stated = &found.stated;
            if !stated.roles.is_empty() {
                let entry = |role: &RoleStated| {
                    let count = role.count.unwrap_or(0);
                    RoleEntry { name: role.name.to_string(), count, min: role.min.unwrap_or(count).min(count) }
                };
                return stated.roles.iter().map(entry).collect();
            }
            let count = stated.size.unwrap_or_else(|| seen.max(stated.min.unwrap_or(0)));
            vec![RoleEntry { name: String::new(), count, min: stated.min.unwrap_or(count).min(count) }]
        });
        let none = vec![None; self.levels.len()];
        let levels = self.levels.as_slice().iter();
        GangEntry {
            namespace,
            name,
            source: source.to_owned(),
            outcome: Outcome::Invalid,
            roles,
            members: Vec::new(),
            levels: levels.map(|level| LevelEntry { key: level.key.to_string(), used: 0, optimum: None }).collect(),
            gap: Gap::None,
            score: Score { now: none.clone(), empty: none },
            reasons: Vec::new(),
            provision: Vec::new(),
        }
    }

    /// What is to be planned.
    ///
    /// Errors: why there is nothing to plan.
    fn demand<'w>(&mut self, work: &'w Work) -> Result<Demand<'w>, Nothing> {
        match work {
            Work::Pods(pods) => self.of_pods(pods),
            Work::Request(request) => self.of_request(request),
        }
    }

    fn of_pods<'w>(&mut self, pods: &'w Pods) -> Result<Demand<'w>, Nothing> {
        let Pods { found, .. } = pods;
        if let Some(fault) = &found.fault {
            return Err(Nothing::Why(Box::new(Why::Invalid(fault.clone()))));
        }
        let stated = &found.stated;
        if let Some(job) = found.suspended.as_ref().filter(|_| found.members.is_empty() && stated.invalid.is_none()) {
            let (kind, name) = job;
            let why = Why::Suspended { kind: kind.as_str().into(), name: name.as_str().into() };
            return Err(Nothing::Why(Box::new(why)));
        }
        let members: Vec<_> = found.members.values().map(|known| Arc::clone(&known.core)).collect();
        let wanted = self.untrimmed(pods, &members);
        let mut wanted = wanted.map_err(|error| Nothing::Why(Box::new(refused(error))))?;
        self.report_surplus(found, &wanted.request);
        trim(&mut wanted, &found.done, found.done_unranked);
        let Wanted { request, ranks, .. } = wanted;
        let sample = found.members.values().map(|known| &*known.core).next();
        Ok(Demand {
            request,
            ranks,
            sample,
            placement_group: placement_group(&stated.topology_requests),
            booked: stated.booking.is_some(),
        })
    }

    /// What these members ask for together.
    ///
    /// Errors: why that is nothing that can be planned.
    pub(super) fn wanted(&self, pods: &Pods, members: &[Arc<Pod>]) -> Result<Wanted, RequestError> {
        let mut wanted = self.untrimmed(pods, members)?;
        trim(&mut wanted, &pods.found.done, pods.found.done_unranked);
        Ok(wanted)
    }

    /// The same with places of members that ended: a dump may have lost their pods and still say how many there were.
    fn untrimmed(&self, pods: &Pods, members: &[Arc<Pod>]) -> Result<Wanted, RequestError> {
        let Pods { found, pending, .. } = pods;
        let bound = members.iter().any(|member| member.node.is_some());
        let started = bound || !found.done.is_empty() || found.done_unranked > 0;
        let values = Pending { taint: keys::GANG_PENDING, values: pending };
        let gang = pseudo(&found.stated, started);
        build_request(&found.stated, &gang, (members, &[]), &BTreeSet::new(), &self.levels, &values)
    }

    fn of_request<'w>(&self, request: &Request) -> Result<Demand<'w>, Nothing> {
        let Request { key, topology_requests, wanted, invalid, .. } = request;
        let (count, shape) = wanted.as_ref().map_err(|reason| {
            let outcome = if reason.code == Code::TemplateNotFound { Outcome::Waiting } else { Outcome::Invalid };
            Nothing::Reason(outcome, reason.clone())
        })?;
        // The topology requests are read as those of a gang; the members follow.
        let stated = recognised(key, topology_requests, invalid.clone());
        let values = Pending { taint: keys::GANG_PENDING, values: &[] };
        let read = build_request(&stated, &pseudo(&stated, true), (&[], &[]), &BTreeSet::new(), &self.levels, &values);
        let read = read.map_err(|error| Nothing::Why(Box::new(refused(error))))?.request;
        let size = u32::try_from(*count).unwrap_or(u32::MAX);
        let places = vec![RolePlace::default(); *count];
        let role = Role { name: "".into(), shape: shape.clone(), min: size, places };
        let request = GangRequest { key: key.clone(), roles: vec![role], topology_requests: read.topology_requests };
        Ok(Demand {
            request,
            ranks: vec![(0..size).collect()],
            sample: None,
            placement_group: placement_group(topology_requests),
            booked: false,
        })
    }

    /// Live members that the gang has no place for.
    fn report_surplus(&mut self, found: &Found, request: &GangRequest) {
        let places = || request.roles.iter().flat_map(|role| &role.places);
        let holders: BTreeSet<&PodUid> = places().filter_map(|place| place.uid.as_ref()).collect();
        let size = places().count();
        for (uid, known) in &found.members {
            if known.exists && known.core.foreign_gate.is_none() && !holders.contains(uid) {
                let name = known.core.key.name.to_string();
                let why = format!("gang {} has {size} members, this one is beyond them", found.stated.source.identity);
                self.ignored.push(Ignored { kind: "Pod".to_owned(), name, why });
            }
        }
    }

    /// A gang of which every place is taken: nothing is planned, what stands is described.
    fn running(&self, demand: &Demand<'_>, work: &Work, entry: &mut GangEntry) {
        let mut places = Vec::new();
        for (index, role) in demand.request.roles.iter().enumerate() {
            for (rank, place) in (0..).zip(&role.places) {
                let Some(node) = place.bound.clone() else { continue };
                places.push(Place { role: index, rank, uid: place.uid.clone(), node, bound: true });
            }
        }
        let plan = Plan { version: Plan::VERSION, gang: demand.request.key.clone(), places };
        let levels: Vec<(u32, u32)> = self.used(&plan).into_iter().map(|used| (used, used)).collect();
        self.describe(demand, work, &plan, &levels, Vec::new(), entry);
    }

    /// Domains per level that hold a member.
    fn used(&self, plan: &Plan) -> Vec<u32> {
        let names: BTreeSet<&NodeName> = plan.places.iter().map(|place| &place.node).collect();
        let nodes = names.into_iter().filter_map(|name| self.cluster.node(name)).map(|node| &**node);
        topology::used(&self.levels, nodes)
    }

    /// Every place a plan gives holds capacity from now on.
    pub(super) fn take(&mut self, demand: &Demand<'_>, work: &Work, plan: &Plan) {
        for place in plan.places.iter().filter(|place| !place.bound) {
            let first = || work.found()?.members.values().next();
            let pattern = work.member(place.uid.as_ref()).or_else(first);
            let mut held = Usage::default();
            if let Some(role) = demand.request.roles.get(place.role) {
                held.requested.add(&role.shape.requests);
                held.ports.extend(role.shape.ports.iter().cloned());
            }
            self.cluster.add(&place.node, pattern.map(|known| &known.core), &held);
            self.standing.extend(pattern.map(|known| (place.node.clone(), Arc::clone(&known.object))));
            self.taken.push((place.node.clone(), demand.request.key.clone(), held));
        }
    }

    /// Members, levels and score of a plan; `levels` are used and optimum, `new` the nodes provisioned for it.
    pub(super) fn describe(
        &self,
        demand: &Demand<'_>,
        work: &Work,
        plan: &Plan,
        levels: &[(u32, u32)],
        new: Vec<Host>,
        entry: &mut GangEntry,
    ) {
        entry.outcome = if new.is_empty() { Outcome::Placed } else { Outcome::Provision };
        for place in &plan.places {
            let known = work.member(place.uid.as_ref()).filter(|known| known.exists);
            let ranks = demand.ranks.get(place.role);
            let rank = ranks.and_then(|ranks| ranks.get(usize::try_from(place.rank).ok()?)).copied();
            entry.members.push(MemberEntry {
                pod: known.map(|known| known.core.key.name.to_string()),
                uid: known.and_then(|known| known.uid.clone()),
                role: demand.request.roles.get(place.role).map_or_else(String::new, |role| role.name.to_string()),
                rank: rank.unwrap_or(place.rank),
                node: place.node.to_string(),
                state: if place.bound { MemberState::Running } else { MemberState::Planned },
            });
        }
        // Members of one role that ask for different things are several roles of the request.
        let order = |name: &str| entry.roles.iter().position(|role| role.name == name);
        entry.members.sort_by_key(|member| (order(&member.role), member.rank));
        for (level, (used, optimum)) in entry.levels.iter_mut().zip(levels) {
            level.used = *used;
            level.optimum = Some(*optimum);
        }
        entry.score.now = levels.iter().map(|(used, optimum)| ratio(*optimum, *used)).collect();
        let empty = self.optimum_when_empty(demand, plan, new);
        let against = |(level, (used, _)): (usize, &(u32, u32))| ratio(*empty.as_ref()?.get(level)?, *used);
        entry.score.empty = levels.iter().enumerate().map(against).collect();
    }

    /// Domains per level of the best placement of as many members on the same nodes without any pod.
    fn optimum_when_empty(&self, demand: &Demand<'_>, plan: &Plan, new: Vec<Host>) -> Option<Vec<u32>> {
        let mut request = demand.request.clone();
        for (index, role) in request.roles.iter_mut().enumerate() {
            let count = plan.places.iter().filter(|place| place.role == index).count();
            role.places = vec![RolePlace::default(); count];
            role.min = u32::try_from(count).unwrap_or(u32::MAX);
        }
        let mut hosts = self.cluster.empty_hosts();
        if !new.is_empty() {
            request.topology_requests = self.without_network(request.topology_requests, &new);
            hosts.extend(new);
        }
        let problem = Problem { levels: self.levels.clone(), hosts, gang: request };
        let (_, report, _) = self.solve(&problem);
        report.refusal.is_none().then(|| report.levels.iter().map(|level| level.used).collect())
    }

    /// Plan, report, and what the checker found wrong.
    pub(super) fn solve(&self, problem: &Problem) -> (Plan, Report, Vec<Reason>) {
        let (plan, report) = planner::plan(problem, &self.policy, SearchBudget::default(), Seed::default());
        self.searched.add(report.work);
        let notes = if report.refusal.is_some() { Vec::new() } else { check::check(problem, &plan) };
        let fatal = notes.into_iter().filter(|note| note.severity == Severity::Fatal);
        let faults = fatal.map(|note| described(Code::PlanRejected, note.to_string())).collect();
        (plan, report, faults)
    }
}

/// Where the volumes of the members are, if zones are named.
fn reached(request: &GangRequest, work: &Work) -> Option<String> {
    let shapes = request.roles.iter().map(|role| &role.shape);
    let requirements = shapes.flat_map(|shape| shape.volumes.iter().flatten()).flat_map(|term| &term.expressions);
    let of_zone = requirements.filter(|one| one.operator == Operator::In && one.key.ends_with("/zone"));
    let zones: BTreeSet<&str> = of_zone.flat_map(|one| &one.values).map(|zone| &**zone).collect();
    let members = work.found()?.members.values();
    let volumes = members.filter_map(|known| known.object.spec.as_ref()?.volumes.as_ref()).flatten();
    let claims: BTreeSet<&str> =
        volumes.filter_map(|volume| Some(&*volume.persistent_volume_claim.as_ref()?.claim_name)).collect();
    let word = match claims.len() {
        0 => return None,
        1 => "claim",
        _ => "claims",
    };
    let mut named: Vec<&str> = claims.iter().copied().take(CLAIMS_SHOWN).collect();
    named.extend((claims.len() > CLAIMS_SHOWN).then_some("…"));
    let zones: Vec<&str> = zones.into_iter().collect();
    (!zones.is_empty()).then(|| format!("{word} {} in {}", named.join(", "), zones.join(", ")))
}

/// How far the plan may be from the best.
pub(super) fn gap_of(report: &Report) -> Gap {
    report.gap.as_ref().map_or(Gap::None, |gap| Gap::Open {
        field: gap.field.to_string(),
        achieved: gap.achieved,
        bound: gap.bound,
    })
}

pub(super) fn levels_of(report: &Report) -> Vec<(u32, u32)> {
    report.levels.iter().map(|level| (level.used, level.optimum)).collect()
}

/// Takes places out of the roles whose members have done their work, those of ranks that are known first.
fn trim(wanted: &mut Wanted, done: &BTreeSet<(Arc<str>, u32)>, mut unranked: usize) {
    let roles = wanted.request.roles.iter_mut().zip(&mut wanted.ranks);
    for (role, ranks) in roles.rev() {
        let before = role.places.len();
        let name = Arc::clone(&role.name);
        let gone = |rank: u32| done.contains(&(Arc::clone(&name), rank));
        let mut kept: Vec<(u32, RolePlace)> = std::mem::take(ranks)
            .into_iter()
            .zip(std::mem::take(&mut role.places))
            .filter(|(rank, place)| place.uid.is_some() || !gone(*rank))
            .collect();
        for index in (0..kept.len()).rev() {
            if unranked > 0 && kept.get(index).is_some_and(|(_, place)| place.uid.is_none()) {
                kept.remove(index);
                unranked -= 1;
            }
        }
        role.min = role.min.saturating_sub(u32::try_from(before - kept.len()).unwrap_or(u32::MAX));
        (*ranks, role.places) = kept.into_iter().unzip();
    }
}

/// Optimum over achieved, never above 1: with more domains above, fewer may do below.
fn ratio(optimum: u32, used: u32) -> Option<f64> {
    (used > 0).then(|| (f64::from(optimum) / f64::from(used)).min(1.0))
}

fn roles(request: &GangRequest) -> Vec<RoleEntry> {
    let mut entries: Vec<RoleEntry> = Vec::new();
    for role in &request.roles {
        let count = u32::try_from(role.places.len()).unwrap_or(u32::MAX);
        match entries.iter_mut().find(|entry| *entry.name == *role.name) {
            Some(entry) => (entry.count, entry.min) = (entry.count + count, entry.min + role.min),
            None => entries.push(RoleEntry { name: role.name.to_string(), count, min: role.min }),
        }
    }
    entries
}
