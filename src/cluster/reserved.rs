//! Nodes that are there for somebody: those of a gang's or request's batch before it is in use, and those launched for pods of
//! no gang until these have come.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;
use jiff::Timestamp;
use muster_api::keys;
use muster_core::model::batch::Batch;
use muster_core::model::gang::Pod;
use muster_core::model::names::{InstanceId, NodeName, ObjectKey, PodUid};
use muster_core::model::node::Node;
use muster_core::model::snapshot::{Awaiting, Snapshot};
use muster_core::ordinary::awaiting::{self, Classes};
use rustc_hash::FxHashMap;

use super::State;

/// Nodes of Atomic batches that are not in use yet, with the key of whom they are for.
pub(super) fn reserved_nodes(state: &State) -> Vec<(NodeName, ObjectKey)> {
    let mut reserved = Vec::new();
    let waiting: BTreeMap<&str, ObjectKey> = state
        .batches
        .values()
        .filter_map(|batch| {
            let object = batch.object();
            object.status.as_ref()?;
            let pending = batch.batch().status.phase.reserves_nodes();
            let key = if let Some(gang) = &object.spec.gang_ref {
                ObjectKey::new(gang.namespace.as_str(), gang.name.as_str())
            } else {
                let request = object.spec.provisioning_request_ref.as_ref()?;
                Snapshot::booking_key(&request.namespace, &request.name)
            };
            pending.then_some((object.metadata.uid.as_deref()?, key))
        })
        .collect();
    if waiting.is_empty() {
        return reserved;
    }
    for entry in state.snapshot.nodes.values() {
        if let Some(key) = entry.node.labels.get(keys::BATCH).and_then(|uid| waiting.get(&**uid)) {
            reserved.push((entry.node.name.clone(), key.clone()));
        }
    }
    reserved
}

/// What nodes launched for pods of no gang were planned to hold. A change costs what it is about: one node, or those of one
/// batch.
#[derive(Debug, Default)]
pub(super) struct Launched {
    planned: FxHashMap<NodeName, BTreeMap<Arc<str>, u32>>,
    nodes_of: FxHashMap<String, Vec<NodeName>>,
    /// The Node of each instance: it takes a while until its batch names it.
    node_of: FxHashMap<InstanceId, NodeName>,
    /// The batch of each instance.
    batch_of: FxHashMap<InstanceId, String>,
    /// What instances that have not registered were planned to hold, by batch.
    coming_of: FxHashMap<String, BTreeMap<Arc<str>, u32>>,
    /// The same of all of them.
    coming: OrdMap<Arc<str>, u32>,
    /// Whom each of them awaited when it was last looked at.
    left: FxHashMap<NodeName, BTreeMap<Arc<str>, u32>>,
    /// When each of them stops to be kept; known once it was seen Ready.
    until: FxHashMap<NodeName, Timestamp>,
    classes: Classes,
    /// The class of each pod that waits.
    class_of: FxHashMap<PodUid, Arc<str>>,
    /// How many of each class do.
    waiting: OrdMap<Arc<str>, u32>,
}

impl Launched {
    /// A pod was seen, or is gone: what its class asks for is known by the time that a node comes for it. Returns how many of each
    /// class wait, if that changed.
    pub(super) fn note(&mut self, uid: &PodUid, pod: Option<&Pod>) -> Option<OrdMap<Arc<str>, u32>> {
        let now = pod.filter(|pod| awaiting::waits(pod)).and_then(|pod| self.classes.of(pod));
        let before = match &now {
            Some(class) => self.class_of.insert(uid.clone(), Arc::clone(class)),
            None => self.class_of.remove(uid),
        };
        if before == now {
            return None;
        }
        if let Some(class) = now {
            *self.waiting.entry(class).or_default() += 1;
        }
        if let Some(class) = before {
            self.waiting = self.waiting.alter(|many| many?.checked_sub(1).filter(|many| *many > 0), class);
        }
        Some(self.waiting.clone())
    }

    /// A Node was seen. Returns the batch of its instance, if that is news.
    pub(super) fn register(&mut self, node: &Node) -> Option<String> {
        let id = InstanceId::from(node.instance()?);
        if self.node_of.get(&id) == Some(&node.name) {
            return None;
        }
        let batch = self.batch_of.get(&id).cloned();
        self.node_of.insert(id, node.name.clone());
        batch
    }

    /// A Node is gone. Returns the batch of its instance.
    pub(super) fn unregister(&mut self, node: &Node) -> Option<String> {
        let id = InstanceId::from(node.instance()?);
        self.node_of.remove(&id)?;
        self.batch_of.get(&id).cloned()
    }

    /// The same. Returns how many places of each class have not registered, if that changed.
    pub(super) fn plan_coming(&mut self, name: &str, batch: Option<&Batch>) -> Option<OrdMap<Arc<str>, u32>> {
        let now = batch.map(|batch| awaiting::coming(batch, |id| self.node_of.get(id))).unwrap_or_default();
        let before = self.coming_of.get(name);
        if before.unwrap_or(&BTreeMap::new()) == &now {
            return None;
        }
        for (class, many) in self.coming_of.remove(name).into_iter().flatten() {
            let left = |left: Option<u32>| left?.checked_sub(many).filter(|left| *left > 0);
            self.coming = self.coming.alter(left, class);
        }
        for (class, many) in &now {
            *self.coming.entry(Arc::clone(class)).or_default() += many;
        }
        if !now.is_empty() {
            self.coming_of.insert(name.to_owned(), now);
        }
        Some(self.coming.clone())
    }

    /// A batch was seen, or is gone. Returns the nodes to look at again.
    pub(super) fn plan(&mut self, name: &str, batch: Option<&Batch>) -> Vec<NodeName> {
        match batch {
            Some(batch) => {
                for one in &batch.status.instances {
                    self.batch_of.entry(one.id.clone()).or_insert_with(|| name.to_owned());
                }
            }
            None => self.batch_of.retain(|_, batch| batch != name),
        }
        let now = batch.map(|batch| awaiting::planned(batch, |id| self.node_of.get(id))).unwrap_or_default();
        let mut touched = self.nodes_of.remove(name).unwrap_or_default();
        let same = touched.len() == now.len()
            && touched
                .iter()
                .zip(&now)
                .all(|(node, (name, pods))| node == name && self.planned.get(node) == Some(pods));
        if same {
            if !touched.is_empty() {
                self.nodes_of.insert(name.to_owned(), touched);
            }
            return Vec::new();
        }
        for node in &touched {
            let before = self.planned.remove(node);
            // Who has come to a node whose plan is the same has come.
            if !now.iter().any(|(name, pods)| name == node && before.as_ref() == Some(pods)) {
                self.left.remove(node);
            }
        }
        let names: Vec<NodeName> = now.iter().map(|(node, _)| node.clone()).collect();
        self.planned.extend(now);
        touched.retain(|node| !self.planned.contains_key(node));
        for node in &touched {
            self.until.remove(node);
        }
        touched.extend(names.iter().cloned());
        if !names.is_empty() {
            self.nodes_of.insert(name.to_owned(), names);
        }
        touched
    }

    /// Whom a node awaits at `now`, in real time; `on` are the pods on it. `None`: nobody.
    pub(super) fn look<'a>(
        &mut self,
        name: &NodeName,
        node: Option<&Node>,
        on: impl Iterator<Item = &'a Arc<Pod>>,
        now: Timestamp,
    ) -> Option<Awaiting> {
        let planned = self.planned.get(name)?;
        let node = node?;
        if node.ready && !self.until.contains_key(name) {
            self.until.insert(name.clone(), awaiting::until(node, now));
        }
        let until = self.until.get(name).copied();
        let awaiting = awaiting::awaiting(planned, self.left.get(name), on, &mut self.classes, until);
        let places = awaiting.iter().flat_map(|all| &all.places);
        self.left.insert(name.clone(), places.map(|(class, places)| (Arc::clone(class), places.left)).collect());
        awaiting
    }
}
