//! What people see of a cluster: one model, and what shows it. Page, terminal and JSON say nothing of their own.
//!
//! **Architecture invariant**: no client, no runtime, no clock, no terminal, no socket. An overview is a function of a dump
//! and options, and everything shown is a function of the overview.

pub mod assets;
pub mod fits;
pub mod overview;
pub mod page;
pub mod palette;
pub mod plain;
pub mod rows;
pub mod schema;
pub mod screen;
pub mod web;
pub mod would;

mod build;

pub use build::{ViewError, Work, counted, of_dump, of_texts};
pub use overview::Overview;
