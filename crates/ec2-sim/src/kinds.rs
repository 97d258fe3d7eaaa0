//! What EC2 distinguishes by name: capacity types, strategies of placement groups, kinds of reservations.

use serde::{Deserialize, Serialize};

/// How an instance is provisioned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarketType {
    /// At list price, until it is terminated.
    #[default]
    OnDemand,
    /// At the spot price, until EC2 wants it back.
    Spot,
    /// In a Capacity Block. No pool is of this capacity type.
    CapacityBlock,
    /// In another account's reservation. No pool is of this capacity type.
    #[serde(rename = "interruptible-capacity-reservation")]
    InterruptibleReservation,
}

impl MarketType {
    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OnDemand => "on-demand",
            Self::Spot => "spot",
            Self::CapacityBlock => "capacity-block",
            Self::InterruptibleReservation => "interruptible-capacity-reservation",
        }
    }
}

/// How a group places its instances.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Close together, in one segment.
    #[default]
    Cluster,
    /// On racks of their own.
    Spread,
    /// In partitions.
    Partition,
}

impl Strategy {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "cluster" => Some(Self::Cluster),
            "spread" => Some(Self::Spread),
            "partition" => Some(Self::Partition),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Spread => "spread",
            Self::Partition => "partition",
        }
    }
}

/// What a reservation is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReservationKind {
    /// An on-demand capacity reservation.
    #[default]
    OnDemand,
    /// A Capacity Block: from its start to its end, launched into by a capacity type of its own.
    CapacityBlock,
    /// A part of another account's reservation, which may be reclaimed.
    Interruptible,
}

impl ReservationKind {
    /// The capacity type its instances are provisioned in.
    pub(crate) fn capacity_type(self) -> MarketType {
        match self {
            Self::OnDemand => MarketType::OnDemand,
            Self::CapacityBlock => MarketType::CapacityBlock,
            Self::Interruptible => MarketType::InterruptibleReservation,
        }
    }
}

/// Which launches run in a reservation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Matching {
    /// Those that name it.
    #[default]
    Targeted,
    /// Also those that match its type and zone.
    Open,
}

impl Matching {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Targeted => "targeted",
            Self::Open => "open",
        }
    }
}
