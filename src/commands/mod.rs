//! One file per command of the binary.

pub mod check_config;
pub mod cluster;
pub mod completion;
pub mod crds;
mod definitions;
pub mod demo;
pub mod doctor;
pub mod ec2_sim;
pub mod explain;
mod flags;
pub mod gc;
pub mod gc_account;
pub mod iam;
mod kubeconfig;
mod live;
pub mod plan;
mod reach;
pub mod record;
mod scheduler_version;
pub mod serve;
pub mod top;
pub mod ui;
pub mod uninstall;
pub mod version;

/// An argument, or a file that an argument names, that cannot be used: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unusable(pub String);
