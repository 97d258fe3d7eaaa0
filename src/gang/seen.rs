//! What the calls of a gang look up of the view they were decided from.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_api::crd::Gang as GangObject;
use muster_core::gang::Action;
use muster_core::model::gang::{Gang, Pod};
use muster_core::model::names::{ObjectKey, PodUid};

use crate::cluster::{SeenBatch, State};

/// Of a view, what the actions of one gang need. In a large cluster thousands of calls wait for their turn, decided from many views, and
/// whoever keeps one keeps all that has changed since as it was.
pub(super) struct Seen {
    /// The Gang as it was read, for conditional writes and events.
    pub(super) object: Option<Arc<GangObject>>,
    /// What it says.
    pub(super) gang: Option<Arc<Gang>>,
    /// NodeBatches by name.
    pub(super) batches: Arc<BTreeMap<String, SeenBatch>>,
    /// Pods that lose our gate.
    pub(super) gated: BTreeMap<PodUid, Arc<Pod>>,
}

impl Seen {
    /// Of the gang whose `actions` these are, if they are about one.
    pub(super) fn of(state: &State, gang: Option<&ObjectKey>, actions: &[Action]) -> Self {
        let gated = actions.iter().filter_map(|action| {
            let Action::Ungate { uid } = action else { return None };
            Some((uid.clone(), Arc::clone(state.snapshot.pods.get(uid)?)))
        });
        Self {
            object: gang.and_then(|gang| state.gangs.get(gang)).cloned(),
            gang: gang.and_then(|gang| state.snapshot.gangs.get(gang)).cloned(),
            batches: Arc::clone(&state.batches),
            gated: gated.collect(),
        }
    }
}
