//! The barrier: bind calls of one gang wait here until its minimum stands, then are committed together.
//!
//! One task owns who waits, so that a gang is judged and taken in one go and no thread that answers `filter` waits for a
//! lock; what it decides is core's (`muster_core::extender::barrier`). State lives in memory only: a lost arrival comes again, since
//! kube-scheduler retries. The commit runs in a task of its own, which survives closed connections.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use muster_api::crd::Gang as GangObject;
use muster_api::{gang_state, keys};
use muster_core::extender::barrier::{AfterConflict, Arrivals, Closed, Member, Then, after_conflict};
use muster_core::gang::GangEvent;
use muster_core::model::gang::{Gang, Phase};
use muster_core::model::names::{NodeName, ObjectKey, PodUid};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use super::posting::{NO_ANSWER, Pause, Posting, is_transient};
use super::wire::ExtenderBindingArgs;
use crate::cluster::Cluster;
use crate::gang::Events;
use crate::step::{Step, step};
use crate::telemetry::GangMetrics;

/// Bindings answered as done are looked for this often.
const LOOK: Duration = Duration::from_secs(5);
/// Calls that are taken in before anything is decided.
const AT_ONCE: usize = 256;
/// Reported to whoever waits when the process ends.
const SHUTTING_DOWN: &str = "muster is shutting down";

/// Timers of the barrier.
#[derive(Clone, Copy, Debug)]
pub struct BarrierOptions {
    /// The oldest arrival waits this long; must stay below `limit`.
    pub hold: Duration,
    /// A bind call is answered this long after it came, at the latest: below kube-scheduler's `httpTimeout` of the binding
    /// stanza. Nothing is posted for it later, since kube-scheduler gives its capacity away then.
    pub limit: Duration,
    /// Bindings posted at once.
    pub parallel: usize,
}

/// Waiting bind calls by gang.
pub struct Barrier {
    client: Client,
    cluster: Cluster,
    options: BarrierOptions,
    metrics: GangMetrics,
    tasks: TaskTracker,
    events: Events,
    posting: Posting,
    calls: mpsc::UnboundedSender<Call>,
    /// The other end, until the one task that owns who waits takes it.
    inbox: Mutex<Option<mpsc::UnboundedReceiver<Call>>>,
    next: AtomicU64,
}

/// What the owner of the barrier is informed of.
enum Call {
    /// A bind call came.
    Arrive(ObjectKey, u64, Waiter),
    /// Its connection closed.
    Leave(ObjectKey, u64, PodUid),
}

struct Waiter {
    args: ExtenderBindingArgs,
    since: Instant,
    until: Instant,
    answer: oneshot::Sender<Result<(), String>>,
}

type Waiting = BTreeMap<ObjectKey, Arrivals<Waiter>>;

impl std::fmt::Debug for Barrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Barrier").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Removes an arrival when its connection closes.
struct Leave<'a> {
    barrier: &'a Barrier,
    gang: &'a ObjectKey,
    ticket: u64,
    uid: PodUid,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        // Nobody listens any more only when everybody was sent away.
        let _ = self.barrier.calls.send(Call::Leave(self.gang.clone(), self.ticket, self.uid.clone()));
    }
}

impl Barrier {
    /// An empty barrier; its commits are tracked by `tasks`. `client` must not repeat calls of its own accord: how often
    /// and how long is decided here.
    #[must_use]
    pub fn new(
        client: Client,
        cluster: Cluster,
        options: BarrierOptions,
        metrics: GangMetrics,
        tasks: TaskTracker,
    ) -> Self {
        let (calls, inbox) = mpsc::unbounded_channel();
        Self {
            events: Events::new(client.clone()),
            posting: Posting::new(client.clone(), cluster.clone(), metrics.clone()),
            client,
            cluster,
            options,
            metrics,
            tasks,
            calls,
            inbox: Mutex::new(Some(inbox)),
            next: AtomicU64::new(0),
        }
    }

    /// Bindings posted here that the watch does not show yet, and how to post one.
    pub(super) fn posting(&self) -> &Posting {
        &self.posting
    }

    /// When a bind call that came now must have been answered.
    pub(super) fn until(&self) -> Instant {
        Instant::now() + self.options.limit
    }

    /// Owns who waits, until cancelled; then every waiter is refused.
    ///
    /// Errors: it runs already, or the watches ended.
    pub async fn run(self: Arc<Self>, cancel: CancellationToken) -> anyhow::Result<()> {
        let inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut inbox) = inbox else { anyhow::bail!("the barrier runs already") };
        let mut changes = self.cluster.changes();
        let mut look = tokio::time::interval(LOOK);
        let mut waiting = Waiting::new();
        let mut calls = Vec::with_capacity(AT_ONCE);
        loop {
            let oldest = waiting.values().filter_map(|arrivals| arrivals.oldest()).map(|waiter| waiter.since).min();
            tokio::select! {
                () = cancel.cancelled() => break,
                changed = changes.changed() => {
                    changed?;
                    self.posting.settle();
                    for gang in waiting.keys().cloned().collect::<Vec<_>>() {
                        self.review(&mut waiting, &gang);
                    }
                }
                _ = inbox.recv_many(&mut calls, AT_ONCE) => {
                    for call in calls.drain(..) {
                        self.take_in(&mut waiting, call);
                    }
                }
                () = tokio::time::sleep_until(oldest.unwrap_or_else(Instant::now) + self.options.hold),
                    if oldest.is_some() => self.expire(&mut waiting),
                _ = look.tick() => {
                    let barrier = Arc::clone(&self);
                    self.tasks.spawn(async move { barrier.posting.look_for_lost_bindings().await });
                }
            }
        }
        for waiter in waiting.values_mut().flat_map(Arrivals::leave_all) {
            refuse(waiter, SHUTTING_DOWN);
        }
        Ok(())
    }

    /// Stands at the barrier until the gang is committed.
    ///
    /// Errors: counts after `hold`; a replan that moves the member; an obstacle at the commit.
    pub(super) async fn arrive(
        &self,
        gang: &ObjectKey,
        args: &ExtenderBindingArgs,
        until: Instant,
    ) -> Result<(), String> {
        let (answer, received) = oneshot::channel();
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let waiter = Waiter { args: args.clone(), since: Instant::now(), until, answer };
        let uid = PodUid::from(args.pod_uid.as_str());
        if self.calls.send(Call::Arrive(gang.clone(), ticket, waiter)).is_err() {
            return Err(SHUTTING_DOWN.to_owned());
        }
        let _leave = Leave { barrier: self, gang, ticket, uid };
        received.await.unwrap_or_else(|_| Err(SHUTTING_DOWN.to_owned()))
    }

    /// Reads a gang from the API server, where the watch lags behind.
    pub(super) async fn refresh(&self, gang: &ObjectKey, until: Instant) {
        let gangs: Api<GangObject> = Api::namespaced(self.client.clone(), &gang.namespace);
        if let Ok(Ok(object)) = timeout_at(until, gangs.get(&gang.name)).await {
            self.cluster.trust(&object);
        }
    }

    fn take_in(self: &Arc<Self>, waiting: &mut Waiting, call: Call) {
        match call {
            Call::Arrive(gang, ticket, waiter) => {
                let uid = PodUid::from(waiter.args.pod_uid.as_str());
                let node = NodeName::from(waiter.args.node.as_str());
                let arrivals = waiting.entry(gang.clone()).or_default();
                match arrivals.arrive(uid, node, ticket, waiter) {
                    Some(stale) => refuse(stale, "replaced by a newer bind call"),
                    None => {
                        self.metrics.barrier_waiting.inc();
                    }
                }
                if arrivals.is_due(&self.cluster.load().snapshot, &gang) {
                    self.review(waiting, &gang);
                }
            }
            Call::Leave(gang, ticket, uid) => {
                let Some(arrivals) = waiting.get_mut(&gang) else { return };
                if arrivals.leave(&uid, ticket).is_some() {
                    self.metrics.barrier_waiting.dec();
                }
                if arrivals.is_empty() {
                    waiting.remove(&gang);
                }
            }
        }
    }

    /// Refuses waiters whose plan changed, and commits when the minimum stands.
    fn review(self: &Arc<Self>, waiting: &mut Waiting, key: &ObjectKey) {
        let Some(arrivals) = waiting.get_mut(key) else { return };
        let before = arrivals.len();
        let judged = arrivals.judge(&self.cluster.load().snapshot, key, keys::GANG_PENDING);
        self.left(before.saturating_sub(arrivals.len()));
        if arrivals.is_empty() {
            waiting.remove(key);
        }
        for (waiter, why) in judged.refused {
            refuse(waiter, why.as_str());
        }
        if let Some(closed) = judged.closed {
            let barrier = Arc::clone(self);
            self.tasks.spawn(async move {
                match closed.then {
                    Then::Commit => barrier.commit(closed).await,
                    Then::Post => barrier.bind_all(&closed.gang, closed.members).await,
                }
            });
        }
    }

    async fn commit(&self, closed: Closed<Waiter>) {
        let started = Instant::now();
        let Closed { gang, members, .. } = closed;
        let until = members.iter().map(|member| member.waiter.until).min().unwrap_or(started);
        let places: Vec<(PodUid, NodeName)> =
            members.iter().map(|member| (member.uid.clone(), member.node.clone())).collect();
        // Where no answer comes the write may stand all the same: the members' next bind calls are posted at once then.
        let written = timeout_at(until, self.write_committing(&gang, &places)).await;
        match written.unwrap_or_else(|_| Err(NO_ANSWER.to_owned())) {
            Ok(committed) => {
                info!(gang = %gang.key, epoch = committed.epoch, members = members.len(), "the minimum stands: committing");
                self.bind_all(&committed, members).await;
                self.metrics.commit_seconds.observe(started.elapsed().as_secs_f64());
            }
            Err(error) => {
                warn!(gang = %gang.key, error, "commit refused");
                for member in members {
                    refuse(member.waiter, &error);
                }
            }
        }
    }

    /// The commit point: one status write that names the version the barrier was judged by. The gang as it is committed.
    async fn write_committing(&self, judged: &Gang, members: &[(PodUid, NodeName)]) -> Result<Gang, String> {
        let gangs: Api<GangObject> = Api::namespaced(self.client.clone(), &judged.key.namespace);
        let mut version = judged.resource_version.to_string();
        let mut pause = Pause::default();
        loop {
            let patch = json!({
                "metadata": {"resourceVersion": version},
                "status": {"phase": Phase::Committing.as_str(), "since": crate::clock::now_real(), "waiting": null},
            });
            let written = step(
                Step::CommitGang,
                gangs.patch_status(&judged.key.name, &PatchParams::default(), &Patch::Merge(&patch)),
            )
            .await;
            match written {
                Ok(object) => {
                    self.cluster.trust(&object);
                    return Ok(gang_state::read(&object));
                }
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                // It may have been written: then the version is another one, which is a conflict.
                Err(error) if is_transient(&error) => {
                    pause.wait().await;
                    continue;
                }
                Err(error) => return Err(format!("writing Committing: {error}")),
            }
            let object = gangs.get(&judged.key.name).await.map_err(|error| format!("reading the gang: {error}"))?;
            let now = gang_state::read(&object);
            let state = self.cluster.load();
            match after_conflict(&state.snapshot, judged, now.clone(), keys::GANG_PENDING, members) {
                Ok(AfterConflict::WriteAgain) => version = now.resource_version.to_string(),
                Ok(AfterConflict::Forward) => {
                    self.cluster.trust(&object);
                    return Ok(now);
                }
                Err(why) => return Err(why.as_str().to_owned()),
            }
        }
    }

    async fn bind_all(&self, committed: &Gang, members: Vec<Member<Waiter>>) {
        futures::stream::iter(members)
            .for_each_concurrent(self.options.parallel, |Member { waiter, .. }| async move {
                let result = self.posting.post(&waiter.args, Some(committed), waiter.until).await;
                if let Err(error) = &result {
                    let pod = waiter.args.pod_name.as_str();
                    warn!(gang = %committed.key, pod, error, "member not bound after the commit point");
                }
                // The connection may be closed; the binding stands all the same.
                let _ = waiter.answer.send(result);
            })
            .await;
    }

    /// Fails every barrier whose oldest arrival has waited long enough.
    fn expire(&self, waiting: &mut Waiting) {
        let now = Instant::now();
        waiting.retain(|key, arrivals| {
            if arrivals.oldest().is_some_and(|oldest| now < oldest.since + self.options.hold) {
                return true;
            }
            let waiters = arrivals.leave_all();
            self.left(waiters.len());
            self.timed_out(key, waiters);
            false
        });
    }

    fn timed_out(&self, key: &ObjectKey, waiters: Vec<Waiter>) {
        let state = self.cluster.load();
        let minimum = state.snapshot.gangs.get(key).map_or(0, |gang| gang.minimum);
        let message =
            format!("gang barrier: {} of {minimum} members after {} s", waiters.len(), self.options.hold.as_secs());
        self.metrics.barrier_timeouts.inc();
        info!(gang = %key, message, "barrier timed out");
        for waiter in waiters {
            refuse(waiter, &message);
        }
        if let Some(object) = state.gangs.get(key).cloned() {
            let events = self.events.clone();
            self.tasks.spawn(async move {
                let event = GangEvent { reason: "BarrierTimeout", message, warning: true };
                events.publish(&*object, &event).await;
            });
        }
    }

    fn left(&self, count: usize) {
        self.metrics.barrier_waiting.dec_by(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

fn refuse(waiter: Waiter, reason: &str) {
    // The receiver is gone if its connection closed; then there is nobody to tell.
    let _ = waiter.answer.send(Err(reason.to_owned()));
}
