//! Kinds of notices, as a status remembers them.

use serde::{Deserialize, Serialize};

/// What EC2 tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum NoticeKind {
    /// Spot capacity is taken back in two minutes.
    SpotInterruption,
    /// Spot capacity may be taken back before long.
    Rebalance,
    /// Maintenance, a retirement or a reboot is scheduled.
    ScheduledChange,
    /// The instance stops or ends, or has.
    StateChange,
    /// Interruptible reserved capacity, or a Capacity Block's, is taken back.
    ReservationInterruption,
    /// A Capacity Block ends.
    BlockExpiration,
    /// Status checks fail.
    Impaired,
}

impl NoticeKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::SpotInterruption,
        Self::Rebalance,
        Self::ScheduledChange,
        Self::StateChange,
        Self::ReservationInterruption,
        Self::BlockExpiration,
        Self::Impaired,
    ];

    /// Closed word for metrics and for the cause in a status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SpotInterruption => "spot",
            Self::Rebalance => "rebalance",
            Self::ScheduledChange => "maintenance",
            Self::StateChange => "terminated",
            Self::ReservationInterruption => "reclaimed",
            Self::BlockExpiration => "block-end",
            Self::Impaired => "impaired",
        }
    }

    /// What it says, for people.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::SpotInterruption => "EC2 takes the spot instance back",
            Self::Rebalance => "EC2 may take the spot instance back before long",
            Self::ScheduledChange => "EC2 has scheduled maintenance",
            Self::StateChange => "the instance stops or has ended",
            Self::ReservationInterruption => "EC2 takes the reserved capacity back",
            Self::BlockExpiration => "the Capacity Block ends",
            Self::Impaired => "its status checks fail",
        }
    }

    /// Reason of the event.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::SpotInterruption => "SpotInterrupted",
            Self::Rebalance => "RebalanceRecommended",
            Self::ScheduledChange => "MaintenanceScheduled",
            Self::StateChange => "InstanceLost",
            Self::ReservationInterruption | Self::BlockExpiration => "ReservationEnding",
            Self::Impaired => "InstanceImpaired",
        }
    }
}
