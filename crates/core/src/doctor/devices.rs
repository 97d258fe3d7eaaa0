//! DaemonSets that must run on the nodes of a pool before its gangs can.

use super::facts::{Answer, Daemon, Facts, Pool, Role};
use super::{Check, Finding};
use crate::ec2::Family;
use crate::fit::{self, Misfit};
use crate::model::node::Node;
use crate::model::pod::Toleration;
use crate::offering::{EFA, NEURON, NVIDIA_GPU};

/// Judges the DaemonSets against a node of each pool.
pub(super) fn judge(facts: &Facts, checks: &mut Vec<Finding>) {
    let daemons = match &facts.cluster.daemons {
        None => return,
        Some(Err(why)) => {
            return checks.push(Finding::warn(
                Check::Devices,
                "",
                format!("DaemonSets cannot be listed: {why}"),
                "kubectl apply -f manifests/rbac.yaml",
            ));
        }
        Some(Ok(daemons)) => daemons,
    };
    for (check, role, what, mend) in [
        (
            Check::Network,
            Role::Network,
            "pod network",
            "aws eks create-addon --cluster-name CLUSTER --addon-name vpc-cni, unless another one runs",
        ),
        (
            Check::KubeProxy,
            Role::KubeProxy,
            "kube-proxy",
            "aws eks create-addon --cluster-name CLUSTER --addon-name kube-proxy, unless the pod network replaces it",
        ),
    ] {
        let found: Vec<&Daemon> = daemons.iter().filter(|daemon| daemon.role == Some(role)).collect();
        let Some(first) = found.first() else {
            checks.push(Finding::warn(check, "", format!("no DaemonSet is known to be the {what}"), mend));
            continue;
        };
        let misfit = facts.pools.iter().find_map(|pool| {
            let node = pool.nodes.first()?;
            refused(pool, node, &found)
        });
        checks.push(misfit.map_or_else(
            || Finding::ok(check, &first.full_name(), "runs on the nodes of every pool"),
            |(daemon, message, mend)| Finding::fail(check, &daemon, message, mend),
        ));
    }
    for pool in &facts.pools {
        devices(pool, daemons, facts.cluster.gpu_operator.as_ref(), checks);
    }
}

fn devices(pool: &Pool, daemons: &[Daemon], gpu_operator: Option<&Answer<bool>>, checks: &mut Vec<Finding>) {
    const CHECK: Check = Check::Devices;
    for (role, resource) in [(Role::Nvidia, NVIDIA_GPU), (Role::Neuron, NEURON), (Role::Efa, EFA)] {
        let Some(node) = pool.nodes.iter().find(|node| node.allocatable.get(resource) > 0) else { continue };
        let found: Vec<&Daemon> = daemons.iter().filter(|daemon| daemon.role == Some(role)).collect();
        let name = &pool.name;
        if found.is_empty() {
            checks.push(match (role, pool.family) {
                (Role::Nvidia, Family::Bottlerocket) => {
                    Finding::ok(CHECK, name, format!("the image itself brings {resource}"))
                }
                (Role::Nvidia, _) if gpu_operator == Some(&Ok(true)) => of_operator(name, node),
                (Role::Nvidia, _) if matches!(gpu_operator, Some(Err(_))) => Finding::warn(
                    CHECK,
                    name,
                    format!("no DaemonSet brings {resource}, and whether the NVIDIA GPU operator will (kubectl get clusterpolicies.nvidia.com) cannot be asked"),
                    install(role),
                ),
                (Role::Nvidia | Role::Neuron, Family::Al2023 | Family::Custom | Family::Bottlerocket) => Finding::fail(
                    CHECK,
                    name,
                    format!("no DaemonSet brings {resource}: its nodes would be launched and never be used"),
                    install(role),
                ),
                (Role::Efa | Role::Network | Role::KubeProxy, _) => Finding::warn(
                    CHECK,
                    name,
                    format!("no DaemonSet brings {resource}: pods that request it would wait"),
                    install(role),
                ),
            });
            continue;
        }
        checks.push(match refused(pool, node, &found) {
            None => Finding::ok(CHECK, name, format!("{} brings {resource}", found[0].full_name())),
            Some((daemon, message, mend)) => Finding::fail(CHECK, name, format!("{daemon} {message}"), mend),
        });
    }
}

/// The operator makes its DaemonSets once it sees a GPU node; what they tolerate is known by its default alone.
fn of_operator(name: &str, node: &Node) -> Finding {
    let by_default = [Toleration { key: NVIDIA_GPU.into(), exists: true, value: "".into(), effect: None }];
    let other = node.taints.iter().find(|taint| !fit::tolerated(taint, &by_default));
    match other {
        None => Finding::ok(
            Check::Devices,
            name,
            format!("the NVIDIA GPU operator brings {NVIDIA_GPU}: its DaemonSets come with the first GPU node"),
        ),
        Some(taint) => Finding::warn(
            Check::Devices,
            name,
            format!("DaemonSets of the NVIDIA GPU operator come with the first GPU node, and may not tolerate {taint}"),
            "name the toleration in spec.daemonsets.tolerations of the ClusterPolicy",
        ),
    }
}

fn install(role: Role) -> &'static str {
    match role {
        Role::Nvidia => {
            "helm upgrade --install nvdp nvidia-device-plugin --repo https://nvidia.github.io/k8s-device-plugin \
             --namespace kube-system"
        }
        Role::Neuron => {
            "helm upgrade --install neuron oci://public.ecr.aws/neuron/neuron-helm-chart --namespace kube-system"
        }
        Role::Efa => {
            "helm upgrade --install efa aws-efa-k8s-device-plugin --repo https://aws.github.io/eks-charts \
             --namespace kube-system"
        }
        Role::Network | Role::KubeProxy => "aws eks create-addon",
    }
}

/// The DaemonSet that does not tolerate the pool's nodes, with what to add to it; `None` if one of them runs there. A selector
/// that does not match is no evidence: what it asks for may be a label that comes later.
fn refused(pool: &Pool, node: &Node, daemons: &[&Daemon]) -> Option<(String, String, String)> {
    let mut intolerant = None;
    for daemon in daemons {
        match fit::accepts(&daemon.shape, node) {
            Err(Misfit::Taint { taint }) => {
                let key = taint.split(['=', ':']).next().unwrap_or(&taint).to_owned();
                let Daemon { namespace, name, .. } = daemon;
                let patch = format!(
                    "kubectl -n {namespace} patch daemonset {name} --type=json -p \
                     '[{{\"op\":\"add\",\"path\":\"/spec/template/spec/tolerations/-\",\"value\":{{\"key\":\"{key}\",\
                     \"operator\":\"Exists\"}}}}]'"
                );
                let message = format!("does not tolerate {taint} of NodePool {}", pool.name);
                intolerant = intolerant.or(Some((daemon.full_name(), message, patch)));
            }
            Ok(()) | Err(_) => return None,
        }
    }
    intolerant
}
