//! A gang that lost a member after its commit point: seen, evicted, and collected again for a new epoch.
//!
//! A strict gang below its minimum is no collective any more: whoever is left only waits, at the price of all nodes.
//! So the rest is evicted, in an order that lets the leader see the others go. A gang that keeps its minimum goes on,
//! and only members on lost nodes leave. Where members have succeeded already the others do not wait for each other,
//! and a lost one is placed again alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::Working;
use crate::extender;
use crate::gang::asked::count;
use crate::gang::{Action, Evict, GangEvent, Pass, has_plan, roles, withdraw};
use crate::model::gang::{Gang, GangPlace, Held, Membership, Phase, Pod, Recognised};
use crate::model::names::NodeName;
use crate::reason::{Code, Why};

/// Between the loss and the eviction: a Job that is deleted takes its pods one by one, which is no loss.
const BREATH: SignedDuration = SignedDuration::from_secs(2);
/// A pod that is still there is evicted again after this.
const AGAIN: SignedDuration = SignedDuration::from_secs(10);

/// All are evicted: a new epoch, once the owner has made the pods again. Until then the capacity they had is kept.
pub(in crate::gang) fn restart(gang: &Gang, next: &mut Gang, until: Timestamp) -> GangEvent {
    withdraw(gang, next);
    // It runs again whole: nobody's part in it is done.
    next.places.clear();
    if let Some(held) = &mut next.held {
        held.until = Some(until);
    }
    next.phase = Some(Phase::Collecting);
    next.waiting = Some(Why::Restarting.waiting(None));
    GangEvent { reason: "GangStopped", message: Why::Restarting.to_string(), warning: true }
}

impl Working<'_> {
    /// Deals with lost members of a gang past its commit point. `None`: nothing was lost that the gang cannot spare.
    pub(in crate::gang) fn lost(
        &self,
        gang: &Arc<Gang>,
        members: &[Arc<Pod>],
        next: &mut Gang,
        pass: &mut Pass,
    ) -> Option<Option<GangEvent>> {
        let (standing, lost) = self.standing(gang);
        let left = standing.len();
        let unbound_yet = gang.phase == Some(Phase::Committing) && !members.iter().any(|pod| self.on_lost_node(pod));
        // Once begun, an eviction is finished: the machine that replaces a lost one may register under its name.
        let evicting = gang.phase == Some(Phase::Degraded)
            && gang.waiting.as_ref().is_some_and(|waiting| waiting.is(Code::Evicting));
        if !evicting && (lost == 0 || unbound_yet || !self.done(gang).is_empty()) {
            return None;
        }
        let here: Vec<&Arc<Pod>> = members.iter().filter(|pod| pod.node.is_some()).collect();
        if !evicting && extender::reaches_minimum(gang, &standing) {
            for pod in here.iter().filter(|pod| self.on_lost_node(pod)) {
                pass.actions.push(self.evict(pod, "its node is lost"));
            }
            return None;
        }
        let left = count(left);
        let why = Why::MemberLost { left, needed: gang.minimum, role: None };
        let why = self.below_minimum(gang, members).unwrap_or(why);
        let message = why.to_string();
        let evicting_why = |left: usize| Why::Evicting { lost: Box::new(why.clone()), left: count(left) };
        if !evicting {
            next.phase = Some(Phase::Degraded);
            next.waiting = Some(evicting_why(0).waiting(None));
            self.requeue(pass, Some(self.world.now), BREATH);
            return Some(Some(GangEvent { reason: "MemberLost", message, warning: true }));
        }
        self.bury(gang, pass);
        if here.is_empty() {
            return Some(Some(restart(gang, next, self.held_until())));
        }
        next.waiting = Some(evicting_why(here.len()).waiting(None));
        let age = gang.since.map_or(BREATH, |since| self.world.now.duration_since(since));
        if age < BREATH {
            self.requeue(pass, gang.since, BREATH);
            return Some(None);
        }
        // Roles in their order, ranks upwards, and all of it backwards: whoever leads goes last.
        let order = |pod: &Arc<Pod>| gang.places.iter().position(|place| place.uid.as_ref() == Some(&pod.uid));
        let mut evicted = here;
        evicted.sort_by_cached_key(|pod| std::cmp::Reverse(order(pod)));
        for pod in evicted {
            pass.actions.push(self.evict(pod, &message));
        }
        self.requeue(pass, Some(self.world.now), AGAIN);
        Some(None)
    }

    /// Whether the owner was scaled down: it needs fewer members now, and the places of those that left are given up. An owner is
    /// often seen after its pods: what looked like a loss until the eviction begins is none.
    pub(in crate::gang) fn shrinks(
        &self,
        gang: &Gang,
        recognised: &Recognised,
        members: &[Arc<Pod>],
        next: &mut Gang,
    ) -> bool {
        let open = recognised.roles.iter().filter(|role| role.count.is_none()).count();
        if open > usize::from(recognised.size.is_some()) {
            // A role is as large as the pods that are seen of it.
            return false;
        }
        let done = self.done(gang);
        let there: Vec<&Arc<Pod>> = members.iter().chain(&done).collect();
        let Some(sizes) = roles::sizes(recognised, &there) else { return false };
        let minimums = sizes.minimums();
        let fewer = |(role, min): (&Arc<str>, &u32)| minimums.get(role).is_some_and(|now| now < min);
        let is_smaller = sizes.needed < gang.minimum || gang.minimums.iter().any(fewer);
        let is_larger = sizes.needed > gang.minimum
            || gang.minimums.keys().ne(minimums.keys())
            || gang.minimums.iter().any(|(role, min)| minimums.get(role).is_some_and(|now| now > min));
        let evicting = gang.waiting.as_ref().is_some_and(|waiting| waiting.is(Code::Evicting));
        let age = gang.since.map_or(BREATH, |since| self.world.now.duration_since(since));
        if is_larger || evicting && age >= BREATH {
            return false;
        }
        let stands = |place: &GangPlace| {
            let pod = place.uid.as_ref().and_then(|uid| self.snapshot.pods.get(uid));
            place.done || pod.is_some_and(|pod| pod.is_live())
        };
        let mut surplus: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        for role in &sizes.roles {
            let places = gang.places.iter().filter(|place| place.role == role.name).count();
            surplus.insert(&role.name, places.saturating_sub(usize::try_from(role.count).unwrap_or(usize::MAX)));
        }
        // The highest ranks leave first.
        let stays = |place: &&GangPlace| match surplus.get_mut(&place.role) {
            Some(surplus) if *surplus > 0 && !stands(place) => {
                *surplus -= 1;
                false
            }
            _ => true,
        };
        let mut kept: Vec<GangPlace> = gang.places.iter().rev().filter(stays).cloned().collect();
        kept.reverse();
        if !is_smaller && kept.len() == gang.places.len() {
            return false;
        }
        next.places = kept;
        next.minimum = sizes.needed;
        next.minimums = minimums;
        next.epoch = gang.epoch.saturating_add(1);
        if evicting {
            next.phase = Some(Phase::Bound);
            next.waiting = None;
        }
        true
    }

    /// Why a gang is evicted of which a member past the commit point has lost its place, and there is no other, if too few others
    /// are bound: who is bound waits for nothing that could come.
    pub(in crate::gang) fn cannot_become_whole(&self, gang: &Gang, members: &[Arc<Pod>]) -> Option<Why> {
        let standing = self.bound_places(gang);
        if !self.done(gang).is_empty() || extender::reaches_minimum(gang, &standing) {
            return None;
        }
        let lost = Why::MemberLost { left: count(standing.len()), needed: gang.minimum, role: None };
        let left = members.iter().filter(|pod| pod.node.is_some()).count();
        Some(Why::Evicting { lost: Box::new(lost), left: count(left) })
    }

    /// Until when a gang that is evicted now keeps its capacity.
    pub(in crate::gang) fn held_until(&self) -> Timestamp {
        self.world.now.saturating_add(self.world.settings.restart_hold).unwrap_or(Timestamp::MAX)
    }

    /// What is kept for a gang: noted while a pod is left that tells what its members ask for, and terminated when its time
    /// is over, or a plan assigns again what the gang needs.
    pub(in crate::gang) fn hold(&self, gang: &Gang, next: &mut Gang, pass: &mut Pass) {
        if self.world.ending.contains(&gang.key) {
            next.held = None;
            return;
        }
        match next.phase {
            Some(Phase::Degraded) if next.held.is_none() => {
                let asks = |pod: &Arc<Pod>| pod.shape.as_ref().ok().map(|shape| shape.requests.clone());
                let role = |pod: &Pod| match &pod.membership {
                    Membership::Member { role, .. } => Some(Arc::clone(role)),
                    Membership::Unknown | Membership::Single => None,
                };
                let sample = |wanted: &Arc<str>| {
                    let all = || self.snapshot.all_members(&gang.key);
                    all()
                        .filter(|pod| role(pod).as_ref() == Some(wanted))
                        .find_map(asks)
                        .or_else(|| all().find_map(asks))
                };
                let capacity = |place: &GangPlace| {
                    let pod = place.uid.as_ref().and_then(|uid| self.snapshot.pods.get(uid));
                    Some((place.node.clone(), pod.and_then(asks).or_else(|| sample(&place.role))?))
                };
                let capacities: Vec<_> = gang.places.iter().filter_map(capacity).collect();
                next.held = (!capacities.is_empty()).then_some(Held { until: None, capacities });
            }
            Some(Phase::Degraded) | None => {}
            Some(Phase::Collecting | Phase::Waiting | Phase::Provisioning) => {
                let until = next.held.as_ref().map(|held| held.until);
                match until {
                    // Places beside nodes that are provisioned are assigned by themselves.
                    Some(_) if has_plan(next) => next.held = None,
                    Some(Some(until)) if until > self.world.now => {
                        self.requeue(pass, Some(until), SignedDuration::ZERO)
                    }
                    Some(_) => next.held = None,
                    None => {}
                }
            }
            Some(
                Phase::Planned
                | Phase::Released
                | Phase::Committing
                | Phase::Bound
                | Phase::Finished
                | Phase::Invalid
                | Phase::Unsatisfiable,
            ) => next.held = None,
        }
    }

    /// Whether a gang that was evicted, and whose pods are not back yet, still counts on its nodes. Looks again in time. An owner that
    /// is stopped makes no pods for whom capacity would be held.
    pub(in crate::gang) fn holds_for_restart(&self, gang: &Gang, pass: &mut Pass) -> bool {
        let hold = self.world.settings.restart_hold;
        let held = gang.waiting.as_ref().is_some_and(|waiting| waiting.is(Code::Restarting))
            && !self.world.ending.contains(&gang.key)
            && gang.since.is_some_and(|since| self.world.now.duration_since(since) < hold);
        if held {
            self.requeue(pass, gang.since, hold);
        }
        held
    }

    /// Places whose pod stands, or is on its way to a node that stands; and places whose pod is lost.
    fn standing<'g>(&self, gang: &'g Gang) -> (Vec<&'g GangPlace>, usize) {
        let stands = |place: &&GangPlace| {
            let pod = place.uid.as_ref().and_then(|uid| self.snapshot.pods.get(uid));
            place.done || pod.is_some_and(|pod| pod.is_live() && !self.on_lost_node(pod))
        };
        let (left, lost): (Vec<_>, Vec<_>) = gang.places.iter().filter(|place| place.uid.is_some()).partition(stands);
        (left, lost.len())
    }

    /// Whether a member that was bound is lost. Of one whose object is gone it is taken for granted while another one runs.
    pub(in crate::gang) fn lost_bound(&self, gang: &Gang) -> bool {
        let uids = || gang.places.iter().filter(|place| !place.done).filter_map(|place| place.uid.as_ref());
        let bound = || uids().filter_map(|uid| self.snapshot.pods.get(uid)).filter(|pod| pod.node.is_some());
        bound().any(|pod| !pod.is_live() || self.on_lost_node(pod))
            || bound().any(|pod| pod.is_live()) && uids().any(|uid| !self.snapshot.pods.contains_key(uid))
    }

    fn on_lost_node(&self, pod: &Pod) -> bool {
        pod.node.as_ref().is_some_and(|node| self.is_lost(node))
    }

    /// Whether a node is gone, or will be before it could be used again.
    pub(in crate::gang) fn is_lost(&self, node: &NodeName) -> bool {
        self.world.lost.contains(node) || !self.snapshot.nodes.contains_key(node)
    }

    /// No pod object hangs on a node that is gone: nobody else would end it before long.
    pub(in crate::gang) fn bury(&self, gang: &Gang, pass: &mut Pass) {
        let hanging = self.snapshot.all_members(&gang.key).filter(|pod| {
            pod.deleting && !pod.ended && pod.node.as_ref().is_some_and(|node| !self.snapshot.nodes.contains_key(node))
        });
        pass.actions.extend(hanging.map(|pod| self.evict(pod, "its node is gone")));
    }

    fn evict(&self, pod: &Arc<Pod>, why: &str) -> Action {
        let gone = pod.node.as_ref().is_some_and(|node| !self.snapshot.nodes.contains_key(node));
        Action::Evict(Box::new(Evict { pod: Arc::clone(pod), why: why.to_owned(), at_once: gone }))
    }
}
