//! Moments as a person reads them.

use jiff::Timestamp;

/// A moment in UTC to the second.
#[must_use]
pub fn moment(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The time of day in UTC by which a moment of today has come: to the minute, rounded up, so that nobody looks too early.
#[must_use]
pub fn time_of_day(at: Timestamp) -> String {
    let minutes = at.as_second().saturating_add(59).div_euclid(60);
    let whole = Timestamp::from_second(minutes.saturating_mul(60)).unwrap_or(at);
    whole.strftime("%H:%M UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_no_fraction_and_a_time_of_day_is_not_too_early() {
        let at: Timestamp = "2026-11-24T05:26:40.123456Z".parse().unwrap();
        assert_eq!(moment(at), "2026-11-24T05:26:40Z");
        assert_eq!(time_of_day(at), "05:27 UTC");
        assert_eq!(time_of_day("2026-11-24T05:27:00Z".parse().unwrap()), "05:27 UTC");
        assert_eq!(time_of_day("2026-11-24T23:59:59Z".parse().unwrap()), "00:00 UTC");
    }
}
