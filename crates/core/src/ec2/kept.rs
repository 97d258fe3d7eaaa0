//! What a kubelet keeps back from pods, where its EC2NodeClass says so, and what images keep back by themselves.

use std::collections::BTreeMap;

use super::kubelet::Kubelet;
use crate::model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};
use crate::model::units::Quantity;

const MIB: i64 = 1024 * 1024;
const GIB: i64 = 1024 * MIB;

/// Millionths: what shares are counted in.
const WHOLE: i128 = 1_000_000;

/// Amounts that a class names, in the units of [`Resources`](crate::model::resources::Resources). What it does not name is what images
/// of EKS do: a name in `kubeReserved` or `evictionHard` replaces theirs, one in `systemReserved` comes on top.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptBack {
    kube: Named,
    system: Named,
    memory_threshold: Option<Threshold>,
    storage_threshold: Option<Threshold>,
}

/// One amount per resource that can be kept back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Named {
    cpu: Option<i64>,
    memory: Option<i64>,
    storage: Option<i64>,
}

/// What has to be free, or pods are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Threshold {
    /// So much.
    Amount(i64),
    /// So many millionths of what there is.
    Share(i128),
}

impl Named {
    fn read(amounts: &BTreeMap<String, String>) -> Self {
        let of = |name: &str| {
            let amount: Quantity = amounts.get(name)?.parse().ok()?;
            Some(if name == CPU { amount.milli_ceil() } else { amount.unit_ceil() }.max(0))
        };
        Self { cpu: of(CPU), memory: of(MEMORY), storage: of(EPHEMERAL_STORAGE) }
    }
}

impl Threshold {
    /// An amount, or a percentage; `None` for what is neither.
    fn read(text: &str) -> Option<Self> {
        let Some(percent) = text.strip_suffix('%') else {
            return Some(Self::Amount(text.parse::<Quantity>().ok()?.unit_ceil().max(0)));
        };
        let percent: Quantity = percent.parse().ok()?;
        let parts = percent.nano() * (WHOLE / 100) / Quantity::from_units(1).nano();
        (0..=WHOLE).contains(&parts).then_some(Self::Share(parts))
    }

    fn of(self, all: i64) -> i64 {
        match self {
            Self::Amount(amount) => amount,
            Self::Share(parts) => i64::try_from(i128::from(all) * parts / WHOLE).unwrap_or(i64::MAX),
        }
    }
}

/// Whether a kubelet takes it as a threshold of `evictionHard`: an amount above zero, or a share of at most 100 %.
#[must_use]
pub fn is_threshold(text: &str) -> bool {
    match text.strip_suffix('%') {
        Some(percent) => {
            let plain = percent.bytes().all(|letter| letter.is_ascii_digit() || letter == b'.');
            plain && Threshold::read(text).is_some()
        }
        None => text.parse::<Quantity>().is_ok_and(|amount| amount > Quantity::ZERO),
    }
}

impl KeptBack {
    /// As the kubelet's settings have it. What cannot be read is as if it were not there.
    #[must_use]
    pub fn of(kubelet: &Kubelet) -> Self {
        let threshold = |name: &str| kubelet.eviction_hard.get(name).and_then(|text| Threshold::read(text));
        Self {
            kube: Named::read(&kubelet.kube_reserved),
            system: Named::read(&kubelet.system_reserved),
            memory_threshold: threshold("memory.available"),
            storage_threshold: threshold("nodefs.available"),
        }
    }

    /// Thousandths of a CPU; `usual` is what the image keeps for Kubernetes.
    pub(crate) fn cpu(&self, usual: i64) -> i64 {
        sum([self.kube.cpu.unwrap_or(usual), self.system.cpu.unwrap_or(0)])
    }

    /// Bytes of memory, of so many; `usual` is what the image keeps for Kubernetes. Pods are evicted when less than 100 MiB is free.
    pub(crate) fn memory(&self, usual: i64, all: i64) -> i64 {
        let threshold = self.memory_threshold.unwrap_or(Threshold::Amount(100 * MIB));
        sum([self.kube.memory.unwrap_or(usual), self.system.memory.unwrap_or(0), threshold.of(all)])
    }

    /// Bytes of the file system that pods write to, of so many: 1 GiB is kept for Kubernetes, and pods are evicted when less than a
    /// tenth is free.
    ///
    /// Source: `kubeReserved` of nodeadm and Bottlerocket, the kubelet's default `evictionHard`.
    pub(crate) fn storage(&self, all: i64) -> i64 {
        let threshold = self.storage_threshold.unwrap_or(Threshold::Share(WHOLE / 10));
        sum([self.kube.storage.unwrap_or(GIB), self.system.storage.unwrap_or(0), threshold.of(all)])
    }
}

fn sum<const N: usize>(amounts: [i64; N]) -> i64 {
    amounts.into_iter().fold(0, i64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(kube: &[(&str, &str)], system: &[(&str, &str)], eviction: &[(&str, &str)]) -> KeptBack {
        let map =
            |all: &[(&str, &str)]| all.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
        let (kube_reserved, system_reserved, eviction_hard) = (map(kube), map(system), map(eviction));
        KeptBack::of(&Kubelet { kube_reserved, system_reserved, eviction_hard, ..Kubelet::default() })
    }

    #[test]
    fn what_a_class_names_replaces_what_images_do_and_what_is_for_the_system_comes_on_top() {
        let silent = KeptBack::default();
        assert_eq!((silent.cpu(70), silent.memory(300 * MIB, GIB), silent.storage(10 * GIB)), (70, 400 * MIB, 2 * GIB));
        let all = kept(
            &[("cpu", "1"), ("ephemeral-storage", "3Gi"), ("pid", "100")],
            &[("cpu", "500m"), ("memory", "1Gi")],
            &[("memory.available", "5%"), ("nodefs.available", "2Gi"), ("imagefs.available", "50%")],
        );
        assert_eq!(all.cpu(70), 1_500);
        assert_eq!(all.memory(300 * MIB, 20 * GIB), 300 * MIB + GIB + GIB);
        assert_eq!(all.storage(10 * GIB), 5 * GIB);
    }

    #[test]
    fn a_threshold_is_an_amount_above_zero_or_a_share_of_at_most_all() {
        for text in ["5%", "2.5%", "100Mi", "0%", "100%", "1"] {
            assert!(is_threshold(text), "{text}");
        }
        for text in ["101%", "-5%", "50m%", "-1Gi", "0", "0Mi", "some", "5 %", "", "%"] {
            assert!(!is_threshold(text), "{text}");
        }
    }

    #[test]
    fn what_is_no_amount_and_no_percentage_changes_nothing() {
        let wrong =
            kept(&[("cpu", "much")], &[("memory", "")], &[("memory.available", "101%"), ("nodefs.available", "x%")]);
        assert_eq!(wrong, KeptBack::default());
    }
}
