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
    let id = Some("aws:///us-east-1a/i-2".into());
    let another = shows(&[Node { provider_id: id, ..tainted("n1") }, tainted("n2")]);
    for (shown, what) in [
        (otherwise, "it has another taint of the key"),
        (another, "another Node of its name"),
        (shows(&[tainted("n2")]), "its Node is gone"),
    ] {
        unshown.made(Unshown::begin(&both, &before), NOW);
        assert_eq!(unshown.rest(both.clone(), &shown, NOW), [untaint("n1")], "{what}");
    }
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
fn what_keeps_pods_off_is_put_on_as_often_as_it_is_asked_for_and_may_be_taken_off_again_at_once() {
    let mut unshown = Unshown::default();
    let before = shows(&[tainted("n1")]);
    let hold = Converge::Hold { node: "n1".to_owned(), owner: "uid".to_owned() };
    for edit in [untaint("n1"), taint("n1"), hold.clone()] {
        unshown.made(Unshown::begin(&[edit], &before), NOW);
    }
    let all = vec![taint("n1"), untaint("n1"), hold];
    assert_eq!(unshown.rest(all.clone(), &before, NOW), all);
}

#[test]
fn an_edit_that_somebody_undid_after_the_watch_had_shown_it_is_made_again_at_once() {
    let mut unshown = Unshown::default();
    let before = shows(&[tainted("n1")]);
    let edits = vec![untaint("n1")];
    unshown.made(Unshown::begin(&edits, &before), NOW);
    assert_eq!(unshown.rest(edits.clone(), &before, NOW), []);
    // Nothing is asked for while it is as it should be.
    assert_eq!(unshown.rest(Vec::new(), &shows(&[world::node("n1", 0)]), NOW), []);
    assert_eq!(unshown.rest(edits.clone(), &before, NOW), edits);
}
