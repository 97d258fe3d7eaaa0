//! Random dumps of ordinary pods, with pools and a catalogue: everything that a clause is about comes up often.

use serde_json::{Value, json};

use super::kube::HOSTNAME;

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

pub(super) const ZONES: [&str; 3] = ["z-1", "z-2", "z-3"];
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
pub(super) const TYPE: &str = "node.kubernetes.io/instance-type";
pub(super) const CAPACITY_TYPE: &str = "muster.dev/capacity-type";
const TYPES: [(&str, u64, u64, &str); 3] = [("small", 2, 4, "no"), ("medium", 4, 8, "no"), ("large", 8, 16, "yes")];

/// What the command reads.
pub(super) struct Drawn {
    pub(super) objects: Vec<Value>,
    pub(super) catalogue: Value,
}

/// Which constraints this dump is about.
struct Topics {
    selection: bool,
    preferred: bool,
    near: bool,
    away: bool,
    spread: bool,
    anyway: bool,
    soft: bool,
    ports: bool,
}

/// A small dump with everything drawn.
pub(super) fn dump(seed: u64) -> Drawn {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x0dd_ba11);
    dice.roll(2);
    let topics = Topics {
        selection: dice.one_in(2),
        preferred: dice.one_in(2),
        near: dice.one_in(3),
        away: dice.one_in(3),
        spread: dice.one_in(3),
        anyway: dice.one_in(3),
        soft: dice.one_in(3),
        ports: dice.one_in(6),
    };
    let mut objects = Vec::new();
    let pools = 1 + dice.roll(3);
    for number in 0..pools {
        objects.push(pool(&mut dice, number, &topics));
    }
    let mut names = Vec::new();
    for number in 0..if dice.one_in(3) { 0 } else { 1 + dice.roll(3) } {
        let name = format!("n-{number}");
        objects.push(node(&mut dice, &name, &topics));
        names.push(name);
    }
    if dice.one_in(2) {
        for number in 0..1 + dice.roll(2) {
            objects.push(batch(&mut dice, number, &objects[..usize::try_from(pools).unwrap()]));
        }
    }
    let shapes: Vec<Value> = (0..1 + dice.roll(3)).map(|_| shape(&mut dice, &topics)).collect();
    if !names.is_empty() {
        for number in 0..dice.roll(4) {
            let mut pod = pod(&mut dice, &format!("stands-{number}"), &shapes);
            pod["spec"]["nodeName"] = json!(dice.pick(&names));
            pod["status"]["phase"] = json!("Running");
            // What stands is small, so that its node holds it whatever else does.
            pod["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "300m", "memory": "256Mi"});
            pod["spec"]["containers"][0].as_object_mut().unwrap().remove("ports");
            objects.push(pod);
        }
        if dice.one_in(12) {
            let mut pod = pod(&mut dice, "nominated", &[json!({})]);
            pod["metadata"]["labels"] = json!({"app": "none"});
            pod["status"]["nominatedNodeName"] = json!(dice.pick(&names));
            objects.push(pod);
        }
    }
    for number in 0..1 + dice.roll(9) {
        let mut pod = pod(&mut dice, &format!("p-{number}"), &shapes);
        if dice.one_in(20) {
            pod["metadata"]["annotations"] = json!({"muster.dev/do-not-provision": "true"});
            pod["spec"].as_object_mut().unwrap().remove("topologySpreadConstraints");
        }
        objects.push(pod);
    }
    Drawn { objects, catalogue: catalogue(&mut dice) }
}

/// DaemonSets for a dump: they leave something of every node.
pub(super) fn daemon_sets(seed: u64) -> Vec<Value> {
    let mut dice = Dice(seed ^ 0x0dae_0115);
    dice.roll(2);
    let mut one = |number: u64| {
        let requests = json!({"cpu": dice.pick(&["100m", "300m", "700m"]), "memory": dice.pick(&["128Mi", "768Mi"])});
        let mut spec = json!({"containers": [{"name": "c", "image": "registry.example.com/agent:1",
                                              "resources": {"requests": requests}}]});
        match dice.roll(5) {
            0 => spec["nodeSelector"] = json!({ZONE: dice.pick(&ZONES)}),
            1 => spec["nodeSelector"] = json!({"big": dice.pick(&["yes", "no"])}),
            2 => spec["nodeSelector"] = json!({CAPACITY_TYPE: dice.pick(&["spot", "on-demand"])}),
            _ => {}
        }
        if dice.one_in(3) {
            spec["tolerations"] = json!([{"operator": "Exists"}]);
        }
        let labels = json!({"app": "agent"});
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": format!("agent-{number}"), "namespace": "ns", "uid": format!("agent-{number}")},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}})
    };
    (0..2).map(&mut one).collect()
}

fn catalogue(dice: &mut Dice) -> Value {
    let types: Vec<Value> = TYPES
        .iter()
        .map(|(name, cpu, memory, big)| {
            let mut offerings = Vec::new();
            for zone in ZONES {
                let price = 50_000 * cpu + 1_000 * dice.roll(20);
                if !dice.one_in(8) {
                    offerings.push(json!({"zone": zone, "market": "on-demand", "usdMicroPerHour": price,
                                          "available": !dice.one_in(12)}));
                }
                if dice.one_in(2) {
                    let price = price * (30 + dice.roll(80)) / 100;
                    offerings.push(json!({"zone": zone, "market": "spot", "usdMicroPerHour": price,
                                          "available": !dice.one_in(12)}));
                }
            }
            json!({"name": name, "labels": {"kubernetes.io/arch": "amd64", "big": big},
                   "capacity": {"cpu": cpu.to_string(), "memory": format!("{memory}Gi"), "pods": if dice.one_in(4) { "3" } else { "20" }},
                   "overhead": {"cpu": "100m", "memory": "128Mi"}, "offerings": offerings})
        })
        .collect();
    json!({"version": 2, "name": "drawn", "types": types, "prices": []})
}

fn requirement(dice: &mut Dice, of_pod: bool) -> Value {
    let zones = |dice: &mut Dice| match dice.roll(2) {
        0 => json!([dice.pick(&ZONES)]),
        _ => json!([ZONES[usize::try_from(dice.roll(2)).unwrap()], "z-3"]),
    };
    match dice.roll(if of_pod { 7 } else { 5 }) {
        0 | 1 => json!({"key": ZONE, "operator": if dice.one_in(4) { "NotIn" } else { "In" }, "values": zones(dice)}),
        2 => json!({"key": TYPE, "operator": if dice.one_in(2) { "NotIn" } else { "In" },
                    "values": [dice.pick(&["small", "medium", "large"])]}),
        3 => json!({"key": CAPACITY_TYPE, "operator": "In", "values": [dice.pick(&["spot", "on-demand"])]}),
        4 => json!({"key": "big", "operator": "In", "values": [dice.pick(&["yes", "no", "no"])]}),
        5 => json!({"key": "team", "operator": dice.pick(&["In", "NotIn"]), "values": ["blue"]}),
        _ => json!({"key": "team", "operator": dice.pick(&["Exists", "DoesNotExist"])}),
    }
}

fn pool(dice: &mut Dice, number: u64, topics: &Topics) -> Value {
    let mut asked = Vec::new();
    for _ in 0..dice.roll(3) {
        asked.push(requirement(dice, false));
    }
    if dice.one_in(2) {
        asked.push(json!({"key": CAPACITY_TYPE, "operator": "In", "values": ["spot", "on-demand"]}));
    }
    asked.sort_by_key(|one| one["key"].to_string());
    asked.dedup_by_key(|one| one["key"].to_string());
    if dice.one_in(10) && asked.iter().all(|one| one["key"] != TYPE) {
        asked.push(json!({"key": TYPE, "operator": "Exists", "minValues": 2}));
    }
    let mut spec = json!({"nodeClassRef": {"group": "muster.dev", "kind": "EC2NodeClass", "name": "any"},
                          "requirements": asked});
    let mut taints = Vec::new();
    if dice.one_in(5) {
        taints.push(json!({"key": "team", "value": "blue", "effect": "NoSchedule"}));
    }
    if topics.soft && dice.one_in(2) {
        taints.push(json!({"key": "soft", "value": "x", "effect": "PreferNoSchedule"}));
    }
    spec["taints"] = json!(taints);
    let mut template = json!({"spec": spec});
    if dice.one_in(3) {
        template["metadata"] = json!({"labels": {"team": dice.pick(&["blue", "red"])}});
    }
    let mut pool = json!({"apiVersion": "muster.dev/v1alpha1", "kind": "NodePool",
        "metadata": {"name": format!("pool-{number}")}, "spec": {"template": template}});
    if dice.one_in(2) {
        pool["spec"]["weight"] = json!(1 + dice.roll(3));
    }
    match dice.roll(6) {
        0 => pool["spec"]["limits"] = json!({"nodes": 1 + dice.roll(4)}),
        1 => pool["spec"]["limits"] = json!({"cpu": (4 + 4 * dice.roll(5)).to_string()}),
        2 => pool["spec"]["limits"] = json!({"memory": format!("{}Gi", 8 + 8 * dice.roll(4)), "nodes": 3}),
        _ => {}
    }
    pool
}

fn node(dice: &mut Dice, name: &str, topics: &Topics) -> Value {
    let (instance_type, cpu, memory, big) = *dice.pick(&TYPES);
    let mut labels = json!({HOSTNAME: name, ZONE: dice.pick(&ZONES), TYPE: instance_type, "big": big,
        CAPACITY_TYPE: "on-demand", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"});
    if dice.one_in(3) {
        labels["muster.dev/nodepool"] = json!("pool-0");
    }
    if dice.one_in(4) {
        labels["team"] = json!(dice.pick(&["blue", "red"]));
    }
    let mut taints = Vec::new();
    if dice.one_in(6) {
        taints.push(json!({"key": "team", "value": "blue", "effect": "NoSchedule"}));
    }
    if topics.soft && dice.one_in(2) {
        taints.push(json!({"key": "soft", "value": "x", "effect": "PreferNoSchedule"}));
    }
    let cordoned = dice.one_in(12);
    if cordoned {
        taints.push(json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}));
    }
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels, "creationTimestamp": "2026-07-20T08:00:00Z"},
        "spec": {"unschedulable": cordoned, "taints": taints},
        "status": {"capacity": {"cpu": cpu.to_string(), "memory": format!("{memory}Gi"), "pods": "20"},
                   "allocatable": {"cpu": format!("{}m", cpu * 1000 - 100), "memory": format!("{}Mi", memory * 1024 - 128), "pods": "20"},
                   "conditions": [{"type": "Ready", "status": "True"}]}})
}

/// A batch whose instances have no Node yet.
fn batch(dice: &mut Dice, number: u64, pools: &[Value]) -> Value {
    let pool = &dice.pick(pools)["metadata"]["name"];
    let (instance_type, ..) = *dice.pick(&TYPES);
    let (zone, capacity_type) = (*dice.pick(&ZONES), *dice.pick(&["on-demand", "spot"]));
    let count = 1 + dice.roll(2);
    let instances: Vec<Value> = (0..count)
        .map(|one| json!({"id": format!("i-{number}-{one}"), "attempt": 1, "state": "Running", "nodeName": null}))
        .collect();
    json!({"apiVersion": "muster.dev/v1alpha1", "kind": "NodeBatch",
        "metadata": {"name": format!("batch-{number}"), "uid": format!("b-{number}"), "creationTimestamp": "2026-07-20T10:00:00Z"},
        "spec": {"nodePools": [pool], "count": count, "fill": "Partial", "zones": [zone], "capacityType": capacity_type,
                 "offers": [{"nodePool": pool, "instanceType": instance_type, "count": count}]},
        "status": {"version": 1, "phase": "Joining", "nodePool": pool, "instanceType": instance_type, "zone": zone,
                   "market": capacity_type, "count": count, "instances": instances}})
}

fn term(dice: &mut Dice) -> Value {
    let mut term = json!({"topologyKey": dice.pick(&[HOSTNAME, ZONE]),
                          "labelSelector": {"matchLabels": {"app": dice.pick(&["a", "a", "b"])}}});
    if dice.one_in(4) {
        term["namespaceSelector"] = json!({});
    }
    term
}

/// What pods of one controller have in common.
fn shape(dice: &mut Dice, topics: &Topics) -> Value {
    let mut affinity = json!({});
    let mut weight = dice.roll(5);
    if topics.selection && dice.one_in(2) {
        let terms: Vec<Value> =
            (0..1 + dice.roll(2)).map(|_| json!({"matchExpressions": [requirement(dice, true)]})).collect();
        affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": terms});
    }
    let mut weigh = |dice: &mut Dice| {
        weight += 1 + dice.roll(9);
        weight
    };
    if topics.preferred && !dice.one_in(3) {
        let terms: Vec<Value> = (0..1 + dice.roll(2))
            .map(|_| {
                let weight = weigh(dice);
                json!({"weight": weight, "preference": {"matchExpressions": [requirement(dice, true)]}})
            })
            .collect();
        affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = json!(terms);
    }
    for (wanted, kind) in [(topics.near, "podAffinity"), (topics.away, "podAntiAffinity")] {
        if !wanted || dice.one_in(3) {
            continue;
        }
        if dice.one_in(2) {
            affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([term(dice)]);
        } else {
            let weight = weigh(dice);
            affinity[kind]["preferredDuringSchedulingIgnoredDuringExecution"] =
                json!([{"weight": weight, "podAffinityTerm": term(dice)}]);
        }
    }
    let mut spreads = Vec::new();
    for (wanted, when) in [(topics.spread, "DoNotSchedule"), (topics.anyway, "ScheduleAnyway")] {
        if wanted && !dice.one_in(3) {
            let mut spread = json!({"topologyKey": dice.pick(&[HOSTNAME, ZONE, ZONE]), "maxSkew": 1 + dice.roll(2),
                "whenUnsatisfiable": when, "labelSelector": {"matchLabels": {"app": "a"}}});
            if when == "DoNotSchedule" && dice.one_in(6) {
                spread["minDomains"] = json!(1 + dice.roll(3));
            }
            if dice.one_in(6) {
                spread["nodeTaintsPolicy"] = json!("Honor");
            }
            spreads.push(spread);
        }
    }
    let mut tolerations = Vec::new();
    if dice.one_in(3) {
        tolerations.push(json!({"key": "team", "operator": "Equal", "value": "blue", "effect": "NoSchedule"}));
    }
    if topics.soft && dice.one_in(5) {
        tolerations.push(json!({"key": "soft", "operator": "Exists"}));
    }
    let mut container = json!({"resources": {"requests": {
        "cpu": dice.pick(&["300m", "500m", "1", "1500m", "2", "3"]), "memory": dice.pick(&["256Mi", "1Gi", "2Gi", "3Gi"])}}});
    if topics.ports && dice.one_in(2) {
        container["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
    }
    let mut shape = json!({"labels": {"app": dice.pick(&["a", "a", "b"])}, "container": container,
        "spec": {"affinity": affinity, "topologySpreadConstraints": spreads, "tolerations": tolerations}});
    if topics.selection && dice.one_in(4) {
        shape["spec"]["nodeSelector"] = json!({ZONE: dice.pick(&ZONES)});
    }
    shape
}

fn pod(dice: &mut Dice, name: &str, shapes: &[Value]) -> Value {
    let shape = dice.pick(shapes);
    let mut spec = shape["spec"].clone();
    if spec.is_null() {
        spec = json!({});
    }
    let mut container = shape["container"].clone();
    if container.is_null() {
        container = json!({"resources": {"requests": {"cpu": "300m", "memory": "256Mi"}}});
    }
    container["name"] = json!("c");
    container["image"] = json!("registry.example.com/c:1");
    spec["containers"] = json!([container]);
    spec["schedulerName"] = json!("muster");
    if dice.one_in(5) {
        spec["priority"] = json!(dice.roll(3) * 100);
    }
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": if dice.one_in(8) { "other" } else { "ns" }, "uid": format!("uid-{name}"),
                     "labels": shape["labels"], "creationTimestamp": format!("2026-07-20T10:00:0{}Z", dice.roll(4))},
        "spec": spec, "status": {"phase": "Pending"}})
}
