//! One file per command of the binary.

pub mod check_config;
pub mod crds;
pub mod demo;
pub mod ec2_sim;
pub mod plan;
pub mod serve;
pub mod uninstall;
