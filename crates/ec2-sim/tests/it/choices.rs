//! Every named choice, as it is by default and flipped.

use muster_ec2_sim::choices::{
    BlockMinimum, Choices, FleetBucket, FleetCount, FourthLayer, Quota, QuotaValue, Refusal, ZonalMismatch,
};
use muster_ec2_sim::scenario::{Matching, ReservationKind, ReservationSpec, SpineSpec};
use muster_ec2_sim::{MarketType, Scenario};

use crate::support::{Fleet, P5, SSM, SUBNET_A, Sim, fleet_ids, small, text, texts};

const RUN: [(&str, &str); 6] = [
    ("MinCount", "1"),
    ("MaxCount", "1"),
    ("ClientToken", "t"),
    ("ImageId", SSM),
    ("InstanceType", P5),
    ("SubnetId", SUBNET_A),
];

fn more<'a>(parameters: &[(&'a str, &'a str)], change: (&'a str, &'a str)) -> Vec<(&'a str, &'a str)> {
    let mut all: Vec<_> = parameters.iter().copied().filter(|(key, _)| *key != change.0).collect();
    all.push(change);
    all
}

#[test]
fn every_choice_is_flipped_by_itself() {
    let value = |choices: &Choices| serde_json::to_value(choices).unwrap().as_object().unwrap().clone();
    let default = value(&Choices::default());
    let mut flipped = std::collections::BTreeSet::new();
    for (name, choices) in Choices::flipped() {
        let choices = value(&choices);
        let changed: Vec<&String> = choices.keys().filter(|field| choices[*field] != default[*field]).collect();
        assert_eq!(changed.len(), 1, "{name} changes {changed:?}");
        flipped.insert(changed[0].clone());
    }
    assert_eq!(flipped, default.keys().cloned().collect(), "fields of the choices, and those that are flipped");
}

#[test]
fn the_two_runs_with_all_choices_flipped_hold_every_other_answer() {
    let value = |choices: &Choices| serde_json::to_value(choices).unwrap();
    let together = Choices::all_flipped().map(|(_, choices)| value(&choices));
    let default = value(&Choices::default());
    for field in default.as_object().unwrap().keys() {
        let others: Vec<_> = Choices::flipped()
            .iter()
            .map(|(_, choices)| value(choices)[field].clone())
            .filter(|other| *other != default[field])
            .collect();
        for other in others {
            assert!(together.iter().any(|choices| choices[field] == other), "{field}: {other}");
        }
        assert!(together.iter().all(|choices| choices[field] != default[field]), "{field} is not flipped");
    }
}

#[tokio::test]
async fn the_minimum_of_a_block_is_ignored_or_acts() {
    for (choice, launched) in [(BlockMinimum::Ignored, 2), (BlockMinimum::Acts, 0)] {
        let mut scenario = small();
        scenario.choices.block_minimum = choice;
        scenario.reservations.push(ReservationSpec {
            id: "cr-1".to_owned(),
            instance_type: P5.to_owned(),
            zone: "us-east-1a".to_owned(),
            kind: ReservationKind::CapacityBlock,
            matching: Matching::Targeted,
            placement_group: None,
            spines: vec![SpineSpec { leaves: vec![2] }],
            start_seconds: Some(60.0),
            end_seconds: Some(86_400.0),
            tags: [].into(),
        });
        let sim = Sim::new(scenario);
        let body = sim
            .ok(
                "CreateLaunchTemplate",
                &[
                    ("LaunchTemplateName", "block"),
                    ("LaunchTemplateData.ImageId", SSM),
                    ("LaunchTemplateData.InstanceMarketOptions.MarketType", "capacity-block"),
                    (
                        "LaunchTemplateData.CapacityReservationSpecification.CapacityReservationTarget\
                         .CapacityReservationId",
                        "cr-1",
                    ),
                ],
            )
            .await;
        let fleet = Fleet::of(text(&body, "launchTemplateId"), "3", "t1");
        let block = ("TargetCapacitySpecification.DefaultTargetCapacityType", "capacity-block");
        // Before its start a block is a want of capacity.
        let early = sim.ok("CreateFleet", &more(&fleet.parameters(), block)).await;
        assert_eq!(text(&early, "errorCode"), "InsufficientInstanceCapacity");
        sim.advance(60);
        let later = Fleet { token: "t2", ..fleet };
        let body = sim.ok("CreateFleet", &more(&later.parameters(), block)).await;
        assert_eq!(fleet_ids(&body).len(), launched, "{choice:?}");
    }
}

#[tokio::test]
async fn a_changed_request_by_a_known_token_is_a_mismatch_or_the_old_answer() {
    for (choice, status) in [(ZonalMismatch::Mismatch, 400), (ZonalMismatch::OldAnswer, 200)] {
        let mut scenario = small();
        scenario.choices.zonal_mismatch = choice;
        let sim = Sim::new(scenario);
        sim.ok("RunInstances", &RUN).await;
        let (answered, _) = sim.call("RunInstances", &more(&RUN, ("MaxCount", "2"))).await;
        assert_eq!(answered, status);
        assert_eq!(sim.simulator.instances().len(), 1);
    }
}

#[tokio::test]
async fn a_refused_combination_has_one_of_two_codes() {
    for choice in [Refusal::InvalidParameterCombination, Refusal::InvalidParameterValue] {
        let mut scenario = small();
        scenario.choices.refusal = choice;
        let sim = Sim::new(scenario);
        let refused = sim.refused("RunInstances", &more(&RUN, ("MinCount", "2"))).await;
        assert_eq!(refused, (400, choice.code().to_owned()));
    }
}

#[tokio::test]
async fn a_token_lives_for_the_whole_run_or_for_a_time() {
    for (life, instances) in [(None, 1), (Some(60), 2)] {
        let mut scenario = small();
        scenario.choices.token_life_seconds = life;
        let sim = Sim::new(scenario);
        sim.ok("RunInstances", &RUN).await;
        sim.advance(61);
        sim.ok("RunInstances", &RUN).await;
        assert_eq!(sim.simulator.instances().len(), instances);
    }
}

#[tokio::test]
async fn what_shuts_down_counts_towards_the_quota_or_does_not() {
    for (choice, status) in [(Quota::ShuttingDownCounts, 400), (Quota::LiveAloneCounts, 200)] {
        let mut scenario = small();
        scenario.choices.quota = choice;
        scenario.quotas = [("p".to_owned(), 192)].into();
        let sim = Sim::new(scenario);
        let body = sim.ok("RunInstances", &RUN).await;
        let (_, code) = sim.refused("RunInstances", &more(&RUN, ("ClientToken", "u"))).await;
        assert_eq!(code, "VcpuLimitExceeded");
        sim.ok("TerminateInstances", &[("InstanceId.1", text(&body, "instanceId"))]).await;
        let (answered, _) = sim.call("RunInstances", &more(&RUN, ("ClientToken", "v"))).await;
        assert_eq!(answered, status);
    }
}

#[tokio::test]
async fn a_quota_that_nobody_raised_has_a_value_of_the_account_or_the_default_alone() {
    for (choice, status) in [(QuotaValue::Applied, 200), (QuotaValue::DefaultAlone, 400)] {
        let mut scenario = small();
        scenario.choices.quota_value = choice;
        scenario.quotas = [("trn".to_owned(), 192)].into();
        let sim = Sim::new(scenario);
        let asked = serde_json::json!({"ServiceCode": "ec2", "QuotaCode": "L-2C3B7624"});
        let (answered, body) = sim.json("ServiceQuotasV20190624.GetServiceQuota", asked.clone()).await;
        assert_eq!(answered, status, "{body}");
        let (answered, body) = sim.json("ServiceQuotasV20190624.GetAWSDefaultServiceQuota", asked).await;
        assert_eq!((answered, body["Quota"]["Value"].as_f64()), (200, Some(192.0)), "{body}");
    }
}

#[tokio::test]
async fn fleets_draw_on_the_bucket_of_run_instances_or_do_not() {
    for (choice, status) in [(FleetBucket::Apart, 200), (FleetBucket::Shared, 503)] {
        let mut scenario = Scenario::default().with_pool("m5.2xlarge", "us-east-1a", MarketType::OnDemand, 1, 1, 2000);
        scenario.clock.manual = true;
        scenario.choices.fleet_bucket = choice;
        let sim = Sim::new(scenario);
        let body = sim
            .ok("CreateLaunchTemplate", &[("LaunchTemplateName", "plain"), ("LaunchTemplateData.ImageId", SSM)])
            .await;
        let template = text(&body, "launchTemplateId").to_owned();
        let fleet = |n: &'static str, token: &'static str| {
            let kind = ("LaunchTemplateConfigs.1.Overrides.1.InstanceType", "m5.2xlarge");
            more(&Fleet::of(&template, n, token).parameters(), kind)
        };
        sim.ok("CreateFleet", &fleet("999", "t1")).await;
        let (answered, _) = sim.call("CreateFleet", &fleet("2", "t2")).await;
        assert_eq!(answered, status);
    }
}

#[tokio::test]
async fn instant_fleets_count_as_active_or_do_not() {
    for (choice, status) in [(FleetCount::NotCounted, 200), (FleetCount::Counted, 400)] {
        let mut scenario = small();
        scenario.choices.fleet_count = choice;
        scenario.throttling = false;
        let sim = Sim::new(scenario);
        let template = sim.template().await;
        let base = Fleet::of(&template, "1", "t").parameters();
        for number in 0..1000 {
            sim.ok("CreateFleet", &more(&base, ("ClientToken", &format!("t{number}")))).await;
        }
        let (answered, _) = sim.call("CreateFleet", &more(&base, ("ClientToken", "last"))).await;
        assert_eq!(answered, status);
    }
}

#[tokio::test]
async fn the_fourth_layer_lies_below_the_leaf_or_above_it() {
    const B200: &str = "p6-b200.48xlarge";
    // Two leaves of four hosts: below them are pairs of hosts, above them is one pair of leaves.
    for (choice, third, fourth) in [(FourthLayer::BelowLeaf, 2, 4), (FourthLayer::AboveLeaf, 1, 2)] {
        let mut scenario = Scenario::default().with_pool(B200, "us-east-1a", MarketType::OnDemand, 1, 2, 4);
        scenario.clock.manual = true;
        scenario.choices.fourth_layer = choice;
        let sim = Sim::new(scenario);
        let run = more(&more(&RUN, ("InstanceType", B200)), ("MaxCount", "8"));
        sim.ok("RunInstances", &more(&run, ("MinCount", "8"))).await;
        sim.advance(60);
        let instances = sim.simulator.instances();
        let different = |layer: usize| {
            let nodes: std::collections::BTreeSet<&String> =
                instances.iter().map(|i| &i.network_nodes[layer]).collect();
            nodes.len()
        };
        assert_eq!((instances[0].network_nodes.len(), different(2), different(3)), (4, third, fourth), "{choice:?}");
    }
}

#[tokio::test]
async fn the_topology_is_known_with_running_or_some_time_later() {
    for (delay, nodes) in [(0, 3), (30, 0)] {
        let mut scenario = small();
        scenario.choices.topology_delay_seconds = delay;
        let sim = Sim::new(scenario);
        let body = sim.ok("RunInstances", &RUN).await;
        let id = text(&body, "instanceId").to_owned();
        sim.advance(20);
        let body = sim.ok("DescribeInstanceTopology", &[("InstanceId.1", &id)]).await;
        let found = body.split_once("<networkNodeSet>").map_or(0, |(_, rest)| texts(rest, "item").len());
        assert_eq!(found.min(3), nodes, "{body}");
        sim.advance(30);
        let body = sim.ok("DescribeInstanceTopology", &[("InstanceId.1", &id)]).await;
        assert!(body.contains("<networkNodeSet><item>nn-"), "{body}");
    }
}
