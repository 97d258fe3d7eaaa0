//! NodeBatches: one pure pass decides about all of them, from the topology request to launch until the last node is gone.
//!
//! [`pass`] reads a [`World`] and answers with one [`Decision`] per batch; the worker in `src/batch` carries them out and
//! has no choices left. What an answer of EC2 means is judged in `judge`, when nodes count as joined in `join`, what is
//! left over in `collect`.

mod attempts;
pub(crate) mod backoff;
pub(crate) mod bill;
pub(crate) mod books;
mod candidates;
mod case;
pub(crate) mod claim;
pub(crate) mod collect;
mod counted;
pub(crate) mod decision;
mod devices;
mod emptying;
mod events;
#[cfg(test)]
pub(crate) mod fixtures;
mod held;
mod hold;
pub(crate) mod join;
mod joining;
pub(crate) mod judge;
mod launch;
pub(crate) mod located;
mod losses;
mod occupants;
mod owner;
mod partial;
mod parting;
mod pass;
mod pending;
mod probe;
mod progress;
mod recording;
mod repair;
mod rollback;
mod settle;
mod shown;
mod standing;
mod teardown;
mod unshown;
mod witness;

pub use crate::model::money::{StrandedCause, cost, cost_between, dollars, micros};
pub use backoff::pause;
pub use bill::{shares, strands};
pub use books::{Booking, Books, LAG, OTHER, Payer, ROWS, SHARED, Spent, book, spent_so_far};
pub use claim::{PerNode, claim, one_of, reserves};
pub use collect::{
    Account, Collection, Findings, KnownBatch, KnownInstance, KnownNode, SweepRound, collect, next_round, sweep_round,
};
pub use decision::{
    BatchEvent, Before, Change, Converge, Decision, Done, Failure, JoinClocks, Keys, LastLooks, Look, Made, Memory,
    Note, OwnerLook, Probe, Probes, Refused, Report, Requeue, Scratch, Settings, Sight, Supply, WantedLevels, Working,
    World,
};
pub use events::gone;
pub use held::{HeldCost, held_cost};
pub use join::{JoinCause, JoinRules, JoinStage, JoinVerdict, Joiner, describe_failures, judge_join, replacements};
pub use judge::{Confirm, Verdict, Why, judge};
pub use located::{Located, located};
pub use losses::{Maintenance, heeds_notices, of_subject, rescheduled, to_look_at};
pub use pass::{assume, pass};
pub use recording::{DecidedBatches, RecordedBatches, recorded_pass};
pub use settle::Remains;
pub use unshown::{Begun, Unshown};
pub use witness::{Kept, witness};
