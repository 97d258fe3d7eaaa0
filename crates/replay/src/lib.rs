//! Muster without a cluster: a dump is read, planned offline, and the outcome published as a versioned document.
//!
//! **Architecture invariant**: no client, no runtime, no clock. A dump and the options give the same bytes every time,
//! and what plans is the planner of the server, not a second one.

pub mod catalogue;
pub mod command;
pub mod decision;
pub mod document;
pub mod dump;
pub mod explain;
pub mod inventory;
pub mod kinds;
pub mod passes;
pub mod plan;
pub mod record;
pub mod study;
pub mod table;
pub mod wide;

mod cluster;
mod coming;
mod gangs;
mod offers;
mod options;
mod pools;
mod reasons;
mod remedy;
mod supply;
mod topology;
