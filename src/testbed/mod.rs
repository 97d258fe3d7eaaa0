//! A real control plane on this machine: etcd, kube-apiserver, kube-controller-manager,
//! kube-scheduler and kwok as host processes, for `muster demo` and the end-to-end suite.
//!
//! Nothing here stands in for Kubernetes. The shipped files are what runs: [`apply`] applies
//! everything under `manifests/` unchanged, and kube-scheduler gets
//! `scheduler-config/own-scheduler.yaml` with addresses filled in. kwok plays the kubelets, by the
//! few stages of `stages.yaml`.
//!
//! A cluster is one folder and a handful of process groups. It is ended by SIGKILL, since a
//! graceful shutdown of etcd and kube-apiserver takes up to a minute; a watchdog process ends it
//! also when this process is killed, or when a test keeps the cluster in a `static`, which is
//! never dropped.
//!
//! Tests whose clusters differ in nothing pass etcd and kube-apiserver on to each other: see [`reuse`].
//!
//! A [`kube::Client`] belongs to the tokio runtime it was made in. Tests that share a
//! [`TestCluster`] therefore each ask it for a client of their own.

use std::path::PathBuf;

pub mod apply;
pub mod audit;
pub mod binaries;
pub mod cluster;
pub mod component;
pub mod error;
pub mod identity;
pub mod installer;
pub mod kueue;
pub mod nodes;
pub mod plane;
pub mod pools;
pub mod process;
pub mod request;
pub mod reuse;
pub mod settings;
pub mod stack;
pub mod wait;
pub mod workloads;

pub use binaries::Binaries;
pub use cluster::{ClusterOptions, SchedulerOptions, TestCluster};
pub use component::Component;
pub use error::TestbedError;
pub use identity::Identity;
pub use installer::Installer;
pub use kueue::Kueue;
pub use plane::Installed;
pub use process::Command;
pub use stack::{Stack, StackOptions};
pub use wait::eventually;

/// The checkout: the one cargo runs in, else the one the binary was built from. Two checkouts may share a target folder,
/// and then a binary that is up to date may carry the path of the other.
#[must_use]
pub fn repository() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from)
}
