//! A node as the planner and the extender see it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::names::{InstanceId, NodeName};
use crate::model::pod::{HostPort, Shape};
use crate::model::resources::Resources;

pub use crate::model::taint::{GANG_PENDING, Taint, TaintEffect};

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
    /// Memory in `status.capacity` without huge pages, in bytes: what its kernel has for pods and the kubelet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<i64>,
    /// `spec.unschedulable`: cordoned.
    pub unschedulable: bool,
    /// Cordoned by Muster for a gang; `unschedulable` is then false. A node that waits for its gang has the gang's taint in
    /// `taints`, whether the object carries that taint or our annotation: to everybody who decides both are one.
    #[serde(default)]
    pub held: bool,
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

/// The instance that a provider id names: its last part.
#[must_use]
pub fn instance_of(provider_id: &str) -> Option<&str> {
    provider_id.rsplit('/').next()
}

impl Node {
    /// Its instance.
    #[must_use]
    pub fn instance(&self) -> Option<&str> {
        instance_of(self.provider_id.as_deref()?)
    }

    /// Whether it has a taint of this key.
    #[must_use]
    pub fn has_taint(&self, key: &str) -> bool {
        self.taints.iter().any(|taint| *taint.key == *key)
    }

    /// Whether it is the Node of this instance. A name alone does not say so: one made of an address comes back with it.
    #[must_use]
    pub fn is_of(&self, instance: &InstanceId) -> bool {
        self.instance() == Some(instance.as_str())
    }
}

/// What holds capacity on a node: pods until they are gone, whoever bound them, and what is assigned or assumed.
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

impl Usage {
    /// What one pod of `shape` will hold.
    #[must_use]
    pub fn of(shape: &Shape) -> Self {
        Self { requested: shape.requests.clone(), ports: shape.ports.clone(), own_shape_pods: 0 }
    }

    /// Adds what others hold.
    pub fn join(&mut self, other: &Self) {
        self.requested.add(&other.requested);
        self.ports.extend(other.ports.iter().cloned());
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.requested.is_empty() && self.ports.is_empty()
    }

    /// Adds one pod of `shape` for the next question about the same shape.
    pub fn add(&mut self, shape: &Shape) {
        self.requested.add(&shape.requests);
        self.ports.extend(shape.ports.iter().cloned());
        if shape.one_per_node {
            self.own_shape_pods = self.own_shape_pods.saturating_add(1);
        }
    }
}
