//! The ways to provision: reservations, the ladder, quotas, classes that cannot be used, and launches that lie badly.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use muster::testbed::workloads::TestJob;
use muster::testbed::{Stack, eventually, pools};
use muster_api::crd::{EC2NodeClass, NodePool, is_true};
use muster_api::keys;
use muster_ec2_sim::choices::Shortfall;
use muster_ec2_sim::scenario::{GroupSpec, Matching, ReservationKind, ReservationSpec, SpineSpec, Strategy};
use muster_ec2_sim::{Fault, FaultKind, MarketType, Scenario};
use serde_json::{Value, json};

use crate::cloud::{
    batch_that, delete_job, everything_is_terminated, gang_job, goes_wrong, instances, invariants_hold, journal,
    launched_fleets, no_instance_is_left,
};
use crate::support::{DEADLINE, all_run, choices, no_errors, options, phase, stack, submit};

/// EC2's minutes pass in seconds.
const FACTOR: u32 = 20;

/// A stack whose class and pool are those of the testbed with these fields of the spec laid over.
pub(crate) async fn stack_with(scenario: &Scenario, class: &Value, pool: &Value) -> Option<Stack> {
    let mut options = options().await?;
    options.scenario = Some(serde_json::to_value(scenario).unwrap());
    options.factor = FACTOR;
    let stack = stack(options, "ml").await;
    let (of_class, of_pool) = pools::p5("1s").unwrap();
    let over = |base: &mut Value, over: &Value| {
        for (field, value) in over.as_object().unwrap() {
            base["spec"][field] = value.clone();
        }
    };
    let (mut new_class, mut new_pool) = (json!(of_class), json!(of_pool));
    over(&mut new_class, class);
    over(&mut new_pool, pool);
    let class = serde_json::from_value(new_class).unwrap();
    pools::create(&stack.admin().unwrap(), &class, &serde_json::from_value(new_pool).unwrap()).await.unwrap();
    Some(stack)
}

/// A template spec of the pool that allows these capacity types.
pub(crate) fn capacity_types(capacity_types: &[&str]) -> Value {
    json!({"spec": {
        "nodeClassRef": {"group": "muster.dev", "kind": "EC2NodeClass", "name": "gpu"},
        "requirements": [
            {"key": "muster.dev/instance-family", "operator": "In", "values": ["p5"]},
            {"key": "muster.dev/capacity-type", "operator": "In", "values": capacity_types},
        ],
    }})
}

pub(crate) fn reservation(id: &str, group: Option<&str>, hosts: u32) -> ReservationSpec {
    ReservationSpec {
        id: id.to_owned(),
        instance_type: "p5.48xlarge".to_owned(),
        zone: "us-east-1b".to_owned(),
        kind: ReservationKind::OnDemand,
        matching: Matching::Targeted,
        placement_group: group.map(str::to_owned),
        spines: vec![SpineSpec { leaves: vec![hosts] }],
        start_seconds: None,
        end_seconds: None,
        tags: [("team".to_owned(), "ml".to_owned())].into(),
    }
}

/// Reasons and messages of events about an object of this kind.
async fn events(stack: &Stack, kind: &str) -> Vec<(String, String)> {
    let params = ListParams::default().fields(&format!("involvedObject.kind={kind}"));
    let events = Api::<Event>::all(stack.admin().unwrap()).list(&params).await.unwrap();
    events.into_iter().map(|event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default())).collect()
}

/// Waits for an event about an object of this kind.
async fn reported(stack: &Stack, kind: &str, reason: &str, text: &str) {
    eventually(DEADLINE, &format!("event {reason} with {text:?}"), || async move {
        let seen = events(stack, kind).await;
        let found = seen.iter().any(|(of, message)| of == reason && message.contains(text));
        if found { Ok(Some(())) } else { Err(format!("{seen:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

fn launches(journal: &[Value]) -> Vec<&Value> {
    let launch = |entry: &&Value| entry["operation"] == "CreateFleet" || entry["operation"] == "RunInstances";
    journal.iter().filter(launch).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gangs_fill_reservations_inside_and_outside_a_group_before_they_provision_on_demand() {
    let mut scenario = Scenario::demo();
    let group = GroupSpec { name: "theirs".to_owned(), strategy: Strategy::Cluster, owner: None, tags: [].into() };
    scenario.placement_groups.push(group);
    scenario.reservations =
        vec![reservation("cr-00000000000000001", None, 4), reservation("cr-00000000000000002", Some("theirs"), 4)];
    let class = json!({"capacityReservationSelectorTerms": [{"tags": {"team": "ml"}}]});
    let pool =
        json!({"template": capacity_types(&["reserved", "on-demand"]), "placement": {"placementGroup": "preferred"}});
    let Some(stack) = stack_with(&scenario, &class, &pool).await else { return };
    let client = stack.admin().unwrap();
    for name in ["first", "second", "third"] {
        submit(&client, "ml", gang_job(name, 4)).await;
        all_run(&stack, "ml", name, 4).await;
    }

    let journal = journal(&stack, 0).await;
    let asked: Vec<(Value, Value, Value)> = launches(&journal)
        .into_iter()
        .map(|entry| {
            let of = |name: &str| entry["parameters"][name].clone();
            let target = "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId";
            (entry["operation"].clone(), of(target), of("Placement.GroupName"))
        })
        .collect();
    assert_eq!(
        asked,
        [
            (json!("RunInstances"), json!("cr-00000000000000002"), json!("theirs")),
            (json!("RunInstances"), json!("cr-00000000000000001"), Value::Null),
            (json!("CreateFleet"), Value::Null, Value::Null),
        ]
    );
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await.unwrap().items;
    let labels: BTreeSet<(Option<&String>, Option<&String>)> = nodes
        .iter()
        .map(|node| (node.labels().get(keys::CAPACITY_TYPE), node.labels().get(keys::CAPACITY_RESERVATION_ID)))
        .collect();
    assert_eq!(labels.len(), 3, "{labels:?}");
    let batch = batch_that(&stack, "the batch of the third gang", |batch| {
        batch.spec.gang_ref.as_ref().is_some_and(|gang| gang.name.starts_with("third"))
    })
    .await;
    let status = batch.status.unwrap();
    assert_eq!(status.capacity_type.as_deref(), Some("on-demand"));
    let why: Vec<&str> = status.excluded.iter().map(|left| left.why.as_str()).collect();
    assert!(why.contains(&"reservation cr-00000000000000001: 4 hosts needed, 0 free"), "{why:?}");
    assert!(
        status.candidates.iter().all(|candidate| candidate.why.starts_with("on-demand")),
        "{:?}",
        status.candidates
    );
    for name in ["first", "second", "third"] {
        delete_job(&stack, name).await;
    }
    no_instance_is_left(&stack).await;
    let state: Value = stack.sim("/_sim/state").await.unwrap();
    let names: Vec<&Value> = state["placementGroups"].as_array().unwrap().iter().map(|group| &group["name"]).collect();
    assert_eq!(names, [&json!("theirs")], "the group of others stays, ours is deleted");
    invariants_hold(&stack).await;
    no_errors(&stack);
}

/// Waits until spot prices have been read, and what is read after them.
pub(crate) async fn spot_prices_are_known(stack: &Stack) {
    eventually(DEADLINE, "spot prices to be read", || async move {
        let seen: Vec<Value> = stack.sim("/_sim/journal?from=0").await.map_err(|error| error.to_string())?;
        let prices = seen.iter().position(|entry| entry["operation"] == "DescribeSpotPriceHistory");
        let after = prices
            .and_then(|at| seen.iter().skip(at).find(|entry| entry["operation"] == "DescribeInstanceTypeOfferings"));
        Ok::<_, String>(after.map(|_| ()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ladder_is_climbed_down_to_spot_and_every_step_is_reported() {
    // Two spines of four: eight fit into no group on demand, and there are only seven hosts without one.
    let mut scenario = Scenario::default().with_pool("p5.48xlarge", "us-east-1a", MarketType::OnDemand, 1, 1, 7);
    scenario = scenario.with_pool("p5.48xlarge", "us-east-1a", MarketType::Spot, 1, 1, 8);
    let pool = json!({
        "template": capacity_types(&["on-demand", "spot"]),
        "placement": {"placementGroup": "preferred", "capacityTypeOrder": ["on-demand", "spot"]},
    });
    let Some(stack) = stack_with(&scenario, &json!({}), &pool).await else { return };
    spot_prices_are_known(&stack).await;
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;

    all_run(&stack, "ml", "train", 8).await;

    let batch = batch_that(&stack, "the batch", |batch| batch.status.is_some()).await;
    let rungs: Vec<(String, bool)> = batch
        .status
        .as_ref()
        .unwrap()
        .attempts
        .iter()
        .map(|attempt| (attempt.capacity_type.clone(), attempt.group))
        .collect();
    let step = |capacity_type: &str, group| (capacity_type.to_owned(), group);
    assert_eq!(rungs, [step("on-demand", true), step("on-demand", false), step("spot", true)]);
    let down = "from on-demand in a placement group to on-demand without a placement group";
    reported(&stack, "NodeBatch", "SteppedDown", down).await;
    reported(&stack, "NodeBatch", "SteppedDown", "to spot in a placement group").await;
    let price = batch.status.as_ref().unwrap().price_per_hour.clone();
    assert_eq!(price.as_deref(), Some("176.128"), "8 at 40 percent of the list price, from the spot price history");
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_stops_at_the_first_zone_and_capacity_of_another_capacity_type_is_still_provisioned() {
    let mut scenario = Scenario::demo();
    // Four p5.48xlarge.
    scenario.quotas.insert("p".to_owned(), 768);
    let pool = json!({"template": capacity_types(&["on-demand", "spot"])});
    let Some(stack) = stack_with(&scenario, &json!({}), &pool).await else { return };
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;

    all_run(&stack, "ml", "train", 8).await;

    let journal = journal(&stack, 0).await;
    let capacity_types: Vec<&Value> = launches(&journal)
        .into_iter()
        .map(|entry| &entry["parameters"]["TargetCapacitySpecification.DefaultTargetCapacityType"])
        .collect();
    if choices().shortfall == Shortfall::Empty {
        // An answer without a reason proves nothing: it is asked for again under its token, then every zone is tried.
        let tokens: BTreeSet<String> =
            launches(&journal).iter().map(|entry| entry["parameters"]["ClientToken"].to_string()).collect();
        assert_eq!(tokens.len(), 4, "three zones on demand, one on spot");
        assert_eq!(capacity_types.last(), Some(&&json!("spot")));
    } else {
        assert_eq!(capacity_types, [&json!("on-demand"), &json!("spot")], "no other zone is asked on demand");
        reported(&stack, "NodeBatch", "QuotaExceeded", "VcpuLimitExceeded").await;
        let batch = batch_that(&stack, "the batch", |batch| batch.status.is_some()).await;
        let left: Vec<String> = batch.status.unwrap().excluded.into_iter().map(|left| left.why).collect();
        assert!(left.iter().any(|why| why.contains("quota on-demand vCPUs of class P")), "{left:?}");
    }
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_fleets_are_gone_around_by_run_instances() {
    let Some(stack) = stack_with(&Scenario::demo(), &json!({}), &json!({})).await else { return };
    let code = FaultKind::Error { status: 400, code: "MaxFleetCountExceeded".to_owned(), message: String::new() };
    goes_wrong(&stack, &Fault::of(code).on("CreateFleet")).await;
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 4)).await;

    all_run(&stack, "ml", "train", 4).await;

    let journal = journal(&stack, 0).await;
    let operations: Vec<&Value> = launches(&journal).into_iter().map(|entry| &entry["operation"]).collect();
    assert_eq!(operations, [&json!("CreateFleet"), &json!("RunInstances")]);
    assert!(launched_fleets(&journal).is_empty());
    let run = launches(&journal)[1];
    assert_eq!((instances(run).len(), &run["parameters"]["MinCount"]), (4, &json!("4")));
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mistake_in_a_class_is_a_condition_and_an_event_that_name_the_field_and_nothing_is_launched() {
    let mut scenario = Scenario::demo();
    scenario.security_groups.push(
        serde_json::from_value(json!({"id": "sg-000000000000plain", "name": "plain", "noSelfReference": true}))
            .unwrap(),
    );
    let Some(stack) = stack_with(&scenario, &json!({}), &json!({})).await else { return };
    let client = stack.admin().unwrap();
    let (classes, node_pools) = (&Api::<EC2NodeClass>::all(client.clone()), &Api::<NodePool>::all(client.clone()));
    // The pool of the testbed is not what is looked at.
    node_pools.delete("h100", &DeleteParams::default()).await.unwrap();
    let (class, pool) = pools::p5("1s").unwrap();
    for (name, over, reason, field) in [
        (
            "subnets",
            json!({"subnetSelectorTerms": [{"tags": {"no": "such"}}]}),
            "SubnetsNotFound",
            "subnetSelectorTerms",
        ),
        (
            "groups",
            json!({"securityGroupSelectorTerms": [{"name": "none"}]}),
            "SecurityGroupsNotFound",
            "securityGroupSelectorTerms",
        ),
        (
            "efa",
            json!({"securityGroupSelectorTerms": [{"name": "plain"}]}),
            "NoSelfReference",
            "securityGroupSelectorTerms",
        ),
        ("image", json!({"amiSelectorTerms": [{"id": "ami-0ffffffffffffffff"}]}), "AMINotFound", "amiSelectorTerms"),
        ("alias", json!({"amiSelectorTerms": [{"alias": "al2@latest"}]}), "AliasUnresolved", "amiSelectorTerms"),
        ("kubelet", json!({"kubelet": {"maxPodz": 5}}), "UnknownKubeletField", "maxPodz"),
        ("data", json!({"userData": format!("#!/bin/sh\n#{}", "x".repeat(16_000))}), "UserDataTooLarge", "userData"),
        (
            "cr",
            json!({"capacityReservationSelectorTerms": [{"id": "cr-0ffffffffffffffff"}]}),
            "ReservationNotFound",
            "capacityReservationSelectorTerms",
        ),
    ] {
        let (mut class, mut pool) = (json!(class), json!(pool));
        class["metadata"]["name"] = json!(name);
        pool["metadata"]["name"] = json!(name);
        pool["spec"]["template"]["spec"]["nodeClassRef"]["name"] = json!(name);
        for (key, value) in over.as_object().unwrap() {
            class["spec"][key] = value.clone();
        }
        classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
        node_pools.create(&PostParams::default(), &serde_json::from_value(pool).unwrap()).await.unwrap();
        eventually(DEADLINE, &format!("class {name} to say {reason}"), || async move {
            let class = classes.get(name).await.map_err(|error| error.to_string())?.status.unwrap_or_default();
            let pool = node_pools.get(name).await.map_err(|error| error.to_string())?.status.unwrap_or_default();
            let ready = |conditions: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition]| {
                conditions.iter().find(|one| one.type_ == "Ready").cloned()
            };
            match (ready(&class.conditions), ready(&pool.conditions)) {
                (Some(class), Some(pool))
                    if class.status == "False"
                        && class.reason == reason
                        && class.message.contains(field)
                        && pool.status == "False"
                        && pool.message.contains(field) =>
                {
                    Ok(Some(()))
                }
                seen => Err(format!("{seen:?}")),
            }
        })
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
        reported(&stack, "EC2NodeClass", "ClassNotReady", reason).await;
    }
    submit(&client, "ml", gang_job("train", 4)).await;
    crate::support::says(&stack, "ml", "train", "no NodePool is ready to provision nodes").await;
    assert!(launches(&journal(&stack, 0).await).is_empty());

    for name in ["subnets", "groups", "image", "alias", "kubelet", "data", "cr"] {
        node_pools.delete(name, &DeleteParams::default()).await.unwrap();
        classes.delete(name, &DeleteParams::default()).await.unwrap();
    }
    // Mended, it is used without a restart.
    let groups = json!({"spec": {"securityGroupSelectorTerms": [{"id": "sg-00000000000000001"}]}});
    classes.patch("efa", &PatchParams::default(), &Patch::Merge(&groups)).await.unwrap();
    all_run(&stack, "ml", "train", 4).await;
    let mended = classes.get("efa").await.unwrap().status.unwrap();
    assert!(is_true(&mended.conditions, "Ready"));
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_profile_that_ec2_refuses_is_blamed_on_the_class_and_not_tried_again() {
    let Some(stack) = stack_with(&Scenario::demo(), &json!({}), &json!({})).await else { return };
    let message =
        "Value (muster-node) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name";
    let code = FaultKind::Error { status: 400, code: "InvalidParameterValue".to_owned(), message: message.to_owned() };
    goes_wrong(&stack, &Fault::of(code).on("CreateFleet")).await;
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 4)).await;

    reported(&stack, "EC2NodeClass", "ClassNotReady", "spec.instanceProfile: EC2 refused").await;
    reported(&stack, "NodeBatch", "AttemptLost", "InvalidParameterValue").await;
    assert_eq!(launches(&journal(&stack, 0).await).len(), 1);
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_launches_that_miss_the_required_leaf_are_rolled_back_and_then_the_batch_waits_for_a_person() {
    // A group is one spine, and no leaf has four hosts.
    let zones = ["us-east-1a", "us-east-1b", "us-east-1c"];
    let scenario = zones.into_iter().fold(Scenario::default(), |scenario, zone| {
        scenario.with_pool("p5.48xlarge", zone, MarketType::OnDemand, 1, 2, 3)
    });
    let Some(stack) = stack_with(&scenario, &json!({}), &json!({})).await else { return };
    let job = TestJob::new("train", 4)
        .gpus(8)
        .pod_annotation("muster.dev/gang", "train")
        .pod_annotation(keys::TOPOLOGY_REQUIRED, "topology.k8s.aws/network-node-layer-3")
        .build();
    submit(&stack.admin().unwrap(), "ml", job).await;

    reported(&stack, "NodeBatch", "RequiredLevelNotMet", "2 launches missed the level").await;

    let batch = batch_that(&stack, "the batch to have rolled back", |batch| {
        batch.status.as_ref().is_some_and(|status| status.phase == "Pending" && status.instances.is_empty())
    })
    .await;
    let status = batch.status.unwrap();
    assert_eq!((status.misses, status.located.as_slice()), (2, &[1, 1, 2][..]));
    let journal = journal(&stack, 0).await;
    assert_eq!(launched_fleets(&journal).len(), 2);
    // The cloud controller draws on the same bucket: a throttled call is sent again.
    let asked =
        journal.iter().filter(|entry| entry["operation"] == "DescribeInstanceTopology" && entry["status"] == 200);
    let ours = asked.filter(|entry| entry["parameters"]["GroupName.1"].is_string()).count();
    let readings = if choices().topology_delay_seconds == 0 { 1 } else { 2 };
    assert_eq!(ours, 2 * readings, "once per launch, by group, and again where EC2 could not tell at first");
    let nodes = Api::<Node>::all(stack.admin().unwrap()).list(&ListParams::default()).await.unwrap();
    assert!(nodes.items.is_empty(), "nothing of it ever served");
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_waits_for_its_capacity_block_and_starts_when_that_begins() {
    let scenario = Scenario {
        reservations: vec![ReservationSpec {
            kind: ReservationKind::CapacityBlock,
            start_seconds: Some(800.0),
            end_seconds: Some(90_000.0),
            ..reservation("cr-00000000000000003", None, 4)
        }],
        ..Scenario::default()
    };
    let class = json!({"capacityReservationSelectorTerms": [{"id": "cr-00000000000000003"}]});
    let pool = json!({"template": capacity_types(&["reserved"]), "placement": {"placementGroup": "preferred"}});
    let Some(stack) = stack_with(&scenario, &class, &pool).await else { return };
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 4)).await;

    batch_that(&stack, "the batch to name the beginning", |batch| {
        let stated = batch.status.as_ref().and_then(|status| status.message.as_deref()).unwrap_or_default();
        stated.contains("reservation cr-00000000000000003 begins")
    })
    .await;
    assert!(launches(&journal(&stack, 0).await).is_empty(), "EC2 is not asked before");

    all_run(&stack, "ml", "train", 4).await;

    let journal = journal(&stack, 0).await;
    let run = launches(&journal).into_iter().find(|entry| !instances(entry).is_empty()).unwrap();
    assert_eq!(run["parameters"]["InstanceMarketOptions.MarketType"], "capacity-block");
    phase(&stack, "ml", "train", "Bound").await;
    delete_job(&stack, "train").await;
    no_instance_is_left(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_too_many_fleets_in_the_region_finished_ones_of_ours_go_and_no_other_call_is_needed() {
    // The first zone is empty, so the first gang leaves a fleet that launched nothing, and one that is terminated.
    let scenario =
        ["us-east-1a", "us-east-1b"].into_iter().zip([1, 8]).fold(Scenario::default(), |all, (zone, hosts)| {
            all.with_pool("p5.48xlarge", zone, MarketType::OnDemand, 1, 1, hosts)
        });
    let Some(stack) = stack_with(&scenario, &json!({}), &json!({})).await else { return };
    submit(&stack.admin().unwrap(), "ml", gang_job("first", 4)).await;
    all_run(&stack, "ml", "first", 4).await;
    submit(&stack.admin().unwrap(), "ml", gang_job("second", 2)).await;
    all_run(&stack, "ml", "second", 2).await;
    delete_job(&stack, "first").await;
    eventually(DEADLINE, "the batch of the first gang to be gone", || async {
        let left = crate::cloud::batches(&stack).await.len();
        if left == 1 { Ok(Some(())) } else { Err(format!("{left} batches")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    let code = FaultKind::Error { status: 400, code: "MaxFleetCountExceeded".to_owned(), message: String::new() };
    goes_wrong(&stack, &Fault::of(code).on("CreateFleet").times(1)).await;
    submit(&stack.admin().unwrap(), "ml", gang_job("third", 2)).await;

    all_run(&stack, "ml", "third", 2).await;

    let journal = journal(&stack, 0).await;
    let deleted: Vec<&Value> = journal.iter().filter(|entry| entry["operation"] == "DeleteFleets").collect();
    assert_eq!(deleted.len(), 1, "one call: {deleted:#?}");
    let gone: BTreeSet<&str> = deleted[0]["resources"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(gone.len() >= 2 && gone.iter().all(|id| id.starts_with("fleet-")), "fleets and no instance: {gone:?}");
    assert!(launches(&journal).iter().all(|entry| entry["operation"] == "CreateFleet"), "no other call is needed");
    all_run(&stack, "ml", "second", 2).await;
    invariants_hold(&stack).await;
    for name in ["second", "third"] {
        delete_job(&stack, name).await;
    }
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}
