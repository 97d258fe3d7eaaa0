//! The last decisions about gangs and NodeBatches with everything they were made on, for whoever wants to replay one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use muster_core::batch::{self, DecidedBatches, RecordedBatches};
use muster_core::gang::{Decided, Decision, Pass, RecordedWorld};
use muster_replay::decision::{Decisions, VERSION};
use muster_replay::passes::{Passes, RecordedBatchPass, RecordedPass};

/// Bounded rings of decisions and of whole passes, shared with the debug endpoints.
#[derive(Clone, Debug)]
pub struct Recorder {
    most: usize,
    ring: Arc<Mutex<VecDeque<Decision>>>,
    passes: Arc<Mutex<VecDeque<RecordedPass>>>,
    batches: Arc<Mutex<VecDeque<RecordedBatchPass>>>,
}

impl Recorder {
    /// Rings of at most `most` decisions, as many passes over gangs, and as many over NodeBatches.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, ring: Arc::default(), passes: Arc::default(), batches: Arc::default() }
    }

    /// Keeps decisions. The same answer for the same gang again is not kept: a waiting gang is planned all the time.
    pub fn keep(&self, decisions: Vec<Decision>) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        for decision in decisions {
            let last = ring.iter().rev().find(|kept| kept.gang == decision.gang);
            if last.is_some_and(|last| last.plan == decision.plan && last.report.refusal == decision.report.refusal) {
                continue;
            }
            if ring.len() >= self.most {
                ring.pop_front();
            }
            ring.push_back(decision);
        }
    }

    /// Keeps a pass that did something, with everything it looked at.
    pub fn keep_pass(&self, world: RecordedWorld, pass: &Pass) {
        if pass.actions.is_empty() {
            return;
        }
        let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        if passes.len() >= self.most {
            passes.pop_front();
        }
        passes.push_back(RecordedPass { world, decided: Decided::of(pass) });
    }

    /// Keeps a pass over NodeBatches, with everything it looked at.
    pub fn keep_batches(&self, world: RecordedBatches, decisions: &[batch::Decision]) {
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        if batches.len() >= self.most {
            batches.pop_front();
        }
        batches.push_back(RecordedBatchPass { world, decided: DecidedBatches::of(decisions) });
    }

    /// The last passes that did something, oldest first.
    #[must_use]
    pub fn passes(&self) -> Passes {
        let passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        let batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        Passes::new(env!("CARGO_PKG_VERSION"), passes, batches)
    }

    /// The decisions for one gang, given as `namespace/name`, or all of them; oldest first.
    #[must_use]
    pub fn decisions(&self, gang: Option<&str>) -> Decisions {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = |decision: &&Decision| gang.is_none_or(|gang| decision.gang.to_string() == gang);
        Decisions {
            version: VERSION,
            muster: env!("CARGO_PKG_VERSION").to_owned(),
            decisions: ring.iter().filter(wanted).cloned().collect(),
        }
    }
}
