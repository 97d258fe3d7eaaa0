//! Instant fleets: one launch each, kept with its answer.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::kinds::MarketType;

/// An instant fleet.
#[derive(Debug, Clone)]
pub(crate) struct Fleet {
    pub(crate) id: String,
    pub(crate) created_at: Timestamp,
    pub(crate) token: Option<String>,
    pub(crate) capacity_type: MarketType,
    /// `DefaultTargetCapacityType`.
    pub(crate) default_capacity_type: &'static str,
    pub(crate) total: u32,
    pub(crate) minimum: Option<u32>,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) errors: Vec<FleetError>,
    pub(crate) launches: Vec<FleetLaunch>,
    pub(crate) deleted: bool,
}

/// The launch template and override an item of the answer speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) template: String,
    pub(crate) version: String,
    pub(crate) instance_type: String,
    pub(crate) subnet: String,
    pub(crate) zone: String,
    pub(crate) zone_id: String,
    pub(crate) priority: Option<String>,
    /// The group's name, if the override itself names it.
    pub(crate) group: Option<String>,
    pub(crate) image: Option<String>,
}

/// An override that failed.
#[derive(Debug, Clone)]
pub(crate) struct FleetError {
    pub(crate) origin: Origin,
    pub(crate) code: String,
    pub(crate) message: String,
}

/// The instances of one override.
#[derive(Debug, Clone)]
pub(crate) struct FleetLaunch {
    pub(crate) origin: Origin,
    pub(crate) instances: Vec<String>,
}
