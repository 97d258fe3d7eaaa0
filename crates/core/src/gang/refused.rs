//! What kube-scheduler says against a member, and what that means.
//!
//! The text is a histogram over nodes: `0/40 nodes are available: 32 waiting for gang, 8 Insufficient nvidia.com/gpu.`,
//! then a sentence about preemption. It does not say which reason is the planned node's.

use std::sync::Arc;

use jiff::Timestamp;

use crate::extender::Rejection;
use crate::model::gang::Pod;
use crate::model::names::NodeName;

/// A refusal of kube-scheduler's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// As it was reported.
    pub(super) message: Arc<str>,
    /// Counts and our own reasons aside: equal texts are equal causes.
    pub(super) text: Arc<str>,
    /// Every reason is one that the planner models: where our view says that the node fits, kube-scheduler's lags.
    pub(super) modelled: bool,
}

/// Beginnings of the reasons that `fit` gives too.
const MODELLED: [&str; 9] = [
    "Insufficient ",
    "Too many pods",
    "node(s) had untolerated taint",
    "node(s) were unschedulable",
    "node(s) didn't match Pod's node affinity/selector",
    "node(s) didn't have free ports for the requested pod ports",
    "node(s) didn't match pod anti-affinity rules",
    "node(s) didn't match PersistentVolume's node affinity",
    "node(s) had no available volume zone",
];

/// What kube-scheduler says against a member for reasons of its own; `None` if it says nothing or speaks of our
/// answers alone.
pub(super) fn refused(pod: &Pod) -> Option<Refused> {
    let (reason, message) = pod.unscheduled.as_ref()?;
    if &**reason != "Unschedulable" {
        return None;
    }
    let own: Vec<&str> = reasons(message).into_iter().filter(|reason| !is_ours(reason)).collect();
    if own.is_empty() {
        return None;
    }
    let modelled = own.iter().all(|reason| MODELLED.iter().any(|known| reason.starts_with(known)));
    let mut texts: Vec<String> = own.iter().map(|reason| without_counts(reason)).collect();
    texts.sort_unstable();
    texts.dedup();
    Some(Refused { message: Arc::clone(message), text: Arc::from(texts.join(", ")), modelled })
}

/// Whether the planned node was not among those that kube-scheduler offered to `filter`.
fn not_offered(pod: &Pod) -> bool {
    pod.unscheduled.as_ref().is_some_and(|(reason, message)| {
        &**reason == "Unschedulable" && message.contains(Rejection::BeingReplanned.as_str())
    })
}

/// Whether kube-scheduler has tried and refused the member again after it was nominated and requeued, and that so long after
/// the release that its view of the node has caught up.
///
/// A requeue is conditional on the version that carries the nomination, and a failed attempt clears it: where the requeue is
/// there and the nomination is not, an attempt has ended in between. A release that pins is no requeue, and writes none down.
pub(super) fn refused_again(pod: &Pod, planned: &NodeName, not_before: Timestamp) -> bool {
    pod.requeued.is_some_and(|at| at >= not_before) && pod.nominated.as_ref() != Some(planned)
}

/// Why a released member is not bound yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stuck {
    /// kube-scheduler refuses the planned node.
    Refused,
    /// It does so for reasons that our own view denies: its view lags.
    RefusedThoughItFits,
    /// It did not offer the planned node to `filter`, although the member is nominated for it.
    NotOffered,
    /// It did not offer the planned node, and the nomination is gone.
    NominationLost,
    /// A call that it made for the member failed, and it tries again after a back-off.
    CallFailed,
    /// It says nothing at all of the gang's members: it has not come to them yet, or does not run.
    NotTried,
}

impl Stuck {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Refused,
        Self::RefusedThoughItFits,
        Self::NotOffered,
        Self::NominationLost,
        Self::CallFailed,
        Self::NotTried,
    ];

    /// For metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::RefusedThoughItFits => "refused-though-it-fits",
            Self::NotOffered => "not-offered",
            Self::NominationLost => "nomination-lost",
            Self::CallFailed => "call-failed",
            Self::NotTried => "not-tried",
        }
    }
}

/// What a released member that is not bound waits for, as far as kube-scheduler has reported anything about it.
pub(super) fn waits_for(pod: &Pod, planned: &NodeName) -> Option<Stuck> {
    stuck(pod, planned).or_else(|| scheduler_error(pod).map(|_| Stuck::CallFailed))
}

/// Whether, and why, a released member waits in kube-scheduler's queue for somebody to requeue it.
pub(super) fn stuck(pod: &Pod, planned: &NodeName) -> Option<Stuck> {
    if let Some(refused) = refused(pod) {
        return Some(if refused.modelled { Stuck::RefusedThoughItFits } else { Stuck::Refused });
    }
    let nominated = pod.is_sent_to(planned);
    // The next attempt is made on the planned node alone only if the member is nominated for it, or pinned.
    if scheduler_error(pod).is_some() {
        return (!nominated).then_some(Stuck::CallFailed);
    }
    not_offered(pod).then_some(if nominated { Stuck::NotOffered } else { Stuck::NominationLost })
}

/// What a call of kube-scheduler failed with.
pub(super) fn scheduler_error(pod: &Pod) -> Option<&Arc<str>> {
    pod.unscheduled.as_ref().filter(|(reason, _)| &**reason == "SchedulerError").map(|(_, message)| message)
}

/// The reasons without their counts.
fn reasons(message: &str) -> Vec<&str> {
    let stated = message.split_once(" nodes are available: ").map_or(message, |(_, stated)| stated);
    let stated = stated.split(" preemption: ").next().unwrap_or(stated).trim().trim_end_matches('.');
    // Taints and messages may contain commas: a reason begins with its count.
    let mut starts = vec![0];
    for (at, _) in stated.match_indices(", ") {
        if stated[at + 2..].starts_with(|c: char| c.is_ascii_digit()) {
            starts.push(at + 2);
        }
    }
    let ends = starts.iter().skip(1).map(|start| start - 2).chain([stated.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(start, end)| stated[*start..end].trim_start_matches(|c: char| c.is_ascii_digit()).trim())
        .filter(|reason| !reason.is_empty())
        .collect()
}

fn is_ours(reason: &str) -> bool {
    Rejection::ALL.iter().any(|ours| reason.contains(ours.as_str()))
}

fn without_counts(reason: &str) -> String {
    reason.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_is_taken_apart() {
        assert_eq!(
            reasons(
                "0/40 nodes are available: 32 waiting for gang, 8 Insufficient nvidia.com/gpu, 1 node(s) had untolerated \
                 taint {a: b, c}. preemption: 0/40 nodes are available: 40 No preemption victims found."
            ),
            ["waiting for gang", "Insufficient nvidia.com/gpu", "node(s) had untolerated taint {a: b, c}"]
        );
        assert_eq!(reasons("running PreBind plugin"), ["running PreBind plugin"]);
        assert_eq!(reasons(""), Vec::<&str>::new());
    }

    #[test]
    fn counts_do_not_make_another_text() {
        assert_eq!(without_counts("node(s) had 3 volumes"), without_counts("node(s) had 14 volumes"));
    }
}
