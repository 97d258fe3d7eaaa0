//! All that the simulated account holds.

pub(crate) mod agenda;
pub(crate) mod fleets;
pub(crate) mod groups;
pub(crate) mod held;
pub(crate) mod ids;
pub(crate) mod instances;
pub(crate) mod queue;
mod quotas;
pub(crate) mod reservations;
pub(crate) mod subnets;
pub(crate) mod templates;
pub(crate) mod tokens;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::capacity::{Capacity, Pin};
use crate::choices::EmptyGroup;
use crate::clock::{later, seconds};
use crate::faults::Faults;
use crate::fixtures::{self, InstanceType};
use crate::invariants::batches::Batches;
use crate::journal::Journal;
use crate::kinds::{MarketType, ReservationKind};
use crate::launch::order::Taken;
use crate::scenario::{Offerings, Scenario};
use crate::state::agenda::{Agenda, Due};
use crate::state::fleets::Fleet;
use crate::state::groups::Group;
use crate::state::held::Held;
use crate::state::ids::Ids;
use crate::state::instances::{Instance, LifeState};
use crate::state::queue::Queue;
use crate::state::reservations::{Reservation, ReservationState, Slot};
use crate::state::subnets::SubnetState;
use crate::state::templates::Template;
use crate::state::tokens::Tokens;
use crate::throttle::Buckets;

/// Minutes before the end of a Capacity Block: the warning, the end of its instances, and of UltraServers.
const BLOCK_WARNING_MINUTES: i64 = 40;
const BLOCK_END_MINUTES: i64 = 30;
const ULTRASERVER_END_MINUTES: i64 = 60;

/// The account, its capacity and what was done to it.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) origin: Timestamp,
    /// The time up to which everything due has been done.
    pub(crate) now: Timestamp,
    pub(crate) capacity: Capacity,
    /// By name.
    pub(crate) groups: BTreeMap<String, Group>,
    /// By id.
    pub(crate) templates: BTreeMap<String, Template>,
    /// By id.
    pub(crate) fleets: BTreeMap<String, Fleet>,
    /// By id; terminated ones stay for the bill and the invariants.
    pub(crate) instances: BTreeMap<String, Instance>,
    /// By id.
    pub(crate) reservations: BTreeMap<String, Reservation>,
    pub(crate) queue: Queue,
    pub(crate) agenda: Agenda,
    /// Launches that are carried out later.
    pub(crate) held: Vec<Held>,
    /// By id.
    pub(crate) subnets: BTreeMap<String, SubnetState>,
    /// Images that a path was resolved to.
    pub(crate) resolved_images: BTreeSet<String>,
    pub(crate) tokens: Tokens,
    pub(crate) buckets: Buckets,
    pub(crate) faults: Faults,
    /// Actions that are not allowed, whatever the policy says.
    pub(crate) denied: BTreeSet<String>,
    /// Instances with termination protection.
    pub(crate) protected: BTreeSet<String>,
    pub(crate) journal: Journal,
    /// The NodeBatches that were shown.
    pub(crate) batches: Batches,
    pub(crate) ids: Ids,
}

impl World {
    pub(crate) fn new(scenario: Scenario, origin: Timestamp) -> Self {
        let stream = |number: u64| {
            let mut rng = ChaCha8Rng::seed_from_u64(scenario.seed);
            rng.set_stream(number);
            rng
        };
        let subnets = scenario
            .zones
            .iter()
            .flat_map(|zone| zone.subnets.iter().map(|s| SubnetState::new(zone, s)))
            .map(|s| (s.id.clone(), s))
            .collect();
        Self {
            origin,
            now: origin,
            capacity: Capacity::new(&scenario.pools, stream(1), scenario.choices.leaf_spread),
            groups: BTreeMap::new(),
            templates: BTreeMap::new(),
            fleets: BTreeMap::new(),
            instances: BTreeMap::new(),
            reservations: BTreeMap::new(),
            queue: Queue::default(),
            agenda: Agenda::default(),
            held: vec![],
            subnets,
            resolved_images: BTreeSet::new(),
            tokens: Tokens::default(),
            buckets: Buckets::new(scenario.throttling),
            faults: Faults::new(&scenario.faults, stream(3)),
            denied: BTreeSet::new(),
            protected: BTreeSet::new(),
            journal: Journal::default(),
            batches: Batches::default(),
            ids: Ids::new(stream(2)),
            scenario,
        }
    }

    /// Makes the groups and reservations that the scenario declares.
    pub(crate) fn declare(&mut self, now: Timestamp) {
        for spec in self.scenario.placement_groups.clone() {
            let group = Group {
                id: self.ids.resource("pg"),
                strategy: spec.strategy,
                partitions: None,
                tags: spec.tags,
                pin: None,
                visible_at: now,
                available_at: now,
                foreign: true,
                owner: spec.owner.filter(|owner| *owner != self.scenario.account),
            };
            self.groups.insert(spec.name, group);
        }
        for spec in self.scenario.reservations.clone() {
            let hosts = self.capacity.set_aside(&spec.id, &spec.instance_type, &spec.zone, &spec.spines);
            let moment = |at: Option<f64>| at.map(|s| later(self.origin, seconds(s)));
            let reservation = Reservation {
                id: spec.id.clone(),
                instance_type: spec.instance_type,
                zone: spec.zone,
                kind: spec.kind,
                matching: spec.matching,
                group: spec.placement_group,
                tags: spec.tags,
                created_at: now,
                start: moment(spec.start_seconds),
                end: moment(spec.end_seconds),
                cancelled_at: None,
                slots: hosts.into_iter().map(|host| Slot { host, taken: false }).collect(),
                foreign: true,
                ended: false,
            };
            self.add_reservation(reservation);
        }
    }

    /// Adds a reservation, binds its placement group to where it lies, and plans its end.
    pub(crate) fn add_reservation(&mut self, reservation: Reservation) {
        let group = reservation.group.as_ref().and_then(|name| self.groups.get_mut(name));
        if let (Some(group), Some(first)) = (group, reservation.slots.first()) {
            group.pin.get_or_insert_with(|| Pin {
                zone: reservation.zone.clone(),
                instance_type: reservation.instance_type.clone(),
                spine: first.host.spine,
            });
        }
        if let (ReservationKind::CapacityBlock, Some(end)) = (reservation.kind, reservation.end) {
            let before = |minutes: i64| end.checked_sub(SignedDuration::from_mins(minutes)).unwrap_or(end);
            self.agenda.add(before(BLOCK_WARNING_MINUTES), Due::BlockWarning(reservation.id.clone()));
            let ultra = InstanceType::find(&reservation.instance_type).is_some_and(|t| t.ultraserver);
            let minutes = if ultra { ULTRASERVER_END_MINUTES } else { BLOCK_END_MINUTES };
            self.agenda.add(before(minutes), Due::BlockEnd(reservation.id.clone()));
        }
        self.reservations.insert(reservation.id.clone(), reservation);
    }

    /// Whether EC2 has the type in the zone.
    pub(crate) fn offered(&self, instance_type: &str, zone: &str) -> bool {
        let published = || {
            let offered = fixtures::offered(&self.scenario.region, self.scenario.zone_id(zone));
            offered.iter().any(|name| name == instance_type)
        };
        self.capacity.offered(instance_type, zone)
            || match self.scenario.offerings {
                Offerings::Pools => false,
                Offerings::Published => published(),
            }
    }

    /// Gives a host back to where it was taken from.
    pub(crate) fn release(&mut self, taken: &Taken) {
        let reservation = taken.reservation.as_ref().and_then(|id| self.reservations.get_mut(id));
        let kept = reservation.is_some_and(|r| !r.ended && r.release(&taken.host));
        if !kept {
            self.capacity.release(&taken.host);
        }
    }

    /// Does what has become due by `now`: first what the world does by itself, then hosts and addresses of
    /// terminated instances are freed, reservations end, and placement groups that hold nothing are unpinned.
    pub(crate) fn settle(&mut self, now: Timestamp) {
        self.now = now;
        while let Some((at, due)) = self.agenda.pop(now) {
            self.carry_out(due, at);
        }
        self.queue.expire(self.scenario.queue.retention_seconds, now);
        let cleanup = seconds(self.scenario.delays.block_cleanup_seconds);
        let mut free = Vec::new();
        for instance in self.instances.values_mut() {
            let Some(gone) = instance.terminated_at.filter(|at| *at <= now) else { continue };
            if !instance.released {
                instance.released = true;
                if let Some(subnet) = self.subnets.get_mut(&instance.subnet) {
                    subnet.free(&instance.addresses);
                }
            }
            let block = instance.capacity_type == MarketType::CapacityBlock;
            if !instance.host_free && (!block || later(gone, cleanup) <= now) {
                instance.host_free = true;
                free.push(Taken { host: instance.host.clone(), reservation: instance.capacity_reservation.clone() });
            }
        }
        for taken in &free {
            self.release(taken);
        }
        for reservation in self.reservations.values_mut().filter(|r| !r.ended) {
            match reservation.state(now) {
                ReservationState::Scheduled | ReservationState::Active => {}
                ReservationState::Expired | ReservationState::Cancelled => {
                    reservation.ended = true;
                    for slot in reservation.slots.iter().filter(|s| !s.taken) {
                        self.capacity.release(&slot.host);
                    }
                }
            }
        }
        if self.scenario.choices.empty_group == EmptyGroup::Unpinned {
            let instances = self.instances.values().filter(|i| !i.released).filter_map(|i| i.group.as_ref());
            let reservations = self.reservations.values().filter(|r| !r.ended).filter_map(|r| r.group.as_ref());
            let occupied: BTreeSet<&String> = instances.chain(reservations).collect();
            for (name, group) in &mut self.groups {
                if group.pin.is_some() && !occupied.contains(name) {
                    group.pin = None;
                }
            }
        }
    }

    /// The instances of a placement group which are not terminated.
    pub(crate) fn in_group<'a>(&'a self, group: &'a str, now: Timestamp) -> impl Iterator<Item = &'a Instance> {
        self.instances
            .values()
            .filter(move |i| i.group.as_deref() == Some(group) && i.state(now) != LifeState::Terminated)
    }

    /// Starts to terminate an instance, if it is not terminated yet. Returns whether it was alive.
    pub(crate) fn terminate(
        &mut self,
        id: &str,
        reason: (&str, &str),
        slower: jiff::SignedDuration,
        now: Timestamp,
    ) -> bool {
        let delay = crate::clock::seconds(self.scenario.delays.terminate_seconds);
        let Some(instance) = self.instances.get_mut(id) else {
            return false;
        };
        if !instance.state(now).is_live() {
            return false;
        }
        instance.shutdown_at = Some(now);
        instance.terminated_at = Some(crate::clock::later(crate::clock::later(now, delay), slower));
        instance.reason = Some((reason.0.to_owned(), reason.1.to_owned()));
        if let Some(gone) = instance.terminated_at {
            self.agenda.add(gone, Due::StateChange(id.to_owned()));
        }
        self.tell_state(id, now);
        true
    }

    /// `arn:aws:ec2:<region>:<account>:<kind>/<name>`.
    pub(crate) fn arn(&self, kind: &str, name: &str) -> String {
        format!("arn:aws:ec2:{}:{}:{kind}/{name}", self.scenario.region, self.scenario.account)
    }

    /// The ARN of a placement group: one that is shared is its owner's.
    pub(crate) fn group_arn(&self, name: &str) -> String {
        let owner = self.groups.get(name).and_then(|group| group.owner.as_ref());
        let account = owner.unwrap_or(&self.scenario.account);
        format!("arn:aws:ec2:{}:{account}:placement-group/{name}", self.scenario.region)
    }

    /// The identity every caller has.
    pub(crate) fn creator(&self) -> String {
        format!("arn:aws:sts::{}:assumed-role/muster/simulated", self.scenario.account)
    }
}
