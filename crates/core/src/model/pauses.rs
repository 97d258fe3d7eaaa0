//! Pauses that double up to a longest one.

use jiff::{SignedDuration, Timestamp};

/// Longer than kube-scheduler leaves any pod that it refused before it tries it again; it does so every five minutes at the latest.
pub(crate) const SCHEDULER_RETRIES: SignedDuration = SignedDuration::from_mins(6);

/// The pause after so many doublings.
#[must_use]
pub(crate) fn doubled(first: SignedDuration, longest: SignedDuration, doublings: u32) -> SignedDuration {
    first.saturating_mul(1 << doublings.min(16)).min(longest)
}

/// When a pause that began at this time is over.
#[must_use]
pub(crate) fn after(at: Timestamp, pause: SignedDuration) -> Timestamp {
    at.saturating_add(pause).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_however_often_and_end_with_time_itself_at_the_latest() {
        let pauses = [0, 1, 3, 4, 40]
            .map(|doublings| doubled(SignedDuration::from_mins(5), SignedDuration::from_hours(1), doublings).as_mins());
        assert_eq!(pauses, [5, 10, 40, 60, 60]);
        assert_eq!(after(Timestamp::MAX, SignedDuration::from_hours(1)), Timestamp::MAX);
    }
}
