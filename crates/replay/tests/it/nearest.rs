//! A pod without a place names the type of each pool that comes nearest, and what stops it there.

use serde_json::{Value, json};

use crate::scene::{catalogue, described, planned, pod, pool, reasons};

/// Two types: one of 2 CPUs, one of 4.
fn two() -> Value {
    catalogue(&[described("small", "2", 100_000, |_| {}), described("large", "4", 190_000, |_| {})], &[])
}

fn limited(limits: &Value) -> Value {
    pool(|pool| pool["spec"]["limits"] = limits.clone())
}

/// Not beside pods of an app of which there is none.
fn apart(pod: &mut Value) {
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "zz"}}});
    pod["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
}

#[test]
fn of_types_that_are_too_small_the_one_that_lacks_least_is_named() {
    let document = planned(&[pool(|_| {}), pod("a", "5", |_| {})], &two());
    assert_eq!(reasons(&document, 0), [("Insufficient", Some("p"), Some("large"), Some(1_000))], "{document:#}");
    // One that lacks a single resource is nearer than one that lacks two.
    let mut catalogue = two();
    catalogue["types"][0]["capacity"]["memory"] = json!("64Gi");
    let asks = pod("a", "5", |pod| {
        pod["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!("9Gi");
    });
    let document = planned(&[pool(|_| {}), asks], &catalogue);
    assert_eq!(reasons(&document, 0), [("Insufficient", Some("p"), Some("small"), Some(3_000))], "{document:#}");
}

#[test]
fn of_types_that_pass_a_limit_the_one_that_passes_it_least_is_named() {
    let pods = [pod("a", "1500m", |_| {}), pod("b", "1500m", |_| {})];
    let document = planned(&[limited(&json!({"cpu": "3500m"})), pods[0].clone(), pods[1].clone()], &two());
    assert_eq!(reasons(&document, 1), [("LimitReached", Some("p"), Some("small"), Some(500))], "{document:#}");
    assert_eq!(document["pods"][1]["reasons"][0]["change"], "a limit of cpu that is 500m higher");
}

#[test]
fn too_few_values_are_named_before_any_constraint_of_the_pod_and_before_a_limit() {
    let asks = |key: &str, limits: &Value| {
        pool(|pool| {
            let requirement = json!({"key": key, "operator": "Exists", "minValues": 2});
            pool["spec"]["template"]["spec"]["requirements"] = json!([requirement]);
            pool["spec"]["limits"] = limits.clone();
        })
    };
    let by_type = "node.kubernetes.io/instance-type";
    for limits in [json!({}), json!({"cpu": "1"})] {
        let document = planned(&[asks(by_type, &limits), pod("a", "3", apart)], &two());
        assert_eq!(reasons(&document, 0), [("MinValues", Some("p"), Some("large"), None)], "{document:#}");
    }
    // Where both types hold the pod there are as many as are asked for: then it is the limit.
    let document = planned(&[asks(by_type, &json!({"cpu": "1"})), pod("a", "1", apart)], &two());
    assert_eq!(reasons(&document, 0), [("LimitReached", Some("p"), Some("small"), Some(1_000))], "{document:#}");
}

#[test]
fn a_reservation_without_a_free_host_is_named_before_any_constraint_of_the_pod() {
    let reserved = described("small", "2", 100_000, |offering| {
        offering["market"] = json!("reserved");
        offering["reservation"] = json!("cr-1");
        offering["free"] = json!(1);
    });
    let pods = [pod("a", "1500m", apart), pod("b", "1500m", apart)];
    let document = planned(&[pool(|_| {}), pods[0].clone(), pods[1].clone()], &catalogue(&[reserved], &[]));
    assert_eq!(document["pods"][0]["outcome"], "buy");
    assert_eq!(reasons(&document, 1), [("NoOfferFits", Some("p"), Some("small"), None)], "{document:#}");
    assert_eq!(document["pods"][1]["reasons"][0]["change"], "a free host of the reservation");
}

#[test]
fn every_taint_and_limit_that_keeps_a_pod_from_a_pool_is_named_and_only_without_all_of_them_it_has_a_node() {
    let taints =
        [json!({"key": "a", "effect": "NoSchedule"}), json!({"key": "b", "value": "c", "effect": "NoExecute"})];
    let plan = |tolerated: &[usize], cpu: &str, memory: &str| {
        let pool = pool(|pool| {
            pool["spec"]["template"]["spec"]["taints"] = json!(taints);
            pool["spec"]["limits"] = json!({"cpu": cpu, "memory": memory});
        });
        let pod = pod("a", "3", |pod| {
            let tolerations: Vec<Value> = tolerated.iter().map(|index| taints[*index].clone()).collect();
            pod["spec"]["tolerations"] = json!(tolerations);
        });
        planned(&[pool, pod], &two())
    };
    let document = plan(&[], "1", "2Gi");
    let (of, gib) = (Some("p"), 1_u64 << 30);
    let all = [
        ("Taint", of, Some("large"), None),
        ("Taint", of, Some("large"), None),
        ("LimitReached", of, Some("large"), Some(3_000)),
        ("LimitReached", of, Some("large"), Some(6 * gib)),
    ];
    assert_eq!(reasons(&document, 0), all, "{document:#}");
    let changes: Vec<&str> =
        document["pods"][0]["reasons"].as_array().unwrap().iter().map(|one| one["change"].as_str().unwrap()).collect();
    let stated = [
        "tolerate a:NoSchedule",
        "tolerate b=c:NoExecute",
        "a limit of cpu that is 3 higher",
        "a limit of memory that is 6Gi higher",
    ];
    assert_eq!(changes, stated);
    for (tolerated, cpu, memory, left) in [
        (&[1][..], "4", "8Gi", &all[..1]),
        (&[0], "4", "8Gi", &all[1..2]),
        (&[0, 1], "1", "8Gi", &all[2..3]),
        (&[0, 1], "4", "2Gi", &all[3..]),
    ] {
        assert_eq!(reasons(&plan(tolerated, cpu, memory), 0), left);
    }
    let document = plan(&[0, 1], "4", "8Gi");
    assert_eq!(document["pods"][0]["node"], "new/0", "{document:#}");
}

#[test]
fn behind_a_taint_that_is_not_tolerated_no_type_may_be_large_enough() {
    let tainted = pool(|pool| {
        pool["spec"]["template"]["spec"]["taints"] = json!([{"key": "a", "effect": "NoSchedule"}]);
    });
    let document = planned(&[tainted, pod("a", "5", |_| {})], &two());
    let of = (Some("p"), Some("large"));
    assert_eq!(reasons(&document, 0), [("Taint", of.0, of.1, None), ("Insufficient", of.0, of.1, Some(1_000))]);
}
