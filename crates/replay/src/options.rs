//! What a person may choose for a plan.

use jiff::Timestamp;
use muster_core::model::names::NodeName;
use muster_core::planner::plan::Policy;
use muster_core::topology::Levels;

use crate::catalogue::Catalogue;

/// What a person may choose.
#[derive(Clone, Debug)]
pub struct Options {
    /// The levels, top to bottom; `None`: those the dump has.
    pub levels: Option<Levels>,
    /// `schedulerName`s of our profiles.
    pub scheduler_names: Vec<String>,
    /// What may be provisioned.
    pub catalogue: Catalogue,
    /// The moment; `None`: the newest one the dump records.
    pub now: Option<Timestamp>,
    /// What is best.
    pub policy: Policy,
    /// What preferences of pods without a gang are worth.
    pub preferences: Preferences,
    /// What `minValues` of pools are worth.
    pub min_values: MinValues,
    /// New nodes carry Karpenter's labels too.
    pub karpenter_labels: bool,
    /// The node that is asked about, for an explanation.
    pub focus: Option<NodeName>,
}

/// What preferences of pods without a gang are worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preferences {
    /// They are kept, and dropped one at a time where a pod finds no place with them.
    #[default]
    Respect,
    /// None of them counts.
    Ignore,
}

/// What `minValues` of pools are worth for pods without a gang.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinValues {
    /// A pod for which no node leaves as many values is refused.
    #[default]
    Strict,
    /// A pool's are dropped where pods find no place with them, as Karpenter's `--min-values-policy=BestEffort` does.
    BestEffort,
}
