//! One gang that has a plan: settling, released, committed, repaired.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;

use super::asked::{self, RequestError};
use super::working::Working;
use super::working::loss;
use super::working::watchdog::{self, Refusal};
use super::{Action, GangEvent, Pass, Release, Stuck, distinct_nodes, pinned, refused, roles, waiting, withdraw};
use crate::extender;
use crate::model::gang::{Gang, GangPlace, Phase, Pod, Recognised};
use crate::model::names::PodUid;
use crate::reason::Why;

impl Working<'_> {
    pub(super) fn planned(
        &mut self,
        gang: &Arc<Gang>,
        recognised: &Arc<Recognised>,
        members: &[Arc<Pod>],
        next: &mut Gang,
        pass: &mut Pass,
    ) -> Option<GangEvent> {
        let age = self.age(gang);
        let expired = age >= self.world.settings.expiry;
        if members.is_empty() {
            return self.nothing_to_place(gang, recognised, next);
        }
        // While some are planned again, others that run may be lost.
        if self.lost_bound(gang)
            && let Some(event) = self.lost(gang, members, next, pass)
        {
            return event;
        }
        let wanted = match self.request(recognised, gang, members) {
            Ok(wanted) => wanted,
            Err(RequestError::Invalid(invalid)) => return waiting::invalid(gang, next, &invalid),
            Err(_) if expired => return Some(self.expire(gang, next, pass)),
            // A member was deleted: its place stays assigned to the pod that comes in its stead, until the plan
            // expires.
            Err(error) => {
                let refilled = self.refill(gang, recognised, members, next);
                next.waiting = waiting::missing(&error, true).map(|why| why.waiting(None));
                if refilled {
                    return None;
                }
                // The others go on: they stand at the barrier, which cannot close without the missing ones.
                if gang.phase == Some(Phase::Planned) {
                    return self.settle(gang, members, age, next, pass);
                }
                self.release(gang, recognised, members, pass);
                self.requeue(pass, gang.since, self.world.settings.expiry);
                return None;
            }
        };
        next.waiting = None;
        if self.refill(gang, recognised, members, next) {
            return Some(GangEvent {
                reason: "Refilled",
                message: "a new pod takes the place of a lost one".to_owned(),
                warning: false,
            });
        }
        if self.stands(gang) {
            // Nobody is left to come to the barrier, so nothing would ever close it.
            return Some(self.bound(gang, next));
        }
        if expired && gang.phase == Some(Phase::Released) {
            return Some(self.expire(gang, next, pass));
        }
        let refused = match gang.phase {
            Some(Phase::Released) => self.refusal(gang, members, age, next, pass),
            _ => None,
        };
        let refused = match refused {
            Some(Refusal::Wait(event)) => return Some(event),
            Some(Refusal::Replan(why)) => Some(why.to_string()),
            None => None,
        };
        if let Some(reason) = refused.or_else(|| self.stale(gang, &wanted).map(|stale| stale.to_string())) {
            let (wanted, plan, report) = match self.plan_around_pins(gang, recognised, members, pass) {
                Some(around) => around,
                None => {
                    let (plan, report) = self.plan(&wanted.request, gang, pass);
                    (wanted, plan, report)
                }
            };
            if report.refusal.is_none() && !plan.places.is_empty() {
                let mut event = self.adopt(gang, &wanted, &plan, &report, next);
                event.reason = "Replanned";
                event.message = format!("{reason}; {}", event.message);
                return Some(event);
            }
            if let Some(event) = self.give_up(gang, next) {
                return Some(event);
            }
            if next.phase != Some(Phase::Waiting) {
                next.waiting = Some(Why::NoCapacityForNew { refusal: report.refusal }.waiting(None));
                return None;
            }
            return waiting::does_not_fit(gang, next, &waiting::refused(report.refusal.as_ref()));
        }
        if gang.phase == Some(Phase::Planned) {
            return self.settle(gang, members, age, next, pass);
        }
        if let Some(event) = self.doubt(gang, recognised, wanted, members, next, pass) {
            return Some(event);
        }
        self.release(gang, recognised, members, pass);
        self.not_tried(gang, members, age, pass);
        self.requeue(pass, gang.since, self.world.settings.expiry);
        if age >= self.world.settings.renominate {
            next.waiting = watchdog::stated(members);
            if next.waiting.is_some() {
                self.requeue(pass, Some(self.world.now), self.world.settings.renominate);
            }
        }
        self.requeue(pass, gang.since, self.world.settings.renominate);
        None
    }

    /// Counts members that kube-scheduler has reported nothing about: while it refuses one, the others stand at the barrier for
    /// that one.
    fn not_tried(&self, gang: &Gang, members: &[Arc<Pod>], age: SignedDuration, pass: &mut Pass) {
        if age < watchdog::NOT_TRIED {
            self.requeue(pass, gang.since, watchdog::NOT_TRIED);
            return;
        }
        let places = gang.places_by_uid();
        let unbound = || members.iter().filter(|pod| pod.node.is_none());
        let refused = |pod: &&Arc<Pod>| {
            let waits = |place: &GangPlace| refused::waits_for(pod, &place.node).is_some();
            pod.foreign_gate.is_some() || places.get(&pod.uid).copied().is_some_and(waits)
        };
        if !unbound().any(|pod| refused(&pod)) {
            let count = unbound().filter(|pod| places.contains_key(&pod.uid)).count();
            if count > 0 {
                *pass.stuck.entry(Stuck::NotTried).or_default() += asked::count(count);
            }
        }
    }

    fn age(&self, gang: &Gang) -> SignedDuration {
        gang.since.map_or(SignedDuration::ZERO, |since| self.world.now.duration_since(since))
    }

    /// Waits until every replica protects the assignment, then lets the members go.
    fn settle(
        &self,
        gang: &Gang,
        members: &[Arc<Pod>],
        age: SignedDuration,
        next: &mut Gang,
        pass: &mut Pass,
    ) -> Option<GangEvent> {
        if age < self.world.settings.settle {
            self.requeue(pass, gang.since, self.world.settings.settle);
            return None;
        }
        next.phase = Some(Phase::Released);
        Some(GangEvent {
            reason: "Released",
            message: format!("{} members sent to the scheduler (epoch {})", members.len(), gang.epoch),
            warning: false,
        })
    }

    pub(super) fn committed(
        &mut self,
        gang: &Arc<Gang>,
        recognised: &Arc<Recognised>,
        members: &[Arc<Pod>],
        next: &mut Gang,
        pass: &mut Pass,
    ) -> Option<GangEvent> {
        let ending = self.world.ending.contains(&gang.key);
        if members.is_empty() && gang.phase == Some(Phase::Degraded) && self.done(gang).is_empty() && !ending {
            self.bury(gang, pass);
            let leaving = self.snapshot.all_members(&gang.key).any(|pod| !pod.ended);
            return (!leaving).then(|| loss::restart(gang, next, self.held_until()));
        }
        if members.is_empty() {
            if self.has_ended(gang) && !self.may_have_others(gang) {
                self.finish(gang, next);
                next.levels.clone_from(&gang.levels);
                return Some(GangEvent { reason: "Finished", message: "all members ended".to_owned(), warning: false });
            }
            // All are being deleted: whoever does that to the whole gang has lost no member.
            return None;
        }
        if ending {
            return None;
        }
        if self.shrinks(gang, recognised, members, next) {
            return None;
        }
        if let Some(event) = self.lost(gang, members, next, pass) {
            return event;
        }
        let lost = self.lost_in_tree(gang);
        if lost.is_empty()
            && let Some(event) = self.doubt_committed(gang, recognised, members, next, pass)
        {
            return Some(event);
        }
        self.note_lost(gang, &lost, pass);
        if gang.phase == Some(Phase::Committing) {
            self.requeue(pass, gang.since, self.world.settings.committing);
        }
        let places = gang.places_by_uid();
        let homeless = |pod: &&Arc<Pod>| {
            pod.node.is_none()
                && pod.foreign_gate.is_none()
                && (lost.contains(&pod.uid)
                    || places.get(&pod.uid).is_none_or(|place| !self.snapshot.nodes.contains_key(&place.node)))
        };
        let homeless: Vec<PodUid> = members.iter().filter(homeless).map(|pod| pod.uid.clone()).collect();
        if let Some(until) = self.rests(gang).filter(|_| !homeless.is_empty()) {
            // The last plan for newcomers came to nothing: those that run are watched over meanwhile.
            self.requeue(pass, Some(until), SignedDuration::ZERO);
            return None;
        }
        if !homeless.is_empty()
            && let Some(event) = self.replace(gang, recognised, (members, &homeless), next, pass)
        {
            return event;
        }
        // A released member that lost its bind call before the commit reached it still needs its patches.
        self.release(gang, recognised, members, pass);
        if let Some(why) = self.below_minimum(gang, members) {
            next.phase = Some(Phase::Degraded);
            next.waiting = Some(why.waiting(None));
            let message = why.to_string();
            return (gang.phase != next.phase).then_some(GangEvent { reason: "MemberLost", message, warning: true });
        }
        if self.stands(gang) {
            next.waiting = None;
            return (gang.phase != Some(Phase::Bound)).then(|| self.bound(gang, next));
        }
        None
    }

    /// Whether a member ended, or is known to have succeeded before its object went.
    pub(super) fn has_ended(&self, gang: &Gang) -> bool {
        let ended = |pod: &Arc<Pod>| pod.ended && !pod.is_discarded();
        gang.places.iter().any(|place| place.done) || self.snapshot.all_members(&gang.key).any(ended)
    }

    /// No member is left. Where some succeeded and others did not, the owner may make those again: what succeeded keeps its
    /// places, which hold no capacity, and counts then.
    pub(super) fn finish(&self, gang: &Gang, next: &mut Gang) {
        let done: Vec<&GangPlace> = gang.places.iter().filter(|place| place.done).collect();
        // Without a plan there is no minimum that they could reach.
        let whole = gang.minimum > 0 && extender::reaches_minimum(gang, &done);
        withdraw(gang, next);
        if whole {
            next.places.clear();
        }
        next.phase = Some(Phase::Finished);
        next.waiting = None;
    }

    /// What is missing of the minimum of the gang or of one of its roles, if anything.
    pub(super) fn below_minimum(&self, gang: &Gang, members: &[Arc<Pod>]) -> Option<Why> {
        let done = self.done(gang);
        let left = asked::count(members.len() + done.len());
        if left < gang.minimum {
            return Some(Why::MemberLost { left, needed: gang.minimum, role: None });
        }
        let (places, recognised) = (gang.places_by_uid(), self.snapshot.recognised.get(&gang.key)?);
        let mut left_of: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        for pod in members.iter().chain(&done) {
            // A pod of a role that the gang does not have plays that of its place, as it was planned.
            let place = places.get(&pod.uid).map(|place| Arc::clone(&place.role));
            *left_of.entry(place.unwrap_or_else(|| roles::role_in(pod, recognised))).or_default() += 1;
        }
        gang.minimums.iter().find_map(|(role, min)| {
            let left = left_of.get(role).copied().unwrap_or(0);
            (left < *min).then(|| Why::MemberLost { left, needed: *min, role: Some(Arc::clone(role)) })
        })
    }

    /// Whether the minimum is bound or done, and no live pod with a place is on its way.
    fn stands(&self, gang: &Gang) -> bool {
        let pod = |place: &GangPlace| self.snapshot.pods.get(place.uid.as_ref()?);
        extender::reaches_minimum(gang, &self.bound_places(gang))
            && !gang.places.iter().filter_map(pod).any(|pod| pod.is_live() && pod.node.is_none())
    }

    /// The gang runs. A member that somebody else bound to another node is adopted there, in a new epoch. Elastic places that no
    /// pod came for are over: whoever comes later is planned in an epoch of its own.
    fn bound(&self, gang: &Gang, next: &mut Gang) -> GangEvent {
        next.places.retain(|place| place.uid.is_some());
        for place in &mut next.places {
            let node = place.uid.as_ref().and_then(|uid| self.snapshot.pods.get(uid)).and_then(|pod| pod.node.clone());
            if let Some(node) = node.filter(|node| *node != place.node) {
                place.node = node;
                next.epoch = gang.epoch.saturating_add(1);
            }
        }
        next.running = None;
        next.phase = Some(Phase::Bound);
        next.waiting = None;
        GangEvent {
            reason: "Bound",
            message: format!("all {} members bound on {} nodes", next.places.len(), distinct_nodes(&next.places)),
            warning: false,
        }
    }

    /// Plans members that came after the commit point: bound ones are fixed and count as arrived. `None` if nobody
    /// `homeless` gets a place, for want of a rank or of capacity that the gang could do without.
    fn replace(
        &mut self,
        gang: &Arc<Gang>,
        recognised: &Arc<Recognised>,
        (members, homeless): (&[Arc<Pod>], &[PodUid]),
        next: &mut Gang,
        pass: &mut Pass,
    ) -> Option<Option<GangEvent>> {
        let wanted = match self.request(recognised, gang, members) {
            Ok(wanted) => wanted,
            Err(RequestError::Invalid(invalid)) => {
                next.waiting = Some(Why::Invalid(invalid).waiting(None));
                return Some(None);
            }
            Err(error) => {
                next.waiting = waiting::missing(&error, true).map(|why| why.waiting(None));
                return Some(None);
            }
        };
        let asks = |uid: &Option<PodUid>| uid.as_ref().is_some_and(|uid| homeless.contains(uid));
        if !wanted.request.roles.iter().any(|role| role.places.iter().any(|place| asks(&place.uid))) {
            return None;
        }
        let (plan, report) = self.plan(&wanted.request, gang, pass);
        if report.refusal.is_some() || plan.places.is_empty() {
            let why = Why::NoCapacityForNew { refusal: report.refusal };
            let had_place =
                gang.phase == Some(Phase::Committing) && homeless.iter().any(|uid| gang.place_of(uid).is_some());
            if had_place && gang.running.is_some() && self.running(gang).is_some() {
                // Of newcomers that were committed some are lost: those that ran before them go on.
                let event = self.give_up(gang, next);
                next.waiting = Some(why.waiting(None));
                return Some(event);
            }
            let evicting = if had_place { self.cannot_become_whole(gang, members) } else { None };
            if gang.phase == Some(Phase::Committing) && evicting.is_none() {
                // Whose binding is under way must not be held up.
                next.waiting = Some(why.waiting(None));
                return Some(None);
            }
            if evicting.is_none() && self.running(gang).is_some() {
                // Those that run are a whole gang without the new ones.
                next.phase = Some(Phase::Bound);
                next.waiting = Some(why.waiting(None));
                return Some(None);
            }
            next.phase = Some(Phase::Degraded);
            let message = why.to_string();
            let event = evicting.is_some().then_some(GangEvent { reason: "MemberLost", message, warning: true });
            next.waiting = Some(evicting.unwrap_or(why).waiting(None));
            return Some(event);
        }
        if !plan.places.iter().any(|place| asks(&place.uid)) {
            return None;
        }
        let mut event = self.adopt(gang, &wanted, &plan, &report, next);
        event.reason = "Replanned";
        Some(Some(event))
    }

    /// Gives the places of pods that are gone to pods of the same role and rank, nodes unchanged. Whether anything
    /// changed; then the epoch rises.
    fn refill(&self, gang: &Arc<Gang>, recognised: &Recognised, members: &[Arc<Pod>], next: &mut Gang) -> bool {
        let done = self.done(gang);
        let ready: Vec<&Arc<Pod>> = members.iter().filter(|member| member.foreign_gate.is_none()).collect();
        let there: Vec<&Arc<Pod>> = ready.iter().copied().chain(&done).collect();
        let Some(sizes) = roles::sizes(recognised, &there) else { return false };
        let (mut live, mut over) = (sizes.by_role(&ready), sizes.by_role(&done.iter().collect::<Vec<_>>()));
        let holders: BTreeMap<Arc<str>, Vec<Option<PodUid>>> = sizes
            .roles
            .iter()
            .map(|role| {
                let [live, over] = [&mut live, &mut over].map(|pods| pods.remove(&role.name).unwrap_or_default());
                (Arc::clone(&role.name), roles::holders(role, gang, &live, &over).0)
            })
            .collect();
        let mut changed = false;
        for place in &mut next.places {
            let holders = holders.get(&place.role);
            let Some(holder) = holders.and_then(|holders| holders.get(usize::try_from(place.rank).ok()?)) else {
                continue;
            };
            if place.uid != *holder {
                place.uid.clone_from(holder);
                let pod = holder.as_ref().and_then(|uid| self.snapshot.pods.get(uid));
                place.pod = pod.map(|pod| Arc::clone(&pod.key.name));
                place.done = false;
                changed = true;
            }
        }
        if changed {
            next.epoch = gang.epoch.saturating_add(1);
            next.phase = Some(Phase::Planned);
        }
        changed
    }

    pub(super) fn release(&self, gang: &Arc<Gang>, recognised: &Recognised, members: &[Arc<Pod>], pass: &mut Pass) {
        let tolerate = self.tolerated(gang, recognised);
        let places = gang.places_by_uid();
        for pod in members {
            let Some(place) = places.get(&pod.uid) else { continue };
            // One that is pinned elsewhere makes way for another.
            let misplaced = pod.pinned.as_ref().is_some_and(|node| *node != place.node);
            if pod.node.is_some() || pod.foreign_gate.is_some() || misplaced {
                continue;
            }
            let patched =
                pod.plan_epoch == Some(gang.epoch) && pod.planned_node.as_ref() == Some(&place.node) && !pod.gated;
            // A nomination that was lost, or a refusal that no longer holds: nominate and requeue again. The executor spaces
            // the patches; a member that stands at the barrier is not disturbed by one.
            let due = watchdog::REQUEUE_AGAIN.min(self.world.settings.renominate);
            let sits = refused::stuck(pod, &place.node).filter(|_| patched);
            let stuck = sits.filter(|_| self.age(gang) >= due);
            if let Some(why) = refused::waits_for(pod, &place.node).filter(|_| patched && self.age(gang) >= due) {
                *pass.stuck.entry(why).or_default() += 1;
            }
            if sits.is_some() {
                // In every phase: whoever is refused after the commit point waits for nothing else.
                self.requeue(pass, stuck.map_or(gang.since, |_| Some(self.world.now)), due);
            }
            if !patched || stuck.is_some() {
                pass.actions.push(Action::Release(Box::new(Release {
                    pod: Arc::clone(pod),
                    epoch: gang.epoch,
                    node: place.node.clone(),
                    tolerate: tolerate.clone(),
                    pin: pinned::pins(self.world.settings.pin, recognised, pod),
                    stuck,
                })));
            }
        }
    }
}
