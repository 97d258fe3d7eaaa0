//! Devices that a DaemonSet brings to nodes, and whether it could run on those of a pool.
//!
//! A node whose device plugin never runs costs as much as any other, and no member ever uses it. Only positive evidence keeps
//! nodes from being launched: a DaemonSet that brings the device is there, and every one of them refuses the taints of the
//! pool. A DaemonSet that is missing, or whose selector does not match, may yet come or match a label that comes later, and an
//! image may bring the device by itself.

use std::fmt;

use crate::ec2::Family;
use crate::fit::tolerated;
use crate::model::node::{Taint, TaintEffect};
use crate::model::pod::Shape;
use crate::offering::{EFA, NEURON, NVIDIA_GPU};

/// What a DaemonSet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// It brings `nvidia.com/gpu`.
    Nvidia,
    /// It brings `aws.amazon.com/neuron`.
    Neuron,
    /// It brings `vpc.amazonaws.com/efa`.
    Efa,
    /// It is the pod network.
    Network,
    /// It makes Services work.
    KubeProxy,
}

impl Role {
    /// The resource that it brings to a node, if it is a device.
    #[must_use]
    pub fn device(self) -> Option<&'static str> {
        match self {
            Self::Nvidia => Some(NVIDIA_GPU),
            Self::Neuron => Some(NEURON),
            Self::Efa => Some(EFA),
            Self::Network | Self::KubeProxy => None,
        }
    }
}

/// A DaemonSet.
#[derive(Clone, Debug, PartialEq)]
pub struct Daemon {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// What it is for, where that is known.
    pub role: Option<Role>,
    /// Whether it is the VPC network, and gives each node prefixes of addresses.
    pub prefixes: bool,
    /// What its pods ask for.
    pub shape: Shape,
}

impl Daemon {
    /// Namespace and name.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// What a DaemonSet is for, by its name and the images of its containers; `None` for others.
#[must_use]
pub fn role(name: &str, images: &[&str]) -> Option<Role> {
    // Registries are mirrored, so it is the image's own name that counts.
    let of_image =
        |image: &&str| image.rsplit('/').next().and_then(|last| last.split([':', '@']).next()).map(str::to_owned);
    let mut names: Vec<String> = images.iter().filter_map(of_image).collect();
    names.push(name.to_owned());
    let any = |words: &[&str]| names.iter().any(|name| words.iter().any(|word| name.contains(word)));
    if any(&["efa-k8s-device-plugin"]) {
        Some(Role::Efa)
    } else if any(&["neuron-device-plugin"]) {
        Some(Role::Neuron)
    } else if any(&["nvidia-device-plugin"])
        || (any(&["k8s-device-plugin"]) && images.iter().any(|image| image.contains("nvidia")))
    {
        Some(Role::Nvidia)
    } else if any(&["kube-proxy"]) {
        Some(Role::KubeProxy)
    } else if any(&["aws-node", "amazon-k8s-cni", "cilium", "calico-node", "antrea-agent", "kube-flannel"])
        && !any(&["cilium-envoy"])
    {
        Some(Role::Network)
    } else {
        None
    }
}

/// A device that would never come up on the nodes of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// `nvidia.com/gpu`.
    pub resource: &'static str,
    /// The DaemonSet that brings it elsewhere, namespace and name.
    pub daemon: String,
    /// The pool's taint that it does not tolerate.
    pub taint: Taint,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, daemon, taint } = self;
        let effect = match taint.effect {
            TaintEffect::NoSchedule => "NoSchedule",
            TaintEffect::PreferNoSchedule => "PreferNoSchedule",
            TaintEffect::NoExecute => "NoExecute",
        };
        write!(
            f,
            "DaemonSet {daemon} brings {resource} and does not tolerate {taint}; add the toleration {{key: {}, operator: \
             Exists, effect: {effect}}} to it, or take the taint off the pool",
            taint.key
        )
    }
}

/// The devices that would never come up on nodes with these taints, in order of resource. Muster's own taint and cordon are
/// not asked for: the taint is gone before a plugin is awaited, and every DaemonSet tolerates a cordon.
#[must_use]
pub fn blocked(taints: &[Taint], family: Family, daemons: &[Daemon]) -> Vec<Blocked> {
    let mut found = Vec::new();
    for role in [Role::Neuron, Role::Nvidia, Role::Efa] {
        let by_itself = match (family, role) {
            // What an image of one's own brings is not known; Bottlerocket's NVIDIA variants run the plugin themselves.
            (Family::Custom, _) | (Family::Bottlerocket, Role::Nvidia) => true,
            (Family::Al2023 | Family::Bottlerocket, _) => false,
        };
        let Some(resource) = role.device().filter(|_| !by_itself) else { continue };
        let mut first = None;
        let mut runs = false;
        for daemon in daemons.iter().filter(|daemon| daemon.role == Some(role)) {
            match taints.iter().find(|taint| !tolerated(taint, &daemon.shape.tolerations)) {
                None => runs = true,
                Some(taint) => {
                    first = first.or(Some(Blocked { resource, daemon: daemon.full_name(), taint: taint.clone() }));
                }
            }
        }
        found.extend(first.filter(|_| !runs));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pod::Toleration;

    fn taint(key: &str, value: &str) -> Taint {
        Taint { key: key.into(), value: value.into(), effect: TaintEffect::NoSchedule }
    }

    fn exists(key: &str) -> Toleration {
        Toleration { key: key.into(), exists: true, value: "".into(), effect: None }
    }

    fn daemon(name: &str, tolerated: &[&str]) -> Daemon {
        let shape = Shape { tolerations: tolerated.iter().map(|key| exists(key)).collect(), ..Shape::default() };
        let (namespace, role) = ("kube-system".to_owned(), role(name, &[]));
        Daemon { namespace, name: name.to_owned(), role, prefixes: false, shape }
    }

    fn resources(taints: &[Taint], family: Family, daemons: &[Daemon]) -> Vec<&'static str> {
        blocked(taints, family, daemons).into_iter().map(|one| one.resource).collect()
    }

    #[test]
    fn a_plugin_that_refuses_a_taint_of_the_pool_blocks_its_device_and_is_named_with_the_toleration() {
        let team = [taint("team", "ml")];
        let daemons = [daemon("nvidia-device-plugin", &["nvidia.com/gpu"]), daemon("kube-proxy", &[])];
        let found = blocked(&team, Family::Al2023, &daemons);
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].to_string(),
            "DaemonSet kube-system/nvidia-device-plugin brings nvidia.com/gpu and does not tolerate team=ml:NoSchedule; add \
             the toleration {key: team, operator: Exists, effect: NoSchedule} to it, or take the taint off the pool"
        );
        let all = ["nvidia-device-plugin", "neuron-device-plugin", "aws-efa-k8s-device-plugin"];
        let all = all.map(|name| daemon(name, &["nvidia.com/gpu"]));
        assert_eq!(resources(&team, Family::Al2023, &all), [NEURON, NVIDIA_GPU, EFA]);
    }

    #[test]
    fn what_is_no_evidence_blocks_nothing() {
        let gpu = [taint("nvidia.com/gpu", "present")];
        let plugin = || daemon("nvidia-device-plugin", &["nvidia.com/gpu"]);
        let refusing = || daemon("nvidia-device-plugin-for-others", &[]);
        assert!(resources(&gpu, Family::Al2023, &[plugin()]).is_empty(), "tolerated");
        assert!(resources(&gpu, Family::Al2023, &[]).is_empty(), "no plugin is known");
        assert!(resources(&gpu, Family::Al2023, &[refusing(), plugin()]).is_empty(), "one of two runs");
        assert!(resources(&[], Family::Al2023, &[refusing()]).is_empty(), "no taint");
        let soft = [Taint { effect: TaintEffect::PreferNoSchedule, ..taint("team", "ml") }];
        assert!(resources(&soft, Family::Al2023, &[refusing()]).is_empty(), "a taint that keeps nobody away");
        assert!(resources(&gpu, Family::Bottlerocket, &[refusing()]).is_empty(), "the image brings it");
        assert!(resources(&gpu, Family::Custom, &[refusing()]).is_empty(), "the image may bring it");
        let everywhere = daemon("nvidia-device-plugin", &[""]);
        assert!(resources(&gpu, Family::Al2023, &[everywhere]).is_empty(), "everything is tolerated");
    }

    #[test]
    fn bottlerocket_brings_no_plugin_but_that_of_nvidia() {
        let team = [taint("team", "ml")];
        let daemons = [daemon("neuron-device-plugin", &[]), daemon("nvidia-device-plugin", &[])];
        assert_eq!(resources(&team, Family::Bottlerocket, &daemons), [NEURON]);
    }
}
