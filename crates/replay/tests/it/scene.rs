//! Objects and catalogues of small scenes, and their documents.

use muster_replay::command::{self, Arguments, Format};
use muster_replay::dump::Input;
use serde_json::{Value, json};

/// The document of some objects with a catalogue, made for a moment.
pub(crate) fn planned_at(now: Option<&str>, objects: &[Value], catalogue: &Value) -> Value {
    let text = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let catalogue = catalogue.to_string();
    let output = command::run(&Arguments {
        files: vec![Input { name: "dump.json", text: &text }],
        format: Format::Json,
        catalogue: Some(Input { name: "scene.json", text: &catalogue }),
        now,
        ..Arguments::default()
    });
    serde_json::from_str(&output.unwrap().text).unwrap()
}

/// The document of some objects with a catalogue.
pub(crate) fn planned(objects: &[Value], catalogue: &Value) -> Value {
    planned_at(None, objects, catalogue)
}

/// NodePool `p` of EC2NodeClass `c`.
pub(crate) fn pool(change: impl FnOnce(&mut Value)) -> Value {
    let mut pool = json!({"apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "p"},
        "spec": {"template": {"spec": {"nodeClassRef": {"group": "muster.dev", "kind": "EC2NodeClass", "name": "c"},
                                       "requirements": []}}}});
    change(&mut pool);
    pool
}

/// EC2NodeClass `c` without a status.
pub(crate) fn class(change: impl FnOnce(&mut Value)) -> Value {
    let mut class = json!({"apiVersion": "muster.dev/v1alpha1", "kind": "EC2NodeClass", "metadata": {"name": "c"},
        "spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}], "instanceProfile": "nodes",
                 "subnetSelectorTerms": [{"id": "subnet-1"}], "securityGroupSelectorTerms": [{"id": "sg-1"}]}});
    change(&mut class);
    class
}

/// A pending pod of no gang.
pub(crate) fn pod(name: &str, cpu: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": "2026-07-20T10:00:00Z"},
        "spec": {"schedulerName": "muster",
                 "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]},
        "status": {"phase": "Pending"}});
    change(&mut pod);
    pod
}

/// Job `g` whose pods, of which none exists, are a gang.
pub(crate) fn job(pods: u32, cpu: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut job = json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "g", "namespace": "ns", "uid": "job-g", "creationTimestamp": "2026-07-20T09:00:00Z"},
        "spec": {"completionMode": "Indexed", "completions": pods, "parallelism": pods, "backoffLimit": 0, "template": {
            "metadata": {"annotations": {"muster.dev/gang": "g"}},
            "spec": {"schedulerName": "muster", "restartPolicy": "Never",
                     "containers": [{"name": "w", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]}}}});
    change(&mut job);
    job
}

/// A Node, of the pool if it says so.
pub(crate) fn node(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-07-20T09:58:00Z",
                     "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "z-1"}},
        "spec": {},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "20"},
                   "conditions": [{"type": "Ready", "status": "True"}]}});
    change(&mut node);
    node
}

/// A type that is described by its amounts, sold in zone `z-1` on demand unless that is changed.
pub(crate) fn described(name: &str, cpu: &str, price: u64, change: impl FnOnce(&mut Value)) -> Value {
    let mut offering = json!({"zone": "z-1", "market": "on-demand", "usdMicroPerHour": price, "available": true,
                              "reservation": null, "free": null});
    change(&mut offering);
    json!({"name": name, "labels": {"kubernetes.io/arch": "amd64"},
           "capacity": {"cpu": cpu, "memory": "8Gi", "pods": "20"}, "overhead": {}, "offerings": [offering]})
}

/// A type in EC2's form.
pub(crate) fn of_ec2(name: &str, vcpu: u32) -> Value {
    json!({"name": name, "vcpu": vcpu, "memoryMib": u64::from(vcpu) * 4096, "gpus": [], "neuronDevices": 0, "efaMax": 0,
           "networkCards": [{"index": 0, "kinds": ["interface"], "maxInterfaces": 4}], "ipv4PerInterface": 15,
           "supportsClusterGroup": true, "usageClasses": ["on-demand", "spot"], "architectures": ["x86_64"]})
}

/// An on-demand price of a type in a zone.
pub(crate) fn price(name: &str, zone: &str, price: u64) -> Value {
    json!({"type": name, "zone": zone, "market": "on-demand", "usdMicroPerHour": price})
}

/// A catalogue.
pub(crate) fn catalogue(types: &[Value], prices: &[Value]) -> Value {
    json!({"version": 2, "name": "scene", "types": types, "prices": prices})
}

/// Outcome and node of each pod of no gang.
pub(crate) fn places(document: &Value) -> Vec<(&str, Option<&str>)> {
    let pods = document["pods"].as_array().unwrap().iter();
    pods.map(|pod| (pod["outcome"].as_str().unwrap(), pod["node"].as_str())).collect()
}

/// Code, pool, type and shortage of a reason.
type Reason<'d> = (&'d str, Option<&'d str>, Option<&'d str>, Option<u64>);

/// The reasons of a pod of no gang.
pub(crate) fn reasons(document: &Value, pod: usize) -> Vec<Reason<'_>> {
    let reasons = document["pods"][pod]["reasons"].as_array().unwrap().iter();
    reasons
        .map(|reason| {
            let text = |key: &str| reason[key].as_str();
            (text("code").unwrap(), text("pool"), text("type"), reason["short"].as_u64())
        })
        .collect()
}
