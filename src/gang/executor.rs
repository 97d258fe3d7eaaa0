//! Carries out the gang loop's actions. The only writer of Gangs and of pods behind our gate.
//!
//! What this replica wrote is trusted at once, until the watch shows it or something newer: capacity assigned by an
//! action in flight is subtracted before it is observed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use kube::Client;
use muster_api::crd::Gang as GangObject;
use muster_api::gang_state;
use muster_core::gang::{
    Action, BatchStage, BatchView, MemberReport, REPHRASED_AT_ONCE, Release, WAITING_AT_ONCE, is_waiting,
};
use muster_core::model::gang::{Gang, Pod};
use muster_core::model::names::{NodeName, ObjectKey, PodUid};
use muster_core::model::snapshot::{AssignedCapacity, Assignment};
use tokio::task::JoinSet;
use tracing::{debug, error};

use super::events::Events;
use super::hands::{Effect, ExecutorOptions, Hands, whose};
use super::release::release as send;
use super::seen::Seen;
use super::share::Share;
use crate::clock::Clock;
use crate::cluster::{Cluster, State};
use crate::telemetry::GangMetrics;
use crate::term::Tenure;

/// Whether an action was not sent lately; from now on it was. What is asked for again meanwhile must not count as sent once more: it
/// would never be sent again where every pass asks for it.
fn is_first<K: Ord + Clone>(sent: &mut BTreeMap<K, Instant>, key: &K, now: Instant) -> bool {
    let first = !sent.contains_key(key);
    if first {
        sent.insert(key.clone(), now);
    }
    first
}

/// The executor of one replica.
pub struct Executor {
    hands: Arc<Hands>,
    /// Calls under way: those of one gang in their order, gangs and members side by side.
    lanes: JoinSet<Done>,
    /// Gangs whose actions are under way, with the status that is being written.
    busy: BTreeMap<ObjectKey, Option<Box<Gang>>>,
    /// Gangs as the API server answered our writes.
    written: BTreeMap<ObjectKey, (Arc<Gang>, Arc<GangObject>)>,
    /// NodeBatches created and not observed yet.
    created: BTreeMap<Arc<str>, Instant>,
    /// Patches sent and not observed yet.
    sent: BTreeMap<PodUid, Sent>,
    ungated: BTreeMap<PodUid, Instant>,
    /// With whether the pod was to go at once.
    evicted: BTreeMap<PodUid, (Instant, bool)>,
    /// NodeBatches that were given up, and are not observed as going yet.
    abandoned: BTreeMap<Arc<str>, Instant>,
    /// Pods of no gang that were requeued, and how long after that they are again.
    requeued: BTreeMap<PodUid, (Instant, Duration)>,
    /// Members whose nomination was taken back.
    cleared: BTreeMap<PodUid, Instant>,
    /// Conditions sent and not observed yet.
    reported: BTreeMap<PodUid, (&'static str, String, Instant)>,
    /// Conditions of members that wait.
    paced: Paced,
    rephrased: Paced,
}

/// At most so many writes in a second.
#[derive(Debug, Default)]
struct Paced {
    since: Option<Instant>,
    sent: u32,
}

impl Paced {
    /// Whether one more of `most` may be sent; then it counts.
    fn may(&mut self, now: Instant, most: u32) -> bool {
        if self.since.is_none_or(|since| now.duration_since(since) >= Duration::from_secs(1)) {
            *self = Self { since: Some(now), sent: 0 };
        }
        let may = self.sent < most;
        self.sent += u32::from(may);
        may
    }
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor").field("options", &self.hands.options).finish_non_exhaustive()
    }
}

/// A release that was sent, or waits for its turn. Dropped before that turn, it is not made.
#[derive(Debug)]
struct Sent {
    epoch: u64,
    node: NodeName,
    /// When its call began; empty until then.
    began: Arc<OnceLock<Instant>>,
    /// How long after the one before it was sent, if that was for a member that was released already.
    spacing: Option<Duration>,
    /// It was not written.
    failed: bool,
    /// How long after the last one that was not written it is tried again: one that never succeeds, as with a webhook that
    /// denies, must not keep the API server busy.
    pause: Option<Duration>,
}

impl Sent {
    /// How long ago its call began; `None` while it waits for its turn.
    fn age(&self) -> Option<Duration> {
        self.began.get().map(Instant::elapsed)
    }
}

/// Whether a release that waited for its turn is still to be made; then it counts as sent from now on. It is not if another
/// plan, or the end of the pod, took its place, or if the newest state has no use for it.
fn begins(began: &Weak<OnceLock<Instant>>, newest: &State, release: &Release) -> bool {
    let Some(began) = began.upgrade() else { return false };
    // Nobody else sets it.
    let _ = began.set(Instant::now());
    release.holds(&newest.snapshot)
}

/// How long after a release the next one for the same member and node is sent. The first may just not be observed yet; a
/// member that is stuck is requeued after pauses that double.
fn spacing(before: Option<Duration>, stuck: bool, renominate: Duration) -> Duration {
    let first = Duration::from_secs(1);
    if stuck { before.map_or(first, |before| before * 2).min(renominate) } else { renominate }
}

/// What came of one lane.
struct Done {
    /// The gang it was about, if it was its actions.
    gang: Option<ObjectKey>,
    effects: Vec<Effect>,
}

/// Gangs dealt with at once.
const LANES: usize = 32;
/// The next decision waits so long for calls under way: nearly all of them end in it, and it is then made on what they did.
/// A call that takes longer keeps nobody but its own gang.
const PATIENCE: Duration = Duration::from_millis(500);
/// A patch that was not written is tried again at once, after this, then after pauses that double up to `release.renominate`.
const AGAIN: Duration = Duration::from_millis(100);
/// A pod of no gang is requeued after pauses that double up to this.
const LONGEST: Duration = Duration::from_secs(300);

impl Executor {
    /// An executor without any writes.
    #[must_use]
    pub fn new(
        client: Client,
        cluster: Cluster,
        events: Events,
        metrics: GangMetrics,
        options: ExecutorOptions,
        clock: Clock,
    ) -> Self {
        let (gangs, members, evictions) =
            (Share::new(LANES), Share::new(options.parallel), Share::new(options.parallel));
        Self {
            hands: Arc::new(Hands {
                client,
                cluster,
                events,
                metrics,
                options,
                clock,
                gangs,
                members,
                evictions,
                budgets: Mutex::default(),
            }),
            lanes: JoinSet::new(),
            busy: BTreeMap::new(),
            written: BTreeMap::new(),
            created: BTreeMap::new(),
            sent: BTreeMap::new(),
            ungated: BTreeMap::new(),
            evicted: BTreeMap::new(),
            abandoned: BTreeMap::new(),
            requeued: BTreeMap::new(),
            cleared: BTreeMap::new(),
            reported: BTreeMap::new(),
            paced: Paced::default(),
            rephrased: Paced::default(),
        }
    }

    /// Drops everything trusted of own writes, and calls under way: somebody else may hold the lease.
    pub fn forget(&mut self) {
        self.lanes = JoinSet::new();
        self.busy.clear();
        self.written.clear();
        self.created.clear();
        self.sent.clear();
        self.ungated.clear();
        self.evicted.clear();
        self.abandoned.clear();
        self.requeued.clear();
        self.cleared.clear();
        self.reported.clear();
        self.hands.reported().clear();
    }

    /// The state with own writes that are not observed yet, and with what is assigned by those that are not answered yet.
    pub fn assumed(&mut self, state: &Arc<State>) -> Arc<State> {
        self.written.retain(|key, (gang, _)| {
            state
                .snapshot
                .gangs
                .get(key)
                .is_none_or(|seen| version(&seen.resource_version) < version(&gang.resource_version))
                && state.snapshot.recognised.contains_key(key)
        });
        self.created
            .retain(|name, since| !state.batches.contains_key(&**name) && since.elapsed() < Duration::from_secs(30));
        let renominate = self.hands.options.renominate;
        let counts = |sent: &Sent| sent.age().is_none_or(|age| age < 2 * renominate);
        self.sent.retain(|uid, sent| counts(sent) && state.snapshot.pods.contains_key(uid));
        self.ungated.retain(|_, since| since.elapsed() < renominate);
        self.evicted.retain(|_, (since, _)| since.elapsed() < renominate);
        self.abandoned.retain(|_, since| since.elapsed() < renominate);
        self.cleared.retain(|_, since| since.elapsed() < renominate);
        self.requeued.retain(|uid, _| state.snapshot.pods.contains_key(uid));
        self.reported.retain(|_, (_, _, since)| since.elapsed() < renominate);
        self.hands.reported().retain(|gang, _| state.snapshot.gangs.contains_key(gang));
        if self.written.is_empty() && self.busy.is_empty() {
            return Arc::clone(state);
        }
        let mut state = State::clone(state);
        // Assignments of plans that only we know of yet, in place of those the store computed.
        let ours = |assignment: &Assignment| {
            assignment.capacity != AssignedCapacity::WholeNode && self.written.contains_key(&assignment.gang)
        };
        state.snapshot.assignments.retain(|_, assignments| {
            assignments.retain(|assignment| !ours(assignment));
            !assignments.is_empty()
        });
        for (key, (gang, object)) in &self.written {
            state.snapshot.gangs.insert(key.clone(), Arc::clone(gang));
            state.gangs.insert(key.clone(), Arc::clone(object));
            for (node, assignment) in state.snapshot.assignments_of(gang) {
                state.snapshot.assignments.entry(node).or_default().push(assignment);
            }
        }
        // Whether a write that is not answered was carried out is open: the capacity of both plans counts.
        for (key, next) in &self.busy {
            let Some(next) = next else { continue };
            let before = state.snapshot.gangs.get(key).map(|gang| state.snapshot.assignments_of(gang));
            let mut before = before.unwrap_or_default();
            for (node, assignment) in state.snapshot.assignments_of(next) {
                match before.iter().position(|known| known.0 == node && known.1 == assignment) {
                    Some(same) => drop(before.swap_remove(same)),
                    None => state.snapshot.assignments.entry(node).or_default().push(assignment),
                }
            }
        }
        Arc::new(state)
    }

    /// NodeBatches with those created and not observed yet.
    #[must_use]
    pub fn batches(&self, mut seen: BTreeMap<Arc<str>, BatchView>) -> BTreeMap<Arc<str>, BatchView> {
        for name in self.created.keys() {
            seen.entry(Arc::clone(name)).or_insert_with(|| BatchView {
                name: Arc::clone(name),
                stage: BatchStage::Provisioning,
                message: None,
                next_try: None,
                since: None,
            });
        }
        seen
    }

    /// Carries out actions, those of one gang in their order, gangs and members side by side. A failed action is dropped: the
    /// next pass decides again. A gang whose actions are still under way gets no others, and nobody else waits for them.
    /// The answer is when to look again, if sooner than a change would say.
    pub async fn execute(&mut self, state: &State, actions: Vec<Action>, tenure: &Tenure) -> Option<Duration> {
        let mut lanes: Vec<(Option<ObjectKey>, Vec<Action>)> = Vec::new();
        for action in actions {
            let gang = gang_of(state, &action);
            if gang.as_ref().is_some_and(|gang| self.busy.contains_key(gang)) || !self.is_news(&action) {
                continue;
            }
            match action {
                Action::Release(release) => self.release(state, *release, tenure),
                Action::Report(report) => self.report(*report, tenure),
                Action::Requeue { pod } => self.requeue(pod, tenure),
                Action::ClearNomination { pod } => self.clear_nomination(pod, tenure),
                Action::CreateGang(_)
                | Action::WriteStatus(_)
                | Action::CreateBatch(_)
                | Action::AbandonBatch { .. }
                | Action::Evict(_)
                | Action::Ungate { .. }
                | Action::DeleteGang { .. } => match lanes.last_mut().filter(|(last, _)| *last == gang) {
                    Some((_, lane)) => lane.push(action),
                    None => lanes.push((gang, vec![action])),
                },
            }
        }
        for (gang, lane) in lanes {
            if let Some(gang) = &gang {
                let next = lane.iter().find_map(|action| match action {
                    Action::WriteStatus(write) => Some(Box::new(write.next.clone())),
                    Action::CreateGang(_)
                    | Action::CreateBatch(_)
                    | Action::AbandonBatch { .. }
                    | Action::Release(_)
                    | Action::Evict(_)
                    | Action::Report(_)
                    | Action::Ungate { .. }
                    | Action::Requeue { .. }
                    | Action::ClearNomination { .. }
                    | Action::DeleteGang { .. } => None,
                });
                self.busy.insert(gang.clone(), next);
            }
            let (hands, seen, tenure) =
                (Arc::clone(&self.hands), Seen::of(state, gang.as_ref(), &lane), tenure.clone());
            self.lanes.spawn(async move {
                let of_nobody = ObjectKey::new("", "");
                let call = || hands.carry_out(&seen, lane, &tenure);
                let effects = hands.gangs.call(gang.as_ref().unwrap_or(&of_nobody), call).await;
                Done { gang, effects }
            });
        }
        let mut again: Option<Duration> = None;
        let patience = tokio::time::sleep(PATIENCE);
        tokio::pin!(patience);
        while !self.lanes.is_empty() {
            tokio::select! {
                sooner = self.progress() => again = again.into_iter().chain(sooner).min(),
                () = &mut patience => break,
            }
        }
        again
    }

    /// Whether an action is not one that was carried out a moment ago; then it counts as carried out.
    fn is_news(&mut self, action: &Action) -> bool {
        let now = Instant::now();
        match action {
            Action::Release(release) => {
                let same = |sent: &&Sent| sent.epoch == release.epoch && sent.node == release.node;
                let before = self.sent.get(&release.pod.uid).filter(same);
                let renominate = self.hands.options.renominate;
                let spacing = spacing(before.and_then(|sent| sent.spacing), release.stuck.is_some(), renominate);
                let pause = before.and_then(|sent| sent.pause);
                let after = |sent: &Sent| sent.pause.filter(|_| sent.failed).unwrap_or(spacing);
                let news = before.is_none_or(|sent| sent.age().is_some_and(|age| age >= after(sent)));
                if news {
                    let (epoch, node) = (release.epoch, release.node.clone());
                    let spacing = release.stuck.map(|_| spacing);
                    let sent = Sent { epoch, node, began: Arc::default(), spacing, failed: false, pause };
                    self.sent.insert(release.pod.uid.clone(), sent);
                }
                news
            }
            Action::Report(report) => {
                let known = self.reported.get(&report.pod.uid);
                let news =
                    known.is_none_or(|(reason, message, _)| *reason != report.reason || *message != report.message);
                let news = news
                    && if report.pod.reported.as_deref() == Some(report.reason) {
                        self.rephrased.may(now, REPHRASED_AT_ONCE)
                    } else {
                        !is_waiting(report.reason) || self.paced.may(now, WAITING_AT_ONCE)
                    };
                if news {
                    self.reported.insert(report.pod.uid.clone(), (report.reason, report.message.clone(), now));
                }
                news
            }
            Action::Evict(evict) => {
                // A graceful end that nobody sees to any more is another one.
                let news = self.evicted.get(&evict.pod.uid).is_none_or(|(_, at_once)| evict.at_once && !at_once);
                if news {
                    self.evicted.insert(evict.pod.uid.clone(), (now, evict.at_once));
                }
                news
            }
            Action::AbandonBatch { name, .. } => is_first(&mut self.abandoned, name, now),
            Action::Ungate { uid } => is_first(&mut self.ungated, uid, now),
            Action::ClearNomination { pod } => is_first(&mut self.cleared, &pod.uid, now),
            Action::Requeue { pod } => {
                let before = self.requeued.get(&pod.uid).copied();
                let news = before.is_none_or(|(since, pause)| now.duration_since(since) >= pause);
                if news {
                    let pause = before.map_or(Duration::from_secs(5), |(_, pause)| pause * 2).min(LONGEST);
                    self.requeued.insert(pod.uid.clone(), (now, pause));
                }
                news
            }
            Action::CreateGang(_) | Action::WriteStatus(_) | Action::CreateBatch(_) | Action::DeleteGang { .. } => true,
        }
    }

    fn release(&mut self, state: &State, release: Release, tenure: &Tenure) {
        let (hands, known, tenure) =
            (Arc::clone(&self.hands), state.lists.get(&release.pod.uid).cloned(), tenure.clone());
        let Some(began) = self.sent.get(&release.pod.uid).map(|sent| Arc::downgrade(&sent.began)) else { return };
        self.lanes.spawn(async move {
            let call = async || {
                // A paused former holder of the lease must not go on releasing.
                let made = begins(&began, &hands.cluster.load(), &release) && tenure.lasts();
                let error = if made { send(&hands.client, known.as_deref(), &release).await.err() } else { None };
                error.map(|error| {
                    let error = crate::telemetry::chain(&error);
                    debug!(pod = %release.pod.key, error, "release not written, tried again");
                    Effect::Unsent(release.pod.uid.clone())
                })
            };
            let effect = hands.members.call(&whose(&release.pod), call).await;
            Done { gang: None, effects: effect.into_iter().collect() }
        });
    }

    fn requeue(&mut self, pod: Arc<Pod>, tenure: &Tenure) {
        let (hands, tenure) = (Arc::clone(&self.hands), tenure.clone());
        self.lanes.spawn(async move {
            let call = async || {
                if tenure.lasts()
                    && let Err(error) = hands.requeue(&pod).await
                {
                    debug!(pod = %pod.key, error = %crate::telemetry::chain(&error), "not requeued, tried again");
                }
            };
            hands.members.call(&whose(&pod), call).await;
            Done { gang: None, effects: Vec::new() }
        });
    }

    fn clear_nomination(&mut self, pod: Arc<Pod>, tenure: &Tenure) {
        let (hands, tenure) = (Arc::clone(&self.hands), tenure.clone());
        self.lanes.spawn(async move {
            let call = async || {
                let error = if tenure.lasts() { hands.clear_nomination(&pod).await.err() } else { None };
                error.map(|error| {
                    let error = crate::telemetry::chain(&error);
                    debug!(pod = %pod.key, error, "nomination not taken back, tried again");
                    Effect::Nominated(pod.uid.clone())
                })
            };
            let effect = hands.members.call(&whose(&pod), call).await;
            Done { gang: None, effects: effect.into_iter().collect() }
        });
    }

    fn report(&mut self, report: MemberReport, tenure: &Tenure) {
        let (hands, tenure) = (Arc::clone(&self.hands), tenure.clone());
        self.lanes.spawn(async move {
            let call = async || {
                if !tenure.lasts() {
                    return None;
                }
                let error = hands.report(&report).await.err()?;
                debug!(pod = %report.pod.key, error = %format!("{error:#}"), "condition not written, tried again");
                Some(Effect::Unreported(report.pod.uid.clone()))
            };
            let effect = hands.members.call(&whose(&report.pod), call).await;
            Done { gang: None, effects: effect.into_iter().collect() }
        });
    }

    /// Waits until calls of a lane end, for ever if none is under way. The answer is when to look again, if they say so.
    pub async fn progress(&mut self) -> Option<Duration> {
        let Some(done) = self.lanes.join_next().await else { return std::future::pending().await };
        let Done { gang, effects } = match done {
            Ok(done) => done,
            Err(error) => {
                // A panic is a bug; whose lane it was is not known, so nothing is trusted any more.
                error!(%error, "calls of the gang loop ended early: this is a bug, please report it");
                self.forget();
                return Some(AGAIN);
            }
        };
        if let Some(gang) = gang {
            self.busy.remove(&gang);
        }
        let mut again: Option<Duration> = None;
        for effect in effects {
            let sooner = match effect {
                Effect::Wrote(object) => {
                    let gang = Arc::new(gang_state::read(&object));
                    self.written.insert(gang.key.clone(), (gang, Arc::from(object)));
                    Some(Duration::from_millis(1))
                }
                Effect::Overtaken(gang) => {
                    self.written.remove(&gang);
                    Some(Duration::from_millis(1))
                }
                Effect::Batch(name) => {
                    self.created.insert(name, Instant::now());
                    None
                }
                Effect::Unsent(uid) => self.sent.get_mut(&uid).map(|sent| {
                    // At once the first time: it was overtaken by somebody's write, most often.
                    let pause = sent.pause.map_or(Duration::ZERO, |pause| (pause * 2).max(AGAIN));
                    let pause = pause.min(self.hands.options.renominate);
                    (sent.failed, sent.pause) = (true, Some(pause));
                    pause.max(AGAIN)
                }),
                Effect::Unevicted(uid) => {
                    self.evicted.remove(&uid);
                    Some(Duration::from_millis(500))
                }
                Effect::Unabandoned(name) => {
                    self.abandoned.remove(&name);
                    Some(Duration::from_millis(500))
                }
                Effect::Gated(uid) => {
                    self.ungated.remove(&uid);
                    Some(Duration::from_millis(500))
                }
                Effect::Nominated(uid) => {
                    self.cleared.remove(&uid);
                    Some(Duration::from_millis(500))
                }
                Effect::Unreported(uid) => {
                    self.reported.remove(&uid);
                    None
                }
                Effect::Failed => Some(Duration::from_millis(500)),
            };
            again = again.into_iter().chain(sooner).min();
        }
        again
    }

    /// Waits for all calls under way.
    pub async fn finish(&mut self) {
        while !self.lanes.is_empty() {
            self.progress().await;
        }
    }
}

/// The gang an action is about, where it says so.
fn gang_of(state: &State, action: &Action) -> Option<ObjectKey> {
    match action {
        Action::CreateGang(recognised) => Some(recognised.key.clone()),
        Action::WriteStatus(write) => Some(write.gang.key.clone()),
        Action::CreateBatch(request) => Some(request.gang.key.clone()),
        Action::DeleteGang { gang } => Some(gang.key.clone()),
        Action::Release(release) => release.pod.membership.gang().cloned(),
        Action::Evict(evict) => evict.pod.membership.gang().cloned(),
        Action::Report(report) => report.pod.membership.gang().cloned(),
        Action::AbandonBatch { name, .. } => {
            let gang = state.batches.get(&**name)?.object().spec.gang_ref.as_ref()?;
            Some(ObjectKey::new(gang.namespace.as_str(), gang.name.as_str()))
        }
        Action::ClearNomination { pod } => pod.membership.gang().cloned(),
        Action::Ungate { .. } | Action::Requeue { .. } => None,
    }
}

fn version(text: &str) -> u64 {
    // Resource versions are comparable integers since Kubernetes 1.35 (KEP-5504); one that is not counts as newest,
    // so that the watch is trusted.
    text.parse().unwrap_or(u64::MAX)
}
