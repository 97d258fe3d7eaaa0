//! `muster ec2-sim`: the simulator as a process, optionally with the stand-in that registers its machines as nodes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use muster_ec2_sim::{Scenario, Simulator};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::commands::serve::stopped;
use crate::config::{LogConfig, LogFormat};
use crate::{standin, telemetry};

/// Arguments of `muster ec2-sim`.
#[derive(Debug, Args)]
pub struct Ec2SimArgs {
    /// Address to listen on. Only loopback makes sense: the simulator checks no signature.
    #[arg(long, default_value = "127.0.0.1:4566")]
    listen: SocketAddr,
    /// Scenario file (JSON): zones, pools, delays, faults. Without one, the demo's scenario.
    #[arg(long)]
    scenario: Option<PathBuf>,
    /// Register a Node for every running instance and remove it with the instance, as kubelet and cloud controller
    /// would; the cluster is that of the kubeconfig.
    #[arg(long)]
    register_nodes: bool,
    /// Write each request as one JSON line into this file as it is answered.
    #[arg(long)]
    journal: Option<PathBuf>,
}

/// Runs until SIGTERM or Ctrl-C.
pub async fn run(args: Ec2SimArgs) -> anyhow::Result<ExitCode> {
    telemetry::init(&LogConfig { filter: "info,kube=warn".to_owned(), format: LogFormat::Text });
    anyhow::ensure!(
        args.listen.ip().is_loopback(),
        "--listen {}: the simulator checks no signature, so it listens on loopback only; use 127.0.0.1:4566",
        args.listen
    );
    let scenario = match &args.scenario {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
            Scenario::from_json(&text).with_context(|| format!("scenario {}", path.display()))?
        }
        None => Scenario::demo(),
    };
    let simulator = Simulator::new(scenario)?;
    let listener = TcpListener::bind(args.listen).await.with_context(|| format!("listen on {}", args.listen))?;
    info!(address = %listener.local_addr()?, "EC2 simulator");
    let cancel = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    let server = cancel.clone();
    let served = std::sync::Arc::clone(&simulator);
    tasks.spawn(async move {
        muster_ec2_sim::serve(listener, served, async move { server.cancelled().await }).await.map_err(Into::into)
    });
    if args.register_nodes {
        let client = kube::Client::try_default().await.context("connect to the cluster of the kubeconfig")?;
        let machines = std::sync::Arc::clone(&simulator);
        tasks.spawn(standin::run(client, machines, cancel.clone()));
    }
    if let Some(path) = args.journal {
        tasks.spawn(write_journal(simulator, path, cancel.clone()));
    }
    let ended = tokio::select! {
        () = stopped() => None,
        ended = tasks.join_next() => ended,
    };
    cancel.cancel();
    if let Some(ended) = ended {
        ended.context("a task of the simulator died")??;
        anyhow::bail!("a task of the simulator ended");
    }
    while tasks.join_next().await.is_some() {}
    Ok(ExitCode::SUCCESS)
}

async fn write_journal(
    simulator: std::sync::Arc<Simulator>,
    path: PathBuf,
    cancel: CancellationToken,
) -> anyhow::Result<()> {
    use std::io::Write as _;
    let mut file = std::fs::File::create(&path).with_context(|| format!("create {}", path.display()))?;
    let mut written = 0;
    loop {
        let entries = simulator.journal();
        for entry in entries.iter().skip(written) {
            serde_json::to_writer(&file, entry)?;
            file.write_all(b"\n")?;
        }
        written = entries.len();
        if cancel.is_cancelled() {
            return Ok(());
        }
        tokio::select! {
            () = cancel.cancelled() => {}
            () = tokio::time::sleep(std::time::Duration::from_millis(200)) => {}
        }
    }
}
