//! What the lease holder remembers between passes: what kube-scheduler and kubelets refused, and plans that came to
//! nothing.
//!
//! Memory only: a new lease holder starts to count again. A pass reads it and answers with notes; the shell writes them
//! down. A note names the epoch it is about, so that one written twice counts once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use serde::{Deserialize, Serialize};

use super::rounds::{Kind, Rounds};
use crate::model::names::{NodeName, ObjectKey, PodUid};
use crate::model::pod::Shape;
use crate::model::snapshot::Snapshot;

/// Refusals with the same text before a gang waits.
pub(super) const ALIKE: usize = 3;
/// Refusals with any text before a gang waits.
pub(super) const IN_ALL: usize = 9;

/// How long the gang is planned without a node that kube-scheduler refused again and again. It may be a lag after all, so
/// the node is as good as before for everybody else, and soon for this gang.
const DOUBTED: SignedDuration = SignedDuration::from_secs(30);

/// Whether nodes are planned on where kube-scheduler refused the gang's members again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubted {
    Offered,
    Excluded,
}

/// What is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Nodes excluded for a shape. Keyed by shape: it outlives the pod, not its cause.
    excluded: BTreeMap<NodeName, Vec<Excluded>>,
    #[serde(with = "crate::model::pairs")]
    gangs: BTreeMap<ObjectKey, Trouble>,
    /// Pods that a kubelet did not take and that still exist: each counts once.
    not_admitted: BTreeSet<PodUid>,
    /// When pods of no gang were last looked at again, and how often that was done.
    #[serde(default, skip_serializing_if = "is_never")]
    requeues: (Option<Timestamp>, u64),
    /// Rounds of nodes that came to nothing.
    #[serde(default, skip_serializing_if = "Rounds::is_empty")]
    rounds: Rounds,
}

fn is_never((last, _): &(Option<Timestamp>, u64)) -> bool {
    last.is_none()
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Excluded {
    shape: Arc<Shape>,
    by: By,
    /// Until when the node is excluded.
    until: Timestamp,
    /// Until when it is remembered that it was.
    remembered: Timestamp,
}

/// Who refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum By {
    Scheduler,
    /// So many times, one after the other.
    Kubelet(u32),
}

/// A node is excluded at most so many times as long as at first.
const LONGEST: u32 = 32;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Trouble {
    refusals: Vec<Refusal>,
    expired: Vec<u64>,
    /// Nodes that kube-scheduler refused again and again although the planner's view denies why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    doubts: Vec<Doubt>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Doubt {
    epoch: u64,
    node: NodeName,
    until: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Refusal {
    epoch: u64,
    text: Arc<str>,
    at: Timestamp,
}

/// Something to remember.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// kube-scheduler refused a member of this plan on its node.
    Refused {
        /// The gang.
        gang: ObjectKey,
        /// The plan.
        epoch: u64,
        /// What it reported, counts aside.
        text: Arc<str>,
        /// The member's shape.
        shape: Arc<Shape>,
        /// The planned node.
        node: NodeName,
    },
    /// kube-scheduler refused a member of this plan on its node, and again after it was requeued.
    Doubted {
        /// The gang.
        gang: ObjectKey,
        /// The plan.
        epoch: u64,
        /// The planned node.
        node: NodeName,
    },
    /// A kubelet did not take a member.
    NotAdmitted {
        /// The member.
        pod: PodUid,
        /// Its shape.
        shape: Arc<Shape>,
        /// Its node.
        node: NodeName,
    },
    /// A node that was provisioned for the gang refused a member, or nodes stood there for it in vain.
    RoundRefused {
        /// The gang.
        gang: ObjectKey,
        /// The NodeBatch.
        batch: Arc<str>,
        /// Instance type and the member's shape.
        kind: Kind,
    },
    /// Every member of the gang runs.
    Served {
        /// The gang.
        gang: ObjectKey,
        /// Instance types and shapes of its members, of those that something is held against.
        kinds: Vec<Kind>,
    },
    /// The plan expired.
    Expired {
        /// The gang.
        gang: ObjectKey,
        /// The plan.
        epoch: u64,
    },
    /// The gang runs, or is gone: nothing is held against it any more.
    Settled {
        /// The gang.
        gang: ObjectKey,
    },
    /// Pods of no gang that we refused were looked at again.
    Requeues,
}

impl Memory {
    /// Writes a note down. `ttl` is how long a refusal counts.
    pub fn record(&mut self, note: &Note, now: Timestamp, ttl: SignedDuration) {
        match note {
            Note::Refused { gang, epoch, text, shape, node } => {
                let until = now.saturating_add(ttl).unwrap_or(Timestamp::MAX);
                let shapes = self.excluded.entry(node.clone()).or_default();
                shapes.retain(|known| known.by != By::Scheduler || known.shape != *shape);
                shapes.push(Excluded { shape: Arc::clone(shape), by: By::Scheduler, until, remembered: until });
                let trouble = self.gangs.entry(gang.clone()).or_default();
                trouble.refusals.retain(|refusal| refusal.at.saturating_add(ttl).is_ok_and(|end| end > now));
                if !trouble.refusals.iter().any(|refusal| refusal.epoch == *epoch) {
                    trouble.refusals.push(Refusal { epoch: *epoch, text: Arc::clone(text), at: now });
                }
            }
            Note::Doubted { gang, epoch, node } => {
                let trouble = self.gangs.entry(gang.clone()).or_default();
                let known = |doubt: &Doubt| doubt.epoch == *epoch && doubt.node == *node;
                if !trouble.doubts.iter().any(known) {
                    let until = now.saturating_add(DOUBTED).unwrap_or(Timestamp::MAX);
                    trouble.doubts.push(Doubt { epoch: *epoch, node: node.clone(), until });
                }
            }
            Note::NotAdmitted { pod, shape, node } => {
                if !self.not_admitted.insert(pod.clone()) {
                    return;
                }
                let shapes = self.excluded.entry(node.clone()).or_default();
                let before = shapes.iter().position(|known| known.shape == *shape && known.by != By::Scheduler);
                let before = before.map(|at| shapes.swap_remove(at)).filter(|before| before.remembered > now);
                let times = match before.map(|before| before.by) {
                    Some(By::Kubelet(times)) => times.saturating_add(1),
                    Some(By::Scheduler) | None => 1,
                };
                // Twice as long each time; and as long again it is remembered that it was so.
                let factor = 1_u32.checked_shl(times - 1).map_or(LONGEST, |factor| factor.min(LONGEST));
                let length = ttl.saturating_mul(i32::try_from(factor).unwrap_or(i32::MAX));
                let until = now.saturating_add(length).unwrap_or(Timestamp::MAX);
                let remembered = until.saturating_add(length).unwrap_or(Timestamp::MAX);
                shapes.push(Excluded { shape: Arc::clone(shape), by: By::Kubelet(times), until, remembered });
            }
            Note::RoundRefused { gang, batch, kind } => self.rounds.refused(gang, batch, kind, now),
            Note::Served { gang, kinds } => self.rounds.served(gang, kinds),
            Note::Expired { gang, epoch } => {
                let trouble = self.gangs.entry(gang.clone()).or_default();
                if !trouble.expired.contains(epoch) {
                    trouble.expired.push(*epoch);
                }
            }
            Note::Settled { gang } => {
                self.gangs.remove(gang);
            }
            Note::Requeues => self.requeues = (Some(now), self.requeues.1.wrapping_add(1)),
        }
    }

    /// When pods of no gang that we refused were last looked at again, and how often that was done.
    #[must_use]
    pub fn requeues(&self) -> (Option<Timestamp>, u64) {
        self.requeues
    }

    /// Drops what no longer counts: refusals that are too old, and what is about gangs and pods that are gone.
    pub fn prune(&mut self, now: Timestamp, snapshot: &Snapshot) {
        for shapes in self.excluded.values_mut() {
            shapes.retain(|known| known.remembered > now);
        }
        self.excluded.retain(|_, shapes| !shapes.is_empty());
        self.gangs.retain(|gang, _| snapshot.gangs.contains_key(gang));
        self.not_admitted.retain(|pod| snapshot.pods.contains_key(pod));
        self.rounds.prune(now, snapshot);
    }

    /// What is remembered of rounds of nodes that came to nothing.
    pub(super) fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    /// Until when no node of the type is provisioned for such members: two rounds of them were refused, or more.
    #[must_use]
    pub fn closed(&self, instance_type: &str, shape: &Shape, now: Timestamp) -> Option<Timestamp> {
        self.rounds.closed(instance_type, shape, now)
    }

    /// Until when the node is excluded for the shape.
    #[must_use]
    pub fn excluded(&self, node: &NodeName, shape: &Shape, now: Timestamp) -> Option<Timestamp> {
        self.until(node, shape, now, |_| true)
    }

    /// Whether some node is excluded for the shape.
    #[must_use]
    pub fn excludes(&self, shape: &Shape, now: Timestamp) -> bool {
        self.excluded.values().flatten().any(|known| *known.shape == *shape && known.until > now)
    }

    /// Until when the node is excluded for the shape because of what kube-scheduler reported: a node that is provisioned would be
    /// refused like it. What a kubelet says is of its node alone.
    #[must_use]
    pub fn refused(&self, node: &NodeName, shape: &Shape, now: Timestamp) -> Option<Timestamp> {
        self.until(node, shape, now, |by| by == By::Scheduler)
    }

    fn until(&self, node: &NodeName, shape: &Shape, now: Timestamp, by: impl Fn(By) -> bool) -> Option<Timestamp> {
        let shapes = self.excluded.get(node)?.iter();
        shapes
            .filter(|known| by(known.by) && *known.shape == *shape && known.until > now)
            .map(|known| known.until)
            .max()
    }

    /// Whether the gang is planned without the node, since kube-scheduler refused its members there again and again.
    #[must_use]
    pub fn doubts(&self, gang: &ObjectKey, node: &NodeName, now: Timestamp) -> bool {
        self.doubts_of(gang).any(|doubt| doubt.node == *node && doubt.until > now)
    }

    /// Whether the gang is planned without some node for that.
    #[must_use]
    pub fn doubts_any(&self, gang: &ObjectKey, now: Timestamp) -> bool {
        self.doubts_of(gang).any(|doubt| doubt.until > now)
    }

    /// Whether this plan of the gang may still be doubted: each is once, and so many in all until the gang runs. Who is refused
    /// wherever it goes is not sent from node to node for ever.
    #[must_use]
    pub fn may_doubt(&self, gang: &ObjectKey, epoch: u64) -> bool {
        let epochs: BTreeSet<u64> = self.doubts_of(gang).map(|doubt| doubt.epoch).collect();
        epochs.len() < ALIKE && !epochs.contains(&epoch)
    }

    fn doubts_of(&self, gang: &ObjectKey) -> impl Iterator<Item = &Doubt> {
        self.gangs.get(gang).into_iter().flat_map(|trouble| &trouble.doubts)
    }

    /// Whether it was noted that a kubelet did not take this pod.
    #[must_use]
    pub fn knows_pod(&self, pod: &PodUid) -> bool {
        self.not_admitted.contains(pod)
    }

    /// Nodes excluded, for any shape.
    #[must_use]
    pub fn nothing_excluded(&self) -> bool {
        self.excluded.is_empty()
    }

    /// How often the gang's plan was refused with this text, and with any.
    #[must_use]
    pub fn refusals(&self, gang: &ObjectKey, text: &str) -> (usize, usize) {
        let refusals = self.gangs.get(gang).map(|trouble| trouble.refusals.as_slice()).unwrap_or_default();
        (refusals.iter().filter(|refusal| *refusal.text == *text).count(), refusals.len())
    }

    /// How many plans of the gang expired since it last ran.
    #[must_use]
    pub fn expired(&self, gang: &ObjectKey) -> u32 {
        let count = self.gangs.get(gang).map_or(0, |trouble| trouble.expired.len());
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Whether anything is held against the gang.
    #[must_use]
    pub fn knows(&self, gang: &ObjectKey) -> bool {
        self.gangs.contains_key(gang)
    }
}
