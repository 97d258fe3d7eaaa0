//! Notices that instances will be or are lost: from the queue that EventBridge fills, and from the instances' own
//! status. A message is deleted only after its reaction is written down; what comes twice changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::SignedDuration;
use muster_core::batch::{Maintenance, Report, of_subject, rescheduled, to_look_at};
use muster_core::ec2::{InstanceState, Leads, Notice, NoticeKind, Reaction, Subject, ending_blocks, reaction};
use muster_core::gang::GangEvent;
use muster_core::model::batch::{Loss, LossCause};
use muster_core::model::names::InstanceId;
use muster_ec2::{ClientOptions, InstanceHealth, Message, Queue, QueueError, Received, read_message};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::cluster::{SeenBatch, State};
use crate::provisioner::Context;
use crate::step::{Step, step};

/// Longest wait of one call for messages, in seconds; the most SQS takes.
const POLL: u8 = 20;
/// Real time until a queue that does not answer is asked again.
const RETRY: Duration = Duration::from_secs(5);
/// Between two looks at the status of all instances.
const SWEEP: SignedDuration = SignedDuration::from_secs(60);
/// A status check that fails for this long is no hiccup.
const IMPAIRED: SignedDuration = SignedDuration::from_secs(120);

/// Connects to the queue, by name or URL, as often as it takes. `None` once the term has ended.
pub(in crate::provisioner) async fn connect(
    context: &Context,
    options: ClientOptions,
    queue: &str,
    term: &CancellationToken,
) -> Option<Queue> {
    let mut stated = false;
    loop {
        let connected = Queue::connect(options.clone(), queue).await;
        learn(context, "GetQueueUrl", &connected);
        context.metrics.queue_up(queue, connected.is_ok());
        match connected {
            Ok(queue) => return Some(queue),
            Err(error) if !stated => warn!(queue, %error, "the interruption queue is not found, tried again"),
            Err(error) => debug!(queue, %error, "the interruption queue is not found"),
        }
        stated = true;
        tokio::select! {
            () = term.cancelled() => return None,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

/// Reads the queue until the term ends.
pub(in crate::provisioner) async fn listen(context: Arc<Context>, name: &str, queue: Queue, term: CancellationToken) {
    let mut failing = false;
    loop {
        let received = tokio::select! {
            () = term.cancelled() => return,
            received = queue.receive(POLL) => received,
        };
        learn(&context, "ReceiveMessage", &received);
        context.metrics.queue_up(name, received.is_ok());
        let messages = match received {
            Ok(messages) => {
                if failing {
                    info!("the interruption queue answers again");
                }
                failing = false;
                messages
            }
            Err(error) => {
                if failing {
                    debug!(%error, "the interruption queue does not answer");
                } else {
                    warn!(%error, "the interruption queue does not answer; the status of instances is polled meanwhile");
                }
                failing = true;
                tokio::select! {
                    () = term.cancelled() => return,
                    () = tokio::time::sleep(RETRY) => {}
                }
                continue;
            }
        };
        // One call brings at most ten. A NodeBatch whose status cannot be written keeps no other from its notice.
        let handled: Vec<_> = messages.iter().map(|message| handle(&context, &queue, message)).collect();
        for error in join_all(handled).await.into_iter().filter_map(Result::err) {
            // It comes again after its visibility timeout.
            warn!(error = %format!("{error:#}"), "a notice is not written down yet and stays in the queue");
        }
    }
}

async fn handle(context: &Context, queue: &Queue, message: &Received) -> anyhow::Result<()> {
    let started = std::time::Instant::now();
    match read_message(&message.body) {
        Ok(Message::Notice(notice)) => {
            let acted = notify(context, &notice).await?;
            context.metrics.interruption(notice.kind, if acted { "acted" } else { "ignored" }, started.elapsed());
        }
        Ok(Message::Other) => {}
        Err(error) => {
            warn!(%error, body = message.body.chars().take(500).collect::<String>(), "a message cannot be read: deleted");
            context.metrics.unreadable();
        }
    }
    let deleted = step(Step::DeleteMessage, queue.delete(message)).await;
    learn(context, "DeleteMessage", &deleted);
    deleted?;
    Ok(())
}

/// What an answer of the queue says about our permissions.
fn learn<T>(context: &Context, operation: &'static str, answer: &Result<T, QueueError>) {
    match answer {
        Ok(_) => context.cloud.allowed(operation, false),
        Err(error) if error.code.as_deref().is_some_and(|code| code.starts_with("AccessDenied")) => {
            context.cloud.denied("sqs", operation, error.code.as_deref(), &error.message, false);
        }
        Err(_) => {}
    }
}

/// Acts on one notice. Whether it was news about instances of ours.
async fn notify(context: &Context, notice: &Notice) -> anyhow::Result<bool> {
    let state = context.cluster.load();
    let now = context.clock.now();
    let mut losses = Vec::new();
    let concerned = concerned(&state, &notice.subject);
    if concerned.is_empty()
        && let Some(kind) = context.cluster.stale()
    {
        anyhow::bail!("the watch of {kind} is too old: nobody knows whose instances these are");
    }
    for (name, ids) in concerned {
        let stated = notice.stated();
        match reaction(notice, Leads::default(), now) {
            Reaction::Tell => {
                let message =
                    format!("{}: {stated}", ids.iter().map(InstanceId::as_str).collect::<Vec<_>>().join(", "));
                let event = GangEvent { reason: notice.kind.reason(), message, warning: true };
                if let Some(seen) = state.batches.get(&name) {
                    context.events.publish(&**seen.object(), &event).await;
                }
            }
            Reaction::Lose { act_at, deadline } => {
                let cause = LossCause::Notice(notice.kind);
                let loss = Loss { cause, message: stated, noticed: now, act_at, deadline };
                let of = ids.into_iter().map(|id| (id, loss.clone())).collect();
                losses.push((name, Report { losses: of, reason: notice.kind.reason(), ..Report::default() }));
            }
        }
    }
    // All are reported before one is waited for.
    let reported: Vec<_> = losses.iter().map(|(name, report)| context.report(name, report.clone())).collect();
    let mut news = false;
    for written in join_all(reported).await {
        news |= written?;
    }
    Ok(news)
}

/// Batches that have instances of the subject, with these. What we end ourselves is no loss.
fn concerned(state: &State, subject: &Subject) -> Vec<(String, BTreeSet<InstanceId>)> {
    let batches = state.batches.values().map(SeenBatch::batch);
    batches.filter_map(|batch| Some((batch.name.clone(), of_subject(batch, subject)?))).collect()
}

/// Reports maintenance that was moved to later or cancelled.
async fn reschedule(context: &Context, seen: &[InstanceHealth], now: jiff::Timestamp) {
    let of = |health: &InstanceHealth| {
        let maintenance = match health.event_at {
            Some(at) => Maintenance::At(at),
            None if health.events_over => Maintenance::Over,
            None => return None,
        };
        Some((health.id.clone(), maintenance))
    };
    let seen: BTreeMap<InstanceId, Maintenance> = seen.iter().filter_map(of).collect();
    let state = context.cluster.load();
    let reports = state.batches.iter().filter_map(|(name, batch)| {
        let rescheduled = rescheduled(&batch.batch().status, &seen, now);
        let report = Report { rescheduled, reason: NoticeKind::ScheduledChange.reason(), ..Report::default() };
        (!report.rescheduled.is_empty()).then(|| context.report(name, report))
    });
    for written in join_all(reports.collect::<Vec<_>>()).await {
        if let Err(error) = written {
            debug!(error = %format!("{error:#}"), "moved maintenance is not written down yet; the next look finds it again");
        }
    }
}

/// Reports the ends of Capacity Blocks that are near, which needs no queue.
async fn report_ending_blocks(context: &Context, state: &State) {
    let statuses = state.classes.values().filter_map(|class| class.status.as_ref());
    let blocks = statuses.flat_map(|status| &status.capacity_reservations).filter(|one| one.block);
    // Several classes may select one.
    let blocks: BTreeMap<&str, jiff::Timestamp> =
        blocks.filter_map(|block| Some((block.id.as_str(), block.end?))).collect();
    for notice in ending_blocks(blocks.into_iter(), context.clock.now()) {
        if let Err(error) = notify(context, &notice).await {
            debug!(error = %format!("{error:#}"), "the end of a Capacity Block is not written down yet; the next look finds it again");
        }
    }
}

/// Looks at the status of all instances now and then, which needs no queue.
pub(in crate::provisioner) async fn sweep(context: Arc<Context>, term: CancellationToken) {
    loop {
        let next = context.clock.now().saturating_add(SWEEP);
        tokio::select! {
            () = term.cancelled() => return,
            () = tokio::time::sleep(next.map_or(Duration::MAX, |next| context.clock.real_until(next))) => {}
        }
        let state = context.cluster.load();
        report_ending_blocks(&context, &state).await;
        let now = context.clock.now();
        let batches = state.batches.values().map(|seen| &seen.batch().status);
        let ids: Vec<InstanceId> = batches.flat_map(|status| to_look_at(status, now)).cloned().collect();
        if ids.is_empty() {
            continue;
        }
        let seen = match context.cloud.health(&ids).await {
            Ok(seen) => seen,
            Err(error) => {
                debug!(%error, "the status of instances cannot be read");
                continue;
            }
        };
        let now = context.clock.now();
        reschedule(&context, &seen, now).await;
        let mut by_notice: BTreeMap<(NoticeKind, Option<jiff::Timestamp>), Vec<InstanceId>> = BTreeMap::new();
        for health in seen {
            let ended = match health.state {
                InstanceState::ShuttingDown
                | InstanceState::Terminated
                | InstanceState::Stopping
                | InstanceState::Stopped => true,
                InstanceState::Pending | InstanceState::Running | InstanceState::Unknown => false,
            };
            let impaired = health.impaired_since.is_some_and(|since| now.duration_since(since) >= IMPAIRED);
            let key = if ended {
                (NoticeKind::StateChange, None)
            } else if impaired {
                (NoticeKind::Impaired, None)
            } else if let Some(at) = health.event_at {
                (NoticeKind::ScheduledChange, Some(at))
            } else {
                continue;
            };
            by_notice.entry(key).or_default().push(health.id);
        }
        for ((kind, at), ids) in by_notice {
            let notice = Notice { kind, subject: Subject::Instances(ids), sent: None, at };
            if let Err(error) = notify(&context, &notice).await {
                debug!(error = %format!("{error:#}"), "a loss is not written down yet; the next look finds it again");
            }
        }
    }
}
