//! Whose batch it is, and whether that one still wants it.

use jiff::{SignedDuration, Timestamp};

use super::case::{Case, Step};
use super::decision::OwnerLook;
use crate::model::batch::{Batch, BatchMember, BatchPhase, BatchStatus, Owner, OwnerRef};
use crate::model::class::is_readable;
use crate::model::gang::{Gang, Phase, Recognised};
use crate::model::names::ObjectKey;
use crate::model::snapshot::Snapshot;

/// Members of a gang that come again are there within this: a batch that nothing is launched for ends then, and nodes without
/// a member become idle.
pub(super) const COMES_AGAIN: SignedDuration = SignedDuration::from_mins(15);

/// Whether nobody waits for the batch any more.
///
/// The cache may show a NodeBatch before the Gang it was created for, since each kind has a watch of its own: an owner
/// that is missing there is looked up before its batch is given up.
pub(super) fn unwanted(case: &Case<'_>) -> Step<bool> {
    if case.batch.deleting {
        return Ok(true);
    }
    if case.batch.spec.owner == Owner::Pods {
        return Ok(!is_awaited(case));
    }
    if !is_gone(case) {
        return Ok(is_elsewhere(case));
    }
    let look = match &case.batch.spec.owner {
        Owner::Gang(gang) => OwnerLook::Gang { key: gang.key.clone(), uid: gang.uid.clone() },
        Owner::Request(request) => OwnerLook::Request { key: request.key.clone(), uid: request.uid.clone() },
        Owner::Pods => return Ok(false),
    };
    Ok(!case.owner_lives(look)?)
}

/// Whether a pod waits that its nodes are planned for. Of a class that another version wrote down nobody can say which pods it has.
fn is_awaited(case: &Case<'_>) -> bool {
    let mut classes = case.batch.spec.planned_pods().flatten().map(|(class, _)| class.as_str()).peekable();
    let waits = |class: &str| case.world.snapshot.waiting.get(class).is_some_and(|many| *many > 0);
    classes.peek().is_none() || classes.any(|class| !is_readable(class) || waits(class))
}

/// Whether the gang got its nodes elsewhere: it has passed its commit point on other nodes, or goes on with a later
/// round. Happens when a process ended between the creation of the batch and the status that names it.
pub(super) fn is_elsewhere(case: &Case<'_>) -> bool {
    let Some(seen) = gang(case.batch, case.world.snapshot) else { return false };
    let round = |name: &str| name.rsplit_once('-').and_then(|(_, round)| round.parse::<u32>().ok());
    if seen.batch.as_deref().and_then(round) > round(&case.batch.name) {
        return true;
    }
    has_committed(seen) && !uses(seen, &case.batch.status)
}

/// Whether the gang or request the batch is for is gone or has ended, as far as the cache knows.
pub(super) fn is_gone(case: &Case<'_>) -> bool {
    match &case.batch.spec.owner {
        Owner::Gang(owner) => {
            let seen = case.world.snapshot.gangs.get(&owner.key);
            seen.is_none_or(|seen| *seen.uid != *owner.uid || seen.deleting || seen.phase == Some(Phase::Finished))
        }
        Owner::Request(owner) => !case.world.supply.has_request(owner),
        Owner::Pods => false,
    }
}

/// Whether its nodes are booked, for a gang that the batch does not know.
fn is_booked(batch: &Batch) -> bool {
    matches!(batch.spec.owner, Owner::Request(_))
}

/// Whether it is to be written down that a gang has run on booked nodes: whatever the phase, what was used is no loss when it is
/// gone. An earlier version did not write it down with the phase.
pub(super) fn is_first_use(case: &Case<'_>, next: Option<&BatchStatus>) -> bool {
    let status = &case.batch.status;
    let unnoted = is_booked(case.batch) && case.batch.newer.is_none() && !status.used;
    unnoted
        && (next.unwrap_or(status).phase == BatchPhase::InUse
            || status.phase == BatchPhase::InUse
            || is_used(case, status))
}

/// What is reported of a batch whose gang was evicted, as long as it may come again.
pub(super) const NOT_COME_AGAIN: &str = "its gang was evicted and has not come again";

/// Whether a gang has run on booked nodes, and none stands there or comes again. One that was evicted and has no pods yet is not known:
/// whoever ends something by this waits for [`COMES_AGAIN`].
pub(super) fn is_over(case: &Case<'_>) -> bool {
    let status = &case.batch.status;
    is_booked(case.batch) && status.used && !is_used(case, status) && !comes_again(case)
}

/// Whether a gang has reached its commit point on nodes of the batch.
pub(super) fn is_used(case: &Case<'_>, status: &BatchStatus) -> bool {
    user(case, status).is_some()
}

/// The gang that has reached its commit point on nodes of the batch: the one it was launched for, or the one that
/// consumes its booking.
pub(super) fn user<'a>(case: &Case<'a>, status: &BatchStatus) -> Option<&'a Gang> {
    let snapshot = case.world.snapshot;
    let stands = |seen: &&'a Gang| has_committed(seen) && uses(seen, status);
    match &case.batch.spec.owner {
        Owner::Gang(_) => gang(case.batch, snapshot).filter(stands),
        Owner::Request(request) => consumers(request, snapshot).find(stands),
        Owner::Pods => None,
    }
}

/// Whether a gang that consumes the booking lives and has not reached its commit point anywhere: it was evicted, and may come again.
pub(super) fn comes_again(case: &Case<'_>) -> bool {
    let Owner::Request(request) = &case.batch.spec.owner else { return false };
    let waits = |seen: &Gang| !seen.deleting && seen.phase != Some(Phase::Finished) && !has_committed(seen);
    consumers(request, case.world.snapshot).any(waits)
}

/// Gangs that consume a booking.
fn consumers<'a>(request: &OwnerRef, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a Gang> {
    let consumes = |key: &ObjectKey, recognised: &Recognised| {
        key.namespace == request.key.namespace && recognised.booking.as_deref() == Some(&*request.key.name)
    };
    let of_booking = snapshot.recognised.iter().filter(move |(key, recognised)| consumes(key, recognised));
    of_booking.filter_map(|(key, _)| snapshot.gangs.get(key)).map(AsRef::as_ref)
}

/// The gang a batch is for, as the cache has it.
pub(super) fn gang<'a>(batch: &Batch, snapshot: &'a Snapshot) -> Option<&'a Gang> {
    match &batch.spec.owner {
        Owner::Gang(owner) => snapshot.gangs.get(&owner.key).map(AsRef::as_ref),
        Owner::Request(_) | Owner::Pods => None,
    }
}

/// The gang of a batch, if it is not whole or cannot be read, so that it could use no node; and since when.
pub(super) fn incomplete<'a>(case: &Case<'a>) -> Option<(&'a Gang, Option<Timestamp>)> {
    let gang = gang(case.batch, case.world.snapshot)?;
    let own = case.batch.spec.owner.gang_uid().is_some_and(|uid| *uid == *gang.uid);
    let incomplete = matches!(gang.phase, Some(Phase::Collecting | Phase::Invalid));
    (own && incomplete).then_some((gang, gang.since))
}

fn has_committed(gang: &Gang) -> bool {
    matches!(gang.phase, Some(Phase::Committing | Phase::Bound | Phase::Degraded))
}

fn uses(gang: &Gang, status: &BatchStatus) -> bool {
    let on = |instance: &BatchMember, node: &str| instance.node.as_deref() == Some(node);
    gang.places.iter().any(|place| status.instances.iter().any(|instance| on(instance, place.node.as_str())))
}
