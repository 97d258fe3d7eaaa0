//! `muster gc --account`: what one cluster left in an account is listed, and ended, without any cluster.

use std::sync::Arc;
use std::time::Duration;

use muster::clock::Clock;
use muster::cloud::{Changes, Cloud, LimitSettings, Limits};
use muster::commands::gc_account::{collect, list};
use muster::telemetry::Metrics;
use muster_core::ec2::{
    BatchTags, CapacityType, FleetTags, LaunchParameters, LaunchWay, MetadataOptions, ResourceKind, TemplateSpec,
};
use muster_ec2::{Client, ClientOptions, Credentials};
use muster_ec2_sim::{MarketType, Scenario, Simulator};
use tokio::net::TcpListener;

const TYPE: &str = "m5.2xlarge";
const UID: &str = "01234567-89ab-cdef-0123-456789abcdef";
const OTHER: &str = "fedcba98-89ab-cdef-0123-456789abcdef";

/// A simulated account, and where it answers.
async fn account() -> (Arc<Simulator>, String) {
    let mut scenario = Scenario::default().with_pool(TYPE, "us-east-1a", MarketType::OnDemand, 1, 1, 8);
    scenario.delays.boot_seconds = 0.0;
    scenario.delays.terminate_seconds = 0.0;
    let image = muster_ec2_sim::scenario::Image { id: "ami-1".to_owned(), name: "own".to_owned(), path: None };
    scenario.images = vec![image];
    let simulator = Simulator::new(scenario).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(muster_ec2_sim::serve(listener, Arc::clone(&simulator), std::future::pending()));
    (simulator, endpoint)
}

async fn world() -> (Arc<Simulator>, Client) {
    let (simulator, endpoint) = account().await;
    let client = connected(endpoint).await;
    (simulator, client)
}

/// A client of an account that answers there.
pub(super) async fn connected(endpoint: String) -> Client {
    Client::connect(ClientOptions {
        region: "us-east-1".to_owned(),
        endpoint_url: Some(endpoint),
        credentials: Credentials::Static { access_key_id: "AK".to_owned(), secret_access_key: "s".to_owned() },
        launch_timeout: ClientOptions::LAUNCH_TIMEOUT,
    })
    .await
    .unwrap()
}

/// The client behind the rate limits that `muster serve` keeps, and what they count.
fn limited(client: Client) -> (Cloud, Metrics) {
    let (metrics, clock) = (Metrics::default(), Clock::real());
    let limits = Limits::new(&LimitSettings::default(), &clock, metrics.cloud.clone());
    let cloud = Cloud::new(client, metrics.cloud.clone(), limits, UID.to_owned(), clock, Changes::Sent);
    (cloud, metrics)
}

async fn launched(ec2: &Client, uid: &str) {
    launched_of(ec2, (uid, "prod"), TYPE, "ami-1").await;
}

/// Two instances in a group, as `muster serve` of a cluster launches them.
pub(super) async fn launched_of(ec2: &Client, (uid, cluster): (&str, &str), instance_type: &str, image: &str) {
    let tags = BatchTags {
        cluster_uid: uid.to_owned(),
        cluster_name: cluster.to_owned(),
        batch_uid: format!("batch-of-{uid}"),
        gang_uid: None,
        attempt: 1,
    };
    let group = format!("{cluster}-{uid}");
    ec2.create_placement_group(&group, &tags.of(ResourceKind::PlacementGroup)).await.unwrap();
    let spec = TemplateSpec {
        image_id: image.to_owned(),
        instance_profile: "nodes".to_owned(),
        network_interfaces: Vec::new(),
        subnet_id: None,
        public_address: None,
        primary_ipv6: false,
        metadata: MetadataOptions::default(),
        user_data: String::new(),
        block_devices: Vec::new(),
        detailed_monitoring: false,
        capacity_type: CapacityType::OnDemand,
        template_tags: tags.of(ResourceKind::LaunchTemplate),
        resource_tags: tags.of(ResourceKind::Instance),
    };
    let template = ec2.create_launch_template(&spec).await.unwrap();
    let launch = LaunchParameters {
        count: 2,
        instance_type: instance_type.to_owned(),
        zone: "us-east-1a".to_owned(),
        subnet_id: "subnet-0000000000000000a".to_owned(),
        capacity_type: CapacityType::OnDemand,
        template_id: template.id,
        template_version: template.latest_version,
        placement_group: Some(group),
        way: LaunchWay::Fleet,
        reservation: None,
        partial: false,
        tags,
        fleet_tags: FleetTags::Documented,
        overrides: Vec::new(),
        token: String::new(),
    };
    ec2.create_fleet(&launch.with_token(1)).await.unwrap();
}

#[tokio::test]
async fn what_a_cluster_left_is_listed_and_ended_and_nothing_of_another_is_touched() {
    let (simulator, ec2) = world().await;
    launched(&ec2, UID).await;
    launched(&ec2, OTHER).await;
    let (ec2, _) = limited(ec2);
    let calls = simulator.journal().len();

    let found = list(&ec2, UID).await.unwrap();
    assert_eq!((found.instances.len(), found.placement_groups.len(), found.launch_templates.len()), (2, 1, 1));
    let listed = &simulator.journal()[calls..];
    assert!(listed.iter().all(|entry| entry.operation.starts_with("Describe")), "to list changes nothing");

    let left = collect(&ec2, UID, Duration::from_secs(60)).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
    let other = list(&ec2, OTHER).await.unwrap();
    assert_eq!((other.instances.len(), other.placement_groups.len(), other.launch_templates.len()), (2, 1, 1));

    // Again is no mistake.
    assert!(collect(&ec2, UID, Duration::from_secs(60)).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_does_not_end_in_time_is_what_is_left_and_the_next_run_goes_on() {
    let (simulator, ec2) = world().await;
    launched(&ec2, UID).await;
    let hang =
        muster_ec2_sim::FaultKind::Error { code: "InternalError".to_owned(), status: 500, message: "no".to_owned() };
    let (ec2, _) = limited(ec2);
    simulator.add_fault(muster_ec2_sim::Fault::of(hang).on("DeleteLaunchTemplate"));
    assert!(collect(&ec2, UID, Duration::from_secs(60)).await.is_err());
    assert!(list(&ec2, UID).await.unwrap().instances.is_empty(), "what was done stays done");
    simulator.clear_faults();
    assert!(collect(&ec2, UID, Duration::from_secs(60)).await.unwrap().is_empty());
}

#[tokio::test]
async fn every_call_waits_for_its_turn_below_the_limits_of_ec2() {
    let (simulator, ec2) = world().await;
    launched(&ec2, UID).await;
    let (ec2, metrics) = limited(ec2);
    let before = simulator.journal().len();
    assert!(collect(&ec2, UID, Duration::from_secs(60)).await.unwrap().is_empty());
    let sent = simulator.journal().split_off(before);
    let turns = |bucket: &str| {
        let text = metrics.encode().unwrap();
        let name = format!("muster_ec2_rate_limiter_wait_duration_seconds_count{{bucket=\"{bucket}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&*name)?.parse::<usize>().ok()).unwrap_or(0)
    };
    let of = |begins: &str| sent.iter().filter(|entry| entry.operation.starts_with(begins)).count();
    assert_eq!((turns("describe"), turns("terminate"), turns("cleanUp")), (of("Describe"), 1, 2));
    assert_eq!((of("Terminate"), of("Delete")), (1, 2));
}

/// Runs `muster gc --account` in that account: exit code and output.
async fn gc(endpoint: &str, more: &[&str]) -> (Option<i32>, String) {
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["gc", "--account", "--cluster-uid", UID, "--region", "us-east-1", "--endpoint-url", endpoint])
        .args(more)
        .env_remove("KUBECONFIG")
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[tokio::test]
async fn the_command_terminates_only_what_was_confirmed_and_its_exit_code_is_whether_something_is_left() {
    let (simulator, endpoint) = account().await;
    assert_eq!(gc(&endpoint, &[]).await, (Some(0), format!("nothing is left of cluster {UID}\n")));
    let ec2 = connected(endpoint.clone()).await;
    launched(&ec2, UID).await;
    launched(&ec2, OTHER).await;
    let live = || simulator.instances().into_iter().filter(|one| one.state != "terminated").count();

    let (code, listed) = gc(&endpoint, &[]).await;
    assert_eq!((code, live()), (Some(3), 4), "to list changes nothing: {listed}");
    assert!(listed.contains("--confirm ends all of it") && listed.lines().count() == 5, "{listed}");
    let (code, names) = gc(&endpoint, &["-o", "name"]).await;
    assert_eq!((code, names.lines().count()), (Some(3), 4), "{names}");

    let (code, left) = gc(&endpoint, &["--confirm"]).await;
    assert_eq!((code, live()), (Some(0), 2), "{left}");
    assert!(left.contains("nothing is left"), "{left}");
    assert_eq!(gc(&endpoint, &["--confirm"]).await.0, Some(0), "again is no mistake");
}

#[test]
fn the_json_of_the_list_has_a_stable_shape() {
    let account = muster::commands::gc_account::Account {
        cluster_uid: UID.to_owned(),
        instances: Vec::new(),
        placement_groups: vec!["g".to_owned()],
        launch_templates: [("lt-1".to_owned(), "t".to_owned())].into(),
    };
    let expected = serde_json::json!({
        "clusterUid": UID, "instances": [], "placementGroups": ["g"], "launchTemplates": {"lt-1": "t"},
    });
    assert_eq!(serde_json::to_value(account).unwrap(), expected);
}
