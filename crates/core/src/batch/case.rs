//! One batch while it is decided about: what is known of it, and the ways a decision ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::decision::{BatchEvent, Change, Converge, Decision, Failure, Look, Made, Memory, Note, Scratch, Sight};
use super::decision::{Requeue, Working, World};
use super::join::JoinCause;
use super::settle::pause_of;
use super::standing::Standing;
use crate::ec2::error::{CallError, ErrorClass};
use crate::ec2::seen::{Instance, PlacementGroup};
use crate::model::batch::{Batch, BatchMember, BatchStatus, ConditionKind};
use crate::model::event::GangEvent;
use crate::model::launch::LaunchAnswer;
use crate::model::names::{InstanceId, NodeName};
use crate::model::node::Node;
use crate::model::tags::{BatchTags, Tags};

/// What a kubelet has to register in, from when the API server answers again.
const REGAINED: SignedDuration = SignedDuration::from_mins(5);

/// One batch and everything that may be looked at for it.
#[derive(Clone, Copy)]
pub(super) struct Case<'a> {
    pub(super) batch: &'a Batch,
    pub(super) memory: &'a Memory,
    pub(super) world: &'a World<'a>,
    pub(super) others: &'a Working,
    pub(super) standing: &'a Standing<'a>,
}

/// Why a decision is not complete.
pub(super) enum Stop {
    /// Something has to be read first.
    Look(Look),
    /// Something has to be changed first.
    Change(Box<Turn>),
    /// What was read or carried out failed. `done`: it was the change itself, which is carried out again.
    Failed {
        /// What.
        failure: Failure,
        /// Whether the outcome of the last change is used up.
        done: bool,
    },
}

/// What a decision consists of.
#[derive(Default)]
pub(super) struct Turn {
    pub(super) next: Option<BatchStatus>,
    pub(super) change: Option<Change>,
    pub(super) converge: Vec<Converge>,
    pub(super) notes: Vec<Note>,
    pub(super) events: Vec<BatchEvent>,
    pub(super) requeue: Option<Requeue>,
    pub(super) scratch: Option<Scratch>,
}

/// The answer of a step of a decision.
pub(super) type Step<T> = Result<T, Stop>;

impl Turn {
    /// A status, and on at once.
    pub(super) fn write(next: BatchStatus) -> Self {
        Self { next: Some(next), ..Self::default() }
    }

    /// Nothing but waiting.
    pub(super) fn wait(requeue: Requeue) -> Self {
        Self { requeue: Some(requeue), ..Self::default() }
    }

    pub(super) fn requeue(mut self, requeue: Requeue) -> Self {
        self.requeue = Some(requeue);
        self
    }

    pub(super) fn note(mut self, note: Note) -> Self {
        self.notes.push(note);
        self
    }

    pub(super) fn converge(mut self, edits: impl IntoIterator<Item = Converge>) -> Self {
        self.converge.extend(edits);
        self
    }

    pub(super) fn scratch(mut self, scratch: Scratch) -> Self {
        self.scratch = Some(scratch);
        self
    }

    /// An event on the batch.
    pub(super) fn event(mut self, reason: &'static str, message: String, warning: bool) -> Self {
        self.events.push(BatchEvent { pool: None, event: GangEvent { reason, message, warning } });
        self
    }

    /// An event on a pool.
    pub(super) fn pool_event(mut self, pool: &str, reason: &'static str, message: String, warning: bool) -> Self {
        self.events.push(BatchEvent { pool: Some(pool.to_owned()), event: GangEvent { reason, message, warning } });
        self
    }
}

impl<'a> Case<'a> {
    pub(super) fn now(&self) -> Timestamp {
        self.world.now
    }

    pub(super) fn status(&self) -> BatchStatus {
        self.batch.status.clone()
    }

    pub(super) fn tags(&self, attempt: u32) -> BatchTags {
        BatchTags {
            cluster_uid: self.world.settings.cluster_uid.clone(),
            cluster_name: self.world.settings.cluster_name.clone(),
            batch_uid: self.batch.uid.clone(),
            gang_uid: self.batch.spec.owner.gang_uid().map(str::to_owned),
            attempt,
        }
    }

    /// Tags of everything the batch ever launched.
    pub(super) fn tags_of_all(&self) -> Tags {
        let mut tags = self.tags(0).sweep();
        tags.remove(crate::model::tags::TAG_ATTEMPT);
        tags
    }

    // ---- Looks -----------------------------------------------------------------------------------------------------

    /// The answer to a look, or the ask for it.
    fn look(&self, look: Look) -> Step<Result<&'a Sight, &'a CallError>> {
        match self.memory.seen.get(&look) {
            Some(answer) => Ok(answer.as_ref()),
            None => Err(Stop::Look(look)),
        }
    }

    fn sight(&self, look: Look) -> Step<&'a Sight> {
        self.look(look)?.map_err(|error| failed(error, false))
    }

    /// Instances by id; those EC2 does not know are missing.
    pub(super) fn instances(&self, ids: &[InstanceId]) -> Step<Vec<Instance>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        Ok(match self.sight(Look::Instances(ids.to_vec()))? {
            Sight::Instances(instances) => instances.clone(),
            _other => Vec::new(),
        })
    }

    /// Instances by tags.
    pub(super) fn tagged(&self, tags: Tags) -> Step<Vec<Instance>> {
        Ok(match self.sight(Look::Tagged(tags))? {
            Sight::Instances(instances) => instances.clone(),
            _other => Vec::new(),
        })
    }

    /// What a fleet launched.
    pub(super) fn fleet(&self, id: &str) -> Step<Option<LaunchAnswer>> {
        Ok(match self.sight(Look::Fleet(id.to_owned()))? {
            Sight::Fleet(answer) => answer.clone(),
            _other => None,
        })
    }

    /// A placement group.
    pub(super) fn group(&self, name: &str) -> Step<Option<PlacementGroup>> {
        Ok(match self.sight(Look::Group(name.to_owned()))? {
            Sight::Group(group) => group.clone(),
            _other => None,
        })
    }

    /// Where instances lie; `None` if EC2 does not answer: labels of the nodes tell the same later.
    pub(super) fn topology(
        &self,
        group: Option<String>,
        ids: &[InstanceId],
    ) -> Step<Option<&'a BTreeMap<InstanceId, Vec<String>>>> {
        Ok(match self.look(Look::Topology { group, ids: ids.to_vec() })? {
            Ok(Sight::Topology(places)) => Some(places),
            Ok(_) | Err(_) => None,
        })
    }

    /// What the console of the first of these that never registered ends with, in a sentence; empty if all of them did. The right
    /// to read it is optional: whatever comes of it, the batch goes on.
    pub(super) fn console(&self, failed: &BTreeMap<InstanceId, JoinCause>) -> Step<String> {
        let mut mute = failed.iter().filter(|(_, cause)| **cause == JoinCause::NeverRegistered);
        let Some((id, _)) = mute.next() else { return Ok(String::new()) };
        Ok(match self.look(Look::Console(id.clone()))? {
            Ok(Sight::Console(Some(lines))) => format!("; the console of {id} ends: \"{lines}\""),
            Ok(_) => format!("; the console of {id} is empty"),
            Err(error) if error.kind == ErrorClass::Permission => {
                format!("; the console of {id} is not shown, since ec2:GetConsoleOutput is not allowed")
            }
            Err(error) => {
                format!("; the console of {id} is not shown ({})", error.code.as_deref().unwrap_or("no answer"))
            }
        })
    }

    /// Names of DaemonSets that do not tolerate the taints of some nodes; none if they cannot be read.
    pub(super) fn intolerant_daemon_sets(&self, nodes: Vec<String>) -> Step<Vec<String>> {
        Ok(match self.look(Look::IntolerantDaemonSets(nodes))? {
            Ok(Sight::Names(names)) => names.clone(),
            Ok(_) | Err(_) => Vec::new(),
        })
    }

    /// Which of these nodes hold a pod that does not belong to its node, as the API server has it now.
    pub(super) fn occupied(&self, nodes: Vec<String>) -> Step<Vec<String>> {
        Ok(match self.sight(Look::Occupied(nodes))? {
            Sight::Names(names) => names.clone(),
            _other => Vec::new(),
        })
    }

    /// Something that is read into where everybody finds it; a failure leaves what was read last.
    pub(super) fn refresh(&self, look: Look) -> Step<()> {
        self.look(look).map(drop)
    }

    /// Whether the owner exists and has not ended, as the API server says.
    pub(super) fn owner_lives(&self, look: super::decision::OwnerLook) -> Step<bool> {
        Ok(match self.sight(Look::Owner(look))? {
            Sight::Owner(lives) => *lives,
            _other => true,
        })
    }

    // ---- Changes ---------------------------------------------------------------------------------------------------

    /// The change that was carried out last, if it is this one.
    pub(super) fn outcome(&self, change: &Change) -> Option<&'a Result<Made, CallError>> {
        self.memory.done.as_ref().filter(|done| done.change == *change).map(|done| &done.result)
    }

    /// The outcome of a change, or the ask for it, after `next` is written.
    pub(super) fn change(&self, change: Change, next: Option<BatchStatus>) -> Step<&'a Result<Made, CallError>> {
        match self.outcome(&change) {
            Some(result) => Ok(result),
            None => Err(Stop::Change(Box::new(Turn { next, change: Some(change), ..Turn::default() }))),
        }
    }

    /// Whether the last change was a termination.
    pub(super) fn has_terminated(&self) -> Option<usize> {
        match &self.memory.done.as_ref()?.change {
            Change::Terminate(ids) => Some(ids.len()),
            Change::CreateGroup { .. }
            | Change::DeleteGroup(_)
            | Change::CreateTemplate(_)
            | Change::DeleteTemplates(_)
            | Change::Launch { .. }
            | Change::DeleteFinishedFleets => None,
        }
    }

    /// How long the nodes of one launch have, from the launch until they are ready.
    pub(super) fn join_budget(&self, status: &BatchStatus) -> SignedDuration {
        let join = self.world.supply.join(status.node_pool.as_deref());
        join.register_within.saturating_add(join.ready_within)
    }

    /// No clock of a node that joins ends before: where the API server was away kubelets could not register, and try again by
    /// themselves. Of a node that was launched so long ago that its clocks would have run out twice they do, however often the API
    /// server was away.
    pub(super) fn no_clock_ends_before(&self, launched: Timestamp, status: &BatchStatus) -> Timestamp {
        let again = self.world.regained.and_then(|at| at.checked_add(REGAINED).ok()).unwrap_or(Timestamp::MIN);
        let most = launched.saturating_add(self.join_budget(status).saturating_mul(2)).unwrap_or(Timestamp::MAX);
        again.min(most)
    }

    // ---- Nodes -----------------------------------------------------------------------------------------------------

    /// A Node of the cluster.
    pub(super) fn node(&self, name: &str) -> Option<&'a Arc<Node>> {
        self.world.snapshot.nodes.get(&NodeName::from(name)).map(|entry| &entry.node)
    }

    /// Whether the Node of this name is there and Ready: its kubelet ends the pods that are deleted there.
    pub(super) fn is_ready(&self, name: &NodeName) -> bool {
        self.world.snapshot.nodes.get(name).is_some_and(|entry| entry.node.ready)
    }

    /// The Node of an instance. One of its name that is another instance's is not: names made of addresses come back.
    pub(super) fn node_of(&self, instance: &BatchMember) -> Option<&'a Arc<Node>> {
        self.node(instance.node.as_deref()?).filter(|node| node.is_of(&instance.id))
    }

    /// The edit that keeps new pods off the node of an instance, if it is needed.
    pub(super) fn taint(&self, instance: &BatchMember) -> Option<Converge> {
        let key = self.world.settings.keys.disrupted;
        let node = self.node_of(instance)?;
        let lacks = node.taints.iter().all(|taint| *taint.key != *key);
        lacks.then(|| Converge::Taint { node: node.name.to_string(), instance: instance.id.clone(), key })
    }

    /// The edit that deletes the Node of an instance that has ended, if it is there.
    pub(super) fn delete_node(&self, instance: &BatchMember) -> Option<Converge> {
        let node = self.node_of(instance)?.name.to_string();
        Some(Converge::DeleteNode { node, instance: instance.id.clone() })
    }
}

/// A failed call as the end of a decision.
pub(super) fn failed(error: &CallError, done: bool) -> Stop {
    Stop::Failed { failure: Failure { text: error.to_string(), denied: error.kind == ErrorClass::Permission }, done }
}

/// An outcome that can only have succeeded, or is tried again.
pub(super) fn done(result: &Result<Made, CallError>) -> Step<()> {
    result.as_ref().map(drop).map_err(|error| failed(error, true))
}

/// `seconds` later.
pub(super) fn later(now: Timestamp, seconds: i64) -> Timestamp {
    now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// What is reported on a batch that cannot get past something begins so.
const KEEPS_FAILING: &str = "a step keeps failing and is tried again";
/// Failures in a row after which it is reported.
pub(super) const FAILURES: u32 = 3;

/// The decision after something failed: the same again, after a pause that grows.
pub(super) fn failing(case: &Case<'_>, failure: &Failure, done: bool) -> Decision {
    let failures = case.memory.failures.saturating_add(1);
    let mut next = case.status();
    report(case, &mut next, failure, failures);
    Decision {
        next: (next != case.batch.status).then_some(next),
        used: done,
        ..nothing(case, Requeue::Retry(pause_of(failures)))
    }
}

/// Writes down what failed, so often in a row.
pub(super) fn report(case: &Case<'_>, next: &mut BatchStatus, failure: &Failure, failures: u32) {
    if failure.denied {
        let message = case.world.supply.lacks(next.node_pool.as_deref()).unwrap_or_else(|| failure.text.clone());
        next.set(ConditionKind::Authorized, false, "NotAuthorized", &message, case.world.now_real);
    }
    if failures >= FAILURES && !keeps_failing(next) {
        next.message = Some(format!("{KEEPS_FAILING}: {}", failure.text));
    }
}

/// Whether that is what its message says.
pub(super) fn keeps_failing(status: &BatchStatus) -> bool {
    status.message.as_deref().is_some_and(|stated| stated.starts_with(KEEPS_FAILING))
}

/// The decision that nothing is to be done before then; what came back, reports too, is kept.
pub(super) fn nothing(case: &Case<'_>, requeue: Requeue) -> Decision {
    Decision {
        batch: case.batch.name.clone(),
        next: None,
        change: None,
        converge: Vec::new(),
        looks: Vec::new(),
        notes: Vec::new(),
        events: Vec::new(),
        requeue,
        scratch: case.memory.scratch,
        used: false,
        succeeded: false,
        reports: 0,
    }
}

/// Takes back what [`failing`] reported, now that a decision was possible.
pub(super) fn recovered(case: &Case<'_>, turn: &mut Turn) {
    let scratch = turn.scratch.as_ref().unwrap_or(&case.memory.scratch);
    if scratch.failures() > 0 {
        return;
    }
    let status = turn.next.as_ref().unwrap_or(&case.batch.status);
    let stated = keeps_failing(status);
    let denied = status.conditions.iter().any(|one| one.kind == ConditionKind::Authorized && one.status == Some(false));
    if !stated && !denied {
        return;
    }
    let next = turn.next.get_or_insert_with(|| case.status());
    if stated {
        next.message = None;
    }
    if denied {
        next.set(ConditionKind::Authorized, true, "Authorized", "", case.world.now_real);
    }
}
