//! Tests of the Kubernetes edge, one module per subject.

mod conventions;
mod convert;
mod crd;
mod peers;
mod state;
mod volumes;
