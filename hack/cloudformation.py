#!/usr/bin/env python3
"""Writes the controller's policy into cloudformation/muster.yaml, from manifests/iam/policy.json.

hack/cloudformation.py           write it
hack/cloudformation.py --check   fail if what is written is not current

JSON is YAML: the policy stands there as it is, its words as references. Needs nothing but Python 3.
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEMPLATE = ROOT / "cloudformation/muster.yaml"
POLICY = ROOT / "manifests/iam/policy.json"
MARK = "      PolicyDocument:\n"

# Longer words first: none is a part of another one that comes later.
WORDS = {
    "arn:aws:": "arn:${AWS::Partition}:",
    "NODE-ROLE": "${ClusterName}-muster-node${NameSuffix}",
    "ACCOUNT": "${AWS::AccountId}",
    "CLUSTER": "${ClusterName}",
    "REGION": "${AWS::Region}",
    "QUEUE": "${ClusterName}-muster",
    "UID": "${ClusterUid}",
}


def referring(value):
    """A value with references instead of words."""
    if isinstance(value, dict):
        return {key: referring(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [referring(inner) for inner in value]
    text = value
    for word, reference in WORDS.items():
        text = text.replace(word, reference)
    return value if text == value else {"Fn::Sub": text}


def main():
    before = TEMPLATE.read_text()
    # The last one: queues have policies too.
    head = before[: before.rindex(MARK) + len(MARK)]
    policy = json.dumps(referring(json.loads(POLICY.read_text())), indent=2)
    after = head + "".join(f"        {line}\n" for line in policy.splitlines())
    if "--check" in sys.argv[1:]:
        if before != after:
            sys.exit("cloudformation/muster.yaml: the controller's policy is not that of manifests/iam/policy.json; run hack/cloudformation.py")
        return
    TEMPLATE.write_text(after)


if __name__ == "__main__":
    main()
