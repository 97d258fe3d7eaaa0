//! Calls to EC2 and the buckets they take their turns from, against the simulator in this process.

use muster::clock::Clock;
use muster::cloud::{Changes, Cloud, LimitSettings, Limits};
use muster::telemetry::Metrics;
use muster_core::ec2::{
    BatchTags, CapacityType, FleetTags, LaunchParameters, LaunchWay, MetadataOptions, ResourceKind, TAG_CLUSTER_UID,
    Tags, TemplateSpec,
};
use muster_ec2::{Client, ClientOptions, Credentials};
use muster_ec2_sim::{Scenario, Simulator, serve};

const SSM: &str = "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/nvidia/recommended/image_id";

/// The clients' clock: the simulator's.
async fn cloud(metrics: &Metrics) -> Cloud {
    let scenario = Scenario::demo();
    let clock = Clock::scaled(muster::clock::now_real(), 60);
    let simulator = Simulator::new(scenario).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { serve(listener, simulator, std::future::pending()).await });
    let client = Client::connect(ClientOptions {
        region: "us-east-1".to_owned(),
        endpoint_url: Some(endpoint),
        credentials: Credentials::Static {
            access_key_id: "AKIDEXAMPLE".to_owned(),
            secret_access_key: "secret".to_owned(),
        },
        launch_timeout: ClientOptions::LAUNCH_TIMEOUT,
    })
    .await
    .unwrap();
    let limits = Limits::new(&LimitSettings::default(), &clock, metrics.cloud.clone());
    Cloud::new(client, metrics.cloud.clone(), limits, "uid-of-the-cluster".to_owned(), clock, Changes::Sent)
}

fn tags() -> BatchTags {
    BatchTags {
        cluster_uid: "uid-of-the-cluster".to_owned(),
        cluster_name: "tests".to_owned(),
        batch_uid: "uid-of-the-batch".to_owned(),
        gang_uid: None,
        attempt: 1,
    }
}

fn template(user_data: &str) -> TemplateSpec {
    TemplateSpec {
        image_id: "ami-0123456789abcdef0".to_owned(),
        instance_profile: String::new(),
        network_interfaces: Vec::new(),
        subnet_id: None,
        public_address: None,
        metadata: MetadataOptions::default(),
        user_data: user_data.to_owned(),
        block_devices: Vec::new(),
        detailed_monitoring: false,
        capacity_type: CapacityType::OnDemand,
        template_tags: tags().of(ResourceKind::LaunchTemplate),
        resource_tags: tags().of(ResourceKind::Instance),
    }
}

fn launch() -> LaunchParameters {
    LaunchParameters {
        count: 1,
        instance_type: "p5.48xlarge".to_owned(),
        zone: "us-east-1a".to_owned(),
        subnet_id: "subnet-0000000000000000a".to_owned(),
        capacity_type: CapacityType::OnDemand,
        template_id: String::new(),
        template_version: 1,
        placement_group: None,
        way: LaunchWay::Fleet,
        reservation: None,
        partial: false,
        tags: tags(),
        fleet_tags: FleetTags::Documented,
        token: String::new(),
    }
}

fn turns(metrics: &Metrics, bucket: &str) -> u32 {
    let text = metrics.encode().unwrap();
    let start = format!("muster_ec2_rate_limiter_wait_duration_seconds_count{{bucket=\"{bucket}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&start)).map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn every_launch_template_that_is_deleted_takes_its_turn_in_the_clean_up_bucket() {
    let metrics = Metrics::default();
    let cloud = cloud(&metrics).await;
    for content in ["first", "second", "third"] {
        cloud.create_launch_template(&template(content)).await.unwrap();
    }
    assert_eq!((turns(&metrics, "launch"), turns(&metrics, "cleanUp")), (3, 0));

    cloud.delete_launch_templates(&tags()).await.unwrap();

    assert_eq!(turns(&metrics, "cleanUp"), 3);
    assert_eq!(cloud.launch_templates(&tags().sweep()).await.unwrap(), []);
}

#[tokio::test]
async fn a_trial_deletes_what_a_trial_before_it_left_and_nothing_of_a_batch() {
    let metrics = Metrics::default();
    let cloud = cloud(&metrics).await;
    let ours = Tags::from([(TAG_CLUSTER_UID.to_owned(), "uid-of-the-cluster".to_owned())]);
    // A process that ended between making and deleting its template leaves this.
    cloud.create_launch_template(&TemplateSpec { template_tags: ours.clone(), ..template("left") }).await.unwrap();
    let of_batch = cloud.create_launch_template(&template("of a batch")).await.unwrap();

    let trial = TemplateSpec { template_tags: ours.clone(), ..template("trial") };
    cloud.try_out(&trial, launch(), "tests-trial-1").await.unwrap_or_default();

    let left: Vec<String> = cloud.launch_templates(&ours).await.unwrap().into_iter().map(|one| one.id).collect();
    assert_eq!(left, [of_batch.id]);
}

#[tokio::test]
async fn the_image_of_a_parameter_is_read_without_a_turn_and_without_a_template() {
    let metrics = Metrics::default();
    let cloud = cloud(&metrics).await;

    assert!(cloud.image_parameter(SSM).await.unwrap().starts_with("ami-"));

    assert_eq!((turns(&metrics, "launch"), turns(&metrics, "cleanUp")), (0, 0));
}
