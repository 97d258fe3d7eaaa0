//! Which place of which role goes where, once the count per host is known.

use crate::names::NodeName;
use crate::plan::{GangRequest, Place, Role};

/// Fills the free places in rank order with hosts in depth-first order; bound places stay.
///
/// If only some unbound members have room, every role first gets its lowest free ranks up to its minimum; what is left
/// goes to the lowest free ranks in role order.
///
/// Shapes: `hosts` yields one node per new member, depth-first, `new` of them; the answer is in role order, then rank
/// order. Source: gangs.md, section 6: neighbouring ranks share a host, then a leaf, then a block.
pub(super) fn places<'a>(gang: &GangRequest, new: u32, mut hosts: impl Iterator<Item = &'a NodeName>) -> Vec<Place> {
    let must: u32 = gang.roles.iter().map(needed).sum();
    let mut extra = new.saturating_sub(must);
    let mut places = Vec::new();
    for (index, role) in gang.roles.iter().enumerate() {
        let needed = needed(role);
        let elastic = free(role).saturating_sub(needed).min(extra);
        extra -= elastic;
        let mut open = needed + elastic;
        for (rank, place) in (0..).zip(&role.places) {
            let node = match &place.bound {
                Some(node) => node,
                None if open == 0 => continue,
                None => {
                    open -= 1;
                    let Some(node) = hosts.next() else { continue };
                    node
                }
            };
            let (uid, node, bound) = (place.uid.clone(), node.clone(), place.bound.is_some());
            places.push(Place { role: index, rank, uid, node, bound });
        }
    }
    places
}

fn needed(role: &Role) -> u32 {
    let bound = u32::try_from(role.places.len()).unwrap_or(u32::MAX) - free(role);
    role.min.saturating_sub(bound)
}

fn free(role: &Role) -> u32 {
    u32::try_from(role.places.iter().filter(|place| place.bound.is_none()).count()).unwrap_or(u32::MAX)
}
