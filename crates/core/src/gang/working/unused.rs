//! Nodes that were provisioned in vain: those that stand ready for a gang which has no plan for them have a clock, whatever it
//! waits for, and what refused its members is not provisioned for them again and again.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Working;
use crate::gang::memory::{Doubted, Note};
use crate::gang::rounds::Kind;
use crate::gang::{Action, BatchStage, BatchView, Pass, PoolView, offers};
use crate::model::gang::{Gang, Phase, Pod};
use crate::model::names::{NodeName, ResourceName};
use crate::model::pod::Shape;
use crate::model::resources::{ATTACHABLE_VOLUMES, Resources};
use crate::planner::plan::GangRequest;

/// What a node is, as the cloud controller labels it.
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

impl Working<'_> {
    /// Gives up the batch of a gang that is still without a plan so long after its nodes were ready: members are missing or held,
    /// kube-scheduler refuses them there, or its plans expire. What is provisioned once it can use it is another round.
    pub(super) fn give_up_unused(&mut self, gang: &Gang, next: &Gang, pass: &mut Pass) {
        let Some(batch) = self.waits_unplanned(next) else { return };
        let within = self.world.settings.plan_within;
        let Some(since) = batch.since else { return };
        if self.world.now.duration_since(since) < within {
            return self.requeue(pass, Some(since), within);
        }
        let given_up = |action: &Action| matches!(action, Action::AbandonBatch { name, .. } if *name == batch.name);
        if pass.actions.iter().any(given_up) {
            return;
        }
        let waits = next.waiting.as_ref().or(gang.waiting.as_ref()).map_or("", |waiting| &*waiting.message);
        let why = format!(
            "the nodes of NodeBatch {} have been ready for {} minutes and the gang has no plan for them: they are terminated, and \
             others provisioned once it can use them; {waits}",
            batch.name,
            within.as_mins(),
        );
        let name = Arc::clone(&batch.name);
        pass.actions.push(Action::AbandonBatch { name: Arc::clone(&name), why: Some(Arc::from(why)) });
        if matches!(next.phase, Some(Phase::Waiting | Phase::Provisioning)) {
            // The gang was whole, so the nodes were not what it could use.
            self.note_refused(gang, &name, pass);
        }
    }

    /// Notes that the nodes of a batch hold less than they were provisioned for, if that is why the gang does not fit: as where
    /// kubelets or drivers leave less of a node than its type suggests. Where nodes come up is luck, and says nothing of their
    /// type.
    pub(super) fn note_too_small(&mut self, gang: &Gang, batch: &BatchView, request: &GangRequest, pass: &mut Pass) {
        let levels = self.world.levels;
        let mut asked = request.clone();
        asked.topology_requests = offers::of_hosts(request, levels);
        if asked.topology_requests.required.is_none() {
            // The nodes of a batch are in one zone.
            asked.topology_requests.required = request.topology_requests.required.min(levels.zone());
        }
        if asked.topology_requests != request.topology_requests {
            let (plan, report) = self.plan_on(Doubted::Offered, &asked, gang, pass);
            if report.refusal.is_none() && !plan.places.is_empty() {
                return;
            }
        }
        self.note_refused(gang, &batch.name, pass);
    }

    fn note_refused(&mut self, gang: &Gang, batch: &Arc<str>, pass: &mut Pass) {
        for kind in self.kinds_waiting(gang) {
            self.note(Note::RoundRefused { gang: gang.key.clone(), batch: Arc::clone(batch), kind }, pass);
        }
    }

    /// Types of the nodes that are kept for the gang, with what its members ask for.
    fn kinds_waiting(&self, gang: &Gang) -> Vec<Kind> {
        let taint = self.world.settings.pending_taint;
        let nodes = self.snapshot.nodes.values().map(|entry| &entry.node);
        let own = nodes.filter(|node| node.taints.iter().any(|one| *one.key == *taint && one.value == gang.uid));
        let types: BTreeSet<Arc<str>> = own.filter_map(|node| node.labels.get(INSTANCE_TYPE).cloned()).collect();
        let mut shapes: Vec<Arc<Shape>> =
            self.snapshot.live_members(&gang.key).filter_map(|pod| self.bare_shape(pod)).collect();
        shapes.sort_unstable();
        shapes.dedup();
        types.iter().flat_map(|kind| shapes.iter().map(|shape| (Arc::clone(kind), Arc::clone(shape)))).collect()
    }

    /// The batch that is ready for a gang without a plan.
    fn waits_unplanned(&self, next: &Gang) -> Option<&BatchView> {
        match next.phase? {
            Phase::Collecting | Phase::Waiting | Phase::Provisioning | Phase::Invalid | Phase::Unsatisfiable => {}
            Phase::Planned | Phase::Released | Phase::Committing | Phase::Bound | Phase::Degraded | Phase::Finished => {
                return None;
            }
        }
        let batch = self.world.batches.get(next.batch.as_ref()?)?;
        (batch.stage == BatchStage::Ready).then_some(batch)
    }

    /// Forgets what is held against nodes on which every member of the gang runs.
    pub(super) fn served(&mut self, next: &Gang, members: &[Arc<Pod>], pass: &mut Pass) {
        let rounds = self.memory.rounds();
        if rounds.is_empty()
            || next.phase != Some(Phase::Bound)
            || members.is_empty()
            || !members.iter().all(|pod| pod.running)
        {
            return;
        }
        let kind = |pod: &Arc<Pod>| Some((self.instance_type(pod.node.as_ref()?)?, self.bare_shape(pod)?));
        let mut kinds: Vec<Kind> =
            members.iter().filter_map(kind).filter(|(kind, shape)| rounds.knows(kind, shape)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        if !kinds.is_empty() || rounds.of_gang(&next.key).is_some() {
            self.note(Note::Served { gang: next.key.clone(), kinds }, pass);
        }
    }

    /// The instance type of a node.
    pub(in crate::gang) fn instance_type(&self, node: &NodeName) -> Option<Arc<str>> {
        self.snapshot.nodes.get(node)?.node.labels.get(INSTANCE_TYPE).cloned()
    }
}

impl<'a> Working<'a> {
    /// Pools as they sell to this gang: without types whose nodes refused such members again and again, and of each node to
    /// come with as many volumes as nodes of its type attach.
    pub(super) fn open_pools(&self, request: &GangRequest) -> Cow<'a, [PoolView]> {
        let pools = self.world.pools;
        let limits = self.volume_limits(request);
        if self.memory.rounds().is_empty() && limits.is_empty() {
            return Cow::Borrowed(pools);
        }
        let shapes: Vec<Shape> = request.roles.iter().map(|role| self.without_pending(&role.shape)).collect();
        let mut pools = pools.to_vec();
        for kind in pools.iter_mut().flat_map(|pool| &mut pool.types) {
            let closed = |shape: &Shape| self.memory.closed(&kind.name, shape, self.world.now);
            kind.refused = shapes.iter().filter_map(closed).max();
            if let Some(limits) = limits.get(&kind.name) {
                let node = Arc::make_mut(&mut kind.node);
                let unknown = |name: &ResourceName| node.allocatable.get(name.as_str()) == 0;
                let limits: Resources =
                    limits.iter().filter(|(name, _)| unknown(name)).map(|(name, most)| (name.clone(), most)).collect();
                node.allocatable.add(&limits);
            }
        }
        Cow::Owned(pools)
    }

    /// How many volumes of the drivers that a gang's members need nodes attach, by instance type: the fewest of those that run,
    /// since what a driver reports of a node depends on its network interfaces too. A type that never ran is not known.
    fn volume_limits(&self, request: &GangRequest) -> BTreeMap<Arc<str>, Resources> {
        let requests = request.roles.iter().flat_map(|role| role.shape.requests.iter());
        let drivers: BTreeSet<&ResourceName> =
            requests.map(|(name, _)| name).filter(|name| name.as_str().starts_with(ATTACHABLE_VOLUMES)).collect();
        let mut limits: BTreeMap<Arc<str>, Resources> = BTreeMap::new();
        if drivers.is_empty() {
            return limits;
        }
        for entry in self.snapshot.nodes.values() {
            let Some(kind) = entry.node.labels.get(INSTANCE_TYPE) else { continue };
            for driver in &drivers {
                let most = entry.node.allocatable.get(driver.as_str());
                if most > 0 {
                    let least = limits.entry(Arc::clone(kind)).or_default();
                    let known = least.get(driver.as_str());
                    least.set((*driver).clone(), if known > 0 { known.min(most) } else { most });
                }
            }
        }
        limits
    }
}
