//! `muster ec2-sim`: the simulator as a process, optionally with the fake that registers its machines as nodes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use muster_ec2_sim::{Scenario, Simulator};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::commands::Unusable;
use crate::commands::serve::stopped;
use crate::telemetry::{LogConfig, LogFormat};
use crate::{fake_kubelet, telemetry};

/// Arguments of `muster ec2-sim`.
#[derive(Debug, Args)]
#[command(
    about = "A wire-level EC2 simulator: finite capacity, placement groups, reservations, throttles and faults",
    long_about = "A wire-level EC2 simulator with finite capacity, placement groups, topology, capacity reservations, \
client tokens, throttles and faults. EC2, SQS, STS, EKS and IAM share one port; point any AWS client at it with \
AWS_ENDPOINT_URL=http://127.0.0.1:4566 and any credentials. Its state is read and changed under /_sim/ on the same \
port: state, journal, invariants, bill, faults, clock, pools, terminate, interrupt, batches. docs/ec2-sim.md has it all."
)]
pub struct Ec2SimArgs {
    /// Address to listen on. Only loopback makes sense: the simulator checks no signature.
    #[arg(long, default_value = "127.0.0.1:4566")]
    listen: SocketAddr,
    /// Scenario file (YAML or JSON): zones, pools, reservations, delays, quotas, faults, choices. Without one, the demo's
    /// scenario.
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// IAM policy (JSON) that every call is held against, such as manifests/iam/policy.json.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// What a word of the policy stands for, such as CLUSTER=demo; REGION and ACCOUNT are those of the scenario.
    #[arg(long, value_name = "WORD=VALUE", value_parser = word)]
    policy_value: Vec<(String, String)>,
    /// Seed in place of the scenario's: ids, hosts and delays follow from it.
    #[arg(long)]
    seed: Option<u64>,
    /// Keep the bodies of requests and answers in the journal.
    #[arg(long)]
    record_bodies: bool,
    /// Register a Node for every running instance and remove it with the instance, as kubelet and cloud controller
    /// would; the cluster is that of the kubeconfig.
    #[arg(long)]
    register_nodes: bool,
    /// Write each request as one JSON line into this file as it is answered.
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
}

/// Runs until SIGTERM or Ctrl-C.
pub async fn run(args: Ec2SimArgs) -> anyhow::Result<ExitCode> {
    telemetry::init(&LogConfig { filter: "info,kube=warn".to_owned(), format: LogFormat::Text });
    if !args.listen.ip().is_loopback() {
        let why = "the simulator checks no signature, so it listens on loopback only; use 127.0.0.1:4566";
        return Err(Unusable(format!("--listen {}: {why}", args.listen)).into());
    }
    let mut scenario = match &args.scenario {
        Some(path) => read(path, "scenario")?,
        None => Scenario::demo(),
    };
    if let Some(path) = &args.policy {
        scenario.policy = Some(read(path, "policy")?);
    }
    scenario.policy_values.extend(args.policy_value);
    scenario.record_bodies |= args.record_bodies;
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    let seed = scenario.seed;
    let simulator = Simulator::new(scenario).map_err(|error| Unusable(format!("scenario: {error}")))?;
    let listener = TcpListener::bind(args.listen).await.with_context(|| format!("listen on {}", args.listen))?;
    info!(address = %listener.local_addr()?, seed, "EC2 simulator");
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
        tasks.spawn(fake_kubelet::run(client, machines, cancel.clone()));
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

/// Reads a YAML or JSON file; what is wrong with it is reported with the path of the field.
fn read<T: serde::de::DeserializeOwned>(path: &Path, what: &str) -> anyhow::Result<T> {
    let unusable = |error: String| Unusable(format!("{what} {}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
    Ok(parse(&text).map_err(|error| unusable(format!("{error:#}")))?)
}

fn parse<T: serde::de::DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    let value: serde_json::Value = serde_saphyr::from_str(text).map_err(|error| anyhow::anyhow!("{error}"))?;
    serde_path_to_error::deserialize(value).map_err(|error| match error.path().to_string().as_str() {
        "." => anyhow::anyhow!("{}", error.inner()),
        path => anyhow::anyhow!("{path}: {}", error.inner()),
    })
}

fn word(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((word, value)) if !word.is_empty() => Ok((word.to_owned(), value.to_owned())),
        _ => Err("is not WORD=VALUE".to_owned()),
    }
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

#[cfg(test)]
mod tests {
    use muster_ec2_sim::{FaultKind, Scenario};

    use super::parse;

    #[test]
    fn a_scenario_in_yaml_says_what_json_says() {
        let yaml = "
seed: 7
clock: {factor: 60}
pools:
- {type: p5.48xlarge, zone: us-east-1a, spines: [{leaves: [4, 4]}]}
reservations:
- {id: cr-1, type: p5.48xlarge, zone: us-east-1b, kind: capacity-block, spines: [{leaves: [2]}], startSeconds: 60}
faults:
- {operation: CreateFleet, count: 1, kind: lostResponse}
- {zone: us-east-1a, kind: {partial: {fill: 3}}}
choices: {shortfall: empty, tokenLifeSeconds: 60}
";
        let scenario: Scenario = parse(yaml).unwrap();
        assert_eq!((scenario.seed, scenario.pools.len(), scenario.reservations.len()), (7, 1, 1));
        assert_eq!(scenario.faults[1].kind, FaultKind::Partial { fill: 3 });
        scenario.check().unwrap();
        let json = serde_json::to_string(&scenario).unwrap();
        assert_eq!(parse::<Scenario>(&json).unwrap(), scenario);
    }

    #[test]
    fn the_documents_example_can_be_played() {
        let document = include_str!("../../docs/ec2-sim.md");
        let yaml = document.split("```yaml").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        parse::<Scenario>(yaml).unwrap().check().unwrap();
    }

    #[test]
    fn what_is_wrong_with_a_scenario_is_stated_with_the_path_of_the_field() {
        for (yaml, stated) in [
            (
                "pools: [{type: p5.48xlarge, zone: us-east-1a, spines: [{leaves: [many]}]}]",
                "pools[0].spines[0].leaves[0]",
            ),
            ("delays: {bootSecond: 3}", "delays.bootSecond: unknown field"),
            ("choices: {shortfall: sometimes}", "choices.shortfall: unknown variant `sometimes`"),
            ("faults: [{kind: {partial: {}}}]", "faults[0].kind"),
        ] {
            let error = format!("{:#}", parse::<Scenario>(yaml).unwrap_err());
            assert!(error.contains(stated), "{yaml}: {error}");
        }
    }
}
