//! What a batch costs, summed up whenever its price or what the money does changes.

use jiff::Timestamp;

use crate::model::batch::{BatchPhase, BatchStatus, Billing, ConditionKind};
use crate::model::money::{StrandedCause, cost_between};

/// What the money of a batch does: `None` while nothing is billed or the gang runs.
#[must_use]
pub fn strands(status: &BatchStatus) -> Option<StrandedCause> {
    let ran = status.is(&ConditionKind::Interrupted);
    let replacing = status.last().is_some_and(|attempt| !attempt.replaces.is_empty());
    match status.phase {
        BatchPhase::Launching => Some(StrandedCause::Rollback),
        BatchPhase::Replacing | BatchPhase::Launched | BatchPhase::Joining | BatchPhase::Ready if ran => {
            Some(StrandedCause::Interrupted)
        }
        BatchPhase::Replacing => Some(StrandedCause::Replacement),
        BatchPhase::Launched | BatchPhase::Joining | BatchPhase::Ready if replacing => Some(StrandedCause::Replacement),
        BatchPhase::Launched | BatchPhase::Joining | BatchPhase::Ready => Some(StrandedCause::Join),
        // Its gang has ended, and others keep it from being terminated.
        BatchPhase::InUse => status.idle_since.map(|_| StrandedCause::Warm),
        BatchPhase::Idle | BatchPhase::Draining | BatchPhase::Terminating => Some(StrandedCause::Warm),
        BatchPhase::Pending => None,
    }
}

/// Sums up what the batch cost since it was last summed up, if that ends here.
pub(super) fn bill(before: &BatchStatus, after: &mut BatchStatus, now: Timestamp) {
    let same = before.phase == after.phase
        && before.instances.len() == after.instances.len()
        && before.replaced.len() == after.replaced.len()
        && strands(before) == strands(after);
    let billing = after.billing.get_or_insert_with(Billing::default);
    if same && billing.since.is_some() {
        return;
    }
    if let Some(since) = billing.since.replace(now) {
        let spent = cost_between(before.price_now(), since, now);
        billing.spent = billing.spent.saturating_add(spent);
        if let Some(cause) = strands(before).filter(|_| spent > 0) {
            let sum = billing.stranded.entry(cause).or_default();
            *sum = sum.saturating_add(spent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{attempt, members};
    use super::*;
    use crate::model::batch::Attempt;

    fn status(phase: BatchPhase) -> BatchStatus {
        BatchStatus { phase, ..BatchStatus::default() }
    }

    #[test]
    fn only_a_running_gang_and_an_empty_batch_strand_nothing() {
        assert_eq!(strands(&status(BatchPhase::InUse)), None);
        assert_eq!(strands(&status(BatchPhase::Pending)), None);
        assert_eq!(strands(&status(BatchPhase::Joining)), Some(StrandedCause::Join));
        assert_eq!(strands(&status(BatchPhase::Idle)), Some(StrandedCause::Warm));
        let replaces = Attempt { replaces: vec!["i-1".into()], ..attempt() };
        let mut joining = BatchStatus { attempts: vec![replaces], ..status(BatchPhase::Joining) };
        assert_eq!(strands(&joining), Some(StrandedCause::Replacement));
        joining.set(ConditionKind::Interrupted, true, "why", "", Timestamp::UNIX_EPOCH);
        assert_eq!(strands(&joining), Some(StrandedCause::Interrupted));
    }

    #[test]
    fn nodes_whose_gang_ended_are_idle_dollars_from_that_moment() {
        let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
        let mut running = BatchStatus {
            price: Some(440_320_000),
            count: 8,
            instances: members(8),
            billing: Some(Billing { since: Some(at(0)), ..Billing::default() }),
            ..status(BatchPhase::InUse)
        };
        let mut ended = BatchStatus { idle_since: Some(at(3600)), ..running.clone() };
        bill(&running, &mut ended, at(3600));
        let billing = ended.billing.clone().unwrap();
        assert_eq!((billing.spent, billing.stranded.len()), (440_320_000, 0), "its gang ran for an hour");
        running = ended.clone();
        let mut idle = BatchStatus { phase: BatchPhase::Idle, ..ended };
        bill(&running, &mut idle, at(7200));
        assert_eq!(idle.billing.unwrap().stranded.get(&StrandedCause::Warm), Some(&440_320_000));
    }
}
