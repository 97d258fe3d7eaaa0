//! When a round is due: pods come in crowds, and one plan for all of them is cheaper than one for each.

use jiff::{SignedDuration, Timestamp};

/// The window in which what changes is collected. Real time.
#[derive(Clone, Debug)]
pub struct Window {
    idle: SignedDuration,
    most: SignedDuration,
    /// First and last change since the last round, and what was seen then.
    open: Option<(Timestamp, Timestamp)>,
    seen: Option<u64>,
    /// Rounds in a row that were made on the same.
    repeated: u32,
    last_round: Option<Timestamp>,
}

/// Doublings of the pause between rounds on the same, at most.
const DOUBLINGS: u32 = 3;

impl Window {
    /// A window that closes after `idle` without a change, and `most` after the first.
    #[must_use]
    pub fn new(idle: SignedDuration, most: SignedDuration) -> Self {
        Self { idle, most, open: None, seen: None, repeated: 0, last_round: None }
    }

    /// When it closes, if nothing changes any more; `None` while nothing is collected.
    #[must_use]
    pub fn closes(&self) -> Option<Timestamp> {
        let later = |at: Timestamp, pause| at.checked_add(pause).unwrap_or(Timestamp::MAX);
        self.open.map(|(first, last)| later(last, self.idle).min(later(first, self.most)))
    }

    /// Takes note of what there is now, as a digest of it. Whether a round is due: then the window is closed, and opens again with
    /// the next change. `unserved`: somebody still waits; such a round is repeated now and then, since time alone
    /// may help, or take a place away that there was.
    pub fn is_due(&mut self, now: Timestamp, seen: u64, unserved: bool) -> bool {
        if self.seen != Some(seen) {
            self.seen = Some(seen);
            self.repeated = 0;
            let first = self.open.map_or(now, |(first, _)| first);
            self.open = Some((first, now));
        }
        let due = match self.open {
            Some((first, last)) => now.duration_since(last) >= self.idle || now.duration_since(first) >= self.most,
            None => {
                let pause = self.most.saturating_mul(1 << self.repeated.min(DOUBLINGS));
                unserved && self.last_round.is_none_or(|last| now.duration_since(last) >= pause)
            }
        };
        if due {
            self.repeated = if self.open.is_some() { 0 } else { self.repeated.saturating_add(1) };
            self.open = None;
            self.last_round = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_800_000_000_000 + millis).unwrap()
    }

    fn window() -> Window {
        Window::new(SignedDuration::from_secs(1), SignedDuration::from_secs(10))
    }

    #[test]
    fn a_round_is_made_a_second_after_the_last_pod_came() {
        let mut window = window();
        assert_eq!(window.closes(), None);
        assert!(!window.is_due(at(0), 1, false));
        assert_eq!(window.closes(), Some(at(1_000)));
        assert!(!window.is_due(at(900), 2, false));
        assert_eq!(window.closes(), Some(at(1_900)));
        assert!(!window.is_due(at(1_800), 2, false));
        assert!(window.is_due(at(1_900), 2, false));
        assert_eq!(window.closes(), None);
        assert!(!window.is_due(at(60_000), 2, false), "nothing has changed, and nobody waits any more");
    }

    #[test]
    fn a_stream_of_pods_delays_a_round_by_ten_seconds_at_most() {
        let mut window = window();
        let due: Vec<i64> = (0..300)
            .map(|tick| tick * 100)
            .filter(|millis| window.is_due(at(*millis), millis.unsigned_abs(), false))
            .collect();
        assert_eq!(due, [10_000, 20_100]);
    }

    #[test]
    fn whoever_waits_in_vain_is_planned_again_ever_more_rarely() {
        let mut window = window();
        let due: Vec<i64> = (0..300).filter(|second| window.is_due(at(second * 1_000), 7, true)).collect();
        assert_eq!(due, [1, 11, 31, 71, 151, 231]);
    }
}
