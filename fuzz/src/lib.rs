//! What the fuzz targets run. The bodies are run on the seeds by the ordinary tests too.
//!
//! One file of the binary is compiled here on its own, so that no cloud SDK is built with a sanitizer.

pub mod bodies;

#[path = "../../src/extender/wire.rs"]
pub mod wire;
