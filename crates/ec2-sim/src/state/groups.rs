//! Placement groups.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::capacity::Pin;
use crate::kinds::Strategy;

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
    /// The account that shares it, if it is another's.
    pub(crate) owner: Option<String>,
}
