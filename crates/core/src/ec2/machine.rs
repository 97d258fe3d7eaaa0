//! Instance types as DescribeInstanceTypes reports them, and what a node of one will offer to pods.

use serde::{Deserialize, Serialize};

use super::interface::{InterfaceKind, NetworkInterface};
use super::kept::KeptBack;
use crate::model::resources::{CPU, MEMORY, PODS, Resources};

/// Extended resource of NVIDIA's device plugin.
pub const NVIDIA_GPU: &str = "nvidia.com/gpu";
/// Extended resource of AMD's device plugin.
pub const AMD_GPU: &str = "amd.com/gpu";
/// Extended resource of Habana's device plugin.
const GAUDI: &str = "habana.ai/gaudi";
/// Extended resource of the Neuron device plugin, in devices.
pub const NEURON: &str = "aws.amazon.com/neuron";
/// Extended resource of the EFA device plugin.
pub const EFA: &str = "vpc.amazonaws.com/efa";

const MIB: i64 = 1024 * 1024;
/// Addresses of a prefix, a /28.
const PREFIX: u32 = 16;

/// One instance type. Nothing about a type is hard-coded but its list price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstanceTypeInfo {
    /// Name, `p5.48xlarge`.
    pub name: String,
    /// vCPUs.
    pub vcpu: u32,
    /// Memory in MiB, as advertised.
    pub memory_mib: u64,
    /// GPUs, one entry per model.
    #[serde(default)]
    pub gpus: Vec<Gpu>,
    /// Neuron devices.
    #[serde(default)]
    pub neuron_devices: u32,
    /// Most EFA interfaces the type takes; 0 without EFA.
    #[serde(default)]
    pub efa_max: u32,
    /// Network cards in order of index.
    pub network_cards: Vec<NetworkCard>,
    /// IPv4 addresses per interface.
    pub ipv4_per_interface: u32,
    /// Whether it may be launched into a cluster placement group.
    pub supports_cluster_group: bool,
    /// Ways it can be provisioned.
    pub usage_classes: Vec<UsageClass>,
    /// CPU architectures, `x86_64` or `arm64`.
    #[serde(default)]
    pub architectures: Vec<String>,
    /// Local disks together, in gigabytes; 0 without any.
    #[serde(default)]
    pub local_storage_gb: u64,
    /// Whether it runs on Xen: the VPC network gives neither prefixes nor IPv6 addresses to pods there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub xen: bool,
}

/// GPUs of one model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gpu {
    /// Model, `H100`.
    pub name: String,
    /// Manufacturer, `NVIDIA`.
    pub manufacturer: String,
    /// How many.
    pub count: u32,
    /// Memory of each, in MiB.
    pub memory_mib: u64,
}

/// A network card.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkCard {
    /// Index; not always dense from 0.
    pub index: u32,
    /// Interface types the card takes.
    pub kinds: Vec<InterfaceKind>,
    /// Most interfaces on the card.
    pub max_interfaces: u32,
}

impl NetworkCard {
    /// Whether the card takes an interface of this kind.
    #[must_use]
    pub fn takes(&self, kind: InterfaceKind) -> bool {
        self.kinds.contains(&kind)
    }
}

/// Ways an instance type can be provisioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UsageClass {
    /// On demand, and in capacity reservations.
    OnDemand,
    /// Spot.
    Spot,
    /// Capacity Blocks.
    CapacityBlock,
}

impl InstanceTypeInfo {
    /// What the type has whatever its node class says: CPU, memory and accelerators.
    #[must_use]
    pub fn capacity(&self) -> Resources {
        let mut resources = self.devices();
        resources.set(CPU, i64::from(self.vcpu) * 1000);
        resources.set(MEMORY, mib(self.memory_mib));
        resources
    }

    /// Estimate of a node's allocatable amounts before such a node has registered, for a kubelet that takes `pods` pods.
    ///
    /// CPU reserve: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest. Memory: 7.5 %
    /// VM overhead, 11 MiB per pod + 255 MiB reserve, 100 MiB eviction threshold; all but the overhead as the class has it, where
    /// it says so. `memory` is what the kernel turned out to have, in bytes, in place of the estimate. What else the node class
    /// decides is not here: see [`new_node`](crate::offering::new_node).
    pub(crate) fn allocatable(&self, pods: u32, kept: &KeptBack, memory: Option<i64>) -> Resources {
        let mut resources = self.devices();
        let reserved = kept.cpu(reserved_millicpu(self.vcpu));
        resources.set(CPU, (i64::from(self.vcpu) * 1000).saturating_sub(reserved).max(0));
        let reserved_mib = 11 * i64::from(pods) + 255;
        let advertised = mib(self.memory_mib);
        // Less than half is no kernel's share: it is taken for a mistake.
        let known = memory.filter(|known| *known >= advertised / 2);
        let usable = known.map_or_else(|| advertised - scaled(advertised, 75, 1000), |known| known.min(advertised));
        resources.set(MEMORY, usable.saturating_sub(kept.memory(reserved_mib * MIB, usable)).max(0));
        resources.set(PODS, i64::from(pods));
        resources
    }

    /// Pods the VPC network gives addresses to: interfaces of card 0, less one if it holds an `efa-only`, times the
    /// addresses of each but its own, plus two on the host network. Source: the EKS `max-pods` formula.
    #[must_use]
    pub fn max_pods(&self, layout: &[NetworkInterface]) -> u32 {
        self.addresses_for_pods(layout).saturating_add(2)
    }

    /// The same for a VPC network that gives prefixes of 16 addresses, and no more than AWS recommends for one kubelet; `None`
    /// for a type on Xen, which gets single addresses even then.
    ///
    /// In an IPv6 cluster the prefixes are larger, and it is counted alike. Source: the EKS user guide, "Assign more IP addresses
    /// to Amazon EKS nodes with prefixes".
    #[must_use]
    pub fn max_pods_of_prefixes(&self, layout: &[NetworkInterface]) -> Option<u32> {
        let recommended = if self.vcpu < 30 { 110 } else { 250 };
        let pods = self.addresses_for_pods(layout).saturating_mul(PREFIX).saturating_add(2);
        (!self.xen).then_some(pods.min(recommended))
    }

    /// Addresses beside those of the interfaces themselves.
    fn addresses_for_pods(&self, layout: &[NetworkInterface]) -> u32 {
        let first_card = self.network_cards.iter().min_by_key(|card| card.index);
        let interfaces = first_card.map_or(1, |card| card.max_interfaces);
        let efa_only = layout.iter().any(|entry| entry.card == 0 && entry.kind == InterfaceKind::EfaOnly);
        let usable = interfaces.saturating_sub(u32::from(efa_only)).max(1);
        usable.saturating_mul(self.ipv4_per_interface.saturating_sub(1))
    }

    /// Extended resources of accelerators.
    fn devices(&self) -> Resources {
        let mut resources = Resources::default();
        resources.set(NEURON, i64::from(self.neuron_devices));
        for gpu in &self.gpus {
            let name = match gpu.manufacturer.to_ascii_lowercase().as_str() {
                "nvidia" => NVIDIA_GPU,
                "amd" => AMD_GPU,
                "habana" => GAUDI,
                // A maker nobody has a device plugin for offers nothing to pods.
                _ => continue,
            };
            let sum = resources.get(name).saturating_add(i64::from(gpu.count));
            resources.set(name, sum);
        }
        resources
    }
}

fn mib(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX).saturating_mul(MIB)
}

/// `amount * numerator / denominator`, rounded up, without overflow.
fn scaled(amount: i64, numerator: i64, denominator: i64) -> i64 {
    let product = i128::from(amount) * i128::from(numerator);
    let rounded = (product + i128::from(denominator) - 1) / i128::from(denominator);
    i64::try_from(rounded).unwrap_or(i64::MAX)
}

/// Millicpu kept back, rounded up.
fn reserved_millicpu(vcpu: u32) -> i64 {
    // In quarters of a percent of a core, which are 2.5 millicpu each.
    const QUARTERS: [i64; 4] = [24, 4, 2, 2];
    let first: i64 = QUARTERS.iter().take(vcpu as usize).sum();
    let rest = i64::from(vcpu.saturating_sub(4));
    scaled(first + rest, 25, 10)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn card(index: u32, kinds: &[InterfaceKind], max_interfaces: u32) -> NetworkCard {
        NetworkCard { index, kinds: kinds.to_vec(), max_interfaces }
    }

    pub(crate) fn p5() -> InstanceTypeInfo {
        use InterfaceKind::{Efa, EfaOnly, Interface};
        InstanceTypeInfo {
            name: "p5.48xlarge".to_owned(),
            vcpu: 192,
            memory_mib: 2048 * 1024,
            gpus: vec![Gpu {
                name: "H100".to_owned(),
                manufacturer: "NVIDIA".to_owned(),
                count: 8,
                memory_mib: 81_920,
            }],
            neuron_devices: 0,
            efa_max: 32,
            network_cards: (0..32).map(|index| card(index, &[Interface, Efa, EfaOnly], 2)).collect(),
            ipv4_per_interface: 50,
            supports_cluster_group: true,
            usage_classes: vec![UsageClass::OnDemand, UsageClass::Spot, UsageClass::CapacityBlock],
            architectures: vec!["x86_64".to_owned()],
            local_storage_gb: 30_400,
            xen: false,
        }
    }

    pub(crate) fn plain(name: &str, vcpu: u32, gib: u64, interfaces: u32, ipv4: u32) -> InstanceTypeInfo {
        InstanceTypeInfo {
            name: name.to_owned(),
            vcpu,
            memory_mib: gib * 1024,
            gpus: Vec::new(),
            efa_max: 0,
            network_cards: vec![card(0, &[InterfaceKind::Interface], interfaces)],
            ipv4_per_interface: ipv4,
            ..p5()
        }
    }

    #[test]
    fn cpu_reserve_follows_the_steps_exactly() {
        let rows = [(1, 60), (2, 70), (3, 75), (4, 80), (5, 83), (6, 85), (8, 90), (48, 190), (192, 550)];
        for (vcpu, reserved) in rows {
            assert_eq!(reserved_millicpu(vcpu), reserved, "{vcpu} vCPU");
        }
        assert_eq!(reserved_millicpu(0), 0);
    }

    #[test]
    fn capacity_is_what_the_hardware_has() {
        let capacity = p5().capacity();
        assert_eq!(capacity.get(CPU), 192_000);
        assert_eq!(capacity.get(MEMORY), 2048 * 1024 * MIB);
        assert_eq!(capacity.get(NVIDIA_GPU), 8);
    }

    #[test]
    fn models_of_one_maker_add_up_and_unknown_makers_offer_nothing() {
        let gpu = |maker: &str| Gpu { name: String::new(), manufacturer: maker.to_owned(), count: 2, memory_mib: 1 };
        let mixed = InstanceTypeInfo { gpus: vec![gpu("NVIDIA"), gpu("NVIDIA"), gpu("Acme")], ..p5() };
        assert_eq!(mixed.capacity().get(NVIDIA_GPU), 4);
    }

    #[test]
    fn prefixes_give_sixteen_times_the_pods_up_to_what_aws_recommends_for_a_kubelet() {
        let efa_only = NetworkInterface {
            card: 0,
            device: 1,
            kind: InterfaceKind::EfaOnly,
            security_groups: Vec::new(),
            delete_on_termination: true,
        };
        for (info, layout, single, prefixes) in [
            // t3.nano: 2 interfaces of 2 addresses.
            (plain("t3.nano", 2, 1, 2, 2), &[][..], 4, Some(34)),
            (plain("m5.large", 2, 8, 3, 10), &[][..], 29, Some(110)),
            (plain("m5.4xlarge", 16, 64, 8, 30), &[][..], 234, Some(110)),
            (plain("m5.8xlarge", 32, 128, 8, 30), &[][..], 234, Some(250)),
            (p5(), &[][..], 100, Some(250)),
            (
                InstanceTypeInfo { network_cards: vec![card(0, &[], 2)], ipv4_per_interface: 5, ..p5() },
                std::slice::from_ref(&efa_only),
                6,
                Some(66),
            ),
            (InstanceTypeInfo { xen: true, ..plain("m4.large", 2, 8, 2, 10) }, &[][..], 20, None),
        ] {
            let found = (info.max_pods(layout), info.max_pods_of_prefixes(layout));
            assert_eq!(found, (single, prefixes), "{}", info.name);
        }
    }

    proptest::proptest! {
        #[test]
        fn prefixes_make_at_least_as_many_pods_as_single_addresses_up_to_what_is_recommended(
            vcpu in 1_u32..200, interfaces in 1_u32..30, ipv4 in 1_u32..60
        ) {
            let info = plain("any", vcpu, 8, interfaces, ipv4);
            let most = if vcpu >= 30 { 250 } else { 110 };
            let addresses = interfaces * (ipv4 - 1) * 16 + 2;
            let found = info.max_pods_of_prefixes(&[]);
            proptest::prop_assert_eq!(found, Some(std::cmp::min(addresses, most)));
            proptest::prop_assert!(found >= Some(info.max_pods(&[]).min(most)));
        }
    }

    #[test]
    fn absurd_sizes_saturate_instead_of_wrapping() {
        let absurd = InstanceTypeInfo {
            vcpu: u32::MAX,
            memory_mib: u64::MAX,
            ipv4_per_interface: u32::MAX,
            network_cards: vec![card(0, &[], u32::MAX)],
            ..p5()
        };
        assert!(absurd.allocatable(absurd.max_pods(&[]), &KeptBack::default(), None).get(CPU) > 0);
        assert_eq!(absurd.max_pods_of_prefixes(&[]), Some(250));
        let tiny = plain("tiny", 0, 0, 0, 0);
        assert_eq!(tiny.allocatable(tiny.max_pods(&[]), &KeptBack::default(), None).get(MEMORY), 0);
    }
}
