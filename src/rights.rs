//! What `muster serve` may do, asked before it begins: a right that is missing is named at the start, and not found out
//! when a gang needs it.

use futures::StreamExt;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use tracing::warn;

use crate::config::Lease;

/// One rule of `manifests/rbac.yaml`.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// API group.
    pub group: &'static str,
    /// Resource, with its subresource.
    pub resource: &'static str,
    /// Verbs.
    pub verbs: &'static [&'static str],
    /// Where the right is needed.
    pub scope: Scope,
}

/// Where a right is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everywhere.
    Cluster,
    /// For one object.
    Named(&'static str),
    /// In the namespace of the lease.
    Lease,
}

const READ: &[&str] = &["get", "list", "watch"];
const ALL: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];
const WRITE_STATUS: &[&str] = &["update", "patch"];
const MUSTER: &str = "muster.dev";
const AUTOSCALING: &str = "autoscaling.x-k8s.io";

const fn rule(group: &'static str, resource: &'static str, verbs: &'static [&'static str]) -> Rule {
    Rule { group, resource, verbs, scope: Scope::Cluster }
}

/// The rules of the shipped role; a test compares.
pub const RULES: [Rule; 21] = [
    rule("", "nodes", &["get", "list", "watch", "patch", "delete"]),
    rule("", "pods", &["get", "list", "watch", "patch"]),
    rule("", "pods/status", &["patch"]),
    rule("", "pods/binding", &["create"]),
    rule("", "pods/eviction", &["create"]),
    rule("", "podtemplates", READ),
    rule("", "events", &["create", "patch"]),
    rule("events.k8s.io", "events", &["create", "patch"]),
    Rule { group: "", resource: "namespaces", verbs: &["get"], scope: Scope::Named("kube-system") },
    rule("batch", "jobs", READ),
    rule(MUSTER, "nodepools", READ),
    rule(MUSTER, "ec2nodeclasses", READ),
    rule(MUSTER, "nodepools/status", WRITE_STATUS),
    rule(MUSTER, "ec2nodeclasses/status", WRITE_STATUS),
    rule(MUSTER, "gangs", ALL),
    rule(MUSTER, "nodebatches", ALL),
    rule(MUSTER, "gangs/status", WRITE_STATUS),
    rule(MUSTER, "nodebatches/status", WRITE_STATUS),
    rule(AUTOSCALING, "provisioningrequests", READ),
    rule(AUTOSCALING, "provisioningrequests/status", WRITE_STATUS),
    Rule {
        group: "coordination.k8s.io",
        resource: "leases",
        verbs: &["create", "get", "update", "patch"],
        scope: Scope::Lease,
    },
];

/// Rights asked for at once.
const PARALLEL: usize = 16;

/// Fails with every right that is missing, as `verb resource.group`.
pub async fn check(client: &Client, lease: &Lease) -> anyhow::Result<()> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let asked = RULES.iter().flat_map(|rule| rule.verbs.iter().map(move |verb| (rule, *verb)));
    let reviews = &reviews;
    let mut missing: Vec<String> = futures::stream::iter(asked)
        .map(|(rule, verb)| async move {
            match reviews.create(&PostParams::default(), &review(rule, verb, lease)).await {
                Ok(review) if review.status.as_ref().is_some_and(|status| status.allowed) => None,
                Ok(_) => Some(name(rule, verb)),
                Err(error) => {
                    // The call that needs the right will say so.
                    warn!(right = name(rule, verb), %error, "cannot ask for this right");
                    None
                }
            }
        })
        .buffer_unordered(PARALLEL)
        .filter_map(|missing| async move { missing })
        .collect()
        .await;
    missing.sort_unstable();
    anyhow::ensure!(
        missing.is_empty(),
        "these rights are missing: {}; apply manifests/rbac.yaml, and run as the ServiceAccount that it names",
        missing.join(", ")
    );
    Ok(())
}

/// The right in words.
#[must_use]
pub fn name(rule: &Rule, verb: &str) -> String {
    match (rule.group, rule.scope) {
        ("", Scope::Cluster | Scope::Lease) => format!("{verb} {}", rule.resource),
        ("", Scope::Named(name)) => format!("{verb} {}/{name}", rule.resource),
        (group, Scope::Cluster | Scope::Lease) => format!("{verb} {}.{group}", rule.resource),
        (group, Scope::Named(name)) => format!("{verb} {}.{group}/{name}", rule.resource),
    }
}

fn review(rule: &Rule, verb: &str, lease: &Lease) -> SelfSubjectAccessReview {
    let (resource, subresource) = match rule.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (rule.resource, None),
    };
    let (namespace, object) = match rule.scope {
        Scope::Cluster => (None, None),
        Scope::Named(name) => (None, Some(name.to_owned())),
        // The name of an object that is created is not part of its URL.
        Scope::Lease if verb == "create" => (Some(lease.namespace.clone()), None),
        Scope::Lease => (Some(lease.namespace.clone()), Some(lease.name.clone())),
    };
    SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(rule.group.to_owned()),
                resource: Some(resource.to_owned()),
                subresource,
                verb: Some(verb.to_owned()),
                namespace,
                name: object,
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    }
}
