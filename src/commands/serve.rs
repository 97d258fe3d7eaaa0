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
use kube::{Api, Client};
use kube_lease_manager::{LeaseManagerBuilder, LeaseParams};
use muster_api::keys;
use muster_core::cycle::Settings;
use muster_ec2::{ClientOptions, Credentials};
use muster_ec2_sim::{Scenario, Simulator};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, error, info, info_span, warn};

use crate::cloud::Cloud;
use crate::cluster::{self, Cluster, Store, StoreOptions, WatchOptions};
use crate::config::Config;
use crate::extender::{Barrier, BarrierOptions, Extender};
use crate::gang::{Events, Executor, ExecutorOptions, GangLoop, Inputs, PoolSource, Recorder};
use crate::http::Health;
use crate::provisioner::{Provisioner, ProvisionerOptions};
use crate::telemetry::Metrics;
use crate::{extender, http, standin, step, telemetry};

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
        step::arm(&point).map_err(|message| anyhow::anyhow!(message))?;
    }
    refuse_exposure(&config, args.dev)?;
    let client = Client::try_default().await.context("connect to the cluster (kubeconfig or service account)")?;
    let cancel = CancellationToken::new();
    let mut tasks = Tasks { set: JoinSet::new(), cancel: cancel.clone() };
    let metrics = Metrics::shared();

    let watches = WatchOptions { provisioning_requests: has_provisioning_requests(&client).await? };
    let (store, cluster) = Store::new(
        StoreOptions {
            scheduler_names: config.scheduler_names.clone(),
            accelerators: config.accelerators.iter().map(|name| name.as_str().into()).collect(),
        },
        &watches.kinds(),
    );
    // Listening comes before everything that takes time: probes and kube-scheduler get an answer, not a refusal.
    let health =
        Arc::new(Health { cluster: cluster.clone(), metrics: Arc::clone(&metrics), stopping: AtomicBool::new(false) });
    let recorder = config.decisions.map(Recorder::new);
    tasks.serve("http", config.http, http::router(Arc::clone(&health), recorder.clone())).await?;
    let commits = TaskTracker::new();
    let wake = Arc::new(Notify::new());
    let barrier = Arc::new(Barrier::new(
        client.clone(),
        cluster.clone(),
        BarrierOptions { hold: std(config.hold), parallel: config.bind_parallel },
        metrics.gangs.clone(),
        commits.clone(),
    ));
    let extender = Arc::new(Extender {
        cluster: cluster.clone(),
        barrier: Arc::clone(&barrier),
        wake: Arc::clone(&wake),
        metrics: metrics.extender.clone(),
        scheduler_names: config.scheduler_names.clone(),
    });
    tasks.serve("extender", config.extender, extender::router(extender)).await?;
    tasks.spawn("watches", cluster::run(client.clone(), store, watches, cancel.clone()));
    tasks.spawn("barrier", Arc::clone(&barrier).run(cancel.clone()));

    let leader = elect(&client, &config, args.identity.as_deref(), &mut tasks).await?;
    let pools: PoolSource = Arc::new(ArcSwap::from_pointee(Vec::new()));
    provisioner(&client, &cluster, &config, args.dev, &metrics, &pools, &wake, &leader, &mut tasks).await?;
    gang_loop(&client, &cluster, &config, &metrics, &pools, &wake, &leader, recorder.as_ref(), &mut tasks);
    drop(leader);
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

/// kube-scheduler can authenticate with a client certificate only, so plain HTTP stays on loopback.
fn refuse_exposure(config: &Config, dev: bool) -> anyhow::Result<()> {
    anyhow::ensure!(
        dev || config.extender.ip().is_loopback(),
        "extender.listen: {} is not loopback, and plain HTTP is answered on loopback only; run muster beside \
         kube-scheduler and use 127.0.0.1:{}",
        config.extender,
        config.extender.port()
    );
    Ok(())
}

async fn has_provisioning_requests(client: &Client) -> anyhow::Result<bool> {
    let groups = client.list_api_groups().await.context("ask the API server for its groups")?;
    Ok(groups.groups.iter().any(|group| {
        group.name == "autoscaling.x-k8s.io" && group.versions.iter().any(|version| version.version == "v1")
    }))
}

async fn elect(
    client: &Client,
    config: &Config,
    identity: Option<&str>,
    tasks: &mut Tasks,
) -> anyhow::Result<watch::Receiver<bool>> {
    let identity = identity.map_or_else(
        || format!("{}-{}", std::env::var("HOSTNAME").unwrap_or_else(|_| "muster".to_owned()), std::process::id()),
        str::to_owned,
    );
    let lease = &config.lease;
    let manager = LeaseManagerBuilder::new(client.clone(), lease.name.as_str())
        .with_namespace(lease.namespace.as_str())
        .with_parameters(LeaseParams::new(identity.clone(), lease.duration_seconds, lease.grace_seconds))
        .build()
        .await
        .with_context(|| format!("read lease {}/{}", lease.namespace, lease.name))?;
    let (leader, lease_task) = manager.watch().await;
    let mut news = leader.clone();
    tasks.spawn("lease", async move {
        // The manager ends when nobody listens any more, which happens at shutdown only.
        lease_task.await.context("the lease manager died")?.context("the lease manager failed")?;
        Ok(())
    });
    let cancel = tasks.cancel.clone();
    tasks.spawn("lease-news", async move {
        loop {
            tokio::select! {
                // The manager gives the lease up once nobody listens any more.
                () = cancel.cancelled() => return Ok(()),
                changed = news.changed() => if changed.is_err() { return Ok(()) },
            }
            if *news.borrow_and_update() {
                info!(identity, "holds the lease: plans, releases and buys");
            } else {
                warn!(identity, "lost the lease: answers the extender only");
            }
        }
    });
    Ok(leader)
}

#[expect(clippy::too_many_arguments, reason = "wiring: each is one part of the process")]
fn gang_loop(
    client: &Client,
    cluster: &Cluster,
    config: &Config,
    metrics: &Metrics,
    pools: &PoolSource,
    wake: &Arc<Notify>,
    leader: &watch::Receiver<bool>,
    recorder: Option<&Recorder>,
    tasks: &mut Tasks,
) {
    let settings = Settings {
        settle: config.settle,
        rehint: config.rehint,
        expiry: config.expiry,
        record: recorder.is_some(),
        ..Settings::new(keys::GANG_PENDING)
    };
    let executor = Executor::new(
        client.clone(),
        cluster.clone(),
        Events::new(client.clone()),
        ExecutorOptions { parallel: config.release_parallel, rehint: std(config.rehint) },
    );
    let inputs = Inputs {
        cluster: cluster.clone(),
        levels: config.levels.clone(),
        pools: Arc::clone(pools),
        settings,
        leader: leader.clone(),
        wake: Arc::clone(wake),
        metrics: metrics.gangs.clone(),
        recorder: recorder.cloned(),
    };
    let cancel = tasks.cancel.clone();
    tasks.spawn("gangs", GangLoop::new(inputs, executor).run(cancel));
}

#[expect(clippy::too_many_arguments, reason = "wiring: each is one part of the process")]
async fn provisioner(
    client: &Client,
    cluster: &Cluster,
    config: &Config,
    dev: bool,
    metrics: &Metrics,
    pools: &PoolSource,
    wake: &Arc<Notify>,
    leader: &watch::Receiver<bool>,
    tasks: &mut Tasks,
) -> anyhow::Result<()> {
    if config.ec2.disabled {
        info!("ec2.disabled: nothing is ever bought");
        return Ok(());
    }
    let region = config.ec2.region.clone().or_else(|| std::env::var("AWS_REGION").ok());
    let endpoint = config.ec2.endpoint_url.clone().or_else(|| std::env::var("AWS_ENDPOINT_URL").ok());
    let options = match (region, endpoint) {
        (None, None) if dev => embedded_simulator(client, tasks).await?,
        (None, None) => anyhow::bail!(
            "ec2.region: is not set; set it, or AWS_REGION, or ec2.disabled: true to buy nothing, or use --dev for the \
             embedded simulator"
        ),
        (region, endpoint_url) => ClientOptions {
            region: region.unwrap_or_else(|| "us-east-1".to_owned()),
            credentials: credentials(endpoint_url.as_deref()),
            endpoint_url,
            launch_timeout: config.ec2.launch_timeout.map_or(ClientOptions::LAUNCH_TIMEOUT, std),
        },
    };
    let system: Api<Namespace> = Api::all(client.clone());
    let system =
        system.get("kube-system").await.context("read the namespace kube-system, whose UID marks our resources")?;
    let cluster_uid = system.metadata.uid.context("the namespace kube-system has no UID")?;
    let ec2_options = options.clone();
    let ec2 = muster_ec2::Client::connect(options).await.context("connect to EC2")?;
    let provisioner = Provisioner::new(
        client.clone(),
        cluster.clone(),
        Cloud::new(ec2, metrics.cloud.clone(), cluster_uid.clone()),
        config.clock.clone(),
        ProvisionerOptions {
            cluster_uid,
            access: config.access.clone(),
            prices: config.prices.clone(),
            back_off: config.back_off,
            interruptions: config.ec2.interruption_queue.clone().map(|queue| (ec2_options, queue)),
        },
        Arc::clone(pools),
        Arc::clone(wake),
        metrics.provisioner.clone(),
        leader.clone(),
    );
    let cancel = tasks.cancel.clone();
    tasks.spawn("provisioner", provisioner.run(cancel));
    Ok(())
}

/// The simulator takes any key; AWS gets the SDK's chain.
fn credentials(endpoint: Option<&str>) -> Credentials {
    let local = endpoint
        .is_some_and(|url| url.contains("://127.0.0.1") || url.contains("://localhost") || url.contains("://[::1]"));
    if local && std::env::var("AWS_ACCESS_KEY_ID").is_err() {
        return Credentials::Static {
            access_key_id: "simulator".to_owned(),
            secret_access_key: "simulator".to_owned(),
        };
    }
    Credentials::Default
}

async fn embedded_simulator(client: &Client, tasks: &mut Tasks) -> anyhow::Result<ClientOptions> {
    let simulator = Simulator::new(Scenario::demo()).context("start the embedded simulator")?;
    let listener =
        TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.context("listen for the simulator")?;
    let address = listener.local_addr()?;
    warn!(%address, "no EC2 endpoint and no Region are configured: buying from the embedded simulator");
    let cancel = tasks.cancel.clone();
    let served = Arc::clone(&simulator);
    tasks.spawn("simulator", async move {
        muster_ec2_sim::serve(listener, served, async move { cancel.cancelled().await }).await.map_err(Into::into)
    });
    let cancel = tasks.cancel.clone();
    tasks.spawn("stand-in", standin::run(client.clone(), simulator, cancel));
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

    async fn serve(&mut self, name: &'static str, address: SocketAddr, router: axum::Router) -> anyhow::Result<()> {
        let listener = TcpListener::bind(address).await.with_context(|| format!("{name}: listen on {address}"))?;
        let cancel = self.cancel.clone();
        self.spawn(name, async move {
            axum::serve(listener, router)
                .with_graceful_shutdown(async move { cancel.cancelled().await })
                .await
                .map_err(Into::into)
        });
        Ok(())
    }
}
