//! What a notice of EC2 leaves of the time that a pod has to end.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::Api;
use muster_api::crd::{BatchInstance, NodeBatchStatus};
use muster_core::ec2::{Grace, grace};
use muster_core::model::gang::Pod;

use crate::clock::Clock;
use crate::cluster::SeenBatch;

/// The grace of a pod: its own, unless EC2 ends a machine of its batch before that. The whole batch counts, since a gang
/// starts again only when all of it has ended; but only what runs on a machine that ends is deleted at once.
pub(super) async fn grace_of(
    pods: &Api<PodObject>,
    clock: &Clock,
    batches: impl Iterator<Item = &SeenBatch>,
    pod: &Pod,
) -> anyhow::Result<Grace> {
    let statuses = batches.filter_map(|seen| seen.object().status.as_ref());
    let instances = |status: &NodeBatchStatus| -> Vec<BatchInstance> {
        status.instances.iter().chain(&status.replaced).cloned().collect()
    };
    let on_it = |one: &BatchInstance| pod.node.as_ref().is_some_and(|node| one.node.as_deref() == Some(node.as_str()));
    let Some(batch) = statuses.map(instances).find(|all| all.iter().any(on_it)) else { return Ok(Grace::Own) };
    let Some(deadline) = batch.iter().filter_map(|one| one.loss.as_ref()?.deadline).min() else {
        return Ok(Grace::Own);
    };
    // What the cache does not keep is read: notices are rare.
    let own = pods.get_opt(&pod.key.name).await?.and_then(|pod| pod.spec?.termination_grace_period_seconds);
    let ends = batch.iter().any(|one| on_it(one) && one.loss.is_some());
    Ok(grace(own, deadline.duration_since(clock.now()), ends))
}

/// Seconds of EC2's time as a kubelet counts them; at least one.
pub(super) fn real_seconds(clock: &Clock, seconds: i64) -> u32 {
    let until = clock.now().saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(jiff::Timestamp::MAX);
    u32::try_from(clock.real_until(until).as_secs()).unwrap_or(u32::MAX).max(1)
}
