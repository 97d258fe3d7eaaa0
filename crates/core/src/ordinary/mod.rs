//! Nodes for pods of no gang, decided: which pods wait, what is on its way for them, and what is launched for the others.
//!
//! [`plan`] is a pure function of one published state. What it answers are NodeBatches of one offer each; their life is decided in
//! `batch`. A pod that a batch under way was made for is never planned again while that batch may still bring its node.

mod announced;
pub mod awaiting;
mod choice;
mod class;
mod crowd;
mod disputes;
mod fruitless;
mod ground;
mod joining;
mod purchases;
mod refused;
mod round;
mod unseen;
mod waiting;
mod window;

pub use announced::Announced;
pub use class::{constraints_digest, digest};
pub use crowd::Crowd;
pub use disputes::{Disputes, Placed};
pub use fruitless::Fruitless;
pub use joining::Offered;
pub use purchases::{InVain, Purchases, Seen};
pub use refused::{Generations, OfPool, Purchase, Refused, SchedulerRefusals, Times};
pub use round::{
    Cause, FOREIGN_MEMBER, Launch, Outcome, Refusal, Round, any_rather_keeps_off, is_accelerated, is_waiting, plan,
};
pub use unseen::Unseen;
pub use waiting::Waiting;
pub use window::Window;
