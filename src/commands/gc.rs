//! `muster gc`: what the orphan sweep holds, and its release.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use muster_api::crd::NodePool;
use muster_api::keys;
use serde_json::json;

/// Arguments of `muster gc`.
#[derive(Debug, Args)]
pub struct GcArgs {
    /// Release exactly the set of instances that is held now: they are terminated in the next round.
    #[arg(long)]
    confirm: bool,
}

/// Prints what is held. 0 = nothing, or released; 3 = held.
#[expect(clippy::print_stdout, reason = "the output of the command")]
pub async fn run(args: &GcArgs) -> anyhow::Result<ExitCode> {
    let client = Client::try_default().await.context("connect to the cluster (kubeconfig)")?;
    let pools: Api<NodePool> = Api::all(client);
    let all = pools.list(&ListParams::default()).await.context("list NodePools")?;
    let held = all.iter().find_map(|pool| Some((pool.name_any(), message(pool)?)));
    let Some((name, message)) = held else {
        println!("nothing is held: what belongs to no NodeBatch is collected as it is found");
        return Ok(ExitCode::SUCCESS);
    };
    println!("{message}");
    if !args.confirm {
        return Ok(ExitCode::from(3));
    }
    let digest = digest(&message).context("read the set from the condition OrphanSweepHeld")?;
    let patch = json!({"metadata": {"annotations": {keys::CONFIRM_ORPHANS: digest}}});
    pools
        .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .with_context(|| format!("annotate NodePool {name}"))?;
    println!("set {digest} is released");
    Ok(ExitCode::SUCCESS)
}

fn message(pool: &NodePool) -> Option<String> {
    let conditions = &pool.status.as_ref()?.conditions;
    let held =
        conditions.iter().find(|condition| condition.type_ == "OrphanSweepHeld" && condition.status == "True")?;
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
        assert_eq!(digest("8 of 8 instances (a, b): held before \"muster gc --confirm\" (set abc123)"), Some("abc123"));
        assert_eq!(digest("nothing"), None);
    }
}
