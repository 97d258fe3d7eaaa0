//! Nodes that have registered and cannot be used yet: whether they are on their way, and what of them goes until then.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use muster_api::keys;
use muster_core::gang;
use muster_core::model::node::{Node, Taint};

use super::{Planning, owner_of};

/// A node whose kubelet stopped reporting was Ready once: it does not become so by waiting.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

impl Planning<'_> {
    /// For a node of a pool that has registered and cannot be used yet, and is on its way: which of its taints go once it can.
    pub(super) fn awaited_taints(&self, node: &Node) -> Option<impl Fn(&Taint) -> bool> {
        let pool = node.labels.get(keys::NODEPOOL);
        let index = pool.and_then(|pool| self.supply.pools.iter().position(|known| known.name == *pool));
        let startup = index.and_then(|index| self.supply.startup_taints.get(index)).cloned().unwrap_or_default();
        let goes = move |taint: &Taint| {
            gang::NOT_READY.contains(&&*taint.key) && &*taint.key != UNREACHABLE
                || *taint.key == *keys::UNREGISTERED
                || startup.iter().any(|one| (&one.key, &one.effect) == (&taint.key, &taint.effect))
        };
        let ours = pool.is_some() || node.labels.contains_key(keys::BATCH);
        let unusable = !node.ready || node.taints.iter().any(&goes);
        (ours && !node.deleting && unusable && self.comes(node)).then_some(goes)
    }

    /// Whether a node that cannot be used yet is on its way to pods of no gang: as its NodeBatch says, as the server has it. Of a
    /// node that no batch lists its age says so, and that nobody stands there who waits for it.
    fn comes(&self, node: &Node) -> bool {
        self.coming.joins(node).unwrap_or_else(|| self.is_young(node) && !self.was_usable(node))
    }

    /// Whether a node that is not Ready may still be joining: as long as the server waits for one.
    pub(super) fn is_young(&self, node: &Node) -> bool {
        let within: SignedDuration = gang::Settings::new(keys::GANG_PENDING).join_within;
        // A node without a moment of its creation was written by hand.
        node.created.zip(self.now).is_none_or(|(created, now)| now.duration_since(created) < within)
    }

    /// Whether kube-scheduler has put pods there. DaemonSets' and static ones stand on a node from the start, and so may those that
    /// tolerate everything.
    fn was_usable(&self, node: &Node) -> bool {
        let bound =
            |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node.name.as_str());
        let first = |pod: &Pod| {
            let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref());
            let everything = tolerations.into_iter().flatten().any(|one| {
                one.key.as_deref().unwrap_or_default().is_empty()
                    && one.effect.as_deref().unwrap_or_default().is_empty()
            });
            everything || ["DaemonSet", "Node"].into_iter().any(|kind| owner_of(pod, kind).is_some())
        };
        self.standing.iter().any(|(at, pod)| *at == node.name && bound(pod) && !first(pod))
    }
}
