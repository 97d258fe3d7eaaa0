//! A virtual worker: carries decisions out line by line, and may end between any two of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use muster_core::batch::{
    Begun, Change, Converge, Decision, Done, Failure, Keys, Look, Memory, OwnerLook, Remains, Report, Requeue,
    Settings, Sight, Unshown, World, assume, pass, witness,
};
use muster_core::ec2::Tags;
use muster_core::ec2::{CallError, ErrorClass};
use muster_core::ec2::{Reservation, ReservationState};
use muster_core::model::batch::{Batch, BatchMember, BatchPhase, MemberState};
use muster_core::model::node::{Taint, TaintEffect};
use rand::RngExt;

use super::cluster::{BOOKING, DISRUPTED, PENDING, UNREGISTERED, View, ZONE};
use super::coverage::{Crash, Effect, Fault};
use super::ec2::{CLUSTER_UID, error, operation};
use super::history::History;
use super::recorded;
use super::rounds::Rounds;
use super::supply::{Lessons, Offers};

/// When a batch is looked at again.
#[derive(Clone, Copy, Debug)]
enum Due {
    Now,
    /// At the time, or when the view is not this one any more.
    Change(Timestamp, u64),
    At(Timestamp),
}

/// A decision that is being carried out.
#[derive(Debug)]
struct Flight {
    decision: Decision,
    phase: BatchPhase,
    version: u64,
    written: bool,
    effects: VecDeque<Todo>,
    begun: Begun,
}

#[derive(Debug)]
enum Todo {
    Edit(Converge),
    Change(Change),
    Look(Look),
}

/// One process that holds the lease.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) view: Arc<View>,
    store: BTreeMap<String, (u64, Arc<Batch>)>,
    pub(super) memory: BTreeMap<String, Memory>,
    due: BTreeMap<String, Due>,
    flights: BTreeMap<String, Flight>,
    unshown: Unshown,
    lessons: Lessons,
    rounds: Rounds,
    settings: Settings,
}

/// What became of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Did {
    Something,
    /// Nothing to do before this time.
    Nothing(Timestamp),
    /// The process ended, or lost the lease.
    Crashed,
}

/// What holds for all batches.
pub(super) fn settings() -> Settings {
    let keys = Keys {
        gang_pending: PENDING,
        unregistered: UNREGISTERED,
        disrupted: DISRUPTED,
        booking: BOOKING,
        placement_group: "muster.dev/placement-group-id",
        zone: ZONE,
        network_layer_prefix: "topology.k8s.aws/network-node-layer-",
    };
    Settings {
        cluster_uid: CLUSTER_UID.to_owned(),
        cluster_name: "prod".to_owned(),
        back_off: SignedDuration::from_secs(30),
        dry_run: false,
        keys,
    }
}

impl Worker {
    pub(super) fn start(view: Arc<View>) -> Self {
        let lessons = Lessons::rebuilt(view.batches.values().map(|(_, batch)| batch.as_ref()));
        let store = view.batches.clone();
        let (memory, due, flights) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self {
            view,
            store,
            memory,
            due,
            flights,
            unshown: Unshown::default(),
            lessons,
            rounds: Rounds::new(),
            settings: settings(),
        }
    }

    /// A watch delivers.
    pub(super) fn deliver(&mut self, view: Arc<View>) {
        for (name, (version, batch)) in &view.batches {
            let newer = self.store.get(name).is_none_or(|(known, _)| known < version);
            if newer {
                self.store.insert(name.clone(), (*version, Arc::clone(batch)));
                // Somebody else wrote.
                if let Some(due @ Due::Change(..)) = self.due.get_mut(name) {
                    *due = Due::Now;
                }
            }
        }
        self.store.retain(|name, _| view.batches.contains_key(name));
        self.memory.retain(|name, _| view.batches.contains_key(name));
        self.view = view;
    }

    fn is_due(&self, name: &str, now: Timestamp) -> bool {
        match self.due.get(name).unwrap_or(&Due::Now) {
            Due::Now => true,
            Due::Change(at, version) => *at <= now || self.view.version != *version,
            Due::At(at) => *at <= now,
        }
    }

    /// One line of the rounds for pods of no gang.
    pub(super) fn round(&mut self, sim: &mut History) -> Did {
        let view = Arc::clone(&self.view);
        if self.rounds.step(&view, &self.lessons, sim) { Did::Something } else { Did::Crashed }
    }

    /// One line of the worker.
    pub(super) fn step(&mut self, sim: &mut History) -> Did {
        let now = sim.now;
        let idle = |name: &&String| !self.flights.contains_key(*name);
        let due: Vec<&String> = self.store.keys().filter(idle).filter(|name| self.is_due(name, now)).collect();
        let lines = self.flights.len() + usize::from(!due.is_empty());
        if lines == 0 {
            let at = |name: &String| match self.due.get(name) {
                Some(Due::At(at) | Due::Change(at, _)) => *at,
                Some(Due::Now) | None => now,
            };
            let next = self.store.keys().map(at).min();
            return Did::Nothing(next.unwrap_or(now + SignedDuration::from_secs(60)));
        }
        let line = sim.rng.random_range(0..lines);
        if let Some(name) = self.flights.keys().nth(line).cloned() {
            return self.carry_on(&name, sim);
        }
        self.decide(sim);
        Did::Something
    }

    fn decide(&mut self, sim: &mut History) {
        let now = sim.now;
        let mut batches: BTreeMap<String, Arc<Batch>> =
            self.store.iter().map(|(name, (_, batch))| (name.clone(), Arc::clone(batch))).collect();
        let mut busy = BTreeSet::new();
        for name in self.store.keys() {
            if let Some(flight) = self.flights.get(name) {
                // What is taken counts from the moment it is decided.
                if let (Some(next), Some(batch), false) = (&flight.decision.next, batches.get_mut(name), flight.written)
                {
                    *batch = assume(batch, next);
                }
                busy.insert(name.clone());
            } else if !self.is_due(name, now) {
                busy.insert(name.clone());
            }
        }
        let keeps = witness(&batches, &self.view.snapshot, &mut self.memory).is_some();
        let (kept, times) = sim.cluster.keeps;
        // The condition of the pools, and its event.
        sim.cluster.keeps = (keeps, times + u32::from(keeps && !kept));
        let supply = Offers { catalogue: &sim.catalogue, lessons: &self.lessons, view: &self.view };
        let world = World {
            batches: &batches,
            memory: &self.memory,
            busy: &busy,
            snapshot: &self.view.snapshot,
            stale: false,
            regained: None,
            supply: &supply,
            settings: &self.settings,
            now,
            now_real: now,
        };
        recorded::look(&world);
        for mut decision in pass(&world) {
            decision.converge = self.unshown.rest(decision.converge, &self.view.snapshot, now);
            let begun = Unshown::begin(&decision.converge, &self.view.snapshot);
            let name = decision.batch.clone();
            let (version, batch) = &self.store[&name];
            let flight = Flight {
                phase: batch.status.phase,
                version: *version,
                written: false,
                effects: VecDeque::new(),
                begun,
                decision,
            };
            self.flights.insert(name, flight);
        }
    }

    fn carry_on(&mut self, name: &str, sim: &mut History) -> Did {
        if !self.store.contains_key(name) {
            // The object is gone.
            self.flights.remove(name);
            return Did::Something;
        }
        let mut flight = self.flights.remove(name).unwrap();
        if !flight.written {
            if flight.decision.next.is_some()
                && let Some(did) = self.write(name, &flight, sim)
            {
                return did;
            }
            self.acknowledged(name, &mut flight, sim);
        } else if let Some(todo) = flight.effects.pop_front() {
            match self.effect(name, &flight, todo, sim) {
                Outcome::Crashed => return Did::Crashed,
                Outcome::Failed => {
                    self.due.insert(name.to_owned(), Due::Now);
                    return Did::Something;
                }
                Outcome::Done => {}
            }
        }
        if flight.effects.is_empty() {
            let version = self.view.version;
            let due = match flight.decision.requeue {
                Requeue::Now | Requeue::Outcome => Due::Now,
                Requeue::At(at) => Due::Change(at, version),
                Requeue::Pause(at) => Due::At(at),
                Requeue::Retry(pause) => Due::At(sim.now + SignedDuration::try_from(pause).unwrap()),
            };
            self.due.insert(name.to_owned(), due);
        } else {
            self.flights.insert(name.to_owned(), flight);
        }
        Did::Something
    }

    /// Writes the status; `None` once that is acknowledged.
    fn write(&mut self, name: &str, flight: &Flight, sim: &mut History) -> Option<Did> {
        let (crash, fault) = sim.draw(flight.phase, Effect::Write);
        if matches!(crash, Crash::Before | Crash::OnItsWay) {
            return Some(Did::Crashed);
        }
        if fault == Fault::Conflict {
            // Somebody else touches the object.
            if let Some((_, batch)) = sim.cluster.batches.get(name) {
                let batch = Batch::clone(batch);
                sim.cluster.put(batch);
            }
        }
        let current = sim.cluster.batches.get(name).map(|(version, batch)| (*version, Arc::clone(batch)));
        let carried =
            fault != Fault::Refused && current.as_ref().is_some_and(|(version, _)| *version == flight.version);
        let mut version = 0;
        if let (true, Some((_, batch))) = (carried, &current) {
            let status = flight.decision.next.clone().unwrap();
            version = sim.cluster.put(Batch { status, ..Batch::clone(batch) });
            sim.written(name);
        }
        if crash == Crash::After {
            return Some(Did::Crashed);
        }
        if carried && fault != Fault::Lost {
            self.store.insert(name.to_owned(), (version, Arc::clone(&sim.cluster.batches[name].1)));
            return None;
        }
        let memory = self.memory.entry(name.to_owned()).or_default();
        if matches!(fault, Fault::Refused | Fault::Lost) {
            let due = match memory.unwritten() {
                Requeue::Retry(pause) => Due::At(sim.now + SignedDuration::try_from(pause).unwrap()),
                other => panic!("{other:?} after a status that was not written"),
            };
            self.due.insert(name.to_owned(), due);
            return Some(Did::Something);
        }
        // The decision is dropped, the object read again.
        memory.superseded();
        match sim.cluster.batches.get(name) {
            Some(known) => {
                self.store.insert(name.to_owned(), known.clone());
            }
            None => {
                self.store.remove(name);
            }
        }
        self.due.insert(name.to_owned(), Due::Now);
        Some(Did::Something)
    }

    fn acknowledged(&mut self, name: &str, flight: &mut Flight, sim: &mut History) {
        flight.written = true;
        let decision = &flight.decision;
        let memory = self.memory.entry(name.to_owned()).or_default();
        let settled = memory.settle(&Remains::of(decision));
        unheeded(&self.store[name].1, &settled, sim);
        for note in &decision.notes {
            self.lessons.learn(note, sim.now);
        }
        let edits = decision.converge.iter().cloned().map(Todo::Edit);
        let change = decision.change.iter().cloned().map(Todo::Change);
        let looks = decision.looks.iter().cloned().map(Todo::Look);
        flight.effects = edits.chain(change).chain(looks).collect();
    }

    fn effect(&mut self, name: &str, flight: &Flight, todo: Todo, sim: &mut History) -> Outcome {
        sim.take_time();
        match todo {
            Todo::Edit(edit) => self.edit(name, flight, &edit, sim),
            Todo::Change(change) => {
                let (crash, fault) = sim.draw(flight.phase, Effect::of_change(&change));
                if crash == Crash::Before {
                    return Outcome::Crashed;
                }
                if crash == Crash::OnItsWay {
                    sim.send_late(change);
                    return Outcome::Crashed;
                }
                let carried = matches!(fault, Fault::None | Fault::Lost);
                let result = if carried { Some(sim.change(&change)) } else { None };
                if crash == Crash::After {
                    return Outcome::Crashed;
                }
                let result = match (result, fault) {
                    (Some(result), Fault::None) => result,
                    _ => Err(unanswered(operation(&change), fault, sim)),
                };
                let memory = self.memory.entry(name.to_owned()).or_default();
                memory.done = Some(Done { change, result });
                memory.seen.clear();
                Outcome::Done
            }
            Todo::Look(look) => {
                let (crash, fault) = sim.draw(flight.phase, Effect::of_look(&look));
                if crash != Crash::None {
                    return Outcome::Crashed;
                }
                let answer = match fault {
                    Fault::None => self.look(&look, sim),
                    _ => Err(unanswered("Describe", fault, sim)),
                };
                self.memory.entry(name.to_owned()).or_default().seen.insert(look, answer);
                Outcome::Done
            }
        }
    }

    fn look(&mut self, look: &Look, sim: &mut History) -> Result<Sight, CallError> {
        match look {
            Look::Owner(OwnerLook::Gang { key, .. }) => {
                use muster_core::model::gang::Phase;
                let lives = sim.cluster.actors.get(&*key.name);
                Ok(Sight::Owner(lives.is_some_and(|actor| actor.gang.phase != Some(Phase::Finished))))
            }
            Look::Owner(OwnerLook::Request { uid, .. }) => Ok(Sight::Owner(sim.cluster.requests.contains(uid))),
            Look::IntolerantDaemonSets(_) => Ok(Sight::Names(vec!["agent".to_owned()])),
            Look::Occupied(_) if sim.cluster.forbidden => {
                Err(error("ListPods", Some("UnauthorizedOperation"), Some(403)))
            }
            Look::Occupied(nodes) => Ok(Sight::Names(sim.cluster.with_pods(nodes))),
            Look::Reservations(_) => {
                self.lessons.read = Some(sim.now);
                self.lessons.reservations = sim
                    .ec2
                    .reservations
                    .iter()
                    .map(|(id, hosts)| {
                        let inside = |vm: &&super::ec2::Vm| vm.reservation.as_ref() == Some(id) && vm.live();
                        let used = u32::try_from(sim.ec2.vms.values().filter(inside).count()).unwrap();
                        Reservation {
                            id: id.clone(),
                            instance_type: hosts.instance_type.clone(),
                            zone: hosts.zone.clone(),
                            state: ReservationState::Active,
                            block: false,
                            targeted: true,
                            placement_group: hosts.group.clone(),
                            total: hosts.total,
                            free: hosts.total.saturating_sub(used),
                            start: None,
                            end: None,
                            owner: String::new(),
                            tags: Tags::new(),
                        }
                    })
                    .collect();
                Ok(Sight::Read)
            }
            Look::Instances(_)
            | Look::Tagged(_)
            | Look::Fleet(_)
            | Look::Group(_)
            | Look::Topology { .. }
            | Look::Console(_) => sim.ec2.look(look),
        }
    }

    fn edit(&mut self, name: &str, flight: &Flight, edit: &Converge, sim: &mut History) -> Outcome {
        let (crash, fault) = sim.draw(flight.phase, Effect::of_converge(edit));
        if crash == Crash::Before {
            return Outcome::Crashed;
        }
        let mut stated = matches!(fault, Fault::None);
        if matches!(fault, Fault::None | Fault::Lost) && !apply(name, edit, sim) {
            stated = false;
        }
        if crash == Crash::After {
            return Outcome::Crashed;
        }
        if stated {
            let made = flight.begun.iter().filter(|(begun, _)| begun == edit).cloned().collect();
            self.unshown.made(made, sim.now);
            return Outcome::Done;
        }
        let memory = self.memory.entry(name.to_owned()).or_default();
        memory.failed(Failure { text: format!("{edit:?} failed"), denied: false });
        Outcome::Failed
    }
}

/// The message of a loss is deleted once its report is settled: then it stands in the status, or concerns nobody.
fn unheeded(batch: &Batch, settled: &[Report], sim: &mut History) {
    let status = &batch.status;
    if !muster_core::batch::heeds_notices(status.phase) {
        return;
    }
    let reported: BTreeSet<_> = settled.iter().flat_map(|report| report.losses.keys()).collect();
    let heeds = |one: &&BatchMember| one.loss.is_none() && one.state != MemberState::Terminating;
    let open = status.instances.iter().filter(heeds).find(|one| reported.contains(&one.id));
    if let Some(open) = open {
        sim.fail(format!("the loss of {} of {} is settled and not written down", open.id, batch.name));
    }
}

enum Outcome {
    Done,
    Failed,
    Crashed,
}

/// What a call without a proper answer says.
fn unanswered(operation: &str, fault: Fault, sim: &mut History) -> CallError {
    let answers: &[(Option<&str>, Option<u16>)] = match fault {
        Fault::Throttled => &[(Some("RequestLimitExceeded"), Some(503))],
        Fault::Denied => &[(Some("UnauthorizedOperation"), Some(403))],
        Fault::None | Fault::Conflict | Fault::Refused | Fault::Lost => {
            &[(None, None), (None, Some(502)), (Some("InternalError"), Some(500))]
        }
    };
    let (code, status) = answers[sim.rng.random_range(0..answers.len())];
    let error = error(operation, code, status);
    debug_assert!(fault != Fault::Denied || error.kind == ErrorClass::Permission);
    error
}

/// Carries out one edit of the API server; whether it was accepted.
fn apply(batch: &str, edit: &Converge, sim: &mut History) -> bool {
    let cluster = &mut sim.cluster;
    match edit {
        Converge::Taint { node, instance, key } => {
            if let Some(machine) = cluster.machine_of(node, instance) {
                let taint = Taint { key: Arc::from(*key), value: Arc::from(""), effect: TaintEffect::NoSchedule };
                machine.node.taints.push(taint);
                cluster.touch();
            }
        }
        Converge::Untaint { node, key } => {
            if let Some(machine) = cluster.machines.get_mut(node) {
                machine.node.taints.retain(|taint| *taint.key != **key);
                cluster.touch();
            }
        }
        Converge::Hold { node, owner } => {
            if let Some(machine) = cluster.machines.get_mut(node) {
                let waits = machine.node.taints.iter().find(|taint| *taint.key == *PENDING);
                assert_eq!(waits.map(|taint| &*taint.value), Some(owner.as_str()), "held for whom it waits");
                machine.node.held = true;
                cluster.touch();
            }
        }
        Converge::Unhold { node } => {
            if let Some(machine) = cluster.machines.get_mut(node) {
                machine.node.taints.retain(|taint| *taint.key != *PENDING);
                machine.node.held = false;
                cluster.touch();
            }
        }
        Converge::Label { node, labels } => {
            // EC2's names of groups are ours: what stands on a node is the id.
            let group = labels.get("muster.dev/placement-group-id");
            assert!(group.is_none_or(|group| group.starts_with("pg-")), "{group:?} is no id of a placement group");
            if let Some(machine) = cluster.machines.get_mut(node) {
                machine.node.labels.extend(labels.clone());
                cluster.touch();
            }
        }
        Converge::DeleteNode { node, instance } => {
            if cluster.machine_of(node, instance).is_some() {
                super::checks::before_delete(sim, node);
                sim.cluster.delete_node(node);
            }
        }
        Converge::Evict { pod, force, .. } => return cluster.evict(&pod.name, *force, &mut sim.rng),
        Converge::BlockPool { pool, .. } => {
            cluster.blocks.entry(pool.clone()).or_default().batch = batch.to_owned();
            cluster.touch();
        }
        Converge::CountProbe { pool, probes } => {
            if let Some(block) = cluster.blocks.get_mut(pool) {
                block.probes = probes.clone();
                cluster.touch();
            }
        }
        Converge::UnblockPool(pool) => {
            cluster.blocks.remove(pool);
            cluster.touch();
        }
        Converge::Book(pool) => return cluster.book(batch, pool),
        Converge::Remove => {
            cluster.account(batch);
            cluster.batches.remove(batch);
            cluster.touch();
        }
    }
    true
}
