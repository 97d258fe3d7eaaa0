//! What is launched: an order with its candidates, and the hosts that it takes.

use std::collections::BTreeMap;

use crate::capacity::Host;
use crate::faults::Drawn;
use crate::fixtures::InstanceType;
use crate::interfaces::InterfaceSpec;
use crate::kinds::MarketType;
use crate::state::fleets::Origin;

/// A launch whose parameters are known to be good.
#[derive(Debug)]
pub(crate) struct Order<'a> {
    pub(crate) operation: &'a str,
    pub(crate) token: Option<&'a str>,
    pub(crate) fleet: Option<&'a str>,
    pub(crate) reservation: &'a str,
    pub(crate) total: u32,
    /// Fewer than this many: nothing.
    pub(crate) minimum: Option<u32>,
    pub(crate) single_type: bool,
    pub(crate) single_zone: bool,
    pub(crate) capacity_type: MarketType,
    pub(crate) ranking: Ranking,
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) drawn: &'a Drawn,
}

/// How candidates are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ranking {
    /// As they are.
    Given,
    Priority,
    Price,
    /// Most free hosts first, as an approximation of what EC2 knows about spot capacity.
    Capacity,
    /// Those that have all that is asked for, the cheapest of them first; then the others by what they have.
    PriceCapacity,
}

/// One type in one subnet with everything its instances get.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) origin: Origin,
    pub(crate) instance_type: &'static InstanceType,
    pub(crate) priority: Option<f64>,
    /// The placement group's name.
    pub(crate) group: Option<String>,
    pub(crate) image: String,
    pub(crate) interfaces: Vec<InterfaceSpec>,
    pub(crate) security_groups: Vec<String>,
    pub(crate) user_data: Option<String>,
    /// After how long a machine that becomes no node ends itself.
    pub(crate) ends_itself_after: Option<jiff::SignedDuration>,
    /// Where its hosts may come from.
    pub(crate) source: Source,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) volume_tags: BTreeMap<String, String>,
    pub(crate) interface_tags: BTreeMap<String, String>,
}

/// Where the hosts of a candidate may come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Source {
    /// Reservations that match and are open, then the pool.
    #[default]
    Open,
    /// The same, and EC2 is asked to use the reservations first: then those outside the placement group stand in
    /// the way of the launch.
    ReservationsFirst,
    /// The pool alone.
    Pool,
    /// Open reservations that match, and nothing else.
    ReservationsOnly,
    /// These reservations in turn, and nothing else but, if allowed, the pool.
    Targets { ids: Vec<String>, fallback: bool },
}

impl Source {
    /// `CapacityReservationPreference` of an instance launched so.
    pub(super) fn preference(&self) -> Option<&'static str> {
        match self {
            Self::Open | Self::ReservationsFirst => Some("open"),
            Self::Pool => Some("none"),
            Self::ReservationsOnly => Some("capacity-reservations-only"),
            Self::Targets { .. } => None,
        }
    }

    /// The reservation that the launch names.
    pub(super) fn target(&self) -> Option<String> {
        if let Self::Targets { ids, .. } = self { ids.first().cloned() } else { None }
    }
}

/// A host taken, and the reservation it is of.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub(crate) host: Host,
    pub(crate) reservation: Option<String>,
}

impl Candidate {
    /// Addresses which one instance takes from the subnet.
    pub(crate) fn addresses(&self) -> u32 {
        self.interfaces.iter().map(InterfaceSpec::addresses).sum()
    }

    /// Whether an interface asks for IPv6 addresses.
    pub(crate) fn wants_ipv6(&self) -> bool {
        self.interfaces.iter().any(|interface| interface.ipv6 > 0)
    }
}
