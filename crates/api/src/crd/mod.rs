//! The custom resources, one kind per file, and what they share.

pub mod ec2_node_class;
pub mod gang;
pub mod node_batch;
pub mod node_pool;
pub mod provisioning_request;
pub mod served;

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResourceExt;
use muster_core::reason::bounded;

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

/// Longest message of a condition, in characters. Source: the schema of ProvisioningRequests, as of every condition of Kubernetes.
const MESSAGE: usize = 32_768;

/// Sets a condition; a message that the API server would refuse for its length is cut. The transition time moves only when the status changes, so that writing the same twice is no
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
    let message = &*bounded(message, MESSAGE);
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

/// The condition of a type.
#[must_use]
pub fn condition<'a>(all: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    all.iter().find(|one| one.type_ == kind)
}

/// Whether a condition is present and `True`.
#[must_use]
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    condition(conditions, kind).is_some_and(|one| one.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_nine_hundred_types_is_one_that_the_api_server_takes() {
        let types: Vec<String> =
            (0..900).map(|one| format!("NodePool p{one}: m7i.metal-{one}xl: no devices")).collect();
        let message = types.join("; ");
        let mut conditions = Vec::new();
        for _ in 0..2 {
            set_condition(&mut conditions, "Accepted", false, "CapacityIsNotFound", &message, Timestamp::UNIX_EPOCH);
            let written = &conditions[0].message;
            assert!(message.len() > MESSAGE && written.chars().count() <= MESSAGE, "{}", written.len());
            assert!(written.ends_with("no devices; …"), "whole statements");
        }
    }
}
