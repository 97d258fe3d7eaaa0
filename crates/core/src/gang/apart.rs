//! Pods that must not stand beside a gang's members: required anti-affinity by hostname, of either side.
//!
//! It is a matter of labels, which a [`Shape`](crate::model::pod::Shape) does not have: two gangs that ask for the same may differ
//! here. So it is counted for each gang, on the few nodes where it matters.

use std::cell::OnceCell;
use std::collections::BTreeMap;
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

/// What stands where, as far as it was asked for in this pass.
#[derive(Debug, Default)]
pub(super) struct Apart {
    /// Pods on nodes that keep others away.
    keepers: OnceCell<Vec<Arc<Pod>>>,
    /// Those that persisted plans assignment capacity.
    assigned_keepers: OnceCell<Vec<Assigned>>,
    /// All that were assigned capacity in this pass.
    here: Vec<Assigned>,
}

impl Apart {
    /// A member is placed in this pass.
    pub(super) fn assignment(&mut self, gang: &ObjectKey, node: &NodeName, pod: Option<&Arc<Pod>>) {
        let assigned = pod.map(|pod| Assigned { gang: gang.clone(), node: node.clone(), pod: Arc::clone(pod) });
        self.here.extend(assigned);
    }

    /// Nodes with pods that must not stand beside a member of the gang. Members of several roles are taken together: a
    /// node that one of them must keep off is none for the others either.
    pub(super) fn met(&self, snapshot: &Snapshot, gang: &ObjectKey) -> BTreeMap<NodeName, Met> {
        let samples = samples(snapshot, gang);
        // Where no member keeps anybody away, only those that do so themselves matter: mostly nobody.
        let all = samples.iter().any(|pod| keeps_away(pod));
        let meets = |pod: &Pod| samples.iter().any(|sample| sample.neighbour.keeps_apart(&pod.neighbour));
        let mut met: BTreeMap<NodeName, Met> = BTreeMap::new();
        let mut stands = |pod: &Arc<Pod>| {
            let Some(node) = pod.capacity().filter(|_| meets(pod)) else { return };
            let met = met.entry(node.clone()).or_default();
            let own = pod.is_live() && pod.membership.gang() == Some(gang);
            *(if own { &mut met.own } else { &mut met.others }) += 1;
        };
        if all {
            snapshot.pods.values().for_each(&mut stands);
        } else {
            let found = || snapshot.pods.values().filter(|pod| keeps_away(pod) && pod.capacity().is_some());
            self.keepers.get_or_init(|| found().cloned().collect()).iter().for_each(&mut stands);
        }
        let mut assignment = |one: Assigned| {
            if one.gang != *gang && meets(&one.pod) {
                met.entry(one.node).or_default().others += 1;
            }
        };
        let assigned = || snapshot.gangs.values().flat_map(|gang| assigned(snapshot, gang));
        if all {
            assigned().for_each(&mut assignment);
        } else {
            let found = || assigned().filter(|one| keeps_away(&one.pod)).collect();
            self.assigned_keepers.get_or_init(found).iter().cloned().for_each(&mut assignment);
        }
        let here = self.here.iter().filter(|one| all || keeps_away(&one.pod));
        here.cloned().for_each(&mut assignment);
        met
    }
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
    let assignments = gang.phase.is_some_and(Phase::assignments) && !gang.deleting;
    let any = if assignments { snapshot.live_members(&gang.key).next() } else { None };
    let pod = move |uid: &Option<PodUid>| match uid {
        Some(uid) => snapshot.pods.get(uid).filter(|pod| pod.node.is_none() && !pod.ended),
        None => any,
    };
    let places = gang.places.iter().filter(move |_| assignments);
    let assigned = move |place: &GangPlace| {
        Some(Assigned { gang: gang.key.clone(), node: place.node.clone(), pod: Arc::clone(pod(&place.uid)?) })
    };
    places.filter_map(assigned)
}
