//! The pure part of Muster: what is known, what is wanted, and what follows from both.
//!
//! **Architecture invariant**: nothing here awaits, listens, logs, reads a clock or draws entropy. Time and seed are
//! arguments; a decision is a value. The tidy test keeps this crate's dependencies on an allow-list.

pub mod booking;
pub mod check;
pub mod cloud;
pub mod cycle;
pub mod extender;
pub mod fit;
pub mod gang;
pub mod names;
pub mod node;
pub mod plan;
pub mod planner;
pub mod pod;
pub mod ranks;
pub mod reason;
pub mod resources;
pub mod snapshot;
pub mod topology;
pub mod units;
