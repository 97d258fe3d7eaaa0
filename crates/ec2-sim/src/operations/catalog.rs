//! DescribeInstanceTypes and DescribeInstanceTypeOfferings.

use std::collections::{BTreeMap, BTreeSet};

use crate::fixtures::InstanceType;
use crate::operations::create_fleet::find_type;
use crate::operations::filters::{Filters, page};
use crate::operations::{Call, Reply};
use crate::protocol::error::ApiError;
use crate::protocol::xml::Xml;
use crate::state::World;

pub(super) fn types(_: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let known = ["instance-type", "bare-metal", "hypervisor", "current-generation"];
    let filters = Filters::parse(call.form, &known)?;
    let names = call.form.list("InstanceType");
    for name in &names {
        find_type(name)?;
    }
    let text = |flag: bool| if flag { "true" } else { "false" };
    let found: Vec<&InstanceType> = InstanceType::all()
        .iter()
        .filter(|t| names.is_empty() || names.iter().any(|n| n == t.name))
        .filter(|t| {
            filters.pass(&BTreeMap::new(), |filter| match filter {
                "instance-type" => Some(t.name),
                "bare-metal" => Some("false"),
                "hypervisor" => Some("nitro"),
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
    for pool in world.capacity.pools() {
        let location = match kind {
            "region" => world.scenario.region.as_str(),
            "availability-zone" => pool.zone.as_str(),
            "availability-zone-id" => world.scenario.zone_id(&pool.zone),
            other => return Err(ApiError::value("LocationType", other)),
        };
        found.insert((pool.instance_type.clone(), location.to_owned()));
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
    let mut classes = vec!["on-demand", "spot"];
    if t.capacity_blocks {
        classes.insert(0, "capacity-block");
    }
    xml.text("instanceType", t.name);
    xml.flag("currentGeneration", t.current_generation);
    xml.flag("freeTierEligible", false);
    xml.values("supportedUsageClasses", classes);
    xml.values("supportedRootDeviceTypes", ["ebs"]);
    xml.values("supportedVirtualizationTypes", ["hvm"]);
    xml.flag("bareMetal", false);
    xml.text("hypervisor", "nitro");
    xml.node("processorInfo", |xml| {
        xml.values("supportedArchitectures", ["x86_64"]);
        xml.text("sustainedClockSpeedInGhz", t.clock_ghz);
        xml.text("manufacturer", t.cpu);
    });
    xml.node("vCpuInfo", |xml| {
        xml.number("defaultVCpus", t.vcpus);
        xml.number("defaultCores", t.vcpus / 2);
        xml.number("defaultThreadsPerCore", 2);
    });
    xml.node("memoryInfo", |xml| xml.number("sizeInMiB", t.memory_mib));
    xml.flag("instanceStorageSupported", t.local_storage);
    write_network(xml, t);
    if let Some(gpu) = t.gpu {
        xml.node("gpuInfo", |xml| {
            xml.list("gpus", [gpu], |xml, gpu| {
                xml.text("name", gpu.name);
                xml.text("manufacturer", "NVIDIA");
                xml.number("count", gpu.count);
                xml.node("memoryInfo", |xml| xml.number("sizeInMiB", gpu.memory_mib));
            });
            xml.number("totalGpuMemoryInMiB", gpu.count * gpu.memory_mib);
        });
    }
    xml.node("placementGroupInfo", |xml| {
        xml.values("supportedStrategies", ["cluster", "partition", "spread"]);
    });
    xml.flag("hibernationSupported", false);
    xml.flag("burstablePerformanceSupported", false);
}

fn write_network(xml: &mut Xml, t: &InstanceType) {
    xml.node("networkInfo", |xml| {
        xml.text("networkPerformance", t.network_performance);
        xml.number("maximumNetworkInterfaces", t.max_interfaces);
        xml.number("maximumNetworkCards", t.cards.count);
        xml.number("defaultNetworkCardIndex", 0);
        xml.list("networkCards", 0..t.cards.count, |xml, card| {
            // The first card of p6-b300 is a little slower than the others.
            let first = card == 0 && t.cards.first_without_efa;
            xml.number("networkCardIndex", card);
            xml.text("networkPerformance", t.cards.performance);
            xml.number("maximumNetworkInterfaces", t.cards.interfaces);
            xml.text("baselineBandwidthInGbps", if first { "350.0" } else { t.cards.baseline_gbps });
            xml.text("peakBandwidthInGbps", if first { "350.0" } else { t.cards.peak_gbps });
            let kinds: &[&str] =
                if t.card_takes_efa(card) { &["interface", "efa", "efa-only"] } else { &["interface"] };
            xml.values("interfaceTypeSet", kinds.iter().copied());
        });
        xml.number("ipv4AddressesPerInterface", t.ipv4_per_interface);
        xml.number("ipv6AddressesPerInterface", t.ipv4_per_interface);
        xml.flag("ipv6Supported", true);
        xml.text("enaSupport", "required");
        xml.flag("efaSupported", t.max_efa() > 0);
        if t.max_efa() > 0 {
            xml.node("efaInfo", |xml| xml.number("maximumEfaInterfaces", t.max_efa()));
        }
    });
}
