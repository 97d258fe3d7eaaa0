//! Pods for which the planner sees capacity on nodes that stand, and kube-scheduler sees none.
//!
//! Whatever the reason, such a pod would wait for ever: nothing is launched for who has a place. kube-scheduler looks at every node
//! before it refuses a pod, so after a bounded time its word counts: for pods of that class the nodes that stand are no
//! places for a while, and they are launched for, one node of a pool at a time: it may be kube-scheduler that is at fault, and
//! then one node is what it costs. What becomes of that is counted as ever, see [`super::SchedulerRefusals`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::refused::pause;
use crate::model::gang::{Pod, UNSCHEDULABLE};
use crate::model::names::{NodeName, PodUid};
use crate::model::pauses::{SCHEDULER_RETRIES, after};
use crate::model::snapshot::Snapshot;

/// So long kube-scheduler has for a pod that has a place, where it is seen to refuse it in that time.
const PATIENCE: SignedDuration = SignedDuration::from_mins(2);
/// Refusals that have to be seen in that time.
const REFUSALS: u32 = 2;
/// A dispute that is over for so long is forgotten.
const FORGOTTEN: SignedDuration = SignedDuration::from_hours(2);

/// A pod that a round placed on a node that stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The pod.
    pub pod: PodUid,
    /// Its class.
    pub class: Arc<str>,
    /// The node.
    pub node: NodeName,
}

/// What the planner and kube-scheduler disagree about. Real time, as kube-scheduler's.
#[derive(Clone, Debug, Default)]
pub struct Disputes {
    pods: BTreeMap<PodUid, Watched>,
    classes: BTreeMap<Arc<str>, Lost>,
}

/// A pod with a place, from round to round.
#[derive(Clone, Debug)]
struct Watched {
    class: Arc<str>,
    since: Timestamp,
    stated: Option<(Arc<str>, Arc<str>)>,
    refusals: u32,
}

/// A class of pods whose places kube-scheduler did not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lost {
    times: u32,
    from: Timestamp,
    until: Timestamp,
}

impl Disputes {
    /// Nodes that were there at this time are no places for pods of the class; `None`: all are.
    #[must_use]
    pub fn no_places_before(&self, class: &str, now: Timestamp) -> Option<Timestamp> {
        self.classes.get(class).filter(|lost| now < lost.until).map(|lost| lost.from)
    }

    /// Whether nothing was ever disputed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// What calls for another round if it changes.
    #[must_use]
    pub fn open(&self, now: Timestamp) -> Vec<(&Arc<str>, Timestamp)> {
        self.classes.iter().filter(|(_, lost)| now < lost.until).map(|(class, lost)| (class, lost.until)).collect()
    }

    /// A round placed these pods on nodes that stand. The answer is those of them that kube-scheduler will not accept there: from now
    /// on they have no place.
    pub fn look(&mut self, placed: &[Placed], snapshot: &Snapshot, now: Timestamp) -> Vec<Placed> {
        self.classes.retain(|_, lost| now.duration_since(lost.until) < FORGOTTEN);
        let bound = |pod: &PodUid| snapshot.pods.get(pod).is_some_and(|pod| pod.node.is_some());
        // Somebody of the class came: kube-scheduler is on its way through them.
        let came: BTreeSet<Arc<str>> =
            self.pods.iter().filter(|(pod, _)| bound(pod)).map(|(_, one)| Arc::clone(&one.class)).collect();
        let mut before = std::mem::take(&mut self.pods);
        for one in placed {
            let Some(pod) = snapshot.pods.get(&one.pod) else { continue };
            let known = before.remove(&one.pod).filter(|known| known.class == one.class && !came.contains(&one.class));
            let watched = known.map_or_else(|| Watched::new(one, pod, now), |known| known.seen(pod));
            self.pods.insert(one.pod.clone(), watched);
        }
        let refused = |pod: &PodUid| {
            let watched = self.pods.get(pod)?;
            watched.is_refused(now).then_some(&watched.class)
        };
        let lost: BTreeSet<Arc<str>> = placed.iter().filter_map(|one| refused(&one.pod)).cloned().collect();
        for class in &lost {
            let times = self.classes.get(class).map_or(0, |lost| lost.times);
            let until = after(now, pause(times));
            self.classes.insert(Arc::clone(class), Lost { times: times.saturating_add(1), from: now, until });
        }
        self.pods.retain(|_, one| !lost.contains(&one.class));
        placed.iter().filter(|one| lost.contains(&one.class)).cloned().collect()
    }
}

impl Watched {
    fn new(placed: &Placed, pod: &Pod, now: Timestamp) -> Self {
        Self { class: Arc::clone(&placed.class), since: now, stated: pod.unscheduled.clone(), refusals: 0 }
    }

    fn seen(mut self, pod: &Pod) -> Self {
        if self.stated != pod.unscheduled {
            self.stated.clone_from(&pod.unscheduled);
            self.refusals += u32::from(self.refuses());
        }
        self
    }

    fn refuses(&self) -> bool {
        self.stated.as_ref().is_some_and(|(reason, _)| &**reason == UNSCHEDULABLE)
    }

    fn is_refused(&self, now: Timestamp) -> bool {
        let waited = now.duration_since(self.since);
        // Where it only repeats itself, which cannot be seen, it has tried again by then.
        self.refuses() && (waited >= SCHEDULER_RETRIES || waited >= PATIENCE && self.refusals >= REFUSALS)
    }
}
