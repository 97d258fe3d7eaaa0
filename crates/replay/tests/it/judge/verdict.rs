//! What is wrong with a document, gang by gang in its order, each on what those before it left.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::cluster::{JudgedCluster, JudgedNode, JudgedPod};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";
/// More placements than this are not tried one by one.
const MOST_TRIED: u64 = 300_000;

/// A gang as its pods describe it.
struct JudgedGang<'a> {
    pods: Vec<&'a JudgedPod>,
    size: usize,
    min: usize,
    required: Option<usize>,
}

/// Every fault found.
pub(super) fn faults(objects: &[Value], document: &Value, code: u8) -> Vec<String> {
    let mut faults = Vec::new();
    let cluster = JudgedCluster::read(objects);
    let mut nodes = cluster.nodes.clone();
    let mut complete = true;
    let mut before: Option<(i64, String, String, String)> = None;
    for entry in document["gangs"].as_array().unwrap() {
        let (namespace, name) = (entry["namespace"].as_str().unwrap(), entry["name"].as_str().unwrap());
        let mut fault = |what: String| faults.push(format!("{namespace}/{name}: {what}"));
        complete &= matches!(entry["outcome"].as_str().unwrap(), "placed" | "buy");
        let keys: Vec<&str> =
            entry["levels"].as_array().unwrap().iter().map(|level| level["key"].as_str().unwrap()).collect();
        if keys.last() != Some(&HOST) {
            fault("the last level is not the host".to_owned());
        }
        let gang = describe(&cluster, namespace, name, &keys);
        if let Some(first) = gang.pods.iter().min_by_key(|pod| &pod.created) {
            let priority = gang.pods.iter().map(|pod| pod.priority).max().unwrap();
            let key = (-priority, first.created.clone(), namespace.to_owned(), name.to_owned());
            if before.as_ref().is_some_and(|before| *before > key) {
                fault("is out of order".to_owned());
            }
            before = Some(key);
        }
        match entry["outcome"].as_str().unwrap() {
            "placed" => judge_placed(&gang, entry, &keys, &mut nodes, &mut fault),
            "refused" => judge_refused(&gang, entry, &keys, &nodes, &mut fault),
            "waiting" => {
                let ready = gang.pods.iter().filter(|pod| !pod.foreign_gate).count();
                if ready >= gang.min {
                    fault(format!("waits with {ready} members, {} needed", gang.min));
                }
            }
            "invalid" => {}
            other => fault(format!("outcome {other} is not expected here")),
        }
        if entry["outcome"] != "placed" && !entry["members"].as_array().unwrap().is_empty() {
            fault("has members without a plan".to_owned());
        }
    }
    for entry in document["pods"].as_array().unwrap() {
        let name = entry["name"].as_str().unwrap();
        let found = cluster.pods.iter().find(|pod| pod.name == name && entry["namespace"] == *pod.namespace);
        let Some(pod) = found else {
            faults.push(format!("pod {name} is not in the dump"));
            continue;
        };
        match entry["node"].as_str() {
            // A node to launch: the packing planner has a judge of its own.
            Some(on) if on.starts_with("new/") => {}
            Some(on) => match nodes.iter_mut().find(|node| node.name == on) {
                Some(node) if node.slots(pod) > 0 => node.take(&pod.requests),
                Some(_) | None => faults.push(format!("pod {name} does not fit {on}")),
            },
            None => {
                complete = false;
                let unknown = entry["outcome"] == "waiting";
                if !pod.foreign_gate && !unknown && nodes.iter().any(|node| node.slots(pod) > 0) {
                    faults.push(format!("pod {name} fits a node and gets none"));
                }
            }
        }
    }
    if code != if complete { 0 } else { 3 } {
        faults.push(format!("exit code {code}"));
    }
    faults
}

fn describe<'a>(cluster: &'a JudgedCluster, namespace: &str, name: &str, keys: &[&str]) -> JudgedGang<'a> {
    let own = |key: &str| format!("{}.dev/{key}", "muster");
    let mine = |pod: &&JudgedPod| {
        pod.ours && pod.namespace == namespace && pod.annotations.get(&own("gang")).is_some_and(|of| of == name)
    };
    let all: Vec<&JudgedPod> = cluster.pods.iter().filter(mine).collect();
    let pods: Vec<&JudgedPod> = all.iter().copied().filter(|pod| pod.live).collect();
    let number = |key: &str| pods.first().and_then(|pod| pod.annotations.get(&own(key))?.parse::<usize>().ok());
    let done = all.iter().filter(|pod| pod.succeeded).count();
    let size = number("gang-size").unwrap_or(pods.len()).saturating_sub(done);
    let min = number("gang-min").map_or(size, |min| min.saturating_sub(done)).min(size);
    let topology_request = pods.first().and_then(|pod| pod.annotations.get(&own("topology-required")));
    let required = match topology_request.map(String::as_str) {
        Some("leaf") => keys.len().checked_sub(2),
        Some("host") => Some(keys.len() - 1),
        Some("zone") | None => keys.iter().position(|key| *key == ZONE),
        Some(key) => keys.iter().position(|level| *level == key || level.ends_with(&format!("node-{key}"))),
    };
    JudgedGang { pods, size, min, required }
}

/// The path of a node down to a level: one step per level, absent labels included; where no network label is known, the
/// node is a domain of its own.
fn path(node: &JudgedNode, keys: &[&str], level: usize) -> Vec<String> {
    let network = network(keys);
    let own = !network.is_empty() && network.clone().all(|level| !node.labels.contains_key(keys[level]));
    (0..=level)
        .map(|level| match node.labels.get(keys[level]) {
            _ if level + 1 == keys.len() => format!("host {}", node.name),
            Some(label) => format!("label {label}"),
            None if own && network.contains(&level) => format!("own {}", node.name),
            None => "absent".to_owned(),
        })
        .collect()
}

fn network(keys: &[&str]) -> std::ops::Range<usize> {
    let first = keys.iter().position(|key| *key == ZONE).map_or(0, |zone| zone + 1);
    first..keys.len() - 1
}

/// Whether the node can be part of a domain that is required.
fn satisfies(node: &JudgedNode, keys: &[&str], level: usize) -> bool {
    let mut network = network(keys);
    let leaf = network.end.checked_sub(1).filter(|leaf| network.contains(leaf)) == Some(level);
    level + 1 == keys.len()
        || node.labels.contains_key(keys[level])
        || (leaf && network.any(|level| node.labels.contains_key(keys[level])))
}

fn used(nodes: &[&JudgedNode], keys: &[&str]) -> Vec<u64> {
    (0..keys.len())
        .map(|level| nodes.iter().map(|node| path(node, keys, level)).collect::<BTreeSet<_>>().len() as u64)
        .collect()
}

fn judge_placed(
    gang: &JudgedGang<'_>,
    entry: &Value,
    keys: &[&str],
    nodes: &mut [JudgedNode],
    fault: &mut dyn FnMut(String),
) {
    let members = entry["members"].as_array().unwrap();
    let best = best(gang, keys, nodes);
    let mut on: Vec<JudgedNode> = Vec::new();
    let mut ranks = BTreeSet::new();
    for member in members {
        let (rank, name) = (member["rank"].as_u64().unwrap(), member["node"].as_str().unwrap());
        if !ranks.insert(rank) || rank >= gang.size as u64 {
            fault(format!("rank {rank} is wrong"));
        }
        let pod = gang.pods.iter().find(|pod| member["pod"] == *pod.name).copied();
        if pod.is_none() && !member["pod"].is_null() {
            fault(format!("pod {} is no live member", member["pod"]));
        }
        let running = pod.is_some_and(|pod| pod.node.is_some());
        if running != (member["state"] == "running") {
            fault(format!("rank {rank}: state {}", member["state"]));
        }
        if let Some(claimed) = pod.and_then(|pod| own_rank(gang, pod)).filter(|claimed| *claimed != rank) {
            fault(format!("rank {rank} instead of {claimed}"));
        }
        if running && !nodes.iter().any(|node| node.name == name) {
            // It runs on a node that the dump does not hold: nothing is known of it.
            on.push(JudgedNode::unknown(name));
            continue;
        }
        let Some(node) = nodes.iter_mut().find(|node| node.name == name) else {
            fault(format!("node {name} does not exist"));
            continue;
        };
        let pattern = pod.or(gang.pods.first().copied()).unwrap();
        if running {
            if pod.and_then(|pod| pod.node.as_deref()) != Some(name) {
                fault(format!("rank {rank} runs elsewhere"));
            }
        } else if node.slots(pattern) < 1 {
            fault(format!("rank {rank} does not fit {name}"));
        } else {
            node.take(&pattern.requests);
        }
        on.push(node.clone());
    }
    if ranks.iter().copied().ne(0..members.len() as u64) && members.len() == gang.size {
        fault("ranks have holes".to_owned());
    }
    if members.len() < gang.min {
        fault(format!("{} members, {} needed", members.len(), gang.min));
    }
    // Where everybody runs already nothing is decided.
    let planned = members.iter().any(|member| member["state"] == "planned");
    if let Some(level) = gang.required.filter(|_| planned) {
        let domains: BTreeSet<Vec<String>> = on.iter().map(|node| path(node, keys, level)).collect();
        if domains.len() > 1 || on.iter().any(|node| !satisfies(node, keys, level)) {
            fault(format!("is not in one domain of {}", keys[level]));
        }
    }
    let numbers = |field: &str| -> Vec<u64> {
        entry["levels"].as_array().unwrap().iter().map(|level| level[field].as_u64().unwrap_or(u64::MAX)).collect()
    };
    let truth = used(&on.iter().collect::<Vec<_>>(), keys);
    if numbers("used") != truth {
        fault(format!("levels.used is {:?}, in truth {truth:?}", numbers("used")));
    }
    match best {
        _ if !planned => {}
        Tried::Best(levels, most) => {
            if numbers("optimum") != levels {
                fault(format!("levels.optimum is {:?}, in truth {levels:?}", numbers("optimum")));
            }
            if truth != levels || members.len() != most {
                fault(format!("uses {truth:?} for {} members, best is {levels:?} for {most}", members.len()));
            }
        }
        Tried::None => fault("is placed where no placement is allowed".to_owned()),
        Tried::TooMany => {}
    }
}

fn judge_refused(
    gang: &JudgedGang<'_>,
    entry: &Value,
    keys: &[&str],
    nodes: &[JudgedNode],
    fault: &mut dyn FnMut(String),
) {
    if entry["reasons"].as_array().unwrap().is_empty() {
        fault("is refused without a reason".to_owned());
    }
    let odd = entry["reasons"].as_array().unwrap().iter().any(|reason| {
        matches!(reason["code"].as_str(), Some("MixedShapes" | "Unsupported" | "BoundOutside" | "UnknownLevel"))
    });
    if let Tried::Best(levels, most) = best(gang, keys, nodes)
        && !odd
    {
        fault(format!("is refused, yet {most} members fit with {levels:?}"));
    }
}

/// The rank a pod claims, if no other live member claims the same.
fn own_rank(gang: &JudgedGang<'_>, pod: &JudgedPod) -> Option<u64> {
    let key = format!("{}.dev/rank", "muster");
    let rank = |pod: &JudgedPod| pod.annotations.get(&key).and_then(|rank| rank.parse::<u64>().ok());
    let own = rank(pod).filter(|rank| *rank < gang.size as u64)?;
    (gang.pods.iter().filter(|other| rank(other) == Some(own)).count() == 1).then_some(own)
}

/// What trying everything says.
enum Tried {
    /// Most members, and for them fewest domains per level, top to bottom.
    Best(Vec<u64>, usize),
    None,
    TooMany,
}

fn best(gang: &JudgedGang<'_>, keys: &[&str], nodes: &[JudgedNode]) -> Tried {
    let Some(pattern) = gang.pods.first() else { return Tried::TooMany };
    let mut bound: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in &gang.pods {
        if let Some(node) = pod.node.as_deref() {
            *bound.entry(node).or_default() += 1;
        }
    }
    let running: usize = bound.values().sum();
    let most = gang.size.saturating_sub(running);
    let slots: Vec<usize> =
        nodes.iter().map(|node| usize::try_from(node.slots(pattern)).unwrap_or(0).min(most)).collect();
    let count = slots.iter().try_fold(1_u64, |product, slots| product.checked_mul(*slots as u64 + 1));
    if count.is_none_or(|count| count > MOST_TRIED) {
        return Tried::TooMany;
    }
    let mut best: Option<(usize, Vec<u64>)> = None;
    let mut counts = vec![0_usize; nodes.len()];
    loop {
        let total = counts.iter().sum::<usize>() + running;
        if total >= gang.min && total <= gang.size {
            let on: Vec<&JudgedNode> = nodes
                .iter()
                .zip(&counts)
                .filter(|(node, count)| **count > 0 || bound.contains_key(node.name.as_str()))
                .map(|(node, _)| node)
                .collect();
            let allowed = gang.required.is_none_or(|level| {
                on.iter().map(|node| path(node, keys, level)).collect::<BTreeSet<_>>().len() <= 1
                    && on.iter().all(|node| satisfies(node, keys, level))
            });
            let key = (gang.size - total, used(&on, keys));
            if allowed && best.as_ref().is_none_or(|best| key < *best) {
                best = Some(key);
            }
        }
        let Some(next) = (0..nodes.len()).find(|at| counts[*at] < slots[*at]) else { break };
        counts[next] += 1;
        counts[..next].fill(0);
    }
    best.map_or(Tried::None, |(short, levels)| Tried::Best(levels, gang.size - short))
}
