//! Plans that the Gang objects of a dump hold: their capacity is taken for everybody else, and a plan that still holds is kept.

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

/// Capacity assigned to members of gangs, by Gang object.
pub(super) type Assignments = BTreeMap<ObjectKey, Vec<Assigned>>;

/// Capacity assigned to one member.
#[derive(Clone, Debug)]
pub(super) struct Assigned {
    pub(super) node: NodeName,
    pub(super) uid: Option<PodUid>,
    pub(super) pod: Option<String>,
    pub(super) held: Usage,
    pub(super) object: Option<Arc<Pod>>,
}

/// Every place of a persisted plan whose pod is not bound yet.
pub(super) fn read(dump: &Dump, members: &Members) -> Assignments {
    let mut assignments = Assignments::new();
    for object in &dump.gangs {
        let state = gang_state::read(object);
        if state.deleting || !state.phase.is_some_and(Phase::assigns_capacity) {
            continue;
        }
        let Some(gang) = members.gangs.iter().find(|gang| gang.stated.key == state.key) else { continue };
        let sample = gang.members.values().next();
        for place in state.places {
            let known = place.uid.as_ref().and_then(|uid| gang.members.get(uid));
            let gone = place.uid.is_some() && known.is_none();
            // A place without a pod stays assigned to the one that is still to come.
            let Some(pattern) = known.or(sample).filter(|_| !gone) else { continue };
            if known.is_some_and(|known| known.core.node.is_some()) {
                continue;
            }
            assignments.entry(state.key.clone()).or_default().push(Assigned {
                node: place.node,
                pod: known.map(|known| known.core.key.name.to_string()),
                uid: place.uid,
                held: Usage::clone(&pattern.core.held),
                object: Some(Arc::clone(&pattern.core)),
            });
        }
    }
    assignments
}

impl Planning<'_> {
    /// Gives back what the gang's own plan holds, for it is planned now.
    pub(super) fn release(&mut self, gang: &ObjectKey) -> Vec<Assigned> {
        let assigned = self.assignments.remove(gang).unwrap_or_default();
        for one in &assigned {
            self.cluster.subtract(&one.node, one.object.as_ref(), &one.held);
        }
        assigned
    }
}

/// The persisted plan in place of a new one, if it has a place for as many members and still holds.
pub(super) fn kept(assigned: &[Assigned], problem: &Problem, plan: &Plan) -> Option<Plan> {
    if assigned.is_empty() {
        return None;
    }
    let nodes: BTreeMap<&PodUid, &NodeName> =
        assigned.iter().filter_map(|one| Some((one.uid.as_ref()?, &one.node))).collect();
    let mut kept = plan.clone();
    for place in kept.places.iter_mut().filter(|place| !place.bound) {
        place.node = NodeName::clone(nodes.get(place.uid.as_ref()?)?);
    }
    let fatal = check::check(problem, &kept).into_iter().any(|note| note.severity == Severity::Fatal);
    (!fatal).then_some(kept)
}
