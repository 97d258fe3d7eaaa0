//! Watches → store → published state: what every replica knows of the cluster.
//!
//! **Architecture invariant**: the store holds no client and decides nothing; handlers and loops read a published,
//! immutable state and never wait for a watch unless they say so.

mod connection;
mod contact;
mod current;
mod dra;
mod follow;
mod kept;
mod last_byte;
mod owners;
mod reserved;
mod served;
mod store;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference};
use muster_api::batch_state;
use muster_api::conventions::{Kind, MissingOwner, Object, Objects, Ref};
use muster_api::convert::ordinary::Namespaces;
use muster_api::crd::{EC2NodeClass, Gang, NodeBatch, NodePool, ProvisioningRequest};
use muster_api::pod_state;
use muster_core::devices::Daemon;
use muster_core::model::batch::Batch;
use muster_core::model::names::{ObjectKey, PodUid};
use muster_core::model::pod::Shape;
use muster_core::model::snapshot::Snapshot;
use rustc_hash::FxHashMap;
use tokio::sync::{mpsc, watch as channel};

pub use contact::Contacts;
pub(crate) use current::version;
pub use current::{Versions, caught_up};
pub use follow::Change;
pub use kept::Lists;
pub(crate) use owners::is_served;
pub use store::{Store, StoreOptions};
pub use watch::{WatchOptions, run};

/// Everything the watches delivered, as of one moment.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The view decisions are made from.
    pub snapshot: Snapshot,
    /// Owners and groups that conventions read.
    pub objects: Known,
    /// Gang objects, for conditional writes.
    pub gangs: imbl::OrdMap<ObjectKey, Arc<Gang>>,
    /// NodeBatches by name, each read once per change.
    pub batches: Arc<BTreeMap<String, SeenBatch>>,
    /// NodePools by name.
    pub pools: Arc<BTreeMap<String, Arc<NodePool>>>,
    /// EC2NodeClasses by name.
    pub classes: Arc<BTreeMap<String, Arc<EC2NodeClass>>>,
    /// What a pod of each DaemonSet asks for, in order of namespace and name.
    pub daemons: Arc<[Shape]>,
    /// DaemonSets that bring devices, in the same order.
    pub plugins: Arc<[Daemon]>,
    /// Whether the VPC network gives nodes prefixes of addresses.
    pub prefixes: bool,
    /// ProvisioningRequests of our class.
    pub requests: Arc<BTreeMap<ObjectKey, Arc<ProvisioningRequest>>>,
    /// Lists of members that a merge patch replaces.
    pub lists: imbl::OrdMap<PodUid, Arc<Lists>>,
    /// Pods of our profiles that no node has yet, with what topology constraints are read from.
    pub unbound: imbl::OrdMap<PodUid, Arc<Pod>>,
    /// Owners that pods wait for to be settled.
    pub missing_owners: Arc<BTreeMap<PodUid, MissingOwner>>,
    /// Kinds of owners and groups that could not be listed so far, and why.
    pub unlisted: Arc<BTreeMap<Kind, Arc<str>>>,
    /// Labels of every namespace, by which terms of pod affinity select them.
    pub namespaces: Arc<Namespaces>,
    /// Namespaces of DaemonSets by UID.
    pub daemon_sets: Arc<FxHashMap<String, String>>,
}

/// A NodeBatch as the watch delivered it, and what it says. Both halves are of one version.
#[derive(Clone, Debug)]
pub struct SeenBatch {
    object: Arc<NodeBatch>,
    batch: Arc<Batch>,
}

impl SeenBatch {
    /// Reads the object.
    #[must_use]
    pub fn new(object: Arc<NodeBatch>) -> Self {
        Self { batch: Arc::new(batch_state::read(&object)), object }
    }

    /// The object, for conditional writes and events.
    #[must_use]
    pub fn object(&self) -> &Arc<NodeBatch> {
        &self.object
    }

    /// What it says.
    #[must_use]
    pub fn batch(&self) -> &Arc<Batch> {
        &self.batch
    }
}

impl State {
    /// Whether the DaemonSet that a pod names as its controller exists in the pod's namespace.
    #[must_use]
    pub fn is_of_daemon_set(&self, pod: &Pod) -> bool {
        let known = pod_state::daemon_set(pod).and_then(|owner| self.daemon_sets.get(&owner.uid));
        known.is_some() && known == pod.metadata.namespace.as_ref()
    }

    /// Conditions of Gangs, NodeBatches, NodePools and EC2NodeClasses, with the kind of their object.
    pub fn conditions(&self) -> impl Iterator<Item = (&'static str, &Vec<Condition>)> {
        let gangs = self.gangs.values().filter_map(|gang| Some(("Gang", &gang.status.as_ref()?.conditions)));
        let batches = self.batches.values().map(SeenBatch::object);
        let batches = batches.filter_map(|batch| Some(("NodeBatch", &batch.status.as_ref()?.conditions)));
        let pools = self.pools.values().filter_map(|pool| Some(("NodePool", &pool.status.as_ref()?.conditions)));
        let classes = self.classes.values();
        let classes = classes.filter_map(|class| Some(("EC2NodeClass", &class.status.as_ref()?.conditions)));
        gangs.chain(batches).chain(pools).chain(classes)
    }
}

/// Owners by UID, groups by name.
#[derive(Clone, Debug, Default)]
pub struct Known {
    by_uid: Arc<FxHashMap<String, Arc<Object>>>,
    by_name: Arc<FxHashMap<(Kind, String, String), String>>,
    listed: Arc<BTreeSet<Kind>>,
}

impl Known {
    /// What an object is found by.
    pub(super) fn refs(object: &Object) -> [Ref; 2] {
        let metadata = &object.metadata;
        let namespace = metadata.namespace.clone().unwrap_or_default();
        [
            Ref::Uid(metadata.uid.clone().unwrap_or_default()),
            Ref::Named(object.kind, namespace, object.name().to_owned()),
        ]
    }

    pub(super) fn insert(&mut self, object: Object) {
        let metadata = &object.metadata;
        let uid = metadata.uid.clone().unwrap_or_default();
        let name = (object.kind, metadata.namespace.clone().unwrap_or_default(), object.name().to_owned());
        Arc::make_mut(&mut self.by_name).insert(name, uid.clone());
        Arc::make_mut(&mut self.by_uid).insert(uid, Arc::new(object));
    }

    pub(super) fn remove(&mut self, uid: &str) {
        let Some(object) = Arc::make_mut(&mut self.by_uid).remove(uid) else { return };
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let name = (object.kind, namespace, object.name().to_owned());
        // An object of the same name may have come meanwhile.
        if self.by_name.get(&name).is_some_and(|known| known == uid) {
            Arc::make_mut(&mut self.by_name).remove(&name);
        }
    }

    /// All objects of a kind were seen once.
    pub(super) fn listed(&mut self, kind: Kind) {
        if !self.listed.contains(&kind) {
            Arc::make_mut(&mut self.listed).insert(kind);
        }
    }

    /// Whether all objects of a kind were seen once.
    #[must_use]
    pub fn is_listed(&self, kind: Kind) -> bool {
        self.listed.contains(&kind)
    }

    /// Whether an owner is being deleted, asks for no pods any more, or is gone already. `false` as long as that cannot be known.
    #[must_use]
    pub fn is_going(&self, owner: &OwnerReference) -> bool {
        if let Some(object) = self.by_uid(&owner.uid) {
            return object.metadata.deletion_timestamp.is_some() || object.is_stopped();
        }
        Kind::of(&owner.api_version, &owner.kind).is_some_and(|kind| self.is_listed(kind))
    }

    pub(super) fn uids(&self, kind: Kind) -> Vec<String> {
        self.by_uid.iter().filter(|(_, object)| object.kind == kind).map(|(uid, _)| uid.clone()).collect()
    }
}

impl Objects for Known {
    fn by_uid(&self, uid: &str) -> Option<&Object> {
        self.by_uid.get(uid).map(AsRef::as_ref)
    }

    fn by_name(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Object> {
        let uid = self.by_name.get(&(kind, namespace.to_owned(), name.to_owned()))?;
        self.by_uid.get(uid).map(AsRef::as_ref)
    }
}

/// A handle on the published state.
#[derive(Clone, Debug)]
pub struct Cluster {
    state: Arc<ArcSwap<State>>,
    version: channel::Receiver<u64>,
    feed: mpsc::Sender<Change>,
    contacts: Arc<Contacts>,
}

impl Cluster {
    /// The newest state.
    #[must_use]
    pub fn load(&self) -> Arc<State> {
        self.state.load_full()
    }

    /// A kind whose watch is older than `state.maxAge`: what is known must not be trusted then.
    #[must_use]
    pub fn stale(&self) -> Option<&'static str> {
        self.contacts.stale()
    }

    /// When each watch was last heard from.
    #[must_use]
    pub fn contacts(&self) -> &Arc<Contacts> {
        &self.contacts
    }

    /// Feeds the answer to an own write into the store, so that an assignment is protected before the watch shows it.
    /// Without capacity in the queue it is left to the watch.
    pub fn trust(&self, gang: &Gang) {
        let _ = self.feed.try_send(Change::Written(Box::new(gang.clone())));
    }

    /// A receiver that is notified of every newer state.
    #[must_use]
    pub fn changes(&self) -> channel::Receiver<u64> {
        self.version.clone()
    }
}
