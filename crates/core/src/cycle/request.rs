//! From recognised members to the planner's request.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::gang::{Gang, Invalid, Membership, Phase, Pod, RankClaim, RawWish, Recognised};
use crate::names::PodUid;
use crate::plan::{GangRequest, LevelIndex, Role, RolePlace, Wishes};
use crate::pod::{Shape, Toleration};
use crate::ranks::{self, Claimant};
use crate::topology::Levels;

/// Why there is nothing to plan yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// A wish cannot be read.
    Invalid(Invalid),
    /// Too few members.
    Collecting {
        /// Members there.
        seen: u32,
        /// Members needed.
        needed: u32,
        /// Members expected.
        size: u32,
    },
    /// A member is still held by a gate that is not ours.
    ForeignGate {
        /// The pod.
        pod: Arc<str>,
    },
}

/// The taint on nodes bought for a gang until it uses them, and its values that are this gang's.
#[derive(Clone, Copy, Debug)]
pub struct Pending<'a> {
    /// Key.
    pub taint: &'a str,
    /// Values.
    pub values: &'a [Arc<str>],
}

/// Builds the planner's request from live members.
///
/// A member counts once our gate is its only gate. The shape is that of the members, plus the toleration of the taint
/// on nodes bought for this gang, which the release patch adds.
///
/// Errors: what is missing or cannot be read, with the remedy.
pub fn build_request(
    recognised: &Recognised,
    gang: &Gang,
    members: &[Arc<Pod>],
    levels: &Levels,
    pending: &Pending<'_>,
) -> Result<GangRequest, RequestError> {
    if let Some(invalid) = &recognised.invalid {
        return Err(RequestError::Invalid(invalid.clone()));
    }
    let wishes = resolve_wishes(recognised, levels).map_err(RequestError::Invalid)?;
    let ready: Vec<&Arc<Pod>> = members.iter().filter(|member| !member.foreign_gates).collect();
    let seen = u32::try_from(ready.len()).unwrap_or(u32::MAX);
    let size = recognised.size.unwrap_or(seen.max(recognised.min.unwrap_or(0)));
    let needed = recognised.min.unwrap_or(size).min(size).max(1);
    let started = matches!(gang.phase, Some(Phase::Committing | Phase::Bound | Phase::Degraded));
    if seen < needed && !started {
        if let Some(pod) = members.iter().find(|member| member.foreign_gates) {
            return Err(RequestError::ForeignGate { pod: Arc::clone(&pod.key.name) });
        }
        return Err(RequestError::Collecting { seen, needed, size });
    }
    let claimants: Vec<Claimant> = ready
        .iter()
        .map(|pod| Claimant {
            uid: pod.uid.clone(),
            created: pod.created,
            claim: match &pod.membership {
                Membership::Member { rank, .. } => rank.clone(),
                Membership::Unknown | Membership::Single => RankClaim::Missing,
            },
        })
        .collect();
    let assigned = ranks::assign(size, &claimants);
    let pods: BTreeMap<&PodUid, &Arc<Pod>> = ready.iter().map(|pod| (&pod.uid, *pod)).collect();
    let shape = common_shape(&ready, pending)?;
    let places = assigned
        .holders
        .into_iter()
        .map(|holder| {
            let bound = holder.as_ref().and_then(|uid| pods.get(uid)).and_then(|pod| pod.node.clone());
            RolePlace { uid: holder, bound }
        })
        .collect();
    Ok(GangRequest {
        key: gang.key.clone(),
        roles: vec![Role { name: Arc::from(""), shape, min: needed, places }],
        wishes,
    })
}

fn common_shape(members: &[&Arc<Pod>], pending: &Pending<'_>) -> Result<Shape, RequestError> {
    let mut common: Option<Shape> = None;
    for pod in members {
        let shape = pod.shape.as_ref().map_err(|message| {
            RequestError::Invalid(Invalid { reason: "BadPod", message: format!("pod {}: {message}", pod.key.name) })
        })?;
        let mut shape = Shape::clone(shape);
        // The toleration of our own taint comes with the release; members released earlier carry it already.
        shape.tolerations.retain(|toleration| *toleration.key != *pending.taint);
        match &common {
            None => common = Some(shape),
            Some(first) if *first == shape => {}
            Some(_) => {
                return Err(RequestError::Invalid(Invalid {
                    reason: "MixedShapes",
                    message: format!(
                        "pod {} asks for other resources, selectors, affinity, tolerations or ports than the members \
                         before it: give all members of the gang one template",
                        pod.key.name
                    ),
                }));
            }
        }
    }
    let mut shape = common.unwrap_or_default();
    shape.tolerations.extend(pending.values.iter().map(|value| Toleration {
        key: Arc::from(pending.taint),
        exists: false,
        value: Arc::clone(value),
        effect: None,
    }));
    Ok(shape)
}

fn resolve_wishes(recognised: &Recognised, levels: &Levels) -> Result<Wishes, Invalid> {
    let resolve = |wish: &Option<RawWish>| -> Result<Option<LevelIndex>, Invalid> {
        let Some(wish) = wish else { return Ok(None) };
        levels.resolve(&wish.value).map(Some).ok_or_else(|| {
            let known: Vec<&str> = levels.as_slice().iter().map(|level| &*level.name).collect();
            Invalid {
                reason: "UnknownLevel",
                message: format!(
                    "{}: \"{}\" is no topology level; use one of {} or its node label key",
                    wish.key,
                    wish.value,
                    known.join(", ")
                ),
            }
        })
    };
    let required = resolve(&recognised.wishes.required)?;
    Ok(Wishes {
        // The default cap: a gang spans zones only if it says so.
        required: required.or_else(|| levels.zone()),
        preferred: resolve(&recognised.wishes.preferred)?,
        ..Wishes::default()
    })
}
