//! What a snapshot says of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::model::gang::{Membership, Pod, RankClaim};
use muster_core::model::names::{NodeName, PodUid};
use muster_core::model::pods::Pods;
use muster_core::ordinary::Crowd;
use proptest::prelude::*;

use crate::world::{member, node, pod, shape, snapshot};

#[test]
fn whoever_runs_on_a_node_occupies_it_member_or_not_but_no_daemon_and_nobody_who_ended() {
    let on = |node: &str, pod: Pod| Pod { node: Some(NodeName::from(node)), ..pod };
    let single = |name: &str| pod(name, &shape(0));
    let pods = [
        on("n1", member("of-gang", "train", RankClaim::Missing)),
        on("n1", single("of-nobody")),
        on("n2", Pod { deleting: true, ..single("leaves") }),
        on("n1", Pod { daemon: true, ..single("of-daemon-set") }),
        on("n1", Pod { ended: true, ..single("ended") }),
        on("gone", single("on-a-node-that-is-gone")),
        on("other", single("elsewhere")),
        single("unbound"),
    ];
    let snapshot = snapshot(&["n1", "n2", "other"].map(|name| node(name, 8)), &pods, &[], &[]);
    let nodes = BTreeSet::from(["n1", "n2", "gone"]);
    let mut found: Vec<&str> = snapshot.occupants(&nodes).map(|pod| &*pod.key.name).collect();
    found.sort_unstable();
    assert_eq!(found, ["leaves", "of-gang", "of-nobody"]);
}

/// A pod with what decides whether it waits or stands: its UID, its name, since an API server restored from backup may show another one
/// under a UID, its membership, the nodes that it is on, nominated for and pinned to, and how far it is.
fn drawn() -> impl Strategy<Value = Pod> {
    let node = || (0..3_u8).prop_map(|number| (number > 0).then(|| NodeName::from(format!("n{number}"))));
    (0..6_u8, 0..3_u8, 0..3_u8, node(), node(), node(), any::<bool>(), any::<bool>()).prop_map(
        |(uid, name, membership, bound, nominated, pinned, ended, deleting)| Pod {
            uid: PodUid::from(format!("uid-{uid}")),
            membership: match membership {
                0 => Membership::Single,
                1 => Membership::Unknown,
                _ => member("m", "train", RankClaim::Missing).membership,
            },
            node: bound,
            nominated,
            pinned,
            ended,
            deleting,
            ..pod(&format!("p{name}"), &shape(0))
        },
    )
}

proptest! {
    #[test]
    fn pods_that_wait_and_pods_on_nodes_are_those_that_a_look_at_every_pod_finds(
        changes in proptest::collection::vec((drawn(), any::<bool>()), 0..40)
    ) {
        let (mut pods, mut all) = (Pods::default(), BTreeMap::new());
        for (pod, stays) in changes {
            let pod = Arc::new(pod);
            let (before, waited) = (pods.unplaced_now(), pods.unplaced().cloned().collect::<Vec<_>>());
            if stays {
                prop_assert_eq!(pods.insert(pod.uid.clone(), Arc::clone(&pod)), all.insert(pod.uid.clone(), pod));
            } else {
                prop_assert_eq!(pods.remove(&pod.uid), all.remove(&pod.uid));
            }
            let of = |is: fn(&Pod) -> bool| {
                let mut found: Vec<Arc<Pod>> = all.values().filter(|pod| is(pod)).cloned().collect();
                found.sort_by_key(|pod| (pod.key.clone(), pod.uid.clone()));
                found
            };
            let unplaced = of(|pod| {
                pod.membership == Membership::Single && pod.node.is_none() && !pod.ended && !pod.deleting
            });
            prop_assert_eq!(pods.unplaced().cloned().collect::<Vec<_>>(), unplaced.clone());
            let same = waited.len() == unplaced.len() && waited.iter().zip(&unplaced).all(|(one, other)| Arc::ptr_eq(one, other));
            prop_assert_eq!(before.are_those_of(&pods), same);
            let unknown = of(|pod| pod.membership == Membership::Unknown && !pod.ended);
            prop_assert_eq!(pods.unknown().cloned().collect::<Vec<_>>(), unknown);
            let sent = of(|pod| {
                let sent = pod.nominated.is_some() || pod.pinned.is_some();
                sent && pod.node.is_none() && !pod.ended && !pod.deleting
            });
            prop_assert_eq!(pods.sent().cloned().collect::<Vec<_>>(), sent);
            let mut standing = of(|pod| pod.node.is_some() && !pod.ended);
            standing.sort_by_key(|pod| (pod.node.clone(), pod.uid.clone()));
            prop_assert_eq!(pods.standing().cloned().collect::<Vec<_>>(), standing.clone());
            for node in ["n", "n1", "n2", "n3"] {
                let here: Vec<_> = standing.iter().filter(|pod| pod.node.as_ref().is_some_and(|of| of.as_str() == node)).collect();
                prop_assert_eq!(pods.standing_on(node).collect::<Vec<_>>(), here);
            }
            let names = |pods: Vec<Arc<Pod>>| pods.into_iter().map(|pod| pod.uid.clone()).collect::<BTreeSet<_>>();
            let placed = of(|pod| pod.occupied_node().is_some());
            prop_assert_eq!(pods.placed().count(), placed.len());
            prop_assert_eq!(names(pods.placed().cloned().collect()), names(placed));
        }
    }
}

#[test]
fn a_crowd_is_another_one_whenever_somebody_comes_or_goes_and_the_same_whatever_else_changes() {
    let waits = |name: &str| pod(name, &shape(0));
    let (mut pods, mut crowd) = (Pods::default(), Crowd::default());
    let put = |pods: &mut Pods, pod: Pod| pods.insert(pod.uid.clone(), Arc::new(pod));
    let nobody = crowd.look(&pods);
    assert_eq!(nobody.1, 0);
    put(&mut pods, waits("a"));
    let one = crowd.look(&pods);
    assert_eq!(one.1, 1);
    put(&mut pods, Pod { priority: 7, ..waits("a") });
    assert_eq!(crowd.look(&pods), one, "the same pod waits");
    put(&mut pods, Pod { node: Some("n".into()), ..waits("runs") });
    put(&mut pods, Pod { gated: true, ..waits("gated") });
    assert_eq!(crowd.look(&pods), one, "nobody else does");
    put(&mut pods, waits("b"));
    let two = crowd.look(&pods);
    assert_eq!(two.1, 2);
    pods.remove(&waits("a").uid);
    let other = crowd.look(&pods);
    assert_eq!(other.1, 1);
    assert!(one.0 != two.0 && two.0 != other.0 && other.0 != one.0, "{one:?}, {two:?}, {other:?}");
    put(&mut pods, Pod { nominated: Some("n".into()), ..waits("b") });
    assert_eq!(crowd.look(&pods), nobody);
}
