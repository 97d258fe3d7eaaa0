//! The provisioner: turns NodeBatches into EC2 launches and back, and serves ProvisioningRequests.
//!
//! One task per NodeBatch, so that a slow answer for one never holds up another; only the lease holder acts.

mod allowed;
mod batch;
mod canary;
mod catalogue;
mod class;
mod collect;
mod events;
mod fleets;
mod interruption;
mod join;
mod launch;
mod ledger;
mod located;
mod losses;
mod metrics;
mod pool;
mod ranking;
mod repair;
mod request;
mod store;
mod teardown;
mod template;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use kube::{Client, ResourceExt};
use muster_core::ec2::{CapacityType, ClusterAccess, ErrorClass, Reservation, classify};
use muster_core::offering::{Asked, Ceiling, IceMemory, Pool, PriceBook, Refusals};
use muster_core::topology::Levels;
use muster_ec2::{ClientOptions, SpotPrices};
use tokio::sync::Notify;
use tokio::sync::watch as channel;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info_span, warn};

use crate::clock::Clock;
use crate::cloud::{Cloud, in_lane};
use crate::cluster::Cluster;
use crate::gang::{Events, PoolSource};
use catalogue::Catalogue;

pub use metrics::ProvisionerMetrics;

/// What the provisioner needs to know of the installation.
#[derive(Clone, Debug)]
pub struct ProvisionerOptions {
    /// UID of the namespace kube-system: marks everything that is ours in EC2.
    pub cluster_uid: String,
    /// How nodes reach the cluster.
    pub access: ClusterAccess,
    /// Prices that replace the built-in table.
    pub prices: PriceBook,
    /// Topology levels: a launch that misses the level a gang requires is given back.
    pub levels: Levels,
    /// Most dollars per hour of everything that is bought; nothing is bought without.
    pub ceiling: Option<Ceiling>,
    /// First back-off after a round without capacity; doubles up to twenty times this.
    pub back_off: jiff::SignedDuration,
    /// The queue that EventBridge fills with notices about instances: how to connect, and its URL or name.
    pub interruptions: Option<(ClientOptions, String)>,
}

/// Everything the provisioner's parts share.
pub struct Context {
    client: Client,
    cluster: Cluster,
    cloud: Cloud,
    clock: Clock,
    options: ProvisionerOptions,
    pools: PoolSource,
    wake: Arc<Notify>,
    events: Events,
    ice: Mutex<IceMemory>,
    /// Quotas and other refusals.
    refusals: Mutex<Refusals>,
    /// Reservations by class, read at this time.
    reservations: Mutex<BTreeMap<String, (Timestamp, Vec<Reservation>)>>,
    /// What EC2 refused launches for, by class.
    faults: Mutex<BTreeMap<String, class::Fault>>,
    /// NodeBatches as they were written last.
    written: ledger::Written,
    /// Held from the look at what is left until what is taken of it is written down.
    purchase: tokio::sync::Mutex<()>,
    /// When the subnets of each class were read.
    subnets: Mutex<BTreeMap<String, Timestamp>>,
    /// Finished fleets.
    fleets: Mutex<fleets::Fleets>,
    /// Classes that were tried out, with their generation.
    tried: Mutex<BTreeMap<String, Option<i64>>>,
    catalogue: ArcSwap<Catalogue>,
    /// Types by pool.
    allowed: allowed::Allowed,
    metrics: ProvisionerMetrics,
    /// Orphans that wait for a person.
    held: Mutex<Option<collect::Held>>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("options", &self.options).finish_non_exhaustive()
    }
}

/// The provisioner of one replica.
#[derive(Debug)]
pub struct Provisioner {
    context: Arc<Context>,
    leader: channel::Receiver<bool>,
}

/// Pools, classes and requests are looked at anew after this, in the provisioner's time.
const REFRESH: jiff::SignedDuration = jiff::SignedDuration::from_secs(300);
/// What could not be read is asked for again after this, in the provisioner's time.
const RETRY: jiff::SignedDuration = jiff::SignedDuration::from_secs(15);
/// Real time between two looks without a change.
const TICK: Duration = Duration::from_secs(1);

impl Provisioner {
    /// Wires a provisioner that describes its pools into `pools` and rings `wake` when a batch moves on.
    #[must_use]
    #[expect(clippy::too_many_arguments, reason = "wiring: each is one part of the process")]
    pub fn new(
        client: Client,
        cluster: Cluster,
        cloud: Cloud,
        clock: Clock,
        options: ProvisionerOptions,
        pools: PoolSource,
        wake: Arc<Notify>,
        metrics: ProvisionerMetrics,
        leader: channel::Receiver<bool>,
    ) -> Self {
        let context = Context {
            events: Events::new(client.clone()),
            client,
            cluster,
            cloud,
            clock,
            options,
            pools,
            wake,
            ice: Mutex::default(),
            refusals: Mutex::default(),
            reservations: Mutex::default(),
            faults: Mutex::default(),
            written: ledger::Written::default(),
            purchase: tokio::sync::Mutex::default(),
            subnets: Mutex::default(),
            fleets: Mutex::default(),
            tried: Mutex::default(),
            catalogue: ArcSwap::from_pointee(Catalogue::default()),
            allowed: allowed::Allowed::default(),
            metrics,
            held: Mutex::default(),
        };
        Self { context: Arc::new(context), leader }
    }

    /// Runs until cancelled. Losing the lease ends every batch's task between two of its steps.
    pub async fn run(mut self, cancel: CancellationToken) -> anyhow::Result<()> {
        let mut changes = self.context.cluster.changes();
        let mut tasks: JoinSet<String> = JoinSet::new();
        let mut driven: BTreeMap<String, tokio::task::AbortHandle> = BTreeMap::new();
        let mut refreshed = Arc::new(tokio::sync::Mutex::new(Refreshed::default()));
        let mut readers: JoinSet<()> = JoinSet::new();
        let mut term: Option<CancellationToken> = None;
        let mut watchers: JoinSet<()> = JoinSet::new();
        loop {
            tokio::select! {
                () = cancel.cancelled() => break,
                changed = changes.changed() => changed?,
                changed = self.leader.changed() => changed?,
                Some(ended) = tasks.join_next() => {
                    // A batch's task handles its errors; one that dies did so by a bug of ours.
                    match ended {
                        Ok(name) => { driven.remove(&name); }
                        Err(error) if error.is_cancelled() => {}
                        Err(error) => anyhow::bail!("a NodeBatch's task died: {error}"),
                    }
                }
                Some(read) = readers.join_next() => read?,
                Some(ended) = watchers.join_next() => ended?,
                () = tokio::time::sleep(TICK) => {}
            }
            changes.borrow_and_update();
            if !*self.leader.borrow_and_update() {
                if let Some(term) = term.take() {
                    term.cancel();
                    refreshed = Arc::default();
                }
                continue;
            }
            let state = self.context.cluster.load();
            if !state.snapshot.synced {
                continue;
            }
            let term = term.get_or_insert_with(|| {
                self.context.remember_ice(&state);
                let term = cancel.child_token();
                self.watch(&mut watchers, &term);
                term
            });
            self.refresh().await;
            if readers.is_empty() && refreshed.try_lock().is_ok_and(|refreshed| refreshed.due(&self.context, &state)) {
                let (context, refreshed) = (Arc::clone(&self.context), Arc::clone(&refreshed));
                readers.spawn(async move { context.read_cloud(&mut *refreshed.lock().await).await });
            }
            for batch in state.batches.values() {
                let name = batch.name_any();
                if driven.contains_key(&name) {
                    continue;
                }
                let context = Arc::clone(&self.context);
                let term = term.clone();
                let span = info_span!("batch", name);
                let task = name.clone();
                // A drought of one pool must not hold up the launches of another.
                let lane = Arc::from(batch.spec.node_pools.join(","));
                let handle = tasks.spawn(
                    async move {
                        in_lane(lane, Box::pin(batch::drive(&context, &task, &term))).await;
                        task
                    }
                    .instrument(span),
                );
                driven.insert(name, handle);
            }
        }
        // A step that was sent is finished; the next is not begun.
        if let Some(term) = term {
            term.cancel();
        }
        while tasks.join_next().await.is_some() {}
        while watchers.join_next().await.is_some() {}
        Ok(())
    }

    /// Starts what looks after the whole account for as long as this replica leads.
    fn watch(&self, watchers: &mut JoinSet<()>, term: &CancellationToken) {
        let context = || Arc::clone(&self.context);
        watchers.spawn(collect::run(context(), term.clone()).instrument(info_span!("collection")));
        watchers.spawn(interruption::sweep(context(), term.clone()).instrument(info_span!("instance-status")));
        if let Some((options, queue)) = self.context.options.interruptions.clone() {
            let (context, term) = (context(), term.clone());
            let listen = async move {
                let Some(queue) = interruption::connect(&context, options, &queue, &term).await else { return };
                interruption::listen(context, queue, term).await;
            };
            watchers.spawn(listen.instrument(info_span!("interruptions")));
        }
    }

    /// Describes pools and answers requests from what is known. Asks nothing of EC2.
    async fn refresh(&self) {
        let context = &self.context;
        let state = context.cluster.load();
        context.metrics.measure(state.batches.values().filter_map(|batch| batch.status.as_ref()));
        if let Err(error) = pool::reconcile(context, &state).await {
            debug!(error = %crate::telemetry::chain(&error), "pools");
        }
        if let Err(error) = request::reconcile(context, &state).await {
            warn!(error = %crate::telemetry::chain(&error), "provisioning requests");
        }
    }
}

impl Context {
    /// Reads the catalogue and what classes select, where it is time. Takes as long as EC2 does, so nothing waits for
    /// it.
    async fn read_cloud(&self, refreshed: &mut Refreshed) {
        let context = self;
        let now = context.clock.now();
        if refreshed.catalogue_due(now) || refreshed.spot_types_changed(context, &context.cluster.load(), now) {
            refreshed.asked = Some(now);
            context.read_spot_prices(refreshed, now).await;
            let number = context.catalogue.load().number.saturating_add(1);
            match catalogue::read(&context.cloud, &context.options.prices, &refreshed.spot, number).await {
                Ok(catalogue) => {
                    context.catalogue.store(Arc::new(catalogue));
                    refreshed.catalogue = Some(now);
                }
                Err(error) => {
                    if refreshed.failed.is_none_or(|at| now.duration_since(at) >= REFRESH) {
                        warn!(error = %error, "instance types cannot be read; nothing is bought until they can");
                        refreshed.failed = Some(now);
                    }
                }
            }
        }
        let state = context.cluster.load();
        if let Err(error) = class::reconcile(context, &state, &mut refreshed.classes).await {
            debug!(error = %crate::telemetry::chain(&error), "classes");
        }
    }
}

/// Spot prices are read anew after this, in the provisioner's time.
const SPOT_PRICES: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);

impl Context {
    /// Reads spot prices hourly, of what pools may buy on spot. Without a price nothing is bought there.
    async fn read_spot_prices(&self, refreshed: &mut Refreshed, now: Timestamp) {
        let types = pool::spot_types(self, &self.cluster.load());
        let known = refreshed.spot_types == types;
        if types.is_empty() || known && refreshed.spot_read.is_some_and(|at| now.duration_since(at) < SPOT_PRICES) {
            return;
        }
        match self.cloud.spot_prices(&types, now).await {
            Ok(prices) => {
                refreshed.spot = prices;
                refreshed.spot_types = types;
                refreshed.spot_read = Some(now);
            }
            Err(error) => warn!(error = %error, "spot prices cannot be read; those read last are used"),
        }
    }
}

#[derive(Debug, Default)]
struct Refreshed {
    catalogue: Option<Timestamp>,
    asked: Option<Timestamp>,
    failed: Option<Timestamp>,
    classes: BTreeMap<String, (Option<i64>, Timestamp)>,
    spot: SpotPrices,
    spot_types: Vec<String>,
    spot_read: Option<Timestamp>,
}

impl Refreshed {
    /// Whether anything is to be read.
    fn due(&self, context: &Context, state: &crate::cluster::State) -> bool {
        let now = context.clock.now();
        self.catalogue_due(now)
            || self.spot_types_changed(context, state, now)
            || class::due(context, state, &self.classes, now).next().is_some()
    }

    /// A pool that allows spot has come or changed since prices were read.
    fn spot_types_changed(&self, context: &Context, state: &crate::cluster::State, now: Timestamp) -> bool {
        let types = pool::spot_types(context, state);
        !types.is_empty() && types != self.spot_types && self.asked.is_none_or(|at| now.duration_since(at) >= RETRY)
    }

    fn catalogue_due(&self, now: Timestamp) -> bool {
        self.catalogue.is_none_or(|at| now.duration_since(at) >= REFRESH)
            && self.asked.is_none_or(|at| now.duration_since(at) >= RETRY)
    }
}

impl Context {
    /// What earlier attempts learned about missing capacity and quotas: the memory outlives a restart, since the
    /// attempts do.
    fn remember_ice(&self, state: &crate::cluster::State) {
        let mut ice = self.ice.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut refusals = self.refusals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for attempt in state.batches.values().filter_map(|batch| batch.status.as_ref()).flat_map(|s| &s.attempts) {
            let (Some(code), Some(ended), Some(market)) =
                (attempt.code.as_deref(), attempt.ended, CapacityType::parse(&attempt.capacity_type))
            else {
                continue;
            };
            if attempt.outcome != "Lost" {
                continue;
            }
            let class = classify(Some(code), None);
            if class == ErrorClass::Capacity {
                let pool = Pool {
                    instance_type: attempt.instance_type.clone(),
                    zone: attempt.zone.clone(),
                    market,
                    group: attempt.group,
                };
                ice.record(&pool, attempt.count, ended);
            } else {
                let asked = Asked {
                    instance_type: &attempt.instance_type,
                    zone: &attempt.zone,
                    market,
                    subnet: &attempt.subnet,
                    count: attempt.count,
                };
                refusals.record(class, Some(code), &asked, ended);
            }
        }
        ice.lapse(self.clock.now());
    }
}
