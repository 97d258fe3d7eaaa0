//! What EKS says of a cluster.

use muster_core::ec2::{ClusterAccess, ErrorClass};
use muster_ec2::{ClientOptions, Credentials, describe_cluster};

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
        found,
        ClusterAccess {
            name: "demo".to_owned(),
            endpoint: "https://127.0.0.1:6443".to_owned(),
            certificate_authority: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==".to_owned(),
            service_cidr: "10.100.0.0/16".to_owned(),
        }
    );
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
