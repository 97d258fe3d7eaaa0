//! What a ProvisioningRequest of our class is answered: one pure look at where the request and its NodeBatch stand.
//!
//! A request is answered by one NodeBatch at a time. A batch that ends before anybody used it is followed by the next
//! round, and the booking (the value of the node label) stays the same, so that pods that select it find the new nodes.
//!
//! Source: `autoscaling.x-k8s.io/v1` of the Kubernetes autoscaler for conditions and parameters;
//! `docs/user-guide.md` for what follows.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::model::batch::{Batch, BatchPhase};

/// Upstream's parameter: how long the request is tried.
pub const VALID_UNTIL_SECONDS: &str = "ValidUntilSeconds";
/// How long it is tried without the parameter.
const VALID: SignedDuration = SignedDuration::from_mins(15);
/// How long nodes stay booked without pods. Source: upstream's `BookingExpired`.
pub const BOOKED: SignedDuration = SignedDuration::from_mins(10);

/// What the request's parameters say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// How long the request is tried; `None` = without end.
    pub valid: Option<SignedDuration>,
}

/// Reads the parameters. `topology_requests` are the keys of ours that a request may carry.
///
/// Errors: the parameter, its value and what would be right. Keys of others are not ours to refuse.
pub fn parameters(
    given: &BTreeMap<String, String>,
    prefix: &str,
    topology_requests: &[&str],
) -> Result<Parameters, String> {
    for key in given.keys().filter(|key| key.starts_with(prefix)) {
        if !topology_requests.contains(&key.as_str()) {
            return Err(format!("spec.parameters: {key} is not known; use one of {}", topology_requests.join(", ")));
        }
    }
    let Some(text) = given.get(VALID_UNTIL_SECONDS) else { return Ok(Parameters { valid: Some(VALID) }) };
    let seconds = text.parse::<u32>().map_err(|_| {
        format!("spec.parameters: {VALID_UNTIL_SECONDS}: \"{text}\" is not a number of seconds; 0 means without end")
    })?;
    Ok(Parameters { valid: (seconds > 0).then(|| SignedDuration::from_secs(i64::from(seconds))) })
}

/// The NodeBatch of the current round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchSeen {
    /// On its way: what it is waiting for.
    Coming {
        /// Candidate, attempt, next try.
        message: Arc<str>,
    },
    /// All nodes are ready, with their devices.
    Ready,
    /// Pods of the request run on it.
    InUse,
    /// On its way out.
    Ending,
}

impl BatchSeen {
    /// A NodeBatch as its request sees it.
    #[must_use]
    pub fn of(batch: &Batch) -> Self {
        match batch.status.phase {
            BatchPhase::InUse => Self::InUse,
            _ if batch.deleting => Self::Ending,
            BatchPhase::Ready => Self::Ready,
            BatchPhase::Idle | BatchPhase::Draining | BatchPhase::Terminating => Self::Ending,
            BatchPhase::Pending
            | BatchPhase::Launching
            | BatchPhase::Launched
            | BatchPhase::Joining
            | BatchPhase::Replacing => {
                Self::Coming { message: batch.status.message.clone().unwrap_or_default().into() }
            }
        }
    }
}

/// Where a request stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it was made.
    pub created: Timestamp,
    /// From [`parameters`].
    pub parameters: Parameters,
    /// It failed, its booking expired or its capacity was revoked: nothing follows any more.
    pub closed: bool,
    /// It is closed because it failed: what was still being provisioned for it is terminated.
    pub failed: bool,
    /// Rounds provisioned so far; 0 = none.
    pub round: u32,
    /// Since when it is provisioned.
    pub provisioned: Option<Timestamp>,
    /// Pods of the request have run on its nodes, as it or its batch says.
    pub used: bool,
    /// The batch of the last round, while it exists.
    pub batch: Option<BatchSeen>,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing.
    Nothing,
    /// Provision this round. If nothing can be provisioned: with `revoke` the capacity is revoked, else the request waits.
    Book {
        /// 1 for the first.
        round: u32,
        /// The request was provisioned already.
        revoke: bool,
    },
    /// Not provisioned yet.
    Pending {
        /// Why not.
        message: Arc<str>,
    },
    /// Provisioned; `used` once pods run there.
    Provisioned {
        /// Pods of the request run on the nodes.
        used: bool,
    },
    /// The booking ended.
    Expired {
        /// How.
        message: &'static str,
    },
    /// It has failed, and its batch goes on: whoever wrote that down did not come to delete it.
    Terminate,
    /// Not provisioned in time: what was provisioned is terminated.
    Failed {
        /// Why.
        message: Arc<str>,
    },
}

/// Decides.
#[must_use]
pub fn answer(request: &Request, now: Timestamp) -> Answer {
    if request.closed {
        let goes_on = matches!(request.batch, Some(BatchSeen::Coming { .. } | BatchSeen::Ready));
        return if request.failed && goes_on { Answer::Terminate } else { Answer::Nothing };
    }
    let late = |message: &Arc<str>| {
        let over = request.parameters.valid.filter(|valid| now.duration_since(request.created) >= *valid)?;
        let what = if message.is_empty() { "nothing was provisioned" } else { message };
        Some(Answer::Failed { message: format!("not provisioned within {} s: {what}", over.as_secs()).into() })
    };
    let expired = "nobody used the booked nodes in time: they were terminated";
    match (&request.batch, request.provisioned) {
        (Some(BatchSeen::Coming { message }), None) => {
            late(message).unwrap_or_else(|| Answer::Pending { message: Arc::clone(message) })
        }
        // Nodes that were lost are on their way again.
        (Some(BatchSeen::Coming { .. }), Some(_)) => Answer::Nothing,
        (Some(BatchSeen::Ready), _) => Answer::Provisioned { used: request.used },
        (Some(BatchSeen::InUse), _) => Answer::Provisioned { used: true },
        // What the request does not say by the time the batch is gone would be taken for a loss, and provisioned again.
        (Some(BatchSeen::Ending), _) if request.used => Answer::Provisioned { used: true },
        (Some(BatchSeen::Ending), Some(since)) if !request.used && now.duration_since(since) >= BOOKED => {
            Answer::Expired { message: expired }
        }
        (Some(BatchSeen::Ending), _) => Answer::Nothing,
        (None, _) if request.used => {
            Answer::Expired { message: "the pods that used the nodes ended: the nodes were terminated" }
        }
        (None, Some(since)) if now.duration_since(since) >= BOOKED => Answer::Expired { message: expired },
        (None, Some(_)) => Answer::Book { round: request.round.saturating_add(1), revoke: true },
        (None, None) => {
            let nothing = Arc::from("");
            late(&nothing).unwrap_or(Answer::Book { round: request.round.saturating_add(1), revoke: false })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::UNIX_EPOCH;

    fn after(seconds: i64) -> Timestamp {
        START.saturating_add(SignedDuration::from_secs(seconds)).unwrap()
    }

    fn fresh() -> Request {
        Request {
            created: START,
            parameters: Parameters { valid: Some(VALID) },
            closed: false,
            failed: false,
            round: 0,
            provisioned: None,
            used: false,
            batch: None,
        }
    }

    fn coming(message: &str) -> Option<BatchSeen> {
        Some(BatchSeen::Coming { message: message.into() })
    }

    fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_new_request_is_booked_and_then_waits_for_its_batch() {
        assert_eq!(answer(&fresh(), after(1)), Answer::Book { round: 1, revoke: false });
        let request = Request { round: 1, batch: coming("attempt 2 in zone b"), ..fresh() };
        assert_eq!(answer(&request, after(2)), Answer::Pending { message: "attempt 2 in zone b".into() });
        let request = Request { batch: Some(BatchSeen::Ready), ..request };
        assert_eq!(answer(&request, after(3)), Answer::Provisioned { used: false });
    }

    #[test]
    fn a_batch_lost_before_its_use_is_followed_by_the_next_round() {
        let lost = Request { round: 1, provisioned: Some(after(10)), ..fresh() };
        assert_eq!(answer(&lost, after(20)), Answer::Book { round: 2, revoke: true });
        let coming = Request { round: 2, batch: coming(""), ..lost };
        assert_eq!(answer(&coming, after(30)), Answer::Nothing, "the request stays provisioned meanwhile");
        let never_ready = Request { round: 1, ..fresh() };
        assert_eq!(answer(&never_ready, after(20)), Answer::Book { round: 2, revoke: false });
    }

    #[test]
    fn a_request_fails_when_it_is_not_provisioned_in_time_and_only_then() {
        let request = Request { round: 1, batch: coming("no capacity in any zone"), ..fresh() };
        assert!(matches!(answer(&request, after(899)), Answer::Pending { .. }));
        let Answer::Failed { message } = answer(&request, after(900)) else { panic!("it is late") };
        assert_eq!(&*message, "not provisioned within 900 s: no capacity in any zone");
        assert!(matches!(answer(&fresh(), after(900)), Answer::Failed { .. }));
        let patient = Request { parameters: Parameters { valid: None }, ..request.clone() };
        assert!(matches!(answer(&patient, after(1_000_000)), Answer::Pending { .. }));
        let provisioned = Request { batch: Some(BatchSeen::Ready), provisioned: Some(after(899)), ..request };
        assert_eq!(answer(&provisioned, after(901)), Answer::Provisioned { used: false });
    }

    #[test]
    fn a_booking_expires_ten_minutes_unused_or_when_its_pods_have_ended() {
        let unused = Request { round: 1, provisioned: Some(after(10)), batch: Some(BatchSeen::Ending), ..fresh() };
        assert_eq!(answer(&unused, after(609)), Answer::Nothing, "it may be a loss: the next round decides");
        assert!(matches!(answer(&unused, after(610)), Answer::Expired { .. }));
        let gone = Request { batch: None, ..unused.clone() };
        assert!(matches!(answer(&gone, after(610)), Answer::Expired { .. }));
        let used = Request { used: true, ..unused };
        assert_eq!(answer(&used, after(11)), Answer::Provisioned { used: true }, "reported before the batch is gone");
        assert!(matches!(answer(&Request { batch: None, ..used }, after(11)), Answer::Expired { .. }));
    }

    #[test]
    fn nothing_follows_on_a_closed_request() {
        for batch in [None, coming(""), Some(BatchSeen::Ready), Some(BatchSeen::Ending)] {
            assert_eq!(answer(&Request { closed: true, batch, ..fresh() }, after(5_000)), Answer::Nothing);
        }
    }

    #[test]
    fn the_batch_of_a_request_that_failed_is_terminated_whoever_wrote_the_failure_down() {
        let failed = |batch| answer(&Request { closed: true, failed: true, batch, ..fresh() }, after(5_000));
        assert_eq!(failed(coming("attempt 3")), Answer::Terminate);
        assert_eq!(failed(Some(BatchSeen::Ready)), Answer::Terminate);
        for batch in [None, Some(BatchSeen::InUse), Some(BatchSeen::Ending)] {
            assert_eq!(failed(batch), Answer::Nothing, "nothing is left to end, or somebody uses it");
        }
    }

    #[test]
    fn parameters_are_read_and_wrong_ones_are_named() {
        let topology_requests = ["muster.dev/topology-required"];
        let read = |pairs: &[(&str, &str)]| parameters(&given(pairs), "muster.dev/", &topology_requests);
        assert_eq!(read(&[]), Ok(Parameters { valid: Some(VALID) }));
        assert_eq!(read(&[(VALID_UNTIL_SECONDS, "0"), ("other/x", "y")]), Ok(Parameters { valid: None }));
        let hour = Parameters { valid: Some(SignedDuration::from_hours(1)) };
        assert_eq!(read(&[(VALID_UNTIL_SECONDS, "3600"), (topology_requests[0], "leaf")]), Ok(hour));
        for wrong in ["-1", "", "1h", "99999999999"] {
            let error = read(&[(VALID_UNTIL_SECONDS, wrong)]).unwrap_err();
            assert!(error.contains(&format!("ValidUntilSeconds: \"{wrong}\"")), "{error}");
        }
        let error = read(&[("muster.dev/gang-size", "8")]).unwrap_err();
        assert!(
            error.contains("muster.dev/gang-size is not known; use one of muster.dev/topology-required"),
            "{error}"
        );
    }
}
