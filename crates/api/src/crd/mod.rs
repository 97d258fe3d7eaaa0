//! The custom resources, one kind per file, and what they share.

pub mod ec2_node_class;
pub mod gang;
pub mod node_batch;
pub mod node_pool;
pub mod provisioning_request;

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResourceExt;

pub use ec2_node_class::*;
pub use gang::*;
pub use node_batch::*;
pub use node_pool::*;
pub use provisioning_request::*;

/// File name and definition of every kind of ours, in order of name.
#[must_use]
pub fn all() -> Vec<(String, CustomResourceDefinition)> {
    [EC2NodeClass::crd(), Gang::crd(), NodeBatch::crd(), NodePool::crd()]
        .into_iter()
        .map(|crd| (format!("{}.yaml", crd.metadata.name.as_deref().unwrap_or("unnamed")), crd))
        .collect()
}

/// Sets a condition; the transition time moves only when the status changes, so that writing the same twice is no
/// change.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    kind: &str,
    status: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let status = if status { "True" } else { "False" };
    match conditions.iter_mut().find(|condition| condition.type_ == kind) {
        Some(condition) => {
            if condition.status != status {
                condition.last_transition_time = Time(now);
                status.clone_into(&mut condition.status);
            }
            reason.clone_into(&mut condition.reason);
            message.clone_into(&mut condition.message);
        }
        None => conditions.push(Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: Time(now),
            observed_generation: None,
        }),
    }
}

/// Whether a condition is present and `True`.
#[must_use]
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|condition| condition.type_ == kind && condition.status == "True")
}
