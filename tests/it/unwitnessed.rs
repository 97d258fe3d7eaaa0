//! Nodes that look empty because of what a list did not have, by the store that the watches feed: three hundred full nodes, and none of
//! them is let go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use muster::cluster::{Cluster, Store, StoreOptions};
use muster_core::batch::{Kept, Memory, witness};
use muster_core::model::batch::{Batch, BatchMember, BatchPhase, BatchSpec, BatchStatus, MemberState, Owner};
use muster_core::model::names::InstanceId;
use serde_json::json;

const NODES: usize = 300;

/// A cluster as this process has seen it.
struct Watched {
    store: Store,
    cluster: Cluster,
    batches: BTreeMap<String, Arc<Batch>>,
    memory: BTreeMap<String, Memory>,
}

fn node_name(number: usize) -> String {
    format!("n-{number}")
}

fn uid(number: usize) -> String {
    format!("u-{number}")
}

fn batch() -> Batch {
    let instance = |number| BatchMember {
        node: Some(node_name(number)),
        ..BatchMember::new(InstanceId::from(format!("i-{number}").as_str()), 1, MemberState::Ready)
    };
    let status = BatchStatus {
        phase: BatchPhase::InUse,
        count: u32::try_from(NODES).unwrap(),
        node_pool: Some("general".to_owned()),
        instances: (0..NODES).map(instance).collect(),
        ..BatchStatus::default()
    };
    Batch {
        name: "b".to_owned(),
        uid: "b".to_owned(),
        created: None,
        deleting: false,
        spec: Arc::new(BatchSpec { partial: true, owner: Owner::Pods, ..BatchSpec::default() }),
        status,
        newer: None,
    }
}

impl Watched {
    /// Of a process that has just started.
    fn new() -> Self {
        let options = StoreOptions {
            scheduler_names: vec!["muster".to_owned()],
            provisioner_scheduler_names: vec!["muster".to_owned()],
            accelerators: Vec::new(),
            max_age: Duration::from_secs(3600),
        };
        let (store, cluster) = Store::new(options, &[], &[]);
        let batches = BTreeMap::from([("b".to_owned(), Arc::new(batch()))]);
        Self { store, cluster, batches, memory: BTreeMap::new() }
    }

    fn list_nodes(&mut self, which: impl Iterator<Item = usize>) {
        let names: BTreeSet<String> = which.map(node_name).collect();
        for name in &names {
            let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": null}]);
            let allocatable = json!({"cpu": "8", "memory": "16Gi", "pods": "110"});
            let node = json!({"metadata": {"name": name}, "status": {"allocatable": allocatable, "conditions": ready}});
            self.store.apply_node(&serde_json::from_value::<Node>(node).unwrap());
        }
        self.store.retain_nodes(&names);
    }

    /// Each pod runs on the node of its number.
    fn list_pods(&mut self, which: impl Iterator<Item = usize>) {
        let which: Vec<usize> = which.collect();
        for number in &which {
            let spec = json!({"schedulerName": "muster", "nodeName": node_name(*number), "containers": []});
            let metadata = json!({"name": uid(*number), "namespace": "web", "uid": uid(*number)});
            let pod = json!({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}});
            self.store.apply_pod(serde_json::from_value::<Pod>(pod).unwrap());
        }
        self.store.retain_pods(&which.iter().map(|number| uid(*number)).collect());
    }

    fn look(&mut self) -> Option<Kept> {
        self.store.publish();
        witness(&self.batches, &self.cluster.load().snapshot, &mut self.memory)
    }

    /// All of it was seen, and nothing is held.
    fn full() -> Self {
        let mut watched = Self::new();
        watched.list_nodes(0..NODES);
        watched.list_pods(0..NODES);
        assert_eq!(watched.look(), None);
        watched
    }
}

fn held(empty: usize, missing: usize) -> Option<Kept> {
    Some(Kept { empty, missing, all: NODES, pools: BTreeSet::from(["general".to_owned()]) })
}

#[test]
fn nodes_that_a_list_without_their_pods_makes_look_empty_are_kept_until_it_is_whole_again() {
    let mut watched = Watched::full();
    watched.list_pods(0..0);
    assert_eq!(watched.look(), held(NODES, 0), "the list came back empty");
    watched.list_pods(0..NODES);
    assert_eq!(watched.look(), None);
    // One of ten minutes ago, or of yesterday: it lacks those that came since.
    watched.list_pods(0..NODES / 2);
    assert_eq!(watched.look(), held(NODES / 2, 0));
    assert!(watched.memory["b"].keeps_unwitnessed);
}

#[test]
fn nodes_whose_pods_were_seen_to_go_are_let_go_however_many_they_are() {
    let mut watched = Watched::full();
    for number in 0..NODES {
        watched.store.delete_pod(&uid(number));
    }
    assert_eq!(watched.look(), None);
    // Of a few that a list does not have any more the same is taken as true.
    let mut watched = Watched::full();
    watched.list_pods(30..NODES);
    assert_eq!(watched.look(), None, "a tenth");
    watched.list_pods(31..NODES);
    assert_eq!(watched.look(), held(31, 0));
}

#[test]
fn after_a_restart_on_a_list_without_pods_every_node_is_kept() {
    let mut watched = Watched::new();
    watched.list_nodes(0..NODES);
    watched.list_pods(0..0);
    assert_eq!(watched.look(), held(NODES, 0));
    watched.list_pods(0..NODES);
    assert_eq!(watched.look(), None);
}

#[test]
fn nodes_that_a_list_does_not_have_are_kept_and_those_that_were_seen_to_go_are_not() {
    let mut watched = Watched::full();
    watched.list_nodes(0..0);
    assert_eq!(watched.look(), held(0, NODES));
    watched.list_nodes(0..NODES);
    assert_eq!(watched.look(), None);
    for number in 0..NODES {
        watched.store.delete_node(&node_name(number));
    }
    assert_eq!(watched.look(), None);
}
