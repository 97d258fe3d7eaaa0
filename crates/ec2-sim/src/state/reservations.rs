//! Capacity reservations: hosts set aside, for instances that name the reservation or match it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::capacity::Host;
use crate::kinds::{Matching, ReservationKind};

/// A reservation.
#[derive(Debug, Clone)]
pub(crate) struct Reservation {
    pub(crate) id: String,
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) kind: ReservationKind,
    pub(crate) matching: Matching,
    /// The name of the placement group it was made in.
    pub(crate) group: Option<String>,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) created_at: Timestamp,
    /// None: since its creation.
    pub(crate) start: Option<Timestamp>,
    /// None: until it is cancelled.
    pub(crate) end: Option<Timestamp>,
    pub(crate) cancelled_at: Option<Timestamp>,
    pub(crate) slots: Vec<Slot>,
    /// Whether its owner is somebody else: declared by the scenario, not made by a call.
    pub(crate) foreign: bool,
    /// Whether the hosts were terminated after its end.
    pub(crate) ended: bool,
}

/// One host of a reservation.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) host: Host,
    pub(crate) taken: bool,
}

/// The state of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReservationState {
    Scheduled,
    Active,
    Expired,
    Cancelled,
}

impl ReservationState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }
}

impl Reservation {
    pub(crate) fn state(&self, now: Timestamp) -> ReservationState {
        let past = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        if past(self.cancelled_at) {
            ReservationState::Cancelled
        } else if past(self.end) {
            ReservationState::Expired
        } else if self.start.is_some_and(|at| at > now) {
            ReservationState::Scheduled
        } else {
            ReservationState::Active
        }
    }

    /// Whether a launch of this type and zone runs in it without naming it.
    pub(crate) fn matches(&self, instance_type: &str, zone: &str) -> bool {
        let open = self.matching == Matching::Open && self.kind == ReservationKind::OnDemand;
        open && self.instance_type == instance_type && self.zone == zone
    }

    pub(crate) fn total(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// Hosts that an instance could be launched on now.
    pub(crate) fn available(&self, now: Timestamp) -> u32 {
        if self.state(now) != ReservationState::Active {
            return 0;
        }
        u32::try_from(self.slots.iter().filter(|s| !s.taken).count()).unwrap_or(u32::MAX)
    }

    /// Takes up to `count` of its hosts.
    pub(crate) fn take(&mut self, count: u32) -> Vec<Host> {
        let mut hosts = Vec::new();
        for slot in self.slots.iter_mut().filter(|s| !s.taken).take(count as usize) {
            slot.taken = true;
            hosts.push(slot.host.clone());
        }
        hosts
    }

    /// Takes a host back; false if it is none of its own.
    pub(crate) fn release(&mut self, host: &Host) -> bool {
        match self.slots.iter_mut().find(|s| s.host == *host) {
            Some(slot) => {
                slot.taken = false;
                true
            }
            None => false,
        }
    }
}
