//! What the fuzz targets run. The bodies are run on the seeds by the ordinary tests too.
//!
//! Two files of the binary are compiled here on their own, so that no cloud SDK is built with a sanitizer.

pub mod bodies;

#[path = "../../src/clock.rs"]
pub mod clock;
#[path = "../../src/config.rs"]
pub mod config;
#[path = "../../src/extender/wire.rs"]
pub mod wire;
