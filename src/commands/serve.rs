//! `muster serve`: extender, barrier, gang loop and provisioner in one process beside a kube-scheduler.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use clap::Args;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use muster_api::conventions::Kind;
use muster_api::crd::NodeBatch;
use muster_api::keys;
use muster_core::gang::Settings;
use muster_core::offering::{Ceiling, PriceBook, PriceList, price_list_region};
use muster_ec2::{ClientOptions, Credentials};
use muster_ec2_sim::{Scenario, Simulator};
use muster_replay::command::Arguments;
use muster_replay::dump::Input;
use muster_replay::kinds;
use muster_viewer::bar::Bar;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, error, info, info_span, warn};

use crate::client::{self, Patience};
use crate::cloud::{Cloud, Limits};
use crate::cluster::{self, Cluster, Store, StoreOptions, WatchOptions};
use crate::commands::live::{self, InForce};
use crate::commands::{Unusable, reach, scheduler_version};
use crate::config::{Config, PageAt};
use crate::extender::{Barrier, BarrierOptions, Extender, Limits as ExtenderLimits};
use crate::gang::{Events, Executor, ExecutorOptions, GangLoop, Inputs, PoolSource, Recorder};
use crate::http::{Access, Guard, Health};
use crate::lease::Election;
use crate::progress::{Beat, Progress};
use crate::provisioner::{self, Provisioner, ProvisionerOptions, WaySource};
use crate::server::{self, Threads, Tls, TlsFiles};
use crate::telemetry::{ExtenderMetrics, Metrics};
use crate::term::{self, Term};
use crate::{extender, fake_kubelet, http, permissions, step, telemetry};

/// Arguments of `muster serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Configuration file (YAML). Without one, the defaults.
    #[arg(long, env = "MUSTER_CONFIG")]
    config: Option<PathBuf>,
    /// Development: allows what is unsafe in production, and starts the EC2 simulator embedded, with nodes played for
    /// its machines, where no EC2 endpoint or Region is configured.
    #[arg(long)]
    dev: bool,
    /// Identity in the lease; the name of the Pod, else of the host and process.
    #[arg(long, env = "POD_NAME")]
    identity: Option<String>,
    /// Namespace of our own Pod, whose name is the identity: its kube-scheduler's image names the version to check.
    #[arg(long, env = "POD_NAMESPACE")]
    namespace: Option<String>,
    /// Version of the kube-scheduler that asks, such as v1.37.0; else that of the image in our own Pod.
    #[arg(long, env = "KUBE_SCHEDULER_VERSION")]
    kube_scheduler_version: Option<String>,
}

/// Longest wait for tasks to end after a signal.
const DRAIN: Duration = Duration::from_secs(20);

/// Runs until SIGTERM or Ctrl-C (0), or until a critical task dies (1).
pub async fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(args.config.as_deref())?;
    telemetry::init(&config.log);
    if args.dev
        && let Ok(point) = std::env::var("MUSTER_CRASH")
    {
        step::arm(&point).map_err(Unusable)?;
    }
    refuse_exposure(&config, args.dev)?;
    warn_of_few_descriptors();
    let reach = kube::Config::infer().await.context("connect to the cluster (kubeconfig or service account)")?;
    let client = client::bounded(reach.clone(), Patience::default()).context("connect to the cluster")?;
    permissions::check(&client, &config.lease).await?;
    let own = scheduler_version::Own {
        version: args.kube_scheduler_version.as_deref(),
        pod: args.namespace.as_deref().zip(args.identity.as_deref()),
    };
    scheduler_version::check(&client, own).await?;
    let cancel = CancellationToken::new();
    let mut tasks = Tasks { set: JoinSet::new(), cancel: cancel.clone() };
    let metrics = Metrics::shared();

    let watches = WatchOptions::of(&client).await?;
    let (store, cluster) = Store::new(
        StoreOptions {
            scheduler_names: config.scheduler_names.clone(),
            provisioner_scheduler_names: config.provisioner_scheduler_names.clone(),
            accelerators: config.accelerators.iter().map(|name| name.as_str().into()).collect(),
            max_age: std(config.max_age),
        },
        &watches.kinds(),
        &Kind::ALL,
    );
    // Listening comes before everything that takes time: probes and kube-scheduler get an answer, not a refusal.
    let progress = Arc::new(Progress::default());
    let health = Arc::new(Health {
        cluster: cluster.clone(),
        metrics: Arc::clone(&metrics),
        progress: Arc::clone(&progress),
        levels: config.levels.clone(),
        counted: Mutex::default(),
        stopping: AtomicBool::new(false),
    });
    let recorder = config.decisions.map(Recorder::new);
    let here = Handle::current();
    let router = http::router(Arc::clone(&health), recorder.clone());
    tasks.serve("http", config.http, router, None, None, &here).await?;
    // They live until the tasks have ended.
    let answering = Threads::answering("extender").context("threads of the extender")?;
    let yielding =
        config.page.is_some().then(|| Threads::yielding("page")).transpose().context("threads of the page")?;
    if let (Some(at), Some(yielding)) = (config.page.clone(), &yielding) {
        let router = {
            let _inside = yielding.handle().enter();
            http::page_router(Arc::new(page(&at, &config, &reach, &cluster)?))
        };
        tasks.serve("page", at.address, router, at.tls, None, yielding.handle()).await?;
    }
    let commits = TaskTracker::new();
    let requeue = Arc::new(Notify::new());
    let barrier = Arc::new(Barrier::new(
        once(&reach)?,
        cluster.clone(),
        BarrierOptions {
            hold: std(config.hold),
            limit: bind_limit(std(config.http_timeout), std(config.hold)),
            parallel: config.bind_parallel,
        },
        metrics.gangs.clone(),
        commits.clone(),
    ));
    let extender = Arc::new(Extender::new(
        cluster.clone(),
        Arc::clone(&barrier),
        Arc::clone(&requeue),
        metrics.extender.clone(),
        config.scheduler_names.clone(),
        ExtenderLimits::default(),
    ));
    let counted = Some(metrics.extender.clone());
    let router = extender::router(extender);
    tasks.serve("extender", config.extender, router, config.tls.clone(), counted, answering.handle()).await?;
    tasks.spawn(
        "watches",
        cluster::run(reach, Arc::clone(cluster.contacts()), store, progress.of("watches"), cancel.clone()),
    );
    tasks.spawn("barrier", Arc::clone(&barrier).run(cancel.clone()));

    let leader = elect(&client, &config, args.identity.as_deref(), progress.of("lease"), &mut tasks).await?;
    let leads = current(leader, &client, &cluster, &mut tasks);
    let pools: PoolSource = Arc::new(ArcSwap::from_pointee(Vec::new()));
    let recorder = recorder.as_ref();
    provisioner(
        &client, &cluster, &config, args.dev, &metrics, &pools, &requeue, &leads, &progress, recorder, &mut tasks,
    )
    .await?;
    let beat = progress.of("gangs");
    gang_loop(&client, &cluster, &config, &metrics, &pools, &requeue, &leads, beat, recorder, &mut tasks);
    drop(leads);
    info!(extender = %config.extender, http = %config.http, "muster serves");

    let died = tokio::select! {
        () = stopped() => None,
        ended = tasks.set.join_next() => ended,
    };
    health.stopping.store(true, Ordering::Relaxed);
    let code = match died {
        None => {
            info!("stopping: no new work, the barrier lets go, running steps are finished");
            ExitCode::SUCCESS
        }
        Some(ended) => {
            // A dead critical task is a frozen snapshot or a deaf server: better no process than that.
            error!(task = %ended.map_or_else(|error| error.to_string(), |(name, result)| format!("{name}: {result:?}")),
                "a critical task ended");
            ExitCode::FAILURE
        }
    };
    cancel.cancel();
    commits.close();
    let drained = tokio::time::timeout(DRAIN, async {
        while tasks.set.join_next().await.is_some() {}
        commits.wait().await;
    })
    .await;
    if drained.is_err() {
        warn!("some tasks did not end in {} s and are dropped", DRAIN.as_secs());
    }
    Ok(code)
}

/// A client that makes each call once: the barrier repeats what it may repeat, as long as somebody waits for it.
fn once(reach: &kube::Config) -> anyhow::Result<Client> {
    let mut config = reach.clone();
    config.default_retry = false;
    client::bounded(config, Patience::default()).context("make a client for the barrier")
}

/// A bind call is answered this long after it came: before kube-scheduler gives up, and after the barrier would.
fn bind_limit(http_timeout: Duration, hold: Duration) -> Duration {
    let margin = http_timeout.saturating_sub(hold).div_f32(2.0).min(Duration::from_secs(2));
    http_timeout.saturating_sub(margin)
}

/// Waits for SIGTERM or Ctrl-C.
pub(crate) async fn stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = match signal(SignalKind::terminate()) {
        Ok(signal) => signal,
        Err(error) => {
            warn!(%error, "SIGTERM cannot be caught");
            return std::future::pending().await;
        }
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// The page of this cluster, read as `muster ui` reads it, with this process's own permissions, by a client whose connections are
/// those of the runtime that this is called in.
///
/// Errors: the configuration makes no client.
fn page(at: &PageAt, config: &Config, reach: &kube::Config, cluster: &Cluster) -> anyhow::Result<http::Page> {
    let client = client::bounded(reach.clone(), Patience::default()).context("make a client for the page")?;
    let access = match &at.tls {
        None => Access::Loopback,
        Some(files) if files.client_authority.is_some() => Access::Certificate,
        Some(_) => Access::Token(Box::new(Guard::new(client.clone()))),
    };
    let in_force = InForce::of(config);
    let changes = cluster.changes();
    let version = move || *changes.borrow();
    Ok(http::Page::new(access, version, move || {
        let (client, in_force) = (client.clone(), in_force.clone());
        async move {
            let (text, _) = live::read(&client, kinds::of_server(), in_force, Vec::new(), &Bar::none()).await?;
            // A large cluster takes a while: not on the thread that answers whoever looks.
            let read = tokio::task::spawn_blocking(move || {
                let files = vec![Input { name: "the cluster", text: &text }];
                muster_view::of_texts(&Arguments { files, ..Arguments::default() })
            });
            Ok(read.await??)
        }
    }))
}

/// kube-scheduler can authenticate with a client certificate only, so plain HTTP stays on loopback.
fn refuse_exposure(config: &Config, dev: bool) -> anyhow::Result<()> {
    if dev || config.tls.is_some() || config.extender.ip().is_loopback() {
        return Ok(());
    }
    Err(Unusable(format!(
        "extender.listen: {} is not loopback, and plain HTTP is answered on loopback only: use 127.0.0.1:{} beside \
         kube-scheduler, or mutual TLS with extender.tls (certFile, keyFile, clientCaFile)",
        config.extender,
        config.extender.port()
    ))
    .into())
}

/// A member that waits at the barrier holds a connection, over plain HTTP; below the largest gang there are also files,
/// watches and the rest.
fn warn_of_few_descriptors() {
    const LARGEST_GANG: u64 = 5_000;
    const BESIDE: u64 = 256;
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let open = limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next());
    // A limit that is no number is none.
    if let Some(limit) = open.and_then(|limit| limit.parse::<u64>().ok()).filter(|limit| *limit < LARGEST_GANG + BESIDE)
    {
        warn!(
            limit,
            "gangs of more than {} members cannot stand at the barrier: raise the limit of open files to {}",
            limit.saturating_sub(BESIDE),
            LARGEST_GANG + BESIDE
        );
    }
}

async fn elect(
    client: &Client,
    config: &Config,
    identity: Option<&str>,
    beat: Beat,
    tasks: &mut Tasks,
) -> anyhow::Result<watch::Receiver<Option<Term>>> {
    let identity = identity.map_or_else(
        || format!("{}-{}", std::env::var("HOSTNAME").unwrap_or_else(|_| "muster".to_owned()), std::process::id()),
        str::to_owned,
    );
    let (election, leader) = Election::new(client.clone(), &config.lease, identity).await?;
    let cancel = tasks.cancel.clone();
    tasks.spawn("lease", election.telling(step::hold_until, beat).run(cancel));
    Ok(leader)
}

/// Who leads, as this replica sees it.
struct Leads {
    /// The term of the lease, while it is ours.
    leader: watch::Receiver<Option<Term>>,
    /// The term for which everything was seen that was written before it.
    current: watch::Receiver<Option<Term>>,
}

fn current(leader: watch::Receiver<Option<Term>>, client: &Client, cluster: &Cluster, tasks: &mut Tasks) -> Leads {
    let (stated, current) = watch::channel(None);
    let (client, cluster) = (client.clone(), cluster.clone());
    let seen = move || {
        let (client, cluster) = (client.clone(), cluster.clone());
        async move { cluster::caught_up(&client, &cluster).await }
    };
    tasks.spawn("terms", term::follow(leader.clone(), stated, seen, tasks.cancel.clone()));
    Leads { leader, current }
}

#[expect(clippy::too_many_arguments, reason = "wiring: each is one part of the process")]
fn gang_loop(
    client: &Client,
    cluster: &Cluster,
    config: &Config,
    metrics: &Metrics,
    pools: &PoolSource,
    requeue: &Arc<Notify>,
    leads: &Leads,
    beat: Beat,
    recorder: Option<&Recorder>,
    tasks: &mut Tasks,
) {
    let settings = Settings {
        settle: config.settle,
        renominate: config.renominate,
        pin: config.pin,
        expiry: config.expiry,
        record: recorder.is_some(),
        released: config.watch_released,
        committing: config.watch_committing,
        exclude_ttl: config.exclude_ttl,
        ..Settings::new(keys::GANG_PENDING)
    };
    let executor = Executor::new(
        client.clone(),
        cluster.clone(),
        Events::new(client.clone()),
        metrics.gangs.clone(),
        ExecutorOptions { parallel: config.release_parallel, renominate: std(config.renominate) },
        config.clock.clone(),
    );
    let inputs = Inputs {
        cluster: cluster.clone(),
        levels: config.levels.clone(),
        pools: Arc::clone(pools),
        settings,
        leader: leads.leader.clone(),
        current: leads.current.clone(),
        requeue: Arc::clone(requeue),
        metrics: metrics.gangs.clone(),
        beat,
        recorder: recorder.cloned(),
    };
    let cancel = tasks.cancel.clone();
    tasks.spawn("gangs", GangLoop::new(inputs, executor).run(cancel));
}

/// Dollars per hour that may be spent with `--dev` where the configuration says nothing: a few large gangs.
const DEV_CEILING: Ceiling = Ceiling::At(5_000_000_000);

#[expect(clippy::too_many_arguments, reason = "wiring: each is one part of the process")]
async fn provisioner(
    client: &Client,
    cluster: &Cluster,
    config: &Config,
    dev: bool,
    metrics: &Metrics,
    pools: &PoolSource,
    requeue: &Arc<Notify>,
    leads: &Leads,
    progress: &Arc<Progress>,
    recorder: Option<&Recorder>,
    tasks: &mut Tasks,
) -> anyhow::Result<()> {
    if config.ec2.disabled {
        info!("ec2.disabled: nothing is ever provisioned");
        return Ok(());
    }
    let options = match reach::ec2(config) {
        Some(options) => options,
        None if dev => embedded_simulator(client, tasks).await?,
        None => {
            // Nodes that Muster has launched would be looked after by nobody: an upgrade must not go on like this.
            let batches: Api<NodeBatch> = Api::all(client.clone());
            let known = batches.list(&ListParams::default().limit(1)).await.context("list NodeBatches")?;
            if let Some(batch) = known.items.first() {
                let name = batch.name_any();
                let why = format!("{NO_REGION}; NodeBatch {name} exists, and its nodes have to be looked after");
                return Err(Unusable(why).into());
            }
            // The nodes that are there are scheduled on all the same.
            error!(why = NO_REGION, "nothing is provisioned");
            let statuses =
                provisioner::without_region(client.clone(), cluster.clone(), leads.leader.clone(), NO_REGION);
            let cancel = tasks.cancel.clone();
            tasks.spawn("no-region", async move {
                tokio::select! {
                    () = cancel.cancelled() => Ok(()),
                    ended = statuses => ended,
                }
            });
            return Ok(());
        }
    };
    let system: Api<Namespace> = Api::all(client.clone());
    let system =
        system.get("kube-system").await.context("read the namespace kube-system, whose UID marks our resources")?;
    let cluster_uid = system.metadata.uid.context("the namespace kube-system has no UID")?;
    let ec2_options = options.clone();
    let way = reach::way(client, config.access.clone(), &options).await;
    if let Some(message) = way.wrong() {
        error!(message, "nothing is launched");
    }
    let way: WaySource = Arc::new(ArcSwap::from_pointee(way));
    let look = {
        let (client, given, options) = (client.clone(), config.access.clone(), options.clone());
        move || {
            let (client, given, options) = (client.clone(), given.clone(), options.clone());
            async move { reach::way(&client, given, &options).await }
        }
    };
    tasks.spawn("way", reach::follow(Arc::clone(&way), look, reach::PAUSES, tasks.cancel.clone()));
    let ec2 = muster_ec2::Client::connect(options).await.context("connect to EC2")?;
    let provisioner = Provisioner::new(
        client.clone(),
        cluster.clone(),
        Cloud::new(
            ec2,
            metrics.cloud.clone(),
            Limits::new(&config.ec2.limits, &config.clock, metrics.cloud.clone()),
            cluster_uid.clone(),
            config.clock.clone(),
            config.changes,
        ),
        config.clock.clone(),
        ProvisionerOptions {
            cluster_uid,
            way,
            prices: listed(config, &ec2_options.region),
            list_prices: !config.ec2.isolated && price_list_region(&ec2_options.region).is_some(),
            back_off: config.back_off,
            batch_idle: config.batch_idle,
            batch_max: config.batch_max,
            ceiling: config.ceiling.or(dev.then_some(DEV_CEILING)),
            levels: config.levels.clone(),
            interruptions: config.ec2.interruption_queue.clone().map(|queue| (ec2_options, queue)),
            recorder: recorder.cloned(),
        },
        Arc::clone(pools),
        Arc::clone(requeue),
        metrics.provisioner.clone(),
        leads.leader.clone(),
        leads.current.clone(),
        Arc::clone(progress),
    );
    let cancel = tasks.cancel.clone();
    tasks.spawn("provisioner", provisioner.run(cancel));
    Ok(())
}

/// What EC2NodeClasses say where no Region is configured.
const NO_REGION: &str = "ec2.region: is not set; set it, or AWS_REGION, or ec2.disabled: true to provision nothing";

/// The list prices of the Region below the prices of the configuration.
fn listed(config: &Config, region: &str) -> PriceBook {
    let mut prices = config.prices.clone();
    match PriceList::of_region(region) {
        None => {
            warn!(region, "no list prices are known: set prices.<instance type>.usdPerHour for what may be launched")
        }
        Some(list) if list.region != region => warn!(
            region,
            of = list.region,
            as_of = list.as_of,
            "the list prices of another Region are used: set prices or priceOverrides where they differ"
        ),
        Some(list) => info!(region, as_of = list.as_of, types = list.prices.len(), "list prices"),
    }
    prices.list(region);
    prices
}

async fn embedded_simulator(client: &Client, tasks: &mut Tasks) -> anyhow::Result<ClientOptions> {
    let simulator = Simulator::new(Scenario::demo()).context("start the embedded simulator")?;
    let listener =
        TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.context("listen for the simulator")?;
    let address = listener.local_addr()?;
    warn!(%address, "no EC2 endpoint and no Region are configured: provisioning from the embedded simulator");
    let cancel = tasks.cancel.clone();
    let served = Arc::clone(&simulator);
    tasks.spawn("simulator", async move {
        muster_ec2_sim::serve(listener, served, async move { cancel.cancelled().await }).await.map_err(Into::into)
    });
    let cancel = tasks.cancel.clone();
    tasks.spawn("fake", fake_kubelet::run(client.clone(), simulator, cancel));
    Ok(ClientOptions {
        region: "us-east-1".to_owned(),
        endpoint_url: Some(format!("http://{address}")),
        credentials: Credentials::Static {
            access_key_id: "simulator".to_owned(),
            secret_access_key: "simulator".to_owned(),
        },
        launch_timeout: ClientOptions::LAUNCH_TIMEOUT,
    })
}

fn std(duration: jiff::SignedDuration) -> Duration {
    // The configuration accepts positive durations only.
    Duration::try_from(duration).unwrap_or_default()
}

/// Supervised tasks: each has a name and a span, and if one ends, the process does.
struct Tasks {
    set: JoinSet<(&'static str, anyhow::Result<()>)>,
    cancel: CancellationToken,
}

impl Tasks {
    fn spawn(&mut self, name: &'static str, task: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        self.set.spawn(async move { (name, task.await) }.instrument(info_span!("task", name)));
    }

    /// Listens, behind TLS if there are files, which are followed; `counted`: where it is counted that they were read again. Callers are
    /// answered by the threads of `on`.
    async fn serve(
        &mut self,
        name: &'static str,
        address: SocketAddr,
        router: axum::Router,
        files: Option<TlsFiles>,
        counted: Option<ExtenderMetrics>,
        on: &Handle,
    ) -> anyhow::Result<()> {
        let tls = match files {
            Some(files) => Some(Tls::new(name, files).await.with_context(|| format!("{name}.tls"))?),
            None => None,
        };
        let listening = || format!("{name}: listen on {address}");
        let listener = on.spawn(TcpListener::bind(address)).await.with_context(listening)?.with_context(listening)?;
        let served = server::serve(listener, router, tls.as_ref().map(Tls::config), self.cancel.clone());
        self.set.spawn_on(async move { (name, served.await) }.instrument(info_span!("task", name)), on);
        if let Some(tls) = tls {
            self.spawn("tls", tls.follow(counted, self.cancel.clone()));
        }
        Ok(())
    }
}
