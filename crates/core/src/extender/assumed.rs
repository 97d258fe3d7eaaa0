//! Ordinary pods that this replica is binding: between its call and what the watch shows of it.

use std::sync::Arc;

use imbl::OrdMap;

use crate::model::gang::{Membership, Pod};
use crate::model::names::{NodeName, PodUid};
use crate::model::resources::Resources;
use crate::model::snapshot::Snapshot;
use crate::ordinary::digest;

/// Ordinary pods whose Binding is posted here and not shown by the watch yet, with the capacity each takes.
///
/// Taken before the snapshot it is used with: whoever is missing here is shown there. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Assumed {
    nodes: OrdMap<NodeName, OrdMap<PodUid, Arc<Taken>>>,
    pods: OrdMap<PodUid, NodeName>,
}

/// What one of them takes.
#[derive(Debug)]
struct Taken {
    requested: Resources,
    /// Its class, see [`crate::ordinary::digest`]; `None`: its shape is not known.
    class: Option<String>,
}

impl Assumed {
    /// Whether nothing is assumed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Whether a pod is assumed on some node.
    #[must_use]
    pub fn contains(&self, uid: &PodUid) -> bool {
        self.pods.contains_key(uid)
    }

    /// The pod is being bound to `node`, and to no other.
    pub fn add(&mut self, pod: &Pod, node: &str) {
        self.remove(&pod.uid);
        let node = NodeName::from(node);
        let taken = Taken { requested: pod.held.requested.clone(), class: digest(pod) };
        self.pods.insert(pod.uid.clone(), node.clone());
        self.nodes.entry(node).or_default().insert(pod.uid.clone(), Arc::new(taken));
    }

    /// The pod is not bound, and will not be by what was posted.
    pub fn remove(&mut self, uid: &PodUid) {
        let Some(node) = self.pods.remove(uid) else { return };
        if let Some(pods) = self.nodes.get_mut(&node) {
            pods.remove(uid);
            if pods.is_empty() {
                self.nodes.remove(&node);
            }
        }
    }

    /// Forgets pods that the snapshot shows bound or gone.
    pub fn settle(&mut self, snapshot: &Snapshot) {
        let shown = |uid: &&PodUid| snapshot.pods.get(*uid).is_none_or(|pod| pod.node.is_some());
        for uid in self.pods.clone().keys().filter(shown) {
            self.remove(uid);
        }
    }

    /// What is assumed on a node beside `pod` and beside what the snapshot counts there.
    pub(super) fn subtract_from(&self, free: &mut Resources, snapshot: &Snapshot, pod: &PodUid, node: &str) {
        for (uid, taken) in self.nodes.get(node).into_iter().flatten() {
            let counted =
                snapshot.pods.get(uid).is_none_or(|known| known.node.is_some() || counted_on(known) == Some(node));
            if uid != pod && !counted {
                free.subtract(&taken.requested);
            }
        }
    }

    /// How many pods of a class are assumed on a node beside `pod`, and are not shown as bound.
    pub(super) fn of_class(&self, snapshot: &Snapshot, class: &str, pod: &PodUid, node: &str) -> u32 {
        let unseen = |uid: &PodUid| snapshot.pods.get(uid).is_some_and(|known| known.node.is_none());
        let pods = self.nodes.get(node).into_iter().flatten();
        let count =
            pods.filter(|(uid, taken)| *uid != pod && taken.class.as_deref() == Some(class) && unseen(uid)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

/// The node in whose usage a single pod is counted.
pub(super) fn counted_on(pod: &Pod) -> Option<&str> {
    if pod.ended {
        return None;
    }
    let nominated = pod.nominated.as_ref().filter(|_| pod.membership == Membership::Single && !pod.deleting);
    pod.node.as_ref().or(nominated).map(NodeName::as_str)
}
