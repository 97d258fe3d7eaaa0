//! One gang before it is placed: collecting, waiting, provisioning, planning.

pub(super) mod alike;
pub(super) mod loss;
pub(super) mod reports;
mod unused;
pub(super) mod watchdog;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::apart::Apart;
use super::asked::RequestError;
use super::memory::{Memory, Note};
use super::purchase::{Purchase, Purchases, Short};
use super::request::Wanted;
use super::{
    Action, BatchRequest, BatchStage, BatchView, GangEvent, Ledger, Pass, StatusWrite, World, batch_name,
    distinct_nodes, has_plan, level_summary, notes, purchase, requeue, roles, waiting, wanted, withdraw,
};
use crate::model::gang::{Gang, GangPlace, Membership, Minimum, Phase, Pod, Recognised};
use crate::model::names::{NodeName, ObjectKey, PodUid};
use crate::model::node::Usage;
use crate::model::snapshot::{AssignedCapacity, Assignment, Snapshot};
use crate::offering::Exclusion;
use crate::planner::plan::{GangRequest, Host, Place, Plan, Refusal, Report};
use crate::reason::Why;
use crate::topology::ZONE_KEY;
use alike::Alike;
use watchdog::digest;

/// The working view of one pass: a snapshot that takes the assignments made in the pass; the published one stays as it
/// is.
pub(super) struct Working<'a> {
    pub(super) snapshot: Snapshot,
    /// With what this pass noted.
    pub(super) memory: Memory,
    pub(super) world: &'a World<'a>,
    pub(super) ledger: &'a mut Ledger,
    /// Whether the ledger has seen the snapshot. A pass that plans nothing does not look at the nodes.
    pub(super) seen: bool,
    /// Members of all gangs that were sent to kube-scheduler.
    pub(super) on_their_way: usize,
    /// Reports of what gangs wait for that this pass may still make.
    pub(super) reports_left: u32,
    /// Sentences that may be written again in this pass.
    pub(super) rephrased_left: u32,
    /// Pods that are being deleted and hold capacity, by node; found out once, where it is asked.
    pub(super) terminating: Option<Arc<BTreeMap<NodeName, Vec<Arc<Pod>>>>>,
    /// Nodes that are on their way into the cluster, and until when they are counted on; found out once, where it is asked.
    pub(super) joining: Option<Arc<BTreeMap<NodeName, Timestamp>>>,
    /// What was found out for gangs that ask for the same.
    pub(super) alike: Alike,
    /// Namespaces with pods of which nobody can say whose they are; found out once, where it is asked.
    pub(super) unknown: Option<BTreeSet<Arc<str>>>,
    /// Gangs that were given places in this pass.
    pub(super) planned: BTreeSet<ObjectKey>,
    /// Who stands where, for pods that keep apart.
    pub(super) apart: Apart,
}

impl Working<'_> {
    pub(super) fn gang(&mut self, key: &ObjectKey, pass: &mut Pass) {
        let recognised = self.snapshot.recognised.get(key).cloned();
        let Some(stated) = self.snapshot.gangs.get(key).cloned() else {
            // What has only ended is history.
            if let Some(recognised) = recognised.filter(|_| self.snapshot.live_members(key).next().is_some()) {
                pass.actions.push(Action::CreateGang(recognised));
            }
            return;
        };
        if stated.deleting {
            return;
        }
        let gang = self.with_done(&stated);
        // An unknown phase was written by a newer version: leave the object alone.
        let Some(phase) = gang.phase else { return };
        let Some(recognised) = recognised else {
            if self.snapshot.all_members(key).next().is_none() && !self.may_have_pods(&gang) {
                self.without_pods(&gang, phase, pass);
            }
            return;
        };
        if self.is_unread(&gang) {
            return;
        }
        let members: Vec<Arc<Pod>> = self.snapshot.live_members(key).cloned().collect();
        let mut next = Gang::clone(&gang);
        next.members = waiting::members(&recognised, members.len());
        let not_ready = notes::not_ready(&gang, &self.snapshot);
        let mut also = notes::note(&gang, &recognised, &members, not_ready, &mut next);
        also.extend(self.not_admitted(&gang, pass));
        let event = match phase {
            Phase::Collecting
            | Phase::Waiting
            | Phase::Invalid
            | Phase::Unsatisfiable
            | Phase::Finished
            | Phase::Provisioning => self.before_plan(&gang, &recognised, &members, &mut next, pass),
            Phase::Planned | Phase::Released => self.planned(&gang, &recognised, &members, &mut next, pass),
            Phase::Committing | Phase::Bound | Phase::Degraded => {
                self.committed(&gang, &recognised, &members, &mut next, pass)
            }
        };
        if gang.phase == Some(Phase::Provisioning)
            && next.phase.is_some_and(|phase| !phase.assigns_capacity())
            && has_plan(&next)
        {
            // What was assigned beside a purchase is terminated with it.
            withdraw(&gang, &mut next);
        }
        self.hold(&gang, &mut next, pass);
        self.give_up_unused(&gang, &next, pass);
        self.served(&next, &members, pass);
        if matches!(next.phase, Some(Phase::Bound | Phase::Finished)) && self.memory.knows(key) {
            self.note(Note::Settled { gang: key.clone() }, pass);
        }
        requeue::clear_nominations(&next, &members, pass);
        self.report(&gang, &next, &members, pass);
        self.discard_misplaced(&gang, &next, &members, pass);
        self.write(&stated, Some(&recognised), next, (event, also), pass);
    }

    /// The gang with a note of every place whose pod succeeded: that is final, and must not depend on how long the object stays.
    fn with_done(&self, gang: &Arc<Gang>) -> Arc<Gang> {
        let done = |place: &GangPlace| {
            let pod = place.uid.as_ref().filter(|_| !place.done).and_then(|uid| self.snapshot.pods.get(uid));
            pod.is_some_and(|pod| pod.is_done())
        };
        let mut gang = Arc::clone(gang);
        let news: Vec<usize> = (0..).zip(&gang.places).filter(|(_, place)| done(place)).map(|(at, _)| at).collect();
        for at in news {
            Arc::make_mut(&mut gang).places[at].done = true;
        }
        gang
    }

    /// Whether a pod with a place exists of which nobody can say whose it is, as while its owner cannot be read: the gang is
    /// left as it is until somebody can.
    fn is_unread(&self, gang: &Gang) -> bool {
        placed(&self.snapshot, gang).any(|pod| pod.membership == Membership::Unknown)
    }

    /// Whether pods may be the gang's although none is recognised as a member: one with a place exists, or one of its
    /// namespace is unknown.
    fn may_have_pods(&mut self, gang: &Gang) -> bool {
        placed(&self.snapshot, gang).next().is_some() || self.has_unknown(&gang.key.namespace)
    }

    /// Whether a gang all of whose known members ended may have others. Where every place has a pod that ended, it has none.
    pub(super) fn may_have_others(&mut self, gang: &Gang) -> bool {
        let ended = |place: &&GangPlace| {
            let pod = || self.snapshot.pods.get(place.uid.as_ref()?);
            place.done || pod().is_some_and(|pod| pod.ended)
        };
        let over = gang.places.iter().filter(ended).count();
        (over == 0 || over < gang.places.len()) && self.has_unknown(&gang.key.namespace)
    }

    fn has_unknown(&mut self, namespace: &str) -> bool {
        let unknown = self
            .unknown
            .get_or_insert_with(|| self.snapshot.pods.unknown().map(|pod| Arc::clone(&pod.key.namespace)).collect());
        unknown.contains(namespace)
    }

    /// All pods are gone: what nobody owns is deleted, what has an owner dies with it.
    pub(super) fn without_pods(&mut self, gang: &Arc<Gang>, phase: Phase, pass: &mut Pass) {
        if phase == Phase::Finished {
            pass.actions.push(Action::DeleteGang { gang: Arc::clone(gang) });
            return;
        }
        if self.holds_for_restart(gang, pass) {
            return;
        }
        let mut next = Gang::clone(gang);
        next.members = Arc::from("0/0");
        if phase == Phase::Degraded && !self.world.ending.contains(&gang.key) {
            let event = loss::restart(gang, &mut next, self.held_until());
            return self.write(gang, None, next, (Some(event), Vec::new()), pass);
        }
        withdraw(gang, &mut next);
        next.places.clear();
        next.phase = Some(Phase::Finished);
        next.waiting = None;
        next.held = None;
        let event = (next.phase != gang.phase).then(|| GangEvent {
            reason: "Finished",
            message: "all members are gone".to_owned(),
            warning: false,
        });
        self.write(gang, None, next, (event, Vec::new()), pass);
    }

    pub(super) fn before_plan(
        &mut self,
        gang: &Arc<Gang>,
        recognised: &Arc<Recognised>,
        members: &[Arc<Pod>],
        next: &mut Gang,
        pass: &mut Pass,
    ) -> Option<GangEvent> {
        if members.is_empty() {
            // The job ended while it waited, or between two restarts of its pods.
            if self.holds_for_restart(gang, pass) {
                return None;
            }
            return self.nothing_to_place(gang, recognised, next);
        }
        let wanted = match self.request(recognised, gang, members) {
            Ok(wanted) => wanted,
            Err(RequestError::Invalid(invalid)) => return waiting::invalid(gang, next, &invalid),
            Err(error) => {
                let why = waiting::missing(&error, false);
                return why.and_then(|why| waiting::collecting(gang, next, &why));
            }
        };
        if let Some(until) = self.rests(gang) {
            self.requeue(pass, Some(until), SignedDuration::ZERO);
            return None;
        }
        let batch = gang.batch.as_ref().and_then(|name| self.world.batches.get(name));
        if self.is_provisioning(gang, batch, pass) {
            return waiting::provisioning(next, batch);
        }
        let (plan, report) = self.plan(&wanted.request, gang, pass);
        if report.refusal.is_none() && !plan.places.is_empty() {
            if let Some(batch) = batch.filter(|batch| batch.stage == BatchStage::BackingOff) {
                pass.actions.push(Action::AbandonBatch { name: Arc::clone(&batch.name), why: None });
            }
            return Some(self.adopt(gang, &wanted, &plan, &report, next));
        }
        let Some(refusal) = report.refusal else {
            // The checker refused the plan, which is a bug of ours: money does not mend it.
            return waiting::does_not_fit(gang, next, &Why::PlanRejected);
        };
        if let Some(until) = self.excluded_until(&wanted.request) {
            // Nodes that could be provisioned are refused for the same reason, until it is known better.
            self.requeue(pass, Some(until), SignedDuration::ZERO);
            return waiting::excluded(gang, next, &refusal, until);
        }
        match batch.map(|batch| (batch, batch.stage)) {
            Some((batch, BatchStage::BackingOff)) if gang.phase == Some(Phase::Provisioning) && has_plan(gang) => {
                // What was to stand beside running nodes cannot be had: all of it, wherever it can.
                pass.actions.push(Action::AbandonBatch { name: Arc::clone(&batch.name), why: None });
                withdraw(gang, next);
                self.provision(gang, recognised, (&wanted, &refusal), Mix::Never, next, pass)
            }
            Some((batch, BatchStage::BackingOff)) => waiting::backing_off(next, batch, &refusal),
            // Nodes that were provisioned for the gang and do not hold it: the batch gives them back, then the next round.
            Some((batch, BatchStage::Ready)) => {
                self.does_not_fit_provisioned(gang, batch, (&wanted.request, &refusal), next, pass)
            }
            Some((batch, BatchStage::InUse)) if gang.phase == Some(Phase::Provisioning) => {
                self.does_not_fit_provisioned(gang, batch, (&wanted.request, &refusal), next, pass)
            }
            Some((_, BatchStage::Provisioning | BatchStage::InUse | BatchStage::Ending)) | None => {
                let joining = match recognised.booking {
                    None => self.awaited(gang, &wanted.request, &refusal),
                    Some(_) => None,
                };
                if let Some(joining) = joining {
                    self.requeue(pass, joining.until, SignedDuration::ZERO);
                    return waiting::joining(next, joining);
                }
                self.provision(gang, recognised, (&wanted, &refusal), Mix::Allowed, next, pass)
            }
        }
    }

    /// Whether nodes are on their way for the gang, whatever phase it is in: a member that was made again while they
    /// are provisioned must not lead to a second purchase.
    fn is_provisioning(&self, gang: &Gang, batch: Option<&BatchView>, pass: &mut Pass) -> bool {
        match batch {
            Some(batch) => batch.stage == BatchStage::Provisioning,
            // Named and not seen: the batch was created before the status was written, so this view may lag.
            None if gang.phase == Some(Phase::Provisioning) && gang.batch.is_some() => {
                let grace = self.world.settings.ready_grace;
                let young = gang.since.is_some_and(|since| self.world.now.duration_since(since) < grace);
                if young {
                    self.requeue(pass, gang.since, grace);
                }
                young
            }
            None => false,
        }
    }

    fn does_not_fit_provisioned(
        &mut self,
        gang: &Gang,
        batch: &BatchView,
        (request, refusal): (&GangRequest, &Refusal),
        next: &mut Gang,
        pass: &mut Pass,
    ) -> Option<GangEvent> {
        if gang.phase == Some(Phase::Waiting) {
            // Given up already, and still there: the deletion may have failed. Nothing is provisioned beside it.
            if let Some(until) = self.round_pause(gang).filter(|until| *until > self.world.now) {
                self.requeue(pass, Some(until), SignedDuration::ZERO);
            }
            pass.actions.push(Action::AbandonBatch { name: Arc::clone(&batch.name), why: None });
            return waiting::does_not_fit(gang, next, &Why::refused(refusal));
        }
        let grace = self.world.settings.ready_grace;
        if batch.since.is_none_or(|since| self.world.now.duration_since(since) < grace) {
            self.requeue(pass, batch.since, grace);
            return waiting::provisioned_but_not_fitting(next, refusal);
        }
        self.note_too_small(gang, batch, request, pass);
        pass.actions.push(Action::AbandonBatch { name: Arc::clone(&batch.name), why: None });
        waiting::does_not_fit(gang, next, &Why::refused(refusal))
    }

    pub(super) fn nothing_to_place(
        &mut self,
        gang: &Arc<Gang>,
        recognised: &Recognised,
        next: &mut Gang,
    ) -> Option<GangEvent> {
        if self.may_have_others(gang) {
            return None;
        }
        let ended = self.has_ended(gang);
        match gang.phase {
            Some(Phase::Finished) => None,
            _ if ended => {
                self.finish(gang, next);
                None
            }
            // Its pods are being deleted; what was reported of them stays true.
            Some(Phase::Invalid | Phase::Unsatisfiable) => None,
            Some(
                Phase::Collecting
                | Phase::Waiting
                | Phase::Provisioning
                | Phase::Planned
                | Phase::Released
                | Phase::Committing
                | Phase::Bound
                | Phase::Degraded,
            )
            | None => {
                let why = match roles::sizes(recognised, &[]) {
                    Some(sizes) => Why::Collecting { seen: 0, needed: sizes.needed, size: sizes.size, kept: false },
                    None => Why::SizeUnknown { seen: 0, kept: false },
                };
                waiting::collecting(gang, next, &why)
            }
        }
    }

    /// Assigns the places in the working snapshot and fills the next status.
    pub(super) fn adopt(
        &mut self,
        gang: &Arc<Gang>,
        wanted: &Wanted,
        plan: &Plan,
        report: &Report,
        next: &mut Gang,
    ) -> GangEvent {
        let request = &wanted.request;
        next.phase = Some(Phase::Planned);
        next.epoch = gang.epoch.saturating_add(1);
        let more = |running: &Minimum| running.minimum < wanted.needed || running.minimums != wanted.minimums;
        next.running = self.running(gang).filter(more);
        next.minimum = wanted.needed;
        next.minimums.clone_from(&wanted.minimums);
        next.shape = Some(digest(wanted, self.world.settings.pending_taint));
        next.places = self.assigned_places(wanted, &plan.places);
        next.levels.clone_from(&report.levels);
        next.waiting = None;
        self.assign(gang, request, &plan.places);
        GangEvent {
            reason: "Planned",
            message: format!(
                "placed {} members on {} nodes: {}",
                plan.places.len(),
                distinct_nodes(&next.places),
                level_summary(&report.levels)
            ),
            warning: false,
        }
    }

    pub(super) fn provision(
        &mut self,
        gang: &Arc<Gang>,
        recognised: &Arc<Recognised>,
        (wanted, refusal): (&Wanted, &Refusal),
        mix: Mix,
        next: &mut Gang,
        pass: &mut Pass,
    ) -> Option<GangEvent> {
        let request = &wanted.request;
        match refusal {
            Refusal::DoesNotFit(_) => {}
            // Its node may come back, or the member goes: nothing that could be provisioned would help meanwhile.
            Refusal::BoundOutside { .. } => return waiting::does_not_fit(gang, next, &Why::refused(refusal)),
            // It may fit as it is: nothing is provisioned before that is ruled out.
            Refusal::Undecided(_) => return waiting::does_not_fit(gang, next, &Why::refused(refusal)),
            // No node that could be provisioned changes a constraint that is not supported.
            Refusal::Unsupported { .. }
            | Refusal::MixedShapes { .. }
            | Refusal::MinimumAboveCount { .. }
            | Refusal::Slices { .. }
            | Refusal::UnknownLevel { .. } => return waiting::unsatisfiable(gang, next, refusal),
        }
        if recognised.booking.is_some() {
            return waiting::booking(next, recognised);
        }
        if let Some(until) = self.round_pause(gang).filter(|until| *until > self.world.now) {
            self.requeue(pass, Some(until), SignedDuration::ZERO);
            return waiting::does_not_fit(gang, next, &self.refused(gang, request, refusal));
        }
        let existing = wanted::existing(request);
        if existing.is_some() {
            let members: Vec<Arc<Pod>> = self.snapshot.live_members(&gang.key).cloned().collect();
            let until = wanted::awaited_until(&members, self.world.settings.settle);
            if let Some(until) = until.filter(|until| *until > self.world.now) {
                self.requeue(pass, Some(until), SignedDuration::ZERO);
                return None;
            }
        }
        let request = existing.as_ref().unwrap_or(request);
        let pools = self.open_pools(request);
        let placement_group = recognised.topology_requests.placement_group.as_ref();
        let zone_of = |node: &NodeName| self.snapshot.nodes.get(node)?.node.labels.get(ZONE_KEY).cloned();
        let short = Short {
            request,
            placement_group: placement_group.map(|topology_request| &*topology_request.value),
            bound_zones: &purchase::bound_zones(request, zone_of),
            levels: self.world.levels,
            pools: &pools,
            policy: &self.world.settings.policy,
        };
        let Purchases { mixed, whole, unsold } = purchase::purchases(&short, || match mix {
            Mix::Allowed => self.hosts_beside(gang, request),
            Mix::Never => Vec::new(),
        });
        let Some(Purchase { offers, zones, beside: places }) = mixed.or(whole) else {
            let pools = !self.world.pools.is_empty();
            let closed = unsold.iter().flat_map(|one| &one.why).filter_map(|why| match why {
                Exclusion::InVain { until } => Some(*until),
                _other => None,
            });
            let until = closed.min();
            self.requeue(pass, until, SignedDuration::ZERO);
            let one_day = self.one_day(request, pass);
            let passing = self.passing(gang, request, refusal);
            let why = Why::NothingOnSale { refusal: refusal.clone(), passing, pools, unsold, one_day };
            let waits = one_day || !pools || until.is_some();
            return waiting::nothing_to_provision(gang, next, &why, waits, until);
        };
        let round = gang.round.saturating_add(1);
        let name: Arc<str> = Arc::from(batch_name(&gang.uid, round));
        let count = offers.first().map_or(0, |offer| offer.count);
        pass.actions.push(Action::CreateBatch(Box::new(BatchRequest {
            gang: Arc::clone(gang),
            round,
            offers,
            placement_group: placement_group.map(|topology_request| Arc::clone(&topology_request.value)),
            zones,
        })));
        next.phase = Some(Phase::Provisioning);
        next.round = round;
        next.batch = Some(Arc::clone(&name));
        let why = Why::Provisioning { batch: Some((Arc::clone(&name), None)), count: Some(count) };
        next.waiting = Some(why.waiting(None));
        let mut beside = String::new();
        if !places.is_empty() {
            // Assigned in the write that names the purchase: nobody else takes this capacity meanwhile.
            beside = format!(" beside {} members on running nodes", places.len());
            next.epoch = gang.epoch.max(next.epoch).saturating_add(1);
            next.places = self.assigned_places(wanted, &places);
            self.assign(gang, request, &places);
        }
        Some(GangEvent {
            reason: "Provisioning",
            message: format!("provisioning {count} nodes in one batch ({name}){beside}: {refusal}"),
            warning: false,
        })
    }

    /// Running nodes as the gang may use them beside new ones.
    fn hosts_beside(&self, gang: &Gang, request: &GangRequest) -> Vec<Host> {
        let own = self.own(&gang.key);
        let hosts = self.snapshot.nodes.keys().filter_map(|node| self.host(node, &own));
        let excluded = |host: &Host| request.roles.iter().any(|role| self.is_excluded(&host.node.name, &role.shape));
        hosts.filter(|host| !excluded(host)).collect()
    }

    /// Assigns capacity in the working snapshot.
    fn assign(&mut self, gang: &Gang, request: &GangRequest, places: &[Place]) {
        self.alike.assigned();
        self.planned.insert(gang.key.clone());
        for place in places.iter().filter(|place| !place.bound) {
            let pod = place.uid.as_ref().and_then(|uid| self.snapshot.pods.get(uid));
            let like = || self.snapshot.live_members(&gang.key).next();
            self.apart.assign(&gang.key, &place.node, pod.or_else(like));
            let held = request.roles.get(place.role).map(|role| Usage::of(&role.shape)).unwrap_or_default();
            if self.seen {
                self.ledger.assign(&gang.key, &place.node, &held);
            }
            self.snapshot
                .assignments
                .entry(place.node.clone())
                .or_default()
                .push(Assignment { gang: gang.key.clone(), capacity: AssignedCapacity::Member(held) });
        }
    }

    /// Places as the status has them, those of members that succeeded included.
    fn assigned_places(&self, wanted: &Wanted, places: &[Place]) -> Vec<GangPlace> {
        let request = &wanted.request;
        let name = |uid: &PodUid| self.snapshot.pods.get(uid).map(|pod| Arc::clone(&pod.key.name));
        let place = |place: &Place| GangPlace {
            role: request.roles.get(place.role).map_or_else(|| Arc::from(""), |role| Arc::clone(&role.name)),
            rank: wanted.rank(place.role, place.rank),
            uid: place.uid.clone(),
            pod: place.uid.as_ref().and_then(name),
            node: place.node.clone(),
            done: false,
        };
        let mut places: Vec<GangPlace> = places.iter().map(place).chain(wanted.done.iter().cloned()).collect();
        // Role order, then rank: of members of one role that ask for different things, too.
        places.sort_by_key(|place| (recognised_order(request, &place.role), place.rank));
        places
    }

    pub(super) fn write(
        &mut self,
        gang: &Arc<Gang>,
        recognised: Option<&Arc<Recognised>>,
        mut next: Gang,
        (event, also): (Option<GangEvent>, Vec<GangEvent>),
        pass: &mut Pass,
    ) {
        if next.phase != gang.phase || next.epoch != gang.epoch {
            next.since = Some(self.world.now);
        }
        let since = reports::reason_since(gang, &next, self.world.now);
        if let Some(waiting) = &mut next.waiting {
            waiting.since = since;
        }
        if next == **gang {
            return;
        }
        if next.phase == Some(Phase::Planned) {
            self.requeue(pass, Some(self.world.now), self.world.settings.settle);
        }
        pass.actions.push(Action::WriteStatus(Box::new(StatusWrite {
            gang: Arc::clone(gang),
            recognised: recognised.cloned(),
            next,
            event,
            also,
        })));
    }

    pub(super) fn requeue(&self, pass: &mut Pass, since: Option<Timestamp>, after: SignedDuration) {
        let at = since.unwrap_or(self.world.now).saturating_add(after).unwrap_or(Timestamp::MAX);
        if at <= self.world.now {
            // What was due has been looked at in this very pass.
            return;
        }
        pass.requeue_at = Some(pass.requeue_at.map_or(at, |earlier| earlier.min(at)));
    }
}

/// Pods that exist and have a place in the gang's plan, whoever they are taken to belong to.
fn placed<'a>(snapshot: &'a Snapshot, gang: &'a Gang) -> impl Iterator<Item = &'a Arc<Pod>> {
    gang.places.iter().filter_map(|place| snapshot.pods.get(place.uid.as_ref()?))
}

/// Whether new nodes may stand beside running ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    /// Where the topology requests allow it.
    Allowed,
    /// It was tried and could not be had.
    Never,
}

/// Where a role stands among those of the request; one whose members have all succeeded comes last.
fn recognised_order(request: &GangRequest, role: &Arc<str>) -> usize {
    request.roles.iter().position(|one| one.name == *role).unwrap_or(usize::MAX)
}
