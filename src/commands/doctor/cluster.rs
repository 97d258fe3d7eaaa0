//! What the API server is asked.

use std::collections::BTreeMap;

use anyhow::Context as _;
use http::header::DATE;
use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::client::Body;
use kube::{Api, Client, ResourceExt};
use muster_api::crd::{self, EC2NodeClass, NodePool};
use muster_api::{convert, keys};
use muster_core::doctor::{self, Answer, Cluster, PodIdentity};
use muster_core::skew::Minor;

use crate::clock::now_real;
use crate::commands::definitions;
use crate::commands::scheduler_version::CONTAINER;
use crate::config::Config;
use crate::permissions;

/// Pools and classes, as they are.
#[derive(Debug)]
pub(super) struct Objects {
    pub(super) pools: Vec<NodePool>,
    pub(super) classes: Vec<EC2NodeClass>,
}

/// Everything about the cluster that is judged by itself.
pub(super) async fn gather(client: &Client, config: &Config) -> anyhow::Result<Cluster> {
    let version = client.apiserver_version().await.context("ask the API server for its version")?;
    let pods: Vec<Pod> = list(&Api::namespaced(client.clone(), &config.lease.namespace)).await.unwrap_or_default();
    Ok(Cluster {
        ahead: ahead(client).await,
        api_server: Minor::parse(&version.git_version),
        schedulers: pods.iter().filter_map(scheduler).collect(),
        missing: Some(
            permissions::missing(client, &config.lease)
                .await
                .map(|missing| missing.needed)
                .map_err(|error| format!("{error:#}")),
        ),
        kinds: kinds(client).await?,
        unknown: Some(definitions::unknown(client).await.map_err(|error| error.to_string())),
        daemons: Some(
            list::<DaemonSet>(&Api::all(client.clone()))
                .await
                .map(|sets| sets.iter().filter_map(convert::daemon).collect()),
        ),
        gpu_operator: Some(
            list::<DynamicObject>(&Api::all_with(client.clone(), &cluster_policies()))
                .await
                .map(|policies| policies.iter().any(brings_plugin)),
        ),
        nodes: Some(list(&Api::all(client.clone())).await.map(|nodes| nodes.iter().map(node).collect())),
        identities: pods.iter().filter_map(identity).collect(),
    })
}

/// NodePools and EC2NodeClasses in order of name; none where their kinds are not served.
pub(super) async fn objects(client: &Client) -> anyhow::Result<Objects> {
    let named = |error: String, kind: &str| anyhow::anyhow!("list {kind}: {error}");
    let mut pools: Vec<NodePool> = list(&Api::all(client.clone())).await.map_err(|error| named(error, "NodePools"))?;
    let mut classes: Vec<EC2NodeClass> =
        list(&Api::all(client.clone())).await.map_err(|error| named(error, "EC2NodeClasses"))?;
    pools.sort_by_key(ResourceExt::name_any);
    classes.sort_by_key(ResourceExt::name_any);
    Ok(Objects { pools, classes })
}

/// The UID that marks what is ours in EC2.
pub(super) async fn uid(client: &Client) -> anyhow::Result<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let system = namespaces.get("kube-system").await.context("read the namespace kube-system")?;
    system.metadata.uid.context("the namespace kube-system has no UID")
}

/// All objects of a kind; none where it is not served.
async fn list<K>(api: &Api<K>) -> Answer<Vec<K>>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match api.list(&ListParams::default()).await {
        Ok(found) => Ok(found.items),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error.to_string()),
    }
}

/// What says that NVIDIA's GPU operator is installed, and to what: the operator waits for the first GPU node before it makes
/// DaemonSets.
///
/// Source: "About the NVIDIA GPU Operator", ClusterPolicy of `nvidia.com/v1`.
fn cluster_policies() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("nvidia.com", "v1", "ClusterPolicy"), "clusterpolicies")
}

/// Whether the operator is to bring the device plugin, as it does unless that is switched off.
fn brings_plugin(policy: &DynamicObject) -> bool {
    policy.data.pointer("/spec/devicePlugin/enabled").and_then(serde_json::Value::as_bool) != Some(false)
}

/// How far the API server's clock is ahead, by the header of an answer.
async fn ahead(client: &Client) -> Option<SignedDuration> {
    let request = http::Request::get("/version").body(Body::empty()).ok()?;
    let answer = client.send(request).await.ok()?;
    let date = answer.headers().get(DATE)?.to_str().ok()?;
    let there = jiff::fmt::rfc2822::parse(date).ok()?.timestamp();
    Some(there.duration_since(now_real()))
}

/// Which kinds of ours are served in the version that this binary reads.
async fn kinds(client: &Client) -> anyhow::Result<BTreeMap<String, bool>> {
    let mut kinds = BTreeMap::new();
    for (_, definition) in crd::all() {
        let spec = definition.spec;
        let Some(version) = spec.versions.iter().find(|version| version.storage) else { continue };
        let served = match client.list_api_group_resources(&format!("{}/{}", spec.group, version.name)).await {
            Ok(list) => list.resources.iter().any(|resource| resource.name == spec.names.plural),
            Err(kube::Error::Api(status)) if status.code == 404 => false,
            Err(error) => return Err(anyhow::Error::new(error).context("ask the API server for its kinds")),
        };
        kinds.insert(format!("{}.{} {}", spec.names.plural, spec.group, version.name), served);
    }
    Ok(kinds)
}

/// The version of the kube-scheduler in a pod, if there is one.
fn scheduler(pod: &Pod) -> Option<Option<Minor>> {
    let containers = &pod.spec.as_ref()?.containers;
    let container = containers.iter().find(|container| container.name == CONTAINER)?;
    Some(container.image.as_deref().and_then(Minor::of_image))
}

/// How a Pod of Muster's gets its AWS identity: EKS puts it into the environment of each container.
///
/// Source: the EKS user guide on Pod Identity and IRSA, "configure pods to use a service account".
fn identity(pod: &Pod) -> Option<(String, PodIdentity)> {
    let containers = &pod.spec.as_ref()?.containers;
    let muster = containers.iter().find(|container| container.name == OWN_CONTAINER)?;
    let has = |name: &str| muster.env.iter().flatten().any(|one| one.name == name);
    let identity = if has("AWS_CONTAINER_CREDENTIALS_FULL_URI") {
        PodIdentity::Agent
    } else if has("AWS_WEB_IDENTITY_TOKEN_FILE") {
        PodIdentity::Token
    } else if has("AWS_ACCESS_KEY_ID") {
        return None;
    } else {
        PodIdentity::Nothing
    };
    Some((pod.name_any(), identity))
}

/// The container of `muster serve`.
const OWN_CONTAINER: &str = "muster";

fn node(node: &Node) -> doctor::Node {
    let labels = node.labels().iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect();
    doctor::Node { name: node.name_any(), ours: node.labels().contains_key(keys::NODEPOOL), labels }
}
