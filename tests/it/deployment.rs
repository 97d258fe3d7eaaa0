//! What is shipped is what runs: the Deployment against what the testbed starts.

use std::collections::BTreeSet;

use muster::testbed::repository;
use muster::testbed::settings::read_yaml;
use muster::testbed::stack::serve_args;
use serde_json::Value;

fn shipped(file: &str) -> Vec<Value> {
    read_yaml(&repository().join(file)).unwrap()
}

#[test]
fn the_deployment_starts_muster_with_the_arguments_the_suites_use() {
    let documents = shipped("manifests/deployment.yaml");
    let deployment = documents.iter().find(|document| document["kind"] == "Deployment").unwrap();
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let muster = containers.iter().find(|container| container["name"] == "muster").unwrap();
    let args: Vec<&str> = muster["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(args, serve_args("/etc/muster/muster.yaml"));
}

#[test]
fn the_shipped_configuration_is_valid_and_agrees_with_the_scheduler_s() {
    let text = std::fs::read_to_string(repository().join("manifests/muster.yaml")).unwrap();
    let config = muster::config::Config::parse(&text, "manifests/muster.yaml").unwrap();
    let scheduler = &shipped("scheduler-config/own-scheduler.yaml")[0];
    let extenders = scheduler["extenders"].as_array().unwrap();
    let binding = extenders.iter().find(|extender| extender["bindVerb"] == "bind").unwrap();
    assert_eq!(binding["httpTimeout"], format!("{}s", config.http_timeout.as_secs()));
    assert!(extenders.iter().all(|extender| extender["ignorable"] != true), "silent scheduling pod by pod");
    assert!(extenders.iter().all(|extender| extender["nodeCacheCapable"] == true));
    for extender in extenders {
        let url = extender["urlPrefix"].as_str().unwrap();
        assert!(url.starts_with(&format!("http://{}/v1/", config.extender)), "{url}");
    }
}

#[test]
fn the_rights_that_are_asked_for_at_the_start_are_those_of_the_shipped_roles() {
    let mut shipped: BTreeSet<(String, String, String)> = BTreeSet::new();
    for document in self::shipped("manifests/rbac.yaml") {
        let list = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        for rule in document["rules"].as_array().into_iter().flatten() {
            for group in list(&rule["apiGroups"]) {
                for resource in list(&rule["resources"]) {
                    let verbs = list(&rule["verbs"]).into_iter();
                    shipped.extend(verbs.map(|verb| (group.clone(), resource.clone(), verb)));
                }
            }
        }
    }
    let asked: BTreeSet<(String, String, String)> = muster::rights::RULES
        .iter()
        .flat_map(|rule| rule.verbs.iter().map(|verb| (rule.group.into(), rule.resource.into(), (*verb).to_owned())))
        .collect();
    assert_eq!(asked, shipped, "src/rights.rs and manifests/rbac.yaml");
}
