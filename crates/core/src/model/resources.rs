//! Amounts of resources, exact.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::model::names::ResourceName;

/// The pod-count resource of a node, `pods`: every pod requests one.
pub const PODS: &str = "pods";
/// `cpu`, counted in millicpu.
pub const CPU: &str = "cpu";
/// `memory`, counted in bytes.
pub const MEMORY: &str = "memory";
/// `ephemeral-storage`, counted in bytes.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// Beginning of the resource that stands for the volumes of one CSI driver, as Kubernetes once named it: the driver's name
/// follows. A node without an amount of it takes any number.
pub const ATTACHABLE_VOLUMES: &str = "attachable-volumes-csi-";

/// How many volumes of a driver a node takes, as an amount of [`ATTACHABLE_VOLUMES`]: no amount would mean any number, so none
/// at all is below zero.
#[must_use]
pub fn volume_limit(most: i64) -> i64 {
    if most <= 0 { -1 } else { most }
}

/// Beginning of the resource that stands for the PersistentVolumes of one class that only one node reaches and nobody has
/// claimed: the class follows.
pub const LOCAL_VOLUMES: &str = "local-persistentvolumes-";
/// Beginning of the resource that stands for the devices of one DeviceClass, as Kubernetes names it: the class follows.
pub const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";

/// Amounts per resource, sorted by name, without zero entries.
///
/// Units: `cpu` in millicpu, everything else in whole units (bytes, devices, pods). Amounts may be negative where a
/// difference is meant (an over-committed node has negative free resources). Arithmetic saturates: no input can make
/// it wrap.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Resources(SmallVec<[(ResourceName, i64); 6]>);

impl Resources {
    /// Amount of one resource; 0 if absent.
    #[must_use]
    pub fn get(&self, name: &str) -> i64 {
        // Lengths differ more often than not, so that looking at each of the few entries is cheaper than bisecting.
        self.0.iter().find(|(entry, _)| entry.as_str() == name).map_or(0, |(_, amount)| *amount)
    }

    /// Sets one amount; 0 removes the entry.
    pub fn set(&mut self, name: impl Into<ResourceName>, amount: i64) {
        let name = name.into();
        match (self.position(name.as_str()), amount) {
            (Ok(index), 0) => {
                self.0.remove(index);
            }
            (Ok(index), amount) => self.0[index].1 = amount,
            (Err(_), 0) => {}
            (Err(index), amount) => self.0.insert(index, (name, amount)),
        }
    }

    /// Adds `other` to `self`, resource by resource.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            let sum = self.get(name.as_str()).saturating_add(amount);
            self.set(name.clone(), sum);
        }
    }

    /// Subtracts `other` from `self`, resource by resource; results may be negative.
    pub fn subtract(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            let difference = self.get(name.as_str()).saturating_sub(amount);
            self.set(name.clone(), difference);
        }
    }

    /// Keeps the larger amount of each resource.
    pub fn max(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            if amount > self.get(name.as_str()) {
                self.set(name.clone(), amount);
            }
        }
    }

    /// Entries in order of resource name.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceName, i64)> {
        self.0.iter().map(|(name, amount)| (name, *amount))
    }

    /// Whether every amount is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn position(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(entry, _)| entry.as_str().cmp(name))
    }
}

/// An amount of a resource as a person writes it, in the units of [`Resources`].
#[must_use]
pub fn amount(resource: &str, amount: i64) -> String {
    const KI: i64 = 1 << 10;
    match resource {
        CPU if amount % 1000 != 0 => format!("{amount}m"),
        CPU => (amount / 1000).to_string(),
        MEMORY | EPHEMERAL_STORAGE if amount != 0 && amount % (KI * KI * KI) == 0 => {
            format!("{}Gi", amount / (KI * KI * KI))
        }
        MEMORY | EPHEMERAL_STORAGE if amount != 0 && amount % (KI * KI) == 0 => format!("{}Mi", amount / (KI * KI)),
        _ => amount.to_string(),
    }
}

impl<N: Into<ResourceName>> FromIterator<(N, i64)> for Resources {
    fn from_iter<T: IntoIterator<Item = (N, i64)>>(entries: T) -> Self {
        let mut resources = Self::default();
        for (name, amount) in entries {
            resources.set(name, amount);
        }
        resources
    }
}
