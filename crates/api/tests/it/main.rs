//! Tests of the Kubernetes edge, one module per subject.

mod conventions;
mod convert;
mod crd;
mod dra;
mod peers;
mod pin;
mod state;
mod volumes;
