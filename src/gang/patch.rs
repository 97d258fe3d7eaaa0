//! Patches of pods of which nothing but the new version is read: the API server answers with the metadata alone.

use http::header::{ACCEPT, HeaderValue};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Client, Resource};
use muster_core::model::names::ObjectKey;
use serde::{Deserialize, Serialize};

use crate::step::{Step, step};

const METADATA: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json");

/// What is read of the answer.
#[derive(Debug, Deserialize)]
pub(super) struct Patched {
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

impl Patched {
    /// The version after the patch.
    pub(super) fn resource_version(&self) -> &str {
        &self.metadata.resource_version
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
    let status = matches!(which, Step::HintPod | Step::ReportPod);
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
