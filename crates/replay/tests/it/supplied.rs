//! What pools supply: zones, prices, ceilings, reservations, and why there is nothing to be had.

use serde_json::{Value, json};

use crate::scene::{catalogue, class, described, job, node, of_ec2, places, planned, pod, pool, price, reasons};

/// Types of the nodes to launch.
fn types(document: &Value) -> Vec<&str> {
    document["nodes"].as_array().unwrap().iter().map(|node| node["type"].as_str().unwrap()).collect()
}

fn codes(document: &Value, pod: usize) -> Vec<&str> {
    reasons(document, pod).into_iter().map(|(code, ..)| code).collect()
}

#[test]
fn a_class_without_a_status_has_every_zone_of_the_catalogue_for_gangs_as_well_as_for_other_pods() {
    let prices = [price("m5.large", "z-1", 96_000), price("m5.large", "z-2", 95_000)];
    let catalogue = catalogue(&[of_ec2("m5.large", 2)], &prices);
    let gang = job(2, "1500m", |_| {});
    // Where a node stands says nothing of where others may be launched.
    let elsewhere = node("n", |node| {
        node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("z-9");
        node["spec"]["unschedulable"] = json!(true);
    });
    for objects in [
        vec![pool(|_| {}), class(|_| {}), gang.clone(), pod("a", "1500m", |_| {})],
        vec![pool(|_| {}), class(|_| {}), gang.clone(), pod("a", "1500m", |_| {}), elsewhere],
    ] {
        let document = planned(&objects, &catalogue);
        let provision = &document["gangs"][0]["buy"][0];
        assert_eq!((&provision["zone"], &provision["count"]), (&json!("z-2"), &json!(2)), "{document:#}");
        assert_eq!(document["nodes"][0]["zone"], "z-2");
    }
    let subnets = class(|class| class["status"] = json!({"subnets": [{"id": "subnet-1", "zone": "z-1"}]}));
    let document = planned(&[pool(|_| {}), subnets, gang], &catalogue);
    assert_eq!(document["gangs"][0]["buy"][0]["zone"], "z-1", "{document:#}");
}

#[test]
fn a_type_that_a_catalogue_of_ones_own_names_no_price_of_has_none() {
    let status = |class: &mut Value| class["status"] = json!({"subnets": [{"id": "subnet-1", "zone": "z-1"}]});
    let objects = [pool(|_| {}), class(status), pod("a", "5", |_| {}), job(1, "5", |_| {})];
    let document = planned(&objects, &catalogue(&[of_ec2("m5.2xlarge", 8)], &[]));
    assert_eq!(reasons(&document, 0), [("PriceUnknown", Some("p"), Some("m5.2xlarge"), None)], "{document:#}");
    let gang = &document["gangs"][0];
    assert_eq!(gang["outcome"], "refused", "{gang:#}");
    assert!(gang["reasons"].as_array().unwrap().iter().any(|reason| reason["code"] == "PriceUnknown"), "{gang:#}");
    // A smaller one with a price holds it not, and the reason is still the price.
    let types = [of_ec2("m5.2xlarge", 8), of_ec2("m5.large", 2)];
    let document = planned(&objects, &catalogue(&types, &[price("m5.large", "z-1", 1)]));
    assert_eq!(reasons(&document, 0), [("PriceUnknown", Some("p"), Some("m5.2xlarge"), None)], "{document:#}");
}

/// A pool that may cost so much.
fn capped(most: &str) -> Value {
    pool(|pool| pool["spec"]["maxUsdPerHour"] = json!(most))
}

#[test]
fn a_ceiling_on_dollars_holds_for_pods_of_no_gang_and_names_itself() {
    let kinds = [described("small", "2", 100_000, |_| {}), described("large", "4", 190_000, |_| {})];
    let catalogue = catalogue(&kinds, &[]);
    let pods = ["a", "b", "c"].map(|name| pod(name, "1500m", |_| {}));
    let with = |most: &str| planned(&[&[capped(most)], &pods[..]].concat(), &catalogue);
    let document = with("0.15");
    assert_eq!(places(&document), [("buy", Some("new/0")), ("refused", None), ("refused", None)], "{document:#}");
    assert_eq!((types(&document), document["nodes"][0]["alternatives"].clone()), (vec!["small"], json!([])));
    assert_eq!(reasons(&document, 1), [("LimitReached", Some("p"), Some("small"), Some(50_000))]);
    let change = document["pods"][1]["reasons"][0]["change"].as_str().unwrap();
    assert_eq!(change, "a spec.maxUsdPerHour that is $0.05 higher");
    assert_eq!(document["limits"], json!([]), "it is no resource");
    let document = with("0.29");
    assert!(places(&document).iter().all(|(outcome, _)| *outcome == "buy"), "{document:#}");
    assert_eq!(document["cost"]["usdMicroPerHour"], 290_000);
    // A node that stands costs what the catalogue has for it.
    let standing = node("n", |node| {
        node["spec"]["unschedulable"] = json!(true);
        for (key, value) in [
            ("muster.dev/nodepool", "p"),
            ("node.kubernetes.io/instance-type", "large"),
            ("muster.dev/capacity-type", "on-demand"),
        ] {
            node["metadata"]["labels"][key] = json!(value);
        }
    });
    let document = planned(&[capped("0.29"), standing, pods[0].clone(), pods[1].clone()], &catalogue);
    assert_eq!(places(&document), [("buy", Some("new/0")), ("refused", None)], "{document:#}");
}

#[test]
fn what_a_gang_is_given_is_off_the_ceiling_before_other_pods_come() {
    let catalogue = catalogue(&[of_ec2("m5.large", 2)], &[price("m5.large", "z-1", 100_000)]);
    let pods = [pod("a", "1500m", |_| {}), pod("b", "1500m", |_| {})];
    let gang = job(2, "1500m", |_| {});
    let document = planned(&[capped("0.35"), gang, pods[0].clone(), pods[1].clone()], &catalogue);
    assert_eq!(document["gangs"][0]["outcome"], "buy");
    assert_eq!(places(&document), [("buy", Some("new/0")), ("refused", None)], "{document:#}");
}

/// A status that says Ready or not.
fn ready(status: &str, message: &str) -> Value {
    json!({"conditions": [{"type": "Ready", "status": status, "reason": "SubnetsNotFound", "message": message,
                           "lastTransitionTime": "2026-07-20T10:00:00Z"}]})
}

#[test]
fn a_pool_that_is_not_ready_or_whose_class_is_not_is_named_by_every_pod_that_finds_no_place() {
    let catalogue = catalogue(&[described("small", "2", 100_000, |_| {})], &[]);
    let asks = pod("a", "1", |_| {});
    let not_ready = pool(|pool| pool["status"] = ready("False", "no subnet"));
    let document = planned(&[not_ready, class(|_| {}), asks.clone()], &catalogue);
    assert_eq!(reasons(&document, 0), [("PoolNotReady", Some("p"), None, None)], "{document:#}");
    assert_eq!(document["pods"][0]["reasons"][0]["change"], "no subnet");
    assert_eq!(document["ignored"][0]["why"], "is not Ready: no subnet");
    for status in ["False", "Unknown"] {
        let class = class(|class| class["status"] = ready(status, "no subnet"));
        let gang = job(1, "1", |_| {});
        let document = planned(&[pool(|_| {}), class, asks.clone(), gang], &catalogue);
        assert_eq!(reasons(&document, 0), [("PoolNotReady", Some("p"), None, None)], "{document:#}");
        assert_eq!(document["pods"][0]["reasons"][0]["change"], "EC2NodeClass c: no subnet");
        assert_eq!(document["gangs"][0]["outcome"], "refused");
    }
    let class = class(|class| class["status"] = ready("True", ""));
    assert_eq!(places(&planned(&[pool(|_| {}), class, asks], &catalogue)), [("buy", Some("new/0"))]);
    // Beside a pool that is.
    let other = pool(|pool| {
        pool["metadata"]["name"] = json!("q");
        pool["status"] = ready("False", "no subnet");
    });
    let document = planned(&[pool(|_| {}), other, pod("a", "3", |_| {})], &catalogue);
    let wanted = [("Insufficient", Some("p"), Some("small"), Some(1_000)), ("PoolNotReady", Some("q"), None, None)];
    assert_eq!(reasons(&document, 0), wanted, "{document:#}");
}

#[test]
fn a_pool_of_which_nothing_is_available_now_stays_a_pool_and_reports_that() {
    let small = described("small", "2", 100_000, |offering| offering["available"] = json!(false));
    let document = planned(&[pool(|_| {}), pod("a", "1", |_| {})], &catalogue(std::slice::from_ref(&small), &[]));
    assert_eq!(document["ignored"], json!([]));
    assert_eq!(reasons(&document, 0), [("NoOfferFits", Some("p"), Some("small"), None)], "{document:#}");
    // Where what is available is too small, the reason is what would do.
    let tiny = described("tiny", "500m", 50_000, |_| {});
    let document = planned(&[pool(|_| {}), pod("a", "1", |_| {})], &catalogue(&[small, tiny], &[]));
    assert_eq!(reasons(&document, 0), [("NoOfferFits", Some("p"), Some("small"), None)], "{document:#}");
    assert_eq!(document["pods"][0]["reasons"][0]["change"], "capacity for small, marked as not available");
}

#[test]
fn a_pool_of_reserved_capacity_alone_is_no_pool_without_types() {
    let reserved = pool(|pool| {
        pool["spec"]["template"]["spec"]["requirements"] =
            json!([{"key": "muster.dev/capacity-type", "operator": "In", "values": ["reserved"]}]);
    });
    let catalogue = catalogue(&[of_ec2("m5.large", 2)], &[price("m5.large", "z-1", 1)]);
    let document = planned(&[reserved, pod("a", "1", |_| {})], &catalogue);
    assert_eq!(document["ignored"], json!([]));
    assert_eq!(reasons(&document, 0), [("NoOfferFits", Some("p"), Some("m5.large"), None)], "{document:#}");
}

#[test]
fn of_free_reservations_the_one_that_is_cheapest_on_the_list_is_taken_and_costs_nothing() {
    let reserved = |name: &'static str, cpu: &str, price: u64| {
        described(name, cpu, price, |offering| {
            offering["market"] = json!("reserved");
            offering["reservation"] = json!(format!("cr-{name}"));
            offering["free"] = json!(1);
        })
    };
    let kinds =
        [reserved("a-large", "16", 900_000), reserved("b-middle", "4", 400_000), reserved("z-small", "2", 100_000)];
    let catalogue = catalogue(&kinds, &[]);
    let document = planned(&[pool(|_| {}), pod("a", "1", |_| {})], &catalogue);
    assert_eq!(types(&document), ["z-small"], "{document:#}");
    assert_eq!(
        (&document["nodes"][0]["usdMicroPerHour"], &document["cost"]["usdMicroPerHour"]),
        (&json!(0), &json!(0))
    );
    // Two that do not share a node take the two cheapest.
    let alone = |pod: &mut Value| {
        pod["metadata"]["labels"] = json!({"app": "a"});
        let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}});
        pod["spec"]["affinity"] =
            json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    };
    let document = planned(&[pool(|_| {}), pod("a", "1", alone), pod("b", "1", alone)], &catalogue);
    let mut launched = types(&document);
    launched.sort_unstable();
    assert_eq!(launched, ["b-middle", "z-small"], "{document:#}");
    // Against a ceiling a reserved node counts as the server counts it: with the price of the list.
    let document = planned(&[capped("0.05"), pod("a", "1", |_| {})], &catalogue);
    assert_eq!(codes(&document, 0), ["LimitReached"], "{document:#}");
}

#[test]
fn a_limit_on_a_part_of_a_node_is_refused_by_name() {
    let catalogue = catalogue(&[described("small", "2", 100_000, |_| {})], &[]);
    let limited =
        |key: &'static str, value: &'static str| pool(move |pool| pool["spec"]["limits"] = json!({key: value}));
    let document = planned(&[limited("nodes", "1500m"), pod("a", "1", |_| {})], &catalogue);
    assert_eq!(document["ignored"][0]["why"], "spec.limits.nodes: \"1500m\" is not a whole number", "{document:#}");
    assert_eq!(places(&document), [("refused", None)]);
    for (key, value) in [("cpu", "2500m"), ("nodes", "1e3"), ("nodes", "1")] {
        let document = planned(&[limited(key, value), pod("a", "1", |_| {})], &catalogue);
        assert_eq!(places(&document), [("buy", Some("new/0"))], "{key}: {value}");
    }
}

#[test]
fn a_static_pod_is_for_its_node_to_run() {
    let catalogue = catalogue(&[described("small", "2", 100_000, |_| {})], &[]);
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n", "controller": true}]);
    let of_node = pod("a", "1", |pod| pod["metadata"]["ownerReferences"] = owner);
    let document = planned(&[pool(|_| {}), of_node], &catalogue);
    assert_eq!((&document["pods"], &document["nodes"]), (&json!([]), &json!([])), "{document:#}");
}

#[test]
fn what_the_class_keeps_for_the_kubelet_and_the_system_is_not_for_pods() {
    let prices = [price("m5.large", "z-1", 96_000), price("m5.xlarge", "z-1", 192_000)];
    let catalogue = catalogue(&[of_ec2("m5.large", 2), of_ec2("m5.xlarge", 4)], &prices);
    let keeps = class(|class| {
        class["spec"]["kubelet"] = json!({"kubeReserved": {"cpu": "1"}, "systemReserved": {"cpu": "500m", "memory": "1Gi"},
                                          "evictionHard": {"memory.available": "3Gi"}});
    });
    let document = planned(&[pool(|_| {}), class(|_| {}), pod("a", "1", |_| {}), job(1, "1", |_| {})], &catalogue);
    assert_eq!((types(&document), &document["gangs"][0]["buy"][0]["type"]), (vec!["m5.large"], &json!("m5.large")));
    let document = planned(&[pool(|_| {}), keeps, pod("a", "1", |_| {}), job(1, "1", |_| {})], &catalogue);
    assert_eq!((types(&document), &document["gangs"][0]["buy"][0]["type"]), (vec!["m5.xlarge"], &json!("m5.xlarge")));
    let node = &document["nodes"][0]["allocatable"];
    // 16 GiB less 7.5 %, less 11 MiB for each of 58 pods and 255 MiB, less 1 GiB and 3 GiB.
    assert_eq!((&node["cpu"], &node["memory"]), (&json!("2500m"), &json!("10660033331")), "{document:#}");
}
