#!/usr/bin/env python3
"""Holds a journal of the EC2 simulator, or of `make test-aws`, against botocore's service models.

    hack/botocore-check.py JOURNAL...      JSON lines, a JSON list, or the simulator's URL

Every request has to be one that the model describes: known members, their types, the required ones; every answer one
that the model's parser reads without anything left over. Bodies are in the journal where the scenario has
`recordBodies: true`. Ends with 1 if anything does not fit, with 3 if botocore is not installed or too old.
"""

import json
import pathlib
import sys
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ElementTree

try:
    import botocore.session
    from botocore.validate import ParamValidator
except ImportError:
    print("botocore-check: botocore is not installed; nothing was checked", file=sys.stderr)
    sys.exit(3)

# Older models lack members and values that the service has.
OLDEST = (1, 44, 5)
if tuple(int(part) for part in botocore.__version__.split(".")[:3]) < OLDEST:
    wanted = ".".join(str(part) for part in OLDEST)
    print(f"botocore-check: botocore {botocore.__version__} is older than {wanted}; nothing was checked", file=sys.stderr)
    sys.exit(3)

SESSION = botocore.session.get_session()
MODELS = {name: SESSION.get_service_model(name) for name in ("ec2", "sqs", "sts", "iam", "eks", "ssm", "pricing", "service-quotas")}
NUMBERS = {"integer": int, "long": int, "float": float, "double": float}


class Findings(list):
    def add(self, entry, text):
        self.append(f"entry {entry['number']} {entry['operation']}: {text}")


def query_name(name, shape, service):
    """The name of a member in a form."""
    serial = shape.serialization
    if service == "ec2":
        given = serial.get("queryName") or serial.get("name", name)
        return given if "queryName" in serial else given[:1].upper() + given[1:]
    return serial.get("name", name)


def scalar(shape, value, where, say):
    kind = shape.type_name
    if kind in NUMBERS:
        try:
            return NUMBERS[kind](value)
        except ValueError:
            say(f"{where}: {value!r} is no {kind}")
            return 0
    if kind == "boolean":
        if value not in ("true", "false"):
            say(f"{where}: {value!r} is no boolean")
        return value == "true"
    # There are always instance types that are newer than the model.
    if kind == "string" and getattr(shape, "enum", None) and value not in shape.enum and shape.name != "InstanceType":
        say(f"{where}: {value!r} is none of {', '.join(shape.enum)}")
    return value


def from_form(shape, tree, where, service, say):
    """Nested form parameters as the structure that a caller would have given."""
    kind = shape.type_name
    if kind == "structure":
        if not isinstance(tree, dict):
            say(f"{where}: a structure is meant")
            return {}
        known = {query_name(name, member, service): (name, member) for name, member in shape.members.items()}
        result = {}
        for key, below in tree.items():
            if key not in known:
                say(f"{where}.{key}: no such member")
                continue
            name, member = known[key]
            result[name] = from_form(member, below, f"{where}.{key}", service, say)
        return result
    if kind == "list":
        if not isinstance(tree, dict) or not all(key.isdigit() for key in tree):
            say(f"{where}: a list is meant")
            return []
        indices = sorted(map(int, tree))
        if indices != list(range(1, len(indices) + 1)):
            say(f"{where}: the indices {indices} do not count from 1")
        return [from_form(shape.member, tree[str(n)], f"{where}.{n}", service, say) for n in indices]
    if isinstance(tree, dict):
        say(f"{where}: a {kind} is meant")
        return ""
    return scalar(shape, tree, where, say)


def nest(parameters):
    tree = {}
    for name, value in parameters.items():
        at = tree
        *path, last = name.split(".")
        for part in path:
            at = at.setdefault(part, {})
            if not isinstance(at, dict):
                return None
        at[last] = value
    return tree


def tag(element):
    return element.tag.rsplit("}", 1)[-1]


def check_xml(shape, element, where, say, query=False):
    """An element of an answer: no child that the model does not know, and texts of the right kind."""
    kind = shape.type_name
    children = list(element)
    if kind == "structure":
        known = {member.serialization.get("name", name): member for name, member in shape.members.items()}
        seen = set()
        for child in children:
            name = tag(child)
            member = known.get(name)
            if member is None:
                say(f"{where}.{name}: no such element")
                continue
            flat = member.serialization.get("flattened")
            if name in seen and not flat:
                say(f"{where}.{name}: given twice")
            seen.add(name)
            check_xml(member, child, f"{where}.{name}", say, query)
        for name in shape.required_members:
            if shape.members[name].serialization.get("name", name) not in seen:
                say(f"{where}: {name} is required")
        if (element.text or "").strip():
            say(f"{where}: text in a structure")
    elif kind == "list":
        item = shape.member.serialization.get("name", "member" if query else "item")
        for child in children:
            if tag(child) != item:
                say(f"{where}.{tag(child)}: the items are called {item}")
            check_xml(shape.member, child, f"{where}[]", say, query)
    elif children:
        say(f"{where}: a {kind} is meant")
    else:
        scalar(shape, element.text or "", where, say)


def check_json(shape, value, where, say):
    kind = shape.type_name
    if kind == "structure":
        if not isinstance(value, dict):
            return say(f"{where}: a structure is meant")
        known = {member.serialization.get("name", name): member for name, member in shape.members.items()}
        for key, below in value.items():
            if key not in known:
                say(f"{where}.{key}: no such member")
            else:
                check_json(known[key], below, f"{where}.{key}", say)
        for name in shape.required_members:
            if shape.members[name].serialization.get("name", name) not in value:
                say(f"{where}: {name} is required")
    elif kind == "list":
        if not isinstance(value, list):
            return say(f"{where}: a list is meant")
        for item in value:
            check_json(shape.member, item, f"{where}[]", say)
    elif kind == "map":
        for item in value.values():
            check_json(shape.value, item, f"{where}{{}}", say)
    elif kind in NUMBERS:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            say(f"{where}: {value!r} is no {kind}")
    elif kind == "boolean":
        if not isinstance(value, bool):
            say(f"{where}: {value!r} is no boolean")
    elif kind == "string":
        if not isinstance(value, str):
            say(f"{where}: {value!r} is no string")
    return None


def check_input(entry, service, operation, findings):
    say = lambda text: findings.add(entry, f"request: {text}")
    shape = operation.input_shape
    if service in ("sqs", "ssm", "pricing", "service-quotas"):
        given = json.loads(entry["request"]) if entry.get("request") else None
        if given is None:
            return
        check_json(shape, given, "", say)
    else:
        tree = nest(entry["parameters"])
        if tree is None:
            return say("a parameter is both a value and a structure")
        if shape is None:
            given = {}
            if tree:
                say(f"unknown parameters {sorted(tree)}")
        else:
            given = from_form(shape, tree, "", service, say)
    if shape is not None:
        report = ParamValidator().validate(given, shape)
        if report.has_errors():
            say(report.generate_report())
    return None


def check_output(entry, service, operation, findings):
    say = lambda text: findings.add(entry, f"answer: {text}")
    text, status = entry.get("response"), entry["status"]
    if text is None:
        return False
    if service in ("sqs", "eks", "ssm", "pricing", "service-quotas"):
        body = json.loads(text)
        if status == 200:
            check_json(operation.output_shape, body, "", say) if operation.output_shape else None
        elif "message" not in body:
            say("an error without a message")
        return True
    root = ElementTree.fromstring(text)
    if status != 200:
        codes = [e for e in root.iter() if tag(e) == "Code" and e.text]
        ids = [e for e in root.iter() if tag(e) in ("RequestID", "RequestId") and e.text]
        if len(codes) != 1 or len(ids) != 1:
            say("an error has one Code and one request id")
        return True
    if tag(root) != f"{entry['operation']}Response":
        say(f"the root is called {tag(root)}")
    shape = operation.output_shape
    if service == "ec2":
        ids = [e for e in root if tag(e) == "requestId"]
        if len(ids) != 1:
            say("one requestId is meant")
        for e in ids:
            root.remove(e)
        if shape is None:
            # Operations without output answer `return` alone.
            if [tag(e) for e in root] != ["return"]:
                say("only return is meant")
        else:
            if shape.members.get("Return") is None:
                for e in [e for e in root if tag(e) == "return"]:
                    root.remove(e)
            check_xml(shape, root, "", say)
    else:
        wrapped = [e for e in root if tag(e) == f"{entry['operation']}Result"]
        if len(wrapped) != 1:
            say("one Result is meant")
        else:
            check_xml(shape, wrapped[0], "", say, query=True)
    parsed = botocore.parsers.create_parser(MODELS[service].metadata["protocol"]).parse(
        {"status_code": status, "headers": {}, "body": text.encode()}, shape)
    if "ResponseMetadata" not in parsed:
        say("botocore's parser finds no metadata")
    return True


def complete(entry):
    """A client's journal has bodies alone: parameters and error code are in them. Journals spell services as ARNs do."""
    if entry["service"] == "servicequotas":
        entry["service"] = "service-quotas"
    if "parameters" not in entry and entry["service"] == "ec2":
        given = urllib.parse.parse_qsl(entry["request"], keep_blank_values=True, strict_parsing=True)
        entry["parameters"] = {name: value for name, value in given if name not in ("Action", "Version")}
    return {"code": None, **entry}


def entries(source):
    if source.startswith("http"):
        text = urllib.request.urlopen(f"{source.rstrip('/')}/_sim/journal").read().decode()
    else:
        text = pathlib.Path(source).read_text()
    text = text.strip()
    found = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]
    return [complete(entry) for entry in found]


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if len(sys.argv) > 1 else 2
    findings, requests, answers, operations = Findings(), 0, 0, set()
    for source in sys.argv[1:]:
        for entry in entries(source):
            service, name = entry["service"], entry["operation"]
            if entry["code"] in ("InvalidAction", "UnknownOperationException"):
                continue
            if name not in MODELS[service].operation_names:
                findings.add(entry, f"{service} has no such operation")
                continue
            operation = MODELS[service].operation_model(name)
            # What was refused on purpose may be refused for its shape.
            if entry["status"] < 400:
                check_input(entry, service, operation, findings)
                requests += 1
            answers += check_output(entry, service, operation, findings)
            operations.add(name)
    for finding in sorted(set(findings)):
        print(finding)
    print(f"botocore {botocore.__version__}: {requests} requests and {answers} answers of {len(operations)} operations: {len(set(findings))} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    import botocore.parsers
    sys.exit(main())
