//! Watches of what devices are allocated by. Clusters before Kubernetes 1.34 do not serve these kinds: nobody waits for them
//! there, and they are watched once they are served.

use std::time::Duration;

use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use kube::Client;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::info;

use super::follow::{Change, watch};
use super::served::{unawaited, until_served};

/// The kinds, by plural.
pub(super) const KINDS: [&str; 4] = ["deviceclasses", "resourceslices", "resourceclaims", "resourceclaimtemplates"];
/// Their group and version.
const GROUP_VERSION: &str = "resource.k8s.io/v1";
/// Lists that have not come after this are not waited for any longer.
const FIRST_LISTS: Duration = Duration::from_secs(30);

/// Watches the kinds as soon as the cluster serves them, until nobody listens any more.
pub(super) async fn run(client: Client, reopen: u32, sender: mpsc::Sender<Change>) {
    let mut tasks = JoinSet::new();
    let late = sender.clone();
    tasks.spawn(async move {
        tokio::time::sleep(FIRST_LISTS).await;
        unawaited(&KINDS, &late).await;
    });
    if !until_served(&client, GROUP_VERSION, KINDS[0], &sender, &KINDS).await {
        return;
    }
    info!(group_version = GROUP_VERSION, "watched for devices of claims");
    let [classes, slices, claims, templates] = KINDS;
    tasks.spawn(watch::<DeviceClass>(client.clone(), classes, reopen, sender.clone(), Change::DeviceClass));
    tasks.spawn(watch::<ResourceSlice>(client.clone(), slices, reopen, sender.clone(), Change::ResourceSlice));
    tasks.spawn(watch::<ResourceClaim>(client.clone(), claims, reopen, sender.clone(), Change::ResourceClaim));
    tasks.spawn(watch::<ResourceClaimTemplate>(client, templates, reopen, sender, Change::ClaimTemplate));
    while tasks.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    fn answering(status: u16, body: &'static str) -> Client {
        let service = tower::service_fn(move |_: Request<Body>| async move {
            let answer = Response::builder().status(status).body(Body::from(body.as_bytes().to_vec()));
            Ok::<_, std::convert::Infallible>(answer.expect("a constant answer is valid"))
        });
        Client::new(service, "ns")
    }

    async fn unawaited(client: Client) -> Vec<&'static str> {
        let (sender, mut receiver) = mpsc::channel(16);
        let watching = tokio::spawn(run(client, 6, sender));
        let mut kinds = Vec::new();
        while kinds.len() < KINDS.len() {
            if let Some(Change::Unawaited(kind)) = receiver.recv().await {
                kinds.push(kind);
            }
        }
        watching.abort();
        kinds
    }

    const ABSENT: &str =
        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":""}"#;

    #[tokio::test]
    async fn nobody_waits_for_kinds_that_the_cluster_does_not_serve() {
        assert_eq!(unawaited(answering(404, ABSENT)).await, KINDS);
        // A group that is served without them, as that of older versions.
        let list = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"resource.k8s.io/v1","resources":[]}"#;
        assert_eq!(unawaited(answering(200, list)).await, KINDS);
    }
}
