//! What is offered, and what only looks so.

use serde_json::{Value, json};

use crate::scene::{catalogue, described, node, places, planned, pod, pool, reasons};

/// On demand, and reserved without a free host, in these zones.
fn full(reserved_in: &str) -> Value {
    let mut full = described("t", "4", 100_000, |_| {});
    let mut reserved = full["offerings"][0].clone();
    reserved["zone"] = json!(reserved_in);
    reserved["market"] = json!("reserved");
    reserved["reservation"] = json!("cr-1");
    reserved["free"] = json!(0);
    full["offerings"].as_array_mut().unwrap().push(reserved);
    full
}

fn spread(name: &str, key: &'static str) -> Value {
    pod(name, "3", move |pod| {
        pod["metadata"]["labels"] = json!({"app": "a"});
        pod["spec"]["topologySpreadConstraints"] = json!([{"topologyKey": key, "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "a"}}}]);
    })
}

#[test]
fn a_reservation_without_a_free_host_is_no_domain_to_spread_over() {
    for (key, zone) in [("muster.dev/capacity-type", "z-1"), ("topology.kubernetes.io/zone", "z-2")] {
        let document = planned(&[pool(|_| {}), spread("a", key), spread("b", key)], &catalogue(&[full(zone)], &[]));
        assert_eq!(places(&document), [("buy", Some("new/0")), ("buy", Some("new/1"))], "{key}: {document:#}");
    }
    let reserved = pool(|pool| {
        pool["spec"]["template"]["spec"]["requirements"] =
            json!([{"key": "muster.dev/capacity-type", "operator": "In", "values": ["reserved"]}]);
    });
    let document = planned(&[reserved, pod("a", "1", |_| {})], &catalogue(&[full("z-1")], &[]));
    assert_eq!(reasons(&document, 0), [("NoOfferFits", Some("p"), Some("t"), None)], "{document:#}");
    assert_eq!(document["pods"][0]["reasons"][0]["change"], "a free host of the reservation of t");
}

#[test]
fn a_node_of_a_type_that_does_not_say_so_runs_linux() {
    let types = catalogue(&[described("small", "2", 100_000, |_| {}), described("large", "4", 150_000, |_| {})], &[]);
    let linux = |pod: &mut Value| pod["spec"]["nodeSelector"] = json!({"kubernetes.io/os": "linux"});
    let document = planned(&[pool(|_| {}), pod("a", "1", linux)], &types);
    assert_eq!(places(&document), [("buy", Some("new/0"))], "{document:#}");
    let proxy = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "proxy", "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": {"app": "proxy"}}, "template": {"metadata": {"labels": {"app": "proxy"}},
            "spec": {"nodeSelector": {"kubernetes.io/os": "linux"},
                     "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]}}}});
    let document = planned(&[pool(|_| {}), proxy, pod("a", "2", |_| {})], &types);
    assert_eq!(document["nodes"][0]["type"], "large", "its DaemonSet takes a part: {document:#}");
}

#[test]
fn nobody_is_asked_to_define_the_name_of_a_host() {
    let named = |pod: &mut Value| pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "n-9"});
    let types = catalogue(&[described("small", "2", 100_000, |_| {})], &[]);
    let document = planned(&[pool(|_| {}), pod("a", "1", named)], &types);
    let reason = &document["pods"][0]["reasons"][0];
    assert_eq!((&reason["code"], &reason["change"]), (&json!("Selector"), &Value::Null), "{document:#}");
}

#[test]
fn a_pod_goes_to_a_pool_of_a_lower_weight_where_others_keep_it_off_the_higher_one() {
    let in_zones = |name: &'static str, weight: u32, zones: &'static [&'static str]| {
        pool(move |pool| {
            pool["metadata"]["name"] = json!(name);
            pool["spec"]["weight"] = json!(weight);
            pool["spec"]["template"]["spec"]["requirements"] =
                json!([{"key": "topology.kubernetes.io/zone", "operator": "In", "values": zones}]);
        })
    };
    let mut kind = described("t", "4", 100_000, |offering| offering["zone"] = json!("z-2"));
    let mut other = kind["offerings"][0].clone();
    other["zone"] = json!("z-3");
    kind["offerings"].as_array_mut().unwrap().push(other);
    let there = node("n-0", |node| node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("z-2"));
    let alone = pod("b", "1500m", |pod| {
        pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "n-0"});
        let term = json!({"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {}});
        pod["spec"]["affinity"] =
            json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    });
    let mut objects = vec![in_zones("p0", 1, &["z-2", "z-3"]), in_zones("p1", 10, &["z-2"]), there];
    objects.extend([pod("a", "3", |_| {}), alone]);
    objects.extend(["c", "d", "e"].map(|name| pod(name, "3", |_| {})));
    let document = planned(&objects, &catalogue(&[kind], &[]));
    let outcomes: Vec<&str> = places(&document).into_iter().map(|(outcome, _)| outcome).collect();
    assert_eq!(outcomes, ["buy", "placed", "buy", "buy", "buy"], "{document:#}");
    assert!(document["nodes"].as_array().unwrap().iter().all(|node| node["zone"] == "z-3"), "{document:#}");
}

#[test]
fn min_values_that_no_domain_leaves_are_the_reason_even_of_a_pod_that_is_spread() {
    let mut kind = described("t", "4", 100_000, |_| {});
    let mut other = kind["offerings"][0].clone();
    other["zone"] = json!("z-2");
    kind["offerings"].as_array_mut().unwrap().push(other);
    let types = catalogue(&[kind], &[]);
    let two_zones = pool(|pool| {
        pool["spec"]["template"]["spec"]["requirements"] =
            json!([{"key": "topology.kubernetes.io/zone", "operator": "Exists", "minValues": 2}]);
    });
    let document = planned(&[two_zones.clone(), pod("a", "1", |_| {})], &types);
    assert_eq!(places(&document), [("buy", Some("new/0"))], "{document:#}");
    // A node whose zone is not known yet keeps no skew.
    let document = planned(&[two_zones, spread("a", "topology.kubernetes.io/zone")], &types);
    assert_eq!(reasons(&document, 0), [("MinValues", Some("p"), Some("t"), None)], "{document:#}");
}

/// A NodeBatch of one node for pods, with what it takes of a limit of `cpu`.
fn batch(reserved: &str, status: &Value) -> Value {
    json!({"apiVersion": "muster.dev/v1alpha1", "kind": "NodeBatch", "metadata": {"name": "b", "uid": "b"},
        "spec": {"nodePools": ["p"], "count": 1, "fill": "Partial", "capacityType": "on-demand", "zones": ["z-1"],
                 "offers": [{"nodePool": "p", "instanceType": "small", "count": 1}],
                 "reserves": [{"nodePool": "p", "resources": {"cpu": reserved, "nodes": "1"}}]}, "status": status})
}

#[test]
fn a_batch_counts_with_all_that_it_may_launch_until_ec2_has_chosen() {
    let types = catalogue(&[described("small", "2", 100_000, |_| {}), described("large", "8", 400_000, |_| {})], &[]);
    let limited = pool(|pool| pool["spec"]["limits"] = json!({"cpu": "10"}));
    let chosen = |instance_type: &str, status: Value| {
        let mut all = json!({"phase": "Launching", "nodePool": "p", "instanceType": instance_type, "zone": "z-1",
            "instances": [{"id": "i-0", "attempt": 1, "state": "Launched", "place": 0}]});
        all.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
        all
    };
    let recorded = json!({"reserved": [{"nodePool": "p", "resources": {"cpu": "8", "nodes": "1"}}]});
    // Ten, without what the batch takes, are enough for eight more or they are not.
    for (status, used, outcome, why) in [
        (json!({"phase": "Pending"}), "8", "refused", "it may become the large one"),
        (chosen("small", json!({})), "2", "buy", "it is the small one"),
        (
            chosen("unheard", recorded),
            "8",
            "refused",
            "the catalogue does not have its type: what was written down counts",
        ),
    ] {
        let objects = [limited.clone(), batch("8", &status), pod("a", "6", |_| {})];
        let document = planned(&objects, &types);
        assert_eq!(places(&document)[0].0, outcome, "{why}: {document:#}");
        assert_eq!(document["limits"][0]["used"], used, "{why}");
    }
}
