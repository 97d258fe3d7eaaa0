//! How Muster's Pods get their AWS identity, how nodes get into the cluster, and what spot needs.

use super::facts::{Facts, PodIdentity};
use super::{Check, Finding};
use crate::ec2::{CallError, EksCluster};

/// The DaemonSet that EKS Pod Identity needs. EKS Auto Mode has the same without one.
const AGENT: &str = "eks-pod-identity-agent";
/// The type of an access entry by which EC2 instances join.
const OF_NODES: &str = "EC2_LINUX";

pub(super) fn judge(facts: &Facts, checks: &mut Vec<Finding>) {
    checks.extend(identity(facts));
    let asked = facts.account.as_ref().filter(|account| account.known());
    if let Some(account) = asked {
        checks.extend(account.cluster.as_ref().map(|cluster| mode(cluster.as_ref())));
        if let Some(Ok(cluster)) = &account.cluster {
            for (role, kind) in &account.entries {
                checks.push(entry(cluster, role, kind.as_ref().map(Option::as_deref)));
            }
        }
        checks.extend(facts.pools.iter().filter(|pool| pool.spot).map(|pool| {
            let note = "the first launch on spot of an account needs a role that only IAM shows: aws iam \
                        create-service-linked-role --aws-service-name spot.amazonaws.com makes it, once";
            Finding::skipped(Check::SpotRole, &pool.name, note)
        }));
    }
}

/// The identity is put into a Pod when the Pod is created: what is set up later does not reach it.
fn identity(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::PodIdentity;
    let identities = &facts.cluster.identities;
    let of = |wanted: PodIdentity| identities.iter().find(|(_, identity)| *identity == wanted);
    if facts.configuration.disabled || identities.is_empty() {
        return None;
    }
    if let Some((pod, _)) = of(PodIdentity::Nothing) {
        return Some(Finding::warn(
            CHECK,
            pod,
            "neither Pod Identity nor IRSA has put an identity into it: it has those of its node, or none",
            "aws eks list-pod-identity-associations --cluster-name CLUSTER; if there is one for it, it came later than the Pod: \
             kubectl -n muster-system rollout restart deployment/muster",
        ));
    }
    let daemons = facts.cluster.daemons.as_ref().and_then(|daemons| daemons.as_ref().ok());
    let agent = daemons.is_none_or(|daemons| daemons.iter().any(|daemon| daemon.name == AGENT));
    Some(match of(PodIdentity::Agent) {
        Some((pod, _)) if !agent => Finding::warn(
            CHECK,
            pod,
            format!(
                "it has its identity by Pod Identity, and there is no DaemonSet {AGENT}: it gets no credentials, unless this is EKS Auto Mode"
            ),
            format!("aws eks create-addon --cluster-name CLUSTER --addon-name {AGENT}"),
        ),
        Some(_) => Finding::ok(CHECK, "", "Muster's Pods get their identity by Pod Identity"),
        None => Finding::ok(CHECK, "", "Muster's Pods get their identity by IRSA"),
    })
}

/// How the cluster knows who asks.
fn mode(cluster: Result<&EksCluster, &CallError>) -> Finding {
    const CHECK: Check = Check::Authentication;
    let cluster = match cluster {
        Err(error) => return Finding::skipped(CHECK, "", format!("EKS does not say how nodes join: {error}")),
        Ok(cluster) => cluster,
    };
    let name = &cluster.access.name;
    let mode = cluster.authentication.as_deref().unwrap_or("not known");
    if cluster.takes_entries() {
        return Finding::ok(CHECK, name, format!("the mode is {mode}"));
    }
    Finding::warn(
        CHECK,
        name,
        "the mode is CONFIG_MAP: nodes join only if the ConfigMap kube-system/aws-auth maps their role",
        format!(
            "aws eks update-cluster-config --name {name} --access-config authenticationMode=API_AND_CONFIG_MAP, and deploy \
             cloudformation/muster.yaml again"
        ),
    )
}

/// The access entry of a role that nodes get.
fn entry(cluster: &EksCluster, role: &str, kind: Result<Option<&str>, &CallError>) -> Finding {
    const CHECK: Check = Check::Authentication;
    let arn = cluster.role(role).unwrap_or_else(|| "ROLE".to_owned());
    let entry = format!("--cluster-name {} --principal-arn {arn}", cluster.access.name);
    let create = format!("aws eks create-access-entry {entry} --type {OF_NODES}");
    match kind {
        Ok(Some(OF_NODES)) => Finding::ok(CHECK, role, "its nodes join by an access entry"),
        Ok(Some(other)) => Finding::fail(
            CHECK,
            role,
            format!("its access entry has the type {other}, by which no node joins"),
            format!("aws eks delete-access-entry {entry} && {create}"),
        ),
        // The other way may be taken, which cannot be seen from here.
        Ok(None) if cluster.authentication.as_deref() != Some("API") => Finding::warn(
            CHECK,
            role,
            "the role has no access entry: its nodes join only if the ConfigMap kube-system/aws-auth maps it",
            create,
        ),
        Ok(None) => Finding::fail(CHECK, role, "the role has no access entry: its nodes cannot join", create),
        Err(error) => Finding::skipped(CHECK, role, format!("EKS does not say whether its nodes join: {error}")),
    }
}
