//! Pods of no gang without a node, as far as a pass may do something about them: of a crowd that waits those that have changed are
//! looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::extender::Rejection;
use crate::model::gang::Pod;
use crate::model::names::{ObjectKey, PodUid};
use crate::model::pods::{Pods, Unplaced};

/// What was found so far, by namespace, name and UID.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    of: Unplaced,
    gated: BTreeSet<(ObjectKey, PodUid)>,
    refused: BTreeMap<(ObjectKey, PodUid), Arc<Pod>>,
}

impl Queue {
    /// Takes over what has changed.
    pub(super) fn look(&mut self, pods: &Pods) {
        if self.of.are_those_of(pods) {
            return;
        }
        for (key, pod) in self.of.changes(pods) {
            self.gated.remove(key);
            self.refused.remove(key);
            let Some(pod) = pod.filter(|pod| pod.ours) else { continue };
            if pod.gated {
                self.gated.insert(key.clone());
            } else if is_refused_by_us(pod) {
                self.refused.insert(key.clone(), Arc::clone(pod));
            }
        }
        self.of = pods.unplaced_now();
    }

    /// Those that are behind our gate.
    pub(super) fn gated(&self) -> impl Iterator<Item = &PodUid> {
        self.gated.iter().map(|(_, uid)| uid)
    }

    /// Those that `filter` refused, as kube-scheduler last reported.
    pub(super) fn refused(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.refused.values()
    }
}

fn is_refused_by_us(pod: &Pod) -> bool {
    let ours = |(reason, message): &(Arc<str>, Arc<str>)| {
        &**reason == "Unschedulable" && Rejection::ALL.iter().any(|one| message.contains(one.as_str()))
    };
    pod.foreign_gate.is_none() && pod.unscheduled.as_ref().is_some_and(ours)
}
