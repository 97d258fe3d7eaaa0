//! The last decisions of the gang loop with everything they were made on, for whoever wants to replay one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use muster_core::gang::Decision;
use muster_replay::decision::{Decisions, VERSION};

/// A bounded ring of decisions, shared with the debug endpoint.
#[derive(Clone, Debug)]
pub struct Recorder {
    most: usize,
    ring: Arc<Mutex<VecDeque<Decision>>>,
}

impl Recorder {
    /// A ring of at most `most` decisions.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, ring: Arc::default() }
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
