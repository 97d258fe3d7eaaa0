//! The extender: four verbs over HTTP, answered from the published state; `bind` holds a gang at the barrier.

mod admission;
mod barrier;
mod bind;
mod handlers;
mod posting;
pub mod wire;

pub use admission::Limits;
pub use barrier::{Barrier, BarrierOptions};
pub use handlers::{Extender, FilterAnswer, View, answer_filter, answer_prioritize, router};
