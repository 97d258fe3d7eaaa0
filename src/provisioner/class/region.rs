//! Without a Region there is nobody to ask: classes and their pools say so, and gangs run on the nodes there are.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use muster_api::crd::{EC2NodeClass, NodePool, set_condition};
use serde_json::json;
use tokio::sync::watch;
use tracing::debug;

use super::{Permissions, conclude, null_absent, problem, turned};
use crate::clock::now_real;
use crate::cluster::Cluster;
use crate::gang::Events;
use crate::step::{Step, step};
use crate::term::Term;

/// What could not be written is written again after this.
const AGAIN: Duration = Duration::from_secs(15);

/// Keeps the status of every EC2NodeClass and NodePool, as long as this replica leads.
///
/// Errors: the store or the election has ended.
pub async fn without_region(
    client: Client,
    cluster: Cluster,
    mut leader: watch::Receiver<Option<Term>>,
    message: &'static str,
) -> anyhow::Result<()> {
    let events = Events::new(client.clone());
    let mut changes = cluster.changes();
    loop {
        changes.borrow_and_update();
        let mut rests = false;
        let state = cluster.load();
        if leader.borrow_and_update().is_some() && state.snapshot.synced {
            for class in state.classes.values() {
                let wrote = of_class(&client, &events, class, message).await;
                rests |= !matches!(wrote, Ok(false));
                if let Err(error) = wrote {
                    debug!(error = %crate::telemetry::chain(&error), class = class.name_any(), "class without a Region");
                }
            }
            for pool in state.pools.values() {
                let wrote = of_pool(&client, pool, message).await;
                rests |= !matches!(wrote, Ok(false));
                if let Err(error) = wrote {
                    debug!(error = %crate::telemetry::chain(&error), pool = pool.name_any(), "pool without a Region");
                }
            }
        }
        tokio::select! {
            // The watch may not show what was written, and what was refused is refused again.
            seen = changes.changed(), if !rests => seen?,
            seen = leader.changed() => seen?,
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

/// Whether anything was written.
async fn of_class(
    client: &Client,
    events: &Events,
    class: &Arc<EC2NodeClass>,
    message: &'static str,
) -> anyhow::Result<bool> {
    let mut before = class.status.clone().unwrap_or_default();
    before.observed_generation = class.metadata.generation;
    let problems = vec![problem("ValidationSucceeded", "ClusterAccess", message)];
    let status = conclude(before, problems, &Permissions::default());
    if class.status.as_ref() == Some(&status) {
        return Ok(false);
    }
    let classes: Api<EC2NodeClass> = Api::all(client.clone());
    let patch = json!({"status": null_absent(&status)});
    let name = class.name_any();
    step(Step::WriteStatus, classes.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch))).await?;
    if let Some(event) = turned(class.status.as_ref(), &status) {
        events.publish(class.as_ref(), &event).await;
    }
    Ok(true)
}

/// Whether anything was written.
async fn of_pool(client: &Client, pool: &NodePool, message: &str) -> anyhow::Result<bool> {
    let mut conditions = pool.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let before = conditions.clone();
    let class = &pool.spec.template.spec.node_class_ref.name;
    let message = format!("EC2NodeClass {class}: {message}");
    set_condition(&mut conditions, "Ready", false, "NodeClassNotReady", &message, now_real());
    if conditions == before {
        return Ok(false);
    }
    let pools: Api<NodePool> = Api::all(client.clone());
    let patch = json!({"status": {"conditions": conditions}});
    let name = pool.name_any();
    step(Step::WriteStatus, pools.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch))).await?;
    Ok(true)
}
