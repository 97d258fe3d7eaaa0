//! Memory that the types of a class turned out to have.

use std::collections::BTreeMap;

use muster_api::crd::{AmiStatus, EC2NodeClass, MemoryStatus};
use muster_api::node_class;
use muster_core::offering::{Build, memory_known, memory_seen};

use crate::cluster::State;

/// Memory that types turned out to have, on the nodes there are now.
pub(super) fn here(state: &State) -> BTreeMap<Build<'_>, i64> {
    memory_seen(state.batches.values().map(|seen| &seen.batch().status), &state.snapshot.nodes)
}

/// What the class knows of it from now on, with these images.
pub(super) fn known(class: &EC2NodeClass, here: &BTreeMap<Build<'_>, i64>, amis: &[AmiStatus]) -> Vec<MemoryStatus> {
    let images = amis.iter().map(|ami| ami.id.as_str()).collect();
    node_class::memory_status(&memory_known(node_class::memory_of(class), here, &images))
}
