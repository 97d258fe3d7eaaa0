//! Calls to EC2 that fail again and again: they hold up no other node of the batch, and are reported.

use muster_core::batch::{Done, Made};
use muster_core::ec2::CallError;

use super::super::{decisions, ec2::error};
use super::*;

/// One node that has just registered, one that is empty, and a third that went.
fn one_comes_and_one_is_empty() -> Setup {
    let mut setup = Setup::serving(&["i-1", "i-2", "i-3"]);
    let lost = setup.status.instances.remove(2);
    let loss =
        Loss { cause: LossCause::Missing, message: String::new(), noticed: at(0), act_at: at(0), deadline: None };
    setup.status.replaced.push(BatchMember { state: MemberState::Lost, loss: Some(loss), node: None, ..lost });
    setup.nodes.truncate(2);
    setup.pods.truncate(1);
    setup.status.phase = BatchPhase::Launched;
    setup.status.instances[0].state = MemberState::Registered;
    setup.status.instances[1].empty_since = Some(at(NOW - 60));
    let taint = Taint { key: "muster.dev/unregistered".into(), value: "".into(), effect: TaintEffect::NoExecute };
    setup.nodes[0].taints.push(taint);
    setup
}

/// EC2 has the instance that went, and does not end it.
fn refuse(setup: &mut Setup) {
    let id = InstanceId::from("i-3");
    let there = decisions::instances(&[("i-3", InstanceState::Running)]);
    setup.memory.seen = [(Look::Instances(vec![id.clone()]), Ok(Sight::Instances(there)))].into();
    let result: Result<Made, CallError> = Err(error("TerminateInstances", Some("OperationNotPermitted"), Some(400)));
    setup.memory.done = Some(Done { change: Change::Terminate(vec![id]), result });
}

fn message(setup: &Setup) -> &str {
    setup.status.message.as_deref().unwrap_or_default()
}

#[test]
fn an_instance_that_ec2_does_not_end_holds_up_no_other_node_of_its_batch() {
    let mut setup = one_comes_and_one_is_empty();
    setup.memory.scratch.looked = Some(at(NOW));
    refuse(&mut setup);
    setup.step();
    assert!(!setup.is_tainted("n-i-1"), "it has registered");
    assert!(setup.is_tainted("n-i-2"), "it is empty");
}

#[test]
fn an_instance_that_ec2_does_not_end_is_tried_ever_more_rarely_and_reported_until_it_ends() {
    let mut setup = one_comes_and_one_is_empty();
    setup.status.instances[0].state = MemberState::Ready;
    setup.pods.push(on("i-2"));
    let mut pauses = Vec::new();
    for failures in 1..=7 {
        refuse(&mut setup);
        let decision = setup.decide();
        assert!(decision.used, "the answer is not judged twice");
        setup.memory = Memory { scratch: decision.scratch, ..Memory::default() };
        setup.status = decision.next.unwrap_or(setup.status);
        assert_eq!(message(&setup).contains("OperationNotPermitted"), failures >= 3, "{failures}: {}", message(&setup));
        let began = setup.now;
        // Others go on meanwhile, and say nothing else.
        while setup.decide().looks.is_empty() {
            setup.step();
            setup.now += 1;
        }
        pauses.push(setup.now - began);
    }
    assert_eq!(pauses, [10, 20, 40, 80, 80, 80, 80]);
    assert!(message(&setup).contains("OperationNotPermitted"));
    let ended = decisions::instances(&[("i-3", InstanceState::Terminated)]);
    setup.memory.seen = [(Look::Instances(vec!["i-3".into()]), Ok(Sight::Instances(ended)))].into();
    let decision = setup.decide();
    setup.memory = Memory { scratch: decision.scratch, ..Memory::default() };
    setup.status = decision.next.unwrap();
    setup.step();
    assert_eq!((setup.status.replaced.len(), message(&setup)), (0, "2 nodes ready"));
}

#[test]
fn nodes_register_and_go_while_ec2_does_not_say_whether_instances_live() {
    let mut setup = one_comes_and_one_is_empty();
    setup.status.replaced.clear();
    setup.status.instances[0].state = MemberState::Running;
    setup.status.instances[0].registered = None;
    for failures in 1..=3 {
        let look = Look::Instances(vec!["i-1".into(), "i-2".into()]);
        setup.memory.seen = [(look, Err(error("DescribeInstances", Some("RequestLimitExceeded"), Some(503))))].into();
        // Its device plugin is late: it is looked at as long as it joins.
        setup.nodes[0] = Node { provider_id: setup.nodes[0].provider_id.clone(), ..world::node("n-i-1", 0) };
        setup.pods.clear();
        let decision = setup.decide();
        assert_eq!((decision.looks.len(), decision.scratch.failed_looks), (0, failures));
        setup.memory = Memory { scratch: decision.scratch, ..Memory::default() };
        setup.status = decision.next.unwrap_or(setup.status);
        assert_eq!(setup.status.instances[0].state, MemberState::Registered);
        assert_eq!(message(&setup).contains("RequestLimitExceeded"), failures >= 3, "{}", message(&setup));
        setup.now += 15;
    }
}

#[test]
fn nodes_register_while_the_api_server_does_not_say_who_stands_on_those_that_look_empty() {
    let mut setup = one_comes_and_one_is_empty();
    setup.status.replaced.clear();
    setup.memory.scratch.looked = Some(at(NOW));
    let disrupted = Taint { key: "muster.dev/disrupted".into(), value: "".into(), effect: TaintEffect::NoSchedule };
    setup.nodes[1].taints.push(disrupted);
    setup.status.instances[1].leaving_since = Some(at(NOW - 60));
    setup.status.instances[0].registered = Some(at(NOW - 5));
    let look = Look::Occupied(vec!["n-i-2".to_owned()]);
    for failures in 1..=3 {
        assert_eq!(setup.decide().looks, std::slice::from_ref(&look), "it is asked again");
        setup.memory.seen = [(look.clone(), Err(error("list pods", None, Some(503))))].into();
        let decision = setup.decide();
        assert_eq!((decision.looks.len(), decision.scratch.failed_lists), (0, failures));
        setup.step();
        setup.memory = Memory { scratch: decision.scratch, ..Memory::default() };
        setup.memory.scratch.looked = Some(at(setup.now + 20));
        assert!(!setup.is_tainted("n-i-1"), "it has registered");
        assert_eq!(ids(&setup.status), ["i-1", "i-2"], "nobody knows who stands there");
        assert_eq!(message(&setup).contains("list pods"), failures >= 3, "{}", message(&setup));
        assert!(setup.decide().looks.is_empty(), "not at once");
        setup.now += 15;
    }
    setup.memory.seen = [(look, Ok(Sight::Names(Vec::new())))].into();
    let decision = setup.decide();
    assert_eq!(decision.scratch.failed_lists, 0);
    setup.step();
    assert_eq!((ids(&setup.status), message(&setup)), (vec!["i-1"], "1 node ready"));
}
