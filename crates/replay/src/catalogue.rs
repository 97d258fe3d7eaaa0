//! Instance types and prices: a dated table that is built in, or a file.
//!
//! The table holds accelerator types for which EC2 documents EFA; its numbers are those DescribeInstanceTypes reported
//! on the day of its name.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use muster_api::crd::{NodePool, NodeRequirement};
use muster_api::{keys, pool};
use muster_core::ec2::{CapacityType, InterfaceKind, Purpose};
use muster_core::model::names::ResourceName;
use muster_core::model::resources::{ATTACHABLE_VOLUMES, CPU, PODS, Resources, volume_limit};
use muster_core::model::spelling::{is_label_key, is_label_value};
use muster_core::model::units::Quantity;
use muster_core::offering::{
    ClassTemplate, Gpu, InstanceTypeInfo, NetworkCard, NodeTemplate, PRICES_AS_OF, PriceBook, UsageClass, new_node,
    prices_as_of,
};
use muster_core::reason::bounded;
use serde::Deserialize;
use thiserror::Error;

use crate::dump::{self, Input};

/// What may be provisioned anywhere, and for how much.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// Name, as the document gives it.
    pub name: String,
    /// The day of its prices; a file has none.
    pub as_of: Option<Timestamp>,
    /// Types in EC2's form by name: what may be launched for gangs.
    pub types: BTreeMap<String, InstanceTypeInfo>,
    /// Types that are described by labels and amounts, by name: for ordinary pods alone.
    pub described: BTreeMap<String, Described>,
    /// Prices. Of the built-in catalogue, what is not named has the list price on demand, if there is one; of a file, none.
    pub prices: PriceBook,
    /// Zones that prices and offerings name.
    pub zones: BTreeSet<String>,
}

/// An instance type as labels and amounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Labels of its nodes.
    pub labels: BTreeMap<String, String>,
    /// Hardware.
    pub capacity: Resources,
    /// What pods may use of it.
    pub allocatable: Resources,
    /// Where it is sold, if that is listed; else in every zone that has a price.
    pub offerings: Option<Vec<Offering>>,
}

/// One place where a type is sold.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Offering {
    /// Zone.
    pub zone: String,
    /// Capacity type.
    #[serde(rename = "market")]
    pub capacity_type: CapacityType,
    /// Micro-dollars per hour.
    pub usd_micro_per_hour: u64,
    /// Whether EC2 has capacity, as far as is known.
    #[serde(default = "yes")]
    pub available: bool,
    /// Capacity reservation.
    #[serde(default)]
    pub reservation: Option<String>,
    /// Hosts that it has free.
    #[serde(default)]
    pub free: Option<u32>,
}

fn yes() -> bool {
    true
}

/// Bytes of what is stated of a catalogue that cannot be used: the value may be the whole file.
const LONGEST: usize = 400;

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
    #[serde(default = "first")]
    version: u32,
    #[serde(default)]
    name: Option<String>,
    types: Vec<serde_json::Value>,
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

/// A type described by labels and amounts.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawDescribed {
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    capacity: BTreeMap<String, Amount>,
    #[serde(default)]
    overhead: BTreeMap<String, Amount>,
    #[serde(default)]
    volume_limits: BTreeMap<String, i64>,
    #[serde(default)]
    offerings: Option<Vec<Offering>>,
}

/// A quantity, or a number.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Amount {
    Number(i64),
    Float(f64),
    Text(String),
}

/// Those that EC2 reports of types that run Linux.
const ARCHITECTURES: [&str; 5] = ["i386", "x86_64", "x86_64_mac", "arm64", "arm64_mac"];

/// The newest version that is understood.
const NEWEST: u32 = 2;

fn first() -> u32 {
    1
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

/// Most requirements that are named, and characters of the values of each.
const SHOWN: usize = 4;
const SHOWN_VALUES: usize = 80;

impl Catalogue {
    /// The built-in table.
    #[must_use]
    pub fn built_in() -> Self {
        Self {
            name: format!("built-in {PRICES_AS_OF}"),
            as_of: prices_as_of(),
            types: TABLE.iter().map(info).map(|info| (info.name.clone(), info)).collect(),
            described: BTreeMap::new(),
            prices: PriceBook::default(),
            zones: BTreeSet::new(),
        }
    }

    /// That no type meets the requirements of a pool, with those that none meets even alone.
    pub(crate) fn no_type_meets(&self, of: &NodePool) -> String {
        let types = self.all(&ClassTemplate::default());
        let later = [keys::ZONE_ID, keys::REGION, keys::EBS_ZONE];
        let is_met = |requirement: &NodeRequirement| {
            let key = requirement.key.as_str();
            let is_allowed = |value: &str| pool::allows(requirement, Some(value));
            if key == keys::CAPACITY_TYPE {
                return CapacityType::ALL.into_iter().any(|one| is_allowed(one.as_str()));
            }
            if key == keys::ZONE {
                return self.zones.is_empty() || self.zones.iter().any(|zone| is_allowed(zone));
            }
            // A key that no type has and nothing is known of is the pool's own.
            let is_known = keys::is_known(key) || types.values().any(|known| known.labels.contains_key(key));
            !is_known
                || later.contains(&key)
                || types.values().any(|known| pool::allows(requirement, known.labels.get(key).map(String::as_str)))
        };
        let requirements = of.spec.template.spec.requirements.iter().enumerate();
        let unmet = requirements.filter(|(_, requirement)| !is_met(requirement)).map(|(index, requirement)| {
            let NodeRequirement { key, operator, values, min_values: _ } = requirement;
            let values = if values.is_empty() {
                String::new()
            } else {
                format!(" [{}]", bounded(&values.join(", "), SHOWN_VALUES))
            };
            format!(", and none requirements[{index}]: {key} {operator:?}{values}")
        });
        let unmet: String = unmet.take(SHOWN).collect();
        let name = &self.name;
        let stated =
            format!("spec.template.spec.requirements: no type of the catalogue {name} meets all of them{unmet}");
        // Only the built-in one has a day.
        match self.as_of {
            Some(_) => format!("{stated}; it has types for distributed training alone, others come with --catalogue"),
            None => stated,
        }
    }

    /// A file: `{"version", "name", "types": […], "prices": [{"type", "zone", "market", "usdMicroPerHour"}]}`. A type with
    /// `capacity` is described by labels and amounts, any other has the fields of [`InstanceTypeInfo`]. Without a name it is
    /// called like its file.
    ///
    /// Errors: the field and its value.
    pub fn read(input: &Input<'_>) -> Result<Self, CatalogueError> {
        let error = |message: String| {
            let message = bounded(&message, LONGEST).into_owned();
            CatalogueError { name: input.name.to_owned(), message }
        };
        let mut documents = dump::parse(input).map_err(|failed| error(failed.to_string()))?;
        let (Some(document), true) = (documents.pop(), documents.is_empty()) else {
            return Err(error("exactly one document is expected".to_owned()));
        };
        let file: File = serde_path_to_error::deserialize(document)
            .map_err(|failed| error(format!("{}: {}", failed.path(), failed.inner())))?;
        if !(first()..=NEWEST).contains(&file.version) {
            return Err(error(format!("version: {} is not 1 or {NEWEST}", file.version)));
        }
        // What it does not name has no price: the built-in table may be of another Region, or of other days.
        let mut prices = PriceBook::bare();
        let mut zones = BTreeSet::new();
        let mut priced = BTreeSet::new();
        for (index, price) in file.prices.iter().enumerate() {
            if !priced.insert((&price.instance_type, &price.zone, price.capacity_type)) {
                let of = price.zone.as_deref().unwrap_or("every zone");
                return Err(error(format!(
                    "prices[{index}]: \"{}\" has a price in {of} on {} twice",
                    price.instance_type,
                    price.capacity_type.as_str()
                )));
            }
            prices.set(&price.instance_type, price.zone.as_deref(), price.capacity_type, price.usd_micro_per_hour);
            zones.extend(price.zone.clone());
        }
        let (mut types, mut described) = (BTreeMap::new(), BTreeMap::new());
        for (index, value) in file.types.into_iter().enumerate() {
            let at = |path: &str, why: String| match path {
                "." => error(format!("types[{index}]: {why}")),
                _ => error(format!("types[{index}].{path}: {why}")),
            };
            let name = if value.get("capacity").is_some() {
                let raw: RawDescribed = serde_path_to_error::deserialize(value)
                    .map_err(|failed| at(&failed.path().to_string(), failed.inner().to_string()))?;
                let name = raw.name.clone();
                let known = describe(raw).map_err(|(path, why)| at(&path, why))?;
                zones.extend(known.offerings.iter().flatten().map(|offering| offering.zone.clone()));
                described.insert(name.clone(), known).map(|_| name)
            } else {
                let info: InstanceTypeInfo = serde_path_to_error::deserialize(value)
                    .map_err(|failed| at(&failed.path().to_string(), failed.inner().to_string()))?;
                let known = |one: &&String| !ARCHITECTURES.contains(&one.as_str());
                if let Some(other) = info.architectures.iter().find(known) {
                    return Err(at("architectures", format!("\"{other}\" is none of {}", ARCHITECTURES.join(", "))));
                }
                if info.vcpu == 0 {
                    return Err(at("vcpu", "0 is not greater than zero".to_owned()));
                }
                let name = info.name.clone();
                types.insert(name.clone(), info).map(|_| name)
            };
            if types.contains_key("") || described.contains_key("") {
                return Err(at("name", "\"\" is empty".to_owned()));
            }
            if let Some(name) = name {
                return Err(at("name", format!("\"{name}\" is there twice")));
            }
        }
        if let Some(name) = types.keys().find(|name| described.contains_key(*name)) {
            return Err(error(format!("types: \"{name}\" is there twice")));
        }
        let name = file.name.unwrap_or_else(|| input.name.to_owned());
        Ok(Self { name, as_of: None, types, described, prices, zones })
    }

    /// Micro-dollars per hour of a node, of a reserved one as lists have it: as the offerings of its type say, else by the prices.
    #[must_use]
    pub fn price(&self, instance_type: &str, zone: &str, capacity_type: CapacityType) -> Option<u64> {
        let Some(offerings) = self.described.get(instance_type).and_then(|known| known.offerings.as_ref()) else {
            return self.prices.price(instance_type, zone, capacity_type);
        };
        let sold = offerings.iter().filter(|one| one.zone == zone && one.capacity_type == capacity_type);
        sold.map(|one| one.usd_micro_per_hour).max()
    }

    /// Every type as labels and amounts, in order of name; `class` decides interfaces and disks of EC2's types.
    #[must_use]
    pub fn all(&self, class: &ClassTemplate) -> BTreeMap<&str, Described> {
        let of_ec2 = |info: &InstanceTypeInfo| {
            let labels = pool::facts(info).into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
            let new = new_node(NodeTemplate::default(), class, info, Purpose::Ordinary, &[]);
            Described { labels, capacity: new.capacity, allocatable: new.node.allocatable, offerings: None }
        };
        let types = self.types.iter().map(|(name, info)| (name.as_str(), of_ec2(info)));
        types.chain(self.described.iter().map(|(name, known)| (name.as_str(), known.clone()))).collect()
    }
}

/// Reads amounts and offerings.
///
/// Errors: path and what is wrong there.
fn describe(raw: RawDescribed) -> Result<Described, (String, String)> {
    let RawDescribed { name, mut labels, capacity, overhead, volume_limits, offerings } = raw;
    let amounts = |field: &str, list: &BTreeMap<String, Amount>| -> Result<Resources, (String, String)> {
        let read = |(name, text): (&String, &Amount)| {
            let text = match text {
                Amount::Number(number) => number.to_string(),
                Amount::Float(number) => number.to_string(),
                Amount::Text(text) => text.clone(),
            };
            let wrong = |why: &str| (format!("{field}.{name}"), format!("\"{text}\" {why}"));
            let amount: Quantity = text.parse().map_err(|_| wrong("is not a quantity"))?;
            if amount < Quantity::ZERO {
                return Err(wrong("is negative"));
            }
            Ok((ResourceName::from(name.as_str()), if name == CPU { amount.milli_ceil() } else { amount.unit_ceil() }))
        };
        list.iter().map(read).collect()
    };
    for (key, value) in &labels {
        if !is_label_key(key) {
            return Err(("labels".to_owned(), format!("\"{key}\" is no label key")));
        }
        if !is_label_value(value) {
            return Err((format!("labels.{key}"), format!("\"{value}\" is no label value")));
        }
    }
    let capacity = amounts("capacity", &capacity)?;
    for needed in [CPU, PODS] {
        if capacity.get(needed) == 0 {
            return Err((format!("capacity.{needed}"), "is missing, or 0: no pod runs there".to_owned()));
        }
    }
    let mut allocatable = capacity.clone();
    allocatable.subtract(&amounts("overhead", &overhead)?);
    for (driver, most) in &volume_limits {
        if *most < 0 {
            return Err((format!("volumeLimits.{driver}"), format!("{most} is negative")));
        }
        allocatable.set(format!("{ATTACHABLE_VOLUMES}{driver}").as_str(), volume_limit(*most));
    }
    let mut sold = BTreeSet::new();
    for (index, offering) in offerings.iter().flatten().enumerate() {
        let Offering { zone, capacity_type, reservation, .. } = offering;
        if zone.is_empty() {
            return Err((format!("offerings[{index}].zone"), "\"\" is empty".to_owned()));
        }
        if reservation.as_ref().is_some_and(String::is_empty) {
            return Err((format!("offerings[{index}].reservation"), "\"\" is empty".to_owned()));
        }
        if !sold.insert((zone, capacity_type, reservation)) {
            let what = format!("{zone} on {} is there twice", capacity_type.as_str());
            return Err((format!("offerings[{index}]"), what));
        }
        let reserved = offering.capacity_type == CapacityType::Reserved;
        if reserved != offering.reservation.is_some() || reserved != offering.free.is_some() {
            let path = format!("offerings[{index}]");
            return Err((path, "a reserved offering has `reservation` and `free`, no other has them".to_owned()));
        }
    }
    labels.entry(muster_api::keys::INSTANCE_TYPE.to_owned()).or_insert(name);
    // What every kubelet says of itself; all image families are Linux.
    labels.entry(muster_api::keys::OS.to_owned()).or_insert_with(|| "linux".to_owned());
    Ok(Described { labels, capacity, allocatable, offerings })
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
        xen: false,
    }
}
