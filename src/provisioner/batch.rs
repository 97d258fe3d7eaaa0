//! One NodeBatch from `Pending` to gone: which step comes next.

use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use kube::{Api, ResourceExt};
use muster_api::crd::{Gang, NodeBatch, ProvisioningRequest, set_condition};
use muster_core::ec2::{CallError, ErrorClass};
use muster_core::model::gang::Phase;
use muster_core::model::names::ObjectKey;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::store::{Held, STATUS_VERSION};
use super::{Context, class, join, launch, repair, teardown};
use crate::clock::now_real;
use crate::cluster::State;

/// When to look at the batch again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// At once: the batch moved on.
    Now,
    /// On a change, or at this time of the provisioner's clock.
    At(Timestamp),
    /// At this time of the provisioner's clock and no sooner, whatever changes meanwhile: what EC2 is asked again must
    /// be given time, and the batch's own writes are changes too.
    Pause(Timestamp),
    /// The object is gone.
    Gone,
}

/// Drives a batch until it is gone or the term ends. A step that fails is decided anew after a back-off.
pub(super) async fn drive(context: &Context, name: &str, term: &CancellationToken) {
    let mut changes = context.cluster.changes();
    let Some(first) = context.cluster.load().batches.get(name).cloned() else { return };
    let mut held = Held::new(NodeBatch::clone(&first));
    let mut failures: u32 = 0;
    loop {
        if term.is_cancelled() {
            return;
        }
        changes.borrow_and_update();
        let state = context.cluster.load();
        match state.batches.get(name) {
            Some(seen) => held.refresh(seen),
            // Gone, or not in the cache of a replica that has just created it: the first reading came from the cache.
            None => return,
        }
        let next = match advance(context, &mut held, &state).await {
            Ok(Next::Gone) => return,
            Ok(next) => {
                failures = 0;
                allowed(context, &mut held).await;
                succeeds_again(context, &mut held).await;
                next
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                let text = crate::telemetry::chain(&error);
                denied(context, &mut held, &error).await;
                if failures == 3 {
                    warn!(error = text, "a step keeps failing and is tried again");
                    keeps_failing(context, &mut held, &text).await;
                } else {
                    debug!(error = text, "a step failed and is decided anew");
                }
                let pause = Duration::from_millis(200u64.saturating_mul(1 << failures.min(6)));
                tokio::select! {
                    () = term.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
                continue;
            }
        };
        match next {
            Next::Gone => return,
            Next::Now => {}
            Next::At(at) => {
                tokio::select! {
                    () = term.cancelled() => return,
                    changed = changes.changed() => if changed.is_err() { return },
                    () = tokio::time::sleep(context.clock.real_until(at)) => {}
                }
            }
            Next::Pause(at) => {
                tokio::select! {
                    () = term.cancelled() => return,
                    () = tokio::time::sleep(context.clock.real_until(at)) => {}
                }
            }
        }
    }
}

/// What [`keeps_failing`] says begins so.
const KEEPS_FAILING: &str = "a step keeps failing and is tried again";

/// Takes back what [`keeps_failing`] said.
async fn succeeds_again(context: &Context, held: &mut Held) {
    let mut status = held.status();
    if status.message.as_deref().is_some_and(|said| said.starts_with(KEEPS_FAILING)) {
        status.message = None;
        if let Err(error) = held.write(context, status).await {
            debug!(error = crate::telemetry::chain(&error), "what failed before is not taken back yet");
        }
    }
}

/// Says on the batch what it cannot get past, whatever it waited for before.
async fn keeps_failing(context: &Context, held: &mut Held, text: &str) {
    let mut status = held.status();
    status.message = Some(format!("{KEEPS_FAILING}: {text}"));
    if let Err(error) = held.write(context, status).await {
        debug!(error = crate::telemetry::chain(&error), "what keeps failing is not told yet");
    }
}

/// Says on the batch that it cannot go on for want of a right. It is tried again; nothing else helps.
async fn denied(context: &Context, held: &mut Held, error: &anyhow::Error) {
    let Some(call) = error.chain().find_map(|cause| cause.downcast_ref::<CallError>()) else { return };
    if call.kind != ErrorClass::Permission {
        return;
    }
    let mut status = held.status();
    let message = context
        .cloud
        .lacks(class::of_batch(held, &context.cluster.load()).as_deref())
        .unwrap_or_else(|| call.to_string());
    set_condition(&mut status.conditions, "Authorized", false, "NotAuthorized", &message, now_real());
    if let Err(error) = held.write(context, status).await {
        debug!(error = crate::telemetry::chain(&error), "a missing right is not told yet");
    }
}

/// Takes back what [`denied`] said.
async fn allowed(context: &Context, held: &mut Held) {
    let mut status = held.status();
    let told = status.conditions.iter().any(|one| one.type_ == "Authorized" && one.status == "False");
    if !told {
        return;
    }
    set_condition(&mut status.conditions, "Authorized", true, "Authorized", "", now_real());
    if let Err(error) = held.write(context, status).await {
        debug!(error = crate::telemetry::chain(&error), "a right that is there again is not told yet");
    }
}

async fn advance(context: &Context, held: &mut Held, state: &State) -> anyhow::Result<Next> {
    let mut status = held.status();
    let now = context.clock.now();
    if status.version > STATUS_VERSION {
        debug!("the status is of a newer version: left alone");
        return Ok(Next::At(later(now, 60)));
    }
    let settled = matches!(status.phase.as_str(), "Idle" | "Draining" | "Terminating" | "InUse");
    if !settled && unwanted(context, held, state).await? {
        // A launch whose outcome is open must be settled first: what it made has to be found.
        let open = held.attempt().is_some_and(|attempt| attempt.outcome == "Launching" && attempt.parameters.is_some());
        if !open && status.phase != "Replacing" {
            "Draining".clone_into(&mut status.phase);
            status.message = Some("no longer needed: being given back".to_owned());
            held.write(context, status).await?;
            return Ok(Next::Now);
        }
    }
    if !status.replaced.is_empty() && repair::give_back(context, held, state).await? {
        status = held.status();
    }
    if matches!(status.phase.as_str(), "Ready" | "InUse") && repair::notice_absent(&mut status, state, now) {
        held.write(context, status).await?;
        return Ok(Next::Now);
    }
    let lost = !repair::lost(&status, now).is_empty();
    match status.phase.as_str() {
        "" | "Pending" => launch::pending(context, held, state).await,
        "Launching" => launch::launching(context, held, state).await,
        "Launched" => join::launched(context, held, state).await,
        "Joining" => join::joining(context, held, state).await,
        "Replacing" => repair::replacing(context, held, state).await,
        "Ready" | "InUse" if lost && !owner_gone(held, state) => repair::lost_in_use(context, held, state).await,
        "Ready" => join::ready(context, held, state).await,
        "InUse" => teardown::in_use(context, held, state).await,
        "Idle" => teardown::idle(context, held, state).await,
        "Draining" => teardown::draining(context, held, state).await,
        "Terminating" => teardown::terminating(context, held, state).await,
        phase => {
            warn!(phase, "a phase of a newer version: left alone");
            Ok(Next::At(later(now, 60)))
        }
    }
}

/// Whether nobody waits for the batch any more.
///
/// The cache may show a NodeBatch before the Gang it was created for, since each kind has a watch of its own: an owner
/// that is missing there is looked up before its batch is given up.
pub(super) async fn unwanted(context: &Context, held: &Held, state: &State) -> anyhow::Result<bool> {
    if held.object.metadata.deletion_timestamp.is_some() {
        return Ok(true);
    }
    if !owner_gone(held, state) {
        return Ok(elsewhere(held, state));
    }
    let spec = &held.object.spec;
    if let Some(gang) = &spec.gang_ref {
        let api: Api<Gang> = Api::namespaced(context.client.clone(), &gang.namespace);
        let seen = api.get_opt(&gang.name).await.context("look up the gang of the NodeBatch")?;
        return Ok(seen.is_none_or(|seen| {
            let ended = seen.status.as_ref().is_some_and(|status| status.phase == Phase::Finished.as_str());
            seen.uid().as_deref() != Some(gang.uid.as_str()) || seen.metadata.deletion_timestamp.is_some() || ended
        }));
    }
    if let Some(request) = &spec.provisioning_request_ref {
        let api: Api<ProvisioningRequest> = Api::namespaced(context.client.clone(), &request.namespace);
        let seen = api.get_opt(&request.name).await.context("look up the ProvisioningRequest of the NodeBatch")?;
        return Ok(seen.is_none_or(|seen| seen.uid().as_deref() != Some(request.uid.as_str())));
    }
    Ok(false)
}

/// Whether the gang got its room elsewhere: it has passed its commit point on other nodes, or goes on with a later
/// round. Happens when a process ended between the creation of the batch and the status that names it.
pub(super) fn elsewhere(held: &Held, state: &State) -> bool {
    let Some(gang) = &held.object.spec.gang_ref else { return false };
    let key = ObjectKey::new(gang.namespace.as_str(), gang.name.as_str());
    let Some(seen) = state.snapshot.gangs.get(&key) else { return false };
    let round = |name: &str| name.rsplit_once('-').and_then(|(_, round)| round.parse::<u32>().ok());
    if seen.batch.as_deref().and_then(round) > round(&held.name()) {
        return true;
    }
    let status = held.status();
    let on_ours = |node: &str| status.instances.iter().any(|instance| instance.node.as_deref() == Some(node));
    matches!(seen.phase, Some(Phase::Committing | Phase::Bound | Phase::Degraded))
        && !seen.places.iter().any(|place| on_ours(place.node.as_str()))
}

/// Whether the gang or request the batch was bought for is gone or has ended.
pub(super) fn owner_gone(held: &Held, state: &State) -> bool {
    if let Some(gang) = &held.object.spec.gang_ref {
        let key = ObjectKey::new(gang.namespace.as_str(), gang.name.as_str());
        return state
            .snapshot
            .gangs
            .get(&key)
            .is_none_or(|seen| *seen.uid != *gang.uid || seen.deleting || seen.phase == Some(Phase::Finished));
    }
    if let Some(request) = &held.object.spec.provisioning_request_ref {
        let key = ObjectKey::new(request.namespace.as_str(), request.name.as_str());
        return state.requests.get(&key).is_none_or(|seen| seen.metadata.uid.as_deref() != Some(request.uid.as_str()));
    }
    false
}

/// `seconds` later.
pub(super) fn later(now: Timestamp, seconds: i64) -> Timestamp {
    now.saturating_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}
