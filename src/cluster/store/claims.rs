//! What pods claim beside the resources of their containers: volumes and devices.
//!
//! Claims, classes, volumes and slices change on their own: the pods and nodes that a change is about are looked at again
//! with the next publication.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use muster_api::dra::{DeviceUse, Devices, TouchedDevices};
use muster_api::keys;
use muster_api::volumes::{Touched, Used, Volumes};
use muster_core::model::gang::Pod as CorePod;
use muster_core::model::names::{NodeName, PodUid};
use muster_core::model::node::Node as CoreNode;
use muster_core::model::snapshot::NodeEntry;

use super::Store;

impl Store {
    /// What is known of volumes.
    pub(in crate::cluster) fn volumes(&mut self) -> &mut Volumes {
        &mut self.volumes
    }

    /// What is known of devices.
    pub(in crate::cluster) fn devices(&mut self) -> &mut Devices {
        &mut self.devices
    }

    /// Adds to a pod, as it was read, what its claims ask for, and notes which they are.
    pub(super) fn apply_claims(&mut self, uid: &PodUid, pod: &Pod, core: &mut CorePod) {
        self.leave_volumes(uid);
        let (volumes, devices) = (Used::read(pod), DeviceUse::read(pod));
        // What a pod asks for that has ended is not held any more, whatever its claims have.
        self.devices.apply_pod(uid.as_str(), devices.clone());
        if volumes.is_none() && devices.is_none() {
            return;
        }
        for claim in volumes.iter().flat_map(Used::claims) {
            self.users.entry(claim.clone()).or_default().insert(uid.clone());
        }
        let bare = Arc::new(core.clone());
        if let Some(used) = &volumes {
            self.volumes.complete(core, used);
        }
        if let Some(used) = &devices {
            self.devices.complete(core, used);
        }
        self.with_claims.insert(uid.clone(), (bare, volumes));
    }

    /// The pod is gone.
    pub(super) fn leave_claims(&mut self, uid: &PodUid) {
        self.leave_volumes(uid);
        self.devices.delete_pod(uid.as_str());
    }

    /// The pod uses no volume any more.
    fn leave_volumes(&mut self, uid: &PodUid) {
        let Some((_, used)) = self.with_claims.remove(uid) else { return };
        for claim in used.iter().flat_map(Used::claims) {
            if let Some(users) = self.users.get_mut(claim) {
                users.remove(uid);
                if users.is_empty() {
                    self.users.remove(claim);
                }
            }
        }
    }

    /// Looks again at the pods and nodes that a change of claims, volumes, classes or limits is about.
    pub(super) fn look_at_volumes(&mut self) {
        let Touched { claims, hostnames, nodes } = self.volumes.take_touched();
        let pods: BTreeSet<PodUid> =
            claims.iter().filter_map(|claim| self.users.get(claim)).flatten().cloned().collect();
        pods.iter().for_each(|uid| self.complete_again(uid));
        let on_host = hostnames.iter().filter_map(|hostname| self.hostnames.get(hostname.as_str())).flatten().cloned();
        let named = nodes.iter().map(|node| NodeName::from(node.as_str()));
        let nodes: BTreeSet<NodeName> = on_host.chain(named).collect();
        nodes.iter().for_each(|node| self.put_node_again(node));
    }

    /// Looks again at the pods and nodes that a change of claims, classes or slices is about.
    pub(super) fn look_at_devices(&mut self) {
        let TouchedDevices { pods, nodes } = self.devices.take_touched();
        pods.iter().for_each(|uid| self.complete_again(&PodUid::from(uid.as_str())));
        nodes.iter().for_each(|node| self.put_node_again(&NodeName::from(node.as_str())));
    }

    fn complete_again(&mut self, uid: &PodUid) {
        let Some(known) = self.state.snapshot.pods.get(uid).cloned() else { return };
        let Some((bare, used)) = self.with_claims.get(uid) else { return };
        let (membership, foreign, daemon) = (known.membership.clone(), known.foreign, known.daemon);
        let mut pod = CorePod { membership, foreign, daemon, ..CorePod::clone(bare) };
        if let Some(used) = used {
            self.volumes.complete(&mut pod, used);
        }
        if let Some(used) = self.devices.used_by(uid.as_str()) {
            self.devices.complete(&mut pod, used);
        }
        if pod == *known {
            return;
        }
        if let Some(metadata) = self.metadata.get(uid).cloned() {
            let (recognition, _) = self.recognise(&metadata);
            self.index(uid.clone(), &Arc::new(pod), recognition);
        }
    }

    fn put_node_again(&mut self, node: &NodeName) {
        if let Some(bare) = self.bare_nodes.get(node).cloned() {
            self.put_node(&bare);
        }
    }

    /// Puts a node into the state, with what it has of volumes and devices.
    pub(super) fn put_node(&mut self, bare: &Arc<CoreNode>) {
        let hostname = bare.labels.get(keys::HOSTNAME).map(AsRef::as_ref);
        let mut has = self.volumes.on_node(bare.name.as_str(), hostname);
        let pods = &self.state.snapshot.pods;
        let counts = |uid: &str| pods.get(uid).is_some_and(|pod| !pod.ended);
        has.add(&self.devices.on_node(bare.name.as_str(), &bare.allocatable, counts));
        let mut node = Arc::clone(bare);
        if !has.is_empty() {
            Arc::make_mut(&mut node).allocatable.add(&has);
        }
        if self.state.snapshot.nodes.get(&node.name).is_some_and(|known| known.node == node) {
            return;
        }
        let usage = self.usage(&node.name);
        self.state
            .change()
            .snapshot
            .nodes
            .insert(node.name.clone(), Arc::new(NodeEntry { node, usage: Arc::new(usage) }));
        self.look_at_awaited(&bare.name);
    }
}
