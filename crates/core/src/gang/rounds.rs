//! Rounds of nodes that were provisioned for gangs and came to nothing: kubelets did not take the members, or kube-scheduler
//! never placed them there.
//!
//! Nodes of the same type refuse the same members for the same reason, as where five of eight devices cannot be aligned. So they
//! are counted by instance type and by what a member asks for, of whatever gang, and by gang, since a pool has many types. They
//! are forgotten once a gang of such members runs on the type.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::model::names::ObjectKey;
use crate::model::pauses::{after, doubled};
use crate::model::pod::Shape;
use crate::model::snapshot::Snapshot;

/// So long nothing of a type is provisioned for such members after two refused rounds; the same as for pods of no gang. It doubles
/// with every further round …
const AFTER_TWO: SignedDuration = SignedDuration::from_mins(5);
/// … up to this.
const LONGEST: SignedDuration = SignedDuration::from_hours(1);
/// What nothing has been refused on for so long is tried as if it never was.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(24);

/// An instance type, and what a member asks for.
pub type Kind = (Arc<str>, Arc<Shape>);

/// What is remembered of refused rounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rounds {
    types: BTreeMap<Arc<str>, Vec<OfShape>>,
    #[serde(with = "crate::model::pairs")]
    gangs: BTreeMap<ObjectKey, Refused>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfShape {
    shape: Arc<Shape>,
    refused: Refused,
}

/// The refused rounds since the last one that served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Refused {
    /// By name, so that a round counts once.
    batches: BTreeSet<Arc<str>>,
    last: Option<Timestamp>,
}

impl Refused {
    fn add(&mut self, batch: &Arc<str>, now: Timestamp) {
        // While nothing is provisioned what is refused was provisioned before: however many gangs wait at once, it is one wave.
        if self.closed_until().is_some_and(|until| now < until) {
            return;
        }
        self.batches.insert(Arc::clone(batch));
        self.last = Some(now);
    }

    /// Until when no node of the type is provisioned.
    fn closed_until(&self) -> Option<Timestamp> {
        let further = self.rounds().checked_sub(2)?;
        Some(after(self.last?, doubled(AFTER_TWO, LONGEST, further)))
    }

    fn rounds(&self) -> u32 {
        u32::try_from(self.batches.len()).unwrap_or(u32::MAX)
    }

    fn counts(&self, now: Timestamp) -> bool {
        self.last.is_some_and(|last| now.duration_since(last) < REMEMBERED)
    }
}

impl Rounds {
    /// Nodes of a batch refused a member of the gang.
    pub(super) fn refused(&mut self, gang: &ObjectKey, batch: &Arc<str>, (kind, shape): &Kind, now: Timestamp) {
        let of_gang = self.gangs.entry(gang.clone()).or_default();
        of_gang.batches.insert(Arc::clone(batch));
        of_gang.last = Some(now);
        let shapes = self.types.entry(Arc::clone(kind)).or_default();
        let at = shapes.iter().position(|known| known.shape == *shape).unwrap_or_else(|| {
            shapes.push(OfShape { shape: Arc::clone(shape), refused: Refused::default() });
            shapes.len() - 1
        });
        if let Some(known) = shapes.get_mut(at) {
            known.refused.add(batch, now);
        }
    }

    /// The gang runs, with members of these kinds.
    pub(super) fn served(&mut self, gang: &ObjectKey, kinds: &[Kind]) {
        self.gangs.remove(gang);
        for (kind, shape) in kinds {
            if let Some(shapes) = self.types.get_mut(kind) {
                shapes.retain(|known| known.shape != *shape);
            }
        }
        self.types.retain(|_, shapes| !shapes.is_empty());
    }

    /// Until when no node of the type is provisioned for such members.
    pub(super) fn closed(&self, kind: &str, shape: &Shape, now: Timestamp) -> Option<Timestamp> {
        let known = self.types.get(kind)?.iter().find(|known| *known.shape == *shape)?;
        known.refused.closed_until().filter(|until| *until > now)
    }

    /// How many rounds of the gang were refused since it last ran, and when the last time.
    pub(super) fn of_gang(&self, gang: &ObjectKey) -> Option<(u32, Timestamp)> {
        let refused = self.gangs.get(gang)?;
        Some((refused.rounds(), refused.last?))
    }

    /// Whether anything is held against nodes of the type for such members.
    pub(super) fn knows(&self, kind: &str, shape: &Shape) -> bool {
        self.types.get(kind).is_some_and(|shapes| shapes.iter().any(|known| *known.shape == *shape))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.types.is_empty() && self.gangs.is_empty()
    }

    /// Drops what no longer counts.
    pub(super) fn prune(&mut self, now: Timestamp, snapshot: &Snapshot) {
        for shapes in self.types.values_mut() {
            shapes.retain(|known| known.refused.counts(now));
        }
        self.types.retain(|_, shapes| !shapes.is_empty());
        self.gangs.retain(|gang, refused| snapshot.gangs.contains_key(gang) && refused.counts(now));
    }
}
