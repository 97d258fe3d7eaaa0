//! Instance types with the facts the real service reports, and the image paths.
//!
//! Sources: DescribeInstanceTypes as published in moto's data files (Apache-2.0), prices of
//! us-east-1 on demand.

/// What a type is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct InstanceType {
    pub(crate) name: &'static str,
    pub(crate) vcpus: u32,
    pub(crate) memory_mib: u64,
    pub(crate) clock_ghz: &'static str,
    pub(crate) cpu: &'static str,
    pub(crate) current_generation: bool,
    pub(crate) local_storage: bool,
    pub(crate) gpu: Option<Gpu>,
    pub(crate) network_performance: &'static str,
    /// Network interfaces over all cards.
    pub(crate) max_interfaces: u32,
    pub(crate) cards: Cards,
    pub(crate) ipv4_per_interface: u32,
    pub(crate) capacity_blocks: bool,
    /// Layers of DescribeInstanceTopology; 0: the type is not reported.
    pub(crate) layers: u8,
    /// Price on demand in micro-dollars per hour.
    pub(crate) micro_usd_per_hour: u64,
}

/// The accelerators of a type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Gpu {
    pub(crate) name: &'static str,
    pub(crate) count: u32,
    pub(crate) memory_mib: u32,
}

/// The network cards of a type. All cards are alike, but for the first one of some types.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cards {
    pub(crate) count: u32,
    /// Interfaces per card.
    pub(crate) interfaces: u32,
    pub(crate) performance: &'static str,
    pub(crate) baseline_gbps: &'static str,
    pub(crate) peak_gbps: &'static str,
    /// Whether the cards take `efa` and `efa-only`.
    pub(crate) efa: bool,
    /// Whether card 0 takes plain interfaces alone although the others take EFA.
    pub(crate) first_without_efa: bool,
}

impl InstanceType {
    /// Finds a type by its name.
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        TYPES.iter().find(|t| t.name == name)
    }

    /// All types, by name.
    pub(crate) fn all() -> &'static [Self] {
        TYPES
    }

    /// EFA interfaces at most: one per card that takes them.
    pub(crate) fn max_efa(&self) -> u32 {
        (0..self.cards.count).map(|card| u32::from(self.card_takes_efa(card))).sum()
    }

    /// Whether this card takes `efa` and `efa-only`.
    pub(crate) fn card_takes_efa(&self, card: u32) -> bool {
        self.cards.efa && !(card == 0 && self.cards.first_without_efa)
    }

    pub(crate) fn gpus(&self) -> u32 {
        self.gpu.map_or(0, |g| g.count)
    }
}

/// The image behind a path `resolve:ssm:<path>` of EKS or Bottlerocket, or none for another path.
/// The id follows from the path, so every run resolves alike.
pub(crate) fn resolve_image(path: &str) -> Option<String> {
    let eks = path.starts_with("/aws/service/eks/optimized-ami/")
        && path.ends_with("/image_id")
        && path.contains("/amazon-linux-2023/");
    let bottlerocket = path.starts_with("/aws/service/bottlerocket/aws-k8s-") && path.ends_with("/image_id");
    (eks || bottlerocket).then(|| format!("ami-{:017x}", fnv(path) & 0x000f_ffff_ffff_ffff))
}

/// FNV-1a: a stable name, not a secret.
pub(crate) fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

const fn cards(count: u32, interfaces: u32, performance: &'static str, gbps: &'static str) -> Cards {
    Cards { count, interfaces, performance, baseline_gbps: gbps, peak_gbps: gbps, efa: true, first_without_efa: false }
}

const fn nvidia(name: &'static str, count: u32, memory_mib: u32) -> Option<Gpu> {
    Some(Gpu { name, count, memory_mib })
}

static TYPES: &[InstanceType] = &[
    InstanceType {
        name: "g5.12xlarge",
        vcpus: 48,
        memory_mib: 196_608,
        clock_ghz: "3.3",
        cpu: "AMD",
        current_generation: false,
        local_storage: true,
        gpu: nvidia("A10G", 4, 22_888),
        network_performance: "40 Gigabit",
        max_interfaces: 15,
        cards: cards(1, 15, "40 Gigabit", "40.0"),
        ipv4_per_interface: 50,
        capacity_blocks: false,
        layers: 0,
        micro_usd_per_hour: 5_672_000,
    },
    InstanceType {
        name: "g5.48xlarge",
        vcpus: 192,
        memory_mib: 786_432,
        clock_ghz: "3.3",
        cpu: "AMD",
        current_generation: false,
        local_storage: true,
        gpu: nvidia("A10G", 8, 22_888),
        network_performance: "100 Gigabit",
        max_interfaces: 7,
        cards: cards(1, 7, "100 Gigabit", "100.0"),
        ipv4_per_interface: 50,
        capacity_blocks: false,
        layers: 0,
        micro_usd_per_hour: 16_288_000,
    },
    InstanceType {
        name: "g6e.48xlarge",
        vcpus: 192,
        memory_mib: 1_572_864,
        clock_ghz: "3.4",
        cpu: "AMD",
        current_generation: true,
        local_storage: true,
        gpu: nvidia("L40S", 8, 45_776),
        network_performance: "400 Gigabit",
        max_interfaces: 40,
        cards: cards(4, 10, "400 Gigabit", "400.0"),
        ipv4_per_interface: 50,
        capacity_blocks: false,
        layers: 3,
        micro_usd_per_hour: 30_131_190,
    },
    InstanceType {
        name: "m5.2xlarge",
        vcpus: 8,
        memory_mib: 32_768,
        clock_ghz: "3.1",
        cpu: "Intel",
        current_generation: false,
        local_storage: false,
        gpu: None,
        network_performance: "Up to 10 Gigabit",
        max_interfaces: 4,
        cards: Cards { peak_gbps: "10.0", efa: false, ..cards(1, 4, "Up to 10 Gigabit", "2.5") },
        ipv4_per_interface: 15,
        capacity_blocks: false,
        layers: 0,
        micro_usd_per_hour: 384_000,
    },
    InstanceType {
        name: "m5.8xlarge",
        vcpus: 32,
        memory_mib: 131_072,
        clock_ghz: "3.1",
        cpu: "Intel",
        current_generation: false,
        local_storage: false,
        gpu: None,
        network_performance: "10 Gigabit",
        max_interfaces: 8,
        cards: Cards { efa: false, ..cards(1, 8, "10 Gigabit", "10.0") },
        ipv4_per_interface: 30,
        capacity_blocks: false,
        layers: 0,
        micro_usd_per_hour: 1_536_000,
    },
    InstanceType {
        name: "p4d.24xlarge",
        vcpus: 96,
        memory_mib: 1_179_648,
        clock_ghz: "3.0",
        cpu: "Intel",
        current_generation: true,
        local_storage: true,
        gpu: nvidia("A100", 8, 40_960),
        network_performance: "4x 100 Gigabit",
        max_interfaces: 60,
        cards: cards(4, 15, "100 Gigabit", "100.0"),
        ipv4_per_interface: 50,
        capacity_blocks: true,
        layers: 3,
        micro_usd_per_hour: 21_957_642,
    },
    InstanceType {
        name: "p5.48xlarge",
        vcpus: 192,
        memory_mib: 2_097_152,
        clock_ghz: "3.6",
        cpu: "AMD",
        current_generation: true,
        local_storage: true,
        gpu: nvidia("H100", 8, 81_920),
        network_performance: "3200 Gigabit",
        max_interfaces: 64,
        cards: cards(32, 2, "100 Gigabit", "100.0"),
        ipv4_per_interface: 50,
        capacity_blocks: true,
        layers: 3,
        micro_usd_per_hour: 55_040_000,
    },
    InstanceType {
        name: "p5en.48xlarge",
        vcpus: 192,
        memory_mib: 2_097_152,
        clock_ghz: "2.4",
        cpu: "Intel",
        current_generation: true,
        local_storage: true,
        gpu: nvidia("H200", 8, 144_384),
        network_performance: "3200 Gigabit",
        max_interfaces: 64,
        cards: cards(16, 4, "200 Gigabit", "200.0"),
        ipv4_per_interface: 50,
        capacity_blocks: true,
        layers: 3,
        micro_usd_per_hour: 63_296_000,
    },
    InstanceType {
        name: "p6-b200.48xlarge",
        vcpus: 192,
        memory_mib: 2_097_152,
        clock_ghz: "2.4",
        cpu: "Intel",
        current_generation: true,
        local_storage: true,
        gpu: nvidia("B200", 8, 183_359),
        network_performance: "3200 Gigabit",
        max_interfaces: 32,
        cards: cards(8, 4, "200 Gigabit", "200.0"),
        ipv4_per_interface: 50,
        capacity_blocks: true,
        layers: 4,
        micro_usd_per_hour: 113_932_800,
    },
    InstanceType {
        name: "p6-b300.48xlarge",
        vcpus: 192,
        memory_mib: 4_194_304,
        clock_ghz: "2.4",
        cpu: "Intel",
        current_generation: true,
        local_storage: true,
        gpu: nvidia("B300", 8, 275_040),
        network_performance: "6400 Gigabit",
        max_interfaces: 68,
        cards: Cards { first_without_efa: true, ..cards(17, 4, "400 Gigabit", "400.0") },
        ipv4_per_interface: 50,
        capacity_blocks: true,
        layers: 4,
        micro_usd_per_hour: 142_416_000,
    },
];
