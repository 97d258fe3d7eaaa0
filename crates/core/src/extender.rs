//! Answers of the extender verbs: pure functions of one published snapshot and one request.
//!
//! They may be called twice, in simulations, or for placements that are thrown away, and nothing changes
//! (`ARCHITECTURE.md`).

mod assumed;
pub mod barrier;
mod places;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use assumed::Assumed;
use jiff::Timestamp;
pub use places::chosen;

use self::assumed::counted_on;
use self::places::Asking;
use crate::fit::{Misfit, accepts, is_unlimited, untolerated};
use crate::model::gang::{Gang, GangPlace, Membership, Phase, Pod};
use crate::model::names::{NodeName, PodUid};
use crate::model::resources::Resources;
use crate::model::snapshot::{AssignedCapacity, Snapshot};

/// Why a node is rejected. A closed list without names or numbers: an equal message makes kube-scheduler write no
/// status patch, so it causes no event and no retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rejection {
    /// The gang is not released yet, or not known yet.
    WaitingForGang,
    /// The planned node was not offered.
    BeingReplanned,
    /// A topology request cannot be read.
    GangInvalid,
    /// No pool could ever hold the gang.
    GangUnsatisfiable,
    /// Capacity on the node is assigned to a gang.
    AssignedToGang,
    /// The node was launched a moment ago for other pods, and is full with them, or the pod has a place on another one.
    LaunchedForOthers,
    /// The node has a taint that the pod does not tolerate: it goes, or is not ready.
    Tainted,
}

impl Rejection {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::WaitingForGang,
        Self::BeingReplanned,
        Self::GangInvalid,
        Self::GangUnsatisfiable,
        Self::AssignedToGang,
        Self::LaunchedForOthers,
        Self::Tainted,
    ];

    /// The text kube-scheduler shows. Before 1.36 it passes through `fmt.Errorf` there: none contains a percent sign.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WaitingForGang => "waiting for gang",
            Self::BeingReplanned => "gang is being replanned",
            Self::GangInvalid => "gang is invalid",
            Self::GangUnsatisfiable => "gang cannot be satisfied",
            Self::AssignedToGang => "assigned to a gang",
            Self::LaunchedForOthers => "launched for other pods",
            Self::Tainted => "the node has an untolerated taint",
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Answer of `filter`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filtered<'a> {
    /// The state cannot be trusted.
    Unready,
    /// The pod was released by a plan that is newer than this snapshot: to be asked again.
    Behind,
    /// Nodes kept and rejected, each in the order of the request.
    Split {
        /// Kept.
        kept: Vec<&'a str>,
        /// Rejected, with the reason.
        rejected: Vec<(&'a str, Rejection)>,
        /// The planner should look at the gang again.
        requeue: bool,
    },
}

/// Answers `filter` for `pod` as kube-scheduler sent it: its epoch may be newer than the snapshot's. `now` is real time.
///
/// Shapes: the answer names every offered node once. What is trusted: `docs/decisions/0017-filter-believes-the-gang-alone.md`.
#[must_use]
pub fn filter<'a, N: AsRef<str>>(
    snapshot: &Snapshot,
    assumed: &Assumed,
    pod: &Pod,
    offered: &'a [N],
    now: Timestamp,
) -> Filtered<'a> {
    if !snapshot.synced {
        return Filtered::Unready;
    }
    let gang_key = match &pod.membership {
        Membership::Unknown => return reject_all(offered, Rejection::WaitingForGang, true),
        Membership::Single => return filter_single(snapshot, assumed, pod, offered, now),
        Membership::Member { gang, .. } => gang,
    };
    let gang = snapshot.gangs.get(gang_key);
    // Anybody who may write the pod may write an epoch and a node on it: where it goes is stated by the Gang alone. An epoch
    // that is not known here yet only says that this replica lags behind the one that released the pod.
    if pod.plan_epoch.unwrap_or(0) > gang.map_or(0, |gang| gang.epoch) {
        return Filtered::Behind;
    }
    let Some(gang) = gang else { return reject_all(offered, Rejection::WaitingForGang, true) };
    let place = || match gang.place_of(&pod.uid).map(|place| &place.node) {
        None => reject_all(offered, Rejection::WaitingForGang, true),
        // Not ours: somebody wants nothing new there, and what lets members pass a hold is no licence for that.
        Some(node) if is_cordoned(snapshot, pod, node) => reject_all(offered, Rejection::BeingReplanned, true),
        Some(node) if offered.iter().any(|name| name.as_ref() == node.as_str()) => {
            keep_only(offered, node, Rejection::WaitingForGang)
        }
        Some(_) => reject_all(offered, Rejection::BeingReplanned, true),
    };
    match gang.phase {
        // The pod is released, and the phase is on its way to this replica: the plan stands.
        Some(Phase::Planned) if pod.plan_epoch == Some(gang.epoch) => place(),
        Some(Phase::Invalid) => reject_all(offered, Rejection::GangInvalid, false),
        Some(Phase::Unsatisfiable) => reject_all(offered, Rejection::GangUnsatisfiable, false),
        Some(Phase::Released | Phase::Committing | Phase::Bound | Phase::Degraded) => place(),
        // The planner knows of it, and looks again when anything changes.
        Some(Phase::Collecting | Phase::Waiting | Phase::Provisioning | Phase::Planned) => {
            reject_all(offered, Rejection::WaitingForGang, false)
        }
        Some(Phase::Finished) | None => reject_all(offered, Rejection::WaitingForGang, true),
    }
}

/// Whether a node is cordoned, by somebody else than us, and the pod does not tolerate that of its own accord.
fn is_cordoned(snapshot: &Snapshot, pod: &Pod, node: &NodeName) -> bool {
    let (Some(entry), Ok(shape)) = (snapshot.nodes.get(node), &pod.shape) else { return false };
    entry.node.unschedulable && accepts(shape, &entry.node) == Err(Misfit::Unschedulable)
}

fn filter_single<'a, N: AsRef<str>>(
    snapshot: &Snapshot,
    assumed: &Assumed,
    pod: &Pod,
    offered: &'a [N],
    now: Timestamp,
) -> Filtered<'a> {
    let mut kept = Vec::with_capacity(offered.len());
    let mut rejected = Vec::new();
    // Where nothing is assigned, nothing is looked up.
    let free = pod.daemon || snapshot.assignments.is_empty();
    let mut asking = Asking::of(snapshot, assumed, pod, now);
    for name in offered.iter().map(AsRef::as_ref) {
        if !free && !leaves_assignments_whole(snapshot, assumed, pod, name) {
            rejected.push((name, Rejection::AssignedToGang));
        } else if asking.as_mut().is_some_and(|asking| !asking.may_go_to(name)) {
            rejected.push((name, Rejection::LaunchedForOthers));
        } else {
            kept.push(name);
        }
    }
    Filtered::Split { kept, rejected, requeue: false }
}

/// Whether a pod tolerates every taint of a node that keeps pods away. A node that is not known yet has none.
fn tolerates(snapshot: &Snapshot, pod: &Pod, node: &str) -> bool {
    let (Some(entry), Ok(shape)) = (snapshot.nodes.get(node), &pod.shape) else { return true };
    untolerated(shape, &entry.node).is_none()
}

/// Whether a single pod on `node` leaves every assignment there whole. A node without assignments costs one look-up; a node
/// that is not known yet is kept.
#[must_use]
pub fn leaves_assignments_whole(snapshot: &Snapshot, assumed: &Assumed, pod: &Pod, node: &str) -> bool {
    if snapshot.assignments.get(node).is_none_or(Vec::is_empty) {
        return true;
    }
    let (Some(free), Ok(shape)) = (free_beside(snapshot, assumed, pod, node), &pod.shape) else { return true };
    let whole = snapshot.assignments.get(node).is_some_and(|assignments| {
        assignments.iter().any(|assignment| matches!(assignment.capacity, AssignedCapacity::WholeNode))
    });
    !whole && has(snapshot, node, &free, &shape.requests)
}

/// Whether what is free of a node is enough for requests.
fn has(snapshot: &Snapshot, node: &str, free: &Resources, requests: &Resources) -> bool {
    let unlimited =
        |name: &str| snapshot.nodes.get(node).is_some_and(|entry| is_unlimited(&entry.node.allocatable, name));
    requests.iter().all(|(name, amount)| free.get(name.as_str()) >= amount || unlimited(name.as_str()))
}

/// What a node has for a single pod beside everybody else on it and every assignment there. `None`: it is not known, or the pod
/// is bound to it already.
fn free_beside(snapshot: &Snapshot, assumed: &Assumed, pod: &Pod, node: &str) -> Option<Resources> {
    let mut free = free_for_singles(snapshot, node)?;
    // A pod nominated to this node, or bound to it by a call whose answer was lost, is part of the usage already.
    if let Some(known) = snapshot.pods.get(&pod.uid).filter(|known| counted_on(known) == Some(node)) {
        if known.node.is_some() {
            return None;
        }
        free.add(&known.held.requested);
    }
    assumed.subtract_from(&mut free, snapshot, &pod.uid, node);
    Some(free)
}

fn reject_all<N: AsRef<str>>(offered: &[N], reason: Rejection, requeue: bool) -> Filtered<'_> {
    let rejected = offered.iter().map(|name| (name.as_ref(), reason)).collect();
    Filtered::Split { kept: Vec::new(), rejected, requeue }
}

fn keep_only<'a, N: AsRef<str>>(offered: &'a [N], node: &NodeName, reason: Rejection) -> Filtered<'a> {
    let names = || offered.iter().map(AsRef::as_ref);
    let kept = names().filter(|name| *name == node.as_str()).collect();
    let rejected = names().filter(|name| *name != node.as_str()).map(|name| (name, reason)).collect();
    Filtered::Split { kept, rejected, requeue: false }
}

/// Answers `prioritize`.
///
/// Shapes: one score per offered node, in the order of the request. For a pod that asks for an accelerator the scores
/// are a permutation of `1..=n`, best = n, so that kube-scheduler's random tie-break never decides; for every other
/// pod all are 0 and the in-tree scores decide. The order packs: the fewest accelerators left free first, so that
/// whole hosts stay whole. Before all that come nodes that were launched for pods of its class, one of them alone first
/// ([`chosen`] needs to know which): for a pod without accelerators 2 for the one with the most places left, 1 for the others.
/// One point outweighs the in-tree scores. `now` is real time.
#[must_use]
pub fn prioritize<N: AsRef<str>>(
    snapshot: &Snapshot,
    assumed: &Assumed,
    pod: &Pod,
    offered: &[N],
    now: Timestamp,
) -> Vec<i64> {
    let Ok(shape) = &pod.shape else { return vec![0; offered.len()] };
    let single = Some(pod).filter(|pod| Snapshot::is_single(pod));
    let asking = single.and_then(|pod| Asking::of(snapshot, assumed, pod, now));
    let places = |node: &str| asking.as_ref().map_or(0, |asking| asking.places_on(node));
    let wanted: Vec<&str> = shape
        .requests
        .iter()
        .filter(|(resource, _)| snapshot.accelerators.iter().any(|accelerator| **accelerator == *resource.as_str()))
        .map(|(resource, _)| resource.as_str())
        .collect();
    if wanted.is_empty() {
        let places: Vec<u32> = offered.iter().map(|name| places(name.as_ref())).collect();
        let most = places.iter().zip(offered).map(|(many, name)| (*many, Reverse(name.as_ref()))).max();
        let best = |name: &str| most.is_some_and(|(_, Reverse(best))| name == best);
        let score = |(many, name): (&u32, &N)| i64::from(*many > 0) * (1 + i64::from(best(name.as_ref())));
        return places.iter().zip(offered).map(score).collect();
    }
    let mut order: Vec<(bool, i64, &str, usize)> = offered
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let name = name.as_ref();
            (places(name) == 0, free_for(snapshot, &wanted, name), name, index)
        })
        .collect();
    order.sort_unstable();
    let mut scores = vec![0; offered.len()];
    let mut score = i64::try_from(offered.len()).unwrap_or(i64::MAX);
    for (_, _, _, index) in order {
        scores[index] = score;
        score = score.saturating_sub(1);
    }
    scores
}

/// Accelerators of a node that are free for single pods: what is assigned is gone. A node that is not known comes last.
fn free_for(snapshot: &Snapshot, wanted: &[&str], node: &str) -> i64 {
    let Some(entry) = snapshot.nodes.get(node) else { return i64::MAX };
    let assignments = snapshot.assignments.get(node).map(Vec::as_slice).unwrap_or_default();
    wanted.iter().fold(0_i64, |sum, resource| {
        let free = entry.node.allocatable.get(resource).saturating_sub(entry.usage.requested.get(resource));
        let free = assignments.iter().fold(free, |free, assignment| match &assignment.capacity {
            AssignedCapacity::WholeNode => 0,
            AssignedCapacity::Member(held) => free.saturating_sub(held.requested.get(resource)),
        });
        sum.saturating_add(free)
    })
}

/// Victims per node as kube-scheduler proposes them.
pub type Victims = BTreeMap<String, Vec<PodUid>>;

/// Answers `preempt`: which candidate nodes stay.
///
/// A member of a gang never preempts: evicting for one member is senseless. Other pods may not evict a gang member
/// nor take assigned capacity, unless the system's own pods ask: the gang's policy follows then. A candidate without
/// victims is omitted, since kube-scheduler refuses it.
#[must_use]
pub fn preempt(snapshot: &Snapshot, pod: &Pod, candidates: Victims) -> Victims {
    match &pod.membership {
        Membership::Member { .. } | Membership::Unknown => return Victims::new(),
        Membership::Single => {}
    }
    if !snapshot.synced {
        return Victims::new();
    }
    candidates
        .into_iter()
        .filter(|(node, victims)| {
            let assigned = snapshot.assignments.get(node.as_str()).is_some_and(|assignments| !assignments.is_empty());
            // A victim this replica has not seen yet may be a member: unknown is not "no gang".
            let evicts_member = victims
                .iter()
                .any(|victim| snapshot.pods.get(victim).is_none_or(|victim| victim.membership != Membership::Single));
            !victims.is_empty() && (pod.critical || !assigned && !evicts_member)
        })
        .collect()
}

/// What `bind` should do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindStep {
    /// The state cannot be trusted.
    Unready,
    /// The pod, its membership or its plan is newer than this snapshot: wait for the watch, then look again.
    Behind,
    /// Post the binding at once.
    Post {
        /// Epoch and rank to write on the pod; `None` for a single pod.
        place: Option<(u64, u32)>,
    },
    /// Stand at the barrier.
    Arrive {
        /// The gang.
        gang: Arc<Gang>,
    },
    /// The node is shown with a taint that the pod does not tolerate. kube-scheduler has looked at taints itself, so one of the two
    /// views is older: refuse as [`Rejection::Tainted`], unless the watch shows the taint gone in a moment. A refusal costs the
    /// pod a back-off of seconds.
    Tainted,
    /// Refuse.
    Refuse(Rejection),
}

/// Decides one `bind` call. `now` is real time.
#[must_use]
pub fn bind(snapshot: &Snapshot, assumed: &Assumed, uid: &PodUid, node: &str, now: Timestamp) -> BindStep {
    if !snapshot.synced {
        return BindStep::Unready;
    }
    let Some(pod) = snapshot.pods.get(uid) else { return BindStep::Behind };
    let gang = match &pod.membership {
        Membership::Unknown => return BindStep::Behind,
        Membership::Single => {
            // kube-scheduler's own view of the node may be older than ours: a node that is to go gets nobody any more. Pods of
            // DaemonSets go with their node; a hold is a cordon, which they tolerate, and a taint in our view alone.
            if pod.daemon {
                return BindStep::Post { place: None };
            }
            // Of a crowd of replicas `filter` kept a node for each before the first of them was bound.
            let asking = Asking::of(snapshot, assumed, pod, now);
            return if !tolerates(snapshot, pod, node) {
                BindStep::Tainted
            } else if !leaves_assignments_whole(snapshot, assumed, pod, node) {
                BindStep::Refuse(Rejection::AssignedToGang)
            } else if !asking.is_none_or(|asking| asking.leaves_places_whole(node)) {
                BindStep::Refuse(Rejection::LaunchedForOthers)
            } else {
                BindStep::Post { place: None }
            };
        }
        Membership::Member { gang, .. } => gang,
    };
    let Some(gang) = snapshot.gangs.get(gang) else { return BindStep::Behind };
    if pod.plan_epoch.is_some_and(|epoch| epoch > gang.epoch) {
        return BindStep::Behind;
    }
    let Some(place) = gang.place_of(uid).filter(|place| place.node.as_str() == node) else {
        return BindStep::Refuse(Rejection::BeingReplanned);
    };
    match gang.phase {
        Some(Phase::Committing | Phase::Bound) => BindStep::Post { place: Some((gang.epoch, place.rank)) },
        Some(Phase::Released) => BindStep::Arrive { gang: Arc::clone(gang) },
        // Planned: the release was sent by a holder of the lease whose `Released` this replica has not seen yet.
        Some(Phase::Planned) => BindStep::Behind,
        Some(
            Phase::Collecting
            | Phase::Waiting
            | Phase::Provisioning
            | Phase::Finished
            | Phase::Degraded
            | Phase::Invalid
            | Phase::Unsatisfiable,
        )
        | None => BindStep::Refuse(Rejection::BeingReplanned),
    }
}

/// Whether a Binding may be posted now, with epoch and rank of a member.
///
/// `committed` is the member's gang as its commit was answered: it counts until the snapshot shows something newer. `now` is real
/// time.
///
/// Errors: the place was given up, or the capacity is assigned by now.
pub fn may_post(
    snapshot: &Snapshot,
    assumed: &Assumed,
    committed: Option<&Gang>,
    uid: &PodUid,
    node: &str,
    now: Timestamp,
) -> Result<Option<(u64, u32)>, Rejection> {
    let Some(committed) = committed else {
        return match bind(snapshot, assumed, uid, node, now) {
            BindStep::Post { place } => Ok(place),
            BindStep::Refuse(reason) => Err(reason),
            BindStep::Tainted => Err(Rejection::Tainted),
            BindStep::Unready | BindStep::Behind | BindStep::Arrive { .. } => Err(Rejection::BeingReplanned),
        };
    };
    let version = |gang: &Gang| gang.resource_version.parse::<u64>().unwrap_or(0);
    let newer = |known: &&Arc<Gang>| known.uid != committed.uid || version(known) > version(committed);
    let gang = snapshot.gangs.get(&committed.key).filter(newer).map_or(committed, |known| known);
    let forward = matches!(gang.phase, Some(Phase::Committing | Phase::Bound));
    match gang.place_of(uid).filter(|place| forward && place.node.as_str() == node) {
        Some(place) => Ok(Some((gang.epoch, place.rank))),
        None => Err(Rejection::BeingReplanned),
    }
}

/// Whether places reach the minimum of the gang and of each of its roles.
#[must_use]
pub fn reaches_minimum(gang: &Gang, places: &[&GangPlace]) -> bool {
    reaches((gang.minimum, &gang.minimums), places)
}

/// Whether places are so many, and so many of each role.
pub(crate) fn reaches((minimum, minimums): (u32, &BTreeMap<Arc<str>, u32>), places: &[&GangPlace]) -> bool {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let of = |role: &Arc<str>| count(places.iter().filter(|place| place.role == *role).count());
    count(places.len()) >= minimum.max(1) && minimums.iter().all(|(role, min)| of(role) >= *min)
}

/// Sum of what is free on a node for single pods: allocatable − usage − assignments. Negative where over-committed.
#[must_use]
pub fn free_for_singles(snapshot: &Snapshot, node: &str) -> Option<Resources> {
    let entry = snapshot.nodes.get(node)?;
    let mut free = entry.node.allocatable.clone();
    free.subtract(&entry.usage.requested);
    for assignment in snapshot.assignments.get(node).into_iter().flatten() {
        match &assignment.capacity {
            AssignedCapacity::WholeNode => return Some(Resources::default()),
            AssignedCapacity::Member(held) => free.subtract(&held.requested),
        }
    }
    Some(free)
}
