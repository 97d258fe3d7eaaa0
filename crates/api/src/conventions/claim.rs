//! What one convention says of a pod.

use std::sync::Arc;

use muster_core::model::gang::{Invalid, Owner, RankClaim, RawTopologyRequest, RawTopologyRequests, RoleStated};
use muster_core::model::ranks;
use muster_core::reason::Code;
use serde_json::Value;

use super::objects::number;
use crate::keys;

/// What one convention says of a pod and its gang.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Claim {
    /// The gang's name as written.
    pub(super) identity: String,
    /// The object whose UID tells instances apart and which may own the Gang.
    pub(super) anchor: Option<Owner>,
    /// Members expected.
    pub(super) size: Option<u32>,
    /// Members needed to start.
    pub(super) min: Option<u32>,
    /// Roles in the order the owner declares them; empty: one without a name.
    pub(super) roles: Vec<Declared>,
    /// Whether the roles are those that this pod knows of: other members name others.
    pub(super) open_roles: bool,
    /// The pod's role.
    pub(super) role: String,
    /// The pod's rank within its role.
    pub(super) rank: Option<RankClaim>,
    /// To be subtracted from a rank that comes from the pod's owner.
    pub(super) offset: u32,
    /// Topology requests.
    pub(super) topology_requests: RawTopologyRequests,
    /// Why its pods can never stand together, or what cannot be read.
    pub(super) invalid: Option<Invalid>,
    /// Why its roles never stand together, though each alone does.
    pub(super) staged: Option<Invalid>,
    /// Why an eviction of its pods would end it for good.
    pub(super) restart_would_fail: Option<String>,
}

/// A role an owner declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Declared {
    /// Name.
    pub(super) name: String,
    /// Members.
    pub(super) count: u32,
    /// Members needed; `None`: all.
    pub(super) min: Option<u32>,
    /// The gang its template names itself, which takes it out of the owner's.
    pub(super) gang: Option<String>,
}

impl Declared {
    /// A role with the identity its pod template carries.
    pub(super) fn new(name: &str, count: u32, template: Option<&Value>) -> Self {
        let annotations = template.and_then(|template| template.pointer("/metadata/annotations"));
        let gang = annotations.and_then(|annotations| annotations.get(keys::GANG)).and_then(Value::as_str);
        Self { name: name.to_owned(), count, min: None, gang: gang.map(str::to_owned) }
    }

    pub(super) fn stated(&self) -> RoleStated {
        RoleStated { name: Arc::from(self.name.as_str()), count: Some(self.count), min: self.min }
    }
}

/// Members of all roles together.
pub(super) fn total(roles: &[Declared]) -> u32 {
    roles.iter().map(|role| role.count).fold(0, u32::saturating_add)
}

/// Reads a rank and subtracts an offset; one below the offset is no rank.
pub(super) fn rank(text: &str, offset: u32) -> RankClaim {
    shifted(ranks::parse(text), offset)
}

/// Subtracts an offset.
pub(super) fn shifted(claim: RankClaim, offset: u32) -> RankClaim {
    match claim {
        // Below the offset: out of range, whatever the count.
        RankClaim::Rank(rank) => RankClaim::Rank(rank.checked_sub(offset).unwrap_or(u32::MAX)),
        RankClaim::Missing | RankClaim::NotInteger(_) => claim,
    }
}

/// `outer` × `size` + `inner`, all as integers.
pub(super) fn nested(outer: &str, size: u32, inner: Option<&str>) -> RankClaim {
    match (ranks::parse(outer), inner.map(ranks::parse)) {
        (RankClaim::Rank(outer), Some(RankClaim::Rank(inner))) => {
            // An inner index beyond its job must not become a place of the next job.
            let inner = if inner < size { Some(inner) } else { None };
            let rank = inner.and_then(|inner| outer.checked_mul(size)?.checked_add(inner));
            RankClaim::Rank(rank.unwrap_or(u32::MAX))
        }
        (RankClaim::Rank(outer), None) if size == 1 => RankClaim::Rank(outer),
        (RankClaim::Rank(_), None) => RankClaim::Missing,
        (RankClaim::Rank(_), Some(other)) | (other, _) => other,
    }
}

pub(super) fn topology_request(key: &'static str, value: &str) -> RawTopologyRequest {
    RawTopologyRequest { value: Arc::from(value), key }
}

/// Pods that never stand together; the text names the way out.
pub(super) fn sequential(message: String) -> Invalid {
    Invalid { reason: Code::SequentialCreation, message }
}

/// min(`parallelism`, `completions`) of a Job's spec, each 1 where absent; `None` for 0.
pub(super) fn job_size(spec: &Value) -> Option<u32> {
    let parallelism = match spec.get("parallelism") {
        None | Some(Value::Null) => 1,
        Some(_) => number(spec, "/parallelism")?,
    };
    let size = number(spec, "/completions").map_or(parallelism, |completions| completions.min(parallelism));
    (size > 0).then_some(size)
}
