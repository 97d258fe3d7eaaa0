//! Released and committed members that do not arrive: what kube-scheduler says against them, and what follows.
//!
//! `docs/races.md` has a row for each of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::Working;
use crate::extender;
use crate::gang::asked::count;
use crate::gang::claims;
use crate::gang::memory::{ALIKE, Doubted, IN_ALL, Note};
use crate::gang::refused::{Refused, refused, refused_again, scheduler_error};
use crate::gang::request::Wanted;
use crate::gang::{GangEvent, Pass, withdraw};
use crate::model::gang::{Gang, GangPlace, Minimum, Phase, Pod, Recognised, Waiting};
use crate::model::names::{NodeName, PodUid};
use crate::model::pod::Shape;
use crate::planner::plan::{GangRequest, Role};
use crate::reason::{Code, Why};

/// A released member that kube-scheduler refuses is nominated and requeued again after this, then after pauses that double up
/// to `release.renominate`: kube-scheduler alone would leave it in its queue for minutes where its view merely lagged.
pub(in crate::gang) const REQUEUE_AGAIN: SignedDuration = SignedDuration::from_secs(1);

/// … so long after the release that a lag of kube-scheduler's view is over, and for the second time: then it is trusted, if it
/// refuses the member once more.
const REQUEUED_TWICE: SignedDuration = SignedDuration::from_secs(2);
/// Members that kube-scheduler has reported nothing about are counted after this.
pub(in crate::gang) const NOT_TRIED: SignedDuration = SignedDuration::from_secs(3);

impl Working<'_> {
    /// A released gang some of whose members kube-scheduler refuses again after each requeue: the gang is planned without their
    /// nodes at once, if it can be. Otherwise the plan stays as it is, and the timers of [`Working::refusal`] decide.
    pub(in crate::gang) fn doubt(
        &mut self,
        gang: &Arc<Gang>,
        recognised: &Recognised,
        wanted: Wanted,
        members: &[Arc<Pod>],
        next: &mut Gang,
        pass: &mut Pass,
    ) -> Option<GangEvent> {
        if gang.phase != Some(Phase::Released) || !self.memory.may_doubt(&gang.key, gang.epoch) {
            return None;
        }
        let caught_up = gang.since?.saturating_add(REQUEUED_TWICE).ok()?;
        let mut first: Option<Why> = None;
        let places = gang.places_by_uid();
        for pod in members.iter().filter(|pod| pod.node.is_none() && pod.foreign_gate.is_none()) {
            let (Some(place), Some(refused)) = (places.get(&pod.uid), refused(pod)) else { continue };
            if !refused_again(pod, &place.node, caught_up) {
                continue;
            }
            let doubted = Note::Doubted { gang: gang.key.clone(), epoch: gang.epoch, node: place.node.clone() };
            self.note(doubted, pass);
            let name = Arc::clone(&pod.key.name);
            first.get_or_insert(Why::SchedulerRefused { plans: None, pod: Some(name), stated: refused.message });
        }
        let why = first?;
        let (wanted, plan, report) = match self.plan_around_pins(gang, recognised, members, pass) {
            Some(around) => around,
            None => {
                let (plan, report) = self.plan_on(Doubted::Excluded, &wanted.request, gang, pass);
                (wanted, plan, report)
            }
        };
        if report.refusal.is_some() || plan.places.is_empty() {
            return None;
        }
        let mut event = self.adopt(gang, &wanted, &plan, &report, next);
        event.reason = "Replanned";
        event.message = format!("{why}; {}", event.message);
        Some(event)
    }

    /// The same of a committed gang: whoever is refused again after each requeue has no bind call under way, and is placed again
    /// while the others stay, if there is another place.
    pub(in crate::gang) fn doubt_committed(
        &mut self,
        gang: &Arc<Gang>,
        recognised: &Recognised,
        members: &[Arc<Pod>],
        next: &mut Gang,
        pass: &mut Pass,
    ) -> Option<GangEvent> {
        if gang.phase != Some(Phase::Committing) || !self.memory.may_doubt(&gang.key, gang.epoch) {
            return None;
        }
        let caught_up = gang.since?.saturating_add(REQUEUED_TWICE).ok()?;
        let places = gang.places_by_uid();
        let again = |pod: &&Arc<Pod>| {
            let place = places.get(&pod.uid).filter(|_| pod.node.is_none() && pod.foreign_gate.is_none());
            place.is_some_and(|place| refused(pod).is_some() && refused_again(pod, &place.node, caught_up))
        };
        let moving: BTreeSet<PodUid> = members.iter().filter(again).map(|pod| pod.uid.clone()).collect();
        let first = members.iter().find(|pod| moving.contains(&pod.uid))?;
        let (name, stated) = (Arc::clone(&first.key.name), refused(first)?.message);
        for place in gang.places.iter().filter(|place| place.uid.as_ref().is_some_and(|uid| moving.contains(uid))) {
            let note = Note::Doubted { gang: gang.key.clone(), epoch: gang.epoch, node: place.node.clone() };
            self.note(note, pass);
        }
        let wanted = self.request_moving(recognised, gang, members, &moving).ok()?;
        let (plan, report) = self.plan_on(Doubted::Excluded, &wanted.request, gang, pass);
        let placed = |uid: &PodUid| plan.places.iter().any(|place| place.uid.as_ref() == Some(uid));
        if report.refusal.is_some() || !moving.iter().all(placed) {
            return None;
        }
        let why = Why::SchedulerRefused { plans: None, pod: Some(name), stated };
        let mut event = self.adopt(gang, &wanted, &plan, &report, next);
        event.reason = "Replanned";
        event.message = format!("{why}; {}", event.message);
        Some(event)
    }

    /// A released gang some of whose members kube-scheduler refuses: the node is excluded for their shape and the gang
    /// is planned again, or waits after too many refusals. `None` = nothing is wrong yet.
    ///
    /// A nomination may have been lost and a list sampled, so a member is nominated and requeued once before it is trusted. Where
    /// every reason is one that the planner models and our view says that the node fits, kube-scheduler's view lags:
    /// an event that it waits for brings the pod back into its queue, and more time passes.
    pub(in crate::gang) fn refusal(
        &mut self,
        gang: &Arc<Gang>,
        members: &[Arc<Pod>],
        age: SignedDuration,
        next: &mut Gang,
        pass: &mut Pass,
    ) -> Option<Refusal> {
        let settings = self.world.settings;
        let trusted = settings.renominate.saturating_mul(2);
        let per_member =
            SignedDuration::from_millis(10).saturating_mul(i32::try_from(members.len()).unwrap_or(i32::MAX));
        let lagging = settings.released.saturating_add(per_member).max(trusted);
        let mut first: Option<Refused> = None;
        let places = gang.places_by_uid();
        for pod in members.iter().filter(|pod| pod.node.is_none() && pod.foreign_gate.is_none()) {
            let Some(place) = places.get(&pod.uid) else { continue };
            let Some(refused) = refused(pod) else { continue };
            // The condition of a member that stands at the barrier is that of its last refusal: reported before, it may be
            // old.
            let stated_before = self.memory.refusals(&gang.key, &refused.text).0 > 0;
            let due = if refused.modelled || stated_before { lagging } else { trusted };
            if age < due {
                self.requeue(pass, gang.since, due);
                continue;
            }
            if let Some(shape) = self.bare_shape(pod) {
                self.note(
                    Note::Refused {
                        gang: gang.key.clone(),
                        epoch: gang.epoch,
                        text: Arc::clone(&refused.text),
                        shape,
                        node: place.node.clone(),
                    },
                    pass,
                );
            }
            first.get_or_insert(refused);
        }
        let refused = first?;
        let (alike, in_all) = self.memory.refusals(&gang.key, &refused.text);
        if alike < ALIKE && in_all < IN_ALL {
            let stated = Arc::clone(&refused.message);
            return Some(Refusal::Replan(Why::SchedulerRefused { plans: None, pod: None, stated }));
        }
        self.note(Note::Settled { gang: gang.key.clone() }, pass);
        if let Some(event) = self.give_up(gang, next) {
            return Some(Refusal::Wait(event));
        }
        let until = self.world.now.saturating_add(settings.exclude_ttl).unwrap_or(Timestamp::MAX);
        let why = Why::SchedulerRefused { plans: Some(in_all), pod: None, stated: Arc::clone(&refused.message) };
        next.waiting = Some(why.waiting(Some(until)));
        let message = why.to_string();
        self.requeue(pass, Some(until), SignedDuration::ZERO);
        Some(Refusal::Wait(GangEvent { reason: "SchedulerRefused", message, warning: true }))
    }

    /// Withdraws a plan that came to nothing; the next is made after a pause that doubles.
    pub(in crate::gang) fn expire(&mut self, gang: &Gang, next: &mut Gang, pass: &mut Pass) -> GangEvent {
        self.note(Note::Expired { gang: gang.key.clone(), epoch: gang.epoch }, pass);
        let doublings = self.memory.expired(&gang.key).saturating_sub(1).min(5);
        let pause = self.world.settings.round_pause.saturating_mul(1 << doublings);
        let until = self.world.now.saturating_add(pause).unwrap_or(Timestamp::MAX);
        if let Some(event) = self.give_up(gang, next) {
            return event;
        }
        next.waiting = Some(Why::PlanExpired.waiting(Some(until)));
        self.requeue(pass, Some(until), SignedDuration::ZERO);
        GangEvent { reason: "PlanExpired", message: Why::PlanExpired.to_string(), warning: true }
    }

    /// The plan came to nothing. Members that run whole go on without those that were to come, whose places are given up. Of a gang
    /// that is bound in part, who is bound waits for nothing that could come, and is evicted: the event. Where some succeeded nobody
    /// waits for the others, and those that run keep their places. If nobody is bound the plan is withdrawn.
    pub(in crate::gang) fn give_up(&self, gang: &Gang, next: &mut Gang) -> Option<GangEvent> {
        let bound = self.bound_places(gang);
        if bound.iter().all(|place| place.done) {
            withdraw(gang, next);
            next.phase = Some(Phase::Waiting);
            return None;
        }
        if let Some(running) = next.running.take().filter(|_| !extender::reaches_minimum(gang, &bound)) {
            (next.minimum, next.minimums) = (running.minimum, running.minimums);
        }
        let runs = extender::reaches_minimum(next, &bound);
        if !runs && !bound.iter().any(|place| place.done) {
            let left = count(bound.len());
            let lost = Why::MemberLost { left, needed: next.minimum, role: None };
            let message = lost.to_string();
            next.phase = Some(Phase::Degraded);
            next.waiting = Some(Why::Evicting { lost: Box::new(lost), left }.waiting(None));
            return Some(GangEvent { reason: "MemberLost", message, warning: true });
        }
        next.places = bound.into_iter().cloned().collect();
        next.epoch = gang.epoch.saturating_add(1);
        next.phase = Some(if runs { Phase::Bound } else { Phase::Degraded });
        None
    }

    /// Places whose members are bound and live, or succeeded.
    pub(in crate::gang) fn bound_places<'g>(&self, gang: &'g Gang) -> Vec<&'g GangPlace> {
        let bound = |place: &&GangPlace| {
            let pod = place.uid.as_ref().and_then(|uid| self.snapshot.pods.get(uid));
            place.done || pod.is_some_and(|pod| pod.is_live() && pod.node.is_some())
        };
        gang.places.iter().filter(bound).collect()
    }

    /// What the members that run need among themselves, if they run whole.
    pub(in crate::gang) fn running(&self, gang: &Gang) -> Option<Minimum> {
        let committed = matches!(gang.phase, Some(Phase::Committing | Phase::Bound | Phase::Degraded));
        if !committed {
            return gang.running.clone();
        }
        let bound = self.bound_places(gang);
        let own = Minimum { minimum: gang.minimum, minimums: gang.minimums.clone() };
        let is_reached = |one: &Minimum| extender::reaches((one.minimum, &one.minimums), &bound);
        let mut known = std::iter::once(own).chain(gang.running.clone());
        known.find(is_reached).filter(|_| bound.iter().any(|place| !place.done))
    }

    /// Until when nothing is planned for a gang whose last plan expired or was refused too often, nor for newcomers of one that
    /// runs.
    pub(in crate::gang) fn rests(&self, gang: &Gang) -> Option<Timestamp> {
        let resting = matches!(gang.phase, Some(Phase::Waiting | Phase::Bound | Phase::Degraded));
        let waiting = gang.waiting.as_ref().filter(|_| resting)?;
        let rests = waiting.is(Code::PlanExpired) || waiting.is(Code::SchedulerRefused);
        waiting.next_try.filter(|until| rests && *until > self.world.now)
    }

    /// Members that were committed and that kube-scheduler refuses for too long: they are lost for good.
    pub(in crate::gang) fn lost_in_tree(&self, gang: &Gang) -> BTreeSet<PodUid> {
        let age = gang.since.map_or(SignedDuration::ZERO, |since| self.world.now.duration_since(since));
        if gang.phase != Some(Phase::Committing) || age < self.world.settings.committing {
            return BTreeSet::new();
        }
        let lost = |pod: &&Arc<Pod>| pod.is_live() && pod.node.is_none() && refused(pod).is_some();
        gang.places
            .iter()
            .filter_map(|place| self.snapshot.pods.get(place.uid.as_ref()?))
            .filter(lost)
            .map(|pod| pod.uid.clone())
            .collect()
    }

    /// The nodes of members lost in this way are excluded for their shape.
    pub(in crate::gang) fn note_lost(&mut self, gang: &Gang, lost: &BTreeSet<PodUid>, pass: &mut Pass) {
        for uid in lost {
            let (Some(place), Some(pod)) = (gang.place_of(uid), self.snapshot.pods.get(uid).cloned()) else { continue };
            let (Some(refused), Some(shape)) = (refused(&pod), self.bare_shape(&pod)) else { continue };
            let note = Note::Refused {
                gang: gang.key.clone(),
                epoch: gang.epoch,
                text: refused.text,
                shape,
                node: place.node.clone(),
            };
            self.note(note, pass);
        }
    }

    /// Whether kube-scheduler refused the shape on the node lately.
    pub(in crate::gang) fn is_excluded(&self, node: &NodeName, shape: &Shape) -> bool {
        !self.memory.nothing_excluded()
            && self.memory.excluded(node, &self.without_pending(shape), self.world.now).is_some()
    }

    /// Whether some node is excluded for what a role asks for: to every other gang all nodes look as they are.
    pub(in crate::gang) fn excludes_any(&self, request: &GangRequest) -> bool {
        let excludes = |role: &Role| self.memory.excludes(&self.without_pending(&role.shape), self.world.now);
        !self.memory.nothing_excluded() && request.roles.iter().any(excludes)
    }

    /// Until when some node is excluded for the shape of a role.
    pub(in crate::gang) fn excluded_until(&self, request: &GangRequest) -> Option<Timestamp> {
        if self.memory.nothing_excluded() {
            return None;
        }
        let shapes: Vec<Shape> = request.roles.iter().map(|role| self.without_pending(&role.shape)).collect();
        let until =
            |node: &NodeName| shapes.iter().filter_map(|shape| self.memory.refused(node, shape, self.world.now)).max();
        self.snapshot.nodes.keys().filter_map(until).min()
    }

    /// Members that their kubelets did not take: the node is excluded for their shape, longer each time.
    pub(in crate::gang) fn not_admitted(&mut self, gang: &Gang, pass: &mut Pass) -> Vec<GangEvent> {
        let news = |pod: &&Arc<Pod>| pod.not_admitted.is_some() && !self.memory.knows_pod(&pod.uid);
        let news: Vec<Arc<Pod>> = self.snapshot.all_members(&gang.key).filter(news).cloned().collect();
        let mut events = Vec::new();
        for pod in news {
            let (Some(node), Some(stated)) = (pod.node.clone(), pod.not_admitted.clone()) else { continue };
            let Some(shape) = self.bare_shape(&pod) else { continue };
            self.note(Note::NotAdmitted { pod: pod.uid.clone(), shape: Arc::clone(&shape), node: node.clone() }, pass);
            if let (Some(batch), Some(kind)) = (&gang.batch, self.instance_type(&node)) {
                let (gang, batch, kind) = (gang.key.clone(), Arc::clone(batch), (kind, Arc::clone(&shape)));
                self.note(Note::RoundRefused { gang, batch, kind }, pass);
            }
            let until = self.memory.excluded(&node, &shape, self.world.now).unwrap_or(self.world.now);
            let message = format!(
                "the kubelet of {node} did not take {} ({stated}): the node is excluded for pods that ask for the same until \
                 {until:.0}",
                pod.key.name
            );
            events.push(GangEvent { reason: "NotAdmitted", message, warning: true });
        }
        events
    }

    pub(in crate::gang) fn note(&mut self, note: Note, pass: &mut Pass) {
        self.memory.record(&note, self.world.now, self.world.settings.exclude_ttl);
        pass.notes.push(note);
    }

    /// What a member asks for, as the roles of its gang's request do: see [`Self::without_pending`].
    pub(in crate::gang) fn bare_shape(&self, pod: &Pod) -> Option<Arc<Shape>> {
        let mut shape = self.without_pending(pod.shape.as_ref().ok()?);
        if let Some(gang) = pod.membership.gang() {
            shape.requests.subtract(&claims::attached_once(pod, || self.snapshot.live_members(gang)));
        }
        Some(Arc::new(shape))
    }

    /// The shape without what the gang as a whole makes of it: the toleration that a release adds, whose value is the gang's,
    /// where volumes can be reached, which changes while members wait, and constraints that are kept for all members together.
    pub(in crate::gang) fn without_pending(&self, shape: &Shape) -> Shape {
        let mut shape = shape.clone();
        shape.tolerations.retain(|toleration| *toleration.key != *self.world.settings.pending_taint);
        shape.volumes.clear();
        shape.unsupported.clear();
        shape
    }
}

/// What follows from a refusal.
#[derive(Debug)]
pub(in crate::gang) enum Refusal {
    /// Plan again without the nodes; why.
    Replan(Why),
    /// Too many: the gang waits.
    Wait(GangEvent),
}

/// What a person reads while members are refused.
pub(in crate::gang) fn stated(members: &[Arc<Pod>]) -> Option<Waiting> {
    let unbound = || members.iter().filter(|pod| pod.node.is_none());
    let name = |pod: &Pod| Arc::clone(&pod.key.name);
    let refuses = |pod: &Arc<Pod>| {
        let stated = refused(pod)?.message;
        Some(Why::SchedulerRefused { plans: None, pod: Some(name(pod)), stated })
    };
    let fails = |pod: &Arc<Pod>| {
        let stated = Arc::clone(scheduler_error(pod)?);
        Some(Why::SchedulerError { pod: name(pod), stated })
    };
    let why = unbound().find_map(refuses).or_else(|| unbound().find_map(fails))?;
    Some(why.waiting(None))
}

/// The digest of what decides where the members fit: another digest, another plan. Not an assignment across versions; a
/// change costs one plan.
pub(in crate::gang) fn digest(wanted: &Wanted, pending_taint: &str) -> Arc<str> {
    use std::hash::{Hash as _, Hasher as _};
    let asked = |role: &Role| {
        let mut shape = role.shape.clone();
        shape.tolerations.retain(|toleration| *toleration.key != *pending_taint);
        // Volumes are bound one by one while members stand before the barrier: whether a planned node still reaches them
        // is asked of the node.
        shape.volumes.clear();
        shape.requests = claims::beside_volumes(&shape.requests).map(|(name, amount)| (name.clone(), amount)).collect();
        (Arc::clone(&role.name), shape)
    };
    let asked: BTreeSet<(Arc<str>, Shape)> = wanted.request.roles.iter().map(asked).collect();
    let mut hasher = rustc_hash::FxHasher::default();
    asked.hash(&mut hasher);
    Arc::from(format!("{:016x}", hasher.finish()))
}
