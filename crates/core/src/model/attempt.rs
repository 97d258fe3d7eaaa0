//! Attempts to launch the nodes of a NodeBatch.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::launch::{AttemptOverride, CapacityType, LaunchParameters, LaunchWay, Target};
use crate::model::names::InstanceId;
use crate::model::taint::Taint;

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum AttemptOutcome {
    /// It is under way.
    Launching,
    /// All of it was launched.
    Won,
    /// Nothing was launched; the candidate counts as tried.
    Lost,
    /// Nothing was launched; the same candidate is tried again.
    Retry,
    /// Another number than asked for, or a launch that went bad: rolled back to zero.
    Violated,
    /// It missed the level its gang requires: rolled back to zero.
    Misplaced,
    /// One node, launched alone to see whether nodes of a blocked pool join: it did, and is terminated.
    ProbeJoined,
}

impl AttemptOutcome {
    /// Every outcome.
    pub const ALL: [Self; 7] =
        [Self::Launching, Self::Won, Self::Lost, Self::Retry, Self::Violated, Self::Misplaced, Self::ProbeJoined];

    /// Whether what the attempt launched has to go before anything else happens.
    #[must_use]
    pub fn rolls_back(self) -> bool {
        match self {
            Self::Violated | Self::Misplaced | Self::ProbeJoined => true,
            Self::Launching | Self::Won | Self::Lost | Self::Retry => false,
        }
    }
}

/// Everything needed to send a launch call again.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredParameters {
    /// As read. Shared: a status is copied in every pass, and its attempts stay as they are.
    pub value: Arc<LaunchParameters>,
    /// The text they were read from; written back byte for byte.
    pub text: Option<Arc<str>>,
}

impl PartialEq for StoredParameters {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl From<LaunchParameters> for StoredParameters {
    fn from(value: LaunchParameters) -> Self {
        Self { value: Arc::new(value), text: None }
    }
}

/// One attempt: one fixed set of parameters, one token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Number, from 1.
    pub number: u32,
    /// NodePool.
    pub node_pool: String,
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Subnet.
    pub subnet: String,
    /// Capacity type.
    pub capacity_type: CapacityType,
    /// What EC2 may choose among, first what the fields above say; empty: that alone. Type, zone and subnet above are those that EC2
    /// chose, once it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<AttemptOverride>,
    /// Nodes asked for.
    pub count: u32,
    /// Whether it was asked for in a placement group.
    pub group: bool,
    /// The group of somebody else that the reservation was made in; else the group is the batch's own.
    pub reservation_group: Option<String>,
    /// The reservation it goes into.
    pub reservation: Option<Target>,
    /// The call.
    pub way: LaunchWay,
    /// Image all nodes boot, later replacements too.
    pub image: Option<String>,
    /// Taints that its pool gives nodes for good, as of then: who edits or deletes the pool while they boot changes nothing of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Launch template id, once it is created.
    pub template: Option<String>,
    /// The call's parameters; written before it is sent.
    pub parameters: Option<StoredParameters>,
    /// Client token.
    pub token: Option<String>,
    /// Whether an answer was lost: the next one is that of a replay.
    pub replayed: bool,
    /// How often an unknown outcome was looked for in vain.
    pub sweeps: u32,
    /// Fleet id.
    pub fleet: Option<String>,
    /// EC2's id of the last request that was answered.
    pub request_id: Option<String>,
    /// Instances it is to replace in place; empty for a launch of the whole batch.
    pub replaces: Vec<InstanceId>,
    /// Whether one node is launched alone, to see whether nodes of a blocked pool join again.
    pub probe: bool,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// EC2's error code.
    pub code: Option<String>,
    /// What EC2 reported.
    pub message: Option<String>,
    /// When it began.
    pub started: Option<Timestamp>,
    /// When it was decided.
    pub ended: Option<Timestamp>,
}

impl Attempt {
    /// Whether a launch call may have been sent whose outcome is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.outcome == AttemptOutcome::Launching && self.parameters.is_some()
    }

    /// Whether it asked for a type in a zone, alone or among others.
    #[must_use]
    pub fn asked_for(&self, instance_type: &str, zone: &str) -> bool {
        let own = self.instance_type == instance_type && self.zone == zone;
        own || self.overrides.iter().any(|one| one.instance_type == instance_type && one.zone == zone)
    }

    /// Whether it won all nodes of the batch, not replacements alone.
    #[must_use]
    pub fn won_whole(&self) -> bool {
        self.outcome == AttemptOutcome::Won && self.replaces.is_empty()
    }
}
