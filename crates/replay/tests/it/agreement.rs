//! What `muster plan` provisions is what the server would: its rules hold offline too.

use muster_replay::command::Format;
use serde_json::{Value, json};

use crate::support::{document, run};

/// A member of gang `train` that fills a p5.48xlarge.
fn member(rank: usize, gang: &Value) -> Value {
    let mut annotations = json!({"muster.dev/gang": "train", "muster.dev/rank": rank.to_string()});
    annotations.as_object_mut().unwrap().extend(gang.as_object().unwrap().clone());
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("train-{rank}"), "namespace": "ml", "uid": format!("uid-{rank}"), "annotations": annotations},
        "spec": {"schedulerName": "muster", "schedulingGates": [{"name": "muster.dev/gang"}],
                 "containers": [{"name": "main", "resources": {"requests": {"cpu": "8", "nvidia.com/gpu": "8"},
                                                              "limits": {"nvidia.com/gpu": "8"}}}]},
    })
}

/// NodePool `p5` of p5.48xlarge.
fn pool() -> Value {
    let family = json!({"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["p5.48xlarge"]});
    json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "p5"},
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "muster.dev", "kind": "EC2NodeClass", "name": "gpu"}, "requirements": [family],
        }}},
    })
}

/// EC2NodeClass `gpu` with subnets in two zones.
fn class(spec: &Value, status: &Value) -> Value {
    let mut class = json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "EC2NodeClass", "metadata": {"name": "gpu"},
        "spec": {
            "amiSelectorTerms": [{"alias": "al2023@latest"}], "instanceProfile": "nodes",
            "subnetSelectorTerms": [{"id": "subnet-1"}], "securityGroupSelectorTerms": [{"id": "sg-1"}],
        },
        "status": {"subnets": [{"id": "subnet-1", "zone": "us-east-1a"}, {"id": "subnet-2", "zone": "us-east-1b"}]},
    });
    class["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    class["status"].as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
    class
}

fn list(items: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

/// The entry of the gang when nodes are provisioned for so many members that exist.
fn planned(members: usize, gang: &Value, class: Value) -> Value {
    let pods = (0..members).map(|rank| member(rank, gang));
    let items: Vec<Value> = [pool(), class].into_iter().chain(pods).collect();
    let entry = &document(&list(&items))["gangs"][0];
    entry.clone()
}

#[test]
fn nodes_are_provisioned_for_members_that_exist_and_for_the_minimum_alone() {
    let elastic = json!({"muster.dev/gang-size": "8", "muster.dev/gang-min": "4"});
    for (members, nodes) in [(4, 4), (5, 5), (8, 8)] {
        let entry = planned(members, &elastic, class(&json!({}), &json!({})));
        assert_eq!(entry["buy"][0]["count"], nodes, "{members} members exist: {entry}");
    }
    let fixed = json!({"muster.dev/gang-size": "8"});
    let entry = planned(8, &fixed, class(&json!({}), &json!({})));
    assert_eq!(entry["buy"][0]["count"], 8);
}

#[test]
fn a_class_that_cannot_launch_a_type_sells_none_of_it() {
    let fixed = json!({"muster.dev/gang-size": "2"});
    let interface = |card: u32, kind: &str| json!({"networkCardIndex": card, "deviceIndex": 0, "interfaceType": kind});
    // A p5.48xlarge has 32 network cards.
    let wrong = json!({"networkInterfaces": [interface(0, "interface"), interface(40, "efa-only")]});
    let items = |class: Value| list(&[pool(), class, member(0, &fixed), member(1, &fixed)]);
    let table = run(&items(class(&wrong, &json!({}))), Format::Table).unwrap().text;
    assert!(table.contains("network card 40") && !table.contains("provisions"), "{table}");
    let arm = json!({"amis": [{"id": "ami-1", "architecture": "arm64", "variant": "nvidia"}]});
    let table = run(&items(class(&json!({}), &arm)), Format::Table).unwrap().text;
    assert!(table.contains("no image for") && !table.contains("provisions"), "{table}");
    let resolved = json!({"amis": [{"id": "ami-1", "architecture": "x86_64", "variant": "nvidia"}]});
    assert_eq!(planned(2, &fixed, class(&json!({}), &resolved))["buy"][0]["count"], 2);
}

#[test]
fn subnets_without_free_addresses_are_passed_over() {
    let fixed = json!({"muster.dev/gang-size": "2"});
    let subnets = |one: u32, two: u32| {
        json!({"subnets": [{"id": "subnet-1", "zone": "us-east-1a", "availableAddresses": one},
                           {"id": "subnet-2", "zone": "us-east-1b", "availableAddresses": two}]})
    };
    let zone = |status: &Value| planned(2, &fixed, class(&json!({}), status))["buy"][0]["zone"].clone();
    assert_eq!(zone(&subnets(200, 200)), "us-east-1a");
    assert_eq!(zone(&subnets(1, 200)), "us-east-1b");
    let none = planned(2, &fixed, class(&json!({}), &subnets(1, 1)));
    assert_eq!(none["buy"], json!([]), "{none}");
    assert!(none["reasons"].as_array().unwrap().iter().any(|reason| reason["code"] == "Addresses"), "{none}");
}

#[test]
fn in_an_ipv6_cluster_a_subnet_without_an_ipv6_cidr_is_passed_over_by_name() {
    let fixed = json!({"muster.dev/gang-size": "2"});
    let status = |one: bool, two: bool| {
        json!({"ipv6": true, "subnets": [
            {"id": "subnet-1", "zone": "us-east-1a", "availableAddresses": 200, "ipv6": one},
            {"id": "subnet-2", "zone": "us-east-1b", "availableAddresses": 200, "ipv6": two},
        ]})
    };
    let zone = |status: &Value| planned(2, &fixed, class(&json!({}), status))["buy"][0]["zone"].clone();
    assert_eq!(zone(&status(true, true)), "us-east-1a");
    assert_eq!(zone(&status(false, true)), "us-east-1b");
    let none = planned(2, &fixed, class(&json!({}), &status(false, false)));
    assert_eq!(none["buy"], json!([]), "{none}");
    let reasons = none["reasons"].to_string();
    assert!(reasons.contains("a subnet in the zone") && reasons.contains("Addresses"), "{none}");
}

#[test]
fn a_network_that_gives_prefixes_makes_more_pods_fit_on_a_new_node() {
    // A p5.48xlarge takes 51 pods beside an efa-only interface, with prefixes 250.
    let network = |value: &str| {
        let variable = json!({"name": "ENABLE_PREFIX_DELEGATION", "value": value});
        let container = json!({"name": "aws-node", "image": "amazon-k8s-cni:v1", "env": [variable]});
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "aws-node", "namespace": "kube-system"},
            "spec": {"selector": {}, "template": {"spec": {"containers": [container]}}},
        })
    };
    let small = |rank: usize| {
        let mut pod = member(rank, &json!({"muster.dev/gang-size": "200"}));
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "500m"}});
        pod
    };
    let nodes = |value: &str| {
        let items = [pool(), class(&json!({}), &json!({})), network(value)].into_iter().chain((0..200).map(small));
        document(&list(&items.collect::<Vec<_>>()))["gangs"][0]["buy"][0]["count"].clone()
    };
    assert_eq!(nodes("true"), 1);
    assert!(nodes("false").as_u64() > Some(1));
}

/// A running p5.48xlarge that member 0 stands on.
fn running(zone: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n-1", "labels": {
            "kubernetes.io/hostname": "n-1", "topology.kubernetes.io/zone": zone,
            "topology.k8s.aws/network-node-layer-1": "a", "topology.k8s.aws/network-node-layer-2": "b",
            "topology.k8s.aws/network-node-layer-3": "c",
        }},
        "status": {"allocatable": {"cpu": "190", "memory": "1900Gi", "nvidia.com/gpu": "8", "pods": "110"},
                   "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

#[test]
fn a_member_that_was_lost_beside_running_ones_is_provisioned_for_in_their_zone() {
    let tight =
        json!({"muster.dev/gang-size": "2", "muster.dev/topology-required": "topology.k8s.aws/network-node-layer-3"});
    let mut first = member(0, &tight);
    first["spec"]["nodeName"] = "n-1".into();
    first["spec"].as_object_mut().unwrap().remove("schedulingGates");
    first["status"] = json!({"phase": "Running"});
    let items = [pool(), class(&json!({}), &json!({})), first, member(1, &tight), running("us-east-1b")];
    let entry = &document(&list(&items))["gangs"][0];
    assert_eq!((&entry["buy"][0]["count"], &entry["buy"][0]["zone"]), (&json!(1), &json!("us-east-1b")), "{entry}");
}
