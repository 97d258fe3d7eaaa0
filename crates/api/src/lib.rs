//! Muster's custom resources, label keys, and Kubernetes objects as core types.
//!
//! **Architecture invariant**: no client and no async here. Everything that is known of a Kubernetes object is turned
//! into a core type at this edge, so that nothing behind it reads a label by name.

pub mod batch_state;
pub mod books;
pub mod conventions;
pub mod convert;
pub mod crd;
pub mod dra;
pub mod gang_state;
pub mod keys;
pub mod new_node;
pub mod node_class;
pub mod pod_state;
pub mod pool;
pub mod pool_check;
pub mod pool_state;
pub mod supply;
pub mod volumes;
