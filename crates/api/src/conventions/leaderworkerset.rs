//! LeaderWorkerSet: every group is a gang.

use muster_core::model::gang::{Invalid, RawSlice};
use muster_core::reason::Code;

use super::chain::Chain;
use super::claim::{self, Claim, Declared, topology_request};
use super::objects::{Kind, Object};
use crate::keys;

pub(super) fn claim(chain: &Chain<'_>) -> Option<Claim> {
    let name = chain.label(keys::LWS_NAME)?;
    let group = chain.label(keys::LWS_GROUP_INDEX)?;
    let identity = format!("{name}-{group}");
    // The chain of a worker leads through its leader's StatefulSet and the leader pod: the label is the shorter way.
    let set = chain.needed(Kind::LeaderWorkerSet, name)?;
    let template = "/leaderWorkerTemplate";
    let size = set.number(&format!("{template}/size")).unwrap_or(1);
    let leader = set.spec.pointer(&format!("{template}/leaderTemplate")).filter(|value| !value.is_null());
    let worker = set.spec.pointer(&format!("{template}/workerTemplate"));
    let index = chain.label(keys::LWS_WORKER_INDEX);
    let (role, rank, roles) = match leader {
        Some(leader) => {
            let is_leader = index == Some("0");
            let roles =
                vec![Declared::new("leader", 1, Some(leader)), Declared::new("worker", size.saturating_sub(1), worker)];
            let rank = index.map(|text| claim::rank(text, u32::from(!is_leader)));
            (if is_leader { "leader" } else { "worker" }, rank, roles)
        }
        None => ("", index.map(|text| claim::rank(text, 0)), Vec::new()),
    };
    let mut claim = Claim {
        identity,
        anchor: Some(set.owner()),
        size: Some(size),
        role: role.to_owned(),
        rank,
        roles,
        ..Claim::default()
    };
    let title = set.title();
    if set.text("/startupPolicy") == Some("LeaderReady") {
        claim.invalid = Some(claim::sequential(format!(
            "{title} makes its workers once the leader is ready: set spec.startupPolicy to LeaderCreated"
        )));
    }
    if set.annotation(keys::LWS_EXCLUSIVE_TOPOLOGY).is_some() {
        claim.invalid = Some(claim::sequential(format!(
            "{title} makes its workers once the leader is scheduled, because of {}: use {} instead",
            keys::LWS_EXCLUSIVE_TOPOLOGY,
            keys::TOPOLOGY_REQUIRED
        )));
    }
    subgroups(set, size, &mut claim);
    Some(claim)
}

/// Subgroups with exclusive placement are slices in domains that nobody else uses.
fn subgroups(set: &Object, size: u32, claim: &mut Claim) {
    let key = keys::LWS_SUBGROUP_EXCLUSIVE_TOPOLOGY;
    let Some(level) = set.annotation(key) else { return };
    let Some(step) = set.number("/leaderWorkerTemplate/subGroupPolicy/subGroupSize").filter(|step| *step > 0) else {
        return;
    };
    if size.is_multiple_of(step) {
        claim.topology_requests.slices = vec![RawSlice { size: step, level: topology_request(key, level) }];
        claim.topology_requests.exclusive = Some(topology_request(key, level));
    } else {
        claim.invalid.get_or_insert_with(|| Invalid {
            reason: Code::NotSupported,
            message: format!(
                "{}: subgroups of {step} with the leader beside them are not supported with {key}; choose a size that is a \
                 multiple of {step}",
                set.title()
            ),
        });
    }
}
