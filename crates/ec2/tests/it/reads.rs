//! What the Region has: types, offerings, subnets, groups, images.

use muster_core::ec2::{ErrorClass, Offering, ResourceKind, Tags};
use muster_core::offering::NVIDIA_GPU;
use muster_ec2::{
    Client, ClientOptions, ConnectError, Credentials, ImageQuery, ImageSource, InstanceQuery, NetworkQuery,
};
use muster_ec2_sim::MarketType;

use crate::support::{GROUP, P5, SSM, SUBNET, World, ZONE, scenario, tags};

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
async fn an_image_is_resolved_by_ec2_itself_and_the_helper_template_is_kept() {
    let world = World::start().await;
    let of_template = tags().of(ResourceKind::LaunchTemplate);
    let source = ImageSource::SsmParameter(SSM.to_owned());
    let id = world.client.resolve_image(&source, &of_template).await.unwrap();
    assert!(id.starts_with("ami-"));
    assert_eq!(world.client.resolve_image(&source, &of_template).await.unwrap(), id);
    assert_eq!(world.simulator.launch_templates().len(), 1);
    let described =
        world.client.describe_images(&ImageQuery { ids: vec![id.clone()], ..ImageQuery::default() }).await.unwrap();
    assert_eq!(described[0].id, id);
    assert_eq!(world.client.resolve_image(&ImageSource::Id("ami-1".to_owned()), &of_template).await.unwrap(), "ami-1");
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
