//! What a batch's memory keeps once a decision is carried out, or could not be.
//!
//! A report of a loss is dropped only by a decision that looked at it and is acknowledged: whoever found the loss deletes the
//! message after that, so nobody brings it a second time.

use std::time::Duration;

use super::decision::{Decision, Failure, Memory, Report, Requeue, Scratch};

/// What a decision leaves behind, whatever its effects come to.
#[derive(Clone, Copy, Debug)]
pub struct Remains {
    reports: usize,
    used: bool,
    looked: bool,
    succeeded: bool,
    scratch: Scratch,
    requeue: Requeue,
}

impl Remains {
    /// Of a decision that is about to be carried out.
    #[must_use]
    pub fn of(decision: &Decision) -> Self {
        Self {
            reports: decision.reports,
            used: decision.used,
            looked: !decision.looks.is_empty(),
            succeeded: decision.succeeded,
            scratch: decision.scratch,
            requeue: decision.requeue,
        }
    }
}

impl Memory {
    /// A loss is reported. The answer is its place among the reports that wait: one that is brought again since it could not be
    /// written yet takes the place that it has.
    pub fn report(&mut self, report: Report) -> usize {
        let same = |known: &Report| known.reason == report.reason && known.losses.keys().eq(report.losses.keys());
        if let Some(at) = self.reports.iter().position(same) {
            return at;
        }
        self.reports.push(report);
        self.reports.len() - 1
    }

    /// The status of a decision is acknowledged, or it wrote none. The answer is the reports that are settled by that, the first
    /// that came. What comes back of the effects is put in afterwards.
    pub fn settle(&mut self, remains: &Remains) -> Vec<Report> {
        let settled = self.reports.drain(..remains.reports.min(self.reports.len())).collect();
        if remains.used {
            self.done = None;
        }
        if !remains.looked {
            self.seen.clear();
        }
        if let Requeue::Retry(_) = remains.requeue {
            self.failed = None;
            self.failures = self.failures.saturating_add(1);
        }
        if remains.succeeded {
            self.failures = 0;
        }
        self.scratch = remains.scratch;
        settled
    }

    /// When to look again after a decision that `settled` so many of the `before` reports that waited when it was made: a report that
    /// came meanwhile waits for nothing, since a notice of two minutes is short.
    #[must_use]
    pub fn due(&self, requeue: Requeue, before: usize, settled: usize) -> Requeue {
        let came = self.reports.len().saturating_add(settled) > before;
        if came && !matches!(requeue, Requeue::Retry(_)) { Requeue::Now } else { requeue }
    }

    /// What a decision brings about on the API server was carried out: what failed before has nothing to do with what comes.
    pub fn carried_out(&mut self) {
        self.failures = 0;
    }

    /// Somebody else wrote first: it is decided again on what they wrote.
    pub fn superseded(&mut self) {
        self.seen.clear();
    }

    /// The status could not be written. It counts as a failure here, since one more status would not be written either; the
    /// answer says when to try again. Failures of other kinds are still to be decided about.
    pub fn unwritten(&mut self) -> Requeue {
        self.seen.clear();
        self.failures = self.failures.saturating_add(1);
        Requeue::Retry(pause_of(self.failures))
    }

    /// An effect other than a change failed.
    pub fn failed(&mut self, failure: Failure) {
        self.failed = Some(failure);
    }
}

/// How long a batch rests after so many failures in a row.
pub(super) fn pause_of(failures: u32) -> Duration {
    Duration::from_millis(200_u64.saturating_mul(1 << failures.min(6)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::decision::{Look, Sight};
    use super::*;

    fn report() -> Report {
        Report { losses: BTreeMap::new(), reason: "SpotInterruption", ..Report::default() }
    }

    fn remains(reports: usize, requeue: Requeue) -> Remains {
        let scratch = Scratch::default();
        Remains { reports, used: false, looked: false, succeeded: false, scratch, requeue }
    }

    #[test]
    fn a_report_stays_until_a_decision_that_looked_at_it_is_acknowledged() {
        let mut memory = Memory { reports: vec![report()], ..Memory::default() };
        memory.seen.insert(Look::Fleet("fleet-1".to_owned()), Ok(Sight::Fleet(None)));
        memory.superseded();
        assert!(memory.seen.is_empty(), "it is looked for once more");
        let _ = memory.unwritten();
        assert_eq!(memory.settle(&remains(0, Requeue::Retry(Duration::ZERO))), []);
        assert_eq!(memory.reports.len(), 1, "nothing has looked at it");
        memory.reports.push(report());
        assert_eq!(memory.settle(&remains(1, Requeue::Now)).len(), 1);
        assert_eq!(memory.reports.len(), 1, "the second came after the decision");
    }

    #[test]
    fn a_report_that_comes_while_a_decision_is_carried_out_is_looked_at_at_once() {
        let pause = Requeue::Pause(jiff::Timestamp::UNIX_EPOCH);
        let mut memory = Memory::default();
        assert_eq!(memory.due(pause, 0, 0), pause, "nothing came");
        memory.report(report());
        assert_eq!(memory.due(pause, 0, 0), Requeue::Now);
        assert_eq!(memory.due(Requeue::Outcome, 0, 0), Requeue::Now);
        assert_eq!(memory.due(pause, 1, 0), pause, "the decision knew it");
        assert_eq!(memory.due(pause, 1, 1), Requeue::Now, "the decision settled another");
        let retry = Requeue::Retry(Duration::from_secs(1));
        assert_eq!(memory.due(retry, 0, 0), retry, "what fails rests");
    }

    #[test]
    fn a_report_that_is_brought_again_takes_the_place_it_has() {
        let mut memory = Memory::default();
        let other = Report { losses: BTreeMap::new(), reason: "InstanceLost", ..Report::default() };
        assert_eq!([report(), other, report()].map(|report| memory.report(report)), [0, 1, 0]);
        assert_eq!(memory.reports.len(), 2);
    }

    #[test]
    fn a_status_that_cannot_be_written_is_tried_again_after_pauses_that_grow() {
        let mut memory = Memory::default();
        let pauses = [0; 8].map(|_| match memory.unwritten() {
            Requeue::Retry(pause) => pause.as_millis(),
            other => panic!("{other:?} is no pause"),
        });
        assert_eq!(pauses, [400, 800, 1600, 3200, 6400, 12800, 12800, 12800]);
        assert_eq!(memory.failures, 8);
        assert!(memory.failed.is_none(), "nothing is to be written about it");
        let written = Remains { succeeded: true, ..remains(0, Requeue::Now) };
        memory.settle(&written);
        assert_eq!(memory.failures, 0);
    }

    #[test]
    fn a_failure_that_waits_to_be_decided_about_outlasts_a_status_that_cannot_be_written() {
        let mut memory = Memory::default();
        memory.failed(Failure { text: "no".to_owned(), denied: true });
        let _ = memory.unwritten();
        assert!(memory.failed.is_some());
        memory.settle(&remains(0, Requeue::Retry(Duration::ZERO)));
        assert!(memory.failed.is_none());
    }
}
