//! `muster.dev/*` topology requests on the pod and its owners.

use std::sync::Arc;

use muster_core::model::gang::{Invalid, RankClaim, RawSlice, RawTopologyRequest, RawTopologyRequests};
use muster_core::model::ranks;
use muster_core::reason::Code;

use super::chain::Chain;
use crate::keys;

/// Annotations any of which makes a Job or StatefulSet a gang.
pub(super) const OPT_IN: [&str; 10] = [
    keys::GANG,
    keys::GANG_SIZE,
    keys::GANG_MIN,
    keys::TOPOLOGY_REQUIRED,
    keys::TOPOLOGY_PREFERRED,
    keys::SLICE_SIZE,
    keys::SLICE_TOPOLOGY,
    keys::EXCLUSIVE_TOPOLOGY,
    keys::BALANCE_TOPOLOGY,
    keys::PLACEMENT_GROUP,
];

/// Reads them all; what cannot be read is noted, never dropped.
pub(super) fn read(chain: &Chain<'_>, invalid: &mut Option<Invalid>) -> RawTopologyRequests {
    of(&|key| chain.annotation(key), invalid)
}

/// Reads the topology requests of anything that has them under these keys.
pub fn of(
    read: &dyn Fn(&'static str) -> Option<RawTopologyRequest>,
    invalid: &mut Option<Invalid>,
) -> RawTopologyRequests {
    let placement_group = read(keys::PLACEMENT_GROUP);
    if let Some(topology_request) = &placement_group
        && !matches!(&*topology_request.value, "required" | "preferred" | "none")
    {
        invalid.get_or_insert_with(|| Invalid {
            reason: Code::BadValue,
            message: format!(
                "{}: \"{}\" is not one of required, preferred, none",
                topology_request.key, topology_request.value
            ),
        });
    }
    RawTopologyRequests {
        required: read(keys::TOPOLOGY_REQUIRED),
        preferred: read(keys::TOPOLOGY_PREFERRED),
        slices: slices(read(keys::SLICE_SIZE), read(keys::SLICE_TOPOLOGY), invalid),
        exclusive: read(keys::EXCLUSIVE_TOPOLOGY),
        balance: read(keys::BALANCE_TOPOLOGY),
        placement_group,
    }
}

/// Size and level of slices; of nested ones lists of both, coarse to fine.
fn slices(
    size: Option<RawTopologyRequest>,
    level: Option<RawTopologyRequest>,
    invalid: &mut Option<Invalid>,
) -> Vec<RawSlice> {
    let mut bad = |reason, message| {
        invalid.get_or_insert(Invalid { reason, message });
        Vec::new()
    };
    let (size, level) = match (size, level) {
        (None, None) => return Vec::new(),
        (Some(size), Some(level)) => (size, level),
        (Some(there), None) => {
            return bad(
                Code::IncompleteTopologyRequest,
                format!("{} needs {} beside it", there.key, keys::SLICE_TOPOLOGY),
            );
        }
        (None, Some(there)) => {
            return bad(Code::IncompleteTopologyRequest, format!("{} needs {} beside it", there.key, keys::SLICE_SIZE));
        }
    };
    let levels: Vec<&str> = level.value.split(',').map(str::trim).collect();
    let sizes: Vec<&str> = size.value.split(',').map(str::trim).collect();
    if levels.len() != sizes.len() {
        let message =
            format!("{}: \"{}\" and {}: \"{}\" differ in length", size.key, size.value, level.key, level.value);
        return bad(Code::BadValue, message);
    }
    let mut slices: Vec<RawSlice> = Vec::new();
    for (text, name) in sizes.into_iter().zip(levels) {
        let RankClaim::Rank(number @ 1..) = ranks::parse(text) else {
            return bad(Code::BadNumber, format!("{}: \"{text}\" is not an integer of at least 1", size.key));
        };
        if let Some(above) = slices.last().filter(|above| !above.size.is_multiple_of(number)) {
            let message = format!("{}: {number} does not divide {}", size.key, above.size);
            return bad(Code::BadNumber, message);
        }
        slices.push(RawSlice { size: number, level: RawTopologyRequest { value: Arc::from(name), key: level.key } });
    }
    slices
}

/// A number of ours.
pub(super) fn number(chain: &Chain<'_>, key: &'static str, least: u32, invalid: &mut Option<Invalid>) -> Option<u32> {
    let topology_request = chain.annotation(key)?;
    match ranks::parse(&topology_request.value) {
        RankClaim::Rank(number) if number >= least => Some(number),
        RankClaim::Rank(_) | RankClaim::Missing | RankClaim::NotInteger(_) => {
            invalid.get_or_insert_with(|| Invalid {
                reason: Code::BadNumber,
                message: format!("{key}: \"{}\" is not an integer of at least {least}", topology_request.value),
            });
            None
        }
    }
}

/// Takes what the first leaves open from the second.
pub(super) fn or(first: RawTopologyRequests, second: RawTopologyRequests) -> RawTopologyRequests {
    // Slices and the exclusive domain they stand in are one topology request.
    let sliced = !first.slices.is_empty();
    RawTopologyRequests {
        required: first.required.or(second.required),
        preferred: first.preferred.or(second.preferred),
        slices: if sliced { first.slices } else { second.slices },
        exclusive: first.exclusive.or(if sliced { None } else { second.exclusive }),
        balance: first.balance.or(second.balance),
        placement_group: first.placement_group.or(second.placement_group),
    }
}
