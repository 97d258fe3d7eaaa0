//! What goes wrong on demand.

use axum::http::StatusCode;
use muster_ec2_sim::{Fault, FaultKind};

use crate::support::{Fleet, Sim, fleet_ids, text, texts};

#[tokio::test]
async fn a_throttle_can_hide_inside_a_good_answer() {
    let sim = Sim::small();
    let template = sim.template().await;
    let kind =
        FaultKind::ErrorItem { code: "RequestLimitExceeded".to_owned(), message: "Request limit exceeded.".to_owned() };
    sim.simulator.add_fault(Fault::of(kind).times(1));
    let body = sim.ok("CreateFleet", &Fleet::of(&template, "2", "t1").parameters()).await;
    assert_eq!(texts(&body, "errorCode"), ["RequestLimitExceeded"]);
    assert!(fleet_ids(&body).is_empty());
    // The same token gives the same answer, another one launches.
    let body = sim.ok("CreateFleet", &Fleet::of(&template, "2", "t1").parameters()).await;
    assert_eq!(texts(&body, "errorCode"), ["RequestLimitExceeded"]);
    let body = sim.ok("CreateFleet", &Fleet::of(&template, "2", "t2").parameters()).await;
    assert_eq!(fleet_ids(&body).len(), 2);
    let journal = sim.simulator.journal();
    assert_eq!(journal[1].item_codes, ["RequestLimitExceeded"]);
    assert_eq!(journal[1].faults, ["errorItem"]);
}

#[tokio::test]
async fn a_violating_fleet_launches_fewer_than_its_minimum() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.simulator.add_fault(Fault::of(FaultKind::Violating { launch: 3 }).times(1));
    let body = sim.ok("CreateFleet", &Fleet::of(&template, "4", "t").parameters()).await;
    assert_eq!(fleet_ids(&body).len(), 3);
    let whole = sim.simulator.invariants();
    let whole = whole.iter().find(|i| i.number == 4).expect("it is judged");
    assert!(!whole.holds && whole.at_rest);
}

#[tokio::test]
async fn a_pool_that_fills_in_part_is_short_of_a_minimum() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.simulator.add_fault(Fault::of(FaultKind::Partial { fill: 3 }));
    let body = sim.ok("CreateFleet", &Fleet::of(&template, "4", "t1").parameters()).await;
    assert!(fleet_ids(&body).is_empty());
    let parameters: Vec<_> = Fleet::of(&template, "4", "t2")
        .parameters()
        .into_iter()
        .filter(|(name, _)| !name.contains("MinTargetCapacity"))
        .collect();
    let body = sim.ok("CreateFleet", &parameters).await;
    assert_eq!(fleet_ids(&body).len(), 3);
}

#[tokio::test]
async fn a_pool_can_have_no_capacity_for_some_calls() {
    let sim = Sim::small();
    let template = sim.template().await;
    let mut fault = Fault::of(FaultKind::InsufficientCapacity).times(1);
    fault.skip = 1;
    fault.zone = Some("us-east-1a".to_owned());
    fault.more_than = Some(1);
    sim.simulator.add_fault(fault);
    let mut counts = vec![];
    for (n, token) in [("2", "t1"), ("1", "t2"), ("2", "t3"), ("2", "t4")] {
        let body = sim.ok("CreateFleet", &Fleet::of(&template, n, token).parameters()).await;
        counts.push(fleet_ids(&body).len());
    }
    assert_eq!(counts, [2, 1, 0, 2], "the second launch of more than one");
}

#[tokio::test]
async fn a_lost_response_leaves_the_work_done() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.simulator.add_fault(Fault::of(FaultKind::LostResponse).on("CreateFleet").times(1));
    let parameters = Fleet::of(&template, "2", "t").parameters();
    assert!(sim.try_call("CreateFleet", &parameters).await.is_none());
    assert_eq!(sim.simulator.instances().len(), 2);
    assert!(sim.simulator.journal()[1].lost);
    let body = sim.ok("CreateFleet", &parameters).await;
    assert_eq!(fleet_ids(&body).len(), 2);
    assert_eq!(sim.simulator.instances().len(), 2);
}

#[tokio::test]
async fn over_a_socket_a_lost_response_cuts_the_connection() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let sim = Sim::small();
    sim.simulator.add_fault(Fault::of(FaultKind::LostResponse));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let served = tokio::spawn(muster_ec2_sim::serve(listener, sim.simulator.clone(), async {
        stopped.await.ok();
    }));
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
    let body = "Action=CreatePlacementGroup&GroupName=pg&Strategy=cluster";
    let request =
        format!("POST / HTTP/1.1\r\nhost: x\r\nauthorization: AWS4-x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.expect("it is written");
    let mut answer = Vec::new();
    // The server closes the connection, so reading ends, with an error or without.
    stream.read_to_end(&mut answer).await.ok();
    let answer = String::from_utf8_lossy(&answer);
    assert!(!answer.contains("0\r\n\r\n"), "the answer is not whole: {answer}");
    assert!(!answer.contains("placementGroup"), "{answer}");
    assert_eq!(sim.simulator.placement_groups(), ["pg"]);
    stop.send(()).expect("it still serves");
    served.await.expect("it does not panic").expect("it ends well");
}

#[tokio::test]
async fn a_response_lost_as_a_server_error_leaves_the_work_done() {
    let sim = Sim::small();
    sim.simulator.add_fault(Fault::of(FaultKind::LostAsServerError).on("CreatePlacementGroup"));
    let refused = sim.refused("CreatePlacementGroup", &[("GroupName", "pg"), ("Strategy", "cluster")]).await;
    assert_eq!(refused, (500, "InternalError".to_owned()));
    assert_eq!(sim.simulator.placement_groups(), ["pg"]);
}

#[tokio::test]
async fn errors_and_throttles_keep_the_work_from_being_done() {
    let sim = Sim::small();
    let kind = FaultKind::Error { code: "UnauthorizedOperation".to_owned(), status: 403, message: "no".to_owned() };
    sim.simulator.add_fault(Fault::of(kind).times(1));
    let parameters = [("GroupName", "pg"), ("Strategy", "cluster")];
    let refused = sim.refused("CreatePlacementGroup", &parameters).await;
    assert_eq!(refused, (403, "UnauthorizedOperation".to_owned()));
    sim.simulator.add_fault(Fault::of(FaultKind::Throttle));
    let refused = sim.refused("CreatePlacementGroup", &parameters).await;
    assert_eq!(refused, (503, "RequestLimitExceeded".to_owned()));
    sim.simulator.clear_faults();
    sim.ok("CreatePlacementGroup", &parameters).await;
}

#[tokio::test]
async fn a_dry_run_meets_what_refuses_who_asks_or_what_is_asked_and_nothing_else() {
    let sim = Sim::small();
    let error = |code: &str, status| FaultKind::Error { code: code.to_owned(), status, message: "no".to_owned() };
    let dry = [("GroupName", "pg"), ("Strategy", "cluster"), ("DryRun", "true")];
    for (kind, status, code) in [
        (error("UnauthorizedOperation", 403), 403, "UnauthorizedOperation"),
        (error("InvalidParameterValue", 400), 400, "InvalidParameterValue"),
        (error("InternalError", 500), 500, "InternalError"),
        (FaultKind::Throttle, 503, "RequestLimitExceeded"),
        (error("RequestLimitExceeded", 503), 503, "RequestLimitExceeded"),
        // Capacity and quotas are what a launch alone finds out, and a dry run does nothing that could be lost.
        (error("InsufficientInstanceCapacity", 500), 412, "DryRunOperation"),
        (error("VcpuLimitExceeded", 400), 412, "DryRunOperation"),
        (error("MaxFleetCountExceeded", 400), 412, "DryRunOperation"),
        (FaultKind::LostResponse, 412, "DryRunOperation"),
    ] {
        sim.simulator.add_fault(Fault::of(kind));
        assert_eq!(sim.refused("CreatePlacementGroup", &dry).await, (status, code.to_owned()));
        sim.simulator.clear_faults();
    }
    // What does not meet a dry run does not count it either.
    sim.simulator.add_fault(Fault::of(error("VcpuLimitExceeded", 400)).times(1));
    assert_eq!(sim.refused("CreatePlacementGroup", &dry).await.0, 412);
    assert_eq!(sim.refused("CreatePlacementGroup", &dry[..2]).await.1, "VcpuLimitExceeded");
}

#[tokio::test]
async fn instances_can_be_stuck_slow_dying_or_invisible() {
    let sim = Sim::small();
    let template = sim.template().await;
    for kind in [
        FaultKind::StuckPending { instances: Some(1) },
        FaultKind::SlowBoot { instances: None, seconds: 10.0 },
        FaultKind::Invisible { seconds: 5.0 },
    ] {
        sim.simulator.add_fault(Fault::of(kind));
    }
    let body = sim.ok("CreateFleet", &Fleet::of(&template, "2", "t").parameters()).await;
    let ids = fleet_ids(&body);
    let hidden = sim.call("DescribeInstances", &[("InstanceId.1", &ids[0])]).await;
    assert_eq!(hidden.0, StatusCode::BAD_REQUEST);
    sim.advance(29);
    let states = || {
        let all = sim.simulator.instances();
        let of = |id: &String| all.iter().find(|i| i.instance_id == *id).map(|i| i.state);
        (of(&ids[0]), of(&ids[1]))
    };
    assert_eq!(states(), (Some("pending"), Some("pending")));
    sim.advance(1);
    assert_eq!(states(), (Some("pending"), Some("running")));
    sim.simulator.clear_faults();
    sim.simulator.add_fault(Fault::of(FaultKind::Dies {
        instances: 1,
        after_seconds: 1.0,
        reason: "Server.InternalError".to_owned(),
    }));
    let body = sim.ok("CreateFleet", &Fleet::of(&template, "1", "t2").parameters()).await;
    let id = fleet_ids(&body).remove(0);
    sim.advance(1);
    let body = sim.ok("DescribeInstances", &[("InstanceId.1", &id)]).await;
    assert_eq!(text(text(&body, "stateReason"), "code"), "Server.InternalError");
    assert_eq!(text(text(&body, "instanceState"), "name"), "shutting-down");
}
