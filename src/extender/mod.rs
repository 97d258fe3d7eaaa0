//! The extender: four verbs over HTTP, answered from the published state; `bind` holds a gang at the barrier.

mod admission;
mod barrier;
mod bind;
mod handlers;
mod posting;
mod shared;
pub mod wire;

pub use admission::Limits;
pub use barrier::{Barrier, BarrierOptions};
pub use handlers::{FilterAnswer, answer_filter, answer_prioritize, router};
pub use shared::{Extender, View};
