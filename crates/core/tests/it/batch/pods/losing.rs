//! Nodes that go before they are of use: nobody who stands there all the same is ended with them.

use super::super::{decisions, ec2::error};
use super::*;

#[test]
fn nodes_of_a_deleted_batch_that_are_not_ready_go_at_once_and_only_once_nobody_stands_there() {
    let mut setup = Setup::serving(&["i-1", "i-2", "i-3"]);
    // One has not registered; one has, with a pod that the cache does not show yet; one serves.
    setup.pods.retain(|pod| pod.node.as_ref().unwrap().as_str() == "n-i-3");
    setup.nodes.remove(0);
    let [boots, lacks, _serves] = &mut setup.status.instances[..] else { unreachable!("three") };
    (boots.state, boots.node, boots.registered) = (MemberState::Running, None, None);
    lacks.state = MemberState::Registered;
    setup.status.phase = BatchPhase::Launched;
    setup.memory.scratch.looked = Some(at(NOW));
    setup.deleting = true;
    setup.step();
    assert_eq!(ids(&setup.status), ["i-3"]);
    let gone = setup.status.replaced.iter().map(|one| (one.id.as_str(), one.loss.as_ref().unwrap().cause));
    assert_eq!(gone.collect::<Vec<_>>(), [("i-1", LossCause::Join), ("i-2", LossCause::Join)]);
    let shown = decisions::instances(&[("i-1", InstanceState::Running), ("i-2", InstanceState::Running)]);
    setup.memory.seen.insert(Look::Instances(vec!["i-1".into(), "i-2".into()]), Ok(Sight::Instances(shown)));
    let ends = |setup: &Setup| match setup.decide().change {
        Some(Change::Terminate(ids)) => ids,
        _other => Vec::new(),
    };
    assert_eq!(ends(&setup), [InstanceId::from("i-1")], "nobody can be there");
    let look = Look::Occupied(vec!["n-i-2".to_owned()]);
    let mut fails = setup.again();
    let unready = fails.node("n-i-2");
    unready.ready = false;
    fails.memory.seen.insert(look.clone(), Err(error("list pods", None, Some(503))));
    assert_eq!(ends(&fails), [InstanceId::from("i-1")], "who stands on the other holds it up no more than that");
    setup.status.replaced.retain(|one| one.id.as_str() == "i-2");
    let shown = decisions::instances(&[("i-2", InstanceState::Running)]);
    setup.memory.seen.insert(Look::Instances(vec!["i-2".into()]), Ok(Sight::Instances(shown)));
    setup.step();
    assert!(setup.is_tainted("n-i-2"), "kube-scheduler is kept off");
    setup.step();
    setup.now += 10;
    assert_eq!(setup.step().looks, std::slice::from_ref(&look), "it may hold a pod");
    setup.memory.seen.insert(look, Ok(Sight::Names(Vec::new())));
    assert_eq!(ends(&setup), [InstanceId::from("i-2")]);
}

#[test]
fn of_a_node_that_was_lost_before_the_status_named_it_the_name_is_written_down() {
    let mut setup = Setup::serving(&["i-1", "i-2"]);
    let lost = &mut setup.status.instances[0];
    (lost.node, lost.registered, lost.state) = (None, None, MemberState::Running);
    let (cause, message) = (LossCause::Notice(NoticeKind::SpotInterruption), String::new());
    lost.loss = Some(Loss { cause, message, noticed: at(NOW), act_at: at(NOW), deadline: Some(at(NOW + 120)) });
    setup.memory.scratch.looked = Some(at(NOW));
    setup.step();
    let gone = &setup.status.replaced[0];
    assert_eq!((gone.id.as_str(), gone.node.as_deref()), ("i-1", Some("n-i-1")), "its pods are found by it");
}
