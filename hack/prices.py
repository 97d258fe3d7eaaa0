#!/usr/bin/env python3
"""Writes the table of list prices that Muster falls back on: on demand, Linux, shared tenancy.

Source: the generated price tables in the Go module of Karpenter's provider for AWS, which hold what AWS's Pricing API
answered for some Regions on a day they name. Prices are facts; no code is taken. This script downloads the module
through Go and writes crates/core/src/offering/prices.txt. Run it again with a newer version to follow newer prices:

    hack/prices.py [--version v1.15.1]
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import zipfile

VERSION = "v1.15.1"
MODULE = "github.com/aws/karpenter-provider-aws"
OUT = pathlib.Path(__file__).parent.parent / "crates/core/src/offering/prices.txt"
# China is priced in another currency: nothing there is a dollar.
FILES = ["zz_generated.pricing_aws.go", "zz_generated.pricing_aws_us_gov.go"]
REGION = re.compile(r'^\t"([a-z]+(?:-[a-z]+)+-\d)": \{$')
PRICE = re.compile(r'"([a-z0-9-]+\.[a-z0-9-]+)": (\d+)\.(\d{6})')
DAY = re.compile(r"^// generated at (\d{4}-\d{2}-\d{2})T")


def archive(version):
    # Only the archive is wanted, whatever Go the module asks for.
    answer = subprocess.run(
        ["go", "mod", "download", "-json", f"{MODULE}@{version}"], stdout=subprocess.PIPE, check=False)
    path = json.loads(answer.stdout).get("Zip")
    if not path:
        sys.exit(f"prices: go mod download gave no archive: {answer.stdout.decode()}")
    return zipfile.ZipFile(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", default=VERSION)
    version = parser.parse_args().version
    lines = [f"# {MODULE} {version}, written by hack/prices.py: type and micro-dollars per hour"]
    with archive(version) as module:
        for name in FILES:
            day, region, prices = None, None, {}
            for line in module.read(f"{MODULE}@{version}/pkg/providers/pricing/{name}").decode().splitlines():
                if found := DAY.match(line):
                    day = found[1]
                if found := REGION.match(line):
                    region = found[1]
                for instance_type, whole, fraction in PRICE.findall(line):
                    prices.setdefault(region, {})[instance_type] = int(whole) * 1_000_000 + int(fraction)
            for region, table in sorted(prices.items()):
                lines.append(f"@{region} {day}")
                lines += [f"{instance_type} {micros}" for instance_type, micros in sorted(table.items()) if micros]
    OUT.write_text("\n".join(lines) + "\n")
    print(f"{OUT}: {len(lines)} lines")


if __name__ == "__main__":
    main()
