//! Edits of Nodes that were made and that the watch has not shown yet.
//!
//! What is decided meanwhile is decided on the Node as it was, and asks for the same edit again: requests to the API server for nothing, and
//! where hundreds of nodes come at once there were ten of them for every node.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::decision::Converge;
use crate::model::node::Node;
use crate::model::snapshot::Snapshot;

/// A watch shows what was written within this; then the edit is made again. An API server that has no processor left, as where hundreds of
/// nodes come at once on a small machine, takes three seconds.
const SHOWN_WITHIN: SignedDuration = SignedDuration::from_secs(10);

/// The last edit of each Node that this process made, until the watch shows what is edited otherwise than when that was decided. Others
/// edit a Node that has just come too, its kubelet and kube-controller-manager: that they are shown says nothing of ours. Times are real.
#[derive(Debug, Default)]
pub struct Unshown(BTreeMap<String, Made>);

#[derive(Debug)]
struct Made {
    edit: Converge,
    /// The Node as it was shown.
    before: Arc<Node>,
    at: Timestamp,
}

/// Edits that are about to be made, with the Nodes that they were decided on.
pub type Begun = Vec<(Converge, Arc<Node>)>;

impl Unshown {
    /// Those of `edits`, decided on this state, that are not made already and only wait to be shown.
    #[must_use]
    pub fn rest(&mut self, edits: Vec<Converge>, snapshot: &Snapshot, now: Timestamp) -> Vec<Converge> {
        // What was shown may be undone by somebody, and then looks as before.
        self.0.retain(|_, made| {
            let node = node(snapshot, &made.edit);
            let unshown = node.is_some_and(|node| is_as_before(&made.edit, &made.before, node));
            unshown && now.duration_since(made.at) < SHOWN_WITHIN
        });
        let known = |edit: &Converge| node_of(edit).and_then(|name| self.0.get(name));
        let is_made = |edit: &Converge| known(edit).is_some_and(|known| known.edit == *edit);
        // What keeps pods off a node is made as often as it is asked for: a watch may show it and its undoing in one.
        let keeps_off = |edit: &Converge| matches!(edit, Converge::Taint { .. } | Converge::Hold { .. });
        edits.into_iter().filter(|edit| keeps_off(edit) || !is_made(edit)).collect()
    }

    /// Edits of Nodes among these, which are about to be made.
    #[must_use]
    pub fn begin(edits: &[Converge], snapshot: &Snapshot) -> Begun {
        edits.iter().filter_map(|edit| Some((edit.clone(), Arc::clone(node(snapshot, edit)?)))).collect()
    }

    /// They were made by this time.
    pub fn made(&mut self, begun: Begun, at: Timestamp) {
        for (edit, before) in begun {
            self.0.insert(before.name.to_string(), Made { edit, before, at });
        }
    }
}

/// The Node that is edited: of everything else it is not known how it looks afterwards.
fn node_of(edit: &Converge) -> Option<&str> {
    match edit {
        Converge::Taint { node, .. }
        | Converge::Untaint { node, .. }
        | Converge::Hold { node, .. }
        | Converge::Unhold { node }
        | Converge::Label { node, .. } => Some(node),
        Converge::DeleteNode { .. }
        | Converge::Evict { .. }
        | Converge::BlockPool { .. }
        | Converge::CountProbe { .. }
        | Converge::UnblockPool(_)
        | Converge::Book(_)
        | Converge::Remove => None,
    }
}

/// Whether a Node is the one that was edited, and is where this edit changes it as it was before.
fn is_as_before(edit: &Converge, before: &Node, node: &Node) -> bool {
    let one = before.created == node.created && before.provider_id == node.provider_id;
    let taint = |node: &Node, key: &str| node.taints.iter().find(|taint| *taint.key == *key).cloned();
    one && match edit {
        Converge::Untaint { key, .. } => taint(before, key) == taint(node, key),
        Converge::Label { labels, .. } => labels.keys().all(|key| before.labels.get(key) == node.labels.get(key)),
        _ => before == node,
    }
}

fn node<'a>(snapshot: &'a Snapshot, edit: &Converge) -> Option<&'a Arc<Node>> {
    snapshot.nodes.get(node_of(edit)?).map(|entry| &entry.node)
}
