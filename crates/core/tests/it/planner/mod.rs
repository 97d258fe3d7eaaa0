//! The planner: against exhaustive enumeration, and by scenario.

mod build;
mod change;
mod memory;
mod oracle;
mod pair;
mod random;
mod scenarios;
mod tree;
