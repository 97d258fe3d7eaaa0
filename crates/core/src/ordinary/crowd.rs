//! The pods to provision for, as one number: whether a round may be due is asked whenever anything in the cluster changes.

use std::hash::{Hash as _, Hasher as _};

use super::round::is_waiting;
use crate::model::pods::{Pods, Unplaced};

/// The pods that waited when they were last looked through. Tens of thousands may wait for hours: they are looked through only once
/// one of them has changed.
#[derive(Debug, Default)]
pub struct Crowd {
    of: Option<Unplaced>,
    seen: u64,
    count: usize,
}

impl Crowd {
    /// A number that another set of pods does not have, and how many there are.
    pub fn look(&mut self, pods: &Pods) -> (u64, usize) {
        if !self.of.as_ref().is_some_and(|of| of.are_those_of(pods)) {
            let mut hasher = rustc_hash::FxHasher::default();
            self.count = 0;
            for pod in pods.unplaced().filter(|pod| is_waiting(pod)) {
                pod.uid.as_str().hash(&mut hasher);
                self.count += 1;
            }
            (self.of, self.seen) = (Some(pods.unplaced_now()), hasher.finish());
        }
        (self.seen, self.count)
    }
}
