//! Random nodes, pods on them, and pods to be placed. Every case has its own random stream, so one can be made again
//! without those before it.
//!
//! Most nodes are cut to measure: their allocatable is what the pods need together, give or take one unit. A rounding or
//! a rule that is off by one changes the verdict then, where generous amounts would hide it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use muster_api::{convert, keys};
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};

/// Label of every object: the number of its case.
pub(super) const CASE: &str = "fits.test/case";
/// Label of the pod that kube-scheduler is to place.
pub(super) const CANDIDATE: &str = "fits.test/candidate";
/// Namespace of the pods.
pub(super) const NAMESPACE: &str = "fits";

/// One question: does `candidate` fit `node` beside `present`?
#[derive(Debug)]
pub(super) struct Case {
    /// The only node the candidate may land on.
    pub(super) node: Node,
    /// Pods bound to the node.
    pub(super) present: Vec<Present>,
    /// The pod in question, without a node.
    pub(super) candidate: Pod,
    /// The claim that the candidate uses, and the volume it is bound to.
    pub(super) volume: Option<(PersistentVolumeClaim, PersistentVolume)>,
}

/// A pod bound to the node.
#[derive(Debug)]
pub(super) struct Present {
    /// The pod; its status is to be written once it is created.
    pub(super) pod: Pod,
    /// Whether it is to be deleted, which leaves it terminating: no kubelet confirms.
    pub(super) terminating: bool,
}

const CPU: &[&str] = &["0", "1m", "100m", "0.1", "250m", "0.5m", "1100u", "25e-2", "33m", "0.0002k"];
const MORE_CPU: &[&str] = &["1", "1.5", "2", "1500m", "7e-1"];
const MEMORY: &[&str] = &["0", "1", "64Mi", "10M", "1e6", "1500m", "0.1Ki", "1234567", "1k", "2Ki", "0.3333Mi"];
const MORE_MEMORY: &[&str] = &["1Gi", "1.5Gi", "128974848", "2G"];
const DEVICES: &[&str] = &["0", "1", "2", "8"];
const HUGE_PAGES: &str = "hugepages-2Mi";
const EXTENDED: &[&str] = &["nvidia.com/gpu", "example.com/nic"];
const LABEL_KEYS: &[&str] = &["rack", "size", "tier"];
const LABEL_VALUES: &[&str] = &["r1", "r2", "5", "05", "7x", "", "99999999999999999999"];
const ZONE: &str = "topology.kubernetes.io/zone";
const ZONES: &[&str] = &["z1", "z2", "z3"];
const BOUNDS: &[&str] = &["3", "5", "6", "05", "99999999999999999999"];
const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
const TAINT_KEYS: &[&str] = &["a", "b", "c"];
const TAINT_VALUES: &[&str] = &["", "x", "y"];

/// RuntimeClasses that add overhead, which the API server allows in no other way.
pub(super) fn runtime_classes() -> Vec<RuntimeClass> {
    OVERHEADS
        .iter()
        .map(|(name, cpu, memory)| {
            serde_json::from_value(json!({
                "metadata": {"name": name}, "handler": "none",
                "overhead": {"podFixed": {"cpu": cpu, "memory": memory}},
            }))
            .expect("a RuntimeClass")
        })
        .collect()
}

const OVERHEADS: &[(&str, &str, &str)] = &[("small", "250m", "120Mi"), ("odd", "333m", "1500m")];

/// The case of this number.
pub(super) fn case(seed: u64, number: usize) -> Case {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(u64::try_from(number).expect("a number of cases"));
    let mut generator = Generator { rng, number, name: format!("fit-{number}") };
    generator.case()
}

struct Generator {
    rng: ChaCha8Rng,
    number: usize,
    /// Of the node.
    name: String,
}

impl Generator {
    fn case(&mut self) -> Case {
        let topics = Topics {
            ports: self.chance(0.25),
            taints: self.chance(0.25),
            cordon: self.chance(0.12),
            affinity: self.chance(0.3),
            alone: self.chance(0.15),
        };
        let candidate = self.candidate(&topics);
        let count = self.rng.random_range(0..4);
        let present: Vec<Present> = (0..count).map(|index| self.present(index, &topics)).collect();
        let mut node = self.node(&topics, &candidate, &present);
        let volume = self.chance(0.6).then(|| self.volume());
        let mut candidate = candidate;
        if volume.is_some() {
            let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": self.claim()}}]);
            let spec = candidate.spec.get_or_insert_default();
            spec.volumes = Some(serde_json::from_value(volumes).expect("volumes"));
            if self.chance(0.6) {
                let zone = self.pick(ZONES).to_owned();
                node.metadata.labels.get_or_insert_default().insert(ZONE.to_owned(), zone);
            }
        }
        Case { node, present, candidate, volume }
    }

    fn claim(&self) -> String {
        format!("data-{}", self.number)
    }

    /// A claim bound to a volume that some nodes reach: by terms, by the labels of its zone, or both.
    fn volume(&mut self) -> (PersistentVolumeClaim, PersistentVolume) {
        let (claim, name) = (self.claim(), format!("volume-{}", self.number));
        let mut labels = Map::new();
        if self.chance(0.4) {
            let zones = [self.pick(ZONES), self.pick(ZONES)];
            let zones = if self.chance(0.5) { zones.join("__") } else { zones[0].to_owned() };
            labels.insert(ZONE.to_owned(), json!(zones));
        }
        let mut spec = json!({
            "accessModes": ["ReadWriteMany"], "capacity": {"storage": "1Gi"}, "storageClassName": "",
            "nfs": {"server": "nfs.test", "path": "/"}, "claimRef": {"namespace": NAMESPACE, "name": claim},
        });
        if self.chance(0.8) {
            let terms: Vec<Value> = (0..self.rng.random_range(1..3))
                .map(|_| {
                    let expressions: Vec<Value> = (0..self.rng.random_range(1..3)).map(|_| self.reach()).collect();
                    json!({"matchExpressions": expressions})
                })
                .collect();
            spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": terms}});
        }
        let volume = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
        let claim = json!({
            "metadata": {
                "name": claim, "namespace": NAMESPACE, "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {
                "accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": "", "volumeName": name,
            },
        });
        (serde_json::from_value(claim).expect("a claim"), serde_json::from_value(volume).expect("a volume"))
    }

    /// A requirement on the nodes that reach a volume.
    fn reach(&mut self) -> Value {
        let key = self.pick(&["rack", "size", "tier", ZONE]);
        let values = if key == ZONE { ZONES } else { LABEL_VALUES };
        match self.rng.random_range(0..4) {
            0 => json!({"key": key, "operator": "Exists"}),
            1 => json!({"key": key, "operator": "DoesNotExist"}),
            2 => json!({"key": key, "operator": "NotIn", "values": [self.pick(values)]}),
            _ => json!({"key": key, "operator": "In", "values": [self.pick(values), self.pick(values)]}),
        }
    }

    fn candidate(&mut self, topics: &Topics) -> Pod {
        let mut spec = self.spec(topics);
        spec["schedulerName"] = json!(keys::SCHEDULER_NAME);
        let mut selector = json!({CASE: self.number.to_string()});
        if topics.affinity && self.chance(0.4) {
            let key = self.pick(LABEL_KEYS);
            selector[key] = json!(self.pick(LABEL_VALUES));
        }
        spec["nodeSelector"] = selector;
        let terms = self.terms(topics);
        spec["affinity"]["nodeAffinity"] =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        if topics.taints || topics.cordon {
            let count = self.rng.random_range(0..4);
            spec["tolerations"] = (0..count).map(|_| self.toleration()).collect();
        }
        let mut pod = self.pod(&format!("candidate-{}", self.number), "train", &spec);
        pod.metadata.labels.get_or_insert_default().insert(CANDIDATE.to_owned(), "true".to_owned());
        pod
    }

    fn present(&mut self, index: usize, topics: &Topics) -> Present {
        let mut spec = self.spec(topics);
        spec["nodeName"] = json!(self.name);
        let app = self.pick(&["train", "train", "serve"]);
        let mut pod = self.pod(&format!("present-{}-{index}", self.number), app, &spec);
        let mut terminating = false;
        match self.rng.random_range(0..10) {
            0 => terminating = true,
            1 => pod.status = Some(status(&json!({"phase": "Succeeded"}))),
            2 => pod.status = Some(status(&json!({"phase": "Failed"}))),
            3 | 4 => pod.status = Some(self.resizing(&pod)),
            _ => {}
        }
        Present { pod, terminating }
    }

    fn pod(&self, name: &str, app: &str, spec: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "namespace": NAMESPACE, "labels": {CASE: self.number.to_string(), "app": app},
            },
            "spec": spec,
        }))
        .expect("a Pod")
    }

    /// Containers, overhead, pod-level resources, ports and anti-affinity.
    fn spec(&mut self, topics: &Topics) -> Value {
        let pod_level = self.chance(0.15);
        let mut ports = Ports { taken: BTreeSet::new(), host_network: topics.ports && self.chance(0.2) };
        let containers: Vec<Value> = (0..self.rng.random_range(1..4))
            .map(|index| self.container(&format!("c{index}"), pod_level, topics, &mut ports))
            .collect();
        let count = if self.chance(0.5) || topics.ports { self.rng.random_range(1..4) } else { 0 };
        let init_containers: Vec<Value> = (0..count)
            .map(|index| {
                let mut container = self.container(&format!("i{index}"), pod_level, topics, &mut ports);
                if self.chance(0.5) {
                    container["restartPolicy"] = json!("Always");
                }
                container
            })
            .collect();
        let mut spec = json!({
            "containers": containers, "initContainers": init_containers, "hostNetwork": ports.host_network,
        });
        if self.chance(0.2) {
            let (name, cpu, memory) = OVERHEADS.choose(&mut self.rng).expect("not empty");
            spec["runtimeClassName"] = json!(name);
            spec["overhead"] = json!({"cpu": cpu, "memory": memory});
        }
        if pod_level {
            spec["resources"] = self.pod_level();
        }
        if topics.alone && self.chance(0.5) {
            let app = self.pick(&["train", "train", "serve"]);
            spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}},
            ]}});
        }
        spec
    }

    fn container(&mut self, name: &str, small: bool, topics: &Topics, ports: &mut Ports) -> Value {
        let mut requests = Map::new();
        let mut limits = Map::new();
        let mut list = Vec::new();
        if self.chance(0.8) {
            let larger = !small && self.chance(0.5);
            list.push(("cpu", self.pick(if larger { MORE_CPU } else { CPU })));
        }
        if self.chance(0.7) {
            let larger = !small && self.chance(0.5);
            list.push(("memory", self.pick(if larger { MORE_MEMORY } else { MEMORY })));
        }
        if self.chance(0.2) {
            list.push(("ephemeral-storage", self.pick(MEMORY)));
        }
        for (resource, amount) in &list {
            match self.rng.random_range(0..3) {
                0 => drop(limits.insert((*resource).to_owned(), json!(amount))),
                1 => drop(requests.insert((*resource).to_owned(), json!(amount))),
                _ => {
                    limits.insert((*resource).to_owned(), json!(amount));
                    requests.insert((*resource).to_owned(), json!(amount));
                }
            }
        }
        for resource in EXTENDED {
            if self.chance(0.2) {
                limits.insert((*resource).to_owned(), json!(self.pick(DEVICES)));
            }
        }
        // The API server wants one of the two beside huge pages.
        let beside = list.iter().any(|(resource, _)| matches!(*resource, "cpu" | "memory"));
        if beside && !small && self.chance(0.1) {
            limits.insert(HUGE_PAGES.to_owned(), json!(self.pick(&["2Mi", "4Mi"])));
        }
        // At most one in a container, so that regular ones do not always conflict before the others are asked.
        let declared = usize::from(topics.ports && self.chance(0.75));
        let ports: Vec<Value> = (0..declared).filter_map(|_| self.port(ports)).collect();
        json!({
            "name": name, "image": "none", "ports": ports,
            "resources": {"requests": requests, "limits": limits},
        })
    }

    /// Generous, since the API server wants more than what all containers request.
    fn pod_level(&mut self) -> Value {
        let mut requests = Map::new();
        let mut limits = Map::new();
        for (resource, amount, limit) in [("cpu", ["2", "2501m"], "4"), ("memory", ["1Gi", "1.1G"], "2Gi")] {
            if self.chance(0.5) {
                requests.insert(resource.to_owned(), json!(self.pick(&amount)));
            }
            if self.chance(0.5) {
                limits.insert(resource.to_owned(), json!(limit));
            }
        }
        if self.chance(0.2) {
            limits.insert(HUGE_PAGES.to_owned(), json!("6Mi"));
            limits.insert("cpu".to_owned(), json!("4"));
        }
        json!({"requests": requests, "limits": limits})
    }

    fn port(&mut self, ports: &mut Ports) -> Option<Value> {
        let number = *[80, 80, 8080].choose(&mut self.rng).expect("not empty");
        let protocol = self.pick(&["TCP", "TCP", "UDP"]);
        let ip = self.pick(&["", "", "0.0.0.0", "10.0.0.1", "10.0.0.2", "::"]);
        // Two containers of a pod must not declare the same one.
        if !ports.taken.insert((number, protocol.to_owned())) {
            return None;
        }
        if ports.host_network {
            return Some(json!({"containerPort": number, "protocol": protocol}));
        }
        Some(if self.chance(0.85) {
            json!({"containerPort": 1, "hostPort": number, "protocol": protocol, "hostIP": ip})
        } else {
            json!({"containerPort": number, "protocol": protocol})
        })
    }

    /// Terms of which each names the node, which makes kube-scheduler look at no other; now and then terms that do not.
    fn terms(&mut self, topics: &Topics) -> Vec<Value> {
        let own = json!({"key": "metadata.name", "operator": "In", "values": [self.name]});
        if !topics.affinity {
            return vec![json!({"matchFields": [own]})];
        }
        let free = self.chance(0.25);
        (0..self.rng.random_range(1..4))
            .map(|_| {
                let expressions: Vec<Value> = (0..self.rng.random_range(0..3)).map(|_| self.requirement()).collect();
                let fields = match (free, self.rng.random_range(0..3)) {
                    (false, _) => vec![own.clone()],
                    (true, 0) => {
                        let name = if self.chance(0.5) { self.name.clone() } else { "other".to_owned() };
                        vec![json!({"key": "metadata.name", "operator": "NotIn", "values": [name]})]
                    }
                    (true, _) => vec![],
                };
                json!({"matchExpressions": expressions, "matchFields": fields})
            })
            .collect()
    }

    fn requirement(&mut self) -> Value {
        let key = self.pick(LABEL_KEYS);
        let operator = self.pick(&["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]);
        let values: Vec<&str> = match operator {
            "In" | "NotIn" => (0..self.rng.random_range(1..4)).map(|_| self.pick(LABEL_VALUES)).collect(),
            "Gt" | "Lt" => vec![self.pick(BOUNDS)],
            _ => vec![],
        };
        json!({"key": key, "operator": operator, "values": values})
    }

    fn toleration(&mut self) -> Value {
        let key = self.pick(&["a", "b", "c", "", "node.kubernetes.io/unschedulable"]);
        let mut toleration = json!({"key": key});
        if key.is_empty() || self.chance(0.5) {
            toleration["operator"] = json!("Exists");
        } else {
            toleration["operator"] = json!(self.pick(&["", "Equal"]));
            toleration["value"] = json!(self.pick(TAINT_VALUES));
        }
        if self.chance(0.5) {
            toleration["effect"] = json!(self.pick(EFFECTS));
        }
        toleration
    }

    /// What a kubelet reports in the middle of an in-place resize.
    fn resizing(&mut self, pod: &Pod) -> k8s_openapi::api::core::v1::PodStatus {
        let spec = pod.spec.as_ref().expect("generated with a spec");
        let statuses = |generator: &mut Self, containers: &[k8s_openapi::api::core::v1::Container]| -> Vec<Value> {
            containers
                .iter()
                .map(|container| {
                    let mut status = json!({
                        "name": container.name, "image": "none", "imageID": "", "ready": true, "restartCount": 0,
                        "state": {"running": {}},
                    });
                    if generator.chance(0.7) {
                        status["allocatedResources"] = generator.amounts();
                    }
                    if generator.chance(0.7) {
                        status["resources"] = json!({"requests": generator.amounts()});
                    }
                    status
                })
                .collect()
        };
        let mut value = json!({
            "phase": "Running",
            "containerStatuses": statuses(self, &spec.containers),
            "initContainerStatuses": statuses(self, spec.init_containers.as_deref().unwrap_or_default()),
        });
        if self.chance(0.6) {
            let reason = self.pick(&["Infeasible", "Infeasible", "Deferred"]);
            value["conditions"] = json!([{"type": "PodResizePending", "status": "True", "reason": reason}]);
        }
        if self.chance(0.3) {
            value["resources"] = json!({"requests": self.amounts()});
            if self.chance(0.7) {
                value["allocatedResources"] = self.amounts();
            }
        }
        status(&value)
    }

    fn amounts(&mut self) -> Value {
        let (cpu, memory) = if self.chance(0.5) { (MORE_CPU, MORE_MEMORY) } else { (CPU, MEMORY) };
        json!({"cpu": self.pick(cpu), "memory": self.pick(memory)})
    }

    fn node(&mut self, topics: &Topics, candidate: &Pod, present: &[Present]) -> Node {
        let wanted = convert::shape_of_pod(candidate).expect("generated quantities").requests;
        let usage = convert::usage_of(present.iter().map(|present| &present.pod)).expect("generated quantities");
        let mut allocatable = Map::new();
        let mut total = usage.requested;
        total.add(&wanted);
        for (name, amount) in total.iter() {
            let name = name.as_str();
            // What the candidate does not request may be overdrawn without harm.
            let overdrawn = wanted.get(name) == 0 && self.chance(0.3);
            let amount = match self.rng.random_range(0..20) {
                _ if overdrawn => amount / 2,
                0 | 1 => amount - 1,
                2..=13 => amount,
                14 => amount + 1,
                15 if EXTENDED.contains(&name) => continue,
                _ => amount.saturating_mul(3),
            };
            allocatable.insert(name.to_owned(), json!(self.text(name, amount)));
        }
        let mut labels = BTreeMap::from([
            (CASE.to_owned(), self.number.to_string()),
            ("kubernetes.io/hostname".to_owned(), self.name.clone()),
        ]);
        for key in LABEL_KEYS {
            if self.chance(0.7) {
                labels.insert((*key).to_owned(), self.pick(LABEL_VALUES).to_owned());
            }
        }
        let mut taints = BTreeMap::new();
        if topics.taints {
            for _ in 0..self.rng.random_range(0..3) {
                // One of a key and effect.
                let (key, effect) = (self.pick(TAINT_KEYS), self.pick(EFFECTS));
                taints.insert((key, effect), self.pick(TAINT_VALUES));
            }
        }
        let taints: Vec<Value> = taints
            .into_iter()
            .map(|((key, effect), value)| json!({"key": key, "value": value, "effect": effect}))
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": self.name, "labels": labels},
            "spec": {"taints": taints, "unschedulable": topics.cordon},
            "status": {
                "allocatable": allocatable, "capacity": allocatable,
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "Test", "message": "",
                    "lastHeartbeatTime": null, "lastTransitionTime": null,
                }],
            },
        }))
        .expect("a Node")
    }

    /// One of the ways to write an amount.
    fn text(&mut self, resource: &str, amount: i64) -> String {
        let way = self.rng.random_range(0..3);
        match (resource, way) {
            ("cpu", 0) => format!("{}u", i128::from(amount) * 1000),
            ("cpu", 1) => format!("{}.{:03}", amount / 1000, amount % 1000),
            ("cpu", _) => format!("{amount}m"),
            ("memory" | "ephemeral-storage", 0) => format!("{}m", i128::from(amount) * 1000),
            ("memory" | "ephemeral-storage", 1) if amount % 1024 == 0 => format!("{}Ki", amount / 1024),
            _ => amount.to_string(),
        }
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.rng.random_bool(probability)
    }

    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        pick(&mut self.rng, from)
    }
}

/// What a case is about, beside resources.
struct Topics {
    ports: bool,
    taints: bool,
    cordon: bool,
    affinity: bool,
    alone: bool,
}

/// Host ports of one pod.
struct Ports {
    taken: BTreeSet<(i32, String)>,
    host_network: bool,
}

fn pick(rng: &mut impl Rng, from: &[&'static str]) -> &'static str {
    from.choose(rng).expect("not empty")
}

fn status(value: &Value) -> k8s_openapi::api::core::v1::PodStatus {
    serde_json::from_value(value.clone()).expect("a PodStatus")
}
