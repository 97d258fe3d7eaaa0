//! What the world does by itself, and when.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::interruption::Interruption;

/// One thing to do.
#[derive(Debug, Clone)]
pub(crate) enum Due {
    /// Tell the queue the state of an instance, if it is news.
    StateChange(String),
    /// Interrupt instances.
    Interrupt(Interruption),
    /// Terminate an instance with this `stateReason`.
    Terminate { instance: String, reason: &'static str },
    /// Warn of the end of a Capacity Block.
    BlockWarning(String),
    /// Terminate what runs in a Capacity Block.
    BlockEnd(String),
}

/// Everything to do, by time and then in the order it was added.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    items: BTreeMap<(Timestamp, u64), Due>,
    next: u64,
}

impl Agenda {
    pub(crate) fn add(&mut self, at: Timestamp, due: Due) {
        self.items.insert((at, self.next), due);
        self.next += 1;
    }

    /// The first thing due by `now`, with its time.
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<(Timestamp, Due)> {
        let first = self.items.first_entry()?;
        (first.key().0 <= now).then(|| {
            let ((at, _), due) = first.remove_entry();
            (at, due)
        })
    }
}
