#!/usr/bin/env python3
"""Computes what `muster demo --evidence DIR` reported again, from the files in DIR alone.

For every story: the nodes, which rank ran where and whether the ranks of a leaf follow each other, the launches and
what became of them; for the whole run: invariants and dollars. Prints a table, compares with DIR/summary.json, which
the demo wrote, and exits with 1 if the two disagree or a story did not end as it should.

Needs Python 3 and nothing else.
"""

import json
import sys
from pathlib import Path

MEMBERS = 8
LEAF = "topology.k8s.aws/network-node-layer-3"
# Folder of each story, its job, and how the launches before the last one should have ended.
STORIES = [
    ("1-one-call", "train-1", []),
    ("2-five-of-eight", "train-2", ["nothing"]),
    ("3-seven-of-eight", "train-3", ["rolledBack"]),
    ("4-given-back", None, None),
]


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def instance_tag(entry, key):
    """The value of a tag that a launch puts on its instances."""
    parameters = entry["parameters"]
    for name, value in parameters.items():
        if value != key or not name.endswith(".Key") or ".Tag." not in name:
            continue
        tag = name[: -len(".Key")]
        if parameters.get(tag.split(".Tag.")[0] + ".ResourceType") == "instance":
            return parameters.get(tag + ".Value", "")
    return ""


def instances(entry):
    return {one for one in entry["resources"] if one.startswith("i-")}


def launches(journal, batch):
    ended = set()
    for entry in journal:
        if entry["operation"] == "TerminateInstances":
            ended |= instances(entry)
    found = []
    for entry in journal:
        if entry["operation"] != "CreateFleet" or entry["replayed"] or instance_tag(entry, "muster.dev/batch") != batch:
            continue
        made = instances(entry)
        gone = len(made & ended)
        asked = int(entry["parameters"]["TargetCapacitySpecification.TotalTargetCapacity"])
        if not made:
            outcome = "nothing"
        elif gone == len(made):
            outcome = "rolledBack"
        elif gone == 0 and len(made) == asked:
            outcome = "won"
        else:
            outcome = "partial"
        override = "LaunchTemplateConfigs.1.Overrides.1."
        found.append({
            "attempt": int(instance_tag(entry, "muster.dev/attempt") or 0),
            "type": entry["parameters"].get(override + "InstanceType", ""),
            "zone": entry["parameters"].get(override + "AvailabilityZone", ""),
            "asked": asked,
            "minimum": int(entry["parameters"].get("OnDemandOptions.MinTargetCapacity", 0)),
            "launched": len(made),
            "terminated": gone,
            "codes": entry["itemCodes"] + ([entry["code"]] if entry["code"] else []),
            "outcome": outcome,
        })
    return found


def contiguous(ranks):
    """Whether no leaf is left and entered again, going by rank."""
    runs = []
    for member in ranks:
        if not runs or runs[-1] != member["leaf"]:
            runs.append(member["leaf"])
    return len(runs) == len(set(runs))


def tell(folder, name, job):
    of = folder / name
    nodes = {node["metadata"]["name"]: node["metadata"].get("labels", {}) for node in read(of / "nodes.json")["items"]}
    ec2 = read(of / "ec2.json")
    live = [one for one in ec2["instances"] if one["state"] in ("pending", "running") and not one["foreign"]]
    story = {
        "story": name, "gang": "", "batch": "", "nodes": sorted(nodes), "ranks": [], "ringOrder": True,
        "runsWhole": False, "fleets": [], "liveInstances": len(live), "placementGroups": len(ec2["placementGroups"]),
    }
    if job is None:
        return story
    gang = next(one for one in read(of / "gangs.json")["items"] if one["spec"]["source"]["identity"] == job)
    batches = read(of / "nodebatches.json")["items"]
    batch = next(one for one in batches if one["spec"].get("gangRef", {}).get("uid") == gang["metadata"]["uid"])
    story["gang"], story["batch"] = gang["metadata"]["name"], batch["metadata"]["uid"]
    # The Bindings that the API server took say where a member was sent; the pod must say the same.
    bound = {}
    for entry in lines(of / "audit.jsonl"):
        reference = entry.get("objectRef", {})
        if entry["verb"] == "create" and reference.get("subresource") == "binding":
            if entry["responseStatus"]["code"] < 300:
                bound[reference["name"]] = entry["requestObject"]["target"]["name"]
    served = 0
    for pod in read(of / "pods.json")["items"]:
        meta = pod["metadata"]
        if meta.get("labels", {}).get("batch.kubernetes.io/job-name") != job:
            continue
        node = pod["spec"].get("nodeName", "")
        labels = nodes.get(node, {})
        right = bound.get(meta["name"]) == node and labels.get("muster.dev/batch") == story["batch"]
        served += right and pod["status"]["phase"] == "Running"
        story["ranks"].append({
            "rank": int(meta["annotations"]["batch.kubernetes.io/job-completion-index"]),
            "pod": meta["name"], "node": node, "leaf": labels.get(LEAF, ""),
        })
    story["ranks"].sort(key=lambda member: member["rank"])
    story["nodes"] = sorted({member["node"] for member in story["ranks"]})
    story["ringOrder"] = contiguous(story["ranks"])
    story["runsWhole"] = {len(story["ranks"]), served, len(story["nodes"])} == {MEMBERS}
    story["fleets"] = launches(lines(of / "journal.jsonl"), story["batch"])
    return story


def bills(folder, stories):
    tags = {one["instanceId"]: one["tags"] for one in read(folder / "ec2.json")["instances"]}
    found = {}
    for instance in read(folder / "bill.json")["instances"]:
        mine = tags.get(instance["instanceId"], {})
        batch, attempt = mine.get("muster.dev/batch", ""), mine.get("muster.dev/attempt", "")
        story = next((one for one in stories if one["batch"] == batch and batch), None)
        served = story is not None and story["runsWhole"] and any(
            fleet["outcome"] == "won" and str(fleet["attempt"]) == attempt for fleet in story["fleets"])
        bill = found.setdefault(batch, {
            "batch": batch, "gang": story["gang"] if story else "", "billedMicroUsd": 0, "partialMicroUsd": 0,
            "partialHeldMicroUsd": 0, "partialInstances": 0})
        bill["billedMicroUsd"] += instance["amount"]["microUsd"]
        if not served:
            bill["partialMicroUsd"] += instance["amount"]["microUsd"]
            bill["partialHeldMicroUsd"] += instance["amount"]["heldMicroUsd"]
            bill["partialInstances"] += 1
    order = [story["batch"] for story in stories]
    return sorted(found.values(), key=lambda bill: order.index(bill["batch"]) if bill["batch"] in order else len(order))


def wrong(story, expected):
    """What is not as the story should end."""
    if expected is None:
        left = [len(story["nodes"]), story["liveInstances"], story["placementGroups"]]
        return [] if left == [0, 0, 0] else [f"nodes, instances and groups left: {left}"]
    found = []
    outcomes = [fleet["outcome"] for fleet in story["fleets"]]
    if outcomes != expected + ["won"]:
        found.append(f"launches ended as {outcomes}, not {expected + ['won']}")
    if any(fleet["minimum"] != fleet["asked"] for fleet in story["fleets"]):
        found.append("a launch would have taken fewer than all")
    if not story["runsWhole"]:
        found.append("not all members run where they were bound, on nodes provisioned for them")
    if not story["ringOrder"]:
        found.append("the ranks of a leaf do not follow each other")
    return found


def differences(reported, computed, path=""):
    if isinstance(reported, dict) and isinstance(computed, dict):
        for key in sorted(reported.keys() | computed.keys()):
            yield from differences(reported.get(key), computed.get(key), f"{path}.{key}")
    elif isinstance(reported, list) and isinstance(computed, list) and len(reported) == len(computed):
        for index, (one, other) in enumerate(zip(reported, computed)):
            yield from differences(one, other, f"{path}[{index}]")
    elif reported != computed:
        yield f"{path.lstrip('.')}: reported {reported!r}, computed {computed!r}"


def dollars(micro):
    return f"${micro / 1_000_000:.2f}"


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: recompute-evidence.py DIR, a folder that `muster demo --evidence DIR` wrote")
    folder = Path(sys.argv[1])
    stories = [tell(folder, name, job) for name, job, _ in STORIES]
    invariants = read(folder / "invariants.json")
    computed_bills = bills(folder, stories)
    total = lambda key: sum(bill[key] for bill in computed_bills)
    computed = {
        "stories": stories,
        "invariantsHeld": sum(one["holds"] for one in invariants),
        "invariantsBroken": [
            f"invariant {one['number']}, {one['name']}: {one['detail']}" for one in invariants if not one["holds"]],
        "bills": computed_bills,
        # The sum of the instances and not the total that the simulator printed.
        "billedMicroUsd": total("billedMicroUsd"),
        "partialMicroUsd": total("partialMicroUsd"),
        "partialHeldMicroUsd": total("partialHeldMicroUsd"),
    }
    problems = list(computed["invariantsBroken"])
    row = "{:<18} {:>5} {:>6} {:>7}  {}".format
    print(row("story", "nodes", "leaves", "in ring", "launches"))
    for story, (name, _, expected) in zip(stories, STORIES):
        problems += [f"{name}: {what}" for what in wrong(story, expected)]
        fleets = "; ".join(
            f"{fleet['launched']} of {fleet['asked']} in {fleet['zone']}: {fleet['outcome']}" for fleet in story["fleets"])
        ring = "" if expected is None else "yes" if story["ringOrder"] else "NO"
        leaves = len({member["leaf"] for member in story["ranks"]})
        print(row(name, len(story["nodes"]), leaves, ring, fleets))
    for bill in computed_bills:
        print(f"{bill['gang'] or 'of no story'}: billed {dollars(bill['billedMicroUsd'])}, "
              f"partial {dollars(bill['partialMicroUsd'])}")
    print(f"total: billed {dollars(computed['billedMicroUsd'])}, partial {dollars(computed['partialMicroUsd'])}, "
          f"{computed['invariantsHeld']} of {len(invariants)} invariants hold")
    if computed["partialMicroUsd"]:
        problems.append("dollars were billed for instances of no whole gang")
    problems += differences(read(folder / "summary.json"), computed)
    for problem in problems:
        print(f"DISAGREES  {problem}")
    if not problems:
        print("agrees with summary.json")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
