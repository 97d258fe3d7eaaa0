//! Preferences that must cost nobody a node or a place, minValues that nothing reaches, limits on nothing, and nodes of pools that are gone.

use serde_json::{Value, json};

use crate::ordinary::planned;

/// A catalogue of types with 4 CPUs each: name, size, capacity type, reservation.
fn catalogue(types: &[(&str, &str, &str, Option<&str>)]) -> String {
    let of = |(name, size, capacity_type, reservation): &(&str, &str, &str, Option<&str>)| {
        json!({
            "name": name, "labels": {"kubernetes.io/arch": "amd64", "size": size},
            "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"}, "overhead": {"cpu": "100m", "memory": "100Mi"},
            "offerings": [{"zone": "z-1", "market": capacity_type, "usdMicroPerHour": 100_000, "available": true,
                           "reservation": reservation, "free": reservation.map(|_| 2)}]
        })
    };
    json!({"version": 2, "name": "small", "types": types.iter().map(of).collect::<Vec<_>>(), "prices": []}).to_string()
}

fn pool(name: &str, requirements: &str) -> String {
    format!(
        "---\napiVersion: muster.dev/v1alpha1\nkind: NodePool\nmetadata: {{name: {name}}}\nspec: {{template: {{spec: {{nodeClassRef: \
         {{group: muster.dev, kind: EC2NodeClass, name: c}}, requirements: [{requirements}]}}}}}}\n"
    )
}

fn pod(name: &str, more: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: d, uid: {name}}}\nspec: {{schedulerName: muster, \
         containers: [{{name: m, image: i, resources: {{requests: {{cpu: \"1\", memory: 1Gi}}}}}}]{more}}}\nstatus: {{phase: Pending}}\n"
    )
}

fn cost(document: &Value) -> &Value {
    &document["cost"]["usdMicroPerHour"]
}

#[test]
fn a_pod_that_drops_a_preference_takes_what_a_new_node_of_others_has_left() {
    let unmet = ", affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 50, preference: \
                 {matchExpressions: [{key: disk, operator: In, values: [ssd]}]}}]}}";
    let catalogue = catalogue(&[("m", "large", "on-demand", None)]);
    for order in [["a", "b", "c"], ["b", "a", "c"], ["c", "b", "a"]] {
        let [one, two, picky] = order;
        let dump = pool("p", "") + &pod(one, "") + &pod(two, "") + &pod(picky, unmet);
        let (document, code) = planned(&dump, &catalogue);
        assert_eq!((cost(&document), code), (&json!(100_000), 0), "{order:?}: {document:#}");
        let relaxed = document["pods"].as_array().unwrap().iter().filter(|pod| pod["relaxed"] != json!([])).count();
        assert_eq!(relaxed, 1, "{order:?}: {document:#}");
    }
}

#[test]
fn values_that_no_pool_reaches_refuse_the_pod_however_many_pools_ask_for_them() {
    let two = "{key: size, operator: Exists, minValues: 2}";
    let catalogue = catalogue(&[("m", "large", "on-demand", None), ("n", "large", "on-demand", None)]);
    for pools in [pool("p", two), pool("p", two) + &pool("q", two)] {
        let (document, code) = planned(&(pools + &pod("a", "")), &catalogue);
        let outcome = &document["pods"][0];
        assert_eq!(
            (&outcome["outcome"], &outcome["relaxed"], code),
            (&json!("refused"), &json!([]), 3),
            "{document:#}"
        );
        assert!(
            outcome["reasons"].as_array().unwrap().iter().any(|reason| reason["code"] == "MinValues"),
            "{outcome:#}"
        );
    }
}

#[test]
fn another_reserved_host_is_no_second_value() {
    let two = "{key: node.kubernetes.io/instance-type, operator: Exists, minValues: 2}";
    let reserved = [("m", "large", "reserved", Some("cr-m")), ("n", "large", "reserved", Some("cr-n"))];
    let (document, code) = planned(&(pool("p", two) + &pod("a", "")), &catalogue(&reserved));
    assert_eq!((&document["pods"][0]["outcome"], code), (&json!("refused"), 3), "{document:#}");
}

#[test]
fn a_limit_on_nothing_that_types_have_excludes_its_pool_and_one_on_what_a_described_type_has_does_not() {
    let mut described: Value = serde_json::from_str(&catalogue(&[("m", "large", "on-demand", None)])).unwrap();
    described["types"][0]["capacity"]["fake.com/gpu"] = json!("2");
    let catalogue = described.to_string();
    for (key, outcome) in [("cpus", "refused"), ("fake.com/gpu", "buy"), ("cpu", "buy")] {
        let pool = pool("p", "").replace("spec: {template", &format!("spec: {{limits: {{{key}: \"8\"}}, template"));
        let (document, _) = planned(&(pool + &pod("a", "")), &catalogue);
        assert_eq!(document["pods"][0]["outcome"], outcome, "{key}: {document:#}");
        let ignored = document["ignored"].to_string();
        assert_eq!(ignored.contains("spec.limits.cpus"), outcome == "refused", "{key}: {ignored}");
    }
}

#[test]
fn a_node_on_its_way_from_a_pool_that_is_gone_is_counted_as_its_type_is() {
    let batch = "---\napiVersion: muster.dev/v1alpha1\nkind: NodeBatch\nmetadata: {name: b, uid: ub}\nspec: {count: 1, fill: \
                 Partial, nodePools: [p], capacityType: on-demand, offers: [{instanceType: m, nodePool: p, count: 1}]}\nstatus: \
                 {version: 1, phase: Launched, count: 1, nodePool: p, instanceType: m, zone: z-1, capacityType: on-demand, \
                 instances: [{id: i-0, state: Launched, attempt: 1}]}\n";
    let catalogue = catalogue(&[("m", "large", "on-demand", None)]);
    let (document, code) = planned(&(pool("q", "") + batch + &pod("a", "")), &catalogue);
    let outcome = &document["pods"][0];
    assert_eq!((&outcome["outcome"], &outcome["node"], code), (&json!("joining"), &json!("b/0"), 0), "{document:#}");
    assert_eq!(document["nodes"], json!([]));
}

#[test]
fn who_would_rather_be_elsewhere_leaves_a_running_node_to_whom_no_new_node_holds() {
    let unmet = ", affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 50, preference: \
                 {matchExpressions: [{key: disk, operator: In, values: [ssd]}]}}]}}";
    let node = "---\napiVersion: v1\nkind: Node\nmetadata: {name: n0, labels: {kubernetes.io/hostname: n0}}\nstatus: {allocatable: \
                {cpu: 3900m, memory: 16Gi, pods: \"110\"}, conditions: [{type: Ready, status: \"True\"}]}\n";
    let small: Value = serde_json::from_str(&catalogue(&[("s", "small", "on-demand", None)])).unwrap();
    let small = small.to_string().replace("\"cpu\":\"4\"", "\"cpu\":\"2\"");
    let big = pod("b-big", "").replace("cpu: \"1\"", "cpu: \"3\"");
    let dump = pool("p", "") + node + &pod("a-small", unmet) + &big;
    let (document, code) = planned(&dump, &small);
    let outcome = |at: usize| (&document["pods"][at]["outcome"], &document["pods"][at]["node"]);
    assert_eq!(
        (outcome(0), outcome(1), code),
        ((&json!("buy"), &json!("new/0")), (&json!("placed"), &json!("n0")), 0),
        "{document:#}"
    );
}

#[test]
fn a_preference_that_holds_where_the_pod_stands_was_not_dropped() {
    let near = ", affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 21, podAffinityTerm: \
                {topologyKey: topology.kubernetes.io/zone, labelSelector: {matchLabels: {app: cache}}}}]}}";
    let arch = ", affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 33, preference: \
                {matchExpressions: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]}}]}}";
    let catalogue = catalogue(&[("m", "large", "on-demand", None)]);
    let (document, code) = planned(&(pool("p", "") + &pod("a", near) + &pod("b", arch)), &catalogue);
    let relaxed = |at: usize| document["pods"][at]["relaxed"].as_array().unwrap().len();
    assert_eq!((relaxed(0), relaxed(1), code), (1, 0, 0), "{document:#}");
    assert_eq!(cost(&document), &json!(100_000));
}
