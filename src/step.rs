//! Every external call that changes something goes through [`step`]: one place to crash in tests, one list of names.
//!
//! `MUSTER_CRASH=<name>:before|after` ends the process there; it is read with `--dev` only. `before` = the other side
//! saw nothing; `after` = it has done the work and Muster has written nothing down.

use std::future::Future;
use std::sync::OnceLock;

/// The registered calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Create a Gang object.
    CreateGang,
    /// Write a Gang's status: plans, releases, withdrawals.
    WriteGang,
    /// Delete a Gang object.
    DeleteGang,
    /// Hint a member's node.
    HintPod,
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
    /// Change a NodeBatch's metadata, or delete it.
    EditBatch,
    /// Create a placement group.
    CreatePlacementGroup,
    /// Create a launch template.
    CreateLaunchTemplate,
    /// Resolve an image, or try out a launch, through a launch template that serves nothing else.
    ResolveImage,
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
    /// Mark a pod as stopped by a disruption.
    MarkPod,
    /// Evict or delete a pod of a gang that is stopped.
    StopPod,
}

impl Step {
    /// Every step.
    pub const ALL: [Self; 27] = [
        Self::CreateGang,
        Self::WriteGang,
        Self::DeleteGang,
        Self::HintPod,
        Self::ReleasePod,
        Self::ReportPod,
        Self::UngatePod,
        Self::CommitGang,
        Self::BindPod,
        Self::DeletePolicy,
        Self::CreateBatch,
        Self::WriteBatch,
        Self::EditBatch,
        Self::CreatePlacementGroup,
        Self::CreateLaunchTemplate,
        Self::ResolveImage,
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
        Self::StopPod,
    ];

    /// The name in `MUSTER_CRASH`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CreateGang => "create-gang",
            Self::WriteGang => "write-gang",
            Self::DeleteGang => "delete-gang",
            Self::HintPod => "hint-pod",
            Self::ReleasePod => "release-pod",
            Self::ReportPod => "report-pod",
            Self::UngatePod => "ungate-pod",
            Self::CommitGang => "commit-gang",
            Self::BindPod => "bind-pod",
            Self::DeletePolicy => "delete-policy",
            Self::CreateBatch => "create-batch",
            Self::WriteBatch => "write-batch",
            Self::EditBatch => "edit-batch",
            Self::CreatePlacementGroup => "create-placement-group",
            Self::CreateLaunchTemplate => "create-launch-template",
            Self::ResolveImage => "resolve-image",
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
            Self::StopPod => "stop-pod",
        }
    }
}

/// Where to end the process: the n-th time the step is reached, before or after its call.
#[derive(Debug)]
pub struct CrashPoint {
    step: Step,
    after: bool,
    left: std::sync::atomic::AtomicU32,
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
pub async fn step<T>(name: Step, call: impl Future<Output = T>) -> T {
    let fires = CRASH
        .get()
        .is_some_and(|point| point.step == name && point.left.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) == 1);
    if fires && CRASH.get().is_some_and(|point| !point.after) {
        crash(name);
    }
    let result = call.await;
    if fires {
        crash(name);
    }
    result
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

    #[test]
    fn a_crash_point_that_cannot_be_read_is_refused_by_name() {
        assert!(arm("no-such-step:before").unwrap_err().contains("no-such-step"));
        assert!(arm("bind-pod:sometimes").unwrap_err().contains("sometimes"));
    }
}
