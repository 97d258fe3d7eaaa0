//! Pods that must not stand beside a gang's members: required anti-affinity by hostname, of either side.
//!
//! It is a matter of labels, which a [`Shape`](crate::model::pod::Shape) does not have: two gangs that ask for the same may differ
//! here. So it is counted for each gang, on the few nodes where it matters.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::working::Working;
use crate::model::gang::{Gang, GangPlace, Membership, Phase, Pod};
use crate::model::names::{NodeName, ObjectKey, PodUid};
use crate::model::snapshot::Snapshot;

/// A pod that was promised room on a node.
#[derive(Clone, Debug)]
struct Promised {
    gang: ObjectKey,
    node: NodeName,
    pod: Arc<Pod>,
}

/// Pods on one node that must not stand beside a member of the gang.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Met {
    /// Pods of others, on the node or promised room there.
    pub(super) others: u32,
    /// Members of the gang that are bound there.
    pub(super) own: u32,
}

/// What stands where, as far as it was asked for in this pass.
#[derive(Debug, Default)]
pub(super) struct Apart {
    /// Pods on nodes that keep others away.
    keepers: OnceCell<Vec<Arc<Pod>>>,
    /// Those that persisted plans promise room.
    promised_keepers: OnceCell<Vec<Promised>>,
    /// All that were promised room in this pass.
    here: Vec<Promised>,
}

impl Apart {
    /// A member is placed in this pass.
    pub(super) fn promise(&mut self, gang: &ObjectKey, node: &NodeName, pod: Option<&Arc<Pod>>) {
        let promised = pod.map(|pod| Promised { gang: gang.clone(), node: node.clone(), pod: Arc::clone(pod) });
        self.here.extend(promised);
    }
}

impl Working<'_> {
    /// Nodes with pods that must not stand beside a member of the gang. Members of several roles are taken together: a
    /// node that one of them must keep off is none for the others either.
    pub(super) fn kept_apart(&self, gang: &ObjectKey) -> BTreeMap<NodeName, Met> {
        let samples = samples(&self.snapshot, gang);
        // Where no member keeps anybody away, only those that do so themselves matter: mostly nobody.
        let all = samples.iter().any(|pod| keeps_away(pod));
        let meets = |pod: &Pod| samples.iter().any(|sample| sample.neighbour.keeps_apart(&pod.neighbour));
        let mut met: BTreeMap<NodeName, Met> = BTreeMap::new();
        let mut stands = |pod: &Arc<Pod>| {
            let Some(node) = pod.room().filter(|_| meets(pod)) else { return };
            let met = met.entry(node.clone()).or_default();
            let own = pod.is_live() && pod.membership.gang() == Some(gang);
            *(if own { &mut met.own } else { &mut met.others }) += 1;
        };
        if all {
            self.snapshot.pods.values().for_each(&mut stands);
        } else {
            let found = || self.snapshot.pods.values().filter(|pod| keeps_away(pod) && pod.room().is_some());
            self.apart.keepers.get_or_init(|| found().cloned().collect()).iter().for_each(&mut stands);
        }
        let mut promise = |one: Promised| {
            if one.gang != *gang && meets(&one.pod) {
                met.entry(one.node).or_default().others += 1;
            }
        };
        let promised = || self.snapshot.gangs.values().flat_map(|gang| promised(&self.snapshot, gang));
        if all {
            promised().for_each(&mut promise);
        } else {
            let found = || promised().filter(|one| keeps_away(&one.pod)).collect();
            self.apart.promised_keepers.get_or_init(found).iter().cloned().for_each(&mut promise);
        }
        let here = self.apart.here.iter().filter(|one| all || keeps_away(&one.pod));
        here.cloned().for_each(&mut promise);
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
fn promised<'a>(snapshot: &'a Snapshot, gang: &'a Gang) -> impl Iterator<Item = Promised> + use<'a> {
    let promises = gang.phase.is_some_and(Phase::promises) && !gang.deleting;
    let any = if promises { snapshot.live_members(&gang.key).next() } else { None };
    let pod = move |uid: &Option<PodUid>| match uid {
        Some(uid) => snapshot.pods.get(uid).filter(|pod| pod.node.is_none() && !pod.ended),
        None => any,
    };
    let places = gang.places.iter().filter(move |_| promises);
    let promised = move |place: &GangPlace| {
        Some(Promised { gang: gang.key.clone(), node: place.node.clone(), pod: Arc::clone(pod(&place.uid)?) })
    };
    places.filter_map(promised)
}
