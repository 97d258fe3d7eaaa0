//! Instance types and prices: a dated table that is built in, or a file.
//!
//! The table holds accelerator types for which EC2 documents EFA; its numbers are those DescribeInstanceTypes reported
//! on the day of its name.

use std::collections::BTreeMap;

use muster_core::ec2::{CapacityType, InterfaceKind};
use muster_core::offering::{Gpu, InstanceTypeInfo, NetworkCard, PRICES_AS_OF, PriceBook, UsageClass};
use serde::Deserialize;
use thiserror::Error;

use crate::dump::{self, Input};

/// What may be provisioned anywhere, and for how much.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// Name, as the document gives it.
    pub name: String,
    /// Types by name.
    pub types: BTreeMap<String, InstanceTypeInfo>,
    /// Prices; what is not named has the list price on demand, if there is one.
    pub prices: PriceBook,
}

/// Why a catalogue cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("read catalogue {name}: {message}")]
pub struct CatalogueError {
    /// File.
    name: String,
    /// Field and value.
    message: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(default)]
    name: Option<String>,
    types: Vec<InstanceTypeInfo>,
    #[serde(default)]
    prices: Vec<Price>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Price {
    #[serde(rename = "type")]
    instance_type: String,
    #[serde(default)]
    zone: Option<String>,
    #[serde(default = "on_demand")]
    #[serde(rename = "market")]
    capacity_type: CapacityType,
    usd_micro_per_hour: u64,
}

fn on_demand() -> CapacityType {
    CapacityType::OnDemand
}

/// Cards whose card 0 takes EFA, and cards whose card 0 does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cards {
    Alike(u32),
    FirstPlain(u32),
}

/// Name, accelerator (model, count, MiB each), vCPU, GiB, cards, most EFA, most interfaces, capacity types.
type Row = (&'static str, (&'static str, u32, u64), u32, u64, Cards, u32, u32, &'static [UsageClass]);

const OD: &[UsageClass] = &[UsageClass::OnDemand];
const SPOT: &[UsageClass] = &[UsageClass::OnDemand, UsageClass::Spot];
const ALL: &[UsageClass] = &[UsageClass::OnDemand, UsageClass::Spot, UsageClass::CapacityBlock];
const BLOCK: &[UsageClass] = &[UsageClass::OnDemand, UsageClass::CapacityBlock];

/// The table of [`PRICES_AS_OF`]. Trainium has no memory column, hpc7a no accelerator.
const TABLE: [Row; 19] = {
    use Cards::{Alike, FirstPlain};
    [
        ("g5.48xlarge", ("A10G", 8, 22_888), 192, 768, Alike(1), 1, 7, SPOT),
        ("g6.48xlarge", ("L4", 8, 22_888), 192, 768, Alike(1), 1, 15, SPOT),
        ("g6e.12xlarge", ("L40S", 4, 45_776), 48, 384, Alike(1), 1, 10, SPOT),
        ("g6e.24xlarge", ("L40S", 4, 45_776), 96, 768, Alike(2), 2, 20, SPOT),
        ("g6e.48xlarge", ("L40S", 8, 45_776), 192, 1536, Alike(4), 4, 40, SPOT),
        ("g7e.48xlarge", ("RTX PRO Server 6000", 8, 98_304), 192, 2048, Alike(4), 4, 40, SPOT),
        ("hpc7a.96xlarge", ("", 0, 0), 192, 768, Alike(2), 2, 4, OD),
        ("p4d.24xlarge", ("A100", 8, 40_960), 96, 1152, Alike(4), 4, 60, ALL),
        ("p4de.24xlarge", ("A100", 8, 81_920), 96, 1152, Alike(4), 4, 60, ALL),
        ("p5.48xlarge", ("H100", 8, 81_920), 192, 2048, Alike(32), 32, 64, ALL),
        ("p5.4xlarge", ("H100", 1, 81_920), 16, 256, Alike(1), 1, 4, ALL),
        ("p5e.48xlarge", ("H200", 8, 144_384), 192, 2048, Alike(32), 32, 64, ALL),
        ("p5en.48xlarge", ("H200", 8, 144_384), 192, 2048, Alike(16), 16, 64, ALL),
        ("p6-b200.48xlarge", ("B200", 8, 183_359), 192, 2048, Alike(8), 8, 32, ALL),
        ("p6-b300.48xlarge", ("B300", 8, 275_040), 192, 4096, FirstPlain(17), 16, 68, ALL),
        ("trn1.32xlarge", ("Trainium", 16, 0), 128, 512, Alike(8), 8, 40, ALL),
        ("trn1n.32xlarge", ("Trainium", 16, 0), 128, 512, Alike(16), 16, 80, SPOT),
        ("trn2.48xlarge", ("Trainium2", 16, 0), 192, 2048, Alike(16), 16, 32, ALL),
        ("trn2u.48xlarge", ("Trainium2", 16, 0), 192, 2048, Alike(16), 16, 32, BLOCK),
    ]
};

/// Addresses per interface of every type in the table.
const IPV4_PER_INTERFACE: u32 = 50;

impl Catalogue {
    /// The built-in table.
    #[must_use]
    pub fn built_in() -> Self {
        Self {
            name: format!("built-in {PRICES_AS_OF}"),
            types: TABLE.iter().map(info).map(|info| (info.name.clone(), info)).collect(),
            prices: PriceBook::default(),
        }
    }

    /// A file: `{"name", "types": […], "prices": [{"type", "zone", "market", "usdMicroPerHour"}]}`, the types with the
    /// fields of [`InstanceTypeInfo`]. Without a name it is called like its file.
    ///
    /// Errors: the field and its value.
    pub fn read(input: &Input<'_>) -> Result<Self, CatalogueError> {
        let error = |message: String| CatalogueError { name: input.name.to_owned(), message };
        let mut documents = dump::parse(input).map_err(|failed| error(failed.to_string()))?;
        let (Some(document), true) = (documents.pop(), documents.is_empty()) else {
            return Err(error("exactly one document is expected".to_owned()));
        };
        let file: File = serde_path_to_error::deserialize(document)
            .map_err(|failed| error(format!("{}: {}", failed.path(), failed.inner())))?;
        let mut prices = PriceBook::default();
        for price in &file.prices {
            prices.set(&price.instance_type, price.zone.as_deref(), price.capacity_type, price.usd_micro_per_hour);
        }
        Ok(Self {
            name: file.name.unwrap_or_else(|| input.name.to_owned()),
            types: file.types.into_iter().map(|info| (info.name.clone(), info)).collect(),
            prices,
        })
    }
}

fn info(row: &Row) -> InstanceTypeInfo {
    let (name, (model, count, memory), vcpu, gib, cards, efa_max, interfaces, capacity_types) = *row;
    let neuron = model.starts_with("Trainium");
    let number = match cards {
        Cards::Alike(number) | Cards::FirstPlain(number) => number,
    };
    let card = |index: u32| {
        let plain = index == 0 && matches!(cards, Cards::FirstPlain(_));
        let kinds = if plain {
            vec![InterfaceKind::Interface]
        } else {
            vec![InterfaceKind::Interface, InterfaceKind::Efa, InterfaceKind::EfaOnly]
        };
        NetworkCard { index, kinds, max_interfaces: interfaces / number }
    };
    let gpu = Gpu { name: model.to_owned(), manufacturer: "NVIDIA".to_owned(), count, memory_mib: memory };
    InstanceTypeInfo {
        name: name.to_owned(),
        vcpu,
        memory_mib: gib * 1024,
        gpus: if neuron || count == 0 { Vec::new() } else { vec![gpu] },
        neuron_devices: if neuron { count } else { 0 },
        efa_max,
        network_cards: (0..number).map(card).collect(),
        ipv4_per_interface: IPV4_PER_INTERFACE,
        supports_cluster_group: true,
        usage_classes: capacity_types.to_vec(),
        architectures: vec!["x86_64".to_owned()],
        // The table has no disks: with RAID0 the root volume is counted on.
        local_storage_gb: 0,
    }
}
