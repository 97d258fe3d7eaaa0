//! `apps/v1` StatefulSet that opts in: parallel pods with ordinals.

use super::chain::Chain;
use super::claim::{self, Claim};
use super::objects::Kind;
use crate::keys;

/// What a StatefulSet says of its pods, opted in or not.
pub(super) fn claim(chain: &Chain<'_>) -> Option<Claim> {
    let set = chain.owner(Kind::StatefulSet)?;
    let ordered = set.text("/podManagementPolicy") != Some("Parallel");
    let start = set.number("/ordinals/start").unwrap_or(0);
    Some(Claim {
        identity: set.name().to_owned(),
        anchor: chain.root.clone(),
        size: Some(set.number("/replicas").unwrap_or(1)).filter(|size| *size > 0),
        rank: chain.label(keys::POD_INDEX).map(|text| claim::rank(text, start)),
        invalid: ordered.then(|| {
            claim::sequential(format!(
                "{} makes its pods one after the other: set spec.podManagementPolicy to Parallel",
                set.title()
            ))
        }),
        ..Claim::default()
    })
}
