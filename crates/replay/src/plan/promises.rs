//! Plans that the Gang objects of a dump hold: their room is taken for everybody else, and a plan that still holds is kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_api::gang_state;
use muster_core::model::gang::{Phase, Pod};
use muster_core::model::names::{NodeName, ObjectKey, PodUid};
use muster_core::model::node::Usage;
use muster_core::planner::check::{self, Severity};
use muster_core::planner::plan::{Plan, Problem};

use super::Planning;
use crate::dump::Dump;
use crate::gangs::Members;

/// Room promised to members of gangs, by Gang object.
pub(super) type Promises = BTreeMap<ObjectKey, Vec<Promised>>;

/// Room promised to one member.
#[derive(Clone, Debug)]
pub(super) struct Promised {
    pub(super) node: NodeName,
    pub(super) uid: Option<PodUid>,
    pub(super) pod: Option<String>,
    pub(super) held: Usage,
    pub(super) object: Option<Arc<Pod>>,
}

/// Every place of a persisted plan whose pod is not bound yet.
pub(super) fn read(dump: &Dump, members: &Members) -> Promises {
    let mut promises = Promises::new();
    for object in &dump.gangs {
        let state = gang_state::read(object);
        if state.deleting || !state.phase.is_some_and(Phase::promises) {
            continue;
        }
        let Some(gang) = members.gangs.iter().find(|gang| gang.said.key == state.key) else { continue };
        let sample = gang.members.values().next();
        for place in state.places {
            let known = place.uid.as_ref().and_then(|uid| gang.members.get(uid));
            let gone = place.uid.is_some() && known.is_none();
            // A place without a pod stays promised to the one that is still to come.
            let Some(pattern) = known.or(sample).filter(|_| !gone) else { continue };
            if known.is_some_and(|known| known.core.node.is_some()) {
                continue;
            }
            promises.entry(state.key.clone()).or_default().push(Promised {
                node: place.node,
                pod: known.map(|known| known.core.key.name.to_string()),
                uid: place.uid,
                held: Usage::clone(&pattern.core.held),
                object: Some(Arc::clone(&pattern.core)),
            });
        }
    }
    promises
}

impl Planning<'_> {
    /// Gives back what the gang's own plan holds, for it is planned now.
    pub(super) fn release(&mut self, gang: &ObjectKey) -> Vec<Promised> {
        let promised = self.promises.remove(gang).unwrap_or_default();
        for one in &promised {
            self.cluster.subtract(&one.node, one.object.as_ref(), &one.held);
        }
        promised
    }
}

/// The persisted plan in place of a new one, if it has a place for as many members and still holds.
pub(super) fn kept(promised: &[Promised], problem: &Problem, plan: &Plan) -> Option<Plan> {
    if promised.is_empty() {
        return None;
    }
    let nodes: BTreeMap<&PodUid, &NodeName> =
        promised.iter().filter_map(|one| Some((one.uid.as_ref()?, &one.node))).collect();
    let mut kept = plan.clone();
    for place in kept.places.iter_mut().filter(|place| !place.bound) {
        place.node = NodeName::clone(nodes.get(place.uid.as_ref()?)?);
    }
    let fatal = check::check(problem, &kept).into_iter().any(|note| note.severity == Severity::Fatal);
    (!fatal).then_some(kept)
}
