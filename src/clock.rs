//! The only callers of `now()`: real time for leases, watches and the barrier; a clock with an origin and a speed
//! factor for everything that EC2's time rules.
//!
//! Factor and origin are read by the provisioner and by the simulator alike, so that a persisted deadline keeps its
//! meaning over a restart.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

/// Real time.
#[must_use]
pub fn now_real() -> Timestamp {
    Timestamp::now()
}

/// A clock that runs `factor` times as fast as real time from its origin on.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    origin: Timestamp,
    factor: u32,
}

impl Clock {
    /// Real time.
    #[must_use]
    pub fn real() -> Self {
        Self::scaled(Timestamp::UNIX_EPOCH, 1)
    }

    /// A clock that is right at `origin` and `factor` times as fast from there on; a factor of 0 counts as 1.
    #[must_use]
    pub fn scaled(origin: Timestamp, factor: u32) -> Self {
        Self(Arc::new(Inner { origin, factor: factor.max(1) }))
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let real = Timestamp::now();
        if self.0.factor == 1 {
            return real;
        }
        let passed = real.duration_since(self.0.origin);
        let scaled = passed.saturating_mul(i32::try_from(self.0.factor).unwrap_or(i32::MAX));
        self.0.origin.saturating_add(scaled).unwrap_or(Timestamp::MAX)
    }

    /// How long a time on this clock takes in reality.
    #[must_use]
    pub fn in_reality(&self, time: std::time::Duration) -> std::time::Duration {
        time / self.0.factor.max(1)
    }

    /// Real time until `at` on this clock; zero if it has passed.
    #[must_use]
    pub fn real_until(&self, at: Timestamp) -> std::time::Duration {
        let left = at.duration_since(self.now());
        if left <= SignedDuration::ZERO {
            return std::time::Duration::ZERO;
        }
        self.in_reality(std::time::Duration::try_from(left).unwrap_or_default())
    }
}
