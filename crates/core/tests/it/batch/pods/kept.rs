//! Whom an empty node is kept for, and whom not; and what is kept since nobody saw how it came to look empty.

use muster_core::batch::Kept;
use muster_core::model::gang::{Foreign, Membership};

use super::*;

/// Whether a node that has been empty for its time is tainted although this pod waits.
fn goes_beside(waits: Pod) -> bool {
    let mut setup = empty_beside(waits);
    setup.now += 30;
    setup.step();
    setup.is_tainted("n-i-1")
}

#[test]
fn an_empty_node_stays_for_none_but_a_pod_that_kube_scheduler_could_bind_to_it() {
    let waits = || waits_since(NOW);
    assert!(!goes_beside(waits()));
    assert!(
        !goes_beside(Pod { ours: false, foreign: Foreign::Provisioned, ..waits() }),
        "a profile that is provisioned for"
    );
    assert!(goes_beside(Pod { ours: false, foreign: Foreign::Other, ..waits() }), "a profile that is nothing to us");
    assert!(goes_beside(Pod { daemon: true, ..waits() }), "of a DaemonSet");
    assert!(goes_beside(Pod { ended: true, ..waits() }), "it has ended");
    assert!(goes_beside(Pod { deleting: true, ..waits() }), "it is being deleted");
    assert!(goes_beside(Pod { membership: Membership::Unknown, ..waits() }), "perhaps a member");
    assert!(goes_beside(Pod { foreign_gate: Some("example.com/gate".into()), ..waits() }), "held by somebody");
    assert!(goes_beside(Pod { node: Some("elsewhere".into()), ..waits() }), "it has a node");
}

#[test]
fn an_empty_node_stays_for_a_live_pod_that_is_nominated_or_pinned_to_it() {
    let large = || Pod { shape: world::pod("large", &world::shape(9)).shape, ..waits_since(NOW) };
    assert!(goes_beside(large()), "it would not fit");
    let here = || Some("n-i-1".into());
    assert!(!goes_beside(Pod { nominated: here(), ..large() }));
    assert!(!goes_beside(Pod { pinned: here(), ..large() }));
    assert!(goes_beside(Pod { nominated: Some("n-i-2".into()), ..large() }));
    assert!(goes_beside(Pod { nominated: here(), ended: true, ..large() }));
}

/// Batches of this many Ready instances, the first `missing` of which have no Node while the next `empty` have no pod.
fn kept(batches: &[(&str, usize, usize, usize)], lost: bool) -> Option<Kept> {
    let (mut all, mut nodes, mut pods) = (BTreeMap::new(), Vec::new(), Vec::new());
    for (pool, count, missing, empty) in batches {
        let ids: Vec<String> = (0..*count).map(|number| format!("{pool}-{number:02}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let mut setup = Setup::serving(&ids);
        setup.status.node_pool = Some((*pool).to_owned());
        if lost {
            for one in &mut setup.status.instances {
                let cause = LossCause::Missing;
                one.loss = Some(Loss { cause, message: String::new(), noticed: at(0), act_at: at(0), deadline: None });
            }
        }
        nodes.extend(setup.nodes.drain(*missing..));
        pods.extend(setup.pods.drain(missing + empty..));
        let batch = Batch { status: setup.status.clone(), ..draw::batch(pool, setup.spec(), at(0)) };
        all.insert((*pool).to_owned(), Arc::new(batch));
    }
    witness(&all, &world::snapshot(&nodes, &pods, &[], &[]), &mut BTreeMap::new())
}

#[test]
fn what_looks_empty_or_is_missing_is_counted_over_all_batches_and_its_pools_are_named() {
    let kept_of = |batches: &[(&str, usize, usize, usize)]| kept(batches, false);
    assert_eq!(kept_of(&[("a", 30, 3, 0), ("b", 30, 3, 0)]), None, "six of sixty are trusted");
    let pools = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let missing = Kept { empty: 0, missing: 8, all: 70, pools: pools(&["a", "b"]) };
    assert_eq!(kept_of(&[("a", 30, 4, 0), ("b", 30, 4, 0), ("c", 10, 0, 0)]), Some(missing));
    let empty = Kept { empty: 8, missing: 0, all: 70, pools: pools(&["a", "b"]) };
    assert_eq!(kept_of(&[("a", 30, 0, 4), ("b", 30, 0, 4), ("c", 10, 0, 0)]), Some(empty));
    let both = kept_of(&[("a", 30, 1, 3), ("b", 30, 2, 2)]).unwrap();
    assert_eq!((both.missing, both.empty, both.all), (3, 5, 60));
    assert_eq!(
        both.to_string(),
        "of 60 nodes for pods of no gang 5 look empty and 3 are missing, and nobody saw their pods or Nodes go: more than the 6 that are \
         trusted at once. They are kept; delete their NodeBatches to let go of those that are empty"
    );
}

#[test]
fn of_instances_that_are_known_to_be_lost_it_is_known_how_their_nodes_went() {
    assert_eq!(kept(&[("a", 30, 30, 0)], true), None);
    assert!(kept(&[("a", 30, 30, 0)], false).is_some());
}

#[test]
fn a_pod_that_comes_to_wait_while_an_empty_node_is_about_to_go_keeps_it_if_it_fits() {
    for (came, keeps) in [
        (Some(waits_since(NOW + 31)), true),
        (Some(Pod { daemon: true, ..waits_since(NOW + 31) }), false),
        (None, false),
    ] {
        let mut setup = Setup::serving(&["i-1"]);
        setup.pods.clear();
        setup.step();
        setup.now += 30;
        setup.step();
        assert!(setup.is_tainted("n-i-1"));
        setup.step();
        setup.pods.extend(came);
        setup.now += 10;
        let looks = setup.step().looks;
        assert_eq!((setup.is_tainted("n-i-1"), looks.is_empty()), (!keeps, keeps));
    }
}

#[test]
fn a_pod_that_kube_scheduler_has_refused_for_long_does_not_keep_a_node_that_is_about_to_go() {
    let mut setup = Setup::serving(&["i-1"]);
    setup.pods.clear();
    setup.status.instances[0].empty_since = Some(at(NOW));
    setup.now += 1_000;
    setup.step();
    assert!(setup.is_tainted("n-i-1"));
    setup.pods.push(waits_since(NOW));
    setup.step();
    assert!(setup.is_tainted("n-i-1"));
}

/// A node that was tainted a moment ago since it has been empty for this long.
fn about_to_go(empty: i64) -> Setup {
    let mut setup = Setup::serving(&["i-1"]);
    setup.pods.clear();
    setup.status.instances[0].empty_since = Some(at(NOW - empty));
    setup.step();
    assert!(setup.is_tainted("n-i-1"));
    setup.step();
    setup
}

#[test]
fn pods_that_come_one_after_the_other_and_are_bound_elsewhere_keep_no_empty_node() {
    for empty in [30, 1_000] {
        let mut setup = about_to_go(empty);
        for second in 1..=15 {
            setup.now += 1;
            setup.pods = vec![waits_since(setup.now)];
            let looks = setup.step().looks;
            assert!(setup.is_tainted("n-i-1"), "after {second} seconds");
            // Ten seconds, and five more in which one has only just come.
            assert_eq!(looks.is_empty(), second < 15, "after {second} seconds");
        }
    }
}

#[test]
fn a_pod_that_comes_at_the_last_moment_keeps_a_node_once_kube_scheduler_has_refused_it_all_others() {
    for (empty, unscheduled) in [(30, false), (30, true), (1_000, false), (1_000, true)] {
        let mut setup = about_to_go(empty);
        setup.now += 9;
        setup.pods = vec![waits_since(setup.now)];
        setup.now += 1;
        assert!(setup.step().looks.is_empty() && setup.is_tainted("n-i-1"), "it may have a place elsewhere");
        if unscheduled {
            setup.pods[0].unscheduled = Some(("Unschedulable".into(), "no node".into()));
        } else {
            setup.now += 2;
        }
        setup.step();
        assert!(!setup.is_tainted("n-i-1"), "after {empty} seconds");
        // Before kube-scheduler tries it again.
        for _ in 0..20 {
            setup.now += 1;
            setup.step();
            assert!(!setup.is_tainted("n-i-1"), "after {empty} seconds");
        }
        setup.pods[0].node = Some("n-i-1".into());
        setup.step();
        assert_eq!(setup.status.instances[0].empty_since, None);
    }
}

#[test]
fn a_refusal_counts_for_a_node_that_has_been_empty_for_long_only_if_it_may_have_been_for_the_taint() {
    let stays = |came: i64| {
        let mut setup = about_to_go(1_000);
        setup.now += 1;
        let unscheduled = Some(("Unschedulable".into(), "no node".into()));
        setup.pods = vec![Pod { unscheduled, ..waits_since(NOW + came) }];
        setup.step();
        !setup.is_tainted("n-i-1")
    };
    assert!(stays(1) && stays(0) && stays(-3), "it came with the taint, or right before it");
    assert!(!stays(-4), "it was refused while the node had no taint");
}
