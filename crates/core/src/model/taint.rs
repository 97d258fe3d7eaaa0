//! Taints, which nodes have and pods tolerate.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Key of the taint that keeps everybody but one gang from a node; its value is the UID of the gang or request. In our view a
/// node that is held by a cordon carries it too.
pub const GANG_PENDING: &str = "muster.dev/gang-pending";

/// `core/v1` Taint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Taint {
    /// Key.
    pub key: Arc<str>,
    /// Value; empty if absent.
    pub value: Arc<str>,
    /// Effect.
    pub effect: TaintEffect,
}

/// Effect of a taint. `PreferNoSchedule` never makes a node unfit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TaintEffect {
    /// New pods stay away.
    NoSchedule,
    /// New pods prefer to stay away.
    PreferNoSchedule,
    /// New pods stay away and running ones are evicted.
    NoExecute,
}

/// `key=value:effect`, without `=` where the value is empty, as kubectl writes it.
impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        if !self.value.is_empty() {
            write!(f, "={}", self.value)?;
        }
        write!(f, ":{}", self.effect)
    }
}

impl fmt::Display for TaintEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        })
    }
}
