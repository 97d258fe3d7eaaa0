//! What to do next for every gang: one pass over a snapshot yields actions, and nothing else.
//!
//! **Architecture invariant**: this is the only place that decides about gangs. The shell executes the actions and
//! has no choices left; an action that no longer fits the newest snapshot is dropped there, never patched up.

mod apart;
mod asked;
mod claims;
mod joining;
mod ledger;
mod memory;
mod notes;
mod offers;
mod passing;
mod pinned;
mod placed;
mod purchase;
mod queue;
mod recording;
mod refused;
mod request;
mod requeue;
mod roles;
mod rounds;
mod shown;
mod stock;
mod volumes;
mod waiting;
mod wanted;
mod working;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use apart::Apart;
use working::Working;
use working::alike::Alike;

use crate::model::batch::{Batch, BatchPhase};
pub use crate::model::event::GangEvent;
use crate::model::gang::{Gang, GangPlace, Phase, Pod, Recognised};
use crate::model::names::{NodeName, ObjectKey, PodUid};
use crate::model::snapshot::{AssignedCapacity, Assignment, Snapshot};
use crate::model::words::Word;
use crate::planner::plan::{LevelUse, Plan, Policy, Problem, Report};
use crate::topology::Levels;
pub use volumes::zones;

pub use asked::{Pending, RequestError};
pub use joining::{NOT_READY, joins_until, ready, with_joined};
pub use ledger::Ledger;
pub use memory::{Memory, Note};
pub use offers::{Left, Offer, Offers, PoolView, TooSmall, TypeView, nodes_needed, offers_for};
pub use passing::{passing, take_away};
pub use pinned::Pin;
pub use purchase::{Purchase, Purchases, Short, bound_zones, for_booking, may_mix, purchases};
pub use recording::{Decided, DecidedAction, RecordedWorld};
pub use refused::Stuck;
pub use request::{Wanted, build_request};
pub use roles::MAX_ROLES;
pub use rounds::Kind;
pub use shown::{Shown, conditions, owner_event};
pub use wanted::existing;
pub use working::reports::{REPHRASED_AT_ONCE, WAITING_AT_ONCE, is_waiting, shows_waiting};

/// Timers and choices of the gang loop; `docs/operations.md` says what each is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// Between a plan persisted and its release: every replica protects the assignment by then.
    pub settle: SignedDuration,
    /// A released, unbound plan is withdrawn after this.
    pub expiry: SignedDuration,
    /// A nomination is repeated after this.
    pub renominate: SignedDuration,
    /// How members are sent to their planned nodes.
    #[serde(default)]
    pub pin: Pin,
    /// A released member that kube-scheduler refuses for reasons that say its view lags is replanned after this, and
    /// 10 ms more for each member.
    pub released: SignedDuration,
    /// A committed member that kube-scheduler refuses is lost after this.
    pub committing: SignedDuration,
    /// A node that kube-scheduler refused for a shape is excluded for this long.
    pub exclude_ttl: SignedDuration,
    /// Nodes that were provisioned for a gang and do not hold it are terminated after this: the scheduler's view of a fresh
    /// node settles within seconds, and provisioning again costs money.
    pub ready_grace: SignedDuration,
    /// Nodes that were provisioned for a gang which has no plan for them this long after they were ready, whatever it waits for,
    /// are terminated: members that come again are there within minutes, and nodes that nobody uses cost money.
    #[serde(default = "plan_within")]
    pub plan_within: SignedDuration,
    /// A node that registered and is not Ready yet is waited for this long, instead of provisioning others.
    pub join_within: SignedDuration,
    /// First pause before another round is provisioned after one did not hold the gang; doubles with every round.
    pub round_pause: SignedDuration,
    /// A gang that was evicted keeps its nodes this long for its pods to come back.
    pub restart_hold: SignedDuration,
    /// Key of the taint on nodes provisioned for a gang until it uses them.
    #[serde(deserialize_with = "crate::model::words::read")]
    pub pending_taint: Word,
    /// What is best.
    pub policy: Policy,
    /// Hand out every decision with what it was made on.
    pub record: bool,
}

impl Settings {
    /// The defaults, with the taint's key.
    #[must_use]
    pub fn new(pending_taint: &'static str) -> Self {
        Self {
            pending_taint,
            settle: SignedDuration::from_millis(200),
            expiry: SignedDuration::from_secs(300),
            renominate: SignedDuration::from_secs(10),
            pin: Pin::Never,
            released: SignedDuration::from_secs(30),
            committing: SignedDuration::from_secs(30),
            exclude_ttl: SignedDuration::from_mins(10),
            ready_grace: SignedDuration::from_secs(60),
            plan_within: plan_within(),
            join_within: SignedDuration::from_mins(10),
            round_pause: SignedDuration::from_secs(30),
            restart_hold: SignedDuration::from_secs(300),
            policy: Policy::default(),
            record: false,
        }
    }
}

fn plan_within() -> SignedDuration {
    SignedDuration::from_mins(15)
}

/// Everything one pass may look at.
#[derive(Debug)]
pub struct World<'a> {
    /// The cluster.
    pub snapshot: &'a Snapshot,
    /// Topology levels.
    pub levels: &'a Levels,
    /// Pools that may provision, best first.
    pub pools: &'a [PoolView],
    /// NodeBatches by name.
    pub batches: &'a BTreeMap<Arc<str>, BatchView>,
    /// Nodes that are lost, although they may still run for a moment.
    pub lost: &'a BTreeSet<NodeName>,
    /// Gangs whose owner is being deleted: members that go are no loss.
    pub ending: &'a BTreeSet<ObjectKey>,
    /// UID of each booked ProvisioningRequest by namespace and name.
    pub bookings: &'a BTreeMap<ObjectKey, Arc<str>>,
    /// What earlier passes noted.
    pub memory: &'a Memory,
    /// Timers.
    pub settings: &'a Settings,
    /// Now, in real time.
    pub now: Timestamp,
}

/// A NodeBatch as the gang loop sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchView {
    /// Name.
    pub name: Arc<str>,
    /// Where it stands.
    pub stage: BatchStage,
    /// One sentence.
    pub message: Option<Arc<str>>,
    /// When it is tried again.
    pub next_try: Option<Timestamp>,
    /// Since when it stands there.
    pub since: Option<Timestamp>,
}

impl BatchView {
    /// A NodeBatch as the gang loop sees it.
    #[must_use]
    pub fn of(batch: &Batch) -> Self {
        let status = &batch.status;
        let probes = status.last().is_some_and(|last| last.probe);
        let stage = match status.phase {
            _ if batch.deleting => BatchStage::Ending,
            BatchPhase::Ready => BatchStage::Ready,
            BatchPhase::InUse => BatchStage::InUse,
            BatchPhase::Idle | BatchPhase::Draining | BatchPhase::Terminating => BatchStage::Ending,
            // One that is held launches nothing until something changes, or one node to see whether it joins: its gang takes
            // what becomes free meanwhile.
            BatchPhase::Pending if status.next_attempt_after.is_some() || status.held.is_some() => {
                BatchStage::BackingOff
            }
            BatchPhase::Launching | BatchPhase::Launched | BatchPhase::Joining if probes => BatchStage::BackingOff,
            BatchPhase::Pending
            | BatchPhase::Launching
            | BatchPhase::Launched
            | BatchPhase::Joining
            | BatchPhase::Replacing => BatchStage::Provisioning,
        };
        Self {
            name: Arc::from(batch.name.as_str()),
            stage,
            message: status.message.as_deref().map(Arc::from),
            next_try: status.next_attempt_after,
            since: status.since,
        }
    }
}

/// What the gang loop needs to know of a NodeBatch's phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BatchStage {
    /// All candidates failed; nothing is held.
    BackingOff,
    /// On its way.
    Provisioning,
    /// Its nodes are ready for the gang.
    Ready,
    /// The gang uses it.
    InUse,
    /// It is being terminated.
    Ending,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create the Gang object.
    CreateGang(Arc<Recognised>),
    /// Write the Gang's status, conditional on the version it was computed from.
    WriteStatus(Box<StatusWrite>),
    /// Create the NodeBatch of this round, before the status that names it is written.
    CreateBatch(Box<BatchRequest>),
    /// Give up a NodeBatch that is no longer needed.
    AbandonBatch {
        /// Name.
        name: Arc<str>,
        /// For an event on its gang, where the gang's own state does not say it.
        why: Option<Arc<str>>,
    },
    /// Nominate or pin one member, and ungate it.
    Release(Box<Release>),
    /// Evict one member of a gang that lost another, or its node.
    Evict(Box<Evict>),
    /// Write the condition `muster.dev/Gang` of one member.
    Report(Box<MemberReport>),
    /// Drop our gate from a pod of no gang.
    Ungate {
        /// The pod.
        uid: PodUid,
    },
    /// Bring a pod of no gang back to kube-scheduler's attention: what it was refused for is over.
    Requeue {
        /// The pod as it was seen.
        pod: Arc<Pod>,
    },
    /// Take the nomination of a member back that no plan has a place for.
    ClearNomination {
        /// The pod as it was seen.
        pod: Arc<Pod>,
    },
    /// Delete a Gang object whose pods are gone and that nobody owns.
    DeleteGang {
        /// The gang.
        gang: Arc<Gang>,
    },
}

/// The next status of a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusWrite {
    /// The gang as it was seen; its resource version makes the write conditional.
    pub gang: Arc<Gang>,
    /// What pods and owners say, for the spec.
    pub recognised: Option<Arc<Recognised>>,
    /// The new state.
    pub next: Gang,
    /// What to tell a person.
    pub event: Option<GangEvent>,
    /// What else there is to tell.
    pub also: Vec<GangEvent>,
}

/// A purchase for a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRequest {
    /// The gang.
    pub gang: Arc<Gang>,
    /// Round: names the batch.
    pub round: u32,
    /// What may be provisioned, best first.
    pub offers: Vec<Offer>,
    /// `required`, `preferred` or `none`, as the gang asks.
    pub placement_group: Option<Arc<str>>,
    /// Zones it may be provisioned in; empty: any.
    pub zones: Vec<Arc<str>>,
}

/// The patches of one member: two, or one that pins it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The pod as it was seen.
    pub pod: Arc<Pod>,
    /// Epoch.
    pub epoch: u64,
    /// Planned node.
    pub node: NodeName,
    /// Values of the taint `muster.dev/gang-pending` the pod has to tolerate.
    pub tolerate: Vec<Arc<str>>,
    /// It is pinned to the node in the patch that drops its gate.
    pub pin: bool,
    /// Why a member that was released already is nominated and requeued again.
    pub stuck: Option<Stuck>,
}

impl Release {
    /// Whether it is still to be made: in a newer state the pod lives and has no node, and its gang has no newer plan.
    #[must_use]
    pub fn holds(&self, newest: &Snapshot) -> bool {
        let Some(pod) = newest.pods.get(&self.pod.uid) else { return false };
        let gang = pod.membership.gang().and_then(|gang| newest.gangs.get(gang));
        pod.is_live() && pod.node.is_none() && gang.is_none_or(|gang| gang.epoch <= self.epoch)
    }
}

impl Release {
    /// Whether the member is nominated before the patch that drops its gate. Whoever is pinned is tried on its node alone without
    /// that. One that sits in kube-scheduler's queue is nominated all the same: that an attempt clears the nomination is how a
    /// second refusal is known. So is one that shows what its gang waited for, which the same write corrects.
    #[must_use]
    pub fn nominates(&self) -> bool {
        let is_steered = self.pin || self.pod.pinned.as_ref() == Some(&self.node);
        !is_steered || self.stuck.is_some() || shows_waiting(&self.pod)
    }
}

/// The end of one member, which must not count against its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evict {
    /// The pod as it was seen.
    pub pod: Arc<Pod>,
    /// For the pod's condition.
    pub why: String,
    /// Its node is gone: nobody would see to a graceful end.
    pub at_once: bool,
}

/// How far a gang is, for one of its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberReport {
    /// The pod as it was seen.
    pub pod: Arc<Pod>,
    /// `Planned`, `Released`, `Refused`, or the code of what the gang waits for.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// Actions, and when to look again if nothing happens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// In the order they should be carried out.
    pub actions: Vec<Action>,
    /// Look again at this time at the latest.
    pub requeue_at: Option<Timestamp>,
    /// How many released members are not bound yet for want of what.
    pub stuck: BTreeMap<Stuck, u32>,
    /// Plans the checker refused: bugs of ours.
    pub refused_plans: Vec<(ObjectKey, Vec<String>)>,
    /// Planning runs made.
    pub plans: u32,
    /// What was decided and on what, if [`Settings::record`] asks for it.
    pub decisions: Vec<Decision>,
    /// What the next passes must know.
    pub notes: Vec<Note>,
}

/// One planning run for a gang with everything it looked at: planned again, it must come out the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The gang.
    pub gang: ObjectKey,
    /// When.
    pub at: Timestamp,
    /// What was best.
    pub policy: Policy,
    /// Everything that was looked at.
    pub problem: Problem,
    /// What was decided.
    pub plan: Plan,
    /// Why.
    pub report: Report,
}

/// Name of the NodeBatch of a gang's round: deterministic, so that a repeated creation finds the first.
#[must_use]
pub fn batch_name(uid: &str, round: u32) -> String {
    let head: String = uid.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    format!("{head}-{round}")
}

/// When a gang has its turn: those of higher priority first, then older ones, those without an object last, then by name.
///
/// The priority of a gang is the highest of a member, so that no member waits for a gang below it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    priority: Reverse<i32>,
    unknown: bool,
    created: Option<Timestamp>,
    /// The gang.
    pub key: ObjectKey,
}

impl Turn {
    /// The turn of a gang of this priority, created then.
    #[must_use]
    pub fn new(priority: i32, created: Option<Timestamp>, key: ObjectKey) -> Self {
        Self { priority: Reverse(priority), unknown: created.is_none(), created, key }
    }

    fn of(snapshot: &Snapshot, key: &ObjectKey) -> Self {
        let priority = snapshot.live_members(key).map(|pod| pod.priority).max().unwrap_or(0);
        Self::new(priority, snapshot.gangs.get(key).and_then(|gang| gang.created), key.clone())
    }
}

/// Decides for every gang in its [`Turn`]. Plans made in one pass are disjoint: each is assigned in the working
/// snapshot before the next gang is looked at.
#[must_use]
pub fn pass(world: &World<'_>) -> Pass {
    pass_with(world, &mut Ledger::default())
}

/// [`pass`] with what earlier passes found out about the nodes: the same answer, sooner.
#[must_use]
pub fn pass_with(world: &World<'_>, ledger: &mut Ledger) -> Pass {
    let mut pass = Pass::default();
    if !world.snapshot.synced {
        return pass;
    }
    // The working snapshot takes the assignments of this pass; the published one stays as it is.
    let mut snapshot = world.snapshot.clone();
    for node in world.lost {
        // To nobody: nothing is planned there again.
        let assignment = Assignment { gang: ObjectKey::new("", "lost"), capacity: AssignedCapacity::WholeNode };
        snapshot.assignments.entry(node.clone()).or_default().push(assignment);
    }
    let sent = world.snapshot.gangs.values().filter(|gang| gang.phase == Some(Phase::Released));
    let on_their_way = sent.map(|gang| gang.places.len()).sum();
    let memory = world.memory.clone();
    let mut working = Working {
        snapshot,
        memory,
        world,
        ledger,
        seen: false,
        on_their_way,
        reports_left: working::reports::WAITING_AT_ONCE,
        rephrased_left: working::reports::REPHRASED_AT_ONCE,
        terminating: None,
        joining: None,
        alike: Alike::default(),
        unknown: None,
        planned: BTreeSet::new(),
        apart: Apart::default(),
    };
    let known = world.snapshot.recognised.keys().chain(world.snapshot.gangs.keys());
    let mut turns: Vec<Turn> =
        known.collect::<BTreeSet<_>>().into_iter().map(|key| Turn::of(world.snapshot, key)).collect();
    turns.sort_unstable();
    for turn in turns {
        working.gang(&turn.key, &mut pass);
    }
    let queue = ledger.queue(&world.snapshot.pods);
    pass.actions.extend(queue.gated().map(|uid| Action::Ungate { uid: uid.clone() }));
    requeue::requeue(world, &queue.refused().collect::<Vec<_>>(), &mut pass);
    pass
}

/// A new epoch without a plan. What succeeded keeps its places, which hold nothing, and counts in the next plan.
fn withdraw(gang: &Gang, next: &mut Gang) {
    next.places.retain(|place| place.done);
    if has_plan(gang) {
        next.epoch = gang.epoch.saturating_add(1);
    }
    next.minimum = 0;
    next.minimums.clear();
    next.running = None;
    next.shape = None;
    next.levels.clear();
}

/// Whether a gang has places beside those of members that succeeded, which outlive their plan.
fn has_plan(gang: &Gang) -> bool {
    gang.places.iter().any(|place| !place.done)
}

fn distinct_nodes(places: &[GangPlace]) -> usize {
    places.iter().map(|place| &place.node).collect::<BTreeSet<_>>().len()
}

/// Domains used per level for people: `1 zone, 2 layer-3, 8 host`. It is a column beside others, so names are short.
#[must_use]
pub fn level_summary(levels: &[LevelUse]) -> String {
    levels
        .iter()
        .filter(|level| level.used > 0)
        .map(|level| {
            let name = level.key.rsplit('/').next().unwrap_or_default();
            let name = name.strip_prefix("network-node-").unwrap_or(name);
            format!("{} {}", level.used, if name == "hostname" { "host" } else { name })
        })
        .collect::<Vec<_>>()
        .join(", ")
}
