//! Emptiness that nobody saw come about: after a restart, or when a list of pods comes back short, whole clusters may look empty.
//! A few such nodes are trusted; many are kept, as orphans are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::decision::Memory;
use super::partial::is_for_pods;
use crate::model::batch::{Batch, MemberState};
use crate::model::snapshot::Snapshot;

/// So many empty nodes that this process never saw in use are trusted, or a tenth of all, whichever is more.
const TRUSTED: usize = 5;

/// Takes note of which nodes for pods of no gang this process has seen in use or on their way, and whether more of them look empty
/// without that than may be trusted. Called before each pass, on what the pass looks at.
pub fn witness(batches: &BTreeMap<String, Arc<Batch>>, snapshot: &Snapshot, memory: &mut BTreeMap<String, Memory>) {
    let for_pods: Vec<&Arc<Batch>> = batches.values().filter(|batch| is_for_pods(batch)).collect();
    if for_pods.is_empty() {
        return;
    }
    let nodes: BTreeSet<&str> = for_pods.iter().flat_map(|batch| batch.status.node_names()).collect();
    let used: BTreeSet<&str> =
        snapshot.occupants(&nodes).filter_map(|pod| pod.node.as_ref().map(|node| node.as_str())).collect();
    let (mut all, mut unseen) = (0_usize, 0_usize);
    for batch in &for_pods {
        let known = memory.entry(batch.name.clone()).or_default();
        for one in &batch.status.instances {
            let ready = one.state == MemberState::Ready;
            all += usize::from(ready);
            if !ready || one.node.as_deref().is_some_and(|node| used.contains(node)) {
                known.witnessed.insert(one.id.clone());
            } else if !known.witnessed.contains(&one.id) {
                unseen += 1;
            }
        }
        let there = |id: &crate::model::names::InstanceId| batch.status.instances.iter().any(|one| one.id == *id);
        known.witnessed.retain(there);
    }
    let held = unseen > TRUSTED.max(all / 10);
    for batch in for_pods {
        if let Some(known) = memory.get_mut(&batch.name) {
            known.keeps_unwitnessed = held;
        }
    }
}
