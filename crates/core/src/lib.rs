//! The pure part of Muster: what is known, what is wanted, and what follows from both.
//!
//! **Architecture invariant**: nothing here awaits, listens, logs, reads a clock or draws entropy. Time and seed are
//! arguments; a decision is a value. The tidy test keeps this crate's dependencies on an allow-list.

pub mod batch;
pub mod devices;
pub mod doctor;
pub mod ec2;
pub mod extender;
pub mod fit;
pub mod gang;
pub mod model;
pub mod offering;
pub mod ordinary;
pub mod packing;
pub mod planner;
pub mod reason;
pub mod skew;
pub mod topology;
