//! Tests of the pure core, one module per subject.

// Marked as test code, so that clippy allows `unwrap` in helper functions too.
mod barrier;
#[cfg(test)]
mod batch;
#[cfg(test)]
mod books;
#[cfg(test)]
mod collect;
#[cfg(test)]
mod extender;
mod fit;
#[cfg(test)]
mod gang;
#[cfg(test)]
mod ordinary;
#[cfg(test)]
mod packing;
#[cfg(test)]
mod planner;
#[cfg(test)]
mod snapshot;
mod units;
#[cfg(test)]
mod world;
