//! Builders with defaults for snapshots: nodes, pods, gangs.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;
use jiff::{SignedDuration, Timestamp};
use muster_core::model::attached::Attached;
use muster_core::model::gang::{
    Foreign, Gang, GangPlace, Membership, Phase, Pod, RankClaim, RawTopologyRequests, Recognised, Source,
};
use muster_core::model::names::{NodeName, ObjectKey, PodUid};
use muster_core::model::node::{Node, Usage};
use muster_core::model::pod::Shape;
use muster_core::model::resources::Resources;
use muster_core::model::snapshot::{NodeEntry, Snapshot};

pub(crate) const GPU: &str = "nvidia.com/gpu";

/// Seconds after a fixed moment.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap() + SignedDuration::from_secs(seconds)
}

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

/// A ready node in zone a with accelerators, 10 cores and capacity for 110 pods.
pub(crate) fn node(name: &str, gpus: i64) -> Node {
    Node {
        name: NodeName::from(name),
        labels: BTreeMap::from([(Arc::from("topology.kubernetes.io/zone"), Arc::from("a"))]),
        taints: Vec::new(),
        allocatable: Resources::from_iter([(GPU, gpus), ("cpu", 10_000), ("pods", 110)]),
        unschedulable: false,
        held: false,
        ready: true,
        deleting: false,
        memory: None,
        provider_id: None,
        created: None,
    }
}

/// A shape that requests accelerators and a core each.
pub(crate) fn shape(gpus: i64) -> Shape {
    Shape { requests: Resources::from_iter([(GPU, gpus), ("cpu", 1_000), ("pods", 1)]), ..Shape::default() }
}

/// A pod of no gang that is not bound.
pub(crate) fn pod(name: &str, shape: &Shape) -> Pod {
    Pod {
        uid: PodUid::from(format!("uid-{name}")),
        key: key(name),
        held: Arc::new(Usage { requested: shape.requests.clone(), ports: shape.ports.clone(), ..Usage::default() }),
        shape: Ok(Arc::new(shape.clone())),
        claims: Arc::default(),
        neighbour: Arc::default(),
        node: None,
        nominated: None,
        pinned: None,
        remade: false,
        ended: false,
        succeeded: false,
        running: false,
        deleting: false,
        gated: false,
        foreign_gate: None,
        plan_epoch: None,
        planned_node: None,
        requeued: None,
        ours: true,
        foreign: Foreign::Other,
        daemon: false,
        critical: false,
        not_admitted: None,
        priority: 0,
        reported: None,
        sentence: None,
        created: Some(at(0)),
        unscheduled: None,
        membership: Membership::Single,
    }
}

/// A gated member.
pub(crate) fn member(name: &str, gang: &str, rank: RankClaim) -> Pod {
    let membership = Membership::Member { gang: key(gang), role: Arc::from(""), rank };
    Pod { membership, gated: true, ..pod(name, &shape(1)) }
}

pub(crate) fn place(rank: u32, pod: Option<&str>, node: &str) -> GangPlace {
    GangPlace {
        role: Arc::from(""),
        rank,
        uid: pod.map(|pod| PodUid::from(format!("uid-{pod}"))),
        pod: pod.map(Arc::from),
        node: NodeName::from(node),
        done: false,
    }
}

/// A Gang object at epoch 1 whose minimum is all of its places.
pub(crate) fn gang(name: &str, phase: Phase, places: Vec<GangPlace>) -> Gang {
    Gang {
        key: key(name),
        uid: Arc::from(format!("{name}-uid")),
        resource_version: Arc::from("1"),
        phase: Some(phase),
        epoch: u64::from(!places.is_empty()),
        round: 0,
        since: Some(at(0)),
        minimum: u32::try_from(places.len()).unwrap(),
        minimums: BTreeMap::new(),
        running: None,
        places,
        shape: None,
        levels: Vec::new(),
        held: None,
        batch: None,
        waiting: None,
        notes: BTreeMap::new(),
        members: Arc::from(""),
        created: Some(at(0)),
        deleting: false,
    }
}

pub(crate) fn recognised(name: &str, size: Option<u32>, min: Option<u32>) -> Recognised {
    Recognised {
        key: key(name),
        source: Source { convention: "annotations", identity: Arc::from(name), owner: None },
        size,
        min,
        roles: Vec::new(),
        topology_requests: RawTopologyRequests::default(),
        invalid: None,
        booking: None,
        restart_would_fail: None,
        conflict: None,
    }
}

/// A synced snapshot with everything that follows from its objects: members, usage, assignments.
pub(crate) fn snapshot(nodes: &[Node], pods: &[Pod], gangs: &[Gang], recognised: &[Recognised]) -> Snapshot {
    let mut members: OrdMap<ObjectKey, OrdMap<Arc<str>, PodUid>> = OrdMap::new();
    for pod in pods {
        if let Some(gang) = pod.membership.gang() {
            let name = Arc::from(format!("{}/{}", pod.key.name, pod.uid));
            members.entry(gang.clone()).or_default().insert(name, pod.uid.clone());
        }
    }
    let recognised = recognised.iter().filter(|one| members.contains_key(&one.key));
    let recognised = recognised.map(|one| (one.key.clone(), Arc::new(one.clone()))).collect();
    let entry = |node: &Node| {
        let (mut usage, mut attached) = (Usage::default(), Attached::default());
        for pod in pods {
            let nominated = pod.nominated.as_ref().filter(|_| pod.membership == Membership::Single && pod.is_live());
            if !pod.ended && pod.node.as_ref().or(nominated) == Some(&node.name) {
                usage.requested.add(&pod.held.requested);
                attached.come(pod, &pod.held.requested, &mut usage.requested);
                usage.ports.extend(pod.held.ports.iter().cloned());
            }
        }
        (node.name.clone(), Arc::new(NodeEntry { node: Arc::new(node.clone()), usage: Arc::new(usage) }))
    };
    let mut snapshot = Snapshot {
        version: 1,
        synced: true,
        nodes: nodes.iter().map(entry).collect(),
        pods: pods.iter().map(|pod| (pod.uid.clone(), Arc::new(pod.clone()))).collect(),
        members,
        recognised,
        gangs: gangs.iter().map(|gang| (gang.key.clone(), Arc::new(gang.clone()))).collect(),
        accelerators: vec![Arc::from(GPU)],
        ..Snapshot::default()
    };
    snapshot.assignments = snapshot.plan_assignments();
    snapshot
}
