//! All pods go at once: how soon their nodes are gone, and nothing is paid for any more.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use muster::testbed::{Stack, eventually};
use muster_api::crd::NodePool;
use serde_json::{Value, json};

use crate::cloud::SYSTEM;
use crate::machine::{DEADLINE, NAMESPACE};

/// For so long a node is empty before it goes, as the pool says.
const CONSOLIDATE_AFTER: Duration = Duration::from_secs(30);
/// What Muster may take beside that. What EC2 takes to shut down is not paid for, and no Node waits for it.
const OWN: Duration = Duration::from_secs(30);

/// From the last pod to the last node, and what is allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Emptied {
    pub(crate) took: Duration,
    pub(crate) allowed: Duration,
}

/// Deletes every pod, and waits until nothing is paid for and no Node is left.
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
    let allowed = CONSOLIDATE_AFTER + OWN;
    eventually(allowed + DEADLINE, "the last node to be gone", || is_empty(stack, client.clone())).await?;
    Ok(Emptied { took: gone.elapsed(), allowed })
}

async fn is_empty(stack: &Stack, client: Client) -> anyhow::Result<Option<()>> {
    let live: Vec<Value> = stack.sim("/_sim/instances").await?;
    let nodes = Api::<Node>::all(client).list_metadata(&ListParams::default()).await?;
    let left = nodes.iter().filter(|node| node.name_any() != SYSTEM).count();
    Ok((live.is_empty() && left == 0).then_some(()))
}
