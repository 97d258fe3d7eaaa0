//! One gang that has a plan: settling, released, committed, repaired.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;

use super::request::RequestError;
use super::working::Working;
use super::{Action, GangEvent, Pass, Release, distinct_nodes, waiting, withdraw};
use crate::gang::{Gang, Membership, Phase, Pod, Recognised};
use crate::names::PodUid;

impl Working<'_> {
    pub(super) fn planned(
        &mut self,
        gang: &Arc<Gang>,
        recognised: &Arc<Recognised>,
        members: &[Arc<Pod>],
        next: &mut Gang,
        pass: &mut Pass,
    ) -> Option<GangEvent> {
        let age = gang.since.map_or(SignedDuration::ZERO, |since| self.world.now.duration_since(since));
        if age >= self.world.settings.expiry && gang.phase == Some(Phase::Released) {
            withdraw(gang, next);
            next.phase = Some(Phase::Collecting);
            return Some(GangEvent {
                reason: "PlanExpired",
                message:
                    "the gang did not reach the barrier in time; its capacity is given back and it is planned anew"
                        .to_owned(),
                warning: true,
            });
        }
        let request = match self.request(recognised, gang, members) {
            Ok(request) => request,
            Err(RequestError::Invalid(invalid)) => {
                withdraw(gang, next);
                return waiting::invalid(gang, next, &invalid);
            }
            // A member was deleted: its place stays promised to the pod that comes in its stead, until the plan
            // expires.
            Err(RequestError::Collecting { seen, needed, size }) => {
                self.refill(gang, members, next);
                next.waiting = Some(waiting::waiting(
                    "Collecting",
                    format!(
                        "{seen} of {size} members are there, {needed} needed; the plan is kept for the missing ones"
                    ),
                    None,
                ));
                self.wake(pass, gang.since, self.world.settings.expiry);
                if members.is_empty() {
                    withdraw(gang, next);
                    next.phase = Some(Phase::Collecting);
                }
                return None;
            }
            Err(RequestError::ForeignGate { pod }) => return waiting::foreign_gate(next, &pod),
        };
        next.waiting = None;
        if self.refill(gang, members, next) {
            return Some(GangEvent {
                reason: "Refilled",
                message: "a new pod takes the place of a lost one".to_owned(),
                warning: false,
            });
        }
        if let Some(reason) = self.stale(gang, &request) {
            let (plan, report) = self.plan(&request, gang, pass);
            if report.refusal.is_none() && !plan.places.is_empty() {
                let mut event = self.adopt(gang, &request, &plan, &report, members, next);
                event.reason = "Replanned";
                event.message = format!("{reason}; {}", event.message);
                return Some(event);
            }
            withdraw(gang, next);
            next.phase = Some(Phase::Waiting);
            return waiting::does_not_fit(gang, next, report.refusal.as_ref());
        }
        if gang.phase == Some(Phase::Planned) {
            if age < self.world.settings.settle {
                self.wake(pass, gang.since, self.world.settings.settle);
                return None;
            }
            next.phase = Some(Phase::Released);
            return Some(GangEvent {
                reason: "Released",
                message: format!("{} members sent to the scheduler (epoch {})", members.len(), gang.epoch),
                warning: false,
            });
        }
        self.release(gang, recognised, members, pass);
        self.wake(pass, gang.since, self.world.settings.expiry);
        None
    }

    pub(super) fn committed(
        &mut self,
        gang: &Arc<Gang>,
        recognised: &Arc<Recognised>,
        members: &[Arc<Pod>],
        next: &mut Gang,
        pass: &mut Pass,
    ) -> Option<GangEvent> {
        let ended = self.snapshot.all_members(&gang.key).any(|pod| pod.ended);
        if members.is_empty() && ended {
            next.phase = Some(Phase::Finished);
            next.places.clear();
            next.waiting = None;
            return Some(GangEvent { reason: "Finished", message: "all members ended".to_owned(), warning: false });
        }
        // A released member that lost its bind call before the commit reached it still needs its patches.
        self.release(gang, recognised, members, pass);
        let homeless: Vec<&Arc<Pod>> =
            members.iter().filter(|pod| pod.node.is_none() && gang.place_of(&pod.uid).is_none()).collect();
        if !homeless.is_empty() {
            return self.replace(gang, recognised, members, next, pass);
        }
        let all_bound = gang.places.iter().all(|place| {
            place
                .uid
                .as_ref()
                .and_then(|uid| self.snapshot.pods.get(uid))
                .is_none_or(|pod| pod.node.is_some() || pod.ended)
        });
        let ended_or_live = self.snapshot.all_members(&gang.key).filter(|pod| !pod.deleting).count();
        if u32::try_from(ended_or_live).unwrap_or(u32::MAX) < gang.minimum {
            if gang.phase != Some(Phase::Degraded) {
                next.phase = Some(Phase::Degraded);
                let message = format!("{ended_or_live} of {} members left", gang.minimum);
                next.waiting = Some(waiting::waiting("MemberLost", message.clone(), None));
                return Some(GangEvent { reason: "MemberLost", message, warning: true });
            }
            return None;
        }
        if all_bound && gang.phase != Some(Phase::Bound) {
            next.phase = Some(Phase::Bound);
            next.waiting = None;
            return Some(GangEvent {
                reason: "Bound",
                message: format!("all {} members bound on {} nodes", gang.places.len(), distinct_nodes(&gang.places)),
                warning: false,
            });
        }
        None
    }

    /// Plans members that came after the commit point: bound ones are fixed and count as arrived.
    pub(super) fn replace(
        &mut self,
        gang: &Arc<Gang>,
        recognised: &Arc<Recognised>,
        members: &[Arc<Pod>],
        next: &mut Gang,
        pass: &mut Pass,
    ) -> Option<GangEvent> {
        let request = match self.request(recognised, gang, members) {
            Ok(request) => request,
            Err(RequestError::Invalid(invalid)) => {
                next.waiting = Some(waiting::waiting(invalid.reason, invalid.message, None));
                return None;
            }
            Err(RequestError::Collecting { seen, needed, size }) => {
                next.waiting = Some(waiting::waiting(
                    "Collecting",
                    format!("{seen} of {size} members are there, {needed} needed"),
                    None,
                ));
                return None;
            }
            Err(RequestError::ForeignGate { pod }) => return waiting::foreign_gate(next, &pod),
        };
        let (plan, report) = self.plan(&request, gang, pass);
        if report.refusal.is_some() || plan.places.is_empty() {
            let message = report.refusal.as_ref().map_or_else(String::new, ToString::to_string);
            next.phase = Some(Phase::Degraded);
            next.waiting = Some(waiting::waiting("MemberLost", format!("no room for a new member: {message}"), None));
            return None;
        }
        let mut event = self.adopt(gang, &request, &plan, &report, members, next);
        event.reason = "Replanned";
        Some(event)
    }

    /// Gives the places of pods that are gone to pods of the same role and rank, nodes unchanged. Whether anything
    /// changed; then the epoch rises.
    pub(super) fn refill(&self, gang: &Arc<Gang>, members: &[Arc<Pod>], next: &mut Gang) -> bool {
        let placed: BTreeMap<&PodUid, ()> =
            gang.places.iter().filter_map(|place| place.uid.as_ref()).map(|uid| (uid, ())).collect();
        let live = |uid: &PodUid| members.iter().any(|member| member.uid == *uid);
        let mut changed = false;
        for place in &mut next.places {
            if place.uid.as_ref().is_some_and(&live) {
                continue;
            }
            if place.uid.as_ref().and_then(|uid| self.snapshot.pods.get(uid)).is_some_and(|pod| pod.ended) {
                continue;
            }
            let heir = members.iter().find(|member| {
                !placed.contains_key(&member.uid)
                    && matches!(&member.membership, Membership::Member { role, rank: crate::gang::RankClaim::Rank(rank), .. }
                        if *role == place.role && *rank == place.rank)
            });
            let uid = heir.map(|heir| heir.uid.clone());
            if place.uid != uid {
                place.uid = uid;
                place.pod = heir.map(|heir| Arc::clone(&heir.key.name));
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
        for pod in members {
            let Some(place) = gang.place_of(&pod.uid) else { continue };
            if pod.node.is_some() || pod.foreign_gates {
                continue;
            }
            let patched =
                pod.plan_epoch == Some(gang.epoch) && pod.planned_node.as_ref() == Some(&place.node) && !pod.gated;
            if !patched {
                pass.actions.push(Action::Release(Box::new(Release {
                    pod: Arc::clone(pod),
                    epoch: gang.epoch,
                    node: place.node.clone(),
                    tolerate: tolerate.clone(),
                })));
            }
        }
    }
}
