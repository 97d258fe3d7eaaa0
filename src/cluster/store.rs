//! The store: plain maps with apply and delete, and the state they add up to.
//!
//! Work per change is that of what changed: a pod's node is summed up again, nothing else. Publishing clones only the
//! maps that changed since the last time; what changes nothing that anybody reads, as a heartbeat does, publishes nothing.

mod claims;
mod namespaces;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use muster_api::conventions::{self, Kind, Object, Objects as _, Recognition, Ref};
use muster_api::crd::{EC2NodeClass, Gang, NodeBatch, NodePool, ProvisioningRequest};
use muster_api::dra::Devices;
use muster_api::volumes::{Used, Volumes};
use muster_api::{convert, gang_state, keys, pod_state};
use muster_core::devices::{Daemon, Role};
use muster_core::model::gang::{Foreign, Gang as CoreGang, Membership, Pod as CorePod, Recognised};
use muster_core::model::names::{NodeName, ObjectKey, PodUid};
use muster_core::model::node::{Node as CoreNode, Usage};
use muster_core::model::snapshot::{AssignedCapacity, Assignment, NodeEntry};
use rustc_hash::FxHashMap;
use tokio::sync::{mpsc, watch as channel};
use tracing::warn;

use super::follow::{Change, QUEUE};
use super::kept::{Lists, constrained, slim};
use super::reserved::{Launched, reserved_nodes};
use super::{Cluster, Contacts, Known, SeenBatch, State};
use crate::clock::now_real;

/// Deleted Gangs remembered; own writes in flight are far fewer.
const DELETED: usize = 1024;

/// What the store needs to know of the configuration.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// `schedulerName`s of our profiles.
    pub scheduler_names: Vec<String>,
    /// … and of others whose pods are provisioned for too.
    pub provisioner_scheduler_names: Vec<String>,
    /// Extended resources that count as accelerators.
    pub accelerators: Vec<Arc<str>>,
    /// A watch that was not heard from for longer is not trusted.
    pub max_age: Duration,
}

/// A state, and whether it differs from the one published: nothing of it can be changed without saying so.
#[derive(Debug, Default)]
struct Draft {
    state: State,
    changed: bool,
}

impl Draft {
    fn change(&mut self) -> &mut State {
        self.changed = true;
        &mut self.state
    }
}

impl std::ops::Deref for Draft {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

/// The index. One task owns it.
#[derive(Debug)]
pub struct Store {
    options: StoreOptions,
    state: Draft,
    /// Metadata of pods, for recognising them again when an owner changes.
    metadata: FxHashMap<PodUid, Arc<Pod>>,
    stated: FxHashMap<PodUid, Arc<Recognised>>,
    pods_on: FxHashMap<NodeName, BTreeSet<PodUid>>,
    volumes: Volumes,
    devices: Devices,
    /// Pods with claims, as they were read, and which of volumes.
    with_claims: FxHashMap<PodUid, (Arc<CorePod>, Option<Used>)>,
    /// Pods by the claims that they use.
    users: FxHashMap<ObjectKey, BTreeSet<PodUid>>,
    /// Nodes without what they have of volumes and of devices that no kubelet counts.
    bare_nodes: FxHashMap<NodeName, Arc<CoreNode>>,
    /// Nodes by hostname, where the label says so.
    hostnames: FxHashMap<Arc<str>, BTreeSet<NodeName>>,
    /// Pods by what their recognition looked at, and the other way round.
    readers: FxHashMap<Ref, BTreeSet<PodUid>>,
    reads: FxHashMap<PodUid, BTreeSet<Ref>>,
    /// Gangs of which something changed since the last publication.
    changed: BTreeSet<ObjectKey>,
    /// Gangs whose plan has a place for a pod, mostly that of which it is a member.
    planned: FxHashMap<PodUid, BTreeSet<ObjectKey>>,
    /// What the plan of each gang assigns it, where that is anything.
    assigned: BTreeMap<ObjectKey, Vec<(NodeName, Assignment)>>,
    published: Arc<ArcSwap<State>>,
    version: channel::Sender<u64>,
    changes: Option<(mpsc::Sender<Change>, mpsc::Receiver<Change>)>,
    /// UIDs of Gangs seen deleted lately: an own write that comes behind the deletion must not bring one back.
    deleted: VecDeque<String>,
    unsynced: BTreeSet<&'static str>,
    /// Kinds of owners and groups of which it is not known yet whether they can be listed.
    unsettled: BTreeSet<Kind>,
    /// Nodes launched for pods of no gang.
    reserved: Launched,
    /// DaemonSets with what their pods ask for, by UID.
    daemons: BTreeMap<String, (ObjectKey, Daemon)>,
}

impl Store {
    /// An empty store and the handle on what it publishes. It waits for the first list of each of `kinds`, and until it is
    /// known of each of `owners` whether it can be listed.
    #[must_use]
    pub fn new(options: StoreOptions, kinds: &[&'static str], owners: &[Kind]) -> (Self, Cluster) {
        let published = Arc::new(ArcSwap::from_pointee(State::default()));
        let (version, receiver) = channel::channel(0);
        let (feed, changes) = mpsc::channel(QUEUE);
        let mut state = Draft::default();
        state.change().snapshot.accelerators.clone_from(&options.accelerators);
        state.change().snapshot.synced = kinds.is_empty() && owners.is_empty();
        let contacts = Arc::new(Contacts::new(kinds, &Kind::ALL, options.max_age));
        let store = Self {
            options,
            state,
            metadata: FxHashMap::default(),
            stated: FxHashMap::default(),
            pods_on: FxHashMap::default(),
            volumes: Volumes::default(),
            devices: Devices::default(),
            with_claims: FxHashMap::default(),
            users: FxHashMap::default(),
            bare_nodes: FxHashMap::default(),
            hostnames: FxHashMap::default(),
            readers: FxHashMap::default(),
            reads: FxHashMap::default(),
            changed: BTreeSet::new(),
            planned: FxHashMap::default(),
            assigned: BTreeMap::new(),
            published: Arc::clone(&published),
            version,
            changes: Some((feed.clone(), changes)),
            deleted: VecDeque::new(),
            unsynced: kinds.iter().copied().collect(),
            unsettled: owners.iter().copied().collect(),
            reserved: Launched::default(),
            daemons: BTreeMap::new(),
        };
        (store, Cluster { state: published, version: receiver, feed, contacts })
    }

    /// Both ends of the queue of changes; the one task that owns the store takes them, once.
    pub(super) fn take_channel(&mut self) -> Option<(mpsc::Sender<Change>, mpsc::Receiver<Change>)> {
        self.changes.take()
    }

    /// Nothing is decided before the first list of these kinds too, or before it is known that there is none to wait for.
    pub(super) fn awaits(&mut self, kinds: &[&'static str]) {
        self.unsynced.extend(kinds);
        self.settle();
    }

    /// A kind has delivered its first list.
    pub fn synced(&mut self, kind: &'static str) {
        self.unsynced.remove(kind);
        self.settle();
    }

    fn settle(&mut self) {
        self.state.change().snapshot.synced = self.unsynced.is_empty() && self.unsettled.is_empty();
    }

    /// Whether every kind that is waited for was listed.
    pub(super) fn is_synced(&self) -> bool {
        self.state.snapshot.synced
    }

    /// The cluster does not serve a kind of owners or groups, or it is heard from: nobody waits for it.
    pub fn unserved(&mut self, kind: Kind) {
        self.unsettled.remove(&kind);
        Arc::make_mut(&mut self.state.change().unlisted).remove(&kind);
        self.settle();
    }

    /// A kind of owners or groups cannot be listed, or its watch was lost: pods that are new stay unknown until it is heard from,
    /// and nobody else waits for it. What was listed before is as it was then.
    pub fn unlisted(&mut self, kind: Kind, why: &str) {
        if self.state.unlisted.get(&kind).is_some_and(|known| **known == *why) {
            return;
        }
        let served = kind.served();
        warn!(
            kind = served.kind,
            group = served.group,
            why,
            "cannot be listed: its pods, and gangs that may be theirs, are left as they are until it can"
        );
        Arc::make_mut(&mut self.state.change().unlisted).insert(kind, Arc::from(why));
        self.unsettled.remove(&kind);
        self.settle();
    }

    /// Publishes what is known now, unless that is what was published last.
    pub fn publish(&mut self) {
        self.look_at_volumes();
        self.look_at_devices();
        if !self.state.changed && self.changed.is_empty() {
            return;
        }
        for gang in std::mem::take(&mut self.changed) {
            self.describe(&gang);
            let snapshot = &self.state.snapshot;
            let assigned = snapshot.gangs.get(&gang).map(|gang| snapshot.assignments_of(gang)).unwrap_or_default();
            if assigned.is_empty() {
                self.assigned.remove(&gang);
            } else {
                self.assigned.insert(gang, assigned);
            }
        }
        let assignments = self.assignments();
        let state = self.state.change();
        state.snapshot.version = state.snapshot.version.saturating_add(1);
        state.snapshot.assignments = assignments;
        self.published.store(Arc::new(state.clone()));
        self.version.send_replace(state.snapshot.version);
        self.state.changed = false;
    }

    fn assignments(&self) -> FxHashMap<NodeName, Vec<Assignment>> {
        let mut assignments: FxHashMap<NodeName, Vec<Assignment>> = FxHashMap::default();
        for (node, assignment) in self.assigned.values().flatten() {
            assignments.entry(node.clone()).or_default().push(assignment.clone());
        }
        for (node, gang) in reserved_nodes(&self.state) {
            assignments.entry(node).or_default().push(Assignment { gang, capacity: AssignedCapacity::WholeNode });
        }
        assignments
    }

    /// Looks again at whom a node awaits.
    fn look_at_awaited(&mut self, node: &NodeName) {
        let snapshot = &self.state.snapshot;
        let on = self.pods_on.get(node).into_iter().flatten().filter_map(|uid| snapshot.pods.get(uid));
        let entry = snapshot.nodes.get(node).map(|entry| &entry.node);
        let now = self.reserved.look(node, entry.map(AsRef::as_ref), on, now_real());
        if snapshot.awaiting.get(node).map(AsRef::as_ref) == now.as_ref() {
            return;
        }
        let awaiting = &mut self.state.change().snapshot.awaiting;
        match now {
            Some(now) => awaiting.insert(node.clone(), Arc::new(now)),
            None => awaiting.remove(node),
        };
    }

    /// A node was seen.
    pub fn apply_node(&mut self, node: &Node) {
        let node = match convert::node(node) {
            Ok(node) => Arc::new(node),
            Err(error) => {
                // One malformed object is skipped: the node counts as absent until it can be read, and one that was read before is as it
                // was then. A machine that runs is not lost, and nobody's gang is evicted, for an odd number.
                warn!(node = node.name_any(), %error, "node cannot be read");
                let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
                let known = self.bare_nodes.get(&NodeName::from(node.name_any()));
                if known.is_none_or(|known| known.provider_id.as_deref() != provider_id) {
                    self.forget_node(&node.name_any());
                }
                return;
            }
        };
        self.leave_host(&node.name);
        if let Some(hostname) = node.labels.get(keys::HOSTNAME) {
            self.hostnames.entry(Arc::clone(hostname)).or_default().insert(node.name.clone());
        }
        self.bare_nodes.insert(node.name.clone(), Arc::clone(&node));
        if self.state.snapshot.vanished.nodes.contains(&node.name) {
            Arc::make_mut(&mut self.state.change().snapshot.vanished).nodes.remove(&node.name);
        }
        self.put_node(&node);
        self.reserved.register(&node).into_iter().for_each(|batch| self.plan_batch(&batch));
    }

    /// The node's label names another host, or nothing any more.
    fn leave_host(&mut self, node: &NodeName) {
        let hostname = self.bare_nodes.get(node).and_then(|node| node.labels.get(keys::HOSTNAME));
        if let Some(nodes) = hostname.and_then(|hostname| self.hostnames.get_mut(hostname)) {
            nodes.remove(node);
        }
    }

    /// A node is gone.
    pub fn delete_node(&mut self, name: &str) {
        self.seen_at(&NodeName::from(name));
        self.forget_node(name);
    }

    fn forget_node(&mut self, name: &str) {
        let node = NodeName::from(name);
        self.leave_host(&node);
        let gone = self.bare_nodes.remove(&node);
        self.state.change().snapshot.nodes.remove(name);
        self.look_at_awaited(&node);
        let batch = gone.and_then(|gone| self.reserved.unregister(&gone));
        batch.into_iter().for_each(|batch| self.plan_batch(&batch));
    }

    /// A pod came to a node, or the node went: what a list once did not have of its pods matters no longer.
    fn seen_at(&mut self, node: &NodeName) {
        if self.state.snapshot.vanished.pods_of.contains(node) {
            Arc::make_mut(&mut self.state.change().snapshot.vanished).pods_of.remove(node);
        }
    }

    /// Nodes that are not among `names` are gone.
    pub fn retain_nodes(&mut self, names: &BTreeSet<String>) {
        let gone = |name: &&NodeName| !names.contains(name.as_str());
        for name in self.state.snapshot.nodes.clone().keys().filter(gone) {
            self.forget_node(name.as_str());
            Arc::make_mut(&mut self.state.change().snapshot.vanished).nodes.insert(name.clone());
        }
    }

    /// A pod was seen.
    pub fn apply_pod(&mut self, pod: Pod) {
        let Some(uid) = pod.metadata.uid.as_deref().map(PodUid::from) else { return };
        let (recognition, foreign) = self.recognise(&pod);
        let mut core = pod_state::read(&pod, recognition.membership.clone(), &self.options.scheduler_names);
        (core.foreign, core.remade) = (foreign, recognition.remade);
        core.daemon |= self.state.is_of_daemon_set(&pod);
        self.apply_claims(&uid, &pod, &mut core);
        if let Some(lists) = Lists::of(&pod)
            // A pod may come before its owner: whether it is a member shows later, and it is not read again then.
            && !matches!(core.membership, Membership::Single)
            && self.state.lists.get(&uid).is_none_or(|known| **known != lists)
        {
            self.state.change().lists.insert(uid.clone(), Arc::new(lists));
        }
        if (core.ours || self.is_foreign(&pod)) && core.node.is_none() && core.is_live() {
            let unbound = constrained(&pod);
            if self.state.unbound.get(&uid).is_none_or(|known| **known != unbound) {
                self.state.change().unbound.insert(uid.clone(), Arc::new(unbound));
            }
        } else if self.state.unbound.contains_key(&uid) {
            self.state.change().unbound.remove(&uid);
        }
        self.metadata.insert(uid.clone(), Arc::new(slim(pod)));
        self.index(uid, &Arc::new(core), recognition);
    }

    fn index(&mut self, uid: PodUid, pod: &Arc<CorePod>, recognition: Recognition) {
        let same = self.state.snapshot.pods.get(&uid).is_some_and(|known| known == pod)
            && self.stated.get(&uid) == recognition.gang.as_ref()
            && self.state.missing_owners.get(&uid) == recognition.missing.as_ref();
        self.read_by(&uid, recognition.reads);
        if same {
            return;
        }
        let missing = Arc::make_mut(&mut self.state.change().missing_owners);
        match recognition.missing {
            Some(owner) => {
                missing.insert(uid.clone(), owner);
            }
            None => {
                missing.remove(&uid);
            }
        }
        match recognition.gang {
            Some(stated) => {
                // Most members say the same: one copy of it is compared by its address.
                let known = self.state.snapshot.recognised.get(&stated.key).filter(|known| **known == stated);
                self.stated.insert(uid.clone(), known.map_or(stated, Arc::clone));
            }
            None => {
                self.stated.remove(&uid);
            }
        }
        self.note_waiting(&uid, Some(pod));
        let before = self.state.change().snapshot.pods.insert(uid.clone(), Arc::clone(pod));
        let mut touched = BTreeSet::new();
        let mut gangs = self.planned.get(&uid).cloned().unwrap_or_default();
        if let Some(before) = &before {
            touched.extend(before.occupied_node().cloned());
            if before.membership != pod.membership {
                self.leave_gang(before, &uid);
                gangs.extend(before.membership.gang().cloned());
            }
        }
        touched.extend(pod.occupied_node().cloned());
        for node in &touched {
            let on = self.pods_on.entry(node.clone()).or_default();
            if pod.occupied_node() == Some(node) {
                on.insert(uid.clone());
            } else {
                on.remove(&uid);
            }
        }
        if let Some(gang) = pod.membership.gang() {
            self.state.change().snapshot.members.entry(gang.clone()).or_default().insert(member_key(pod), uid);
            gangs.insert(gang.clone());
        }
        if let Some(node) =
            pod.node.as_ref().filter(|node| before.and_then(|before| before.node.clone()).as_ref() != Some(*node))
        {
            self.seen_at(node);
        }
        for node in &touched {
            self.sum_up(node);
        }
        self.changed.extend(gangs);
    }

    fn note_waiting(&mut self, uid: &PodUid, pod: Option<&CorePod>) {
        if let Some(waiting) = self.reserved.note(uid, pod) {
            self.state.change().snapshot.waiting = waiting;
        }
    }

    /// Notes what the recognition of a pod depends on.
    fn read_by(&mut self, uid: &PodUid, reads: BTreeSet<Ref>) {
        if self.reads.get(uid).is_some_and(|before| *before == reads)
            || (reads.is_empty() && !self.reads.contains_key(uid))
        {
            return;
        }
        for before in self.reads.remove(uid).into_iter().flatten() {
            if let Some(readers) = self.readers.get_mut(&before) {
                readers.remove(uid);
                if readers.is_empty() {
                    self.readers.remove(&before);
                }
            }
        }
        for read in &reads {
            self.readers.entry(read.clone()).or_default().insert(uid.clone());
        }
        self.reads.insert(uid.clone(), reads);
    }

    /// A pod is gone.
    pub fn delete_pod(&mut self, uid: &str) {
        let uid = PodUid::from(uid);
        self.metadata.remove(&uid);
        if self.state.unbound.contains_key(&uid) {
            self.state.change().unbound.remove(&uid);
        }
        self.leave_claims(&uid);
        self.stated.remove(&uid);
        Arc::make_mut(&mut self.state.change().missing_owners).remove(&uid);
        self.state.change().lists.remove(&uid);
        self.read_by(&uid, BTreeSet::new());
        self.reads.remove(&uid);
        self.note_waiting(&uid, None);
        let Some(pod) = self.state.change().snapshot.pods.remove(&uid) else { return };
        if let Some(node) = pod.occupied_node() {
            if let Some(on) = self.pods_on.get_mut(node) {
                on.remove(&uid);
            }
            self.sum_up(node);
        }
        self.leave_gang(&pod, &uid);
        self.changed.extend(pod.membership.gang().cloned());
        self.changed.extend(self.planned.get(&uid).into_iter().flatten().cloned());
    }

    /// Pods that are not among `uids` are gone.
    pub fn retain_pods(&mut self, uids: &BTreeSet<String>) {
        let gone: Vec<PodUid> =
            self.state.snapshot.pods.keys().filter(|uid| !uids.contains(uid.as_str())).cloned().collect();
        for uid in gone {
            // Nobody saw it go: the list may be stale, or the API server may have lost its memory.
            let node =
                self.state.snapshot.pods.get(&uid).filter(|pod| pod.holds_capacity()).and_then(|pod| pod.node.clone());
            if let Some(node) = node {
                Arc::make_mut(&mut self.state.change().snapshot.vanished).pods_of.insert(node);
            }
            self.delete_pod(uid.as_str());
        }
    }

    /// An owner or group was seen: the pods that look at it are recognised again.
    pub fn apply_object(&mut self, object: Object) {
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        if self.state.objects.by_uid(uid) == Some(&object) {
            // Only its status is another, which nobody reads.
            return;
        }
        let refs = Known::refs(&object);
        self.state.change().objects.insert(object);
        let pods: BTreeSet<PodUid> = refs.iter().filter_map(|one| self.readers.get(one)).flatten().cloned().collect();
        for pod_uid in pods {
            let (Some(metadata), Some(pod)) =
                (self.metadata.get(&pod_uid).cloned(), self.state.snapshot.pods.get(&pod_uid).cloned())
            else {
                continue;
            };
            let (recognition, foreign) = self.recognise(&metadata);
            let mut pod = CorePod::clone(&pod);
            pod.membership = recognition.membership.clone();
            (pod.foreign, pod.remade) = (foreign, recognition.remade);
            self.index(pod_uid, &Arc::new(pod), recognition);
        }
    }

    /// An owner or group is gone. Its pods keep what was recognised.
    pub fn delete_object(&mut self, uid: &str) {
        self.state.change().objects.remove(uid);
    }

    /// Objects of a kind that are not among `uids` are gone.
    pub fn retain_objects(&mut self, kind: Kind, uids: &BTreeSet<String>) {
        for uid in self.state.objects.uids(kind).into_iter().filter(|uid| !uids.contains(uid)) {
            self.state.change().objects.remove(&uid);
        }
        self.state.change().objects.listed(kind);
        self.unserved(kind);
    }

    /// A DaemonSet was seen: pods that came before it are trusted from now on, and what one of its pods asks for is kept. Its
    /// status is not: that changes with every node.
    pub fn apply_daemon_set(&mut self, set: &DaemonSet) {
        let (Some(uid), Some(namespace)) = (set.uid(), set.namespace()) else { return };
        let daemon = convert::daemon(set).map(|daemon| (object_key(set), daemon));
        if daemon.as_ref() != self.daemons.get(&uid) {
            match daemon {
                Some(daemon) => self.daemons.insert(uid.clone(), daemon),
                None => self.daemons.remove(&uid),
            };
            self.publish_daemons();
        }
        if self.state.daemon_sets.get(&uid) == Some(&namespace) {
            return;
        }
        Arc::make_mut(&mut self.state.change().daemon_sets).insert(uid.clone(), namespace);
        let names_it = |pod: &Arc<Pod>| pod_state::daemon_set(pod).is_some_and(|owner| owner.uid == uid);
        let pods = self.metadata.iter().filter(|(_, pod)| names_it(pod) && self.state.is_of_daemon_set(pod));
        for pod_uid in pods.map(|(uid, _)| uid.clone()).collect::<Vec<_>>() {
            let Some(pod) = self.state.snapshot.pods.get(&pod_uid) else { continue };
            let pod = Arc::new(CorePod { daemon: true, ..CorePod::clone(pod) });
            self.state.change().snapshot.pods.insert(pod_uid, pod);
        }
    }

    /// A DaemonSet is gone. Its pods go too, and keep their way until then.
    pub fn delete_daemon_set(&mut self, uid: &str) {
        if self.state.daemon_sets.contains_key(uid) {
            Arc::make_mut(&mut self.state.change().daemon_sets).remove(uid);
        }
        if self.daemons.remove(uid).is_some() {
            self.publish_daemons();
        }
    }

    /// DaemonSets that are not among `uids` are gone.
    pub fn retain_daemon_sets(&mut self, uids: &BTreeSet<String>) {
        let gone: Vec<String> = self.state.daemon_sets.keys().filter(|uid| !uids.contains(*uid)).cloned().collect();
        gone.iter().for_each(|uid| self.delete_daemon_set(uid));
    }

    /// In order of namespace and name, so that the same DaemonSets are the same list.
    fn publish_daemons(&mut self) {
        let mut all: Vec<_> = self.daemons.values().collect();
        all.sort_unstable_by_key(|(key, _)| key);
        let state = self.state.change();
        state.daemons = all.iter().map(|(_, daemon)| daemon.shape.clone()).collect();
        let plugins = all.iter().filter(|(_, daemon)| daemon.role.and_then(Role::device).is_some());
        state.plugins = plugins.map(|(_, daemon)| daemon.clone()).collect();
        state.prefixes = all.iter().any(|(_, daemon)| daemon.prefixes);
    }

    /// A Gang was seen, by the watch or in the answer to an own write: an older version than the one known, and one
    /// that is known to be deleted, is dropped.
    pub fn apply_gang(&mut self, gang: Gang) {
        let state = gang_state::read(&gang);
        let key = state.key.clone();
        let version = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX);
        let known = self.state.snapshot.gangs.get(&key);
        if known.is_some_and(|known| {
            known.uid == state.uid && version(&known.resource_version) > version(&state.resource_version)
        }) || self.deleted.iter().any(|uid| **uid == *state.uid)
        {
            return;
        }
        let state = Arc::new(state);
        self.note_plan(&key, Some(&state));
        self.state.change().snapshot.gangs.insert(key.clone(), state);
        self.state.change().gangs.insert(key, Arc::new(gang));
    }

    /// The Gang of this UID is gone; another of its name may be known already.
    pub fn delete_gang(&mut self, key: &ObjectKey, uid: &str) {
        self.deleted.push_back(uid.to_owned());
        let surplus = self.deleted.len().saturating_sub(DELETED);
        self.deleted.drain(..surplus);
        if self.state.snapshot.gangs.get(key).is_some_and(|known| *known.uid != *uid) {
            return;
        }
        self.note_plan(key, None);
        self.state.change().snapshot.gangs.remove(key);
        self.state.change().gangs.remove(key);
    }

    /// A gang has another plan now.
    fn note_plan(&mut self, key: &ObjectKey, now: Option<&CoreGang>) {
        fn pods(gang: &CoreGang) -> impl Iterator<Item = &PodUid> {
            gang.places.iter().filter_map(|place| place.uid.as_ref())
        }
        let before = self.state.snapshot.gangs.get(key);
        for uid in before.into_iter().flat_map(|gang| pods(gang)) {
            if let Some(gangs) = self.planned.get_mut(uid) {
                gangs.remove(key);
                if gangs.is_empty() {
                    self.planned.remove(uid);
                }
            }
        }
        for uid in now.into_iter().flat_map(pods) {
            self.planned.entry(uid.clone()).or_default().insert(key.clone());
        }
        self.changed.insert(key.clone());
    }

    /// Gangs that are not among `keys` are gone.
    pub fn retain_gangs(&mut self, keys: &BTreeSet<ObjectKey>) {
        for key in self.state.snapshot.gangs.clone().keys().filter(|key| !keys.contains(key)) {
            self.note_plan(key, None);
            self.state.change().snapshot.gangs.remove(key);
            self.state.change().gangs.remove(key);
        }
    }

    /// A NodeBatch was seen.
    pub fn apply_batch(&mut self, batch: NodeBatch) {
        let (name, seen) = (batch.name_any(), SeenBatch::new(Arc::new(batch)));
        Arc::make_mut(&mut self.state.change().batches).insert(name.clone(), seen);
        self.plan_batch(&name);
    }

    /// A NodeBatch is gone.
    pub fn delete_batch(&mut self, name: &str) {
        Arc::make_mut(&mut self.state.change().batches).remove(name);
        self.plan_batch(name);
    }

    /// A batch changed, or a Node of an instance of it came or went.
    fn plan_batch(&mut self, name: &str) {
        let batch = self.state.batches.get(name).map(|seen| Arc::clone(seen.batch()));
        let touched = self.reserved.plan(name, batch.as_deref());
        if let Some(coming) = self.reserved.plan_coming(name, batch.as_deref()) {
            self.state.change().snapshot.coming = coming;
        }
        touched.iter().for_each(|node| self.look_at_awaited(node));
    }

    /// NodeBatches that are not among `names` are gone.
    pub fn retain_batches(&mut self, names: &BTreeSet<String>) {
        let gone: Vec<String> = self.state.batches.keys().filter(|name| !names.contains(*name)).cloned().collect();
        gone.iter().for_each(|name| self.delete_batch(name));
    }

    /// A NodePool was seen.
    pub fn apply_pool(&mut self, pool: NodePool) {
        Arc::make_mut(&mut self.state.change().pools).insert(pool.name_any(), Arc::new(pool));
    }

    /// A NodePool is gone.
    pub fn delete_pool(&mut self, name: &str) {
        Arc::make_mut(&mut self.state.change().pools).remove(name);
    }

    /// NodePools that are not among `names` are gone.
    pub fn retain_pools(&mut self, names: &BTreeSet<String>) {
        Arc::make_mut(&mut self.state.change().pools).retain(|name, _| names.contains(name));
    }

    /// An EC2NodeClass was seen.
    pub fn apply_class(&mut self, class: EC2NodeClass) {
        Arc::make_mut(&mut self.state.change().classes).insert(class.name_any(), Arc::new(class));
    }

    /// An EC2NodeClass is gone.
    pub fn delete_class(&mut self, name: &str) {
        Arc::make_mut(&mut self.state.change().classes).remove(name);
    }

    /// EC2NodeClasses that are not among `names` are gone.
    pub fn retain_classes(&mut self, names: &BTreeSet<String>) {
        Arc::make_mut(&mut self.state.change().classes).retain(|name, _| names.contains(name));
    }

    /// A ProvisioningRequest was seen; those of other classes are not kept.
    pub fn apply_request(&mut self, request: ProvisioningRequest) {
        if request.spec.provisioning_class_name == keys::PROVISIONING_CLASS {
            Arc::make_mut(&mut self.state.change().requests).insert(object_key(&request), Arc::new(request));
        }
    }

    /// A ProvisioningRequest is gone.
    pub fn delete_request(&mut self, key: &ObjectKey) {
        Arc::make_mut(&mut self.state.change().requests).remove(key);
    }

    /// ProvisioningRequests that are not among `keys` are gone.
    pub fn retain_requests(&mut self, keys: &BTreeSet<ObjectKey>) {
        Arc::make_mut(&mut self.state.change().requests).retain(|key, _| keys.contains(key));
    }

    /// Whether another scheduler's profile, for whose pods nodes are launched too, schedules a pod.
    fn is_foreign(&self, pod: &Pod) -> bool {
        pod_state::is_foreign(pod, &self.options.scheduler_names, &self.options.provisioner_scheduler_names)
    }

    fn recognise(&self, pod: &Pod) -> (Recognition, Foreign) {
        if pod_state::is_scheduled_by(pod, &self.options.scheduler_names) {
            return (conventions::recognise(pod, &self.state.objects), Foreign::Other);
        }
        if !self.is_foreign(pod) {
            // A pod that names another scheduler is other people's usage, nothing more.
            return (Recognition::single(BTreeSet::new()), Foreign::Other);
        }
        // Its gang would be none of ours: what counts is whether it is of one.
        let would_be = conventions::recognise(pod, &self.state.objects);
        let foreign = pod_state::foreign(&would_be.membership);
        (Recognition { membership: Membership::Single, gang: None, ..would_be }, foreign)
    }

    fn leave_gang(&mut self, pod: &CorePod, uid: &PodUid) {
        let Some(gang) = pod.membership.gang() else { return };
        let members = &mut self.state.change().snapshot.members;
        if let Some(of_gang) = members.get_mut(gang) {
            let key = member_key(pod);
            if of_gang.get(&key) == Some(uid) {
                of_gang.remove(&key);
            }
            if of_gang.is_empty() {
                members.remove(gang);
            }
        }
    }

    /// What the gang's members say together: the live ones in order of name, or those that ended if there are none.
    fn describe(&mut self, gang: &ObjectKey) {
        let (snapshot, stated) = (&self.state.snapshot, &self.stated);
        let all = || {
            let uids = snapshot.members.get(gang).into_iter().flat_map(|members| members.values());
            uids.filter_map(move |uid| Some((snapshot.pods.get(uid)?, stated.get(uid)?)))
        };
        let live = all().any(|(pod, _)| pod.is_live());
        let stated =
            all().filter(|(pod, _)| !live || pod.is_live()).filter_map(|(pod, stated)| match &pod.membership {
                Membership::Member { role, .. } => Some((role, stated)),
                Membership::Unknown | Membership::Single => None,
            });
        let stated = conventions::merge(stated);
        let recognised = &mut self.state.change().snapshot.recognised;
        match stated {
            Some(stated) => {
                recognised.insert(gang.clone(), stated);
            }
            None => {
                recognised.remove(gang);
            }
        }
    }

    fn usage(&self, node: &NodeName) -> Usage {
        let pods = self.pods_on.get(node).into_iter().flatten().filter_map(|uid| self.state.snapshot.pods.get(uid));
        pod_state::usage(pods.map(AsRef::as_ref))
    }

    fn sum_up(&mut self, node: &NodeName) {
        let usage = self.usage(node);
        if let Some(entry) = self.state.change().snapshot.nodes.get_mut(node) {
            *entry = Arc::new(NodeEntry { node: Arc::clone(&entry.node), usage: Arc::new(usage) });
        }
        self.look_at_awaited(node);
    }
}

/// Order of a gang's members: by name, then UID, since a name can come again.
fn member_key(pod: &CorePod) -> Arc<str> {
    Arc::from(format!("{}/{}", pod.key.name, pod.uid))
}

/// Namespace and name of an object.
pub(super) fn object_key<K: ResourceExt>(object: &K) -> ObjectKey {
    ObjectKey::new(object.namespace().unwrap_or_default(), object.name_any())
}
