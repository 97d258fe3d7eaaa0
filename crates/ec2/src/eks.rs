//! What EKS says of a cluster: how its nodes reach it, and who may join.

use std::time::Duration;

use aws_sdk_eks::config::retry::RetryConfig;
use aws_sdk_eks::config::timeout::TimeoutConfig;
use aws_sdk_eks::operation::describe_access_entry::builders::DescribeAccessEntryInputBuilder;
use aws_sdk_eks::operation::describe_cluster::builders::DescribeClusterInputBuilder;
use aws_sdk_eks::types::{Cluster, IpFamily};
use muster_core::ec2::{CallError, ClusterAccess, EksCluster};

use crate::ClientOptions;
use crate::agent::Agent;
use crate::client::{serves_all, settings};
use crate::error::failure;

const DESCRIBE: &str = "DescribeCluster";
const DESCRIBE_ENTRY: &str = "DescribeAccessEntry";
/// EKS's code for what does not exist.
const NOT_FOUND: &str = "ResourceNotFoundException";
/// Longest wait for an answer with all repetitions: a start waits for it, and a private cluster may have no way to EKS.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The cluster of this name: the way to it, its VPC, and how it knows who asks. What EKS does not know yet, while a cluster is
/// being made, is empty.
pub async fn describe_cluster(options: ClientOptions, name: &str) -> Result<EksCluster, CallError> {
    let (client, endpoint) = client(options).await;
    let call = DescribeClusterInputBuilder::default().name(name).send_with(&client);
    let output = Box::pin(call).await.map_err(|error| failure(&endpoint, DESCRIBE, error))?;
    output
        .cluster()
        .map(described)
        .ok_or_else(|| CallError::refused_here(DESCRIBE, "the answer has no cluster".to_owned()))
}

/// The type of the access entry of a principal, such as `EC2_LINUX`; `None` if it has no entry.
pub async fn access_entry(options: ClientOptions, cluster: &str, principal: &str) -> Result<Option<String>, CallError> {
    let (client, endpoint) = client(options).await;
    let call =
        DescribeAccessEntryInputBuilder::default().cluster_name(cluster).principal_arn(principal).send_with(&client);
    match Box::pin(call).await.map_err(|error| failure(&endpoint, DESCRIBE_ENTRY, error)) {
        Ok(output) => {
            let entry = output.access_entry();
            Ok(entry.map(|entry| entry.r#type().unwrap_or_default().to_owned()))
        }
        Err(error) if error.code.as_deref() == Some(NOT_FOUND) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A client, and what it asks in words.
async fn client(options: ClientOptions) -> (aws_sdk_eks::Client, String) {
    let shared_url = options.endpoint_url.clone().filter(|url| serves_all(url));
    let endpoint = shared_url.unwrap_or_else(|| format!("EKS in {}", options.region));
    let config = aws_sdk_eks::config::Builder::from(&Box::pin(settings(options)).await)
        .interceptor(Agent)
        .retry_config(RetryConfig::standard())
        .timeout_config(TimeoutConfig::builder().connect_timeout(CONNECT_TIMEOUT).operation_timeout(TIMEOUT).build());
    (aws_sdk_eks::Client::from_conf(config.build()), endpoint)
}

fn described(cluster: &Cluster) -> EksCluster {
    EksCluster {
        access: access(cluster),
        arn: cluster.arn().unwrap_or_default().to_owned(),
        vpc: cluster.resources_vpc_config().and_then(|network| network.vpc_id()).map(str::to_owned),
        authentication: cluster
            .access_config()
            .and_then(|config| config.authentication_mode())
            .map(|mode| mode.as_str().to_owned()),
    }
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
