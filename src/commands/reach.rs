//! How EC2 and the cluster are reached, by configuration and environment: the same for every command.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use muster_core::ec2::{ClusterAccess, Surroundings, wrong_access};
use muster_ec2::{ClientOptions, Credentials};

use crate::config::Config;

/// Where a Pod finds the certificate authority of its cluster.
const SERVICE_ACCOUNT_CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

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

/// The access with the certificate authority of the cluster that the process runs in, where none is configured.
pub(super) fn with_authority(access: ClusterAccess) -> ClusterAccess {
    if !access.certificate_authority.is_empty() {
        return access;
    }
    let own = std::fs::read(SERVICE_ACCOUNT_CA).map(|pem| BASE64.encode(pem)).unwrap_or_default();
    ClusterAccess { certificate_authority: own, ..access }
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
