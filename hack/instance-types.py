#!/usr/bin/env python3
"""Cuts the simulator's instance types out of public data.

Source: the data files of the PyPI package `moto` (Apache-2.0), which hold what DescribeInstanceTypes and
DescribeInstanceTypeOfferings answered for every type. This script downloads the package through pip, takes the types
and Regions named below, and writes crates/ec2-sim/src/fixtures/instance-types.json. Run it again to follow newer data:

    hack/instance-types.py [--wheel moto-5.2.5-py3-none-any.whl]
"""

import argparse
import gzip
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

VERSION = "5.2.5"
OUT = pathlib.Path(__file__).parent.parent / "crates/ec2-sim/src/fixtures/instance-types.json"
REGIONS = ["us-east-1", "us-east-2", "us-west-2", "eu-west-1", "eu-central-1", "ap-northeast-1"]

# Micro-dollars per hour, us-east-1, Linux on demand, list prices of 2026-07-20; none where there is no list price.
TYPES = {
    "t3.large": 83_200,
    "m5.2xlarge": 384_000,
    "m5.8xlarge": 1_536_000,
    "m7i-flex.8xlarge": 1_532_160,
    "m7i.8xlarge": 1_612_800,
    "m7i.24xlarge": 4_838_400,
    "m7g.16xlarge": 2_611_200,
    "c6i.large": 85_000,
    "c7i.8xlarge": 1_428_000,
    "c7i.48xlarge": 8_568_000,
    "c7g.16xlarge": 2_320_000,
    "r7i.8xlarge": 2_116_800,
    "hpc6a.48xlarge": 2_880_000,
    "hpc7a.96xlarge": 7_200_000,
    "hpc7g.16xlarge": 1_683_200,
    "g5.xlarge": 1_006_000,
    "g5.12xlarge": 5_672_000,
    "g5.48xlarge": 16_288_000,
    "g6.xlarge": 804_800,
    "g6.12xlarge": 4_601_600,
    "g6.48xlarge": 13_350_400,
    "g6e.12xlarge": 10_492_640,
    "g6e.24xlarge": 15_065_590,
    "g6e.48xlarge": 30_131_190,
    "g7e.48xlarge": 33_144_000,
    "p3dn.24xlarge": 31_212_000,
    "p4d.24xlarge": 21_957_642,
    "p4de.24xlarge": 27_447_052,
    "p5.4xlarge": 6_880_000,
    "p5.48xlarge": 55_040_000,
    "p5e.48xlarge": None,
    "p5en.48xlarge": 63_296_000,
    "p6-b200.48xlarge": 113_932_800,
    "p6-b300.48xlarge": 142_416_000,
    "trn1.32xlarge": 21_500_000,
    "trn1n.32xlarge": 24_780_000,
    "trn2.48xlarge": None,
    "trn2u.48xlarge": None,
    "inf2.48xlarge": 12_981_270,
}

# Layers that DescribeInstanceTopology reports, as its documentation lists the types.
LAYERS = [
    (4, r"p6-b[23]00\.48xlarge"),
    (3, r"(g6e|g7e|hpc6a|hpc6id|hpc7g|hpc7a|hpc8a|p3dn|p4d|p4de|trn1|trn1n|trn2|trn2u)\..*"),
    (3, r"(p5|p5e|p5en)\.48xlarge"),
]

# Not in the data: an UltraServer's instance, from AWS's pages; what they leave open is marked.
BY_HAND = {
    "p6e-gb200.36xlarge": {
        "vcpus": 144, "cores": 144, "threadsPerCore": 1, "memoryMib": 983040, "clockGhz": "3.1", "cpu": "AWS",
        "architectures": ["arm64"], "currentGeneration": True, "bareMetal": False, "hypervisor": "nitro",
        "burstable": False, "usageClasses": ["capacity-block"], "strategies": ["cluster", "partition", "spread"],
        "storage": {"totalGb": 22500, "disks": [{"count": 3, "sizeGb": 7500}]},
        "gpus": [{"name": "B200", "manufacturer": "NVIDIA", "count": 4, "memoryMib": 189440}],
        "network": {
            "performance": "3200 Gigabit", "interfaces": 34, "ipv4PerInterface": 50, "efa": 16,
            # 17 cards are documented; that card 0 is without EFA and each takes two interfaces is assumed.
            "cards": [
                {"count": 1, "performance": "200 Gigabit", "interfaces": 2, "baselineGbps": "200.0",
                 "peakGbps": "200.0", "kinds": ["interface"]},
                {"count": 16, "performance": "200 Gigabit", "interfaces": 2, "baselineGbps": "200.0",
                 "peakGbps": "200.0", "kinds": ["interface", "efa", "efa-only"]},
            ],
        },
        "layers": 3, "ultraserver": True, "microUsdPerHour": None, "source": "by hand",
    },
}


def layers(name):
    return next((count for count, pattern in LAYERS if re.fullmatch(pattern, name)), 0)


def cards(raw):
    """The cards as runs of equal ones."""
    runs = []
    for card in sorted(raw, key=lambda card: card["NetworkCardIndex"]):
        facts = {
            "performance": card["NetworkPerformance"],
            "interfaces": card["MaximumNetworkInterfaces"],
            "baselineGbps": str(float(card["BaselineBandwidthInGbps"])),
            "peakGbps": str(float(card["PeakBandwidthInGbps"])),
            "kinds": card["InterfaceTypes"],
        }
        if runs and {key: value for key, value in runs[-1].items() if key != "count"} == facts:
            runs[-1]["count"] += 1
        else:
            runs.append({"count": 1, **facts})
    return runs


def cut(raw, price):
    name, network, cpu = raw["InstanceType"], raw["NetworkInfo"], raw["VCpuInfo"]
    facts = {
        "vcpus": cpu["DefaultVCpus"],
        "cores": cpu["DefaultCores"],
        "threadsPerCore": cpu["DefaultThreadsPerCore"],
        "memoryMib": raw["MemoryInfo"]["SizeInMiB"],
        "clockGhz": str(raw["ProcessorInfo"].get("SustainedClockSpeedInGhz", "")) or None,
        "cpu": raw["ProcessorInfo"].get("Manufacturer"),
        "architectures": raw["ProcessorInfo"]["SupportedArchitectures"],
        "currentGeneration": raw["CurrentGeneration"],
        "bareMetal": raw["BareMetal"],
        "hypervisor": raw.get("Hypervisor"),
        "burstable": raw["BurstablePerformanceSupported"],
        "usageClasses": raw["SupportedUsageClasses"],
        "strategies": raw["PlacementGroupInfo"]["SupportedStrategies"],
        "storage": None,
        "gpus": [
            {"name": gpu["Name"], "manufacturer": gpu["Manufacturer"], "count": gpu["Count"],
             "memoryMib": gpu["MemoryInfo"]["SizeInMiB"]}
            for gpu in raw.get("GpuInfo", {}).get("Gpus", [])
        ],
        "neurons": [
            {"name": chip["Name"], "count": chip["Count"], "cores": chip["CoreInfo"]["Count"],
             "coreVersion": chip["CoreInfo"]["Version"], "memoryMib": chip["MemoryInfo"]["SizeInMiB"]}
            for chip in raw.get("NeuronInfo", {}).get("NeuronDevices", [])
        ],
        "network": {
            "performance": network["NetworkPerformance"],
            "interfaces": network["MaximumNetworkInterfaces"],
            "ipv4PerInterface": network["Ipv4AddressesPerInterface"],
            "efa": network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
            "cards": cards(network["NetworkCards"]),
        },
        "layers": layers(name),
        "ultraserver": False,
        "microUsdPerHour": price,
        "source": f"moto {VERSION}",
    }
    if raw.get("InstanceStorageInfo"):
        storage = raw["InstanceStorageInfo"]
        facts["storage"] = {
            "totalGb": storage["TotalSizeInGB"],
            "disks": [{"count": disk["Count"], "sizeGb": disk["SizeInGB"]} for disk in storage["Disks"]],
        }
    return facts


def wheel(folder):
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, f"moto=={VERSION}"]
    subprocess.run(command, check=True)
    return next(pathlib.Path(folder).glob("moto-*.whl"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=pathlib.Path, help="the package, if it is on this machine already")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        package = zipfile.ZipFile(arguments.wheel or wheel(folder))
        resources = "moto/ec2/resources"
        stamp = "%d-%02d-%02d" % package.getinfo(f"{resources}/instance_types.json.gz").date_time[:3]
        load = lambda path: json.loads(gzip.decompress(package.read(f"{resources}/{path}")))
        types = load("instance_types.json.gz")
        facts = {name: cut(types[name], price) for name, price in TYPES.items()} | BY_HAND
        offerings = {}
        for region in REGIONS:
            zones = {}
            for item in load(f"instance_type_offerings/availability-zone-id/{region}.json.gz"):
                if item["InstanceType"] in facts:
                    zones.setdefault(item["Location"], []).append(item["InstanceType"])
            offerings[region] = {zone: sorted(names) for zone, names in sorted(zones.items())}
    head = {
        "source": "PyPI package moto, moto/ec2/resources (Apache-2.0); p6e-gb200.36xlarge by hand",
        "version": VERSION,
        "date": stamp,
        "madeBy": "hack/instance-types.py",
    }
    lines = ["{"]
    lines += [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    lines.append(' "types": {')
    lines.append(",\n".join(f"  {json.dumps(name)}: {json.dumps(facts[name])}" for name in sorted(facts)))
    lines.append(' },\n "offerings": {')
    lines.append(",\n".join(
        f"  {json.dumps(region)}: {{\n"
        + ",\n".join(f"   {json.dumps(zone)}: {json.dumps(names)}" for zone, names in zones.items()) + "\n  }"
        for region, zones in offerings.items()))
    lines.append(" }\n}")
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text("\n".join(lines) + "\n")
    print(f"{OUT.name}: {len(facts)} types, {len(REGIONS)} Regions, moto {VERSION} of {stamp}")


if __name__ == "__main__":
    main()
