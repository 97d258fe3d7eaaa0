//! Why a gang waits: what ends by itself is distinguished from what somebody must change, and a change is the smallest.

use std::sync::Arc;

use muster_core::gang::{Left, PoolView, offers_for};
use muster_core::model::gang::Phase;
use muster_core::model::names::ObjectKey;
use muster_core::offering::{CeilingLeft, CeilingScope, Exclusion};
use muster_core::planner::plan::{Change, GangRequest, Role, RolePlace, TopologyRequests};
use muster_core::reason::{Code, Help, PoolChange, Wait, Why};
use muster_core::topology::Levels;

use super::sim::{Sim, pool};
use crate::world;

const GPU: &str = "nvidia.com/gpu";

#[test]
fn a_gang_that_fits_once_terminating_pods_are_gone_is_asked_to_wait() {
    let mut sim = Sim::new(&[("n1", 4)]);
    for name in ["one", "two"] {
        let mut pod = world::pod(name, &world::shape(2));
        (pod.node, pod.deleting) = (Some("n1".into()), true);
        sim.pods.insert(name.to_owned(), pod);
    }
    sim.gang("train", 4, 4);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Waiting);
    let stated = sim.message("train");
    assert!(stated.contains("2 terminating pods hold capacity on 1 node: would fit once they are gone"), "{stated}");
    sim.pods.retain(|name, _| name.starts_with("train"));
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
}

#[test]
fn capacity_assigned_to_another_gang_is_named_with_the_gang() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.scheduler = false;
    sim.gang("first", 4, 4);
    sim.settle();
    sim.gang("second", 4, 4);
    sim.settle();
    let stated = sim.message("second");
    assert!(stated.contains("capacity on 1 node is assigned to gang ns/first: would fit without that"), "{stated}");
}

#[test]
fn of_two_gangs_whose_capacity_would_do_each_either_is_enough() {
    let mut sim = Sim::new(&[("n1", 4), ("n2", 4)]);
    sim.scheduler = false;
    sim.gang("first", 4, 4);
    sim.gang("second", 4, 4);
    sim.settle();
    sim.gang("third", 4, 4);
    sim.settle();
    let stated = sim.message("third");
    let both = "capacity on 2 nodes is assigned to gangs ns/first, ns/second: would fit without that";
    assert!(stated.contains(&format!("{both} of any one of them")), "{stated}");
    sim.gang("fourth", 8, 8);
    sim.settle();
    let stated = sim.message("fourth");
    assert!(stated.contains(both) && !stated.contains("any one"), "{stated}");
}

#[test]
fn assignments_whose_end_would_not_be_enough_are_named_without_hope() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.scheduler = false;
    sim.gang("first", 4, 4);
    sim.settle();
    sim.gang("second", 5, 5);
    sim.settle();
    let stated = sim.message("second");
    assert!(stated.contains("capacity on 1 node is assigned to gang ns/first"), "{stated}");
    assert!(!stated.contains("would fit without"), "{stated}");
}

/// Eight members on nodes that hold four.
fn request() -> GangRequest {
    let places = vec![RolePlace::default(); 8];
    let role = Role { name: Arc::from(""), shape: world::shape(1), min: 8, places };
    GangRequest {
        key: ObjectKey::new("ns", "train"),
        roles: vec![role],
        topology_requests: TopologyRequests::default(),
    }
}

/// Makes the changes, all of them; `less`: one unit too little of the one at an index.
fn made(pool: &PoolView, changes: &[PoolChange], less: Option<usize>) -> PoolView {
    let mut pool = pool.clone();
    for (index, change) in changes.iter().enumerate() {
        let short = i64::from(less == Some(index));
        match change {
            PoolChange::Limit { resource, from, to } => {
                let entry = pool.left.iter_mut().find(|left| left.resource == *resource).unwrap();
                assert_eq!(entry.limit, *from);
                entry.left += to - from - short;
            }
            PoolChange::MaxNodes { from, to } => {
                assert_eq!(pool.max_nodes, *from);
                pool.max_nodes = to - u32::from(short > 0);
            }
            PoolChange::Ceiling { scope, from, to } => {
                let entry = pool.ceilings.iter_mut().find(|left| left.scope == *scope).unwrap();
                assert_eq!(entry.ceiling, *from);
                entry.left += to - from - u64::from(short > 0);
            }
            PoolChange::Price => pool.types[0].price = (short == 0).then_some(1),
            other => panic!("{other:?}"),
        }
    }
    pool
}

#[test]
fn the_change_of_a_pool_is_the_smallest_that_makes_an_offer() {
    let limit = |resource: &str, left: i64, limit: i64| Left { resource: resource.into(), left, limit };
    let ceiling = |scope| CeilingLeft { scope, left: 0, ceiling: 9 };
    type Case<'a> = (&'a dyn Fn(&mut PoolView), Code, &'a str);
    let cases: [Case<'_>; 7] = [
        (
            &|pool| pool.left.push(limit(GPU, 7, 64)),
            Code::LimitReached,
            "limit nvidia.com/gpu 64 → 65 for p5.48xlarge in NodePool gpu",
        ),
        (
            &|pool| pool.left.push(limit("cpu", 4_000, 100_000)),
            Code::LimitReached,
            "limit cpu 100 → 116 for p5.48xlarge in NodePool gpu",
        ),
        (
            &|pool| pool.ceilings.push(ceiling(CeilingScope::Pool)),
            Code::LimitReached,
            "spec.maxUsdPerHour $0.00 → $0.01 for p5.48xlarge in NodePool gpu",
        ),
        (
            &|pool| pool.ceilings.push(ceiling(CeilingScope::Cluster)),
            Code::LimitReached,
            "provisioner.maxUsdPerHour $0.00 → $0.01 for p5.48xlarge in NodePool gpu",
        ),
        (&|pool| pool.max_nodes = 1, Code::BatchTooLarge, "maxNodesPerBatch 1 → 2 for p5.48xlarge in NodePool gpu"),
        (&|pool| pool.types[0].price = None, Code::PriceUnknown, "a price for p5.48xlarge in NodePool gpu"),
        (
            &|pool| {
                pool.left.push(limit("nodes", 0, 16));
                pool.max_nodes = 1;
            },
            Code::BatchTooLarge,
            "maxNodesPerBatch 1 → 2 and limit nodes 16 → 18 for p5.48xlarge in NodePool gpu",
        ),
    ];
    for (spoil, code, text) in cases {
        let mut pool = pool();
        spoil(&mut pool);
        let offers = offers_for(&request(), &Levels::default(), std::slice::from_ref(&pool));
        assert!(offers.possible.is_empty(), "{text}");
        let unsold = &offers.unsold[0];
        assert_eq!((unsold.code(), unsold.help().to_string().as_str()), (code, text));
        let Help::Pool { changes, .. } = unsold.help() else { panic!("{unsold:?}") };
        let offered = |pool: PoolView| !offers_for(&request(), &Levels::default(), &[pool]).possible.is_empty();
        assert!(offered(made(&pool, &changes, None)), "{text}");
        for less in 0..changes.len() {
            assert!(!offered(made(&pool, &changes, Some(less))), "less of {} would do", changes[less]);
        }
    }
}

#[test]
fn the_change_of_a_pool_reaches_the_status() {
    let mut sim = Sim::new(&[]);
    let left = Left { resource: GPU.into(), left: 7, limit: 64 };
    sim.pools.push(PoolView { left: vec![left], ..pool() });
    sim.gang("train", 8, 8);
    sim.settle();
    let stated = sim.message("train");
    let expected = "p5.48xlarge of NodePool gpu: limit on nvidia.com/gpu: 8 needed, 7 left, would do with limit nvidia.com/gpu 64 → 65";
    assert!(stated.contains(expected), "{stated}");
}

#[test]
fn capacity_that_failed_lately_is_waited_for_and_no_change_is_named() {
    let until = world::at(90);
    let unsold = muster_core::reason::Unsold {
        pool: Arc::from("gpu"),
        instance_type: Some(Arc::from("p5")),
        count: Some(2),
        why: vec![Exclusion::NoCapacity { until }],
    };
    assert_eq!((unsold.code(), unsold.help()), (Code::InsufficientCapacity, Help::Wait(Wait::Until(until))));
}

#[test]
fn what_no_change_can_help_says_what_is_waited_for() {
    let waits = |why: &Why| {
        let helps = why.helps();
        !helps.is_empty() && helps.iter().all(|help| matches!(help, Help::Wait(_)))
    };
    assert!(waits(&Why::Collecting { seen: 1, needed: 3, size: 4, kept: false }));
    assert!(waits(&Why::ForeignGate { pod: Arc::from("pod"), gate: Arc::from("gate"), kept: true }));
    assert!(waits(&Why::Provisioning { batch: None, count: None }));
    assert!(waits(&Why::Booking { request: Arc::from("request") }));
    assert!(waits(&Why::Restarting));
    let refusal =
        muster_core::planner::plan::Refusal::BoundOutside { node: "gone".into(), inside: None, changes: Vec::new() };
    assert!(waits(&Why::refused(&refusal)));
}

#[test]
fn whatever_is_written_about_a_reason_begins_with_its_headline() {
    let mut sim = Sim::new(&[("a", 4)]);
    let node = "a-1".into();
    let refusal =
        muster_core::planner::plan::Refusal::BoundOutside { node, inside: None, changes: vec![Change::Share] };
    sim.gang("train", 8, 8);
    sim.settle();
    let text = || Arc::from("text");
    let all = [
        Why::Collecting { seen: 1, needed: 3, size: 4, kept: true },
        Why::SizeUnknown { seen: 1, kept: false },
        Why::ForeignGate { pod: text(), gate: text(), kept: false },
        Why::Volumes { pod: text(), awaits: text(), kept: true },
        Why::Suspended { kind: text(), name: text() },
        Why::refused(&refusal),
        Why::PlanRejected,
        Why::Excluded { refusal: refusal.clone() },
        Why::ProvisionedDoNotHold { refusal: refusal.clone() },
        Why::NoCapacity { stated: None, refusal: refusal.clone() },
        Why::NoCapacityForNew { refusal: Some(refusal) },
        Why::Booking { request: text() },
    ];
    for why in all {
        let (headline, whole) = (why.headline(), why.to_string());
        assert!(whole.starts_with(&headline), "{whole}");
        assert!(!headline.contains("would fit"), "{headline}");
    }
    assert!(sim.message("train").starts_with("needs capacity for 8 members"), "{}", sim.message("train"));
}

#[test]
fn every_code_is_read_back_from_its_word() {
    for code in Code::ALL {
        assert_eq!(Code::parse(code.as_str()), Some(code));
    }
    assert_eq!(Code::parse("Perhaps"), None);
}

#[test]
fn a_queue_of_gangs_that_ask_for_the_same_is_asked_about_once() {
    let mut sim = Sim::new(&[("n1", 4)]);
    let names: Vec<String> = (0..12).map(|number| format!("train{number}")).collect();
    for name in &names {
        sim.gang(name, 8, 8);
    }
    sim.settle();
    let stated: std::collections::BTreeSet<String> = names.iter().map(|name| sim.message(name)).collect();
    assert_eq!(stated.len(), 1, "{stated:?}");
    // Each is tried on the nodes as they are; whether it would fit on an empty cluster is the same for all.
    assert_eq!(sim.pass().plans, 13);
    sim.gang("other", 16, 16);
    sim.settle();
    assert_eq!(sim.pass().plans, 15, "another question");
}
