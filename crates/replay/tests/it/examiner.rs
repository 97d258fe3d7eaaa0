//! An outside examiner of what the published document does with ordinary pods: it reads the dump and the catalogue itself, knows
//! the contract and kube-scheduler's filters, and shares no code with the planner.

mod draw;
mod kube;
mod rules;
mod supply;

use muster_replay::command::{self, Arguments, Format};
use muster_replay::dump::Input;
use serde_json::{Value, json};

use supply::Supply;

/// Dumps that are drawn, and those with DaemonSets: twice as many with `MUSTER_SOAK`.
const SEEDS: u64 = 600;
const WITH_DAEMON_SETS: u64 = 150;

fn seeds(usual: u64) -> std::ops::Range<u64> {
    0..if std::env::var_os("MUSTER_SOAK").is_some() { 2 * usual } else { usual }
}

fn document(objects: &[Value], catalogue: &Value) -> Value {
    let text = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let catalogue = catalogue.to_string();
    let output = command::run(&Arguments {
        files: vec![Input { name: "dump.json", text: &text }],
        format: Format::Json,
        catalogue: Some(Input { name: "drawn.json", text: &catalogue }),
        ..Arguments::default()
    })
    .unwrap();
    serde_json::from_str(&output.text).unwrap()
}

/// The dump after the document was carried out: its nodes are Ready, those on their way before them, and every pod that has a
/// node there is is bound. A document without nodes is looked at while nodes are still on their way.
fn carried_out(objects: &[Value], supply: &Supply, document: &Value) -> Vec<Value> {
    let mut after = objects.to_vec();
    let launches = !kube::items(&document["nodes"]).is_empty();
    if launches {
        let (nodes, _) = supply.standing(objects);
        after.retain(|one| one["kind"] != "NodeBatch");
        for mut node in nodes.into_iter().filter(|node| node.phase == kube::Phase::Joining) {
            node.name = node.name.replace('/', "-");
            node.labels.insert(kube::HOSTNAME.to_owned(), node.name.clone());
            let agents: Vec<_> = supply.agents_of(&node).collect();
            node.cpu += agents.iter().map(|(_, pod)| pod.cpu).sum::<i64>();
            node.memory += agents.iter().map(|(_, pod)| pod.memory).sum::<i64>();
            node.pods += i64::try_from(agents.len()).unwrap();
            after.push(joined(&node));
            after.extend(agents.into_iter().map(|(of, _)| agent(of, &node.name)));
        }
    }
    for node in kube::items(&document["nodes"]) {
        let name = kube::text(&node["id"]).replace('/', "-");
        let mut labels = node["labels"].clone();
        labels[kube::HOSTNAME] = json!(name);
        let of = |pod: &Value| node["id"] == pod["node"];
        assert!(kube::items(&document["pods"]).iter().any(of));
        let mut capacity = node["allocatable"].clone();
        capacity["cpu"] = json!(format!("{}m", kube::milli(&capacity["cpu"]) + 100));
        capacity["memory"] = json!((kube::bytes(&capacity["memory"]) + (128 << 20)).to_string());
        after.push(json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels, "creationTimestamp": "2026-07-20T11:00:00Z"},
            "spec": {"taints": node["taints"]},
            "status": {"capacity": capacity, "allocatable": node["allocatable"],
                       "conditions": [{"type": "Ready", "status": "True"}]}}));
        let stands = supply.launched(node);
        after.extend(supply.agents_of(stands).map(|(of, _)| agent(of, &name)));
    }
    for entry in kube::items(&document["pods"]) {
        let bound = match entry["outcome"].as_str().unwrap() {
            "buy" | "placed" => true,
            outcome => outcome == "joining" && launches,
        };
        if !bound {
            continue;
        }
        let of = |one: &&mut Value| {
            one["kind"] == "Pod"
                && one["metadata"]["name"] == entry["name"]
                && one["metadata"]["namespace"] == entry["namespace"]
        };
        let pod = after.iter_mut().find(of).unwrap();
        pod["spec"]["nodeName"] = json!(kube::text(&entry["node"]).replace('/', "-"));
        pod["status"] = json!({"phase": "Running"});
    }
    after
}

/// The pod of a DaemonSet on a node.
fn agent(of: &Value, node: &str) -> Value {
    let name = format!("{}-{node}", kube::text(&of["metadata"]["name"]));
    let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": of["metadata"]["name"],
                       "uid": of["metadata"]["uid"], "controller": true});
    let template = &of["spec"]["template"];
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"],
                         "status": {"phase": "Running"}});
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["uid"] = json!(name);
    pod["metadata"]["namespace"] = of["metadata"]["namespace"].clone();
    pod["metadata"]["ownerReferences"] = json!([owner]);
    pod["spec"]["nodeName"] = json!(node);
    pod
}

/// A node that has joined.
fn joined(node: &kube::Node) -> Value {
    let amounts = |cpu: i64, memory: i64| json!({"cpu": format!("{cpu}m"), "memory": memory.to_string(), "pods": node.pods.to_string()});
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node.name, "labels": node.labels, "creationTimestamp": "2026-07-20T10:30:00Z"},
        "spec": {"taints": node.taints},
        "status": {"capacity": amounts(node.cpu + 100, node.memory + (128 << 20)), "allocatable": amounts(node.cpu, node.memory),
                   "conditions": [{"type": "Ready", "status": "True"}]}})
}

/// P10: nobody moves once the document was carried out.
fn moved(objects: &[Value], catalogue: &Value, supply: &Supply, first: &Value) -> Vec<String> {
    let second = document(&carried_out(objects, supply, first), catalogue);
    // What limits were charged for alternatives that the nodes did not become is left again (P9).
    let limits = |document: &'_ Value| kube::items(&document["limits"]).to_vec();
    let charged = limits(first).iter().zip(limits(&second)).any(|(before, after)| {
        let amount = |value: &Value| supply::amount(&kube::text(&before["resource"]), value);
        amount(&before["used"]) + amount(&before["planned"]) > amount(&after["used"])
    });
    let stays_out = |name: &Value| {
        let annotated = |one: &Value| one["metadata"]["annotations"]["muster.dev/do-not-provision"] == "true";
        objects.iter().any(|one| one["metadata"]["name"] == *name && annotated(one))
    };
    let mut faults = Vec::new();
    for entry in kube::items(&second["pods"]) {
        let same = |one: &&Value| one["uid"] == entry["uid"];
        let before = kube::items(&first["pods"]).iter().find(same).unwrap();
        // Nobody stands yet who is planned on a node that is joining, and who gets no node of its own may use those of others.
        let free = before["outcome"] == "joining" && entry["outcome"] != "buy"
            || stays_out(&before["name"])
            || before["outcome"] == "refused" && charged;
        if before["node"] != entry["node"] && !free {
            faults.push(format!("P10: {} was on {} and is on {}", entry["name"], before["node"], entry["node"]));
        }
    }
    faults
}

fn examined(seed: u64, daemon_sets: bool) -> (Value, Vec<String>) {
    let mut drawn = draw::dump(seed);
    if daemon_sets {
        drawn.objects.extend(draw::daemon_sets(seed));
    }
    let document = document(&drawn.objects, &drawn.catalogue);
    let supply = Supply::of(&drawn.objects, &drawn.catalogue);
    let pods = rules::pods(&drawn.objects);
    let mut faults = rules::faults(&drawn.objects, &pods, &supply, &document);
    if faults.is_empty() {
        faults = moved(&drawn.objects, &drawn.catalogue, &supply, &document);
    }
    (document, faults)
}

#[test]
fn random_dumps_are_planned_so_that_the_examiner_finds_no_fault() {
    let mut wrong = Vec::new();
    let mut seen = std::collections::BTreeMap::<String, u32>::new();
    for seed in seeds(SEEDS) {
        let (document, faults) = examined(seed, false);
        for entry in kube::items(&document["pods"]) {
            *seen.entry(kube::text(&entry["outcome"])).or_default() += 1;
            let relaxed = u32::try_from(kube::items(&entry["relaxed"]).len()).unwrap();
            *seen.entry("relaxed".to_owned()).or_default() += relaxed;
        }
        if !faults.is_empty() {
            wrong.push(format!("seed {seed}: {}", faults.join("\n    ")));
        }
    }
    assert!(wrong.is_empty(), "{} dumps\n{}\n{seen:?}", wrong.len(), wrong.join("\n"));
    let many = |outcome: &str| seen.get(outcome).copied().unwrap_or(0) > 100;
    assert!(["placed", "joining", "buy", "refused", "relaxed"].into_iter().all(many), "{seen:?} shows too little");
}

#[test]
fn dumps_with_daemon_sets_are_planned_so_that_the_examiner_finds_no_fault() {
    let examined = seeds(WITH_DAEMON_SETS).map(|seed| (seed, examined(seed, true).1));
    let wrong: Vec<String> = examined
        .filter(|(_, faults)| !faults.is_empty())
        .map(|(seed, faults)| format!("seed {seed}: {}", faults.join("\n    ")))
        .collect();
    assert!(wrong.is_empty(), "{} dumps\n{}", wrong.len(), wrong.join("\n"));
}
