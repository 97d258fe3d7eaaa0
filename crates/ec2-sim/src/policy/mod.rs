//! The IAM policy that calls are held against: actions, resources and the conditions that the policy of
//! `muster iam` uses. A policy that says anything else is refused when it is read, so that no word of it is ignored.

mod demands;
pub(crate) mod document;

use jiff::Timestamp;

use crate::protocol::error::ApiError;
use crate::protocol::request::{Request, Service};
use crate::state::World;

use self::demands::Demand;
pub use self::document::{Conditions, Effect, Policy, Statement, Words};

/// The policy that calls are held against now, its words filled in.
pub(crate) fn in_force(world: &World) -> Option<Policy> {
    world.scenario.policy.clone().map(|policy| policy.filled(&world.scenario.policy_values()))
}

/// Holds a call against the scenario's policy and the actions denied since.
///
/// # Errors
/// `UnauthorizedOperation`, or its name in the other services, naming action and resource.
pub(crate) fn check(world: &World, request: &Request, _now: Timestamp) -> Result<(), ApiError> {
    let policy = in_force(world);
    if policy.is_none() && world.denied.is_empty() {
        return Ok(());
    }
    if request.access_key.as_ref().is_some_and(|key| world.scenario.administrators.contains(key)) {
        return Ok(());
    }
    // The cloud controller has an identity of its own.
    let other = request.user_agent.as_deref().is_some_and(|agent| agent.starts_with("cloud-controller"));
    let allowed = |demand: &Demand| {
        (other || !world.denied.contains(&demand.action))
            && policy.as_ref().is_none_or(|policy| policy.allows(&demand.action, &demand.resource, &demand.keys))
    };
    let Some(refused) = demands::of(world, request).into_iter().find(|demand| !allowed(demand)) else {
        return Ok(());
    };
    let (status, code) = match request.service {
        Service::Ec2 => (403, "UnauthorizedOperation"),
        Service::Sqs | Service::Sts | Service::Iam => (403, "AccessDenied"),
        Service::Eks => (403, "AccessDeniedException"),
        Service::Ssm | Service::Pricing | Service::Quotas => (400, "AccessDeniedException"),
    };
    let Demand { action, resource, .. } = refused;
    Err(ApiError::new(
        status,
        code,
        format!(
            "You are not authorized to perform this operation. User: {} is not authorized to perform: {action} on \
             resource: {resource} because no identity-based policy allows the {action} action",
            world.creator()
        ),
    ))
}
