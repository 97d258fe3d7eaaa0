//! Which pods a node was launched for, and which of them have not come yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;
use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashMap;

use super::class::{digest_of, parts};
use crate::model::batch::{Batch, BatchMember, BatchPhase, Owner};
use crate::model::class::is_readable;
use crate::model::gang::{Membership, Pod};
use crate::model::names::{InstanceId, NodeName};
use crate::model::node::Node;
use crate::model::pod::Shape;
use crate::model::resources::Resources;
use crate::model::snapshot::{Awaiting, Places};

/// So long after it became Ready a node is kept for the pods that it was launched for.
pub(super) const KEPT: SignedDuration = SignedDuration::from_secs(60);
/// A node that is older than this when it is first seen Ready, as after a restart of this process, awaits nobody any more.
const YOUNG: SignedDuration = SignedDuration::from_mins(15);
/// Most classes remembered; beyond that all are forgotten, and found again.
const CLASSES: usize = 10_000;

/// Digests of classes of pods, each computed once, and what their pods ask for.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    digests: BTreeMap<Known, Arc<str>>,
    requests: FxHashMap<Arc<str>, Resources>,
}

/// What the digest of a class is computed of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Known {
    namespace: Arc<str>,
    shape: Arc<Shape>,
    constraints: Option<Arc<str>>,
}

impl Classes {
    /// The class of a pod, which is remembered. `None`: its shape is not known.
    pub fn of(&mut self, pod: &Pod) -> Option<Arc<str>> {
        let parts @ (namespace, shape, constraints) = parts(pod)?;
        let (namespace, shape) = (Arc::clone(namespace), Arc::clone(shape));
        let key = Known { namespace, shape, constraints: constraints.cloned() };
        if let Some(known) = self.digests.get(&key) {
            return Some(Arc::clone(known));
        }
        if self.digests.len() >= CLASSES {
            *self = Self::default();
        }
        let class: Arc<str> = digest_of(parts).into();
        self.requests.insert(Arc::clone(&class), key.shape.requests.clone());
        self.digests.insert(key, Arc::clone(&class));
        Some(class)
    }
}

/// The pods that each registered node of a batch was launched for, by class. Of a batch that ends no node awaits anybody.
///
/// `node_of` gives the Node of an instance: a batch names its nodes some time after they registered, and pods come to them before.
#[must_use]
pub fn planned<'n>(
    batch: &Batch,
    node_of: impl Fn(&InstanceId) -> Option<&'n NodeName>,
) -> Vec<(NodeName, BTreeMap<Arc<str>, u32>)> {
    if !awaits(batch) {
        return Vec::new();
    }
    let name = |one: &BatchMember| one.node.as_deref().map(NodeName::from).or_else(|| node_of(&one.id).cloned());
    batch.places().filter_map(|(_, one, pods)| Some((name(one)?, readable(pods)))).collect()
}

/// The pods that instances of a batch were launched for that have not registered yet, by class.
#[must_use]
pub fn coming<'n>(batch: &Batch, node_of: impl Fn(&InstanceId) -> Option<&'n NodeName>) -> BTreeMap<Arc<str>, u32> {
    let mut coming = BTreeMap::new();
    if awaits(batch) {
        let registered = |one: &BatchMember| one.node.is_some() || node_of(&one.id).is_some();
        let boot = batch.places().filter(|(_, one, _)| !registered(one) && !one.state.is_written_off());
        for (class, many) in boot.flat_map(|(_, _, pods)| readable(pods)) {
            *coming.entry(class).or_default() += many;
        }
    }
    coming
}

/// Whether nodes of a batch may await pods of no gang.
fn awaits(batch: &Batch) -> bool {
    let ends = match batch.status.phase {
        BatchPhase::Draining | BatchPhase::Terminating => true,
        BatchPhase::Pending
        | BatchPhase::Launching
        | BatchPhase::Launched
        | BatchPhase::Joining
        | BatchPhase::Replacing
        | BatchPhase::Ready
        | BatchPhase::InUse
        | BatchPhase::Idle => batch.deleting,
    };
    !ends && batch.spec.partial && batch.spec.owner == Owner::Pods
}

/// Without the classes that another version wrote down: nobody can say which pods they are for, so they keep nobody away.
fn readable(pods: &[(String, u32)]) -> BTreeMap<Arc<str>, u32> {
    let known = pods.iter().filter(|(class, _)| is_readable(class));
    known.map(|(class, many)| (Arc::from(&**class), *many)).collect()
}

/// Whether a pod may be one that nodes await: of no gang, of a profile that is provisioned for, and on no node yet.
#[must_use]
pub fn waits(pod: &Pod) -> bool {
    let provisioned = pod.ours || !pod.foreign.is_other();
    provisioned && pod.membership == Membership::Single && pod.is_live() && pod.node.is_none()
}

/// How many pods may be those that nodes await, by class.
#[must_use]
pub fn waiting<'a>(pods: impl Iterator<Item = &'a Arc<Pod>>, classes: &mut Classes) -> OrdMap<Arc<str>, u32> {
    let mut waiting = OrdMap::new();
    for class in pods.filter(|pod| waits(pod)).filter_map(|pod| classes.of(pod)) {
        *waiting.entry(class).or_default() += 1;
    }
    waiting
}

/// When a node stops to be kept for the pods that it was launched for, if it is first seen Ready at `now`, in real time.
#[must_use]
pub fn until(node: &Node, now: Timestamp) -> Timestamp {
    let young = node.created.is_none_or(|created| now.duration_since(created) < YOUNG);
    if young { now.saturating_add(KEPT).unwrap_or(now) } else { now }
}

/// Whom a node still awaits, of those that it was launched for; `on` are the pods on it. `None`: nobody.
///
/// `before` is whom it awaited when it was last asked about: who has come has come, whether or not the pod is there still.
#[must_use]
pub fn awaiting<'a>(
    planned: &BTreeMap<Arc<str>, u32>,
    before: Option<&BTreeMap<Arc<str>, u32>>,
    on: impl Iterator<Item = &'a Arc<Pod>>,
    classes: &mut Classes,
    until: Option<Timestamp>,
) -> Option<Awaiting> {
    let mut left = planned.clone();
    for pod in on.filter(|pod| pod.holds_capacity() && !pod.daemon) {
        if let Some(many) = classes.of(pod).and_then(|class| left.get_mut(&class)) {
            *many = many.saturating_sub(1);
        }
    }
    if let Some(before) = before {
        for (class, many) in &mut left {
            *many = (*many).min(before.get(class).copied().unwrap_or(0));
        }
    }
    left.retain(|_, many| *many > 0);
    let places = |(class, left): (Arc<str>, u32)| {
        let requests = classes.requests.get(&class).cloned();
        (class, Places { left, requests })
    };
    let places: BTreeMap<_, _> = left.into_iter().map(places).collect();
    (!places.is_empty()).then_some(Awaiting { places, until })
}
