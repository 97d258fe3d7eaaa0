//! What the histories found, each as one decision.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use muster_core::batch::{
    Change, Converge, Decision, Done, JoinClocks, LastLooks, Look, Memory, Sight, WantedLevels, World, pass,
};
use muster_core::ec2::{
    CapacityType, GroupState, LaunchParameters, LaunchWay, PlacementGroup, ResourceKind, TAG_BATCH, TAG_CLUSTER_UID,
    Tags,
};
use muster_core::model::batch::{
    Attempt, AttemptOutcome, Batch, BatchMember, BatchPhase, BatchSpec, BatchStatus, LossCause, MemberState, Owner,
    OwnerRef,
};
use muster_core::model::gang::{Gang, Phase, Pod};
use muster_core::model::names::InstanceId;
use muster_core::model::node::{Node, Taint, TaintEffect};
use muster_core::model::pod::Toleration;
use muster_core::offering::{GroupPolicy, NODES};

use super::cluster::View;
use super::draw;
use super::ec2::{CLUSTER_UID, error};
use super::made::{self, member, node};
use super::supply::{Lessons, Offers, PoolDef};
use super::worker::settings;
use crate::world::{self, at, key};

const NOW: i64 = 1000;

/// What is decided about these batches.
#[derive(Default)]
struct Setup {
    batches: BTreeMap<String, Arc<Batch>>,
    memory: BTreeMap<String, Memory>,
    nodes: Vec<Node>,
    pods: Vec<Pod>,
    gangs: Vec<Gang>,
    booked: Option<&'static str>,
}

impl Setup {
    fn batch(&mut self, name: &str, owner: Owner, status: BatchStatus) {
        let spec = BatchSpec { node_pools: vec!["p0".to_owned()], count: 3, owner, ..BatchSpec::default() };
        let batch = Batch { status, ..draw::batch(name, spec, at(0)) };
        self.batches.insert(name.to_owned(), Arc::new(batch));
    }

    fn saw(&mut self, name: &str, look: Look, sight: Sight) {
        self.memory.entry(name.to_owned()).or_default().seen.insert(look, Ok(sight));
    }

    fn decide(&self) -> Vec<Decision> {
        let pool = PoolDef {
            name: "p0".to_owned(),
            instance_type: "p0.48xlarge".to_owned(),
            also: Vec::new(),
            zones: vec!["a".to_owned()],
            capacity_types: vec![CapacityType::OnDemand],
            limit: 3,
            limited: (NODES, 1),
            ceiling: None,
            group: GroupPolicy::None,
            join: JoinClocks { max_replacements: "0".to_owned(), ..JoinClocks::default() },
            consolidate: None,
            foreign: Some(SignedDuration::from_mins(1)),
            cpu: None,
            taints: Vec::new(),
        };
        let mut catalogue = draw::catalogue(vec![pool]);
        catalogue.levels = BTreeMap::<String, WantedLevels>::new();
        let lessons = Lessons::default();
        let recognised = made::recognised(&self.gangs, self.booked);
        let view = View {
            version: 1,
            snapshot: world::snapshot(&self.nodes, &self.pods, &self.gangs, &recognised),
            batches: BTreeMap::new(),
            requests: BTreeSet::from(["r-uid".to_owned()]),
            blocks: BTreeMap::new(),
        };
        let supply = Offers { catalogue: &catalogue, lessons: &lessons, view: &view };
        pass(&World {
            batches: &self.batches,
            memory: &self.memory,
            busy: &BTreeSet::new(),
            snapshot: &view.snapshot,
            stale: false,
            regained: None,
            supply: &supply,
            settings: &settings(),
            now: at(NOW),
            now_real: at(NOW),
        })
    }
}

fn gang(name: &str) -> Owner {
    Owner::Gang(OwnerRef { key: key(name), uid: format!("{name}-uid") })
}

fn attempt(number: u32, outcome: AttemptOutcome, ended: Option<Timestamp>) -> Attempt {
    made::attempt(made::tags("a-1-uid", None, number), "p0.48xlarge", LaunchWay::Run, outcome, (ended, ended))
}

/// A batch of these instances, each with a Node `n-<id>`.
fn status(phase: BatchPhase, ids: &[&str]) -> BatchStatus {
    let member = |id: &&str| BatchMember {
        node: Some(format!("n-{id}")),
        registered: Some(at(0)),
        ..BatchMember::new(InstanceId::from(*id), 1, MemberState::Ready)
    };
    BatchStatus {
        phase,
        count: u32::try_from(ids.len()).unwrap(),
        attempt: 1,
        node_pool: Some("p0".to_owned()),
        instance_type: Some("p0.48xlarge".to_owned()),
        zone: Some("a".to_owned()),
        capacity_type: Some(CapacityType::OnDemand),
        instances: ids.iter().map(member).collect(),
        attempts: vec![attempt(1, AttemptOutcome::Won, Some(at(0)))],
        ..BatchStatus::default()
    }
}

fn lose(member: &mut BatchMember) {
    member.state = MemberState::Lost;
    member.loss = Some(made::loss(LossCause::Missing, "gone", at(NOW)));
}

#[test]
fn what_one_batch_gives_up_is_taken_by_no_other_before_that_is_written() {
    let mut setup = Setup::default();
    let open = attempt(1, AttemptOutcome::Launching, None);
    let parameters = Box::new(LaunchParameters::clone(&open.parameters.as_ref().unwrap().value));
    let launching =
        BatchStatus { count: 3, attempts: vec![open], instances: Vec::new(), ..status(BatchPhase::Launching, &[]) };
    for name in ["a", "b"] {
        setup.gangs.push(world::gang(name, Phase::Provisioning, Vec::new()));
    }
    setup.batch("a-1", gang("a"), launching);
    setup.batch("b-1", gang("b"), BatchStatus::default());
    let refused = Done {
        change: Change::Launch { parameters, first: true },
        result: Err(error("RunInstances", Some("InsufficientInstanceCapacity"), Some(500))),
    };
    setup.memory.entry("a-1".to_owned()).or_default().done = Some(refused);
    let decisions = setup.decide();
    let next = |name: &str| decisions.iter().find(|one| one.batch == name).unwrap().next.clone().unwrap();
    assert_eq!(next("a-1").phase, BatchPhase::Pending);
    assert_eq!(next("b-1").phase, BatchPhase::Pending, "the write of the other may be refused");
    setup.batch("a-1", gang("a"), next("a-1"));
    setup.memory.clear();
    let decisions = setup.decide();
    let phases: Vec<_> = decisions.iter().filter_map(|one| Some(one.next.as_ref()?.phase)).collect();
    assert_eq!(phases.iter().filter(|phase| **phase == BatchPhase::Launching).count(), 1, "{phases:?}");
}

#[test]
fn a_lost_instance_that_ec2_does_not_show_yet_is_kept_until_it_does() {
    let mut setup = Setup::default();
    let mut batch = status(BatchPhase::InUse, &["i-1"]);
    let mut lost = BatchMember::new(InstanceId::from("i-2"), 2, MemberState::Lost);
    lose(&mut lost);
    batch.replaced.push(lost);
    batch.attempts.push(attempt(2, AttemptOutcome::Won, Some(at(NOW - 10))));
    setup.nodes.push(node("i-1"));
    setup.gangs.push(world::gang("a", Phase::Bound, vec![world::place(0, Some("a-0"), "n-i-1")]));
    setup.pods.push(member("a", 0, "i-1"));
    setup.batch("a-1", gang("a"), batch.clone());
    setup.saw("a-1", Look::Instances(vec![InstanceId::from("i-2")]), Sight::Instances(Vec::new()));
    assert!(setup.decide()[0].next.as_ref().is_none_or(|next| next.replaced.len() == 1));
    batch.attempts[1].ended = Some(at(NOW - 200));
    setup.batch("a-1", gang("a"), batch);
    assert_eq!(setup.decide()[0].next.as_ref().unwrap().replaced, [], "by then it would have been shown");
}

#[test]
fn a_group_of_somebody_else_under_a_name_of_ours_is_left_alone() {
    let mut setup = Setup::default();
    let batch = BatchStatus { placement_group: Some("taken".to_owned()), ..BatchStatus::default() };
    setup.batch("a-1", gang("a"), BatchStatus { phase: BatchPhase::Terminating, ..batch });
    let ours = Tags::from([
        (TAG_CLUSTER_UID.to_owned(), CLUSTER_UID.to_owned()),
        (TAG_BATCH.to_owned(), "a-1-uid".to_owned()),
    ]);
    setup.saw("a-1", Look::Tagged(ours.clone()), Sight::Instances(Vec::new()));
    let mut group = PlacementGroup {
        name: "taken".to_owned(),
        id: "pg-1".to_owned(),
        state: GroupState::Available,
        strategy: "cluster".to_owned(),
        tags: Tags::new(),
    };
    setup.saw("a-1", Look::Group("taken".to_owned()), Sight::Group(Some(group.clone())));
    let decision = setup.decide().remove(0);
    assert_eq!(decision.change, None);
    assert_eq!(decision.next.unwrap().placement_group, None);
    group.tags = ours;
    setup.saw("a-1", Look::Group("taken".to_owned()), Sight::Group(Some(group)));
    assert_eq!(setup.decide()[0].change, Some(Change::DeleteGroup("taken".to_owned())));
    // The permission asks for our tags, which what is not there does not carry.
    setup.saw("a-1", Look::Group("taken".to_owned()), Sight::Group(None));
    let decision = setup.decide().remove(0);
    assert_eq!(decision.change, None);
    assert_eq!(decision.next.unwrap().placement_group, None);
}

#[test]
fn an_elastic_gang_on_booked_nodes_goes_on_without_a_lost_one() {
    let mut setup = Setup::default();
    let mut batch = status(BatchPhase::InUse, &["i-1", "i-2"]);
    lose(&mut batch.instances[1]);
    let places = vec![world::place(0, Some("a-0"), "n-i-1"), world::place(1, Some("a-1"), "n-i-2")];
    let mut elastic = world::gang("a", Phase::Bound, places);
    elastic.minimum = 1;
    setup.gangs.push(elastic);
    setup.booked = Some("r");
    setup.nodes = vec![node("i-1"), node("i-2")];
    setup.pods = vec![member("a", 0, "i-1"), member("a", 1, "i-2")];
    setup.batch("a-1", Owner::Request(OwnerRef { key: key("r"), uid: "r-uid".to_owned() }), batch);
    let next = setup.decide().remove(0).next.unwrap();
    assert_eq!((next.phase, next.count, next.replaced.len()), (BatchPhase::InUse, 1, 1));
}

/// An elastic gang that runs on one of two nodes.
fn on_one_of_two() -> Setup {
    let mut setup = Setup::default();
    let mut elastic = world::gang("a", Phase::Bound, vec![world::place(0, Some("a-0"), "n-i-1")]);
    elastic.minimum = 1;
    setup.gangs.push(elastic);
    setup.nodes = vec![node("i-1"), node("i-2")];
    setup.pods = vec![member("a", 0, "i-1")];
    setup
}

#[test]
fn an_elastic_gang_goes_on_without_a_node_that_was_lost_before_its_batch_was_called_in_use() {
    let mut setup = on_one_of_two();
    let mut batch = status(BatchPhase::Ready, &["i-1", "i-2"]);
    lose(&mut batch.instances[1]);
    setup.batch("a-1", gang("a"), batch);
    let next = setup.decide().remove(0).next.unwrap();
    assert_eq!((next.count, next.instances.len(), next.replaced.len()), (1, 1, 1));
    assert_eq!(next.attempts.len(), 1, "nothing is launched for the lost one");
}

#[test]
fn survivors_that_an_elastic_gang_runs_on_are_kept_when_no_replacement_came() {
    let mut setup = on_one_of_two();
    let mut batch = status(BatchPhase::Replacing, &["i-1"]);
    (batch.count, batch.attempt, batch.price) = (2, 2, Some(2_000_000));
    let failed = Attempt { replaces: vec![InstanceId::from("i-2")], ..attempt(2, AttemptOutcome::Lost, Some(at(0))) };
    batch.attempts.push(failed);
    setup.batch("a-1", gang("a"), batch);
    let decision = setup.decide().remove(0);
    let next = decision.next.unwrap();
    assert_eq!((next.phase, next.count, next.price), (BatchPhase::InUse, 1, Some(1_000_000)));
    assert_eq!(next.message.as_deref(), Some("1 node lost; its gang goes on with 1"));
    assert!(!decision.converge.iter().any(|edit| matches!(edit, Converge::Taint { .. })));
}

/// A node that waits for gang `a`.
fn waiting(id: &str, held: bool) -> Node {
    let mut node = node(id);
    let (key, value) = (Arc::from("muster.dev/gang-pending"), Arc::from("a-uid"));
    node.taints.push(Taint { key, value, effect: TaintEffect::NoSchedule });
    node.held = held;
    node
}

#[test]
fn a_node_that_waits_for_its_gang_is_held_also_when_somebody_uncordoned_it_and_let_go_once_the_gang_runs() {
    let mut setup = Setup::default();
    setup.gangs.push(world::gang("a", Phase::Waiting, Vec::new()));
    setup.nodes = vec![waiting("i-1", true), waiting("i-2", false)];
    let holds = |decision: &Decision| -> Vec<Converge> {
        let of_hold = |edit: &&Converge| matches!(edit, Converge::Hold { .. } | Converge::Unhold { .. });
        decision.converge.iter().filter(of_hold).cloned().collect()
    };
    let hold = [Converge::Hold { node: "n-i-2".to_owned(), owner: "a-uid".to_owned() }];
    setup.batch("a-1", gang("a"), status(BatchPhase::Ready, &["i-1", "i-2"]));
    assert_eq!(holds(&setup.decide()[0]), hold);
    setup.nodes = vec![waiting("i-1", true), waiting("i-2", true)];
    assert_eq!(holds(&setup.decide()[0]), [], "both are held");
    let places = vec![world::place(0, Some("a-0"), "n-i-1"), world::place(1, Some("a-1"), "n-i-2")];
    setup.gangs = vec![world::gang("a", Phase::Bound, places)];
    let lifted = ["n-i-1", "n-i-2"].map(|node| Converge::Unhold { node: node.to_owned() });
    assert_eq!(holds(&setup.decide()[0]), lifted);
    setup.nodes = vec![node("i-1"), node("i-2")];
    let decision = setup.decide().remove(0);
    assert_eq!((holds(&decision), decision.next.unwrap().phase), (vec![], BatchPhase::InUse));
}

#[test]
fn who_crept_onto_a_node_that_waits_for_its_gang_leaves_and_who_tolerates_that_stays() {
    let mut setup = Setup::default();
    setup.gangs.push(world::gang("a", Phase::Waiting, Vec::new()));
    setup.nodes = vec![waiting("i-1", true)];
    let single = |name: &str, key: Option<&str>| {
        let mut shape = world::shape(0);
        shape.tolerations.extend(key.map(|key| Toleration {
            key: Arc::from(key),
            exists: true,
            value: Arc::from(""),
            effect: None,
        }));
        Pod { node: Some("n-i-1".into()), ..world::pod(name, &shape) }
    };
    let daemon = Pod { daemon: true, ..single("daemon", None) };
    let everything = single("agent", Some(""));
    setup.pods = vec![single("plain", None), single("gpu", Some("nvidia.com/gpu")), daemon, everything];
    setup.batch("a-1", gang("a"), status(BatchPhase::Ready, &["i-1"]));
    let mut evicted: Vec<String> = Vec::new();
    for edit in &setup.decide()[0].converge {
        if let Converge::Evict { pod, force: false, .. } = edit {
            evicted.push(pod.name.to_string());
        }
    }
    assert_eq!(evicted, ["gpu", "plain"]);
}

#[test]
fn pods_of_no_gang_do_not_keep_a_batch_whose_replacement_failed() {
    let mut setup = Setup::default();
    let mut batch = status(BatchPhase::Replacing, &["i-1"]);
    let replacement =
        Attempt { replaces: vec![InstanceId::from("i-2")], ..attempt(2, AttemptOutcome::Lost, Some(at(0))) };
    batch.attempts.push(replacement);
    setup.gangs.push(world::gang("a", Phase::Waiting, Vec::new()));
    setup.nodes.push(node("i-1"));
    let mut single = world::pod("single", &world::shape(0));
    single.node = Some("n-i-1".into());
    setup.pods.push(single);
    setup.batch("a-1", gang("a"), batch.clone());
    let first = setup.decide().remove(0);
    assert!(matches!(&first.converge[..], [Converge::Taint { .. }]), "nobody else comes: {:?}", first.converge);
    assert_eq!(first.next.unwrap().idle_since, Some(at(NOW)));
    batch.idle_since = Some(at(NOW - 61));
    setup.batch("a-1", gang("a"), batch);
    let decision = setup.decide().remove(0);
    assert!(decision.converge.iter().any(|edit| matches!(edit, Converge::Evict { force: false, .. })));
}

#[test]
fn a_batch_that_cannot_be_repaired_waits_for_a_gang_that_came_meanwhile() {
    let mut setup = Setup::default();
    let mut batch = status(BatchPhase::Joining, &["i-1", "i-2", "i-3"]);
    lose(&mut batch.instances[2]);
    setup.nodes = vec![node("i-1"), node("i-2")];
    let mut elastic = world::gang("a", Phase::Bound, vec![world::place(0, Some("a-0"), "n-i-1")]);
    elastic.minimum = 1;
    setup.gangs.push(elastic);
    setup.pods.push(member("a", 0, "i-1"));
    setup.batch("a-1", gang("a"), batch.clone());
    setup.memory.entry("a-1".to_owned()).or_default().scratch.looked = Some(at(NOW));
    assert_eq!(setup.decide().remove(0).next.unwrap().phase, BatchPhase::Joining);
    setup.pods.clear();
    assert_eq!(setup.decide().remove(0).next.unwrap().phase, BatchPhase::Launching, "rolled back once it has left");
}

#[test]
fn a_launch_whose_template_is_gone_is_tried_again_with_another() {
    let mut setup = Setup::default();
    let mut open = attempt(1, AttemptOutcome::Launching, None);
    let parameters = Box::new(LaunchParameters::clone(&open.parameters.as_ref().unwrap().value));
    let sweep = parameters.tags.sweep();
    let change = Change::Launch { parameters, first: false };
    setup.gangs.push(world::gang("a", Phase::Provisioning, Vec::new()));
    for (age, phase) in [(60, BatchPhase::Launching), (600, BatchPhase::Pending)] {
        open.started = Some(at(NOW - age));
        let launching = BatchStatus { count: 3, attempts: vec![open.clone()], ..status(BatchPhase::Launching, &[]) };
        setup.batch("a-1", gang("a"), launching);
        let refused = error("RunInstances", Some("InvalidLaunchTemplateId.NotFound"), Some(400));
        let done = Done { change: change.clone(), result: Err(refused) };
        setup.memory.entry("a-1".to_owned()).or_default().done = Some(done);
        setup.saw("a-1", Look::Tagged(sweep.clone()), Sight::Instances(Vec::new()));
        let next = setup.decide().remove(0).next.unwrap();
        assert_eq!(next.phase, phase, "{age} s after it began");
        assert_eq!(next.last().unwrap().outcome == AttemptOutcome::Retry, phase == BatchPhase::Pending);
    }
}

#[test]
fn after_a_launch_whose_outcome_was_open_the_next_attempt_has_a_placement_group_of_its_own() {
    // What it made all the same may turn up much later, and ties its group to that zone until it is terminated.
    for (replayed, group, generation) in [(false, Some("muster-a-1"), 1), (true, None, 2)] {
        let mut setup = Setup::default();
        let sweeps = if replayed { 20 } else { 0 };
        let open = Attempt { group: true, replayed, sweeps, ..attempt(1, AttemptOutcome::Launching, None) };
        let parameters = Box::new(LaunchParameters::clone(&open.parameters.as_ref().unwrap().value));
        setup.saw("a-1", Look::Tagged(parameters.tags.sweep()), Sight::Instances(Vec::new()));
        setup.gangs.push(world::gang("a", Phase::Provisioning, Vec::new()));
        let launching = BatchStatus {
            count: 3,
            attempts: vec![open],
            placement_group: Some("muster-a-1".to_owned()),
            placement_group_id: Some("pg-1".to_owned()),
            generation: 1,
            ..status(BatchPhase::Launching, &[])
        };
        setup.batch("a-1", gang("a"), launching);
        let memory = setup.memory.entry("a-1".to_owned()).or_default();
        if replayed {
            // Its last call is over, and what it made was looked for.
            memory.scratch.last_looks = Some(LastLooks { attempt: 1, looks: 3 });
            let (name, id) = ("muster-a-1".to_owned(), "pg-1".to_owned());
            let tags = parameters.tags.of(ResourceKind::PlacementGroup);
            let group = PlacementGroup { name, id, state: GroupState::Available, strategy: "cluster".to_owned(), tags };
            setup.saw("a-1", Look::Group("muster-a-1".to_owned()), Sight::Group(Some(group)));
        } else {
            let refused = error("RunInstances", Some("InsufficientInstanceCapacity"), Some(500));
            memory.done = Some(Done { change: Change::Launch { parameters, first: true }, result: Err(refused) });
        }

        let next = setup.decide().remove(0).next.unwrap();

        assert_eq!(next.phase, BatchPhase::Pending);
        assert_eq!((next.placement_group.as_deref(), next.generation), (group, generation), "replayed: {replayed}");
        assert_eq!(next.placement_group_id.is_some(), group.is_some());
    }
}

#[test]
fn a_gang_keeps_the_nodes_of_its_batch_when_a_restored_status_does_not_know_them() {
    // The API server was restored to a moment before the launch; node, pods and Gang came back by themselves.
    let mut setup = Setup::default();
    let mut labelled = node("i-1");
    labelled.labels.insert(Arc::from(TAG_BATCH), Arc::from("a-1-uid"));
    setup.nodes.push(labelled);
    setup.gangs.push(world::gang("a", Phase::Bound, vec![world::place(0, Some("a-0"), "n-i-1")]));
    setup.pods.push(member("a", 0, "i-1"));
    setup.batch("a-1", gang("a"), BatchStatus::default());
    let decision = setup.decide().remove(0);
    assert!(decision.change.is_none(), "nothing is launched or terminated: {:?}", decision.change);
    let next = decision.next.unwrap();
    assert_eq!(next.phase, BatchPhase::Pending);
    assert!(next.message.as_deref().unwrap().contains("its status does not know"), "{:?}", next.message);
    // Deleted by a person, it waits for its gang like a batch that knows its instances.
    let deleted = Batch { deleting: true, ..Batch::clone(&setup.batches["a-1"]) };
    setup.batches.insert("a-1".to_owned(), Arc::new(deleted));
    let decision = setup.decide().remove(0);
    assert_eq!((decision.change, decision.next.unwrap().phase), (None, BatchPhase::Pending));
    // Once the gang has ended it goes on as ever.
    setup.gangs.clear();
    setup.pods.clear();
    assert_eq!(setup.decide().remove(0).next.unwrap().phase, BatchPhase::Draining);
}
