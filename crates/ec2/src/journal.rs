//! Requests and answers as they went over the wire, for whoever wants to hold them against the models of the services.

use std::fmt;
use std::sync::Arc;

use aws_sdk_ec2::config::interceptors::{
    AfterDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_ec2::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_ec2::error::BoxError;
use aws_smithy_types::config_bag::{Storable, StoreReplace};

/// Names the operation in protocols whose body does not.
const TARGET: &str = "x-amz-target";

/// One attempt of a call that was answered. Headers, and with them credentials and signatures, are excluded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The service: `ec2`, `ssm` or `pricing`.
    pub service: &'static str,
    /// The operation, `CreateFleet`.
    pub operation: String,
    /// HTTP status of the answer.
    pub status: u16,
    /// The body of the request.
    pub request: String,
    /// The body of the answer.
    pub response: String,
}

/// Where exchanges go, in the order of their answers.
#[derive(Clone)]
pub struct Journal(Arc<dyn Fn(Exchange) + Send + Sync>);

impl Journal {
    /// A journal that gives each exchange to `keep`, on the thread of the call.
    pub fn new(keep: impl Fn(Exchange) + Send + Sync + 'static) -> Self {
        Self(Arc::new(keep))
    }

    pub(crate) fn of(&self, service: &'static str) -> Recorder {
        Recorder { service, journal: self.clone() }
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Journal")
    }
}

/// Records the calls of one service.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    service: &'static str,
    journal: Journal,
}

/// What was sent, kept until its answer is there.
#[derive(Debug)]
struct Sent {
    operation: String,
    body: String,
}

impl Storable for Sent {
    type Storer = StoreReplace<Self>;
}

impl Intercept for Recorder {
    fn name(&self) -> &'static str {
        "Recorder"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let request = context.request();
        let body = text(request.body().bytes());
        let operation = operation(request.headers().get(TARGET), &body);
        config.interceptor_state().store_put(Sent { operation, body });
        Ok(())
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let Some(Sent { operation, body }) = config.load::<Sent>() else { return Ok(()) };
        let answer = context.response();
        (self.journal.0)(Exchange {
            service: self.service,
            operation: operation.clone(),
            status: answer.status().as_u16(),
            request: body.clone(),
            response: text(answer.body().bytes()),
        });
        Ok(())
    }
}

fn text(body: Option<&[u8]>) -> String {
    String::from_utf8_lossy(body.unwrap_or_default()).into_owned()
}

/// `AmazonSSM.GetParameter` of a header, or `Action=CreateFleet&…` of a form.
fn operation(target: Option<&str>, body: &str) -> String {
    let of_target = target.and_then(|target| target.rsplit('.').next());
    let of_form = || body.split('&').find_map(|pair| pair.strip_prefix("Action="));
    of_target.or_else(of_form).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operation_is_in_the_target_or_in_the_form() {
        assert_eq!(operation(Some("AmazonSSM.GetParameter"), "{}"), "GetParameter");
        assert_eq!(operation(None, "Action=CreateFleet&Version=2016-11-15"), "CreateFleet");
        assert_eq!(operation(None, ""), "");
    }
}
