//! Decide on every change, act, look again when a timer says so. Activations carry no input except "something
//! changed": the decision is always made again from the newest state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use kube::ResourceExt;
use muster_api::crd::ProvisioningRequest;
use muster_core::gang::{self, BatchView, Ledger, Memory, PoolView, RecordedWorld, Settings, World};
use muster_core::model::batch::MemberState;
use muster_core::model::names::{NodeName, ObjectKey};
use muster_core::topology::Levels;
use tokio::sync::Notify;
use tokio::sync::watch as channel;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use super::executor::Executor;
use crate::clock::now_real;
use crate::cluster::{Cluster, State};
use crate::gang::Recorder;
use crate::progress::Beat;
use crate::telemetry::GangMetrics;
use crate::term::{Tenure, Term};

/// Pools as the provisioner last described them.
pub type PoolSource = Arc<ArcSwap<Vec<PoolView>>>;

/// What the loop reads.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// The cluster.
    pub cluster: Cluster,
    /// Topology levels.
    pub levels: Levels,
    /// Pools.
    pub pools: PoolSource,
    /// Timers.
    pub settings: Settings,
    /// Whether this replica holds the lease.
    pub leader: channel::Receiver<Option<Term>>,
    /// The term for which everything was seen that was written before it.
    pub current: channel::Receiver<Option<Term>>,
    /// Rung by the extender and by the provisioner.
    pub requeue: Arc<Notify>,
    /// Metrics.
    pub metrics: GangMetrics,
    /// Reported each time the loop goes round.
    pub beat: Beat,
    /// Where decisions are kept, if somebody wants them.
    pub recorder: Option<Recorder>,
}

/// The loop.
#[derive(Debug)]
pub struct GangLoop {
    inputs: Inputs,
    executor: Executor,
    /// What earlier passes found out about the nodes.
    ledger: Ledger,
    /// What this replica noted while it held the lease.
    memory: Memory,
}

/// The loop looks again after this at the latest, whatever happens.
const IDLE: Duration = Duration::from_secs(10);
/// Two passes are at least this far apart: a burst of changes costs one.
const MIN_INTERVAL: Duration = Duration::from_millis(20);

impl GangLoop {
    /// A loop over `inputs` that acts through `executor`.
    #[must_use]
    pub fn new(inputs: Inputs, executor: Executor) -> Self {
        Self { inputs, executor, ledger: Ledger::default(), memory: Memory::default() }
    }

    /// Runs until cancelled. Errors are those of a bug: everything expected is handled and tried again.
    pub async fn run(mut self, cancel: CancellationToken) -> anyhow::Result<()> {
        let mut changes = self.inputs.cluster.changes();
        let mut leader = self.inputs.leader.clone();
        let mut current = self.inputs.current.clone();
        let mut led: Option<Term> = None;
        let mut next = IDLE;
        loop {
            tokio::select! {
                () = cancel.cancelled() => {
                    self.executor.finish().await;
                    return Ok(());
                }
                changed = changes.changed() => changed?,
                changed = leader.changed() => changed?,
                // Whoever states it ends with the process.
                Ok(()) = current.changed() => {}
                () = self.inputs.requeue.notified() => {}
                _ = self.executor.progress() => {}
                () = tokio::time::sleep(next) => {}
            }
            self.inputs.beat.beat();
            changes.borrow_and_update();
            leader.borrow_and_update();
            let tenure = Tenure::of(&leader);
            let term = tenure.as_ref().map(Tenure::term);
            if led.is_some() && term != led {
                // What was sent is awaited: the capacity of a write counts until its outcome is known. Then who leads is asked again.
                self.executor.finish().await;
                self.forget();
                (led, next) = (None, MIN_INTERVAL);
                continue;
            }
            led = term;
            next = match tenure {
                Some(tenure) if *current.borrow_and_update() == term => self.pass(&tenure).await?,
                Some(_) => IDLE,
                None => {
                    self.forget();
                    IDLE
                }
            };
            tokio::time::sleep(MIN_INTERVAL).await;
        }
    }

    /// Whatever this replica trusted of its own writes is void once it has lost the lease, even if it has it again.
    fn forget(&mut self) {
        self.executor.forget();
        self.ledger = Ledger::default();
        self.memory = Memory::default();
    }

    /// One decision and its actions. The answer is when to look again.
    async fn pass(&mut self, tenure: &Tenure) -> anyhow::Result<Duration> {
        if let Some(kind) = self.inputs.cluster.stale() {
            warn!(kind, "nothing is decided: a watch is too old");
            return Ok(IDLE);
        }
        let state = self.inputs.cluster.load();
        let state = self.executor.assumed(&state);
        let started = std::time::Instant::now();
        let inputs = self.inputs.clone();
        let batches = self.executor.batches(batches(&state));
        let pools = inputs.pools.load_full();
        let shared = Arc::clone(&state);
        let memory = self.memory.clone();
        // Planning is heavy and synchronous: it must not hold up the handlers' thread.
        let mut ledger = std::mem::take(&mut self.ledger);
        let (pass, ledger, recorded) = tokio::task::spawn_blocking(move || {
            let bookings = bookings(&shared);
            let (lost, ending) = (lost(&shared), ending(&shared));
            let world = World {
                snapshot: &shared.snapshot,
                levels: &inputs.levels,
                pools: &pools,
                batches: &batches,
                lost: &lost,
                ending: &ending,
                bookings: &bookings,
                memory: &memory,
                settings: &inputs.settings,
                now: now_real(),
            };
            let pass = gang::pass_with(&world, &mut ledger);
            let recorded = inputs.recorder.is_some().then(|| RecordedWorld::of(&world));
            (pass, ledger, recorded)
        })
        .await?;
        self.ledger = ledger;
        if let Some(recorder) = &self.inputs.recorder {
            if let Some(world) = recorded {
                recorder.keep_pass(world, &pass);
            }
            recorder.keep(pass.decisions);
        }
        self.inputs.metrics.count_stuck(&pass.stuck);
        for note in &pass.notes {
            self.memory.record(note, now_real(), self.inputs.settings.exclude_ttl);
        }
        self.memory.prune(now_real(), &state.snapshot);
        if pass.plans > 0 {
            self.inputs.metrics.plan_seconds.observe(started.elapsed().as_secs_f64());
        }
        self.inputs.metrics.count_phases(&state.snapshot);
        self.inputs.metrics.objects.measure(state.conditions(), state.snapshot.gangs.values().map(AsRef::as_ref));
        self.inputs.metrics.count_waiting(&state.snapshot, now_real());
        for (gang, notes) in &pass.refused_plans {
            self.inputs.metrics.refused_plans.inc();
            error!(gang = %gang, ?notes, "the checker refused a plan: this is a bug, please report it");
        }
        debug!(version = state.snapshot.version, plans = pass.plans, actions = pass.actions.len(), "pass");
        let again = self.executor.execute(&state, pass.actions, tenure).await;
        let now = now_real();
        let timer = pass.requeue_at.map_or(IDLE, |at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        Ok(timer.min(again.unwrap_or(IDLE)).min(IDLE))
    }
}

fn batches(state: &State) -> BTreeMap<Arc<str>, BatchView> {
    state.batches.values().map(|seen| BatchView::of(seen.batch())).map(|view| (Arc::clone(&view.name), view)).collect()
}

/// Nodes that their batch has written off, although they may still run for a moment.
fn lost(state: &State) -> BTreeSet<NodeName> {
    let mut lost = BTreeSet::new();
    for status in state.batches.values().map(|seen| &seen.batch().status) {
        let listed = status.instances.iter().filter(|instance| instance.state == MemberState::Lost);
        let nodes = listed.chain(&status.replaced).filter_map(|instance| {
            let name = NodeName::from(instance.node.as_deref()?);
            // A Node of that name may be another instance's by now: names made of addresses come back.
            let others = state.snapshot.nodes.get(&name).is_some_and(|entry| !entry.node.is_of(&instance.id));
            (!others).then_some(name)
        });
        lost.extend(nodes);
    }
    lost
}

/// Gangs whose owner is being deleted, is gone, or asks for no pods any more: their members follow.
fn ending(state: &State) -> BTreeSet<ObjectKey> {
    let gangs = state.gangs.iter();
    let ending = gangs.filter(|(_, gang)| gang.owner_references().iter().any(|owner| state.objects.is_going(owner)));
    ending.map(|(key, _)| key.clone()).collect()
}

fn bookings(state: &State) -> BTreeMap<ObjectKey, Arc<str>> {
    state
        .requests
        .iter()
        .filter_map(|(key, request): (&ObjectKey, &Arc<ProvisioningRequest>)| {
            Some((key.clone(), Arc::from(request.metadata.uid.as_deref()?)))
        })
        .collect()
}
