#!/usr/bin/env python3
"""cloudformation/muster.yaml without an account: its policy, its rules, and a deployment in moto.

Needs cfn-lint, moto and boto3 (`make test-cloudformation`). What moto does not know stands in SKIPPED: it is checked by
cfn-lint's schemas alone, and a resource that is skipped and not listed fails.
"""
import json
import os
import pathlib
import subprocess
import sys
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEMPLATE = ROOT / "cloudformation/muster.yaml"

CLUSTER, UID, ACCOUNT, REGION = "training", "01234567-89ab-cdef-0123-456789abcdef", "123456789012", "us-east-1"

# Kinds that moto does not make.
SKIPPED = {"AWS::EKS::AccessEntry", "AWS::EKS::PodIdentityAssociation", "AWS::SQS::QueuePolicy"}

# The samples of AWS's documentation: spot-instance-termination-notices, rebalance-recommendations,
# monitoring-instance-state-changes, monitor-interruptible-cr, capacity-blocks-monitor (EC2 user guide; the last one with
# the envelope that every event on a bus has, `detail-type`), and cloudwatch-events-health (Health user guide).
# Each with the rule that must match it; None: no rule.
ENVELOPE = {"version": "0", "id": "12345678-1234-1234-1234-123456789012", "account": ACCOUNT, "region": "us-east-2"}
SAMPLES = [
    ("SpotInterruptionRule", "aws.ec2", "EC2 Spot Instance Interruption Warning",
     {"instance-id": "i-1234567890abcdef0", "instance-action": "hibernate"}),
    ("RebalanceRule", "aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": "i-1234567890abcdef0"}),
    ("StateChangeRule", "aws.ec2", "EC2 Instance State-change Notification",
     {"instance-id": "i-abcd1111", "state": "terminated"}),
    (None, "aws.ec2", "EC2 Instance State-change Notification", {"instance-id": "i-abcd1111", "state": "pending"}),
    ("ReservationInterruptionRule", "aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning",
     {"instance-id": "i-1", "instance-action": "terminate", "instance-termination-time": "2026-11-21T08:00:00Z",
      "azId": "use1-az1"}),
    (None, "aws.ec2", "EC2 Interruptible Capacity Reservation Allocation Reclamation Completed", {}),
    ("CapacityBlockExpirationRule", "aws.ec2", "Capacity Block Expiration Warning",
     {"capacity-reservation-id": "cr-1", "end-date": "2026-11-21T08:00:00Z"}),
    (None, "aws.ec2", "Capacity Block Delivered", {"capacity-reservation-id": "cr-1", "end-date": "2026-11-21"}),
    ("HealthRule", "aws.health", "AWS Health Event",
     {"eventArn": "arn:aws:health:us-west-2::event/EC2/AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED/x",
      "service": "EC2", "eventTypeCode": "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED",
      "eventTypeCategory": "scheduledChange", "affectedEntities": [{"entityValue": "i-abcd1111"}]}),
    (None, "aws.health", "AWS Health Event", {"service": "EC2", "eventTypeCategory": "issue"}),
    (None, "aws.health", "AWS Health Event", {"service": "LAMBDA", "eventTypeCategory": "scheduledChange"}),
    (None, "custom.app", "EC2 Spot Instance Interruption Warning", {"instance-id": "i-1"}),
]


def fail(message):
    sys.exit(f"cloudformation-test: {message}")


def matches(pattern, event):
    """EventBridge's matching as far as the template uses it: objects by field, lists of values."""
    for key, wanted in pattern.items():
        if key not in event:
            return False
        if isinstance(wanted, dict):
            if not isinstance(event[key], dict) or not matches(wanted, event[key]):
                return False
        else:
            plain = all(isinstance(value, str) for value in wanted)
            assert plain, f"{wanted}: this matcher knows plain values only"
            values = event[key] if isinstance(event[key], list) else [event[key]]
            if not set(values) & set(wanted):
                return False
    return True


def rules(patterns):
    """Every sample is matched by its rule and by no other, and every rule has a sample."""
    for wanted, source, title, detail in SAMPLES:
        event = {**ENVELOPE, "source": source, "detail-type": title, "detail": detail}
        found = [name for name, pattern in patterns.items() if matches(pattern, event)]
        if found != ([wanted] if wanted else []):
            fail(f"{title} {detail}: matched by {found}, not by {wanted}")
    untried = set(patterns) - {wanted for wanted, *_ in SAMPLES}
    if untried:
        fail(f"no sample for {sorted(untried)}")


def rendered():
    """What `muster iam` writes, where the binary is given; else the same words put in here."""
    words = {"NODE-ROLE": f"{CLUSTER}-muster-node", "ACCOUNT": ACCOUNT, "CLUSTER": CLUSTER, "REGION": REGION,
             "QUEUE": f"{CLUSTER}-muster", "UID": UID}
    text = (ROOT / "manifests/iam/policy.json").read_text()
    for word, value in words.items():
        text = text.replace(word, value)
    policy = json.loads(text)
    muster = os.environ.get("MUSTER")
    if muster:
        command = [muster, "iam", "--cluster-name", CLUSTER, "--cluster-uid", UID, "--account", ACCOUNT, "--region", REGION]
        reported = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        if reported != policy:
            fail("muster iam renders another policy than manifests/iam/policy.json with its words filled in")
    return policy


def written():
    """What moto does not make, or does not hold names against: read in the template itself."""
    from cfnlint.decode import cfn_yaml

    template = cfn_yaml.load(str(TEMPLATE))
    resources, parameters = template["Resources"], template["Parameters"]
    rules = {name for name, resource in resources.items() if resource["Type"] == "AWS::Events::Rule"}
    allow = resources["InterruptionQueuePolicy"]["Properties"]["PolicyDocument"]["Statement"][0]
    sources = {source["Fn::GetAtt"][0] for source in allow["Condition"]["ArnEquals"]["aws:SourceArn"]}
    if allow["Action"] != "sqs:SendMessage" or sources != rules:
        fail(f"the queue takes messages of {sorted(sources)}, and the rules are {sorted(rules)}")
    longest = parameters["ClusterName"]["MaxLength"] + len("-muster-node")
    if longest > 64:
        fail(f"the name of the nodes' role may have {longest} characters, and IAM takes 64")
    for name, resource in resources.items():
        for key in ("RoleName", "ManagedPolicyName", "InstanceProfileName"):
            text = resource["Properties"].get(key)
            if text and not text["Fn::Sub"].endswith("${NameSuffix}"):
                fail(f"{name}: {key} is global, and two Regions would both want {text}")


def apart():
    """A second stack, with every name of its own and images of one's own."""
    import boto3
    from moto import mock_aws

    suffix = "-usw2"
    given = {"ClusterName": CLUSTER, "ClusterUid": UID, "NameSuffix": suffix, "ImageParameters": "/images/*"}
    with mock_aws(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        formation, iam = (boto3.client(service, region_name=REGION) for service in ["cloudformation", "iam"])
        formation.create_stack(
            StackName="apart", TemplateBody=TEMPLATE.read_text(), Capabilities=["CAPABILITY_NAMED_IAM"],
            Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in given.items()])
        role = f"{CLUSTER}-muster{suffix}"
        attached = {policy["PolicyName"]: policy["PolicyArn"]
                    for policy in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]}
        if set(attached) != {f"{CLUSTER}-muster{suffix}", f"{CLUSTER}-muster-images{suffix}"}:
            fail(f"attached to {role}: {sorted(attached)}")
        read = lambda name: iam.get_policy_version(PolicyArn=attached[name], VersionId="v1")["PolicyVersion"]["Document"]
        images = read(f"{CLUSTER}-muster-images{suffix}")["Statement"][0]
        if images["Resource"] != f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/images/*":
            fail(f"images of one's own are read from {images['Resource']}")
        passed = next(s for s in read(role)["Statement"] if s["Sid"] == "PassNodeRole")["Resource"]
        node = iam.get_instance_profile(InstanceProfileName=f"{CLUSTER}-muster-node{suffix}")["InstanceProfile"]["Roles"][0]
        if passed != node["Arn"]:
            fail(f"{passed} may be passed, and {node['Arn']} is what nodes have")


def deployed():
    """Deploys in moto, and reads everything back."""
    import boto3
    from moto import mock_aws

    parameters = {"ClusterName": CLUSTER, "ClusterUid": UID}
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]:
        os.environ[name] = "none"
    os.environ["MOTO_IAM_LOAD_MANAGED_POLICIES"] = "true"
    with mock_aws():
        client = lambda service: boto3.client(service, region_name=REGION)
        formation, iam, events, sqs = map(client, ["cloudformation", "iam", "events", "sqs"])
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            formation.create_stack(
                StackName="muster", TemplateBody=TEMPLATE.read_text(), Capabilities=["CAPABILITY_NAMED_IAM"],
                Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()])
        skipped = {word for reported in heard for word in str(reported.message).split() if word.startswith("AWS::")}
        stack = formation.describe_stacks(StackName="muster")["Stacks"][0]
        if stack["StackStatus"] != "CREATE_COMPLETE":
            fail(f"the stack is {stack['StackStatus']}")
        if skipped != SKIPPED:
            fail(f"moto skips {sorted(skipped)}, listed are {sorted(SKIPPED)}")

        arn = f"arn:aws:iam::{ACCOUNT}:policy/{CLUSTER}-muster"
        version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
        document = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]
        if document != rendered():
            fail("the deployed policy is not manifests/iam/policy.json with its words filled in")
        size = len(json.dumps(document, separators=(",", ":")))
        if size > 6144:
            fail(f"the policy has {size} characters; a managed policy may have 6,144")
        attached = iam.list_attached_role_policies(RoleName=f"{CLUSTER}-muster")["AttachedPolicies"]
        if [policy["PolicyArn"] for policy in attached] != [arn]:
            fail(f"attached to the controller's role: {attached}")
        trust = iam.get_role(RoleName=f"{CLUSTER}-muster")["Role"]["AssumeRolePolicyDocument"]["Statement"][0]
        if trust["Principal"] != {"Service": "pods.eks.amazonaws.com"}:
            fail(f"the controller's role trusts {trust}")
        profile = iam.get_instance_profile(InstanceProfileName=f"{CLUSTER}-muster-node")["InstanceProfile"]
        if [role["RoleName"] for role in profile["Roles"]] != [f"{CLUSTER}-muster-node"]:
            fail(f"the instance profile holds {profile['Roles']}")
        # The policy passes the role that is in the profile.
        passed = next(s for s in document["Statement"] if s["Sid"] == "PassNodeRole")["Resource"]
        if passed != profile["Roles"][0]["Arn"]:
            fail(f"{passed} may be passed, and {profile['Roles'][0]['Arn']} is what nodes have")

        url = sqs.get_queue_url(QueueName=f"{CLUSTER}-muster")["QueueUrl"]
        queue = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        if queue["MessageRetentionPeriod"] != "300":
            fail(f"the queue is {queue}")
        patterns = {}
        for rule in events.list_rules()["Rules"]:
            targets = [t["Arn"] for t in events.list_targets_by_rule(Rule=rule["Name"])["Targets"]]
            if targets != [queue["QueueArn"]]:
                fail(f"{rule['Name']} sends to {targets}")
            # CloudFormation names a rule STACK-LOGICALID-RANDOM.
            patterns[rule["Name"].split("-")[1]] = json.loads(rule["EventPattern"])
        outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
        if outputs["InterruptionQueueName"] != f"{CLUSTER}-muster" or outputs["InstanceProfile"] != f"{CLUSTER}-muster-node":
            fail(f"the outputs are {outputs}")
    return size, patterns


def main():
    subprocess.run([sys.executable, str(ROOT / "hack/cloudformation.py"), "--check"], check=True)
    lint = subprocess.run([str(pathlib.Path(sys.executable).parent / "cfn-lint"), str(TEMPLATE)], capture_output=True, text=True)
    if lint.returncode or lint.stdout or lint.stderr:
        fail(f"cfn-lint says:\n{lint.stdout}{lint.stderr}")
    written()
    size, patterns = deployed()
    apart()
    rules(patterns)
    print(f"cloudformation-test: cfn-lint is silent; deployed in moto but {', '.join(sorted(SKIPPED))}; "
          f"policy of {size} characters; {len(patterns)} rules, {len(SAMPLES)} events")


if __name__ == "__main__":
    main()
