//! The pods of a snapshot, with those in order that somebody looks for in every pass.

use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::Arc;

use imbl::ordmap::DiffItem;
use imbl::shared_ptr::DefaultSharedPtr;
use imbl::{GenericHashMap, OrdMap};
use rustc_hash::FxBuildHasher;

use crate::model::gang::{Membership, Pod};
use crate::model::names::{NodeName, ObjectKey, PodUid};

type ByUid = GenericHashMap<PodUid, Arc<Pod>, FxBuildHasher, DefaultSharedPtr>;
type InOrder = OrdMap<(ObjectKey, PodUid), Arc<Pod>>;
type ByNode = OrdMap<(NodeName, PodUid), Arc<Pod>>;

/// Pods by UID. A cluster has mostly pods that run, or for hours a crowd that waits: whoever looks for some of them must not look at
/// all, since it does so whenever one of them changes.
#[derive(Clone, Debug, Default)]
pub struct Pods {
    all: ByUid,
    /// Live pods of no gang that have no node.
    unplaced: InOrder,
    /// Pods that have not ended and of which it is not known whether they are of a gang.
    unknown: InOrder,
    /// Live pods without a node that are nominated for one, or pinned to one.
    sent: InOrder,
    /// Pods that hold capacity on a node.
    standing: ByNode,
}

/// What pods are kept in order of their names for.
type Of = fn(&Pod) -> bool;

impl Pods {
    fn in_order(&mut self) -> [(&mut InOrder, Of); 3] {
        [(&mut self.unplaced, is_unplaced), (&mut self.unknown, is_unknown), (&mut self.sent, is_sent)]
    }

    /// Puts a pod in, and answers what was known of it before.
    pub fn insert(&mut self, uid: PodUid, pod: Arc<Pod>) -> Option<Arc<Pod>> {
        let before = self.all.get(&uid).cloned();
        for (pods, of) in self.in_order() {
            keep(pods, of, &uid, before.as_deref(), &pod);
        }
        let (was, is) = (before.as_deref().and_then(stands_on), stands_on(&pod));
        if let Some(node) = was.filter(|_| was != is) {
            self.standing.remove(&(node.clone(), uid.clone()));
        }
        if let Some(node) = is {
            self.standing.insert((node.clone(), uid.clone()), Arc::clone(&pod));
        }
        self.all.insert(uid, pod)
    }

    /// Takes a pod out.
    pub fn remove(&mut self, uid: &PodUid) -> Option<Arc<Pod>> {
        let before = self.all.remove(uid)?;
        for (pods, of) in self.in_order() {
            if of(&before) {
                pods.remove(&(before.key.clone(), uid.clone()));
            }
        }
        if let Some(node) = stands_on(&before) {
            self.standing.remove(&(node.clone(), uid.clone()));
        }
        Some(before)
    }

    /// A pod.
    #[must_use]
    pub fn get<U: Hash + Eq + ?Sized>(&self, uid: &U) -> Option<&Arc<Pod>>
    where
        PodUid: Borrow<U>,
    {
        self.all.get(uid)
    }

    /// Whether there is such a pod.
    #[must_use]
    pub fn contains_key(&self, uid: &PodUid) -> bool {
        self.all.contains_key(uid)
    }

    /// All of them, in no order.
    pub fn values(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.all.values()
    }

    /// The UIDs of all of them, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &PodUid> {
        self.all.keys()
    }

    /// Live pods of no gang that have no node, by namespace, name and UID.
    pub fn unplaced(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.unplaced.values()
    }

    /// To ask later whether [`Pods::unplaced`] are the same.
    #[must_use]
    pub fn unplaced_now(&self) -> Unplaced {
        Unplaced(self.unplaced.clone())
    }

    /// Pods that hold capacity on a node, also where their Node is gone, by node and UID.
    pub fn standing(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.standing.values()
    }

    /// Pods that hold capacity on this node, by UID. In time of how many there are.
    pub fn standing_on<'p>(&'p self, node: &str) -> impl Iterator<Item = &'p Arc<Pod>> {
        let node = NodeName::new(node);
        let from = (node.clone(), PodUid::new(""));
        self.standing.range(from..).take_while(move |((of, _), _)| *of == node).map(|(_, pod)| pod)
    }

    /// Live pods without a node that are nominated for one, or pinned to one, by namespace, name and UID.
    pub fn sent(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.sent.values()
    }

    /// Pods that hold capacity on a node or are about to: see [`Pod::occupied_node`].
    pub fn placed(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.standing().chain(self.sent().filter(|pod| pod.occupied_node().is_some()))
    }

    /// Pods that have not ended and of which it is not known whether they are of a gang, by namespace, name and UID.
    pub fn unknown(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.unknown.values()
    }
}

/// What [`Pods::unplaced`] held at some moment.
#[derive(Clone, Debug, Default)]
pub struct Unplaced(InOrder);

impl Unplaced {
    /// Whether not one of them has come, changed or gone since; it may answer `false` where one was put in that equals the one before.
    /// In constant time.
    #[must_use]
    pub fn are_those_of(&self, pods: &Pods) -> bool {
        self.0.ptr_eq(&pods.unplaced)
    }

    /// Those that have come, changed or gone since: as they are now, `None` where they are gone. In time of what has changed.
    pub fn changes<'p>(
        &'p self,
        pods: &'p Pods,
    ) -> impl Iterator<Item = (&'p (ObjectKey, PodUid), Option<&'p Arc<Pod>>)> {
        self.0.diff(&pods.unplaced).map(|change| match change {
            DiffItem::Add(key, pod) | DiffItem::Update { new: (key, pod), .. } => (key, Some(pod)),
            DiffItem::Remove(key, _) => (key, None),
        })
    }
}

impl FromIterator<(PodUid, Arc<Pod>)> for Pods {
    fn from_iter<T: IntoIterator<Item = (PodUid, Arc<Pod>)>>(pods: T) -> Self {
        let mut all = Self::default();
        for (uid, pod) in pods {
            all.insert(uid, pod);
        }
        all
    }
}

fn is_unplaced(pod: &Pod) -> bool {
    pod.node.is_none() && pod.membership == Membership::Single && pod.is_live()
}

fn is_unknown(pod: &Pod) -> bool {
    pod.membership == Membership::Unknown && !pod.ended
}

fn is_sent(pod: &Pod) -> bool {
    pod.node.is_none() && pod.is_live() && (pod.nominated.is_some() || pod.pinned.is_some())
}

fn stands_on(pod: &Pod) -> Option<&NodeName> {
    pod.node.as_ref().filter(|_| pod.holds_capacity())
}

/// Keeps `pods` to those that are `of` them. Most pods neither were nor are: nothing is looked up for them.
fn keep(pods: &mut InOrder, of: Of, uid: &PodUid, before: Option<&Pod>, now: &Arc<Pod>) {
    if let Some(before) = before.filter(|before| of(before) && !(of(now) && before.key == now.key)) {
        pods.remove(&(before.key.clone(), uid.clone()));
    }
    if of(now) {
        pods.insert((now.key.clone(), uid.clone()), Arc::clone(now));
    }
}
