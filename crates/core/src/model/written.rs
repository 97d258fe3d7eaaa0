//! A [`Snapshot`] as lists, in an order that does not follow from hashing.

use std::sync::Arc;

use imbl::OrdMap;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::gang::{Gang, Pod, Recognised};
use super::names::{NodeName, ObjectKey, PodUid};
use super::snapshot::{Assignment, Awaiting, NodeEntry, Snapshot};

/// Names and UIDs of a gang's members.
type Members = Vec<(Arc<str>, PodUid)>;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    version: u64,
    synced: bool,
    nodes: Vec<Arc<NodeEntry>>,
    pods: Vec<Arc<Pod>>,
    members: Vec<(ObjectKey, Members)>,
    recognised: Vec<(ObjectKey, Arc<Recognised>)>,
    gangs: Vec<Arc<Gang>>,
    assignments: Vec<(NodeName, Vec<Assignment>)>,
    accelerators: Vec<Arc<str>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    awaiting: Vec<(NodeName, Arc<Awaiting>)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    coming: Vec<(Arc<str>, u32)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    waiting: Vec<(Arc<str>, u32)>,
}

/// Writes it.
///
/// Errors: those of the writer.
pub(crate) fn serialize<S: Serializer>(snapshot: &Snapshot, serializer: S) -> Result<S::Ok, S::Error> {
    let mut pods: Vec<Arc<Pod>> = snapshot.pods.values().cloned().collect();
    pods.sort_unstable_by(|one, other| one.uid.cmp(&other.uid));
    let mut assignments: Vec<(NodeName, Vec<Assignment>)> =
        snapshot.assignments.iter().map(|(node, all)| (node.clone(), all.clone())).collect();
    assignments.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let members = snapshot.members.iter().map(|(gang, members)| {
        (gang.clone(), members.iter().map(|(name, uid)| (Arc::clone(name), uid.clone())).collect())
    });
    let recognised = snapshot.recognised.iter().map(|(gang, recognised)| (gang.clone(), Arc::clone(recognised)));
    let written = Written {
        version: snapshot.version,
        synced: snapshot.synced,
        nodes: snapshot.nodes.values().cloned().collect(),
        pods,
        members: members.collect(),
        recognised: recognised.collect(),
        gangs: snapshot.gangs.values().cloned().collect(),
        assignments,
        accelerators: snapshot.accelerators.clone(),
        awaiting: snapshot.awaiting.iter().map(|(node, awaiting)| (node.clone(), Arc::clone(awaiting))).collect(),
        coming: snapshot.coming.iter().map(|(class, many)| (Arc::clone(class), *many)).collect(),
        waiting: snapshot.waiting.iter().map(|(class, many)| (Arc::clone(class), *many)).collect(),
    };
    written.serialize(serializer)
}

/// Reads it back.
///
/// Errors: what is no snapshot.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Snapshot, D::Error> {
    let written = Written::deserialize(deserializer)?;
    Ok(Snapshot {
        version: written.version,
        synced: written.synced,
        nodes: written.nodes.into_iter().map(|entry| (entry.node.name.clone(), entry)).collect(),
        pods: written.pods.into_iter().map(|pod| (pod.uid.clone(), pod)).collect(),
        members: written
            .members
            .into_iter()
            .map(|(gang, all)| (gang, all.into_iter().collect::<OrdMap<_, _>>()))
            .collect(),
        recognised: written.recognised.into_iter().collect(),
        gangs: written.gangs.into_iter().map(|gang| (gang.key.clone(), gang)).collect(),
        assignments: written.assignments.into_iter().collect::<FxHashMap<_, _>>(),
        accelerators: written.accelerators,
        awaiting: written.awaiting.into_iter().collect(),
        coming: written.coming.into_iter().collect(),
        waiting: written.waiting.into_iter().collect(),
        vanished: Arc::default(),
    })
}
