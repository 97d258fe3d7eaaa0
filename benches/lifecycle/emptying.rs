//! All pods go at once: how soon their nodes are gone, and nothing is paid for any more.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use muster::testbed::{Stack, eventually};
use muster_api::crd::NodePool;
use muster_ec2_sim::scenario::Delays;
use serde_json::{Value, json};

use crate::cloud::SYSTEM;
use crate::machine::{DEADLINE, NAMESPACE};

/// For so long a node is empty before it goes, as the pool says.
const CONSOLIDATE_AFTER: Duration = Duration::from_secs(30);
/// What Muster may take beside that and EC2's time.
const OWN: Duration = Duration::from_secs(30);

/// From the last pod to the last node, and what is allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Emptied {
    pub(crate) took: Duration,
    pub(crate) allowed: Duration,
}

/// Deletes every pod, and waits until no instance and no node is left.
pub(crate) async fn run(stack: &Stack) -> anyhow::Result<Emptied> {
    let client = stack.admin()?;
    let after = json!({"spec": {"disruption": {"consolidateAfter": format!("{}s", CONSOLIDATE_AFTER.as_secs())}}});
    let pools: Api<NodePool> = Api::all(client.clone());
    pools.patch("general", &PatchParams::default(), &Patch::Merge(&after)).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    pods.delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default()).await?;
    eventually(DEADLINE, "the last pod to be gone", || {
        let pods = pods.clone();
        async move { Ok::<_, kube::Error>(pods.list(&ListParams::default()).await?.items.is_empty().then_some(())) }
    })
    .await?;
    let gone = Instant::now();
    let allowed = CONSOLIDATE_AFTER + OWN + Duration::from_secs_f64(Delays::default().terminate_seconds);
    eventually(allowed + DEADLINE, "the last node to be gone", || is_empty(stack, client.clone())).await?;
    Ok(Emptied { took: gone.elapsed(), allowed })
}

async fn is_empty(stack: &Stack, client: Client) -> anyhow::Result<Option<()>> {
    let instances: Vec<Value> = stack.sim("/_sim/instances").await?;
    let live = instances.iter().filter(|instance| instance["state"] != "terminated").count();
    let nodes = Api::<Node>::all(client).list_metadata(&ListParams::default()).await?;
    let left = nodes.iter().filter(|node| node.name_any() != SYSTEM).count();
    Ok((live == 0 && left == 0).then_some(()))
}
