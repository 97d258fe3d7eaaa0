//! Memory that the types of a class turned out to have.

use std::collections::BTreeSet;

use kube::ResourceExt;
use muster_api::crd::{AmiStatus, EC2NodeClass, MemoryStatus};
use muster_api::node_class;
use muster_core::offering::{memory_known, memory_seen};

use super::pools_of;
use crate::cluster::State;

/// What the class knows of it from now on, with these images: what it knew, and what the nodes of its pools have.
pub(super) fn known(state: &State, class: &EC2NodeClass, amis: &[AmiStatus]) -> Vec<MemoryStatus> {
    let images = amis.iter().map(|ami| ami.id.as_str()).collect();
    let pools: BTreeSet<String> = pools_of(state, class).map(ResourceExt::name_any).collect();
    let all = state.batches.values().map(|seen| &seen.batch().status);
    let own = all.filter(|status| status.node_pool.as_ref().is_some_and(|pool| pools.contains(pool)));
    let seen = memory_seen(own, &state.snapshot.nodes);
    node_class::memory_status(&memory_known(node_class::memory_of(class), &seen, &images))
}
