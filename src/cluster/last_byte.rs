//! When a connection of the watches last brought a byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// When a connection last brought a byte. Answers that came by it have this among their extensions.
#[derive(Clone, Debug)]
pub(super) struct LastByte {
    started: Instant,
    /// In milliseconds since the start.
    at: Arc<AtomicU64>,
}

impl LastByte {
    /// One that came at the start.
    pub(super) fn at_start(started: Instant) -> Self {
        Self { started, at: Arc::default() }
    }

    /// One that comes now.
    pub(super) fn now(started: Instant) -> Self {
        let last = Self::at_start(started);
        last.note();
        last
    }

    /// In milliseconds since the start.
    pub(super) fn at(&self) -> u64 {
        self.at.load(Ordering::Relaxed)
    }

    /// One comes now.
    pub(super) fn note(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.at.store(now, Ordering::Relaxed);
    }

    /// The time since it.
    pub(super) fn silent_for(&self) -> Duration {
        self.started.elapsed().saturating_sub(Duration::from_millis(self.at()))
    }
}
