//! Every external call that changes something goes through [`step`]: one place to crash in tests, one list of names.
//!
//! `MUSTER_CRASH=<name>:before|after` ends the process there; it is read with `--dev` only. `before` = the other side
//! saw nothing; `after` = it has done the work and Muster has written nothing down.
//!
//! No step waits for ever: one without an answer ends as an error when its deadline has passed, and whether it was carried
//! out is open then. A step of the lease holder is not sent once the lease has run out, as after a process was stopped
//! for a while and went on.

use std::future::Future;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use muster_core::ec2::{CallError, ErrorClass};
use muster_ec2::QueueError;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::clock::now_real;

/// The registered calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Create a Gang object.
    CreateGang,
    /// Write a Gang's status: plans, releases, withdrawals.
    WriteGang,
    /// Delete a Gang object.
    DeleteGang,
    /// Writes the nomination of a member's node.
    NominatePod,
    /// Drop a member's gate.
    ReleasePod,
    /// Write the condition `muster.dev/Gang` of a member.
    ReportPod,
    /// Drop our gate from a pod of no gang.
    UngatePod,
    /// Write `Committing`.
    CommitGang,
    /// Post a Binding.
    BindPod,
    /// Delete the admission policy.
    DeletePolicy,
    /// Create a NodeBatch object.
    CreateBatch,
    /// Write a NodeBatch's status.
    WriteBatch,
    /// Add what a NodeBatch cost to the books of its NodePool.
    BookBatch,
    /// Change a NodeBatch's metadata, or delete it.
    EditBatch,
    /// Create a placement group.
    CreatePlacementGroup,
    /// Create a launch template.
    CreateLaunchTemplate,
    /// Try out a launch through a launch template that serves nothing else.
    TryOut,
    /// Launch a fleet.
    CreateFleet,
    /// Run instances.
    RunInstances,
    /// Terminate instances.
    TerminateInstances,
    /// Delete finished fleets.
    DeleteFleets,
    /// Delete a placement group.
    DeletePlacementGroup,
    /// Delete a launch template.
    DeleteLaunchTemplate,
    /// Patch or delete a Node.
    EditNode,
    /// Write the status of a pool, class or ProvisioningRequest.
    WriteStatus,
    /// Delete a message whose reaction is written down.
    DeleteMessage,
    /// Mark a pod as evicted by a disruption.
    MarkPod,
    /// Evict or delete a pod of a gang that is evicted.
    EvictPod,
}

impl Step {
    /// Every step.
    pub const ALL: [Self; 28] = [
        Self::CreateGang,
        Self::WriteGang,
        Self::DeleteGang,
        Self::NominatePod,
        Self::ReleasePod,
        Self::ReportPod,
        Self::UngatePod,
        Self::CommitGang,
        Self::BindPod,
        Self::DeletePolicy,
        Self::CreateBatch,
        Self::WriteBatch,
        Self::BookBatch,
        Self::EditBatch,
        Self::CreatePlacementGroup,
        Self::CreateLaunchTemplate,
        Self::TryOut,
        Self::CreateFleet,
        Self::RunInstances,
        Self::TerminateInstances,
        Self::DeleteFleets,
        Self::DeletePlacementGroup,
        Self::DeleteLaunchTemplate,
        Self::EditNode,
        Self::WriteStatus,
        Self::DeleteMessage,
        Self::MarkPod,
        Self::EvictPod,
    ];

    /// The name in `MUSTER_CRASH`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CreateGang => "create-gang",
            Self::WriteGang => "write-gang",
            Self::DeleteGang => "delete-gang",
            Self::NominatePod => "nominate-pod",
            Self::ReleasePod => "release-pod",
            Self::ReportPod => "report-pod",
            Self::UngatePod => "ungate-pod",
            Self::CommitGang => "commit-gang",
            Self::BindPod => "bind-pod",
            Self::DeletePolicy => "delete-policy",
            Self::CreateBatch => "create-batch",
            Self::WriteBatch => "write-batch",
            Self::BookBatch => "book-batch",
            Self::EditBatch => "edit-batch",
            Self::CreatePlacementGroup => "create-placement-group",
            Self::CreateLaunchTemplate => "create-launch-template",
            Self::TryOut => "try-out",
            Self::CreateFleet => "create-fleet",
            Self::RunInstances => "run-instances",
            Self::TerminateInstances => "terminate-instances",
            Self::DeleteFleets => "delete-fleets",
            Self::DeletePlacementGroup => "delete-placement-group",
            Self::DeleteLaunchTemplate => "delete-launch-template",
            Self::EditNode => "edit-node",
            Self::WriteStatus => "write-status",
            Self::DeleteMessage => "delete-message",
            Self::MarkPod => "mark-pod",
            Self::EvictPod => "evict-pod",
        }
    }
}

/// Where a step goes, and who may take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// To the API server, for the lease holder.
    Held,
    /// To the API server, for any process.
    Free,
    /// To EC2 or SQS, for the lease holder.
    Cloud,
}

/// Longest wait for the API server: it gives up on a request itself after a minute, and nobody here can wait that long.
const ANSWER: Duration = Duration::from_secs(10);
/// Longest wait for EC2: above everything that the SDK waits for by itself, whose deadlines depend on the call.
const CLOUD_ANSWER: Duration = Duration::from_mins(10);

impl Step {
    fn scope(self) -> Scope {
        match self {
            // The commit of a barrier and its Bindings belong to the replica beside the kube-scheduler that leads, and the
            // admission policy to whoever uninstalls.
            Self::CommitGang | Self::BindPod | Self::DeletePolicy => Scope::Free,
            Self::CreateGang
            | Self::WriteGang
            | Self::DeleteGang
            | Self::NominatePod
            | Self::ReleasePod
            | Self::ReportPod
            | Self::UngatePod
            | Self::CreateBatch
            | Self::WriteBatch
            | Self::BookBatch
            | Self::EditBatch
            | Self::EditNode
            | Self::WriteStatus
            | Self::MarkPod
            | Self::EvictPod => Scope::Held,
            Self::CreatePlacementGroup
            | Self::CreateLaunchTemplate
            | Self::TryOut
            | Self::CreateFleet
            | Self::RunInstances
            | Self::TerminateInstances
            | Self::DeleteFleets
            | Self::DeletePlacementGroup
            | Self::DeleteLaunchTemplate
            | Self::DeleteMessage => Scope::Cloud,
        }
    }

    fn deadline(self) -> Duration {
        match self.scope() {
            Scope::Held | Scope::Free => ANSWER,
            Scope::Cloud => CLOUD_ANSWER,
        }
    }
}

/// Why a step has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// None came in time.
    #[error("{} was not answered within {} s: whether it was carried out is open", .0.as_str(), .1.as_secs())]
    Late(Step, Duration),
    /// The lease had run out when it was still to be answered: what the client repeats by itself is not sent any more.
    #[error("{} was not answered before the lease ran out: whether it was carried out is open", .0.as_str())]
    Lapsed(Step),
    /// It was not sent.
    #[error("{} was not sent: the lease has run out", .0.as_str())]
    NotHeld(Step),
}

/// An error that a step without an answer can end with.
pub trait Unanswered {
    /// The error of the caller's kind.
    fn unanswered(why: NoAnswer) -> Self;
}

impl Unanswered for kube::Error {
    fn unanswered(why: NoAnswer) -> Self {
        Self::Service(Box::new(why))
    }
}

impl Unanswered for CallError {
    fn unanswered(why: NoAnswer) -> Self {
        let (NoAnswer::Late(step, _) | NoAnswer::Lapsed(step) | NoAnswer::NotHeld(step)) = why;
        let kind = match why {
            NoAnswer::Late(..) | NoAnswer::Lapsed(_) => ErrorClass::Unknown,
            NoAnswer::NotHeld(_) => ErrorClass::NotSent,
        };
        let operation = step.as_str().to_owned();
        Self { operation, kind, code: None, message: why.to_string(), http_status: None, request_id: None }
    }
}

impl Unanswered for QueueError {
    fn unanswered(why: NoAnswer) -> Self {
        let (NoAnswer::Late(step, _) | NoAnswer::Lapsed(step) | NoAnswer::NotHeld(step)) = why;
        Self { operation: step.as_str(), code: None, message: why.to_string() }
    }
}

/// Until when this process may act as the holder of the lease, in milliseconds; the end of time where it takes no part in
/// an election, as a command does that a person runs.
static HELD_UNTIL: AtomicI64 = AtomicI64::new(i64::MAX);

/// Until when steps of the lease holder are sent; `None`: none is.
pub fn hold_until(until: Option<Timestamp>) {
    HELD_UNTIL.store(until.map_or(i64::MIN, Timestamp::as_millisecond), Ordering::SeqCst);
}

/// Whether this process takes part in an election and may act as the holder of the lease now.
#[must_use]
pub fn holds_lease() -> bool {
    let until = HELD_UNTIL.load(Ordering::SeqCst);
    until != i64::MAX && now_real().as_millisecond() < until
}

/// What waits for the end of the lease asks this often whether it was given up before.
const GIVEN_UP: Duration = Duration::from_millis(100);

/// Ends once the lease has run out, however often it was renewed meanwhile, or was given up or lost before.
async fn lapsed(held_until: &AtomicI64) {
    loop {
        let until = held_until.load(Ordering::SeqCst);
        if until == i64::MAX {
            return std::future::pending().await;
        }
        let Ok(left) = u64::try_from(until.saturating_sub(now_real().as_millisecond())) else { return };
        if left == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(left).min(GIVEN_UP)).await;
    }
}

fn may_be_sent(step: Step, held_until: i64, now: Timestamp) -> bool {
    step.scope() == Scope::Free || now.as_millisecond() < held_until
}

/// How steps came out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StepLabel {
    step: &'static str,
    outcome: &'static str,
}

static COUNTS: LazyLock<Family<StepLabel, Counter>> = LazyLock::new(Family::default);

/// Steps by name and outcome, for the registry.
#[must_use]
pub fn counts() -> Family<StepLabel, Counter> {
    COUNTS.clone()
}

/// Where to end the process: the n-th time the step is reached, before or after its call.
#[derive(Debug)]
pub struct CrashPoint {
    step: Step,
    after: bool,
    left: AtomicU32,
}

static CRASH: OnceLock<CrashPoint> = OnceLock::new();

/// Arms the crash point `<name>:before|after[:n]`. Only `--dev` calls this.
///
/// Errors: a text naming what is wrong with the value.
pub fn arm(text: &str) -> Result<(), String> {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default();
    let step = Step::ALL.into_iter().find(|step| step.as_str() == name).ok_or_else(|| {
        let known: Vec<&str> = Step::ALL.into_iter().map(Step::as_str).collect();
        format!("MUSTER_CRASH: \"{name}\" is no step; use one of {}", known.join(", "))
    })?;
    let after = match parts.next() {
        Some("before") => false,
        Some("after") => true,
        other => return Err(format!("MUSTER_CRASH: \"{}\" is neither before nor after", other.unwrap_or_default())),
    };
    let left = parts.next().map_or(Ok(1), str::parse).map_err(|error| format!("MUSTER_CRASH: count: {error}"))?;
    // A second call keeps the first: the process is armed once, at start.
    let _ = CRASH.set(CrashPoint { step, after, left: left.into() });
    Ok(())
}

/// Makes one external call.
///
/// Errors: the call's, and [`NoAnswer`] in its words.
pub async fn step<T, E: Unanswered>(name: Step, call: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    within(name, name.deadline(), &HELD_UNTIL, call).await
}

async fn within<T, E: Unanswered>(
    name: Step,
    deadline: Duration,
    held_until: &AtomicI64,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let count = |outcome| {
        COUNTS.get_or_create(&StepLabel { step: name.as_str(), outcome }).inc();
    };
    if !may_be_sent(name, held_until.load(Ordering::SeqCst), now_real()) {
        count("not-held");
        return Err(E::unanswered(NoAnswer::NotHeld(name)));
    }
    let fires = CRASH.get().is_some_and(|point| point.step == name && point.left.fetch_sub(1, Ordering::SeqCst) == 1);
    if fires && CRASH.get().is_some_and(|point| !point.after) {
        crash(name);
    }
    let mut armed = Armed(fires);
    let result = tokio::select! {
        // In this order: a process that was stopped repeats nothing when it goes on.
        biased;
        () = lapsed(held_until), if name.scope() == Scope::Held => Err(NoAnswer::Lapsed(name)),
        result = tokio::time::timeout(deadline, call) => result.map_err(|_| NoAnswer::Late(name, deadline)),
    };
    if std::mem::take(&mut armed.0) {
        crash(name);
    }
    count(match &result {
        Ok(Ok(_)) => "ok",
        Ok(Err(_)) => "error",
        Err(_) => "late",
    });
    result.unwrap_or_else(|why| Err(E::unanswered(why)))
}

/// The call after which the process ends. If nobody waits for its answer any more, the next call of that step is the one.
struct Armed(bool);

impl Drop for Armed {
    fn drop(&mut self) {
        if let Some(point) = CRASH.get().filter(|_| self.0) {
            point.left.store(1, Ordering::SeqCst);
        }
    }
}

fn crash(name: Step) -> ! {
    tracing::warn!(step = name.as_str(), "crash point reached: ending the process");
    // As SIGKILL would: no destructor, no flush, no answer.
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<&str> = Step::ALL.into_iter().map(Step::as_str).collect();
        assert_eq!(names.len(), Step::ALL.len());
    }

    #[tokio::test]
    async fn a_call_that_is_never_answered_ends_as_an_error_whose_outcome_is_open() {
        let never = std::future::pending::<Result<(), CallError>>();
        let error = within(Step::CreateFleet, Duration::ZERO, &AtomicI64::new(i64::MAX), never).await.unwrap_err();
        assert_eq!((error.operation.as_str(), error.kind), ("create-fleet", ErrorClass::Unknown));
        let never = std::future::pending::<Result<(), kube::Error>>();
        let error = within(Step::NominatePod, Duration::ZERO, &AtomicI64::new(i64::MAX), never).await.unwrap_err();
        assert!(error.to_string().contains("nominate-pod was not answered"), "{error}");
        let late = counts().get_or_create(&StepLabel { step: "nominate-pod", outcome: "late" }).get();
        assert_eq!(late, 1, "counted");
    }

    #[tokio::test]
    async fn a_call_under_way_when_the_lease_runs_out_is_given_up_so_that_the_client_repeats_it_no_more() {
        let held_until = AtomicI64::new(now_real().as_millisecond() + 1_000);
        let never = std::future::pending::<Result<(), kube::Error>>();
        let error = within(Step::CreateBatch, ANSWER, &held_until, never).await.unwrap_err();
        assert!(error.to_string().contains("before the lease ran out"), "{error}");
        // Whoever commits needs no lease.
        let never = std::future::pending::<Result<(), kube::Error>>();
        let error = within(Step::CommitGang, Duration::ZERO, &held_until, never).await.unwrap_err();
        assert!(error.to_string().contains("not answered within"), "{error}");
    }

    #[tokio::test]
    async fn a_call_under_way_when_the_lease_is_given_up_is_given_up_with_it() {
        let held_until = AtomicI64::new(now_real().as_millisecond() + 600_000);
        let never = async {
            held_until.store(i64::MIN, Ordering::SeqCst);
            std::future::pending::<Result<(), kube::Error>>().await
        };
        let error = within(Step::WriteStatus, Duration::from_secs(60), &held_until, never).await.unwrap_err();
        assert!(error.to_string().contains("before the lease ran out"), "{error}");
    }

    #[tokio::test]
    async fn a_lease_that_is_renewed_meanwhile_has_not_run_out() {
        let held_until = AtomicI64::new(now_real().as_millisecond() + 1_000);
        let renewed = async {
            held_until.store(i64::MAX, Ordering::SeqCst);
            // Longer than it was to last at first.
            let never = std::future::pending::<()>();
            tokio::time::timeout(Duration::from_millis(1_100), never).await.unwrap_err();
            Ok::<_, kube::Error>(())
        };
        within(Step::WriteGang, ANSWER, &held_until, renewed).await.unwrap();
    }

    #[test]
    fn once_the_lease_has_run_out_only_commits_and_bindings_are_sent() {
        let until = Timestamp::from_second(1_000).unwrap();
        let sent = |seconds: i64| {
            let now = Timestamp::from_second(seconds).unwrap();
            Step::ALL.into_iter().filter(|step| may_be_sent(*step, until.as_millisecond(), now)).collect::<Vec<_>>()
        };
        assert_eq!(sent(999), Step::ALL);
        assert_eq!(sent(1_000), [Step::CommitGang, Step::BindPod, Step::DeletePolicy]);
    }

    #[test]
    fn a_crash_point_that_cannot_be_read_is_refused_by_name() {
        assert!(arm("no-such-step:before").unwrap_err().contains("no-such-step"));
        assert!(arm("bind-pod:sometimes").unwrap_err().contains("sometimes"));
    }
}
