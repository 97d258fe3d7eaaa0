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
