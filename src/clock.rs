//! The only callers of `now()`: real time for leases, watches and the barrier; a clock with an origin and a speed
//! factor for everything that EC2's time rules.
//!
//! Factor and origin are read by the provisioner and by the simulator alike, so that a persisted deadline keeps its
//! meaning over a restart.

use std::sync::Arc;
use std::time::Duration;

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

    /// Real time until `at` on this clock; zero if it has passed.
    #[must_use]
    pub fn real_until(&self, at: Timestamp) -> std::time::Duration {
        let left = at.duration_since(self.now());
        if left <= SignedDuration::ZERO {
            return std::time::Duration::ZERO;
        }
        let factor = self.0.factor.max(1);
        std::time::Duration::try_from(left).unwrap_or_default() / factor
    }
}
/// Two passes over the cluster are at least this far apart: a burst of changes costs one.
const SHORTEST: Duration = Duration::from_millis(20);
/// And what has changed is looked at after this at the latest.
const LONGEST: Duration = Duration::from_millis(100);

/// How long a pass that took so long is followed by none that is due to changes alone. What one costs grows with the cluster, and the
/// processor is wanted elsewhere just when much changes: at most a third of the time goes there.
#[must_use]
pub fn rest(took: Duration) -> Duration {
    (took * 2).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::rest;

    #[test]
    fn a_pass_is_followed_by_twice_its_time_without_one_within_bounds() {
        let rests = [0, 9, 10, 30, 50, 51, 5_000].map(|millis| rest(Duration::from_millis(millis)).as_millis());
        assert_eq!(rests, [20, 20, 20, 60, 100, 100, 100]);
    }
}
