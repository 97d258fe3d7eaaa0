//! What is asked for a gang: why there is nothing to plan yet, and the taint on nodes that wait for it.

use std::sync::Arc;

use crate::model::gang::Invalid;

/// Why there is nothing to plan yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// A topology request cannot be read.
    Invalid(Invalid),
    /// Too few members.
    Collecting {
        /// Members there.
        seen: u32,
        /// Members needed.
        needed: u32,
        /// Members expected.
        size: u32,
    },
    /// Neither the size nor the minimum is known.
    SizeUnknown {
        /// Members there.
        seen: u32,
    },
    /// A member is still held by a gate that is not ours.
    ForeignGate {
        /// The pod.
        pod: Arc<str>,
        /// The gate.
        gate: Arc<str>,
    },
    /// A claim of a member is not there, or not bound, and kube-scheduler waits for it too.
    Volumes {
        /// The pod.
        pod: Arc<str>,
        /// What is waited for, as a sentence.
        awaits: Arc<str>,
    },
}

/// The taint on nodes provisioned for a gang until it uses them, and its values that are this gang's.
#[derive(Clone, Copy, Debug)]
pub struct Pending<'a> {
    /// Key.
    pub taint: &'a str,
    /// Values.
    pub values: &'a [Arc<str>],
}

/// Saturates: no cluster has more pods than `u32` can count.
pub(super) fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
