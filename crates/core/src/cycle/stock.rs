//! What a gang may use: nodes with everybody else's promises counted, and whether a plan still holds on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::Pass;
use super::request::{Pending, RequestError, Wanted, build_request};
use super::watchdog::digest;
use super::working::Working;
use crate::gang::{Gang, Phase, Pod, Recognised};
use crate::names::{NodeName, ObjectKey, PodUid};
use crate::plan::{GangRequest, Host, Plan, Problem, Report, SearchBudget, Seed};
use crate::snapshot::Snapshot;
use crate::{check, planner};

impl Working<'_> {
    /// Why the plan no longer holds on this snapshot, if so.
    pub(super) fn stale(&self, gang: &Gang, wanted: &Wanted) -> Option<String> {
        if gang.minimum != wanted.needed {
            return Some(format!("the gang needs {} members now, not {}", wanted.needed, gang.minimum));
        }
        if gang.shape.as_ref().is_some_and(|shape| *shape != digest(wanted, self.world.settings.pending_taint)) {
            return Some("members need something else than when the plan was made".to_owned());
        }
        for place in &gang.places {
            let pod = place.uid.as_ref().and_then(|uid| self.snapshot.pods.get(uid));
            if let Some(pod) = pod
                && let Some(node) = pod.node.as_ref().filter(|node| **node != place.node && pod.is_live())
            {
                // Adopted where it is: a binding is final.
                return Some(format!("pod {} was bound to node {node} by somebody else", pod.key.name));
            }
            if pod.is_some_and(|pod| pod.node.is_some() || pod.ended) {
                continue;
            }
            let Some(entry) = self.snapshot.nodes.get(&place.node) else {
                return Some(format!("planned node {} is gone", place.node));
            };
            if !entry.node.ready || entry.node.deleting || entry.node.unschedulable {
                return Some(format!("planned node {} is no longer ready", place.node));
            }
        }
        let refused = wanted.request.roles.iter().find_map(|role| {
            gang.places
                .iter()
                .filter(|place| place.role == role.name)
                .filter(|place| {
                    let pod = place.uid.as_ref().and_then(|uid| self.snapshot.pods.get(uid));
                    pod.is_none_or(|pod| pod.node.is_none() && !pod.ended)
                })
                .find(|place| self.is_excluded(&place.node, &role.shape))
        });
        if let Some(place) = refused {
            return Some(format!("kube-scheduler refused such a pod on planned node {} lately", place.node));
        }
        // Members of the same gang on one node must fit there together, beside everybody else.
        let shape = wanted.request.roles.first().map(|role| &role.shape)?;
        let own = self.own_keys(&gang.key);
        let mut per_node: BTreeMap<&NodeName, u32> = BTreeMap::new();
        for place in &gang.places {
            let pod = place.uid.as_ref().and_then(|uid| self.snapshot.pods.get(uid));
            if pod.is_none_or(|pod| pod.node.is_none() && !pod.ended) {
                *per_node.entry(&place.node).or_default() += 1;
            }
        }
        for (node, wanted) in per_node {
            let Some(host) = self.host(node, &own) else {
                return Some(format!("planned node {node} belongs to another gang"));
            };
            match crate::fit::slots(shape, &host.node, &host.usage) {
                Ok(slots) if slots >= wanted => {}
                Ok(slots) => return Some(format!("planned node {node} holds {slots} of {wanted} members")),
                Err(misfit) => return Some(format!("planned node {node}: {misfit}")),
            }
        }
        None
    }

    pub(super) fn request(
        &self,
        recognised: &Recognised,
        gang: &Gang,
        members: &[Arc<Pod>],
    ) -> Result<Wanted, RequestError> {
        let values = self.tolerated(gang, recognised);
        let pending = Pending { taint: self.world.settings.pending_taint, values: &values };
        let done = self.done(gang);
        // After the commit point members that wait for their binding are not moved, unless their node is gone.
        let started = matches!(gang.phase, Some(Phase::Committing | Phase::Bound | Phase::Degraded));
        let lost = self.lost_in_tree(gang);
        let fixed: BTreeSet<PodUid> = gang
            .places
            .iter()
            .filter(|place| started && self.snapshot.nodes.contains_key(&place.node))
            .filter_map(|place| place.uid.clone())
            .filter(|uid| !lost.contains(uid))
            .collect();
        build_request(recognised, gang, (members, &done), &fixed, self.world.levels, &pending)
    }

    /// Members that succeeded in this run: those of the plan, or, while there is none, beside members still bound. What
    /// succeeded in an earlier run of the same name is history.
    pub(super) fn done(&self, gang: &Gang) -> Vec<Arc<Pod>> {
        let running = || self.snapshot.live_members(&gang.key).any(|pod| pod.node.is_some());
        let beside_bound = gang.places.is_empty() && running();
        self.snapshot
            .all_members(&gang.key)
            .filter(|pod| pod.is_done() && (beside_bound || gang.place_of(&pod.uid).is_some()))
            .cloned()
            .collect()
    }

    /// Until when no further round is bought: a round that was bought and did not hold the gang must not be followed
    /// by another at once.
    pub(super) fn round_pause(&self, gang: &Gang) -> Option<Timestamp> {
        if gang.round == 0 || gang.phase != Some(Phase::Waiting) {
            return None;
        }
        let doublings = gang.round.saturating_sub(1).min(5);
        let pause = self.world.settings.round_pause.saturating_mul(1 << doublings);
        gang.since?.saturating_add(pause).ok()
    }

    /// Values of the pending taint that belong to the gang: its own UID, or that of its booking.
    pub(super) fn tolerated(&self, gang: &Gang, recognised: &Recognised) -> Vec<Arc<str>> {
        let booking = recognised.booking.as_ref().and_then(|name| {
            self.world.bookings.get(&ObjectKey::new(Arc::clone(&gang.key.namespace), Arc::clone(name)))
        });
        std::iter::once(Arc::clone(&gang.uid)).chain(booking.cloned()).collect()
    }

    pub(super) fn plan(&self, request: &GangRequest, gang: &Gang, pass: &mut Pass) -> (Plan, Report) {
        let own = self.own_keys(&gang.key);
        let problem = Problem {
            levels: self.world.levels.clone(),
            hosts: self
                .snapshot
                .nodes
                .keys()
                .filter(|node| {
                    let excluded = |role: &crate::plan::Role| self.is_excluded(node, &role.shape);
                    let holds = |role: &crate::plan::Role| role.places.iter().any(|p| p.bound.as_ref() == Some(*node));
                    // A node that holds a member stays: the plan is made around it.
                    !request.roles.iter().any(excluded) || request.roles.iter().any(holds)
                })
                .filter_map(|node| self.host(node, &own))
                .map(|host| self.with_fixed(host, request))
                .collect(),
            gang: request.clone(),
        };
        pass.plans = pass.plans.saturating_add(1);
        let (mut plan, report) =
            planner::plan(&problem, &self.world.settings.policy, SearchBudget::default(), Seed::default());
        let fatal: Vec<String> = if plan.places.is_empty() {
            Vec::new()
        } else {
            check::check(&problem, &plan)
                .into_iter()
                .filter(|note| note.severity == check::Severity::Fatal)
                .map(|note| note.to_string())
                .collect()
        };
        if !fatal.is_empty() {
            // A plan with a fatal note is never executed; the gang waits, and the bug is reported.
            pass.refused_plans.push((gang.key.clone(), fatal));
            plan.places.clear();
        }
        (plan, report)
    }

    /// Keys under which the gang holds promises: its own, and that of its booking.
    pub(super) fn own_keys(&self, gang: &ObjectKey) -> Vec<ObjectKey> {
        let booking = self.snapshot.recognised.get(gang).and_then(|recognised| recognised.booking.clone());
        let booking = booking.map(|name| Snapshot::booking_key(&gang.namespace, &name));
        std::iter::once(gang.clone()).chain(booking).collect()
    }

    /// A node as the gang may use it: what is promised to others counts as used. `None` if it is theirs alone.
    pub(super) fn host(&self, node: &NodeName, own: &[ObjectKey]) -> Option<Host> {
        let entry = self.snapshot.nodes.get(node)?;
        let promised = self.snapshot.promised_to_others(node, own)?;
        let usage = if promised.is_empty() {
            Arc::clone(&entry.usage)
        } else {
            let mut usage = crate::node::Usage::clone(&entry.usage);
            usage.requested.add(&promised);
            Arc::new(usage)
        };
        Some(Host { node: Arc::clone(&entry.node), usage })
    }

    /// A host with what the gang's fixed members will hold there: they are not in its usage before their bindings are
    /// seen, and the gang's own promises are not counted.
    fn with_fixed(&self, host: Host, request: &GangRequest) -> Host {
        let Some(role) = request.roles.first() else { return host };
        let coming = role
            .places
            .iter()
            .filter(|place| place.bound.as_ref() == Some(&host.node.name))
            .filter_map(|place| self.snapshot.pods.get(place.uid.as_ref()?))
            .filter(|pod| pod.node.is_none())
            .count();
        if coming == 0 {
            return host;
        }
        let mut usage = crate::node::Usage::clone(&host.usage);
        for _ in 0..coming {
            usage.requested.add(&role.shape.requests);
            usage.ports.extend(role.shape.ports.iter().cloned());
        }
        Host { node: host.node, usage: Arc::new(usage) }
    }

    pub(super) fn fits_on_empty_cluster(&self, request: &GangRequest, pass: &mut Pass) -> bool {
        let problem = Problem {
            levels: self.world.levels.clone(),
            hosts: self
                .snapshot
                .nodes
                .values()
                .map(|entry| Host { node: Arc::clone(&entry.node), usage: Arc::default() })
                .collect(),
            gang: request.clone(),
        };
        pass.plans = pass.plans.saturating_add(1);
        let (plan, report) =
            planner::plan(&problem, &self.world.settings.policy, SearchBudget::default(), Seed::default());
        report.refusal.is_none() && !plan.places.is_empty()
    }
}
