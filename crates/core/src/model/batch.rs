//! A NodeBatch as decisions read it: N nodes or none, from the intent to provision them until the last one is gone.
//!
//! Strings exist in the custom resource alone; `muster-api` reads them into these types and writes them back. What a
//! newer version wrote is read as far as it is understood and marked [`Batch::newer`]: nobody acts on it, and it still
//! counts wherever nodes and dollars are counted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use crate::model::attempt::{Attempt, AttemptOutcome, StoredParameters};
pub use crate::model::launch::AttemptOverride;
use crate::model::launch::{CapacityType, Target};
use crate::model::money::StrandedCause;
use crate::model::names::{InstanceId, ObjectKey};
use crate::model::notice::NoticeKind;
use crate::model::resources::Resources;

/// A NodeBatch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Batch {
    /// Name of the object, unique in the cluster.
    pub name: String,
    /// UID of the object: on every resource in EC2.
    pub uid: String,
    /// When it was created, in real time.
    pub created: Option<Timestamp>,
    /// Somebody wants the object gone.
    pub deleting: bool,
    /// What is wanted. Immutable.
    pub spec: Arc<BatchSpec>,
    /// Where it stands.
    pub status: BatchStatus,
    /// What of it this version does not understand; then nothing is decided about it.
    pub newer: Option<String>,
}

impl Batch {
    /// Its instances, each with its number among the nodes that the spec plans, and the pods that are planned there.
    pub fn places(&self) -> impl Iterator<Item = (usize, &BatchMember, &[(String, u32)])> {
        let planned: Vec<&[(String, u32)]> = self.spec.planned_pods().collect();
        self.status.instances.iter().enumerate().filter_map(move |(position, member)| {
            // Where no number is written down, as by another version, they are in order.
            let number = member.place.map_or(Some(position), |place| usize::try_from(place).ok())?;
            Some((number, member, *planned.get(number)?))
        })
    }
}

/// What is wanted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchSpec {
    /// Pools that may serve the batch, best first.
    pub node_pools: Vec<String>,
    /// Nodes.
    pub count: u32,
    /// Whether part will do.
    pub partial: bool,
    /// For whom.
    pub owner: Owner,
    /// Types with the number of nodes that hold the whole gang.
    pub offers: Vec<BatchOffer>,
    /// The gang's ask for a placement group: `required`, `preferred`, `none`, or nothing.
    pub placement_group: Option<String>,
    /// Zones it may be launched in; empty: any.
    pub zones: Vec<String>,
    /// The capacity type it may be launched as; `None`: any that its pools allow.
    pub capacity_type: Option<CapacityType>,
    /// For pods of no gang: what the nodes are planned to hold.
    pub fillings: Vec<Filling>,
    /// What it takes at most of each pool, until an attempt has begun; resources in the units of [`Resources`].
    pub reserves: BTreeMap<String, Resources>,
}

impl BatchSpec {
    /// The pods that each node is planned to hold, node by node in the order of the instances: the digest of their class, and
    /// how many.
    pub fn planned_pods(&self) -> impl Iterator<Item = &[(String, u32)]> {
        let times = |nodes: u32| usize::try_from(nodes).unwrap_or(0);
        self.fillings.iter().flat_map(move |one| std::iter::repeat_n(one.pods.as_slice(), times(one.nodes)))
    }
}

/// What some equal nodes are planned to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Filling {
    /// How many nodes.
    pub nodes: u32,
    /// Pods on each of them: the digest of their class, and how many.
    pub pods: Vec<(String, u32)>,
}

/// For whom a batch is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Owner {
    /// One gang.
    Gang(OwnerRef),
    /// One ProvisioningRequest; whichever gang consumes it uses the nodes.
    Request(OwnerRef),
    /// Pods without a gang.
    #[default]
    Pods,
}

impl Owner {
    /// The object it is for, if it is one object.
    #[must_use]
    pub fn object(&self) -> Option<&OwnerRef> {
        match self {
            Self::Gang(owner) | Self::Request(owner) => Some(owner),
            Self::Pods => None,
        }
    }

    /// UID of the gang.
    #[must_use]
    pub fn gang_uid(&self) -> Option<&str> {
        match self {
            Self::Gang(owner) => Some(&owner.uid),
            Self::Request(_) | Self::Pods => None,
        }
    }
}

/// Reference to an owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerRef {
    /// Namespace and name.
    pub key: ObjectKey,
    /// UID.
    pub uid: String,
}

/// One type that may be launched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchOffer {
    /// NodePool.
    pub node_pool: String,
    /// Instance type.
    pub instance_type: String,
    /// Nodes of this type that hold the whole gang.
    pub count: u32,
}

/// Phase of a batch. Each arrow between two is one status write (`ARCHITECTURE.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum BatchPhase {
    /// No attempt is under way: one begins, or a back-off or a person is waited for.
    #[default]
    Pending,
    /// An attempt is under way, or is rolled back to zero.
    Launching,
    /// All instances exist.
    Launched,
    /// All run, and their nodes are awaited.
    Joining,
    /// Lost instances are being replaced in place.
    Replacing,
    /// All nodes can be used.
    Ready,
    /// A gang is bound on the nodes.
    InUse,
    /// Nobody uses the nodes any more.
    Idle,
    /// New pods are kept away; those there may leave.
    Draining,
    /// The instances are being ended.
    Terminating,
}

impl BatchPhase {
    /// Every phase, in the order of a life.
    pub const ALL: [Self; 10] = [
        Self::Pending,
        Self::Launching,
        Self::Launched,
        Self::Joining,
        Self::Replacing,
        Self::Ready,
        Self::InUse,
        Self::Idle,
        Self::Draining,
        Self::Terminating,
    ];

    /// Whether the batch has come to rest or to its end: whoever loses interest changes nothing any more.
    #[must_use]
    pub fn is_settled(self) -> bool {
        match self {
            Self::InUse | Self::Idle | Self::Draining | Self::Terminating => true,
            Self::Pending | Self::Launching | Self::Launched | Self::Joining | Self::Replacing | Self::Ready => false,
        }
    }

    /// Whether the nodes are kept for the owner of the batch alone.
    #[must_use]
    pub fn reserves_nodes(self) -> bool {
        match self {
            Self::InUse | Self::Idle => false,
            Self::Pending
            | Self::Launching
            | Self::Launched
            | Self::Joining
            | Self::Replacing
            | Self::Ready
            | Self::Draining
            | Self::Terminating => true,
        }
    }

    /// Whether instances that EC2 does not know are a loss: before the launch is won none need exist, and at the end none
    /// may.
    #[must_use]
    pub fn expects_instances(self) -> bool {
        match self {
            Self::Launched | Self::Joining | Self::Replacing | Self::Ready | Self::InUse | Self::Idle => true,
            Self::Pending | Self::Launching | Self::Draining | Self::Terminating => false,
        }
    }
}

/// Where an instance of a batch stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum MemberState {
    /// EC2 answered with its id.
    #[default]
    Launched,
    /// It runs.
    Running,
    /// It has a Node.
    Registered,
    /// Its Node can be used.
    Ready,
    /// It is lost, whether or not it still runs.
    Lost,
    /// It is being ended.
    Terminating,
    /// It has ended.
    Gone,
}

impl MemberState {
    /// Every state.
    pub const ALL: [Self; 7] =
        [Self::Launched, Self::Running, Self::Registered, Self::Ready, Self::Lost, Self::Terminating, Self::Gone];

    /// Whether nobody counts on it any more.
    #[must_use]
    pub fn is_written_off(self) -> bool {
        match self {
            Self::Lost | Self::Terminating | Self::Gone => true,
            Self::Launched | Self::Running | Self::Registered | Self::Ready => false,
        }
    }
}

/// Why an instance is lost, or will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum LossCause {
    /// EC2 reported so.
    Notice(NoticeKind),
    /// Its Node, or the instance itself, is not there any more.
    Missing,
    /// It did not become a node that can be used.
    Join,
}

impl LossCause {
    /// Whether EC2 or somebody took the instance or its Node, whatever it would have become.
    #[must_use]
    pub fn is_taken(self) -> bool {
        match self {
            Self::Notice(_) | Self::Missing => true,
            Self::Join => false,
        }
    }
}

/// A loss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Loss {
    /// Why.
    pub cause: LossCause,
    /// One sentence.
    pub message: String,
    /// When it was noticed.
    pub noticed: Timestamp,
    /// From then on the node counts as lost, although it may still run.
    pub act_at: Timestamp,
    /// When EC2 ends it, where it says so.
    pub deadline: Option<Timestamp>,
}

/// One instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchMember {
    /// Id.
    pub id: InstanceId,
    /// Attempt that launched it.
    pub attempt: u32,
    /// Where it stands.
    pub state: MemberState,
    /// Of a node for pods of no gang: its number among the nodes that the spec plans. Others of its batch may be gone by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<u32>,
    /// Node name, once registered.
    pub node: Option<String>,
    /// When its Node was first seen.
    pub registered: Option<Timestamp>,
    /// Why it is lost, or will be.
    pub loss: Option<Loss>,
    /// Network nodes from the top, once known.
    pub network_nodes: Vec<String>,
    /// Of a node for pods of no gang: since when nothing but pods that belong to the node stands on it. Of one of a gang: since when pods
    /// are being deleted there that no kubelet ends, since it is not Ready.
    pub empty_since: Option<Timestamp>,
    /// When the taint that keeps new pods away was seen on its node, since it is to go.
    pub leaving_since: Option<Timestamp>,
    /// When EC2 launched it, once EC2 has shown it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launched: Option<Timestamp>,
    /// What it cost before this is in the bill; from its launch on, if nothing is yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub billed: Option<Timestamp>,
}

impl BatchMember {
    /// A fresh instance of an attempt.
    #[must_use]
    pub fn new(id: InstanceId, attempt: u32, state: MemberState) -> Self {
        Self {
            id,
            attempt,
            state,
            place: None,
            node: None,
            registered: None,
            loss: None,
            network_nodes: Vec::new(),
            empty_since: None,
            leaving_since: None,
            launched: None,
            billed: None,
        }
    }

    /// Whether its loss is to be acted on by now.
    #[must_use]
    pub fn is_lost(&self, now: Timestamp) -> bool {
        self.loss.as_ref().is_some_and(|loss| loss.act_at <= now)
    }
}

/// One candidate of the round, as people read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CandidateRow {
    /// NodePool.
    pub node_pool: String,
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Subnet.
    pub subnet: String,
    /// Capacity type.
    pub capacity_type: CapacityType,
    /// Nodes.
    pub count: u32,
    /// In a placement group.
    pub group: bool,
    /// Reservation.
    pub reservation: Option<String>,
    /// Micro-dollars per hour of the whole batch, if a price is known.
    pub price: Option<u64>,
    /// Why it stands here.
    pub why: String,
}

/// What is no candidate, as people read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExcludedRow {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
    /// What would make it one.
    pub change: Option<String>,
}

/// Why nothing more is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum HoldReason {
    /// Nodes of the pool do not join.
    JoinBlocked,
    /// Several launches missed the level the gang requires.
    RequiredLevelNotMet,
}

impl HoldReason {
    /// Every reason.
    pub const ALL: [Self; 2] = [Self::JoinBlocked, Self::RequiredLevelNotMet];
}

impl fmt::Display for HoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::JoinBlocked => "JoinBlocked",
            Self::RequiredLevelNotMet => "RequiredLevelNotMet",
        })
    }
}

/// A batch that waits for a change by a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// Why.
    pub reason: HoldReason,
    /// Generations of the pools and classes it was decided on; with others it is tried again.
    pub seen: String,
}

/// What a batch cost so far, in micro-dollars.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Billing {
    /// Everything before this is summed up.
    pub since: Option<Timestamp>,
    /// Spent.
    pub spent: u64,
    /// Of it, while no gang ran on the nodes, by cause.
    pub stranded: BTreeMap<StrandedCause, u64>,
    /// Of both, what candidates of other pools or capacity types cost than the current one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Share>,
    /// Whether each instance is billed by EC2's times. Not so of instances that an earlier version billed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_instance: bool,
    /// All instances have ended: the sums stay as they are, and may be booked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
}

/// What candidates of one pool and capacity type cost, in micro-dollars.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Share {
    /// NodePool.
    pub node_pool: String,
    /// Capacity type; `None`: not known.
    pub capacity_type: Option<CapacityType>,
    /// Spent.
    pub spent: u64,
    /// Of it, while no gang ran on the nodes, by cause.
    pub stranded: BTreeMap<StrandedCause, u64>,
}

/// What a condition is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ConditionKind {
    /// Whether every call is permitted.
    Authorized,
    /// Whether instances are lost, or will be.
    Interrupted,
    /// Whether all instances have been launched.
    Launched,
    /// Whether all their nodes have registered.
    Registered,
    /// Whether all their nodes are Ready, and serve.
    Ready,
    /// Somebody else's; kept as it is.
    Other(String),
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchCondition {
    /// What it is about.
    pub kind: ConditionKind,
    /// Whether it holds; `None`: unknown.
    pub status: Option<bool>,
    /// One word.
    pub reason: String,
    /// One sentence.
    pub message: String,
    /// Since when, in real time.
    pub since: Timestamp,
    /// The generation it was judged at.
    pub generation: Option<i64>,
}

/// Where a batch stands. What is persisted, and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchStatus {
    /// Phase.
    pub phase: BatchPhase,
    /// When the phase was entered, in real time.
    pub since: Option<Timestamp>,
    /// N as recorded.
    pub count: u32,
    /// Nodes ready.
    pub ready_count: u32,
    /// Number of the current attempt.
    pub attempt: u32,
    /// Rises when the batch starts over with a new placement group.
    pub generation: u32,
    /// NodePool of the current candidate.
    pub node_pool: Option<String>,
    /// Instance type of the current candidate.
    pub instance_type: Option<String>,
    /// Zone of the current candidate.
    pub zone: Option<String>,
    /// Capacity type of the current candidate.
    pub capacity_type: Option<CapacityType>,
    /// Placement group of ours, from the moment it is intended until it is deleted.
    pub placement_group: Option<String>,
    /// Id of the placement group the instances are in, ours or that of their reservation, once EC2 has shown it.
    pub placement_group_id: Option<String>,
    /// Launch templates of ours, from the moment they are intended until they are deleted.
    pub launch_templates: Vec<String>,
    /// Micro-dollars per hour of the whole batch.
    pub price: Option<u64>,
    /// One sentence: what it waits for.
    pub message: Option<String>,
    /// Nothing is tried before this.
    pub next_attempt_after: Option<Timestamp>,
    /// The current round over the candidates began after this attempt.
    pub round_from: u32,
    /// Failed rounds in a row.
    pub failed_rounds: u32,
    /// The current phase must have ended by then.
    pub deadline: Option<Timestamp>,
    /// Quiet since.
    pub idle_since: Option<Timestamp>,
    /// A gang that consumes its booking has run on the nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub used: bool,
    /// This round's candidates, first is tried first.
    pub candidates: Vec<CandidateRow>,
    /// What is no candidate this round.
    pub excluded: Vec<ExcludedRow>,
    /// Network nodes the instances hang on, per layer from the top.
    pub located: Vec<u32>,
    /// What the attempt that has begun takes of its pool.
    pub reserved: BTreeMap<String, Resources>,
    /// Launches that missed the level the gang requires.
    pub misses: u32,
    /// Why nothing more is tried.
    pub held: Option<Hold>,
    /// The attempts, oldest first.
    pub attempts: Vec<Attempt>,
    /// Instances.
    pub instances: Vec<BatchMember>,
    /// Instances that were lost and belong to the batch no more, until EC2 has ended them.
    pub replaced: Vec<BatchMember>,
    /// What it cost so far.
    pub billing: Option<Billing>,
    /// Conditions.
    pub conditions: Vec<BatchCondition>,
}

impl BatchStatus {
    /// The last attempt.
    #[must_use]
    pub fn last(&self) -> Option<&Attempt> {
        self.attempts.last()
    }

    /// The instances, lost ones included.
    pub fn members(&self) -> impl Iterator<Item = &BatchMember> {
        self.instances.iter().chain(&self.replaced)
    }

    /// The instances to be changed, lost ones included.
    pub fn members_mut(&mut self) -> impl Iterator<Item = &mut BatchMember> {
        self.instances.iter_mut().chain(&mut self.replaced)
    }

    /// The reservation an instance runs in: that of the attempt that launched it, or of the last one that won all nodes where that
    /// attempt is not kept any more.
    #[must_use]
    pub fn reservation_of(&self, one: &BatchMember) -> Option<&Target> {
        let own = self.attempts.iter().find(|attempt| attempt.number == one.attempt);
        let attempt = own.or_else(|| self.attempts.iter().rev().find(|attempt| attempt.won_whole()))?;
        attempt.reservation.as_ref().filter(|_| attempt.outcome == AttemptOutcome::Won)
    }

    /// Ids of the instances.
    #[must_use]
    pub fn ids(&self) -> Vec<InstanceId> {
        self.instances.iter().map(|instance| instance.id.clone()).collect()
    }

    /// Whether a condition is true.
    #[must_use]
    pub fn is(&self, kind: &ConditionKind) -> bool {
        self.conditions.iter().any(|condition| condition.kind == *kind && condition.status == Some(true))
    }

    /// Sets a condition; its time changes only with its status.
    pub fn set(&mut self, kind: ConditionKind, status: bool, reason: &str, message: &str, now_real: Timestamp) {
        let known = self.conditions.iter_mut().find(|condition| condition.kind == kind);
        match known {
            Some(known) => {
                if known.status != Some(status) {
                    known.since = now_real;
                }
                known.status = Some(status);
                reason.clone_into(&mut known.reason);
                message.clone_into(&mut known.message);
            }
            None => self.conditions.push(BatchCondition {
                kind,
                status: Some(status),
                reason: reason.to_owned(),
                message: message.to_owned(),
                since: now_real,
                generation: None,
            }),
        }
    }

    /// The placement group the instances are in: the batch's own, or the one its reservation was made in.
    #[must_use]
    pub fn group(&self) -> Option<String> {
        let attempt = self.last().filter(|attempt| attempt.group)?;
        attempt.reservation_group.clone().or_else(|| self.placement_group.clone())
    }

    /// Micro-dollars per hour of the instances there are, of which the lost ones are billed until they are gone.
    #[must_use]
    pub fn price_now(&self) -> u64 {
        let billed = self.members().filter(|one| one.state != MemberState::Gone).count();
        self.price.unwrap_or(0).saturating_mul(u64::try_from(billed).unwrap_or(0)) / u64::from(self.count.max(1))
    }

    /// Names of the nodes of the batch, those of lost instances included.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.members().filter_map(|instance| instance.node.as_deref())
    }

    /// Closes the current attempt.
    pub fn close(&mut self, outcome: AttemptOutcome, code: Option<String>, message: Option<String>, now: Timestamp) {
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.outcome = outcome;
            attempt.code = code;
            attempt.message = message;
            attempt.ended = Some(now);
        }
    }
}
