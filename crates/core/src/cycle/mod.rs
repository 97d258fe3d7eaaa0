//! What to do next for every gang: one pass over a snapshot yields actions, and nothing else.
//!
//! **Architecture invariant**: this is the only place that decides about gangs. The shell executes the actions and
//! has no choices left; an action that no longer fits the newest snapshot is dropped there, never patched up.

mod offers;
mod request;
mod waiting;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::gang::{Gang, GangPlace, Membership, Phase, Pod, Recognised};
use crate::names::{NodeName, ObjectKey, PodUid};
use crate::plan::{GangRequest, Host, LevelUse, Plan, Policy, Problem, Refusal, Report, SearchBudget, Seed};
use crate::snapshot::{Promise, PromisedRoom, Snapshot};
use crate::topology::Levels;
use crate::{check, planner};

pub use offers::{Offer, PoolView, TypeView, offers_for};
pub use request::{Pending, RequestError, build_request};

/// Timers and choices of the gang loop. Source of the defaults: `scheduling.md` 3.7.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Between a plan persisted and its release: every replica protects the promise by then.
    pub settle: SignedDuration,
    /// A released, unbound plan is withdrawn after this.
    pub expiry: SignedDuration,
    /// A hint is repeated after this.
    pub rehint: SignedDuration,
    /// Nodes that were bought for a gang and do not hold it are given back after this: the scheduler's view of a fresh
    /// node settles within seconds, and buying again costs money.
    pub ready_grace: SignedDuration,
    /// First pause before another round is bought after one did not hold the gang; doubles with every round.
    pub round_pause: SignedDuration,
    /// Key of the taint on nodes bought for a gang until it uses them.
    pub pending_taint: &'static str,
    /// What is best.
    pub policy: Policy,
}

impl Settings {
    /// The defaults, with the taint's key.
    #[must_use]
    pub fn new(pending_taint: &'static str) -> Self {
        Self {
            pending_taint,
            settle: SignedDuration::from_millis(200),
            expiry: SignedDuration::from_secs(300),
            rehint: SignedDuration::from_secs(10),
            ready_grace: SignedDuration::from_secs(60),
            round_pause: SignedDuration::from_secs(30),
            policy: Policy::default(),
        }
    }
}

/// Everything one pass may look at.
#[derive(Debug)]
pub struct World<'a> {
    /// The cluster.
    pub snapshot: &'a Snapshot,
    /// Topology levels.
    pub levels: &'a Levels,
    /// Pools that may buy, best first.
    pub pools: &'a [PoolView],
    /// NodeBatches by name.
    pub batches: &'a BTreeMap<Arc<str>, BatchView>,
    /// UID of each booked ProvisioningRequest by namespace and name.
    pub bookings: &'a BTreeMap<ObjectKey, Arc<str>>,
    /// Timers.
    pub settings: &'a Settings,
    /// Now, in real time.
    pub now: Timestamp,
}

/// A NodeBatch as the gang loop sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// What the gang loop needs to know of a NodeBatch's phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchStage {
    /// All candidates failed; nothing is held.
    BackingOff,
    /// On its way.
    Buying,
    /// Its nodes are ready for the gang.
    Ready,
    /// The gang uses it.
    InUse,
    /// It is being given back.
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
    CreateBatch(Box<BatchWish>),
    /// Give up a NodeBatch that is no longer needed.
    AbandonBatch {
        /// Name.
        name: Arc<str>,
    },
    /// Hint and ungate one member.
    Release(Box<Release>),
    /// Drop our gate from a pod of no gang.
    Ungate {
        /// The pod.
        uid: PodUid,
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
}

/// An event on a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GangEvent {
    /// One word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
    /// Something is wrong.
    pub warning: bool,
}

/// A purchase for a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchWish {
    /// The gang.
    pub gang: Arc<Gang>,
    /// Round: names the batch.
    pub round: u32,
    /// What may be bought, best first.
    pub offers: Vec<Offer>,
    /// `required`, `preferred` or `none`, as the gang wishes.
    pub placement_group: Option<Arc<str>>,
}

/// The two patches of one member.
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
}

/// Actions, and when to look again if nothing happens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// In the order they should be carried out.
    pub actions: Vec<Action>,
    /// Look again at this time at the latest.
    pub wake_at: Option<Timestamp>,
    /// Plans the checker refused: bugs of ours.
    pub refused_plans: Vec<(ObjectKey, Vec<String>)>,
    /// Planning runs made.
    pub plans: u32,
}

/// Name of the NodeBatch of a gang's round: deterministic, so that a repeated creation finds the first.
#[must_use]
pub fn batch_name(uid: &str, round: u32) -> String {
    let head: String = uid.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    format!("{head}-{round}")
}

/// Decides for every gang, older gangs first. Plans made in one pass are disjoint: each is promised in the working
/// snapshot before the next gang is looked at.
#[must_use]
pub fn pass(world: &World<'_>) -> Pass {
    let mut pass = Pass::default();
    if !world.snapshot.synced {
        return pass;
    }
    // The working snapshot takes the promises of this pass; the published one stays as it is.
    let mut working = Working { snapshot: world.snapshot.clone(), world };
    let mut keys: Vec<(Option<Timestamp>, ObjectKey)> = world
        .snapshot
        .recognised
        .keys()
        .chain(world.snapshot.gangs.keys())
        .map(|key| (world.snapshot.gangs.get(key).and_then(|gang| gang.created), key.clone()))
        .collect();
    keys.sort_by(|a, b| (a.0.is_none(), &a.0, &a.1).cmp(&(b.0.is_none(), &b.0, &b.1)));
    keys.dedup();
    for (_, key) in keys {
        working.gang(&key, &mut pass);
    }
    for pod in world.snapshot.pods.values() {
        if pod.membership == Membership::Single && pod.gated && pod.ours && pod.is_live() {
            pass.actions.push(Action::Ungate { uid: pod.uid.clone() });
        }
    }
    pass
}

struct Working<'a> {
    snapshot: Snapshot,
    world: &'a World<'a>,
}

impl Working<'_> {
    fn gang(&mut self, key: &ObjectKey, pass: &mut Pass) {
        let recognised = self.snapshot.recognised.get(key).cloned();
        let Some(gang) = self.snapshot.gangs.get(key).cloned() else {
            if let Some(recognised) = recognised {
                pass.actions.push(Action::CreateGang(recognised));
            }
            return;
        };
        if gang.deleting {
            return;
        }
        // An unknown phase was written by a newer version: leave the object alone.
        let Some(phase) = gang.phase else { return };
        let Some(recognised) = recognised else {
            if self.snapshot.all_members(key).next().is_none() {
                self.without_pods(&gang, phase, pass);
            }
            return;
        };
        let members: Vec<Arc<Pod>> = self.snapshot.live_members(key).cloned().collect();
        let mut next = Gang::clone(&gang);
        next.members = waiting::members(&recognised, members.len());
        let event = match phase {
            Phase::Collecting
            | Phase::Waiting
            | Phase::Invalid
            | Phase::Unsatisfiable
            | Phase::Finished
            | Phase::Provisioning => self.before_plan(&gang, &recognised, &members, &mut next, pass),
            Phase::Planned | Phase::Released => self.planned(&gang, &recognised, &members, &mut next, pass),
            Phase::Committing | Phase::Bound | Phase::Degraded => {
                self.committed(&gang, &recognised, &members, &mut next, pass)
            }
        };
        self.write(&gang, Some(&recognised), next, event, pass);
    }

    /// All pods are gone: what nobody owns is deleted, what has an owner dies with it.
    fn without_pods(&mut self, gang: &Arc<Gang>, phase: Phase, pass: &mut Pass) {
        let mut next = Gang::clone(gang);
        next.members = Arc::from("0/0");
        match phase {
            Phase::Finished => {}
            Phase::Committing | Phase::Bound | Phase::Degraded => {
                next.phase = Some(Phase::Finished);
                next.places.clear();
                next.waiting = None;
            }
            Phase::Collecting
            | Phase::Waiting
            | Phase::Provisioning
            | Phase::Planned
            | Phase::Released
            | Phase::Invalid
            | Phase::Unsatisfiable => {
                withdraw(gang, &mut next);
                next.phase = Some(Phase::Finished);
                next.waiting = None;
            }
        }
        let event = (next.phase != gang.phase).then(|| GangEvent {
            reason: "Finished",
            message: "all members are gone".to_owned(),
            warning: false,
        });
        self.write(gang, None, next, event, pass);
        if phase == Phase::Finished {
            pass.actions.push(Action::DeleteGang { gang: Arc::clone(gang) });
        }
    }

    fn before_plan(
        &mut self,
        gang: &Arc<Gang>,
        recognised: &Arc<Recognised>,
        members: &[Arc<Pod>],
        next: &mut Gang,
        pass: &mut Pass,
    ) -> Option<GangEvent> {
        if members.is_empty() && gang.phase != Some(Phase::Collecting) {
            // The job ended while it waited, or between two restarts of its pods.
            return self.nothing_to_place(gang, next);
        }
        let request = match self.request(recognised, gang, members) {
            Ok(request) => request,
            Err(RequestError::Invalid(invalid)) => return waiting::invalid(gang, next, &invalid),
            Err(RequestError::Collecting { seen, needed, size }) => {
                return waiting::collecting(gang, next, seen, needed, size);
            }
            Err(RequestError::ForeignGate { pod }) => return waiting::foreign_gate(next, &pod),
        };
        let batch = gang.batch.as_ref().and_then(|name| self.world.batches.get(name));
        if gang.phase == Some(Phase::Provisioning) && batch.is_some_and(|batch| batch.stage == BatchStage::Buying) {
            return waiting::buying(next, batch);
        }
        let (plan, report) = self.plan(&request, gang, pass);
        if report.refusal.is_none() && !plan.places.is_empty() {
            if let Some(batch) = batch.filter(|batch| batch.stage == BatchStage::BackingOff) {
                pass.actions.push(Action::AbandonBatch { name: Arc::clone(&batch.name) });
            }
            return Some(self.adopt(gang, &request, &plan, &report, members, next));
        }
        let refusal = report.refusal;
        match batch.map(|batch| batch.stage) {
            Some(BatchStage::BackingOff) => waiting::backing_off(next, batch, refusal.as_ref()),
            // Nodes that were bought for the gang and do not hold it: the batch gives them back, then the next round.
            Some(BatchStage::Ready | BatchStage::InUse) if gang.phase == Some(Phase::Provisioning) => {
                let since = batch.and_then(|batch| batch.since);
                let grace = self.world.settings.ready_grace;
                if since.is_none_or(|since| self.world.now.duration_since(since) < grace) {
                    self.wake(pass, since, grace);
                    return waiting::bought_but_not_fitting(next, refusal.as_ref());
                }
                if let Some(batch) = batch {
                    pass.actions.push(Action::AbandonBatch { name: Arc::clone(&batch.name) });
                }
                waiting::does_not_fit(gang, next, refusal.as_ref())
            }
            Some(BatchStage::Buying | BatchStage::Ready | BatchStage::InUse | BatchStage::Ending) | None => {
                self.buy(gang, recognised, &request, refusal.as_ref(), next, pass)
            }
        }
    }

    fn nothing_to_place(&self, gang: &Arc<Gang>, next: &mut Gang) -> Option<GangEvent> {
        if gang.phase == Some(Phase::Finished) {
            return None;
        }
        let ended = self.snapshot.all_members(&gang.key).any(|pod| pod.ended);
        next.phase = Some(if ended { Phase::Finished } else { Phase::Collecting });
        next.waiting = None;
        None
    }

    /// Promises the places in the working snapshot and fills the next status.
    fn adopt(
        &mut self,
        gang: &Arc<Gang>,
        request: &GangRequest,
        plan: &Plan,
        report: &Report,
        members: &[Arc<Pod>],
        next: &mut Gang,
    ) -> GangEvent {
        next.phase = Some(Phase::Planned);
        next.epoch = gang.epoch.saturating_add(1);
        next.minimum = request.roles.iter().map(|role| role.min).sum();
        next.places = plan
            .places
            .iter()
            .map(|place| GangPlace {
                role: request.roles.get(place.role).map_or_else(|| Arc::from(""), |role| Arc::clone(&role.name)),
                rank: place.rank,
                uid: place.uid.clone(),
                pod: place
                    .uid
                    .as_ref()
                    .and_then(|uid| members.iter().find(|member| member.uid == *uid))
                    .map(|member| Arc::clone(&member.key.name)),
                node: place.node.clone(),
            })
            .collect();
        next.levels.clone_from(&report.levels);
        next.waiting = None;
        for place in plan.places.iter().filter(|place| !place.bound) {
            let requests = request.roles.get(place.role).map(|role| role.shape.requests.clone()).unwrap_or_default();
            self.snapshot
                .promises
                .entry(place.node.clone())
                .or_default()
                .push(Promise { gang: gang.key.clone(), room: PromisedRoom::Member(requests) });
        }
        GangEvent {
            reason: "Planned",
            message: format!(
                "placed {} members on {} nodes: {}",
                plan.places.len(),
                distinct_nodes(&next.places),
                level_summary(&report.levels)
            ),
            warning: false,
        }
    }

    fn buy(
        &mut self,
        gang: &Arc<Gang>,
        recognised: &Arc<Recognised>,
        request: &GangRequest,
        refusal: Option<&Refusal>,
        next: &mut Gang,
        pass: &mut Pass,
    ) -> Option<GangEvent> {
        if refusal.is_some_and(|refusal| !matches!(refusal, Refusal::DoesNotFit(_))) {
            // No node that could be bought changes a constraint that is not modelled.
            return waiting::unsatisfiable(gang, next, refusal);
        }
        if recognised.booking.is_some() {
            return waiting::booking(next, recognised);
        }
        if let Some(until) = self.round_pause(gang).filter(|until| *until > self.world.now) {
            self.wake(pass, Some(until), SignedDuration::ZERO);
            return waiting::does_not_fit(gang, next, refusal);
        }
        let offers = offers::offers(request, self.world.pools);
        if offers.possible.is_empty() {
            let empty = self.fits_on_empty_cluster(request, pass);
            return waiting::nothing_to_buy(gang, next, refusal, self.world.pools, &offers.left_out, empty);
        }
        let round = gang.round.saturating_add(1);
        let name: Arc<str> = Arc::from(batch_name(&gang.uid, round));
        let count = offers.possible.first().map_or(0, |offer| offer.count);
        pass.actions.push(Action::CreateBatch(Box::new(BatchWish {
            gang: Arc::clone(gang),
            round,
            offers: offers.possible,
            placement_group: recognised.wishes.placement_group.as_ref().map(|wish| Arc::clone(&wish.value)),
        })));
        next.phase = Some(Phase::Provisioning);
        next.round = round;
        next.batch = Some(Arc::clone(&name));
        next.waiting =
            Some(waiting::waiting("Provisioning", format!("buying {count} nodes as NodeBatch {name}"), None));
        let why = refusal.map_or_else(String::new, |refusal| format!(": {refusal}"));
        Some(GangEvent {
            reason: "Provisioning",
            message: format!("buying {count} nodes in one batch ({name}){why}"),
            warning: false,
        })
    }

    fn planned(
        &mut self,
        gang: &Arc<Gang>,
        recognised: &Arc<Recognised>,
        members: &[Arc<Pod>],
        next: &mut Gang,
        pass: &mut Pass,
    ) -> Option<GangEvent> {
        let age = gang.since.map_or(SignedDuration::ZERO, |since| self.world.now.duration_since(since));
        if age >= self.world.settings.expiry && gang.phase == Some(Phase::Released) {
            withdraw(gang, next);
            next.phase = Some(Phase::Collecting);
            return Some(GangEvent {
                reason: "PlanExpired",
                message:
                    "the gang did not reach the barrier in time; its capacity is given back and it is planned anew"
                        .to_owned(),
                warning: true,
            });
        }
        let request = match self.request(recognised, gang, members) {
            Ok(request) => request,
            Err(RequestError::Invalid(invalid)) => {
                withdraw(gang, next);
                return waiting::invalid(gang, next, &invalid);
            }
            // A member was deleted: its place stays promised to the pod that comes in its stead, until the plan
            // expires.
            Err(RequestError::Collecting { seen, needed, size }) => {
                self.refill(gang, members, next);
                next.waiting = Some(waiting::waiting(
                    "Collecting",
                    format!(
                        "{seen} of {size} members are there, {needed} needed; the plan is kept for the missing ones"
                    ),
                    None,
                ));
                self.wake(pass, gang.since, self.world.settings.expiry);
                if members.is_empty() {
                    withdraw(gang, next);
                    next.phase = Some(Phase::Collecting);
                }
                return None;
            }
            Err(RequestError::ForeignGate { pod }) => return waiting::foreign_gate(next, &pod),
        };
        next.waiting = None;
        if self.refill(gang, members, next) {
            return Some(GangEvent {
                reason: "Refilled",
                message: "a new pod takes the place of a lost one".to_owned(),
                warning: false,
            });
        }
        if let Some(reason) = self.stale(gang, &request) {
            let (plan, report) = self.plan(&request, gang, pass);
            if report.refusal.is_none() && !plan.places.is_empty() {
                let mut event = self.adopt(gang, &request, &plan, &report, members, next);
                event.reason = "Replanned";
                event.message = format!("{reason}; {}", event.message);
                return Some(event);
            }
            withdraw(gang, next);
            next.phase = Some(Phase::Waiting);
            return waiting::does_not_fit(gang, next, report.refusal.as_ref());
        }
        if gang.phase == Some(Phase::Planned) {
            if age < self.world.settings.settle {
                self.wake(pass, gang.since, self.world.settings.settle);
                return None;
            }
            next.phase = Some(Phase::Released);
            return Some(GangEvent {
                reason: "Released",
                message: format!("{} members sent to the scheduler (epoch {})", members.len(), gang.epoch),
                warning: false,
            });
        }
        self.release(gang, recognised, members, pass);
        self.wake(pass, gang.since, self.world.settings.expiry);
        None
    }

    fn committed(
        &mut self,
        gang: &Arc<Gang>,
        recognised: &Arc<Recognised>,
        members: &[Arc<Pod>],
        next: &mut Gang,
        pass: &mut Pass,
    ) -> Option<GangEvent> {
        let ended = self.snapshot.all_members(&gang.key).any(|pod| pod.ended);
        if members.is_empty() && ended {
            next.phase = Some(Phase::Finished);
            next.places.clear();
            next.waiting = None;
            return Some(GangEvent { reason: "Finished", message: "all members ended".to_owned(), warning: false });
        }
        // A released member that lost its bind call before the commit reached it still needs its patches.
        self.release(gang, recognised, members, pass);
        let homeless: Vec<&Arc<Pod>> =
            members.iter().filter(|pod| pod.node.is_none() && gang.place_of(&pod.uid).is_none()).collect();
        if !homeless.is_empty() {
            return self.replace(gang, recognised, members, next, pass);
        }
        let all_bound = gang.places.iter().all(|place| {
            place
                .uid
                .as_ref()
                .and_then(|uid| self.snapshot.pods.get(uid))
                .is_none_or(|pod| pod.node.is_some() || pod.ended)
        });
        let ended_or_live = self.snapshot.all_members(&gang.key).filter(|pod| !pod.deleting).count();
        if u32::try_from(ended_or_live).unwrap_or(u32::MAX) < gang.minimum {
            if gang.phase != Some(Phase::Degraded) {
                next.phase = Some(Phase::Degraded);
                let message = format!("{ended_or_live} of {} members left", gang.minimum);
                next.waiting = Some(waiting::waiting("MemberLost", message.clone(), None));
                return Some(GangEvent { reason: "MemberLost", message, warning: true });
            }
            return None;
        }
        if all_bound && gang.phase != Some(Phase::Bound) {
            next.phase = Some(Phase::Bound);
            next.waiting = None;
            return Some(GangEvent {
                reason: "Bound",
                message: format!("all {} members bound on {} nodes", gang.places.len(), distinct_nodes(&gang.places)),
                warning: false,
            });
        }
        None
    }

    /// Plans members that came after the commit point: bound ones are fixed and count as arrived.
    fn replace(
        &mut self,
        gang: &Arc<Gang>,
        recognised: &Arc<Recognised>,
        members: &[Arc<Pod>],
        next: &mut Gang,
        pass: &mut Pass,
    ) -> Option<GangEvent> {
        let request = match self.request(recognised, gang, members) {
            Ok(request) => request,
            Err(RequestError::Invalid(invalid)) => {
                next.waiting = Some(waiting::waiting(invalid.reason, invalid.message, None));
                return None;
            }
            Err(RequestError::Collecting { seen, needed, size }) => {
                next.waiting = Some(waiting::waiting(
                    "Collecting",
                    format!("{seen} of {size} members are there, {needed} needed"),
                    None,
                ));
                return None;
            }
            Err(RequestError::ForeignGate { pod }) => return waiting::foreign_gate(next, &pod),
        };
        let (plan, report) = self.plan(&request, gang, pass);
        if report.refusal.is_some() || plan.places.is_empty() {
            let message = report.refusal.as_ref().map_or_else(String::new, ToString::to_string);
            next.phase = Some(Phase::Degraded);
            next.waiting = Some(waiting::waiting("MemberLost", format!("no room for a new member: {message}"), None));
            return None;
        }
        let mut event = self.adopt(gang, &request, &plan, &report, members, next);
        event.reason = "Replanned";
        Some(event)
    }

    /// Gives the places of pods that are gone to pods of the same role and rank, nodes unchanged. Whether anything
    /// changed; then the epoch rises.
    fn refill(&self, gang: &Arc<Gang>, members: &[Arc<Pod>], next: &mut Gang) -> bool {
        let placed: BTreeMap<&PodUid, ()> =
            gang.places.iter().filter_map(|place| place.uid.as_ref()).map(|uid| (uid, ())).collect();
        let live = |uid: &PodUid| members.iter().any(|member| member.uid == *uid);
        let mut changed = false;
        for place in &mut next.places {
            if place.uid.as_ref().is_some_and(&live) {
                continue;
            }
            if place.uid.as_ref().and_then(|uid| self.snapshot.pods.get(uid)).is_some_and(|pod| pod.ended) {
                continue;
            }
            let heir = members.iter().find(|member| {
                !placed.contains_key(&member.uid)
                    && matches!(&member.membership, Membership::Member { role, rank: crate::gang::RankClaim::Rank(rank), .. }
                        if *role == place.role && *rank == place.rank)
            });
            let uid = heir.map(|heir| heir.uid.clone());
            if place.uid != uid {
                place.uid = uid;
                place.pod = heir.map(|heir| Arc::clone(&heir.key.name));
                changed = true;
            }
        }
        if changed {
            next.epoch = gang.epoch.saturating_add(1);
            next.phase = Some(Phase::Planned);
        }
        changed
    }

    /// Why the plan no longer holds on this snapshot, if so.
    fn stale(&self, gang: &Gang, request: &GangRequest) -> Option<String> {
        for place in &gang.places {
            let bound = place
                .uid
                .as_ref()
                .and_then(|uid| self.snapshot.pods.get(uid))
                .is_some_and(|pod| pod.node.is_some() || pod.ended);
            if bound {
                continue;
            }
            let Some(entry) = self.snapshot.nodes.get(&place.node) else {
                return Some(format!("planned node {} is gone", place.node));
            };
            if !entry.node.ready || entry.node.deleting || entry.node.unschedulable {
                return Some(format!("planned node {} is no longer ready", place.node));
            }
        }
        // Members of the same gang on one node must fit there together, beside everybody else.
        let shape = request.roles.first().map(|role| &role.shape)?;
        let own = self.own_keys(&gang.key);
        let mut per_node: BTreeMap<&NodeName, u32> = BTreeMap::new();
        for place in &gang.places {
            let pod = place.uid.as_ref().and_then(|uid| self.snapshot.pods.get(uid));
            if pod.is_none_or(|pod| pod.node.is_none() && !pod.ended) {
                *per_node.entry(&place.node).or_default() += 1;
            }
        }
        for (node, wanted) in per_node {
            let host = self.host(node, &own)?;
            match crate::fit::slots(shape, &host.node, &host.usage) {
                Ok(slots) if slots >= wanted => {}
                Ok(slots) => return Some(format!("planned node {node} holds {slots} of {wanted} members")),
                Err(misfit) => return Some(format!("planned node {node}: {misfit}")),
            }
        }
        None
    }

    fn release(&self, gang: &Arc<Gang>, recognised: &Recognised, members: &[Arc<Pod>], pass: &mut Pass) {
        let tolerate = self.tolerated(gang, recognised);
        for pod in members {
            let Some(place) = gang.place_of(&pod.uid) else { continue };
            if pod.node.is_some() || pod.foreign_gates {
                continue;
            }
            let patched =
                pod.plan_epoch == Some(gang.epoch) && pod.planned_node.as_ref() == Some(&place.node) && !pod.gated;
            if !patched {
                pass.actions.push(Action::Release(Box::new(Release {
                    pod: Arc::clone(pod),
                    epoch: gang.epoch,
                    node: place.node.clone(),
                    tolerate: tolerate.clone(),
                })));
            }
        }
    }

    fn request(&self, recognised: &Recognised, gang: &Gang, members: &[Arc<Pod>]) -> Result<GangRequest, RequestError> {
        let values = self.tolerated(gang, recognised);
        let pending = Pending { taint: self.world.settings.pending_taint, values: &values };
        build_request(recognised, gang, members, self.world.levels, &pending)
    }

    /// Until when no further round is bought: a round that was bought and did not hold the gang must not be followed
    /// by another at once.
    fn round_pause(&self, gang: &Gang) -> Option<Timestamp> {
        if gang.round == 0 || gang.phase != Some(Phase::Waiting) {
            return None;
        }
        let doublings = gang.round.saturating_sub(1).min(5);
        let pause = self.world.settings.round_pause.saturating_mul(1 << doublings);
        gang.since?.saturating_add(pause).ok()
    }

    /// Values of the pending taint that belong to the gang: its own UID, or that of its booking.
    fn tolerated(&self, gang: &Gang, recognised: &Recognised) -> Vec<Arc<str>> {
        let booking = recognised.booking.as_ref().and_then(|name| {
            self.world.bookings.get(&ObjectKey::new(Arc::clone(&gang.key.namespace), Arc::clone(name)))
        });
        std::iter::once(Arc::clone(&gang.uid)).chain(booking.cloned()).collect()
    }

    fn plan(&self, request: &GangRequest, gang: &Gang, pass: &mut Pass) -> (Plan, Report) {
        let own = self.own_keys(&gang.key);
        let problem = Problem {
            levels: self.world.levels.clone(),
            hosts: self.snapshot.nodes.keys().filter_map(|node| self.host(node, &own)).collect(),
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
    fn own_keys(&self, gang: &ObjectKey) -> Vec<ObjectKey> {
        let booking = self.snapshot.recognised.get(gang).and_then(|recognised| recognised.booking.clone());
        let booking = booking.map(|name| Snapshot::booking_key(&gang.namespace, &name));
        std::iter::once(gang.clone()).chain(booking).collect()
    }

    /// A node as the gang may use it: what is promised to others counts as used. `None` if it is theirs alone.
    fn host(&self, node: &NodeName, own: &[ObjectKey]) -> Option<Host> {
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

    fn fits_on_empty_cluster(&self, request: &GangRequest, pass: &mut Pass) -> bool {
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

    fn write(
        &mut self,
        gang: &Arc<Gang>,
        recognised: Option<&Arc<Recognised>>,
        mut next: Gang,
        event: Option<GangEvent>,
        pass: &mut Pass,
    ) {
        if next.phase != gang.phase || next.epoch != gang.epoch {
            next.since = Some(self.world.now);
        }
        if next == **gang {
            return;
        }
        if next.phase == Some(Phase::Planned) {
            self.wake(pass, Some(self.world.now), self.world.settings.settle);
        }
        pass.actions.push(Action::WriteStatus(Box::new(StatusWrite {
            gang: Arc::clone(gang),
            recognised: recognised.cloned(),
            next,
            event,
        })));
    }

    fn wake(&self, pass: &mut Pass, since: Option<Timestamp>, after: SignedDuration) {
        let at = since.unwrap_or(self.world.now).saturating_add(after).unwrap_or(Timestamp::MAX);
        pass.wake_at = Some(pass.wake_at.map_or(at, |earlier| earlier.min(at)));
    }
}

/// A new epoch without places.
fn withdraw(gang: &Gang, next: &mut Gang) {
    if !gang.places.is_empty() {
        next.places.clear();
        next.epoch = gang.epoch.saturating_add(1);
    }
    next.levels.clear();
}

fn distinct_nodes(places: &[GangPlace]) -> usize {
    places.iter().map(|place| &place.node).collect::<std::collections::BTreeSet<_>>().len()
}

/// Domains used per level for people: `1 zone, 2 network-node-layer-3, 8 hostname`.
#[must_use]
pub fn level_summary(levels: &[LevelUse]) -> String {
    levels
        .iter()
        .filter(|level| level.used > 0)
        .map(|level| format!("{} {}", level.used, level.key.rsplit('/').next().unwrap_or_default()))
        .collect::<Vec<_>>()
        .join(", ")
}
