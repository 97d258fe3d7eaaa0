//! The dump as the judge reads it: nodes, capacity, pods. Its own reading of quantities, taints and init containers.

use std::collections::BTreeMap;

use serde_json::Value;

/// Amounts in thousandths.
pub(super) type Amounts = BTreeMap<String, i128>;

#[derive(Clone, Debug)]
pub(super) struct JudgedNode {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) free: Amounts,
    usable: bool,
    cordoned: bool,
    taints: Vec<(String, String, String)>,
}

#[derive(Clone, Debug)]
pub(super) struct JudgedPod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) node: Option<String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) priority: i64,
    pub(super) created: String,
    pub(super) ours: bool,
    pub(super) live: bool,
    pub(super) succeeded: bool,
    pub(super) holds: bool,
    pub(super) foreign_gate: bool,
    pub(super) requests: Amounts,
    selector: BTreeMap<String, String>,
    tolerations: Vec<Value>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct JudgedCluster {
    pub(super) nodes: Vec<JudgedNode>,
    pub(super) pods: Vec<JudgedPod>,
}

impl JudgedCluster {
    pub(super) fn read(objects: &[Value]) -> Self {
        let mut cluster = Self::default();
        for object in objects {
            match object["kind"].as_str() {
                Some("Node") => cluster.nodes.push(node(object)),
                Some("Pod") => cluster.pods.push(pod(object)),
                _ => {}
            }
        }
        for pod in &cluster.pods {
            if let Some(name) = pod.node.as_ref().filter(|_| pod.holds)
                && let Some(node) = cluster.nodes.iter_mut().find(|node| node.name == *name)
            {
                node.take(&pod.requests);
            }
        }
        cluster
    }
}

impl JudgedNode {
    pub(super) fn unknown(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            labels: BTreeMap::new(),
            free: Amounts::new(),
            usable: false,
            cordoned: false,
            taints: Vec::new(),
        }
    }

    pub(super) fn take(&mut self, requests: &Amounts) {
        for (name, amount) in requests {
            *self.free.entry(name.clone()).or_default() -= amount;
        }
    }

    /// How many such pods fit.
    pub(super) fn slots(&self, pod: &JudgedPod) -> i128 {
        let tolerates = |key: &str, value: &str, effect: &str| {
            pod.tolerations.iter().any(|toleration| {
                let text = |field: &str| toleration[field].as_str().unwrap_or_default();
                let exists = text("operator") == "Exists";
                (text("key") == key || (text("key").is_empty() && exists))
                    && (exists || text("value") == value)
                    && (text("effect").is_empty() || text("effect") == effect)
            })
        };
        let taints = self
            .taints
            .iter()
            .all(|(key, value, effect)| effect == "PreferNoSchedule" || tolerates(key, value, effect));
        let cordon = !self.cordoned || tolerates("node.kubernetes.io/unschedulable", "", "NoSchedule");
        let selected = pod.selector.iter().all(|(key, value)| self.labels.get(key) == Some(value));
        if !self.usable || !taints || !cordon || !selected {
            return 0;
        }
        let capacities = pod.requests.iter().filter(|(_, amount)| **amount > 0);
        capacities.map(|(name, amount)| (self.free.get(name).copied().unwrap_or(0) / amount).max(0)).min().unwrap_or(99)
    }
}

fn strings(value: &Value) -> BTreeMap<String, String> {
    let entries = value.as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

fn node(object: &Value) -> JudgedNode {
    let ready = object["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = ready.filter(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let taints = object["spec"]["taints"].as_array().into_iter().flatten().map(|taint| {
        let text = |field: &str| taint[field].as_str().unwrap_or_default().to_owned();
        (text("key"), text("value"), text("effect"))
    });
    JudgedNode {
        name: object["metadata"]["name"].as_str().unwrap().to_owned(),
        labels: strings(&object["metadata"]["labels"]),
        free: amounts(&object["status"]["allocatable"]),
        usable: ready.next().is_some() && object["metadata"]["deletionTimestamp"].is_null(),
        cordoned: object["spec"]["unschedulable"] == true,
        taints: taints.collect(),
    }
}

fn pod(object: &Value) -> JudgedPod {
    let metadata = &object["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let phase = text(&object["status"]["phase"]);
    let ended = phase == "Succeeded" || phase == "Failed";
    let node = object["spec"]["nodeName"].as_str().map(str::to_owned);
    let gates = object["spec"]["schedulingGates"].as_array().into_iter().flatten();
    JudgedPod {
        namespace: metadata["namespace"].as_str().unwrap_or("default").to_owned(),
        name: text(&metadata["name"]),
        holds: node.is_some() && !ended,
        node,
        annotations: strings(&metadata["annotations"]),
        priority: object["spec"]["priority"].as_i64().unwrap_or(0),
        created: text(&metadata["creationTimestamp"]),
        ours: object["spec"]["schedulerName"] == "muster",
        live: !ended && metadata["deletionTimestamp"].is_null(),
        succeeded: phase == "Succeeded",
        foreign_gate: gates.into_iter().any(|gate| gate["name"] != concat!("muster", ".dev/gang")),
        requests: requests(&object["spec"]),
        selector: strings(&object["spec"]["nodeSelector"]),
        tolerations: object["spec"]["tolerations"].as_array().cloned().unwrap_or_default(),
    }
}

/// What a pod holds: containers and sidecars together, or the largest step of the start, plus overhead.
fn requests(spec: &Value) -> Amounts {
    let mut sidecars = Amounts::new();
    let mut most = Amounts::new();
    for container in spec["initContainers"].as_array().into_iter().flatten() {
        let own = container_requests(container);
        let mut step = sidecars.clone();
        add(&mut step, &own);
        if container["restartPolicy"] == "Always" {
            sidecars = step.clone();
        }
        raise(&mut most, &step);
    }
    let mut running = sidecars;
    for container in spec["containers"].as_array().into_iter().flatten() {
        add(&mut running, &container_requests(container));
    }
    raise(&mut running, &most);
    add(&mut running, &amounts(&spec["overhead"]));
    running.insert("pods".to_owned(), 1000);
    running
}

/// Requests, and limits where a request is missing.
fn container_requests(container: &Value) -> Amounts {
    let mut own = amounts(&container["resources"]["limits"]);
    own.extend(amounts(&container["resources"]["requests"]));
    own
}

fn add(sum: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        *sum.entry(name.clone()).or_default() += amount;
    }
}

fn raise(most: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let entry = most.entry(name.clone()).or_default();
        *entry = (*entry).max(*amount);
    }
}

fn amounts(list: &Value) -> Amounts {
    let entries = list.as_object().into_iter().flatten();
    entries.map(|(name, value)| (name.clone(), quantity(value))).collect()
}

/// Thousandths of what a quantity says, for the quantities the tests use.
fn quantity(value: &Value) -> i128 {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let factor: i128 = match suffix {
        "" => 1000,
        "m" => 1,
        "k" => 1_000_000,
        "M" => 1_000_000_000,
        "G" => 1_000_000_000_000,
        "Ki" => 1000 << 10,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        "Ti" => 1000 << 40,
        other => panic!("the judge cannot read the suffix {other} of {text}"),
    };
    match number.split_once('.') {
        None => number.parse::<i128>().unwrap() * factor,
        Some((whole, part)) => {
            let scale = 10_i128.pow(u32::try_from(part.len()).unwrap());
            format!("{whole}{part}").parse::<i128>().unwrap() * factor / scale
        }
    }
}
