//! What EKS says of a cluster: how its nodes reach it.

use std::time::Duration;

use aws_sdk_eks::config::retry::RetryConfig;
use aws_sdk_eks::config::timeout::TimeoutConfig;
use aws_sdk_eks::operation::describe_cluster::builders::DescribeClusterInputBuilder;
use aws_sdk_eks::types::{Cluster, IpFamily};
use muster_core::ec2::{CallError, ClusterAccess};

use crate::ClientOptions;
use crate::agent::Agent;
use crate::client::{serves_all, settings};
use crate::error::failure;

const DESCRIBE: &str = "DescribeCluster";
/// Longest wait for an answer with all repetitions: a start waits for it, and a private cluster may have no way to EKS.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The way to the cluster of this name: endpoint, certificate authority, and the range of its Services. What EKS does not
/// know yet, while a cluster is being made, is empty.
pub async fn describe_cluster(options: ClientOptions, name: &str) -> Result<ClusterAccess, CallError> {
    let shared_url = options.endpoint_url.clone().filter(|url| serves_all(url));
    let endpoint = shared_url.unwrap_or_else(|| format!("EKS in {}", options.region));
    let config = aws_sdk_eks::config::Builder::from(&Box::pin(settings(options)).await)
        .interceptor(Agent)
        .retry_config(RetryConfig::standard())
        .timeout_config(TimeoutConfig::builder().connect_timeout(CONNECT_TIMEOUT).operation_timeout(TIMEOUT).build());
    let client = aws_sdk_eks::Client::from_conf(config.build());
    let call = DescribeClusterInputBuilder::default().name(name).send_with(&client);
    let output = Box::pin(call).await.map_err(|error| failure(&endpoint, DESCRIBE, error))?;
    output
        .cluster()
        .map(access)
        .ok_or_else(|| CallError::refused_here(DESCRIBE, "the answer has no cluster".to_owned()))
}

fn access(cluster: &Cluster) -> ClusterAccess {
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let network = cluster.kubernetes_network_config();
    let services = network.and_then(|network| match network.ip_family() {
        Some(IpFamily::Ipv6) => network.service_ipv6_cidr(),
        _ => network.service_ipv4_cidr(),
    });
    ClusterAccess {
        name: text(cluster.name()),
        endpoint: text(cluster.endpoint()),
        certificate_authority: text(cluster.certificate_authority().and_then(|authority| authority.data())),
        service_cidr: text(services),
    }
}
