//! What kube-scheduler is answered: each row of the tables of the protocol.

mod places;

use std::sync::Arc;

use muster_core::extender::{self, Assumed, BindStep, Filtered, Rejection, Victims, may_post, preempt};
use muster_core::model::gang::{Foreign, Gang, Membership, Phase, Pod, RankClaim};
use muster_core::model::names::{NodeName, PodUid};
use muster_core::model::node::{Taint, TaintEffect};
use muster_core::model::pod::{Shape, Toleration};
use muster_core::model::snapshot::{AssignedCapacity, Assignment, Awaiting, Places, Snapshot};
use muster_core::ordinary::awaiting::{Classes, waiting};
use muster_core::ordinary::digest;

use jiff::Timestamp;

use crate::world::{gang, key, member, node, place, pod, shape, snapshot};

/// Now, in real time.
const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// `prioritize` now.
fn prioritize(snapshot: &Snapshot, pod: &Pod, offered: &[String]) -> Vec<i64> {
    extender::prioritize(snapshot, &Assumed::default(), pod, offered, NOW)
}

/// `filter` where this replica binds nobody.
fn filter<'a>(snapshot: &Snapshot, pod: &Pod, offered: &'a [String]) -> Filtered<'a> {
    extender::filter(snapshot, &Assumed::default(), pod, offered, NOW)
}

/// `bind` where this replica binds nobody.
fn bind(snapshot: &Snapshot, uid: &PodUid, node: &str) -> BindStep {
    extender::bind(snapshot, &Assumed::default(), uid, node, NOW)
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Kept names, and the one reason of the rejected ones.
#[track_caller]
fn asked(snapshot: &Snapshot, pod: &Pod, offered: &[&str]) -> (Vec<String>, Option<Rejection>) {
    let offered = names(offered);
    let answer = filter(snapshot, pod, &offered);
    assert_eq!(answer, filter(snapshot, pod, &offered), "asked twice, answered the same");
    let Filtered::Split { kept, rejected, .. } = answer else { panic!("unready") };
    let mut all: Vec<&str> = kept.iter().copied().chain(rejected.iter().map(|(name, _)| *name)).collect();
    all.sort_unstable();
    let mut expected: Vec<&str> = offered.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(all, expected, "every offered node is named once");
    let reason = rejected.first().map(|(_, reason)| *reason);
    assert!(rejected.iter().all(|(_, other)| Some(*other) == reason), "one reason for all nodes");
    (names(&kept), reason)
}

/// Two members planned on n1 and n2, in this phase; the first pod.
fn planned(phase: Phase) -> (Snapshot, Pod) {
    let pods = [member("m0", "g", RankClaim::Rank(0)), member("m1", "g", RankClaim::Rank(1))];
    let gang = gang("g", phase, vec![place(0, Some("m0"), "n1"), place(1, Some("m1"), "n2")]);
    (snapshot(&[node("n1", 1), node("n2", 1), node("n3", 1)], &pods, &[gang], &[]), pods[0].clone())
}

const RELEASED: [Phase; 4] = [Phase::Released, Phase::Committing, Phase::Bound, Phase::Degraded];
const BEFORE: [Phase; 5] = [Phase::Collecting, Phase::Waiting, Phase::Provisioning, Phase::Planned, Phase::Finished];

#[test]
fn nothing_is_answered_before_every_watch_has_delivered() {
    let (mut snapshot, pod) = planned(Phase::Released);
    snapshot.synced = false;
    assert_eq!(filter(&snapshot, &pod, &names(&["n1"])), Filtered::Unready);
    assert_eq!(bind(&snapshot, &pod.uid, "n1"), BindStep::Unready);
    let single = crate::world::pod("s", &shape(0));
    assert_eq!(filter(&snapshot, &single, &names(&["n1"])), Filtered::Unready);
    assert_eq!(preempt(&snapshot, &single, Victims::from([("n1".to_owned(), vec!["x".into()])])), Victims::new());
}

#[test]
fn a_node_and_an_epoch_that_somebody_wrote_on_a_pod_open_no_node() {
    for phase in Phase::ALL {
        for epoch in [0, 1] {
            let (snapshot, mut pod) = planned(phase);
            (pod.plan_epoch, pod.planned_node) = (Some(epoch), Some(NodeName::from("n3")));
            let (kept, reason) = asked(&snapshot, &pod, &["n3", "n2"]);
            assert_eq!(kept, Vec::<String>::new(), "{phase}, epoch {epoch}: {reason:?}");
        }
    }
}

#[test]
fn an_epoch_that_is_newer_than_the_gang_here_is_waited_for_and_never_trusted() {
    for phase in Phase::ALL {
        let (snapshot, mut pod) = planned(phase);
        (pod.plan_epoch, pod.planned_node) = (Some(2), Some(NodeName::from("n3")));
        assert_eq!(filter(&snapshot, &pod, &names(&["n1", "n3", "n2"])), Filtered::Behind, "{phase}");
    }
    let (mut snapshot, mut pod) = planned(Phase::Released);
    pod.plan_epoch = Some(1);
    snapshot.gangs = imbl::OrdMap::new();
    assert_eq!(filter(&snapshot, &pod, &names(&["n1"])), Filtered::Behind, "the gang is not known here");
}

#[test]
fn a_released_member_gets_its_place_although_only_the_plan_is_seen_here() {
    let (snapshot, mut pod) = planned(Phase::Planned);
    pod.plan_epoch = Some(1);
    assert_eq!(asked(&snapshot, &pod, &["n2", "n1", "n3"]).0, ["n1"]);
    assert_eq!(asked(&snapshot, &pod, &["n2", "n3"]), (vec![], Some(Rejection::BeingReplanned)));
    let stranger = Pod { plan_epoch: Some(1), ..member("stranger", "g", RankClaim::Rank(0)) };
    assert_eq!(asked(&snapshot, &stranger, &["n1"]), (vec![], Some(Rejection::WaitingForGang)), "it has no place");
}

#[test]
fn a_planned_node_that_somebody_cordoned_is_refused_and_one_that_is_held_for_the_gang_is_not() {
    for phase in RELEASED {
        let (mut snapshot, pod) = planned(phase);
        let change = |snapshot: &mut Snapshot, held: bool, cordoned: bool| {
            let mut entry = snapshot.nodes.get("n1").unwrap().clone();
            let node = Arc::make_mut(&mut Arc::make_mut(&mut entry).node);
            (node.held, node.unschedulable) = (held, cordoned);
            snapshot.nodes.insert("n1".into(), entry);
        };
        change(&mut snapshot, false, true);
        assert_eq!(asked(&snapshot, &pod, &["n1", "n2"]), (vec![], Some(Rejection::BeingReplanned)), "{phase}");
        change(&mut snapshot, true, false);
        assert_eq!(asked(&snapshot, &pod, &["n1", "n2"]).0, ["n1"], "{phase}");
    }
}

#[test]
fn an_invalid_or_unsatisfiable_gang_is_refused_with_its_own_reason() {
    let (snapshot, pod) = planned(Phase::Invalid);
    assert_eq!(asked(&snapshot, &pod, &["n1", "n2"]), (vec![], Some(Rejection::GangInvalid)));
    let (snapshot, pod) = planned(Phase::Unsatisfiable);
    assert_eq!(asked(&snapshot, &pod, &["n1", "n2"]), (vec![], Some(Rejection::GangUnsatisfiable)));
}

#[test]
fn members_wait_for_their_gang_until_it_is_released() {
    for phase in BEFORE {
        let (snapshot, pod) = planned(phase);
        assert_eq!(asked(&snapshot, &pod, &["n1", "n2"]), (vec![], Some(Rejection::WaitingForGang)), "{phase}");
    }
    let (mut snapshot, mut pod) = planned(Phase::Released);
    let stranger = member("stranger", "g", RankClaim::Rank(0));
    assert_eq!(asked(&snapshot, &stranger, &["n1"]), (vec![], Some(Rejection::WaitingForGang)), "no place");
    snapshot.gangs = imbl::OrdMap::new();
    assert_eq!(asked(&snapshot, &pod, &["n1"]), (vec![], Some(Rejection::WaitingForGang)), "gang unknown here");
    pod.membership = Membership::Unknown;
    assert_eq!(asked(&snapshot, &pod, &["n1"]), (vec![], Some(Rejection::WaitingForGang)), "pod unknown");
}

#[test]
fn a_phase_of_a_newer_version_lets_nobody_through() {
    let (mut snapshot, pod) = planned(Phase::Released);
    let unknown = Gang { phase: None, ..Gang::clone(&snapshot.gangs[&key("g")]) };
    snapshot.gangs = imbl::OrdMap::unit(key("g"), Arc::new(unknown));
    assert_eq!(asked(&snapshot, &pod, &["n1"]), (vec![], Some(Rejection::WaitingForGang)));
}

#[test]
fn a_released_member_gets_its_planned_node_and_nothing_else() {
    for phase in RELEASED {
        let (snapshot, pod) = planned(phase);
        let (kept, _) = asked(&snapshot, &pod, &["n2", "n1", "n3"]);
        assert_eq!(kept, ["n1"], "{phase}");
        let missing = asked(&snapshot, &pod, &["n2", "n3"]);
        assert_eq!(missing, (vec![], Some(Rejection::BeingReplanned)), "{phase}: sampled away");
        let offered = names(&["n2"]);
        assert!(matches!(filter(&snapshot, &pod, &offered), Filtered::Split { requeue: true, .. }));
    }
}

#[test]
fn no_reason_holds_a_percent_sign() {
    assert!(
        Rejection::ALL.iter().all(|reason| !reason.as_str().contains('%') && reason.as_str() == reason.to_string())
    );
}

#[test]
fn a_single_pod_is_kept_off_assigned_capacity_in_every_resource() {
    let (snapshot, _) = planned(Phase::Planned);
    let gpu = pod("gpu", &shape(1));
    let (kept, reason) = asked(&snapshot, &gpu, &["n1", "n2", "n3", "unknown"]);
    assert_eq!((kept, reason), (names(&["n3", "unknown"]), Some(Rejection::AssignedToGang)));
    let small = pod("small", &shape(0));
    assert_eq!(asked(&snapshot, &small, &["n1", "n2"]).0, ["n1", "n2"], "there are cores enough for both");
    let mut large = shape(0);
    large.requests.set("cpu", 9_500);
    assert_eq!(asked(&snapshot, &pod("large", &large), &["n1", "n3"]).0, ["n3"]);
    // Volumes are assigned capacity where the node says how many it takes, and nothing where it says nothing.
    let mut with_a_volume = shape(0);
    with_a_volume.requests.set("attachable-volumes-csi-ebs.csi.aws.com", 1);
    assert_eq!(asked(&snapshot, &pod("with-a-volume", &with_a_volume), &["n1"]).0, ["n1"]);
    let mut tight = node("n1", 1);
    tight.allocatable.set("pods", 1);
    let (planned, _) = planned(Phase::Planned);
    let gang = Gang::clone(&planned.gangs[&key("g")]);
    let pods: Vec<Pod> = planned.pods.values().map(|pod| Pod::clone(pod)).collect();
    let tight = crate::world::snapshot(&[tight], &pods, &[gang], &[]);
    assert_eq!(asked(&tight, &small, &["n1"]).1, Some(Rejection::AssignedToGang), "the number of pods counts");
}

#[test]
fn assignments_last_from_planned_until_the_pod_is_seen_bound() {
    for phase in Phase::ALL {
        let (snapshot, _) = planned(phase);
        assert_eq!(!snapshot.assignments.is_empty(), phase.assigns_capacity(), "{phase}");
    }
    let mut bound = member("m0", "g", RankClaim::Rank(0));
    bound.node = Some(NodeName::from("n1"));
    let places = vec![place(0, Some("m0"), "n1"), place(1, None, "n2"), place(2, Some("gone"), "n3")];
    let snapshot = snapshot(&[node("n1", 1)], &[bound], &[gang("g", Phase::Bound, places)], &[]);
    let mut assigned: Vec<&str> = snapshot.assignments.keys().map(NodeName::as_str).collect();
    assigned.sort_unstable();
    assert_eq!(assigned, ["n2", "n3"], "places of pods that are gone or still to come stay assigned");
}

#[test]
fn a_whole_node_is_assigned_to_one_gang_alone() {
    let mut snapshot = snapshot(&[node("n1", 8)], &[], &[], &[]);
    let assignment = Assignment { gang: key("g"), capacity: AssignedCapacity::WholeNode };
    snapshot.assignments.insert(NodeName::from("n1"), vec![assignment]);
    let mut tiny = crate::world::shape(0);
    tiny.requests.set("cpu", 1);
    let single = pod("s", &tiny);
    assert_eq!(asked(&snapshot, &single, &["n1"]).1, Some(Rejection::AssignedToGang));
    assert_eq!(snapshot.assigned_to_others(&"n1".into(), &[key("other")]), None);
    assert!(snapshot.assigned_to_others(&"n1".into(), &[key("g")]).is_some());
}

#[test]
fn daemonset_pods_reach_every_node() {
    let (mut snapshot, _) = planned(Phase::Planned);
    let mut daemon = pod("d", &shape(1));
    daemon.daemon = true;
    assert_eq!(asked(&snapshot, &daemon, &["n1", "n2"]).0, ["n1", "n2"]);
    snapshot.pods.insert(daemon.uid.clone(), Arc::new(daemon.clone()));
    assert_eq!(bind(&snapshot, &daemon.uid, "n1"), BindStep::Post { place: None });
}

/// An assignment of one accelerator on a node with two, and a single pod that wants one.
fn beside(change: impl FnOnce(&mut Pod)) -> (Snapshot, Pod) {
    let mut single = pod("s", &shape(1));
    change(&mut single);
    let gang = gang("g", Phase::Planned, vec![place(0, Some("m0"), "n1")]);
    let pods = [member("m0", "g", RankClaim::Rank(0)), single.clone()];
    (snapshot(&[node("n1", 2)], &pods, &[gang], &[]), single)
}

#[test]
fn a_single_pod_nominated_to_a_node_is_not_counted_against_itself() {
    let (snapshot, single) = beside(|pod| pod.nominated = Some(NodeName::from("n1")));
    assert_eq!(asked(&snapshot, &single, &["n1"]).0, ["n1"]);
    assert_eq!(bind(&snapshot, &single.uid, "n1"), BindStep::Post { place: None });
    let other = pod("other", &shape(1));
    assert_eq!(asked(&snapshot, &other, &["n1"]).0, Vec::<String>::new(), "but against others");
}

#[test]
fn a_single_pod_that_is_bound_already_may_be_bound_again() {
    let (snapshot, single) = beside(|pod| pod.node = Some(NodeName::from("n1")));
    assert_eq!(bind(&snapshot, &single.uid, "n1"), BindStep::Post { place: None });
}

#[test]
fn the_second_look_refuses_what_would_eat_a_later_assignment() {
    let mut large = shape(2);
    large.requests.set("cpu", 1);
    let (mut snapshot, _) = beside(|_| {});
    let single = pod("s", &large);
    snapshot.pods.insert(single.uid.clone(), Arc::new(single.clone()));
    assert_eq!(bind(&snapshot, &single.uid, "n1"), BindStep::Refuse(Rejection::AssignedToGang));
}

#[test]
fn capacity_of_a_pod_that_is_being_bound_counts_until_the_watch_shows_it() {
    let gang = gang("g", Phase::Planned, vec![place(0, Some("m0"), "n1")]);
    let (first, second) = (pod("first", &shape(2)), pod("second", &shape(2)));
    let pods = |bound: bool, nominated: bool| {
        let mut first = first.clone();
        first.node = bound.then(|| NodeName::from("n1"));
        first.nominated = nominated.then(|| NodeName::from("n1"));
        [member("m0", "g", RankClaim::Rank(0)), first, second.clone()]
    };
    // Five accelerators, one of them assigned: there is capacity for two pods of two, and for no third.
    let world = |bound, nominated, gpus| {
        snapshot(&[node("n1", gpus)], &pods(bound, nominated), std::slice::from_ref(&gang), &[])
    };
    let mut assumed = Assumed::default();
    assumed.add(&first, "n1");
    let fits = |snapshot: &Snapshot, assumed: &Assumed| {
        let offered = names(&["n1"]);
        let filtered = extender::filter(snapshot, assumed, &second, &offered, NOW);
        let bound = extender::bind(snapshot, assumed, &second.uid, "n1", NOW);
        let kept = matches!(filtered, Filtered::Split { kept, .. } if !kept.is_empty());
        assert_eq!(kept, bound == BindStep::Post { place: None }, "both look at the same capacity");
        kept
    };
    for (gpus, capacity) in [(5, true), (4, false)] {
        assert_eq!(fits(&world(false, false, gpus), &assumed), capacity, "{gpus} accelerators");
        assert_eq!(fits(&world(true, false, gpus), &assumed), capacity, "seen bound, and counted once");
        assert_eq!(fits(&world(false, true, gpus), &assumed), capacity, "nominated, and counted once");
    }
    let tight = world(false, false, 4);
    assert!(fits(&tight, &Assumed::default()), "nobody is being bound");
    assert_eq!(may_post(&tight, &assumed, None, &first.uid, "n1", NOW), Ok(None), "it does not stand in its own way");
    assert_eq!(may_post(&tight, &assumed, None, &second.uid, "n1", NOW), Err(Rejection::AssignedToGang));
    assumed.settle(&tight);
    assert!(!assumed.is_empty(), "not shown yet");
    let mut elsewhere = assumed.clone();
    elsewhere.add(&first, "n2");
    assert!(fits(&tight, &elsewhere), "a pod is bound to one node");
    elsewhere.remove(&first.uid);
    assert!(elsewhere.is_empty());
    assumed.settle(&world(true, false, 4));
    assert!(assumed.is_empty());
}

#[test]
fn a_member_s_binding_is_posted_while_the_newest_plan_gives_it_that_node() {
    let post = |phase: Phase, version: &str, committed: Option<&Gang>, node: &str| {
        let (mut snapshot, pod) = planned(phase);
        let known = Gang { resource_version: version.into(), ..Gang::clone(&snapshot.gangs[&key("g")]) };
        snapshot.gangs.insert(key("g"), Arc::new(known));
        may_post(&snapshot, &Assumed::default(), committed, &pod.uid, node, NOW)
    };
    let replanned = Err(Rejection::BeingReplanned);
    let (world, _) = planned(Phase::Committing);
    let committed = Gang { resource_version: "5".into(), ..Gang::clone(&world.gangs[&key("g")]) };
    assert_eq!(
        post(Phase::Released, "4", Some(&committed), "n1"),
        Ok(Some((1, 0))),
        "the watch lags behind the commit"
    );
    assert_eq!(post(Phase::Released, "4", Some(&committed), "n3"), replanned);
    assert_eq!(post(Phase::Waiting, "6", Some(&committed), "n1"), replanned, "withdrawn since");
    assert_eq!(post(Phase::Bound, "6", Some(&committed), "n1"), Ok(Some((1, 0))));
    assert_eq!(post(Phase::Released, "4", None, "n1"), replanned, "it has to stand at the barrier");
    assert_eq!(post(Phase::Bound, "4", None, "n1"), Ok(Some((1, 0))));
    let another = Gang { uid: "another".into(), ..committed };
    assert_eq!(post(Phase::Waiting, "4", Some(&another), "n1"), replanned, "another gang of that name");
}

#[test]
fn scores_of_accelerator_pods_are_a_permutation_with_the_fullest_node_first() {
    let mut used = pod("used", &shape(6));
    used.node = Some(NodeName::from("n2"));
    let snapshot = snapshot(&[node("n1", 8), node("n2", 8), node("n3", 4)], &[used], &[], &[]);
    let offered = names(&["n1", "n2", "n3", "unknown"]);
    let scores = prioritize(&snapshot, &pod("p", &shape(1)), &offered);
    assert_eq!(scores, [2, 4, 3, 1]);
    assert_eq!(scores, prioritize(&snapshot, &pod("p", &shape(1)), &offered));
    let reversed: Vec<String> = offered.iter().rev().cloned().collect();
    let mut back = prioritize(&snapshot, &pod("p", &shape(1)), &reversed);
    back.reverse();
    assert_eq!(scores, back, "the order of the request plays no part");
    assert_eq!(prioritize(&snapshot, &pod("cpu", &shape(0)), &offered), [0; 4]);
    assert_eq!(prioritize(&snapshot, &pod("p", &shape(1)), &[]), Vec::<i64>::new());
}

#[test]
fn members_and_unknown_pods_never_preempt() {
    let victims = Victims::from([("n3".to_owned(), vec![PodUid::from("uid-v")])]);
    let (snapshot, mut pod) = planned(Phase::Released);
    assert_eq!(preempt(&snapshot, &pod, victims.clone()), Victims::new());
    pod.membership = Membership::Unknown;
    assert_eq!(preempt(&snapshot, &pod, victims), Victims::new());
}

#[test]
fn other_pods_evict_no_member_and_take_no_assigned_capacity() {
    let mut ordinary = pod("v", &shape(1));
    ordinary.node = Some(NodeName::from("n3"));
    let mut running = member("m", "g", RankClaim::Rank(0));
    running.node = Some(NodeName::from("n4"));
    let gang = gang("g", Phase::Released, vec![place(0, Some("m0"), "n1")]);
    let pods = [ordinary, running, member("m0", "g", RankClaim::Rank(1))];
    let snapshot = snapshot(&[node("n1", 1), node("n3", 1), node("n4", 1)], &pods, &[gang], &[]);
    let candidates = Victims::from([
        ("empty".to_owned(), vec![]),
        ("n1".to_owned(), vec![PodUid::from("uid-v")]),
        ("n3".to_owned(), vec![PodUid::from("uid-v")]),
        ("n4".to_owned(), vec![PodUid::from("uid-v"), PodUid::from("uid-m")]),
        ("unseen".to_owned(), vec![PodUid::from("uid-never-seen")]),
    ]);
    let kept = preempt(&snapshot, &pod("p", &shape(1)), candidates);
    assert_eq!(kept.keys().collect::<Vec<_>>(), ["n3"]);
}

#[test]
fn bind_of_a_member_follows_the_phase() {
    for phase in Phase::ALL {
        let (snapshot, pod) = planned(phase);
        let step = bind(&snapshot, &pod.uid, "n1");
        assert_eq!(step, bind(&snapshot, &pod.uid, "n1"));
        match phase {
            Phase::Committing | Phase::Bound => assert_eq!(step, BindStep::Post { place: Some((1, 0)) }),
            Phase::Released => assert!(matches!(step, BindStep::Arrive { .. })),
            Phase::Planned => assert_eq!(step, BindStep::Behind),
            Phase::Collecting
            | Phase::Waiting
            | Phase::Provisioning
            | Phase::Finished
            | Phase::Degraded
            | Phase::Invalid
            | Phase::Unsatisfiable => assert_eq!(step, BindStep::Refuse(Rejection::BeingReplanned), "{phase}"),
        }
        assert_eq!(bind(&snapshot, &pod.uid, "n3"), BindStep::Refuse(Rejection::BeingReplanned), "{phase}");
    }
}

#[test]
fn bind_waits_for_what_is_not_seen_here_yet() {
    let (mut snapshot, mut pod) = planned(Phase::Released);
    assert_eq!(bind(&snapshot, &"never-seen".into(), "n1"), BindStep::Behind);
    pod.plan_epoch = Some(2);
    snapshot.pods.insert(pod.uid.clone(), Arc::new(pod.clone()));
    assert_eq!(bind(&snapshot, &pod.uid, "n1"), BindStep::Behind);
    (pod.plan_epoch, pod.membership) = (None, Membership::Unknown);
    snapshot.pods.insert(pod.uid.clone(), Arc::new(pod.clone()));
    assert_eq!(bind(&snapshot, &pod.uid, "n1"), BindStep::Behind);
}

#[test]
fn capacity_assigned_to_a_gang_does_not_count_as_free_for_the_packing_of_others() {
    let pods = [member("m0", "g", RankClaim::Rank(0)), member("m1", "g", RankClaim::Rank(1))];
    let gang = gang("g", Phase::Planned, vec![place(0, Some("m0"), "n1"), place(1, Some("m1"), "n1")]);
    let snapshot = snapshot(&[node("n1", 4), node("n2", 3)], &pods, &[gang], &[]);
    // n1 has four, of which two are assigned: it is the fuller one.
    let scores = prioritize(&snapshot, &pod("s", &shape(1)), &names(&["n1", "n2"]));
    assert_eq!(scores, [2, 1]);
}

#[test]
fn the_system_s_own_pods_may_evict_members_and_nobody_else() {
    let members = [member("m0", "g", RankClaim::Rank(0))];
    let gang = gang("g", Phase::Bound, vec![place(0, Some("m0"), "n1")]);
    let snapshot = snapshot(&[node("n1", 1)], &members, &[gang], &[]);
    let candidates = Victims::from([("n1".to_owned(), vec![members[0].uid.clone()])]);
    let mut preemptor = pod("s", &shape(1));
    assert_eq!(preempt(&snapshot, &preemptor, candidates.clone()), Victims::new());
    preemptor.critical = true;
    assert_eq!(preempt(&snapshot, &preemptor, candidates.clone()), candidates);
    let member = Pod { critical: true, ..members[0].clone() };
    assert_eq!(preempt(&snapshot, &member, candidates), Victims::new(), "a member never preempts alone");
    assert_eq!(preempt(&snapshot, &preemptor, Victims::from([("n1".to_owned(), Vec::new())])), Victims::new());
}

/// n1 (8 accelerators) was launched for `left` pods of the class of a pod with this shape, until then; n2 for nobody.
fn launched_for(asks: &Shape, left: u32, until: Option<Timestamp>) -> Snapshot {
    let mut snapshot = snapshot(&[node("n1", 8), node("n2", 8)], &[], &[], &[]);
    let awaited = pod("awaited", asks);
    let class: Arc<str> = digest(&awaited).unwrap().into();
    let places = Places { left, requests: Some(asks.requests.clone()) };
    let awaiting = Awaiting { places: [(class, places)].into(), until };
    snapshot.awaiting.insert(NodeName::from("n1"), Arc::new(awaiting));
    let replicas: Vec<Arc<Pod>> = (0..left).map(|number| Arc::new(pod(&format!("awaited-{number}"), asks))).collect();
    snapshot.waiting = waiting(replicas.iter(), &mut Classes::default());
    snapshot
}

const SOON: Timestamp = Timestamp::constant(1_800_000_001, 0);

#[test]
fn the_node_that_was_launched_for_a_pod_comes_first_until_its_time_is_over() {
    for gpus in [0, 3] {
        let own = pod("own", &shape(gpus));
        let offered = names(&["n2", "n1"]);
        let best = |snapshot: &Snapshot, pod: &Pod| {
            let scores = prioritize(snapshot, pod, &offered);
            (scores[1] > scores[0]).then_some("n1")
        };
        assert_eq!(best(&launched_for(&shape(gpus), 1, None), &own), Some("n1"), "not Ready yet");
        assert_eq!(best(&launched_for(&shape(gpus), 1, Some(SOON)), &own), Some("n1"));
        // Of two nodes alike the name decides for accelerators, and in-tree scores for all else.
        let beside = |snapshot: &Snapshot| prioritize(snapshot, &own, &offered);
        let nobody = snapshot(&[node("n1", 8), node("n2", 8)], &[], &[], &[]);
        assert_eq!(beside(&launched_for(&shape(gpus), 1, Some(NOW))), beside(&nobody), "its time is over");
        assert_eq!(beside(&launched_for(&shape(gpus), 0, Some(SOON))), beside(&nobody), "all have come");
        let other = pod("other", &shape(gpus + 1));
        let of_other = |snapshot: &Snapshot| prioritize(snapshot, &other, &offered);
        assert_eq!(of_other(&launched_for(&shape(gpus), 1, Some(SOON))), of_other(&nobody), "of another class");
    }
}

#[test]
fn others_keep_off_a_node_as_far_as_the_pods_it_was_launched_for_need_it() {
    let kept = |snapshot: &Snapshot, pod: &Pod| asked(snapshot, pod, &["n1", "n2"]);
    let full = launched_for(&shape(2), 4, Some(SOON));
    let other = pod("other", &shape(1));
    assert_eq!(kept(&full, &other), (names(&["n2"]), Some(Rejection::LaunchedForOthers)));
    assert_eq!(kept(&full, &pod("own", &shape(2))), (names(&["n1", "n2"]), None), "one of those it was launched for");
    let wide = launched_for(&shape(2), 3, Some(SOON));
    assert_eq!(kept(&wide, &pod("fits", &shape(1))), (names(&["n1", "n2"]), None), "they fit beside them");
    assert_eq!(kept(&wide, &pod("large", &shape(3))).0, names(&["n2"]), "not for so many");
    assert_eq!(kept(&launched_for(&shape(2), 4, Some(NOW)), &other), (names(&["n1", "n2"]), None), "time is over");
    assert_eq!(kept(&launched_for(&shape(2), 4, None), &other).0, names(&["n2"]), "not Ready yet");
    let exempt = [Pod { daemon: true, ..other.clone() }, Pod { critical: true, ..other }];
    for pod in &exempt {
        assert_eq!(kept(&full, pod), (names(&["n1", "n2"]), None), "belongs on every node");
    }
    let there = Pod { node: Some(NodeName::from("n1")), ..pod("there", &shape(1)) };
    let mut around = launched_for(&shape(2), 4, Some(SOON));
    around.pods.insert(there.uid.clone(), Arc::new(there.clone()));
    assert_eq!(kept(&around, &there), (names(&["n1", "n2"]), None), "bound there by a call whose answer was lost");
    // Bound meanwhile by another call of this replica, and not shown by the watch yet: it takes the capacity.
    let (mut wide, mut assumed) = (wide, Assumed::default());
    let mut of_another_class = shape(2);
    of_another_class.requests.set("cpu", 2_000);
    let early = pod("early", &of_another_class);
    assumed.add(&early, "n1");
    wide.pods.insert(early.uid.clone(), Arc::new(early));
    let offered = names(&["n1"]);
    let Filtered::Split { kept, .. } = extender::filter(&wide, &assumed, &pod("late", &shape(1)), &offered, NOW) else {
        panic!("unready")
    };
    assert_eq!(kept, Vec::<&str>::new());
}

#[test]
fn a_node_is_kept_for_no_more_pods_than_wait() {
    let kept = |snapshot: &Snapshot, pod: &Pod| asked(snapshot, pod, &["n1"]).0 == names(&["n1"]);
    let other = pod("other", &shape(4));
    let with = |waiting_pods: &[Pod]| {
        let mut snapshot = launched_for(&shape(2), 4, Some(SOON));
        let pods: Vec<Arc<Pod>> = waiting_pods.iter().cloned().map(Arc::new).collect();
        snapshot.waiting = waiting(pods.iter(), &mut Classes::default());
        snapshot
    };
    let waits = |name: &str| pod(name, &shape(2));
    assert!(!kept(&with(&[waits("a"), waits("b"), waits("c")]), &other), "three of two beside one of four");
    assert!(kept(&with(&[waits("a"), waits("b")]), &other), "the others stand elsewhere by now");
    assert!(kept(&with(&[]), &other), "nobody is left");
    let elsewhere = Pod { node: Some(NodeName::from("n2")), ..waits("c") };
    let ended = Pod { deleting: true, ..waits("c") };
    let of_others = Pod { ours: false, ..waits("c") };
    for one in [elsewhere, ended, of_others.clone()] {
        assert!(kept(&with(&[waits("a"), waits("b"), one.clone()]), &other), "{one:?}");
    }
    let provisioned = Pod { foreign: Foreign::Provisioned, ..of_others };
    assert!(!kept(&with(&[waits("a"), waits("b"), provisioned]), &other), "another scheduler's, launched for");
}

#[test]
fn a_crowd_of_replicas_that_is_bound_before_the_watch_shows_the_first_takes_its_own_places_and_no_others() {
    // Eight accelerators: for two pods of two and one of four.
    let (own, large) = (shape(2), shape(4));
    let crowd: Vec<Pod> = (0..4).map(|number| pod(&format!("own-{number}"), &own)).collect();
    let mut snapshot = snapshot(&[node("n1", 8), node("n2", 8)], &crowd, &[], &[]);
    let places = |asks: &Shape, left| {
        let class: Arc<str> = digest(&pod("any", asks)).unwrap().into();
        (class, Places { left, requests: Some(asks.requests.clone()) })
    };
    let awaiting = Awaiting { places: [places(&own, 2), places(&large, 1)].into(), until: Some(SOON) };
    snapshot.awaiting.insert(NodeName::from("n1"), Arc::new(awaiting));
    let of_large = [Arc::new(pod("large", &large))];
    snapshot.waiting = waiting(snapshot.pods.values().chain(&of_large), &mut Classes::default());
    let offered = names(&["n1", "n2"]);
    let mut assumed = Assumed::default();
    for (number, one) in crowd.iter().enumerate() {
        let may = number < 2;
        let expected = if may { Ok(None) } else { Err(Rejection::LaunchedForOthers) };
        assert_eq!(may_post(&snapshot, &assumed, None, &one.uid, "n1", NOW), expected, "{number}");
        let Filtered::Split { kept, .. } = extender::filter(&snapshot, &assumed, one, &offered, NOW) else {
            panic!("unready")
        };
        assert_eq!(kept.contains(&"n1"), may, "{number}");
        let scores = extender::prioritize(&snapshot, &assumed, one, &names(&["n1", "n2", "n3"]), NOW);
        assert_eq!(scores[0] == 3 && may, may, "{number}: {scores:?}");
        if may {
            assumed.add(one, "n1");
            assert_eq!(may_post(&snapshot, &assumed, None, &one.uid, "n1", NOW), Ok(None), "posted again");
        }
    }
    // A pod of another class goes by the capacity that is left beside all places.
    let (small, wide) = (pod("small", &shape(1)), pod("system", &shape(1)));
    for (one, critical, expected) in [(small, false, Err(Rejection::LaunchedForOthers)), (wide, true, Ok(None))] {
        let one = Pod { critical, ..one };
        let mut snapshot = snapshot.clone();
        snapshot.pods.insert(one.uid.clone(), Arc::new(one.clone()));
        assert_eq!(may_post(&snapshot, &Assumed::default(), None, &one.uid, "n1", NOW), expected, "{critical}");
        assert_eq!(may_post(&snapshot, &Assumed::default(), None, &one.uid, "n1", SOON), Ok(None), "time is over");
    }
    // Volumes of a driver for which the node names no limit are no part of it.
    let mut with_a_volume = shape(0);
    with_a_volume.requests.set("attachable-volumes-csi-ebs.csi.aws.com", 1);
    let one = pod("with-a-volume", &with_a_volume);
    let mut around = snapshot.clone();
    around.pods.insert(one.uid.clone(), Arc::new(one.clone()));
    assert_eq!(may_post(&around, &Assumed::default(), None, &one.uid, "n1", NOW), Ok(None));
    // What the watch shows by now is counted by the node, and not once more.
    let shown = Pod { node: Some(NodeName::from("n1")), ..crowd[0].clone() };
    snapshot.pods.insert(shown.uid.clone(), Arc::new(shown));
    let awaiting = Awaiting { places: [places(&own, 1), places(&large, 1)].into(), until: Some(SOON) };
    snapshot.awaiting.insert(NodeName::from("n1"), Arc::new(awaiting));
    assumed.remove(&crowd[1].uid);
    assert_eq!(may_post(&snapshot, &assumed, None, &crowd[1].uid, "n1", NOW), Ok(None));
}

#[test]
fn nobody_is_bound_to_a_node_with_a_taint_that_is_not_tolerated() {
    let mut going = node("n1", 8);
    going.taints.push(Taint { key: "muster.dev/disrupted".into(), value: "".into(), effect: TaintEffect::NoSchedule });
    let (plain, mut tolerant) = (pod("plain", &shape(0)), pod("tolerant", &shape(0)));
    let toleration = Toleration { key: "".into(), exists: true, value: "".into(), effect: None };
    tolerant.shape = Ok(Arc::new(Shape { tolerations: vec![toleration], ..shape(0) }));
    let snapshot = snapshot(&[going, node("n2", 8)], &[plain.clone(), tolerant.clone()], &[], &[]);
    assert_eq!(bind(&snapshot, &plain.uid, "n1"), BindStep::Tainted);
    let posted = may_post(&snapshot, &Assumed::default(), None, &plain.uid, "n1", NOW);
    assert_eq!(posted, Err(Rejection::Tainted), "nor is it posted to a node whose taint came meanwhile");
    assert_eq!(bind(&snapshot, &plain.uid, "n2"), BindStep::Post { place: None });
    assert_eq!(bind(&snapshot, &tolerant.uid, "n1"), BindStep::Post { place: None });
    let mut snapshot = snapshot;
    snapshot.pods.insert(plain.uid.clone(), Arc::new(Pod { daemon: true, ..plain.clone() }));
    assert_eq!(bind(&snapshot, &plain.uid, "n1"), BindStep::Post { place: None }, "a device plugin goes with its node");
}
