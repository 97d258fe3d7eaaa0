//! Every right of the shipped role, taken away: the start names it and does not hang, unless nothing is there to be read.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::Api;
use kube::api::{Patch, PatchParams};
use muster::config::Config;
use muster::permissions::{Right, Scope, check, optional, permissions};
use muster::testbed::{Identity, apply, eventually};
use muster_api::conventions::Kind;
use serde_json::{Value, json};

use crate::support::{DEADLINE, options, stack};

/// The rules without one verb of one resource.
fn without(rules: &[PolicyRule], group: &str, resource: &str, verb: &str) -> Vec<PolicyRule> {
    let mut left = Vec::new();
    for rule in rules {
        let of = |list: &Option<Vec<String>>, wanted: &str| list.iter().flatten().any(|entry| entry == wanted);
        if !of(&rule.api_groups, group) || !of(&rule.resources, resource) {
            left.push(rule.clone());
            continue;
        }
        // The same rule for everything else, and for this one with the other verbs.
        for of_group in rule.api_groups.iter().flatten() {
            for of_resource in rule.resources.iter().flatten() {
                let mut part = rule.clone();
                part.api_groups = Some(vec![of_group.clone()]);
                part.resources = Some(vec![of_resource.clone()]);
                if of_group == group && of_resource == resource {
                    part.verbs.retain(|entry| entry != verb);
                }
                if !part.verbs.is_empty() {
                    left.push(part);
                }
            }
        }
    }
    left
}

/// Kinds that gangs are read from and that every cluster serves.
const INSTALLED: [Kind; 2] = [Kind::Job, Kind::StatefulSet];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_missing_is_named_at_the_start() {
    let Some(mut options) = options().await else { return };
    // The permissions of a kube-scheduler would hide what is taken away.
    options.without = vec!["rbac-scheduler.yaml"];
    let stack = stack(options, "ml").await;
    stack.kill_muster().unwrap();
    let client = stack.admin().unwrap();
    let cluster_roles: Api<ClusterRole> = Api::all(client.clone());
    let roles: Api<Role> = Api::namespaced(client, "muster-system");
    let (cluster_role, role) = (cluster_roles.get("muster").await.unwrap(), roles.get("muster-leases").await.unwrap());
    let asker = stack.cluster.client(Identity::Muster).unwrap();
    let lease = Config::parse("", "muster.yaml").unwrap().lease;
    let merge = |rules: &Vec<PolicyRule>| -> Value { json!({"rules": rules}) };
    for right in permissions().unwrap() {
        let Right { group, resource, verb, scope } = &right;
        let all = if *scope == Scope::Lease { &role.rules } else { &cluster_role.rules };
        let all = all.as_ref().unwrap();
        let fewer = merge(&without(all, group, resource, verb));
        let params = PatchParams::default();
        match scope {
            Scope::Lease => drop(roles.patch("muster-leases", &params, &Patch::Merge(&fewer)).await.unwrap()),
            Scope::Cluster | Scope::Named(_) => {
                drop(cluster_roles.patch("muster", &params, &Patch::Merge(&fewer)).await.unwrap());
            }
        }
        if optional(&right).is_some_and(|kind| !INSTALLED.contains(&kind)) {
            // The authoriser learns of it by a watch.
            let asker = &asker;
            eventually(DEADLINE, format!("{right} to be gone"), || async move {
                let allowed = apply::is_allowed(asker, verb, group, resource, None, None).await;
                allowed.map(|allowed| (!allowed).then_some(()))
            })
            .await
            .unwrap();
            check(asker, &lease).await.expect("nothing of the kind is there to be read");
            drop(cluster_roles.patch("muster", &params, &Patch::Merge(&merge(all))).await.unwrap());
            continue;
        }
        let right = &right.to_string();
        let named =
            |stated: &str| stated.contains("these permissions are missing: ") && stated.contains(right.as_str());
        // The authoriser learns of it by a watch.
        let (asker, lease, named) = (&asker, &lease, &named);
        eventually(DEADLINE, format!("{right} to be gone"), || async move {
            match check(asker, lease).await {
                Err(error) if named(&error.to_string()) => Ok(Some(())),
                other => Err(format!("{other:?}")),
            }
        })
        .await
        .unwrap();
        let output = tokio::time::timeout(
            DEADLINE,
            tokio::process::Command::new(env!("CARGO_BIN_EXE_muster"))
                .args(["serve", "--config"])
                .arg(stack.config())
                .env("KUBECONFIG", stack.cluster.kubeconfig(Identity::Muster))
                .kill_on_drop(true)
                .output(),
        );
        let output = output.await.unwrap_or_else(|_| panic!("without {right} it hangs")).unwrap();
        let stated = String::from_utf8_lossy(&output.stderr);
        assert!(named(&stated), "without {right}: {stated}");
        let whole = merge(all);
        match scope {
            Scope::Lease => drop(roles.patch("muster-leases", &params, &Patch::Merge(&whole)).await.unwrap()),
            Scope::Cluster | Scope::Named(_) => {
                drop(cluster_roles.patch("muster", &params, &Patch::Merge(&whole)).await.unwrap());
            }
        }
    }
}
