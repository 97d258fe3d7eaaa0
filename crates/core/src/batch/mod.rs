//! NodeBatches: what an answer of EC2 means, when nodes count as joined, what is left over and what it cost.

pub(crate) mod attempts;
pub(crate) mod backoff;
pub(crate) mod collect;
pub(crate) mod join;
pub(crate) mod judge;
pub(crate) mod located;
pub(crate) mod money;

pub use attempts::{AttemptKind, PastAttempt, kept, untried};
pub use backoff::pause;
pub use collect::{
    Account, Collection, Findings, HeldCost, KnownBatch, KnownInstance, KnownNode, SweepRound, collect, held_cost,
    next_round, sweep_round,
};
pub use join::{JoinCause, JoinRules, JoinStage, JoinVerdict, Joiner, describe_failures, judge_join, replacements};
pub use judge::{Confirm, Verdict, Why, judge};
pub use located::{Located, located};
pub use money::{StrandedCause, cost, cost_between, dollars, micros, strands};
