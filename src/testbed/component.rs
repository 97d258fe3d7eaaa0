//! The processes a cluster consists of.

use std::fmt;

/// A process of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// The store of the API server.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
    /// kwok: plays the kubelets of nodes annotated `kwok.x-k8s.io/node: fake`.
    Kwok,
    /// kube-scheduler; more than one for tests of failover.
    Scheduler(u8),
    /// `muster serve`; more than one for tests of failover.
    Muster(u8),
    /// Kueue's controller manager.
    Kueue,
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Etcd => f.write_str("etcd"),
            Self::ApiServer => f.write_str("kube-apiserver"),
            Self::ControllerManager => f.write_str("kube-controller-manager"),
            Self::Kwok => f.write_str("kwok"),
            Self::Scheduler(number) => write!(f, "kube-scheduler-{number}"),
            Self::Muster(number) => write!(f, "muster-{number}"),
            Self::Kueue => f.write_str("kueue"),
        }
    }
}
