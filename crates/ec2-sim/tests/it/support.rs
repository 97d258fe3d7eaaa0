//! A client of a few lines, and the requests most tests begin with.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use jiff::SignedDuration;
use muster_ec2_sim::{MarketType, Scenario, Simulator};
use tower::ServiceExt;

pub(crate) const P5: &str = "p5.48xlarge";
pub(crate) const SUBNET_A: &str = "subnet-0000000000000000a";
pub(crate) const SUBNET_B: &str = "subnet-0000000000000000b";
pub(crate) const SSM: &str =
    "resolve:ssm:/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/nvidia/recommended/image_id";

/// A simulator with a clock of its own and its routes.
pub(crate) struct Sim {
    pub(crate) simulator: Arc<Simulator>,
    router: Router,
}

/// An answer: its status and its body.
pub(crate) type Answer = (StatusCode, String);

/// Two spines of two leaves of two p5 in us-east-1a, and one spine of 8 in us-east-1b.
pub(crate) fn small() -> Scenario {
    let mut scenario = Scenario::default()
        .with_pool(P5, "us-east-1a", MarketType::OnDemand, 2, 2, 2)
        .with_pool(P5, "us-east-1b", MarketType::OnDemand, 1, 4, 2)
        .with_pool("m5.2xlarge", "us-east-1a", MarketType::OnDemand, 1, 1, 4);
    scenario.clock.manual = true;
    scenario.seed = 7;
    scenario
}

impl Sim {
    pub(crate) fn new(scenario: Scenario) -> Self {
        let simulator = Simulator::new(scenario).expect("the scenario is playable");
        let router = simulator.router();
        Self { simulator, router }
    }

    pub(crate) fn small() -> Self {
        Self::new(small())
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.simulator.clock().advance(SignedDuration::from_secs(seconds));
    }

    /// One call, or nothing if its answer got lost.
    pub(crate) async fn try_call(&self, action: &str, parameters: &[(&str, &str)]) -> Option<Answer> {
        let mut body = format!("Action={action}&Version=2016-11-15");
        for (name, value) in parameters {
            body.push('&');
            body.push_str(name);
            body.push('=');
            body.extend(form_urlencoded::byte_serialize(value.as_bytes()));
        }
        let request = Request::post("/")
            .header("authorization", "AWS4-HMAC-SHA256 Credential=x")
            .header("amz-sdk-request", "attempt=1; max=1")
            .body(Body::from(body))
            .expect("the request is well-formed");
        self.send(request).await
    }

    pub(crate) async fn call(&self, action: &str, parameters: &[(&str, &str)]) -> Answer {
        self.try_call(action, parameters).await.expect("an answer arrives")
    }

    /// A call that has to succeed.
    pub(crate) async fn ok(&self, action: &str, parameters: &[(&str, &str)]) -> String {
        let (status, body) = self.call(action, parameters).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        body
    }

    /// A call that has to fail; its status and code.
    pub(crate) async fn refused(&self, action: &str, parameters: &[(&str, &str)]) -> (u16, String) {
        let (status, body) = self.call(action, parameters).await;
        assert_ne!(status, StatusCode::OK, "{body}");
        (status.as_u16(), text(&body, "Code").to_owned())
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Option<Answer> {
        let response = self.router.clone().oneshot(request).await.expect("the router does not fail");
        let status = response.status();
        let bytes = to_bytes(response.into_body(), usize::MAX).await.ok()?;
        Some((status, String::from_utf8(bytes.to_vec()).expect("answers are UTF-8")))
    }

    pub(crate) async fn get(&self, path: &str) -> serde_json::Value {
        let request = Request::get(path).body(Body::empty()).expect("the path is good");
        let (status, body) = self.send(request).await.expect("an answer arrives");
        assert_eq!(status, StatusCode::OK, "{body}");
        serde_json::from_str(&body).expect("the control endpoint speaks JSON")
    }

    pub(crate) async fn post(&self, path: &str, body: serde_json::Value) -> Answer {
        let request = Request::post(path)
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .expect("the path is good");
        self.send(request).await.expect("an answer arrives")
    }

    /// Makes a template for p5 with two interfaces; returns its id.
    pub(crate) async fn template(&self) -> String {
        self.template_of(SSM).await
    }

    /// The same with another image.
    pub(crate) async fn template_of(&self, image: &str) -> String {
        let mut parameters = vec![
            ("LaunchTemplateName", "hash-1"),
            ("ClientToken", "lt-token"),
            ("LaunchTemplateData.ImageId", image),
            ("LaunchTemplateData.UserData", "aGVsbG8="),
            ("LaunchTemplateData.NetworkInterface.1.DeviceIndex", "0"),
            ("LaunchTemplateData.NetworkInterface.1.SecurityGroupId.1", "sg-00000000000000001"),
            ("LaunchTemplateData.NetworkInterface.2.NetworkCardIndex", "1"),
            ("LaunchTemplateData.NetworkInterface.2.DeviceIndex", "0"),
            ("LaunchTemplateData.NetworkInterface.2.InterfaceType", "efa-only"),
            ("TagSpecification.1.ResourceType", "launch-template"),
            ("TagSpecification.1.Tag.1.Key", "muster.dev/cluster-uid"),
            ("TagSpecification.1.Tag.1.Value", "c1"),
        ];
        parameters.extend(tags("LaunchTemplateData.TagSpecification", &["volume", "network-interface"]));
        let body = self.ok("CreateLaunchTemplate", &parameters).await;
        text(&body, "launchTemplateId").to_owned()
    }

    pub(crate) async fn group(&self, name: &str) {
        self.ok("CreatePlacementGroup", &[("GroupName", name), ("Strategy", "cluster")]).await;
    }
}

/// The parameters of an all-or-nothing CreateFleet of `n` p5 in one subnet.
pub(crate) struct Fleet<'a> {
    pub(crate) template: &'a str,
    pub(crate) n: &'a str,
    pub(crate) token: &'a str,
    pub(crate) subnet: &'a str,
    pub(crate) group: Option<&'a str>,
}

impl<'a> Fleet<'a> {
    pub(crate) fn of(template: &'a str, n: &'a str, token: &'a str) -> Self {
        Self { template, n, token, subnet: SUBNET_A, group: None }
    }

    pub(crate) fn parameters(&self) -> Vec<(&'a str, &'a str)> {
        let mut parameters = vec![
            ("Type", "instant"),
            ("ClientToken", self.token),
            ("TargetCapacitySpecification.TotalTargetCapacity", self.n),
            ("TargetCapacitySpecification.DefaultTargetCapacityType", "on-demand"),
            ("OnDemandOptions.AllocationStrategy", "prioritized"),
            ("OnDemandOptions.SingleInstanceType", "true"),
            ("OnDemandOptions.SingleAvailabilityZone", "true"),
            ("OnDemandOptions.MinTargetCapacity", self.n),
            ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateId", self.template),
            ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version", "1"),
            ("LaunchTemplateConfigs.1.Overrides.1.InstanceType", P5),
            ("LaunchTemplateConfigs.1.Overrides.1.SubnetId", self.subnet),
            ("LaunchTemplateConfigs.1.Overrides.1.Priority", "0"),
        ];
        if let Some(group) = self.group {
            parameters.push(("LaunchTemplateConfigs.1.Overrides.1.Placement.GroupName", group));
        }
        parameters.extend(tags("TagSpecification", &["fleet", "instance"]));
        parameters
    }
}

/// Our tags for resources of these types, in a list of this name.
fn tags(list: &str, kinds: &[&'static str]) -> Vec<(&'static str, &'static str)> {
    let mut parameters = Vec::new();
    for (kind, number) in kinds.iter().zip(1..) {
        let name = |rest: &str| -> &'static str { Box::leak(format!("{list}.{number}.{rest}").into_boxed_str()) };
        parameters.push((name("ResourceType"), *kind));
        for ((key, value), index) in [
            ("muster.dev/cluster-uid", "c1"),
            ("muster.dev/batch", "b1"),
            ("muster.dev/attempt", "1"),
            ("kubernetes.io/cluster/demo", "owned"),
        ]
        .into_iter()
        .zip(1..)
        {
            parameters.push((name(&format!("Tag.{index}.Key")), key));
            parameters.push((name(&format!("Tag.{index}.Value")), value));
        }
    }
    parameters
}

/// The text of the first element of this name.
pub(crate) fn text<'a>(body: &'a str, name: &str) -> &'a str {
    texts(body, name).into_iter().next().unwrap_or_else(|| panic!("no {name} in {body}"))
}

/// The texts of all elements of this name.
pub(crate) fn texts<'a>(body: &'a str, name: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    body.split(&open).skip(1).filter_map(|rest| rest.split(&close).next()).collect()
}

/// The instance ids of a fleet's answer.
pub(crate) fn fleet_ids(body: &str) -> Vec<String> {
    texts(body, "instanceIds").iter().flat_map(|ids| texts(ids, "item")).map(str::to_owned).collect()
}
