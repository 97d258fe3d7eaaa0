//! The planner: against exhaustive enumeration, against integer programs, and by scenario.

mod build;
mod change;
mod hostile;
mod linear;
mod mip;
mod mutants;
mod oracle;
mod pair;
mod random;
mod refusals;
mod scenarios;
mod tree;
