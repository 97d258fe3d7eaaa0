//! What the pass over NodeBatches reads and what it answers: data on both sides.
//!
//! Three kinds of effects. A [`Change`] alters something in EC2: one at a time per batch, begun only after the status
//! that names it is acknowledged, and its outcome is kept until a status has used it; one that is open when a process
//! ends is carried out again with the same bytes. A [`Converge`] brings an object of the API server where it should be:
//! idempotent, repeated until it is seen. A [`Look`] reads; its answer serves one decision.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::ec2::error::{CallError, ErrorClass};
use crate::ec2::seen::{Instance, PlacementGroup};
use crate::ec2::template::TemplateSpec;
use crate::model::batch::{Attempt, Batch, BatchStatus, Loss, OwnerRef};
use crate::model::event::GangEvent;
use crate::model::launch::Pool;
use crate::model::launch::{CapacityType, LaunchAnswer, LaunchParameters};
use crate::model::names::{InstanceId, ResourceName};
use crate::model::node::Taint;
use crate::model::pairs;
use crate::model::resources::Resources;
use crate::model::snapshot::Snapshot;
use crate::model::tags::{BatchTags, Tags};
use crate::model::words::{self, Word};
use crate::offering::rank::Ranking;
use crate::topology::Level;

/// Everything a pass may look at.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// All batches by name, what was written and not yet seen included.
    pub batches: &'a BTreeMap<String, Arc<Batch>>,
    /// What came back for each batch since its last write.
    pub memory: &'a BTreeMap<String, Memory>,
    /// Batches whose decision is being carried out: nothing is decided about them, and they count as they are.
    pub busy: &'a BTreeSet<String>,
    /// The cluster.
    pub snapshot: &'a Snapshot,
    /// What is known of the cluster is too old to be trusted: only what needs none of it is decided.
    pub stale: bool,
    /// When it could be seen again after it could not, by the provisioner's clock: no kubelet could register before.
    pub regained: Option<Timestamp>,
    /// What pools and classes offer.
    pub supply: &'a dyn Supply,
    /// What holds for all batches.
    pub settings: &'a Settings,
    /// Now, by the provisioner's clock.
    pub now: Timestamp,
    /// Now, by the wall clock.
    pub now_real: Timestamp,
}

impl std::fmt::Debug for World<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("batches", &self.batches.len()).field("now", &self.now).finish_non_exhaustive()
    }
}

/// What holds for all batches.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// UID of the namespace `kube-system`.
    pub cluster_uid: String,
    /// Name of the cluster.
    pub cluster_name: String,
    /// First back-off after a round without capacity.
    pub back_off: SignedDuration,
    /// Everything is decided and reported, and nothing is launched.
    pub dry_run: bool,
    /// Label of the capacity type and the like: keys are constants of `muster-api`, handed in.
    pub keys: Keys,
}

/// Label and taint keys the decisions need; spelt out in `muster_api::keys` alone.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Keys {
    /// Taint of a node that waits for its gang.
    #[serde(deserialize_with = "words::read")]
    pub gang_pending: Word,
    /// Taint of a node that is terminated.
    #[serde(deserialize_with = "words::read")]
    pub disrupted: Word,
    /// Taint of a node that is not matched to its batch yet.
    #[serde(deserialize_with = "words::read")]
    pub unregistered: Word,
    /// Label of a booking.
    #[serde(deserialize_with = "words::read")]
    pub booking: Word,
    /// Label of the placement group.
    #[serde(deserialize_with = "words::read")]
    pub placement_group: Word,
    /// Label of the zone.
    #[serde(deserialize_with = "words::read")]
    pub zone: Word,
    /// Prefix of the labels of network layers.
    #[serde(deserialize_with = "words::read")]
    pub network_layer_prefix: Word,
}

/// Batches as this pass leaves them: what was decided earlier in it counts for what is decided later.
pub type Working = BTreeMap<String, Arc<Batch>>;

/// Which batches that have not begun go before the one that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Those that are older.
    Older,
    /// None.
    Nobody,
}

/// What NodePools and EC2NodeClasses say. Every answer is a function of the published state and of what launches have
/// taught so far; nothing is asked of anybody.
pub trait Supply {
    /// Why none of the batch's pools can be launched from now; `None` if one can.
    fn unready(&self, batch: &Batch) -> Option<String>;
    /// The first of its pools that nothing but a join block stands against, and of which a node may still be tried alone; if there is
    /// none, the first of those of which none may.
    fn blocked_pool(&self, batch: &Batch) -> Option<String>;
    /// Whether a pool carries the block that this batch found.
    fn is_blocked_by(&self, pool: &str, batch: &str) -> bool;
    /// Whether a pool carries any join block.
    fn is_blocked(&self, pool: &str) -> bool;
    /// Nodes that were tried alone since the pool was blocked.
    fn probes(&self, pool: &str) -> Probes;
    /// What one node of a pool and type takes of limits; `None` of a type that nobody knows.
    fn takes(&self, pool: &str, instance_type: &str) -> Option<Resources>;
    /// What keeps pools of the batch from being launched from, whatever EC2 has.
    fn problems(&self, batch: &Batch) -> Vec<String>;
    /// Generations of the pools and classes of a batch, as one text.
    fn generations(&self, batch: &Batch) -> String;
    /// All ways to launch the batch now, beside the others.
    fn rank(&self, batch: &Batch, others: &Working, before: Before, now: Timestamp) -> Ranking;
    /// All ways to launch one node of a blocked pool now.
    fn rank_one(&self, batch: &Batch, pool: &str, others: &Working, now: Timestamp) -> Ranking;
    /// Whether what is known of the reservations of the batch's pools is too old to rank by.
    fn reservations_are_stale(&self, batch: &Batch, now: Timestamp) -> bool;
    /// The image nodes of a type boot, if it is resolved.
    fn image(&self, pool: &str, instance_type: &str) -> Option<String>;
    /// The launch template of an attempt. Errors: why the class cannot be used, for a person.
    fn template(&self, batch: &Batch, attempt: &Attempt) -> Result<TemplateSpec, String>;
    /// Whether nodes of two types of a pool can be launched from one template: but for labels that follow from the type it is the same.
    fn share_template(&self, pool: &str, one: &str, other: &str) -> bool;
    /// Labels of the nodes of a batch that follow from their type and zone, which a template for several cannot have. `None`: they are
    /// not known yet.
    fn labels(&self, status: &BatchStatus) -> Option<BTreeMap<Arc<str>, Arc<str>>>;
    /// What everything made for an attempt is tagged with beside the tags that make it ours.
    fn tags(&self, batch: &Batch, attempt: &Attempt) -> Tags;
    /// Whether the Region has too many fleets at the moment.
    fn without_fleets(&self, now: Timestamp) -> bool;
    /// The clocks of a join.
    fn join(&self, pool: Option<&str>) -> JoinClocks;
    /// Extended resources every node of the batch must offer.
    fn devices(&self, status: &BatchStatus) -> Vec<(ResourceName, i64)>;
    /// Taints that a pool gives its nodes for good, as of now.
    fn taints(&self, pool: Option<&str>) -> Vec<Taint>;
    /// How long nodes of a pool stay idle; `None`: for ever.
    fn consolidate_after(&self, pool: Option<&str>) -> Option<SignedDuration>;
    /// How long pods of no gang may stay on nodes whose gang has ended; `None`: for ever.
    fn foreign_pods_after(&self, pool: Option<&str>) -> Option<SignedDuration>;
    /// The levels of the topology that the owner of the batch requires and prefers.
    fn levels(&self, batch: &Batch) -> WantedLevels;
    /// Whether a ProvisioningRequest exists.
    fn has_request(&self, owner: &OwnerRef) -> bool;
    /// What EC2's refusal says about the class of a pool, for a person; `None` if it says nothing about it.
    fn blame(&self, pool: &str, kind: ErrorClass, code: Option<&str>, message: &str) -> Option<String>;
    /// Everything that is not permitted with the class of a pool, in a sentence.
    fn lacks(&self, pool: Option<&str>) -> Option<String>;
}

/// Levels an owner wants, as far as the cluster has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WantedLevels {
    /// All nodes in one domain of it, or none are used.
    pub required: Option<Level>,
    /// All nodes in one domain of it, where that can be had.
    pub preferred: Option<Level>,
}

/// The clocks of a join, from `join.*` of the NodePool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinClocks {
    /// From the launch: who has no Node by then has failed.
    pub register_within: SignedDuration,
    /// From the last registration: who is not ready by then has failed.
    pub ready_within: SignedDuration,
    /// From the registration of the median node: who is still missing is replaced.
    pub replace_after: SignedDuration,
    /// A number, or a share of the batch in percent.
    pub max_replacements: String,
    /// Nodes that are tried alone while the pool is blocked.
    pub max_probes: u32,
    /// Micro-dollars they may cost together.
    pub max_probe_micro_usd: u64,
}

impl Default for JoinClocks {
    fn default() -> Self {
        Self {
            register_within: SignedDuration::from_mins(15),
            ready_within: SignedDuration::from_mins(10),
            replace_after: SignedDuration::from_mins(5),
            max_replacements: "10%".to_owned(),
            max_probes: 10,
            max_probe_micro_usd: 250_000_000,
        }
    }
}

/// Nodes that were tried alone since a pool was blocked. Kept with the block, so that they are as few whoever tries: a
/// batch that goes takes its own memory with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probes {
    /// How many.
    pub count: u32,
    /// Micro-dollars they cost at most.
    pub micro_usd: u64,
    /// The last of them, which is counted before it is launched.
    pub last: Option<Probe>,
}

/// A node that is tried alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// Name of the batch.
    pub batch: String,
    /// Number of its attempt.
    pub attempt: u32,
    /// Micro-dollars it costs at most: as long as it may take to join.
    pub micro_usd: u64,
}

/// What came back for one batch. Lost with the process: everything in it is asked for, or carried out, again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// The change that was carried out last, until a decision has used it.
    pub done: Option<Done>,
    /// Answers to looks, until a decision has used them.
    #[serde(with = "pairs")]
    pub seen: BTreeMap<Look, Result<Sight, CallError>>,
    /// What went wrong, until it is decided what follows.
    pub failed: Option<Failure>,
    /// Failures in a row.
    pub failures: u32,
    /// Losses that others found, until they are written down.
    pub reports: Vec<Report>,
    /// Clocks of its own.
    pub scratch: Scratch,
    /// Of a batch for pods of no gang: instances that this process has seen in use or on their way, and whose pods it has seen go
    /// since, if they went.
    pub witnessed: BTreeSet<InstanceId>,
    /// Of such a batch: instances whose Node this process has seen, and has seen go if it went.
    #[serde(default)]
    pub met: BTreeSet<InstanceId>,
    /// More nodes look empty, or are missing, without anybody having seen how that came about than may be trusted: those are kept.
    pub keeps_unwitnessed: bool,
}

/// Clocks of one batch that need not outlive the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scratch {
    /// When EC2 was last asked whether joining instances still live.
    pub looked: Option<Timestamp>,
    /// When lost instances were last looked after.
    pub cleared: Option<Timestamp>,
    /// How often the placement group was not available yet.
    pub group_looks: u32,
    /// The attempt whose parameters this process wrote, until its call is sent: its answer is no replay's.
    pub first: Option<u32>,
    /// How often what an attempt made was looked for since its call was sent for the last time.
    #[serde(default)]
    pub last_looks: Option<LastLooks>,
    /// Of a batch for pods of no gang: when a status was decided last that says how far its nodes are.
    #[serde(default)]
    pub progressed: Option<Timestamp>,
    /// Of such a batch: how often in a row EC2 failed to end what was lost, and to say of joining instances whether they live, and the
    /// API server to say who stands on nodes that look empty. Its other nodes go on.
    #[serde(default)]
    pub failed_ends: u32,
    #[serde(default)]
    pub failed_looks: u32,
    #[serde(default)]
    pub failed_lists: u32,
    /// When the API server failed last to say so.
    #[serde(default)]
    pub listed: Option<Timestamp>,
}

impl Scratch {
    /// How often in a row something failed that holds up no other node.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failed_ends.max(self.failed_looks).max(self.failed_lists)
    }
}

/// What is looked for once its call is not sent any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastLooks {
    /// Number of the attempt.
    pub attempt: u32,
    /// How often it was looked for.
    pub looks: u32,
}

/// A change with what EC2 reported.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Done {
    /// The change.
    pub change: Change,
    /// The answer.
    pub result: Result<Made, CallError>,
}

/// Something that went wrong in an effect that is not a launch.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// For people.
    pub text: String,
    /// Whether it was for want of a permission.
    pub denied: bool,
}

/// Losses that somebody else found out: a notice, the state of instances, or the collector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// By instance.
    pub losses: BTreeMap<InstanceId, Loss>,
    /// Instances whose scheduled maintenance was moved to later, with when that is, or cancelled.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rescheduled: BTreeMap<InstanceId, Option<Loss>>,
    /// Reason of the event.
    #[serde(deserialize_with = "words::read")]
    pub reason: Word,
}

/// Something that alters EC2.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Change {
    /// Create a cluster placement group.
    CreateGroup {
        /// Name.
        name: String,
        /// Tags.
        tags: Tags,
    },
    /// Delete a placement group.
    DeleteGroup(String),
    /// Create a launch template.
    CreateTemplate(Box<TemplateSpec>),
    /// Delete every launch template of a batch.
    DeleteTemplates(BatchTags),
    /// Launch.
    Launch {
        /// The call.
        parameters: Box<LaunchParameters>,
        /// Whether nobody has sent it before.
        first: bool,
    },
    /// Terminate instances.
    Terminate(Vec<InstanceId>),
    /// Delete finished fleets of ours, since the Region has too many.
    DeleteFinishedFleets,
}

/// What a change made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Made {
    /// Nothing to tell.
    Nothing,
    /// A launch template.
    Template {
        /// Id.
        id: String,
        /// Version.
        version: u64,
    },
    /// The answer to a launch.
    Launched(LaunchAnswer),
    /// So many fleets are gone.
    Fleets(usize),
}

/// Something that brings an object of the API server where it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Converge {
    /// Put a taint with effect `NoSchedule` on the Node of an instance.
    Taint {
        /// Node.
        node: String,
        /// Its instance: a Node of that name that is another's is left alone.
        instance: InstanceId,
        /// Key.
        key: &'static str,
    },
    /// Take the taint of this key off a Node.
    Untaint {
        /// Node.
        node: String,
        /// Key.
        key: &'static str,
    },
    /// Cordon a Node for a gang or a request, in place of the taint it registered with.
    Hold {
        /// Node.
        node: String,
        /// UID of the gang or request.
        owner: String,
    },
    /// Lift our cordon of a Node, and the taint if it is still there.
    Unhold {
        /// Node.
        node: String,
    },
    /// Write labels of a Node.
    Label {
        /// Node.
        node: String,
        /// Labels.
        labels: BTreeMap<Arc<str>, Arc<str>>,
    },
    /// Delete a Node whose machine has ended.
    DeleteNode {
        /// Node.
        node: String,
        /// The machine: a Node of that name that is another's is left alone.
        instance: InstanceId,
    },
    /// Evict a pod.
    Evict {
        /// Namespace and name.
        pod: crate::model::names::ObjectKey,
        /// UID.
        uid: crate::model::names::PodUid,
        /// Delete it where the eviction is refused.
        force: bool,
    },
    /// The pool launches no batch before it or its class changes, or a probe joins.
    BlockPool {
        /// NodePool.
        pool: String,
        /// Why.
        cause: String,
    },
    /// A node of a blocked pool is about to be tried alone.
    CountProbe {
        /// NodePool.
        pool: String,
        /// All so far, this one included.
        probes: Probes,
    },
    /// The pool launches again.
    UnblockPool(String),
    /// Add what the batch cost to the books of a NodePool, unless it is in them. Its bill is closed.
    Book(String),
    /// Take the finalizer off and delete the object: nothing of the batch is left in EC2.
    Remove,
}

/// Something to read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Look {
    /// Instances by id.
    Instances(Vec<InstanceId>),
    /// Instances by tags.
    Tagged(Tags),
    /// What a fleet launched.
    Fleet(String),
    /// A placement group by name.
    Group(String),
    /// Where instances lie in the network.
    Topology {
        /// Placement group, if they are in one.
        group: Option<String>,
        /// Instances.
        ids: Vec<InstanceId>,
    },
    /// What an instance wrote on its console.
    Console(InstanceId),
    /// The owner as the API server has it.
    Owner(OwnerLook),
    /// Free hosts of the reservations of these pools.
    Reservations(Vec<String>),
    /// Which of these nodes hold a pod that does not belong to its node, as the API server has it now.
    Occupied(Vec<String>),
    /// DaemonSets that would run on these nodes and do not tolerate their taints.
    IntolerantDaemonSets(Vec<String>),
}

/// Which owner to read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum OwnerLook {
    /// A Gang.
    Gang {
        /// Namespace and name.
        key: crate::model::names::ObjectKey,
        /// UID.
        uid: String,
    },
    /// A ProvisioningRequest.
    Request {
        /// Namespace and name.
        key: crate::model::names::ObjectKey,
        /// UID.
        uid: String,
    },
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Sight {
    /// Instances.
    Instances(Vec<Instance>),
    /// What a fleet launched; `None` if EC2 does not know it.
    Fleet(Option<LaunchAnswer>),
    /// A placement group; `None` if there is none.
    Group(Option<PlacementGroup>),
    /// Network nodes from the top, by instance.
    Topology(BTreeMap<InstanceId, Vec<String>>),
    /// The last lines of a console; `None` if nothing is on it.
    Console(Option<String>),
    /// Whether the owner exists and has not ended.
    Owner(bool),
    /// Names.
    Names(Vec<String>),
    /// It was read into where everybody finds it.
    Read,
}

/// What a batch learned for the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Note {
    /// These offerings lack capacity for so many nodes.
    NoCapacity {
        /// Offerings.
        pools: Vec<Pool>,
        /// Nodes.
        count: u32,
    },
    /// So many nodes were launched.
    Launched {
        /// The offering.
        pool: Pool,
        /// Nodes.
        count: u32,
    },
    /// EC2 refused for another reason than capacity.
    Refused {
        /// Kind.
        kind: ErrorClass,
        /// Code.
        code: Option<String>,
        /// What was asked.
        asked: Refused,
    },
    /// A call was not permitted.
    Denied {
        /// EC2's name of the call.
        operation: String,
        /// Code.
        code: Option<String>,
        /// Message.
        message: String,
    },
    /// The class of the pool is at fault.
    Blame {
        /// NodePool.
        pool: String,
        /// Kind.
        kind: ErrorClass,
        /// Code.
        code: Option<String>,
        /// Message.
        message: String,
    },
    /// What is known of free hosts is wrong.
    ForgetReservations,
    /// EC2 does not launch into this reservation any more.
    ReservationGone(String),
    /// EC2 has no free host in this reservation, whatever it shows.
    ReservationFull(String),
    /// The batch is gone, and so is everything these fleets launched.
    FleetsEnded(Vec<String>),
}

/// What was asked when it was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Capacity type.
    pub capacity_type: CapacityType,
    /// Subnet.
    pub subnet: String,
    /// Nodes.
    pub count: u32,
}

/// An event, on the batch or on a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchEvent {
    /// The pool it is about; `None`: the batch.
    pub pool: Option<String>,
    /// What happened.
    pub event: GangEvent,
}

/// When to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Requeue {
    /// At once.
    Now,
    /// On a change of the cluster, or at this time of the provisioner's clock.
    At(Timestamp),
    /// At this time of the provisioner's clock and no sooner, whatever changes meanwhile: what EC2 is asked again must be
    /// given time, and the batch's own writes are changes too.
    Pause(Timestamp),
    /// After this much real time and no sooner.
    Retry(Duration),
    /// When an effect of this decision has an outcome.
    Outcome,
}

/// What follows for one batch.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use = "a decision that is not carried out is lost"]
pub struct Decision {
    /// Name of the batch.
    pub batch: String,
    /// Written first, conditional on the version it was decided on; nothing else happens before it is acknowledged.
    pub next: Option<BatchStatus>,
    /// At most one change.
    pub change: Option<Change>,
    /// Idempotent edits.
    pub converge: Vec<Converge>,
    /// What has to be known before anything can be decided.
    pub looks: Vec<Look>,
    /// What others learn.
    pub notes: Vec<Note>,
    /// What people see.
    pub events: Vec<BatchEvent>,
    /// When to look again.
    pub requeue: Requeue,
    /// Clocks to keep.
    pub scratch: Scratch,
    /// Whether what came back is used up: dropped once `next` is acknowledged.
    pub used: bool,
    /// Whether failures start from zero again.
    pub succeeded: bool,
    /// How many of the reports it looked at, the first that came: settled once `next` is acknowledged. It follows from the rest of
    /// what is recorded.
    #[serde(skip)]
    pub reports: usize,
}

impl Decision {
    /// Whether nothing is to be carried out.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.next.is_none()
            && self.change.is_none()
            && self.converge.is_empty()
            && self.looks.is_empty()
            && self.notes.is_empty()
            && self.events.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_waits_only_if_it_asks_for_nothing() {
        let nothing = Decision {
            batch: "b-1".to_owned(),
            next: None,
            change: None,
            converge: Vec::new(),
            looks: Vec::new(),
            notes: Vec::new(),
            events: Vec::new(),
            requeue: Requeue::Now,
            scratch: Scratch::default(),
            used: true,
            succeeded: true,
            reports: 0,
        };
        assert!(nothing.is_waiting());
        let event = GangEvent { reason: "Gone", message: String::new(), warning: false };
        let something = [
            Decision { next: Some(BatchStatus::default()), ..nothing.clone() },
            Decision { change: Some(Change::DeleteFinishedFleets), ..nothing.clone() },
            Decision { converge: vec![Converge::Remove], ..nothing.clone() },
            Decision { looks: vec![Look::Fleet("fleet-1".to_owned())], ..nothing.clone() },
            Decision { notes: vec![Note::ForgetReservations], ..nothing.clone() },
            Decision { events: vec![BatchEvent { pool: None, event }], ..nothing },
        ];
        for decision in something {
            assert!(!decision.is_waiting(), "{decision:?}");
        }
    }
}
