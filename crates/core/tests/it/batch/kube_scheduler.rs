//! A virtual kube-scheduler: it binds to any node that its filters pass and that the extender keeps, and lags behind as
//! everybody does.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use muster_core::extender::{Assumed, Filtered, chosen, filter, may_post, prioritize};
use muster_core::fit;
use muster_core::model::gang::{Membership, Pod};
use muster_core::model::node::Usage;
use rand::RngExt;

use super::cluster::View;
use super::history::History;

/// A replica of Muster answers from a state that is at most so old.
const LAG: SignedDuration = SignedDuration::from_secs(5);

/// A Binding on its way.
#[derive(Debug)]
struct Binding {
    pod: String,
    node: String,
    at: Timestamp,
}

#[derive(Debug, Default)]
pub(super) struct KubeScheduler {
    /// What the replica that answers has seen, and when.
    seen: Option<(Timestamp, Arc<View>)>,
    assumed: Assumed,
    bindings: Vec<Binding>,
    /// Bindings that were made: pod and node.
    pub(super) bound: Vec<(String, String)>,
}

impl KubeScheduler {
    /// The replica that answers is another one.
    pub(super) fn restart(&mut self) {
        self.seen = None;
        self.assumed = Assumed::default();
    }

    /// Binds whose time has come, then looks for a node for everybody who waits.
    pub(super) fn step(&mut self, sim: &mut History) {
        let now = sim.now;
        let old = self.seen.as_ref().is_none_or(|(at, _)| now.duration_since(*at) > LAG);
        if old || sim.rng.random_bool(0.5) {
            self.seen = Some((now, sim.cluster.view()));
        }
        let Some((_, view)) = self.seen.clone() else { return };
        self.assumed.settle(&view.snapshot);
        self.bind(sim, &view);
        let waits = |pod: &&Pod| pod.membership == Membership::Single && pod.is_live() && pod.node.is_none();
        let mut waiting: Vec<Pod> = sim.cluster.pods.values().filter(waits).cloned().collect();
        // Its queue is in order of time.
        waiting.sort_by_key(|pod| pod.created);
        waiting.retain(|pod| self.bindings.iter().all(|binding| *binding.pod != *pod.key.name));
        for pod in waiting {
            // What it has refused is tried again when something changes, which is often.
            if sim.rng.random_bool(0.7) {
                self.schedule(sim, &view, &pod);
            }
        }
    }

    fn bind(&mut self, sim: &mut History, view: &View) {
        let now = sim.now;
        let (due, later) = std::mem::take(&mut self.bindings).into_iter().partition(|binding| binding.at <= now);
        self.bindings = later;
        let due: Vec<Binding> = due;
        for Binding { pod: name, node, .. } in due {
            let Some(pod) = sim.cluster.pods.get(&name).filter(|pod| pod.is_live()).cloned() else { continue };
            // Another scheduler asks nobody.
            if pod.ours && may_post(&view.snapshot, &self.assumed, None, &pod.uid, &node, now).is_err() {
                self.assumed.remove(&pod.uid);
                continue;
            }
            self.assumed.add(&pod, &node);
            sim.tell(|_| format!("{name} is bound to {node}"));
            let pod = sim.cluster.pods.get_mut(&name).unwrap();
            pod.node = Some(node.as_str().into());
            pod.running = true;
            self.bound.push((name, node));
            sim.cluster.touch();
        }
    }

    fn schedule(&mut self, sim: &mut History, view: &View, pod: &Pod) {
        let shape = Arc::clone(pod.shape.as_ref().unwrap());
        let mut used: BTreeMap<&str, Usage> = BTreeMap::new();
        let here = sim.cluster.pods.values().filter(|pod| !pod.ended);
        for pod in here {
            let on = self.bindings.iter().find(|binding| *binding.pod == *pod.key.name);
            let node = pod.node.as_ref().map(|node| node.as_str()).or(on.map(|binding| binding.node.as_str()));
            if let Some(node) = node {
                used.entry(node).or_default().requested.add(&pod.held.requested);
            }
        }
        let none = Usage::default();
        let holds = |(name, machine): &(&String, &super::cluster::Machine)| {
            let usage = used.get(name.as_str()).unwrap_or(&none);
            machine.node.ready && fit::fits(&shape, &machine.node, usage).is_ok()
        };
        let offered: Vec<&str> = sim.cluster.machines.iter().filter(holds).map(|(name, _)| name.as_str()).collect();
        let (kept, scores) = if pod.ours {
            let kept = match filter(&view.snapshot, &self.assumed, pod, &offered, sim.now) {
                Filtered::Split { kept, .. } => kept,
                Filtered::Unready | Filtered::Behind => Vec::new(),
            };
            let scores = prioritize(&view.snapshot, &self.assumed, pod, &kept, sim.now);
            let answer = kept.iter().copied().zip(scores.iter().copied());
            if let Some(node) = chosen(&view.snapshot, pod, answer, sim.now) {
                self.assumed.add(pod, node);
            }
            (kept, scores)
        } else {
            let scores = vec![0; offered.len()];
            (offered, scores)
        };
        let best = scores.iter().max().copied().unwrap_or(0);
        let best: Vec<String> =
            kept.iter().zip(scores).filter(|(_, score)| *score == best).map(|(node, _)| (*node).to_owned()).collect();
        if best.is_empty() {
            let refused = (Arc::from("Unschedulable"), Arc::from("0 nodes are available"));
            let pod = sim.cluster.pods.get_mut(&*pod.key.name).unwrap();
            if pod.unscheduled.is_none() {
                pod.unscheduled = Some(refused);
                sim.cluster.touch();
            }
            return;
        }
        let node = best[sim.rng.random_range(0..best.len())].clone();
        let at = sim.now + SignedDuration::from_millis(sim.rng.random_range(0..1500));
        self.bindings.push(Binding { pod: pod.key.name.to_string(), node, at });
    }
}
