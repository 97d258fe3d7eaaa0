//! Patches of pods of which nothing but the new version is read: the API server answers with the metadata alone.

use std::collections::BTreeMap;
use std::time::Duration;

use http::header::{ACCEPT, HeaderValue};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use muster_api::keys;
use muster_core::model::names::{NodeName, ObjectKey};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::error::Elapsed;

use crate::step::{Step, step};

const METADATA: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json");

/// Real time after which an eviction counts as refused.
const EVICTION: Duration = Duration::from_secs(1);

/// Evicts a pod. The client repeats what is answered 429, as an eviction is that a disruption budget forbids: after a second
/// it counts as refused, and the outer result is an error.
///
/// Written here: the client's own `evict` misspells the field of the options, which are ignored then.
pub(crate) async fn post_eviction(
    pods: &Api<Pod>,
    name: &str,
    options: &DeleteParams,
) -> Result<Result<(), kube::Error>, Elapsed> {
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name},
        "deleteOptions": options,
    });
    let params = PostParams::default();
    let evicted =
        step(Step::EvictPod, pods.create_subresource::<_, serde_json::Value>("eviction", name, &params, &eviction));
    Ok(tokio::time::timeout(EVICTION, evicted).await?.map(drop))
}

/// What is read of the answer.
#[derive(Debug, Deserialize)]
pub(super) struct Patched {
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Patched {
    /// The version after the patch.
    pub(super) fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    /// Whether the pod says that it was released for this plan of its gang, to this node.
    pub(super) fn says_released(&self, epoch: u64, node: &NodeName) -> bool {
        let says = |key: &str| self.metadata.annotations.get(key).map(String::as_str);
        says(keys::PLAN_EPOCH) == Some(&*epoch.to_string()) && says(keys::PLANNED_NODE) == Some(node.as_str())
    }
}

/// Patches a pod, or its status where the step is about that.
///
/// Errors: the API server's.
pub(super) async fn patch(
    which: Step,
    client: &Client,
    pod: &ObjectKey,
    patch: &Patch<impl Serialize>,
) -> Result<Patched, kube::Error> {
    let requests = kube::core::Request::new(Pod::url_path(&(), Some(&pod.namespace)));
    let params = PatchParams::default();
    let status = matches!(which, Step::NominatePod | Step::ReportPod);
    step(which, async {
        let request = if status {
            requests.patch_subresource("status", &pod.name, &params, patch)
        } else {
            requests.patch(&pod.name, &params, patch)
        };
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        request.headers_mut().insert(ACCEPT, METADATA);
        client.request(request).await
    })
    .await
}
