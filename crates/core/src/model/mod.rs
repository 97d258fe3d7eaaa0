//! What there is: pods, nodes, gangs and the snapshot that holds them, with the units and names they are stated in.

pub mod attached;
pub mod batch;
pub mod booking;
pub(crate) mod class;
pub mod code;
pub(crate) mod digest;
pub mod event;
pub mod gang;
pub mod launch;
pub mod moment;
pub mod money;
pub mod names;
pub mod node;
pub mod notice;
pub mod pairs;
pub(crate) mod pauses;
pub mod pod;
pub mod pods;
pub mod ranks;
pub mod resources;
pub mod snapshot;
pub mod tags;
pub mod taint;
pub mod units;
pub mod words;
pub(crate) mod written;
