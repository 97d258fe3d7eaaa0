//! One gang before it is placed: collecting, waiting, buying, planning.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::request::RequestError;
use super::{
    Action, BatchStage, BatchWish, GangEvent, Pass, StatusWrite, World, batch_name, distinct_nodes, level_summary,
    offers, waiting, withdraw,
};
use crate::gang::{Gang, GangPlace, Phase, Pod, Recognised};
use crate::names::ObjectKey;
use crate::plan::{GangRequest, Plan, Refusal, Report};
use crate::snapshot::{Promise, PromisedRoom, Snapshot};

/// The working view of one pass: a snapshot that takes the promises made in the pass; the published one stays as it
/// is.
pub(super) struct Working<'a> {
    pub(super) snapshot: Snapshot,
    pub(super) world: &'a World<'a>,
}

impl Working<'_> {
    pub(super) fn gang(&mut self, key: &ObjectKey, pass: &mut Pass) {
        let recognised = self.snapshot.recognised.get(key).cloned();
        let Some(gang) = self.snapshot.gangs.get(key).cloned() else {
            if let Some(recognised) = recognised {
                pass.actions.push(Action::CreateGang(recognised));
            }
            return;
        };
        if gang.deleting {
            return;
        }
        // An unknown phase was written by a newer version: leave the object alone.
        let Some(phase) = gang.phase else { return };
        let Some(recognised) = recognised else {
            if self.snapshot.all_members(key).next().is_none() {
                self.without_pods(&gang, phase, pass);
            }
            return;
        };
        let members: Vec<Arc<Pod>> = self.snapshot.live_members(key).cloned().collect();
        let mut next = Gang::clone(&gang);
        next.members = waiting::members(&recognised, members.len());
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
        self.write(&gang, Some(&recognised), next, event, pass);
    }

    /// All pods are gone: what nobody owns is deleted, what has an owner dies with it.
    pub(super) fn without_pods(&mut self, gang: &Arc<Gang>, phase: Phase, pass: &mut Pass) {
        let mut next = Gang::clone(gang);
        next.members = Arc::from("0/0");
        match phase {
            Phase::Finished => {}
            Phase::Committing | Phase::Bound | Phase::Degraded => {
                next.phase = Some(Phase::Finished);
                next.places.clear();
                next.waiting = None;
            }
            Phase::Collecting
            | Phase::Waiting
            | Phase::Provisioning
            | Phase::Planned
            | Phase::Released
            | Phase::Invalid
            | Phase::Unsatisfiable => {
                withdraw(gang, &mut next);
                next.phase = Some(Phase::Finished);
                next.waiting = None;
            }
        }
        let event = (next.phase != gang.phase).then(|| GangEvent {
            reason: "Finished",
            message: "all members are gone".to_owned(),
            warning: false,
        });
        self.write(gang, None, next, event, pass);
        if phase == Phase::Finished {
            pass.actions.push(Action::DeleteGang { gang: Arc::clone(gang) });
        }
    }

    pub(super) fn before_plan(
        &mut self,
        gang: &Arc<Gang>,
        recognised: &Arc<Recognised>,
        members: &[Arc<Pod>],
        next: &mut Gang,
        pass: &mut Pass,
    ) -> Option<GangEvent> {
        if members.is_empty() && gang.phase != Some(Phase::Collecting) {
            // The job ended while it waited, or between two restarts of its pods.
            return self.nothing_to_place(gang, next);
        }
        let request = match self.request(recognised, gang, members) {
            Ok(request) => request,
            Err(RequestError::Invalid(invalid)) => return waiting::invalid(gang, next, &invalid),
            Err(RequestError::Collecting { seen, needed, size }) => {
                return waiting::collecting(gang, next, seen, needed, size);
            }
            Err(RequestError::ForeignGate { pod }) => return waiting::foreign_gate(next, &pod),
        };
        let batch = gang.batch.as_ref().and_then(|name| self.world.batches.get(name));
        if gang.phase == Some(Phase::Provisioning) && batch.is_some_and(|batch| batch.stage == BatchStage::Buying) {
            return waiting::buying(next, batch);
        }
        let (plan, report) = self.plan(&request, gang, pass);
        if report.refusal.is_none() && !plan.places.is_empty() {
            if let Some(batch) = batch.filter(|batch| batch.stage == BatchStage::BackingOff) {
                pass.actions.push(Action::AbandonBatch { name: Arc::clone(&batch.name) });
            }
            return Some(self.adopt(gang, &request, &plan, &report, members, next));
        }
        let refusal = report.refusal;
        match batch.map(|batch| batch.stage) {
            Some(BatchStage::BackingOff) => waiting::backing_off(next, batch, refusal.as_ref()),
            // Nodes that were bought for the gang and do not hold it: the batch gives them back, then the next round.
            Some(BatchStage::Ready | BatchStage::InUse) if gang.phase == Some(Phase::Provisioning) => {
                let since = batch.and_then(|batch| batch.since);
                let grace = self.world.settings.ready_grace;
                if since.is_none_or(|since| self.world.now.duration_since(since) < grace) {
                    self.wake(pass, since, grace);
                    return waiting::bought_but_not_fitting(next, refusal.as_ref());
                }
                if let Some(batch) = batch {
                    pass.actions.push(Action::AbandonBatch { name: Arc::clone(&batch.name) });
                }
                waiting::does_not_fit(gang, next, refusal.as_ref())
            }
            Some(BatchStage::Buying | BatchStage::Ready | BatchStage::InUse | BatchStage::Ending) | None => {
                self.buy(gang, recognised, &request, refusal.as_ref(), next, pass)
            }
        }
    }

    pub(super) fn nothing_to_place(&self, gang: &Arc<Gang>, next: &mut Gang) -> Option<GangEvent> {
        if gang.phase == Some(Phase::Finished) {
            return None;
        }
        let ended = self.snapshot.all_members(&gang.key).any(|pod| pod.ended);
        next.phase = Some(if ended { Phase::Finished } else { Phase::Collecting });
        next.waiting = None;
        None
    }

    /// Promises the places in the working snapshot and fills the next status.
    pub(super) fn adopt(
        &mut self,
        gang: &Arc<Gang>,
        request: &GangRequest,
        plan: &Plan,
        report: &Report,
        members: &[Arc<Pod>],
        next: &mut Gang,
    ) -> GangEvent {
        next.phase = Some(Phase::Planned);
        next.epoch = gang.epoch.saturating_add(1);
        next.minimum = request.roles.iter().map(|role| role.min).sum();
        next.places = plan
            .places
            .iter()
            .map(|place| GangPlace {
                role: request.roles.get(place.role).map_or_else(|| Arc::from(""), |role| Arc::clone(&role.name)),
                rank: place.rank,
                uid: place.uid.clone(),
                pod: place
                    .uid
                    .as_ref()
                    .and_then(|uid| members.iter().find(|member| member.uid == *uid))
                    .map(|member| Arc::clone(&member.key.name)),
                node: place.node.clone(),
            })
            .collect();
        next.levels.clone_from(&report.levels);
        next.waiting = None;
        for place in plan.places.iter().filter(|place| !place.bound) {
            let requests = request.roles.get(place.role).map(|role| role.shape.requests.clone()).unwrap_or_default();
            self.snapshot
                .promises
                .entry(place.node.clone())
                .or_default()
                .push(Promise { gang: gang.key.clone(), room: PromisedRoom::Member(requests) });
        }
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

    pub(super) fn buy(
        &mut self,
        gang: &Arc<Gang>,
        recognised: &Arc<Recognised>,
        request: &GangRequest,
        refusal: Option<&Refusal>,
        next: &mut Gang,
        pass: &mut Pass,
    ) -> Option<GangEvent> {
        if refusal.is_some_and(|refusal| !matches!(refusal, Refusal::DoesNotFit(_))) {
            // No node that could be bought changes a constraint that is not modelled.
            return waiting::unsatisfiable(gang, next, refusal);
        }
        if recognised.booking.is_some() {
            return waiting::booking(next, recognised);
        }
        if let Some(until) = self.round_pause(gang).filter(|until| *until > self.world.now) {
            self.wake(pass, Some(until), SignedDuration::ZERO);
            return waiting::does_not_fit(gang, next, refusal);
        }
        let offers = offers::offers(request, self.world.pools);
        if offers.possible.is_empty() {
            let empty = self.fits_on_empty_cluster(request, pass);
            return waiting::nothing_to_buy(gang, next, refusal, self.world.pools, &offers.left_out, empty);
        }
        let round = gang.round.saturating_add(1);
        let name: Arc<str> = Arc::from(batch_name(&gang.uid, round));
        let count = offers.possible.first().map_or(0, |offer| offer.count);
        pass.actions.push(Action::CreateBatch(Box::new(BatchWish {
            gang: Arc::clone(gang),
            round,
            offers: offers.possible,
            placement_group: recognised.wishes.placement_group.as_ref().map(|wish| Arc::clone(&wish.value)),
        })));
        next.phase = Some(Phase::Provisioning);
        next.round = round;
        next.batch = Some(Arc::clone(&name));
        next.waiting =
            Some(waiting::waiting("Provisioning", format!("buying {count} nodes as NodeBatch {name}"), None));
        let why = refusal.map_or_else(String::new, |refusal| format!(": {refusal}"));
        Some(GangEvent {
            reason: "Provisioning",
            message: format!("buying {count} nodes in one batch ({name}){why}"),
            warning: false,
        })
    }

    pub(super) fn write(
        &mut self,
        gang: &Arc<Gang>,
        recognised: Option<&Arc<Recognised>>,
        mut next: Gang,
        event: Option<GangEvent>,
        pass: &mut Pass,
    ) {
        if next.phase != gang.phase || next.epoch != gang.epoch {
            next.since = Some(self.world.now);
        }
        if next == **gang {
            return;
        }
        if next.phase == Some(Phase::Planned) {
            self.wake(pass, Some(self.world.now), self.world.settings.settle);
        }
        pass.actions.push(Action::WriteStatus(Box::new(StatusWrite {
            gang: Arc::clone(gang),
            recognised: recognised.cloned(),
            next,
            event,
        })));
    }

    pub(super) fn wake(&self, pass: &mut Pass, since: Option<Timestamp>, after: SignedDuration) {
        let at = since.unwrap_or(self.world.now).saturating_add(after).unwrap_or(Timestamp::MAX);
        pass.wake_at = Some(pass.wake_at.map_or(at, |earlier| earlier.min(at)));
    }
}
