//! What a person does to a cluster who reads a remedy, done to the objects of a dump. Nothing of the code under test is used.

use serde_json::{Value, json};

/// The dump after all steps of a remedy; several where a step names alternatives.
pub(super) fn all(objects: &[Value], gang: &Value, change: &Value) -> Vec<Vec<Value>> {
    let steps = change.as_array().unwrap();
    assert!(!steps.is_empty(), "a remedy without anything to do");
    steps
        .iter()
        .fold(vec![objects.to_vec()], |dumps, step| dumps.iter().flat_map(|objects| one(objects, gang, step)).collect())
}

fn one(objects: &[Value], gang: &Value, step: &Value) -> Vec<Vec<Value>> {
    let mut changed = objects.to_vec();
    let kind = step["kind"].as_str().unwrap();
    match kind {
        "untaint" => {
            let taint = step["taint"].as_str().unwrap();
            tolerate(&mut changed, gang, taint);
            let mut other = objects.to_vec();
            for node in named(&mut other, step) {
                taints(node).retain(|entry| written(entry) != taint);
            }
            return vec![changed, other];
        }
        "tolerate" => {
            for taint in step["taints"].as_array().unwrap() {
                tolerate(&mut changed, gang, taint.as_str().unwrap());
            }
        }
        "uncordon" => {
            for node in named(&mut changed, step) {
                node["spec"]["unschedulable"] = false.into();
                taints(node).retain(|taint| taint["key"] != "node.kubernetes.io/unschedulable");
            }
        }
        "makeReady" => named(&mut changed, step).for_each(ready),
        "awaitNodes" => named(&mut changed, step).for_each(ready),
        "freePorts" => end(&mut changed, step, |pod| pod.to_string().contains("hostPort")),
        "endPods" => {
            let resource = step["resource"].as_str().unwrap();
            end(&mut changed, step, |pod| requests(pod, resource) && owner(pod) != Some("DaemonSet"));
        }
        "movePods" => end(&mut changed, step, |pod| pod.to_string().contains("podAntiAffinity")),
        "awaitTermination" => changed.retain(|one| one["metadata"]["deletionTimestamp"].is_null()),
        "awaitGangs" => {
            let gangs = step["gangs"].as_array().unwrap();
            if step["any"] == true {
                return gangs.iter().map(|gang| without(objects, gang)).collect();
            }
            for gang in gangs {
                changed = without(&changed, gang);
            }
        }
        "allowOnDemand" => {
            let spec = &mut pool(&mut changed, step)["spec"]["template"]["spec"];
            for requirement in spec["requirements"].as_array_mut().unwrap() {
                if requirement["key"] == "muster.dev/capacity-type" {
                    requirement["values"].as_array_mut().unwrap().push("on-demand".into());
                }
            }
        }
        "labelPool" => {
            for (key, value) in step["labels"].as_object().unwrap() {
                pool(&mut changed, step)["spec"]["template"]["metadata"]["labels"][key] = value.clone();
            }
        }
        "lowerRequest" => {
            let resource = step["resource"].as_str().unwrap();
            let to = match resource {
                "cpu" => format!("{}m", step["to"]),
                _ => step["to"].to_string(),
            };
            for pod in members(&mut changed, gang) {
                for container in pod["spec"]["containers"].as_array_mut().unwrap() {
                    for kind in ["requests", "limits"] {
                        let amount = container["resources"].get_mut(kind).and_then(|all| all.get_mut(resource));
                        amount.into_iter().for_each(|amount| *amount = to.as_str().into());
                    }
                }
            }
        }
        "labelNodes" => {
            let keys = step["keys"].as_array().unwrap().clone();
            let like = of_kind(&mut changed, "Node").map(|node| node["metadata"]["labels"].clone());
            let like = like.into_iter().find(|labels| keys.iter().all(|key| !labels[key.as_str().unwrap()].is_null()));
            for node in named(&mut changed, step) {
                for key in keys.iter().map(|key| key.as_str().unwrap()) {
                    node["metadata"]["labels"][key] = like.as_ref().unwrap()[key].clone();
                }
            }
        }
        "ownVolumes" => own_volumes(&mut changed, gang, step),
        "addCapacity" => {
            for capacity in step["capacities"].as_array().unwrap() {
                add(&mut changed, gang, capacity);
            }
        }
        "requireLevel" => match step["level"].as_str() {
            Some(level) => annotate(&mut changed, gang, "topology-required", Some(level)),
            None => annotate(&mut changed, gang, "topology-required", None),
        },
        "dropExclusive" => annotate(&mut changed, gang, "exclusive-topology", None),
        "dropBalance" => annotate(&mut changed, gang, "balance-topology", None),
        "dropSlices" => {
            annotate(&mut changed, gang, "slice-size", None);
            annotate(&mut changed, gang, "slice-topology", None);
        }
        "widenSlices" => annotate(&mut changed, gang, "slice-topology", step["level"].as_str()),
        "resizeSlices" => annotate(&mut changed, gang, "slice-size", Some(&step["to"].to_string())),
        "setMinimum" => annotate(&mut changed, gang, "gang-min", Some(&step["members"].to_string())),
        "dropSelector" => {
            for pod in members(&mut changed, gang) {
                remove(&mut pod["spec"], "nodeSelector");
                remove(&mut pod["spec"]["affinity"], "nodeAffinity");
            }
        }
        "dropConstraints" => {
            for constraint in step["constraints"].as_array().unwrap() {
                let field = constraint.as_str().unwrap().split([':', ' ', '.']).next().unwrap();
                for pod in members(&mut changed, gang) {
                    remove(&mut pod["spec"], field);
                    for container in pod["spec"]["containers"].as_array_mut().unwrap() {
                        remove(&mut container["resources"], "claims");
                    }
                }
            }
        }
        "sameTemplate" => {
            let template = members(&mut changed, gang).next().unwrap()["spec"].clone();
            for pod in members(&mut changed, gang) {
                pod["spec"] = template.clone();
            }
        }
        "raiseLimit" => {
            let to = match step["resource"].as_str().unwrap() {
                "cpu" => json!(format!("{}m", step["to"])),
                _ => step["to"].clone(),
            };
            pool(&mut changed, step)["spec"]["limits"][step["resource"].as_str().unwrap()] = to;
        }
        "raiseCeiling" => {
            let cents = step["to"].as_u64().unwrap() / 10_000;
            let amount = json!(format!("{}.{:02}", cents / 100, cents % 100));
            match step["scope"].as_str() {
                // The server writes what its configuration says.
                Some("cluster") => of_kind(&mut changed, "NodePool").for_each(|pool| {
                    pool["status"]["clusterMaxUsdPerHour"] = amount.clone();
                }),
                _ => pool(&mut changed, step)["spec"]["maxUsdPerHour"] = amount,
            }
        }
        "raiseMaxNodes" => pool(&mut changed, step)["spec"]["placement"]["maxNodesPerBatch"] = step["to"].clone(),
        "alignPlacementGroup" => annotate(&mut changed, gang, "placement-group", None),
        "addSubnet" => {
            let zone = "us-east-1a";
            let count = step["addresses"].as_u64().unwrap_or(4_096);
            let class = of_kind(&mut changed, "EC2NodeClass").next().unwrap();
            let subnet = json!({"id": "subnet-new", "zone": zone, "availableAddresses": count});
            class["status"]["subnets"].as_array_mut().unwrap().push(subnet);
        }
        "createNodePool" => changed.extend([class(&step["zone"]), new_pool(&step["instanceType"])]),
        "createMembers" => create(&mut changed, gang, step["members"].as_u64().unwrap()),
        "removeGate" => {
            let gate = &step["gate"];
            for pod in members(&mut changed, gang) {
                pod["spec"]["schedulingGates"].as_array_mut().unwrap().retain(|entry| entry["name"] != *gate);
            }
        }
        "resume" => {
            let (kind, name) = (step["owner"].as_str().unwrap(), &step["name"]);
            for one in of_kind(&mut changed, kind).filter(|one| one["metadata"]["name"] == *name) {
                one["spec"]["suspend"] = false.into();
            }
        }
        other => panic!("no test knows how to do {other}: {step}"),
    }
    vec![changed]
}

/// The dump without a gang.
fn without(objects: &[Value], gang: &Value) -> Vec<Value> {
    let (namespace, name) = gang.as_str().unwrap().split_once('/').unwrap();
    let mut left = objects.to_vec();
    left.retain(|one| {
        one["metadata"]["namespace"] != namespace || !is_of(one, name) && one["metadata"]["name"] != name
    });
    left
}

/// A new claim for each member, of a class that provisions where the pod goes.
fn own_volumes(objects: &mut Vec<Value>, gang: &Value, step: &Value) {
    let mut new = vec![json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "new"},
        "provisioner": "ebs.csi.aws.com", "volumeBindingMode": "WaitForFirstConsumer",
    })];
    let claims = step["claims"].as_array().unwrap().clone();
    for pod in members(objects, gang) {
        let (name, namespace) = (pod["metadata"]["name"].clone(), pod["metadata"]["namespace"].clone());
        for volume in pod["spec"]["volumes"].as_array_mut().unwrap() {
            let claim = &mut volume["persistentVolumeClaim"]["claimName"];
            if claims.contains(claim) {
                let own = format!("{}-{}", claim.as_str().unwrap(), name.as_str().unwrap());
                *claim = own.as_str().into();
                new.push(json!({
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "metadata": {"name": own, "namespace": namespace, "uid": own},
                    "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "new",
                             "resources": {"requests": {"storage": "1Ti"}}},
                    "status": {"phase": "Pending"},
                }));
            }
        }
    }
    objects.extend(new);
}

fn of_kind<'a>(objects: &'a mut [Value], kind: &str) -> impl Iterator<Item = &'a mut Value> {
    let kind = kind.to_owned();
    objects.iter_mut().filter(move |object| object["kind"] == kind.as_str())
}

fn is_of(object: &Value, gang: &str) -> bool {
    object["metadata"]["annotations"]["muster.dev/gang"] == gang
        || object["metadata"]["labels"]["muster.dev/gang"] == gang
}

fn members<'a>(objects: &'a mut [Value], gang: &Value) -> impl Iterator<Item = &'a mut Value> {
    let (namespace, name) = (gang["namespace"].clone(), gang["name"].as_str().unwrap().to_owned());
    of_kind(objects, "Pod").filter(move |pod| pod["metadata"]["namespace"] == namespace && is_of(pod, &name))
}

fn annotate(objects: &mut [Value], gang: &Value, key: &str, value: Option<&str>) {
    let key = format!("muster.dev/{key}");
    for pod in members(objects, gang) {
        match value {
            Some(value) => pod["metadata"]["annotations"][&key] = value.into(),
            None => remove(&mut pod["metadata"]["annotations"], &key),
        }
    }
}

fn remove(object: &mut Value, key: &str) {
    if let Some(object) = object.as_object_mut() {
        object.remove(key);
    }
}

fn named<'a>(objects: &'a mut [Value], step: &Value) -> impl Iterator<Item = &'a mut Value> {
    let names = step["nodes"].clone();
    of_kind(objects, "Node").filter(move |node| names.as_array().unwrap().contains(&node["metadata"]["name"]))
}

fn ready(node: &mut Value) {
    for condition in node["status"]["conditions"].as_array_mut().unwrap() {
        if condition["type"] == "Ready" {
            condition["status"] = "True".into();
        }
    }
    taints(node).retain(|taint| {
        let key = taint["key"].as_str().unwrap();
        !key.starts_with("node.kubernetes.io/not-ready") && !key.starts_with("node.kubernetes.io/unreachable")
    });
}

fn taints(node: &mut Value) -> &mut Vec<Value> {
    if node["spec"]["taints"].is_null() {
        node["spec"]["taints"] = json!([]);
    }
    node["spec"]["taints"].as_array_mut().unwrap()
}

/// `key=value:effect`, as kubectl writes it.
fn written(taint: &Value) -> String {
    let text = |field: &str| taint[field].as_str().unwrap_or_default().to_owned();
    let value = text("value");
    let value = if value.is_empty() { value } else { format!("={value}") };
    format!("{}{value}:{}", text("key"), text("effect"))
}

fn tolerate(objects: &mut [Value], gang: &Value, taint: &str) {
    let (name, effect) = taint.rsplit_once(':').unwrap();
    let (key, value) = name.split_once('=').unwrap_or((name, ""));
    for pod in members(objects, gang) {
        let toleration = json!({"key": key, "operator": "Equal", "value": value, "effect": effect});
        match pod["spec"]["tolerations"].as_array_mut() {
            Some(tolerations) => tolerations.push(toleration),
            None => pod["spec"]["tolerations"] = json!([toleration]),
        }
    }
}

fn owner(pod: &Value) -> Option<&str> {
    pod["metadata"]["ownerReferences"][0]["kind"].as_str()
}

fn requests(pod: &Value, resource: &str) -> bool {
    let containers = pod["spec"]["containers"].as_array().unwrap();
    // A device is asked for by a claim.
    let claims = resource.starts_with("deviceclass.") && !pod["spec"]["resourceClaims"].is_null();
    claims || containers.iter().any(|one| !one["resources"]["requests"][resource].is_null())
}

fn end(objects: &mut Vec<Value>, step: &Value, ends: impl Fn(&Value) -> bool) {
    let nodes = step["nodes"].as_array().unwrap().clone();
    if let Some(pods) = step["pods"].as_array() {
        // Named pods go, and nobody else.
        let named = |one: &Value| {
            let name = |field: &str| one["metadata"][field].as_str().unwrap_or_default().to_owned();
            let name = format!("{}/{}", name("namespace"), name("name"));
            one["kind"] == "Pod" && pods.iter().any(|pod| pod["pod"] == name)
        };
        objects.retain(|one| !named(one));
        return;
    }
    objects.retain(|one| one["kind"] != "Pod" || !nodes.contains(&one["spec"]["nodeName"]) || !ends(one));
}

fn pool<'a>(objects: &'a mut [Value], step: &Value) -> &'a mut Value {
    let name = step["pool"].clone();
    of_kind(objects, "NodePool").find(|pool| pool["metadata"]["name"] == name).unwrap()
}

/// One new node per member, like one that is there, where the capacity is missing.
fn add(objects: &mut Vec<Value>, gang: &Value, capacity: &Value) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"labels": {}}, "spec": {}, "status": {
        "allocatable": {"cpu": "190", "memory": "1900Gi", "nvidia.com/gpu": "16", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    let keys: Vec<String> =
        gang["levels"].as_array().unwrap().iter().map(|level| level["key"].as_str().unwrap().to_owned()).collect();
    let domain = capacity["domain"].as_str().unwrap().to_owned();
    let path: Vec<&str> = domain.split('/').filter(|part| !part.is_empty()).collect();
    // Labels as the nodes beside have them, and what the members select.
    let like = of_kind(objects, "Node").map(|node| node["metadata"]["labels"].clone()).last();
    let mut like = like.unwrap_or(json!({}));
    for (key, value) in members(objects, gang).next().unwrap()["spec"]["nodeSelector"].as_object().into_iter().flatten()
    {
        like[key] = value.clone();
    }
    for number in 0..capacity["members"].as_u64().unwrap() {
        let (mut node, name) = (node.clone(), format!("added-{number}"));
        node["metadata"]["labels"] = like.clone();
        node["metadata"]["name"] = name.as_str().into();
        for (index, key) in keys.iter().enumerate() {
            let value = path.get(index).copied().unwrap_or("added");
            node["metadata"]["labels"][key] = value.into();
        }
        node["metadata"]["labels"]["kubernetes.io/hostname"] = name.as_str().into();
        // Its devices, where members claim some.
        let slice = of_kind(objects, "ResourceSlice").next().cloned();
        objects.extend(slice.map(|mut slice| {
            slice["metadata"]["name"] = format!("{name}-devices").into();
            slice["spec"]["nodeName"] = name.as_str().into();
            slice["spec"]["pool"]["name"] = name.as_str().into();
            slice
        }));
        objects.push(node);
    }
}

fn create(objects: &mut Vec<Value>, gang: &Value, missing: u64) {
    let pattern = members(objects, gang).next().unwrap().clone();
    let there = members(objects, gang).count();
    for number in 0..missing {
        let mut pod = pattern.clone();
        let (name, rank) = (format!("created-{number}"), (there as u64 + number).to_string());
        pod["metadata"]["name"] = name.as_str().into();
        pod["metadata"]["uid"] = name.as_str().into();
        pod["metadata"]["annotations"]["muster.dev/rank"] = rank.into();
        remove(&mut pod["spec"], "nodeName");
        objects.push(pod);
    }
}

fn class(zone: &Value) -> Value {
    let zone = zone.as_str().unwrap_or("us-east-1a");
    json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "EC2NodeClass", "metadata": {"name": "new"},
        "spec": {
            "amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "node",
            "securityGroupSelectorTerms": [{"id": "sg-1"}], "subnetSelectorTerms": [{"id": "subnet-1"}],
        },
        "status": {"subnets": [{"id": "subnet-1", "zone": zone}]},
    })
}

fn new_pool(instance_type: &Value) -> Value {
    let reference = json!({"group": "muster.dev", "kind": "EC2NodeClass", "name": "new"});
    let requirement = json!({"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [instance_type]});
    json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "new"},
        "spec": {"template": {"spec": {"nodeClassRef": reference, "requirements": [requirement]}}},
    })
}
