//! Devices that ResourceClaims ask for, as core data: how many of each DeviceClass a pod wants, and a node has.
//!
//! kube-scheduler allocates devices in its plugin `DynamicResources`, before a pod comes to the barrier. A class is a resource
//! here, and a node has as much of it as its ResourceSlices publish devices that the class selects. That is exact as long as
//! every device is one claim's at a time and no device is of two classes; where classes overlap, a device that is asked of one
//! counts as gone for the others too, so that whatever is assigned can be allocated in every order. What is beyond that is
//! refused by name: requests with selectors of their own, alternatives, all devices of a node, constraints between devices,
//! capacity shared by claims, and claims that several pods use. Devices that more than one node reaches, that have a taint or
//! draw on shared counters, are not counted.

mod objects;
mod selector;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_core::model::gang::Pod;
use muster_core::model::names::ObjectKey;
use muster_core::model::resources::{DEVICE_CLASS, Resources};

use self::objects::{Asks, Claim, Class, Device, Pool, Slice};
use crate::convert::constraints::Unmodelled;

/// The ResourceClaims that a pod uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceUse {
    pod: String,
    sources: Vec<Source>,
}

/// Where a claim of a pod comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    /// The pod names it.
    Claim(ObjectKey),
    /// It is made for the pod; its name, once it is.
    Template(ObjectKey, Option<ObjectKey>),
    /// The pod names neither.
    Nothing,
}

impl DeviceUse {
    /// Reads the claims of a pod; `None` if it uses none and no class is among its requests.
    #[must_use]
    pub fn read(pod: &core::Pod) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let key = |name: &str| ObjectKey::new(namespace, name);
        let made = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_ref());
        let made = |entry: &str| {
            let status = made.into_iter().flatten().find(|status| status.name == entry)?;
            status.resource_claim_name.as_deref().map(key)
        };
        let source =
            |claim: &core::PodResourceClaim| match (&claim.resource_claim_name, &claim.resource_claim_template_name) {
                (Some(name), _) => Source::Claim(key(name)),
                (None, Some(template)) => Source::Template(key(template), made(&claim.name)),
                (None, None) => Source::Nothing,
            };
        let sources: Vec<Source> = spec.resource_claims.iter().flatten().map(source).collect();
        let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        let requests = |container: &core::Container| {
            let resources = container.resources.iter();
            let mut lists = resources.flat_map(|resources| [&resources.requests, &resources.limits]).flatten();
            lists.any(|list| list.keys().any(|name| name.starts_with(DEVICE_CLASS)))
        };
        let by_class = containers.into_iter().any(requests);
        (by_class || !sources.is_empty()).then(|| Self { pod: pod.metadata.uid.clone().unwrap_or_default(), sources })
    }
}

/// Devices by the class that selects them.
type Selected = BTreeMap<String, BTreeSet<Device>>;
/// Two classes, in order of name.
type Pair = (String, String);

/// DeviceClasses, ResourceSlices, ResourceClaims and their templates, and what changed since they were last asked.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    classes: BTreeMap<String, Class>,
    slices: BTreeMap<String, Slice>,
    pools: BTreeMap<Pool, BTreeSet<String>>,
    on_node: BTreeMap<String, BTreeSet<String>>,
    claims: BTreeMap<ObjectKey, Claim>,
    templates: BTreeMap<ObjectKey, Asks>,
    /// Claims by the device that they have.
    holders: BTreeMap<Device, ObjectKey>,
    /// Claims by the pods that use them.
    claims_of: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// Pods with claims, by UID, and the other way round.
    uses: BTreeMap<String, DeviceUse>,
    users: BTreeMap<ObjectKey, BTreeSet<String>>,
    /// What every node with slices has, as of the last look.
    selected: BTreeMap<String, Selected>,
    /// Classes that select a device both, with the number of nodes where they do.
    overlaps: BTreeMap<Pair, usize>,
    stale: BTreeSet<String>,
    touched: TouchedDevices,
}

/// What has to be looked at again after changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TouchedDevices {
    /// Pods, by UID.
    pub pods: BTreeSet<String>,
    /// Nodes, by name.
    pub nodes: BTreeSet<String>,
}

impl Devices {
    /// A DeviceClass was seen.
    pub fn apply_class(&mut self, class: &k8s::DeviceClass) {
        let (name, class) = (class.metadata.name.clone().unwrap_or_default(), Class::read(class));
        if self.classes.get(&name) != Some(&class) {
            self.classes.insert(name, class);
            self.all();
        }
    }

    /// A DeviceClass is gone.
    pub fn delete_class(&mut self, name: &str) {
        if self.classes.remove(name).is_some() {
            self.all();
        }
    }

    /// DeviceClasses that are not among `names` are gone.
    pub fn retain_classes(&mut self, names: &BTreeSet<String>) {
        let gone: Vec<String> = self.classes.keys().filter(|name| !names.contains(*name)).cloned().collect();
        gone.iter().for_each(|name| self.delete_class(name));
    }

    /// Everything is looked at again.
    fn all(&mut self) {
        self.stale.extend(self.on_node.keys().cloned());
        self.touched.pods.extend(self.uses.keys().cloned());
    }

    /// A ResourceSlice was seen.
    pub fn apply_slice(&mut self, slice: &k8s::ResourceSlice) {
        let (name, slice) = (slice.metadata.name.clone().unwrap_or_default(), Slice::read(slice));
        if self.slices.get(&name) == Some(&slice) {
            return;
        }
        self.delete_slice(&name);
        if let Some(node) = &slice.node {
            self.on_node.entry(node.clone()).or_default().insert(name.clone());
        }
        self.pools.entry(slice.pool.clone()).or_default().insert(name.clone());
        let pool = slice.pool.clone();
        self.slices.insert(name, slice);
        self.pool_changed(&pool);
    }

    /// A ResourceSlice is gone.
    pub fn delete_slice(&mut self, name: &str) {
        let Some(slice) = self.slices.get(name).cloned() else { return };
        self.pool_changed(&slice.pool);
        self.slices.remove(name);
        remove(&mut self.pools, &slice.pool, name);
        if let Some(node) = &slice.node {
            remove(&mut self.on_node, node, name);
        }
    }

    /// ResourceSlices that are not among `names` are gone.
    pub fn retain_slices(&mut self, names: &BTreeSet<String>) {
        let gone: Vec<String> = self.slices.keys().filter(|name| !names.contains(*name)).cloned().collect();
        gone.iter().for_each(|name| self.delete_slice(name));
    }

    fn pool_changed(&mut self, pool: &Pool) {
        let slices = self.pools.get(pool).into_iter().flatten().filter_map(|name| self.slices.get(name));
        self.stale.extend(slices.filter_map(|slice| slice.node.clone()));
    }

    /// A ResourceClaim was seen.
    pub fn apply_claim(&mut self, claim: &k8s::ResourceClaim) {
        let (key, claim) = (key(&claim.metadata), Claim::read(claim));
        if self.claims.get(&key) == Some(&claim) {
            return;
        }
        self.delete_claim(&key);
        for device in &claim.devices {
            self.holders.insert(device.clone(), key.clone());
        }
        for pod in &claim.pods {
            self.claims_of.entry(pod.clone()).or_default().insert(key.clone());
        }
        self.claims.insert(key.clone(), claim);
        self.claim_changed(&key);
    }

    /// A ResourceClaim is gone.
    pub fn delete_claim(&mut self, key: &ObjectKey) {
        if !self.claims.contains_key(key) {
            return;
        }
        self.claim_changed(key);
        let Some(claim) = self.claims.remove(key) else { return };
        for device in &claim.devices {
            if self.holders.get(device) == Some(key) {
                self.holders.remove(device);
            }
        }
        for pod in &claim.pods {
            if let Some(claims) = self.claims_of.get_mut(pod) {
                claims.remove(key);
                if claims.is_empty() {
                    self.claims_of.remove(pod);
                }
            }
        }
    }

    /// ResourceClaims that are not among `keys` are gone.
    pub fn retain_claims(&mut self, keys: &BTreeSet<ObjectKey>) {
        let gone: Vec<ObjectKey> = self.claims.keys().filter(|key| !keys.contains(*key)).cloned().collect();
        gone.iter().for_each(|key| self.delete_claim(key));
    }

    fn claim_changed(&mut self, key: &ObjectKey) {
        self.touched.pods.extend(self.users.get(key).into_iter().flatten().cloned());
        let devices = self.claims.get(key).into_iter().flat_map(|claim| &claim.devices);
        let pools: BTreeSet<&Pool> = devices.map(|(pool, _)| pool).collect();
        for slice in pools.into_iter().filter_map(|pool| self.pools.get(pool)).flatten() {
            self.touched.nodes.extend(self.slices.get(slice).and_then(|slice| slice.node.clone()));
        }
    }

    /// A ResourceClaimTemplate was seen.
    pub fn apply_template(&mut self, template: &k8s::ResourceClaimTemplate) {
        let (key, asks) = (key(&template.metadata), objects::asks(&template.spec.spec));
        if self.templates.get(&key) != Some(&asks) {
            self.touched.pods.extend(self.users.get(&key).into_iter().flatten().cloned());
            self.templates.insert(key, asks);
        }
    }

    /// A ResourceClaimTemplate is gone.
    pub fn delete_template(&mut self, key: &ObjectKey) {
        if self.templates.remove(key).is_some() {
            self.touched.pods.extend(self.users.get(key).into_iter().flatten().cloned());
        }
    }

    /// ResourceClaimTemplates that are not among `keys` are gone.
    pub fn retain_templates(&mut self, keys: &BTreeSet<ObjectKey>) {
        let gone: Vec<ObjectKey> = self.templates.keys().filter(|key| !keys.contains(*key)).cloned().collect();
        gone.iter().for_each(|key| self.delete_template(key));
    }

    /// A pod was seen, with the claims that it uses.
    pub fn apply_pod(&mut self, uid: &str, used: Option<DeviceUse>) {
        self.pod_changed(uid);
        if self.uses.get(uid) == used.as_ref() {
            return;
        }
        self.leave(uid);
        let Some(used) = used else { return };
        for source in &used.sources {
            for key in source.keys() {
                let users = self.users.entry(key.clone()).or_default();
                self.touched.pods.extend(users.iter().cloned());
                users.insert(uid.to_owned());
            }
        }
        self.uses.insert(uid.to_owned(), used);
    }

    /// A pod is gone.
    pub fn delete_pod(&mut self, uid: &str) {
        self.pod_changed(uid);
        self.leave(uid);
    }

    /// What a pod's claims have may be counted another way from now on.
    fn pod_changed(&mut self, uid: &str) {
        for key in self.claims_of.get(uid).cloned().into_iter().flatten() {
            self.claim_changed(&key);
        }
    }

    fn leave(&mut self, uid: &str) {
        let Some(before) = self.uses.remove(uid) else { return };
        for key in before.sources.iter().flat_map(Source::keys) {
            if let Some(users) = self.users.get_mut(key) {
                users.remove(uid);
                self.touched.pods.extend(users.iter().cloned());
                if users.is_empty() {
                    self.users.remove(key);
                }
            }
        }
    }

    /// The claims that a pod uses, if it was seen with any.
    #[must_use]
    pub fn used_by(&self, uid: &str) -> Option<&DeviceUse> {
        self.uses.get(uid)
    }

    /// What changed since this was asked last.
    pub fn take_touched(&mut self) -> TouchedDevices {
        let known: BTreeSet<Pair> = self.overlaps.keys().cloned().collect();
        for node in std::mem::take(&mut self.stale) {
            let selected = self.select(&node);
            let before = self.selected.remove(&node).unwrap_or_default();
            for pair in overlapping(&before) {
                if let Some(nodes) = self.overlaps.get_mut(&pair) {
                    *nodes -= 1;
                    if *nodes == 0 {
                        self.overlaps.remove(&pair);
                    }
                }
            }
            for pair in overlapping(&selected) {
                *self.overlaps.entry(pair).or_default() += 1;
            }
            if !selected.is_empty() {
                self.selected.insert(node.clone(), selected);
            }
            self.touched.nodes.insert(node);
        }
        if !self.overlaps.keys().eq(&known) {
            self.touched.pods.extend(self.uses.keys().cloned());
            self.touched.nodes.extend(self.selected.keys().cloned());
        }
        std::mem::take(&mut self.touched)
    }

    /// The devices of a node by class. A pool of which a slice is missing gives none, as for kube-scheduler, and neither does a
    /// class whose selectors fail for one of the node's devices.
    fn select(&self, node: &str) -> Selected {
        let slices = || self.on_node.get(node).into_iter().flatten().filter_map(|name| self.slices.get(name));
        let mut selected = Selected::new();
        for (name, class) in &self.classes {
            let mut of_class = BTreeSet::new();
            let mut fails = false;
            for slice in slices().filter(|slice| self.is_current(slice)) {
                for (device, seen) in &slice.devices {
                    match class.selects(seen) {
                        Some(true) => drop(of_class.insert((slice.pool.clone(), device.clone()))),
                        Some(false) => {}
                        None => fails = true,
                    }
                }
            }
            if !fails && !of_class.is_empty() {
                selected.insert(name.clone(), of_class);
            }
        }
        selected
    }

    /// Whether a slice is of the newest generation of its pool, and all slices of that are known.
    fn is_current(&self, slice: &Slice) -> bool {
        let of_pool = || self.pools.get(&slice.pool).into_iter().flatten().filter_map(|name| self.slices.get(name));
        let newest = of_pool().map(|slice| slice.generation).max();
        let known = of_pool().filter(|other| other.generation == slice.generation).count();
        newest == Some(slice.generation) && usize::try_from(slice.slices).is_ok_and(|slices| slices == known)
    }

    /// Classes that select a device which this one selects too, itself excluded.
    fn beside<'a>(&'a self, class: &'a str) -> impl Iterator<Item = &'a str> {
        self.overlaps.keys().filter_map(move |(one, other)| {
            let other_of = if one == class { Some(other) } else { Some(one).filter(|_| other == class) };
            other_of.map(String::as_str)
        })
    }

    /// The extended resource that a class gives; none where devices are of another class too, since those who request that
    /// resource do not say so.
    fn extended(&self, class: &str) -> Option<&str> {
        let name = self.classes.get(class)?.extended.as_deref()?;
        let given_twice = self.classes.iter().any(|(other, of)| other != class && of.extended.as_deref() == Some(name));
        (!given_twice && self.beside(class).next().is_none()).then_some(name)
    }

    /// What a node has of devices, as resources, beside what its kubelet says. `counts` says of a pod whether what it asks for is
    /// counted already, because it is bound or planned.
    #[must_use]
    pub fn on_node(&self, node: &str, own: &Resources, counts: impl Fn(&str) -> bool) -> Resources {
        let mut resources = Resources::default();
        for (class, devices) in self.selected.get(node).into_iter().flatten() {
            let free = devices.iter().filter(|device| !self.is_taken(device, class, &counts)).count();
            let free = i64::try_from(free).unwrap_or(i64::MAX);
            resources.set(format!("{DEVICE_CLASS}{class}").as_str(), free);
            // A kubelet that has the resource gives it by a device plugin.
            if let Some(extended) = self.extended(class).filter(|name| own.get(name) == 0) {
                resources.set(extended, free);
            }
        }
        resources
    }

    /// Whether a device of a class is that of a claim whose pods are not counted.
    fn is_taken(&self, device: &Device, class: &str, counts: impl Fn(&str) -> bool) -> bool {
        let Some(claim) = self.holders.get(device).and_then(|key| self.claims.get(key)) else { return false };
        let understood = |pod: &str| match self.uses.get(pod) {
            Some(used) => self.asked(used).is_ok(),
            // What the pod requests is the extended resource itself.
            None => claim.extended && self.extended(class).is_some(),
        };
        !claim.pods.iter().any(|pod| understood(pod) && counts(pod))
    }

    /// What the claims of a pod ask for, as resources.
    ///
    /// Errors: what is not planned for, by name.
    fn asked(&self, used: &DeviceUse) -> Result<Resources, String> {
        let mut requests = Resources::default();
        for source in &used.sources {
            let asks = self.asks(source, &used.pod)?;
            for (class, count) in asks {
                self.ask(class, *count, true, &mut requests)?;
            }
        }
        Ok(requests)
    }

    /// Adds devices of a class; `whole` unless the class itself is requested already.
    fn ask(&self, class: &str, count: i64, whole: bool, requests: &mut Resources) -> Result<(), String> {
        let Some(known) = self.classes.get(class) else {
            return Err(format!("DeviceClass {class} does not exist"));
        };
        if let Err(selector) = &known.selectors {
            return Err(format!("selector of DeviceClass {class} that is not understood: {selector}"));
        }
        let own = whole.then_some(class);
        let classes = own.into_iter().chain(self.beside(class)).map(|class| format!("{DEVICE_CLASS}{class}"));
        for name in classes.chain(self.extended(class).map(str::to_owned)) {
            requests.set(name.as_str(), requests.get(&name).saturating_add(count));
        }
        Ok(())
    }

    /// Errors: what is not planned for, by name.
    fn asks(&self, source: &Source, pod: &str) -> Result<&BTreeMap<String, i64>, String> {
        match source {
            Source::Nothing => Err("an entry without a claim".to_owned()),
            Source::Template(template, made) => {
                let claim = made.as_ref().and_then(|key| self.claims.get(key));
                let asks = self.templates.get(template).or(claim.map(|claim| &claim.asks));
                let asks = asks.ok_or_else(|| format!("ResourceClaimTemplate {} does not exist", template.name))?;
                asks.as_ref().map_err(|why| format!("{why} of ResourceClaimTemplate {}", template.name))
            }
            Source::Claim(key) => {
                let name = &key.name;
                let claim = self.claims.get(key).ok_or_else(|| format!("ResourceClaim {name} does not exist"))?;
                if claim.deleting {
                    return Err(format!("ResourceClaim {name} is being deleted"));
                }
                let users = self.users.get(key).map_or(0, BTreeSet::len);
                if users > 1 || claim.pods.iter().any(|user| user != pod) {
                    return Err(format!("ResourceClaim {name} that several pods use"));
                }
                claim.asks.as_ref().map_err(|why| format!("{why} of ResourceClaim {name}"))
            }
        }
    }

    /// Adds to a pod, as it was read, what its claims and the classes among its requests ask for.
    pub fn complete(&self, pod: &mut Pod, used: &DeviceUse) {
        let Ok(shape) = &mut pod.shape else { return };
        let by_class: Vec<(String, i64)> = shape
            .requests
            .iter()
            .filter_map(|(name, amount)| Some((name.as_str().strip_prefix(DEVICE_CLASS)?.to_owned(), amount)))
            .collect();
        let asked = self.asked(used).and_then(|mut requests| {
            by_class.iter().try_for_each(|(class, count)| self.ask(class, *count, false, &mut requests))?;
            Ok(requests)
        });
        let shape = Arc::make_mut(shape);
        shape.unsupported.retain(|constraint| **constraint != *Unmodelled::ResourceClaims.as_str());
        match asked {
            Ok(requests) => {
                shape.requests.add(&requests);
                Arc::make_mut(&mut pod.held).requested.add(&requests);
            }
            Err(why) => {
                shape.unsupported.push(Arc::from(format!("{}: {why}", Unmodelled::ResourceClaims.as_str())));
                shape.unsupported.sort();
            }
        }
    }
}

impl Source {
    fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        let (first, second) = match self {
            Self::Claim(key) => (Some(key), None),
            Self::Template(template, made) => (Some(template), made.as_ref()),
            Self::Nothing => (None, None),
        };
        first.into_iter().chain(second)
    }
}

/// Pairs of classes that select a device both.
fn overlapping(selected: &Selected) -> Vec<Pair> {
    let classes: Vec<(&String, &BTreeSet<Device>)> = selected.iter().collect();
    let mut pairs = Vec::new();
    for (index, (class, devices)) in classes.iter().enumerate() {
        for (other, of_other) in &classes[index + 1..] {
            if !devices.is_disjoint(of_other) {
                pairs.push(((*class).clone(), (*other).clone()));
            }
        }
    }
    pairs
}

fn remove<K: Ord>(map: &mut BTreeMap<K, BTreeSet<String>>, key: &K, value: &str) {
    if let Some(values) = map.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            map.remove(key);
        }
    }
}

fn key(metadata: &ObjectMeta) -> ObjectKey {
    ObjectKey::new(metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}
