//! The gang loop: the lease holder decides on every change of the state and carries the actions out.

mod cost;
mod events;
mod executor;
mod hands;
mod looping;
mod notice;
mod patch;
mod recorder;
mod release;
mod seen;
mod share;

pub use events::Events;
pub use executor::Executor;
pub use hands::ExecutorOptions;
pub use looping::{GangLoop, Inputs, PoolSource};
pub(crate) use patch::post_eviction;
pub use recorder::Recorder;
