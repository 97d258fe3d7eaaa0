//! A simulator with a client, and the intents most tests begin with.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use muster_core::ec2::{
    BatchTags, CapacityType, Efa, FleetTags, LaunchParameters, LaunchTemplate, LaunchWay, MetadataOptions, Purpose,
    ResourceKind, Tags, TemplateSpec, efa_layout, placement_group_name,
};
use muster_ec2::{Client, ClientOptions, Credentials};
use muster_ec2_sim::{MarketType, Scenario, Simulator, serve};

pub(crate) const P5: &str = "p5.48xlarge";
pub(crate) const ZONE: &str = "us-east-1a";
pub(crate) const SUBNET: &str = "subnet-0000000000000000a";
pub(crate) const GROUP: &str = "sg-00000000000000001";
pub(crate) const SSM: &str = "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/nvidia/recommended/image_id";
pub(crate) const BOTTLEROCKET: &str = "/aws/service/bottlerocket/aws-k8s-1.33-nvidia/x86_64/latest/image_id";

pub(crate) struct World {
    pub(crate) simulator: Arc<Simulator>,
    pub(crate) client: Client,
    pub(crate) endpoint: String,
}

impl World {
    /// Two spines of two leaves of two p5 in one zone, on a clock that stands still.
    pub(crate) async fn start() -> Self {
        Self::of(scenario()).await
    }

    pub(crate) async fn of(scenario: Scenario) -> Self {
        let simulator = Simulator::new(scenario).expect("the scenario is playable");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("a bound socket has an address"));
        let served = Arc::clone(&simulator);
        tokio::spawn(async move { serve(listener, served, std::future::pending()).await });
        let client = client(&endpoint, ClientOptions::LAUNCH_TIMEOUT).await;
        Self { simulator, client, endpoint }
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.simulator.clock().advance(SignedDuration::from_secs(seconds));
    }

    /// Calls of one operation the simulator has seen.
    pub(crate) fn seen(&self, operation: &str) -> usize {
        self.simulator.journal().iter().filter(|entry| entry.operation == operation).count()
    }

    /// A template with the EFA layout of p5 and a resolved image.
    pub(crate) async fn template(&self, tags: &BatchTags) -> LaunchTemplate {
        self.template_in(tags, None, CapacityType::OnDemand).await
    }

    /// As [`World::template`], with the subnet in the interfaces.
    pub(crate) async fn template_in(
        &self,
        tags: &BatchTags,
        subnet_id: Option<String>,
        capacity_type: CapacityType,
    ) -> LaunchTemplate {
        self.template_with(tags, subnet_id, capacity_type, "hello").await
    }

    /// As [`World::template_in`], with user data of its own.
    pub(crate) async fn template_with(
        &self,
        tags: &BatchTags,
        subnet_id: Option<String>,
        capacity_type: CapacityType,
        user_data: &str,
    ) -> LaunchTemplate {
        let types = self.client.describe_instance_types(&[P5.to_owned()]).await.expect("the simulator answers");
        let of_template = tags.of(ResourceKind::LaunchTemplate);
        self.client.create_launch_template(&other(&of_template)).await.expect("the simulator answers");
        let image_id = self.client.image_parameter(SSM).await.expect("the simulator answers");
        let spec = TemplateSpec {
            image_id,
            instance_profile: "nodes".to_owned(),
            subnet_id,
            public_address: None,
            primary_ipv6: false,
            metadata: MetadataOptions::default(),
            network_interfaces: efa_layout(&types[0], Efa::Auto, Purpose::Gang, &[GROUP.to_owned()]),
            user_data: user_data.to_owned(),
            block_devices: Vec::new(),
            detailed_monitoring: false,
            capacity_type,
            template_tags: of_template,
            resource_tags: tags.of(ResourceKind::Instance),
        };
        self.client.create_launch_template(&spec).await.expect("the simulator answers")
    }

    /// Group and template exist; the launch is ready to be sent.
    pub(crate) async fn intent(&self, count: u32) -> LaunchParameters {
        self.intent_on(CapacityType::OnDemand, count).await
    }

    /// A second launch beside `first`: by RunInstances, and outside the group.
    pub(crate) async fn run_beside(&self, first: &LaunchParameters, count: u32) -> LaunchParameters {
        let tags = BatchTags { attempt: 2, ..tags() };
        let template = self.template_in(&tags, Some(SUBNET.to_owned()), first.capacity_type).await;
        LaunchParameters {
            count,
            way: LaunchWay::Run,
            placement_group: None,
            template_id: template.id,
            tags,
            ..first.clone()
        }
        .with_token(1)
    }

    /// As [`World::intent`], for a capacity type.
    pub(crate) async fn intent_on(&self, capacity_type: CapacityType, count: u32) -> LaunchParameters {
        let tags = tags();
        let group = placement_group_name(&tags.cluster_name, &tags.batch_uid, 1);
        self.client
            .create_placement_group(&group, &tags.of(ResourceKind::PlacementGroup))
            .await
            .expect("the simulator answers");
        let template = self.template_in(&tags, None, capacity_type).await;
        LaunchParameters {
            count,
            instance_type: P5.to_owned(),
            zone: ZONE.to_owned(),
            subnet_id: SUBNET.to_owned(),
            capacity_type,
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
        }
        .with_token(1)
    }
}

/// Two spines of two leaves of two p5 in one zone, on a clock that stands still.
pub(crate) fn scenario() -> Scenario {
    let mut scenario = Scenario::default().with_pool(P5, ZONE, MarketType::OnDemand, 2, 2, 2);
    scenario.clock.manual = true;
    scenario.seed = 7;
    scenario
}

pub(crate) async fn client(endpoint: &str, launch_timeout: Duration) -> Client {
    let credentials =
        Credentials::Static { access_key_id: "AKIDEXAMPLE".to_owned(), secret_access_key: "secret".to_owned() };
    Client::connect(ClientOptions {
        region: "us-east-1".to_owned(),
        endpoint_url: Some(endpoint.to_owned()),
        credentials,
        launch_timeout,
    })
    .await
    .expect("the options are valid")
}

pub(crate) fn tags() -> BatchTags {
    BatchTags {
        cluster_uid: "cluster-1".to_owned(),
        cluster_name: "prod".to_owned(),
        batch_uid: "0f9c2d4e-1111".to_owned(),
        gang_uid: Some("gang-1".to_owned()),
        attempt: 1,
    }
}

/// Another template, made before. The ids that the simulator gives follow from what was made before, and tokens from ids:
/// with it the calls that are written down stay as they were when an image took a template to be resolved.
fn other(template_tags: &Tags) -> TemplateSpec {
    TemplateSpec {
        image_id: format!("resolve:ssm:{SSM}"),
        instance_profile: String::new(),
        network_interfaces: Vec::new(),
        subnet_id: None,
        public_address: None,
        primary_ipv6: false,
        metadata: MetadataOptions::default(),
        user_data: String::new(),
        block_devices: Vec::new(),
        detailed_monitoring: false,
        capacity_type: CapacityType::OnDemand,
        template_tags: template_tags.clone(),
        resource_tags: Tags::new(),
    }
}
