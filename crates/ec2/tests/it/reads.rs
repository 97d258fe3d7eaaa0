//! What the Region has: types, offerings, subnets, groups, images.

use muster_core::ec2::{ErrorClass, Offering, Tags};
use muster_core::offering::NVIDIA_GPU;
use muster_ec2::{Client, ClientOptions, ConnectError, Credentials, ImageQuery, InstanceQuery, NetworkQuery};
use muster_ec2_sim::MarketType;
use muster_ec2_sim::choices::QuotaValue;

use crate::support::{BOTTLEROCKET, GROUP, P5, SSM, SUBNET, World, ZONE, scenario};

#[tokio::test]
async fn types_are_read_as_ec2_reports_them() {
    let world = World::start().await;
    let types = world.client.describe_instance_types(&[P5.to_owned()]).await.unwrap();
    let p5 = &types[0];
    assert_eq!((p5.name.as_str(), p5.vcpu, p5.memory_mib), (P5, 192, 2048 * 1024));
    assert_eq!(p5.capacity().get(NVIDIA_GPU), 8);
    assert_eq!((p5.efa_max, p5.network_cards.len()), (32, 32));
    assert!(p5.supports_cluster_group && p5.ipv4_per_interface > 0);
    let all = world.client.describe_instance_types(&[]).await.unwrap();
    assert!(all.len() > 1 && all.contains(p5));
    let unknown = world.client.describe_instance_types(&["p99.huge".to_owned()]).await.unwrap_err();
    assert_eq!(unknown.kind, ErrorClass::Configuration);
}

#[tokio::test]
async fn offerings_are_reported_for_one_zone_and_for_all() {
    let world = World::of(scenario().with_pool(P5, "us-east-1b", MarketType::OnDemand, 1, 1, 1)).await;
    let offerings = world.client.describe_offerings(&[ZONE.to_owned()]).await.unwrap();
    assert!(offerings.contains(&Offering { instance_type: P5.to_owned(), zone: ZONE.to_owned() }));
    assert!(offerings.iter().all(|offering| offering.zone == ZONE));
    let everywhere = world.client.describe_offerings(&[]).await.unwrap();
    assert!(everywhere.len() > offerings.len() && everywhere.is_superset(&offerings), "{everywhere:?}");
}

#[tokio::test]
async fn subnets_and_security_groups_are_found_by_id_and_by_tag() {
    let world = World::start().await;
    let by_id = world.client.describe_subnets(&NetworkQuery::Id(SUBNET.to_owned())).await.unwrap();
    assert_eq!((by_id.len(), by_id[0].zone.as_str()), (1, ZONE));
    assert!(by_id[0].free_addresses > 0 && !by_id[0].zone_id.is_empty());
    let by_tags = world.client.describe_subnets(&NetworkQuery::Tags(by_id[0].tags.clone())).await.unwrap();
    assert!(by_tags.contains(&by_id[0]));
    let group = world.client.describe_security_groups(&NetworkQuery::Id(GROUP.to_owned())).await.unwrap();
    assert!(group[0].allows_itself);
    let nothing = NetworkQuery::Id("subnet-nobody".to_owned());
    assert!(world.client.describe_subnets(&nothing).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_images_of_eks_and_of_bottlerocket_are_read_from_their_parameters_and_nothing_is_made_for_it() {
    let world = World::start().await;
    for path in [SSM, BOTTLEROCKET] {
        let id = world.client.image_parameter(path).await.unwrap();
        let query = ImageQuery { ids: vec![id.clone()], ..ImageQuery::default() };
        assert_eq!(world.client.describe_images(&query).await.unwrap()[0].id, id);
    }
    assert_eq!((world.seen("GetParameter"), world.seen("CreateLaunchTemplate")), (2, 0));
}

#[tokio::test]
async fn a_parameter_that_is_missing_is_another_error_than_one_that_may_not_be_read() {
    let world = World::start().await;
    let missing = world.client.image_parameter("/mine/image_id").await.unwrap_err();
    assert_eq!((missing.kind, missing.code.as_deref()), (ErrorClass::Configuration, Some("ParameterNotFound")));
    assert!(missing.request_id.is_some() && missing.operation == "GetParameter", "{missing:?}");
    world.simulator.deny(["ssm:GetParameter".to_owned()]);
    let denied = world.client.image_parameter(SSM).await.unwrap_err();
    assert_eq!(denied.kind, ErrorClass::Permission, "{denied:?}");
    assert!(denied.message.contains("ssm:GetParameter on resource: arn:aws:ssm:us-east-1::parameter/aws/service/eks"));
}

#[tokio::test]
async fn what_is_not_there_is_distinguished_from_what_failed() {
    let world = World::start().await;
    assert_eq!(world.client.describe_fleets("fleet-00000000-0000-0000-0000-000000000000").await.unwrap(), None);
    let all = world.client.describe_instances(&InstanceQuery::Tags(Tags::new())).await.unwrap_err();
    assert_eq!((all.kind, all.http_status), (ErrorClass::Configuration, None));
    assert_eq!(world.seen("DescribeInstances"), 0);
}

#[tokio::test]
async fn options_that_cannot_work_are_refused_before_any_call() {
    let options = |region: &str, endpoint: &str| ClientOptions {
        region: region.to_owned(),
        endpoint_url: Some(endpoint.to_owned()),
        credentials: Credentials::Default,
        launch_timeout: ClientOptions::LAUNCH_TIMEOUT,
    };
    assert_eq!(Client::connect(options("", "http://x")).await.unwrap_err(), ConnectError::Region);
    let wrong = Client::connect(options("us-east-1", "localhost:4566")).await.unwrap_err();
    assert_eq!(wrong, ConnectError::Endpoint { endpoint_url: "localhost:4566".to_owned() });
}

#[tokio::test]
async fn a_quota_is_what_the_account_was_granted_else_the_default_of_aws() {
    for choice in [QuotaValue::Applied, QuotaValue::DefaultAlone] {
        let mut scenario = crate::support::scenario();
        scenario.choices.quota_value = choice;
        scenario.quotas = [("p".to_owned(), 192), ("spot-g".to_owned(), 0)].into();
        let world = World::of(scenario).await;
        assert_eq!(world.client.vcpu_quota("L-417A185B").await.unwrap(), 192, "{choice:?}");
        assert_eq!(world.client.vcpu_quota("L-3819A6DF").await.unwrap(), 0, "{choice:?}");
        let unknown = world.client.vcpu_quota("L-00000000").await.unwrap_err();
        assert_eq!(unknown.code.as_deref(), Some("NoSuchResourceException"), "{unknown:?}");
        world.simulator.deny(["servicequotas:GetAWSDefaultServiceQuota".to_owned()]);
        let denied = world.client.vcpu_quota("L-417A185B").await.err().map(|denied| (denied.kind, denied.operation));
        let expected = (ErrorClass::Permission, "GetAWSDefaultServiceQuota".to_owned());
        assert_eq!(denied, (choice == QuotaValue::DefaultAlone).then_some(expected), "{choice:?}");
        world.simulator.deny(["servicequotas:GetServiceQuota".to_owned()]);
        let denied = world.client.vcpu_quota("L-417A185B").await.unwrap_err();
        assert_eq!((denied.kind, denied.operation.as_str()), (ErrorClass::Permission, "GetServiceQuota"), "{denied:?}");
    }
}

#[tokio::test]
async fn list_prices_are_read_page_by_page_for_dollars_by_the_hour() {
    let world = World::start().await;
    let prices = world.client.list_prices().await.unwrap();
    assert_eq!(prices.get("p5.48xlarge"), Some(&55_040_000));
    assert!(prices.len() > 20, "{prices:?}");
    world.client.try_list_prices().await.unwrap();
    world.simulator.deny(["pricing:GetProducts".to_owned()]);
    let denied = world.client.list_prices().await.unwrap_err();
    assert_eq!((denied.kind, denied.operation.as_str()), (ErrorClass::Permission, "GetProducts"), "{denied:?}");
    assert!(world.client.try_list_prices().await.is_err());
}
