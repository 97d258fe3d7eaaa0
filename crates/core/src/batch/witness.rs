//! Emptiness that nobody saw come about: after a restart, or when a list of pods or Nodes comes back short, whole clusters may look
//! empty. A few such nodes are trusted; many are kept, as orphans are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::collect::credible;
use super::decision::Memory;
use super::parting::is_for_pods;
use crate::model::batch::{Batch, BatchMember, MemberState};
use crate::model::names::InstanceId;
use crate::model::snapshot::Snapshot;

/// More nodes look empty, or are missing, than is credible: none of them is tainted or terminated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Nodes that no pod stands on, and no event reported that any had left.
    pub empty: usize,
    /// Ready instances without a Node, and no event reported that it had gone.
    pub missing: usize,
    /// Ready instances for pods of no gang.
    pub all: usize,
    /// NodePools with nodes among them.
    pub pools: BTreeSet<String>,
}

impl std::fmt::Display for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { empty, missing, all, pools: _ } = self;
        let trusted = credible(*all);
        write!(
            f,
            "of {all} nodes for pods of no gang {empty} look empty and {missing} are missing, and nobody saw their pods or Nodes go: \
             more than the {trusted} that are trusted at once. They are kept; delete their NodeBatches to let go of those that are empty"
        )
    }
}

/// Takes note of which nodes for pods of no gang this process has seen in use or on their way, and of which it saw the Node. What a
/// full list did not have any more counts as never seen. The answer is what is kept if more of them look empty, or are missing, than
/// may be trusted. Called before each pass, on what the pass looks at.
pub fn witness(
    batches: &BTreeMap<String, Arc<Batch>>,
    snapshot: &Snapshot,
    memory: &mut BTreeMap<String, Memory>,
) -> Option<Kept> {
    let for_pods: Vec<&Arc<Batch>> = batches.values().filter(|batch| is_for_pods(batch)).collect();
    if for_pods.is_empty() {
        return None;
    }
    let nodes: BTreeSet<&str> = for_pods.iter().flat_map(|batch| batch.status.node_names()).collect();
    let used: BTreeSet<&str> =
        snapshot.occupants(&nodes).filter_map(|pod| pod.node.as_ref().map(|node| node.as_str())).collect();
    let mut kept = Kept::default();
    for batch in &for_pods {
        let known = memory.entry(batch.name.clone()).or_default();
        let (mut empty, mut missing) = (0, 0);
        for one in &batch.status.instances {
            kept.all += usize::from(one.state == MemberState::Ready);
            match unseen(one, snapshot, &used, known) {
                Some(Unseen::Emptied) => empty += 1,
                Some(Unseen::Went) => missing += 1,
                None => {}
            }
        }
        let there: BTreeSet<&InstanceId> = batch.status.instances.iter().map(|one| &one.id).collect();
        known.witnessed.retain(|id| there.contains(id));
        known.met.retain(|id| there.contains(id));
        (kept.empty, kept.missing) = (kept.empty + empty, kept.missing + missing);
        kept.pools.extend(batch.status.node_pool.iter().filter(|_| empty + missing > 0).cloned());
    }
    let held = kept.empty + kept.missing > credible(kept.all);
    for batch in for_pods {
        if let Some(known) = memory.get_mut(&batch.name) {
            known.keeps_unwitnessed = held;
        }
    }
    held.then_some(kept)
}

/// What nobody saw come about.
enum Unseen {
    /// The node looks empty.
    Emptied,
    /// Its Node is missing.
    Went,
}

/// Takes note of one instance.
fn unseen(one: &BatchMember, snapshot: &Snapshot, used: &BTreeSet<&str>, known: &mut Memory) -> Option<Unseen> {
    if one.state != MemberState::Ready {
        take_note(&mut known.witnessed, one);
        return None;
    }
    let node = one.node.as_deref()?;
    if !snapshot.nodes.contains_key(node) {
        if snapshot.vanished.nodes.contains(node) {
            known.met.remove(&one.id);
        }
        // Of one that is known to be lost it is known how.
        return (one.loss.is_none() && !known.met.contains(&one.id)).then_some(Unseen::Went);
    }
    take_note(&mut known.met, one);
    if used.contains(node) {
        take_note(&mut known.witnessed, one);
        return None;
    }
    if snapshot.vanished.pods_of.contains(node) {
        known.witnessed.remove(&one.id);
    }
    (!known.witnessed.contains(&one.id)).then_some(Unseen::Emptied)
}

/// Most are known: nothing is copied for them.
fn take_note(known: &mut BTreeSet<InstanceId>, one: &BatchMember) {
    if !known.contains(&one.id) {
        known.insert(one.id.clone());
    }
}
