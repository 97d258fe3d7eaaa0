//! Reading and writing one NodeBatch: every write is conditional, and what was written is believed at once.

use jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use muster_api::crd::{BatchAttempt, BatchBilling, NodeBatch, NodeBatchStatus, is_true};
use muster_api::keys;
use muster_core::batch::{AttemptKind, PastAttempt, cost_between, kept, strands};
use serde_json::json;
use tracing::info;

use super::Context;
use crate::step::{Step, step};

/// Version of `NodeBatch.status` this code writes.
pub(super) const STATUS_VERSION: u32 = 1;

/// One NodeBatch under way.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) object: NodeBatch,
    /// The last message logged, so that waiting does not fill the log.
    logged: Option<String>,
    /// The status up to which events were published. `object` may be ahead by what is not written yet.
    published: NodeBatchStatus,
    /// When EC2 was last asked whether the instances still live.
    pub(super) looked: Option<Timestamp>,
    /// When lost instances were last looked after.
    pub(super) cleared: Option<Timestamp>,
    /// How often the placement group was not available yet.
    pub(super) group_looks: u32,
}

impl Held {
    pub(super) fn new(object: NodeBatch) -> Self {
        let published = object.status.clone().unwrap_or_default();
        Self { object, logged: None, published, looked: None, cleared: None, group_looks: 0 }
    }

    pub(super) fn name(&self) -> String {
        self.object.name_any()
    }

    pub(super) fn uid(&self) -> String {
        self.object.uid().unwrap_or_default()
    }

    pub(super) fn status(&self) -> NodeBatchStatus {
        self.object.status.clone().unwrap_or_default()
    }

    pub(super) fn attempt(&self) -> Option<BatchAttempt> {
        self.object.status.as_ref()?.attempts.last().cloned()
    }

    /// The placement group the instances are in: the batch's own, or the one its reservation was made in.
    pub(super) fn group(&self) -> Option<String> {
        let attempt = self.attempt().filter(|attempt| attempt.group)?;
        attempt.reservation_group.or_else(|| self.object.status.as_ref()?.placement_group.clone())
    }

    /// Takes a newer object from the watch.
    pub(super) fn refresh(&mut self, seen: &NodeBatch) {
        let version = |object: &NodeBatch| object.resource_version().and_then(|version| version.parse::<u64>().ok());
        if version(seen) > version(&self.object) {
            self.object = seen.clone();
        }
    }

    /// Writes the status. A conflict is an error; the caller reads again and decides again.
    pub(super) async fn write(&mut self, context: &Context, mut status: NodeBatchStatus) -> anyhow::Result<()> {
        status.version = STATUS_VERSION;
        let mut kept = kept(&past(&status.attempts), status.round_from).into_iter();
        status.attempts.retain(|_| kept.next().unwrap_or(true));
        status.nodes = format!("{}/{}", status.ready_count, status.instances.len());
        if self.object.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let before = self.object.status.as_ref().map(|before| before.phase.clone()).unwrap_or_default();
        if before != status.phase || status.since.is_none() {
            status.since = Some(crate::clock::now_real());
        }
        if before != status.phase || status.message != self.logged {
            info!(
                phase = status.phase,
                attempt = status.attempt,
                instance_type = status.instance_type,
                zone = status.zone,
                message = status.message,
                "batch"
            );
            self.logged.clone_from(&status.message);
        }
        if let Some(before) = &self.object.status {
            bill(before, &mut status, context.clock.now());
        }
        let batches: Api<NodeBatch> = Api::all(context.client.clone());
        let before = self.published.clone();
        let mut object = self.object.clone();
        object.status = Some(status);
        let written =
            step(Step::WriteBatch, batches.replace_status(&self.name(), &PostParams::default(), &object)).await;
        match written {
            Ok(written) => {
                self.object = written;
                context.written.remember(&self.object);
                self.published = self.status();
                context.metrics.stranded(&before, &self.published);
                for event in super::events::between(&before, &self.published) {
                    context.events.publish(&self.object, &event).await;
                }
            }
            Err(error) => {
                if let Ok(Some(newer)) = batches.get_opt(&self.name()).await {
                    self.object = newer;
                }
                return Err(anyhow::Error::new(error).context("write the status of the NodeBatch"));
            }
        }
        context.wake.notify_one();
        Ok(())
    }

    /// Removes the finalizer and the object: nothing of the batch is left in EC2.
    pub(super) async fn remove(&self, context: &Context) -> anyhow::Result<()> {
        let batches: Api<NodeBatch> = Api::all(context.client.clone());
        let name = self.name();
        match step(Step::EditBatch, batches.delete(&name, &DeleteParams::default())).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let others: Vec<String> =
            self.object.finalizers().iter().filter(|finalizer| *finalizer != keys::TERMINATION).cloned().collect();
        let patch = json!({"metadata": {"finalizers": others}});
        match step(Step::EditBatch, batches.patch(&name, &PatchParams::default(), &Patch::Merge(&patch))).await {
            Ok(_) => {
                context.events.publish(&self.object, &super::events::gone()).await;
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Sums up what the batch cost in the phase it leaves.
fn bill(before: &NodeBatchStatus, after: &mut NodeBatchStatus, now: Timestamp) {
    let same = before.phase == after.phase
        && before.instances.len() == after.instances.len()
        && before.replaced.len() == after.replaced.len();
    let billing = after.billing.get_or_insert_with(BatchBilling::default);
    if same && billing.since.is_some() {
        return;
    }
    if let Some(since) = billing.since.replace(now) {
        let spent = cost_between(crate::gang::price_now(before), since, now);
        billing.spent_micro_usd = billing.spent_micro_usd.saturating_add(spent);
        let ran = is_true(&before.conditions, "Interrupted");
        let replacing = before.attempts.last().is_some_and(|attempt| !attempt.replaces.is_empty());
        if let Some(cause) = strands(&before.phase, replacing, ran).filter(|_| spent > 0) {
            let sum = billing.stranded_micro_usd.entry(cause.as_str().to_owned()).or_default();
            *sum = sum.saturating_add(spent);
        }
    }
}

/// The attempts of a status, as far as the choice of the next candidate depends on them.
pub(super) fn past(attempts: &[BatchAttempt]) -> Vec<PastAttempt<'_>> {
    let kind = |attempt: &BatchAttempt| match attempt.outcome.as_str() {
        _ if !attempt.replaces.is_empty() => AttemptKind::Replacement,
        "Retry" => AttemptKind::Retry,
        "Won" => AttemptKind::LaunchedWhole,
        _ => AttemptKind::Tried,
    };
    attempts
        .iter()
        .map(|attempt| PastAttempt {
            number: attempt.number,
            kind: kind(attempt),
            instance_type: &attempt.instance_type,
            zone: &attempt.zone,
            subnet: &attempt.subnet,
            capacity_type: &attempt.capacity_type,
            group: attempt.group,
            reservation: attempt.reservation.as_deref(),
        })
        .collect()
}

/// Closes the current attempt.
pub(super) fn close_attempt(
    status: &mut NodeBatchStatus,
    outcome: &str,
    code: Option<String>,
    message: Option<String>,
    now: Timestamp,
) {
    if let Some(attempt) = status.attempts.last_mut() {
        outcome.clone_into(&mut attempt.outcome);
        attempt.code = code;
        attempt.message = message;
        attempt.ended = Some(now);
    }
}
