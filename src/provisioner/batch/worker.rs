//! Carries out what [`muster_core::batch::pass`] decides about NodeBatches. It has no choices left.
//!
//! For each decision: the status is written first, conditional on the version it was decided on; once that is
//! acknowledged, edits of the API server, the one change of EC2 and the looks follow, and what comes back goes into the
//! next pass. Decisions of several batches are carried out side by side, so that a slow answer for one never holds up
//! another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use muster_api::batch_state;
use muster_api::crd::NodeBatch;
use muster_core::batch::{
    Begun, Converge, Decision, Done, Failure, Look, Memory, Remains, Report, Requeue, Sight, Unshown, World, assume,
    pass, recorded_pass, witness,
};
use muster_core::ec2::CallError;
use muster_core::model::batch::Batch;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info, info_span, warn};

use super::effects::{self, Edited};
use super::supply::Shelves;
use crate::clock::now_real;
use crate::cloud::{for_class, in_lane};
use crate::cluster::{SeenBatch, State, version};
use crate::provisioner::{Context, class};
use crate::step::{Step, step};

/// Objects edited at once for one batch.
const EDITS: usize = 16;

/// Failures in a row after which a person reads of them in the log.
const FAILURES: u32 = 3;

/// Losses that wait to be written down; more make who found them wait.
const REPORTS: usize = 256;

/// A loss that somebody found, and where it is answered once it is written down, or known already.
#[derive(Debug)]
pub(in crate::provisioner) struct Reported {
    /// Name of the batch.
    pub(in crate::provisioner) batch: String,
    /// What was found.
    pub(in crate::provisioner) report: Report,
    /// Whether it was news.
    pub(in crate::provisioner) written: oneshot::Sender<bool>,
}

/// Where losses are reported.
pub(in crate::provisioner) type Reports = mpsc::Sender<Reported>;

/// The channel of losses.
pub(in crate::provisioner) fn reports() -> (Reports, mpsc::Receiver<Reported>) {
    mpsc::channel(REPORTS)
}

/// When a batch is looked at again.
#[derive(Clone, Copy, Debug)]
struct Due {
    at: Instant,
    /// Whether a change of the cluster is no reason to look sooner.
    ignores_changes: bool,
}

/// What is known of the cluster, beside what it shows.
#[derive(Clone, Copy, Debug)]
pub(in crate::provisioner) struct Seen {
    /// It is another than at the last pass.
    pub(in crate::provisioner) changed: bool,
    /// A watch is too old for it to be trusted.
    pub(in crate::provisioner) stale: bool,
    /// When all answered again after one was.
    pub(in crate::provisioner) regained: Option<Timestamp>,
}

/// Everything the worker of one term knows.
#[derive(Debug, Default)]
pub(in crate::provisioner) struct Worker {
    memory: BTreeMap<String, Memory>,
    /// Objects as the API server answered to writes, until the watch shows them or something newer.
    written: BTreeMap<String, SeenBatch>,
    /// Batches whose status is being written, as others count them meanwhile.
    intended: BTreeMap<String, Arc<Batch>>,
    due: BTreeMap<String, Due>,
    busy: BTreeSet<String>,
    /// Edits of Nodes that the watch has not shown yet.
    unshown: Unshown,
    /// Changes of the cluster so far.
    changes: u64,
    /// Who waits for a loss to be written down, by batch, in the order of `Memory::reports`.
    waiting: BTreeMap<String, Vec<oneshot::Sender<bool>>>,
    tasks: JoinSet<Carried>,
}

/// What came of a decision.
#[derive(Debug)]
struct Carried {
    batch: String,
    /// Changes of the cluster before the decision.
    changes: u64,
    write: Write,
    news: bool,
    /// Reports that waited when it was made.
    reports: usize,
    remains: Remains,
    requeue: Requeue,
    /// Edits of Nodes.
    begun: Begun,
    effects: Effects,
}

impl Carried {
    /// Of a decision of which nothing is carried out yet.
    fn of(decision: &Decision, changes: u64, reports: usize) -> Self {
        Self {
            batch: decision.batch.clone(),
            changes,
            write: Write::Nothing,
            news: decision.next.is_some(),
            reports,
            remains: Remains::of(decision),
            requeue: decision.requeue,
            begun: Begun::new(),
            effects: Effects::default(),
        }
    }
}

#[derive(Debug)]
enum Write {
    /// Nothing was to be written.
    Nothing,
    Acknowledged(Box<NodeBatch>),
    /// Somebody else was faster: decided again on what there is now, if there is anything.
    Conflict(Option<Box<NodeBatch>>),
    Failed(String),
    /// The lease was gone before it was sent, and nothing followed.
    Withheld,
}

/// Outcomes of effects.
#[derive(Debug, Default)]
pub(in crate::provisioner) struct Effects {
    pub(in crate::provisioner) done: Option<Done>,
    pub(in crate::provisioner) seen: Vec<(Look, Result<Sight, CallError>)>,
    pub(in crate::provisioner) failed: Option<Failure>,
    pub(in crate::provisioner) removed: bool,
    /// All edits were made.
    pub(in crate::provisioner) made: bool,
    /// There were edits, and nothing else, and none of them failed that anything waits for.
    pub(in crate::provisioner) edited: bool,
}

impl Worker {
    /// Decides about every batch that is due, and begins to carry that out.
    pub(in crate::provisioner) fn pass(
        &mut self,
        context: &Arc<Context>,
        state: &Arc<State>,
        Seen { changed, stale, regained }: Seen,
        term: &CancellationToken,
    ) {
        self.changes = self.changes.wrapping_add(u64::from(changed));
        let batches = self.batches(state);
        let now = Instant::now();
        let sleeps = |name: &String| {
            let due = self.due.get(name);
            due.is_some_and(|due| due.at > now && (due.ignores_changes || !changed))
        };
        let asleep: BTreeSet<String> =
            batches.keys().filter(|name| self.busy.contains(*name) || sleeps(name)).cloned().collect();
        if asleep.len() == batches.len() {
            return;
        }
        context.keep(witness(&batches, &state.snapshot, &mut self.memory));
        let shelves = Shelves { context, state };
        let world = World {
            batches: &batches,
            memory: &self.memory,
            busy: &asleep,
            snapshot: &state.snapshot,
            stale,
            regained,
            supply: &shelves,
            settings: &context.batch_settings,
            now: context.clock.now(),
            now_real: now_real(),
        };
        let decisions = match &context.options.recorder {
            None => pass(&world),
            Some(recorder) => {
                let (decisions, recorded) = recorded_pass(&world);
                if let Some(recorded) = recorded {
                    recorder.keep_batches(recorded, &decisions);
                }
                decisions
            }
        };
        for decision in decisions {
            self.begin(context, state, decision, term);
        }
    }

    /// When the next batch is due.
    pub(in crate::provisioner) fn next(&self) -> Option<Instant> {
        self.due.iter().filter(|(name, _)| !self.busy.contains(*name)).map(|(_, due)| due.at).min()
    }

    /// Waits until a decision is carried out, for ever if none is under way. Errors: a task that died, which is a bug.
    pub(in crate::provisioner) async fn carried(&mut self, context: &Context) -> anyhow::Result<()> {
        match self.tasks.join_next().await {
            None => std::future::pending().await,
            Some(Ok(carried)) => {
                self.end(context, carried);
                Ok(())
            }
            Some(Err(error)) if error.is_cancelled() => Ok(()),
            Some(Err(error)) => anyhow::bail!("what carries out a NodeBatch's decision died: {error}"),
        }
    }

    /// Finishes what was begun: a call that was sent is awaited, and nothing new is sent.
    pub(in crate::provisioner) async fn finish(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    /// Takes a loss into the next pass.
    pub(in crate::provisioner) fn report(&mut self, state: &State, reported: Reported) {
        let Reported { batch, report, written } = reported;
        let known = self.written.get(&batch).or_else(|| state.batches.get(&batch));
        let Some(known) = known else {
            let _ = written.send(false);
            return;
        };
        if known.batch().newer.is_some() {
            // It cannot be written down: whoever brought it is answered at once that it was not, and keeps it.
            return;
        }
        let place = self.memory.entry(batch.clone()).or_default().report(report);
        let waiting = self.waiting.entry(batch.clone()).or_default();
        match waiting.get_mut(place) {
            // Nobody waits for the first answer any more.
            Some(known) => *known = written,
            None => waiting.push(written),
        }
        self.due.remove(&batch);
    }

    /// Batches as the watch shows them, own writes assumed until it does.
    fn batches(&mut self, state: &State) -> BTreeMap<String, Arc<Batch>> {
        self.written.retain(|name, written| {
            state.batches.get(name).is_some_and(|seen| version(&**seen.object()) < version(&**written.object()))
        });
        let gone = |name: &String| !state.batches.contains_key(name);
        self.memory.retain(|name, _| !gone(name));
        self.due.retain(|name, _| !gone(name));
        self.waiting.retain(|name, _| !gone(name));
        let mut batches = BTreeMap::new();
        for (name, seen) in state.batches.iter() {
            let seen = self.written.get(name).unwrap_or(seen);
            let batch = self.intended.get(name).unwrap_or(seen.batch());
            batches.insert(name.clone(), Arc::clone(batch));
        }
        batches
    }

    fn begin(&mut self, context: &Arc<Context>, state: &Arc<State>, mut decision: Decision, term: &CancellationToken) {
        let name = decision.batch.clone();
        let Some(seen) = self.written.get(&name).or_else(|| state.batches.get(&name)) else { return };
        let (object, batch) = (Arc::clone(seen.object()), Arc::clone(seen.batch()));
        let reports = self.memory.get(&name).map_or(0, |memory| memory.reports.len());
        decision.converge = self.unshown.rest(decision.converge, &state.snapshot, now_real());
        if decision.is_waiting() {
            self.end(context, Carried::of(&decision, self.changes, reports));
            return;
        }
        if let Some(next) = &decision.next {
            self.intended.insert(name.clone(), assume(&batch, next));
        }
        self.busy.insert(name.clone());
        let mut carried = Carried::of(&decision, self.changes, reports);
        carried.begun = Unshown::begin(&decision.converge, &state.snapshot);
        let (context, state, term) = (Arc::clone(context), Arc::clone(state), term.clone());
        let span = info_span!("batch", name);
        // Insufficient capacity of one pool must not hold up the launches of another.
        let lane = Arc::from(object.spec.node_pools.join(","));
        self.tasks.spawn(
            async move { in_lane(lane, Box::pin(carry_out(&context, &state, &object, decision, carried, &term))).await }
                .instrument(span),
        );
    }

    fn end(&mut self, context: &Context, carried: Carried) {
        let Carried { batch, changes, write, news, reports, remains, requeue, begun, effects } = carried;
        self.busy.remove(&batch);
        self.intended.remove(&batch);
        if effects.removed {
            self.memory.remove(&batch);
            self.written.remove(&batch);
            // The watch shows it for a moment longer.
            self.due.insert(batch, Due { at: Instant::now() + Duration::from_secs(2), ignores_changes: true });
            return;
        }
        let memory = self.memory.entry(batch.clone()).or_default();
        let mut requeue = requeue;
        match write {
            Write::Withheld => return,
            Write::Conflict(Some(newer)) => {
                memory.superseded();
                self.written.insert(batch.clone(), SeenBatch::new(Arc::from(newer)));
                self.due.remove(&batch);
                return;
            }
            Write::Conflict(None) => {
                // Its object is gone, which the watch does not show yet, or it cannot be read.
                let again = memory.unwritten();
                self.requeue(context, batch, again, changes);
                return;
            }
            Write::Failed(text) => {
                let again = memory.unwritten();
                if memory.failures == FAILURES {
                    warn!(batch, error = text, "the status of a batch cannot be written, tried again");
                } else {
                    debug!(batch, error = text, "the status of a batch is not written");
                }
                self.requeue(context, batch, again, changes);
                return;
            }
            Write::Acknowledged(written) => {
                self.written.insert(batch.clone(), SeenBatch::new(Arc::from(written)));
            }
            Write::Nothing => {}
        }
        let settled = memory.settle(&remains);
        requeue = memory.due(requeue, reports, settled.len());
        for reported in &settled {
            debug!(reason = reported.reason, "a loss is written down, or was known");
        }
        if let Some(waiting) = self.waiting.get_mut(&batch) {
            for written in waiting.drain(..settled.len().min(waiting.len())) {
                let _ = written.send(news);
            }
        }
        if matches!(requeue, Requeue::Retry(_)) && memory.failures == FAILURES {
            warn!(batch, "a step keeps failing and is tried again");
        }
        if effects.done.is_some() {
            memory.seen.clear();
            memory.done = effects.done;
            requeue = Requeue::Now;
        }
        if effects.made {
            self.unshown.made(begun, now_real());
        }
        if effects.edited {
            memory.carried_out();
        }
        memory.seen.extend(effects.seen);
        if let Some(failure) = effects.failed {
            memory.failed(failure);
            requeue = Requeue::Now;
        }
        self.requeue(context, batch, requeue, changes);
    }

    /// Notes when a batch is looked at again. `changes`: those of the cluster before it was decided about.
    fn requeue(&mut self, context: &Context, batch: String, requeue: Requeue, changes: u64) {
        let now = Instant::now();
        let clock = |at| now + context.clock.real_until(at);
        let due = match requeue {
            // Also where nothing was carried out that would end and ring.
            Requeue::Now => Some(Due { at: now, ignores_changes: false }),
            Requeue::Outcome => None,
            // A change that came while the decision was carried out is one to look at.
            Requeue::At(_) if changes != self.changes => Some(Due { at: now, ignores_changes: false }),
            Requeue::At(at) => Some(Due { at: clock(at), ignores_changes: false }),
            Requeue::Pause(at) => Some(Due { at: clock(at), ignores_changes: true }),
            Requeue::Retry(pause) => Some(Due { at: now + pause, ignores_changes: true }),
        };
        match due {
            Some(due) => self.due.insert(batch, due),
            None => self.due.remove(&batch),
        };
    }
}

async fn carry_out(
    context: &Context,
    state: &State,
    object: &NodeBatch,
    decision: Decision,
    mut carried: Carried,
    term: &CancellationToken,
) -> Carried {
    if term.is_cancelled() {
        carried.write = Write::Withheld;
        return carried;
    }
    if let Some(next) = &decision.next {
        carried.write = write(context, object, next).await;
        match &carried.write {
            Write::Acknowledged(_) | Write::Nothing => {}
            Write::Conflict(_) | Write::Failed(_) | Write::Withheld => return carried,
        }
    }
    let now = match &carried.write {
        Write::Acknowledged(written) => Box::clone(written),
        Write::Nothing | Write::Conflict(_) | Write::Failed(_) | Write::Withheld => Box::new(object.clone()),
    };
    let pool = now.status.as_ref().and_then(|status| status.node_pool.as_deref());
    let follow = Box::pin(follow(context, state, &now, decision, term));
    // A permission that a launch lacks is then one that its class lacks.
    carried.effects = match class::name_of(state, pool) {
        Some(class) => for_class(class.into(), follow).await,
        None => follow.await,
    };
    carried
}

/// What follows once the status is acknowledged.
async fn follow(
    context: &Context,
    state: &State,
    object: &NodeBatch,
    decision: Decision,
    term: &CancellationToken,
) -> Effects {
    let Decision { change, converge, looks, notes, events, .. } = decision;
    let mut outcome = Effects::default();
    effects::learn(context, state, notes);
    effects::publish(context, state, object, &events).await;
    let edits = !converge.is_empty();
    match edit_all(context, state, object, converge, term).await {
        Ok((removed, made)) => {
            (outcome.removed, outcome.made, outcome.edited) = (removed, made, edits && change.is_none());
        }
        Err(error) => {
            outcome.failed = Some(Failure { text: crate::telemetry::chain(&error), denied: false });
            return outcome;
        }
    }
    // Without the lease nothing is sent; the successor replays it.
    if let Some(change) = change.filter(|_| !term.is_cancelled()) {
        let result = effects::change(context, state, &change).await;
        outcome.done = Some(Done { change, result });
    }
    for look in looks {
        if term.is_cancelled() {
            return outcome;
        }
        let result = effects::look(context, state, &look).await;
        outcome.seen.push((look, result));
    }
    outcome
}

/// Brings objects where they should be, some side by side; the batch itself goes last. Whether it is gone, and whether all edits were made.
async fn edit_all(
    context: &Context,
    state: &State,
    object: &NodeBatch,
    edits: Vec<Converge>,
    term: &CancellationToken,
) -> anyhow::Result<(bool, bool)> {
    let (last, edits): (Vec<Converge>, Vec<Converge>) = edits.into_iter().partition(|edit| *edit == Converge::Remove);
    let edit = |edit: Converge| async move {
        if term.is_cancelled() {
            return Ok(false);
        }
        Ok(effects::converge(context, state, object, &edit).await? != Edited::Not)
    };
    let made = all(edits.into_iter().map(edit), EDITS).await?;
    let mut removed = false;
    for edit in last.iter().filter(|_| !term.is_cancelled()) {
        removed |= effects::converge(context, state, object, edit).await? == Edited::Removed;
    }
    Ok((removed, made))
}

/// Awaits them all, some side by side, whatever becomes of one: what fails for one object is no reason to leave another half done.
/// Whether all of them were made, or the first error.
async fn all(
    edits: impl Iterator<Item = impl Future<Output = anyhow::Result<bool>>>,
    at_once: usize,
) -> anyhow::Result<bool> {
    let results: Vec<anyhow::Result<bool>> = futures::stream::iter(edits).buffer_unordered(at_once).collect().await;
    results.into_iter().try_fold(true, |all, made| Ok(all & made?))
}

/// Writes a status. Everything else waits for the answer.
async fn write(context: &Context, object: &NodeBatch, next: &muster_core::model::batch::BatchStatus) -> Write {
    let status = match batch_state::write(next) {
        Ok(status) => status,
        Err(error) => return Write::Failed(format!("the status cannot be reported as JSON: {error}")),
    };
    let before = object.status.as_ref();
    let moved = before.is_none_or(|before| before.phase != status.phase);
    if moved || before.is_some_and(|before| before.message != status.message) {
        info!(
            phase = status.phase,
            attempt = status.attempt,
            instance_type = status.instance_type,
            zone = status.zone,
            message = status.message,
            "batch"
        );
    }
    let batches: Api<NodeBatch> = Api::all(context.client.clone());
    let name = object.name_any();
    let mut object = object.clone();
    let before = object.status.replace(status).unwrap_or_default();
    match step(Step::WriteBatch, batches.replace_status(&name, &PostParams::default(), &object)).await {
        Ok(written) => {
            let was = batch_state::read(&NodeBatch { status: Some(before), ..object }).status;
            context.metrics.moved(&was, next, context.clock.now());
            context.requeue.notify_one();
            Write::Acknowledged(Box::new(written))
        }
        Err(kube::Error::Api(answer)) if answer.code == 409 || answer.code == 404 => {
            let newer = batches.get_opt(&name).await.ok().flatten();
            Write::Conflict(newer.map(Box::new))
        }
        Err(error) => Write::Failed(format!("write the status of the NodeBatch: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn an_edit_that_fails_leaves_no_other_half_done() {
        let done = AtomicU32::new(0);
        let edit = |number: u32| {
            let done = &done;
            async move {
                if number == 1 {
                    anyhow::bail!("a conflict");
                }
                // Its answer comes after that of the one that fails.
                tokio::task::yield_now().await;
                done.fetch_add(1, Ordering::Relaxed);
                Ok(true)
            }
        };
        let error = all((0..40).map(edit), 16).await.unwrap_err();
        assert_eq!((error.to_string().as_str(), done.into_inner()), ("a conflict", 39));
    }

    #[tokio::test]
    async fn edits_of_which_one_was_not_made_do_not_count_as_made() {
        let edits = |not: Option<u32>| all((0..40).map(move |number| async move { Ok(Some(number) != not) }), 16);
        assert!(edits(None).await.unwrap());
        assert!(!edits(Some(7)).await.unwrap());
    }
}
