//! Claims of pods of no gang in rounds: who may use one, which volume meets it, and how many a node attaches.

use std::sync::Arc;

use muster_core::model::batch::BatchPhase;
use muster_core::model::gang::{Claims, Pod, Taken, Unclaimed};
use muster_core::model::names::NodeName;
use muster_core::ordinary::Cause;

use super::super::world::{node, pod};
use super::{Setup, asks, offered, shown};

const VOLUMES: &str = "attachable-volumes-csi-d";

fn with(name: &str, cpu: i64, claims: Claims) -> Pod {
    let mut shape = asks(cpu);
    if !claims.attached.is_empty() {
        shape.requests.set(VOLUMES, i64::try_from(claims.attached.len()).unwrap());
    }
    Pod { claims: Arc::new(claims), ..pod(name, &shape) }
}

fn one_pod(claim: &str) -> Claims {
    Claims { one_pod: vec![claim.into()], ..Claims::default() }
}

fn whys(setup: &Setup) -> Vec<(String, String)> {
    let refused = setup.plan().refused.into_iter();
    refused.map(|one| (one.pod.to_string(), one.why.to_string())).collect()
}

#[test]
fn a_claim_for_one_pod_at_a_time_is_not_launched_for_twice() {
    let text = |by: &str| {
        format!("PersistentVolumeClaim data is for one pod at a time (ReadWriteOncePod), and pod {by} uses it")
    };
    let mut setup = Setup::of(vec![with("a", 1_000, one_pod("data")), with("b", 1_000, one_pod("data"))]);
    let outcome = setup.plan();
    assert_eq!(shown(&outcome), [("small", 1, 1)]);
    assert_eq!(outcome.refused[0].cause, Cause::NoOfferFits);
    assert_eq!(whys(&setup), [("uid-b".to_owned(), text("a"))]);
    // Whose node is on its way has it too.
    setup.launch(&outcome.launches, BatchPhase::Launched);
    let outcome = setup.plan();
    assert_eq!((outcome.joining, shown(&outcome)), (1, vec![]));
    assert_eq!(whys(&setup), [("uid-b".to_owned(), text("a"))]);
    // And whoever stands.
    let mut setup = Setup::of(vec![with("a", 1_000, one_pod("data")), with("b", 1_000, one_pod("data"))]);
    setup.nodes = vec![node("there", 0)];
    setup.pods[0].node = Some(NodeName::from("there"));
    assert_eq!(whys(&setup), [("uid-b".to_owned(), text("a"))]);
    // Who finds no place keeps it from nobody.
    let mut setup = Setup::of(vec![with("a", 99_000, one_pod("data")), with("b", 1_000, one_pod("data"))]);
    assert_eq!(shown(&setup.plan()), [("small", 1, 1)]);
    setup.pods.truncate(1);
    assert_eq!(shown(&setup.plan()), []);
}

#[test]
fn a_volume_that_is_there_already_is_launched_for_once() {
    let there = |claim: &str| {
        let among = vec![Unclaimed { volume: "pv".into(), reach: Vec::new() }];
        let taken = vec![Taken { class: "there".into(), claim: claim.into(), volumes: 1, among }];
        Claims { taken, ..Claims::default() }
    };
    let setup = Setup::of(vec![with("a", 1_000, there("data-a")), with("b", 1_000, there("data-b"))]);
    let outcome = setup.plan();
    assert_eq!(shown(&outcome), [("small", 1, 1)]);
    let (pod, why) = whys(&setup).remove(0);
    assert!(pod == "uid-b" && why.starts_with("PersistentVolumeClaim data-b needs a PersistentVolume"), "{pod}: {why}");
}

#[test]
fn a_volume_that_pods_share_is_attached_once_to_a_node_there_and_to_one_that_is_launched() {
    let shares = |many: bool| {
        let volumes = [(Arc::from("data"), VOLUMES.into())].into();
        let claims = Claims::default();
        if many { Claims { shared: volumes, ..claims } } else { Claims { attached: volumes, ..claims } }
    };
    for many in [false, true] {
        let mut setup = Setup::of((0..4).map(|number| with(&format!("a-{number}"), 1_000, shares(many))).collect());
        setup.offers = vec![offered("small", 4_000, 0, 4)];
        Arc::make_mut(&mut setup.offers[0].offer.node).allocatable.set(VOLUMES, 1);
        assert_eq!(shown(&setup.plan()), [("small", 1, 4)], "{many}");
        let mut there = node("there", 0);
        there.allocatable.set(VOLUMES, 1);
        setup.nodes = vec![there];
        setup.pods[0].node = Some(NodeName::from("there"));
        let outcome = setup.plan();
        assert_eq!((outcome.placed, shown(&outcome)), (3, vec![]), "{many}");
        // Another one of those that pods of several nodes use is one too many.
        let other = [(Arc::from("other"), VOLUMES.into())].into();
        setup.pods.push(with("b", 1_000, Claims { shared: other, ..Claims::default() }));
        let outcome = setup.plan();
        assert_eq!((outcome.placed, shown(&outcome)), (3, vec![("small", 1, 1)]), "{many}");
    }
}
