//! scheduler-plugins coscheduling: a label that names a PodGroup, current and old.

use super::chain::Chain;
use super::claim::Claim;
use super::objects::Kind;
use crate::keys;

pub(super) fn claim(chain: &Chain<'_>) -> Option<Claim> {
    if let Some(name) = chain.label(keys::COSCHEDULING_POD_GROUP) {
        let group = chain.named(Kind::CoschedulingPodGroup, name);
        let min = group.and_then(|group| group.number("/minMember"));
        return Some(Claim { identity: name.to_owned(), min, ..Claim::default() });
    }
    let name = chain.label(keys::COSCHEDULING_OLD_NAME)?;
    let min = chain.label(keys::COSCHEDULING_OLD_MIN).and_then(|text| text.parse().ok());
    Some(Claim { identity: name.to_owned(), min, ..Claim::default() })
}
