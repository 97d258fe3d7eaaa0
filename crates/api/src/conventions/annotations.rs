//! `muster.dev/gang` on the pod or its owners: the first convention in order of precedence.

use muster_core::model::gang::Owner;

use super::chain::Chain;
use super::claim::Claim;
use super::objects::Kind;
use crate::keys;

/// Muster's own annotations (`docs/user-guide.md`, "Annotations that you write").
///
/// Instances are distinguished by the outermost owner, so that a Job made again is a new gang. A pod that names its role
/// (`muster.dev/role`) says that several owners make up the gang: then namespace and name alone are its identity.
pub(super) fn claim(chain: &Chain<'_>) -> Option<Claim> {
    let mut identity = chain.annotation(keys::GANG)?.value.to_string();
    if let (Some(name), Some(group)) = (chain.label(keys::LWS_NAME), chain.label(keys::LWS_GROUP_INDEX)) {
        // Leader and workers have different outermost owners. Every group is a gang unless the size says otherwise.
        let set = chain.needed(Kind::LeaderWorkerSet, name)?;
        if chain.annotation(keys::GANG_SIZE).is_none() {
            identity = format!("{identity}-{group}");
        }
        return Some(Claim { identity, anchor: Some(set.owner()), ..Claim::default() });
    }
    let anchor = if chain.annotation(keys::ROLE).is_some() { None } else { chain.root.clone() };
    Some(Claim { identity, anchor, ..Claim::default() })
}

/// Whether Muster reads the kind of an owner: only such a one may own the Gang.
pub(super) fn known(chain: &Chain<'_>) -> Option<Owner> {
    chain.owners.last().map(|object| object.owner())
}
