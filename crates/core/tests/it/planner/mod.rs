//! The planner: against exhaustive enumeration, against integer programs, and by scenario.

mod apart;
mod build;
mod change;
#[path = "../../../examples/planner/cluster.rs"]
mod cluster;
mod hostile;
mod linear;
mod memory;
mod mip;
mod mix;
mod mutants;
mod oracle;
mod pair;
mod random;
mod refusals;
mod scenarios;
mod tree;
mod work;
