//! The barrier of one gang: who stands there, and whether the gang may commit.
//!
//! An arrival is (pod, node), valid while the newest plan gives that node to that pod. Whoever judges takes in the same
//! call, so nobody comes or goes in between, and a set that is handed out is never empty and never a part. An arrival
//! costs what it changes: places are found by UID, and who stands is counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::fit;
use crate::model::gang::{Gang, GangPlace, Phase, Pod};
use crate::model::names::{NodeName, ObjectKey, PodUid};
use crate::model::pod::Toleration;
use crate::model::snapshot::Snapshot;

/// Bind calls of one gang that wait, each with what its answer needs.
#[derive(Debug)]
pub struct Arrivals<T> {
    waiting: FxHashMap<PodUid, Arrival<T>>,
    /// Oldest first: tickets rise.
    order: BTreeMap<u64, PodUid>,
    tally: Option<Tally>,
}

#[derive(Debug)]
struct Arrival<T> {
    node: NodeName,
    ticket: u64,
    waiter: T,
}

/// A member that stood at the barrier when it closed.
#[derive(Debug, PartialEq, Eq)]
pub struct Member<T> {
    /// The pod.
    pub uid: PodUid,
    /// The node it was planned on.
    pub node: NodeName,
    /// What its answer needs.
    pub waiter: T,
}

/// What follows from who stands at the barrier.
#[derive(Debug, PartialEq, Eq)]
pub struct Judged<T> {
    /// Who is sent away, and why, oldest first.
    pub refused: Vec<(T, Refusal)>,
    /// Everybody who stood there, if the barrier closed. Never empty.
    pub closed: Option<Closed<T>>,
}

/// A barrier that closed.
#[derive(Debug, PartialEq, Eq)]
pub struct Closed<T> {
    /// What is to be done.
    pub then: Then,
    /// The gang as it was judged.
    pub gang: Arc<Gang>,
    /// Who stood there, oldest first.
    pub members: Vec<Member<T>>,
}

/// What is to be done once a barrier closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Write the commit point, then post.
    Commit,
    /// The commit point is behind: post.
    Post,
}

/// Why a waiter is sent away, or a commit given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The plan it came for is no more.
    Replanned,
    /// Fewer stand than the newest plan asks for.
    BelowMinimum,
    /// Something is in the way of the commit.
    Obstacle(CommitObstacle),
}

impl Refusal {
    /// The text kube-scheduler shows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Replanned => "gang is being replanned",
            Self::BelowMinimum => "the plan asks for more members now",
            Self::Obstacle(CommitObstacle::MemberGone) => "a member of the gang was deleted",
            Self::Obstacle(CommitObstacle::BoundElsewhere) => "a member of the gang is bound elsewhere",
            Self::Obstacle(CommitObstacle::NodeUnfit) => "a planned node takes no new member any more",
        }
    }
}

/// Why a commit cannot go ahead now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitObstacle {
    /// A member is gone or being deleted.
    MemberGone,
    /// A member is bound elsewhere.
    BoundElsewhere,
    /// A planned node is gone, not Ready, cordoned, or has a taint or labels that keep the member away.
    NodeUnfit,
}

/// Places of one plan by pod, and how many of them are filled: by an arrival, or by a pod seen bound or done.
#[derive(Debug)]
struct Tally {
    gang: Arc<Gang>,
    /// First place of each pod.
    places: FxHashMap<PodUid, usize>,
    /// By place: whether its pod stands.
    stands: Vec<bool>,
    /// By place: which of `roles` it counts for.
    role_of: Vec<Option<usize>>,
    /// Standing and needed members of each role that has a minimum.
    roles: Vec<(u32, u32)>,
    standing: u32,
}

impl Tally {
    fn new(gang: Arc<Gang>) -> Self {
        let mut places = FxHashMap::default();
        for (index, uid) in
            gang.places.iter().enumerate().filter_map(|(index, place)| Some((index, place.uid.as_ref()?)))
        {
            places.entry(uid.clone()).or_insert(index);
        }
        let numbers: BTreeMap<&Arc<str>, usize> = gang.minimums.keys().zip(0..).collect();
        let role_of = gang.places.iter().map(|place| numbers.get(&place.role).copied()).collect();
        let roles = gang.minimums.values().map(|needed| (0, *needed)).collect();
        let stands = vec![false; gang.places.len()];
        Self { places, stands, role_of, roles, standing: 0, gang }
    }

    fn place(&self, uid: &PodUid) -> Option<(usize, &GangPlace)> {
        let index = *self.places.get(uid)?;
        Some((index, self.gang.places.get(index)?))
    }

    /// The place of a pod, if it is on this node.
    fn place_on(&self, uid: &PodUid, node: &NodeName) -> Option<usize> {
        self.place(uid).filter(|(_, place)| place.node == *node).map(|(index, _)| index)
    }

    fn set(&mut self, index: usize, stands: bool) {
        let Some(known) = self.stands.get_mut(index).filter(|known| **known != stands) else { return };
        *known = stands;
        let step = |count: u32| if stands { count.saturating_add(1) } else { count.saturating_sub(1) };
        self.standing = step(self.standing);
        if let Some((standing, _)) =
            self.role_of.get(index).copied().flatten().and_then(|role| self.roles.get_mut(role))
        {
            *standing = step(*standing);
        }
    }

    /// Whether the minimum of the gang and of each of its roles stands.
    fn complete(&self) -> bool {
        self.standing >= self.gang.minimum.max(1) && self.roles.iter().all(|(standing, needed)| standing >= needed)
    }

    /// Counts again: members seen on their planned node, and arrivals. A pod that succeeded counts: it ran. One that failed
    /// or is being deleted does not: somebody comes in its stead.
    fn count<'a>(&mut self, snapshot: &Snapshot, arrivals: impl Iterator<Item = (&'a PodUid, &'a NodeName)>) {
        let gang = Arc::clone(&self.gang);
        for (index, place) in gang.places.iter().enumerate() {
            let pod = place.uid.as_ref().and_then(|uid| snapshot.pods.get(uid));
            let bound = |pod: &Arc<Pod>| pod.is_live() && pod.node.as_ref().is_some_and(|node| *node == place.node);
            let stands = place.done || pod.is_some_and(|pod| pod.is_done() || bound(pod));
            self.set(index, stands);
        }
        for (uid, node) in arrivals {
            if let Some(index) = self.place_on(uid, node) {
                self.set(index, true);
            }
        }
    }

    /// Checks members and their nodes once more before the commit point.
    fn obstacle<'a>(
        &self,
        snapshot: &Snapshot,
        own_taint: &str,
        members: impl Iterator<Item = &'a PodUid>,
    ) -> Result<(), CommitObstacle> {
        for uid in members {
            let (_, place) = self.place(uid).ok_or(CommitObstacle::MemberGone)?;
            let pod = snapshot
                .pods
                .get(uid)
                .filter(|pod| pod.is_live() || pod.is_done())
                .ok_or(CommitObstacle::MemberGone)?;
            match &pod.node {
                Some(node) if *node != place.node => return Err(CommitObstacle::BoundElsewhere),
                // It runs there already: whether new pods may come plays no part.
                Some(_) => continue,
                None => {}
            }
            let entry = snapshot.nodes.get(&place.node).ok_or(CommitObstacle::NodeUnfit)?;
            let shape = pod.shape.as_ref().map_err(|_| CommitObstacle::NodeUnfit)?;
            if fit::accepts(shape, &entry.node).is_err() {
                // The release added the toleration of our own taint, which the watch may not show yet.
                let mut shape = crate::model::pod::Shape::clone(shape);
                let (key, value) = (Arc::from(own_taint), Arc::from(""));
                shape.tolerations.push(Toleration { key, exists: true, value, effect: None });
                fit::accepts(&shape, &entry.node).map_err(|_| CommitObstacle::NodeUnfit)?;
            }
        }
        Ok(())
    }
}

impl<T> Default for Arrivals<T> {
    fn default() -> Self {
        Self { waiting: FxHashMap::default(), order: BTreeMap::new(), tally: None }
    }
}

impl<T> Arrivals<T> {
    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Who has waited longest.
    #[must_use]
    pub fn oldest(&self) -> Option<&T> {
        let uid = self.order.values().next()?;
        self.waiting.get(uid).map(|arrival| &arrival.waiter)
    }

    /// Somebody came. A second arrival of the same pod replaces the first, which is returned.
    pub fn arrive(&mut self, uid: PodUid, node: NodeName, ticket: u64, waiter: T) -> Option<T> {
        let replaced = self.remove(&uid);
        if let Some(tally) = &mut self.tally
            && let Some(index) = tally.place_on(&uid, &node)
        {
            tally.set(index, true);
        }
        self.order.insert(ticket, uid.clone());
        self.waiting.insert(uid, Arrival { node, ticket, waiter });
        replaced.map(|arrival| arrival.waiter)
    }

    /// The connection of an arrival closed.
    pub fn leave(&mut self, uid: &PodUid, ticket: u64) -> Option<T> {
        // A newer arrival of the same pod stays.
        self.waiting.get(uid).filter(|arrival| arrival.ticket == ticket)?;
        self.remove(uid).map(|arrival| arrival.waiter)
    }

    /// Everybody leaves.
    pub fn leave_all(&mut self) -> Vec<T> {
        self.take().into_iter().map(|member| member.waiter).collect()
    }

    /// Whether the newest arrival may have changed anything. A look-up and a comparison of counts: [`Self::judge`] decides.
    #[must_use]
    pub fn is_due(&self, snapshot: &Snapshot, key: &ObjectKey) -> bool {
        let Some((tally, gang)) = self.tally.as_ref().zip(snapshot.gangs.get(key)) else { return true };
        if !Arc::ptr_eq(&tally.gang, gang) {
            return true;
        }
        match gang.phase {
            Some(Phase::Released) => tally.complete(),
            Some(Phase::Planned) => false,
            Some(
                Phase::Collecting
                | Phase::Waiting
                | Phase::Provisioning
                | Phase::Committing
                | Phase::Bound
                | Phase::Finished
                | Phase::Degraded
                | Phase::Invalid
                | Phase::Unsatisfiable,
            )
            | None => true,
        }
    }

    /// Decides what follows from who stands here, by the newest snapshot, and takes whom that concerns.
    ///
    /// `own_taint` is the key of the taint that Muster puts on nodes it provisioned for a gang.
    pub fn judge(&mut self, snapshot: &Snapshot, key: &ObjectKey, own_taint: &str) -> Judged<T> {
        let Some(gang) = snapshot.gangs.get(key) else { return self.send_all_away(Refusal::Replanned) };
        let known = self.tally.take().filter(|tally| Arc::ptr_eq(&tally.gang, gang));
        let mut tally = known.unwrap_or_else(|| Tally::new(Arc::clone(gang)));
        let mut refused = Vec::new();
        let moved = |(_, uid): &(&u64, &PodUid)| {
            self.waiting.get(*uid).is_none_or(|arrival| tally.place_on(uid, &arrival.node).is_none())
        };
        let moved: Vec<PodUid> = self.order.iter().filter(moved).map(|(_, uid)| uid.clone()).collect();
        for uid in moved {
            refused.extend(self.remove(&uid).map(|arrival| (arrival.waiter, Refusal::Replanned)));
        }
        tally.count(snapshot, self.waiting.iter().map(|(uid, arrival)| (uid, &arrival.node)));
        let then = match gang.phase {
            Some(Phase::Released) if self.is_empty() || !tally.complete() => None,
            Some(Phase::Released) => match tally.obstacle(snapshot, own_taint, self.order.values()) {
                Ok(()) => Some(Then::Commit),
                Err(obstacle) => {
                    refused.extend(self.send_all_away(Refusal::Obstacle(obstacle)).refused);
                    None
                }
            },
            Some(Phase::Committing | Phase::Bound) => (!self.is_empty()).then_some(Then::Post),
            // The release is on its way to this replica's cache.
            Some(Phase::Planned) => None,
            Some(
                Phase::Collecting
                | Phase::Waiting
                | Phase::Provisioning
                | Phase::Finished
                | Phase::Degraded
                | Phase::Invalid
                | Phase::Unsatisfiable,
            )
            | None => {
                refused.extend(self.send_all_away(Refusal::Replanned).refused);
                None
            }
        };
        let closed = then.map(|then| Closed { then, gang: Arc::clone(gang), members: self.take() });
        if closed.is_none() {
            self.tally = Some(tally);
        }
        Judged { refused, closed }
    }

    fn send_all_away(&mut self, why: Refusal) -> Judged<T> {
        let refused = self.take().into_iter().map(|member| (member.waiter, why)).collect();
        Judged { refused, closed: None }
    }

    fn remove(&mut self, uid: &PodUid) -> Option<Arrival<T>> {
        let arrival = self.waiting.remove(uid)?;
        self.order.remove(&arrival.ticket);
        if let Some(tally) = &mut self.tally
            && let Some(index) = tally.place_on(uid, &arrival.node)
        {
            // Counted again before anything is decided: a pod that is seen bound there goes on standing.
            tally.set(index, false);
        }
        Some(arrival)
    }

    fn take(&mut self) -> Vec<Member<T>> {
        self.tally = None;
        let order = std::mem::take(&mut self.order);
        let taken = order.into_values().filter_map(|uid| {
            let Arrival { node, waiter, .. } = self.waiting.remove(&uid)?;
            Some(Member { uid, node, waiter })
        });
        taken.collect()
    }
}

/// What follows when the commit point could not be written because somebody else wrote the Gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterConflict {
    /// The plan stands as it was judged: write again, on the newer version.
    WriteAgain,
    /// Somebody has committed it: post.
    Forward,
}

/// Judges a barrier that closed once more, by the Gang as the API server has it `now`.
///
/// Errors: why its members are sent away. They come again, and are judged by what is known then.
pub fn after_conflict(
    snapshot: &Snapshot,
    judged: &Gang,
    now: Gang,
    own_taint: &str,
    members: &[(PodUid, NodeName)],
) -> Result<AfterConflict, Refusal> {
    if members.is_empty() || now.uid != judged.uid {
        return Err(Refusal::Replanned);
    }
    let mut tally = Tally::new(Arc::new(now));
    if !members.iter().all(|(uid, node)| tally.place_on(uid, node).is_some()) {
        return Err(Refusal::Replanned);
    }
    match tally.gang.phase {
        Some(Phase::Committing | Phase::Bound) => Ok(AfterConflict::Forward),
        Some(Phase::Released) => {
            tally.count(snapshot, members.iter().map(|(uid, node)| (uid, node)));
            if !tally.complete() {
                return Err(Refusal::BelowMinimum);
            }
            tally.obstacle(snapshot, own_taint, members.iter().map(|(uid, _)| uid)).map_err(Refusal::Obstacle)?;
            Ok(AfterConflict::WriteAgain)
        }
        Some(
            Phase::Collecting
            | Phase::Waiting
            | Phase::Provisioning
            | Phase::Planned
            | Phase::Finished
            | Phase::Degraded
            | Phase::Invalid
            | Phase::Unsatisfiable,
        )
        | None => Err(Refusal::Replanned),
    }
}
