//! Requests and pods of no gang, in a lane of their own: a plan for thousands of pods, the NodeBatches it makes and the events it
//! writes take their time, and the pass over NodeBatches waits for none of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::batch::pods::Pods;
use super::{Context, TICK, request};
use crate::progress::Beat;

/// Shortest time between two looks, whatever changes meanwhile.
const SHORTEST: Duration = Duration::from_millis(20);
/// Longest time between two looks while something changes.
const LONGEST: Duration = Duration::from_secs(1);
/// A look costs at most one part of so many of a core, as long as that leaves one look in `LONGEST`.
const SHARE: u32 = 200;
/// The same while pods are collected.
const SHARE_OF_WINDOW: u32 = 20;

/// Goes round until the term ends, after `described` was rung in it. What was sent by then is awaited, and nothing else is begun.
pub(super) async fn run(context: Arc<Context>, described: Arc<Notify>, beat: Beat, term: CancellationToken) {
    // The lane of an earlier term of this replica may still await an answer: there is one round at a time.
    let _alone = tokio::select! {
        () = term.cancelled() => return,
        alone = context.rounds.lock() => alone,
    };
    let idle = Duration::try_from(context.options.batch_idle).unwrap_or_default();
    let shortest = (idle / 4).clamp(SHORTEST, LONGEST / 4);
    let mut pods = Pods::new(&context);
    let mut unanswered = request::Unanswered::default();
    // Without pools that are described, requests are refused.
    tokio::select! {
        () = term.cancelled() => return,
        () = described.notified() => {}
    }
    loop {
        beat.beat();
        let state = context.cluster.load();
        if state.snapshot.synced && context.cluster.stale().is_none() {
            request::reconcile(&context, &state, &mut unanswered, &term).await;
            beat.beat();
        }
        // Answering took its time: pods are planned for on what is known now.
        let state = context.cluster.load();
        if state.snapshot.synced
            && context.cluster.stale().is_none()
            && let Err(error) = pods.reconcile(&context, &state, &term).await
        {
            warn!(error = %crate::telemetry::chain(&error), "pods of no gang");
        }
        let closes = pods.closes_in();
        let pause = match closes {
            // What is seen late makes the window longer.
            Some(left) => SHORTEST.max((pods.took() * SHARE_OF_WINDOW).min(shortest).min(left)),
            None => shortest.max((pods.took() * SHARE).min(LONGEST)),
        };
        tokio::select! {
            () = term.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        // Whoever changes something rings; that time alone has changed something is seen when pools are described.
        let rest = match closes {
            Some(left) => left.saturating_sub(pause).min(TICK),
            None if pods.collects() || !unanswered.is_empty() => TICK,
            None => context.quiet(),
        };
        tokio::select! {
            () = term.cancelled() => return,
            () = described.notified() => {}
            () = tokio::time::sleep(rest) => {}
        }
    }
}
