//! Each invariant has somebody who breaks it.

use axum::body::Body;
use axum::http::Request;
use muster_ec2_sim::scenario::{
    GroupSpec, Matching, OtherInstances, ReservationKind, ReservationSpec, SpineSpec, Strategy,
};
use muster_ec2_sim::{Fault, FaultKind, MarketType, Scenario};
use serde_json::{Value, json};

use crate::support::{Fleet, P5, SSM, SUBNET_A, SUBNET_B, Sim, fleet_ids, small, text, texts};

type Parameters = Vec<(String, String)>;

/// A fleet's parameters with some of them changed; what is changed to nothing is excluded.
fn changed(fleet: &Fleet<'_>, changes: &[(&str, &str)]) -> Parameters {
    let mut all: Parameters =
        fleet.parameters().into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    for (key, value) in changes {
        all.retain(|(known, _)| known != key);
        if !value.is_empty() {
            all.push(((*key).to_owned(), (*value).to_owned()));
        }
    }
    all
}

/// The same fleet for another batch.
fn of_batch(fleet: &Fleet<'_>, batch: &str) -> Parameters {
    let all = fleet.parameters().into_iter();
    all.map(|(key, value)| (key.to_owned(), if value == "b1" { batch.to_owned() } else { value.to_owned() })).collect()
}

/// RunInstances of `n` p5 of batch b1.
fn run(n: &str, token: &str, more: &[(&str, &str)]) -> Parameters {
    let mut all: Parameters = [
        ("MinCount", n),
        ("MaxCount", n),
        ("ClientToken", token),
        ("ImageId", SSM),
        ("InstanceType", P5),
        ("SubnetId", SUBNET_A),
    ]
    .iter()
    .chain(more)
    .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
    .collect();
    for (spec, kind) in [("1", "instance"), ("2", "volume"), ("3", "network-interface")] {
        all.push((format!("TagSpecification.{spec}.ResourceType"), kind.to_owned()));
        for (tag, (key, value)) in (1..).zip([
            ("muster.dev/cluster-uid", "c1"),
            ("muster.dev/batch", "b1"),
            ("muster.dev/attempt", "1"),
            ("kubernetes.io/cluster/demo", "owned"),
        ]) {
            all.push((format!("TagSpecification.{spec}.Tag.{tag}.Key"), key.to_owned()));
            all.push((format!("TagSpecification.{spec}.Tag.{tag}.Value"), value.to_owned()));
        }
    }
    all
}

impl Sim {
    async fn send_launch(&self, operation: &str, parameters: &Parameters) -> Option<String> {
        let parameters: Vec<(&str, &str)> = parameters.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        self.try_call(operation, &parameters).await.map(|(_, body)| body)
    }

    async fn fleet(&self, parameters: &Parameters) -> Vec<String> {
        fleet_ids(&self.send_launch("CreateFleet", parameters).await.unwrap_or_default())
    }

    async fn show(&self, batches: Value) {
        let (status, body) = self.post("/_sim/batches", batches).await;
        assert_eq!(status, 200, "{body}");
    }

    /// The numbers of the invariants that do not hold.
    fn broken(&self) -> Vec<u8> {
        self.simulator.invariants().into_iter().filter(|i| !i.holds).map(|i| i.number).collect()
    }

    /// Of those that are meant for every moment.
    fn broken_always(&self) -> Vec<u8> {
        self.simulator.invariants().into_iter().filter(|i| !i.holds && !i.at_rest).map(|i| i.number).collect()
    }
}

fn batch(count: u32, instances: &[String]) -> Value {
    let instances: Vec<Value> = instances.iter().map(|id| json!({"id": id, "attempt": 1, "state": "Ready"})).collect();
    json!({
        "metadata": {"uid": "b1"},
        "spec": {"count": count, "fill": "Atomic"},
        "status": {"phase": "Ready", "count": count, "instances": instances},
    })
}

#[tokio::test]
async fn all_sixteen_are_judged_and_hold_in_an_empty_world() {
    let sim = Sim::small();
    let numbers: Vec<u8> = sim.simulator.invariants().iter().map(|i| i.number).collect();
    assert_eq!(numbers, (1..=16).collect::<Vec<u8>>());
    assert!(sim.broken().is_empty());
}

#[tokio::test]
async fn one_is_broken_by_more_instances_than_a_token_asked_for() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.simulator.add_fault(Fault::of(FaultKind::Violating { launch: 3 }));
    sim.fleet(&changed(&Fleet::of(&template, "2", "t1"), &[])).await;
    assert_eq!(sim.broken_always(), [1, 2]);
}

#[tokio::test]
async fn two_is_broken_by_a_second_launch_of_a_batch() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.fleet(&changed(&Fleet::of(&template, "2", "t1"), &[])).await;
    sim.fleet(&changed(&Fleet::of(&template, "2", "t2"), &[])).await;
    assert_eq!(sim.broken_always(), [2]);
}

#[tokio::test]
async fn two_bears_a_call_held_back_for_one_round_of_collection() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.simulator.add_fault(Fault::of(FaultKind::HeldBack { seconds: None }).times(1));
    assert!(sim.send_launch("CreateFleet", &changed(&Fleet::of(&template, "2", "t1"), &[])).await.is_none());
    assert!(sim.simulator.instances().is_empty(), "the call waits");
    let ours = [("Filter.1.Name", "tag:muster.dev/batch"), ("Filter.1.Value.1", "b1")];
    sim.ok("DescribeInstances", &ours).await;
    let new = sim.fleet(&changed(&Fleet::of(&template, "2", "t2"), &[])).await;
    let all = sim.simulator.instances();
    assert_eq!((new.len(), all.len()), (2, 4), "the old call was carried out after the newer one");
    assert_eq!(sim.broken_always(), Vec::<u8>::new());
    sim.advance(601);
    assert_eq!(sim.broken_always(), [2]);
}

#[tokio::test]
async fn three_is_broken_by_a_resource_without_our_tags() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.fleet(&changed(&Fleet::of(&template, "1", "t1"), &[("TagSpecification.2.Tag.3.Key", "attempt")])).await;
    assert_eq!(sim.broken_always(), [3]);
}

#[tokio::test]
async fn three_is_broken_by_a_gangs_instance_that_does_not_say_so() {
    let sim = Sim::small();
    let template = sim.template().await;
    let ids = sim.fleet(&changed(&Fleet::of(&template, "1", "t1"), &[])).await;
    let mut of_gang = batch(1, &ids);
    sim.show(json!([of_gang])).await;
    assert_eq!(sim.broken_always(), Vec::<u8>::new());
    of_gang["spec"]["gangRef"] = json!({"namespace": "ml", "name": "g", "uid": "u"});
    sim.show(json!({"items": [of_gang]})).await;
    assert_eq!(sim.broken_always(), [3]);
}

#[tokio::test]
async fn four_is_broken_by_a_part_of_a_batch() {
    let sim = Sim::small();
    let template = sim.template().await;
    let ids = sim.fleet(&changed(&Fleet::of(&template, "2", "t1"), &[])).await;
    sim.simulator.terminate(&ids[..1], "Server.InternalError");
    assert_eq!(sim.broken(), [4]);
}

#[tokio::test]
async fn four_is_broken_by_an_instance_of_no_batch_and_by_a_shrink_nobody_recorded() {
    let sim = Sim::small();
    let template = sim.template().await;
    let ids = sim.fleet(&changed(&Fleet::of(&template, "2", "t1"), &[])).await;
    sim.show(json!([batch(2, &ids[..1])])).await;
    assert_eq!(sim.broken(), [4]);
    sim.show(json!([batch(2, &ids)])).await;
    assert_eq!(sim.broken(), Vec::<u8>::new());
    sim.ok("TerminateInstances", &[("InstanceId.1", &ids[0])]).await;
    sim.advance(1);
    sim.show(json!([batch(1, &ids[1..])])).await;
    assert_eq!(sim.broken(), [4], "the count was lowered only afterwards");
}

#[tokio::test]
async fn five_is_broken_by_what_is_left_and_by_a_group_that_another_batch_has() {
    let sim = Sim::small();
    sim.ok("CreatePlacementGroup", &group("g")).await;
    assert_eq!(sim.broken(), [5]);
    let holder =
        |uid: &str, phase: &str| json!({"metadata": {"uid": uid}, "status": {"phase": phase, "placementGroup": "g"}});
    sim.show(json!([holder("b1", "Terminating"), holder("b2", "Launching")])).await;
    assert_eq!(sim.broken(), Vec::<u8>::new());
    sim.ok("DeletePlacementGroup", &[("GroupName", "g")]).await;
    assert_eq!(sim.broken(), [5]);
}

/// CreatePlacementGroup with our tags.
pub(crate) fn group(name: &str) -> Vec<(&str, &str)> {
    vec![
        ("GroupName", name),
        ("Strategy", "cluster"),
        ("TagSpecification.1.ResourceType", "placement-group"),
        ("TagSpecification.1.Tag.1.Key", "muster.dev/cluster-uid"),
        ("TagSpecification.1.Tag.1.Value", "c1"),
        ("TagSpecification.1.Tag.2.Key", "muster.dev/batch"),
        ("TagSpecification.1.Tag.2.Value", "b1"),
        ("TagSpecification.1.Tag.3.Key", "kubernetes.io/cluster/demo"),
        ("TagSpecification.1.Tag.3.Value", "owned"),
    ]
}

#[tokio::test]
async fn six_is_broken_by_a_batch_in_two_zones() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.fleet(&changed(&Fleet::of(&template, "2", "t1"), &[])).await;
    sim.fleet(&changed(&Fleet { subnet: SUBNET_B, ..Fleet::of(&template, "1", "t2") }, &[])).await;
    assert_eq!(sim.broken_always(), [6]);
}

#[tokio::test]
async fn seven_is_broken_by_a_token_with_other_parameters() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.fleet(&changed(&Fleet::of(&template, "1", "t1"), &[])).await;
    sim.fleet(&changed(&Fleet::of(&template, "2", "t1"), &[])).await;
    assert_eq!(sim.broken_always(), [7]);
}

#[tokio::test]
async fn eight_is_broken_by_going_on_without_looking() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.simulator.add_fault(Fault::of(FaultKind::LostResponse).on("CreateFleet").times(1));
    sim.send_launch("CreateFleet", &changed(&Fleet::of(&template, "1", "t1"), &[])).await;
    let other = Fleet { subnet: SUBNET_B, ..Fleet::of(&template, "2", "t2") };
    sim.fleet(&changed(&other, &[])).await;
    assert_eq!(sim.broken_always(), [6, 8]);
}

#[tokio::test]
async fn eight_holds_where_the_same_launch_sent_again_reported_what_the_first_made() {
    let sim = Sim::small();
    sim.simulator.add_fault(Fault::of(FaultKind::LostResponse).on("RunInstances").times(1));
    for parameters in [run("1", "t1", &[]), run("1", "t1", &[]), run("1", "t2", &[])] {
        sim.send_launch("RunInstances", &parameters).await;
    }
    assert!(!sim.broken_always().contains(&8), "{:?}", sim.broken_always());
}

#[tokio::test]
async fn nine_is_broken_by_a_launch_that_the_sdk_repeats() {
    let sim = Sim::small();
    let template = sim.template().await;
    let body = Fleet::of(&template, "1", "t1").parameters().iter().fold(
        "Action=CreateFleet&Version=2016-11-15".to_owned(),
        |body, (key, value)| {
            let value: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
            body + "&" + key + "=" + &value
        },
    );
    let request = Request::post("/")
        .header("authorization", "AWS4-HMAC-SHA256 Credential=x")
        .header("amz-sdk-request", "attempt=2; max=3")
        .body(Body::from(body))
        .expect("the request is well-formed");
    sim.send(request).await;
    assert_eq!(sim.broken_always(), [9]);
}

#[tokio::test]
async fn nine_is_broken_by_a_version_that_moves() {
    let sim = Sim::small();
    let template = sim.template().await;
    let version = ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version", "$Latest");
    sim.fleet(&changed(&Fleet::of(&template, "1", "t1"), &[version])).await;
    assert_eq!(sim.broken_always(), [9]);
}

#[tokio::test]
async fn ten_is_broken_by_asking_a_full_pool_again_too_soon() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.fleet(&of_batch(&Fleet::of(&template, "9", "t1"), "b1")).await;
    // Fewer may be asked for, by whomever.
    sim.fleet(&of_batch(&Fleet::of(&template, "2", "t2"), "b2")).await;
    assert_eq!(sim.broken_always(), Vec::<u8>::new());
    sim.fleet(&of_batch(&Fleet::of(&template, "9", "t3"), "b3")).await;
    assert_eq!(sim.broken_always(), [10]);
}

#[tokio::test]
async fn ten_is_broken_by_leaving_a_pool_after_a_throttle() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.simulator.add_fault(Fault::of(FaultKind::Throttle).on("CreateFleet").times(1));
    sim.fleet(&changed(&Fleet::of(&template, "2", "t1"), &[])).await;
    sim.fleet(&changed(&Fleet { subnet: SUBNET_B, ..Fleet::of(&template, "2", "t2") }, &[])).await;
    assert_eq!(sim.broken_always(), [10]);
}

#[tokio::test]
async fn eleven_is_broken_by_trying_another_zone_for_a_quota() {
    let mut scenario = small();
    scenario.quotas = [("p".to_owned(), 192)].into();
    let sim = Sim::new(scenario);
    let template = sim.template().await;
    let parameters = Fleet::of(&template, "2", "t1").parameters();
    let body = sim.ok("CreateFleet", &parameters).await;
    assert_eq!(text(&body, "errorCode"), "VcpuLimitExceeded");
    let ours = [("Filter.1.Name", "tag:muster.dev/batch"), ("Filter.1.Value.1", "b1")];
    sim.ok("DescribeInstances", &ours).await;
    sim.ok("DescribeFleets", &[("FleetId.1", text(&body, "fleetId"))]).await;
    sim.fleet(&changed(&Fleet { subnet: SUBNET_B, ..Fleet::of(&template, "2", "t2") }, &[])).await;
    assert_eq!(sim.broken_always(), [11]);
}

#[tokio::test]
async fn twelve_is_broken_by_deleting_the_fleet_of_a_batch_that_lives() {
    let sim = Sim::small();
    let template = sim.template().await;
    let body = sim.ok("CreateFleet", &Fleet::of(&template, "2", "t1").parameters()).await;
    sim.show(json!([batch(2, &fleet_ids(&body))])).await;
    sim.ok("DeleteFleets", &[("FleetId.1", text(&body, "fleetId")), ("TerminateInstances", "true")]).await;
    assert_eq!(sim.broken_always(), [12]);
}

fn reservation(hosts: u32) -> ReservationSpec {
    ReservationSpec {
        id: "cr-1".to_owned(),
        instance_type: P5.to_owned(),
        zone: "us-east-1a".to_owned(),
        kind: ReservationKind::OnDemand,
        matching: Matching::Targeted,
        placement_group: None,
        spines: vec![SpineSpec { leaves: vec![hosts] }],
        start_seconds: None,
        end_seconds: None,
        tags: [].into(),
    }
}

fn reserved(hosts: u32) -> Scenario {
    let mut scenario = small();
    scenario.reservations.push(reservation(hosts));
    scenario
}

#[tokio::test]
async fn twelve_is_broken_by_a_reserved_launch_in_open_capacity() {
    let sim = Sim::new(reserved(1));
    let template = sim.template().await;
    let fleet = Fleet::of(&template, "2", "t1");
    let parameters = changed(
        &fleet,
        &[
            ("TargetCapacitySpecification.DefaultTargetCapacityType", "reserved-capacity"),
            ("ReservedCapacityOptions.CapacityReservationTarget.CapacityReservationId.1", "cr-1"),
            ("ReservedCapacityOptions.ReservedCapacityFallbackOptions.MarketType.1", "on-demand"),
        ],
    );
    assert_eq!(sim.fleet(&parameters).await.len(), 2);
    assert_eq!(sim.broken_always(), [12]);
}

#[tokio::test]
async fn thirteen_is_broken_by_reads_that_are_too_wide_too_early_or_too_many() {
    let sim = Sim::small();
    sim.ok("DescribeInstances", &[]).await;
    assert_eq!(sim.broken_always(), [13]);

    let sim = Sim::small();
    let template = sim.template().await;
    let ids = sim.fleet(&changed(&Fleet::of(&template, "2", "t1"), &[])).await;
    sim.ok("DescribeInstanceTopology", &[("InstanceId.1", &ids[0]), ("InstanceId.2", &ids[1])]).await;
    assert_eq!(sim.broken_always(), [13], "they are pending");

    let sim = Sim::small();
    let template = sim.template().await;
    let ids = sim.fleet(&changed(&Fleet::of(&template, "2", "t1"), &[])).await;
    sim.advance(20);
    sim.ok("DescribeInstanceTopology", &[("InstanceId.1", &ids[0])]).await;
    sim.advance(2);
    assert_eq!(sim.broken_always(), Vec::<u8>::new());
    sim.ok("DescribeInstanceTopology", &[("InstanceId.1", &ids[1])]).await;
    assert_eq!(sim.broken_always(), [13], "one at a time");
}

#[tokio::test]
async fn fourteen_is_broken_by_giving_up_on_a_group() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.ok("CreatePlacementGroup", &group("g")).await;
    sim.fleet(&changed(&Fleet { group: Some("g"), ..Fleet::of(&template, "2", "t1") }, &[])).await;
    sim.refused("DeletePlacementGroup", &[("GroupName", "g")]).await;
    assert_eq!(sim.broken(), [14]);
}

#[tokio::test]
async fn fifteen_is_broken_by_touching_what_belongs_to_others() {
    let mut scenario = reserved(1);
    scenario.others.push(OtherInstances {
        instance_type: P5.to_owned(),
        zone: "us-east-1a".to_owned(),
        capacity_type: MarketType::OnDemand,
        count: 1,
        tags: [("muster.dev/cluster-uid".to_owned(), "c2".to_owned())].into(),
    });
    scenario.placement_groups.push(GroupSpec {
        name: "theirs".to_owned(),
        strategy: Strategy::Cluster,
        owner: None,
        tags: [].into(),
    });
    let theirs = |sim: &Sim| sim.simulator.instances()[0].instance_id.clone();
    let sim = Sim::new(scenario.clone());
    assert_eq!(sim.broken(), Vec::<u8>::new(), "what they have is no leak of ours");
    sim.ok("TerminateInstances", &[("InstanceId.1", &theirs(&sim))]).await;
    assert_eq!(sim.broken(), [15]);
    let sim = Sim::new(scenario.clone());
    sim.ok("CreateTags", &[("ResourceId.1", &theirs(&sim)), ("Tag.1.Key", "a"), ("Tag.1.Value", "b")]).await;
    assert_eq!(sim.broken(), [15]);
    let sim = Sim::new(scenario.clone());
    sim.ok("DeletePlacementGroup", &[("GroupName", "theirs")]).await;
    assert_eq!(sim.broken(), [15]);
    let sim = Sim::new(scenario);
    sim.ok("CancelCapacityReservation", &[("CapacityReservationId", "cr-1")]).await;
    assert_eq!(sim.broken(), [15]);
}

#[tokio::test]
async fn sixteen_is_broken_by_terminating_first_where_a_host_is_free() {
    let target = ("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId", "cr-1");
    for (hosts, broken) in [(3, vec![16]), (2, vec![])] {
        let sim = Sim::new(reserved(hosts));
        let body = sim.send_launch("RunInstances", &run("2", "t1", &[target])).await.unwrap();
        let ids: Vec<String> = texts(&body, "instanceId").into_iter().map(str::to_owned).collect();
        sim.advance(60);
        sim.ok("TerminateInstances", &[("InstanceId.1", &ids[0])]).await;
        // In a full reservation the host is awaited.
        sim.advance(60);
        sim.send_launch("RunInstances", &run("1", "t2", &[target])).await.unwrap();
        assert_eq!(sim.broken_always(), broken, "{hosts} hosts");
    }
    // The other order is the right one.
    let sim = Sim::new(reserved(3));
    let body = sim.send_launch("RunInstances", &run("2", "t1", &[target])).await.unwrap();
    let ids: Vec<String> = texts(&body, "instanceId").into_iter().map(str::to_owned).collect();
    sim.send_launch("RunInstances", &run("1", "t2", &[target])).await.unwrap();
    sim.ok("TerminateInstances", &[("InstanceId.1", &ids[0])]).await;
    assert_eq!(sim.broken_always(), Vec::<u8>::new());
}
