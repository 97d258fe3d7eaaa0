//! NodeBatches: what is decided about them in core is asked for and carried out here, and nothing is decided.

pub(super) mod collect;
mod effects;
pub(super) mod fleets;
pub(super) mod interruption;
mod ladders;
pub(super) mod pods;
pub(super) mod ranking;
mod supply;
pub(super) mod worker;
