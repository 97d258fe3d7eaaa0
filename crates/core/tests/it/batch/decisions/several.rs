//! A launch for pods of no gang that leaves EC2 a choice of types and zones.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_core::batch::{Converge, Decision, Made, Note};
use muster_core::ec2::{CapacityType, FleetError, InstanceState, LaunchAnswer, LaunchedInstance, Override};
use muster_core::model::batch::{
    AttemptOutcome, AttemptOverride, BatchPhase, BatchSpec, BatchStatus, MemberState, Owner,
};
use muster_core::model::names::InstanceId;
use muster_core::model::node::{Taint, TaintEffect};
use muster_core::offering::Ranked;

use super::super::cluster::UNREGISTERED;
use super::scene::{Scene, after, having, ranked, ranking};

fn of_pods(status: BatchStatus, candidates: &[Ranked]) -> Scene {
    Scene::new(status).with(|one| {
        one.gangs.clear();
        one.batch.spec = Arc::new(BatchSpec {
            owner: Owner::Pods,
            partial: true,
            zones: vec!["a".to_owned(), "b".to_owned()],
            ..BatchSpec::clone(&one.batch.spec)
        });
        one.says.ranking = ranking(candidates, &[]);
    })
}

/// A candidate of this type, zone and capacity type, at so many dollars for one node.
fn offered(instance_type: &str, zone: &str, capacity_type: CapacityType, price: u64) -> Ranked {
    let mut one = ranked(zone);
    one.candidate.instance_type = instance_type.to_owned();
    one.candidate.capacity_type = capacity_type;
    one.candidate.price_micro_usd_per_hour = Some(price * 1_000_000);
    one.total_micro_usd_per_hour = price * 3_000_000;
    one
}

fn spot(instance_type: &str, zone: &str, price: u64) -> Ranked {
    offered(instance_type, zone, CapacityType::Spot, price)
}

fn on_demand(instance_type: &str, zone: &str, price: u64) -> Ranked {
    offered(instance_type, zone, CapacityType::OnDemand, price)
}

fn overrides(status: &BatchStatus) -> Vec<(&str, &str)> {
    status.last().unwrap().overrides.iter().map(|one| (&*one.instance_type, &*one.zone)).collect()
}

/// An attempt at three of these, at one dollar more each, whose call was sent.
fn sent(types: &[(&str, &str)]) -> BatchStatus {
    let mut status = after(BatchPhase::Launching, AttemptOutcome::Launching);
    status.capacity_type = Some(CapacityType::Spot);
    status.instance_type = Some(types[0].0.to_owned());
    let attempt = &mut status.attempts[0];
    let each = types.iter().zip(1..);
    attempt.overrides = each
        .map(|((instance_type, zone), price)| AttemptOverride {
            instance_type: (*instance_type).to_owned(),
            zone: (*zone).to_owned(),
            subnet: format!("subnet-{zone}"),
            price: Some(price * 1_000_000),
        })
        .collect();
    attempt.instance_type = types[0].0.to_owned();
    attempt.capacity_type = CapacityType::Spot;
    status.price = Some(u64::try_from(types.len()).unwrap() * 3_000_000);
    let mut parameters = (*attempt.parameters.as_ref().unwrap().value).clone();
    parameters.instance_type = types[0].0.to_owned();
    parameters.capacity_type = CapacityType::Spot;
    parameters.partial = true;
    parameters.overrides = attempt
        .overrides
        .iter()
        .map(|one| Override {
            instance_type: one.instance_type.clone(),
            zone: one.zone.clone(),
            subnet_id: one.subnet.clone(),
        })
        .collect();
    attempt.parameters = Some(parameters.into());
    status
}

/// EC2 launched these, and lacked these.
fn answer(launched: &[(&str, &str)], dry: &[(&str, &str)]) -> Result<Made, muster_core::ec2::CallError> {
    let instance = |(number, (instance_type, zone)): (usize, &(&str, &str))| LaunchedInstance {
        id: InstanceId::from(format!("i-{number}")),
        instance_type: (*instance_type).to_owned(),
        zone: (*zone).to_owned(),
    };
    let item = |(instance_type, zone): &(&str, &str)| FleetError {
        code: "InsufficientInstanceCapacity".to_owned(),
        message: String::new(),
        instance_type: Some((*instance_type).to_owned()),
        zone: Some((*zone).to_owned()),
    };
    Ok(Made::Launched(LaunchAnswer {
        fleet_id: Some("fleet-1".to_owned()),
        request_id: None,
        instances: launched.iter().enumerate().map(instance).collect(),
        errors: dry.iter().map(item).collect(),
    }))
}

/// What lacked capacity, as the others learn it.
fn dry(decision: &Decision) -> BTreeSet<(&str, &str)> {
    let pools = decision.notes.iter().filter_map(|note| match note {
        Note::NoCapacity { pools, .. } => Some(pools),
        _ => None,
    });
    pools.flatten().map(|pool| (&*pool.instance_type, &*pool.zone)).collect()
}

#[test]
fn a_launch_names_every_candidate_of_its_pool_and_capacity_type_once_and_counts_with_the_dearest() {
    let candidates = [
        spot("m5", "a", 1),
        spot("m6", "a", 2),
        spot("m5", "b", 3),
        // Dearer than the cheapest on demand.
        spot("m7", "a", 9),
        on_demand("m5", "a", 8),
        on_demand("m6", "a", 9),
    ];
    let mut elsewhere = spot("m8", "a", 2);
    elsewhere.pool = "p1".to_owned();
    let mut second = spot("m9", "b", 4);
    second.candidate.subnet_id = "another of b".to_owned();
    let mut all = candidates.to_vec();
    all.extend([elsewhere, second]);
    let decision = of_pods(BatchStatus::default(), &all).decide();
    let next = decision.next.unwrap();
    assert_eq!(overrides(&next), [("m5", "a"), ("m6", "a"), ("m5", "b")]);
    assert_eq!((next.price, next.count), (Some(9_000_000), 3), "until EC2 has chosen");
    let message = next.message.unwrap();
    assert!(message.contains("or what EC2 has of 2 other offerings"), "{message}");
    // What can be had in one way alone is asked for as it always was.
    let next = of_pods(BatchStatus::default(), &candidates[..1]).decide().next.unwrap();
    assert_eq!((overrides(&next), next.price), (Vec::new(), Some(3_000_000)));
}

#[test]
fn types_of_another_template_and_reserved_hosts_are_asked_for_alone_as_is_everything_without_fleets() {
    let two = [on_demand("m5", "a", 4), on_demand("m6", "a", 5)];
    let alone = |change: &dyn Fn(&mut Scene)| {
        let scene = of_pods(BatchStatus::default(), &two).with(|one| change(one));
        overrides(&scene.decide().next.unwrap()).is_empty()
    };
    assert!(!alone(&|_| {}));
    assert!(alone(&|one| one.says.own_template = true));
    assert!(alone(&|one| one.says.without_fleets = true));
    let mut reserved = two.to_vec();
    for one in &mut reserved {
        one.candidate.reservation =
            Some(muster_core::ec2::Target { id: format!("cr-{}", one.candidate.instance_type), block: false });
    }
    assert!(alone(&|one| one.says.ranking = ranking(&reserved, &[])));
}

#[test]
fn what_ec2_chose_is_what_the_batch_is_from_then_on() {
    let scene = of_pods(sent(&[("m5", "a"), ("m6", "a"), ("m5", "b")]), &[]);
    let chosen = scene.clone().answered(true, answer(&[("m5", "b"); 3], &[("m5", "a")])).decide();
    assert_eq!(dry(&chosen), BTreeSet::from([("m5", "a")]), "EC2 had none there");
    let next = chosen.next.unwrap();
    assert_eq!(next.phase, BatchPhase::Launched);
    assert_eq!((next.instance_type.as_deref(), next.zone.as_deref()), (Some("m5"), Some("b")));
    assert_eq!((next.price, next.count, next.instances.len()), (Some(9_000_000), 3, 3));
    assert_eq!(next.last().unwrap().subnet, "subnet-b");
    // Fewer than were asked for: the price of those, and the rest is short of that very type.
    let fewer = scene.clone().answered(true, answer(&[("m6", "a"); 2], &[])).decide();
    assert_eq!(dry(&fewer), BTreeSet::from([("m6", "a")]));
    let next = fewer.next.unwrap();
    assert_eq!((next.instance_type.as_deref(), next.price, next.count), (Some("m6"), Some(4_000_000), 2));
    // Two types are not what was asked for: all of it is terminated.
    for wrong in [[("m5", "a"), ("m6", "a")], [("m5", "a"), ("m5", "b")], [("m9", "a"), ("m9", "a")]] {
        let next = scene.clone().answered(true, answer(&wrong, &[])).decide().next.unwrap();
        assert_eq!(next.last().unwrap().outcome, AttemptOutcome::Violated, "{wrong:?}");
    }
}

#[test]
fn where_ec2_has_none_of_them_on_spot_all_are_remembered_and_asked_for_on_demand() {
    let all = [("m5", "a"), ("m6", "a")];
    let lost = of_pods(sent(&all), &[])
        .swept(&[])
        .saw(muster_core::batch::Look::Fleet("fleet-1".to_owned()), muster_core::batch::Sight::Fleet(None));
    let decision = lost.answered(true, answer(&[], &[("m5", "a")])).decide();
    assert_eq!(dry(&decision), BTreeSet::from(all));
    let mut status = decision.next.unwrap();
    assert_eq!(status.last().unwrap().outcome, AttemptOutcome::Lost);
    status.launch_templates.clear();
    let candidates = [spot("m5", "a", 1), spot("m6", "a", 1), on_demand("m5", "a", 4), on_demand("m6", "a", 5)];
    let next = of_pods(status, &candidates).decide().next.unwrap();
    assert_eq!(next.capacity_type, Some(CapacityType::OnDemand));
    assert_eq!(overrides(&next), all);
}

#[test]
fn what_was_written_down_as_taken_stays_where_the_type_that_ec2_chose_is_not_known_yet() {
    let most = || {
        let resources = muster_core::model::resources::Resources::from_iter([("cpu", 5)]);
        std::collections::BTreeMap::from([("p0".to_owned(), resources)])
    };
    let won = |knows_no_type: bool| {
        let scene = of_pods(sent(&[("m5", "a"), ("m6", "a")]), &[])
            .status(|status| status.reserved = most())
            .with(|one| one.says.knows_no_type = knows_no_type);
        scene.answered(true, answer(&[("m6", "a"); 3], &[])).decide().next.unwrap().reserved
    };
    assert_eq!(won(true), most());
    assert_eq!(won(false)["p0"].get("cpu"), 3 * 96_000);
}

#[test]
fn instead_of_spot_nothing_is_launched_on_demand_that_is_dearer_than_the_cheapest_by_more_than_a_quarter() {
    // The cheapest was short of capacity elsewhere, so that it is not ranked first.
    let candidates = [on_demand("m7", "a", 50), on_demand("m6", "a", 5), on_demand("m5", "a", 4)];
    let next = of_pods(BatchStatus::default(), &candidates).decide().next.unwrap();
    assert_eq!(overrides(&next), [("m5", "a"), ("m6", "a")]);
    // What a round named for on demand it has looked at itself.
    let planned = of_pods(BatchStatus::default(), &candidates).with(|one| {
        let spec = BatchSpec::clone(&one.batch.spec);
        one.batch.spec = Arc::new(BatchSpec { capacity_type: Some(CapacityType::OnDemand), ..spec });
    });
    assert_eq!(overrides(&planned.decide().next.unwrap()), [("m5", "a"), ("m6", "a"), ("m7", "a")]);
}

#[test]
fn where_nothing_near_the_cheapest_price_is_to_be_had_on_demand_the_pods_are_planned_again() {
    let mut status = after(BatchPhase::Pending, AttemptOutcome::Lost);
    status.billing = None;
    status.attempts[0].instance_type = "m5".to_owned();
    status.attempts[0].code = Some("InsufficientInstanceCapacity".to_owned());
    let next = of_pods(status, &[on_demand("m7", "a", 50)]).decide().next.unwrap();
    assert_eq!((next.phase, next.attempts.len()), (BatchPhase::Terminating, 1));
}

#[test]
fn a_node_has_the_labels_of_its_type_before_anybody_may_use_it() {
    let mut status = having(BatchPhase::Launched, MemberState::Running, &["i-1"]);
    status.attempts[0].overrides = sent(&[("m5", "a"), ("m6", "a")]).attempts[0].overrides.clone();
    status.instances[0].node = None;
    let labels = || [(Arc::from("cpu"), Arc::from("8")), (Arc::from("arch"), Arc::from("amd64"))];
    let scene = |label: Option<&str>| {
        of_pods(status.clone(), &[]).with_nodes().instances(&[("i-1", InstanceState::Running)]).with(|one| {
            one.says.labels = Some(labels().into());
            one.nodes[0].labels.insert("arch".into(), "amd64".into());
            one.nodes[0].labels.extend(label.map(|value| (Arc::from("cpu"), Arc::from(value))));
            one.nodes[0].taints =
                vec![Taint { key: UNREGISTERED.into(), value: "".into(), effect: TaintEffect::NoExecute }];
        })
    };
    let written = |label: Option<&str>| -> Vec<Converge> { scene(label).decide().converge };
    let lacks = || Converge::Label { node: "n-i-1".to_owned(), labels: [labels()[0].clone()].into() };
    assert_eq!(written(None), [lacks()]);
    assert_eq!(written(Some("4")), [lacks()]);
    let open = || [Converge::Untaint { node: "n-i-1".to_owned(), key: UNREGISTERED }];
    assert_eq!(written(Some("8")), open());
    // Before the first look at EC2 nobody knows them.
    assert_eq!(scene(Some("8")).with(|one| one.says.labels = None).decide().converge, []);
    // Where the template was for this type alone the kubelet has reported them, and nobody looks.
    let alone = scene(None).status(|status| status.attempts[0].overrides.clear());
    assert_eq!(alone.decide().converge, open());
}
