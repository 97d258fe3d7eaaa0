//! Tests of the pure core, one module per subject.

mod fit;
// Marked as test code, so that clippy allows `unwrap` in its helper functions too.
#[cfg(test)]
mod planner;
mod units;
