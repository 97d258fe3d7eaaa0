//! The provisioner: turns NodeBatches into EC2 launches and back, and serves ProvisioningRequests.
//!
//! What happens to NodeBatches is decided in [`muster_core::batch`]; only the lease holder acts on it.

mod batch;
mod catalogue;
mod class;
mod pool;
mod request;
mod rounds;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use kube::Client;
use muster_api::crd::EC2NodeClass;
use muster_api::{books, keys, node_class};
use muster_core::batch::{Report, spent_so_far};
use muster_core::ec2::{ClusterAccess, ErrorClass, Family, Reservation, classify};
use muster_core::model::batch::AttemptOutcome;
use muster_core::offering::{Asked, Ceiling, PriceBook, Refusals, UnavailableMemory};
use muster_core::topology::Levels;
use muster_ec2::{ClientOptions, SpotPrices};
use tokio::sync::Notify;
use tokio::sync::watch as channel;
use tokio::sync::watch::error::RecvError;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info, info_span, warn};

use crate::clock::Clock;
use crate::cloud::Cloud;
use crate::cluster::Cluster;
use crate::gang::{Events, PoolSource, Recorder};
use crate::progress::Progress;
use crate::telemetry::provisioner::ProvisionerMetrics;
use crate::term::Term;
use batch::worker::{Seen, Worker};
use batch::{collect, fleets, interruption, worker};
use catalogue::Catalogue;
pub use class::region::without_region;

/// How nodes reach the cluster.
#[derive(Clone, Debug)]
pub struct Way {
    /// What their user data says. The name is that of the configuration, and stays.
    pub access: ClusterAccess,
    /// The VPC of the cluster, where EKS was asked and answered.
    pub vpc: Option<String>,
    /// Why that way cannot be right, if it cannot: then nothing is launched.
    pub problem: Option<String>,
    /// What the definitions of our kinds on the cluster do not know, if they are older than this Muster, or why that is not known: then nothing
    /// is launched either.
    pub outdated: Option<String>,
}

impl Way {
    /// Why nothing, or almost nothing, is launched.
    #[must_use]
    pub fn wrong(&self) -> Option<&str> {
        self.outdated.as_deref().or(self.problem.as_deref())
    }

    /// Why nodes of a class could not join by it, if they could not. Images of one's own may know the way to the cluster by themselves.
    fn problem_for(&self, class: &EC2NodeClass) -> Option<&str> {
        let unreachable = self.problem.as_deref().filter(|_| node_class::family(class) != Family::Custom);
        self.outdated.as_deref().or(unreachable)
    }
}

/// The way as it is known last: it may become known after the start.
pub type WaySource = Arc<ArcSwap<Way>>;

/// What the provisioner needs to know of the installation.
#[derive(Clone, Debug)]
pub struct ProvisionerOptions {
    /// UID of the namespace kube-system: marks everything that is ours in EC2.
    pub cluster_uid: String,
    /// How nodes reach the cluster, as far as it is known by now.
    pub way: WaySource,
    /// Prices that replace the built-in table.
    pub prices: PriceBook,
    /// List prices are read from the Price List API; else the list that Muster brings is all there is.
    pub list_prices: bool,
    /// Topology levels: a launch that misses the level a gang requires is terminated.
    pub levels: Levels,
    /// Most dollars per hour of everything that is provisioned; nothing is provisioned without.
    pub ceiling: Option<Ceiling>,
    /// First back-off after a round without capacity; doubles up to twenty times this.
    pub back_off: jiff::SignedDuration,
    /// Pods of no gang are planned once none has come for this long, in real time.
    pub batch_idle: jiff::SignedDuration,
    /// They are planned this long after the first at the latest, in real time.
    pub batch_max: jiff::SignedDuration,
    /// The queue that EventBridge fills with notices about instances: how to connect, and its URL or name.
    pub interruptions: Option<(ClientOptions, String)>,
    /// Where passes over NodeBatches are kept, if somebody wants them.
    pub recorder: Option<Recorder>,
}

/// Everything the provisioner's parts share.
pub struct Context {
    client: Client,
    cluster: Cluster,
    cloud: Cloud,
    clock: Clock,
    options: ProvisionerOptions,
    pools: PoolSource,
    requeue: Arc<Notify>,
    events: Events,
    unavailable: Mutex<UnavailableMemory>,
    /// Quotas and other refusals.
    refusals: Mutex<Refusals>,
    /// Reservations by class, read at this time.
    reservations: Mutex<BTreeMap<String, (Timestamp, Vec<Reservation>)>>,
    /// When reservations could not be read, by class.
    unread_reservations: Mutex<BTreeMap<String, Timestamp>>,
    /// What EC2 refused launches for, by class.
    faults: Mutex<BTreeMap<String, class::Fault>>,
    /// When the subnets of each class were read.
    subnets: Mutex<BTreeMap<String, Timestamp>>,
    /// Finished fleets.
    fleets: Mutex<fleets::Fleets>,
    /// Classes that were tried out.
    tried: Mutex<BTreeMap<String, class::Version>>,
    catalogue: ArcSwap<Catalogue>,
    /// Types by pool.
    allowed: pool::allowed::Allowed,
    metrics: ProvisionerMetrics,
    /// Orphans that wait for a person.
    held: Mutex<Option<collect::Held>>,
    /// Nodes for pods of no gang that are kept since nobody saw their pods or Nodes go.
    kept: Mutex<Option<muster_core::batch::Kept>>,
    /// Why pools pause with launches for pods of no gang, by pool.
    fruitless: Mutex<BTreeMap<String, String>>,
    /// What holds for all decisions about batches.
    batch_settings: muster_core::batch::Settings,
    /// Where losses are reported.
    reports: worker::Reports,
    /// Held by the one lane that makes rounds.
    rounds: tokio::sync::Mutex<()>,
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
    leader: channel::Receiver<Option<Term>>,
    /// The term for which everything was seen that was written before it.
    current: channel::Receiver<Option<Term>>,
    reports: tokio::sync::mpsc::Receiver<worker::Reported>,
    progress: Arc<Progress>,
}

/// Pools, classes and requests are looked at again after this, in the provisioner's time.
const REFRESH: jiff::SignedDuration = jiff::SignedDuration::from_secs(300);
/// What could not be read is asked for again after this, in the provisioner's time.
const RETRY: jiff::SignedDuration = jiff::SignedDuration::from_secs(15);
/// A turn of a loop makes calls one after the other, each of which ends; with so many in one turn that they take longer,
/// something hangs.
const PATIENCE: Duration = Duration::from_mins(10);
/// Pools are described this often at most, in real time: a crowd of pods changes the cluster far more often.
const BURST: Duration = Duration::from_millis(100);
/// Two passes that are due to changes alone are at least this far apart: while hundreds of machines register and get Ready there is a
/// change every few milliseconds, and a pass looks at all of them.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// So long whoever found a loss waits until it is written down; less than a message of the queue stays invisible.
const WRITTEN: Duration = Duration::from_secs(20);
/// Real time between two looks without a change.
const TICK: Duration = Duration::from_secs(1);
/// Pools are described again after this, in the provisioner's time, where nothing but the time has changed.
const QUIET: Duration = Duration::from_secs(5);
/// Classes of which a status could not be written are not resolved again before this.
const UNWRITTEN: Duration = Duration::from_secs(5);

impl Provisioner {
    /// Wires a provisioner that describes its pools into `pools` and rings `requeue` when a batch moves on.
    #[must_use]
    #[expect(clippy::too_many_arguments, reason = "wiring: each is one part of the process")]
    pub fn new(
        client: Client,
        cluster: Cluster,
        cloud: Cloud,
        clock: Clock,
        options: ProvisionerOptions,
        pools: PoolSource,
        requeue: Arc<Notify>,
        metrics: ProvisionerMetrics,
        leader: channel::Receiver<Option<Term>>,
        current: channel::Receiver<Option<Term>>,
        progress: Arc<Progress>,
    ) -> Self {
        let (reports, found) = worker::reports();
        let batch_settings = muster_core::batch::Settings {
            cluster_uid: options.cluster_uid.clone(),
            cluster_name: options.way.load().access.name.clone(),
            back_off: options.back_off,
            dry_run: cloud.changes() == crate::cloud::Changes::Withheld,
            keys: muster_core::batch::Keys {
                gang_pending: keys::GANG_PENDING,
                disrupted: keys::DISRUPTED,
                unregistered: keys::UNREGISTERED,
                booking: keys::BOOKING,
                placement_group: keys::PLACEMENT_GROUP_ID,
                zone: keys::ZONE,
                network_layer_prefix: keys::NETWORK_LAYER_PREFIX,
            },
        };
        let context = Context {
            batch_settings,
            reports,
            events: Events::new(client.clone()),
            client,
            cluster,
            cloud,
            clock,
            options,
            pools,
            requeue,
            unavailable: Mutex::default(),
            refusals: Mutex::default(),
            reservations: Mutex::default(),
            unread_reservations: Mutex::default(),
            faults: Mutex::default(),
            subnets: Mutex::default(),
            fleets: Mutex::default(),
            tried: Mutex::default(),
            catalogue: ArcSwap::from_pointee(Catalogue::default()),
            allowed: pool::allowed::Allowed::default(),
            metrics,
            held: Mutex::default(),
            kept: Mutex::default(),
            fruitless: Mutex::default(),
            rounds: tokio::sync::Mutex::default(),
        };
        Self { context: Arc::new(context), leader, current, reports: found, progress }
    }

    /// Runs until cancelled. Losing the lease ends every batch's work between two of its steps.
    pub async fn run(mut self, cancel: CancellationToken) -> anyhow::Result<()> {
        let context = Arc::clone(&self.context);
        let mut changes = context.cluster.changes();
        let mut refreshed = Arc::new(tokio::sync::Mutex::new(Refreshed::default()));
        let mut readers: JoinSet<()> = JoinSet::new();
        let mut led: Option<Led> = None;
        // The term for which everything was seen that was written before it.
        let mut current = self.current.clone();
        let mut worker = Worker::default();
        let mut unseen = None;
        let mut sight = Sight::default();
        let mut watchers: JoinSet<()> = JoinSet::new();
        let mut refresh_at = tokio::time::Instant::now();
        // When pools were last described, and whether something has changed since.
        let (mut described, mut outdated) = (refresh_at, false);
        let beat = self.progress.within("provisioner", PATIENCE);
        // Until then nothing is decided for changes alone.
        let mut rests = refresh_at;
        loop {
            beat.beat();
            let mut changed = false;
            let next = worker.next().unwrap_or(refresh_at).min(refresh_at);
            tokio::select! {
                () = cancel.cancelled() => break,
                seen = changed_after(&mut changes, rests) => { seen?; changed = true; }
                seen = self.leader.changed() => seen?,
                carried = worker.carried(&context) => carried?,
                Some(reported) = self.reports.recv() => worker.report(&context.cluster.load(), reported),
                Some(read) = readers.join_next() => { read?; changed = true; }
                Some(ended) = watchers.join_next() => ended?,
                // Whoever states it ends with the process.
                Ok(()) = current.changed() => {}
                () = tokio::time::sleep_until(next) => {}
            }
            // Whatever ended the wait: a change that came meanwhile requeues the batches that wait for one.
            changed |= changes.has_changed()?;
            changes.borrow_and_update();
            let now = *self.leader.borrow_and_update();
            let stale = context.cluster.stale();
            sight.look(stale.is_some(), context.clock.now());
            // Somebody else may have led in between.
            if now.is_none() || led.as_ref().is_some_and(|led| Some(led.term) != now) {
                if let Some(led) = led.take() {
                    led.ends.cancel();
                    refreshed = Arc::default();
                }
                // What this replica knew of outcomes is void; whoever leads next carries out again what is open.
                worker.finish().await;
                worker = Worker::default();
                refresh_at = tokio::time::Instant::now() + if now.is_some() { Duration::ZERO } else { TICK };
                // Finishing took its time: who leads is asked again.
                continue;
            }
            let Some(now) = now else { continue };
            // Asked before the cluster is loaded, which then is at least as new.
            if *current.borrow() != Some(now) {
                refresh_at = tokio::time::Instant::now() + TICK;
                continue;
            }
            let state = context.cluster.load();
            if !state.snapshot.synced {
                refresh_at = tokio::time::Instant::now() + TICK;
                continue;
            }
            let led = led.get_or_insert_with(|| {
                context.remember_unavailable(&state);
                let led = Led { term: now, ends: cancel.child_token(), described: Arc::default() };
                self.watch(&mut watchers, &led);
                // Before anything is decided: what a batch spent that is deleted at once is reported first.
                refresh_at = tokio::time::Instant::now();
                led
            });
            outdated |= changed;
            if refresh_at <= tokio::time::Instant::now() || outdated && described.elapsed() >= BURST {
                self.refresh().await;
                led.described.notify_one();
                outdated = false;
                described = tokio::time::Instant::now();
                refresh_at = described + context.quiet();
            } else if outdated {
                refresh_at = refresh_at.min(described + BURST);
            }
            if readers.is_empty() && refreshed.try_lock().is_ok_and(|refreshed| refreshed.due(&context, &state)) {
                let (context, refreshed) = (Arc::clone(&context), Arc::clone(&refreshed));
                readers.spawn(async move { context.read_cloud(&mut *refreshed.lock().await).await });
            }
            // Once for each time that it is so.
            match stale.filter(|_| unseen.is_none()) {
                Some(kind) => {
                    warn!(kind, "a watch is too old: nothing is launched, drained or terminated until it answers")
                }
                None if stale.is_none() && unseen.is_some() => info!("all watches answer again"),
                None => {}
            }
            changed |= stale.is_some() != unseen.is_some();
            unseen = stale;
            let began = tokio::time::Instant::now();
            worker.pass(&context, &state, Seen { changed, stale: sight.blind, regained: sight.regained }, &led.ends);
            // What a pass costs grows with the cluster: at most a tenth of the time goes there.
            rests = tokio::time::Instant::now() + MIN_INTERVAL.max(began.elapsed() * 9);
        }
        // A step that was sent is finished; the next is not begun.
        if let Some(led) = led {
            led.ends.cancel();
        }
        worker.finish().await;
        while watchers.join_next().await.is_some() {}
        Ok(())
    }

    /// Starts what looks after the whole account for as long as this replica leads.
    fn watch(&self, watchers: &mut JoinSet<()>, led: &Led) {
        let context = || Arc::clone(&self.context);
        let term = &led.ends;
        // At once, whatever the loop is busy with: steps that were decided in this term are not begun in another.
        let (mut leader, of, ends) = (self.leader.clone(), led.term, term.clone());
        watchers.spawn(async move {
            tokio::select! {
                // An election that has ended has nobody lead.
                _ = leader.wait_for(|now| *now != Some(of)) => ends.cancel(),
                () = ends.cancelled() => {}
            }
        });
        let beat = self.progress.within("rounds", PATIENCE);
        let rounds = rounds::run(context(), Arc::clone(&led.described), beat, term.clone());
        watchers.spawn(rounds.instrument(info_span!("rounds")));
        let beat = self.progress.within("collection", PATIENCE);
        watchers.spawn(collect::run(context(), beat, term.clone()).instrument(info_span!("collection")));
        watchers.spawn(interruption::sweep(context(), term.clone()).instrument(info_span!("instance-status")));
        if let Some((options, name)) = self.context.options.interruptions.clone() {
            let (context, term) = (context(), term.clone());
            let listen = async move {
                let Some(queue) = interruption::connect(&context, options, &name, &term).await else { return };
                interruption::listen(context, &name, queue, term).await;
            };
            watchers.spawn(listen.instrument(info_span!("interruptions")));
        }
    }

    /// Describes pools from what is known. Asks nothing of EC2.
    async fn refresh(&self) {
        let context = &self.context;
        let state = context.cluster.load();
        context.metrics.measure(state.batches.values().map(|seen| &seen.batch().status));
        let books = state.pools.iter().map(|(name, pool)| (name.as_str(), books::read(pool))).collect();
        let batches = state.batches.values().map(|seen| &**seen.batch());
        context.metrics.spent(&spent_so_far(&books, batches, context.clock.now()));
        context.metrics.pools.age(context.clock.now());
        if let Err(error) = pool::reconcile(context, &state).await {
            debug!(error = %crate::telemetry::chain(&error), "pools");
        }
    }
}

/// The next change of the cluster, not before `after`.
async fn changed_after(changes: &mut channel::Receiver<u64>, after: tokio::time::Instant) -> Result<(), RecvError> {
    tokio::time::sleep_until(after).await;
    changes.changed().await
}

/// Whether the cluster is seen, whoever leads.
#[derive(Debug, Default)]
struct Sight {
    /// A watch is too old.
    blind: bool,
    /// When all answered again after one was.
    regained: Option<Timestamp>,
}

impl Sight {
    fn look(&mut self, blind: bool, now: Timestamp) {
        if self.blind && !blind {
            self.regained = Some(now);
        }
        self.blind = blind;
    }
}

/// A term in which this replica leads.
struct Led {
    term: Term,
    /// Cancelled with the lease.
    ends: CancellationToken,
    /// Rung when pools are described.
    described: Arc<Notify>,
}

impl Context {
    /// Real time between two looks where nothing but the time has changed.
    fn quiet(&self) -> Duration {
        self.clock.in_reality(QUIET).max(TICK)
    }

    /// Remembers what is kept, for the pools' status.
    fn keep(&self, kept: Option<muster_core::batch::Kept>) {
        *self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = kept;
    }

    /// Why nodes of a pool are kept that look empty or are missing.
    fn kept(&self, pool: &str) -> Option<String> {
        let kept = self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        kept.as_ref().filter(|kept| kept.pools.contains(pool)).map(ToString::to_string)
    }

    /// Remembers which pools pause since launches brought no node, for their status.
    fn pause(&self, pools: BTreeMap<String, String>) {
        *self.fruitless.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = pools;
    }

    /// Why a pool pauses.
    fn paused(&self, pool: &str) -> Option<String> {
        self.fruitless.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get(pool).cloned()
    }

    /// The name of the cluster, as of the configuration.
    fn cluster_name(&self) -> String {
        self.options.way.load().access.name.clone()
    }

    /// Hands a loss to the pass over batches and waits until it is written down. Whether it was news.
    async fn report(&self, batch: &str, report: Report) -> anyhow::Result<bool> {
        let (written, answer) = tokio::sync::oneshot::channel();
        let reported = worker::Reported { batch: batch.to_owned(), report, written };
        if self.reports.send(reported).await.is_err() {
            anyhow::bail!("the provisioner has ended");
        }
        match tokio::time::timeout(WRITTEN, answer).await {
            Ok(answer) => answer.map_err(|_| {
                anyhow::anyhow!(
                    "the loss was not written down: the lease is gone, or a newer version wrote NodeBatch {batch}"
                )
            }),
            // It stays with its batch; whoever brought it brings it again, and nobody else waits for that.
            Err(_late) => {
                anyhow::bail!("the loss is not written down yet: the status of NodeBatch {batch} cannot be written")
            }
        }
    }

    /// Reads the catalogue and what classes select, where it is time. Takes as long as EC2 does, so nothing waits for
    /// it.
    async fn read_cloud(&self, refreshed: &mut Refreshed) {
        let context = self;
        let now = context.clock.now();
        if refreshed.catalogue_due(now) || refreshed.spot_types_changed(context, &context.cluster.load(), now) {
            refreshed.asked = Some(now);
            context.read_spot_prices(refreshed, now).await;
            let number = context.catalogue.load().number.saturating_add(1);
            match catalogue::read(&context.cloud, &context.options.prices, &refreshed.spot, &refreshed.listed, number)
                .await
            {
                Ok(catalogue) => {
                    context.catalogue.store(Arc::new(catalogue));
                    refreshed.catalogue = Some(now);
                }
                Err(error) => {
                    if refreshed.failed.is_none_or(|at| now.duration_since(at) >= REFRESH) {
                        warn!(error = %error, "instance types cannot be read; nothing is provisioned until they can");
                        refreshed.failed = Some(now);
                    }
                }
            }
        }
        context.read_list_prices(refreshed, now).await;
        let state = context.cluster.load();
        if let Err(error) = class::reconcile(context, &state, &mut refreshed.classes).await {
            debug!(error = %crate::telemetry::chain(&error), "classes");
            // Each time costs calls to EC2.
            tokio::time::sleep(UNWRITTEN).await;
        }
    }
}

/// Spot prices are read again after this, in the provisioner's time.
const SPOT_PRICES: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);
/// List prices are read again after this, in the provisioner's time: AWS changes few of them in a year.
const LIST_PRICES: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);
/// List prices that could not be read are asked for again after this.
const LIST_PRICES_RETRY: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);

impl Context {
    /// Reads spot prices hourly, of what pools may provision on spot. Without a price nothing is provisioned there.
    async fn read_spot_prices(&self, refreshed: &mut Refreshed, now: Timestamp) {
        let types = pool::spot_types(self, &self.cluster.load());
        if types.is_empty() {
            refreshed.spot_read = None;
            self.metrics.pools.spot_prices_unused();
            return;
        }
        let known = refreshed.spot_types == types;
        if known && refreshed.spot_read.is_some_and(|at| now.duration_since(at) < SPOT_PRICES) {
            return;
        }
        match self.cloud.spot_prices(&types, now).await {
            Ok(prices) => {
                refreshed.spot = prices;
                refreshed.spot_types = types;
                refreshed.spot_read = Some(now);
                self.metrics.pools.spot_prices_read(now);
            }
            Err(error) => warn!(error = %error, "spot prices cannot be read; those read last are used"),
        }
    }
}

impl Context {
    /// Reads list prices daily, once the catalogue stands: a private cluster may have no way to the API, and provisions by
    /// the list that Muster brings.
    async fn read_list_prices(&self, refreshed: &mut Refreshed, now: Timestamp) {
        if !refreshed.list_prices_due(self, now) {
            return;
        }
        let read = self.cloud.list_prices().await;
        let pause = if read.as_ref().is_ok_and(|prices| !prices.is_empty()) { LIST_PRICES } else { LIST_PRICES_RETRY };
        refreshed.list_due = Some(now.saturating_add(pause).unwrap_or(Timestamp::MAX));
        match read {
            Ok(prices) if prices.is_empty() => warn!("AWS lists no prices; those that Muster brings are used"),
            Ok(prices) => {
                if prices != refreshed.listed {
                    info!(types = prices.len(), "list prices read from AWS");
                    let known = self.catalogue.load();
                    let mut catalogue = Catalogue::clone(&known);
                    catalogue.number = known.number.saturating_add(1);
                    catalogue.prices.relist(&prices);
                    self.catalogue.store(Arc::new(catalogue));
                    refreshed.listed = prices;
                }
                self.metrics.pools.list_prices_read(now);
            }
            Err(error) => warn!(
                error = %error,
                "list prices cannot be read; those read last, or that Muster brings, are used; ec2.isolated: true asks for none"
            ),
        }
    }
}

#[derive(Debug, Default)]
struct Refreshed {
    catalogue: Option<Timestamp>,
    asked: Option<Timestamp>,
    failed: Option<Timestamp>,
    classes: class::Seen,
    spot: SpotPrices,
    spot_types: Vec<String>,
    spot_read: Option<Timestamp>,
    listed: BTreeMap<String, u64>,
    list_due: Option<Timestamp>,
}

impl Refreshed {
    fn list_prices_due(&self, context: &Context, now: Timestamp) -> bool {
        self.catalogue.is_some() && context.options.list_prices && self.list_due.is_none_or(|due| due <= now)
    }

    /// Whether anything is to be read.
    fn due(&self, context: &Context, state: &crate::cluster::State) -> bool {
        let now = context.clock.now();
        self.catalogue_due(now)
            || self.list_prices_due(context, now)
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
    fn remember_unavailable(&self, state: &crate::cluster::State) {
        let mut unavailable = self.unavailable.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut refusals = self.refusals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let batches = state.batches.values().map(|seen| seen.batch());
        let attempts = batches.flat_map(|batch| batch.status.attempts.iter().map(|one| (one, batch.spec.partial)));
        for (attempt, partial) in attempts {
            let (Some(code), Some(ended)) = (attempt.code.as_deref(), attempt.ended) else { continue };
            if attempt.outcome != AttemptOutcome::Lost {
                continue;
            }
            let capacity_type = attempt.capacity_type;
            let class = classify(Some(code), None);
            if class == ErrorClass::Capacity {
                // Where part would have done, none at all is all there was.
                let count = if partial { 1 } else { attempt.count };
                for pool in attempt.parameters.iter().flat_map(|stored| stored.value.pools()) {
                    unavailable.record(&pool, count, ended);
                }
            } else if attempt.overrides.is_empty() {
                // Of several it is not written down which was refused.
                let asked = Asked {
                    instance_type: &attempt.instance_type,
                    zone: &attempt.zone,
                    capacity_type,
                    subnet: &attempt.subnet,
                    count: attempt.count,
                };
                refusals.record(class, Some(code), &asked, ended);
            }
        }
        unavailable.lapse(self.clock.now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moment_when_watches_answer_again_is_kept_and_no_other() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut sight = Sight::default();
        sight.look(false, at(1));
        assert_eq!((sight.blind, sight.regained), (false, None), "it was never away");
        sight.look(true, at(2));
        sight.look(true, at(3));
        assert_eq!((sight.blind, sight.regained), (true, None));
        sight.look(false, at(4));
        sight.look(false, at(5));
        assert_eq!((sight.blind, sight.regained), (false, Some(at(4))));
        sight.look(true, at(6));
        assert_eq!(sight.regained, Some(at(4)));
        sight.look(false, at(7));
        assert_eq!(sight.regained, Some(at(7)));
    }
}
