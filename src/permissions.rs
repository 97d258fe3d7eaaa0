//! What `muster serve` may do, asked before it begins: a right that is missing is named at the start, and not found out
//! when a gang needs it.

use std::fmt;

use anyhow::Context as _;
use futures::StreamExt;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use muster_api::conventions::Kind;
use serde_json::Value;
use tracing::warn;

use crate::cluster::is_served;
use crate::config::Lease;

/// The shipped roles: what is asked for is what they give.
const SHIPPED: &str = include_str!("../manifests/rbac.yaml");

/// One verb of one resource in `manifests/rbac.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// API group.
    pub group: String,
    /// Resource, with its subresource.
    pub resource: String,
    /// Verb.
    pub verb: String,
    /// Where the right is needed.
    pub scope: Scope,
}

/// Where a right is needed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Everywhere.
    Cluster,
    /// For one object.
    Named(String),
    /// In the namespace of the lease.
    Lease,
}

/// The permissions that the shipped roles give, in their order.
///
/// Errors: the file in this binary cannot be read, which a test excludes.
pub fn permissions() -> anyhow::Result<Vec<Right>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(SHIPPED).context("read the shipped roles")?;
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut permissions = Vec::new();
    for document in &documents {
        let lease = document["kind"] == "Role";
        for rule in document["rules"].as_array().into_iter().flatten() {
            let scope = match texts(&rule["resourceNames"]).into_iter().next() {
                _ if lease => Scope::Lease,
                Some(name) => Scope::Named(name),
                None => Scope::Cluster,
            };
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    permissions.extend(texts(&rule["verbs"]).into_iter().map(|verb| Right {
                        group: group.clone(),
                        resource: resource.clone(),
                        verb,
                        scope: scope.clone(),
                    }));
                }
            }
        }
    }
    Ok(permissions)
}

/// Permissions asked for at once.
const PARALLEL: usize = 16;

/// Permissions that the one who asks lacks, as `verb resource.group`, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Needed.
    pub needed: Vec<String>,
    /// For kinds that gangs are read from and that the cluster does not serve.
    pub spared: Vec<String>,
}

/// Fails with every right that is missing, as `verb resource.group`; one to a kind that gangs are read from and that the
/// cluster does not serve is only named.
pub async fn check(client: &Client, lease: &Lease) -> anyhow::Result<()> {
    let Missing { needed, spared } = missing(client, lease).await?;
    if !spared.is_empty() {
        let permissions = spared.join(", ");
        warn!(permissions, "not granted, and the cluster does not serve these kinds: needed before they are installed");
    }
    anyhow::ensure!(
        needed.is_empty(),
        "these permissions are missing: {}; apply manifests/rbac.yaml, and run as the ServiceAccount that it names",
        needed.join(", ")
    );
    Ok(())
}

/// Asks for every right of the shipped roles. One that cannot be asked for counts as granted: the call that needs it will
/// say so.
///
/// Errors: those of [`permissions`].
pub async fn missing(client: &Client, lease: &Lease) -> anyhow::Result<Missing> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let reviews = &reviews;
    let missing: Vec<Right> = futures::stream::iter(permissions()?)
        .map(|right| async move {
            match reviews.create(&PostParams::default(), &review(&right, lease)).await {
                Ok(review) if review.status.as_ref().is_some_and(|status| status.allowed) => None,
                Ok(_) => Some(right),
                Err(error) => {
                    warn!(%right, %error, "cannot ask for this right");
                    None
                }
            }
        })
        .buffer_unordered(PARALLEL)
        .filter_map(|missing| async move { missing })
        .collect()
        .await;
    let mut all = Missing::default();
    for right in missing {
        let spare = match optional(&right) {
            Some(kind) => !is_served(client, kind).await,
            None => false,
        };
        if spare { &mut all.spared } else { &mut all.needed }.push(right.to_string());
    }
    all.needed.sort_unstable();
    all.spared.sort_unstable();
    Ok(all)
}

/// The kind of somebody else's that gangs are read from and that the right is for: a cluster need not have it.
#[must_use]
pub fn optional(right: &Right) -> Option<Kind> {
    let ours = |kind: &Kind| kind.served().group == right.group && kind.served().plural == right.resource;
    Kind::ALL.into_iter().filter(|kind| !matches!(kind, Kind::Job | Kind::StatefulSet)).find(ours)
}

/// `verb resource.group`, as in `kubectl auth can-i`.
impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        match &self.scope {
            Scope::Named(name) => write!(f, "/{name}"),
            Scope::Cluster | Scope::Lease => Ok(()),
        }
    }
}

fn review(right: &Right, lease: &Lease) -> SelfSubjectAccessReview {
    let (resource, subresource) = match right.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (right.resource.as_str(), None),
    };
    let (namespace, object) = match &right.scope {
        Scope::Cluster => (None, None),
        Scope::Named(name) => (None, Some(name.clone())),
        // The name of an object that is created is not part of its URL.
        Scope::Lease if right.verb == "create" => (Some(lease.namespace.clone()), None),
        Scope::Lease => (Some(lease.namespace.clone()), Some(lease.name.clone())),
    };
    SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(right.group.clone()),
                resource: Some(resource.to_owned()),
                subresource,
                verb: Some(right.verb.clone()),
                namespace,
                name: object,
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    }
}
