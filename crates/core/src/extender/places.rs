//! Places on nodes that were launched for pods of no gang: who may stand there, and where kube-scheduler will put a pod.

use jiff::{SignedDuration, Timestamp};

use super::assumed::Assumed;
use super::{free_beside, has};
use crate::model::gang::{Membership, Pod};
use crate::model::snapshot::{Awaiting, Snapshot};
use crate::model::tags::TAG_BATCH;
use crate::ordinary::digest;

/// So long after it registered a launched node has nothing for pods that have a place on another one. Nodes of one launch register
/// within seconds of each other; pods that took what one has left over would leave another empty.
const NEW: SignedDuration = SignedDuration::from_secs(60);

/// A pod of no gang that looks for a node while nodes await anybody.
pub(super) struct Asking<'a> {
    snapshot: &'a Snapshot,
    assumed: &'a Assumed,
    pod: &'a Pod,
    class: String,
    now: Timestamp,
    /// Whether there is a place for every pod of its class, once that was asked.
    placed: Option<bool>,
}

impl<'a> Asking<'a> {
    /// `None`: no node awaits anybody, or it is a pod of a DaemonSet or of the system itself, which belong on every node, or of an
    /// unknown shape.
    pub(super) fn of(snapshot: &'a Snapshot, assumed: &'a Assumed, pod: &'a Pod, now: Timestamp) -> Option<Self> {
        let awaited = !snapshot.awaiting.is_empty() || !snapshot.coming.is_empty();
        let class = Some(pod).filter(|pod| awaited && !pod.daemon && !pod.critical).and_then(digest)?;
        Some(Self { snapshot, assumed, pod, class, now, placed: None })
    }

    /// Places of its class on a node that nobody has taken, or is being bound to.
    pub(super) fn places_on(&self, node: &str) -> u32 {
        let places = self.awaiting(node).and_then(|awaiting| awaiting.places.get(self.class.as_str()));
        places.map_or(0, |places| self.left(&self.class, places.left, node))
    }

    /// Whether a node that awaits pods has the capacity for them beside this one: it is one of them, and nobody is being bound to its
    /// place, or what it asks for is left beside all of them that wait anywhere.
    pub(super) fn leaves_places_whole(&self, node: &str) -> bool {
        let Some(awaiting) = self.awaiting(node) else { return true };
        if self.places_on(node) > 0 {
            return true;
        }
        let (Some(mut free), Ok(shape)) = (free_beside(self.snapshot, self.assumed, self.pod, node), &self.pod.shape)
        else {
            return true;
        };
        for (class, places) in &awaiting.places {
            // Those that were not bound elsewhere, or deleted, since the node was launched.
            let waiting = self.snapshot.waiting.get(class).copied().unwrap_or(0);
            let left = self.left(class, places.left, node).min(waiting);
            // Of a class that nobody has seen yet nothing is known but that its pods are to come.
            let Some(requests) = &places.requests else {
                if left > 0 {
                    return false;
                }
                continue;
            };
            (0..left).for_each(|_| free.subtract(requests));
        }
        has(self.snapshot, node, &free, &shape.requests)
    }

    /// Whether `filter` keeps a node for it: places of others there stay whole, and it has no place on another node while this one
    /// has just been launched.
    pub(super) fn may_go_to(&mut self, node: &str) -> bool {
        self.leaves_places_whole(node) && !(self.places_on(node) == 0 && self.is_placed() && self.is_new(node))
    }

    fn awaiting(&self, node: &str) -> Option<&'a Awaiting> {
        self.snapshot.awaiting.get(node).map(AsRef::as_ref).filter(|awaiting| awaiting.holds(self.now))
    }

    fn left(&self, class: &str, left: u32, node: &str) -> u32 {
        left.saturating_sub(self.assumed.of_class(self.snapshot, class, &self.pod.uid, node))
    }

    /// Whether we launched a node a moment ago. Clocks that differ by more make none new.
    fn is_new(&self, node: &str) -> bool {
        let ours = self.snapshot.nodes.get(node).filter(|entry| entry.node.labels.contains_key(TAG_BATCH));
        let created = ours.and_then(|entry| entry.node.created);
        created.is_some_and(|created| self.now.duration_since(created).abs() < NEW)
    }

    /// Whether there is a place for every pod of its class that waits, on nodes that were launched for them and await them or come.
    fn is_placed(&mut self) -> bool {
        if let Some(known) = self.placed {
            return known;
        }
        let class = self.class.as_str();
        let waiting = self.snapshot.waiting.get(class).copied().unwrap_or(0);
        let await_it = self.snapshot.awaiting.values().filter(|awaiting| awaiting.holds(self.now));
        let left = await_it.filter_map(|awaiting| awaiting.places.get(class)).map(|places| places.left);
        let come = self.snapshot.coming.get(class).copied().unwrap_or(0);
        let placed = left.fold(come, u32::saturating_add) >= waiting.max(1);
        self.placed = Some(placed);
        placed
    }
}

/// The node that kube-scheduler chooses for a pod of no gang after an answer of `filter`, with equal points, or of `prioritize`: the
/// only one with the most points. `None`: its own scores decide, or the node awaits nobody.
///
/// It schedules one pod after the other, and calls `bind` for one while it already asks about the next, so the next one has to be
/// answered as if this one stood there.
pub fn chosen<'a>(
    snapshot: &Snapshot,
    pod: &Pod,
    answer: impl IntoIterator<Item = (&'a str, i64)>,
    now: Timestamp,
) -> Option<&'a str> {
    if pod.membership != Membership::Single || pod.daemon {
        return None;
    }
    let (mut best, mut alone) = (None::<(&str, i64)>, false);
    for (node, score) in answer {
        match best {
            Some((_, most)) if score < most => {}
            Some((_, most)) if score == most => alone = false,
            _ => (best, alone) = (Some((node, score)), true),
        }
    }
    let (node, _) = best.filter(|_| alone)?;
    snapshot.awaiting.get(node).is_some_and(|awaiting| awaiting.holds(now)).then_some(node)
}
