//! Pods that wait in kube-scheduler's queue because of us: nothing that Muster writes elsewhere is an event for it, so
//! whoever may go now is requeued by a patch, and a nomination that no plan stands for any more is taken back.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::{Action, Note, Pass, World};
use crate::extender::{self, Assumed, Filtered};
use crate::fit;
use crate::model::gang::{Gang, Pod};
use crate::model::snapshot::Snapshot;

/// Pods of no gang are looked at again after this.
const AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// So many of them at once: each is held against every node.
const AT_ONCE: usize = 20;

/// Of the pods of no gang that `filter` refused those for which a node is free by now.
pub(super) fn requeue(world: &World<'_>, refused: &[&Arc<Pod>], pass: &mut Pass) {
    let snapshot = world.snapshot;
    if refused.is_empty() {
        return;
    }
    let (last, turn) = world.memory.requeues();
    let due = last.and_then(|last| last.saturating_add(AGAIN).ok()).unwrap_or(world.now);
    let next = if due > world.now { due } else { world.now.saturating_add(AGAIN).unwrap_or(Timestamp::MAX) };
    pass.requeue_at = Some(pass.requeue_at.map_or(next, |earlier| earlier.min(next)));
    if due > world.now {
        return;
    }
    pass.notes.push(Note::Requeues);
    let offered: Vec<&str> = snapshot.nodes.keys().map(|name| name.as_str()).collect();
    let first = usize::try_from(turn).unwrap_or(0).wrapping_mul(AT_ONCE) % refused.len();
    let looked_at = refused.iter().cycle().skip(first).take(AT_ONCE.min(refused.len()));
    let may_go = looked_at.filter(|pod| has_free_node(snapshot, pod, &offered, world.now));
    pass.actions.extend(may_go.map(|pod| Action::Requeue { pod: Arc::clone(pod) }));
}

/// Whether some node has the capacity, and `filter` would offer it.
fn has_free_node(snapshot: &Snapshot, pod: &Pod, offered: &[&str], now: Timestamp) -> bool {
    let Ok(shape) = &pod.shape else { return false };
    let Filtered::Split { kept, .. } = extender::filter(snapshot, &Assumed::default(), pod, offered, now) else {
        return false;
    };
    let nodes = kept.into_iter().filter_map(|name| snapshot.nodes.get(name));
    nodes.into_iter().any(|entry| fit::fits(shape, &entry.node, &entry.usage).is_ok())
}

/// Members behind the gate that are nominated for a node, although no plan has a place for them: kube-scheduler keeps pods of
/// their priority and below off that node.
pub(super) fn clear_nominations(next: &Gang, members: &[Arc<Pod>], pass: &mut Pass) {
    let stale = |pod: &&Arc<Pod>| pod.gated && pod.node.is_none() && pod.nominated.is_some();
    let places = next.places_by_uid();
    let without_place = members.iter().filter(stale).filter(|pod| !places.contains_key(&pod.uid));
    pass.actions.extend(without_place.map(|pod| Action::ClearNomination { pod: Arc::clone(pod) }));
}
