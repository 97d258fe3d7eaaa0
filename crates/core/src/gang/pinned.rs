//! Members that a release pins to their planned node, by required node affinity in the very patch that drops the gate.
//!
//! Affinity cannot change once the gate is gone: a pinned member that is to go elsewhere is deleted, and its owner makes another.
//! So nobody is pinned whose deletion would cost anything (`docs/decisions/0132-a-pin-in-the-patch-that-drops-the-gate.md`).

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use super::memory::Doubted;
use super::request::Wanted;
use super::working::Working;
use super::{Action, Evict, Pass};
use crate::model::gang::{Gang, Pod, Recognised};
use crate::model::names::{NodeName, PodUid};
use crate::model::pod::{SelectorTerm, Shape};
use crate::planner::plan::{Plan, Report};

/// A member that is still there is deleted again after this.
const AGAIN: SignedDuration = SignedDuration::from_secs(10);

/// How members are sent to their planned nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Pin {
    /// By a nomination, whoever they are.
    #[default]
    Never,
    /// By a pin where the owner makes deleted members again and counts no failure, else by a nomination.
    Auto,
}

/// Whether the release of a member pins it. One whose gate is gone can no longer be.
pub(super) fn pins(pin: Pin, recognised: &Recognised, pod: &Pod) -> bool {
    // A term without requirements may gain none, so the API server would refuse the pin.
    let takes_pin = |shape: &Arc<Shape>| {
        let mut terms = shape.node_affinity.iter().flatten();
        !terms.any(|term| *term == SelectorTerm::default())
    };
    pin == Pin::Auto
        && pod.gated
        && pod.remade
        && recognised.restart_would_fail.is_none()
        && pod.shape.as_ref().is_ok_and(takes_pin)
}

impl Working<'_> {
    /// Plans a gang again around its pinned members, each of which would have to be deleted to go elsewhere: only those move whose node
    /// is to be left. `None` if none of them is pinned or none has to move, or if there is no such plan.
    pub(super) fn plan_around_pins(
        &mut self,
        gang: &Gang,
        recognised: &Recognised,
        members: &[Arc<Pod>],
        pass: &mut Pass,
    ) -> Option<(Wanted, Plan, Report)> {
        let places = gang.places_by_uid();
        let unbound = || members.iter().filter(|pod| pod.node.is_none());
        let stays = |pod: &&Arc<Pod>| {
            let (Some(place), Ok(shape)) = (places.get(&pod.uid), &pod.shape) else { return false };
            let node = self.snapshot.nodes.get(&place.node).map(|entry| &entry.node);
            pod.pinned.as_ref() == Some(&place.node)
                && node.is_some_and(|node| node.ready && !node.deleting && !node.unschedulable)
                && !self.is_excluded(&place.node, shape)
                && !self.memory.doubts(&gang.key, &place.node, self.world.now)
        };
        let fixed: BTreeSet<PodUid> = unbound().filter(stays).map(|pod| pod.uid.clone()).collect();
        if fixed.is_empty() || unbound().all(|pod| fixed.contains(&pod.uid)) {
            return None;
        }
        let wanted = self.request_keeping(recognised, gang, members, &fixed).ok()?;
        let (plan, report) = self.plan_on(Doubted::Excluded, &wanted.request, gang, pass);
        (report.refusal.is_none() && !plan.places.is_empty()).then_some((wanted, plan, report))
    }

    /// Deletes members that are pinned to a node where neither the plan that is persisted nor the next one has a place for them.
    /// Where the owner is on its way out nobody is made again.
    pub(super) fn discard_misplaced(&self, gang: &Gang, next: &Gang, members: &[Arc<Pod>], pass: &mut Pass) {
        if self.world.ending.contains(&gang.key) {
            return;
        }
        let has_place =
            |gang: &Gang, pod: &Pod, node: &NodeName| gang.place_of(&pod.uid).is_some_and(|place| place.node == *node);
        for pod in members.iter().filter(|pod| pod.node.is_none()) {
            // Whoever would not be made again was never pinned by a release.
            let Some(node) = pod.pinned.as_ref().filter(|_| pod.remade) else { continue };
            // Of a plan that is newer than what is seen of its gang nothing is known.
            let is_newer = pod.plan_epoch.is_some_and(|epoch| epoch > gang.epoch);
            if is_newer || has_place(gang, pod, node) || has_place(next, pod, node) {
                continue;
            }
            let why = format!("it was pinned to node {node}, and its gang has no place for it there any more");
            // No kubelet has it, so nobody else would report its end.
            pass.actions.push(Action::Evict(Box::new(Evict { pod: Arc::clone(pod), why, at_once: true })));
            self.requeue(pass, Some(self.world.now), AGAIN);
        }
    }
}
