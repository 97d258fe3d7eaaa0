//! Finished instant fleets. Nothing of them runs, but the Region may count them: when it has too many, those of ours go.

use std::collections::BTreeSet;

use muster_core::ec2::CallError;
use muster_core::model::batch::{AttemptOutcome, BatchStatus};
use muster_core::model::names::InstanceId;
use muster_ec2::FLEETS_AT_ONCE;
use tracing::{info, warn};

use crate::cluster::State;
use crate::provisioner::Context;

/// Fleets of batches that are gone are remembered up to this many; a Region has at most as many.
const REMEMBERED: usize = 1000;

/// Fleets of ours of which nothing should live.
#[derive(Debug, Default)]
pub(in crate::provisioner) struct Fleets {
    finished: BTreeSet<String>,
    /// What was deleted, or was found to live on: not asked for again.
    settled: BTreeSet<String>,
}

impl Fleets {
    /// A batch is gone: so is all that its attempts launched.
    pub(in crate::provisioner) fn ended(&mut self, fleets: Vec<String>) {
        self.finished.extend(fleets);
        while self.finished.len() > REMEMBERED {
            self.finished.pop_first();
        }
    }

    /// Up to one call's worth that were never looked at: of batches that are gone, and of attempts that came to nothing.
    fn candidates<'a>(&self, batches: impl Iterator<Item = &'a BatchStatus>) -> Vec<String> {
        let lost = batches.flat_map(|status| &status.attempts).filter(|attempt| match attempt.outcome {
            AttemptOutcome::Lost | AttemptOutcome::Retry | AttemptOutcome::Violated | AttemptOutcome::Misplaced => true,
            AttemptOutcome::Launching | AttemptOutcome::Won | AttemptOutcome::ProbeJoined => false,
        });
        let lost = lost.filter_map(|attempt| attempt.fleet.clone());
        let all: BTreeSet<String> = self.finished.iter().cloned().chain(lost).collect();
        all.difference(&self.settled).take(FLEETS_AT_ONCE).cloned().collect()
    }
}

/// Deletes finished fleets, one call's worth. How many went.
///
/// A deletion ends whatever the fleet still has, so each is looked at first: only what has no live instance goes.
pub(in crate::provisioner) async fn delete_finished(context: &Context, state: &State) -> Result<usize, CallError> {
    let batches: Vec<&BatchStatus> = state.batches.values().map(|seen| &seen.batch().status).collect();
    let candidates = lock(context).candidates(batches.iter().copied());
    let mut dead = Vec::new();
    for id in candidates {
        let launched: Vec<InstanceId> = match context.cloud.fleet(&id).await? {
            Some(answer) => answer.instances.into_iter().map(|instance| instance.id).collect(),
            None => Vec::new(),
        };
        let live = context.cloud.instances(&launched).await?.iter().any(|instance| instance.state.live());
        let mut listed = batches.iter().flat_map(|status| &status.instances);
        let used = listed.any(|instance| launched.contains(&instance.id));
        lock(context).settled.insert(id.clone());
        if live || used {
            warn!(fleet = id, "a fleet that should be finished has instances: kept");
        } else {
            dead.push(id);
        }
    }
    if dead.is_empty() {
        return Ok(0);
    }
    let deleted = context.cloud.delete_fleets(&dead).await?;
    info!(fleets = deleted.len(), "the Region has too many fleets: finished ones of ours are deleted");
    let mut fleets = lock(context);
    for id in &deleted {
        fleets.finished.remove(id);
    }
    Ok(deleted.len())
}

fn lock(context: &Context) -> std::sync::MutexGuard<'_, Fleets> {
    context.fleets.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(attempts: &[(&str, &str)]) -> BatchStatus {
        let attempts: Vec<Value> = attempts
            .iter()
            .map(|(fleet, outcome)| {
                json!({"number": 1, "nodePool": "p", "instanceType": "t", "zone": "z", "capacityType": "on-demand",
                    "count": 1, "fleet": fleet, "outcome": outcome})
            })
            .collect();
        let batch = json!({"apiVersion": "muster.dev/v1alpha1", "kind": "NodeBatch", "metadata": {"name": "b"},
            "spec": {"nodePools": [], "count": 1, "offers": []}, "status": {"phase": "Pending", "attempts": attempts}});
        muster_api::batch_state::read(&serde_json::from_value(batch).unwrap()).status
    }

    #[test]
    fn fleets_of_lost_attempts_and_of_batches_that_are_gone_may_go_and_no_others() {
        let mut fleets = Fleets::default();
        fleets.ended(vec!["fleet-1".to_owned(), "fleet-2".to_owned()]);
        let live = [status(&[("fleet-3", "Violated"), ("fleet-4", "Won")]), status(&[("fleet-5", "Launching")])];
        assert_eq!(fleets.candidates(live.iter()), ["fleet-1", "fleet-2", "fleet-3"]);
        fleets.settled.insert("fleet-2".to_owned());
        assert_eq!(fleets.candidates(live.iter()), ["fleet-1", "fleet-3"]);
    }

    #[test]
    fn no_more_are_named_than_one_call_takes() {
        let mut fleets = Fleets::default();
        let many: Vec<String> = (0..60).map(|number| format!("fleet-{number:02}")).collect();
        fleets.finished = many.into_iter().collect();
        assert_eq!(fleets.candidates(std::iter::empty()).len(), FLEETS_AT_ONCE);
    }
}
