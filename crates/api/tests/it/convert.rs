//! Kubernetes objects as core types. Whether the numbers are kube-scheduler's is for the end-to-end suite to find.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod, PodTemplateSpec};
use muster_api::convert;
use muster_core::model::node::TaintEffect;
use muster_core::model::pod::{HostPort, Operator, Shape};
use serde_json::{Value, json};

fn pod(spec: &Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "team", "labels": {"app": "train"}},
        "spec": spec,
    }))
    .unwrap()
}

fn shape(spec: &Value) -> Shape {
    convert::shape_of_pod(&pod(spec)).unwrap()
}

/// `[cpu in milli, memory, …]` of the shape's requests for these resources.
fn requests<const N: usize>(spec: &Value, names: [&str; N]) -> [i64; N] {
    let shape = shape(spec);
    names.map(|name| shape.requests.get(name))
}

fn container(requests: &Value) -> Value {
    json!({"name": "c", "resources": {"requests": requests}})
}

#[test]
fn containers_run_together_and_are_summed() {
    let spec = json!({"containers": [
        container(&json!({"cpu": "500m", "memory": "1Gi"})),
        container(&json!({"cpu": "1.5", "nvidia.com/gpu": "8"})),
    ]});
    assert_eq!(requests(&spec, ["cpu", "memory", "nvidia.com/gpu", "pods"]), [2_000, 1 << 30, 8, 1]);
}

#[test]
fn an_init_container_alone_counts_only_where_it_is_larger() {
    let spec = json!({
        "initContainers": [container(&json!({"cpu": "3", "memory": "1"})), container(&json!({"cpu": "1", "memory": "5"}))],
        "containers": [container(&json!({"cpu": "2", "memory": "3"}))],
    });
    assert_eq!(requests(&spec, ["cpu", "memory"]), [3_000, 5]);
}

#[test]
fn sidecars_run_beside_the_containers_and_later_init_containers() {
    let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}});
    let init = container(&json!({"cpu": "4"}));
    let main = container(&json!({"cpu": "2"}));
    for (init_containers, cpu) in [
        (json!([sidecar, init]), 5_000),
        (json!([init, sidecar]), 4_000),
        (json!([sidecar, sidecar]), 4_000),
        (json!([sidecar, init, sidecar]), 5_000),
    ] {
        let spec = json!({"initContainers": init_containers, "containers": [main]});
        assert_eq!(requests(&spec, ["cpu"]), [cpu], "{init_containers}");
    }
}

#[test]
fn a_missing_request_is_the_limit_and_an_explicit_zero_is_not() {
    let spec = json!({"containers": [
        {"name": "a", "resources": {"limits": {"cpu": "2", "memory": "4"}, "requests": {"cpu": "1"}}},
        {"name": "b", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "0"}}},
    ]});
    assert_eq!(requests(&spec, ["cpu", "memory"]), [1_000, 4]);
}

#[test]
fn overhead_comes_on_top_of_everything() {
    let spec = json!({
        "overhead": {"cpu": "250m", "memory": "10"},
        "initContainers": [container(&json!({"cpu": "3"}))],
        "containers": [container(&json!({"cpu": "2"}))],
    });
    assert_eq!(requests(&spec, ["cpu", "memory"]), [3_250, 10]);
}

#[test]
fn pod_level_requests_replace_those_of_the_containers_but_for_extended_resources() {
    let spec = json!({
        "resources": {"requests": {"cpu": "4"}, "limits": {"cpu": "8", "memory": "100"}},
        "overhead": {"cpu": "1"},
        "containers": [container(&json!({"cpu": "1", "nvidia.com/gpu": "1"}))],
    });
    assert_eq!(requests(&spec, ["cpu", "memory", "nvidia.com/gpu"]), [5_000, 100, 1]);
    // A limit of the pod is the default of its request only where no container requests the resource.
    let spec = json!({
        "resources": {"limits": {"cpu": "8", "memory": "100"}},
        "containers": [container(&json!({"cpu": "1"}))],
    });
    assert_eq!(requests(&spec, ["cpu", "memory"]), [1_000, 100]);
}

#[test]
fn amounts_are_rounded_as_the_api_server_and_then_kube_scheduler_round_them() {
    let spec = json!({"containers": [
        container(&json!({"cpu": "0.5m", "memory": "1500m"})),
        container(&json!({"cpu": "0.5m", "memory": "1500m"})),
    ]});
    assert_eq!(requests(&spec, ["cpu", "memory"]), [2, 3]);
}

#[test]
fn resources_that_mean_nothing_to_kube_scheduler_are_excluded() {
    let spec = json!({"containers": [container(&json!({
        "storage": "1", "requests.example.com/a": "1", "pods": "7",
        "hugepages-2Mi": "2Mi", "example.com/a": "1", "attachable-volumes-x": "1",
    }))]});
    let names: Vec<String> = shape(&spec).requests.iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(names, ["attachable-volumes-x", "example.com/a", "hugepages-2Mi", "pods"]);
    assert_eq!(requests(&spec, ["pods"]), [1]);
}

#[test]
fn a_bad_quantity_is_an_error_that_names_field_and_value() {
    let bad = json!({"cpu": "5x"});
    for (spec, field) in [
        (json!({"containers": [container(&json!({})), container(&bad)]}), "spec.containers[1].resources.requests[cpu]"),
        (
            json!({"containers": [{"name": "c", "resources": {"limits": bad}}]}),
            "spec.containers[0].resources.limits[cpu]",
        ),
        (
            json!({"initContainers": [container(&bad)], "containers": []}),
            "spec.initContainers[0].resources.requests[cpu]",
        ),
        (json!({"overhead": bad, "containers": []}), "spec.overhead[cpu]"),
        (json!({"resources": {"requests": bad}, "containers": []}), "spec.resources.requests[cpu]"),
    ] {
        let error = convert::shape_of_pod(&pod(&spec)).unwrap_err();
        assert_eq!(error.field, field);
        assert!(error.source.to_string().contains("5x"), "{}", error.source);
    }
    let node: Node = serde_json::from_value(json!({"status": {"allocatable": {"memory": "much"}}})).unwrap();
    assert_eq!(convert::node(&node).unwrap_err().field, "status.allocatable[memory]");
}

#[test]
fn host_ports_of_everything_that_keeps_running_count() {
    let spec = json!({
        "initContainers": [
            {"name": "i", "ports": [{"containerPort": 1, "hostPort": 1}]},
            {"name": "s", "restartPolicy": "Always", "ports": [{"containerPort": 2, "hostPort": 2}]},
        ],
        "containers": [{"name": "c", "ports": [
            {"containerPort": 9, "hostPort": 3, "hostIP": "10.0.0.1", "protocol": "UDP"}, {"containerPort": 4},
        ]}],
    });
    let port = |ip: &str, protocol: &str, port| HostPort { ip: ip.into(), protocol: protocol.into(), port };
    assert_eq!(shape(&spec).ports, [port("0.0.0.0", "TCP", 2), port("10.0.0.1", "UDP", 3)]);
    let mut spec = spec;
    spec["hostNetwork"] = json!(true);
    assert_eq!(shape(&spec).ports.len(), 3, "every port of a pod on the host's network is one of the host's");
}

#[test]
fn selectors_affinity_and_tolerations_are_read_whole() {
    let shape = shape(&json!({
        "nodeSelector": {"a": "b"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{
            "matchExpressions": [{"key": "k", "operator": "Gt", "values": ["3"]}, {"key": "k", "operator": "Near"}],
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
        }]}}},
        "tolerations": [
            {"operator": "Exists"}, {"key": "t", "value": "v", "effect": "NoExecute", "tolerationSeconds": 3},
            {"key": "t", "operator": "Gt", "value": "3"}, {"key": "t", "operator": "Exists", "effect": "Later"},
        ],
        "containers": [],
    }));
    assert_eq!(shape.node_selector.get("a").map(|value| &**value), Some("b"));
    let term = &shape.node_affinity.unwrap()[0];
    let operators: Vec<Operator> = term.expressions.iter().map(|requirement| requirement.operator).collect();
    assert_eq!(operators, [Operator::Gt, Operator::Unknown]);
    assert_eq!(&*term.fields[0].values[0], "n");
    assert_eq!(shape.tolerations.len(), 2, "what Muster does not know tolerates nothing");
    assert!(shape.tolerations.iter().any(|toleration| toleration.exists && toleration.key.is_empty()));
    assert!(shape.tolerations.iter().any(|toleration| toleration.effect == Some(TaintEffect::NoExecute)));
}

#[test]
fn equal_pods_have_equal_shapes_whatever_the_order_of_their_lists() {
    let one = json!({"containers": [], "tolerations": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]});
    let two = json!({"containers": [], "tolerations": [
        {"key": "b", "operator": "Exists"}, {"key": "a", "operator": "Exists"}, {"key": "a", "operator": "Exists", "value": ""},
    ]});
    assert_eq!(shape(&one), shape(&two));
}

fn anti_affinity(term: &Value) -> Value {
    json!({
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        "containers": [],
    })
}

#[test]
fn anti_affinity_with_itself_by_hostname_is_one_per_node() {
    let hostname = "kubernetes.io/hostname";
    let own = json!({"matchLabels": {"app": "train"}});
    let expression = json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["train", "serve"]}]});
    for (term, alone, supported) in [
        (json!({"topologyKey": hostname, "labelSelector": own}), true, true),
        (json!({"topologyKey": hostname, "labelSelector": expression}), true, true),
        (json!({"topologyKey": hostname, "labelSelector": own, "namespaces": ["team"]}), true, true),
        (json!({"topologyKey": hostname, "labelSelector": own, "namespaces": ["other"]}), false, false),
        (json!({"topologyKey": hostname, "labelSelector": own, "namespaceSelector": {}}), false, false),
        (json!({"topologyKey": hostname, "labelSelector": own, "mismatchLabelKeys": ["app"]}), false, false),
        (json!({"topologyKey": hostname, "labelSelector": {"matchLabels": {"app": "other"}}}), false, false),
        (json!({"topologyKey": "zone", "labelSelector": own}), false, false),
        (json!({"topologyKey": hostname}), false, true),
    ] {
        let shape = shape(&anti_affinity(&term));
        assert_eq!((shape.one_per_node, shape.unsupported.is_empty()), (alone, supported), "{term}");
    }
}

#[test]
fn affinity_to_the_own_workload_is_kept_by_its_key_and_any_other_is_not() {
    let own = json!({"matchLabels": {"job-name": "train"}});
    let listed = json!({"matchExpressions": [{"key": "job-name", "operator": "In", "values": ["train"]}]});
    let two = json!({"matchExpressions": [{"key": "job-name", "operator": "In", "values": ["train", "other"]}]});
    for (term, kept) in [
        (json!({"topologyKey": "rack", "labelSelector": own}), true),
        (json!({"topologyKey": "rack", "labelSelector": listed}), true),
        (json!({"topologyKey": "rack", "labelSelector": own, "namespaces": ["team"]}), true),
        (json!({"topologyKey": "rack", "labelSelector": own, "namespaces": ["other"]}), false),
        (json!({"topologyKey": "rack", "labelSelector": own, "namespaceSelector": {}}), false),
        (json!({"topologyKey": "rack", "labelSelector": two}), false),
        (json!({"topologyKey": "rack", "labelSelector": {"matchLabels": {"job-name": "other"}}}), false),
        // Others may have the label too.
        (json!({"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "train"}}}), false),
        (json!({"topologyKey": "rack"}), false),
    ] {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"namespace": "team", "labels": {"app": "train", "job-name": "train"}},
            "spec": {
                "containers": [],
                "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
            },
        }))
        .unwrap();
        let shape = convert::shape_of_pod(&pod).unwrap();
        assert_eq!(shape.together.len(), usize::from(kept), "{term}");
        assert_eq!(shape.unsupported.len(), 1, "only a gang can keep it: {term}");
    }
}

#[test]
fn anti_affinity_to_the_own_workload_is_kept_by_its_key_unless_there_is_any_other() {
    let own = json!({"matchLabels": {"job-name": "train"}});
    let rack = json!({"topologyKey": "rack", "labelSelector": own});
    let by_host = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": own});
    let others = json!({"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "train"}}});
    for (terms, kept) in [
        (json!([rack]), vec!["rack"]),
        (json!([rack, by_host]), vec!["rack"]),
        (json!([rack, {"topologyKey": "zone", "labelSelector": own}]), vec!["rack", "zone"]),
        (json!([rack, others]), vec![]),
        (json!([{"topologyKey": "rack", "labelSelector": own, "namespaceSelector": {}}]), vec![]),
        (json!([{"topologyKey": "rack", "labelSelector": own, "mismatchLabelKeys": ["app"]}]), vec![]),
    ] {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"namespace": "team", "labels": {"app": "train", "job-name": "train"}},
            "spec": {
                "containers": [],
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
            },
        }))
        .unwrap();
        let shape = convert::shape_of_pod(&pod).unwrap();
        let keys: Vec<&str> = shape.apart.iter().map(|term| &*term.key).collect();
        assert_eq!(keys, kept, "{terms}");
        assert_eq!(shape.unsupported.len(), 1, "only a gang can keep it: {terms}");
    }
}

#[test]
fn everything_not_modelled_is_named() {
    let required =
        |kind: &str| json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}});
    for (spec, named) in [
        (json!({"affinity": required("podAffinity")}), "required podAffinity"),
        (
            json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]}),
            "topologySpreadConstraints with DoNotSchedule",
        ),
        (json!({"resourceClaims": [{"name": "gpu"}]}), "resourceClaims"),
        (json!({"containers": [container(&json!({"deviceclass.resource.kubernetes.io/gpu": "1"}))]}), "resourceClaims"),
        (json!({"volumes": [{"name": "data", "awsElasticBlockStore": {"volumeID": "vol-1"}}]}), "disk volumes"),
        (json!({"hostUsers": false, "hostNetwork": true}), "features that only some kubelets have"),
    ] {
        let mut spec = spec;
        let containers = spec.get("containers").cloned().unwrap_or(json!([]));
        spec["containers"] = containers;
        let unsupported = shape(&spec).unsupported;
        assert_eq!(unsupported.iter().map(|text| &**text).collect::<Vec<_>>(), [named], "{spec}");
    }
    let plain = json!({
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "scratch", "ephemeral": {}},
        ],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"}],
        "containers": [],
    });
    assert!(shape(&plain).unsupported.is_empty());
}

#[test]
fn a_template_has_the_shape_of_its_pods() {
    let spec = json!({"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]});
    let template: PodTemplateSpec =
        serde_json::from_value(json!({"metadata": {"labels": {"app": "train"}}, "spec": spec})).unwrap();
    assert_eq!(convert::shape_of_template("team", &template).unwrap(), shape(&spec));
    let empty = convert::shape_of_template("team", &PodTemplateSpec::default()).unwrap();
    assert_eq!(empty.requests.get("pods"), 1);
}

#[test]
fn a_pod_holds_capacity_from_its_binding_until_it_has_finished_or_gone() {
    for (node, phase, deleted, holds) in [
        (None, "Pending", false, false),
        (Some(""), "Pending", false, false),
        (Some("n"), "Pending", false, true),
        (Some("n"), "Running", false, true),
        (Some("n"), "Running", true, true),
        (Some("n"), "Unknown", false, true),
        (Some("n"), "Succeeded", false, false),
        (Some("n"), "Failed", true, false),
    ] {
        let mut pod = pod(&json!({"nodeName": node, "containers": []}));
        pod.status = serde_json::from_value(json!({"phase": phase, "nominatedNodeName": "n"})).unwrap();
        if deleted {
            pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        }
        assert_eq!(convert::holds_capacity(&pod), holds, "{node:?} {phase} {deleted}");
    }
}

#[test]
fn usage_is_the_sum_over_pods_that_hold_capacity() {
    let bound = pod(&json!({"nodeName": "n", "containers": [
        {"name": "c", "resources": {"requests": {"cpu": "1"}}, "ports": [{"containerPort": 1, "hostPort": 1}]},
    ]}));
    let mut done = bound.clone();
    done.status = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
    let waiting = pod(&json!({"containers": [container(&json!({"cpu": "1"}))]}));
    let usage = convert::usage_of([&bound, &done, &waiting, &bound]).unwrap();
    assert_eq!((usage.requested.get("cpu"), usage.requested.get("pods"), usage.ports.len()), (2_000, 2, 2));
}

#[test]
fn a_resize_holds_the_largest_of_wanted_allocated_and_in_use() {
    let mut pod = pod(&json!({"nodeName": "n", "containers": [
        {"name": "c", "resources": {"requests": {"cpu": "2", "memory": "2"}}},
    ]}));
    let container = |allocated: &Value, actual: &Value| {
        json!({"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
               "allocatedResources": allocated, "resources": {"requests": actual}})
    };
    let infeasible = json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
    let deferred = json!([{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]);
    for (allocated, actual, conditions, cpu, memory) in [
        (json!({"cpu": "1", "memory": "3"}), json!({"cpu": "1", "memory": "1"}), json!([]), 2_000, 3),
        (json!({"cpu": "1", "memory": "1"}), json!({"cpu": "3", "memory": "1"}), deferred, 3_000, 2),
        (json!({"cpu": "1", "memory": "1"}), json!({"cpu": "1", "memory": "1"}), infeasible, 1_000, 1),
    ] {
        pod.status = serde_json::from_value(json!({
            "phase": "Running", "conditions": conditions, "containerStatuses": [container(&allocated, &actual)],
        }))
        .unwrap();
        let usage = convert::usage_of([&pod]).unwrap();
        assert_eq!((usage.requested.get("cpu"), usage.requested.get("memory")), (cpu, memory), "{conditions}");
    }
    let shape = convert::shape_of_pod(&pod).unwrap();
    assert_eq!(shape.requests.get("cpu"), 2_000, "the status plays no part in the shape");
}

#[test]
fn pods_keep_apart_by_the_anti_affinity_of_either() {
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "train"}}});
    let mut spec = anti_affinity(&term);
    spec["nodeName"] = json!("n");
    let alone = pod(&spec);
    let plain = pod(&json!({"nodeName": "n", "containers": []}));
    let mut stranger = plain.clone();
    stranger.metadata.namespace = Some("other".to_owned());
    assert!(convert::neighbour(&alone).keeps_apart(&convert::neighbour(&plain)));
    assert!(convert::neighbour(&plain).keeps_apart(&convert::neighbour(&alone)));
    assert!(!convert::neighbour(&plain).keeps_apart(&convert::neighbour(&plain)));
    assert!(!convert::neighbour(&alone).keeps_apart(&convert::neighbour(&stranger)));
    assert_eq!(convert::own_shape_pods(&alone, [&plain, &alone, &stranger]), 2);
}

#[test]
fn the_vpc_network_says_in_its_own_container_that_it_gives_prefixes() {
    let prefixes = |container: &str, env: &Value| {
        let set: DaemonSet = serde_json::from_value(json!({
            "metadata": {"name": "aws-node", "namespace": "kube-system"},
            "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": container, "env": env}]}}},
        }))
        .unwrap();
        convert::daemon(&set).unwrap().prefixes
    };
    let given = |value: &str| json!([{"name": "WARM_PREFIX_TARGET", "value": "1"}, {"name": "ENABLE_PREFIX_DELEGATION", "value": value}]);
    for (value, expected) in
        [("true", true), ("1", true), ("True", true), ("false", false), ("", false), ("yes", false)]
    {
        assert_eq!(prefixes("aws-node", &given(value)), expected, "{value}");
    }
    assert!(!prefixes("aws-node", &json!([])) && !prefixes("aws-node", &Value::Null));
    assert!(!prefixes("other", &given("true")), "a variable of somebody else");
    let elsewhere =
        json!([{"name": "ENABLE_PREFIX_DELEGATION", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]);
    assert!(!prefixes("aws-node", &elsewhere));
}

#[test]
fn a_node_is_read_whole() {
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "n", "labels": {"a": "b"}, "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "unschedulable": true, "providerID": "aws:///us-east-1a/i-1",
            "taints": [{"key": "k", "effect": "NoExecute"}, {"key": "k", "effect": "Later"}],
        },
        "status": {
            "allocatable": {"cpu": "3920m", "memory": "1.5Gi", "pods": "110", "storage": "5"},
            "capacity": {"memory": "2Gi", "hugepages-2Mi": "256Mi", "hugepages-1Gi": "0"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }))
    .unwrap();
    let node = convert::node(&node).unwrap();
    assert_eq!(node.name.as_str(), "n");
    assert_eq!(node.labels.get("a").map(|value| &**value), Some("b"));
    assert_eq!(node.taints.iter().map(ToString::to_string).collect::<Vec<_>>(), ["k:NoExecute"]);
    let amounts: Vec<i64> = ["cpu", "memory", "pods", "storage"].map(|name| node.allocatable.get(name)).into();
    assert_eq!(amounts, [3_920, 1_610_612_736, 110, 0]);
    assert!(node.unschedulable && node.ready && node.deleting);
    assert_eq!(node.provider_id.as_deref(), Some("aws:///us-east-1a/i-1"));
    assert_eq!(node.memory, Some((2048 - 256) << 20), "huge pages are requested apart");
    let bare = convert::node(&Node::default()).unwrap();
    assert_eq!(bare.memory, None);
    assert!(!bare.ready && !bare.unschedulable && !bare.deleting);
}

#[test]
fn a_cordon_with_our_annotation_is_a_hold_and_no_cordon_and_without_the_cordon_the_node_is_still_one_gang_s() {
    let read = |cordoned: Option<bool>, annotation: Option<&str>, taints: serde_json::Value| {
        let annotations = annotation.map(|uid| json!({"muster.dev/hold": uid}));
        let spec = json!({"unschedulable": cordoned, "taints": taints});
        let object = json!({"metadata": {"name": "n", "annotations": annotations}, "spec": spec});
        let node = convert::node(&serde_json::from_value(object).unwrap()).unwrap();
        let taints: Vec<String> = node.taints.iter().map(ToString::to_string).collect();
        (node.held, node.unschedulable, taints.join(" "))
    };
    let (cordon, pending) = (
        json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}),
        json!({"key": "muster.dev/gang-pending", "value": "u-1", "effect": "NoSchedule"}),
    );
    let waits = "muster.dev/gang-pending=u-1:NoSchedule".to_owned();
    assert_eq!(read(Some(true), Some("u-1"), json!([cordon])), (true, false, waits.clone()), "held");
    assert_eq!(read(None, Some("u-1"), json!([])), (false, false, waits.clone()), "somebody uncordoned it");
    assert_eq!(read(None, None, json!([pending])), (false, false, waits), "it has just registered");
    let unschedulable = "node.kubernetes.io/unschedulable:NoSchedule".to_owned();
    assert_eq!(read(Some(true), None, json!([cordon])), (false, true, unschedulable), "somebody else's");
}

#[test]
fn what_the_release_adds_is_no_toleration_of_somebody_else_s_cordon() {
    let tolerations = |list: serde_json::Value| {
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [], "tolerations": list}})).unwrap();
        let shape = convert::shape_of_pod(&pod).unwrap();
        shape.tolerations.iter().map(|toleration| toleration.key.to_string()).collect::<Vec<_>>()
    };
    // As the API server answers: an empty value is not there.
    let ours = json!({"key": "node.kubernetes.io/unschedulable", "operator": "Equal", "effect": "NoSchedule"});
    let gang = json!({"key": "muster.dev/gang-pending", "operator": "Equal", "value": "u", "effect": "NoSchedule"});
    let own = json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"});
    let (cordon, pending) = ("node.kubernetes.io/unschedulable", "muster.dev/gang-pending");
    assert_eq!(tolerations(json!([gang, ours])), [pending]);
    assert_eq!(tolerations(json!([gang, ours, own])), [pending, cordon], "the author's own stays");
    assert_eq!(tolerations(json!([ours])), [cordon], "nobody released it");
}
