//! The shell of Muster: everything that awaits, listens, reads clocks or talks. It never decides: decisions are calls
//! into `muster-core`.

pub mod cli;
pub mod client;
pub mod clock;
pub mod cloud;
pub mod cluster;
pub mod commands;
pub mod config;
pub mod extender;
pub mod fake_kubelet;
pub mod gang;
pub mod http;
pub mod lease;
pub mod permissions;
pub mod progress;
pub mod provisioner;
pub mod server;
pub mod step;
pub mod telemetry;
pub mod term;
pub mod testbed;
