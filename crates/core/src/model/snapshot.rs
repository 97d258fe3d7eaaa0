//! What Muster knows of the cluster at one moment, with everything the extender looks up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;
use jiff::Timestamp;
use rustc_hash::FxHashMap;

use serde::{Deserialize, Serialize};

use crate::model::gang::{Gang, Membership, Pod, Recognised};
use crate::model::names::{NodeName, ObjectKey, PodUid};
use crate::model::node::{Node, Usage};
use crate::model::pods::Pods;
use crate::model::resources::{ATTACHABLE_VOLUMES, DEVICE_CLASS, Resources};

/// One consistent view of the cluster. Immutable; a newer one replaces it. The maps are persistent, so that publishing
/// costs what changed (decision 0003).
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Rises with every published snapshot.
    pub version: u64,
    /// Whether every watch has delivered its first list.
    pub synced: bool,
    /// Nodes with what holds capacity on them.
    pub nodes: OrdMap<NodeName, Arc<NodeEntry>>,
    /// Pods.
    pub pods: Pods,
    /// Live and ended members per gang, in order of pod name.
    pub members: OrdMap<ObjectKey, OrdMap<Arc<str>, PodUid>>,
    /// What pods and owners say of each gang.
    pub recognised: OrdMap<ObjectKey, Arc<Recognised>>,
    /// Gang objects.
    pub gangs: OrdMap<ObjectKey, Arc<Gang>>,
    /// Assigned capacity per node.
    pub assignments: FxHashMap<NodeName, Vec<Assignment>>,
    /// Extended resources the pools sell or the nodes have that count as accelerators.
    pub accelerators: Vec<Arc<str>>,
    /// Nodes launched for pods of no gang that have not all come yet.
    pub awaiting: OrdMap<NodeName, Arc<Awaiting>>,
    /// Places on instances that were launched for pods of no gang and have not registered yet, by class.
    pub coming: OrdMap<Arc<str>, u32>,
    /// Pods of no gang that nodes are launched for and that have none yet, by class, see [`crate::ordinary::digest`]. A node is kept
    /// for nobody who does not exist.
    pub waiting: OrdMap<Arc<str>, u32>,
    /// What went without anybody having seen it go. Nothing but whether emptiness was witnessed is decided by it, so it is not
    /// written down.
    pub vanished: Arc<Vanished>,
}

/// What a full list did not have any more although no event had reported that it goes: the list may be stale, or the API server may have
/// lost its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vanished {
    /// Nodes that lost a pod this way, until another pod is seen to come to them.
    pub pods_of: BTreeSet<NodeName>,
    /// Nodes that went this way themselves, until they are seen again.
    pub nodes: BTreeSet<NodeName>,
}

/// The pods that a node was launched for and that have not come to it yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Awaiting {
    /// By class of pods, see [`crate::ordinary::digest`].
    pub places: BTreeMap<Arc<str>, Places>,
    /// From then on the node is for everybody. `None`: it is not Ready yet.
    pub until: Option<Timestamp>,
}

/// Pods of one class that a node awaits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Places {
    /// How many.
    pub left: u32,
    /// What each asks for; `None` while no pod of the class is known.
    pub requests: Option<Resources>,
}

impl Places {
    /// Whether such a pod could stand on a node with so much. Of a class that nobody has seen yet nothing is known, and neither is
    /// how many volumes or devices a node has whose driver has not registered.
    #[must_use]
    pub fn could_be_on(&self, allocatable: &Resources) -> bool {
        self.could_be_beside(allocatable, &Usage::default())
    }

    /// The same beside what stands there.
    #[must_use]
    pub fn could_be_beside(&self, allocatable: &Resources, usage: &Usage) -> bool {
        let holds = |requests: &Resources| {
            requests.iter().all(|(resource, amount)| {
                let (name, has) = (resource.as_str(), allocatable.get(resource.as_str()));
                let comes_later = name.starts_with(ATTACHABLE_VOLUMES) || name.starts_with(DEVICE_CLASS);
                has.saturating_sub(usage.requested.get(name)) >= amount || has == 0 && comes_later
            })
        };
        self.requests.as_ref().is_none_or(holds)
    }
}

impl Awaiting {
    /// Whether somebody is still awaited at `now`.
    #[must_use]
    pub fn holds(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until) && self.places.values().any(|places| places.left > 0)
    }

    /// Whether one of those that are awaited could stand on a node with so much. A machine may come with less than its type has: what
    /// it cannot hold does not come, and is not waited for.
    #[must_use]
    pub fn could_come_to(&self, allocatable: &Resources) -> bool {
        self.places.values().any(|places| places.left > 0 && places.could_be_on(allocatable))
    }

    /// Whether a pod of `class` is among those that are awaited.
    #[must_use]
    pub fn awaits(&self, class: &str) -> bool {
        self.places.get(class).is_some_and(|places| places.left > 0)
    }
}

/// A node and what holds capacity on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeEntry {
    /// The node.
    pub node: Arc<Node>,
    /// Pods on it until they are gone, and unbound pods of no gang nominated to it.
    pub usage: Arc<Usage>,
}

/// Capacity on a node that is assigned to a gang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    /// To whom.
    pub gang: ObjectKey,
    /// What.
    pub capacity: AssignedCapacity,
}

/// What is assigned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AssignedCapacity {
    /// What one member will hold: its requests and host ports.
    Member(Usage),
    /// The whole node: it was provisioned for the gang, which does not use it yet.
    WholeNode,
}

impl Snapshot {
    /// The key under which nodes booked by a ProvisioningRequest are assigned. A slash cannot occur in a name, so it
    /// is never that of a Gang.
    #[must_use]
    pub fn booking_key(namespace: &str, request: &str) -> ObjectKey {
        ObjectKey::new(namespace, format!("provisioningrequests/{request}"))
    }

    /// Live members of a gang, in order of pod name.
    pub fn live_members<'a>(&'a self, gang: &ObjectKey) -> impl Iterator<Item = &'a Arc<Pod>> {
        self.members
            .get(gang)
            .into_iter()
            .flat_map(|members| members.values())
            .filter_map(|uid| self.pods.get(uid))
            .filter(|pod| pod.is_live())
    }

    /// All members of a gang that still exist, ended ones included.
    pub fn all_members<'a>(&'a self, gang: &ObjectKey) -> impl Iterator<Item = &'a Arc<Pod>> {
        self.members.get(gang).into_iter().flat_map(|members| members.values()).filter_map(|uid| self.pods.get(uid))
    }

    /// Pods that hold capacity on any of these nodes, whoever they belong to; pods of DaemonSets go with their node and do
    /// not count. A pod on a node that is gone runs no more, however long its object stays.
    pub fn occupants<'a>(&'a self, nodes: &BTreeSet<&str>) -> impl Iterator<Item = &'a Arc<Pod>> {
        let there = nodes.iter().filter(|node| self.nodes.contains_key(**node));
        there.flat_map(|node| self.pods.standing_on(node)).filter(|pod| !pod.daemon)
    }

    /// The gang object of a pod, if the pod is a member and the object is known.
    #[must_use]
    pub fn gang_of(&self, pod: &Pod) -> Option<&Arc<Gang>> {
        self.gangs.get(pod.membership.gang()?)
    }

    /// Computes the assignments from plans: places of plans from `Planned` on whose pod is not seen bound.
    ///
    /// Capacity assigned by an action in flight is subtracted at once; capacity freed is credited only when observed.
    #[must_use]
    pub fn plan_assignments(&self) -> FxHashMap<NodeName, Vec<Assignment>> {
        let mut assignments: FxHashMap<NodeName, Vec<Assignment>> = FxHashMap::default();
        for (node, assignment) in self.gangs.values().flat_map(|gang| self.assignments_of(gang)) {
            assignments.entry(node).or_default().push(assignment);
        }
        assignments
    }

    /// What the plan of one gang assigns it, in the order of its places.
    #[must_use]
    pub fn assignments_of(&self, gang: &Gang) -> Vec<(NodeName, Assignment)> {
        if gang.deleting {
            return Vec::new();
        }
        let only = |requested: &Resources| Usage { requested: requested.clone(), ..Usage::default() };
        // Once its pods are gone nothing else tells what they asked for. Before that they hold their capacity themselves.
        let held = gang.held.iter().filter(|held| held.until.is_some()).flat_map(|held| &held.capacities);
        let mut assignments: Vec<(NodeName, Assignment)> = held
            .map(|(node, requests)| {
                let capacity = AssignedCapacity::Member(only(requests));
                (node.clone(), Assignment { gang: gang.key.clone(), capacity })
            })
            .collect();
        if !gang.phase.is_some_and(crate::model::gang::Phase::assigns_capacity) {
            return assignments;
        }
        let asks = |pod: &Arc<Pod>| pod.shape.as_ref().ok().map(|shape| Usage::of(shape));
        let plays =
            |pod: &Pod, role: &Arc<str>| matches!(&pod.membership, Membership::Member { role: own, .. } if own == role);
        let sample = |role: &Arc<str>| {
            let same = self.all_members(&gang.key).filter(|pod| plays(pod, role)).find_map(asks);
            same.or_else(|| self.all_members(&gang.key).find_map(asks))
        };
        let mut samples: BTreeMap<&Arc<str>, Option<Usage>> = BTreeMap::new();
        // What a member that failed had is kept like that of the others, where all of them are evicted for it and start again.
        let begins_again =
            gang.held.is_some() || usize::try_from(gang.minimum).is_ok_and(|minimum| minimum >= gang.places.len());
        for place in gang.places.iter().filter(|place| !place.done) {
            let pod = place.uid.as_ref().and_then(|uid| self.pods.get(uid));
            let held = match pod {
                Some(pod) if pod.is_done() || pod.ended && !begins_again => continue,
                Some(pod) if pod.node.is_some() && !pod.ended => continue,
                Some(pod) => asks(pod),
                // A place without a pod stays assigned to the one that is still to come.
                None => samples.entry(&place.role).or_insert_with(|| sample(&place.role)).clone().or_else(|| {
                    gang.held
                        .as_ref()?
                        .capacities
                        .iter()
                        .find(|capacity| capacity.0 == place.node)
                        .map(|capacity| only(&capacity.1))
                }),
            };
            if let Some(held) = held {
                let assignment = Assignment { gang: gang.key.clone(), capacity: AssignedCapacity::Member(held) };
                assignments.push((place.node.clone(), assignment));
            }
        }
        assignments
    }

    /// What others were assigned on a node; `None` if the whole node is assigned to somebody else. `own` are the keys
    /// under which the asking gang holds assignments: its own, and that of its booking.
    #[must_use]
    pub fn assigned_to_others(&self, node: &NodeName, own: &[ObjectKey]) -> Option<Usage> {
        let mut sum = Usage::default();
        for assignment in self.assignments.get(node).into_iter().flatten() {
            if own.contains(&assignment.gang) {
                continue;
            }
            match &assignment.capacity {
                AssignedCapacity::WholeNode => return None,
                AssignedCapacity::Member(held) => sum.join(held),
            }
        }
        Some(sum)
    }

    /// Whether a pod's membership is settled as "no gang".
    #[must_use]
    pub fn is_single(pod: &Pod) -> bool {
        pod.membership == Membership::Single
    }
}
