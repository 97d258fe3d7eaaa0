//! Labels of nodes to come that say where they stand: the region, and the zone as the EBS driver has it.

use serde_json::{Value, json};

use crate::ordinary::planned;

const TYPE: &str = "m5.large";

fn catalogue() -> String {
    let price = |zone: &str| json!({"type": TYPE, "zone": zone, "market": "on-demand", "usdMicroPerHour": 96_000});
    let card = json!({"index": 0, "kinds": ["interface"], "maxInterfaces": 3});
    let info = json!({"name": TYPE, "vcpu": 2, "memoryMib": 8192, "gpus": [], "neuronDevices": 0, "efaMax": 0,
        "networkCards": [card], "ipv4PerInterface": 10, "supportsClusterGroup": true, "usageClasses": ["on-demand"],
        "architectures": ["x86_64"]});
    json!({"version": 2, "name": "ec2", "types": [info], "prices": [price("us-east-1a"), price("us-east-1b")]})
        .to_string()
}

/// A pool with a class of these zones.
fn pool(zones: &[&str], requirements: &Value) -> [Value; 2] {
    let subnet = |zone: &&str| json!({"id": format!("subnet-{zone}"), "zone": zone});
    let subnets: Vec<Value> = zones.iter().map(subnet).collect();
    let pool = json!({"apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "p"},
        "spec": {"template": {"spec": {"requirements": requirements,
            "nodeClassRef": {"group": "muster.dev", "kind": "EC2NodeClass", "name": "any"}}}}});
    let class = json!({"apiVersion": "muster.dev/v1alpha1", "kind": "EC2NodeClass", "metadata": {"name": "any"},
        "spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}], "subnetSelectorTerms": [{"id": "subnet-1"}],
                 "securityGroupSelectorTerms": [{"id": "sg-1"}], "instanceProfile": "x"},
        "status": {"subnets": subnets}});
    [pool, class]
}

fn spec(selector: &Value) -> Value {
    json!({"schedulerName": "muster", "restartPolicy": "Never", "nodeSelector": selector,
           "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]})
}

fn pod(selector: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "ns", "uid": "a"},
           "spec": spec(selector), "status": {"phase": "Pending"}})
}

/// A gang of one member.
fn job(selector: &Value) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "g", "namespace": "ns", "uid": "g"},
        "spec": {"completionMode": "Indexed", "completions": 1, "parallelism": 1,
                 "template": {"metadata": {"annotations": {"muster.dev/gang": "g"}}, "spec": spec(selector)}}})
}

fn plan(objects: &[Value]) -> Value {
    let text: String = objects.iter().map(|object| format!("---\n{object}\n")).collect();
    planned(&text, &catalogue()).0
}

#[test]
fn new_nodes_carry_the_region_and_the_zone_of_the_ebs_driver() {
    for selector in
        [json!({"topology.kubernetes.io/region": "us-east-1"}), json!({"topology.ebs.csi.aws.com/zone": "us-east-1b"})]
    {
        let mut objects = vec![pod(&selector), job(&selector)];
        objects.extend(pool(&["us-east-1a", "us-east-1b"], &json!([])));
        let document = plan(&objects);
        assert_eq!(document["pods"][0]["outcome"], "buy", "{selector}: {:#}", document["pods"]);
        let labels = &document["nodes"][0]["labels"];
        assert_eq!(labels["topology.kubernetes.io/region"], "us-east-1");
        assert_eq!(labels["topology.ebs.csi.aws.com/zone"], document["nodes"][0]["zone"]);
        assert_eq!(document["gangs"][0]["buy"].as_array().map(Vec::len), Some(1), "{:#}", document["gangs"]);
    }
}

#[test]
fn a_pool_of_one_zone_is_provisioned_for_what_the_ebs_driver_calls_by_its_label() {
    let selector = json!({"topology.ebs.csi.aws.com/zone": "us-east-1b"});
    for (zone, outcome, provisioned) in [("us-east-1b", "buy", 1), ("us-east-1a", "refused", 0)] {
        let mut objects = vec![pod(&selector), job(&selector)];
        objects.extend(pool(&[zone], &json!([])));
        let document = plan(&objects);
        assert_eq!(document["pods"][0]["outcome"], outcome, "{zone}");
        let gang = document["gangs"][0]["buy"].as_array().map(Vec::len);
        assert_eq!(gang, Some(provisioned), "{zone}: {:#}", document["gangs"]);
    }
}

#[test]
fn a_pool_may_require_a_region_or_a_zone_as_the_ebs_driver_has_it() {
    let requires = |key: &str, value: &str| json!([{"key": key, "operator": "In", "values": [value]}]);
    for (requirements, zone) in [
        (requires("topology.kubernetes.io/region", "us-east-1"), Some("us-east-1a")),
        (requires("topology.kubernetes.io/region", "eu-west-1"), None),
        (requires("topology.ebs.csi.aws.com/zone", "us-east-1b"), Some("us-east-1b")),
    ] {
        let mut objects = vec![pod(&json!({})), job(&json!({}))];
        objects.extend(pool(&["us-east-1a", "us-east-1b"], &requirements));
        let document = plan(&objects);
        let outcome = if zone.is_some() { "buy" } else { "refused" };
        assert_eq!(document["pods"][0]["outcome"], outcome, "{requirements}: {:#}", document["pods"]);
        if let Some(zone) = zone {
            assert_eq!(document["nodes"][0]["zone"], zone);
        }
        let gang = document["gangs"][0]["buy"].as_array().map(Vec::len);
        assert_eq!(gang, Some(usize::from(zone.is_some())), "{requirements}: {:#}", document["gangs"]);
    }
}
