//! The queue that EventBridge fills: received, and deleted once the reaction is written down.

use std::time::Duration;

use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::timeout::TimeoutConfig;
use aws_sdk_sqs::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::operation::delete_message::builders::DeleteMessageInputBuilder;
use aws_sdk_sqs::operation::get_queue_url::builders::GetQueueUrlInputBuilder;
use aws_sdk_sqs::operation::receive_message::builders::ReceiveMessageInputBuilder;
use thiserror::Error;

use crate::ClientOptions;
use crate::agent::Agent;
use crate::client::settings;

/// Messages per call: the most SQS gives.
const MOST: i32 = 10;
/// Longest wait for one attempt: the long poll and some.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// Attempts of a call; all of them may be repeated.
const ATTEMPTS: u32 = 3;

/// A call on the queue failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{operation}: {message}")]
pub struct QueueError {
    /// The call.
    pub operation: &'static str,
    /// SQS's code, if it answered one.
    pub code: Option<String>,
    /// What happened.
    pub message: String,
}

/// A message under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// What deletes it.
    pub receipt: String,
    /// Body.
    pub body: String,
}

/// One queue. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Queue {
    client: aws_sdk_sqs::Client,
    url: String,
}

impl Queue {
    /// Connects to a queue by its URL, or by its name in the same account and Region.
    ///
    /// Errors: the name is not known, or nobody answers.
    pub async fn connect(options: ClientOptions, queue: &str) -> Result<Self, QueueError> {
        let config = aws_sdk_sqs::config::Builder::from(&Box::pin(settings(options)).await)
            .interceptor(Agent)
            .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS))
            .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT_TIMEOUT).build());
        let client = aws_sdk_sqs::Client::from_conf(config.build());
        if queue.contains("://") {
            return Ok(Self { client, url: queue.to_owned() });
        }
        let call = GetQueueUrlInputBuilder::default().queue_name(queue).send_with(&client);
        let output = Box::pin(call).await.map_err(|error| failed("GetQueueUrl", error))?;
        let url = output.queue_url().ok_or_else(|| QueueError {
            operation: "GetQueueUrl",
            code: None,
            message: "the answer names no URL".to_owned(),
        })?;
        Ok(Self { client, url: url.to_owned() })
    }

    /// Waits up to `seconds` (at most 20) for messages, of which it gives up to ten. What is not deleted comes again.
    pub async fn receive(&self, seconds: u8) -> Result<Vec<Received>, QueueError> {
        let call = ReceiveMessageInputBuilder::default()
            .queue_url(&self.url)
            .max_number_of_messages(MOST)
            .wait_time_seconds(i32::from(seconds.min(20)))
            .send_with(&self.client);
        let output = Box::pin(call).await.map_err(|error| failed("ReceiveMessage", error))?;
        let read = |message: &aws_sdk_sqs::types::Message| {
            Some(Received {
                receipt: message.receipt_handle()?.to_owned(),
                body: message.body().unwrap_or_default().to_owned(),
            })
        };
        Ok(output.messages().iter().filter_map(read).collect())
    }

    /// Deletes a message; one that is gone counts as deleted.
    pub async fn delete(&self, message: &Received) -> Result<(), QueueError> {
        let call = DeleteMessageInputBuilder::default()
            .queue_url(&self.url)
            .receipt_handle(&message.receipt)
            .send_with(&self.client);
        Box::pin(call).await.map(|_| ()).map_err(|error| failed("DeleteMessage", error))
    }
}

fn failed<E>(operation: &'static str, error: SdkError<E>) -> QueueError
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
{
    let code = error.code().map(str::to_owned);
    QueueError { operation, code, message: DisplayErrorContext(error).to_string() }
}
