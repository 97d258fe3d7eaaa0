//! Placement groups.

use std::collections::BTreeMap;

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
}

/// How a group places its instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    Cluster,
    Spread,
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
