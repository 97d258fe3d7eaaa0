//! Random clusters for `muster plan`: pools, what they offer, nodes with pods on them, and pods that wait, with every
//! constraint that nodes for ordinary pods are planned by. Every cluster has its own random stream.

use std::collections::{BTreeMap, BTreeSet};

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};

/// Namespaces of the pods, each with a label.
pub(super) const NAMESPACES: [(&str, &str); 2] = [("red", "warm"), ("blue", "cold")];
/// A PriorityClass of the pods that come first.
pub(super) const PRIORITY: (&str, i32) = ("first", 1_000);

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";
const ARCH: &str = "kubernetes.io/arch";
const CAPACITY_TYPE: &str = "muster.dev/capacity-type";
const SIZE: &str = "example.com/size";
const TEAM: &str = "example.com/team";
const GPU: &str = "example.com/gpu";
const ZONES: [&str; 3] = ["z-1", "z-2", "z-3"];

/// A cluster as a dump, what its pools can get, and which constraints its pods have.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) seed: u64,
    /// Objects of the dump but pods that wait.
    pub(super) objects: Vec<Value>,
    /// Pods that wait, in order of creation.
    pub(super) pending: Vec<Value>,
    pub(super) catalogue: Value,
    /// Every node that a pool could get, empty: one for each type, zone, capacity type and team.
    pub(super) possible: Vec<Value>,
    /// The constraints of each pod that waits, by name.
    pub(super) drawn: BTreeMap<String, BTreeSet<&'static str>>,
}

/// An instance type.
struct Type {
    name: &'static str,
    cpu: u32,
    gib: u32,
    gpus: u32,
    arch: &'static str,
    size: &'static str,
    zones: &'static [&'static str],
    micros: u64,
}

const TYPES: [Type; 6] = [
    Type { name: "s-2", cpu: 2, gib: 8, gpus: 0, arch: "amd64", size: "2", zones: &ZONES, micros: 100_000 },
    Type { name: "s-4", cpu: 4, gib: 16, gpus: 0, arch: "amd64", size: "4", zones: &ZONES, micros: 195_000 },
    Type { name: "s-8", cpu: 8, gib: 32, gpus: 0, arch: "amd64", size: "8", zones: &["z-1", "z-2"], micros: 380_000 },
    Type { name: "a-4", cpu: 4, gib: 8, gpus: 0, arch: "arm64", size: "4", zones: &["z-2", "z-3"], micros: 140_000 },
    Type { name: "m-4", cpu: 4, gib: 32, gpus: 0, arch: "amd64", size: "4", zones: &["z-1", "z-3"], micros: 260_000 },
    Type { name: "g-8", cpu: 8, gib: 32, gpus: 2, arch: "amd64", size: "8", zones: &["z-1"], micros: 1_500_000 },
];

/// A NodePool as it is drawn.
struct Pool {
    name: &'static str,
    zones: Vec<&'static str>,
    capacity_types: Vec<&'static str>,
    teams: Vec<&'static str>,
    taint: Option<(&'static str, &'static str)>,
    weight: u32,
    cpu_limit: Option<u32>,
}

/// The cluster of this seed.
pub(super) fn cluster(seed: u64) -> Cluster {
    let mut draw = Draw { random: ChaCha8Rng::seed_from_u64(seed), seed };
    draw.cluster()
}

struct Draw {
    random: ChaCha8Rng,
    seed: u64,
}

impl Draw {
    fn chance(&mut self, probability: f64) -> bool {
        self.random.random_bool(probability)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        *from.choose(&mut self.random).expect("not empty")
    }

    fn some<T: Copy>(&mut self, from: &[T]) -> Vec<T> {
        let kept: Vec<T> = from.iter().copied().filter(|_| self.random.random_bool(0.6)).collect();
        if kept.is_empty() { vec![self.pick(from)] } else { kept }
    }

    fn cluster(&mut self) -> Cluster {
        let mut pools = vec![self.pool("general")];
        if self.chance(0.5) {
            pools.push(self.pool("other"));
        }
        let mut objects: Vec<Value> = Vec::new();
        for (name, warmth) in NAMESPACES {
            objects.push(json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": {"warmth": warmth, "kubernetes.io/metadata.name": name}},
            }));
        }
        objects.extend(pools.iter().map(pool_object));
        let daemons = self.chance(0.3);
        if daemons {
            objects.push(daemon_set());
        }
        let nodes = self.random.random_range(0..4);
        for number in 0..nodes {
            let node = self.node(number);
            let name = node["metadata"]["name"].clone();
            objects.push(node);
            for pod in 0..self.random.random_range(0..3) {
                objects.push(self.standing(number, pod, &name));
            }
        }
        let (mut pending, mut drawn) = (Vec::new(), BTreeMap::new());
        for app in 0..self.random.random_range(2..6) {
            self.app(app, &mut objects, &mut pending, &mut drawn);
        }
        Cluster {
            seed: self.seed,
            objects,
            pending,
            catalogue: catalogue(),
            possible: possible(&pools, daemons),
            drawn,
        }
    }

    fn pool(&mut self, name: &'static str) -> Pool {
        Pool {
            name,
            zones: if self.chance(0.3) { self.some(&ZONES) } else { ZONES.to_vec() },
            capacity_types: self.some(&["spot", "on-demand"]),
            teams: if self.chance(0.4) { self.some(&["one", "two"]) } else { Vec::new() },
            taint: self.chance(0.25).then_some(("example.com/only", name)),
            weight: if self.chance(0.3) { 10 } else { 0 },
            cpu_limit: self.chance(0.2).then(|| self.random.random_range(4..24)),
        }
    }

    /// A node that runs: of nobody, or of the first pool.
    fn node(&mut self, number: usize) -> Value {
        let name = format!("n-{}-{number}", self.seed);
        let zone = self.pick(&ZONES);
        let capacity_type = self.pick(&["spot", "on-demand"]);
        let mut labels = json!({
            HOSTNAME: name, ARCH: "amd64", SIZE: "4", "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "s-4",
        });
        if self.chance(0.9) {
            labels[ZONE] = zone.into();
        }
        if self.chance(0.7) {
            labels[CAPACITY_TYPE] = capacity_type.into();
            labels["muster.dev/nodepool"] = "general".into();
        }
        if self.chance(0.3) {
            labels[TEAM] = "one".into();
        }
        let taints = if self.chance(0.2) {
            let effect = self.pick(&["NoSchedule", "NoExecute", "PreferNoSchedule"]);
            json!([{"key": "example.com/only", "value": "general", "effect": effect}])
        } else {
            json!([])
        };
        node(&name, &labels, &taints, &amounts(4, 16, 0))
    }

    /// A pod on a node.
    fn standing(&mut self, node: usize, number: usize, on: &Value) -> Value {
        let app = self.random.random_range(0..5);
        let mut pod = self.pod(&format!("standing-{node}-{number}"), app);
        pod["spec"]["nodeName"] = on.clone();
        pod["status"] = json!({"phase": "Running"});
        if self.chance(0.3) {
            let term = self.term(app);
            pod["spec"]["affinity"] =
                json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        }
        pod
    }

    fn pod(&mut self, name: &str, app: usize) -> Value {
        let (namespace, _) = NAMESPACES[app % 2];
        let tier = self.pick(&["front", "back"]);
        let cpu = self.pick(&["100m", "250m", "500m", "900m", "1", "1900m"]);
        let memory = self.pick(&["64Mi", "256Mi", "1Gi", "3Gi", "6Gi"]);
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("{name}-{}", self.seed), "namespace": namespace,
                "labels": {"app": format!("app-{app}"), "tier": tier},
            },
            "spec": {
                "schedulerName": "muster",
                "containers": [{"name": "main", "image": "image", "resources": {"requests": {"cpu": cpu, "memory": memory}}}],
            },
        })
    }

    /// A workload: pods that are alike.
    fn app(
        &mut self,
        app: usize,
        objects: &mut Vec<Value>,
        pending: &mut Vec<Value>,
        drawn: &mut BTreeMap<String, BTreeSet<&'static str>>,
    ) {
        let mut model = self.pod("model", app);
        let mut constraints = BTreeSet::new();
        self.constrain(app, &mut model["spec"], &mut constraints, objects);
        for replica in 0..self.random.random_range(1..6) {
            let mut pod = model.clone();
            let name = format!("app-{app}-{replica}-{}", self.seed);
            pod["metadata"]["name"] = name.clone().into();
            pod["metadata"]["uid"] = name.clone().into();
            let second = pending.len();
            pod["metadata"]["creationTimestamp"] =
                format!("2026-07-20T10:{:02}:{:02}Z", second / 60, second % 60).into();
            pod["status"] = json!({"phase": "Pending"});
            drawn.insert(name, constraints.clone());
            pending.push(pod);
        }
    }

    fn constrain(
        &mut self,
        app: usize,
        spec: &mut Value,
        drawn: &mut BTreeSet<&'static str>,
        objects: &mut Vec<Value>,
    ) {
        if self.chance(0.2) {
            drawn.insert("nodeSelector");
            let (key, value) =
                self.pick(&[(ZONE, "z-2"), (ARCH, "arm64"), (SIZE, "4"), (TEAM, "one"), (CAPACITY_TYPE, "spot")]);
            spec["nodeSelector"] = json!({key: value});
        }
        if self.chance(0.25) {
            drawn.insert("nodeAffinity");
            let terms: Vec<Value> = (0..self.random.random_range(1..3)).map(|_| self.selector_term()).collect();
            spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({"nodeSelectorTerms": terms});
        }
        if self.chance(0.5) {
            drawn.insert("toleration");
            spec["tolerations"] = match self.random.random_range(0..3) {
                0 => json!([{"key": "example.com/only", "operator": "Exists"}]),
                1 => {
                    json!([{"key": "example.com/only", "operator": "Equal", "value": "general", "effect": "NoSchedule"}])
                }
                _ => json!([{"operator": "Exists", "effect": "NoSchedule"}]),
            };
        }
        if self.chance(0.4) {
            drawn.insert("topologySpread");
            let count = self.random.random_range(1..3);
            let spreads: Vec<Value> = (0..count).map(|number| self.spread(app, number)).collect();
            spec["topologySpreadConstraints"] = json!(spreads);
        }
        if self.chance(0.25) {
            drawn.insert("podAntiAffinity");
            let term = self.term(app);
            spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([term]);
        } else if self.chance(0.25) {
            drawn.insert("podAffinity");
            let term = self.term(app);
            spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([term]);
        }
        if self.chance(0.15) {
            drawn.insert("preferredAntiAffinity");
            let term = self.term(app);
            spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
                json!([{"weight": 10, "podAffinityTerm": term}]);
        }
        if self.chance(0.12) {
            drawn.insert("hostPort");
            let port = self.pick(&[8080, 8081]);
            spec["containers"][0]["ports"] = json!([{"containerPort": port, "hostPort": port, "protocol": "TCP"}]);
        }
        if self.chance(0.15) {
            drawn.insert("initContainers");
            let mut init = json!({"name": "before", "image": "image", "resources": {"requests": {"cpu": "1500m"}}});
            if self.chance(0.5) {
                drawn.insert("sidecar");
                init["restartPolicy"] = "Always".into();
                init["resources"]["requests"]["cpu"] = "200m".into();
            }
            spec["initContainers"] = json!([init]);
        }
        if self.chance(0.1) {
            drawn.insert("gpu");
            for kind in ["requests", "limits"] {
                spec["containers"][0]["resources"][kind][GPU] = "1".into();
            }
        }
        if self.chance(0.2) {
            drawn.insert("priority");
            spec["priorityClassName"] = PRIORITY.0.into();
            spec["priority"] = PRIORITY.1.into();
            spec["preemptionPolicy"] = "Never".into();
        }
        if self.chance(0.12) {
            drawn.insert("volume");
            let name = format!("claim-{app}-{}", self.seed);
            let zone = self.pick(&ZONES);
            objects.extend(claim(&name, NAMESPACES[app % 2].0, zone));
            spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
        }
    }

    fn selector_term(&mut self) -> Value {
        let mut expressions = Vec::new();
        for _ in 0..self.random.random_range(1..3) {
            expressions.push(match self.random.random_range(0..7) {
                0 => json!({"key": ZONE, "operator": "In", "values": self.some(&ZONES)}),
                1 => json!({"key": ZONE, "operator": "NotIn", "values": [self.pick(&ZONES)]}),
                2 => json!({"key": SIZE, "operator": "Gt", "values": [self.pick(&["1", "2", "4"])]}),
                3 => json!({"key": SIZE, "operator": "Lt", "values": [self.pick(&["4", "8", "9"])]}),
                4 => json!({"key": TEAM, "operator": self.pick(&["Exists", "DoesNotExist"])}),
                5 => json!({"key": ARCH, "operator": "In", "values": ["amd64"]}),
                _ => json!({"key": CAPACITY_TYPE, "operator": "NotIn", "values": [self.pick(&["spot", "on-demand"])]}),
            });
        }
        json!({"matchExpressions": expressions})
    }

    fn spread(&mut self, app: usize, number: usize) -> Value {
        // Two constraints of one pod need different keys.
        let key = if number == 0 { self.pick(&[ZONE, ZONE, CAPACITY_TYPE]) } else { HOSTNAME };
        let mut spread = json!({
            "topologyKey": key, "maxSkew": self.random.random_range(1..3),
            "whenUnsatisfiable": if self.chance(0.8) { "DoNotSchedule" } else { "ScheduleAnyway" },
            "labelSelector": {"matchLabels": self.labels(app)},
        });
        if spread["whenUnsatisfiable"] == "DoNotSchedule" && self.chance(0.25) {
            spread["minDomains"] = self.random.random_range(2..4).into();
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if self.chance(0.25) {
                spread[policy] = self.pick(&["Honor", "Ignore"]).into();
            }
        }
        if self.chance(0.2) && spread["labelSelector"]["matchLabels"]["tier"].is_null() {
            spread["matchLabelKeys"] = json!(["tier"]);
        }
        spread
    }

    /// The own pods most often, else those of another workload or of a tier.
    fn labels(&mut self, app: usize) -> Map<String, Value> {
        let other = self.random.random_range(0..5);
        let (key, value) = match self.random.random_range(0..10) {
            0..7 => ("app", format!("app-{app}")),
            7 => ("app", format!("app-{other}")),
            _ => ("tier", "front".to_owned()),
        };
        [(key.to_owned(), Value::from(value))].into_iter().collect()
    }

    fn term(&mut self, app: usize) -> Value {
        let mut term = json!({
            "topologyKey": self.pick(&[HOSTNAME, HOSTNAME, ZONE]),
            "labelSelector": {"matchLabels": self.labels(app)},
        });
        match self.random.random_range(0..4) {
            0 => term["namespaces"] = json!([NAMESPACES[0].0, NAMESPACES[1].0]),
            1 => term["namespaceSelector"] = json!({"matchLabels": {"warmth": "warm"}}),
            _ => {}
        }
        term
    }
}

/// Amounts of a type, as a node's allocatable.
fn amounts(cpu: u32, gib: u32, gpus: u32) -> Value {
    let mut amounts =
        json!({"cpu": format!("{}m", cpu * 1_000 - 100), "memory": format!("{}Mi", gib * 1_024 - 200), "pods": "12"});
    if gpus > 0 {
        amounts[GPU] = gpus.to_string().into();
    }
    amounts
}

/// A Ready node.
pub(super) fn node(name: &str, labels: &Value, taints: &Value, allocatable: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {
            "allocatable": allocatable, "capacity": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn pool_object(pool: &Pool) -> Value {
    let mut requirements = vec![
        json!({"key": ZONE, "operator": "In", "values": pool.zones}),
        json!({"key": CAPACITY_TYPE, "operator": "In", "values": pool.capacity_types}),
        json!({"key": ARCH, "operator": "In", "values": ["amd64", "arm64"]}),
    ];
    if !pool.teams.is_empty() {
        requirements.push(json!({"key": TEAM, "operator": "In", "values": pool.teams}));
    }
    let mut spec = json!({
        "weight": pool.weight,
        "template": {"spec": {
            "nodeClassRef": {"group": "muster.dev", "kind": "EC2NodeClass", "name": "any"},
            "requirements": requirements,
        }},
    });
    if let Some((key, value)) = pool.taint {
        spec["template"]["spec"]["taints"] = json!([{"key": key, "value": value, "effect": "NoSchedule"}]);
    }
    if let Some(cpu) = pool.cpu_limit {
        spec["limits"] = json!({"cpu": cpu.to_string()});
    }
    json!({"apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": pool.name}, "spec": spec})
}

fn daemon_set() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "red", "uid": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": "agent", "image": "image",
                                    "resources": {"requests": {"cpu": "150m", "memory": "100Mi"}}}],
                },
            },
        },
    })
}

/// A claim that is bound to a volume in a zone.
fn claim(name: &str, namespace: &str, zone: &str) -> [Value; 2] {
    let volume = format!("volume-of-{name}");
    let amount = json!({"storage": "1Gi"});
    [
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
            "spec": {
                "capacity": amount, "accessModes": ["ReadWriteMany"], "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name},
                "nfs": {"server": "server", "path": "/"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": ZONE, "operator": "In", "values": [zone]},
                ]}]}},
            },
            "status": {"phase": "Bound"},
        }),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name, "namespace": namespace,
                "annotations": {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"},
            },
            "spec": {
                "accessModes": ["ReadWriteMany"], "resources": {"requests": amount}, "storageClassName": "",
                "volumeName": volume,
            },
            "status": {"phase": "Bound", "accessModes": ["ReadWriteMany"], "capacity": amount},
        }),
    ]
}

fn catalogue() -> Value {
    let types = TYPES.iter().map(|one| {
        let mut capacity = json!({"cpu": one.cpu.to_string(), "memory": format!("{}Gi", one.gib), "pods": "12"});
        if one.gpus > 0 {
            capacity[GPU] = one.gpus.to_string().into();
        }
        let offering =
            |zone: &str, capacity_type: &str, micros: u64| json!({"zone": zone, "market": capacity_type, "usdMicroPerHour": micros});
        let offerings: Vec<Value> = one
            .zones
            .iter()
            .flat_map(|zone| [offering(zone, "on-demand", one.micros), offering(zone, "spot", one.micros * 2 / 5)])
            .collect();
        json!({
            "name": one.name, "labels": {ARCH: one.arch, SIZE: one.size}, "capacity": capacity,
            "overhead": {"cpu": "100m", "memory": "200Mi"}, "offerings": offerings,
        })
    });
    json!({"version": 2, "name": "agreement", "types": types.collect::<Vec<_>>(), "prices": []})
}

/// Every node that the pools can get, with what is left of it beside the DaemonSet.
fn possible(pools: &[Pool], daemons: bool) -> Vec<Value> {
    let mut nodes = Vec::new();
    for pool in pools {
        let teams: Vec<Option<&str>> =
            if pool.teams.is_empty() { vec![None] } else { pool.teams.iter().copied().map(Some).collect() };
        for one in &TYPES {
            for zone in one.zones.iter().filter(|zone| pool.zones.contains(zone)) {
                for (capacity_type, team) in pool
                    .capacity_types
                    .iter()
                    .flat_map(|capacity_type| teams.iter().map(move |team| (capacity_type, team)))
                {
                    let name = format!("possible-{}", nodes.len());
                    let mut labels = json!({
                        HOSTNAME: name, ARCH: one.arch, SIZE: one.size, "kubernetes.io/os": "linux", ZONE: zone,
                        CAPACITY_TYPE: capacity_type, "muster.dev/nodepool": pool.name,
                        "node.kubernetes.io/instance-type": one.name,
                    });
                    if let Some(team) = team {
                        labels[TEAM] = (*team).into();
                    }
                    let taints = pool.taint.map_or(
                        json!([]),
                        |(key, value)| json!([{"key": key, "value": value, "effect": "NoSchedule"}]),
                    );
                    let mut left = amounts(one.cpu, one.gib, one.gpus);
                    if daemons {
                        left["cpu"] = format!("{}m", one.cpu * 1_000 - 250).into();
                        left["memory"] = format!("{}Mi", one.gib * 1_024 - 300).into();
                        left["pods"] = "11".into();
                    }
                    nodes.push(node(&name, &labels, &taints, &left));
                }
            }
        }
    }
    nodes
}
