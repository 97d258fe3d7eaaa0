//! Who calls, in the user agent: CloudTrail shows it beside every call.

use aws_sdk_ec2::config::interceptors::BeforeTransmitInterceptorContextMut;
use aws_sdk_ec2::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_ec2::error::BoxError;

const USER_AGENT: &str = "user-agent";

/// Appends `muster/<version>` to the SDK's own user agent, whose form leaves no place for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agent;

impl Intercept for Agent {
    fn name(&self) -> &'static str {
        "Agent"
    }

    // After signing: the header is no part of the signature.
    fn modify_before_transmit(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let headers = context.request_mut().headers_mut();
        let version = concat!("muster/", env!("CARGO_PKG_VERSION"));
        let agent = match headers.get(USER_AGENT) {
            Some(agent) => format!("{agent} {version}"),
            None => version.to_owned(),
        };
        headers.insert(USER_AGENT, agent);
        Ok(())
    }
}
