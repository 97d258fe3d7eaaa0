//! What a pass found out for one gang holds for every other that asks for the same: a queue of gangs that wait is
//! mostly one question.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Working;
use crate::gang::Pass;
use crate::model::gang::Gang;
use crate::model::pod::Shape;
use crate::planner::plan::{GangRequest, Refusal, Role, TopologyRequests};
use crate::reason::Passing;

/// What a gang asks for, without who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ask {
    roles: Vec<(Arc<str>, Shape, u32, usize)>,
    topology_requests: TopologyRequests,
}

/// Answers of one pass.
#[derive(Debug, Default)]
pub(in crate::gang) struct Alike {
    /// Gangs and bookings that have nodes of their own in the cluster, by the value of the taint.
    tainted: Option<BTreeSet<Arc<str>>>,
    one_day: Vec<(Ask, bool)>,
    passing: Vec<(Ask, Refusal, Vec<Passing>)>,
}

impl Alike {
    /// An assignment was made: what keeps capacity from a gang is another answer now.
    pub(in crate::gang) fn assigned(&mut self) {
        self.passing.clear();
    }
}

impl Working<'_> {
    /// What a gang asks for. `None` where a member is bound: then the answer is that gang's alone.
    fn ask(&mut self, request: &GangRequest) -> Option<Ask> {
        if request.roles.iter().flat_map(|role| &role.places).any(|place| place.bound.is_some()) {
            return None;
        }
        let taint = self.world.settings.pending_taint;
        let nodes = &self.snapshot.nodes;
        let tainted = self.alike.tainted.get_or_insert_with(|| {
            let taints = nodes.values().flat_map(|entry| &entry.node.taints);
            taints.filter(|one| *one.key == *taint).map(|one| Arc::clone(&one.value)).collect()
        });
        let role = |role: &Role| {
            let mut shape = role.shape.clone();
            // Every gang tolerates its own nodes: where there are none, that tells nobody apart.
            shape.tolerations.retain(|one| *one.key != *taint || one.exists || tainted.contains(&one.value));
            (Arc::clone(&role.name), shape, role.min, role.places.len())
        };
        Some(Ask {
            roles: request.roles.iter().map(role).collect(),
            topology_requests: request.topology_requests.clone(),
        })
    }

    /// Whether the gang fits on the cluster's nodes once nothing else stands there.
    pub(in crate::gang) fn one_day(&mut self, request: &GangRequest, pass: &mut Pass) -> bool {
        let Some(ask) = self.ask(request) else { return self.fits_on_empty_cluster(request, pass) };
        if let Some((_, known)) = self.alike.one_day.iter().find(|(asked, _)| *asked == ask) {
            return *known;
        }
        let fits = self.fits_on_empty_cluster(request, pass);
        self.alike.one_day.push((ask, fits));
        fits
    }

    /// What keeps capacity from a gang that does not fit, and ends by itself.
    pub(in crate::gang) fn passing(&mut self, gang: &Gang, request: &GangRequest, refusal: &Refusal) -> Vec<Passing> {
        // What a gang was assigned itself keeps nothing from it.
        let own = self.own(&gang.key);
        let nothing_held = self.seen && self.ledger.held(&own.keys).is_empty();
        let Some(ask) = self.ask(request).filter(|_| nothing_held && own.meets_nobody()) else {
            return self.find_passing(gang, request, refusal);
        };
        let mut known = self.alike.passing.iter();
        if let Some((.., known)) = known.find(|(asked, refused, _)| *asked == ask && refused == refusal) {
            return known.clone();
        }
        let found = self.find_passing(gang, request, refusal);
        self.alike.passing.push((ask, refusal.clone(), found.clone()));
        found
    }
}
