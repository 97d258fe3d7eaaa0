//! How a gang is recognised: one file per convention, all behind one trait.
//!
//! Identity comes from the first convention that gives one; then size, minimum, rank and topology come, field by
//! field, from `muster.dev/*` on the pod or its owners, else from the convention that gave the identity
//! (`gangs.md` 4).

mod annotations;
mod job;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use muster_core::gang::{Invalid, Membership, Owner, RankClaim, RawWish, RawWishes, Recognised, Source};
use muster_core::names::ObjectKey;
use muster_core::ranks;

use crate::keys;

pub use annotations::Annotations;
pub use job::IndexedJob;

/// The owners Muster may read, by UID.
pub trait Owners {
    /// A Job, if it is cached.
    fn job(&self, uid: &str) -> Option<&Job>;
}

/// A pod and its controller chain as far as Muster reads it, nearest owner first.
#[derive(Debug)]
pub struct Chain<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Jobs above the pod; of every other kind Muster has no convention, so it ends the chain.
    pub jobs: Vec<&'a Job>,
    /// The outermost owner, also of a kind Muster does not read.
    pub root: Option<Owner>,
}

/// One way in which pods say that they belong together.
pub trait Convention: std::fmt::Debug + Sync {
    /// Name shown in the Gang's source.
    fn name(&self) -> &'static str;
    /// The gang's name as written, if this convention gives the pod one.
    fn identity(&self, chain: &Chain<'_>) -> Option<String>;
    /// Members expected, if the convention knows.
    fn size(&self, chain: &Chain<'_>) -> Option<u32>;
    /// Rank, as text.
    fn rank(&self, chain: &Chain<'_>) -> Option<String>;
    /// Why pods of this owner can never be there together, if so: the text names the way out.
    fn impossible(&self, chain: &Chain<'_>) -> Option<Invalid>;
}

/// Every convention, in order of precedence.
pub const CONVENTIONS: [&dyn Convention; 2] = [&Annotations, &IndexedJob];

/// What a pod is: its membership, and what it says of its gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recognition {
    /// Of which gang the pod is.
    pub membership: Membership,
    /// What pod and owners say of the gang.
    pub gang: Option<Arc<Recognised>>,
    /// The owner that must be read before the membership is settled.
    pub missing: Option<MissingOwner>,
}

/// An owner of a kind Muster reads which is not cached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MissingOwner {
    /// Namespace.
    pub namespace: String,
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
/// another kind ends the chain; there the wishes belong on the pod template.
#[must_use]
pub fn recognise(pod: &Pod, owners: &dyn Owners) -> Recognition {
    let chain = match resolve(pod, owners) {
        Ok(chain) => chain,
        Err(missing) => {
            return Recognition { membership: Membership::Unknown, gang: None, missing: Some(missing) };
        }
    };
    let found =
        CONVENTIONS.iter().find_map(|convention| convention.identity(&chain).map(|identity| (*convention, identity)));
    let Some((convention, identity)) = found else {
        return Recognition { membership: Membership::Single, gang: None, missing: None };
    };
    let gang = describe(&chain, convention, &identity);
    let rank = chain
        .annotation(keys::RANK)
        .map(|found| found.value.to_string())
        .or_else(|| CONVENTIONS.iter().find_map(|convention| convention.rank(&chain)));
    let rank = rank.map_or(RankClaim::Missing, |text| ranks::parse(&text));
    Recognition {
        membership: Membership::Member { gang: gang.key.clone(), role: Arc::from(""), rank },
        gang: Some(Arc::new(gang)),
        missing: None,
    }
}

fn resolve<'a>(pod: &'a Pod, owners: &'a dyn Owners) -> Result<Chain<'a>, MissingOwner> {
    let mut chain = Chain { pod, jobs: Vec::new(), root: None };
    let mut controller = controller_of(&pod.metadata);
    while let Some(reference) = controller {
        chain.root = Some(owner(reference));
        if reference.kind != "Job" || !reference.api_version.starts_with("batch/") {
            break;
        }
        if chain.jobs.len() == MAX_OWNERS {
            // Anybody may write owner references, in a circle too.
            break;
        }
        let job = owners.job(&reference.uid).ok_or_else(|| MissingOwner {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            kind: reference.kind.clone(),
            name: reference.name.clone(),
            uid: reference.uid.clone(),
        })?;
        chain.jobs.push(job);
        controller = controller_of(&job.metadata);
    }
    Ok(chain)
}

/// Longest chain of owners that is followed.
const MAX_OWNERS: usize = 8;

fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|reference| reference.controller == Some(true))
}

fn owner(reference: &OwnerReference) -> Owner {
    Owner {
        api_version: Arc::from(reference.api_version.as_str()),
        kind: Arc::from(reference.kind.as_str()),
        name: Arc::from(reference.name.as_str()),
        uid: Arc::from(reference.uid.as_str()),
    }
}

impl Chain<'_> {
    /// An annotation of ours: read on the pod first, then on its owners, nearest first.
    #[must_use]
    pub fn annotation(&self, key: &'static str) -> Option<RawWish> {
        std::iter::once(&self.pod.metadata)
            .chain(self.jobs.iter().map(|job| &job.metadata))
            .filter_map(|metadata| metadata.annotations.as_ref()?.get(key))
            .map(|value| RawWish { value: Arc::from(value.as_str()), key })
            .next()
    }

    /// Whether pod or owners carry any annotation by which a user opts in.
    #[must_use]
    pub fn opted_in(&self) -> bool {
        OPT_IN.iter().any(|key| self.annotation(key).is_some())
    }
}

/// Annotations any of which makes an Indexed Job a gang.
const OPT_IN: [&str; 8] = [
    keys::GANG,
    keys::GANG_SIZE,
    keys::GANG_MIN,
    keys::TOPOLOGY_REQUIRED,
    keys::TOPOLOGY_PREFERRED,
    keys::SLICE_SIZE,
    keys::SLICE_TOPOLOGY,
    keys::PLACEMENT_GROUP,
];

fn describe(chain: &Chain<'_>, convention: &dyn Convention, identity: &str) -> Recognised {
    let mut invalid = convention.impossible(chain).or_else(|| bad_name(identity));
    let from_owner = CONVENTIONS.iter().find_map(|convention| convention.size(chain));
    let size = number(chain, keys::GANG_SIZE, 1, &mut invalid).or(from_owner);
    let min = number(chain, keys::GANG_MIN, 1, &mut invalid);
    if let (Some(size), Some(min)) = (size, min)
        && min > size
    {
        invalid.get_or_insert_with(|| Invalid {
            reason: "BadNumber",
            message: format!("{}: {min} is above the gang's size {size}; use 1 to {size}", keys::GANG_MIN),
        });
    }
    if let Some(size) = size.filter(|size| usize::try_from(*size).unwrap_or(usize::MAX) > ranks::MAX_PLACES) {
        invalid.get_or_insert_with(|| Invalid {
            reason: "TooManyMembers",
            message: format!("the gang has {size} members, the limit is {}", ranks::MAX_PLACES),
        });
    }
    let placement_group = chain.annotation(keys::PLACEMENT_GROUP);
    if let Some(wish) = &placement_group
        && !matches!(&*wish.value, "required" | "preferred" | "none")
    {
        invalid.get_or_insert_with(|| Invalid {
            reason: "BadValue",
            message: format!("{}: \"{}\" is not one of required, preferred, none", wish.key, wish.value),
        });
    }
    for key in [keys::SLICE_SIZE, keys::SLICE_TOPOLOGY] {
        if chain.annotation(key).is_some() {
            // A wish is never dropped silently.
            invalid.get_or_insert_with(|| Invalid {
                reason: "NotSupported",
                message: format!("{key}: slices are not supported yet; remove the annotation"),
            });
        }
    }
    Recognised {
        key: ObjectKey::new(
            chain.pod.metadata.namespace.as_deref().unwrap_or("default"),
            object_name(identity, chain.root.as_ref()),
        ),
        source: Source { convention: convention.name(), identity: Arc::from(identity), owner: outermost_known(chain) },
        size,
        min,
        wishes: RawWishes {
            required: chain.annotation(keys::TOPOLOGY_REQUIRED),
            preferred: chain.annotation(keys::TOPOLOGY_PREFERRED),
            placement_group,
        },
        invalid,
        booking: chain.annotation(keys::CONSUME_PROVISIONING_REQUEST).map(|found| found.value),
    }
}

fn outermost_known(chain: &Chain<'_>) -> Option<Owner> {
    chain.jobs.last().map(|job| Owner {
        api_version: Arc::from("batch/v1"),
        kind: Arc::from("Job"),
        name: Arc::from(job.metadata.name.as_deref().unwrap_or_default()),
        uid: Arc::from(job.metadata.uid.as_deref().unwrap_or_default()),
    })
}

fn number(chain: &Chain<'_>, key: &'static str, least: u32, invalid: &mut Option<Invalid>) -> Option<u32> {
    let wish = chain.annotation(key)?;
    match ranks::parse(&wish.value) {
        RankClaim::Rank(number) if number >= least => Some(number),
        RankClaim::Rank(_) | RankClaim::Missing | RankClaim::NotInteger(_) => {
            invalid.get_or_insert_with(|| Invalid {
                reason: "BadNumber",
                message: format!("{key}: \"{}\" is not an integer of at least {least}", wish.value),
            });
            None
        }
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
        reason: "BadName",
        message: format!(
            "{}: \"{}\" is not a DNS-1123 name; use at most 200 lower case letters, digits, '-' and '.'",
            keys::GANG,
            identity.chars().take(80).collect::<String>()
        ),
    })
}

/// Name of the Gang object: the identity, and the start of the root owner's UID, which tells instances apart. A name
/// that is no DNS-1123 name still gets an object, so that somebody can read what is wrong with it.
fn object_name(identity: &str, root: Option<&Owner>) -> String {
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
    match root {
        Some(root) => {
            let head: String = root.uid.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
            format!("{name}-{}", head.to_ascii_lowercase())
        }
        None => name,
    }
}

/// Reads an annotation as a number, for keys Muster writes itself.
#[must_use]
pub fn annotation_number(annotations: Option<&BTreeMap<String, String>>, key: &str) -> Option<u64> {
    annotations?.get(key)?.parse().ok()
}
