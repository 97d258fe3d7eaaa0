//! What pools offer, by the contract: types of the catalogue that meet the requirements, in zones and capacity types where they
//! are to be had.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::draw::{CAPACITY_TYPE, TYPE, ZONE};
use super::kube::{
    Cluster, Labels, Node, Offered, Phase, Pod, all_hold, bytes, items, labels, milli, requirements, text,
};

/// What a pool of the dump says.
pub(super) struct Pool {
    pub(super) name: String,
    pub(super) weight: u64,
    pub(super) limits: BTreeMap<String, i64>,
    pub(super) min_values: Vec<(String, usize)>,
    startup: Labels,
    taints: Vec<Value>,
    asked: Value,
}

/// One way to launch a node.
pub(super) struct Offer {
    pub(super) pool: usize,
    pub(super) instance_type: String,
    pub(super) zone: String,
    pub(super) capacity_type: String,
    pub(super) price: u64,
    pub(super) node: Node,
    /// What it counts against limits.
    pub(super) counts: BTreeMap<String, i64>,
}

impl Offer {
    /// Whether an entry of the document names it.
    pub(super) fn is(&self, entry: &Value) -> bool {
        entry["type"] == self.instance_type.as_str()
            && entry["zone"] == self.zone.as_str()
            && entry["market"] == self.capacity_type.as_str()
    }
}

pub(super) struct Supply {
    pub(super) pools: Vec<Pool>,
    pub(super) offers: Vec<Offer>,
    types: Vec<Value>,
    /// DaemonSets, each with what its pods are.
    agents: Vec<(Value, Pod)>,
}

impl Supply {
    pub(super) fn of(objects: &[Value], catalogue: &Value) -> Self {
        let pools: Vec<Pool> = objects.iter().filter(|one| one["kind"] == "NodePool").map(pool).collect();
        let types = items(&catalogue["types"]).to_vec();
        let agents = objects.iter().filter(|one| one["kind"] == "DaemonSet").map(|one| (one.clone(), agent(one)));
        let mut supply = Self { pools, offers: Vec::new(), types, agents: agents.collect() };
        for at in 0..supply.pools.len() {
            for one in &supply.types {
                for offering in items(&one["offerings"]).iter().filter(|offering| offering["available"] != false) {
                    let (zone, capacity_type) = (text(&offering["zone"]), text(&offering["market"]));
                    let node = supply.node(at, one, &zone, &capacity_type);
                    // Spot has to be named.
                    let asked = items(&supply.pools[at].asked).iter().any(|one| one["key"] == CAPACITY_TYPE);
                    if (asked || capacity_type != "spot")
                        && all_hold(&requirements(&supply.pools[at].asked), &node.labels)
                    {
                        let counts = counts(one);
                        let price = offering["usdMicroPerHour"].as_u64().unwrap();
                        let instance_type = text(&one["name"]);
                        supply.offers.push(Offer { pool: at, instance_type, zone, capacity_type, price, node, counts });
                    }
                }
            }
        }
        supply
    }

    fn node(&self, pool: usize, of: &Value, zone: &str, capacity_type: &str) -> Node {
        let pool = &self.pools[pool];
        let mut all = pool.startup.clone();
        all.extend(labels(&of["labels"]));
        let known = [
            (TYPE, of["name"].as_str().unwrap()),
            (ZONE, zone),
            (CAPACITY_TYPE, capacity_type),
            ("muster.dev/nodepool", &pool.name),
        ];
        all.extend(known.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let free = |name: &str, read: &dyn Fn(&Value) -> i64| read(&of["capacity"][name]) - read(&of["overhead"][name]);
        let mut node = Node {
            name: String::new(),
            phase: Phase::New,
            labels: all,
            taints: pool.taints.clone(),
            cpu: free("cpu", &milli),
            memory: free("memory", &bytes),
            pods: of["capacity"]["pods"].as_str().unwrap().parse().unwrap(),
        };
        let held: Vec<[i64; 3]> = self.agents_of(&node).map(|(_, pod)| [pod.cpu, pod.memory, 1]).collect();
        for [cpu, memory, pods] in held {
            node.cpu -= cpu;
            node.memory -= memory;
            node.pods -= pods;
        }
        node
    }

    /// DaemonSets that run on a node.
    pub(super) fn agents_of(&self, node: &Node) -> impl Iterator<Item = &(Value, Pod)> {
        let runs = |pod: &Pod| pod.selects(&node.labels) && !pod.refuses(node, &["NoSchedule", "NoExecute"]);
        self.agents.iter().filter(move |(_, pod)| runs(pod))
    }

    /// What a node of a document is.
    pub(super) fn launched(&self, node: &Value) -> &Node {
        let is = |offer: &&Offer| node["pool"] == self.pools[offer.pool].name.as_str() && offer.is(node);
        &self.offers.iter().find(is).unwrap().node
    }

    /// Nodes of a batch that have no Node yet.
    fn joining(&self, batch: &Value) -> Vec<(usize, Node, BTreeMap<String, i64>)> {
        let status = &batch["status"];
        let pool = self.pools.iter().position(|pool| status["nodePool"] == pool.name.as_str()).unwrap();
        let of = self.types.iter().find(|one| one["name"] == status["instanceType"]).unwrap();
        let node = self.node(pool, of, status["zone"].as_str().unwrap(), status["market"].as_str().unwrap());
        let name = batch["metadata"]["name"].as_str().unwrap();
        (0..items(&status["instances"]).len())
            .map(|number| {
                (pool, Node { name: format!("{name}/{number}"), phase: Phase::Joining, ..node.clone() }, counts(of))
            })
            .collect()
    }

    /// The nodes of a dump, and what each pool has used of its limits.
    pub(super) fn standing(&self, objects: &[Value]) -> (Vec<Node>, Vec<BTreeMap<String, i64>>) {
        let (mut nodes, mut used) = (Vec::new(), vec![BTreeMap::new(); self.pools.len()]);
        let mut count = |pool: usize, counts: &BTreeMap<String, i64>| {
            for (name, amount) in counts {
                *used[pool].entry(name.clone()).or_insert(0) += amount;
            }
        };
        for object in objects {
            if object["kind"] == "Node" {
                let node = running(object);
                let pool = node.labels.get("muster.dev/nodepool");
                if let Some(pool) = pool.and_then(|name| self.pools.iter().position(|pool| pool.name == *name)) {
                    count(pool, &counts(&object["status"]));
                }
                nodes.push(node);
            } else if object["kind"] == "NodeBatch" {
                for (pool, node, counts) in self.joining(object) {
                    count(pool, &counts);
                    nodes.push(node);
                }
            }
        }
        (nodes, used)
    }

    /// Values of the keys of a pod's spread constraints for which there is an offer that holds it.
    pub(super) fn offered(&self, pod: &Pod) -> Offered {
        let values = |key: &String| -> BTreeSet<String> {
            let holds = self.offers.iter().filter(|offer| pod.fits_alone(&offer.node));
            holds.filter_map(|offer| offer.node.labels.get(key).cloned()).collect()
        };
        pod.spread_keys().into_iter().map(|key| (key.clone(), values(&key))).collect()
    }

    /// The cluster with one more node of an offer, and its number.
    pub(super) fn with_one_more<'a>(&self, cluster: &Cluster<'a>, offer: usize) -> (Cluster<'a>, usize) {
        let mut more = cluster.clone();
        more.nodes.push(Node { name: "one-more".to_owned(), ..self.offers[offer].node.clone() });
        let at = more.nodes.len() - 1;
        (more, at)
    }
}

/// A pod of a DaemonSet.
fn agent(object: &Value) -> Pod {
    let mut metadata = object["spec"]["template"]["metadata"].clone();
    metadata["namespace"] = object["metadata"]["namespace"].clone();
    Pod::of(&serde_json::json!({"metadata": metadata, "spec": object["spec"]["template"]["spec"]}))
}

fn pool(object: &Value) -> Pool {
    let template = &object["spec"]["template"];
    let asked = &template["spec"]["requirements"];
    let min_values = items(asked)
        .iter()
        .filter_map(|one| Some((text(&one["key"]), usize::try_from(one["minValues"].as_u64()?).unwrap())));
    let limits = object["spec"]["limits"].as_object().into_iter().flatten();
    Pool {
        name: text(&object["metadata"]["name"]),
        weight: object["spec"]["weight"].as_u64().unwrap_or(0),
        limits: limits.map(|(name, value)| (name.clone(), amount(name, value))).collect(),
        min_values: min_values.collect(),
        startup: labels(&template["metadata"]["labels"]),
        taints: items(&template["spec"]["taints"]).to_vec(),
        asked: asked.clone(),
    }
}

fn running(object: &Value) -> Node {
    let free = &object["status"]["allocatable"];
    let mut taints = items(&object["spec"]["taints"]).to_vec();
    if object["spec"]["unschedulable"] == true {
        taints.push(serde_json::json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}));
    }
    Node {
        name: text(&object["metadata"]["name"]),
        phase: Phase::Ready,
        labels: labels(&object["metadata"]["labels"]),
        taints,
        cpu: milli(&free["cpu"]),
        memory: bytes(&free["memory"]),
        pods: free["pods"].as_str().unwrap().parse().unwrap(),
    }
}

/// An amount of a limit, by its name.
pub(super) fn amount(name: &str, value: &Value) -> i64 {
    match name {
        "cpu" => milli(value),
        "nodes" => value.as_i64().unwrap_or_else(|| text(value).parse().unwrap()),
        _ => bytes(value),
    }
}

fn counts(of: &Value) -> BTreeMap<String, i64> {
    let capacity = &of["capacity"];
    [("cpu", milli(&capacity["cpu"])), ("memory", bytes(&capacity["memory"])), ("nodes", 1)]
        .map(|(name, amount)| (name.to_owned(), amount))
        .into()
}
