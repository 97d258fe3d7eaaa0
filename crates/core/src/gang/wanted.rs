//! How many members nodes are provisioned for: as many as the gang needs, and those that exist; never for members that nobody
//! has created.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::asked::count;
use crate::model::gang::Pod;
use crate::planner::plan::GangRequest;

/// Creation times of pods are whole seconds.
const GRAIN: SignedDuration = SignedDuration::from_secs(1);

/// The request without the elastic places that no pod exists for; `None` if there are none.
///
/// A place beyond the minimum without a pod may never get one. Such places come last in their role, so that the numbers of
/// the others stay. Of a gang in slices no place is taken out, since what is left would not be cut evenly.
#[must_use]
pub fn existing(request: &GangRequest) -> Option<GangRequest> {
    if !request.topology_requests.slices.is_empty() {
        return None;
    }
    let mut less = request.clone();
    let mut shorter = false;
    for role in &mut less.roles {
        while role.places.last().is_some_and(|place| place.uid.is_none()) && count(role.places.len()) > role.min {
            role.places.pop();
            shorter = true;
        }
    }
    less.roles.retain(|role| !role.places.is_empty());
    shorter.then_some(less)
}

/// Until when more members are waited for before nodes are provisioned for those that exist: whoever creates them makes one after
/// the other.
pub(super) fn awaited_until(members: &[Arc<Pod>], settle: SignedDuration) -> Option<Timestamp> {
    let newest = members.iter().filter_map(|pod| pod.created).max()?;
    newest.checked_add(settle).ok()?.checked_add(GRAIN).ok()
}
