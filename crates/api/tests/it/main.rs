//! Tests of the Kubernetes edge, one module per subject.

mod convert;
