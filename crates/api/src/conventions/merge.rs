//! What the members of a gang say of it, taken together: pods of two roles know different things.

use std::sync::Arc;

use muster_core::gang::MAX_ROLES;
use muster_core::model::gang::{Invalid, RawTopologyRequest, RawTopologyRequests, Recognised, RoleStated};
use muster_core::reason::Code;

/// One gang from what its members say, each beside the member's role, the first one's word counting where two of one role
/// differ. `None` of nobody.
///
/// Members of two roles that ask for different things make the gang invalid: a topology request is never dropped silently.
#[must_use]
pub fn merge<'a>(mut stated: impl Iterator<Item = (&'a Arc<str>, &'a Arc<Recognised>)>) -> Option<Arc<Recognised>> {
    let (role, base) = stated.next()?;
    let mut merged = Arc::clone(base);
    for (other_role, other) in stated {
        if Arc::ptr_eq(other, &merged) || **other == *merged || **other == **base {
            continue;
        }
        let gang = Arc::make_mut(&mut merged);
        gang.size = gang.size.or(other.size);
        gang.min = gang.min.or(other.min);
        for stated in &other.roles {
            let is_full = gang.roles.len() > MAX_ROLES;
            match gang.roles.iter_mut().find(|known| known.name == stated.name) {
                Some(known) => {
                    known.count = known.count.or(stated.count);
                    known.min = known.min.or(stated.min);
                }
                // One above what a gang may have makes it invalid; more would only cost time.
                None if is_full => {}
                None => gang.roles.push(stated.clone()),
            }
        }
        order(&mut gang.roles);
        if role != other_role
            && gang.invalid.is_none()
            && let Some(message) = differ(&gang.topology_requests, &other.topology_requests)
        {
            gang.invalid = Some(Invalid { reason: Code::ConflictingTopologyRequests, message });
        }
        gang.topology_requests =
            super::topology_requests::or(std::mem::take(&mut gang.topology_requests), other.topology_requests.clone());
        for (field, other) in [
            (&mut gang.restart_would_fail, &other.restart_would_fail),
            (&mut gang.conflict, &other.conflict),
            (&mut gang.booking, &other.booking),
        ] {
            if field.is_none() {
                field.clone_from(other);
            }
        }
        if gang.invalid.is_none() {
            gang.invalid.clone_from(&other.invalid);
        }
    }
    Some(merged)
}

/// Leader-like roles first, the others as their owner declares them.
pub(super) fn order(roles: &mut [RoleStated]) {
    roles.sort_by_key(|role| !matches!(&*role.name, "leader" | "launcher" | "master" | "head" | "chief"));
}

fn differ(one: &RawTopologyRequests, other: &RawTopologyRequests) -> Option<String> {
    let pairs = [
        (&one.required, &other.required),
        (&one.preferred, &other.preferred),
        (&one.exclusive, &other.exclusive),
        (&one.balance, &other.balance),
        (&one.placement_group, &other.placement_group),
    ];
    let say = |one: &RawTopologyRequest, other: &RawTopologyRequest| {
        format!(
            "{}: members ask for \"{}\" and \"{}\"; give all roles of the gang one topology request",
            one.key, one.value, other.value
        )
    };
    let different = pairs.into_iter().find_map(|pair| match pair {
        (Some(one), Some(other)) if one.value != other.value => Some(say(one, other)),
        _ => None,
    });
    different.or_else(|| {
        let (first, second) = (one.slices.first()?, other.slices.first()?);
        let same = one.slices.iter().map(|slice| (slice.size, &slice.level.value));
        let same = same.eq(other.slices.iter().map(|slice| (slice.size, &slice.level.value)));
        (!same).then(|| say(&first.level, &second.level))
    })
}
