//! Calls to EC2 and the buckets they take their turns from, against the simulator in this process.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster::clock::Clock;
use muster::cloud::{Changes, Cloud, LimitSettings, Limits};
use muster::telemetry::Metrics;
use muster_core::ec2::{
    BatchTags, CapacityType, FleetTags, LaunchParameters, LaunchWay, MetadataOptions, ResourceKind, TAG_CLUSTER_UID,
    Tags, TemplateSpec,
};
use muster_core::model::names::InstanceId;
use muster_ec2::{Client, ClientOptions, Credentials};
use muster_ec2_sim::scenario::OtherInstances;
use muster_ec2_sim::{MarketType, Scenario, Simulator, serve};

const UID: &str = "uid-of-the-cluster";
const P5: &str = "p5.48xlarge";
const SSM: &str = "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/nvidia/recommended/image_id";

async fn cloud(metrics: &Metrics) -> Cloud {
    cloud_of(Scenario::demo(), metrics).await.0
}

async fn cloud_of(scenario: Scenario, metrics: &Metrics) -> (Cloud, Arc<Simulator>) {
    let clock = Clock::scaled(muster::clock::now_real(), 60);
    let simulator = Simulator::new(scenario).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let served = Arc::clone(&simulator);
    tokio::spawn(async move { serve(listener, served, std::future::pending()).await });
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
    let cloud = Cloud::new(client, metrics.cloud.clone(), limits, UID.to_owned(), clock, Changes::Sent);
    (cloud, simulator)
}

fn tags() -> BatchTags {
    BatchTags {
        cluster_uid: UID.to_owned(),
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
        primary_ipv6: false,
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
        overrides: Vec::new(),
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
    let ours = Tags::from([(TAG_CLUSTER_UID.to_owned(), UID.to_owned())]);
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

/// EC2 counts calls, and a reading of a large cluster is several: what is in no bucket is what others of the account are
/// refused for.
#[tokio::test]
async fn every_page_and_every_part_of_a_long_list_takes_a_turn_of_its_own() {
    let metrics = Metrics::default();
    let mut scenario = Scenario::default().with_pool(P5, "us-east-1a", MarketType::OnDemand, 1, 1, 1001);
    scenario.throttling = false;
    scenario.others = vec![OtherInstances {
        instance_type: P5.to_owned(),
        zone: "us-east-1a".to_owned(),
        capacity_type: MarketType::OnDemand,
        count: 1001,
        tags: BTreeMap::from([(TAG_CLUSTER_UID.to_owned(), UID.to_owned())]),
    }];
    let (cloud, simulator) = cloud_of(scenario, &metrics).await;
    let ours = Tags::from([(TAG_CLUSTER_UID.to_owned(), UID.to_owned())]);
    let mut ids: Vec<InstanceId> =
        simulator.instances().iter().map(|one| InstanceId::from(one.instance_id.as_str())).collect();
    // One that EC2 does not know makes it refuse a call, which is sent again without it.
    ids.push(InstanceId::from("i-ffffffffffffffff0"));

    assert_eq!(cloud.instances_by_tags(&ours).await.unwrap().len(), 1001);
    assert_eq!(cloud.instances(&ids).await.unwrap().len(), 1001);
    assert_eq!(cloud.health(&ids).await.unwrap().len(), 1001);
    cloud.topology(None, &ids[..250]).await.unwrap();
    cloud.terminate_instances(&ids).await.unwrap();

    let calls = |operations: &[&str]| -> u32 {
        let journal = simulator.journal();
        u32::try_from(journal.iter().filter(|entry| operations.contains(&entry.operation.as_str())).count()).unwrap()
    };
    for (bucket, operations, fewest) in [
        ("describe", &["DescribeInstances", "DescribeInstanceStatus"][..], 2 + 4 + 12),
        ("topology", &["DescribeInstanceTopology"], 3),
        ("terminate", &["TerminateInstances"], 4),
    ] {
        assert_eq!((turns(&metrics, bucket), calls(operations)), (fewest, fewest), "{bucket}");
    }
}

#[tokio::test]
async fn a_template_that_is_there_already_is_looked_up_in_a_turn_of_its_own() {
    let metrics = Metrics::default();
    let mut scenario = Scenario::demo();
    // Another process, or the same one later: the name alone shows that it was made.
    scenario.choices.token_life_seconds = Some(0);
    let (cloud, _simulator) = cloud_of(scenario, &metrics).await;
    let made = cloud.create_launch_template(&template("same")).await.unwrap();
    assert_eq!(turns(&metrics, "describe"), 0);
    assert_eq!(cloud.create_launch_template(&template("same")).await.unwrap().id, made.id);
    assert_eq!((turns(&metrics, "launch"), turns(&metrics, "describe")), (2, 1));
}
