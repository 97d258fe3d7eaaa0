//! The knobs that delay, hide and limit, each within its scope.

use muster_ec2_sim::scenario::SpineSpec;
use muster_ec2_sim::{Fault, FaultKind, MarketType};

use crate::support::{Fleet, P5, SSM, SUBNET_A, SUBNET_B, Sim, fleet_ids, small, text, texts};

const RUN: [(&str, &str); 5] =
    [("MinCount", "1"), ("MaxCount", "1"), ("ImageId", SSM), ("InstanceType", P5), ("SubnetId", SUBNET_A)];

fn more<'a>(parameters: &[(&'a str, &'a str)], changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut all: Vec<_> =
        parameters.iter().copied().filter(|(key, _)| !changes.iter().any(|(changed, _)| changed == key)).collect();
    all.extend(changes);
    all
}

#[tokio::test]
async fn a_new_template_and_a_new_group_can_be_unknown_for_a_while() {
    let sim = Sim::small();
    for operation in ["CreateLaunchTemplate", "CreatePlacementGroup"] {
        sim.simulator.add_fault(Fault::of(FaultKind::Invisible { seconds: 5.0 }).on(operation));
    }
    let template = sim.template().await;
    sim.group("g").await;
    let fleet = Fleet { group: Some("g"), ..Fleet::of(&template, "1", "t") };
    assert_eq!(sim.refused("CreateFleet", &fleet.parameters()).await.1, "InvalidLaunchTemplateId.NotFound");
    assert_eq!(
        sim.refused("DescribePlacementGroups", &[("GroupName.1", "g")]).await.1,
        "InvalidPlacementGroup.Unknown"
    );
    // The name is taken all the same.
    assert_eq!(
        sim.refused("CreatePlacementGroup", &[("GroupName", "g"), ("Strategy", "cluster")]).await.1,
        "InvalidPlacementGroup.Duplicate"
    );
    sim.advance(5);
    sim.ok("CreateFleet", &fleet.parameters()).await;
}

#[tokio::test]
async fn a_group_can_take_its_time_to_be_available() {
    let mut scenario = small();
    scenario.delays.placement_group_seconds = 10.0;
    let sim = Sim::new(scenario);
    sim.group("g").await;
    let body = sim.ok("DescribePlacementGroups", &[("GroupName.1", "g")]).await;
    assert_eq!(text(&body, "state"), "pending");
    let run = more(&RUN, &[("Placement.GroupName", "g")]);
    assert_eq!(sim.refused("RunInstances", &run).await.1, "InvalidPlacementGroup.Unknown");
    sim.advance(10);
    sim.ok("RunInstances", &run).await;
}

#[tokio::test]
async fn tags_can_come_late_and_reads_be_stale() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.simulator.add_fault(Fault::of(FaultKind::TagsLate { seconds: 10.0 }));
    let ids = fleet_ids(&sim.ok("CreateFleet", &Fleet::of(&template, "1", "t").parameters()).await);
    let by_tag = [("Filter.1.Name", "tag:muster.dev/batch"), ("Filter.1.Value.1", "b1")];
    assert!(!sim.ok("DescribeInstances", &by_tag).await.contains(&ids[0]));
    assert!(sim.ok("DescribeInstances", &[("InstanceId.1", &ids[0])]).await.contains("<tagSet/>"));
    sim.advance(20);
    assert!(sim.ok("DescribeInstances", &by_tag).await.contains(&ids[0]));
    let state = async |sim: &Sim| {
        let body = sim.ok("DescribeInstances", &[("InstanceId.1", &ids[0])]).await;
        text(text(&body, "instanceState"), "name").to_owned()
    };
    assert_eq!(state(&sim).await, "running");
    sim.simulator.add_fault(Fault::of(FaultKind::StaleReads { seconds: 5.0 }).on("DescribeInstances").times(1));
    assert_eq!(state(&sim).await, "pending");
    assert_eq!(state(&sim).await, "running");
}

#[tokio::test]
async fn a_call_can_be_held_back_for_a_time() {
    let sim = Sim::small();
    sim.simulator.add_fault(Fault::of(FaultKind::HeldBack { seconds: Some(30.0) }).times(1));
    assert!(sim.try_call("RunInstances", &more(&RUN, &[("ClientToken", "t")])).await.is_none());
    sim.advance(29);
    assert!(sim.simulator.instances().is_empty());
    sim.advance(1);
    assert_eq!(sim.simulator.instances().len(), 1);
    let journal = sim.simulator.journal();
    assert_eq!((journal.len(), journal[0].lost, journal[1].held), (2, true, Some(0)));
    // The token knows it.
    sim.ok("RunInstances", &more(&RUN, &[("ClientToken", "t")])).await;
    assert_eq!(sim.simulator.instances().len(), 1);
}

#[tokio::test]
async fn nodes_can_register_late_or_never_and_boots_differ() {
    let mut scenario = small();
    scenario.delays.registration_seconds = 15.0;
    scenario.delays.ready_seconds = 7.0;
    scenario.delays.boot_jitter_seconds = 60.0;
    let sim = Sim::new(scenario);
    sim.simulator.add_fault(Fault::of(FaultKind::SlowRegistration { instances: Some(1), seconds: None }));
    sim.ok("RunInstances", &more(&RUN, &[("MinCount", "4"), ("MaxCount", "4")])).await;
    let instances = sim.simulator.instances();
    assert_eq!(instances.iter().filter(|i| i.registration_time.is_none()).count(), 1);
    let late =
        |i: &muster_ec2_sim::InstanceView| i.registration_time.map(|at| at.duration_since(i.running_time.unwrap()));
    assert!(instances.iter().filter_map(late).all(|wait| wait.as_secs() == 15));
    let ready = |i: &muster_ec2_sim::InstanceView| Some(i.ready_time?.duration_since(i.registration_time?).as_secs());
    assert_eq!(instances.iter().filter_map(ready).collect::<Vec<_>>(), [7, 7, 7]);
    let boots: std::collections::BTreeSet<_> = instances.iter().filter_map(|i| i.running_time).collect();
    assert_eq!(boots.len(), 4);
}

#[tokio::test]
async fn a_slow_termination_keeps_a_group_in_use() {
    let sim = Sim::small();
    sim.group("g").await;
    let body = sim.ok("RunInstances", &more(&RUN, &[("Placement.GroupName", "g")])).await;
    sim.simulator.add_fault(Fault::of(FaultKind::SlowTerminate { seconds: 300.0 }));
    sim.ok("TerminateInstances", &[("InstanceId.1", text(&body, "instanceId"))]).await;
    sim.advance(100);
    assert_eq!(sim.refused("DeletePlacementGroup", &[("GroupName", "g")]).await.1, "InvalidPlacementGroup.InUse");
    sim.advance(300);
    sim.ok("DeletePlacementGroup", &[("GroupName", "g")]).await;
}

#[tokio::test]
async fn a_want_of_capacity_is_scoped_by_capacity_type_group_size_time_and_call() {
    let scenario = small().with_pool(P5, "us-east-1a", MarketType::Spot, 1, 1, 2);
    let spot = [("InstanceMarketOptions.MarketType", "spot")];
    let unavailable = || Fault::of(FaultKind::InsufficientCapacity);
    type Change<'a> = &'a [(&'a str, &'a str)];
    let cases: [(Fault, Change<'_>, Change<'_>); 4] = [
        (Fault { capacity_type: Some(MarketType::Spot), ..unavailable() }, &spot, &[]),
        (Fault { placement_group: Some(true), ..unavailable() }, &[("Placement.GroupName", "g")], &[]),
        (Fault { more_than: Some(1), ..unavailable() }, &[("MinCount", "2"), ("MaxCount", "2")], &[]),
        (Fault { zone: Some("us-east-1a".to_owned()), ..unavailable() }, &[], &[("SubnetId", SUBNET_B)]),
    ];
    for (fault, hit, spared) in cases {
        let sim = Sim::new(scenario.clone());
        sim.group("g").await;
        sim.simulator.add_fault(fault.clone());
        let (status, code) = sim.refused("RunInstances", &more(&RUN, hit)).await;
        assert_eq!((status, code.as_str()), (500, "InsufficientInstanceCapacity"), "{fault:?}");
        sim.ok("RunInstances", &more(&RUN, spared)).await;
    }
    let sim = Sim::new(scenario);
    sim.simulator.add_fault(Fault { from_seconds: Some(10.0), until_seconds: Some(20.0), ..unavailable() });
    sim.simulator.add_fault(Fault { skip: 2, count: Some(1), from_seconds: Some(30.0), ..unavailable() });
    let mut answers = Vec::new();
    for seconds in [0, 10, 10, 10, 0, 0, 0] {
        sim.advance(seconds);
        answers.push(sim.call("RunInstances", &RUN).await.0.as_u16());
    }
    assert_eq!(answers, [200, 500, 200, 200, 200, 500, 200]);
}

#[tokio::test]
async fn a_subnet_runs_out_of_addresses() {
    let mut scenario = small();
    scenario.zones[0].subnets[0].free_addresses = Some(3);
    let sim = Sim::new(scenario);
    let refused = sim.refused("RunInstances", &more(&RUN, &[("MinCount", "4"), ("MaxCount", "4")])).await;
    assert_eq!(refused, (400, "InsufficientFreeAddressesInSubnet".to_owned()));
    sim.ok("RunInstances", &more(&RUN, &[("MinCount", "3"), ("MaxCount", "3")])).await;
    let body = sim.ok("DescribeSubnets", &[("SubnetId.1", SUBNET_A)]).await;
    assert_eq!(text(&body, "availableIpAddressCount"), "0");
}

#[tokio::test]
async fn a_spread_group_takes_seven_in_a_zone() {
    let mut scenario = small();
    scenario.pools[0].spines = vec![SpineSpec { leaves: vec![20] }];
    let sim = Sim::new(scenario);
    sim.ok("CreatePlacementGroup", &[("GroupName", "s"), ("Strategy", "spread")]).await;
    let run = |n: &'static str| more(&RUN, &[("MinCount", n), ("MaxCount", n), ("Placement.GroupName", "s")]);
    sim.ok("RunInstances", &run("7")).await;
    let (status, body) = sim.call("RunInstances", &run("1")).await;
    assert_eq!(status, 500);
    assert!(body.contains("limit of instances in this spread placement group"), "{body}");
}

#[tokio::test]
async fn what_ec2_refuses_is_refused() {
    let mut scenario = small().with_pool("t3.large", "us-east-1a", MarketType::OnDemand, 1, 1, 2);
    scenario.throttling = false;
    let mut second = scenario.zones[0].subnets[0].clone();
    (second.id, second.cidr) = ("subnet-second".to_owned(), "10.9.0.0/24".to_owned());
    scenario.zones[0].subnets.push(second);
    let sim = Sim::new(scenario);
    sim.group("g").await;
    let template = sim.template().await;
    let fleet = Fleet::of(&template, "2", "t").parameters();
    let two_subnets = more(
        &fleet,
        &[
            ("LaunchTemplateConfigs.1.Overrides.2.InstanceType", P5),
            ("LaunchTemplateConfigs.1.Overrides.2.SubnetId", "subnet-second"),
        ],
    );
    assert_eq!(sim.refused("CreateFleet", &two_subnets).await.1, "InvalidParameterCombination");
    let in_group = more(&RUN, &[("InstanceType", "t3.large"), ("Placement.GroupName", "g")]);
    assert_eq!(sim.refused("RunInstances", &in_group).await.1, "InvalidParameterCombination");
    let efa_first =
        more(&RUN, &[("NetworkInterface.1.DeviceIndex", "0"), ("NetworkInterface.1.InterfaceType", "efa-only")]);
    assert_eq!(sim.refused("RunInstances", &efa_first).await.1, "InvalidParameterCombination");
    let two_efas = more(
        &RUN,
        &[
            ("NetworkInterface.1.DeviceIndex", "0"),
            ("NetworkInterface.1.InterfaceType", "efa"),
            ("NetworkInterface.2.DeviceIndex", "1"),
            ("NetworkInterface.2.InterfaceType", "efa-only"),
        ],
    );
    assert_eq!(sim.refused("RunInstances", &two_efas).await.1, "InvalidParameterCombination");
    let prefixed = more(
        &RUN,
        &[
            ("NetworkInterface.1.DeviceIndex", "0"),
            ("NetworkInterface.2.DeviceIndex", "1"),
            ("NetworkInterface.2.InterfaceType", "efa-only"),
            ("NetworkInterface.2.Ipv4PrefixCount", "1"),
        ],
    );
    assert_eq!(sim.refused("RunInstances", &prefixed).await.1, "InvalidParameterValue");
    let large = "A".repeat(4 * (16 * 1024 / 3 + 1));
    assert_eq!(sim.refused("RunInstances", &more(&RUN, &[("UserData", &large)])).await.1, "InvalidParameterValue");
    assert_eq!(
        sim.refused("RunInstances", &more(&RUN, &[("ImageId", "resolve:ssm:/mine")])).await.1,
        "InvalidParameterValue"
    );
    assert!(sim.simulator.instances().is_empty());
}

#[tokio::test]
async fn every_bucket_has_the_published_size() {
    let narrow = ("Filter.1.Name", "instance-state-name");
    let value = ("Filter.1.Value.1", "running");
    for (operation, parameters, size, refill) in [
        ("DescribeSubnets", vec![], 100, 20),
        ("DescribeInstances", vec![], 50, 10),
        ("DescribeInstanceStatus", vec![], 50, 10),
        ("DescribeSecurityGroups", vec![], 50, 10),
        ("DescribeInstances", vec![narrow, value], 100, 20),
        ("CreateLaunchTemplate", vec![], 50, 5),
        ("RunInstances", vec![], 5, 2),
        ("TerminateInstances", vec![], 100, 5),
        ("CreateTags", vec![], 100, 10),
        ("DescribeInstanceTopology", vec![], 1, 1),
    ] {
        let sim = Sim::small();
        let until_throttled = async |sim: &Sim| {
            let mut calls = 0;
            while sim.call(operation, &parameters).await.0 != 503 {
                calls += 1;
            }
            calls
        };
        assert_eq!(until_throttled(&sim).await, size, "{operation}");
        sim.advance(1);
        assert_eq!(until_throttled(&sim).await, refill, "{operation}");
    }
}

#[tokio::test]
async fn launched_and_terminated_instances_have_buckets_of_their_own() {
    let mut scenario = small().with_pool("m5.8xlarge", "us-east-1a", MarketType::OnDemand, 1, 1, 2000);
    scenario.delays.boot_seconds = 0.0;
    let sim = Sim::new(scenario);
    let run = |n: &'static str| more(&RUN, &[("MinCount", n), ("MaxCount", n), ("InstanceType", "m5.8xlarge")]);
    let body = sim.ok("RunInstances", &run("1000")).await;
    assert_eq!(sim.refused("RunInstances", &run("3")).await, (503, "RequestLimitExceeded".to_owned()));
    sim.advance(2);
    sim.ok("RunInstances", &run("3")).await;
    let ids: Vec<(String, &str)> =
        (1..).zip(texts(&body, "instanceId")).map(|(n, id)| (format!("InstanceId.{n}"), id)).collect();
    let terminate: Vec<(&str, &str)> = ids.iter().map(|(key, id)| (key.as_str(), *id)).collect();
    sim.ok("TerminateInstances", &terminate).await;
    assert_eq!(sim.refused("TerminateInstances", &terminate[..21]).await.1, "RequestLimitExceeded");
}

#[tokio::test]
async fn a_fault_can_hit_some_calls_as_the_seed_draws_them() {
    let hits = async |seed: u64| {
        let mut scenario = small();
        (scenario.seed, scenario.throttling) = (seed, false);
        let sim = Sim::new(scenario);
        sim.simulator.add_fault(Fault { percent: Some(30), ..Fault::of(FaultKind::Throttle) });
        let mut hits = Vec::new();
        for _ in 0..50 {
            hits.push(sim.call("DescribeSubnets", &[]).await.0 == 503);
        }
        hits
    };
    let first = hits(1).await;
    assert_eq!(first, hits(1).await);
    assert_ne!(first, hits(2).await);
    let count = first.iter().filter(|hit| **hit).count();
    assert!((5..30).contains(&count), "{count} of 50");
}
