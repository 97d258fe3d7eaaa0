//! Which devices a node must offer before it counts as Ready.

use muster_core::model::batch::MemberState;
use muster_core::model::gang::Pod;
use muster_core::model::node::Node;
use muster_core::model::resources::{CPU, Resources};

use super::{NEVER_READY, NOW, Setup};
use crate::world::{self, at};

/// A Ready node of a type that has GPUs, and offers none; nothing is written of it but that it registered.
fn without_gpus() -> Setup {
    let mut setup = Setup::serving(&["i-1"]);
    setup.status.instances[0].state = MemberState::Registered;
    setup.status.instances[0].registered = Some(at(NOW - 10));
    let provider_id = setup.nodes[0].provider_id.clone();
    setup.nodes[0] = Node { provider_id, ..world::node("n-i-1", 0) };
    setup.memory.scratch.looked = Some(at(NOW));
    setup
}

fn asks_for_gpus() -> Pod {
    Pod { node: Some("n-i-1".into()), ..world::pod("on-i-1", &world::shape(1)) }
}

fn state(mut setup: Setup) -> MemberState {
    setup.step();
    setup.status.instances[0].state
}

#[test]
fn a_node_whose_pods_have_all_come_needs_what_they_ask_for_and_no_more() {
    assert_eq!(state(without_gpus()), MemberState::Ready);
    let mut lacks = without_gpus();
    lacks.pods.push(asks_for_gpus());
    assert_eq!(state(lacks), MemberState::Registered);
}

#[test]
fn a_node_needs_what_those_ask_for_that_are_still_to_come_beside_those_that_came() {
    for (asks, expected) in [("nvidia.com/gpu", MemberState::Registered), (CPU, MemberState::Ready)] {
        let asks = Some(Resources::from_iter([(asks, 1)]));
        assert_eq!(state(Setup { awaits: Some(NEVER_READY), asks, ..without_gpus() }), expected);
    }
}

#[test]
fn a_node_needs_all_devices_of_its_type_where_nobody_knows_for_whom_it_is() {
    let mut setup = without_gpus();
    setup.pods.clear();
    assert_eq!(state(setup), MemberState::Registered);
}
