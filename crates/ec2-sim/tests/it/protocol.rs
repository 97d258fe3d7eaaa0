//! What holds for every operation.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use tower::ServiceExt;

use crate::support::{Sim, text};

#[tokio::test]
async fn an_unknown_operation_is_refused_by_name_and_journalled() {
    let sim = Sim::small();
    let (status, body) = sim.call("CreateVolume", &[("Size", "1")]).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(
        body,
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Response><Errors><Error>\
             <Code>InvalidAction</Code>\
             <Message>The simulator does not play the operation \"CreateVolume\"</Message>\
             </Error></Errors><RequestID>{}</RequestID></Response>",
            text(&body, "RequestID")
        )
    );
    let journal = sim.simulator.journal();
    assert_eq!(journal[0].operation, "CreateVolume");
    assert_eq!(journal[0].code.as_deref(), Some("InvalidAction"));
    assert_eq!(journal[0].attempt, Some(1));
    assert_eq!(journal[0].parameters["Size"], "1");
}

#[tokio::test]
async fn an_unsigned_request_is_refused() {
    let sim = Sim::small();
    let request = Request::post("/").body(Body::from("Action=DescribeSubnets")).expect("the request is well-formed");
    let (status, body) = sim.send(request).await.expect("an answer arrives");
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert_eq!(text(&body, "Code"), "MissingAuthenticationToken");
}

#[tokio::test]
async fn the_request_id_is_in_the_header_too() {
    let sim = Sim::small();
    let request = Request::post("/")
        .header("authorization", "AWS4-HMAC-SHA256 Credential=x")
        .body(Body::from("Action=DescribeSubnets"))
        .expect("the request is well-formed");
    let response = sim.simulator.router().oneshot(request).await.expect("the router does not fail");
    let header = response.headers()["x-amzn-requestid"].to_str().expect("it is ASCII").to_owned();
    assert_eq!(header, sim.simulator.journal()[0].request_id);
}

#[tokio::test]
async fn a_dry_run_does_nothing() {
    let sim = Sim::small();
    let refused = sim.refused("CreatePlacementGroup", &[("GroupName", "pg"), ("DryRun", "true")]).await;
    assert_eq!(refused, (412, "DryRunOperation".to_owned()));
    assert!(sim.simulator.placement_groups().is_empty());
}

#[tokio::test]
async fn the_caller_has_an_identity() {
    let sim = Sim::small();
    let body = sim.ok("GetCallerIdentity", &[]).await;
    assert!(body.contains("<GetCallerIdentityResult>"), "{body}");
    assert_eq!(text(&body, "Account"), "123456789012");
}

impl Sim {
    /// A call of EKS, whose operations are paths.
    async fn eks(&self, method: &str, path: &str, body: serde_json::Value) -> (u16, serde_json::Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", "AWS4-HMAC-SHA256 Credential=x")
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .expect("the request is well-formed");
        let (status, body) = self.send(request).await.expect("an answer arrives");
        (status.as_u16(), serde_json::from_str(&body).expect("the service speaks JSON"))
    }
}

#[tokio::test]
async fn a_cluster_shows_its_security_group_and_its_add_ons_once_they_are_created() {
    let sim = Sim::small();
    let cluster = "/clusters/demo";
    let none = serde_json::Value::Null;
    let (status, body) = sim.eks("GET", cluster, none.clone()).await;
    let group = body["cluster"]["resourcesVpcConfig"]["clusterSecurityGroupId"].as_str().unwrap_or_default();
    assert!(status == 200 && group.starts_with("sg-"), "{body}");

    let agent = format!("{cluster}/addons/eks-pod-identity-agent");
    let (status, body) = sim.eks("GET", &agent, none.clone()).await;
    assert_eq!((status, body["message"].as_str().is_some()), (404, true), "{body}");
    let create = serde_json::json!({"addonName": "eks-pod-identity-agent"});
    let addons = format!("{cluster}/addons");
    let (status, body) = sim.eks("POST", &addons, create.clone()).await;
    assert_eq!((status, body["addon"]["status"].as_str()), (200, Some("CREATING")), "{body}");
    let (status, body) = sim.eks("POST", &addons, create).await;
    assert_eq!((status, body["message"].as_str()), (409, Some("Addon already exists.")), "{body}");
    let (status, body) = sim.eks("GET", &agent, none.clone()).await;
    assert_eq!((status, body["addon"]["status"].as_str()), (200, Some("ACTIVE")), "{body}");
    let (status, _) = sim.eks("GET", "/clusters/other/addons/eks-pod-identity-agent", none).await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn a_quota_of_virtual_cpus_is_that_of_the_scenario_and_more_is_asked_for_not_granted() {
    let mut scenario = crate::support::small();
    scenario.quotas.insert("standard".to_owned(), 5);
    let sim = Sim::new(scenario);
    let ask = async |operation: &str, body: serde_json::Value| {
        sim.json(&format!("ServiceQuotasV20190624.{operation}"), body).await
    };
    let standard = serde_json::json!({"ServiceCode": "ec2", "QuotaCode": "L-1216C47A"});
    let (status, body) = ask("GetServiceQuota", standard.clone()).await;
    assert_eq!((status, body["Quota"]["Value"].as_f64()), (200, Some(5.0)), "{body}");
    let more = serde_json::json!({"ServiceCode": "ec2", "QuotaCode": "L-1216C47A", "DesiredValue": 8});
    let (status, body) = ask("RequestServiceQuotaIncrease", more).await;
    assert_eq!((status, body["RequestedQuota"]["Status"].as_str()), (200, Some("PENDING")), "{body}");
    let (_, body) = ask("GetServiceQuota", standard).await;
    assert_eq!(body["Quota"]["Value"].as_f64(), Some(5.0), "{body}");
    let (status, body) = ask("GetServiceQuota", serde_json::json!({"ServiceCode": "ec2", "QuotaCode": "L-0"})).await;
    assert_eq!((status, body["__type"].as_str()), (400, Some("NoSuchResourceException")), "{body}");
}

#[tokio::test]
async fn subnets_are_found_by_whether_they_give_public_addresses() {
    let sim = Sim::small();
    let by = |value: &'static str| [("Filter.1.Name", "map-public-ip-on-launch"), ("Filter.1.Value.1", value)];
    assert!(sim.ok("DescribeSubnets", &by("false")).await.contains("<subnetId>"));
    assert!(!sim.ok("DescribeSubnets", &by("true")).await.contains("<subnetId>"));
}

const NVIDIA: &str = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/nvidia/recommended/image_id";
const BOTTLEROCKET: &str = "/aws/service/bottlerocket/aws-k8s-1.35-nvidia/x86_64/latest/image_id";

impl Sim {
    pub(crate) async fn json(&self, target: &str, body: serde_json::Value) -> (u16, serde_json::Value) {
        let request = Request::post("/")
            .header("authorization", "AWS4-HMAC-SHA256 Credential=x")
            .header("content-type", "application/x-amz-json-1.1")
            .header("x-amz-target", target)
            .body(Body::from(body.to_string()))
            .expect("the request is well-formed");
        let (status, body) = self.send(request).await.expect("an answer arrives");
        (status.as_u16(), serde_json::from_str(&body).expect("the service speaks JSON"))
    }

    async fn get_parameter(&self, name: &str) -> (u16, serde_json::Value) {
        self.json("AmazonSSM.GetParameter", serde_json::json!({"Name": name})).await
    }

    async fn get_products(&self, body: serde_json::Value) -> (u16, serde_json::Value) {
        self.json("AWSPriceListService.GetProducts", body).await
    }
}

#[tokio::test]
async fn a_parameter_of_an_image_is_read_with_its_data_type() {
    let sim = Sim::small();
    for (path, data_type) in [(NVIDIA, "aws:ec2:image"), (BOTTLEROCKET, "text")] {
        let (status, body) = sim.get_parameter(path).await;
        assert_eq!((status, body["Parameter"]["DataType"].as_str()), (200, Some(data_type)), "{body}");
        let image = body["Parameter"]["Value"].as_str().expect("it has a value");
        assert!(image.starts_with("ami-"), "{body}");
        sim.ok("DescribeImages", &[("ImageId.1", image)]).await;
    }
}

#[tokio::test]
async fn a_parameter_that_is_not_there_not_allowed_or_asked_for_too_often_is_refused_as_ssm_does() {
    let sim = Sim::small();
    let refused = async |name: &str| {
        let (status, body) = sim.get_parameter(name).await;
        (status, body["__type"].as_str().map(str::to_owned))
    };
    assert_eq!(refused("/mine/image_id").await, (400, Some("ParameterNotFound".to_owned())));
    assert_eq!(refused("").await, (400, Some("ValidationException".to_owned())));
    sim.simulator.deny(["ssm:GetParameter".to_owned()]);
    assert_eq!(refused(NVIDIA).await, (400, Some("AccessDeniedException".to_owned())));
    sim.simulator.deny([]);
    sim.post("/_sim/faults", serde_json::json!({"operation": "GetParameter", "count": 1, "kind": "throttle"})).await;
    assert_eq!(refused(NVIDIA).await, (400, Some("ThrottlingException".to_owned())));
    assert_eq!(refused(NVIDIA).await.0, 200);
}

#[tokio::test]
async fn a_launch_names_a_parameter_only_if_its_data_type_is_that_of_an_image() {
    let sim = Sim::small();
    let text = format!("resolve:ssm:{BOTTLEROCKET}");
    let parameters = [("LaunchTemplateName", "text"), ("LaunchTemplateData.ImageId", text.as_str())];
    let (status, body) = sim.call("CreateLaunchTemplate", &parameters).await;
    if status.is_success() {
        let id = crate::support::text(&body, "launchTemplateId").to_owned();
        let ask = [("LaunchTemplateId", id.as_str()), ("LaunchTemplateVersion.1", "1"), ("ResolveAlias", "true")];
        assert_eq!(
            sim.refused("DescribeLaunchTemplateVersions", &ask).await,
            (400, "InvalidParameterValue".to_owned())
        );
    } else {
        assert!(body.contains("aws:ec2:image"), "{body}");
    }
}

#[tokio::test]
async fn list_prices_come_in_pages_as_json_in_json_and_follow_the_filters() {
    let sim = Sim::small();
    let region = serde_json::json!({"Type": "TERM_MATCH", "Field": "regionCode", "Value": "us-east-1"});
    let ask = |more: serde_json::Value| {
        let mut body = serde_json::json!({"ServiceCode": "AmazonEC2", "FormatVersion": "aws_v1", "Filters": [region]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let (status, all) = sim.get_products(ask(serde_json::json!({}))).await;
    let count = all["PriceList"].as_array().map_or(0, Vec::len);
    assert_eq!((status, count > 20, all["NextToken"].is_null()), (200, true, true), "{all}");
    let (_, first) = sim.get_products(ask(serde_json::json!({"MaxResults": 10}))).await;
    let (_, rest) = sim.get_products(ask(serde_json::json!({"NextToken": first["NextToken"]}))).await;
    assert_eq!(first["PriceList"].as_array().unwrap().len(), 10);
    assert_eq!(rest["PriceList"].as_array().unwrap().len(), count - 10);
    let named = serde_json::json!({"Type": "TERM_MATCH", "Field": "instanceType", "Value": "p5.48xlarge"});
    let (_, one) = sim.get_products(ask(serde_json::json!({"Filters": [region, named]}))).await;
    let product: serde_json::Value = serde_json::from_str(one["PriceList"][0].as_str().unwrap()).unwrap();
    assert_eq!(product["product"]["attributes"]["instanceType"], "p5.48xlarge");
    assert!(product.to_string().contains("\"USD\":\"55.0400000000\""), "{product}");
    let elsewhere = serde_json::json!({"Type": "TERM_MATCH", "Field": "regionCode", "Value": "eu-west-1"});
    let (_, none) = sim.get_products(ask(serde_json::json!({"Filters": [elsewhere]}))).await;
    assert_eq!(none["PriceList"], serde_json::json!([]));
}

#[tokio::test]
async fn list_prices_of_another_service_or_by_an_attribute_that_is_none_are_refused() {
    let sim = Sim::small();
    let refused = async |body: serde_json::Value| {
        let (status, body) = sim.get_products(body).await;
        (status, body["__type"].as_str().map(str::to_owned))
    };
    let invalid = (400, Some("InvalidParameterException".to_owned()));
    assert_eq!(refused(serde_json::json!({"ServiceCode": "AmazonS3"})).await, invalid);
    let misspelt = serde_json::json!({"Type": "TERM_MATCH", "Field": "regioncode", "Value": "us-east-1"});
    assert_eq!(refused(serde_json::json!({"ServiceCode": "AmazonEC2", "Filters": [misspelt]})).await, invalid);
    sim.simulator.deny(["pricing:GetProducts".to_owned()]);
    let denied = (400, Some("AccessDeniedException".to_owned()));
    assert_eq!(refused(serde_json::json!({"ServiceCode": "AmazonEC2"})).await, denied);
}
