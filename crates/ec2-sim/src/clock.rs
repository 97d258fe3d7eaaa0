//! The virtual clock: everything in the simulator that takes time reads it here.
//!
//! Virtual time runs `factor` times as fast as real time from `origin` on, so that another process
//! which is given the same origin and factor reads the same time. A manual clock stands still until
//! it is advanced; it exists for tests within one process.

use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// How the clock of a scenario runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClockSettings {
    /// Virtual seconds per real second; above zero. Default 1.
    pub factor: f64,
    /// The instant at which virtual and real time agree. Default: when the simulator is made, or
    /// 2026-01-01T00:00:00Z for a manual clock, so that runs by one seed are equal.
    pub origin: Option<Timestamp>,
    /// Whether the clock stands still until it is advanced.
    pub manual: bool,
}

impl Default for ClockSettings {
    fn default() -> Self {
        Self { factor: 1.0, origin: None, manual: false }
    }
}

/// The running clock.
#[derive(Debug)]
pub struct SimClock {
    origin: Timestamp,
    factor: f64,
    manual: bool,
    advanced: Mutex<SignedDuration>,
}

impl SimClock {
    /// Starts a clock. A factor which is not a positive number counts as 1.
    #[must_use]
    pub fn new(settings: &ClockSettings) -> Self {
        let origin = settings.origin.unwrap_or_else(|| if settings.manual { MANUAL_ORIGIN } else { Timestamp::now() });
        let factor = if settings.factor.is_finite() && settings.factor > 0.0 { settings.factor } else { 1.0 };
        Self { origin, factor, manual: settings.manual, advanced: Mutex::new(SignedDuration::ZERO) }
    }

    /// The real instant from which virtual time is counted.
    #[must_use]
    pub fn origin(&self) -> Timestamp {
        self.origin
    }

    /// Virtual seconds per real second.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// Whether it stands still until it is advanced.
    #[must_use]
    pub fn is_manual(&self) -> bool {
        self.manual
    }

    /// The virtual time now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let advanced = *self.advanced.lock().unwrap_or_else(PoisonError::into_inner);
        let run = if self.manual {
            SignedDuration::ZERO
        } else {
            let real = Timestamp::now().duration_since(self.origin);
            scaled(real, self.factor)
        };
        later(later(self.origin, run), advanced)
    }

    /// Moves the clock forward by `by` of virtual time; a negative duration does nothing, since
    /// time never runs backwards.
    pub fn advance(&self, by: SignedDuration) {
        if by.is_positive() {
            let mut advanced = self.advanced.lock().unwrap_or_else(PoisonError::into_inner);
            *advanced = advanced.saturating_add(by);
        }
    }
}

/// `at` plus `by`, held at the end of representable time instead of failing.
pub(crate) fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// A duration of `seconds`, which a scenario may give with a fraction.
pub(crate) fn seconds(seconds: f64) -> SignedDuration {
    SignedDuration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(SignedDuration::MAX)
}

fn scaled(by: SignedDuration, factor: f64) -> SignedDuration {
    // A plain multiplication in f64 would cost whole milliseconds after some weeks; nobody runs a
    // simulator that long.
    SignedDuration::try_from_secs_f64(by.as_secs_f64() * factor).unwrap_or(SignedDuration::ZERO)
}

/// 2026-01-01T00:00:00Z.
const MANUAL_ORIGIN: Timestamp = Timestamp::constant(1_767_225_600, 0);
