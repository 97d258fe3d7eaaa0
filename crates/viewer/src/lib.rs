//! What shows the views of a cluster to somebody: a terminal and a loopback server. No client, no runtime, no AWS.

pub mod bar;
pub mod output;
pub mod server;
pub mod terminal;
pub mod usage;
