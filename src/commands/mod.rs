//! One file per command of the binary.

pub mod crds;
pub mod demo;
pub mod ec2_sim;
pub mod gc;
pub mod plan;
pub mod serve;
