//! Back to zero: everything an attempt launched is terminated before the next candidate is tried.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::bill;
use super::case::{Case, Step, Stop, Turn, done, failed, later};
use super::counted::counted;
use super::decision::{Change, Requeue};
use super::located::Located;
use crate::ec2::error::ErrorClass;
use crate::ec2::seen::InstanceState;
use crate::model::batch::{AttemptOutcome, BatchMember, BatchPhase, BatchStatus, Hold, HoldReason, MemberState};
use crate::model::names::InstanceId;
use crate::model::tags::Tags;

/// Launches that may miss the required level before the batch waits for a person.
const MISSES: u32 = 2;
/// An instance that EC2 does not show may still appear this long after its launch.
const APPEARS_WITHIN: SignedDuration = SignedDuration::from_secs(120);

/// Records what has to go; then it is rolled back. Also for launches that went bad after they were won.
pub(super) fn violated(case: &Case<'_>, mut status: BatchStatus, ids: &[InstanceId], why: &str) -> Turn {
    let message = format!("{why}: rolled back to zero");
    give_up(&mut status, ids);
    status.message = Some(message.clone());
    status.close(AttemptOutcome::Violated, None, Some(message), case.now());
    Turn::write(status)
}

/// The launch lies where its gang must not be: all of it goes. After several such candidates the batch waits until
/// somebody changes the topology request, the pool or the class, since a launch costs money and the next would lie as badly.
pub(super) fn misplaced(case: &Case<'_>, mut status: BatchStatus, why: &str, found: &Located) -> Turn {
    let ids = status.ids();
    give_up(&mut status, &ids);
    status.located.clone_from(&found.layers);
    status.misses = status.misses.saturating_add(1);
    let message = format!("{why}: {} rolled back to zero", counted(ids.len(), "instance"));
    status.message = Some(message.clone());
    if status.misses >= MISSES {
        let seen = case.world.supply.generations(case.batch);
        status.held = Some(Hold { reason: HoldReason::RequiredLevelNotMet, seen });
    }
    status.close(AttemptOutcome::Misplaced, None, Some(message), case.now());
    Turn::write(status)
}

fn give_up(status: &mut BatchStatus, ids: &[InstanceId]) {
    let attempt = status.attempt;
    let goes = |id: &InstanceId| BatchMember::new(id.clone(), attempt, MemberState::Terminating);
    status.instances = ids.iter().map(goes).collect();
    status.ready_count = 0;
    status.phase = BatchPhase::Launching;
}

/// Terminates everything of the attempt, waits until nothing is left and gives its group up; then the next candidate.
pub(super) fn go(case: &Case<'_>) -> Step<Turn> {
    let mut status = case.status();
    let now = case.now();
    let group = status.placement_group.clone();
    let deleted = group.as_ref().and_then(|group| case.outcome(&Change::DeleteGroup(group.clone())));
    if deleted.is_none() {
        if terminate_all(case, &status, case.tags(status.attempt).sweep())? > 0 {
            return Ok(Turn::wait(Requeue::Pause(later(now, 2))));
        }
        if bill::end(&mut status) {
            return Ok(Turn::write(status));
        }
    }
    if let Some(group) = status.placement_group.take() {
        // EC2 does not say when an empty group is free of the zone it was used in: the next launch has one of its own.
        match delete_group(case, &group)? {
            GroupEnd::Gone => status.generation = status.generation.saturating_add(1),
            GroupEnd::InUse => {
                let mut status = case.status();
                status.message = Some(format!("rolled back; placement group {group} is still in use and goes first"));
                return Ok(Turn::write(status).requeue(Requeue::Pause(later(now, 5))));
            }
        }
    }
    status.placement_group_id = None;
    status.instances.clear();
    status.idle_since = None;
    status.phase = BatchPhase::Pending;
    status.message = Some(match &status.held {
        Some(hold) if hold.reason == HoldReason::JoinBlocked => {
            "the node that was tried alone is terminated".to_owned()
        }
        None => "rolled back to zero instances; next candidate".to_owned(),
        Some(hold) => format!(
            "{}: {} launches missed the required level; waits for a change of the topology request, the pool or the class",
            hold.reason, status.misses
        ),
    });
    Ok(Turn::write(status))
}

/// Whether EC2 may not show yet what was launched at this time.
pub(super) fn may_appear(now: Timestamp, launched: Timestamp) -> bool {
    now.duration_since(launched) < APPEARS_WITHIN
}

/// What became of a placement group that is to go.
pub(super) enum GroupEnd {
    /// It is gone, or was never ours.
    Gone,
    /// Something is in it still.
    InUse,
}

/// Deletes the placement group of the batch. A batch that was given up before it looked may bear a name that somebody
/// else has taken: that group is left alone.
pub(super) fn delete_group(case: &Case<'_>, name: &str) -> Step<GroupEnd> {
    let delete = Change::DeleteGroup(name.to_owned());
    if case.outcome(&delete).is_none() {
        // The permission to delete asks for our tags: what is not there has none, and a denial would stop everybody. One that
        // shows later is found by the collection.
        let Some(group) = case.group(name)? else { return Ok(GroupEnd::Gone) };
        if !case.tags(case.batch.status.attempt).own(&group.tags) {
            return Ok(GroupEnd::Gone);
        }
    }
    match case.change(delete, None)? {
        Ok(_) => Ok(GroupEnd::Gone),
        Err(error) if error.kind == ErrorClass::InUse => Ok(GroupEnd::InUse),
        Err(error) => Err(failed(error, true)),
    }
}

/// Terminates every live instance of the batch and of the sweep. The answer is how many are not gone yet.
pub(super) fn terminate_all(case: &Case<'_>, status: &BatchStatus, sweep: Tags) -> Step<usize> {
    // What was just terminated is looked at after a pause: EC2 shows it with a delay.
    if let Some(count) = case.has_terminated() {
        if let Some(last) = &case.memory.done {
            done(&last.result)?;
        }
        return Ok(count.max(1));
    }
    let ids = status.ids();
    let mut seen = case.instances(&ids)?;
    seen.extend(case.tagged(sweep)?);
    let known: BTreeSet<&InstanceId> = seen.iter().map(|instance| &instance.id).collect();
    let mut live: BTreeSet<InstanceId> = BTreeSet::new();
    let mut ending: BTreeSet<&InstanceId> = BTreeSet::new();
    for instance in &seen {
        match instance.state {
            InstanceState::Terminated => {}
            InstanceState::ShuttingDown => {
                ending.insert(&instance.id);
            }
            InstanceState::Pending
            | InstanceState::Running
            | InstanceState::Stopping
            | InstanceState::Stopped
            | InstanceState::Unknown => {
                live.insert(instance.id.clone());
            }
        }
    }
    if !live.is_empty() {
        let change = Change::Terminate(live.into_iter().collect());
        return Err(Stop::Change(Box::new(Turn { change: Some(change), ..Turn::default() })));
    }
    // An id that is not visible may still become so: within a minute or two of the launch it is asked for again.
    let launched = status.last().and_then(|attempt| attempt.ended);
    let young = launched.is_some_and(|at| may_appear(case.now(), at));
    let invisible = ids.iter().filter(|id| !known.contains(id)).count();
    Ok(ending.len() + if young { invisible } else { 0 })
}
