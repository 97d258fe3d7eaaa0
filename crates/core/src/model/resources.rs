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
        self.0.iter().find(|(entry, _)| is_same(entry, name)).map_or(0, |(_, amount)| *amount)
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
        self.combine(other, i64::saturating_add);
    }

    /// Subtracts `other` from `self`, resource by resource; results may be negative.
    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, i64::saturating_sub);
    }

    /// Keeps the larger amount of each resource.
    pub fn max(&mut self, other: &Self) {
        self.combine(other, i64::max);
    }

    /// Makes each amount what `of` says of it and of that of `other`. Both lists are sorted, so that they are walked once.
    fn combine(&mut self, other: &Self, of: impl Fn(i64, i64) -> i64) {
        let mut at = 0;
        for (name, amount) in &other.0 {
            while self.0.get(at).is_some_and(|(entry, _)| !is_same(entry, name.as_str()) && entry < name) {
                at += 1;
            }
            let known = self.0.get(at).filter(|(entry, _)| is_same(entry, name.as_str())).map(|(_, known)| *known);
            match (known, of(known.unwrap_or(0), *amount)) {
                (Some(_), 0) => {
                    self.0.remove(at);
                }
                (Some(_), amount) => self.0[at].1 = amount,
                (None, 0) => {}
                (None, amount) => self.0.insert(at, (name.clone(), amount)),
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

/// Names that are common are shared, and where they are kept says enough.
fn is_same(entry: &ResourceName, name: &str) -> bool {
    std::ptr::eq(entry.as_str(), name) || entry.as_str() == name
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
    fn lists_of_different_resources_are_combined_name_by_name_and_zeros_are_dropped() {
        let names = ["a", "cpu", "memory", "nvidia.com/gpu", "pods", "z"];
        // Every pair of lists whose amounts are -1, 0 or 2: 3^3 each, of names that overlap in part.
        let lists = |names: [&'static str; 3]| {
            let amount = |digit: i64| [-1, 0, 2][usize::try_from(digit % 3).unwrap_or(0)];
            (0..27).map(move |number: i64| {
                Resources::from_iter(names.into_iter().zip([number, number / 3, number / 9].map(amount)))
            })
        };
        for one in lists(["a", "cpu", "pods"]) {
            for other in lists(["cpu", "nvidia.com/gpu", "pods"]).chain(lists(["memory", "pods", "z"])) {
                let made = |change: fn(&mut Resources, &Resources)| {
                    let mut made = one.clone();
                    change(&mut made, &other);
                    made
                };
                let expected = |of: fn(i64, i64) -> i64| {
                    names.map(|name| (name, of(one.get(name), other.get(name)))).into_iter().collect::<Resources>()
                };
                assert_eq!(made(Resources::add), expected(|one, other| one + other));
                assert_eq!(made(Resources::subtract), expected(|one, other| one - other));
                // What is not in the other list stays, also below zero.
                let larger =
                    |(name, value): (&str, i64)| if other.get(name) == 0 { value } else { value.max(other.get(name)) };
                let larger = names.map(|name| (name, larger((name, one.get(name))))).into_iter().collect::<Resources>();
                assert_eq!(made(Resources::max), larger);
            }
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
