//! Tests of the crate, one binary.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise, helpers included")]

mod document;
mod fits;
mod large;
mod pages;
mod screens;
mod support;
mod work;
