//! What EKS says of a cluster.

use muster_core::ec2::{ClusterAccess, ErrorClass};
use muster_ec2::{ClientOptions, Credentials, NetworkQuery, access_entry, describe_cluster};

use muster_ec2_sim::Scenario;

use crate::support::World;

fn options(world: &World) -> ClientOptions {
    ClientOptions {
        region: "us-east-1".to_owned(),
        endpoint_url: Some(world.endpoint.clone()),
        credentials: Credentials::Static { access_key_id: "AK".to_owned(), secret_access_key: "secret".to_owned() },
        launch_timeout: ClientOptions::LAUNCH_TIMEOUT,
    }
}

#[tokio::test]
async fn the_way_to_a_cluster_is_read_by_its_name() {
    let world = World::start().await;
    let found = describe_cluster(options(&world), "demo").await.unwrap();
    assert_eq!(
        found.access,
        ClusterAccess {
            name: "demo".to_owned(),
            endpoint: "https://127.0.0.1:6443".to_owned(),
            certificate_authority: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==".to_owned(),
            service_cidr: "10.100.0.0/16".to_owned(),
        }
    );
    assert_eq!(found.vpc.as_deref(), Some(world.simulator.scenario().vpc.as_str()));
    assert_eq!(found.authentication.as_deref(), Some("API_AND_CONFIG_MAP"));
    assert_eq!(found.role("nodes").as_deref(), Some("arn:aws:iam::123456789012:role/nodes"));
}

#[tokio::test]
async fn a_cluster_with_ipv6_services_is_known_as_one_and_its_subnets_tell_whether_they_fit() {
    let mut scenario = Scenario::default();
    scenario.clusters[0].service_cidr = "fd12:3456:789a::/108".to_owned();
    scenario.zones[0].subnets[0].ipv6_cidr = Some("2600:1f14:abcd:ef00::/64".to_owned());
    let (with, without) = (scenario.zones[0].subnets[0].id.clone(), scenario.zones[1].subnets[0].id.clone());
    let world = World::of(scenario).await;
    let found = describe_cluster(options(&world), "demo").await.unwrap();
    assert!(found.access.is_ipv6() && found.access.service_cidr == "fd12:3456:789a::/108");
    for (subnet, ipv6) in [(with, true), (without, false)] {
        let found = world.client.describe_subnets(&NetworkQuery::Id(subnet.clone())).await.unwrap();
        assert_eq!(found[0].ipv6, ipv6, "{subnet}");
    }
}

#[tokio::test]
async fn the_access_entry_of_a_role_has_a_type_and_a_role_without_one_is_no_error() {
    let mut scenario = Scenario::default();
    let entries = [("nodes", "EC2_LINUX"), ("people", "STANDARD")];
    scenario.clusters[0].access_entries = Some(entries.map(|(role, kind)| (role.to_owned(), kind.to_owned())).into());
    let world = World::of(scenario).await;
    let entry = async |name: &str| {
        access_entry(options(&world), "demo", &format!("arn:aws:iam::123456789012:role/{name}")).await
    };
    assert_eq!(entry("nodes").await.unwrap().as_deref(), Some("EC2_LINUX"));
    assert_eq!(entry("people").await.unwrap().as_deref(), Some("STANDARD"));
    assert_eq!(entry("nobody").await.unwrap(), None);
    world.simulator.deny(["eks:DescribeAccessEntry".to_owned()]);
    assert_eq!(entry("nodes").await.unwrap_err().kind, ErrorClass::Permission);
}

#[tokio::test]
async fn a_cluster_that_knows_its_config_map_alone_has_no_access_entries() {
    let mut scenario = Scenario::default();
    scenario.clusters[0].authentication_mode = "CONFIG_MAP".to_owned();
    let world = World::of(scenario).await;
    assert!(!describe_cluster(options(&world), "demo").await.unwrap().takes_entries());
    let refused = access_entry(options(&world), "demo", "arn:aws:iam::123456789012:role/nodes").await.unwrap_err();
    assert_eq!(refused.code.as_deref(), Some("InvalidRequestException"), "{refused:?}");
}

#[tokio::test]
async fn a_cluster_that_is_not_there_is_another_error_than_one_that_may_not_be_described() {
    let world = World::start().await;
    let missing = describe_cluster(options(&world), "other").await.unwrap_err();
    assert_eq!(missing.code.as_deref(), Some("ResourceNotFoundException"));
    assert_eq!(missing.kind, ErrorClass::Configuration);
    world.simulator.deny(["eks:DescribeCluster".to_owned()]);
    let denied = describe_cluster(options(&world), "demo").await.unwrap_err();
    assert_eq!(denied.kind, ErrorClass::Permission, "{denied:?}");
}
