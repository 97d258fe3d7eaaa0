//! Edits of Nodes are made once, and again where that is not what the watch shows.

use jiff::{SignedDuration, Timestamp};
use muster_core::batch::{Converge, Unshown};
use muster_core::model::node::{Node, Taint, TaintEffect};
use muster_core::model::snapshot::Snapshot;

use crate::world;

const KEY: &str = "muster.dev/unregistered";
const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn untaint(node: &str) -> Converge {
    Converge::Untaint { node: node.to_owned(), key: KEY }
}

fn taint(node: &str) -> Converge {
    Converge::Taint { node: node.to_owned(), instance: "i-1".into(), key: KEY }
}

fn tainted(name: &str) -> Node {
    let taint = Taint { key: KEY.into(), value: "".into(), effect: TaintEffect::NoExecute };
    Node { taints: vec![taint], ..world::node(name, 0) }
}

fn shows(nodes: &[Node]) -> Snapshot {
    world::snapshot(nodes, &[], &[], &[])
}

#[test]
fn an_edit_that_was_made_is_not_made_again_before_the_watch_shows_its_node_otherwise() {
    let mut unshown = Unshown::default();
    let before = shows(&[tainted("n1"), tainted("n2")]);
    let both = vec![untaint("n1"), untaint("n2")];
    let begun = Unshown::begin(&both, &before);
    assert_eq!(unshown.rest(both.clone(), &before, NOW), both, "what is only begun may fail");
    unshown.made(begun, NOW);
    let others = vec![taint("n1"), Converge::UnblockPool("p".to_owned())];
    let asked = both.iter().chain(&others).cloned().collect();
    assert_eq!(unshown.rest(asked, &before, NOW), others, "another edit of the Node, and of something else");
    // Its kubelet reported something meanwhile, and kube-controller-manager took its own taint off.
    let reported = shows(&[Node { ready: !before.nodes["n1"].node.ready, ..tainted("n1") }, tainted("n2")]);
    assert_eq!(unshown.rest(both.clone(), &reported, NOW), []);
    let effect = TaintEffect::NoSchedule;
    let other = Taint { effect, ..before.nodes["n1"].node.taints[0].clone() };
    let otherwise = shows(&[Node { taints: vec![other], ..tainted("n1") }, tainted("n2")]);
    assert_eq!(unshown.rest(both.clone(), &otherwise, NOW), [untaint("n1")], "it has another taint of the key");
    let id = Some("aws:///us-east-1a/i-2".into());
    let another = shows(&[Node { provider_id: id, ..tainted("n1") }, tainted("n2")]);
    assert_eq!(unshown.rest(both.clone(), &another, NOW), [untaint("n1")], "another Node of its name");
    assert_eq!(unshown.rest(both, &shows(&[tainted("n1")]), NOW), [untaint("n2")], "its Node is gone");
}

#[test]
fn an_edit_that_is_not_shown_in_time_is_made_again_and_so_is_the_one_before_the_last() {
    let mut unshown = Unshown::default();
    let before = shows(&[tainted("n1")]);
    let both = vec![untaint("n1"), Converge::Unhold { node: "n1".to_owned() }];
    for edit in &both {
        unshown.made(Unshown::begin(std::slice::from_ref(edit), &before), NOW);
    }
    assert_eq!(unshown.rest(both.clone(), &before, NOW), [untaint("n1")]);
    let at = |millis| NOW + SignedDuration::from_millis(millis);
    assert_eq!(unshown.rest(both.clone(), &before, at(9_999)), [untaint("n1")]);
    assert_eq!(unshown.rest(both.clone(), &before, at(10_000)), both);
}

#[test]
fn a_label_that_was_written_is_not_written_again_while_others_write_theirs() {
    let mut unshown = Unshown::default();
    let labels = |value: &str| [("example.com/own".into(), value.into())].into();
    let label = |value| Converge::Label { node: "n1".to_owned(), labels: labels(value) };
    let before = shows(&[tainted("n1")]);
    unshown.made(Unshown::begin(&[label("a")], &before), NOW);
    let carries = |key: &str, value: &str| {
        let mut node = tainted("n1");
        node.labels.insert(key.into(), value.into());
        shows(&[node])
    };
    assert_eq!(unshown.rest(vec![label("a")], &carries("example.com/other", "b"), NOW), []);
    assert_eq!(unshown.rest(vec![label("a")], &carries("example.com/own", "b"), NOW), [label("a")], "others wrote it");
    assert_eq!(unshown.rest(vec![label("b")], &before, NOW), [label("b")], "another value");
}

#[test]
fn a_taint_is_put_on_as_often_as_it_is_asked_for_and_may_be_taken_off_again_at_once() {
    let mut unshown = Unshown::default();
    let before = shows(&[tainted("n1")]);
    for edit in [untaint("n1"), taint("n1")] {
        unshown.made(Unshown::begin(&[edit], &before), NOW);
    }
    let both = vec![taint("n1"), untaint("n1")];
    assert_eq!(unshown.rest(both.clone(), &before, NOW), both);
}
