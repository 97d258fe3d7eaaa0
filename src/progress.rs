//! Whether the loops of the process still go round: a process that listens and decides nothing is worse than none.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A loop that did not go round for longer hangs: the longest it rightly takes for one turn are a few seconds of planning.
const LIMIT: Duration = Duration::from_mins(2);

/// When each loop last went round.
#[derive(Debug)]
pub struct Progress {
    started: Instant,
    limit: Duration,
    loops: Mutex<Vec<Watched>>,
}

/// One loop; it has ended once nobody holds its beat.
#[derive(Debug)]
struct Watched {
    name: &'static str,
    limit: Duration,
    last: Weak<AtomicU64>,
}

impl Default for Progress {
    fn default() -> Self {
        Self { started: Instant::now(), limit: LIMIT, loops: Mutex::default() }
    }
}

impl Progress {
    /// A loop that begins now.
    #[must_use]
    pub fn of(&self, name: &'static str) -> Beat {
        self.within(name, self.limit)
    }

    /// A loop that begins now and may rightly take so long for one turn.
    #[must_use]
    pub fn within(&self, name: &'static str, limit: Duration) -> Beat {
        let beat = Beat { started: self.started, last: Arc::default() };
        beat.beat();
        let mut loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        loops.retain(|watched| watched.last.strong_count() > 0);
        loops.push(Watched { name, limit, last: Arc::downgrade(&beat.last) });
        drop(loops);
        beat
    }

    /// A loop that hangs.
    #[must_use]
    pub fn stalled(&self) -> Option<&'static str> {
        self.stalled_at(self.started.elapsed())
    }

    /// As [`Self::stalled`], so long after the start.
    fn stalled_at(&self, now: Duration) -> Option<&'static str> {
        let now = millis(now);
        let loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        let hangs = |watched: &&Watched| {
            let last = watched.last.upgrade();
            last.is_some_and(|last| now.saturating_sub(last.load(Ordering::Relaxed)) > millis(watched.limit))
        };
        loops.iter().find(hangs).map(|watched| watched.name)
    }
}

/// What one loop calls each time it goes round.
#[derive(Clone, Debug)]
pub struct Beat {
    started: Instant,
    last: Arc<AtomicU64>,
}

impl Beat {
    /// It goes round.
    pub fn beat(&self) {
        self.last.store(millis(self.started.elapsed()), Ordering::Relaxed);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(300);

    /// Goes round so long after the start.
    fn beat_at(beat: &Beat, at: Duration) {
        beat.last.store(millis(at), Ordering::Relaxed);
    }

    #[test]
    fn a_loop_that_stands_still_is_named_until_it_goes_round_again() {
        let progress = Progress::default();
        let (gangs, lease) = (progress.of("gangs"), progress.of("lease"));
        beat_at(&gangs, NOW);
        beat_at(&lease, NOW.checked_sub(LIMIT).unwrap());
        assert_eq!(progress.stalled_at(NOW), None, "the limit itself is no stall");
        assert_eq!(progress.stalled_at(NOW + Duration::from_millis(1)), Some("lease"));
        beat_at(&lease, NOW);
        assert_eq!(progress.stalled_at(NOW + Duration::from_millis(1)), None);
    }

    #[test]
    fn a_loop_beats_when_it_begins_and_when_it_goes_round() {
        let progress = Progress::default();
        let beat = progress.of("gangs");
        beat.last.store(u64::MAX, Ordering::Relaxed);
        beat.beat();
        assert!(beat.last.load(Ordering::Relaxed) < u64::MAX);
        assert_eq!(progress.stalled(), None);
    }

    #[test]
    fn a_loop_that_ended_is_not_waited_for_and_one_may_be_given_more_time() {
        let progress = Progress::default();
        let (slow, ended) = (progress.within("collection", Duration::from_mins(10)), progress.of("interruptions"));
        assert_eq!(progress.stalled_at(NOW), Some("interruptions"));
        drop(ended);
        assert_eq!(progress.stalled_at(NOW), None);
        assert_eq!(progress.stalled_at(3 * NOW), Some("collection"));
        drop(slow);
    }
}
