//! Edits of Nodes that were made and that the watch has not shown yet.
//!
//! What is decided meanwhile is decided on the Node as it was, and asks for the same edit again. Each is a read of the Node at the API server
//! for nothing, and where hundreds of nodes come at once there are ten of them for every node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_core::batch::Converge;
use muster_core::model::node::Node;
use muster_core::model::snapshot::Snapshot;
use tokio::time::Instant;

/// A watch shows what was written within this; then the edit is made again.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);

/// The last edit of each Node, until the watch shows the Node otherwise than when that was decided.
#[derive(Debug, Default)]
pub(super) struct Unshown(BTreeMap<String, Made>);

#[derive(Debug)]
struct Made {
    edit: Converge,
    /// The Node as it was shown.
    before: Arc<Node>,
    at: Instant,
}

/// Edits that are about to be made, with the Nodes that they were decided on.
pub(super) type Begun = Vec<(Converge, Arc<Node>)>;

impl Unshown {
    /// Those of `edits` that are not made and waiting to be shown.
    pub(super) fn rest(&mut self, edits: Vec<Converge>, snapshot: &Snapshot) -> Vec<Converge> {
        let now = Instant::now();
        self.0.retain(|_, made| now.duration_since(made.at) < SHOWN_WITHIN);
        let is_made = |edit: &Converge| {
            let known = node_of(edit).and_then(|name| self.0.get(name)).filter(|known| known.edit == *edit);
            known.zip(node(snapshot, edit)).is_some_and(|(known, node)| Arc::ptr_eq(&known.before, node))
        };
        edits.into_iter().filter(|edit| !is_made(edit)).collect()
    }

    /// Edits of Nodes among these.
    pub(super) fn begin(edits: &[Converge], snapshot: &Snapshot) -> Begun {
        edits.iter().filter_map(|edit| Some((edit.clone(), Arc::clone(node(snapshot, edit)?)))).collect()
    }

    /// They were made.
    pub(super) fn made(&mut self, begun: Begun) {
        let at = Instant::now();
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

fn node<'a>(snapshot: &'a Snapshot, edit: &Converge) -> Option<&'a Arc<Node>> {
    snapshot.nodes.get(node_of(edit)?).map(|entry| &entry.node)
}

#[cfg(test)]
mod tests {
    use muster_core::model::snapshot::NodeEntry;

    use super::*;

    const KEY: &str = "muster.dev/unregistered";

    fn untaint(node: &str) -> Converge {
        Converge::Untaint { node: node.to_owned(), key: KEY }
    }

    fn shows(snapshot: &mut Snapshot, name: &str) {
        let node = serde_json::from_value(serde_json::json!({"metadata": {"name": name}})).unwrap();
        let node = muster_api::convert::node(&node).unwrap();
        let entry = NodeEntry { node: Arc::new(node), usage: Arc::default() };
        snapshot.nodes.insert(name.into(), Arc::new(entry));
    }

    #[test]
    fn an_edit_that_was_made_is_not_made_again_before_the_watch_shows_its_node_otherwise() {
        let (mut unshown, mut snapshot) = (Unshown::default(), Snapshot::default());
        shows(&mut snapshot, "n1");
        shows(&mut snapshot, "n2");
        let both = vec![untaint("n1"), untaint("n2")];
        let begun = Unshown::begin(&both, &snapshot);
        assert_eq!(unshown.rest(both.clone(), &snapshot), both, "what is only begun may fail");
        unshown.made(begun);
        let taint = Converge::Taint { node: "n1".to_owned(), instance: "i-1".into(), key: KEY };
        let evict = Converge::UnblockPool("p".to_owned());
        let others = vec![taint, evict];
        let asked = both.iter().chain(&others).cloned().collect();
        assert_eq!(unshown.rest(asked, &snapshot), others, "another edit of the Node, and of something else");
        // Its kubelet reported something, or somebody put the taint back.
        shows(&mut snapshot, "n1");
        assert_eq!(unshown.rest(both.clone(), &snapshot), [untaint("n1")]);
        snapshot.nodes.remove("n2");
        assert_eq!(unshown.rest(both, &snapshot), [untaint("n1"), untaint("n2")], "its Node is gone");
    }

    #[test]
    fn an_edit_that_is_not_shown_in_time_is_made_again_and_so_is_the_one_before_the_last() {
        let (mut unshown, mut snapshot) = (Unshown::default(), Snapshot::default());
        shows(&mut snapshot, "n1");
        let made = |unshown: &mut Unshown, edit: &Converge| {
            unshown.made(Unshown::begin(std::slice::from_ref(edit), &snapshot));
        };
        let taint = Converge::Taint { node: "n1".to_owned(), instance: "i-1".into(), key: KEY };
        made(&mut unshown, &untaint("n1"));
        made(&mut unshown, &taint);
        let both = vec![untaint("n1"), taint];
        assert_eq!(unshown.rest(both.clone(), &snapshot), [untaint("n1")]);
        let Some(earlier) = Instant::now().checked_sub(SHOWN_WITHIN) else { panic!("the machine has just started") };
        unshown.0.values_mut().for_each(|made| made.at = earlier);
        assert_eq!(unshown.rest(both.clone(), &snapshot), both);
    }
}
