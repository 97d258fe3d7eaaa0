//! The connection: region, endpoint, credentials, retries and timeouts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_ec2::config::retry::RetryConfig;
use aws_sdk_ec2::config::timeout::TimeoutConfig;
use aws_sdk_ec2::config::{ProvideCredentials, StalledStreamProtectionConfig};
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_http_client::Builder as HttpBuilder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use muster_core::ec2::CallError;
use muster_core::offering::price_list_region;
use thiserror::Error;

use crate::agent::Agent;
use crate::error::{failure, root};
use crate::journal::Journal;
use crate::pace::{Pace, Turns};

/// Attempts of every call that is no launch: all of them are idempotent by name, token or nature.
const ATTEMPTS: u32 = 5;
/// Longest wait for a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for one attempt of a call that is no launch; describing a thousand instances takes seconds.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);

/// Where and how to connect.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Region, `us-east-1`.
    pub region: String,
    /// Another endpoint than EC2's own, `http://127.0.0.1:4566`: plain http is fine.
    pub endpoint_url: Option<String>,
    /// Who asks.
    pub credentials: Credentials,
    /// Longest wait for the answer to a launch; see [`ClientOptions::LAUNCH_TIMEOUT`].
    pub launch_timeout: Duration,
}

impl ClientOptions {
    /// Far above the 3.3 s seen for seven nodes: a launch that times out is an unknown outcome.
    pub const LAUNCH_TIMEOUT: Duration = Duration::from_secs(75);
}

/// Who asks.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// The SDK's chain: environment, profile, web identity, container, instance.
    Default,
    /// Fixed keys, for the simulator: it requires a signature and does not verify it.
    Static {
        /// Access key id.
        access_key_id: String,
        /// Secret key.
        secret_access_key: String,
    },
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("Default"),
            Self::Static { access_key_id, .. } => {
                f.debug_struct("Static").field("access_key_id", access_key_id).finish_non_exhaustive()
            }
        }
    }
}

/// Why there is no client.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConnectError {
    /// No region.
    #[error("the region is empty")]
    Region,
    /// Not a URL of http or https.
    #[error("endpoint {endpoint_url:?} is not an http:// or https:// URL")]
    Endpoint {
        /// What was given.
        endpoint_url: String,
    },
}

/// EC2 in one region. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    /// For everything that may be sent twice.
    pub(crate) calls: aws_sdk_ec2::Client,
    /// For launches: one attempt, a long timeout.
    pub(crate) launches: aws_sdk_ec2::Client,
    /// SSM.
    pub(crate) parameters: aws_sdk_ssm::Client,
    /// The Price List API.
    pub(crate) prices: aws_sdk_pricing::Client,
    /// Service Quotas.
    pub(crate) quotas: aws_sdk_servicequotas::Client,
    /// When a further call of one reading may be sent; `None`: at once.
    pub(crate) pace: Option<Arc<dyn Pace>>,
    /// How launches name placement groups of which only the ARN was seen, by ARN.
    pub(crate) references: Arc<Mutex<BTreeMap<String, String>>>,
    /// The Region.
    pub(crate) region: String,
    /// For messages.
    pub(crate) endpoint: String,
    /// For messages about SSM.
    pub(crate) parameters_endpoint: String,
    /// For messages about the Price List API.
    pub(crate) prices_endpoint: String,
    /// For messages about Service Quotas.
    pub(crate) quotas_endpoint: String,
}

impl Client {
    /// Makes a client. Sends nothing to EC2; the default chain may ask local sources for its configuration.
    ///
    /// Errors: [`ConnectError`], a configuration that cannot work. An endpoint that does not answer shows in the first
    /// call.
    pub async fn connect(options: ClientOptions) -> Result<Self, ConnectError> {
        Box::pin(Self::connect_with(options, None)).await
    }

    /// As [`Client::connect`]; every exchange with EC2, SSM, Service Quotas and the Price List API goes into the journal as well.
    pub async fn connect_recorded(options: ClientOptions, journal: Journal) -> Result<Self, ConnectError> {
        Box::pin(Self::connect_with(options, Some(journal))).await
    }

    async fn connect_with(options: ClientOptions, journal: Option<Journal>) -> Result<Self, ConnectError> {
        let recorder = |service| journal.as_ref().map(|journal| journal.of(service));
        let ClientOptions { region, endpoint_url, credentials: _, launch_timeout } = &options;
        if region.is_empty() {
            return Err(ConnectError::Region);
        }
        if let Some(url) = endpoint_url
            && !["http://", "https://"].iter().any(|scheme| url.len() > scheme.len() && url.starts_with(scheme))
        {
            return Err(ConnectError::Endpoint { endpoint_url: url.clone() });
        }
        let endpoint = endpoint_url.clone().unwrap_or_else(|| format!("EC2 in {region}"));
        let (launch_timeout, of) = (*launch_timeout, region.clone());
        let ec2_url = endpoint_url.clone();
        let shared_url = endpoint_url.clone().filter(|url| serves_all(url));
        // It answers in few Regions, for all of them.
        let prices_region = price_list_region(region).unwrap_or(region).to_owned();
        let prices_endpoint = shared_url.clone().unwrap_or_else(|| format!("the Price List API in {prices_region}"));
        let quotas_endpoint = shared_url.clone().unwrap_or_else(|| format!("Service Quotas in {region}"));
        let parameters_endpoint = shared_url.unwrap_or_else(|| format!("SSM in {region}"));
        let settings = Box::pin(settings(options)).await;
        let mut config = aws_sdk_ec2::config::Builder::from(&settings).interceptor(Agent);
        if let Some(url) = ec2_url {
            config = config.endpoint_url(url);
        }
        if let Some(recorder) = recorder("ec2") {
            config = config.interceptor(recorder);
        }
        let calls = config
            .clone()
            .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS))
            .timeout_config(per_attempt());
        let mut parameters = aws_sdk_ssm::config::Builder::from(&settings)
            .interceptor(Agent)
            .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS))
            .timeout_config(per_attempt());
        if let Some(recorder) = recorder("ssm") {
            parameters = parameters.interceptor(recorder);
        }
        let mut prices = aws_sdk_pricing::config::Builder::from(&settings)
            .region(Region::new(prices_region))
            .interceptor(Agent)
            .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS))
            .timeout_config(per_attempt());
        if let Some(recorder) = recorder("pricing") {
            prices = prices.interceptor(recorder);
        }
        let mut quotas = aws_sdk_servicequotas::config::Builder::from(&settings)
            .interceptor(Agent)
            .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS))
            .timeout_config(per_attempt());
        if let Some(recorder) = recorder("servicequotas") {
            quotas = quotas.interceptor(recorder);
        }
        let launches = config.retry_config(RetryConfig::disabled()).timeout_config(
            TimeoutConfig::builder().connect_timeout(CONNECT_TIMEOUT).operation_timeout(launch_timeout).build(),
        );
        Ok(Self {
            calls: aws_sdk_ec2::Client::from_conf(calls.build()),
            launches: aws_sdk_ec2::Client::from_conf(launches.build()),
            parameters: aws_sdk_ssm::Client::from_conf(parameters.build()),
            prices: aws_sdk_pricing::Client::from_conf(prices.build()),
            quotas: aws_sdk_servicequotas::Client::from_conf(quotas.build()),
            pace: None,
            references: Arc::default(),
            region: of,
            endpoint,
            parameters_endpoint,
            prices_endpoint,
            quotas_endpoint,
        })
    }

    /// The same client, whose further calls of one reading wait for their turns.
    #[must_use]
    pub fn paced(mut self, pace: Arc<dyn Pace>) -> Self {
        self.pace = Some(pace);
        self
    }

    /// The turns of the calls of one reading.
    pub(crate) fn turns(&self, operation: &'static str) -> Turns<'_> {
        Turns::of(self.pace.as_deref(), operation)
    }

    /// The error of a call to EC2.
    pub(crate) fn failed<E>(&self, operation: &str, error: SdkError<E>) -> CallError
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        failure(&self.endpoint, operation, error)
    }
}

/// Sees whether there are credentials, without a call to the service they are for.
///
/// Errors: why there are none, in a sentence.
pub async fn find_credentials(options: ClientOptions) -> Result<(), String> {
    let Some(provider) = Box::pin(settings(options)).await.credentials_provider() else {
        return Err("the SDK's chain has no source of credentials".to_owned());
    };
    provider.provide_credentials().await.map(|_| ()).map_err(|error| root(&error))
}

fn per_attempt() -> TimeoutConfig {
    TimeoutConfig::builder().connect_timeout(CONNECT_TIMEOUT).operation_attempt_timeout(ATTEMPT_TIMEOUT).build()
}

/// Whether an endpoint that is given in the place of EC2's answers for the other services too, as the simulator does. A
/// host of AWS, such as a VPC endpoint, answers for EC2 alone.
pub(crate) fn serves_all(endpoint_url: &str) -> bool {
    let host = endpoint_url.split("://").nth(1).unwrap_or_default().split(['/', ':']).next().unwrap_or_default();
    let of_aws = [".amazonaws.com", ".amazonaws.com.cn", ".api.aws", ".api.amazonwebservices.com.cn"];
    !of_aws.iter().any(|domain| host.ends_with(domain))
}

/// What the clients of all services share: Region, credentials, endpoint, TLS.
pub(crate) async fn settings(options: ClientOptions) -> SdkConfig {
    let ClientOptions { region, endpoint_url, credentials, launch_timeout: _ } = options;
    let http = HttpBuilder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    // Answers are small and arrive at once; the timeouts of each client are the guard, and a launch may rightly be silent
    // for a minute.
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .region(Region::new(region))
        .http_client(http)
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    if let Some(url) = endpoint_url.filter(|url| serves_all(url)) {
        loader = loader.endpoint_url(url);
    }
    if let Credentials::Static { access_key_id, secret_access_key } = credentials {
        loader = loader.credentials_provider(aws_sdk_ec2::config::Credentials::new(
            access_key_id,
            secret_access_key,
            None,
            None,
            "muster",
        ));
    }
    loader.load().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_of_ec2_alone_is_not_asked_for_parameters_and_messages() {
        for url in ["http://127.0.0.1:4566", "https://localstack.example.com", "http://[::1]:4566/"] {
            assert!(serves_all(url), "{url}");
        }
        for url in [
            "https://ec2.us-east-1.amazonaws.com",
            "https://vpce-1.ec2.us-east-1.vpce.amazonaws.com/",
            "https://ec2.cn-north-1.amazonaws.com.cn:443",
            "https://ec2.us-east-1.api.aws",
        ] {
            assert!(!serves_all(url), "{url}");
        }
    }

    #[test]
    fn the_secret_key_is_not_printed() {
        let keys = Credentials::Static { access_key_id: "AK".to_owned(), secret_access_key: "hidden".to_owned() };
        assert!(!format!("{keys:?}").contains("hidden"));
    }
}
