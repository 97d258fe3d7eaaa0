//! How long a batch waits between two rounds without success.

use jiff::SignedDuration;

/// The longest pause, as a multiple of the first: 30 s doubles up to 10 minutes.
const LONGEST: i32 = 20;

/// Pause after the `failed`-th round in a row without success: the first doubled each time, at most twenty times the
/// first, `percent` of it (80 to 120 drawn by the caller, so that several batches do not ask at once).
#[must_use]
pub fn pause(first: SignedDuration, failed: u32, percent: u8) -> SignedDuration {
    let doublings = failed.saturating_sub(1).min(5);
    let pause = first.saturating_mul(1 << doublings).min(first.saturating_mul(LONGEST));
    let percent = i128::from(percent.clamp(80, 120));
    let millis = i64::try_from(pause.as_millis().saturating_mul(percent) / 100).unwrap_or(i64::MAX);
    SignedDuration::from_millis(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_minute_doubles_to_ten() {
        let first = SignedDuration::from_secs(30);
        let seconds: Vec<i64> = (0..9).map(|failed| pause(first, failed, 100).as_secs()).collect();
        assert_eq!(seconds, [30, 30, 60, 120, 240, 480, 600, 600, 600]);
        assert_eq!(pause(first, u32::MAX, 100).as_secs(), 600);
    }

    #[test]
    fn it_differs_by_a_fifth_at_most() {
        let first = SignedDuration::from_secs(30);
        assert_eq!((pause(first, 1, 80).as_secs(), pause(first, 1, 120).as_secs()), (24, 36));
        assert_eq!((pause(first, 1, 0).as_secs(), pause(first, 1, 255).as_secs()), (24, 36));
        assert_eq!(pause(SignedDuration::MAX, 9, 120), SignedDuration::from_millis(i64::MAX));
    }

    /// insufficient capacity of a day costs about as many rounds as there are ten minutes in it.
    #[test]
    fn a_day_without_capacity_costs_at_most_two_hundred_rounds() {
        let (mut passed, mut rounds) = (SignedDuration::ZERO, 0);
        while passed < SignedDuration::from_hours(24) {
            rounds += 1;
            passed += pause(SignedDuration::from_secs(30), rounds, 80);
        }
        assert!((150..=200).contains(&rounds), "{rounds}");
    }
}
