//! Whether the configured way to the cluster can be right, before a node is launched that would never register.

use std::net::{IpAddr, Ipv6Addr};

use super::bootstrap::ClusterAccess;

/// What the process knows of its cluster without a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The Region nodes are launched in.
    pub region: String,
    /// Address of the service `kubernetes`, if the process runs in the cluster.
    pub service: Option<IpAddr>,
    /// The certificate authority that a Pod's ServiceAccount gets, as PEM, if the process runs in the cluster.
    pub authority: Option<String>,
}

/// What EKS says of a cluster. What it does not know yet, while the cluster is being made, is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EksCluster {
    /// How its nodes reach it.
    pub access: ClusterAccess,
    /// Its ARN, which has partition and account.
    pub arn: String,
    /// The VPC that its nodes have to be in.
    pub vpc: Option<String>,
    /// How it knows who asks, `API`, `API_AND_CONFIG_MAP` or `CONFIG_MAP`.
    pub authentication: Option<String>,
}

impl EksCluster {
    /// The ARN of a role in the cluster's account; `None` while the cluster's own ARN is not known.
    #[must_use]
    pub fn role(&self, name: &str) -> Option<String> {
        let mut parts = self.arn.split(':').skip(1);
        let (partition, account) = (parts.next()?, parts.nth(2)?);
        Some(format!("arn:{partition}:iam::{account}:role/{name}"))
    }

    /// Whether access entries count: in the mode `CONFIG_MAP` they cannot even be made.
    #[must_use]
    pub fn takes_entries(&self) -> bool {
        self.authentication.as_deref() != Some("CONFIG_MAP")
    }
}

impl ClusterAccess {
    /// Whether Services, Pods and nodes of the cluster have IPv6 addresses: EKS gives a cluster one family or the other, never both.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.ipv6_services().is_some()
    }

    /// The address of the cluster's DNS in an IPv6 cluster: EKS takes the tenth of the range of its Services.
    pub(super) fn ipv6_dns(&self) -> Option<Ipv6Addr> {
        self.ipv6_services().map(|range| Ipv6Addr::from(u128::from(range) | DNS))
    }

    fn ipv6_services(&self) -> Option<Ipv6Addr> {
        match cidr(&self.service_cidr)? {
            (IpAddr::V6(range), _) => Some(range),
            (IpAddr::V4(_), _) => None,
        }
    }
}

/// Where the DNS of a cluster is in the range of its Services.
const DNS: u128 = 10;

/// The access with what is not configured: as EKS described the cluster, else as the cluster itself shows it. What is configured
/// stays, right or wrong. `authority` is base64; `services` are the ranges of the cluster's Services.
#[must_use]
pub fn complete(
    given: ClusterAccess,
    described: Option<&ClusterAccess>,
    authority: Option<&str>,
    services: Option<&str>,
) -> ClusterAccess {
    let first = |given: String, described: Option<&String>, known: Option<&str>| {
        let known = known.map(str::to_owned);
        [Some(given), described.cloned(), known].into_iter().flatten().find(|text| !text.is_empty()).unwrap_or_default()
    };
    let ClusterAccess { name, endpoint, certificate_authority, service_cidr } = given;
    ClusterAccess {
        name,
        endpoint: first(endpoint, described.map(|one| &one.endpoint), None),
        certificate_authority: first(certificate_authority, described.map(|one| &one.certificate_authority), authority),
        service_cidr: first(service_cidr, described.map(|one| &one.service_cidr), services),
    }
}

/// Whether EKS has to be asked: the cluster's name is known, and not everything else.
#[must_use]
pub fn is_incomplete(access: &ClusterAccess) -> bool {
    let ClusterAccess { name, endpoint, certificate_authority, service_cidr } = access;
    !name.is_empty() && [endpoint, certificate_authority, service_cidr].iter().any(|text| text.is_empty())
}

/// What is missing from the access or contradicts what is known, each with its remedy. `authority` is the access's
/// certificate authority as PEM; `None` if it is not base64 of a text.
#[must_use]
pub fn wrong_access(access: &ClusterAccess, authority: Option<&str>, around: &Surroundings) -> Vec<String> {
    let ClusterAccess { name, endpoint, certificate_authority, service_cidr } = access;
    let shown = |query: &str| {
        let name = if name.is_empty() { "NAME" } else { name };
        format!("aws eks describe-cluster --name {name} --query {query} --output text")
    };
    let mut wrong = Vec::new();
    if name.is_empty() {
        wrong.push("cluster.name: is empty; give the name of the EKS cluster".to_owned());
    }
    if endpoint.is_empty() {
        wrong.push(format!("cluster.endpoint: is empty; {} tells it", shown("cluster.endpoint")));
    } else if let Some(host) = endpoint.strip_prefix("https://") {
        if let Some(other) = region_of(host).filter(|of| *of != around.region) {
            wrong.push(format!(
                "cluster.endpoint: is in {other}, but nodes are launched in {}; set cluster.endpoint or ec2.region",
                around.region
            ));
        }
    } else {
        wrong.push(format!("cluster.endpoint: \"{endpoint}\" is not an https:// URL"));
    }
    match (authority, &around.authority) {
        _ if certificate_authority.is_empty() => wrong.push(format!(
            "cluster.certificateAuthority: is empty; {} tells it",
            shown("cluster.certificateAuthority.data")
        )),
        (None, _) => wrong.push("cluster.certificateAuthority: is not base64 of a PEM certificate".to_owned()),
        (Some(given), _) if !given.contains("-----BEGIN CERTIFICATE-----") => {
            wrong.push("cluster.certificateAuthority: is not base64 of a PEM certificate".to_owned());
        }
        (Some(given), Some(known)) if !known.contains(given.trim()) && !given.contains(known.trim()) => {
            wrong.push(
                "cluster.certificateAuthority: is not the authority of the cluster that Muster runs in; leave it out, \
                 and that one is taken"
                    .to_owned(),
            );
        }
        (Some(_), Some(_) | None) => {}
    }
    let services = match around.service {
        Some(IpAddr::V6(_)) => "cluster.kubernetesNetworkConfig.serviceIpv6Cidr",
        Some(IpAddr::V4(_)) | None => "cluster.kubernetesNetworkConfig.serviceIpv4Cidr",
    };
    match cidr(service_cidr) {
        None => wrong.push(format!(
            "cluster.serviceCidr: \"{service_cidr}\" is not a CIDR such as 10.100.0.0/16; {} tells it",
            shown(services)
        )),
        Some(range) => {
            if let Some(service) = around.service.filter(|service| !holds(range, *service)) {
                wrong.push(format!(
                    "cluster.serviceCidr: {service_cidr} does not hold {service}, the address of the service kubernetes; {} \
                     tells it",
                    shown(services)
                ));
            }
        }
    }
    wrong
}

/// The Region in the host of an EKS endpoint, `ABC.gr7.us-west-2.eks.amazonaws.com`; `None` for other hosts.
fn region_of(host: &str) -> Option<&str> {
    let host = host.split(['/', ':']).next()?;
    let rest = host.strip_suffix(".eks.amazonaws.com").or_else(|| host.strip_suffix(".eks.amazonaws.com.cn"))?;
    rest.rsplit('.').next()
}

fn cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let bits: u8 = bits.parse().ok()?;
    (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, bits))
}

fn holds((network, bits): (IpAddr, u8), address: IpAddr) -> bool {
    let same = |one: u128, other: u128, width: u32| {
        let shift = width - u32::from(bits);
        one.checked_shr(shift).unwrap_or(0) == other.checked_shr(shift).unwrap_or(0)
    };
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            same(u128::from(u32::from(network)), u128::from(u32::from(address)), 32)
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => same(network.into(), address.into(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEM: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";

    fn access() -> ClusterAccess {
        ClusterAccess {
            name: "prod".to_owned(),
            endpoint: "https://ABC.gr7.us-west-2.eks.amazonaws.com".to_owned(),
            certificate_authority: "TUlJQg==".to_owned(),
            service_cidr: "10.100.0.0/16".to_owned(),
        }
    }

    fn around() -> Surroundings {
        Surroundings {
            region: "us-west-2".to_owned(),
            service: Some("10.100.0.1".parse().unwrap()),
            authority: Some(PEM.to_owned()),
        }
    }

    #[test]
    fn an_access_that_fits_its_surroundings_is_right_inside_and_outside_the_cluster() {
        assert_eq!(wrong_access(&access(), Some(PEM), &around()), Vec::<String>::new());
        let outside = Surroundings { region: "us-west-2".to_owned(), ..Surroundings::default() };
        assert_eq!(wrong_access(&access(), Some(PEM), &outside), Vec::<String>::new());
        let own = ClusterAccess { endpoint: "https://api.example.com:6443".to_owned(), ..access() };
        assert_eq!(wrong_access(&own, Some(PEM), &outside), Vec::<String>::new());
        let six = ClusterAccess { service_cidr: "fd12:3456::/108".to_owned(), ..access() };
        let inside = Surroundings { service: Some("fd12:3456::1".parse().unwrap()), ..around() };
        assert_eq!(wrong_access(&six, Some(PEM), &inside), Vec::<String>::new());
    }

    #[test]
    fn an_endpoint_of_another_region_is_noticed_in_every_partition() {
        for (endpoint, region, other) in [
            ("https://ABC.gr7.us-gov-west-1.eks.amazonaws.com", "us-gov-west-1", "us-gov-east-1"),
            ("https://ABC.sk1.cn-north-1.eks.amazonaws.com.cn", "cn-north-1", "cn-northwest-1"),
        ] {
            let access = ClusterAccess { endpoint: endpoint.to_owned(), ..access() };
            let around = |region: &str| Surroundings { region: region.to_owned(), ..around() };
            assert_eq!(wrong_access(&access, Some(PEM), &around(region)), Vec::<String>::new());
            let wrong = wrong_access(&access, Some(PEM), &around(other));
            assert!(wrong.len() == 1 && wrong[0].contains(&format!("is in {region}, but")), "{wrong:?}");
        }
    }

    #[test]
    fn the_family_of_a_cluster_is_that_of_its_services_and_its_dns_is_the_tenth_of_them() {
        for (services, dns) in [
            ("10.100.0.0/16", None),
            ("", None),
            ("fd00::/200", None),
            ("fd12:3456:789a::/108", Some("fd12:3456:789a::a")),
        ] {
            let access = ClusterAccess { service_cidr: services.to_owned(), ..access() };
            assert_eq!(access.is_ipv6(), dns.is_some(), "{services}");
            assert_eq!(access.ipv6_dns().map(|dns| dns.to_string()).as_deref(), dns, "{services}");
        }
    }

    #[test]
    fn in_an_ipv6_cluster_the_command_shows_the_ipv6_range() {
        let inside = Surroundings { service: Some("fd12:3456::1".parse().unwrap()), ..around() };
        let wrong = wrong_access(&access(), Some(PEM), &inside);
        assert!(wrong.len() == 1 && wrong[0].contains("serviceIpv6Cidr"), "{wrong:?}");
    }

    #[test]
    fn what_is_not_configured_is_taken_from_eks_and_else_from_the_cluster_itself() {
        let name = || ClusterAccess {
            name: "prod".to_owned(),
            endpoint: String::new(),
            certificate_authority: String::new(),
            service_cidr: String::new(),
        };
        assert!(is_incomplete(&name()) && !is_incomplete(&access()));
        assert!(!is_incomplete(&ClusterAccess { name: String::new(), ..name() }), "there is nothing to ask for");
        assert_eq!(complete(name(), Some(&access()), Some("own"), Some("10.0.0.0/24")), access());
        let alone = complete(name(), None, Some("own"), Some("10.0.0.0/24"));
        assert_eq!((alone.endpoint.as_str(), alone.certificate_authority.as_str()), ("", "own"));
        assert_eq!(alone.service_cidr, "10.0.0.0/24");
        // A cluster that is being made has no endpoint yet.
        let making = ClusterAccess { endpoint: String::new(), service_cidr: String::new(), ..access() };
        let made = complete(name(), Some(&making), Some("own"), Some("10.0.0.0/24"));
        assert_eq!((made.certificate_authority.as_str(), made.service_cidr.as_str()), ("TUlJQg==", "10.0.0.0/24"));
        let own = ClusterAccess { endpoint: "https://api.example.com".to_owned(), ..name() };
        assert_eq!(complete(own, Some(&access()), None, None).endpoint, "https://api.example.com");
    }

    #[test]
    fn a_role_of_the_cluster_s_account_is_named_in_its_partition() {
        let arn = "arn:aws-us-gov:eks:us-gov-west-1:111122223333:cluster/prod".to_owned();
        let cluster = |authentication: Option<&str>| EksCluster {
            access: access(),
            arn: arn.clone(),
            vpc: None,
            authentication: authentication.map(str::to_owned),
        };
        assert_eq!(cluster(None).role("nodes").as_deref(), Some("arn:aws-us-gov:iam::111122223333:role/nodes"));
        assert_eq!(EksCluster { arn: String::new(), ..cluster(None) }.role("nodes"), None);
        assert!(cluster(Some("API")).takes_entries() && cluster(None).takes_entries());
        assert!(!cluster(Some("CONFIG_MAP")).takes_entries());
    }

    #[test]
    fn everything_that_is_missing_is_named_at_once_with_what_tells_it() {
        let nothing = ClusterAccess {
            name: String::new(),
            endpoint: String::new(),
            certificate_authority: String::new(),
            service_cidr: String::new(),
        };
        let wrong = wrong_access(&nothing, Some(""), &around());
        let keys: Vec<_> = wrong.iter().filter_map(|one| one.split(':').next()).collect();
        assert_eq!(keys, ["cluster.name", "cluster.endpoint", "cluster.certificateAuthority", "cluster.serviceCidr"]);
        assert!(wrong[1].contains("aws eks describe-cluster --name NAME"), "{wrong:?}");
    }

    #[test]
    fn what_contradicts_the_region_or_the_cluster_is_refused() {
        let other = PEM.replace("MIIB", "MIIC");
        let elsewhere = Surroundings { region: "eu-west-1".to_owned(), ..around() };
        let moved = Surroundings { service: Some("172.20.0.1".parse().unwrap()), ..around() };
        for (access, authority, around, says) in [
            (access(), Some(PEM), elsewhere, "is in us-west-2, but nodes are launched in eu-west-1"),
            (access(), Some(PEM), moved, "does not hold 172.20.0.1"),
            (access(), Some(other.as_str()), around(), "not the authority of the cluster"),
            (access(), None, around(), "not base64"),
            (access(), Some("plain"), around(), "not base64 of a PEM"),
            (ClusterAccess { endpoint: "http://a".to_owned(), ..access() }, Some(PEM), around(), "not an https:// URL"),
            (ClusterAccess { service_cidr: "10.0.0.0/40".to_owned(), ..access() }, Some(PEM), around(), "not a CIDR"),
        ] {
            let wrong = wrong_access(&access, authority, &around);
            assert!(wrong.len() == 1 && wrong[0].contains(says), "{says}: {wrong:?}");
        }
    }
}
