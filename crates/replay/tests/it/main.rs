//! Tests of the crate, one binary.

mod dumps;
mod fixed_point;
mod hostile;
mod schema;
mod support;
