#!/usr/bin/env python3
"""The simulator behind boto3: a whole life of a batch, of a reservation and of an event.

    hack/boto3-roundtrip.py [--endpoint http://127.0.0.1:4566] [-- COMMAND]

Without an endpoint it starts the simulator alone from this checkout (`COMMAND`, by default cargo's example `serve`).
Afterwards the journal is held against botocore's models. Ends with 3, and one line, where boto3 is not installed.
"""

import argparse
import base64
import json
import pathlib
import subprocess
import sys
import time
import urllib.request

try:
    import boto3
    import botocore.config
    import botocore.exceptions
except ImportError:
    print("boto3-roundtrip: boto3 is not installed; nothing was run", file=sys.stderr)
    sys.exit(3)

HERE = pathlib.Path(__file__).resolve().parent
SERVE = ["cargo", "run", "--quiet", "--package", "muster-ec2-sim", "--example", "serve", "--"]
IMAGE = "resolve:ssm:/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/nvidia/recommended/image_id"
TAGS = {
    "muster.dev/cluster-uid": "c1",
    "muster.dev/batch": "b1",
    "muster.dev/gang-uid": "g1",
    "muster.dev/attempt": "1",
    "kubernetes.io/cluster/demo": "owned",
}
CREDENTIALS = {"region_name": "us-east-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}


def tags(*kinds):
    return [{"ResourceType": kind, "Tags": [{"Key": k, "Value": v} for k, v in TAGS.items()]} for kind in kinds]


def expect(code, call, **parameters):
    try:
        call(**parameters)
    except botocore.exceptions.ClientError as error:
        found = error.response["Error"]["Code"]
        assert found == code, f"{code} was expected, not {found}: {error}"
    else:
        raise AssertionError(f"{code} was expected")


def until(what, found, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = found()
        if result:
            return result
        time.sleep(0.1)
    raise AssertionError(f"waited in vain for {what}")


def batch(ec2, endpoint):
    """Group, template, fleet, reads, terminate, delete."""
    zones = ec2.describe_availability_zones()["AvailabilityZones"]
    subnets = ec2.describe_subnets(MaxResults=5)["Subnets"]
    groups = ec2.describe_security_groups(MaxResults=5)["SecurityGroups"]
    assert len(zones) == 3 and len(subnets) == 3
    types = {t["InstanceType"]: t for page in ec2.get_paginator("describe_instance_types").paginate()
             for t in page["InstanceTypes"]}
    p5 = types["p5.48xlarge"]
    assert p5["NetworkInfo"]["EfaInfo"]["MaximumEfaInterfaces"] == 32 and p5["GpuInfo"]["Gpus"][0]["Count"] == 8
    offers = ec2.describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": ["p5.*"]}])
    assert len(offers["InstanceTypeOfferings"]) == 3
    prices = ec2.describe_spot_price_history(InstanceTypes=["p5.48xlarge"], ProductDescriptions=["Linux/UNIX"])
    assert float(prices["SpotPriceHistory"][0]["SpotPrice"]) > 0

    expect("DryRunOperation", ec2.create_placement_group, GroupName="x", Strategy="cluster", DryRun=True)
    group = ec2.create_placement_group(GroupName="demo-b1", Strategy="cluster",
                                       TagSpecifications=tags("placement-group"))["PlacementGroup"]
    expect("InvalidPlacementGroup.Duplicate", ec2.create_placement_group, GroupName="demo-b1", Strategy="cluster")
    assert ec2.describe_placement_groups(GroupIds=[group["GroupId"]])["PlacementGroups"][0]["State"] == "available"
    template = ec2.create_launch_template(
        LaunchTemplateName="muster-b1", ClientToken="lt-1", TagSpecifications=tags("launch-template"),
        LaunchTemplateData={
            "ImageId": IMAGE,
            "UserData": base64.b64encode(b"hello").decode(),
            "IamInstanceProfile": {"Name": "nodes"},
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
            "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 100, "VolumeType": "gp3"}}],
            "NetworkInterfaces": [
                {"DeviceIndex": 0, "NetworkCardIndex": 0, "InterfaceType": "interface",
                 "Groups": [groups[0]["GroupId"]]},
                {"DeviceIndex": 1, "NetworkCardIndex": 0, "InterfaceType": "efa-only",
                 "Groups": [groups[0]["GroupId"]]},
            ],
            "TagSpecifications": tags("volume", "network-interface"),
        })["LaunchTemplate"]
    versions = ec2.describe_launch_template_versions(
        LaunchTemplateId=template["LaunchTemplateId"], Versions=["1"], ResolveAlias=True)
    image = versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]["ImageId"]
    assert ec2.describe_images(ImageIds=[image])["Images"][0]["ImageId"] == image

    request = {
        "Type": "instant", "ClientToken": "fleet-1",
        "TargetCapacitySpecification": {"TotalTargetCapacity": 4, "DefaultTargetCapacityType": "on-demand"},
        "OnDemandOptions": {"AllocationStrategy": "prioritized", "SingleInstanceType": True,
                            "SingleAvailabilityZone": True, "MinTargetCapacity": 4},
        "LaunchTemplateConfigs": [{
            "LaunchTemplateSpecification": {"LaunchTemplateId": template["LaunchTemplateId"], "Version": "1"},
            "Overrides": [{"InstanceType": "p5.48xlarge", "SubnetId": subnets[0]["SubnetId"], "Priority": 0,
                           "Placement": {"GroupName": "demo-b1"}}],
        }],
        "TagSpecifications": tags("fleet", "instance"),
    }
    fleet = ec2.create_fleet(**request)
    ids = fleet["Instances"][0]["InstanceIds"]
    assert len(ids) == 4 and ec2.create_fleet(**request)["FleetId"] == fleet["FleetId"]
    more = request | {"ClientToken": "fleet-2", "TargetCapacitySpecification": {
        "TotalTargetCapacity": 1000, "DefaultTargetCapacityType": "on-demand"}, "OnDemandOptions": {
            **request["OnDemandOptions"], "MinTargetCapacity": 1000}}
    failed = ec2.create_fleet(**more)
    assert not failed["Instances"] and failed["Errors"][0]["ErrorCode"] == "InsufficientInstanceCapacity"
    assert ec2.describe_fleets(FleetIds=[fleet["FleetId"]])["Fleets"][0]["Instances"][0]["InstanceIds"] == ids
    spot = request | {"ClientToken": "fleet-3", "TargetCapacitySpecification": {
        "TotalTargetCapacity": 2, "DefaultTargetCapacityType": "spot"}, "SpotOptions": {
            "AllocationStrategy": "capacity-optimized", "SingleInstanceType": True, "SingleAvailabilityZone": True,
            "MinTargetCapacity": 2}}
    del spot["OnDemandOptions"]
    spot["LaunchTemplateConfigs"][0]["Overrides"][0].pop("Placement")
    spot_fleet = ec2.create_fleet(**spot)
    assert spot_fleet["Instances"][0]["Lifecycle"] == "spot"

    ours = [{"Name": "tag:muster.dev/batch", "Values": ["b1"]}]
    advance(endpoint, 120)
    pages = ec2.get_paginator("describe_instances").paginate(Filters=ours, PaginationConfig={"PageSize": 5})
    found = [i for page in pages for r in page["Reservations"] for i in r["Instances"]]
    assert len(found) == 6 and all(i["State"]["Name"] == "running" for i in found), found
    nodes = ec2.describe_instance_topology(GroupNames=["demo-b1"], MaxResults=100)["Instances"]
    assert len(nodes) == 4 and all(len(n["NetworkNodes"]) == 3 for n in nodes)
    assert len(ec2.describe_instance_status(InstanceIds=ids)["InstanceStatuses"]) == 4
    assert len(ec2.describe_volumes(Filters=ours)["Volumes"]) == 6
    ec2.create_tags(Resources=ids, Tags=[{"Key": "seen", "Value": "yes"}])

    expect("InvalidInstanceID.NotFound", ec2.terminate_instances, InstanceIds=[*ids, "i-00000000000000000"])
    ec2.terminate_instances(InstanceIds=ids)
    expect("InvalidPlacementGroup.InUse", ec2.delete_placement_group, GroupName="demo-b1")
    gone = ec2.delete_fleets(FleetIds=[spot_fleet["FleetId"]], TerminateInstances=True)
    assert gone["SuccessfulFleetDeletions"][0]["FleetId"] == spot_fleet["FleetId"]
    advance(endpoint, 120)
    ec2.delete_placement_group(GroupName="demo-b1")
    ec2.delete_launch_template(LaunchTemplateId=template["LaunchTemplateId"])
    expect("InvalidLaunchTemplateId.NotFound", ec2.describe_launch_templates,
           LaunchTemplateIds=[template["LaunchTemplateId"]])
    return image, subnets


def reservation(ec2, endpoint, image, subnets):
    """Reserve, launch into it, give it back."""
    made = ec2.create_capacity_reservation(
        InstanceType="p5.48xlarge", InstancePlatform="Linux/UNIX", AvailabilityZone=subnets[0]["AvailabilityZone"],
        InstanceCount=2, InstanceMatchCriteria="targeted", EndDateType="unlimited", ClientToken="cr-1",
        TagSpecifications=tags("capacity-reservation"))["CapacityReservation"]
    name = made["CapacityReservationId"]
    run = ec2.run_instances(
        MinCount=2, MaxCount=2, ClientToken="run-1", ImageId=image, InstanceType="p5.48xlarge",
        SubnetId=subnets[0]["SubnetId"], TagSpecifications=tags("instance", "volume", "network-interface"),
        CapacityReservationSpecification={"CapacityReservationTarget": {"CapacityReservationId": name}})
    assert run["Instances"][0]["CapacityReservationId"] == name
    left = ec2.describe_capacity_reservations(CapacityReservationIds=[name])["CapacityReservations"][0]
    assert left["AvailableInstanceCount"] == 0
    assert ec2.describe_capacity_reservation_topology(CapacityReservationIds=[name])["CapacityReservations"]
    ids = [i["InstanceId"] for i in run["Instances"]]
    advance(endpoint, 60)
    return name, ids


def events(sqs, endpoint, ids):
    """Warnings on the queue."""
    url = sqs.get_queue_url(QueueName="muster-interruptions")["QueueUrl"]
    for kind in ("spot", "rebalance", "scheduled-change", "reservation-reclaim"):
        post(endpoint, "/_sim/interrupt", {"kind": kind, "instanceIds": ids, "carriedOut": False})
    seen = set()
    while len(seen) < 4:
        messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=2,
                                       MessageSystemAttributeNames=["All"])["Messages"]
        seen |= {json.loads(m["Body"])["detail-type"] for m in messages}
        entries = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(messages[1:])]
        if entries:
            sqs.delete_message_batch(QueueUrl=url, Entries=entries)
        sqs.delete_message(QueueUrl=url, ReceiptHandle=messages[0]["ReceiptHandle"])
    assert "Messages" not in sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1)


def post(endpoint, path, body):
    request = urllib.request.Request(endpoint + path, json.dumps(body).encode(),
                                     {"content-type": "application/json"}, method="POST")
    return json.load(urllib.request.urlopen(request))


def advance(endpoint, seconds):
    post(endpoint, "/_sim/clock", {"advanceSeconds": seconds})


def run(endpoint):
    once = botocore.config.Config(retries={"total_max_attempts": 1})
    client = lambda service: boto3.client(service, endpoint_url=endpoint, config=once, **CREDENTIALS)
    ec2 = client("ec2")
    assert client("sts").get_caller_identity()["Account"] == "123456789012"
    assert client("eks").describe_cluster(name="demo")["cluster"]["status"] == "ACTIVE"
    assert client("iam").get_instance_profile(InstanceProfileName="nodes")["InstanceProfile"]["Roles"]
    image, subnets = batch(ec2, endpoint)
    name, ids = reservation(ec2, endpoint, image, subnets)
    events(client("sqs"), endpoint, ids)
    ec2.terminate_instances(InstanceIds=ids)
    ec2.cancel_capacity_reservation(CapacityReservationId=name)
    expect("InvalidAction", ec2.describe_regions)
    return subprocess.run([sys.executable, HERE / "botocore-check.py", endpoint], check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoint", help="a simulator that runs, with a fresh world")
    parser.add_argument("command", nargs="*", help="what starts one and prints its URL")
    arguments = parser.parse_args()
    if arguments.endpoint:
        return run(arguments.endpoint)
    server = subprocess.Popen(arguments.command or SERVE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              cwd=HERE.parent)
    try:
        return run(server.stdout.readline().strip())
    finally:
        server.stdin.close()
        server.wait(10)


if __name__ == "__main__":
    sys.exit(main())
