//! NodeBatches that exist although the watch does not show them: without them the same pods would be launched for twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::model::batch::Batch;

/// A batch that the watch does not show is assumed to exist for so long; then all are listed again. One that ended at once may never
/// be shown.
const ASSUMED_FOR: SignedDuration = SignedDuration::from_secs(30);

/// NodeBatches that exist and that the watch has not shown yet, each with since when that is known, in real time.
#[derive(Clone, Debug, Default)]
pub struct Unseen {
    /// `None`: they have to be listed first.
    batches: Option<BTreeMap<String, (Arc<Batch>, Timestamp)>>,
}

impl Unseen {
    /// The watch shows these by now.
    pub fn shown(&mut self, is_shown: impl Fn(&str) -> bool) {
        if let Some(batches) = &mut self.batches {
            batches.retain(|name, _| !is_shown(name));
        }
    }

    /// Whether all batches have to be listed before the next round: nothing is known yet, since the lease was won or a write was not
    /// answered, or the watch has not shown one for long.
    #[must_use]
    pub fn is_due(&self, now: Timestamp) -> bool {
        let recent = |(_, since): &(Arc<Batch>, Timestamp)| now.duration_since(*since) < ASSUMED_FOR;
        !self.batches.as_ref().is_some_and(|batches| batches.values().all(recent))
    }

    /// All batches were listed; these are the ones that the watch does not show.
    pub fn listed(&mut self, unseen: impl IntoIterator<Item = Arc<Batch>>, now: Timestamp) {
        self.batches = Some(unseen.into_iter().map(|batch| (batch.name.clone(), (batch, now))).collect());
    }

    /// A batch was created, or was found to exist.
    pub fn made(&mut self, batch: Arc<Batch>, now: Timestamp) {
        self.batches.get_or_insert_default().insert(batch.name.clone(), (batch, now));
    }

    /// A creation had no answer that says what became of it.
    pub fn unanswered(&mut self) {
        self.batches = None;
    }

    /// All of them.
    pub fn batches(&self) -> impl Iterator<Item = &Arc<Batch>> {
        self.batches.iter().flat_map(BTreeMap::values).map(|(batch, _)| batch)
    }
}
