//! `muster doctor`: account, cluster and configuration looked at before the first gang. Nothing is changed: AWS is asked by
//! reads and dry runs, the API server by reads and questions about permissions.

mod account;
mod cluster;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use kube::Client;
use muster_core::doctor::{Account, Configuration, Facts, Report, judge};
use muster_ec2::{ClientOptions, describe_cluster};

use super::cluster as cluster_flags;
use super::flags::{self, Form};
use super::reach;
use crate::cloud::Changes;
use crate::config::Config;

/// Arguments of `muster doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Configuration file of `muster serve` (YAML). Without one, the defaults.
    #[arg(long, env = "MUSTER_CONFIG")]
    config: Option<PathBuf>,
    /// How the findings are written.
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
    #[command(flatten)]
    cluster: cluster_flags::Cluster,
}

/// Prints the findings. 0 = nothing failed, 1 = something did.
pub async fn run(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(args.config.as_deref())?;
    let (client, _) = args.cluster.client().await?;
    let report = examine(&config, &client, reach::ec2(&config)).await?;
    args.output.print(|| report.to_string(), &report, |value| flags::each(value, "checks", "check", "check/"))?;
    Ok(if report.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Gathers the facts and judges them. `ec2`: how AWS is reached, if it is.
///
/// Errors: what cannot be asked at all; a refusal is a finding.
pub async fn examine(config: &Config, client: &Client, ec2: Option<ClientOptions>) -> anyhow::Result<Report> {
    let options = ec2.filter(|_| !config.ec2.disabled);
    let mut described = None;
    let wrong_access = match &options {
        None => Vec::new(),
        Some(options) => {
            let reached = reach::access(client, config.access.clone(), options).await;
            described = reached.cluster;
            reach::wrong_way(&reached.access, options)
        }
    };
    let name = config.access.name.as_str();
    if described.is_none()
        && !name.is_empty()
        && let Some(options) = &options
    {
        described = Some(describe_cluster(options.clone(), name).await);
    }
    let configuration = Configuration {
        disabled: config.ec2.disabled,
        region: options.as_ref().map(|options| options.region.clone()),
        wrong_access,
        ceiling: config.ceiling.is_some(),
        dry_run: config.changes == Changes::Withheld,
    };
    let cluster = cluster::gather(client, config).await?;
    let objects = cluster::objects(client).await?;
    let mut facts = Facts { configuration, cluster, ..Facts::default() };
    let reached_by = options.clone();
    let asked = match options {
        None => None,
        Some(options) => {
            let ec2 = muster_ec2::Client::connect(options.clone()).await.context("connect to EC2")?;
            let whose = account::Whose {
                cluster_uid: cluster::uid(client).await?,
                cluster_name: config.access.name.clone(),
                isolated: config.ec2.isolated,
                kubernetes: facts.cluster.api_server.map(|version| version.to_string()),
            };
            let first = account::first(&ec2).await;
            let queue = account::queue(options, config.ec2.interruption_queue.as_deref()).await;
            let (quotas, entries) = (BTreeMap::new(), Vec::new());
            let account = Account { first, actions: Vec::new(), queue, cluster: described, quotas, entries };
            let known = account.known();
            facts.account = Some(account);
            known.then_some((ec2, whose))
        }
    };
    let looked = account::look(asked.as_ref(), &objects).await;
    facts.classes = looked.classes;
    facts.pools = looked.pools;
    if let Some(account) = &mut facts.account {
        account.actions = looked.actions;
        if let Some((ec2, whose)) = &asked {
            account.quotas = account::quotas(ec2, whose, &facts.pools).await;
            account.actions.push(account::of_quotas(whose, &account.quotas));
        }
        if let (Some(Ok(cluster)), Some(options)) = (&account.cluster, &reached_by) {
            account.entries = account::entries(options, cluster, &facts.classes).await;
        }
        let of_eks = account::of_eks(account);
        account.actions.extend(of_eks);
    }
    Ok(judge(&facts))
}
