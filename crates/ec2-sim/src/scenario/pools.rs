//! The hosts of a scenario.

use serde::{Deserialize, Serialize};

use crate::kinds::MarketType;

/// Hosts of one type, zone and capacity type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolSpec {
    /// The instance type.
    #[serde(rename = "type")]
    pub instance_type: String,
    /// The zone's name.
    pub zone: String,
    /// The capacity type.
    #[serde(default)]
    #[serde(rename = "market")]
    pub capacity_type: MarketType,
    /// The spines; spines of equal index and type are the same network nodes in both capacity types.
    pub spines: Vec<SpineSpec>,
}

/// One spine: the segment a cluster placement group is pinned to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SpineSpec {
    /// Hosts of each leaf.
    pub leaves: Vec<u32>,
}
