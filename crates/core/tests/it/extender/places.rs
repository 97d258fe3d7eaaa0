//! The plan is the outcome: pods go where nodes were launched for them.

use jiff::SignedDuration;
use muster_core::extender::chosen;
use muster_core::model::node::Node;
use muster_core::model::tags::TAG_BATCH;

use super::*;

/// Seconds from now.
fn at(seconds: i64) -> Timestamp {
    NOW + SignedDuration::from_secs(seconds)
}

/// A node that we launched, and that registered then.
fn launched(name: &str, registered: i64) -> Node {
    let mut node = node(name, 8);
    node.labels.insert(TAG_BATCH.into(), "uid".into());
    node.created = Some(at(registered));
    node
}

/// Places for pods of two accelerators.
fn places(left: u32, until: Option<Timestamp>) -> Arc<Awaiting> {
    let class: Arc<str> = digest(&pod("any", &shape(2))).unwrap().into();
    let places = Places { left, requests: Some(shape(2).requests) };
    Arc::new(Awaiting { places: [(class, places)].into(), until })
}

/// n1 has registered a moment ago and its places are taken; n2 has `left` places until then; so many pods wait.
fn one_is_full(left: u32, until: Option<Timestamp>, waiting_pods: u32) -> Snapshot {
    let mut snapshot = snapshot(&[launched("n1", -20), launched("n2", -20), node("old", 8)], &[], &[], &[]);
    snapshot.awaiting.insert(NodeName::from("n2"), places(left, until));
    let pods: Vec<Arc<Pod>> =
        (0..waiting_pods).map(|number| Arc::new(pod(&format!("own-{number}"), &shape(2)))).collect();
    snapshot.waiting = waiting(pods.iter(), &mut Classes::default());
    snapshot
}

fn kept(snapshot: &Snapshot, pod: &Pod) -> Vec<String> {
    asked(snapshot, pod, &["n1", "n2", "old"]).0
}

const ALL: [&str; 3] = ["n1", "n2", "old"];

#[test]
fn a_pod_with_a_place_on_a_node_that_comes_takes_nothing_of_one_that_came_a_moment_before() {
    let own = pod("own-0", &shape(2));
    let held_back = names(&["n2", "old"]);
    assert_eq!(kept(&one_is_full(2, None, 2), &own), held_back, "its node is not Ready yet");
    assert_eq!(kept(&one_is_full(2, Some(at(9)), 2), &own), held_back, "its node is Ready");
    // Two of three of its class have a place: nobody can say which.
    assert_eq!(kept(&one_is_full(2, None, 3), &own), names(&ALL));
    assert_eq!(kept(&one_is_full(2, Some(NOW), 2), &own), names(&ALL), "n2 is kept for nobody any more");
    assert_eq!(kept(&one_is_full(2, None, 2), &pod("other", &shape(1))), names(&ALL), "of another class");
    for exempt in [Pod { daemon: true, ..own.clone() }, Pod { critical: true, ..own }] {
        assert_eq!(kept(&one_is_full(2, None, 2), &exempt), names(&ALL), "belongs on every node");
    }
}

#[test]
fn places_on_instances_that_have_not_registered_count() {
    let own = pod("own-0", &shape(2));
    let coming = |places: u32, waiting_pods: u32| {
        let mut snapshot = one_is_full(1, None, waiting_pods);
        snapshot.awaiting.clear();
        let class: Arc<str> = digest(&own).unwrap().into();
        snapshot.coming.insert(class, places);
        snapshot
    };
    assert_eq!(kept(&coming(2, 2), &own), names(&["old"]));
    assert_eq!(kept(&coming(2, 3), &own), names(&ALL));
    assert_eq!(kept(&coming(0, 0), &own), names(&ALL), "nobody has a place");
    // What waits has a place on either of both.
    let mut both = one_is_full(1, None, 3);
    both.coming = coming(2, 3).coming;
    assert_eq!(kept(&both, &own), names(&["n2", "old"]));
}

#[test]
fn a_launched_node_is_open_to_everybody_a_minute_after_it_registered_and_nodes_of_others_always_are() {
    let own = pod("own-0", &shape(2));
    let with = |node: Node| {
        let snapshot = one_is_full(2, None, 2);
        let nodes = [node, launched("n2", -20)];
        Snapshot { nodes: super::snapshot(&nodes, &[], &[], &[]).nodes, ..snapshot }
    };
    let open = |node: Node| asked(&with(node), &own, &["n1"]).0 == names(&["n1"]);
    assert!(!open(launched("n1", -59)));
    assert!(open(launched("n1", -60)));
    assert!(!open(launched("n1", 30)), "the API server's clock is ahead");
    assert!(open(launched("n1", 3_600)), "so far that it says nothing");
    assert!(open(Node { created: None, ..launched("n1", 0) }));
    assert!(open(Node { created: Some(NOW), ..node("n1", 8) }));
}

#[test]
fn of_nodes_launched_for_a_pod_the_one_with_most_places_left_comes_first_and_no_other_is_level_with_it() {
    let mut own = pod("own", &shape(2));
    for accelerators in [true, false] {
        let mut snapshot = one_is_full(2, None, 9);
        snapshot.awaiting.insert(NodeName::from("n1"), places(3, None));
        if !accelerators {
            snapshot.accelerators.clear();
        }
        let mut assumed = Assumed::default();
        let mut order = Vec::new();
        for number in 0..5 {
            own.uid = PodUid::from(format!("own-{number}"));
            snapshot.pods.insert(own.uid.clone(), Arc::new(own.clone()));
            let offered = names(&["old", "n2", "n1"]);
            let scores = extender::prioritize(&snapshot, &assumed, &own, &offered, NOW);
            let answer = offered.iter().map(String::as_str).zip(scores);
            let node = chosen(&snapshot, &own, answer, NOW).unwrap().to_owned();
            assumed.add(&own, &node);
            order.push(node);
        }
        // Accelerators are packed.
        let expected = if accelerators { ["n1", "n1", "n1", "n2", "n2"] } else { ["n1", "n1", "n2", "n1", "n2"] };
        assert_eq!(order, expected, "{accelerators}");
        own.uid = PodUid::from("own-5");
        let scores = extender::prioritize(&snapshot, &assumed, &own, &names(&["n1", "n2"]), NOW);
        assert_eq!(scores, if accelerators { [2, 1] } else { [0, 0] }, "all places are given");
    }
}

#[test]
fn what_kube_scheduler_will_choose_follows_from_an_answer_that_leaves_it_one_node() {
    let snapshot = one_is_full(2, Some(at(9)), 2);
    let own = pod("own", &shape(2));
    let of = |answer: &[(&'static str, i64)]| chosen(&snapshot, &own, answer.iter().copied(), NOW);
    assert_eq!(of(&[("n2", 0)]), Some("n2"), "one node is feasible");
    assert_eq!(of(&[("n1", 0), ("n2", 2), ("old", 1)]), Some("n2"));
    assert_eq!(of(&[("n2", 2), ("n1", 1)]), Some("n2"));
    assert_eq!(of(&[("n1", 1), ("n2", 1)]), None, "its own scores decide");
    assert_eq!(of(&[("n2", 1), ("n1", 1), ("old", 0)]), None);
    assert_eq!(of(&[("n1", 0), ("old", 0), ("n2", 2)]), Some("n2"), "two that are level do not matter below the best");
    assert_eq!(of(&[("n1", 1)]), None, "it awaits nobody");
    assert_eq!(of(&[]), None);
    assert_eq!(chosen(&snapshot, &own, [("n2", 0)], at(9)), None, "its time is over");
    let daemon = Pod { daemon: true, ..own };
    assert_eq!(chosen(&snapshot, &daemon, [("n2", 0)], NOW), None);
    let member = member("m0", "g", RankClaim::Rank(0));
    assert_eq!(chosen(&snapshot, &member, [("n2", 0)], NOW), None, "the plan decides");
}
