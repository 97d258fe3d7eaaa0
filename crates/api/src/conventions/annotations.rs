//! `muster.dev/gang` on the pod or its owners: the first convention in order of precedence.

use muster_core::gang::Invalid;

use super::{Chain, Convention};
use crate::keys;

/// Muster's own annotations (`gangs.md` 1).
#[derive(Clone, Copy, Debug)]
pub struct Annotations;

impl Convention for Annotations {
    fn name(&self) -> &'static str {
        "annotations"
    }

    fn identity(&self, chain: &Chain<'_>) -> Option<String> {
        chain.annotation(keys::GANG).map(|found| found.value.to_string())
    }

    fn size(&self, _: &Chain<'_>) -> Option<u32> {
        None
    }

    fn rank(&self, _: &Chain<'_>) -> Option<String> {
        None
    }

    fn impossible(&self, _: &Chain<'_>) -> Option<Invalid> {
        None
    }
}
