//! Pods that must not stand beside a gang's members: required anti-affinity by hostname, of either side.
//!
//! It is a matter of labels, which a [`Shape`](crate::model::pod::Shape) does not have: two gangs that ask for the same may differ
//! here. So it is counted for each gang, on the few nodes where it matters.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::gang::{Gang, GangPlace, Membership, Phase, Pod};
use crate::model::names::{NodeName, ObjectKey, PodUid};
use crate::model::snapshot::Snapshot;

/// A pod that was assigned capacity on a node.
#[derive(Clone, Debug)]
struct Assigned {
    gang: ObjectKey,
    node: NodeName,
    pod: Arc<Pod>,
}

/// Pods on one node that must not stand beside a member of the gang.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Met {
    /// Pods of others, on the node or assigned capacity there.
    pub(super) others: u32,
    /// Members of the gang that are bound there.
    pub(super) own: u32,
}

/// What stands where, as far as it was asked for in this pass: a queue of gangs that keep apart must not look at every pod each.
#[derive(Debug, Default)]
pub(super) struct Apart {
    /// Pods on nodes, by namespace.
    placed: OnceCell<ByNamespace<Arc<Pod>>>,
    /// Pods that persisted plans assign capacity to, by namespace.
    assigned: OnceCell<ByNamespace<Assigned>>,
    /// Pods on nodes that keep others away.
    keepers: OnceCell<Vec<Arc<Pod>>>,
    /// Those that persisted plans assign capacity to.
    assigned_keepers: OnceCell<Vec<Assigned>>,
    /// All that were assigned capacity in this pass.
    here: Vec<Assigned>,
}

type ByNamespace<T> = BTreeMap<Arc<str>, Vec<T>>;

impl Apart {
    /// A member is placed in this pass.
    pub(super) fn assign(&mut self, gang: &ObjectKey, node: &NodeName, pod: Option<&Arc<Pod>>) {
        let assigned = pod.map(|pod| Assigned { gang: gang.clone(), node: node.clone(), pod: Arc::clone(pod) });
        self.here.extend(assigned);
    }

    /// Nodes with pods that must not stand beside a member of the gang. Members of several roles are taken together: a
    /// node that one of them must keep off is none for the others either.
    pub(super) fn met(&self, snapshot: &Snapshot, gang: &ObjectKey) -> BTreeMap<NodeName, Met> {
        let samples = samples(snapshot, gang);
        // Whom members keep away is in the namespaces that they name; of the others only those that keep pods away themselves matter:
        // mostly nobody.
        let named = namespaces(&samples);
        let meets = |pod: &Pod| samples.iter().any(|sample| sample.neighbour.keeps_apart(&pod.neighbour));
        let mut met: BTreeMap<NodeName, Met> = BTreeMap::new();
        let mut stands = |pod: &Arc<Pod>| {
            let Some(node) = pod.occupied_node().filter(|_| meets(pod)) else { return };
            let met = met.entry(node.clone()).or_default();
            let own = pod.is_live() && pod.membership.gang() == Some(gang);
            *(if own { &mut met.own } else { &mut met.others }) += 1;
        };
        let placed = || snapshot.pods.placed().cloned();
        let by_namespace = || self.placed.get_or_init(|| grouped(placed(), |pod| pod));
        match &named {
            None => by_namespace().values().flatten().for_each(&mut stands),
            Some(named) => {
                named.iter().filter_map(|name| by_namespace().get(*name)).flatten().for_each(&mut stands);
                let keepers = self.keepers.get_or_init(|| placed().filter(|pod| keeps_away(pod)).collect());
                keepers.iter().filter(|pod| !named.contains(&pod.neighbour.namespace)).for_each(&mut stands);
            }
        }
        let mut assignment = |one: &Assigned| {
            if one.gang != *gang && meets(&one.pod) {
                met.entry(one.node.clone()).or_default().others += 1;
            }
        };
        let assigned = || snapshot.gangs.values().flat_map(|gang| assigned(snapshot, gang));
        let by_namespace = || self.assigned.get_or_init(|| grouped(assigned(), |one| &one.pod));
        match &named {
            None => by_namespace().values().flatten().for_each(&mut assignment),
            Some(named) => {
                named.iter().filter_map(|name| by_namespace().get(*name)).flatten().for_each(&mut assignment);
                let found = || assigned().filter(|one| keeps_away(&one.pod)).collect();
                let keepers = self.assigned_keepers.get_or_init(found).iter();
                keepers.filter(|one| !named.contains(&one.pod.neighbour.namespace)).for_each(&mut assignment);
            }
        }
        self.here.iter().for_each(&mut assignment);
        met
    }
}

/// Namespaces of the pods that members keep away; `None`: every one.
fn namespaces<'a>(samples: &[&'a Arc<Pod>]) -> Option<BTreeSet<&'a Arc<str>>> {
    let terms = samples.iter().flat_map(|pod| &pod.neighbour.keeps_away);
    let named: Option<Vec<&Vec<Arc<str>>>> = terms.map(|term| term.namespaces.as_ref()).collect();
    Some(named?.into_iter().flatten().collect())
}

fn grouped<T>(all: impl Iterator<Item = T>, pod: impl Fn(&T) -> &Arc<Pod>) -> ByNamespace<T> {
    let mut groups = ByNamespace::new();
    for one in all {
        let namespace = Arc::clone(&pod(&one).neighbour.namespace);
        groups.entry(namespace).or_insert_with(Vec::new).push(one);
    }
    groups
}

fn keeps_away(pod: &Pod) -> bool {
    !pod.neighbour.keeps_away.is_empty()
}

/// One live member of each role.
fn samples<'a>(snapshot: &'a Snapshot, gang: &ObjectKey) -> Vec<&'a Arc<Pod>> {
    let mut samples: BTreeMap<&str, &Arc<Pod>> = BTreeMap::new();
    for pod in snapshot.live_members(gang) {
        if let Membership::Member { role, .. } = &pod.membership {
            samples.entry(role).or_insert(pod);
        }
    }
    samples.into_values().collect()
}

/// Places of a persisted plan whose pod is not bound yet; one without a pod is that of a pod like the others.
fn assigned<'a>(snapshot: &'a Snapshot, gang: &'a Gang) -> impl Iterator<Item = Assigned> + use<'a> {
    let assignments = gang.phase.is_some_and(Phase::assigns_capacity) && !gang.deleting;
    let any = if assignments { snapshot.live_members(&gang.key).next() } else { None };
    let pod = move |uid: &Option<PodUid>| match uid {
        Some(uid) => snapshot.pods.get(uid).filter(|pod| pod.node.is_none() && !pod.ended),
        None => any,
    };
    let places = gang.places.iter().filter(move |place| assignments && !place.done);
    let assigned = move |place: &GangPlace| {
        Some(Assigned { gang: gang.key.clone(), node: place.node.clone(), pod: Arc::clone(pod(&place.uid)?) })
    };
    places.filter_map(assigned)
}
