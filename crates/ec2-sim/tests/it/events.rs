//! Interruptions: the warning on the queue, and what comes of it.

use axum::body::Body;
use axum::http::Request;
use muster_ec2_sim::choices::EventShape;
use muster_ec2_sim::{Fault, FaultKind, Interruption, InterruptionKind};
use serde_json::{Value, json};

use crate::support::{Fleet, Sim, fleet_ids, small};

const QUEUE: &str = "http://localhost/123456789012/muster-interruptions";

impl Sim {
    /// A call of SQS: its status and its answer.
    async fn sqs(&self, operation: &str, body: Value) -> (u16, Value) {
        let request = Request::post("/")
            .header("authorization", "AWS4-HMAC-SHA256 Credential=x")
            .header("x-amz-target", format!("AmazonSQS.{operation}"))
            .header("host", "localhost")
            .body(Body::from(body.to_string()))
            .expect("the request is well-formed");
        let (status, body) = self.send(request).await.expect("an answer arrives");
        (status.as_u16(), serde_json::from_str(&body).expect("SQS speaks JSON"))
    }

    /// Up to ten messages.
    async fn receive(&self) -> Vec<Value> {
        let (status, body) = self.sqs("ReceiveMessage", json!({"QueueUrl": QUEUE, "MaxNumberOfMessages": 10})).await;
        assert_eq!(status, 200, "{body}");
        body["Messages"].as_array().cloned().unwrap_or_default()
    }

    /// The bodies of up to ten messages.
    pub(crate) async fn events(&self) -> Vec<Value> {
        let body = |m: &Value| serde_json::from_str(m["Body"].as_str().expect("a body")).expect("an event");
        self.receive().await.iter().map(body).collect()
    }

    /// Two running instances.
    async fn two(&self) -> Vec<String> {
        let template = self.template().await;
        let ids = fleet_ids(&self.ok("CreateFleet", &Fleet::of(&template, "2", "t1").parameters()).await);
        self.advance(60);
        ids
    }
}

fn interruption(kind: InterruptionKind, ids: &[String]) -> Interruption {
    Interruption { kind, instance_ids: ids.to_vec(), ..Interruption::default() }
}

#[tokio::test]
async fn the_queue_is_found_by_its_name() {
    let sim = Sim::small();
    let (status, body) = sim.sqs("GetQueueUrl", json!({"QueueName": "muster-interruptions"})).await;
    assert_eq!((status, body), (200, json!({"QueueUrl": QUEUE})));
    let (status, body) = sim.sqs("GetQueueUrl", json!({"QueueName": "other"})).await;
    assert_eq!((status, &body["__type"]), (400, &json!("com.amazonaws.sqs#QueueDoesNotExist")));
    let (status, body) = sim.sqs("SendMessage", json!({"QueueUrl": QUEUE, "MessageBody": "x"})).await;
    assert_eq!(status, 400);
    assert!(body["message"].as_str().unwrap().contains("SendMessage"));
}

#[tokio::test]
async fn a_spot_interruption_is_reported_and_after_two_minutes_comes_true() {
    let sim = Sim::small();
    let ids = sim.two().await;
    sim.simulator.interrupt(&interruption(InterruptionKind::Spot, &ids[..1]));
    let events = sim.events().await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["detail-type"], "EC2 Spot Instance Interruption Warning");
    assert_eq!(events[0]["detail"], json!({"instance-id": ids[0], "instance-action": "terminate"}));
    sim.advance(119);
    assert!(sim.simulator.instances().iter().all(|i| i.state == "running"));
    sim.advance(1);
    let ended: Vec<_> = sim.simulator.instances().into_iter().filter(|i| i.state == "shutting-down").collect();
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].state_reason.as_deref(), Some("Server.SpotInstanceTermination"));
}

#[tokio::test]
async fn a_message_comes_back_until_it_is_deleted_or_too_old() {
    let sim = Sim::small();
    let ids = sim.two().await;
    sim.simulator.interrupt(&interruption(InterruptionKind::Rebalance, &ids));
    assert_eq!(sim.receive().await.len(), 2);
    assert_eq!(sim.receive().await.len(), 0);
    sim.advance(30);
    let again = sim.receive().await;
    let receipt = |m: &Value| m["ReceiptHandle"].clone();
    sim.sqs("DeleteMessage", json!({"QueueUrl": QUEUE, "ReceiptHandle": receipt(&again[0])})).await;
    sim.advance(30);
    let left = sim.receive().await;
    assert_eq!(left.len(), 1);
    let entries = json!([{"Id": "a", "ReceiptHandle": receipt(&left[0])}]);
    let (_, body) = sim.sqs("DeleteMessageBatch", json!({"QueueUrl": QUEUE, "Entries": entries})).await;
    assert_eq!(body["Successful"], json!([{"Id": "a"}]));
    sim.simulator.interrupt(&interruption(InterruptionKind::Rebalance, &ids));
    sim.advance(301);
    assert_eq!(sim.receive().await.len(), 0);
}

#[tokio::test]
async fn one_health_event_names_all_its_instances_and_the_status_shows_it() {
    let sim = Sim::small();
    let ids = sim.two().await;
    sim.simulator.interrupt(&interruption(InterruptionKind::ScheduledChange, &ids));
    let events = sim.events().await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["source"], "aws.health");
    let entities: Vec<&str> = events[0]["detail"]["affectedEntities"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["entityValue"].as_str().unwrap())
        .collect();
    assert_eq!(entities, ids.iter().map(String::as_str).collect::<Vec<_>>());
    let body = sim.ok("DescribeInstanceStatus", &[("Filter.1.Name", "event.code"), ("Filter.1.Value.1", "*")]).await;
    assert_eq!(body.matches("<code>instance-retirement</code>").count(), 2);
}

#[tokio::test]
async fn events_come_in_the_odd_shapes_too() {
    let mut scenario = small();
    scenario.choices.event_shape = EventShape::Odd;
    let sim = Sim::new(scenario);
    let ids = sim.two().await;
    sim.simulator.interrupt(&interruption(InterruptionKind::Spot, &ids[..1]));
    let event = &sim.events().await[0];
    assert_eq!(event["detail_type"], "EC2 Spot Instance Interruption Warning");
    assert_eq!(event["resources"][0], format!("arn:aws:ec2:us-east-1a:instance/{}", ids[0]));
}

#[tokio::test]
async fn changes_of_state_are_reported_in_turn_where_the_scenario_wants_them() {
    let mut scenario = small();
    scenario.queue.state_changes = true;
    let sim = Sim::new(scenario);
    let ids = sim.two().await;
    sim.ok("TerminateInstances", &[("InstanceId.1", &ids[0])]).await;
    sim.advance(60);
    let events = sim.events().await;
    let states: Vec<&str> = events
        .iter()
        .filter(|e| e["detail"]["instance-id"] == ids[0].as_str())
        .map(|e| e["detail"]["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["pending", "running", "shutting-down", "terminated"]);
}

#[tokio::test]
async fn events_get_lost_repeated_and_late() {
    let sim = Sim::small();
    let ids = sim.two().await;
    let tell = |id: usize| sim.simulator.interrupt(&interruption(InterruptionKind::Spot, &ids[id..=id]));
    sim.simulator.add_fault(Fault::of(FaultKind::EventRepeated { copies: 3 }).on("SpotInterruption").times(1));
    tell(0);
    assert_eq!(sim.events().await.len(), 3);
    sim.simulator.clear_faults();
    sim.simulator.add_fault(Fault::of(FaultKind::EventLate { seconds: 10.0 }).times(1));
    tell(0);
    tell(1);
    assert_eq!(sim.events().await[0]["detail"]["instance-id"], ids[1].as_str());
    sim.advance(10);
    assert_eq!(sim.events().await[0]["detail"]["instance-id"], ids[0].as_str());
    sim.simulator.add_fault(Fault::of(FaultKind::EventLost));
    tell(1);
    assert!(sim.events().await.is_empty());
}

#[tokio::test]
async fn a_long_poll_is_answered_when_a_message_comes() {
    let mut scenario = small();
    // Twenty virtual seconds are more than a real minute, so that only the message can end the poll.
    scenario.clock = muster_ec2_sim::clock::ClockSettings { factor: 0.25, ..Default::default() };
    scenario.delays.boot_seconds = 0.0;
    let sim = Sim::new(scenario);
    let template = sim.template().await;
    let ids = fleet_ids(&sim.ok("CreateFleet", &Fleet::of(&template, "2", "t1").parameters()).await);
    let poll = sim.sqs("ReceiveMessage", json!({"QueueUrl": QUEUE, "WaitTimeSeconds": 20}));
    let send = async { sim.simulator.interrupt(&interruption(InterruptionKind::Rebalance, &ids[..1])) };
    let ((_, body), _) = futures::join!(poll, send);
    assert_eq!(body["Messages"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_launch_can_be_interrupted_by_the_scenario() {
    let sim = Sim::small();
    let interruption = Interruption { notice_seconds: 10.0, warn: false, ..Interruption::default() };
    sim.simulator.add_fault(Fault::of(FaultKind::Interrupted { instances: Some(1), after_seconds: 5.0, interruption }));
    sim.two().await;
    let states: Vec<&str> = sim.simulator.instances().iter().map(|i| i.state).collect();
    assert_eq!(states.iter().filter(|s| **s == "running").count(), 1);
    assert!(sim.events().await.is_empty());
}
