//! Pods of other schedulers' profiles: nodes are launched for them, and nothing keeps them off a node or brings them to one.

use muster_core::model::batch::{BatchMember, BatchPhase, MemberState};
use muster_core::model::gang::{Foreign, Pod};
use muster_core::model::names::{InstanceId, NodeName};

use super::{Setup, pods};
use crate::world::{at, node};

fn foreign(pod: Pod) -> Pod {
    Pod { ours: false, foreign: Foreign::Provisioned, ..pod }
}

/// What is launched for the pods that wait, with nodes of 4,000m, of which the first has registered as `n-1`.
fn launched(setup: &mut Setup) {
    let launches = setup.plan().launches;
    assert_eq!(launches.len(), 1, "{launches:?}");
    setup.launch(&launches, BatchPhase::Joining);
    let member = |place: u32| BatchMember {
        place: Some(place),
        node: (place == 0).then(|| "n-1".to_owned()),
        registered: (place == 0).then(|| at(99)),
        ..BatchMember::new(
            InstanceId::from(format!("i-{place}").as_str()),
            1,
            if place == 0 { MemberState::Ready } else { MemberState::Launched },
        )
    };
    setup.batches[0].status.instances = (0..launches[0].count).map(member).collect();
    let mut node = node("n-1", 0);
    node.allocatable.set("cpu", 4_000);
    setup.nodes.push(node);
}

fn stands(pod: Pod) -> Pod {
    Pod { node: Some(NodeName::from("n-1")), ..pod }
}

#[test]
fn pods_of_another_scheduler_that_is_provisioned_for_get_nodes_beside_ours() {
    let mut all = pods("ours", 4, 1_000);
    all.extend(pods("foreign", 4, 1_000).into_iter().map(foreign));
    all.extend(pods("other", 4, 1_000).into_iter().map(|pod| Pod { ours: false, ..pod }));
    let launches = Setup::of(all).plan().launches;
    let held: Vec<&str> = launches.iter().flat_map(|one| &one.pods).map(|pod| pod.as_str()).collect();
    assert_eq!(held.len(), 8, "{held:?}");
    assert!(held.iter().all(|pod| !pod.starts_with("other")), "{held:?}");
}

#[test]
fn a_place_that_a_pod_of_another_scheduler_took_is_none_and_one_beside_it_is() {
    for (milli, joining, launches) in [(500, 1, 0), (2_000, 0, 1)] {
        let mut setup = Setup::of(pods("web", 1, 3_000));
        launched(&mut setup);
        setup.pods.push(stands(foreign(pods("other", 1, milli).remove(0))));
        let outcome = setup.plan();
        assert_eq!((outcome.joining, outcome.launches.len()), (joining, launches), "{milli}");
    }
}

#[test]
fn two_pods_that_change_places_are_not_launched_for_once_more() {
    // The first node to be Ready is that of one of them, and the other may be the one that kube-scheduler binds to it.
    for taker in ["web", "api"] {
        let mut all = pods("web", 1, 3_000);
        all.extend(pods("api", 1, 3_500));
        let mut setup = Setup::of(all.into_iter().map(foreign).collect());
        launched(&mut setup);
        let one = setup.pods.iter_mut().find(|pod| pod.key.name.starts_with(taker)).unwrap();
        *one = stands(one.clone());
        let outcome = setup.plan();
        assert_eq!((outcome.launches.len(), outcome.joining + outcome.placed), (0, 1), "{taker}: {outcome:?}");
    }
}
