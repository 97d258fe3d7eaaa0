//! Whom nodes for pods of no gang await, as a replica keeps it from one state to the next.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use muster_core::model::batch::Batch;
use muster_core::model::names::{InstanceId, NodeName};
use muster_core::model::snapshot::Snapshot;
use muster_core::ordinary::awaiting::{self, Classes, awaiting};

#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// Whom each node awaited when it was last looked at.
    left: BTreeMap<NodeName, BTreeMap<Arc<str>, u32>>,
    /// When each stops to be kept.
    until: BTreeMap<NodeName, Timestamp>,
    classes: Classes,
}

impl Awaited {
    /// Adds what nodes await to a state.
    pub(super) fn look<'b>(
        &mut self,
        snapshot: &mut Snapshot,
        batches: impl Iterator<Item = &'b Batch>,
        now: Timestamp,
    ) {
        snapshot.waiting = awaiting::waiting(snapshot.pods.values(), &mut self.classes);
        let batches: Vec<&Batch> = batches.collect();
        let instances = snapshot.nodes.values().filter_map(|entry| {
            let id = entry.node.instance()?;
            Some((InstanceId::from(id), entry.node.name.clone()))
        });
        let instances: BTreeMap<InstanceId, NodeName> = instances.collect();
        let node_of = |id: &InstanceId| instances.get(id);
        for (class, many) in batches.iter().flat_map(|batch| awaiting::coming(batch, node_of)) {
            *snapshot.coming.entry(class).or_default() += many;
        }
        for (name, planned) in batches.into_iter().flat_map(|batch| awaiting::planned(batch, node_of)) {
            let Some(entry) = snapshot.nodes.get(&name) else { continue };
            if entry.node.ready && !self.until.contains_key(&name) {
                self.until.insert(name.clone(), awaiting::until(&entry.node, now));
            }
            let on = snapshot.pods.values().filter(|pod| pod.node.as_ref() == Some(&name));
            let until = self.until.get(&name).copied();
            let awaiting = awaiting(&planned, self.left.get(&name), on, &mut self.classes, until);
            let places = awaiting.iter().flat_map(|all| &all.places);
            let left = places.map(|(class, places)| (Arc::clone(class), places.left)).collect();
            self.left.insert(name.clone(), left);
            if let Some(awaiting) = awaiting {
                snapshot.awaiting.insert(name, Arc::new(awaiting));
            }
        }
    }
}
