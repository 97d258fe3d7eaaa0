//! The barrier: bind calls of one gang wait here until its minimum stands, then are committed together.
//!
//! State lives in memory only: a lost arrival comes again, since kube-scheduler retries. The commit runs in a task of
//! its own, which survives closed connections (`scheduling.md` 3.2, steps 5 and 6).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use backon::{ExponentialBuilder, Retryable};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use muster_api::crd::Gang as GangObject;
use muster_api::{gang_state, keys};
use muster_core::extender::{self, CommitObstacle};
use muster_core::gang::GangEvent;
use muster_core::model::gang::{Gang, Phase};
use muster_core::model::names::{NodeName, ObjectKey, PodUid};
use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use super::wire::ExtenderBindingArgs;
use crate::cluster::Cluster;
use crate::gang::Events;
use crate::step::{Step, step};
use crate::telemetry::GangMetrics;

/// The API server must show a binding this long after it was posted.
const BOUND_WITHIN: Duration = Duration::from_secs(30);

/// Timers of the barrier.
#[derive(Clone, Copy, Debug)]
pub struct BarrierOptions {
    /// The oldest arrival waits this long; must stay below kube-scheduler's `httpTimeout` of the binding stanza.
    pub hold: Duration,
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
    waiting: Mutex<BTreeMap<ObjectKey, Vec<Waiter>>>,
    /// Pods answered as bound whose binding the watch has not shown yet.
    answered: Mutex<BTreeMap<PodUid, (ExtenderBindingArgs, Instant)>>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    uid: PodUid,
    node: NodeName,
    args: ExtenderBindingArgs,
    since: Instant,
    answer: oneshot::Sender<Result<(), String>>,
}

impl std::fmt::Debug for Barrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Barrier").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Removes an arrival when its connection closes.
struct Leave<'a> {
    barrier: &'a Barrier,
    gang: &'a ObjectKey,
    id: u64,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.barrier.take(self.gang, |waiter| waiter.id == self.id);
    }
}

impl Barrier {
    /// An empty barrier; its commits are tracked by `tasks`.
    #[must_use]
    pub fn new(
        client: Client,
        cluster: Cluster,
        options: BarrierOptions,
        metrics: GangMetrics,
        tasks: TaskTracker,
    ) -> Self {
        let waiting = Mutex::default();
        let events = Events::new(client.clone());
        let answered = Mutex::default();
        Self { client, cluster, options, metrics, tasks, events, waiting, answered, next: AtomicU64::new(0) }
    }

    /// Looks at every gang with arrivals whenever the state changes, until cancelled; then every waiter is refused.
    pub async fn run(self: Arc<Self>, cancel: CancellationToken) -> anyhow::Result<()> {
        let mut changes = self.cluster.changes();
        let mut look = tokio::time::interval(Duration::from_secs(5));
        loop {
            tokio::select! {
                () = cancel.cancelled() => break,
                changed = changes.changed() => changed?,
                _ = look.tick() => {
                    self.look_for_lost_bindings().await;
                    continue;
                }
            }
            let gangs: Vec<ObjectKey> = self.lock().keys().cloned().collect();
            for gang in gangs {
                self.review(&gang);
            }
        }
        let all = std::mem::take(&mut *self.lock());
        for waiter in all.into_values().flatten() {
            refuse(waiter, "muster is shutting down");
        }
        Ok(())
    }

    /// Stands at the barrier until the gang is committed.
    ///
    /// Errors: counts after `hold`; a replan that moves the member; an obstacle at the commit.
    pub async fn arrive(self: &Arc<Self>, gang: &ObjectKey, args: &ExtenderBindingArgs) -> Result<(), String> {
        let (answer, mut received) = oneshot::channel();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let waiter = Waiter {
            id,
            uid: PodUid::from(args.pod_uid.as_str()),
            node: NodeName::from(args.node.as_str()),
            args: args.clone(),
            since: Instant::now(),
            answer,
        };
        // A second arrival of the same pod replaces the first.
        for stale in self.take(gang, |other| other.uid == waiter.uid) {
            refuse(stale, "replaced by a newer bind call");
        }
        self.lock().entry(gang.clone()).or_default().push(waiter);
        self.metrics.barrier_waiting.inc();
        let _leave = Leave { barrier: self, gang, id };
        self.review(gang);
        loop {
            let oldest = self.lock().get(gang).and_then(|waiters| waiters.iter().map(|waiter| waiter.since).min());
            let deadline = oldest.unwrap_or_else(Instant::now) + self.options.hold;
            tokio::select! {
                answer = &mut received => {
                    return answer.unwrap_or_else(|_| Err("gang is being replanned".to_owned()));
                }
                () = tokio::time::sleep_until(deadline.into()), if oldest.is_some() => self.expire(gang),
            }
        }
    }

    /// Posts one binding. `place` = epoch and rank for a member.
    ///
    /// Errors: what the API server said; success if the pod already stands on that node.
    pub async fn post(&self, args: &ExtenderBindingArgs, place: Option<(u64, u32)>) -> Result<(), String> {
        let annotations = place.map(|(epoch, rank)| {
            BTreeMap::from([
                (keys::PLAN_EPOCH.to_owned(), epoch.to_string()),
                (keys::ASSIGNED_RANK.to_owned(), rank.to_string()),
            ])
        });
        let binding = Binding {
            metadata: ObjectMeta {
                name: Some(args.pod_name.clone()),
                namespace: Some(args.pod_namespace.clone()),
                uid: Some(args.pod_uid.clone()),
                annotations,
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(args.node.clone()),
                ..ObjectReference::default()
            },
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &args.pod_namespace);
        let attempt = || async {
            step(Step::BindPod, async {
                pods.create_subresource::<_, serde_json::Value>(
                    "binding",
                    &args.pod_name,
                    &PostParams::default(),
                    &binding,
                )
                .await
            })
            .await
        };
        let result = attempt.retry(ExponentialBuilder::default().with_max_times(4)).when(is_transient).await;
        let result = match result {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                self.already_bound(&pods, args, &status.message).await
            }
            Err(error) => Err(format!("binding: {error}")),
        };
        if result.is_ok() {
            let uid = PodUid::from(args.pod_uid.as_str());
            lock(&self.answered).insert(uid, (args.clone(), Instant::now()));
        }
        result
    }

    /// A success without a binding would hold room in kube-scheduler for ever: it is looked for, and must not exist.
    async fn look_for_lost_bindings(&self) {
        let state = self.cluster.load();
        let due: Vec<(PodUid, ExtenderBindingArgs)> = {
            let mut answered = lock(&self.answered);
            answered.retain(|uid, _| state.snapshot.pods.get(uid).is_some_and(|pod| pod.node.is_none()));
            let due = answered.iter().filter(|(_, (_, since))| since.elapsed() > BOUND_WITHIN);
            due.map(|(uid, (args, _))| (uid.clone(), args.clone())).collect()
        };
        for (uid, args) in due {
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), &args.pod_namespace);
            // The watch may lag: the API server decides.
            let Ok(pod) = pods.get_opt(&args.pod_name).await else { continue };
            lock(&self.answered).remove(&uid);
            let unbound = pod.is_some_and(|pod| {
                pod.metadata.uid.as_deref() == Some(uid.as_str())
                    && pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none())
            });
            if unbound {
                self.metrics.lost_bindings.inc();
                error!(
                    pod = format!("{}/{}", args.pod_namespace, args.pod_name),
                    node = args.node,
                    "answered as bound and not bound: this is a bug, please report it; kube-scheduler holds its room until \
                     it is restarted"
                );
            }
        }
    }

    /// Reads a gang from the API server, where the watch lags behind.
    pub async fn refresh(&self, gang: &ObjectKey) {
        let gangs: Api<GangObject> = Api::namespaced(self.client.clone(), &gang.namespace);
        if let Ok(object) = gangs.get(&gang.name).await {
            self.cluster.believe(&object);
        }
    }

    /// After a conflict: the binding we want may exist already.
    async fn already_bound(&self, pods: &Api<Pod>, args: &ExtenderBindingArgs, said: &str) -> Result<(), String> {
        let pod = pods.get_opt(&args.pod_name).await.map_err(|error| format!("binding: {said}; {error}"))?;
        let same = pod.is_some_and(|pod| {
            pod.metadata.uid.as_deref() == Some(&args.pod_uid)
                && pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(&args.node)
        });
        if same { Ok(()) } else { Err(format!("binding: {said}")) }
    }

    /// Refuses waiters whose plan changed, and commits when the minimum stands.
    fn review(self: &Arc<Self>, key: &ObjectKey) {
        let state = self.cluster.load();
        let gang = state.snapshot.gangs.get(key).cloned();
        let placed = |waiter: &Waiter| {
            gang.as_ref().and_then(|gang| gang.place_of(&waiter.uid)).is_some_and(|place| place.node == waiter.node)
        };
        for waiter in self.take(key, |waiter| !placed(waiter)) {
            refuse(waiter, "gang is being replanned");
        }
        let Some(gang) = gang else { return };
        match gang.phase {
            Some(Phase::Released) => {
                let arrived: BTreeMap<PodUid, NodeName> = self
                    .lock()
                    .get(key)
                    .into_iter()
                    .flatten()
                    .map(|waiter| (waiter.uid.clone(), waiter.node.clone()))
                    .collect();
                if arrived.is_empty() {
                    return;
                }
                if extender::barrier_complete(&state.snapshot, &gang, |uid, node| arrived.get(uid) == Some(node)) {
                    let waiters = self.take(key, |_| true);
                    let barrier = Arc::clone(self);
                    self.tasks.spawn(async move { barrier.commit(gang, waiters).await });
                }
            }
            Some(Phase::Committing | Phase::Bound) => {
                let waiters = self.take(key, |_| true);
                if !waiters.is_empty() {
                    let barrier = Arc::clone(self);
                    self.tasks.spawn(async move { barrier.bind_all(&gang, waiters).await });
                }
            }
            // The release is on its way to this replica's cache.
            Some(Phase::Planned) => {}
            Some(
                Phase::Collecting
                | Phase::Waiting
                | Phase::Provisioning
                | Phase::Finished
                | Phase::Degraded
                | Phase::Invalid
                | Phase::Unsatisfiable,
            )
            | None => {
                for waiter in self.take(key, |_| true) {
                    refuse(waiter, "gang is being replanned");
                }
            }
        }
    }

    async fn commit(self: Arc<Self>, gang: Arc<Gang>, waiters: Vec<Waiter>) {
        let started = Instant::now();
        let uids: Vec<PodUid> = waiters.iter().map(|waiter| waiter.uid.clone()).collect();
        let state = self.cluster.load();
        if let Err(obstacle) = extender::commit_obstacle(&state.snapshot, &gang, &uids) {
            let reason = match obstacle {
                CommitObstacle::MemberGone => "a member of the gang was deleted",
                CommitObstacle::BoundElsewhere => "a member of the gang is bound elsewhere",
                CommitObstacle::NodeUnfit => "a planned node is gone, not ready or cordoned",
            };
            self.refuse_all(waiters, reason);
            return;
        }
        match self.write_committing(&gang, &waiters).await {
            Ok(()) => {
                info!(gang = %gang.key, epoch = gang.epoch, members = waiters.len(), "the minimum stands: committing");
                self.bind_all(&gang, waiters).await;
                self.metrics.commit_seconds.observe(started.elapsed().as_secs_f64());
            }
            Err(error) => {
                warn!(gang = %gang.key, error, "commit refused");
                self.refuse_all(waiters, &error);
            }
        }
    }

    /// The commit point: one status write that names the version the barrier was judged by.
    async fn write_committing(&self, gang: &Gang, waiters: &[Waiter]) -> Result<(), String> {
        let gangs: Api<GangObject> = Api::namespaced(self.client.clone(), &gang.key.namespace);
        let mut version = gang.resource_version.to_string();
        // Bounded: each turn needs somebody else to have written in between.
        for _ in 0..8 {
            let patch = json!({
                "metadata": {"resourceVersion": version},
                "status": {"phase": Phase::Committing.as_str(), "since": crate::clock::now_real(), "waiting": null},
            });
            let written = step(
                Step::CommitGang,
                gangs.patch_status(&gang.key.name, &PatchParams::default(), &Patch::Merge(&patch)),
            )
            .await;
            match written {
                Ok(object) => {
                    self.cluster.believe(&object);
                    return Ok(());
                }
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(format!("writing Committing: {error}")),
            }
            let object = gangs.get(&gang.key.name).await.map_err(|error| format!("reading the gang: {error}"))?;
            let now = gang_state::read(&object);
            let same_places =
                waiters.iter().all(|waiter| now.place_of(&waiter.uid).is_some_and(|place| place.node == waiter.node));
            match now.phase {
                Some(Phase::Committing | Phase::Bound) if same_places => return Ok(()),
                Some(Phase::Released) if same_places => version = now.resource_version.to_string(),
                _ => return Err("gang is being replanned".to_owned()),
            }
        }
        Err("the gang's status is being written by somebody else".to_owned())
    }

    async fn bind_all(self: &Arc<Self>, gang: &Gang, waiters: Vec<Waiter>) {
        futures::stream::iter(waiters)
            .for_each_concurrent(self.options.parallel, |waiter| async move {
                let place = gang.place_of(&waiter.uid).map(|place| (gang.epoch, place.rank));
                let result = self.post(&waiter.args, place).await;
                if let Err(error) = &result {
                    warn!(gang = %gang.key, pod = waiter.args.pod_name, error, "member not bound after the commit point");
                }
                // The connection may be closed; the binding stands all the same.
                let _ = waiter.answer.send(result);
            })
            .await;
    }

    /// Fails the whole barrier once its oldest arrival has waited long enough.
    fn expire(&self, key: &ObjectKey) {
        let minimum = self.cluster.load().snapshot.gangs.get(key).map_or(0, |gang| gang.minimum);
        let waiters = self.take(key, |_| true);
        if waiters.is_empty() {
            // Every waiter has this timer, and the first took all.
            return;
        }
        let message =
            format!("gang barrier: {} of {minimum} members after {} s", waiters.len(), self.options.hold.as_secs());
        self.metrics.barrier_timeouts.inc();
        info!(gang = %key, message, "barrier timed out");
        self.refuse_all(waiters, &message);
        if let Some(object) = self.cluster.load().gangs.get(key).cloned() {
            let events = self.events.clone();
            self.tasks.spawn(async move {
                let event = GangEvent { reason: "BarrierTimeout", message, warning: true };
                events.publish(&*object, &event).await;
            });
        }
    }

    fn refuse_all(&self, waiters: Vec<Waiter>, reason: &str) {
        for waiter in waiters {
            refuse(waiter, reason);
        }
    }

    /// Removes and returns the waiters that match.
    fn take(&self, gang: &ObjectKey, which: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let mut waiting = self.lock();
        let Some(waiters) = waiting.get_mut(gang) else { return Vec::new() };
        let (taken, left): (Vec<Waiter>, Vec<Waiter>) =
            std::mem::take(waiters).into_iter().partition(|waiter| which(waiter));
        self.metrics.barrier_waiting.dec_by(i64::try_from(taken.len()).unwrap_or(i64::MAX));
        if left.is_empty() {
            waiting.remove(gang);
        } else {
            *waiters = left;
        }
        taken
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Vec<Waiter>>> {
        lock(&self.waiting)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while the lock was held cannot leave the map half changed: every change is one call.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refuse(waiter: Waiter, reason: &str) {
    // The receiver is gone if its connection closed; then there is nobody to tell.
    let _ = waiter.answer.send(Err(reason.to_owned()));
}

fn is_transient(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::HyperError(_) | kube::Error::Service(_) => true,
        _ => false,
    }
}
