//! Random dumps as kubectl writes them, and changes applied to them.

use serde_json::{Value, json};

/// A generator of its own, so that a seed always means the same dump.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[usize::try_from(self.roll(list.len() as u64)).unwrap()]
    }
}

const LAYER: &str = "topology.k8s.aws/network-node-layer-";

/// A small dump with everything drawn.
pub(super) fn dump(seed: u64) -> Vec<Value> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678);
    let mut objects = Vec::new();
    let count = 2 + dice.roll(5);
    let bare = dice.one_in(6);
    let mut names = Vec::new();
    for number in 0..count {
        let name = format!("n-{number}");
        objects.push(node(&mut dice, &name, bare));
        names.push(name);
    }
    for number in 0..dice.roll(5) {
        objects.push(filler(&mut dice, number, &names));
    }
    for gang in 0..1 + dice.roll(3) {
        let name = format!("g-{gang}");
        gang_of(&mut dice, &name, &names, &mut objects);
    }
    for number in 0..dice.roll(3) {
        let gpus = 1 + dice.roll(2);
        let mut pod = pod(&mut dice, &format!("single-{number}"), gpus);
        pod["spec"]["schedulerName"] = "muster".into();
        pod["metadata"]["creationTimestamp"] = json!(format!("2026-07-20T09:2{number}:00Z"));
        objects.push(pod);
    }
    objects
}

fn node(dice: &mut Dice, name: &str, bare: bool) -> Value {
    let mut labels = json!({"kubernetes.io/hostname": name});
    if !dice.one_in(12) {
        labels["topology.kubernetes.io/zone"] = json!(dice.pick(&["z-a", "z-a", "z-b"]));
    }
    if !bare && !dice.one_in(9) {
        labels[format!("{LAYER}1")] = json!(dice.pick(&["s-1", "s-1", "s-2"]));
        if !dice.one_in(9) {
            labels[format!("{LAYER}2")] = json!(dice.pick(&["l-1", "l-2", "l-10"]));
        }
    }
    if dice.one_in(3) {
        labels["example.com/kind"] = "big".into();
    }
    let gpus = dice.roll(6);
    let mut node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": format!("uid-{name}"),
            "labels": labels,
            "creationTimestamp": "2026-07-20T08:00:00Z",
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {}}}],
        },
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {
            "allocatable": {
                "cpu": if dice.one_in(4) { "3920m" } else { "16" },
                "memory": "64Gi",
                "pods": if dice.one_in(5) { "3" } else { "110" },
                "nvidia.com/gpu": gpus.to_string(),
            },
            "capacity": {"cpu": "96"},
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-07-20T10:00:00Z"},
            ],
            "nodeInfo": {"kubeletVersion": "v1.37.0"},
        },
    });
    match dice.roll(9) {
        0 => {
            node["spec"]["unschedulable"] = true.into();
            node["spec"]["taints"] = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
        }
        1 => {
            node["status"]["conditions"][1]["status"] = "False".into();
            node["spec"]["taints"] = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
        }
        2 => {
            let effect = *dice.pick(&["NoSchedule", "NoExecute", "PreferNoSchedule"]);
            node["spec"]["taints"] = json!([{"key": "example.com/team", "value": "b", "effect": effect}]);
        }
        _ => {}
    }
    node
}

fn pod(dice: &mut Dice, name: &str, gpus: u64) -> Value {
    let mut spec = json!({
        "containers": [{
            "name": "main",
            "image": "registry.example.com/train:1",
            "resources": {
                "requests": {"cpu": dice.pick(&["500m", "1", "1.5"]), "memory": "1Gi", "nvidia.com/gpu": gpus.to_string()},
                "limits": {"nvidia.com/gpu": gpus.to_string()},
            },
        }],
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        ],
        "restartPolicy": "Never",
    });
    if dice.one_in(4) {
        spec["initContainers"] = json!([
            {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
            {"name": "fetch", "resources": {"requests": {"cpu": "3", "memory": "2Gi"}}},
        ]);
    }
    if dice.one_in(6) {
        spec["overhead"] = json!({"cpu": "250m", "memory": "64Mi"});
    }
    if dice.one_in(5) {
        spec["nodeSelector"] = json!({"example.com/kind": "big"});
    }
    if dice.one_in(4) {
        let list = spec["tolerations"].as_array_mut().unwrap();
        list.push(json!({"key": "example.com/team", "operator": "Equal", "value": "b"}));
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team-a", "uid": format!("uid-{name}"), "creationTimestamp": "2026-07-20T09:00:00Z"},
        "spec": spec,
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    })
}

/// Somebody else's pod that holds capacity, or held it.
fn filler(dice: &mut Dice, number: u64, names: &[String]) -> Value {
    let gpus = dice.roll(3);
    let mut pod = pod(dice, &format!("filler-{number}"), gpus);
    pod["spec"]["schedulerName"] = "default-scheduler".into();
    pod["spec"]["nodeName"] = json!(dice.pick(names));
    pod["status"]["phase"] = json!(dice.pick(&["Running", "Running", "Succeeded", "Failed"]));
    if dice.one_in(4) {
        pod["metadata"]["deletionTimestamp"] = "2026-07-20T10:00:30Z".into();
    }
    pod
}

fn gang_of(dice: &mut Dice, name: &str, names: &[String], objects: &mut Vec<Value>) {
    let size = 1 + dice.roll(5);
    let min = if dice.one_in(3) { 1 + dice.roll(size) } else { size };
    let gpus = 1 + dice.roll(2);
    let mut template = pod(dice, "template", gpus);
    let own = |key: &str| format!("{}.dev/{key}", "muster");
    let mut annotations = json!({own("gang"): name, own("gang-size"): size.to_string()});
    if min < size {
        annotations[own("gang-min")] = json!(min.to_string());
    }
    let level = match dice.roll(6) {
        0 => Some(format!("{LAYER}1")),
        1 => Some(format!("{LAYER}2")),
        2 => Some("kubernetes.io/hostname".to_owned()),
        _ => None,
    };
    if let Some(level) = level {
        annotations[own("topology-required")] = json!(level);
    }
    template["metadata"]["annotations"] = annotations;
    template["spec"]["schedulerName"] = "muster".into();
    template["spec"]["schedulingGates"] = json!([{"name": own("gang")}]);
    template["spec"]["priority"] = json!(dice.roll(2) * 100);
    let minute = dice.roll(3);
    template["metadata"]["creationTimestamp"] = json!(format!("2026-07-20T09:0{minute}:00Z"));
    let missing = if dice.one_in(6) { dice.roll(size) } else { 0 };
    let running = if dice.one_in(5) { 1 + dice.roll(2) } else { 0 };
    for rank in 0..size - missing {
        let mut pod = template.clone();
        pod["metadata"]["name"] = json!(format!("{name}-{rank}"));
        pod["metadata"]["uid"] = json!(format!("uid-{name}-{rank}"));
        pod["metadata"]["annotations"][own("rank")] = json!(rank.to_string());
        if rank < running {
            pod["spec"]["nodeName"] = json!(dice.pick(names));
            pod["spec"].as_object_mut().unwrap().remove("schedulingGates");
            pod["status"]["phase"] = "Running".into();
        }
        objects.push(pod);
    }
}

/// The objects after a change that the document names; `None` for one that is not about nodes.
pub(super) fn apply(objects: &[Value], change: &str) -> Option<Vec<Value>> {
    let (before, list) = change.split_once("nodes ").or_else(|| change.split_once("node "))?;
    let (verb, list) = match (list.strip_suffix(" uncordoned"), list.strip_suffix(" Ready")) {
        (Some(list), _) => ("uncordon", list),
        (None, Some(list)) => ("make", list),
        (None, None) if before.starts_with("taint ") => ("tolerate", list),
        (None, None) if before.starts_with("all ") => ("free all", list),
        (None, None) => return None,
    };
    let chosen: Vec<&str> = list.split(", ").collect();
    let mut objects = objects.to_vec();
    for object in &mut objects {
        let named = chosen.iter().any(|name| object["metadata"]["name"] == *name);
        if object["kind"] == "Node" && named {
            match verb {
                "uncordon" => {
                    object["spec"].as_object_mut()?.remove("unschedulable");
                    object["spec"].as_object_mut()?.remove("taints");
                }
                "make" => {
                    object["status"]["conditions"][1]["status"] = "True".into();
                    object["spec"].as_object_mut()?.remove("taints");
                }
                other if other.starts_with("tolerate") => {
                    object["spec"].as_object_mut()?.remove("taints");
                }
                other if other.starts_with("free all") => {}
                _ => return None,
            }
        }
        if object["kind"] == "Pod" && verb.starts_with("free all") {
            let on = chosen.iter().any(|name| object["spec"]["nodeName"] == *name);
            // Only what strangers hold can be distinguished here from what earlier gangs of the same plan take.
            if on && object["spec"]["schedulerName"] == "default-scheduler" {
                object["status"]["phase"] = "Succeeded".into();
            } else if on {
                return None;
            }
        }
    }
    let earlier =
        objects.iter().filter(|object| object["kind"] == "Pod" && object["spec"]["schedulerName"] == "muster");
    let gangs: std::collections::BTreeSet<&str> =
        earlier.filter_map(|pod| pod["metadata"]["annotations"][format!("{}.dev/gang", "muster")].as_str()).collect();
    // With several gangs an earlier one may take what was freed.
    (gangs.len() == 1).then_some(objects)
}
