//! Watches → store → published state: what every replica knows of the cluster.
//!
//! **Architecture invariant**: the store holds no client and decides nothing; handlers and loops read a published,
//! immutable state and never wait for a watch unless they say so.

mod contact;
mod store;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Toleration;
use kube::runtime::watcher::Event;
use muster_api::conventions::{MissingOwner, Owners};
use muster_api::crd::{EC2NodeClass, Gang, NodeBatch, NodePool, ProvisioningRequest};
use muster_core::names::{ObjectKey, PodUid};
use muster_core::snapshot::Snapshot;
use rustc_hash::FxHashMap;
use tokio::sync::{mpsc, watch as channel};

pub use contact::Contacts;
pub use store::{Store, StoreOptions};
pub use watch::{Change, WatchOptions, run};

/// Everything the watches delivered, as of one moment.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The view decisions are made from.
    pub snapshot: Snapshot,
    /// Jobs by UID: owners that conventions read.
    pub jobs: Jobs,
    /// Gang objects, for conditional writes.
    pub gangs: Arc<BTreeMap<ObjectKey, Arc<Gang>>>,
    /// NodeBatches by name.
    pub batches: Arc<BTreeMap<String, Arc<NodeBatch>>>,
    /// NodePools by name.
    pub pools: Arc<BTreeMap<String, Arc<NodePool>>>,
    /// EC2NodeClasses by name.
    pub classes: Arc<BTreeMap<String, Arc<EC2NodeClass>>>,
    /// ProvisioningRequests of our class.
    pub requests: Arc<BTreeMap<ObjectKey, Arc<ProvisioningRequest>>>,
    /// Tolerations of members, whole: a merge patch replaces the list.
    pub tolerations: Arc<FxHashMap<PodUid, Arc<Vec<Toleration>>>>,
    /// Owners that pods wait for to be settled.
    pub missing_owners: Arc<BTreeMap<PodUid, MissingOwner>>,
}

/// Jobs by UID.
#[derive(Clone, Debug, Default)]
pub struct Jobs(pub Arc<FxHashMap<String, Arc<Job>>>);

impl Owners for Jobs {
    fn job(&self, uid: &str) -> Option<&Job> {
        self.0.get(uid).map(AsRef::as_ref)
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

    /// Feeds the answer to an own write into the store, so that a promise is protected before the watch shows it.
    /// Without room in the queue it is left to the watch.
    pub fn believe(&self, gang: &Gang) {
        let _ = self.feed.try_send(Change::Gang(Event::Apply(gang.clone())));
    }

    /// A receiver that is notified of every newer state.
    #[must_use]
    pub fn changes(&self) -> channel::Receiver<u64> {
        self.version.clone()
    }
}
