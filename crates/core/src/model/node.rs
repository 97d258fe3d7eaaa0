//! A node as the planner and the extender see it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::names::NodeName;
use crate::model::pod::{HostPort, Shape};
use crate::model::resources::Resources;

/// What a Node object says, apart from the pods on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// `metadata.name`.
    pub name: NodeName,
    /// `metadata.labels`.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `status.allocatable`.
    pub allocatable: Resources,
    /// `spec.unschedulable`: cordoned.
    pub unschedulable: bool,
    /// Condition `Ready` is `True`.
    pub ready: bool,
    /// Has a deletion timestamp.
    pub deleting: bool,
    /// `spec.providerID`, where set: `aws:///us-east-1a/i-…`.
    pub provider_id: Option<Arc<str>>,
    /// When it registered.
    #[serde(default)]
    pub created: Option<Timestamp>,
}

/// What holds room on a node: pods until they are gone, whoever bound them, and what is promised or assumed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Sum of the requests, the pod count included.
    pub requested: Resources,
    /// Host ports in use, with multiplicity.
    pub ports: Vec<HostPort>,
    /// Pods here that must not stand beside one of the shape asked about, by the anti-affinity of either. Counted by the
    /// caller for that shape; a usage shared by several shapes leaves it 0.
    #[serde(default)]
    pub own_shape_pods: u32,
}

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

impl Usage {
    /// Adds one pod of `shape` for the next question about the same shape.
    pub fn add(&mut self, shape: &Shape) {
        self.requested.add(&shape.requests);
        self.ports.extend(shape.ports.iter().cloned());
        if shape.one_per_node {
            self.own_shape_pods = self.own_shape_pods.saturating_add(1);
        }
    }
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
