//! Errors of the SDK as [`CallError`]s.

use std::error::Error;

use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_ec2::operation::RequestId;
use muster_core::ec2::{CallError, ErrorClass, classify};

/// The error of a call to whom messages call `endpoint`. All of EC2's errors are unmodelled in the SDK: code and text come
/// from the metadata.
#[expect(clippy::needless_pass_by_value, reason = "used as map_err(|error| failure(…, error))")]
pub(crate) fn failure<E>(endpoint: &str, operation: &str, error: SdkError<E>) -> CallError
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let code = error.code().filter(|code| !code.is_empty()).map(str::to_owned);
    let http_status = error.raw_response().map(|response| response.status().as_u16());
    let (kind, message) = match &error {
        SdkError::ServiceError(_) | SdkError::ResponseError(_) => {
            let text = match (error.message(), http_status) {
                (Some(text), _) => one_line(text),
                // Some services name their errors and say no more.
                (None, Some(status)) if code.is_some() => format!("{endpoint} answered HTTP {status}"),
                (None, Some(status)) => format!("{endpoint} answered HTTP {status} without an EC2 error"),
                (None, None) => root(&error),
            };
            (classify(code.as_deref(), http_status), text)
        }
        SdkError::ConstructionFailure(_) => (ErrorClass::NotSent, format!("nothing was sent: {}", root(&error))),
        SdkError::TimeoutError(_) => (ErrorClass::Unknown, format!("no answer from {endpoint} in time")),
        SdkError::DispatchFailure(_) => (ErrorClass::Unknown, format!("cannot reach {endpoint}: {}", root(&error))),
        // The SDK's enum is non-exhaustive; what is new is as open as a timeout.
        _ => (ErrorClass::Unknown, root(&error)),
    };
    CallError {
        operation: operation.to_owned(),
        kind,
        code,
        message,
        http_status,
        request_id: error.request_id().map(str::to_owned),
    }
}

/// The innermost cause: the outer layers only say that something failed.
pub(crate) fn root(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    one_line(&innermost.to_string())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
