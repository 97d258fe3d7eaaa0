//! What the lease holder remembers between passes: what kube-scheduler refused, and plans that came to nothing.
//!
//! Memory only: a new lease holder starts to count anew. A pass reads it and answers with notes; the shell writes them
//! down. A note names the epoch it is about, so that one written twice counts once.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::model::names::{NodeName, ObjectKey};
use crate::model::pod::Shape;

/// Refusals with the same text before a gang waits.
pub(super) const ALIKE: usize = 3;
/// Refusals with any text before a gang waits.
pub(super) const IN_ALL: usize = 9;

/// What is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Until when a node is left out for a shape. Keyed by shape: it outlives the pod, not its cause.
    excluded: BTreeMap<NodeName, Vec<(Arc<Shape>, Timestamp)>>,
    gangs: BTreeMap<ObjectKey, Trouble>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Trouble {
    refusals: Vec<Refusal>,
    expired: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
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
        /// What it said, counts aside.
        text: Arc<str>,
        /// The member's shape.
        shape: Arc<Shape>,
        /// The planned node.
        node: NodeName,
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
}

impl Memory {
    /// Writes a note down. `ttl` is how long a refusal counts.
    pub fn record(&mut self, note: &Note, now: Timestamp, ttl: SignedDuration) {
        match note {
            Note::Refused { gang, epoch, text, shape, node } => {
                let until = now.saturating_add(ttl).unwrap_or(Timestamp::MAX);
                let shapes = self.excluded.entry(node.clone()).or_default();
                shapes.retain(|(known, end)| *end > now && known != shape);
                shapes.push((Arc::clone(shape), until));
                let trouble = self.gangs.entry(gang.clone()).or_default();
                trouble.refusals.retain(|refusal| refusal.at.saturating_add(ttl).is_ok_and(|end| end > now));
                if !trouble.refusals.iter().any(|refusal| refusal.epoch == *epoch) {
                    trouble.refusals.push(Refusal { epoch: *epoch, text: Arc::clone(text), at: now });
                }
            }
            Note::Expired { gang, epoch } => {
                let trouble = self.gangs.entry(gang.clone()).or_default();
                if !trouble.expired.contains(epoch) {
                    trouble.expired.push(*epoch);
                }
            }
            Note::Settled { gang } => {
                self.gangs.remove(gang);
            }
        }
    }

    /// Drops what no longer counts.
    pub fn prune(&mut self, now: Timestamp) {
        for shapes in self.excluded.values_mut() {
            shapes.retain(|(_, until)| *until > now);
        }
        self.excluded.retain(|_, shapes| !shapes.is_empty());
    }

    /// Until when the node is left out for the shape.
    #[must_use]
    pub fn excluded(&self, node: &NodeName, shape: &Shape, now: Timestamp) -> Option<Timestamp> {
        let shapes = self.excluded.get(node)?;
        shapes.iter().find(|(known, until)| **known == *shape && *until > now).map(|(_, until)| *until)
    }

    /// Nodes left out, for any shape.
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
