//! `muster serve` and the kube-scheduler beside it: whether the pair fits this cluster.
//!
//! The version is that of the image in our own Pod: it is known before kube-scheduler answers, and needs no right beyond
//! reading pods. Where the image says nothing, or kube-scheduler runs elsewhere, `--kube-scheduler-version` says it.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use muster_core::skew::{Minor, Skew, skew};
use tracing::{info, warn};

use super::Unusable;

/// Name of the container in the shipped Pod.
pub(super) const CONTAINER: &str = "kube-scheduler";

/// What `muster serve` knows of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own<'a> {
    /// `--kube-scheduler-version`.
    pub version: Option<&'a str>,
    /// Namespace and name of our Pod.
    pub pod: Option<(&'a str, &'a str)>,
}

/// Refuses a kube-scheduler that is newer than the API server, and warns of one that is too old.
///
/// Errors: the pair cannot work, with the remedy; or the API server does not say its version.
pub(super) async fn check(client: &Client, own: Own<'_>) -> anyhow::Result<()> {
    let Some(scheduler) = scheduler(client, own).await? else {
        warn!(
            "the version of the kube-scheduler beside Muster is not known, and not held against the API server's: give its \
             image a tag, or set --kube-scheduler-version"
        );
        return Ok(());
    };
    let reported = client.apiserver_version().await.context("ask the API server for its version")?;
    let Some(api_server) = Minor::parse(&reported.git_version) else {
        warn!(
            version = reported.git_version,
            "the API server's version is not understood, and kube-scheduler's not held against it"
        );
        return Ok(());
    };
    match skew(scheduler, api_server) {
        Skew::Supported => info!(%scheduler, %api_server, "kube-scheduler fits the API server"),
        Skew::TooOld => warn!(
            %scheduler,
            %api_server,
            "kube-scheduler is more than one minor version below the API server, which Kubernetes does not support: use \
             manifests/kubernetes/{api_server}, or kubernetes.minor=\"{api_server}\" of the chart"
        ),
        Skew::Newer => {
            return Err(Unusable(format!(
                "kube-scheduler {scheduler} is newer than the API server {api_server}, which Kubernetes does not support: \
                 name the component kubernetes/{api_server} in manifests/kustomization.yaml, or set \
                 kubernetes.minor=\"{api_server}\" of the chart"
            ))
            .into());
        }
    }
    Ok(())
}

async fn scheduler(client: &Client, own: Own<'_>) -> anyhow::Result<Option<Minor>> {
    if let Some(version) = own.version {
        let parsed = Minor::parse(version).ok_or_else(|| {
            Unusable(format!("--kube-scheduler-version: \"{version}\" is not a version such as v1.37.0"))
        })?;
        return Ok(Some(parsed));
    }
    let Some((namespace, name)) = own.pod else { return Ok(None) };
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = pods.get_opt(name).await.with_context(|| format!("read our own Pod {namespace}/{name}"))?;
    let containers = pod.and_then(|pod| pod.spec).map(|spec| spec.containers).unwrap_or_default();
    let image = containers.into_iter().find(|container| container.name == CONTAINER).and_then(|found| found.image);
    Ok(image.as_deref().and_then(Minor::of_image))
}
