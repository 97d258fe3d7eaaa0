//! How EC2 and the cluster are reached, by configuration and environment: the same for every command.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::{Api, Client};
use muster_core::ec2::{ClusterAccess, Surroundings, complete, is_incomplete, wrong_access};
use muster_ec2::{ClientOptions, Credentials, describe_cluster};
use tracing::warn;

use crate::config::Config;

/// Where a Pod finds the certificate authority of its cluster.
const SERVICE_ACCOUNT_CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
/// The Services of a simulated cluster that nobody configured.
const SIMULATED_SERVICES: &str = "10.100.0.0/16";

/// Region, endpoint and credentials; `None` where neither a Region nor an endpoint is configured.
pub(super) fn ec2(config: &Config) -> Option<ClientOptions> {
    let region = config.ec2.region.clone().or_else(|| std::env::var("AWS_REGION").ok());
    let endpoint_url = config.ec2.endpoint_url.clone().or_else(|| std::env::var("AWS_ENDPOINT_URL").ok());
    if region.is_none() && endpoint_url.is_none() {
        return None;
    }
    // The configuration accepts positive durations only.
    let timeout = config.ec2.launch_timeout.map(|timeout| Duration::try_from(timeout).unwrap_or_default());
    Some(ClientOptions {
        region: region.unwrap_or_else(|| "us-east-1".to_owned()),
        credentials: credentials(endpoint_url.as_deref()),
        endpoint_url,
        launch_timeout: timeout.unwrap_or(ClientOptions::LAUNCH_TIMEOUT),
    })
}

/// The access with what is not configured: from EKS by the cluster's name, else from the cluster itself, which shows everything
/// but the endpoint that its nodes reach.
pub(super) async fn access(client: &Client, given: ClusterAccess, options: &ClientOptions) -> ClusterAccess {
    let own = std::fs::read(SERVICE_ACCOUNT_CA).map(|pem| BASE64.encode(pem)).ok();
    if options.endpoint_url.as_deref().is_some_and(is_local) {
        // The simulator's machines have no kubelet that could use it.
        return complete(given, None, own.as_deref(), Some(SIMULATED_SERVICES));
    }
    let mut described = None;
    if is_incomplete(&given) {
        match describe_cluster(options.clone(), &given.name).await {
            Ok(found) => described = Some(found),
            Err(error) => warn!(cluster = given.name, %error, "EKS does not say how the cluster is reached"),
        }
    }
    let access = complete(given, described.as_ref(), own.as_deref(), None);
    if !access.service_cidr.is_empty() {
        return access;
    }
    match services(client).await {
        Ok(range) => complete(access, None, None, range.as_deref()),
        Err(error) => {
            warn!(%error, "the cluster does not say which addresses its Services have");
            access
        }
    }
}

/// The first range of the cluster's Services, which is that of the family it prefers.
async fn services(client: &Client) -> Result<Option<String>, kube::Error> {
    let ranges: Api<ServiceCIDR> = Api::all(client.clone());
    let range = ranges.get_opt("kubernetes").await?;
    Ok(range.and_then(|range| range.spec?.cidrs?.into_iter().next()))
}

/// What keeps nodes from joining by this access.
pub(super) fn wrong_way(access: &ClusterAccess, options: &ClientOptions) -> Vec<String> {
    if options.endpoint_url.as_deref().is_some_and(is_local) {
        // The simulator's machines have no kubelet that could use it.
        return Vec::new();
    }
    let around = Surroundings {
        region: options.region.clone(),
        service: std::env::var("KUBERNETES_SERVICE_HOST").ok().and_then(|host| host.parse().ok()),
        authority: std::fs::read_to_string(SERVICE_ACCOUNT_CA).ok(),
    };
    let authority = BASE64.decode(&access.certificate_authority).ok().and_then(|pem| String::from_utf8(pem).ok());
    wrong_access(access, authority.as_deref(), &around)
}

/// The simulator requires a signature and does not verify it; anybody else's endpoint gets the chain's credentials.
pub(super) fn credentials(endpoint: Option<&str>) -> Credentials {
    let local = endpoint.is_some_and(is_local);
    if local && std::env::var("AWS_ACCESS_KEY_ID").is_err() {
        return Credentials::Static {
            access_key_id: "simulator".to_owned(),
            secret_access_key: "simulator".to_owned(),
        };
    }
    Credentials::Default
}

fn is_local(url: &str) -> bool {
    ["://127.0.0.1", "://localhost", "://[::1]"].iter().any(|host| url.contains(host))
}
