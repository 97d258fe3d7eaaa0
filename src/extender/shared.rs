//! What all calls of kube-scheduler are answered from.

use std::sync::Arc;

use muster_core::extender::{self, Assumed};
use muster_core::model::gang::Pod;
use tokio::sync::Notify;

use super::admission::{Admission, Limits};
use super::barrier::Barrier;
use crate::clock::now_real;
use crate::cluster::{Cluster, State};
use crate::telemetry::ExtenderMetrics;

/// What the handlers share.
#[derive(Debug)]
pub struct Extender {
    /// The published state.
    pub cluster: Cluster,
    /// The barrier.
    pub barrier: Arc<Barrier>,
    /// Requeues the gang loop; a no-op except in the lease holder.
    pub requeue: Arc<Notify>,
    /// Latency by verb.
    pub metrics: ExtenderMetrics,
    /// `schedulerName`s of our profiles.
    pub scheduler_names: Vec<String>,
    /// What callers may ask at once.
    pub admission: Admission,
}

impl Extender {
    /// The usual limits.
    #[must_use]
    pub fn new(
        cluster: Cluster,
        barrier: Arc<Barrier>,
        requeue: Arc<Notify>,
        metrics: ExtenderMetrics,
        scheduler_names: Vec<String>,
        limits: Limits,
    ) -> Self {
        Self { cluster, barrier, requeue, metrics, scheduler_names, admission: Admission::new(limits) }
    }

    /// What calls are answered from now.
    #[must_use]
    pub fn view(&self) -> View {
        // In this order: a binding that is forgotten here is shown by the state that is loaded afterwards.
        let assumed = self.barrier.posting().assumed();
        View { assumed, state: self.cluster.load() }
    }

    /// Notes which node an answer makes kube-scheduler choose, if that follows from it.
    pub(super) fn chosen<'a>(&self, view: &View, pod: &Pod, answer: impl IntoIterator<Item = (&'a str, i64)>) {
        if let Some(node) = extender::chosen(&view.state.snapshot, pod, answer, now_real()) {
            self.barrier.posting().choose(pod, node);
        }
    }
}

/// What one call is answered from.
#[derive(Clone, Debug)]
pub struct View {
    /// Ordinary pods that this replica is binding.
    pub assumed: Assumed,
    /// The newest state.
    pub state: Arc<State>,
}

/// Reported before every watch has delivered its first list.
pub(super) const UNREADY: &str = "muster has not read the cluster yet";

/// Reported while a watch is older than `state.maxAge`. Without a number: an equal message makes no status patch.
pub(super) fn stale(kind: &str) -> String {
    format!("the watch of {kind} is too old")
}
