//! What the volumes of pods ask for, as core data: where a volume can be reached, how many a node takes, and what is
//! waited for.
//!
//! kube-scheduler decides this from claims, volumes, classes and CSINodes in its plugins `VolumeBinding`, `VolumeZone`,
//! `NodeVolumeLimits` and `VolumeRestrictions`, and it binds volumes before a pod comes to the barrier. What is read here
//! is what those plugins of v1.37 read, but for: CSIStorageCapacity, `preventPodSchedulingIfMissing` of a CSIDriver,
//! volumes that are attached to a node without a pod there, and the sizes of local volumes of one class on one node, which
//! count as alike. Where these matter, kube-scheduler refuses the planned node, and the gang is planned again without it.

mod objects;
mod resolve;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use muster_core::model::gang::Pod;
use muster_core::model::names::ObjectKey;
use muster_core::model::resources::{ATTACHABLE_VOLUMES, LOCAL_VOLUMES, Resources, volume_limit};

use self::objects::{Claim, Class, Volume};
pub use self::resolve::{Needs, Used};

/// Claims, volumes, classes and limits of a cluster, and what changed since they were last asked.
#[derive(Clone, Debug, Default)]
pub struct Volumes {
    claims: BTreeMap<ObjectKey, Claim>,
    volumes: BTreeMap<String, Volume>,
    classes: BTreeMap<String, Class>,
    /// Limits by node, then driver.
    limits: BTreeMap<String, BTreeMap<String, i64>>,
    /// Claims without a volume by class.
    unbound: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// Volumes that nobody has claimed, by class.
    free: BTreeMap<String, BTreeSet<String>>,
    /// Volumes by the claim that they name.
    named: BTreeMap<ObjectKey, BTreeSet<String>>,
    /// Volumes that nobody has claimed, by the hostname of the node that reaches them.
    local: BTreeMap<String, BTreeSet<String>>,
    touched: Touched,
}

/// What has to be looked at again after changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Claims: the pods that use them.
    pub claims: BTreeSet<ObjectKey>,
    /// Nodes, by the value of their label `kubernetes.io/hostname`.
    pub hostnames: BTreeSet<String>,
    /// Nodes, by name.
    pub nodes: BTreeSet<String>,
}

impl Volumes {
    /// A claim was seen.
    pub fn apply_claim(&mut self, claim: &k8s::PersistentVolumeClaim) {
        let key = key(&claim.metadata);
        self.forget_claim(&key);
        let claim = Claim::read(claim);
        if claim.volume.is_none() {
            self.unbound.entry(claim.class.clone()).or_default().insert(key.clone());
        }
        self.claims.insert(key, claim);
    }

    /// A claim is gone.
    pub fn delete_claim(&mut self, key: &ObjectKey) {
        self.forget_claim(key);
    }

    /// Claims that are not among `keys` are gone.
    pub fn retain_claims(&mut self, keys: &BTreeSet<ObjectKey>) {
        let gone: Vec<ObjectKey> = self.claims.keys().filter(|key| !keys.contains(*key)).cloned().collect();
        gone.iter().for_each(|key| self.forget_claim(key));
    }

    fn forget_claim(&mut self, key: &ObjectKey) {
        self.touched.claims.insert(key.clone());
        if let Some(before) = self.claims.remove(key) {
            remove(&mut self.unbound, &before.class, key);
        }
    }

    /// A volume was seen.
    pub fn apply_volume(&mut self, volume: &k8s::PersistentVolume) {
        let name = volume.metadata.name.clone().unwrap_or_default();
        self.delete_volume(&name);
        let volume = Volume::read(volume);
        if let Some((claim, _)) = &volume.claim {
            self.named.entry(claim.clone()).or_default().insert(name.clone());
        }
        if volume.is_free() {
            self.free.entry(volume.class.clone()).or_default().insert(name.clone());
            for hostname in volume.hostnames() {
                self.local.entry(hostname.to_owned()).or_default().insert(name.clone());
            }
        }
        self.touch(&volume);
        self.volumes.insert(name, volume);
    }

    /// A volume is gone.
    pub fn delete_volume(&mut self, name: &str) {
        let Some((name, before)) = self.volumes.remove_entry(name) else { return };
        if let Some((claim, _)) = &before.claim {
            remove(&mut self.named, claim, &name);
        }
        remove(&mut self.free, &before.class, &name);
        for hostname in before.hostnames() {
            remove(&mut self.local, &hostname.to_owned(), &name);
        }
        self.touch(&before);
    }

    /// Volumes that are not among `names` are gone.
    pub fn retain_volumes(&mut self, names: &BTreeSet<String>) {
        let gone: Vec<String> = self.volumes.keys().filter(|name| !names.contains(*name)).cloned().collect();
        gone.iter().for_each(|name| self.delete_volume(name));
    }

    fn touch(&mut self, volume: &Volume) {
        self.touched.claims.extend(volume.claim.iter().map(|(claim, _)| claim.clone()));
        if volume.is_free() {
            self.touched.claims.extend(self.unbound.get(&volume.class).into_iter().flatten().cloned());
            self.touched.hostnames.extend(volume.hostnames().map(str::to_owned));
        }
    }

    /// A class was seen.
    pub fn apply_class(&mut self, class: &StorageClass) {
        let name = class.metadata.name.clone().unwrap_or_default();
        self.delete_class(&name);
        self.classes.insert(name, Class::read(class));
    }

    /// A class is gone.
    pub fn delete_class(&mut self, name: &str) {
        self.classes.remove(name);
        self.touched.claims.extend(self.unbound.get(name).into_iter().flatten().cloned());
        for volume in self.free.get(name).into_iter().flatten().filter_map(|name| self.volumes.get(name)) {
            self.touched.hostnames.extend(volume.hostnames().map(str::to_owned));
        }
    }

    /// Classes that are not among `names` are gone.
    pub fn retain_classes(&mut self, names: &BTreeSet<String>) {
        let gone: Vec<String> = self.classes.keys().filter(|name| !names.contains(*name)).cloned().collect();
        gone.iter().for_each(|name| self.delete_class(name));
    }

    /// The drivers of a node were seen.
    pub fn apply_limits(&mut self, node: &CSINode) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let limits: BTreeMap<String, i64> = objects::limits(node).collect();
        if self.limits.get(&name) == Some(&limits) {
            return;
        }
        self.touched.nodes.insert(name.clone());
        self.limits.insert(name, limits);
    }

    /// Nothing is known of the drivers of a node any more.
    pub fn delete_limits(&mut self, node: &str) {
        if self.limits.remove(node).is_some() {
            self.touched.nodes.insert(node.to_owned());
        }
    }

    /// Nodes that are not among `names` have no limits any more.
    pub fn retain_limits(&mut self, names: &BTreeSet<String>) {
        let gone: Vec<String> = self.limits.keys().filter(|name| !names.contains(*name)).cloned().collect();
        gone.iter().for_each(|name| self.delete_limits(name));
    }

    /// What changed since this was asked last.
    pub fn take_touched(&mut self) -> Touched {
        std::mem::take(&mut self.touched)
    }

    /// What a node has of volumes, as resources: how many of each driver it takes, and how many of each class that nobody
    /// has claimed are on it. `hostname` is the value of its label.
    #[must_use]
    pub fn on_node(&self, node: &str, hostname: Option<&str>) -> Resources {
        let mut resources = Resources::default();
        for (driver, most) in self.limits.get(node).into_iter().flatten() {
            resources.set(format!("{ATTACHABLE_VOLUMES}{driver}").as_str(), volume_limit(*most));
        }
        let local = hostname.and_then(|hostname| self.local.get(hostname)).into_iter().flatten();
        for volume in local.filter_map(|name| self.volumes.get(name)) {
            let resource = format!("{LOCAL_VOLUMES}{}", volume.class);
            resources.set(resource.as_str(), resources.get(&resource).saturating_add(1));
        }
        resources
    }

    /// Adds to a pod, as it was read, what its volumes ask for.
    pub fn complete(&self, pod: &mut Pod, used: &Used) {
        let needs = self.needs(used);
        if let Ok(shape) = &mut pod.shape {
            let shape = Arc::make_mut(shape);
            shape.volumes = needs.reach;
            shape.requests.add(&needs.requests);
            shape.unsupported.extend(needs.unsupported);
        }
        Arc::make_mut(&mut pod.held).requested.add(&needs.attached);
        pod.claims = Arc::new(needs.claims);
    }
}

fn remove<K: Ord, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(values) = map.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            map.remove(key);
        }
    }
}

fn key(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> ObjectKey {
    ObjectKey::new(metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}
