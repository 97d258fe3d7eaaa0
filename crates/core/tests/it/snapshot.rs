//! What a snapshot says of the cluster.

use std::collections::BTreeSet;

use muster_core::model::gang::{Pod, RankClaim};
use muster_core::model::names::NodeName;

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
