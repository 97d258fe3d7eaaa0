//! How a gang is recognised: one file per convention.
//!
//! Identity comes from the first convention that gives one; then size, minimum, rank and topology come, field by
//! field, from `muster.dev/*` on the pod or its owners, else from the convention that gave the identity, else from the
//! owner (`docs/conventions.md`).

mod annotations;
mod chain;
mod claim;
mod coscheduling;
mod job;
mod jobset;
mod kubeflow;
mod kueue;
mod leaderworkerset;
mod merge;
mod native;
mod objects;
mod peer_topology_requests;
mod peers;
mod ray;
mod restart;
mod statefulset;
mod topology_requests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use muster_core::gang::MAX_ROLES;
use muster_core::model::gang::{
    Invalid, Membership, Owner, RankClaim, RawTopologyRequests, Recognised, RoleStated, Source,
};
use muster_core::model::names::ObjectKey;
use muster_core::model::ranks;
use muster_core::reason::Code;

use crate::keys;
use chain::Chain;
use claim::Claim;

pub use kubeflow::replica_specs;
pub use merge::merge;
pub use objects::{Kind, Object, Objects, Ref, Served};
pub use ray::ray_replicas;
pub use topology_requests::of as read_topology_requests;

/// Names of the conventions as they stand in a Gang's source, in order of precedence.
pub const NAMES: [&str; 17] = [
    "annotations",
    "native",
    "coscheduling",
    "kueue-pod-group",
    "kueue-workload",
    "volcano",
    "kai",
    "yunikorn",
    "koordinator",
    "grove",
    "jobset",
    "leaderworkerset",
    "kubeflow",
    "ray",
    "volcano-job",
    "job",
    "statefulset",
];

/// Reads what a pod says of itself.
type Read = for<'c, 'o> fn(&'c Chain<'o>) -> Option<Claim>;

/// Conventions by which a pod names its gang, in order of precedence.
const EXPLICIT: [(&str, Read); 10] = [
    ("annotations", annotations::claim),
    ("native", native::claim),
    ("coscheduling", coscheduling::claim),
    ("kueue-pod-group", kueue::pod_group),
    ("kueue-workload", kueue::workload),
    ("volcano", peers::volcano),
    ("kai", peers::kai),
    ("yunikorn", peers::yunikorn),
    ("koordinator", peers::koordinator),
    ("grove", peers::grove),
];

/// What a pod is: its membership, and what it says of its gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recognition {
    /// Of which gang the pod is.
    pub membership: Membership,
    /// What pod and owners say of the gang.
    pub gang: Option<Arc<Recognised>>,
    /// The pod's controller makes it again when it is deleted, and counts no failure.
    pub remade: bool,
    /// The owner that must be read before the membership is settled.
    pub missing: Option<MissingOwner>,
    /// Everything that was looked at: when one of these appears or changes, the pod is recognised again.
    pub reads: BTreeSet<Ref>,
}

impl Recognition {
    /// A pod of no gang.
    #[must_use]
    pub fn single(reads: BTreeSet<Ref>) -> Self {
        Self { membership: Membership::Single, gang: None, remade: false, missing: None, reads }
    }

    /// A pod of which it is not known yet whose it is.
    fn unknown(missing: MissingOwner, reads: BTreeSet<Ref>) -> Self {
        Self { membership: Membership::Unknown, gang: None, remade: false, missing: Some(missing), reads }
    }
}

/// An owner of a kind Muster reads which is not cached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MissingOwner {
    /// Namespace.
    pub namespace: String,
    /// API version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// Recognises one pod.
///
/// *Unknown is not "no gang"*: while an owner of a kind Muster reads is not cached the pod is unknown. An owner of
/// another kind ends the chain; there the topology requests belong on the pod template.
#[must_use]
pub fn recognise(pod: &Pod, objects: &dyn Objects) -> Recognition {
    let chain = match Chain::resolve(pod, objects) {
        Ok(chain) => chain,
        Err(unresolved) => {
            let (missing, reads) = *unresolved;
            return Recognition::unknown(missing, reads);
        }
    };
    let explicit: Vec<(&'static str, Claim)> =
        EXPLICIT.iter().filter_map(|(name, read)| Some((*name, read(&chain)?))).collect();
    let owner = of_owner(&chain);
    let conflict = conflict(&explicit);
    let found = explicit.into_iter().next().map(|(name, claim)| Found { name, claim, owner: owner.clone() });
    let found = found.or_else(|| {
        let OfOwner { name, claim, identifies } = owner?;
        identifies.then_some(Found { name, claim, owner: None })
    });
    // Our own annotation comes first, so nothing that is not known yet could change it.
    let settled = found.as_ref().is_some_and(|found| found.name == "annotations");
    if let Some(missing) = chain.missing().filter(|_| !settled) {
        let reads = chain.into_reads();
        return Recognition::unknown(missing, reads);
    }
    let Some(found) = found else { return Recognition::single(chain.into_reads()) };
    let (gang, role, rank) = describe(&chain, found, conflict);
    let membership = Membership::Member { gang: gang.key.clone(), role, rank };
    let remade = restart::makes_again(&chain);
    Recognition { membership, gang: Some(Arc::new(gang)), remade, missing: None, reads: chain.into_reads() }
}

/// The convention that gave the identity, and what the owner says beside it.
#[derive(Clone, Debug)]
struct Found {
    name: &'static str,
    claim: Claim,
    owner: Option<OfOwner>,
}

/// What the outermost owner that is known says.
#[derive(Clone, Debug)]
struct OfOwner {
    name: &'static str,
    claim: Claim,
    /// Whether that alone makes a gang.
    identifies: bool,
}

fn of_owner(chain: &Chain<'_>) -> Option<OfOwner> {
    let always = |name, claim: Option<Claim>| claim.map(|claim| OfOwner { name, claim, identifies: true });
    // Jobs and StatefulSets are gangs only where somebody says so. Who asks Kueue for a topology asks for all pods at once.
    let opted = topology_requests::OPT_IN.iter().any(|key| chain.annotation(key).is_some()) || kueue::asks(chain);
    let opting = |name, claim: Option<Claim>| claim.map(|claim| OfOwner { name, claim, identifies: opted });
    let ray = || {
        let (claim, asks) = ray::claim(chain)?;
        Some(OfOwner { name: "ray", claim, identifies: asks || opted })
    };
    always("jobset", jobset::claim(chain))
        .or_else(|| always("leaderworkerset", leaderworkerset::claim(chain)))
        .or_else(|| always("kubeflow", kubeflow::claim(chain)))
        .or_else(ray)
        .or_else(|| always("volcano-job", peers::volcano_job(chain)))
        .or_else(|| opting("job", job::claim(chain)))
        .or_else(|| opting("statefulset", statefulset::claim(chain)))
}

/// Two explicit identities on one pod: the first counts, and somebody should know.
fn conflict(explicit: &[(&'static str, Claim)]) -> Option<Arc<str>> {
    let (first, others) = explicit.split_first()?;
    let (name, other) = others.iter().find(|(_, other)| other.identity != first.1.identity)?;
    Some(Arc::from(format!(
        "a pod names gang {} ({}) and gang {} ({name}): the first counts",
        first.1.identity, first.0, other.identity
    )))
}

/// Field by field: ours, then the convention's, then the owner's.
fn describe(chain: &Chain<'_>, found: Found, conflict: Option<Arc<str>>) -> (Recognised, Arc<str>, RankClaim) {
    let Found { name, mut claim, owner } = found;
    let own = name == "annotations";
    let mut invalid = None;
    let size = topology_requests::number(chain, keys::GANG_SIZE, 1, &mut invalid);
    let mut min = topology_requests::number(chain, keys::GANG_MIN, 1, &mut invalid);
    let role_size = topology_requests::number(chain, keys::ROLE_SIZE, 1, &mut invalid);
    let stated_role = chain.annotation(keys::ROLE);
    let mut requested = topology_requests::read(chain, &mut invalid);
    let owner = owner.map(|owner| owner.claim);

    // Which of the owner's roles the gang is made of: a template that names a gang of its own is not in the owner's.
    let named = chain.annotation(keys::GANG).map(|found| found.value);
    let parts = match &owner {
        Some(owner) if own => owner.roles.iter().filter(|role| role.gang.as_deref() == named.as_deref()).collect(),
        _ => Vec::new(),
    };
    let whole = |roles: &[claim::Declared]| -> Vec<RoleStated> {
        roles.iter().filter(|role| role.gang.is_none()).map(claim::Declared::stated).collect()
    };
    let mut roles: Vec<RoleStated> = if !own {
        whole(&claim.roles)
    } else if parts.is_empty() {
        owner.as_ref().map_or_else(Vec::new, |owner| whole(&owner.roles))
    } else {
        parts.iter().map(|role| role.stated()).collect()
    };
    let all = owner.as_ref().unwrap_or(&claim).roles.len();
    let total = |roles: &[RoleStated]| roles.iter().filter_map(|role| role.count).fold(0, u32::saturating_add);
    let mut known = if claim.open_roles {
        claim.size
    } else if roles.is_empty() {
        if own { owner.as_ref().and_then(|owner| owner.size) } else { claim.size }
    } else if own || claim.size.is_some() || !claim.roles.is_empty() {
        Some(total(&roles)).filter(|size| *size > 0)
    } else {
        claim.size
    };
    // What the convention asks for of a part of its owner, it asks for of the whole.
    let part = roles.len() < all;
    min = min.or_else(|| {
        let stated = if own { owner.as_ref().and_then(|owner| owner.min) } else { claim.min };
        stated.filter(|_| !part || !own)
    });
    let of_owner = owner.as_ref().map(|owner| owner.role.as_str()).unwrap_or_default();
    let mut role: Arc<str> = Arc::from(if claim.role.is_empty() { of_owner } else { claim.role.as_str() });
    if !own && roles.is_empty() && !role.is_empty() {
        // A group of which only the owner knows roles: how many of each the group has, it does not say.
        let declared = owner.as_ref().map_or(&[][..], |owner| &owner.roles);
        let open = |role: &claim::Declared| RoleStated { name: Arc::from(role.name.as_str()), count: None, min: None };
        roles = declared.iter().map(open).collect();
        if roles.is_empty() {
            role = Arc::from("");
        }
    }
    if let Some(stated) = &stated_role {
        role = Arc::clone(&stated.value);
        let count = role_size.or_else(|| owner.as_ref().filter(|owner| owner.roles.is_empty())?.size);
        // Without a size or minimum of the whole one role would start without the others.
        let count = count.filter(|_| size.is_some() || min.is_some());
        roles = vec![RoleStated { name: Arc::clone(&role), count, min: None }];
        // Other owners' pods belong to the gang as well, so one owner's size is not the gang's.
        known = None;
    }
    merge::order(&mut roles);

    let convention = claim.invalid.take().or_else(|| owner.as_ref().and_then(|owner| owner.invalid.clone()));
    let staged = claim.staged.take().or_else(|| owner.as_ref().and_then(|owner| owner.staged.clone()));
    let mut kueue_invalid = None;
    let kueue = kueue::topology_requests(chain, &mut kueue_invalid);
    requested = topology_requests::or(requested, std::mem::take(&mut claim.topology_requests));
    requested = topology_requests::or(requested, kueue);
    requested = topology_requests::or(
        requested,
        owner.as_ref().map_or_else(RawTopologyRequests::default, |owner| owner.topology_requests.clone()),
    );
    let size = size.or(known);
    let mut invalid = convention
        .or_else(|| staged.filter(|_| roles.len() > 1 && stated_role.is_none()))
        .or_else(|| bad_name(&claim.identity))
        .or(invalid)
        .or(kueue_invalid);
    check_numbers(size, min, &roles, &mut invalid);
    // One above what a gang may have makes it invalid; pods that list thousands would cost everybody time.
    roles.truncate(MAX_ROLES + 1);

    let offset = claim.offset;
    let rank = chain
        .annotation(keys::RANK)
        .map(|found| ranks::parse(&found.value))
        .or_else(|| claim.rank.take())
        .or_else(|| Some(claim::shifted(owner.as_ref()?.rank.clone()?, offset)))
        .or_else(|| job::index(chain))
        .unwrap_or(RankClaim::Missing);
    let restart = claim.restart_would_fail.take().or_else(|| owner.and_then(|owner| owner.restart_would_fail));
    let source_owner = if own {
        if claim.anchor.is_some() { annotations::known(chain) } else { None }
    } else {
        claim.anchor.clone().filter(|anchor| Kind::of(&anchor.api_version, &anchor.kind).is_some())
    };
    let gang = Recognised {
        key: ObjectKey::new(chain.namespace(), object_name(name, &claim)),
        source: Source { convention: name, identity: Arc::from(claim.identity.as_str()), owner: source_owner },
        size,
        min,
        roles,
        topology_requests: requested,
        invalid,
        booking: chain.annotation(keys::CONSUME_PROVISIONING_REQUEST).map(|found| found.value),
        restart_would_fail: restart.map(Arc::from),
        conflict,
    };
    (gang, role, rank)
}

fn check_numbers(size: Option<u32>, min: Option<u32>, roles: &[RoleStated], invalid: &mut Option<Invalid>) {
    if let (Some(size), Some(min)) = (size, min)
        && min > size
    {
        invalid.get_or_insert_with(|| Invalid {
            reason: Code::BadNumber,
            message: format!("{}: {min} is above the gang's size {size}; use 1 to {size}", keys::GANG_MIN),
        });
    }
    let of_roles = roles.iter().filter_map(|role| role.count).fold(0_u32, u32::saturating_add);
    if let Some(size) = size.filter(|size| of_roles > *size) {
        invalid.get_or_insert_with(|| Invalid {
            reason: Code::BadNumber,
            message: format!("{}: {size} is below the {of_roles} members of its roles", keys::GANG_SIZE),
        });
    }
    let most = size.into_iter().chain(min).max().unwrap_or(0).max(of_roles);
    if usize::try_from(most).unwrap_or(usize::MAX) > ranks::MAX_PLACES {
        invalid.get_or_insert_with(|| Invalid {
            reason: Code::TooManyMembers,
            message: format!("the gang has {most} members, the limit is {}", ranks::MAX_PLACES),
        });
    }
}

fn bad_name(identity: &str) -> Option<Invalid> {
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let valid = identity.len() <= 200 && identity.split('.').all(label);
    (!valid).then(|| Invalid {
        reason: Code::BadName,
        message: format!(
            "{}: \"{}\" is not a DNS-1123 name; use at most 200 lower case letters, digits, '-' and '.'",
            keys::GANG,
            identity.chars().take(80).collect::<String>()
        ),
    })
}

/// Name of the Gang object: the identity, and what tells instances apart: the start of the anchor's UID, or for a group
/// that pods name the convention, since two conventions may know groups of one name. A name that is no DNS-1123 name
/// still gets an object, so that somebody can read what is wrong with it.
fn object_name(convention: &str, claim: &Claim) -> String {
    let identity = claim.identity.as_str();
    let mut name = identity.to_owned();
    if bad_name(identity).is_some() {
        name = identity
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
            .take(200)
            .collect();
        name = name.trim_matches('-').to_owned();
        // Two different unreadable names must not become one object.
        let hash = identity
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        name = format!("{}{}{hash:016x}", name, if name.is_empty() { "invalid-" } else { "-" });
    }
    match &claim.anchor {
        Some(Owner { uid, .. }) => {
            let head: String = uid.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
            format!("{name}-{}", head.to_ascii_lowercase())
        }
        None if convention == "annotations" => name,
        None => format!("{name}-{convention}"),
    }
}

/// Reads an annotation as a number, for keys Muster writes itself.
#[must_use]
pub fn annotation_number(annotations: Option<&BTreeMap<String, String>>, key: &str) -> Option<u64> {
    annotations?.get(key)?.parse().ok()
}
