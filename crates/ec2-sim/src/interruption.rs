//! What EC2 does to instances by itself, as data; [`crate::events`] carries it out.

use serde::{Deserialize, Serialize};

/// The kinds of events, as the `operation` of a fault names them.
pub(crate) const KINDS: [&str; 6] = [
    "SpotInterruption",
    "RebalanceRecommendation",
    "StateChange",
    "ScheduledChange",
    "ReservationInterruption",
    "BlockExpiration",
];

/// Something that EC2 does to instances, with or without a warning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Interruption {
    /// What happens.
    pub kind: InterruptionKind,
    /// Whom it concerns.
    pub instance_ids: Vec<String>,
    /// Virtual seconds from the warning to the end of the instances.
    pub notice_seconds: f64,
    /// Whether the warning is sent.
    pub warn: bool,
    /// Whether it comes true.
    pub carried_out: bool,
}

impl Default for Interruption {
    fn default() -> Self {
        Self {
            kind: InterruptionKind::default(),
            instance_ids: vec![],
            notice_seconds: 120.0,
            warn: true,
            carried_out: true,
        }
    }
}

/// The kinds of interruption.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterruptionKind {
    /// EC2 wants a spot instance back.
    #[default]
    Spot,
    /// A spot instance is at risk; nothing follows by itself.
    Rebalance,
    /// An event of AWS Health: the instance is retired. One event names all the instances.
    ScheduledChange,
    /// The owner of a reservation wants its capacity back.
    ReservationReclaim,
}
