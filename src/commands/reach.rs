//! How EC2 and the cluster are reached, by configuration and environment: the same for every command.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::{Api, Client};
use muster_core::ec2::{CallError, ClusterAccess, EksCluster, Surroundings, complete, is_incomplete, wrong_access};
use muster_ec2::{ClientOptions, Credentials, describe_cluster};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::definitions;
use crate::config::Config;
use crate::provisioner::{Way, WaySource};

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

/// The way to the cluster, and whether nodes can take it.
pub(super) async fn way(client: &Client, given: ClusterAccess, options: &ClientOptions) -> Way {
    let name = given.name.clone();
    let Reached { access, cluster } = access(client, given, options).await;
    let mut wrong = wrong_way(&access, options);
    // Why it is not known is the first thing to mend.
    if let Some(Err(error)) = cluster.as_ref().filter(|_| !wrong.is_empty()) {
        wrong.push(format!("eks:DescribeCluster of cluster.name {name}: {error}"));
    }
    let vpc = cluster.and_then(Result::ok).and_then(|cluster| cluster.vpc);
    Way { access, vpc, problem: (!wrong.is_empty()).then(|| wrong.join("; ")), outdated: outdated(client).await }
}

/// Why nothing may be launched by the definitions of our kinds: what they drop would be lost, and be decided again.
async fn outdated(client: &Client) -> Option<String> {
    match definitions::unknown(client).await {
        Ok(unknown) if unknown.is_empty() => None,
        Ok(unknown) => Some(format!(
            "the definitions on the cluster are older than this Muster and drop {}: apply manifests/crds, or upgrade the chart \
             muster-crd",
            unknown.join(", ")
        )),
        Err(error) => {
            Some(format!("the API server does not tell what the definitions of Muster's kinds know: {error}"))
        }
    }
}

/// What was found of the cluster.
#[derive(Debug)]
pub(super) struct Reached {
    pub(super) access: ClusterAccess,
    /// What EKS says of it, if it was asked.
    pub(super) cluster: Option<Result<EksCluster, CallError>>,
}

/// The access with what is not configured: from EKS by the cluster's name, else from the cluster itself, which shows everything
/// but the endpoint that its nodes reach.
pub(super) async fn access(client: &Client, given: ClusterAccess, options: &ClientOptions) -> Reached {
    let own = std::fs::read(SERVICE_ACCOUNT_CA).map(|pem| BASE64.encode(pem)).ok();
    let local = options.endpoint_url.as_deref().is_some_and(is_local);
    let mut cluster =
        if is_incomplete(&given) { Some(describe_cluster(options.clone(), &given.name).await) } else { None };
    // Few simulated accounts have a cluster of that name, and their machines have no kubelet that would miss it.
    cluster = cluster.filter(|found| found.is_ok() || !local);
    if let Some(Err(error)) = &cluster {
        warn!(cluster = given.name, %error, "EKS does not say how the cluster is reached");
    }
    let described = cluster.as_ref().and_then(|found| found.as_ref().ok()).map(|cluster| &cluster.access);
    let mut access = complete(given, described, own.as_deref(), local.then_some(SIMULATED_SERVICES));
    if access.service_cidr.is_empty() {
        match services(client).await {
            Ok(range) => access = complete(access, None, None, range.as_deref()),
            Err(error) => warn!(%error, "the cluster does not say which addresses its Services have"),
        }
    }
    Reached { access, cluster }
}

/// What keeps nodes from being launched, as it is known now.
fn problem(known: &WaySource) -> Option<String> {
    known.load().wrong().map(str::to_owned)
}

/// First and longest pause between two looks for a way that is not there yet.
pub(super) const PAUSES: (Duration, Duration) = (Duration::from_secs(15), Duration::from_mins(5));

/// Looks again for as long as nodes cannot reach the cluster: credentials, and a way to EKS, may come later than the process.
pub(super) async fn follow<F>(
    known: WaySource,
    look: impl Fn() -> F,
    (first, longest): (Duration, Duration),
    cancel: CancellationToken,
) -> anyhow::Result<()>
where
    F: Future<Output = Way>,
{
    let mut pause = first;
    while let Some(before) = problem(&known) {
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            () = tokio::time::sleep(pause) => {}
        }
        pause = pause.saturating_mul(2).min(longest);
        let found = look().await;
        match found.wrong() {
            None => info!("nodes can be launched, and join the cluster"),
            Some(message) if message != before => error!(message, "nothing is launched"),
            Some(_) => {}
        }
        known.store(Arc::new(found));
    }
    cancel.cancelled().await;
    Ok(())
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use arc_swap::ArcSwap;

    use super::*;

    fn way(problem: Option<&str>) -> Way {
        let nothing = String::new;
        let access = ClusterAccess {
            name: "prod".to_owned(),
            endpoint: nothing(),
            certificate_authority: nothing(),
            service_cidr: nothing(),
        };
        let vpc = problem.is_none().then(|| "vpc-1".to_owned());
        Way { access, vpc, problem: problem.map(str::to_owned), outdated: None }
    }

    #[tokio::test]
    async fn a_way_that_comes_later_than_the_process_is_taken_and_then_not_asked_for_again() {
        let known: WaySource = Arc::new(ArcSwap::from_pointee(way(Some("cluster.endpoint: is empty"))));
        let looks = Arc::new(AtomicUsize::new(0));
        let cancel = CancellationToken::new();
        let counted = Arc::clone(&looks);
        let ends = cancel.clone();
        let look = || {
            let found = match counted.fetch_add(1, Ordering::Relaxed) {
                0 => way(Some("cluster.endpoint: is empty")),
                1 => way(Some("cluster.serviceCidr: is empty")),
                _ => way(None),
            };
            if found.problem.is_none() {
                // Without this the task would go on until the process ends.
                ends.cancel();
            }
            std::future::ready(found)
        };
        follow(Arc::clone(&known), look, (Duration::ZERO, Duration::ZERO), cancel).await.unwrap();
        assert_eq!((known.load().problem.as_deref(), known.load().vpc.as_deref()), (None, Some("vpc-1")));
        assert_eq!(looks.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn a_way_that_is_there_at_once_is_not_looked_for() {
        let known: WaySource = Arc::new(ArcSwap::from_pointee(way(None)));
        let cancel = CancellationToken::new();
        cancel.cancel();
        let look = || std::future::ready(way(Some("asked")));
        follow(Arc::clone(&known), look, (Duration::ZERO, Duration::ZERO), cancel).await.unwrap();
        assert_eq!(known.load().problem, None);
    }
}
