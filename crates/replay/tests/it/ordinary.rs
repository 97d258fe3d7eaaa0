//! Pods of no gang: the cheapest nodes to launch, with the proof.

use muster_replay::command::{self, Arguments, Format};
use muster_replay::dump::Input;
use serde_json::Value;

use crate::support::folder;

fn file(name: &str) -> String {
    std::fs::read_to_string(folder().join("../ordinary").join(name)).unwrap()
}

/// Plans a text with a catalogue.
pub(crate) fn planned(text: &str, catalogue: &str) -> (Value, u8) {
    let output = command::run(&Arguments {
        files: vec![Input { name: "dump.yaml", text }],
        format: Format::Json,
        catalogue: Some(Input { name: "aws.json", text: catalogue }),
        ..Arguments::default()
    });
    let output = output.unwrap();
    (serde_json::from_str(&output.text).unwrap(), output.code)
}

fn pool(name: &str, requirements: &str, taints: &str) -> String {
    format!(
        "---\napiVersion: muster.dev/v1alpha1\nkind: NodePool\nmetadata: {{name: {name}}}\nspec:\n  template:\n    spec:\n      \
         nodeClassRef: {{group: muster.dev, kind: EC2NodeClass, name: general}}\n      requirements:\n{requirements}\n{taints}\n"
    )
}

const TAINT: &str = "      taints: [{key: nvidia.com/gpu, effect: NoSchedule}]";
const THREE: &str =
    "      - {key: node.kubernetes.io/instance-type, operator: In, values: [g5.12xlarge, m5.2xlarge, p4d.24xlarge]}";
const FAMILIES: &str = "      - {key: muster.dev/instance-family, operator: In, values: [g5, m5, p4d]}";
const ANY: &str = "      - {key: kubernetes.io/arch, operator: In, values: [amd64]}";
const NO_GPU: &str = "      - {key: muster.dev/instance-gpu-count, operator: DoesNotExist}";
const GPU: &str = "      - {key: muster.dev/instance-gpu-count, operator: Exists}";

/// A pool for what has GPUs, tainted, and one for what has none.
fn apart(requirements: &str) -> String {
    pool("gpu", &format!("{requirements}\n{GPU}"), TAINT) + &pool("cpu", &format!("{requirements}\n{NO_GPU}"), "")
}

/// Types of the nodes with their number.
fn types(document: &Value) -> Vec<String> {
    let mut types: Vec<String> =
        document["nodes"].as_array().unwrap().iter().map(|node| node["type"].as_str().unwrap().to_owned()).collect();
    types.sort();
    types
}

#[test]
fn ten_pods_cost_the_optimum_in_each_of_the_six_rows() {
    let (ten, aws) = (file("ten.yaml"), file("aws.json"));
    let a100 = ten.replace(
        "  tolerations: [{key: nvidia.com/gpu, operator: Exists}]\n  containers: [{name: main, resources: {requests: {cpu: \"64\"",
        "  tolerations: [{key: nvidia.com/gpu, operator: Exists}]\n  nodeSelector: {muster.dev/instance-gpu-name: a100}\n  \
         containers: [{name: main, resources: {requests: {cpu: \"64\"",
    );
    assert_ne!(a100, ten);
    let rows = [
        (&ten, pool("all", THREE, ""), 49_587_284, "g5.12xlarge p4d.24xlarge p4d.24xlarge"),
        (
            &ten,
            apart(THREE),
            51_507_284,
            "g5.12xlarge m5.2xlarge m5.2xlarge m5.2xlarge m5.2xlarge m5.2xlarge p4d.24xlarge p4d.24xlarge",
        ),
        (&a100, pool("all", FAMILIES, ""), 48_787_284, "g5.4xlarge g5.4xlarge g5.4xlarge p4d.24xlarge p4d.24xlarge"),
        (&a100, apart(FAMILIES), 50_323_284, "g5.4xlarge g5.4xlarge g5.4xlarge m5.8xlarge p4d.24xlarge p4d.24xlarge"),
        (&ten, apart(FAMILIES), 38_984_000, "g5.48xlarge g5.48xlarge g5.4xlarge g5.4xlarge g5.4xlarge m5.8xlarge"),
        (&ten, pool("all", ANY, ""), 30_312_800, "g4dn.4xlarge g4dn.4xlarge g4dn.4xlarge g6.48xlarge g6.48xlarge"),
    ];
    for (index, (pods, pools, dollars, nodes)) in rows.iter().enumerate() {
        let (document, code) = planned(&format!("{pods}{pools}"), &aws);
        let row = index + 1;
        assert_eq!(document["cost"]["usdMicroPerHour"], *dollars, "row {row}: {}", document["cost"]);
        assert_eq!(document["cost"]["gap"], 0, "row {row}: {}", document["cost"]);
        assert_eq!(document["cost"]["bound"], *dollars, "row {row}");
        let placed = document["pods"].as_array().unwrap().iter().filter(|pod| pod["outcome"] == "buy").count();
        assert_eq!((placed, code), (10, 0), "row {row}");
        let mut expected: Vec<&str> = nodes.split(' ').collect();
        expected.sort_unstable();
        assert_eq!(types(&document), expected, "row {row}");
    }
}

#[test]
fn a_pool_may_name_any_fact_of_a_type() {
    let (ten, aws) = (file("ten.yaml"), file("aws.json"));
    let requirements = "      - {key: muster.dev/instance-category, operator: In, values: [c, m, r]}\n      \
                        - {key: muster.dev/instance-generation, operator: Gt, values: [\"4\"]}\n      \
                        - {key: muster.dev/instance-cpu, operator: Lte, values: [\"16\"]}";
    let (document, code) = planned(&format!("{ten}{}", pool("general", requirements, "")), &aws);
    assert_eq!(document["ignored"], serde_json::json!([]));
    let provisioned: Vec<&Value> =
        document["pods"].as_array().unwrap().iter().filter(|pod| pod["outcome"] == "buy").collect();
    assert_eq!((provisioned.len(), code), (5, 3), "{:#}", document["pods"]);
    let refused = document["pods"].as_array().unwrap().iter().find(|pod| pod["outcome"] == "refused").unwrap();
    assert_eq!(refused["reasons"][0]["code"], "Insufficient");
    assert_eq!(refused["reasons"][0]["pool"], "general");
}
