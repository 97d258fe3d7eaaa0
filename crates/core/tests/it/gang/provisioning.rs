//! A gang that needs nodes which are not there.

use std::sync::Arc;

use muster_core::gang::{BatchStage, Left, PoolView};
use muster_core::model::gang::{Phase, RankClaim};
use muster_core::model::node::{Taint, TaintEffect};
use muster_core::model::pod::{Operator, Requirement, SelectorTerm, Shape};

use super::sim::{PENDING, Sim, join, pool};
use crate::world::{self, key};

fn shop() -> Sim {
    let mut sim = Sim::new(&[]);
    sim.pools.push(pool());
    sim.gang("train", 8, 8);
    sim.settle();
    sim
}

#[test]
fn without_a_pool_a_gang_waits_and_says_so() {
    let mut sim = Sim::new(&[]);
    sim.gang("train", 8, 8);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.reason("train").as_str()), (Phase::Waiting, "NoPool"));
}

#[test]
fn a_gang_that_selects_one_zone_of_a_pool_with_several_gets_its_nodes_there() {
    let zone = || Arc::<str>::from("topology.kubernetes.io/zone");
    let selects: [fn(&mut Shape, Arc<str>); 2] = [
        |shape, zone| {
            shape.node_selector.insert(zone, "b".into());
        },
        |shape, zone| {
            let expressions = vec![Requirement { key: zone, operator: Operator::In, values: vec!["b".into()] }];
            shape.node_affinity = Some(vec![SelectorTerm { expressions, fields: Vec::new() }]);
        },
    ];
    for select in selects {
        let mut sim = Sim::new(&[]);
        sim.pools.push(PoolView { zones: vec!["a".into(), "b".into()], ..pool() });
        sim.gang("train", 8, 8);
        let mut shape = world::shape(1);
        select(&mut shape, zone());
        sim.pods.values_mut().for_each(|pod| pod.shape = Ok(Arc::new(shape.clone())));
        sim.settle();
        assert_eq!(sim.phase("train"), Phase::Provisioning, "{}", sim.message("train"));
        assert_eq!(sim.asked[0].zones, [Arc::from("b")]);
    }
}

#[test]
fn a_gang_that_no_pool_could_hold_is_unsatisfiable_until_one_can() {
    let mut sim = Sim::new(&[]);
    sim.pools.push(PoolView { max_nodes: 1, ..pool() });
    sim.gang("train", 8, 8);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Unsatisfiable);
    assert!(sim.provisioned.is_empty());
    sim.pools = vec![pool()];
    sim.settle();
    assert_eq!((sim.phase("train"), sim.provisioned.len()), (Phase::Provisioning, 1));
}

#[test]
fn nodes_are_provisioned_for_the_minimum_and_the_members_that_exist_and_for_no_others() {
    let mut sim = Sim::new(&[]);
    sim.pools.push(PoolView { left: vec![Left { resource: "nodes".into(), left: 64, limit: 64 }], ..pool() });
    sim.gang("train", 1000, 1);
    sim.recognised.get_mut(&key("train")).unwrap().min = Some(1);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Provisioning, "{}", sim.message("train"));
    assert_eq!(sim.asked[0].offers[0].count, 1, "one member exists, and one is enough");
}

#[test]
fn members_that_are_still_being_created_are_waited_for_before_nodes_are_provisioned() {
    let mut sim = Sim::new(&[]);
    sim.pools.push(pool());
    sim.gang("train", 8, 5);
    sim.recognised.get_mut(&key("train")).unwrap().min = Some(4);
    sim.pass();
    sim.pass();
    assert!(sim.provisioned.is_empty(), "the newest member has just come");
    for rank in 5..8 {
        sim.member("train", &format!("train-{rank}"), RankClaim::Rank(rank));
    }
    sim.settle();
    assert_eq!(sim.asked[0].offers[0].count, 2, "all eight exist by now");
}

#[test]
fn a_limit_counts_what_the_hardware_has_and_not_what_pods_may_use_of_it() {
    for (limit, provisioned) in [(200, 1), (199, 0)] {
        let mut limited = pool();
        // Two nodes hold the gang; each has 100 CPUs, of which pods may use fewer.
        limited.types[0].capacity.set("cpu", 100_000);
        assert!(limited.types[0].node.allocatable.get("cpu") < 100_000);
        let limit = limit * 1000;
        limited.left.push(Left { resource: "cpu".into(), left: limit, limit });
        let mut sim = Sim::new(&[]);
        sim.pools.push(limited);
        sim.gang("train", 8, 8);
        sim.settle();
        assert_eq!(sim.provisioned.len(), provisioned, "{limit}");
    }
}

#[test]
fn a_blocked_pool_is_asked_behind_all_others_whatever_its_weight_and_alone_if_there_is_no_other() {
    let blocked = PoolView { name: Arc::from("blocked"), blocked: true, weight: 9, ..pool() };
    for (others, asked) in [(vec![pool()], vec!["gpu", "blocked"]), (Vec::new(), vec!["blocked"])] {
        let mut sim = Sim::new(&[]);
        sim.pools.push(blocked.clone());
        sim.pools.extend(others);
        sim.gang("train", 8, 8);
        sim.settle();
        assert_eq!(sim.phase("train"), Phase::Provisioning);
        assert_eq!(sim.asked[0].offers.iter().map(|offer| &*offer.pool).collect::<Vec<_>>(), asked);
    }
}

#[test]
fn nodes_are_provisioned_once_and_used_when_they_are_ready() {
    let mut sim = shop();
    assert_eq!(sim.phase("train"), Phase::Provisioning);
    assert_eq!(sim.provisioned, [muster_core::gang::batch_name(&sim.state("train").uid, 1)]);
    join(&mut sim, &["n1", "n2"]);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.provisioned.len(), sim.bound().len()), (Phase::Bound, 1, 8));
}

#[test]
fn a_batch_that_this_view_does_not_show_yet_is_not_provisioned_again() {
    let mut sim = shop();
    sim.batches.clear();
    sim.settle();
    assert_eq!(sim.provisioned.len(), 1);
    // Gone for good: the next round.
    sim.wait(60);
    sim.settle();
    assert_eq!(sim.provisioned.len(), 2);
}

#[test]
fn a_member_made_again_during_the_purchase_provisions_nothing_more() {
    let mut sim = shop();
    sim.pods.remove("train-3");
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Collecting);
    sim.member("train", "train-3", RankClaim::Rank(3));
    sim.settle();
    assert_eq!((sim.phase("train"), sim.provisioned.len()), (Phase::Provisioning, 1));
    join(&mut sim, &["n1", "n2"]);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
}

#[test]
fn nodes_that_free_up_during_a_back_off_are_used_and_the_batch_is_given_up() {
    let mut sim = shop();
    let batch = sim.provisioned[0].clone();
    sim.stage(&batch, BatchStage::BackingOff);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.reason("train").as_str()), (Phase::Provisioning, "InsufficientCapacity"));
    sim.nodes.insert("old".to_owned(), world::node("old", 8));
    sim.settle();
    assert_eq!((sim.phase("train"), &sim.abandoned), (Phase::Bound, &vec![batch]));
    assert_eq!(sim.provisioned.len(), 1);
}

#[test]
fn provisioned_nodes_that_do_not_hold_the_gang_are_terminated_after_a_grace_and_the_next_round_pauses() {
    let mut sim = shop();
    join(&mut sim, &["n1"]);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.reason("train").as_str()), (Phase::Provisioning, "DoesNotFit"));
    assert!(sim.abandoned.is_empty(), "a fresh node may need a moment");
    sim.wait(60);
    sim.step();
    assert_eq!((sim.phase("train"), &sim.abandoned), (Phase::Waiting, &sim.provisioned.clone()));
    sim.nodes.clear();
    sim.settle();
    assert_eq!(sim.provisioned.len(), 1, "a pause comes before the next round");
    sim.wait(30);
    sim.settle();
    assert_eq!((sim.phase("train"), sim.provisioned.len()), (Phase::Provisioning, 2));
}

#[test]
fn nothing_is_provisioned_beside_a_ready_batch_whose_abandoning_was_lost() {
    let mut sim = shop();
    join(&mut sim, &["n1"]);
    sim.wait(61);
    sim.step();
    let batch = sim.provisioned[0].clone();
    sim.stage(&batch, BatchStage::Ready);
    sim.wait(31);
    sim.step();
    assert_eq!((sim.provisioned.len(), sim.abandoned.len()), (1, 2));
}

#[test]
fn a_gang_with_a_booking_provisions_nothing_and_uses_the_booked_nodes() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.pools.push(pool());
    sim.gang("train", 4, 4);
    let mut booked = world::recognised("train", Some(4), None);
    booked.booking = Some(Arc::from("request"));
    sim.recognised.insert(key("train"), booked);
    let booking = muster_core::model::snapshot::Snapshot::booking_key("ns", "request");
    sim.bookings.insert(key("request"), Arc::from("request-uid"));
    sim.whole.push(("n1".into(), booking));
    let taint = Taint { key: Arc::from(PENDING), value: Arc::from("request-uid"), effect: TaintEffect::NoSchedule };
    sim.nodes.get_mut("n1").unwrap().taints.push(taint);
    sim.gang("other", 4, 4);
    sim.nodes.get_mut("n1").unwrap().ready = false;
    sim.step();
    sim.step();
    assert_eq!((sim.phase("train"), sim.reason("train").as_str()), (Phase::Waiting, "Booking"));
    sim.nodes.get_mut("n1").unwrap().ready = true;
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
    assert_eq!((sim.phase("other"), sim.provisioned.len()), (Phase::Provisioning, 1));
}

#[test]
fn a_constraint_that_is_not_modelled_provisions_nothing() {
    let mut sim = Sim::new(&[]);
    sim.pools.push(pool());
    sim.gang("train", 2, 2);
    for pod in sim.pods.values_mut() {
        let mut shape = world::shape(1);
        shape.unsupported.push(Arc::from("resourceClaims"));
        pod.shape = Ok(Arc::new(shape));
    }
    sim.settle();
    assert_eq!((sim.phase("train"), sim.provisioned.len()), (Phase::Unsatisfiable, 0));
}

#[test]
fn a_running_gang_provisions_only_for_the_members_that_are_missing() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.pools.push(PoolView { max_nodes: 1, ..pool() });
    sim.gang("train", 8, 8);
    for rank in 0..4 {
        sim.pods.get_mut(&format!("train-{rank}")).unwrap().node = Some("n1".into());
    }
    sim.settle();
    assert_eq!((sim.phase("train"), sim.provisioned.len()), (Phase::Provisioning, 1));
}
