//! How long something took: on the wall, and on the core that did it.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// Time that went by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Time {
    /// In the world.
    pub(crate) wall: Duration,
    /// In this thread, while it ran; the same as on the wall where that is not known.
    pub(crate) core: Duration,
}

impl Time {
    pub(crate) fn add(&mut self, more: Self) {
        self.wall += more.wall;
        self.core += more.core;
    }
}

/// A moment to count from.
pub(crate) struct Stopwatch {
    wall: Instant,
    core: Option<Duration>,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        let core = on_core();
        Self { wall: Instant::now(), core }
    }

    pub(crate) fn stop(&self) -> Time {
        let wall = self.wall.elapsed();
        let core = on_core().zip(self.core).map(|(now, then)| now.saturating_sub(then));
        Time { wall, core: core.unwrap_or(wall) }
    }
}

/// What the kernel has accounted to this thread so far: to the nanosecond, where `schedstat` moves by a tick at a time.
fn on_core() -> Option<Duration> {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok().map(Duration::from)
}
