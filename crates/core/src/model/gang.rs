//! A gang's state: what was recognised, and where its durable plan stands.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::model::code::Code;
use crate::model::names::{NodeName, ObjectKey, PodUid, ResourceName};
use crate::model::node::Usage;
use crate::model::pod::{Neighbour, SelectorTerm, Shape};
use crate::model::resources::Resources;
use crate::model::words::Word;

/// Phase of a gang. Every arrow between two phases is one conditional write of the Gang's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Not all members needed are there yet.
    Collecting,
    /// Complete, but there is no capacity and none can be provisioned now.
    Waiting,
    /// Nodes are being provisioned.
    Provisioning,
    /// A plan is persisted; its capacity is assigned.
    Planned,
    /// The members were sent to kube-scheduler.
    Released,
    /// The minimum stood at the barrier; bindings are being written. From here only forward.
    Committing,
    /// Every place with a live pod is bound.
    Bound,
    /// All members ended.
    Finished,
    /// A member or node was lost after the commit point.
    Degraded,
    /// A topology request cannot be read.
    Invalid,
    /// No pool could ever hold it.
    Unsatisfiable,
}

impl Phase {
    /// All phases, in the order of a gang's life.
    pub const ALL: [Self; 11] = [
        Self::Collecting,
        Self::Waiting,
        Self::Provisioning,
        Self::Planned,
        Self::Released,
        Self::Committing,
        Self::Bound,
        Self::Finished,
        Self::Degraded,
        Self::Invalid,
        Self::Unsatisfiable,
    ];

    /// The word in the status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Collecting => "Collecting",
            Self::Waiting => "Waiting",
            Self::Provisioning => "Provisioning",
            Self::Planned => "Planned",
            Self::Released => "Released",
            Self::Committing => "Committing",
            Self::Bound => "Bound",
            Self::Finished => "Finished",
            Self::Degraded => "Degraded",
            Self::Invalid => "Invalid",
            Self::Unsatisfiable => "Unsatisfiable",
        }
    }

    /// Reads the word; `None` for a word of a version this code does not know.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == word)
    }

    /// Whether places of the plan hold capacity for their members.
    #[must_use]
    pub fn assigns_capacity(self) -> bool {
        match self {
            // Beside nodes that are being provisioned, places on running ones.
            Self::Provisioning | Self::Planned | Self::Released | Self::Committing | Self::Bound | Self::Degraded => {
                true
            }
            Self::Collecting | Self::Waiting | Self::Finished | Self::Invalid | Self::Unsatisfiable => false,
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the pods and their owners say about a gang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recognised {
    /// Namespace and name of the Gang object.
    pub key: ObjectKey,
    /// The convention, the identity as written, and the outermost known owner.
    pub source: Source,
    /// Members expected; `None` while it is not known.
    pub size: Option<u32>,
    /// Members needed to start.
    pub min: Option<u32>,
    /// Roles in rank order; empty: one role without a name.
    pub roles: Vec<RoleStated>,
    /// Topology requests, as written.
    pub topology_requests: RawTopologyRequests,
    /// A topology request that cannot be read: the gang is invalid.
    pub invalid: Option<Invalid>,
    /// Name of the ProvisioningRequest whose booked nodes the gang uses.
    pub booking: Option<Arc<str>>,
    /// Why an eviction of its pods would end the job for good: names the field of the owner.
    pub restart_would_fail: Option<Arc<str>>,
    /// Another identity that a pod of it carries and that was not followed.
    pub conflict: Option<Arc<str>>,
}

/// What is reported of one role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleStated {
    /// Name.
    pub name: Arc<str>,
    /// Members; `None`: what the other roles leave of the size, else as many as there are.
    pub count: Option<u32>,
    /// Members needed to start; `None`: all.
    pub min: Option<u32>,
}

/// Where a gang was recognised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// Name of the convention.
    #[serde(deserialize_with = "crate::model::words::read")]
    pub convention: Word,
    /// The gang's name as written.
    pub identity: Arc<str>,
    /// The outermost known owner.
    pub owner: Option<Owner>,
}

/// An owner reference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// API version.
    pub api_version: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
}

/// Topology requests as the user wrote them, each with the key it came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawTopologyRequests {
    /// Required level.
    pub required: Option<RawTopologyRequest>,
    /// Preferred level.
    pub preferred: Option<RawTopologyRequest>,
    /// Slices, coarse to fine.
    pub slices: Vec<RawSlice>,
    /// Level whose domains are used alone.
    pub exclusive: Option<RawTopologyRequest>,
    /// Level over whose domains the members are spread evenly.
    pub balance: Option<RawTopologyRequest>,
    /// Placement group.
    pub placement_group: Option<RawTopologyRequest>,
}

/// Consecutive ranks that share a domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawSlice {
    /// Members of one slice.
    pub size: u32,
    /// The level, and the key it came from.
    pub level: RawTopologyRequest,
}

/// One topology request and the key it came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawTopologyRequest {
    /// The value.
    pub value: Arc<str>,
    /// The annotation.
    #[serde(deserialize_with = "crate::model::words::read")]
    pub key: Word,
}

/// Why a gang is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Invalid {
    /// The word for it.
    pub reason: Code,
    /// Names key, value and remedy.
    pub message: String,
}

/// The durable state of a gang: its Gang object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gang {
    /// Namespace and name.
    pub key: ObjectKey,
    /// UID.
    pub uid: Arc<str>,
    /// The version every write is conditional on.
    pub resource_version: Arc<str>,
    /// Phase; `None` for one of a version this code does not know: the object is left alone.
    pub phase: Option<Phase>,
    /// Counter of plans.
    pub epoch: u64,
    /// Counter of purchases.
    pub round: u32,
    /// When the phase was entered.
    pub since: Option<Timestamp>,
    /// Members that must stand at the barrier.
    pub minimum: u32,
    /// Members of each role that must stand there; empty for a gang of one role.
    pub minimums: BTreeMap<Arc<str>, u32>,
    /// What those of its members that run need among themselves, while more are placed beside them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Minimum>,
    /// Digest of what the members needed when the plan was made.
    pub shape: Option<Arc<str>>,
    /// The plan; empty if there is none.
    pub places: Vec<GangPlace>,
    /// Domains used per level.
    pub levels: Vec<LevelUse>,
    /// Capacity that is kept for it beside its plan: it was evicted, and its pods are to come back.
    pub held: Option<Held>,
    /// Name of the NodeBatch provisioned for it.
    pub batch: Option<Arc<str>>,
    /// Why it waits.
    pub waiting: Option<Waiting>,
    /// What people should know of it whatever its phase.
    pub notes: BTreeMap<NoteKind, Note>,
    /// `members` as it stands in the status.
    pub members: Arc<str>,
    /// Creation time: gangs are planned in this order.
    pub created: Option<Timestamp>,
    /// Has a deletion timestamp.
    pub deleting: bool,
}

/// Members that a gang needs at least.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Minimum {
    /// In all.
    pub minimum: u32,
    /// Of each role; empty for a gang of one role.
    pub minimums: BTreeMap<Arc<str>, u32>,
}

/// Conditions of a Gang that do not follow from its phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NoteKind {
    /// Every member has a rank of its own below its role's count.
    RanksOrdered,
    /// A pod carries the identities of two gangs.
    IdentityConflict,
    /// More live members than places.
    SurplusMembers,
    /// An eviction of its pods would end the job for good.
    RestartWouldFail,
    /// Every node of its plan is there and Ready; there is no note of it while that is so.
    NodesReady,
}

impl NoteKind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::RanksOrdered, Self::IdentityConflict, Self::SurplusMembers, Self::RestartWouldFail, Self::NodesReady];

    /// The condition's type.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RanksOrdered => "RanksOrdered",
            Self::IdentityConflict => "IdentityConflict",
            Self::SurplusMembers => "SurplusMembers",
            Self::RestartWouldFail => "RestartWouldFail",
            Self::NodesReady => "NodesReady",
        }
    }

    /// The event that tells of it, and whether the condition is bad when it is true.
    #[must_use]
    pub fn event(self) -> (&'static str, bool) {
        match self {
            Self::RanksOrdered => ("RankFault", false),
            Self::IdentityConflict => ("GangIdentityConflict", true),
            Self::SurplusMembers => ("SurplusMembers", true),
            Self::RestartWouldFail => ("RestartWouldFail", true),
            Self::NodesReady => ("NodesNotReady", false),
        }
    }
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    /// Whether it holds.
    pub holds: bool,
    /// A sentence; empty if there is nothing to say.
    pub message: Arc<str>,
}

/// One place of the durable plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GangPlace {
    /// Role name.
    pub role: Arc<str>,
    /// Rank within the role.
    pub rank: u32,
    /// The pod; `None` while it does not exist.
    pub uid: Option<PodUid>,
    /// Pod name, for people.
    pub pod: Option<Arc<str>>,
    /// The node.
    pub node: NodeName,
    /// Its pod succeeded, whether or not the object is still there: the place is filled for good, and holds no capacity.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub done: bool,
}

/// Capacity that is kept for a gang that was evicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// Until then; `None` while its pods are being evicted.
    pub until: Option<Timestamp>,
    /// One entry for each member: its node, and what it asks for.
    pub capacities: Vec<(NodeName, Resources)>,
}

/// Why a gang does not run yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// One word.
    pub reason: Arc<str>,
    /// A sentence a person can act on.
    pub message: Arc<str>,
    /// Since when the reason is the same; recordings of older versions have none.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// When it is tried again at the latest.
    pub next_try: Option<Timestamp>,
}

impl Waiting {
    /// Whether it waits for this.
    #[must_use]
    pub fn is(&self, code: Code) -> bool {
        *self.reason == *code.as_str()
    }
}

impl Gang {
    /// The place of a pod in the plan.
    #[must_use]
    pub fn place_of(&self, uid: &PodUid) -> Option<&GangPlace> {
        self.places.iter().find(|place| place.uid.as_ref() == Some(uid))
    }

    /// The places of all pods that have one: to look at every member of a large gang without searching the plan for each.
    #[must_use]
    pub fn places_by_uid(&self) -> FxHashMap<&PodUid, &GangPlace> {
        // Of a pod with two places the first one counts, as in `place_of`.
        self.places.iter().rev().filter_map(|place| Some((place.uid.as_ref()?, place))).collect()
    }
}

/// The reason of `PodScheduled=False` of a pod that kube-scheduler found no node for.
pub(crate) const UNSCHEDULABLE: &str = "Unschedulable";

/// A pod of the cluster, gang member or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    /// UID.
    pub uid: PodUid,
    /// Namespace and name.
    pub key: ObjectKey,
    /// What it needs. An error text if the object cannot be read.
    pub shape: Result<Arc<Shape>, Arc<str>>,
    /// What it holds on its node once it is there.
    pub held: Arc<Usage>,
    /// What its volumes ask for that no shape can say.
    pub claims: Arc<Claims>,
    /// Beside whom it may stand.
    pub neighbour: Arc<Neighbour>,
    /// `spec.nodeName`.
    pub node: Option<NodeName>,
    /// `status.nominatedNodeName`.
    pub nominated: Option<NodeName>,
    /// The node that its release has pinned it to by required node affinity, which no longer changes. `shape` is as it was before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<NodeName>,
    /// Its controller makes it again when it is deleted, and counts no failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remade: bool,
    /// `status.phase` is Succeeded or Failed.
    pub ended: bool,
    /// `status.phase` is Succeeded: the member's work is done and nobody comes in its stead.
    pub succeeded: bool,
    /// `status.phase` is Running.
    pub running: bool,
    /// Has a deletion timestamp.
    pub deleting: bool,
    /// Carries our gate.
    pub gated: bool,
    /// The first scheduling gate it carries that is not ours.
    pub foreign_gate: Option<Arc<str>>,
    /// `muster.dev/plan-epoch`, if it is a number.
    pub plan_epoch: Option<u64>,
    /// `muster.dev/planned-node`.
    pub planned_node: Option<NodeName>,
    /// When it was last released, or nominated and requeued again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeued: Option<Timestamp>,
    /// One of our profiles schedules it.
    pub ours: bool,
    /// What it is to the provisioner if another scheduler's profile schedules it.
    #[serde(default, skip_serializing_if = "Foreign::is_other")]
    pub foreign: Foreign,
    /// Belongs to its node: of a DaemonSet that is known, or the mirror of a pod the kubelet runs by itself.
    pub daemon: bool,
    /// Has a priority that only the system's own pods have.
    pub critical: bool,
    /// `spec.priority`, as admission set it; 0 where it is absent.
    pub priority: i32,
    /// Creation time.
    pub created: Option<Timestamp>,
    /// Why its kubelet did not take it, in the kubelet's word and sentence.
    pub not_admitted: Option<Arc<str>>,
    /// Reason of the condition `muster.dev/Gang`.
    pub reported: Option<Arc<str>>,
    /// What that condition says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sentence: Option<Sentence>,
    /// Reason and message of `PodScheduled=False`.
    pub unscheduled: Option<(Arc<str>, Arc<str>)>,
    /// Of which gang it is.
    pub membership: Membership,
}

/// What a member shows of its gang, beside the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sentence {
    /// The condition's message.
    pub message: Arc<str>,
    /// When it was written.
    pub at: Option<Timestamp>,
}

/// What a pod of another scheduler's profile is to the provisioner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Foreign {
    /// Nothing: it takes capacity where it stands, and that is all. So is every pod of our own profiles.
    #[default]
    Other,
    /// Nodes are launched for it, and nothing steers it to them.
    Provisioned,
    /// Its profile is provisioned for, and it is a member of a gang that nobody holds together: nothing is launched for it.
    OfGang,
}

impl Foreign {
    /// Whether it is nothing to the provisioner.
    #[must_use]
    pub fn is_other(&self) -> bool {
        *self == Self::Other
    }
}

/// What the claims of a pod ask for beside where it may stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claims {
    /// What kube-scheduler waits for too before it lets the pod anywhere, as a sentence.
    pub awaits: Option<Arc<str>>,
    /// Claims that the pods of one node alone may use at a time.
    pub one_node: Vec<Arc<str>>,
    /// Of those the ones that a driver attaches to the node, each with the resource of which the pod's requests have one for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attached: BTreeMap<Arc<str>, ResourceName>,
    /// Claims that pods of several nodes may use at a time, each with the resource of the driver that attaches its volume. None of
    /// them is among the pod's requests: a node attaches it once, however many pods use it there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shared: BTreeMap<Arc<str>, ResourceName>,
    /// Claims that one pod alone may use at a time.
    pub one_pod: Vec<Arc<str>>,
    /// Claims that take one of so many volumes that are there already.
    pub taken: Vec<Taken>,
}

/// A claim that is met by one of the volumes of a class that are there already: nobody makes new ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taken {
    /// The class.
    pub class: Arc<str>,
    /// The claim.
    pub claim: Arc<str>,
    /// Volumes of the class that would do for it.
    pub volumes: u32,
    /// Those volumes. Empty where each is of one node and the nodes count them, and where there are too many to tell apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub among: Vec<Unclaimed>,
}

/// A volume that nobody has claimed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unclaimed {
    /// Name.
    pub volume: Arc<str>,
    /// Where it can be reached: all must hold, the terms of each are ORed.
    pub reach: Vec<Vec<SelectorTerm>>,
}

/// A volume that a driver attaches to the node of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment<'a> {
    /// Its claim.
    pub claim: ObjectKey,
    /// The resource of the driver.
    pub resource: &'a ResourceName,
    /// Whether the pod's requests have one of the resource for it.
    pub requested: bool,
}

impl Pod {
    /// Volumes that drivers attach to its node and that other pods may use as well.
    pub fn attachments(&self) -> impl Iterator<Item = Attachment<'_>> {
        let claims = &*self.claims;
        let requested = claims.attached.iter().map(|one| (one, true));
        requested.chain(claims.shared.iter().map(|one| (one, false))).map(|((claim, resource), requested)| {
            let claim = ObjectKey { namespace: Arc::clone(&self.key.namespace), name: Arc::clone(claim) };
            Attachment { claim, resource, requested }
        })
    }

    /// The member that succeeded in a place, as far as it is known once its object is gone.
    #[must_use]
    pub fn succeeded_in(gang: &ObjectKey, place: &GangPlace) -> Option<Self> {
        let (uid, name) = (place.uid.clone()?, place.pod.clone().unwrap_or_default());
        let rank = RankClaim::Rank(place.rank);
        Some(Self {
            uid,
            key: ObjectKey { namespace: Arc::clone(&gang.namespace), name },
            shape: Err(Arc::from("the pod is gone")),
            held: Arc::default(),
            claims: Arc::default(),
            neighbour: Arc::default(),
            node: Some(place.node.clone()),
            nominated: None,
            pinned: None,
            remade: false,
            ended: true,
            succeeded: true,
            running: false,
            deleting: false,
            gated: false,
            foreign_gate: None,
            plan_epoch: None,
            planned_node: None,
            requeued: None,
            ours: true,
            foreign: Foreign::Other,
            daemon: false,
            critical: false,
            priority: 0,
            created: None,
            not_admitted: None,
            reported: None,
            sentence: None,
            unscheduled: None,
            membership: Membership::Member { gang: gang.clone(), role: Arc::clone(&place.role), rank },
        })
    }

    /// Whether the pod holds capacity on its node.
    #[must_use]
    pub fn holds_capacity(&self) -> bool {
        self.node.is_some() && !self.ended
    }

    /// The node on which it holds capacity or is about to: where it is bound, or, unbound and of no gang, where it is nominated.
    #[must_use]
    pub fn occupied_node(&self) -> Option<&NodeName> {
        let bound = self.node.as_ref().filter(|_| !self.ended);
        let single = self.node.is_none() && self.membership == Membership::Single && self.is_live();
        bound.or(self.nominated.as_ref().filter(|_| single))
    }

    /// Whether kube-scheduler tries a node first and alone: it is nominated for it, or pinned to it.
    #[must_use]
    pub fn is_sent_to(&self, node: &NodeName) -> bool {
        self.nominated.as_ref() == Some(node) || self.pinned.as_ref() == Some(node)
    }

    /// Whether it was pinned and came to no node: it never ran, and was deleted for another to come in its stead.
    #[must_use]
    pub fn is_discarded(&self) -> bool {
        self.ended && self.pinned.is_some() && self.node.is_none()
    }

    /// Whether kube-scheduler found no node for it when it last tried.
    #[must_use]
    pub fn is_unschedulable(&self) -> bool {
        self.unscheduled.as_ref().is_some_and(|(reason, _)| &**reason == UNSCHEDULABLE)
    }

    /// Whether the pod counts as a member of its gang.
    #[must_use]
    pub fn is_live(&self) -> bool {
        !self.deleting && !self.ended
    }

    /// Whether the pod ran to its end: its place stays filled. A failed pod is a lost one.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.succeeded && self.node.is_some()
    }
}

/// Of which gang a pod is. *Unknown is not "no gang".*
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Membership {
    /// Its controller chain is not known up to the root.
    Unknown,
    /// A fully resolved chain without a gang.
    Single,
    /// A member.
    Member {
        /// The Gang object.
        gang: ObjectKey,
        /// Role name; empty for the only role.
        role: Arc<str>,
        /// The rank it claims.
        rank: RankClaim,
    },
}

impl Membership {
    /// The gang, if it is a member.
    #[must_use]
    pub fn gang(&self) -> Option<&ObjectKey> {
        match self {
            Self::Member { gang, .. } => Some(gang),
            Self::Unknown | Self::Single => None,
        }
    }
}

/// The rank a member claims.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RankClaim {
    /// An integer.
    Rank(u32),
    /// None.
    Missing,
    /// Not an integer.
    NotInteger(Arc<str>),
}

/// Domains used at one level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelUse {
    /// Label key of the level.
    pub key: Arc<str>,
    /// Distinct domains that hold a member, bound ones included.
    pub used: u32,
    /// The fewest possible on this snapshot, given the fields above it in the objective.
    pub optimum: u32,
}
