//! What is on its way: nodes of batches for pods of no gang, and the pods they were planned for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::class::{digest, is_readable};
use crate::fit;
use crate::model::batch::{Batch, BatchMember, BatchPhase, MemberState, Owner};
use crate::model::node::{Node, Usage};
use crate::model::pod::Shape;
use crate::model::snapshot::{Awaiting, Snapshot};
use crate::packing::{Existing, Offer};

/// After its last node has registered, the pods of a batch have so long to be bound; then what is left of its nodes is for
/// everybody.
const BIND_WITHIN: SignedDuration = SignedDuration::from_mins(2);

/// What a pool offers, and whether it can be had now.
#[derive(Clone, Debug)]
pub struct Offered {
    /// The offer; its pool is an index into those of the round.
    pub offer: Offer,
    /// Name of its pool.
    pub pool_name: Arc<str>,
    /// Whether nothing is known against it: no missing capacity, no refusal.
    pub available: bool,
}

/// Now, by the provisioner's clock and in real time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) clock: Timestamp,
    pub(super) real: Timestamp,
}

/// A batch whose pods may still come to its nodes.
pub(super) struct Joining {
    /// Name of its pool.
    pub(super) pool: String,
    /// The classes that it is for.
    pub(super) planned: BTreeSet<String>,
    /// Places that nobody has taken yet, by class.
    pub(super) places: BTreeMap<String, u32>,
    /// Places of classes that another version wrote down: nobody can say which pods they are for, so any pod may have them.
    pub(super) unread: u32,
    /// When the batch was created: who came later is not who it was planned for.
    pub(super) created: Option<Timestamp>,
    /// Its nodes as they are planned to be.
    pub(super) nodes: Vec<Existing>,
    /// Names of those that exist already.
    pub(super) names: Vec<String>,
}

impl Joining {
    /// Whether the volumes of a pod can be reached from its nodes: pods of one class may have theirs in several zones.
    pub(super) fn reaches(&self, shape: &Shape) -> bool {
        self.nodes.first().is_none_or(|one| fit::reaches_volumes(shape, &one.node))
    }
}

/// Batches whose pods may still come.
pub(super) fn joining(
    batches: &[Arc<Batch>],
    snapshot: &Snapshot,
    offers: &[Offered],
    shapes: &BTreeMap<String, Arc<Shape>>,
    now: Now,
) -> Vec<Joining> {
    let for_pods = batches.iter().filter(|batch| batch.spec.partial && batch.spec.owner == Owner::Pods);
    for_pods.filter_map(|batch| of_batch(batch, snapshot, offers, shapes, now)).collect()
}

fn of_batch(
    batch: &Batch,
    snapshot: &Snapshot,
    offers: &[Offered],
    shapes: &BTreeMap<String, Arc<Shape>>,
    now: Now,
) -> Option<Joining> {
    let (spec, status) = (&batch.spec, &batch.status);
    let count = match status.phase {
        BatchPhase::Pending if batch.deleting => return None,
        BatchPhase::Pending => spec.count,
        BatchPhase::Draining | BatchPhase::Terminating => return None,
        BatchPhase::Launching
        | BatchPhase::Launched
        | BatchPhase::Joining
        | BatchPhase::Replacing
        | BatchPhase::Ready
        | BatchPhase::InUse
        | BatchPhase::Idle => status.count,
    };
    // What is kept for its pods is on its way to them: whether they come is known after that.
    let kept = |one: &Arc<Awaiting>| one.until.is_some() && one.holds(now.real);
    let keeps = |name: &str| snapshot.awaiting.get(name).is_some_and(kept);
    // Whoever has been Ready for long is what it is, whatever becomes of the others.
    let settled = |one: &BatchMember| {
        let over = one.registered.is_none_or(|at| now.clock.duration_since(at) >= BIND_WITHIN);
        one.state == MemberState::Ready && over && !one.node.as_deref().is_some_and(keeps)
    };
    let rest: Vec<&BatchMember> = status.instances.iter().filter(|one| !settled(one)).collect();
    let all_ready = !status.instances.is_empty() && rest.iter().all(|one| one.state == MemberState::Ready);
    let names: Vec<String> = rest.iter().filter_map(|one| one.node.clone()).collect();
    let planned = spec.planned_pods().take(usize::try_from(count).unwrap_or(0)).enumerate();
    let planned = planned.filter(|(number, _)| !status.instances.get(*number).is_some_and(settled));
    let each: Vec<(usize, &[(String, u32)])> = planned.collect();
    if each.is_empty() {
        return None;
    }
    let mut places: BTreeMap<String, u32> = BTreeMap::new();
    let mut unread = 0_u32;
    for (class, number) in each.iter().flat_map(|(_, pods)| *pods) {
        if is_readable(class) {
            *places.entry(class.clone()).or_default() += number;
        } else {
            unread = unread.saturating_add(*number);
        }
    }
    let planned = places.keys().cloned().collect();
    let on = names.iter().map(String::as_str).collect();
    let mut bound: BTreeMap<String, &Arc<Shape>> = BTreeMap::new();
    for pod in snapshot.occupants(&on) {
        let Ok(shape) = &pod.shape else { continue };
        let class = digest(&pod.key.namespace, shape);
        match places.get_mut(&class) {
            Some(left) => *left = left.saturating_sub(1),
            None => unread = unread.saturating_sub(1),
        }
        bound.insert(class, shape);
    }
    if places.values().all(|left| *left == 0) && unread == 0 && all_ready {
        return None;
    }
    let wanted = spec.offers.first()?;
    // A batch that may be launched in several ways is what it was asked for last.
    let instance_type = status.instance_type.as_deref().unwrap_or(&wanted.instance_type);
    let capacity_type = status.capacity_type.or(spec.capacity_type);
    let alike = offers.iter().map(|one| &one.offer).find(|offer| {
        *offer.instance_type == *instance_type
            && offer.zone.as_deref() == spec.zones.first().map(String::as_str)
            && capacity_type.is_none_or(|capacity_type| capacity_type == offer.capacity_type)
            && offers.iter().any(|one| one.offer.pool == offer.pool && *one.pool_name == *wanted.node_pool)
    });
    // Of an offer that is gone the nodes are not known: those that have registered are found as what they are.
    let names = if alike.is_some() { names } else { Vec::new() };
    let nodes = alike.map_or_else(Vec::new, |offer| {
        let node = |(number, pods): (usize, &[(String, u32)])| {
            let mut usage: Usage = offer.overhead.clone();
            for (class, many) in pods {
                // Whoever neither waits nor stands there is gone.
                let Some(shape) = shapes.get(class).or_else(|| bound.get(class).copied()) else { continue };
                (0..*many).for_each(|_| usage.add(shape));
            }
            usage.own_shape_pods = 0;
            let name = format!("{}/{number}", batch.name);
            Existing { node: Arc::new(Node { name: name.as_str().into(), ..Node::clone(&offer.node) }), usage }
        };
        // What a node holds of a class that another version wrote down is not known: it has capacity for nobody else.
        let known = |pods: &[(String, u32)]| pods.iter().all(|(class, _)| is_readable(class));
        each.iter().copied().filter(|(_, pods)| known(pods)).map(node).collect()
    });
    Some(Joining { pool: wanted.node_pool.clone(), planned, places, unread, created: batch.created, nodes, names })
}
