//! What the fuzz targets run. The bodies are run on the seeds by the ordinary tests too.
//!
//! One file of the binary and one of `muster-ec2` are compiled here on their own, so that no cloud SDK is built with a
//! sanitizer.

pub mod bodies;

#[path = "../../crates/ec2/src/events.rs"]
pub mod message;

#[path = "../../src/extender/wire.rs"]
pub mod wire;
