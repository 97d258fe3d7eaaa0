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
/// Beginning of the resources that are huge pages of one size, counted in bytes.
const HUGE_PAGES: &str = "hugepages-";
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

/// An amount of a resource as kubectl prints it, in the units of [`Resources`]: CPU in cores, bytes rounded to the largest
/// unit of which there are ten, everything else as it is counted.
#[must_use]
pub fn amount(resource: &str, amount: i64) -> String {
    written(resource, amount, |amount, unit| amount.saturating_add(unit / 2).div_euclid(unit))
}

/// The same, rounded up: what is asked for must be enough.
#[must_use]
pub fn at_least(resource: &str, amount: i64) -> String {
    written(resource, amount, |amount, unit| amount.saturating_add(unit - 1).div_euclid(unit))
}

/// The same, rounded down: nobody is to count on more than there is.
#[must_use]
pub fn at_most(resource: &str, amount: i64) -> String {
    written(resource, amount, i64::div_euclid)
}

fn written(resource: &str, amount: i64, rounded: fn(i64, i64) -> i64) -> String {
    let bytes = matches!(resource, MEMORY | EPHEMERAL_STORAGE) || resource.starts_with(HUGE_PAGES);
    match resource {
        CPU if amount % 1000 != 0 => format!("{amount}m"),
        CPU => (amount / 1000).to_string(),
        _ if bytes && amount != 0 => {
            let is_enough = |unit: i64| amount.saturating_abs() >= 10 * unit || amount % unit == 0;
            let unit = [("Gi", 1_i64 << 30), ("Mi", 1 << 20)].into_iter().find(|(_, unit)| is_enough(*unit));
            let (name, unit) = unit.unwrap_or(("Ki", 1 << 10));
            format!("{}{name}", rounded(amount, unit))
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_kubectl_prints_them() {
        for (name, value, text) in [
            ("memory", 2_089_071_673_344, "1946Gi"),
            ("ephemeral-storage", 2_089_071_673_344, "1946Gi"),
            ("hugepages-2Mi", 2_089_071_673_344, "1946Gi"),
            ("memory", 1 << 30, "1Gi"),
            ("memory", 3 << 29, "1536Mi"),
            ("memory", 5_000_000, "4883Ki"),
            ("memory", 500, "0Ki"),
            ("memory", 0, "0"),
            ("memory", -(10 << 30), "-10Gi"),
            ("cpu", 191_450, "191450m"),
            ("cpu", 192_000, "192"),
            ("nvidia.com/gpu", 8, "8"),
        ] {
            assert_eq!(amount(name, value), text);
        }
    }

    #[test]
    fn what_is_asked_for_is_rounded_up_and_what_is_left_is_rounded_down() {
        let uneven = (100 << 30) + 1;
        assert_eq!([at_most("memory", uneven), at_least("memory", uneven)], ["100Gi", "101Gi"]);
        assert_eq!([at_most("memory", 500), at_least("memory", 500)], ["0Ki", "1Ki"]);
        assert_eq!(at_least("memory", i64::MAX), at_most("memory", i64::MAX));
    }
}
