//! Tests of the crate, one binary.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise, helpers included")]

mod agreement;
mod contract;
mod decisions;
mod dumps;
mod examiner;
mod explain;
mod fixed_point;
mod flags;
mod hostile;
mod judge;
mod leaving;
mod mixes;
mod nearest;
mod offered;
mod on_the_way;
mod ordinary;
mod passes;
mod regions;
mod remedies;
mod scene;
mod schema;
mod spelling;
mod strict;
mod supplied;
mod support;
mod uncreated;
mod volumes;
