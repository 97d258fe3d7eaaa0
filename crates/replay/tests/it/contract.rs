//! Clauses of the published document about pods of no gang, each on a dump of its own.

use muster_replay::command::{self, Arguments, Format};
use muster_replay::dump::Input;
use muster_replay::plan::{MinValues, Preferences};
use serde_json::{Value, json};

/// A catalogue: two types in three zones, and one with a GPU in two of them.
fn catalogue() -> Value {
    let offerings = |price: u64, zones: &[&str]| -> Vec<Value> {
        zones.iter().map(|zone| json!({"zone": zone, "market": "on-demand", "usdMicroPerHour": price})).collect()
    };
    let all = ["z-1", "z-2", "z-3"];
    let of = |name: &str, cpu: &str, extra: Value, offerings: Vec<Value>| {
        let mut capacity = json!({"cpu": cpu, "memory": "16Gi", "pods": "20"});
        capacity.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        json!({"name": name, "labels": {"kubernetes.io/arch": "amd64", "muster.dev/instance-family": "fake"},
               "capacity": capacity, "overhead": {"cpu": "100m"}, "offerings": offerings})
    };
    json!({"version": 2, "name": "fake", "types": [
        of("small", "4", json!({}), offerings(100_000, &all)),
        of("large", "8", json!({}), offerings(190_000, &all)),
        of("gpu", "8", json!({"fake.com/gpu": "1"}), offerings(900_000, &all[..2])),
    ], "prices": []})
}

fn pool(change: impl FnOnce(&mut Value)) -> Value {
    let mut pool = json!({"apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "general"},
        "spec": {"template": {"spec": {"nodeClassRef": {"group": "muster.dev", "kind": "EC2NodeClass", "name": "any"},
                                       "requirements": []}}}});
    change(&mut pool["spec"]);
    pool
}

/// A class with these fields beside those that each needs.
fn class(more: &Value) -> Value {
    let mut spec = json!({"amiSelectorTerms": [{"alias": "al2023@latest"}], "instanceProfile": "nodes",
        "subnetSelectorTerms": [{"id": "subnet-1"}], "securityGroupSelectorTerms": [{"id": "sg-1"}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"apiVersion": "muster.dev/v1alpha1", "kind": "EC2NodeClass", "metadata": {"name": "any"}, "spec": spec})
}

fn pod(number: usize, cpu: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("p-{number}"), "namespace": "ns", "uid": format!("uid-{number}"),
                     "labels": {"app": "a"}, "creationTimestamp": format!("2026-07-20T10:00:{number:02}Z")},
        "spec": {"schedulerName": "muster", "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Pending"}});
    change(&mut pod);
    pod
}

fn planned_with(objects: &[Value], change: impl FnOnce(&mut Arguments<'_>)) -> (Value, u8) {
    let text = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let catalogue = catalogue().to_string();
    let mut arguments = Arguments {
        files: vec![Input { name: "dump.json", text: &text }],
        format: Format::Json,
        catalogue: Some(Input { name: "fake.json", text: &catalogue }),
        ..Arguments::default()
    };
    change(&mut arguments);
    let output = command::run(&arguments).unwrap();
    (serde_json::from_str(&output.text).unwrap(), output.code)
}

fn planned(objects: &[Value]) -> (Value, u8) {
    planned_with(objects, |_| {})
}

fn spread(key: &str, more: &Value) -> Value {
    let mut spread = json!({"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
                            "labelSelector": {"matchLabels": {"app": "a"}}});
    spread.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!([spread])
}

fn outcomes(document: &Value) -> Vec<&str> {
    document["pods"].as_array().unwrap().iter().map(|pod| pod["outcome"].as_str().unwrap()).collect()
}

#[test]
fn a_zone_where_nothing_holds_the_pod_is_no_domain_of_its_spread() {
    let gpu = |number| {
        pod(number, "1", |pod| {
            pod["spec"]["containers"][0]["resources"] =
                json!({"requests": {"cpu": "1", "fake.com/gpu": "1"}, "limits": {"fake.com/gpu": "1"}});
            pod["spec"]["topologySpreadConstraints"] = spread("topology.kubernetes.io/zone", &json!({}));
        })
    };
    let objects: Vec<Value> = [pool(|_| {})].into_iter().chain((0..4).map(gpu)).collect();
    let (document, code) = planned(&objects);
    assert_eq!(outcomes(&document), ["buy"; 4], "{:#}", document["pods"]);
    assert_eq!(code, 0);
}

#[test]
fn hosts_may_hold_as_many_as_the_host_with_the_fewest_and_the_skew() {
    // Two nodes at most: four pods stand two and two, as kube-scheduler allows.
    let spread_pod = |number| {
        pod(number, "1", |pod| {
            pod["spec"]["topologySpreadConstraints"] = spread("kubernetes.io/hostname", &json!({"minDomains": 2}));
        })
    };
    let limited = pool(|spec| spec["limits"] = json!({"nodes": 2}));
    let objects: Vec<Value> = [limited].into_iter().chain((0..4).map(spread_pod)).collect();
    let (document, code) = planned(&objects);
    assert_eq!(outcomes(&document), ["buy"; 4], "{:#}", document["pods"]);
    assert_eq!((document["nodes"].as_array().unwrap().len(), code), (2, 0));
    let more: Vec<Value> =
        [pool(|spec| spec["limits"] = json!({"nodes": 1}))].into_iter().chain((0..4).map(spread_pod)).collect();
    let (document, _) = planned(&more);
    assert_eq!(outcomes(&document), ["buy", "refused", "refused", "refused"]);
}

#[test]
fn pods_that_a_selector_counts_beside_its_own_are_spread_so_that_every_order_of_arrival_is_accepted() {
    // The spread counts pods of another label than the own one, and comes after them.
    let counted = |number| pod(number, "1", |_| {});
    let owner = |number| {
        pod(number, "1", |pod| {
            pod["metadata"]["labels"] = json!({"app": "b"});
            pod["spec"]["topologySpreadConstraints"] = spread("topology.kubernetes.io/zone", &json!({}));
        })
    };
    let objects: Vec<Value> =
        [pool(|_| {})].into_iter().chain((0..20).map(counted)).chain((20..30).map(owner)).collect();
    let (document, _) = planned(&objects);
    assert_eq!(outcomes(&document), ["buy"; 30]);
    let zone_of = |pod: &Value| {
        let node = document["nodes"].as_array().unwrap().iter().find(|node| node["id"] == pod["node"]).unwrap();
        node["zone"].as_str().unwrap().to_owned()
    };
    let pods = document["pods"].as_array().unwrap();
    let count = |zone: &str| pods[..20].iter().filter(|pod| zone_of(pod) == zone).count();
    let least = ["z-1", "z-2", "z-3"].into_iter().map(count).min().unwrap();
    for owner in &pods[20..] {
        assert!(count(&zone_of(owner)) <= least + 1, "{owner} stands in {}", zone_of(owner));
    }
}

#[test]
fn preferences_are_dropped_all_at_once_if_they_are_ignored() {
    let prefers = pod(0, "1", |pod| {
        pod["spec"]["affinity"] = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 7, "preference": {"matchExpressions": [
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["large"]}]}}]}});
    });
    let never = pod(1, "1", |pod| {
        pod["spec"]["affinity"] = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 9, "preference": {"matchExpressions": [
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["huge"]}]}}]}});
    });
    let objects = [pool(|_| {}), prefers, never];
    let (document, _) = planned(&objects);
    assert_eq!(document["pods"][0]["relaxed"], json!([]));
    assert_eq!(document["pods"][1]["relaxed"], json!([{"what": "nodeAffinity", "index": 0, "weight": 9}]));
    assert!(document["nodes"].as_array().unwrap().iter().any(|node| node["type"] == "large"), "{document:#}");
    let (document, _) = planned_with(&objects, |arguments| arguments.preferences = Preferences::Ignore);
    assert_eq!(document["pods"][1]["relaxed"], json!([]));
    assert_eq!(document["nodes"].as_array().unwrap().len(), 1);
    assert_eq!(document["nodes"][0]["type"], "small");
}

fn codes(pod: &Value) -> Vec<&str> {
    pod["reasons"].as_array().unwrap().iter().map(|reason| reason["code"].as_str().unwrap()).collect()
}

#[test]
fn a_limit_is_named_only_where_more_of_it_would_help() {
    let limited = |nodes: u32, zones: &[&str]| {
        pool(|spec| {
            spec["limits"] = json!({"nodes": nodes});
            let of = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": zones});
            spec["template"]["spec"]["requirements"] = json!([of]);
        })
    };
    let near = |number, kind: &str, app: &str| {
        pod(number, "1", |pod| {
            let term =
                json!({"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": app}}});
            pod["spec"]["affinity"] = json!({(kind): {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        })
    };
    let even = |number| {
        pod(number, "1", |pod| {
            pod["spec"]["topologySpreadConstraints"] = spread("topology.kubernetes.io/zone", &json!({"minDomains": 2}));
        })
    };
    let by_host = |number| {
        pod(number, "1", |pod| {
            pod["spec"]["topologySpreadConstraints"] = spread("kubernetes.io/hostname", &json!({"minDomains": 2}));
        })
    };
    let other = |number| pod(number, "1", |pod| pod["metadata"]["labels"] = json!({"app": "b"}));
    let beside = |app: &str| {
        pod(0, "1", |pod| {
            let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}});
            pod["spec"]["affinity"] =
                json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        })
    };
    let zones = ["z-1", "z-2"];
    for (objects, last, all) in [
        // Nobody to be near to, and nobody comes with a higher limit.
        (vec![limited(0, &zones), near(0, "podAffinity", "nobody")], "Affinity", vec!["refused"]),
        // The only zone is taken; a second one would do.
        (
            vec![limited(1, &zones[..1]), near(0, "podAntiAffinity", "a"), near(1, "podAntiAffinity", "a")],
            "AntiAffinity",
            vec!["buy", "refused"],
        ),
        (
            vec![limited(1, &zones), near(0, "podAntiAffinity", "a"), near(1, "podAntiAffinity", "a")],
            "LimitReached",
            vec!["buy", "refused"],
        ),
        (vec![limited(1, &zones[..1]), even(0), even(1)], "Spread", vec!["buy", "refused"]),
        (vec![limited(1, &zones), even(0), even(1)], "LimitReached", vec!["buy", "refused"]),
        // The anti-affinity of another keeps a plain pod away.
        (
            vec![limited(1, &zones[..1]), near(0, "podAntiAffinity", "a"), pod(1, "1", |_| {})],
            "AntiAffinity",
            vec!["buy", "refused"],
        ),
        // Whoever is near to pods like itself begins with itself, and whoever is near to others comes with them.
        (vec![limited(0, &zones), near(0, "podAffinity", "a")], "LimitReached", vec!["refused"]),
        (vec![limited(0, &zones), other(0), near(1, "podAffinity", "b")], "LimitReached", vec!["refused", "refused"]),
        // A host more is a domain more.
        (vec![limited(1, &zones), by_host(0), by_host(1)], "LimitReached", vec!["buy", "refused"]),
        (vec![limited(0, &zones), beside("nobody")], "Affinity", vec!["refused"]),
        (vec![limited(0, &zones), beside("a")], "LimitReached", vec!["refused"]),
    ] {
        let (document, _) = planned(&objects);
        assert_eq!(outcomes(&document), all, "{document:#}");
        let pod = document["pods"].as_array().unwrap().last().unwrap();
        assert_eq!(codes(pod), [last], "{pod:#}");
    }
}

#[test]
fn a_label_that_no_node_has_is_named_alike_by_selector_and_by_affinity() {
    let asks = |operator: &str, key: &str| {
        pod(0, "1", |pod| {
            let mut one = json!({"key": key, "operator": operator});
            if matches!(operator, "In" | "NotIn") {
                one["values"] = json!(["x"]);
            }
            let term = json!({"matchExpressions": [one]});
            let required = json!({"nodeSelectorTerms": [term]});
            pod["spec"]["affinity"] =
                json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        })
    };
    let selects = |key: &str| pod(0, "1", |pod| pod["spec"]["nodeSelector"] = json!({(key): "x"}));
    for (pod, code) in [
        (selects("example.com/team"), "UndefinedLabel"),
        (asks("In", "example.com/team"), "UndefinedLabel"),
        (asks("Exists", "example.com/team"), "UndefinedLabel"),
        // What its type decides no pool can define.
        (selects("muster.dev/instance-gpu-name"), "Selector"),
        (asks("Exists", "muster.dev/instance-gpu-name"), "Selector"),
        (asks("In", "muster.dev/instance-family"), "Selector"),
    ] {
        let (document, _) = planned(&[pool(|_| {}), pod.clone()]);
        assert_eq!(codes(&document["pods"][0]), [code], "{pod:#}");
    }
    for operator in ["NotIn", "DoesNotExist"] {
        let (document, _) = planned(&[pool(|_| {}), asks(operator, "example.com/team")]);
        assert_eq!(outcomes(&document), ["buy"]);
    }
}

#[test]
fn what_daemon_sets_take_is_named_where_the_machine_alone_would_hold_the_pod() {
    let agent = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "ns"},
        "spec": {"selector": {}, "template": {"spec": {"containers": [
            {"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}}});
    for (cpu, code) in [("5", None), ("6", Some("Overhead")), ("7900m", Some("Overhead")), ("8", Some("Insufficient"))]
    {
        let (document, _) = planned(&[pool(|_| {}), agent.clone(), pod(0, cpu, |_| {})]);
        let codes = codes(&document["pods"][0]);
        assert_eq!(codes, code.into_iter().collect::<Vec<_>>(), "{cpu}: {:#}", document["pods"]);
    }
    let (document, _) = planned(&[pool(|_| {}), agent, pod(0, "6", |_| {})]);
    let reason = &document["pods"][0]["reasons"][0];
    assert_eq!(reason["change"], "a type with 100m more of cpu beside what DaemonSets take");
}

#[test]
fn fields_that_pools_and_classes_do_not_have_are_named_and_the_rest_counts() {
    let misspelt = pool(|spec| {
        spec["limit"] = json!({"nodes": 1});
        spec["disruption"] = json!({"consolidateAfter": "30s", "budget": []});
        spec["template"]["spec"]["requirements"] =
            json!([{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"], "minValue": 1}]);
        spec["template"]["metadata"] = json!({"labels": {"team": "a"}});
    });
    let class = class(&json!({"kubelet": {"maxPods": 20}, "amiSelectorTerm": []}));
    let (document, code) = planned(&[misspelt, class, pod(0, "1", |_| {})]);
    let why = |kind: &str| {
        let ignored = document["ignored"].as_array().unwrap();
        ignored.iter().find(|one| one["kind"] == kind).map(|one| one["why"].as_str().unwrap().to_owned())
    };
    assert_eq!(
        why("NodePool").as_deref(),
        Some(
            "spec.disruption.budget: `[]`, spec.limit: `{\"nodes\":1}`, spec.template.spec.requirements[0].minValue: `1`: no field of \
             NodePool, and dropped; the rest counts"
        )
    );
    assert_eq!(
        why("EC2NodeClass").as_deref(),
        Some("spec.amiSelectorTerm: `[]`: no field of EC2NodeClass, and dropped; the rest counts")
    );
    assert_eq!((outcomes(&document), code), (vec!["buy"], 0), "{document:#}");
    assert_eq!(document["nodes"][0]["labels"]["team"], "a");
    let (document, _) = planned(&[pool(|spec| spec["limits"] = json!({"nodes": 1})), pod(0, "1", |_| {})]);
    assert_eq!(document["ignored"], json!([]));
}

#[test]
fn the_requirement_that_no_type_meets_is_named() {
    for key in ["muster.dev/instance-family", "muster.dev/capacity-type", "topology.kubernetes.io/zone"] {
        let none = pool(|spec| {
            spec["template"]["spec"]["requirements"] = json!([
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                {"key": key, "operator": "In", "values": ["x9", "x10"]},
            ]);
        });
        let (document, _) = planned(&[none, pod(0, "1", |_| {})]);
        let why = "spec.template.spec.requirements: no type of the catalogue fake meets all of them, and none requirements[1]: ";
        assert_eq!(document["ignored"][0]["why"], format!("{why}{key} In [x9, x10]"));
    }
}

#[test]
fn a_threshold_of_eviction_that_no_kubelet_takes_is_named() {
    let class = |threshold: &str| class(&json!({"kubelet": {"evictionHard": {"memory.available": threshold}}}));
    let (document, _) = planned(&[pool(|_| {}), class("5%"), pod(0, "1", |_| {})]);
    assert_eq!(outcomes(&document), ["buy"], "{document:#}");
    let (document, code) = planned(&[pool(|_| {}), class("some"), pod(0, "1", |_| {})]);
    assert_eq!((outcomes(&document), code), (vec!["refused"], 3));
    let why = document["ignored"][0]["why"].as_str().unwrap();
    assert!(why.contains("spec.kubelet.evictionHard.memory.available: \"some\" is neither"), "{why}");
}

#[test]
fn a_pod_that_cannot_be_read_has_no_place_and_the_rest_goes_on() {
    let bad = [
        pod(0, "much", |_| {}),
        pod(1, "1", |pod| pod["spec"]["containers"] = json!("none")),
        pod(2, "1", |pod| pod["spec"]["tolerations"] = json!([{"operator": "Perhaps"}])),
    ];
    let objects: Vec<Value> = [pool(|_| {}), pod(3, "1", |_| {})].into_iter().chain(bad).collect();
    let (document, code) = planned(&objects);
    assert_eq!((outcomes(&document), code), (vec!["refused", "refused", "refused", "buy"], 3));
    for (number, field) in [(0, "requests[cpu]"), (1, "spec.containers"), (2, "tolerations")] {
        let stated = document["pods"][number]["reasons"][0]["change"].as_str().unwrap();
        assert!(stated.contains(field), "{stated}");
        let ignored = document["ignored"].as_array().unwrap();
        assert!(ignored.iter().any(|one| one["name"] == format!("p-{number}") && one["why"] == stated), "{ignored:?}");
    }
    // Of those that somebody else schedules, that have a node or that have ended none is asked for.
    let others = [
        pod(0, "much", |pod| pod["spec"]["schedulerName"] = json!("other")),
        pod(1, "1", |pod| {
            pod["spec"]["containers"] = json!("none");
            pod["spec"]["nodeName"] = json!("n-1");
        }),
        pod(2, "1", |pod| {
            pod["spec"]["containers"] = json!("none");
            pod["status"]["phase"] = json!("Succeeded");
        }),
    ];
    let objects: Vec<Value> = [pool(|_| {})].into_iter().chain(others).collect();
    let (document, code) = planned(&objects);
    assert_eq!((outcomes(&document), code), (vec![], 0));
    assert_eq!(document["ignored"].as_array().unwrap().len(), 3);
}

#[test]
fn selectors_in_karpenters_words_match_new_nodes_if_they_carry_its_labels() {
    let asks = pod(0, "1", |pod| pod["spec"]["nodeSelector"] = json!({"karpenter.k8s.aws/instance-family": "fake"}));
    let objects = [pool(|_| {}), asks];
    let (document, code) = planned(&objects);
    assert_eq!((outcomes(&document), code), (vec!["refused"], 3));
    assert_eq!(document["pods"][0]["reasons"][0]["code"], "UndefinedLabel");
    let (document, code) = planned_with(&objects, |arguments| arguments.karpenter_labels = true);
    assert_eq!((outcomes(&document), code), (vec!["buy"], 0));
    assert_eq!(document["nodes"][0]["labels"]["karpenter.sh/capacity-type"], "on-demand");
    assert!(document["nodes"][0]["labels"].get("karpenter.sh/nodepool").is_none());
}

#[test]
fn a_pool_that_requires_in_karpenters_words_gets_what_it_requires_or_is_refused_by_name() {
    let requires = |values: serde_json::Value| {
        pool(|spec| {
            spec["template"]["spec"]["requirements"] = json!([
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": values},
                {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["fake"]},
            ]);
        })
    };
    // The catalogue has everything on demand, and nothing on spot.
    for (capacity_type, outcome) in [("on-demand", "buy"), ("spot", "refused")] {
        let objects = [requires(json!([capacity_type])), pod(0, "1", |_| {})];
        let (document, _) = planned_with(&objects, |arguments| arguments.karpenter_labels = true);
        assert_eq!(outcomes(&document), [outcome], "{document:#}");
        for node in document["nodes"].as_array().unwrap() {
            assert_eq!(node["labels"]["karpenter.sh/capacity-type"], node["market"]);
        }
        let (document, code) = planned(&objects);
        assert_eq!((outcomes(&document), code), (vec!["refused"], 3));
        let why = document["ignored"][0]["why"].as_str().unwrap();
        assert!(why.contains("requirements[0].key: \"karpenter.sh/capacity-type\" is on no node"), "{why}");
    }
    let alone = pool(|spec| {
        let requirement = json!({"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["fake"]});
        spec["template"]["spec"]["requirements"] = json!([requirement]);
    });
    let (document, _) = planned(&[alone.clone(), pod(0, "1", |_| {})]);
    let why = document["ignored"][0]["why"].as_str().unwrap();
    assert!(why.contains("requirements[0].key: \"karpenter.k8s.aws/instance-family\" is on no node"), "{why}");
    let (document, _) = planned_with(&[alone, pod(0, "1", |_| {})], |arguments| arguments.karpenter_labels = true);
    assert_eq!(outcomes(&document), ["buy"]);
    let other = pool(|spec| {
        let requirement = json!({"key": "karpenter.k8s.aws/instance-family", "operator": "NotIn", "values": ["fake"]});
        spec["template"]["spec"]["requirements"] = json!([requirement]);
    });
    let (document, _) = planned_with(&[other, pod(0, "1", |_| {})], |arguments| arguments.karpenter_labels = true);
    assert_eq!(outcomes(&document), ["refused"]);
}

#[test]
fn a_startup_taint_keeps_no_pod_away_and_is_shown_apart_from_the_permanent_ones() {
    let taint = json!({"key": "cni.example.com/not-ready", "value": "", "effect": "NoExecute"});
    let tainted = |field: &str| pool(|spec| spec["template"]["spec"][field] = json!([taint]));
    let (document, code) = planned(&[tainted("startupTaints"), pod(0, "1", |_| {})]);
    assert_eq!((outcomes(&document), code), (vec!["buy"], 0));
    assert_eq!(document["nodes"][0]["startupTaints"], json!([taint]));
    assert_eq!(document["nodes"][0]["taints"], json!([]));
    let (document, _) = planned(&[tainted("taints"), pod(0, "1", |_| {})]);
    assert_eq!(outcomes(&document), ["refused"]);
}

#[test]
fn min_values_are_reached_over_the_node_and_its_alternatives_or_the_pod_is_refused() {
    let asks = |least: u32| {
        pool(|spec| {
            let requirement =
                json!({"key": "node.kubernetes.io/instance-type", "operator": "Exists", "minValues": least});
            spec["template"]["spec"]["requirements"] = json!([requirement]);
        })
    };
    let (document, _) = planned(&[asks(2), pod(0, "1", |_| {})]);
    assert_eq!(outcomes(&document), ["buy"]);
    let node = &document["nodes"][0];
    let of_node = node["type"].as_str().into_iter();
    let others = node["alternatives"].as_array().unwrap().iter().filter_map(|one| one["type"].as_str());
    let types: std::collections::BTreeSet<&str> = of_node.chain(others).collect();
    assert!(types.len() >= 2, "{types:?}");
    let (document, _) = planned(&[asks(4), pod(0, "1", |_| {})]);
    assert_eq!(outcomes(&document), ["refused"]);
    assert!(document["pods"][0].to_string().contains("MinValues"), "{}", document["pods"][0]);
}

#[test]
fn min_values_by_best_effort_are_dropped_where_a_pod_finds_no_node_with_them_and_only_there() {
    let best_effort = |arguments: &mut Arguments<'_>| arguments.min_values = MinValues::BestEffort;
    let asks = |least: u32| {
        pool(|spec| {
            let requirement =
                json!({"key": "node.kubernetes.io/instance-type", "operator": "Exists", "minValues": least});
            spec["template"]["spec"]["requirements"] = json!([requirement]);
        })
    };
    let (document, code) = planned_with(&[asks(4), pod(0, "1", |_| {})], best_effort);
    assert_eq!((outcomes(&document), code), (vec!["buy"], 0));
    let dropped = json!([{"what": "minValues", "index": 0, "weight": null}]);
    assert_eq!(document["pods"][0]["relaxed"], dropped);
    let (document, _) = planned_with(&[asks(2), pod(0, "1", |_| {})], best_effort);
    assert_eq!((outcomes(&document), &document["pods"][0]["relaxed"]), (vec!["buy"], &json!([])));
    let (document, _) = planned_with(&[asks(4), pod(0, "10000", |_| {})], best_effort);
    assert_eq!(outcomes(&document), ["refused"], "it fits no node with or without them");
    let apart = |spec: &mut Value| {
        let selector = json!({"matchLabels": {"app": "a"}});
        spec["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]);
    };
    let (document, _) = planned_with(&[asks(4), pod(0, "1", apart), pod(1, "1", apart)], best_effort);
    assert_eq!(outcomes(&document), ["buy", "buy"], "pods with constraints of their own as well");
    assert_eq!(document["pods"][1]["relaxed"], dropped);
}

#[test]
fn a_pool_with_a_field_that_does_not_act_yet_is_named_with_it_and_nothing_is_planned_from_it() {
    let expires = pool(|spec| spec["template"]["spec"]["expireAfter"] = json!("720h"));
    let (document, _) = planned(&[expires, pod(0, "1", |_| {})]);
    assert_eq!(outcomes(&document), ["refused"]);
    assert!(document.to_string().contains("spec.template.spec.expireAfter"), "{document:#}");
}

/// A NodeBatch for pods of no gang: `count` nodes of type `small` in zone `z-2`.
fn batch(count: u32, change: impl FnOnce(&mut Value)) -> Value {
    let mut batch = json!({"apiVersion": "muster.dev/v1alpha1", "kind": "NodeBatch",
        "metadata": {"name": "general-1", "uid": "b-1", "creationTimestamp": "2026-07-20T10:00:00Z"},
        "spec": {"nodePools": ["general"], "count": count, "fill": "Partial", "zones": ["z-2"],
                 "capacityType": "on-demand",
                 "offers": [{"nodePool": "general", "instanceType": "small", "count": count}]}});
    change(&mut batch);
    batch
}

fn instances(states: &[(&str, Option<&str>)]) -> Value {
    let one = |(number, (state, node)): (usize, &(&str, Option<&str>))| json!({"id": format!("i-{number}"), "attempt": 1, "state": state, "nodeName": node});
    json!(states.iter().enumerate().map(one).collect::<Vec<_>>())
}

fn places(document: &Value) -> Vec<(&str, Option<&str>)> {
    let pods = document["pods"].as_array().unwrap().iter();
    pods.map(|pod| (pod["outcome"].as_str().unwrap(), pod["node"].as_str())).collect()
}

#[test]
fn nodes_that_a_batch_is_about_to_launch_hold_pods_before_any_other_is_launched_and_count_against_the_limits() {
    let limited = || pool(|spec| spec["limits"] = json!({"nodes": 3}));
    // Each node holds one pod of 3 CPU.
    let pods: Vec<Value> = (0..5).map(|number| pod(number, "3", |_| {})).collect();
    let with = |batch: Value| [&[limited(), batch], &pods[..]].concat();
    let (document, code) = planned(&with(batch(2, |_| {})));
    let joining = [("joining", Some("general-1/0")), ("joining", Some("general-1/1"))];
    assert_eq!(
        places(&document),
        [&joining[..], &[("buy", Some("new/0")), ("buy", Some("new/0")), ("refused", None)]].concat()
    );
    assert_eq!(code, 3);
    let limit = &document["limits"][0];
    assert_eq!((&limit["used"], &limit["planned"]), (&json!("2"), &json!("1")), "{limit}");

    // The zone is the batch's: a pod that must not stand there needs another.
    let elsewhere = pod(0, "3", |pod| pod["spec"]["nodeSelector"] = json!({"topology.kubernetes.io/zone": "z-1"}));
    let (document, _) = planned(&[limited(), batch(2, |_| {}), elsewhere]);
    assert_eq!(places(&document), [("buy", Some("new/0"))]);
}

#[test]
fn an_instance_without_a_node_is_on_its_way_and_one_that_is_lost_or_has_a_node_is_not() {
    let pods: Vec<Value> = (0..3).map(|number| pod(number, "3", |_| {})).collect();
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n-0", "labels": {"muster.dev/nodepool": "general", "topology.kubernetes.io/zone": "z-2",
                     "node.kubernetes.io/instance-type": "small"}},
        "spec": {"providerID": "aws:///z-2/i-0"},
        "status": {"allocatable": {"cpu": "3900m", "memory": "16Gi", "pods": "20"},
                   "conditions": [{"type": "Ready", "status": "True"}]}});
    let joining = |states: &[(&str, Option<&str>)]| {
        batch(3, |batch| {
            batch["status"] = json!({"version": 1, "phase": "Joining", "nodePool": "general", "instanceType": "small",
                "zone": "z-2", "market": "on-demand", "count": 3, "instances": instances(states)});
        })
    };
    let states = [("Running", None), ("Running", None), ("Lost", None)];
    let objects = |batch: Value| [&[pool(|_| {}), node.clone(), batch], &pods[..]].concat();
    let (document, _) = planned(&objects(joining(&states)));
    // One has its Node, found by its id; one comes; the third is lost.
    let wanted = [("placed", Some("n-0")), ("joining", Some("general-1/0")), ("buy", Some("new/0"))];
    assert_eq!(places(&document), wanted);
    // What is being ended is no capacity.
    for phase in ["Draining", "Terminating"] {
        let mut ending = joining(&states);
        ending["status"]["phase"] = json!(phase);
        let (document, _) = planned(&objects(ending));
        assert_eq!(outcomes(&document), ["placed", "buy", "buy"], "{phase}");
    }
    let mut deleted = joining(&states);
    deleted["metadata"]["deletionTimestamp"] = json!("2026-07-20T11:00:00Z");
    let (document, _) = planned(&objects(deleted));
    assert_eq!(outcomes(&document), ["placed", "buy", "buy"]);
}

fn relaxed(document: &Value) -> Vec<Vec<&str>> {
    let of = |pod: &'_ Value| pod["relaxed"].as_array().cloned().unwrap_or_default();
    let words = ["nodeAffinity", "podAffinity", "podAntiAffinity", "topologySpread", "taint", "minValues"];
    let word = |one: &Value| words.into_iter().find(|word| one["what"] == **word).unwrap();
    document["pods"].as_array().unwrap().iter().map(|pod| of(pod).iter().map(word).collect()).collect()
}

fn zones(document: &Value) -> Vec<&str> {
    document["nodes"].as_array().unwrap().iter().map(|node| node["zone"].as_str().unwrap()).collect()
}

fn in_zones(zones: &[&str]) -> Value {
    pool(|spec| {
        spec["template"]["spec"]["requirements"] =
            json!([{"key": "topology.kubernetes.io/zone", "operator": "In", "values": zones}]);
    })
}

#[test]
fn a_preference_of_one_pod_refuses_no_other_that_comes_after_it() {
    let apart = |key: &str, of: &str| {
        let selector = json!({"matchLabels": {"app": of}});
        let term = json!({"weight": 1, "podAffinityTerm": {"topologyKey": key, "labelSelector": selector}});
        json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}})
    };
    let with = |affinity: &Value| {
        let affinity = affinity.clone();
        move |pod: &mut Value| pod["spec"]["affinity"] = affinity
    };
    // Two replicas that would rather be in two zones, of which there is one.
    let by_zone = apart("topology.kubernetes.io/zone", "a");
    let (document, code) = planned(&[in_zones(&["z-1"]), pod(0, "3", with(&by_zone)), pod(1, "3", with(&by_zone))]);
    assert_eq!((outcomes(&document), code), (vec!["buy", "buy"], 0));
    assert_eq!(relaxed(&document), [vec![], vec!["podAntiAffinity"]]);
    // The same by host, where there may be one.
    let by_host = apart("kubernetes.io/hostname", "a");
    let one = pool(|spec| spec["limits"] = json!({"nodes": 1}));
    let (document, _) = planned(&[one.clone(), pod(0, "1", with(&by_host)), pod(1, "1", with(&by_host))]);
    assert_eq!((outcomes(&document), document["nodes"].as_array().unwrap().len()), (vec!["buy", "buy"], 1));
    // Somebody without any constraint comes to whoever would rather be without it.
    let other = apart("kubernetes.io/hostname", "b");
    let plain = pod(1, "1", |pod| pod["metadata"]["labels"]["app"] = json!("b"));
    let (document, _) = planned(&[one.clone(), pod(0, "1", with(&other)), plain.clone()]);
    assert_eq!((outcomes(&document), relaxed(&document)), (vec!["buy", "buy"], vec![vec![], vec![]]));
    // Before it, whoever prefers it gives in.
    let late = pod(2, "1", with(&other));
    let (document, _) = planned(&[one, late, plain]);
    assert_eq!((outcomes(&document), relaxed(&document)), (vec!["buy", "buy"], vec![vec![], vec!["podAntiAffinity"]]));
    // Hosts for as many as may be, and all pods on them.
    let anyway = json!([{"topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway",
                         "labelSelector": {"matchLabels": {"app": "a"}}}]);
    let spread = |number| pod(number, "100m", |pod| pod["spec"]["topologySpreadConstraints"] = anyway.clone());
    let five = pool(|spec| spec["limits"] = json!({"nodes": 5}));
    let pods: Vec<Value> = (0..70).map(|number| spread(number % 60)).collect();
    let pods = pods.into_iter().enumerate().map(|(number, mut pod)| {
        pod["metadata"]["name"] = json!(format!("p-{number}"));
        pod["metadata"]["uid"] = json!(format!("uid-{number}"));
        pod
    });
    let (document, _) = planned(&[&[five], &pods.collect::<Vec<_>>()[..]].concat());
    assert_eq!((outcomes(&document), document["nodes"].as_array().unwrap().len()), (vec!["buy"; 70], 5));
}

#[test]
fn what_a_pod_would_rather_have_does_not_say_which_zones_it_is_spread_over() {
    let pods: Vec<Value> = (0..3)
        .map(|number| {
            pod(number, "3", |pod| {
                pod["spec"]["topologySpreadConstraints"] = spread("topology.kubernetes.io/zone", &json!({}));
                let zone = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z-1"]});
                let preferred = json!([{"weight": 1, "preference": {"matchExpressions": [zone]}}]);
                pod["spec"]["affinity"] =
                    json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
            })
        })
        .collect();
    let (document, _) = planned(&[&[pool(|_| {})], &pods[..]].concat());
    let mut all = zones(&document);
    all.sort_unstable();
    assert_eq!(all, ["z-1", "z-2", "z-3"]);
    let dropped = relaxed(&document).into_iter().filter(|relaxed| *relaxed == ["nodeAffinity"]).count();
    assert_eq!(dropped, 2);
}

#[test]
fn a_key_of_the_catalogue_is_a_fact_of_its_types_and_no_label_of_the_pool() {
    let family = |value: &str| {
        pool(|spec| {
            spec["template"]["spec"]["requirements"] = json!([{"key": "muster.dev/instance-category", "operator": "In", "values": [value]},
                       {"key": "size", "operator": "In", "values": ["big"]}]);
        })
    };
    let types = |text: &str| {
        let mut all: Value = serde_json::from_str(text).unwrap();
        all["types"][1]["labels"]["size"] = json!("big");
        all["types"][1]["labels"]["muster.dev/instance-category"] = json!("f");
        all.to_string()
    };
    let catalogue = types(&catalogue().to_string());
    let text = json!({"apiVersion": "v1", "kind": "List", "items": [family("f"), pod(0, "1", |_| {})]}).to_string();
    let arguments = Arguments {
        files: vec![Input { name: "dump.json", text: &text }],
        format: Format::Json,
        catalogue: Some(Input { name: "fake.json", text: &catalogue }),
        ..Arguments::default()
    };
    let document: Value = serde_json::from_str(&command::run(&arguments).unwrap().text).unwrap();
    let launched: Vec<&str> =
        document["nodes"].as_array().unwrap().iter().map(|node| node["type"].as_str().unwrap()).collect();
    assert_eq!(launched, ["large"], "small is cheaper and has no such label");
}

/// A node of the pool in zone z-2.
fn node(ready: &str, taints: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n-0", "labels": {"muster.dev/nodepool": "general", "topology.kubernetes.io/zone": "z-2",
                     "node.kubernetes.io/instance-type": "small"}},
        "spec": {"providerID": "aws:///z-2/i-0", "taints": taints},
        "status": {"allocatable": {"cpu": "3900m", "memory": "16Gi", "pods": "20"},
                   "conditions": [{"type": "Ready", "status": ready}]}})
}

#[test]
fn a_node_that_has_registered_is_on_its_way_until_it_can_be_used() {
    let driver = json!({"key": "driver.example.com/not-ready", "effect": "NoSchedule"});
    let starts = pool(|spec| spec["template"]["spec"]["startupTaints"] = json!([driver]));
    let unregistered = json!({"key": "muster.dev/unregistered", "effect": "NoExecute"});
    for (ready, taints) in
        [("False", json!([unregistered])), ("True", json!([unregistered])), ("True", json!([driver]))]
    {
        let (document, _) = planned(&[starts.clone(), node(ready, &taints), pod(0, "1", |_| {})]);
        assert_eq!(places(&document), [("joining", Some("n-0"))], "{taints}");
    }
    let (document, _) = planned(&[starts.clone(), node("True", &json!([])), pod(0, "1", |_| {})]);
    assert_eq!(places(&document), [("placed", Some("n-0"))]);
    // Any other taint stays.
    let stays = json!([{"key": "team", "value": "ml", "effect": "NoSchedule"}]);
    let (document, _) = planned(&[starts, node("True", &stays), pod(0, "1", |_| {})]);
    assert_eq!(outcomes(&document), ["buy"]);
}

#[test]
fn the_document_is_the_same_for_any_order_of_objects() {
    let other = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "ns"}});
    let mut objects = vec![pool(|_| {}), other("ConfigMap", "z"), other("Service", "a"), other("ConfigMap", "b")];
    objects.extend((0..4).map(|number| pod(number, "1", |_| {})));
    let (first, _) = planned(&objects);
    assert_eq!(first["ignored"].as_array().unwrap().len(), 3);
    objects.reverse();
    assert_eq!(planned(&objects).0, first);
}

#[test]
fn a_pod_that_names_no_scheduler_is_the_default_one_s() {
    let plain = pod(0, "1", |pod| drop(pod["spec"].as_object_mut().unwrap().remove("schedulerName")));
    let (document, _) = planned(&[pool(|_| {}), plain.clone()]);
    assert_eq!(outcomes(&document), Vec::<&str>::new());
    let (document, _) = planned_with(&[pool(|_| {}), plain], |arguments| {
        arguments.scheduler_names = vec!["default-scheduler".to_owned()];
    });
    assert_eq!(outcomes(&document), ["buy"]);
}

#[test]
fn a_daemon_set_takes_what_its_running_pods_take() {
    let template = json!({"metadata": {"labels": {"d": "d"}}, "spec": {"containers": [{"name": "c"}]}});
    let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "ns", "uid": "d"},
                     "spec": {"selector": {"matchLabels": {"d": "d"}}, "template": template}});
    let running = pod(9, "500m", |pod| {
        let owner =
            json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "d", "controller": true}]);
        pod["metadata"]["ownerReferences"] = owner;
        pod["metadata"]["name"] = json!("agent-1");
        pod["spec"]["nodeName"] = json!("elsewhere");
        pod["status"]["phase"] = json!("Running");
    });
    // 3.9 are allocatable: beside half a CPU there is no place.
    let wide = pod(0, "3800m", |_| {});
    let types = |document: &Value| document["nodes"][0]["type"].clone();
    let (document, _) = planned(&[pool(|_| {}), set.clone(), wide.clone()]);
    assert_eq!(types(&document), "small");
    let (document, _) = planned(&[pool(|_| {}), set, running, wide]);
    assert_eq!(types(&document), "large");
}

#[test]
fn a_node_on_its_way_is_a_place_for_what_a_pod_prefers_and_a_ready_one_whatever_it_prefers() {
    let prefers = |zone: &str| {
        let term = json!({"weight": 10, "preference": {"matchExpressions": [
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]}});
        pod(0, "1", |pod| {
            pod["spec"]["affinity"] =
                json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}});
        })
    };
    let launched = || {
        batch(1, |batch| batch["status"] = json!({"phase": "Joining", "instances": instances(&[("Joining", None)])}))
    };
    let unregistered = json!([{"key": "muster.dev/unregistered", "effect": "NoExecute"}]);
    for coming in [launched(), node("False", &unregistered)] {
        let (document, _) = planned(&[pool(|_| {}), coming.clone(), prefers("z-1")]);
        assert_eq!((outcomes(&document), zones(&document)), (vec!["buy"], vec!["z-1"]), "{coming}");
        assert_eq!(relaxed(&document), [Vec::<&str>::new()]);
        let (document, _) = planned(&[pool(|_| {}), coming.clone(), prefers("z-2")]);
        assert_eq!(outcomes(&document), ["joining"], "{coming}");
        // Nothing is launched where that is not possible: then it is a place all the same, and that is reported.
        let full = pool(|spec| spec["limits"] = json!({"nodes": 1}));
        let (document, _) = planned(&[full, coming.clone(), prefers("z-1")]);
        assert_eq!(
            (outcomes(&document), relaxed(&document)),
            (vec!["joining"], vec![vec!["nodeAffinity"]]),
            "{coming}"
        );
    }
    let (document, _) = planned(&[pool(|_| {}), node("True", &json!([])), prefers("z-1")]);
    assert_eq!((places(&document), relaxed(&document)), (vec![("placed", Some("n-0"))], vec![Vec::new()]));
}
