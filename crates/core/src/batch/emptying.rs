//! Nodes for pods of no gang that nobody stands on, and how they go: tainted, looked at once more, terminated.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::case::{Case, Step, Stop, later};
use super::decision::{Converge, Failure, Scratch};
use super::joining::LOOK_SECONDS;
use super::occupants::{KUBELET_RETURNS, is_stuck, pods_on};
use super::parting::{SETTLE_SECONDS, is_kept};
use crate::fit;
use crate::model::batch::{BatchStatus, MemberState};
use crate::model::gang::Pod;
use crate::model::names::{InstanceId, NodeName};
use crate::model::node::Node;
use crate::model::pauses::SCHEDULER_RETRIES;
use crate::model::pod::Shape;

/// Within this time kube-scheduler has tried a pod that came, in real time, unless thousands wait before it.
const HAS_TRIED: SignedDuration = SignedDuration::from_secs(3);
/// So long after its taint a node goes although pods have only just come.
const LATEST_SECONDS: i64 = SETTLE_SECONDS + 5;

/// What emptiness came to.
pub(super) struct Emptied {
    pub(super) edits: Vec<Converge>,
    /// Nodes that nobody stands on.
    pub(super) gone: BTreeSet<InstanceId>,
    /// Nodes without a kubelet, which can never end the pods that were deleted there.
    pub(super) dead: BTreeSet<InstanceId>,
    /// Why it is not known who stands on the others that look empty.
    pub(super) failed: Option<Failure>,
    pub(super) until: Timestamp,
}

/// Nodes that nothing but DaemonSets, mirrors and finished pods stand on go after `consolidateAfter`: tainted, looked at once
/// more without the cache, terminated. A pod that comes meanwhile keeps its node, and so does one that waits and fits. Where the kubelet
/// is gone pods that are being deleted keep a node for five minutes.
pub(super) fn leave(case: &Case<'_>, status: &mut BatchStatus, scratch: &mut Scratch) -> Step<Emptied> {
    let now = case.now();
    let disrupted = case.world.settings.keys.disrupted;
    let mut emptied = Emptied {
        edits: Vec::new(),
        gone: BTreeSet::new(),
        dead: BTreeSet::new(),
        failed: None,
        until: later(now, 30),
    };
    let pool = status.node_pool.clone();
    let quiet = if case.batch.deleting {
        Some(SignedDuration::ZERO)
    } else {
        case.world.supply.consolidate_after(pool.as_deref())
    };
    let Occupied { busy, stuck } = occupied(case, status);
    let mut last_look = Vec::new();
    let waiting = OnceCell::new();
    let waits = |node: &Node, counts: &dyn Fn(&Waiting) -> bool| {
        is_awaited(case, node, waiting.get_or_init(|| waiting_shapes(case)), counts)
    };
    let kept = |id: &InstanceId| is_kept(case, &case.memory.witnessed, id);
    for instance in status.instances.iter_mut().filter(|one| one.state == MemberState::Ready && !one.is_lost(now)) {
        let Some(node) = case.node_of(instance) else { continue };
        // As long as it is kept for the pods that it was launched for it is not empty: what is not there yet comes, or is seen not to.
        // One that this process never saw Ready has no end of that, and takes nobody.
        let awaits = case.world.snapshot.awaiting.get(&node.name).is_some_and(|one| {
            let ends = node.ready || one.until.is_some();
            ends && one.holds(case.world.now_real) && one.could_come_to(&node.allocatable) && !case.batch.deleting
        });
        let pause = quiet.filter(|_| !busy.contains(node.name.as_str()) && !kept(&instance.id) && !awaits);
        let Some(pause) = pause else {
            if node.has_taint(disrupted) {
                emptied.edits.push(Converge::Untaint { node: node.name.to_string(), key: disrupted });
            }
            instance.leaving_since = None;
            instance.empty_since = None;
            continue;
        };
        let is_dead = stuck.contains(node.name.as_str());
        let pause = if is_dead { pause.max(KUBELET_RETURNS) } else { pause };
        let since = *instance.empty_since.get_or_insert(now);
        let due = since.saturating_add(pause).unwrap_or(Timestamp::MAX);
        let was_tried = now.duration_since(since) >= SCHEDULER_RETRIES;
        if due > now {
            emptied.until = emptied.until.min(due);
        } else if !node.has_taint(disrupted) {
            // Perhaps somebody took it off, and pods may have come since.
            instance.leaving_since = None;
            if waits(node, &|one| one.may_be_bound(was_tried)) {
                emptied.until = emptied.until.min(later(now, 10));
            } else {
                let (node, instance) = (node.name.to_string(), instance.id.clone());
                emptied.edits.push(Converge::Taint { node, instance, key: disrupted });
                emptied.until = emptied.until.min(later(now, 2));
            }
        } else {
            let at = *instance.leaving_since.get_or_insert(now);
            let settled = later(at, SETTLE_SECONDS);
            let keeps = !is_dead && !case.batch.deleting;
            let open = keeps.then(|| without(node, disrupted));
            let awaited = |counts: &dyn Fn(&Waiting) -> bool| open.as_ref().is_some_and(|open| waits(open, counts));
            if awaited(&|one| one.waits_for_it(was_tried, now.duration_since(at))) {
                // It waits since the taint, and only for that. kube-scheduler tries it again within some seconds: till then the node has
                // been empty for no time.
                emptied.edits.push(Converge::Untaint { node: node.name.to_string(), key: disrupted });
                instance.leaving_since = None;
                instance.empty_since = None;
            } else if settled > now {
                emptied.until = emptied.until.min(settled);
            } else if later(at, LATEST_SECONDS) > now && awaited(&|one| one.fresh) {
                // Mostly it is bound elsewhere within a moment. Where one comes every second that has to have an end.
                emptied.until = emptied.until.min(later(now, 1));
            } else if is_dead {
                // What the API server has there is known to be deleted.
                emptied.dead.insert(instance.id.clone());
            } else {
                last_look.push((instance.id.clone(), node.name.to_string()));
            }
        }
    }
    if last_look.is_empty() {
        scratch.failed_lists = 0;
        return Ok(emptied);
    }
    // Whom the API server does not show stays, and holds up no other node.
    if let Some(again) =
        scratch.listed.map(|at| later(at, LOOK_SECONDS)).filter(|again| scratch.failed_lists > 0 && *again > now)
    {
        emptied.until = emptied.until.min(again);
        return Ok(emptied);
    }
    let held: BTreeSet<String> = match case.occupied(last_look.iter().map(|(_, node)| node.clone()).collect()) {
        Ok(held) => held.into_iter().collect(),
        Err(Stop::Failed { failure, .. }) => {
            (scratch.listed, scratch.failed_lists) = (Some(now), scratch.failed_lists.saturating_add(1));
            emptied.failed = Some(failure);
            emptied.until = emptied.until.min(later(now, LOOK_SECONDS));
            return Ok(emptied);
        }
        Err(stop) => return Err(stop),
    };
    scratch.failed_lists = 0;
    for (id, node) in last_look {
        if held.contains(&node) {
            emptied.edits.push(Converge::Untaint { node, key: disrupted });
            if let Some(instance) = status.instances.iter_mut().find(|one| one.id == id) {
                instance.leaving_since = None;
                instance.empty_since = None;
            }
        } else {
            emptied.gone.insert(id);
        }
    }
    Ok(emptied)
}

/// The node as it is without a taint.
fn without(node: &Node, key: &str) -> Node {
    let mut node = node.clone();
    node.taints.retain(|taint| *taint.key != *key);
    node
}

/// What nodes of a batch hold.
struct Occupied {
    /// Those that hold a pod, or are planned to.
    busy: BTreeSet<String>,
    /// Those that are not Ready and hold pods that are being deleted.
    stuck: BTreeSet<String>,
}

fn occupied(case: &Case<'_>, status: &BatchStatus) -> Occupied {
    let snapshot = case.world.snapshot;
    let there = pods_on(case, status);
    let (stuck, bound): (Vec<&Pod>, Vec<&Pod>) = there.into_iter().partition(|pod| is_stuck(case, pod));
    let on = |pods: Vec<&Pod>| pods.iter().filter_map(|pod| pod.node.as_ref().map(ToString::to_string)).collect();
    let is_assigned = |name: &str| snapshot.assignments.get(&NodeName::from(name)).is_some_and(|all| !all.is_empty());
    let planned = status.node_names().filter(|name| case.standing.is_nominated(name) || is_assigned(name));
    let (stuck, bound): (BTreeSet<String>, BTreeSet<String>) = (on(stuck), on(bound));
    let busy = bound.into_iter().chain(planned.map(str::to_owned)).collect();
    Occupied { busy, stuck }
}

/// Pods of one shape that wait for a node.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    /// One has only just come: kube-scheduler has not refused it, and may not have tried it.
    fresh: bool,
    /// One was not refused, and not tried again for want of a node either: it has waited for less than kube-scheduler's retries take.
    unrefused: bool,
    /// For how long the youngest waits that kube-scheduler refused or had time to try.
    tried: Option<SignedDuration>,
}

impl Waiting {
    /// Whether kube-scheduler may be about to bind one of them to an empty node. `was_tried`: the node has been empty for so long that
    /// it has tried all pods meanwhile but those that have only just come. Whom it refused then it refuses for a reason that nobody
    /// else knows, and such a pod would keep every node for ever.
    fn may_be_bound(&self, was_tried: bool) -> bool {
        self.fresh || self.unrefused || !was_tried && self.tried.is_some()
    }

    /// Whether one of them waits for a node that was tainted this long ago, and would come to it without that. Who has only just come
    /// does not count: where one pod after the other comes, and is bound elsewhere within a moment, no node would ever go.
    fn waits_for_it(&self, was_tried: bool, tainted: SignedDuration) -> bool {
        // Whom kube-scheduler refused since it refused for the taint.
        let has_come = |age: SignedDuration| age <= tainted.saturating_add(HAS_TRIED);
        self.unrefused || self.tried.is_some_and(|youngest| !was_tried || has_come(youngest))
    }
}

/// What pods of no gang ask for that wait for a node.
fn waiting_shapes<'a>(case: &Case<'a>) -> BTreeMap<&'a Shape, Waiting> {
    let waits = |pod: &&Arc<Pod>| {
        let profile = pod.ours || !pod.foreign.is_other();
        profile && !pod.daemon && pod.foreign_gate.is_none() && pod.claims.awaits.is_none()
    };
    let now = case.world.now_real;
    let mut shapes: BTreeMap<&Shape, Waiting> = BTreeMap::new();
    for pod in case.world.snapshot.pods.unplaced().filter(waits) {
        let Ok(shape) = pod.shape.as_deref() else { continue };
        let waiting = shapes.entry(shape).or_default();
        let age = pod.created.map_or(SignedDuration::MAX, |created| now.duration_since(created));
        if age < HAS_TRIED && !pod.is_unschedulable() {
            waiting.fresh = true;
            continue;
        }
        waiting.unrefused |= age < SCHEDULER_RETRIES && !pod.is_unschedulable();
        waiting.tried = Some(waiting.tried.map_or(age, |youngest| youngest.min(age)));
    }
    shapes
}

/// Whether the node would hold a pod that waits and counts.
fn is_awaited(
    case: &Case<'_>,
    node: &Node,
    waiting: &BTreeMap<&Shape, Waiting>,
    counts: &dyn Fn(&Waiting) -> bool,
) -> bool {
    let Some(entry) = case.world.snapshot.nodes.get(&node.name) else { return false };
    let counted = waiting.iter().filter(|(_, waiting)| counts(waiting));
    counted.map(|(shape, _)| shape).any(|shape| fit::fits(shape, node, &entry.usage).is_ok())
}
