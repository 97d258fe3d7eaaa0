//! The planner: against exhaustive enumeration, against integer programs, and by scenario.

mod build;
mod change;
mod linear;
mod memory;
mod mip;
mod mutants;
mod oracle;
mod pair;
mod random;
mod scenarios;
mod tree;
