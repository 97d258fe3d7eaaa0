//! From a placement group to a running gang and back, and what goes wrong on the way.

use std::time::Duration;

use muster_core::batch::{Verdict, judge};
use muster_core::ec2::{ErrorClass, GroupState, InstanceState, ResourceKind};
use muster_core::model::names::InstanceId;
use muster_ec2::{GroupQuery, InstanceQuery, TopologyQuery};
use muster_ec2_sim::{Fault, FaultKind};

use crate::support::{P5, World, ZONE, client, tags};

#[tokio::test]
async fn a_gang_is_launched_whole_located_and_taken_down() {
    let world = World::start().await;
    let client = &world.client;
    let intent = world.intent(4).await;
    let group = intent.placement_group.clone().unwrap();

    let answer = client.create_fleet(&intent).await;
    let Verdict::Won(ids) = judge(&intent, true, &answer) else { panic!("{answer:?}") };
    assert_eq!(ids.len(), 4);
    let answer = answer.unwrap();
    assert_eq!(client.describe_fleets(answer.fleet_id.as_deref().unwrap()).await.unwrap().unwrap().instances.len(), 4);

    let sweep = InstanceQuery::Tags(intent.tags.sweep());
    let pending = client.describe_instances(&sweep).await.unwrap();
    assert_eq!(pending.iter().map(|instance| instance.id.clone()).collect::<Vec<_>>(), ids);
    assert!(pending.iter().all(|instance| instance.state == InstanceState::Pending));

    world.advance(60);
    let running = client.describe_instances(&sweep).await.unwrap();
    for instance in &running {
        assert_eq!(instance.state, InstanceState::Running);
        assert_eq!((instance.instance_type.as_str(), instance.zone.as_str()), (P5, ZONE));
        assert_eq!(instance.placement_group.as_deref(), Some(group.as_str()));
        assert!(instance.private_dns_name.is_some() && instance.launch_time.is_some());
        assert_eq!(instance.tags, tags().of(ResourceKind::Instance));
    }
    let by_group = client.describe_topology(&TopologyQuery::Group(group.clone())).await.unwrap();
    assert_eq!(by_group.keys().cloned().collect::<Vec<_>>(), ids);
    assert!(by_group.values().all(|nodes| nodes.len() == 3));
    world.advance(1);
    assert_eq!(client.describe_topology(&TopologyQuery::Instances(ids.clone())).await.unwrap(), by_group);

    let done = client.terminate_instances(&ids).await.unwrap();
    assert_eq!((done.accepted.len(), done.unknown.len()), (4, 0));
    let in_use = client.delete_placement_group(&group).await.unwrap_err();
    assert_eq!(in_use.kind, ErrorClass::InUse);
    world.advance(120);
    client.delete_placement_group(&group).await.unwrap();
    client.delete_placement_group(&group).await.unwrap();
    client.delete_launch_template(&intent.template_id).await.unwrap();
    client.delete_launch_template(&intent.template_id).await.unwrap();
    assert!(client.describe_placement_groups(&GroupQuery::Name(group)).await.unwrap().is_empty());

    let broken: Vec<_> = world.simulator.invariants().into_iter().filter(|i| !i.holds && !i.at_rest).collect();
    assert!(broken.is_empty(), "{broken:?}");
}

#[tokio::test]
async fn a_gang_that_does_not_fit_is_lost_whole_and_sent_once() {
    let world = World::start().await;
    // Eight hosts, but only four under one spine: the group cannot hold five.
    let intent = world.intent(5).await;
    let answer = world.client.create_fleet(&intent).await;
    let Verdict::Lost { why, unavailable, .. } = judge(&intent, true, &answer) else { panic!("{answer:?}") };
    assert_eq!(why.kind, ErrorClass::Capacity);
    assert_eq!(unavailable, [intent.pool()]);
    assert!(world.client.describe_instances(&InstanceQuery::Tags(intent.tags.sweep())).await.unwrap().is_empty());
    let fleets: Vec<_> = world.simulator.journal().into_iter().filter(|e| e.operation == "CreateFleet").collect();
    assert_eq!(fleets.len(), 1);
    assert_eq!(fleets[0].attempt, Some(1));
    assert_eq!(fleets[0].token.as_deref(), Some(intent.token.as_str()));
}

#[tokio::test]
async fn a_lost_answer_is_unknown_and_its_replay_launches_nothing_more() {
    for kind in [FaultKind::LostResponse, FaultKind::LostAsServerError] {
        let world = World::start().await;
        let intent = world.intent(4).await;
        world.simulator.add_fault(Fault::of(kind).on("CreateFleet").times(1));
        let lost = world.client.create_fleet(&intent).await;
        let verdict = judge(&intent, true, &lost);
        assert!(matches!(verdict, Verdict::Unknown { .. } | Verdict::NotDecided { .. }), "{lost:?}");
        assert_eq!(world.seen("CreateFleet"), 1, "the SDK does not retry a launch");

        let replay = world.client.create_fleet(&intent).await;
        let Verdict::Won(ids) = judge(&intent, false, &replay) else { panic!("{replay:?}") };
        let live = world.client.describe_instances(&InstanceQuery::Tags(intent.tags.sweep())).await.unwrap();
        assert_eq!(live.into_iter().map(|instance| instance.id).collect::<Vec<_>>(), ids);
        assert_eq!(world.simulator.instances().len(), 4);
    }
}

#[tokio::test]
async fn an_answer_later_than_the_timeout_is_unknown() {
    let world = World::start().await;
    let intent = world.intent(4).await;
    world.simulator.add_fault(Fault::of(FaultKind::Delay { real_millis: 60_000 }).on("CreateFleet").times(1));
    let hasty = client(&world.endpoint, Duration::from_secs(2)).await;
    let late = hasty.create_fleet(&intent).await;
    assert!(matches!(judge(&intent, true, &late), Verdict::Unknown { .. }), "{late:?}");
    let error = late.unwrap_err();
    assert_eq!(error.http_status, None);
    assert!(error.message.contains(&world.endpoint), "{error}");
    let replay = world.client.create_fleet(&intent).await;
    assert!(matches!(judge(&intent, false, &replay), Verdict::Won(_)), "{replay:?}");
}

#[tokio::test]
async fn fewer_than_the_minimum_are_seen_as_a_violation_that_names_them() {
    let world = World::start().await;
    let intent = world.intent(4).await;
    world.simulator.add_fault(Fault::of(FaultKind::Violating { launch: 3 }));
    let answer = world.client.create_fleet(&intent).await;
    let Verdict::Violated(ids) = judge(&intent, true, &answer) else { panic!("{answer:?}") };
    assert_eq!(ids.len(), 3);
    assert_eq!(world.client.terminate_instances(&ids).await.unwrap().accepted, ids);
}

#[tokio::test]
async fn throttles_are_distinguished_from_missing_capacity_inside_and_outside_an_answer() {
    let world = World::start().await;
    let intent = world.intent(4).await;
    let item = FaultKind::ErrorItem { code: "RequestLimitExceeded".to_owned(), message: String::new() };
    world.simulator.add_fault(Fault::of(item).times(1));
    let inside = world.client.create_fleet(&intent).await;
    assert!(
        matches!(judge(&intent, true, &inside), Verdict::Throttled { unavailable, .. } if unavailable.is_empty()),
        "{inside:?}"
    );

    world.simulator.add_fault(Fault::of(FaultKind::Throttle).on("CreateFleet").times(1));
    let mut next = intent.clone();
    next.tags.attempt = 2;
    let next = next.with_token(1);
    let outside = world.client.create_fleet(&next).await;
    assert!(matches!(judge(&next, true, &outside), Verdict::NotDecided { .. }), "{outside:?}");
    let error = outside.unwrap_err();
    assert_eq!((error.kind, error.http_status), (ErrorClass::Throttle, Some(503)));
    assert!(error.request_id.is_some());
}

#[tokio::test]
async fn other_parameters_under_one_token_are_refused() {
    let world = World::start().await;
    let intent = world.intent(2).await;
    world.client.create_fleet(&intent).await.unwrap();
    let mut other = intent.clone();
    other.count = 3;
    let answer = world.client.create_fleet(&other).await;
    assert!(matches!(judge(&other, true, &answer), Verdict::TokenRefused { .. }), "{answer:?}");
}

#[tokio::test]
async fn names_that_are_taken_say_so_or_are_reused() {
    let world = World::start().await;
    let intent = world.intent(2).await;
    let group = intent.placement_group.clone().unwrap();
    let of_group = intent.tags.of(ResourceKind::PlacementGroup);
    let taken = world.client.create_placement_group(&group, &of_group).await.unwrap_err();
    assert_eq!(taken.kind, ErrorClass::AlreadyExists);
    for query in [GroupQuery::Name(group.clone()), GroupQuery::Tags(of_group.clone())] {
        let found = world.client.describe_placement_groups(&query).await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].state), (group.as_str(), GroupState::Available));
        assert!(intent.tags.own(&found[0].tags));
    }
    assert_eq!(world.template(&intent.tags).await.id, intent.template_id);
    // The template of the nodes and the one that was there before.
    let ours = world.client.describe_launch_templates(&intent.tags.sweep()).await.unwrap();
    assert_eq!(ours.len(), 2);
}

#[tokio::test]
async fn unknown_ids_neither_hide_nor_save_the_known_ones() {
    let world = World::start().await;
    let intent = world.intent(2).await;
    let answer = world.client.create_fleet(&intent).await.unwrap();
    let mut ids: Vec<InstanceId> = answer.instances.into_iter().map(|instance| instance.id).collect();
    ids.sort();
    let stranger = InstanceId::from("i-00000000000000000");
    let asked = [vec![stranger.clone()], ids.clone()].concat();
    let found = world.client.describe_instances(&InstanceQuery::Ids(asked.clone())).await.unwrap();
    assert_eq!(found.into_iter().map(|instance| instance.id).collect::<Vec<_>>(), ids);
    let done = world.client.terminate_instances(&asked).await.unwrap();
    assert_eq!((done.accepted, done.unknown), (ids, vec![stranger]));
}

#[tokio::test]
async fn an_instance_with_termination_protection_keeps_no_other_alive() {
    let world = World::start().await;
    let answer = world.client.create_fleet(&world.intent(3).await).await.unwrap();
    let ids: Vec<InstanceId> = answer.instances.into_iter().map(|instance| instance.id).collect();
    world.simulator.protect(ids[1].as_str());

    let refused = world.client.terminate_instances(&ids).await.unwrap_err();

    assert_eq!(refused.code.as_deref(), Some("OperationNotPermitted"), "{refused:?}");
    assert!(refused.message.contains(ids[1].as_str()), "{refused:?}");
    let found = world.client.describe_instances(&InstanceQuery::Ids(ids.clone())).await.unwrap();
    let alive = found.iter().filter(|instance| instance.state.live()).map(|instance| &instance.id);
    assert_eq!(alive.collect::<Vec<_>>(), [&ids[1]]);
}

#[tokio::test]
async fn an_endpoint_that_does_not_answer_is_named_in_one_line() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let world = World::start().await;
    let intent = world.intent(1).await;
    let nobody = client(&endpoint, Duration::from_secs(5)).await;
    let answer = nobody.create_fleet(&intent).await;
    assert!(matches!(judge(&intent, true, &answer), Verdict::Unknown { .. }));
    let text = answer.unwrap_err().to_string();
    assert!(text.starts_with(&format!("call CreateFleet: cannot reach {endpoint}: ")), "{text}");
    assert!(!text.contains('\n'));
}
