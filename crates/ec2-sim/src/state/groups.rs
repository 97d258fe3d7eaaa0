//! Placement groups.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::capacity::Pin;

/// A placement group.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) id: String,
    pub(crate) strategy: Strategy,
    pub(crate) partitions: Option<u32>,
    pub(crate) tags: BTreeMap<String, String>,
    /// Where the first launch put it; only for `cluster`.
    pub(crate) pin: Option<Pin>,
    /// When Describe calls and launches see it.
    pub(crate) visible_at: Timestamp,
    /// Until then it is `pending`.
    pub(crate) available_at: Timestamp,
    /// Whether it belongs to others and was there from the start.
    pub(crate) foreign: bool,
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
