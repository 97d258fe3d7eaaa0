//! Offers that are none, and the smallest changes of a pool that would make them some.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use super::{Code, Help, Wait};
use crate::model::money::usd;
use crate::model::names::ResourceName;
use crate::model::resources::{amount, at_least};
use crate::offering::{CeilingScope, Exclusion};

/// One type of a pool that is no offer for a gang, with all that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsold {
    /// Pool.
    pub pool: Arc<str>,
    /// Type; `None`: all of the pool's.
    pub instance_type: Option<Arc<str>>,
    /// Nodes that would be needed, if that is known.
    pub count: Option<u32>,
    /// At least one; as long as one of them holds, it is no offer.
    pub why: Vec<Exclusion>,
}

/// A change of a pool, of its class or of the prices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolChange {
    /// A larger limit.
    Limit {
        /// Resource.
        resource: ResourceName,
        /// As it is.
        from: i64,
        /// The least that does.
        to: i64,
    },
    /// A higher ceiling on dollars per hour. In micro-dollars.
    Ceiling {
        /// Whose.
        scope: CeilingScope,
        /// As it is.
        from: u64,
        /// The least that does.
        to: u64,
    },
    /// More nodes in one batch.
    MaxNodes {
        /// As it is.
        from: u32,
        /// The least that does.
        to: u32,
    },
    /// A price.
    Price,
    /// On-demand capacity beside what is allowed.
    OnDemand,
    /// Labels of the nodes, all of them.
    Labels {
        /// Key and value of each.
        labels: BTreeMap<Arc<str>, Arc<str>>,
    },
    /// Another type.
    OtherType {
        /// What is wrong with this one.
        why: Box<Exclusion>,
    },
    /// Another type or capacity type.
    OtherCapacityType,
    /// Another zone.
    OtherZone,
    /// A placement group that pool and gang both allow.
    Group,
    /// A reservation with at least so many free hosts.
    Reservation {
        /// Free hosts.
        hosts: Option<u32>,
    },
    /// A subnet with at least so many free addresses.
    Subnet {
        /// Free addresses.
        addresses: Option<u64>,
    },
}

impl Exclusion {
    /// The word for it.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::GroupPolicyConflict | Self::NoGroupForType | Self::ReservationGroup { .. } => Code::PlacementGroup,
            Self::UnknownType | Self::DoesNotFit | Self::Misfit { .. } | Self::TopologyRequests | Self::NoTypes => {
                Code::NoType
            }
            Self::TooManyNodes { .. } => Code::BatchTooLarge,
            Self::Limit { .. } | Self::CostCeiling { .. } => Code::LimitReached,
            Self::NotSold | Self::NotOffered | Self::VolumeElsewhere => Code::NotSold,
            Self::MembersElsewhere => Code::MixedWithRunning,
            Self::NoReservation
            | Self::ReservationTooSmall { .. }
            | Self::ReservationNotStarted { .. }
            | Self::ReservationEnds { .. } => Code::Reservation,
            Self::NoSubnet | Self::NoIpv6Cidr { .. } | Self::TooFewAddresses { .. } => Code::Addresses,
            Self::PriceUnknown => Code::PriceUnknown,
            Self::NoCapacity { .. } => Code::InsufficientCapacity,
            Self::Refused { .. } => Code::Quota,
            Self::InVain { .. } => Code::NodesExcluded,
            Self::TooManyCandidates | Self::TooFewValues { .. } => Code::NotSold,
        }
    }

    /// How much is missing.
    #[must_use]
    pub fn short(&self) -> Option<u64> {
        match self {
            Self::TooManyNodes { needed, most } => Some(u64::from(needed.saturating_sub(*most))),
            // Whole dollars, so that it can be read beside nodes and hosts.
            Self::CostCeiling { needed, left, .. } => Some(needed.saturating_sub(*left).div_ceil(1_000_000)),
            Self::Limit { needed, left, .. } => u64::try_from(needed.saturating_sub(*left)).ok(),
            Self::ReservationTooSmall { needed, free, .. } => Some(u64::from(needed.saturating_sub(*free))),
            Self::TooFewAddresses { needed, free } => Some(needed.saturating_sub(u64::from(*free))),
            Self::GroupPolicyConflict
            | Self::UnknownType
            | Self::DoesNotFit
            | Self::Misfit { .. }
            | Self::TopologyRequests
            | Self::NoTypes
            | Self::NotSold
            | Self::NoReservation
            | Self::ReservationNotStarted { .. }
            | Self::ReservationEnds { .. }
            | Self::ReservationGroup { .. }
            | Self::NoGroupForType
            | Self::NotOffered
            | Self::VolumeElsewhere
            | Self::MembersElsewhere
            | Self::NoSubnet
            | Self::NoIpv6Cidr { .. }
            | Self::PriceUnknown
            | Self::NoCapacity { .. }
            | Self::Refused { .. }
            | Self::InVain { .. }
            | Self::TooManyCandidates => None,
            Self::TooFewValues { least, left, .. } => Some(u64::from(least.saturating_sub(*left))),
        }
    }

    /// The smallest change that removes it; `Err`: it ends by itself then, and nothing that is changed makes it sooner.
    ///
    /// Errors: when it ends, if that is known.
    pub fn change(&self) -> Result<PoolChange, Option<Timestamp>> {
        Ok(match self {
            Self::GroupPolicyConflict | Self::ReservationGroup { .. } => PoolChange::Group,
            Self::UnknownType
            | Self::DoesNotFit
            | Self::Misfit { .. }
            | Self::TopologyRequests
            | Self::NoTypes
            | Self::NoGroupForType
            | Self::TooFewValues { .. } => PoolChange::OtherType { why: Box::new(self.clone()) },
            Self::TooManyNodes { needed, most } => PoolChange::MaxNodes { from: *most, to: *needed },
            Self::Limit { resource, needed, left, limit } => PoolChange::Limit {
                resource: resource.clone(),
                from: *limit,
                to: limit.saturating_add(needed.saturating_sub(*left)),
            },
            Self::CostCeiling { scope, needed, left, ceiling } => PoolChange::Ceiling {
                scope: *scope,
                from: *ceiling,
                to: ceiling.saturating_add(needed.saturating_sub(*left)),
            },
            Self::NotSold => PoolChange::OtherCapacityType,
            Self::NotOffered | Self::VolumeElsewhere | Self::MembersElsewhere => PoolChange::OtherZone,
            Self::NoReservation | Self::ReservationEnds { .. } => PoolChange::Reservation { hosts: None },
            Self::ReservationTooSmall { needed, .. } => PoolChange::Reservation { hosts: Some(*needed) },
            Self::NoSubnet | Self::NoIpv6Cidr { .. } => PoolChange::Subnet { addresses: None },
            Self::TooFewAddresses { needed, .. } => PoolChange::Subnet { addresses: Some(*needed) },
            Self::PriceUnknown => PoolChange::Price,
            Self::ReservationNotStarted { .. }
            | Self::NoCapacity { .. }
            | Self::Refused { .. }
            | Self::InVain { .. }
            | Self::TooManyCandidates => return Err(self.until()),
        })
    }
}

impl Unsold {
    /// The word for the first obstacle.
    #[must_use]
    pub fn code(&self) -> Code {
        self.why.first().map_or(Code::NoType, Exclusion::code)
    }

    /// What would make it an offer.
    #[must_use]
    pub fn help(&self) -> Help {
        let mut changes = Vec::new();
        for exclusion in &self.why {
            match exclusion.change() {
                Ok(change) => changes.push(change),
                Err(Some(until)) => return Help::Wait(Wait::Until(until)),
                Err(None) => return Help::Nothing,
            }
        }
        let (pool, instance_type) = (Arc::clone(&self.pool), self.instance_type.clone());
        Help::Pool { pool, instance_type, count: self.count, changes }
    }
}

impl fmt::Display for Unsold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.instance_type {
            Some(name) => write!(f, "{name} of NodePool {}", self.pool)?,
            None => write!(f, "NodePool {}", self.pool)?,
        }
        let mut separator = ": ";
        for exclusion in &self.why {
            write!(f, "{separator}{exclusion}")?;
            separator = ", ";
        }
        Ok(())
    }
}

/// Whole cents that are enough.
pub(super) fn ceil(micros: u64) -> u64 {
    micros.div_ceil(10_000).saturating_mul(10_000)
}

impl fmt::Display for PoolChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit { resource, from, to } => {
                let (from, to) = (amount(resource.as_str(), *from), at_least(resource.as_str(), *to));
                write!(f, "limit {resource} {from} → {to}")
            }
            Self::Ceiling { scope, from, to } => write!(f, "{scope} {} → {}", usd(*from), usd(ceil(*to))),
            Self::MaxNodes { from, to } => write!(f, "maxNodesPerBatch {from} → {to}"),
            Self::Price => f.write_str("a price"),
            Self::OnDemand => f.write_str("on-demand capacity allowed"),
            Self::Labels { labels } => {
                let mut separator = "label ";
                for (key, value) in labels {
                    write!(f, "{separator}{key}={value}")?;
                    separator = " and ";
                }
                Ok(())
            }
            Self::OtherType { why: _ } => f.write_str("another type"),
            Self::OtherCapacityType => f.write_str("another type or capacity type"),
            Self::OtherZone => f.write_str("another zone"),
            Self::Group => f.write_str("one placement group policy for pool and gang"),
            Self::Reservation { hosts: None } => f.write_str("a reservation of the type in the zone"),
            Self::Reservation { hosts: Some(hosts) } => write!(f, "a reservation with {hosts} free hosts"),
            Self::Subnet { addresses: None } => f.write_str("a subnet in the zone"),
            Self::Subnet { addresses: Some(addresses) } => write!(f, "a subnet with {addresses} free addresses"),
        }
    }
}
