//! DescribeInstanceTypes and DescribeInstanceTypeOfferings.

use std::collections::{BTreeMap, BTreeSet};

use crate::fixtures::InstanceType;
use crate::operations::filters::{Filters, page};
use crate::operations::named::find_type;
use crate::operations::{Call, Reply};
use crate::protocol::error::ApiError;
use crate::protocol::xml::Xml;
use crate::state::World;

pub(super) fn types(_: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let known =
        ["instance-type", "bare-metal", "hypervisor", "current-generation", "processor-info.supported-architecture"];
    let filters = Filters::parse(call.form, &known)?;
    let names = call.form.list("InstanceType");
    for name in &names {
        find_type(name)?;
    }
    let text = |flag: bool| if flag { "true" } else { "false" };
    let found: Vec<&InstanceType> = InstanceType::all()
        .iter()
        .filter(|t| names.is_empty() || names.contains(&t.name))
        .filter(|t| {
            filters.pass(&BTreeMap::new(), |filter| match filter {
                "instance-type" => Some(&t.name),
                "processor-info.supported-architecture" => t.architectures.first().map(String::as_str),
                "bare-metal" => Some(text(t.bare_metal)),
                "hypervisor" => t.hypervisor.as_deref(),
                "current-generation" => Some(text(t.current_generation)),
                _ => None,
            })
        })
        .collect();
    let (found, next) = page(call.form, found, 5..=100, Some(100))?;
    let mut xml = Xml::new();
    xml.list("instanceTypeSet", found, write);
    xml.optional("nextToken", next.as_deref());
    Ok(Reply::of(xml))
}

pub(super) fn offerings(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let filters = Filters::parse(call.form, &["instance-type", "location"])?;
    let kind = call.form.get("LocationType").unwrap_or("region");
    let mut found: BTreeSet<(String, String)> = BTreeSet::new();
    for zone in &world.scenario.zones {
        let location = match kind {
            "region" => world.scenario.region.as_str(),
            "availability-zone" => zone.name.as_str(),
            "availability-zone-id" => zone.zone_id.as_str(),
            other => return Err(ApiError::value("LocationType", other)),
        };
        let offered = InstanceType::all().iter().filter(|t| world.offered(&t.name, &zone.name));
        found.extend(offered.map(|t| (t.name.clone(), location.to_owned())));
    }
    let found: Vec<(String, String)> = found
        .into_iter()
        .filter(|(name, location)| {
            filters.pass(&BTreeMap::new(), |filter| match filter {
                "instance-type" => Some(name),
                "location" => Some(location),
                _ => None,
            })
        })
        .collect();
    let (found, next) = page(call.form, found, 5..=1000, Some(1000))?;
    let mut xml = Xml::new();
    xml.list("instanceTypeOfferingSet", found, |xml, (name, location)| {
        xml.text("instanceType", &name);
        xml.text("locationType", kind);
        xml.text("location", &location);
    });
    xml.optional("nextToken", next.as_deref());
    Ok(Reply::of(xml))
}

fn write(xml: &mut Xml, t: &InstanceType) {
    let texts = |xml: &mut Xml, name: &str, values: &[String]| xml.values(name, values.iter().map(String::as_str));
    xml.text("instanceType", &t.name);
    xml.flag("currentGeneration", t.current_generation);
    xml.flag("freeTierEligible", false);
    texts(xml, "supportedUsageClasses", &t.usage_classes);
    xml.values("supportedRootDeviceTypes", ["ebs"]);
    xml.values("supportedVirtualizationTypes", ["hvm"]);
    xml.flag("bareMetal", t.bare_metal);
    xml.optional("hypervisor", t.hypervisor.as_deref());
    xml.node("processorInfo", |xml| {
        texts(xml, "supportedArchitectures", &t.architectures);
        xml.optional("sustainedClockSpeedInGhz", t.clock_ghz.as_deref());
        xml.optional("manufacturer", t.cpu.as_deref());
    });
    xml.node("vCpuInfo", |xml| {
        xml.number("defaultVCpus", t.vcpus);
        xml.number("defaultCores", t.cores);
        xml.number("defaultThreadsPerCore", t.threads_per_core);
    });
    xml.node("memoryInfo", |xml| xml.number("sizeInMiB", t.memory_mib));
    xml.flag("instanceStorageSupported", t.storage.is_some());
    if let Some(storage) = &t.storage {
        xml.node("instanceStorageInfo", |xml| {
            xml.number("totalSizeInGB", storage.total_gb);
            xml.list("disks", &storage.disks, |xml, disk| {
                xml.number("sizeInGB", disk.size_gb);
                xml.number("count", disk.count);
                xml.text("type", "ssd");
            });
            xml.text("nvmeSupport", "required");
            xml.text("encryptionSupport", "required");
        });
    }
    write_network(xml, t);
    if !t.gpus.is_empty() {
        xml.node("gpuInfo", |xml| {
            xml.list("gpus", &t.gpus, |xml, gpu| {
                xml.text("name", &gpu.name);
                xml.text("manufacturer", &gpu.manufacturer);
                xml.number("count", gpu.count);
                xml.node("memoryInfo", |xml| xml.number("sizeInMiB", gpu.memory_mib));
            });
            xml.number("totalGpuMemoryInMiB", t.gpus.iter().map(|g| g.count * g.memory_mib).sum::<u32>());
        });
    }
    if !t.neurons.is_empty() {
        xml.node("neuronInfo", |xml| {
            xml.list("neuronDevices", &t.neurons, |xml, chip| {
                xml.number("count", chip.count);
                xml.text("name", &chip.name);
                xml.node("coreInfo", |xml| {
                    xml.number("count", chip.cores);
                    xml.number("version", chip.core_version);
                });
                xml.node("memoryInfo", |xml| xml.number("sizeInMiB", chip.memory_mib));
            });
            let total: u32 = t.neurons.iter().map(|n| n.count * n.memory_mib).sum();
            xml.number("totalNeuronDeviceMemoryInMiB", total);
        });
    }
    xml.node("placementGroupInfo", |xml| texts(xml, "supportedStrategies", &t.strategies));
    xml.flag("hibernationSupported", false);
    xml.flag("burstablePerformanceSupported", t.burstable);
}

fn write_network(xml: &mut Xml, t: &InstanceType) {
    let network = &t.network;
    let cards = t.cards();
    xml.node("networkInfo", |xml| {
        xml.text("networkPerformance", &network.performance);
        xml.number("maximumNetworkInterfaces", network.interfaces);
        xml.number("maximumNetworkCards", cards.len());
        xml.number("defaultNetworkCardIndex", 0);
        xml.list("networkCards", cards.iter().enumerate(), |xml, (index, card)| {
            xml.number("networkCardIndex", index);
            xml.text("networkPerformance", &card.performance);
            xml.number("maximumNetworkInterfaces", card.interfaces);
            xml.text("baselineBandwidthInGbps", &card.baseline_gbps);
            xml.text("peakBandwidthInGbps", &card.peak_gbps);
            xml.values("interfaceTypeSet", card.kinds.iter().map(String::as_str));
        });
        xml.number("ipv4AddressesPerInterface", network.ipv4_per_interface);
        xml.number("ipv6AddressesPerInterface", network.ipv4_per_interface);
        xml.flag("ipv6Supported", true);
        xml.text("enaSupport", "required");
        xml.flag("efaSupported", network.efa > 0);
        if network.efa > 0 {
            xml.node("efaInfo", |xml| xml.number("maximumEfaInterfaces", network.efa));
        }
    });
}
