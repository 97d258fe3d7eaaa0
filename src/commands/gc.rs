//! `muster gc`: what the orphan sweep holds, and its release; with `--account`, what AWS has of a cluster, and its end.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::crd::{NodePool, condition};
use muster_api::keys;
use muster_ec2::ClientOptions;
use serde::Serialize;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::flags::{self, Form};
use super::gc_account::{self, Account};
use super::{Unusable, iam, reach};
use crate::clock::Clock;
use crate::cloud::{Changes, Cloud, LimitSettings, Limits};
use crate::telemetry::Metrics;

/// Arguments of `muster gc`.
#[derive(Debug, Args)]
pub struct GcArgs {
    /// Release exactly the set of instances that is held now: they are terminated in the next round. With --account:
    /// terminate every instance listed, then delete placement groups and launch templates.
    #[arg(long)]
    confirm: bool,
    /// Ask AWS alone, and no cluster: list everything that carries the tags of --cluster-uid.
    #[arg(long, requires = "cluster_uid")]
    account: bool,
    /// UID of the namespace kube-system of the cluster whose resources are meant; it may be gone.
    #[arg(long, requires = "account")]
    cluster_uid: Option<String>,
    /// Region.
    #[arg(long, env = "AWS_REGION")]
    region: Option<String>,
    /// Another endpoint than EC2's own.
    #[arg(long, env = "AWS_ENDPOINT_URL")]
    endpoint_url: Option<String>,
    /// Longest wait for instances to be terminated, in seconds.
    #[arg(long, default_value_t = 600)]
    wait: u64,
    /// How what is held, or the list of --account, is written.
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
    #[command(flatten)]
    cluster: Cluster,
}

/// Prints what is held. 0 = nothing, or released; 3 = held.
pub async fn run(args: &GcArgs) -> anyhow::Result<ExitCode> {
    if let (true, Some(uid)) = (args.account, &args.cluster_uid) {
        return account(args, uid).await;
    }
    let (client, _) = args.cluster.client().await?;
    let pools: Api<NodePool> = Api::all(client);
    let all = pools.list(&ListParams::default()).await.context("list NodePools")?;
    if all.items.is_empty() {
        anyhow::bail!(
            "there is no NodePool, and what is held is written on NodePools alone: apply one, or ask AWS itself with \
             `muster gc --account --cluster-uid $(kubectl get namespace kube-system -o jsonpath='{{.metadata.uid}}')`"
        );
    }
    // Every pool has the same condition.
    let held = all.iter().find_map(|pool| Some((pool.name_any(), message(pool)?)));
    let Some((name, message)) = held else {
        let nothing = || "nothing is held: what belongs to no NodeBatch is collected as it is found".to_owned();
        args.output.print(nothing, &Held::default(), sets)?;
        return Ok(ExitCode::SUCCESS);
    };
    let set = digest(&message);
    let mut held = Held { set: set.map(str::to_owned), message: Some(message.clone()), released: false };
    if !args.confirm {
        args.output.print(|| message.clone(), &held, sets)?;
        return Ok(ExitCode::from(3));
    }
    let set = set.context("read the set from the condition OrphanSweepHeld")?;
    let patch = json!({"metadata": {"annotations": {keys::CONFIRM_ORPHANS: set}}});
    pools
        .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .with_context(|| format!("annotate NodePool {name}"))?;
    held.released = true;
    args.output.print(|| format!("{message}\nset {set} is released"), &held, sets)?;
    Ok(ExitCode::SUCCESS)
}

/// What the orphan sweep holds.
#[derive(Debug, Default, Serialize)]
struct Held {
    /// The name of exactly this set of instances and batches; none while nothing is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    set: Option<String>,
    /// What it is, and what it costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Whether a person has released it just now.
    released: bool,
}

fn sets(value: &Value) -> Vec<String> {
    value["set"].as_str().map(|set| format!("set/{set}")).into_iter().collect()
}

/// Prints what AWS has of the cluster; with `--confirm` what is left of it. 0 = nothing, 3 = something.
async fn account(args: &GcArgs, uid: &str) -> anyhow::Result<ExitCode> {
    if !iam::is_uid(uid) {
        return Err(Unusable(format!("--cluster-uid: \"{uid}\" is not the UID of a namespace")).into());
    }
    let region = args.region.clone().ok_or_else(|| Unusable("--region: name it, or set AWS_REGION".to_owned()))?;
    let ec2 = muster_ec2::Client::connect(ClientOptions {
        region,
        credentials: reach::credentials(args.endpoint_url.as_deref()),
        endpoint_url: args.endpoint_url.clone(),
        launch_timeout: ClientOptions::LAUNCH_TIMEOUT,
    })
    .await
    .context("connect to EC2")?;
    // Below EC2's own limits, as `serve` keeps them: whoever runs into those stops everybody else of the account too.
    let (metrics, clock) = (Metrics::default().cloud, Clock::real());
    let limits = Limits::new(&LimitSettings::default(), &clock, metrics.clone());
    let ec2 = Cloud::new(ec2, metrics, limits, uid.to_owned(), clock, Changes::Sent);
    let left = if args.confirm {
        gc_account::collect(&ec2, uid, std::time::Duration::from_secs(args.wait)).await?
    } else {
        gc_account::list(&ec2, uid).await?
    };
    args.output.print(|| table(&left, args.confirm), &left, names)?;
    Ok(if left.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

/// By kind and name.
fn names(value: &Value) -> Vec<String> {
    let mut names = flags::each(value, "instances", "id", "instance/");
    let groups = value["placementGroups"].as_array().into_iter().flatten().filter_map(Value::as_str);
    names.extend(groups.map(|name| format!("placement-group/{name}")));
    let templates = value["launchTemplates"].as_object().into_iter().flatten();
    names.extend(templates.map(|(id, _)| format!("launch-template/{id}")));
    names
}

fn table(left: &Account, confirmed: bool) -> String {
    let mut lines = Vec::new();
    for one in &left.instances {
        let launched = one.launched.map(|at| at.to_string()).unwrap_or_default();
        lines.push(format!(
            "instance {} {} {} {:?} batch {} launched {launched}",
            one.id, one.instance_type, one.zone, one.state, one.batch
        ));
    }
    lines.extend(left.placement_groups.iter().map(|name| format!("placement group {name}")));
    lines.extend(left.launch_templates.iter().map(|(id, name)| format!("launch template {id} {name}")));
    lines.push(match (left.is_empty(), confirmed) {
        (true, _) => format!("nothing is left of cluster {}", left.cluster_uid),
        (false, true) => "not all of it has ended: run the command again".to_owned(),
        (false, false) => "--confirm ends all of it; stop muster serve first, or it provisions again".to_owned(),
    });
    lines.join("\n")
}

fn message(pool: &NodePool) -> Option<String> {
    let conditions = &pool.status.as_ref()?.conditions;
    let held = condition(conditions, "OrphanSweepHeld").filter(|one| one.status == "True")?;
    Some(held.message.clone())
}

fn digest(message: &str) -> Option<&str> {
    message.rsplit_once("(set ")?.1.strip_suffix(')')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_is_read_from_the_sentence() {
        assert_eq!(
            digest("8 of 8 instances (a, b): `muster gc --confirm` to end exactly these (set abc123)"),
            Some("abc123")
        );
        assert_eq!(digest("nothing"), None);
    }
}
